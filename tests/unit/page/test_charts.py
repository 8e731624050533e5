"""Charts hold the numbers of their tables, and draw whatever there is."""

import json
import math
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
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
from choicewise.page.charts import bump, lanes, strip
from choicewise.page.charts import chart as theme
from choicewise.page.charts.chart import MIME, Chart, Record, Records
from choicewise.page.charts.choices import Choices
from choicewise.page.charts.kinds import chart_kinds, draw
from choicewise.page.study import Study, leads, make_study, pairs
from choicewise.results.ladder import Ladder, Step, main_effects
from choicewise.results.ladder import ladder as climb
from choicewise.results.number import Number
from choicewise.results.outcomes import Axis
from choicewise.results.run import Run
from choicewise.results.summary import keep_summary
from choicewise.scoring.significance import Difference
from tests.helpers.chart_rows import HOSTILE, row, table
from tests.helpers.mmlu_data import write_mmlu


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    folder = tmp_path_factory.mktemp("runs")
    asked = {
        "data": write_mmlu(folder / "data", questions=12),
        "protocols": ["mmlu/original", "mmlu/original-pr13", "mmlu/cloze"],
    }
    return [
        evaluate(model=f"fake:{name}", **asked, out=folder / name)
        for name in ("hash", "oracle", "anti-oracle")
    ]


@pytest.fixture(scope="module")
def study(runs: list[Run]) -> Study:
    return make_study([keep_summary(run) for run in runs])


def of_kind(values: Records, kind: str) -> list[Record]:
    return [record for record in values if record["kind"] == kind]


def drawn(spec: dict[str, Any]) -> ElementTree.Element:
    return ElementTree.fromstring(Chart("x", "x", spec).page_svg())


def dots(image: ElementTree.Element) -> list[ElementTree.Element]:
    return [
        each
        for each in image.iter()
        if each.get("aria-roledescription") == "point" and each.get("aria-label")
    ]


def chosen(record: Any, names: str) -> list[Any]:
    """What a record of a chart, or the row that it is of, has under each of ``names``."""
    content = record.as_json() if isinstance(record, Number) else record
    return [
        content[name] if isinstance(content, dict) else getattr(content, name)
        for name in names.split()
    ]


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
    values, names = (
        strip.values(study.runs[0].rows),
        "value ci_low ci_high n chance rank rank_low rank_high family",
    )
    numbers, of = (
        of_kind(values, "number"),
        {(each.identity.protocol, each.identity.subject): each for each in study.runs[0].rows},
    )
    assert len(numbers) == len(of) == len(study.runs[0].rows)
    for record in numbers:
        assert chosen(record, names) == chosen(of[record["protocol"], record["subject"]], names)
    places = [record["lane"] for record in numbers] + [
        record["top"] for record in of_kind(values, "family")
    ]
    assert len(set(places)) == len(places)
    told = row(protocol="mmlu/original", value=70 / 322, ci_low=0.176, ci_high=0.266, n=322)
    (record,) = of_kind(strip.values([told]), "number")
    assert record["description"] == "mmlu/original: 21.7 % of 322 items, 95 % interval 17.6 to 26.6"


def test_published_numbers_stand_beside_those_of_their_protocol(study: Study) -> None:
    values = strip.values(study.runs[0].rows)
    published, own = of_kind(values, "published"), "mmlu/original-pr13"
    (lane,) = [record["lane"] for record in of_kind(values, "number") if record["protocol"] == own]
    assert {(record["protocol"], record["lane"]) for record in published} == {(own, lane)}
    assert 0.636 in [record["published"] for record in published]
    assert "llama-65b 63.6 %" in published[0]["description"]
    assert "2023-06-23" in published[0]["description"]


def test_chance_is_drawn_once_for_neighbours_that_share_it() -> None:
    families = ("letters", 0.25), ("cloze", 0.25), ("pairs", 0.5)
    rows = [
        row(protocol=f"a/{n}", family=name, chance=chance)
        for n, (name, chance) in enumerate(families)
    ]
    lines = of_kind(strip.values(rows), "chance")
    assert [(line["chance"], line["label"]) for line in lines] == [
        (0.25, "chance 25.0 %"),
        (0.5, "chance 50.0 %"),
    ]
    assert lines[0]["last"] < lines[1]["first"]


