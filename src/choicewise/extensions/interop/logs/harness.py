"""Logs of lm-eval 0.4: files of samples, the results beside them, and groups of tasks.

Since 0.4.2 a file of samples is JSON Lines (lm_eval/loggers/evaluation_tracker.py@4e7e0d4); before, it is one JSON list
of the same objects (lm_eval/__main__.py of 0.4.0), and its name ends with the task.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from warnings import warn

from choicewise.errors import DataError
from choicewise.extensions.interop.logs.checks import ROUNDING
from choicewise.extensions.interop.logs.files import first_object, head, whole
from choicewise.extensions.interop.logs.harness_samples import (
    NoLikelihoods,
    Scan,
    is_list,
    read_items,
    sample_rows,
    scan_samples,
)
from choicewise.logs import Log, LoggedItem, Reread, Unreadable


def read_logs(paths: Sequence[Path], results: Path | None) -> Iterator[Log]:
    """Yield a log for each model and task."""
    given = None if results is None else read_results(results)
    for path in paths:
        files = samples_of(path)
        left_out: list[NoLikelihoods] = []
        read: list[SamplesFile] = []
        for samples in files:
            try:
                read.append(read_samples(samples, given))
            except NoLikelihoods as error:
                left_out.append(error)
        if len(left_out) == len(files):
            raise left_out[0]
        for refused in left_out:
            warn(f"left out: {refused.message}", stacklevel=2)
        yield from _with_groups(_newest(read) if path.is_dir() else read)


def _newest(read: Sequence[SamplesFile]) -> list[SamplesFile]:
    """Of the runs that repeat a model on a task in as many shots, the newest, which names the others."""
    repeats: dict[tuple[str, ...], list[SamplesFile]] = {}
    for each in read:
        alone = () if _date(each) else (str(id(each)),)
        key = each.log.model, each.log.task, each.log.settings.get("shots", ""), *alone
        repeats.setdefault(key, []).append(each)
    newest: dict[int, SamplesFile] = {}
    for own in repeats.values():
        *older, last = sorted(own, key=_date)
        names = tuple(f"{each.log.settings['file']}, which is older" for each in older)
        newest[id(last)] = replace(last, log=replace(last.log, unused=(*names, *last.log.unused)))
    return [newest[id(each)] for each in read if id(each) in newest]


def _date(read: SamplesFile) -> str:
    match = SAMPLES.fullmatch(Path(read.log.settings.get("file", "")).stem)
    return (match["date"] if match else None) or ""


def _with_groups(read: Sequence[SamplesFile]) -> Iterator[Log]:
    """The logs in their order, those of a group as one where its numbers follow from them."""
    by_results: dict[Path, tuple[Results, list[SamplesFile]]] = {}
    for each in read:
        if each.results is not None:
            by_results.setdefault(each.results.path, (each.results, []))[1].append(each)
    groups: dict[SamplesFile, dict[str, Log]] = {}
    for results, own in by_results.values():
        for name in outermost(results, [each.log.task for each in own]):
            try:
                whole = together(name, results, {each.log.task: each for each in own if each.size})
            except Separate as reason:
                warn(
                    f"{results.path.name}: the tasks of group {name} stay apart, because {reason}",
                    stacklevel=2,
                )
                continue
            for each in own:
                if each.log.task in results.leaves(name):
                    groups.setdefault(each, {})[name] = whole
    given: set[int] = set()
    for each in read:
        for log in groups[each].values() if each in groups else [each.log]:
            if id(log) not in given:
                given.add(id(log))
                yield log


def recognises(path: Path) -> bool:
    """Whether it is a file of samples or results, or a folder with samples."""
    if path.is_dir():
        return any(map(_is_samples, _files(path)))
    return path.is_file() and (_is_samples(path) or _is_results(path))


def _is_samples(path: Path) -> bool:
    if is_list(path):
        return True
    if row := first_object(path):
        return {"doc_id", "resps"} <= row.keys()
    # the first line may be cut off, or too long to be looked at whole
    return SAMPLES.fullmatch(path.stem) is not None and head(path).startswith('{"doc_id"')


def _is_results(path: Path) -> bool:
    start = head(path)
    return path.suffix == ".json" and start.startswith("{") and '"results"' in start[:200]


def _files(folder: Path) -> list[Path]:
    return sorted(
        path for path in folder.rglob("*") if path.suffix in (".jsonl", ".json") and path.is_file()
    )


def samples_of(path: Path) -> list[Path]:
    """The files of samples that ``path`` names: itself, those in it, or those of a results file."""
    if path.is_dir():
        files = [each for each in _files(path) if _is_samples(each)]
        if not files:
            raise DataError(
                f"{path} holds no samples of lm-evaluation-harness; it writes them where samples are logged"
            )
        return files
    if _is_samples(path) or not _is_results(path):
        return [path]
    date = path.stem.removeprefix("results_")
    files = [each for each in _files(path.parent) if each.stem.endswith(date) and _is_samples(each)]
    if not files:
        raise DataError(
            f"{path} holds totals alone, and no samples of the same run lie beside it: there is nothing to score again"
        )
    return files


_TOOL = "lm-evaluation-harness 0.4"

AXES = {"fit": "cut-start", "boundary": "moved-space"}
"""How the harness cuts what is too long, and where a continuation begins (lm_eval/models/huggingface.py@4e7e0d4)."""


@dataclass(frozen=True, slots=True, eq=False)
class SamplesFile:
    """What a file of samples holds; ``size``: items, 0 where they can't be used, ``results``: those beside it."""

    log: Log
    size: int
    results: Results | None


