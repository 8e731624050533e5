"""What every rung generates, greedily or sampled, is what the plain path generates, up to a stop or an end."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from choicewise.models.fake import HashModel
from choicewise.models.local import causal_lm as sampling
from choicewise.models.local import paths as packed_path
from choicewise.models.local import plain
from choicewise.models.local.causal_lm import CausalLM
from choicewise.models.local.local_model import answer_tokens
from choicewise.models.local.paths import LADDER, PlainPath, TreePath
from choicewise.questions import Generation, Sampling, Span, TokenScores
from tests.helpers.answers import assert_same_scores, ids, in_order
from tests.helpers.tiny_models import COMMON, VOCABULARY, network, tiny

RANDOM = np.random.default_rng(7)
TABLE = [b"%d," % token for token in range(VOCABULARY)]
RUNGS, ENDS = ("tree", "prefix", "plain"), (3, 5, 60)


@pytest.mark.parametrize("rung", RUNGS)
@pytest.mark.parametrize("family", ["llama", "mistral", "llama4_text", "gpt_oss"])
def test_generations_are_greedy(family: str, rung: str) -> None:
    lm = network(family)
    shared = RANDOM.integers(0, VOCABULARY, 30, dtype=np.int32)
    contexts = [
        np.concatenate([shared, RANDOM.integers(0, VOCABULARY, size, dtype=np.int32)])
        for size in (1, 5, 9)
    ]
    contexts.append(contexts[1])
    generations = [
        Generation(context, limit) for context, limit in zip(contexts, (1, 6, 4, 2), strict=True)
    ]
    ends = {int(plain.generate(lm.model, VOCABULARY, generations[1], ()).tokens[2])}
    truth = [plain.generate(lm.model, VOCABULARY, generation, ends) for generation in generations]
    span = Span(contexts[0], ids(3, 4))
    answers = in_order(
        answer_tokens(LADDER[rung](lm, 20), [*generations, span, Generation(shared, 0)], ends, [])
    )
    assert_same_scores(answers, [*truth, plain.score(lm.model, VOCABULARY, span), TokenScores.of()])
    assert not any(answer.ranks.any() for answer in answers[:4])


@pytest.mark.costly(
    "on the plain rung every token is computed anew from all before it, forty times"
)
@pytest.mark.parametrize("rung", RUNGS)
def test_a_greedy_generation_ends_before_the_token_that_completes_a_stop(rung: str) -> None:
    lm, context = network("llama"), RANDOM.integers(0, VOCABULARY, 20, dtype=np.int32)
    greedy = plain.generate(lm.model, VOCABULARY, Generation(context, 30), ())
    text, tokens = [TABLE[token] for token in greedy.tokens], greedy.tokens.tolist()
    stops = [
        (text[0],),
        (text[5] + text[6][:1],),
        (text[15] + text[16],),
        (text[25], b"x"),
        (b"x",),
    ]
    generations = [
        Generation(context, limit, stop) for stop in stops for limit in (1, 9, 20, len(text))
    ]
    generations.append(Generation(context, 7))
    for ends in ((), (tokens[-1],)):
        lengths = [
            generated_length(text, tokens, each.limit, each.stops, ends) for each in generations
        ]
        seen = in_order(answer_tokens(LADDER[rung](lm, 64), generations, ends, TABLE))
        assert_same_scores(seen, [greedy.first(length) for length in lengths])


def generated_length(
    text: list[bytes],
    tokens: list[int],
    limit: int,
    stops: tuple[bytes, ...],
    ends: tuple[int, ...],
) -> int:
    """How many of the greedy tokens of these texts are the generation: after an end, before a stop, or at the limit."""
    for count in range(limit):
        if any(stop in b"".join(text[: count + 1]) for stop in stops):
            return count
        if tokens[count] in ends:
            return count + 1
    return limit


@pytest.mark.parametrize("drawn", [None, Sampling.of(0, "item", 0)], ids=["greedy", "sampled"])
@pytest.mark.parametrize("rung", RUNGS)
def test_the_token_that_completes_a_stop_is_kept_where_asked(
    rung: str, drawn: Sampling | None
) -> None:
    lm, context = (
        network("llama"),
        np.random.default_rng(3).integers(0, VOCABULARY, 20, dtype=np.int32),
    )

    def tokens(generation: Generation) -> list[int]:
        ((_, scores),) = answer_tokens(LADDER[rung](lm, 64), [generation], (), TABLE)
        return scores.tokens.tolist()

    endless = tokens(Generation(context, 24, (b"x",), drawn))
    for stop in (
        TABLE[endless[0]],
        TABLE[endless[5]] + TABLE[endless[6]][:1],
        TABLE[endless[23]],
        b"x",
    ):
        ended = Generation(context, 24, (stop,), drawn)
        length = len(tokens(ended))
        assert tokens(replace(ended, keep_stop=True)) == endless[: length + 1]
        assert replace(ended, keep_stop=True).key != ended.key


@given(context=st.text(max_size=8), start=st.integers(0, 12), size=st.integers(1, 3))
@settings(max_examples=15)
def test_a_fake_keeps_it_as_well(context: str, start: int, size: int) -> None:
    model, asked = HashModel(), Generation(ids(*context.encode()), 16)
    ((_, endless),) = model.answer([asked])
    text = b"".join(model.tokenizer.token_bytes[token] for token in endless.tokens)
    ended = replace(asked, stops=(text[start : start + size] or b"never",))
    without, kept = in_order(model.answer([ended, replace(ended, keep_stop=True)]))
    assert kept.tokens.tolist() == endless.tokens[: len(without.tokens) + 1].tolist()


@cache
def sampled(family: str) -> tuple[CausalLM, list[Generation], list[TokenScores]]:
    """A greedy generation, then three samples each of three contexts, and what the plain path makes of them."""
    lm, random = network(family), np.random.default_rng(1)  # whatever other tests drew
    shared = random.integers(0, VOCABULARY, 30, dtype=np.int32)
    contexts = [
        shared,
        np.append(shared, shared[:5]),
        random.integers(0, VOCABULARY, 7, dtype=np.int32),
    ]
    asked = [Generation(shared, 6, (b"7,",))]
    asked += [
        Generation(each, 9, (b"7,",), Sampling.of(0, "item", number))
        for each in contexts
        for number in range(3)
    ]
    return (
        lm,
        asked,
        [plain.generate(lm.model, VOCABULARY, generation, ENDS, TABLE) for generation in asked],
    )


@pytest.mark.parametrize("rung", RUNGS)
@pytest.mark.parametrize("family", ["llama", "mistral", "gemma2", "llama4_text", "gpt_oss"])
def test_samples_are_the_same_in_any_company(
    family: str, rung: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed_path, "TOGETHER", 3)
    lm, asked, expected = sampled(family)
    assert len({tuple(scores.tokens) for scores in expected}) > 6
    assert_same_scores(
        in_order(answer_tokens(LADDER[rung](lm, 20), asked, ENDS, TABLE)), expected, atol=1e-4
    )
    ((_, alone),) = answer_tokens(LADDER[rung](lm, 20), [asked[5]], ENDS, TABLE)
    assert alone.tokens.tolist() == expected[5].tokens.tolist()


def test_a_sample_draws_only_what_the_tokenizer_knows() -> None:
    lm, table = network("llama"), [b"x"] * 9
    sample = Generation(ids(1, 2, 3), 40, (b"y",), Sampling.of(0, "item", 0))
    ((_, seen),) = TreePath(lm, 20).generate([sample], (), table)
    assert (
        seen.tokens.tolist()
        == plain.generate(lm.model, VOCABULARY, sample, (), table).tokens.tolist()
    )
    assert max(seen.tokens) < 9


@pytest.mark.parametrize("family", ["llama", "gemma2", "mamba", "bamba"])
def test_the_cache_changes_no_chain(family: str) -> None:
    chain = Generation(ids(*range(3, 43)), 20, (b"zz",), Sampling.of(0, "item", 0))
    one, other = (
        way(tiny(family), VOCABULARY, chain, [], TABLE) for way in (plain.generate, sampling.sample)
    )
    assert_same_scores([one], [other], atol=1e-4)
    assert len(one.tokens) == 20


def test_a_chain_that_ends_at_once_is_empty() -> None:
    chain = Generation(ids(*range(3, 13)), 20, (b"x",), Sampling.of(0, "item", 0))
    for ends, table in ((range(VOCABULARY), TABLE), ([], [b"x"] * VOCABULARY)):
        for way in (plain.generate, sampling.sample):
            answer = way(tiny("llama"), VOCABULARY, chain, ends, table)
            assert (len(answer.tokens), len(answer.logprobs), answer.is_nan) == (0, 0, False)


def test_a_cache_that_is_wrong_is_not_used() -> None:
    model, forward = tiny("llama"), type(tiny("llama")).forward

    class Forgetful(type(model)):  # type: ignore[misc]
        def forward(self, input_ids: Any, past_key_values: Any = None, **rest: Any) -> Any:
            return forward(self, input_ids, **rest)

    torch.manual_seed(0)
    model.__class__ = Forgetful
    asked = (
        model,
        VOCABULARY,
        Generation(ids(*range(3, 23)), 10, (b"x",), Sampling.of(0, "item", 0)),
        [2],
        TABLE,
    )
    assert sampling.sample(*asked).tokens.tolist() == plain.generate(*asked).tokens.tolist()


def test_a_model_that_fails_with_a_cache_is_asked_without_one() -> None:
    """xLSTM's, in transformers 5.21 to 5.24."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(
        CONFIG_MAPPING["xlstm"](**COMMON, num_heads=4, chunk_size=16)
    ).eval()
    chain = Generation(ids(*range(3, 23)), 5, (b"zz",), Sampling.of(0, "item", 0))
    asked = model, VOCABULARY, chain, [], TABLE
    assert_same_scores([sampling.sample(*asked)], [plain.generate(*asked)])
    span = Span(ids(*range(3, 13)), ids(5, 7, 9))
    answers = in_order(LADDER["sequence"](CausalLM(model, 512, VOCABULARY), 64).score([span]))
    assert_same_scores(answers, [plain.score(model, VOCABULARY, span)])


