"""Typed questions about a state: cases with several of them, and lines with one, as items.

A file of cases has the columns ``state``, ``questions`` (id → ``{type, instructions, criteria}``) and ``gold`` (id →
``{label, probabilities}``), nested or as JSON texts, as LocalLLaMA/typed-decisions on the Hub.  A file of EvalScope's
``general_decision`` has ``state``, ``question`` and ``expected`` (EvalScope 1.14.1).

Each question is an item: its choices are the names of the options, the texts of the levels, or ``yes`` and ``no``; its
subject is the case, so that questions about one state count as one cluster.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from choicewise.data.files import Number, Row, spell, text
from choicewise.data.items import PEOPLE, SHARES_ROUNDED, Item
from choicewise.errors import NoAnswer, UnusableRow
from choicewise.questions import TypedQuestion
from choicewise.util.jsonio import exact_json

KINDS: Final = ("choice", "noul", "score")
"""Types of question: one of several options, yes or no, one of several levels in their order."""

KIND, STATE, DESCRIPTIONS = "decision_kind", "decision_state", "decision_descriptions"
"""Fields of an item: its type; its state as JSON, a string in quotes; a JSON list with a description per choice."""

CASE: Final = "decision_case"
"""The field with the other questions about the state, a JSON list of them as they stand in the data."""

NOUL: Final = {"yes": "true", "no": "false"}
"""The choices of a yes-or-no question, in the order in which every server shows them → what data calls them."""

_NAMES: Final = {"true": 0, "yes": 0, "false": 1, "no": 1}
_CASES: Final = ("questions", "gold")
_LINES: Final = ("question", "expected")


def kind_of(item: Item) -> str:
    """The type of an item's question; a question of any other dataset is a choice."""
    return item.fields.get(KIND, "choice")


def typed_text(asked: TypedQuestion) -> str:
    """``asked`` as JSON, without a model: the body of System One, ``{"state", "questions": {"q": ...}}``.

    The options are keys, so that no two of them may have one name.
    """
    every = enumerate([asked, *asked.beside], start=1)
    questions = {f"q{number}" if number > 1 else "q": _question(each) for number, each in every}
    return exact_json({"state": json.loads(asked.state), "questions": questions})


def _question(asked: TypedQuestion) -> dict[str, Any]:
    own = [None if each is None else json.loads(each) for each in asked.descriptions]
    question: dict[str, Any] = {"type": asked.kind, "instructions": asked.instructions}
    if asked.kind == "noul":
        described = {
            NOUL[name]: each
            for name, each in zip(asked.names, own, strict=True)
            if each is not None
        }
        question |= {"criteria": described} if described else {}
    else:
        question["criteria"] = (
            dict(zip(asked.names, own, strict=True)) if asked.kind == "choice" else [*asked.names]
        )
    return question


def typed_beside(item: Item, state: str) -> tuple[TypedQuestion, ...]:
    """The other questions of its case, about the same ``state``; UnusableRow for one that can't be asked."""
    others = [_table(each, "question") for each in json.loads(item.fields.get(CASE, "[]"))]
    for other in others:
        if (kind := other.get("type")) not in KINDS:
            raise UnusableRow(
                f"the type of a question beside it is {kind!r}; it must be {', '.join(KINDS)}"
            )
    return tuple(_typed(other, state, _instructions(other) or "") for other in others)


def read_typed(body: str) -> TypedQuestion:
    """The question that :func:`typed_text` wrote."""
    whole = json.loads(body)
    question = whole["questions"]["q"]
    return _typed(question, exact_json(whole["state"]), question["instructions"])


def _typed(question: Mapping[str, Any], state: str, instructions: str) -> TypedQuestion:
    names, own = _options(question["type"], question.get("criteria"))
    described = tuple(None if each is None else exact_json(each) for each in own)
    return TypedQuestion(question["type"], state, instructions, names, described)


def is_decisions(row: Mapping[str, Any]) -> bool:
    """Whether a file whose first row is this holds typed questions about states."""
    if "state" not in row:
        return False
    if all(name in row for name in _CASES):
        return True
    return all(name in row for name in _LINES) and isinstance(_parsed(row["question"]), Mapping)


def decision_drafts(row: Row, place: str) -> Iterator[Callable[[], Item]]:
    """What returns the item of every question of a row; ``place`` is the id of a row without one.

    It raises UnusableRow, saying the question, for one that can't be asked.
    """
    own = text(row["id"], "id") if "id" in row else place
    if "expected" not in row:
        questions, golds = (_table(row.get(name), name) for name in _CASES)
        fields = (
            {"workflow": spell(row["workflow"], "workflow")}
            if row.get("workflow") is not None
            else {}
        )
        for name, question in questions.items():
            others = [_parsed(other) for each, other in questions.items() if each != name]
            fields_of = {**fields, "decision_id": name, CASE: exact_json(_plain(others))}
            yield partial(
                _named, name, f"{own}/{name}", own, row, question, golds.get(name), fields_of
            )
        return
    fields = {
        name: spell(cell, name)
        for name, cell in row.items()
        if name not in _USED and cell is not None
    }
    group = text(row["group"], "group") if row.get("group") is not None else own
    yield partial(
        _item, own, group, row, _parsed(row["question"]), {"label": row["expected"]}, fields
    )


