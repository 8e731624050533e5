"""Runs for tests of exports."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import choicewise
from choicewise.data.dataset import Dataset
from choicewise.data.items import Item
from choicewise.protocols.catalogue import resolve
from choicewise.results.run import Run

HARNESS = "compat/lm-eval"  # five numbers as the harness computes them, of any data


def quiz(
    items: Sequence[Item], out: Path, model: str = "fake:hash", name: str = "quiz", **axes: Any
) -> Run:
    """A run on ``items`` under the numbers of ``HARNESS``, with other ``axes``; items that don't fit are missing."""
    protocols = {each: replace(recipe, **axes) for each, recipe in resolve(HARNESS).items()}
    data = Dataset(name, {"test": tuple(items)})
    return choicewise.evaluate(
        model=model, data=data, protocols=protocols, out=out, skip_bad_items=True
    )


def questions(count: int, choices: int = 3, **about: Any) -> list[Item]:
    """Questions with as many choices, the right one every time another."""
    words = ("red", "very tall", "salty", "the first of all", "cold")
    return [
        Item(
            f"q{number}", f"What is number {number}?", words[:choices], (number % choices,), **about
        )
        for number in range(count)
    ]


def lines(file: Path) -> list[dict[str, Any]]:
    """The objects of a JSON Lines file; no line is empty, and there is no NaN."""
    text = file.read_text(encoding="utf-8")
    assert text.endswith("\n")
    assert text.count("\n") == len(text.splitlines())
    return [strict(line) for line in text.splitlines()]


def strict(text: str) -> dict[str, Any]:
    """JSON without NaN and infinity."""

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    return dict(json.loads(text, parse_constant=refuse))
