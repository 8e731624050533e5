"""What reaches a terminal: downloads, whole lines, nothing that it obeys, and commands that can be pasted."""

import ast
import fcntl
import json
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import termios
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from choicewise.bundled import MODELS
from choicewise.cli import terminal
from choicewise.cli.terminal import show_download
from choicewise.util.text import command_line, json_safe, size
from tests.helpers.commands import CommandResult, choicewise
from tests.helpers.study import Study
from tests.paths import ROOT

PACKAGE = ROOT / "src" / "choicewise"
EVIL = "x\x1b]0;owned\x07\x1b[2J\nerror: y\u202e\x9b31m"
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\u2029]")


def test_lines_about_downloads_are_few_where_nobody_watches_and_an_interrupt_ends_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter([100.0, 101.0, 111.0, 112.0])
    monkeypatch.setattr(terminal.time, "monotonic", lambda: next(clock))
    update = show_download()
    for done in range(1, 5):
        update("org/name", done * 1_000_000, 4_000_000)
    assert capsys.readouterr().err.splitlines() == [
        *("downloading org/name: 1.0 MB of 4.0 MB", "downloading org/name: 3.0 MB of 4.0 MB"),
        "downloaded org/name: 4.0 MB",
    ]
    monkeypatch.setattr(terminal, "_pressed", True)
    with pytest.raises(KeyboardInterrupt):
        show_download()("org/name", 1, 2)
    told = {0: "0 bytes", 1: "1 byte", 999: "999 bytes", 1500: "1.5 kB", 2.5e9: "2.5 GB"}
    assert {bytes: size(bytes) for bytes in told} == told


COLOUR = re.compile(r"\x1b\[[0-9;]*(?:3[0-9]|4[0-9]|9[0-7])m")
ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
NOTE = re.compile(r"(\w[\w /-]*|\[ \]): ")
"""How a line below a table begins that says what a word in it means: the terminal wraps it."""


def in_terminal(width: int, *words: str | Path, **environment: str) -> str:
    """The results of the command on a terminal of ``width`` columns; notes, which a terminal wraps, go elsewhere."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    line = [sys.executable, "-m", "choicewise", *map(str, words)]
    places = {
        name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")
    } | environment
    process = subprocess.Popen(
        line, stdout=theirs, stderr=subprocess.DEVNULL, stdin=theirs, env=places
    )
    os.close(theirs)
    content = b""
    with (
        open(ours, "rb", buffering=0) as shown,
        suppress(OSError),
    ):  # so says Linux that nobody has it open
        while part := shown.read(65536):
            content += part
    assert process.wait() == 0, content.decode()
    return content.decode()


@pytest.mark.costly("processes with a terminal of their own")
@pytest.mark.parametrize(
    "words",
    [("report", "--all", "--protocol", "mmlu/cloze"), ("explain", "--item", "tides/test/0")],
)
def test_a_narrow_terminal_without_colours_gets_whole_lines(
    study: Study, words: tuple[str, ...]
) -> None:
    told = in_terminal(40, *words, study.hash, NO_COLOR="1", TERM="xterm-256color")
    lines = ESCAPE.sub("", told).replace("\r", "").split("\n")
    assert len(lines) > 10
    assert [line for line in lines if cell_len(line) > 40 and not NOTE.match(line)] == []
    assert COLOUR.findall(told) == []


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a real model whose name, data, items, subjects, choices, protocol and folder are all evil."""
    folder = tmp_path_factory.mktemp("evil") / EVIL
    folder.mkdir()
    model = shutil.copytree(min(MODELS), folder / f"model {EVIL}")
    row = {"question": f"{EVIL}?", "choices": [EVIL, "b"], "subject": EVIL}
    rows = [
        json.dumps({"id": f"{EVIL}{number}", "answer": number % 2, **row}) for number in range(4)
    ]
    (folder / "test.jsonl").write_text("\n".join(rows), encoding="utf-8")
    mapping = 'choices = "choices"\nanswer = "answer"\nanswer_is = "index"\nid = "id"\nsubject = "subject"\n'
    (folder / "mapping.toml").write_text(mapping)
    axes = f'name = {json.dumps(EVIL)}\nbase = "mmlu/cloze"\n[protocol]\nsplit = "-"\nchoices = "any"\nshots = 0\n'
    (folder / "evil.toml").write_text(axes.replace("\x9b", "\\u009b"), encoding="utf-8")
    asked = [*evil_data(folder), "--model", model, "--out", folder / "run"]
    harmless(choicewise("run", *asked, "--protocol", "options/quoted-sum-forward", code=0))
    harmless(choicewise("run", *asked, "--dry-run"))
    return folder / "run"


