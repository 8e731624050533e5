"""From hidden states to answers, each as soon as its last row is computed."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from choicewise.engine.tree import Tree
from choicewise.models.local.causal_lm import CausalLM, Reads
from choicewise.questions import Answers, TokenScores


@dataclass(frozen=True, slots=True, eq=False)
class _Transfer:
    """Results on their way from the device: ``places`` are their places among the tree's reads.

    They finish the spans whose last row is before node ``stop``.
    """

    places: npt.NDArray[np.int64]
    results: Reads
    stop: int
    copied: torch.cuda.Event | None


class Readout:
    """The answers to the questions of a tree, filled in pack by pack.

    One pack's results are waited for only when the next pack has been started, so that the device never idles.
    """

    def __init__(self, lm: CausalLM, tree: Tree) -> None:
        self._lm = lm
        self._tree = tree
        self._order = np.argsort(tree.rows, kind="stable")
        self._rows = tree.rows[self._order]
        self._targets = tree.targets[self._order]
        count = len(tree.rows)
        self._scores = TokenScores.of(np.zeros(count), np.full(count, np.nan), np.zeros(count))
        self._last_rows = tree.rows[tree.starts[1:] - 1]
        self._questions = np.argsort(tree.span_of, kind="stable")
        self._first_question = np.searchsorted(tree.span_of[self._questions], np.arange(len(tree.starts)))
        self._finished = 0
        self._transfer: _Transfer | None = None

    def read(self, start: int, hidden: torch.Tensor) -> Answers:
        """Read nodes ``start ..`` from hidden states, shape [nodes, width]; answers that earlier calls finished."""
        stop = start + len(hidden)
        low, high = np.searchsorted(self._rows, [start, stop])
        if low == high:
            return
        results = self._lm.read(hidden, self._rows[low:high] - start, self._targets[low:high], self._tree.sets)
        before, self._transfer = self._transfer, _send(self._order[low:high], results, stop)
        if before is not None:
            yield from self._receive(before)

    def finish(self) -> Answers:
        """The answers that the last ``read`` finished."""
        if self._transfer is not None:
            yield from self._receive(self._transfer)

    def _receive(self, transfer: _Transfer) -> Answers:
        if transfer.copied is not None:
            transfer.copied.synchronize()
        scores = self._scores
        for array, result in zip((scores.tokens, scores.logprobs, scores.ranks), transfer.results, strict=True):
            array[transfer.places] = result.cpu().numpy()
        first, self._finished = self._finished, int(np.searchsorted(self._last_rows, transfer.stop))
        for span in range(first, self._finished):
            part = slice(self._tree.starts[span], self._tree.starts[span + 1])
            answer = TokenScores(scores.tokens[part], scores.logprobs[part], scores.ranks[part])
            for question in self._questions[self._first_question[span] : self._first_question[span + 1]]:
                yield int(question), answer


def _send(places: npt.NDArray[np.int64], results: Reads, stop: int) -> _Transfer:
    """Start the copy to the host; an event says when it is complete."""
    if results[0].device.type != "cuda":
        return _Transfer(places, results, stop, None)
    tokens, logprobs, ranks = (
        torch.empty(part.shape, dtype=part.dtype, pin_memory=True).copy_(part, non_blocking=True) for part in results
    )
    copied = torch.cuda.Event()
    copied.record(torch.cuda.current_stream(results[0].device))  # by itself it takes the first device's
    return _Transfer(places, (tokens, logprobs, ranks), stop, copied)
