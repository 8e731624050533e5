"""Disks, names, versions and clocks that a run folder meets: named where they are in the way; the rest is usable."""

from __future__ import annotations

import errno
import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from choicewise import evaluate, open_run
from choicewise.cli.commands import invoke
from choicewise.errors import StoreError
from choicewise.records import FileRecord
from choicewise.results.summary import summarize
from choicewise.running.job import LONGEST, folder_name, free_name
from choicewise.store.folder import read_manifest, write_manifest
from choicewise.store.tables import fingerprint
from tests.helpers.mmlu_data import set_block_size, write_mmlu

PROTOCOLS = ["mmlu/original", "mmlu/cloze:pmi-answer"]
NAMES = [
    "../../x",
    "/etc/passwd",
    "m" * 300,
    "con",
    "NUL.txt",
    "a=b",
    "100%",
    "line\nend",
    "..",
    "",
    "-rf",
    "\x1b[2J",
    "é",
]


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


def line(data: Path, out: Path, model: str = "fake:hash") -> list[str]:
    named = [word for protocol in PROTOCOLS for word in ("--protocol", protocol)]
    return ["run", "--model", model, "--data", str(data), *named, "--out", str(out)]


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def foreign(path: Path) -> None:
    shutil.copy(path.parent.parent.parent / "items.parquet", path)


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
    whole = evaluate(model="fake:hash", data=data, protocols=PROTOCOLS, out=tmp_path / "whole")
    flush, count = os.fsync, 0

    def refuse(descriptor: int) -> None:
        nonlocal count
        count += 1
        if count > 40:
            raise OSError(number, os.strerror(number))
        flush(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", refuse)
        with pytest.raises(StoreError, match=said):
            evaluate(model="fake:hash", data=data, protocols=PROTOCOLS, out=tmp_path / "run")
    assert not list((tmp_path / "run").rglob("*.partial"))
    kept = read_manifest(tmp_path / "run")
    assert 0 < len(kept.blocks) < len(whole.manifest.blocks)
    assert len(open_run(tmp_path / "run").report()) == len(whole.report())
    again = evaluate(model="fake:hash", data=data, protocols=PROTOCOLS, out=tmp_path / "run")
    assert again.report().to_pylist() == whole.report().to_pylist()


def test_a_limit_on_the_size_of_files_is_named(data: Path, tmp_path: Path) -> None:
    """A real refusal by the system, in the middle of what pyarrow writes."""
    code = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))\n"
        "from choicewise.cli import main; main()"
    )
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
    command = [sys.executable, "-c", code, *line(data, tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 6
    assert re.search(r"error: .*can't be written: .*File too large.*what was written before is safe", done.stderr)
    assert "Traceback" not in done.stderr
    assert invoke(line(data, tmp_path / "run")) == 0


def test_a_read_only_folder_is_named_and_can_be_read(data: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    run = evaluate(model="fake:hash", data=data, protocols=PROTOCOLS, out=home / "run")
    (home / "run" / "summary.parquet").unlink(missing_ok=True)
    hidden = home / "run" / "blocks" / run.manifest.blocks[0].name / "spans.parquet"
    for path in (home, *home.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        assert as_nobody("report", str(home / "run")).returncode == 0
        assert not (home / "run" / "summary.parquet").exists()
        assert as_nobody(*line(data, home / "run")).returncode == 0  # nothing to do
        refused = as_nobody(*line(data, home / "new"))
        assert (refused.returncode, "can't be written" in refused.stderr) == (6, True)
        hidden.chmod(0)
        told = as_nobody("report", str(home / "run"))
        assert told.returncode == 0
        assert "spans.parquet can't be read: Permission denied; left out" in told.stderr
        examined = as_nobody("doctor", str(home / "run"))
        assert examined.returncode == 8
        assert "make it readable [by hand]" in examined.stdout
    finally:
        for path in (home, *home.rglob("*")):
            path.chmod(0o755)


def as_nobody(*words: str) -> subprocess.CompletedProcess[str]:
    """The command where modes of files hold; for root they do once it gave up to override them."""
    return subprocess.run([sys.executable, "-c", HELD, *words], capture_output=True, text=True, check=False)


# Parts of a folder


@pytest.mark.filterwarnings("always")
@pytest.mark.parametrize("damage", [truncate, empty, foreign, Path.unlink])
def test_report_page_and_compare_go_on_without_a_damaged_block(
    damage: Callable[[Path], None], data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, model in (("run", "fake:hash"), ("other", "fake:oracle")):
        assert invoke(line(data, tmp_path / name, model)) == 0
    path = tmp_path / "run" / "blocks" / "00001" / "spans.parquet"
    damage(path)
    both = [str(tmp_path / "run"), str(tmp_path / "other")]
    for words in (["report", *both], ["compare", *both], ["page", *both, "--out", str(tmp_path / "page.html")]):
        capsys.readouterr()
        assert invoke(words) == 0
        assert f"{path} " in capsys.readouterr().err, words


@pytest.mark.filterwarnings("always")
@pytest.mark.parametrize("change", ["older block", "newer manifest", "truncated manifest", "item table"])
def test_other_versions_and_lost_parts_are_named_and_the_rest_is_reported(
    change: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, model in (("run", "fake:hash"), ("other", "fake:oracle")):
        assert invoke(line(data, tmp_path / "runs" / name, model)) == 0
    run = tmp_path / "runs" / "run"
    match change:
        case "older block":
            path = run / "blocks" / "00001" / "spans.parquet"
            foreign(path)
            listed(run, path)
        case "newer manifest":
            path = run / "manifest.json"
            path.write_text(path.read_text().replace('"version": 3', '"version": 4', 1))
        case "truncated manifest":
            path = run / "manifest.json"
            truncate(path)
        case _:
            path = run / "items.parquet"
            truncate(path)
    capsys.readouterr()
    assert invoke(["report", str(tmp_path / "runs")]) == 0
    told = capsys.readouterr()
    assert str(path) in told.err
    assert "fake:oracle" in told.out
    assert ("fake:hash" in told.out) == (change == "older block")
    assert invoke(["page", str(tmp_path / "runs"), "--out", str(tmp_path / "page.html")]) == 0


def listed(run: Path, path: Path) -> None:
    manifest = read_manifest(run)
    record: FileRecord = fingerprint(path.read_bytes())
    blocks = tuple(
        replace(block, files={**block.files, path.name: record}) if block.name == path.parent.name else block
        for block in manifest.blocks
    )
    write_manifest(run, replace(manifest, blocks=blocks))


def test_a_planted_link_is_not_written_through(data: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "run").mkdir()
    for name in ("items.parquet", "manifest.json", "summary.parquet"):
        (tmp_path / "run" / f"{name}.partial").symlink_to(tmp_path / "mine")
    assert invoke(line(data, tmp_path / "run")) == 0
    assert (tmp_path / "mine").read_text() == "mine"
    assert not list((tmp_path / "run").glob("*.partial"))


@pytest.mark.parametrize("second", [0, 1_000_000_000, 4_000_000_000])
def test_no_number_depends_on_the_clock(second: int, data: Path, tmp_path: Path) -> None:
    run = evaluate(model="fake:hash", data=data, protocols=PROTOCOLS, out=tmp_path / "run")
    whole, report = summarize(run.folder).rows, run.report().to_pylist()
    for number, path in enumerate(sorted(run.folder.rglob("*"))):
        os.utime(path, (second + number, second + number))
    assert repr(summarize(run.folder).rows) == repr(whole)
    (block,) = (run.folder / "blocks").glob("00001")
    truncate(block / "spans.parquet")
    os.utime(block / "spans.parquet", (1, 1))
    again = evaluate(model="fake:hash", data=data, protocols=PROTOCOLS, out=run.folder)
    assert again.report().to_pylist() == report


# Names


@pytest.mark.parametrize("name", NAMES)
def test_a_name_becomes_one_folder(name: str, tmp_path: Path) -> None:
    folder = folder_name(name)
    assert re.fullmatch(r"[\w.@+-]+", folder, re.ASCII)
    assert 0 < len(folder) <= LONGEST + 1
    assert folder.strip(".") == folder
    assert not folder.startswith("-")
    (tmp_path / folder).mkdir()
    assert [path.name for path in tmp_path.iterdir()] == [folder]


def test_names_that_look_alike_have_folders_of_their_own() -> None:
    long = ["m" * 300, "m" * 299 + "n"]
    assert len({folder_name(name) for name in long}) == 2
    assert free_name("con", ["CON"]) == "con-2"
    assert free_name("a", ["A", "a-2"]) == "a-3"


def test_a_sweep_of_oddly_named_models_records_each_and_goes_on(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [name for name in NAMES if name]
    words = [word for name in (*names, "fake:hash") for word in ("--model", name)]
    out = tmp_path / "a" / "b" / "sweep"
    assert invoke(["sweep", *words, "--data", str(data), "--protocol", "mmlu/original", "--out", str(out)]) == 7
    told = capsys.readouterr()
    assert f"{len(names)} of {len(names) + 1} runs are missing" in told.err
    assert "\x1b" not in told.err
    assert sorted(path.name for path in out.iterdir()) == ["fake-hash", "sweep.copy.json", "sweep.json"]
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b"]
