"""Rows that requests have in common are kept once, and give the table of all rows one by one."""

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from choicewise.data.dataset import Dataset
from choicewise.data.items import Item
from choicewise.protocols.protocol import Protocol
from choicewise.questions import Ids, Span
from choicewise.records import SPANS, SpanRow
from choicewise.requests.blocks import Block, RequestSpec, list_request_specs, prepare_block
from choicewise.requests.request import PreparedBlock
from choicewise.requests.span_rows import SpanRows
from choicewise.store.tables import make_table
from choicewise.tokens.tokenizer import ByteTokenizer
from tests.helpers.protocols import mmlu_protocol

TEXT = st.text("ab é", max_size=3)
MAYBE = st.none() | TEXT
NUMBER = st.integers(0, 9)
ROW = st.tuples(NUMBER, MAYBE, NUMBER).map(
    lambda cells: SpanRow("", "", cells[0], 0, key=cells[1], context_tokens=cells[2])
)
ROWS = st.lists(ROW, max_size=3)


@given(groups=st.lists(ROWS, min_size=1, max_size=4), data=st.data())
def test_the_table_is_that_of_the_rows_one_by_one(
    groups: list[list[SpanRow]], data: st.DataObject
) -> None:
    rows = SpanRows()
    numbers = [rows.add_group(group) for group in groups]
    uses = data.draw(st.lists(st.tuples(st.sampled_from(numbers), TEXT, TEXT, MAYBE, MAYBE)))
    for use in uses:
        rows.use(*use)
    table = rows.table()
    table.validate(full=True)
    assert table == make_table(SPANS, list(rows))
    assert len(table) == sum(len(group) for group, *_ in uses)
    keys = {row.key for row in rows}
    assert rows.keys_since(0) == keys
    assert not rows.keys_since(rows.uses)


class WithoutBos(ByteTokenizer):
    """Adds no token, so that the axis ``bos`` decides nothing."""

    def encode(self, texts: Sequence[str], *, special: bool) -> list[Ids]:
        return super().encode(texts, special=False)


ITEMS = (
    Item("0", "One?", ("a", "b", "a longer one"), (0,), "s"),
    Item("1", "Two?", ("a", "b", "a longer one"), (1,), "s"),
    Item("2", "One?", ("c", "d", ""), (2,), "s"),
)
SHOTS = Item("3", "Shot?", ("x", "y", "z"), (0,), "s")
DATA = Dataset("d", {"test": ITEMS, "dev": (SHOTS,)})
AXES = st.fixed_dictionaries(
    {},
    optional={
        "bos": st.sampled_from(["default", "none"]),
        "boundary": st.sampled_from(["joint", "separate", "lcp"]),
        "limit": st.sampled_from([40, 60, 1000]),
        "fit": st.sampled_from(["refuse", "cut-start", "drop-last-shot"]),
        "null": st.sampled_from(["", "A:", "A: "]),
        "continuation": st.sampled_from([" {choice}", "{choice}"]),
        "shots": st.sampled_from([0, 1]),
    },
)

# Choices of several lengths, of which 40 tokens cut the longest alone.
ANSWERS: dict[str, object] = {"bos": "default", "continuation": " {choice}"}


def protocol(axes: dict[str, object]) -> Protocol:
    score = "pmi" if "null" in axes else "sum"
    shared = {"benchmark": "any", "choices": None, "split": "test", "shot_split": "dev", "shots": 0}
    if not axes.get("shots"):
        shared |= {"sampler": "none", "shot_split": None}
    return mmlu_protocol(**{**shared, "score": score, **axes})


def prepared(specs: list[RequestSpec], tokenizer: ByteTokenizer) -> PreparedBlock:
    block = Block(
        split="test", subject="s", start=0, items=ITEMS, positions=range(3), specs=specs, work=0
    )
    return prepare_block(DATA, block, SimpleNamespace(window=1000, tokenizer=tokenizer), False)  # type: ignore[arg-type]


@pytest.mark.parametrize("tokenizer", [ByteTokenizer(), WithoutBos()])
@given(axes=st.lists(AXES, min_size=1, max_size=6))
@example(axes=[ANSWERS, {**ANSWERS, "fit": "cut-start", "limit": 40}])
def test_protocols_of_a_block_have_the_rows_that_each_has_alone(
    tokenizer: ByteTokenizer, axes: list[dict[str, object]]
) -> None:
    protocols = {str(number): protocol(each) for number, each in enumerate(axes)}
    specs = [
        replace(spec, ranked=number % 2 == 0)
        for number, spec in enumerate(list_request_specs(protocols))
    ]
    together = prepared(specs, tokenizer)
    alone = [prepared([spec], tokenizer) for spec in specs]
    assert list(together.spans) == [row for block in alone for row in block.spans]
    assert together.requests == [row for block in alone for row in block.requests]
    assert together.inputs == sum(block.inputs for block in alone)
    assert together.deepest == max(block.deepest for block in alone)
    ranked: dict[str, bool] = {}
    for block in alone:
        for key, prompt in block.wanted.items():
            ranked[key] = ranked.get(key, False) or (isinstance(prompt, Span) and prompt.ranked)
    assert {
        key: getattr(prompt, "ranked", False) for key, prompt in together.wanted.items()
    } == ranked
    assert list(together.wanted) == list(ranked)
