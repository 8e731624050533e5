"""Every rung of the ladder gives the plain path's numbers, or is refused: on many families, broken ones among them. The
probability of a set of tokens, too, and on a CUDA device where there is one. What rungs generate is in
``test_generations.py``."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._dynamo.testing import CompileCounterWithBackend
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from choicewise.engine import FIRST_SET, Reach, build, next_pack, next_path
from choicewise.errors import ModelError
from choicewise.models.fake import AntiOracle, HashModel, Oracle
from choicewise.models.local import attention, flex, parallel, paths, plain
from choicewise.models.local.attention import TreePass, tree_reach, visible
from choicewise.models.local.causal_lm import CausalLM
from choicewise.models.local.devices import to_device
from choicewise.models.local.local_model import HiddenStates, LocalModel, answer_tokens
from choicewise.models.local.paths import LADDER, PlainPath, TreePath, declared, rungs
from choicewise.models.local.selfcheck import check, probe
from choicewise.questions import (
    Cosine,
    Generation,
    Ids,
    MaskedLoss,
    Mass,
    Span,
    TokenScores,
    TokenSet,
)
from choicewise.tokens.boundary import without
from choicewise.tokens.tokenizer import ByteTokenizer
from tests.helpers.answers import assert_same_scores, ids, in_order
from tests.helpers.tiny_models import VOCABULARY, WINDOW, network, tiny

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")

RANDOM = np.random.default_rng(7)


def plainly(lm: CausalLM, spans: Sequence[Span]) -> list[TokenScores]:
    return [plain.score(lm.model, lm.vocabulary, span) for span in spans]


def assert_right(path: paths.ComputePath, lm: CausalLM, spans: list[Span]) -> None:
    assert_same_scores(in_order(path.score(spans)), plainly(lm, spans))


@cache
def probed(family: str, tokens: int) -> tuple[CausalLM, list[Span], list[TokenScores]]:
    """A network, the spans of a probe with one of them twice, and what the plain path says of them."""
    lm, spans = network(family), probe(tokens, VOCABULARY)
    spans = [*spans, spans[0]]
    return lm, spans, plainly(lm, spans)


PACKED = [
    *(
        (family, "tree")
        for family in ("llama", "mistral", "gemma2", "gpt_oss", "llama4_text", "opt")
    ),
    *((family, "mask") for family in ("llama", "mistral", "falcon", "gemma3_text")),
    *((family, "additive mask") for family in ("llama", "gptj")),
]
IN_SEQUENCE = [
    *((family, "prefix") for family in ("llama", "bloom", "rwkv", "mamba2")),
    *((family, "sequence") for family in ("llama", "mamba", "recurrent_gemma")),
]
BY_A_RULE = [(family, "flex", 80) for family in ("llama", "mistral", "olmo3", "deepseek_v3")]


@pytest.mark.parametrize(
    ("family", "rung", "budget"),
    [
        *((*case, budget) for budget in (3, 40, 4096) for case in PACKED),
        *((*case, 4096) for case in IN_SEQUENCE),
        *(
            pytest.param(*case, marks=pytest.mark.costly("uncompiled, and imports a compiler"))
            for case in BY_A_RULE
        ),
    ],
)
def test_rungs_are_right_at_every_budget(family: str, rung: str, budget: int) -> None:
    # Short spans, still beyond the window, where a model runs a hundred times or each of its runs is slow.
    lm, spans, truth = probed(family, WINDOW + 40 if budget in (3, 80) else 100)
    assert_same_scores(in_order(LADDER[rung](lm, budget).score(spans)), truth)


some = st.lists(st.integers(0, 3), min_size=1, max_size=8).map(lambda tokens: ids(*tokens))
SPANS = st.lists(st.builds(Span, some, some), min_size=1, max_size=10)
LLAMA, WINDOWED = network("llama"), network("mistral")
WINDOWED.model.config.sliding_window = 4


@pytest.mark.costly("each example runs two networks on three paths")
@given(SPANS, st.integers(1, 9), st.integers(1, 4))
@settings(max_examples=8)
def test_tree_path_on_any_tree(spans: list[Span], budget: int, segment: int) -> None:
    for lm in (LLAMA, WINDOWED):
        truth = plainly(lm, spans)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(attention, "SEGMENT", segment)
            assert_same_scores(in_order(TreePath(lm, budget).score(spans)), truth)
        for path in (paths.PrefixPath(lm), paths.SequencePath(lm)):
            assert_same_scores(in_order(path.score(spans)), truth)


@given(SPANS, st.sampled_from([Reach(), Reach(3), Reach(None, 3)]))
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
                expected = (
                    expected and tree.depth[row] // reach.chunk == tree.depth[key] // reach.chunk
                )
            assert seen[row, key] == expected


def test_reach_is_read_off_the_mask_function_and_the_configuration() -> None:
    assert tree_reach(mask_function=lambda b, h, q, k: k <= q) == Reach()
    assert tree_reach(mask_function=lambda b, h, q, k: k > q - 8, local_size=8) == Reach(window=8)
    assert tree_reach(mask_function=lambda b, h, q, k: k // 8 == q // 8, local_size=8) == Reach(
        chunk=8
    )
    assert declared(tiny("llama").config) == {"": Reach()}
    assert declared(tiny("llama4_text").config)["chunked_attention"] == Reach(chunk=WINDOW)
    assert declared(tiny("gemma3_text").config).keys() == {"full_attention", "sliding_attention"}


def test_attention_refuses_what_it_does_not_compute() -> None:
    states = torch.zeros(1, 1, 1, 4)
    with pytest.raises(ValueError, match="position biases"):
        attention.tree_attention(
            torch.nn.Identity(), states, states, states, None, position_bias=states
        )


def blocks_of(mask: BlockMask) -> tuple[set[tuple[int, int]], set[tuple[int, int]]]:
    """(Block of rows, block of keys) that are seen in part, and those that are seen whole."""
    tables = (mask.kv_num_blocks, mask.kv_indices), (mask.full_kv_num_blocks, mask.full_kv_indices)
    return tuple(  # type: ignore[return-value]
        {
            (row, int(key))
            for row, count in enumerate(counts[0, 0])
            for key in keys[0, 0, row, :count]
        }
        for counts, keys in tables
    )


@pytest.mark.costly("every pair of a pack, as torch finds the blocks")
@given(
    st.randoms(use_true_random=False),
    st.integers(90, 700),
    st.sampled_from([Reach(), Reach(50), Reach(None, 64)]),
)
@settings(max_examples=10)
def test_blocks_found_from_the_tree_are_those_found_from_every_pair(
    draw: Any, budget: int, reach: Reach
) -> None:
    random = np.random.default_rng(draw.getrandbits(32))
    shared = [random.integers(0, 50, length).astype(np.int32) for length in (1, 130, 400)]
    rests = (random.integers(0, 3, int(random.integers(2, 160))).astype(np.int32) for _ in range(9))
    tree = build(
        [
            Span(np.concatenate([shared[n % 3], rest[:-1]]), rest[-1:])
            for n, rest in enumerate(rests)
        ]
    )
    pack = next_pack(tree, 0, ids(), budget)
    while True:
        found = flex.block_mask(tree, pack, reach, torch.device("cpu"))
        slowly = create_block_mask(
            found.mask_mod, None, None, pack.stop - pack.start, len(pack.nodes()), device="cpu"
        )
        (part, whole), (true_part, true_whole) = blocks_of(found), blocks_of(slowly)
        assert whole <= true_whole
        assert true_part | true_whole <= part | whole  # of a window, a block may be visited in vain
        if reach == Reach():
            assert (part, whole) == (true_part, true_whole)
        if pack.stop == len(tree):
            return
        pack = next_pack(tree, pack.stop, next_path(pack), budget)


@pytest.mark.costly("the compiler's first half, on three sizes of pack")
def test_packs_of_any_size_take_few_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """One for one block or several, of rows and of keys, and for rows that are all the keys there are."""
    lm, spans, truth = probed("llama", WINDOW + 40)
    counted = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(flex_attention, dynamic=True, fullgraph=True, backend=counted)
    monkeypatch.setattr(flex, "_kernel", lambda device: compiled)
    torch._dynamo.reset()
    for budget in (1000, 200, 150, 40, 300):
        assert_same_scores(in_order(LADDER["flex"](lm, budget).score(spans)), truth)
    assert counted.frame_count <= 4


@pytest.mark.costly("flex attention is not compiled here, and imports a compiler all the same")
def test_the_attention_by_a_rule_passes_the_self_check() -> None:
    found = check(
        CausalLM(tiny("gemma2"), window=WINDOW + 40, vocabulary=VOCABULARY),
        {"flex": LADDER["flex"]},
    )
    assert found.rung == "flex"
    assert found.difference <= found.tolerance


def test_the_rule_is_tried_where_it_gains_and_left_to_the_next_rung_where_it_has_no_place_for_sinks() -> (
    None
):
    found = check(network("gpt_oss"), {name: LADDER[name] for name in ("flex", "tree")})
    assert [trial.rung for trial in found.trials] == ["flex", "tree"]
    assert "sinks" in str(found.trials[0].refused)
    assert rungs("cpu").keys().isdisjoint(["varlen", "flex"])
    assert list(rungs("cuda"))[:3] == ["varlen", "flex", "tree"]


@pytest.mark.parametrize("reach", [Reach(), Reach(window=5), Reach(chunk=4)])
def test_the_rule_says_what_the_masks_say(reach: Reach) -> None:
    draw = np.random.default_rng(1)
    spans = [
        Span(draw.integers(0, 2, 12).astype(np.int32), draw.integers(0, 2, 4).astype(np.int32))
        for _ in range(9)
    ]
    tree = build(spans)
    first = next_pack(tree, 0, ids(), len(tree) // 2)
    pack = next_pack(tree, first.stop, first.nodes()[first.keep], len(tree))
    rule = flex.block_mask(tree, pack, reach, torch.device("cpu")).mask_mod
    rows, places = np.arange(len(pack)), np.arange(len(pack.nodes()))
    none = torch.tensor(0)
    said = rule(
        none, none, torch.from_numpy(rows)[:, None], torch.from_numpy(places)[None, :]
    ).numpy()
    assert np.array_equal(
        said, visible(tree, rows.astype(np.int32) + pack.start, pack.nodes(), reach)
    )


HIDDEN = {
    **{"llama": "tree", "gpt2": "tree", "gemma2": "tree", "granite": "mask", "rwkv": "prefix"},
    **{"cohere2": "sequence", "gptj": "sequence", "mixtral": "sequence"},
}


@pytest.mark.parametrize("family", HIDDEN)
def test_losses_and_cosines_of_states_computed_once_are_the_models_own(family: str) -> None:
    random, model = np.random.default_rng(1), tiny(family)

    def draw(tokens: int) -> np.ndarray:
        return random.integers(3, VOCABULARY, tokens, dtype=np.int32)

    context, other = draw(9), draw(5)
    spans = [Span(context, draw(length)) for length in (1, 3, 4)] + [Span(other, draw(2))]
    pairs = [Cosine(context, other), Cosine(context, context), Cosine(other, draw(1))]
    lm = HiddenStates(model, 512, VOCABULARY)
    path = LADDER[HIDDEN[family]](lm, 7)  # packs so small that a span lies in several
    for span, loss in zip(
        spans, in_order(lm.answer(path, [MaskedLoss(span) for span in spans])), strict=True
    ):
        assert loss.value == pytest.approx(plain.loss(model, span), abs=1e-4)
        total = float(plain.score(model, VOCABULARY, span).logprobs.sum())
        assert loss.value * len(span.continuation) == pytest.approx(-total, abs=1e-4)
    cosines = [answer.value for answer in in_order(lm.answer(path, pairs))]
    assert cosines == pytest.approx([plain.cosine(model, pair) for pair in pairs], abs=1e-4)
    assert cosines[1] == pytest.approx(1)


def test_every_unique_token_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    lm, spans, computed = network("llama"), probe(150, VOCABULARY), 0
    body = CausalLM.body

    def counting(self: CausalLM, **inputs: torch.Tensor) -> object:
        nonlocal computed
        computed += inputs["input_ids"].numel()
        return body(self, **inputs)

    monkeypatch.setattr(CausalLM, "body", counting)
    for path in (TreePath(lm, 30), paths.MaskPath(lm, 30)):
        computed = 0
        list(path.score(spans))
        assert computed == len(build(spans))


def test_a_pass_counts_its_calls_and_keeps_keys_and_values_along_the_path_only() -> None:
    lm, tree = network("llama"), build(probe(150, VOCABULARY))
    _, next_past = TreePath(lm, 100).forward(tree, next_pack(tree, 0, ids(), 100), [])
    assert (len(next_past), {key.shape[2] for key, _ in next_past}) == (
        lm.layers,
        {int(tree.depth[100])},
    )
    lm, tree = network("llama"), build(probe(60, VOCABULARY))
    tree_pass = TreePass(tree, next_pack(tree, 0, ids(), 60), [])
    with lm.attention(attention.NAME), attention.running(tree_pass.attend), torch.inference_mode():
        lm.body(
            input_ids=lm.tensor(tree.tokens[:60])[None],
            position_ids=lm.tensor(tree.depth[:60])[None],
        )
    assert tree_pass.calls == lm.layers == len(tree_pass.next_past)


@pytest.mark.parametrize("error", [MemoryError(), torch.OutOfMemoryError("CUDA out of memory")])
def test_out_of_memory_splits_the_pack_and_goes_on(error: Exception) -> None:
    class Cramped(TreePath):
        def forward(self, tree, pack, past):  # type: ignore[no-untyped-def]
            if len(pack) > 20:
                raise error
            return super().forward(tree, pack, past)

    lm, spans, truth = probed("llama", 150)
    path = Cramped(lm, 4096)
    assert_same_scores(in_order(path.score(spans)), truth)
    assert 10 < path.budget <= 20


def test_out_of_memory_keeps_the_texts_that_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    lm = network("llama")
    texts = [Generation(ids(1, 2, 3 + number), 4) for number in range(6)]
    whole = dict(TreePath(lm, 4096).generate(texts, ()))
    decoded = list[int]()

    def cramped(*arguments: Any) -> None:
        decoded.append(len(arguments[3]))
        if len(decoded) == 3:
            raise MemoryError
        _decode(*arguments)

    _decode = paths._decode
    monkeypatch.setattr(paths, "TOGETHER", 2)
    monkeypatch.setattr(paths, "_decode", cramped)
    answers = list(TreePath(lm, 4096).generate(texts, ()))
    assert sorted(index for index, _ in answers) == list(range(6))
    assert sum(decoded) == 6 + 2
    for index, answer in answers:
        assert answer.tokens.tolist() == whole[index].tokens.tolist()


def test_out_of_memory_at_one_token_is_an_error_and_other_errors_are_not_taken_for_it() -> None:
    class Hopeless(paths.PackedPath):
        name = cost = "hopeless"

        def forward(self, tree, pack, past):  # type: ignore[no-untyped-def]
            raise MemoryError

    with pytest.raises(ModelError, match="memory for one token"):
        list(Hopeless(network("llama"), 64).score(probe(60, VOCABULARY)))
    assert parallel.out_of_memory(
        RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: not enough memory")
    )
    assert not parallel.out_of_memory(RuntimeError("shape mismatch"))


def test_an_abandoned_iterator_leaves_the_model_as_it_was() -> None:
    lm, spans = network("llama"), probe(150, VOCABULARY)
    before = plain.score(lm.model, VOCABULARY, spans[0]).logprobs
    answers = TreePath(lm, 20).score(spans)
    next(answers)
    assert plain.score(lm.model, VOCABULARY, spans[0]).logprobs.tolist() == before.tolist()
    answers.close()
    assert lm.model.config._attn_implementation != attention.NAME


def test_packs_shorten_as_their_path_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "PAIRS", 2000)
    monkeypatch.setattr(attention, "SEGMENT", 9)
    sizes = []

    class Watched(TreePath):
        def forward(self, tree, pack, past):  # type: ignore[no-untyped-def]
            sizes.append((len(pack.path), len(pack)))
            return super().forward(tree, pack, past)

    lm = network("llama")
    assert_right(Watched(lm, 64), lm, probe(300, VOCABULARY))
    assert sizes[0] == (0, 64)
    assert all(size <= max(9, 2000 // (path + 1)) for path, size in sizes)


def test_arrays_reach_the_device_as_they_are() -> None:
    array = np.arange(6, dtype=np.int32).reshape(2, 3)[:, ::2]
    moved = to_device(array, torch.device("cpu"))
    assert (moved.dtype, moved.tolist()) == (torch.int32, array.tolist())


def test_contexts_far_beyond_the_budget_and_padded_vocabularies_take_no_harm() -> None:
    lm = network("llama")
    context = RANDOM.integers(0, VOCABULARY, 400, dtype=np.int32)
    assert_right(TreePath(lm, 7), lm, [Span(context, ids(5, 6)), Span(context, ids(9))])
    lm = network("llama", VOCABULARY - 16)
    assert_right(TreePath(lm, 64), lm, probe(100, VOCABULARY - 16))


@pytest.mark.parametrize("family", ["granite", "cohere2", "gemma2"])
def test_head_scales_and_caps_as_the_model_does(family: str) -> None:
    lm = network(family)
    tokens = torch.arange(12)[None]
    with torch.inference_mode():
        hidden = lm.body(input_ids=tokens, use_cache=False)[0][0]
        expected = lm.model(input_ids=tokens).logits[0]
        torch.testing.assert_close(lm.logits(hidden), expected[:, :VOCABULARY])


def test_branches_cover_the_tree() -> None:
    tree = build(probe(120, VOCABULARY))
    runs = paths.branches(tree)
    assert (runs[0][0], runs[-1][1]) == (0, len(tree))
    assert all(
        np.diff(tree.depth[start:stop]).tolist() == [1] * (stop - start - 1) for start, stop in runs
    )


def test_the_plain_path_counts_what_it_computes() -> None:
    lm = network("llama")
    context = RANDOM.integers(0, VOCABULARY, 6, dtype=np.int32)
    before = lm.computed
    assert (
        len(list(PlainPath(lm).score([Span(context, ids(3, 4)), Mass(context, TokenSet([5, 6]))])))
        == 2
    )
    assert lm.computed - before == 7 + 6
    questions = [Generation(context, 3), Generation(context, 1), Span(context, ids(3))]
    assert len(list(answer_tokens(PlainPath(lm), questions, (), []))) == 3
    assert lm.computed - before == 7 + 6 + (6 + 7 + 8) + 6 + 6


IDS = st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=6).map(
    lambda tokens: ids(*tokens)
)
SETS = st.sets(st.integers(0, VOCABULARY - 1), min_size=1, max_size=VOCABULARY).map(
    lambda some: TokenSet(sorted(some))
)


@pytest.fixture(scope="module")
def lm() -> CausalLM:
    return network("llama")


@given(context=IDS, members=SETS)
@settings(max_examples=20)
def test_plain_mass_is_the_log_of_a_sum(lm: CausalLM, context: Ids, members: TokenSet) -> None:
    with torch.inference_mode():
        logits = (
            lm.model(torch.from_numpy(context.astype(np.int64))[None])
            .logits[0, -1]
            .double()
            .numpy()
        )
    weights = np.exp(logits - logits.max())
    seen = plain.score(lm.model, VOCABULARY, Mass(context, members))
    assert np.exp(seen.logprobs.astype(float)) == pytest.approx(
        [weights[members.ids].sum() / weights.sum()], rel=1e-4
    )
    likeliest = members.ids[logits[members.ids].argmax()]
    assert (seen.tokens.tolist(), seen.ranks.tolist()) == (
        [likeliest],
        [(logits > logits[likeliest]).sum()],
    )


@pytest.mark.parametrize("rung", [name for name in rungs("cpu") if name != "plain"])
@given(asked=st.lists(st.tuples(IDS, SETS | IDS), min_size=1, max_size=8))
@settings(max_examples=5)
def test_every_rung_reads_masses_and_spans_from_one_tree(
    lm: CausalLM, rung: str, asked: list
) -> None:
    questions = [
        Mass(one, two) if isinstance(two, TokenSet) else Span(one, two) for one, two in asked
    ]
    generation = Generation(asked[0][0], 2)
    answers = in_order(answer_tokens(LADDER[rung](lm, 7), [*questions, generation], (), []))
    truth = [plain.score(lm.model, VOCABULARY, question) for question in questions]
    assert_same_scores(
        answers, [*truth, plain.generate(lm.model, VOCABULARY, generation, ())], atol=1e-4
    )


def test_a_mass_is_one_more_row_to_read_and_no_more_to_compute() -> None:
    span = Span(ids(1, 2), ids(3, 4))
    every = TokenSet(range(9))
    tree = build(
        [
            span,
            Mass(ids(1, 2), every),
            Mass(ids(1, 2), TokenSet([5])),
            Mass(ids(1, 2), TokenSet(range(9))),
        ]
    )
    assert tree.tokens.tolist() == build([span]).tokens.tolist() == [1, 2, 3]
    assert (len(tree.sets), sorted(tree.targets.tolist())) == (2, [FIRST_SET - 1, FIRST_SET, 3, 4])
    assert tree.span_of[1] == tree.span_of[3]


def test_token_sets_are_what_they_hold_and_unknown_members_have_no_probability(
    lm: CausalLM,
) -> None:
    assert TokenSet([3, 1, 3]).ids.tolist() == [1, 3]
    assert TokenSet([3, 1]).digest == TokenSet([1, 3]).digest != TokenSet([1]).digest
    context, longer = ids(1, 2), ids(1, 2, 3)
    keys = {
        Mass(tokens, TokenSet(members)).key
        for tokens in (context, longer)
        for members in ([1], [2], [1, 2])
    }
    assert len(keys) == 6
    assert Mass(context, TokenSet([1])).key != Span(context, ids(1)).key
    assert without(Mass(longer, TokenSet([1])), 1).context.tolist() == [2, 3]
    assert (Mass(longer, TokenSet([1])).inputs, without(Span(longer, ids(1)), 2).inputs) == (3, 1)
    few = plain.score(lm.model, VOCABULARY, Mass(ids(1), TokenSet([5, 6])))
    more = plain.score(lm.model, VOCABULARY, Mass(ids(1), TokenSet([5, 6, VOCABULARY, 999])))
    assert few.logprobs.tolist() == more.logprobs.tolist()
    assert TokenSet([5, VOCABULARY]).below(VOCABULARY).tolist() == [5]
    with pytest.raises(ModelError, match="belongs to another model"):
        TokenSet([VOCABULARY]).below(VOCABULARY)


@given(context=IDS, members=SETS)
def test_the_hash_model_adds_its_tokens_up(context: Ids, members: TokenSet) -> None:
    spans = [Span(context, members.ids[place : place + 1]) for place in range(len(members.ids))]
    seen = dict(HashModel().answer([Mass(context, members), *spans]))
    parts = [
        float(np.exp(seen[place + 1].logprobs[0], dtype=np.float64)) for place in range(len(spans))
    ]
    assert float(np.exp(seen[0].logprobs[0], dtype=np.float64)) == pytest.approx(
        sum(parts), rel=1e-5
    )
    assert seen[0].ranks[0] == min(int(seen[place + 1].ranks[0]) for place in range(len(spans)))


def test_the_oracles_know_which_mass_belongs_to_a_right_choice() -> None:
    questions = [Mass(ids(1), TokenSet([2]), gold) for gold in (True, None, False)]
    for model, sign in ((Oracle(), 1), (AntiOracle(), -1)):
        right, unknown, wrong = (seen.logprobs[0] for _, seen in model.answer(questions))
        assert sign * right > sign * wrong
        assert min(right, wrong) < unknown < max(right, wrong)


CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


def on_cuda(family: str, dtype: torch.dtype, rung: str = "auto") -> LocalModel:
    found = tiny(family).to(device="cuda", dtype=dtype)
    return LocalModel(found, ByteTokenizer(), name=family, digest="0" * 64, window=512, rung=rung)


def shared_spans() -> list[Span]:
    draw = np.random.default_rng(0)
    shared = draw.integers(3, VOCABULARY, 120).astype(np.int32)
    contexts = [
        np.concatenate([shared, draw.integers(3, VOCABULARY, 20).astype(np.int32)])
        for _ in range(12)
    ]
    return [
        Span(some, draw.integers(3, VOCABULARY, 1 + n).astype(np.int32))
        for some in contexts
        for n in range(4)
    ]


ON_CUDA = ["llama", "mistral", "gemma2", "gpt2", "bloom", "mamba", "gpt_oss"]


@CUDA
@pytest.mark.parametrize(
    ("family", "dtype", "tolerance"),
    [
        *((family, torch.float32, 1e-3) for family in ON_CUDA),
        # In 16 bits two paths of a mixture may choose other experts for a token, which is no small difference.
        *((family, torch.bfloat16, 0.5) for family in ON_CUDA if family != "gpt_oss"),
    ],
)
def test_the_chosen_path_on_cuda_equals_the_plain_one(
    family: str, dtype: torch.dtype, tolerance: float
) -> None:
    asked = shared_spans()
    fast, slow = (
        in_order(on_cuda(family, dtype, rung).answer(asked)) for rung in ("auto", "plain")
    )
    sums = [
        [float(scores.logprobs.sum(dtype=np.float64)) for scores in found] for found in (fast, slow)
    ]
    assert np.abs(np.subtract(*sums)).max() < tolerance


@CUDA
def test_generations_on_cuda_are_equal() -> None:
    prompts = [Generation(span.context, 4) for span in shared_spans()[::4]]
    fast, slow = (
        in_order(on_cuda("llama", torch.float32, rung).answer(prompts))
        for rung in ("auto", "plain")
    )
    assert [scores.tokens.tolist() for scores in fast] == [
        scores.tokens.tolist() for scores in slow
    ]


@CUDA
def test_running_out_of_memory_on_cuda_makes_packs_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, answering = shared_spans(), on_cuda("llama", torch.float32, "tree")
    answering.check(answering.window)
    forward, failures = TreePath.forward, iter([True, False, True])

    def scarce(*arguments: Any) -> Any:
        if next(failures, False):
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(*arguments)

    monkeypatch.setattr(TreePath, "forward", scarce)
    found, expected = (
        in_order(each.answer(asked))
        for each in (answering, on_cuda("llama", torch.float32, "plain"))
    )
    assert next(failures, None) is None
    assert_same_scores(found, expected, atol=1e-3)
