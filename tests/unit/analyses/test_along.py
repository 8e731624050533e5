"""Answers along thoughts, held against a plain loop over the observations, and as a report and a page show them."""

import json
import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import mean, median
from xml.etree import ElementTree

import numpy as np
import pytest

from choicewise import evaluate
from choicewise.extensions.analyses.along import AlongThought, along_thoughts
from choicewise.extensions.analyses.along_report import along_lines, run_tables
from choicewise.extensions.analyses.charts import along as chart
from choicewise.page.charts.kinds import draw
from choicewise.page.document import Content, document, inside_items
from choicewise.page.study import read_study
from choicewise.results.run import Run
from choicewise.running.observe import CUT_THOUGHT
from choicewise.util.text import percent
from tests.helpers.commands import choicewise
from tests.helpers.page_runs import Page
from tests.helpers.thinking import Wavering, along, quiz, scripts

LIMIT, SHARES = 60, (0, 0.25, 0.5, 0.75, 1)


def thoughts(count: int, seed: int) -> tuple[list[int], list[str]]:
    """Right answers, and thoughts that name letters: the longer they go on, the more often the right one."""
    draw_, golds, written = np.random.default_rng(seed), list[int](), list[str]()
    for _ in range(count):
        golds.append(int(draw_.integers(0, 4)))
        size = int(draw_.integers(6, 120))
        right = draw_.random(size) < np.linspace(0.3, 0.9, size)
        letters = ["ABCD"[golds[-1] if hit else draw_.integers(0, 4)] for hit in right]
        written.append(
            "".join(letter if draw_.random() < 0.2 else "m" for letter in letters) + "\n"
        )
    return golds, written


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    golds, written = thoughts(40, 5)
    model = Wavering(scripts(written, ["\n\nAnswer: A"] * len(golds), True), True)
    protocols = {
        "free": along(110),
        "limited": along(12, thought_tokens=LIMIT),
        "half": along(110, score="at_50"),
    }
    return evaluate(
        model=model,
        data=quiz(golds),
        protocols=protocols,
        out=tmp_path_factory.mktemp("along") / "run",
    )


def plain(run: Run, name: str, forced: bool) -> list[dict[str, list[float]]]:
    """By item: the tokens, the answer, whether it is right and how probable, at each of the five places."""
    prompt = run.protocols[name].prompt_digest
    rows = [row for row in run.observations().to_pylist() if row["prompt"] == prompt]
    gold = {row["item"]: row["gold"][0] for row in run.tables.items.to_pylist()}
    items = []
    for item in dict.fromkeys(row["item"] for row in rows):
        own = [row for row in rows if row["item"] == item]
        (text,) = (row for row in own if row["choice"] == -1)
        if any(row["missing"] for row in own) or bool(text["forced"]) != forced:
            continue
        about: dict[str, list[float]] = {"tokens": [], "answer": [], "right": [], "p": []}
        for part in range(5):
            scores = [
                sum(row["logprobs"]) for row in own if row["part"] == part and row["choice"] >= 0
            ]
            about["tokens"].append(
                next(
                    r["thought_tokens"] or 0 for r in own if r["part"] == part and r["choice"] == 0
                )
            )
            about["answer"].append(scores.index(max(scores)))
            about["right"].append(about["answer"][-1] == gold[item])
            about["p"].append(math.exp(scores[gold[item]]) / sum(map(math.exp, scores)))
        items.append(about)
    return items


def settles(answers: list[float]) -> int:
    return next(place for place in range(5) if len(set(answers[place:])) == 1)


@pytest.mark.parametrize(
    ("name", "ended"), [("free", "itself"), ("limited", "itself"), ("limited", "limit")]
)
def test_every_number_is_that_of_a_plain_loop(run: Run, name: str, ended: str) -> None:
    (found,) = (
        each for each in along_thoughts(run) if (each.protocol, each.ended) == (name, ended)
    )
    items = plain(run, name, ended == "limit")
    assert found.n == len(items) > 8
    for place, (share, point) in enumerate(zip(SHARES, found.points, strict=True)):
        assert point.share == share
        assert point.tokens == median(item["tokens"][place] for item in items)
        assert point.accuracy == pytest.approx(mean(item["right"][place] for item in items))
        assert point.probability == pytest.approx(
            mean(item["p"][place] for item in items), abs=1e-6
        )
        assert point.accuracy_low < point.accuracy < point.accuracy_high
        assert point.probability_low <= point.probability <= point.probability_high
        assert point.open == pytest.approx(mean(settles(item["answer"]) > place for item in items))
    assert found.points[-1].open == 0
    settled = [settles(item["answer"]) for item in items]
    assert found.settled == {share: settled.count(place) for place, share in enumerate(SHARES)}
    assert found.settled_share == median(SHARES[place] for place in settled)
    behind = [
        item["tokens"][4] - item["tokens"][place]
        for item, place in zip(items, settled, strict=True)
    ]
    assert found.tokens_after == median(behind)
    moved = [item for item in items if len(set(item["answer"])) > 1]
    assert found.turns.turned == len(moved)
    assert found.turns.gained == sum(item["right"][4] > item["right"][0] for item in moved)
    assert found.turns.lost == sum(item["right"][4] < item["right"][0] for item in moved)
    assert found.turns.back == sum(item["answer"][4] == item["answer"][0] for item in moved)
    for budget in found.budgets:
        within = [sum(tokens <= budget.tokens for tokens in item["tokens"]) - 1 for item in items]
        pairs = list(zip(items, within, strict=True))
        assert budget.share is None
        assert budget.spent == pytest.approx(mean(item["tokens"][place] for item, place in pairs))
        assert budget.accuracy == pytest.approx(mean(item["right"][place] for item, place in pairs))
        assert budget.open == pytest.approx(
            mean(settles(item["answer"]) > place for item, place in pairs)
        )
    assert all(2 * one.tokens == other.tokens for one, other in pairwise(found.budgets))


