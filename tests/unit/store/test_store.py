"""The run folder: complete or not at all, one measurement a folder, one writer at a time; and what it keeps."""

import errno
import hashlib
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import monotonic
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise import records
from choicewise.errors import StoreError
from choicewise.protocols.protocol import signature
from choicewise.store import folder as store
from choicewise.store import tables
from choicewise.util import files as atomic
from choicewise.util.files import disk_errors, new_file, new_folder, write_text
from choicewise.util.jsonio import json_digest
from tests.helpers.messages import Gist
from tests.helpers.protocols import mmlu_protocol

ITEM = records.ItemRow(0, "test", "q", "s", "?", ["a", "b"], [1], "{}")
ROWS = {"test": [ITEM]}
OBSERVATION = records.ObservationRow("k", [1, 2], [1, 1], [-1.0, -0.5], [0, 3])
TABLES: dict[str, list[Any]] = {"requests": [], "spans": [], "observations": [OBSERVATION]}
PLACE, NEXT = ("test", "s", 0, 1), ("test", "s", 1, 2)
MODEL = records.ModelRecord("m", "1", "float32", "cpu", 8)
DATASET = records.DatasetRecord(
    "d",
    "2",
    skipped=(records.SkippedRow("test.csv", 3, "no answer"),),
    categories={"c": {"b": ["s"]}},
)
CHECK = records.SelfCheckRecord(
    rung="tree", cost="", difference=2e-5, floor=1e-5, noise=3e-5, depth=200
)
MANIFEST = records.Manifest(
    model=MODEL,
    dataset=DATASET,
    selection=records.Selection(),
    protocols={"p": "signature"},
    versions={},
)


def fill(folder: Path) -> None:
    with store.open_folder(folder, MANIFEST, ROWS) as run:
        run.add_block(PLACE, ["ask"], TABLES)
        run.finish()


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    """A complete run of one block."""
    fill(tmp_path / "run")
    return tmp_path / "run"


def state(folder: Path) -> dict[str, tuple[int, bytes]]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def open_as(folder: Path, manifest: records.Manifest) -> None:
    with store.open_folder(folder, manifest, ROWS):
        pass


def assert_refused(folder: Path, reason: str, **changes: Any) -> None:
    """With another manifest the folder is not opened."""
    with (
        pytest.raises(StoreError, match=reason),
        store.open_folder(folder, replace(MANIFEST, **changes), ROWS),
    ):
        pass


def test_a_block_is_read_back_as_written_and_opening_again_changes_no_byte_and_no_time(
    filled: Path,
) -> None:
    before = state(filled)
    found = store.read_manifest(filled)
    assert found.complete
    assert found.blocks[0].asks == ("ask",)
    assert tables.read_blocks(filled, found.blocks, "observations").to_pylist() == [
        OBSERVATION._asdict()
    ]
    assert tables.read_blocks(filled, (), "spans").schema == tables.SCHEMAS["spans"]
    with store.open_folder(filled, MANIFEST, ROWS) as run:
        assert run.missing("test", "s", 1, ["ask"]) == []
        run.finish()
    assert state(filled) == before


def test_new_protocols_join_and_reopen_the_folder(filled: Path) -> None:
    with store.open_folder(filled, replace(MANIFEST, protocols={"q": "other"}), ROWS) as run:
        assert run.manifest.protocols == {"p": "signature", "q": "other"}
        assert run.missing("test", "s", 1, ["ask", "new"]) == [(0, 1, ["new"])]
    assert not store.read_manifest(filled).complete


def test_a_protocol_as_an_earlier_version_spelled_it_goes_on_and_stays_so(tmp_path: Path) -> None:
    """It had no axes that came later; a protocol that differs on one of them is another."""
    now = signature(mmlu_protocol())
    then = "|".join(
        part for part in now.split("|") if part.partition(":")[0] not in ("chat", "system", "stop")
    )
    with store.open_folder(tmp_path, replace(MANIFEST, protocols={"p": then}), ROWS) as run:
        run.finish()
    before = state(tmp_path)
    with store.open_folder(tmp_path, replace(MANIFEST, protocols={"p": now}), ROWS) as run:
        assert run.manifest.protocols == {"p": then}
    assert state(tmp_path) == before
    other = {"p": signature(mmlu_protocol(chat="turns"))}
    assert_refused(tmp_path, "another protocol called p", protocols=other)


