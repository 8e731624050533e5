"""Reading ``chain-of-thought``: the continuations after sampled chains of thought and a proposal that ends them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from choicewise.protocols.protocol import Protocol
from choicewise.questions.conclusion import Conclusion
from choicewise.questions.generation import Generation, Sampling
from choicewise.questions.span import Ids, Span
from choicewise.records.tables import GENERATED
from choicewise.requests.fitting import FittedRequest
from choicewise.requests.readings.choices import longest_after_query
from choicewise.requests.readings.no_null import NoNull
from choicewise.requests.request import Request
from choicewise.tokens.boundary import choice_questions_batch, encode_contexts
from choicewise.tokens.choice_question import ChoiceQuestion

if TYPE_CHECKING:
    from choicewise.requests.prepared_block import Answerer, PreparedBlock


class ChainOfThoughtAsker(NoNull):
    """Asks for the chains, and for every choice after each of them."""

    def reserve(self, protocol: Protocol, requests: Sequence[Request], model: Answerer) -> list[int]:
        """A chain, and the longest text after it minus its last token, which is no input."""
        chain = protocol.new_tokens or 0
        return [chain + tokens - 1 for tokens in longest_after_query(requests, model.tokenizer)]

    def ask(self, block: PreparedBlock, protocol: Protocol, fitted: Sequence[FittedRequest], model: Answerer) -> None:
        """Part r of a choice is the choice after chain r; the chains are the parts of no choice."""
        tokenizer = model.tokenizer
        prompts = encode_contexts(tokenizer, protocol.bos, [each.context for each in fitted])
        contexts = [each.context + each.request.proposals[0] for each in fitted]
        texts, gold = [each.request.continuations for each in fitted], [each.request.gold for each in fitted]
        located = choice_questions_batch(tokenizer, protocol.boundary, protocol.bos, contexts, texts, gold)
        for each, prompt, choices in zip(fitted, prompts, located, strict=True):
            block.remember_request(protocol, each)
            after_prompt = [_after_prompt(choice, prompt) for choice in choices]
            for number in range(protocol.chains or 0):
                self._ask_chain(block, protocol, each.request, prompt, after_prompt, number)

    def _ask_chain(
        self,
        block: PreparedBlock,
        protocol: Protocol,
        request: Request,
        prompt: Ids,
        choices: Sequence[ChoiceQuestion],
        number: int,
    ) -> None:
        """One chain and the choices after it; their own context, and its number of tokens, lack the chain."""
        item = request.item.id
        sampling = Sampling.of(protocol.seed or 0, item, number)
        chain = Generation(prompt, protocol.new_tokens or 0, (protocol.separator.encode(),), sampling)
        block.remember_span(protocol, item, (GENERATED, number), chain, context_tokens=len(prompt))
        for index, (text, choice) in enumerate(zip(request.continuations, choices, strict=True)):
            conclusion, tokens = None, 0
            if isinstance(choice.span, Span):
                conclusion, tokens = Conclusion(chain, choice.span), len(prompt) + len(choice.span.context)
            block.remember_span(
                protocol,
                item,
                (index, number),
                conclusion,
                context=request.proposals[0],
                continuation=text,
                context_tokens=tokens,
                choice=choice,
            )


def _after_prompt(choice: ChoiceQuestion, prompt: Ids) -> ChoiceQuestion:
    """The part of a choice that follows ``prompt``, where a chain comes between."""
    if not isinstance(choice.span, Span):
        return choice
    if not np.array_equal(choice.span.context[: len(prompt)], prompt):
        return choice.refused("the proposal shares a token with the question; begin it with a line break")
    return choice.without(len(prompt))


ASKER = ChainOfThoughtAsker()
