"""A peer and ours on the same requests in turn, each as a whole command, in one run."""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from data import SHARED, prepare
from limit import Cost
from llama import SHAPES, folder
from machine import machine
from process import Measured, measure
from workload import WORKLOADS, Pair, Workload, spans, texts

from choicewise.engine import Tree, build
from choicewise.models.local.tokenizer import HfTokenizer
from choicewise.records import Spent
from choicewise.results.run import open_run

HERE = Path(__file__).resolve().parent
TARGETED = ("harness", "25m", "float32")
"""The peer, model and dtype that the workloads' targets are about."""
OURS = ["-c", "from choicewise.cli import main; main()", "run"]


@dataclass(frozen=True)
class Peer:
    """Another program: the script that asks it, the interpreter of its environment, and what it can be asked."""

    name: str
    script: str
    python: Path
    nulls: bool = True


@dataclass(frozen=True)
class Answers:
    """One run of one program: sums of log-probabilities (nats), inputs computed, seconds in the model, the process."""

    sums: np.ndarray
    tokens: int
    inner: float
    process: Measured


@dataclass(frozen=True)
class Case:
    """A workload for a model in a dtype; ``python``: the interpreter that runs ours."""

    name: str
    workload: Workload
    model: Path
    dtype: str
    data: Path
    work: Path
    environment: Mapping[str, str]
    python: Path


def ask_peer(peer: Peer, case: Case, pairs: Sequence[Pair]) -> Answers:
    """The peer's whole command; its requests lie ready as texts."""
    requests, out = case.work / "requests.json", case.work / "peer.json"
    requests.write_text(json.dumps([[context, text] for _, _, context, text in pairs]))
    script = HERE / peer.script
    process = measure(
        [peer.python, script, case.model, case.dtype, str(case.workload.batch), requests, out],
        case.environment,
    )
    found = json.loads(out.read_text())
    return Answers(np.asarray(found["sums"]), found["tokens"], found["seconds"], process)


def ask_ours(case: Case, pairs: Sequence[Pair]) -> Answers:
    """Our whole command, from the user's files to the table, and what it stored, in the order of ``pairs``."""
    out = case.work / "run"
    shutil.rmtree(out, ignore_errors=True)
    protocols = [word for file in case.workload.files for word in ("--protocol", file)]
    asked = ["--model", case.model, "--data", case.data / case.workload.data, *protocols]
    shape = [
        "--limit",
        str(case.workload.questions),
        "--dtype",
        case.dtype,
        "--device",
        "cpu",
        "--out",
        out,
    ]
    process = measure([case.python, *OURS, *asked, *shape], case.environment)
    sums, spent = stored(out, pairs)
    return Answers(sums, spent.tokens_computed, spent.seconds, process)


def stored(out: Path, pairs: Sequence[Pair]) -> tuple[np.ndarray, Spent]:
    """Sums of log-probabilities (nats) in the run folder ``out``, in the order of ``pairs``, and what they cost."""
    run = open_run(out)
    rows = run.observations().select(["prompt", "item", "choice", "null", "logprobs"]).to_pylist()
    sums = {
        ((row["prompt"], row["item"]), row["choice"], row["null"]): sum(row["logprobs"])
        for row in rows
    }
    keys = [(item, choice, None if context else "") for item, choice, context, _ in pairs]
    spent = run.manifest.engine.spent
    assert spent is not None
    return np.asarray([sums[key] for key in keys]), spent


def dense(case: Case) -> tuple[Cost, Cost]:
    """What a token and a row of the head cost at this moment, in a process of their own: wall and CPU seconds."""
    out = case.work / "limit.json"
    measure([case.python, HERE / "limit.py", case.model, case.dtype, out], case.environment)
    found = json.loads(out.read_text())
    return Cost(**found["wall"]), Cost(**found["cpu"])


def flips(pairs: Sequence[Pair], left: np.ndarray, right: np.ndarray) -> int:
    """How many items have another likeliest choice on the left than on the right."""
    chosen: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for (item, _, context, _), a, b in zip(pairs, left, right, strict=True):
        if context:
            chosen.setdefault(item, []).append((a, b))
    return sum(
        int(np.argmax([a for a, _ in both]) != np.argmax([b for _, b in both]))
        for both in chosen.values()
    )


def compare(peer: Peer, case: Case, repeats: int) -> dict[str, Any]:
    """Figures of ``repeats`` turns: theirs, ours, the limit."""
    pairs = texts(case.workload, case.data)
    asked = spans(case.workload, case.data, HfTokenizer(case.model))
    tree = build(asked)
    turns = []
    for turn in range(repeats):
        theirs, ours = ask_peer(peer, case, pairs), ask_ours(case, pairs)
        turns.append(_turn(theirs, ours, tree, dense(case)))
        print(f"  turn {turn + 1}: {json.dumps(turns[-1])}", file=sys.stderr, flush=True)
    return {
        "peer": peer.name,
        "workload": case.name,
        "model": case.model.name,
        "dtype": case.dtype,
        "questions": len({item for (_, item), *_ in pairs}),
        "protocols": len(case.workload.protocols),
        "batch": case.workload.batch,
        "requests": len(pairs),
        "asked": sum(span.inputs for span in asked),
        "unique": len(tree),
        "rows": len(np.unique(tree.rows)),
        "computed": ours.tokens,
        "peer tokens": theirs.tokens,
        "largest difference": float(np.abs(theirs.sums - ours.sums).max()),
        "flips": flips(pairs, theirs.sums, ours.sums),
        "from float32": None
        if case.dtype == "float32"
        else _from_float32(case, pairs, theirs, ours),
        "targets": case.workload.targets
        if (peer.name, case.model.name, case.dtype) == TARGETED
        else None,
        "turns": turns,
        **{name: spread([turn[name] for turn in turns]) for name in RATIOS},
    }


