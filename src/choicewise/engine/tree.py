"""The tree of tokens that all spans of a run share: every unique prefix is one node, computed once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from choicewise.questions.mass import Mass, TokenSet
from choicewise.questions.span import Ids, Span

ID_BYTES = 4

FIRST_SET = -2
"""The target that stands for the first set of tokens; the next one is one less, and so on."""


@dataclass(frozen=True, slots=True, eq=False)
class Tree:
    """Nodes in depth-first order, and what every distinct span reads from them.

    ``tokens``, ``depth``, ``end``: shape [nodes]; ``depth`` is the position of the token in its sequence, and the
    descendants of node ``i`` are exactly the nodes ``i + 1 .. end[i] - 1``.
    Distinct span ``s`` reads its targets at ``rows[starts[s] : starts[s + 1]]`` (nodes, from the context's last token
    to the last input; the last token of a sequence is never an input) and looks there for ``targets`` of that slice.
    ``span_of`` has shape [spans asked]: which distinct span each of them is.
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
    spans, sets = _as_spans(questions)
    contexts, context_of = _distinct_contexts(spans)
    place: dict[tuple[int, bytes], int] = {}
    distinct: list[Span] = []
    span_of = np.empty(len(spans), dtype=np.int64)
    for index, (span, context) in enumerate(zip(spans, context_of, strict=True)):
        span_of[index] = place.setdefault((context, _bytes(span.continuation)), len(distinct))
        if span_of[index] == len(distinct):
            distinct.append(span)
    keys = [_key(contexts, context, continuation[:-ID_BYTES]) for context, continuation in place]
    order = sorted(range(len(distinct)), key=keys.__getitem__)
    rank = np.empty(len(distinct), dtype=np.int64)
    rank[order] = np.arange(len(distinct))
    return _grow([distinct[index] for index in order], rank[span_of], sets)


def shared(left: Ids, right: Ids) -> int:
    """Length of the longest common prefix, in tokens."""
    length = min(len(left), len(right))
    unequal = left[:length] != right[:length]
    at = int(unequal.argmax()) if length else 0
    return at if length and unequal[at] else length


def _as_spans(questions: Sequence[Span | Mass]) -> tuple[list[Span], tuple[TokenSet, ...]]:
    """Every mass as a span whose only target stands for a set, and the distinct sets."""
    spans: list[Span] = []
    place: dict[bytes, int] = {}
    sets: list[TokenSet] = []
    targets: list[Ids] = []
    for question in questions:
        if isinstance(question, Span):
            spans.append(question)
            continue
        index = place.setdefault(question.members.digest, len(sets))
        if index == len(sets):
            sets.append(question.members)
            targets.append(np.asarray([FIRST_SET - index], dtype=np.int32))
        spans.append(Span(question.context, targets[index]))
    return spans, tuple(sets)


def _bytes(ids: Ids) -> bytes:
    return np.ascontiguousarray(ids, dtype=np.int32).tobytes()


def _distinct_contexts(spans: Sequence[Span]) -> tuple[list[bytes], list[int]]:
    """The distinct contexts as sorted bytes, and the place of each span's context among them.

    Bytes of fixed-width ids sort in some order of the ids; any order will do, as long as prefixes stay together.
    """
    seen = {id(span.context): span.context for span in spans}
    as_bytes = {key: _bytes(context) for key, context in seen.items()}
    ordered = sorted(set(as_bytes.values()))
    place = {context: index for index, context in enumerate(ordered)}
    return ordered, [place[as_bytes[id(span.context)]] for span in spans]


def _key(contexts: list[bytes], context: int, tail: bytes) -> tuple[int, int, bytes]:
    """Sorts context + tail as its whole bytes would, without holding them.

    The key starts with the last context that is not after the sequence.  That is the sequence's own, unless other
    contexts extend it; only then are the whole bytes put together.
    """
    own = contexts[context]
    if context + 1 == len(contexts) or not contexts[context + 1].startswith(own):
        return context, 0, tail
    whole = own + tail
    last = bisect_right(contexts, whole) - 1
    if whole.startswith(contexts[last]):
        return last, 0, whole[len(contexts[last]) :]
    return last, 1, whole


def _grow(spans: list[Span], span_of: npt.NDArray[np.int64], sets: tuple[TokenSet, ...]) -> Tree:
    """One pass over sequences sorted so that common prefixes are neighbours: add what the last one did not have."""
    longest = max((len(span.context) + len(span.continuation) for span in spans), default=0)
    path = np.empty(longest, dtype=np.int32)
    previous = np.empty(0, dtype=np.int32)
    nodes = 0
    fresh: list[Ids] = []
    positions: list[Ids] = []
    rows: list[Ids] = []
    closed: list[Ids] = []
    closed_at: list[int] = []
    for span in spans:
        sequence = np.concatenate([span.context, span.continuation[:-1]])
        common = shared(previous, sequence)
        closed.append(path[common : len(previous)].copy())
        closed_at.append(nodes)
        fresh.append(sequence[common:])
        positions.append(np.arange(common, len(sequence), dtype=np.int32))
        path[common : len(sequence)] = np.arange(nodes, nodes + len(sequence) - common, dtype=np.int32)
        nodes += len(sequence) - common
        rows.append(path[len(span.context) - 1 : len(sequence)].copy())
        previous = sequence
    end = np.full(nodes, nodes, dtype=np.int32)
    end[_joined(closed)] = np.repeat(np.asarray(closed_at, dtype=np.int32), [len(part) for part in closed])
    return Tree(
        tokens=_joined(fresh),
        depth=_joined(positions),
        end=end,
        rows=_joined(rows),
        targets=_joined([span.continuation for span in spans]),
        starts=np.cumsum([0, *map(len, rows)], dtype=np.int64),
        span_of=span_of,
        sets=sets,
    )


def _joined(parts: list[Ids]) -> Ids:
    return np.concatenate([np.empty(0, dtype=np.int32), *parts]).astype(np.int32, copy=False)
