"""Readings in which the model writes something first: chains of thought, texts, and thoughts that are cut."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from choicewise.errors import ModelError
from choicewise.protocols.protocol import stop_texts
from choicewise.protocols.readings import ALONG
from choicewise.questions import Conclusion, Generation, Ids, Sampling, Span, ThoughtCut
from choicewise.records import GENERATED
from choicewise.requests.request import (
    ChoiceGroup,
    FittedRequest,
    Prompter,
    PromptRows,
    Request,
    longest,
    longest_after_query,
    one_context,
)
from choicewise.thoughts import left_open
from choicewise.tokens.boundary import ChoicePrompt, choice_prompts_batch, cut
from choicewise.tokens.chat_template import Arguments, ChatTemplate
from choicewise.tokens.tokenizer import thought_marks

_OTHER_TOKENS = "it has other tokens after a thought than without one; use boundary separate"


def inside_thought(opened: str) -> str:
    """Why nothing is scored after a prompt that ends in the thought which ``opened`` begins."""
    return (
        f"ends in an open thought ({opened}), inside which nothing is scored; close it (thought=close), tell the "
        "template not to think (template=enable_thinking=false), or use a protocol that generates an answer"
    )


def refused_inside(prompt: PromptRows, each: FittedRequest, contexts: Iterable[str]) -> bool:
    """Whether one of the ``contexts`` of a request ends in an open thought, so that it is refused."""
    opened = next(filter(None, map(left_open, contexts)), "")
    if opened:
        prompt.block.refuse(
            prompt.protocol, each.request.item, f"the prompt {inside_thought(opened)}"
        )
    return bool(opened)


class ChainOfThoughtPrompter(Prompter):
    """Samples chains, and asks the choices after the proposal behind each."""

    def reserve(self, prompt: PromptRows, requests: Sequence[Request]) -> list[int]:
        """What a chain, the proposal and a choice take."""
        chain = prompt.protocol.new_tokens or 0
        return [chain + tokens - 1 for tokens in longest_after_query(prompt.encodings, requests)]

    def add_prompts(self, prompt: PromptRows, fitted: Sequence[FittedRequest]) -> None:
        """Part r of a choice is the choice after chain r; the chains are the parts of no choice."""
        encodings, protocol = prompt.encodings, prompt.protocol
        fitted = [each for each in fitted if not refused_inside(prompt, each, [each.context])]
        prompt_tokens = encodings.contexts([each.context for each in fitted])
        contexts = [each.context + each.request.proposals[0] for each in fitted]
        texts, gold = (
            [each.request.continuations for each in fitted],
            [each.request.gold for each in fitted],
        )
        located = choice_prompts_batch(encodings, protocol.boundary, contexts, texts, gold)
        for each, tokens, choices in zip(fitted, prompt_tokens, located, strict=True):
            prompt.add_request(each)
            after_prompt = [_chain_of_thought_choice(choice, tokens) for choice in choices]
            item, own = (
                each.request.item.id,
                each.request.proposals[0],
            )  # the choices' own context lacks the chain
            for number in range(protocol.chains or 0):
                sampling = Sampling.of(protocol.seed or 0, item, number)
                stops = (protocol.separator.encode(),)
                chain = Generation(
                    tokens,
                    protocol.new_tokens or 0,
                    stops,
                    sampling,
                    **_thinking(prompt, each.request),
                )
                prompt.add_span(item, (GENERATED, number), chain)
                for index, (text, choice) in enumerate(
                    zip(each.request.continuations, after_prompt, strict=True)
                ):
                    question = (
                        Conclusion(chain, choice.span) if isinstance(choice.span, Span) else None
                    )
                    prompt.add_span(
                        item,
                        (index, number),
                        question,
                        context=own,
                        continuation=text,
                        choice=choice,
                    )


def _chain_of_thought_choice(choice: ChoicePrompt, prompt: Ids) -> ChoicePrompt:
    """The part of a choice that follows ``prompt``, where a chain comes between."""
    if not isinstance(choice.span, Span):
        return choice
    if not np.array_equal(choice.span.context[: len(prompt)], prompt):
        return choice.refused(
            "the proposal shares a token with the question; begin it with a line break"
        )
    return choice.without(len(prompt))._replace(tokens_dropped=0)


def _thinking(prompt: PromptRows, request: Request, context: str = "") -> dict[str, Any]:
    """What a generation after ``context`` is told of thoughts (:class:`~choicewise.questions.Generation`)."""
    tokenizer, opened = prompt.encodings.tokenizer, left_open(context)
    template = None if request.chat is None else request.chat.template
    thinks = bool(opened) or (template is not None and template.may_think)
    return {"opened": opened if thinks else None, "marks": thought_marks(tokenizer)}


class GeneratePrompter(Prompter):
    """Has a text written after each prompt."""

    def reserve(self, prompt: PromptRows, requests: Sequence[Request]) -> list[int]:
        """What the answer takes, and before it the thought and what closes it."""
        own = (prompt.protocol.new_tokens or 0) + (prompt.protocol.thought_tokens or 0)
        closings = (self._closing(prompt, request) for request in requests)
        return [own + (0 if each is None else len(each)) for each in closings]

    def _closing(self, prompt: PromptRows, request: Request) -> Ids | None:
        """The tokens that close a thought at its limit; None where it has none, or where a server closes it."""
        chat = request.chat
        if (
            prompt.protocol.thought_tokens is None
            or chat is None
            or chat.template is None
            or not chat.template.text
        ):
            return None
        return prompt.encodings.tokenizer.encode([chat.template.closing(chat.told)], special=False)[
            0
        ]

    def add_prompts(self, prompt: PromptRows, fitted: Sequence[FittedRequest]) -> None:
        """A generation for each request."""
        contexts = prompt.encodings.contexts([each.context for each in fitted])
        for each, tokens in zip(fitted, contexts, strict=True):
            question = self.generation(prompt, each, tokens)
            dropped = len(tokens) - len(question.context)
            prompt.add_request(each, dropped)
            place, choice = (GENERATED, 0), ChoicePrompt(None, tokens_dropped=dropped)
            prompt.add_span(each.request.item.id, place, question, choice=choice)

    def generation(self, prompt: PromptRows, each: FittedRequest, tokens: Ids) -> Generation:
        """What is generated after the ``tokens`` of a request, cut to fit where the protocol has them cut.

        The oracle gets the stripped texts of the right choice and of the one before it.
        """
        protocol, closing = prompt.protocol, self._closing(prompt, each.request)
        new_tokens, thought = protocol.new_tokens or 0, protocol.thought_tokens
        if each.cut_end or protocol.fit == "cut-start":
            after = new_tokens + (thought or 0) + (0 if closing is None else len(closing))
            tokens, _ = cut(tokens, prompt.limit - after, start=not each.cut_end)
        gold, texts = each.request.item.gold[0], each.request.continuations
        choices = [texts[index].strip() for index in (gold, gold - 1)]
        right, wrong = prompt.encodings.tokenizer.encode(choices, special=False)
        told = _thinking(prompt, each.request, each.context) | {
            "thought": thought,
            "closing": closing,
        }
        stops = tuple(map(str.encode, stop_texts(protocol.stop)))
        return Generation(tokens, new_tokens, stops, right=right, wrong=wrong, **told)


class AlongPrompter(GeneratePrompter):
    """The generation is that of reading ``generate``; part p of a choice comes after the p-th share of its thought."""

    def texts(self, request: Request) -> list[ChoiceGroup]:
        """Those after no thought: of the others nobody knows the context before the model has written it."""
        return [replace(one_context(request, _thoughtless(request, request.context())), own=True)]

    def reserve(self, prompt: PromptRows, requests: Sequence[Request]) -> list[int]:
        """The same, and what closes the thought, and a choice."""
        generated, after = (
            super().reserve(prompt, requests),
            longest_after_query(prompt.encodings, requests),
        )
        closings = longest(prompt.encodings, [[_closing(request)] for request in requests])
        return [sum(tokens) for tokens in zip(generated, after, closings, strict=True)]

    def add_prompts(self, prompt: PromptRows, fitted: Sequence[FittedRequest]) -> None:
        """After no thought, choices are asked as they are of a model that is told not to think."""
        encodings, requests = prompt.encodings, [each.request for each in fitted]
        contexts = [_thoughtless(each.request, each.context) for each in fitted]
        texts, gold = [each.continuations for each in requests], [each.gold for each in requests]
        located = choice_prompts_batch(encodings, prompt.protocol.boundary, contexts, texts, gold)
        closed = _located_after(prompt, requests, [_closing(each) for each in requests])
        unbroken = _located_after(prompt, requests, [_closing(each).lstrip() for each in requests])
        tokens_of = encodings.contexts([each.context for each in fitted])
        for place, each in enumerate(fitted):
            item, generation = each.request.item.id, self.generation(prompt, each, tokens_of[place])
            prompt.add_request(each)
            prompt.add_span(item, (GENERATED, 0), generation)
            for index, text in enumerate(each.request.continuations):
                choice, after, bare = (
                    located[place][index],
                    closed[place][index],
                    unbroken[place][index],
                )
                if isinstance(choice.span, Span) and not _same_scored(choice.span, after, bare):
                    choice = choice.refused(_OTHER_TOKENS)
                for part, share in enumerate(ALONG.values()):
                    own: Span | Conclusion | None = (
                        choice.span if isinstance(choice.span, Span) else None
                    )
                    if part and isinstance(own, Span) and after is not None and bare is not None:
                        where = ThoughtCut(share, _closing(each.request).encode(), bare.context)
                        own = Conclusion(generation, replace(own, context=after.context), where)
                    prompt.add_span(
                        item,
                        (index, part),
                        own,
                        context=contexts[place],
                        continuation=text,
                        choice=choice,
                    )


def _located_after(
    prompt: PromptRows, requests: Sequence[Request], closings: Sequence[str]
) -> list[list[Span | None]]:
    """The tokens of all continuations after what closes a thought, and what is said before them.

    Without what a tokenizer puts before a text by itself.
    """
    encodings = prompt.block.encodings(prompt.encodings.tokenizer, "none")
    contexts = [
        closing + _said_after(request) for closing, request in zip(closings, requests, strict=True)
    ]
    encodings.add_bare(contexts)
    pairs = [(len(encodings.plain[text]), len(encodings.bare[text])) for text in contexts]
    added = [plain - bare if bare else 0 for plain, bare in pairs]
    texts = [each.continuations for each in requests]
    located = choice_prompts_batch(
        encodings, prompt.protocol.boundary, contexts, texts, [()] * len(texts)
    )
    return [
        [
            replace(each.span, context=each.span.context[front:])
            if isinstance(each.span, Span)
            else None
            for each in choices
        ]
        for front, choices in zip(added, located, strict=True)
    ]


def _same_scored(span: Span, *others: Span | None) -> bool:
    return all(
        other is not None and np.array_equal(span.continuation, other.continuation)
        for other in others
    )


def _thoughtless(request: Request, context: str) -> str:
    """The context of the continuations where nothing is thought after the prompt ``context``."""
    template, told = _chat(request)
    return context + template.unthought(told) + _said_after(request)


def _said_after(request: Request) -> str:
    """What the assistant says between a thought and the continuations."""
    return request.proposals[0].lstrip() if request.proposals else ""


def _closing(request: Request) -> str:
    """What the chat template writes at the end of a thought."""
    template, told = _chat(request)
    return template.closing(told)


def _chat(request: Request) -> tuple[ChatTemplate, Arguments]:
    """The chat template of a request, and what it is told."""
    chat = request.chat
    if chat is None or chat.template is None:
        raise ModelError("a thought is closed by a chat template; name the model that has it")
    return chat.template, chat.told
