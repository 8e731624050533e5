"""Read logs of lm-eval 0.4: files of samples, the results beside them, and groups of tasks.

Since 0.4.2 a file of samples is JSON Lines (lm_eval/loggers/evaluation_tracker.py@4e7e0d4); before,
it is one JSON list of the same objects (lm_eval/__main__.py of 0.4.0), and its name ends with the
task.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from warnings import warn

from choicewise.errors import DataError
from choicewise.extensions.interop.logs.files import (
    first_object,
    head,
    mapping,
    objects_among,
    whole,
)
from choicewise.extensions.interop.logs.harness_samples import (
    NoLikelihoods,
    Scan,
    is_list,
    read_items,
    sample_rows,
    scan_samples,
)
from choicewise.extensions.interop.write.harness_names import OWN
from choicewise.logs import Log, LoggedItem, Reread, Unreadable
from choicewise.report.logged import PART, ROUNDING
from choicewise.util.jsonio import JsonDict, JsonMapping


def read_logs(paths: Sequence[Path], results: Path | None) -> Iterator[Log]:
    """Yield a log for each model and task, or group of tasks."""
    named_results = None
    if results is not None:
        named_results = read_results(results)
    for path in paths:
        files = _read_samples(path, named_results)
        if path.is_dir():
            files = _newest(files)
        yield from _with_groups(files)


def _read_samples(path: Path, named_results: Results | None) -> list[SamplesFile]:
    """Read the files of samples in ``path``; tasks without log-likelihoods are left out."""
    files = []
    left_out = []
    for samples in samples_of(path):
        try:
            files.append(_samples_file(samples, named_results))
        except NoLikelihoods as error:
            left_out.append(error)
    if not files:
        raise left_out[0]
    for unscored in left_out:
        warn(f"left out: {unscored.message}", stacklevel=3)
    return files


def _newest(files: Sequence[SamplesFile]) -> list[SamplesFile]:
    """Return the newest of the files that repeat a model on a task in as many shots."""
    repeats: dict[tuple[str, str, str], list[SamplesFile]] = {}
    for file in files:
        repeats.setdefault(file.run, []).append(file)
    newest = []
    for file in files:
        if not file.date:
            # Without a date in its name a file is not known to repeat another.
            newest.append(file)
            continue
        dated = [repeat for repeat in repeats[file.run] if repeat.date]
        *older, last = sorted(dated, key=lambda repeat: repeat.date)
        if file is last:
            names = tuple(f"{old.log.settings['file']}, which is older" for old in older)
            log = replace(file.log, unused=(*names, *file.log.unused))
            newest.append(replace(file, log=log))
    return newest


def _with_groups(files: Sequence[SamplesFile]) -> Iterator[Log]:
    """Yield the logs in order, a group's tasks as one log if its numbers follow from them."""
    results_at: dict[Path, Results] = {}
    files_of_results: dict[Path, list[SamplesFile]] = {}
    for file in files:
        if file.results is not None:
            results_at[file.results.path] = file.results
            files_of_results.setdefault(file.results.path, []).append(file)
    groups_of_file: dict[SamplesFile, list[Log]] = {}
    for path, group_files in files_of_results.items():
        results = results_at[path]
        for group in _outermost(results, [file.log.task for file in group_files]):
            log = _try_group(group, results, group_files)
            if log is None:
                continue
            leaves = results.leaves(group)
            for file in group_files:
                if file.log.task in leaves:
                    groups_of_file.setdefault(file, []).append(log)
    yielded: set[int] = set()
    for file in files:
        # A task may be in two groups, and a group is yielded once.
        for log in groups_of_file.get(file, [file.log]):
            if id(log) not in yielded:
                yielded.add(id(log))
                yield log


def _try_group(group: str, results: Results, files: Sequence[SamplesFile]) -> Log | None:
    """Return the log of a group, or warn and return None if its tasks stay apart."""
    part_of_task = {file.log.task: file for file in files if file.size}
    try:
        return _group_log(group, results, part_of_task)
    except Separate as reason:
        warn(
            f"{results.path.name}: the tasks of group {group} are imported separately, because "
            f"{reason}",
            stacklevel=3,
        )
        return None


