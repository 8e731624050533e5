"""Protocols that can't differ are one vote and one test; those that only happen to agree are not."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from choicewise import evaluate
from choicewise.data.dataset import Dataset
from choicewise.data.items import Item
from choicewise.extensions.analyses.multiverse import multiverse
from choicewise.extensions.analyses.multiverse_report import multiverse_tables
from choicewise.models.fake import HashModel
from choicewise.protocols.catalogue import resolve
from choicewise.protocols.protocol import Protocol
from choicewise.results.measurement import Measurement
from choicewise.results.outcomes import equivalent_groups, first_equivalents, same_order
from choicewise.results.run import Run
from choicewise.scoring.decide import argmax
from choicewise.scoring.significance import holm

CLOZE = resolve("options/cloze:sum")["options/cloze:sum"]
SCORED = {
    name: replace(CLOZE, score=name)
    for name in ("sum", "byte_mean", "char_mean", "token_mean", "greedy")
}
OTHERS = {
    "masked": replace(CLOZE, reading="masked"),
    "masked mean": replace(CLOZE, reading="masked", score="byte_mean"),
    "surprisal": replace(CLOZE, reading="surprisal"),
    "lcp": replace(CLOZE, boundary="lcp"),
    "heal": replace(CLOZE, boundary="heal"),
    "no BOS": replace(CLOZE, bos="none"),
    "strict ties": replace(CLOZE, ties="wrong"),
    "other question": replace(CLOZE, question="Q: {question}"),
    "letters": replace(
        CLOZE, question="{question}\n{options}Answer:", letters="ABCD", continuation=" {letter}"
    ),
    "renormalised": replace(CLOZE, reading="surprisal-package"),
}
ITEMS = tuple(
    Item(
        str(n),
        f"Which is {n}?",
        tuple(mark * (1 + (n + i * i) % 4) for i, mark in enumerate("pqr")),
        (n % 3,),
    )
    for n in range(1, 25)
)
FOREIGN = (*ITEMS, Item("0", "Which?", ("é", "ee", "e"), (0,)))


def run(items: tuple[Item, ...], protocols: dict[str, Protocol], out: Path, seed: int = 0) -> Run:
    return evaluate(
        model=HashModel(seed), data=Dataset("d", {"test": items}), protocols=protocols, out=out
    )


def groups_of(*runs: Run) -> list[list[str]]:
    names = {protocol.digest: name for name, protocol in runs[0].protocols.items()}
    return [
        [names[digest] for digest in group]
        for group in equivalent_groups([first_equivalents(each) for each in runs])
    ]


def test_bytes_and_characters_differ_where_the_texts_do(tmp_path: Path) -> None:
    ascii_, foreign = (
        run(ITEMS, SCORED, tmp_path / "ascii"),
        run(FOREIGN, SCORED, tmp_path / "foreign"),
    )
    assert groups_of(ascii_) == [["sum"], ["byte_mean", "char_mean", "token_mean"], ["greedy"]]
    assert groups_of(foreign) == [["sum"], ["byte_mean", "token_mean"], ["char_mean"], ["greedy"]]
    assert groups_of(ascii_, foreign) == groups_of(foreign)


def test_other_ways_to_compute_the_same_tokens_are_no_other_protocol(tmp_path: Path) -> None:
    groups = groups_of(run(ITEMS, {**SCORED, **OTHERS}, tmp_path / "run"))
    assert groups[0] == ["sum", "masked", "surprisal", "lcp", "strict ties"]
    assert groups[1] == ["byte_mean", "char_mean", "token_mean", "masked mean"]
    assert {name for (name,) in groups[2:]} == {
        "greedy",
        "heal",
        "no BOS",
        "other question",
        "letters",
        "renormalised",
    }


SCORES = arrays(np.float64, 9, elements=st.floats(-50, -0.01))


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Measurement:
    return run(ITEMS[:3], {"sum": CLOZE}, tmp_path_factory.mktemp("run") / "run").measurements[
        "sum"
    ]


def scored(measured: Measurement, scores: np.ndarray) -> Measurement:
    evidence = measured.evidence
    decided = argmax(scores, evidence.item_offsets, evidence.right, "first")
    return replace(measured, scores=scores, decisions=decided)


@given(scores=SCORES, factors=arrays(np.float64, 3, elements=st.floats(0.1, 9)), other=SCORES)
def test_scores_are_the_same_but_for_a_factor_or_a_term_of_each_item(
    measured: Measurement, scores: np.ndarray, factors: np.ndarray, other: np.ndarray
) -> None:
    item = np.repeat(np.arange(3), 3)
    one = scored(measured, scores)
    for moved in (scores * factors[item], scores - factors[item]):
        same = scored(measured, moved)
        if (
            same.decisions.prediction.tolist() == one.decisions.prediction.tolist()
        ):  # but for ties by rounding
            assert same_order(one, same)
            assert same_order(same, one)
    impossible = np.where(np.arange(9) == 4, -np.inf, scores)
    assert same_order(scored(measured, impossible), scored(measured, impossible * 2))
    assert not same_order(one, scored(measured, impossible))
    assert not same_order(one, scored(measured, np.where(np.arange(9) == 4, np.nan, scores)))
    apart = scored(measured, np.where(np.arange(9) == 8, scores * 1.001, scores))
    assert not same_order(one, apart)
    by_hand = any(
        all(
            np.ptp(values[item == each]) <= 1e-9 * np.abs(values[item == each]).max()
            for each in range(3)
        )
        for values in (other / scores, other - scores)
    )
    if not by_hand and np.abs(other - scores).min() > 1e-3:
        assert not same_order(one, scored(measured, other))


def test_zeros_fit_every_factor_and_nothing_else(measured: Measurement) -> None:
    zeros = scored(measured, np.array([0.0, 0, 0, 0, 1, 2, 0, 1, 2]))
    assert same_order(zeros, scored(measured, np.array([0.0, 0, 0, 0, 3, 6, 0, 2, 4])))
    assert not same_order(zeros, scored(measured, np.array([3.0, 2, 1, 0, 3, 6, 0, 2, 4])))
    assert not same_order(zeros, scored(measured, np.array([0.0, 0, 0, 0, -1, -2, 0, 1, 2])))
    assert not same_order(scored(measured, np.tile([3.0, 2, 1], 3)), scored(measured, np.zeros(9)))


@pytest.mark.costly("three models under fifteen protocols")
def test_votes_tests_and_shares_are_of_distinct_protocols(tmp_path: Path) -> None:
    models = [
        run(ITEMS[:12], {**SCORED, **OTHERS}, tmp_path / str(seed), seed) for seed in range(3)
    ]
    panel = multiverse(models)
    firsts = [first for first, *_ in groups_of(*models)]
    few = [each.choose(firsts) for each in models]
    expected = multiverse(few)
    for spread, alone in zip(panel.spreads, expected.spreads, strict=True):
        assert (spread.protocols, spread.distinct, alone.distinct) == (15, 8, 8)
        assert spread.panel == alone.panel
        assert spread.duplicates == (
            ("sum", "masked", "surprisal", "lcp", "strict ties"),
            ("byte_mean", "char_mean", "token_mean", "masked mean"),
        )
    for duel, alone in zip(panel.duels, expected.duels, strict=True):
        assert (duel.protocols, len(duel.measured)) == (15, 8)
        assert duel.agreement == alone.agreement
        assert [contest.p_holm for contest in duel.contests] == holm(
            [contest.p for contest in duel.contests]
        ).tolist()
        assert [replace(contest, duplicates=()) for contest in duel.contests] == list(
            alone.contests
        )
    assert str(panel.ranks) == str(expected.ranks)  # NaN is no NaN
    text = "\n".join(note for table in multiverse_tables(panel) for note in table.notes)
    assert "8 distinct protocols (15 in all)" in text
    assert "= char_mean = token_mean =" in text
    assert "The greatest of 8 numbers" in text
