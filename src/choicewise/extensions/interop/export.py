"""Export of runs: the writer of a format fills a folder, a file or a store, in one step."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from hashlib import file_digest
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from choicewise.errors import UsageError, did_you_mean, install_line
from choicewise.ports import Export, Writer, all_of, find
from choicewise.protocols.between import apply_metrics, refuse_metrics
from choicewise.results.run import Run, open_run
from choicewise.results.sweep import run_folders, sweeps
from choicewise.util.files import (
    Refused,
    disk_errors,
    new_file,
    new_folder,
    open_file,
    put_back,
    read_bytes,
)


def export(
    runs: str | Path | Run | Iterable[str | Path | Run],
    format: str,
    out: str | Path,
    *,
    protocols: Sequence[str] | None = None,
    metrics: Sequence[str] | None = None,
    incomplete: bool = False,
    url: str = "",
    organization: str = "",
    table: str | None = None,
) -> Filled:
    """Write the numbers of ``runs`` (run folders, folders of several, or runs that are open) to ``out``.

    ``format``: the name of a writer.  ``protocols``: only these, or further ones that ask nothing new.  ``metrics``:
    what these are made of under them, instead.  ``url``: where the evaluation can be looked at; ``organization``: who
    evaluated.  ``table``: one of the writer's tables, for formats that have several.  What is at ``out`` is replaced
    only where it is an earlier export of the same.

    A folder that is named twice is exported once.

    Raises UsageError for anything else at ``out``, for a place within a run folder, for a metric that nobody knows or
    no protocol of a run can have, and for a run that is not complete, or has damaged blocks, unless ``incomplete`` says
    that it is to be exported as it is.
    """
    writer = find_writer(format)
    shown_table = table_of(writer, table)
    if urlsplit(url).username is not None:
        raise UsageError(
            "the address of the evaluation holds a login, which would be in the export; leave it out"
        )
    named = [runs] if isinstance(runs, str | Path | Run) else list(runs)
    opened = _opened(named)
    whole_sweeps = sweeps(name for name in named if not isinstance(name, Run))
    if not opened:
        raise UsageError("nothing is named that could be exported; name a run folder")
    _refuse_inside(Path(out), opened)
    chosen = [run.choose(protocols) for run in opened]
    lacking: list[str] = []
    if metrics is not None:
        chosen, lacking = _under(chosen, metrics)
    if not incomplete:
        _refuse_unfinished(chosen)
    content = Export(
        runs=tuple(chosen),
        sweeps=tuple(whole_sweeps),
        url=url,
        organization=organization,
        table=shown_table,
    )
    filled = _fill(writer, content, Path(out))
    return replace(filled, notes=(*lacking, *filled.notes))


def _opened(named: Sequence[str | Path | Run]) -> list[Run]:
    """Open the runs that are named, each folder once."""
    run_of_folder: dict[Path, Run] = {}
    for name in named:
        runs = [name] if isinstance(name, Run) else map(open_run, run_folders([name]))
        for run in runs:
            run_of_folder.setdefault(run.folder.resolve(), run)
    return list(run_of_folder.values())


def _refuse_inside(out: Path, runs: Sequence[Run]) -> None:
    place = Path(os.path.realpath(out))
    for run in runs:
        if place.is_relative_to(run.folder.resolve()):
            raise UsageError(
                f"{out} is in the run folder {run.folder}, which holds the run alone; name a place beside it"
            )


def _under(runs: Sequence[Run], metrics: Sequence[str]) -> tuple[list[Run], list[str]]:
    """Return the runs under ``metrics``, and a line for each protocol that can't have one; UsageError if none can."""
    applied = [apply_metrics(run.protocols, metrics) for run in runs]
    for protocols in applied:
        refuse_metrics([protocols])
    changed = []
    lines = []
    for run, protocols in zip(runs, applied, strict=True):
        changed.append(run.under(protocols.protocols))
        lines += [f"{run.folder}: {line}" for line in protocols.lines]
    return changed, lines


def _refuse_unfinished(runs: Sequence[Run]) -> None:
    lines = [f"{run.folder} is not complete" for run in runs if not run.manifest.complete]
    lines += [f"{run.folder} has damaged blocks" for run in runs if run.evidence.damages]
    if not lines:
        return
    advice = "finish it by repeating the line that began it, or ask for incomplete runs as they are"
    if len(lines) == 1:
        raise UsageError(f"{lines[0]}; {advice}")
    raise UsageError(f"runs are not whole; {advice}", lines)


def identity(run: Run) -> str:
    """The run in words that agree only for the same model, data and selection."""
    manifest = run.manifest
    model = {
        name: value
        for name, value in manifest.model.computation.items()
        if name not in ("name", "source")
    }
    spelled = repr((sorted(model.items()), manifest.dataset.digest, manifest.selection))
    digest = hashlib.sha256(spelled.encode()).hexdigest()[:12]
    return f"{manifest.model.name} on {manifest.dataset.name} ({digest})"


@dataclass(frozen=True, slots=True)
class Filled:
    """``files`` that were written, in the order of their names; ``notes``: what was left out, and why."""

    files: tuple[Path, ...]
    notes: tuple[str, ...]


def _fill(writer: Writer, export: Export, out: Path) -> Filled:
    """Write the ``export`` to ``out`` in the way that the writer asks for."""
    writer.check(out)
    if writer.output == "folder":
        content = [identity(run) for run in export.runs]
        return own_folder(out, writer.name, content, lambda folder: writer.write(export, folder))
    if writer.output == "file":
        return _fill_files(writer, export, out)
    notes = writer.write(export, out)
    files = (out,) if os.path.lexists(out) else ()  # no file: a server has it
    return Filled(files, tuple(notes))


