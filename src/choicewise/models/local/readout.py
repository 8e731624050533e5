"""From hidden states to what every span gets to know, as soon as its last row is there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from choicewise.engine.tree import Tree
from choicewise.models.local.causal_lm import CausalLM
from choicewise.questions.token_scores import TokenScores


@dataclass(frozen=True, slots=True, eq=False)
class _Read:
    """Results on their way from the device: ``reads`` are their places among the tree's reads."""

    reads: npt.NDArray[np.int64]
    tokens: torch.Tensor
    logprobs: torch.Tensor
    ranks: torch.Tensor
    stop: int
    copied: torch.cuda.Event | None


class Readout:
    """What the spans of a tree read, filled in pack by pack.

    One pack's results are waited for only when the next pack has been started, so that the device never idles.
    """

    def __init__(self, lm: CausalLM, tree: Tree) -> None:
        self._lm = lm
        self._tree = tree
        self._order = np.argsort(tree.rows, kind="stable")
        self._rows = tree.rows[self._order]
        self._targets = tree.targets[self._order]
        self._tokens = np.zeros(len(tree.rows), dtype=np.int32)
        self._logprobs = np.full(len(tree.rows), np.nan, dtype=np.float32)
        self._ranks = np.zeros(len(tree.rows), dtype=np.int32)
        self._last = tree.rows[tree.starts[1:] - 1]
        self._askers = np.argsort(tree.span_of, kind="stable")
        self._asked = np.searchsorted(tree.span_of[self._askers], np.arange(len(tree.starts)))
        self._done = 0
        self._coming: _Read | None = None

    def take(self, start: int, hidden: torch.Tensor) -> Iterator[tuple[int, TokenScores]]:
        """Read nodes ``start ..`` from their hidden states, shape [nodes, width]; answers finished by earlier calls."""
        stop = start + len(hidden)
        low, high = np.searchsorted(self._rows, [start, stop])
        if low == high:
            return
        read = self._lm.read(hidden, self._rows[low:high] - start, self._targets[low:high], self._tree.sets)
        before, self._coming = self._coming, _send(self._order[low:high], read, stop)
        if before is not None:
            yield from self._receive(before)

    def rest(self) -> Iterator[tuple[int, TokenScores]]:
        """The answers that the last ``take`` finished."""
        if self._coming is not None:
            yield from self._receive(self._coming)

    def _receive(self, read: _Read) -> Iterator[tuple[int, TokenScores]]:
        if read.copied is not None:
            read.copied.synchronize()
        self._tokens[read.reads] = read.tokens.numpy()
        self._logprobs[read.reads] = read.logprobs.numpy()
        self._ranks[read.reads] = read.ranks.numpy()
        first, self._done = self._done, int(np.searchsorted(self._last, read.stop))
        for span in range(first, self._done):
            part = slice(self._tree.starts[span], self._tree.starts[span + 1])
            scores = TokenScores(self._tokens[part], self._logprobs[part], self._ranks[part])
            for asker in self._askers[self._asked[span] : self._asked[span + 1]]:
                yield int(asker), scores


def _send(reads: npt.NDArray[np.int64], read: tuple[torch.Tensor, torch.Tensor, torch.Tensor], stop: int) -> _Read:
    """Start the copy to the host, and remember how to know that it is there."""
    tokens, logprobs, ranks = read
    if logprobs.device.type != "cuda":
        return _Read(reads, tokens.cpu(), logprobs.cpu(), ranks.cpu(), stop, None)
    here = [torch.empty(part.shape, dtype=part.dtype, pin_memory=True).copy_(part, non_blocking=True) for part in read]
    copied = torch.cuda.Event()
    copied.record()
    return _Read(reads, here[0], here[1], here[2], stop, copied)
