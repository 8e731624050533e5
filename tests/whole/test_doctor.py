"""Every kind of damage is named, and what can be repaired is; a line then gives the tables that were there."""

import json
import pickle
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from choicewise.errors import StoreError
from choicewise.records import Examined, Remedy
from choicewise.results.run import open_run
from choicewise.running.doctor import examine_runs
from choicewise.store.folder import RunFolder, read_manifest, write_manifest
from choicewise.store.tables import read_blocks
from choicewise.util.files import locked
from tests.helpers.commands import choicewise
from tests.helpers.damage import block, empty, flip, foreign, relist, truncate
from tests.helpers.mmlu_data import set_block_size, write_mmlu

HEALTHY, LACKING, DAMAGED = 0, 7, 8


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    set_block_size(monkeypatch, 5)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of several blocks, beside its data; not to be written to."""
    home = tmp_path_factory.mktemp("home")
    data = write_mmlu(home / "data", questions=12)
    names = ["--protocol", "mmlu/original", "--protocol", "mmlu/cloze:pmi-answer"]
    with pytest.MonkeyPatch.context() as patch:
        set_block_size(patch, 5)
        choicewise("run", "--model", "fake:hash", "--data", data, *names, "--out", home / "run", code=0)
    return home


@pytest.fixture
def run(home: Path, tmp_path: Path) -> Path:
    """A copy of it, whose command names the data that lie beside the first one."""
    return shutil.copytree(home / "run", tmp_path / "run")


def doctor(run: Path, *words: str) -> int:
    return choicewise("doctor", run, *words).code


def examined(folder: Path) -> Examined:
    (only,) = examine_runs(folder)
    return only


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def lose_observations(run: Path) -> None:
    manifest = read_manifest(run)
    table = read_blocks(run, manifest.blocks[:1], "observations")
    RunFolder(run, manifest).replace_observations(manifest.blocks[0].name, table.slice(3))


def other_schema(run: Path) -> None:
    path = block(run) / "spans.parquet"
    foreign(path)
    relist(run, path)


def link(run: Path, path: Path) -> None:
    """Have it lie outside of the run, as on another disk."""
    path.symlink_to(shutil.move(path, run.parent / "elsewhere"))


def link_away(run: Path) -> None:
    (run.parent / "secret").write_text("mine")
    (run / "blocks" / "00099").symlink_to(run.parent)
    (block(run) / "more").symlink_to(run.parent / "secret")


def replace_text(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def edit(run: Path) -> None:
    replace_text(run / "manifest.json", '"name": "fake:hash"', '"name": "GPT-9"')


def rename_block(run: Path) -> None:
    """A forger's manifest whose block lies outside."""
    manifest = read_manifest(run)
    write_manifest(run, replace(manifest, blocks=(replace(manifest.blocks[0], name="../../x"), *manifest.blocks[1:])))
    shutil.copy(run / "manifest.json", run / "manifest.copy.json")


def leftovers(run: Path) -> None:
    (run / "items.parquet.partial").write_bytes(b"PAR1")
    (run / "blocks" / "00031.partial").mkdir()


DAMAGES: list[tuple[Callable[[Path], Any], str, Remedy]] = [
    (lambda run: (block(run) / "spans.parquet").unlink(), "is missing", Remedy.ask_again),
    (lambda run: shutil.rmtree(block(run)), "is missing", Remedy.ask_again),
    (lambda run: truncate(block(run) / "requests.parquet"), "bytes, and had", Remedy.ask_again),
    (lambda run: empty(block(run) / "observations.parquet"), "has 0 bytes", Remedy.ask_again),
    (lambda run: flip(block(run) / "observations.parquet"), "its sha256 differs", Remedy.ask_again),
    (lambda run: foreign(block(run, 0) / "observations.parquet"), "bytes, and had", Remedy.ask_again),
    (other_schema, "holds no table that this version", Remedy.ask_again),
    (lose_observations, "observations that no block holds", Remedy.ask_again),
    (lambda run: truncate(run / "items.parquet"), "bytes, and had", Remedy.write_again),
    (lambda run: (run / "items.parquet").unlink(), "is missing", Remedy.write_again),
    (lambda run: flip(run / "items.parquet"), "its sha256 differs", Remedy.write_again),
    (lambda run: (run / "manifest.json").unlink(), "is missing", Remedy.put_back),
    (lambda run: truncate(run / "manifest.json"), "is damaged", Remedy.put_back),
    (lambda run: empty(run / "manifest.json"), "is damaged", Remedy.put_back),
    (lambda run: (run / "manifest.json").write_text("[]"), "is not a manifest of Choicewise", Remedy.put_back),
    (edit, "was changed after it was written", Remedy.put_back),
    (lambda run: truncate(run / "summary.parquet"), "counts for nothing", Remedy.write_again),
    (lambda run: (run / "summary.parquet").write_bytes(b"\x80\x04."), "counts for nothing", Remedy.write_again),
    (leftovers, "a write left that was killed", Remedy.remove),
    (lambda run: shutil.copytree(block(run), run / "blocks/00031"), "the manifest does not list", Remedy.set_aside),
    (lambda run: (block(run) / "cache").write_bytes(pickle.dumps({"a": 1})), "is a pickle", Remedy.set_aside),
    (lambda run: (block(run) / "notes.txt").write_text("x"), "is not of the run", Remedy.set_aside),
    (lambda run: (run / "blocks" / "x").mkdir(), "is not of the run", Remedy.set_aside),
    (lambda run: link(run, block(run) / "spans.parquet"), "outside the run folder", Remedy.copy),
    (lambda run: link(run, block(run)), "outside the run folder", Remedy.copy),
    (lambda run: link(run, run / "blocks"), "outside the run folder", Remedy.copy),
    (link_away, "what it names is not the run's", Remedy.set_aside),
]


