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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
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
    """Return the chains of the first items of a bundled subject, which end at their limit alone."""
    data = open_dataset("bundled:merrowick")
    axes = f"chains={count},new_tokens={max(limits)},split=test,shots={shots}"
    if shots:
        axes += ",shot_split=dev,sampler=first"
    (protocol,) = change_axes(resolve(PROTOCOL), axes).values()
    subject = data.choose("test", None)[0]
    block = PreparedBlock()
    rendered = TemplateSource(protocol, data).requests(subject, data.rows("test", subject)[:items])
    requests = [request for request in rendered if isinstance(request, Request)]
    add_prompts(block, protocol, requests, model)
    generations = [prompt for prompt in block.wanted.values() if isinstance(prompt, Generation)]
    if len(generations) != items * count:
        raise RuntimeError(
            f"there are {len(generations)} chains, not {items} times {count}; "
            "take fewer --items or --shots"
        )
    chosen = []
    for number, chain in enumerate(generations):
        limit = limits[number % count % len(limits)]
        chosen.append(replace(chain, limit=limit, stops=(), marks={}))
    return chosen


def ours(
    path: ComputePath, wanted: Sequence[Generation], table: Sequence[bytes]
) -> list[list[int]]:
    """Return the tokens of the ``wanted`` chains."""
    tokens: list[list[int]] = [[] for _ in wanted]
    for index, scores in path.generate(wanted, (), table):
        tokens[index] = scores.tokens.tolist()
    return tokens


@torch.inference_mode()
def theirs(model: Any, wanted: Sequence[Generation], count: int, batch: int) -> list[list[int]]:
    """Return the tokens of the ``wanted`` chains, drawn by ``generate``.

    It draws ``count`` chains of a prompt, ``batch`` rows at a time, of prompts of like length.
    """
    prompts = [chain.context for chain in wanted[::count]]
    order = sorted(range(len(prompts)), key=lambda index: len(prompts[index]))
    is_sampled = wanted[0].sampling is not None
    settings: dict[str, Any] = {
        "do_sample": is_sampled,
        "num_return_sequences": count,
        "max_new_tokens": max(chain.limit for chain in wanted),
        "pad_token_id": 0,
        "eos_token_id": None,
        "use_cache": True,
    }
    if is_sampled:
        settings |= {"temperature": 1.0, "top_k": 0, "top_p": 1.0}
    rows_of_prompt: list[list[list[int]]] = [[] for _ in prompts]
    step = max(1, batch // count)
    for first in range(0, len(order), step):
        part = order[first : first + step]
        width = max(len(prompts[index]) for index in part)
        inputs = np.zeros((len(part), width), dtype=np.int64)
        mask = np.zeros_like(inputs)
        for row, index in enumerate(part):
            padding = width - len(prompts[index])
            inputs[row, padding:] = prompts[index]
            mask[row, padding:] = 1
        output = model.generate(
            input_ids=torch.from_numpy(inputs), attention_mask=torch.from_numpy(mask), **settings
        )
        rows = output[:, width:].tolist()
        for row, index in enumerate(part):
            rows_of_prompt[index] = rows[row * count : (row + 1) * count]
    drawn = [row for rows in rows_of_prompt for row in rows]
    return [row[: chain.limit] for row, chain in zip(drawn, wanted, strict=True)]


def measure(
    model: LocalModel, name: str, shots: int, length: str, choice: argparse.Namespace
) -> dict[str, Any]:
    """Return the tokens a second of both, drawn in turn."""
    wanted = chains(model, choice.items, shots, choice.chains, LENGTHS[length])
    lm = CausalLM(model.model, model.window, model.vocabulary)
    table = model.tokenizer.token_bytes
    model.model.generation_config.eos_token_id = None  # so that nothing ends before its limit
    rung = check(lm, rungs("cpu")).rung
    # What both draw can be compared only where chance has no part.
    greedy = [replace(chain, sampling=None) for chain in wanted[:: choice.chains]]
    if ours(compute_path(rung, lm), greedy, table) != theirs(model.model, greedy, 1, 8):
        raise RuntimeError(f"{name}: the greedy tokens of ours and transformers differ")
    programs: dict[str, Callable[[], list[list[int]]]] = {
        "ours": partial(_ours_anew, rung, lm, wanted, table)
    }
    for batch in choice.batch:
        programs[f"generate, {batch} rows"] = partial(
            theirs, model.model, wanted, choice.chains, batch
        )
    few = wanted[: choice.chains]
    programs["ours, one at a time"] = partial(_ours_anew, "prefix", lm, few, table)
    turns = []
    for _ in range(choice.repeats):
        turn = {}
        for program, run in programs.items():
            turn[program] = _timed(program, run, wanted)
        turns.append(turn)

    rates = {}
    for program in programs:
        rates[program] = spread([turn[program]["tokens"] / turn[program]["cpu"] for turn in turns])
    ratios = {}
    for clock in CLOCKS:
        ratios[f"generate / ours, {clock}"] = spread(
            [fastest(turn, clock) / turn["ours"][clock] for turn in turns]
        )
    prompt_tokens = [len(chain.context) for chain in wanted[:: choice.chains]]
    return {
        "model": name,
        "rung": rung,
        "shots": shots,
        "items": choice.items,
        "chains": choice.chains,
        "tokens": length,
        "prompt tokens": sum(prompt_tokens) / len(prompt_tokens),
        "tokens a second": rates,
        **ratios,
        "turns": turns,
        "machine": machine(threads=choice.threads),
    }


def _ours_anew(
    rung: str, lm: CausalLM, wanted: Sequence[Generation], table: Sequence[bytes]
) -> list[list[int]]:
    """Draw the ``wanted`` chains by a new path, as a run does."""
    return ours(compute_path(rung, lm), wanted, table)


def _timed(
    program: str, run: Callable[[], list[list[int]]], wanted: Sequence[Generation]
) -> dict[str, float]:
    """Return the seconds of a program and the tokens that it drew; its chains must be whole."""
    start = time.perf_counter()
    cpu = time.process_time()
    drawn = run()
    seconds = {"wall": time.perf_counter() - start, "cpu": time.process_time() - cpu}
    # Some programs draw only the first of the chains.
    for tokens, chain in zip(drawn, wanted, strict=False):
        if len(tokens) != chain.limit:
            raise RuntimeError(f"{program} drew a chain of {len(tokens)} tokens, not {chain.limit}")
    return {**seconds, "tokens": sum(map(len, drawn))}


def fastest(turn: Mapping[str, Mapping[str, float]], clock: str) -> float:
    """Return the seconds of ``generate`` in its best batch size."""
    of_generate = [turn[program] for program in turn if program.startswith("generate")]
    return min(seconds[clock] for seconds in of_generate)


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
    cases = []
    for name in choice.model or ["bundled:merrow-bpe-2048"]:
        source = name
        if name in SHAPES:
            source = str(folder(name, prepare(choice.work, choice.shared)[1], choice.work))
        loaded = load_model(source, device="cpu")
        assert isinstance(loaded, FolderModel)
        assert isinstance(loaded.local, LocalModel)
        for shots in choice.shots or (0, 5):
            for length in choice.tokens or LENGTHS:
                case = measure(loaded.local, name, shots, length, choice)
                print(json.dumps(case), flush=True)
                cases.append(case)
    choice.results.parent.mkdir(parents=True, exist_ok=True)
    choice.results.write_text(json.dumps(cases, indent=1) + "\n")


if __name__ == "__main__":
    main()
