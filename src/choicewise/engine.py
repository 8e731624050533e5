"""The token tree: prompts in the fewest tokens, in packs that fit in memory, and in shards.

Shards follow from the prompts alone, not from the number of replicas: so one process and a cluster
compute the same trees, and their numbers agree to the bit.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from choicewise.questions import Ids, MaskedLoss, Mass, Span, TokenSet
from choicewise.requests.request import BlockPrompt, first_tokens
from choicewise.tokens.tokenizer import common_prefix

Places = npt.NDArray[np.int64]
"""Indices of keys and values: first those of the path, kept from earlier packs, then the pack's."""

FIRST_SET = -2
"""The target that stands for the first set of tokens; the second set has the next lower number."""

_ID_BYTES = 4
_Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Pack:
    """Name nodes ``start`` to ``stop`` (exclusive) of a tree, computed after all nodes before them.

    ``path``: the ancestors of node ``start``, root first; only their keys and values are kept of
    earlier packs.  ``keep``: indices of the ancestors of node ``stop``, to keep for the next pack.
    """

    start: int
    stop: int
    path: Ids
    keep: Places

    def __len__(self) -> int:
        return self.stop - self.start

    def nodes(self) -> Ids:
        """Return the nodes whose keys and values are there, [path + pack]."""
        return np.concatenate([self.path, np.arange(self.start, self.stop, dtype=np.int32)])


def next_pack(tree: Tree, start: int, path: Ids, budget: int) -> Pack:
    """Return a pack of at most ``budget`` nodes from ``start`` on; ``path``: the ancestors of that."""
    stop = min(start + budget, len(tree))
    nodes = np.concatenate([path, np.arange(start, stop, dtype=np.int32)])
    return Pack(start, stop, path, np.flatnonzero(tree.end[nodes] > stop))


def next_path(pack: Pack) -> Ids:
    """Return the ancestors of the node after ``pack``: the ``path`` of the next pack."""
    return pack.nodes()[pack.keep]


def segments(tree: Tree, pack: Pack, size: int) -> Iterator[tuple[Ids, Places]]:
    """Yield the nodes of ``pack`` in segments of at most ``size``, with the indices they attend to.

    Those are the ancestors of the segment's first node, root first, and then the segment's nodes.
    """
    end = tree.end[pack.nodes()]
    for start in range(pack.start, pack.stop, size):
        stop = min(start + size, pack.stop)
        first = len(pack.path) + start - pack.start
        ancestors = np.flatnonzero(end[:first] > start)
        rows = np.arange(start, stop, dtype=np.int32)
        yield rows, np.concatenate([ancestors, np.arange(first, first + len(rows))])


