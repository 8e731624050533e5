"""`choicewise data`: what a person sees of a dataset before anything is run."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.commands import choicewise
from tests.unit.data.test_hub_rows import ROWS, Row, write


def rows(count: int, **more: Any) -> list[Row]:
    return [{"question": f"Q{n}?", "choices": ["a", "bb", "cc"], "answer": n % 3, **more} for n in range(count)]


def test_it_says_what_was_recognised(tmp_path: Path) -> None:
    for subject in ("anatomy", "virology"):
        write(tmp_path / "quiz" / subject / "test.jsonl", rows(20 + len(subject), subject=subject, passage="P."))
        write(tmp_path / "quiz" / subject / "dev.jsonl", rows(5, subject=subject, passage="P."))
    shown = choicewise("data", tmp_path / "quiz")
    assert (shown.code, shown.stderr) == (0, "")
    lines = [line.rstrip() for line in shown.stdout.splitlines()]
    assert lines[0].startswith("quiz, data ")
    assert "choices   choices" in lines
    assert "answer    answer (read as label, index or text, whichever fits every row)" in lines
    assert "subject   subject" in lines
    assert "fields    passage" in lines
    test = next(line.split() for line in lines if line.startswith("test "))
    assert test == ["test", "55", "2", "virology", "(28)", "anatomy", "(27)", "3"]
    assert "   [A] a" in lines
    assert "    B  bb" in lines
    assert any(line.startswith("dev: 5 are the same question as one before") for line in lines)
    assert any(line.startswith("test: 10 items are in dev as well") for line in lines)
    general, own = lines[-2:]
    assert general.startswith("protocols for any dataset that can ask these items: compat (")
    assert "options (" in general
    assert own.startswith("protocols of benchmarks whose items have this form: arc-")
    assert "piqa" not in own


def test_what_is_suspicious_is_said(tmp_path: Path) -> None:
    path = write(
        tmp_path / "quiz.jsonl",
        [{"question": f"Q{n}?", "choices": ["a", "b" * 9], "answer": "B"} for n in range(30)]
        + [{"question": "Last?", "choices": ["a", "bb"], "answer": -1}],
    )
    shown = choicewise("data", path).stdout
    assert "to look at\n" in shown
    assert "1 row can't be used, and a run stops there unless it skips bad items: the answer is -1" in shown
    assert "test: the same position is right in every item; check the answers, or shuffle the choices" in shown
    assert "test: choosing the longest choice scores 100.0 % where chance is 50.0 %" in shown
    assert "choosing the last" not in shown
    assert "A 0.0, B 100.0 !" in shown


def test_answers_that_may_count_from_1_get_a_mapping_to_complete(tmp_path: Path) -> None:
    path = write(tmp_path / "quiz.jsonl", [row | {"answer": 1} for row in rows(9)])
    shown = choicewise("data", path)
    assert shown.code == 2
    assert "none of 9 answers is 0, so they may be counted from 1" in shown.stderr
    assert 'answer_is = "..."' in shown.stdout
    mapping = tmp_path / "mapping.toml"
    mapping.write_text(shown.stdout.replace('"..."', '"number"'))
    assert "answer    answer (read as number from 1)" in choicewise("data", path, "--mapping", mapping).stdout


def test_right_answers_in_a_column_of_their_own(tmp_path: Path) -> None:
    shown = choicewise("data", write(tmp_path / "pairs.jsonl", [ROWS["nyu-mll/blimp"][0]] * 1)).stdout
    assert "right     sentence_good" in shown
    assert "test: the right choices come first, as their columns say; shuffle choices that are shown together" in shown


def test_content_and_blanks_are_shown(tmp_path: Path) -> None:
    shown = choicewise("data", write(tmp_path / "gap.jsonl", [ROWS["allenai/winogrande"][0]])).stdout
    assert "blank     _ in the question, which the choices fill" in shown
    assert "nothing suspicious in answers, doubles and texts" in shown


def test_json(tmp_path: Path) -> None:
    write(tmp_path / "quiz" / "test.jsonl", rows(3))
    write(tmp_path / "quiz" / "train.jsonl", rows(4))
    told = json.loads(choicewise("data", tmp_path / "quiz", "--json").stdout)
    assert told["shape"] == "question, choices, answer (MMLU on the Hub)"
    assert told["columns"]["answer"] == "answer"
    assert told["splits"]["train"]["items"] == 4
    assert told["splits"]["test"]["answers"]["positions"] == {"3": [1, 1, 1]}
    assert told["doubles"]["across"] == [{"split": "test", "other": "train", "items": 3}]
    assert told["rows"][2] == {
        "id": "test/2",
        "question": "Q2?",
        "choices": ["a", "bb", "cc"],
        "gold": [2],
        "subject": "",
        "fields": {},
    }
    assert "" in told["protocols"].values()
    assert any("rows in split 'validation'" in why for why in told["protocols"].values())


def test_unknown_columns_print_a_mapping_that_works(tmp_path: Path) -> None:
    path = write(tmp_path / "quiz.jsonl", [{"ask": "Q?", "options": {"a": "x", "b": "y"}, "correct": "b"}] * 2)
    shown = choicewise("data", path)
    assert shown.code == 2
    assert shown.stderr.splitlines() == [
        f"error: {path} has the columns ask, options, correct, which are no known shape",
        "write these lines into a file, correct them, and pass it: --mapping FILE",
    ]
    assert tomllib.loads(shown.stdout)["choices"] == ["options.a", "options.b"]
    (tmp_path / "mapping.toml").write_text(shown.stdout, encoding="utf-8")
    declared = choicewise("data", path, "--mapping", tmp_path / "mapping.toml")
    assert declared.code == 0
    assert "shape     declared" in declared.stdout
    assert "answer    correct (read as label, labels a, b)" in declared.stdout
    refused = choicewise(
        "run", "--model", "fake:hash", "--data", path, "--protocol", "options", "--out", tmp_path / "out"
    )
    assert refused.code == 3
    assert '\n  choices = ["options.a", "options.b"]\n' in refused.stderr


@pytest.mark.parametrize("place", ["nowhere", "nowhere.jsonl"])
def test_nothing_there(place: str, tmp_path: Path) -> None:
    shown = choicewise("data", tmp_path / place)
    assert (shown.code, shown.stdout) == (3, "")
    assert "does not exist" in shown.stderr


def test_a_benchmark_by_name(tmp_path: Path) -> None:
    row, _ = ROWS["allenai/ai2_arc"]
    for split in ("train", "validation", "test"):
        path = tmp_path / "arc-challenge" / "ARC-Challenge" / f"{split}-00000-of-00001.parquet"
        write(path, [row | {"id": f"{split}{n}", "question": f"{split} {n}?"} for n in range(3)])
    shown = choicewise("data", "arc-challenge", **{**os.environ, "CHOICEWISE_DATA": str(tmp_path)})
    assert shown.code == 0
    assert shown.stdout.startswith("arc-challenge, data ")
    assert "shape     ARC, CommonsenseQA" in shown.stdout


def test_texts_can_not_steer_the_terminal(tmp_path: Path) -> None:
    hostile = {"question": "Q\x1b[2J\u202e?", "choices": ["\x1b]0;x\x07", "b"], "answer": "B", "subject": "s\x1b[1m"}
    shown = choicewise("data", write(tmp_path / "quiz.jsonl", [hostile]))
    assert shown.code == 0
    assert "\x1b" not in shown.stdout
    assert r"\x1b[2J" in shown.stdout
    column = choicewise("data", write(tmp_path / "odd.jsonl", [{"\x1b[2J": 1, "\u202ename": "x"}]))
    assert column.code == 2
    assert "\x1b" not in column.stdout + column.stderr
    assert "\u202e" not in column.stdout + column.stderr
