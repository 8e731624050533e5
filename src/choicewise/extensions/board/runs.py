"""Read, explain and draw the runs of a board in processes with limits, as a served folder may hold
hostile files.

As a program this is such a process. It answers ``{"task", "id", "label", "folder"}`` with
``{"result"}``, with ``{"absent"}`` if the run does not have what the task needs, or with
``{"problem"}``, why there is no result.
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
from choicewise.protocols.preparations import is_in_panel
from choicewise.protocols.protocol import parse_signature, signature
from choicewise.records import ITEM_FILE, ITEMS, SUMMARY, Manifest
from choicewise.results.explain import Explanation, explain
from choicewise.results.number import Number
from choicewise.results.outcomes import Outcome, Outcomes
from choicewise.results.rows import chosen_part, run_id
from choicewise.results.run import asked_protocols, count_items, open_run
from choicewise.results.summary import summarize
from choicewise.results.tables import item_batches
from choicewise.store.folder import read_manifest
from choicewise.store.tables import check_items, read_listed, read_metadata
from choicewise.table import table_csv
from choicewise.util.isolate import BoundedProcess, Limits, Record, serve
from choicewise.util.jsonio import JsonMapping, json_digest
from choicewise.util.text import shortened

if TYPE_CHECKING:
    from pydantic import TypeAdapter


_ITEMS_SHOWN = 20
"""Items that a document holds in full, those that flip most; a served board has a page for every
item.
"""


def run_document(folder: Path, board: str, metrics: Sequence[str] = ()) -> str:
    """Return the page of the complete run in ``folder``, as HTML with its style, scripts and
    policy.

    ``board``: the address of the board. ``metrics``: those that it adds to what the run has.
    """
    content = Content(read_study([folder], metrics))
    return document(content, today(), inside_items(content, _ITEMS_SHOWN), board=board)


def run_strip(folder: Path) -> str:
    """Return the strip of the complete run in ``folder`` as SVG, in the colours of the pages."""
    values = strip.values([row for row in summarize(folder).rows if row.share])
    drawn = Chart("strip", "", strip.spec(values, width=WIDE)).page_svg()
    return drawn.replace(">", f"><style>{strip_style()}</style>", 1)


def strip_style() -> str:
    """Return the style inside the image: the colours of both themes."""
    return f":root{{{styles(LIGHT)}}}@media(prefers-color-scheme:dark){{:root{{{styles(DARK)}}}}}"


LIMITS = Limits(seconds=120, wait=120.0, memory=4 << 30, answer=128 << 20, written=1 << 30)
"""Limits of one task. Reading writes the run's summary."""

LOOK_SECONDS = 20.0
"""Seconds for a manifest alone, which is read of all runs before the first one is shown."""

FORGIVEN = 600.0
"""Seconds after which a run that exceeded a limit is tried again, if it did not change."""

T = TypeVar("T")


class LimitExceeded(StoreError):
    """A run took more time or memory than it may, or ended the process that reads it."""