def test_the_engine_is_described_once_and_what_blocks_took_adds_up_beside_it(
    tmp_path: Path,
) -> None:
    with store.open_folder(tmp_path, MANIFEST, ROWS) as run:
        run.describe(CHECK)
        run.describe(replace(CHECK, rung="sequence"))
        assert store.read_manifest(tmp_path).engine == records.EngineRecord(CHECK)
        for start, spent in enumerate(
            [None, records.Spent(50, 10, 1.5), records.Spent(5, 1, 0.25)]
        ):
            run.add_block(("test", "s", start, start + 1), ["ask"], TABLES, spent)
    assert store.read_manifest(tmp_path).engine == records.EngineRecord(
        CHECK, records.Spent(55, 11, 1.75)
    )


def test_every_row_has_the_columns_of_its_schema() -> None:
    rows = {
        "requests": records.RequestRow,
        "spans": records.SpanRow,
        "observations": records.ObservationRow,
    }
    columns = {table: list(row._fields) for table, row in rows.items()}
    assert columns == {table: schema.names for table, schema in tables.SCHEMAS.items()}
    assert list(records.ItemRow._fields) == records.ITEMS.names


def test_an_observation_may_have_a_total_and_no_tokens(tmp_path: Path) -> None:
    path = tmp_path / "observations.parquet"
    total = records.ObservationRow("total", (), (), (), (), total=-3.5)
    tables.write_arrow(
        path, tables.make_table(tables.SCHEMAS["observations"], [OBSERVATION, total])
    )
    table = tables.read_table(
        path, tables.SCHEMAS["observations"], tables.fingerprint(path.read_bytes())
    )
    assert (table["total"].to_pylist(), table["tokens"].to_pylist()) == ([None, -3.5], [[1, 2], []])


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model": replace(MODEL, digest="9")}, "another model .*choose another folder"),
        ({"model": replace(MODEL, dtype="bfloat16")}, "another model .*choose another folder"),
        ({"dataset": replace(DATASET, digest="9")}, "another dataset .*choose another folder"),
        ({"selection": records.Selection(limit=3)}, "another selection .*choose another folder"),
        (
            {"selection": records.Selection(sample=3, seed=1)},
            "sample is None there and 3 here; selection seed",
        ),
        ({"protocols": {"p": "another signature"}}, "another protocol called p"),
    ],
)
def test_another_measurement_is_refused(filled: Path, changes: dict[str, Any], reason: str) -> None:
    before = state(filled)
    assert_refused(filled, reason, **changes)
    assert state(filled) == before


def test_the_difference_to_another_measurement_is_named_with_both_ways_on(tmp_path: Path) -> None:
    there = {
        "selection": records.Selection(limit=2),
        "dataset": records.DatasetRecord("d", "0123456789abcdef" * 4),
    }
    with store.open_folder(tmp_path, replace(MANIFEST, **there), {}) as run:
        run.add_block(PLACE, ["ask"], TABLES)
    reason = r"\(selection limit is 2 there and 3 here\); .* old selection, .* another folder"
    assert_refused(tmp_path, reason, **{**there, "selection": records.Selection(limit=3)})
    reason = "(dataset digest is 0123456789ab there and ffffffffffff here);"
    assert_refused(
        tmp_path, re.escape(reason), **{**there, "dataset": records.DatasetRecord("d", "f" * 64)}
    )


def test_another_model_is_named_and_products_are_set_where_nothing_else_differs(
    tmp_path: Path,
) -> None:
    there = replace(MODEL, products="onednn")
    with store.open_folder(tmp_path, replace(MANIFEST, model=there), ROWS) as run:
        run.add_block(PLACE, ["ask"], TABLES)
    other = replace(MODEL, name="n", digest="9")
    assert_refused(tmp_path, "name is m there and n here; .*old model", model=other)
    assert_refused(tmp_path, r"\(model products .* option products to onednn,", model=MODEL)
    limited = {"model": MODEL, "selection": records.Selection(limit=3)}
    assert_refused(tmp_path, "products is onednn .*old model", **limited)
    with store.open_folder(tmp_path, replace(MANIFEST, model=replace(there, name="n")), ROWS):
        pass


