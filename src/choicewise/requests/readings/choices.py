"""Asking for log-likelihoods of continuations, which most readings do in one way or another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from choicewise.protocols.protocol import Protocol
from choicewise.questions.masked_loss import MaskedLoss
from choicewise.questions.span import Span
from choicewise.requests.fitting import FittedRequest, input_limit
from choicewise.requests.readings.choice_group import ChoiceGroup, shared_context
from choicewise.requests.request import Request
from choicewise.tokens.boundary import choice_questions_batch
from choicewise.tokens.choice_question import ChoiceQuestion
from choicewise.tokens.tokenizer import Tokenizer
from choicewise.tokens.window import fit_span

if TYPE_CHECKING:
    from choicewise.requests.prepared_block import Answerer, PreparedBlock

Locate = Callable[[Tokenizer, str, str, str, bool | None], ChoiceQuestion]
"""From tokenizer, axis ``bos``, context, continuation and whether it is gold to the tokens that are scored."""


def no_parts(choice: ChoiceQuestion, tokenizer: Tokenizer) -> Iterator[tuple[int, str, Span]]:
    """Nothing is asked about a choice besides its continuation."""
    return iter(())


def accept_all(protocol: Protocol, group: ChoiceGroup, choices: Sequence[ChoiceQuestion]) -> None:
    """Any tokens will do."""


@dataclass(frozen=True, slots=True)
class ChoiceAsker:
    """Asks for the continuations of every choice.

    ``groups``: which texts are scored after which contexts.  ``locate``: which tokens are scored, by the protocol's
    boundary policy when None.  ``question``: what is asked about them; of a ``MaskedLoss`` the last token is an input,
    too.  ``parts``: what is asked about a choice besides: (part, text, span).  ``check``: ProtocolError for tokens that
    the reading can't use.
    """

    groups: Callable[[Request, str], list[ChoiceGroup]] = shared_context
    locate: Locate | None = None
    question: type[Span] | type[MaskedLoss] = Span
    parts: Callable[[ChoiceQuestion, Tokenizer], Iterator[tuple[int, str, Span]]] = no_parts
    check: Callable[[Protocol, ChoiceGroup, Sequence[ChoiceQuestion]], None] = accept_all

    def reserve(self, protocol: Protocol, requests: Sequence[Request], model: Answerer) -> list[int]:
        """The longest text after the query minus its last token, which is no input."""
        last_is_input = self.question is MaskedLoss
        return [tokens - 1 + last_is_input for tokens in longest_after_query(requests, model.tokenizer)]

    def ask(self, block: PreparedBlock, protocol: Protocol, fitted: Sequence[FittedRequest], model: Answerer) -> None:
        """One question per continuation of every group."""
        grouped = [self.groups(each.request, each.context) for each in fitted]
        flat = [group for groups in grouped for group in groups]
        contexts, continuations = [group.context for group in flat], [group.continuations for group in flat]
        located = iter(self._locate(protocol, contexts, continuations, [group.gold for group in flat], model))
        for request, groups in zip(fitted, grouped, strict=True):
            asked = [(group, next(located)) for group in groups]
            dropped = max(choice.tokens_dropped for _, choices in asked for choice in choices)
            block.remember_request(protocol, request, dropped)
            for group, choices in asked:
                self.check(protocol, group, choices)
                self._ask_group(block, protocol, request.request.item.id, group, choices, model.tokenizer)

    def ask_null(
        self, block: PreparedBlock, protocol: Protocol, null: str, requests: Sequence[Request], model: Answerer
    ) -> None:
        """Each distinct continuation once."""
        texts = list(dict.fromkeys(text for request in requests for text in request.continuations))
        located = self._locate(protocol, [null] * len(texts), [(text,) for text in texts], [()] * len(texts), model)
        choice_of = {text: choices[0] for text, choices in zip(texts, located, strict=True)}
        for request in requests:
            for number, text in enumerate(request.continuations):
                self._ask_choice(block, protocol, request.item.id, (number, 0), text, choice_of[text], null=null)

    def _locate(
        self,
        protocol: Protocol,
        contexts: Sequence[str],
        continuations: Sequence[Sequence[str]],
        golds: Sequence[Sequence[int]],
        model: Answerer,
    ) -> list[list[ChoiceQuestion]]:
        """The tokens of every choice that are scored, cut or refused where they do not fit the window."""
        tokenizer, bos, locate = model.tokenizer, protocol.bos, self.locate
        if locate is None:
            located = choice_questions_batch(tokenizer, protocol.boundary, bos, contexts, continuations, golds)
        else:
            located = [
                [locate(tokenizer, bos, context, text, index in gold) for index, text in enumerate(texts)]
                for context, texts, gold in zip(contexts, continuations, golds, strict=True)
            ]
        window = input_limit(protocol, model) - (self.question is MaskedLoss)
        cut_start = protocol.fit == "cut-start"
        return [[fit_span(choice, window, cut_start=cut_start) for choice in choices] for choices in located]

    def _ask_group(
        self,
        block: PreparedBlock,
        protocol: Protocol,
        item: str,
        group: ChoiceGroup,
        choices: Sequence[ChoiceQuestion],
        tokenizer: Tokenizer,
    ) -> None:
        context = group.context if group.own else None
        for place, text, choice in zip(group.places, group.continuations, choices, strict=True):
            self._ask_choice(block, protocol, item, place, text, choice, context=context)
            for part, said, span in self.parts(choice, tokenizer):
                self._ask_choice(block, protocol, item, (place[0], part), said, ChoiceQuestion(span), context=context)

    def _ask_choice(
        self,
        block: PreparedBlock,
        protocol: Protocol,
        item: str,
        place: tuple[int, int],
        continuation: str,
        choice: ChoiceQuestion,
        *,
        null: str | None = None,
        context: str | None = None,
    ) -> None:
        span = choice.span
        question = MaskedLoss(span) if self.question is MaskedLoss and isinstance(span, Span) else span
        block.remember_span(
            protocol,
            item,
            place,
            question,
            null=null,
            context=context,
            continuation=continuation,
            context_tokens=0 if span is None else len(span.context),
            tokens_dropped=choice.tokens_dropped,
            choice=choice,
        )


def longest_after_query(requests: Sequence[Request], tokenizer: Tokenizer) -> list[int]:
    """For each request the tokens of its longest proposal and its longest continuation, encoded by themselves."""
    texts = list(dict.fromkeys(text for request in requests for text in _after_query(request)))
    length = dict(zip(texts, map(len, tokenizer.encode(texts, special=False)), strict=True))
    return [
        max((length[text] for text in request.proposals), default=0)
        + max(length[text] for text in _continuations(request))
        for request in requests
    ]


def _continuations(request: Request) -> Sequence[str]:
    return [text for texts in request.parts for text in texts] or request.continuations


def _after_query(request: Request) -> list[str]:
    return [*request.proposals, *_continuations(request)]
