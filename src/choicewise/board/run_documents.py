"""Run pages made in child processes, cached."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from queue import LifoQueue
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from choicewise.board.model import Artefact, ListedRun, Place, State
from choicewise.data.items import Categories
from choicewise.errors import StoreError, UsageError
from choicewise.page.charts import strip
from choicewise.page.charts.chart import DARK, LIGHT, Chart, styles
from choicewise.page.document import Content, document, inside_items, today
from choicewise.page.embed import WIDE
from choicewise.page.study import read_study
from choicewise.protocols.signature import parse_signature
from choicewise.records import Manifest
from choicewise.results.explain import Explanation
from choicewise.results.outcomes import Outcome, Outcomes
from choicewise.results.rows import Row, chosen_part
from choicewise.results.summary import summarize
from choicewise.util.isolate import BoundedProcess
from choicewise.util.isolated import Limits

if TYPE_CHECKING:
    from pydantic import TypeAdapter


ITEMS = 20
"""Items that it holds in full, those that flip most; a served board has a page for every item."""


def run_document(folder: Path, board: str) -> str:
    """The page of the complete run in ``folder``, as HTML with its own style, scripts and policy.

    ``board``: the address of the board.
    """
    content = Content(read_study([folder]))
    return document(content, today(), inside_items(content, ITEMS), board=board)


def run_strip(folder: Path) -> str:
    """The strip of the complete run in ``folder``; its colours are those of the pages."""
    values = strip.values(summarize(folder).rows)
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
    """A process that reads runs."""

    module, limits = "choicewise.board.run_worker", LIMITS
    called = "the process that reads the run"
    remedy = "`choicewise doctor` says what is wrong with the run"
    error = LimitExceeded

    def look(self, place: Place) -> ListedRun:
        """The run at ``place`` from its manifest alone: waiting to be read, incomplete, or unreadable."""
        run = ListedRun(place.id, place.label, place.folder, State.UNREADABLE, "")
        try:
            told = self._result("look", place, LOOK_SECONDS)
            manifest = None if told["manifest"] is None else _parsed(Manifest, told["manifest"])
        except StoreError as error:
            return replace(run, reason=str(error))
        about = {name: told[name] for name in ("version", "reason", "computed")}
        return replace(run, state=State(told["state"]), manifest=manifest, **about)

    def read(self, run: ListedRun) -> tuple[ListedRun, Outcomes | None]:
        """The same run with its numbers, and the decision of every item; unreadable, with the reason, where it can't be
        read.
        """
        assert run.manifest is not None
        try:
            told = self._result("read", run)
            rows = _parsed(tuple[Row, ...], told["rows"])
        except StoreError as error:
            return replace(run, state=State.UNREADABLE, reason=str(error)), None
        numbers = replace(run, state=State.READ, rows=rows, reason=_left_out(run.manifest, rows))
        files = tuple(Artefact(**each) for each in told["artefacts"])
        return replace(numbers, artefacts=files), _outcomes(told["outcomes"], run.manifest.dataset.categories)

    def explain(self, run: ListedRun, item: str) -> Explanation:
        """See :func:`choicewise.results.explain.explain`."""
        explained: Explanation = _parsed(Explanation, self._result("explain", run, item=item))
        return explained

    def draw(self, kind: str, run: ListedRun, board: str) -> str:
        """The ``document`` or the ``strip`` of a complete run; ``board``: the address of the board."""
        return str(self._result(kind, run, board=board))

    def artefact(self, run: ListedRun, artefact: Artefact) -> bytes | None:
        """What the file holds; None where it is not there (any more)."""
        content = self._result("artefact", run, file=artefact.file)
        return None if content is None else b64decode(content)

    def _result(self, task: str, place: Place | ListedRun, wait: float | None = None, **further: str) -> Any:
        """UsageError where the run has no such thing, StoreError with the reason where it can't be read."""
        about = {"id": place.id, "label": place.label, "folder": str(place.folder.absolute())}
        told = self._ask({"task": task, **about, **further}, wait)
        if "absent" in told:
            raise UsageError(told["absent"])
        if "problem" in told:
            raise StoreError(told["problem"])
        return told["result"]


class RunProcesses:
    """``count`` processes for several threads.  A run that exceeded a limit is not tried again for a while."""

    def __init__(self, count: int) -> None:
        self._processes = [RunProcess() for _ in range(count)]
        self._free: LifoQueue[RunProcess] = LifoQueue()  # the one that was used last has all in memory
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


def _outcomes(told: Mapping[str, Any], categories: Categories) -> Outcomes:
    tables = [pa.table({"item": each["item"], "subject": each["subject"]}) for each in told["items"]]
    tables = [table.set_column(1, "subject", table["subject"].dictionary_encode()) for table in tables]
    outcomes = []
    for each in told["outcomes"]:
        values, codes, predicted = (_array(*each[name]) for name in ("values", "codes", "predicted"))
        named = each["name"], parse_signature(each["signature"]), categories, each["selection"]
        outcomes.append(Outcome(*named, tables[each["items"]], values, codes, predicted, each["first"]))
    return Outcomes(told["model"], told["dataset"], told["digest"], tuple(outcomes))


def _array(dtype: str, content: str) -> npt.NDArray[Any]:
    return np.frombuffer(b64decode(content), dtype)


def _left_out(manifest: Manifest, rows: tuple[Row, ...]) -> str:
    part = chosen_part(manifest.selection)
    lacking = dict.fromkeys(row.selection for row in rows if row.selection != part)
    advice = f"blocks are damaged and left out; the same `{manifest.writer}` line writes them again"
    return f"{'; '.join(lacking)}: {advice}" if lacking else ""


def _parsed(kind: Any, text: str) -> Any:
    """The JSON as a value of that type.  StoreError for what is none, as half characters in a text are."""
    try:
        return _type(kind).validate_json(text)
    except ValueError as error:
        raise StoreError(f"it holds what it should not ({error}); `choicewise doctor` says more") from error


@cache
def _type(kind: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)
