"""The run folder: complete or not at all, one measurement a folder, one writer at a time."""

from __future__ import annotations

import errno
import hashlib
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from choicewise.errors import StoreError
from choicewise.records import (
    ITEMS,
    BlockRecord,
    DatasetRecord,
    EngineRecord,
    FileRecord,
    ItemRow,
    Manifest,
    ModelRecord,
    ObservationRow,
    RequestRow,
    Selection,
    SelfCheckRecord,
    SkippedRow,
    SpanRow,
    Spent,
)
from choicewise.store.folder import check_folder, open_folder, read_manifest
from choicewise.store.tables import (
    SCHEMAS,
    fingerprint,
    make_table,
    read_blocks,
    read_items,
    read_table,
    write_arrow,
    write_block,
    write_items,
)
from choicewise.util import files as atomic
from choicewise.util.files import disk_errors, new_file, new_folder, write_text

ITEM = ItemRow(0, "test", "q", "s", "?", ["a", "b"], [1], "{}")
ROWS = {"test": [ITEM]}
OBSERVATION = ObservationRow("k", [1, 2], [1, 1], [-1.0, -0.5], [0, 3])
TABLES: dict[str, list[Any]] = {"requests": [], "spans": [], "observations": [OBSERVATION]}
PLACE = ("test", "s", 0, 1)
MODEL = ModelRecord("m", "1", "float32", "cpu", 8)
DATASET = DatasetRecord("d", "2", (SkippedRow("test.csv", 3, "no answer"),), {"c": {"b": ["s"]}})
CHECK = SelfCheckRecord("tree", "", 2e-5, 1e-5, 3e-5, 200)


def manifest(**changes: Any) -> Manifest:
    content: dict[str, Any] = {
        "model": MODEL,
        "dataset": DATASET,
        "selection": Selection(),
        "protocols": {"p": "signature"},
        "versions": {},
    }
    return Manifest(**{**content, **changes})


def fill(folder: Path) -> None:
    with open_folder(folder, manifest(), ROWS) as run:
        run.add_block(PLACE, ["ask"], TABLES)
        run.finish()


def state(folder: Path) -> dict[str, tuple[int, bytes]]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def test_a_block_is_read_back_as_written(tmp_path: Path) -> None:
    fill(tmp_path / "run")
    found = read_manifest(tmp_path / "run")
    assert found.complete
    assert found.blocks[0].asks == ("ask",)
    assert read_blocks(tmp_path / "run", found.blocks, "observations").to_pylist() == [OBSERVATION._asdict()]
    assert read_blocks(tmp_path / "run", (), "spans").schema == SCHEMAS["spans"]


def test_opening_a_complete_folder_again_changes_no_byte_and_no_time(tmp_path: Path) -> None:
    fill(tmp_path / "run")
    before = state(tmp_path / "run")
    with open_folder(tmp_path / "run", manifest(), ROWS) as run:
        assert run.missing("test", "s", 1, ["ask"]) == []
        run.finish()
    assert state(tmp_path / "run") == before


def test_new_protocols_join_and_reopen_the_folder(tmp_path: Path) -> None:
    fill(tmp_path / "run")
    with open_folder(tmp_path / "run", manifest(protocols={"q": "other"}), ROWS) as run:
        assert run.manifest.protocols == {"p": "signature", "q": "other"}
        assert run.missing("test", "s", 1, ["ask", "new"]) == [(0, 1, ["new"])]
    assert not read_manifest(tmp_path / "run").complete


def test_the_engine_is_described_once(tmp_path: Path) -> None:
    with open_folder(tmp_path / "run", manifest(), ROWS) as run:
        run.describe(CHECK)
        run.describe(replace(CHECK, rung="sequence"))
    assert read_manifest(tmp_path / "run").engine == EngineRecord(CHECK)


def test_what_blocks_took_adds_up_beside_the_self_check(tmp_path: Path) -> None:
    with open_folder(tmp_path / "run", manifest(), ROWS) as run:
        run.describe(CHECK)
        for start, spent in enumerate([None, Spent(50, 10, 1.5), Spent(5, 1, 0.25)]):
            run.add_block(("test", "s", start, start + 1), ["ask"], TABLES, spent)
    assert read_manifest(tmp_path / "run").engine == EngineRecord(CHECK, Spent(55, 11, 1.75))


def test_every_row_has_the_columns_of_its_schema() -> None:
    rows = {"requests": RequestRow, "spans": SpanRow, "observations": ObservationRow}
    assert {table: list(row._fields) for table, row in rows.items()} == {
        table: schema.names for table, schema in SCHEMAS.items()
    }
    assert list(ItemRow._fields) == ITEMS.names