@pytest.mark.parametrize(
    "changes",
    [
        {"model": replace(MODEL, digest="9")},
        {"dataset": replace(DATASET, digest="9")},
        {"selection": records.Selection(limit=3), "shard": records.ShardRecord(2, (1,))},
        {"protocols": {"p": "another signature"}},
        {},
    ],
)
def test_a_run_without_answers_is_replaced(tmp_path: Path, changes: dict[str, Any]) -> None:
    with store.open_folder(tmp_path, MANIFEST, {"dev": [ITEM]}) as run:
        run.describe(CHECK)
    (tmp_path / records.SUMMARY).write_bytes(b"of no answers")
    (tmp_path / "mine.txt").write_text("a note")
    wanted = replace(MANIFEST, **changes)
    with store.open_folder(tmp_path, wanted, ROWS):
        pass
    found = store.read_manifest(tmp_path)
    assert found == replace(wanted, files=found.files)
    assert store.read_manifest(tmp_path, "manifest.copy.json") == found
    assert tables.read_items(tmp_path, found).to_pylist() == [ITEM._asdict()]
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"manifest.json", "manifest.copy.json", "items.parquet", "mine.txt"}


def add_answers(folder: Path, run: store.RunFolder) -> None:
    run.add_block(PLACE, ["ask"], TABLES)


def drop_answers(folder: Path, run: store.RunFolder) -> None:
    """The block is on the disk, and no manifest lists it."""
    tables.write_block(folder, "00000", TABLES)


def move_answers(folder: Path, run: store.RunFolder) -> None:
    """The folder of blocks is a link to a larger disk."""
    (folder / "blocks").symlink_to(folder.parent / "gone")


@pytest.mark.parametrize("begin", [add_answers, drop_answers, move_answers])
def test_what_may_hold_answers_is_never_replaced(
    tmp_path: Path, begin: Callable[[Path, store.RunFolder], None]
) -> None:
    folder = tmp_path / "run"
    with store.open_folder(folder, MANIFEST, ROWS) as run:
        begin(folder, run)
    before = state(folder)
    with pytest.raises(StoreError, match="another model") as refused:
        open_as(folder, replace(MANIFEST, model=replace(MODEL, digest="9")))
    assert "rm -r" not in str(refused.value)
    assert state(folder) == before


@pytest.mark.parametrize(
    "there",
    [
        {"shard": records.ShardRecord(2, (1,))},
        {"shard": records.ShardRecord(2, (1, 2), engines=(records.EngineRecord(),) * 2)},
        {"imported": records.ImportRecord("a tool")},
    ],
)
def test_a_part_or_an_import_without_answers_is_refused_with_what_removes_it(
    tmp_path: Path, there: dict[str, Any]
) -> None:
    folder = tmp_path / "a run"
    open_as(folder, replace(MANIFEST, **there))
    before = state(folder)
    changes = {**there, "model": replace(MODEL, digest="9")}
    assert_refused(folder, f"no answers, .*`rm -r '{folder}'`", **changes)
    assert state(folder) == before


def test_a_folder_of_something_else_or_of_a_writer_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    assert_refused(tmp_path, "holds other files")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
    with store.open_folder(tmp_path / "run", MANIFEST, ROWS):
        before = state(tmp_path / "run")
        assert_refused(tmp_path / "run", "another process")
        # A model that is still loading has no answers either.
        assert_refused(tmp_path / "run", "another process", model=replace(MODEL, digest="9"))
        assert state(tmp_path / "run") == before


def test_a_complete_folder_need_not_be_writable(
    filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StoreError, match="can't be written"):
        store.check_folder(filled.parent / ("x" * 300))  # no file system takes such a name
    monkeypatch.setattr("os.access", lambda *_: False)
    store.check_folder(filled)
    with pytest.raises(StoreError, match="can't be written"):
        store.check_folder(filled.parent / "other" / "run")


