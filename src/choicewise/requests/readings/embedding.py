"""Reading ``embedding``: the cosine of the hidden states of context and continuation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from choicewise.questions import Cosine
from choicewise.requests.fitting import FittedRequest
from choicewise.requests.readings.asker import Asker
from choicewise.requests.request import Request
from choicewise.tokens.encodings import encode_contexts

if TYPE_CHECKING:
    from choicewise.requests.prepared_block import PromptRows


class EmbeddingAsker(Asker):
    """Asks how similar the context and each continuation are, each as a text of its own."""

    def reserve(self, prompt: PromptRows, requests: Sequence[Request]) -> list[int]:
        """Nothing follows the context."""
        return [0] * len(requests)

    def ask(self, prompt: PromptRows, fitted: Sequence[FittedRequest]) -> None:
        """One cosine per choice; every distinct text is encoded once."""
        contexts = encode_contexts(prompt.model.tokenizer, prompt.protocol.bos, [each.context for each in fitted])
        texts = list(dict.fromkeys(text for each in fitted for text in each.request.continuations))
        tokens_of = dict(zip(texts, encode_contexts(prompt.model.tokenizer, prompt.protocol.bos, texts), strict=True))
        for each, context in zip(fitted, contexts, strict=True):
            request = each.request
            prompt.add_request(each)
            for choice, text in enumerate(request.continuations):
                prompt.add_span(
                    request.item.id,
                    (choice, 0),
                    Cosine(context, tokens_of[text], choice in request.gold),
                    continuation=text,
                    context_tokens=len(context),
                )


ASKER = EmbeddingAsker()
