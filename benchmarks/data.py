"""What the benchmarks ask about: real questions beside the checkout, or made ones of the same shape."""

from __future__ import annotations

import csv
import json
import shutil
from itertools import islice
from pathlib import Path
from random import Random

SHARED = Path(__file__).resolve().parents[1] / ".." / "shared" / "data"
SUBJECTS = ("astronomy", "high_school_statistics", "professional_medicine")
SHOTS, ASKED = 25, 274
"""Rows of ARC-Challenge's validation split that are shown and asked."""


def prepare(work: Path, shared: Path = SHARED) -> tuple[Path, Path]:
    """The folders of data and of the tokenizer under ``work``, from ``shared`` or else made up from a seed."""
    data, tokenizer = work / "data", work / "tokenizer"
    if not (data / "winogrande").is_dir():
        if shared.is_dir():
            _copy(shared, data)
        else:
            _make(data)
    if not tokenizer.is_dir():
        tokenizer.mkdir()
        real = shared / "tokenizers" / "gpt-neox-20b" / "tokenizer.json"
        if real.is_file():
            shutil.copy(real, tokenizer)
        else:
            _train(data, tokenizer / "tokenizer.json")
        named = {
            "bos_token": "<|endoftext|>",
            "eos_token": "<|endoftext|>",
            "tokenizer_class": "PreTrainedTokenizerFast",
        }
        (tokenizer / "tokenizer_config.json").write_text(json.dumps(named))
    return data, tokenizer


def copy_subjects(shared: Path, data: Path) -> None:
    """Copy all splits of ``SUBJECTS`` of MMLU to ``data``."""
    for split in ("dev", "val", "test"):
        (data / "mmlu" / split).mkdir(parents=True, exist_ok=True)
        for subject in SUBJECTS:
            shutil.copy(shared / "mmlu" / split / f"{subject}_{split}.csv", data / "mmlu" / split)


def _copy(shared: Path, data: Path) -> None:
    copy_subjects(shared, data)
    rows = shared / "hf_rows"
    _lines(
        data / "hellaswag" / "validation.jsonl",
        (rows / "hellaswag.validation.first2000.jsonl").read_text(),
    )
    raw_hellaswag(data)
    _lines(data / "arc-easy" / "validation.jsonl", (rows / "arc_easy.validation.jsonl").read_text())
    lines = (rows / "arc_challenge.validation.jsonl").read_text().splitlines(keepends=True)
    _lines(data / "arc-challenge" / "test.jsonl", "".join(lines[:ASKED]))
    _lines(data / "arc-challenge" / "dev.jsonl", "".join(lines[-SHOTS:]))
    _lines(
        data / "winogrande" / "validation.jsonl", (rows / "winogrande.validation.jsonl").read_text()
    )


def raw_hellaswag(data: Path) -> None:
    """The rows of HellaSwag in the Hub's fields, from which the harness makes ``query`` and ``endings`` again."""
    raw = []
    for line in (data / "hellaswag" / "validation.jsonl").read_text().splitlines():
        row = json.loads(line)
        activity, _, context = row["query"].partition(": ")
        parts = {
            "activity_label": activity,
            "ctx_a": context,
            "ctx_b": "",
            "ctx": context,
            "endings": row["endings"],
        }
        raw.append(json.dumps({"ind": row["ind"], **parts, "label": str(row["label"])}) + "\n")
    _lines(data / "hellaswag-raw" / "validation.jsonl", "".join(raw))


def _lines(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _make(data: Path) -> None:
    """Questions of random words, as long as the real ones are on average."""
    random = Random(0)
    words = [
        "".join(random.choices("etaoinshrdlucmfw", k=random.randint(2, 9))) for _ in range(4000)
    ]

    def text(length: int) -> str:
        return " ".join(random.choices(words, k=max(1, int(random.gauss(length, length / 3)))))

    for split, rows in (("dev", 5), ("val", 10), ("test", 100)):
        (data / "mmlu" / split).mkdir(parents=True, exist_ok=True)
        for subject, length in zip(SUBJECTS, (15, 45, 90), strict=True):
            with (data / "mmlu" / split / f"{subject}_{split}.csv").open("w", newline="") as file:
                csv.writer(file).writerows(
                    [text(length), *(text(6) for _ in "ABCD"), "C"] for _ in range(rows)
                )
    endings = (
        {
            "ind": n,
            "query": f"{text(2)}: {text(28)}",
            "endings": [text(20) for _ in "ABCD"],
            "label": n % 4,
        }
        for n in range(2000)
    )
    _lines(
        data / "hellaswag" / "validation.jsonl", "".join(json.dumps(row) + "\n" for row in endings)
    )
    raw_hellaswag(data)
    names = [word.capitalize() for word in words]
    pairs = ((text(9), random.sample(names, 2), text(8)) for _ in range(1000))
    wino = (
        {"sentence": f"{a} _ {b}.", "option1": one, "option2": two, "answer": "1"}
        for a, (one, two), b in pairs
    )
    _lines(
        data / "winogrande" / "validation.jsonl", "".join(json.dumps(row) + "\n" for row in wino)
    )
    arc = (_arc(number, text(20), [text(4) for _ in "ABCD"]) for number in range(10**6))
    for name, rows in (
        ("arc-easy/validation", 570),
        ("arc-challenge/test", ASKED),
        ("arc-challenge/dev", SHOTS),
    ):
        _lines(data / f"{name}.jsonl", "".join(json.dumps(row) + "\n" for row in islice(arc, rows)))


def _arc(number: int, question: str, choices: list[str]) -> dict[str, object]:
    letters = {"text": choices, "label": list("ABCD")}
    return {"id": str(number), "question": question, "choices": letters, "answerKey": "B"}


def _train(data: Path, file: Path) -> None:
    """A byte-level BPE tokenizer of the made words."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=8192,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=alphabet,
        show_progress=False,
    )
    tokenizer.train([str(path) for path in sorted(data.rglob("*.jsonl"))], trainer)
    tokenizer.save(str(file))
