"""From rendered requests to what a model must be asked, and the rows that remember which answer belongs where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from choicewise.data.item import Item
from choicewise.protocols.protocol import Protocol as Recipe
from choicewise.questions.conclusion import Conclusion
from choicewise.questions.cosine import Cosine
from choicewise.questions.generation import Generation, Sampling
from choicewise.questions.masked_loss import MaskedLoss
from choicewise.questions.span import Ids, Span
from choicewise.records.rows import RequestRow, SpanRow
from choicewise.records.tables import GENERATED
from choicewise.requests.fitting import Fitted, fit
from choicewise.requests.group import Group, groups, refuse_overlap
from choicewise.requests.render import Request
from choicewise.tokens.boundary import choice_questions_batch
from choicewise.tokens.byte_probability import TokenQuestion
from choicewise.tokens.char_span import SPANS, char_spans_batch, ends_before
from choicewise.tokens.choice_question import ChoiceQuestion
from choicewise.tokens.encodings import encode_contexts
from choicewise.tokens.tokenizer import Tokenizer
from choicewise.tokens.window import cut_end, fit_span

BlockQuestion = TokenQuestion | Conclusion
"""Everything that a block may ask: a conclusion becomes a span when its generation is there."""


class Answerer(Protocol):
    """What asking needs to know of a model: its tokenizer and its window (input tokens)."""

    window: int
    tokenizer: Tokenizer


@dataclass
class PreparedBlock:
    """Rows of the run folder's ``requests`` and ``spans`` tables, and the unique questions to the model by key."""

    requests: list[RequestRow] = field(default_factory=list)
    spans: list[SpanRow] = field(default_factory=list)
    wanted: dict[str, BlockQuestion] = field(default_factory=dict)

    @property
    def inputs(self) -> int:
        """Input tokens when every choice of every protocol is a sequence of its own, as usually asked."""
        return sum(self.wanted[row.key].inputs for row in self.spans if row.key is not None)

    def refuse(self, recipe: Recipe, item: Item, reason: str) -> None:
        """Remember an item that can't be asked under a recipe, and why."""
        self.requests.append(request_row(recipe, item, missing=reason))

    def add(self, recipe: Recipe, requests: Sequence[Request], model: Answerer) -> None:
        """Fit, tokenize and register ``requests`` of one recipe."""
        fitted = _fit(recipe, requests, model)
        kept: list[tuple[Request, Fitted]] = []
        for request, fit_ in zip(requests, fitted, strict=True):
            if fit_.missing is None:
                kept.append((request, fit_))
            else:
                self.refuse(recipe, request.item, fit_.missing)
        if recipe.reading == "generate":
            self._add_prompts(recipe, kept, model)
        elif recipe.reading == "embedding":
            self._add_pairs(recipe, kept, model)
        elif recipe.reading == "chain-of-thought":
            self._add_chains(recipe, kept, model)
        else:
            self._add_spans(recipe, kept, model)

    def add_null(self, recipe: Recipe, null: str, requests: Sequence[Request], model: Answerer) -> None:
        """Register the continuations of ``requests`` after the ``null`` context, each distinct text once."""
        texts = list(dict.fromkeys(text for request in requests for text in request.continuations))
        asked = _asked(recipe, [null] * len(texts), [(text,) for text in texts], [()] * len(texts), model)
        found = {text: choices[0] for text, choices in zip(texts, asked, strict=True)}
        for request in requests:
            for number, text in enumerate(request.continuations):
                self._remember(recipe, request, (number, 0), text, found[text], null=null)

    def _want(self, question: BlockQuestion) -> str:
        """Register a question; its key."""
        key = question.key
        self.wanted.setdefault(key, question)
        return key

    def _add_spans(self, recipe: Recipe, kept: Sequence[tuple[Request, Fitted]], model: Answerer) -> None:
        grouped = [groups(recipe, request, fit_.context) for request, fit_ in kept]
        flat = [group for found in grouped for group in found]
        contexts, continuations = [group.context for group in flat], [group.continuations for group in flat]
        answers = iter(_asked(recipe, contexts, continuations, [group.gold for group in flat], model))
        for (request, fit_), mine in zip(kept, grouped, strict=True):
            asked = [(group, next(answers)) for group in mine]
            dropped = max(choice.tokens_dropped for _, choices in asked for choice in choices)
            self.requests.append(request_row(recipe, request.item, request, fit_, dropped))
            for group, choices in asked:
                self._remember_group(recipe, request, group, choices, model)

    def _remember_group(
        self, recipe: Recipe, request: Request, group: Group, choices: Sequence[ChoiceQuestion], model: Answerer
    ) -> None:
        if recipe.reading in ("yes-no", "rating"):
            refuse_overlap(recipe, group, choices)
        own, eos = group.context if group.own else None, model.tokenizer.eos_id
        for place, text, asked in zip(group.places, group.continuations, choices, strict=True):
            self._remember(recipe, request, place, text, asked, context=own)
            for part, besides in enumerate(asked.parts, start=1):
                if besides is not None:
                    said = model.tokenizer.decode(besides.continuation)
                    self._remember(recipe, request, (place[0], part), said, ChoiceQuestion(besides), context=own)
            if recipe.reading == "surprisal-package" and isinstance(asked.span, Span) and eos is not None:
                for part, end in enumerate(ends_before(asked.span, eos), start=1):
                    self._remember(recipe, request, (place[0], part), "", ChoiceQuestion(end), context=own)

    def _add_pairs(self, recipe: Recipe, kept: Sequence[tuple[Request, Fitted]], model: Answerer) -> None:
        contexts = encode_contexts(model.tokenizer, recipe.bos, [fit_.context for _, fit_ in kept])
        texts = list(dict.fromkeys(text for request, _ in kept for text in request.continuations))
        encoded = dict(zip(texts, encode_contexts(model.tokenizer, recipe.bos, texts), strict=True))
        for (request, fit_), context in zip(kept, contexts, strict=True):
            self.requests.append(request_row(recipe, request.item, request, fit_))
            for choice, text in enumerate(request.continuations):
                pair = Cosine(context, encoded[text], choice in request.gold)
                key = self._want(pair)
                self.spans.append(
                    span_row(recipe, request, (choice, 0), key, continuation=text, context_tokens=len(context))
                )

    def _add_prompts(self, recipe: Recipe, kept: Sequence[tuple[Request, Fitted]], model: Answerer) -> None:
        tokenizer, new_tokens = model.tokenizer, recipe.new_tokens or 0
        contexts = encode_contexts(tokenizer, recipe.bos, [fit_.context for _, fit_ in kept])
        for (request, fit_), whole in zip(kept, contexts, strict=True):
            context, dropped = cut_end(whole, _limit(recipe, model), new_tokens) if fit_.cut_end else (whole, 0)
            gold = request.gold[0]
            texts = [request.continuations[index].strip() for index in (gold, gold - 1)]
            right, wrong = tokenizer.encode(texts, special=False)
            prompt = Generation(context, new_tokens, right=right, wrong=wrong)
            self.requests.append(request_row(recipe, request.item, request, fit_, dropped))
            key, tokens = self._want(prompt), len(context)
            self.spans.append(
                span_row(recipe, request, (GENERATED, 0), key, context_tokens=tokens, tokens_dropped=dropped)
            )

    def _add_chains(self, recipe: Recipe, kept: Sequence[tuple[Request, Fitted]], model: Answerer) -> None:
        before = encode_contexts(model.tokenizer, recipe.bos, [fit_.context for _, fit_ in kept])
        contexts = [fit_.context + request.proposals[0] for request, fit_ in kept]
        texts, gold = [request.continuations for request, _ in kept], [request.gold for request, _ in kept]
        asked = choice_questions_batch(model.tokenizer, recipe.boundary, recipe.bos, contexts, texts, gold)
        for (request, fit_), context, choices in zip(kept, before, asked, strict=True):
            self.requests.append(request_row(recipe, request.item, request, fit_))
            behind = [_behind(choice, context) for choice in choices]
            for number in range(recipe.chains or 0):
                random = Sampling.of(recipe.seed or 0, request.item.id, number)
                chain = Generation(context, recipe.new_tokens or 0, (recipe.separator.encode(),), random)
                key = self._want(chain)
                self.spans.append(span_row(recipe, request, (GENERATED, number), key, context_tokens=len(context)))
                for index, (text, choice) in enumerate(zip(request.continuations, behind, strict=True)):
                    self._conclude(recipe, request, (index, number), text, chain, choice)

    def _conclude(
        self,
        recipe: Recipe,
        request: Request,
        place: tuple[int, int],
        text: str,
        chain: Generation,
        asked: ChoiceQuestion,
    ) -> None:
        """Remember a choice behind a chain; its own context, and the number of tokens, lack the chain."""
        key, tokens = None, 0
        if isinstance(asked.span, Span):
            key, tokens = self._want(Conclusion(chain, asked.span)), len(chain.context) + len(asked.span.context)
        own = request.proposals[0]
        self.spans.append(
            span_row(recipe, request, place, key, context=own, continuation=text, context_tokens=tokens, asked=asked)
        )

    def _remember(
        self,
        recipe: Recipe,
        request: Request,
        place: tuple[int, int],
        continuation: str,
        asked: ChoiceQuestion,
        *,
        null: str | None = None,
        context: str | None = None,
    ) -> None:
        question: BlockQuestion | None = asked.span
        if recipe.reading == "masked" and isinstance(asked.span, Span):
            question = MaskedLoss(asked.span)
        key = None if question is None else self._want(question)
        for besides in (asked.before, asked.after):
            if besides is not None:
                self._want(besides)
        self.spans.append(
            span_row(
                recipe,
                request,
                place,
                key,
                null=null,
                context=context,
                continuation=continuation,
                context_tokens=0 if asked.span is None else len(asked.span.context),
                tokens_dropped=asked.tokens_dropped,
                asked=asked,
            )
        )


