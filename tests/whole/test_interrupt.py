"""Ctrl-C, kill -9, a full disk: what was observed is kept, the same line goes on, and no process of a server stays."""

import json
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from choicewise.store.folder import read_manifest, read_sweep
from choicewise.store.tables import read_blocks
from tests.helpers.board import served_until
from tests.helpers.commands import CommandResult, choicewise
from tests.helpers.messages import Gist
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


def advice(lines: list[str]) -> bool:
    """Whether the last line says that it was interrupted, and to run it again."""
    return bool(re.fullmatch(r"interrupted; .*\bagain\b.*", lines[-1] if lines else ""))


@pytest.fixture
def line(tmp_path: Path) -> list[str]:
    return [
        "run",
        "--model",
        "fake:hash",
        "--data",
        str(write_mmlu(tmp_path / "data")),
        "--protocol",
        "mmlu/cloze",
    ]


def python(code: str, *words: str) -> tuple[int, str, list[str]]:
    """Its exit code, what it prints, and the lines of what it says beside that."""
    command = [sys.executable, "-c", code, *words]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return ended.returncode, ended.stdout, ended.stderr.splitlines()


@PRESSES
def test_an_interrupted_command_keeps_what_it_saw_and_goes_on(
    press: str, line: list[str], tmp_path: Path
) -> None:
    out = tmp_path / "run"
    code, printed, told = python(PRESSED + press + COMMAND, *line, "--out", str(out))
    assert (code, printed, len(told), advice(told)) == (130, "", 1, True), told
    observed = read_blocks(out, read_manifest(out).blocks, "observations")
    assert len(observed) >= AFTER  # a swallowed interrupt is raised at the next safe point
    resumed, whole = (
        choicewise(*line, "--out", folder, code=0) for folder in (out, tmp_path / "whole")
    )
    assert resumed.stdout == whole.stdout


@PRESSES
def test_nothing_of_an_interrupted_sweep_counts_as_failed(
    press: str, line: list[str], tmp_path: Path
) -> None:
    asked = ["sweep", *line[1:], "--model", "fake:oracle", "--out", str(tmp_path / "sweep")]
    code, _, told = python(PRESSED + press + COMMAND, *asked)
    assert (code, advice(told), "failed" in "".join(told)) == (130, True, False), told
    assert [(cell.done, cell.failure) for cell in read_sweep(tmp_path / "sweep").cells] == [
        (False, "")
    ] * 2


def test_an_interrupt_while_the_commands_are_imported(line: list[str], tmp_path: Path) -> None:
    code, printed, told = python(IMPORTING + COMMAND, *line, "--out", str(tmp_path / "run"))
    assert (code, printed, len(told), advice(told)) == (130, "", 1, True), told


def test_at_any_moment(line: list[str], tmp_path: Path) -> None:
    """However early or late it comes: the run ends, says how to go on, and the same line does."""
    start = time.monotonic()
    _, whole, _ = python(COMMAND, *line, "--out", str(tmp_path / "w"))
    took = time.monotonic() - start
    for number in range(8):
        asked = [*line, "--out", str(tmp_path / f"{number}")]
        with subprocess.Popen(
            [sys.executable, "-c", READY, *asked], stdout=-1, stderr=-1, text=True
        ) as process:
            assert process.stderr.readline() == "ready\n"
            time.sleep(random.uniform(0, took))
            process.send_signal(signal.SIGINT)
            told, talk = process.communicate(timeout=60)
        assert whole.startswith(told)  # it may have come between two tables
        if told != whole:  # else it was done, and Python was ending
            assert (process.returncode, advice(talk.splitlines())) == (130, True), talk
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
    assert "ZeroDivisionError" in "".join(
        python(f"{WATCHED}class Bad:\n    def __del__(self): 1 / 0\nBad()")[2]
    )


@pytest.mark.skipif(
    sys.platform != "linux", reason="audit hooks are told of the same steps on Linux alone"
)
def test_nothing_is_lost_or_doubled() -> None:
    """Whatever boundary of a write is hit.  The script does all of them and 200 runs; here it does some of each."""
    words = [sys.executable, str(ROOT / "benchmarks" / "kills.py"), "--every", "29", "--runs", "8"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    counts = re.findall(r"'(?:kill|tear|full)': (\d+)", done.stdout)
    assert len(counts) == 12
    assert all(int(count) > 0 for count in counts), done.stdout
    assert ", 0 differences " in done.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="processes are listed on Linux alone")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGKILL"])
def test_no_process_outlives_the_command(study: Study, name: str) -> None:
    code, told, remaining = served_until(getattr(signal, name), study.hash)
    assert (code, remaining) == (-signal.SIGKILL if name == "SIGKILL" else 0, [])
    assert "Traceback" not in told


