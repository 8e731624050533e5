"""The number that stands for a run, and the table of models by benchmarks: their ranks, and which is not worse."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, product
from statistics import fmean

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from choicewise.extensions.interop.write.best_models import against_best
from choicewise.protocols.catalogue import is_headline
from choicewise.protocols.protocol import Protocol
from choicewise.results.headline import Matrix, headline, matrix
from choicewise.results.number import Number
from choicewise.results.outcomes import Outcome, Outcomes, bounded, joint_credits, ranked
from choicewise.scoring.intervals import ranks
from choicewise.scoring.significance import holm, rank_ranges, sign_flip, significantly_better
from tests.helpers.outcomes import outcome
from tests.helpers.rows import NAMES, PROTOCOLS, altered, made

DATA = ["#D000000", "#D111111", "#D222222"]
ASKED = "mmlu/original", "mmlu/cloze:sum", "mmlu/olmes-cf:char_mean"
CREDITS = st.lists(st.sampled_from([0.0, 1.0, 0.5]), min_size=24, max_size=24)


def asked(protocol: str, value: float, model: str, data: int = 0, **about: object) -> Number:
    return made(protocol, value, model, dataset=f"data {data}", data=DATA[data], **about)


def run(
    model: str, credits: dict[str, list[float]], data: int = 0, **names: Sequence[str]
) -> tuple[list[Number], Outcomes]:
    """Rows and outcomes of a model with these credits of every item, by protocol; ``names``: of the items."""
    rows = []
    for name, own in credits.items():
        missing = int(np.isnan(own).sum())
        rows.append(
            asked(name, float(np.nanmean(own)), model, data, n=len(own) - missing, missing=missing)
        )
    members = tuple(
        outcome(micro(PROTOCOLS[name]), own, name=name, **names) for name, own in credits.items()
    )
    ids = [f"#P{each.protocol.digest[:6]}" for each in members]
    rows = [altered(row, id=id) for row, id in zip(rows, ids, strict=True)]
    return rows, Outcomes(model, f"data {data}", DATA[data][2:] + "0" * 58, members)


def micro(protocol: Protocol) -> Protocol:
    """The same with items that count the same whatever their subject, as the numbers here are made."""
    return replace(protocol, aggregation="micro")


def table(*runs: tuple[list[Number], Outcomes]) -> tuple[Matrix, list[Outcomes]]:
    outcomes = [own for _, own in runs]
    return matrix([row for rows, _ in runs for row in rows], outcomes), outcomes


def plain_headline(rows: list[Number]) -> Number | None:
    """The same in the words of its docstring."""
    known = [row for row in rows if row.share and not math.isnan(row.value)]
    heads = [row for row in known if is_headline(row.identity.protocol)] or known
    for variant in ("original", "harness", "olmes-cf", "olmes-mcf"):
        for row in heads:
            if row.identity.protocol.split("/")[1].split(":")[0] == variant:
                return row
    return heads[0] if heads else None


@given(st.lists(st.sampled_from(NAMES), unique=True), st.data())
@example(["mmlu/olmes-cf:sum", "mmlu/cloze:sum"], None)
def test_the_number_that_stands_for_a_run(names: list[str], data: st.DataObject | None) -> None:
    values = (
        [0.5] * len(names)
        if data is None
        else [data.draw(st.sampled_from([0.5, math.nan])) for _ in names]
    )
    rows = [made(name, value) for name, value in zip(names, values, strict=True)]
    assert headline(rows) == plain_headline(rows)
    for family in {row.identity.family for row in rows}:
        assert headline(rows, (family,)) == plain_headline(
            [row for row in rows if row.identity.family == family]
        )


def test_a_perplexity_stands_for_nothing() -> None:
    assert headline([altered(made(), value=12.5, metric="perplexity")]) is None
    assert headline([]) is None


@given(st.data())
def test_the_table_has_every_number_under_one_protocol_a_benchmark(data: st.DataObject) -> None:
    values = st.one_of(st.none(), st.sampled_from([0.25, 0.5, 0.75, math.nan]))
    cells = {key: data.draw(values) for key in product("abc", range(3), ASKED)}
    rows = [
        asked(name, value, model, part)
        for (model, part, name), value in cells.items()
        if value is not None
    ]
    shown = matrix(rows)
    known = {
        key: value for key, value in cells.items() if value is not None and not math.isnan(value)
    }
    parts = [part for part in range(3) if any(key[1] == part for key in known)]
    assert sorted(each.data for each in shown.benchmarks) == [DATA[part] for part in parts]
    for place, benchmark in enumerate(shown.benchmarks):
        part = DATA.index(benchmark.data)
        have = {name: sum((model, part, name) in known for model in "abc") for name in ASKED}
        most = [name for name in ASKED if have[name] == max(have.values())]
        chosen = plain_headline([asked(name, 0.5, "a", part) for name in most])
        assert chosen is not None
        assert benchmark.protocol == chosen.identity.protocol
        for standing in shown.standings:
            row = standing.rows[place]
            value = known.get((standing.model, part, benchmark.protocol))
            assert (None if row is None else row.value) == value
    for standing in shown.standings:
        own = [row.value for row in standing.rows if row is not None]
        whole = len(own) == len(parts) > 0
        assert standing.mean == pytest.approx(fmean(own)) if whole else math.isnan(standing.mean)
        above = sum(other.mean > standing.mean + 1e-9 for other in shown.standings)
        assert standing.rank == (above + 1 if whole else None)
    order = [(each.rows.count(None), each.rank or math.inf) for each in shown.standings]
    assert order == sorted(order)


def test_numbers_of_groups_and_perplexities_have_no_place_in_the_table() -> None:
    rows = [
        made(subject="tides"),
        made(subject="waves"),
        altered(made(), value=9.0, metric="perplexity"),
    ]
    assert matrix(rows) == Matrix((), ())
    assert matrix([]) == Matrix((), ())


def test_a_model_that_was_computed_in_two_ways_has_a_line_for_each() -> None:
    assert [each.model for each in matrix([made(r="#R1", value=0.4), made(r="#R2")]).standings] == [
        "model #R2",
        "model #R1",
    ]


@pytest.mark.parametrize(
    ("columns", "titles", "part"),
    [
        ([{}], ("isles",), ""),
        ([{"selection": "tides"}], ("isles",), "tides"),
        ([{}, {"selection": "tides"}], ("isles", "isles (tides)"), ""),
        ([{}, {"data": "#D1"}], ("isles #D123456", "isles #D1"), ""),
        ([{}, {"dataset": "seas", "data": "#D1"}], ("isles", "seas"), ""),
        (
            [{"selection": "x"}, {"selection": "x", "data": "#D1"}],
            ("isles #D123456", "isles #D1"),
            "x",
        ),
    ],
)
def test_no_two_columns_are_called_alike(
    columns: list[dict[str, str]], titles: tuple[str, ...], part: str
) -> None:
    shown = matrix([made(**about) for about in columns])
    assert (shown.titles, shown.part) == (titles, part)


@settings(max_examples=10)
@given(st.lists(CREDITS, min_size=2, max_size=4))
def test_ranks_over_one_benchmark_are_bounded_as_ranks_under_its_protocol(
    credits: list[list[float]],
) -> None:
    runs = [run(f"m{place}", {"mmlu/original": own}) for place, own in enumerate(credits)]
    shown, outcomes = table(*runs)
    under_protocol = bounded(ranked([row for rows, _ in runs for row in rows]), outcomes)
    expected = {
        row.identity.model: (row.ranks.rank, row.ranks.low, row.ranks.high)
        for row in under_protocol
    }
    assert {
        each.model: (each.rank, each.rank_low, each.rank_high) for each in shown.standings
    } == expected


def test_ranks_of_means_are_certain_where_all_benchmarks_together_show_it() -> None:
    """Neither of two benchmarks shows that "good" is better than "poor"; both together do."""
    good, poor, worst = [1.0] * 24 + [0.0] * 16, [1.0] * 19 + [0.0] * 21, [0.0] * 40
    credits = {"good": good, "poor": poor, "worst": worst}
    one = [run(model, {"mmlu/original": own}) for model, own in credits.items()]
    both = [*one, *(run(model, {"mmlu/original": own}, 1) for model, own in credits.items())]
    assert ranges(table(*one)[0]) == {"good": (1, 1, 2), "poor": (2, 1, 2), "worst": (3, 3, 3)}
    assert ranges(table(*both)[0]) == {"good": (1, 1, 1), "poor": (2, 2, 2), "worst": (3, 3, 3)}


TEXTS = [f"text {number}" for number in range(64)]
SEVEN_TO_ONE = {"a": [1.0] * 37 + [0.0] * 27, "b": [1.0] * 30 + [0.0] * 33 + [1.0]}


@pytest.mark.parametrize(
    ("names", "low"),
    [
        ({"questions": TEXTS}, 1),
        ({"questions": ["no text"] * 64}, 2),
        ({"questions": ["no text"] * 64, "golds": ["0", "1"] * 32}, 1),
    ],
    ids=["texts", "nothing in common", "right answers"],
)
def test_the_same_questions_in_two_benchmarks_are_no_more_evidence(
    names: dict[str, list[str]], low: int
) -> None:
    """7 to 1 twice is 14 to 2 if the questions are others, and else 7 to 1 (p = .07)."""
    runs = [
        run(model, {"mmlu/original": own}, data, **names)
        for data in (0, 1)
        for model, own in SEVEN_TO_ONE.items()
    ]
    assert ranges(table(*runs)[0]) == {"a": (1, 1, 3 - low), "b": (2, low, 2)}


def test_a_part_of_the_questions_is_no_more_evidence() -> None:
    whole = [run(model, {"mmlu/original": own}) for model, own in SEVEN_TO_ONE.items()]
    parts = []
    for model, own in SEVEN_TO_ONE.items():
        ids = [str(number) for number in range(4, 64)]
        rows, outcomes = run(model, {"mmlu/original": own[4:]}, ids=ids)
        part = replace(outcomes.outcomes[0], selection="tides")
        parts.append(([altered(rows[0], selection="tides")], replace(outcomes, outcomes=(part,))))
    shown, _ = table(*whole, *parts)
    assert ranges(shown) == {"a": (1, 1, 2), "b": (2, 1, 2)}
    assert [each.questions for each in shown.standings] == [64, 64]


def test_below_twenty_different_questions_nothing_is_claimed() -> None:
    credits = {"a": [1.0] * 19, "b": [0.0] * 19}
    runs = [
        run(model, {"mmlu/original": own}, data, questions=TEXTS[:19])
        for data in (0, 1)
        for model, own in credits.items()
    ]
    assert ranges(table(*runs)[0]) == {"a": (1, 1, 2), "b": (2, 1, 2)}


@settings(max_examples=20)
@given(st.lists(CREDITS, min_size=2, max_size=3), st.integers(2, 3))
def test_copies_of_a_benchmark_change_no_range(credits: list[list[float]], copies: int) -> None:
    """Ties have an exact test where all differences are equal, and their limit as before elsewhere."""
    credits = [[float(credit > 0.5) for credit in own] for own in credits]

    def shown(count: int) -> Matrix:
        runs = [
            run(f"m{place}", {"mmlu/original": own}, data, questions=TEXTS[:24])
            for data in range(count)
            for place, own in enumerate(credits)
        ]
        return table(*runs)[0]

    assert ranges(shown(copies)) == ranges(shown(1))


def plain_ranges(parts: list[list[list[float]]]) -> list[tuple[int, int, int]]:
    """Ranks and their ranges by means over parts [part][model][item] without common questions."""
    total = sum(len(part[0]) for part in parts)
    scaled = [np.array(part) * (total / (len(parts) * len(part[0]))) for part in parts]
    joined = np.concatenate(scaled, axis=1)
    best, worst = rank_ranges(significantly_better(joined))
    return list(
        zip(ranks(joined.mean(axis=1)).tolist(), best.tolist(), worst.tolist(), strict=True)
    )


@settings(max_examples=20)
@given(st.data())
def test_other_questions_count_as_before(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(8, 40), min_size=2, max_size=3))
    right = st.sampled_from([0.0, 1.0])
    parts = [
        [data.draw(st.lists(right, min_size=size, max_size=size)) for _ in range(2)]
        for size in sizes
    ]
    runs = [
        run(
            f"m{place}",
            {"mmlu/original": own},
            number,
            questions=[f"{number} {text}" for text in TEXTS[: len(own)]],
        )
        for number, part in enumerate(parts)
        for place, own in enumerate(part)
    ]
    shown = ranges(table(*runs)[0])
    assert [shown[f"m{place}"] for place in range(2)] == plain_ranges(parts)


def alone(**names: Sequence[str]) -> list[Outcome]:
    return [outcome(PROTOCOLS["mmlu/original"], [1.0] * 4, **names)]


@pytest.mark.parametrize(
    ("one", "other", "questions"),
    [
        ({"questions": "abcd"}, {"questions": "abcd"}, 4),
        ({"questions": "abcd"}, {"questions": "abxy"}, 6),
        ({"questions": "abcd"}, {"questions": "abcd", "ids": "4567"}, 8),
        ({"questions": "abcd"}, {"questions": "abcd", "subjects": "mnop"}, 8),
        ({"questions": "aabc"}, {"questions": "aabc"}, 6),
        ({"questions": "abcd", "golds": "0101"}, {"questions": "wxyz", "golds": "0101"}, 4),
        ({"questions": "abcd", "golds": "0101"}, {"questions": "wxyz", "golds": "0100"}, 8),
        ({"questions": "abcd"}, {"questions": "wxyz"}, 8),
    ],
)
def test_which_questions_of_two_data_are_the_same(
    one: dict[str, str], other: dict[str, str], questions: int
) -> None:
    names = [{key: list(value) for key, value in each.items()} for each in (one, other)]
    parts = [alone(**each) for each in names]
    credits, are_summed = joint_credits(parts, DATA[:2])
    assert (credits.shape[1], are_summed) == (questions, questions < 8)
    # Of the same data, ids alone say so.
    assert joint_credits(parts, DATA[:1] * 2)[0].shape[1] == (8 if "ids" in other else 4)


def ranges(shown: Matrix) -> dict[str, tuple[int | None, int | None, int | None]]:
    return {each.model: (each.rank, each.rank_low, each.rank_high) for each in shown.standings}


def test_one_question_orders_no_models() -> None:
    right = {"a": 1.0, "b": 0.0, "c": 0.0}
    shown, outcomes = table(
        *(run(model, {"mmlu/original": [credit]}) for model, credit in right.items())
    )
    assert ranges(shown) == {"a": (1, 1, 3), "b": (2, 1, 3), "c": (2, 1, 3)}
    assert against_best(shown, outcomes).level == ((None,),) * 3


def test_models_that_scored_other_items_are_not_ranked() -> None:
    """On the 22 items that both scored the order is the other one."""
    few = [1.0] * 6 + [0.0] * 16 + [math.nan] * 37
    many = [1.0] * 8 + [0.0] * 14 + [1.0] * 4 + [0.0] * 33
    shown, outcomes = table(
        run("few", {"mmlu/original": few}), run("many", {"mmlu/original": many})
    )
    assert ranges(shown) == dict.fromkeys(("few", "many"), (None, None, None))
    assert [math.isnan(each.mean) for each in shown.standings] == [True, False]
    assert against_best(shown, outcomes).level == ((None,), (None,))
    third = run("third", {"mmlu/original": [1.0] * 10 + [0.0] * 49})
    shown, _ = table(
        run("few", {"mmlu/original": few}), run("many", {"mmlu/original": many}), third
    )
    assert ranges(shown) == {"many": (1, 1, 2), "third": (2, 1, 2), "few": (None, None, None)}


def test_models_without_a_shared_item_are_not_ranked() -> None:
    halves = [1.0] * 20 + [math.nan] * 20, [math.nan] * 20 + [0.0] * 20
    runs = [run(model, {"mmlu/original": own}) for model, own in zip("ab", halves, strict=True)]
    rows = bounded(
        ranked([row for rows, _ in runs for row in rows]), [outcomes for _, outcomes in runs]
    )
    assert [(row.ranks.rank, row.ranks.low, row.ranks.high, row.ranks.lead_p) for row in rows] == [
        (None,) * 4
    ] * 2


def test_models_that_lack_an_item_or_two_are_ranked_by_those_that_all_scored() -> None:
    """ "b" has the higher value, of one item less; on the 39 shared items they are equal."""
    one, other = [1.0] * 20 + [0.0] * 20, [1.0] * 20 + [0.0] * 19 + [math.nan]
    shown, _ = table(run("a", {"mmlu/original": one}), run("b", {"mmlu/original": other}))
    assert ranges(shown) == {"a": (1, 1, 2), "b": (1, 1, 2)}


def test_ranks_are_not_bounded_where_outcomes_lack() -> None:
    runs = [run(model, {"mmlu/original": [0.0, 1.0] * 6}) for model in "ab"]
    shown = matrix([row for rows, _ in runs for row in rows], [runs[0][1]])
    assert [(each.rank, each.rank_low, each.rank_high) for each in shown.standings] == [
        (1, None, None)
    ] * 2


@settings(max_examples=5)
@given(
    st.lists(
        st.lists(st.sampled_from([0.0, 1.0]), min_size=20, max_size=20), min_size=2, max_size=4
    ),
    st.booleans(),
)
def test_what_no_other_is_better_than(credits: list[list[float]], twice: bool) -> None:
    """Holm's correction is for all pairs of the table."""
    parts = (0, 1) if twice else (0,)
    runs = [
        run(f"m{place}", {"mmlu/original": own}, part)
        for place, own in enumerate(credits)
        for part in parts
    ]
    shown, outcomes = table(*runs)
    tested = against_best(shown, outcomes)
    pairs = list(combinations(range(len(credits)), 2))
    ps = [
        sign_flip(np.array(credits[one]), np.array(credits[other])).p
        for one, other in pairs
        for _ in parts
    ]
    corrected = dict(zip([pair for pair in pairs for _ in parts], holm(ps).tolist(), strict=True))
    assert tested.tests == len(ps)
    worse = {
        min(pair, key=lambda place: sum(credits[place]))
        for pair in pairs
        if corrected[pair] <= 0.05
    }
    for standing, level in zip(shown.standings, tested.level, strict=True):
        assert set(level) == {int(standing.model[1:]) not in worse}


