"""A kept summary is what reading the whole run gives, and counts only for that very state of the run and the code."""

import errno
import io
import json
import os
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
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
from choicewise.errors import StoreError
from choicewise.extensions.board.library import read_snapshot
from choicewise.extensions.board.runs import artefact_content
from choicewise.models.fake import HashModel
from choicewise.page.document import write_page
from choicewise.records import ITEM_FILE, SUMMARY
from choicewise.results import summary
from choicewise.results.number import Number
from choicewise.results.outcomes import Summary
from choicewise.results.run import Run
from choicewise.results.summary import keep_summary, read_summary, state, summarize
from choicewise.store.folder import read_manifest, write_manifest
from choicewise.store.tables import fingerprint
from choicewise.util.files import locked
from tests.helpers.commands import CommandResult, choicewise
from tests.helpers.hash_models import Failing
from tests.helpers.mmlu_data import set_block_size, write_mmlu

NAMES = ["mmlu/original", "mmlu/harness-v0:pmi-answer", "mmlu/helm", "options/permuted-full"]
COMPUTED = "recomputing the scores from the answers"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_mmlu(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def evaluated(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return evaluate(
        model="fake:hash", data=data, protocols=NAMES, out=tmp_path_factory.mktemp("run") / "run"
    ).folder


@pytest.fixture
def run(evaluated: Path, tmp_path: Path) -> Run:
    """A run without a summary, which a test may change."""
    return open_run(shutil.copytree(evaluated, tmp_path / "run"))


@pytest.fixture
def forbidden(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """From now on nothing is computed anew."""

    def refuse(folder: object) -> Run:
        raise AssertionError(f"{folder} is read in full")

    monkeypatch.setattr(summary, "open_run", refuse)
    return monkeypatch


def as_text(rows: Sequence[Number]) -> str:
    """The rows with NaN, which is not equal to itself."""
    return json.dumps([asdict(row) for row in rows])


def assert_as_fresh(kept: Summary) -> None:
    """The plain reference: everything computed from the folder."""
    run = open_run(kept.folder)
    assert as_text(kept.rows) == as_text(run.rows())
    assert kept.manifest == run.manifest
    assert (kept.outcomes.model, kept.outcomes.dataset) == (
        run.manifest.model.name,
        run.manifest.dataset.name,
    )
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


def kept_and_read(folder: Path) -> Summary:
    """The summary as it is read where it was kept before."""
    summarize(folder)
    kept = summarize(folder)
    assert_as_fresh(kept)
    return kept


def selections(kept: Summary) -> set[str]:
    return {row.identity.selection.partition(":")[0] for row in kept.rows}


def test_the_kept_summary_is_the_fresh_one_and_has_a_models_new_name(
    run: Run, forbidden: pytest.MonkeyPatch
) -> None:
    first = keep_summary(run)
    kept = summarize(run.folder)
    assert_as_fresh(first)
    assert_as_fresh(kept)
    assert [each.selection for each in kept.outcomes.outcomes] == [
        each.selection for each in first.outcomes.outcomes
    ]
    assert any(np.isnan(row.bounds.low) for row in kept.rows)  # NaN comes back
    assert {type(row.diagnosis.warnings) for row in kept.rows} == {tuple}
    manifest = read_manifest(run.folder)
    write_manifest(run.folder, replace(manifest, model=replace(manifest.model, name="new name")))
    renamed = summarize(run.folder)
    assert {row.identity.model for row in renamed.rows} == {renamed.outcomes.model} == {"new name"}
    assert_as_fresh(renamed)


def test_categories_groups_and_splits_with_other_items(
    run: Run, data: Path, tmp_path: Path
) -> None:
    recipe = run.protocols["mmlu/original"]
    grouped = {"a": replace(recipe, aggregation="macro", ties="split")}
    for protocols in (["mmlu/original", "mmlu/harness-v0.4"], grouped):
        evaluate(model="fake:hash", data=data, protocols=protocols, out=tmp_path / "groups")
    kept_and_read(tmp_path / "groups")
    protocols = {split: replace(recipe, split=split) for split in ("test", "validation")}
    one, other = kept_and_read(
        evaluate(model="fake:hash", data=data, protocols=protocols, out=tmp_path / "splits").folder
    ).outcomes.outcomes
    assert not one.ids.equals(other.ids)


@pytest.mark.costly("a run is evaluated and read in full")
def test_a_new_protocol_needs_a_new_summary(run: Run, data: Path) -> None:
    before = summarize(run.folder)
    evaluate(model="fake:hash", data=data, protocols=["mmlu/cloze:sum"], out=run.folder)
    after = summarize(run.folder)
    assert len(after.rows) == len(before.rows) + 1
    assert_as_fresh(after)
    assert_as_fresh(summarize(run.folder))


def test_an_unfinished_run(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_block_size(monkeypatch, 4)
    monkeypatch.setattr(summary, "MANY", 1)
    asked: dict[str, Any] = {"data": data, "protocols": NAMES[:2], "out": tmp_path / "run"}
    for most in (0, 70):
        with pytest.raises(KeyboardInterrupt):
            evaluate(model=Failing(most=most), **asked)
        assert selections(kept_and_read(tmp_path / "run")) == {"incomplete"}
    evaluate(model=HashModel(), **asked)
    assert selections(summarize(tmp_path / "run")) == {""}


def flipped(content: bytes, place: int = 100, bits: int = 1) -> bytes:
    return content[:place] + bytes([content[place] ^ bits]) + content[place + 1 :]


def change(path: Path, changed: Callable[[bytes], bytes]) -> None:
    path.write_bytes(changed(path.read_bytes()))


def test_every_byte_of_the_file_counts(run: Run) -> None:
    """A flipped bit is noticed, or changes nothing that is read."""
    whole, path = as_text(summarize(run.folder).rows), run.folder / SUMMARY
    content = path.read_bytes()
    for place in range(0, len(content), 37):
        path.write_bytes(flipped(content, place, 16))
        kept = read_summary(run.folder, run.manifest)
        assert kept is None or as_text(kept.rows) == whole


@pytest.mark.costly("two runs are read in full three times")
def test_a_summary_of_another_run_is_ignored_and_its_items_are_shared(
    run: Run, data: Path, tmp_path: Path
) -> None:
    other = evaluate(model=HashModel(1), data=data, protocols=NAMES, out=tmp_path / "other")
    kept = [kept_and_read(each.folder) for each in (run, other)]
    assert len({id(each.items) for one in kept for each in one.outcomes.outcomes}) == 1
    shutil.copy(other.folder / SUMMARY, run.folder / SUMMARY)
    with pytest.warns(UserWarning, match=COMPUTED):
        assert_as_fresh(summarize(run.folder))


@pytest.mark.costly("imports in a process of its own")
def test_the_code_that_counts_is_all_that_a_summary_imports() -> None:
    """What a summary needs must lie in the rooms whose source makes the key; errors and ports compute nothing."""
    code = "import sys, choicewise.results.summary; print(*sys.modules)"
    names = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    rooms = {name.split(".")[1] for name in names if name.startswith("choicewise.")}
    assert rooms <= {*(part.removesuffix(".py") for part in summary.SOURCES), "errors", "ports"}


def test_what_decides_the_numbers_and_other_code_decide_the_state(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest, engine = run.manifest, run.manifest.engine
    same = replace(
        manifest,
        model=replace(manifest.model, name="b"),
        dataset=replace(manifest.dataset, name="b"),
    )
    before = state(manifest)
    assert state(replace(same, engine=replace(engine, spent=None))) == before
    first, second, *others = manifest.protocols.items()
    changes = {
        "model": replace(manifest.model, dtype="bfloat16"),
        "dataset": replace(manifest.dataset, content=("passage",)),
        "selection": replace(manifest.selection, limit=3),
        "protocols": dict([second, first, *others]),  # the rows come in another order
        **{"versions": {}, "blocks": manifest.blocks[1:], "complete": False, "files": {}},
    }
    states = {state(replace(manifest, **{name: value})) for name, value in changes.items()}
    assert len(states | {before}) == len(changes) + 1
    summarize(run.folder)
    monkeypatch.setattr(summary, "_code", lambda: "other")
    assert state(manifest) not in {before, *states}
    assert read_summary(run.folder, manifest) is None


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only for root")
def test_a_read_only_folder_is_summarized_without_keeping(run: Run) -> None:
    run.folder.chmod(0o555)
    try:
        assert_as_fresh(summarize(run.folder))
    finally:
        run.folder.chmod(0o755)
    assert not (run.folder / SUMMARY).exists()


@pytest.mark.costly("half a second where the first of its file pays for imports")
@pytest.mark.parametrize(
    "damage", [shutil.rmtree, lambda block: change(block / "spans.parquet", flipped)]
)
def test_a_damaged_block_is_named_every_time_and_a_damaged_item_table_is_an_error(
    damage: Callable[[Path], None], data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_block_size(monkeypatch, 5)
    run = evaluate(model="fake:hash", data=data, protocols=NAMES[:2], out=tmp_path / "run")
    whole = summarize(run.folder)
    damage(run.folder / "blocks" / run.manifest.blocks[1].name)
    for _ in range(2):
        with pytest.warns(UserWarning, match="left out: items"):
            assert selections(summarize(run.folder)) == {"incomplete"}
    assert read_summary(run.folder, run.manifest) is None
    evaluate(model="fake:hash", data=data, protocols=NAMES[:2], out=run.folder)
    assert [row.value for row in summarize(run.folder).rows] == pytest.approx(
        [row.value for row in whole.rows]
    )
    change(run.folder / "items.parquet", flipped)
    with pytest.raises(StoreError, match="sha256 differs"):
        summarize(run.folder)


def test_a_copied_run_is_checked_once_and_a_report_of_it_reads_no_block(
    run: Run, tmp_path: Path, forbidden: pytest.MonkeyPatch
) -> None:
    keep_summary(run)
    copy = shutil.copytree(run.folder, tmp_path / "copy")
    later = (copy / SUMMARY).stat().st_mtime_ns + 10**9
    for file in (copy / "blocks").rglob("*.parquet"):
        os.utime(file, ns=(later, later))
    checked, original = list[int](), summary.damaged_blocks
    forbidden.setattr(
        summary,
        "damaged_blocks",
        lambda path, blocks: checked.append(len(blocks)) or original(path, blocks),
    )
    summarize(copy)
    os.utime(copy / SUMMARY, ns=(later + 1, later + 1))
    summarize(copy)
    assert checked == [len(run.manifest.blocks), 0]
    kept = choicewise("report", copy, copy, code=0)
    (copy / SUMMARY).unlink()
    forbidden.undo()
    assert choicewise("report", copy, copy).stdout == kept.stdout


def test_the_command_keeps_it_and_repeating_it_changes_nothing(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    line = (
        "run",
        "--model",
        "fake:hash",
        "--data",
        data,
        "--protocol",
        "mmlu/original",
        "--out",
        out,
    )
    table = choicewise(*line).stdout
    before = {
        file: (file.read_bytes(), file.stat().st_mtime_ns)
        for file in out.iterdir()
        if file.is_file()
    }
    assert out / SUMMARY in before
    assert choicewise(*line).stdout == table
    assert {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in before} == before


def test_damage_that_keeps_the_time_of_the_file_is_seen(run: Run) -> None:
    summarize(run.folder)
    file = next((run.folder / "blocks").rglob("*.parquet"))
    before = file.stat()
    change(file, flipped)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.warns(UserWarning, match=file.name):
        summarize(run.folder)


# A file that is not what was written


@pytest.fixture(scope="module")
def finished(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with its summary; whoever changes the file puts it back."""
    out = tmp_path_factory.mktemp("finished") / "run"
    return summarize(
        evaluate(model="fake:hash", data=data, protocols=NAMES[:2], out=out).folder
    ).folder


@pytest.fixture(scope="module")
def reported(finished: Path) -> CommandResult:
    return choicewise("report", finished, "--json", code=0)


def edited(table: pa.Table) -> pa.Table:
    """A summary with every value at 99.9 %."""
    rows = [
        re.sub(r'"value": [0-9.]+', '"value": 0.999', text) for text in table["rows"].to_pylist()
    ]
    return with_column(table, "rows", rows)


def with_column(
    table: pa.Table, name: str, values: list[Any], kind: pa.DataType | None = None
) -> pa.Table:
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
    values[place] = draw(
        st.sampled_from([*others.get(name, []), *([None] if name != "items" or not place else [])])
    )
    return with_column(table, name, values)


def table_changes(draw: st.DrawFn, table: pa.Table) -> pa.Table:
    """Rows or columns that are there twice, not at all, in another order, under another name or of another type."""
    name = draw(st.sampled_from(table.column_names))
    other = {"list": pa.string(), "string": pa.binary()}.get(
        str(table.schema.field(name).type), pa.string()
    )
    changes = [
        lambda: table.slice(0, 0),
        lambda: table.slice(1),
        lambda: pa.concat_tables([table, table]),
        lambda: table.take(pa.array([1, 0])),
        lambda: table.drop_columns([name]),
        lambda: table.append_column("more", pa.array([1] * len(table))),
        lambda: table.rename_columns(
            [f"{each}s" if each == name else each for each in table.column_names]
        ),
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
            return flipped(content, place, draw(st.integers(1, 255))), True
        case "values":
            zeros = [[0] * len(each) for each in table["codes"].to_pylist()]
            return written(with_column(edited(table), "codes", zeros)), True
        case kind:
            return written(
                {"cells": cell_changes, "table": table_changes}[kind](draw, table)
            ), False


def written(table: pa.Table) -> bytes:
    file = io.BytesIO()
    pq.write_table(table, file)
    return file.getvalue()


@pytest.mark.costly("30 reports of a run whose summary does not count")
@settings(suppress_health_check=list(HealthCheck))
@given(st.data())
def test_a_changed_summary_changes_no_report_and_is_said(
    finished: Path, reported: CommandResult, drawn: st.DataObject
) -> None:
    path = finished / SUMMARY
    content, manifest = path.read_bytes(), read_manifest(finished)
    changed, sensible = drawn.draw(changed_files(content))
    assume(changed != content)
    path.write_bytes(changed)
    older = False
    if not sensible and drawn.draw(
        st.booleans()
    ):  # the manifest lists it as if it had been written so
        write_manifest(
            finished, replace(manifest, files={**manifest.files, SUMMARY: fingerprint(changed)})
        )
        with suppress(pa.ArrowException, OSError):
            older = b"choicewise.state" not in (pq.read_schema(io.BytesIO(changed)).metadata or {})
    found = choicewise("report", finished, "--json", code=0)
    assert found.stdout == reported.stdout
    said = [line for line in found.stderr.splitlines() if line not in reported.stderr.splitlines()]
    assert len(said) == (0 if older else 1), found.stderr
    assert all(COMPUTED in line for line in said)
    assert path.read_bytes() == content
    assert read_manifest(finished) == manifest


@pytest.mark.costly("a board reads runs in a process of its own")
def test_an_edited_summary_is_nowhere(finished: Path, tmp_path: Path) -> None:
    """Not on the page, not on the board, nor among what the board gives away; where nothing can be written, too."""
    run = shutil.copytree(finished, tmp_path / "run")
    pq.write_table(edited(pq.read_table(run / SUMMARY)), run / SUMMARY)
    forged = (run / SUMMARY).read_bytes()
    assert artefact_content(SUMMARY, run, ()) is None
    with locked(run), warnings.catch_warnings(record=True) as said:  # nobody else writes meanwhile
        warnings.simplefilter("always")
        rows = [row for each in read_snapshot([run]).board.runs for row in each.rows]
        assert as_text(rows) == as_text(open_run(run).rows())
        write_page([run], tmp_path / "page.html", None)
    assert "0.999" not in (tmp_path / "page.html").read_text()
    assert (run / SUMMARY).read_bytes() == forged
    assert {str(each.message).partition(";")[2] for each in said} == {f" {COMPUTED}"}


def test_a_summary_that_the_manifest_does_not_list_is_computed_again(
    finished: Path, tmp_path: Path
) -> None:
    """As those of earlier versions, and one whose run was killed before it was listed."""
    run = shutil.copytree(finished, tmp_path / "run")
    manifest = read_manifest(run)
    write_manifest(run, replace(manifest, files={ITEM_FILE: manifest.files[ITEM_FILE]}))
    with pytest.warns(UserWarning, match="listed in the manifest"):
        summarize(run)
    assert read_manifest(run) == manifest
    assert_as_fresh(summarize(run))


def test_where_no_summary_is_written(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of some protocols, on a full disk, beside another process, into another state."""

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    some = keep_summary(run.choose(NAMES[:2]))
    assert [each.name for each in some.outcomes.outcomes] == NAMES[:2]
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        assert_as_fresh(summarize(run.folder))
    with locked(run.folder):
        assert_as_fresh(summarize(run.folder))
    manifest = replace(run.manifest, complete=False)
    write_manifest(run.folder, manifest)
    keep_summary(run)
    assert not list(run.folder.glob(f"{SUMMARY}*"))
    assert read_manifest(run.folder) == manifest
