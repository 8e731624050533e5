"""Commands where stdout is closed, full or left early, the terminal knows ASCII only, or a path can't be read."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.mmlu_data import write_mmlu
from tests.paths import ROOT

COMMAND = [sys.executable, "-m", "choicewise"]
SOURCE = ROOT / "src"
VERBS = ("help", "run", "dry-run", "report", "multiverse", "agreement", "distribution", "compare", "explain", "prompts")
VERBS += ("score", "check", "protocols", "show", "diff")


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """A line of every verb that prints something."""
    folder = tmp_path_factory.mktemp("streams")
    data, run = write_mmlu(folder / "data"), folder / "run"
    asked = ["run", "--model", "fake:hash", "--data", str(data)]
    asked += ["--protocol", "mmlu/original", "--protocol", "options/quoted-sum-forward", "--out", str(run)]
    assert shell(" ".join([*COMMAND, *asked])).returncode == 0
    fake = ["--model", "fake:hash"]
    return {
        "help": ["--help"],
        "run": asked,
        "dry-run": [*asked, "--dry-run"],
        "report": ["report", str(run)],
        "multiverse": ["report", "--multiverse", str(run)],
        "agreement": ["report", "--agreement", str(run)],
        "distribution": ["report", "--distribution", str(run)],
        "compare": ["compare", str(run), str(run)],
        "explain": ["explain", str(run), "--item", "tides/test/0"],
        "prompts": ["prompts", "--data", str(data), "--protocol", "mmlu/original"],
        "score": ["score", *fake, "--context", "é ", "--choice", " \U0001f600", "--choice", " b", "--json"],
        "check": ["check", *fake],
        "protocols": ["protocols"],
        "show": ["protocols", "show", "mmlu"],
        "diff": ["protocols", "diff", "mmlu/original", "mmlu/helm"],
    }


def shell(line: str, **environment: str) -> subprocess.CompletedProcess[str]:
    known = {**os.environ, "PYTHONPATH": str(SOURCE), **environment}
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", line], capture_output=True, text=True, check=False, env=known, timeout=120
    )


def words(line: list[str]) -> str:
    return " ".join(f"'{word}'" for word in [*COMMAND, *line])


@pytest.mark.parametrize("verb", VERBS)
def test_what_can_not_be_written_is_an_error_on_a_line(verb: str, lines: dict[str, list[str]]) -> None:
    places = {">&-": "Bad file descriptor", ">/dev/full": "No space left on device"}
    for where, reason in list(places.items())[0 if verb in ("help", "report") else 1 :]:
        ended = shell(f"{words(lines[verb])} {where}")
        assert ended.stderr.splitlines()[-1] == f"error: the output can't be written: {reason}"
        assert ended.returncode == 1
        assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("verb", VERBS)
def test_a_reader_that_leaves_and_talk_that_nobody_hears_are_no_errors(verb: str, lines: dict[str, list[str]]) -> None:
    whole = shell(words(lines[verb]))
    assert whole.returncode == 0
    left = shell(f"{words(lines[verb])} | true")
    assert (left.returncode, "Traceback" in left.stderr, "gnored" in left.stderr) == (0, False, False)
    for where in ("2>&-", "2>/dev/full") if verb in ("run", "dry-run") else ():
        silent = shell(f"{words(lines[verb])} {where}")
        assert (silent.returncode, silent.stderr) == (0, "")
        assert verb == "dry-run" or silent.stdout == whole.stdout  # it measures time


@pytest.mark.parametrize("verb", VERBS)
def test_a_terminal_with_few_characters_is_shown_them(verb: str, lines: dict[str, list[str]]) -> None:
    few = [{"PYTHONIOENCODING": "ascii"}]
    if verb in ("report", "explain"):
        few.append({"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"})
    for environment in few:
        told = shell(words(lines[verb]), **environment)
        assert (told.returncode, "Traceback" in told.stderr) == (0, False)
        assert (told.stdout + told.stderr).isascii()
        if verb == "score":
            assert json.loads(told.stdout)[0]["choice"] == " \U0001f600"


def test_a_table_keeps_its_columns_in_ascii(lines: dict[str, list[str]]) -> None:
    wide, narrow = (shell(words(lines["report"]), PYTHONIOENCODING=name).stdout for name in ("utf-8", "ascii"))
    assert "–" in wide
    assert narrow == wide.replace("–", "-")


def test_an_error_is_one_line_where_everything_is_closed(lines: dict[str, list[str]]) -> None:
    ended = shell(f"{words(['report', 'nowhere'])} >&- 2>&-")
    assert (ended.returncode, ended.stdout, ended.stderr) == (6, "", "")


PLACES = {
    "data": (["prompts", "--protocol", "mmlu/original", "--data"], 3),
    "mapping": (["prompts", "--protocol", "mmlu/original", "--data", "DATA", "--mapping"], 3),
    "protocol": (["protocols", "show"], 4),
    "model": (["check", "--model"], 5),
    "run": (["report"], 6),
    "explained": (["explain", "--item", "x"], 6),
    "compared": (["compare"], 6),
    "out": (["run", "--model", "fake:hash", "--data", "DATA", "--protocol", "mmlu/original", "--out"], 6),
}
"""Name → a line that ends where a path is missing, and its exit code for one that can't be used."""


