"""Which choices of a table are right, in the ways in which tables say it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from choicewise.errors import DataError
from choicewise.interchange.logs.read.table_columns import Table

_TRUE, _FALSE = ("true", "1", "1.0"), ("false", "0", "0.0")


@dataclass(frozen=True)
class Golds:
    """``about``: how the table says it, in words; ``of``: from an item's rows, its choices and where, to indices."""

    about: str
    of: Callable[[Sequence[dict[str, Any]], Sequence[str], str], tuple[int, ...]]


def golds_of(table: Table) -> Golds:
    """How the column ``gold`` is to be read, decided for the whole table.

    It names the right choice, or a list of them, on every row of its item, in the numbers or labels of the column
    ``choice``.  Where its cells differ within an item, or are true and false, they are flags: whether the choice of
    their own row is right.
    """
    gold = table.columns["gold"]
    lower = pc.utf8_lower(pc.utf8_trim_whitespace(gold))
    known = pc.unique(lower.combine_chunks()).to_pylist()
    if set(known) <= {"true", "false"}:
        return Golds("true on the rows of right choices", _flagged)
    differs = _differs(table.columns["item"].combine_chunks(), lower.combine_chunks())
    if differs < 0:
        return Golds("the right choices of the item, on each of its rows", _named)
    if set(known) <= {*_TRUE, *_FALSE} and _differs_everywhere(table):
        return Golds("1 on the rows of right choices, 0 on the others", _flagged)
    item = table.columns["item"][differs].as_py()
    raise DataError(
        f"{table.path}, item {item!r}: gold differs between its rows, and in other items it does not, or it is "
        "something else than 0 and 1; write the right choice on every row of an item, or true and false on all"
    )


def _differs(items: pa.Array, golds: pa.Array) -> int:
    """A row whose gold is another than that of the row before, of the same item; -1 where there is none."""
    if len(items) < 2:
        return -1
    same = pc.equal(items[1:], items[:-1])
    other = pc.fill_null(pc.not_equal(golds[1:], golds[:-1]), False)
    place = pc.index(pc.and_(same, other), True).as_py()
    return int(place) + 1 if place >= 0 else -1


def _differs_everywhere(table: Table) -> bool:
    """Whether every item has a row with 1 and another one with 0."""
    right = pc.is_in(pc.utf8_trim_whitespace(table.columns["gold"]), pa.array(_TRUE)).cast(pa.int8())
    flags = pa.table({"item": table.columns["item"], "right": right})
    each = flags.group_by("item").aggregate([("right", "min"), ("right", "max")])
    return bool(pc.all(pc.not_equal(each["right_min"], each["right_max"])).as_py())


def _flagged(rows: Sequence[dict[str, Any]], labels: Sequence[str], where: str) -> tuple[int, ...]:
    right = {row["choice"] for row in rows if str(row["gold"]).strip().lower() in _TRUE}
    return tuple(place for place, label in enumerate(labels) if label in right)


def _named(rows: Sequence[dict[str, Any]], labels: Sequence[str], where: str) -> tuple[int, ...]:
    named = _list(rows[0]["gold"], where)
    if wrong := [name for name in named if name not in labels]:
        raise DataError(
            f"{where}: gold is {wrong[0]!r}, which is none of its choices "
            f"{', '.join(labels)}; name it as the column choice does"
        )
    return tuple(labels.index(name) for name in named)


def _list(cell: str | None, where: str) -> list[str]:
    """The choices that a cell names: one, or a JSON list of them; none where it is empty."""
    text = (cell or "").strip()
    if not text.startswith("["):
        return [text] if text else []
    try:
        values = json.loads(text.replace("'", '"'))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: gold is {text[:60]!r}, which is no list") from error
    return [str(value).strip() for value in values]
