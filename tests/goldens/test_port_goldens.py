"""lighteval's and HELM's readings of twelve benchmarks against their own code (tests/goldens/make_ports.py)."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from choicewise.data.benchmarks import benchmark
from choicewise.data.dataset import Dataset
from choicewise.data.open import open_dataset
from choicewise.protocols.catalogue import one
from choicewise.requests.request import Request
from tests.helpers.protocols import requests
from tests.paths import GOLDENS

FOLDER = GOLDENS / "harness"
GOLDEN: dict[str, Any] = json.loads((FOLDER / "ports.json").read_text(encoding="utf-8"))


def data(name: str) -> Dataset:
    return open_dataset(FOLDER / "rows" / name, columns=benchmark(name).columns)


def sent(selector: str) -> list[Request]:
    """The requests of an entry without shots."""
    recipe = one(selector).protocol
    return list(requests(replace(recipe, shots=0), data(recipe.benchmark), ""))


@pytest.mark.parametrize("name", sorted(GOLDEN["lighteval"]))
def test_lighteval_asks_this(name: str) -> None:
    ours = [[request.context(), list(request.continuations)] for request in sent(f"{name}/lighteval")]
    assert ours == GOLDEN["lighteval"][name]


@pytest.mark.parametrize("name", sorted(GOLDEN["helm"]))
@pytest.mark.parametrize("kind", ["separate", "separate-calibrated"])
def test_helm_scores_every_choice_after_this(name: str, kind: str) -> None:
    entry = f"{name}/helm" if (name, kind) == ("hellaswag", "separate") else f"{name}/helm-{kind}"
    ours = [[request.context(), list(request.continuations)] for request in sent(entry)]
    assert ours == [[question, [f" {answer}" for answer in answers]] for question, answers in GOLDEN["helm"][name]]


@pytest.mark.parametrize("name", sorted(GOLDEN["helm-joint"]))
def test_helm_lists_options_after_five_shots(name: str) -> None:
    recipe = one(f"{name}/helm-joint").protocol
    assert [request.context() for request in requests(recipe, data(name), "")] == GOLDEN["helm-joint"][name]


def test_a_context_that_others_have_cleaned_is_shown_as_it_stands(tmp_path: Path) -> None:
    row = {"ind": 7, "query": "Rowing:  She [sits]   down. she", "endings": ["rows  on. ", "sleeps."], "label": 0}
    (tmp_path / "validation.jsonl").write_text(json.dumps(row))
    (request,) = requests(one("hellaswag/harness").protocol, open_dataset(tmp_path), "")
    assert (request.context(), request.continuations) == (row["query"], (" rows  on. ", " sleeps."))
