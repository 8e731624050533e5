"""Logs of Inspect (inspect_ai): ``.eval`` archives and ``.json`` files.

Read from inspect_ai 0.3.285 (log/_log.py, log/_recorders/eval.py and json.py), log version 2.  An archive holds
``header.json`` (``_journal/start.json`` until the run has ended) and one file a sample.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from choicewise.errors import DataError
from choicewise.interchange.logs.log import Log, LoggedItem, unreadable
from choicewise.interchange.logs.read import Reader
from choicewise.interchange.logs.read.inspect_header import check, rules, settings, totals
from choicewise.interchange.logs.read.inspect_sample import logged_item
from choicewise.interchange.logs.read.json_parts import json_value, parts
from choicewise.interchange.logs.read.layout import laid_out_by
from choicewise.interchange.logs.read.packed import unpacked


@dataclass(frozen=True)
class _Run:
    """A log: what it says of the run as a whole, and its samples."""

    path: Path
    header: Mapping[str, Any]
    samples: tuple[tuple[int, LoggedItem], ...]
    """(epoch, item)"""


def _recognises(path: Path) -> bool:
    try:
        if path.is_dir():
            return any(map(_recognises, _files(path)))
        with path.open("rb") as file:
            start = file.read(4096)
    except OSError:
        return False
    if path.suffix == ".eval":
        return start.startswith(b"PK")
    return start.lstrip().startswith(b"{") and all(
        f'"{key}"'.encode() in start for key in ("version", "status", "eval")
    )


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.suffix in (".eval", ".json") and path.is_file())


def _read(paths: Sequence[Path], results: Path | None) -> Iterator[Log]:
    """A log for every file and epoch: an epoch is a draw of its own for each item, and no further items."""
    if results is not None:
        raise DataError(f"{results}: a log of Inspect holds its own results; leave the file of results out")
    for path in paths:
        for file in [each for each in _files(path) if _recognises(each)] if path.is_dir() else [path]:
            try:
                with laid_out_by("Inspect", file):
                    logs = list(_logs(_archive(file) if file.suffix == ".eval" else _json(file)))
            except DataError as error:
                logs = [unreadable("inspect", file, error)]
            yield from logs


def _archive(path: Path) -> _Run:
    with unpacked(path) as archive:
        names = [name for name in archive.names if name.startswith("samples/") and name.endswith(".json")]
        header = next((name for name in ("header.json", "_journal/start.json") if name in archive.names), None)
        if header is None:
            raise DataError(f"{path} has neither header.json nor _journal/start.json; it is no log of Inspect")
        samples = (json_value(archive.read(name), f"{path}: {name}") for name in names)
        return _run(path, json_value(archive.read(header), f"{path}: {header}"), samples)


def _json(path: Path) -> _Run:
    header: dict[str, Any] = {}

    def samples() -> Iterator[Any]:
        for key, value in parts(path, "samples"):
            if key == "samples":
                yield value
            else:
                header[key] = value

    return _run(path, header, samples())


def _run(path: Path, header: Any, samples: Iterable[Any]) -> _Run:
    items = tuple(logged_item(sample, f"{path}, sample {number} (from 1)") for number, sample in enumerate(samples, 1))
    if not isinstance(header, dict) or not isinstance(header.get("eval"), dict):
        raise DataError(f"{path} does not say what was evaluated; it is no log of Inspect")
    return _Run(path, header, items)


def _logs(run: _Run) -> Iterator[Log]:
    spec = run.header["eval"]
    check(run.path, run.header, len(run.samples))
    epochs = sorted({epoch for epoch, _ in run.samples})
    for epoch in epochs:
        items = tuple(item for each, item in run.samples if each == epoch)
        repeated = len(items) - len({item.id for item in items})
        if repeated:
            raise DataError(f"{run.path} holds {repeated} samples twice in epoch {epoch}; write it again with Inspect")
        name = str(spec.get("task") or run.path.stem)
        several = {"epoch": f"{epoch} of {len(epochs)}"} if len(epochs) > 1 else {}
        yield Log(
            tool="inspect",
            model=str(spec.get("model") or ""),
            task=f"{name} epoch {epoch}" if several else name,
            items=items,
            settings={**settings(run.header), **several},
            recorded={} if several else totals(run.header),
            rules=rules(run.header),
        )


READER = Reader("Inspect's .eval archives and .json logs of multiple choice", _recognises, _read)
"""Logs of Inspect."""
