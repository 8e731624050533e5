"""The number that stands for a run, and the table of models by benchmarks: their ranks, and which is not worse."""

import math
from dataclasses import replace
from itertools import product
from statistics import fmean

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from choicewise.protocols.catalogue import is_headline
from choicewise.protocols.protocol import Protocol
from choicewise.results.headline import Matrix, against_best, headline, matrix
from choicewise.results.outcomes import Outcomes
from choicewise.results.rows import Row
from choicewise.scoring.intervals import rank_intervals
from choicewise.scoring.significance import holm, sign_flip
from tests.helpers.outcomes import outcome
from tests.helpers.rows import NAMES, PROTOCOLS, made

DATA = ["#D000000", "#D111111", "#D222222"]
ASKED = "mmlu/original", "mmlu/cloze:sum", "mmlu/olmes-cf:char_mean"
CREDITS = st.lists(st.sampled_from([0.0, 1.0, 0.5]), min_size=12, max_size=12)


def asked(protocol: str, value: float, model: str, data: int = 0, **about: object) -> Row:
    return made(protocol, value, model, dataset=f"data {data}", data=DATA[data], **about)


def run(model: str, credits: dict[str, list[float]], data: int = 0) -> tuple[list[Row], Outcomes]:
    """Rows and outcomes of a model with these credits of every item, by protocol."""
    rows = [asked(name, float(np.nanmean(own)), model, data, n=len(own)) for name, own in credits.items()]
    members = tuple(outcome(micro(PROTOCOLS[name]), own, name=name) for name, own in credits.items())
    ids = [f"#P{each.protocol.digest[:6]}" for each in members]
    rows = [replace(row, id=id) for row, id in zip(rows, ids, strict=True)]
    return rows, Outcomes(model, f"data {data}", DATA[data][2:] + "0" * 58, members)


def micro(protocol: Protocol) -> Protocol:
    """The same with items that count the same whatever their subject, as the numbers here are made."""
    return replace(protocol, aggregation="micro")


def table(*runs: tuple[list[Row], Outcomes]) -> tuple[Matrix, list[Outcomes]]:
    outcomes = [own for _, own in runs]
    return matrix([row for rows, _ in runs for row in rows], outcomes), outcomes


def plain_headline(rows: list[Row]) -> Row | None:
    """The same in the words of its docstring."""
    known = [row for row in rows if row.share and not math.isnan(row.value)]
    heads = [row for row in known if is_headline(row.protocol)] or known
    for variant in ("original", "harness", "olmes-cf", "olmes-mcf"):
        for row in heads:
            if row.protocol.split("/")[1].split(":")[0] == variant:
                return row
    return heads[0] if heads else None


@given(st.lists(st.sampled_from(NAMES), unique=True), st.data())
@example(["mmlu/olmes-cf:sum", "mmlu/cloze:sum"], None)
def test_the_number_that_stands_for_a_run(names: list[str], data: st.DataObject | None) -> None:
    values = [0.5] * len(names) if data is None else [data.draw(st.sampled_from([0.5, math.nan])) for _ in names]
    rows = [made(name, value) for name, value in zip(names, values, strict=True)]
    assert headline(rows) == plain_headline(rows)
    for family in {row.family for row in rows}:
        assert headline(rows, (family,)) == plain_headline([row for row in rows if row.family == family])


def test_a_perplexity_stands_for_nothing() -> None:
    assert headline([replace(made(), value=12.5, metric="perplexity")]) is None
    assert headline([]) is None