def recognises(path: Path) -> bool:
    """Return whether ``path`` is a file of samples or results, or a folder with samples."""
    if path.is_dir():
        return any(map(_is_samples, _files(path)))
    return path.is_file() and (_is_samples(path) or _is_results(path))


def _is_samples(path: Path) -> bool:
    if is_list(path):
        return True
    row = first_object(path)
    if row:
        return row.keys() >= {"doc_id", "resps"}
    # The first line may be cut off, or too long to be looked at whole.
    return SAMPLES.fullmatch(path.stem) is not None and head(path).startswith('{"doc_id"')


def _is_results(path: Path) -> bool:
    start = head(path)
    return path.suffix == ".json" and start.startswith("{") and '"results"' in start[:200]


def _files(folder: Path) -> list[Path]:
    paths = sorted(folder.rglob("*"))
    return [path for path in paths if path.suffix in (".jsonl", ".json") and path.is_file()]


def samples_of(path: Path) -> list[Path]:
    """Return the files of samples that ``path`` names: itself, in it, or beside a results file."""
    if path.is_dir():
        files = list(filter(_is_samples, _files(path)))
        if not files:
            raise DataError(
                f"{path} holds no samples of lm-evaluation-harness; run it so that it logs samples"
            )
        return files
    if _is_samples(path) or not _is_results(path):
        return [path]
    # The files of a run end with the time of its results.
    date = path.stem.removeprefix("results_")
    beside = [file for file in _files(path.parent) if file.stem.endswith(date)]
    files = list(filter(_is_samples, beside))
    if not files:
        raise DataError(
            f"{path} holds only totals and no samples; put the samples file of that run into the "
            "same folder"
        )
    return files


_TOOL = "lm-evaluation-harness 0.4"

AXES = {"fit": "cut-start", "boundary": "moved-space"}
"""Cut of long texts, and start of a continuation (lm_eval/models/huggingface.py@4e7e0d4)."""


@dataclass(frozen=True, slots=True, eq=False)
class SamplesFile:
    """Hold a file of samples.

    ``size``: the number of items, 0 if they can't be used.  ``results``: the file beside it.
    """

    log: Log
    size: int
    results: Results | None

    @property
    def date(self) -> str:
        """Return the time in the file's name, "" if it has none."""
        match = SAMPLES.fullmatch(Path(self.log.settings.get("file", "")).stem)
        if match is None:
            return ""
        return match["date"] or ""

    @property
    def run(self) -> tuple[str, str, str]:
        """Return the model, the task and the number of shots."""
        return (self.log.model, self.log.task, self.log.settings.get("shots", ""))


def _samples_file(path: Path, named_results: Results | None) -> SamplesFile:
    """Read a file of samples; if it is unusable, its items are the error."""
    match = SAMPLES.fullmatch(path.stem)
    task = path.stem if match is None else match["task"]
    results = named_results
    try:
        if results is None:
            results = find_results(path, task)
        if results is not None and match is None:
            task = results.task_of(path) or task
        if named_results is not None and not named_results.has(task):
            names = ", ".join(named_results.tasks[:5])
            raise DataError(f"{named_results.path} has no results of {task}, but of {names}")
        return _read_file(path, task, results)
    except NoLikelihoods:
        raise
    except DataError as error:
        # The other files of a folder can still be imported.
        log = Log(tool=_TOOL, model=_model_of(path, results), task=task, items=Unreadable(error))
        return SamplesFile(log, 0, results)


def _read_file(path: Path, task: str, results: Results | None) -> SamplesFile:
    config = {} if results is None else results.config(task)
    rows = sample_rows(path)
    scan = scan_samples(path, rows, config.get("target_delimiter"))
    settings = {"file": path.name, "right choices": scan.gold.name}
    if scan.lengths:
        settings["acc_norm is"] = scan.lengths
    totals: dict[str, float] = {}
    limit = None
    if results is not None:
        limit = results.limit(task)
        settings |= results.settings(task) | _part(scan.items, results.size(task))
        totals = results.totals(task, rows.filter)
        _check_totals(path, results, task, scan, totals)
    log = Log(
        tool=_TOOL,
        model=_model_of(path, results),
        task=task,
        items=Reread(partial(read_items, rows, scan, "process_results" in config)),
        settings=settings,
        null="" if scan.unconditional else None,
        recorded=totals,
        unused=scan.unused,
        axes=AXES,
        limit=limit,
    )
    return SamplesFile(log, scan.items, results)


