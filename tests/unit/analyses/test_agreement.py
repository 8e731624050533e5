"""The agreement report: what differs is found, counted and put down to its cause."""

import json
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest

from choicewise import evaluate
from choicewise.data.dataset import Dataset
from choicewise.data.items import Item
from choicewise.extensions.analyses.agreement import (
    CAUSES,
    TOLERANCE,
    Agreement,
    RetrievalPair,
    agreement,
    retrievals,
)
from choicewise.extensions.analyses.agreement_report import run_tables
from choicewise.protocols.catalogue import resolve
from choicewise.results.run import Run
from tests.helpers.commands import choicewise
from tests.helpers.hash_models import MergingModel
from tests.helpers.protocols import mmlu_protocol

ITEMS = (
    Item("1", "She said:", ("red", "a long green one", "blue"), (0,)),
    Item("2", "They say", ("yes, often", "no"), (1,)),
)
BASE = mmlu_protocol(
    split="test",
    question="{question}",
    continuation='"{choice}"',
    shots=0,
    choices=None,
    letters="ABC",
    ties="first",
)
RECIPES = {
    "sum": BASE,
    "mean": replace(BASE, score="token_mean"),
    "masked": replace(BASE, reading="masked", score="token_mean"),
    "span": replace(BASE, reading="surprisal"),
    "package": replace(BASE, reading="surprisal-package", score="char_mean_bare"),
    "apart": replace(BASE, boundary="separate"),
    "bare": replace(BASE, bos="none"),
    "other": replace(BASE, question="So {question}"),
    "odds": replace(BASE, reading="yes-no", proposal="{choice}", continuation="yes\nno"),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Of a model that speaks bytes with a merge, and calls one of them the end."""
    model, data = MergingModel(b':"', eos=10), Dataset("quiz", {"test": ITEMS})
    return evaluate(model=model, data=data, protocols=RECIPES, out=tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def pairs(run: Run) -> dict[tuple[str, str], Agreement]:
    return {(pair.left, pair.right): pair for pair in agreement(run)}


def test_only_retrievals_of_the_same_texts_are_compared(
    run: Run, pairs: dict[tuple[str, str], Agreement]
) -> None:
    names = [name for name in RECIPES if name not in ("other", "odds")]
    assert list(pairs) == [*combinations(names, 2)]
    assert "odds" not in retrievals(run)  # it has no likelihoods
    assert "sum" in retrievals(run)


def test_the_same_sum_differs_by_its_divisor_alone(pairs: dict[tuple[str, str], Agreement]) -> None:
    pair = pairs["sum", "mean"]
    assert (pair.n, pair.missing, pair.largest, pair.beyond, dict(pair.causes)) == (
        5,
        0,
        0.0,
        0,
        {},
    )
    assert pair.items - pair.same == pair.decided.get("divisor", 0) == 1
    masked = pairs["mean", "masked"]
    assert masked.largest < TOLERANCE
    assert (masked.beyond, masked.same) == (0, 2)
    assert (
        pairs["sum", "bare"].beyond == 0
    )  # a hash model reads text, so that a missing BOS is no difference


@pytest.mark.parametrize(
    ("left", "right", "causes"),
    [
        ("sum", "span", {"boundary merge": 3}),  # the first item's context ends in a colon
        ("sum", "apart", {"boundary merge": 3}),
        ("span", "package", {"context": 5}),
        ("masked", "span", {"boundary merge": 3}),
    ],
)
def test_what_differs_has_a_cause(
    left: str, right: str, causes: dict[str, int], pairs: dict[tuple[str, str], Agreement]
) -> None:
    pair = pairs[left, right]
    assert dict(pair.causes) == causes
    assert pair.beyond == sum(causes.values())
    assert pair.worst[0].difference == pytest.approx(pair.worst[0].left - pair.worst[0].right)
    assert abs(pair.worst[0].difference) == pair.largest
    assert set(causes) <= set(CAUSES)


def test_options_of_retrievals_of_other_items_are_named_by_those_of_the_left(
    run: Run, tmp_path: Path
) -> None:
    data = Dataset("quiz", {"test": ITEMS[1:]})
    few = evaluate(model="fake:hash", data=data, protocols={"sum": BASE}, out=tmp_path)
    pair = RetrievalPair(retrievals(run)["sum"], retrievals(few)["sum"])
    assert [pair.option(run, option) for option in (0, 1)] == [
        ("2", 0, '"yes, often"'),
        ("2", 1, '"no"'),
    ]


def test_generated_options_are_compared_where_they_were_generated_and_nothing_with_itself(
    tmp_path: Path,
) -> None:
    data = Dataset(
        "quiz", {"test": (Item("1", "Q", ("a", "b"), (0,)), Item("2", "R", ("c", "d"), (1,)))}
    )
    generated = resolve("options/quoted-mean-generate")["options/quoted-mean-generate"]
    asked = replace(
        generated, reading="loglikelihood", new_tokens=None, decision="argmax", ties="first"
    )
    protocols = {"generated": generated, "asked": asked}
    found = evaluate(model="fake:oracle", data=data, protocols=protocols, out=tmp_path)
    (pair,) = agreement(found)
    assert (pair.n, pair.missing, pair.items, pair.same) == (2, 2, 2, 2)
    assert (
        dict(pair.causes) == {}
    )  # the space in front is no token of the generated text, but all are as likely
    assert agreement(found.choose(["asked"])) == []
    (nothing,) = run_tables(found.choose(["asked"]))
    assert "no two protocols" in nothing.title


@pytest.mark.costly("what 21 pairs differ by is looked up block by block")
def test_agreement_is_shown_as_tables_and_json(
    run: Run, pairs: dict[tuple[str, str], Agreement]
) -> None:
    tables = {
        table["table"]: table
        for table in json.loads(choicewise("report", run.folder, "agreement", "--json").stdout)
    }
    assert len(tables["agreement"]["rows"]) == 21
    for row in tables["agreement"]["rows"]:
        pair = pairs[row["left"], row["right"]]
        assert (row["n"], row["beyond"], row["same"], row["items"]) == (
            pair.n,
            pair.beyond,
            pair.same,
            pair.items,
        )
    assert len(tables["worst"]["rows"]) == sum(len(pair.worst) for pair in pairs.values())
    shown = choicewise("report", run.folder, "agreement", COLUMNS="200").stdout
    assert "retrievals" in shown
    assert "merge: a token straddles" in shown
    assert "where they differ most" in shown
