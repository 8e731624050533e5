"""Reports over protocols and over choices against sums by hand: ranks, conclusions, probabilities, fit to people."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Group

from choicewise import evaluate
from choicewise.errors import DataError, UsageError
from choicewise.extensions.analyses.multiverse import (
    Multiverse,
    distributions,
    multiverse,
    rank_agreement,
)
from choicewise.extensions.analyses.multiverse_report import multiverse_tables
from choicewise.extensions.analyses.statistics import fit
from choicewise.models.fake import HashModel
from choicewise.protocols.catalogue import resolve
from choicewise.results.measurement import (
    Measurement,
    choice_probabilities,
    encoded_subjects,
    human_counts,
    links,
    paired_credits,
    paired_predictions,
    shared_items,
)
from choicewise.results.outcomes import bounded, outcomes_of, ranked
from choicewise.results.run import Run
from choicewise.table import as_json, terminal
from tests.helpers.commands import choicewise
from tests.helpers.mmlu_data import write_mmlu
from tests.helpers.printed import printed

PROTOCOLS = ["mmlu/original", "mmlu/harness-v1", "mmlu/cloze:sum", "mmlu/cloze:char_mean"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    folder = tmp_path_factory.mktemp("runs")
    data = write_mmlu(folder / "data", questions=12)
    return [
        evaluate(model=model, data=data, protocols=PROTOCOLS, out=folder / f"run{number}")
        for number, model in enumerate([HashModel(), HashModel(1), HashModel(2), "fake:oracle"])
    ]


def test_the_spread_is_that_of_the_accuracies(runs: list[Run]) -> None:
    found = multiverse(runs)
    for run, spread in zip(runs, found.spreads, strict=True):
        measured, panel = list(run.measurements.values()), spread.panel
        accuracies = {each.name: float(np.nanmean(each.decisions.credit)) for each in measured}
        assert spread.protocols == len(PROTOCOLS)
        expected = [of(list(accuracies.values())) for of in (min, np.median, max)]
        assert [panel.least, panel.median, panel.greatest] == pytest.approx(expected)
        assert [accuracies[spread.lowest], accuracies[spread.highest]] == [expected[0], expected[2]]
        columns = zip(*(each.decisions.prediction for each in measured), strict=True)
        assert panel.flips == pytest.approx(np.mean([len(set(column)) > 1 for column in columns]))


def test_every_pair_of_models_is_tested_under_every_protocol(runs: list[Run]) -> None:
    found = multiverse(runs)
    assert len(found.duels) == 6
    for duel, (left, right) in zip(found.duels, combinations(runs, 2), strict=True):
        ps, signs = [], []
        pairs = zip(left.measurements.values(), right.measurements.values(), strict=True)
        for (ours, theirs), contest in zip(pairs, duel.contests, strict=True):
            a, b = ours.decisions.credit, theirs.decisions.credit
            assert contest.difference == pytest.approx(np.mean(a - b))
            only = int(((a == 1) & (b == 0)).sum()), int(((a == 0) & (b == 1)).sum())
            expected = scipy.stats.binomtest(only[0], sum(only)).pvalue if sum(only) else 1.0
            assert contest.p == pytest.approx(expected)
            ps.append(contest.p)
            signs.append(np.sign(round(np.mean(a - b), 9)))
        order = np.argsort(ps, kind="stable")
        holm = np.minimum(1, np.maximum.accumulate(np.array(ps)[order] * np.arange(len(ps), 0, -1)))
        assert [duel.contests[place].p_holm for place in order] == pytest.approx(holm)
        assert (duel.agreement.left, duel.agreement.right) == (signs.count(1), signs.count(-1))
        ahead = [np.sign(each.difference) for each in duel.contests if each.p_holm <= 0.05]
        assert duel.significant() == (ahead.count(1), ahead.count(-1))


def tau_b(left: list[float], right: list[float]) -> float:
    """Concordant minus discordant pairs over √(pairs untied left · pairs untied right) (Kendall 1945)."""
    signs = [
        (np.sign(a - c), np.sign(b - d))
        for (a, b), (c, d) in combinations(zip(left, right, strict=True), 2)
    ]
    untied = sum(x != 0 for x, _ in signs) * sum(y != 0 for _, y in signs)
    return sum(x * y for x, y in signs) / math.sqrt(untied)


def test_the_order_of_models_is_compared_between_protocols(runs: list[Run]) -> None:
    rows = ranked([row for run in runs for row in run.rows()])
    found = rank_agreement(rows)
    assert len(found) == 6
    for each in found:
        values = [
            [row.value for row in rows if row.identity.protocol == name]
            for name in (each.left, each.right)
        ]
        assert each.tau == pytest.approx(tau_b(*values))
        assert each.models == 4
    assert all(
        math.isnan(each.tau) for each in rank_agreement([replace(row, value=0.5) for row in rows])
    )
    assert rank_agreement([row for run in runs[:2] for row in run.rows()]) == []


def test_ranks_have_bounds_where_several_models_were_measured(runs: list[Run]) -> None:
    kept = [outcomes_of(run) for run in runs]
    rows = bounded(ranked([row for run in runs for row in run.rows()]), kept)
    assert all(1 <= row.ranks.low <= row.ranks.rank <= row.ranks.high <= 4 for row in rows)
    assert {
        (row.ranks.low, row.ranks.high) for row in rows if row.identity.model == "fake:oracle"
    } == {(1, 1)}
    assert any(row.ranks.low < row.ranks.high for row in rows)
    by = bounded(ranked([row for run in runs for row in run.rows("subjects")]), kept, "subjects")
    assert all(row.ranks.low for row in by)


def test_shared_items_are_found_by_id_where_runs_differ(runs: list[Run], tmp_path: Path) -> None:
    data = write_mmlu(tmp_path / "data", questions=12)
    part = evaluate(
        model=HashModel(), data=data, protocols=PROTOCOLS, out=tmp_path / "part", subjects=["trees"]
    )
    whole, few = (run.measurements[PROTOCOLS[0]] for run in (runs[0], part))
    shared, places = shared_items([whole, few])
    ids = shared.to_pylist()
    assert ids == few.evidence.ids
    assert [whole.evidence.ids[place] for place in places[0]] == ids
    subjects, credits = paired_credits([whole, few])
    names = encoded_subjects(whole.items).dictionary
    assert {names[number].as_py() for number in subjects.tolist()} == {"trees"}
    assert credits[0].tolist() == credits[1].tolist()
    predictions = paired_predictions([few, whole])
    assert predictions[0].tolist() == predictions[1].tolist()


def test_the_panel_is_told_in_words_and_as_json(runs: list[Run]) -> None:
    found = multiverse(runs)
    lines = printed(*shown_tables(found))
    assert max(map(len, lines)) <= 80
    words = " ".join(" ".join(lines).split())
    greatest = "greatest of 4 numbers"
    assert all(
        each in words
        for each in ("flips: % of items", "After Holm's correction", greatest, "Kendall's τ")
    )
    tables = json.loads(
        choicewise("report", *(run.folder for run in runs), "multiverse", "--json").stdout
    )
    duels = [table for table in tables if table["table"] == "duel"]
    assert [each["agreement"]["share"] for each in duels] == [
        duel.agreement.share for duel in found.duels
    ]
    assert tables == json.loads(json.dumps([as_json(table) for table in multiverse_tables(found)]))


def without(
    monkeypatch: pytest.MonkeyPatch, lost: Callable[[Run, str], Sequence[int] | slice]
) -> None:
    """Measurements without the items that ``lost`` names for a run and a protocol."""
    measurements = Run.measurements.func

    def measured(self: Run) -> dict[str, Measurement]:
        known = {}
        for name, each in measurements(self).items():
            credit, prediction = each.decisions.credit.copy(), each.decisions.prediction.copy()
            credit[lost(self, name)], prediction[lost(self, name)] = math.nan, -1
            known[name] = replace(
                each, decisions=replace(each.decisions, credit=credit, prediction=prediction)
            )
        return known

    monkeypatch.setattr(Run, "measurements", property(measured))


def told(found: Multiverse) -> str:
    return "".join(f"{line}\n" for line in printed(*shown_tables(found), width=400))


def shown_tables(found: Multiverse) -> list[Group]:
    return [terminal(table) for table in multiverse_tables(found) if not table.data]


@pytest.mark.costly("whole runs")
def test_a_protocol_without_a_scored_item_counts_nowhere(
    runs: list[Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = multiverse([run.choose([PROTOCOLS[0], *PROTOCOLS[2:]]) for run in runs])
    without(monkeypatch, lambda _, name: slice(None) if name == PROTOCOLS[1] else [])
    found = multiverse(runs)
    assert [replace(each, unmeasured=()) for each in found.spreads] == list(kept.spreads)
    assert {each.unmeasured for each in found.spreads} == {(PROTOCOLS[1],)}
    for duel, expected in zip(found.duels, kept.duels, strict=True):
        assert duel.measured == list(expected.contests)  # Holm's correction included
        assert duel.unmeasured == [PROTOCOLS[1]]
        assert duel.agreement == expected.agreement
        assert sum((duel.agreement.left, duel.agreement.right, duel.agreement.even)) == 3
    assert found.ranks == kept.ranks
    text = told(found)
    assert text.replace(f"not measured: {PROTOCOLS[1]}\n", "").replace("\n\n", "\n") == told(
        kept
    ).replace("\n\n", "\n")
    assert text.count(f"not measured: {PROTOCOLS[1]}") == 1


def test_what_only_some_models_were_measured_with_is_told(
    runs: list[Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(run: Run, name: str) -> slice:
        if name == PROTOCOLS[0]:  # no item is scored on both sides
            return slice(None, 5) if run.folder == runs[0].folder else slice(5, None)
        return slice(None) if name == PROTOCOLS[1] and run.folder == runs[1].folder else slice(0)

    without(monkeypatch, lost)
    found = multiverse(runs[:2])
    assert [each.protocols for each in found.spreads] == [4, 3]
    assert len(found.duels[0].measured) == 2
    text = told(found)
    assert f"not measured with {found.spreads[1].model}: {PROTOCOLS[1]}\n" in text
    assert f"not measured: {PROTOCOLS[0]}\n" in text
    assert "The greatest of 4 numbers" in text


def test_runs_without_a_scored_item_have_no_extremes_and_one_protocol_is_no_multiverse(
    runs: list[Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match="at least two protocols"):
        multiverse([runs[0].choose(["mmlu/original"])])
    assert math.isfinite(multiverse([runs[0]]).spreads[0].panel.flips)
    without(monkeypatch, lambda *_: slice(None))
    found = multiverse(runs[:1])
    assert (found.spreads[0].protocols, found.spreads[0].lowest, found.spreads[0].highest) == (
        0,
        None,
        None,
    )
    assert f"not measured: {', '.join(PROTOCOLS)}" in told(found)
    assert "The greatest" not in told(found)


COUNTS = [[3, 7], [1, 9], [5, 5], [0, 4]]
CONDITIONS = ["near", "far", "near", "far"]


def run_of(folder: Path, counts: list[Any], protocols: tuple[str, ...] = ("sum",)) -> Run:
    lines = [
        {
            "id": f"q{n}",
            "question": f"Which {n}?",
            "choices": ["red", "blue"],
            "answer": 0,
            "condition": CONDITIONS[n],
        }
        | ({} if count is None else {"human_counts": count})
        for n, count in enumerate(counts)
    ]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "test.jsonl").write_text("\n".join(map(json.dumps, lines)))
    cloze = resolve("mmlu/cloze")
    recipes = {name: replace(cloze[f"mmlu/cloze:{name}"], choices=None) for name in protocols}
    return evaluate(
        model="fake:hash", data=folder / "test.jsonl", protocols=recipes, out=folder / "run"
    )


@pytest.mark.parametrize("temperature", [0.5, 1.0, 10.0])
def test_a_distribution_is_the_softmax_of_the_scores(tmp_path: Path, temperature: float) -> None:
    run = run_of(tmp_path, COUNTS)
    rows = run.distribution("sum", temperature).to_pylist()
    scores = np.array([row["score"] for row in rows]).reshape(-1, 2)
    expected = np.exp(scores / temperature) / np.exp(scores / temperature).sum(
        axis=1, keepdims=True
    )
    assert [row["softmax"] for row in rows] == pytest.approx(expected.ravel())
    assert [row["winner"] for row in rows] == [
        float(best) for best in np.ravel(scores.max(axis=1) == scores.T, "F")
    ]
    assert [row["human"] for row in rows] == [count for item in COUNTS for count in item]
    assert [row["item"] for row in rows[:3]] == ["q0", "q0", "q1"]
    (found,) = distributions(run, temperature, "condition")
    assert [condition.name for condition in found.conditions] == ["near", "far"]
    assert found.conditions[1].softmax == pytest.approx(expected[[1, 3]].mean(axis=0))
    assert found.conditions[0].human == pytest.approx((0.4, 0.6))
    assert found.softmax_fit is not None
    assert found.softmax_fit.log_likelihood == pytest.approx(
        float((np.array(COUNTS) * np.log(expected)).sum())
    )
    assert found.softmax_fit.people == 34


def test_ties_split_what_the_winner_takes(tmp_path: Path) -> None:
    run = run_of(tmp_path, [None] * 4)
    each = run.measurements["sum"]
    assert each.scores is not None
    tied = replace(each, scores=np.array([-1.0, -1.0, -1.0, -2.0, math.nan, -1.0, -3.0, -1.0]))
    softmax, winner = links(tied, 1.0)
    assert winner == pytest.approx([0.5, 0.5, 1, 0, math.nan, math.nan, 0, 1], nan_ok=True)
    assert softmax[:2] == pytest.approx([0.5, 0.5])
    assert choice_probabilities(tied, 1.0)["human"].to_pylist() == [None] * 8
    assert human_counts(each.evidence) is None


@pytest.mark.parametrize(
    ("count", "reason"),
    [
        ([1, 2, 3], r"item q1: human_counts is '\[1, 2, 3\]': 3 counts for 2 choices"),
        ([1, -2], "counts from 0"),
        (["a", 2], "list of counts"),
        ({"a": 1}, "list of counts"),
        ("three", "not a JSON list"),
        (
            [0.58, 0.4],
            r"item q1: human_counts is '\[0.58, 0.4\]'.* 0.98, not 1",
        ),
        ([0.5, 1], "sum to 1.5, not 1"),
    ],
)
def test_counts_that_do_not_match_the_choices_name_their_item(
    tmp_path: Path, count: Any, reason: str
) -> None:
    run = run_of(tmp_path, [[1, 2], count, [1, 2], [2, 1]])
    with pytest.raises(DataError, match=reason):
        run.distribution("sum")


@pytest.mark.parametrize(
    "count", [[0.999, 0], [0.6004, 0.4], [0.1 + 0.2, 0.7], [1, 1], [0, 0], [0, 1.0], [2.5, 4]]
)
def test_shares_that_sum_to_1_and_any_counts_are_taken(tmp_path: Path, count: list[float]) -> None:
    run = run_of(tmp_path, [count, [1, 2], [1, 2], [2, 1]])
    assert run.distribution("sum")["human"].to_pylist()[:2] == count


def test_items_without_counts_are_left_out_of_the_fit(tmp_path: Path) -> None:
    (found,) = distributions(run_of(tmp_path, [[3, 7], None, [0, 0], [1, 4]]), 1.0)
    assert found.softmax_fit is not None
    assert (found.softmax_fit.items, found.softmax_fit.people) == (2, 15)
    (condition,) = found.conditions
    assert (condition.name, condition.n) == ("all", 2)  # the same items as people have
    assert condition.human == pytest.approx((0.25, 0.75))


def test_wrong_use_of_distributions_is_told(tmp_path: Path) -> None:
    run = run_of(tmp_path, COUNTS)
    for use, message in (
        (lambda: run.distribution("mean"), "no protocol 'mean'; it has sum"),
        (lambda: run.distribution("sum", 0.0), "temperature is 0"),
        (
            lambda: list(distributions(run, 1.0, "colour")),
            "no field 'colour'.*condition, human_counts",
        ),
        (lambda: links(replace(run.measurements["sum"], scores=None), 1.0), "no scores"),
    ):
        with pytest.raises(UsageError, match=message):
            use()


def test_distributions_are_printed(tmp_path: Path) -> None:
    run = run_of(tmp_path, COUNTS, ("sum", "char_mean"))
    asked = ["report", run.folder, "distribution", "--condition", "condition", "--temperature", "2"]
    shown = choicewise(*asked).stdout
    assert all(words in shown for words in ("softmax at temperature 2", "people", "softmax r = "))
    content = json.loads(choicewise(*asked, "--json").stdout)
    assert [each["protocol"] for each in content] == ["sum", "char_mean"]
    assert (
        content[0]["winner_fit"]["log_likelihood"] is None
    )  # somebody chose what the winner leaves nothing


PROBABILITIES = st.lists(st.tuples(st.floats(0.01, 1), st.integers(0, 9)), min_size=1, max_size=4)


@given(items=st.lists(PROBABILITIES, min_size=1, max_size=4))
def test_fit_is_the_sum_by_hand(items: list[list[tuple[float, int]]]) -> None:
    offsets = np.cumsum([0] + [len(item) for item in items])
    weights = np.array([weight for item in items for weight, _ in item])
    counts = np.array([float(count) for item in items for _, count in item])
    found = fit(weights, counts, offsets)
    total, shares, predicted = 0.0, [], []
    for item in items:
        people = sum(count for _, count in item)
        if people:
            total += sum(count * math.log(weight) for weight, count in item)
            shares += [count / people for _, count in item]
            predicted += [weight for weight, _ in item]
    assert found.people == counts.sum()
    if not shares:
        assert math.isnan(found.log_likelihood)
        return
    assert found.log_likelihood == pytest.approx(total)
    if len(set(shares)) > 1 and np.ptp(predicted) > 1e-6 and np.ptp(shares) > 1e-6:
        assert found.correlation == pytest.approx(
            scipy.stats.pearsonr(predicted, shares).statistic, abs=1e-6
        )


def test_a_choice_made_against_all_odds_is_impossible() -> None:
    counts, offsets = np.array([1.0, 3.0]), np.array([0, 2])
    assert fit(np.array([0.0, 1.0]), counts, offsets).log_likelihood == -math.inf
    assert math.isnan(fit(np.array([0.5, 0.5]), counts, offsets).correlation)