def test_an_observation_may_have_a_total_and_no_tokens(tmp_path: Path) -> None:
    total = ObservationRow("total", (), (), (), (), total=-3.5)
    path = tmp_path / "observations.parquet"
    write_arrow(path, make_table(SCHEMAS["observations"], [OBSERVATION, total]))
    table = read_table(path, SCHEMAS["observations"], fingerprint(path.read_bytes()))
    assert table["total"].to_pylist() == [None, -3.5]
    assert table["tokens"].to_pylist() == [[1, 2], []]


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("model", replace(MODEL, digest="9")),
        ("model", replace(MODEL, dtype="bfloat16")),
        ("dataset", replace(DATASET, digest="9")),
        ("selection", Selection(limit=3)),
    ],
)
def test_another_measurement_is_refused(tmp_path: Path, part: str, value: Any) -> None:
    fill(tmp_path / "run")
    before = state(tmp_path / "run")
    with (
        pytest.raises(StoreError, match=f"another {part} .*choose another folder"),
        open_folder(tmp_path / "run", manifest(**{part: value}), ROWS),
    ):
        pass
    assert state(tmp_path / "run") == before


@pytest.mark.parametrize(
    ("there", "here", "reason"),
    [
        (
            {"selection": Selection(limit=2)},
            {"selection": Selection(limit=3)},
            "(selection limit is 2 there and 3 here); go on there with the old selection, or choose another folder",
        ),
        (
            {"dataset": DatasetRecord("d", "0123456789abcdef" * 4)},
            {"dataset": DatasetRecord("d", "f" * 64)},
            "(dataset digest is 0123456789ab there and ffffffffffff here);",
        ),
    ],
)
def test_the_difference_to_another_measurement_is_named_with_both_ways_on(
    tmp_path: Path, there: dict[str, Any], here: dict[str, Any], reason: str
) -> None:
    with open_folder(tmp_path, manifest(**there), {}):
        pass
    with pytest.raises(StoreError, match=re.escape(reason)), open_folder(tmp_path, manifest(**here), {}):
        pass


def test_the_same_name_for_another_protocol_is_refused(tmp_path: Path) -> None:
    fill(tmp_path / "run")
    changed = manifest(protocols={"p": "another signature"})
    with (
        pytest.raises(StoreError, match="another protocol under the name p"),
        open_folder(tmp_path / "run", changed, {}),
    ):
        pass


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(StoreError, match="holds other files"), open_folder(tmp_path, manifest(), {}):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_complete_folder_need_not_be_writable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path / "run")
    monkeypatch.setattr("os.access", lambda *_: False)
    check_folder(tmp_path / "run")
    with pytest.raises(StoreError, match="can't be written"):
        check_folder(tmp_path / "other" / "run")


def test_a_folder_that_no_file_system_takes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="can't be written"):
        check_folder(tmp_path / ("x" * 300))


def test_a_second_writer_is_kept_out(tmp_path: Path) -> None:
    with (
        open_folder(tmp_path / "run", manifest(), ROWS),
        pytest.raises(StoreError, match="another process"),
        open_folder(tmp_path / "run", manifest(), ROWS),
    ):
        pass


def test_a_killed_write_leaves_the_old_state(tmp_path: Path) -> None:
    fill(tmp_path / "run")
    before = state(tmp_path / "run")
    with pytest.raises(KeyboardInterrupt), new_folder(tmp_path / "run" / "blocks" / "00001") as partial:
        (partial / "spans.parquet").write_bytes(b"half")
        raise KeyboardInterrupt
    assert state(tmp_path / "run") == before


def test_leftovers_of_a_kill_are_removed_and_unlisted_blocks_do_not_count(tmp_path: Path) -> None:
    fill(tmp_path / "run")
    blocks = tmp_path / "run" / "blocks"
    (blocks / "00001.partial").mkdir()
    write_block(tmp_path / "run", "00001", TABLES)  # written, but the kill came before the manifest
    with open_folder(tmp_path / "run", manifest(), ROWS) as run:
        assert run.missing("test", "s", 2, ["ask"]) == [(1, 2, ["ask"])]
        run.add_block(("test", "s", 1, 2), ["ask"], TABLES)
    assert sorted(path.name for path in blocks.iterdir()) == ["00000", "00001"]


def test_a_first_start_that_was_killed_can_be_repeated(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    write_arrow(folder / "items.parquet", make_table(ITEMS, [ITEM]))
    (folder / "manifest.json.partial").write_text("{")
    fill(folder)
    assert read_manifest(folder).complete


def test_a_full_disk_says_so_and_keeps_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "manifest.json"
    write_text(path, "old")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(atomic.os, "fsync", full)
    with pytest.raises(StoreError, match="disk is full .* free some space and run the same command again"):
        write_text(path, "new")
    assert path.read_text() == "old"


def test_disk_errors_name_the_file_and_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"x can't be written.*another folder"), disk_errors(tmp_path / "x"):
        raise PermissionError(errno.EACCES, "Permission denied")


