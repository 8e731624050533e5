"""What every compute path does, the plain one, and how one generation grows token by token."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import torch

from choicewise.models.local import plain
from choicewise.models.local.causal_lm import GREEDY, LIKELIEST, CausalLM
from choicewise.questions import Answers, Generation, Mass, Span, TokenScores


class ComputePath(ABC):
    """One way to score and generate.  ``cost`` says in words how many tokens it sends through the model."""

    name: str
    cost: str

    def __init__(self, lm: CausalLM) -> None:
        self.lm = lm

    @abstractmethod
    def score(self, questions: Sequence[Span | Mass]) -> Answers:
        """The answer to every question."""

    def generate(
        self, generations: Sequence[Generation], ends: Collection[int], token_bytes: Sequence[bytes] = ()
    ) -> Answers:
        """The tokens of every generation, as they end (:class:`Draft`).

        Limits are at least 1.  Log-probabilities are those of the raw logits.  Here every round scores one more token
        of every greedy generation, and samples come one at a time with the model's own cache.
        """
        drafts = {index: Draft(generation, ends, token_bytes) for index, generation in enumerate(generations)}
        greedy = {index: draft for index, draft in drafts.items() if draft.generation.sampling is None}
        while greedy:
            contexts = [
                np.append(draft.generation.context, np.asarray(draft.tokens, np.int32)) for draft in greedy.values()
            ]
            indexes = list(greedy)
            for number, scores in self.score([Span(context, LIKELIEST) for context in contexts]):
                draft = greedy[indexes[number]]
                draft.add(int(scores.tokens[0]), float(scores.logprobs[0]), int(scores.ranks[0]))
                if draft.ended:
                    del greedy[indexes[number]]
                    yield indexes[number], draft.scores
        for index, generation in enumerate(generations):
            if generation.sampling is not None:
                with self.lm.work.expecting(2 * generation.inputs), self.lm.counting():
                    sampled = sample(self.lm.model, self.lm.vocabulary, generation, ends, token_bytes)
                yield index, sampled

    def objection(self) -> str | None:
        """After ``score``: why the numbers can't be trusted even where they agree, or None."""
        return None


Rung = Callable[[CausalLM, int], ComputePath]
"""Makes a compute path from a model and the most tokens of one pack."""


class PlainPath(ComputePath):
    """The reference itself, for a model on which no other path is right."""

    name = "plain"
    cost = "every span in full, one at a time, with the vocabulary at every token"

    def generate(
        self, generations: Sequence[Generation], ends: Collection[int], token_bytes: Sequence[bytes] = ()
    ) -> Answers:
        """The tokens, one generation at a time."""
        for index, generation in enumerate(generations):
            way = plain.generate if generation.sampling is None else plain.sample
            most = generation.limit * generation.inputs - generation.limit * (generation.limit - 1) // 2
            with self.lm.work.expecting(most), self.lm.counting():
                answer = way(self.lm.model, self.lm.vocabulary, generation, ends, token_bytes)
            yield index, answer

    def score(self, questions: Sequence[Span | Mass]) -> Answers:
        """The answers in order."""
        self.lm.work.planned += sum(question.inputs for question in questions)
        for index, question in enumerate(questions):
            with self.lm.counting():
                if isinstance(question, Span) and question.continuation[0] == GREEDY:
                    asked = Generation(question.context, 1)
                    answer = plain.generate(self.lm.model, self.lm.vocabulary, asked, ())
                else:
                    answer = plain.score(self.lm.model, self.lm.vocabulary, question)
            yield index, answer


class Draft:
    """The tokens of one generation of a limit of at least 1.

    ``ends``: tokens that end a sequence; a greedy generation includes the first of them, a sampled one does not.
    ``token_bytes``: the bytes of every token, by which stops are found.  ``steps``: tokens chosen, the last of which
    may not belong to the generation.
    """

    def __init__(self, generation: Generation, ends: Collection[int], token_bytes: Sequence[bytes]) -> None:
        self.generation = generation
        self.ended = False
        self.steps = 0
        self.tokens: list[int] = []
        self._logprobs: list[float] = []
        self._ranks: list[int] = []
        self._text = b""
        self._ends = ends
        self._token_bytes = token_bytes

    @property
    def share(self) -> float:
        """The share of the probabilities at which the next token is drawn; NaN for the likeliest token."""
        sampling = self.generation.sampling
        return math.nan if sampling is None else sampling.share(len(self.tokens))

    @property
    def scores(self) -> TokenScores:
        """The answer, once it has ended."""
        return TokenScores.of(self.tokens, self._logprobs, self._ranks)

    def add(self, token: int, logprob: float, rank: int) -> None:
        """The next token as it was chosen, with its log-probability (nats) and rank."""
        self.steps += 1
        self._text += self._token_bytes[token] if token < len(self._token_bytes) else b""
        stopped = any(stop in self._text for stop in self.generation.stops)
        if (stopped and not self.generation.keep_stop) or (
            token in self._ends and self.generation.sampling is not None
        ):
            self.ended = True
            return
        self.tokens.append(token)
        self._logprobs.append(logprob)
        self._ranks.append(rank)
        self.ended = stopped or token in self._ends or len(self.tokens) == self.generation.limit


@torch.inference_mode()
def sample(
    model: Any, vocabulary: int, generation: Generation, ends: Collection[int], token_bytes: Sequence[bytes]
) -> TokenScores:
    """The tokens of a sampled ``generation``; the plain way where the model keeps no keys and values, or wrong ones.

    That shows in one more pass over all tokens, which costs little beside a pass for each of them.
    """
    assert generation.sampling is not None
    inputs = torch.from_numpy(generation.context.astype(np.int64))[None].to(model.device)
    tokens: list[int] = []
    parts = [TokenScores.of()]
    past, last = None, plain.last_rows(model, 1)
    while len(tokens) < generation.limit:
        output = model(input_ids=inputs, past_key_values=past, use_cache=True, **last)
        past = getattr(output, "past_key_values", None)
        if past is None:
            return plain.sample(model, vocabulary, generation, ends, token_bytes)
        row = output.logits[0, -1:, :vocabulary].float().cpu()
        token = generation.sampling.draw(row[0, : len(token_bytes)].double().softmax(0).numpy(), len(tokens))
        if token in ends or generation.stopped([*tokens, token], token_bytes):
            break
        tokens.append(token)
        parts.append(plain.scores(row, np.asarray([token], dtype=np.int32)))
        inputs = inputs.new_tensor([[token]])
    scores = TokenScores.joined(parts)
    if tokens:
        reference = plain.score(model, vocabulary, Span(generation.context, scores.tokens)).logprobs
        rounding = max(1e-3, 64 * torch.finfo(model.dtype).eps)
        if not np.allclose(scores.logprobs, reference, rtol=0.01, atol=rounding, equal_nan=True):
            return plain.sample(model, vocabulary, generation, ends, token_bytes)
    return scores
