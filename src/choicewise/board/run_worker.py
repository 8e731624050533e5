"""The process that reads the runs of a board, within :mod:`choicewise.util.isolated`.

Answers ``{"task", "id", "label", "folder"}`` with ``{"result"}``; with ``{"absent"}`` where the run does not have what
was asked for, or with ``{"problem"}``, why there is no result.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy.typing as npt
import pyarrow as pa

from choicewise.board.library import look, reason
from choicewise.board.model import Place, artefact_content, artefacts
from choicewise.board.run_documents import run_document, run_strip
from choicewise.errors import UsageError
from choicewise.protocols.signature import signature
from choicewise.results.explain import explain
from choicewise.results.outcomes import Outcomes
from choicewise.results.run import open_run
from choicewise.results.summary import summarize
from choicewise.util.isolated import Record, serve


def answer(question: Record) -> Record:
    """The answer to one question: every error but a lack of memory in words."""
    place = Place(question["id"], question["label"], Path(question["folder"]), (0, 0, 0))
    try:
        return {"result": _TASKS[question["task"]](place, question)}
    except MemoryError:
        raise
    except UsageError as error:
        return {"absent": reason(error, place)}
    except Exception as error:
        return {"problem": reason(error, place)}


def _look(place: Place, question: Record) -> Record:
    run = look(place)
    manifest = None if run.manifest is None else json.dumps(asdict(run.manifest))
    about = {"state": run.state, "version": run.version, "reason": run.reason, "computed": run.computed}
    return {**about, "manifest": manifest}


def _read(place: Place, question: Record) -> Record:
    summary = summarize(place.folder)
    rows = json.dumps([asdict(row) for row in summary.rows])
    files = [asdict(each) for each in artefacts(place.folder, summary.rows)]
    return {"rows": rows, "artefacts": files, "outcomes": _outcomes(summary.outcomes)}


def _outcomes(outcomes: Outcomes) -> Record:
    """What was decided of every item; ``items`` are listed once for all that share them."""
    tables: dict[int, pa.Table] = {id(each.items): each.items for each in outcomes.outcomes}
    places = {name: place for place, name in enumerate(tables)}
    listed = [
        {"name": each.name, "signature": signature(each.protocol), "selection": each.selection, "first": each.first}
        | {"items": places[id(each.items)], "values": _array(each.values)}
        | {"codes": _array(each.codes), "predicted": _array(each.predicted)}
        for each in outcomes.outcomes
    ]
    items = [{name: table[name].to_pylist() for name in ("item", "subject")} for table in tables.values()]
    about = {"model": outcomes.model, "dataset": outcomes.dataset, "digest": outcomes.digest}
    return {**about, "items": items, "outcomes": listed}


def _array(numbers: npt.NDArray[Any]) -> tuple[str, str]:
    return numbers.dtype.str, b64encode(numbers.tobytes()).decode()


def _artefact(place: Place, question: Record) -> str | None:
    content = artefact_content(question["file"], place.folder, summarize(place.folder).rows)
    return None if content is None else b64encode(content).decode()


_TASKS: dict[str, Callable[[Place, Record], Any]] = {
    "look": _look,
    "read": _read,
    "explain": lambda place, question: json.dumps(asdict(explain(open_run(place.folder), question["item"]))),
    "document": lambda place, question: run_document(place.folder, question["board"]),
    "strip": lambda place, question: run_strip(place.folder),
    "artefact": _artefact,
}


if __name__ == "__main__":
    serve(lambda: answer)