class RunProcess(BoundedProcess):
    """Read runs in a process, with the numbers of further ``metrics``."""

    module, limits = "choicewise.extensions.board.runs", LIMITS
    called = "the process that reads the run"
    remedy = "run `choicewise doctor` on it"
    error = LimitExceeded

    def __init__(self, metrics: Sequence[str] = ()) -> None:
        super().__init__()
        self._metrics = list(metrics)

    def look(self, location: Place) -> ListedRun:
        """Return the run at ``location`` from its manifest alone: waiting to be read, incomplete,
        or unreadable.
        """
        try:
            return self._run(location, self._result("look", location, LOOK_SECONDS))
        except StoreError as error:
            return _unreadable(location, str(error))

    def read(self, run: ListedRun) -> tuple[ListedRun, Outcomes | None]:
        """Return the run with its numbers, and the decision of every item; unreadable, with the
        reason, if it is so.
        """
        assert run.manifest is not None
        try:
            result = self._result("read", run)
            numbers = self._run(run, result["run"])
        except StoreError as error:
            return replace(run, state=State.UNREADABLE, reason=str(error)), None
        whole = replace(
            run,
            state=State.READ,
            reason=_lacking_items(run.manifest, numbers.rows),
            rows=numbers.rows,
            artefacts=numbers.artefacts,
            notes=numbers.notes,
            orders=numbers.orders,
        )
        return whole, _read_outcomes(result["outcomes"], run.manifest.dataset.categories)

    @staticmethod
    def _run(location: Place | ListedRun, text: str) -> ListedRun:
        run: ListedRun = _parsed(ListedRun, text)
        return replace(run, id=location.id, label=location.label, folder=location.folder)

    def explain(self, run: ListedRun, item: str) -> Explanation:
        """Explain an item, see :func:`choicewise.results.explain.explain`."""
        explained: Explanation = _parsed(Explanation, self._result("explain", run, item=item))
        return explained

    def draw(self, kind: str, run: ListedRun, board: str) -> str:
        """Return the ``document`` or the ``strip`` of a complete run; ``board``: the address of the
        board.
        """
        return str(self._result(kind, run, board=board))

    def questions(self, run: ListedRun, items: Sequence[str]) -> Mapping[str, str]:
        """Return the questions of those ``items`` that a run has, the long ones cut."""
        questions: dict[str, str] = self._result("questions", run, items=json.dumps(list(items)))
        return questions

    def artefact(self, run: ListedRun, artefact: Artefact) -> bytes | None:
        """Return the content of the file, None if it is gone."""
        content = self._result("artefact", run, file=artefact.file)
        if content is None:
            return None
        return b64decode(content)

    def _result(
        self, task: str, location: Place | ListedRun, wait: float | None = None, **further: str
    ) -> Any:
        """Return the result of a task; UsageError if the run lacks it, StoreError if it can't be
        read.
        """
        question = {
            "task": task,
            "id": location.id,
            "label": location.label,
            "folder": str(location.folder.absolute()),
            "metrics": self._metrics,
        }
        answer = self._ask({**question, **further}, wait)
        if "absent" in answer:
            raise UsageError(answer["absent"])
        if "problem" in answer:
            raise StoreError(answer["problem"])
        return answer["result"]


class RunProcesses:
    """Share ``count`` processes among several threads, with the numbers of further ``metrics``.

    A run that exceeded a limit is not tried again for a while.
    """

    def __init__(self, count: int, metrics: Sequence[str] = ()) -> None:
        self._processes = [RunProcess(metrics) for _ in range(count)]
        # Last in, first out: the process that was used last has all in memory.
        self._free: LifoQueue[RunProcess] = LifoQueue()
        for process in self._processes:
            self._free.put(process)
        self._failed: dict[tuple[str, str], tuple[float, str]] = {}

    def use(self, run: ListedRun, make: Callable[[RunProcess], T]) -> T:
        """Return what ``make`` makes of the run, by a process that is free."""
        now = monotonic()
        self._failed = {key: failure for key, failure in self._failed.items() if failure[0] > now}
        key = (run.id, run.version)
        if key in self._failed:
            _, message = self._failed[key]
            raise StoreError(message)
        # Threads wait here until a process is free.
        process = self._free.get()
        try:
            return make(process)
        except LimitExceeded as error:
            self._failed[key] = monotonic() + FORGIVEN, error.message
            raise
        finally:
            self._free.put(process)

    def close(self) -> None:
        """End all processes."""
        for process in self._processes:
            process.close()


def _read_outcomes(record: JsonMapping, categories: Categories) -> Outcomes:
    """Return the outcomes that :func:`_outcomes_record` wrote."""
    tables = []
    for columns in record["items"]:
        table = pa.table(columns)
        subjects = table["subject"].dictionary_encode()
        tables.append(table.set_column(1, "subject", subjects))
    outcomes = []
    for fields in record["outcomes"]:
        outcomes.append(
            Outcome(
                name=fields["name"],
                protocol=parse_signature(fields["signature"]),
                categories=categories,
                selection=fields["selection"],
                items=tables[fields["items"]],
                values=_read_array(*fields["values"]),
                codes=_read_array(*fields["codes"]),
                predicted=_read_array(*fields["predicted"]),
                first=fields["first"],
            )
        )
    return Outcomes(record["model"], record["dataset"], record["digest"], tuple(outcomes))


def _read_array(dtype: str, content: str) -> npt.NDArray[Any]:
    return np.frombuffer(b64decode(content), dtype)


