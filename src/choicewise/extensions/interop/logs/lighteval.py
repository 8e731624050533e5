"""Read the details of lighteval: a Parquet file of rows for each task, and the results beside it.

Read from huggingface/lighteval@3fd1526 (2026), @8d9ecd6 (0.9.2) and @e469d7e (January 2024),
logging/evaluation_tracker.py: ``OUT/details/MODEL/DATE/details_...`` beside
``OUT/results/MODEL/results_...``; on the Hub ``DATE/details_...`` beside ``results_...``.

Until 0.9 (read at huggingface/lighteval@8d9ecd6 and @e469d7e, logging/info_loggers.py, class
Detail) a row has the columns ``example``, ``full_prompt``, ``choices``, ``gold_index``,
``predictions`` (a log-likelihood, or it and whether it was greedy), ``cont_tokens`` and
``metrics``; releases 0.4 to 0.7 write every cell as the text of a Python value.  Since 0.10
(@3fd1526) it has ``doc``, ``model_response`` and ``metric``.
"""

from __future__ import annotations

import re
from ast import literal_eval
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import nan
from pathlib import Path
from typing import Any

from choicewise.errors import DataError
from choicewise.extensions.interop.logs.files import is_finite, laid_out_by, mapping, whole
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
from choicewise.util.jsonio import JsonDict, JsonMapping

PARTS = 5
"""The fewest parts of a task (MMLU's subjects) that become one log; fewer stay separate."""

_PART = re.compile(
    r"(?P<suite>[^|]*\|)?(?P<parent>[^|:]+?)(?::|(?<=hendrycksTest)-)(?P<part>[^|]+)(?P<rest>\|.*)?"
)


def recognises(path: Path) -> bool:
    """Return whether ``path`` is a file of details, or a folder that holds one."""
    if path.is_dir():
        return any(path.rglob("details_*.parquet"))
    return path.name.startswith("details_") and path.suffix == ".parquet"


def read_logs(paths: Sequence[Path], results: Path | None) -> Iterator[Log]:
    """Yield a log for every model and task, of the newest date if there are several."""
    newest: dict[tuple[str, str], Task] = {}
    notes = []
    tasks = [read_task(file, results) for file in _files(paths)]
    for task in sorted(tasks, key=lambda task: task.date):
        older = newest.get((task.model, task.name))
        if older is not None:
            notes.append(f"{older.path.name} is older than another of its task")
        newest[task.model, task.name] = task
    tasks_of_log: dict[tuple[str, str], list[Task]] = {}
    for task in _with_parents(list(newest.values())):
        tasks_of_log.setdefault((task.model, task.parent), []).append(task)
    logs = []
    other_tasks = []
    for (model, name), parts in tasks_of_log.items():
        try:
            log = _log(model, name, parts)
        except DataError as error:
            # The other tasks are kept.
            log = Log(tool="lighteval", model=model, task=name, items=Unreadable(error))
        if log is None:
            other_tasks.append(f"{parts[0].name} is not multiple choice")
        else:
            logs.append(log)
    if not logs:
        reasons = "; ".join(other_tasks) or "no details of lighteval"
        raise DataError(f"{', '.join(map(str, paths))}: {reasons}")
    for log in logs:
        yield replace(log, unused=(*log.unused, *notes, *other_tasks))


def _files(paths: Sequence[Path]) -> list[Path]:
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            files += sorted(path.rglob("details_*.parquet"))
        else:
            files.append(path)
    return list(dict.fromkeys(files))


def _with_parents(tasks: Sequence[Task]) -> list[Task]:
    """Return the tasks, those of a parent with many parts under its name.

    ``leaderboard|mmlu:anatomy|5`` has the parent ``leaderboard|mmlu|5`` and is its part anatomy.
    """
    parts: dict[tuple[str, str], list[Task]] = {}
    for task in tasks:
        match = _PART.fullmatch(task.name)
        if match is not None:
            parent = "".join([match["suite"] or "", match["parent"], match["rest"] or ""])
            part = replace(task, parent=parent, part=match["part"])
            parts.setdefault((task.model, parent), []).append(part)
    part_of_path = {}
    for parts_of_parent in parts.values():
        if len(parts_of_parent) >= PARTS:
            part_of_path.update({part.path: part for part in parts_of_parent})
    return [part_of_path.get(task.path, task) for task in tasks]