def _part(count: int, size: int) -> dict[str, str]:
    """Return the setting that tells of absent items, if ``count`` is below ``size``."""
    if count < size:
        return {PART: f"{count:,} of {size:,} items"}
    return {}


def _check_totals(
    path: Path, results: Results, task: str, scan: Scan, totals: Mapping[str, float]
) -> None:
    """Check that the results are those of the samples.  Raises DataError if they are not."""
    differences = []
    item_count = results.items(task)
    if item_count is not None and item_count != scan.items:
        differences.append(f"they are of {item_count:,} items, and the samples of {scan.items:,}")
    for name, count in scan.counts.items():
        if name not in totals or count != scan.items or not results.is_mean(task, name):
            continue
        mean = scan.sums[name] / count
        # A NaN is no agreement either.
        if not abs(mean - totals[name]) <= ROUNDING:
            differences.append(
                f"{name} is {totals[name]:.6g} in the results, and {mean:.6g} in the samples"
            )
    if differences:
        raise DataError(
            f"{results.path} does not match {path.name}: {'; '.join(differences)}; name the "
            "results file of these samples, or move it away"
        )


def _model_of(path: Path, results: Results | None) -> str:
    if results is not None and results.model:
        return results.model
    # The harness names the folder after the model.
    return path.resolve().parent.name.replace("__", "/")


class Separate(Exception):
    """Tell why the tasks of a group are logs of their own."""


def _group_items(logs: Sequence[Log]) -> Iterator[LoggedItem]:
    """Yield the items of several tasks as ``TASK/ID``, their ids in our runs of a group."""
    for log in logs:
        for item in log.items:
            yield replace(item, id=f"{log.task}/{item.id}", subject=log.task)


def _outermost(results: Results, tasks: Sequence[str]) -> list[str]:
    """Return the groups with a number that are in no other and hold any of ``tasks``."""
    groups = []
    inner: set[str] = set()
    for name in results.groups:
        leaves = results.leaves(name)
        if results.numbers(name) and len(leaves) > 1 and not set(leaves).isdisjoint(tasks):
            groups.append(name)
            inner.update(results.below(name))
    return [name for name in groups if name not in inner]


def _group_log(group: str, results: Results, part_of_task: Mapping[str, SamplesFile]) -> Log:
    """Return the tasks of ``group`` as one log, averaged over items (micro) or over tasks (macro).

    Raises :class:`Separate` if the group's numbers are neither average, if tasks are absent, and if
    tasks differ in their output type.
    """
    leaves = results.leaves(group)
    absent = [task for task in leaves if task not in part_of_task]
    if absent:
        raise Separate(
            f"usable samples are missing for {len(absent)} of its {len(leaves)} tasks, such as "
            f"{absent[0]}"
        )
    # Scores of different output types have no common average.
    output_types = sorted({str(results.config(task).get("output_type")) for task in leaves})
    if len(output_types) > 1:
        raise Separate(f"its tasks are of the output types {', '.join(output_types)}")
    sizes = {task: part_of_task[task].size for task in leaves}
    aggregations = _aggregations(group, results, sizes)
    logs = [part_of_task[task].log for task in leaves]
    values: dict[str, list[str]] = {}
    unused: dict[str, None] = {}
    null = None
    for log in logs:
        for name, value in log.settings.items():
            values.setdefault(name, []).append(value)
        unused.update(dict.fromkeys(log.unused))
        if null is None:
            null = log.null
    settings = {name: _joined(of_tasks) for name, of_tasks in values.items()}
    settings["tasks"] = f"{len(leaves)}, a subject each"
    settings |= _part(sum(sizes.values()), sum(map(results.size, leaves)))
    lines = list(unused)
    inner = [name for name in results.below(group) if results.numbers(name)]
    if inner:
        lines.append(
            f"the numbers of {', '.join(inner)}, groups in {group}: they are of some of its "
            "subjects"
        )
    return replace(
        logs[0],
        task=group,
        items=Reread(partial(_group_items, logs)),
        settings=settings,
        null=null,
        recorded={name.partition(",")[0]: value for name, value in results.numbers(group).items()},
        unused=tuple(lines),
        aggregations=aggregations,
        limit=_common_limit(logs),
    )


