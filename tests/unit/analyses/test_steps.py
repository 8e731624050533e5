"""A number over checkpoints: the chart holds what the rows say, and draws whatever names and numbers there are."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from choicewise.errors import UsageError
from choicewise.extensions.analyses.charts import steps
from choicewise.extensions.analyses.charts.sections import page_sections
from choicewise.extensions.analyses.signal import Training
from choicewise.page.charts.chart import MODELS, NARROW, Chart, Records
from choicewise.page.charts.kinds import draw
from choicewise.page.document import Content, document, inside_items
from choicewise.page.study import Study, read_study
from choicewise.results.number import Number
from choicewise.store.folder import read_manifest, write_manifest
from choicewise.util.text import plain
from tests.helpers.chart_rows import HOSTILE, row
from tests.helpers.page_runs import Page, write_run

pytest.importorskip("vl_convert", reason="pages need choicewise[page]")

ASKED = ("mmlu/original", "mmlu/cloze:sum")


def of_kind(values: Records, kind: str) -> list[dict[str, Any]]:
    return [record for record in values if record["kind"] == kind]


def line(name: str, at: Sequence[float], **about: Any) -> steps.Line:
    rows: list[Number | None] = [
        row(name, value=0.3 + 0.01 * place, **about) for place in range(len(at))
    ]
    return steps.Line(Training(name, "step", tuple(at), tuple(range(len(at)))), rows)


def drawn(values: Records, width: int = 760) -> ElementTree.Element:
    return ElementTree.fromstring(Chart("x", "x", steps.spec(values, width)).page_svg())


def marks(image: ElementTree.Element) -> list[str]:
    labels = (
        each.get("aria-label")
        for each in image.iter()
        if each.get("aria-roledescription") == "point"
    )
    return [label for label in labels if label]


@pytest.mark.costly("the first one that draws loads the renderer")
def test_every_checkpoint_is_a_dot_with_its_number_and_interval() -> None:
    training, rows = line("org/m", [1000, 2000, 4000])
    rows[1] = None
    values = steps.values([steps.Line(training, rows)])
    assert [(each["at"], each["value"]) for each in of_kind(values, "point")] == [
        (1000, 0.3),
        (4000, 0.32),
    ]
    assert of_kind(values, "point")[0]["description"] == (
        "org/m, step 1,000: 30.0 % of 100 items, 95 % interval 25.0 to 35.0"
    )
    assert steps.cells(values)[1] == ["org/m", "4,000", "32.0 %", "27.0 – 37.0", "100"]
    (chance,) = of_kind(values, "chance")
    assert (chance["value"], chance["label"]) == (0.25, "chance 25.0 %")
    assert marks(drawn(values)) == [each["description"] for each in of_kind(values, "point")]


def test_numbers_that_are_no_shares_have_an_axis_of_their_own() -> None:
    training, _ = line("org/m", [1, 2, 3])
    rows = [
        row(value=1.5 - place / 10, metric="bpb", ci_low=1.0, ci_high=2.0) for place in range(3)
    ]
    values = steps.values([steps.Line(training, rows)])
    assert of_kind(values, "chance") == []
    assert [each["value_text"] for each in of_kind(values, "point")] == [
        *map(plain, (1.5, 1.4, 1.3))
    ]
    assert "%" not in json.dumps(steps.spec(values)["layer"])
    assert marks(drawn(values))


@pytest.mark.parametrize(
    ("at", "kind", "marked"),
    [
        ([1000, 2000, 3000], None, None),
        ([1, 10, 1000], "log", [1, 10, 100, 1000]),
        ([0, 4, 2000], "symlog", [0, 10, 100, 1000]),
        ([0, 1, 2], None, None),
    ],
)
def test_steps_of_many_sizes_stand_at_powers_of_ten(
    at: list[float], kind: str | None, marked: list[int] | None
) -> None:
    values = steps.values([line("m", at)])
    across = [
        layer["encoding"]["x"]
        for layer in steps.spec(values)["layer"]
        if "scale" in layer["encoding"].get("x", {})
    ]
    assert {each["scale"].get("type") for each in across} == {kind}
    assert across[0]["axis"].get("values") == marked
    assert ("powers of ten" in steps.caption(values)) == (kind is not None)
    assert len(marks(drawn(values))) == 3


@pytest.mark.parametrize("width", [400, NARROW, 960])
def test_training_runs_have_names_and_colours_while_there_are_any(width: int) -> None:
    many = [line(f"run {place} {'x' * 40}", [1, 2, 3]) for place in range(len(MODELS) + 2)]
    values = steps.values(many)
    slots = [each["slot"] for each in of_kind(values, "training")]
    assert slots == [*range(len(MODELS)), None, None]
    assert "further training runs" in steps.caption(values)
    image = drawn(values, width)
    assert float(image.get("width", "0")) <= width
    assert len(marks(image)) == 3 * len(many)
    places = [
        each["label_at"]
        for each in steps.spec(values, width)["data"]["values"]
        if each["kind"] == "training"
    ]
    assert len(set(places)) == len(places)
    assert not any(
        each["kind"] == "training" and "label_at" in each
        for each in steps.spec(values[:4])["data"]["values"]
    )


@pytest.mark.parametrize("name", HOSTILE)
def test_names_do_no_harm(name: str) -> None:
    values = steps.values([line(name, [1, 2, 3]), line("other", [1, 2, 3])])
    image = drawn(values)
    assert not [each for each in image.iter() if each.tag.endswith("script")]
    assert len(marks(image)) == 6


def test_nothing_and_values_that_are_all_the_same_can_be_drawn() -> None:
    flat = [row(value=0.5, ci_low=math.nan, ci_high=math.nan) for _ in range(3)]
    training, _ = line("m", [1, 2, 3])
    values = steps.values([steps.Line(training, flat)])
    assert "intervals" not in steps.caption(values)
    assert len(marks(drawn(values))) == 3
    assert drawn(steps.values([])).tag.endswith("svg")


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    return read_study(checkpoints(tmp_path_factory.mktemp("runs")))


def checkpoints(folder: Path) -> list[Path]:
    """Three checkpoints of one training run, and a model without a step."""
    runs = []
    for name in ("m@step3", "m@step1", "m@step2", "other"):
        run = write_run(folder / name, protocols=ASKED)
        manifest = read_manifest(run)
        write_manifest(run, replace(manifest, job={}))
        runs.append(run)
    return runs


def test_checkpoints_stand_in_order_under_every_protocol(study: Study) -> None:
    known = steps.over_steps(study.runs)
    assert set(known) == {row.identity.protocol for row in study.rows}
    ((training, rows),) = known["mmlu/original"]
    assert (training.name, training.at) == ("m", (1, 2, 3))
    assert [each and each.identity.model for each in rows] == ["m@step1", "m@step2", "m@step3"]
    assert next(iter(known)) == "mmlu/original"
    assert steps.over_steps(study.runs[:2]) == {}


@pytest.mark.costly("it makes a page")
def test_the_page_has_a_section_of_them_with_every_protocol(study: Study) -> None:
    content = Content(study)
    page = Page(document(content, "21 Nov 2026", inside_items(content, 1)))
    assert "training" in [about["id"] for tag, about in page.elements if tag == "section"]
    shown = [cells for cells in page.tables["Numbers over checkpoints"] if len(cells) > 1]
    assert [cells[:2] for cells in shown[1:]] == [["m", "1"], ["m", "2"], ["m", "3"]]
    ((_, text),) = [(about, text) for about, text in page.scripts if about.get("id") == "steps-0"]
    kept = json.loads(text)
    assert set(kept["charts"]) == set(kept["rows"]) == {row.identity.protocol for row in study.rows}
    assert kept["rows"]["mmlu/original"] == shown[1:]


@pytest.mark.costly("sections of a page")
def test_a_page_without_steps_has_no_such_section(study: Study) -> None:
    assert "training" in [section.name for section in page_sections(study)]
    assert "training" not in [section.name for section in page_sections(Study(study.runs[2:]))]


def test_it_is_a_chart_by_name(study: Study) -> None:
    chart = draw("steps", study, protocol="mmlu/cloze:sum")
    assert chart.title.startswith("mmlu/cloze:sum on ")
    assert chart.title.endswith(" over 3 checkpoints")
    assert draw("steps", study).title.startswith("mmlu/original")
    with pytest.raises(
        UsageError,
        match="under 'mmlu/orignal'; did you mean",
    ):
        draw("steps", study, protocol="mmlu/orignal")
    with pytest.raises(
        UsageError,
        match="needs three checkpoints",
    ):
        draw("steps", Study(study.runs[2:]))
    data = replace(
        study.runs[0].manifest, dataset=replace(study.runs[0].manifest.dataset, digest="f" * 64)
    )
    other = replace(study.runs[0], manifest=data)
    with pytest.raises(UsageError, match="runs are on different"):
        draw("steps", Study((*study.runs, other)))