def test_thoughts_of_both_kinds_are_never_together_and_what_was_cut_is_beside(run: Run) -> None:
    free, whole, closed = along_thoughts(run)
    assert [each.protocol for each in (free, whole, closed)] == ["free", "limited", "limited"]
    assert (whole.n, closed.n) == (whole.whole, whole.closed) == (closed.whole, closed.closed)
    assert whole.n + closed.n == 40
    (reason,) = free.missing
    assert (free.n + reason.count, free.closed) == (40, 0)
    assert reason.reason == CUT_THOUGHT
    row = {row.identity.protocol: row for row in run.rows()}
    assert row["free"].value == pytest.approx(free.points[-1].accuracy)
    assert row["half"].value == pytest.approx(free.points[2].accuracy)
    assert (row["free"].counts.n, row["half"].counts.n) == (free.n, free.n)


def test_a_run_that_never_came_to_a_thought_has_its_reasons_and_one_that_asked_none_has_nothing(
    tmp_path: Path,
) -> None:
    model = Wavering({"Question": "m" * 300}, opened=True)
    cut = evaluate(model=model, data=quiz([0, 1]), protocols={"p": along(20)}, out=tmp_path / "cut")
    (found,) = along_thoughts(cut)
    assert (found.n, found.points, found.missing[0].count) == (0, (), 2)
    assert not chart.thoughts_of(read_study([cut.folder]))
    letters = replace(along(20), reading="loglikelihood", new_tokens=None, thought="close")
    other = evaluate(
        model=model, data=quiz([0]), protocols={"p": letters}, out=tmp_path / "letters"
    )
    assert along_thoughts(other) == []
    (nothing,) = run_tables(other)
    assert "reading=along-thought" in nothing.title


def test_the_report_says_it_in_words_and_in_json(run: Run) -> None:
    known = along_thoughts(run)
    printed = choicewise("report", run.folder, "along").stdout
    for each in known:
        for point in (*each.points, *each.budgets):
            assert percent(point.accuracy) in printed
        assert all(
            line.partition(";")[0][:60] in " ".join(printed.split()) for line in along_lines(each)
        )
    tables = json.loads(choicewise("report", run.folder, "along", "--json").stdout)
    shares = [table for table in tables if table["table"] == "along"]
    assert [(each["protocol"], each["ended"], each["n"]) for each in shares] == [
        (each.protocol, each.ended, each.n) for each in known
    ]
    assert shares[0]["rows"][2]["accuracy"] == known[0].points[2].accuracy
    assert shares[0]["model"] == "thinker"
    refused = choicewise("report", run.folder, "along", "audit", code=2)
    assert "along and audit" in refused.stderr


@pytest.mark.costly("a page is drawn")
def test_the_page_draws_every_point_and_has_the_table(run: Run) -> None:
    pytest.importorskip("vl_convert", reason="pages need choicewise[page]")
    study = read_study([run.folder])
    content = Content(study)
    page = Page(document(content, "1 Jan 2026", inside_items(content)))
    said = {
        about.get("aria-label")
        for tag, about in page.elements
        if about.get("role") == "graphics-symbol"
    }
    thoughts = chart.thoughts_of(study)
    for each in thoughts:
        for table in each.tables:
            assert page.tables[table.title][1:] == table.rows
        points = [record for record in chart.values(each.answers) if record["kind"] == "point"]
        assert len(points) == 15
        assert said >= {record["description"] for record in points}
        assert all(line in page.text for line in each.lines)
    drawn = draw("along", study, protocol="limited")
    points = [record for record in drawn.spec["data"]["values"] if record["kind"] == "point"]
    known: AlongThought = thoughts[1].answers
    assert [record["value"] for record in points[:5]] == [point.accuracy for point in known.points]
    assert [record["value"] for record in points[5:10]] == [
        point.probability for point in known.points
    ]
    for width in (400, 960):
        svg = ElementTree.fromstring(draw("along", study, protocol="free", width=width).page_svg())
        assert float(svg.get("width", 0)) == pytest.approx(width, abs=2)
        assert [element for element in svg.iter() if element.get("style")] == []
