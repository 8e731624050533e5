"""Disks, names, versions and clocks that a run folder meets: named where they are in the way; the rest is usable."""

import errno
import os
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from choicewise import evaluate, open_run
from choicewise.errors import StoreError
from choicewise.results.run import Run
from choicewise.results.summary import summarize
from choicewise.running.job import LONGEST, folder_name, free_name
from choicewise.store.folder import read_manifest
from tests.helpers.commands import choicewise
from tests.helpers.damage import empty, foreign, relist, truncate
from tests.helpers.mmlu_data import set_block_size, write_mmlu

PROTOCOLS = ["mmlu/original", "mmlu/cloze:pmi-answer"]
NAMES = ["../../x", "/etc/passwd", "m" * 300, "con", "NUL.txt", "a=b", "100%", "line\nend", "..", "", "-rf", "\x1b[2J"]
NAMES += ["é"]


HELD = """
import ctypes, os
if os.geteuid() == 0:
    libc, head, data = ctypes.CDLL(None, use_errno=True), (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    assert libc.capget(head, data) == 0
    data[0] &= ~0b1110  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER
    assert libc.capset(head, data) == 0
from choicewise.cli import main
main()
"""
"""Starts the command."""


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    set_block_size(monkeypatch, 5)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_mmlu(tmp_path / "data", questions=12)


def run_of(data: Path, out: Path) -> Run:
    return evaluate(model="fake:hash", data=data, protocols=PROTOCOLS, out=out)


def line(data: Path, out: Path, model: str = "fake:hash") -> list[str]:
    named = [word for protocol in PROTOCOLS for word in ("--protocol", protocol)]
    return ["run", "--model", model, "--data", str(data), *named, "--out", str(out)]


def python(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)


# Disks


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.ENOSPC, "the disk is full while writing .* free some space and run the same command again"),
        (errno.EDQUOT, "your quota of the disk is used up while writing .* free some space"),
        (errno.EROFS, "can't be written: Read-only file system; choose another folder"),
        (errno.EIO, "can't be written: .* what was written before is safe"),
    ],
)
def test_what_the_disk_refuses_is_named_and_the_same_line_goes_on(
    number: int, said: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run_of(data, tmp_path / "whole")
    asked: list[int] = []

    def refuse(descriptor: int) -> None:
        asked.append(descriptor)
        if len(asked) > 40:
            raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched, pytest.raises(StoreError, match=said):
        patched.setattr(os, "fsync", refuse)
        run_of(data, tmp_path / "run")
    assert not list((tmp_path / "run").rglob("*.partial"))
    assert 0 < len(read_manifest(tmp_path / "run").blocks) < len(whole.manifest.blocks)
    assert len(open_run(tmp_path / "run").report()) == len(whole.report())
    assert run_of(data, tmp_path / "run").report().to_pylist() == whole.report().to_pylist()


def test_a_limit_on_the_size_of_files_is_named(data: Path, tmp_path: Path) -> None:
    """A real refusal by the system, in the middle of what pyarrow writes."""
    code = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))\n"
        "from choicewise.cli import main; main()"
    )
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
    done = python(code, *line(data, tmp_path / "run"))
    assert (done.returncode, "Traceback" in done.stderr) == (6, False)
    assert re.search(r"error: .*can't be written: .*File too large.*what was written before is safe", done.stderr)
    choicewise(*line(data, tmp_path / "run"), code=0)


