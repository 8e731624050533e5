"""Peak memory and CPU seconds of what reads a finished run: the report of one, and of the same one several times.

python benchmarks/report.py [--mmlu FOLDER] [--subjects N] [--items N] [--times N] [--verb VERB ...] [--keep FOLDER]
    [--json FILE]

Two runs of a model without weights: MMLU under its whole family, and a million questions of two choices under three
scores.  ``--subjects`` and ``--items`` make them smaller; with ``--keep`` they are made once and found there again.
``--verb`` measures these alone, and leaves what the file says of the others.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from machine import machine
from process import measure

from choicewise.records import Manifest
from choicewise.store.folder import read_manifest

HERE = Path(__file__).resolve().parent
MMLU = HERE.parents[1] / "shared" / "data" / "mmlu"
PAIRS = ("options/cloze:sum", "options/cloze:token_mean", "options/cloze:char_mean")
"""Scores of two-choice questions, which need one prompt."""

METRICS = (
    *(
        "brier",
        "bpb",
        "logprob",
        "prob",
        "margin",
        "total-prob",
        "norm-prob",
        "log-score",
        "rps",
        "ece",
    ),
    *("ece-mass", "overconfidence"),
)


def main() -> None:
    """Print and keep one JSON object per run and verb."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--mmlu", type=Path, default=MMLU, help="a folder in MMLU's layout; left out where absent"
    )
    parser.add_argument("--subjects", type=int, help="the first subjects of MMLU alone")
    parser.add_argument("--items", type=int, default=1_000_000, help="two-choice questions")
    parser.add_argument(
        "--times", type=int, default=3, help="how often a run is reported together with itself"
    )
    parser.add_argument(
        "--verb", action="append", help="such as 'report', '1 metric'; all unless given"
    )
    parser.add_argument("--keep", type=Path, help="where the runs are made, or found")
    parser.add_argument("--json", type=Path, default=HERE / "results" / "report.json")
    choice = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = choice.keep or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        # Elsewhere, because the peak memory of a command begins with that of the process that starts it.
        with ProcessPoolExecutor(1, get_context("spawn")) as other:
            runs = {}
            if choice.items:
                runs["pairs"] = other.submit(pairs, folder, choice.items).result()
            if choice.mmlu.is_dir():
                runs["mmlu"] = other.submit(mmlu, folder, choice.mmlu, choice.subjects).result()
        measured = [
            one for name, run in runs.items() for one in timed(name, run, choice.times, choice.verb)
        ]
    for one in measured:
        print(json.dumps(one))
    known = json.loads(choice.json.read_text()) if choice.verb and choice.json.exists() else []
    every = {(one["run"], one["verb"]): one for one in [*known, *measured]}
    choice.json.parent.mkdir(parents=True, exist_ok=True)
    choice.json.write_text(json.dumps([*every.values()], indent=1) + "\n")


def mmlu(folder: Path, data: Path, subjects: int | None) -> Path:
    """A run of MMLU, or of its first ``subjects``, under all protocols of its family."""
    from choicewise.data.open import open_dataset
    from choicewise.running.evaluate import evaluate

    dataset = open_dataset(data)
    chosen = dataset.subjects("test")[:subjects] if subjects else None
    evaluate(
        model="fake:hash", data=dataset, protocols=["mmlu"], out=folder / "mmlu", subjects=chosen
    )
    return folder / "mmlu"


def pairs(folder: Path, items: int) -> Path:
    """A run of so many questions of two choices each, in random words."""
    from choicewise.running.evaluate import evaluate

    data = folder / "pairs.jsonl"
    if not data.exists():
        with data.open("w") as file:
            file.writelines(json.dumps(row) + "\n" for row in _questions(items))
    evaluate(model="fake:hash", data=data, protocols=PAIRS, out=folder / "pairs")
    return folder / "pairs"


def _questions(items: int) -> Iterator[dict[str, Any]]:
    draw = random.Random(0)
    words = ["".join(draw.choices("abcdefghijklmnop", k=draw.randint(3, 8))) for _ in range(5000)]
    for number in range(items):
        choices = [" ".join(draw.choices(words, k=2)), words[number % len(words)]]
        yield {
            "question": " ".join(draw.choices(words, k=8)),
            "choices": choices,
            "answer": number * 7 % 2,
        }


def timed(
    name: str, run: Path, times: int, chosen: Sequence[str] | None
) -> Iterator[dict[str, Any]]:
    """What each verb (of the ``chosen`` ones) takes that reads the run, every one in a process of its own."""
    manifest = read_manifest(run)
    verbs = {
        "report": ["report", str(run), "--json"],
        "1 metric": ["report", str(run), "--metric", METRICS[0], "--json"],
        f"{len(METRICS)} metrics": ["report", str(run), "--metric", ",".join(METRICS), "--json"],
        f"report of {times}": ["report", *[str(run)] * times, "--json"],
        "multiverse": ["report", str(run), "multiverse", "--json"],
        "compare": ["compare", str(run), str(run), "--json"],
    }
    for verb, words in verbs.items():
        if chosen and verb not in chosen:
            continue
        command = [sys.executable, "-c", "from choicewise.cli import main; main()", *words]
        taken = measure(command, {"OMP_NUM_THREADS": "1"})
        figures = {"peak GB": taken.peak, "cpu": taken.cpu, "seconds": taken.seconds}
        yield {
            "run": name,
            "verb": verb,
            **_about(run, manifest),
            **figures,
            "machine": machine(threads=1),
        }


def _about(run: Path, manifest: Manifest) -> dict[str, Any]:
    files: Sequence[Path] = [file for file in run.rglob("*") if file.is_file()]
    items = {
        (block.split, block.subject, place)
        for block in manifest.blocks
        for place in range(*block.extent[2:])
    }
    numbers, blocks = len(manifest.protocols), len(manifest.blocks)
    megabytes = sum(file.stat().st_size for file in files) / 1e6
    return {"items": len(items), "numbers": numbers, "blocks": blocks, "megabytes": megabytes}


if __name__ == "__main__":
    main()
