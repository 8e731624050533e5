"""Export(): writer registry (entry points choicewise.exporters), destination."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from hashlib import file_digest
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from choicewise.errors import UsageError, did_you_mean, install_line
from choicewise.protocols.between import apply_metrics, refuse_metrics
from choicewise.results.run import Run, open_run
from choicewise.results.sweep import run_folders, sweeps
from choicewise.util.files import Refused, disk_errors, new_file, new_folder, open_file, put_back, read_bytes

if TYPE_CHECKING:
    from choicewise.records import Sweep


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

    ``format``: a name in :data:`WRITERS`.  ``protocols``: only these, or further ones that
    ask nothing new.  ``metrics``: what these are made of under them, instead.  ``url``: where the evaluation can be
    looked at; ``organization``: who evaluated.  ``table``: a name in :data:`TABLES`, for the formats there.  What is at
    ``out`` is replaced only where it is an earlier export of the same.

    A folder that is named twice is exported once.

    Raises UsageError for anything else at ``out``, for a place within a run folder, for a metric that nobody knows or
    no protocol of a run can have, and for a run that is not complete, or has damaged blocks, unless ``incomplete`` says
    that it is to be exported as it is.
    """
    known = writer(format, table)
    if urlsplit(url).username is not None:
        raise UsageError("the address of the evaluation holds a login, which would be in the export; leave it out")
    given = [runs] if isinstance(runs, str | Path | Run) else [*runs]
    opened: dict[Path, Run] = {}
    for each in given:
        for run in [each] if isinstance(each, Run) else map(open_run, run_folders([each])):
            opened.setdefault(run.folder.resolve(), run)
    whole = sweeps(each for each in given if not isinstance(each, Run))
    if not opened:
        raise UsageError("nothing is named that could be exported; name a run folder")
    if inside := next((run for path, run in opened.items() if Path(os.path.realpath(out)).is_relative_to(path)), None):
        raise UsageError(
            f"{out} is in the run folder {inside.folder}, which holds the run alone; name a place beside it"
        )
    chosen = tuple(run.choose(protocols) for run in opened.values())
    lacking = list[str]()
    if metrics is not None:
        applied = [apply_metrics(run.protocols, metrics) for run in chosen]
        lacking = [f"{run.folder}: {line}" for run, one in zip(chosen, applied, strict=True) for line in one.lines]
        for one in applied:
            refuse_metrics([one])
        chosen = tuple(run.under(one.protocols) for run, one in zip(chosen, applied, strict=True))
    if not incomplete:
        lines = [f"{run.folder} is not complete" for run in chosen if not run.manifest.complete]
        lines += [f"{run.folder} has damaged blocks" for run in chosen if run.evidence.damages]
        if lines:
            advice = "finish it by repeating the line that began it, or ask for incomplete runs as they are"
            raise UsageError(f"{lines[0] if len(lines) == 1 else 'runs are not whole'}; {advice}", lines[1:] and lines)
    content = Export(chosen, tuple(whole), url, organization)
    filled = known.place(Path(out), format, [*map(identity, chosen)], lambda *paths: known.write(content, *paths))
    return replace(filled, notes=(*lacking, *filled.notes))


def identity(run: Run) -> str:
    """The run in words that agree only for the same model, data and selection."""
    manifest = run.manifest
    model = {name: value for name, value in asdict(manifest.model).items() if name not in ("name", "source")}
    spelled = repr((sorted(model.items()), manifest.dataset.digest, manifest.selection))
    digest = hashlib.sha256(spelled.encode()).hexdigest()[:12]
    return f"{manifest.model.name} on {manifest.dataset.name} ({digest})"


@dataclass(frozen=True)
class Export:
    """What is exported: ``runs``, whose numbers are read one run at a time and released by the format that reads them.

    ``sweeps``: the folders of several runs among what was named, for the averages of their suites.  ``url``: where the
    evaluation can be looked at; ``organization``: who evaluated; both may be empty.
    """

    runs: tuple[Run, ...]
    sweeps: tuple[tuple[Path, Sweep], ...] = ()
    url: str = ""
    organization: str = ""


Write = Callable[..., Sequence[str]]
"""Writes at a path, or at each of several, and says in a line each what was left out, and why."""


@dataclass(frozen=True, slots=True)
class Filled:
    """``files`` that were written, in the order of their names; ``notes``: what was left out, and why."""

    files: tuple[Path, ...]
    notes: tuple[str, ...]


Place = Callable[[Path, str, Sequence[str], Write], Filled]
"""(path, format, what is exported, in words that agree only for the same, what writes it) → what is there then."""


def own_folder(out: Path, name: str, content: Sequence[str], write: Write) -> Filled:
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


@dataclass(frozen=True, slots=True)
class Writer:
    """A format.  ``about``: who reads it, in a line.

    ``write`` fills the paths that it is given after the export, a new folder or new files by ``place``, and returns
    what of the export the format has no place for, a line each with the reason.
    """

    about: str
    write: Callable[..., Sequence[str]]
    place: Place = own_folder


