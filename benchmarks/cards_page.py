"""What ``cards.toml`` asks for and states, and the tables of ``docs/real-models.md`` from what was measured.

python benchmarks/page.py writes the page.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
UNEXPLAINED = "unexplained: quantisation, version or chat template, which can't be separated here"
Z = 1.96
"""Standard errors of a 95 % interval."""

COLUMNS = ("harness acc", "acc_norm", "OLMES cloze", "OLMES letters", "lighteval, 0 shots")
CELL_HEAD = f"| questions | number of them | {' | '.join(COLUMNS)} | lowest to highest |"
PUBLISHED_HEAD = "| number | here, % | published, % | points | what the difference is |"
HARNESS_HEAD = "| model | questions | number of them | largest difference, nats | other decisions, acc | acc_norm |"


@dataclass(frozen=True)
class PublishedModel:
    """A model in Python packages: its GGUF file is ``members`` of them, joined byte after byte."""

    key: str
    name: str
    file: str
    sha256: str
    licence: str
    packages: tuple[str, ...]
    members: tuple[str, ...]


@dataclass(frozen=True)
class Task:
    """The harness's ``file`` of a task (``{}`` in it being a subject), and our ``protocol`` that asks the same."""

    file: str
    protocol: str


@dataclass(frozen=True)
class QuestionSet:
    """Questions and the protocols under which they are asked.

    ``rows``: the file or folder below the data; ``split``: what it holds; ``options``: further ones of `choicewise
    run`; ``columns``: heading of the page → number of this set.
    """

    key: str
    title: str
    rows: str
    split: str
    protocols: tuple[str, ...]
    task: Task
    columns: Mapping[str, str]
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Source:
    """Where a value was published, and where it was opened."""

    title: str
    url: str
    note: str


@dataclass(frozen=True)
class Published:
    """A ``value`` (percent) that others published, beside ``numbers`` of ours, whose mean it is if they are several.

    ``apart``: what differs between the two besides the weights.
    """

    model: str
    set: str
    numbers: tuple[str, ...]
    value: float
    source: str
    title: str = ""
    apart: tuple[str, ...] = ()


@dataclass(frozen=True)
class Declared:
    """All that ``cards.toml`` says, by key."""

    models: Mapping[str, PublishedModel]
    sets: Mapping[str, QuestionSet]
    sources: Mapping[str, Source]
    published: Sequence[Published]


def read_declared(file: Path = HERE / "cards.toml") -> Declared:
    """Read the models, the sets, the sources and the published values; ValueError if a value can't be placed."""
    found = tomllib.loads(file.read_text(encoding="utf-8"))
    models = {
        key: PublishedModel(key=key, **_with_tuples(one)) for key, one in found["models"].items()
    }
    sets = {key: _question_set(key, one) for key, one in found["sets"].items()}
    sources = {key: Source(**one) for key, one in found["sources"].items()}
    published = [Published(**_with_tuples(one)) for one in found["published"]]
    for one in published:
        if one.model not in models or one.set not in sets or one.source not in sources:
            raise ValueError(
                f"{file.name}: {one} names a model, set or source that is not declared"
            )
        if not 1 < one.value <= 100:
            raise ValueError(f"{file.name}: {one} is not in percent")
    return Declared(models, sets, sources, published)


def _question_set(key: str, one: Mapping[str, Any]) -> QuestionSet:
    task = Task(**one["task"])
    return QuestionSet(key=key, **{**_with_tuples(one), "task": task})


def _with_tuples(one: Mapping[str, Any]) -> dict[str, Any]:
    made = {}
    for name, value in one.items():
        made[name] = tuple(value) if isinstance(value, list) else value
    return made


@dataclass(frozen=True)
class Number:
    """A measured accuracy, or a mean of some: ``value`` and the 95 % interval as shares of 1."""

    value: float
    low: float
    high: float


def number_of(published: Published, cells: Sequence[Mapping[str, Any]]) -> Number | None:
    """Return our number beside a published one; None if a part of it is not measured."""
    rows = []
    for name in published.numbers:
        row = _row(published.model, name, cells)
        if row is None:
            return None
        rows.append(row)
    if len(rows) == 1:
        return Number(rows[0]["value"], rows[0]["low"], rows[0]["high"])
    mean = sum(row["value"] for row in rows) / len(rows)
    error = math.sqrt(sum(row["se"] ** 2 for row in rows)) / len(rows)
    return Number(mean, mean - Z * error, mean + Z * error)


def _is_measured(model: str, name: str, cells: Sequence[Mapping[str, Any]]) -> bool:
    return any((cell["model"], cell["set"]) == (model, name) for cell in cells)


