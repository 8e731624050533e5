"""Lighteval.

Read from huggingface/lighteval@3fd1526 (2026), @8d9ecd6 (0.9.2) and @e469d7e (January 2024),
logging/evaluation_tracker.py: ``OUT/details/MODEL/DATE/details_...`` beside ``OUT/results/MODEL/results_...``; on the
Hub ``DATE/details_...`` beside ``results_...``.

Until 0.9 (read at huggingface/lighteval@8d9ecd6 and @e469d7e, logging/info_loggers.py, class Detail) a row has the
columns ``example``, ``full_prompt``, ``choices``, ``gold_index``, ``predictions`` (a log-likelihood, or it and whether
it was greedy), ``cont_tokens`` and ``metrics``; releases 0.4 to 0.7 write every cell as the text of a Python value.
Since 0.10 (@3fd1526) it has ``doc``, ``model_response`` and ``metric``.
"""

from __future__ import annotations

import re
from ast import literal_eval
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import isfinite, nan
from pathlib import Path
from typing import Any, Final

from choicewise.errors import DataError
from choicewise.extensions.interop.logs.files import laid_out_by, whole
from choicewise.extensions.interop.logs.verdicts import (
    acc,
    acc_mutual_info,
    acc_norm,
    bare_texts,
    first_best,
    per_character,
    per_token,
    scored_texts,
)
from choicewise.logs import Log, LoggedChoice, LoggedItem, Unreadable, Verdict

PARTS: Final = 5
"""So many parts of one task (MMLU's subjects) are one log with a subject each; fewer remain tasks of their own."""

_PART: Final = re.compile(
    r"(?P<suite>[^|]*\|)?(?P<parent>[^|:]+?)(?::|(?<=hendrycksTest)-)(?P<part>[^|]+)(?P<rest>\|.*)?"
)


def recognises(path: Path) -> bool:
    """Return whether ``path`` is of this tool, or holds files of it."""
    if path.is_dir():
        return next(path.rglob("details_*.parquet"), None) is not None
    return path.name.startswith("details_") and path.suffix == ".parquet"


def read_logs(paths: Sequence[Path], results: Path | None) -> Iterator[Log]:
    """A log for every model and task, of the newest date where there are several."""
    named = [sorted(path.rglob("details_*.parquet")) if path.is_dir() else [path] for path in paths]
    files = dict.fromkeys(chain.from_iterable(named))
    newest: dict[tuple[str, str], Task] = {}
    older: list[str] = []
    for task in sorted((read_task(file, results) for file in files), key=lambda each: each.date):
        if (task.model, task.name) in newest:
            older.append(
                f"{newest[task.model, task.name].path.name} is older than another of its task"
            )
        newest[task.model, task.name] = task
    together: dict[tuple[str, str], list[tuple[str, Task]]] = {}
    for task in newest.values():
        name, part = _parent(task, newest)
        together.setdefault((task.model, name), []).append((part, task))
    kept, other = list[Log](), list[str]()
    for (model, name), tasks in together.items():
        try:
            log = _log(model, name, tasks)
        except DataError as error:  # the other tasks are kept
            log = Log(tool="lighteval", model=model, task=name, items=Unreadable(error))
        if log is None:
            other.append(f"{tasks[0][1].name} is no multiple choice")
        else:
            kept.append(log)
    if not kept:
        raise DataError(
            f"{', '.join(map(str, paths))}: {'; '.join(other) or 'no details of lighteval'}"
        )
    for log in kept:
        yield replace(log, unused=(*log.unused, *older, *other))


def _parent(task: Task, tasks: Mapping[tuple[str, str], Task]) -> tuple[str, str]:
    """The task's name and part: ``leaderboard|mmlu:anatomy|5`` → ``leaderboard|mmlu|5`` and anatomy."""
    match = _PART.fullmatch(task.name)
    if match is None:
        return task.name, ""
    whole_name = "".join([match["suite"] or "", match["parent"], match["rest"] or ""])
    others = [_PART.fullmatch(name) for model, name in tasks if model == task.model]
    alike = [
        each
        for each in others
        if each and (each["suite"], each["parent"], each["rest"]) == match.group(1, 2, 4)
    ]
    return (whole_name, match["part"]) if len(alike) >= PARTS else (task.name, "")


