"""Questions in the fewest tokens: the tree of all that they share, its packs, and shards that are computed alone.

Shards follow from the questions alone, not from how many replicas there are: so one process and a cluster compute the
same trees, and their numbers agree to the bit.
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
"""Indices of keys and values: 0 .. len(path) - 1 are those kept from earlier packs, the pack's own follow."""

FIRST_SET = -2
"""The target that stands for the first set of tokens; the second set has the next lower number, and so on."""

_ID_BYTES = 4
_Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Pack:
    """Nodes ``start .. stop - 1`` of a tree, computed after all nodes before them.

    ``path``: the ancestors of node ``start``, root first; their keys and values are all that is kept of
    earlier packs.  ``keep``: places of the ancestors of node ``stop``, to be kept for the next pack.
    """

    start: int
    stop: int
    path: Ids
    keep: Places

    def __len__(self) -> int:
        return self.stop - self.start

    def nodes(self) -> Ids:
        """The node at every place, shape [path + pack]."""
        return np.concatenate([self.path, np.arange(self.start, self.stop, dtype=np.int32)])


def next_pack(tree: Tree, start: int, path: Ids, budget: int) -> Pack:
    """The pack of at most ``budget`` nodes that begins at ``start``, whose ancestors are ``path``."""
    stop = min(start + budget, len(tree))
    nodes = np.concatenate([path, np.arange(start, stop, dtype=np.int32)])
    return Pack(start, stop, path, np.flatnonzero(tree.end[nodes] > stop))


def next_path(pack: Pack) -> Ids:
    """The ancestors of the node after ``pack``: the ``path`` of the next one."""
    return pack.nodes()[pack.keep]


def segments(tree: Tree, pack: Pack, size: int) -> Iterator[tuple[Ids, Places]]:
    """The nodes of ``pack`` in segments of at most ``size``, and the places of all that they may attend to.

    Those are of the ancestors of the segment's first node, root first, then of the segment's own nodes.
    """
    end = tree.end[pack.nodes()]
    for start in range(pack.start, pack.stop, size):
        stop = min(start + size, pack.stop)
        place = len(pack.path) + start - pack.start
        ancestors = np.flatnonzero(end[:place] > start)
        rows = np.arange(start, stop, dtype=np.int32)
        yield rows, np.concatenate([ancestors, np.arange(place, place + len(rows))])


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
    sets = {
        question.members.digest: question.members
        for question in questions
        if isinstance(question, Mass)
    }
    target = {
        members: np.asarray([FIRST_SET - index], dtype=np.int32)
        for index, members in enumerate(sets)
    }
    spans = [
        question
        if isinstance(question, Span)
        else Span(question.context, target[question.members.digest])
        for question in questions
    ]
    sequences = Sequences(spans)  # each adds the tokens after its common prefix with the one before
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
        tuple(sets.values()),
    )


