"""Whether what a worker sent are whole runs: ``python -m choicewise.submissions.examination FOLDER``.

In a process of its own, with bounds to its memory and time: files that were made to harm whoever reads them end that
process and not the board, which meanwhile answers as before.
"""

import json
import resource
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from choicewise.errors import ChoicewiseError
from choicewise.records.format import MANIFEST
from choicewise.store.examine import examine
from choicewise.store.manifest import read_manifest
from choicewise.store.sweep import is_sweep, read_sweep
from choicewise.submissions.trouble import Damaged

MEMORY = 16_000_000_000
"""Bytes of addresses that an examination may use."""

SECONDS = 600
"""How long it may take."""


@dataclass(frozen=True, slots=True)
class Examination:
    """``runs``: the folders of the runs, relative; ``missing``: in words, what the sweep has not done."""

    runs: tuple[str, ...]
    missing: str


def examined(folder: Path) -> Examination:
    """What lies in ``folder``.  Damaged, with everything that is wrong, where it is not whole runs of one model."""
    command = [sys.executable, "-m", "choicewise.submissions.examination", str(folder.absolute())]
    try:
        ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise Damaged(f"the runs could not be examined within {SECONDS} seconds; send them again") from error
    if ended.returncode:
        told = ended.stderr.decode("utf-8", "replace").strip().splitlines()
        words = told[-1][:300] if told else f"it ended with {ended.returncode}"
        raise Damaged(f"the runs can't be examined ({words}); evaluate again into a new folder")
    content = json.loads(ended.stdout)
    if content["problems"]:
        raise Damaged("; ".join(content["problems"]))
    return Examination(tuple(content["runs"]), content["missing"])


def main() -> None:
    """Examine the folder that the arguments name."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    folder = Path(sys.argv[1])
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
    told = {"problems": problems[:20], "runs": [str(run.relative_to(folder)) for run in runs], "missing": missing}
    sys.stdout.write(json.dumps(told))


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
    main()