def test_what_was_not_measured_is_no_zero() -> None:
    rows = [
        row(protocol="a/1", value=math.nan, ci_low=math.nan, ci_high=math.nan),
        row(protocol="a/2", value=0.0),
    ]
    spec = strip.spec(strip.values(rows))
    nothing, zero = (record["value"] for record in of_kind(spec["data"]["values"], "number")[::-1])
    assert (nothing, zero) == (None, 0.0)
    image = drawn(spec)
    assert "a/1: no item was scored" in [element.get("aria-label") for element in image.iter()]
    assert (
        len([element for element in image.iter() if element.get("aria-roledescription") == "point"])
        == 1
    )


@pytest.mark.parametrize(("count", "step"), [(1, 8), (47, 8), (121, 8), (1001, 1)])
def test_every_number_has_a_lane_of_its_own(count: int, step: int) -> None:
    rows = [
        row(protocol=f"b/{place}", family=f"family {place % 5}", value=place / count)
        for place in range(count)
    ]
    values = strip.values(rows)
    numbers, families, spec = (
        of_kind(values, "number"),
        of_kind(values, "family"),
        strip.spec(values),
    )
    assert len({record["lane"] for record in numbers}) == count
    assert spec["height"]["step"] == step
    for family in families:
        members = [record for record in numbers if record["family"] == family["family"]]
        own, values_down = (
            sorted(record["lane"] for record in members),
            [record["value"] for record in members],
        )
        assert own == list(range(own[0], own[0] + len(own)))
        assert (own[0] - family["top"]) * step >= 18
        bottom = min(
            (each["top"] for each in families if each["top"] > family["top"]), default=own[-1] + 1
        )
        assert (bottom - family["top"]) * step >= 28, "its name and count take two lines"
        assert values_down == sorted(values_down, reverse=True)
    assert drawn(spec).tag.endswith("svg")


def test_the_ladder_holds_the_steps_and_names_as_many_axes_as_have_room(study: Study) -> None:
    climbed = climb(study.runs[0].outcomes, "mmlu/original", list(study.runs[0].protocols)[-1])
    values = lanes.ladder_values(climbed)
    (start, end), steps = of_kind(values, "end"), of_kind(values, "step")
    assert (start["after"], end["after"]) == (climbed.start_value, climbed.end_value)
    for record, step in zip(steps, climbed.steps, strict=True):
        assert chosen(record, "change n gained lost") == chosen(step, "change n gained lost")
        assert record["after"] - record["before"] == pytest.approx(step.change)
    befores = [record["before"] for record in steps]
    assert befores == [climbed.start_value, *(record["after"] for record in steps[:-1])]
    axes_of_text = ("question", "option", "answer", "continuation", "separator")
    long = tuple(Axis(name, "a", "b") for name in axes_of_text)
    wide, narrow = (
        lanes.ladder_values(replace(climbed, steps=(replace(climbed.steps[0], axes=axes),)))[1]
        for axes in (long, long[:2])
    )
    assert (wide["title"], wide["detail"]) == (
        "question, option, answer, 2 more",
        "5 axes together",
    )
    assert narrow["title"] == "question, option"


def test_effects_hold_every_pair(study: Study) -> None:
    computed = main_effects(study.runs[0].outcomes)
    values = lanes.effects_values(computed)
    for record, effect in zip(of_kind(values, "effect"), computed, strict=True):
        assert (record["mean"], record["absolute"]) == (effect.spread.mean, effect.absolute)
        ticks = [
            tick["change"] for tick in of_kind(values, "pair") if tick["lane"] == record["lane"]
        ]
        assert ticks == [each.change for change in effect.changes for each in change.pairs]


def test_the_bump_chart_holds_every_rank(study: Study) -> None:
    values, names = bump.values(study.rows), "value rank rank_low rank_high ci_low ci_high"
    columns = {record["column"]: record["protocol"] for record in of_kind(values, "column")}
    of, places = (
        {(each.identity.model, each.identity.protocol): each for each in study.rows},
        of_kind(values, "place"),
    )
    assert len(places) == len(study.rows)
    for record in places:
        assert chosen(record, names) == chosen(
            of[record["model"], columns[record["column"]]], names
        )
    equal = bump.values(table({"a": {"p": 0.5}, "b": {"p": 0.5}, "c": {"p": 0.2}}))
    at = {record["model"]: record["place"] for record in of_kind(equal, "place")}
    assert at["a"] < 1.5 < at["b"] < at["c"] == 3, "lines of equal rank lie beside each other"