@pytest.mark.parametrize("damage", ["missing", "truncated", "foreign"])
def test_a_damaged_block_is_named(tmp_path: Path, damage: str) -> None:
    fill(tmp_path / "run")
    path = tmp_path / "run" / "blocks" / "00000" / "observations.parquet"
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-10] if damage == "truncated" else b"PAR1")
    with pytest.raises(StoreError, match=r"observations\.parquet"):
        read_blocks(tmp_path / "run", read_manifest(tmp_path / "run").blocks, "observations")


def damage_items(folder: Path, damage: str) -> None:
    path = folder / "items.parquet"
    match damage:
        case "missing":
            path.unlink()
        case "truncated":
            path.write_bytes(path.read_bytes()[:-10])
        case "a folder":
            path.unlink()
            path.mkdir()
        case "another gold":
            write_arrow(path, make_table(ITEMS, [ITEM._replace(gold=[0])]))


@pytest.mark.parametrize("damage", ["missing", "truncated", "a folder", "another gold"])
def test_a_damaged_item_table_is_named_and_a_continued_run_writes_it_again(tmp_path: Path, damage: str) -> None:
    fill(tmp_path)
    found = read_manifest(tmp_path)
    assert read_items(tmp_path, found).to_pylist() == [ITEM._asdict()]
    damage_items(tmp_path, damage)
    before = state(tmp_path)
    advice = r"items\.parquet .*evaluate again into a new folder"
    with pytest.raises(StoreError, match=advice):
        read_items(tmp_path, found)
    if damage == "a folder":
        with (
            pytest.raises(StoreError, match=r"items\.parquet can't be written"),
            open_folder(tmp_path, manifest(), ROWS),
        ):
            pass
        assert before.items() <= state(tmp_path).items()
    else:
        with open_folder(tmp_path, manifest(), ROWS) as run:
            assert read_items(tmp_path, run.manifest).to_pylist() == [ITEM._asdict()]


def damage_block(path: Path, damage: str) -> None:
    if damage == "deleted":
        shutil.rmtree(path)
    else:
        file = path / "spans.parquet"
        file.write_bytes(file.read_bytes()[:-1] + (b"" if damage == "shorter" else b"?"))


@pytest.mark.parametrize("damage", ["deleted", "shorter", "another byte"])
def test_a_damaged_block_is_asked_again_and_the_others_are_kept(tmp_path: Path, damage: str) -> None:
    with open_folder(tmp_path, manifest(), ROWS) as run:
        for place, asks in (
            (PLACE, ["ask"]),
            (("test", "s", 1, 2), []),
            (("test", "s", 1, 2), ["ask"]),
            (PLACE, ["b"]),
        ):
            run.add_block(place, asks, TABLES)
        run.finish()
    damage_block(tmp_path / "blocks" / "00000", damage)
    with open_folder(tmp_path, manifest(), ROWS) as run:
        assert not run.manifest.complete
        assert run.missing("test", "s", 2, ["ask", "b"]) == [(0, 1, ["ask"]), (1, 2, ["b"])]
        run.add_block(PLACE, ["ask"], TABLES)
        assert [block.name for block in run.manifest.blocks] == ["00001", "00002", "00003", "00004"]
    damage_block(tmp_path / "blocks" / "00001", damage)  # holds a part of what 00002 names
    with open_folder(tmp_path, manifest(), ROWS) as run:
        assert [block.name for block in run.manifest.blocks] == ["00003", "00004"]
        assert run.missing("test", "s", 2, ["ask"]) == [(1, 2, ["ask"])]


def test_an_edited_manifest_is_not_believed(tmp_path: Path) -> None:
    fill(tmp_path)
    path = tmp_path / "manifest.json"
    path.write_text(path.read_text().replace('"name": "m"', '"name": "GPT-9"'))
    with pytest.raises(StoreError, match="was changed after it was written"):
        read_manifest(tmp_path)


def test_an_item_table_that_the_manifest_does_not_list_is_refused(tmp_path: Path) -> None:
    fill(tmp_path)
    with pytest.raises(StoreError, match=r"items\.parquet is not the file the manifest describes"):
        read_items(tmp_path, replace(read_manifest(tmp_path), files={}))


def test_the_item_table_is_listed_with_size_and_sha256(tmp_path: Path) -> None:
    fill(tmp_path / "run")
    content = (tmp_path / "run" / "items.parquet").read_bytes()
    listed = {"items.parquet": FileRecord(len(content), hashlib.sha256(content).hexdigest())}
    assert read_manifest(tmp_path / "run").files == listed
    (tmp_path / "again").mkdir()
    assert write_items(tmp_path / "again", [ITEM]) == listed