def _row(model: str, name: str, cells: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    for cell in cells:
        if cell["model"] == model and name in cell["numbers"]:
            row: Mapping[str, Any] = cell["numbers"][name]
            return row
    return None


def explanation(published: Published, number: Number) -> str:
    """Say what the difference between a published value and ours is, in the words of the page."""
    is_inside = number.low <= published.value / 100 <= number.high
    parts = list(published.apart)
    if is_inside:
        parts.append("inside the 95 % interval")
    elif parts:
        parts.append(f"what these do not explain is {UNEXPLAINED}")
    else:
        parts.append(UNEXPLAINED)
    return "; ".join(parts)


def command(model: str, name: str) -> str:
    """Return the line that measures a set with a model."""
    return f"`python benchmarks/cards.py --model {model} --set {name}`"


def published_table(
    declared: Declared, model: str, cells: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Return a row for every published value of a model, with our number and the difference."""
    keys = list(declared.sources)
    lines = [PUBLISHED_HEAD, "|---|--:|--:|--:|---|"]
    for published in declared.published:
        if published.model != model:
            continue
        label = published.title or f"`{published.numbers[0]}`"
        theirs = f"{published.value:g} [{keys.index(published.source) + 1}]"
        number = number_of(published, cells)
        if number is None:
            sets = dict.fromkeys(name.split("/")[0] for name in published.numbers)
            lacking = ", ".join(
                command(model, name) for name in sets if not _is_measured(model, name, cells)
            )
            lines.append(f"| {label} | not yet measured | {theirs} | | {lacking} |")
            continue
        ours = f"{percent(number.value)} [{percent(number.low)} – {percent(number.high)}]"
        points = f"{100 * number.value - published.value:+.1f}"
        lines.append(
            f"| {label} | {ours} | {theirs} | {points} | {explanation(published, number)} |"
        )
    return lines


def sources_list(declared: Declared) -> list[str]:
    """Return the numbered list of sources below the tables."""
    lines = []
    for place, source in enumerate(declared.sources.values(), 1):
        note = f": {source.note}" if source.note else ""
        lines.append(f"{place}. [{source.title}]({source.url}){note}")
    return lines


def cell_table(declared: Declared, model: str, cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a row for every set: its numbers under the headings of the page."""
    by_set = {cell["set"]: cell for cell in cells if cell["model"] == model}
    lines = [CELL_HEAD, "|---|" + "--:|" * (len(COLUMNS) + 2)]
    for key, one in declared.sets.items():
        cell = by_set.get(key)
        if cell is None:
            blank = " |" * (len(COLUMNS) + 1)
            lines.append(f"| {one.title} | not yet measured: {command(model, key)} |{blank}")
            continue
        numbers = cell["numbers"]
        values = [row["value"] for row in numbers.values()]
        shown = [_value(numbers, one.columns.get(column)) for column in COLUMNS]
        spread = f"{percent(min(values))} to {percent(max(values))} ({len(values)})"
        lines.append(f"| {one.title} | {cell['questions']:,} | {' | '.join(shown)} | {spread} |")
    return lines


def _value(numbers: Mapping[str, Any], name: str | None) -> str:
    if name is None:
        return ""
    return percent(numbers[name]["value"])


def harness_table(declared: Declared, checks: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a row for every model and set that the harness itself was asked, or the line that asks it."""
    lines = [HARNESS_HEAD, "|---|---|--:|--:|--:|--:|"]
    done = {(one["model"], one["set"]): one for one in checks}
    for model in declared.models.values():
        for key, one in declared.sets.items():
            check = done.get((model.key, key))
            if check is None:
                continue
            cells = [
                model.name,
                one.title,
                f"{check['questions']:,}",
                f"{check['largest difference']:.1e}",
                str(check["other decisions"]["acc"]),
                str(check["other decisions"]["acc_norm"]),
            ]
            lines.append(f"| {' | '.join(cells)} |")
    if not checks:
        return ["Not yet measured: `python benchmarks/cards.py --harness`"]
    missing = len(declared.models) * len(declared.sets) - len(checks)
    if missing:
        lines += [
            "",
            f"{missing} more are not yet measured: `python benchmarks/cards.py --harness`",
        ]
    return lines


def gallery(declared: Declared, cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the picture of MMLU's 49 numbers, or the line that draws it."""
    lines = []
    for model in declared.models.values():
        cell = next(
            (one for one in cells if (one["model"], one["set"]) == (model.key, "mmlu")), None
        )
        if cell is None:
            lines += [f"{model.name}: not yet measured, {command(model.key, 'mmlu')}", ""]
            continue
        values = sorted(row["value"] for row in cell["numbers"].values())
        spread = f"{percent(values[0])} to {percent(values[-1])} %"
        words = f"{model.name} on {cell['questions']:,} questions of MMLU, asked in {len(values)} ways: {spread}"
        lines += [f"![{words}](pictures/{model.key}-mmlu.svg)", "", f"*{words}.*", ""]
    return lines[:-1]


def percent(value: float) -> str:
    """Return a share of 1 in percent with one decimal."""
    return f"{100 * value:.1f}"


def tables(found: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the lines of every table of the page, by the name of its marks."""
    declared = read_declared()
    cells = found["cells"]
    made = {}
    for model in declared.models:
        made[f"published {model}"] = published_table(declared, model, cells)
        made[f"cells {model}"] = cell_table(declared, model, cells)
    made["sources"] = sources_list(declared)
    made["harness"] = harness_table(declared, found["harness"])
    made["gallery"] = gallery(declared, cells)
    return made