class Sequences:
    """The distinct ones of some spans, sorted so that sequences with a common beginning are next to each other.

    A sequence is a context and the inputs of a continuation: all its tokens but the last.  ``contexts`` are the
    distinct contexts.  Distinct span s has the context ``context[s]`` and the continuation whose tokens are
    ``flat[start[s] : start[s] + inputs[s] + 1]``.  ``span_of``, shape [spans], is the distinct span of every span.
    """

    def __init__(self, spans: Sequence[Span]) -> None:
        arrays = {id(span.context): span.context for span in spans}
        contexts = {identity: _bytes(context) for identity, context in arrays.items()}
        ordered = sorted(set(contexts.values()))
        place_of = {context: place for place, context in enumerate(ordered)}
        index_of = {identity: place_of[context] for identity, context in contexts.items()}
        context_of = [index_of[id(span.context)] for span in spans]
        self.contexts: list[Ids] = [np.frombuffer(context, dtype=np.int32) for context in ordered]
        extended = [longer.startswith(context) for context, longer in pairwise(ordered)]
        self._extended = np.array([*extended, False], dtype=np.bool_)
        as_bytes = [_bytes(span.continuation) for span in spans]
        texts = list(dict.fromkeys(as_bytes))
        number = {text: index for index, text in enumerate(texts)}
        code = np.asarray(context_of, dtype=np.int64) * len(texts)
        code += np.fromiter(map(number.__getitem__, as_bytes), dtype=np.int64, count=len(spans))
        distinct, span_of = np.unique(code, return_inverse=True)
        context, continuation = np.divmod(distinct, max(len(texts), 1))
        order = _order(
            ordered, [text[:-_ID_BYTES] for text in texts], context, continuation, self._extended
        )
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        ends = np.cumsum([0, *map(len, texts)], dtype=np.int64) // _ID_BYTES
        self.span_of: _Integers = place[span_of]
        self.flat: Ids = np.frombuffer(b"".join(texts), dtype=np.int32)
        self.context: _Integers = context[order]
        self.start: _Integers = ends[:-1][continuation[order]]
        self.inputs: _Integers = np.diff(ends)[continuation[order]] - 1

    def __len__(self) -> int:
        return len(self.context)

    @cached_property
    def context_lengths(self) -> _Integers:
        """Tokens of each sequence's context, shape [sequences]."""
        return np.asarray([len(context) for context in self.contexts], dtype=np.int64)[self.context]

    @cached_property
    def common(self) -> _Integers:
        """How many tokens each sequence has in common with the one before it, shape [sequences]."""
        common = np.zeros(len(self), dtype=np.int64)
        same = np.flatnonzero(self.context[1:] == self.context[:-1]) + 1
        common[same] = self.context_lengths[same] + self._common_inputs(same)
        for place in (np.flatnonzero(self.context[1:] != self.context[:-1]) + 1).tolist():
            pair = self.context[place - 1], self.context[place]
            if (
                self._extended[pair[0]] or self._extended[pair[1]]
            ):  # inputs of one may go on like the other's context
                common[place] = common_prefix([self._sequence(place - 1), self._sequence(place)])
            else:
                common[place] = common_prefix([self.contexts[context] for context in pair])
        return common

    def _common_inputs(self, places: _Integers) -> _Integers:
        """How many inputs the sequences at ``places`` share with those before them, whose contexts are the same."""
        shorter = np.minimum(self.inputs[places], self.inputs[places - 1])
        first = np.cumsum(shorter) - shorter
        steps = ranges(np.zeros_like(shorter), shorter)
        before, own = (np.repeat(self.start[at], shorter) + steps for at in (places - 1, places))
        differences = np.append(np.flatnonzero(self.flat[before] != self.flat[own]), len(steps))
        return np.minimum(differences[np.searchsorted(differences, first)] - first, shorter)

    def _sequence(self, place: int) -> Ids:
        start = self.start[place]
        return np.concatenate(
            [self.contexts[self.context[place]], self.flat[start : start + self.inputs[place]]]
        )


SHARD_TOKENS = {"cpu": 32_768}
"""Unique tokens of a shard at least, by device: a few packs, so that few of them are small."""

DEVICE_TOKENS = 131_072
"""The same on all other devices, whose packs are larger."""

SHARE = 64
"""A cut costs the tokens of the path that both sides share; the shard before it has so many times as many."""

WINDOW = 16
"""A cut is made where the path is shortest, within this part of a shard's tokens after those it has at least."""


@dataclass(frozen=True)
class Shard:
    """``questions`` by key, whose answers need no other shard.

    ``depth``: input tokens of the longest question of the run so far, up to which the model checks itself.
    """

    questions: Mapping[str, BlockPrompt]
    depth: int


def shard_tokens(device: str) -> int:
    """How many tokens a shard has at least where a model computes on ``device``."""
    return SHARD_TOKENS.get(device.partition(":")[0], DEVICE_TOKENS)


def cut_shards(
    questions: Mapping[str, BlockPrompt], tokens: int | None
) -> Iterator[dict[str, BlockPrompt]]:
    """The ``questions`` in shards of at least ``tokens`` unique tokens, but for the last, in the order of their tree.

    A generation and what follows it are in one shard, as are all questions with the same input.  A shard is longer
    where questions share a long context: cutting there would have it computed twice.
    """
    asked = list(questions.values())
    if tokens is None or sum(question.inputs for question in asked) <= tokens:
        if asked:
            yield dict(questions)
        return
    sequences = Sequences([_shared(question) for question in asked])
    lengths = sequences.context_lengths + sequences.inputs
    own = np.zeros(len(sequences), dtype=np.int64)
    np.add.at(
        own, sequences.span_of, [question.inputs for question in asked] - lengths[sequences.span_of]
    )
    starts = _starts(sequences.common, lengths - sequences.common + np.maximum(own, 0), tokens)
    keys, order = list(questions), np.argsort(sequences.span_of, kind="stable")
    edges = np.searchsorted(sequences.span_of[order], [*starts, len(sequences)])
    for first, end in pairwise(edges):
        places = np.sort(order[first:end])  # in the order in which they were asked
        yield {keys[place]: asked[place] for place in places.tolist()}


