"""Items in blocks: all of them, in order, none too large, and the same observations however they are cut."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise import evaluate
from choicewise.data.dataset import Dataset
from choicewise.data.items import Item
from choicewise.data.open import open_dataset
from choicewise.models.fake import HashModel
from choicewise.protocols.catalogue import resolve
from choicewise.questions import Span
from choicewise.requests import blocks
from choicewise.requests.blocks import Block, Section, cut_blocks, list_asks, list_sections, prepare_block, with_split
from tests.helpers.mmlu_data import write_mmlu


def section(lengths: list[int]) -> tuple[Dataset, Section]:
    items = tuple(Item(str(index), "x" * length, ("a", "b"), (0,), "s") for index, length in enumerate(lengths))
    data = Dataset("d", {"test": items})
    return data, Section("test", "s", data.rows("test", "s"))


@given(
    lengths=st.lists(st.integers(1, 3000), min_size=1, max_size=40),
    bound=st.integers(500, 20_000),
    cut=st.tuples(st.integers(0, 40), st.integers(0, 40)),
)
def test_blocks_hold_every_item_once_and_one_item_more_than_their_bound(
    lengths: list[int], bound: int, cut: tuple[int, int]
) -> None:
    data, whole = section(lengths)
    start, stop = sorted(min(edge, len(lengths)) for edge in cut)
    if start == stop:
        start, stop = 0, len(lengths)
    recipe = with_split(resolve("options/cloze:sum")["options/cloze:sum"], data)
    asks = list_asks({"p": recipe})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK_TOKENS", bound)
        found = list(cut_blocks(whole, start, stop, asks, data, ()))
    assert [item.id for block in found for item in block.items] == [str(index) for index in range(start, stop)]
    assert [block.start for block in found] == [start + sum(len(b.items) for b in found[:n]) for n in range(len(found))]
    shared = len(found) * max(len("Question: \nAnswer:") - 3, 0)  # beside the text of an item
    assert abs(sum(block.work for block in found) - shared - sum(lengths[start:stop])) <= 3 * len(lengths) + len(found)
    for block in found:
        each = 2 * blocks.ROW_TOKENS + blocks.REQUEST_TOKENS
        held = [len(item.question) / blocks.CHARACTERS + each for item in block.items]
        assert sum(held) - max(held) <= bound


def test_however_items_are_cut_the_observations_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, tables = write_mmlu(tmp_path / "data", ("tides",), questions=4), []
    protocols = ["mmlu/helm", "mmlu/harness-v0:pmi-answer", "options/pride"]
    for bound in (10**9, 10_000, 1):
        monkeypatch.setattr(blocks, "BLOCK_TOKENS", bound)
        out = tmp_path / str(bound)
        run = evaluate(model="fake:hash", data=data, protocols=protocols, out=out)
        order = [(name, "ascending") for name in ("prompt", "item", "choice", "part", "null")]
        tables.append((run.observations().sort_by(order), run))
    (whole, one), *others = tables
    assert len(one.manifest.blocks) < len(others[0][1].manifest.blocks) < len(others[1][1].manifest.blocks)
    for table, run in others:
        assert table.equals(whole)
        assert run.report().drop_columns(["signature"]).equals(one.report().drop_columns(["signature"]))


def test_ranks_are_wanted_where_a_protocol_scores_by_them(tmp_path: Path) -> None:
    data = open_dataset(write_mmlu(tmp_path / "data", questions=2))
    recipes = {name: with_split(resolve(name)[name], data) for name in ("mmlu/original", "mmlu/original@outside=keep")}
    by_ranks, without = recipes.values()
    assert by_ranks.prompt_digest == without.prompt_digest
    for chosen, wanted in (([by_ranks], True), ([without], False), ([by_ranks, without], True)):
        (ask,) = list_asks({str(number): recipe for number, recipe in enumerate(chosen)})
        assert ask.ranked == wanted
        (first, *_) = list_sections(data, {"": by_ranks}, None, 1)
        block = Block(first.split, first.subject, 0, first.items, [ask], 0)
        asked = prepare_block(data, block, HashModel(), False).wanted.values()
        assert asked
        assert {span.ranked for span in asked if isinstance(span, Span)} == {wanted}
