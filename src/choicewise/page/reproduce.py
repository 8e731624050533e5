"""How to get every number once more: what to ask for, and the rows as files."""

from __future__ import annotations

import csv
import io
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from choicewise.errors import ProtocolError
from choicewise.page.study import Study
from choicewise.protocols.catalogue import entries, entry, groups, resolve
from choicewise.protocols.protocol import Protocol, signature
from choicewise.records import Manifest
from choicewise.results.rows import Row
from choicewise.util.tables import write_parquet
from choicewise.util.text import command_line, safe


@dataclass(frozen=True, slots=True)
class Download:
    """A file as an address that holds it whole; no address where it would be too long."""

    name: str
    what: str
    address: str


def downloads(study: Study) -> list[Download]:
    """The rows of all runs as CSV, without the signatures, and as Parquet."""
    table = rows_table(study.rows)
    text = table_csv([name for name in _COLUMNS if name != "signature"], table.to_pylist())
    named = ("choicewise.csv", "CSV"), ("choicewise.parquet", "Parquet, with the signatures")
    inside = text if len(text) <= _LONGEST_CSV else ""
    addresses = (
        _address("text/csv;charset=utf-8", inside.encode()),
        _address("application/vnd.apache.parquet", parquet_bytes(table)),
    )
    return [Download(*name, address) for name, address in zip(named, addresses, strict=True)]


def selectors(protocols: Mapping[str, Protocol]) -> list[str]:
    """What to name so that these protocols are run on the same data: groups, entries, names, else signatures."""
    known = {name: of_catalogue for name, protocol in protocols.items() if (of_catalogue := _known(name, protocol))}
    remaining = {**protocols, **known}
    named: list[str] = []
    families = {name: [pair for each in of for pair in each.protocols.items()] for name, of in groups().items()}
    families |= {each.name: list(each.protocols.items()) for each in entries()}
    for name, members in sorted(families.items(), key=lambda family: -len(family[1])):
        if all(remaining.get(full) == protocol for full, protocol in members):
            named.append(name)
            for full, _ in members:
                del remaining[full]
    return named + [name if name in known else signature(protocol) for name, protocol in remaining.items()]


def run_line(manifest: Manifest, protocols: Sequence[str], folder: str | Path) -> str:
    """The command that asks ``protocols`` in the run in ``folder``, of the job that it was begun with.

    Names on the Hub have the commit that was read.  Where the manifest has no job, the names of model and data stand
    for where they lie.
    """
    job = manifest.job or _described(manifest)
    model, data = job["models"][0], (job.get("data") or [{}])[0]
    options = {
        "model": [_pinned(model["name"], manifest.model.source)],
        "data": [_pinned(data.get("path"), manifest.dataset.source)],
        "protocol": protocols,
        "subject": job.get("subjects"),
        "limit": [job.get("limit")],
        "mapping": [mapping if isinstance(mapping := data.get("mapping"), str) else None],
        "on-bad-item": [job.get("on_bad_item")],
        **{name: [model.get(name)] for name in ("dtype", "device", "window", "adapter", "tokenizer")},
        "include-path": job.get("include_path"),
        "allow-task-code": [job.get("allow_task_code")],
        "out": [folder],
    }
    words = ["run"]
    for name, values in options.items():
        for value in values or ():
            if value:
                text = f"./{value}" if str(value).startswith("-") else str(value)
                words += [f"--{name}"] if value is True else [f"--{name}", text]
    return command_line(*words)


def table_csv(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Rows (mappings) as CSV.  A text that a spreadsheet would compute begins with an apostrophe."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\r\n")
    writer.writerow(columns)
    writer.writerows([_field(row.get(name)) for name in columns] for row in rows)
    return file.getvalue()


def spreadsheet_text(value: str) -> str:
    """``value`` on one line, after an apostrophe where a spreadsheet would compute it."""
    text = safe(value)
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text


def rows_table(rows: Sequence[Row]) -> pa.Table:
    """The rows as a table: shares of 1, null for what is not known, flags in one text."""
    content = [each.as_json() for each in rows]
    for each in content:
        each["flags"] = " ".join(each["flags"])
    return pa.Table.from_pylist([{name: each[name] for name in _COLUMNS} for each in content])


def parquet_bytes(table: pa.Table) -> bytes:
    """The table as a file of Parquet."""
    out = io.BytesIO()
    write_parquet(out, table)
    return out.getvalue()


_LONGEST_CSV = 1_000_000
"""Characters of a table that a page holds as CSV; of a longer one there is Parquet, and a command that writes CSV."""

_COLUMNS = (
    *("model", "dataset", "data", "selection", "subject", "family", "protocol", "id", "i", "t", "r", "metric"),
    *("value", "se", "interval", "ci_low", "ci_high", "low", "high", "n", "missing", "chance"),
    *("rank", "rank_low", "rank_high", "flags", "invalid", "ties", "near_ties", "noise", "skipped"),
    *("shots_dropped", "truncated", "merged", "noncanonical", "lossy", "unknown"),
    *("model_source", "dataset_source", "signature"),
)
"""Of the downloads, in this order."""


def _described(manifest: Manifest) -> dict[str, Any]:
    """A job of what a manifest says of its model and its data."""
    model, data, selection = manifest.model, manifest.dataset.asked, manifest.selection
    here = manifest.server is None and not model.name.startswith("fake:")
    own = {"dtype": model.arithmetic, "device": model.device, "window": model.window} if here else {}
    return {
        "models": [{"name": model.asked, **own}],
        "data": [{"path": data}] if data else [],
        "subjects": selection.subjects,
        "limit": selection.limit,
    }


def _known(name: str, protocol: Protocol) -> Protocol | None:
    """What the catalogue calls so, where that is ``protocol`` but for the split, which the data say."""
    try:
        entry(name)
        known = resolve(name)
    except ProtocolError:
        return None
    same = [*known] == [name] and replace(known[name], split=protocol.split) == protocol
    return known[name] if same else None


def _pinned(name: str | None, source: str) -> str | None:
    return source if source.startswith(f"{name}@") else name


def _address(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{b64encode(content).decode()}" if content else ""


def _field(value: Any) -> str:
    if value is None or value != value:
        return ""
    if isinstance(value, tuple | list):
        value = " ".join(map(str, value))
    return spreadsheet_text(value) if isinstance(value, str) else str(value)
