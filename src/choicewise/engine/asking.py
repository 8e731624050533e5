"""From rendered requests to what a model must be asked, and the rows that remember which answer belongs where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from choicewise.data.item import Item
from choicewise.engine.boundary import Asked, encode_contexts, spans_batch
from choicewise.engine.span import Prompt, Span
from choicewise.engine.tokenizer import Tokenizer
from choicewise.engine.window import cut_end, fit_span
from choicewise.protocols.fit import Fitted, fit
from choicewise.protocols.protocol import Protocol as Recipe
from choicewise.protocols.render import Request

GENERATED = -1
"""The choice index of a generation, which belongs to no choice."""


class Answerer(Protocol):
    """What asking needs to know of a model: its tokenizer and its window (input tokens)."""

    window: int
    tokenizer: Tokenizer


@dataclass
class Asking:
    """Rows of the run folder's ``requests`` and ``spans`` tables, and the unique questions to the model by key."""

    requests: list[dict[str, Any]] = field(default_factory=list)
    spans: list[dict[str, Any]] = field(default_factory=list)
    wanted: dict[str, Span | Prompt] = field(default_factory=dict)

    @property
    def inputs(self) -> int:
        """Input tokens when every choice of every protocol is a sequence of its own, as usually asked."""
        return sum(self.wanted[row["key"]].inputs for row in self.spans if row["key"] is not None)

    def refuse(self, recipe: Recipe, item: Item, reason: str) -> None:
        """Remember an item that can't be asked under a recipe, and why."""
        self.requests.append(_request_row(recipe, item, missing=reason))

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
        else:
            self._add_spans(recipe, kept, model)

    def add_null(self, recipe: Recipe, null: str, requests: Sequence[Request], model: Answerer) -> None:
        """Register the continuations of ``requests`` after the ``null`` context, each distinct text once."""
        texts = list(dict.fromkeys(text for request in requests for text in request.continuations))
        asked = _asked(recipe, [null] * len(texts), [(text,) for text in texts], [()] * len(texts), model)
        found = {text: choices[0] for text, choices in zip(texts, asked, strict=True)}
        for request in requests:
            for number, text in enumerate(request.continuations):
                self._remember(recipe, request, number, null, found[text])

    def _add_spans(self, recipe: Recipe, kept: Sequence[tuple[Request, Fitted]], model: Answerer) -> None:
        contexts = [fit_.context for _, fit_ in kept]
        continuations = [request.continuations for request, _ in kept]
        gold = [request.gold for request, _ in kept]
        asked = _asked(recipe, contexts, continuations, gold, model)
        for (request, fit_), choices in zip(kept, asked, strict=True):
            dropped = max(choice.tokens_dropped for choice in choices)
            self.requests.append(_request_row(recipe, request.item, request, fit_, dropped))
            for number, choice in enumerate(choices):
                self._remember(recipe, request, number, None, choice)

    def _add_prompts(self, recipe: Recipe, kept: Sequence[tuple[Request, Fitted]], model: Answerer) -> None:
        tokenizer, new_tokens = model.tokenizer, recipe.new_tokens or 0
        contexts = encode_contexts(tokenizer, recipe.bos, [fit_.context for _, fit_ in kept])
        for (request, fit_), whole in zip(kept, contexts, strict=True):
            context, dropped = cut_end(whole, _limit(recipe, model), new_tokens) if fit_.cut_end else (whole, 0)
            right = request.gold[0]
            texts = [request.continuations[index].strip() for index in (right, right - 1)]
            answer, wrong = tokenizer.encode(texts, special=False)
            prompt = Prompt(context, new_tokens, answer, wrong)
            self.requests.append(_request_row(recipe, request.item, request, fit_, dropped))
            self.wanted.setdefault(prompt.key, prompt)
            self.spans.append(_span_row(recipe, request, GENERATED, prompt, tokens_dropped=dropped))

    def _remember(self, recipe: Recipe, request: Request, choice: int, null: str | None, asked: Asked) -> None:
        if asked.span is not None:
            self.wanted.setdefault(asked.span.key, asked.span)
        self.spans.append(
            _span_row(
                recipe,
                request,
                choice,
                asked.span,
                null=null,
                continuation=request.continuations[choice],
                tokens_dropped=asked.tokens_dropped,
                merged=asked.merged,
                unknown=asked.unknown,
                missing=asked.missing,
            )
        )


def _span_row(
    recipe: Recipe,
    request: Request,
    choice: int,
    question: Span | Prompt | None,
    *,
    null: str | None = None,
    continuation: str = "",
    tokens_dropped: int = 0,
    merged: bool = False,
    unknown: int = 0,
    missing: str | None = None,
) -> dict[str, Any]:
    return {
        "prompt": recipe.prompt_digest,
        "item": request.item.id,
        "choice": choice,
        "null": null,
        "continuation": continuation,
        "key": None if question is None else question.key,
        "context_tokens": 0 if question is None else len(question.context),
        "tokens_dropped": tokens_dropped,
        "merged": merged,
        "unknown": unknown,
        "missing": missing,
    }


def _limit(recipe: Recipe, model: Answerer) -> int:
    return model.window if recipe.limit is None else min(recipe.limit, model.window)


def _fit(recipe: Recipe, requests: Sequence[Request], model: Answerer) -> list[Fitted]:
    def count(texts: list[str]) -> list[int]:
        return [len(ids) for ids in encode_contexts(model.tokenizer, recipe.bos, texts)]

    if recipe.reading == "generate":
        reserve = [recipe.new_tokens or 0] * len(requests)
    else:
        texts = list(dict.fromkeys(text for request in requests for text in request.continuations))
        length = dict(zip(texts, map(len, model.tokenizer.encode(texts, special=False)), strict=True))
        reserve = [max(length[text] for text in request.continuations) - 1 for request in requests]
    return fit(recipe, requests, count, model.window, reserve)


def _asked(
    recipe: Recipe,
    contexts: Sequence[str],
    continuations: Sequence[Sequence[str]],
    gold: Sequence[Sequence[int]],
    model: Answerer,
) -> list[list[Asked]]:
    asked = spans_batch(model.tokenizer, recipe.boundary, recipe.bos, contexts, continuations, gold)
    window, cut_start = _limit(recipe, model), recipe.fit == "cut-start"
    return [[fit_span(choice, window, cut_start=cut_start) for choice in choices] for choices in asked]


def _request_row(
    recipe: Recipe,
    item: Item,
    request: Request | None = None,
    fitted: Fitted | None = None,
    tokens_dropped: int = 0,
    missing: str | None = None,
) -> dict[str, Any]:
    return {
        "prompt": recipe.prompt_digest,
        "item": item.id,
        "subject": item.subject,
        "context": None if fitted is None else fitted.context,
        "continuations": None if request is None else request.continuations,
        "gold": item.gold,
        "options": None if request is None else request.options,
        "shots": None if fitted is None else fitted.shots,
        "shots_dropped": None if fitted is None else fitted.shots_dropped,
        "tokens_dropped": tokens_dropped,
        "missing": missing,
    }
