"""Runs written in the format of another tool."""

import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from urllib.parse import urlsplit

from choicewise.errors import UsageError
from choicewise.interchange.place import Filled
from choicewise.interchange.write import Export, writer
from choicewise.results.run import Run, open_run
from choicewise.results.sweep import run_folders, sweeps


def export(
    runs: str | Path | Run | Iterable[str | Path | Run],
    format: str,
    out: str | Path,
    *,
    protocols: Sequence[str] | None = None,
    incomplete: bool = False,
    url: str = "",
    organization: str = "",
) -> Filled:
    """Write the numbers of ``runs`` (run folders, folders of several, or runs that are open) to ``out``.

    ``format``: a name in :data:`choicewise.interchange.write.WRITERS`.  ``protocols``: only these, or further ones that
    ask nothing new.  ``url``: where the evaluation can be looked at; ``organization``: who evaluated.  What is at
    ``out`` is replaced only where it is an earlier export of the same.

    A folder that is named twice is exported once.

    Raises UsageError for anything else at ``out``, for a place within a run folder, and for a run that is not complete,
    or has damaged blocks, unless ``incomplete`` says that it is to be exported as it is.
    """
    known = writer(format)
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
    if not incomplete:
        _refuse_incomplete(chosen)
    content = Export(chosen, tuple(whole), url, organization)
    return known.place(Path(out), format, [*map(identity, chosen)], lambda path: known.write(content, path))


def identity(run: Run) -> str:
    """The run in words that agree only for the same model, data and selection."""
    manifest = run.manifest
    model = {name: value for name, value in asdict(manifest.model).items() if name not in ("name", "source")}
    spelled = repr((sorted(model.items()), manifest.dataset.digest, manifest.selection))
    digest = hashlib.sha256(spelled.encode()).hexdigest()[:12]
    return f"{manifest.model.name} on {manifest.dataset.name} ({digest})"


def _refuse_incomplete(runs: Sequence[Run]) -> None:
    lines = [f"{run.folder} is not complete" for run in runs if not run.manifest.complete]
    lines += [f"{run.folder} has damaged blocks" for run in runs if run.evidence.damages]
    if lines:
        advice = "finish it by repeating the line that began it, or ask for incomplete runs as they are"
        raise UsageError(f"{lines[0] if len(lines) == 1 else 'runs are not whole'}; {advice}", lines[1:] and lines)
