"""What rows say in short, by value and in words."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from statistics import median

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from choicewise.report.findings import sentences
from choicewise.results.evidence import MissingReason
from choicewise.results.finding import Finding, Turn, enough, finding, guess
from choicewise.results.ladder import order_agreement
from choicewise.results.measurement import interval
from choicewise.results.outcomes import ranked
from choicewise.results.rows import Row
from tests.helpers.rows import NAMES, made

LETTERS = ["mmlu/original", "mmlu/harness-v1", "mmlu/harness-v0.4", "mmlu/olmes-mcf", "mmlu/original-pr13"]
CLOZE = [name for name in NAMES if name.startswith(("mmlu/cloze", "mmlu/olmes-cf"))][:10]


def told(rows: list[Row]) -> str:
    return " ".join(sentences(finding(rows)))


def test_one_model() -> None:
    values = [0.2, 0.3, 0.9, 0.5]
    rows = [made(name, value) for name, value in zip(NAMES, values, strict=False)]
    (numbers,) = finding(rows).numbers
    assert (numbers.model, numbers.dataset, numbers.count, numbers.unmeasured) == ("model", "isles", 4, 0)
    assert numbers.lowest is rows[0]
    assert numbers.highest is rows[2]
    assert numbers.median == median(values)
    assert numbers.items == (100, 100)
    assert numbers.guesses == sum(row.ci_low <= 0.25 for row in rows) == 2
    assert finding(rows).leads == ()
    assert sentences(finding(rows)) == [
        "model scores between 20.0 % and 90.0 % on 100 items of isles, depending on how it is asked (4 numbers, median "
        "40.0 %).",
        "2 of 4 numbers are not shown to be better than guessing (25.0 %).",
    ]


def test_one_number() -> None:
    assert sentences(finding([made("mmlu/original", 0.5)])) == [
        "model scores 50.0 % (95 % interval 40.4 to 59.6 %) on 100 items of isles under mmlu/original.",
        "The number is better than guessing.",
    ]
    unbounded = made("mmlu/original", 0.5, ci_low=math.nan, ci_high=math.nan)
    assert sentences(finding([unbounded]))[0] == "model scores 50.0 % on 100 items of isles under mmlu/original."


def test_all_protocols_give_the_same() -> None:
    assert "scores 50.0 % on 100 items of isles under all 3 protocols." in told([made(name) for name in NAMES[:3]])


def several(values: dict[str, list[float]], names: tuple[str, ...] = NAMES) -> list[Row]:
    """A row per model and value, under the protocols in their order."""
    return [made(names[place], value, model) for model, own in values.items() for place, value in enumerate(own)]


def test_two_models_whose_order_holds() -> None:
    rows = several({"a": [0.5, 0.6, 0.7], "b": [0.4, 0.5, 0.6]})
    (lead,) = finding(rows).leads
    assert (lead.models, lead.contests, lead.first, lead.tied, lead.behind) == (("a", "b"), 3, 3, 0, ())
    assert lead.same_order
    assert lead.turn is None
    assert sentences(finding(rows))[1:] == ["It is ahead of b under all 3 protocols.", _every()]


def _every() -> str:
    return "Every number is better than guessing."


@pytest.mark.parametrize(("third", "holds"), [([0.3, 0.31], True), ([0.45, 0.31], False)])
def test_the_order_below_the_leader_is_told_apart(third: list[float], holds: bool) -> None:
    rows = several({"c": third, "a": [0.5, 0.6], "b": [0.4, 0.5]})
    (lead,) = finding(rows).leads
    assert (lead.models[0], lead.same_order) == ("a", holds)
    end = "holds, too" if holds else "changes"
    assert f"It is ahead of the 2 other models under all 2 protocols; the order of the others {end}." in told(rows)


def changing() -> list[Row]:
    """Model a leads where texts are scored, b where letters are, but for one protocol of each."""
    rows = []
    for name in (*LETTERS, *CLOZE):
        ahead = (name in CLOZE) != (name in (LETTERS[0], CLOZE[0]))
        rows += [made(name, 0.9 if ahead else 0.24, "a"), made(name, 0.5 if ahead else 0.26, "b")]
    return rows


def test_what_the_lead_turns_on_is_told() -> None:
    rows = changing()
    (lead,) = finding(rows).leads
    assert (lead.contests, lead.first, lead.tied, len(lead.behind)) == (15, 10, 0, 5)
    assert lead.turn == Turn("family", ("letters",), 1, 5, 9, 10)
    assert not lead.same_order
    assert sentences(finding(rows))[1:] == [
        "It leads b under 10 of 15 protocols: 1 of the 5 with letters, 9 of the 10 others.",
        "10 of the 30 numbers of the 2 models are not shown to be better than guessing (25.0 %).",
    ]


def test_an_axis_decides_where_the_family_does_not() -> None:
    names = [name for name in NAMES if name.startswith("mmlu/cloze")]
    rows = []
    for name in names:
        pmi = ":pmi-" in name
        rows += [made(name, 0.4 if pmi else 0.6, "a"), made(name, 0.5, "b")]
    (lead,) = finding(rows).leads
    assert lead.turn is not None
    assert (lead.turn.axis, lead.turn.values, lead.turn.first) == ("score", ("pmi",), 0)
    assert "It leads b under 6 of 10 protocols: none of the 4 with score pmi, all 6 others." in told(rows)


def test_nothing_decides_where_the_leads_are_mixed() -> None:
    names = [name for name in NAMES if name.startswith("mmlu/cloze")][:6]
    rows = []
    for place, name in enumerate(names):
        rows += [made(name, 0.6 if place % 3 else 0.4, "a"), made(name, 0.5, "b")]
    (lead,) = finding(rows).leads
    assert len(lead.behind) == 2
    assert lead.turn is None
    assert f"It leads b under 4 of 6 protocols, but not under {names[0]} and {names[3]}." in told(rows)


def test_ties_for_the_lead() -> None:
    rows = several({"a": [0.5, 0.6, 0.7], "b": [0.5, 0.5, 0.6]})
    (lead,) = finding(rows).leads
    assert (lead.first, lead.tied, lead.same_order) == (3, 1, True)
    assert "It leads b under all 3 protocols (tied under 1)." in told(rows)
    assert "Both models score exactly the same under all 2 protocols." in told(
        several({"a": [0.5, 0.6], "b": [0.5, 0.6]})
    )
    assert "Both models score exactly the same under the one protocol." in told(several({"a": [0.5], "b": [0.5]}))
    three = several({"a": [0.5, 0.6], "b": [0.5, 0.5], "c": [0.4, 0.6]})
    assert "No model is ahead of all others under any of 2 protocols." in told(three)


def test_values_equal_but_for_rounding_are_ties() -> None:
    """Of two subjects of ten items each, 7 and 1 right, and 4 and 4."""
    means = (0.7 + 0.1) / 2, (0.4 + 0.4) / 2
    assert means[0] != means[1]
    rows = several({"a": [means[0]], "b": [means[1]]})
    assert [row.rank for row in ranked(rows)] == [1, 1]
    assert "Both models score exactly the same under the one protocol." in told(rows)
    assert order_agreement(np.array([[0.3, 0.1 + 0.2, 0.5], [0.1 + 0.2, 0.3, 0.6]]))[0, 1] == 1


def test_models_that_lead_equally_often() -> None:
    rows = several({"a": [0.5, 0.6], "b": [0.6, 0.5]})
    (lead,) = finding(rows).leads
    assert lead.level == (lead.models[1],)
    assert "No model leads: a and b are each ahead of all others under 1 of 2 protocols." in told(rows)


def test_all_near_chance() -> None:
    rows = several({"a": [0.25, 0.2], "b": [0.3, 0.26]})
    assert finding(rows).guesses == 4
    assert sentences(finding(rows)) == [
        "Not shown to be better than guessing (25.0 %): all 4 numbers of 2 models are between 20.0 % and 30.0 % on 100 "
        "items of isles.",
        "With so many items only 34.0 % and more would be.",
    ]
    assert sentences(finding([made(value=0.3, n=60)])) == [
        "Not shown to be better than guessing (25.0 %): the only number is 30.0 % on 60 items of isles.",
        "With so many items only 36.7 % and more would be.",
    ]
    fewer = [made(NAMES[0], 0.3, n=60), made(NAMES[1], 0.3, n=50, chance=0.3)]
    assert sentences(finding(fewer))[1] == "With so many items only 36.7 % and more would be, for some of them 44.0 %."
    by_subject = made(value=0.3, ci_low=0.24, ci_high=0.36)  # a mean over subjects has another interval
    assert sentences(finding([by_subject])) == [
        "Not shown to be better than guessing (25.0 %): the only number is 30.0 % on 100 items of isles."
    ]


@pytest.mark.costly("runs are evaluated and compared")
@given(
    n=st.integers(1, 400),
    chance=st.sampled_from([0.1, 0.25, 0.5]),
    name=st.sampled_from(["wilson", "beta-binomial"]),
    data=st.data(),
)
def test_what_would_be_enough_is_where_the_same_interval_leaves_guessing(
    n: int, chance: float, name: str, data: st.DataObject
) -> None:
    def row(right: int) -> Row:
        credit = (np.arange(n) < right) * 1.0
        low, high = interval(name, credit, ["all"] * n, macro=False)
        return made(value=right / n, n=n, chance=chance, interval=name, ci_low=low, ci_high=high)

    least = enough(row(data.draw(st.integers(0, n))))
    told_ = [right for right in range(n + 1) if not guess(row(right))]
    assert least == (told_[0] / n if told_ else math.inf)


def test_chance_is_the_rows_own() -> None:
    assert guess(made(value=0.5, chance=0.5))
    assert not guess(made(value=0.5, chance=0.25))
    assert not guess(made(value=math.nan))


def test_one_item_says_nothing_of_guessing() -> None:
    rows = [made(NAMES[0], 1.0, n=1), made(NAMES[1], 0.0, n=1)]
    assert finding(rows).numbers[0].few
    text = told(rows)
    assert text == (
        "So few items can't tell any number from guessing (25.0 %): all 2 numbers are between 0.0 % and 100.0 % on 1 "
        "item of isles."
    )
    assert not finding([made(n=2)]).numbers[0].few
    assert finding([made(n=3, value=1.0, chance=0.5)]).numbers[0].few


WINDOW = MissingReason("too long for the window", 17, "q1")


def test_missing_items_are_told_with_their_reason() -> None:
    rows = [made(NAMES[0], n=305, missing=17, missing_reasons=(WINDOW,)), made(NAMES[1], n=322)]
    assert (finding(rows).missing, finding(rows).lacking) == (rows[0], 1)
    assert finding(rows).numbers[0].items == (322, 322)
    assert f"; 17 of 322 items are missing under {NAMES[0]}: too long for the window." in told(rows)
    rows[1] = made(NAMES[1], n=321, missing=1)
    assert f"; items are missing under 2 protocols, most under {NAMES[0]} (17 of 322 items)." in told(rows)
    assert f"; 1 of 322 items is missing under {NAMES[1]}." in told(rows[1:])


def test_a_run_that_goes_on_is_told() -> None:
    rows = [
        made(NAMES[0], selection="tides, incomplete: 1,200 of 14,042 items"),
        made(NAMES[1], selection="incomplete"),
    ]
    assert finding(rows).incomplete == ("incomplete: 1,200 of 14,042 items", "incomplete")
    assert "; a run is incomplete: 1,200 of 14,042 items; a run is incomplete." in told(rows)
    assert finding([made(selection="tides, first 5 of each subject")]).incomplete == ()


def test_no_number_at_all() -> None:
    assert sentences(finding([])) == ["There is no number: there is nothing to report."]
    rows = [made(name, math.nan, n=40, missing_reasons=(WINDOW,)) for name in NAMES[:3]]
    assert finding(rows).count == 0
    assert sentences(finding(rows)) == [
        f"There is no number: no item was scored under any of 3 protocols, items are missing under 3 protocols, most "
        f"under {NAMES[0]} (40 of 40 items)."
    ]
    assert "no item was scored under the one protocol, 40 of 40 items are missing" in told(rows[:1])


def test_rows_of_several_models_are_not_counted_as_protocols() -> None:
    lacking = [made(NAMES[0], math.nan if model == "a" else 0.5, model, missing=3) for model in "abc"]
    text = told([*lacking, *(made(NAMES[1], 0.6, model) for model in "abc")])
    assert f"items are missing in 3 rows, most under {NAMES[0]} (3 of " in text
    assert text.endswith("there is no number in 1 row.")
    assert "no item was scored in any of 3 rows" in told([made(NAMES[0], math.nan, model) for model in "abc"])


def test_values_that_look_alike_are_one() -> None:
    rows = [made(NAMES[0], 0.5), made(NAMES[1], 0.50001)]
    assert "scores 50.0 % on 100 items of isles under all 2 protocols." in told(rows)


def test_other_items_are_something_else_that_is_asked() -> None:
    rows = [made(NAMES[0], 0.5, n=40), made(NAMES[1], 0.6, n=60)]
    assert "on 40 to 60 items of isles, depending on how it is asked and of what (2 numbers" in told(rows)


def test_rows_without_a_number_count_nowhere() -> None:
    rows = several({"a": [0.5, math.nan], "b": [0.4, 0.9]})
    (lead,) = finding(rows).leads
    assert lead.contests == 1
    assert [each.count for each in finding(rows).numbers] == [1, 2]
    assert "there is no number in 1 row" in told(rows)
    assert "there is no number under 1 protocol." in told(rows[:2])


def test_several_datasets_are_told_apart() -> None:
    rows = several({"a": [0.5, 0.6], "b": [0.4, 0.5]})
    other = [replace(row, dataset="shoals", data="#D654321", value=1 - row.value) for row in rows]
    assert [lead.models[0] for lead in finding(rows + other).leads] == ["a", "b"]
    assert sentences(finding(rows + other))[:2] == [
        "8 numbers of 2 models on 2 datasets lie between 40.0 % and 60.0 %.",
        "On isles a is ahead of b under all 2 protocols; on shoals b is ahead of a under all 2 protocols.",
    ]
    many = [replace(row, dataset=f"d{place}", data=f"#D{place}") for place in range(5) for row in rows]
    assert sentences(finding(many))[1].endswith("; 2 datasets more in the tables.")


def test_groups_are_called_comparisons() -> None:
    rows = [
        made("mmlu/original", value, model, subject=subject)
        for model, values in {"a": (0.5, 0.6), "b": (0.4, 0.5)}.items()
        for subject, value in zip(("tides", "trees"), values, strict=True)
    ]
    assert "It is ahead of b under all 2 comparisons." in told(rows)
    assert told(rows).startswith(
        "a scores between 50.0 % and 60.0 % on 100 items a group of isles, depending on how it is asked and of what (2 "
        "numbers, median 55.0 %)."
    )


def test_models_that_share_nothing_have_no_order() -> None:
    rows = [made(NAMES[0], 0.5, "a"), made(NAMES[1], 0.6, "b")]
    assert finding(rows).leads == ()
    assert "No two models were measured the same way, so they have no order." in told(rows)


def test_a_protocol_under_two_names_counts_once() -> None:
    row = made("mmlu/original")
    assert finding([row, replace(row, protocol="mine")]).count == 1
    assert finding([row, replace(row, protocol="mine")]).numbers[0].lowest == row


def test_a_model_computed_in_two_ways_is_two() -> None:
    rows = [made("mmlu/original", 0.5), made("mmlu/original", 0.6, r="#R654321")]
    assert finding(rows).models == ("model #R123456", "model #R654321")
    assert "model #R654321 scores" in told(rows)
    assert "It is ahead of model #R123456 under the one protocol." in told(rows)
    apart = [made("mmlu/original", 0.5), made("mmlu/helm", 0.6, r="#R654321")]
    assert finding(apart).models == ("model",)


HOSTILE = "m\x1b]0;owned\x07\u202e\n\u2028" + "x" * 10_000


def test_hostile_names_stay_short_and_on_a_line() -> None:
    reason = MissingReason(HOSTILE, 3, HOSTILE)
    rows = several({HOSTILE: [0.5, 0.6, 0.2, 0.2], "b" + HOSTILE: [0.4, 0.5, 0.8, 0.8]})
    hostile = {"dataset": HOSTILE, "protocol": HOSTILE, "missing": 3, "missing_reasons": (reason,)}
    for each in (rows, [replace(row, **hostile) for row in rows], [replace(rows[0], **hostile)]):
        text = told(each)
        assert not re.search("[\x00-\x1f\x7f-\x9f\u2028-\u202e]", text)
        assert len(text) < 1200
        assert text.startswith(("m\\x1b]0;owned", "bm\\x1b]0;owned"))


VALUES = st.sampled_from([math.nan, 0.0, 0.24, 0.25, 0.3, 0.5, 0.5000000000000001, 1.0])


@settings(deadline=None, max_examples=60)
@given(st.dictionaries(st.sampled_from("abcd"), st.lists(VALUES, max_size=8), max_size=4), st.sampled_from([1, 2, 300]))
def test_every_table_has_one_to_three_sentences(values: dict[str, list[float]], n: int) -> None:
    rows = [made(NAMES[place], value, model, n) for model, own in values.items() for place, value in enumerate(own)]
    shown = finding(rows)
    assert isinstance(shown, Finding)
    lines = sentences(shown)
    assert 1 <= len(lines) <= 3
    assert all(re.fullmatch(r"\S.*[^ ]\.", line) and "nan" not in line for line in lines)
    for lead in shown.leads:  # against the plain way: every protocol by itself
        numbers = [{row.model: row.value for row in rows if row.protocol == name} for name in NAMES[:8]]
        contests = [{m: v for m, v in each.items() if not math.isnan(v)} for each in numbers]
        contests = [each for each in contests if len(each) > 1]
        best = lead.models[0]
        own = [each for each in contests if best in each]
        assert lead.contests == len(own)
        assert lead.first == sum(each[best] > max(each.values()) - 1e-9 for each in own)
        alone = {
            m: sum(each.get(m, -1) > max(v for o, v in each.items() if o != m) + 1e-9 for each in contests)
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