@pytest.mark.parametrize(("damage", "problem", "remedy"), DAMAGES)
def test_damage_is_named_and_repaired(
    damage: Callable[[Path], Any], problem: str, remedy: Remedy, home: Path, run: Path
) -> None:
    expected = open_run(home / "run").report().to_pylist()
    damage(run)
    before = files(run)
    named = [fault for fault in examined(run).harmed if problem in fault.problem]
    assert [fault.remedy for fault in named[:1]] == [remedy], examined(run).faults
    assert doctor(run) == DAMAGED
    assert files(run) == before
    lacking = remedy is Remedy.ask_again
    (told,) = json.loads(choicewise("doctor", run, "--repair", "--json", code=LACKING if lacking else HEALTHY).stdout)
    assert (told["damaged"], told["done"] != [], told["line"] != "") == (0, True, lacking)
    if lacking:
        assert not read_manifest(run).complete
        words = shlex.split(told["line"])
        assert words[:2] == ["choicewise", "run"]
        choicewise(*words[1:], code=0)
    assert open_run(run).report().to_pylist() == expected
    keys = read_blocks(run, read_manifest(run).blocks, "observations")["key"].to_pylist()
    assert len(keys) == len(set(keys))
    assert doctor(run) == HEALTHY


def test_a_whole_run_is_healthy_and_nothing_is_changed(run: Path) -> None:
    before = files(run)
    assert examined(run).faults == []
    assert doctor(run) == doctor(run, "--repair") == HEALTHY
    assert files(run) == before
    assert (examined(run).blocks, examined(run).items) == (len(read_manifest(run).blocks), 24)


FORGED: list[tuple[Callable[[Path], None], str]] = [
    (lambda run: replace_text(run / "manifest.json", '"version": 3', '"version": 99'), "version 99"),
    (rename_block, "'../../x'"),
]


@pytest.mark.parametrize(("forge", "problem"), FORGED)
def test_what_cannot_be_repaired_is_named_and_stays(forge: Callable[[Path], None], problem: str, run: Path) -> None:
    forge(run)
    before = files(run)
    (fault,) = examined(run).harmed
    assert (fault.remedy, problem in fault.problem) == (Remedy.by_hand, True)
    assert doctor(run, "--repair") == DAMAGED
    assert files(run) == before


def test_other_files_are_noted_and_stay(run: Path) -> None:
    (run / "notes.txt").write_text("mine")
    (run / "manifest.copy.json").unlink()
    assert sorted(fault.kind for fault in examined(run).faults) == ["copy", "foreign"]
    assert examined(run).harmed == []
    assert doctor(run, "--repair") == HEALTHY
    assert (run / "notes.txt").read_text() == "mine"


def test_nothing_that_was_observed_is_deleted(run: Path) -> None:
    name = block(run).name
    truncate(block(run) / "spans.parquet")
    observed = (block(run) / "observations.parquet").read_bytes()
    edit(run)
    assert doctor(run, "--repair") == LACKING
    assert (run / "damaged" / f"blocks-{name}" / "observations.parquet").read_bytes() == observed
    assert "GPT-9" in (run / "damaged" / "manifest.json").read_text()
    assert not (run / "blocks" / name).exists()


def test_links_are_not_followed_out_of_the_folder(run: Path) -> None:
    link_away(run)
    assert doctor(run, "--repair") == HEALTHY
    beside = {name: content for name, content in files(run.parent).items() if not name.startswith("run")}
    assert beside == {"secret": b"mine"}


def test_a_running_folder_is_not_touched(run: Path) -> None:
    truncate(block(run) / "spans.parquet")
    before = files(run)
    with locked(run):
        for more in ([], ["--repair"]):
            told = choicewise("doctor", run, *more, code=HEALTHY).stdout
            assert "another process is writing to it; it was not examined" in told
    assert files(run) == before


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is no run folder and holds none"):
        list(examine_runs(tmp_path))


def test_every_run_of_a_sweep_is_examined_and_its_record_comes_back(home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    words = ["sweep", "--model", "fake:hash", "--model", "fake:oracle", "--data", home / "data"]
    words += ["--protocol", "mmlu/original", "--out", folder]
    whole = choicewise(*words, code=0).stdout
    (folder / "sweep.json").write_text("{")
    assert [each.state for each in examine_runs(folder)] == ["sweep", "complete", "complete"]
    assert (doctor(folder), doctor(folder, "--repair")) == (DAMAGED, HEALTHY)
    assert choicewise(*words, code=0).stdout == whole


def test_it_works_without_torch(run: Path) -> None:
    code = "import sys; sys.modules['torch'] = None; from choicewise.cli import main; main()"
    line = [sys.executable, "-c", code, "doctor", str(run)]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr, "nothing is damaged" in done.stdout) == (0, "", True)