def test_leftovers_of_a_kill_are_removed_and_unlisted_blocks_do_not_count(filled: Path) -> None:
    blocks = filled / "blocks"
    (blocks / "00001.partial").mkdir()
    tables.write_block(filled, "00001", TABLES)  # written, but the kill came before the manifest
    with store.open_folder(filled, MANIFEST, ROWS) as run:
        assert run.missing("test", "s", 2, ["ask"]) == [(1, 2, ["ask"])]
        run.add_block(NEXT, ["ask"], TABLES)
    assert sorted(path.name for path in blocks.iterdir()) == ["00000", "00001"]


def test_many_blocks_are_listed_together_and_at_the_latest_when_the_folder_closes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[int] = []

    def write(path: Path, text: str) -> None:
        listed.append(len(json.loads(text)["blocks"]))
        write_text(path, text)

    monkeypatch.setattr(store, "write_text", write)
    monkeypatch.setattr(store, "write_block", lambda *_: {})
    with (
        pytest.raises(KeyboardInterrupt),
        store.open_folder(tmp_path, MANIFEST, ROWS) as run,
    ):
        for number in range(199):
            run.add_block(("test", "s", number, number + 1), ["ask"], TABLES)
        raise KeyboardInterrupt
    # The first blocks are listed one by one.
    assert listed[:16] == list(range(1, 17))
    assert len(listed) < 60
    assert listed[-1] == 199
    assert len(store.read_manifest(tmp_path).blocks) == 199


def test_the_copy_of_a_manifest_is_renewed_after_a_minute_and_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def copied() -> int:
        return len(store.read_manifest(tmp_path, "manifest.copy.json").blocks)

    now = monotonic()
    clock = [now]
    monkeypatch.setattr(store, "monotonic", lambda: clock[0])
    counts = []
    with store.open_folder(tmp_path, MANIFEST, ROWS) as run:
        for clock[0] in (now + 1, now + 62, now + 63):
            run.add_block(NEXT, ["ask"], TABLES)
            counts.append(copied())
    assert (counts, copied()) == ([0, 2, 2], 3)


