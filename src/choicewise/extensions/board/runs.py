"""The runs of a board: read, explained and drawn by processes with limits, as what lies in a folder may be hostile.

As a program this is such a process.  It answers ``{"task", "id", "label", "folder"}`` with ``{"result"}``; with
``{"absent"}`` where the run does not have what was asked for, or with ``{"problem"}``, why there is no result.
"""

from __future__ import annotations

import hashlib
import json
import os
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from queue import LifoQueue
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from choicewise.data.items import Categories
from choicewise.errors import ChoicewiseError, StoreError, UsageError
from choicewise.extensions.analyses.invariance import panels
from choicewise.extensions.board.model import Artefact, ListedRun, Orders, Place, State
from choicewise.page.charts import strip
from choicewise.page.charts.chart import DARK, LIGHT, Chart, styles
from choicewise.page.document import Content, document, inside_items, today
from choicewise.page.embed import WIDE
from choicewise.page.study import parquet_bytes, read_study, rows_table
from choicewise.protocols.panel import asks_changes
from choicewise.protocols.protocol import parse_signature, signature
from choicewise.records import ITEM_FILE, ITEMS, SUMMARY, Manifest
from choicewise.results.explain import Explanation, explain
from choicewise.results.outcomes import Outcome, Outcomes
from choicewise.results.rows import Row, chosen_part, run_id
from choicewise.results.run import asked_protocols, count_items, open_run
from choicewise.results.summary import summarize
from choicewise.results.tables import item_batches
from choicewise.store.folder import read_manifest, version_of
from choicewise.store.tables import check_items, read_listed, read_metadata
from choicewise.table import table_csv
from choicewise.util.isolate import BoundedProcess, Limits, Record, serve
from choicewise.util.text import shortened

if TYPE_CHECKING:
    from pydantic import TypeAdapter


_ITEMS_SHOWN = 20
"""Items that a document holds in full, those that flip most; a served board has a page for every item."""


def run_document(folder: Path, board: str, metrics: Sequence[str] = ()) -> str:
    """The page of the complete run in ``folder``, as HTML with its own style, scripts and policy.

    ``board``: the address of the board; ``metrics``: those that it adds to what the run was asked.
    """
    content = Content(read_study([folder], metrics))
    return document(content, today(), inside_items(content, _ITEMS_SHOWN), board=board)


def run_strip(folder: Path) -> str:
    """The strip of the complete run in ``folder``; its colours are those of the pages."""
    values = strip.values([row for row in summarize(folder).rows if row.share])
    drawn = Chart("strip", "", strip.spec(values, width=WIDE)).page_svg()
    return drawn.replace(">", f"><style>{strip_style()}</style>", 1)


def strip_style() -> str:
    """The style inside the image: the colours of both themes."""
    return f":root{{{styles(LIGHT)}}}@media(prefers-color-scheme:dark){{:root{{{styles(DARK)}}}}}"


LIMITS = Limits(seconds=120, wait=120.0, memory=4 << 30, answer=128 << 20, written=1 << 30)
"""For one thing that is made of a run.  Reading writes the run's summary."""

LOOK_SECONDS = 20.0
"""For a manifest alone, which is read of all runs before the first one is shown."""

FORGIVEN = 600.0
"""Seconds after which a run that exceeded a limit is tried again, where it did not change."""

Made = TypeVar("Made")


class LimitExceeded(StoreError):
    """A run took more time or memory than it may, or ended the process that reads it."""


