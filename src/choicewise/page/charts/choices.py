"""Find the runs and protocols that a user chooses for a chart."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

from choicewise.errors import UsageError, did_you_mean
from choicewise.page.charts.chart import WIDTH
from choicewise.page.study import ShownRun, Study
from choicewise.protocols.catalogue import variant_of
from choicewise.util.text import counted, safe


@dataclass(frozen=True)
class Choices:
    """What a user chooses of a chart.

    ``models``: by name, of those among the runs. ``start`` and ``end``: protocols. ``protocol``:
    one to point out, or to draw alone. ``rank``: ranks, or values; None: what the chart shows by
    itself. ``width``: in pixels.
    """

    models: Sequence[str] = ()
    start: str | None = None
    end: str | None = None
    protocol: str | None = None
    rank: bool | None = None
    width: int = WIDTH


def chosen_run(study: Study, choices: Choices) -> ShownRun:
    """Return the run that a chart of one model is about; UsageError if it isn't said which."""
    if len(choices.models) > 1:
        raise UsageError(f"{len(choices.models)} models were named; the chart is about one")
    if not choices.models and len(study.runs) > 1:
        raise UsageError(f"the chart is about one model; name one of {listed_models(study)}")
    if choices.models:
        return run_of(study, choices.models[0])
    return study.runs[0]


def run_of(study: Study, model: str) -> ShownRun:
    """Return the run of a model; UsageError if there is none."""
    for run in study.runs:
        if model in (run.label, run.manifest.model.name):
            return run
    raise UsageError(f"no run is of the model {model!r}; {did_you_mean(model, study.labels)}")


def protocol_of(run: ShownRun, name: str) -> str:
    """Return the name of a protocol of the run, or of its only variant; UsageError without one."""
    if name in run.protocols:
        return name
    where = f"the run of {safe(run.label)}"
    variant = variant_of(name, run.protocols, where)
    if variant is None:
        raise UsageError(f"{where} has no protocol {name!r}; {did_you_mean(name, run.protocols)}")
    warnings.warn(f"using {variant} for {name}, its only variant in {where}", stacklevel=2)
    return variant


def about_run(run: ShownRun) -> str:
    """Return what a chart of one run is about: its model, its data, how many items."""
    return f"{run.label} on {run.manifest.dataset.name}, {counted(run.items, 'item')}"


def about_runs(study: Study) -> str:
    """Return what a chart of several runs is about: how many models, on which data."""
    datasets = dict.fromkeys(run.manifest.dataset.name for run in study.runs)
    return f"{counted(len(study.runs), 'model')} on {', '.join(datasets)}"


def several_data(study: Study) -> str:
    """Return why a chart of one dataset can't be drawn: the runs are on several. Empty if they are
    not.
    """
    if len(study.datasets) < 2:
        return ""
    names = []
    for digest, positions in study.datasets.items():
        dataset = study.runs[positions[0]].manifest.dataset
        names.append(f"{safe(dataset.name)} #D{digest[:6]}")
    return f"the runs are on different data; name those on one of {', '.join(names)}"


def listed_models(study: Study) -> str:
    """Return the names of the first ten models."""
    names = ", ".join(map(safe, study.labels[:10]))
    if len(study.runs) > 10:
        return f"{names}, ..."
    return names
