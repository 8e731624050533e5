"""Rows of the run folder's ``requests`` and ``spans`` tables: what was asked, and where its answer belongs."""

from __future__ import annotations

from typing import Any

from choicewise.data.item import Item
from choicewise.engine.asked import Asked
from choicewise.protocols.fit import Fitted
from choicewise.protocols.protocol import Protocol as Recipe
from choicewise.protocols.render import Request


def request_row(
    recipe: Recipe,
    item: Item,
    request: Request | None = None,
    fitted: Fitted | None = None,
    tokens_dropped: int = 0,
    missing: str | None = None,
) -> dict[str, Any]:
    """An item under a recipe: its texts and their fitting, or why it can't be asked."""
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


_AS_IT_IS = Asked(None)
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
    asked: Asked = _AS_IT_IS,
) -> dict[str, Any]:
    """A question under the key it is asked with; ``place``: its choice and its part of that choice."""
    return {
        "prompt": recipe.prompt_digest,
        "item": request.item.id,
        "choice": place[0],
        "part": place[1],
        "null": null,
        "context": context,
        "continuation": continuation,
        "key": key,
        "context_tokens": context_tokens,
        "tokens_dropped": tokens_dropped,
        "before": None if asked.before is None else asked.before.key,
        "after": None if asked.after is None else asked.after.key,
        "merged": asked.merged,
        "noncanonical": asked.noncanonical,
        "lossy": asked.lossy,
        "unknown": asked.unknown,
        "bos": asked.bos,
        "missing": asked.missing,
    }
