"""Runs as tasks of LM Evaluation Harness: one per prompt and subject, with a metric per protocol."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from choicewise.interchange.write.file_names import file_name, free_name
from choicewise.interchange.write.harness_names import Task, given_task, known_task, metric_key, own_task
from choicewise.protocols.signature import short_signature
from choicewise.records.manifest import ImportRecord
from choicewise.results.measurement import Measurement
from choicewise.results.run import Run
from choicewise.scoring.metrics import Value

SAME = 1e-6
"""How far a number in a log may be from ours: no item of fewer than a million."""


@dataclass(frozen=True)
class PromptTask:
    """What a run says under one prompt.

    ``name``: of the task, or of the group where there are several subjects.  ``known``: the task of the harness that it
    is.  ``metrics``: by ``metric,filter``.  ``leaves``: subject → name of its task; empty where there is one task.
    """

    name: str
    run: Run
    known: Task | None
    metrics: dict[str, Measurement]
    leaves: dict[str, str] = field(default_factory=dict)

    @property
    def prompt(self) -> str:
        """Which prompt (``Protocol.prompt_digest``)."""
        return next(iter(self.metrics.values())).protocol.prompt_digest

    @property
    def whole(self) -> str:
        """The name of the entry about all subjects; empty where the harness has none."""
        return self.name if self.known is None or not self.leaves else self.known.group

    @property
    def finished(self) -> bool:
        """Whether the run has everything that was asked for."""
        return self.run.manifest.complete and not self.run.evidence.damages

    def leaf(self, subject: str) -> str:
        """The name of the task that an item of the ``subject`` belongs to."""
        return self.leaves[subject] if self.leaves else self.name

    def overall(self, measured: Measurement) -> Value:
        """The number over all subjects, as the harness or else the protocol makes it of its items."""
        own = measured.protocol.aggregation
        if self.known is not None and self.leaves:
            own = self.known.aggregation
        return measured.values(own if own in ("micro", "macro") else "micro")["all"]


def prompt_tasks(run: Run, taken: set[str]) -> Iterator[PromptTask]:
    """The tasks of a run, with names that are not ``taken``; they are, then."""
    groups: dict[tuple[str, str], list[Measurement]] = {}
    known: dict[tuple[str, str], Task | None] = {}
    for name, measured in run.measurements.items():
        protocol, dataset = measured.protocol, run.manifest.dataset.name
        task = known_task(name, protocol, dataset)
        if task is None:
            task = given_task(protocol, run.manifest, measured.evidence.about["subject"].unique().to_pylist())
        key = (protocol.prompt_digest, own_task(name, protocol, dataset) if task is None else task.name)
        groups.setdefault(key, []).append(measured)
        known.setdefault(key, task)
    for key, measurements in groups.items():
        subjects = list(dict.fromkeys(measurements[0].evidence.subjects))
        yield _task(run, measurements, known[key], subjects, taken)


def _task(
    run: Run, measurements: Sequence[Measurement], task: Task | None, subjects: Sequence[str], taken: set[str]
) -> PromptTask:
    first = measurements[0]
    by_subject = len(subjects) > 1 if task is None else "{subject}" in task.name
    if task is not None:
        theirs = [task.name.replace("{subject}", each) for each in subjects] if by_subject else [task.name]
        if taken & {*theirs, task.group}:
            task, by_subject = None, len(subjects) > 1
    spelling = short_signature(first.protocol)[1:]
    if task is None:
        name = free_name(own_task(first.name, first.protocol, run.manifest.dataset.name), taken, spelling)
        taken.add(name)
    else:
        name = task.group or task.name
    pattern = f"{name}_{{subject}}" if task is None else task.name
    leaves: dict[str, str] = {}
    for subject in subjects if by_subject else ():
        leaves[subject] = free_name(pattern.replace("{subject}", file_name(subject)), taken, spelling)
        taken.add(leaves[subject])
    taken |= {name}
    metrics: dict[str, Measurement] = {}
    for measured in measurements:
        own = _own(measured, task)
        key = metric_key(measured.name, measured.protocol, own, metrics)
        if _contradicts(run.manifest.imported, key, measured):
            key = metric_key(measured.name, measured.protocol, own, {*metrics, key})
        metrics[key] = measured
    return PromptTask(name, run, task, metrics, leaves)


def _own(measured: Measurement, task: Task | None) -> Task | None:
    """The task of the harness by the protocol's own name, which says its filter; None where the whole is none."""
    if task is None:
        return None
    return known_task(measured.name, measured.protocol, measured.protocol.benchmark) or task


def _contradicts(imported: ImportRecord | None, key: str, measured: Measurement) -> bool:
    """Whether the log of an imported run has another number under that name: its task counts in another way."""
    theirs = None if imported is None else imported.recorded.get(key.partition(",")[0])
    return theirs is not None and abs(theirs - measured.overall) > SAME
