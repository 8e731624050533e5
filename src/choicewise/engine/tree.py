"""The tree of all tokens of some questions: every unique prefix is one node, computed once."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from choicewise.engine.sequences import Integers, Sequences, ranges
from choicewise.questions import Ids, Mass, Span, TokenSet

FIRST_SET = -2
"""The target that stands for the first set of tokens; the second set has the next lower number, and so on."""


@dataclass(frozen=True, slots=True, eq=False)
class Tree:
    """Nodes in depth-first order, and which of them every distinct span reads.

    ``tokens``, ``depth``, ``end``: shape [nodes]; ``depth`` is the position of the token in its sequence, and the
    descendants of node ``i`` are exactly the nodes ``i + 1 .. end[i] - 1``.
    Distinct span ``s`` is read at the nodes ``rows[starts[s] : starts[s + 1]]``, from the context's last token to the
    last input (the last token of a sequence is never an input); ``targets``, sliced alike, are the tokens to score.
    ``span_of``, shape [questions], is the distinct span of every question.
    A mass is a span of one target: ``FIRST_SET - i`` stands for the i-th of ``sets``.
    """

    tokens: Ids
    depth: Ids
    end: Ids
    rows: Ids
    targets: Ids
    starts: npt.NDArray[np.int64]
    span_of: npt.NDArray[np.int64]
    sets: tuple[TokenSet, ...] = ()

    def __len__(self) -> int:
        return len(self.tokens)


def build(questions: Sequence[Span | Mass]) -> Tree:
    """The tree of ``questions``; distinct ones are numbered in its depth-first order, so they finish in that order."""
    sets = {question.members.digest: question.members for question in questions if isinstance(question, Mass)}
    target = {members: np.asarray([FIRST_SET - index], dtype=np.int32) for index, members in enumerate(sets)}
    spans = [
        question if isinstance(question, Span) else Span(question.context, target[question.members.digest])
        for question in questions
    ]
    return _tree(Sequences(spans), tuple(sets.values()))


def _tree(sequences: Sequences, sets: tuple[TokenSet, ...]) -> Tree:
    """Every sequence adds the tokens after its common prefix with the previous one."""
    common, lengths = sequences.common, sequences.context_lengths
    new = lengths + sequences.inputs - common
    first = np.cumsum(new) - new
    nodes = int(new.sum())
    depth = np.arange(nodes) - np.repeat(first - common, new)
    parent, end = _nesting(common.tolist(), first.tolist(), new.tolist())
    scored = sequences.inputs + 1
    starts = np.concatenate([[0], np.cumsum(scored)]).astype(np.int64)
    return Tree(
        _new_tokens(sequences, common, first, nodes),
        depth.astype(np.int32),
        end,
        _rows(ranges(lengths - 1, scored), scored, common, first, new, parent).astype(np.int32),
        sequences.flat[ranges(sequences.start, scored)],
        starts,
        sequences.span_of,
        sets,
    )


def _new_tokens(sequences: Sequences, common: Integers, first: Integers, nodes: int) -> Ids:
    """The token of every node."""
    tokens = np.empty(nodes, dtype=np.int32)
    in_context = sequences.context_lengths - common  # how many new tokens the context has; below 0 when it has none
    for place in np.flatnonzero(in_context > 0):
        part = sequences.contexts[sequences.context[place]][common[place] :]
        tokens[first[place] : first[place] + len(part)] = part
    shared = np.maximum(-in_context, 0)
    counts = sequences.inputs - shared
    places = ranges(first + np.maximum(in_context, 0), counts)
    tokens[places] = sequences.flat[ranges(sequences.start + shared, counts)]
    return tokens


def _nesting(common: list[int], first: list[int], new: list[int]) -> tuple[Integers, Ids]:
    """For every sequence, which one added the token before its first new one; for every node, the end of its subtree.

    A stack holds what every sequence added to the current path: (sequence, depth of its first token, its first node,
    how many of its tokens are on the path).
    """
    nodes = sum(new)
    parent, end = np.zeros(len(common), dtype=np.int64), np.full(nodes, nodes, dtype=np.int32)
    path: list[tuple[int, int, int, int]] = []
    for sequence, (depth, node, count) in enumerate(zip(common, first, new, strict=True)):
        if not count:
            continue
        while path and path[-1][1] >= depth:
            _, _, begin, kept = path.pop()
            end[begin : begin + kept] = node
        if path:
            owner, top, begin, kept = path[-1]
            parent[sequence] = owner
            if top + kept > depth:
                end[begin + depth - top : begin + kept] = node
                path[-1] = owner, top, begin, depth - top
        path.append((sequence, depth, node, count))
    return parent, end


def _rows(
    depth: Integers, counts: Integers, common: Integers, first: Integers, new: Integers, parent: Integers
) -> Integers:
    """The node of every sequence at every ``depth`` it is read at, ``counts`` of them for each sequence."""
    adding = np.maximum.accumulate(np.where(new > 0, np.arange(len(new)), 0))
    owner = np.repeat(adding, counts)
    while len(shared := np.flatnonzero(common[owner] > depth)):
        owner[shared] = parent[owner[shared]]
    return first[owner] + depth - common[owner]
