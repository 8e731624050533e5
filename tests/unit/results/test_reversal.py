"""Two models change places between two protocols: which, and what is said of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from choicewise.cli.terminal import print_parts
from choicewise.protocols.protocol import METRICS
from choicewise.report.findings import reversal_sentence, reversal_table
from choicewise.results.finding import LEVEL, reversal
from choicewise.results.outcomes import Outcome, Outcomes, ranked
from choicewise.results.rows import Row
from choicewise.scoring.significance import holm
from tests.helpers.rows import NAMES, PROTOCOLS, made

FIRST, SECOND = [name for name in NAMES if METRICS[PROTOCOLS[name].metric].share][:2]


@dataclass
class Measured:
    """A run as it is compared."""

    rows: Sequence[Row]
    outcomes: Outcomes


def measured(model: str, credits: dict[str, Sequence[int]], data: str = "a", texts: str = "#I123456") -> Measured:
    """A run of ``model`` with the credit of every item under each protocol."""
    rows, outcomes = [], []
    for name, own in credits.items():
        items = pa.table({"item": [f"q{place}" for place in range(len(own))], "subject": ["all"] * len(own)})
        codes, none = np.array(own), np.zeros(len(own), dtype=np.int8)
        rows.append(made(name, float(np.mean(own)), model, len(own), i=texts))
        protocol = PROTOCOLS[name]
        outcomes.append(
            Outcome(name, protocol, None, "", items, np.array([0.0, 1.0]), codes, none, protocol.digest)  # type: ignore[arg-type]
        )
    return Measured(rows, Outcomes(model, "isles", data, tuple(outcomes)))


def right(count: int, items: int = 60) -> list[int]:
    """The first ``count`` items right."""
    return [1] * count + [0] * (items - count)


def test_two_models_that_change_places(capsys: pytest.CaptureFixture[str]) -> None:
    one = measured("one", {FIRST: right(55), SECOND: right(20)})
    other = measured("other", {FIRST: right(25), SECOND: right(50)})
    level = measured("level", {FIRST: right(56), SECOND: right(51)})
    found = reversal([one, other, level])
    assert found is not None
    assert (found.left, found.right, found.tests) == ("one", "other", 6)
    assert (found.start.protocol, found.end.protocol) == (FIRST, SECOND)
    assert (found.start.left, found.start.right) == (55 / 60, 25 / 60)
    assert (found.start.test.left_only, found.start.test.right_only) == (30, 0)
    assert reversal_sentence(found) == (
        f"one is better than other under {FIRST}, 91.7 % against 41.7 % (p < .001), and worse under {SECOND}, 33.3 % "
        "against 83.3 % (p < .001): McNemar tests over 60 questions, corrected for all 6 comparisons of two models."
    )
    rows = ranked([row for run in (one, other, level) for row in run.rows])
    print_parts([reversal_table(found, rows)])
    assert [line.split() for line in capsys.readouterr().out.splitlines() if line][-3:] == [
        ["one", "91.7", "(2)", "33.3", "(3)"],
        ["other", "41.7", "(3)", "83.3", "(2)"],
        ["level", "93.3", "(1)", "85.0", "(1)"],
    ]


def test_no_reversal_where_the_order_holds_or_is_noise() -> None:
    high, low = {FIRST: right(55), SECOND: right(50)}, {FIRST: right(25), SECOND: right(20)}
    assert reversal([measured("one", high), measured("other", low)]) is None
    near = {FIRST: right(53), SECOND: right(52)}
    assert reversal([measured("one", high), measured("other", near)]) is None
    assert reversal([]) is None


def test_a_lead_among_guesses_is_none() -> None:
    """A model that names no option is not worse than one that guesses."""
    one = measured("one", {FIRST: right(15), SECOND: right(20)})
    other = measured("other", {FIRST: right(0), SECOND: right(50)})
    assert reversal([one, other]) is None


def test_other_data_and_other_texts_are_not_compared() -> None:
    credits = {FIRST: right(55), SECOND: right(20)}, {FIRST: right(25), SECOND: right(50)}
    assert reversal([measured("one", credits[0]), measured("other", credits[1])]) is not None
    assert reversal([measured("one", credits[0]), measured("other", credits[1], data="b")]) is None
    assert reversal([measured("one", credits[0]), measured("other", credits[1], texts="#I654321")]) is None


CREDITS = st.lists(st.integers(0, 1), min_size=30, max_size=30)


@pytest.mark.costly("runs are evaluated and compared")
@given(st.lists(st.tuples(CREDITS, CREDITS), min_size=2, max_size=4))
def test_a_reversal_is_the_clearest_of_all(credits: list[tuple[list[int], list[int]]]) -> None:
    """Held to scipy's test and to every pair, one by one."""
    runs = [measured(f"m{place}", dict(zip((FIRST, SECOND), own, strict=True))) for place, own in enumerate(credits)]
    tests = []
    for one, other in combinations(range(len(runs)), 2):
        for protocol in (0, 1):
            left, right_ = np.array(credits[one][protocol]), np.array(credits[other][protocol])
            only = int((left > right_).sum()), int((left < right_).sum())
            p = binomtest(only[0], sum(only)).pvalue if sum(only) else 1.0
            low = max(runs[one].rows[protocol].ci_low, runs[other].rows[protocol].ci_low)
            tests.append((one, other, protocol, left.mean() - right_.mean(), p, low > 0.25))
    corrected = holm([p for *_, p, _ in tests])
    clear = {
        (one, other, protocol): difference
        for (one, other, protocol, difference, _, better), p in zip(tests, corrected, strict=True)
        if p <= LEVEL and better
    }
    turned = [
        min(abs(clear[one, other, 0]), abs(clear[one, other, 1]))
        for one, other in combinations(range(len(runs)), 2)
        if clear.get((one, other, 0), 0) * clear.get((one, other, 1), 0) < 0
    ]
    found = reversal(runs)  # type: ignore[arg-type]
    assert (found is None) == (not turned)
    if found is not None:
        assert min(found.start.difference, -found.end.difference) == max(turned)