def test_a_read_only_folder_is_named_and_can_be_read(data: Path, tmp_path: Path) -> None:
    """Where modes of files hold: for root they do once it gave up to override them."""
    home, run = tmp_path / "home", tmp_path / "home" / "run"
    hidden = run / "blocks" / run_of(data, run).manifest.blocks[0].name / "spans.parquet"
    (run / "summary.parquet").unlink(missing_ok=True)
    for path in (home, *home.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        assert python(HELD, "report", str(run)).returncode == 0
        assert not (run / "summary.parquet").exists()
        assert python(HELD, *line(data, run)).returncode == 0  # nothing to do
        refused = python(HELD, *line(data, home / "new"))
        assert (refused.returncode, "can't be written" in refused.stderr) == (6, True)
        hidden.chmod(0)
        told = python(HELD, "report", str(run))
        assert told.returncode == 0
        assert "spans.parquet can't be read: Permission denied; left out" in told.stderr
        examined = python(HELD, "doctor", str(run))
        assert (examined.returncode, "make it readable [by hand]" in examined.stdout) == (8, True)
    finally:
        for path in (home, *home.rglob("*")):
            path.chmod(0o755)


# Parts of a folder


@pytest.fixture
def runs(data: Path, tmp_path: Path) -> Path:
    """The folder of two runs, ``run`` and ``other``."""
    for name, model in (("run", "fake:hash"), ("other", "fake:oracle")):
        choicewise(*line(data, tmp_path / "runs" / name, model), code=0)
    return tmp_path / "runs"


@pytest.mark.filterwarnings("always")
@pytest.mark.parametrize("damage", [truncate, empty, foreign, Path.unlink])
def test_report_page_and_compare_go_on_without_a_damaged_block(damage: Callable[[Path], None], runs: Path) -> None:
    path, both = runs / "run" / "blocks" / "00001" / "spans.parquet", [runs / "run", runs / "other"]
    damage(path)
    for words in (["report", *both], ["compare", *both], ["page", *both, "--out", runs / "page.html"]):
        assert f"{path} " in choicewise(*words, code=0).stderr, words


def of_an_older_version(path: Path) -> None:
    foreign(path)
    relist(path.parents[2], path)


def of_a_newer_version(path: Path) -> None:
    path.write_text(path.read_text().replace('"version": 3', '"version": 4', 1))


@pytest.mark.filterwarnings("always")
@pytest.mark.parametrize(
    ("damage", "name"),
    [
        (of_an_older_version, "blocks/00001/spans.parquet"),
        (of_a_newer_version, "manifest.json"),
        (truncate, "manifest.json"),
        (truncate, "items.parquet"),
    ],
)
def test_other_versions_and_lost_parts_are_named_and_the_rest_is_reported(
    damage: Callable[[Path], None], name: str, runs: Path
) -> None:
    damage(runs / "run" / name)
    told = choicewise("report", runs, code=0)
    assert str(runs / "run" / name) in told.stderr
    assert ("fake:oracle" in told.stdout, "fake:hash" in told.stdout) == (True, damage is of_an_older_version)
    choicewise("page", runs, "--out", runs / "page.html", code=0)


def test_a_planted_link_is_not_written_through(data: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "run").mkdir()
    for name in ("items.parquet", "manifest.json", "summary.parquet"):
        (tmp_path / "run" / f"{name}.partial").symlink_to(tmp_path / "mine")
    choicewise(*line(data, tmp_path / "run"), code=0)
    assert (tmp_path / "mine").read_text() == "mine"
    assert not list((tmp_path / "run").glob("*.partial"))


@pytest.mark.parametrize("second", [0, 1_000_000_000, 4_000_000_000])
def test_no_number_depends_on_the_clock(second: int, data: Path, tmp_path: Path) -> None:
    run = run_of(data, tmp_path / "run")
    whole, report = summarize(run.folder).rows, run.report().to_pylist()
    for number, path in enumerate(sorted(run.folder.rglob("*"))):
        os.utime(path, (second + number, second + number))
    assert repr(summarize(run.folder).rows) == repr(whole)
    spans = run.folder / "blocks" / "00001" / "spans.parquet"
    truncate(spans)
    os.utime(spans, (1, 1))
    assert run_of(data, run.folder).report().to_pylist() == report


# Names


@pytest.mark.parametrize("name", NAMES)
def test_a_name_becomes_one_folder(name: str, tmp_path: Path) -> None:
    folder = folder_name(name)
    assert re.fullmatch(r"[\w.@+-]+", folder, re.ASCII)
    assert 0 < len(folder) <= LONGEST + 1
    assert (folder.strip("."), folder.startswith("-")) == (folder, False)
    (tmp_path / folder).mkdir()
    assert [path.name for path in tmp_path.iterdir()] == [folder]


def test_names_that_look_alike_have_folders_of_their_own() -> None:
    assert folder_name("m" * 300) != folder_name("m" * 299 + "n")
    assert (free_name("con", ["CON"]), free_name("a", ["A", "a-2"])) == ("con-2", "a-3")


def test_a_sweep_of_oddly_named_models_records_each_and_goes_on(data: Path, tmp_path: Path) -> None:
    names, out = [name for name in NAMES if name], tmp_path / "a" / "b" / "sweep"
    words = [word for name in (*names, "fake:hash") for word in ("--model", name)]
    told = choicewise("sweep", *words, "--data", data, "--protocol", "mmlu/original", "--out", out, code=7)
    assert f"{len(names)} of {len(names) + 1} runs are missing" in told.stderr
    assert "\x1b" not in told.stderr
    assert sorted(path.name for path in out.iterdir()) == ["fake-hash", "sweep.copy.json", "sweep.json"]
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b"]
