"""Ranks and conclusions over protocols, against brute force on runs of models that guess."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from io import StringIO
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
from rich.console import Console

from choicewise import evaluate
from choicewise.errors import UsageError
from choicewise.models.fake import HashModel
from choicewise.report.comparison import multiverse_tables
from choicewise.results.measurement import Measurement, paired_credits, paired_predictions, shared_items
from choicewise.results.multiverse import Multiverse, multiverse, multiverse_json, rank_agreement
from choicewise.results.outcomes import OutcomeKeeper, bounded, ranked
from choicewise.results.run import Run
from tests.helpers.commands import choicewise
from tests.helpers.mmlu_data import write_mmlu

PROTOCOLS = ["mmlu/original", "mmlu/harness-v1", "mmlu/cloze:sum", "mmlu/cloze:char_mean"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    folder = tmp_path_factory.mktemp("runs")
    data = write_mmlu(folder / "data", questions=12)
    return [
        evaluate(model=model, data=data, protocols=PROTOCOLS, out=folder / f"run{number}")
        for number, model in enumerate([HashModel(), HashModel(1), HashModel(2), "fake:oracle"])
    ]


@pytest.mark.costly("runs are evaluated and compared")
def test_the_spread_is_that_of_the_accuracies(runs: list[Run]) -> None:
    found = multiverse(runs)
    for run, spread in zip(runs, found.spreads, strict=True):
        measured = list(run.measurements.values())
        accuracies = {each.name: float(np.nanmean(each.decisions.credit)) for each in measured}
        assert spread.protocols == len(PROTOCOLS)
        assert spread.panel.least == pytest.approx(min(accuracies.values()))
        assert spread.panel.median == pytest.approx(np.median(list(accuracies.values())))
        assert spread.panel.greatest == pytest.approx(max(accuracies.values()))
        assert accuracies[spread.lowest] == min(accuracies.values())
        assert accuracies[spread.highest] == max(accuracies.values())
        columns = zip(*(each.decisions.prediction for each in measured), strict=True)
        assert spread.panel.flips == pytest.approx(np.mean([len(set(column)) > 1 for column in columns]))


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
    signs = [(np.sign(a - c), np.sign(b - d)) for (a, b), (c, d) in combinations(zip(left, right, strict=True), 2)]
    untied = sum(x != 0 for x, _ in signs) * sum(y != 0 for _, y in signs)
    return sum(x * y for x, y in signs) / math.sqrt(untied)


def test_the_order_of_models_is_compared_between_protocols(runs: list[Run]) -> None:
    rows = ranked([row for run in runs for row in run.rows()])
    found = rank_agreement(rows)
    assert len(found) == 6
    for each in found:
        values = [[row.value for row in rows if row.protocol == name] for name in (each.left, each.right)]
        assert each.tau == pytest.approx(tau_b(*values))
        assert each.models == 4
    assert all(math.isnan(each.tau) for each in rank_agreement([replace(row, value=0.5) for row in rows]))
    assert rank_agreement([row for run in runs[:2] for row in run.rows()]) == []


def test_ranks_have_bounds_where_several_models_were_measured(runs: list[Run]) -> None:
    kept = [OutcomeKeeper().keep(run) for run in runs]
    rows = bounded(ranked([row for run in runs for row in run.rows()]), kept)
    for row in rows:
        assert row.rank_low is not None
        assert row.rank is not None
        assert row.rank_high is not None
        assert 1 <= row.rank_low <= row.rank <= row.rank_high <= 4
    assert {(row.rank_low, row.rank_high) for row in rows if row.model == "fake:oracle"} == {(1, 1)}
    assert any(row.rank_low < row.rank_high for row in rows if row.rank_low and row.rank_high)
    by = bounded(ranked([row for run in runs for row in run.rows("subjects")]), kept, "subjects")
    assert all(row.rank_low for row in by)


def test_shared_items_are_found_by_id_where_runs_differ(runs: list[Run], tmp_path: Path) -> None:
    data = write_mmlu(tmp_path / "data", questions=12)
    part = evaluate(model=HashModel(), data=data, protocols=PROTOCOLS, out=tmp_path / "part", subjects=["trees"])
    whole, few = (run.measurements[PROTOCOLS[0]] for run in (runs[0], part))
    shared, places = shared_items([whole, few])
    ids = shared.to_pylist()
    assert ids == few.evidence.ids
    assert [whole.evidence.ids[place] for place in places[0]] == ids
    subjects, credits = paired_credits([whole, few])
    assert set(subjects) == {"trees"}
    assert credits[0].tolist() == credits[1].tolist()
    predictions = paired_predictions([few, whole])
    assert predictions[0].tolist() == predictions[1].tolist()


@pytest.mark.costly("runs are evaluated and compared")
def test_the_panel_is_told_in_words_and_as_json(runs: list[Run]) -> None:
    found = multiverse(runs)
    out = StringIO()
    console = Console(file=out, width=80, markup=False)
    for part in multiverse_tables(found):
        console.print(part)
    text = out.getvalue()
    assert max(map(len, text.splitlines())) <= 80
    words = " ".join(text.split())
    assert "flips: % of items" in words
    assert "After Holm's correction" in words
    assert "The greatest of 4 numbers is no estimate of accuracy" in words
    assert "Kendall's τ" in words
    content = multiverse_json(found)
    assert content["duels"][0]["agreement"]["share"] == found.duels[0].agreement.share
    shown = choicewise("report", "--multiverse", "--json", *(str(run.folder) for run in runs))
    assert json.loads(shown.stdout) == json.loads(json.dumps(content))


def without(monkeypatch: pytest.MonkeyPatch, lost: Callable[[Run, str], Sequence[int] | slice]) -> None:
    """Measurements without the items that ``lost`` names for a run and a protocol."""
    measurements = Run.measurements.func

    def measured(self: Run) -> dict[str, Measurement]:
        known = {}
        for name, each in measurements(self).items():
            credit, prediction = each.decisions.credit.copy(), each.decisions.prediction.copy()
            credit[lost(self, name)], prediction[lost(self, name)] = math.nan, -1
            known[name] = replace(each, decisions=replace(each.decisions, credit=credit, prediction=prediction))
        return known

    monkeypatch.setattr(Run, "measurements", property(measured))


def told(found: Multiverse) -> str:
    out = StringIO()
    for part in multiverse_tables(found):
        Console(file=out, width=400, markup=False).print(part)
    return out.getvalue()


@pytest.mark.costly("runs are evaluated and compared")
def test_a_protocol_without_a_scored_item_counts_nowhere(runs: list[Run], monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert text.replace(f"not measured: {PROTOCOLS[1]}\n", "").replace("\n\n", "\n") == told(kept).replace("\n\n", "\n")
    assert text.count(f"not measured: {PROTOCOLS[1]}") == 1
    contest = multiverse_json(found)["duels"][0]["contests"][1]
    assert contest == {"protocol": PROTOCOLS[1], "difference": None, "n": 0, "p": None, "p_holm": None, "alike": []}


def test_what_only_some_models_were_measured_with_is_told(runs: list[Run], monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_runs_without_a_scored_item_have_no_extremes(runs: list[Run], monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, lambda *_: slice(None))
    found = multiverse(runs[:1])
    assert (found.spreads[0].protocols, found.spreads[0].lowest, found.spreads[0].highest) == (0, None, None)
    assert f"not measured: {', '.join(PROTOCOLS)}" in told(found)
    assert "The greatest" not in told(found)


def test_one_protocol_is_no_multiverse(runs: list[Run]) -> None:
    with pytest.raises(UsageError, match="at least two protocols"):
        multiverse([runs[0].choose(["mmlu/original"])])
    assert math.isfinite(multiverse([runs[0]]).spreads[0].panel.flips)
