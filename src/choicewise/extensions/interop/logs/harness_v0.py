"""Read what lm-eval before 0.4 writes out of a task: an object for each document.

``TASK_write_out_info.json`` is a list of objects with ``prompt_I`` and ``logit_I`` of every
request, ``truth``, and the task's metrics.  JSON Lines of the same objects, without the prompts,
are read too.
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
from choicewise.util.jsonio import JsonDict
from choicewise.util.text import common_start

ENDING = "_write_out_info"
"""End of the name of a file that the harness wrote, after the task."""

METRICS = ("acc", "acc_norm")
"""Values of an item that are recorded and checked."""


def recognises(path: Path) -> bool:
    """Return whether ``path`` is a write-out of lm-eval before 0.4, or lines of its objects."""
    if not path.is_file():
        return False
    if path.stem.endswith(ENDING) and path.suffix == ".json":
        return True
    return first_object(path).keys() >= {"logit_0", "truth"} or _is_list(path)


def _is_list(path: Path) -> bool:
    return begins_a_list(path, "logit_0", "truth")


def read_logs(paths: Sequence[Path], results: Path | None) -> Iterator[Log]:
    """Yield a log for each file."""
    for path in paths:
        rows = read_rows(path, _is_list(path), _id)
        if not rows.places:
            raise DataError(f"{path} is empty")
        task = "log"
        model = path.stem
        if model.endswith(ENDING):
            task = model.removesuffix(ENDING)
            model = "model"
        recorded = {} if results is None else _totals(results, task)
        yield Log(
            tool="lm-evaluation-harness 0.3",
            model=model,
            task=task,
            items=Reread(partial(_items, rows, _ending(rows))),
            settings={"file": path.name},
            recorded=recorded,
            unused=_unused(rows),
        )


def _unused(rows: Rows) -> tuple[str, ...]:
    """Return the columns that are not read, in words."""
    names: set[str] = set()
    for _, row in rows:
        names.update(row)
    names -= {"doc_id", "truth", *METRICS}
    columns = [name for name in sorted(names) if not name.startswith(("logit_", "prompt_"))]
    return (f"columns {', '.join(columns)}",) if columns else ()


def _totals(results: Path, task: str) -> dict[str, float]:
    try:
        numbers = whole(results)["results"][task].items()
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"{results} has no results of {task} as lm-evaluation-harness 0.3 writes them"
        ) from error
    return {str(name): float(value) for name, value in numbers if isinstance(value, int | float)}


def _id(row: JsonDict, where: str) -> int:
    doc_id = index(row.get("doc_id"))
    if doc_id is None:
        raise DataError(f"{where} has no doc_id; is it a write-out of lm-evaluation-harness 0.3?")
    return doc_id


def _items(rows: Rows, ending: str | None) -> Iterator[LoggedItem]:
    for doc_id, row in rows:
        yield _item(row, f"{rows.path}, doc_id {doc_id}", ending)


def _item(row: JsonDict, where: str, ending: str | None) -> LoggedItem:
    numbers = [name.removeprefix("logit_") for name in row if name.startswith("logit_")]
    last = max([int(number) for number in numbers if number.isdigit()], default=-1)
    # A key such as logit_999999999 must not make millions of choices.
    if not 0 <= last <= 10_000:
        raise DataError(
            f"{where} has no logit_0: its task was not scored by log-likelihoods of choices"
        )
    prompts = _prompts(row, last + 1)
    context = None
    question = None
    continuations: Sequence[str | None] = [None] * (last + 1)
    split = None if ending is None else _split(prompts, ending)
    if split is not None:
        context, continuations = split
    elif prompts:
        question = _shared_start(prompts)
    choices = []
    for choice in range(last + 1):
        name = f"logit_{choice}"
        missing = None if name in row else "the log has no row for it"
        loglikelihood = _loglikelihood(row.get(name), f"{where}, {name}")
        text = continuations[choice]
        choices.append(LoggedChoice(loglikelihood=loglikelihood, text=text, missing=missing))
    recorded = {}
    for name in METRICS:
        value = flag(row.get(name), f"{where}, {name}")
        if value is not None:
            recorded[name] = float(value)
    return LoggedItem(
        id=str(row["doc_id"]),
        gold=_gold(row.get("truth"), prompts),
        choices=tuple(choices),
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
    """Return the right choice; ``truth``: its index, or the end of its prompt."""
    choice = index(truth)
    if choice is not None:
        return (choice,)
    if not isinstance(truth, str) or not truth:
        return ()
    # A text may be the end of two choices, such as "town" and "a town".
    choices = tuple(choice for choice, prompt in enumerate(prompts) if prompt.endswith(truth))
    return choices if len(choices) == 1 else ()


def _prompts(row: JsonDict, count: int) -> list[str]:
    """Return the prompts of all choices, nothing if one is missing."""
    prompts = []
    for choice in range(count):
        prompt = row.get(f"prompt_{choice}")
        if not isinstance(prompt, str):
            return []
        prompts.append(prompt)
    return prompts


def _all_prompts(row: JsonDict) -> list[str]:
    return _prompts(row, sum(name.startswith("logit_") for name in row))


def _ending(rows: Rows) -> str | None:
    """Return the last line of all contexts, such as ``Answer:``, or None if they share none.

    The file joins each context and its continuation.  If the choices of an item begin with the same
    words, only the other items show where a continuation begins.  An ending is taken only if
    ``acc_norm`` of every item follows from it, and from no other ending.
    """
    endings: set[str] | None = None
    for _, row in rows:
        prompts = _all_prompts(row)
        if not prompts:
            return None
        line = _shared_start(prompts).rpartition("\n")[2]
        endings_of_item = {line[:end] for end, char in enumerate(line) if char == " "}
        if endings is None:
            endings = endings_of_item
        else:
            endings &= endings_of_item
        if not endings:
            return None
    fitting = []
    for ending in sorted(endings or ()):
        if ending and all(_follows(row, ending) for _, row in rows):
            fitting.append(ending)
    # With two endings that fit, the lengths of the texts are not known.
    return fitting[0] if len(fitting) == 1 else None


def _follows(row: JsonDict, ending: str) -> bool:
    """Return whether ``acc_norm`` follows from continuations that begin after ``ending``."""
    split = _split(_all_prompts(row), ending)
    recorded = flag(row.get("acc_norm"), "acc_norm")
    if split is None or recorded is None:
        return False
    _, continuations = split
    if not all(text.strip() for text in continuations):
        return False
    means = []
    for choice, text in enumerate(continuations):
        score = _loglikelihood(row.get(f"logit_{choice}"), "logit")
        if score is None:
            means.append(-inf)
        else:
            # The harness divides by the characters without the first space.
            means.append(score / len(text[1:]))
    is_right = means.index(max(means)) == index(row.get("truth"))
    return recorded == is_right


def _shared_start(texts: Sequence[str]) -> str:
    """Return the longest text that all ``texts`` begin with."""
    return min(texts, default="")[: common_start(texts)]


def _split(prompts: Sequence[str], ending: str) -> tuple[str, list[str]] | None:
    """Split ``prompts`` after the line of their common start that begins with ``ending``.

    The result is their context and a continuation for each choice.
    """
    shared = _shared_start(prompts)
    start = shared.rfind("\n" + ending)
    end = start + 1 + len(ending)
    if start < 0 or not all(prompt[end:].startswith(" ") for prompt in prompts):
        return None
    return shared[:end], [prompt[end:] for prompt in prompts]
