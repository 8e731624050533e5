"""The bundled benchmark is what its generator declares, and the training text does not contain it."""

import csv
import itertools
import json
import sys
from collections import Counter
from pathlib import Path

import pytest

from choicewise.bundled import BENCHMARK, MODELS, PUBLISHED_MMLU
from choicewise.data.open import open_dataset
from choicewise.errors import DataError, ModelError
from choicewise.models.load import load_model
from tests.paths import ROOT

TRAINING = ROOT / "training"
MEBIBYTE = 2**20


def rows(split: str) -> dict[str, list[list[str]]]:
    """The questions of a split, by subject."""
    found = {}
    for path in sorted((BENCHMARK / split).glob("*.csv")):
        with path.open(newline="", encoding="utf-8") as file:
            found[path.stem.removesuffix(f"_{split}")] = list(csv.reader(file))
    return found


EVERY = [row for split in ("dev", "val", "test") for questions in rows(split).values() for row in questions]


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the generators importable for one test."""
    monkeypatch.syspath_prepend(str(TRAINING))
    for name in ("facts", "questions", "corpus"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def test_layout_and_counts() -> None:
    dev, val, test = rows("dev"), rows("val"), rows("test")
    assert dev.keys() == val.keys() == test.keys()
    assert len(test) >= 6
    assert {len(questions) for questions in dev.values()} == {5}
    assert min(len(questions) for questions in val.values()) >= 10
    assert sum(len(questions) for questions in test.values()) >= 300


def test_no_question_and_no_choice_comes_twice() -> None:
    assert {len(row) for row in EVERY} == {6}
    assert len({row[0] for row in EVERY}) == len(EVERY)
    assert all(len(set(row[1:5])) == 4 for row in EVERY)


def test_gold_letters_are_valid_and_even() -> None:
    for subject, questions in rows("test").items():
        counts = Counter(row[5] for row in questions)
        assert counts.keys() == set("ABCD"), subject
        assert max(counts.values()) - min(counts.values()) <= 1, subject


def test_questions_fit_small_windows() -> None:
    assert max(len(row[0]) for row in EVERY) <= 120
    assert max(len(choice) for row in EVERY for choice in row[1:5]) <= 60


@pytest.mark.usefixtures("training")
def test_generator_writes_the_questions_again_byte_for_byte() -> None:
    from questions import files  # type: ignore[import-not-found]

    on_disk = {str(path.relative_to(BENCHMARK)): path.read_bytes() for path in BENCHMARK.glob("*/*.csv")}
    assert on_disk == {name: text.encode() for name, text in files().items()}


@pytest.mark.usefixtures("training")
def test_no_benchmark_question_is_in_the_training_text() -> None:
    from corpus import KINDS, documents, text  # type: ignore[import-not-found]
    from facts import fill, world  # type: ignore[import-not-found]

    every_kind = dict.fromkeys(KINDS, 1.0)
    sample = "".join(text(document) for document in itertools.islice(documents("train-1", every_kind), 2000))
    every_training_sentence = "\n".join(
        fill(wording, *pair)
        for subject in world()
        for relation in subject.relations
        for wording in (*relation.prose, *relation.train)
        for pair in relation.pairs
    )
    assert not [row[0] for row in EVERY if row[0] in sample or row[0] in every_training_sentence]


def test_models_are_small_and_hold_no_pickle() -> None:
    files = [path for folder in MODELS for path in folder.iterdir()]
    assert len(MODELS) >= 4
    assert sum(path.stat().st_size for path in files) < 12 * MEBIBYTE
    assert {path.suffix for path in files} <= {".json", ".safetensors", ".md"}
    for folder in MODELS:
        assert {"config.json", "model.safetensors", "tokenizer.json", "README.md"} <= {p.name for p in folder.iterdir()}


def test_published_table_names_a_protocol_for_every_column() -> None:
    table = json.loads(PUBLISHED_MMLU.read_text(encoding="utf-8"))
    assert len(table["rows"]) == 8
    assert all(set(row) == {"model", *table["columns"]} for row in table["rows"])
    assert all(0 < row[column] < 1 for row in table["rows"] for column in table["columns"])


def test_what_is_bundled_has_names() -> None:
    assert open_dataset("bundled:merrowick").digest == open_dataset(BENCHMARK).digest
    with pytest.raises(DataError, match="bundled:x is no dataset; the bundled one is bundled:merrowick"):
        open_dataset("bundled:x")
    with pytest.raises(ModelError, match="bundled:x is not a model; the bundled ones are bundled:merrow-bpe-2048, "):
        load_model("bundled:x")


@pytest.mark.parametrize("folder", MODELS, ids=lambda folder: folder.name)
def test_a_bundled_model_is_the_one_in_its_folder(folder: Path) -> None:
    pytest.importorskip("torch")
    assert load_model(f"bundled:{folder.name}").digest == load_model(folder).digest