def test_how_much_memory_a_table_takes_is_counted_once_a_file(
    filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened() -> int:
        tables.read_metadata(path, records.SPANS)
        tables.read_columns(path, records.SPANS, ["item"])
        return len(counted)

    counted = []
    unpacked = tables.unpacked
    monkeypatch.setattr(tables, "unpacked", lambda *a: counted.append(a) or unpacked(*a))
    path = filled / "blocks" / "00000" / "spans.parquet"
    assert (opened(), opened()) == (1, 1)
    path.write_bytes(path.read_bytes())
    assert opened() == 2
    monkeypatch.setattr(tables, "AT_ONCE", -1)
    assert opened() == 4


def test_a_first_start_that_was_killed_can_be_repeated(tmp_path: Path) -> None:
    tables.write_arrow(tmp_path / "items.parquet", tables.make_table(records.ITEMS, [ITEM]))
    (tmp_path / "manifest.json.partial").write_text("{")
    fill(tmp_path)
    assert store.read_manifest(tmp_path).complete


def test_disk_errors_say_the_way_out_and_keep_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "manifest.json"
    write_text(path, "old")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(atomic.os, "fsync", full)
    with pytest.raises(StoreError, match="disk is full .* free some space"):
        write_text(path, "new")
    assert path.read_text() == "old"
    with (
        pytest.raises(StoreError, match=r"x can't be written.*another folder"),
        disk_errors(tmp_path / "x"),
    ):
        raise PermissionError(errno.EACCES, "Permission denied")


def damage_file(path: Path, damage: str) -> None:
    whole = path.read_bytes()
    path.unlink()
    if damage == "a folder":
        path.mkdir()
    elif damage == "another gold":
        tables.write_arrow(path, tables.make_table(records.ITEMS, [ITEM._replace(gold=[0])]))
    elif damage != "missing":
        path.write_bytes(
            {"truncated": whole[:-10], "foreign": b"PAR1", "another byte": whole[:-1] + b"?"}[
                damage
            ]
        )


@pytest.mark.parametrize("damage", ["missing", "truncated", "foreign"])
def test_a_damaged_block_is_named(filled: Path, damage: str) -> None:
    damage_file(filled / "blocks" / "00000" / "observations.parquet", damage)
    with pytest.raises(StoreError, match=r"observations\.parquet"):
        tables.read_blocks(filled, store.read_manifest(filled).blocks, "observations")


@pytest.mark.parametrize("damage", ["missing", "truncated", "a folder", "another gold"])
def test_a_damaged_item_table_is_named_and_a_continued_run_writes_it_again(
    filled: Path, damage: str
) -> None:
    found = store.read_manifest(filled)
    assert tables.read_items(filled, found).to_pylist() == [ITEM._asdict()]
    damage_file(filled / "items.parquet", damage)
    before = state(filled)
    with pytest.raises(StoreError, match="items\\.parquet.*evaluate again"):
        tables.read_items(filled, found)
    if damage == "a folder":
        assert_refused(filled, r"items\.parquet can't be written")
        assert before.items() <= state(filled).items()
    else:
        with store.open_folder(filled, MANIFEST, ROWS) as run:
            assert tables.read_items(filled, run.manifest).to_pylist() == [ITEM._asdict()]


@pytest.mark.parametrize("damage", ["deleted", "truncated", "another byte"])
def test_a_damaged_block_is_asked_again_and_the_others_are_kept(
    tmp_path: Path, damage: str
) -> None:
    def damage_block(name: str) -> None:
        path = tmp_path / "blocks" / name
        shutil.rmtree(path) if damage == "deleted" else damage_file(path / "spans.parquet", damage)

    with store.open_folder(tmp_path, MANIFEST, ROWS) as run:
        for place, asks in ((PLACE, ["ask"]), (NEXT, []), (NEXT, ["ask"]), (PLACE, ["b"])):
            run.add_block(place, asks, TABLES)
        run.finish()
    damage_block("00000")
    with store.open_folder(tmp_path, MANIFEST, ROWS) as run:
        assert not run.manifest.complete
        assert run.missing("test", "s", 2, ["ask", "b"]) == [(0, 1, ["ask"]), (1, 2, ["b"])]
        run.add_block(PLACE, ["ask"], TABLES)
        assert [block.name for block in run.manifest.blocks] == ["00001", "00002", "00003", "00004"]
    damage_block("00001")  # holds a part of what 00002 names
    with store.open_folder(tmp_path, MANIFEST, ROWS) as run:
        assert [block.name for block in run.manifest.blocks] == ["00003", "00004"]
        assert run.missing("test", "s", 2, ["ask"]) == [(1, 2, ["ask"])]


def test_an_edited_manifest_is_not_believed(filled: Path) -> None:
    path = filled / "manifest.json"
    path.write_text(path.read_text().replace('"name": "m"', '"name": "GPT-9"'))
    with pytest.raises(StoreError, match="was changed"):
        store.read_manifest(filled)


def test_the_item_table_is_listed_with_size_and_sha256_or_refused(
    filled: Path, tmp_path: Path
) -> None:
    content = (filled / "items.parquet").read_bytes()
    listed = {
        "items.parquet": records.FileRecord(len(content), hashlib.sha256(content).hexdigest())
    }
    assert (store.read_manifest(filled).files, tables.write_items(tmp_path, [ITEM])) == (
        listed,
        listed,
    )
    with pytest.raises(StoreError, match=r"items\.parquet was changed"):
        tables.read_items(filled, replace(store.read_manifest(filled), files={}))


def test_a_table_is_read_only_with_the_fingerprint_and_schema_that_are_wanted(
    tmp_path: Path,
) -> None:
    path = tmp_path / "items.parquet"
    tables.write_arrow(path, tables.make_table(records.ITEMS, [ITEM]))
    assert tables.read_table(
        path, records.ITEMS, tables.fingerprint(path.read_bytes())
    ).to_pylist() == [ITEM._asdict()]
    for listed in (tables.fingerprint(b""), None):
        with pytest.raises(StoreError, match="was changed"):
            tables.read_table(path, records.ITEMS, listed)
    with pytest.raises(StoreError, match="schema of another version"):
        tables.read_table(path, tables.SCHEMAS["spans"], tables.fingerprint(path.read_bytes()))
    files = tables.write_block(tmp_path, "00000", TABLES)
    block = records.BlockRecord(
        name="00000",
        split="test",
        subject="s",
        start=0,
        stop=1,
        asks=("ask",),
        files={"spans.parquet": files["observations.parquet"]},
    )
    folder = tmp_path / "blocks" / "00000"
    (folder / "observations.parquet").rename(folder / "spans.parquet")
    with pytest.raises(StoreError, match="schema of another version"):
        tables.read_blocks(tmp_path, [block], "spans")


def test_a_killed_item_table_leaves_no_half_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(path: Path, *_: Any, **__: Any) -> None:
        path.write_bytes(b"PAR1")
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("choicewise.util.tables.pq.ParquetWriter", killed)
        with pytest.raises(KeyboardInterrupt), store.open_folder(tmp_path, MANIFEST, ROWS):
            pass
    assert list(tmp_path.iterdir()) == []
    fill(tmp_path)
    assert tables.read_items(tmp_path, store.read_manifest(tmp_path)).to_pylist() == [
        ITEM._asdict()
    ]


def test_a_new_file_or_folder_is_there_only_when_complete(filled: Path, tmp_path: Path) -> None:
    before = state(filled)
    with pytest.raises(KeyboardInterrupt), new_folder(filled / "blocks" / "00001") as partial:
        (partial / "spans.parquet").write_bytes(b"half")
        raise KeyboardInterrupt
    assert state(filled) == before
    path = tmp_path / "folder" / "file"
    path.parent.mkdir()
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), new_file(path) as partial:
        partial.write_text("ha")
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    with new_file(path) as partial:
        partial.write_text("new")
    assert {found.name: found.read_text() for found in path.parent.iterdir()} == {"file": "new"}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "damaged"),
        ("[]", "not a manifest"),
        ('{"format": "other"}', "not a manifest"),
        (
            '{"format": "choicewise-run", "version": 99}',
            "has version 99 .*reads 3; upgrade Choicewise",
        ),
        (
            '{"format": "choicewise-run", "version": 2}',
            "has version 2 .*evaluate again",
        ),
        ('{"format": "choicewise-run"}', "has version None .*evaluate again"),
        ('{"format": "choicewise-run", "version": 3}', "field model is missing"),
        (None, "choicewise run"),
    ],
)
def test_a_manifest_that_cannot_be_used_is_refused(
    tmp_path: Path, content: str | None, reason: str
) -> None:
    (tmp_path / "manifest.json" if content else tmp_path / "file").write_text(content or "")
    with pytest.raises(StoreError, match="not a run folder"):
        store.read_manifest(tmp_path / "file")
    with pytest.raises(StoreError, match=reason):
        store.read_manifest(tmp_path)


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
        (
            lambda content: content["dataset"]["categories"]["c"].update(b="s"),
            "field dataset.categories.c.b is 's'",
        ),
    ],
)
def test_the_wrong_field_of_a_manifest_is_named(
    filled: Path, change: Callable[[Any], Any], reason: str
) -> None:
    path = filled / "manifest.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    with pytest.raises(StoreError, match=re.escape(f"{path} is damaged: {reason}")) as error:
        store.read_manifest(filled)
    advice = f"; `cp {filled / 'manifest.copy.json'} {path}` restores it; ... evaluate again"
    assert str(error.value) == Gist(advice)