def _starts(common: _Integers, new: _Integers, tokens: int) -> list[int]:
    """The first sequence of every shard; sequences have ``common`` tokens with the one before, and ``new`` ones."""
    before = np.cumsum(new) - new
    worth = (
        before - SHARE * common
    )  # a cut is worth its cost where this is no less than the tokens before the shard
    starts = [0]
    while True:
        least = int(np.searchsorted(before, before[starts[-1]] + tokens))
        most = int(np.searchsorted(before, before[starts[-1]] + tokens + tokens // WINDOW))
        if least >= len(new):
            return starts
        place = least + int(common[least : most + 1].argmin())
        if worth[place] < before[starts[-1]]:
            later = np.flatnonzero(worth[least:] >= before[starts[-1]])
            if not len(later):
                return starts
            place = least + int(later[0])
        starts.append(place)


def _shared(question: BlockPrompt) -> Span:
    """A span whose inputs are those tokens of ``question`` that other questions may begin with, too."""
    if isinstance(question, Span | MaskedLoss):
        return question if isinstance(question, Span) else question.span
    first = first_tokens(question)
    return Span(first, first[:1])


def ranges(starts: _Integers, counts: _Integers) -> _Integers:
    """``start, start + 1, ...``, as many as its count, for every one of ``starts``, one after the other."""
    ends = np.cumsum(counts)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - (ends - counts), counts)


def _new_tokens(sequences: Sequences, common: _Integers, first: _Integers, nodes: int) -> Ids:
    tokens = np.empty(nodes, dtype=np.int32)
    in_context = (
        sequences.context_lengths - common
    )  # how many new tokens the context has; below 0 when it has none
    for place in np.flatnonzero(in_context > 0):
        part = sequences.contexts[sequences.context[place]][common[place] :]
        tokens[first[place] : first[place] + len(part)] = part
    shared = np.maximum(-in_context, 0)
    counts = sequences.inputs - shared
    places = ranges(first + np.maximum(in_context, 0), counts)
    tokens[places] = sequences.flat[ranges(sequences.start + shared, counts)]
    return tokens


def _nesting(common: list[int], first: list[int], new: list[int]) -> tuple[_Integers, Ids]:
    """For every sequence, which one added the token before its first new one; for every node, its subtree's end."""
    nodes = sum(new)
    parent, end = np.zeros(len(common), dtype=np.int64), np.full(nodes, nodes, dtype=np.int32)
    path: list[tuple[int, int, int, int]] = []
    for sequence, (depth, node, count) in enumerate(zip(common, first, new, strict=True)):
        if not count:
            continue
        while path and path[-1][1] >= depth:
            _, _, begin, shared_length = path.pop()
            end[begin : begin + shared_length] = node
        if path:
            owner, top, begin, shared_length = path[-1]
            parent[sequence] = owner
            if top + shared_length > depth:
                end[begin + depth - top : begin + shared_length] = node
                path[-1] = owner, top, begin, depth - top
        path.append((sequence, depth, node, count))
    return parent, end


def _rows(
    depth: _Integers,
    counts: _Integers,
    common: _Integers,
    first: _Integers,
    new: _Integers,
    parent: _Integers,
) -> _Integers:
    """The node of every sequence at every ``depth`` it is read at, ``counts`` of them for each sequence."""
    adding = np.maximum.accumulate(np.where(new > 0, np.arange(len(new)), 0))
    owner = np.repeat(adding, counts)
    while len(shared := np.flatnonzero(common[owner] > depth)):
        owner[shared] = parent[owner[shared]]
    return first[owner] + depth - common[owner]


def _bytes(ids: Ids) -> bytes:
    return np.ascontiguousarray(ids, dtype=np.int32).tobytes()


def _order(
    contexts: list[bytes],
    inputs: list[bytes],
    context: _Integers,
    continuation: _Integers,
    extended: npt.NDArray[np.bool_],
) -> _Integers:
    """The order of the bytes of ``contexts[context[s]]`` and ``inputs[continuation[s]]`` joined, hardly joining any."""
    last, beyond, remains = (
        context.copy(),
        np.zeros_like(context),
        [inputs[index] for index in continuation],
    )
    for place in np.flatnonzero(extended[context]):
        sequence = contexts[context[place]] + remains[place]
        last[place] = bisect_right(contexts, sequence) - 1
        beyond[place] = not sequence.startswith(contexts[last[place]])
        remains[place] = sequence if beyond[place] else sequence[len(contexts[last[place]]) :]
    rank = {text: index for index, text in enumerate(sorted(set(remains)))}
    ranks = np.fromiter(map(rank.__getitem__, remains), dtype=np.int64, count=len(remains))
    return np.lexsort((ranks, beyond, last))
