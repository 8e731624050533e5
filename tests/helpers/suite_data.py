"""A small suite of three benchmarks, and their questions, for tests."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from choicewise.data.benchmarks import PLACE
from choicewise.protocols import catalogue
from tests.helpers.mmlu_data import write_mmlu

TRIO = """
name = "tests/trio"
title = "Three benchmarks"
citation = "Nobody 2026"
source = "nowhere"
about = "For tests."
average = "mean"
{more}

[[parts]]
protocols = ["mmlu/harness-v1"]
shots = 2

[[parts]]
protocols = ["winogrande/harness"]

[[parts]]
protocols = ["arc-easy/harness:acc", "arc-easy/harness:acc_norm"]
"""

UNSCORED = """
[[parts]]
benchmark = "essay"
unscored = "it has no choices"
"""

QUIZ = """
name = "quiz"
title = "All of one benchmark"
citation = "Nobody 2026"
source = "nowhere"
about = "For tests."
average = "none"

[[parts]]
protocols = ["mmlu/harness-v0"]
"""


@contextmanager
def known_suites(folder: Path, monkeypatch: pytest.MonkeyPatch, **texts: str) -> Iterator[None]:
    """Meanwhile the suites are those of ``texts``, by the names that they state."""
    caches = (
        *(catalogue.suite_names, catalogue.suite, catalogue.group_names),
        *(catalogue._table, catalogue._cases),
    )
    files, others = {}, catalogue._files
    for number, text in enumerate(texts.values()):
        file = folder / f"{number}.toml"
        file.write_text(text, encoding="utf-8")
        files[text.split('"')[1]] = file
    monkeypatch.setattr(
        catalogue, "_files", lambda folder: files if folder == "suites" else others(folder)
    )
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()


def write_benchmarks(
    folder: Path, monkeypatch: pytest.MonkeyPatch | None = None, questions: int = 6
) -> Path:
    """The questions of the three benchmarks in a folder, which is where benchmarks lie from now on."""
    write_mmlu(folder / "mmlu", questions=questions)
    write_rows(folder / "winogrande", "validation", [_gap(number) for number in range(questions)])
    write_rows(folder / "winogrande", "train", [_gap(number) for number in range(20, 30)])
    for split in ("test", "train", "validation"):
        write_rows(
            folder / "arc-easy", split, [_science(split, number) for number in range(questions)]
        )
    if monkeypatch is not None:
        monkeypatch.setenv(PLACE, str(folder))
    return folder


def write_rows(folder: Path, split: str, rows: list[dict[str, object]]) -> None:
    """A split of a dataset as a file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{split}.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8"
    )


def _gap(number: int) -> dict[str, object]:
    sentence = f"The cup did not fit into box {number} because the _ was too small."
    return {
        "sentence": sentence,
        "option1": f"cup {number}",
        "option2": f"box {number}",
        "answer": str(1 + number % 2),
    }


def _science(split: str, number: int) -> dict[str, object]:
    texts = [f"{word} {number}" for word in ("iron", "a wooden spoon", "milk", "sand from a beach")]
    choices = {"text": texts, "label": ["A", "B", "C", "D"]}
    question = f"Which of these is number {number} of {split}?"
    return {
        "id": f"{split}{number}",
        "question": question,
        "choices": choices,
        "answerKey": "ABCD"[number % 4],
    }
