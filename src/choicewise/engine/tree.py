"""The tree of all tokens of some questions: every unique prefix is one node, computed once."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from choicewise.questions import Ids, Mass, Span, TokenSet
from choicewise.tokens.tokenizer import common_prefix

ID_BYTES = 4

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
    contexts, context_of = _distinct_contexts(spans)
    pairs = [(context, _bytes(span.continuation)) for span, context in zip(spans, context_of, strict=True)]
    distinct = dict(zip(pairs, spans, strict=True))
    order = sorted(distinct, key=lambda pair: _sort_key(contexts, pair[0], pair[1][:-ID_BYTES]))
    rank = {pair: place for place, pair in enumerate(order)}
    span_of = np.asarray([rank[pair] for pair in pairs], dtype=np.int64)
    return _tree([distinct[pair] for pair in order], span_of, tuple(sets.values()))


def _bytes(ids: Ids) -> bytes:
    return np.ascontiguousarray(ids, dtype=np.int32).tobytes()


def _distinct_contexts(spans: Sequence[Span]) -> tuple[list[bytes], list[int]]:
    """The distinct contexts as sorted bytes, and the index of every span's context among them.

    Any order of the ids will do that keeps common prefixes together, as the order of their bytes does.
    """
    arrays = {id(span.context): span.context for span in spans}
    as_bytes = {identity: _bytes(context) for identity, context in arrays.items()}
    ordered = sorted(set(as_bytes.values()))
    index_of = {context: index for index, context in enumerate(ordered)}
    return ordered, [index_of[as_bytes[id(span.context)]] for span in spans]


def _sort_key(contexts: list[bytes], index: int, inputs: bytes) -> tuple[int, int, bytes]:
    """Sorts ``contexts[index] + inputs`` as the joined bytes would be, mostly without joining them.

    The key starts with the last of the sorted contexts that is not after the sequence.  That is its own context,
    unless other contexts extend it; only then the bytes are joined.
    """
    context = contexts[index]
    if index + 1 == len(contexts) or not contexts[index + 1].startswith(context):
        return index, 0, inputs
    sequence = context + inputs
    last = bisect_right(contexts, sequence) - 1
    if sequence.startswith(contexts[last]):
        return last, 0, sequence[len(contexts[last]) :]
    return last, 1, sequence


def _tree(spans: list[Span], span_of: npt.NDArray[np.int64], sets: tuple[TokenSet, ...]) -> Tree:
    """The tree of sorted ``spans``: of every sequence, the tokens after its common prefix with the previous one."""
    longest = max((len(span.context) + len(span.continuation) for span in spans), default=0)
    path = np.empty(longest, dtype=np.int32)
    previous = np.empty(0, dtype=np.int32)
    nodes = 0
    tokens: list[Ids] = []
    depths: list[Ids] = []
    rows: list[Ids] = []
    closed: list[Ids] = []
    closed_at: list[int] = []
    for span in spans:
        sequence = np.concatenate([span.context, span.continuation[:-1]])
        common = common_prefix([previous, sequence])
        closed.append(path[common : len(previous)].copy())
        closed_at.append(nodes)
        tokens.append(sequence[common:])
        depths.append(np.arange(common, len(sequence), dtype=np.int32))
        path[common : len(sequence)] = np.arange(nodes, nodes + len(sequence) - common, dtype=np.int32)
        nodes += len(sequence) - common
        rows.append(path[len(span.context) - 1 : len(sequence)].copy())
        previous = sequence
    end = np.full(nodes, nodes, dtype=np.int32)
    end[_joined(closed)] = np.repeat(np.asarray(closed_at, dtype=np.int32), [len(part) for part in closed])
    targets = _joined([span.continuation for span in spans])
    starts = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    return Tree(_joined(tokens), _joined(depths), end, _joined(rows), targets, starts, span_of, sets)


def _joined(parts: list[Ids]) -> Ids:
    return np.concatenate([np.empty(0, dtype=np.int32), *parts]).astype(np.int32, copy=False)
