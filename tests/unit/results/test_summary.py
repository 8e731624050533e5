"""A kept summary is what reading the whole run gives, and counts only for that very state of the run and the code."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from choicewise import evaluate, open_run
from choicewise.board.library import read_snapshot
from choicewise.board.runs import artefact_content
from choicewise.cli.commands import invoke
from choicewise.errors import StoreError
from choicewise.models.fake import HashModel
from choicewise.page.document import write_page
from choicewise.records import ITEM_FILE, SUMMARY
from choicewise.results import summary
from choicewise.results import summary as summary_file
from choicewise.results.outcomes import Summary
from choicewise.results.rows import Row
from choicewise.results.run import Run
from choicewise.results.summary import keep_summary, state, summarize
from choicewise.store.folder import read_manifest, write_manifest
from choicewise.store.tables import fingerprint
from choicewise.util.files import locked
from tests.helpers.commands import choicewise
from tests.helpers.mmlu_data import set_block_size, write_mmlu
from tests.whole.test_portions import Dying

NAMES = ["mmlu/original", "mmlu/harness-v0:pmi-answer", "mmlu/helm", "options/permuted-full"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_mmlu(tmp_path / "data")


@pytest.fixture
def run(data: Path, tmp_path: Path) -> Run:
    return evaluate(model="fake:hash", data=data, protocols=NAMES, out=tmp_path / "run")


@pytest.fixture
def forbidden(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """From now on nothing is computed anew."""

    def refuse(folder: object) -> Run:
        raise AssertionError(f"{folder} is read in full")

    monkeypatch.setattr(summary, "open_run", refuse)
    return monkeypatch


def told(rows: Sequence[Row]) -> str:
    """The rows with NaN, which is not equal to itself."""
    return json.dumps([asdict(row) for row in rows])


def assert_as_fresh(kept: Summary) -> None:
    """The plain reference: everything computed from the folder."""
    run = open_run(kept.folder)
    assert told(kept.rows) == told(run.rows())
    assert kept.manifest == run.manifest
    assert (kept.outcomes.model, kept.outcomes.dataset) == (run.manifest.model.name, run.manifest.dataset.name)
    assert kept.outcomes.digest == run.manifest.dataset.digest
    assert [each.name for each in kept.outcomes.outcomes] == list(run.measurements)
    for outcome, measured in zip(kept.outcomes.outcomes, run.measurements.values(), strict=True):
        assert outcome.protocol == measured.protocol
        assert outcome.ids.equals(measured.ids)
        assert outcome.subjects == measured.subjects
        np.testing.assert_array_equal(outcome.credit, measured.credit)
        np.testing.assert_array_equal(outcome.prediction, measured.prediction)
        assert (outcome.codes.dtype.itemsize, outcome.predicted.dtype.itemsize) == (1, 1)
        assert outcome.categories == measured.categories


def test_the_kept_summary_is_the_fresh_one(run: Run, forbidden: pytest.MonkeyPatch) -> None:
    first = keep_summary(run)
    kept = summarize(run.folder)
    assert_as_fresh(first)
    assert_as_fresh(kept)
    assert [each.selection for each in kept.outcomes.outcomes] == [each.selection for each in first.outcomes.outcomes]
    assert any(np.isnan(row.low) for row in kept.rows)  # NaN comes back
    assert {type(row.diagnosis.warnings) for row in kept.rows} == {tuple}


def test_categories_and_groups(tmp_path: Path, data: Path) -> None:
    names = ["mmlu/original", "mmlu/harness-v0.4"]
    run = evaluate(model="fake:hash", data=data, protocols=names, out=tmp_path / "groups")
    protocols = {"a": replace(run.protocols[names[0]], aggregation="macro", ties="split")}
    run = evaluate(model="fake:hash", data=data, protocols=protocols, out=run.folder)
    summarize(run.folder)
    assert_as_fresh(summarize(run.folder))


def test_splits_with_other_items(tmp_path: Path, data: Path) -> None:
    (name, other), recipe = ("test", "validation"), open_run(_made(tmp_path, data)).protocols["mmlu/original"]
    protocols = {split: replace(recipe, split=split) for split in (name, other)}
    run = evaluate(model="fake:hash", data=data, protocols=protocols, out=tmp_path / "splits")
    summarize(run.folder)
    kept = summarize(run.folder)
    assert_as_fresh(kept)
    assert not kept.outcomes.outcomes[0].ids.equals(kept.outcomes.outcomes[1].ids)


def _made(tmp_path: Path, data: Path) -> Path:
    return evaluate(model="fake:hash", data=data, protocols=["mmlu/original"], out=tmp_path / "made").folder


@pytest.mark.costly("runs are evaluated and compared")
def test_a_new_protocol_needs_a_new_summary(run: Run, data: Path) -> None:
    before = summarize(run.folder)
    evaluate(model="fake:hash", data=data, protocols=["mmlu/cloze:sum"], out=run.folder)
    after = summarize(run.folder)
    assert len(after.rows) == len(before.rows) + 1
    assert_as_fresh(after)
    assert_as_fresh(summarize(run.folder))


@pytest.mark.costly("runs are evaluated and compared")
def test_an_unfinished_run(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_block_size(monkeypatch, 4)
    asked: dict[str, Any] = {"data": data, "protocols": NAMES, "out": tmp_path / "run"}
    for answers in (0, 150):
        with pytest.raises(KeyboardInterrupt):
            evaluate(model=Dying(answers), **asked)
        summarize(tmp_path / "run")
        kept = summarize(tmp_path / "run")
        assert {row.selection.partition(":")[0] for row in kept.rows} == {"incomplete"}
        assert_as_fresh(kept)
    evaluate(model=HashModel(), **asked)
    assert {row.selection for row in summarize(tmp_path / "run").rows} == {""}


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 4] ^= 1
    path.write_bytes(content)


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _replace(path: Path) -> None:
    path.write_text("{}")


@pytest.mark.parametrize("damage", [_cut, _flip, _empty, _replace])
def test_a_damaged_file_is_written_again(damage: Any, run: Run) -> None:
    whole = told(summarize(run.folder).rows)
    content = (run.folder / SUMMARY).read_bytes()
    damage(run.folder / SUMMARY)
    with pytest.warns(UserWarning, match="the numbers are computed from the observations"):
        assert told(summarize(run.folder).rows) == whole
    assert (run.folder / SUMMARY).read_bytes() == content


def test_every_byte_of_the_file_counts(run: Run) -> None:
    """A flipped bit is noticed, or changes nothing that is read."""
    whole = told(summarize(run.folder).rows)
    path = run.folder / SUMMARY
    content = path.read_bytes()
    for place in range(0, len(content), 37):
        path.write_bytes(content[:place] + bytes([content[place] ^ 16]) + content[place + 1 :])
        kept = summary_file.read_summary(run.folder, run.manifest)
        assert kept is None or told([row for each in kept for row in each.rows]) == whole


@pytest.mark.costly("runs are evaluated and compared")
def test_a_summary_of_another_run_is_ignored(run: Run, data: Path, tmp_path: Path) -> None:
    other = evaluate(model=HashModel(1), data=data, protocols=NAMES, out=tmp_path / "other")
    summarize(other.folder)
    shutil.copy(other.folder / SUMMARY, run.folder / SUMMARY)
    with pytest.warns(UserWarning, match="the numbers are computed from the observations"):
        assert_as_fresh(summarize(run.folder))


def test_other_code_computes_again(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    before = state(run.manifest)
    summarize(run.folder)
    monkeypatch.setattr(summary_file, "_code", lambda: "other")
    assert state(run.manifest) != before
    assert summary_file.read_summary(run.folder, run.manifest) is None


@pytest.mark.costly("imports in a process of its own")
def test_the_code_that_counts_is_all_that_a_summary_imports() -> None:
    """What a summary needs must lie in the rooms whose source makes the key; errors are raised, not computed with."""
    code = "import sys, choicewise.results.summary; print(*sys.modules)"
    names = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    rooms = {name.split(".")[1] for name in names if name.startswith("choicewise.")}
    assert rooms <= {*(part.removesuffix(".py") for part in summary_file.SOURCES), "errors"}


def test_what_decides_the_numbers_decides_the_state(run: Run) -> None:
    manifest, engine = run.manifest, run.manifest.engine
    same = replace(manifest, model=replace(manifest.model, name="b"), dataset=replace(manifest.dataset, name="b"))
    assert state(replace(same, engine=replace(engine, spent=None))) == state(manifest)
    first, second, *others = manifest.protocols.items()
    changes = {
        "model": replace(manifest.model, dtype="bfloat16"),
        "dataset": replace(manifest.dataset, content=("passage",)),
        "selection": replace(manifest.selection, limit=3),
        "protocols": dict([second, first, *others]),  # the rows come in another order
        "versions": {},
        "blocks": manifest.blocks[1:],
        "complete": False,
        "files": {},
    }
    states = {state(replace(manifest, **{name: value})) for name, value in changes.items()}
    assert len(states | {state(manifest)}) == len(changes) + 1


def test_a_renamed_model_has_its_new_name(run: Run, forbidden: pytest.MonkeyPatch) -> None:
    keep_summary(run)
    manifest = read_manifest(run.folder)
    write_manifest(run.folder, replace(manifest, model=replace(manifest.model, name="new name")))
    kept = summarize(run.folder)
    assert {row.model for row in kept.rows} == {kept.outcomes.model} == {"new name"}
    assert_as_fresh(kept)


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only for root")
def test_a_read_only_folder_is_summarized_without_keeping(run: Run) -> None:
    run.folder.chmod(0o555)
    try:
        assert_as_fresh(summarize(run.folder))
    finally:
        run.folder.chmod(0o755)
    assert not (run.folder / SUMMARY).exists()


def test_what_cannot_be_written_is_not_kept(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    assert_as_fresh(summarize(run.folder))
    assert not list(run.folder.glob(f"{SUMMARY}*"))


def _delete(block: Path) -> None:
    shutil.rmtree(block)


def _change(block: Path) -> None:
    _flip(block / "spans.parquet")


@pytest.mark.costly("runs are evaluated and compared")
@pytest.mark.parametrize("damage", [_delete, _change])
def test_a_damaged_block_is_named_every_time(
    damage: Any, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_block_size(monkeypatch, 5)
    run = evaluate(model="fake:hash", data=data, protocols=NAMES, out=tmp_path / "run")
    whole = summarize(run.folder)
    damage(run.folder / "blocks" / run.manifest.blocks[1].name)
    for _ in range(2):
        with pytest.warns(UserWarning, match="left out: items"):
            damaged = summarize(run.folder)
        assert {row.selection.partition(":")[0] for row in damaged.rows} == {"incomplete"}
    assert summary_file.read_summary(run.folder, run.manifest) is None
    evaluate(model="fake:hash", data=data, protocols=NAMES, out=run.folder)
    assert [row.value for row in summarize(run.folder).rows] == pytest.approx([row.value for row in whole.rows])


def test_a_copied_run_is_checked_once(run: Run, tmp_path: Path, forbidden: pytest.MonkeyPatch) -> None:
    keep_summary(run)
    shutil.copytree(run.folder, tmp_path / "copy")
    later = (tmp_path / "copy" / SUMMARY).stat().st_mtime_ns + 10**9
    for file in (tmp_path / "copy" / "blocks").rglob("*.parquet"):
        os.utime(file, ns=(later, later))
    checked: list[int] = []
    original = summary_file.damaged_blocks
    forbidden.setattr(
        summary_file, "damaged_blocks", lambda path, blocks: checked.append(len(blocks)) or original(path, blocks)
    )
    summarize(tmp_path / "copy")
    os.utime(tmp_path / "copy" / SUMMARY, ns=(later + 1, later + 1))
    summarize(tmp_path / "copy")
    assert checked == [len(run.manifest.blocks), 0]


def test_some_of_the_protocols_are_not_kept(run: Run) -> None:
    some = keep_summary(run.choose(NAMES[:2]))
    assert [each.name for each in some.outcomes.outcomes] == NAMES[:2]
    assert not (run.folder / SUMMARY).exists()


def test_a_damaged_item_table_is_an_error(run: Run) -> None:
    summarize(run.folder)
    _flip(run.folder / "items.parquet")
    with pytest.raises(StoreError, match="sha256 differs"):
        summarize(run.folder)


def test_runs_on_the_same_data_share_the_items(run: Run, data: Path, tmp_path: Path) -> None:
    other = evaluate(model=HashModel(1), data=data, protocols=NAMES, out=tmp_path / "other")
    kept = [summarize(each.folder) and summarize(each.folder) for each in (run, other)]
    assert len({id(each.items) for one in kept for each in one.outcomes.outcomes}) == 1


def test_the_command_keeps_it_and_repeating_it_changes_nothing(data: Path, tmp_path: Path) -> None:
    line = ["run", "--model", "fake:hash", "--data", str(data), "--protocol", "mmlu/original", "--out"]
    line.append(str(tmp_path / "run"))
    table = choicewise(*line).stdout
    before = {
        file: (file.read_bytes(), file.stat().st_mtime_ns) for file in (tmp_path / "run").iterdir() if file.is_file()
    }
    assert tmp_path / "run" / SUMMARY in before
    assert choicewise(*line).stdout == table
    assert {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in before} == before


def test_a_report_reads_no_block_where_a_summary_is_kept(run: Run, forbidden: pytest.MonkeyPatch) -> None:
    line = ["report", str(run.folder), str(run.folder)]
    keep_summary(run)
    kept = choicewise(*line)
    assert kept.code == 0
    (run.folder / SUMMARY).unlink()
    forbidden.undo()
    assert choicewise(*line).stdout == kept.stdout


def test_damage_that_keeps_the_time_of_the_file_is_seen(run: Run) -> None:
    summarize(run.folder)
    file = next((run.folder / "blocks").rglob("*.parquet"))
    before, content = file.stat(), bytearray(file.read_bytes())
    content[len(content) // 2] ^= 255
    file.write_bytes(content)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.warns(UserWarning, match=file.name):
        summarize(run.folder)


# A file that is not what was written


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with its summary; whoever changes the file puts it back."""
    home = tmp_path_factory.mktemp("finished")
    run = evaluate(model="fake:hash", data=write_mmlu(home / "data"), protocols=NAMES[:2], out=home / "run")
    summarize(run.folder)
    return run.folder


