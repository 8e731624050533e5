"""The distinct questions of a tree in depth-first order, and what neighbours have in common."""

from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from choicewise.questions import Ids, Span
from choicewise.tokens.tokenizer import common_prefix

ID_BYTES = 4

Integers = npt.NDArray[np.int64]


class Sequences:
    """The distinct ones of some spans, sorted so that sequences with a common beginning are next to each other.

    A sequence is a context and the inputs of a continuation: all its tokens but the last.  ``contexts`` are the
    distinct contexts.  Distinct span s has the context ``context[s]`` and the continuation whose tokens are
    ``flat[start[s] : start[s] + inputs[s] + 1]``.  ``span_of``, shape [spans], is the distinct span of every span.
    """

    def __init__(self, spans: Sequence[Span]) -> None:
        ordered, context_of = _distinct_contexts(spans)
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
        order = _order(ordered, [text[:-ID_BYTES] for text in texts], context, continuation, self._extended)
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        ends = np.cumsum([0, *map(len, texts)], dtype=np.int64) // ID_BYTES
        self.span_of: Integers = place[span_of]
        self.flat: Ids = np.frombuffer(b"".join(texts), dtype=np.int32)
        self.context: Integers = context[order]
        self.start: Integers = ends[:-1][continuation[order]]
        self.inputs: Integers = np.diff(ends)[continuation[order]] - 1

    def __len__(self) -> int:
        return len(self.context)

    @cached_property
    def context_lengths(self) -> Integers:
        """Tokens of each sequence's context, shape [sequences]."""
        return np.asarray([len(context) for context in self.contexts], dtype=np.int64)[self.context]

    @cached_property
    def common(self) -> Integers:
        """How many tokens each sequence has in common with the one before it, shape [sequences]."""
        common = np.zeros(len(self), dtype=np.int64)
        same = np.flatnonzero(self.context[1:] == self.context[:-1]) + 1
        common[same] = self.context_lengths[same] + self._common_inputs(same)
        for place in (np.flatnonzero(self.context[1:] != self.context[:-1]) + 1).tolist():
            pair = self.context[place - 1], self.context[place]
            if self._extended[pair[0]] or self._extended[pair[1]]:  # inputs of one may go on like the other's context
                common[place] = common_prefix([self._sequence(place - 1), self._sequence(place)])
            else:
                common[place] = common_prefix([self.contexts[context] for context in pair])
        return common

    def _common_inputs(self, places: Integers) -> Integers:
        """How many inputs the sequences at ``places`` share with those before them, whose contexts are the same."""
        shorter = np.minimum(self.inputs[places], self.inputs[places - 1])
        first = np.cumsum(shorter) - shorter
        steps = ranges(np.zeros_like(shorter), shorter)
        before, own = (np.repeat(self.start[at], shorter) + steps for at in (places - 1, places))
        differences = np.append(np.flatnonzero(self.flat[before] != self.flat[own]), len(steps))
        return np.minimum(differences[np.searchsorted(differences, first)] - first, shorter)

    def _sequence(self, place: int) -> Ids:
        start = self.start[place]
        return np.concatenate([self.contexts[self.context[place]], self.flat[start : start + self.inputs[place]]])


def ranges(starts: Integers, counts: Integers) -> Integers:
    """``start, start + 1, ...``, as many as its count, for every one of ``starts``, one after the other."""
    ends = np.cumsum(counts)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - (ends - counts), counts)


def _bytes(ids: Ids) -> bytes:
    return np.ascontiguousarray(ids, dtype=np.int32).tobytes()


def _distinct_contexts(spans: Sequence[Span]) -> tuple[list[bytes], list[int]]:
    """The distinct contexts as sorted bytes, and the index of every span's context among them.

    Any order of the ids will do that keeps common prefixes together, as the order of their bytes does.
    """
    arrays = {id(span.context): span.context for span in spans}
    as_bytes = {identity: _bytes(context) for identity, context in arrays.items()}
    ordered = sorted(set(as_bytes.values()))
    number = {context: index for index, context in enumerate(ordered)}
    index_of = {identity: number[context] for identity, context in as_bytes.items()}
    return ordered, [index_of[id(span.context)] for span in spans]


def _order(
    contexts: list[bytes],
    inputs: list[bytes],
    context: Integers,
    continuation: Integers,
    extended: npt.NDArray[np.bool_],
) -> Integers:
    """The order of the bytes of ``contexts[context[s]]`` and ``inputs[continuation[s]]`` joined, hardly joining any.

    A sequence is sorted by the last of the sorted contexts that is not after it, then by what remains of it.  That is
    its own context, unless other contexts extend it; only then bytes are joined.
    """
    last, beyond, remains = context.copy(), np.zeros_like(context), [inputs[index] for index in continuation]
    for place in np.flatnonzero(extended[context]):
        sequence = contexts[context[place]] + remains[place]
        last[place] = bisect_right(contexts, sequence) - 1
        beyond[place] = not sequence.startswith(contexts[last[place]])
        remains[place] = sequence if beyond[place] else sequence[len(contexts[last[place]]) :]
    rank = {text: index for index, text in enumerate(sorted(set(remains)))}
    ranks = np.fromiter(map(rank.__getitem__, remains), dtype=np.int64, count=len(remains))
    return np.lexsort((ranks, beyond, last))
