"""Losses and cosines from states computed once, against the model's own passes over whole sequences."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from choicewise.models.local import plain
from choicewise.models.local.local_model import HiddenStates
from choicewise.models.local.paths import LADDER
from choicewise.questions import Cosine, MaskedLoss, Span
from tests.helpers.tiny_models import VOCABULARY, tiny

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
    random = np.random.default_rng(1)
    model = tiny(family)
    context, other = draw(random, 9), draw(random, 5)
    spans = [Span(context, draw(random, length)) for length in (1, 3, 4)] + [Span(other, draw(random, 2))]
    pairs = [Cosine(context, other), Cosine(context, context), Cosine(other, draw(random, 1))]
    lm = HiddenStates(model, 512, VOCABULARY)
    path = LADDER[RUNGS[family]](lm, 7)  # packs so small that a span lies in several
    losses = dict(lm.answer(path, [MaskedLoss(span) for span in spans]))
    for index, span in enumerate(spans):
        assert losses[index].value == pytest.approx(plain.loss(model, span), abs=1e-4)
        total = float(plain.score(model, VOCABULARY, span).logprobs.sum())
        assert losses[index].value * len(span.continuation) == pytest.approx(-total, abs=1e-4)
    cosines = dict(lm.answer(path, pairs))
    for index, pair in enumerate(pairs):
        assert cosines[index].value == pytest.approx(plain.cosine(model, pair), abs=1e-4)
    assert cosines[1].value == pytest.approx(1)
