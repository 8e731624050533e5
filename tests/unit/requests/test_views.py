"""Views of a question and what is made of them; requests that somebody else rendered."""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest
import scipy.special
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from choicewise import Run, evaluate
from choicewise.data.dataset import Dataset
from choicewise.data.items import Item
from choicewise.errors import DataError, ProtocolError
from choicewise.models.fake import HashModel
from choicewise.protocols.catalogue import one, resolve
from choicewise.protocols.protocol import Protocol, parse_signature, signature
from choicewise.protocols.readings import CALIBRATIONS, CONTENT_FREE, DRAWING, PERMUTED, VIEWS
from choicewise.protocols.shots import drawn_items
from choicewise.requests.render import RenderedRequests, read_rendered, render, rendered_requests
from choicewise.requests.request import View
from choicewise.scoring.calibrate import (
    NOISE,
    batch,
    calibrated,
    contextual,
    order_predictions,
    view_geometric_mean,
)
from tests.helpers.protocols import mmlu_protocol, requests

ITEMS = tuple(
    Item(f"{n}", f"Which is {n}?", tuple(f"{n}{mark}" for mark in "pqrs"[: 4 - n % 2]), (n % 3,))
    for n in range(22)
)
"""Of four and of three options in turn; PriDe draws one of each kind."""

NAMES = ("permuted-cyclic", "permuted-full", "pride", "batch-calibrated", "contextual-calibrated")


def protocol(name: str) -> Protocol:
    return resolve(f"options/{name}")[f"options/{name}"]


def run(
    protocols: dict[str, Protocol], items: Sequence[Item], out: Path, model: Any = None, **how: Any
) -> Run:
    return evaluate(
        model=model or HashModel(),
        data=Dataset("d", {"test": items}),
        protocols=protocols,
        out=out,
        **how,
    )


def scores(found: Run) -> dict[str, list[float]]:
    seen: dict[str, list[float]] = {}
    for row in found.scores().to_pylist():
        seen.setdefault(row["item"], []).append(row["score"])
    return seen


def turned(item: Item, order: tuple[int, ...]) -> Item:
    """The item with option ``order[place]`` in each place."""
    choices = tuple(item.choices[option] for option in order)
    return replace(item, choices=choices, gold=tuple(map(order.index, item.gold)))


