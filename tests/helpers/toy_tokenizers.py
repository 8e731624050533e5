"""A toy vocabulary and a model of it whose every probability is known, to compute by brute force what others do."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
import numpy.typing as npt

from choicewise.questions import Ids, Mass, Span, TokenScores
from choicewise.tokens.tokenizer import ByteTokenizer

LETTERS = (b"a", b"b", b"ab", b"ba", b"aab", b"a", b"")
"""Bytes of the tokens: two are spelled alike, and the last one (BOS) stands for nothing."""

WORDS = (
    b" ",
    b"a",
    b"b",
    b" a",
    b" ab",
    b"\n",
    b"ba",
    b"",
)  # tokens of which some begin a word with its white space


class ToyTokenizer(ByteTokenizer):
    """Encodes greedily by the longest token, and the lowest id; the last token is BOS, the one before it EOS if so."""

    def __init__(self, table: Sequence[bytes] = LETTERS, eos: bool = False) -> None:
        self.token_bytes = list(table)
        self.bos_id = len(table) - 1
        self.eos_id = len(table) - 2 if eos else None

    def encode(self, texts: Sequence[str], *, special: bool) -> list[Ids]:
        return [
            np.asarray([self.bos_id] * special + self._greedy(text.encode()), dtype=np.int32)
            for text in texts
        ]

    def _greedy(self, text: bytes) -> list[int]:
        found: list[int] = []
        while text:
            fitting = [
                token
                for token, spelled in enumerate(self.token_bytes)
                if spelled and text.startswith(spelled)
            ]
            found.append(max(fitting, key=lambda token: (len(self.token_bytes[token]), -token)))
            text = text[len(self.token_bytes[found[-1]]) :]
        return found


class ToyModel:
    """Next-token probabilities drawn from a hash of all tokens before."""

    kind_name = ""
    name, digest, dtype, device, window = "toy", "0" * 64, "float32", "cpu", 1000
    supports = frozenset({Span, Mass})

    def __init__(self, tokenizer: ToyTokenizer | None = None) -> None:
        self.tokenizer = tokenizer or ToyTokenizer()

    def row(self, context: Sequence[int]) -> npt.NDArray[np.float64]:
        """Probabilities of all tokens after ``context``."""
        text, size = (
            repr([int(token) for token in context]).encode(),
            len(self.tokenizer.token_bytes),
        )
        weights = 1.0 + np.frombuffer(hashlib.shake_256(text).digest(size), dtype=np.uint8)
        return weights / weights.sum()

    def probability(self, context: Sequence[int], tokens: Sequence[int]) -> float:
        """P(tokens | context)."""
        return float(
            np.prod(
                [self.row([*context, *tokens[:place]])[token] for place, token in enumerate(tokens)]
            )
        )

    def answer(self, questions: Sequence[Span | Mass]) -> Iterator[tuple[int, TokenScores]]:
        """In reverse order, to show that nobody relies on one."""
        for index, question in reversed(list(enumerate(questions))):
            context = question.context.tolist()
            if isinstance(question, Mass):
                logprobs = [np.log(self.row(context)[question.members.ids].sum())]
                tokens = question.members.ids[:1]
            else:
                tokens = question.continuation
                places = range(len(tokens))
                logprobs = [
                    np.log(self.row([*context, *tokens[:place].tolist()])[tokens[place]])
                    for place in places
                ]
            ranks = np.zeros(len(tokens), dtype=np.int32)
            yield index, TokenScores(tokens, np.asarray(logprobs, dtype=np.float32), ranks)

    def starts_with(self, context: Sequence[int], text: bytes) -> float:
        """P(what comes after ``context`` starts with ``text``), from every sequence of as many tokens as bytes."""
        table = self.tokenizer.token_bytes
        spelling = [token for token, spelled in enumerate(table) if spelled]
        return sum(
            self.probability(context, tokens)
            for tokens in product(spelling, repeat=len(text))
            if b"".join(table[token] for token in tokens).startswith(text)
        )


class EndlessModel(ToyModel):
    """Never ends a text: with BOS impossible, the sequences that brute force looks at have all the probability."""

    def row(self, context: Sequence[int]) -> npt.NDArray[np.float64]:
        weights = super().row(context)
        weights[-1] = 0
        return weights / weights.sum()
