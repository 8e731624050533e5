"""What real evaluations ask, counted: tokens, shards, bytes, and what preparing them takes without a model.

Needs the real rows and a real tokenizer beside the checkout; HellaSwag lies there in part, and is counted for all.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import process_time

import numpy as np
from data import SHARED
from host import FreeModel
from scheduler import Shard
from workload import Prompter

from choicewise.data.open import open_dataset
from choicewise.engine import cut_shards, shard_tokens
from choicewise.protocols.catalogue import resolve
from choicewise.records import Selection
from choicewise.requests.blocks import (
    cut_blocks,
    list_request_specs,
    list_sections,
    prepare_block,
    with_split,
)
from choicewise.requests.request import BlockPrompt
from choicewise.running.evaluate import evaluate
from choicewise.running.plan import unique_tokens
from choicewise.store.folder import Keys
from choicewise.tokens.tokenizer import Tokenizer

TOKENIZER = "gpt-neox-20b"
ID_BYTES = 4


@dataclass(frozen=True)
class Part:
    """One benchmark of an evaluation: a folder under the data, a selector, and how often the rows there stand for all.

    ``repeat`` is above 1 where a part of the rows is here: blocks are counted so many times.
    """

    folder: str
    protocol: str
    repeat: int = 1


EVALUATIONS = {
    "mmlu/harness-v0.4": (Part("mmlu", "mmlu/harness-v0.4"),),
    "mmlu": (Part("mmlu", "mmlu"),),
    "leaderboard/2023-06": (
        Part("arc-challenge", "arc-challenge/harness-v1:acc_norm"),
        Part("hellaswag", "hellaswag/harness-v1:acc_norm", 10),
        Part("mmlu", "mmlu/harness-v0:char_mean_bare"),
        Part("truthfulqa", "truthfulqa/harness-v1:mc2"),
    ),
}


@dataclass(frozen=True)
class Count:
    """One part: ``asked`` and ``unique`` tokens, ``blocks`` of shards as [tokens, shared], by the CPU's size of shards
    or another device's.

    ``sent``: bytes of token ids in the questions, every context once a shard.  ``stored``: bytes of the run folder.
    ``driver``: CPU seconds of rendering, tokenizing and writing, without a model.  ``path``: tokens of the deepest
    question.
    """

    part: str
    protocol: str
    protocols: int
    items: int
    asked: int
    unique: int
    path: int
    sent: int
    stored: int
    driver: float
    repeat: int
    blocks: dict[str, list[list[tuple[int, int]]]]


def real(work: Path, shared: Path = SHARED) -> Path:
    """A folder of data for every part, made from the rows in ``shared``; FileNotFoundError where they are not there."""
    rows, data = shared / "hf_rows", work / "whole"
    if not (shared / "mmlu" / "test").is_dir() or not rows.is_dir():
        raise FileNotFoundError(
            f"{shared} has no mmlu and hf_rows, so there is nothing real to count"
        )
    shutil.rmtree(data, ignore_errors=True)
    for split in ("dev", "val", "test"):
        shutil.copytree(shared / "mmlu" / split, data / "mmlu" / split)
    lines = (rows / "hellaswag.validation.first2000.jsonl").read_text().splitlines(keepends=True)
    _write(data / "hellaswag", validation=lines[:1000], train=lines[1000:])
    tests, shots = (
        (rows / f"arc_challenge.{name}.jsonl").read_text()
        for name in ("test.original", "validation")
    )
    _write(data / "arc-challenge", test=[_flat(line) for line in tests.splitlines()], train=[shots])
    _write(data / "truthfulqa", validation=[(rows / "truthfulqa.en.jsonl").read_text()])
    return data


def _write(folder: Path, **splits: Sequence[str]) -> None:
    folder.mkdir(parents=True)
    for split, lines in splits.items():
        (folder / f"{split}.jsonl").write_text("".join(lines))


def _flat(line: str) -> str:
    """A row of ARC's own file in the Hub's layout, as those of the other split."""
    row = json.loads(line)
    choices = row["question"]["choices"]
    own = {name: [choice[name] for choice in choices] for name in ("text", "label")}
    flat = {
        "id": row["id"],
        "question": row["question"]["stem"],
        "choices": own,
        "answerKey": row["answerKey"],
    }
    return json.dumps(flat) + "\n"


@dataclass
class Cut:
    """The questions of a dataset under a selector in shards; fields as in :class:`Count`."""

    items: int = 0
    path: int = 0
    sent: int = 0
    blocks: dict[str, list[list[tuple[int, int]]]] = field(
        default_factory=lambda: {"cpu": [], "cuda": []}
    )


def cut(
    folder: Path,
    protocol: str,
    tokenizer: Tokenizer,
    limit: int | None = None,
    subjects: Sequence[str] | None = None,
) -> Cut:
    """The shards of all questions, or of the first of every subject, or of those that are named."""
    dataset, found, counted = open_dataset(folder), Cut(), Keys()
    recipes = {name: with_split(recipe, dataset) for name, recipe in resolve(protocol).items()}
    specs = list_request_specs(recipes)
    for section in list_sections(dataset, recipes, Selection.of(subjects, limit)):
        found.items += len(section.items)
        for block in cut_blocks(section, 0, len(section.items), specs, dataset, ()):
            prepared = prepare_block(dataset, block, Prompter(tokenizer), True)
            keys = counted.without(list(prepared.wanted))
            counted.add(keys)
            wanted = {key: prepared.wanted[key] for key in keys}
            found.path = max(found.path, prepared.deepest)
            for device, kept in found.blocks.items():
                shards = list(cut_shards(wanted, shard_tokens(device)))
                kept.append(_tokens(shards, wanted, tokenizer))
            found.sent += sum(map(_bytes, shards))
    return found


def count(part: Part, data: Path, tokenizer: Path) -> Count:
    """Count one part: its shards from the questions, its driver's seconds from a whole run of a model that is free."""
    folder, model = data / part.folder, FreeModel(tokenizer)
    found = cut(folder, part.protocol, model.tokenizer)
    with tempfile.TemporaryDirectory() as kept:
        start, out = process_time(), Path(kept) / "run"
        run = evaluate(
            model=model, data=folder, protocols=[part.protocol], skip_bad_items=True, out=out
        )
        driver = process_time() - start - model.seconds
        stored = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
        spent, protocols = run.manifest.engine.spent, len(run.manifest.protocols)
    assert spent is not None
    unique = total(found.blocks["cpu"])
    asked, own = (
        spent.tokens_asked,
        (found.path, found.sent, stored, driver, part.repeat, found.blocks),
    )
    return Count(part.folder, part.protocol, protocols, found.items, asked, unique, *own)