def _common_limit(logs: Sequence[Log]) -> int | None:
    """Return the limit of the logs that have one; None if it differs, as a share of tasks does."""
    limits = {log.limit for log in logs if log.limit is not None}
    if len(limits) == 1:
        return limits.pop()
    return None


def _joined(values: Sequence[str]) -> str:
    """Join the different values of the tasks, three of them at most."""
    different = list(dict.fromkeys(filter(None, values)))
    text = "; ".join(different[:3])
    if len(different) <= 3:
        return text
    return f"{text}; and {len(different) - 3} others"


def _aggregations(group: str, results: Results, sizes: Mapping[str, int]) -> tuple[str, ...]:
    """Return the average of the group's first number, and then any other average.

    If a number is both averages, the configuration decides (lm_eval/api/group.py@4e7e0d4,
    aggregate).
    """
    numbers_of_tasks = [results.numbers(task) for task in sizes]
    averages: list[set[str]] = []
    for name, number in results.numbers(group).items():
        values = [numbers[name] for numbers in numbers_of_tasks if name in numbers]
        # A number that a task lacks is no average of all tasks.
        if len(values) < len(sizes):
            continue
        weighted = [value * size for value, size in zip(values, sizes.values(), strict=True)]
        micro = sum(weighted) / sum(sizes.values())
        macro = sum(values) / len(values)
        fitting = set()
        if abs(micro - number) <= ROUNDING:
            fitting.add("micro")
        if abs(macro - number) <= ROUNDING:
            fitting.add("macro")
        if not fitting:
            raise Separate(
                f"its {name} is {number:.6g}, and its tasks have {micro:.6g} over all items and "
                f"{macro:.6g} over tasks"
            )
        averages.append(fitting)
    if not averages:
        raise Separate("none of its numbers is one of all of its tasks")
    common = set.intersection(*averages)
    if len(common) == 1:
        return (common.pop(),)
    if common:
        return (_configured(results.config(group)),)
    # Some numbers are one average and some the other.
    decided = [fitting for fitting in averages if len(fitting) == 1]
    if decided[0] == {"micro"}:
        return ("micro", "macro")
    return ("macro", "micro")


def _configured(config: JsonMapping) -> str:
    metrics = config.get("aggregate_metric_list")
    if isinstance(metrics, dict):
        metrics = [metrics]
    if not isinstance(metrics, list):
        return "micro"
    objects = objects_among(metrics)
    weighted = [metric.get("weight_by_size", True) for metric in objects]
    return "macro" if objects and not any(weighted) else "micro"


SAMPLES = re.compile(
    r"samples_(?P<task>.+?)(?:_(?P<date>\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d(?:\.\d+)?))?"
)
"""The name of a file of samples, without its ending."""

KEPT_ARGUMENTS = (
    "pretrained",
    "dtype",
    "revision",
    "peft",
    "delta",
    "subfolder",
    "add_bos_token",
    "max_length",
    "softmax_dtype",
    "load_in_8bit",
    "load_in_4bit",
    "parallelize",
    "model",
    "tokenizer",
    "enable_thinking",
)
"""Arguments of the model that are kept; others may be secrets."""

MEANS = frozenset({"acc", "acc_norm", "acc_bytes", "acc_mutual_info", "exact_match"})
"""Metrics whose total is a mean unless a task declares another (lm_eval/api/metrics.py@4e7e0d4)."""

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

LONGEST_SETTING = 200
"""Characters of a setting; of longer ones the end is left out."""