def test_a_manifest_is_plain_json_and_read_back_as_written(tmp_path: Path) -> None:
    with store.open_folder(
        tmp_path, replace(MANIFEST, selection=records.Selection(("s",), 3)), ROWS
    ) as run:
        run.describe(CHECK)
        run.add_block(PLACE, ["ask"], TABLES, records.Spent(50, 10, 1.5))
    assert store.read_manifest(tmp_path) == run.manifest
    content = json.loads((tmp_path / "manifest.json").read_text())
    assert content["format"] == "choicewise-run"
    assert content["selection"] == {"subjects": ["s"], "limit": 3}, (
        "no field that earlier versions don't know"
    )
    assert content["blocks"][0]["files"]["spans.parquet"]["bytes"] > 0


def test_a_server_is_read_back_as_written_and_so_is_a_folder_from_before_servers(
    tmp_path: Path,
) -> None:
    server = records.ServerRecord(
        "org/m",
        "echo",
        root="/weights",
        software="vLLM 0.32",
        tokenizer="org/m",
        probes={"ab": -1.5},
        noise=1e-4,
        changed="its answers",
    )
    said = replace(MANIFEST, protocols={}, server=server, refused={"q": "no echo"})
    store.write_manifest(tmp_path, said)
    assert store.read_manifest(tmp_path) == said
    store.write_manifest(tmp_path, MANIFEST)
    path = tmp_path / "manifest.json"
    content = json.loads(path.read_text())
    for name in ("server", "refused"):
        del content[name]
    head = {name: content.pop(name) for name in ("format", "version", "sha256")}
    path.write_text(json.dumps({**head, "sha256": json_digest(content), **content}))
    assert store.read_manifest(tmp_path) == MANIFEST