class RunProcess(BoundedProcess):
    """A process that reads runs, with the numbers of further ``metrics``."""

    module, limits = "choicewise.extensions.board.runs", LIMITS
    called = "the process that reads the run"
    remedy = "`choicewise doctor` says what is wrong with the run"
    error = LimitExceeded

    def __init__(self, metrics: Sequence[str] = ()) -> None:
        super().__init__()
        self._metrics = [*metrics]

    def look(self, place: Place) -> ListedRun:
        """The run at ``place`` from its manifest alone: waiting to be read, incomplete, or unreadable."""
        try:
            return self._run(place, self._result("look", place, LOOK_SECONDS))
        except StoreError as error:
            return ListedRun(place.id, place.label, place.folder, State.UNREADABLE, "", str(error))

    def read(self, run: ListedRun) -> tuple[ListedRun, Outcomes | None]:
        """The same run with its numbers, and the decision of every item; unreadable, with the reason, where it can't be
        read.
        """
        assert run.manifest is not None
        try:
            told = self._result("read", run)
            numbers = self._run(run, told["run"])
        except StoreError as error:
            return replace(run, state=State.UNREADABLE, reason=str(error)), None
        about = (
            _left_out(run.manifest, numbers.rows),
            run.manifest,
            run.computed,
            numbers.rows,
            numbers.artefacts,
        )
        whole = ListedRun(
            run.id,
            run.label,
            run.folder,
            State.READ,
            run.version,
            *about,
            numbers.notes,
            numbers.orders,
        )
        return whole, _read_outcomes(told["outcomes"], run.manifest.dataset.categories)

    @staticmethod
    def _run(place: Place | ListedRun, told: str) -> ListedRun:
        run: ListedRun = _parsed(ListedRun, told)
        return replace(run, id=place.id, label=place.label, folder=place.folder)

    def explain(self, run: ListedRun, item: str) -> Explanation:
        """See :func:`choicewise.results.explain.explain`."""
        explained: Explanation = _parsed(Explanation, self._result("explain", run, item=item))
        return explained

    def draw(self, kind: str, run: ListedRun, board: str) -> str:
        """The ``document`` or the ``strip`` of a complete run; ``board``: the address of the board."""
        return str(self._result(kind, run, board=board))

    def questions(self, run: ListedRun, items: Sequence[str]) -> Mapping[str, str]:
        """The questions of these items of a run, cut where they are long; without those that it does not have."""
        told: dict[str, str] = self._result("questions", run, items=json.dumps([*items]))
        return told

    def artefact(self, run: ListedRun, artefact: Artefact) -> bytes | None:
        """What the file holds; None where it is not there (any more)."""
        content = self._result("artefact", run, file=artefact.file)
        return None if content is None else b64decode(content)

    def _result(
        self, task: str, place: Place | ListedRun, wait: float | None = None, **further: str
    ) -> Any:
        """UsageError where the run has no such thing, StoreError with the reason where it can't be read."""
        about = {
            "id": place.id,
            "label": place.label,
            "folder": str(place.folder.absolute()),
            "metrics": self._metrics,
        }
        told = self._ask({"task": task, **about, **further}, wait)
        if "absent" in told:
            raise UsageError(told["absent"])
        if "problem" in told:
            raise StoreError(told["problem"])
        return told["result"]


class RunProcesses:
    """``count`` processes for several threads, with the numbers of further ``metrics``.

    A run that exceeded a limit is not tried again for a while.
    """

    def __init__(self, count: int, metrics: Sequence[str] = ()) -> None:
        self._processes = [RunProcess(metrics) for _ in range(count)]
        self._free: LifoQueue[RunProcess] = (
            LifoQueue()
        )  # the one that was used last has all in memory
        for process in self._processes:
            self._free.put(process)
        self._failed: dict[tuple[str, str], tuple[float, str]] = {}

    def use(self, run: ListedRun, make: Callable[[RunProcess], Made]) -> Made:
        """What ``make`` makes of the run, by a process that is free."""
        name, now = (run.id, run.version), monotonic()
        self._failed = {each: told for each, told in self._failed.items() if told[0] > now}
        if name in self._failed:
            raise StoreError(self._failed[name][1])
        process = self._free.get()
        try:
            return make(process)
        except LimitExceeded as error:
            self._failed[name] = monotonic() + FORGIVEN, error.message
            raise
        finally:
            self._free.put(process)

    def close(self) -> None:
        """End all of them."""
        for process in self._processes:
            process.close()


