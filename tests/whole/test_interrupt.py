"""Ctrl-C, kill -9, a full disk: what was observed is kept, the same line goes on, and no process of a server stays."""

import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from choicewise.store.folder import read_manifest, read_sweep
from choicewise.store.tables import read_blocks
from tests.helpers.board import served_until
from tests.helpers.commands import choicewise
from tests.helpers.mmlu_data import write_mmlu
from tests.helpers.study import Study
from tests.paths import ROOT

AFTER = 30
HEARD = """
import os, signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
"""
PRESSED = f"""{HEARD}
from choicewise.models.fake import HashModel
asked, answers = 0, HashModel.answer
def interrupted(self, questions):
    global asked
    for answer in answers(self, questions):
        if asked == {AFTER}:
            press()
        asked += 1
        yield answer
HashModel.answer = interrupted
"""
PRESS = """
def press():
    os.kill(os.getpid(), signal.SIGINT)
"""
IN_A_FINALISER = """
class Left:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
def press():
    Left()
"""
UNDER_A_LIBRARY = """
def press():
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        pass
"""
IN_A_CLASS = """
class Pressed:
    def __set_name__(self, owner, name):
        os.kill(os.getpid(), signal.SIGINT)
def press():
    type("Interrupted", (), {"name": Pressed()})  # Python makes a RuntimeError of it
"""
PRESSES = pytest.mark.parametrize("press", [PRESS, IN_A_FINALISER, UNDER_A_LIBRARY, IN_A_CLASS])
IMPORTING = f"""{HEARD}{IN_A_CLASS}
import sys
class Importing:
    def find_spec(self, name, *_):
        if name == "choicewise.cli.commands":
            press()
sys.meta_path.insert(0, Importing())
"""
WATCHED = f"""{HEARD}
import sys, time
from choicewise.cli.terminal import watch
watch()
"""
COMMAND = "from choicewise.cli import main; main()"
READY = f"""{HEARD}
import choicewise.cli as cli
watch = cli.watch
def ready():
    watch()
    os.write(2, b"ready\\n")
cli.watch = ready
cli.main()
"""
ADVICE = "interrupted; a run that was under way keeps what it observed. Run the same command again to resume"


@pytest.fixture
def line(tmp_path: Path) -> list[str]:
    return ["run", "--model", "fake:hash", "--data", str(write_mmlu(tmp_path / "data")), "--protocol", "mmlu/cloze"]


def python(code: str, *words: str) -> tuple[int, str, list[str]]:
    """Its exit code, what it prints, and the lines of what it says beside that."""
    command = [sys.executable, "-c", code, *words]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return ended.returncode, ended.stdout, ended.stderr.splitlines()


@PRESSES
def test_an_interrupted_command_keeps_what_it_saw_and_goes_on(press: str, line: list[str], tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert python(PRESSED + press + COMMAND, *line, "--out", str(out)) == (130, "", [ADVICE])
    observed = read_blocks(out, read_manifest(out).blocks, "observations")
    assert len(observed) >= AFTER  # a swallowed interrupt is raised at the next safe point
    resumed, whole = (choicewise(*line, "--out", folder, code=0) for folder in (out, tmp_path / "whole"))
    assert resumed.stdout == whole.stdout


@PRESSES
def test_nothing_of_an_interrupted_sweep_counts_as_failed(press: str, line: list[str], tmp_path: Path) -> None:
    asked = ["sweep", *line[1:], "--model", "fake:oracle", "--out", str(tmp_path / "sweep")]
    code, _, told = python(PRESSED + press + COMMAND, *asked)
    assert (code, told[-1], "failed" in "".join(told)) == (130, ADVICE, False)
    assert [(cell.done, cell.failure) for cell in read_sweep(tmp_path / "sweep").cells] == [(False, "")] * 2


def test_an_interrupt_while_the_commands_are_imported(line: list[str], tmp_path: Path) -> None:
    assert python(IMPORTING + COMMAND, *line, "--out", str(tmp_path / "run")) == (130, "", [ADVICE])


def test_at_any_moment(line: list[str], tmp_path: Path) -> None:
    """However early or late it comes: the run ends, says how to go on, and the same line does."""
    start = time.monotonic()
    _, whole, _ = python(COMMAND, *line, "--out", str(tmp_path / "whole"))
    took = time.monotonic() - start
    for number in range(8):
        asked = [*line, "--out", str(tmp_path / f"{number}")]
        with subprocess.Popen([sys.executable, "-c", READY, *asked], stdout=-1, stderr=-1, text=True) as process:
            assert process.stderr.readline() == "ready\n"
            time.sleep(random.uniform(0, took))
            process.send_signal(signal.SIGINT)
            told, talk = process.communicate(timeout=60)
        assert whole.startswith(told)  # it may have come between two tables
        if told != whole:  # else it was done, and Python was ending
            assert (process.returncode, talk.splitlines()[-1]) == (130, ADVICE)
        assert "Traceback" not in talk
        assert choicewise(*asked, code=0).stdout == whole


def test_an_interrupt_that_a_finaliser_swallows_comes_again() -> None:
    """Also where nothing calls for progress."""
    waits = "try:\n    press()\n    time.sleep(30)\n    print('went on')\nexcept KeyboardInterrupt:\n    print('ended')"
    assert python(WATCHED + IN_A_FINALISER + waits) == (0, "ended\n", [])


def test_the_second_ctrl_c_ends_at_once() -> None:
    stubborn = "try:\n    press()\nfinally:\n    press()\n    print('still here')"
    assert python(WATCHED + PRESS + stubborn) == (130, "", [])


def test_a_job_that_ignores_ctrl_c_goes_on_ignoring_it() -> None:
    ignores = WATCHED.replace("signal.default_int_handler", "signal.SIG_IGN")
    assert python(f"{ignores}{PRESS}press()\nprint('went on')")[:2] == (0, "went on\n")


def test_other_exceptions_in_finalisers_are_told_as_before() -> None:
    assert "ZeroDivisionError" in "".join(python(f"{WATCHED}class Bad:\n    def __del__(self): 1 / 0\nBad()")[2])


@pytest.mark.skipif(sys.platform != "linux", reason="audit hooks are told of the same steps on Linux alone")
def test_nothing_is_lost_or_doubled() -> None:
    """Whatever boundary of a write is hit.  The script does all of them and 200 runs; here it does some of each."""
    words = [sys.executable, str(ROOT / "benchmarks" / "kills.py"), "--every", "29", "--runs", "8"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    counts = re.findall(r"'(?:kill|tear|full)': (\d+)", done.stdout)
    assert len(counts) == 12
    assert all(int(count) > 0 for count in counts), done.stdout
    assert ", 0 differences from the undisturbed ones" in done.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="processes are listed on Linux alone")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGKILL"])
def test_no_process_outlives_the_command(study: Study, name: str) -> None:
    code, told, remaining = served_until(getattr(signal, name), study.hash)
    assert (code, remaining) == (-signal.SIGKILL if name == "SIGKILL" else 0, [])
    assert "Traceback" not in told
