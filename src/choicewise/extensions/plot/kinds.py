"""Draw the charts of the numbers themselves, or say why runs can't be drawn so."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from choicewise.errors import UsageError
from choicewise.page.charts import bump, lanes, strip
from choicewise.page.charts.bump import shown_models
from choicewise.page.charts.chart import Chart
from choicewise.page.charts.choices import (
    Choices,
    about_run,
    about_runs,
    chosen_run,
    listed_models,
    protocol_of,
    run_of,
    several_data,
)
from choicewise.page.study import ShownRun, Study, leads, pairs
from choicewise.report.brief import extremes
from choicewise.results.ladder import ladder as climb
from choicewise.results.ladder import main_effects
from choicewise.results.number import Number
from choicewise.results.outcomes import measured_as
from choicewise.util.text import counted, safe


def strip_lacks(study: Study) -> str:
    """Return why there is no number."""
    if any(not math.isnan(row.value) for row in study.rows):
        return ""
    if study.other_metrics:
        return "none of its numbers is a share of 1"
    return "no item was scored"


def draw_strip(study: Study, choices: Choices) -> Chart:
    """Draw the numbers of one run."""
    run = chosen_run(study, choices)
    chosen = []
    if choices.protocol is not None:
        chosen.append(protocol_of(run, choices.protocol))
    records = strip.values(run.rows, chosen)
    numbers = counted(sum(not math.isnan(row.value) for row in run.rows), "number")
    rank = bool(choices.rank)
    spec = strip.spec(records, rank, choices.width)
    title = f"{about_run(run)}: {numbers}"
    return Chart("strip", title, spec, strip.caption(records, rank))


def ladder_lacks(study: Study) -> str:
    """Return how many protocols there are if these are too few."""
    most = max((len(run.protocols) for run in study.runs), default=0)
    if most > 1:
        return ""
    return f"there is {counted(most, 'protocol')}"


def draw_ladder(study: Study, choices: Choices) -> Chart:
    """Draw the ladder between two protocols of one run."""
    run = chosen_run(study, choices)
    if choices.start is None or choices.end is None:
        raise UsageError(
            f"a ladder has two ends; name its first and its last protocol, {_such_as(run)}"
        )
    start = protocol_of(run, choices.start)
    end = protocol_of(run, choices.end)
    values = lanes.ladder_values(climb(run.outcomes, start, end))
    title = f"{about_run(run)}: from {safe(start)} to {safe(end)}"
    return Chart("ladder", title, lanes.ladder_spec(values, choices.width), lanes.LADDER_CAPTION)


def effects_lacks(study: Study) -> str:
    """Return why no pair of protocols shows an effect."""
    try:
        main_effects(study.runs[0].outcomes)
    except UsageError as error:
        return error.message
    return ""


def draw_effects(study: Study, choices: Choices) -> Chart:
    """Draw the effects of one run."""
    run = chosen_run(study, choices)
    records = lanes.effects_values(main_effects(run.outcomes))
    title = f"{about_run(run)}: what each axis of the protocols does"
    return Chart(
        "effects",
        title,
        lanes.effects_spec(records, choices.width),
        lanes.effects_caption(records),
    )


def bump_lacks(study: Study) -> str:
    """Return why models can't be put in an order."""
    return _no_rivals(study, study.rows)


def draw_bump(study: Study, choices: Choices) -> Chart:
    """Draw the models of the study, the named ones highlighted."""
    first = None
    if choices.protocol is not None:
        first = protocol_of(study.runs[0], choices.protocol)
    highlight = [run_of(study, model).label for model in choices.models]
    # Pairs of models without a colour need not be tested.
    labels = shown_models(study.rows, highlight)
    drawn = []
    for run in study.runs:
        if run.label in labels:
            drawn.append(run)
    colored = Study(tuple(drawn))
    ahead = leads(colored, pairs(colored))
    records = bump.values(study.rows, ahead, highlight, first)
    rank = choices.rank is not False
    return Chart(
        "bump",
        about_runs(study),
        bump.spec(records, rank, choices.width),
        bump.caption(records, rank),
    )


def ranks_lacks(study: Study) -> str:
    """Return why models can't be put in an order."""
    return _no_rivals(study, study.leading)


def draw_ranks(study: Study, choices: Choices) -> Chart:
    """Draw the ranks under all protocols, or under the chosen one."""
    if choices.protocol is None:
        spec = lanes.ranks_spec(lanes.ranks_values(study.leading), choices.width)
        return Chart("ranks", about_runs(study), spec, lanes.RANKS_CAPTION)
    name = protocol_of(study.runs[0], choices.protocol)
    spec = lanes.ranks_spec(lanes.ranks_values(study.leading, name), choices.width)
    return Chart("ranks", f"{about_runs(study)}: {safe(name)}", spec, lanes.CAPTION_ONE)


def pair_lacks(study: Study) -> str:
    """Return that there is one run only."""
    return _one_run(study)


def draw_pair(study: Study, choices: Choices) -> Chart:
    """Draw the two models that were named, or the only two."""
    named = [run_of(study, model) for model in choices.models]
    if not named:
        named = list(study.runs)
    if len(named) != 2:
        raise UsageError(f"the chart pair is about two models; name two of {listed_models(study)}")
    left, right = named
    (pair,) = pairs(Study((left, right)))
    if pair.reason:
        raise UsageError(f"{left.label} and {right.label} can't be compared: {pair.reason}")
    records = lanes.pair_values(left.label, right.label, pair.contests)
    title = f"{left.label} minus {right.label} on {left.manifest.dataset.name}"
    return Chart(
        "pair", title, lanes.pair_spec(records, choices.width), lanes.pair_caption(records)
    )


def _one_run(study: Study) -> str:
    """Return that there is one run, or an empty text."""
    if len(study.runs) > 1:
        return ""
    return "there is one run; name the runs of other models as well"


def _no_rivals(study: Study, rows: Sequence[Number]) -> str:
    """Return why models can't be put in an order, or an empty text."""
    reason = _one_run(study) or several_data(study)
    if reason:
        return reason
    # Models are rivals only where the same items were scored in the same way.
    rivals = Counter[tuple[str, ...]]()
    for row in rows:
        if not math.isnan(row.value):
            rivals[measured_as(row)] += 1
    if any(count > 1 for count in rivals.values()):
        return ""
    return "no two of the runs measured the same"


def _such_as(run: ShownRun) -> str:
    """Name two protocols of the run, those of the lowest and the highest value."""
    ends = extremes(run.rows)
    if ends is None:
        return "of those in the run"
    low, high = ends
    return f"such as {low.identity.protocol} and {high.identity.protocol}"
