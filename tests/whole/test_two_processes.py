"""Two processes on one folder: one of them does the work, the other is refused or finds it done; nothing is damaged."""

from __future__ import annotations

import errno
import fcntl
import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from choicewise import evaluate, open_run
from choicewise.errors import StoreError
from choicewise.running import doctor
from choicewise.running.job import job_of
from choicewise.running.sweep import sweep
from choicewise.store.folder import read_manifest
from choicewise.store.tables import read_blocks
from choicewise.util.files import is_locked, locked
from tests.helpers.mmlu_data import write_mmlu

TIMES = 10
REFUSED = "another process is writing to"
FORK = multiprocessing.get_context("spawn")


def work(barrier: Any, acts: list[tuple[Callable[..., Any], tuple[Any, ...]]], said: Any) -> None:
    """In a process of its own: each of the acts when the other process is as far; says how each ended."""
    for act, arguments in acts:
        barrier.wait(60)
        try:
            act(*arguments)
            said.put("done")
        except StoreError as error:
            said.put(str(error))
        except BaseException as error:
            said.put(f"{type(error).__name__}: {error}")


def together(*sides: list[tuple[Callable[..., Any], tuple[Any, ...]]]) -> list[str]:
    """How all acts ended, of processes that begin each of theirs at the same time."""
    barrier, said = FORK.Barrier(len(sides)), FORK.Queue()
    processes = [FORK.Process(target=work, args=(barrier, acts, said)) for acts in sides]
    for process in processes:
        process.start()
    endings = [said.get(timeout=120) for acts in sides for _ in acts]
    for process in processes:
        process.join(60)
    return endings


def run(data: Path, out: Path) -> None:
    evaluate(model="fake:hash", data=data, protocols=["mmlu/original", "mmlu/cloze"], out=out)


def mend(out: Path) -> None:
    for examined in doctor.repair_runs(out, lambda run, manifest: manifest.files, lambda run, manifest: "line"):
        assert not examined.harmed, examined.harmed


def several(data: Path, out: Path) -> None:
    models = ["fake:hash", "fake:oracle"]
    sweep(job_of({"models": models, "protocols": ["mmlu/original"], "data": [str(data)]}), out)


def check_endings(endings: list[str]) -> None:
    wrong = [each for each in endings if each != "done" and not each.startswith(REFUSED)]
    assert wrong == []
    assert "done" in endings


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_mmlu(tmp_path / "data")


@pytest.fixture
def whole(data: Path, tmp_path: Path) -> Path:
    run(data, tmp_path / "whole")
    return tmp_path / "whole"


def assert_same(out: Path, whole: Path) -> None:
    keys = read_blocks(out, read_manifest(out).blocks, "observations")["key"].to_pylist()
    assert len(keys) == len(set(keys))
    assert open_run(out).report().to_pylist() == open_run(whole).report().to_pylist()
    (examined,) = doctor.examine_runs(out)
    assert [fault for fault in examined.faults if fault.harmful] == []


def test_a_folder_that_two_begin_at_once(data: Path, whole: Path, tmp_path: Path) -> None:
    folders = [tmp_path / f"run-{number}" for number in range(TIMES)]
    acts = [(run, (data, folder)) for folder in folders]
    check_endings(together(acts, list(acts)))
    for folder in folders:
        run(data, folder)  # finished by whoever was first; nothing to do but where that one was refused, too
        assert_same(folder, whole)


def damaged(folder: Path, data: Path) -> None:
    run(data, folder)
    manifest = read_manifest(folder)
    path = folder / "blocks" / manifest.blocks[0].name / "spans.parquet"
    path.write_bytes(path.read_bytes()[:-5])
    (folder / "manifest.json").write_text("{")


def test_two_repairs_at_once(data: Path, whole: Path, tmp_path: Path) -> None:
    folders = [tmp_path / f"run-{number}" for number in range(TIMES)]
    for folder in folders:
        damaged(folder, data)
    acts = [(mend, (folder,)) for folder in folders]
    check_endings(together(acts, list(acts)))
    for folder in folders:
        mend(folder)
        run(data, folder)
        assert_same(folder, whole)


def test_a_run_and_its_examination_and_repair_at_once(data: Path, whole: Path, tmp_path: Path) -> None:
    folders = [tmp_path / f"run-{number}" for number in range(TIMES)]
    for folder in folders:
        run(data, folder)
        manifest = read_manifest(folder)
        path = folder / "blocks" / manifest.blocks[0].name / "spans.parquet"
        path.write_bytes(path.read_bytes()[:-5])
    runs = [(run, (data, folder)) for folder in folders]
    check_endings(together(runs, [(mend, (folder,)) for folder in folders]))
    for folder in folders:
        run(data, folder)
        assert_same(folder, whole)


def test_a_sweep_that_two_begin_at_once(data: Path, tmp_path: Path) -> None:
    folders = [tmp_path / f"sweep-{number}" for number in range(TIMES)]
    acts = [(several, (data, folder)) for folder in folders]
    check_endings(together(acts, list(acts)))
    for folder in folders:
        several(data, folder)
        states = [(each.state, each.harmed) for each in doctor.examine_runs(folder)]
        assert states == [("sweep", []), ("complete", []), ("complete", [])]


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.EBADF, errno.ENOSYS])
def test_a_file_system_without_locks_is_named(
    number: int, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(StoreError, match=r"the file system of .* can't lock it .* a disk of this machine"):
        run(data, tmp_path / "run")
    assert list((tmp_path / "run").iterdir()) == []


def test_a_lock_is_seen_and_ends_with_its_holder(tmp_path: Path) -> None:
    assert not is_locked(tmp_path)
    with locked(tmp_path):
        assert is_locked(tmp_path)
    assert not is_locked(tmp_path)
