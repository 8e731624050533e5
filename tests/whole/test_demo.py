"""What the demo ends with: who leads, how far its numbers spread, what the order turns on, and one striking change."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from choicewise import bundled
from choicewise.protocols.protocol import axis_differences
from choicewise.report.data import discovery_lines
from choicewise.results.compare import StrikingPair, striking_pair
from choicewise.results.finding import finding
from choicewise.results.outcomes import Axis, ranked
from choicewise.results.run import Run
from choicewise.results.summary import keep_summary
from choicewise.running.evaluate import evaluate
from tests.helpers.commands import choicewise
from tests.helpers.mmlu_data import write_mmlu
from tests.helpers.rows import NAMES, made


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("run")
    data = write_mmlu(folder / "data", questions=12)
    return evaluate(model="fake:hash", data=data, protocols=["mmlu"], out=folder / "run")


def test_the_striking_pair_is_the_one_with_the_greatest_change(run: Run) -> None:
    pair = striking_pair(keep_summary(run).outcomes)
    assert pair is not None
    changes = {}
    for (one, left), (other, right) in combinations(run.measurements.items(), 2):
        axes = [
            axis for axis, *_ in axis_differences(left.protocol, right.protocol) if axis not in ("rev", "benchmark")
        ]
        if len(axes) == 1:
            changes[frozenset((one, other))] = abs(np.nanmean(left.credit) - np.nanmean(right.credit))
    assert pair.start_value - pair.end_value == pytest.approx(max(changes.values()))
    assert changes[frozenset((pair.start, pair.end))] == pytest.approx(max(changes.values()))
    start, end = (run.measurements[name] for name in (pair.start, pair.end))
    assert (pair.lost, pair.gained) == ((start.credit > end.credit).sum(), (start.credit < end.credit).sum())
    place = start.ids.to_pylist().index(pair.example)
    assert (start.credit[place], end.credit[place]) == (1, 0)
    spelled = {axis: (one, other) for axis, one, other in axis_differences(start.protocol, end.protocol)}
    assert spelled[pair.axis.axis] == (pair.axis.left, pair.axis.right)


def test_there_is_no_striking_pair_of_one_protocol(run: Run) -> None:
    assert striking_pair(keep_summary(run.choose(["mmlu/original"])).outcomes) is None


def test_what_was_discovered_in_lines() -> None:
    letters = [name for name in NAMES if made(name).family == "letters"]
    cloze = [name for name in NAMES if made(name).family == "cloze"]
    rows = [made(name, 0.2 + 0.01 * place, "a") for place, name in enumerate(letters)]
    rows += [made(name, 0.9, "a") for name in cloze]
    rows += [made(name, 0.4, "b") for name in (*letters, *cloze)]
    axis = Axis("null", "Answer:", "Answer: ")
    pair = StrikingPair("a", axis, cloze[0], cloze[1], 0.9, 0.5, 100, 3, 43, "q1")
    assert list(discovery_lines(finding(rows), None, pair)) == [
        f"a is the first of 2 models under {len(cloze)} of {len(cloze) + len(letters)} protocols.",
        "It scores between 20.0 % and 90.0 % on the same 100 questions: 70.0 points lie in how it is asked.",
        f"The order of the models changes: it leads under none of the {len(letters)} with letters, all {len(cloze)} "
        "others.",
        'One change, axis null from "Answer:" to "Answer:␠", takes 40.0 points: 43 of 100 answers go wrong and 3 '
        f"right from {cloze[0]} to {cloze[1]}.",
    ]
    assert list(discovery_lines(finding(ranked(rows[:1])), None, None)) == []


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A demo of two fake models and few questions."""
    monkeypatch.setattr(bundled, "MODELS", [Path("fake:hash"), Path("fake:oracle")])
    monkeypatch.setattr(bundled, "BENCHMARK", write_mmlu(tmp_path / "data"))
    return tmp_path / "demo"


def test_the_demo_begins_with_the_finding_and_ends_with_what_was_discovered(small: Path) -> None:
    told = choicewise("demo", "--out", str(small))
    assert told.code == 0, told.stdout
    assert told.stdout.startswith("fake:oracle scores 100.0 % on 12 items")
    assert "range in % within a family" in told.stdout
    assert "published 2023-06-23" in told.stdout
    assert "fake:oracle is the first of 2 models under 49 of 49 protocols." in told.stdout
    assert "mmlu/cloze:sum " not in told.stdout
    whole = choicewise("demo", "--out", str(small), "--all")
    assert "mmlu/cloze:sum " in whole.stdout
    assert "accuracy in % and rank" in whole.stdout


def test_the_demo_names_the_page_that_it_wrote(small: Path) -> None:
    told = choicewise("demo", "--out", str(small))
    page = small / "page.html"
    lines = told.stdout.splitlines()
    assert lines[-1] == f"Look at {page} in a browser: why the numbers differ, and which answers flip."
    assert "fake:oracle is the first of 2 models" in lines[-3]
    assert "fake:oracle" in page.read_text(encoding="utf-8")


def test_a_demo_without_the_extra_says_what_installs_it(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("choicewise.cli.demo.find_spec", lambda name: None)
    told = choicewise("demo", "--out", str(small))
    assert told.code == 0
    last = told.stdout.splitlines()[-1]
    assert "jinja2 and vl_convert must be installed" in last
    assert "`pip install 'choicewise[page]'`, then `choicewise page " in last
    assert not (small / "page.html").exists()