def _behind(asked: ChoiceQuestion, context: Ids) -> ChoiceQuestion:
    """The part of a choice that stands behind ``context``, where a chain comes between."""
    if not isinstance(asked.span, Span):
        return asked
    if not np.array_equal(asked.span.context[: len(context)], context):
        return asked.refused("the proposal shares a token with the question; begin it with a line break")
    return asked.without(len(context))


def _limit(recipe: Recipe, model: Answerer) -> int:
    """The most input tokens; one less where the last token of a span is an input, too."""
    limit = model.window if recipe.limit is None else min(recipe.limit, model.window)
    return limit - (recipe.reading == "masked")


def _fit(recipe: Recipe, requests: Sequence[Request], model: Answerer) -> list[Fitted]:
    def count(texts: list[str]) -> list[int]:
        return [len(ids) for ids in encode_contexts(model.tokenizer, recipe.bos, texts)]

    if recipe.reading == "generate":
        reserve = [recipe.new_tokens or 0] * len(requests)
    elif recipe.reading == "embedding":
        reserve = [0] * len(requests)
    else:
        texts = list(dict.fromkeys(text for request in requests for text in _following(request)))
        length = dict(zip(texts, map(len, model.tokenizer.encode(texts, special=False)), strict=True))
        reserve = [_longest(recipe, request, length) for request in requests]
    return fit(recipe, requests, count, model.window, reserve)