def read_samples(path: Path, given: Results | None) -> SamplesFile:
    """One file; where it can't be used its items are the error.  Raises NoLikelihoods."""
    match = SAMPLES.fullmatch(path.stem)
    task = match["task"] if match else path.stem
    results = None
    try:
        results = given or find_results(path, task)
        if results is not None and not match:
            task = results.task_of(path) or task
        return _log(path, task, results, given is not None)
    except NoLikelihoods:
        raise
    except DataError as error:
        log = Log(tool=_TOOL, model=_model_of(path, results), task=task, items=Unreadable(error))
        return SamplesFile(log, 0, results)


def _check_totals(
    path: Path, results: Results, task: str, scan: Scan, totals: dict[str, float]
) -> None:
    """DataError where the results are not those of the samples."""
    wrong = []
    asked = results.items(task)
    if asked is not None and asked != scan.items:
        wrong.append(f"they are of {asked:,} items, and the samples of {scan.items:,}")
    for name, count in scan.counts.items():
        if name in totals and count == scan.items and results.is_mean(task, name):
            mean = scan.sums[name] / count
            if not abs(mean - totals[name]) <= ROUNDING:
                wrong.append(
                    f"{name} is {totals[name]:.6g} in the results, and {mean:.6g} in the samples"
                )
    if wrong:
        raise DataError(
            f"{results.path} does not match {path.name}: {'; '.join(wrong)}; name the results file of these "
            "samples, or move it away"
        )


def _model_of(path: Path, results: Results | None) -> str:
    return (results.model if results else None) or path.resolve().parent.name.replace("__", "/")


def _log(path: Path, task: str, results: Results | None, named: bool) -> SamplesFile:
    """``named``: whether the results are those that were asked for, and not only lie beside the samples."""
    if results is not None and named and not results.has(task):
        raise DataError(
            f"{results.path} has no results of {task}, but of {', '.join(results.tasks[:5])}"
        )
    rows = sample_rows(path)
    scan = scan_samples(
        path, rows, None if results is None else results.config(task).get("target_delimiter")
    )
    settings = {"file": path.name, "right choices": scan.gold[0]}
    totals: dict[str, float] = {}
    if scan.lengths:
        settings["acc_norm is"] = scan.lengths
    if results is not None:
        settings |= results.settings(task)
        totals = results.totals(task, rows.filter)
        _check_totals(path, results, task, scan, totals)
    own = results is not None and "process_results" in results.config(task)
    items = Reread(partial(read_items, rows, scan, own))
    null = "" if scan.unconditional else None
    log = Log(
        tool=_TOOL,
        model=_model_of(path, results),
        task=task,
        items=items,
        settings=settings,
        null=null,
        recorded=totals,
        unused=scan.unused,
        axes=AXES,
    )
    return SamplesFile(log, scan.items, results)


class Separate(Exception):
    """Why the tasks of a group are logs of their own."""


