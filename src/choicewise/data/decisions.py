"""Read typed questions about a state, of cases with several or lines with one, as items.

A file of cases has the columns ``state``, ``questions`` (id → ``{type, instructions, criteria}``)
and ``gold`` (id → ``{label, probabilities}``), nested or as JSON texts, as
LocalLLaMA/typed-decisions on the Hub.  A file of EvalScope's ``general_decision`` has ``state``,
``question`` and ``expected`` (EvalScope 1.14.1).

Each question is an item: its choices are the names of the options, the texts of the levels, or
``yes`` and ``no``; its subject is the case, so that questions about one state count as one cluster.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from choicewise.data.files import Number, Row, spell, text
from choicewise.data.items import PEOPLE, SHARES_ROUNDED, Item
from choicewise.errors import NoAnswer, UnusableRow
from choicewise.questions import TypedQuestion
from choicewise.util.jsonio import JsonDict, JsonMapping, exact_json

KINDS = ("choice", "noul", "score")
"""Types of question: one of several options, yes or no, one of several levels in their order."""

KIND = "decision_kind"
"""The field of an item with its type."""

STATE = "decision_state"
"""The field with the state as JSON, a string in quotes."""

DESCRIPTIONS = "decision_descriptions"
"""The field with a JSON list of a description, or null, for each choice."""

CASE = "decision_case"
"""The field with the other questions about the state, as a JSON list of them as in the data."""

NOUL = {"yes": "true", "no": "false"}
"""The choices of a yes-or-no question, in the order of every server → what data calls them."""

_NOUL_LABELS = {"true": 0, "yes": 0, "false": 1, "no": 1}
_CASE_COLUMNS = ("questions", "gold")
_LINE_COLUMNS = ("question", "expected")
_USED = ("id", "state", "group", *_LINE_COLUMNS)


def kind_of(item: Item) -> str:
    """Return the type of an item's question; one of any other dataset is a choice."""
    return item.fields.get(KIND, "choice")


def typed_text(question: TypedQuestion) -> str:
    """Return the question as JSON, without a model, as in the body of System One.

    It is ``{"state", "questions": {"q": ...}}``.  The options are keys, so that no two of them may
    have one name.
    """
    questions = {"q": _question(question)}
    for number, other in enumerate(question.beside, start=2):
        questions[f"q{number}"] = _question(other)
    return exact_json({"state": json.loads(question.state), "questions": questions})


def _question(question: TypedQuestion) -> JsonDict:
    """Return the JSON object of a question; :func:`_typed` reads it."""
    described: JsonDict = {}
    for name, description in zip(question.names, question.descriptions, strict=True):
        described[name] = None if description is None else json.loads(description)
    json_object: JsonDict = {"type": question.kind, "instructions": question.instructions}
    if question.kind == "choice":
        json_object["criteria"] = described
    elif question.kind == "score":
        json_object["criteria"] = list(question.names)
    else:
        criteria = {NOUL[name]: text for name, text in described.items() if text is not None}
        if criteria:
            json_object["criteria"] = criteria
    return json_object


def typed_beside(item: Item, state: str) -> tuple[TypedQuestion, ...]:
    """Return the other questions of an item's case, about the same ``state``.

    Raises UnusableRow for one that no server takes.
    """
    questions = []
    for value in json.loads(item.fields.get(CASE, "[]")):
        question = _table(value, "question")
        kind = question.get("type")
        if kind not in KINDS:
            raise UnusableRow(
                f"another question of its case has type {kind!r}; it must be one of "
                f"{', '.join(KINDS)}"
            )
        questions.append(question)
    return tuple(_typed(question, state, _instructions(question)) for question in questions)


def read_typed(body: str) -> TypedQuestion:
    """Read the question that :func:`typed_text` wrote."""
    whole = json.loads(body)
    question = whole["questions"]["q"]
    return _typed(question, exact_json(whole["state"]), question["instructions"])


def _typed(question: JsonMapping, state: str, instructions: str) -> TypedQuestion:
    names, descriptions = _options(question["type"], question.get("criteria"))
    spelled = tuple(None if value is None else exact_json(value) for value in descriptions)
    return TypedQuestion(question["type"], state, instructions, names, spelled)


def is_decisions(row: JsonMapping) -> bool:
    """Check that a file whose first row is ``row`` holds typed questions about states."""
    if "state" not in row:
        return False
    if all(name in row for name in _CASE_COLUMNS):
        return True
    if not all(name in row for name in _LINE_COLUMNS):
        return False
    return isinstance(_parsed(row["question"]), Mapping)


def decision_drafts(row: Row, place: str) -> Iterator[Callable[[], Item]]:
    """Yield what returns the item of every question of a row.

    ``place`` is the id of a row without one.  What is yielded raises UnusableRow, saying the
    question, for one that no server takes.
    """
    id = text(row["id"], "id") if "id" in row else place
    if "expected" not in row:
        yield from _case_drafts(row, id)
        return
    fields = {}
    for name, cell in row.items():
        if name not in _USED and cell is not None:
            fields[name] = spell(cell, name)
    case = id
    if row.get("group") is not None:
        case = text(row["group"], "group")
    question = _parsed(row["question"])
    yield partial(_item, id, case, row, question, {"label": row["expected"]}, fields)