def test_crossings_are_thick_where_both_orders_are_significant() -> None:
    rows = table({"a": {"p": 0.9, "q": 0.1, "r": 0.8}, "b": {"p": 0.1, "q": 0.9, "r": 0.2}})
    for leads_known in ((), ({("p", "a", "b")},)):
        assert of_kind(bump.values(rows, *leads_known), "crossing") == []
    values = bump.values(rows, {("p", "a", "b"), ("q", "b", "a")}, first="r")
    crossings = of_kind(values, "crossing")
    columns = {record["column"]: record["protocol"] for record in of_kind(values, "column")}
    assert {record["model"] for record in crossings} == {"a", "b"}
    assert {frozenset((columns[each["column"]], columns[each["next"]])) for each in crossings} == {
        frozenset("pq")
    }
    assert "significantly" in crossings[0]["description"]


def test_significant_leads_are_those_of_the_pairs(study: Study) -> None:
    compared = pairs(study)
    ahead_of = leads(study, compared)
    assert len(ahead_of) == sum(each.significant for one in compared for each in one.contests) > 0
    of = {run.label: run.row_of for run in study.runs}
    assert all(of[ahead][name].value > of[behind][name].value for name, ahead, behind in ahead_of)


def moving(models: int, columns: int, by: int, step: int, of: int) -> list[Number]:
    """Some of them tied, in orders that change from column to column."""
    return table(
        {
            f"m{at}": {f"p{n}": (at * by + n * step) % of / of for n in range(columns)}
            for at in range(models)
        }
    )


@pytest.mark.parametrize("models", [1, 2, 4, 10, 100])
@pytest.mark.parametrize("columns", [1, 20])
@pytest.mark.parametrize("rank", [True, False])
def test_names_of_models_never_lie_on_each_other(models: int, columns: int, rank: bool) -> None:
    values = bump.values(moving(models, columns, 7, 3, 5))
    spec = bump.spec(values, rank=rank)
    scale = next(
        each["encoding"]["y"]["scale"]
        for each in spec["layer"]
        if "scale" in each["encoding"].get("y", {})
    )
    pixels = spec["height"] / (scale["domain"][1] - scale["domain"][0])
    places = sorted(record["label_at"] for record in of_kind(spec["data"]["values"], "model"))
    assert len(places) == (models if models <= 20 else bump.SHOWN)
    assert all((after - before) * pixels > 14 for before, after in pairwise(places))
    assert len(of_kind(values, "column")) == columns
    lines = {record["line"] for record in of_kind(values, "line")}
    assert len(lines) == max(models - bump.SHOWN, 0)


@pytest.mark.costly("two hundred models are drawn")
def test_two_hundred_models_are_drawn() -> None:
    rows = moving(200, 20, 37, 11, 101)
    image = drawn(bump.spec(bump.values(rows)))
    said = [
        each.get("aria-label", "")
        for each in image.iter()
        if each.get("aria-roledescription") == "line mark"
    ]
    assert (
        sum(
            re.fullmatch(r"m\d+: rank \d+ to \d+ under 20 protocols", text) is not None
            for text in said
        )
        == 192
    )
    assert drawn(lanes.ranks_spec(lanes.ranks_values(rows))).tag.endswith("svg")


@pytest.mark.costly("ten thousand numbers are drawn")
def test_ten_thousand_numbers_are_drawn() -> None:
    assert len(dots(drawn(strip.spec(strip.values(moving(1, 10_000, 0, 1, 101)))))) == 10_000


def test_ranks_count_the_protocols(study: Study) -> None:
    ranks = of_kind(lanes.ranks_values(study.rows), "rank")
    for model in study.labels:
        told = Counter(each.ranks.rank for each in study.rows if each.identity.model == model)
        assert {
            record["rank"]: record["count"] for record in ranks if record["model"] == model
        } == told
    for record in of_kind(lanes.ranks_values(study.rows, "mmlu/original"), "model"):
        (alone,) = [
            each
            for each in study.rows
            if (each.identity.model, each.identity.protocol) == (record["model"], "mmlu/original")
        ]
        assert (record["low"], record["high"], record["median"]) == (
            alone.ranks.low,
            alone.ranks.high,
            alone.ranks.rank,
        )


