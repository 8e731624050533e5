"""What stands below a table of numbers: what a value is not, how intervals are made, models, data and signatures."""

from collections.abc import Sequence

from choicewise import __version__
from choicewise.interchange.write.paper_table import Note
from choicewise.protocols.metrics import METRICS
from choicewise.results.row import Row, chosen_part
from choicewise.web.study import Study


class Marks:
    """The notes of single values, each once and numbered from 1 in the order in which they are met."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def of(self, remarks: Sequence[str]) -> tuple[int, ...]:
        """The numbers of these remarks."""
        return tuple(self._numbers.setdefault(remark, len(self._numbers) + 1) for remark in remarks)

    @property
    def notes(self) -> list[Note]:
        """A note for every remark."""
        return [Note(remark, number) for remark, number in self._numbers.items()]


def remarks(row: Row, part: str) -> list[str]:
    """What must be said of a value beside it.  ``part``: the part of the data that the run is to ask, in words."""
    parts = []
    if lacking := row.selection.removeprefix(part).strip(", "):
        parts.append(lacking)
    if row.missing:
        why = f": {row.missing_reasons[0].reason}" if row.missing_reasons else ""
        parts.append(f"{row.missing:,} of {row.n + row.missing:,} items could not be scored{why}")
    if row.invalid:
        parts.append(f"{row.invalid:,} of {row.n:,} texts name no option and count as wrong")
    if "gold-constant" in row.diagnosis.flags:
        parts.append("ties, and the right choice always in one place: the tie rule decides the number")
    return parts


def parts(study: Study) -> dict[str, str]:
    """Model → the part of the data that its run is to ask, in words."""
    return {run.label: chosen_part(run.manifest.selection) for run in study.runs}


def table_notes(rows: Sequence[Row]) -> list[Note]:
    """The notes that every table of these rows has, whatever its layout."""
    intervals, metrics = (dict.fromkeys(getattr(row, name) for row in rows) for name in ("interval", "metric"))
    models = dict.fromkeys(
        f"{row.model.removesuffix(f' on {row.dataset}')} {row.r}" + _from(row.model_source) for row in rows
    )
    data = dict.fromkeys(f"{row.dataset} {row.data}" + _from(row.dataset_source) for row in rows)
    lines = [
        f"{'; '.join(f'{name}: {METRICS[name].about}' for name in metrics)}.",
        f"Intervals: 95 %, {', '.join(intervals)}. n: the items that a value is a mean over.",
        f"Models: {'; '.join(models)}.",
        f"Data: {'; '.join(data)}.",
        f"Scored with Choicewise {__version__}; the signatures state every axis of a protocol and parse back to it.",
    ]
    return [*map(Note, lines), *signatures(rows)]


def signatures(rows: Sequence[Row]) -> list[Note]:
    """A note per protocol: its ids, its name and its signature; #I where the same texts were sent throughout."""
    own: dict[str, list[Row]] = {}
    for row in rows:
        own.setdefault(row.id, []).append(row)
    notes = []
    for identity, alike in own.items():
        texts, names = {row.i for row in alike}, dict.fromkeys(row.protocol for row in alike)
        ids = f"{identity} {texts.pop()}" if len(texts) == 1 else identity
        notes.append(Note(f"{ids} {', '.join(names)}", code=alike[0].signature))
    return notes


def _from(source: str) -> str:
    return f" ({source})" if source else ""
