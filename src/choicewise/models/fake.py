"""Models that compute nothing: hash, oracle, anti-oracle.

All use the bytes of :class:`~choicewise.tokens.tokenizer.ByteTokenizer` as tokens.  ``fake:hash`` guesses, the same on
every machine; ``fake:oracle`` knows every answer and must score 1 under any protocol, ``fake:anti-oracle`` 0.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from choicewise.models.model import Recipe, SelfCheck
from choicewise.questions import (
    EOS,
    KINDS,
    LENGTH,
    Answers,
    Blanks,
    Cosine,
    Decision,
    Ended,
    Generation,
    Ids,
    MaskedLoss,
    Mass,
    Prompt,
    Rendition,
    SetSpan,
    Span,
    TokenScores,
)
from choicewise.tokens.tokenizer import BYTES, ByteTokenizer, Tokenizer

SURE, UNSURE, REFUSED = -1e-6, -10.0, -20.0
"""Nats per token of a choice that an oracle prefers, does not know and rejects; length can't make up for the steps."""

_Weights = npt.NDArray[np.int64]


class _Fake(ABC):
    """What all fakes have in common; each says how it scores, generates and compares."""

    dtype = "float32"
    device = "cpu"
    kind_name = "fake"
    window = 1_000_000
    supports = KINDS
    recipe: Recipe | None = None
    selfcheck: SelfCheck | None = None
    computed = planned = None

    def __init__(self, name: str) -> None:
        self.name = name
        self.digest = hashlib.sha256(name.encode()).hexdigest()
        self.tokenizer: Tokenizer = ByteTokenizer()

    def check(self, depth: int) -> SelfCheck | None:
        """None: there is nothing to choose from."""
        return self.selfcheck

    def objection(self, question: Prompt) -> str | None:
        """None: a fake answers everything."""
        return None

    def answer(self, questions: Sequence[Prompt]) -> Answers:
        """The answers, in order."""
        for index, question in enumerate(questions):
            match question:
                case MaskedLoss():
                    loss = -float(self._score(question.span).logprobs.mean(dtype=np.float64))
                    yield index, question.answer(loss)
                case Generation():
                    yield index, self._generate(question)
                case Cosine():
                    yield index, Cosine.answer(self._cosine(question))
                case Decision():
                    yield index, self._decide(question)
                case _:
                    yield index, self._score(question)

    @abstractmethod
    def _score(self, question: Span | Mass | Blanks | Rendition | SetSpan) -> TokenScores: ...

    @abstractmethod
    def _generate(self, generation: Generation) -> TokenScores: ...

    @abstractmethod
    def _cosine(self, question: Cosine) -> float: ...

    @abstractmethod
    def _decide(self, question: Decision) -> TokenScores: ...


