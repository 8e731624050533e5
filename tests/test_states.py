"""Losses and cosines from states computed once, against the model's own passes over whole sequences."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from choicewise.models.local import hidden_states as states  # noqa: E402
from choicewise.models.local import plain
from choicewise.models.local.ladder import LADDER  # noqa: E402
from choicewise.questions.cosine import Cosine  # noqa: E402
from choicewise.questions.span import Span  # noqa: E402
from tests.tiny import VOCABULARY, tiny  # noqa: E402

RUNGS = {
    "llama": "tree",
    "gpt2": "tree",
    "gemma2": "tree",
    "granite": "mask",
    "cohere2": "sequence",
    "gptj": "sequence",
    "rwkv": "prefix",
    "mixtral": "sequence",
}


def draw(random: np.random.Generator, tokens: int) -> np.ndarray:
    return random.integers(3, VOCABULARY, tokens, dtype=np.int32)


@pytest.mark.parametrize("family", RUNGS)
def test_the_loss_and_the_cosine_are_the_models_own(family: str) -> None:
    torch.set_num_threads(1)
    random = np.random.default_rng(1)
    model = tiny(family)
    context, other = draw(random, 9), draw(random, 5)
    spans = [Span(context, draw(random, length)) for length in (1, 3, 4)] + [Span(other, draw(random, 2))]
    pairs = [Cosine(context, other), Cosine(context, context), Cosine(other, draw(random, 1))]
    lm, rung = states.States(model, 512, VOCABULARY), LADDER[RUNGS[family]]
    losses = dict(states.masked(lm, rung, 7, spans))  # packs so small that a span lies in several
    for index, span in enumerate(spans):
        assert losses[index] == pytest.approx(plain.masked(model, span), abs=1e-4)
        seen = plain.score(model, VOCABULARY, span)
        assert losses[index] * len(span.continuation) == pytest.approx(-float(seen.logprobs.sum()), abs=1e-4)
    found = dict(states.cosines(lm, rung, 7, pairs))
    for index, pair in enumerate(pairs):
        assert found[index] == pytest.approx(plain.cosine(model, pair), abs=1e-4)
    assert found[1] == pytest.approx(1)
