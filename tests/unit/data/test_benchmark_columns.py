"""Columns of benchmarks: one choice alone, the last word, choices by subject, a drawn order, the best of several."""

import json
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from choicewise.data.benchmarks import benchmark
from choicewise.data.dataset import Columns, Dataset, columns_of
from choicewise.data.tables import read_tabular
from choicewise.errors import DataError, ProtocolError
from choicewise.protocols.protocol import Protocol, stop_texts
from choicewise.tokens.boundary import cut


def read(tmp_path: Path, rows: list[dict[str, Any]], columns: Columns | None = None, subject: str = "") -> Dataset:
    file = tmp_path / "test.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return read_tabular("made", {"test": [file]}, columns=columns, subjects={file: subject} if subject else None)


def test_the_last_word_is_the_only_choice(tmp_path: Path) -> None:
    columns = benchmark("lambada").columns
    data = read(tmp_path, [{"text": "She  lit the\nlamp"}, {"text": "Lamp"}], columns)
    assert [(item.question, item.choices, item.gold) for item in data.splits["test"]] == [
        ("She  lit", ("the\nlamp",), (0,)),
        ("", ("Lamp",), (0,)),
    ]
    with pytest.raises(DataError, match="nothing to score"):
        read(tmp_path, [{"text": "It ends in a space "}], columns)


def test_one_choice_needs_a_mapping_that_says_so(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="a question with 1 choice asks nothing"):
        read(tmp_path, [{"question": "Q", "choices": ["a"], "answer": 0}])
    with pytest.raises(DataError, match="by right and wrong, or by target"):
        columns_of({"target": "a", "choices": "b"}, "made")


def test_choices_of_a_subject(tmp_path: Path) -> None:
    columns = columns_of({"answer": "target", "answer_is": "text", "fixed_of": {"law": ["Yes", "No"]}}, "made")
    data = read(tmp_path, [{"question": "Q", "target": "No"}], columns, "law")
    assert [(item.choices, item.gold) for item in data.splits["test"]] == [(("Yes", "No"), (1,))]
    with pytest.raises(DataError, match="no choices for the subject 'lore'"):
        read(tmp_path, [{"question": "Q", "target": "No"}], columns, "lore")


def test_a_drawn_order_is_that_of_random_row_after_row(tmp_path: Path) -> None:
    rows = [{"question": f"Q{n}", "choices": [f"{n}{letter}" for letter in "abcd"], "answer": n % 4} for n in range(9)]
    plain = read(tmp_path, rows).splits["test"]
    drawn = read(tmp_path, rows, Columns(choices="choices", answer="answer", shuffled=5)).splits["test"]
    random = Random(5)
    for one, other in zip(plain, drawn, strict=True):
        choices = list(one.choices)
        random.shuffle(choices)
        assert list(other.choices) == choices
        assert other.choices[other.gold[0]] == one.choices[one.gold[0]]


def test_other_columns_can_be_left_out(tmp_path: Path) -> None:
    row = {"question": "Q", "choices": ["a", "b"], "answer": 0, "explanation": "long", "topic": "law"}
    columns = Columns(choices="choices", answer="answer", others=False, rename={"topic": "topic"})
    assert [dict(item.fields) for item in read(tmp_path, [row], columns).splits["test"]] == [{"topic": "law"}]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            {"mc1_targets": {"choices": ["x", "c"], "labels": [1, 0]}},
            "the best answer 'x' is none of the right",
        ),
        ({"mc1_targets": {"choices": ["b", "d"], "labels": [1, 0]}}, "does not have the same wrong choices"),
        ({"mc1_targets": {"choices": ["b", "a", "c"], "labels": [1, 1, 0]}}, "2 right choices where there must be one"),
    ],
)
def test_rows_in_which_mc1_asks_otherwise_are_refused(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    row = {
        "question": "Q",
        "mc1_targets": {"choices": ["b", "c"], "labels": [1, 0]},
        "mc2_targets": {"choices": ["a", "b", "c"], "labels": [1, 1, 0]},
    }
    (item,) = read(tmp_path, [row]).splits["test"]
    assert (item.choices, item.gold) == (("b", "a", "c"), (0, 1))
    also_wrong = {"mc1_targets": {"choices": ["b", "c", "a"], "labels": [1, 0, 0]}}
    assert read(tmp_path, [row | also_wrong]).splits["test"][0] == item
    with pytest.raises(DataError, match=reason):
        read(tmp_path, [row | change])


def test_stops_are_one_a_line_unless_they_begin_with_a_line_break() -> None:
    assert stop_texts(None) == ()
    assert stop_texts(":\nQuestion") == (":", "Question")
    assert stop_texts("\n\nQ:") == ("\n\nQ:",)
    for stop in ("", "a\n\nb", "a\n"):
        with pytest.raises(ProtocolError, match="none of them empty"):
            Protocol(
                benchmark="any", reading="generate", new_tokens=4, score="none", decision="letter-match", stop=stop
            )


def test_a_long_context_of_generated_text_loses_its_beginning() -> None:
    context = np.arange(10, dtype=np.int32)
    kept, dropped = cut(context, 5, start=True)
    assert (kept.tolist(), dropped) == ([5, 6, 7, 8, 9], 5)
    assert cut(context, 96, start=True)[1] == 0
    assert [len(part) if hasattr(part, "__len__") else part for part in cut(context, 0, start=True)] == [0, 10]
