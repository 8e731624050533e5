"""Other tools' logs, from their files to run folders."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from choicewise.errors import ChoicewiseError, UsageError
from choicewise.interchange.logs.log import Log, Unreadable
from choicewise.interchange.logs.log_state import LogState
from choicewise.interchange.logs.read import reader, recognise
from choicewise.interchange.logs.run_of_log import run_of_log
from choicewise.records.format import MANIFEST
from choicewise.records.sweep import CellRecord, Sweep
from choicewise.results.run import Run, open_run
from choicewise.running.sweep_model import folder_name, free_name
from choicewise.running.sweep_record import begun_sweep
from choicewise.store.atomic import disk_errors
from choicewise.store.lock import locked
from choicewise.store.sweep import is_sweep, write_sweep


@dataclass(frozen=True, slots=True)
class Imported:
    """A log that was imported, and the run folder of it."""

    log: Log
    folder: Path
    state: LogState


def import_log(
    paths: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    format: str | None = None,
    results: str | Path | None = None,
    model: str | None = None,
    task: str | None = None,
    tokenizer: str | Path | None = None,
) -> list[Run]:
    """Make run folders of other tools' logs, and open them.

    ``paths``: files or folders of one format, which is recognised unless it is named.  One log becomes the run folder
    ``out``, several become ``out/MODEL/TASK`` with a sweep file.  ``results``: the file with the totals, where it does
    not lie beside the samples.  ``model`` and ``task``: their names, where the files do not say them or say others.
    ``tokenizer``: the folder of the model's tokenizer, which counts the tokens of texts.  Importing the same again
    changes nothing.

    Raises DataError for a log that can't be used, UsageError for names that fit several logs, and StoreError where
    ``out`` holds something else.
    """
    named = [paths] if isinstance(paths, str | Path) else list(paths)
    logs = read_logs([Path(path) for path in named], format, None if results is None else Path(results))
    logs = renamed(logs, model, task)
    if tokenizer is not None:
        from choicewise.interchange.logs.token_counts import counted

        logs = counted(logs, Path(tokenizer))
    return [open_run(each.folder) for each in write_logs(logs, Path(out))]


def read_logs(paths: Sequence[Path], format: str | None = None, results: Path | None = None) -> list[Log]:
    """The logs in ``paths``; their items are read later.

    Raises DataError for what is no log; one file that can't be used among others that can is a log of
    :class:`Unreadable` items.
    """
    if not paths:
        raise UsageError("no file was named; name the logs, or the folders that hold them")
    by_format: dict[str, list[Path]] = {}
    for path in paths:
        by_format.setdefault(format or recognise(path), []).append(path)
    logs = [log for name, own in by_format.items() for log in reader(name).read(own, results)]
    if len(logs) == 1 and isinstance(logs[0].items, Unreadable):
        raise logs[0].items.error
    return logs


def renamed(logs: Sequence[Log], model: str | None, task: str | None) -> list[Log]:
    """The logs under other names.  UsageError where two of them then are of the same model and task."""
    changes = {name: value for name, value in (("model", model), ("task", task)) if value is not None}
    new = [replace(log, **changes) for log in logs]  # type: ignore[arg-type]
    for place, log in enumerate(new):
        for other in new[:place]:
            if (log.model, log.task) != (other.model, other.task):
                continue
            files = [each.settings["file"] for each in (other, log) if "file" in each.settings]
            which = f" ({' and '.join(files)})" if len(set(files)) == 2 else ""
            raise UsageError(
                f"two of the logs{which} are of {log.model} on {log.task}; import them one by one into folders of "
                "their own, and name model and task where the files don't"
            )
    return new


def write_logs(
    logs: Sequence[Log], out: Path, say: Callable[[Imported], None] = lambda imported: None
) -> list[Imported]:
    """A run folder for each of ``logs``; ``say`` hears of each.  Raises what :func:`run_of_log` raises."""
    if len(logs) == 1 and not is_sweep(out):
        done = Imported(logs[0], out, run_of_log(logs[0], out))
        say(done)
        return [done]
    begun_sweep(out)
    with disk_errors(out):
        out.mkdir(parents=True, exist_ok=True)
    with locked(out):
        return _write_several(logs, out, say)


def _write_several(logs: Sequence[Log], out: Path, say: Callable[[Imported], None]) -> list[Imported]:
    sweep = begun_sweep(out)
    done: list[Imported] = []
    failed: list[ChoicewiseError] = []
    for log in logs:
        folder = _folder(sweep, log)
        cell = CellRecord(log.model, log.task, folder, "")
        try:
            state = run_of_log(log, out / folder)
            cell = replace(cell, asked=state.model, done=True)
            done.append(Imported(log, out / folder, state))
            say(done[-1])
        except ChoicewiseError as error:
            failed.append(error.within(f"{log.model} on {log.task}"))
            cell = replace(cell, failure=str(error))
        sweep = _with(sweep, cell)
        write_sweep(out, sweep)
    others = f"; the others are in {out}" if done else ""
    if len(failed) == 1:
        raise type(failed[0])(f"{failed[0].message}{others}", failed[0].problems)
    if failed:
        problems = [part for error in failed for part in str(error).split("\n")]
        raise type(failed[0])(f"{len(failed)} of {len(logs)} logs can't be used{others}", problems)
    return done


def _folder(sweep: Sweep, log: Log) -> str:
    """Where the run of the log lies below the folder: where it lay, or MODEL/TASK, numbered where that is taken."""
    for cell in sweep.cells:
        if (cell.model, cell.dataset) == (log.model, log.task):
            return cell.folder
    models = {cell.model: cell.folder.partition("/")[0] for cell in sweep.cells}
    model = models.get(log.model) or _free(log.model.rstrip("/").rpartition("/")[2], models.values())
    taken = {cell.folder.partition("/")[2] for cell in sweep.cells if cell.model == log.model}
    return f"{model}/{_free(log.task, taken)}"


def _free(name: str, taken: Iterable[str]) -> str:
    return free_name(folder_name(name), (*taken, MANIFEST))


def _with(sweep: Sweep, cell: CellRecord) -> Sweep:
    """The sweep with this state of the cell, in its place or at the end."""
    same = (cell.model, cell.dataset)
    cells = tuple(cell if (old.model, old.dataset) == same else old for old in sweep.cells)
    if cell not in cells:
        cells += (cell,)
    return replace(sweep, cells=cells)
