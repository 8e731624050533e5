"""The panel of predictors whose figures are known: one that knows, one that takes the first place, a table, a guess."""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from string import ascii_uppercase

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise import evaluate
from choicewise.data.dataset import Dataset
from choicewise.data.items import Item
from choicewise.data.open import open_dataset
from choicewise.errors import ProtocolError
from choicewise.extensions.analyses.invariance import Check, Panel, panels
from choicewise.extensions.analyses.invariance_report import COLUMNS, panel_table
from choicewise.models.fake import HashModel
from choicewise.protocols.catalogue import resolve
from choicewise.protocols.changes import CHANGES, apply_change, cloned_choice
from choicewise.protocols.panel import CHECKS, variants, with_panels
from choicewise.protocols.preparations import shown_order
from choicewise.protocols.protocol import Protocol
from choicewise.questions import Decision, Prompt, Span, TokenScores, TypedQuestion
from choicewise.records import ServerRecord
from choicewise.results.run import open_run
from choicewise.store.folder import read_manifest, write_manifest
from choicewise.table import cell_texts, heading
from tests.helpers.commands import choicewise
from tests.helpers.messages import Gist
from tests.helpers.protocols import mmlu_protocol

pytestmark = pytest.mark.filterwarnings("ignore:protocol .* fits no question of")

Told = Callable[[Sequence[str]], Sequence[float]]
"""From the options in the order in which they are shown to a probability for each."""

LINE = re.compile(r"^(\w)\. (.*)$", re.MULTILINE)


class Predictor(HashModel):
    """Gives the shown options the probabilities that ``told`` says, by letters or as an endpoint does."""

    def __init__(self, told: Told) -> None:
        super().__init__()
        self.told = told

    def _score(self, question: Prompt) -> TokenScores:
        assert isinstance(question, Span)
        text = self._bytes(question.context).decode().rpartition("\n\n")[2]
        letters = dict(LINE.findall(text))
        label = self._bytes(question.continuation).decode().strip()
        values = dict(zip(letters, self.told([*letters.values()]), strict=True))
        tokens = question.continuation
        return TokenScores.of(
            tokens, [*[0.0] * (len(tokens) - 1), math.log(values[label])], [0] * len(tokens)
        )

    def _decide(self, question: Decision) -> TokenScores:
        return TokenScores.of(
            [question.option], [math.log(self.told(shown(question.question))[question.option])], [0]
        )


def shown(asked: TypedQuestion) -> Sequence[str]:
    """The options of a typed question; of a yes-or-no one with the question, by which a predictor may go."""
    return (
        [f"{asked.instructions}?{name}" for name in asked.names]
        if asked.kind == "noul"
        else asked.names
    )


def uniform(options: Sequence[str]) -> Sequence[float]:
    return [1 / len(options)] * len(options)


def by_text(options: Sequence[str]) -> Sequence[float]:
    weights = [1.0 + sum(map(ord, option)) % 7 for option in options]
    return [weight / sum(weights) for weight in weights]


def by_place(options: Sequence[str]) -> Sequence[float]:
    weights = [2.0**-place for place in range(len(options))]
    return [weight / sum(weights) for weight in weights]


TABLE = {2: (0.7, 0.3), 3: (0.5, 0.3, 0.2), 4: (0.35, 0.25, 0.10, 0.30)}

WORDS = ("apple", "bread", "cloud", "drum", "echo", "fern", "gate")


def quiz(choices: int, count: int = 24) -> Dataset:
    items = [
        Item(
            f"q{number}",
            f"Which, {number}?",
            WORDS[number % 3 : number % 3 + choices],
            (number % choices,),
            "s",
        )
        for number in range(count)
    ]
    return Dataset("quiz", {"test": tuple(items)})


def letters(choices: int) -> Protocol:
    return mmlu_protocol(
        shots=0, shot_split=None, sampler="none", choices=choices, letters=ascii_uppercase[:choices]
    )


def panel_of(
    told: Told, data: Dataset, folder: Path, protocols: Mapping[str, Protocol]
) -> list[Panel]:
    model, every = Predictor(told), with_panels(protocols)
    return panels(evaluate(model=model, data=data, protocols=every, out=folder / "run"))


def checks_of(told: Told, choices: int, folder: Path) -> tuple[Panel, dict[str, Check]]:
    (panel,) = panel_of(told, quiz(choices), folder, {"letters": letters(choices)})
    assert panel.n == 24
    return panel, {check.check: check for check in panel.checks}


def figures(check: Check) -> tuple[float, float]:
    return check.flips.value, check.change.value