def _tokens(
    shards: Sequence[dict[str, BlockPrompt]],
    wanted: dict[str, BlockPrompt],
    tokenizer: Tokenizer,
) -> list[tuple[int, int]]:
    """Tokens of every shard, and how many of them an earlier one has too; those are told of all but the first alike."""
    tokens = [unique_tokens(list(shard.values()), tokenizer) for shard in shards]
    twice = sum(tokens) - unique_tokens(list(wanted.values()), tokenizer)
    each, more = divmod(twice, max(len(tokens) - 1, 1))
    return [(own, each + (place <= more) if place else 0) for place, own in enumerate(tokens)]


def _bytes(shard: dict[str, BlockPrompt]) -> int:
    """Of the token ids in a shard's questions; contexts that questions have in common are one array."""
    arrays = {}
    for question in shard.values():
        for name in ("context", "continuation"):
            ids = getattr(question, name, None)
            if isinstance(ids, np.ndarray):
                arrays[id(ids)] = len(ids)
    return ID_BYTES * sum(arrays.values())


def total(blocks: Sequence[Sequence[Sequence[int]]]) -> int:
    """The unique tokens of blocks of [tokens, shared]."""
    return sum(tokens - shared for block in blocks for tokens, shared in block)


def shards(blocks: Sequence[Sequence[Sequence[int]]], repeat: int = 1) -> list[list[Shard]]:
    """Blocks of [tokens, shared] as the simulation takes them."""
    return [[Shard(*pair) for pair in block] for block in blocks] * repeat