def test_a_table_is_read_only_with_the_fingerprint_and_schema_that_are_wanted(tmp_path: Path) -> None:
    path = tmp_path / "items.parquet"
    write_arrow(path, make_table(ITEMS, [ITEM]))
    assert read_table(path, ITEMS, fingerprint(path.read_bytes())).to_pylist() == [ITEM._asdict()]
    for listed in (fingerprint(b""), None):
        with pytest.raises(StoreError, match="not the file"):
            read_table(path, ITEMS, listed)
    with pytest.raises(StoreError, match="another schema"):
        read_table(path, SCHEMAS["spans"], fingerprint(path.read_bytes()))


def test_a_killed_item_table_leaves_no_half_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(path: Path, *_: Any, **__: Any) -> None:
        path.write_bytes(b"PAR1")
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("choicewise.util.tables.pq.ParquetWriter", killed)
        with pytest.raises(KeyboardInterrupt), open_folder(tmp_path, manifest(), ROWS):
            pass
    assert list(tmp_path.iterdir()) == []
    fill(tmp_path)
    assert read_items(tmp_path, read_manifest(tmp_path)).to_pylist() == [ITEM._asdict()]


def test_a_new_file_replaces_the_old_one_only_when_complete(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), new_file(path) as partial:
        partial.write_text("ha")
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    with new_file(path) as partial:
        partial.write_text("new")
    assert {found.name: found.read_text() for found in tmp_path.iterdir()} == {"file": "new"}


def test_another_schema_is_refused_even_when_listed(tmp_path: Path) -> None:
    files = write_block(tmp_path, "00000", TABLES)
    block = BlockRecord("00000", "test", "s", 0, 1, ("ask",), {"spans.parquet": files["observations.parquet"]})
    folder = tmp_path / "blocks" / "00000"
    (folder / "observations.parquet").rename(folder / "spans.parquet")
    with pytest.raises(StoreError, match="another schema"):
        read_blocks(tmp_path, [block], "spans")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "damaged"),
        ("[]", "not a manifest"),
        ('{"format": "other"}', "not a manifest"),
        ('{"format": "choicewise-run", "version": 99}', "has version 99 .*reads 3; upgrade Choicewise"),
        ('{"format": "choicewise-run", "version": 2}', "has version 2 .*evaluate again into a new folder"),
        ('{"format": "choicewise-run"}', "has version None .*evaluate again into a new folder"),
        ('{"format": "choicewise-run", "version": 3}', "field model is missing"),
    ],
)
def test_a_manifest_that_cannot_be_used_is_refused(tmp_path: Path, content: str, reason: str) -> None:
    (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(StoreError, match=reason):
        read_manifest(tmp_path)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda content: content["model"].pop("window"), "field model.window is missing"),
        (lambda content: content["model"].update(window="8"), "field model.window is '8'"),
        (lambda content: content["selection"].update(limit=True), "field selection.limit is True"),
        (lambda content: content["dataset"].update(size=3), "field dataset.size is unknown"),
        (lambda content: content.update(note=""), "field note is unknown"),
        (lambda content: content["blocks"][0].pop("asks"), "field blocks.0.asks is missing"),
        (lambda content: content["blocks"][0].update(asks="ask"), "field blocks.0.asks is 'ask'"),
        (lambda content: content["dataset"]["categories"]["c"].update(b="s"), "field dataset.categories.c.b is 's'"),
    ],
)
def test_the_wrong_field_of_a_manifest_is_named(tmp_path: Path, change: Callable[[Any], Any], reason: str) -> None:
    fill(tmp_path)
    path = tmp_path / "manifest.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    with pytest.raises(StoreError, match=re.escape(f"{path} is damaged: {reason}")) as error:
        read_manifest(tmp_path)
    assert str(error.value).endswith("; `choicewise doctor` puts back its copy; or evaluate again into a new folder")


def test_a_manifest_is_read_back_as_written(tmp_path: Path) -> None:
    with open_folder(tmp_path, manifest(selection=Selection(("s",), 3)), ROWS) as run:
        run.describe(CHECK)
        run.add_block(PLACE, ["ask"], TABLES, Spent(50, 10, 1.5))
    assert read_manifest(tmp_path) == run.manifest


def test_a_file_is_no_run_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="is not a run folder"):
        read_manifest(tmp_path / "file")


def test_a_folder_without_a_manifest_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="choicewise run"):
        read_manifest(tmp_path)


def test_the_manifest_is_plain_json(tmp_path: Path) -> None:
    fill(tmp_path / "run")
    content = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert content["format"] == "choicewise-run"
    assert content["blocks"][0]["files"]["spans.parquet"]["bytes"] > 0