def _group_items(logs: Sequence[Log]) -> Iterator[LoggedItem]:
    """The items of several tasks, named ``TASK/ID`` with the task as subject, as our own runs of a group name them."""
    for log in logs:
        for item in log.items:
            yield replace(item, id=f"{log.task}/{item.id}", subject=log.task)


def outermost(results: Results, tasks: Sequence[str]) -> list[str]:
    """The groups with a number that are in no other such group and have any of ``tasks``."""
    leaves = {name: results.leaves(name) for name in results.groups if results.numbers(name)}
    known = [name for name, own in leaves.items() if len(own) > 1 and {*own} & {*tasks}]
    inner = {below for name in known for below in results.below(name)}
    return [name for name in known if name not in inner]


def together(group: str, results: Results, parts: Mapping[str, SamplesFile]) -> Log:
    """The tasks of ``group`` as one log; ``parts``: those there are by their task.

    Its tasks count by their items (micro) or alike (macro), as the group's own numbers do.  Raises :class:`Separate`
    where these are neither, where tasks are absent, and where they are asked in different ways.
    """
    leaves = results.leaves(group)
    if absent := [task for task in leaves if task not in parts]:
        raise Separate(
            f"samples that can be used are absent of {len(absent)} of its {len(leaves)} tasks, such as {absent[0]}"
        )
    kinds = sorted({str(results.config(task).get("output_type")) for task in leaves})
    if len(kinds) > 1:
        raise Separate(f"its tasks are of the output types {', '.join(kinds)}")
    aggregations = _aggregations(group, results, {task: parts[task].size for task in leaves})
    logs = [parts[task].log for task in leaves]
    every = dict.fromkeys(name for log in logs for name in log.settings)
    settings = {name: _joined([log.settings.get(name, "") for log in logs]) for name in every}
    unused = tuple(dict.fromkeys(text for log in logs for text in log.unused))
    if inner := [name for name in results.below(group) if results.numbers(name)]:
        unused += (
            f"the numbers of {', '.join(inner)}, groups in {group}: they are of some of its subjects",
        )
    return replace(
        logs[0],
        task=group,
        items=Reread(partial(_group_items, logs)),
        settings={**settings, "tasks": f"{len(leaves)}, a subject each"},
        null=next((log.null for log in logs if log.null is not None), None),
        recorded={name.partition(",")[0]: value for name, value in results.numbers(group).items()},
        unused=unused,
        aggregations=aggregations,
    )


def _joined(values: Sequence[str]) -> str:
    """What the tasks have, each once."""
    different = list(dict.fromkeys(value for value in values if value))
    text = "; ".join(different[:3])
    return text if len(different) <= 3 else f"{text}; and {len(different) - 3} others"


def _aggregations(group: str, results: Results, sizes: Mapping[str, int]) -> tuple[str, ...]:
    """How the group's numbers follow from those of its tasks: that of the first number, then another one's.

    Where a number is the same both ways, the configuration says which (lm_eval/api/group.py@4e7e0d4, aggregate).
    """
    fitting: list[set[str]] = []
    for name, number in results.numbers(group).items():
        values = {
            task: results.numbers(task)[name] for task in sizes if name in results.numbers(task)
        }
        if len(values) < len(sizes):
            continue
        means = {
            "micro": sum(values[task] * size for task, size in sizes.items()) / sum(sizes.values()),
            "macro": sum(values.values()) / len(values),
        }
        fitting.append({way for way, mean in means.items() if abs(mean - number) <= ROUNDING})
        if not fitting[-1]:
            raise Separate(
                f"its {name} is {number:.6g}, and its tasks have {means['micro']:.6g} over all items and "
                f"{means['macro']:.6g} over tasks"
            )
    if not fitting:
        raise Separate("none of its numbers is one of all of its tasks")
    if common := set.intersection(*fitting):
        return (common.pop() if len(common) == 1 else _configured(results.config(group)),)
    first = next(ways for ways in fitting if len(ways) == 1)
    return (*first, *({"micro", "macro"} - first))


def _configured(config: Mapping[str, Any]) -> str:
    listed = config.get("aggregate_metric_list")
    every = [
        each
        for each in (listed if isinstance(listed, list) else [listed])
        if isinstance(each, dict)
    ]
    return (
        "macro"
        if every and not any(each.get("weight_by_size", True) for each in every)
        else "micro"
    )


