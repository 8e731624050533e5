"""Sampled chains of thought: ours against ``generate`` of transformers in batches, in one process, in turn.

python benchmarks/chains.py [--model bundled:merrow-bpe-2048 ...] [--items 8] [--chains 5] [--tokens 128 ...]

Both draw from the same model after the same prompts, as many tokens for every chain as its limit has, none of which
ends one; the greedy tokens of both are compared first.  Chains have 32, 128 or 512 tokens, or uneven lengths: those of
a prompt then have 32, 64, 128, 256 and 512.  ``generate`` goes on with a batch until its longest chain ends.  Ours
computes what prompts share once, and a prompt once for all its chains, and gives every token's log-probability and
rank besides; transformers pads the prompts of a batch on the left, in each of several batch sizes, of which the
fastest counts.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from compare import HERE, spread
from data import SHARED, prepare
from llama import SHAPES, folder
from machine import machine

from choicewise.data.open import open_dataset
from choicewise.models.load import load_model
from choicewise.models.local.causal_lm import CausalLM, ComputePath
from choicewise.models.local.folder_model import FolderModel
from choicewise.models.local.local_model import LocalModel
from choicewise.models.local.paths import compute_path, rungs
from choicewise.models.local.selfcheck import check
from choicewise.protocols.between import change_axes
from choicewise.protocols.catalogue import resolve
from choicewise.questions import Generation
from choicewise.requests.prompters import add_prompts
from choicewise.requests.render import TemplateSource
from choicewise.requests.request import PreparedBlock, Request

CLOCKS = ("wall", "cpu")
PROTOCOL = "options/chain-of-thought:marginal"
UNEVEN = (32, 64, 128, 256, 512)
LENGTHS: Mapping[str, Sequence[int]] = {"32": (32,), "128": (128,), "512": (512,), "uneven": UNEVEN}
"""Tokens of the chains of a prompt, in turn."""


def chains(
    model: LocalModel, items: int, shots: int, count: int, limits: Sequence[int]
) -> list[Generation]:
    """The chains of the first items of a bundled subject, which end at their limit alone."""
    data = open_dataset("bundled:merrowick")
    axes = f"chains={count},new_tokens={max(limits)},split=test,shots={shots}"
    axes += ",shot_split=dev,sampler=first" if shots else ""
    (protocol,) = change_axes(resolve(PROTOCOL), axes).values()
    block, subject = PreparedBlock(), data.choose("test", None)[0]
    asked = TemplateSource(protocol, data).requests(subject, data.rows("test", subject)[:items])
    add_prompts(block, protocol, [each for each in asked if isinstance(each, Request)], model)
    found = [each for each in block.wanted.values() if isinstance(each, Generation)]
    if len(found) != items * count:
        raise RuntimeError(
            f"{len(found)} chains are asked, not {items} times {count}; take fewer --items or --shots"
        )
    return [
        replace(chain, limit=limits[number % count % len(limits)], stops=(), marks={})
        for number, chain in enumerate(found)
    ]


def ours(path: ComputePath, asked: Sequence[Generation], table: Sequence[bytes]) -> list[list[int]]:
    """The tokens of each generation."""
    return [
        scores.tokens.tolist()
        for _, scores in sorted(path.generate(asked, (), table), key=lambda each: each[0])
    ]


@torch.inference_mode()
def theirs(model: Any, asked: Sequence[Generation], count: int, batch: int) -> list[list[int]]:
    """Likewise by ``generate``, ``batch`` rows at a time, ``count`` of each prompt, prompts of about one length."""
    prompts = [each.context for each in asked[::count]]
    order = sorted(range(len(prompts)), key=lambda place: len(prompts[place]))
    sampled = asked[0].sampling is not None
    how: dict[str, Any] = {
        "do_sample": sampled,
        "num_return_sequences": count,
        "max_new_tokens": max(chain.limit for chain in asked),
    }
    how |= {"temperature": 1.0, "top_k": 0, "top_p": 1.0} if sampled else {}
    how |= {"pad_token_id": 0, "eos_token_id": None, "use_cache": True}
    found: list[list[list[int]]] = [[] for _ in prompts]
    step = max(1, batch // count)
    for part in (order[first : first + step] for first in range(0, len(order), step)):
        width = max(len(prompts[place]) for place in part)
        inputs, mask = np.zeros((2, len(part), width), dtype=np.int64)
        for row, place in enumerate(part):
            inputs[row, width - len(prompts[place]) :], mask[row, width - len(prompts[place]) :] = (
                prompts[place],
                1,
            )
        given = {"input_ids": torch.from_numpy(inputs), "attention_mask": torch.from_numpy(mask)}
        rows = model.generate(**given, **how)[:, width:].tolist()
        for row, place in enumerate(part):
            found[place] = rows[row * count : (row + 1) * count]
    drawn = [row for rows in found for row in rows]
    return [row[: chain.limit] for row, chain in zip(drawn, asked, strict=True)]


def measure(
    model: LocalModel, name: str, shots: int, length: str, choice: argparse.Namespace
) -> dict[str, Any]:
    """Tokens a second of both, in turn."""
    asked = chains(model, choice.items, shots, choice.chains, LENGTHS[length])
    lm, table = CausalLM(model.model, model.window, model.vocabulary), model.tokenizer.token_bytes
    model.model.generation_config.eos_token_id = None  # so that nothing ends before its limit
    rung = check(lm, rungs("cpu")).rung
    greedy = [replace(each, sampling=None) for each in asked[:: choice.chains]]
    both = ours(compute_path(rung, lm), greedy, table), theirs(model.model, greedy, 1, 8)
    if both[0] != both[1]:
        raise RuntimeError(f"{name}: the greedy tokens of ours and transformers differ")
    programs = {"ours": lambda: ours(compute_path(rung, lm), asked, table)}
    programs |= {
        f"generate, {batch} rows": (
            lambda batch=batch: theirs(model.model, asked, choice.chains, batch)
        )
        for batch in choice.batch
    }
    few = asked[: choice.chains]
    programs["ours, one at a time"] = lambda: ours(compute_path("prefix", lm), few, table)
    turns: list[dict[str, dict[str, float]]] = []
    for _ in range(choice.repeats):
        turn = {}
        for program, run in programs.items():
            start, cpu = time.perf_counter(), time.process_time()
            drawn = run()
            turn[program] = {"wall": time.perf_counter() - start, "cpu": time.process_time() - cpu}
            turn[program]["tokens"] = sum(map(len, drawn))
            for tokens, chain in zip(drawn, asked, strict=False):
                if len(tokens) != chain.limit:
                    raise RuntimeError(
                        f"{program} drew a chain of {len(tokens)} tokens, not {chain.limit}"
                    )
        turns.append(turn)
    prompt = [len(each.context) for each in asked[:: choice.chains]]
    return {
        "model": name,
        "rung": rung,
        "shots": shots,
        "items": choice.items,
        "chains": choice.chains,
        "tokens": length,
        "prompt tokens": sum(prompt) / len(prompt),
        "tokens a second": {
            program: spread([turn[program]["tokens"] / turn[program]["cpu"] for turn in turns])
            for program in programs
        },
        **{
            f"generate / ours, {clock}": spread(
                [fastest(turn, clock) / turn["ours"][clock] for turn in turns]
            )
            for clock in CLOCKS
        },
        "turns": turns,
        "machine": machine(threads=choice.threads),
    }


def fastest(turn: Mapping[str, Mapping[str, float]], clock: str) -> float:
    """Seconds of ``generate`` in its best batch size."""
    return min(
        seconds[clock] for program, seconds in turn.items() if program.startswith("generate")
    )


def main() -> None:
    """Print one line of JSON a case and keep them with the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--model",
        action="append",
        help=f"repeatable: a bundled model, a folder, or {', '.join(SHAPES)}",
    )
    parser.add_argument("--shots", action="append", type=int, help="repeatable; 0 and 5")
    parser.add_argument("--items", type=int, default=8)
    parser.add_argument("--chains", type=int, default=5)
    parser.add_argument("--tokens", action="append", choices=list(LENGTHS), help="repeatable; all")
    parser.add_argument(
        "--batch", type=int, nargs="+", default=[20, 80], help="rows at once of generate; 20 and 80"
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--threads", type=int, default=1, help="1: with more, a busy machine shows waiting alone"
    )
    parser.add_argument("--work", type=Path, default=HERE / ".work", help="where models are made")
    parser.add_argument("--shared", type=Path, default=SHARED, help="real tokenizers, else made up")
    parser.add_argument("--results", type=Path, default=HERE / "results" / "chains.json")
    choice = parser.parse_args()
    torch.set_num_threads(choice.threads)
    found = []
    for name in choice.model or ["bundled:merrow-bpe-2048"]:
        where = (
            str(folder(name, prepare(choice.work, choice.shared)[1], choice.work))
            if name in SHAPES
            else name
        )
        loaded = load_model(where, device="cpu")
        assert isinstance(loaded, FolderModel)
        assert isinstance(loaded.local, LocalModel)
        for shots in choice.shots or (0, 5):
            for length in choice.tokens or LENGTHS:
                found.append(measure(loaded.local, name, shots, length, choice))
                print(json.dumps(found[-1]), flush=True)
    choice.results.parent.mkdir(parents=True, exist_ok=True)
    choice.results.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
