"""Lm-eval before 0.4.

``TASK_write_out_info.json`` is a list with an object for each document: ``prompt_I`` and ``logit_I`` of every request,
``truth``, and the task's metrics.  Some are kept as JSON Lines of the same objects, without the prompts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

from choicewise.errors import DataError
from choicewise.extensions.interop.logs.files import (
    Rows,
    begins_a_list,
    first_object,
    flag,
    index,
    number,
    read_rows,
    whole,
)
from choicewise.logs import Log, LoggedChoice, LoggedItem, Reread

ENDING = "_write_out_info"
"""What the name of a file of the harness's own ends with, after the task."""


def recognises(path: Path) -> bool:
    """Return whether ``path`` is of this tool, or holds files of it."""
    if not path.is_file():
        return False
    written_out = path.stem.endswith(ENDING) and path.suffix == ".json"
    return written_out or {"logit_0", "truth"} <= first_object(path).keys() or _is_list(path)


def _is_list(path: Path) -> bool:
    return begins_a_list(path, "logit_0", "truth")


def read_logs(paths: Sequence[Path], results: Path | None) -> Iterator[Log]:
    """Yield a log for each model and task."""
    for path in paths:
        rows = read_rows(path, _is_list(path), _id)
        if not rows.places:
            raise DataError(f"{path} is empty")
        known = {"doc_id", "truth", *METRICS}
        unused = sorted(
            {
                key
                for _, row in rows
                for key in row
                if key not in known and not key.startswith(("logit_", "prompt_"))
            }
        )
        named = path.stem.endswith(ENDING)
        task = path.stem.removesuffix(ENDING) if named else "log"
        model = "model" if named else path.stem
        left_out = (f"columns {', '.join(unused)}",) if unused else ()
        totals = {} if results is None else _totals(results, task)
        yield Log(
            tool="lm-evaluation-harness 0.3",
            model=model,
            task=task,
            items=Reread(partial(_items, rows, _ending(rows))),
            settings={"file": path.name},
            recorded=totals,
            unused=left_out,
        )


def _totals(results: Path, task: str) -> dict[str, float]:
    try:
        own = whole(results)["results"][task]
        return {
            str(name): float(value) for name, value in own.items() if isinstance(value, int | float)
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"{results} has no results of {task} as lm-evaluation-harness 0.3 writes them"
        ) from error


METRICS = ("acc", "acc_norm")
"""What is recorded of an item and checked."""


def _id(row: dict[str, Any], where: str) -> int:
    number = index(row.get("doc_id"))
    if number is None:
        raise DataError(f"{where} has no doc_id; is it a write-out of lm-evaluation-harness 0.3?")
    return number


def _items(rows: Rows, ending: str | None) -> Iterator[LoggedItem]:
    return (_item(row, f"{rows.path}, doc_id {key}", ending) for key, row in rows)


def _item(row: dict[str, Any], where: str, ending: str | None) -> LoggedItem:
    places = sorted(int(key[6:]) for key in row if key.startswith("logit_") and key[6:].isdigit())
    if not places or places[-1] > 10_000:
        raise DataError(
            f"{where} has no logit_0: its task was not scored by log-likelihoods of choices"
        )
    prompts = _prompts(row, places[-1] + 1)
    context, texts = _split(prompts, ending) if prompts and ending is not None else (None, None)
    choices = tuple(
        LoggedChoice(
            loglikelihood=_loglikelihood(row.get(f"logit_{place}"), f"{where}, logit_{place}"),
            text=None if texts is None else texts[place],
            missing=None if f"logit_{place}" in row else "the log has no row for it",
        )
        for place in range(places[-1] + 1)
    )
    recorded = {
        name: float(value)
        for name in METRICS
        if (value := flag(row.get(name), f"{where}, {name}")) is not None
    }
    question = _shared_start(prompts) if prompts and context is None else None
    gold = _gold(row.get("truth"), prompts)
    return LoggedItem(
        id=str(row["doc_id"]),
        gold=gold,
        choices=choices,
        context=context,
        question=question,
        recorded=recorded,
    )


def _loglikelihood(cell: Any, where: str) -> float | None:
    if isinstance(cell, list):
        raise DataError(
            f"{where} is a list: its task asks for more than the log-likelihoods of choices"
        )
    return number(cell, where)


def _gold(truth: Any, prompts: Sequence[str]) -> tuple[int, ...]:
    """The right choice: an index, or the text that a prompt ends with."""
    place = index(truth)
    if place is not None:
        return (place,)
    ends = [
        place
        for place, prompt in enumerate(prompts)
        if isinstance(truth, str) and truth and prompt.endswith(truth)
    ]
    return tuple(ends) if len(ends) == 1 else ()


def _prompts(row: dict[str, Any], count: int) -> list[str]:
    """The prompts of all choices, each a context with its continuation; none where one is missing."""
    prompts = [
        prompt for place in range(count) if isinstance(prompt := row.get(f"prompt_{place}"), str)
    ]
    return prompts if len(prompts) == count else []


def _ending(rows: Rows) -> str | None:
    """The last line of all contexts, such as ``Answer:``; None where they have none in common.

    The file joins each context and its continuation.  Where choices begin with the same words, only what is the same in
    other items tells where they begin; and it is believed only where ``acc_norm`` of every item follows from it, and
    from no other way to divide the texts.
    """
    ends: set[str] | None = None
    for _, row in rows:
        if not (prompts := _prompts(row, sum(key.startswith("logit_") for key in row))):
            return None
        line = _shared_start(prompts).rpartition("\n")[2]
        own = {line[:place] for place, char in enumerate(line) if char == " "}
        ends = own if ends is None else ends & own
        if not ends:
            return None
    fitting = [
        end for end in sorted(ends or ()) if end and all(_follows(row, end) for _, row in rows)
    ]
    return fitting[0] if len(fitting) == 1 else None


def _follows(row: dict[str, Any], ending: str) -> bool:
    """Whether ``acc_norm`` of an item is what it is with continuations that begin after ``ending``."""
    prompts = _prompts(row, sum(key.startswith("logit_") for key in row))
    _, texts = _split(prompts, ending) if prompts else (None, None)
    said, truth = flag(row.get("acc_norm"), "acc_norm"), index(row.get("truth"))
    if texts is None or said is None or not all(text.strip() for text in texts):
        return False
    scores = [_loglikelihood(row.get(f"logit_{place}"), "logit") for place in range(len(texts))]
    means = [
        -inf if score is None else score / len(text[1:])
        for score, text in zip(scores, texts, strict=True)
    ]
    return said == (means.index(max(means)) == truth)


def _shared_start(texts: Sequence[str]) -> str:
    """The longest text that all ``texts`` begin with: that of the first and the last in order."""
    first, last = min(texts), max(texts)
    return first[
        : next(
            (place for place, char in enumerate(first) if last[place : place + 1] != char),
            len(first),
        )
    ]


def _split(prompts: Sequence[str], ending: str) -> tuple[str | None, list[str] | None]:
    """Context and continuations of ``prompts``, where the last line of what they share begins with ``ending``."""
    shared = _shared_start(prompts)
    start = shared.rfind("\n" + ending)
    end = start + 1 + len(ending)
    if start < 0 or not all(prompt[end:].startswith(" ") for prompt in prompts):
        return None, None
    return shared[:end], [prompt[end:] for prompt in prompts]
