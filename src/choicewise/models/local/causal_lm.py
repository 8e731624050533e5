"""Read a causal network through its hidden states, and hold what every compute path does."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from inspect import signature
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.utils import logging

from choicewise.engine import FIRST_SET, Tree
from choicewise.models.local import plain
from choicewise.models.local.devices import LOGITS, to_device
from choicewise.models.local.products import product_used
from choicewise.questions import (
    Answers,
    Generation,
    Ids,
    Mass,
    Span,
    StopSearch,
    TokenScores,
    TokenSet,
)

Reads = tuple[Tensor, Tensor, Tensor]
"""Tokens (int32), log-probabilities (nats, float32) and ranks (int32), of shape [reads]."""

GREEDY = -1
"""A target that stands for the token with the greatest logit."""

LIKELIEST = np.asarray([GREEDY], dtype=np.int32)
"""A continuation that asks for the token with the greatest logit."""

STATES = ("cache", "past_key_values", "cache_params", "state")
"""Names under which models return, and take back, their state after the tokens so far.

The first is that of transformers since 5.24; models that bring their code keep the older ones.
"""


class CausalLM:
    """A ``transformers`` causal language model, read through its hidden states.

    ``vocabulary``: how many entries of the logits are tokens; the softmax leaves padding entries
    out.  ``window``: the most tokens that can be inputs at once.  ``work`` counts those that go
    through the model.  ``undivided``: its body gives logits, so that hidden states can't be
    obtained.  ``device``: that of its inputs; layers of a model that is spread over several devices
    compute on theirs, and its head on another one again.  ``multiply``: the product that its layers
    use, if it is not torch's.  ``score_tokens``: reads logits, as
    :func:`~choicewise.models.local.plain.score_tokens`.
    """

    def __init__(
        self, model: PreTrainedModel, window: int, vocabulary: int, work: Workload | None = None
    ) -> None:
        self.model = model.eval()
        self.window = window
        self.vocabulary = vocabulary
        self.work = work or Workload()
        self.multiply = product_used(model)
        self.score_tokens: plain.ScoreTokens = plain.score_tokens
        self.device = model.get_input_embeddings().weight.device
        self._body = _body(model)
        self.undivided = self._body is model
        self._head_device: torch.device | None = None
        if not self.undivided:
            head = model.get_output_embeddings()
            if head is not None:
                self._head_device = head.weight.device
        self._output: Any = None

    @property
    def computed(self) -> int:
        """Return the input tokens that went through the model so far."""
        return self.work.computed

    @property
    def layers(self) -> int:
        """Return the number of layers that the configuration declares."""
        return int(self.model.config.get_text_config().num_hidden_layers)

    def body(self, state: Any = None, **inputs: Any) -> Any:
        """Return the output before the head.

        Its first entry holds what ``logits`` takes, of shape [batch, tokens, width].  ``state``:
        the cache or recurrent state to continue from, as :func:`state_of` reads it.
        """
        if state is not None:
            inputs[self._state_argument] = state
        self._output = self._body(**inputs)
        self.work.computed += inputs["input_ids"].numel()
        return self._output

    @cached_property
    def _state_argument(self) -> str:
        return state_argument(self._body)

    def logits(self, hidden: Tensor) -> Tensor:
        """Return logits [rows, vocabulary] from hidden states [rows, width], without padding.

        The forward of the model computes them, so that it scales, caps and adds whatever it always
        does.
        """
        if self.undivided:
            return hidden[:, : self.vocabulary]
        rows = torch.zeros((1, len(hidden)), dtype=torch.long, device=hidden.device)
        return self._head(hidden, input_ids=rows).logits[0, :, : self.vocabulary]

    def read(self, hidden: Tensor, rows: Ids, targets: Ids, sets: Sequence[TokenSet] = ()) -> Reads:
        """Return tokens, log-probabilities and ranks at ``rows`` of ``hidden`` [tokens, width].

        The tokens are ``targets``, with the likeliest in place of every ``GREEDY``.
        ``FIRST_SET - i`` asks for the log of the total probability of ``sets[i]`` and its likeliest
        member.  ``rows`` ascend.  A rank is the number of entries with a strictly greater logit, or
        -1 if the log-probability is NaN.  Nothing waits for the device.
        """
        # Logits, far larger than hidden states, are computed once for each row.
        distinct, inverse = np.unique(rows, return_inverse=True)
        of_rows = self._at_head(hidden.index_select(0, self.tensor(distinct, hidden.device)))
        device = of_rows.device
        has_greedy = bool((targets == GREEDY).any())
        step = self._rows_at_once
        parts = []
        for first in range(0, len(distinct), step):
            low, high = np.searchsorted(inverse, [first, first + step])
            logits = self.logits(of_rows[first : first + step])
            part = targets[low:high]
            masses = []
            for target in np.unique(part[part <= FIRST_SET]):
                reads = self.tensor(np.flatnonzero(part == target), device)
                members = sets[FIRST_SET - target].below(self.vocabulary)
                masses.append((reads, self.tensor(members, device)))
            rows_of_part = self.tensor(inverse[low:high] - first, device)
            targets_of_part = self.tensor(part, device)
            reads = _read(
                self.score_tokens, logits, rows_of_part, targets_of_part, has_greedy, masses
            )
            parts.append(reads)
        return _joined(parts)

    def choose(self, hidden: Tensor, shares: npt.NDArray[np.float64], known: int) -> Reads:
        """Return the next token at every row of ``hidden`` [rows, width]: the likeliest, or a draw.

        If ``shares`` [rows] is a number and not NaN, it is the first of the first ``known`` tokens
        at which the cumulative probability exceeds this share of their total, as in
        ``Sampling.draw``.
        """
        hidden = self._at_head(hidden)
        all_shares = torch.from_numpy(shares).to(hidden.device)
        parts = []
        for rows in torch.arange(len(hidden), device=hidden.device).split(self._rows_at_once):
            logits = self.logits(hidden[rows])
            share = all_shares[rows]
            sums = logits[:, :known].double().softmax(dim=-1).cumsum(dim=-1)
            # The sums end a little beside 1.
            wanted = share.nan_to_num() * sums[:, -1]
            drawn = torch.searchsorted(sums, wanted[:, None], right=True)[:, 0]
            targets = torch.where(share.isnan(), GREEDY, drawn.clamp(max=sums.shape[1] - 1))
            parts.append(_read(self.score_tokens, logits, rows - rows[0], targets, True, []))
        return _joined(parts)

    @property
    def _rows_at_once(self) -> int:
        """Return the rows of logits to compute at once."""
        bytes_at_once = LOGITS.get(self.device.type, LOGITS["cpu"])
        return max(1, bytes_at_once // (4 * self.vocabulary))

    def loss(self, hidden: Tensor, targets: Ids) -> float:
        """Return the loss that the model computes if rows of ``hidden`` [rows, width] predict
        ``targets``.

        It is in nats per token.
        """
        # The loss shifts its labels, so that they begin with an extra -100 and the rows end with
        # one that is not used.
        rows = self._at_head(torch.cat([hidden, hidden[-1:]]))
        ignored = torch.full((1,), -100, device=rows.device)
        labels = torch.cat([ignored, self.tensor(targets, rows.device)])[None]
        return float(self._head(rows, input_ids=labels.clamp(min=0), labels=labels).loss)

    def _at_head(self, hidden: Tensor) -> Tensor:
        """Return ``hidden`` on the device of the head, on which logits, far larger, then stay."""
        if self._head_device is None:
            return hidden
        return hidden.to(self._head_device)

    def _head(self, hidden: Tensor, **inputs: Tensor) -> Any:
        """Return the output of the model with a body that returns ``hidden`` for every input."""
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
        """Return an index array on ``device``, by default that of the model's inputs; int64."""
        if device is None:
            device = self.device
        return to_device(array.astype(np.int64), device)

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count the input tokens of all passes through the undivided model as ``computed``."""

        def add(_: Any, __: Any, inputs: dict[str, Any]) -> None:
            self.work.computed += inputs["input_ids"].numel()

        hook = self.model.register_forward_pre_hook(add, with_kwargs=True)
        try:
            yield
        finally:
            hook.remove()

    @contextmanager
    def attention(self, implementation: str) -> Iterator[None]:
        """Run the model with another attention function, silently without if it can't change it."""
        before = self.model.config._attn_implementation
        verbosity = logging.get_verbosity()
        logging.set_verbosity_error()
        try:
            self.model.set_attn_implementation(implementation)
            yield
        finally:
            self.model.set_attn_implementation(before)
            logging.set_verbosity(verbosity)