def test_the_pair_holds_every_difference(study: Study) -> None:
    compared = pairs(study)[0]
    left, right = study.labels[compared.left], study.labels[compared.right]
    records = of_kind(lanes.pair_values(left, right, compared.contests), "difference")
    of = {each.protocol: each for each in compared.contests}
    assert len(records) == len(of)
    for record in records:
        contest = of[record["protocol"]]
        assert repr(chosen(record, "value low high")) == repr(
            chosen(contest.difference, "value ci_low ci_high")
        )
        assert record["significant"] == contest.significant
    assert [record["value"] for record in records] == sorted(
        (record["value"] for record in records), reverse=True
    )


@dataclass(frozen=True)
class Contest:
    """What a chart of two models reads."""

    protocol: str
    difference: Difference
    p_holm: float = 0.01
    significant: bool = True


NAN = math.nan
UNEQUAL = table(
    {
        "a": {"p": 0.5, "q": NAN, "r": 0.6},
        "b": {"p": 0.4, "q": 0.7, "r": 0.7},
        "c": {"p": NAN, "r": NAN},
    }
)
STEP = Step(
    axes=(Axis("score", "a", "b"),),
    together=False,
    name="x",
    signature="s",
    value=0.5,
    change=NAN,
    se=NAN,
    n=0,
    missing=0,
    gained=0,
    lost=0,
    gained_items=(),
    lost_items=(),
)
CLIMBED = Ladder(
    model="m",
    dataset="d",
    start="p",
    end="q",
    start_value=NAN,
    end_value=NAN,
    start_n=0,
    end_n=0,
    steps=(STEP, replace(STEP, value=NAN)),
)
NOBODY, ONE = (
    Difference(value=NAN, se=NAN, ci_low=NAN, ci_high=NAN, n=0, missing=3),
    Difference(value=0.1, se=NAN, ci_low=NAN, ci_high=NAN, n=1, missing=0),
)
CONTESTS = [Contest("p", NOBODY, NAN), Contest("q", ONE)]
WITHOUT_NUMBERS = {
    "bump": (lambda: bump.spec(bump.values(UNEQUAL)), 4),
    "bump of values": (lambda: bump.spec(bump.values(UNEQUAL), rank=False), 4),
    "ranks": (lambda: lanes.ranks_spec(lanes.ranks_values(UNEQUAL)), 4),
    "strip": (
        lambda: strip.spec(strip.values([each for each in UNEQUAL if each.identity.model == "c"])),
        0,
    ),
    "ladder": (lambda: lanes.ladder_spec(lanes.ladder_values(CLIMBED)), 1),
    "pair": (lambda: lanes.pair_spec(lanes.pair_values("a", "b", CONTESTS)), 1),
    "empty strip": (lambda: strip.spec(strip.values([])), 0),
    "empty bump": (lambda: bump.spec(bump.values([])), 0),
    "empty ranks": (lambda: lanes.ranks_spec(lanes.ranks_values([])), 0),
    "empty effects": (lambda: lanes.effects_spec(lanes.effects_values([])), 0),
    "empty pair": (lambda: lanes.pair_spec(lanes.pair_values("a", "b", [])), 0),
}
"""Every chart where some or all numbers are not there, and how many dots it has."""


@pytest.mark.parametrize(("spec", "count"), WITHOUT_NUMBERS.values(), ids=WITHOUT_NUMBERS)
def test_numbers_that_are_not_there_are_not_drawn(
    spec: Callable[[], dict[str, Any]], count: int
) -> None:
    assert "NaN" not in json.dumps(spec())
    assert len(dots(drawn(spec()))) == count


ENDS = {"start": "mmlu/original", "end": "mmlu/cloze:sum"}
CHOICES: dict[str, dict[str, Any]] = {
    name: {"models": ["fake:hash"]} for name in ("strip", "ladder", "effects", "calibration")
}
CHOICES["ladder"] |= ENDS
CHOICES["pair"] = {"models": ["fake:hash", "fake:oracle"]}


def test_kinds_look_at_choices_that_a_user_has() -> None:
    choices = {field.name for field in fields(Choices)}
    assert all({*kind.uses} <= choices for kind in chart_kinds())


