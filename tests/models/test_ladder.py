"""Every rung of the ladder gives the plain path's numbers, or is refused: on many families, broken ones among them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedModel

from choicewise.engine import build, next_pack
from choicewise.errors import ModelError
from choicewise.models.local import attention, plain
from choicewise.models.local import causal_lm as sampling
from choicewise.models.local import paths as packed_path
from choicewise.models.local.attention import Reach, TreePass, tree_reach, visible
from choicewise.models.local.causal_lm import CausalLM
from choicewise.models.local.devices import to_device
from choicewise.models.local.local_model import answer_tokens
from choicewise.models.local.paths import (
    LADDER,
    ComputePath,
    MaskPath,
    PackedPath,
    PlainPath,
    PrefixPath,
    SequencePath,
    TreePath,
    branches,
    declared,
    out_of_memory,
)
from choicewise.models.local.selfcheck import probe
from choicewise.questions import Generation, Mass, Sampling, Span, TokenSet
from tests.helpers.tiny_models import VOCABULARY, WINDOW, tiny

RANDOM = np.random.default_rng(7)


def network(family: str) -> CausalLM:
    return CausalLM(tiny(family), window=512, vocabulary=VOCABULARY)


def ids(*tokens: int) -> np.ndarray:
    return np.asarray(tokens, dtype=np.int32)


def worst(path: ComputePath, lm: CausalLM, spans: list[Span]) -> float:
    """The largest difference (nats per token) from the plain path; ranks and tokens must be the same."""
    seen = dict(path.score(spans))
    assert sorted(seen) == list(range(len(spans)))
    found = []
    for index, span in enumerate(spans):
        truth = plain.score(lm.model, lm.vocabulary, span)
        assert seen[index].tokens.tolist() == span.continuation.tolist()
        assert seen[index].ranks.tolist() == truth.ranks.tolist()
        assert seen[index].logprobs.dtype == np.float32
        found.append(np.abs(seen[index].logprobs - truth.logprobs).max())
    return float(max(found))


RIGHT = [
    *((family, "tree") for family in ("llama", "mistral", "gemma2", "gpt_oss", "llama4_text", "opt")),
    *((family, "mask") for family in ("llama", "mistral", "falcon", "gemma3_text")),
    *((family, "additive mask") for family in ("llama", "gptj")),
    *((family, "prefix") for family in ("llama", "bloom", "rwkv", "mamba2")),
    *((family, "sequence") for family in ("llama", "mamba", "recurrent_gemma")),
]


@pytest.mark.costly("networks are computed")
@pytest.mark.parametrize(("family", "rung"), RIGHT)
@pytest.mark.parametrize("budget", [3, 40, 4096])
def test_rungs_are_right_at_every_budget(family: str, rung: str, budget: int) -> None:
    lm = network(family)
    # A budget of three tokens runs a model a hundred times: short spans will do, still beyond the window.
    spans = probe(WINDOW + 40 if budget == 3 else 150, VOCABULARY)
    assert worst(LADDER[rung](lm, budget), lm, [*spans, spans[0]]) < 2e-5


token = st.integers(0, 3)
some = st.lists(token, min_size=1, max_size=8).map(lambda tokens: ids(*tokens))
LLAMA, WINDOWED = network("llama"), network("mistral")
WINDOWED.model.config.sliding_window = 4


@pytest.mark.costly("networks are computed")
@given(st.lists(st.builds(Span, some, some), min_size=1, max_size=10), st.integers(1, 9), st.integers(1, 4))
@settings(deadline=None, max_examples=12)
def test_tree_path_on_any_tree(spans: list[Span], budget: int, segment: int) -> None:
    for lm in (LLAMA, WINDOWED):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(attention, "SEGMENT", segment)
            assert worst(TreePath(lm, budget), lm, spans) < 2e-5
        assert worst(PrefixPath(lm), lm, spans) < 2e-5
        assert worst(SequencePath(lm), lm, spans) < 2e-5


@given(
    st.lists(st.builds(Span, some, some), min_size=1, max_size=10), st.sampled_from([Reach(), Reach(3), Reach(None, 3)])
)
def test_visible_is_ancestors_within_reach(spans: list[Span], reach: Reach) -> None:
    tree = build(spans)
    every = np.arange(len(tree), dtype=np.int32)
    seen = visible(tree, every, every, reach)
    for row in every:
        for key in every:
            expected = key <= row < tree.end[key]
            if reach.window:
                expected = expected and tree.depth[row] - tree.depth[key] < reach.window
            if reach.chunk:
                expected = expected and tree.depth[row] // reach.chunk == tree.depth[key] // reach.chunk
            assert seen[row, key] == expected


def test_reach_is_read_off_the_mask_function() -> None:
    assert tree_reach(mask_function=lambda b, h, q, k: k <= q) == Reach()
    assert tree_reach(mask_function=lambda b, h, q, k: k > q - 8, local_size=8) == Reach(window=8)
    assert tree_reach(mask_function=lambda b, h, q, k: k // 8 == q // 8, local_size=8) == Reach(chunk=8)


def test_declared_kinds_of_layers() -> None:
    assert declared(tiny("llama").config) == {"": Reach()}
    assert declared(tiny("llama4_text").config)["chunked_attention"] == Reach(chunk=WINDOW)
    assert declared(tiny("gemma3_text").config).keys() == {"full_attention", "sliding_attention"}


def test_attention_refuses_what_it_does_not_compute() -> None:
    states = torch.zeros(1, 1, 1, 4)
    with pytest.raises(ValueError, match="position biases"):
        attention.tree_attention(torch.nn.Identity(), states, states, states, None, position_bias=states)


def test_every_unique_token_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    lm, spans, computed = network("llama"), probe(150, VOCABULARY), 0
    body = CausalLM.body

    def counting(self: CausalLM, **inputs: torch.Tensor) -> object:
        nonlocal computed
        computed += inputs["input_ids"].numel()
        return body(self, **inputs)

    monkeypatch.setattr(CausalLM, "body", counting)
    for path in (TreePath(lm, 30), MaskPath(lm, 30)):
        computed = 0
        list(path.score(spans))
        assert computed == len(build(spans))


def test_keys_and_values_are_kept_along_the_path_only() -> None:
    lm, spans = network("llama"), probe(150, VOCABULARY)
    tree = build(spans)
    pack = next_pack(tree, 0, ids(), 100)
    _, next_past = TreePath(lm, 100).forward(tree, pack, [])
    assert len(next_past) == lm.layers
    assert {key.shape[2] for key, _ in next_past} == {int(tree.depth[100])}


@pytest.mark.parametrize("error", [MemoryError(), torch.OutOfMemoryError("CUDA out of memory")])
def test_out_of_memory_splits_the_pack_and_goes_on(error: Exception) -> None:
    lm, spans = network("llama"), probe(150, VOCABULARY)

    class Cramped(TreePath):
        def forward(self, tree, pack, past):  # type: ignore[no-untyped-def]
            if len(pack) > 20:
                raise error
            return super().forward(tree, pack, past)

    path = Cramped(lm, 4096)
    assert worst(path, lm, spans) < 2e-5
    assert 10 < path.budget <= 20


def test_out_of_memory_at_one_token_is_an_error() -> None:
    class Hopeless(PackedPath):
        name = cost = "hopeless"

        def forward(self, tree, pack, past):  # type: ignore[no-untyped-def]
            raise MemoryError

    with pytest.raises(ModelError, match="not enough memory for one token"):
        list(Hopeless(network("llama"), 64).score(probe(60, VOCABULARY)))


def test_other_errors_are_not_taken_for_lack_of_memory() -> None:
    assert out_of_memory(MemoryError())
    assert out_of_memory(RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: not enough memory"))
    assert not out_of_memory(RuntimeError("shape mismatch"))


def test_an_abandoned_iterator_leaves_the_model_as_it_was() -> None:
    lm, spans = network("llama"), probe(150, VOCABULARY)
    before = plain.score(lm.model, VOCABULARY, spans[0]).logprobs
    answers = TreePath(lm, 20).score(spans)
    next(answers)
    assert plain.score(lm.model, VOCABULARY, spans[0]).logprobs.tolist() == before.tolist()
    answers.close()
    assert lm.model.config._attn_implementation != attention.NAME


def test_packs_shorten_as_their_path_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    lm, spans = network("llama"), probe(300, VOCABULARY)
    monkeypatch.setattr(packed_path, "PAIRS", 2000)
    monkeypatch.setattr(attention, "SEGMENT", 9)
    sizes = []
    forward = TreePath.forward

    def watching(self, tree, pack, past):  # type: ignore[no-untyped-def]
        sizes.append((len(pack.path), len(pack)))
        return forward(self, tree, pack, past)

    monkeypatch.setattr(TreePath, "forward", watching)
    assert worst(TreePath(lm, 64), lm, spans) < 2e-5
    assert sizes[0] == (0, 64)
    assert all(size <= max(9, 2000 // (path + 1)) for path, size in sizes)


def test_arrays_reach_the_device_as_they_are() -> None:
    array = np.arange(6, dtype=np.int32).reshape(2, 3)[:, ::2]
    moved = to_device(array, torch.device("cpu"))
    assert moved.dtype == torch.int32
    assert moved.tolist() == array.tolist()


def test_context_far_beyond_the_budget() -> None:
    lm = network("llama")
    context = RANDOM.integers(0, VOCABULARY, 400, dtype=np.int32)
    assert worst(TreePath(lm, 7), lm, [Span(context, ids(5, 6)), Span(context, ids(9))]) < 2e-5


@pytest.mark.parametrize("family", ["granite", "cohere2", "gemma2"])
def test_head_scales_and_caps_as_the_model_does(family: str) -> None:
    lm = network(family)
    tokens = torch.arange(12)[None]
    with torch.inference_mode():
        hidden = lm.body(input_ids=tokens, use_cache=False)[0][0]
        expected = lm.model(input_ids=tokens).logits[0]
        torch.testing.assert_close(lm.logits(hidden), expected[:, :VOCABULARY])


def test_padded_vocabulary_takes_no_part() -> None:
    model = tiny("llama")
    lm = CausalLM(model, window=512, vocabulary=VOCABULARY - 16)
    spans = probe(100, VOCABULARY - 16)
    assert worst(TreePath(lm, 64), lm, spans) < 2e-5


def test_branches_cover_the_tree() -> None:
    tree = build(probe(120, VOCABULARY))
    runs = branches(tree)
    assert runs[0][0] == 0
    assert runs[-1][1] == len(tree)
    assert all(np.diff(tree.depth[start:stop]).tolist() == [1] * (stop - start - 1) for start, stop in runs)


@pytest.mark.parametrize("rung", ["tree", "prefix", "plain"])
@pytest.mark.parametrize("family", ["llama", "mistral", "llama4_text", "gpt_oss"])
def test_generations_are_greedy(family: str, rung: str) -> None:
    lm = network(family)
    shared = RANDOM.integers(0, VOCABULARY, 30, dtype=np.int32)
    contexts = [np.concatenate([shared, RANDOM.integers(0, VOCABULARY, size, dtype=np.int32)]) for size in (1, 5, 9)]
    contexts.append(contexts[1])
    generations = [Generation(context, limit) for context, limit in zip(contexts, (1, 6, 4, 2), strict=True)]
    truth = [plain.generate(lm.model, VOCABULARY, generation, ()) for generation in generations]
    ends = {int(truth[1].tokens[2])}
    truth = [plain.generate(lm.model, VOCABULARY, generation, ends) for generation in generations]
    span = Span(contexts[0], ids(3, 4))
    answers = dict(answer_tokens(LADDER[rung](lm, 20), [*generations, span, Generation(shared, 0)], ends, []))
    assert sorted(answers) == [0, 1, 2, 3, 4, 5]
    assert len(answers[5].tokens) == 0
    for index, expected in enumerate(truth):
        assert answers[index].tokens.tolist() == expected.tokens.tolist()
        assert not answers[index].ranks.any()
        np.testing.assert_allclose(answers[index].logprobs, expected.logprobs, atol=2e-5)
    np.testing.assert_allclose(answers[4].logprobs, plain.score(lm.model, VOCABULARY, span).logprobs, atol=2e-5)


@pytest.mark.costly("networks are computed")
@pytest.mark.parametrize("rung", ["tree", "prefix", "plain"])
def test_a_greedy_generation_ends_before_the_token_that_completes_a_stop(rung: str) -> None:
    lm, table = network("llama"), [b"%d," % token for token in range(VOCABULARY)]
    context = RANDOM.integers(0, VOCABULARY, 20, dtype=np.int32)
    greedy = plain.generate(lm.model, VOCABULARY, Generation(context, 48), ())
    end = int(greedy.tokens[-1])
    text = [table[token] for token in greedy.tokens]
    crossing = text[15] + text[16]
    stops = [(text[0],), (text[5] + text[6][:1],), (crossing,), (text[40], b"x"), (b"x",)]
    generations = [Generation(context, limit, stop) for stop in stops for limit in (1, 9, 32, len(text))]
    for ends in ((), (end,)):
        answers = dict(answer_tokens(LADDER[rung](lm, 64), [*generations, Generation(context, 7)], ends, table))
        assert len(answers[len(generations)].tokens) == generated_length(text, greedy.tokens.tolist(), 7, (), ends)
        for index, generation in enumerate(generations):
            length = generated_length(text, greedy.tokens.tolist(), generation.limit, generation.stops, ends)
            assert answers[index].tokens.tolist() == greedy.tokens[:length].tolist()
            np.testing.assert_allclose(answers[index].logprobs, greedy.logprobs[:length], atol=2e-5)


def generated_length(
    text: list[bytes], tokens: list[int], limit: int, stops: tuple[bytes, ...], ends: tuple[int, ...]
) -> int:
    """How many of the greedy tokens of these texts are the generation: after an end, before a stop, or at the limit."""
    for count in range(limit):
        if any(stop in b"".join(text[: count + 1]) for stop in stops):
            return count
        if tokens[count] in ends:
            return count + 1
    return limit


def test_a_pass_counts_its_calls() -> None:
    model: PreTrainedModel = tiny("llama")
    lm = CausalLM(model, window=512, vocabulary=VOCABULARY)
    tree = build(probe(60, VOCABULARY))
    tree_pass = TreePass(tree, next_pack(tree, 0, ids(), 60), [])
    with lm.attention(attention.NAME), attention.running(tree_pass.attend), torch.inference_mode():
        lm.body(input_ids=lm.tensor(tree.tokens[:60])[None], position_ids=lm.tensor(tree.depth[:60])[None])
    assert tree_pass.calls == lm.layers == len(tree_pass.next_past)


@pytest.mark.costly("networks are computed")
@pytest.mark.parametrize("rung", ["tree", "prefix", "plain"])
@pytest.mark.parametrize("family", ["llama", "mistral", "gemma2", "llama4_text", "gpt_oss"])
def test_samples_are_the_same_in_any_company(family: str, rung: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_path, "TOGETHER", 3)
    random = np.random.default_rng(1)  # whatever other tests drew
    lm, table = network(family), [b"%d," % token for token in range(VOCABULARY)]
    shared = random.integers(0, VOCABULARY, 30, dtype=np.int32)
    contexts = [shared, np.append(shared, shared[:5]), random.integers(0, VOCABULARY, 7, dtype=np.int32)]
    samples = [
        Generation(context, 12, (b"7,",), Sampling.of(0, "item", number)) for context in contexts for number in range(3)
    ]
    greedy, ends = Generation(shared, 6, (b"7,",)), {3, 5, 60}
    answers = dict(answer_tokens(LADDER[rung](lm, 20), [greedy, *samples], ends, table))
    expected = [plain.generate(lm.model, VOCABULARY, greedy, ends, table)]
    expected += [plain.generate(lm.model, VOCABULARY, sample, ends, table) for sample in samples]
    assert len({tuple(scores.tokens) for scores in expected}) > 6
    for index, scores in enumerate(expected):
        assert answers[index].tokens.tolist() == scores.tokens.tolist()
        assert answers[index].ranks.tolist() == scores.ranks.tolist()
        np.testing.assert_allclose(answers[index].logprobs, scores.logprobs, atol=1e-4)
    ((_, alone),) = answer_tokens(LADDER[rung](lm, 20), [samples[4]], ends, table)
    assert alone.tokens.tolist() == expected[5].tokens.tolist()


def test_a_sample_draws_only_what_the_tokenizer_knows() -> None:
    lm, table = network("llama"), [b"x"] * 9
    sample = Generation(ids(1, 2, 3), 40, (b"y",), Sampling.of(0, "item", 0))
    ((_, seen),) = TreePath(lm, 20).generate([sample], (), table)
    assert seen.tokens.tolist() == plain.generate(lm.model, VOCABULARY, sample, (), table).tokens.tolist()
    assert max(seen.tokens) < 9


def test_chains_of_one_context_compute_it_once() -> None:
    lm = network("llama")
    table = [b"x"] * VOCABULARY
    context = RANDOM.integers(0, VOCABULARY, 30, dtype=np.int32)
    samples = [Generation(context, 10, (), Sampling.of(0, "item", number)) for number in range(8)]
    planned = [lm.work.planned for _ in TreePath(lm, 4096).generate(samples, (), table)]
    assert lm.computed == lm.work.planned == 30 + 8 * 9
    assert planned == [30 + 8 * 9] * 8


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
        assert len(list(path(lm, *[20][: path is TreePath]).generate([Generation(ids(1, 2), 6)], ends))) == 1
        assert lm.work.planned == lm.computed > 0


def test_generating_computes_contexts_once_and_then_one_token_a_step() -> None:
    lm = network("llama")
    shared = RANDOM.integers(0, VOCABULARY, 30, dtype=np.int32)
    generations = [Generation(np.append(shared, np.int32(last)), 5) for last in range(6)]
    before = lm.computed
    assert len(list(TreePath(lm, 4096).generate(generations, ()))) == 6
    assert lm.computed - before == 30 + 6 + 4 * 6


def test_the_plain_path_counts_what_it_computes() -> None:
    lm = network("llama")
    context = RANDOM.integers(0, VOCABULARY, 6, dtype=np.int32)
    before = lm.computed
    assert len(list(PlainPath(lm).score([Span(context, ids(3, 4)), Mass(context, TokenSet([5, 6]))]))) == 2
    assert lm.computed - before == 7 + 6
    questions = [Generation(context, 3), Generation(context, 1), Span(context, ids(3))]
    assert len(list(answer_tokens(PlainPath(lm), questions, (), []))) == 3
    assert lm.computed - before == 7 + 6 + (6 + 7 + 8) + 6 + 6


def test_counting_adds_every_pass_of_the_undivided_model() -> None:
    lm, table = network("llama"), [b"%d " % token for token in range(VOCABULARY)]
    context = RANDOM.integers(0, VOCABULARY, 20, dtype=np.int32)
    sampled = Generation(context, 5, (b"x",), Sampling(b""))
    computed = []
    for way in (plain.generate, sampling.sample):
        before = lm.computed
        with lm.counting():
            assert len(way(lm.model, VOCABULARY, sampled, (), table).tokens) == 5
        plain.score(lm.model, VOCABULARY, Span(context, ids(3)))
        computed.append(lm.computed - before)
    # With the cache every input once, and once more in the pass that checks the cache.
    assert computed == [20 + 21 + 22 + 23 + 24, 24 + 24]
