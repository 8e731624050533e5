"""A causal network as compute paths use it: hidden states, read-out of log-probabilities, counters of work."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.utils import logging

from choicewise.engine import FIRST_SET, Tree
from choicewise.questions import Answers, Ids, Question, TokenScores, TokenSet

Reads = tuple[Tensor, Tensor, Tensor]
"""Tokens (int32), log-probabilities (nats, float32) and ranks (int32), each of shape [reads]."""

CHUNK_BYTES = {"cpu": 25_000_000, "cuda": 1_000_000_000}
"""Bytes of rows x vocabulary in float32 to hold at once: what a last-level cache holds, or what fits easily."""

GREEDY = -1
"""A target that stands for the token with the greatest logit."""

LIKELIEST = np.asarray([GREEDY], dtype=np.int32)
"""The continuation of a span that asks for the token with the greatest logit."""


class CausalLM:
    """A ``transformers`` causal language model, read through its hidden states.

    ``vocabulary``: how many entries of the logits are tokens; the softmax leaves padding entries out.
    ``window``: the most tokens that can be inputs at once.  ``work`` counts those that go through the model.
    ``undivided``: whether its body gives logits, so that hidden states can't be obtained.  ``device``: where its inputs
    lie; layers of a model that is spread over several devices compute on theirs, and its head on another one again.
    """

    def __init__(self, model: PreTrainedModel, window: int, vocabulary: int, work: Workload | None = None) -> None:
        self.model = model.eval()
        self.window = window
        self.vocabulary = vocabulary
        self.work = work or Workload()
        self.device = model.get_input_embeddings().weight.device
        self._body = _body(model)
        self.undivided = self._body is model
        head = None if self.undivided else model.get_output_embeddings()
        self._head_device = None if head is None else head.weight.device
        self._output: Any = None

    @property
    def computed(self) -> int:
        """Input tokens that went through the model so far."""
        return self.work.computed

    @property
    def layers(self) -> int:
        """How many layers the configuration declares."""
        return int(self.model.config.get_text_config().num_hidden_layers)

    def body(self, **inputs: Any) -> Any:
        """The output before the head; its first entry holds what ``logits`` takes, shape [batch, tokens, width]."""
        self._output = self._body(**inputs)
        self.work.computed += inputs["input_ids"].numel()
        return self._output

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits over the true vocabulary from hidden states, shapes [rows, width] and [rows, vocabulary].

        The model's own forward computes them, so that it scales, caps and adds whatever it always does.
        """
        if self.undivided:
            return hidden[:, : self.vocabulary]
        rows = torch.zeros((1, len(hidden)), dtype=torch.long, device=hidden.device)
        return self._head(hidden, input_ids=rows).logits[0, :, : self.vocabulary]

    def read(self, hidden: Tensor, rows: Ids, targets: Ids, sets: Sequence[TokenSet] = ()) -> Reads:
        """Tokens, log-probabilities and ranks at ``rows`` of ``hidden``, shape [tokens, width].

        The tokens are ``targets``, with the likeliest in place of every ``GREEDY``.  ``FIRST_SET - i`` asks for the log
        of the total probability of ``sets[i]`` and its likeliest member.  ``rows`` ascend.  A rank is the number of
        entries with a strictly greater logit, or -1 where the log-probability is NaN.  Nothing waits for the device.
        """
        distinct, place = np.unique(rows, return_inverse=True)
        likeliest, vocabulary = bool((targets == GREEDY).any()), self.vocabulary
        of_rows = self._at_head(hidden.index_select(0, self.tensor(distinct, hidden.device)))
        device = of_rows.device
        step = self._rows_at_once
        parts = []
        for first in range(0, len(distinct), step):
            low, high = np.searchsorted(place, [first, first + step])
            logits = self.logits(of_rows[first : first + step])
            part = targets[low:high]
            masses = [
                (
                    self.tensor(np.flatnonzero(part == target), device),
                    self.tensor(sets[FIRST_SET - target].known(vocabulary), device),
                )
                for target in np.unique(part[part <= FIRST_SET])
            ]
            rows_of_part, targets_of_part = self.tensor(place[low:high] - first, device), self.tensor(part, device)
            parts.append(_read(logits, rows_of_part, targets_of_part, likeliest, masses))
        tokens, logprobs, ranks = zip(*parts, strict=True)
        return torch.cat(tokens), torch.cat(logprobs), torch.cat(ranks)

    def choose(self, hidden: Tensor, shares: npt.NDArray[np.float64], known: int) -> Reads:
        """The next token at every row of ``hidden``, shape [rows, width]: the likeliest, or one that is drawn.

        Where ``shares``, shape [rows], is a number and not NaN, it is the first of the first ``known`` tokens at which
        the cumulative probability exceeds this share of their total, as in ``Sampling.draw``.
        """
        parts, hidden = [], self._at_head(hidden)
        for rows in torch.arange(len(hidden), device=hidden.device).split(self._rows_at_once):
            logits, share = self.logits(hidden[rows]), torch.from_numpy(shares).to(hidden.device)[rows]
            sums = logits[:, :known].double().softmax(dim=-1).cumsum(dim=-1)
            drawn = torch.searchsorted(sums, (share.nan_to_num() * sums[:, -1])[:, None], right=True)[:, 0]
            targets = torch.where(share.isnan(), GREEDY, drawn.clamp(max=sums.shape[1] - 1))
            parts.append(_read(logits, rows - rows[0], targets, True, []))
        tokens, logprobs, ranks = zip(*parts, strict=True)
        return torch.cat(tokens), torch.cat(logprobs), torch.cat(ranks)

    @property
    def _rows_at_once(self) -> int:
        """Rows of logits to hold at once."""
        return max(1, CHUNK_BYTES.get(self.device.type, CHUNK_BYTES["cpu"]) // (4 * self.vocabulary))

    def loss(self, hidden: Tensor, targets: Ids) -> float:
        """The model's own loss where the rows of ``hidden`` [rows, width] predict ``targets``, in nats per token.

        The loss shifts its labels itself, so they begin with an extra -100 and the rows end with one that is not used.
        """
        rows = self._at_head(torch.cat([hidden, hidden[-1:]]))
        labels = torch.cat([torch.full((1,), -100, device=rows.device), self.tensor(targets, rows.device)])[None]
        return float(self._head(rows, input_ids=labels.clamp(min=0), labels=labels).loss)

    def _at_head(self, hidden: Tensor) -> Tensor:
        """``hidden`` where the head reads it: logits, far larger, then stay on their device."""
        return hidden if self._head_device is None else hidden.to(self._head_device)

    def _head(self, hidden: Tensor, **inputs: Tensor) -> Any:
        """The output of the model's own forward around a body that returns ``hidden`` for every input."""
        output = copy.copy(self._output)
        output.last_hidden_state = hidden[None]
        before = self._body.__dict__.get("forward")
        self._body.forward = lambda *args, **kwargs: output
        try:
            return self.model(**inputs, use_cache=False)
        finally:
            del self._body.forward
            if before is not None:
                self._body.forward = before

    def tensor(self, array: npt.NDArray[Any], device: torch.device | None = None) -> Tensor:
        """An index array on ``device``, by default where the model's inputs lie; int64."""
        return to_device(array.astype(np.int64), self.device if device is None else device)

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Meanwhile add the input tokens of all passes through the undivided model to ``computed``."""

        def add(_: Any, __: Any, inputs: dict[str, Any]) -> None:
            self.work.computed += inputs["input_ids"].numel()

        hook = self.model.register_forward_pre_hook(add, with_kwargs=True)
        try:
            yield
        finally:
            hook.remove()

    @contextmanager
    def attention(self, implementation: str) -> Iterator[None]:
        """Meanwhile run the model with another attention function.

        A model that can't change it keeps its own, without the warning ``transformers`` would print: the caller counts
        the calls.
        """
        before, verbosity = self.model.config._attn_implementation, logging.get_verbosity()
        logging.set_verbosity_error()
        try:
            self.model.set_attn_implementation(implementation)
            yield
        finally:
            self.model.set_attn_implementation(before)
            logging.set_verbosity(verbosity)


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


@dataclass(eq=False)
class Workload:
    """Input tokens ``computed`` so far, and those ``planned``: known to be needed for all that was asked, and computed.

    What plans adds to ``planned`` before it computes, at most as much as it may need, and corrects the sum afterwards.
    """

    computed: int = 0
    planned: int = 0

    @contextmanager
    def expecting(self, most: int) -> Iterator[None]:
        """Meanwhile plan ``most`` more tokens; afterwards those that were computed."""
        before = self.computed
        self.planned += most
        yield
        self.planned += self.computed - before - most

    def settle(self) -> None:
        """Nothing is asked any more."""
        self.planned = self.computed


class WorkCounters:
    """What models of a loaded network have in common: the counters of their work, and no objections."""

    _work: Workload

    @property
    def computed(self) -> int:
        """Input tokens that went through the model so far, those of the self-check included."""
        return self._work.computed

    @property
    def planned(self) -> int:
        """Input tokens known to be needed for all that was asked so far, and those computed."""
        return max(self._work.planned, self._work.computed)

    def objection(self, question: Question) -> str | None:
        """None: it answers every question of the kinds that it supports."""
        return None


def to_device(array: npt.NDArray[Any], device: torch.device) -> Tensor:
    """A copy of ``array`` on ``device``, its dtype and shape kept; a CUDA device fetches it while the host goes on."""
    host = torch.from_numpy(np.ascontiguousarray(array))
    return host.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else host.to(device)


@dataclass(frozen=True, slots=True, eq=False)
class _Transfer:
    """Results on their way from the device: ``places`` are their places among the tree's reads.

    They finish the spans whose last row is before node ``stop``.
    """

    places: npt.NDArray[np.int64]
    results: Reads
    stop: int
    copied: torch.cuda.Event | None


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


def _read(logits: Tensor, rows: Tensor, targets: Tensor, likeliest: bool, masses: list[tuple[Tensor, Tensor]]) -> Reads:
    """As ``CausalLM.read``; ``masses``: pairs of (places of a set among the reads, its members)."""
    row_of_read = logits if len(rows) == len(logits) else logits.index_select(0, rows)
    tokens = torch.where(targets == GREEDY, logits.argmax(dim=-1)[rows], targets) if likeliest else targets
    all_logprobs = torch.log_softmax(logits, dim=-1, dtype=torch.float32)
    for reads, members in masses:
        of_members = logits.index_select(0, rows[reads]).index_select(1, members)
        tokens = tokens.index_copy(0, reads, members[of_members.argmax(dim=-1)])
    logprobs = all_logprobs[rows, tokens]
    for reads, members in masses:
        total = all_logprobs.index_select(0, rows[reads]).index_select(1, members).logsumexp(dim=-1)
        logprobs = logprobs.index_copy(0, reads, total)
    ranks = (row_of_read > row_of_read.gather(1, tokens[:, None])).sum(dim=1, dtype=torch.int32)
    return tokens.int(), logprobs, ranks.masked_fill(logprobs.isnan(), -1)


@torch.inference_mode()
def _body(model: PreTrainedModel) -> torch.nn.Module:
    """The part whose hidden states the model's head reads: the first candidate that a forward pass calls."""
    called = []
    candidates = [model.base_model, model.get_decoder()]
    hooks = [part.register_forward_hook(lambda module, *_: called.append(module)) for part in candidates]
    try:
        model(input_ids=torch.ones((1, 2), dtype=torch.long, device=model.get_input_embeddings().weight.device))
    finally:
        for hook in hooks:
            hook.remove()
    return next((part for part in candidates if part in called), model)
