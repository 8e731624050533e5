"""Every kind of damage is named, and what can be repaired is; a line then gives the tables that were there."""

from __future__ import annotations

import json
import pickle
import re
import shlex
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from choicewise.cli.commands import invoke
from choicewise.errors import StoreError
from choicewise.records import Examined, Remedy
from choicewise.results.run import open_run
from choicewise.running.doctor import examine_runs
from choicewise.store.folder import RunFolder, read_manifest, write_manifest
from choicewise.store.tables import fingerprint, read_blocks
from choicewise.util.files import locked
from tests.helpers.mmlu_data import set_block_size, write_mmlu

HEALTHY, LACKING, DAMAGED = 0, 7, 8


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    set_block_size(monkeypatch, 5)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of several blocks, beside its data; not to be written to."""
    home = tmp_path_factory.mktemp("made")
    write_mmlu(home / "data", questions=12)
    with pytest.MonkeyPatch.context() as patch:
        set_block_size(patch, 5)
        assert invoke(line(home)) == 0
    return home


def line(home: Path) -> list[str]:
    names = ["--protocol", "mmlu/original", "--protocol", "mmlu/cloze:pmi-answer"]
    return ["run", "--model", "fake:hash", "--data", str(home / "data"), *names, "--out", str(home / "run")]


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    """A copy of it, whose command names the data that lie beside the first one."""
    shutil.copytree(made / "run", tmp_path / "run")
    return tmp_path / "run"


def examined(folder: Path) -> Examined:
    (only,) = examine_runs(folder)
    return only


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def foreign(path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), path)


def relist(run: Path, block: int, table: str) -> None:
    """Have the manifest list a file as it is now, as somebody might who forges it well."""
    manifest = read_manifest(run)
    record = manifest.blocks[block]
    name = f"{table}.parquet"
    own = fingerprint((run / "blocks" / record.name / name).read_bytes())
    blocks = list(manifest.blocks)
    blocks[block] = replace(record, files={**record.files, name: own})
    write_manifest(run, replace(manifest, blocks=tuple(blocks)))


def lose_observations(run: Path) -> None:
    manifest = read_manifest(run)
    table = read_blocks(run, manifest.blocks[:1], "observations")
    RunFolder(run, manifest).replace_observations(manifest.blocks[0].name, table.slice(3))


def other_schema(run: Path) -> None:
    path = run / "blocks" / read_manifest(run).blocks[1].name / "spans.parquet"
    foreign(path)
    relist(run, 1, "spans")


def block(run: Path, number: int = 1) -> Path:
    return run / "blocks" / read_manifest(run).blocks[number].name


def pickled(run: Path) -> None:
    (block(run) / "cache").write_bytes(pickle.dumps({"a": 1}))


def link_file(run: Path) -> None:
    path = block(run) / "spans.parquet"
    shutil.move(path, run.parent / "elsewhere.parquet")
    path.symlink_to(run.parent / "elsewhere.parquet")


def link_block(run: Path) -> None:
    path = block(run)
    shutil.move(path, run.parent / "elsewhere")
    path.symlink_to(run.parent / "elsewhere")


def link_blocks(run: Path) -> None:
    shutil.move(run / "blocks", run.parent / "elsewhere")
    (run / "blocks").symlink_to(run.parent / "elsewhere")


def link_away(run: Path) -> None:
    (run.parent / "secret").write_text("mine")
    (run / "blocks" / "00099").symlink_to(run.parent)
    (block(run) / "more").symlink_to(run.parent / "secret")


def edit(run: Path) -> None:
    path = run / "manifest.json"
    path.write_text(path.read_text().replace('"name": "fake:hash"', '"name": "GPT-9"'))


def rename_block(run: Path) -> None:
    """A forger's manifest whose block lies outside."""
    manifest = read_manifest(run)
    write_manifest(run, replace(manifest, blocks=(replace(manifest.blocks[0], name="../../x"), *manifest.blocks[1:])))
    shutil.copy(run / "manifest.json", run / "manifest.copy.json")


def newer_manifest(run: Path) -> None:
    path = run / "manifest.json"
    path.write_text(path.read_text().replace('"version": 3', '"version": 99', 1))


def leftovers(run: Path) -> None:
    (run / "items.parquet.partial").write_bytes(b"PAR1")
    (run / "blocks" / "00031.partial").mkdir()


def unlisted(run: Path) -> None:
    shutil.copytree(block(run), run / "blocks" / "00031")


