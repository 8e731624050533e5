"""One task in three ways, in turn: the harness with its own backend, the harness with ours, and our own command.

python benchmarks/side_by_side.py [--task mmlu ...] [--model 25m] [--repeats 2] [--threads 2]

Each is a whole command from process start to results, on the rows of a released task; every log-likelihood is compared.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from compare import HERE, OURS, spread
from data import SHARED, prepare
from llama import SHAPES, folder
from machine import machine
from process import Measured, measure
from tasks import TASKS, Task, write_task
from workload import requests

from choicewise.data.open import open_dataset
from choicewise.protocols.catalogue import resolve
from choicewise.results.run import open_run

TOLERANCE = 1e-3
"""The most (nats) that a log-likelihood may differ; float32 in batches of other shapes makes 1e-4."""
COMMANDS = {"hf": ["-m", "lm_eval"], "choicewise": [*OURS[:-1], "lm-eval"]}
"""What the interpreter is given, by the harness's name of the model."""
Key = tuple[str, int, int]
"""Subject, question and choice."""
Sums = Mapping[Key, float]
"""Log-likelihoods (nats)."""


@dataclass(frozen=True)
class Case:
    """A task for a model; ``peers`` and ``ours`` are the interpreters of the two environments."""

    name: str
    task: Task
    model: Path
    data: Path
    work: Path
    threads: Mapping[str, str]
    peers: Path
    ours: Path


@dataclass(frozen=True)
class Done:
    """What one program computed.

    ``inner``: seconds without the imports, where the program says so.  ``lengths``: characters of the choices as the
    harness divides by them; of ours none.
    """

    sums: Sums
    process: Measured
    inner: float
    lengths: Mapping[Key, int] = field(default_factory=dict)


def ask_harness(case: Case, model: str) -> Done:
    """The harness's whole command, with its own model ``hf`` or with ``choicewise``."""
    out, tasks = case.work / "harness", case.work / "tasks"
    for made in (out, tasks):
        shutil.rmtree(made, ignore_errors=True)
    found = "from importlib.util import find_spec; print(find_spec('lm_eval').submodule_search_locations[0])"
    told = subprocess.run([case.peers, "-c", found], check=True, capture_output=True, text=True)
    released = Path(told.stdout.strip()) / "tasks"
    names = {
        write_task(case.task, each, released, case.data, tasks): each for each in case.task.subjects
    }
    asked = [
        "--model",
        model,
        "--model_args",
        f"pretrained={case.model},dtype=float32",
        "--device",
        "cpu",
    ]
    shape = ["--num_fewshot", str(case.task.shots), "--limit", str(case.task.questions)]
    where = [
        "--tasks",
        ",".join(names),
        "--include_path",
        tasks,
        "--output_path",
        out,
        "--log_samples",
    ]
    batch = ["--batch_size", str(case.task.batch)]
    process = measure(
        [case.peers, *COMMANDS[model], "run", *asked, *shape, *where, *batch], case.threads
    )
    sums = {}
    lengths = {}
    for name, subject in names.items():
        (file,) = out.rglob(f"samples_{name}_*.jsonl")
        for line in file.read_text().splitlines():
            row = json.loads(line)
            for choice, ((value, _),) in enumerate(row["resps"]):
                key = (subject, row["doc_id"], choice)
                sums[key] = float(value)
                lengths[key] = (
                    len(row["arguments"][f"gen_args_{choice}"]["arg_1"]) - 1
                )  # without the space before it
    (results,) = out.rglob("results_*.json")
    inner = float(json.loads(results.read_text())["total_evaluation_time_seconds"])
    return Done(sums, process, inner, lengths)


def ask_ours(case: Case) -> Done:
    """Our whole command on the same rows."""
    out, data = case.work / "run", case.data / case.task.data
    shutil.rmtree(out, ignore_errors=True)
    asked = [
        "--model",
        case.model,
        "--data",
        data,
        "--protocol",
        case.task.protocol,
        "--dtype",
        "float32",
    ]
    shape = ["--limit", str(case.task.questions), "--device", "cpu", "--out", out]
    process = measure([case.ours, *OURS, *asked, *shape], case.threads)
    run, (recipe, *_), dataset = (
        open_run(out),
        resolve(case.task.protocol).values(),
        open_dataset(data),
    )
    found = {}
    for subject in dataset.choose(recipe.split, None):
        for number, request in zip(
            range(case.task.questions), requests(recipe, dataset, subject), strict=False
        ):
            found[request.item.id] = (subject if case.task.subjects[0] else "", number)
    rows = run.observations().select(["item", "choice", "logprobs"]).to_pylist()
    sums = {(*found[row["item"]], row["choice"]): float(sum(row["logprobs"])) for row in rows}
    spent = run.manifest.engine.spent
    assert spent is not None
    return Done(sums, process, spent.seconds)


PROGRAMS: Mapping[str, Callable[[Case], Done]] = {
    "hf": lambda case: ask_harness(case, "hf"),
    "in harness": lambda case: ask_harness(case, "choicewise"),
    "own": ask_ours,
}
RATIOS = ("wall", "cpu")


