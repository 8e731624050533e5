"""Processes with limits: what exceeds one is ended, the next question is answered, and nothing outlives its asker."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from queue import Queue
from threading import Thread

import pytest

from choicewise.extensions.board.library import read_snapshot
from choicewise.extensions.board.model import ListedRun, Place, State
from choicewise.extensions.board.runs import LimitExceeded, RunProcess, RunProcesses
from choicewise.util.isolate import Limits
from tests.helpers.board import write_run
from tests.helpers.processes import ended
from tests.paths import ROOT

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="processes are bounded on Linux alone"
)

GUARD = 120  # seconds after which a test that hangs fails


class Hostile(RunProcess):
    module = "tests.helpers.hostile_worker"
    limits = Limits(seconds=0, wait=GUARD, memory=1 << 30, answer=1 << 16)

    def do(self, name: str, wait: float | None = None) -> object:
        return self._result("look", Place("id", "label", Path(name), (0, 0, 0)), wait)

    def pid(self) -> int:
        answer = self.do("pid")
        assert isinstance(answer, int)
        return answer


@pytest.fixture
def process() -> Iterator[Hostile]:
    started = Hostile()
    yield started
    started.close()


@pytest.mark.costly("each limit that is exceeded costs a process, and one of them a second")
def test_what_exceeds_a_limit_is_ended_and_the_next_is_answered(process: Hostile) -> None:
    pid = process.pid()
    for name, wait, words in (
        ("hangs", 0.0, "gives no answer within 0 seconds"),
        ("loops", None, "too much processor time"),
        ("eats", None, "takes more than 1024 MB of memory"),
        ("dies", None, "ended unexpectedly"),
        ("floods", None, "returns more than 0 MB"),
    ):
        with pytest.raises(LimitExceeded, match=words):
            process.do(name, wait)
        with pytest.raises(ProcessLookupError):  # it is ended, and the system has forgotten it
            os.kill(pid, 0)
        before, pid = pid, process.pid()
        assert pid != before
    assert process.do("prints") == "an answer", "what is printed is none"


@pytest.mark.costly("processes that read runs, which those that harm them end")
def test_a_run_that_harms_whoever_reads_it_costs_itself_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harmful = {
        "hangs-at-look": "gives no answer within 0 seconds",
        "hangs-at-read": "gives no answer within 0 seconds",
        "eats": "takes more than 1024 MB of memory",
        "dies": "ended unexpectedly",
    }
    write_run(tmp_path / "b" / "hash", protocols=["mmlu/original"])
    for name in harmful:
        shutil.copytree(tmp_path / "b" / "hash", tmp_path / "a" / name)
    ask = RunProcess._ask

    def asked(
        self: RunProcess, question: dict[str, str], wait: float | None = None
    ) -> dict[str, object]:
        """As ever, but that what is known to hang is not waited for."""
        hangs = Path(question["folder"]).name == f"hangs-at-{question['task']}"
        return ask(self, question, 0.0 if hangs else None)

    monkeypatch.setattr(RunProcess, "_ask", asked)
    monkeypatch.setattr(RunProcess, "module", "tests.helpers.hostile_worker")
    monkeypatch.setattr(RunProcess, "limits", replace(RunProcess.limits, memory=1 << 30))
    told = {run.folder.name: run for run in read_snapshot([tmp_path]).board.runs}
    assert told["hash"].state is State.READ
    assert told["hash"].rows
    for name, words in harmful.items():
        assert (told[name].state, words in told[name].reason) == (State.UNREADABLE, True), told[
            name
        ].reason
        assert "choicewise doctor" in told[name].reason


def test_closing_ends_an_answer_under_way(process: Hostile) -> None:
    told, pid = Queue[Exception](), process.pid()

    def hang() -> None:
        try:
            process.do("hangs")
        except LimitExceeded as error:
            told.put(error)

    Thread(target=hang, daemon=True).start()
    process.close()
    assert ended(pid)
    assert "stopped with its process" in str(told.get(timeout=GUARD))
    with pytest.raises(LimitExceeded):
        process.do("pid")


@pytest.mark.parametrize("busy", [False, True])
@pytest.mark.costly("a process that asks another one")
def test_a_process_ends_with_the_one_that_asks(busy: bool, tmp_path: Path) -> None:
    """Even where that one is killed, and can end nothing itself; in the middle of an answer as well."""
    os.mkfifo(tmp_path / "hangs")
    code = f"from {__name__} import Hostile; process = Hostile(); print(process.pid(), flush=True)"
    further = f"process.do({str(tmp_path / 'hangs')!r})" if busy else "input()"
    command = [sys.executable, "-c", f"{code}; {further}"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdin=-1, stdout=-1, env=environment, text=True) as asker:
        assert asker.stdout is not None
        pid = int(asker.stdout.readline())
        if busy:
            (tmp_path / "hangs").open("rb").close()
        os.kill(pid, 0)
        asker.send_signal(signal.SIGKILL)
    assert ended(pid)


@pytest.mark.parametrize("closed", [True, False])
def test_what_a_process_started_ends_with_it(process: Hostile, closed: bool) -> None:
    """As an engine's own processes do: where it is closed, and where it exceeds a limit."""
    pid = process.do("starts")
    assert isinstance(pid, int)
    if closed:
        process.close()
    else:
        with pytest.raises(LimitExceeded, match="gives no answer"):
            process.do("hangs", 0.0)
    assert ended(pid)


def test_a_run_that_exceeded_a_limit_is_not_tried_again_at_once() -> None:
    processes, tried = RunProcesses(1), list[str]()
    run = ListedRun(id="one", label="one", folder=Path("one"), state=State.READ, version="version")

    def fail(process: RunProcess) -> None:
        tried.append("one")
        raise LimitExceeded("takes too long")

    for _ in range(3):
        with pytest.raises(Exception, match="takes too long"):
            processes.use(run, fail)
    assert (tried, processes.use(replace(run, version="another"), lambda process: 1)) == (
        ["one"],
        1,
    )
    assert processes.use(replace(run, id="two"), lambda process: 2) == 2