def forge_summary(run: Path) -> None:
    """Every value is 99.9 %, and the manifest lists the file as if it had been written so."""
    path = run / "summary.parquet"
    table = pq.read_table(path)
    rows = [re.sub(r'"value": [0-9.]+', '"value": 0.999', text) for text in table["rows"].to_pylist()]
    pq.write_table(table.set_column(table.schema.names.index("rows"), "rows", pa.array(rows)), path)
    manifest = read_manifest(run)
    write_manifest(run, replace(manifest, files={**manifest.files, path.name: fingerprint(path.read_bytes())}))


DAMAGES: list[tuple[Callable[[Path], None], str, Remedy, int]] = [
    (lambda run: (block(run) / "spans.parquet").unlink(), "is missing", Remedy.ask_again, LACKING),
    (lambda run: shutil.rmtree(block(run)), "is missing", Remedy.ask_again, LACKING),
    (lambda run: truncate(block(run) / "requests.parquet"), "bytes, and had", Remedy.ask_again, LACKING),
    (lambda run: empty(block(run) / "observations.parquet"), "has 0 bytes", Remedy.ask_again, LACKING),
    (lambda run: flip(block(run) / "observations.parquet"), "its sha256 differs", Remedy.ask_again, LACKING),
    (lambda run: foreign(block(run, 0) / "observations.parquet"), "bytes, and had", Remedy.ask_again, LACKING),
    (other_schema, "holds no table that this version", Remedy.ask_again, LACKING),
    (lose_observations, "observations that no block holds", Remedy.ask_again, LACKING),
    (lambda run: truncate(run / "items.parquet"), "bytes, and had", Remedy.write_again, HEALTHY),
    (lambda run: (run / "items.parquet").unlink(), "is missing", Remedy.write_again, HEALTHY),
    (lambda run: flip(run / "items.parquet"), "its sha256 differs", Remedy.write_again, HEALTHY),
    (lambda run: (run / "manifest.json").unlink(), "is missing", Remedy.put_back, HEALTHY),
    (lambda run: truncate(run / "manifest.json"), "is damaged", Remedy.put_back, HEALTHY),
    (lambda run: empty(run / "manifest.json"), "is damaged", Remedy.put_back, HEALTHY),
    (lambda run: (run / "manifest.json").write_text("[]"), "is not a manifest of Choicewise", Remedy.put_back, HEALTHY),
    (edit, "was changed after it was written", Remedy.put_back, HEALTHY),
    (lambda run: truncate(run / "summary.parquet"), "counts for nothing", Remedy.write_again, HEALTHY),
    (
        lambda run: (run / "summary.parquet").write_bytes(b"\x80\x04."),
        "counts for nothing",
        Remedy.write_again,
        HEALTHY,
    ),
    (leftovers, "a write left that was killed", Remedy.remove, HEALTHY),
    (unlisted, "the manifest does not list", Remedy.set_aside, HEALTHY),
    (pickled, "is a pickle", Remedy.set_aside, HEALTHY),
    (lambda run: (block(run) / "notes.txt").write_text("x"), "is not of the run", Remedy.set_aside, HEALTHY),
    (lambda run: (run / "blocks" / "x").mkdir(), "is not of the run", Remedy.set_aside, HEALTHY),
    (link_file, "outside the run folder", Remedy.copy, HEALTHY),
    (link_block, "outside the run folder", Remedy.copy, HEALTHY),
    (link_blocks, "outside the run folder", Remedy.copy, HEALTHY),
    (link_away, "what it names is not the run's", Remedy.set_aside, HEALTHY),
]


