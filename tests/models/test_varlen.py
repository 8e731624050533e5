"""Attention in two calls of FlashAttention equals that of the tree, by the kernel's stand-in where there is no GPU."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from choicewise.engine import Pack, Reach, Tree, build, next_pack, next_path
from choicewise.models.local import paths, varlen
from choicewise.models.local.attention import AttentionOptions, TreePass
from choicewise.models.local.paths import LADDER
from choicewise.models.local.selfcheck import check
from choicewise.models.local.varlen import Attended, layout
from choicewise.questions import Span
from tests.helpers.answers import ids
from tests.helpers.tiny_models import network

REACHES = [Reach(), Reach(window=17), Reach(chunk=32)]


def random_tree(seed: int, spans: int = 30) -> Tree:
    """Spans that branch off one text at any depth, and that repeat what others have after it."""
    random = np.random.default_rng(seed)
    text = random.integers(0, 6, 120).astype(np.int32)
    drawn = []
    for _ in range(spans):
        rest = random.integers(0, 3, int(random.integers(0, 30))).astype(np.int32)
        context = np.concatenate([text[: random.integers(1, len(text))], rest])
        continuation = random.integers(0, 3, int(random.integers(1, 9))).astype(np.int32)
        drawn.append(Span(context, continuation))
    return build(drawn)


def packs(tree: Tree, budget: int) -> Iterator[Pack]:
    path, start = ids(), 0
    while start < len(tree):
        pack = next_pack(tree, start, path, budget)
        yield pack
        path, start = next_path(pack), pack.stop


def states(tree: Tree, pack: Pack, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Queries of four heads, and keys and values of two, of path and pack."""
    random = torch.Generator().manual_seed(seed)
    keys = len(pack.nodes())
    query = torch.randn(1, 4, len(pack), 8, generator=random)
    return (
        query,
        torch.randn(1, 2, keys, 8, generator=random),
        torch.randn(1, 2, keys, 8, generator=random),
    )


@pytest.mark.costly("every pack of random trees, by two kinds of attention")
@given(
    st.integers(0, 2**16), st.integers(20, 400), st.sampled_from(REACHES), st.sampled_from([2, 16])
)
@settings(max_examples=25)
def test_two_calls_give_the_attention_of_the_tree(
    seed: int, budget: int, reach: Reach, least: int
) -> None:
    tree = random_tree(seed)
    sinks = torch.linspace(-1, 2, 4) if seed % 2 else None
    options = AttentionOptions(reach, None, None, sinks)
    with pytest.MonkeyPatch.context() as patch, torch.inference_mode():
        patch.setattr(paths, "layout", lambda *given: layout(*given, least))
        for pack in packs(tree, budget):
            query, key, value = states(tree, pack, seed)
            expected = TreePass(tree, pack, []).output(query, key, value, options)
            found = paths._VarlenPass(tree, pack, []).output(query, key, value, options)
            torch.testing.assert_close(found, expected, rtol=0, atol=5e-6)


@given(st.integers(0, 2**16), st.integers(20, 400), st.sampled_from([2, 16, 256]))
@settings(max_examples=25)
def test_every_row_attends_to_itself_and_its_ancestors_once(
    seed: int, budget: int, least: int
) -> None:
    tree = random_tree(seed)
    for pack in packs(tree, budget):
        found = layout(tree, pack, Reach(), least)
        depth = tree.depth[pack.start : pack.stop]
        rows = np.diff(found.runs.row_starts)
        keys = np.diff(found.runs.key_starts)
        pairs = int((rows * (keys - rows) + rows * (rows + 1) // 2).sum())
        if found.shared is not None:
            shared_rows = np.diff(found.shared.row_starts)
            pairs += int((shared_rows * np.diff(found.shared.key_starts)).sum())
            assert shared_rows.min() >= 1
        assert pairs == int((depth.astype(np.int64) + 1).sum())


@pytest.mark.parametrize("family", ["llama", "mistral", "olmo3", "gemma3_text", "gpt_oss"])
def test_the_self_check_takes_it(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "layout", lambda *given: layout(*given, 8))
    found = check(network(family), {"varlen": LADDER["varlen"]})
    assert found.rung == "varlen"
    assert found.difference <= found.tolerance


def test_the_self_check_goes_on_where_weights_are_capped() -> None:
    found = check(network("gemma2"), {name: LADDER[name] for name in ("varlen", "tree")})
    assert found.rung == "tree"
    assert "cap" in str(found.trials[0].refused)


class Operations(TorchDispatchMode):
    """Counts the operations, each of which is a launch on a GPU."""

    count = 0

    def __torch_dispatch__(
        self, function: Any, types: Any, arguments: Any = (), options: Any = None
    ) -> Any:
        self.count += 1
        return function(*arguments, **(options or {}))


def test_a_layer_takes_as_many_launches_for_any_number_of_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The kernel is one launch on a GPU, and its stand-in counts as none here."""

    def kernel(query: torch.Tensor, *given: Any, **options: Any) -> Attended:
        return Attended(query, query[..., 0])

    monkeypatch.setattr(varlen, "_stand_in", kernel)
    monkeypatch.setattr(paths, "layout", lambda *given: layout(*given, 2))
    counts = set()
    for spans in (5, 60):
        tree = random_tree(1, spans)
        pack = next(packs(tree, len(tree)))
        tree_pass = paths._VarlenPass(tree, pack, [])
        options = AttentionOptions(Reach(), None, None, None)
        tree_pass.output(*states(tree, pack, 1), options)
        with Operations() as operations:
            tree_pass.output(*states(tree, pack, 1), options)
        counts.add(operations.count)
    (count,) = counts
    assert count <= 45
