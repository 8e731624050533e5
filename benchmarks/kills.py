"""Kill -9 at every write boundary and at random times: what a run folder and an export hold afterwards.

python benchmarks/kills.py [--runs 200] [--every 1] [--seed 0] [--faults kill,tear,full]

A small run is made in a process that ends itself with SIGKILL before its first step on the disk (open for writing,
write, fsync, rename, mkdir, remove), another before its second one, and so on through all of them (``kill``);
or after half of what a write wants to write (``tear``); or every step from the Nth on finds the disk full (``full``).
Then the same is done once more in a process that nobody disturbs. What there is then must be what an undisturbed run
gives: every observation once, the same rows of the report, and a folder in which ``choicewise doctor`` sees nothing.
The rest of ``--runs`` are killed at random times, some of them several times. ``--every N`` takes every Nth boundary.
Prints a line per scenario, and ends with 1 where anything was lost or doubled.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

import pyarrow.parquet as pq
from tests.helpers.hash_models import Failing, third
from tests.helpers.mmlu_data import write_mmlu

from choicewise import evaluate, open_run
from choicewise.errors import StoreError
from choicewise.extensions.doctor import examine as doctor
from choicewise.extensions.interop.export import fill_folder
from choicewise.models.fake import HashModel
from choicewise.protocols.catalogue import resolve
from choicewise.records import Manifest
from choicewise.requests import blocks
from choicewise.results import summary as summary_file
from choicewise.results.summary import keep_summary
from choicewise.running import evaluate as ask_again
from choicewise.store import folder as block_writer
from choicewise.store import tables
from choicewise.store.folder import read_manifest
from choicewise.store.tables import read_blocks

PROTOCOLS = ["mmlu/original", "mmlu/cloze:pmi-answer"]


@dataclass
class Scenario:
    """``prepare`` makes the state in a folder, ``act`` is what is disturbed, ``result`` what must come of it."""

    name: str
    prepare: Callable[[Path], None]
    act: Callable[[Path], None]
    result: Callable[[Path], Any]


# What happens in the disturbed process


class Disturbance:
    """Counts the steps on files below ``folder``; at the step ``at`` it does what ``fault`` says."""

    def __init__(self, folder: Path, at: int, fault: str) -> None:
        self.folder, self.at, self.fault, self.steps = str(folder), at, fault, 0

    def install(self) -> None:
        sys.addaudithook(self._hear)
        sys.unraisablehook = lambda unraisable: (
            None
        )  # a writer closes its file again when it is collected
        self._wrap(os, "fsync")
        for writer in (tables, summary_file):
            self._wrap(writer, "write_parquet", writes=lambda where, *_, **__: where)
        self._wrap(pq.ParquetWriter, "close")
        self._wrap(Path, "write_text", writes=lambda path, *_, **__: path)

    def _wrap(self, owner: Any, name: str, writes: Callable[..., Any] | None = None) -> None:
        original = getattr(owner, name)

        def disturbed(*arguments: Any, **more: Any) -> Any:
            where = None if writes is None else writes(*arguments, **more)
            if where is not None and not str(where).startswith(self.folder):
                return original(*arguments, **more)
            if self._step() and self.fault == "tear" and where is not None:
                original(*arguments, **more)
                os.truncate(where, Path(where).stat().st_size // 2)
                os.kill(os.getpid(), signal.SIGKILL)
            self._act(always=where is None)
            return original(*arguments, **more)

        setattr(owner, name, disturbed)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event not in ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate"):
            return
        if event == "open" and not arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            return
        path = arguments[0]
        inside = isinstance(path, str | bytes | os.PathLike) and os.fsdecode(path).startswith(
            self.folder
        )
        if inside or (
            event in ("os.remove", "os.rmdir") and arguments[-1] not in (-1, None)
        ):  # of shutil.rmtree
            self._step()
            self._act(always=event not in ("os.remove", "os.rmdir"))

    def _step(self) -> bool:
        self.steps += 1
        return self.steps == self.at

    def _act(self, always: bool) -> None:
        if self.fault == "full" and self.steps >= self.at and always:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if self.fault != "full" and self.steps == self.at:
            os.kill(os.getpid(), signal.SIGKILL)


def in_child(act: Callable[[], Any], kill_after: float | None = None) -> tuple[str, Any]:
    """(how it ended, what it returned) of ``act`` in a process of its own, killed after so many seconds."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        try:
            answer: Any = {"result": act()}
        except StoreError as error:
            answer = {"refused": str(error)}
        except BaseException:
            answer = {"failed": traceback.format_exc()}
        with os.fdopen(write, "w") as pipe:
            pipe.write(json.dumps(answer))
        os._exit(0)
    os.close(write)
    if kill_after is not None:
        time.sleep(kill_after)
        os.kill(child, signal.SIGKILL)
    with os.fdopen(read) as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return "killed", None
    ((how, what),) = json.loads(said).items()
    return how, what


