"""The compat family against the tools themselves: numbers that tests/goldens/make_compat.py had from them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from choicewise.bundled import MODELS
from choicewise.protocols.catalogue import resolve
from choicewise.results.measurement import Measurement
from choicewise.results.run import Run
from choicewise.running.evaluate import evaluate
from tests.paths import GOLDENS, ROOT

FOLDER = GOLDENS / "compat"
GOLDEN: dict[str, Any] = json.loads((FOLDER / "numbers.json").read_text())
QUESTIONS = [json.loads(line) for line in (FOLDER / "questions.jsonl").read_text(encoding="utf-8").splitlines()]
NAMES = sorted(GOLDEN["numbers"])
BARE = {"question": "{question}", "continuation": "{choice}", "answer": "{choice}"}
SUMS = {
    "compat/lm-eval:acc": ("lm-eval", "sum"),
    "compat/minicons:mean": ("minicons", "mean"),
    "compat/minicons:sum": ("minicons", "sum"),
    "compat/surprisal": ("surprisal", "sum"),
    **{
        f"compat/sglang-select:{name}": ("sglang-select", name)
        for name in (
            "token_length_normalized",
            "token_length_normalized_with_prompt",
            "unconditional_likelihood_normalized",
        )
    },
}
"""Our protocols whose scores are the numbers of a tool, and where the golden has them."""

OFFSETS = "all bytes of a character that the vocabulary lacks have the offsets of its whole word"
ALIKE = "two choices begin alike, and rounding of two passes drops one at once"
DEPARTURES = {
    ("compat/surprisal", "merrow-unigram-1000", "plain-7"): OFFSETS,
    ("compat/surprisal", "merrow-unigram-1000", "merge-8"): OFFSETS,
    (
        "compat/sglang-select:token_length_normalized_with_prompt",
        "merrow-unigram-1000",
        "merge-6",
    ): "the prompt ends with the text of the token that has no number, and select stops",
    (
        "compat/sglang-select:unconditional_likelihood_normalized",
        "merrow-bpe-512",
        "merge-1",
    ): "a prompt of two tokens, the first of which has no number, and select stops",
    (
        "compat/sglang-select:greedy_token_selection",
        "merrow-bpe-512",
        "merge-1",
    ): "a prompt of two tokens, the first of which has no number, and select stops",
    ("compat/sglang-select:greedy_token_selection", "merrow-byte", "merge-8"): ALIKE,
    ("compat/sglang-select:greedy_token_selection", "merrow-unigram-1000", "plain-5"): ALIKE,
}
"""Where the catalogue says that a tool's number is not reproduced, and why."""


