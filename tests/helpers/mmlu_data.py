"""Small datasets for tests."""

import csv
from functools import cache
from pathlib import Path

import pytest

from choicewise.data.dataset import Dataset
from choicewise.data.open import open_dataset
from choicewise.requests import blocks
from tests.paths import SHARED

LETTERS = "ABCD"


def write_mmlu(
    folder: Path, subjects: tuple[str, ...] = ("tides", "trees"), questions: int = 6
) -> Path:
    """A dataset in the original MMLU layout: five dev, six val and ``questions`` test rows a subject."""
    for split, count in (("dev", 5), ("val", 6), ("test", questions)):
        (folder / split).mkdir(parents=True, exist_ok=True)
        for subject in subjects:
            with (folder / split / f"{subject}_{split}.csv").open(
                "w", newline="", encoding="utf-8"
            ) as file:
                csv.writer(file).writerows(_row(subject, split, number) for number in range(count))
    return folder


@cache
def shared_mmlu() -> Dataset:
    """All of MMLU as a user opens it, read once a process."""
    if not SHARED.is_dir():
        pytest.skip(f"no shared data at {SHARED}")
    return open_dataset(SHARED / "mmlu")


def set_block_size(monkeypatch: pytest.MonkeyPatch, items: int) -> None:
    """Runs have blocks of at most so many items from now on."""
    monkeypatch.setattr(blocks, "BLOCK_TOKENS", items)
    monkeypatch.setattr(blocks._Cost, "of", lambda *_: blocks._Cost(contexts=1))


def _row(subject: str, split: str, number: int) -> list[str]:
    question = f"Which of the {subject} is number {number} of {split}?"
    choices = [f"the {word} one of {number}" for word in ("red", "tall", "salty", "first")]
    return [question, *choices, LETTERS[(number + len(subject)) % 4]]
