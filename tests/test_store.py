"""The run folder: whole or not at all, one measurement a folder, one writer at a time."""

from __future__ import annotations

import errno
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from choicewise.errors import StoreError
from choicewise.records.tables import ITEMS
from choicewise.store import atomic, items
from choicewise.store.atomic import disk_errors, new_file, new_folder, write_text
from choicewise.store.blocks import SCHEMAS, read_blocks, write_block
from choicewise.store.folder import check_folder, open_folder
from choicewise.store.items import read_items, write_items
from choicewise.store.manifest import Block, Manifest, read_manifest
from choicewise.store.table import fingerprint, read_table, write_table

ITEM = {
    "position": 0, "split": "test", "item": "q", "subject": "s", "question": "?", "choices": ["a", "b"], "gold": [1],
    "fields": "{}",
}  # fmt: skip
OBSERVATION = {
    "key": "k", "tokens": [1, 2], "sizes": [1, 1], "logprobs": [-1.0, -0.5], "ranks": [0, 3],
    "text": None, "value": None,
}  # fmt: skip
TABLES: dict[str, list[dict[str, Any]]] = {"requests": [], "spans": [], "observations": [OBSERVATION]}


def manifest(**changes: Any) -> Manifest:
    content: dict[str, Any] = {
        "model": {"name": "m", "digest": "1", "dtype": "float32", "device": "cpu", "window": 8},
        "dataset": {"name": "d", "digest": "2", "skipped": []},
        "selection": {"subjects": None, "limit": None},
        "protocols": {"p": "signature"},
        "versions": {},
    }
    return Manifest(**{**content, **changes})


def fill(folder: Path) -> None:
    with open_folder(folder, manifest(), [ITEM]) as run:
        run.add_block("test", "s", 0, 1, ["ask"], TABLES)
        run.finish()


def state(folder: Path) -> dict[str, tuple[int, bytes]]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def test_a_block_is_read_back_as_written(tmp_path: Path) -> None:
    fill(tmp_path / "run")
    found = read_manifest(tmp_path / "run")
    assert found.complete
    assert found.blocks[0].asks == ("ask",)
    assert read_blocks(tmp_path / "run", found.blocks, "observations").to_pylist() == [OBSERVATION]
    assert read_blocks(tmp_path / "run", (), "spans").schema == SCHEMAS["spans"]


def test_opening_a_complete_folder_again_changes_no_byte_and_no_time(tmp_path: Path) -> None:
    fill(tmp_path / "run")
    before = state(tmp_path / "run")
    with open_folder(tmp_path / "run", manifest(), [ITEM]) as run:
        assert run.missing_asks("test", "s", 0, 1, ["ask"]) == []
        run.finish()
    assert state(tmp_path / "run") == before


def test_new_protocols_join_and_reopen_the_folder(tmp_path: Path) -> None:
    fill(tmp_path / "run")
    with open_folder(tmp_path / "run", manifest(protocols={"q": "other"}), [ITEM]) as run:
        assert run.manifest.protocols == {"p": "signature", "q": "other"}
        assert run.missing_asks("test", "s", 0, 1, ["ask", "new"]) == ["new"]
    assert not read_manifest(tmp_path / "run").complete


def test_the_engine_is_described_once(tmp_path: Path) -> None:
    with open_folder(tmp_path / "run", manifest(), [ITEM]) as run:
        run.describe({})
        run.describe({"rung": "tree", "floor": 1e-5})
        run.describe({"rung": "sequence"})
    assert read_manifest(tmp_path / "run").engine == {"rung": "tree", "floor": 1e-5}


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("model", {"name": "m", "digest": "9", "dtype": "float32", "device": "cpu", "window": 8}),
        ("model", {"name": "m", "digest": "1", "dtype": "bfloat16", "device": "cpu", "window": 8}),
        ("dataset", {"name": "d", "digest": "9", "skipped": []}),
        ("selection", {"subjects": None, "limit": 3}),
    ],
)
def test_another_measurement_is_refused(tmp_path: Path, part: str, value: dict[str, Any]) -> None:
    fill(tmp_path / "run")
    before = state(tmp_path / "run")
    with (
        pytest.raises(StoreError, match=f"another {part} .*choose another --out"),
        open_folder(tmp_path / "run", manifest(**{part: value}), [ITEM]),
    ):
        pass
    assert state(tmp_path / "run") == before


