"""Results and samples as LM Evaluation Harness writes them, for everything that reads those (release 0.4.13)."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from choicewise.interchange.answered import answered_items
from choicewise.interchange.write import Export, Writer
from choicewise.interchange.write.file_names import file_name, free_name
from choicewise.interchange.write.harness_model import model_entries, sanitized
from choicewise.interchange.write.harness_results import Results
from choicewise.interchange.write.harness_samples import UNCONDITIONAL, sample_hashes, sample_lines
from choicewise.interchange.write.harness_tasks import PromptTask, prompt_tasks
from choicewise.interchange.write.json_text import json_text
from choicewise.interchange.write.line_files import LineFiles
from choicewise.interchange.write.run_rows import by_model, last_written, report_rows
from choicewise.results.run import Run

INDENTED = 300_000
"""Characters of a results file that is indented, as the harness's own; the library ``datasets``, with which the harness
reads its files on the Hub, reads a longer one only where it is one line."""


def write(export: Export, folder: Path) -> list[str]:
    """Write ``MODEL/results_DATE.json`` and ``MODEL/samples_TASK_DATE.jsonl`` of every model below ``folder``.

    DATE is when the model's latest run was last written to, in UTC, so that the same runs have the same files.
    """
    notes: list[str] = []
    folders: list[str] = []
    for runs in by_model(export.runs):
        name = file_name(sanitized(runs[0].manifest.model.name))
        name = free_name(name, folders, runs[0].manifest.model.digest[:6])
        folders.append(name)
        (folder / name).mkdir()
        notes += _write_model(runs, folder / name)
    return notes


def _write_model(runs: Sequence[Run], folder: Path) -> list[str]:
    when = last_written(runs)
    date = when.replace(tzinfo=None).isoformat(timespec="microseconds").replace(":", "-")
    taken: set[str] = set()
    notes: list[str] = []
    content, hashes = Results(), dict[str, str]()
    protocols = [protocol for run in runs for protocol in run.protocols.values()]
    for run in runs:
        tasks = list(prompt_tasks(run, taken))
        rows = report_rows(run)
        for task in tasks:
            content.add(task, rows)
        hashes |= _write_samples(run, tasks, folder, date)
        notes += [
            f"{run.folder}, {row.protocol}: {row.missing} items are missing and have no line in the samples"
            for row in rows.values()
            if row.missing
        ]
        run.release()
    spent = [run.manifest.engine.spent for run in runs]
    seconds = None if None in spent else str(sum(each.seconds for each in spent if each is not None))
    whole = {
        **content.as_json(),
        **model_entries(runs[0].manifest, protocols),
        "date": when.timestamp(),
        "task_hashes": hashes,
        "total_evaluation_time_seconds": seconds,
    }
    text = json_text(whole, indent=2)
    if len(text) > INDENTED:
        text = json_text(whole)
    (folder / f"results_{date}.json").write_text(text, encoding="utf-8")
    return notes


def _write_samples(run: Run, tasks: Sequence[PromptTask], folder: Path, date: str) -> dict[str, str]:
    """Write the lines of all tasks; what they are hashed to, by task."""
    by_prompt: dict[str, list[PromptTask]] = {}
    for task in tasks:
        by_prompt.setdefault(task.prompt, []).append(task)
    nulls = {prompt: [""] if any(map(_unconditional, own)) else [] for prompt, own in by_prompt.items()}
    digests = {name: hashlib.sha256() for task in tasks for name in task.leaves.values() or [task.name]}
    counts = dict.fromkeys(digests, 0)
    with LineFiles() as files:
        for prompt, item in answered_items(run, nulls):
            for task in by_prompt[prompt]:
                name = task.leaf(item.subject)
                for line in sample_lines(item, counts[name], task.metrics):
                    files.add(folder / f"samples_{name}_{date}.jsonl", json_text(line))
                    digests[name].update(sample_hashes(line).encode())
                counts[name] += 1
    return {name: digest.hexdigest() for name, digest in digests.items()}


def _unconditional(task: PromptTask) -> bool:
    return any(key.startswith(f"{UNCONDITIONAL},") for key in task.metrics)


WRITER = Writer("LM Evaluation Harness: results_DATE.json and samples_TASK_DATE.jsonl, by model", write)
