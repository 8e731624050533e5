"""Lm-eval before 0.4.

``TASK_write_out_info.json`` is a list with an object for each document: ``prompt_I`` and ``logit_I`` of every request,
``truth``, and the task's metrics.  Some are kept as JSON Lines of the same objects, without the prompts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from choicewise.data.files import read_text
from choicewise.errors import DataError
from choicewise.interchange.logs.files import HEAD, Reader, first_object, flag, index, number, object_at, objects
from choicewise.interchange.logs.log import Log, LoggedChoice, LoggedItem

ENDING = "_write_out_info"
"""What the name of a file of the harness's own ends with, after the task."""

_TOOL = "lm-evaluation-harness 0.3"


def _recognises(path: Path) -> bool:
    if not path.is_file():
        return False
    if path.stem.endswith(ENDING) and path.suffix == ".json":
        return True
    return {"logit_0", "truth"} <= first_object(path).keys() or _begins_a_list(path)


def _begins_a_list(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            start = file.read(HEAD).decode(errors="replace").lstrip("\ufeff \n\r\t")
    except OSError:
        return False
    return start.startswith("[") and '"logit_0"' in start and '"truth"' in start


def _read(paths: Sequence[Path], results: Path | None) -> Iterator[Log]:
    for path in paths:
        rows = _Rows.of(path)
        unused = sorted({key for row in rows for key in row if _unused(key)})
        named = path.stem.endswith(ENDING)
        task = path.stem.removesuffix(ENDING) if named else "log"
        model = "model" if named else path.stem
        left_out = (f"columns {', '.join(unused)}",) if unused else ()
        totals = {} if results is None else _totals(results, task)
        yield Log(
            _TOOL, model, task, _Items(path, rows, _ending(rows)), {"file": path.name}, recorded=totals, unused=left_out
        )


def _totals(results: Path, task: str) -> dict[str, float]:
    try:
        content = json.loads(read_text(results))
        own = content["results"][task]
        return {str(name): float(value) for name, value in own.items() if isinstance(value, int | float)}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"{results} has no results of {task} as lm-evaluation-harness 0.3 writes them") from error


def _unused(key: str) -> bool:
    known = key in {"doc_id", "truth", *METRICS} or key.startswith(("logit_", "prompt_"))
    return not known


METRICS = ("acc", "acc_norm")
"""What is recorded of an item and checked."""

MOST = 10_000
"""Choices of an item."""


class _Rows:
    """The objects of a file in the order of their ids; JSON Lines are read again from the disk, a list is kept."""

    def __init__(self, path: Path, places: Sequence[tuple[int, int]], rows: Sequence[dict[str, Any]] | None) -> None:
        self._path, self._places, self._rows = path, places, rows

    @classmethod
    def of(cls, path: Path) -> _Rows:
        """The rows of ``path``; DataError where it is neither a list nor lines of such objects."""
        if _begins_a_list(path):
            try:
                rows = json.loads(read_text(path))
            except (ValueError, RecursionError) as error:
                raise DataError(f"{path}: no JSON ({error}); was its writing cut off? Copy it again") from error
            if wrong := [place for place, row in enumerate(rows) if not isinstance(row, dict)]:
                raise DataError(f"{path}: entry {wrong[0]} (counted from 0) is no JSON object")
            places = [(_id(row, f"{path}, entry {place}"), place) for place, row in enumerate(rows)]
            return cls(path, sorted(places), rows)
        places = [(_id(row, f"{path}, line {line}"), offset) for line, offset, row in objects(path)]
        if not places:
            raise DataError(f"{path} is empty")
        return cls(path, sorted(places), None)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for _, place in self._places:
            yield object_at(self._path, place) if self._rows is None else self._rows[place]


def _id(row: dict[str, Any], where: str) -> int:
    number = index(row.get("doc_id"))
    if number is None:
        raise DataError(f"{where} has no doc_id; is it a write-out of lm-evaluation-harness 0.3?")
    return number


@dataclass(frozen=True)
class _Items:
    path: Path
    rows: _Rows
    ending: str | None

    def __iter__(self) -> Iterator[LoggedItem]:
        return (_item(row, f"{self.path}, doc_id {row['doc_id']}", self.ending) for row in self.rows)


