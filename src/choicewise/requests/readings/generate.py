"""Reading ``generate``: greedy text after the context."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from choicewise.protocols.protocol import Protocol
from choicewise.questions.generation import Generation
from choicewise.records.tables import GENERATED
from choicewise.requests.fitting import FittedRequest, input_limit
from choicewise.requests.readings.no_null import NoNull
from choicewise.requests.request import Request
from choicewise.tokens.boundary import encode_contexts
from choicewise.tokens.window import cut_end

if TYPE_CHECKING:
    from choicewise.requests.prepared_block import Answerer, PreparedBlock


class GenerateAsker(NoNull):
    """Asks for one generation per request."""

    def reserve(self, protocol: Protocol, requests: Sequence[Request], model: Answerer) -> list[int]:
        """The tokens to generate."""
        return [protocol.new_tokens or 0] * len(requests)

    def ask(self, block: PreparedBlock, protocol: Protocol, fitted: Sequence[FittedRequest], model: Answerer) -> None:
        """The oracle is told the stripped texts of the right choice and of the one before it."""
        tokenizer, new_tokens, limit = model.tokenizer, protocol.new_tokens or 0, input_limit(protocol, model)
        contexts = encode_contexts(tokenizer, protocol.bos, [each.context for each in fitted])
        for each, tokens in zip(fitted, contexts, strict=True):
            context, dropped = cut_end(tokens, limit, new_tokens) if each.cut_end else (tokens, 0)
            request, gold = each.request, each.request.gold[0]
            texts = [request.continuations[index].strip() for index in (gold, gold - 1)]
            right, wrong = tokenizer.encode(texts, special=False)
            block.remember_request(protocol, each, dropped)
            block.remember_span(
                protocol,
                request.item.id,
                (GENERATED, 0),
                Generation(context, new_tokens, right=right, wrong=wrong),
                context_tokens=len(context),
                tokens_dropped=dropped,
            )


ASKER = GenerateAsker()