def _log(model: str, name: str, tasks: Sequence[Task]) -> Log | None:
    """Return the log of the ``tasks``, or None if they are no multiple choice."""
    items: list[LoggedItem] = []
    nulls: set[str | None] = set()
    truncated = 0
    for task in tasks:
        for number, row in enumerate(_rows(task.path)):
            where = f"{task.path}, row {number}"
            with laid_out_by("lighteval", task.path):
                values = detail(row, number, where)
                item = _item(values, task.part, where)
            # The first row decides whether the task is multiple choice.
            if item is None and items:
                raise DataError(
                    f"{where} is not multiple choice, but the rows before it are; is it of two "
                    "tasks?"
                )
            if item is None:
                return None
            if task.part:
                item = replace(item, id=f"{task.part}/{item.id}")
            items.append(item)
            if any(choice.unconditional is not None for choice in item.choices):
                nulls.add(values.null)
            truncated += values.truncated > 0
    first = tasks[0]
    if not items:
        raise DataError(f"{first.path} holds no rows; the task was not run")
    settings = dict(first.settings)
    if truncated:
        settings["truncated"] = f"{truncated} of {len(items)} items"
    return Log(
        tool="lighteval",
        model=model,
        task=name,
        items=_with_unique_ids(items),
        settings=settings,
        null=nulls.pop() if len(nulls) == 1 else None,
        recorded=first.totals if len(tasks) == 1 else {},
    )


def _with_unique_ids(items: Sequence[LoggedItem]) -> tuple[LoggedItem, ...]:
    """Return the items, numbered if the data have an id twice."""
    if len({item.id for item in items}) == len(items):
        return tuple(items)
    numbered = []
    for number, item in enumerate(items):
        numbered.append(replace(item, id=f"{item.subject}/{number}".lstrip("/")))
    return tuple(numbered)


def _rows(path: Path) -> Iterator[JsonDict]:
    """Yield the rows of a file, without the token ids of the prompts, which are most of it."""
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


def _item(row: Detail, subject: str, where: str) -> LoggedItem | None:
    """Return the item, or None if text was generated, or a single text was scored."""
    if len(row.choices) < 2 or any(isinstance(value, str) for value in row.predictions):
        return None
    if not all(isinstance(index, int) for index in row.gold):
        raise DataError(
            f"{where} has gold {list(row.gold)}; it must be an index or a list of indices, counted "
            "from 0"
        )
    return LoggedItem(
        id=row.id,
        gold=tuple(sorted(set(row.gold))),
        choices=tuple(_choice(row, index) for index in range(len(row.choices))),
        context=row.context,
        subject=subject,
        question=row.question or None,
        recorded=_numbers(row.metrics),
    )


def _choice(row: Detail, index: int) -> LoggedChoice:
    choice_count = len(row.choices)
    prediction_count = len(row.predictions)
    text = str(row.choices[index])
    if prediction_count not in (choice_count, 2 * choice_count):
        return LoggedChoice(
            text=text,
            missing=f"the log has {prediction_count} predictions for {choice_count} choices",
        )
    choice = LoggedChoice(text=text, tokens=_token_count(row.tokens, index, choice_count))
    value, greedy = _prediction(row, index)
    if not is_finite(value):
        return replace(choice, missing=f"its log-likelihood in the log is {value}")
    unconditional = None
    if prediction_count == 2 * choice_count:
        after_null, _ = _prediction(row, choice_count + index)
        if is_finite(after_null):
            unconditional = float(after_null)
    return replace(choice, loglikelihood=float(value), greedy=greedy, unconditional=unconditional)


def _prediction(row: Detail, index: int) -> tuple[Any, bool | None]:
    """Return a log-likelihood, and whether it was greedy, None if the row does not say."""
    value = row.predictions[index]
    flag = None
    if index < len(row.greedy):
        flag = row.greedy[index]
    if isinstance(value, list | tuple):
        # The log-likelihood and the flag, either of which may be absent.
        value, flag = (*value, None, None)[:2]
    if flag is None:
        return value, None
    return value, bool(flag)


def _token_count(tokens: Sequence[Any], index: int, choice_count: int) -> int | None:
    """Return how many tokens of a choice were scored, None if the row does not say."""
    if len(tokens) == 1 and isinstance(tokens[0], list) and len(tokens[0]) == choice_count > 1:
        return 1  # one request scores a single token for every choice
    if index >= len(tokens) or not isinstance(tokens[index], list | tuple):
        return None
    # -1 fills the shorter rows of a batch.
    count = sum(isinstance(token, int) and token >= 0 for token in tokens[index])
    return count or None


def _numbers(values: JsonMapping) -> dict[str, float]:
    return {name: float(value) for name, value in values.items() if is_finite(value)}


LONGEST = 1_000_000
"""Characters of a Python value in a cell: the token ids of a few long prompts."""

