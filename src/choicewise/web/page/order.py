"""Section C: does the order of several models hold under all protocols?"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from statistics import median

from choicewise.report.reversal_text import reversal_sentence
from choicewise.report.table import percent
from choicewise.results.reversal import reversal
from choicewise.results.row import Row
from choicewise.web.charts import bump
from choicewise.web.charts import ranks as ranks_chart
from choicewise.web.number import ranks
from choicewise.web.page.figure import Record
from choicewise.web.pairs import MOST_RUNS, Lead, Pair, leads
from choicewise.web.study import Study

RANGE_COLUMNS = (
    ("model", ""),
    ("median rank", "number"),
    ("ranks", "number"),
    ("in 95 % of draws", "number"),
    ("first under", "number"),
    ("last under", "number"),
    ("protocols", "number"),
)


@dataclass(frozen=True)
class Order:
    """The models measured on one dataset: the values and tables of the two charts, of all orders and of the ranks.

    ``dataset``: its name, with its id where another dataset is called the same.  ``reversal``: says which two of them
    change places, nothing where none do.
    """

    dataset: str
    reversal: str
    values: list[Record]
    models: tuple[str, ...]
    table: list[list[str]]
    rank_values: list[Record]
    ranges: list[list[str]]


def orders(study: Study, compared: Sequence[Pair]) -> list[Order]:
    """One per dataset with two models or more."""
    ahead = leads(study, compared)
    several = {digest: places for digest, places in study.datasets.items() if len(places) > 1}
    names = {digest: study.runs[places[0]].manifest.dataset.name for digest, places in several.items()}
    called = list(names.values())
    told = {digest: name if called.count(name) == 1 else f"{name} #D{digest[:6]}" for digest, name in names.items()}
    return [_order(study, told[digest], places, ahead) for digest, places in several.items()]


def _order(study: Study, dataset: str, places: Sequence[int], ahead: Collection[Lead]) -> Order:
    runs = [study.runs[place] for place in places]
    rows = [row for run in runs for row in run.rows]
    values = bump.values(rows, ahead)
    columns = [record["protocol"] for record in values if record["kind"] == "column"]
    models = tuple(run.label for run in runs)
    table = [[name, *(_cell(run.row_of.get(name)) for run in runs)] for name in dict.fromkeys(columns)]
    ranges = [_range(run.label, run.rows, len(runs)) for run in runs]
    ranges.sort(key=lambda cells: float(cells[1]) if cells[1] != "-" else math.inf)
    turned = reversal(runs[:MOST_RUNS])
    said = reversal_sentence(turned) if turned else ""
    return Order(dataset, said, values, models, table, ranks_chart.values(rows), ranges)


def _cell(row: Row | None) -> str:
    if row is None:
        return ""
    return percent(row.value) if row.rank is None else f"{percent(row.value)} ({row.rank})"


def _range(label: str, rows: Sequence[Row], models: int) -> list[str]:
    known = [row for row in rows if row.rank is not None and row.rank_low is not None]
    places = [row.rank for row in known if row.rank is not None]
    if not places:
        return [label, "-", "", "", "", "", "0"]
    low = min(row.rank_low for row in known if row.rank_low is not None)
    high = max(row.rank_high for row in known if row.rank_high is not None)
    middle = f"{median(places):g}"
    firsts, lasts = (sum(place == edge for place in places) for edge in (1, models))
    return [label, middle, ranks(min(places), max(places)), ranks(low, high), f"{firsts}", f"{lasts}", f"{len(places)}"]
