"""Ctrl-C in the middle of a run: what was observed is kept, the user is told, and the same line goes on from there."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from choicewise.store.folder import read_manifest, read_sweep
from choicewise.store.tables import read_blocks
from tests.helpers.mmlu_data import write_mmlu

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
PRESS_IN_A_FINALISER = """
class Left:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
def press():
    Left()
"""
PRESS_UNDER_A_LIBRARY = """
def press():
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        pass
"""
PRESS_IN_A_CLASS = """
class Pressed:
    def __set_name__(self, owner, name):
        os.kill(os.getpid(), signal.SIGINT)
def press():
    type("Interrupted", (), {"name": Pressed()})  # Python makes a RuntimeError of it
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


def line(data: Path, out: Path) -> list[str]:
    return ["run", "--model", "fake:hash", "--data", str(data), "--protocol", "mmlu/cloze", "--out", str(out)]


def run(before: str, data: Path, out: Path) -> subprocess.CompletedProcess[str]:
    return python(before + COMMAND, *line(data, out))


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize("press", [PRESS, PRESS_IN_A_FINALISER, PRESS_UNDER_A_LIBRARY, PRESS_IN_A_CLASS])
def test_an_interrupted_command_keeps_what_it_saw_and_goes_on(press: str, tmp_path: Path) -> None:
    data, out = write_mmlu(tmp_path / "data"), tmp_path / "run"
    stopped = run(PRESSED + press, data, out)
    assert stopped.returncode == 130
    assert stopped.stdout == ""
    assert stopped.stderr.splitlines() == [ADVICE]
    kept = read_blocks(out, read_manifest(out).blocks, "observations")
    assert len(kept) >= AFTER  # a swallowed interrupt is raised at the next safe point
    again, whole = run("", data, out), run("", data, tmp_path / "whole")
    assert again.returncode == 0
    assert again.stdout == whole.stdout


PRESS_IN_AN_IMPORT = f"""{HEARD}{PRESS_IN_A_CLASS}
import sys
class Importing:
    def find_spec(self, name, *_):
        if name == "choicewise.cli.commands":
            press()
sys.meta_path.insert(0, Importing())
"""


def test_an_interrupt_while_the_commands_are_imported(tmp_path: Path) -> None:
    stopped = run(PRESS_IN_AN_IMPORT, write_mmlu(tmp_path / "data"), tmp_path / "run")
    assert (stopped.returncode, stopped.stdout, stopped.stderr.splitlines()) == (130, "", [ADVICE])


@pytest.mark.parametrize("press", [PRESS, PRESS_IN_A_FINALISER, PRESS_UNDER_A_LIBRARY, PRESS_IN_A_CLASS])
def test_nothing_of_an_interrupted_sweep_counts_as_failed(press: str, tmp_path: Path) -> None:
    _, *asked = line(write_mmlu(tmp_path / "data"), tmp_path / "sweep")
    stopped = python(PRESSED + press + COMMAND, "sweep", *asked, "--model", "fake:oracle")
    assert stopped.returncode == 130
    assert stopped.stderr.splitlines()[-1] == ADVICE
    assert "failed" not in stopped.stderr
    assert [(cell.done, cell.failure) for cell in read_sweep(tmp_path / "sweep").cells] == [(False, "")] * 2


def test_at_any_moment(tmp_path: Path) -> None:
    """However early or late it comes: the run ends, says how to go on, and the same line does."""
    data = write_mmlu(tmp_path / "data")
    start = time.monotonic()
    whole = run("", data, tmp_path / "whole")
    took = time.monotonic() - start
    for number in range(8):
        out = tmp_path / f"{number}"
        with subprocess.Popen(
            [sys.executable, "-c", READY, *line(data, out)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stderr is not None
            assert process.stderr.readline() == "ready\n"
            time.sleep(random.uniform(0, took))
            process.send_signal(signal.SIGINT)
            told, talk = process.communicate(timeout=60)
        assert whole.stdout.startswith(told)  # it may have come between two tables
        if told != whole.stdout:  # else it was done, and Python was ending
            assert (process.returncode, talk.splitlines()[-1]) == (130, ADVICE)
        assert "Traceback" not in talk
        again = run("", data, out)
        assert (again.returncode, again.stdout) == (0, whole.stdout)


def test_an_interrupt_that_a_finaliser_swallows_comes_again() -> None:
    """Also where nothing calls for progress."""
    waits = f"{HEARD}{PRESS_IN_A_FINALISER}\nfrom choicewise.cli.terminal import watch\nimport time\nwatch()\n" + (
        "try:\n    press()\n    time.sleep(30)\n    print('went on')\nexcept KeyboardInterrupt:\n    print('ended')"
    )
    told = python(waits)
    assert (told.stdout, told.stderr) == ("ended\n", "")


def test_the_second_ctrl_c_ends_at_once() -> None:
    stubborn = f"{HEARD}{PRESS}\nfrom choicewise.cli.terminal import watch\nwatch()\n" + (
        "try:\n    press()\nfinally:\n    press()\n    print('still here')"
    )
    told = python(stubborn)
    assert (told.returncode, told.stdout, told.stderr) == (130, "", "")


def test_a_job_that_ignores_ctrl_c_goes_on_ignoring_it() -> None:
    ignores = (
        "import os, signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nfrom choicewise.cli.terminal import watch"
    )
    told = python(f"{ignores}\nwatch()\nos.kill(os.getpid(), signal.SIGINT)\nprint('went on')")
    assert (told.returncode, told.stdout) == (0, "went on\n")


def test_other_exceptions_in_finalisers_are_told_as_before() -> None:
    code = "from choicewise.cli.terminal import watch\nwatch()\nclass Bad:\n    def __del__(self): 1 / 0\nBad()"
    assert "ZeroDivisionError" in python(code).stderr