def _item(row: dict[str, Any], where: str, ending: str | None) -> LoggedItem:
    places = sorted(int(key[6:]) for key in row if key.startswith("logit_") and key[6:].isdigit())
    if not places or places[-1] > MOST:
        raise DataError(f"{where} has no logit_0: its task was not scored by log-likelihoods of choices")
    prompts = _prompts(row, places[-1] + 1)
    context, texts = _split(prompts, ending) if prompts and ending is not None else (None, None)
    choices = tuple(
        LoggedChoice(
            _loglikelihood(row.get(f"logit_{place}"), f"{where}, logit_{place}"),
            None if texts is None else texts[place],
            missing=None if f"logit_{place}" in row else "the log has no row for it",
        )
        for place in range(places[-1] + 1)
    )
    recorded = {
        name: float(value) for name in METRICS if (value := flag(row.get(name), f"{where}, {name}")) is not None
    }
    question = _shared_start(prompts) if prompts and context is None else None
    gold = _gold(row.get("truth"), prompts)
    return LoggedItem(str(row["doc_id"]), gold, choices, context, question=question, recorded=recorded)


def _loglikelihood(cell: Any, where: str) -> float | None:
    if isinstance(cell, list):
        raise DataError(f"{where} is a list: its task asks for more than the log-likelihoods of choices")
    return number(cell, where)


def _gold(truth: Any, prompts: Sequence[str]) -> tuple[int, ...]:
    """The right choice: an index, or the text that a prompt ends with."""
    place = index(truth)
    if place is not None:
        return (place,)
    ends = [
        place for place, prompt in enumerate(prompts) if isinstance(truth, str) and truth and prompt.endswith(truth)
    ]
    return tuple(ends) if len(ends) == 1 else ()


def _prompts(row: dict[str, Any], count: int) -> list[str]:
    """The prompts of all choices, each a context with its continuation; none where one is missing."""
    prompts = [row.get(f"prompt_{place}") for place in range(count)]
    return [prompt for prompt in prompts if isinstance(prompt, str)] if all(map(_is_text, prompts)) else []


def _is_text(prompt: Any) -> bool:
    return isinstance(prompt, str)


def _ending(rows: _Rows) -> str | None:
    """The last line of all contexts, such as ``Answer:``; None where they have none in common.

    The file joins each context and its continuation.  Where choices begin with the same words, only what is the same in
    other items tells where they begin; and it is believed only where ``acc_norm`` of every item follows from it, and
    from no other way to divide the texts.
    """
    ends: set[str] | None = None
    for row in rows:
        if not (prompts := _prompts(row, sum(key.startswith("logit_") for key in row))):
            return None
        line = _shared_start(prompts).rpartition("\n")[2]
        own = {line[:place] for place, char in enumerate(line) if char == " "}
        ends = own if ends is None else ends & own
        if not ends:
            return None
    fitting = [end for end in sorted(ends or ()) if end and all(_follows(row, end) for row in rows)]
    return fitting[0] if len(fitting) == 1 else None


def _follows(row: dict[str, Any], ending: str) -> bool:
    """Whether ``acc_norm`` of an item is what it is with continuations that begin after ``ending``."""
    prompts = _prompts(row, sum(key.startswith("logit_") for key in row))
    _, texts = _split(prompts, ending) if prompts else (None, None)
    said, truth = flag(row.get("acc_norm"), "acc_norm"), index(row.get("truth"))
    if texts is None or said is None or not all(text.strip() for text in texts):
        return False
    scores = [_loglikelihood(row.get(f"logit_{place}"), "logit") for place in range(len(texts))]
    means = [-inf if score is None else score / len(text[1:]) for score, text in zip(scores, texts, strict=True)]
    return said == (means.index(max(means)) == truth)


def _shared_start(texts: Sequence[str]) -> str:
    """The longest text that all ``texts`` begin with: that of the first and the last in order."""
    first, last = min(texts), max(texts)
    return first[: next((place for place, char in enumerate(first) if last[place : place + 1] != char), len(first))]


def _split(prompts: Sequence[str], ending: str) -> tuple[str | None, list[str] | None]:
    """Context and continuations of ``prompts``, where the last line of what they share begins with ``ending``."""
    shared = _shared_start(prompts)
    start = shared.rfind("\n" + ending)
    end = start + 1 + len(ending)
    if start < 0 or not all(prompt[end:].startswith(" ") for prompt in prompts):
        return None, None
    return shared[:end], [prompt[end:] for prompt in prompts]


READER = Reader("write-out of lm-evaluation-harness 0.3", _recognises, _read)