WRITERS: dict[str, str] = {
    "harness": "harness:WRITER",
    "every-eval-ever": "every_eval_ever:EVERY_EVAL_EVER",
    "eval-results": "every_eval_ever:EVAL_RESULTS",
    "csv": "tables:ROWS_CSV",
    "parquet": "tables:ROWS_PARQUET",
    "markdown": "paper:MARKDOWN",
    "latex": "paper:LATEX",
    "scores-csv": "tables:SCORES_CSV",
    "scores-parquet": "tables:SCORES_PARQUET",
    "items-csv": "tables:ITEMS_CSV",
    "items-parquet": "tables:ITEMS_PARQUET",
    "inspect": "inspect:WRITER",
    "wandb": "trackers:WANDB",
    "mlflow": "trackers:MLFLOW",
}
"""Name → the module in ``write/`` and the name of the :class:`Writer` there."""

TABLES: dict[str, dict[str, str]] = {
    "numbers": {name: WRITERS[name] for name in ("latex", "markdown")},
    "models": {"latex": "models_table:LATEX", "markdown": "models_table:MARKDOWN"},
}
"""Table → the same by format, of the formats that are tables for readers: every number, or models by benchmarks."""


def library(name: str, extra: str) -> None:
    """Check that another tool's library is there.  Raises UsageError with the line that installs it."""
    if find_spec(name) is None:
        raise UsageError(f"{name} is not installed; `{install_line(extra)}`")


def writer(name: str, table: str | None = None) -> Writer:
    """The format of that name, as that ``table``; its module is imported now.

    Raises UsageError for a name that nobody knows, and for a table of a format that has none.
    """
    if name not in WRITERS:
        raise UsageError(f"no format {name!r}; {did_you_mean(name, WRITERS)}")
    if table is not None and table not in TABLES:
        raise UsageError(f"no table {table!r}; {did_you_mean(table, TABLES)}")
    known = WRITERS if table is None else TABLES[table]
    if name not in known:
        raise UsageError(f"{name} has no tables to choose among, {' and '.join(known)} have; leave the table out")
    module, _, attribute = known[name].partition(":")
    value: Writer = getattr(import_module(f"choicewise.extensions.interop.write.{module}"), attribute)
    return value


MARK = ".choicewise-export"
"""A file in every folder that an export made, so that it is replaced only where nothing is lost.

It says the format, the content in words, and the sha256 of the files by name.
"""

NAMED = 5
"""Names in a message; more of them are counted."""


def begins_with(text: str) -> Callable[[Path], bool]:
    """Whether a file begins with ``text``."""
    head = text.encode()

    def is_ours(path: Path) -> bool:
        with path.open("rb") as file:
            return file.read(len(head)) == head

    return is_ours


def one_file(is_ours: Callable[[Path], bool], *endings: str) -> Place:
    """One file, complete or as it was before; for each of ``endings`` one more beside it, with that after its name.

    UsageError where another file is there than ``is_ours`` says that an export of the format made.
    """

    def place(out: Path, name: str, content: Sequence[str], write: Write) -> Filled:
        files = (out, *(out.with_name(f"{out.stem}{ending}{out.suffix}") for ending in endings))
        for file in files:
            _check_file(file, name, is_ours)
        with disk_errors(out):
            out.parent.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            notes = write(*[stack.enter_context(new_file(Path(os.path.realpath(file)))) for file in files])
        return Filled(files, tuple(notes))

    return place


def _check_file(out: Path, name: str, is_ours: Callable[[Path], bool]) -> None:
    if out.is_dir():
        raise UsageError(f"{out} is a folder; {name} is one file, name it")
    if out.is_symlink() and not out.exists():
        raise UsageError(f"{out} is a link to nothing; name the file that is to be written")
    if out.exists() and not out.is_file():
        raise UsageError(f"{out} is a device or a pipe, no file; name a file, which is replaced in one step")
    if out.exists() and not is_ours(out):
        raise UsageError(f"{out} is there and no earlier {name} export; choose another name")


def own_store(out: Path, name: str, content: Sequence[str], write: Write) -> Filled:
    """A store of the other tool's own library, which keeps what is there already and adds to it."""
    with disk_errors(out):
        return Filled((out,), tuple(write(out)))


def _check_folder(place: Path, out: Path, name: str, content: Sequence[str]) -> None:
    if not os.path.lexists(place):
        return
    if not place.is_dir():
        raise UsageError(f"{out} is a file; {name} is a folder of files, name a new one")
    there = {file.relative_to(place).as_posix() for file in place.rglob("*") if not file.is_dir() or file.is_symlink()}
    if not there and not any(place.iterdir()):
        return
    try:
        mark = json.loads(read_bytes(place / MARK))
    except (OSError, ValueError):
        mark = None
    kinds = {"format": str, "content": list, "files": dict}
    if not isinstance(mark, dict) or not all(isinstance(mark.get(key), kind) for key, kind in kinds.items()):
        raise UsageError(f"{out} holds {_named(sorted(there)) or 'folders'}, no export; choose an empty or new folder")
    if mark["format"] != name:
        raise UsageError(f"{out} holds an export of the format {mark['format']}; choose another folder")
    if other := there - {MARK} - mark["files"].keys():
        raise UsageError(f"{out} holds {_named(sorted(other))} beside an export; choose another folder, or move that")
    if changed := [file for file in sorted(there - {MARK}) if _sha256(place / file) != mark["files"][file]]:
        raise UsageError(
            f"{out} holds {_named(changed)}, changed since the export; choose another folder, or move that"
        )
    if lost := [each for each in mark["content"] if each not in content]:
        raise UsageError(f"{out} holds an export of {_named(lost)}; export that with it, or choose another folder")


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
