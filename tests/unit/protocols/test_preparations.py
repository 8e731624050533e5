"""Preparations: what they need of an item, and what they never change."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise.data.benchmarks import benchmark
from choicewise.data.files import LONGEST, read_list
from choicewise.data.items import Item
from choicewise.data.open import open_dataset
from choicewise.errors import DataError
from choicewise.protocols.catalogue import one
from choicewise.protocols.preparations import PREPARATIONS, SHOWS
from choicewise.protocols.protocol import unused
from tests.helpers.protocols import requests
from tests.paths import GOLDENS

PARTS = ("activity_label", "ctx_a", "ctx_b")
ROWS = GOLDENS / "harness" / "rows"


@given(st.text(), st.lists(st.text(), min_size=3, max_size=3), st.lists(st.text(), min_size=2, max_size=5))
def test_choices_keep_their_number_and_gold(question: str, parts: list[str], choices: list[str]) -> None:
    fields = {**dict(zip(PARTS, parts, strict=True)), "asks_for": "cause", "support": parts[0]}
    fields |= {"article": parts[1], "problems": "[{}]"}
    item = Item("1", f"{question} _ ", tuple(choices), (1,), "", fields)
    for name, prepare in PREPARATIONS.items():
        try:
            prepared = prepare(item)
        except DataError:  # an item of another kind
            continue
        assert (len(prepared.choices), prepared.gold, prepared.id) == (len(choices), (1,), "1"), name


def test_a_preparation_shows_fields_that_no_template_names() -> None:
    assert set(SHOWS) <= set(PREPARATIONS)
    assert unused(one("copa/harness").protocol, ["asks_for", "note"]) == ("note",)


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("gap", {}, r"item 7 has no gap _ in its question"),
        ("copa", {}, r"item 7 asks for None; it must be cause or effect"),
        ("copa", {"asks_for": "reason"}, r"item 7 asks for 'reason'"),
        ("hellaswag", {"ctx_a": "A", "ctx_b": "b"}, r"item 7 lacks activity_label of activity_label, ctx_a, ctx_b"),
        ("race", {"article": "A"}, r"item 7 has no field problems; RACE is asked with one row per article"),
        ("race", {"article": "A", "problems": "open('x')"}, r"item 7 has problems that can't be read"),
        ("race-v0", {"article": "A", "problems": "[{}, {}]"}, r"item 7 has problems that can't be read"),
    ],
)
def test_an_item_that_lacks_what_is_needed_is_refused_by_name(name: str, fields: dict[str, str], message: str) -> None:
    with pytest.raises(DataError, match=message):
        PREPARATIONS[name](Item("7", "Why?", ("x", "y"), (0,), "", fields))


def test_a_question_of_race_by_itself_is_refused(tmp_path: Path) -> None:
    row = {"example_id": "a", "article": "A tale.", "question": "Who?", "options": ["a", "b", "c", "d"], "answer": "A"}
    (tmp_path / "test.jsonl").write_text(json.dumps(row))
    columns = replace(benchmark("race").columns or pytest.fail("race has columns"), last_of=None)
    with pytest.raises(DataError, match="not with one row per question"):
        next(requests(one("race/harness").protocol, open_dataset(tmp_path, columns=columns), ""))


def test_a_list_of_problems_may_be_a_list(tmp_path: Path) -> None:
    """As a dataset that no script made would have it."""
    rows = [json.loads(line) for line in (ROWS / "race" / "test.jsonl").read_text(encoding="utf-8").splitlines()]
    lists = [{**row, "problems": read_list(row["problems"], "problems")} for row in rows]
    (tmp_path / "test.jsonl").write_text("\n".join(map(json.dumps, lists)))
    protocol, columns = one("race/harness").protocol, benchmark("race").columns
    texts, nested = (
        [
            (request.context(), request.continuations)
            for request in requests(protocol, open_dataset(place, columns=columns), "")
        ]
        for place in (ROWS / "race", tmp_path)
    )
    assert texts == nested


@pytest.mark.parametrize(
    "text", ["", "1", "{}", "[" * 5000, "[1, __import__('os')]", "-" * 150_000 + "1", "[0" + ", 0" * LONGEST + "]"]
)
def test_only_lists_of_bounded_size_are_read_from_texts(text: str) -> None:
    with pytest.raises(DataError, match=r"column problems holds .*(list|characters)"):
        read_list(text, "problems")
