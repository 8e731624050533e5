"""What rows say in short, by value and in words; and of two models that change places between two protocols."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import median

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest
from syrupy.assertion import SnapshotAssertion

from choicewise.cli.terminal import print_parts
from choicewise.extensions.demo.tables import reversal_table
from choicewise.protocols.metrics import METRICS
from choicewise.protocols.protocol import signature
from choicewise.report.findings import lead_sentences, reversal_sentence, sentences
from choicewise.results.evidence import MissingReason
from choicewise.results.finding import LEVEL, Finding, Turn, finding, reversal
from choicewise.results.guessing import FEWEST, enough, guess
from choicewise.results.ladder import order_agreement
from choicewise.results.measurement import interval
from choicewise.results.number import Number
from choicewise.results.outcomes import Outcomes, bounded, ranked
from choicewise.scoring.significance import holm
from tests.helpers.messages import Gist
from tests.helpers.outcomes import outcome
from tests.helpers.rows import NAMES, PROTOCOLS, altered, made

LETTERS = [
    "mmlu/original",
    "mmlu/harness-v1",
    "mmlu/harness-v0.4",
    "mmlu/olmes-mcf",
    "mmlu/original-pr13",
]
CLOZE = [name for name in NAMES if name.startswith("mmlu/cloze")]
TEXTS = [name for name in NAMES if name.startswith(("mmlu/cloze", "mmlu/olmes-cf"))][:10]
FIRST, SECOND = [name for name in NAMES if METRICS[PROTOCOLS[name].metric].share][:2]
WINDOW = MissingReason("too long for the window", 17, "q1")
ROUNDED = (0.7 + 0.1) / 2
"""The mean of two subjects of ten items each, 7 and 1 right; 4 and 4 give 0.4."""


def several(values: dict[str, list[float]], names: Sequence[str] = NAMES) -> list[Number]:
    """A row per model and value, under the protocols in their order."""
    return [
        made(names[place], value, model)
        for model, own in values.items()
        for place, value in enumerate(own)
    ]


BY_FAMILY = "a lead that turns on texts or letters, but for one protocol of each"
TURNED = [(name in TEXTS) != (name in (LETTERS[0], TEXTS[0])) for name in (*LETTERS, *TEXTS)]
TWO = {"a": [0.5, 0.6], "b": [0.4, 0.5]}
LACKING = [made(NAMES[0], math.nan if model == "a" else 0.5, model, missing=3) for model in "abc"]
OTHER_DATA = [
    altered(row, dataset="shoals", data="#D654321", value=1 - row.value) for row in several(TWO)
]
SCENARIOS: dict[str, list[Number]] = {
    "one model": several({"model": [0.2, 0.3, 0.9, 0.5]}),
    "one number": [made("mmlu/original", 0.5)],
    "one number without an interval": [
        made("mmlu/original", 0.5, ci_low=math.nan, ci_high=math.nan)
    ],
    "the same under all protocols": several({"model": [0.5] * 3}),
    "values that look alike": [made(NAMES[0], 0.5), made(NAMES[1], 0.50001)],
    "an order that holds": several({"a": [0.5, 0.6, 0.7], "b": [0.4, 0.5, 0.6]}),
    "three models whose order holds": several({"c": [0.3, 0.31], **TWO}),
    "a leader, and others whose order changes": several({"c": [0.45, 0.31], **TWO}),
    BY_FAMILY: several(
        {
            "a": [0.9 if each else 0.24 for each in TURNED],
            "b": [0.5 if each else 0.26 for each in TURNED],
        },
        (*LETTERS, *TEXTS),
    ),
    "a lead that turns on an axis": several(
        {"a": [0.4 if ":pmi-" in name else 0.6 for name in CLOZE], "b": [0.5] * len(CLOZE)}, CLOZE
    ),
    "a lead that turns on nothing": several({"a": [0.4, 0.6, 0.6] * 2, "b": [0.5] * 6}, CLOZE),
    "a lead with a tie": several({"a": [0.5, 0.6, 0.7], "b": [0.5, 0.5, 0.6]}),
    "ties under all protocols": several({"a": [0.5, 0.6], "b": [0.5, 0.6]}),
    "ties under one protocol": several({"a": [0.5], "b": [0.5]}),
    "equal but for rounding": several({"a": [ROUNDED], "b": [0.4]}),
    "nobody ahead of all": several({"a": [0.5, 0.6], "b": [0.5, 0.5], "c": [0.4, 0.6]}),
    "leads equally often": several({"a": [0.5, 0.6], "b": [0.6, 0.5]}),
    "all near chance": several({"a": [0.25, 0.2], "b": [0.3, 0.26]}),
    "one number near chance": [made(value=0.3, n=60)],
    "numbers near their own chances": [
        made(NAMES[0], 0.3, n=60),
        made(NAMES[1], 0.3, n=50, chance=0.3),
    ],
    "a mean over subjects near chance": [made(value=0.3, ci_low=0.24, ci_high=0.36)],
    "one item": [made(NAMES[0], 1.0, n=1), made(NAMES[1], 0.0, n=1)],
    "items missing": [
        made(NAMES[0], n=305, missing=17, missing_reasons=(WINDOW,)),
        made(NAMES[1], n=322),
    ],
    "items missing under two protocols": [
        *(
            made(NAMES[0], n=305, missing=17, missing_reasons=(WINDOW,)),
            made(NAMES[1], n=321, missing=1),
        )
    ],
    "an item missing": [made(NAMES[1], n=321, missing=1)],
    "runs that go on": [
        made(NAMES[0], selection="tides, incomplete: 1,200 of 14,042 items"),
        made(NAMES[1], selection="incomplete"),
    ],
    "no row": [],
    "no number": [made(name, math.nan, n=40, missing_reasons=(WINDOW,)) for name in NAMES[:3]],
    "no number under one protocol": [made(NAMES[0], math.nan, n=40, missing_reasons=(WINDOW,))],
    "no number of three models": [made(NAMES[0], math.nan, model) for model in "abc"],
    "items missing of three models": [*LACKING, *(made(NAMES[1], 0.6, model) for model in "abc")],
    "other items": [made(NAMES[0], 0.5, n=40), made(NAMES[1], 0.6, n=60)],
    "a row without a number": several({"a": [0.5, math.nan], "b": [0.4, 0.9]}),
    "a protocol without a number": several({"a": [0.5, math.nan]}),
    "two datasets": several(TWO) + OTHER_DATA,
    "five datasets": [
        altered(row, dataset=f"d{n}", data=f"#D{n}") for n in range(5) for row in several(TWO)
    ],
    "groups": [
        made("mmlu/original", value, model, subject=subject)
        for model, values in TWO.items()
        for subject, value in zip(("tides", "trees"), values, strict=True)
    ],
    "models that share nothing": [made(NAMES[0], 0.5, "a"), made(NAMES[1], 0.6, "b")],
    "a model computed in two ways": [
        made("mmlu/original", 0.5),
        made("mmlu/original", 0.6, r="#R654321"),
    ],
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_what_is_said(name: str, snapshot: SnapshotAssertion) -> None:
    assert sentences(finding(SCENARIOS[name])) == snapshot


@pytest.mark.parametrize(
    ("name", "models", "contests", "first", "tied", "behind", "same_order", "turn"),
    [
        ("an order that holds", "ab", 3, 3, 0, 0, True, None),
        ("three models whose order holds", "abc", 2, 2, 0, 0, True, None),
        ("a leader, and others whose order changes", "a", 2, 2, 0, 0, False, None),
        (
            BY_FAMILY,
            "ab",
            15,
            10,
            0,
            5,
            False,
            Turn(axis="family", values=("letters",), first=1, count=5, otherwise=9, others=10),
        ),
        (
            "a lead that turns on an axis",
            "ab",
            10,
            6,
            0,
            4,
            False,
            Turn(axis="score", values=("pmi",), first=0, count=4, otherwise=6, others=6),
        ),
        ("a lead that turns on nothing", "ab", 6, 4, 0, 2, False, None),
        ("a lead with a tie", "ab", 3, 3, 1, 0, True, None),
        ("a row without a number", "ab", 1, 1, 0, 0, True, None),
    ],
)
def test_a_lead(
    name: str,
    models: str,
    contests: int,
    first: int,
    tied: int,
    behind: int,
    same_order: bool,
    turn: Turn | None,
) -> None:
    (lead,) = finding(SCENARIOS[name]).leads
    assert "".join(lead.models).startswith(models)
    assert (lead.contests, lead.first, lead.tied, len(lead.behind)) == (
        contests,
        first,
        tied,
        behind,
    )
    assert (lead.same_order, lead.turn) == (same_order, turn)


def test_what_else_is_found() -> None:
    found = {name: finding(rows) for name, rows in SCENARIOS.items()}
    rows = SCENARIOS["one model"]
    (numbers,) = found["one model"].numbers
    assert (numbers.model, numbers.dataset, numbers.count, numbers.unmeasured) == (
        "model",
        "isles",
        4,
        0,
    )
    assert (numbers.lowest, numbers.highest) == (rows[0], rows[2])
    assert numbers.median == median([0.2, 0.3, 0.9, 0.5])
    assert numbers.items == (100, 100)
    assert numbers.guessing.guesses == sum(row.interval.low <= 0.25 for row in rows) == 2
    assert found["one model"].leads == ()
    (lead,) = found["leads equally often"].leads
    assert lead.level == (lead.models[1],)
    assert found["models that share nothing"].leads == ()
    assert [lead.models[0] for lead in found["two datasets"].leads] == ["a", "b"]
    assert found["all near chance"].guessing.guesses == 4
    missing = SCENARIOS["items missing"]
    assert (found["items missing"].missing, found["items missing"].lacking) == (missing[0], 1)
    assert found["items missing"].numbers[0].items == (322, 322)
    assert found["runs that go on"].incomplete == (
        "incomplete: 1,200 of 14,042 items",
        "incomplete",
    )
    assert finding([made(selection="tides, first 5 of each subject")]).incomplete == ()
    assert found["no number"].count == 0
    assert [each.count for each in found["a row without a number"].numbers] == [1, 2]
    assert found["a model computed in two ways"].models == ("model #R123456", "model #R654321")
    assert finding([made("mmlu/original", 0.5), made("mmlu/helm", 0.6, r="#R654321")]).models == (
        "model",
    )
    few = [SCENARIOS["one item"], [made(n=2)], [made(n=3, value=1.0, chance=0.5)]]
    assert [finding(rows).numbers[0].guessing.few for rows in few] == [True, False, True]


def test_equal_but_for_rounding_is_a_tie_chance_is_the_rows_own_and_a_protocol_under_two_names_counts_once() -> (
    None
):
    assert ROUNDED != 0.4
    assert [row.ranks.rank for row in ranked(SCENARIOS["equal but for rounding"])] == [1, 1]
    assert order_agreement(np.array([[0.3, 0.1 + 0.2, 0.5], [0.1 + 0.2, 0.3, 0.6]]))[0, 1] == 1
    chances = [made(value=0.5, chance=0.5), made(value=0.5, chance=0.25), made(value=math.nan)]
    assert [guess(row) for row in chances] == [True, False, False]
    row = made("mmlu/original")
    twice = finding([row, altered(row, protocol="mine")])
    assert (twice.count, twice.numbers[0].lowest) == (1, row)


@settings(max_examples=20)
@given(
    st.integers(1, 200),
    st.sampled_from([0.1, 0.25, 0.5]),
    st.sampled_from(["wilson", "beta-binomial"]),
    st.data(),
)
def test_what_would_be_enough_is_where_the_same_interval_leaves_guessing(
    n: int, chance: float, name: str, data: st.DataObject
) -> None:
    def row(right: int) -> Number:
        low, high = interval(name, (np.arange(n) < right) * 1.0, ["all"] * n, macro=False)
        return made(value=right / n, n=n, chance=chance, interval=name, ci_low=low, ci_high=high)

    rows = [row(right) for right in range(n + 1)]
    above = [right for right in range(n + 1) if rows[right].interval.low > chance]
    if n >= FEWEST:  # of fewer no number is called better
        above = [right for right in above if binomtest(right, n, chance, "greater").pvalue <= LEVEL]
        assert above == [right for right in range(n + 1) if not guess(rows[right])]
    assert enough(rows[data.draw(st.integers(0, n))]) == (above[0] / n if above else math.inf)


HOSTILE = "m\x1b]0;owned\x07\u202e\n\u2028" + "x" * 10_000


def test_hostile_names_stay_short_and_on_a_line() -> None:
    reason = MissingReason(HOSTILE, 3, HOSTILE)
    rows = several({HOSTILE: [0.5, 0.6, 0.2, 0.2], "b" + HOSTILE: [0.4, 0.5, 0.8, 0.8]})
    hostile = {"dataset": HOSTILE, "protocol": HOSTILE, "missing": 3, "missing_reasons": (reason,)}
    for each in (rows, [altered(row, **hostile) for row in rows], [altered(rows[0], **hostile)]):
        text = " ".join(sentences(finding(each)))
        assert not re.search("[\x00-\x1f\x7f-\x9f\u2028-\u202e]", text)
        assert len(text) < 1200
        assert text.startswith(("m\\x1b]0;owned", "bm\\x1b]0;owned"))


VALUES = st.sampled_from([math.nan, 0.0, 0.24, 0.25, 0.3, 0.5, 0.5000000000000001, 1.0])


@settings(max_examples=60)
@given(
    st.dictionaries(st.sampled_from("abcd"), st.lists(VALUES, max_size=8), max_size=4),
    st.sampled_from([1, 2, 300]),
)
def test_every_table_has_one_to_three_sentences(values: dict[str, list[float]], n: int) -> None:
    rows = [
        made(NAMES[place], value, model, n)
        for model, own in values.items()
        for place, value in enumerate(own)
    ]
    shown = finding(rows)
    assert isinstance(shown, Finding)
    lines = sentences(shown)
    assert 1 <= len(lines) <= 3
    assert all(re.fullmatch(r"\S.*[^ ]\.", line) and "nan" not in line for line in lines)
    for lead in shown.leads:  # against the plain way: every protocol by itself
        numbers = [
            {row.identity.model: row.value for row in rows if row.identity.protocol == name}
            for name in NAMES[:8]
        ]
        contests = [{m: v for m, v in each.items() if not math.isnan(v)} for each in numbers]
        contests = [each for each in contests if len(each) > 1]
        best = lead.models[0]
        own = [each for each in contests if best in each]
        assert lead.contests == len(own)
        assert lead.first == sum(each[best] > max(each.values()) - 1e-9 for each in own)
        alone = {
            m: sum(
                each.get(m, -1) > max(v for o, v in each.items() if o != m) + 1e-9
                for each in contests
            )
            for m in lead.models
        }
        assert alone[best] == max(alone.values())
        swapped = any(
            (one[a] - one[b]) * (two[a] - two[b]) < -1e-9
            for one in contests
            for two in contests
            for a in one.keys() & two.keys()
            for b in one.keys() & two.keys()
        )
        assert not (swapped and lead.same_order)


def test_models_that_scored_too_different_questions_have_no_order() -> None:
    """27.3 % of 22 questions lead nowhere, and the lead of another is told without them."""
    few, many = (
        made(value=6 / 22, model="few", n=22, missing=37),
        made(value=12 / 59, model="many", n=59),
    )
    assert [row.ranks.rank for row in ranked([few, many])] == [None, None]
    assert lead_sentences(finding([few, many])) == [Gist("different questions ... can't be ranked")]
    third = made(value=10 / 59, model="third", n=59)
    assert [row.ranks.rank for row in ranked([few, many, third])] == [None, 1, 2]
    assert lead_sentences(finding([few, many, third])) == [Gist("many is ahead ... third")]
    assert (few.coverage, many.coverage) == ("(22 of 59)", "")


def test_a_lead_is_named_with_how_often_it_is_significant() -> None:
    credits = {
        "clear": [1.0] * 40 + [0.0] * 20,
        "close": [1.0] * 38 + [0.0] * 22,
        "far": [0.0] * 60,
    }
    runs = []
    for model, (first, second) in {"one": ("clear", "clear"), "other": ("close", "far")}.items():
        runs.append(measured(model, credits[first], credits[second]))  # type: ignore[arg-type]
    rows = [altered(row, data="#Da") for run in runs for row in run.rows]
    tested = bounded(ranked(rows), [run.outcomes for run in runs])
    assert sentences(finding(tested))[1] == Gist(
        "ahead of other ... 2 protocols ... significantly under 1"
    )
    assert [row.ranks.low for row in tested] == [1, 1, 1, 2]


def test_of_few_questions_no_model_is_called_better() -> None:
    """19 of 19 against none have p < .001, and stay in the words of few questions."""
    runs = [measured("one", [1] * 19, [1] * 19), measured("other", [0] * 19, [0] * 19)]
    rows = [altered(row, data="#Da") for run in runs for row in run.rows]
    tested = bounded(ranked(rows), [run.outcomes for run in runs])
    assert lead_sentences(finding(tested)) == [Gist("19 questions are too few")]
    assert [row.ranks.lead_p for row in tested] == [1.0, 1.0, None, None]


def test_of_few_questions_no_models_change_places() -> None:
    swapped = [1] * 19, [0] * 19
    few = [measured("one", *swapped), measured("other", *swapped[::-1])]
    assert reversal(few) is None
    enough = [measured("one", [1] * 20, [0] * 20), measured("other", [0] * 20, [1] * 20)]
    assert reversal(enough) is not None


# Reversals


@dataclass
class Measured:
    """A run as it is compared."""

    rows: Sequence[Number]
    outcomes: Outcomes


def measured(
    model: str, *credits: Sequence[int], data: str = "a", texts: str = "#I123456"
) -> Measured:
    """A run of ``model`` with the credit of every item under two protocols."""
    named = list(zip((FIRST, SECOND), credits, strict=True))
    rows = [made(name, float(np.mean(own)), model, len(own), i=texts) for name, own in named]
    members = tuple(outcome(PROTOCOLS[name], own, name=name) for name, own in named)
    return Measured(rows, Outcomes(model, "isles", data, members))


def measured_right(model: str, first: int, second: int, **about: str) -> Measured:
    """A run on 60 items, of which so many are right under each of the two protocols."""
    return measured(
        model, *([1] * count + [0] * (60 - count) for count in (first, second)), **about
    )


def test_two_models_that_change_places(
    capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion
) -> None:
    runs = [
        measured_right("one", 55, 20),
        measured_right("other", 25, 50),
        measured_right("level", 56, 51),
    ]
    found = reversal(runs)
    assert found is not None
    assert (found.left, found.right, found.tests) == ("one", "other", 6)
    assert (found.start.protocol, found.end.protocol) == (FIRST, SECOND)
    assert (found.start.left, found.start.right) == (55 / 60, 25 / 60)
    assert (found.start.test.left_only, found.start.test.right_only) == (30, 0)
    print_parts([reversal_table(found, ranked([row for run in runs for row in run.rows]))])
    assert reversal_sentence(found) + "\n" + capsys.readouterr().out == snapshot


@pytest.mark.parametrize(
    "runs",
    [
        [measured_right("one", 55, 50), measured_right("other", 25, 20)],
        [measured_right("one", 55, 50), measured_right("other", 53, 52)],
        [measured_right("one", 15, 20), measured_right("other", 0, 50)],
        [measured_right("one", 55, 20), measured_right("other", 25, 50, data="b")],
        [measured_right("one", 55, 20), measured_right("other", 25, 50, texts="#I654321")],
        [],
    ],
    ids=["the order holds", "noise", "a lead among guesses", "other data", "other texts", "no run"],
)
def test_no_reversal(runs: list[Measured]) -> None:
    assert reversal(runs) is None


def measured_by_subject(model: str, credits: Sequence[Sequence[int]], sizes: list[int]) -> Measured:
    """A run whose two numbers are means of the means of subjects of ``sizes``."""
    subjects = [str(number) for number, size in enumerate(sizes) for _ in range(size)]
    codes = np.array(subjects, dtype=int)
    found = measured(model, *credits)
    rows, members = [], []
    for row, own in zip(found.rows, credits, strict=True):
        value = np.mean([np.array(own)[codes == number].mean() for number in set(codes.tolist())])
        protocol = replace(PROTOCOLS[row.identity.protocol], aggregation="macro")
        spelled = replace(row.identity, signature=signature(protocol))
        rows.append(replace(row, value=float(value), identity=spelled))
        members.append(outcome(protocol, own, subjects, name=row.identity.protocol))
    return Measured(rows, replace(found.outcomes, outcomes=tuple(members)))


def test_models_change_places_in_the_means_that_the_numbers_are() -> None:
    """Of 60 questions 40 more are right, and of four none: as a mean of two subjects that is less."""
    first = [1] * 50 + [0] * 14, [1] * 15 + [0] * 45 + [1] * 4
    second = [1] * 10 + [0] * 54, [1] * 55 + [0] * 9
    runs = [measured_by_subject("one", first, [60, 4]), measured_by_subject("two", second, [60, 4])]
    assert reversal([measured("one", *first), measured("two", *second)]) is not None
    assert reversal(runs) is None


@given(
    sizes=st.lists(st.integers(1, 40), min_size=2, max_size=3),
    right=st.lists(st.sampled_from((0.1, 0.5, 0.9)), min_size=12, max_size=12),
    seed=st.integers(0, 99),
)
def test_a_reversal_has_the_signs_of_the_numbers(
    sizes: list[int], right: list[float], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    runs = []
    for model, chances in (("one", right[:6]), ("two", right[6:])):
        credits = []
        for start in (0, 3):
            chance = np.repeat(chances[start : start + len(sizes)], sizes)
            credits.append((rng.random(len(chance)) < chance).astype(int).tolist())
        runs.append(measured_by_subject(model, credits, sizes))
    found = reversal(runs)  # type: ignore[arg-type]
    if found is None:
        return
    values = {row.identity.protocol: row.value for row in runs[0].rows}
    others = {row.identity.protocol: row.value for row in runs[1].rows}
    for contest in (found.start, found.end):
        difference = values[contest.protocol] - others[contest.protocol]
        assert contest.difference == pytest.approx(difference)


CREDITS = st.lists(st.integers(0, 1), min_size=30, max_size=30)


@given(st.lists(st.tuples(CREDITS, CREDITS), min_size=2, max_size=4))
def test_a_reversal_is_the_clearest_of_all(credits: list[tuple[list[int], list[int]]]) -> None:
    """Held to scipy's test and to every pair, one by one."""
    runs = [measured(f"m{place}", *own) for place, own in enumerate(credits)]
    tests = []
    for one, other in combinations(range(len(runs)), 2):
        for protocol in (0, 1):
            left, right = np.array(credits[one][protocol]), np.array(credits[other][protocol])
            only = int((left > right).sum()), int((left < right).sum())
            p = binomtest(only[0], sum(only)).pvalue if sum(only) else 1.0
            low = max(
                runs[one].rows[protocol].interval.low, runs[other].rows[protocol].interval.low
            )
            tests.append((one, other, protocol, left.mean() - right.mean(), p, low > 0.25))
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
