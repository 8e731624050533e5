"""`choicewise data`: what a person sees of a dataset before anything is run."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from tests.helpers.commands import choicewise

Row = dict[str, Any]
HOSTILE = {
    "question": "Q\x1b[2J\u202e?",
    "choices": ["\x1b]0;x\x07", "b"],
    "answer": "B",
    "subject": "s\x1b[1m",
}
BLIMP = {
    "sentence_good": "Ada has slept.",
    "sentence_bad": "Ada have slept.",
    "field": "syntax",
    "UID": "agreement",
}
WINOGRANDE = {
    "sentence": "The cup held the tin, as _ was big.",
    "option1": "cup",
    "option2": "tin",
    "answer": "1",
}
UNKNOWN = {"ask": "Q?", "options": {"a": "x", "b": "y"}, "correct": "b"}


def rows(count: int, **more: Any) -> list[Row]:
    return [
        {"question": f"Q{n}?", "choices": ["a", "bb", "cc"], "answer": n % 3, **more}
        for n in range(count)
    ]


SUSPICIOUS = [{"question": f"Q{n}?", "choices": ["a", "b" * 9], "answer": "B"} for n in range(30)]
QUIZ = {
    f"{subject}/{split}.jsonl": rows(count, subject=subject, passage="P.")
    for subject, count in (("anatomy", 27), ("virology", 28))
    for split, count in (("test", count), ("dev", 5))
}
DATA: dict[str, dict[str, list[Row]]] = {
    "subjects, fields and doubles": QUIZ,
    "suspicious": {
        "test.jsonl": [*SUSPICIOUS, {"question": "Last?", "choices": ["a", "bb"], "answer": -1}]
    },
    "answers that may count from 1": {"test.jsonl": [row | {"answer": 1} for row in rows(9)]},
    "right answers in a column of their own": {"test.jsonl": [BLIMP]},
    "a blank": {"test.jsonl": [WINOGRANDE]},
    "unknown columns": {"test.jsonl": [UNKNOWN] * 2},
    "columns that fit in two ways": {"test.jsonl": [UNKNOWN | {"gold": "a"}] * 2},
    "texts that steer a terminal": {"test.jsonl": [HOSTILE]},
    "columns that steer a terminal": {"test.jsonl": [{"\x1b[2J": 1, "\u202ename": "x"}]},
    "nothing": {},
}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The data lie in the working directory, whose name nothing prints."""
    monkeypatch.chdir(tmp_path)


def write(files: dict[str, list[Row]], folder: str = "quiz") -> str:
    for name, content in files.items():
        place = Path(folder, name)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("".join(f"{json.dumps(row)}\n" for row in content), encoding="utf-8")
    return folder


@pytest.mark.parametrize("name", DATA)
def test_what_is_recognised_and_what_is_suspicious(
    name: str, tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    shown = choicewise("data", write(DATA[name]))
    assert not {"\x1b", "\x07", "\u202e"} & set(shown.stdout + shown.stderr)
    lines = [
        f"code {shown.code}",
        *shown.stdout.splitlines(),
        "--- stderr",
        *shown.stderr.splitlines(),
    ]
    if DATA[name] is not QUIZ:  # which protocols fit stands in one snapshot, as the catalogue grows
        lines = [line for line in lines if not line.startswith("protocols ")]
    assert "\n".join(line.rstrip() for line in lines).replace(str(tmp_path), "FOLDER") == snapshot


@pytest.mark.parametrize(
    ("name", "sure", "read"),
    [
        ("answers that may count from 1", "number", "answer    answer (read as number from 1)"),
        ("columns that fit in two ways", "gold", "answer    gold (read as label, labels a, b)"),
    ],
)
def test_a_mapping_that_is_printed_can_be_passed_on(name: str, sure: str, read: str) -> None:
    mapping = choicewise("data", write(DATA[name]), code=2).stdout.replace('"..."', f'"{sure}"')
    Path("mapping.toml").write_text(mapping, encoding="utf-8")
    assert tomllib.loads(mapping)
    declared = choicewise("data", "quiz", "--mapping", "mapping.toml", code=0).stdout
    assert "shape     declared" in declared
    assert read in declared
    line = [
        "run",
        "--model",
        "fake:hash",
        "--data",
        "quiz",
        "--protocol",
        "options",
        "--out",
        "out",
    ]
    told = choicewise(*line, code=3).stderr
    assert sure != "gold" or '\n  choices = ["options.a", "options.b"]\n' in told


def test_json() -> None:
    told = json.loads(
        choicewise("data", write({"test.jsonl": rows(3), "train.jsonl": rows(4)}), "--json").stdout
    )
    assert told["shape"] == "question, choices, answer (MMLU on the Hub)"
    assert told["columns"]["answer"] == "answer"
    assert told["splits"]["train"]["items"] == 4
    assert told["splits"]["test"]["answers"]["positions"] == {"3": [1, 1, 1]}
    assert told["doubles"]["across"] == [{"split": "test", "other": "train", "items": 3}]
    item = {
        "id": "test/2",
        "question": "Q2?",
        "choices": ["a", "bb", "cc"],
        "gold": [2],
        "subject": "",
        "fields": {},
    }
    assert told["rows"][2] == item
    assert "" in told["protocols"].values()
    assert any("rows in split 'validation'" in why for why in told["protocols"].values())


def test_a_benchmark_by_name(tmp_path: Path) -> None:
    choices = {"text": ["a fir", "a bee", "a cup"], "label": ["A", "B", "C"]}
    for split in ("train", "validation", "test"):
        questions = [
            {"id": f"{split}{n}", "question": f"{n}?", "choices": choices, "answerKey": "B"}
            for n in range(3)
        ]
        write({f"ARC-Challenge/{split}.jsonl": questions}, "elsewhere/arc-challenge")
    shown = choicewise("data", "arc-challenge", code=0, CHOICEWISE_DATA=str(tmp_path / "elsewhere"))
    assert shown.stdout.startswith("arc-challenge, data ")
    assert "shape     ARC, CommonsenseQA" in shown.stdout
