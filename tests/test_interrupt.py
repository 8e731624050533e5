"""Ctrl-C in the middle of a run: what was observed is kept, the user is told, and the same line goes on from there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from choicewise.store.manifest import read_manifest
from choicewise.store.tables import read_blocks

from .worlds import write_mmlu

AFTER = 30
PRESSED = f"""
import os, signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
from choicewise.models.fake import HashModel
asked, answers = 0, HashModel.answer
def interrupted(self, questions):
    global asked
    for answer in answers(self, questions):
        if asked == {AFTER}:
            os.kill(os.getpid(), signal.SIGINT)
        asked += 1
        yield answer
HashModel.answer = interrupted
"""
COMMAND = "from choicewise.cli import main; main()"


def run(before: str, data: Path, out: Path) -> subprocess.CompletedProcess[str]:
    arguments = ["run", "--model", "fake:hash", "--data", data, "--protocol", "mmlu/cloze", "--out", out]
    return subprocess.run(
        [sys.executable, "-c", before + COMMAND, *map(str, arguments)], capture_output=True, text=True, check=False
    )


def test_an_interrupted_command_keeps_what_it_saw_and_goes_on(tmp_path: Path) -> None:
    data, out = write_mmlu(tmp_path / "data"), tmp_path / "run"
    stopped = run(PRESSED, data, out)
    assert stopped.returncode == 130
    assert stopped.stdout == ""
    assert stopped.stderr.splitlines()[-1].startswith("interrupted; a run that was under way keeps what it observed")
    assert "Traceback" not in stopped.stderr
    kept = read_blocks(out, read_manifest(out).blocks, "observations")
    assert len(kept) == AFTER
    again, whole = run("", data, out), run("", data, tmp_path / "whole")
    assert again.returncode == 0
    assert again.stdout == whole.stdout
