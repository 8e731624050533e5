"""How tokens are sent to a server: as they are, or as a text that it encodes to the same tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from choicewise.questions import Ids
from choicewise.tokens.tokenizer import Tokenizer


class Prompts(Protocol):
    """``name``: how prompts are sent, in a word or two.  ``front``: tokens that the server puts before every prompt."""

    name: str
    front: tuple[int, ...]

    def prompt(self, tokens: Sequence[int]) -> list[int] | str | None:
        """What is sent for ``tokens``, those of ``front`` included; None where nothing gives just these."""

    def objection(self, tokens: Sequence[int]) -> str | None:
        """Why nothing gives just these ``tokens``; None where something does."""


class TokenPrompts:
    """Tokens are sent as they are."""

    name = "tokens"
    front: tuple[int, ...] = ()

    def prompt(self, tokens: Sequence[int]) -> list[int]:
        """The ``tokens``."""
        return list(tokens)

    def objection(self, tokens: Sequence[int]) -> str | None:
        """None."""
        return None


class TextPrompts:
    """Texts are sent that ``tokenizer`` encodes to just these tokens; the server puts ``front`` before them.

    So a server with the same tokenizer reads the tokens that were meant, and what no text gives is not asked.
    """

    name = "texts"

    def __init__(self, tokenizer: Tokenizer, front: tuple[int, ...]) -> None:
        self._tokenizer, self.front = tokenizer, front

    def prompt(self, tokens: Sequence[int]) -> str | None:
        """The text of ``tokens`` after the front."""
        count = len(self.front)
        if tuple(tokens[:count]) != self.front:
            return None
        ids = np.asarray(tokens[count:], dtype=np.int32)
        text = b"".join(self._tokenizer.token_bytes[token] for token in ids).decode(errors="replace")
        spellings = [text, text[1:]] if text.startswith(" ") else [text]  # some tokenizers put a space in front
        for spelling, encoded in zip(spellings, self._encoded(spellings), strict=True):
            if np.array_equal(encoded, ids):
                return spelling
        return None

    def objection(self, tokens: Sequence[int]) -> str | None:
        """Why no text gives just these ``tokens``."""
        if tuple(tokens[: len(self.front)]) != self.front:
            return (
                f"the server puts {list(self.front)} before every text (BOS), which these tokens do not begin with; use"
                " a protocol that begins with BOS, or a server that adds none"
            )
        if self.prompt(tokens) is None:
            return "the server takes prompts as texts, and no text has just these tokens"
        return None

    def _encoded(self, texts: list[str]) -> list[Ids]:
        return self._tokenizer.encode(texts, special=False)
