"""Tasks of the harness, lighteval and HELM against their own code: what make_harness.py and make_ports.py had of it."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from choicewise.bundled import MODELS
from choicewise.data.benchmarks import benchmark
from choicewise.data.dataset import Dataset
from choicewise.data.open import open_dataset
from choicewise.data.tables import read_tabular
from choicewise.errors import DataError
from choicewise.models.load import load_model
from choicewise.models.model import Model
from choicewise.protocols.catalogue import one
from choicewise.protocols.protocol import Protocol
from choicewise.requests.request import Request
from choicewise.running.evaluate import evaluate
from tests.helpers.protocols import requests
from tests.paths import GOLDENS

FOLDER = GOLDENS / "harness"
FILES = ("today", "v1", "digests", "ports")
GOLDEN: dict[str, Any] = {name: json.loads((FOLDER / f"{name}.json").read_text("utf-8")) for name in FILES}
VARIANTS = {"today": "harness", "v1": "harness-v1"}
CASES = [
    (era, name, int(shots)) for era in VARIANTS for name, each in GOLDEN[era]["benchmarks"].items() for shots in each
]


@cache
def data(name: str) -> Dataset:
    return open_dataset(FOLDER / "rows" / name, columns=benchmark(name).columns)


def protocol(era: str, name: str, shots: int) -> Protocol:
    return replace(one(f"{name}/{VARIANTS[era]}").protocol, shots=shots)


def pairs(request: Request) -> list[list[str]]:
    """Context and continuation of every choice."""
    proposals = request.proposals or ("",) * len(request.continuations)
    return [[request.context() + each, text] for each, text in zip(proposals, request.continuations, strict=True)]


def in_one_order(name: str, sent: Iterable[list[list[str]]]) -> list[list[list[str]]]:
    """BoolQ's answers are no and yes today, and were yes and no; here yes is always first."""
    return [sorted(each, reverse=True) if name == "boolq" else each for each in sent]


@pytest.mark.parametrize(("era", "name", "shots"), CASES)
def test_what_is_sent_equals_what_the_harness_sends(era: str, name: str, shots: int) -> None:
    golden = GOLDEN[era]["benchmarks"][name][str(shots)]["sent"]
    ours = [pairs(request) for request in requests(protocol(era, name, shots), data(name), "")]
    assert ours == in_one_order(name, golden)


def test_a_limit_leaves_the_shots_as_they_are() -> None:
    golden = GOLDEN["today"]["benchmarks"]["hellaswag"]["3"]["sent"]
    ours = list(requests(protocol("today", "hellaswag", 3), data("hellaswag"), "", limit=2))
    assert [pairs(request) for request in ours] == golden[:2]


@pytest.mark.parametrize("name", GOLDEN["digests"])
def test_whole_published_files_are_sent_alike(name: str, shared_data: Path) -> None:
    golden = GOLDEN["digests"][name]
    file = shared_data / "hf_rows" / golden["file"]
    recipe = replace(protocol("today", name, 0), split="test")
    sha, count = hashlib.sha256(), 0
    for request in requests(recipe, read_tabular(name, {"test": [file]}), ""):
        count += 1
        for context, continuation in sorted(pairs(request), key=lambda pair: pair[1]):
            sha.update(f"{context}\0{continuation}\0".encode())
    assert (count, sha.hexdigest()) == (golden["items"], golden["sha256"])


def test_cleaned_rows_of_hellaswag_are_shown_as_they_stand(shared_data: Path) -> None:
    file = shared_data / "hf_rows" / "hellaswag.validation.first2000.jsonl"
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    dataset = read_tabular("hellaswag", {"validation": [file]})
    for request, row in zip(requests(protocol("today", "hellaswag", 0), dataset, ""), rows, strict=True):
        assert pairs(request) == [[row["query"], f" {ending}"] for ending in row["endings"]]


def test_shots_of_race_would_be_the_rows_that_are_tested() -> None:
    with pytest.raises(DataError, match="shots from split 'test', which is also the one tested"):
        next(requests(protocol("today", "race", 1), data("race"), ""))


MODEL = next(path for path in MODELS if path.name == GOLDEN["today"]["model"])


@cache
def model() -> Model:
    return load_model(MODEL)


@pytest.mark.parametrize("name", GOLDEN["today"]["benchmarks"])
def test_every_log_likelihood_comes_out(name: str, tmp_path: Path) -> None:
    """Today's with the BOS that the tokenizer adds, and those of 2023 without."""
    golden = {era: GOLDEN[era] for era in VARIANTS if name in GOLDEN[era]["benchmarks"]}
    weights = hashlib.sha256((MODEL / "model.safetensors").read_bytes()).hexdigest()
    if any(each["weights"] != weights for each in golden.values()):
        pytest.skip("the model has been trained anew; make the numbers again with tests/goldens/make_harness.py")
    cases = {f"{era} {shots}": (era, shots) for era, each in golden.items() for shots in each["benchmarks"][name]}
    recipes = {case: replace(protocol(era, name, int(shots)), score="sum") for case, (era, shots) in cases.items()}
    run = evaluate(model=model(), data=data(name), protocols=recipes, out=tmp_path / "run")
    for case, (era, shots) in cases.items():
        wanted = golden[era]["benchmarks"][name][shots]
        turned = (era, name) == ("today", "boolq")
        rows = [each[::-1] if turned else each for each in wanted["loglikelihoods"]]
        scores = run.measurements[case].scores
        assert scores is not None
        assert np.asarray(scores) == pytest.approx([number for row in rows for number in row], abs=2e-4), case


# What lighteval and HELM make of the same rows

PORTS: dict[str, Any] = GOLDEN["ports"]


def sent(selector: str) -> list[list[Any]]:
    """Context and continuations of every request of an entry without shots."""
    recipe = replace(one(selector).protocol, shots=0)
    return [[each.context(), list(each.continuations)] for each in requests(recipe, data(recipe.benchmark), "")]


@pytest.mark.parametrize("name", PORTS["lighteval"])
def test_lighteval_asks_this(name: str) -> None:
    assert sent(f"{name}/lighteval") == PORTS["lighteval"][name]


@pytest.mark.parametrize("name", PORTS["helm"])
def test_helm_scores_every_choice_after_this(name: str) -> None:
    expected = [[question, [f" {answer}" for answer in answers]] for question, answers in PORTS["helm"][name]]
    assert sent(f"{name}/helm" if name == "hellaswag" else f"{name}/helm-separate") == expected
    assert sent(f"{name}/helm-separate-calibrated") == expected


@pytest.mark.parametrize("name", PORTS["helm-joint"])
def test_helm_lists_options_after_five_shots(name: str) -> None:
    asked = requests(one(f"{name}/helm-joint").protocol, data(name), "")
    assert [request.context() for request in asked] == PORTS["helm-joint"][name]


def test_a_context_that_others_have_cleaned_is_shown_as_it_stands(tmp_path: Path) -> None:
    row = {"ind": 7, "query": "Rowing:  She [sits]   down. she", "endings": ["rows  on. ", "sleeps."], "label": 0}
    (tmp_path / "validation.jsonl").write_text(json.dumps(row))
    (request,) = requests(one("hellaswag/harness").protocol, open_dataset(tmp_path), "")
    assert (request.context(), request.continuations) == (row["query"], (" rows  on. ", " sleeps."))
