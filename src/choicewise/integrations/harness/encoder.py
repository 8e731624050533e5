"""From the harness's texts to tokens, by its own rules: ``lm_eval/api/model.py``, ``lm_eval/models/huggingface.py``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from choicewise.questions import Ids
from choicewise.tokens.tokenizer import Tokenizer

TOGETHER = 10_000
"""Pairs of texts that are encoded at once: what they share is encoded once, and little of it is held in memory."""


class Pair(NamedTuple):
    """A context and its continuation in tokens.

    ``missing``: why nothing can be scored, or None.  ``merged``: the context's tokens do not begin those of the whole
    text, so that the scored tokens do not spell the continuation.
    """

    context: Ids
    continuation: Ids
    missing: str | None = None
    merged: bool = False


class Encoder:
    """Encodes as the harness's ``hf`` model does.

    ``prefix``: the token after which a text without context is scored; ``prefix_text``: what it decodes to, with which
    a text may begin that then gets nothing added.  ``add_bos``: as ``add_bos_token``.  ``apart``: context and
    continuation are encoded each by itself, as for an encoder-decoder.
    """

    def __init__(
        self, tokenizer: Tokenizer, prefix: int | None, prefix_text: str | None, add_bos: bool | None, apart: bool
    ) -> None:
        self._tokenizer = tokenizer
        self._prefix, self._prefix_text = prefix, prefix_text
        self._special = add_bos is not False
        self._apart = apart

    def texts(self, texts: Sequence[str], special: bool | None = None) -> list[Ids]:
        """The tokens of each text: as the harness's ``tok_encode``."""
        wanted = [self._adds(text) if special is None else special for text in texts]
        known: dict[tuple[str, bool], Ids] = {}
        for added in (True, False):
            new = list(dict.fromkeys(text for text, own in zip(texts, wanted, strict=True) if own is added))
            encoded = self._tokenizer.encode(new, special=added)
            known.update(((text, added), tokens) for text, tokens in zip(new, encoded, strict=True))
        return [known[pair] for pair in zip(texts, wanted, strict=True)]

    def pairs(self, requests: Sequence[tuple[str, str]]) -> list[Pair]:
        """Each context with its continuation: as ``_encode_pair``, and ``loglikelihood`` for an empty context.

        Equal contexts share one array.
        """
        pairs: list[Pair] = []
        for start in range(0, len(requests), TOGETHER):
            pairs += self._pairs(requests[start : start + TOGETHER])
        return pairs

    def _pairs(self, requests: Sequence[tuple[str, str]]) -> list[Pair]:
        moved = [space_moved(*request) for request in requests]
        alone = dict.fromkeys(continuation for context, continuation in moved if self._apart or not context)
        bare = dict(zip(alone, self.texts(list(alone), special=False), strict=True))
        contexts = dict.fromkeys(context for context, _ in requests_with_context(requests, moved))
        known = dict(zip(contexts, self.texts(list(contexts)), strict=True))
        joined = [] if self._apart else [own + after for own, after in requests_with_context(requests, moved)]
        whole = dict(zip(dict.fromkeys(joined), self.texts(list(dict.fromkeys(joined))), strict=True))
        pairs = []
        for (text, _), (context, continuation) in zip(requests, moved, strict=True):
            if not text:
                pairs.append(self._after_nothing(bare[continuation], continuation))
            elif self._apart:
                pairs.append(checked(known[context], bare[continuation], continuation, False))
            else:
                pairs.append(split(known[context], whole[context + continuation], continuation))
        return pairs

    def _after_nothing(self, tokens: Ids, text: str) -> Pair:
        if self._prefix is None:
            reason = "its context is empty and the tokenizer names neither a BOS nor an EOS (prefix_token_id names one)"
            return Pair(tokens[:0], tokens, reason)
        if tokens[:1].tolist() == [self._prefix]:
            return checked(tokens[:1], tokens[1:], text, False)
        return checked(np.asarray([self._prefix], dtype=np.int32), tokens, text, False)

    def _adds(self, text: str) -> bool:
        """Whether ``text`` gets what the tokenizer adds by default."""
        return self._special and (self._prefix_text is None or not text.startswith(self._prefix_text))


def space_moved(context: str, continuation: str) -> tuple[str, str]:
    """The white space that ends ``context`` stands before ``continuation`` instead."""
    kept = context.rstrip()
    return kept, context[len(kept) :] + continuation


def requests_with_context(
    requests: Iterable[tuple[str, str]], moved: Iterable[tuple[str, str]]
) -> Iterable[tuple[str, str]]:
    """Those of ``moved`` whose request has a context, though it may be white space alone."""
    return (pair for (context, _), pair in zip(requests, moved, strict=True) if context)


def split(context: Ids, whole: Ids, text: str) -> Pair:
    """The tokens of the ``whole`` text after as many as the ``context`` has."""
    merged = not np.array_equal(whole[: len(context)], context)
    return checked(context, whole[len(context) :].copy(), text, merged)


def checked(context: Ids, continuation: Ids, text: str, merged: bool) -> Pair:
    """The pair, or why it can't be scored: where the harness stops with an assertion."""
    missing = None
    if not len(context):
        missing = "its context is white space, which has no tokens before it"
    elif not len(continuation):
        reason = "its characters merge into the context's last token" if merged else "it has no tokens"
        missing = f"continuation {text!r} leaves nothing to score: {reason}"
    return Pair(context, continuation, missing, merged)
