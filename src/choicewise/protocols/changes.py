"""Changes of a question after which the answer should be the same: another order, other names, one option more.

A change is named on the axis ``prepare``, alone or behind the preparation of the source (``decision-str+reversed``),
which comes after it.  Items that a change is not for are no part of its protocols.  Observations stay those of the
item's own choices: where options stand in another order, or a question is negated, the label at another place counts
for a choice.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from choicewise.data.decisions import CASE, DESCRIPTIONS, KIND, STATE, kind_of
from choicewise.data.items import Item, draw_hash
from choicewise.util.jsonio import compact_json, exact_json

Order = tuple[int, ...]  # for every place the choice whose label counts there

NONE_OF_THESE: Final = "None of these"
"""The option that ``none-added`` appends; it is never right."""


class Change(NamedTuple):
    """``kinds``: of questions that it is for.  ``apply``: the changed item, None for one that it is not for.

    ``order``: of so many options for every place the choice whose label counts there; None where that is the choice at
    that place.  ``moves``: whether the texts of the options move, too.  ``more``: by how many options there are more.
    """

    kinds: tuple[str, ...]
    apply: Callable[[Item], Item | None] = lambda item: item
    order: Callable[[int], Order] | None = None
    moves: bool = True
    more: int = 0


def descriptions_of(item: Item) -> list[Any]:
    """What the item says of each of its choices, None for nothing."""
    own = json.loads(item.fields.get(DESCRIPTIONS, "[]"))
    return [*own, *[None] * (len(item.choices) - len(own))]


def with_options(item: Item, choices: Sequence[str], descriptions: Sequence[Any]) -> Item:
    """The item with these choices; the descriptions count where the item has any."""
    own = {DESCRIPTIONS: exact_json(list(descriptions))} if DESCRIPTIONS in item.fields else {}
    return replace(item, choices=tuple(choices), fields={**item.fields, **own})


def apply_change(name: str, item: Item) -> Item | None:
    """The item as the change of this name shows it; None for one that it is not for."""
    change = CHANGES[name]
    return change.apply(item) if kind_of(item) in change.kinds else None


def cloned_choice(item: str, choices: int) -> int:
    """Which of so many choices ``cloned`` shows twice, by the hash of the item's id."""
    return int.from_bytes(draw_hash(0, item), "big") % choices


def _turned(turns: int, reverse: bool = False) -> Callable[[int], Order]:
    def order(options: int) -> Order:
        places = [(turns + place) % options for place in range(options)]
        return tuple(reversed(places)) if reverse else tuple(places)

    return order


def _renamed(item: Item) -> Item | None:
    """Options that are described, by numbers; where names say all there is to say, None."""
    described = descriptions_of(item)
    if not all(described):
        return None
    return with_options(
        item, [f"option_{number}" for number in range(1, len(described) + 1)], described
    )


def _none_added(item: Item) -> Item:
    return with_options(item, [*item.choices, NONE_OF_THESE], [*descriptions_of(item), None])


def _none_for_right(item: Item) -> Item | None:
    """With ``NONE_OF_THESE``, right now, in the place of the right option."""
    if len(item.gold) != 1 or len(item.choices) < 2:
        return None
    choices, described = list(item.choices), descriptions_of(item)
    choices[item.gold[0]], described[item.gold[0]] = NONE_OF_THESE, None
    return with_options(item, choices, described)


def _cloned(item: Item) -> Item:
    """One option more, the last: a copy of another, under another name where a description says what it is."""
    described = descriptions_of(item)
    place = cloned_choice(item.id, len(item.choices))
    name = item.choices[place] if described[place] is None else f"{item.choices[place]}_2"
    return with_options(item, [*item.choices, name], [*described, described[place]])


def _without_last(item: Item) -> Item | None:
    if len(item.choices) - 1 in item.gold or len(item.choices) < 3:
        return None
    return with_options(item, item.choices[:-1], descriptions_of(item)[:-1])


def _state_text(item: Item) -> Item | None:
    """A state that is an object or a list as the text that clients send: JSON without spaces."""
    state = json.loads(item.fields.get(STATE, '""'))
    if isinstance(state, str):
        return None
    return replace(item, fields={**item.fields, STATE: exact_json(compact_json(state))})


def _state_object(item: Item) -> Item | None:
    """A state that is a text with an object or a list as that."""
    state = json.loads(item.fields.get(STATE, "null"))
    try:
        inside = json.loads(state) if isinstance(state, str) else None
    except ValueError:
        inside = None
    if not isinstance(inside, dict | list):
        return None
    return replace(item, fields={**item.fields, STATE: exact_json(inside)})


_CHOICE, _NOUL, _LISTED, _ALL = (
    ("choice",),
    ("noul",),
    ("choice", "score"),
    ("choice", "noul", "score"),
)
MOST_TURNS: Final = 9

CHANGES: Mapping[str, Change] = {
    "reversed": Change(_LISTED, order=_turned(0, reverse=True)),
    **{
        f"turned-{turns}": Change(_CHOICE, order=_turned(turns))
        for turns in range(1, MOST_TURNS + 1)
    },
    **{
        f"reversed-{turns}": Change(_CHOICE, order=_turned(turns, reverse=True)) for turns in (1, 2)
    },
    "renamed": Change(_CHOICE, _renamed),
    "none-added": Change(_CHOICE, _none_added, more=1),
    "none-for-right": Change(_CHOICE, _none_for_right),
    "cloned": Change(_CHOICE, _cloned, more=1),
    "without-last": Change(_CHOICE, _without_last, more=-1),
    "as-choice": Change(_NOUL, lambda item: replace(item, fields={**item.fields, KIND: "choice"})),
    "negated": Change(
        _NOUL,
        lambda item: replace(
            item, question=f"The opposite of the following is true: {item.question}"
        ),
        order=_turned(0, reverse=True),
        moves=False,
    ),
    "state-text": Change(_ALL, _state_text),
    "state-object": Change(_ALL, _state_object),
    "batched": Change(_ALL, lambda item: item if item.fields.get(CASE, "[]") != "[]" else None),
}
"""Every change by its name on the axis ``prepare``."""
