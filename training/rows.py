"""Rows of tokens to train on, and which of them the lessons are about."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from corpus import Document, Piece, documents, text
from recipe import Recipe
from tokenizers import Encoding, Tokenizer

Place = tuple[int, int]  # row and token

ENCODED = 200  # documents encoded at once


@dataclass
class Rows:
    """Token ids and their loss weights [rows, length], and what the lessons teach about some of the tokens.

    ``recalled``: the token before an answer, with the tokens of the answer's words.  ``labelled``: a token of a listed
    choice, and where in its row its letter is.  ``matched``: the token before a letter, and the first and last token of
    the choice that it stands for.
    """

    ids: torch.Tensor
    weights: torch.Tensor
    recalled: list[tuple[Place, list[int]]] = field(default_factory=list)
    labelled: list[tuple[Place, int]] = field(default_factory=list)
    matched: list[tuple[Place, int, int]] = field(default_factory=list)


@dataclass(frozen=True)
class Encoded:
    """A document in tokens, the BOS token first, and the tokens of each piece: the first, and one past the last.

    A token belongs to the piece that its last character lies in.
    """

    document: Document
    ids: list[int]
    spans: dict[Piece, tuple[int, int]]

    def weights(self) -> list[float]:
        """The loss weight of every token."""
        return [
            0.0,
            *(
                piece.weight
                for piece, (start, end) in self.spans.items()
                for _ in range(start, end)
            ),
        ]

    def letter(self, label: Piece) -> int:
        """The token that holds a label's letter: its last one, or the one that it begins where that reaches further."""
        first, end = self.spans[label]
        return max(first, end - 1)


def encoded(document: Document, encoding: Encoding, bos: int) -> Encoded:
    """The document with its encoding, which has no BOS token."""
    spans, token, end = {}, 0, 0
    for piece in document:
        end, start = end + len(piece.text), token
        while token < len(encoding.ids) and encoding.offsets[token][1] <= end:
            token += 1
        spans[piece] = (start + 1, token + 1)
    return Encoded(document, [bos, *encoding.ids], spans)


def stream(recipe: Recipe, tokenizer: Tokenizer) -> Iterator[Encoded]:
    """The documents of a recipe, without end."""
    bos = tokenizer.token_to_id("<s>")
    source = documents(f"train-{recipe.seed}", recipe.reads)
    while True:
        batch = [next(source) for _ in range(ENCODED)]
        encodings = tokenizer.encode_batch(
            [text(document) for document in batch], add_special_tokens=False
        )
        for document, encoding in zip(batch, encodings, strict=True):
            yield encoded(document, encoding, bos)


class Words:
    """The tokens of answers, each encoded once."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._known: dict[str, list[int]] = {}

    def __call__(self, answer: str) -> list[int]:
        """The different tokens of an answer after a space."""
        if answer not in self._known:
            ids = self._tokenizer.encode(f" {answer}", add_special_tokens=False).ids
            self._known[answer] = sorted(set(ids))
        return self._known[answer]


def rows(source: Iterator[Encoded], count: int, length: int, words: Words) -> Rows:
    """The next documents in rows; each row begins with a document, and its last one is cut where the row ends."""
    filled = Rows(torch.zeros(count, length, dtype=torch.long), torch.zeros(count, length))
    for row in range(count):
        start = 0
        while start < length:
            document = next(source)
            stop = min(start + len(document.ids), length)
            filled.ids[row, start:stop] = torch.tensor(document.ids[: stop - start])
            filled.weights[row, start:stop] = torch.tensor(document.weights()[: stop - start])
            _add_lessons(filled, document, row, start, words)
            start = stop
    return filled


def _add_lessons(filled: Rows, document: Encoded, row: int, start: int, words: Words) -> None:
    """What the lessons teach about a document that begins at the token ``start`` of a row, as far as the row goes."""
    room = filled.ids.shape[1] - start
    for piece, (first, end) in document.spans.items():
        if end > room:
            return
        if piece.label is not None:
            letter = start + document.letter(piece.label)
            filled.labelled += [((row, start + token), letter) for token in range(first, end)]
        if piece.answer:
            # of a letter that takes two tokens, " " and "A", the second one tells it
            asked = start + (first if piece.choice is None else end - 1) - 1
            filled.recalled.append(((row, asked), words(piece.answer)))
            if piece.choice is not None:
                low, high = document.spans[piece.choice]
                filled.matched.append(((row, asked), start + low, start + high - 1))