def test_a_clear_difference_is_told_and_chance_is_not() -> None:
    credits = {
        "best": [1.0] * 20 + [0.0] * 2,
        "close": [1.0] * 19 + [0.0] * 3,
        "far": [0.0] * 20 + [1.0] * 2,
    }
    runs = [run(model, {"mmlu/original": own}) for model, own in credits.items()]
    tested = against_best(*table(*runs))
    assert tested.level == ((True,), (True,), (False,))
    assert tested.tests == 3


def test_where_other_texts_were_sent_there_is_no_test() -> None:
    (one, first), (other, second) = (
        run(model, {"mmlu/original": own})
        for model, own in {"a": [1.0] * 20, "b": [0.0] * 20}.items()
    )
    rows = [*one, *(altered(row, i="#I999999") for row in other)]
    tested = against_best(matrix(rows, [first, second]), [first, second])
    assert (tested.level, tested.tests) == (((None,), (None,)), 0)


def test_where_no_number_is_there_is_no_test() -> None:
    runs = [
        run("a", {"mmlu/original": [1.0] * 20}),
        run("a", {"mmlu/original": [1.0] * 20}, 1),
        run("b", {"mmlu/original": [0.0] * 20}),
    ]
    tested = against_best(*table(*runs))
    assert (tested.level, tested.tests) == (((True, True), (False, None)), 1)
