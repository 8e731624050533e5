"""Write how far answers change if the question stays the same as a table of checks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from choicewise.extensions.analyses.invariance import Check, Panel, measure_of, panels
from choicewise.protocols.panel import CHECKS
from choicewise.results.run import Run
from choicewise.table import Column, Table, facts_of
from choicewise.util.jsonio import JsonDict
from choicewise.util.text import counted, percent

COLUMNS = (
    Column("check", heading="changed"),
    Column("n", "count", heading="items"),
    Column(
        "flips",
        "share",
        heading="flips %",
        meaning="another likeliest choice; of orders, over all pairs; at most: none, and with 95 % confidence no more "
        "than this",
    ),
    Column("flips_low", "share", heading="95 % interval"),
    Column("flips_high", "share", joined=" – "),
    Column("at_most", "share", heading="at most %", optional=True),
    Column(
        "net",
        "share",
        heading="net %",
        meaning="flips minus those of the same request sent twice; uniform: flips of a predictor "
        "with equal probabilities. Read flips together with right %",
    ),
    Column("flips_uniform", "share", heading="uniform %"),
    Column("change", "distance"),
    Column("change_low", "distance", heading="95 % interval"),
    Column("change_high", "distance", joined=" – "),
    Column("change_uniform", "distance", heading="uniform"),
    Column("accuracy", "share", heading="right %"),
    Column("versions", "names", data=True),
    Column("constant", data=True),
)


def run_tables(run: Run) -> Iterator[Table]:
    """Yield the table of each protocol of a run with a panel, or one without rows if there is none."""
    facts = {"run": str(run.folder), "model": run.manifest.model.name}
    panels_of_run = panels(run)
    if not panels_of_run:
        advice = "no protocol was run with changes; run its panel, or one change: @prepare=reversed"
        yield Table(name="invariance", title=f"{run.folder}: {advice}", facts=facts)
    for panel in panels_of_run:
        title = (
            f"{run.folder}: the same questions, changed; {panel.protocol}: "
            f"{counted(panel.n, 'item')}"
        )
        if panel.checks:
            title += f", {percent(panel.accuracy)} % right"
        yield panel_table(title, panel, facts)


def panel_table(title: str, panel: Panel, run_facts: JsonDict) -> Table:
    """Return the checks of a panel. ``run_facts``: facts of the run, for programs."""
    columns: Sequence[Column] = ()
    if panel.checks:
        columns = COLUMNS
    notes = list(_lines(panel))
    for check in panel.checks:
        notes.append(_meaning(panel.kind, check.check))
    return Table(
        name="invariance",
        title=title,
        columns=columns,
        rows=[_row(check) for check in panel.checks],
        notes=notes,
        facts={**run_facts, **facts_of(panel, ("checks",))},
    )


def _row(check: Check) -> list[Any]:
    row: list[Any] = [check.check, check.n]
    row += [check.flips.value, check.flips.low, check.flips.high]
    row += [check.at_most, check.net, check.flips.uniform]
    row += [check.change.value, check.change.low, check.change.high, check.change.uniform]
    row += [check.accuracy, check.versions, check.constant]
    return row


def _lines(panel: Panel) -> Iterator[str]:
    """Yield repeats, places, and the option that says none."""
    if not panel.checks:
        yield (
            "no item was scored both unchanged and changed; `choicewise report` on the run gives "
            "the reason"
        )
        return
    yield f"a uniform predictor would have {percent(panel.uniform)} % right"
    # Where nothing can flip by itself, all flips are due to the change.
    if panel.computed:
        yield "repeats: a prompt is computed once here, so that none flips"
    elif panel.repeat_flips is None:
        yield "repeats: not measured, as nothing was sent twice"
    else:
        yield f"repeats: {percent(panel.repeat_flips)} % of {panel.repeated} requests sent twice flip"
    if panel.places:
        means = ", ".join(f"{mean:.3f}" for mean in panel.places)
        yield f"mean probability by place, items with {len(panel.places)} options: {means}"
    if panel.none is not None and panel.none.added is not None:
        line = f'"None of these" has {percent(panel.none.added)} % next to the right option'
        if panel.none.for_right is not None:
            line += f", {percent(panel.none.for_right)} % in place of the right one"
        yield line
    constant = [check.check for check in panel.checks if check.constant]
    if constant:
        yield (
            f"no probability changes with {', '.join(constant)}: the server may sort or leave out "
            "what is changed"
        )


def _meaning(kind: str, check: str) -> str:
    """Return what a check changes, and what its change measures."""
    name = check
    if kind != "choice":
        name += f" of a {kind}"
    return f"{name}: {CHECKS[check].changes}; change: {measure_of(kind, check)}"
