"""The one interface behind which every kind of model answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from choicewise.engine.span import Prompt, Span, TokenScores
from choicewise.engine.tokenizer import Tokenizer


class Model(Protocol):
    """A causal language model with its tokenizer.

    ``window``: the most tokens that can be inputs at once; the last token of a span is never an input, so a span may
    have ``window + 1`` tokens.  ``digest`` (64 hex) identifies weights and configuration, ``dtype`` the arithmetic,
    ``device`` where it runs.
    """

    name: str
    digest: str
    dtype: str
    device: str
    window: int
    tokenizer: Tokenizer

    def score(self, spans: Sequence[Span]) -> Iterator[tuple[int, TokenScores]]:
        """(index into ``spans``, what was seen) for every span, in any order, as results become available."""
        ...

    def generate(self, prompts: Sequence[Prompt]) -> Iterator[tuple[int, TokenScores]]:
        """(index into ``prompts``, the greedily generated tokens); stops early at the end-of-sequence token."""
        ...
