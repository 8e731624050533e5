"""What a reading asks about the choices of one request: which texts, after which contexts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from choicewise.errors import ProtocolError
from choicewise.protocols.protocol import Protocol
from choicewise.questions.span import Span
from choicewise.requests.render import Request
from choicewise.tokens.choice_question import ChoiceQuestion
from choicewise.tokens.common_prefix import common_prefix


@dataclass(frozen=True, slots=True)
class Group:
    """Continuations of one context.  ``places``: the (choice, part) that each of them belongs to.

    ``own``: whether the context is another than the request's.  ``gold``: which of them an oracle would prefer.
    """

    context: str
    own: bool
    continuations: tuple[str, ...]
    places: tuple[tuple[int, int], ...]
    gold: tuple[int, ...]


def groups(protocol: Protocol, request: Request, context: str) -> list[Group]:
    """The groups of ``request``, whose fitted ``context`` ends with its query: one, one per choice or per view."""
    if protocol.reading == "noisy-channel":
        return [
            Group(request.header + proposal, True, (request.query,), ((choice, 0),), (0,) * (choice in request.gold))
            for choice, proposal in enumerate(request.proposals)
        ]
    if not request.proposals:
        parts = request.parts or tuple((continuation,) for continuation in request.continuations)
        places = tuple((choice, part) for choice, texts in enumerate(parts) for part in range(len(texts)))
        texts = tuple(text for texts in parts for text in texts)
        right = tuple(index for index, (choice, _) in enumerate(places) if choice in request.gold)
        return [
            Group(context, False, texts, places, right),
            *_view_groups(request, context.removesuffix(request.query)),
        ]
    return [
        Group(
            context + proposal,
            True,
            parts,
            tuple((choice, part) for part in range(len(parts))),
            _preferred(protocol.reading, len(parts), choice in request.gold),
        )
        for choice, (proposal, parts) in enumerate(zip(request.proposals, request.parts, strict=True))
    ]


def _view_groups(request: Request, before: str) -> list[Group]:
    """The further views of the item, each after the same shots; an oracle knows nothing of what has no content."""
    return [
        Group(
            before + view.query,
            True,
            view.continuations,
            tuple((choice, number) for choice in range(len(view.continuations))),
            tuple(request.gold) if view.content else (),
        )
        for number, view in enumerate(request.views, start=1)
    ]


def _preferred(reading: str, parts: int, right: bool) -> tuple[int, ...]:
    """The answers an oracle gives about a choice: Yes to the right one, No to a wrong one; the highest rating."""
    if reading == "yes-no":
        return (0,) if right else (1,)
    if reading == "rating":
        return (parts - 1,) if right else (0,)
    return tuple(range(parts)) if right else ()


def refuse_overlap(protocol: Protocol, group: Group, asked: Sequence[ChoiceQuestion]) -> None:
    """ProtocolError where one answer's tokens begin another's: their probabilities are then not of different things."""
    for left, right in combinations(range(len(asked)), 2):
        first, second = asked[left].span, asked[right].span
        if not (isinstance(first, Span) and isinstance(second, Span)):
            continue
        one, other = first.continuation, second.continuation
        if common_prefix([one, other]) == min(len(one), len(other)):
            raise ProtocolError(
                f"reading {protocol.reading}: with this model's tokenizer the tokens of {group.continuations[left]!r} "
                f"and {group.continuations[right]!r} are not told apart, as the one's begin the other's; "
                "use other labels in the axis continuation"
            )
