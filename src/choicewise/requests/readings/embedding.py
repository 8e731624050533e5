"""Reading ``embedding``: the cosine of the hidden states of context and continuation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from choicewise.protocols.protocol import Protocol
from choicewise.questions.cosine import Cosine
from choicewise.requests.fitting import FittedRequest
from choicewise.requests.readings.no_null import NoNull
from choicewise.requests.request import Request
from choicewise.tokens.boundary import encode_contexts

if TYPE_CHECKING:
    from choicewise.requests.prepared_block import Answerer, PreparedBlock


class EmbeddingAsker(NoNull):
    """Asks how similar the context and each continuation are, each as a text of its own."""

    def reserve(self, protocol: Protocol, requests: Sequence[Request], model: Answerer) -> list[int]:
        """Nothing follows the context."""
        return [0] * len(requests)

    def ask(self, block: PreparedBlock, protocol: Protocol, fitted: Sequence[FittedRequest], model: Answerer) -> None:
        """One cosine per choice; every distinct text is encoded once."""
        contexts = encode_contexts(model.tokenizer, protocol.bos, [each.context for each in fitted])
        texts = list(dict.fromkeys(text for each in fitted for text in each.request.continuations))
        tokens_of = dict(zip(texts, encode_contexts(model.tokenizer, protocol.bos, texts), strict=True))
        for each, context in zip(fitted, contexts, strict=True):
            request = each.request
            block.remember_request(protocol, each)
            for choice, text in enumerate(request.continuations):
                block.remember_span(
                    protocol,
                    request.item.id,
                    (choice, 0),
                    Cosine(context, tokens_of[text], choice in request.gold),
                    continuation=text,
                    context_tokens=len(context),
                )


ASKER = EmbeddingAsker()
