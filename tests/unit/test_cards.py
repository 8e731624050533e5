"""Published models: their values stand beside numbers that the catalogue has, and the page says what was measured."""

import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from choicewise.protocols.catalogue import resolve
from tests.helpers.messages import Gist
from tests.paths import ROOT

BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture
def cards(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return the module; its short name must not stay behind."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import cards_page

    yield cards_page
    del sys.modules["cards_page"]


def cell(questions: str, **values: float) -> dict[str, Any]:
    """Return a measured set with an interval of two points on each side of its ``values``."""
    numbers = {}
    for name, value in values.items():
        numbers[name] = {
            "value": value,
            "se": 0.01,
            "low": value - 0.02,
            "high": value + 0.02,
            "n": 1838,
        }
    return {"model": "smollm2", "set": questions, "questions": 1838, "numbers": numbers}


PIQA = cell(
    "piqa",
    **{
        "piqa/harness:acc": 0.643,
        "piqa/harness:acc_norm": 0.65,
        "piqa/olmes-cf:acc_per_char": 0.64,
        "piqa/olmes-mcf": 0.5,
    },
)


def test_every_number_of_the_page_is_one_that_the_runs_have(cards: Any) -> None:
    declared = cards.read_declared()
    numbers = {key: resolve(*one.protocols) for key, one in declared.sets.items()}
    for key, one in declared.sets.items():
        assert set(one.columns) <= set(cards.COLUMNS)
        assert set(one.columns.values()) <= set(numbers[key])
        assert resolve(one.task.protocol)
    assert len(numbers["mmlu"]) == 49
    for published in declared.published:
        assert published.source in declared.sources
        for name in published.numbers:
            assert name in numbers[name.split("/")[0]]


def test_a_published_value_without_its_source_is_refused(cards: Any, tmp_path: Any) -> None:
    text = (BENCHMARKS / "cards.toml").read_text()
    for changed in (
        text.replace('source = "slerp"', 'source = "memory"', 1),
        text.replace("value = 66.92", "value = 0.6692"),
    ):
        file = tmp_path / "cards.toml"
        file.write_text(changed)
        with pytest.raises(ValueError, match=r"cards\.toml"):
            cards.read_declared(file)


def test_a_difference_is_inside_the_interval_explained_or_unexplained(cards: Any) -> None:
    lines = cards.published_table(cards.read_declared(), "smollm2", [PIQA])
    inside, outside = (line for line in lines if line.startswith("| `piqa"))
    assert outside.split(" | ")[1:4] == ["65.0 [63.0 – 67.0]", "66.3 [2]", "-1.3"]
    assert inside.endswith("| inside the 95 % interval |")
    low = cell("piqa", **{"piqa/harness:acc_norm": 0.6})
    apart = cell("hellaswag", **{"hellaswag/harness:acc_norm": 0.3})
    lines = cards.published_table(cards.read_declared(), "smollm2", [low, apart])
    assert sum(line.endswith(f"| {cards.UNEXPLAINED} |") for line in lines) == 2
    assert sum("first 2,000" in line and "do not explain" in line for line in lines) == 1


def test_a_mean_needs_all_its_parts(cards: Any) -> None:
    easy = cell("arc-easy", **{"arc-easy/harness:acc_norm@split=validation": 0.48})
    challenge = cell("arc-challenge", **{"arc-challenge/harness:acc_norm": 0.28})
    (mean,) = (one for one in cards.read_declared().published if len(one.numbers) == 2)
    assert cards.number_of(mean, [easy]) is None
    number = cards.number_of(mean, [easy, challenge])
    assert (number.value, number.low, number.high) == pytest.approx(
        (0.38, 0.36614, 0.39386), abs=1e-5
    )
    (line,) = (
        each
        for each in cards.published_table(cards.read_declared(), "smollm2", [easy])
        if "mean of" in each
    )
    assert line.count("benchmarks/cards.py") == 1
    assert "--set arc-challenge" in line


def test_what_is_not_measured_has_its_command_and_no_number(cards: Any) -> None:
    declared = cards.read_declared()
    lines = cards.cell_table(declared, "smollm2", [PIQA])
    assert "| PIQA, validation | 1,838 | 64.3 | 65.0 | 64.0 | 50.0 |  | 50.0 to 65.0 (4) |" in lines
    (winogrande,) = (line for line in lines if line.startswith("| WinoGrande"))
    assert (
        "not yet measured: `python benchmarks/cards.py --model smollm2 --set winogrande`"
        in winogrande
    )
    assert cards.harness_table(declared, []) == [
        "Not yet measured: `python benchmarks/cards.py --harness`"
    ]
    checked = {"model": "gemma", "set": "piqa", "questions": 200, "largest difference": 1e-4}
    lines = cards.harness_table(
        declared, [checked | {"other decisions": {"acc": 0, "acc_norm": 1}}]
    )
    assert lines[2] == "| Gemma 3 270M | PIQA, validation | 200 | 1.0e-04 | 0 | 1 |"
    assert lines[-1] == Gist("15 more")


def test_the_page_has_what_was_measured(cards: Any) -> None:
    page = (ROOT / "docs" / "real-models.md").read_text()
    found = json.loads((BENCHMARKS / "results" / "cards.json").read_text())
    for name, lines in cards.tables(found).items():
        text = "\n".join(lines)
        assert f"<!-- {name} -->\n\n{text}\n\n<!-- /{name} -->" in page
