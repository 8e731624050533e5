"""Answer without computing: by a hash, by the right answers, or by wrong ones.

All use the bytes of :class:`~choicewise.tokens.tokenizer.ByteTokenizer` as tokens.  ``fake:hash``
guesses, the same on every machine; ``fake:oracle`` knows every answer and must score 1 under any
protocol, ``fake:anti-oracle`` 0.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from choicewise.errors import ModelError
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
    StopSearch,
    TokenScores,
)
from choicewise.tokens.tokenizer import BYTES, ByteTokenizer, Tokenizer
from choicewise.util.text import text_digest

# Nats per token of a choice that an oracle prefers, does not know and rejects; length can't make up
# for the steps.
SURE = -1e-6
UNSURE = -10.0
REFUSED = -20.0

_Weights = npt.NDArray[np.int64]


class _Fake(ABC):
    """A model without weights; subclasses score, generate, compare and decide."""

    dtype = "float32"
    device = "cpu"
    kind_name = "fake"
    window = 1_000_000
    supports = KINDS
    recipe: Recipe | None = None
    selfcheck: SelfCheck | None = None
    computed = None
    planned = None

    def __init__(self, name: str) -> None:
        self.name = name
        self.digest = text_digest(name)
        self.tokenizer: Tokenizer = ByteTokenizer()

    def check(self, depth: int) -> SelfCheck | None:
        """Return None: there is nothing to choose from."""
        return self.selfcheck

    def objection(self, question: Prompt) -> str | None:
        """Return None: a fake answers everything."""
        return None

    def answer(self, questions: Sequence[Prompt]) -> Answers:
        """Yield the answers, in order."""
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
    """Draw log-probabilities from a hash of the text so far.

    The distribution over the next token depends on the bytes before it alone (BOS stands for none)
    and is normalised, so that log-probabilities of consecutive texts add up.  Every ``seed`` is
    another model.
    """

    def __init__(self, seed: int = 0) -> None:
        super().__init__("fake:hash" if seed == 0 else f"fake:hash:{seed}")
        self._seed = seed.to_bytes(8, "little", signed=True)

    def _score(self, question: Span | Mass | Blanks | Rendition | SetSpan) -> TokenScores:
        match question:
            case Mass():
                return self._mass(question)
            case Blanks():
                blanks = map(self._fill, question.rows(), question.places, question.continuation)
                return TokenScores.joined(list(blanks))
            case SetSpan():
                # The options are read in the order of their tokens.
                options = [option.tolist() for option in question.options]
                order = sorted(range(len(options)), key=lambda index: options[index])
                ordered = question.in_order(order)
                return self._score(Span(ordered.context, ordered.continuation))
            case Rendition(before, continuation) | Span(before, continuation):
                tokens = continuation.tolist()
                return self._read(before, len(tokens), lambda read, weights: tokens[len(read)])

    def _mass(self, question: Mass) -> TokenScores:
        """Score all members together, as their likeliest token."""
        weights = self._weights(self._after(question.context))
        ids = question.members.ids
        token = ids[weights[ids].argmax()]
        share = int(weights[ids].sum()) / int(weights.sum())
        return TokenScores.of([token], [math.log(share)], [_rank(weights, token)])

    def _fill(self, row: Ids, place: int, token: int) -> TokenScores:
        """Score ``token`` at a hidden place by a hash of what is visible before and after it."""
        before = self._after(row[:place]).digest(16)
        after = self._after(row[place:]).digest(16)
        return _scored(self._weights(hashlib.shake_256(before + after)), token)

    def _generate(self, generation: Generation) -> TokenScores:
        table = self.tokenizer.token_bytes
        sampling = generation.sampling
        stops = StopSearch(generation)
        is_stopped = False

        def choose(tokens: list[int], weights: _Weights) -> int | None:
            nonlocal is_stopped
            if is_stopped:
                return None
            if sampling is None:
                token = int(weights.argmax())
            else:
                token = sampling.draw(weights, len(tokens))
                if not table[token]:
                    return None
            is_stopped = stops.add(generation.spelled(token, table))
            if is_stopped and not generation.keep_stop:
                return None
            return token

        scores = self._read(generation.context, generation.limit, choose)
        scores.ended = Ended(generation.finish(scores.tokens.tolist(), table, ()))
        return scores

    def _cosine(self, question: Cosine) -> float:
        """Draw a number from -1 to 1 from a hash of both texts."""
        digest = hashlib.shake_256(self._seed + question.key.encode()).digest(8)
        return int.from_bytes(digest, "little") / 2**63 - 1

    def _decide(self, question: Decision) -> TokenScores:
        """Draw shares, with their sum 1, from a hash of the whole question."""
        first = Decision(question.question, 0)
        digest = hashlib.shake_256(self._seed + first.key.encode())
        return _scored(_squares(digest, len(question.question.names)), question.option)

    def _after(self, context: Ids) -> Any:
        """Return the hash of a text, which can be continued."""
        return hashlib.shake_256(self._seed + self._bytes(context))

    def _bytes(self, context: Ids) -> bytes:
        if type(self.tokenizer) is ByteTokenizer:
            # The same as below, a hundred times faster.
            return context[context < BYTES].astype(np.uint8).tobytes()
        return b"".join(self.tokenizer.token_bytes[token] for token in context)

    def _weights(self, text: Any) -> _Weights:
        """Return the weights of all tokens after a text, by its hash."""
        return _squares(text, len(self.tokenizer.token_bytes))

    def _read(
        self, context: Ids, limit: int, choose: Callable[[list[int], _Weights], int | None]
    ) -> TokenScores:
        """Score at most ``limit`` tokens.

        ``choose`` names the next one, by those before it and the weights of all, or None to end.
        """
        text = self._after(context)
        tokens: list[int] = []
        logprobs: list[float] = []
        ranks: list[int] = []
        for _ in range(limit):
            weights = self._weights(text)
            token = choose(tokens, weights)
            if token is None:
                break
            tokens.append(token)
            logprobs.append(math.log(weights[token] / weights.sum()))
            ranks.append(_rank(weights, token))
            text.update(self.tokenizer.token_bytes[token])
        return TokenScores.of(tokens, logprobs, ranks)


def _squares(text: Any, count: int) -> _Weights:
    """Draw ``count`` weights from a hash.

    They are integers, so that their sum is the same on every machine, and squares, so that some
    tokens stand out.
    """
    digest = text.digest(2 * count)
    return np.square(1 + np.frombuffer(digest, dtype="<u2").astype(np.int64))


def _rank(weights: _Weights, token: int) -> int:
    return int(np.count_nonzero(weights > weights[token]))


def _scored(weights: _Weights, token: int) -> TokenScores:
    logprob = math.log(weights[token] / weights.sum())
    return TokenScores.of([token], [logprob], [_rank(weights, token)])


class Oracle(_Fake):
    """Prefer every right choice, and generate the right answer.

    A question that does not say if its choice is right (``gold`` None) is scored in between.  A
    mass is scored as one token.
    """

    _prefers = True

    def __init__(self) -> None:
        super().__init__("fake:oracle" if self._prefers else "fake:anti-oracle")

    def _score(self, question: Span | Mass | Blanks | Rendition | SetSpan) -> TokenScores:
        tokens = question.members.ids[:1] if isinstance(question, Mass) else question.continuation
        return self._preference(tokens, question.gold)

    def _decide(self, question: Decision) -> TokenScores:
        return self._preference([question.option], question.gold)

    def _preference(self, tokens: Sequence[int] | Ids, gold: bool | None) -> TokenScores:
        """Score ``tokens`` by whether their choice is right."""
        if gold is None:
            nats = UNSURE
        elif gold == self._prefers:
            nats = SURE
        else:
            nats = REFUSED
        return TokenScores.of(tokens, [nats] * len(tokens), [int(nats != SURE)] * len(tokens))

    def _generate(self, generation: Generation) -> TokenScores:
        """Generate the preferred answer, up to limit and stops; nothing if no answer is named."""
        preferred = generation.right if self._prefers else generation.wrong
        answer = [] if preferred is None else preferred.tolist()
        tokens = answer[: generation.limit]
        tokens = tokens[: generation.before_stop(tokens, self.tokenizer.token_bytes)]
        scores = TokenScores.of(tokens, [SURE] * len(tokens), [0] * len(tokens))
        is_cut = len(tokens) == generation.limit < len(answer)
        scores.ended = Ended(LENGTH if is_cut else EOS)
        return scores

    def _cosine(self, question: Cosine) -> float:
        """Return 1 for the preferred texts, -1 for others, 0 if it is not said."""
        if question.gold is None:
            return 0.0
        return 1.0 if question.gold == self._prefers else -1.0


class AntiOracle(Oracle):
    """Prefer every wrong choice, and generate a wrong answer."""

    _prefers = False


FAKES = {"fake:hash": HashModel, "fake:oracle": Oracle, "fake:anti-oracle": AntiOracle}


def open_fake(name: str) -> _Fake:
    """Return the fake of that name. Raises ModelError if there is none."""
    if name not in FAKES:
        raise ModelError(f"There is no model {name}. Use one of {', '.join(FAKES)}.")
    fake = FAKES[name]()
    fake.recipe = Recipe(name)
    return fake