def reported(folder: Path) -> tuple[int, Any, list[str]]:
    """The exit code of the report, its JSON, and the lines that it says."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), warnings.catch_warnings():
        warnings.simplefilter("always")
        code = invoke(["report", str(folder), "--json"])
    return code, json.loads(out.getvalue()), err.getvalue().splitlines()


def edited(text: str) -> str:
    """The rows of a summary with every value at 99.9 %."""
    return re.sub(r'"value": [0-9.]+', '"value": 0.999', text)


def with_column(table: pa.Table, name: str, values: list[Any], kind: pa.DataType | None = None) -> pa.Table:
    column = pa.array(values, kind or table.schema.field(name).type)
    return table.set_column(table.schema.names.index(name), name, column)


def cell_changes(draw: st.DrawFn, table: pa.Table) -> pa.Table:
    """One cell is null, too short, too long, out of its range, or not what it should be."""
    name = draw(st.sampled_from(table.column_names))
    values = table[name].to_pylist()
    place = draw(st.integers(0, len(values) - 1))
    old = values[place] or table["items"][0].as_py()
    longer, beyond = [*old, old[-1]], [9_999, *old[1:]]
    others: dict[str, list[Any]] = {
        "protocol": ["", "mmlu/other", values[place - 1]],
        "rows": ["", "{}", "[{}]", "[[", "null", values[place - 1]],
        "items": [longer, beyond, [-9, *old[1:]]],
        "codes": [longer, beyond, [-9, *old[1:]]],
        "predicted": [longer, [-9, *old[1:]]],
    }
    if isinstance(table.schema.field(name).type, pa.ListType):
        others[name] = [*others.get(name, []), [], old[:-1], [None, *old[1:]]]
    values[place] = draw(st.sampled_from([*others.get(name, []), *([None] if name != "items" or not place else [])]))
    return with_column(table, name, values)


def table_changes(draw: st.DrawFn, table: pa.Table) -> pa.Table:
    """Rows or columns that are there twice, not at all, in another order, under another name or of another type."""
    name = draw(st.sampled_from(table.column_names))
    other = {"list": pa.string(), "string": pa.binary()}.get(str(table.schema.field(name).type), pa.string())
    changes = [
        lambda: table.slice(0, 0),
        lambda: table.slice(1),
        lambda: pa.concat_tables([table, table]),
        lambda: table.take(pa.array([1, 0])),
        lambda: table.drop_columns([name]),
        lambda: table.append_column("more", pa.array([1] * len(table))),
        lambda: table.rename_columns([f"{each}s" if each == name else each for each in table.column_names]),
        lambda: with_column(table, name, [None] * len(table), other),
        lambda: pa.table({"a": [1]}, metadata=table.schema.metadata),
        lambda: table.replace_schema_metadata(None),
    ]
    return draw(st.sampled_from(changes))()


@st.composite
def changed_files(draw: st.DrawFn, content: bytes) -> tuple[bytes, bool]:
    """A file that is not the one with this ``content``, and whether it makes sense, so that only its sum tells it."""
    table = pq.read_table(io.BytesIO(content))
    match draw(st.sampled_from(["values", "cells", "table", "cut", "bytes", "foreign"])):
        case "cut":
            return content[: draw(st.integers(0, len(content) - 1))], False
        case "foreign":
            return draw(st.binary(max_size=100)), False
        case "bytes":
            place = draw(st.integers(0, len(content) - 1))
            return content[:place] + bytes([content[place] ^ draw(st.integers(1, 255))]) + content[place + 1 :], True
        case "values":
            table = with_column(table, "rows", [edited(text) for text in table["rows"].to_pylist()])
            return written(with_column(table, "codes", [[0] * len(each) for each in table["codes"].to_pylist()])), True
        case "cells":
            return written(cell_changes(draw, table)), False
        case _:
            return written(table_changes(draw, table)), False


def written(table: pa.Table) -> bytes:
    file = io.BytesIO()
    pq.write_table(table, file)
    return file.getvalue()


@pytest.mark.costly("runs are evaluated and compared")
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_a_changed_summary_changes_no_report_and_is_said(finished: Path, drawn: st.DataObject) -> None:
    path = finished / SUMMARY
    content, manifest, whole = path.read_bytes(), read_manifest(finished), reported(finished)
    assert whole[0] == 0
    changed, sensible = drawn.draw(changed_files(content))
    assume(changed != content)
    path.write_bytes(changed)
    older = False
    if not sensible and drawn.draw(st.booleans()):  # the manifest lists it as if it had been written so
        write_manifest(finished, replace(manifest, files={**manifest.files, SUMMARY: fingerprint(changed)}))
        older = is_of_another_state(changed)
    code, rows, lines = reported(finished)
    assert (code, rows) == whole[:2]
    said = [line for line in lines if line not in whole[2]]
    assert len(said) == (0 if older else 1), lines
    assert all("the numbers are computed from the observations" in line for line in said)
    assert path.read_bytes() == content
    assert read_manifest(finished) == manifest
    assert reported(finished) == whole


def is_of_another_state(content: bytes) -> bool:
    try:
        return b"choicewise.state" not in (pq.read_schema(io.BytesIO(content)).metadata or {})
    except (pa.ArrowException, OSError):
        return False


@pytest.mark.costly("a board reads runs in a process of its own")
def test_an_edited_summary_is_nowhere(finished: Path, tmp_path: Path) -> None:
    """Not on the page, not on the board, nor among what the board gives away; where nothing can be written, too."""
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    table = pq.read_table(run / SUMMARY)
    pq.write_table(with_column(table, "rows", [edited(text) for text in table["rows"].to_pylist()]), run / SUMMARY)
    forged = (run / SUMMARY).read_bytes()
    assert artefact_content(SUMMARY, run, ()) is None
    with locked(run), warnings.catch_warnings(record=True) as said:  # nobody else writes meanwhile
        warnings.simplefilter("always")
        snapshot = read_snapshot([run])
        rows = [row for each in snapshot.board.runs for row in each.rows]
        assert told(rows) == told(open_run(run).rows())
        write_page([run], tmp_path / "page.html", None)
    assert "0.999" not in (tmp_path / "page.html").read_text()
    assert (run / SUMMARY).read_bytes() == forged
    assert {str(each.message).partition(";")[2] for each in said} == {" the numbers are computed from the observations"}


def test_a_summary_that_the_manifest_does_not_list_is_computed_again(finished: Path, tmp_path: Path) -> None:
    """As those of earlier versions, and one whose run was killed before it was listed."""
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    manifest = read_manifest(run)
    write_manifest(run, replace(manifest, files={ITEM_FILE: manifest.files[ITEM_FILE]}))
    with pytest.warns(UserWarning, match="is not listed in the manifest; the numbers are computed"):
        summarize(run)
    assert read_manifest(run) == manifest
    assert_as_fresh(summarize(run))


def test_a_summary_is_not_written_beside_another_process_or_into_another_state(finished: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    (run / SUMMARY).unlink()
    with locked(run):
        assert_as_fresh(summarize(run))
    assert not (run / SUMMARY).exists()
    opened = open_run(run)
    manifest = replace(opened.manifest, complete=False)
    write_manifest(run, manifest)
    keep_summary(opened)
    assert not (run / SUMMARY).exists()
    assert read_manifest(run) == manifest