@pytest.mark.parametrize(
    ("there", "here", "told"),
    [
        (
            {"selection": {"subjects": None, "limit": 2}},
            {"selection": {"subjects": None, "limit": 3}},
            "(selection limit is 2 there and 3 here); go on there with the old selection, or choose another --out",
        ),
        (
            {"dataset": {"name": "d", "digest": "0123456789abcdef" * 4, "skipped": []}},
            {"dataset": {"name": "d", "digest": "f" * 64, "skipped": []}},
            "(dataset digest is 0123456789ab there and ffffffffffff here);",
        ),
    ],
)
def test_another_measurement_is_told_in_short_with_both_ways_on(
    tmp_path: Path, there: dict[str, Any], here: dict[str, Any], told: str
) -> None:
    with open_folder(tmp_path, manifest(**there), []):
        pass
    with pytest.raises(StoreError, match=re.escape(told)), open_folder(tmp_path, manifest(**here), []):
        pass


def test_the_same_name_for_another_protocol_is_refused(tmp_path: Path) -> None:
    fill(tmp_path / "run")
    changed = manifest(protocols={"p": "another signature"})
    with (
        pytest.raises(StoreError, match="another protocol under the name p"),
        open_folder(tmp_path / "run", changed, []),
    ):
        pass


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(StoreError, match="holds other files"), open_folder(tmp_path, manifest(), []):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_complete_folder_need_not_be_writable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path / "run")
    monkeypatch.setattr("os.access", lambda *_: False)
    check_folder(tmp_path / "run")
    with pytest.raises(StoreError, match="can't be written"):
        check_folder(tmp_path / "other" / "run")


def test_a_folder_no_file_system_takes_is_told(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="can't be written"):
        check_folder(tmp_path / ("x" * 300))


def test_a_second_writer_is_kept_out(tmp_path: Path) -> None:
    with (
        open_folder(tmp_path / "run", manifest(), [ITEM]),
        pytest.raises(StoreError, match="another process"),
        open_folder(tmp_path / "run", manifest(), [ITEM]),
    ):
        pass


def test_a_killed_write_leaves_the_old_state(tmp_path: Path) -> None:
    fill(tmp_path / "run")
    before = state(tmp_path / "run")
    with pytest.raises(KeyboardInterrupt), new_folder(tmp_path / "run" / "blocks" / "00001") as partial:
        (partial / "spans.parquet").write_bytes(b"half")
        raise KeyboardInterrupt
    assert state(tmp_path / "run") == before


def test_leftovers_of_a_kill_are_swept_and_unlisted_blocks_do_not_count(tmp_path: Path) -> None:
    fill(tmp_path / "run")
    blocks = tmp_path / "run" / "blocks"
    (blocks / "00001.partial").mkdir()
    write_block(tmp_path / "run", "00001", TABLES)  # written, but the kill came before the manifest
    with open_folder(tmp_path / "run", manifest(), [ITEM]) as run:
        assert run.missing_asks("test", "s", 1, 2, ["ask"]) == ["ask"]
        run.add_block("test", "s", 1, 2, ["ask"], TABLES)
    assert sorted(path.name for path in blocks.iterdir()) == ["00000", "00001"]


def test_a_first_start_that_was_killed_can_be_repeated(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    write_table(folder / "items.parquet", ITEMS, [ITEM])
    (folder / "manifest.json.partial").write_text("{")
    fill(folder)
    assert read_manifest(folder).complete


def test_a_full_disk_says_so_and_keeps_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "manifest.json"
    write_text(path, "old")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(atomic.os, "fsync", full)
    with pytest.raises(StoreError, match="disk is full .* free some space and repeat"):
        write_text(path, "new")
    assert path.read_text() == "old"


def test_disk_errors_name_the_file_and_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"x can't be written.*another --out"), disk_errors(tmp_path / "x"):
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
            write_table(path, ITEMS, [{**ITEM, "gold": [0]}])


