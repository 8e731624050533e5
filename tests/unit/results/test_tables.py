"""The tables of a run portion by portion, against the whole tables and against looking at every item by itself."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise.errors import StoreError
from choicewise.records import KEYS, BlockRecord
from choicewise.results import tables
from choicewise.store.tables import read_blocks, read_items
from choicewise.util.text import text_digest
from tests.helpers.study import Study

PLACES = {("test", "b"): np.array([0, 2, 4, 6]), ("test", "a"): np.array([1, 3, 5])}
"""Two subjects whose items take turns."""


@st.composite
def drawn_blocks(draw: st.DrawFn) -> list[BlockRecord]:
    blocks = []
    for number in range(draw(st.integers(0, 6))):
        subject = draw(st.sampled_from("ab"))
        start, stop = sorted(
            draw(st.lists(st.integers(0, len(PLACES["test", subject])), min_size=2, max_size=2))
        )
        blocks += (
            [
                BlockRecord(
                    name=str(number),
                    split="test",
                    subject=subject,
                    start=start,
                    stop=stop,
                    asks=(),
                    files={},
                )
            ]
            if start < stop
            else []
        )
    return blocks


def covering(blocks: Sequence[BlockRecord], place: int) -> set[str]:
    return {
        block.name
        for block in blocks
        if place in PLACES["test", block.subject][block.start : block.stop]
    }


@given(drawn_blocks(), st.lists(st.integers(0, 6), min_size=1, max_size=3, unique=True))
def test_every_item_is_read_from_all_blocks_that_hold_it(
    blocks: list[BlockRecord], wanted: list[int]
) -> None:
    found = [
        (rows.tolist(), {block.name for block in own})
        for rows, own in tables.segments(blocks, PLACES)
    ]
    by_place = {place: names for rows, names in found for place in rows}
    assert by_place == {place: names for place in range(7) if (names := covering(blocks, place))}
    assert sum(len(rows) for rows, _ in found) == len(by_place)
    assert list(by_place) == sorted(by_place, key=lambda place: (place % 2, place))
    portion = tables.covering_portion(blocks, PLACES, wanted)
    assert portion.items.tolist() == wanted
    expected = set().union(*(covering(blocks, place) for place in wanted))
    assert [block.name for block in portion.blocks] == [
        block.name for block in blocks if block.name in expected
    ]


def test_a_block_about_more_items_than_there_are_is_refused() -> None:
    with pytest.raises(StoreError, match="block 7 and the item"):
        list(
            tables.segments(
                [
                    BlockRecord(
                        name="7", split="test", subject="a", start=0, stop=4, asks=(), files={}
                    )
                ],
                PLACES,
            )
        )


def test_portions_are_as_heavy_as_may_be_and_what_they_lack_lies_elsewhere(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = study.runs[0]
    blocks, places = run.manifest.blocks, tables.places_of(run.evidence.items)
    (whole,) = tables.list_portions(run.folder, blocks, places)
    assert (whole.items.tolist(), whole.blocks) == (list(range(12)), blocks)
    assert (
        len(tables.SharedObservations(run.folder, blocks, [whole], run.evidence.items).of(0)) == 0
    )
    monkeypatch.setattr(tables, "MOST", 1)
    portions = tables.list_portions(run.folder, blocks, places)
    assert [len(portion.blocks) for portion in portions] == [1] * len(blocks)
    assert np.concatenate([portion.items for portion in portions]).tolist() == list(range(12))
    assert all(portion.inside == {portion.blocks[0].name} for portion in portions)
    observations = read_blocks(run.folder, blocks, "observations")
    shared = tables.SharedObservations(run.folder, blocks, portions, run.evidence.items)
    # Whichever blocks were read before, their rows come in the order of the run.
    for number, block in reversed(list(enumerate(blocks))):
        named = tables.named(read_blocks(run.folder, [block], "spans").select(KEYS))
        inside = read_blocks(run.folder, [block], "observations")
        lacking = set(named.to_pylist()) - set(inside["key"].to_pylist())
        is_lacking = pc.is_in(observations["key"], pa.array(lacking, pa.string()))
        assert shared.of(number) == observations.filter(is_lacking)
        shared.keep(block, inside)
    assert sum(len(shared.of(number)) for number in range(len(blocks))) > 0


def test_items_are_read_without_their_texts_by_name_and_by_place(study: Study) -> None:
    folder, manifest = study.hash, study.runs[0].manifest
    whole, table = read_items(folder, manifest), tables.read_item_table(folder, manifest)
    assert table["position"].to_pylist() == list(range(12))
    for column in ("item", "subject", "split", "gold"):
        assert table[column].to_pylist() == whole[column].to_pylist()
    assert [len(choices) for choices in table["choices"].to_pylist()] == [4] * 12
    assert "question" not in table.column_names
    names = tables.read_item_names(folder)
    assert names.select(["item", "subject"]).to_pylist() == (
        whole.select(["item", "subject"]).to_pylist()
    )
    golds = [[int(choice) for choice in gold.split(",")] for gold in names["gold"].to_pylist()]
    assert golds == whole["gold"].to_pylist()
    texts = whole["question"].to_pylist()
    assert [text_digest(text)[:16] for text in texts] == names["question"].to_pylist()
    assert pa.Table.from_batches(tables.item_batches(folder, ("question",))) == whole.select(
        ["question"]
    )
    assert tables.read_item_rows(folder, [7, 0, 7]) == {
        place: whole.slice(place, 1).to_pylist()[0] for place in (0, 7)
    }
    assert tables.read_item_rows(folder, []) == {}
