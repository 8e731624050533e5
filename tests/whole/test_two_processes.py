"""Two processes on one folder: one of them does the work, the other is refused or finds it done; nothing is damaged."""

import errno
import fcntl
import multiprocessing
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from choicewise import evaluate, open_run
from choicewise.errors import StoreError, UsageError
from choicewise.extensions.cluster.merge import merge
from choicewise.extensions.doctor import examine as doctor
from choicewise.extensions.run.sweep import sweep
from choicewise.running.job import job_of
from choicewise.store.folder import read_manifest
from choicewise.store.tables import read_blocks
from choicewise.util.files import is_locked, locked
from tests.helpers.damage import block, truncate
from tests.helpers.messages import Gist
from tests.helpers.mmlu_data import write_mmlu

TIMES = 10
REFUSED = "process is writing to"
SPAWN = multiprocessing.get_context("spawn")
Act = Callable[[Path, Path], None]  # what a process does with data and a folder


def work(barrier: Any, act: Act, data: Path, folders: list[Path], said: Any) -> None:
    """In a process of its own: the act in each folder when the other process is as far; says how each ended."""
    for folder in folders:
        barrier.wait(60)
        try:
            act(data, folder)
            said.put("done")
        except StoreError as error:
            said.put(str(error))
        except BaseException as error:
            said.put(f"{type(error).__name__}: {error}")


def do_at_once(one: Act, other: Act, data: Path, folders: list[Path]) -> None:
    """Two processes begin each of their acts at the same time: it ends well, or because of the other one."""
    barrier, said = SPAWN.Barrier(2), SPAWN.Queue()
    processes = [
        SPAWN.Process(target=work, args=(barrier, act, data, folders, said)) for act in (one, other)
    ]
    for process in processes:
        process.start()
    endings = [said.get(timeout=120) for _ in range(2 * len(folders))]
    for process in processes:
        process.join(60)
    assert [each for each in endings if each != "done" and each != Gist(REFUSED)] == []
    assert "done" in endings


def run(data: Path, out: Path) -> None:
    evaluate(model="fake:hash", data=data, protocols=["mmlu/original", "mmlu/cloze"], out=out)


def drop(data: Path, out: Path) -> None:
    for examined in doctor.drop_damaged_blocks(out, lambda run, manifest: "line"):
        assert not examined.harmed, examined.harmed


def several(data: Path, out: Path) -> None:
    models = ["fake:hash", "fake:oracle"]
    sweep(job_of({"models": models, "protocols": ["mmlu/original"], "data": [str(data)]}), out)


def join(shards: Path, out: Path) -> None:
    with suppress(UsageError):  # the other process has finished
        merge(sorted(shards.iterdir()), out, lambda path, manifest: "line")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An undisturbed run, beside its data."""
    folder = tmp_path_factory.mktemp("whole")
    run(write_mmlu(folder / "data"), folder / "run")
    return folder / "run"


@pytest.fixture
def data(whole: Path) -> Path:
    return whole.parent / "data"


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    return [tmp_path / f"{number}" for number in range(TIMES)]


def cut_off(folder: Path, whole: Path) -> None:
    """A copy of the run with a damaged block."""
    copytree(whole, folder)
    truncate(block(folder, 0) / "spans.parquet")


def assert_same(out: Path, whole: Path) -> None:
    keys = read_blocks(out, read_manifest(out).blocks, "observations")["key"].to_pylist()
    assert len(keys) == len(set(keys))
    assert open_run(out).report().to_pylist() == open_run(whole).report().to_pylist()
    (examined,) = doctor.examine_runs(out)
    assert examined.harmed == []


def test_a_folder_that_two_begin_at_once(data: Path, whole: Path, folders: list[Path]) -> None:
    do_at_once(run, run, data, folders)
    for folder in folders:
        run(
            data, folder
        )  # finished by whoever was first; nothing to do but where that one was refused, too
        assert_same(folder, whole)


@pytest.mark.parametrize("first", [drop, run])
def test_damaged_blocks_are_dropped_by_two_or_beside_a_run(
    first: Act, data: Path, whole: Path, folders: list[Path]
) -> None:
    for folder in folders:
        cut_off(folder, whole)
    do_at_once(first, drop, data, folders)
    for folder in folders:
        if first is drop:
            drop(data, folder)
        run(data, folder)
        assert_same(folder, whole)


def test_a_sweep_that_two_begin_at_once(data: Path, folders: list[Path]) -> None:
    do_at_once(several, several, data, folders)
    for folder in folders:
        several(data, folder)
        states = [(each.state, each.harmed) for each in doctor.examine_runs(folder)]
        assert states == [("sweep", []), ("complete", []), ("complete", [])]


def test_a_folder_that_two_merge_into_at_once(
    data: Path, whole: Path, folders: list[Path], tmp_path: Path
) -> None:
    shards = tmp_path / "shards"
    for number in (1, 2):
        protocols = ["mmlu/original", "mmlu/cloze"]
        evaluate(
            model="fake:hash",
            data=data,
            protocols=protocols,
            out=shards / f"{number}",
            shard=f"{number}/2",
        )
    do_at_once(join, join, shards, folders)
    for folder in folders:
        assert_same(folder, whole)


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.EBADF, errno.ENOSYS])
def test_a_lack_of_locks_is_named(
    number: int, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(StoreError, match=r"the file system of .* can't lock it .* a local disk"):
        run(data, tmp_path / "run")
    assert list((tmp_path / "run").iterdir()) == []


def test_a_lock_is_seen_and_ends_with_its_holder(tmp_path: Path) -> None:
    assert not is_locked(tmp_path)
    with locked(tmp_path):
        assert is_locked(tmp_path)
    assert not is_locked(tmp_path)
