"""Export runs: open them, refuse what must not be lost or mixed, and let a format's writer write.

Folders and files are replaced in one step; a store, such as that of MLflow, is added to.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from choicewise.errors import UsageError, did_you_mean, install_line
from choicewise.ports import Export, Writer, all_of, find
from choicewise.protocols.between import apply_metrics, refuse_metrics
from choicewise.report.logged import log_line
from choicewise.results.run import Run, open_run
from choicewise.results.sweep import run_folders, sweeps
from choicewise.store.tables import file_record
from choicewise.util.files import (
    Refused,
    disk_errors,
    new_file,
    new_folder,
    put_back,
    read_bytes,
)
from choicewise.util.text import listed, text_digest


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
    """Write the numbers of ``runs`` (run folders, folders of several, or open runs) to ``out``.

    ``format``: the name of a writer. ``protocols``: the only ones to export, or further ones that
    need no new observations. ``metrics``: those to export under them, instead of their own.
    ``url``: where the evaluation can be looked at; ``organization``: who evaluated. ``table``: one
    of the writer's tables, for formats that have several. An earlier export of the same runs at
    ``out`` is replaced. A folder that is named twice is exported once.

    Raises UsageError for anything else at ``out``, for an ``out`` inside a run folder, for a source
    that the format does not store, for a metric that does not exist or that no protocol of a run
    can have, and, unless ``incomplete``, for a run that is not complete or has damaged blocks.
    """
    writer = find_writer(format)
    table_name = table_of(writer, table)
    if urlsplit(url).username is not None:
        raise UsageError(
            "the address of the evaluation holds a login and would be exported with it; remove the "
            "login"
        )
    if (url or organization) and not writer.has_source:
        raise UsageError(
            f"the format {format} stores no address of an evaluation and no organization; "
            "leave both out"
        )
    named = [runs] if isinstance(runs, str | Path | Run) else list(runs)
    opened = _opened(named)
    whole_sweeps = sweeps(name for name in named if not isinstance(name, Run))
    if not opened:
        raise UsageError("no run was named; name a run folder")
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
        table=table_name,
    )
    filled = _fill(writer, content, Path(out))
    # The numbers in the logs of imported runs, beside those that are exported.
    logged = [(run.folder, log_line(run.manifest.imported)) for run in opened]
    notes = [f"{folder}: {line}" for folder, line in logged if line]
    return replace(filled, notes=(*notes, *lacking, *filled.notes))


def _opened(named: Sequence[str | Path | Run]) -> list[Run]:
    """Open the runs that are named, each folder once."""
    # Two names may be one folder by a link.
    run_of_folder: dict[Path, Run] = {}
    for name in named:
        runs = [name] if isinstance(name, Run) else map(open_run, run_folders([name]))
        for run in runs:
            run_of_folder.setdefault(run.folder.resolve(), run)
    return list(run_of_folder.values())


def _refuse_inside(out: Path, runs: Sequence[Run]) -> None:
    # A link may lead into a run folder.
    target = Path(os.path.realpath(out))
    for run in runs:
        if target.is_relative_to(run.folder.resolve()):
            raise UsageError(
                f"{out} is in the run folder {run.folder}, which may hold nothing else; choose "
                "another folder"
            )


def _under(runs: Sequence[Run], metrics: Sequence[str]) -> tuple[list[Run], list[str]]:
    """Return the runs under ``metrics``, and a line for each protocol that can't have one;
    UsageError if none can.
    """
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
    advice = "run its command again to finish it, or export incomplete runs as they are"
    if len(lines) == 1:
        raise UsageError(f"{lines[0]}; {advice}")
    raise UsageError(f"runs are not complete; {advice}", lines)


def run_identity(run: Run) -> str:
    """Return a run in words that agree only for the same model, data and selection."""
    manifest = run.manifest
    model = dict(manifest.model.computation)
    # A model that has moved is the same model.
    model.pop("name", None)
    model.pop("source", None)
    spelled = repr((sorted(model.items()), manifest.dataset.digest, manifest.selection))
    digest = text_digest(spelled)[:12]
    return f"{manifest.model.name} on {manifest.dataset.name} ({digest})"


@dataclass(frozen=True)
class Filled:
    """Hold the written ``files``, in the order of their names, and ``notes`` on what was left out."""

    files: tuple[Path, ...]
    notes: tuple[str, ...]


def _fill(writer: Writer, export: Export, out: Path) -> Filled:
    """Write the ``export`` to ``out`` in the way that the writer asks for."""
    writer.check(out)
    if writer.output == "folder":
        content = [run_identity(run) for run in export.runs]
        return fill_folder(out, writer.name, content, lambda folder: writer.write(export, folder))
    if writer.output == "file":
        return _fill_files(writer, export, out)
    notes = writer.write(export, out)
    # A server has what it was sent, and there is no file.
    files = (out,) if os.path.lexists(out) else ()
    return Filled(files, tuple(notes))


def _fill_files(writer: Writer, export: Export, out: Path) -> Filled:
    files = [out]
    for ending in writer.endings(export.table):
        files.append(out.with_name(f"{out.stem}{ending}{out.suffix}"))
    # Every file is checked before the first is written, so that all are replaced or none.
    for file in files:
        _check_file(file, writer)
    with disk_errors(out):
        out.parent.mkdir(parents=True, exist_ok=True)
    # The files are replaced when the block ends, unless it ends in an error.
    with ExitStack() as stack:
        partial = []
        for file in files:
            target = Path(os.path.realpath(file))
            partial.append(stack.enter_context(new_file(target)))
        notes = writer.write(replace(export, beside=tuple(partial[1:])), partial[0])
    return Filled(tuple(files), tuple(notes))


def fill_folder(
    out: Path, name: str, content: Sequence[str], write: Callable[[Path], Sequence[str]]
) -> Filled:
    """Fill a folder that holds this export and nothing else; it is complete, or as it was before.

    ``name``: of the format. ``content``: the runs in words. ``write``: fills a new folder, and
    returns what is left out. Raises UsageError if ``out`` holds anything but an earlier export of
    this format whose content is among ``content``, and if nothing was written.
    """
    target = Path(os.path.realpath(out))
    with disk_errors(out):
        # A replacement that was interrupted has left the earlier export under another name.
        put_back(target)
    _check_folder(target, out, name, content)
    with new_folder(target) as partial:
        notes = write(partial)
        files = sorted(file.relative_to(partial) for file in partial.rglob("*") if file.is_file())
        if not files:
            raise UsageError(f"nothing of this can be exported to {name}", notes)
        digests = {file.as_posix(): _sha256(partial / file) for file in files}
        mark = {"format": name, "content": list(content), "files": digests}
        (partial / MARK).write_text(json.dumps(mark, indent=1), encoding="utf-8")
    return Filled(tuple(out / file for file in files), tuple(notes))


def library(name: str, extra: str) -> None:
    """Check that another tool's library is installed; UsageError with the line that installs it."""
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
    """Return the table to write, "" for a format that has one alone; UsageError if it does not have
    ``table``.
    """
    if table is None:
        return writer.tables[0] if writer.tables else ""
    if table in writer.tables:
        return table
    formats = []
    tables: list[str] = []
    for other in all_of(Writer):
        if other.tables:
            formats.append(other.name)
            tables += other.tables
    if table not in tables:
        raise UsageError(f"no table {table!r}; {did_you_mean(table, dict.fromkeys(tables))}")
    raise UsageError(
        f"{writer.name} has no tables to choose from, {' and '.join(sorted(formats))} have; leave "
        "the table out"
    )


