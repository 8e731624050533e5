"""Models without weights: for trying a pipeline, and for checking that it counts right answers as right.

All speak the bytes of :class:`~choicewise.engine.tokenizer.ByteTokenizer`.  ``fake:hash`` guesses, the same on every
machine; ``fake:oracle`` knows every answer and must score 1 under any protocol, ``fake:anti-oracle`` 0.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from choicewise.engine.chain import Chain
from choicewise.engine.pair import Pair
from choicewise.engine.span import Ids, Mass, Prompt, Span, TokenScores
from choicewise.engine.tokenizer import ByteTokenizer, Tokenizer

SURE, UNSURE, REFUSED = -1e-6, -10.0, -20.0
"""Nats per token of a choice an oracle prefers, does not know, and rejects; so far apart that length can't matter."""


class _Fake:
    dtype = "float32"
    device = "cpu"
    window = 1_000_000

    def __init__(self, name: str) -> None:
        self.name = name
        self.digest = hashlib.sha256(name.encode()).hexdigest()
        self.tokenizer: Tokenizer = ByteTokenizer()

    def score(self, questions: Sequence[Span | Mass]) -> Iterator[tuple[int, TokenScores]]:
        """What was seen of every question; each fake says what."""
        raise TypeError(f"{type(self).__name__} does not say how it scores")

    def masked(self, spans: Sequence[Span]) -> Iterator[tuple[int, float]]:
        """(index, minus the mean log-probability) of every span, in order."""
        for index, seen in self.score(spans):
            yield index, -float(seen.logprobs.mean(dtype=np.float64))


class HashModel(_Fake):
    """Log-probabilities drawn from a hash of the text so far.

    The distribution over the next token depends on the bytes before it alone (BOS stands for none) and is normalised,
    so log-probabilities of consecutive texts add up.  ``seed`` gives another model.
    """

    def __init__(self, seed: int = 0) -> None:
        super().__init__("fake:hash" if seed == 0 else f"fake:hash:{seed}")
        self._seed = seed.to_bytes(8, "little", signed=True)

    def score(self, questions: Sequence[Span | Mass]) -> Iterator[tuple[int, TokenScores]]:
        """(index, what was seen) of every span and mass, in order."""
        for index, question in enumerate(questions):
            if isinstance(question, Mass):
                yield index, self._total(question.context, question.members.ids)
            else:
                yield index, self._read(question.context, question.continuation, len(question.continuation))

    def generate(self, prompts: Sequence[Prompt]) -> Iterator[tuple[int, TokenScores]]:
        """(index, the most probable tokens) of every prompt, in order."""
        for index, prompt in enumerate(prompts):
            yield index, self._read(prompt.context, None, prompt.new_tokens)

    def sample(self, chains: Sequence[Chain]) -> Iterator[tuple[int, TokenScores]]:
        """(index, tokens drawn from the model's distribution) of every chain, in order."""
        table = self.tokenizer.token_bytes
        for index, chain in enumerate(chains):
            text = hashlib.shake_256(self._seed + b"".join(table[token] for token in chain.context))
            tokens: list[int] = []
            while len(tokens) < chain.new_tokens:
                token = chain.draw(_weights(text.digest(2 * len(table))), len(tokens))
                if not table[token] or chain.ended([*tokens, token], table):
                    break
                tokens.append(token)
                text.update(table[token])
            yield index, self._read(chain.context, np.asarray(tokens, dtype=np.int32), len(tokens))

    def cosines(self, pairs: Sequence[Pair]) -> Iterator[tuple[int, float]]:
        """(index, a number from -1 to 1 drawn from a hash of both texts) of every pair, in order."""
        for index, pair in enumerate(pairs):
            digest = hashlib.shake_256(self._seed + pair.key.encode()).digest(8)
            yield index, int.from_bytes(digest, "little") / 2**63 - 1

    def _total(self, context: Ids, members: Ids) -> TokenScores:
        """The likeliest of ``members``, and the log of the probability of them all."""
        text = b"".join(self.tokenizer.token_bytes[token] for token in context)
        weights = _weights(hashlib.shake_256(self._seed + text).digest(2 * len(self.tokenizer.token_bytes)))
        token = int(members[weights[members].argmax()])
        share = int(weights[members].sum()) / int(weights.sum())
        return _scores([token], [math.log(share)], [int(np.count_nonzero(weights > weights[token]))])

    def _read(self, context: Ids, continuation: Ids | None, count: int) -> TokenScores:
        """``continuation`` token by token, or the greedy one where there is none."""
        table = self.tokenizer.token_bytes
        text = hashlib.shake_256(self._seed + b"".join(table[token] for token in context))
        tokens: list[int] = []
        logprobs: list[float] = []
        ranks: list[int] = []
        for place in range(count):
            weights = _weights(text.digest(2 * len(table)))
            token = int(weights.argmax() if continuation is None else continuation[place])
            tokens.append(token)
            logprobs.append(math.log(weights[token] / weights.sum()))
            ranks.append(int(np.count_nonzero(weights > weights[token])))
            text.update(table[token])
        return _scores(tokens, logprobs, ranks)


class Oracle(_Fake):
    """Sure of every right choice, and generates the right answer.

    What does not say whether it is right (``gold`` None) is scored in between.  A mass is scored as one token.
    """

    _prefers = True

    def __init__(self) -> None:
        super().__init__("fake:oracle" if self._prefers else "fake:anti-oracle")

    def score(self, questions: Sequence[Span | Mass]) -> Iterator[tuple[int, TokenScores]]:
        """(index, what was seen) of every span and mass, in order."""
        for index, question in enumerate(questions):
            nats = UNSURE if question.gold is None else SURE if question.gold == self._prefers else REFUSED
            tokens = question.members.ids[:1] if isinstance(question, Mass) else question.continuation
            yield index, _scores(tokens, [nats] * len(tokens), [int(nats != SURE)] * len(tokens))

    def generate(self, prompts: Sequence[Prompt]) -> Iterator[tuple[int, TokenScores]]:
        """(index, the preferred answer's tokens) of every prompt, in order."""
        for index, prompt in enumerate(prompts):
            tokens = (prompt.answer if self._prefers else prompt.wrong)[: prompt.new_tokens]
            yield index, _scores(tokens, [SURE] * len(tokens), [0] * len(tokens))

    def sample(self, chains: Sequence[Chain]) -> Iterator[tuple[int, TokenScores]]:
        """(index, no tokens) of every chain: an oracle needs no thought."""
        yield from ((index, _scores([], [], [])) for index in range(len(chains)))

    def cosines(self, pairs: Sequence[Pair]) -> Iterator[tuple[int, float]]:
        """(index, 1 for the preferred texts, -1 for others, 0 where it is not said) of every pair, in order."""
        for index, pair in enumerate(pairs):
            yield index, 0.0 if pair.gold is None else 1.0 if pair.gold == self._prefers else -1.0


class AntiOracle(Oracle):
    """Sure of every wrong choice, and generates a wrong answer."""

    _prefers = False


def _weights(digest: bytes) -> npt.NDArray[np.int64]:
    """Whole numbers, so that their sum is the same on every machine; squares, so that some tokens stand out."""
    return np.square(1 + np.frombuffer(digest, dtype="<u2").astype(np.int64))


def _scores(tokens: Sequence[int] | Ids, logprobs: Sequence[float], ranks: Sequence[int]) -> TokenScores:
    return TokenScores(
        np.asarray(tokens, dtype=np.int32),
        np.asarray(logprobs, dtype=np.float32),
        np.asarray(ranks, dtype=np.int32),
    )