@dataclass(frozen=True, slots=True)
class Reach:
    """Limit how far up its path a row looks: ``window`` tokens with itself, or to its ``chunk``'s
    start.
    """

    window: int | None = None
    chunk: int | None = None

    def lowest(self, depth: Ids) -> Ids:
        """Return the smallest depth that a row of every ``depth`` looks at."""
        if self.window is not None:
            return np.maximum(depth - (self.window - 1), 0)
        if self.chunk is not None:
            return depth // self.chunk * self.chunk
        return np.zeros_like(depth)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Tree:
    """Hold nodes in depth-first order, and the nodes at which every distinct span is read.

    ``tokens``, ``depth`` and ``end``: [nodes].  ``depth`` is the position of the token in its
    sequence, and the descendants of node ``i`` are exactly the nodes ``i + 1`` to ``end[i] - 1``.
    Distinct span ``s`` is read at the nodes ``rows[starts[s] : starts[s + 1]]``, from the context's
    last token to the last input (the last token of a sequence is never an input).  ``targets``,
    sliced alike, are the tokens to score.  ``span_of``, [prompts], is the distinct span of every
    prompt.  A mass is a span of one target: ``FIRST_SET - i`` for index i of ``sets``.
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
    """Build the tree of ``questions``.

    Distinct ones are numbered in the tree's depth-first order, so they finish in that order.
    """
    sets: dict[bytes, TokenSet] = {}
    targets: dict[bytes, Ids] = {}
    spans = []
    for question in questions:
        if isinstance(question, Span):
            spans.append(question)
            continue
        digest = question.members.digest
        if digest not in sets:
            targets[digest] = np.asarray([FIRST_SET - len(sets)], dtype=np.int32)
        sets[digest] = question.members
        spans.append(Span(question.context, targets[digest]))
    sequences = Sequences(spans)

    # Each sequence adds the tokens after its common prefix with the one before.
    common = sequences.common
    lengths = sequences.context_lengths
    added = lengths + sequences.inputs - common
    first = np.cumsum(added) - added
    count = int(added.sum())
    depth = np.arange(count) - np.repeat(first - common, added)
    parent, end = _nesting(common.tolist(), first.tolist(), added.tolist())
    scored = sequences.inputs + 1
    scored_depth = ranges(lengths - 1, scored)
    rows = _rows(scored_depth, scored, common, first, added, parent)
    return Tree(
        tokens=_added_tokens(sequences, common, first, count),
        depth=depth.astype(np.int32),
        end=end,
        rows=rows.astype(np.int32),
        targets=sequences.flat[ranges(sequences.start, scored)],
        starts=np.concatenate([[0], np.cumsum(scored)]).astype(np.int64),
        span_of=sequences.span_of,
        sets=tuple(sets.values()),
    )


class Sequences:
    """Sort the distinct ones of some spans, so that those with a common beginning are neighbours.

    A sequence is a context and the inputs of a continuation: all its tokens but the last.
    ``contexts`` are the distinct contexts.  Distinct span s has the context ``context[s]`` and the
    continuation ``flat[start[s] : start[s] + inputs[s] + 1]``.  ``span_of``, [spans], is the
    distinct span of every span.
    """

    def __init__(self, spans: Sequence[Span]) -> None:
        # Spans of a request share their context array, so few arrays are turned into bytes.
        arrays = {id(span.context): span.context for span in spans}
        context_bytes = {identity: _bytes(context) for identity, context in arrays.items()}
        ordered = sorted(set(context_bytes.values()))
        number_of = {context: number for number, context in enumerate(ordered)}
        context_of = {identity: number_of[context] for identity, context in context_bytes.items()}
        self.contexts: list[Ids] = [np.frombuffer(context, dtype=np.int32) for context in ordered]
        extended = [longer.startswith(context) for context, longer in pairwise(ordered)]
        self._extended = np.array([*extended, False], dtype=np.bool_)

        as_bytes = [_bytes(span.continuation) for span in spans]
        texts = list(dict.fromkeys(as_bytes))
        text_number = {text: index for index, text in enumerate(texts)}
        code = np.asarray([context_of[id(span.context)] for span in spans], dtype=np.int64)
        code *= len(texts)
        code += np.fromiter(map(text_number.__getitem__, as_bytes), np.int64, count=len(spans))
        distinct, span_of = np.unique(code, return_inverse=True)
        context, continuation = np.divmod(distinct, max(len(texts), 1))

        inputs = [text[:-_ID_BYTES] for text in texts]
        order = _order(ordered, inputs, context, continuation, self._extended)
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        ends = np.cumsum([0, *map(len, texts)], dtype=np.int64) // _ID_BYTES
        self.span_of: _Integers = rank[span_of]
        self.flat: Ids = np.frombuffer(b"".join(texts), dtype=np.int32)
        self.context: _Integers = context[order]
        self.start: _Integers = ends[:-1][continuation[order]]
        self.inputs: _Integers = np.diff(ends)[continuation[order]] - 1

    def __len__(self) -> int:
        return len(self.context)

    @cached_property
    def context_lengths(self) -> _Integers:
        """Count the tokens of each sequence's context, [sequences]."""
        return np.asarray([len(context) for context in self.contexts], dtype=np.int64)[self.context]

    @cached_property
    def common(self) -> _Integers:
        """Count the tokens that each sequence shares with the one before it, [sequences]."""
        common = np.zeros(len(self), dtype=np.int64)
        is_same = self.context[1:] == self.context[:-1]
        same = np.flatnonzero(is_same) + 1
        common[same] = self.context_lengths[same] + self._common_inputs(same)
        for index in (np.flatnonzero(~is_same) + 1).tolist():
            before = self.context[index - 1]
            context = self.context[index]
            if self._extended[before] or self._extended[context]:
                # The inputs of one may go on like the context of the other.
                common[index] = common_prefix([self._sequence(index - 1), self._sequence(index)])
            else:
                common[index] = common_prefix([self.contexts[before], self.contexts[context]])
        return common

    def _common_inputs(self, indices: _Integers) -> _Integers:
        """Count the inputs shared with the sequence before, which has the same context."""
        shorter = np.minimum(self.inputs[indices], self.inputs[indices - 1])
        first = np.cumsum(shorter) - shorter
        inputs_before = self.flat[ranges(self.start[indices - 1], shorter)]
        inputs = self.flat[ranges(self.start[indices], shorter)]
        differences = np.append(np.flatnonzero(inputs_before != inputs), len(inputs))
        next_difference = differences[np.searchsorted(differences, first)]
        return np.minimum(next_difference - first, shorter)

    def _sequence(self, index: int) -> Ids:
        start = self.start[index]
        inputs = self.flat[start : start + self.inputs[index]]
        return np.concatenate([self.contexts[self.context[index]], inputs])