@dataclass(frozen=True, slots=True)
class Results:
    """Hold the ``content`` of the results file at ``path``."""

    path: Path
    content: JsonMapping

    def _entry(self, entry: str) -> JsonMapping:
        return mapping(self.content.get(entry))

    def config(self, task: str) -> JsonMapping:
        """Return the configuration of ``task``, empty if the file has none."""
        return mapping(self._entry("configs").get(task))

    def has(self, task: str) -> bool:
        """Return whether the file has numbers or the configuration of ``task``."""
        return task in self._entry("results") or bool(self.config(task))

    def task_of(self, samples: Path) -> str | None:
        """Return the task that ends the name of a file of samples of the harness 0.4.0."""
        stem = f"_{samples.stem}"
        endings = [name for name in self.tasks if stem.endswith(f"_{name}")]
        return max(endings, key=len, default=None)

    @property
    def tasks(self) -> list[str]:
        """Return all tasks and groups that have numbers."""
        return list(self._entry("results"))

    @property
    def model(self) -> str | None:
        """Return the name of the model, None if the file does not have it."""
        config = self._entry("config")
        arguments = _arguments(config.get("model_args"))
        name = (
            arguments.get("pretrained")
            or arguments.get("model")
            or self.content.get("model_name")
            or config.get("model")
        )
        if not isinstance(name, str) or not name.strip("/"):
            return None
        # An adapter makes it another model.
        adapter = arguments.get("peft")
        if not adapter:
            return _without_folder(name)
        return f"{_without_folder(name)}+{_without_folder(str(adapter))}"

    def totals(self, task: str, filter: str) -> dict[str, float]:
        """Return the total of each metric over the items of ``task`` after ``filter``."""
        totals = {}
        for key, value in self._numbers("results", task).items():
            metric, comma, filter_of_key = key.partition(",")
            # A key without a filter holds for all filters.
            if comma and filter_of_key != filter:
                continue
            if metric not in ("alias", "samples", "sample_len"):
                totals[metric] = value
        return totals

    def numbers(self, name: str) -> dict[str, float]:
        """Return the numbers of a task or group by ``METRIC,FILTER``, without standard errors."""
        numbers = {}
        for key, value in (self._numbers("groups", name) | self._numbers("results", name)).items():
            metric, comma, _ = key.partition(",")
            if comma and not metric.endswith("_stderr"):
                numbers[key] = value
        return numbers

    def _numbers(self, entry: str, name: str) -> dict[str, float]:
        numbers = {}
        for key, value in mapping(self._entry(entry).get(name)).items():
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            # A NaN differs from itself.
            if is_number and value == value:
                numbers[str(key)] = float(value)
        return numbers

    @property
    def groups(self) -> dict[str, list[str]]:
        """Return the tasks and groups in each group."""
        groups = {}
        for name, members in self._entry("group_subtasks").items():
            if isinstance(members, list) and members:
                groups[str(name)] = list(map(str, members))
        return groups

    def below(self, group: str) -> list[str]:
        """Return the groups that are in ``group``, at any depth."""
        groups = self.groups
        return [name for name in self._within(group) if name in groups]

    def leaves(self, group: str) -> tuple[str, ...]:
        """Return the tasks that are in ``group`` at any depth, in their order."""
        groups = self.groups
        return tuple(name for name in self._within(group) if name not in groups)

    def _within(self, group: str) -> dict[str, None]:
        """Return the tasks and groups in ``group`` depth first, each once."""
        groups = self.groups
        names: dict[str, None] = {}
        waiting = list(groups.get(group, ()))
        while waiting:
            name = waiting.pop(0)
            # A group may name itself, or be in two others.
            if name not in names and name != group:
                names[name] = None
                waiting[:0] = groups.get(name, ())
        return names

    def items(self, task: str) -> int | None:
        """Return the number of items of ``task`` that were sent, None if it is not in the file."""
        count = mapping(self._entry("n-samples").get(task)).get("effective")
        return count if isinstance(count, int) else None

    def size(self, task: str) -> int:
        """Return the number of items that ``task`` has, 0 if it is not in the file."""
        count = mapping(self._entry("n-samples").get(task)).get("original")
        return count if isinstance(count, int) else 0

    def limit(self, task: str) -> int | None:
        """Return how many items of ``task`` were sent at most, the first; None for all.

        The harness takes a number or, below 1, a share (lm_eval/evaluator_utils.py@4e7e0d4).
        """
        limit = self._entry("config").get("limit")
        sent = self.items(task) or 0
        is_part = sent < self.size(task)
        metadata = mapping(self.config(task).get("metadata"))
        if OWN in metadata:
            # A run of ours counts no items beyond its limit.
            is_part = True
            limit = mapping(mapping(metadata[OWN]).get("selection")).get("limit")
        if not is_part or not isinstance(limit, int | float):
            return None
        if 1 <= limit < math.inf:
            return int(limit)
        return sent

    def settings(self, task: str) -> dict[str, str]:
        """Return the settings of the model, the run and ``task``, as text."""
        config = self._entry("config")
        task_config = self.config(task)
        arguments = _arguments(config.get("model_args"))
        values = {
            "results": self.path.name,
            "task version": self._entry("versions").get(task),
            "shots": self._entry("n-shot").get(task, task_config.get("num_fewshot")),
        }
        for name in (*MODEL, *SEEDS):
            values[name] = config.get(name)
        for name in RUN:
            values[name] = self.content.get(name)
        for name in TASK:
            values[name] = task_config.get(name)
        for name in KEPT_ARGUMENTS:
            values[f"model {name}"] = arguments.get(name)
        dtype = config.get("model_dtype")
        if isinstance(dtype, str):
            values["dtype"] = dtype.removeprefix("torch.")
        settings = {}
        for name, value in values.items():
            if value is None or value == "":
                continue
            text = str(value)
            if len(text) > LONGEST_SETTING:
                text = f"{text[: LONGEST_SETTING - 3]}..."
            settings[name] = text
        return settings

    def is_mean(self, task: str, metric: str) -> bool:
        """Return whether the total of ``metric`` is the mean of the values of its samples."""
        for declared in objects_among(self.config(task).get("metric_list")):
            if declared.get("metric") != metric:
                continue
            if "aggregation" in declared:
                return bool(declared["aggregation"] == "mean")
            break
        return metric in MEANS


