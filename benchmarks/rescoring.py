"""Time what a new score on an old run costs: 10,000 items, four choices, forty scores, no model."""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from itertools import pairwise, product
from pathlib import Path

import numpy as np

from choicewise.protocols.catalogue import SCORES, read_axes, resolve
from choicewise.protocols.protocol import Protocol, signature
from choicewise.records import (
    BlockRecord,
    DatasetRecord,
    ItemRow,
    Manifest,
    ModelRecord,
    ObservationRow,
    RequestRow,
    Selection,
    SpanRow,
)
from choicewise.results.run import open_run
from choicewise.store.folder import write_manifest
from choicewise.store.tables import write_block, write_items

BLOCK, SUBJECTS = 200, 57
NULLS = (None, "", "Answer:", "Answer: ", ":")


def protocols() -> dict[str, Protocol]:
    """Forty protocols that read the same requests: every score of the catalogue, two tie rules, two aggregations."""
    base = resolve("mmlu/cloze")["mmlu/cloze:sum"]
    return {
        f"{name}/{ties}/{aggregation}": read_axes(
            {**axes, "ties": ties, "aggregation": aggregation}, name, base
        )
        for (name, axes), ties, aggregation in product(
            SCORES.items(), ("first", "split"), ("micro", "macro")
        )
    }


def write_run(folder: Path, items: int, recipes: dict[str, Protocol]) -> None:
    """A run folder of made-up observations: five tokens a choice, after the question and after four null contexts."""
    prompt = next(iter(recipes.values())).prompt_digest
    random = np.random.default_rng(0)
    names = [f"q{number:05d}" for number in range(items)]
    each = -(-items // SUBJECTS)
    files = write_items(
        folder, [_item(number, name, number // each) for number, name in enumerate(names)]
    )
    blocks = []
    asks = (prompt, *(f"{prompt}|{null}" for null in NULLS if null is not None))
    for start in (
        start
        for first in range(0, items, each)
        for start in range(first, min(first + each, items), BLOCK)
    ):
        subject, place = divmod(start, each)
        chosen = names[start : min(start + BLOCK, (subject + 1) * each)]
        spans = [
            _span(prompt, name, choice, null)
            for name in chosen
            for choice in range(4)
            for null in NULLS
        ]
        tables = {
            "requests": [_request(prompt, name, subject) for name in chosen],
            "spans": spans,
            "observations": [_observation(str(span.key), random) for span in spans],
        }
        name = f"{len(blocks):05d}"
        written = write_block(folder, name, tables)
        blocks.append(
            BlockRecord(
                name=name,
                split="test",
                subject=f"s{subject}",
                start=place,
                stop=place + len(chosen),
                asks=asks,
                files=written,
            )
        )
    manifest = Manifest(
        model=ModelRecord("made-up", "0" * 64, "float32", "cpu", 1),
        dataset=DatasetRecord("made-up", "0" * 64),
        selection=Selection(),
        protocols={name: signature(recipe) for name, recipe in recipes.items()},
        versions={},
        blocks=tuple(blocks),
        complete=True,
        files=files,
    )
    write_manifest(folder, manifest)


def _item(number: int, name: str, subject: int) -> ItemRow:
    return ItemRow(number, "test", name, f"s{subject}", "?", list("abcd"), [number % 4], "{}")


def _request(prompt: str, name: str, subject: int) -> RequestRow:
    number = int(name[1:])
    texts = [f" an answer {choice} of {name}" for choice in range(4)]
    return RequestRow(
        prompt=prompt,
        item=name,
        subject=f"s{subject}",
        context="A question? " * 40,
        continuations=texts,
        gold=[number % 4],
        options=[text[1:] for text in texts],
        shots=None,
        shots_dropped=None,
        tokens_dropped=0,
        missing=None,
    )


def _span(prompt: str, name: str, choice: int, null: str | None) -> SpanRow:
    key = f"{name}{choice}{null}".rjust(32, "0")
    return SpanRow(
        prompt, name, choice, 0, null, continuation=f" an answer {choice} of {name}", key=key
    )


def _observation(key: str, random: np.random.Generator) -> ObservationRow:
    tokens = random.integers(0, 32000, 5).astype(np.int32)
    return ObservationRow(
        key, tokens, [5] * 5, -random.exponential(3, 5).astype(np.float32), tokens
    )


def main() -> None:
    """Print one JSON object: seconds to open and check the folder, for the first score, for a further one, for all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=3)
    choice = parser.parse_args()
    recipes = protocols()
    with tempfile.TemporaryDirectory() as folder:
        write_run(Path(folder), choice.items, recipes)
        for _ in range(choice.repeats):
            print(json.dumps(_timed(Path(folder), recipes)), flush=True)


def _timed(folder: Path, recipes: dict[str, Protocol]) -> dict[str, float]:
    marks = [time.perf_counter()]
    run = open_run(folder)
    _ = run.evidence.damages
    marks.append(time.perf_counter())
    _ = run.under(dict(list(recipes.items())[:1])).measurements
    marks.append(time.perf_counter())
    measurements = run.under(recipes).measurements
    marks.append(time.perf_counter())
    for measured in measurements.values():
        measured.values()
    marks.append(time.perf_counter())
    run.rows()
    marks.append(time.perf_counter())
    names = (
        "open and check",
        "one score",
        f"{len(recipes)} scores",
        "their means",
        "the whole report",
    )
    return {
        name: round(end - start, 3)
        for name, (start, end) in zip(names, pairwise(marks), strict=True)
    }


if __name__ == "__main__":
    main()