def _fill_files(writer: Writer, export: Export, out: Path) -> Filled:
    beside = [
        out.with_name(f"{out.stem}{ending}{out.suffix}") for ending in writer.endings(export.table)
    ]
    files = (out, *beside)
    for file in files:
        _check_file(file, writer)
    with disk_errors(out):
        out.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        partial, *others = [
            stack.enter_context(new_file(Path(os.path.realpath(file)))) for file in files
        ]
        notes = writer.write(replace(export, beside=tuple(others)), partial)
    return Filled(files, tuple(notes))


def own_folder(
    out: Path, name: str, content: Sequence[str], write: Callable[[Path], Sequence[str]]
) -> Filled:
    """A folder that holds this export and nothing else, complete or as it was before.

    Raises UsageError where ``out`` holds anything but an earlier export of this format with no other ``content``, and
    where nothing was written.
    """
    place = Path(os.path.realpath(out))
    with disk_errors(out):
        put_back(place)
    _check_folder(place, out, name, content)
    with new_folder(place) as partial:
        notes = write(partial)
        files = sorted(file.relative_to(partial) for file in partial.rglob("*") if file.is_file())
        if not files:
            raise UsageError(f"nothing of this can be exported to {name}", notes)
        digests = {file.as_posix(): _sha256(partial / file) for file in files}
        mark = {"format": name, "content": [*content], "files": digests}
        (partial / MARK).write_text(json.dumps(mark, indent=1), encoding="utf-8")
    return Filled(tuple(out / file for file in files), tuple(notes))


def library(name: str, extra: str) -> None:
    """Check that another tool's library is there.  Raises UsageError with the line that installs it."""
    if find_spec(name) is None:
        raise UsageError(f"{name} is not installed; `{install_line(extra)}`")


def find_writer(name: str) -> Writer:
    """Return the writer of the format of that ``name``; UsageError if there is none."""
    writer = find(Writer, name)
    if writer is None:
        names = [writer.name for writer in all_of(Writer)]
        raise UsageError(f"no format {name!r}; {did_you_mean(name, names)}")
    return writer


def table_of(writer: Writer, table: str | None) -> str:
    """Return the table to write, "" for a format that has one alone; UsageError if it does not have ``table``."""
    if table is None:
        return writer.tables[0] if writer.tables else ""
    if table in writer.tables:
        return table
    writers_with_tables = [other for other in all_of(Writer) if other.tables]
    tables = dict.fromkeys(name for other in writers_with_tables for name in other.tables)
    if table not in tables:
        raise UsageError(f"no table {table!r}; {did_you_mean(table, tables)}")
    names = " and ".join(sorted(other.name for other in writers_with_tables))
    raise UsageError(
        f"{writer.name} has no tables to choose among, {names} have; leave the table out"
    )


MARK = ".choicewise-export"
"""A file in every folder that an export made, so that it is replaced only where nothing is lost.

It says the format, the content in words, and the sha256 of the files by name.
"""

NAMED = 5
"""Names in a message; more of them are counted."""


def begins_with(file: Path, text: str) -> bool:
    """Return whether ``file`` begins with ``text``."""
    first = text.encode()
    with file.open("rb") as stream:
        return stream.read(len(first)) == first


def _check_file(out: Path, writer: Writer) -> None:
    if out.is_dir():
        raise UsageError(f"{out} is a folder; {writer.name} is one file, name it")
    if out.is_symlink() and not out.exists():
        raise UsageError(f"{out} is a link to nothing; name the file that is to be written")
    if out.exists() and not out.is_file():
        raise UsageError(
            f"{out} is a device or a pipe, no file; name a file, which is replaced in one step"
        )
    if out.exists() and not writer.replaces(out):
        raise UsageError(f"{out} is there and no earlier {writer.name} export; choose another name")


def _check_folder(place: Path, out: Path, name: str, content: Sequence[str]) -> None:
    if not os.path.lexists(place):
        return
    if not place.is_dir():
        raise UsageError(f"{out} is a file; {name} is a folder of files, name a new one")
    there = {
        file.relative_to(place).as_posix()
        for file in place.rglob("*")
        if not file.is_dir() or file.is_symlink()
    }
    if not there and not any(place.iterdir()):
        return
    try:
        mark = json.loads(read_bytes(place / MARK))
    except (OSError, ValueError):
        mark = None
    kinds = {"format": str, "content": list, "files": dict}
    if not isinstance(mark, dict) or not all(
        isinstance(mark.get(key), kind) for key, kind in kinds.items()
    ):
        raise UsageError(
            f"{out} holds {_named(sorted(there)) or 'folders'}, no export; choose an empty or new folder"
        )
    if mark["format"] != name:
        raise UsageError(
            f"{out} holds an export of the format {mark['format']}; choose another folder"
        )
    if other := there - {MARK} - mark["files"].keys():
        raise UsageError(
            f"{out} holds {_named(sorted(other))} beside an export; choose another folder, or move that"
        )
    if changed := [
        file for file in sorted(there - {MARK}) if _sha256(place / file) != mark["files"][file]
    ]:
        raise UsageError(
            f"{out} holds {_named(changed)}, changed since the export; choose another folder, or move that"
        )
    if lost := [each for each in mark["content"] if each not in content]:
        raise UsageError(
            f"{out} holds an export of {_named(lost)}; export that with it, or choose another folder"
        )


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{', '.join(names[:NAMED])}{more}"


def _sha256(file: Path) -> str:
    """In hexadecimal; nothing of what is no file."""
    try:
        with open_file(file) as stream:
            return file_digest(stream, "sha256").hexdigest()
    except Refused:
        return ""
