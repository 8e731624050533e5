"""Add the sections of analyses to a page, in the order in which they stand there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

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
from choicewise.page.charts.chart import Record
from choicewise.page.embed import Section, Specifications, drawing, section_html
from choicewise.page.study import MOST_RUNS, Study
from choicewise.page.tables import PageTable, page_table
from choicewise.protocols.preparations import is_in_panel
from choicewise.results.run import open_run
from choicewise.util.jsonio import JsonDict
from choicewise.util.text import percent

_HERE = Path(__file__).parent
_TEMPLATES = _HERE / "templates"

MOST_DIAGRAMS = 4
"""Models of a dataset that have a reliability diagram; if there are further ones, the page has the
table alone.
"""


def page_sections(study: Study) -> Iterator[Section]:
    """Yield the sections that the runs of ``study`` have something to show for."""
    trained = steps.trained(study)
    if trained:
        yield _training(trained)
    stated = stated_probabilities(study)
    with_chains = [of_dataset for of_dataset in stated if of_dataset.chains]
    if with_chains:
        yield _chains(with_chains)
    calibrated = [of_dataset for of_dataset in stated if of_dataset.calibrated]
    if calibrated:
        yield _calibrations(calibrated)
    thoughts = along.thoughts_of(study)
    if thoughts:
        yield _thoughts(thoughts)
    tables = _panel_tables(study)
    if tables:
        html = section_html(_TEMPLATES / "invariance.html.j2", panels=tables)
        yield Section(name="invariance", title="Does it depend on how I ask?", html=html)


def _training(trained: Sequence[Trained]) -> Section:
    drawn = []
    for of_dataset in trained:
        first = of_dataset.first
        drawn.append((of_dataset, drawing(steps.spec, first), steps.caption(first)))
    html = section_html(_TEMPLATES / "training.html.j2", trained=drawn, columns=steps.COLUMNS)
    script = (_HERE / "training.js").read_text(encoding="utf-8")

    def data(specs: Specifications) -> JsonDict:
        elements: JsonDict = {}
        for number, of_dataset in enumerate(trained):
            charts = {}
            for name, values in of_dataset.values.items():
                charts[name] = specs.state(steps.spec, values) | {"caption": steps.caption(values)}
            elements[f"steps-{number}"] = {"charts": charts, "rows": of_dataset.rows}
        return elements

    return Section(name="training", title="Over training", html=html, data=data, script=script)


def _chains(stated: Sequence[StatedProbabilities]) -> Section:
    datasets = []
    for of_dataset in stated:
        values = chain.values(of_dataset.chains)
        columns, rows = chain_table(of_dataset.chains)
        datasets.append(
            {
                "dataset": of_dataset.dataset,
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
    for of_dataset in stated:
        diagrams = []
        if len(of_dataset.calibrated) <= MOST_DIAGRAMS:
            for of_model in of_dataset.calibrated:
                drawn = drawing(_diagram, calibration.values(of_model))
                diagrams.append((of_model, drawn.slim, errors_in_words(of_model)))
        datasets.append(
            {
                "dataset": of_dataset.dataset,
                "protocol": of_dataset.calibrated[0].protocol,
                "diagrams": diagrams,
                "columns": CALIBRATION_COLUMNS,
                "rows": calibration_rows(of_dataset.calibrated),
                "caption": calibration.CAPTION,
                "bin_columns": BIN_COLUMNS,
                "bins": bin_rows(of_dataset.calibrated),
            }
        )
    html = section_html(_TEMPLATES / "calibration.html.j2", calibrations=datasets)
    return Section(name="calibration", title="Is it calibrated?", html=html)


def _diagram(values: Sequence[Record], width: int) -> JsonDict:
    # Several diagrams stand beside each other, so that they are equally wide on every screen.
    return calibration.spec(values, calibration.SIDE)


def _thoughts(thoughts: Sequence[along.Along]) -> Section:
    drawn = []
    for thought in thoughts:
        values = along.values(thought.answers)
        drawn.append((thought, drawing(along.spec, values), along.caption(values)))
    html = section_html(_TEMPLATES / "along.html.j2", thoughts=drawn)
    return Section(name="along", title="Along the thought", html=html)


def _panel_tables(study: Study) -> list[PageTable]:
    """Return the panels of the first runs with changed questions: a row for each check, and lines
    below.
    """
    prepares: set[str] = set()
    for run in study.runs:
        prepares.update(protocol.prepare for protocol in run.protocols.values())
    if not any(map(is_in_panel, prepares)):
        return []
    tables = []
    for run in study.runs[:MOST_RUNS]:
        for panel in panels(open_run(run.folder)):
            subject = f"{run.label} on {run.manifest.dataset.name}, {panel.protocol}"
            title = f"{subject}: {percent(panel.accuracy)} % right"
            tables.append(page_table(panel_table(title, panel, {})))
    return tables
