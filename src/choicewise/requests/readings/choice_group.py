"""Continuations of one context: what a reading asks about the choices of one request."""

from collections.abc import Callable
from dataclasses import dataclass

from choicewise.requests.request import Request

Preferred = Callable[[int, bool], tuple[int, ...]]
"""From the number of answers about a choice, and whether the choice is right, to the answers an oracle gives."""


@dataclass(frozen=True, slots=True)
class ChoiceGroup:
    """Continuations of one context.  ``places``: the (choice, part) that each of them belongs to.

    ``own``: whether the context is another than the request's.  ``gold``: which of them an oracle would prefer.
    """

    context: str
    own: bool
    continuations: tuple[str, ...]
    places: tuple[tuple[int, int], ...]
    gold: tuple[int, ...]


def shared_context(request: Request, context: str) -> list[ChoiceGroup]:
    """All choices after the fitted ``context``, which ends with the query, and again after each further view.

    Where the protocol has a proposal, each choice comes after a context of its own.
    """
    if request.proposals:
        return own_contexts(request, context, lambda parts, right: tuple(range(parts)) if right else ())
    places = tuple((choice, part) for choice, texts in enumerate(request.parts) for part in range(len(texts)))
    texts = tuple(text for texts in request.parts for text in texts)
    right = tuple(index for index, (choice, _) in enumerate(places) if choice in request.gold)
    groups = [ChoiceGroup(context, False, texts, places, right)]
    for number, view in enumerate(request.views, start=1):
        right = request.gold if view.content else ()  # an oracle knows nothing of what has no content
        places = tuple((choice, number) for choice in range(len(view.continuations)))
        shown = context.removesuffix(request.query) + view.query
        groups.append(ChoiceGroup(shown, True, view.continuations, places, right))
    return groups


def own_contexts(request: Request, context: str, preferred: Preferred) -> list[ChoiceGroup]:
    """The parts of each choice after the fitted ``context`` and the choice's own proposal."""
    groups = []
    for choice, (proposal, parts) in enumerate(zip(request.proposals, request.parts, strict=True)):
        places = tuple((choice, part) for part in range(len(parts)))
        gold = preferred(len(parts), choice in request.gold)
        groups.append(ChoiceGroup(context + proposal, True, parts, places, gold))
    return groups