_USED: Final = ("id", "state", "group", *_LINES)


def _named(name: str, *parts: Any) -> Item:
    try:
        return _item(*parts)
    except UnusableRow as reason:
        raise type(reason)(f"question {name}: {reason}") from None


def _item(
    id: str, case: str, row: Row, question: Any, gold: Any, fields: Mapping[str, str]
) -> Item:
    question = _table(question, "question")
    kind, criteria = question.get("type"), _plain(question.get("criteria"))
    if kind not in KINDS:
        raise UnusableRow(f"the type of the question is {kind!r}; it must be {', '.join(KINDS)}")
    names, described = _options(kind, criteria)
    instructions = _instructions(question)
    right, soft = _gold(kind, names, gold)
    told = {
        KIND: kind,
        STATE: exact_json(_plain(_required(row.get("state")))),
        DESCRIPTIONS: exact_json(_plain(described)),
    }
    told |= {PEOPLE: exact_json(soft)} if soft is not None else {}
    return Item(id, instructions or "", names, (right,), case, {**fields, **told})


def _instructions(question: Mapping[str, Any]) -> str | None:
    instructions = question.get("instructions")
    if instructions is not None and (
        not isinstance(instructions, str) or isinstance(instructions, Number)
    ):
        raise UnusableRow("the instructions of a question must be a text")
    return instructions


def _options(kind: str, criteria: Any) -> tuple[tuple[str, ...], list[Any]]:
    """The choices, and the description of each, None for none."""
    if kind == "noul":
        own = {} if criteria is None else criteria
        if not isinstance(own, Mapping) or not set(own) <= {*NOUL.values()}:
            raise UnusableRow("the criteria of a noul are an object with true, false or both")
        return tuple(NOUL), [own.get(key) for key in NOUL.values()]
    if kind == "choice":
        if not isinstance(criteria, Mapping):
            raise UnusableRow("the criteria of a choice are an object: name → description or null")
        return tuple(criteria), list(criteria.values())
    if not isinstance(criteria, list) or not all(isinstance(level, str) for level in criteria):
        raise UnusableRow("the criteria of a score are a list of texts, one a level")
    return tuple(criteria), [None] * len(criteria)


def _gold(kind: str, names: Sequence[str], gold: Any) -> tuple[int, list[float] | None]:
    """The place of the right choice, and a probability per choice where the data has them."""
    gold = _table(gold, "gold") if gold is not None else {}
    label = gold.get("label")
    if label is None:
        raise NoAnswer("the answer is null")
    spelled = str(label).lower() if isinstance(label, bool) else str(label)
    keys = {name: place for place, name in enumerate(names)}
    if kind == "noul":
        keys = dict(_NAMES)
    elif kind == "score":
        keys = {str(place): place for place in range(len(names))}
    if spelled not in keys:
        raise UnusableRow(f"the answer {spelled!r} is none of {', '.join(keys)}")
    shares = gold.get("probabilities")
    if shares is None:
        return keys[spelled], None
    shares = _table(_plain(shares), "probabilities")
    shared: list[float | None] = [None] * len(names)
    for key, share in shares.items():
        if key not in keys or isinstance(share, bool) or not isinstance(share, int | float):
            raise UnusableRow(
                f"the probabilities hold {key!r}: {share!r}; they are a number for each of {', '.join(keys)}"
            )
        if share < 0 or shared[keys[key]] is not None:
            wrong = "is below 0" if share < 0 else "is of an option that has one already"
            raise UnusableRow(f"the probability of {key!r}, {share!r}, {wrong}")
        shared[keys[key]] = float(share)
    if (
        lacking := [name for name, share in zip(names, shared, strict=True) if share is None]
    ) != []:
        raise UnusableRow(f"the probabilities have none for {lacking[0]!r}")
    known = [share for share in shared if share is not None]
    if not abs((total := math.fsum(known)) - 1) <= SHARES_ROUNDED:
        raise UnusableRow(f"the probabilities sum to {total:.4g}, not 1")
    return keys[spelled], known


def _required(state: Any) -> Any:
    if state is None or not isinstance(state, str | Mapping | list) or isinstance(state, Number):
        raise UnusableRow("the state must be a text, an object or a list")
    return state


def _table(value: Any, name: str) -> Mapping[str, Any]:
    parsed = _parsed(value)
    if not isinstance(parsed, Mapping):
        raise UnusableRow(f"column {name} holds no object")
    return parsed


def _parsed(value: Any) -> Any:
    """A nested value, also of a text that spells one as JSON."""
    if isinstance(value, str) and not isinstance(value, Number):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def _plain(value: Any) -> Any:
    """``value`` with numbers as numbers, as any program that reads the JSON has them."""
    if isinstance(value, Number):
        return json.loads(value)
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, list) else value