class ComputePath(ABC):
    """One way to score and generate; ``cost``: how many tokens it computes, in words."""

    name: str
    cost: str

    def __init__(self, lm: CausalLM) -> None:
        self.lm = lm

    @abstractmethod
    def score(self, questions: Sequence[Span | Mass]) -> Answers:
        """Yield the answer to every question."""

    def generate(
        self,
        generations: Sequence[Generation],
        ends: Collection[int],
        token_bytes: Sequence[bytes] = (),
    ) -> Answers:
        """Yield the tokens of every generation, as they end (:class:`Draft`).

        Limits are at least 1.  Log-probabilities are those of the raw logits.  Here every round
        scores one more token of every greedy generation, and samples come one at a time with the
        cache of the model.
        """
        greedy: dict[int, Draft] = {}
        for index, generation in enumerate(generations):
            if generation.sampling is None:
                greedy[index] = Draft(generation, ends, token_bytes)
        while greedy:
            indexes = list(greedy)
            spans = [Span(draft.text, LIKELIEST) for draft in greedy.values()]
            for number, scores in self.score(spans):
                index = indexes[number]
                draft = greedy[index]
                draft.add(int(scores.tokens[0]), float(scores.logprobs[0]), int(scores.ranks[0]))
                if draft.ended:
                    del greedy[index]
                    yield index, draft.scores
        model = self.lm.model
        for index, generation in enumerate(generations):
            if generation.sampling is not None:
                # The sample is computed once more to be checked.
                with self.lm.work.expecting(2 * generation.inputs), self.lm.counting():
                    sampled = sample(model, self.lm.vocabulary, generation, ends, token_bytes)
                yield index, sampled

    def objection(self) -> str | None:
        """Return why the numbers of ``score`` can't be trusted even if they agree, or None."""
        return None