def test_a_uniform_predictor_agrees_with_itself_and_is_right_as_often_as_chance(
    tmp_path: Path,
) -> None:
    panel, checks = checks_of(uniform, 4, tmp_path)
    for name in ("order", "labels", "none", "drop"):
        assert figures(checks[name]) == pytest.approx((0, 0), abs=1e-6)
    assert checks["order"].at_most == pytest.approx(1 - 0.05 ** (1 / 24))
    assert checks["clone"].change.value == pytest.approx(2 / 5 - 1 / 4)
    for check in checks.values():  # what stands beside every other predictor is what this one has
        assert figures(check) == pytest.approx(
            (check.flips.uniform, check.change.uniform), abs=1e-6
        )
    assert panel.places == pytest.approx([0.25] * 4)
    assert panel.uniform == 0.25
    (order, *_) = cell_texts(panel_table("panel", panel, {}))
    assert (order[0], order[4]) == ("order", "11.7")


@pytest.mark.costly("six runs")
def test_who_knows_does_not_flip_and_who_takes_the_first_place_does(tmp_path: Path) -> None:
    for choices, flips in ((2, 1), (3, 12 / 15), (4, 9 / 10)):
        _, known = checks_of(by_text, choices, tmp_path / f"known {choices}")
        assert figures(known["order"]) == pytest.approx((0, 0), abs=1e-6)
        panel, first = checks_of(by_place, choices, tmp_path / f"first {choices}")
        assert first["order"].flips.value == pytest.approx(flips)
        assert panel.places == pytest.approx(by_place([""] * choices))
        orders = {tuple(range(choices)): by_place([""] * choices)}
        for name in first["order"].versions:
            order, _ = shown_order(name.rpartition("=")[2], choices)
            orders[order] = [
                by_place([""] * choices)[order.index(choice)] for choice in range(choices)
            ]
        assert len(orders) == {2: 2, 3: 6, 4: 5}[choices]
        pairs = [np.abs(np.subtract(*pair)).sum() / 2 for pair in combinations(orders.values(), 2)]
        assert first["order"].change.value == pytest.approx(np.mean(pairs), abs=1e-6)


def test_of_a_table_of_probabilities_every_gap_is_what_the_formula_says(tmp_path: Path) -> None:
    """The worked example: p = .5, .3, .2 and .35, .25, .10, .30 with None of these has the gap .05714."""
    panel, checks = checks_of(lambda options: TABLE[len(options)], 3, tmp_path)
    assert figures(checks["none"]) == pytest.approx((0, 0.057143), abs=1e-5)
    places = [cloned_choice(f"q{number}", 3) for number in range(24)]
    gaps = [abs(TABLE[4][place] + TABLE[4][3] - TABLE[3][place]) for place in places]
    assert checks["clone"].change.value == pytest.approx(np.mean(gaps), abs=1e-6)
    merged = [
        np.argmax([share + 0.3 * (k == place) for k, share in enumerate(TABLE[4][:3])])
        for place in places
    ]
    assert checks["clone"].flips.value == pytest.approx(np.mean(np.array(merged) != 0))
    assert checks["clone"].accuracy == pytest.approx(
        np.mean([k == n % 3 for n, k in enumerate(merged)])
    )
    assert figures(checks["drop"]) == pytest.approx((0, 0.7 - 0.5 / 0.8), abs=1e-6)
    assert checks["drop"].n == 16  # of the others the last option is right
    assert panel.none is not None
    assert panel.none.added == pytest.approx(0.30)
    assert panel.none.for_right == pytest.approx(np.mean(TABLE[3]))
    assert panel.accuracy == pytest.approx(1 / 3)


STATE = {"boats": 3}
CASES = [
    {
        "id": f"case{number}",
        "state": json.dumps(STATE) if number % 2 else STATE,
        "questions": {
            "place": {
                "type": "choice",
                "instructions": "Where?",
                "criteria": {"harbour": "boats", "mill": "corn"},
            },
            "near": {
                "type": "noul",
                "instructions": "A storm is near.",
                "criteria": {"true": "The note says so."},
            },
            "danger": {
                "type": "score",
                "instructions": "How great?",
                "criteria": ["none", "some", "great"],
            },
        },
        "gold": {
            "place": {"label": "harbour"},
            "near": {"label": "true"},
            "danger": {"label": "2"},
        },
    }
    for number in range(12)
]


def typed(folder: Path) -> Dataset:
    path = folder / "cases.jsonl"
    path.write_text("".join(json.dumps(case) + "\n" for case in CASES))
    return open_dataset(path)


def contrary(options: Sequence[str]) -> Sequence[float]:
    """Says yes with .8, and to the opposite with .6; of a choice of yes and no yes with .7; levels by their place."""
    if "storm" in options[0]:
        return (0.6, 0.4) if "opposite" in options[0] else (0.8, 0.2)
    own = {"yes": (0.7, 0.3), "none": (0.2, 0.3, 0.5), "great": (0.2, 0.3, 0.5)}
    return own.get(options[0], TABLE[len(options)])