def _log(model: str, name: str, tasks: Sequence[tuple[str, Task]]) -> Log | None:
    """The log, or None where the task is no multiple choice."""
    items: list[LoggedItem] = []
    nulls: set[str | None] = set()
    truncated = 0
    for part, task in tasks:
        for number, row in enumerate(_rows(task.path)):
            place = f"{task.path}, row {number}"
            with laid_out_by("lighteval", task.path):
                given = detail(row, number, place)
                item = logged_item(given, part, place)
            if item is None and items:
                raise DataError(
                    f"{place} is no multiple choice, and those before it are; is it of two tasks?"
                )
            if item is None:
                return None
            items.append(replace(item, id=f"{part}/{item.id}") if part else item)
            if any(choice.unconditional is not None for choice in item.choices):
                nulls.add(given.null)
            truncated += given.truncated > 0
    if not items:
        raise DataError(f"{tasks[0][1].path} holds no rows; the task was not run")
    if len({item.id for item in items}) < len(items):
        items = [
            replace(item, id=f"{item.subject}/{number}".lstrip("/"))
            for number, item in enumerate(items)
        ]
    cut = {"truncated": f"{truncated} of {len(items)} items"} if truncated else {}
    return Log(
        tool="lighteval",
        model=model,
        task=name,
        items=tuple(items),
        settings={**tasks[0][1].settings, **cut},
        null=next(iter(nulls)) if len(nulls) == 1 else None,
        recorded=tasks[0][1].totals if len(tasks) == 1 else {},
    )


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a file, without the token ids of the prompts, which are most of it."""
    import pyarrow as pa

    from choicewise.util.files import TABLE, open_file
    from choicewise.util.tables import open_parquet, unpacked

    try:
        with open_file(path, TABLE) as file:
            table = open_parquet(file)
            columns = [name for name in table.schema_arrow.names if name in COLUMNS]
            unpacked(file, columns, whole=False)
            for batch in table.iter_batches(256, columns=columns, use_threads=False):
                yield from batch.to_pylist()
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} can't be read as Parquet: {error}; copy it again") from error


def logged_item(given: Detail, subject: str, place: str) -> LoggedItem | None:
    """The item, or None where the row is no multiple-choice question: text was generated, or a text was scored."""
    if len(given.choices) < 2 or any(isinstance(each, str) for each in given.predictions):
        return None
    if not all(isinstance(index, int) for index in given.gold):
        raise DataError(
            f"{place} has gold {list(given.gold)}; it is an index, or a list of them, counted from 0"
        )
    return LoggedItem(
        id=given.id,
        gold=tuple(sorted(set(given.gold))),
        choices=tuple(_choice(given, index) for index in range(len(given.choices))),
        context=given.context,
        subject=subject,
        question=given.question or None,
        recorded={name: float(value) for name, value in given.metrics.items() if _is_number(value)},
    )


def _choice(given: Detail, index: int) -> LoggedChoice:
    choices, said = len(given.choices), len(given.predictions)
    text, tokens = str(given.choices[index]), _token_count(given.tokens, index, choices)
    if said not in (choices, 2 * choices):
        return LoggedChoice(
            text=text, missing=f"the log has {said} predictions for {choices} choices"
        )
    value, greedy = _likelihood(given, index)
    if not _is_number(value):
        return LoggedChoice(
            text=text, tokens=tokens, missing=f"its log-likelihood in the log is {value}"
        )
    after_null = _likelihood(given, choices + index)[0] if said == 2 * choices else None
    unconditional = float(after_null) if _is_number(after_null) and after_null is not None else None
    return LoggedChoice(
        loglikelihood=float(value),
        text=text,
        tokens=tokens,
        greedy=greedy,
        unconditional=unconditional,
    )


def _likelihood(given: Detail, place: int) -> tuple[Any, bool | None]:
    """A log-likelihood and whether it was greedy, None where the row does not say."""
    value, flag = (
        given.predictions[place],
        given.greedy[place] if place < len(given.greedy) else None,
    )
    if isinstance(value, list | tuple):
        value, flag = (*value, None, None)[:2]
    return value, None if flag is None else bool(flag)


def _token_count(tokens: Sequence[Any], index: int, choices: int) -> int | None:
    """How many tokens were scored; -1 fills the shorter rows of a batch."""
    if len(tokens) == 1 and isinstance(tokens[0], list) and len(tokens[0]) == choices > 1:
        return 1  # one token a choice, all from one request
    mine = tokens[index] if index < len(tokens) else None
    if not isinstance(mine, list | tuple):
        return None
    return sum(isinstance(token, int) and token >= 0 for token in mine) or None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and isfinite(value)


LONGEST: Final = 1_000_000
"""Characters of a Python value in a cell: the token ids of a few long prompts."""

_NUMPY: Final = re.compile(r"np\.\w+\(([^()]*)\)")
_NO_LITERAL: Final = re.compile(r"(?<![\w'\"])(-?)(nan|inf)(?![\w'\"])")

COLUMNS: Final = (
    *(
        "example",
        "full_prompt",
        "choices",
        "gold_index",
        "gold",
        "predictions",
        "cont_tokens",
        "truncated",
        "metrics",
    ),
    *("specifics", "acc", "acc_norm", "mc1", "mc2", "doc", "model_response", "metric"),
)
"""The columns that are read; token ids of the prompts are not."""


@dataclass(frozen=True, slots=True)
class Detail:
    """A row, whichever layout it came in.  ``predictions``: of the choices, then of the same after the null context."""

    id: str
    question: str
    context: str | None
    choices: Sequence[str]
    gold: Sequence[int]
    predictions: Sequence[Any]
    greedy: Sequence[Any]
    tokens: Sequence[Any]
    truncated: int
    null: str | None
    metrics: Mapping[str, Any]


def detail(row: Mapping[str, Any], number: int, place: str) -> Detail:
    """The row at ``number`` (from 0).  Raises DataError where it is no row of details."""
    if isinstance(row.get("doc"), dict):
        return _since_0_10(row, number)
    if "predictions" not in row:
        raise DataError(
            f"{place} has neither the column predictions nor doc; it is no row of lighteval's details"
        )
    return _until_0_9(row, number, place)


def _until_0_9(row: Mapping[str, Any], number: int, place: str) -> Detail:
    def cell(name: str) -> Any:
        value = row.get(name)
        return _value(value, f"{place}, column {name}") if isinstance(value, str) else value

    metrics = cell("metrics") or {name: row.get(name) for name in ("acc", "acc_norm", "mc1", "mc2")}
    given = row.get("gold")  # an index, or the right text where text is generated
    is_index = all(
        isinstance(each, int) for each in (given if isinstance(given, list) else [given])
    )
    gold = (
        cell("gold_index")
        if row.get("gold_index") not in (None, [], "[]")
        else given
        if is_index
        else []
    )
    specifics = cell("specifics") if isinstance(row.get("specifics"), str | dict) else None
    null = specifics.get("unconditioned_query") if isinstance(specifics, dict) else None
    return Detail(
        id=str(number),
        question=_text(row.get("example")) or "",
        context=_text(row.get("full_prompt")),
        choices=_list(cell("choices")),
        gold=_list(gold),
        predictions=_list(cell("predictions")),
        greedy=(),
        tokens=_list(cell("cont_tokens")),
        truncated=sum(each > 0 for each in _list(cell("truncated")) if isinstance(each, int)),
        null=null if isinstance(null, str) else None,
        metrics=metrics if isinstance(metrics, dict) else {},
    )


def _since_0_10(row: Mapping[str, Any], number: int) -> Detail:
    doc, response = row["doc"], row.get("model_response") or {}
    gold = doc.get("gold_index")
    return Detail(
        id=str(doc.get("id") or number),
        question=_text(doc.get("query")) or "",
        context=_text(response.get("input")),
        choices=_list(doc.get("choices")),
        gold=_list(gold) if isinstance(gold, list) else [] if gold is None else [gold],
        predictions=_list(response.get("logprobs")) or _list(response.get("text")),
        greedy=_list(response.get("argmax_logits_eq_gold")),
        tokens=_list(response.get("output_tokens")),
        truncated=int(bool(response.get("truncated_tokens_count"))),
        null=_text(doc.get("unconditioned_query")),
        metrics=row.get("metric") or {},
    )


def _value(cell: str, place: str) -> Any:
    """The Python value that a cell spells, which runs no code; nan is None, as nothing is scored with it."""
    if len(cell) > LONGEST:
        raise DataError(
            f"{place} holds {len(cell)} characters; a value in it has {LONGEST} at most"
        )
    plain = _NO_LITERAL.sub(
        lambda match: "None" if match[2] == "nan" else match[1] + "1e999", _NUMPY.sub(r"\1", cell)
    )
    for spelled in (cell, plain):
        try:
            return literal_eval(spelled)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            continue
    raise DataError(f"{place} holds no value of Python: {cell[:40]!r}")


def _text(cell: Any) -> str | None:
    return cell if isinstance(cell, str) else None


def _list(cell: Any) -> Sequence[Any]:
    return cell if isinstance(cell, list | tuple) else ()


_FILE: Final = re.compile(r"details_(?P<task>.+)_(?P<date>\d{4}-\d{2}-\d{2}T[\d.-]+)\.parquet")


@dataclass(frozen=True)
class Task:
    """The details of one task, and what the file of results says of it."""

    path: Path
    name: str
    date: str
    model: str
    settings: Mapping[str, str]
    totals: Mapping[str, float]


def read_task(path: Path, results: Path | None) -> Task:
    """The task of the details at ``path``; ``results``: the file of results where it is named.

    Raises DataError where that file is of something else.
    """
    match = _FILE.fullmatch(path.name)
    name, date = (
        (match["task"], match["date"]) if match else (path.stem.removeprefix("details_"), "")
    )
    file = results or next((each for each in _beside(path, date) if each.is_file()), None)
    said = whole(file) if file else {}
    if not isinstance(said, dict) or (file and not isinstance(said.get("config_general"), dict)):
        raise DataError(f"{file} is no file of results of lighteval: it has no config_general")
    with laid_out_by("lighteval", file or path):
        if results and name not in (said.get("results") or {}):
            raise DataError(
                f"{results} says nothing of the task {name}; it belongs to other details"
            )
        general = said.get("config_general") or {}
        config = general.get("model_config") or {}
        model = general.get("model_name") or config.get("model_name") or _folder_model(path)
        settings = {
            "lighteval_sha": general.get("lighteval_sha"),
            "model_sha": general.get("model_sha") or config.get("revision"),
            "dtype": general.get("model_dtype") or config.get("dtype"),
            "max_samples": general.get("max_samples"),
            "version": (said.get("versions") or {}).get(name),
            "shots": next((part for part in name.split("|")[1:] if part.isdecimal()), None),
        }
        known = {key: str(value) for key, value in settings.items() if value not in (None, "", "?")}
        totals = (said.get("results") or {}).get(name) or {}
        numbers = {key: float(value) for key, value in totals.items() if _is_number(value)}
        return Task(path, name, date, str(model), known, numbers)


def _beside(path: Path, date: str) -> Iterator[Path]:
    """Where the file of results of these details may lie."""
    name = f"results_{date}.json"
    yield from (folder / name for folder in (path.parent, path.parent.parent))
    folders = path.absolute().parent.parts
    if "details" in folders:
        place = len(folders) - 1 - folders[::-1].index("details")
        yield Path(*folders[:place], "results", *folders[place + 1 : -1], name)


def _folder_model(path: Path) -> str:
    """``OUT/details/ORG/MODEL/DATE/details_...`` → ORG/MODEL, and so ``details_ORG__MODEL`` on the Hub."""
    folders = path.absolute().parent.parts
    if "details" in folders[:-1]:
        return "/".join(folders[len(folders) - folders[::-1].index("details") : -1])
    named = [folder.removeprefix("details_") for folder in folders if folder.startswith("details_")]
    return (named or folders[-1:])[-1].replace("__", "/")


def _acc_with_space(log: Log, item: LoggedItem) -> float:
    return first_best(item, per_character(item, scored_texts(item)))


def _acc_per_token(log: Log, item: LoggedItem) -> float:
    return first_best(item, per_token(item))


def _acc_either_norm(log: Log, item: LoggedItem) -> float:
    """Return the credit if it is the same with and without a choice's first space, else NaN.

    acc_norm before 0.10 counts that space in some tasks and in others not.
    """
    with_space = first_best(item, per_character(item, scored_texts(item)))
    without = first_best(item, per_character(item, bare_texts(item)))
    return with_space if with_space == without else nan


_NORM = "acc:logprob_normalization=LogProb"

VERDICTS: Final[Mapping[str, Verdict]] = {
    "acc": acc,
    "acc_norm": _acc_either_norm,
    f"{_NORM}CharNorm(name='norm', ignore_first_space=False)": _acc_with_space,
    f"{_NORM}CharNorm(name='norm', ignore_first_space=True)": acc_norm,
    f"{_NORM}TokenNorm(name='norm_token')": _acc_per_token,
    f"{_NORM}PMINorm(name='norm_pmi')": acc_mutual_info,
}
"""LoglikelihoodAcc with its normalisations (metrics/metrics_sample.py and normalizations.py@3fd1526)."""