def _case_drafts(row: Row, case: str) -> Iterator[Callable[[], Item]]:
    questions = _table(row.get("questions"), "questions")
    golds = _table(row.get("gold"), "gold")
    fields = {}
    if row.get("workflow") is not None:
        fields["workflow"] = spell(row["workflow"], "workflow")
    for name, question in questions.items():
        others = [_parsed(other) for key, other in questions.items() if key != name]
        of_question = {**fields, "decision_id": name, CASE: exact_json(_plain(others))}
        draft = partial(_item, f"{case}/{name}", case, row, question, golds.get(name), of_question)
        yield partial(_named, name, draft)


def _named(name: str, draft: Callable[[], Item]) -> Item:
    try:
        return draft()
    except UnusableRow as reason:
        raise type(reason)(f"question {name}: {reason}") from None


def _item(
    id: str, case: str, row: Row, question: Any, gold: Any, fields: Mapping[str, str]
) -> Item:
    question = _table(question, "question")
    kind = question.get("type")
    if kind not in KINDS:
        raise UnusableRow(f"the question has type {kind!r}; it must be one of {', '.join(KINDS)}")
    names, descriptions = _options(kind, _plain(question.get("criteria")))
    instructions = _instructions(question)
    right, shares = _gold(kind, names, gold)
    state = row.get("state")
    if isinstance(state, Number) or not isinstance(state, str | Mapping | list):
        raise UnusableRow("the state must be a text, an object or a list")
    all_fields = dict(fields)
    all_fields[KIND] = kind
    all_fields[STATE] = exact_json(_plain(state))
    all_fields[DESCRIPTIONS] = exact_json(_plain(descriptions))
    if shares is not None:
        all_fields[PEOPLE] = exact_json(shares)
    return Item(id, instructions, names, (right,), case, all_fields)


def _instructions(question: JsonMapping) -> str:
    instructions = question.get("instructions")
    if instructions is None:
        return ""
    if not isinstance(instructions, str) or isinstance(instructions, Number):
        raise UnusableRow("instructions must be a text")
    return instructions


def _options(kind: str, criteria: Any) -> tuple[tuple[str, ...], list[Any]]:
    """Return the choices, and the description of each, or None."""
    if kind == "noul":
        if criteria is None:
            criteria = {}
        if not isinstance(criteria, Mapping) or not criteria.keys() <= set(NOUL.values()):
            raise UnusableRow("the criteria of a noul must be an object with true, false or both")
        return tuple(NOUL), [criteria.get(key) for key in NOUL.values()]
    if kind == "choice":
        if not isinstance(criteria, Mapping):
            raise UnusableRow(
                "the criteria of a choice must be an object: name → description or null"
            )
        return tuple(criteria), list(criteria.values())
    if not isinstance(criteria, list) or not all(isinstance(level, str) for level in criteria):
        raise UnusableRow("the criteria of a score must be a list of texts, one per level")
    return tuple(criteria), [None] * len(criteria)


def _gold(kind: str, names: Sequence[str], gold: Any) -> tuple[int, list[float] | None]:
    """Return the index of the right choice, and a probability per choice if the data has them."""
    table = {} if gold is None else _table(gold, "gold")
    label = table.get("label")
    if label is None:
        raise NoAnswer("the answer is null")
    spelled = str(label)
    if isinstance(label, bool):
        spelled = spelled.lower()
    if kind == "noul":
        indices = dict(_NOUL_LABELS)
    elif kind == "score":
        indices = {str(index): index for index in range(len(names))}
    else:
        indices = {name: index for index, name in enumerate(names)}
    if spelled not in indices:
        raise UnusableRow(f"the answer {spelled!r} is not one of {', '.join(indices)}")
    shares = table.get("probabilities")
    if shares is None:
        return indices[spelled], None
    return indices[spelled], _shares(_table(_plain(shares), "probabilities"), indices, names)


def _shares(shares: JsonMapping, indices: Mapping[str, int], names: Sequence[str]) -> list[float]:
    """Return the probability of each choice.  Raises UnusableRow unless they sum to 1."""
    by_index: dict[int, float] = {}
    for key, share in shares.items():
        is_number = isinstance(share, int | float) and not isinstance(share, bool)
        if key not in indices or not is_number:
            raise UnusableRow(
                f"the probabilities have {key!r}: {share!r}; give a number for each of "
                f"{', '.join(indices)}"
            )
        if share < 0:
            raise UnusableRow(f"the probability of {key!r}, {share!r}, is below 0")
        if indices[key] in by_index:
            # Yes and true are the same option.
            raise UnusableRow(f"{key!r} is a second probability of the same option: {share!r}")
        by_index[indices[key]] = float(share)
    for index, name in enumerate(names):
        if index not in by_index:
            raise UnusableRow(f"there is no probability for {name!r}")
    total = math.fsum(by_index.values())
    # A total of NaN is refused as well.
    if not abs(total - 1) <= SHARES_ROUNDED:
        raise UnusableRow(f"the probabilities sum to {total:.4g}, not 1")
    return [by_index[index] for index in range(len(names))]


def _table(value: Any, name: str) -> JsonMapping:
    parsed = _parsed(value)
    if not isinstance(parsed, Mapping):
        raise UnusableRow(f"column {name} is not an object")
    return parsed


def _parsed(value: Any) -> Any:
    """Return a nested value, also if a text spells it as JSON."""
    if isinstance(value, str) and not isinstance(value, Number):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def _plain(value: Any) -> Any:
    """Return ``value`` with numbers as numbers, as any program that reads the JSON has them."""
    if isinstance(value, Number):
        return json.loads(value)
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list):
        return list(map(_plain, value))
    return value
