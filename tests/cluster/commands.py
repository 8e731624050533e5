"""Choicewise as a command in a process of its own, with shard processes that a test can hold and watch."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from choicewise import open_run
from choicewise.extensions.doctor.examine import examine
from choicewise.store.tables import read_blocks
from tests.helpers.processes import end_session, eventually, stat
from tests.helpers.ray_cluster import ROOT, Cluster, Node

SITE = Path(__file__).parent / "site"
PYTHON_PATH = os.pathsep.join(map(str, (SITE, ROOT / "src", ROOT)))

FAKE = ("run", "--model", "fake:hash", "--data", "bundled:merrowick", "--limit", "4")
FAKE += ("--protocol", "mmlu/original", "--protocol", "mmlu/cloze:pmi-answer")
"""A line whose questions take no time; seven shards."""


def alive(pid: int) -> bool:
    """Whether there is such a process, and it has not ended."""
    try:
        return stat(pid)[0] != "Z"
    except OSError:
        return False


def living(cluster: Cluster) -> list[Node]:
    return [node for node in cluster.nodes if node.process.poll() is None]


def table(folder: Path) -> pa.Table:
    """The observations as they lie on the disk: none is there twice, and the folder is whole."""
    run = open_run(folder)
    assert run.manifest.complete
    stored = read_blocks(run.folder, run.manifest.blocks, "observations").sort_by("key")
    assert (len(set(stored["key"].to_pylist())), examine(run.folder).faults) == (
        stored.num_rows,
        [],
    )
    return stored


@dataclass(frozen=True)
class Reins:
    """The folder that the processes of a test share (``site/sitecustomize.py``)."""

    folder: Path

    def hold(self) -> None:
        """Have shard processes wait before they answer."""
        (self.folder / "hold").touch()

    def release(self) -> None:
        """Have them go on."""
        (self.folder / "hold").unlink(missing_ok=True)

    def reset(self) -> None:
        """Nobody waits, and nothing was answered."""
        for file in self.folder.iterdir():
            file.unlink()

    @property
    def answers(self) -> list[tuple[int, str]]:
        """(process, first question of a shard) of everything that processes began to answer."""
        lines = (
            (self.folder / "answers").read_text().splitlines()
            if (self.folder / "answers").exists()
            else []
        )
        return [(int(pid), key) for pid, key in map(str.split, lines)]

    @property
    def answering(self) -> set[int]:
        """The processes that began to answer something."""
        return {pid for pid, _ in self.answers}


@dataclass
class Command:
    """A command under way, what it prints going to files."""

    process: subprocess.Popen[bytes]
    files: Path

    @property
    def out(self) -> str:
        """Its standard output so far."""
        return self.files.with_suffix(".out").read_text()

    @property
    def err(self) -> str:
        """Its standard error so far."""
        return self.files.with_suffix(".err").read_text()

    def code(self, patience: float = 240) -> int:
        """Its exit code, once it has ended."""
        return self.process.wait(patience)

    def ends_well(self) -> None:
        """It ends, and nothing was wrong."""
        assert self.code() == 0, self.err

    def interrupt(self) -> None:
        """Ctrl-C in its terminal."""
        os.kill(self.process.pid, signal.SIGINT)


def held(reins: Reins, command: Command, processes: int) -> list[int]:
    """So many shard processes, once each of them waits with something to answer."""
    eventually(lambda: len(reins.answering) >= processes or command.process.poll() is not None)
    assert command.process.poll() is None, command.err
    return sorted(reins.answering)


@contextmanager
def started(
    files: Path, *words: str, cluster: Cluster | None = None, **environment: str
) -> Iterator[Command]:
    """``choicewise WORDS``, or Python where the first word is one of its options; killed at the end. Its output goes to
    ``files`` with ``.out`` and ``.err``; ``cluster`` is the one at its RAY_ADDRESS; ``environment`` is what it has
    besides ours and the cluster's."""
    own = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
    own |= {} if cluster is None else cluster.environment
    command = [sys.executable, *(() if words[0].startswith("-") else ("-m", "choicewise")), *words]
    environment = {**own, "PYTHONPATH": PYTHON_PATH, **environment}
    with files.with_suffix(".out").open("wb") as out, files.with_suffix(".err").open("wb") as err:
        streams = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": err}
        process = subprocess.Popen(command, **streams, env=environment, start_new_session=True)  # type: ignore[call-overload]
    try:
        yield Command(process, files)
    finally:
        end_session(process.pid)
        process.wait()
