"""The summary of a run keeps its numbers and outcomes in one file of its folder.

It follows from the rest of the folder, which never depends on it.  A summary counts for nothing if
it is missing, of another state of the run, of another version of the code, or not the file that the
manifest lists.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from warnings import warn

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from choicewise.errors import StoreError
from choicewise.ports import Statistic, all_of, find, source_digest
from choicewise.protocols.between import apply_metrics
from choicewise.protocols.protocol import OPEN_AXES, Protocols, addition_of
from choicewise.records import ITEM_FILE, SUMMARY, BlockRecord, Manifest
from choicewise.results.number import Number
from choicewise.results.outcomes import (
    Outcome,
    Outcomes,
    Summary,
    in_few_bytes,
    outcomes_of,
    read_together,
)
from choicewise.results.run import Run, asked_protocols, count_items, open_run
from choicewise.results.tables import read_item_names, rows_at
from choicewise.scoring.observed import Integers
from choicewise.store.folder import read_manifest, write_manifest
from choicewise.store.tables import (
    SCHEMAS,
    block_file,
    check_items,
    damage,
    damaged_blocks,
    file_record,
    make_table,
    read_listed,
)
from choicewise.util.files import locked, new_file
from choicewise.util.tables import open_parquet, unpacked, write_parquet
from choicewise.util.text import text_digest

if TYPE_CHECKING:
    from pydantic import TypeAdapter


def summarize(folder: str | Path, metrics: Sequence[str] = (), alone: bool = False) -> Summary:
    """Return the summary of the run in ``folder``.

    The kept one is returned if it is of this state of the run, else a new one.  ``metrics``: add
    numbers under these metrics, or give them ``alone``; nothing of that is kept, and a metric that
    no protocol can have is left out and is in ``applied``.  The folder may be read-only.  Raises
    StoreError as :func:`choicewise.results.run.open_run` and UsageError for an unknown metric.
    Warns of a file that was changed since it was written, and of every block that is damaged and
    left out: then nothing is kept.
    """
    path = Path(folder)
    if metrics:
        return _under_metrics(path, metrics, alone)
    manifest = read_manifest(path)
    stored = read_summary(path, manifest)
    if stored is not None:
        return stored
    problem = summary_problem(path, manifest)
    if problem is not None and not problem.older:
        warn(
            f"{path / SUMMARY} {problem.words}; recomputing the scores from the answers",
            stacklevel=2,
        )
    return keep_summary(open_run(path))


def keep_summary(run: Run) -> Summary:
    """Return the summary of a ``run``, written to its folder if that has none of this state.

    Nothing is kept of a run under a part of its protocols.
    """
    if not run.is_whole:
        return summary_of(run)
    parts: dict[Statistic, Protocols] = {}
    if count_items(run.manifest.blocks) >= MANY:
        for statistic in all_of(Statistic):
            protocols = statistic.protocols(run.protocols)
            # A run that was interrupted may not have made the requests yet.
            if protocols and not run.lacking(protocols):
                parts[statistic] = protocols
        read_together(run, [run.protocols, *parts.values()])
    summary = summary_of(run)
    if summary.damages:
        return summary
    kept = {}
    for statistic, protocols in parts.items():
        kept[statistic.name] = statistic.data(run.under(protocols))
    summary = replace(summary, statistics=kept)
    return replace(summary, manifest=_list_summary(run, summary))


MANY = 1000
"""Items from which on a summary keeps statistics: of fewer the observations are read in no time."""


def summary_of(run: Run) -> Summary:
    """Return the summary of a ``run``; nothing is written."""
    return Summary(
        folder=run.folder,
        manifest=run.manifest,
        rows=tuple(run.rows()),
        outcomes=outcomes_of(run),
        damages=tuple(run.evidence.damages),
    )


def summary_problem(folder: Path, manifest: Manifest) -> SummaryProblem | None:
    """Return why the file in ``folder`` is not believed; None if it is, or if there is none."""
    stored = _stored_summary(folder, manifest)
    return stored if isinstance(stored, SummaryProblem) else None


def other_numbers(folder: Path, manifest: Manifest) -> str:
    """Return the first protocol whose numbers in the file differ from those computed again.

    Empty if there is none, or no file that is believed.
    """
    stored = _stored_summary(folder, manifest)
    if not isinstance(stored, Summary):
        return ""
    computed = summary_of(open_run(folder))
    pairs = zip(stored.outcomes.outcomes, computed.outcomes.outcomes, strict=True)
    for outcome, other in pairs:
        if not _agree(_plain(stored, outcome), _plain(computed, other)):
            return outcome.name
    return ""


SOURCES = (
    "data",
    "protocols",
    "questions.py",
    "records.py",
    "requests",
    "results",
    "scoring",
    "store",
    "thoughts.py",
    "tokens",
    "util",
)
"""The parts of the package that decide the numbers of a run: all that reading a run imports."""


def state(manifest: Manifest) -> str:
    """Return the sha256 (64 hex) of the code and the manifest.

    The names, the time and the summary in the manifest do not count.
    """
    files = {name: file for name, file in manifest.files.items() if name != SUMMARY}
    unnamed = replace(
        manifest,
        model=replace(manifest.model, name=""),
        dataset=replace(manifest.dataset, name=""),
        engine=replace(manifest.engine, spent=None),
        job={},
        command=(),
        files=files,
    )
    content = unnamed.stored()
    # The keys of JSON are sorted, and the order of the protocols counts.
    content["protocols"] = list(manifest.protocols.items())
    code = _code() + _code_of_extensions(manifest)
    return text_digest(f"{code}{json.dumps(content, sort_keys=True)}")


def read_summary(folder: Path, manifest: Manifest) -> Summary | None:
    """Return the summary that ``folder`` has of this state of the run; None if unusable."""
    stored = _stored_summary(folder, manifest)
    if not isinstance(stored, Summary):
        return None
    with suppress(OSError):
        if _is_whole(folder, manifest.blocks, folder / SUMMARY):
            return stored
    return None


def _under_metrics(folder: Path, metrics: Sequence[str], alone: bool) -> Summary:
    run = open_run(folder)
    applied = apply_metrics(run.protocols, metrics)
    protocols = dict(applied.protocols)
    if not alone:
        # The summary of the run has these numbers.
        measured = set(run.protocols.values())
        protocols = {name: one for name, one in protocols.items() if one not in measured}
    part = replace(summary_of(run.under(protocols)), applied=applied)
    run.release()
    if alone:
        return part
    summary = summarize(folder)
    joined = (*summary.outcomes.outcomes, *part.outcomes.outcomes)
    return replace(
        summary,
        rows=(*summary.rows, *part.rows),
        outcomes=replace(summary.outcomes, outcomes=joined),
        applied=applied,
    )


def _plain(summary: Summary, outcome: Outcome) -> list[Any]:
    """Return all that a summary holds of one protocol in lists, texts and numbers."""
    return [
        outcome.name,
        outcome.selection,
        outcome.first,
        [asdict(row) for row in summary.rows_of(outcome.name)],
        outcome.ids.to_pylist(),
        outcome.credit.tolist(),
        outcome.prediction.tolist(),
    ]


def _agree(one: Any, other: Any) -> bool:
    """Check that both are equal, but for the last digits of numbers."""
    # Versions of libraries compute other last digits.
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_agree(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_agree, one, other))
    if isinstance(one, float) and isinstance(other, float):
        if math.isnan(one) and math.isnan(other):
            return True
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)
    return bool(one == other)


@dataclass(frozen=True)
class _ItemFile:
    """Name an item file by its content: runs on the same data share the table that is read."""

    sha256: str
    folder: Path = field(compare=False)


@lru_cache(maxsize=8)
def _item_names(file: _ItemFile) -> pa.Table:
    return read_item_names(file.folder)


_KEY = b"choicewise.state"
_STATISTICS = b"choicewise.statistics"


_SCHEMA = pa.schema(
    {
        "protocol": pa.string(),
        "selection": pa.string(),
        "rows": pa.string(),
        "items": pa.list_(pa.int32()),
        "values": pa.list_(pa.float64()),
        "codes": pa.list_(pa.int32()),
        "predicted": pa.list_(pa.int16()),
        "first": pa.string(),
    }
)
"""One row per protocol; ``items`` is null if they are those of the protocol before."""


class SummaryProblem(NamedTuple):
    """Say why a summary is not believed, in ``words`` that follow its path.

    ``older``: it is only of another state of the run or another version, which is no damage.
    """

    words: str
    older: bool = False


def _stored_summary(folder: Path, manifest: Manifest) -> Summary | SummaryProblem | None:
    """Return the summary in the file of ``folder``, or why it is not believed; None if there is
    none.

    It is believed if it is the file that ``manifest`` lists, and fits this state of the run in
    every value.
    """
    path = folder / SUMMARY
    listed = manifest.files.get(SUMMARY)
    if not os.path.lexists(path):
        return None
    problem = damage(path, listed)
    if problem is not None:
        return SummaryProblem(problem)
    try:
        content = io.BytesIO(read_listed(path, listed))
        file = open_parquet(content)
        if (file.schema_arrow.metadata or {}).get(_KEY) != state(manifest).encode():
            return SummaryProblem("is from another state of the run or another version", older=True)
        if not file.schema_arrow.equals(_SCHEMA):
            return SummaryProblem("has unexpected columns")
        unpacked(content)
        check_items(folder, manifest)
        summary = _read_table(file.read(use_threads=False), folder, manifest)
        statistics = _read_statistics(file.schema_arrow.metadata.get(_STATISTICS, b"{}"))
        return replace(summary, statistics=statistics)
    except StoreError:
        # The item table is damaged, or a protocol is of another version: no faults of the summary.
        return None
    except (pa.ArrowException, OSError, ValueError, TypeError) as error:
        first_line = str(error).partition("\n")[0]
        return SummaryProblem(f"can't be used ({first_line})")


def _list_summary(run: Run, summary: Summary) -> Manifest:
    """Write the summary unless it is there, list it in the manifest, and return the manifest.

    Nothing is written if the folder is read-only, if another process writes to it, or if the run
    has changed.
    """
    folder = run.folder
    with suppress(StoreError), locked(folder):
        now = read_manifest(folder)
        if state(now) != state(run.manifest):
            return run.manifest
        if read_summary(folder, now) is None:
            table = _table(run, summary).replace_schema_metadata(
                {_KEY: state(now), _STATISTICS: _statistics_text(summary)}
            )
            with new_file(folder / SUMMARY) as partial:
                write_parquet(partial, table, statistics=False)
                now = replace(now, files=now.files | {SUMMARY: file_record(partial)})
                # A kill leaves no file that the manifest does not list: that would be damage.
                (folder / SUMMARY).unlink(missing_ok=True)
                write_manifest(folder, now)
        return now
    return run.manifest


def _statistics_text(summary: Summary) -> str:
    stored = {}
    for name, data in summary.statistics.items():
        statistic = find(Statistic, name)
        assert statistic is not None
        stored[name] = {"source": source_digest(statistic), "data": data}
    return json.dumps(stored)


def _read_statistics(text: bytes) -> dict[str, Any]:
    """Return the stored statistics that the installed code of extensions would compute again."""
    statistics = {}
    for name, stored in json.loads(text).items():
        statistic = find(Statistic, name)
        if statistic is not None and source_digest(statistic) == stored["source"]:
            statistics[name] = stored["data"]
    return statistics


def _table(run: Run, summary: Summary) -> pa.Table:
    rows = []
    items: Integers | None = None
    for outcome in summary.outcomes.outcomes:
        items_before = items
        items = run.measurements[outcome.name].evidence.items
        is_repeated = items_before is not None and np.array_equal(items, items_before)
        rows.append(
            (
                outcome.name,
                outcome.selection,
                json.dumps([asdict(row) for row in summary.rows_of(outcome.name)]),
                None if is_repeated else items,
                outcome.values,
                outcome.codes,
                outcome.predicted,
                outcome.first,
            )
        )
    return make_table(_SCHEMA, rows)


def _read_table(table: pa.Table, folder: Path, manifest: Manifest) -> Summary:
    """Return the summary in ``table``; ValueError if it does not fit the run."""
    _check_cells(table)
    if table["protocol"].to_pylist() != list(manifest.protocols):
        raise ValueError("its protocols are not those of the run")
    all_items = _item_names(_ItemFile(manifest.files[ITEM_FILE].sha256, folder))
    protocols = asked_protocols(folder, manifest)
    outcomes = []
    rows: list[Number] = []
    # Outcomes over the same items share a table.
    items = all_items
    for index in range(len(table)):
        cells = {name: table[name][index] for name in table.column_names}
        if cells["items"].is_valid:
            items = _taken(all_items, cells["items"].values)
        values = cells["values"].values.to_numpy()
        codes = cells["codes"].values.to_numpy()
        predicted = cells["predicted"].values.to_numpy()
        if not len(items) == len(codes) == len(predicted):
            raise ValueError("its columns are of several lengths")
        if not _within(codes, 0, len(values)) or predicted.min(initial=-1) < -1:
            raise ValueError("it names what is not there")
        name = cells["protocol"].as_py()
        rows += _read_rows(cells["rows"].as_py(), name, manifest)
        outcomes.append(
            Outcome(
                name=name,
                protocol=protocols[name],
                categories=manifest.dataset.categories,
                selection=cells["selection"].as_py(),
                items=items,
                values=values,
                codes=in_few_bytes(codes),
                predicted=in_few_bytes(predicted),
                first=cells["first"].as_py(),
            )
        )
    dataset = manifest.dataset
    return Summary(
        folder=folder,
        manifest=manifest,
        rows=tuple(rows),
        outcomes=Outcomes(manifest.model.name, dataset.name, dataset.digest, tuple(outcomes)),
    )


def _taken(all_items: pa.Table, indices: pa.Array) -> pa.Table:
    """Return the items at these indices; ValueError if one is not there."""
    numbers = indices.to_numpy()
    if not _within(numbers, 0, len(all_items)):
        raise ValueError("it names what is not there")
    return rows_at(all_items, numbers)


def _read_rows(text: str, protocol: str, manifest: Manifest) -> tuple[Number, ...]:
    """Return the numbers in JSON, under the names that ``manifest`` gives model and data.

    ValueError for others.
    """
    rows = []
    for row in _row_reader().validate_json(text):
        if row.identity.protocol != protocol:
            raise ValueError("its protocols are not those of the run")
        identity = replace(row.identity, model=manifest.model.name, dataset=manifest.dataset.name)
        rows.append(replace(row, identity=identity))
    return tuple(rows)


def read_numbers(stored: Sequence[Mapping[str, Any]]) -> tuple[Number, ...]:
    """Return numbers from their fields (``asdict``) as JSON has them; ValueError for others."""
    return _row_reader().validate_python(stored)


def _check_cells(table: pa.Table) -> None:
    """Raise ValueError if a cell is empty that has a value in every summary."""
    for name in table.column_names:
        column = table[name].combine_chunks()
        values = column.flatten() if pa.types.is_list(column.type) else column
        has_empty_cells = values.null_count > 0
        if column.null_count:
            # Items may repeat those of the row before, but not in the first row.
            has_empty_cells |= name != "items" or not column[0].is_valid
        if has_empty_cells:
            raise ValueError(f"its column {name} has empty cells")


def _within(numbers: npt.NDArray[Any], low: int, high: int) -> bool:
    return not len(numbers) or bool(low <= numbers.min() and numbers.max() < high)


@cache
def _row_reader() -> TypeAdapter[tuple[Number, ...]]:
    from pydantic import TypeAdapter

    return TypeAdapter(tuple[Number, ...])


def _is_whole(folder: Path, blocks: Sequence[BlockRecord], summary: Path) -> bool:
    """Check that no block was damaged since the ``summary`` was written."""
    # Only files that changed later are read.  The time of the change of their records counts, too:
    # a copy can have the times of another file.
    written = summary.stat().st_mtime_ns
    changed = []
    for block in blocks:
        if any(_changed(block_file(folder, block, table)) >= written for table in SCHEMAS):
            changed.append(block)
    if damaged_blocks(folder, changed):
        return False
    # So that they are not read again the next time.
    if changed:
        with suppress(OSError):
            summary.touch()
    return True


def _changed(file: Path) -> int:
    """Return when the file or its record in the folder changed last, in nanoseconds."""
    stat = file.stat()
    return max(stat.st_mtime_ns, stat.st_ctime_ns)


def _code_of_extensions(manifest: Manifest) -> str:
    """Return the digests of what extensions add to the protocols of a run."""
    digests = []
    for signature in manifest.protocols.values():
        for axis in OPEN_AXES:
            value = signature.partition(f"|{axis}:")[2].partition("|")[0]
            addition = addition_of(axis, value)
            if addition is not None:
                digests.append(source_digest(addition))
    return "".join(digests)


@cache
def _code() -> str:
    """Return the sha256 (64 hex) of the source of the rooms that compute."""
    package = Path(__file__).parents[1]
    files: set[Path] = set()
    for room in SOURCES:
        pattern = room if room.endswith(".py") else f"{room}/**/*.py"
        files.update(package.rglob(pattern))
    digest = hashlib.sha256()
    for file in sorted(files):
        name = file.relative_to(package).as_posix()
        digest.update(f"{name}\0".encode() + file.read_bytes() + b"\0")
    return digest.hexdigest()
