"""Make the prompts of readings in which the model writes first: chains of thought, texts, and
thoughts that are cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from choicewise.errors import ModelError
from choicewise.protocols.protocol import stop_texts
from choicewise.protocols.readings import ALONG
from choicewise.questions import Conclusion, Generation, Ids, Sampling, Span, ThoughtCut
from choicewise.records import GENERATED
from choicewise.requests.request import (
    Chat,
    ChoiceGroup,
    FittedRequest,
    Prompter,
    PromptRows,
    Request,
    Slot,
    longest,
    longest_after_query,
    one_context,
)
from choicewise.thoughts import left_open
from choicewise.tokens.boundary import ChoicePrompt, choice_prompts_batch, cut
from choicewise.tokens.tokenizer import thought_marks

if TYPE_CHECKING:
    from choicewise.tokens.chat_template import ChatTemplate

_OTHER_TOKENS = "it has other tokens after a thought than without one; use boundary separate"


def inside_thought(opened: str) -> str:
    """Return why nothing is scored after a prompt that ends in the thought which ``opened`` begins."""
    return (
        f"ends in an open thought ({opened}), where nothing is scored. Use thought=close, "
        "template=enable_thinking=false, or a protocol that generates an answer"
    )


def refused_inside(
    rows: PromptRows, fitted: FittedRequest, contexts: Sequence[str] | None = None
) -> bool:
    """Refuse a request if its context, or one of its choices' ``contexts``, ends in an open
    thought.
    """
    if contexts is None:
        contexts = [fitted.context]
    for context in contexts:
        opened = left_open(context)
        if opened:
            reason = f"the prompt {inside_thought(opened)}"
            rows.block.refuse(rows.protocol, fitted.item, reason)
            return True
    return False


def locate_choices(
    rows: PromptRows, fitted: Sequence[FittedRequest], contexts: Sequence[str]
) -> list[list[ChoicePrompt]]:
    """Locate the continuations of every request after its context among ``contexts``."""
    return choice_prompts_batch(
        rows.encodings,
        rows.protocol.boundary,
        contexts,
        [request.request.continuations for request in fitted],
        [request.request.gold for request in fitted],
    )


class ChainOfThoughtPrompter(Prompter):
    """Make prompts that sample chains, and score the choices after the proposal behind each."""

    def reserve(self, rows: PromptRows, requests: Sequence[Request]) -> list[int]:
        """Return the tokens of a chain, the proposal and a choice."""
        chain = rows.protocol.new_tokens or 0
        return [chain + tokens - 1 for tokens in longest_after_query(rows.encodings, requests)]

    def add_prompts(self, rows: PromptRows, fitted: Sequence[FittedRequest]) -> None:
        """Add the choice after chain r as part r of a choice.

        The chains are the parts of no choice.
        """
        fitted = [request for request in fitted if not refused_inside(rows, request)]
        tokens_of = rows.encodings.contexts([request.context for request in fitted])
        contexts = [request.context + request.request.proposals[0] for request in fitted]
        located = locate_choices(rows, fitted, contexts)
        for request, tokens, choices in zip(fitted, tokens_of, located, strict=True):
            rows.add_request(request)
            after_chain = [_choice_after_chain(choice, tokens) for choice in choices]
            for number in range(rows.protocol.chains or 0):
                self._add_chain(rows, request.request, number, tokens, after_chain)

    def _add_chain(
        self,
        rows: PromptRows,
        request: Request,
        number: int,
        tokens: Ids,
        choices: Sequence[ChoicePrompt],
    ) -> None:
        protocol = rows.protocol
        item = request.item.id
        chain = Generation(
            context=tokens,
            limit=protocol.new_tokens or 0,
            stops=(protocol.separator.encode(),),
            sampling=Sampling.of(protocol.seed or 0, item, number),
            opened=_opened(request),
            marks=thought_marks(rows.encodings.tokenizer),
        )
        rows.add_span(item, Slot(GENERATED, number), chain)
        for index, (text, choice) in enumerate(zip(request.continuations, choices, strict=True)):
            conclusion = None
            if isinstance(choice.span, Span):
                conclusion = Conclusion(chain, choice.span)
            rows.add_span(
                item,
                Slot(index, number),
                conclusion,
                # The context of the choices in the row lacks the chain.
                context=request.proposals[0],
                continuation=text,
                choice=choice,
            )


def _choice_after_chain(choice: ChoicePrompt, prompt: Ids) -> ChoicePrompt:
    """Return the part of a choice that follows the tokens ``prompt``, after which a chain comes."""
    if not isinstance(choice.span, Span):
        return choice
    if not np.array_equal(choice.span.context[: len(prompt)], prompt):
        return choice.refused(
            "the proposal shares a token with the question; begin it with a line break"
        )
    return choice.without(len(prompt))._replace(tokens_dropped=0)


def _opened(request: Request, context: str = "") -> str | None:
    """Return the tag of the thought in which ``context`` ends, "" for none, None if the model does
    not think.
    """
    opened = left_open(context)
    if opened:
        return opened
    template = None
    if request.chat is not None:
        template = request.chat.template
    if template is None or not template.may_think:
        return None
    return ""


class GeneratePrompter(Prompter):
    """Make a prompt that generates a text after each request."""

    def reserve(self, rows: PromptRows, requests: Sequence[Request]) -> list[int]:
        """Return the tokens of the answer, and before it of the thought and what closes it."""
        return [self._generated_tokens(rows, request) for request in requests]

    def _generated_tokens(self, rows: PromptRows, request: Request) -> int:
        tokens = (rows.protocol.new_tokens or 0) + (rows.protocol.thought_tokens or 0)
        closing = self._closing(rows, request)
        if closing is not None:
            tokens += len(closing)
        return tokens

    def _closing(self, rows: PromptRows, request: Request) -> Ids | None:
        """Return the tokens that close a thought at its limit, None without a limit or if a server
        closes it.
        """
        chat = request.chat
        if rows.protocol.thought_tokens is None or chat is None:
            return None
        if chat.template is None or not chat.template.text:
            return None
        closing = chat.template.closing(chat.arguments)
        (tokens,) = rows.encodings.tokenizer.encode([closing], special=False)
        return tokens

    def add_prompts(self, rows: PromptRows, fitted: Sequence[FittedRequest]) -> None:
        """Add a generation for each request."""
        contexts = rows.encodings.contexts([request.context for request in fitted])
        for request, tokens in zip(fitted, contexts, strict=True):
            generation = self.generation(rows, request, tokens)
            dropped = len(tokens) - len(generation.context)
            rows.add_request(request, dropped)
            choice = ChoicePrompt(None, tokens_dropped=dropped)
            rows.add_span(request.item.id, Slot(GENERATED), generation, choice=choice)

    def generation(self, rows: PromptRows, fitted: FittedRequest, tokens: Ids) -> Generation:
        """Return the generation after the ``tokens`` of a request, which are cut if the protocol
        has them cut.

        The oracle gets the stripped texts of the right choice and of the one before it.
        """
        protocol = rows.protocol
        request = fitted.request
        # Only generations are cut here; fit_requests has fitted all other contexts.
        if fitted.cut_end or protocol.fit == "cut-start":
            room = rows.limit - self._generated_tokens(rows, request)
            tokens, _ = cut(tokens, room, start=not fitted.cut_end)
        gold = request.item.gold[0]
        texts = [request.continuations[index].strip() for index in (gold, gold - 1)]
        # Fakes that know the answer write these.
        right, wrong = rows.encodings.tokenizer.encode(texts, special=False)
        return Generation(
            context=tokens,
            limit=protocol.new_tokens or 0,
            stops=tuple(map(str.encode, stop_texts(protocol.stop))),
            right=right,
            wrong=wrong,
            opened=_opened(request, fitted.context),
            marks=thought_marks(rows.encodings.tokenizer),
            thought=protocol.thought_tokens,
            closing=self._closing(rows, request),
        )


@dataclass(frozen=True, kw_only=True)
class _AlongChoice:
    """A choice after no thought.

    Its tokens after the text that closes a thought, and after that without line breaks.

    ``context``: the text before the choice without a thought.  ``closing``: the text that closes
    a thought.  The spans are None if nothing is
    scored after them.
    """

    context: str
    choice: ChoicePrompt
    closed: Span | None
    unbroken: Span | None
    closing: str

    def checked(self) -> ChoicePrompt:
        """Return the choice, refused if its tokens differ after a thought."""
        span = self.choice.span
        if not isinstance(span, Span):
            return self.choice
        for other in (self.closed, self.unbroken):
            if other is None or not np.array_equal(span.continuation, other.continuation):
                return self.choice.refused(_OTHER_TOKENS)
        return self.choice

    def prompt(self, span: Span, generation: Generation, share: float) -> Span | Conclusion:
        """Return the prompt after that share of the thought."""
        if not share or self.closed is None or self.unbroken is None:
            return span
        thought_cut = ThoughtCut(share, self.closing.encode(), self.unbroken.context)
        return Conclusion(generation, replace(span, context=self.closed.context), thought_cut)


class AlongPrompter(GeneratePrompter):
    """Make the prompts of reading ``generate``.

    Part p of a choice comes after the p-th share of the thought.
    """

    def texts(self, request: Request) -> list[ChoiceGroup]:
        """Return the texts after no thought: the other contexts are not there before the model has
        written them.
        """
        return [
            replace(one_context(request, _thoughtless(request, request.context())), differs=True)
        ]

    def reserve(self, rows: PromptRows, requests: Sequence[Request]) -> list[int]:
        """Return the tokens of the generation, of the text that closes the thought, and of a
        choice.
        """
        generated = super().reserve(rows, requests)
        after = longest_after_query(rows.encodings, requests)
        closings = longest(rows.encodings, [[_closing(request)] for request in requests])
        return [sum(tokens) for tokens in zip(generated, after, closings, strict=True)]

    def add_prompts(self, rows: PromptRows, fitted: Sequence[FittedRequest]) -> None:
        """Add the choices along the thought.

        After no thought they are those of a model that is told not to think.
        """
        requests = [request.request for request in fitted]
        contexts = [_thoughtless(request.request, request.context) for request in fitted]
        located = locate_choices(rows, fitted, contexts)
        closings = [_closing(request) for request in requests]
        closed = _located_after(rows, requests, closings)
        unbroken = _located_after(rows, requests, [closing.lstrip() for closing in closings])
        tokens_of = rows.encodings.contexts([request.context for request in fitted])
        for number, request in enumerate(fitted):
            generation = self.generation(rows, request, tokens_of[number])
            rows.add_request(request)
            rows.add_span(request.item.id, Slot(GENERATED), generation)
            for index in range(len(request.request.continuations)):
                along = _AlongChoice(
                    context=contexts[number],
                    choice=located[number][index],
                    closed=closed[number][index],
                    unbroken=unbroken[number][index],
                    closing=closings[number],
                )
                self._add_along(rows, request.request, index, generation, along)

    def _add_along(
        self,
        rows: PromptRows,
        request: Request,
        index: int,
        generation: Generation,
        along: _AlongChoice,
    ) -> None:
        choice = along.checked()
        for part, share in enumerate(ALONG.values()):
            prompt = None
            if isinstance(choice.span, Span):
                prompt = along.prompt(choice.span, generation, share)
            rows.add_span(
                request.item.id,
                Slot(index, part),
                prompt,
                context=along.context,
                continuation=request.continuations[index],
                choice=choice,
            )


def _located_after(
    rows: PromptRows, requests: Sequence[Request], closings: Sequence[str]
) -> list[list[Span | None]]:
    """Return the tokens of all continuations after the text that closes a thought, and the tokens
    of that text.

    They lack what a tokenizer puts before a text by itself.
    """
    # Inside a text no BOS comes before the words that close a thought.
    encodings = rows.block.encodings(rows.encodings.tokenizer, "none")
    contexts = []
    for request, closing in zip(requests, closings, strict=True):
        contexts.append(closing + _proposal(request))
    encodings.add_bare(contexts)
    located = choice_prompts_batch(
        encodings,
        rows.protocol.boundary,
        contexts,
        [request.continuations for request in requests],
        [()] * len(requests),
    )
    spans_of: list[list[Span | None]] = []
    for context, choices in zip(contexts, located, strict=True):
        # A dummy space is a token of its own before the text, or part of its first token.
        added = 0
        if len(encodings.bare[context]):
            added = len(encodings.plain[context]) - len(encodings.bare[context])
        spans: list[Span | None] = []
        for choice in choices:
            span = None
            if isinstance(choice.span, Span):
                span = replace(choice.span, context=choice.span.context[added:])
            spans.append(span)
        spans_of.append(spans)
    return spans_of


def _thoughtless(request: Request, context: str) -> str:
    """Return the context of the continuations without a thought after ``context``."""
    chat, template = _chat(request)
    return context + template.unthought(chat.arguments) + _proposal(request)


def _proposal(request: Request) -> str:
    """Return the words of the assistant between a thought and the continuations."""
    if not request.proposals:
        return ""
    return request.proposals[0].lstrip()


def _closing(request: Request) -> str:
    """Return the text that the chat template writes at the end of a thought."""
    chat, template = _chat(request)
    return template.closing(chat.arguments)


def _chat(request: Request) -> tuple[Chat, ChatTemplate]:
    chat = request.chat
    if chat is None or chat.template is None:
        raise ModelError("a thought is closed by a chat template; name the model that has it")
    return chat, chat.template