def read_results(path: Path) -> Results:
    """Read the results file at ``path``.  Raises DataError if it is none."""
    content = whole(path)
    if not isinstance(content, dict) or not isinstance(content.get("results"), dict):
        raise DataError(
            f"{path} is not a results file of lm-evaluation-harness 0.4: it has no results"
        )
    return Results(path, content)


def find_results(samples: Path, task: str) -> Results | None:
    """Return the results of a file of samples, None if there are none.

    They have the time of the samples, or are the only results of its task beside it.
    """
    match = SAMPLES.fullmatch(samples.stem)
    paths = sorted(samples.parent.glob("*.json"))
    beside = [path for path in paths if not path.name.startswith("samples_")]
    if match is not None and match["date"] is not None:
        for path in beside:
            if path.stem.endswith(match["date"]):
                return read_results(path)
        return None
    fitting = []
    for path in beside:
        try:
            results = read_results(path)
        except DataError:
            # Other JSON files may lie beside the samples.
            continue
        if results.has(task) or (match is None and results.task_of(samples) is not None):
            fitting.append(results)
    return fitting[0] if len(fitting) == 1 else None


def _arguments(model_args: Any) -> JsonDict:
    """Return the arguments of the model, which are text or, in newer files, an object."""
    if isinstance(model_args, dict):
        return model_args
    arguments = {}
    if isinstance(model_args, str):
        for part in model_args.split(","):
            name, equals, value = part.partition("=")
            if equals:
                arguments[name.strip()] = value.strip()
    return arguments


def _without_folder(model: str) -> str:
    """Return the name of a model; if it is a folder on that machine, the last part alone."""
    if not model.startswith(("/", "./", "../", "~")):
        return model
    return model.rstrip("/").rpartition("/")[2]
