"""The verdict of a comparison comes first, in one sentence."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from choicewise import evaluate
from choicewise.models.fake import HashModel
from choicewise.report.comparison import comparison_sentence
from choicewise.results.compare import Comparison
from tests.helpers.commands import choicewise
from tests.helpers.mmlu_data import write_mmlu


def compared(
    verdict: str, value: float, p: float = 1.0, n: int = 322, same_model: bool = False, same_tokens: bool = False
) -> Comparison:
    parts: dict[str, Any] = {"difference": SimpleNamespace(value=value, n=n), "test": SimpleNamespace(p=p)}
    parts["left"] = SimpleNamespace(share=True)
    parts["agree"] = SimpleNamespace(r=same_model, t=same_tokens)
    return cast(Comparison, SimpleNamespace(verdict=verdict, **parts))


@pytest.mark.parametrize(
    ("verdict", "value", "p", "told"),
    [
        ("comparable", 0.1, 0.0041, "A is better than B by 10.0 points on 322 items (p = .004)."),
        ("comparable", -0.1, 0.00001, "B is better than A by 10.0 points on 322 items (p < .001)."),
        ("comparable", -0.01, 0.4709, "B scores 1.0 points more than A on 322 items (p = .471)."),
        ("comparable", 0.1, 1.0, "These items can't tell A and B apart: A scores 10.0 points more than B"),
        ("comparable", 0.0, 1.0, "A and B score the same on 322 items."),
        ("same measurement", 0.0, 1.0, "A and B are the same measurement: A and B score the same on 322 items."),
        ("not comparable", 0.1, 0.001, "which says nothing about the models alone: their protocols differ."),
        ("other inputs", -0.1, 0.001, "which says nothing about the models alone: their prompts differ."),
        ("comparable", float("nan"), 1.0, "A and B can't be compared: no item was scored on both sides."),
    ],
)
def test_the_verdict_in_a_sentence(verdict: str, value: float, p: float, told: str) -> None:
    assert told in comparison_sentence(compared(verdict, value, p))


def test_one_model_is_not_two() -> None:
    told = comparison_sentence(compared("not comparable", 0.1, same_model=True))
    assert told == "A scores 10.0 points more than B on 322 items: the model is the same, their protocols differ."
    told = comparison_sentence(compared("other inputs", 0.0, same_model=True))
    assert told == "A and B score the same on 322 items: the model is the same, their prompts differ."
    told = comparison_sentence(compared("other inputs", 0.0, same_model=True, same_tokens=True))
    assert told == "A and B score the same on 322 items: the model is the same, their right answers differ."


@pytest.mark.costly("runs are evaluated and compared")
def test_means_over_items_are_told_where_the_values_are_others(tmp_path: Path) -> None:
    write_mmlu(tmp_path / "data", ("tides",), 7)
    data = write_mmlu(tmp_path / "data", ("trees",), 40)
    runs = [str(tmp_path / name) for name in "ab"]
    for seed, run in enumerate(runs):
        evaluate(model=HashModel(seed), data=data, protocols=["mmlu/cloze:sum", "mmlu/original"], out=run)
    told = choicewise("compare", *runs, "--protocol", "mmlu/cloze:sum").stdout
    known = choicewise("compare", *runs, "--protocol", "mmlu/cloze:sum", "--json").stdout
    (side,) = json.loads(known)
    left, right = (side[name]["paired"] for name in ("left", "right"))
    assert left != side["left"]["value"]
    values = f"A {100 * left:.1f} %, B {100 * right:.1f} %"
    assert f"compared item by item, as means over the 47 items that both score: {values}" in " ".join(told.split())
    assert "item by item" not in choicewise("compare", *runs, "--protocol", "mmlu/original").stdout
    one = choicewise("compare", runs[0], "--protocol", "mmlu/cloze:sum", "--protocol", "mmlu/original")
    assert "so the difference comes from them alone" in " ".join(one.stdout.split())


def test_one_item_is_one() -> None:
    assert "on 1 item " in comparison_sentence(compared("comparable", 1.0, n=1))


def test_compare_begins_with_it(tmp_path: Path) -> None:
    data = write_mmlu(tmp_path / "data", questions=40)
    for name in ("hash", "oracle"):
        evaluate(model=f"fake:{name}", data=data, protocols=["mmlu/original"], out=tmp_path / name)
    told = choicewise("compare", str(tmp_path / "hash"), str(tmp_path / "oracle")).stdout
    assert told.startswith("B is better than A by ")
    same = choicewise("compare", str(tmp_path / "hash"), str(tmp_path / "hash")).stdout
    assert same.startswith("A and B are the same measurement: A and B score the same on 80 items.")