def evil_data(folder: Path) -> list[object]:
    names = {"--data": "test.jsonl", "--mapping": "mapping.toml", "--protocol": "evil.toml"}
    return [word for option, name in names.items() for word in (option, folder / name)]


def harmless(told: CommandResult) -> None:
    assert not OBEYED.findall(told.stdout + told.stderr)
    lines = (told.stdout + told.stderr).splitlines()
    # explain shows a question over as many lines as it has
    assert "explain" in told.words or not [line for line in lines if line.startswith("error: y")]
    assert "Traceback" not in told.stderr


@pytest.mark.parametrize(
    "words",
    [
        *(
            ["report"],
            ["compare"],
            ["report", "multiverse"],
            ["report", "agreement"],
            ["report", "distribution"],
        ),
        *(["report", "--by", "subjects"], ["report", "--json"]),
        *(["explain", "--item", f"{EVIL}0", *more] for more in ([], ["--json"])),
    ],
)
def test_a_terminal_obeys_nothing_of_a_run(run: Path, words: list[str]) -> None:
    command, *others = words
    told = choicewise(
        command, run, *([run] if words in (["compare"], ["report"]) else []), *others, code=0
    )
    harmless(told)
    if "--json" in words:
        assert EVIL in str(json.loads(told.stdout)) or repr(EVIL)[1:-1] in str(
            json.loads(told.stdout)
        )


SCORE = ["score", "--model", "fake:hash", "--context", EVIL, "--choice", EVIL]


@pytest.mark.parametrize(
    "words",
    [
        *(
            ["report", f"/{EVIL}"],
            ["explain", f"/{EVIL}", "--item", "x"],
            ["check", "--model", f"/{EVIL}"],
        ),
        *(
            ["protocols", "show", EVIL],
            ["protocols", "show", f"{EVIL}.toml"],
            SCORE,
            [*SCORE, "--boundary", EVIL],
        ),
        *(
            ["prompts", "--data", f"/{EVIL}.csv", "--protocol", "mmlu"],
            ["run", "--limit", EVIL],
            ["run", f"--{EVIL}"],
        ),
        *([f"--{EVIL}"], [EVIL]),
    ],
)
def test_a_terminal_obeys_nothing_of_a_command_line(words: list[str]) -> None:
    harmless(choicewise(*words))


@given(st.text())
def test_json_is_the_same_and_harmless(text: str) -> None:
    shown = json_safe(json.dumps(text, ensure_ascii=False))
    assert json.loads(shown) == text
    assert not OBEYED.search(shown)


NAMES = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), min_size=1)


@given(
    st.lists(
        NAMES
        | st.sampled_from(["$HOME", "a b", "'", '"', "`x`", "-x", EVIL, "a\\nb", "!!", "*", "~"])
    )
)
def test_a_printed_command_is_what_a_shell_reads(words: list[str]) -> None:
    shown = command_line(*words)
    assert shown.isprintable()
    line = f"choicewise() {{ printf '%s\\0' \"$@\"; }}; {shown}"
    spelled = subprocess.run(["bash", "-c", line], capture_output=True, check=True).stdout
    assert spelled.decode().split("\0")[:-1] == words or (not words and spelled == b"\0")


def test_printed_commands_work(run: Path, tmp_path: Path) -> None:
    """Every command that a run prints, pasted into a shell."""
    out = tmp_path / 'it\'s $HOME `x` "q" -- é' / "-run"
    told = choicewise("run", "--model", "fake:hash", *evil_data(run.parent), "--out", out, code=0)
    report, *_ = re.findall(r"  choicewise (.*?)(?=  \||$)", told.stderr, re.MULTILINE)
    shell = ["bash", "-c", f"printf '%s\\0' {report.removesuffix(' --all')}"]
    words = subprocess.run(shell, capture_output=True, check=True).stdout
    assert choicewise(*words.decode().split("\0")[:-1], code=0).stdout == told.stdout
    assert command_line("report", Path("-x"), "--item", "-y") == "choicewise report ./-x --item -y"


def test_one_file_of_the_command_line_prints() -> None:
    """Elsewhere a text of the data could reach a terminal as it is."""
    printing = set()
    for file in PACKAGE.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "print" in text else ():
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id == "print"
            ):
                printing.add(str(file.relative_to(PACKAGE)))
    assert printing == {"cli/terminal.py", "running/progress.py"}
