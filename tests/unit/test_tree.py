"""The token tree and its packs, beside a trie of dictionaries."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from choicewise.engine import Pack, Tree, build, next_pack, next_path, segments
from choicewise.questions import Ids, Span


def ids(*tokens: int) -> Ids:
    return np.asarray(tokens, dtype=np.int32)


def trie(spans: list[Span]) -> dict[tuple[int, ...], None]:
    """The plain reference: every prefix of every sequence of inputs."""
    sequences = [(*map(int, span.context), *map(int, span.continuation[:-1])) for span in spans]
    return {
        sequence[:length]: None for sequence in sequences for length in range(1, len(sequence) + 1)
    }


def prefixes(tree: Tree) -> list[tuple[int, ...]]:
    """Each node as the tokens that lead to it, by a walk that trusts only tokens and depths."""
    path: list[int] = []
    walked = []
    for token, depth in zip(tree.tokens, tree.depth, strict=True):
        assert depth <= len(path)
        path = [*path[:depth], int(token)]
        walked.append(tuple(path))
    return walked


token = st.integers(0, 2)
some = st.lists(token, min_size=1, max_size=6).map(lambda tokens: ids(*tokens))


@st.composite
def asked(draw: st.DrawFn) -> list[Span]:
    """Spans over a tiny vocabulary, so that contexts extend, repeat and meet each other's continuations."""
    contexts = draw(st.lists(some, min_size=1, max_size=5))
    return [
        Span(draw(st.sampled_from(contexts)), draw(some)) for _ in range(draw(st.integers(1, 12)))
    ]


@given(asked())
def test_tree_is_the_trie(spans: list[Span]) -> None:
    """And every span reads the row before each target."""
    tree = build(spans)
    nodes = prefixes(tree)
    assert len(nodes) == len(tree) == len(set(nodes))
    assert set(nodes) == set(trie(spans))
    for node, prefix in enumerate(nodes):
        below = [other for other, longer in enumerate(nodes) if longer[: len(prefix)] == prefix]
        assert below == list(range(node, tree.end[node]))
    for span, place in zip(spans, tree.span_of, strict=True):
        reads = slice(tree.starts[place], tree.starts[place + 1])
        assert tree.targets[reads].tolist() == span.continuation.tolist()
        whole = (*map(int, span.context), *map(int, span.continuation))
        expected = [whole[:length] for length in range(len(span.context), len(whole))]
        assert [nodes[row] for row in tree.rows[reads]] == expected
    last = tree.rows[tree.starts[1:] - 1]
    assert (np.diff(last) >= 0).all()
    assert len(tree.starts) - 1 == len({span.key for span in spans})


@given(asked(), st.integers(1, 7), st.integers(1, 4))
def test_packs_hold_every_ancestor_and_no_node_twice(
    spans: list[Span], budget: int, size: int
) -> None:
    tree = build(spans)
    path, start, computed = ids(), 0, 0
    while start < len(tree):
        pack = next_pack(tree, start, path, budget)
        assert isinstance(pack, Pack)
        assert len(pack) <= budget
        computed += len(pack)
        assert pack.path.tolist() == ancestors(tree, start)
        covered = start
        for nodes, places in segments(tree, pack, size):
            own = nodes.tolist()
            assert own[0] == covered
            covered = own[-1] + 1
            assert own == list(range(own[0], covered))
            assert pack.nodes()[places].tolist() == ancestors(tree, own[0]) + own
            for node in own:
                assert set(ancestors(tree, node)) <= set(pack.nodes()[places].tolist())
        path, start = next_path(pack), pack.stop
        assert covered == start
    assert computed == len(tree)
    assert len(path) == 0


def ancestors(tree: Tree, node: int) -> list[int]:
    return [other for other in range(node) if node < tree.end[other]]


def test_five_hundred_choices_of_one_token_are_one_row_and_nothing_asked_is_an_empty_tree() -> None:
    tree = build([Span(ids(5, 6, 7), ids(choice)) for choice in range(500)])
    assert (len(tree), set(tree.rows.tolist())) == (3, {2})
    assert (len(build([])), build([]).starts.tolist()) == (0, [0])