OF_OTHER_RUNS = "steps", "along"


@pytest.mark.parametrize(
    "name", [kind.name for kind in chart_kinds() if kind.name not in OF_OTHER_RUNS]
)
@pytest.mark.parametrize("width", [400, 640, 1100])
def test_every_chart_is_drawn_at_every_width(study: Study, name: str, width: int) -> None:
    chart = draw(name, study, **CHOICES.get(name, {}), width=width)
    page = ElementTree.fromstring(chart.page_svg())
    assert float(page.get("width", 0)) == pytest.approx(width, abs=2) or name == "bump"
    assert [element for element in page.iter() if element.get("style")] == []
    colours = {
        value
        for key, value in parts(chart.for_page())
        if isinstance(value, str) and value.startswith("#")
    }
    assert colours == set()
    assert not any(str(value).startswith("var(") for _, value in parts(chart.spec))
    assert chart.title in chart.spec["description"]
    said = [
        each
        for each in page.iter()
        if each.get("role") == "graphics-symbol" and each.get("aria-label")
    ]
    assert len(said) >= 3
    assert not any(element.get("aria-roledescription") == "axis" for element in said), (
        "an axis is no mark"
    )


def expressions(spec: Any) -> set[str]:
    names = "labelExpr", "expr", "calculate", "filter", "signal", "test"
    return {value for key, value in parts(spec) if key in names}


def test_names_of_data_are_never_part_of_an_expression_and_stay_short() -> None:
    values = {
        name: {other: 0.1 * place for place, other in enumerate(HOSTILE)} for name in HOSTILE[:4]
    }
    plain = {f"m{place}": {f"p{at}": 0.1 for at in range(len(HOSTILE))} for place in range(4)}
    for make in (
        lambda rows: strip.spec(strip.values(rows, HOSTILE)),
        lambda rows: bump.spec(bump.values(rows)),
        lambda rows: lanes.ranks_spec(lanes.ranks_values(rows)),
    ):
        hostile, harmless = make(table(values)), make(table(plain))
        assert expressions(hostile) == expressions(harmless)
        assert not any(str(part) in HOSTILE[:6] for _, part in parts(hostile))
        image = list(drawn(hostile).iter())
        assert {each.tag.rpartition("}")[2] for each in image} <= {
            "svg",
            "g",
            "path",
            "text",
            "line",
            "rect",
            "tspan",
        }
        shown = [each.text or "" for each in image if each.tag.endswith("text")]
        assert not {*"\u2028\u2029\u202e\x1b\x07"} & {*"".join(shown)}
        assert max(map(len, shown)) < 80
        assert max(len(each.get("aria-label", "")) for each in image) < 500


@given(st.text(max_size=60), st.text(max_size=60), st.floats(1, 30))
def test_names_are_cut_to_their_width_and_changes_keep_both_sides(
    text: str, other: str, most: float
) -> None:
    shown = theme.cut(text, most)
    assert theme.em(shown) <= most or shown == "…"
    assert "\n" not in shown
    assert shown.isprintable() or not text.isprintable() or "\u200c" in text or "\u200d" in text
    change = theme.change(Axis("score", text, other), most)
    assert " → " in change
    assert theme.em(change) <= most + 0.01 or most < 8


def test_the_end_of_long_names_is_left_out_and_they_stay_different() -> None:
    assert theme.cut("short", 10) == "short"
    assert theme.cut("harness-v0:pmi-answer-space", 14) == "harness-v0:pmi-answer…"
    assert theme.cut("merrowunigramonethousand", 6) == "merrowun…", "a word that is too long"
    names = [f"llama/Llama-3.1-{size}-Conversations" for size in ("1B", "3B", "8B", "70B", "405B")]
    assert len({theme.cut(name, 8) for name in names}) == 1, "else there is nothing to mend"
    shown = theme.cut_distinct([*names, "merrow"], 8)
    assert shown["merrow"] == "merrow"
    assert [shown[name] for name in names[:3]] == [
        f"…{size}-Conversa…" for size in ("1B", "3B", "8B")
    ]
    assert len(set(shown.values())) == 6
    assert all(theme.em(each) <= 8 for each in shown.values())
    texts = theme.cut_distinct(["a" * 50, "a" * 49 + "b"], 10).values()
    assert len(set(texts)) == 2