@given(st.data())
def test_the_table_has_every_number_under_one_protocol_a_benchmark(data: st.DataObject) -> None:
    values = st.one_of(st.none(), st.sampled_from([0.25, 0.5, 0.75, math.nan]))
    cells = {key: data.draw(values) for key in product("abc", range(3), ASKED)}
    rows = [asked(name, value, model, part) for (model, part, name), value in cells.items() if value is not None]
    shown = matrix(rows)
    known = {key: value for key, value in cells.items() if value is not None and not math.isnan(value)}
    parts = [part for part in range(3) if any(key[1] == part for key in known)]
    assert sorted(each.data for each in shown.benchmarks) == [DATA[part] for part in parts]
    for place, benchmark in enumerate(shown.benchmarks):
        part = DATA.index(benchmark.data)
        have = {name: sum((model, part, name) in known for model in "abc") for name in ASKED}
        most = [name for name in ASKED if have[name] == max(have.values())]
        chosen = plain_headline([asked(name, 0.5, "a", part) for name in most])
        assert chosen is not None
        assert benchmark.protocol == chosen.protocol
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
    rows = [made(subject="tides"), made(subject="waves"), replace(made(), value=9.0, metric="perplexity")]
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
        ([{"selection": "x"}, {"selection": "x", "data": "#D1"}], ("isles #D123456", "isles #D1"), "x"),
    ],
)
def test_no_two_columns_are_called_alike(columns: list[dict[str, str]], titles: tuple[str, ...], part: str) -> None:
    shown = matrix([made(**about) for about in columns])
    assert (shown.titles, shown.part) == (titles, part)


@settings(max_examples=10)
@given(st.lists(CREDITS, min_size=2, max_size=4))
def test_ranks_over_one_benchmark_are_bounded_as_ranks_under_its_protocol(credits: list[list[float]]) -> None:
    runs = [run(f"m{place}", {"mmlu/original": own}) for place, own in enumerate(credits)]
    shown, _ = table(*runs)
    expected = rank_intervals(np.array(credits))
    bounds = {each.model: (each.rank_low, each.rank_high) for each in shown.standings}
    assert bounds == {f"m{place}": (expected.low[place], expected.high[place]) for place in range(len(credits))}


@settings(max_examples=10)
@given(st.lists(st.tuples(CREDITS, CREDITS), min_size=2, max_size=3))
def test_ranks_of_means_are_bounded_over_draws_of_every_benchmark(
    credits: list[tuple[list[float], list[float]]],
) -> None:
    runs = [
        run(f"m{place}", {"mmlu/original": own}, part)
        for place, both in enumerate(credits)
        for part, own in enumerate(both)
    ]
    shown, _ = table(*runs)
    parts = np.array(credits).transpose(1, 0, 2)
    expected = rank_intervals(*parts)
    for each in shown.standings:
        place = int(each.model[1:])
        assert (each.rank_low, each.rank_high) == (expected.low[place], expected.high[place])


@settings(max_examples=5)
@given(st.lists(st.lists(st.sampled_from([0.0, 1.0]), min_size=3, max_size=3), min_size=2, max_size=3), st.data())
def test_bounds_of_ranks_of_several_parts_are_those_of_plain_draws(
    first: list[list[float]], data: st.DataObject
) -> None:
    """Of parts of three and of two items all draws that there are, each as likely as the others."""
    second = [data.draw(st.lists(st.sampled_from([0.0, 1.0]), min_size=2, max_size=2)) for _ in first]
    parts = [np.array(first), np.array(second)]
    ranks = []
    for one, other in product(product(range(3), repeat=3), product(range(2), repeat=2)):
        means = parts[0][:, one].mean(axis=1) + parts[1][:, other].mean(axis=1)
        ranks.append([1 + sum(rival > own + 1e-9 for rival in means) for own in means])
    plain = np.array(ranks)
    drawn = rank_intervals(*parts, draws=4000)
    for model in range(len(first)):
        # a rank that takes clearly more, or clearly less, than the 2.5 % at an edge is inside, or outside
        assert (plain[:, model] < drawn.low[model]).mean() < 0.04
        assert (plain[:, model] > drawn.high[model]).mean() < 0.04
        assert (plain[:, model] <= drawn.low[model]).mean() > 0.01
        assert (plain[:, model] >= drawn.high[model]).mean() > 0.01


@given(st.lists(st.lists(st.sampled_from([0.0, 1.0, math.nan]), min_size=6, max_size=6), min_size=2, max_size=4))
def test_one_part_or_the_same_part_twice_gives_the_same_ranks(credits: list[list[float]]) -> None:
    one, twice = rank_intervals(np.array(credits)), rank_intervals(np.array(credits), np.array(credits))
    assert one.rank.tolist() == twice.rank.tolist()
    assert (twice.n, twice.missing) == (2 * one.n, 2 * one.missing)


