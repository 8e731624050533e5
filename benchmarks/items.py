"""A million two-choice questions from end to end: memory and seconds of each command, in a process of its own.

python benchmarks/items.py [--items 100000 ...] [--ending .jsonl] [--protocol options/cloze:sum] [--step open ...]
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

from machine import machine
from process import measure

HERE = Path(__file__).resolve().parent
WORDS = (
    "river stone garden window carries before under seven lights "
    "paper morning village teacher answers slowly copper"
)
ENDINGS = (".jsonl", ".csv", ".parquet")
CHOICEWISE = ("-c", "from choicewise.cli import main; main()")
IMPORTED = "import pyarrow.parquet; from choicewise import open_dataset, open_run"
OPENED = (
    f"import sys; {IMPORTED}; data = open_dataset(sys.argv[1]); data.digest; data.choose('test')"
)


def rows(count: int) -> Iterator[dict[str, Any]]:
    """Questions of 60 to 100 bytes with two short choices and an id; the same ones each time."""
    draw = random.Random(0)
    words = WORDS.split()
    for number in range(count):
        question = " ".join(draw.choices(words, k=12)).capitalize() + "?"
        choices = [" ".join(draw.choices(words, k=2)), " ".join(draw.choices(words, k=3))]
        yield {
            "id": f"q{number}",
            "question": question,
            "choices": choices,
            "answer": draw.randrange(2),
        }


@contextmanager
def made(folder: Path, count: int, ending: str) -> Iterator[Path]:
    """The file of ``count`` questions in ``folder``, deleted afterwards."""
    path = folder / f"made-up{ending}"
    if ending == ".jsonl":
        with path.open("w") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows(count))
    elif ending == ".csv":
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["id", "question", "A", "B", "answer"])
            writer.writerows(
                [row["id"], row["question"], *row["choices"], "AB"[row["answer"]]]
                for row in rows(count)
            )
    else:
        _write_parquet(path, count)
    try:
        yield path
    finally:
        path.unlink()


def _write_parquet(path: Path, count: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema(
        [
            ("id", pa.string()),
            ("question", pa.string()),
            ("choices", pa.list_(pa.string())),
            ("answer", pa.int64()),
        ]
    )
    drawn = rows(count)
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, count, 50_000):
            chunk = [next(drawn) for _ in range(min(50_000, count - start))]
            writer.write_table(pa.Table.from_pylist(chunk, schema))


def steps(data: Path, out: Path, protocols: list[str]) -> dict[str, list[str | Path]]:
    """Name → command: what the imports alone take, opening the data, the whole run, and its report."""
    named: list[str | Path] = [part for name in protocols for part in ("--protocol", name)]
    run: list[str | Path] = ["run", "--model", "fake:hash", "--data", data, *named, "--out", out]
    return {
        "import": ["-c", IMPORTED],
        "open": ["-c", OPENED, data],
        "run": [*CHOICEWISE, *run],
        "report": [*CHOICEWISE, "report", out],
    }


def main() -> None:
    """Print one line of JSON a step and keep them all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, action="append", help="repeatable; 1000000")
    parser.add_argument("--ending", action="append", choices=ENDINGS, help="repeatable; .jsonl")
    parser.add_argument("--protocol", action="append", help="repeatable; options/cloze:sum")
    parser.add_argument(
        "--step",
        action="append",
        choices=["import", "open", "run", "report"],
        help="repeatable; all",
    )
    parser.add_argument("--results", type=Path, help="a file to keep all lines in as JSON")
    choice = parser.parse_args()
    protocols = choice.protocol or ["options/cloze:sum"]
    kept = []
    with tempfile.TemporaryDirectory() as folder:
        for count, ending in product(choice.items or [1_000_000], choice.ending or [".jsonl"]):
            with made(Path(folder), count, ending) as data:
                for step, command in steps(
                    data, Path(folder) / f"run-{count}{ending}", protocols
                ).items():
                    if choice.step is None or step in choice.step:
                        measured = measure([sys.executable, *command], {})
                        kept.append(
                            {"step": step, "items": count, "ending": ending, "protocols": protocols}
                            | asdict(measured)
                            | {"machine": machine()}
                        )
                        print(json.dumps(kept[-1]), flush=True)
    if choice.results is not None:
        choice.results.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
