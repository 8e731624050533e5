"""Samples of lm-evaluation-harness 0.4 (``--log_samples``), with the results file beside them.

Since 0.4.2 a file is JSON Lines, its requests are ``gen_args_I`` and its numbers texts
(lm_eval/loggers/evaluation_tracker.py@4e7e0d4); before, it is one JSON list of the same objects, with lists and numbers
(lm_eval/__main__.py of 0.4.0), and its name ends with the task.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from warnings import warn

from choicewise.interchange.logs.log import Log
from choicewise.interchange.logs.read import Reader
from choicewise.interchange.logs.read.harness_files import recognises, samples_of
from choicewise.interchange.logs.read.harness_groups import Apart, Part, outermost, together
from choicewise.interchange.logs.read.harness_log import SamplesFile, read_samples
from choicewise.interchange.logs.read.harness_results import SAMPLES, Results, read_results
from choicewise.interchange.logs.read.harness_sample import NoLikelihoods


def _read(paths: Sequence[Path], results: Path | None) -> Iterator[Log]:
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
                whole = together(name, results, {each.log.task: Part(each.log, each.size) for each in own if each.size})
            except Apart as reason:
                warn(f"{results.path.name}: the tasks of group {name} stay apart, because {reason}", stacklevel=2)
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


READER = Reader("samples of lm-evaluation-harness 0.4, with the results beside them", recognises, _read)
