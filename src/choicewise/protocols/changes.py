"""Change questions so that the answer should stay: another order, other names, one option more.

A change is named on the axis ``prepare``, alone or behind the preparation of the source
(``decision-str+reversed``), which comes after it.  Items that a change is not for are no part of
its protocols.  Observations stay those of the item's choices: if options are in another order, or a
question is negated, the label at another position counts for a choice.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from choicewise.data.decisions import CASE, DESCRIPTIONS, KIND, STATE, kind_of
from choicewise.data.items import Item, draw_hash
from choicewise.util.jsonio import compact_json, exact_json

Order = tuple[int, ...]
"""For every position the choice whose label counts there."""

NONE_OF_THESE = "None of these"
"""The option that ``none-added`` appends; it is never right."""


def unchanged(item: Item) -> Item:
    """Return the item."""
    return item


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Describe a change of questions.

    ``kinds``: of questions that it is for.  ``apply``: returns the changed item, None if it is not
    for the item.  ``order``: returns the order of a number of options; None if it stays.
    ``moves``: the texts of the options move, too.  ``added``: the number of options that it adds,
    or -1.
    """

    kinds: tuple[str, ...]
    apply: Callable[[Item], Item | None] = unchanged
    order: Callable[[int], Order] | None = None
    moves: bool = True
    added: int = 0


def descriptions_of(item: Item) -> list[Any]:
    """Return the description of each of the item's choices, None for a choice without."""
    descriptions = json.loads(item.fields.get(DESCRIPTIONS, "[]"))
    missing = len(item.choices) - len(descriptions)
    return [*descriptions, *([None] * missing)]


def with_options(item: Item, choices: Sequence[str], descriptions: Sequence[Any]) -> Item:
    """Return the item with these choices; the descriptions count if the item has any."""
    fields = dict(item.fields)
    if DESCRIPTIONS in fields:
        fields[DESCRIPTIONS] = exact_json(list(descriptions))
    return replace(item, choices=tuple(choices), fields=fields)


def with_field(item: Item, name: str, value: str) -> Item:
    """Return the item with the value of a field."""
    return replace(item, fields={**item.fields, name: value})


def apply_change(name: str, item: Item) -> Item | None:
    """Return the item under the change of this name; None if the change is not for it."""
    change = CHANGES[name]
    return change.apply(item) if kind_of(item) in change.kinds else None


def cloned_choice(item: str, choices: int) -> int:
    """Return which of so many choices ``cloned`` repeats, by the hash of the item's id."""
    return int.from_bytes(draw_hash(0, item), "big") % choices


def _turned(turns: int, reverse: bool = False) -> Callable[[int], Order]:
    def order(options: int) -> Order:
        turned = [(turns + position) % options for position in range(options)]
        return tuple(reversed(turned)) if reverse else tuple(turned)

    return order


_reversed = _turned(0, reverse=True)


def _renamed(item: Item) -> Item | None:
    """Number the options; None if an option's name is all that describes it."""
    descriptions = descriptions_of(item)
    if not all(descriptions):
        return None
    names = [f"option_{number}" for number in range(1, len(descriptions) + 1)]
    return with_options(item, names, descriptions)


def _none_added(item: Item) -> Item:
    return with_options(item, [*item.choices, NONE_OF_THESE], [*descriptions_of(item), None])


def _none_for_right(item: Item) -> Item | None:
    """Replace the right option by ``NONE_OF_THESE``, which then is right."""
    if len(item.gold) != 1 or len(item.choices) < 2:
        return None
    return with_replaced_option(item, item.gold[0], NONE_OF_THESE)


def with_replaced_option(item: Item, index: int, text: str) -> Item:
    """Return the item with ``text`` in the place of one of its options, without description."""
    choices = list(item.choices)
    descriptions = descriptions_of(item)
    choices[index] = text
    descriptions[index] = None
    return with_options(item, choices, descriptions)


def _cloned(item: Item) -> Item:
    """Append a copy of an option, under another name if a description says what it is."""
    descriptions = descriptions_of(item)
    index = cloned_choice(item.id, len(item.choices))
    name = item.choices[index]
    if descriptions[index] is not None:
        name = f"{name}_2"
    return with_options(item, [*item.choices, name], [*descriptions, descriptions[index]])


def _without_last(item: Item) -> Item | None:
    if len(item.choices) - 1 in item.gold or len(item.choices) < 3:
        return None
    return with_options(item, item.choices[:-1], descriptions_of(item)[:-1])


def _as_choice(item: Item) -> Item:
    return with_field(item, KIND, "choice")


def _negated(item: Item) -> Item:
    return replace(item, question=f"The opposite of the following is true: {item.question}")


def _state_text(item: Item) -> Item | None:
    """Write a state that is an object or a list as clients send it: JSON without spaces."""
    state = json.loads(item.fields.get(STATE, '""'))
    if isinstance(state, str):
        return None
    return with_field(item, STATE, exact_json(compact_json(state)))


def _state_object(item: Item) -> Item | None:
    """Read a state that is a text of an object or a list."""
    state = json.loads(item.fields.get(STATE, "null"))
    if not isinstance(state, str):
        return None
    try:
        content = json.loads(state)
    except ValueError:
        return None
    if not isinstance(content, dict | list):
        return None
    return with_field(item, STATE, exact_json(content))


def _batched(item: Item) -> Item | None:
    return item if item.fields.get(CASE, "[]") != "[]" else None


_CHOICE = ("choice",)
_NOUL = ("noul",)
_LISTED = ("choice", "score")
_ALL = ("choice", "noul", "score")
MOST_TURNS = 9

CHANGES: Mapping[str, Change] = {
    "reversed": Change(kinds=_LISTED, order=_reversed),
    **{
        f"turned-{turns}": Change(kinds=_CHOICE, order=_turned(turns))
        for turns in range(1, MOST_TURNS + 1)
    },
    "reversed-1": Change(kinds=_CHOICE, order=_turned(1, reverse=True)),
    "reversed-2": Change(kinds=_CHOICE, order=_turned(2, reverse=True)),
    "renamed": Change(kinds=_CHOICE, apply=_renamed),
    "none-added": Change(kinds=_CHOICE, apply=_none_added, added=1),
    "none-for-right": Change(kinds=_CHOICE, apply=_none_for_right),
    "cloned": Change(kinds=_CHOICE, apply=_cloned, added=1),
    "without-last": Change(kinds=_CHOICE, apply=_without_last, added=-1),
    "as-choice": Change(kinds=_NOUL, apply=_as_choice),
    "negated": Change(kinds=_NOUL, apply=_negated, order=_reversed, moves=False),
    "state-text": Change(kinds=_ALL, apply=_state_text),
    "state-object": Change(kinds=_ALL, apply=_state_object),
    "batched": Change(kinds=_ALL, apply=_batched),
}
"""Every change by its name on the axis ``prepare``."""
