"""Processes with limits: what exceeds one is ended, the next question is answered, and nothing outlives its asker."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from queue import Queue
from threading import Thread

import pytest

from choicewise.board.model import ListedRun, Place, State
from choicewise.board.runs import LimitExceeded, RunProcess, RunProcesses
from choicewise.util.isolate import Limits
from tests.paths import ROOT

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="processes are bounded on Linux alone"),
    pytest.mark.costly("servers and boards on loopback"),
]

GUARD = 120
"""Seconds after which a test that hangs fails."""


class Hostile(RunProcess):
    module = "tests.helpers.hostile_worker"
    limits = Limits(seconds=1, wait=GUARD, memory=1 << 30, answer=1 << 16)

    def do(self, name: str, wait: float | None = None) -> object:
        return self._result("look", Place("id", "label", Path(name), (0, 0, 0)), wait)


def ended(pid: int) -> bool:
    """Whether the process of that id, a child of another one, ends."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    ready, _, _ = select.select([handle], [], [], GUARD)
    os.close(handle)
    return bool(ready)


@pytest.mark.parametrize(
    ("name", "wait", "words"),
    [
        ("hangs", 0.0, "gives no answer within 0 seconds"),
        ("loops", None, "takes more than its time on the processor"),
        ("eats", None, "takes more than 1024 MB of memory"),
        ("dies", None, "ended its process"),
        ("floods", None, "gives more than 0 MB"),
    ],
)
def test_what_exceeds_a_limit_is_ended_and_the_next_is_answered(name: str, wait: float | None, words: str) -> None:
    process = Hostile()
    pid = process.do("pid")
    assert isinstance(pid, int)
    with pytest.raises(LimitExceeded, match=words):
        process.do(name, wait)
    with pytest.raises(ProcessLookupError):  # it is ended, and the system has forgotten it
        os.kill(pid, 0)
    assert process.do("pid") != pid
    process.close()


def test_what_is_printed_is_no_answer() -> None:
    process = Hostile()
    assert "is not a run folder" in str(process.do("prints"))
    process.close()


def test_closing_ends_an_answer_under_way() -> None:
    process, told = Hostile(), Queue[Exception]()
    pid = process.do("pid")

    def hang() -> None:
        try:
            process.do("hangs")
        except LimitExceeded as error:
            told.put(error)

    assert isinstance(pid, int)
    Thread(target=hang, daemon=True).start()
    process.close()
    assert ended(pid)
    assert "was ended with its process" in str(told.get(timeout=GUARD))
    with pytest.raises(LimitExceeded):
        process.do("pid")


@pytest.mark.parametrize("busy", [False, True])
def test_a_process_ends_with_the_one_that_asks(busy: bool, tmp_path: Path) -> None:
    """Even where that one is killed, and can end nothing itself; in the middle of an answer as well."""
    os.mkfifo(tmp_path / "hangs")
    code = f"from {__name__} import Hostile; process = Hostile(); print(process.do('pid'), flush=True)"
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


def test_a_run_that_exceeded_a_limit_is_not_tried_again_at_once() -> None:
    processes, tried = RunProcesses(1), list[str]()
    run = ListedRun("one", "one", Path("one"), State.READ, "version")

    def fail(process: RunProcess) -> None:
        tried.append("one")
        raise LimitExceeded("takes too long")

    for _ in range(3):
        with pytest.raises(Exception, match="takes too long"):
            processes.use(run, fail)
    assert tried == ["one"]
    assert processes.use(replace(run, version="another"), lambda process: 1) == 1
    assert processes.use(replace(run, id="two"), lambda process: 2) == 2
