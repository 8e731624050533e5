"""The numbers of a report and the warnings beside them, on runs whose answers are known."""

import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.stats

from choicewise import evaluate, open_run
from choicewise.cli.report import Interval
from choicewise.errors import UsageError
from choicewise.extensions.comparison.compare import comparisons
from choicewise.models.fake import HashModel, Oracle
from choicewise.models.model import SelfCheck
from choicewise.protocols.catalogue import resolve
from choicewise.questions import Span, TokenScores
from choicewise.records import Selection
from choicewise.report.tables import (
    RANKED_WIDTH,
    legend,
    ranked_columns,
    report_tables,
    serious_warnings,
)
from choicewise.results.explain import explain
from choicewise.results.measurement import interval
from choicewise.results.number import WARNINGS, Number
from choicewise.results.outcomes import bounded, outcomes_of, ranked
from choicewise.results.rows import nearest, selection
from choicewise.results.run import Run
from choicewise.scoring.intervals import AGGREGATIONS, GROUPS, stratified, wilson
from choicewise.scoring.portion import ObservedPortion
from choicewise.table import Column, Table
from choicewise.util.jsonio import json_value
from tests.helpers.commands import choicewise
from tests.helpers.mmlu_data import write_mmlu
from tests.helpers.printed import printed

CLOZE = resolve("mmlu/cloze:sum")["mmlu/cloze:sum"]
NOISE = 0.5
"""Nats: so coarse that many items of a hash model are near ties."""


class Noisy(HashModel):
    """A hash model whose self-check found its numbers far apart."""

    selfcheck = SelfCheck("tree", NOISE, 1.0, 2 * NOISE, NOISE, 200, ())


class Constant(HashModel):
    """A model to which every choice is equally likely: all items tie."""

    def answer(self, questions: Sequence[Span]) -> Iterator[tuple[int, TokenScores]]:
        for index, span in enumerate(questions):
            count = len(span.continuation)
            flat = np.full(count, -1.0 / count, dtype=np.float32)
            yield index, TokenScores(span.continuation, flat, np.zeros(count, dtype=np.int32))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_mmlu(tmp_path_factory.mktemp("data"), questions=15)