# Observations on their way to disk: every minute, at the end, and whatever ends the block


def observed(folder: Path) -> list[str]:
    return tables.read_blocks(folder, store.read_manifest(folder).blocks, "observations")[
        "key"
    ].to_pylist()


def test_a_minute_is_the_most_that_a_kill_loses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = iter(range(0, 10_000, 25))
    monkeypatch.setattr(store, "perf_counter", lambda: float(next(now)))
    model = SimpleNamespace(computed=None, requests=0, unique=0)
    with (
        store.open_folder(tmp_path, MANIFEST, ROWS) as folder,
        store.BlockWriter(folder, PLACE, model) as writer,
    ):
        for number, blocks in enumerate([0, 0, 1, 1, 1, 2]):
            writer.add(OBSERVATION._replace(key=str(number)))
            assert len(folder.manifest.blocks) == blocks
        writer.write(["ask"])
        assert observed(tmp_path) == ["0", "1", "2", "3", "4", "5"]
        assert [block.asks for block in folder.manifest.blocks] == [(), (), ("ask",)]
        assert folder.manifest.engine.spent is None


def test_what_was_observed_before_an_error_is_kept_with_what_it_cost(tmp_path: Path) -> None:
    model = SimpleNamespace(computed=100, requests=0, unique=0)
    with store.open_folder(tmp_path, MANIFEST, ROWS) as folder:
        with pytest.raises(KeyboardInterrupt), store.BlockWriter(folder, PLACE, model) as writer:
            writer.add(OBSERVATION)
            model.computed += 7
            raise KeyboardInterrupt
        assert (observed(tmp_path), folder.missing("test", "s", 1, ["ask"])) == (
            ["k"],
            [(0, 1, ["ask"])],
        )
        with store.BlockWriter(folder, PLACE, model) as writer:
            model.computed += 3
            writer.write(["ask"], tokens_asked=50)
        spent = folder.manifest.engine.spent
        assert spent is not None
        assert (spent.tokens_asked, spent.tokens_computed) == (50, 10)
        assert folder.missing("test", "s", 1, ["ask"]) == []


# keys that end in zeros are those that a careless comparison of fixed-width text confuses; those that begin with zeros
# have the same first half
SHORT_KEY = st.binary(min_size=1, max_size=2).map(
    lambda start: start.ljust(tables.KEY_BYTES, b"\0").hex()
) | st.binary(min_size=1, max_size=2).map(lambda end: end.rjust(tables.KEY_BYTES, b"\0").hex())
KEY_LISTS = st.lists(
    SHORT_KEY | st.binary(min_size=tables.KEY_BYTES, max_size=tables.KEY_BYTES).map(bytes.hex),
    max_size=8,
)


@given(st.lists(st.tuples(KEY_LISTS, KEY_LISTS), max_size=8))
def test_keys_are_a_set(steps: list[tuple[list[str], list[str]]]) -> None:
    keys, reference = tables.Keys(), set[str]()
    for added, asked in steps:
        keys.add(added)
        reference.update(added)
        assert keys.without(asked) == [key for key in asked if key not in reference]
    assert tables.Keys(reference).without(sorted(reference)) == []


def test_a_model_without_products_is_stored_as_before_there_were_any() -> None:
    assert not {"kind", "products"} & MANIFEST.stored()["model"].keys()
    assert "products" not in MODEL.computation
    library = replace(MODEL, products="onednn")
    assert replace(MANIFEST, model=library).stored()["model"]["products"] == "onednn"
    assert library.computation != MODEL.computation