Rung = Callable[[CausalLM, int], ComputePath]
"""Makes a compute path from a model and the most tokens of one pack."""


class PlainPath(ComputePath):
    """The reference, for a model on which no other path is right."""

    name = "plain"
    cost = "every span in full, one at a time, with the vocabulary at every token"

    def generate(
        self,
        generations: Sequence[Generation],
        ends: Collection[int],
        token_bytes: Sequence[bytes] = (),
    ) -> Answers:
        """Yield the tokens, one generation at a time."""
        model = self.lm.model
        for index, generation in enumerate(generations):
            # Every token is computed with all before it, the first without the generated ones.
            limit = generation.limit
            most = limit * generation.inputs - limit * (limit - 1) // 2
            with self.lm.work.expecting(most), self.lm.counting():
                answer = plain.generate(model, self.lm.vocabulary, generation, ends, token_bytes)
            yield index, answer

    def score(self, questions: Sequence[Span | Mass]) -> Answers:
        """Yield the answers in order."""
        self.lm.work.planned += sum(question.inputs for question in questions)
        model = self.lm.model
        vocabulary = self.lm.vocabulary
        for index, question in enumerate(questions):
            likeliest = isinstance(question, Span) and question.continuation[0] == GREEDY
            with self.lm.counting():
                if likeliest:
                    answer = plain.generate(model, vocabulary, Generation(question.context, 1), ())
                else:
                    answer = plain.score(model, vocabulary, question)
            yield index, answer


class Draft:
    """The tokens of one generation of a limit of at least 1.

    ``ends``: tokens that end a sequence; a greedy generation includes the first of them, a sampled
    one does not.  ``token_bytes``: the bytes of every token, by which stops are found.  ``steps``:
    tokens chosen, the last of which may not belong to the generation.
    """

    def __init__(
        self, generation: Generation, ends: Collection[int], token_bytes: Sequence[bytes]
    ) -> None:
        self.generation = generation
        self.ended = False
        self.steps = 0
        self.tokens: list[int] = []
        self._logprobs: list[float] = []
        self._ranks: list[int] = []
        self._stops = StopSearch(generation)
        self._ends = ends
        self._token_bytes = token_bytes

    @property
    def text(self) -> Ids:
        """Return the tokens of the context and of the generation."""
        return np.append(self.generation.context, np.asarray(self.tokens, np.int32))

    @property
    def share(self) -> float:
        """Return the share of the probabilities at which the next token is drawn.

        It is NaN for the likeliest token.
        """
        sampling = self.generation.sampling
        if sampling is None:
            return math.nan
        return sampling.share(len(self.tokens))

    @property
    def scores(self) -> TokenScores:
        """Return the answer, once it has ended."""
        return TokenScores.of(self.tokens, self._logprobs, self._ranks)

    def add(self, token: int, logprob: float, rank: int) -> None:
        """Add the next token as it was chosen, with its log-probability (nats) and rank."""
        self.steps += 1
        is_stopped = self._stops.add(self.generation.spelled(token, self._token_bytes))
        is_end = token in self._ends
        if is_stopped and not self.generation.keep_stop:
            self.ended = True
            return
        if is_end and self.generation.sampling is not None:
            self.ended = True
            return
        self.tokens.append(token)
        self._logprobs.append(logprob)
        self._ranks.append(rank)
        self.ended = is_stopped or is_end or len(self.tokens) == self.generation.limit