def _read_outcomes(told: Mapping[str, Any], categories: Categories) -> Outcomes:
    tables = [
        pa.table({"item": each["item"], "subject": each["subject"]}) for each in told["items"]
    ]
    tables = [
        table.set_column(1, "subject", table["subject"].dictionary_encode()) for table in tables
    ]
    outcomes = []
    for each in told["outcomes"]:
        values, codes, predicted = (
            _read_array(*each[name]) for name in ("values", "codes", "predicted")
        )
        outcomes.append(
            Outcome(
                name=each["name"],
                protocol=parse_signature(each["signature"]),
                categories=categories,
                selection=each["selection"],
                items=tables[each["items"]],
                values=values,
                codes=codes,
                predicted=predicted,
                first=each["first"],
            )
        )
    return Outcomes(told["model"], told["dataset"], told["digest"], tuple(outcomes))


def _read_array(dtype: str, content: str) -> npt.NDArray[Any]:
    return np.frombuffer(b64decode(content), dtype)


def _left_out(manifest: Manifest, rows: tuple[Row, ...]) -> str:
    part = chosen_part(manifest.selection)
    lacking = dict.fromkeys(row.selection for row in rows if row.selection != part)
    advice = f"blocks are damaged and left out; run the same `{manifest.writer}` command again to write them"
    return f"{'; '.join(lacking)}: {advice}" if lacking else ""


def _parsed(kind: Any, text: str) -> Any:
    """The JSON as a value of that type.  StoreError for what is none, as half characters in a text are."""
    try:
        return _type(kind).validate_json(text)
    except ValueError as error:
        raise StoreError(
            f"it holds what it should not ({error}); `choicewise doctor` says more"
        ) from error