def _lacking_items(manifest: Manifest, rows: tuple[Number, ...]) -> str:
    """Return which part of the data the rows are about if items lack, or an empty text."""
    selections = dict.fromkeys(row.identity.selection for row in rows)
    selections.pop(chosen_part(manifest.selection), None)
    if not selections:
        return ""
    advice = (
        f"blocks are damaged and left out; run the same `{manifest.writer}` command again to write "
        "them"
    )
    return f"{'; '.join(selections)}: {advice}"


def _parsed(kind: Any, text: str) -> Any:
    """Return the JSON as a value of that type; StoreError for other JSON, such as half characters
    in a text.
    """
    try:
        return _type(kind).validate_json(text)
    except ValueError as error:
        raise StoreError(
            f"it holds an unexpected value ({error}); run `choicewise doctor` on it"
        ) from error


@cache
def _type(kind: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def answer(question: Record) -> Record:
    """Answer one question; every error but a lack of memory is part of the answer."""
    location = Place(question["id"], question["label"], Path(question["folder"]), (0, 0, 0))
    try:
        return {"result": _TASKS[question["task"]](location, question)}
    except MemoryError:
        raise
    except UsageError as error:
        return {"absent": _reason(error, location)}
    except Exception as error:
        return {"problem": _reason(error, location)}


def _run_json(run: ListedRun) -> str:
    return json.dumps(asdict(run), default=str)


def _look_task(location: Place, question: Record) -> str:
    return _run_json(look(location))


def _read_task(location: Place, question: Record) -> Record:
    summary = summarize(location.folder, question["metrics"])
    notes: tuple[str, ...] = ()
    if summary.applied is not None:
        notes = tuple(summary.applied.lines)
    run = ListedRun(
        id=location.id,
        label=location.label,
        folder=location.folder,
        state=State.READ,
        version="",
        rows=summary.rows,
        artefacts=tuple(artefacts(location.folder, summary.rows)),
        notes=notes,
        orders=tuple(_orders(location.folder)),
    )
    return {"run": _run_json(run), "outcomes": _outcomes_record(summary.outcomes)}


def _orders(folder: Path) -> Iterator[Orders]:
    protocols = asked_protocols(folder, read_manifest(folder))
    if not any(is_in_panel(protocol.prepare) for protocol in protocols.values()):
        return
    for panel in panels(open_run(folder)):
        for check in panel.checks:
            if check.check == "order":
                yield Orders(panel.protocol, check.flips.value, check.net)


def _outcomes_record(outcomes: Outcomes) -> Record:
    """Return what was decided of every item; ``items`` are listed once for all protocols that share
    them.
    """
    items: list[Record] = []
    index_of_table: dict[int, int] = {}
    records = []
    for outcome in outcomes.outcomes:
        key = id(outcome.items)
        # The items of a run are most of what is sent, and its protocols share them.
        if key not in index_of_table:
            index_of_table[key] = len(items)
            table = outcome.items
            items.append(table.to_pydict())
        records.append(
            {
                "name": outcome.name,
                "signature": signature(outcome.protocol),
                "selection": outcome.selection,
                "first": outcome.first,
                "items": index_of_table[key],
                "values": _array_record(outcome.values),
                "codes": _array_record(outcome.codes),
                "predicted": _array_record(outcome.predicted),
            }
        )
    return {
        "model": outcomes.model,
        "dataset": outcomes.dataset,
        "digest": outcomes.digest,
        "items": items,
        "outcomes": records,
    }


def _array_record(numbers: npt.NDArray[Any]) -> tuple[str, str]:
    return numbers.dtype.str, b64encode(numbers.tobytes()).decode()


def _explain_task(location: Place, question: Record) -> str:
    return json.dumps(asdict(explain(open_run(location.folder), question["item"])))


def _document_task(location: Place, question: Record) -> str:
    return run_document(location.folder, question["board"], question["metrics"])


def _strip_task(location: Place, question: Record) -> str:
    return run_strip(location.folder)


def _artefact_task(location: Place, question: Record) -> str | None:
    rows = summarize(location.folder, question["metrics"]).rows
    content = artefact_content(question["file"], location.folder, rows)
    if content is None:
        return None
    return b64encode(content).decode()


_QUESTION = 300
"""Characters of a question in a list."""


def _questions_task(location: Place, question: Record) -> Record:
    items = pa.array(json.loads(question["items"]), pa.string())
    check_items(location.folder, read_manifest(location.folder))
    texts: dict[str, str] = {}
    for batch in item_batches(location.folder, ("item", "question")):
        for row in batch.filter(pc.is_in(batch["item"], items)).to_pylist():
            # A question can be as long as a book, of which the beginning is enough.
            words = row["question"][: 4 * _QUESTION].split()
            texts[row["item"]] = shortened(" ".join(words), _QUESTION)
    return texts


_TASKS: dict[str, Callable[[Place, Record], Any]] = {
    "look": _look_task,
    "read": _read_task,
    "explain": _explain_task,
    "document": _document_task,
    "strip": _strip_task,
    "artefact": _artefact_task,
    "questions": _questions_task,
}


def look(location: Place) -> ListedRun:
    """Return the run at ``location`` from its manifest alone, which is quick: waiting, incomplete,
    or unreadable.
    """
    try:
        manifest = read_manifest(location.folder)
        version = _version_of(manifest)
        asked_protocols(location.folder, manifest)
    except MemoryError:
        raise
    except Exception as error:  # a run that can't be read must not end the board
        return _unreadable(location, _reason(error, location))
    state = State.WAITING
    reason = ""
    if not manifest.complete:
        state = State.INCOMPLETE
        progress = _progress(location.folder, manifest)
        reason = f"{progress} are done; run the same `{manifest.writer}` command again to resume"
    return ListedRun(
        id=location.id,
        label=location.label,
        folder=location.folder,
        state=state,
        version=version,
        reason=reason,
        manifest=replace(manifest, blocks=(), files={}),  # a large run has hundreds of these
        computed=run_id(manifest),
    )


def _unreadable(location: Place, reason: str) -> ListedRun:
    return ListedRun(
        id=location.id,
        label=location.label,
        folder=location.folder,
        state=State.UNREADABLE,
        version="",
        reason=reason,
    )


def _reason(error: Exception, location: Place) -> str:
    """Return the error in words, without the location of the served folder on the disk."""
    if isinstance(error, ChoicewiseError):
        words = str(error)
    elif isinstance(error, OSError):
        words = error.strerror or str(error)
    else:
        words = f"it can't be read ({type(error).__name__}: {error}); run `choicewise report` on it"
    # Readers must not learn where the served folder is on the disk.
    words = words.replace(str(location.folder), location.label)
    words = words.replace(os.path.abspath(location.folder), location.label)
    return words.replace(os.path.realpath(location.folder), location.label)


def _progress(folder: Path, manifest: Manifest) -> str:
    """Return how far a run is, as ``1,200 of 14,042 items``."""
    done = f"{count_items(manifest.blocks):,}"
    try:
        total = read_metadata(folder / ITEM_FILE, ITEMS)[0].num_rows
    except StoreError:
        return f"{done} items"
    return f"{done} of {total:,} items"


MEDIA = {"csv": "text/csv; charset=utf-8", "parquet": "application/vnd.apache.parquet"}
"""Media types by ending."""


def artefacts(folder: Path, rows: Sequence[Number]) -> Iterator[Artefact]:
    """Yield the files of the run in ``folder`` with these ``rows``."""
    described = {
        "rows.csv": "its numbers as CSV",
        "rows.parquet": "its numbers as Parquet",
        SUMMARY: "its numbers with every item's outcome",
    }
    for file, words in described.items():
        content = artefact_content(file, folder, rows)
        if content is not None:
            yield Artefact(words, file, hashlib.sha256(content).hexdigest())


def artefact_content(file: str, folder: Path, rows: Sequence[Number]) -> bytes | None:
    """Return the content of the file of that name; None if it is not what the manifest lists, or a
    link.
    """
    if file == "rows.csv":
        table = rows_table(rows)
        return table_csv(table.column_names, table.to_pylist()).encode("utf-8", "surrogatepass")
    if file == "rows.parquet":
        return parquet_bytes(rows_table(rows))
    summary = folder / SUMMARY
    # A link could make the server give away any file of its machine.
    if summary.is_symlink():
        return None
    try:
        return read_listed(summary, read_manifest(folder).files.get(SUMMARY))
    except StoreError:
        return None


def _version_of(manifest: Manifest) -> str:
    """Return the sha256 (64 hex) of the manifest without the summary that it lists.

    It is the same until something further is asked.
    """
    files = {name: file for name, file in manifest.files.items() if name != SUMMARY}
    return json_digest(replace(manifest, files=files).stored())


if __name__ == "__main__":
    serve(lambda: answer)