class Readout:
    """The answers to the questions of a tree, filled in pack by pack.

    The results of a pack are waited for only when the next pack has been started, so that the
    device never idles.
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
        # Lists, as an array takes several times as long to give one number.
        self._starts = tree.starts.tolist()
        questions = np.argsort(tree.span_of, kind="stable")
        spans = np.arange(len(tree.starts))
        self._questions = questions.tolist()
        self._first_question = np.searchsorted(tree.span_of[questions], spans).tolist()
        self._finished = 0
        self._pending: Callable[[], Answers] | None = None

    def read(self, start: int, hidden: torch.Tensor) -> Answers:
        """Read nodes ``start ..`` from hidden states [nodes, width].

        Yields the answers that earlier calls finished.
        """
        stop = start + len(hidden)
        low, high = np.searchsorted(self._rows, [start, stop])
        if low == high:
            return
        rows = self._rows[low:high] - start
        results = self._lm.read(hidden, rows, self._targets[low:high], self._tree.sets)
        sent, copied = _send(results)
        before = self._pending
        self._pending = partial(self._receive, self._order[low:high], sent, copied, stop)
        if before is not None:
            yield from before()

    def finish(self) -> Answers:
        """Yield the answers that the last ``read`` finished."""
        if self._pending is not None:
            yield from self._pending()

    def _receive(
        self,
        positions: npt.NDArray[np.int64],
        results: Reads,
        copied: torch.cuda.Event | None,
        stop: int,
    ) -> Answers:
        """Store ``results`` at ``positions`` among the tree's reads.

        Yields the answers whose last row is before ``stop``.
        """
        if copied is not None:
            copied.synchronize()
        scores = self._scores
        tokens, logprobs, ranks = results
        scores.tokens[positions] = tokens.cpu().numpy()
        scores.logprobs[positions] = logprobs.cpu().numpy()
        scores.ranks[positions] = ranks.cpu().numpy()
        first = self._finished
        self._finished = int(np.searchsorted(self._last_rows, stop))
        for span in range(first, self._finished):
            part = slice(self._starts[span], self._starts[span + 1])
            answer = TokenScores(scores.tokens[part], scores.logprobs[part], scores.ranks[part])
            questions = slice(self._first_question[span], self._first_question[span + 1])
            for question in self._questions[questions]:
                yield question, answer


@dataclass(eq=False)
class Workload:
    """Input tokens ``computed`` so far, and those ``planned``: needed for all questions, and
    computed.

    Whoever plans adds to ``planned`` before computing, at most as much as may be needed, and
    corrects the sum afterwards.
    """

    computed: int = 0
    planned: int = 0

    @contextmanager
    def expecting(self, most: int) -> Iterator[None]:
        """Plan ``most`` more tokens, and afterwards only those that were computed."""
        before = self.computed
        self.planned += most
        yield
        self.planned += self.computed - before - most

    def settle(self) -> None:
        """Plan nothing more, as no question is left."""
        self.planned = self.computed


def _send(results: Reads) -> tuple[Reads, torch.cuda.Event | None]:
    """Start the copy to the host, and return it with an event that says when it is complete."""
    if results[0].device.type != "cuda":
        return results, None
    tokens, logprobs, ranks = map(_start_copy, results)
    copied = torch.cuda.Event()
    # By default it takes the stream of the first device.
    copied.record(torch.cuda.current_stream(results[0].device))
    return (tokens, logprobs, ranks), copied


def _start_copy(part: Tensor) -> Tensor:
    host = torch.empty(part.shape, dtype=part.dtype, pin_memory=True)
    return host.copy_(part, non_blocking=True)


def _read(
    score: plain.ScoreTokens,
    logits: Tensor,
    rows: Tensor,
    targets: Tensor,
    has_greedy: bool,
    masses: list[tuple[Tensor, Tensor]],
) -> Reads:
    """Read ``targets`` at ``rows`` of logits, as :meth:`CausalLM.read`.

    ``score``: as :func:`~choicewise.models.local.plain.score_tokens`.  ``masses``: pairs of the
    positions of a set among the reads, and its members.
    """
    tokens = targets
    if has_greedy:
        tokens = torch.where(targets == GREEDY, logits.argmax(dim=-1)[rows], targets)
    for reads, members in masses:
        of_members = logits.index_select(0, rows[reads]).index_select(1, members)
        tokens = tokens.index_copy(0, reads, members[of_members.argmax(dim=-1)])
    logprobs, ranks = score(logits, rows, tokens)
    for reads, members in masses:
        of_reads = logits.index_select(0, rows[reads])
        all_logprobs = torch.log_softmax(of_reads, dim=-1, dtype=torch.float32)
        total = all_logprobs.index_select(1, members).logsumexp(dim=-1)
        logprobs = logprobs.index_copy(0, reads, total)
    return tokens.int(), logprobs, ranks.masked_fill(logprobs.isnan(), -1)


def _joined(parts: Sequence[Reads]) -> Reads:
    tokens, logprobs, ranks = zip(*parts, strict=True)
    return torch.cat(tokens), torch.cat(logprobs), torch.cat(ranks)


@torch.inference_mode()
def _body(model: PreTrainedModel) -> torch.nn.Module:
    """Return the part whose hidden states the head reads: the first that a forward pass calls."""
    called = []
    candidates = [model.base_model, model.get_decoder()]
    hooks = [
        part.register_forward_hook(lambda module, *_: called.append(module)) for part in candidates
    ]
    device = model.get_input_embeddings().weight.device
    two_tokens = torch.ones((1, 2), dtype=torch.long, device=device)
    try:
        # With a cache some models fail, as xLSTM does.
        model(input_ids=two_tokens, use_cache=False)
    finally:
        for hook in hooks:
            hook.remove()
    for part in candidates:
        if part in called:
            return part
    return model


def state_of(output: Any) -> Any:
    """Return the cache or recurrent state in the ``output`` of a model, or None if it returned
    none.
    """
    # As a dictionary, for transformers warns if an output is asked for an old name.
    fields = dict(output)
    for name in STATES:
        if fields.get(name) is not None:
            return fields[name]
    return None


def state_argument(model: Any) -> str:
    """Return the name under which ``model`` takes back the state that it returned."""
    parameters = signature(type(model).forward).parameters
    for name in STATES:
        if name in parameters:
            return name
    raise ValueError(f"{type(model).__name__} takes no state to continue from")


@torch.inference_mode()
def sample(
    model: Any,
    vocabulary: int,
    generation: Generation,
    ends: Collection[int],
    token_bytes: Sequence[bytes],
) -> TokenScores:
    """Draw the tokens of a sampled ``generation``.

    They are drawn the plain way if the model keeps no state, or a wrong one.  That shows in one
    more pass over all tokens, which costs little beside a pass for each of them.
    """
    assert generation.sampling is not None
    input_ids = torch.from_numpy(generation.context.astype(np.int64))[None].to(model.device)
    inputs = {"input_ids": input_ids, "use_cache": True, **plain.last_rows(model, 1)}
    tokens: list[int] = []
    parts = [TokenScores.of()]
    stops = StopSearch(generation)
    is_stopped = False
    while len(tokens) < generation.limit and not is_stopped:
        try:
            output = model(**inputs)
            state = state_of(output)
            argument = state_argument(model)
        except (RuntimeError, ValueError, TypeError):
            # Models refuse a cache in many ways.
            state = None
        if state is None:
            return plain.generate(model, vocabulary, generation, ends, token_bytes)
        row = output.logits[0, -1:, :vocabulary].float().cpu()
        shares = row[0, : len(token_bytes)].double().softmax(0).numpy()
        token = generation.sampling.draw(shares, len(tokens))
        is_stopped = stops.add(generation.spelled(token, token_bytes))
        if token in ends or (is_stopped and not generation.keep_stop):
            break
        tokens.append(token)
        parts.append(plain.scores(row, np.asarray([token], dtype=np.int32)))
        inputs["input_ids"] = input_ids.new_tensor([[token]])
        inputs[argument] = state
    scores = TokenScores.joined(parts)
    if not tokens:
        return scores
    truth = plain.score(model, vocabulary, Span(generation.context, scores.tokens)).logprobs
    rounding = max(1e-3, 64 * torch.finfo(model.dtype).eps)
    if not np.allclose(scores.logprobs, truth, rtol=0.01, atol=rounding, equal_nan=True):
        return plain.generate(model, vocabulary, generation, ends, token_bytes)
    return scores