class Plain:
    """Shares of the labels, of items that are asked one by one as they stand."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.asked = 0

    def shares(self, items: Iterable[Item]) -> list[list[float]]:
        plain = replace(protocol("permuted-cyclic"), views="given", calibration="none")
        self.asked += 1
        numbered = [replace(item, id=str(number)) for number, item in enumerate(items)]
        found = scores(run({"plain": plain}, numbered, self.out / str(self.asked)))
        totals = {name: sum(map(math.exp, own)) for name, own in found.items()}
        return [
            [math.exp(score) / totals[item.id] for score in found[item.id]] for item in numbered
        ]

    def permuted(self, item: Item, orders: list[tuple[int, ...]]) -> list[float]:
        total = [0.0] * len(item.choices)
        for shares, order in zip(
            self.shares(turned(item, order) for order in orders), orders, strict=True
        ):
            for share, option in zip(shares, order, strict=True):
                total[option] += share / len(orders)
        return [math.log(share) for share in total]

    def contextual(self, item: Item) -> list[float]:
        empty = [
            replace(item, question=text, choices=(text,) * len(item.choices))
            for text in ("N/A", "", "[MASK]")
        ]
        own, *others = self.shares([item, *empty])
        return [
            math.log(share / like) for share, like in zip(own, np.mean(others, axis=0), strict=True)
        ]

    def pride(self, items: list[Item], sample: list[Item]) -> list[list[float]]:
        priors = []
        for each in sample:
            observed = self.shares(turned(each, order) for order in rotations(len(each.choices)))
            geometric = np.exp(np.mean(np.log(observed), axis=0))
            priors.append(geometric / geometric.sum())
        prior = np.mean(priors, axis=0)
        return [
            [math.log(p / q) for p, q in zip(shares, prior, strict=True)]
            for shares in self.shares(items)
        ]


def rotations(options: int) -> list[tuple[int, ...]]:
    return [tuple((turn + place) % options for place in range(options)) for turn in range(options)]


@pytest.mark.costly("half a second where the first of its file pays for imports")
def test_permutations_and_content_free_inputs_equal_items_that_stand_so(tmp_path: Path) -> None:
    plain, items = Plain(tmp_path / "plain"), ITEMS[:2]
    found = {name: scores(run({name: protocol(name)}, items, tmp_path / name)) for name in NAMES}
    for item in items:
        every = list(permutations(range(len(item.choices))))
        assert found["permuted-cyclic"][item.id] == pytest.approx(
            plain.permuted(item, rotations(len(item.choices)))
        )
        assert found["permuted-full"][item.id] == pytest.approx(plain.permuted(item, every))
        assert found["contextual-calibrated"][item.id] == pytest.approx(
            plain.contextual(item), abs=1e-6
        )
        assert found["batch-calibrated"][item.id] == pytest.approx(
            [0.0] * len(item.choices), abs=1e-9
        )


def test_pride_takes_the_prior_of_each_kind_from_the_items_drawn(tmp_path: Path) -> None:
    drawn = drawn_items(Dataset("d", {"test": ITEMS}), "test", 0)
    of_kind = [
        [item for item in ITEMS if item.id in drawn and len(item.choices) == kind]
        for kind in (4, 3)
    ]
    assert [len(items) for items in of_kind] == [1, 1]
    seen, plain = (
        scores(run({"pride": protocol("pride")}, ITEMS, tmp_path / "pride")),
        Plain(tmp_path / "plain"),
    )
    for kind, sample in enumerate(of_kind):
        items = ITEMS[kind:4:2]
        for item, expected in zip(items, plain.pride(items, sample), strict=True):
            assert seen[item.id] == pytest.approx(expected, abs=1e-6)


def test_the_draw_is_of_the_seed_and_the_ids_alone(tmp_path: Path) -> None:
    many = tuple(
        replace(ITEMS[0], id=f"{number}", subject=f"s{number % 3}") for number in range(400)
    )
    data = Dataset("d", {"test": many, "dev": ITEMS})
    drawn = drawn_items(data, "test", 0)
    assert (len(drawn), drawn_items(Dataset("e", {"test": many[::-1]}), "test", 0)) == (20, drawn)
    assert drawn_items(data, "dev", 0) < {item.id for item in ITEMS}
    others = [drawn_items(data, "test", seed) for seed in range(1, 60)]
    assert len(set(others)) == 59
    places = [int(item) for each in others for item in each]
    assert (
        scipy.stats.kstest(places, scipy.stats.randint(0, 400).cdf).pvalue > 0.01
    )  # not some places more than others
    recipes, orders = {"p": protocol("pride")}, {}
    for name, how in {"whole": {}, "limit": {"limit": 50}, "subject": {"subjects": ["s1"]}}.items():
        spans = evaluate(
            model=HashModel(), data=data, protocols=recipes, out=tmp_path / name, **how
        ).tables.spans
        orders[name] = set(spans.filter(pc.greater(spans["part"], 0))["item"].to_pylist())
    assert (orders["whole"], orders["limit"]) == (drawn, drawn & {item.id for item in many[:150]})
    assert orders["subject"] == drawn & {item.id for item in many[1::3]}
    with pytest.raises(ProtocolError, match="views cyclic-5% .* needs a seed"):
        replace(protocol("pride"), seed=None)


def test_batch_calibration_takes_off_the_mean_of_the_items_of_a_kind(tmp_path: Path) -> None:
    seen, plain = (
        scores(run({"b": protocol("batch-calibrated")}, ITEMS[:4], tmp_path / "b")),
        Plain(tmp_path / "plain"),
    )
    shares = np.array(plain.shares(ITEMS[:4:2]))
    np.testing.assert_allclose(
        [seen["0"], seen["2"]], np.log(shares / shares.mean(axis=0)), atol=1e-6
    )


def test_turning_the_options_turns_the_averages_and_nothing_else(tmp_path: Path) -> None:
    for name, order in (("permuted-cyclic", (1, 2, 3, 0)), ("permuted-full", (2, 0, 3, 1))):
        items = ITEMS[:6:2]
        one = scores(run({name: protocol(name)}, items, tmp_path / name / "one"))
        other = scores(
            run(
                {name: protocol(name)},
                [turned(item, order) for item in items],
                tmp_path / name / "other",
            )
        )
        for item in items:
            assert [one[item.id][option] for option in order] == pytest.approx(
                other[item.id], rel=1e-9
            )


def test_what_pride_asks_is_among_what_the_rotations_ask(tmp_path: Path) -> None:
    cyclic, pride = protocol("permuted-cyclic"), protocol("pride")
    both = run(
        {"cyclic": cyclic, "pride": pride, "same": replace(pride, views="cyclic")},
        ITEMS,
        tmp_path / "both",
    )
    alone = run({"cyclic": cyclic}, ITEMS, tmp_path / "alone")
    assert both.tables.observations.num_rows == alone.tables.observations.num_rows
    assert [each.decisions.missing.sum() for each in both.measurements.values()] == [0, 0, 0]
    consistent = {row.identity.protocol: row.diagnosis.permutation_sibling for row in both.rows()}
    assert (consistent["cyclic"], consistent["pride"]) == ("cyclic", "cyclic")


def test_views_start_with_the_order_as_given() -> None:
    assert {name for names in CALIBRATIONS.values() for name in names} == set(VIEWS)
    assert set(NOISE) == set(CALIBRATIONS)
    assert {*PERMUTED, *DRAWING} < set(VIEWS)
    for options in (1, 3, 4):
        assert VIEWS["cyclic"](options, False) == rotations(options)
        assert VIEWS["full"](options, False) == list(permutations(range(options)))
        assert VIEWS["cyclic-5%"](options, True) == rotations(options)
        for name in ("given", "content-free"):
            assert (
                VIEWS[name](options, True)
                == VIEWS["cyclic-5%"](options, False)
                == [tuple(range(options))]
            )


def test_a_view_stands_after_the_same_shots_with_the_continuation_of_each_option() -> None:
    item = Item("1", "Which?", ("x", "y"), (0,), fields={"hint": "no"})
    recipe = mmlu_protocol(
        views="cyclic", choices=2, shots=1, header="H:", question="{hint} {question}\n{options}"
    )
    request = render(recipe, item, [replace(item, question="Shot?")])
    assert request.views == (View("no Which?\nA. y\nB. x\n", (" B", " A")),)
    empty = render(replace(recipe, views="content-free"), item, [])
    assert [view.query for view in empty.views] == [
        f"{text} {text}\nA. {text}\nB. {text}\n" for text in CONTENT_FREE
    ]
    assert {(view.continuations, view.content) for view in empty.views} == {((" A", " B"), False)}


def test_more_than_four_options_have_too_many_orders(tmp_path: Path) -> None:
    items, recipes = (
        (*ITEMS[:2], Item("5", "Which?", tuple("vwxyz"), (0,))),
        {"full": protocol("permuted-full")},
    )
    with pytest.raises(DataError, match=r"5 choices, and views full .* at most 4.*views=cyclic"):
        run(recipes, items, tmp_path / "refused")
    (row,) = run(recipes, items, tmp_path / "skipped", skip_bad_items=True).rows()
    assert (row.counts.n, row.counts.missing) == (2, 1)


def test_an_added_option_counts_among_those_with_too_many_orders() -> None:
    recipe = replace(protocol("permuted-full"), prepare="dont-know")
    item = Item("4", "Which?", tuple("wxyz"), (0,))
    with pytest.raises(DataError, match=r"4 choices, and views full .*views=cyclic"):
        render(recipe, item, [])


def test_a_view_that_does_not_fit_leaves_its_item_missing_with_a_reason(tmp_path: Path) -> None:
    model, item = HashModel(), Item("1", "Q", ("a", "b"), (0,))
    model.window = (
        1 + len("Question: Q\nA. a\nB. b\nAnswer: A") + 3
    )  # [MASK] for each of them takes 15 bytes more
    found = run({"c": protocol("contextual-calibrated")}, (item,), tmp_path / "c", model)
    assert [row.counts.missing for row in found.rows()] == [1]
    reasons = [row["missing"] for row in found.observations().to_pylist() if row["key"] is None]
    assert reasons
    assert all("window" in reason for reason in reasons)


def test_permutation_consistency_is_told_of_every_protocol_that_asks_the_same(
    tmp_path: Path,
) -> None:
    cyclic = protocol("permuted-cyclic")
    given = replace(cyclic, views="given", calibration="none")
    recipes = {
        "plain": given,
        "cyclic": cyclic,
        "other": replace(given, question="{options}{question}"),
    }
    rows = {
        row.identity.protocol: row.diagnosis
        for row in run(recipes, ITEMS[:6], tmp_path / "hash").rows()
    }
    plain, alike = Plain(tmp_path / "alone"), 0
    for item in ITEMS[:6]:
        orders = rotations(len(item.choices))
        shares = plain.shares(turned(item, order) for order in orders)
        alike += (
            len({order[int(np.argmax(own))] for own, order in zip(shares, orders, strict=True)})
            == 1
        )
    assert (
        rows["plain"].permutation_consistency == rows["cyclic"].permutation_consistency == alike / 6
    )
    assert rows["plain"].permutation_sibling == "cyclic"
    assert ("permutation" in rows["plain"].warnings) == (alike / 6 <= 0.7)
    assert rows["other"].permutation_sibling is None
    sure = run(recipes, ITEMS[:6], tmp_path / "oracle", "fake:oracle")
    assert {row.identity.protocol: row.diagnosis.permutation_consistency for row in sure.rows()}[
        "plain"
    ] == 1
    assert sure.measurements["cyclic"].decisions.credit.tolist() == [1.0] * 6


def test_choices_only_shows_no_question_and_is_set_beside_the_labels(tmp_path: Path) -> None:
    recipes = {name: protocol(name) for name in ("choices-only", "permuted-cyclic")}
    assert render(recipes["choices-only"], ITEMS[1], []).context() == "A. 1p\nB. 1q\nC. 1r\nAnswer:"
    rows = {
        row.identity.protocol: row.diagnosis
        for row in run(recipes, ITEMS, tmp_path, "fake:oracle").rows()
    }
    assert rows["permuted-cyclic"].choices_sibling == "choices-only"
    assert "choices-only" in rows["permuted-cyclic"].warnings
    of_log = {
        name: replace(each, metric="log-score", calibration="none")
        for name, each in recipes.items()
    }
    found = run(of_log, ITEMS, tmp_path / "log", "fake:hash").rows()
    assert [row.diagnosis.choices_sibling for row in found] == [
        None,
        None,
    ]  # no share of items, and above 1


@pytest.mark.parametrize("calibration", [name for name in CALIBRATIONS if name != "none"])
def test_metrics_of_probabilities_look_at_calibrated_scores(
    calibration: str, tmp_path: Path
) -> None:
    seed = 1 if CALIBRATIONS[calibration][0] in DRAWING else None
    plain = replace(
        protocol("permuted-cyclic"),
        views=CALIBRATIONS[calibration][0],
        calibration=calibration,
        seed=seed,
    )
    recipes = {
        metric: replace(plain, metric=metric, ties="first")
        for metric in ("acc", "brier", "log-score")
    }
    found = run(recipes, ITEMS[:6], tmp_path / "run").measurements
    calibrated_scores = found["acc"].scores
    assert calibrated_scores is not None
    for item, start, brier, log in zip(
        ITEMS,
        found["acc"].evidence.item_offsets,
        found["brier"].credit,
        found["log-score"].credit,
        strict=False,
    ):
        shares = scipy.special.softmax(calibrated_scores[start : start + len(item.choices)])
        right = np.arange(len(item.choices)) == item.gold[0]
        assert brier == pytest.approx(((shares - right) ** 2).sum())
        assert log == pytest.approx(-math.log(shares[item.gold[0]]))


def test_a_geometric_mean_over_orders_has_a_floor_and_sums_to_one() -> None:
    """By hand: shares .5, .3, .2 and .2, .6, .2, then a view in which one option is impossible."""
    shares = np.array([[[0.5, 0.3, 0.2], [0.2, 0.6, 0.2]], [[0.25, 0.75, 0.0], [0.25, 0.25, 0.5]]])
    with np.errstate(divide="ignore"):
        found = np.exp(view_geometric_mean(np.log(shares) - 3.0))
    roots = np.sqrt([[0.1, 0.18, 0.04], [0.0625, 0.1875, 0.5e-12]])
    np.testing.assert_allclose(found, roots / roots.sum(axis=1, keepdims=True), rtol=1e-9)


SEEN = arrays(np.float64, (4, 5, 3), elements=st.floats(-30, 0))


@given(seen=SEEN)
def test_calibrated_takes_items_of_a_kind_together(seen: np.ndarray) -> None:
    items = np.array([0, 3, 4, 7, 10, 13])  # the second has one option
    single = np.arange(13) == 3
    parts = [np.insert(view.ravel(), 3, -1.0) for view in seen.swapaxes(0, 1)]
    found = calibrated("batch", "given", parts, items)
    np.testing.assert_allclose(found[~single].reshape(4, 3), batch(seen[:, 0]), atol=1e-9)
    found = calibrated("contextual", "content-free", parts, items)
    each = [contextual(item[:1], item[1:])[0] for item in seen]
    np.testing.assert_allclose(found[~single].reshape(4, 3), each, atol=1e-9)
    assert np.isnan(
        calibrated("permutation", "full", parts, items)[~single]
    ).all()  # five views of six orders


@given(seen=SEEN, noise=st.floats(0, 0.1), data=st.data())
@pytest.mark.parametrize("name", [name for name in NOISE if name != "none"])
def test_noise_moves_a_score_as_far_as_said(
    name: str, seen: np.ndarray, noise: float, data: st.DataObject
) -> None:
    moved = seen + data.draw(arrays(np.float64, seen.shape, elements=st.floats(-noise, noise)))
    views, items = CALIBRATIONS[name][0], np.arange(0, 13, 3)
    parts = ([view.ravel() for view in each.swapaxes(0, 1)] for each in (seen, moved))
    one, other = (calibrated(name, views, each, items) for each in parts)
    change = (other - one).reshape(4, 3)
    change -= change.mean(
        axis=1, keepdims=True
    )  # what all options of an item have in common decides nothing
    assert ((change.max(axis=1) - change.min(axis=1)) <= 2 * NOISE[name] * noise + 1e-9).all()


def test_order_predictions_follow_the_options_and_miss_what_was_not_seen() -> None:
    items = np.array([0, 3, 5])
    parts = [[0.0, 1, 2, 1, 0], [2.0, 1, 0, 1, 0], [0.0, 0, 1, math.nan, math.nan]]
    found = order_predictions("cyclic", [np.array(part) for part in parts], items)
    assert found.tolist() == [[2, 0], [0, 0], [2, 0]]
    parts[1][4] = math.nan
    assert order_predictions("cyclic", [np.array(part) for part in parts], items)[
        :, 1
    ].tolist() == [0, -1, 0]


PARK = (
    Item("1", "What did Lily see?", ("a big red ball", "a dog", "your mom"), (1,), "park"),
    Item("2", "Where do birds live?", ("in a tree", "in the sea"), (0,), "park"),
)
PARK_QUIZ = Dataset("quiz", {"test": PARK})
ROWS: list[dict[str, Any]] = [
    {
        "item": "a",
        "subject": "s",
        "context": "One and",
        "continuations": [" two", " three"],
        "gold": 0,
    },
    {
        "item": "b",
        "subject": "s",
        "contexts": ["Two and", "Ten and"],
        "continuations": [" one"] * 2,
        "gold": [0, 1],
    },
]


def listed_scores(run: Run) -> list[tuple[str, int, float]]:
    return [(row["item"], row["choice"], row["score"]) for row in run.scores().to_pylist()]


def run_rendered(data: Dataset, protocol: Protocol, out: Path, *rendered: RenderedRequests) -> Run:
    return evaluate(
        model=HashModel(), data=data, protocols={"p": protocol}, rendered=rendered, out=out
    )


def test_rendered_requests_score_like_the_templates_that_rendered_them(tmp_path: Path) -> None:
    protocol = one("options/cloze:token_mean").protocol
    lines = [
        {"item": each.item.id, "subject": each.item.subject, "context": each.context()}
        | {"continuations": list(each.continuations), "gold": list(each.gold)}
        for each in requests(protocol, PARK_QUIZ, "park")
    ]
    file = tmp_path / "quiz.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    rendered = read_rendered(file)
    same = rendered.protocol(
        "quiz", score=protocol.score, fit=protocol.fit, boundary=protocol.boundary
    )
    ours = run_rendered(PARK_QUIZ, protocol, tmp_path / "ours")
    theirs = run_rendered(rendered.dataset, same, tmp_path / "theirs", rendered)
    assert listed_scores(theirs) == listed_scores(ours)
    assert theirs.observations()["key"].to_pylist() == ours.observations()["key"].to_pylist()
    assert (parse_signature(signature(same)), same.requests) == (same, rendered.digest)


def test_choices_may_have_contexts_of_their_own(tmp_path: Path) -> None:
    rendered = rendered_requests("pairs", ROWS)
    found = run_rendered(rendered.dataset, rendered.protocol("pairs"), tmp_path, rendered)
    contexts = {
        (row["item"], row["choice"]): row["context"] for row in found.observations().to_pylist()
    }
    assert contexts == {("a", 0): None, ("a", 1): None, ("b", 0): "Two and", ("b", 1): "Ten and"}
    by_choice = {(item, choice): score for item, choice, score in listed_scores(found)}
    assert by_choice["b", 0] != by_choice["b", 1]
    assert [row.value for row in found.rows()] == [
        pytest.approx((1 + (by_choice["a", 0] > by_choice["a", 1])) / 2)
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"continuations": " two"}, "malformed"),
        ({"continuations": [" two", 3]}, "malformed"),
        ({"gold": 2}, "does not index its 2 continuations"),
        ({"gold": []}, "does not index"),
        ({"context": None}, "needs a context"),
        ({"contexts": ["one"]}, "as many contexts as"),
    ],
)
def test_a_malformed_request_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=f"request 1 .counted from 0. .*{message}"):
        rendered_requests("file", [ROWS[1], {**ROWS[0], **change}])


def test_a_file_of_something_else_is_refused_by_line(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    for text, message in (
        ("{", "line 1: not valid JSON"),
        ("[]", "line 1: not a JSON object"),
        ("", "has no requests"),
    ):
        file.write_text(text)
        with pytest.raises(DataError, match=message):
            read_rendered(file)
    with pytest.raises(DataError, match="repeats the item 'a'"):
        rendered_requests("file", [ROWS[0], ROWS[0]])
    with pytest.raises(DataError, match="can't be read"):
        read_rendered(tmp_path / "none.jsonl")


def test_other_requests_are_another_protocol_and_must_all_be_there(tmp_path: Path) -> None:
    first, other = rendered_requests("x", ROWS), rendered_requests("x", ROWS[::-1])
    assert first.protocol("x").prompt_digest != other.protocol("x").prompt_digest
    with pytest.raises(
        ProtocolError, match="axis shots is 5, but the requests .* were rendered elsewhere"
    ):
        first.protocol("x", shots=5)
    with pytest.raises(
        ProtocolError, match=f"the requests {first.digest[:12]} of a .* were rendered elsewhere"
    ):
        run_rendered(first.dataset, first.protocol("x"), tmp_path / "run")
    few = RenderedRequests("x", first.requests_by_item)
    with pytest.raises(DataError, match="x has no request .* '1'"):
        run_rendered(PARK_QUIZ, few.protocol("x"), tmp_path / "run", few)