MARK = ".choicewise-export"
"""A file in every folder that an export made, so that it is replaced only if nothing is lost.

It holds the format, the content in words, and the sha256 of the files by name.
"""

_MARK_TYPES = {"format": str, "content": list, "files": dict}


def begins_with(file: Path, text: str) -> bool:
    """Return whether ``file`` begins with ``text``."""
    first = text.encode()
    with file.open("rb") as stream:
        return stream.read(len(first)) == first


def _check_file(out: Path, writer: Writer) -> None:
    if out.is_dir():
        raise UsageError(f"{out} is a folder; {writer.name} is one file, name it")
    if out.is_symlink() and not out.exists():
        raise UsageError(f"{out} is a broken link; name the file to write")
    if out.exists() and not out.is_file():
        raise UsageError(f"{out} is a device or a pipe; name a file")
    if out.exists() and not writer.replaces(out):
        raise UsageError(
            f"{out} exists and is not an earlier {writer.name} export; choose another name"
        )


def _check_folder(target: Path, out: Path, name: str, content: Sequence[str]) -> None:
    """Raise UsageError unless ``target`` is free, empty, or an earlier export that nothing is lost
    with. ``out``: its name in messages.
    """
    if not os.path.lexists(target):
        return
    if not target.is_dir():
        raise UsageError(f"{out} is a file; {name} is a folder of files, name a new one")
    if not any(target.iterdir()):
        return
    files = _files_in(target)
    mark = _read_mark(target)
    if mark is None:
        raise UsageError(
            f"{out} holds {listed(sorted(files)) or 'folders'}, not an export; choose an empty or "
            "new folder"
        )
    if mark["format"] != name:
        raise UsageError(
            f"{out} holds an export of the format {mark['format']}; choose another folder"
        )
    # A replacement would lose further files, edits, and runs that this export lacks.
    files.discard(MARK)
    digests = mark["files"]
    others = files - digests.keys()
    if others:
        raise UsageError(
            f"{out} holds {listed(sorted(others))} next to an export; choose another folder, or "
            "move them away"
        )
    changed = [file for file in sorted(files) if _sha256(target / file) != digests[file]]
    if changed:
        raise UsageError(
            f"{out} holds {listed(changed)}, changed since the export; choose another folder, or "
            "move that"
        )
    lost = [run for run in mark["content"] if run not in content]
    if lost:
        raise UsageError(
            f"{out} holds an export of {listed(lost)}; export that with it, or choose another "
            "folder"
        )


def _files_in(folder: Path) -> set[str]:
    """Return everything below a folder that is no folder, by its path in it."""
    files = set()
    for file in folder.rglob("*"):
        if file.is_symlink() or not file.is_dir():
            files.add(file.relative_to(folder).as_posix())
    return files


def _read_mark(folder: Path) -> dict[str, Any] | None:
    """Return the mark of an export, None if there is none that can be read."""
    try:
        mark = json.loads(read_bytes(folder / MARK))
    except (OSError, ValueError):
        return None
    if not isinstance(mark, dict):
        return None
    for key, kind in _MARK_TYPES.items():
        if not isinstance(mark.get(key), kind):
            return None
    return mark


def _sha256(file: Path) -> str:
    """Return the digest of a file in hexadecimal, "" if it is no regular file."""
    try:
        return file_record(file).sha256
    except Refused:
        return ""