def compare(case: Case, repeats: int) -> dict[str, Any]:
    """``repeats`` turns of the three programs; RuntimeError where their numbers differ."""
    turns, apart = [], {}
    for turn in range(repeats):
        done = {name: ask(case) for name, ask in PROGRAMS.items()}
        apart = {
            name: differences(done["hf"].sums, each.sums)
            for name, each in done.items()
            if name != "hf"
        }
        for name, (largest, flips) in apart.items():
            if largest > TOLERANCE or flips:
                raise RuntimeError(
                    f"{case.name}: {name} differs from hf by {largest:.2g} nats, {flips} other answers"
                )
        turns.append({name: seconds(each) for name, each in done.items()})
        print(f"  turn {turn + 1}: {json.dumps(turns[-1])}", file=sys.stderr, flush=True)
    return {
        "task": case.name,
        "file": case.task.file,
        "protocol": Path(case.task.protocol).stem
        if case.task.protocol.endswith(".toml")
        else case.task.protocol,
        "model": case.model.name,
        "questions": case.task.questions * len(case.task.subjects),
        "shots": case.task.shots,
        "batch": case.task.batch,
        "requests": len(done["hf"].sums),
        "largest difference": {name: largest for name, (largest, _) in apart.items()},
        "turns": turns,
        **{
            f"{name}, {clock}": spread([turn["hf"][clock] / turn[name][clock] for turn in turns])
            for name in apart
            for clock in RATIOS
        },
    }


def seconds(done: Done) -> dict[str, float]:
    """Wall and CPU seconds, those without imports, peak memory in GB."""
    process = done.process
    return {"wall": process.seconds, "cpu": process.cpu, "inner": done.inner, "GB": process.peak}


def differences(left: Sums, right: Sums) -> tuple[float, int]:
    """The largest difference (nats), and how many questions have another likeliest choice."""
    if left.keys() != right.keys():
        raise RuntimeError(
            f"{len(left.keys() ^ right.keys())} choices of {len(left)} were asked by one program alone"
        )
    answers: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for (subject, question, choice), value in sorted(left.items()):
        answers.setdefault((subject, question), []).append(
            (value, right[subject, question, choice])
        )
    flips = sum(
        np.argmax([a for a, _ in both]) != np.argmax([b for _, b in both])
        for both in answers.values()
    )
    return max(abs(value - right[key]) for key, value in left.items()), int(flips)


def keep(path: Path, found: Mapping[str, Any]) -> None:
    """Add one task to a file of results, in place of an earlier one with the same model."""
    before = json.loads(path.read_text()) if path.is_file() else []
    kept = [one for one in before if any(one[name] != found[name] for name in ("task", "model"))]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([*kept, found], indent=1) + "\n")


def line(found: Mapping[str, Any]) -> str:
    """One task in a line."""
    ratios = (
        f"{name} {found[f'{name}, wall']['median']:.1f} times as fast ({found[f'{name}, wall']['low']:.1f} to "
        f"{found[f'{name}, wall']['high']:.1f}), {found['largest difference'][name]:.1e} nats"
        for name in found["largest difference"]
    )
    return f"{found['task']}, {found['model']}: {'; '.join(ratios)}"


def main() -> None:
    """Run the tasks asked for and add them to the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--task", action="append", choices=list(TASKS), help="repeatable; all")
    parser.add_argument(
        "--model", default="25m", help=f"{', '.join(SHAPES)} made from a seed, or a folder; 25m"
    )
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2, help="of every program; 2")
    parser.add_argument("--questions", type=int, help="of every subject; as many as the task says")
    parser.add_argument(
        "--work", type=Path, default=HERE / ".work", help="where models and data are made"
    )
    parser.add_argument("--shared", type=Path, default=SHARED, help="real data, else made up")
    parser.add_argument("--peers", type=Path, default=HERE.parent / ".venv-peers/bin/python")
    parser.add_argument("--ours", type=Path, default=HERE.parent / ".venv-ours/bin/python")
    parser.add_argument("--results", type=Path, default=HERE / "results" / "side_by_side.json")
    choice = parser.parse_args()
    threads = {"OMP_NUM_THREADS": str(choice.threads), "RAYON_NUM_THREADS": str(choice.threads)}
    data, tokenizer = prepare(choice.work, choice.shared)
    model = (
        folder(choice.model, tokenizer, choice.work)
        if choice.model in SHAPES
        else Path(choice.model)
    )
    for name in choice.task or TASKS:
        task = (
            TASKS[name]
            if choice.questions is None
            else replace(TASKS[name], questions=choice.questions)
        )
        print(f"{name}, {model.name}", file=sys.stderr, flush=True)
        case = Case(
            name, task, model.resolve(), data, choice.work, threads, choice.peers, choice.ours
        )
        found = compare(case, choice.repeats)
        found |= {"machine": machine(choice.peers, choice.threads), "real": choice.shared.is_dir()}
        keep(choice.results, found)
        print(line(found), flush=True)


if __name__ == "__main__":
    main()