_NUMPY = re.compile(r"np\.\w+\(([^()]*)\)")
_NAN = re.compile(r"(?<![\w'\"])-?nan(?![\w'\"])")
_INFINITE = re.compile(r"(?<![\w'\"])inf(?![\w'\"])")

COLUMNS = (
    "example",
    "full_prompt",
    "choices",
    "gold_index",
    "gold",
    "predictions",
    "cont_tokens",
    "truncated",
    "metrics",
    "specifics",
    "acc",
    "acc_norm",
    "mc1",
    "mc2",
    "doc",
    "model_response",
    "metric",
)
"""Columns that are read; the token ids of the prompts are not among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """Hold a row of either layout.

    ``predictions``: of the choices, or of the choices and then of the choices after the null
    context.
    """

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
    metrics: JsonMapping


def detail(row: JsonMapping, number: int, where: str) -> Detail:
    """Return the row at ``number`` (from 0).  Raises DataError if it is no row of details."""
    if isinstance(row.get("doc"), dict):
        return _since_0_10(row, number)
    if "predictions" not in row:
        raise DataError(
            f"{where} has neither the column predictions nor doc; it is not a row of lighteval's "
            "details"
        )
    return _until_0_9(row, number, where)


def _until_0_9(row: JsonMapping, number: int, where: str) -> Detail:
    def cell(name: str) -> Any:
        value = row.get(name)
        if isinstance(value, str):
            return _value(value, f"{where}, column {name}")
        return value

    metrics = cell("metrics")
    # The oldest rows have a column for each metric.
    if not metrics:
        metrics = {name: row.get(name) for name in ("acc", "acc_norm", "mc1", "mc2")}
    null = None
    if isinstance(row.get("specifics"), str | dict):
        specifics = mapping(cell("specifics"))
        null = _text(specifics.get("unconditioned_query"))
    gold: Any = row.get("gold")
    if row.get("gold_index") not in (None, [], "[]"):
        gold = cell("gold_index")
    elif not all(isinstance(index, int) for index in _list(gold)):
        # If text is generated, it is the right text.
        gold = []
    truncated = [count for count in _list(cell("truncated")) if isinstance(count, int)]
    return Detail(
        id=str(number),
        question=_text(row.get("example")) or "",
        context=_text(row.get("full_prompt")),
        choices=_list(cell("choices")),
        gold=_list(gold),
        predictions=_list(cell("predictions")),
        greedy=(),
        tokens=_list(cell("cont_tokens")),
        truncated=sum(count > 0 for count in truncated),
        null=null,
        metrics=mapping(metrics),
    )


def _since_0_10(row: JsonMapping, number: int) -> Detail:
    doc = row["doc"]
    response = row.get("model_response") or {}
    gold = doc.get("gold_index")
    if gold is not None and not isinstance(gold, list):
        gold = [gold]
    return Detail(
        id=str(doc.get("id") or number),
        question=_text(doc.get("query")) or "",
        context=_text(response.get("input")),
        choices=_list(doc.get("choices")),
        gold=_list(gold),
        # A row of generated text has no log-likelihoods.
        predictions=_list(response.get("logprobs")) or _list(response.get("text")),
        greedy=_list(response.get("argmax_logits_eq_gold")),
        tokens=_list(response.get("output_tokens")),
        truncated=int(bool(response.get("truncated_tokens_count"))),
        null=_text(doc.get("unconditioned_query")),
        metrics=row.get("metric") or {},
    )


def _value(cell: str, where: str) -> Any:
    """Return the Python value that a cell spells, without running code; nan becomes None."""
    if len(cell) > LONGEST:
        raise DataError(
            f"{where} holds {len(cell)} characters; a value in it has {LONGEST} at most"
        )
    # Numpy 2 spells a number np.float64(...), and neither nan nor inf is a literal of Python.
    plain = _NUMPY.sub(r"\1", cell)
    plain = _NAN.sub("None", plain)
    plain = _INFINITE.sub("1e999", plain)
    for spelled in (cell, plain):
        try:
            return literal_eval(spelled)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            continue
    raise DataError(f"{where} is not a Python literal: {cell[:40]!r}")


def _text(cell: Any) -> str | None:
    return cell if isinstance(cell, str) else None


def _list(cell: Any) -> Sequence[Any]:
    return cell if isinstance(cell, list | tuple) else ()


_FILE = re.compile(r"details_(?P<task>.+)_(?P<date>\d{4}-\d{2}-\d{2}T[\d.-]+)\.parquet")


@dataclass(frozen=True, kw_only=True)
class Task:
    """Describe a file of details: its task, and the settings and totals in the results.

    ``parent``: the name of its log.  ``part``: its part of that log, "" if it is all of it.
    """

    path: Path
    name: str
    parent: str
    part: str = ""
    date: str
    model: str
    settings: Mapping[str, str]
    totals: Mapping[str, float]


def read_task(path: Path, results: Path | None) -> Task:
    """Return the task of the details at ``path``; ``results``: the file of results, if it is named.

    Raises DataError if the file of results is of other details.
    """
    name = path.stem.removeprefix("details_")
    date = ""
    match = _FILE.fullmatch(path.name)
    if match:
        name = match["task"]
        date = match["date"]
    file = results or _results_beside(path, date)
    content: Any = {"config_general": {}}
    if file:
        content = whole(file)
    if not isinstance(content, dict) or not isinstance(content.get("config_general"), dict):
        raise DataError(f"{file} is not a results file of lighteval: it has no config_general")
    with laid_out_by("lighteval", file or path):
        totals = content.get("results") or {}
        if results and name not in totals:
            raise DataError(
                f"{results} has no results of the task {name}; it belongs to other details"
            )
        general = content["config_general"]
        config = general.get("model_config") or {}
        model = general.get("model_name") or config.get("model_name") or _folder_model(path)
        return Task(
            path=path,
            name=name,
            parent=name,
            date=date,
            model=str(model),
            settings=_settings(content, name),
            totals=_numbers(totals.get(name) or {}),
        )


def _settings(content: JsonMapping, task: str) -> dict[str, str]:
    general = content["config_general"]
    config = general.get("model_config") or {}
    # A task is spelled SUITE|NAME|SHOTS.
    shots = [part for part in task.split("|")[1:] if part.isdecimal()]
    values = {
        "lighteval_sha": general.get("lighteval_sha"),
        "model_sha": general.get("model_sha") or config.get("revision"),
        "dtype": general.get("model_dtype") or config.get("dtype"),
        "max_samples": general.get("max_samples"),
        "version": (content.get("versions") or {}).get(task),
        "shots": "".join(shots[:1]),
    }
    return {key: str(value) for key, value in values.items() if value not in (None, "", "?")}


def _results_beside(path: Path, date: str) -> Path | None:
    """Return the file of results of the details at ``path``, None if there is none."""
    file = f"results_{date}.json"
    candidates = [path.parent / file, path.parent.parent / file]
    folders = path.absolute().parent.parts
    if "details" in folders:
        index = _last_index(folders, "details")
        model = folders[index + 1 : -1]
        candidates.append(Path(*folders[:index], "results", *model, file))
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    return None


def _folder_model(path: Path) -> str:
    """Return ORG/MODEL of ``OUT/details/ORG/MODEL/DATE/details_...``, or of the Hub's folder.

    On the Hub the folder is called ``details_ORG__MODEL``.
    """
    folders = path.absolute().parent.parts
    if "details" in folders[:-1]:
        return "/".join(folders[_last_index(folders, "details") + 1 : -1])
    name = folders[-1]
    for folder in folders:
        if folder.startswith("details_"):
            name = folder.removeprefix("details_")
    return name.replace("__", "/")


def _last_index(folders: Sequence[str], name: str) -> int:
    return len(folders) - 1 - folders[::-1].index(name)


def _acc_with_space(log: Log, item: LoggedItem) -> float:
    return first_best(item, per_character(item, scored_texts(item)))


def _acc_per_token(log: Log, item: LoggedItem) -> float:
    return first_best(item, per_token(item))


def _acc_either_norm(log: Log, item: LoggedItem) -> float:
    """Return the credit if a choice's first space does not change it, else NaN."""
    # acc_norm before 0.10 counts that space in some tasks and in others not.
    with_space = _acc_with_space(log, item)
    without_space = first_best(item, per_character(item, bare_texts(item)))
    if with_space == without_space:
        return with_space
    return nan


_NORM = "acc:logprob_normalization=LogProb"

VERDICTS: Mapping[str, Verdict] = {
    "acc": acc,
    "acc_norm": _acc_either_norm,
    f"{_NORM}CharNorm(name='norm', ignore_first_space=False)": _acc_with_space,
    f"{_NORM}CharNorm(name='norm', ignore_first_space=True)": acc_norm,
    f"{_NORM}TokenNorm(name='norm_token')": _acc_per_token,
    f"{_NORM}PMINorm(name='norm_pmi')": acc_mutual_info,
}
"""LoglikelihoodAcc and its normalisations (metrics_sample.py, normalizations.py@3fd1526)."""