SAMPLES = re.compile(
    r"samples_(?P<task>.+?)(?:_(?P<date>\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d(?:\.\d+)?))?"
)
"""The name of a file of samples, without its ending."""

KEPT_ARGUMENTS = (
    *(
        "pretrained",
        "dtype",
        "revision",
        "peft",
        "delta",
        "subfolder",
        "add_bos_token",
        "max_length",
        "softmax_dtype",
    ),
    *("load_in_8bit", "load_in_4bit", "parallelize", "model", "tokenizer", "enable_thinking"),
)
"""Arguments of the model that are kept; others may be secrets."""

MEANS = frozenset({"acc", "acc_norm", "acc_bytes", "acc_mutual_info", "exact_match"})
"""Metrics whose total is a mean where a task does not say otherwise (lm_eval/api/metrics.py@4e7e0d4)."""

MODEL = (
    "model_dtype",
    "model_revision",
    "model_sha",
    "model_num_parameters",
    "batch_size",
    "device",
    "limit",
)
RUN = (
    "lm_eval_version",
    "transformers_version",
    "git_hash",
    "date",
    "chat_template_sha",
    "fewshot_as_multiturn",
)
SEEDS = ("random_seed", "numpy_seed", "torch_seed", "fewshot_seed")
TASK = (
    "dataset_path",
    "dataset_name",
    "test_split",
    "validation_split",
    "output_type",
    "target_delimiter",
)


@dataclass(frozen=True, slots=True)
class Results:
    """What the file at ``path`` says; ``content`` is the whole of it."""

    path: Path
    content: Mapping[str, Any]

    def config(self, task: str) -> Mapping[str, Any]:
        """The configuration of ``task``; empty where the file has none."""
        return _mapping(_mapping(self.content.get("configs")).get(task))

    def has(self, task: str) -> bool:
        """Whether the file is about ``task``."""
        return task in _mapping(self.content.get("results")) or bool(self.config(task))

    def task_of(self, samples: Path) -> str | None:
        """The task that the name of a file of samples ends with, as the harness 0.4.0 names them."""
        ends = [
            name for name in self.tasks if samples.stem == name or samples.stem.endswith(f"_{name}")
        ]
        return max(ends, key=len, default=None)

    @property
    def tasks(self) -> list[str]:
        """All tasks and groups that it has numbers of."""
        return [*_mapping(self.content.get("results"))]

    @property
    def model(self) -> str | None:
        """The model as it was named; None where the file does not say."""
        config = _mapping(self.content.get("config"))
        arguments = _arguments(config.get("model_args"))
        named = (
            arguments.get("pretrained") or arguments.get("model") or self.content.get("model_name")
        )
        named = named or config.get("model")
        if not isinstance(named, str) or not named.strip("/"):
            return None
        added = arguments.get("peft")
        return _last(named) if not added else f"{_last(named)}+{_last(str(added))}"

    def totals(self, task: str, filter: str) -> dict[str, float]:
        """Metric → its total over the items of ``task`` after ``filter``."""
        named = {
            tuple(key.split(",", 1)): value for key, value in self._plain("results", task).items()
        }
        own = {
            metric: value
            for (metric, *after), value in named.items()
            if not after or after == [filter]
        }
        return {
            metric: value
            for metric, value in own.items()
            if metric not in ("alias", "samples", "sample_len")
        }

    def numbers(self, name: str) -> dict[str, float]:
        """``METRIC,FILTER`` → the number that a task or group has; standard errors and texts left out."""
        own = self._plain("groups", name) | self._plain("results", name)
        return {
            key: value
            for key, value in own.items()
            if "," in key and not key.partition(",")[0].endswith("_stderr")
        }

    def _plain(self, entry: str, name: str) -> dict[str, float]:
        own = _mapping(_mapping(self.content.get(entry)).get(name))
        numbers = {str(key): value for key, value in own.items() if isinstance(value, int | float)}
        return {
            key: float(value)
            for key, value in numbers.items()
            if not isinstance(value, bool) and value == value
        }

    @property
    def groups(self) -> dict[str, list[str]]:
        """Group → the tasks and groups that it names."""
        listed = _mapping(self.content.get("group_subtasks"))
        named = {str(name): own for name, own in listed.items() if isinstance(own, list) and own}
        return {name: [str(each) for each in own] for name, own in named.items()}

    def below(self, group: str) -> list[str]:
        """The groups that ``group`` holds, and those that they hold."""
        return [name for name in self._within(group) if name in self.groups]

    def leaves(self, group: str) -> tuple[str, ...]:
        """The tasks that ``group`` and the groups in it hold, in their order."""
        return tuple(name for name in self._within(group) if name not in self.groups)

    def _within(self, group: str) -> dict[str, None]:
        tree, met = self.groups, dict[str, None]()
        waiting = [*tree.get(group, ())]
        while waiting:
            name = waiting.pop(0)
            if name not in met and name != group:
                met[name] = None
                waiting[:0] = tree.get(name, ())
        return met

    def items(self, task: str) -> int | None:
        """How many items of ``task`` were asked; None where the file does not say."""
        count = _mapping(_mapping(self.content.get("n-samples")).get(task)).get("effective")
        return count if isinstance(count, int) else None

    def settings(self, task: str) -> dict[str, str]:
        """What it says of how ``task`` was asked, and of the model."""
        config, own = _mapping(self.content.get("config")), self.config(task)
        versions, shots = (
            _mapping(self.content.get("versions")),
            _mapping(self.content.get("n-shot")),
        )
        written = {"results": self.path.name, "task version": versions.get(task)}
        written["shots"] = shots.get(task, own.get("num_fewshot"))
        written |= {name: config.get(name) for name in (*MODEL, *SEEDS)}
        written |= {name: self.content.get(name) for name in RUN}
        written |= {name: own.get(name) for name in TASK}
        arguments = _arguments(config.get("model_args"))
        written |= {f"model {name}": arguments.get(name) for name in KEPT_ARGUMENTS}
        if isinstance(dtype := config.get("model_dtype"), str):
            written["dtype"] = dtype.removeprefix("torch.")
        texts = {
            name: str(value) for name, value in written.items() if value is not None and value != ""
        }
        return {
            name: text if len(text) <= 200 else f"{text[:197]}..." for name, text in texts.items()
        }

    def is_mean(self, task: str, metric: str) -> bool:
        """Whether the total of ``metric`` is the mean of what its samples say."""
        named = [
            each for each in self.config(task).get("metric_list") or () if isinstance(each, dict)
        ]
        own = next((each for each in named if each.get("metric") == metric), {})
        return own["aggregation"] == "mean" if "aggregation" in own else metric in MEANS


