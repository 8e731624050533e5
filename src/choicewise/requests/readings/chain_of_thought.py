"""Reading ``chain-of-thought``: the continuations after sampled chains of thought and a proposal that ends them."""

from collections.abc import Sequence

import numpy as np

from choicewise.questions import Conclusion, Generation, Ids, Sampling, Span
from choicewise.records.tables import GENERATED
from choicewise.requests.prompt_rows import PromptRows
from choicewise.requests.readings import Asker
from choicewise.requests.readings.choices import longest_after_query
from choicewise.requests.request import FittedRequest, Request
from choicewise.tokens.boundary import choice_questions_batch
from choicewise.tokens.choice_question import ChoiceQuestion


class ChainOfThoughtAsker(Asker):
    """Asks for the chains, and for every choice after each of them."""

    def reserve(self, prompt: PromptRows, requests: Sequence[Request]) -> list[int]:
        """A chain, and the longest text after it minus its last token, which is no input."""
        chain = prompt.protocol.new_tokens or 0
        return [chain + tokens - 1 for tokens in longest_after_query(prompt.encodings, requests)]

    def ask(self, prompt: PromptRows, fitted: Sequence[FittedRequest]) -> None:
        """Part r of a choice is the choice after chain r; the chains are the parts of no choice."""
        encodings, protocol = prompt.encodings, prompt.protocol
        prompt_tokens = encodings.contexts([each.context for each in fitted])
        contexts = [each.context + each.request.proposals[0] for each in fitted]
        texts, gold = [each.request.continuations for each in fitted], [each.request.gold for each in fitted]
        located = choice_questions_batch(encodings, protocol.boundary, contexts, texts, gold)
        for each, tokens, choices in zip(fitted, prompt_tokens, located, strict=True):
            prompt.add_request(each)
            after_prompt = [_after_prompt(choice, tokens) for choice in choices]
            item, own = each.request.item.id, each.request.proposals[0]  # the choices' own context lacks the chain
            for number in range(protocol.chains or 0):
                sampling = Sampling.of(protocol.seed or 0, item, number)
                chain = Generation(tokens, protocol.new_tokens or 0, (protocol.separator.encode(),), sampling)
                prompt.add_span(item, (GENERATED, number), chain)
                for index, (text, choice) in enumerate(zip(each.request.continuations, after_prompt, strict=True)):
                    question = Conclusion(chain, choice.span) if isinstance(choice.span, Span) else None
                    prompt.add_span(item, (index, number), question, context=own, continuation=text, choice=choice)


def _after_prompt(choice: ChoiceQuestion, prompt: Ids) -> ChoiceQuestion:
    """The part of a choice that follows ``prompt``, where a chain comes between."""
    if not isinstance(choice.span, Span):
        return choice
    if not np.array_equal(choice.span.context[: len(prompt)], prompt):
        return choice.refused("the proposal shares a token with the question; begin it with a line break")
    return choice.without(len(prompt))._replace(tokens_dropped=0)


ASKER = ChainOfThoughtAsker()
