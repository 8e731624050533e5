"""A real terminal of 40 columns, without colours: results are whole lines, none wider than the terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from rich.cells import cell_len

import choicewise
from tests.helpers.mmlu_data import write_mmlu

COLOUR = re.compile(r"\x1b\[[0-9;]*(?:3[0-9]|4[0-9]|9[0-7])m")
NOTE = re.compile(r"(\w[\w /-]*|\[ \]): ")
"""How a line below a table begins that says what a word in it means: the terminal wraps it."""
ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def in_terminal(width: int, environment: dict[str, str], *arguments: str | Path) -> str:
    """The results of the command on a terminal of ``width`` columns; notes, which a terminal wraps, go elsewhere."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    words = [sys.executable, "-m", "choicewise", *map(str, arguments)]
    inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}  # of the tests
    process = subprocess.Popen(
        words, stdout=theirs, stderr=subprocess.DEVNULL, stdin=theirs, env={**inherited, **environment}
    )
    os.close(theirs)
    content = b""
    try:
        while part := os.read(ours, 65536):
            content += part
    except OSError:  # how Linux says that nobody has it open any more
        pass
    finally:
        os.close(ours)
    assert process.wait() == 0, content.decode()
    return content.decode()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("narrow")
    data = write_mmlu(place / "data")
    choicewise.evaluate(model="fake:hash", data=data, protocols=["mmlu/original", "mmlu/cloze"], out=place / "run")
    return place / "run"


@pytest.mark.costly("whole commands")
@pytest.mark.parametrize("verb", ["report", "explain"])
def test_a_narrow_terminal_without_colours_gets_whole_lines(run: Path, verb: str) -> None:
    more = ["--item", "tides/test/0"] if verb == "explain" else []
    told = in_terminal(40, {"NO_COLOR": "1", "TERM": "xterm-256color"}, verb, run, *more)
    lines = ESCAPE.sub("", told).replace("\r", "").split("\n")
    assert len(lines) > 10
    assert [line for line in lines if cell_len(line) > 40 and not NOTE.match(line)] == []
    assert COLOUR.findall(told) == []
