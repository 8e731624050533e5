"""What the demo and its models show: who leads, how far numbers spread, what an order turns on, one striking change."""

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from choicewise import bundled
from choicewise.page.sections import orders
from choicewise.page.study import make_study
from choicewise.protocols.protocol import axis_differences
from choicewise.report.data import discovery_lines
from choicewise.report.findings import reversal_sentence
from choicewise.results.compare import StrikingPair, striking_pair
from choicewise.results.finding import finding, guess, reversal
from choicewise.results.outcomes import Axis, ranked
from choicewise.results.summary import keep_summary
from choicewise.running.evaluate import evaluate
from tests.helpers.commands import choicewise
from tests.helpers.mmlu_data import write_mmlu
from tests.helpers.rows import NAMES, made


def test_the_striking_pair_is_the_one_with_the_greatest_change(tmp_path: Path) -> None:
    data = write_mmlu(tmp_path / "data", questions=12)
    run = evaluate(model="fake:hash", data=data, protocols=["mmlu"], out=tmp_path / "run")
    pair = striking_pair(keep_summary(run).outcomes)
    changes = {}
    for (one, left), (other, right) in combinations(run.measurements.items(), 2):
        axes = {axis for axis, *_ in axis_differences(left.protocol, right.protocol)} - {"rev", "benchmark"}
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
    assert striking_pair(keep_summary(run.choose(["mmlu/original"])).outcomes) is None


def test_what_was_discovered_in_lines() -> None:
    letters, cloze = ([name for name in NAMES if made(name).family == family] for family in ("letters", "cloze"))
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


def test_the_demo_begins_with_the_finding_and_ends_with_what_was_discovered_and_the_page(small: Path) -> None:
    told, page = choicewise("demo", "--out", small, "--all", code=0).stdout, small / "page.html"
    assert told.startswith("fake:oracle scores 100.0 % on 12 items")
    assert "range in % within a family" in told
    assert "published 2023-06-23" in told
    assert told.splitlines()[-3] == "fake:oracle is the first of 2 models under 49 of 49 protocols."
    assert told.endswith(f"\nLook at {page} in a browser: why the numbers differ, and which answers flip.\n")
    assert "fake:oracle" in page.read_text(encoding="utf-8")
    assert "mmlu/cloze:sum " in told
    assert "accuracy in % and rank" in told


def test_a_demo_without_the_extra_says_what_installs_it(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("choicewise.cli.demo.find_spec", lambda name: None)
    last = choicewise("demo", "--out", small, code=0).stdout.splitlines()[-1]
    assert "jinja2 and vl_convert must be installed" in last
    assert "`pip install --constraint constraints.txt '.[page]'`, then `choicewise page " in last
    assert not (small / "page.html").exists()


LETTERS, CLOZE = PROTOCOLS = ["mmlu/original", "mmlu/cloze:sum"]


def test_models_that_know_letters_and_one_that_knows_answers_alone_change_places(tmp_path: Path) -> None:
    names, asked = [folder.name for folder in bundled.MODELS], {"data": "bundled:merrowick", "protocols": PROTOCOLS}
    runs = (evaluate(model=f"bundled:{name}", **asked, out=tmp_path / name) for name in names)
    summaries = [keep_summary(run) for run in runs]
    rows = {(row.model, row.protocol): row for each in summaries for row in each.rows}
    assert sum(rows[name, LETTERS].value > 0.6 for name in names) >= 2
    assert [name for name in names if rows[name, CLOZE].value > 0.8 and guess(rows[name, LETTERS])]
    turned = reversal(summaries)
    assert {turned.start.protocol, turned.end.protocol} == {LETTERS, CLOZE}
    assert max(turned.start.p, turned.end.p) < 0.001
    (order,) = orders(make_study(summaries), [])
    assert order.reversal == reversal_sentence(turned)
