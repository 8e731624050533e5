"""Generations that keep the token that completes a stop: the same tokens as without, and that one more."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise.models.fake import HashModel
from choicewise.questions import Generation, Sampling

SAMPLINGS = [None, Sampling.of(0, "item", 0)]


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=["greedy", "sampled"])
@pytest.mark.parametrize("rung", ["tree", "prefix", "plain"])
def test_the_token_that_completes_a_stop_is_kept(rung: str, sampling: Sampling | None) -> None:
    pytest.importorskip("torch")
    from choicewise.models.local.local_model import answer_tokens
    from choicewise.models.local.paths import LADDER
    from tests.models.test_ladder import VOCABULARY, network

    lm, table = network("llama"), [b"%d," % token for token in range(VOCABULARY)]
    context = np.random.default_rng(3).integers(0, VOCABULARY, 20, dtype=np.int32)

    def tokens(generation: Generation) -> list[int]:
        ((_, scores),) = answer_tokens(LADDER[rung](lm, 64), [generation], (), table)
        return scores.tokens.tolist()

    endless = tokens(Generation(context, 24, (b"x",), sampling))
    for stop in (table[endless[0]], table[endless[5]] + table[endless[6]][:1], table[endless[23]], b"x"):
        ended = Generation(context, 24, (stop,), sampling)
        length = len(tokens(ended))
        assert tokens(replace(ended, keep_stop=True)) == endless[: length + 1]
        assert replace(ended, keep_stop=True).key != ended.key


@given(context=st.text(max_size=8), start=st.integers(0, 12), size=st.integers(1, 3))
def test_a_fake_keeps_it_as_well(context: str, start: int, size: int) -> None:
    model = HashModel()
    asked = Generation(np.frombuffer(context.encode(), np.uint8).astype(np.int32), 16)
    ((_, endless),) = model.answer([asked])
    text = b"".join(model.tokenizer.token_bytes[token] for token in endless.tokens)
    ended = replace(asked, stops=(text[start : start + size] or b"never",))
    ((_, without),), ((_, kept),) = model.answer([ended]), model.answer([replace(ended, keep_stop=True)])
    assert kept.tokens.tolist() == endless.tokens[: len(without.tokens) + 1].tolist()
