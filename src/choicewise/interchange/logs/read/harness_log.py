"""A file of samples of lm-evaluation-harness 0.4 as a log.

Since 0.4.2 a file is JSON Lines, its requests are ``gen_args_I`` and its numbers texts
(lm_eval/loggers/evaluation_tracker.py@4e7e0d4); before, it is one JSON list of the same objects, with lists and numbers
(lm_eval/__main__.py of 0.4.0), and its name ends with the task.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from choicewise.errors import DataError
from choicewise.interchange.logs.log import Log, LoggedItem, Unreadable
from choicewise.interchange.logs.read.harness_gold import meaning
from choicewise.interchange.logs.read.harness_results import SAMPLES, Results, find_results
from choicewise.interchange.logs.read.harness_rows import SampleRows, sample_rows
from choicewise.interchange.logs.read.harness_sample import NoLikelihoods, Sample
from choicewise.interchange.logs.read.harness_scan import Scan, check_totals, scan_samples
from choicewise.interchange.logs.verdicts import HARNESS

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
        return SamplesFile(Log(_TOOL, _model_of(path, results), task, Unreadable(error)), 0, results)


def _model_of(path: Path, results: Results | None) -> str:
    return (results.model if results else None) or path.resolve().parent.name.replace("__", "/")


def _log(path: Path, task: str, results: Results | None, named: bool) -> SamplesFile:
    """``named``: whether the results are those that were asked for, and not only lie beside the samples."""
    if results is not None and named and not results.has(task):
        raise DataError(f"{results.path} has no results of {task}, but of {', '.join(results.tasks[:5])}")
    rows = sample_rows(path)
    scan = scan_samples(path, rows, None if results is None else results.config(task).get("target_delimiter"))
    settings = {"file": path.name, "right choices": scan.gold[0]}
    totals: dict[str, float] = {}
    if scan.lengths:
        settings["acc_norm is"] = scan.lengths
    if results is not None:
        settings |= results.settings(task)
        totals = results.totals(task, rows.filter)
        check_totals(path, results, task, scan, totals)
    own = results is not None and "process_results" in results.config(task)
    items = _Items(path, rows, scan, own)
    null = "" if scan.unconditional else None
    log = Log(_TOOL, _model_of(path, results), task, items, settings, null, totals, scan.unused, AXES)
    return SamplesFile(log, scan.items, results)


@dataclass(frozen=True)
class _Items:
    """The items of a file.  ``own``: whether the task computes its metrics itself, so that they can't be checked."""

    path: Path
    rows: SampleRows
    scan: Scan
    own: bool

    def __iter__(self) -> Iterator[LoggedItem]:
        return map(self._item, self.rows)

    def _item(self, sample: Sample) -> LoggedItem:
        options = self.scan.options(sample)
        gold = self.scan.gold[1](sample, options or ())
        kind = meaning(sample)
        checked = () if self.own else sample.metrics.items()
        recorded = {name: value for name, value in checked if name in HARNESS and name != "acc"}
        if sample.own_contexts:  # the harness divides by the length of contexts
            recorded = {name: value for name, value in recorded.items() if name == "exact_match"}
        if "acc" in sample.metrics and (kind != "acc" or not self.own):
            recorded[kind] = sample.metrics["acc"]
        return LoggedItem(
            str(sample.id), gold or (), sample.choices, sample.context, options=options, recorded=recorded
        )