@pytest.mark.costly("a run under three panels")
def test_questions_of_a_decision_endpoint_have_the_checks_of_their_kind(tmp_path: Path) -> None:
    found = panel_of(contrary, typed(tmp_path), tmp_path, resolve("decision/endpoint"))
    assert [panel.kind for panel in found] == ["choice", "noul", "score"]
    choice, noul, score = ({check.check: check for check in panel.checks} for panel in found)
    assert set(choice) == {"order", "names", "none", "clone", "state", "batch"}
    assert choice["batch"].n == 12
    assert choice["order"].flips.value == 1
    assert choice["names"].flips.value == 0
    assert (choice["state"].n, choice["state"].flips.value) == (12, 0)
    assert noul["negation"].change.value == pytest.approx(abs(0.8 + 0.6 - 1))
    assert (noul["negation"].flips.value, noul["negation"].accuracy) == (1, 0)
    assert noul["as choice"].change.value == pytest.approx(0.1)
    assert score["order"].change.value == pytest.approx(abs(1.3 + 1.3 - 2))
    assert score["order"].flips.value == 1


def by_place_of_apples(options: Sequence[str]) -> Sequence[float]:
    """Goes by the place where there is an apple, a third of all questions, and else by the text."""
    if "apple" in options:
        return by_place(options)
    return by_text(options)


def test_a_server_changes_nothing_only_if_no_probability_of_any_question_changes(
    tmp_path: Path,
) -> None:
    for told, constant in ((by_text, True), (by_place_of_apples, False)):
        out = tmp_path / told.__name__
        protocols = with_panels({"letters": letters(2)})
        evaluate(model=Predictor(told), data=quiz(2, count=6), protocols=protocols, out=out)
        write_manifest(out, replace(read_manifest(out), server=ServerRecord("a", "echo")))
        (panel,) = panels(open_run(out))
        order = {check.check: check for check in panel.checks}["order"]
        assert order.constant is constant


ITEM = Item("q", "Which?", ("a", "b", "c", "d"), (1,), "s")


@given(st.sampled_from(sorted(CHANGES)), st.integers(2, 12))
def test_orders_are_orders_and_what_a_change_is_not_for_is_no_part_of_it(
    name: str, choices: int
) -> None:
    order, _ = shown_order(name, choices) if name != "negated" else ((1, 0), False)
    assert sorted(order) == [*range(choices if name != "negated" else 2)]
    item = Item("q", "Which?", tuple(map(str, range(choices))), (choices - 2,), "s")
    changed = apply_change(name, item)
    needy = {
        "renamed",
        "state-text",
        "state-object",
        "batched",
        *(["without-last"] if choices < 3 else []),
    }
    assert (changed is None) == (CHANGES[name].kinds == ("noul",) or name in needy)
    if changed is not None:
        assert len(changed.choices) == choices + CHANGES[name].added
        assert changed.gold == item.gold


def test_a_panel_has_no_part_without_a_list_and_none_of_texts_that_are_read() -> None:
    cloze = mmlu_protocol(question="{question}", continuation=" {choice}", option="")
    assert [*variants("cloze", cloze)] == []
    with pytest.raises(ProtocolError, match="reading generate has no"):
        mmlu_protocol(
            prepare="reversed",
            reading="generate",
            score="none",
            decision="letter-match",
            new_tokens=1,
        )
    assert {each.check for each in variants("letters", letters(4))} <= {*CHECKS}


@pytest.mark.costly("a run by the command, with ten protocols")
def test_the_command_asks_a_panel_and_prints_it(tmp_path: Path) -> None:
    asked = ("--model", "fake:hash", "--data", "bundled:merrowick", "--limit", "2", "--shots", "0")
    choicewise(
        "run", *asked, "--protocol", "mmlu/harness-v0.4", "--panel", "--out", tmp_path / "run"
    )
    (panel,) = json.loads(choicewise("report", tmp_path / "run", "invariance", "--json").stdout)
    assert [check["check"] for check in panel["rows"]] == [
        "order",
        "labels",
        "none",
        "clone",
        "drop",
    ]
    assert panel["computed"]
    lines = choicewise("report", tmp_path / "run", "invariance").stdout
    assert all(
        heading(column) in lines
        for column in COLUMNS
        if not (column.data or column.optional or column.joined)
    )
    assert lines == Gist("repeats: ... computed once")


def test_a_panel_without_a_number_has_words_and_no_empty_table() -> None:
    nothing = {
        "n": 0,
        "accuracy": np.nan,
        "uniform": np.nan,
        "repeated": 0,
        "repeat_flips": None,
        "checks": (),
    }
    empty = Panel(protocol="p", kind="choice", computed=True, none=None, places=(), **nothing)  # type: ignore[arg-type]
    table = panel_table("p: 0 items", empty, {})
    assert (table.columns, table.rows) == ((), [])
    assert table.notes == [Gist("no item ... `choicewise report`")]