def test_generating_computes_contexts_once_and_then_one_token_a_step_and_so_do_chains(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lm, context = network("llama"), RANDOM.integers(0, VOCABULARY, 30, dtype=np.int32)
    samples = [Generation(context, 10, (), Sampling.of(0, "item", number)) for number in range(8)]
    planned = [
        lm.work.planned for _ in TreePath(lm, 4096).generate(samples, (), [b"x"] * VOCABULARY)
    ]
    assert lm.computed == lm.work.planned == 30 + 8 * 9
    others = [
        replace(each, context=np.append(context, np.int32(last)))
        for last in range(3)
        for each in samples
    ]
    with (
        monkeypatch.context() as patch
    ):  # chains of several questions go on together, in one pass a step
        passes, body = [], lm.body
        patch.setattr(
            lm,
            "body",
            lambda **inputs: passes.append(inputs["input_ids"].numel()) or body(**inputs),
        )
        assert len(list(TreePath(lm, 4096).generate(others, (), [b"x"] * VOCABULARY))) == 24
    assert passes == [30 + 3] + [24] * 9
    assert planned == [30 + 8 * 9] * 8
    lm, shared = network("llama"), RANDOM.integers(0, VOCABULARY, 30, dtype=np.int32)
    generations = [Generation(np.append(shared, np.int32(last)), 5) for last in range(6)]
    before = lm.computed
    assert (len(list(TreePath(lm, 4096).generate(generations, ()))), lm.computed - before) == (
        6,
        30 + 6 + 4 * 6,
    )


def test_planned_tokens_are_known_at_first_and_right_at_last() -> None:
    """A tree's tokens at once; a generation's limit first, and its length in the end."""
    lm = network("llama")
    spans = [Span(RANDOM.integers(0, VOCABULARY, 40, dtype=np.int32), ids(1, 2)) for _ in range(4)]
    seen = [(lm.computed, lm.work.planned) for _ in TreePath(lm, 10).score(spans)]
    assert {planned for _, planned in seen} == {4 * 41}
    assert len({computed for computed, _ in seen}) > 1
    lm = network("llama")
    ((_, greedy),) = PlainPath(lm).generate([Generation(ids(1, 2), 6)], ())
    ends = {int(greedy.tokens[2])}
    for path in (TreePath, PlainPath):
        lm = network("llama")
        assert (
            len(
                list(path(lm, *[20][: path is TreePath]).generate([Generation(ids(1, 2), 6)], ends))
            )
            == 1
        )
        assert lm.work.planned == lm.computed > 0


def test_counting_adds_every_pass_of_the_undivided_model() -> None:
    lm, context = network("llama"), RANDOM.integers(0, VOCABULARY, 20, dtype=np.int32)
    sampled, computed = Generation(context, 5, (b"x",), Sampling(b"")), []
    for way in (plain.generate, sampling.sample):
        before = lm.computed
        with lm.counting():
            assert len(way(lm.model, VOCABULARY, sampled, (), TABLE).tokens) == 5
        plain.score(lm.model, VOCABULARY, Span(context, ids(3)))
        computed.append(lm.computed - before)
    # With the cache every input once, and once more in the pass that checks the cache.
    assert computed == [20 + 21 + 22 + 23 + 24, 24 + 24]