@pytest.mark.parametrize(("damage", "problem", "remedy", "code"), DAMAGES)
def test_damage_is_named_and_repaired(
    damage: Callable[[Path], Any],
    problem: str,
    remedy: Remedy,
    code: int,
    made: Path,
    run: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    expected = open_run(made / "run").report().to_pylist()
    damage(run)
    before = files(run)
    named = [fault for fault in examined(run).harmed if problem in fault.problem]
    assert [fault.remedy for fault in named[:1]] == [remedy], examined(run).faults
    assert invoke(["doctor", str(run)]) == DAMAGED
    assert files(run) == before
    capsys.readouterr()
    assert invoke(["doctor", str(run), "--repair", "--json"]) == code
    (told,) = json.loads(capsys.readouterr().out)
    assert told["damaged"] == 0
    assert told["done"]
    assert (told["line"] != "") == (code == LACKING)
    if told["line"]:
        assert not read_manifest(run).complete
        words = shlex.split(told["line"])
        assert words[:2] == ["choicewise", "run"]
        assert invoke(words[1:]) == 0
    assert open_run(run).report().to_pylist() == expected
    keys = read_blocks(run, read_manifest(run).blocks, "observations")["key"].to_pylist()
    assert len(keys) == len(set(keys))
    assert invoke(["doctor", str(run)]) == HEALTHY


def test_a_whole_run_is_healthy_and_nothing_is_changed(made: Path, run: Path) -> None:
    before = files(run)
    assert examined(run).faults == []
    assert invoke(["doctor", str(run)]) == invoke(["doctor", str(run), "--repair"]) == HEALTHY
    assert files(run) == before
    assert examined(run).blocks == len(read_manifest(run).blocks)
    assert examined(run).items == 24


@pytest.mark.parametrize("forge", [newer_manifest, rename_block])
def test_what_cannot_be_repaired_is_named_and_stays(forge: Callable[[Path], None], run: Path) -> None:
    forge(run)
    before = files(run)
    (fault,) = examined(run).harmed
    assert fault.remedy == Remedy.by_hand
    assert ("version 99" if forge is newer_manifest else "'../../x'") in fault.problem
    assert invoke(["doctor", str(run), "--repair"]) == DAMAGED
    assert files(run) == before


def test_other_files_are_noted_and_stay(run: Path) -> None:
    (run / "notes.txt").write_text("mine")
    (run / "manifest.copy.json").unlink()
    assert sorted(fault.kind for fault in examined(run).faults) == ["copy", "foreign"]
    assert examined(run).harmed == []
    assert invoke(["doctor", str(run), "--repair"]) == HEALTHY
    assert (run / "notes.txt").read_text() == "mine"


def test_nothing_that_was_observed_is_deleted(run: Path) -> None:
    truncate(block(run) / "spans.parquet")
    kept = (block(run) / "observations.parquet").read_bytes()
    edit(run)
    name = json.loads((run / "manifest.copy.json").read_text())["blocks"][1]["name"]
    assert invoke(["doctor", str(run), "--repair"]) == LACKING
    aside = run / "damaged" / f"blocks-{name}"
    assert (aside / "observations.parquet").read_bytes() == kept
    assert "GPT-9" in (run / "damaged" / "manifest.json").read_text()
    assert not (run / "blocks" / name).exists()


def test_links_are_not_followed_out_of_the_folder(run: Path) -> None:
    link_away(run)
    before = files(run.parent)
    assert invoke(["doctor", str(run), "--repair"]) == HEALTHY
    assert (run.parent / "secret").read_text() == "mine"
    assert {name for name in before if not name.startswith("run")} == {"secret"}


def test_a_running_folder_is_not_touched(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    truncate(block(run) / "spans.parquet")
    before = files(run)
    with locked(run):
        for more in ([], ["--repair"]):
            assert invoke(["doctor", str(run), *more]) == HEALTHY
            assert "another process is writing to it; it was not examined" in capsys.readouterr().out
    assert files(run) == before


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is no run folder and holds none"):
        list(examine_runs(tmp_path))


def test_every_run_of_a_sweep_is_examined_and_its_record_comes_back(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["sweep", "--model", "fake:hash", "--model", "fake:oracle", "--data", str(made / "data")]
    words += ["--protocol", "mmlu/original", "--out", str(tmp_path / "sweep")]
    assert invoke(words) == 0
    whole = capsys.readouterr().out
    (tmp_path / "sweep" / "sweep.json").write_text("{")
    states = [each.state for each in examine_runs(tmp_path / "sweep")]
    assert states == ["sweep", "complete", "complete"]
    assert invoke(["doctor", str(tmp_path / "sweep")]) == DAMAGED
    assert invoke(["doctor", str(tmp_path / "sweep"), "--repair"]) == HEALTHY
    capsys.readouterr()
    assert invoke(words) == 0
    assert capsys.readouterr().out == whole


def test_it_works_without_torch(run: Path) -> None:
    import subprocess
    import sys

    code = (
        "import sys; sys.modules['torch'] = None; sys.argv = ['choicewise', 'doctor', sys.argv[1]]\n"
        "from choicewise.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code, str(run)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "nothing is damaged" in done.stdout