@cache
def measured(name: str, folder: Path) -> tuple[Run, dict[str, Measurement]]:
    """Every protocol of the family, and again with the bare question before the bare choice."""
    path = next(path for path in MODELS if path.name == name)
    weights = hashlib.sha256((path / "model.safetensors").read_bytes()).hexdigest()
    assert weights == GOLDEN["weights"][name], (
        f"{name} is not the model that the golden numbers are of; make them again with tests/goldens/make_compat.py"
    )
    family = resolve("compat")
    bare = {f"bare {each}": replace(protocol, **BARE) for each, protocol in family.items()}
    run = evaluate(model=str(path), data=FOLDER / "questions.jsonl", protocols={**family, **bare}, out=folder / name)
    return run, run.measurements


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the runs of this file lie."""
    return tmp_path_factory.mktemp("compat")


def shown(found: dict[str, Measurement], protocol: str) -> list[list[float | None]]:
    """One score per choice of every question, under the prompt that its name asks for; None where missing."""
    rows: dict[str, list[list[float | None]]] = {}
    for name in (protocol, f"bare {protocol}"):
        each = found[name]
        assert each.scores is not None
        parts = np.split(each.scores, each.evidence.item_offsets[1:-1])
        rows[name] = [[None if np.isnan(value) else float(value) for value in part] for part in parts]
    return [
        rows[protocol if question["id"].startswith("plain") else f"bare {protocol}"][index]
        for index, question in enumerate(QUESTIONS)
    ]


@pytest.mark.costly("every golden")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("protocol", SUMS)
def test_a_tools_numbers_come_out(protocol: str, name: str, folder: Path) -> None:
    tool, column = SUMS[protocol]
    ours, theirs = shown(measured(name, folder)[1], protocol), GOLDEN["numbers"][name][tool][column]
    for question, mine, wanted in zip(QUESTIONS, ours, theirs, strict=True):
        same = mine == pytest.approx(wanted, abs=2e-4)
        departs = (protocol, name, question["id"]) in DEPARTURES
        assert same != departs, f"{protocol} on {question['id']}: {mine}, {tool}: {wanted}"


@pytest.mark.parametrize("name", NAMES)
def test_the_harness_credits_and_values_come_out(name: str, folder: Path) -> None:
    golden, found = GOLDEN["numbers"][name]["lm-eval"], measured(name, folder)[1]
    for metric, credits in golden["credits"].items():
        credit = found[f"compat/lm-eval:{metric}"].decisions.credit[: len(credits)]
        assert credit.tolist() == credits, metric
        assert credit.mean() == pytest.approx(golden["values"][metric], abs=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_select_takes_the_same_choice_greedily(name: str, folder: Path) -> None:
    protocol = "compat/sglang-select:greedy_token_selection"
    ours, theirs = shown(measured(name, folder)[1], protocol), GOLDEN["numbers"][name]["sglang-select"]
    for question, mine, wanted in zip(QUESTIONS, ours, theirs["greedy_token_selection"], strict=True):
        same = None in mine if wanted is None else mine[wanted] == 1.0 and 1.0 not in mine[:wanted]
        assert same != ((protocol, name, question["id"]) in DEPARTURES), f"{question['id']}: {mine}, SGLang: {wanted}"


@pytest.mark.parametrize("name", NAMES)
def test_the_family_shares_its_observations(name: str, folder: Path) -> None:
    """Where nothing merges, minicons and the harness score the same tokens, and so does select but for its extras."""
    run = measured(name, folder)[0]
    spans, family = run.tables.spans.to_pylist(), run.protocols
    plain = {question["id"] for question in QUESTIONS if question["id"].startswith("plain")}
    keys = {
        tool: [
            (row["item"], row["choice"], row["key"])
            for row in spans
            if row["prompt"] == family[protocol].prompt_digest and row["null"] is None and row["part"] == 0
            if row["item"] in plain
        ]
        for tool, protocol in (
            ("harness", "compat/lm-eval:acc"),
            ("minicons", "compat/minicons:mean"),
            ("select", "compat/sglang-select:token_length_normalized"),
        )
    }
    assert len(keys["harness"]) == sum(len(question["choices"]) for question in QUESTIONS if question["id"] in plain)
    assert keys["harness"] == keys["minicons"] == keys["select"]


def test_the_golden_holds_what_the_quirks_are_about() -> None:
    """Choices that a tool lost in a merge, and mean and sum that differ."""
    lost = {
        tool: sum(None in row for name in NAMES for row in GOLDEN["numbers"][name][tool][column])
        for tool, column in {"minicons": "sum", "lm-eval": "sum", "sglang-select": "token_length_normalized"}.items()
    }
    assert all(lost.values())
    assert sum(GOLDEN["numbers"][name]["minicons"]["empty"] for name in NAMES) > 0


def test_the_page_shows_what_was_measured() -> None:
    """The tools' numbers of merge-6 in docs/compat.md."""
    page = (ROOT / "docs" / "compat.md").read_text(encoding="utf-8")
    place = next(index for index, question in enumerate(QUESTIONS) if question["id"] == "merge-6")
    numbers = GOLDEN["numbers"]["merrow-bpe-512"]
    for tool, column in (
        ("minicons", "mean"),
        ("lm-eval", "sum"),
        ("surprisal", "sum"),
        ("sglang-select", "token_length_normalized"),
    ):
        ood, hat = numbers[tool][column][place][:2]
        assert f"| {ood:.6f} | {ood:.4f} | {hat:.6f} | " in page
    assert f"but for {('four', 'five', 'six', 'seven')[len(DEPARTURES) - 4]} named departures" in page
    assert f"{len(QUESTIONS)} questions, nine of them" in page