def read_results(path: Path) -> Results:
    """The results file at ``path``.  Raises DataError where it is none."""
    content = whole(path)
    if not isinstance(content, dict) or not isinstance(content.get("results"), dict):
        raise DataError(
            f"{path} is no results file of lm-evaluation-harness 0.4: it has no results"
        )
    return Results(path, content)


def find_results(samples: Path, task: str) -> Results | None:
    """The results that belong to a file of samples: those of its time, else the only ones beside it of its task."""
    match = SAMPLES.fullmatch(samples.stem)
    date = match["date"] if match else None
    beside = [
        path
        for path in sorted(samples.parent.glob("*.json"))
        if not path.name.startswith("samples_")
    ]
    if date is not None and (same := [path for path in beside if path.stem.endswith(date)]):
        return read_results(same[0])
    if date is not None:
        return None
    known: list[Results] = []
    for path in beside:
        with suppress(DataError):
            known.append(read_results(path))
    fitting = [
        each
        for each in known
        if each.has(task) or (match is None and each.task_of(samples) is not None)
    ]
    return fitting[0] if len(fitting) == 1 else None


def _arguments(given: Any) -> dict[str, Any]:
    """The model's arguments, which are text or, in newer files, an object."""
    if isinstance(given, dict):
        return given
    pairs = (part.partition("=") for part in given.split(",")) if isinstance(given, str) else ()
    return {name.strip(): value.strip() for name, equals, value in pairs if equals}


def _last(name: str) -> str:
    """A model's name; of a folder on that machine, the last part alone."""
    return name.rstrip("/").rpartition("/")[2] if name.startswith(("/", "./", "../", "~")) else name


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
