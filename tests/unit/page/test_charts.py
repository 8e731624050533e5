"""Charts hold the numbers of their tables, and draw whatever there is."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import vl_convert
from hypothesis import given
from hypothesis import strategies as st

from choicewise import evaluate
from choicewise.errors import UsageError
from choicewise.page.charts import bump, strip
from choicewise.page.charts import chart as labels
from choicewise.page.charts import chart as theme
from choicewise.page.charts import lanes as effects
from choicewise.page.charts import lanes as ladder
from choicewise.page.charts import lanes as pair
from choicewise.page.charts import lanes as ranks
from choicewise.page.charts.chart import MIME, Chart, Record, Records
from choicewise.page.charts.kinds import KINDS, draw
from choicewise.page.study import Study, leads, make_study, pairs
from choicewise.results.ladder import Ladder, Step, main_effects
from choicewise.results.ladder import ladder as climb
from choicewise.results.outcomes import Axis
from choicewise.results.rows import Row
from choicewise.results.run import Run
from choicewise.results.summary import keep_summary
from choicewise.scoring.significance import Difference
from tests.helpers.chart_rows import HOSTILE, row, table
from tests.helpers.mmlu_data import write_mmlu


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    folder = tmp_path_factory.mktemp("runs")
    data = write_mmlu(folder / "data")
    models = ["fake:hash", "fake:oracle", "fake:anti-oracle"]
    names = ["mmlu/original", "mmlu/original-pr13", "mmlu/cloze"]
    return [evaluate(model=model, data=data, protocols=names, out=folder / model[5:]) for model in models]


@pytest.fixture(scope="module")
def study(runs: list[Run]) -> Study:
    return make_study([keep_summary(run) for run in runs])


def of_kind(values: Records, kind: str) -> list[Record]:
    return [record for record in values if record["kind"] == kind]


def drawn(spec: dict[str, Any]) -> ElementTree.Element:
    return ElementTree.fromstring(Chart("x", "x", spec).page_svg())


def parts(spec: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """(key, value) of everything in a specification but its data."""
    if isinstance(spec, dict):
        for key, part in spec.items():
            if key != "values":
                yield from parts(part, key)
    elif isinstance(spec, list | tuple):
        for part in spec:
            yield from parts(part, name)
    else:
        yield name, spec


def test_the_strip_holds_every_number_of_the_table(study: Study) -> None:
    rows = study.runs[0].rows
    numbers = of_kind(strip.values(rows), "number")
    assert len(numbers) == len(rows)
    of = {(each.protocol, each.subject): each for each in rows}
    for record in numbers:
        told = of[record["protocol"], record["subject"]]
        for name in ("value", "ci_low", "ci_high", "n", "chance", "rank", "rank_low", "rank_high", "family"):
            assert record[name] == getattr(told, name)
    lanes = [record["lane"] for record in numbers]
    tops = [record["top"] for record in of_kind(strip.values(rows), "family")]
    assert len({*lanes, *tops}) == len(lanes) + len(tops)


def test_what_is_said_of_a_number_has_all_of_it() -> None:
    told = row(protocol="mmlu/original", value=70 / 322, ci_low=0.176, ci_high=0.266, n=322)
    (record,) = of_kind(strip.values([told]), "number")
    assert record["description"] == "mmlu/original: 21.7 % of 322 items, 95 % interval 17.6 to 26.6"


def test_published_numbers_stand_beside_those_of_their_protocol(study: Study) -> None:
    values = strip.values(study.runs[0].rows)
    published = of_kind(values, "published")
    lanes = {record["protocol"]: record["lane"] for record in of_kind(values, "number")}
    assert {record["protocol"] for record in published} == {"mmlu/original-pr13"}
    assert all(record["lane"] == lanes[record["protocol"]] for record in published)
    assert 0.636 in [record["published"] for record in published]
    assert "llama-65b 63.6 %" in published[0]["description"]
    assert "2023-06-23" in published[0]["description"]


def test_chance_is_drawn_once_for_neighbours_that_share_it() -> None:
    rows = [
        row(protocol="a/1", family="letters"),
        row(protocol="a/2", family="cloze", chance=0.25),
        row(protocol="a/3", family="pairs", chance=0.5),
    ]
    lines = of_kind(strip.values(rows), "chance")
    assert [(line["chance"], line["label"]) for line in lines] == [(0.25, "chance 25.0 %"), (0.5, "chance 50.0 %")]
    assert lines[0]["last"] < lines[1]["first"]


def test_what_was_not_measured_is_no_zero() -> None:
    rows = [row(protocol="a/1", value=math.nan, ci_low=math.nan, ci_high=math.nan), row(protocol="a/2", value=0.0)]
    spec = strip.spec(strip.values(rows))
    nothing, zero = (record["value"] for record in of_kind(spec["data"]["values"], "number")[::-1])
    assert (nothing, zero) == (None, 0.0)
    texts = [element.get("aria-label", "") for element in drawn(spec).iter()]
    assert "a/1: no item was scored" in texts
    dots = [element for element in drawn(spec).iter() if element.get("aria-roledescription") == "point"]
    assert len(dots) == 1


@pytest.mark.parametrize("count", [1, 47, 121, 1001])
def test_every_number_has_a_lane_of_its_own(count: int) -> None:
    rows = [row(protocol=f"b/{place}", family=f"family {place % 5}", value=place / count) for place in range(count)]
    values = strip.values(rows)
    numbers, families = of_kind(values, "number"), of_kind(values, "family")
    lanes = {record["lane"] for record in numbers}
    assert len(lanes) == count
    spec = strip.spec(values)
    step = spec["height"]["step"]
    assert step == (9 if count < 121 else 8 if count == 121 else 1)
    for family in families:
        own = sorted(record["lane"] for record in numbers if record["family"] == family["family"])
        assert own == list(range(own[0], own[0] + len(own)))
        assert (own[0] - family["top"]) * step >= 18
        bottom = min((each["top"] for each in families if each["top"] > family["top"]), default=own[-1] + 1)
        assert (bottom - family["top"]) * step >= 28, "its name and count take two lines"
        values_down = [record["value"] for record in numbers if record["family"] == family["family"]]
        assert values_down == sorted(values_down, reverse=True)
    assert drawn(spec).tag.endswith("svg")


def test_the_ladder_holds_the_steps(study: Study) -> None:
    names = list(study.runs[0].protocols)
    climbed = climb(study.runs[0].outcomes, "mmlu/original", names[-1])
    values = ladder.ladder_values(climbed)
    start, end = of_kind(values, "end")
    steps = of_kind(values, "step")
    assert (start["after"], end["after"]) == (climbed.start_value, climbed.end_value)
    for record, step in zip(steps, climbed.steps, strict=True):
        for name in ("change", "n", "gained", "lost"):
            assert record[name] == getattr(step, name)
        assert record["after"] - record["before"] == pytest.approx(step.change)
    befores = [record["before"] for record in steps]
    assert befores == [climbed.start_value, *(record["after"] for record in steps[:-1])]


def test_a_step_names_as_many_axes_as_have_room(study: Study) -> None:
    climbed = climb(study.runs[0].outcomes, "mmlu/original", list(study.runs[0].protocols)[-1])
    long = tuple(Axis(name, "a", "b") for name in ("question", "option", "answer", "continuation"))
    wide, narrow = (
        ladder.ladder_values(replace(climbed, steps=(replace(climbed.steps[0], axes=axes),)))[1]
        for axes in (long, long[:2])
    )
    assert (wide["title"], wide["detail"]) == ("question, option, answer, 1 more", "4 axes together")
    assert narrow["title"] == "question, option"


def test_effects_hold_every_pair(study: Study) -> None:
    computed = main_effects(study.runs[0].outcomes)
    values = effects.effects_values(computed)
    for record, effect in zip(of_kind(values, "effect"), computed, strict=True):
        assert (record["mean"], record["absolute"]) == (effect.spread.mean, effect.absolute)
        ticks = [tick["change"] for tick in of_kind(values, "pair") if tick["lane"] == record["lane"]]
        assert ticks == [each.change for change in effect.changes for each in change.pairs]


def test_the_bump_chart_holds_every_rank(study: Study) -> None:
    values = bump.values(study.rows)
    names = {record["column"]: record["protocol"] for record in of_kind(values, "column")}
    told = {(each.model, each.protocol): each for each in study.rows}
    places = of_kind(values, "place")
    assert len(places) == len(study.rows)
    for record in places:
        one = told[record["model"], names[record["column"]]]
        for name in ("value", "rank", "rank_low", "rank_high", "ci_low", "ci_high"):
            assert record[name] == getattr(one, name)


def test_lines_of_equal_rank_lie_beside_each_other() -> None:
    values = bump.values(table({"a": {"p": 0.5}, "b": {"p": 0.5}, "c": {"p": 0.2}}))
    places = {record["model"]: record["place"] for record in of_kind(values, "place")}
    assert places["a"] < 1.5 < places["b"] < places["c"] == 3


def test_crossings_are_thick_where_both_orders_are_significant() -> None:
    rows = table({"a": {"p": 0.9, "q": 0.1, "r": 0.8}, "b": {"p": 0.1, "q": 0.9, "r": 0.2}})
    both = {("p", "a", "b"), ("q", "b", "a")}
    assert of_kind(bump.values(rows), "crossing") == []
    assert of_kind(bump.values(rows, {("p", "a", "b")}), "crossing") == []
    crossings = of_kind(bump.values(rows, both, first="r"), "crossing")
    columns = {record["column"]: record["protocol"] for record in of_kind(bump.values(rows, both, first="r"), "column")}
    assert {record["model"] for record in crossings} == {"a", "b"}
    assert {frozenset((columns[record["column"]], columns[record["next"]])) for record in crossings} == {
        frozenset(("p", "q"))
    }
    assert "significantly" in crossings[0]["description"]


def test_significant_leads_are_those_of_the_pairs(study: Study) -> None:
    compared = pairs(study)
    ahead_of = leads(study, compared)
    labelled = study.labels
    expected = sum(each.p_holm <= 0.05 for one in compared for each in one.contests)
    assert len(ahead_of) == expected
    assert all(ahead in labelled and behind in labelled for _, ahead, behind in ahead_of)
    better = {run.label: run.row_of for run in study.runs}
    assert all(better[ahead][name].value > better[behind][name].value for name, ahead, behind in ahead_of)


@pytest.mark.costly("whole pages")
@pytest.mark.parametrize("models", [1, 2, 4, 10, 200])
@pytest.mark.parametrize("columns", [1, 60])
@pytest.mark.parametrize("rank", [True, False])
def test_names_of_models_never_lie_on_each_other(models: int, columns: int, rank: bool) -> None:
    rows = table(
        {f"m{model}": {f"p{at}": (model * 7 + at * 3) % 5 / 5 for at in range(columns)} for model in range(models)}
    )
    values = bump.values(rows)
    spec = bump.spec(values, rank=rank)
    scale = next(each["encoding"]["y"]["scale"] for each in spec["layer"] if "scale" in each["encoding"].get("y", {}))
    pixels = spec["height"] / (scale["domain"][1] - scale["domain"][0])
    places = sorted(record["label_at"] for record in of_kind(spec["data"]["values"], "model"))
    assert len(places) == (models if models <= 20 else bump.SHOWN)
    assert all((after - before) * pixels > 14 for before, after in pairwise(places))
    assert len(of_kind(values, "column")) == columns
    lines = {record["line"] for record in of_kind(values, "line")}
    assert len(lines) == max(models - bump.SHOWN, 0)


def many(models: int, columns: int) -> list[Row]:
    """Some of them tied, in orders that change."""
    names = {f"p{at}": at for at in range(columns)}
    return table(
        {
            f"m{model}": {name: (model * 37 + at * 11) % 101 / 101 for name, at in names.items()}
            for model in range(models)
        }
    )


@pytest.mark.costly("whole pages")
def test_two_hundred_models_are_drawn() -> None:
    rows = table(
        {f"m{model}": {f"p{at}": (model * 37 + at * 11) % 101 / 101 for at in range(60)} for model in range(200)}
    )
    image = drawn(bump.spec(bump.values(rows)))
    said = [each.get("aria-label", "") for each in image.iter() if each.get("aria-roledescription") == "line mark"]
    assert sum(re.fullmatch(r"m\d+: rank \d+ to \d+ under 60 protocols", text) is not None for text in said) == 192
    assert drawn(ranks.ranks_spec(ranks.ranks_values(rows))).tag.endswith("svg")


@pytest.mark.costly("whole pages")
def test_ten_thousand_numbers_are_drawn() -> None:
    rows = table({"m": {f"p{at}": at % 101 / 101 for at in range(10_000)}})
    image = drawn(strip.spec(strip.values(rows)))
    dots = [each for each in image.iter() if each.get("aria-roledescription") == "point" and each.get("aria-label")]
    assert len(dots) == 10_000


def test_ranks_count_the_protocols(study: Study) -> None:
    values = ranks.ranks_values(study.rows)
    for model in study.labels:
        told = [each.rank for each in study.rows if each.model == model]
        counts = {record["rank"]: record["count"] for record in of_kind(values, "rank") if record["model"] == model}
        assert counts == {rank: told.count(rank) for rank in told}
    one = ranks.ranks_values(study.rows, "mmlu/original")
    for record in of_kind(one, "model"):
        (alone,) = [each for each in study.rows if (each.model, each.protocol) == (record["model"], "mmlu/original")]
        assert (record["low"], record["high"], record["median"]) == (alone.rank_low, alone.rank_high, alone.rank)


def test_the_pair_holds_every_difference(study: Study) -> None:
    compared = pairs(study)[0]
    left, right = study.labels[compared.left], study.labels[compared.right]
    records = of_kind(pair.pair_values(left, right, compared.contests), "difference")
    told = {each.protocol: each for each in compared.contests}
    for record in records:
        contest = told[record["protocol"]]
        assert record["value"] == contest.difference.value
        assert record["significant"] == (contest.p_holm <= 0.05)
        assert json.dumps([record["low"], record["high"]]) == json.dumps(
            [contest.difference.ci_low, contest.difference.ci_high]
        )
    assert [record["value"] for record in records] == sorted((record["value"] for record in records), reverse=True)


NAN = math.nan


def without_numbers() -> dict[str, dict[str, Any]]:
    """Every chart where some or all numbers are not there."""
    rows = table({"a": {"p": 0.5, "q": NAN, "r": 0.6}, "b": {"p": 0.4, "q": 0.7, "r": 0.7}, "c": {"p": NAN, "r": NAN}})
    step = Step((Axis("score", "a", "b"),), False, "x", "s", 0.5, NAN, NAN, 0, 0, 0, 0, (), ())
    nothing = replace(step, value=NAN)
    nobody, one = Difference(NAN, NAN, NAN, NAN, 0, 3), Difference(0.1, NAN, NAN, NAN, 1, 0)
    contests = [Contest("p", nobody, NAN), Contest("q", one)]
    return {
        "bump": bump.spec(bump.values(rows)),
        "bump of values": bump.spec(bump.values(rows), rank=False),
        "ranks": ranks.ranks_spec(ranks.ranks_values(rows)),
        "strip": strip.spec(strip.values([each for each in rows if each.model == "c"])),
        "ladder": ladder.ladder_spec(ladder.ladder_values(Ladder("m", "d", "p", "q", NAN, NAN, 0, 0, (step, nothing)))),
        "pair": pair.pair_spec(pair.pair_values("a", "b", contests)),
        "empty strip": strip.spec(strip.values([])),
        "empty bump": bump.spec(bump.values([])),
        "empty ranks": ranks.ranks_spec(ranks.ranks_values([])),
        "empty effects": effects.effects_spec(effects.effects_values([])),
        "empty pair": pair.pair_spec(pair.pair_values("a", "b", [])),
    }


@dataclass(frozen=True)
class Contest:
    """What a chart of two models reads."""

    protocol: str
    difference: Difference
    p_holm: float = 0.01


DOTS = {"bump": 4, "bump of values": 4, "ranks": 4, "strip": 0, "ladder": 1, "pair": 1}


@pytest.mark.parametrize("name", [*DOTS, "empty strip", "empty bump", "empty ranks", "empty effects", "empty pair"])
def test_numbers_that_are_not_there_are_not_drawn(name: str) -> None:
    spec = without_numbers()[name]
    assert "NaN" not in json.dumps(spec)
    image = drawn(spec)
    dots = [each for each in image.iter() if each.get("aria-roledescription") == "point" and each.get("aria-label")]
    assert len(dots) == DOTS.get(name, 0)


def test_runs_on_different_data_have_no_order(tmp_path: Path) -> None:
    runs = []
    for name, questions in (("one", 6), ("two", 7)):
        data = write_mmlu(tmp_path / name, questions=questions)
        runs.append(evaluate(model="fake:hash", data=data, protocols=["mmlu/original"], out=tmp_path / f"run {name}"))
    with pytest.raises(
        UsageError, match="bump needs several models: the runs are on different data; name those on one"
    ):
        runs[0].chart("bump", runs[1])


CHOICES: dict[str, dict[str, Any]] = {
    "strip": {"models": ["hash"]},
    "ladder": {"models": ["hash"], "start": "mmlu/original", "end": "mmlu/cloze:sum"},
    "effects": {"models": ["hash"]},
    "pair": {"models": ["hash", "oracle"]},
}


@pytest.mark.parametrize("name", [kind.name for kind in KINDS])
@pytest.mark.parametrize("width", [400, 640, 1100])
def test_every_chart_is_drawn_at_every_width(study: Study, name: str, width: int) -> None:
    models = {"models": [f"fake:{model}" for model in CHOICES.get(name, {}).get("models", [])]}
    chart = draw(name, study, **CHOICES.get(name, {}) | (models if models["models"] else {}), width=width)
    page = ElementTree.fromstring(chart.page_svg())
    assert float(page.get("width", 0)) == pytest.approx(width, abs=2) or name == "bump"
    assert [element for element in page.iter() if element.get("style")] == []
    colours = {value for key, value in parts(chart.for_page()) if isinstance(value, str) and value.startswith("#")}
    assert colours == set()
    assert not any(str(value).startswith("var(") for _, value in parts(chart.spec))
    assert chart.title in chart.spec["description"]
    said = [
        element for element in page.iter() if element.get("role") == "graphics-symbol" and element.get("aria-label")
    ]
    assert len(said) >= 3
    assert not any(element.get("aria-roledescription") == "axis" for element in said), "an axis is no mark"


def expressions(spec: Any) -> set[str]:
    return {
        value for key, value in parts(spec) if key in ("labelExpr", "expr", "calculate", "filter", "signal", "test")
    }


def test_names_of_data_are_never_part_of_an_expression_and_stay_short() -> None:
    values = {name: {other: 0.1 * place for place, other in enumerate(HOSTILE)} for name in HOSTILE[:4]}
    plain = {f"m{place}": {f"p{at}": 0.1 for at in range(len(HOSTILE))} for place in range(4)}
    for make in (
        lambda rows: strip.spec(strip.values(rows, HOSTILE)),
        lambda rows: bump.spec(bump.values(rows)),
        lambda rows: ranks.ranks_spec(ranks.ranks_values(rows)),
    ):
        hostile, harmless = make(table(values)), make(table(plain))
        assert expressions(hostile) == expressions(harmless)
        assert not any(str(part) in HOSTILE[:6] for _, part in parts(hostile))
        image = drawn(hostile)
        tags = {element.tag.rpartition("}")[2] for element in image.iter()}
        assert tags <= {"svg", "g", "path", "text", "line", "rect", "tspan"}
        shown = [element.text or "" for element in image.iter() if element.tag.endswith("text")]
        assert not any(char in text for text in shown for char in "\u2028\u2029\u202e\x1b\x07")
        assert max(map(len, shown)) < 80
        assert max(len(element.get("aria-label", "")) for element in image.iter()) < 500


@given(st.text(max_size=60), st.floats(1, 30))
def test_names_are_cut_to_their_width(text: str, most: float) -> None:
    shown = labels.cut(text, most)
    assert labels.em(shown) <= most or shown == "…"
    assert "\n" not in shown
    assert shown.isprintable() or not text.isprintable() or "\u200c" in text or "\u200d" in text


def test_the_middle_of_long_names_is_left_out() -> None:
    assert labels.cut("short", 10) == "short"
    long = labels.cut("a model with a name that nobody can read-13b", 10)
    assert long.startswith("a mo")
    assert long.endswith("13b")


def test_long_names_that_are_cut_stay_different() -> None:
    sizes = ("1B", "3B", "8B", "70B", "405B")
    names = [f"meta-llama/Llama-3.1-{size}-Instruct" for size in sizes]
    assert len({labels.cut(name, 10) for name in names}) == 1, "else there is nothing to mend"
    shown = labels.cut_distinct([*names, "merrow"], 10)
    assert shown["merrow"] == "merrow"
    assert [shown[name] for name in names[:3]] == ["…1B-Instruct", "…3B-Instruct", "…8B-Instruct"]
    assert len(set(shown.values())) == 6
    assert all(labels.em(each) <= 10 for each in shown.values())
    assert labels.cut_distinct(["a" * 50, "a" * 50 + "b"], 10).keys() == {"a" * 50, "a" * 50 + "b"}


@pytest.mark.parametrize("text", ["merrow-bpe-2048", "mmlu/harness-v0:pmi-answer", "WWW MM", "数学", "iill", "95.0 %"])
def test_widths_are_not_underestimated(text: str) -> None:
    spec = {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "padding": 0,
        "config": {"view": {"stroke": None}, "font": theme.FONT},
        "data": {"values": [{"text": text * 4}]},
        "width": 1,
        "height": 1,
        "mark": {"type": "text", "fontSize": 10, "align": "left"},
        "encoding": {"text": {"field": "text"}, "x": {"value": 0}},
    }
    image = ElementTree.fromstring(vl_convert.vegalite_to_svg(spec))
    assert float(image.get("width", 0)) <= 10 * labels.em(text * 4) + 1


def test_a_chart_shows_itself_with_and_without_a_renderer(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    chart = draw("bump", study)
    shown = chart._repr_mimebundle_()
    assert set(shown) == {MIME, "image/svg+xml", "text/plain"}
    assert shown[MIME] == chart.spec
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    bare = chart._repr_mimebundle_()
    assert set(bare) == {MIME, "text/plain"}
    assert "pip install 'choicewise[page]'" in bare["text/plain"]
    with pytest.raises(UsageError, match=r"choicewise\[page\]"):
        chart.png()


@pytest.mark.costly("whole pages")
def test_a_run_gives_its_charts(runs: list[Run]) -> None:
    assert "hash" in runs[0].chart("strip").title
    assert runs[0].chart("bump", *runs[1:]).title.startswith("3 models")
    assert runs[0].chart("strip", width=640).page_spec["width"] < 640


@pytest.mark.parametrize(
    ("name", "choices", "message"),
    [
        ("strp", {}, r"no chart is called 'strp'; the charts are strip \("),
        (
            "bump",
            {},
            "bump needs several models: there is one run; .*; these runs can be drawn as strip, ladder, effects",
        ),
        ("pair", {}, "pair needs two models"),
        ("ladder", {}, "a ladder has two ends; .* such as"),
        ("ladder", {"start": "mmlu/original", "end": "mmlu/origin"}, "did you mean mmlu/original"),
        ("strip", {"models": ["nobody"]}, "no run is of the model 'nobody'"),
        ("strip", {"protocol": "mmlu/nothing"}, "has no protocol 'mmlu/nothing'"),
        ("strip", {"start": "mmlu/original"}, "strip has no use for start; it has models, protocol, rank"),
        ("strip", {"colour": "red"}, "no chart has a choice 'colour'"),
    ],
)
def test_a_chart_that_can_not_be_drawn_says_what_it_needs(
    runs: list[Run], name: str, choices: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        runs[0].chart(name, **choices)


def test_pages_and_charts_have_the_same_colours() -> None:
    style = (Path(theme.__file__).parents[1] / "static" / "page.css").read_text(encoding="utf-8")
    light, dark = re.findall(r":root \{([^}]*)\}", style)[:2]
    for text, colours in ((light, theme.LIGHT), (dark, theme.DARK)):
        declared = dict(re.findall(r"(--[\w-]+): (#\w+);", text))
        assert {name: declared.get(name[4:-1]) for name in colours} == dict(colours)


@pytest.mark.costly("imports in a process of its own")
def test_nothing_heavy_is_loaded_before_a_chart_is_drawn() -> None:
    heavy = {"torch", "transformers", "vl_convert", "scipy", "jinja2"}
    code = f"import sys; import choicewise.page.charts.kinds; print(*sorted({heavy!r} & set(sys.modules)))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == ""


@given(st.text(max_size=60), st.text(max_size=60), st.floats(8, 30))
def test_changes_of_an_axis_keep_both_sides(left: str, right: str, most: float) -> None:
    shown = labels.change(Axis("score", left, right), most)
    assert " → " in shown
    assert labels.em(shown) <= most + 0.01
