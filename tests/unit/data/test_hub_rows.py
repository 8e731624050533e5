"""Rows with the names of their publishers, and folders as on the Hub or as people fill them, mean what those say."""

import json
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from syrupy.assertion import SnapshotAssertion

from choicewise.data.benchmarks import open_benchmark
from choicewise.data.dataset import Dataset
from choicewise.data.open import open_dataset
from choicewise.data.rows import SHAPES, Shape, recognise, shape_of
from choicewise.errors import DataError, MissingData, UnknownShape
from tests.helpers.imported_runs import write_lines
from tests.helpers.mmlu_data import shared_mmlu
from tests.paths import SHARED

Row = dict[str, Any]

FOUR = ["a fir", "a bee", "a cup", "a tin"]
LABELLED = {"text": FOUR, "label": ["A", "B", "C", "D"]}
NUMBERED = {"text": FOUR, "label": ["1", "2", "3", "4"]}
OBJECTS = [{"text": text, "label": label} for text, label in zip(FOUR, "1234", strict=True)]
A_TO_D = dict(zip("ABCD", FOUR, strict=True))
BEST = {"choices": [FOUR[0], *FOUR[2:]], "labels": [1, 0, 0]}

ROWS: dict[str, Row] = {
    "allenai/ai2_arc": {
        "id": "M_1",
        "question": "What flies?",
        "choices": LABELLED,
        "answerKey": "B",
    },
    "allenai/ai2_arc with numbers": {
        "id": "M_2",
        "question": "Q?",
        "choices": NUMBERED,
        "answerKey": "4",
    },
    "ARC as published": {
        "id": "x",
        "question": {"stem": "Q", "choices": OBJECTS, "para": "p"},
        "answerKey": "2",
    },
    "Rowan/hellaswag": {"ind": 24, "activity_label": "Baking", "ctx_a": "He stirs.", "ctx_b": "he"}
    | {"ctx": "He stirs. he", "endings": FOUR, "source_id": "x~v_1", "split": "val", "label": "3"}
    | {"split_type": "indomain"},
    "HellaSwag, cleaned": {"ind": 7, "query": "Q", "endings": ["a", "b"], "label": 1},
    "allenai/openbookqa main": {
        "id": "7-9",
        "question_stem": "Bees",
        "choices": LABELLED,
        "answerKey": "C",
    },
    "allenai/openbookqa additional": {
        "id": "7-9",
        "question_stem": "Bees",
        "choices": LABELLED,
        "answerKey": "C",
    }
    | {"fact1": "bees fly", "humanScore": 1, "clarity": 2, "turkIdAnonymized": "t"},
    "ybisk/piqa": {"goal": "Sit", "sol1": "on a fir", "sol2": "on a cup", "label": 1},
    "allenai/winogrande": {
        "sentence": "The cup held the tin, as _ was big.",
        "option1": "cup",
        "option2": "tin",
    }
    | {"answer": "1"},
    "tau/commonsense_qa": {
        "id": "8f",
        "question": "Q?",
        "question_concept": "bee",
        "choices": LABELLED,
    }
    | {"answerKey": "D"},
    "allenai/social_i_qa": {
        "context": "Ada sat.",
        "question": "Why?",
        "answerA": "rest",
        "answerB": "run",
    }
    | {"answerC": "sing", "label": "3"},
    "super_glue copa": {
        "premise": "It rained.",
        "choice1": "I got wet.",
        "choice2": "I ate.",
        "question": "effect",
    }
    | {"idx": 4, "label": 0},
    "super_glue boolq": {"question": "do bees fly", "passage": "Bees fly.", "idx": 5, "label": 1},
    "google/boolq": {"question": "do firs fly", "answer": False, "passage": "Bees fly."},
    "truthful_qa multiple_choice": {"question": "Q?", "mc1_targets": BEST}
    | {"mc2_targets": {"choices": FOUR, "labels": [1, 1, 0, 0]}},
    "truthful_qa generation": {
        "id": 1,
        "type": "A",
        "category": "Bees",
        "question": "Q?",
        "best_answer": "a",
    }
    | {"correct_answers": ["a", "b", ""], "incorrect_answers": ["c"], "source": "s"},
    "nyu-mll/blimp": {
        "sentence_good": "Bees fly.",
        "sentence_bad": "Bees flies.",
        "field": "syntax",
    }
    | {"UID": "agreement", "linguistics_term": "x", "simple_LM_method": True, "pair_id": 3},
    "BLiMP as published": {
        "sentence_good": "a",
        "sentence_bad": "b",
        "UID": "island",
        "pairID": "7",
    },
    "cais/mmlu": {"question": "Q?", "subject": "bees", "choices": FOUR, "answer": 2},
    "TIGER-Lab/MMLU-Pro": {
        "question_id": 70,
        "question": "Q?",
        "options": ["10", "2", "1", "12", "7"],
        "answer": "C",
    }
    | {"answer_index": 2, "cot_content": "", "category": "math", "src": "s"},
    "edinburgh-dawg/mmlu-redux": {
        "question": "Q?",
        "choices": FOUR,
        "answer": 1,
        "error_type": "ok",
        "source": None,
    }
    | {"correct_answer": None, "potential_reason": None},
    "haonan-li/cmmlu": {"Question": "Q?", **A_TO_D, "Answer": "B"},
    "ceval/ceval-exam": {"id": 0, "question": "Q?", **A_TO_D, "answer": "D", "explanation": "e"},
    "Idavidrein/gpqa": {"Question": "Q?", "Correct Answer": "a fir", "Incorrect Answer 1": "a bee"}
    | {
        "Incorrect Answer 2": "a cup",
        "Incorrect Answer 3": "a tin",
        "Record ID": "rec0",
        "Subdomain": "Botany",
    },
    "TAUR-Lab/MuSR": {
        "narrative": "n",
        "question": "Who?",
        "choices": "['Ann', \"O'Hara\"]",
        "answer_index": 1,
    }
    | {"answer_choice": "O'Hara"},
    "ehovy/race": {
        "example_id": "h1.txt",
        "article": "text",
        "answer": "A",
        "question": "Q?",
        "options": FOUR,
    },
    "allenai/sciq": {
        "question": "Q?",
        "distractor3": "a cup",
        "distractor1": "a fir",
        "distractor2": "a bee",
    }
    | {"correct_answer": "a tin", "support": "s"},
}