def test_what_all_names_share_is_left_out() -> None:
    names = ["mmlu/original@shots=0", "mmlu/helm@shots=0"]
    assert theme.without_shared(names) == dict(zip(names, ("original", "helm"), strict=True))
    other = [*names, "arc/helm"]
    assert theme.without_shared(other) == {name: name for name in other}


@pytest.mark.parametrize(
    "text", ["merrow-bpe-2048", "mmlu/harness-v0:pmi-answer", "WWW MM", "数学", "iill", "95.0 %"]
)
def test_widths_are_not_underestimated(text: str) -> None:
    spec = {
        **{
            "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
            "padding": 0,
            "width": 1,
            "height": 1,
        },
        **{
            "config": {"view": {"stroke": None}, "font": theme.FONT},
            "data": {"values": [{"text": text * 4}]},
        },
        "mark": {"type": "text", "fontSize": 10, "align": "left"},
        "encoding": {"text": {"field": "text"}, "x": {"value": 0}},
    }
    image = ElementTree.fromstring(vl_convert.vegalite_to_svg(spec))
    assert float(image.get("width", 0)) <= 10 * theme.em(text * 4) + 1


def test_a_chart_shows_itself_with_and_without_a_renderer(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    chart = draw("bump", study)
    shown = chart._repr_mimebundle_()
    assert set(shown) == {MIME, "image/svg+xml", "text/plain"}
    assert shown[MIME] == chart.spec
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    bare = chart._repr_mimebundle_()
    assert set(bare) == {MIME, "text/plain"}
    assert "pip install --constraint constraints.txt '.[page]'" in bare["text/plain"]
    with pytest.raises(UsageError, match=r"pip install .*\.\[page\]"):
        chart.png()


@pytest.mark.parametrize(
    ("name", "choices", "message"),
    [
        ("strp", {}, r"chart is called 'strp'; .* strip \("),
        (
            "bump",
            {},
            "bump needs several models: .* strip, ladder, eff",
        ),
        ("pair", {}, "pair needs two models"),
        ("ladder", {}, "ladder has two ends; "),
        ("ladder", {"start": "mmlu/original", "end": "mmlu/origin"}, "did you mean mmlu/original"),
        ("strip", {"models": ["nobody"]}, "model 'nobody'"),
        ("strip", {"protocol": "mmlu/nothing"}, "has no protocol 'mmlu/nothing'"),
        (
            "strip",
            {"start": "mmlu/original"},
            "start does not apply .* models, protocol, rank",
        ),
        ("strip", {"colour": "red"}, "choice 'colour'"),
    ],
)
def test_a_chart_that_can_not_be_drawn_says_what_it_needs(
    runs: list[Run], name: str, choices: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        runs[0].chart(name, **choices)


@pytest.mark.costly("a run and charts of others")
def test_a_run_gives_its_charts_and_runs_on_different_data_have_no_order(
    runs: list[Run], tmp_path: Path
) -> None:
    assert "hash" in runs[0].chart("strip").title
    assert runs[0].chart("bump", *runs[1:]).title.startswith("3 models")
    assert runs[0].chart("strip", width=640).page_spec["width"] < 640
    data = write_mmlu(tmp_path / "data", questions=1)
    other = evaluate(
        model="fake:hash", data=data, protocols=["mmlu/original"], out=tmp_path / "run"
    )
    with pytest.raises(UsageError, match="bump needs several models: .* different data"):
        runs[0].chart("bump", other)


def test_pages_and_charts_have_the_same_colours() -> None:
    style = (Path(theme.__file__).parents[1] / "static" / "page.css").read_text(encoding="utf-8")
    light, dark = re.findall(r":root \{([^}]*)\}", style)[:2]
    for text, colours in ((light, theme.LIGHT), (dark, theme.DARK)):
        declared = dict(re.findall(r"(--[\w-]+): (#\w+);", text))
        assert {name: declared.get(name[4:-1]) for name in colours} == dict(colours)


@pytest.mark.costly("imports in a process of its own")
def test_nothing_heavy_is_loaded_before_a_chart_is_drawn() -> None:
    heavy = {"torch", "transformers", "vl_convert", "scipy", "jinja2"}
    code = f"import sys; import choicewise.extensions.plot.kinds; print(*sorted({heavy!r} & set(sys.modules)))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == ""