def nobody(line: str) -> subprocess.CompletedProcess[str]:
    """The line as somebody who may read what everybody may: root may read everything."""
    return shell(f"setpriv --reuid=65534 --regid=65534 --clear-groups {line}" if os.geteuid() == 0 else line)


@pytest.fixture
def open_to_all(tmp_path: Path) -> Path:
    """A folder that another user can reach."""
    if os.geteuid() == 0 and not shutil.which("setpriv"):
        pytest.skip("root reads everything, and there is no setpriv to be somebody else")
    for parent in [tmp_path, *tmp_path.parents]:
        if parent.is_relative_to(Path("/tmp")) and parent != Path("/tmp"):
            parent.chmod(0o755)
    if nobody(words(["--version"])).returncode != 0:
        pytest.skip("another user can't run this Python")
    return tmp_path


@pytest.mark.parametrize("name", PLACES)
def test_what_can_not_be_read_has_the_exit_code_of_what_it_is(name: str, open_to_all: Path) -> None:
    before, code = PLACES[name]
    data = write_mmlu(open_to_all / "data")
    folder = open_to_all / "secret"
    suffix = ".toml" if name in ("mapping", "protocol") else ".jsonl" if name == "data" else ""
    if suffix:
        folder.mkdir()
        (folder / f"file{suffix}").write_text("{}")
        (folder / f"file{suffix}").chmod(0)
        paths = [folder / f"file{suffix}"]
    else:
        shutil.copytree(data, folder)
        (folder / "run.json").write_text("{}")
        (folder / "run.json").chmod(0)
        paths = []
    for mode in (0o755, 0):
        folder.chmod(mode)
        for path in [*paths, folder, folder / f"inside{suffix}"] if mode == 0 else paths:
            if path == folder and suffix == ".toml":
                continue  # a folder is no TOML file by its name
            line = [word.replace("DATA", str(data)) for word in before]
            ended = nobody(words([*line, str(path)]))
            assert ended.stderr.startswith("error: "), ended.stderr
            assert "Traceback" not in ended.stderr
            assert (path, ended.returncode) == (path, code), ended.stderr
            assert ended.stdout == ""
    folder.chmod(0o755)


@pytest.mark.parametrize("name", PLACES)
def test_a_folder_in_place_of_a_file_and_a_file_in_place_of_a_folder(name: str, tmp_path: Path) -> None:
    before, code = PLACES[name]
    data = write_mmlu(tmp_path / "data")
    line = [word.replace("DATA", str(data)) for word in before]
    folder, file = tmp_path / "folder.toml", tmp_path / "file.jsonl"
    folder.mkdir()
    (folder / "other").touch()
    file.write_bytes(b"\x00\xff")
    for path in (folder, file, file / "inside", tmp_path / ("x" * 300)):
        if name == "protocol" and path.suffix != ".toml":
            continue
        if name == "data" and path == folder:
            continue
        ended = shell(words([*line, str(path)]))
        assert ended.stderr.startswith("error: "), ended.stderr
        assert "Traceback" not in ended.stderr
        assert (path.name, ended.returncode) == (path.name, code), ended.stderr
