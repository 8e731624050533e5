"""File names, rows per run."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

from choicewise.interchange.export import Export
from choicewise.page.study import Study, make_study
from choicewise.records import MANIFEST
from choicewise.results.outcomes import OutcomeKeeper, Summary
from choicewise.results.rows import Row, run_id
from choicewise.results.run import Run
from choicewise.results.summary import summarize
from choicewise.results.sweep import averages

LONGEST = 120
"""Bytes of a name, so that what is put around it fits into the 255 that file systems allow."""

_RESERVED = {
    "con",
    "prn",
    "aux",
    "nul",
    "data",
    *(f"{port}{number}" for port in ("com", "lpt") for number in range(10)),
}
"""Names that a folder can't have everywhere, or that a data store keeps for itself."""


def file_name(text: str) -> str:
    """``text`` as one part of a path that every system takes: letters, digits, ``_``, ``.``, ``@`` and ``-``.

    Anything else becomes ``-``.  A longer name ends in a digest of the text.
    """
    name = re.sub(r"[^\w.@-]+", "-", text).strip(".-") or "unnamed"
    if name.partition(".")[0].lower() in _RESERVED:
        name = f"{name}-"
    encoded = name.encode()
    if len(encoded) <= LONGEST:
        return name
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{encoded[: LONGEST - 9].decode(errors='ignore')}-{digest}"


def free_name(name: str, taken: Collection[str], identity: str) -> str:
    """``name`` where it is not ``taken``, else with what tells the two apart after it, and a number where that is, too.

    Names that differ in the case of their letters alone are the same file on some systems.
    """
    used = {each.casefold() for each in taken}
    candidates = [name, f"{name}-{identity}", *(f"{name}-{identity}-{number}" for number in range(2, len(used) + 3))]
    return next(each for each in candidates if each.casefold() not in used)


MOST = 8_000_000
"""Characters that wait in memory."""


class LineFiles:
    """Lines that wait in memory until they are many, and are then added to their files, one file open at a time."""

    def __init__(self) -> None:
        self._waiting: dict[Path, list[str]] = {}
        self._length = 0

    def add(self, file: Path, line: str) -> None:
        """Add a ``line``, without its end, to the ``file``."""
        self._waiting.setdefault(file, []).append(f"{line}\n")
        self._length += len(line)
        if self._length > MOST:
            self._write()

    def __enter__(self) -> LineFiles:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._write()

    def _write(self) -> None:
        for file, lines in self._waiting.items():
            with file.open("a", encoding="utf-8", newline="\n") as stream:
                stream.writelines(lines)
        self._waiting.clear()
        self._length = 0


def model_names(runs: Sequence[Run]) -> list[str]:
    """The name of each run's model; with #R where another run on a dataset of that name has the same, or a number."""
    datasets = [run.manifest.dataset.name for run in runs]
    names = [run.manifest.model.name for run in runs]
    ids = [run_id(run.manifest) for run in runs]
    alike = Counter(zip(names, datasets, strict=True))
    counts = Counter(zip(names, datasets, ids, strict=True))
    chosen = []
    for place, key in enumerate(zip(names, datasets, ids, strict=True)):
        name = key[0] if alike[key[:2]] == 1 else f"{key[0]} {key[2]}"
        chosen.append(f"{name} ({place + 1})" if counts[key] > 1 else name)
    return chosen


def not_whole(runs: Sequence[Run]) -> list[str]:
    """A line per run whose items are not all there."""
    lines = [f"{run.folder} is not complete: only items that were asked are there" for run in runs]
    return [line for line, run in zip(lines, runs, strict=True) if not run.manifest.complete]


def by_model(runs: Iterable[Run]) -> list[list[Run]]:
    """The runs of every model, in the order in which the models come; imported logs know a model by its name alone."""
    models: dict[tuple[str, str, str], list[Run]] = {}
    for run in runs:
        model = run.manifest.model
        digest = model.digest if run.manifest.imported is None else ""
        models.setdefault((model.name, digest, model.dtype), []).append(run)
    return list(models.values())


def report_rows(run: Run) -> dict[str, Row]:
    """One row of the run's report per protocol, by its name: over all items where it has several groups."""
    rows = run.rows()
    several = {name for name in run.protocols if sum(row.protocol == name for row in rows) != 1}
    micro = run.rows("micro") if several else []
    kept = [row for row in rows if row.protocol not in several] + [row for row in micro if row.protocol in several]
    by_name = {row.protocol: row for row in kept}
    return {name: by_name[name] for name in run.protocols if name in by_name}


def last_written(runs: Iterable[Run]) -> datetime:
    """When the latest of the runs was last written to, in UTC."""
    return datetime.fromtimestamp(max((run.folder / MANIFEST).stat().st_mtime for run in runs), UTC)


def shown_runs(export: Export) -> Study:
    """The study of the export's runs, with the averages of suites of the folders that it names."""
    keeper = OutcomeKeeper()
    study = make_study([_summary(run, keeper) for run in export.runs])
    whole = {run.folder: run for run in export.runs if _is_whole(run)}
    known = {
        folder: {path: summarize(path) for path in (folder / cell.folder for cell in sweep.cells) if path in whole}
        for folder, sweep in export.sweeps
    }
    shown = [each for folder, sweep in export.sweeps for each in averages(folder, sweep, known[folder])]
    return replace(study, averages=tuple(each for each in shown if each.counted))


def _is_whole(run: Run) -> bool:
    """Whether the run has all of its own protocols and no other."""
    return run.protocols.keys() == run.manifest.protocols.keys()


def _summary(run: Run, keeper: OutcomeKeeper) -> Summary:
    """The kept summary where the run has all of its own protocols, else a new one; the run is released."""
    if _is_whole(run):
        return summarize(run.folder)
    made = Summary(run.folder, run.manifest, tuple(run.rows()), keeper.keep(run))
    run.release()
    return made
