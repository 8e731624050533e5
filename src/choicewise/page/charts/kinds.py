"""The charts by name: what each needs, which choices it has, and how a study is drawn."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from choicewise.errors import UsageError, did_you_mean
from choicewise.extensions.analyses.charts import along, calibration, steps
from choicewise.extensions.analyses.charts import chain as chain_chart
from choicewise.extensions.analyses.charts.probabilities import lacks_probabilities, stated_probabilities, told
from choicewise.page.charts import bump, lanes, strip
from choicewise.page.charts.bump import shown_models
from choicewise.page.charts.chart import WIDTH, Chart
from choicewise.page.study import ShownRun, Study, leads, pairs
from choicewise.results.ladder import ladder as climb
from choicewise.results.ladder import main_effects
from choicewise.results.outcomes import measured_as
from choicewise.results.rows import Row
from choicewise.util.text import counted, safe


def draw(name: str, study: Study, **choices: Any) -> Chart:
    """The chart called ``name`` of the runs of ``study``; ``choices`` as the fields of :class:`~.choices.Choices`.

    Raises UsageError for a name or choice that nobody knows, and for a chart that these runs can't give; it says what
    the chart needs and which charts can be drawn.
    """
    kind = find_kind(name)
    known = [field.name for field in fields(Choices)]
    for choice in choices:
        if choice not in known:
            raise UsageError(f"no chart has a choice {choice!r}; {did_you_mean(choice, known)}")
        if choice not in (*kind.uses, "width"):
            has = f"; it has {', '.join(kind.uses)}" if kind.uses else ""
            raise UsageError(f"the chart {name} has no use for {choice}{has}")
    if reason := kind.lacks(study):
        others = [each.name for each in KINDS if each.name != name and not each.lacks(study)]
        instead = f"; these runs can be drawn as {', '.join(others)}" if others else ""
        raise UsageError(f"the chart {name} needs {kind.needs}: {reason}{instead}")
    return kind.draw(study, Choices(**choices))


def find_kind(name: str) -> Kind:
    """The declaration of the chart called ``name``; UsageError for one that nobody knows."""
    kinds = {kind.name: kind for kind in KINDS}
    if name not in kinds:
        known = ", ".join(f"{kind.name} ({kind.about})" for kind in KINDS)
        raise UsageError(f"no chart is called {name!r}; the charts are {known}")
    return kinds[name]


@dataclass(frozen=True)
class Choices:
    """``models``: by name, of those among the runs.  ``start`` and ``end``: protocols.  ``protocol``: one to point out,
    or to draw alone.  ``rank``: ranks, or values; None: what the chart shows by itself.  ``width``: in pixels.
    """

    models: Sequence[str] = ()
    start: str | None = None
    end: str | None = None
    protocol: str | None = None
    rank: bool | None = None
    width: int = WIDTH


@dataclass(frozen=True)
class Kind:
    """A chart: ``about`` in a few words, ``needs`` likewise, ``uses`` the fields of choices that mean something to it.

    ``lacks`` says in words why the runs of a study can't give it, nothing where they can; ``draw`` raises UsageError
    for choices that are not right or not made.  ``metrics``: whether it draws numbers that are no shares of 1.
    """

    name: str
    about: str
    needs: str
    uses: tuple[str, ...]
    draw: Callable[[Study, Choices], Chart]
    lacks: Callable[[Study], str]
    metrics: bool = False


def _strip(study: Study, choices: Choices) -> Chart:
    run = _one(study, choices)
    chosen = [] if choices.protocol is None else [_protocol(run, choices.protocol)]
    records = strip.values(run.rows, chosen)
    numbers = counted(sum(not math.isnan(row.value) for row in run.rows), "number")
    spec = strip.spec(records, bool(choices.rank), choices.width)
    return Chart("strip", f"{_about(run)}: {numbers}", spec, strip.caption(records, bool(choices.rank)))


def _ladder(study: Study, choices: Choices) -> Chart:
    run = _one(study, choices)
    if choices.start is None or choices.end is None:
        raise UsageError(f"a ladder has two ends; name its first and its last protocol, {_such_as(run)}")
    climbed = climb(run.outcomes, choices.start, choices.end)
    title = f"{_about(run)}: from {safe(choices.start)} to {safe(choices.end)}"
    return Chart("ladder", title, lanes.ladder_spec(lanes.ladder_values(climbed), choices.width), lanes.LADDER_CAPTION)


def _effects(study: Study, choices: Choices) -> Chart:
    run = _one(study, choices)
    records = lanes.effects_values(main_effects(run.outcomes))
    title = f"{_about(run)}: what each axis of the protocols does"
    return Chart("effects", title, lanes.effects_spec(records, choices.width), lanes.effects_caption(records))


def _bump(study: Study, choices: Choices) -> Chart:
    first = None if choices.protocol is None else _protocol(study.runs[0], choices.protocol)
    highlight = [_run(study, model).label for model in choices.models]
    shown = shown_models(study.rows, highlight)
    chosen = Study(tuple(run for run in study.runs if run.label in shown))
    ahead = leads(chosen, pairs(chosen))
    records = bump.values(study.rows, ahead, highlight, first)
    rank = choices.rank is not False
    return Chart("bump", _together(study), bump.spec(records, rank, choices.width), bump.caption(records, rank))


def _ranks(study: Study, choices: Choices) -> Chart:
    if choices.protocol is None:
        return Chart(
            "ranks",
            _together(study),
            lanes.ranks_spec(lanes.ranks_values(study.leading), choices.width),
            lanes.RANKS_CAPTION,
        )
    name = _protocol(study.runs[0], choices.protocol)
    spec = lanes.ranks_spec(lanes.ranks_values(study.leading, name), choices.width)
    return Chart("ranks", f"{_together(study)}: {safe(name)}", spec, lanes.CAPTION_ONE)


def _pair(study: Study, choices: Choices) -> Chart:
    chosen = [_run(study, model) for model in choices.models] or list(study.runs)
    if len(chosen) != 2:
        raise UsageError(f"the chart pair is about two models; name two of {_listed(study)}")
    left, right = chosen
    (compared,) = pairs(Study(tuple(chosen)))
    if compared.reason:
        raise UsageError(f"{left.label} and {right.label} can't be compared: {compared.reason}")
    records = lanes.pair_values(left.label, right.label, compared.contests)
    title = f"{left.label} minus {right.label} on {left.manifest.dataset.name}"
    return Chart("pair", title, lanes.pair_spec(records, choices.width), lanes.pair_caption(records))


def _chain(study: Study, choices: Choices) -> Chart:
    chosen = Study(tuple(_run(study, model) for model in choices.models) or study.runs)
    shown = [each for each in stated_probabilities(chosen) if each.chains]
    if not shown:
        raise UsageError("no item has log-likelihoods of its choices")
    records = chain_chart.values(shown[0].chains)
    title = f"{_together(chosen)}: from probability to accuracy"
    return Chart("chain", title, chain_chart.spec(records, choices.width), chain_chart.caption(records))


def _calibration(study: Study, choices: Choices) -> Chart:
    run = _one(study, choices)
    shown = [own for each in stated_probabilities(Study((run,))) for own in each.calibrated]
    if not shown:
        raise UsageError("no item has scores of its choices under a protocol of letters")
    title = f"{_about(run)}: calibration under {safe(shown[0].protocol)}"
    spec = calibration.spec(calibration.values(shown[0]), choices.width)
    return Chart("calibration", title, spec, " ".join([*told(shown[0]), calibration.CAPTION]))


def _steps(study: Study, choices: Choices) -> Chart:
    known = steps.over_steps(study.runs)
    if choices.protocol is not None and choices.protocol not in known:
        few = f"no training run has enough checkpoints under {choices.protocol!r}"
        raise UsageError(f"{few}; {did_you_mean(choices.protocol, list(known))}")
    name = next(iter(known)) if choices.protocol is None else choices.protocol
    records = steps.values(known[name])
    checkpoints = counted(sum(record["kind"] == "point" for record in records), "checkpoint")
    dataset = study.runs[0].manifest.dataset.name
    title = f"{safe(name)} on {dataset} over {checkpoints}"
    return Chart("steps", title, steps.spec(records, choices.width), steps.caption(records))


def _along(study: Study, choices: Choices) -> Chart:
    run = _one(study, choices)
    known = along.shown_along(Study((run,)))
    if choices.protocol is not None:
        known = [each for each in known if each.known.protocol == _protocol(run, str(choices.protocol))]
    if not known:
        raise UsageError("no item has a thought that was scored; `choicewise report DIR` says why")
    records = along.values(known[0].known)
    title = f"{known[0].title}, {safe(known[0].known.protocol)}"
    return Chart("along", title, along.spec(records, choices.width), along.caption(records))


def _no_chain(study: Study) -> str:
    return _several_data(study) or lacks_probabilities(study)


def _no_thought(study: Study) -> str:
    return "" if along.asks_along(study) else "no protocol has reading along-thought"


def _no_number(study: Study) -> str:
    if any(not math.isnan(row.value) for row in study.rows):
        return ""
    return "none of its numbers is a share of 1" if study.other_metrics else "no item was scored"


def _one_protocol(study: Study) -> str:
    most = max((len(run.protocols) for run in study.runs), default=0)
    return "" if most > 1 else f"there is {counted(most, 'protocol')}"


def _no_pair(study: Study) -> str:
    try:
        main_effects(study.runs[0].outcomes)
    except UsageError as error:
        return error.message
    return ""


def _one_run(study: Study) -> str:
    return "" if len(study.runs) > 1 else "there is one run; name the runs of other models as well"


def _several_data(study: Study) -> str:
    if len(study.datasets) < 2:
        return ""
    names = (study.runs[places[0]].manifest.dataset.name for places in study.datasets.values())
    data = [f"{safe(name)} #D{digest[:6]}" for name, digest in zip(names, study.datasets, strict=True)]
    return f"the runs are on different data; name those on one of {', '.join(data)}"


def _no_steps(study: Study) -> str:
    if reason := _several_data(study):
        return reason
    return "" if steps.over_steps(study.runs) else "no names of models say so many steps, as ORG/NAME@step1000 does"


def _no_order(study: Study) -> str:
    return _no_rivals(study, study.rows)


def _no_ranks(study: Study) -> str:
    return _no_rivals(study, study.leading)


def _no_rivals(study: Study, rows: Sequence[Row]) -> str:
    if reason := _one_run(study) or _several_data(study):
        return reason
    measured: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        if not math.isnan(row.value):
            measured.setdefault(measured_as(row), []).append(row)
    return "" if any(len(rows) > 1 for rows in measured.values()) else "no two of the runs measured the same"


KINDS = (
    Kind("strip", "all numbers of a model", "a number", ("models", "protocol", "rank"), _strip, _no_number),
    Kind("ladder", "from one number to another", "two protocols", ("models", "start", "end"), _ladder, _one_protocol),
    Kind("effects", "what each axis does", "protocols that differ in one axis", ("models",), _effects, _no_pair),
    Kind("bump", "models over protocols", "several models", ("models", "protocol", "rank"), _bump, _no_order),
    Kind("ranks", "does the order hold", "several models", ("protocol",), _ranks, _no_ranks, True),
    Kind("pair", "two models compared", "two models", ("models",), _pair, _one_run),
    Kind("chain", "from probability to accuracy", "log-likelihoods", ("models",), _chain, _no_chain),
    Kind("calibration", "is a model calibrated", "log-likelihoods", ("models",), _calibration, lacks_probabilities),
    Kind(
        "steps",
        "a number over checkpoints",
        "three checkpoints of a training run",
        ("protocol",),
        _steps,
        _no_steps,
        True,
    ),
    Kind("along", "answers along a thought", "thoughts", ("models", "protocol"), _along, _no_thought),
)
"""In the order of the page."""


def _about(run: ShownRun) -> str:
    return f"{run.label} on {run.manifest.dataset.name}, {counted(run.items, 'item')}"


def _together(study: Study) -> str:
    datasets = dict.fromkeys(run.manifest.dataset.name for run in study.runs)
    return f"{counted(len(study.runs), 'model')} on {', '.join(datasets)}"


def _listed(study: Study) -> str:
    return ", ".join(map(safe, study.labels[:10])) + (", ..." if len(study.runs) > 10 else "")


def _such_as(run: ShownRun) -> str:
    """Two of its protocols, those of the lowest and the highest value."""
    known = sorted((row for row in run.rows if not math.isnan(row.value)), key=lambda row: row.value)
    return f"such as {known[0].protocol} and {known[-1].protocol}" if known else "of those in the run"


def _run(study: Study, model: str) -> ShownRun:
    for run in study.runs:
        if model in (run.label, run.manifest.model.name):
            return run
    raise UsageError(f"no run is of the model {model!r}; {did_you_mean(model, study.labels)}")


def _one(study: Study, choices: Choices) -> ShownRun:
    if len(choices.models) > 1:
        raise UsageError(f"{len(choices.models)} models were named; the chart is about one")
    if not choices.models and len(study.runs) > 1:
        raise UsageError(f"the chart is about one model; name one of {_listed(study)}")
    return _run(study, choices.models[0]) if choices.models else study.runs[0]


def _protocol(run: ShownRun, name: str) -> str:
    if name not in run.protocols:
        raise UsageError(f"the run of {safe(run.label)} has no protocol {name!r}; {did_you_mean(name, run.protocols)}")
    return name