def write(path: Path, rows: list[Row]) -> Path:
    if path.suffix == ".jsonl":
        return write_lines(path, rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


@pytest.mark.parametrize("name", ROWS)
def test_rows_are_recognised(tmp_path: Path, name: str, snapshot: SnapshotAssertion) -> None:
    row, seen = ROWS[name], set()
    for ending in ("jsonl", "parquet"):
        (item,) = open_dataset(write(tmp_path / ending / f"test.{ending}", [row])).splits["test"]
        about = [
            shape_of(row),
            item.id,
            item.question,
            item.choices,
            item.gold,
            item.subject,
            dict(item.fields),
        ]
        seen.add("\n".join(map(str, about)))
    assert (len(seen), seen.pop()) == (1, snapshot)
    assert recognise(row) is not None


def test_every_shape_has_a_row_here_and_other_tables_are_left_alone() -> None:
    lettered = {name for name in SHAPES if name.startswith("question, A to")}
    assert set(SHAPES) - lettered == {shape_of(row) for row in ROWS.values()} - lettered
    assert len(lettered) == 9
    assert all(isinstance(shape, Shape) for shape in SHAPES.values())
    assert (
        recognise({"question": "Q", "answer": "An open one, without choices"}),
        recognise({}),
    ) == (None, None)


@pytest.mark.parametrize(
    "file", sorted((SHARED / "hf_rows").glob("*.jsonl")), ids=lambda file: file.stem
)
def test_real_rows(file: Path, snapshot: SnapshotAssertion) -> None:
    """Of every place, how many right choices stand there."""
    dataset = open_dataset(file)
    ((split, items),) = dataset.splits.items()
    assert dataset.columns is not None
    counts = sorted(Counter(item.gold for item in items).items())
    assert (
        f"{dataset.name} {split}: {', '.join(f'{gold} {count}' for gold, count in counts)}"
        == snapshot
    )


def test_real_rows_of_truthfulqa_and_blimp(shared_data: Path) -> None:
    items = open_dataset(shared_data / "hf_rows" / "truthfulqa.en.jsonl").splits["test"]
    assert len(items) == 817
    assert all(item.gold == tuple(range(len(item.gold))) for item in items)
    assert all(item.choices[0] == item.fields["best_answer"] for item in items)
    for path in sorted((shared_data / "blimp").glob("*.jsonl")):
        dataset = open_dataset(path)
        assert Counter(item.gold for item in dataset.splits["test"]) == {(0,): 1000}
        assert dataset.subjects("test") == (path.stem,)


def test_labels_of_two_kinds_and_structs_of_lists_and_lists_of_structs_are_read_alike(
    tmp_path: Path,
) -> None:
    rows = [ROWS["allenai/ai2_arc"], ROWS["allenai/ai2_arc with numbers"]]
    for ending in ("jsonl", "parquet"):
        items = open_dataset(write(tmp_path / f"test.{ending}", rows)).splits["test"]
        assert [item.gold for item in items] == [(1,), (3,)]
    paths = (
        write(tmp_path / f"{n}.parquet", [rows[1] | own])
        for n, own in enumerate(({}, {"choices": OBJECTS}))
    )
    assert len({open_dataset(path).digest for path in paths}) == 1


def test_parquet_dictionaries_and_class_labels(tmp_path: Path) -> None:
    table = pa.table(
        {
            "question": ["P?", "Q?"],
            "choices": [FOUR, FOUR[::-1]],
            "answer": [3, 0],
            "subject": ["s", "s"],
        }
    )
    names = {
        "info": {"features": {"answer": {"names": ["A", "B", "C", "D"], "_type": "ClassLabel"}}}
    }
    table = table.set_column(3, "subject", table["subject"].dictionary_encode())
    table = table.set_column(0, "question", table["question"].dictionary_encode())
    pq.write_table(
        table.replace_schema_metadata({"huggingface": json.dumps(names)}), tmp_path / "test.parquet"
    )
    items = open_dataset(tmp_path).splits["test"]
    assert [(item.question, item.gold, item.subject) for item in items] == [
        ("P?", (3,), "s"),
        ("Q?", (0,), "s"),
    ]


UNANSWERED = {
    **dict.fromkeys(["ybisk/piqa", "super_glue boolq", "super_glue copa"], ("label", -1)),
    **dict.fromkeys(["allenai/winogrande", "ceval/ceval-exam"], ("answer", "")),
    **{
        "Rowan/hellaswag": ("label", ""),
        "tau/commonsense_qa": ("answerKey", None),
        "cais/mmlu": ("answer", None),
    },
}


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
@pytest.mark.parametrize("name", UNANSWERED)
def test_a_split_without_answers_is_named(tmp_path: Path, name: str, ending: str) -> None:
    row, (column, nothing) = ROWS[name], UNANSWERED[name]
    place = {
        "jsonl": r"jsonl, line 1 .counted from 1.",
        "parquet": r"parquet, row 0 .counted from 0.",
    }[ending]
    write(tmp_path / f"validation.{ending}", [row])
    write(tmp_path / f"test.{ending}", [row | {column: nothing}] * 3)
    with pytest.raises(DataError, match=rf"split test has no .*test\.{place}.*skip bad items"):
        open_dataset(tmp_path)
    dataset = open_dataset(tmp_path, on_bad_item="skip")
    assert {split: len(items) for split, items in dataset.splits.items()} == {"validation": 1}
    assert (len(dataset.skipped), dataset.evaluated) == (3, "validation")


def test_a_split_that_lacks_the_column_of_answers_is_named(tmp_path: Path) -> None:
    for name in ("Rowan/hellaswag", "ybisk/piqa", "allenai/ai2_arc", "TIGER-Lab/MMLU-Pro"):
        row, folder = ROWS[name], tmp_path / name
        answers = ("label", "answer", "answer_index", "answerKey")
        lacking = {key: value for key, value in row.items() if key not in answers}
        assert shape_of(lacking) == shape_of(row)
        write(folder / "validation.jsonl", [row])
        write(folder / "test.jsonl", [lacking])
        with pytest.raises(DataError, match=r"split test has no .*column \w+ is missing"):
            open_dataset(folder)


def test_rows_without_answers_among_others_are_counted(tmp_path: Path) -> None:
    row = ROWS["ybisk/piqa"]
    path = write(
        tmp_path / "piqa.jsonl",
        [row, row | {"label": -1}, row | {"label": 0}, row | {"label": None}],
    )
    with pytest.raises(
        DataError,
        match=r"2 rows of split test .*line 2 .*answer is -1",
    ):
        open_dataset(path)
    dataset = open_dataset(path, on_bad_item="skip")
    assert [item.id for item in dataset.splits["test"]] == ["test/0", "test/2"]
    assert [skipped.reason for skipped in dataset.skipped] == [
        "the answer is -1",
        "the answer is null",
    ]


def test_texts_that_are_no_list_are_refused(tmp_path: Path) -> None:
    for value in (
        "['a', 'b'",
        "[a, b]",
        "['a' 'b']",
        r"['\x', 'b']",
        "['a', 'b') + ('c']",
        "['a', f('b')]",
    ):
        path = write(tmp_path / "quiz.jsonl", [{"question": "Q", "choices": value, "answer": 0}])
        with pytest.raises(DataError, match="needs a list"):
            open_dataset(path)


OPEN = [{"input": "Q Options: (A) x (B) y", "target": "(A)"}, {"question": "2+2?", "answer": "4"}]


@pytest.mark.parametrize("row", OPEN)
def test_rows_whose_choices_have_no_column_are_refused_with_a_mapping_to_fill_in(
    tmp_path: Path, row: Row
) -> None:
    with pytest.raises(UnknownShape, match="can't tell which columns") as refused:
        open_dataset(write(tmp_path / "test.jsonl", [row]))
    assert f'question = "{next(iter(row))}"' in refused.value.problems


LETTERS: Row = {"A": "a", "B": "b", "C": "c", "D": "d"}
MMLU: Row = {"question": "Q?", "choices": ["a", "b", "c", "d"], "answer": 2}
QUESTION: Row = {"question": "Q?", **LETTERS, "answer": "C"}
ARC = ROWS["allenai/ai2_arc"]
PART = "-00000-of-00001"


@pytest.mark.parametrize("ending", ["parquet", "jsonl"])
@pytest.mark.parametrize("named", [True, False])
def test_a_folder_of_subjects_is_the_same_as_the_original_layout(
    tmp_path: Path, ending: str, named: bool
) -> None:
    subjects = ("anatomy", "astronomy", "virology")
    for subject in subjects:
        row = MMLU | ({"subject": subject} if named else {})
        for split in ("test", "dev"):
            write(
                tmp_path / "hub" / subject / f"{split}{PART}.{ending}", [row, row | {"answer": 0}]
            )
            (tmp_path / "csv" / split).mkdir(parents=True, exist_ok=True)
            (tmp_path / "csv" / split / f"{subject}_{split}.csv").write_text(
                "Q?,a,b,c,d,C\nQ?,a,b,c,d,A\n"
            )
    dataset = open_dataset(tmp_path / "hub")
    assert dataset.subjects("test") == subjects
    assert (dataset.digest, dataset.name) == (open_dataset(tmp_path / "csv").digest, "hub")


def test_many_folders_with_the_same_columns_are_subjects(tmp_path: Path) -> None:
    for number in range(11):
        write(
            tmp_path / f"field_{number:02}" / "val-00000-of-00001.parquet", [{"id": 0, **QUESTION}]
        )
    dataset = open_dataset(tmp_path)
    assert len(dataset.subjects("validation")) == 11
    assert dataset.splits["validation"][3].id == "field_03/0", (
        "an id need only differ within its folder"
    )
    row = {"sentence_good": "Bees fly.", "sentence_bad": "Bees flies.", "pairID": "0"}
    for uid in ("agreement", "island"):
        write(tmp_path / "blimp" / uid / f"train{PART}.parquet", [row | {"UID": uid}])
    assert [item.id for item in open_dataset(tmp_path / "blimp").splits["train"]] == [
        "agreement/0",
        "island/0",
    ]


@pytest.mark.parametrize(
    "names", [("ARC-Challenge", "ARC-Easy"), ("main", "additional"), ("high", "middle")]
)
def test_configurations_that_are_no_subjects_are_listed(
    tmp_path: Path, names: tuple[str, str]
) -> None:
    for name, split in product(names, ("test", "train")):
        write(tmp_path / name / f"{split}{PART}.parquet", [ARC])
    with pytest.raises(DataError, match="has 2 datasets: .*; name one") as refused:
        open_dataset(tmp_path)
    assert f"{tmp_path / names[0]} (test, train)" in refused.value.problems
    dataset = open_dataset(tmp_path / names[0])
    assert (dataset.name, sorted(dataset.splits)) == (names[0], ["test", "train"])


def test_a_whole_copy_with_all_rows_beside_their_subjects_is_refused_and_so_are_other_columns(
    tmp_path: Path,
) -> None:
    for name, subject in (("all", "anatomy"), ("anatomy", "anatomy"), ("virology", "virology")):
        write(tmp_path / "copy" / name / f"test{PART}.parquet", [MMLU | {"subject": subject}])
    with pytest.raises(DataError, match="has 3 datasets"):
        open_dataset(tmp_path / "copy")
    assert open_dataset(tmp_path / "copy" / "all").subjects("test") == ("anatomy",)
    write(tmp_path / "mixed" / "anatomy" / "test.jsonl", [MMLU])
    write(tmp_path / "mixed" / "virology" / "test.jsonl", [QUESTION])
    with pytest.raises(DataError, match="has different columns"):
        open_dataset(tmp_path / "mixed")


@pytest.mark.parametrize(
    "paths",
    [
        {"test": f"data/test{PART}.parquet", "train": f"data/train{PART}.parquet"},
        {"test": f"data/test{PART}-0123456789abcdef.parquet", "train": "data/train.parquet"},
        {"test": "test/0000.parquet", "train": "train/0000.parquet"},
        {"test": "default/test/0000.parquet", "train": "default/train/0000.parquet"},
        {"test": f"ARC-Easy/test{PART}.parquet", "train": f"ARC-Easy/train{PART}.parquet"},
        {
            "test": f"data/ARC-Easy/test{PART}.parquet",
            "train": f"data/ARC-Easy/train{PART}.parquet",
        },
        {"test": "test.parquet", "train": "auxiliary_train.parquet"},
    ],
)
def test_places_of_the_files_of_one_dataset(tmp_path: Path, paths: dict[str, str]) -> None:
    for path in paths.values():
        write(tmp_path / "arc" / path, [ARC])
    (tmp_path / "arc" / ".cache").mkdir()
    (tmp_path / "arc" / "README.md").write_text("About")
    dataset = open_dataset(tmp_path / "arc")
    assert (dataset.name, sorted(dataset.splits)) == ("arc", ["test", "train"])


def test_a_benchmark_in_a_folder_that_people_filled(place: Path) -> None:
    for subject in (
        "law",
        "art",
    ):  # neither names nor rows say that these are subjects; the benchmark does
        for split in ("val", "test"):
            write(place / "ceval" / subject / split / "0000.parquet", [{"id": 0, **QUESTION}])
    dataset = open_benchmark("ceval")
    assert {split: dataset.subjects(split) for split in dataset.splits} == {
        "validation": ("art", "law")
    }
    for name in ("ARC-Challenge", "ARC-Easy"):
        write(place / "arc-easy" / name / f"test{PART}.parquet", [ARC | {"id": name}])
    assert [item.id for item in open_benchmark("arc-easy").splits["test"]] == ["ARC-Easy"]
    write(place / "piqa" / "validation.jsonl", [ROWS["ybisk/piqa"]])
    assert len(open_benchmark("piqa").splits["validation"]) == 1


def test_one_part_stands_for_its_folder(tmp_path: Path) -> None:
    for split, part in product(("test", "validation"), range(2)):
        write(
            tmp_path / "arc" / f"{split}-0000{part}-of-00002.parquet",
            [ARC | {"id": f"{split}{part}"}],
        )
    dataset = open_dataset(tmp_path / "arc" / "test-00001-of-00002.parquet")
    sizes = {split: len(items) for split, items in dataset.splits.items()}
    assert (dataset.name, sizes) == ("arc", {"test": 2, "validation": 2})


def test_all_subjects_of_mmlu_as_the_hub_has_them(tmp_path: Path) -> None:
    original = Dataset("mmlu", {"dev": shared_mmlu().splits["dev"]})
    for subject, items in original.splits["dev"].by_subject().items():
        rows = [
            {"question": item.question, "choices": [*item.choices], "answer": item.gold[0]}
            for item in items
        ]
        write(
            tmp_path / subject / f"dev{PART}.parquet", [{"subject": subject, **row} for row in rows]
        )
    assert (len([*tmp_path.iterdir()]), open_dataset(tmp_path).digest) == (57, original.digest)


CMMLU: Row = {"Question": "Q?", **LETTERS, "Answer": "B"}
CEVAL: Row = {"id": 0, **QUESTION}
LISTED: Row = {"question": "Q?", "choices": ["a", "b", "c"], "answer": 2}
GPQA, MUSR = ROWS["Idavidrein/gpqa"], ROWS["TAUR-Lab/MuSR"]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CHOICEWISE_DATA", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return tmp_path


SUBJECTS = {
    "cmmlu": (CMMLU, ("dev.jsonl", "test.jsonl"), ("agronomy", "anatomy")),
    "ceval": (CEVAL, ("dev.parquet", "val.parquet"), ("agronomy", "anatomy")),
    "mmlu-redux": (LISTED, ("test.jsonl",), ("agronomy", "anatomy")),
    "gpqa": (GPQA, ("test.jsonl",), ("diamond", "extended", "main")),
    "musr": (MUSR, ("test.jsonl",), ("murder_mystery", "object_placements", "team_allocation")),
}


@pytest.mark.parametrize("name", SUBJECTS)
@pytest.mark.parametrize("count", [1, 3])
def test_sub_folders_are_subjects_where_the_repository_has_subjects(
    place: Path, name: str, count: int
) -> None:
    row, files, subjects = SUBJECTS[name]
    for subject, file in product(subjects[:count], files):
        write(place / name / subject / file, [row])
    dataset = open_benchmark(name)
    assert [dataset.subjects(split) for split in dataset.splits] == [subjects[:count]] * len(files)


def test_a_sub_folder_that_is_no_subject_is_named(place: Path) -> None:
    write(place / "gpqa" / "diamonds" / "test.jsonl", [GPQA])
    with pytest.raises(DataError, match=r"diamonds .* gpqa; .* diamond\?"):
        open_benchmark("gpqa")


def test_subjects_by_their_names_and_files_of_the_repository_with_another_ending(
    place: Path,
) -> None:
    for subject in ("main", "diamond"):
        write(place / "gpqa" / f"gpqa_{subject}.parquet", [GPQA])
    assert open_benchmark("gpqa").subjects("test") == ("diamond", "main")
    for subject in ("anatomy", "sociology"):
        write(place / "mmlu" / subject / "test.jsonl", [LISTED])
    assert open_benchmark("mmlu").subjects("test") == ("anatomy", "sociology")


def test_of_several_configurations_the_benchmark_s_own_is_read(place: Path) -> None:
    for name, choices in (("ARC-Challenge", ["a", "b", "c"]), ("ARC-Easy", ["d", "e", "f"])):
        write(place / "arc-challenge" / name / "test.jsonl", [LISTED | {"choices": choices}])
    assert [item.choices for item in open_benchmark("arc-challenge").splits["test"]] == [
        ("a", "b", "c")
    ]


def test_a_column_of_subjects_is_taken_where_the_mapping_names_none(place: Path) -> None:
    write(
        place / "cmmlu" / "test.jsonl",
        [CMMLU | {"subject": subject} for subject in ("agronomy", "anatomy")],
    )
    assert open_benchmark("cmmlu").subjects("test") == ("agronomy", "anatomy")


@pytest.mark.parametrize(
    "name", ["cmmlu", "ceval", "gpqa", "swag", "race", "arc-challenge", "musr", "lambada"]
)
@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_rows_of_another_known_shape_are_read_as_that(place: Path, name: str, ending: str) -> None:
    write(place / name / f"test.{ending}", [LISTED])
    (item,) = open_benchmark(name).splits["test"]
    assert (item.question, item.choices, item.gold) == ("Q?", ("a", "b", "c"), (2,))


def test_rows_of_no_known_shape_come_with_the_names_that_are_needed(place: Path) -> None:
    for name, lacking in (
        ("gpqa", "Incorrect Answer 1"),
        ("race", "problems"),
        ("swag", "ending0"),
    ):
        write(place / name / "test.jsonl", [{"one": "x", "other": "y"}])
        with pytest.raises(
            DataError,
            match=rf"can't tell which columns .*one, other; rename .*{name}: .*{lacking}",
        ):
            open_benchmark(name)


def test_choices_that_depend_on_the_subject_need_one(place: Path) -> None:
    with pytest.raises(MissingData) as raised:
        open_benchmark("bbh")
    assert f"{place}/bbh/ as SUBJECT/test.jsonl" in str(raised.value)
    write(place / "bbh" / "test.jsonl", [{"input": "Q", "target": "True"}])
    with pytest.raises(DataError, match=r"has no subjects, .*bbh/boolean_expressions/test\.jsonl"):
        open_benchmark("bbh")


def test_the_right_answer_of_sciq_and_of_gpqa_may_be_a_wrong_one_as_well(place: Path) -> None:
    write(place / "sciq" / "test.jsonl", [{**ROWS["allenai/sciq"], "distractor2": "a tin"}])
    (item,) = open_benchmark("sciq").splits["test"]
    assert (item.choices, item.gold) == (("a fir", "a tin", "a cup", "a tin"), (3,))
    write(place / "gpqa" / "gpqa_main.csv.jsonl", [GPQA])  # no file of the repository
    write(
        place / "gpqa" / "main" / "test.jsonl",
        [{**GPQA, "Incorrect Answer 2": GPQA["Correct Answer"]}] * 3,
    )
    for item in open_benchmark("gpqa").splits["test"]:
        assert (item.choices.count("a fir"), len(item.gold)) == (2, 1)