@pytest.mark.parametrize("damage", ["missing", "truncated", "a folder", "another gold"])
def test_a_damaged_item_table_is_named_and_stops_a_continued_run(tmp_path: Path, damage: str) -> None:
    fill(tmp_path)
    found = read_manifest(tmp_path)
    assert read_items(tmp_path, found).to_pylist() == [ITEM]
    damage_items(tmp_path, damage)
    before = state(tmp_path)
    told = r"items\.parquet .*`choicewise run` line with a new --out"
    with pytest.raises(StoreError, match=told):
        read_items(tmp_path, found)
    with pytest.raises(StoreError, match=told), open_folder(tmp_path, manifest(protocols={"q": "other"}), [ITEM]):
        pass
    assert state(tmp_path) == before


@pytest.mark.parametrize("damage", ["none", "missing", "truncated", "a folder"])
def test_a_manifest_that_lists_no_item_table_is_read_without_the_check(tmp_path: Path, damage: str) -> None:
    fill(tmp_path)
    content = json.loads((tmp_path / "manifest.json").read_text())
    del content["files"]  # as early versions wrote it
    (tmp_path / "manifest.json").write_text(json.dumps(content))
    if damage == "none":
        assert read_items(tmp_path, read_manifest(tmp_path)).to_pylist() == [ITEM]
        return
    damage_items(tmp_path, damage)
    with pytest.raises(StoreError, match=r"items\.parquet .*`choicewise run` line with a new --out"):
        read_items(tmp_path, read_manifest(tmp_path))


def test_the_item_table_is_listed_with_size_and_sha256(tmp_path: Path) -> None:
    fill(tmp_path / "run")
    content = (tmp_path / "run" / "items.parquet").read_bytes()
    listed = {"items.parquet": {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}}
    assert read_manifest(tmp_path / "run").files == listed
    (tmp_path / "again").mkdir()
    assert write_items(tmp_path / "again", [ITEM]) == listed


def test_a_table_is_read_only_with_the_fingerprint_and_schema_that_are_wanted(tmp_path: Path) -> None:
    path = tmp_path / "items.parquet"
    write_table(path, ITEMS, [ITEM])
    assert read_table(path, ITEMS, fingerprint(path.read_bytes())).to_pylist() == [ITEM]
    with pytest.raises(StoreError, match="not the file"):
        read_table(path, ITEMS, fingerprint(b""))
    with pytest.raises(StoreError, match="another schema"):
        read_table(path, SCHEMAS["spans"], None)


def test_a_killed_item_table_leaves_no_half_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(path: Path, *_: Any) -> None:
        path.write_bytes(b"PAR1")
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(items, "write_table", killed)
        with pytest.raises(KeyboardInterrupt), open_folder(tmp_path, manifest(), [ITEM]):
            pass
    assert [path.name for path in tmp_path.iterdir()] == ["items.parquet.partial"]
    fill(tmp_path)
    assert read_items(tmp_path, read_manifest(tmp_path)).to_pylist() == [ITEM]


def test_a_new_file_replaces_the_old_one_only_when_whole(tmp_path: Path) -> None:
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
    block = Block("00000", "test", "s", 0, 1, ("ask",), {"spans.parquet": files["observations.parquet"]})
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
        ('{"format": "choicewise-run", "version": 99}', "upgrade"),
        ('{"format": "choicewise-run", "version": 1}', "damaged"),
    ],
)
def test_a_manifest_that_cannot_be_used_is_refused(tmp_path: Path, content: str, reason: str) -> None:
    (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(StoreError, match=reason):
        read_manifest(tmp_path)


def test_a_folder_without_a_manifest_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="choicewise run"):
        read_manifest(tmp_path)


def test_the_manifest_is_plain_json(tmp_path: Path) -> None:
    fill(tmp_path / "run")
    content = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert content["format"] == "choicewise-run"
    assert content["blocks"][0]["files"]["spans.parquet"]["bytes"] > 0
