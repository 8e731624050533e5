"""Draw a study as a chart of a given kind."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from choicewise.errors import UsageError, did_you_mean
from choicewise.page.charts.chart import Chart
from choicewise.page.charts.choices import Choices
from choicewise.page.study import Study
from choicewise.ports import ChartKind, all_of, find


def draw(name: str, study: Study, **choices: Any) -> Chart:
    """Draw the chart called ``name`` of the runs of ``study``; ``choices``: fields of
    :class:`~.choices.Choices`.

    Raises UsageError for a name or choice that nobody knows, and for a chart that these runs can't
    give; it says what the chart needs and which charts can be drawn.
    """
    kind = find_kind(name)
    names = [field.name for field in fields(Choices)]
    for choice in choices:
        if choice not in names:
            raise UsageError(f"no chart has a choice {choice!r}; {did_you_mean(choice, names)}")
        if choice not in (*kind.uses, "width"):
            has = f"; it takes {', '.join(kind.uses)}" if kind.uses else ""
            raise UsageError(f"{choice} does not apply to the chart {name}{has}")
    reason = kind.lacks(study)
    if not reason:
        return kind.draw(study, Choices(**choices))
    # The error names what can be drawn instead.
    others = []
    for other in chart_kinds():
        if other.name != name and not other.lacks(study):
            others.append(other.name)
    instead = f"; these runs can be drawn as {', '.join(others)}" if others else ""
    raise UsageError(f"the chart {name} needs {kind.needs}: {reason}{instead}")


def find_kind(name: str) -> ChartKind:
    """Return the kind of chart called ``name``; UsageError for one that nobody knows."""
    kind = find(ChartKind, name)
    if kind is None:
        kinds = ", ".join(f"{kind.name} ({kind.summary})" for kind in chart_kinds())
        raise UsageError(f"no chart is called {name!r}; the charts are {kinds}")
    return kind


def chart_kinds() -> list[ChartKind]:
    """Return every kind of chart: those of the page first, in its order."""
    return all_of(ChartKind)
