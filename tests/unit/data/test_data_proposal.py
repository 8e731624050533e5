"""Mappings proposed for unknown columns open the file they were proposed for, and say what to check."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise.data.dataset import columns_of
from choicewise.data.guess import UnknownShape, proposal
from choicewise.data.open import open_dataset
from choicewise.errors import DataError

Row = dict[str, Any]

OPTIONS = {"opa": "x", "opb": "y", "opc": "z"}
KNOWN = [
    (
        [{"prompt": "Q1", "candidates": ["x", "y"], "gold": 1}, {"prompt": "Q2", "candidates": ["x", "y"], "gold": 0}],
        [1, 0],
    ),
    ([{"id": str(n), "query": "Q", **OPTIONS, "cop": n % 3, "exp": "why"} for n in range(6)], [0, 1, 2, 0, 1, 2]),
    (
        [{"query": "Q", "option_1": "x", "option_2": "y", "option_3": "z", "correct_option": str(n)} for n in (3, 1)],
        [2, 0],
    ),
    ([{"query": "Q", "option_1": "x", "option_2": "y", "correct_option": "option_2"}], [1]),
    ([{"ask": "Q", "options": {"a": "x", "b": "y"}, "correct": "b", "question": "who"}] * 2, [1, 1]),
    ([{"stem": "Q", "correct_answer": "r", "wrong_answer_1": "x", "wrong_answer_2": "y"}], [0]),
    ([{"good": "x", "bad": "y"}], [0]),
    ([{"Question": "Q", "options": {"A": "x", "B": "y"}, "answer_idx": "B"}], [1]),
    ([{"query": "Q", "choices": ["x", "y"], "solution": "y"}], [1]),
    ([{"query": "Q", "choices": ["x", "y"], "gold": "(B)"}], [1]),
    ([{"query": "Q", "alternatives": "['x', 'y']", "key": "B"}], [1]),
    ([{"query": "Q", "choices": ["x", "y", "z"], "label": [0, 1, 0]}], [1]),
    ([{"query": "Q", "choices": ["x", "y"], "label": cell} for cell in (True, False)], [1, 0]),
    ([{"query": "Q", "choices": ["x", "y"], "label": cell} for cell in ("yes", "no")], [1, 0]),
    ([{"statement": "P", "text": "Q", "label": cell} for cell in (True, False)], [0, 1]),
    ([{"text": "Q", "truth": cell} for cell in ("yes", "no")], [0, 1]),
    ([{"instruction": "Q", "choices": [{"text": "x", "label": "1"}, {"text": "y", "label": "2"}], "target": "2"}], [1]),
]


@pytest.mark.parametrize(("rows", "right"), KNOWN, ids=[",".join(rows[0]) for rows, _ in KNOWN])
def test_a_proposal_opens_the_rows_it_is_for(tmp_path: Path, rows: list[Row], right: list[int]) -> None:
    path = tmp_path / "quiz.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    with pytest.raises(UnknownShape, match="no known shape") as refused:
        open_dataset(path)
    columns = columns_of(tomllib.loads("\n".join(refused.value.problems)), "proposed")
    assert [item.gold[0] for item in open_dataset(path, columns=columns).splits["test"]] == right


@pytest.mark.parametrize(
    ("answers", "right"),
    [(["(B)", "(A)"], [1, 0]), (["b", "a"], [1, 0]), ([True, False], [1, 0]), ([[0, 1], [1, 0]], [1, 0])],
)
def test_answers_of_another_kind_in_columns_of_a_known_shape(
    tmp_path: Path, answers: list[Any], right: list[int]
) -> None:
    path = tmp_path / "quiz.jsonl"
    rows = ({"question": "Q", "choices": ["x", "y"], "answer": answer} for answer in answers)
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    for on_bad_item in ("error", "skip"):
        with pytest.raises(
            UnknownShape, match="has the columns of question, choices, answer .*no row can be read so"
        ) as refused:
            open_dataset(path, on_bad_item=on_bad_item)
    columns = columns_of(tomllib.loads("\n".join(refused.value.problems)), "proposed")
    assert [item.gold[0] for item in open_dataset(path, columns=columns).splits["test"]] == right


def test_no_mapping_is_proposed_where_only_answers_are_missing(tmp_path: Path) -> None:
    path = tmp_path / "quiz.jsonl"
    path.write_text('{"question": "Q", "choices": ["x", "y"], "answer": -1}\n')
    with pytest.raises(DataError, match="the split test has no answers") as refused:
        open_dataset(path)
    assert not isinstance(refused.value, UnknownShape)


def quiz(path: Path, answers: list[Any], **more: Any) -> Path:
    rows = [{"question": f"Q{n}", **OPTIONS_A_TO_D, "answer": answer, **more} for n, answer in enumerate(answers)]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


OPTIONS_A_TO_D = {"A": "w", "B": "x", "C": "y", "D": "z"}


@pytest.mark.parametrize("spelled", [int, str])
def test_answers_that_may_count_from_1_are_asked_about(tmp_path: Path, spelled: type) -> None:
    counted = [1 + n % 3 for n in range(30)]
    path = quiz(tmp_path / "quiz.jsonl", [*map(spelled, counted)])
    for on_bad_item in ("error", "skip"):
        with pytest.raises(UnknownShape, match="none of 30 answers is 0") as refused:
            open_dataset(path, on_bad_item=on_bad_item)
    lines = "\n".join(refused.value.problems)
    with pytest.raises(DataError, match="answer_is is '...'"):
        columns_of(tomllib.loads(lines), "proposed")
    for kind, start in (("number", 1), ("index", 0)):
        columns = columns_of(tomllib.loads(lines.replace('"..."', f'"{kind}"')), "proposed")
        items = open_dataset(path, columns=columns).splits["test"]
        assert [item.gold for item in items] == [(answer - start,) for answer in counted]


def test_the_question_is_asked_about_all_files_together(tmp_path: Path) -> None:
    """Two rows a subject leave it open as well, and the proposal of the first file says so."""
    for subject in ("anatomy", "geology", "physics", "zoology"):
        (tmp_path / subject).mkdir()
        quiz(tmp_path / subject / "test.jsonl", [1, 2], subject=subject)
    with pytest.raises(UnknownShape, match="none of 8 answers is 0") as refused:
        open_dataset(tmp_path)
    assert 'answer_is = "..."' in refused.value.problems
    quiz(tmp_path / "zoology" / "test.jsonl", [1, 0], subject="zoology")
    assert open_dataset(tmp_path).splits["test"][0].gold == (1,)


def test_what_stays_open_is_said() -> None:
    counted = proposal([{"query": "Q", "options": ["x", "y", "z"], "gold": n} for n in (1, 2, 1)])
    assert '# no answer is 0: if they count from 1, answer_is = "number"' in counted
    many = proposal([{"query": "Q", "options": ["x", "y", "z"], "gold": n % 2 + 1} for n in range(8)])
    assert 'answer_is = "..."' in many
    from_1 = proposal([{"query": "Q", "options": ["x", "y", "z"], "gold": n % 3 + 1} for n in range(8)])
    assert 'answer_is = "number"' in from_1
    partly = proposal([{"query": "Q", "options": ["x", "y"], "gold": cell} for cell in ("A", "", "B")])
    assert partly[0] == "# fits 3 of the first 3 rows; check it before you use it"
    assert "# 1 of them have no answer" in partly
    same = proposal([{"query": "Q", "options": ["x", "y"], "gold": 2}] * 3)
    assert "# all answers are the same: check that they count from 1" in same


def test_a_file_of_nothing_known_gets_a_mapping_with_gaps() -> None:
    lines = proposal([{"height": 3, "width": 4}])
    assert '# the columns are "height", "width"' in lines
    assert tomllib.loads("\n".join(lines))["answer"] == "..."


cells = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
names = st.sampled_from(
    ["question", "options", "answer", "label", "opa", "opb", "right", "wrong", "text", "id", "q.a", ""]
)


@given(st.lists(st.dictionaries(names, cells, min_size=1), min_size=1, max_size=4))
def test_any_rows_get_lines_of_toml(rows: list[Row]) -> None:
    assert "question" in tomllib.loads("\n".join(proposal(rows)))