def test_nothing_is_known_of_ranks_where_a_part_has_no_item_that_all_scored() -> None:
    whole, bare = np.array([[1.0, 1.0], [0.0, 0.0]]), np.array([[1.0, math.nan], [math.nan, 1.0]])
    intervals = rank_intervals(whole, bare)
    assert (intervals.low.tolist(), intervals.high.tolist(), intervals.n) == ([1, 1], [2, 2], 0)


def test_ranks_are_not_bounded_where_outcomes_lack() -> None:
    runs = [run(model, {"mmlu/original": [0.0, 1.0] * 6}) for model in "ab"]
    shown = matrix([row for rows, _ in runs for row in rows], [runs[0][1]])
    assert [(each.rank, each.rank_low, each.rank_high) for each in shown.standings] == [(1, None, None)] * 2


@settings(max_examples=5)
@given(st.lists(st.lists(st.sampled_from([0.0, 1.0]), min_size=12, max_size=12), min_size=2, max_size=4), st.booleans())
def test_what_is_not_worse_than_the_best(credits: list[list[float]], twice: bool) -> None:
    """Holm's correction is for all tests of the table."""
    parts = (0, 1) if twice else (0,)
    runs = [run(f"m{place}", {"mmlu/original": own}, part) for place, own in enumerate(credits) for part in parts]
    shown, outcomes = table(*runs)
    tested = against_best(shown, outcomes)
    by_model = {f"m{place}": np.array(own) for place, own in enumerate(credits)}
    names = [each.model for each in shown.standings]
    best = max(names, key=lambda name: by_model[name].mean())
    others = [name for name in names if by_model[name].mean() < by_model[best].mean()]
    ps = [sign_flip(by_model[best], by_model[name]).p for name in others for _ in parts]
    corrected = dict(zip([name for name in others for _ in parts], holm(ps).tolist(), strict=True))
    assert tested.tests == len(ps)
    for name, level in zip(names, tested.level, strict=True):
        assert set(level) == {corrected.get(name, 1.0) > 0.05}


def test_a_clear_difference_is_told_and_chance_is_not() -> None:
    credits = {"best": [1.0] * 20 + [0.0] * 2, "close": [1.0] * 19 + [0.0] * 3, "far": [0.0] * 20 + [1.0] * 2}
    runs = [run(model, {"mmlu/original": own}) for model, own in credits.items()]
    tested = against_best(*table(*runs))
    assert tested.level == ((True,), (True,), (False,))
    assert tested.tests == 2


def test_where_other_texts_were_sent_there_is_no_test() -> None:
    (one, first), (other, second) = (
        run(model, {"mmlu/original": own}) for model, own in {"a": [1.0] * 12, "b": [0.0] * 12}.items()
    )
    rows = [*one, *(replace(row, i="#I999999") for row in other)]
    tested = against_best(matrix(rows, [first, second]), [first, second])
    assert (tested.level, tested.tests) == (((True,), (None,)), 0)


def test_where_no_number_is_there_is_no_test() -> None:
    runs = [
        run("a", {"mmlu/original": [1.0] * 12}),
        run("a", {"mmlu/original": [1.0] * 12}, 1),
        run("b", {"mmlu/original": [0.0] * 12}),
    ]
    tested = against_best(*table(*runs))
    assert (tested.level, tested.tests) == (((True, True), (False, None)), 1)


def test_a_number_that_is_less_only_for_what_is_missing_is_not_worse() -> None:
    """The best one was scored on few items; on these the other is as good."""
    best, other = [1.0] * 3 + [math.nan] * 17, [1.0] * 3 + [0.0] * 17
    tested = against_best(*table(run("a", {"mmlu/original": best}), run("b", {"mmlu/original": other})))
    assert (tested.level, tested.tests) == (((True,), (True,)), 1)
