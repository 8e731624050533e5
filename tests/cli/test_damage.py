"""A damaged or deleted block is named and left out; the rest of the run is reported, and nothing is said in silence."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from choicewise import evaluate, open_run
from choicewise.results.explain import explain
from choicewise.results.run import Run
from choicewise.results.spans import LOST
from choicewise.store.tables import damaged_blocks
from tests.helpers.commands import choicewise
from tests.helpers.mmlu_data import set_block_size, write_mmlu

BLOCK = Path("blocks/00002")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    set_block_size(monkeypatch, 5)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    data = write_mmlu(tmp_path / "data", questions=12)
    protocols = ["mmlu/original", "mmlu/cloze:pmi-answer"]
    return evaluate(model="fake:hash", data=data, protocols=protocols, out=tmp_path / "run")


def delete(block: Path) -> None:
    shutil.rmtree(block)


def shorten(block: Path) -> None:
    path = block / "observations.parquet"
    path.write_bytes(path.read_bytes()[:-1])


def change(block: Path) -> None:
    path = block / "spans.parquet"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "reason"), [(delete, "is missing"), (shorten, "bytes, and had"), (change, "its sha256 differs")]
)
def test_the_rest_is_reported(damage: Callable[[Path], None], reason: str, run: Run) -> None:
    values = {row.protocol: row for row in run.rows()}
    block = run.manifest.blocks[2]
    damage(run.folder / BLOCK)
    ((told, path, why),) = (
        (each.block, each.path, each.reason) for each in damaged_blocks(run.folder, run.manifest.blocks)
    )
    assert told == block
    assert path.parent == run.folder / BLOCK
    assert reason in why
    again = open_run(run.folder)
    with pytest.warns(UserWarning, match=rf"{path.name} .*items 9 to 12 of tides \(test\).*run the same"):
        rows = again.rows()
    assert {row.selection for row in rows} == {"incomplete: 20 of 24 items"}
    for row in rows:
        assert row.n + row.missing == 20
        assert values[row.protocol].selection == ""
    assert "tides/test/11" not in again.measurements["mmlu/original"].evidence.ids


def test_what_lay_there_for_other_items_is_missing_with_the_reason(run: Run) -> None:
    """Texts after the null context are asked once, in the first block that has them."""
    ids = run.measurements["mmlu/original"].evidence.ids
    delete(run.folder / "blocks/00000")
    with pytest.warns(UserWarning, match="requests"):
        rows = {row.protocol: row for row in open_run(run.folder).rows()}
    assert rows["mmlu/original"].missing == 0
    lost = rows["mmlu/cloze:pmi-answer"]
    (reason,) = lost.missing_reasons
    assert (reason.reason, reason.count) == (LOST, lost.missing)
    assert reason.count > 0
    assert reason.example in ids[3:]


def test_the_command_says_so_and_goes_on(run: Run) -> None:
    change(run.folder / BLOCK)
    done = choicewise("report", run.folder, "--json", code=0)
    assert str(run.folder / BLOCK / "spans.parquet") in done.stderr
    assert "run the same `choicewise run` command again" in done.stderr
    assert {row["selection"] for row in json.loads(done.stdout)} == {"incomplete: 20 of 24 items"}


@pytest.mark.parametrize("damage", [delete, shorten, change])
def test_another_item_is_explained_all_the_same(damage: Callable[[Path], None], run: Run) -> None:
    expected = explain(run, "trees/test/3")
    damage(run.folder / BLOCK)
    assert explain(open_run(run.folder), "trees/test/3") == expected


def test_nothing_is_damaged_in_a_run_as_it_was_written(run: Run) -> None:
    assert damaged_blocks(run.folder, run.manifest.blocks) == []
