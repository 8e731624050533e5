"""Five tasks of the released harness on local rows, and the protocol of ours that asks the same."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from data import SUBJECTS


@dataclass(frozen=True)
class Task:
    """``questions`` (of every subject) of a folder of data under a task file of the harness and under our ``protocol``.

    ``file``: the task's file below ``lm_eval/tasks``, ``{}`` in it being a subject.  ``batch``: sequences in a batch.
    """

    file: str
    protocol: str
    data: str
    split: str
    questions: int
    shots: int
    batch: int

    @property
    def subjects(self) -> tuple[str, ...]:
        """Those that are asked; one without a name where the data have none."""
        return SUBJECTS if "{}" in self.file else ("",)


PROTOCOLS = Path(__file__).parent / "protocols"
TASKS: Mapping[str, Task] = {
    "mmlu": Task("mmlu/default/mmlu_{}.yaml", "mmlu/harness-v0.4", "mmlu", "test", 20, 5, 2),
    "mmlu-continuation": Task(
        "mmlu/continuation/mmlu_{}.yaml",
        str(PROTOCOLS / "mmlu-continuation.toml"),
        "mmlu",
        "test",
        8,
        5,
        2,
    ),
    "hellaswag": Task(
        "hellaswag/hellaswag.yaml", "hellaswag/harness", "hellaswag-raw", "validation", 100, 0, 4
    ),
    "arc-easy": Task(
        "arc/arc_easy.yaml",
        "arc-easy/harness@split=validation",
        "arc-easy",
        "validation",
        300,
        0,
        4,
    ),
    "winogrande": Task(
        "winogrande/default.yaml", "winogrande/harness", "winogrande", "validation", 300, 0, 4
    ),
}


def write_task(task: Task, subject: str, released: Path, data: Path, folder: Path) -> str:
    """Write a task that differs from the released one in where its rows are; its name.

    ``released``: the folder ``lm_eval/tasks``; ``data``: the folders of data; ``folder``: for ``--include_path``.
    """
    name = "-".join(["bench", *Path(task.file.format(subject)).with_suffix("").parts]).replace(
        "_", "-"
    )
    files = {task.split: data / task.data / f"{task.split}.jsonl"}
    if subject:
        files = {
            split: _rows(data / task.data, subject, split, folder) for split in (task.split, "dev")
        }
    # Where a file has a split that the task knows, that is the one it asks.
    told = {
        "include": str(released / task.file.format(subject)),
        "task": name,
        "dataset_path": "json",
        "dataset_name": None,
        "dataset_kwargs": {
            "data_files": {split: str(path.resolve()) for split, path in files.items()}
        },
        "training_split": None,
        "validation_split": "validation" if task.split == "validation" else None,
        "test_split": "test" if task.split == "test" else None,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.yaml").write_text(json.dumps(told, indent=1) + "\n")
    return name


def _rows(folder: Path, subject: str, split: str, to: Path) -> Path:
    """The rows of one subject of MMLU as the Hub has them."""
    path = to / "rows" / f"{subject}-{split}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with (folder / split / f"{subject}_{split}.csv").open(newline="") as file:
        rows = [
            {
                "question": question,
                "subject": subject,
                "choices": choices,
                "answer": "ABCD".index(answer),
            }
            for question, *choices, answer in csv.reader(file)
        ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path
