"""The sections of the page that analyses add, in the order in which they stand there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from choicewise.extensions.analyses.charts import along, calibration, chain, steps
from choicewise.extensions.analyses.charts.probabilities import (
    BIN_COLUMNS,
    CALIBRATION_COLUMNS,
    StatedProbabilities,
    bin_rows,
    calibration_rows,
    chain_table,
    errors_in_words,
    stated_probabilities,
)
from choicewise.extensions.analyses.charts.steps import Trained
from choicewise.extensions.analyses.invariance import panels
from choicewise.extensions.analyses.invariance_report import panel_table
from choicewise.page.embed import Record, Section, Specifications, drawing, section_html
from choicewise.page.study import MOST_RUNS, Study
from choicewise.page.tables import PageTable, page_table
from choicewise.protocols.panel import asks_changes
from choicewise.results.run import open_run
from choicewise.util.text import percent

_HERE: Final = Path(__file__).parent
_TEMPLATES: Final = _HERE / "templates"

MOST_DIAGRAMS: Final = 4
"""Models of a dataset that have a reliability diagram each; of more there is the table."""


def page_sections(study: Study) -> Iterator[Section]:
    """Yield the sections of what the runs of ``study`` were asked."""
    if trained := steps.trained(study):
        yield _training(trained)
    stated = stated_probabilities(study)
    if chains := [each for each in stated if each.chains]:
        yield _chains(chains)
    if calibrated := [each for each in stated if each.calibrated]:
        yield _calibrations(calibrated)
    if thoughts := along.thoughts_of(study):
        yield _thoughts(thoughts)
    if tables := _panel_tables(study):
        html = section_html(_TEMPLATES / "invariance.html.j2", panels=tables)
        yield Section(name="invariance", title="Does it depend on how I ask?", html=html)


def _training(trained: Sequence[Trained]) -> Section:
    def data(specs: Specifications) -> dict[str, Any]:
        elements: dict[str, Any] = {}
        for place, each in enumerate(trained):
            charts = {
                name: specs.state(steps.spec, values) | {"caption": steps.caption(values)}
                for name, values in each.values.items()
            }
            elements[f"steps-{place}"] = {"charts": charts, "rows": each.rows}
        return elements

    html = section_html(
        _TEMPLATES / "training.html.j2",
        trained=[
            (each, drawing(steps.spec, each.first), steps.caption(each.first)) for each in trained
        ],
        columns=steps.COLUMNS,
    )
    script = (_HERE / "training.js").read_text(encoding="utf-8")
    return Section(name="training", title="Over training", html=html, data=data, script=script)


def _chains(stated: Sequence[StatedProbabilities]) -> Section:
    datasets = []
    for each in stated:
        values = chain.values(each.chains)
        columns, rows = chain_table(each.chains)
        datasets.append(
            {
                "dataset": each.dataset,
                "drawing": drawing(chain.spec, values),
                "caption": chain.caption(values),
                "columns": columns,
                "rows": rows,
            }
        )
    html = section_html(_TEMPLATES / "chain.html.j2", chains=datasets)
    return Section(name="chain", title="From probability to accuracy", html=html)


def _calibrations(stated: Sequence[StatedProbabilities]) -> Section:
    datasets = []
    for each in stated:
        diagrams = []
        if len(each.calibrated) <= MOST_DIAGRAMS:
            for of_model in each.calibrated:
                drawn = drawing(_diagram, calibration.values(of_model))
                diagrams.append((of_model, drawn.slim, errors_in_words(of_model)))
        datasets.append(
            {
                "dataset": each.dataset,
                "protocol": each.calibrated[0].protocol,
                "diagrams": diagrams,
                "columns": CALIBRATION_COLUMNS,
                "rows": calibration_rows(each.calibrated),
                "caption": calibration.CAPTION,
                "bin_columns": BIN_COLUMNS,
                "bins": bin_rows(each.calibrated),
            }
        )
    html = section_html(_TEMPLATES / "calibration.html.j2", calibrations=datasets)
    return Section(name="calibration", title="Is it calibrated?", html=html)


def _diagram(values: Sequence[Record], width: int) -> dict[str, Any]:
    """A diagram that is as wide on every screen, as several stand beside each other."""
    return calibration.spec(values, calibration.SIDE)


def _thoughts(thoughts: Sequence[along.Along]) -> Section:
    drawn = []
    for thought in thoughts:
        values = along.values(thought.answers)
        drawn.append((thought, drawing(along.spec, values), along.caption(values)))
    html = section_html(_TEMPLATES / "along.html.j2", thoughts=drawn)
    return Section(name="along", title="Along the thought", html=html)


def _panel_tables(study: Study) -> list[PageTable]:
    """Of the first runs the panels of protocols that were asked with changes: a row for each check, and lines below."""
    tables: list[PageTable] = []
    if not any(asks_changes(run.protocols.values()) for run in study.runs):
        return tables
    for run in study.runs[:MOST_RUNS]:
        for panel in panels(open_run(run.folder)):
            title = f"{run.label} on {run.manifest.dataset.name}, {panel.protocol}: {percent(panel.accuracy)} % right"
            tables.append(page_table(panel_table(title, panel, {})))
    return tables