SHARD_TOKENS = {"cpu": 32_768}
"""The least unique tokens of a shard, by device: a few packs, so that few of them are small."""

DEVICE_TOKENS = 1_048_576
"""The least unique tokens of a shard on all other devices, which idle from one shard to the next."""

SERVED_TOKENS = 131_072
"""The least unique tokens of a shard that a server or vLLM answers, so that many processes share a
block.
"""

SHARE = 64
"""A shard that is cut off has so many times as many tokens as the path that both sides compute."""

WINDOW = 16
"""A cut is made at the shortest path within this part of a shard's tokens after its least."""


def shard_tokens(device: str) -> int:
    """Return the least tokens of a shard on ``device``."""
    return SHARD_TOKENS.get(device.partition(":")[0], DEVICE_TOKENS)


def cut_shards(
    questions: Mapping[str, BlockPrompt], tokens: int | None
) -> Iterator[dict[str, BlockPrompt]]:
    """Cut ``questions`` into shards of at least ``tokens`` unique tokens, in the order of their
    tree.

    The last one may be smaller.  A generation and its conclusions are in one shard, as are all
    questions with the same inputs.  A shard is longer if questions share a long context, which a
    cut would compute twice.
    """
    listed = list(questions.values())
    inputs = [question.inputs for question in listed]
    if tokens is None or sum(inputs) <= tokens:
        if listed:
            yield dict(questions)
        return
    sequences = Sequences([_shared(question) for question in listed])
    lengths = sequences.context_lengths + sequences.inputs
    # Inputs beyond the sequence, such as generated tokens, are computed for the question alone.
    alone = np.zeros(len(sequences), dtype=np.int64)
    np.add.at(alone, sequences.span_of, inputs - lengths[sequences.span_of])
    added = lengths - sequences.common + np.maximum(alone, 0)
    starts = _starts(sequences.common, added, tokens)
    keys = list(questions)
    order = np.argsort(sequences.span_of, kind="stable")
    edges = np.searchsorted(sequences.span_of[order], [*starts, len(sequences)])
    for first, end in pairwise(edges):
        indices = np.sort(order[first:end]).tolist()
        yield {keys[index]: listed[index] for index in indices}


