"""All 57 subjects of MMLU opened from the layouts that the Hub serves, in a process of its own.

python benchmarks/subjects.py [--mmlu ../shared/data/mmlu] [--repeats 3] [--results FILE]

The layouts: a folder per subject with a Parquet file per split, one Parquet file per split with a column ``subject``,
and that as `choicewise fetch` leaves it, whose checksums are checked.  Rows come from the original CSV files.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from data import SHARED
from machine import machine
from process import measure

SPLITS = {"dev": "dev", "val": "validation", "test": "test"}
OPENED = "import sys; from choicewise import open_dataset; data = open_dataset(sys.argv[1])"
FETCHED = "from choicewise.data.benchmarks import open_benchmark; data = open_benchmark('mmlu')"
COUNTED = "; assert len(data.subjects('test')) == 57"


def rows(mmlu: Path, folder: str) -> dict[str, list[dict[str, Any]]]:
    """Subject → its rows in one of the archive's folders, with the Hub's field names."""
    subjects: dict[str, list[dict[str, Any]]] = {}
    for file in sorted((mmlu / folder).glob("*.csv")):
        subject = file.stem.removesuffix(f"_{folder}")
        with file.open(newline="", encoding="utf-8") as lines:
            subjects[subject] = [
                {
                    "question": question,
                    "subject": subject,
                    "choices": choices,
                    "answer": "ABCD".index(letter),
                }
                for question, *choices, letter in csv.reader(lines)
            ]
    return subjects


def make(mmlu: Path, work: Path) -> dict[str, tuple[list[str | Path], dict[str, str]]]:
    """The layouts below ``work``: name → what opens it, and the environment that it needs."""
    for folder, split in SPLITS.items():
        subjects = rows(mmlu, folder)
        for subject, own in subjects.items():
            _write(work / "folders" / subject / f"{split}-00000-of-00001.parquet", own)
        every = [row for own in subjects.values() for row in own]
        _write(work / "files" / f"{split}-00000-of-00001.parquet", every)
        _write(work / "fetched" / "mmlu" / "all" / f"{split}-00000-of-00001.parquet", every)
    _write_record(work / "fetched" / "mmlu")
    return {
        "folder per subject": (["-c", OPENED + COUNTED, work / "folders"], {}),
        "file per split": (["-c", OPENED + COUNTED, work / "files"], {}),
        "fetched": (["-c", FETCHED + COUNTED], {"CHOICEWISE_DATA": str(work / "fetched")}),
    }


def _write(path: Path, content: list[dict[str, Any]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(content), path)


def _write_record(folder: Path) -> None:
    from choicewise.data.benchmarks import NAME, Fetched, file_record

    files = {
        str(file.relative_to(folder)): file_record(file)
        for file in sorted(folder.rglob("*.parquet"))
    }
    (folder / NAME).write_text(Fetched("cais/mmlu", "main", "0" * 40, files).text)


def main() -> None:
    """Print one line of JSON a layout, the fastest of the repeats, and keep them all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--mmlu", type=Path, default=SHARED / "mmlu", help="the original archive's folder"
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--results", type=Path, help="a file to keep all lines in as JSON")
    choice = parser.parse_args()
    kept = []
    with tempfile.TemporaryDirectory() as work:
        for layout, (command, environment) in make(choice.mmlu, Path(work)).items():
            measured = [
                measure([sys.executable, *command], environment) for _ in range(choice.repeats)
            ]
            fastest = min(measured, key=lambda each: each.seconds)
            kept.append({"layout": layout} | asdict(fastest) | {"machine": machine()})
            print(json.dumps(kept[-1]), flush=True)
    if choice.results is not None:
        choice.results.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
