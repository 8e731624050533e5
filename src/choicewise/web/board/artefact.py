"""Files that a reader of the board may have: the numbers of a run, each known by the sha256 of its content."""

import hashlib
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from choicewise.errors import StoreError
from choicewise.records.format import SUMMARY
from choicewise.results.row import Row
from choicewise.store.manifest import read_manifest
from choicewise.store.tables import read_listed
from choicewise.web.table_csv import table_csv

MEDIA = {"csv": "text/csv; charset=utf-8", "parquet": "application/vnd.apache.parquet"}
"""Media types by ending."""

_COLUMNS = (
    *("model", "dataset", "data", "selection", "subject", "protocol", "id", "i", "t", "r", "family", "metric", "value"),
    *("se", "interval", "ci_low", "ci_high", "chance", "n", "missing", "invalid", "ties", "near_ties", "noise"),
    *("skipped", "shots_dropped", "truncated", "merged", "noncanonical", "lossy", "unknown", "flags", "signature"),
)


@dataclass(frozen=True, slots=True)
class Artefact:
    """A file: what it is, what it is called, and the sha256 of its content."""

    words: str
    file: str
    digest: str

    @property
    def name(self) -> str:
        """For addresses: the digest with the ending."""
        return f"{self.digest}.{self.ending}"

    @property
    def ending(self) -> str:
        """Of the file's name, without the dot."""
        return self.file.rpartition(".")[2]


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
        return table_csv(_COLUMNS, [row.as_json() for row in rows]).encode("utf-8", "surrogatepass")
    if file == "rows.parquet":
        return _parquet(rows)
    kept = folder / SUMMARY
    try:
        return None if kept.is_symlink() else read_listed(kept, read_manifest(folder).files.get(SUMMARY))
    except StoreError:
        return None


def _parquet(rows: Sequence[Row]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = io.BytesIO()
    flat = [{name: row[name] for name in _COLUMNS} for row in (row.as_json() for row in rows)]
    pq.write_table(pa.Table.from_pylist(flat), file, compression="zstd")
    return file.getvalue()