def _from_float32(
    case: Case, pairs: Sequence[Pair], theirs: Answers, ours: Answers
) -> dict[str, dict[str, float]]:
    """How far either program lies from float32: the largest difference (nats), and the items decided otherwise."""
    truth = ask_ours(replace(case, dtype="float32"), pairs).sums
    return {
        name: {
            "difference": float(np.abs(found.sums - truth).max()),
            "flips": flips(pairs, truth, found.sums),
        }
        for name, found in (("peer", theirs), ("ours", ours))
    }


RATIOS = ("wall", "cpu", "inner", "ours / limit", "ours inner / limit", "ours / limit, cpu")


def _turn(theirs: Answers, ours: Answers, tree: Tree, costs: tuple[Cost, Cost]) -> dict[str, float]:
    limit, cpu_limit = (cost.limit(tree) for cost in costs)
    return {
        "peer s": round(theirs.process.seconds, 2),
        "ours s": round(ours.process.seconds, 2),
        "peer inner s": round(theirs.inner, 2),
        "ours inner s": round(ours.inner, 2),
        "limit s": round(limit, 3),
        "peer cpu s": round(theirs.process.cpu, 2),
        "ours cpu s": round(ours.process.cpu, 2),
        "limit cpu s": round(cpu_limit, 3),
        "peer GB": round(theirs.process.peak, 2),
        "ours GB": round(ours.process.peak, 2),
        "wall": theirs.process.seconds / ours.process.seconds,
        "inner": theirs.inner / ours.inner,
        "cpu": theirs.process.cpu / ours.process.cpu,
        "ours / limit": ours.process.seconds / limit,
        "ours / limit, cpu": ours.process.cpu / cpu_limit,
        "ours inner / limit": ours.inner / limit,
    }


def spread(values: Sequence[float]) -> Mapping[str, float]:
    """Median, lowest and highest of what the turns gave."""
    return {"median": statistics.median(values), "low": min(values), "high": max(values)}


def main(peer: Peer, out: str) -> None:
    """Run the cases asked for and add them to the results; each case replaces its earlier figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--workload", action="append", choices=list(WORKLOADS), help="repeatable; all"
    )
    parser.add_argument("--model", action="append", choices=list(SHAPES), help="repeatable; 25m")
    parser.add_argument(
        "--dtype", action="append", choices=["float32", "bfloat16"], help="repeatable; float32"
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, help="of every program; all cores")
    parser.add_argument(
        "--work", type=Path, default=HERE / ".work", help="where models and data are made"
    )
    parser.add_argument("--shared", type=Path, default=SHARED, help="real data, else made up")
    parser.add_argument(
        "--python", type=Path, default=peer.python, help="the interpreter of the peers' environment"
    )
    parser.add_argument(
        "--ours", type=Path, default=HERE.parent / ".venv-ours/bin/python", help="and of our own"
    )
    parser.add_argument("--results", type=Path, default=HERE / "results" / out)
    choice = parser.parse_args()
    peer = Peer(peer.name, peer.script, choice.python, peer.nulls)
    data, tokenizer = prepare(choice.work, choice.shared)
    for shape in choice.model or ["25m"]:
        model = folder(shape, tokenizer, choice.work)
        for dtype in choice.dtype or ["float32"]:
            for name in choice.workload or list(WORKLOADS):
                if WORKLOADS[name].null and not peer.nulls:
                    continue
                print(f"{name}, {shape}, {dtype}", file=sys.stderr, flush=True)
                cache = (
                    choice.work / "cache"
                ).resolve()  # empty, so that in the first turn ours checks the model
                shutil.rmtree(cache, ignore_errors=True)
                environment = {**_threads(choice.threads), "XDG_CACHE_HOME": str(cache)}
                case = Case(
                    name, WORKLOADS[name], model, dtype, data, choice.work, environment, choice.ours
                )
                found = compare(peer, case, choice.repeats) | {
                    "machine": machine(choice.python, choice.threads),
                    "real": _real(choice),
                }
                keep(choice.results, found)
                print(line(found), flush=True)


def _threads(count: int | None) -> dict[str, str]:
    return {} if count is None else {"OMP_NUM_THREADS": str(count), "RAYON_NUM_THREADS": str(count)}


def _real(choice: argparse.Namespace) -> bool:
    return bool(choice.shared.is_dir())


def keep(path: Path, found: Mapping[str, Any]) -> None:
    """Add one case to a file of results, in place of an earlier one of the same name."""
    names = ("peer", "workload", "model", "dtype")
    before = json.loads(path.read_text()) if path.is_file() else []
    kept = [one for one in before if any(one[name] != found[name] for name in names)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([*kept, found], indent=1) + "\n")


def line(found: Mapping[str, Any]) -> str:
    """One case in a line."""
    middle = {name: found[name]["median"] for name in RATIOS}
    return (
        f"{found['workload']:<15} {found['model']} {found['dtype']}: {found['peer']} / ours {middle['wall']:.1f} "
        f"({found['wall']['low']:.1f} to {found['wall']['high']:.1f}), inner {middle['inner']:.1f}, "
        f"CPU {middle['cpu']:.1f}; ours / limit {middle['ours / limit']:.2f}, "
        f"inner {middle['ours inner / limit']:.2f}, "
        f"CPU {middle['ours / limit, cpu']:.2f}; computed / unique {found['computed'] / found['unique']:.3f}; "
        f"largest difference {found['largest difference']:.1e}, {found['flips']} flips"
    )
