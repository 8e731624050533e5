"""Whether what a worker sent are whole runs, examined in a process with limits.

Files that were made to harm whoever reads them end that process and not the board, which meanwhile answers as before.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from choicewise.board.submission import Damaged
from choicewise.errors import ChoicewiseError
from choicewise.records import MANIFEST
from choicewise.store.doctor import examine
from choicewise.store.manifest import is_sweep, read_manifest, read_sweep
from choicewise.util.isolate import BoundedProcess
from choicewise.util.isolated import Limits, Record, serve


@dataclass(frozen=True, slots=True)
class Examination:
    """``runs``: the folders of the runs, relative; ``missing``: in words, what the sweep has not done."""

    runs: tuple[str, ...]
    missing: str


class Examiner(BoundedProcess):
    """The process that examines."""

    module = "choicewise.board.examination"
    limits = Limits(seconds=600, wait=600.0, memory=16 << 30, answer=16 << 20)
    called = "the examination of the runs"
    remedy = "evaluate again into a new folder"
    error = Damaged

    def examine(self, folder: Path) -> Record:
        """What :func:`answer` says of the folder."""
        return self._ask({"folder": str(folder.absolute())})


def examined(folder: Path) -> Examination:
    """What lies in ``folder``.  Damaged, with everything that is wrong, where it is not whole runs of one model."""
    examiner = Examiner()
    try:
        told = examiner.examine(folder)
    finally:
        examiner.close()
    if told["problems"]:
        raise Damaged("; ".join(told["problems"]))
    return Examination(tuple(told["runs"]), told["missing"])


def answer(question: Record) -> Record:
    """The ``runs`` in a folder, their ``problems``, and what is ``missing``."""
    folder = Path(question["folder"])
    runs = sorted(path.parent for path in folder.glob(f"*/*/{MANIFEST}"))
    problems = [] if runs else ["no run is among what was sent"]
    try:
        digests = {_digest(run, folder, problems) for run in runs}
        if len(digests) > 1 and not problems:
            problems.append("the runs are of several models, by their digests; evaluate again into a new folder")
        missing = _missing(folder)
    except ChoicewiseError as error:
        problems.append(_without(error.message, folder))
        missing = ""
    except MemoryError:
        raise
    except Exception as error:
        return {"failed": f"fails ({type(error).__name__}: {str(error)[:200]})"}
    return {"problems": problems[:20], "runs": [str(run.relative_to(folder)) for run in runs], "missing": missing}


def _digest(run: Path, folder: Path, problems: list[str]) -> str:
    """The digest of the run's model; what is wrong with the run is added to ``problems``."""
    name = str(run.relative_to(folder))
    try:
        manifest = read_manifest(run)
        result = examine(run)
    except ChoicewiseError as error:
        problems.append(f"{name}: {_without(error.message, folder)}")
        return ""
    problems += [f"{name}/{fault.path} {_without(fault.problem, folder)}" for fault in result.harmed]
    if not manifest.complete:
        problems.append(f"{name} is not complete; the same line goes on with it")
    return manifest.model.digest


def _missing(folder: Path) -> str:
    """What the sweep says that it has not done."""
    if not is_sweep(folder):
        return ""
    cells = read_sweep(folder).missing
    return "; ".join(f"{cell.dataset} is missing: {cell.failure or 'not begun'}" for cell in cells)


def _without(words: str, folder: Path) -> str:
    return words.replace(f"{folder}/", "").replace(str(folder), ".")


if __name__ == "__main__":
    serve(lambda: answer)
