"""Reading ``generate``: greedy text after the context."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from choicewise.questions import Generation
from choicewise.records.tables import GENERATED
from choicewise.requests.fitting import FittedRequest, input_limit
from choicewise.requests.readings.asker import Asker
from choicewise.requests.request import Request
from choicewise.tokens.encodings import encode_contexts
from choicewise.tokens.window import cut_end

if TYPE_CHECKING:
    from choicewise.requests.prepared_block import PromptRows


class GenerateAsker(Asker):
    """Asks for one generation per request."""

    def reserve(self, prompt: PromptRows, requests: Sequence[Request]) -> list[int]:
        """The tokens to generate."""
        return [prompt.protocol.new_tokens or 0] * len(requests)

    def ask(self, prompt: PromptRows, fitted: Sequence[FittedRequest]) -> None:
        """The oracle is told the stripped texts of the right choice and of the one before it."""
        tokenizer, protocol = prompt.model.tokenizer, prompt.protocol
        new_tokens, limit = protocol.new_tokens or 0, input_limit(protocol, prompt.model)
        contexts = encode_contexts(tokenizer, protocol.bos, [each.context for each in fitted])
        for each, tokens in zip(fitted, contexts, strict=True):
            context, dropped = cut_end(tokens, limit, new_tokens) if each.cut_end else (tokens, 0)
            request, gold = each.request, each.request.gold[0]
            texts = [request.continuations[index].strip() for index in (gold, gold - 1)]
            right, wrong = tokenizer.encode(texts, special=False)
            prompt.add_request(each, dropped)
            prompt.add_span(
                request.item.id,
                (GENERATED, 0),
                Generation(context, new_tokens, right=right, wrong=wrong),
                context_tokens=len(context),
                tokens_dropped=dropped,
            )


ASKER = GenerateAsker()
