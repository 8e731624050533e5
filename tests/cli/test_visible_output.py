"""Names with escape sequences, line ends and quotes: nothing a terminal obeys is printed, and printed commands work."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise.bundled import MODELS
from choicewise.util.text import command_line, json_safe
from tests.helpers.commands import CommandResult, choicewise
from tests.paths import ROOT

PACKAGE = ROOT / "src" / "choicewise"
EVIL = "x\x1b]0;owned\x07\x1b[2J\nerror: y\u202e\x9b31m"
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\u2029]")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a real model whose name, data, items, subjects, choices, protocol and folder are all evil."""
    folder = tmp_path_factory.mktemp("evil") / EVIL
    folder.mkdir()
    model = shutil.copytree(min(MODELS), folder / f"model {EVIL}")
    rows = [
        {"id": f"{EVIL}{number}", "question": f"{EVIL}?", "choices": [EVIL, "b"], "answer": number % 2, "subject": EVIL}
        for number in range(4)
    ]
    data = folder / "test.jsonl"
    data.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    mapping = folder / "mapping.toml"
    mapping.write_text('choices = "choices"\nanswer = "answer"\nanswer_is = "index"\nid = "id"\nsubject = "subject"\n')
    protocol = folder / "evil.toml"
    axes = f'name = {json.dumps(EVIL)}\nbase = "mmlu/cloze"\n[protocol]\nsplit = "-"\nchoices = "any"\nshots = 0\n'
    protocol.write_text(axes.replace("\x9b", "\\u009b"), encoding="utf-8")
    asked = ["--model", model, "--data", data, "--mapping", mapping, "--out", folder / "run"]
    told = choicewise("run", *asked, "--protocol", protocol, "--protocol", "options/quoted-sum-forward")
    assert told.code == 0, told.stderr
    harmless(told)
    harmless(choicewise("run", *asked, "--protocol", protocol, "--dry-run"))
    return folder / "run"


def harmless(told: CommandResult) -> None:
    assert not OBEYED.findall(told.stdout + told.stderr)
    lines = (told.stdout + told.stderr).splitlines()
    # explain shows a question over as many lines as it has
    assert "explain" in told.words or not [line for line in lines if line.startswith("error: y")]
    assert "Traceback" not in told.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["report"],
        ["report", "--by", "subjects"],
        ["report", "--multiverse"],
        ["report", "--agreement"],
        ["report", "--distribution"],
        ["report", "--json"],
        ["compare"],
        ["explain", "--item", f"{EVIL}0"],
        ["explain", "--json", "--item", f"{EVIL}0"],
    ],
)
def test_a_terminal_obeys_nothing_of_a_run(run: Path, arguments: list[str]) -> None:
    folders = [run, run] if arguments in (["compare"], ["report"]) else [run]
    told = choicewise(*arguments, *folders)
    assert told.code == 0, told.stderr
    harmless(told)
    if "--json" in arguments:
        assert EVIL in str(json.loads(told.stdout)) or repr(EVIL)[1:-1] in str(json.loads(told.stdout))


@pytest.mark.parametrize(
    "arguments",
    [
        ["report", f"/{EVIL}"],
        ["explain", f"/{EVIL}", "--item", "x"],
        ["protocols", "show", EVIL],
        ["protocols", "show", f"{EVIL}.toml"],
        ["prompts", "--data", f"/{EVIL}.csv", "--protocol", "mmlu"],
        ["check", "--model", f"/{EVIL}"],
        ["score", "--model", "fake:hash", "--context", EVIL, "--choice", EVIL],
        ["score", "--model", "fake:hash", "--context", EVIL, "--choice", EVIL, "--boundary", EVIL],
        [f"--{EVIL}"],
        [EVIL],
        ["run", f"--{EVIL}"],
        ["run", "--limit", EVIL],
    ],
)
def test_a_terminal_obeys_nothing_of_a_command_line(arguments: list[str]) -> None:
    harmless(choicewise(*arguments))


@given(st.text())
def test_json_is_the_same_and_harmless(text: str) -> None:
    shown = json_safe(json.dumps(text, ensure_ascii=False))
    assert json.loads(shown) == text
    assert not OBEYED.search(shown)


NAMES = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), min_size=1)


@given(st.lists(NAMES | st.sampled_from(["$HOME", "a b", "'", '"', "`x`", "-x", EVIL, "a\\nb", "!!", "*", "~"])))
def test_a_printed_command_is_what_a_shell_reads(words: list[str]) -> None:
    shown = command_line(*words)
    assert shown.isprintable()
    spelled = subprocess.run(
        ["bash", "-c", f"choicewise() {{ printf '%s\\0' \"$@\"; }}; {shown}"], capture_output=True, check=True
    )
    assert spelled.stdout.decode().split("\0")[:-1] == words or (not words and spelled.stdout == b"\0")


@pytest.mark.costly("whole commands")
def test_printed_commands_work(run: Path, tmp_path: Path) -> None:
    """Every line in backquotes that a run prints, pasted into a shell."""
    out = tmp_path / 'it\'s $HOME `x` "q" -- é' / "-run"
    told = choicewise(
        "run",
        "--model",
        "fake:hash",
        "--data",
        run.parent / "test.jsonl",
        "--mapping",
        run.parent / "mapping.toml",
        "--protocol",
        run.parent / "evil.toml",
        "--out",
        out,
    )
    assert told.code == 0, told.stderr
    lines = re.findall(r"`(choicewise .*)` ", told.stderr)
    assert len(lines) == 1
    python = f'choicewise() {{ PYTHONPATH={PACKAGE.parent} {sys.executable} -m choicewise "$@"; }}'
    again = subprocess.run(["bash", "-c", f"{python}; {lines[0]}"], capture_output=True, text=True, check=False)
    assert (again.returncode, again.stdout) == (0, told.stdout)


def test_a_folder_that_begins_with_a_dash_is_no_option() -> None:
    assert command_line("report", Path("-x"), "--item", "-y") == "choicewise report ./-x --item -y"


@pytest.mark.costly("whole commands")
def test_one_file_of_the_command_line_prints() -> None:
    """Elsewhere a text of the data could reach a terminal as it is."""
    printing = set()
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
                printing.add(str(file.relative_to(PACKAGE)))
    assert printing == {"cli/terminal.py", "running/progress.py"}