# What is done


def run(folder: Path) -> None:
    """A run whose blocks are written in parts, with its summary."""
    clock = count(step=5)  # a minute is over after a dozen observations
    block_writer.perf_counter = lambda: float(next(clock))
    keep_summary(
        evaluate(model=HashModel(), data=folder / "data", protocols=PROTOCOLS, out=folder / "run")
    )


def failing_run(folder: Path) -> None:
    data(folder)
    evaluate(model=Failing(third), data=folder / "data", protocols=PROTOCOLS, out=folder / "run")


def asked_again(folder: Path) -> None:
    """The same line, and the server answers now: its answers are written one by one."""
    clock = count(step=20)
    ask_again.perf_counter = lambda: float(next(clock))
    keep_summary(
        evaluate(model=Failing(), data=folder / "data", protocols=PROTOCOLS, out=folder / "run")
    )


def damaged_run(folder: Path) -> None:
    """A finished run with a torn block and a leftover."""
    data(folder)
    evaluate(model="fake:hash", data=folder / "data", protocols=PROTOCOLS, out=folder / "run")
    out = folder / "run"
    manifest = read_manifest(out)
    torn = out / "blocks" / manifest.blocks[0].name / "spans.parquet"
    torn.write_bytes(torn.read_bytes()[:-7])
    (out / "blocks" / "00077.partial").mkdir()


def dropped(folder: Path) -> None:
    """``doctor --drop``, then the line that it prints."""
    for examined in doctor.drop_damaged_blocks(folder / "run", lambda run, manifest: "line"):
        assert not examined.harmed, examined.harmed
    keep_summary(
        evaluate(model="fake:hash", data=folder / "data", protocols=PROTOCOLS, out=folder / "run")
    )


def exported(folder: Path) -> None:
    _export(folder, "old")


def exported_again(folder: Path) -> None:
    _export(folder, "new")


def _export(folder: Path, text: str) -> None:
    def write(place: Path) -> list[str]:
        for name in ("a/one.json", "b/two.json"):
            (place / name).parent.mkdir()
            (place / name).write_text(text)
        return []

    fill_folder(folder / "export", "test", ["content"], write)


def data(folder: Path) -> None:
    write_mmlu(folder / "data", ("tides",), questions=3)


# What must be there afterwards


def content(folder: Path) -> Any:
    """Every observation, the rows of the report, and what ``doctor`` sees."""
    out = folder / "run"
    opened = open_run(out)
    observations = read_blocks(out, opened.manifest.blocks, "observations").to_pylist()
    keys = [row["key"] for row in observations]
    (examined,) = doctor.examine_runs(out)
    names = {path.name for path in out.iterdir()}
    return {
        "observations": sorted(map(json.dumps, observations)),
        "doubled": len(keys) - len(set(keys)),
        "report": opened.report().to_pylist(),
        "complete": opened.manifest.complete,
        "faults": [fault.problem for fault in examined.faults],
        "files": sorted(names),
        "blocks": len(list((out / "blocks").iterdir())) - len(opened.manifest.blocks),
    }


def export_content(folder: Path) -> Any:
    files = {
        path.name: path.read_text()
        for path in (folder / "export").rglob("*")
        if path.suffix == ".json"
    }
    return {"files": files, "beside": sorted(path.name for path in folder.iterdir())}


def whole_export(folder: Path) -> bool:
    """Whether the export is there in full, old or new, without anybody having repeated anything."""
    files = [path.read_text() for path in (folder / "export").rglob("*.json")]
    return files in (["old"] * 2, ["new"] * 2)


SCENARIOS = [
    Scenario("a run", data, run, content),
    Scenario("asking unanswered questions again", failing_run, asked_again, content),
    Scenario(
        "damaged blocks dropped by doctor and the line it prints", damaged_run, dropped, content
    ),
    Scenario("an export written again", exported, exported_again, export_content),
]


