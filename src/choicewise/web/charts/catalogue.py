"""The charts by name, and drawing one of a study."""

from dataclasses import fields
from typing import Any

from choicewise.errors import UsageError, did_you_mean
from choicewise.web.chart import Chart
from choicewise.web.charts.choices import Choices
from choicewise.web.charts.kinds import KINDS, Kind
from choicewise.web.study import Study


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
