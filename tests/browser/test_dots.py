"""A dot answers where it is: hover, focus and tap show a box at it, a click opens the panel of its protocol."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from choicewise import evaluate
from choicewise.page.document import write_page
from choicewise.page.study import Study, read_study
from choicewise.results.number import Number
from choicewise.util.text import percent
from tests.helpers.browser import READY, needs_axe, needs_chromium, violations
from tests.helpers.page_runs import write_run

pytestmark = needs_chromium
DOT = '[data-chart="strip"] [role="graphics-symbol"][aria-label^="{}: "]'


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    folder = tmp_path_factory.mktemp("runs")
    return read_study(
        [write_run(folder / "hash", "fake:hash"), write_run(folder / "oracle", "fake:oracle")]
    )


@pytest.fixture(scope="module")
def address(study: Study, tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("page") / "page.html"
    write_page([run.folder for run in study.runs], out)
    return out.as_uri()


@pytest.fixture(scope="module")
def row(study: Study) -> Number:
    """A number with a warning, of the run that is seen first."""
    return next(row for row in study.runs[0].rows if row.diagnosis.warnings)


def dot(page: Any, row: Number) -> Any:
    return page.locator(DOT.format(row.identity.protocol)).locator("visible=true").first


def lines(page: Any) -> list[str]:
    """What the box says, line by line; nothing where none is shown."""
    return page.locator('[data-chart="strip"] .box:visible > *').all_text_contents()


def said(row: Number) -> list[str]:
    """The plain way: what a box has to say of a row."""
    return [
        row.identity.protocol,
        f"{percent(row.value)} % of {row.counts.n} items",
        f"95 % interval {percent(row.interval.low)} to {percent(row.interval.high)}",
        f"rank {row.ranks.rank} (95 %: {row.ranks.low} to {row.ranks.high})",
    ]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 900, 1440])
def test_the_box_is_at_the_dot_and_inside_the_page(
    tab: Callable[..., Any], address: str, study: Study, row: Number, width: int, theme: str
) -> None:
    page = tab(address, width, theme)
    for each in (row, study.runs[0].rows[0], study.runs[0].rows[-1]):
        dot(page, each).hover()
        shown = lines(page)
        assert shown[:4] == said(each)
        assert all(name in shown[4] for name in each.diagnosis.warnings)
        box, own = page.locator(".box:visible").bounding_box(), dot(page, each).bounding_box()
        above, below = own["y"] - box["y"] - box["height"], box["y"] - own["y"] - own["height"]
        assert 0 <= max(above, below) < 12
        assert box["x"] - 2 <= own["x"] + own["width"] / 2 <= box["x"] + box["width"] + 2
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
    page.mouse.move(2, 2)
    assert lines(page) == []


def test_the_keyboard_shows_the_same(tab: Callable[..., Any], address: str, row: Number) -> None:
    page = tab(address)
    dot(page, row).focus()
    assert lines(page)[:4] == said(row)
    page.keyboard.press("Escape")
    assert lines(page) == []
    page.keyboard.press("ArrowDown")
    assert lines(page)[0] != row.identity.protocol
    assert lines(page)[0] in page.evaluate("document.activeElement.getAttribute('aria-label')")
    dot(page, row).press("Enter")
    assert page.locator(".panel h3").inner_text() == row.identity.protocol


def test_what_the_box_says_is_heard_from_the_dot(
    tab: Callable[..., Any], address: str, row: Number
) -> None:
    page = tab(address)
    dot(page, row).hover()
    label = dot(page, row).get_attribute("aria-label")
    assert all(line in label for line in lines(page))


def test_a_click_opens_the_panel_of_the_protocol(
    tab: Callable[..., Any], address: str, study: Study, row: Number
) -> None:
    page = tab(address)
    dot(page, row).click()
    panel = page.locator(".panel")
    panel.wait_for()
    numbers = panel.locator("tbody tr").all()
    assert [each.locator("th").inner_text() for each in numbers] == study.labels
    values = [percent(run.row_of[row.identity.protocol].value) for run in study.runs]
    assert [each.locator("td").first.inner_text() for each in numbers] == values
    assert panel.locator("pre").count() >= 2, "the prompt"
    assert panel.locator("dt").first.inner_text() != "citation"
    assert f"protocol={row.identity.protocol.replace('/', '%2F').replace(':', '%3A')}" in page.url
    for each in (page, tab(page.url)):
        assert each.locator(".panel h3").inner_text() == row.identity.protocol
        assert row.identity.protocol in each.locator(".in-view").inner_text()
    each.locator(".panel").get_by_text("start the ladder here").click()
    assert each.locator('#why select[name="from"]').input_value() == row.identity.protocol
    panel.get_by_role("button", name="Close").click()
    assert panel.count() == 0
    assert "protocol=" not in page.url


@pytest.mark.parametrize("width", [390, 1440])
def test_a_click_shows_and_the_next_one_does_not_jump(
    tab: Callable[..., Any], address: str, study: Study, width: int
) -> None:
    page = tab(address, width)
    # From the top of the chart its lower edge is out of the window.
    page.evaluate("document.querySelector('[data-chart=strip]').scrollIntoView()")
    names = [row.identity.protocol for row in study.runs[0].rows]
    marks = [page.locator(DOT.format(name)).locator("visible=true").first for name in names[:2]]
    for mark in marks:
        mark.scroll_into_view_if_needed()
    for number, (name, mark) in enumerate(zip(names, marks, strict=False)):
        before = page.evaluate("scrollY")
        mark.click()
        page.wait_for_function(
            "name => document.querySelector('.panel h3')?.textContent === name", arg=name
        )
        page.wait_for_function("document.activeElement.classList.contains('panel')")
        panel = page.locator(".panel").bounding_box()
        assert 0 <= panel["y"] < panel["y"] + min(panel["height"], 100) <= 900
        dot_box = mark.bounding_box()
        assert dot_box["y"] + dot_box["height"] <= panel["y"] + 1
        if number:
            assert page.evaluate("scrollY") == before


def test_the_items_of_a_panel_flip(tab: Callable[..., Any], address: str, study: Study) -> None:
    """Of every item that is listed the table of items says the same: most others decide otherwise."""
    run = study.runs[0]
    outcomes = {
        each.name: dict(zip(each.ids.to_pylist(), each.credit.tolist(), strict=True))
        for each in run.outcomes.outcomes
    }
    page = tab(address)
    for name in list(outcomes)[:3]:
        page.goto(f"{address}#protocol={name}")
        page.reload()
        page.locator(".panel h4").first.wait_for()
        own, others = (
            outcomes[name],
            [credits for other, credits in outcomes.items() if other != name],
        )
        flipped = {
            item
            for item, credit in own.items()
            if 2 * sum((credits[item] == 1) != (credit == 1) for credits in others) > len(others)
        }
        shown = page.locator(".panel ul a").all_text_contents()
        assert set(shown) <= flipped
        assert len(shown) == min(len(flipped), 6)
        assert page.locator(".panel h4").first.inner_text().startswith(f"{len(flipped)} item")


def test_a_tap_shows_the_box_and_the_next_one_the_panel(
    browser: Any, address: str, row: Number
) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 900}, has_touch=True)
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector(READY, state="attached")
    dot(page, row).tap()
    assert lines(page)[:4] == said(row)
    assert page.locator(".panel").count() == 0
    dot(page, row).tap()
    page.locator(".panel").wait_for()
    context.close()


def test_two_models_have_their_differences_and_no_chart_of_orders(
    tab: Callable[..., Any], address: str, study: Study
) -> None:
    page = tab(address)
    assert page.locator('[data-chart^="order"]').count() == 0
    names = {row.identity.protocol for row in study.runs[0].rows}
    labels = page.eval_on_selector_all(
        '[data-chart="pair"] .wide [role="graphics-symbol"][aria-label]',
        "marks => marks.map(mark => mark.getAttribute('aria-label'))",
    )
    assert {label.partition(": ")[0] for label in labels} == names
    assert not page.get_by_label("score", exact=True).is_visible()


def test_what_has_no_content_is_not_there(
    tab: Callable[..., Any], study: Study, tmp_path: Path
) -> None:
    write_page([study.runs[0].folder], tmp_path / "one.html")
    page = tab((tmp_path / "one.html").as_uri())
    ids = page.eval_on_selector_all("main section", "all => all.map(each => each.id)")
    assert ids == [
        "numbers",
        "why",
        "chain",
        "calibration",
        "items",
        "protocols",
        "warnings",
        "again",
    ]
    links = page.locator(".contents a").all_inner_texts()
    assert [link[0] for link in links] == [*"ABCDEFGH"]
    assert len(page.locator("h1").inner_text().split()) <= 20


def test_print_has_the_table_and_no_box(tab: Callable[..., Any], address: str, row: Number) -> None:
    page = tab(address)
    dot(page, row).hover()
    page.emulate_media(media="print")
    assert page.locator("[data-overview] tbody tr").first.is_visible()
    assert not page.locator('[data-chart="strip"] table').is_visible()
    assert lines(page) == []


@needs_axe
def test_an_open_panel_is_accessible(tab: Callable[..., Any], address: str, row: Number) -> None:
    page = tab(f"{address}#protocol={row.identity.protocol}")
    page.locator(".panel").wait_for()
    dot(page, row).hover()
    assert violations(page) == []


def test_a_link_with_a_catalogued_name_opens_its_only_variant(
    tab: Callable[..., Any], tmp_path: Path
) -> None:
    data = tmp_path / "quiz.csv"
    data.write_text("question,A,B,C,D,answer\nWhich is red?,Mars,Venus,Earth,Io,A\n")
    protocols = ["mmlu/original@shots=0", "mmlu/cloze:sum"]
    run = evaluate(model="fake:hash", data=data, protocols=protocols, out=tmp_path / "run")
    write_page([run.folder], tmp_path / "page.html")
    address = (tmp_path / "page.html").as_uri()
    page = tab(f"{address}#protocol=mmlu/original&from=mmlu/cloze:sum&to=mmlu/original")
    (variant,) = [name for name in run.protocols if name.startswith("mmlu/original")]
    assert variant != "mmlu/original"
    assert page.locator(".panel h3").inner_text() == variant
    assert page.locator('#why select[name="to"]').input_value() == variant