class Trial:
    """One scenario in a folder of its own, with what an undisturbed run gives."""

    def __init__(self, scenario: Scenario, home: Path) -> None:
        self.scenario, self.home = scenario, home / scenario.name.replace(" ", "-").replace("'", "")
        self.start = self.home / "start"
        self.start.mkdir(parents=True)
        must(in_child(lambda: scenario.prepare(self.start)))
        began = time.perf_counter()
        self.expected = self.finish(self.folder())
        self.seconds = time.perf_counter() - began

    def folder(self) -> Path:
        """A new copy of the prepared state."""
        folder = self.home / "tried"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.start, folder)
        return folder

    def finish(self, folder: Path) -> Any:
        """What there is when it is done once more, undisturbed."""

        def act() -> Any:
            self.scenario.act(folder)
            return self.scenario.result(folder)

        return must(in_child(act))

    def disturbed(self, folder: Path, at: int, fault: str) -> tuple[str, Any]:
        def act() -> int:
            disturbance = Disturbance(folder, at, fault)
            disturbance.install()
            try:
                self.scenario.act(folder)
            except StoreError:
                if fault != "full" or disturbance.steps < at:
                    raise
                return -1
            return disturbance.steps

        return in_child(act)

    def compare(self, folder: Path, what: str) -> list[str]:
        """What differs from the undisturbed result, in words."""
        result = self.finish(folder)
        return [
            f"{what}: {key} differ" for key in self.expected if result[key] != self.expected[key]
        ]


def must(ended: tuple[str, Any]) -> Any:
    how, what = ended
    if how != "result":
        raise SystemExit(f"{how}: {what}")
    return what


def boundaries(trial: Trial, every: int, fault: str) -> tuple[int, list[str]]:
    """How many boundaries were tried, and what was wrong afterwards."""
    wrong: list[str] = []
    tried = 0
    for at in count(1, every):
        folder = trial.folder()
        how, what = trial.disturbed(folder, at, fault)
        if how == "result" and what >= 0:
            return tried, wrong  # it ended before that step
        if how in ("failed", "refused"):
            wrong.append(f"{fault} at step {at}: {how}: {what}")
        tried += 1
        if trial.scenario.name == "an export written again" and not whole_export(folder):
            wrong.append(f"{fault} at step {at}: the export is neither the old nor the new one")
        wrong += trial.compare(folder, f"{fault} at step {at}")
    return tried, wrong


def random_times(trial: Trial, runs: int, chance: random.Random) -> list[str]:
    """What was wrong after kills at random times, up to three of one run."""
    wrong: list[str] = []
    for number in range(runs):
        folder = trial.folder()
        for _ in range(chance.randint(1, 3)):
            in_child(
                lambda folder=folder: trial.scenario.act(folder), chance.uniform(0, trial.seconds)
            )
        wrong += trial.compare(folder, f"random time, run {number}")
    return wrong


def warm() -> None:
    """Read once what every process would read again; no thread is started, since the processes are forks of this."""
    resolve(*PROTOCOLS)
    summary_file._code()
    summary_file._row_reader()
    block_writer._reader(Manifest)


def main() -> None:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--runs", type=int, default=200)
    arguments.add_argument("--every", type=int, default=1)
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--faults", default="kill,tear,full")
    given = arguments.parse_args()
    blocks.BLOCK_TOKENS, blocks._cost = 2, lambda *_: (1.0, 0.0, 0, 0, 1, 0)  # small blocks
    warm()
    began, total, wrong = time.perf_counter(), 0, list[str]()
    with tempfile.TemporaryDirectory() as home:
        trials = [Trial(scenario, Path(home)) for scenario in SCENARIOS]
        for trial in trials:
            counts = {}
            for fault in given.faults.split(","):
                counts[fault], faults = boundaries(trial, given.every, fault)
                wrong += [f"{trial.scenario.name}: {each}" for each in faults]
            total += sum(counts.values())
            print(f"{trial.scenario.name}: {counts}", flush=True)
        chance = random.Random(given.seed)
        remaining = max(given.runs - total, given.runs // 4)
        for trial in trials[:3]:
            own = remaining // 3
            wrong += [f"{trial.scenario.name}: {each}" for each in random_times(trial, own, chance)]
            total += own
            print(f"{trial.scenario.name}: {own} at random times", flush=True)
    print(*wrong, sep="\n")
    seconds = time.perf_counter() - began
    print(
        f"{total} runs disturbed, {len(wrong)} differences from the undisturbed ones, {seconds:.0f} s"
    )
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
