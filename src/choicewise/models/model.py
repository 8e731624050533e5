"""The one interface behind which every kind of model answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from choicewise.engine.chain import Chain
from choicewise.engine.pair import Pair
from choicewise.engine.span import Mass, Prompt, Span, TokenScores
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

    def score(self, questions: Sequence[Span | Mass]) -> Iterator[tuple[int, TokenScores]]:
        """(index into ``questions``, what was seen) of every one, in any order, as results become available."""
        ...

    def generate(self, prompts: Sequence[Prompt]) -> Iterator[tuple[int, TokenScores]]:
        """(index into ``prompts``, the greedily generated tokens); stops early at the end-of-sequence token."""
        ...

    def sample(self, chains: Sequence[Chain]) -> Iterator[tuple[int, TokenScores]]:
        """(index into ``chains``, the sampled tokens); what ends a chain is no part of it.

        The same chain gives the same tokens, whatever else is asked.
        """
        ...

    def masked(self, spans: Sequence[Span]) -> Iterator[tuple[int, float]]:
        """(index into ``spans``, the model's own loss with all labels but the continuation's masked, nats per token).

        A span has at most ``window`` tokens here: as usually run, its last token is an input, too.
        """
        ...

    def cosines(self, pairs: Sequence[Pair]) -> Iterator[tuple[int, float]]:
        """(index into ``pairs``, the cosine of the last hidden states of both texts at their last tokens)."""
        ...
