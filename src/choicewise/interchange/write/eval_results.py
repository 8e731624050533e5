"""Scores for a model's repository on the Hub: ``.eval_results/*.yaml``, a file per score.

The format: https://github.com/huggingface/hub-docs/blob/242f4a1e/eval_results.yaml
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import choicewise
from choicewise.data.benchmark import benchmarks
from choicewise.interchange.write import Export, Writer
from choicewise.interchange.write.file_names import file_name, free_name
from choicewise.interchange.write.run_rows import by_model, last_written, report_rows
from choicewise.records.manifest import DatasetRecord
from choicewise.results.row import Row
from choicewise.results.run import Run

FOLDER = ".eval_results"


@dataclass(frozen=True, slots=True)
class Board:
    """A leaderboard of a dataset on the Hub.

    ``task``: its id in the dataset's ``eval.yaml``; ``subject``: the only subject that it is about, empty for all.
    """

    task: str = "default"
    subject: str = ""


BOARDS: Mapping[str, Board] = {
    "gpqa": Board("diamond", "diamond"),
    "gsm8k": Board("gsm8k"),
    "mmlu-pro": Board("mmlu_pro"),
}
"""Benchmark → its board, where one is known (evaleval/every_eval_ever 0.3.0, tools/hf_community_evals.py)."""


def write(export: Export, folder: Path) -> list[str]:
    """Write ``MODEL/.eval_results/NAME.yaml`` below ``folder``: what is in MODEL goes into the model's repository."""
    notes: list[str] = []
    folders: list[str] = []
    for runs in by_model(export.runs):
        name = free_name(file_name(runs[0].manifest.model.name), folders, runs[0].manifest.model.digest[:6])
        folders.append(name)
        taken: set[str] = set()
        for run in runs:
            notes += _write_run(run, export, folder / name / FOLDER, taken)
            run.release()
    return notes


def _write_run(run: Run, export: Export, folder: Path, taken: set[str]) -> Iterator[str]:
    """Write the scores of a run, and say of each that is left out why."""
    dataset, selection = run.manifest.dataset, run.manifest.selection
    place = _repository(dataset)
    if place is None:
        yield f"{run.folder}: {dataset.name} is on no repository of the Hub that is known, so its scores have no board"
        return
    board = BOARDS.get(dataset.name, Board())
    if selection.limit is not None or (selection.subjects is not None and selection.subjects != (board.subject,)):
        yield f"{run.folder}: it is about a part of {dataset.name} alone, and a board is about all of it"
        return
    if dataset.name not in BOARDS:
        yield f"{run.folder}: whether {place[0]} has a board is not known; compare task_id with its eval.yaml"
    if not dataset.source:
        yield f"{run.folder}: {_unchecked(place[0])}; compare the number of items before it is published"
    rows = _subject_rows(run, board.subject) if board.subject else report_rows(run)
    for row in rows.values():
        if not math.isfinite(row.value):
            yield f"{run.folder}, {row.protocol}: no number to export"
            continue
        name = free_name(
            file_name(f"{dataset.name}_{row.protocol.removeprefix(f'{dataset.name}/')}"), taken, row.id[1:]
        )
        taken.add(name)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.yaml").write_text(_yaml(run, row, place, board, export), encoding="utf-8")


def _repository(dataset: DatasetRecord) -> tuple[str, str] | None:
    """Repository and commit of the data, the commit empty for a local copy of a benchmark; None where not known."""
    if dataset.source:
        repository, _, revision = dataset.source.partition("@")
        return repository.partition(":")[0], revision
    return (benchmarks()[dataset.name].repository, "") if dataset.name in benchmarks() else None


def _subject_rows(run: Run, subject: str) -> dict[str, Row]:
    return {row.protocol: row for row in run.rows("subjects") if row.subject == subject}


def _yaml(run: Run, row: Row, place: tuple[str, str], board: Board, export: Export) -> str:
    """The file: every text in double quotes, as JSON writes it, which is YAML, too."""
    repository, revision = place
    source = {"url": export.url, "org": export.organization} if export.url else {}
    entry = {
        "dataset": {"id": repository, "task_id": board.task, "revision": revision},
        "value": round(100 * row.value, 4) if row.share else row.value,
        "date": last_written([run]).date().isoformat(),
        "source": source,
        "notes": _notes(run, row, repository),
    }
    lines: list[str] = []
    for key, value in entry.items():
        if isinstance(value, dict):
            inner = [f"    {name}: {_scalar(text)}" for name, text in value.items() if text]
            lines += [f"  {key}:", *inner] if inner else []
        else:
            lines.append(f"  {key}: {_scalar(value)}")
    return "\n".join([f"- {lines[0].strip()}", *lines[1:]]) + "\n"


def _unchecked(repository: str) -> str:
    return f"its data are a local copy, which was not compared with {repository}"


def _notes(run: Run, row: Row, repository: str) -> str:
    """How the score was measured, in a line: protocol, ids, unit, interval, what is missing."""
    share = "%" if row.share else ""
    factor = 100 if row.share else 1
    parts = [f"{row.protocol} {row.id} {row.i} {row.t}", f"{row.metric}{' in %' if row.share else ''}"]
    if math.isfinite(row.ci_low) and math.isfinite(row.ci_high):
        parts.append(f"95 % interval {factor * row.ci_low:.2f} to {factor * row.ci_high:.2f}{share}")
    parts.append(f"{row.n} items")
    if row.missing:
        parts.append(f"{row.missing} missing")
    if not run.manifest.complete or run.evidence.damages:
        parts.append("incomplete")
    if not run.manifest.dataset.source:
        parts.append(_unchecked(repository))
    return "; ".join([*parts, f"Choicewise {choicewise.__version__}"])


def _scalar(value: object) -> str:
    """A number, or a text in double quotes with what can't be seen as escapes of YAML."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return "".join(char if char.isprintable() else f"\\U{ord(char):08x}" for char in text)


WRITER = Writer("the Hub's .eval_results: a YAML file per score for the model's repository", write)