FORKS = """
import json, os, sys
import scipy.stats, choicewise.cli.commands, choicewise.extensions.comparison.compare, choicewise.running.evaluate
from choicewise.cli import main
folder, kept, lines = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
for name, words in lines.items():
    if not (child := os.fork()):
        for stream in map(int, kept):
            file = os.open(f"{folder}/{name}.{stream}", os.O_WRONLY | os.O_CREAT)
            os.dup2(file, stream)
            os.close(file)
        sys.argv = ["choicewise", *words]
        main()
    with open(f"{folder}/{name}.code", "w") as code:
        code.write(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])))
"""
"""Commands in processes that a single start of Python is enough for: all have the streams that it was started with."""


def forked(
    lines: Mapping[str, list[str]],
    folder: Path,
    where: str = "",
    kept: str = "12",
    user: str = "",
    **environment: str,
) -> dict[str, CommandResult]:
    """How each line ends where a shell starts Python with its streams ``where`` and those of ``kept`` as files."""
    folder.mkdir()
    folder.chmod(0o777)
    words = [*shlex.split(user), sys.executable, "-c", FORKS, str(folder), kept, json.dumps(lines)]
    known = {**os.environ, "PYTHONPATH": str(ROOT / "src"), **environment}
    line = ["bash", "-o", "pipefail", "-c", f"{shlex.join(words)} {where}"]
    ended = subprocess.run(
        line, capture_output=True, text=True, check=False, env=known, timeout=300
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")

    def read(name: str, end: int | str) -> str:
        file = folder / f"{name}.{end}"
        return file.read_text(encoding="utf-8") if file.exists() else ""

    return {
        name: CommandResult(tuple(line), int(read(name, "code")), read(name, 1), read(name, 2))
        for name, line in lines.items()
    }


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """A line of every verb that prints something."""
    folder = tmp_path_factory.mktemp("streams")
    data, run, fake = (
        str(write_mmlu(folder / "data")),
        str(folder / "run"),
        ["--model", "fake:hash"],
    )
    asked = [
        "run",
        *fake,
        "--data",
        data,
        "--protocol",
        "mmlu/original",
        "--protocol",
        "options/quoted-sum-forward",
    ]
    asked += ["--out", run]
    choicewise(*asked, code=0)
    return {
        "help": ["--help"],
        "run": asked,
        "dry-run": [*asked, "--dry-run"],
        "report": ["report", run],
        "multiverse": ["report", run, "multiverse"],
        "agreement": ["report", run, "agreement"],
        "distribution": ["report", run, "distribution"],
        "compare": ["compare", run, run],
        "explain": ["explain", run, "--item", "tides/test/0"],
        "prompts": ["prompts", "--data", data, "--protocol", "mmlu/original"],
        "score": [
            "score",
            *fake,
            "--context",
            "é ",
            "--choice",
            " \U0001f600",
            "--choice",
            " b",
            "--json",
        ],
        "check": ["check", *fake],
        "protocols": ["protocols"],
        "show": ["protocols", "show", "mmlu"],
        "diff": ["protocols", "diff", "mmlu/original", "mmlu/helm"],
    }


@pytest.fixture(scope="module")
def whole(
    lines: dict[str, list[str]], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, CommandResult]:
    """How the lines end where nothing is in their way."""
    ended = forked(lines, tmp_path_factory.mktemp("whole") / "out", PYTHONIOENCODING="utf-8")
    assert {name: told.code for name, told in ended.items()} == dict.fromkeys(lines, 0)
    return ended


CLOSED = {">&-": "Bad file descriptor", ">/dev/full": "No space left on device"}


@pytest.mark.parametrize(("where", "reason"), CLOSED.items())
def test_what_can_not_be_written_is_told(
    where: str, reason: str, lines: dict[str, list[str]], tmp_path: Path
) -> None:
    ended = forked(lines, tmp_path / "out", where, kept="2")
    said = {name: (told.code, told.stderr.splitlines()[-1]) for name, told in ended.items()}
    assert said == dict.fromkeys(lines, (1, Gist(f"error: the output can't ... {reason}")))
    assert [name for name, told in ended.items() if "Traceback" in told.stderr] == []


def test_closed_streams_are_fine(
    lines: dict[str, list[str]], whole: dict[str, CommandResult], tmp_path: Path
) -> None:
    left = forked(lines, tmp_path / "left", "| true", kept="2")
    assert {name: told.code for name, told in left.items()} == dict.fromkeys(lines, 0)
    assert [
        name for name, told in left.items() if "Traceback" in told.stderr or "gnored" in told.stderr
    ] == []
    for number, where in enumerate(("2>&-", "2>/dev/full")):
        silent = forked(
            {name: lines[name] for name in ("run", "dry-run")},
            tmp_path / f"{number}",
            where,
            kept="1",
        )
        assert [told.code for told in silent.values()] == [0, 0]
        assert silent["run"].stdout == whole["run"].stdout  # the other one measures time


POSIX = {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}


@pytest.mark.parametrize(
    "environment", [{"PYTHONIOENCODING": "ascii"}, POSIX], ids=["ascii", "POSIX"]
)
def test_a_terminal_with_few_characters_is_shown_them_and_a_table_keeps_its_columns(
    environment: dict[str, str],
    lines: dict[str, list[str]],
    whole: dict[str, CommandResult],
    tmp_path: Path,
) -> None:
    ended = forked(lines, tmp_path / "out", **environment)
    assert {name: told.code for name, told in ended.items()} == dict.fromkeys(lines, 0)
    assert [name for name, told in ended.items() if "Traceback" in told.stderr] == []
    assert [name for name, told in ended.items() if not (told.stdout + told.stderr).isascii()] == []
    assert json.loads(ended["score"].stdout)[0]["choice"] == " \U0001f600"
    assert "–" in whole["report"].stdout
    assert ended["report"].stdout == whole["report"].stdout.replace("–", "-")


def test_an_error_is_one_line_where_everything_is_closed(tmp_path: Path) -> None:
    assert (
        forked({"it": ["report", "nowhere"]}, tmp_path / "out", ">&- 2>&-", kept="")["it"].code == 6
    )


PLACES = {
    "data": (["prompts", "--protocol", "mmlu/original", "--data"], 3),
    "mapping": (["prompts", "--protocol", "mmlu/original", "--data", "DATA", "--mapping"], 3),
    "protocol": (["protocols", "show"], 4),
    "model": (["check", "--model"], 5),
    "run": (["report"], 6),
    "explained": (["explain", "--item", "x"], 6),
    "compared": (["compare"], 6),
    "out": (
        ["run", "--model", "fake:hash", "--data", "DATA", "--protocol", "mmlu/original", "--out"],
        6,
    ),
}
"""Name → a line that ends where a path is missing, and its exit code for one that can't be used."""
SUFFIXES = {"mapping": ".toml", "protocol": ".toml", "data": ".jsonl"}


@pytest.fixture
def user(tmp_path: Path) -> str:
    """What makes a line somebody's who may read what everybody may: root may read everything."""
    if os.geteuid() == 0 and not shutil.which("setpriv"):
        pytest.skip("root reads everything, and there is no setpriv to be somebody else")
    for parent in [tmp_path, *tmp_path.parents]:
        if parent.is_relative_to(Path("/tmp")) and parent != Path("/tmp"):
            parent.chmod(0o755)
    user = "setpriv --reuid=65534 --regid=65534 --clear-groups" if os.geteuid() == 0 else ""
    if (
        subprocess.run(
            [*shlex.split(user), sys.executable, "-c", "import choicewise"], check=False
        ).returncode
        != 0
    ):
        pytest.skip("another user can't run this Python")
    return user


@pytest.mark.parametrize("mode", [0o755, 0], ids=["closed files", "closed folders"])
def test_what_can_not_be_read_has_the_exit_code_of_what_it_is(
    mode: int, user: str, tmp_path: Path
) -> None:
    data = str(write_mmlu(tmp_path / "data"))
    asked: dict[str, list[str]] = {}
    (tmp_path / "secret").mkdir()
    for name, (before, _) in PLACES.items():
        suffix, folder = SUFFIXES.get(name, ""), tmp_path / "secret" / name
        file = folder / (f"file{suffix}" if suffix else "run.json")
        folder.mkdir() if suffix else shutil.copytree(data, folder)
        file.write_text("{}")
        file.chmod(0)
        paths = [file] if suffix else []
        if mode == 0:  # a folder is no TOML file by its name
            paths += [folder / f"inside{suffix}", *([folder] if suffix != ".toml" else [])]
        folder.chmod(mode)
        for path in paths:
            asked[f"{name} {path.name}"] = [
                word.replace("DATA", data) for word in (*before, str(path))
            ]
    try:
        ended = forked(asked, tmp_path / "out", user=user)
    finally:
        for folder in (tmp_path / "secret").iterdir():
            folder.chmod(0o755)
    said = {
        name: (told.code, told.stdout, told.stderr[:7], "Traceback" in told.stderr)
        for name, told in ended.items()
    }
    assert said == {name: (PLACES[name.split(" ")[0]][1], "", "error: ", False) for name in asked}


@pytest.mark.parametrize("name", PLACES)
def test_a_folder_in_place_of_a_file_and_a_file_in_place_of_a_folder(
    name: str, tmp_path: Path
) -> None:
    before, code = PLACES[name]
    data, folder, file = (
        write_mmlu(tmp_path / "data"),
        tmp_path / "folder.toml",
        tmp_path / "file.jsonl",
    )
    folder.mkdir()
    (folder / "other").touch()
    file.write_bytes(b"\x00\xff")
    for path in (folder, file, file / "inside", tmp_path / ("x" * 300)):
        if (name != "protocol" or path.suffix == ".toml") and (name != "data" or path != folder):
            ended = choicewise(
                *(word.replace("DATA", str(data)) for word in before), path, code=code
            )
            assert ended.stderr.startswith("error: ")
            assert "Traceback" not in ended.stderr