@cache
def _type(kind: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def answer(question: Record) -> Record:
    """The answer to one question: every error but a lack of memory in words."""
    place = Place(question["id"], question["label"], Path(question["folder"]), (0, 0, 0))
    try:
        return {"result": _TASKS[question["task"]](place, question)}
    except MemoryError:
        raise
    except UsageError as error:
        return {"absent": _reason(error, place)}
    except Exception as error:
        return {"problem": _reason(error, place)}


def _run_json(run: ListedRun) -> str:
    return json.dumps(asdict(run), default=str)


def _read(place: Place, question: Record) -> Record:
    summary = summarize(place.folder, question["metrics"])
    files = tuple(artefacts(place.folder, summary.rows))
    notes = () if summary.applied is None else tuple(summary.applied.lines)
    about = "", None, "", summary.rows, files, notes, tuple(_orders(place.folder))
    run = ListedRun(place.id, place.label, place.folder, State.READ, "", *about)
    return {"run": _run_json(run), "outcomes": _outcomes(summary.outcomes)}


def _orders(folder: Path) -> Iterator[Orders]:
    if not asks_changes(asked_protocols(folder, read_manifest(folder)).values()):
        return
    for panel in panels(open_run(folder)):
        for check in panel.checks:
            if check.check == "order":
                yield Orders(panel.protocol, check.flips.value, check.net)


def _outcomes(outcomes: Outcomes) -> Record:
    """What was decided of every item; ``items`` are listed once for all that share them."""
    tables: dict[int, pa.Table] = {id(each.items): each.items for each in outcomes.outcomes}
    places = {name: place for place, name in enumerate(tables)}
    listed = [
        {
            "name": each.name,
            "signature": signature(each.protocol),
            "selection": each.selection,
            "first": each.first,
        }
        | {"items": places[id(each.items)], "values": _array(each.values)}
        | {"codes": _array(each.codes), "predicted": _array(each.predicted)}
        for each in outcomes.outcomes
    ]
    items = [
        {name: table[name].to_pylist() for name in ("item", "subject")} for table in tables.values()
    ]
    about = {"model": outcomes.model, "dataset": outcomes.dataset, "digest": outcomes.digest}
    return {**about, "items": items, "outcomes": listed}


def _array(numbers: npt.NDArray[Any]) -> tuple[str, str]:
    return numbers.dtype.str, b64encode(numbers.tobytes()).decode()


def _artefact(place: Place, question: Record) -> str | None:
    content = artefact_content(
        question["file"], place.folder, summarize(place.folder, question["metrics"]).rows
    )
    return None if content is None else b64encode(content).decode()


_QUESTION = 300
"""Characters of a question in a list."""


def _questions(place: Place, question: Record) -> Record:
    wanted = pa.array(json.loads(question["items"]), pa.string())
    check_items(place.folder, read_manifest(place.folder))
    texts: dict[str, str] = {}
    for batch in item_batches(place.folder, ("item", "question")):
        for row in batch.filter(pc.is_in(batch["item"], wanted)).to_pylist():
            texts[row["item"]] = shortened(
                " ".join(row["question"][: 4 * _QUESTION].split()), _QUESTION
            )
    return texts


_TASKS: dict[str, Callable[[Place, Record], Any]] = {
    "look": lambda place, question: _run_json(look(place)),
    "read": _read,
    "explain": lambda place, question: json.dumps(
        asdict(explain(open_run(place.folder), question["item"]))
    ),
    "document": lambda place, question: run_document(
        place.folder, question["board"], question["metrics"]
    ),
    "strip": lambda place, question: run_strip(place.folder),
    "artefact": _artefact,
    "questions": _questions,
}


def look(place: Place) -> ListedRun:
    """The run at ``place`` from its manifest alone, which is quick: waiting to be read, incomplete, or unreadable.

    A run that can't be read must not end the board, so every error becomes a reason.
    """
    try:
        manifest = read_manifest(place.folder)
        version = version_of(manifest)
        asked_protocols(place.folder, manifest)
    except MemoryError:
        raise
    except Exception as error:
        return ListedRun(
            place.id, place.label, place.folder, State.UNREADABLE, "", _reason(error, place)
        )
    state, words = State.WAITING, ""
    if not manifest.complete:
        asked = _asked(place.folder, manifest)
        state, words = (
            State.INCOMPLETE,
            f"{asked} are asked; run the same `{manifest.writer}` command again to resume",
        )
    bare = replace(manifest, blocks=(), files={})  # of which a large run has hundreds
    return ListedRun(
        place.id, place.label, place.folder, state, version, words, bare, run_id(manifest)
    )


def _reason(error: Exception, place: Place) -> str:
    """The error in words that don't tell where the served folder lies."""
    if isinstance(error, OSError) and not isinstance(error, ChoicewiseError):
        words = error.strerror or str(error)
    elif isinstance(error, ChoicewiseError):
        words = str(error)
    else:
        words = f"it can't be read ({type(error).__name__}: {error}); `choicewise report` says more"
    for spelled in dict.fromkeys(
        (str(place.folder), os.path.abspath(place.folder), os.path.realpath(place.folder))
    ):
        words = words.replace(spelled, place.label)
    return words


def _asked(folder: Path, manifest: Manifest) -> str:
    """How far a run is, as ``1,200 of 14,042 items``."""
    done = f"{count_items(manifest.blocks):,}"
    try:
        return f"{done} of {read_metadata(folder / ITEM_FILE, ITEMS)[0].num_rows:,} items"
    except StoreError:
        return f"{done} items"


MEDIA = {"csv": "text/csv; charset=utf-8", "parquet": "application/vnd.apache.parquet"}
"""Media types by ending."""


def artefacts(folder: Path, rows: Sequence[Row]) -> Iterator[Artefact]:
    """The files of the run in ``folder`` with these ``rows``."""
    described = {
        "rows.csv": "its numbers as CSV",
        "rows.parquet": "its numbers as Parquet",
        SUMMARY: "its numbers with every item's outcome",
    }
    for file, words in described.items():
        content = artefact_content(file, folder, rows)
        if content is not None:
            yield Artefact(words, file, hashlib.sha256(content).hexdigest())


def artefact_content(file: str, folder: Path, rows: Sequence[Row]) -> bytes | None:
    """What the file of that name holds; None where it is not (any more) what the manifest lists, or is a link."""
    if file == "rows.csv":
        table = rows_table(rows)
        return table_csv(table.column_names, table.to_pylist()).encode("utf-8", "surrogatepass")
    if file == "rows.parquet":
        return parquet_bytes(rows_table(rows))
    summary = folder / SUMMARY
    try:
        return (
            None
            if summary.is_symlink()
            else read_listed(summary, read_manifest(folder).files.get(SUMMARY))
        )
    except StoreError:
        return None


if __name__ == "__main__":
    serve(lambda: answer)