def _starts(common: _Integers, added: _Integers, tokens: int) -> list[int]:
    """Return the first sequence of every shard.

    Sequences share ``common`` tokens with the one before, and have ``added`` ones.
    """
    before = np.cumsum(added) - added
    # A cut is worth its cost if this is at least the number of tokens before the shard.
    worth = before - SHARE * common
    starts = [0]
    while True:
        begun = before[starts[-1]]
        least = int(np.searchsorted(before, begun + tokens))
        most = int(np.searchsorted(before, begun + tokens + tokens // WINDOW))
        if least >= len(added):
            return starts
        cut = least + int(common[least : most + 1].argmin())
        if worth[cut] < begun:
            later = np.flatnonzero(worth[least:] >= begun)
            if not len(later):
                return starts
            cut = least + int(later[0])
        starts.append(cut)


def _shared(question: BlockPrompt) -> Span:
    """Return a span of the inputs with which other questions may begin, too."""
    if isinstance(question, Span):
        return question
    if isinstance(question, MaskedLoss):
        return question.span
    first = first_tokens(question)
    return Span(first, first[:1])


def ranges(starts: _Integers, counts: _Integers) -> _Integers:
    """Return ``start``, ``start + 1``, ..., as many as its count, for every start, in one array."""
    ends = np.cumsum(counts)
    count = ends[-1] if len(ends) else 0
    return np.arange(count) + np.repeat(starts - (ends - counts), counts)


def _added_tokens(sequences: Sequences, common: _Integers, first: _Integers, count: int) -> Ids:
    """Return the tokens that the sequences add to the tree, [nodes]."""
    tokens = np.empty(count, dtype=np.int32)
    # How many tokens of the context are added; below 0 if inputs are shared, too.
    in_context = sequences.context_lengths - common
    for index in np.flatnonzero(in_context > 0):
        part = sequences.contexts[sequences.context[index]][common[index] :]
        tokens[first[index] : first[index] + len(part)] = part
    shared = np.maximum(-in_context, 0)
    counts = sequences.inputs - shared
    nodes = ranges(first + np.maximum(in_context, 0), counts)
    tokens[nodes] = sequences.flat[ranges(sequences.start + shared, counts)]
    return tokens


@dataclass(slots=True)
class _Branch:
    """Hold the nodes that a sequence added to the current path: ``count`` from ``node`` on."""

    sequence: int
    depth: int
    node: int
    count: int


def _nesting(common: list[int], first: list[int], added: list[int]) -> tuple[_Integers, Ids]:
    """Return the sequence that added the parent of every sequence's first node, and subtree ends.

    The parents are [sequences], the ends of the subtrees [nodes].
    """
    count = sum(added)
    parent = np.zeros(len(common), dtype=np.int64)
    end = np.full(count, count, dtype=np.int32)
    path: list[_Branch] = []
    for sequence, depth in enumerate(common):
        if not added[sequence]:
            continue
        node = first[sequence]
        # Branches below the common prefix end here, and the last one that it shares in part.
        while path and path[-1].depth >= depth:
            branch = path.pop()
            end[branch.node : branch.node + branch.count] = node
        if path:
            branch = path[-1]
            parent[sequence] = branch.sequence
            kept = depth - branch.depth
            if branch.count > kept:
                end[branch.node + kept : branch.node + branch.count] = node
                branch.count = kept
        path.append(_Branch(sequence, depth, node, added[sequence]))
    return parent, end


def _rows(
    depth: _Integers,
    counts: _Integers,
    common: _Integers,
    first: _Integers,
    added: _Integers,
    parent: _Integers,
) -> _Integers:
    """Return the node at every ``depth`` at which a sequence is read, ``counts`` of them for each."""
    # A sequence that adds nothing ends in the one before, which added its last node.
    adder = np.maximum.accumulate(np.where(added > 0, np.arange(len(added)), 0))
    owner = np.repeat(adder, counts)
    # Nodes in the common prefix were added by the parent, or by its parent, and so on.
    while True:
        shared = np.flatnonzero(common[owner] > depth)
        if not len(shared):
            return first[owner] + depth - common[owner]
        owner[shared] = parent[owner[shared]]


def _bytes(ids: Ids) -> bytes:
    return np.ascontiguousarray(ids, dtype=np.int32).tobytes()


def _order(
    contexts: list[bytes],
    inputs: list[bytes],
    context: _Integers,
    continuation: _Integers,
    extended: npt.NDArray[np.bool_],
) -> _Integers:
    """Return the order of the bytes ``contexts[context[s]] + inputs[continuation[s]]``."""
    # Joining all of them would copy every context many times.  They are sorted by the last context
    # that is not after them, by whether they go on like it, and by the bytes that remain.
    last = context.copy()
    beyond = np.zeros_like(context)
    remains: dict[int, bytes] = {}
    for index in np.flatnonzero(extended[context]).tolist():
        sequence = contexts[context[index]] + inputs[continuation[index]]
        last[index] = bisect_right(contexts, sequence) - 1
        prefix = contexts[last[index]]
        if sequence.startswith(prefix):
            sequence = sequence[len(prefix) :]
        else:
            beyond[index] = 1
        remains[index] = sequence
    rank = {text: index for index, text in enumerate(sorted({*inputs, *remains.values()}))}
    ranks = np.array([rank[text] for text in inputs], dtype=np.int64)[continuation]
    for index, text in remains.items():
        ranks[index] = rank[text]
    return np.lexsort((ranks, beyond, last))