@pytest.fixture(scope="module")
def noisy(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    names = ["mmlu/original", "mmlu/cloze", "mmlu/letter-text", "mmlu/helm"]
    return evaluate(model=Noisy(), data=data, protocols=names, out=tmp_path_factory.mktemp("noisy"))


def row_of(run: Run, name: str) -> Number:
    return next(row for row in run.rows() if row.identity.protocol == name)


def observed(run: Run, name: str) -> ObservedPortion:
    """All of a run at once, tokens included."""
    return ObservedPortion(
        replace(run.tables, items=run.evidence.items), run.protocols[name].prompt_digest
    )


@pytest.mark.parametrize(
    "name", ["mmlu/letter-text:sum", "mmlu/letter-text:token_mean", "mmlu/letter-text:pmi-answer"]
)
def test_numeric_bounds_are_those_of_every_item_decided_by_hand(noisy: Run, name: str) -> None:
    each = noisy.measurements[name]
    assert each.scores is not None
    low, high, near = [], [], 0
    for place, gold in enumerate(each.evidence.gold):
        a, b = each.evidence.item_offsets[place : place + 2]
        counts = observed(noisy, name).continuations().counts[a:b]
        total = NOISE * np.sqrt(counts)
        noise = {"sum": total, "token_mean": total / counts, "pmi": 2 * total}[each.protocol.score]
        scores, error = each.scores[a:b], np.broadcast_to(noise, (b - a,))
        others = [[other for other in range(b - a) if other != choice] for choice in range(b - a)]
        reach, floor = scores + error, scores - error
        could = [
            choice
            for choice, rest in enumerate(others)
            if all(reach[choice] > floor[other] for other in rest)
        ]
        near += len(could) > 1 and not each.decisions.tied[place]
        low.append(could == gold)
        high.append(gold[0] in could)
    row = row_of(noisy, name)
    assert (row.bounds.low, row.bounds.high) == (
        pytest.approx(np.mean(low)),
        pytest.approx(np.mean(high)),
    )
    assert row.counts.near_ties == near > 0
    assert row.bounds.low <= row.value <= row.bounds.high
    assert (row.bounds.noise, row.diagnosis.near_tie_rate) == (NOISE, near / row.counts.n)
    assert ("near-ties" in row.diagnosis.warnings) == (
        near / row.counts.n > (row.interval.high - row.interval.low) / 2
    )


UNBOUNDED: dict[str, dict[str, str]] = {
    "greedy": {"score": "greedy"},
    "constrained_greedy": {"score": "constrained_greedy"},
    "spellings": {"reading": "spellings", "continuation": " {letter}\n {letter}."},
}


@pytest.mark.parametrize("name", ["helm", *UNBOUNDED])
def test_what_noise_does_is_not_known_of_everything(name: str, data: Path, tmp_path: Path) -> None:
    """Of text, of a yes or no, and of numbers that are not made of one log-likelihood."""
    recipe = (
        replace(CLOZE, **UNBOUNDED[name])
        if name in UNBOUNDED
        else resolve("mmlu/helm")["mmlu/helm"]
    )
    asked = {"data": data, "protocols": {"p": recipe, "sum": CLOZE}, "limit": 5}
    run = evaluate(model=Noisy(), **asked, out=tmp_path / "run")
    for row in (row for by in ("micro", "macro", "subjects") for row in run.rows(by)):
        told = json.loads(json.dumps(row.as_json()))
        if row.identity.protocol == "sum":
            assert told["low"] is not None
            continue
        assert (row.counts.near_ties, told["near_ties"]) == (None, None)
        assert math.isnan(row.diagnosis.near_tie_rate)
        if name == "helm":  # of text the bounds are those of answers that were cut, and none was
            assert (row.bounds.low, row.bounds.high, row.cut) == (row.value, row.value, 0)
        else:
            assert all(map(math.isnan, (row.bounds.low, row.bounds.high)))
            assert told["low"] is None
        assert "near-ties" not in row.diagnosis.warnings
    assert any(
        line.startswith("numeric: ") and "- if unknown" in line
        for line in legend(run.rows(), ids=True)
    )
    decided = {
        each.protocol: each.near_tie
        for each in explain(run, run.tables.items["item"][0].as_py()).decided
    }
    assert (decided["p"], isinstance(decided["sum"], bool)) == (None, True)
    (compared,) = comparisons(run, None, ["p", "sum"])
    assert compared.flips.near_ties is None


@pytest.mark.costly("whole runs")
def test_label_and_text_siblings_are_compared_and_mass_is_flagged_for_labels_only(
    noisy: Run,
) -> None:
    each, row = noisy.measurements["mmlu/original"], row_of(noisy, "mmlu/original")
    assert row.diagnosis.text_sibling is not None
    sibling = noisy.measurements[row.diagnosis.text_sibling]
    assert "{choice}" in sibling.protocol.continuation
    differs = [
        a != b for a, b in zip(each.decisions.prediction, sibling.decisions.prediction, strict=True)
    ]
    assert row.diagnosis.label_text == pytest.approx(np.mean(differs))
    assert ("label/text" in row.diagnosis.warnings) == (np.mean(differs) >= 0.3)
    assert row_of(noisy, "mmlu/cloze:sum").diagnosis.text_sibling is None
    siblings = list(noisy.measurements.values())
    found = nearest(each, siblings, lambda other, mine: other.score == "char_mean")
    assert found is not None
    assert found.name == "mmlu/letter-text:char_mean", "the one with the fewest other axes"
    assert nearest(each, siblings, lambda other, mine: False) is None
    labels, texts = row.diagnosis, row_of(noisy, "mmlu/cloze:sum").diagnosis
    sums = observed(noisy, "mmlu/original").scores("sum").reshape(-1, 4)
    assert labels.mass == pytest.approx(np.median(np.exp(sums).sum(axis=1)))
    assert ("mass" in labels.warnings, "mass" in texts.warnings) == (True, False)
    assert texts.mass < 1e-6
    assert math.isnan(texts.low_mass)


def test_choices_that_answer_without_their_question_are_flagged(data: Path, tmp_path: Path) -> None:
    recipe = resolve("mmlu/original")["mmlu/original"]
    alone = replace(recipe, question="{options}Answer:")
    run = evaluate(
        model="fake:oracle",
        data=data,
        protocols={"with": recipe, "without": alone},
        out=tmp_path / "run",
    )
    found = row_of(run, "with").diagnosis
    assert (found.choices_sibling, found.choices_only) == ("without", 1.0)
    assert "choices-only" in found.warnings
    assert row_of(run, "without").diagnosis.choices_sibling is None


def test_a_constant_answer_and_a_constant_gold_are_alarming(tmp_path: Path) -> None:
    lines = [{"id": f"q{n}", "question": "?", "choices": list("ab"), "answer": 0} for n in range(8)]
    (tmp_path / "test.jsonl").write_text("\n".join(map(json.dumps, lines)))
    recipes = {"p": replace(CLOZE, choices=None)}
    run = evaluate(
        model=Constant(), data=tmp_path / "test.jsonl", protocols=recipes, out=tmp_path / "run"
    )
    (row,) = run.rows()
    assert (row.value, row.counts.ties) == (1.0, 8)
    assert {"margins", "gold-constant"} <= set(row.diagnosis.warnings)
    assert (
        "constant" not in row.diagnosis.warnings
    )  # the right choice never moves: nothing tells it from knowledge
    (alarm,) = serious_warnings([row])
    assert "8 of 8 items are tied" in alarm
    assert "alarm: gold-constant, " in choicewise("report", tmp_path / "run", "--all").stderr
    (split,) = run.under({"p": replace(recipes["p"], ties="split")}).rows()
    assert split.value == 0.5
    assert "gold-constant" not in split.diagnosis.warnings


def test_counts_are_those_of_the_group_and_a_run_without_self_check_has_no_bounds(
    data: Path, tmp_path: Path
) -> None:
    model, asked = HashModel(), {"data": data, "protocols": ["mmlu/original"]}
    whole = evaluate(model=HashModel(), **asked, out=tmp_path / "whole")
    (row,) = whole.rows()
    assert (
        row.bounds.noise,
        row.counts.near_ties,
        math.isnan(row.bounds.low),
        math.isnan(row.bounds.high),
    ) == (
        None,
        None,
        True,
        True,
    )
    model.window = max(map(len, whole.tables.requests["context"].to_pylist())) - 1
    run = evaluate(model=model, **asked, out=tmp_path / "run")
    rows, dropped = {row.identity.subject: row for row in run.rows("subjects")}, Counter[str]()
    for request in run.tables.requests.to_pylist():
        dropped[request["subject"]] += request["shots_dropped"] > 0
    assert {subject: row.counts.shots_dropped for subject, row in rows.items()} == dropped
    (all_,) = run.rows()
    assert all_.counts.shots_dropped == sum(dropped.values()) > 0
    assert (
        [row.counts.truncated for row in rows.values()]
        == [row.counts.merged for row in rows.values()]
        == [0, 0]
    )


def test_groups_name_the_rows_of_their_aggregation(noisy: Run) -> None:
    each = noisy.measurements["mmlu/original"]
    assert set(GROUPS) == set(AGGREGATIONS)
    for aggregation, group in GROUPS.items():
        assert {group(subject, each.categories) for subject in each.evidence.subjects} == set(
            each.values(aggregation)
        )


CREDIT = np.array([1.0, 0, 1, 1, 0.5, 0, 0, 1])
SUBJECTS = list("aabbbccc")


def test_intervals_by_name() -> None:
    assert interval("wilson", CREDIT, SUBJECTS, False) == wilson(4.5 / 8, 8)
    low, high = scipy.stats.beta(5, 5).ppf(0.025), scipy.stats.beta(6, 4).ppf(0.975)
    assert interval("beta-binomial", CREDIT, SUBJECTS, False) == (
        pytest.approx(low),
        pytest.approx(high),
    )
    rights, sizes = np.array([1.0, 2.5, 1.0]), np.array([2, 3, 3])
    assert interval("wilson", CREDIT, SUBJECTS, True) == stratified(rights, sizes)
    mean, variance = 5 / 9, (0.25 + 5 / 36 / 2 + 2 / 9 / 2) / 9
    n = min(mean * (1 - mean) / variance, 9 / (1 / 2 + 1 / 3 + 1 / 3))
    posterior = scipy.stats.beta(mean * n + 1, (1 - mean) * n + 1).interval(0.95)
    assert interval("beta-binomial", CREDIT, SUBJECTS, True) == pytest.approx(posterior)
    for name in Interval:
        assert all(map(math.isnan, interval(name.value, CREDIT[:0], [], False)))
    assert all(map(math.isnan, interval("clustered", CREDIT, SUBJECTS, False)))
    credit = np.random.default_rng(0).choice([0.0, 1.0, 0.5], 60)
    subjects = [str(place % 12) for place in range(60)]
    means = credit.reshape(5, 12).mean(axis=0)
    variance, mean = means.var(ddof=1) / 12, means.mean()
    n, t2 = min(mean * (1 - mean) / variance, 60), scipy.stats.t.ppf(0.975, 11) ** 2
    centre, root = mean + t2 / 2 / n, math.sqrt(t2 * mean * (1 - mean) / n + (t2 / 2 / n) ** 2)
    expected = pytest.approx(((centre - root) / (1 + t2 / n), (centre + root) / (1 + t2 / n)))
    assert [interval("clustered", credit, subjects, macro) for macro in (False, True)] == [
        expected
    ] * 2


def test_an_interval_can_be_chosen(noisy: Run) -> None:
    few = noisy.choose(["mmlu/original", "mmlu/cloze:sum"])
    default, chosen = few.rows()[0], few.rows(interval="beta-binomial")[0]
    assert (default.interval.name, chosen.interval.name) == ("wilson", "beta-binomial")
    right = round(default.value * 30)
    assert (chosen.interval.low, chosen.interval.high) == pytest.approx(
        scipy.stats.beta(right + 1, 31 - right).interval(0.95)
    )
    for name in ("wilson", "beta-binomial", None):
        assert {row.interval.name for row in few.rows("macro", name)} == {name or "wilson"}


def test_an_old_run_is_scored_in_further_ways(noisy: Run) -> None:
    letters = noisy.choose(["mmlu/cloze:sum", "mmlu/letter-text"])
    assert [row.identity.protocol for row in letters.rows()][:2] == [
        "mmlu/cloze:sum",
        "mmlu/letter-text:token_mean",
    ]
    other = replace(CLOZE, ties="split", aggregation="micro", split=None)
    (row,) = noisy.under({"mine": other}).rows()
    assert (row.identity.protocol, row.counts.n) == ("mine", 30)
    assert row.value == pytest.approx(
        np.nanmean(noisy.measurements["mmlu/cloze:sum"].decisions.credit)
    )
    with pytest.raises(
        UsageError,
        match=r"has no mmlu/harness-v1; .*mmlu/harness-v1 into the same folder",
    ):
        noisy.choose(["mmlu/harness-v1"])
    found = choicewise("report", noisy.folder, "--protocol", "mmlu/cloze:sum", "--json")
    assert [row["protocol"] for row in json.loads(found.stdout)] == ["mmlu/cloze:sum"]
    again = open_run(noisy.folder)
    first, name = again.measurements["mmlu/cloze:sum"], "mmlu/cloze:token_mean"
    for laid_out in (again, again.choose([name])):
        assert laid_out.measurements[name].evidence is first.evidence


def test_every_row_is_told_in_eighty_columns_and_as_json(noisy: Run) -> None:
    rows = noisy.rows("subjects")
    for shown in report_tables(rows, ids=True, width=80):
        lines = printed(shown)
        assert max(map(len, lines)) <= 80
        text = "".join(lines)
        for row in rows:
            interval = f"{100 * row.interval.low:.1f} – {100 * row.interval.high:.1f}"
            assert all(
                word in text
                for word in (
                    row.identity.id,
                    interval,
                    row.identity.protocol,
                    *row.diagnosis.warnings[:1],
                )
            )
    told = " ".join(legend(rows, ids=True))
    assert "numeric" in told
    assert "0.5 nats" in told
    listed = json.loads(
        choicewise("report", noisy.folder, "--json").stdout, parse_constant=pytest.fail
    )
    assert {"low", "high", "near_ties", "flags", "diagnosis", "interval"} <= set(listed[0])
    assert {flag for row in listed for flag in row["flags"]} <= set(WARNINGS)
    assert json_value({"a": (math.inf, [math.nan, 1.5])}) == {"a": [None, [None, 1.5]]}


def test_tables_fit_many_models_and_names_cannot_speak_to_the_terminal() -> None:
    columns = [Column(name="protocol", heading=" ")]
    for model in range(9):
        columns += ranked_columns(f"a/model-with-a-name-{model}", "share")
    ranks = [cell for rank in range(1, 10) for cell in (0.5, rank, None, None)]
    rows = [[f"mmlu/letter-text:score-{n}", *ranks] for n in range(2)]
    name = "\x1b[31m[bold]name"
    table = Table(name="ranks", title=name, columns=columns, rows=rows, split=RANKED_WIDTH)
    lines = printed(table)
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    assert all(f"50.0 ({rank})" in text for rank in range(1, 10))
    assert "mmlu/letter-text:score-1" in text
    assert lines[0] == "\\x1b[31m[bold]name"


def test_other_parts_of_the_data_are_named_and_not_ranked_together(
    data: Path, tmp_path: Path
) -> None:
    asked = {"data": data, "protocols": ["mmlu/original"]}
    few = evaluate(model=HashModel(), out=tmp_path / "few", subjects=["tides"], limit=2, **asked)
    whole = evaluate(model=Oracle(), out=tmp_path / "whole", **asked)
    runs = [few, whole, evaluate(model=HashModel(), out=tmp_path / "again", **asked)]
    rows = bounded(
        ranked([row for run in runs for row in run.rows()]),
        [outcomes_of(run) for run in runs],
    )
    assert [row.identity.selection for row in rows] == ["tides, first 2 of each subject", "", ""]
    assert [row.ranks.rank for row in rows] == [1, 1, 2]
    assert [row.ranks.low is None for row in rows] == [True, False, False]
    told = "\n".join(printed(*report_tables(rows, ids=True, width=120), width=120))
    assert "(tides, first 2 of each subject), acc" in told
    assert "mmlu/original (all)" in told
    each, manifest = whole.measurements["mmlu/original"], whole.manifest
    assert selection(manifest, each) == ""
    assert selection(replace(manifest, complete=False), each) == "incomplete"
    assert (
        selection(manifest, replace(each, item_counts=(1200, 14042)))
        == "incomplete: 1,200 of 14,042 items"
    )
    assert selection(replace(manifest, selection=Selection(tuple("abcd"))), each) == "4 subjects"