def _following(request: Request) -> list[str]:
    """Every text that comes after the query of a request."""
    return [*request.proposals, *(text for texts in request.parts for text in texts), *request.continuations]


def _longest(recipe: Recipe, request: Request, length: Mapping[str, int]) -> int:
    """Input tokens after the query, at most: a proposal, and a continuation less its last token."""
    proposal = max((length[text] for text in request.proposals), default=0)
    if recipe.reading == "noisy-channel":
        return proposal
    proposal += recipe.new_tokens or 0  # of a chain; no other reading that comes here has any
    texts = [text for texts in request.parts for text in texts] or request.continuations
    return proposal + max(length[text] for text in texts) - (recipe.reading != "masked")


def _asked(
    recipe: Recipe,
    contexts: Sequence[str],
    continuations: Sequence[Sequence[str]],
    gold: Sequence[Sequence[int]],
    model: Answerer,
) -> list[list[ChoiceQuestion]]:
    if recipe.reading in SPANS:
        asked = char_spans_batch(recipe.reading, model.tokenizer, recipe.bos, contexts, continuations, gold)
    else:
        asked = choice_questions_batch(model.tokenizer, recipe.boundary, recipe.bos, contexts, continuations, gold)
    window, cut_start = _limit(recipe, model), recipe.fit == "cut-start"
    return [[fit_span(choice, window, cut_start=cut_start) for choice in choices] for choices in asked]


def request_row(
    recipe: Recipe,
    item: Item,
    request: Request | None = None,
    fitted: Fitted | None = None,
    tokens_dropped: int = 0,
    missing: str | None = None,
) -> RequestRow:
    """An item under a recipe: its texts and their fitting, or why it can't be asked."""
    return RequestRow(
        prompt=recipe.prompt_digest,
        item=item.id,
        subject=item.subject,
        context=None if fitted is None else fitted.context,
        continuations=None if request is None else request.continuations,
        gold=item.gold,
        options=None if request is None else request.options,
        shots=None if fitted is None else fitted.shots,
        shots_dropped=None if fitted is None else fitted.shots_dropped,
        tokens_dropped=tokens_dropped,
        missing=missing,
    )


_AS_IT_IS = ChoiceQuestion(None)
"""Of what is asked without a boundary, there is nothing to say."""


def span_row(
    recipe: Recipe,
    request: Request,
    place: tuple[int, int],
    key: str | None,
    *,
    null: str | None = None,
    context: str | None = None,
    continuation: str = "",
    context_tokens: int = 0,
    tokens_dropped: int = 0,
    asked: ChoiceQuestion = _AS_IT_IS,
) -> SpanRow:
    """A question under the key it is asked with; ``place``: its choice and its part of that choice."""
    return SpanRow(
        prompt=recipe.prompt_digest,
        item=request.item.id,
        choice=place[0],
        part=place[1],
        null=null,
        context=context,
        continuation=continuation,
        key=key,
        context_tokens=context_tokens,
        tokens_dropped=tokens_dropped,
        before=None if asked.before is None else asked.before.key,
        after=None if asked.after is None else asked.after.key,
        merged=asked.merged,
        noncanonical=asked.noncanonical,
        lossy=asked.lossy,
        unknown=asked.unknown,
        bos=asked.bos,
        missing=asked.missing,
    )