class HashModel(_Fake):
    """Log-probabilities drawn from a hash of the text so far.

    The distribution over the next token depends on the bytes before it alone (BOS stands for none) and is normalised,
    so log-probabilities of consecutive texts add up.  Every ``seed`` is another model.
    """

    def __init__(self, seed: int = 0) -> None:
        super().__init__("fake:hash" if seed == 0 else f"fake:hash:{seed}")
        self._seed = seed.to_bytes(8, "little", signed=True)

    def _score(self, question: Span | Mass | Blanks | Rendition | SetSpan) -> TokenScores:
        match question:
            case Mass(context, members):
                weights, ids = self._weights(self._after(context)), members.ids
                token = ids[weights[ids].argmax()]
                share = int(weights[ids].sum()) / int(weights.sum())
                return TokenScores.of(
                    [token], [math.log(share)], [np.count_nonzero(weights > weights[token])]
                )
            case Blanks():
                return TokenScores.joined(
                    [*map(self._fill, question.rows(), question.places, question.continuation)]
                )
            case SetSpan():  # as if the options stood in the order of their tokens
                options = question.options
                ordered = question.in_order(
                    sorted(range(len(options)), key=lambda place: options[place].tolist())
                )
                return self._score(Span(ordered.context, ordered.continuation))
            case Rendition(before, continuation) | Span(before, continuation):
                wanted = continuation.tolist()
                return self._read(before, len(wanted), lambda tokens, weights: wanted[len(tokens)])

    def _fill(self, row: Ids, place: int, token: int) -> TokenScores:
        """``token`` at a hidden place, from a hash of what is visible before and after it."""
        sides = [self._after(side).digest(16) for side in (row[:place], row[place:])]
        weights = self._weights(hashlib.shake_256(b"".join(sides)))
        logprob = math.log(weights[token] / weights.sum())
        return TokenScores.of([token], [logprob], [np.count_nonzero(weights > weights[token])])

    def _generate(self, generation: Generation) -> TokenScores:
        table, sampling = self.tokenizer.token_bytes, generation.sampling

        def choose(tokens: list[int], weights: _Weights) -> int | None:
            token = (
                int(weights.argmax()) if sampling is None else sampling.draw(weights, len(tokens))
            )
            ended = (sampling is not None and not table[token]) or generation.stopped(
                [*tokens, token], table
            )
            return None if ended else token

        scores = self._read(generation.context, generation.limit, choose)
        scores.ended = Ended(generation.finish(scores.tokens.tolist(), table, ()))
        return scores

    def _cosine(self, question: Cosine) -> float:
        """A number from -1 to 1 drawn from a hash of both texts."""
        digest = hashlib.shake_256(self._seed + question.key.encode()).digest(8)
        return int.from_bytes(digest, "little") / 2**63 - 1

    def _decide(self, question: Decision) -> TokenScores:
        """Shares drawn from a hash of the whole question, with their sum 1."""
        first, option = Decision(question.question, 0), question.option
        count = len(question.question.names)
        digest = hashlib.shake_256(self._seed + first.key.encode()).digest(2 * count)
        weights = np.square(1 + np.frombuffer(digest, dtype="<u2").astype(np.int64))
        rank = np.count_nonzero(weights > weights[option])
        return TokenScores.of([option], [math.log(weights[option] / weights.sum())], [rank])

    def _after(self, context: Ids) -> Any:
        """The hash of a text, which can be continued."""
        return hashlib.shake_256(self._seed + self._bytes(context))

    def _bytes(self, context: Ids) -> bytes:
        if type(self.tokenizer) is ByteTokenizer:  # the same as below, a hundred times faster
            return context[context < BYTES].astype(np.uint8).tobytes()
        return b"".join(self.tokenizer.token_bytes[token] for token in context)

    def _weights(self, text: Any) -> _Weights:
        """Integers, so that their sum is the same on every machine; squares, so that some tokens stand out."""
        digest = text.digest(2 * len(self.tokenizer.token_bytes))
        return np.square(1 + np.frombuffer(digest, dtype="<u2").astype(np.int64))

    def _read(
        self, context: Ids, limit: int, choose: Callable[[list[int], _Weights], int | None]
    ) -> TokenScores:
        """At most ``limit`` tokens, as ``choose`` names them from those before and the next weights, until None."""
        text = self._after(context)
        tokens, logprobs, ranks = list[int](), list[float](), list[int]()
        for _ in range(limit):
            weights = self._weights(text)
            token = choose(tokens, weights)
            if token is None:
                break
            tokens.append(token)
            logprobs.append(math.log(weights[token] / weights.sum()))
            ranks.append(int(np.count_nonzero(weights > weights[token])))
            text.update(self.tokenizer.token_bytes[token])
        return TokenScores.of(tokens, logprobs, ranks)


class Oracle(_Fake):
    """Sure of every right choice, and generates the right answer.

    A question that does not say whether its choice is right (``gold`` None) is scored in between.  A mass is scored as
    one token.
    """

    _prefers = True

    def __init__(self) -> None:
        super().__init__("fake:oracle" if self._prefers else "fake:anti-oracle")

    def _score(self, question: Span | Mass | Blanks | Rendition | SetSpan) -> TokenScores:
        nats = (
            UNSURE if question.gold is None else SURE if question.gold == self._prefers else REFUSED
        )
        tokens = question.members.ids[:1] if isinstance(question, Mass) else question.continuation
        return TokenScores.of(tokens, [nats] * len(tokens), [int(nats != SURE)] * len(tokens))

    def _decide(self, question: Decision) -> TokenScores:
        nats = (
            UNSURE if question.gold is None else SURE if question.gold == self._prefers else REFUSED
        )
        return TokenScores.of([question.option], [nats], [int(nats != SURE)])

    def _generate(self, generation: Generation) -> TokenScores:
        """The preferred answer's tokens, up to limit and stops; none where no answer is named."""
        preferred = generation.right if self._prefers else generation.wrong
        every = [] if preferred is None else preferred.tolist()
        tokens = every[: generation.limit]
        tokens = tokens[: generation.before_stop(tokens, self.tokenizer.token_bytes)]
        scores = TokenScores.of(tokens, [SURE] * len(tokens), [0] * len(tokens))
        scores.ended = Ended(LENGTH if len(tokens) == generation.limit < len(every) else EOS)
        return scores

    def _cosine(self, question: Cosine) -> float:
        """1 for the preferred texts, -1 for others, 0 where it is not said."""
        return 0.0 if question.gold is None else 1.0 if question.gold == self._prefers else -1.0


class AntiOracle(Oracle):
    """Sure of every wrong choice, and generates a wrong answer."""

    _prefers = False
