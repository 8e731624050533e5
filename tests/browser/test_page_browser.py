"""The page in a browser: no error, nothing fetched, everything reachable by mouse and by keyboard."""

import functools
import http.server
import threading
from collections.abc import Callable
from pathlib import Path
from shutil import copytree
from typing import Any
from urllib.parse import quote

import pytest

from choicewise.page.document import write_page
from choicewise.page.sections import steps
from choicewise.page.study import Study, read_study
from choicewise.results.explain import explain
from choicewise.results.run import open_run
from choicewise.util.text import percent
from tests.helpers.browser import READY, WIDTHS, needs_axe, needs_chromium, tabs, violations
from tests.helpers.page_runs import renamed, write_hostile_run, write_run

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    folder = tmp_path_factory.mktemp("runs")
    models = {"hash": "fake:hash", "oracle": "fake:oracle", "anti": "fake:anti-oracle"}
    return read_study([write_run(folder / name, model) for name, model in models.items()])


@pytest.fixture(scope="module")
def address(study: Study, tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("page") / "page.html"
    write_page([run.folder for run in study.runs], out)
    return out.as_uri()


def cells(page: Any, selector: str) -> list[list[str]]:
    rows: list[list[str]] = page.eval_on_selector_all(
        f"{selector} tbody tr",
        "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))",
    )
    return rows


def labels(page: Any, chart: str) -> list[str]:
    """What the marks of the drawn chart say."""
    said: list[str] = page.eval_on_selector_all(
        f'[data-chart="{chart}"] .chart [role="graphics-symbol"][aria-label]',
        "marks => marks.filter(mark => mark.checkVisibility()).map(mark => mark.getAttribute('aria-label'))",
    )
    return said


def choose(page: Any, selector: str, value: str) -> None:
    page.locator(selector).first.select_option(value)


@needs_axe
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_it_fits_and_is_accessible(
    tab: Callable[..., Any], address: str, width: int, theme: str
) -> None:
    page = tab(f"{address}#items&item=tides%2Ftest%2F0", width, theme)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.eval_on_selector_all("details", "all => all.forEach(each => { each.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert violations(page) == []


def test_without_a_script_all_but_switching_is_there(
    tab: Callable[..., Any], address: str, study: Study
) -> None:
    page = tab(address, script=False)
    assert page.locator("h1").inner_text()
    drawn = labels(page, "strip")
    assert any(f"{percent(study.runs[0].rows[0].value)} %" in each for each in drawn)
    assert page.locator("select").count() > 0
    assert not any(select.is_visible() for select in page.locator("select").all())
    assert len(cells(page, "[data-items]")) == 12


def test_the_chosen_model_is_in_chart_and_table(
    tab: Callable[..., Any], address: str, study: Study
) -> None:
    page = tab(address)
    for run in (study.runs[1], study.runs[0]):
        choose(page, '#numbers select[name="run"]', run.label)
        page.wait_for_function(
            "name => document.querySelector('[data-view=run]').textContent === name", arg=run.label
        )
        expected = {row.identity.protocol: percent(row.value) for row in run.rows}
        same = "row => row.cells[0].textContent === name && row.cells[2].textContent === value"
        rows = "[...document.querySelectorAll('[data-chart=strip] tbody tr')]"
        page.wait_for_function(
            f"([name, value]) => {rows}.some({same})", arg=next(iter(expected.items()))
        )
        assert {row[0]: row[2] for row in cells(page, '[data-chart="strip"]')} == expected
        page.wait_for_timeout(300)
        said = [each for each in labels(page, "strip") if "95 % interval" in each]
        for name, value in expected.items():
            assert any(each.startswith(f"{name}: {value} %") for each in said)


def overview_column(page: Any, column: int) -> list[float]:
    values: list[float] = page.eval_on_selector_all(
        "[data-overview] tbody tr",
        "(rows, column) => rows.map(row => Number(row.cells[column].dataset.value ?? NaN))",
        column,
    )
    return values


def test_the_table_on_top_is_sorted_by_click_and_key(tab: Callable[..., Any], address: str) -> None:
    page = tab(address)
    heads = page.locator("[data-overview] thead th")
    assert heads.nth(1).get_attribute("aria-sort") == "descending"
    assert overview_column(page, 1) == sorted(overview_column(page, 1), reverse=True)
    assert len(set(overview_column(page, 2))) > 1
    heads.nth(2).locator("button").click()
    assert overview_column(page, 2) == sorted(overview_column(page, 2), reverse=True)
    heads.nth(2).locator("button").press("Enter")
    assert overview_column(page, 2) == sorted(overview_column(page, 2))
    sorts = [head.get_attribute("aria-sort") for head in heads.all()]
    assert [sort for sort in sorts if sort] == ["ascending"]
    page.locator("[data-overview] tbody button", has_text="oracle").first.click()
    assert page.locator("[data-view=run]").inner_text() == "oracle"
    assert page.locator("[data-overview] tr.chosen").count() == 1


def test_arrows_go_from_mark_to_mark(tab: Callable[..., Any], address: str) -> None:
    page = tab(address)
    stops = page.locator('[data-chart="strip"] .chart.wide [role="graphics-symbol"][tabindex="0"]')
    assert stops.count() == 1
    stops.focus()
    focused = "document.activeElement.getAttribute('aria-label')"
    first = page.evaluate(focused)
    page.keyboard.press("ArrowDown")
    assert page.evaluate(focused) != first
    assert stops.count() == 1
    page.keyboard.press("ArrowUp")
    assert page.evaluate(focused) == first


def test_the_ladder_between_chosen_numbers(
    tab: Callable[..., Any], address: str, study: Study
) -> None:
    page = tab(address)
    known = steps(study.runs[0])
    start, end = max(known.ways, key=lambda way: len(known.ways[way]))
    choose(page, '#why select[name="from"]', start)
    choose(page, '#why select[name="to"]', end)
    rows = "document.querySelectorAll('[data-chart=ladder] tbody tr')"
    page.wait_for_function(f"count => {rows}.length === count", arg=len(known.ways[start, end]) + 1)
    page.wait_for_timeout(300)
    records = known.records(start, end)
    said = labels(page, "ladder")
    assert [each for each in records if each["description"] not in said] == []
    shown = cells(page, '[data-chart="ladder"]')
    assert [row[1] for row in shown[1:-1]] == [record["result"] for record in records[1:-1]]
    assert [row[5] for row in shown] == [percent(record["after"]) for record in records]
    page.get_by_role("button", name="Turn round").click()
    assert page.locator('#why select[name="from"]').input_value() == end
    choose(page, '#why select[name="to"]', end)
    assert "the same protocol" in page.locator("[data-no-ladder]").inner_text()


def test_rank_or_score(tab: Callable[..., Any], address: str) -> None:
    page = tab(address)
    before = page.locator('[data-chart="order-0"] .chart.wide svg').bounding_box()
    page.get_by_label("score", exact=True).check()
    chart = "document.querySelector('[data-chart=\"order-0\"] .chart.wide svg')"
    page.wait_for_function(
        f"height => {chart}.getBoundingClientRect().height !== height", arg=before["height"]
    )
    assert "by=score" in page.url
    assert tab(page.url).get_by_label("score", exact=True).is_checked()


def test_a_chart_too_wide_for_a_narrow_screen_scrolls_and_is_not_shrunk(
    tab: Callable[..., Any], tmp_path: Path
) -> None:
    run = write_run(tmp_path / "one", protocols=("mmlu",))
    runs = [run]
    for name in ("two", "three"):
        runs.append(renamed(Path(copytree(run, tmp_path / name)), name))
    write_page(runs, tmp_path / "page.html")
    page = tab((tmp_path / "page.html").as_uri(), 400)
    page.locator("#order button", has_text="protocols").first.click()
    for by in ("rank", "score"):
        page.get_by_label(by, exact=True).check()
        page.wait_for_timeout(300)
        chart = page.locator('[data-chart="order-0"] .chart.slim')
        asked = float(chart.locator("svg").get_attribute("width"))
        assert asked > 400
        assert chart.locator("svg").bounding_box()["width"] == pytest.approx(asked, abs=1)
        assert chart.evaluate("box => box.scrollWidth > box.clientWidth")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_nothing_is_wider_than_paper(tab: Callable[..., Any], tmp_path: Path) -> None:
    run = write_run(tmp_path / "an-organisation-of-one")
    runs = [
        run,
        *(
            Path(copytree(run, tmp_path / f"an-organisation-{name}"))
            for name in ("of-two", "of-three")
        ),
    ]
    write_page([renamed(run, run.name) for run in runs], tmp_path / "page.html")
    # The width is that of A4 without its margins; what is wider makes the whole printed page smaller.
    page = tab((tmp_path / "page.html").as_uri(), 688)
    page.emulate_media(media="print")
    assert page.evaluate("document.documentElement.scrollWidth") <= 688


def test_two_models(tab: Callable[..., Any], address: str) -> None:
    page = tab(f"{address}#pair&a=anti&b=hash")
    assert page.locator('[data-pair="said"]').inner_text().startswith("anti (A)")
    there = {row[0]: row[1] for row in cells(page, '[data-chart="pair"]')}
    choose(page, '#pair select[name="a"]', "hash")
    choose(page, '#pair select[name="b"]', "anti")
    page.wait_for_function(
        "document.querySelector('[data-pair=said]').textContent.startsWith('hash (A)')"
    )
    back = {row[0]: row[1] for row in cells(page, '[data-chart="pair"]')}
    assert {
        name: value.translate(str.maketrans("+−", "−+")) for name, value in there.items()
    } == back
    choose(page, '#pair select[name="b"]', "hash")
    assert "the same run" in page.locator('[data-pair="said"]').inner_text()


def test_items_are_searched_and_filtered(
    tab: Callable[..., Any], address: str, study: Study
) -> None:
    page = tab(address)
    block = '[data-items="0"]'
    page.locator(f'{block} input[name="text"]').fill("number 3")
    assert {row[0] for row in cells(page, f"{block} > .scroll")} == {"tides/test/3", "trees/test/3"}
    choose(page, f'{block} select[name="subject"]', "tides")
    assert [row[0] for row in cells(page, f"{block} > .scroll")] == ["tides/test/3"]
    assert page.locator("[data-count]").inner_text().startswith("1 of 12 item")
    page.locator(f'{block} input[name="text"]').fill("")
    choose(page, f'{block} select[name="subject"]', "")
    run = study.runs[0]
    names = [name for name in run.protocols if name in ("mmlu/original", "mmlu/harness-v0:sum")]
    choose(page, f'{block} select[name="p"]', names[0])
    choose(page, f'{block} select[name="q"]', names[1])
    by_name = {each.name: each for each in run.outcomes.outcomes}
    one, other = (by_name[name] for name in names)
    flipped = {
        item
        for item, a, b in zip(one.ids.to_pylist(), one.credit, other.credit, strict=True)
        if a != b
    }
    assert {row[0] for row in cells(page, f"{block} > .scroll")} == flipped
    assert {row[0] for row in cells(tab(page.url), f"{block} > .scroll")} == flipped


def test_links_to_items_keep_all_that_was_chosen(tab: Callable[..., Any], address: str) -> None:
    page = tab(address)
    choose(page, '#pair select[name="b"]', "anti")
    page.get_by_label("score", exact=True).check()
    link = page.locator("[data-items] tbody th a").nth(2)
    item = link.inner_text()
    link.click()
    page.wait_for_selector("[data-item] h3")
    for each in (page, tab(page.url)):
        assert each.locator('#pair select[name="b"]').input_value() == "anti"
        assert each.get_by_label("score", exact=True).is_checked()
        assert item in each.locator("[data-item] h3").inner_text()


@pytest.mark.parametrize(
    "fragment", ["%ff", "items&item=%ff", "run=__proto__&from=toString&by=x", "x" * 9000, "&&=&"]
)
def test_fragments_that_mean_nothing_do_nothing(
    tab: Callable[..., Any], address: str, fragment: str
) -> None:
    assert tab(f"{address}#{fragment}").locator("#numbers select").first.input_value() == "hash"


def test_an_item_in_full_by_its_link(tab: Callable[..., Any], address: str, study: Study) -> None:
    page = tab(address)
    page.locator('[data-items="0"] > .scroll a').first.press("Enter")
    item = page.locator("[data-item] h3")
    item.wait_for()
    name = item.inner_text().partition(" · ")[0]
    assert quote(name, safe="") in page.url
    run = study.runs[0]
    explained = explain(open_run(run.folder), name)
    shown = {row[0]: (row[-2], row[-1]) for row in cells(page, ".decisions")}
    assert set(shown) == {each.protocol for each in explained.decided}
    for decided in explained.decided:
        chose = "none" if decided.prediction < 0 else "ABCD"[decided.prediction]
        assert shown[decided.protocol][0] == chose
        assert shown[decided.protocol][1].startswith({1.0: "right", 0.0: "wrong"}[decided.credit])
    asked = [each for each in explained.asked if each.context is not None]
    assert page.locator("[data-item] pre").count() == len(asked)
    again = tab(page.url)
    assert again.locator("[data-item] h3").inner_text() == item.inner_text()
    again.get_by_role("button", name="Close").click()
    assert not again.locator("[data-item]").is_visible()


def test_items_beside_a_page_are_read_when_it_is_served(
    browser: Any, study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("choicewise.page.document.ROOM", 0)
    write_page([study.runs[0].folder], tmp_path / "page.html")
    link = "page.html#items&item=tides%2Ftest%2F0"
    with tabs(browser, wait_for=READY) as opened:
        page = opened(f"{tmp_path.as_uri()}/{link}")
        assert (
            "choicewise explain hash --item tides/test/0"
            in page.locator("[data-item]").inner_text()
        )
    handler = functools.partial(Quiet, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        here = f"http://127.0.0.1:{server.server_port}/"
        with tabs(browser, here, READY) as opened:
            assert len(cells(opened(here + link), ".decisions")) == len(study.runs[0].protocols)
        server.shutdown()


def test_hostile_texts_do_nothing(tab: Callable[..., Any], tmp_path: Path) -> None:
    run = write_hostile_run(tmp_path / "run")
    write_page([run], tmp_path / "page.html")
    page = tab((tmp_path / "page.html").as_uri(), 400)
    for place in range(page.locator('[data-items="0"] > .scroll a').count()):
        page.locator('[data-items="0"] > .scroll a').nth(place).click()
        page.wait_for_timeout(50)
        page.eval_on_selector_all("details", "all => all.forEach(each => { each.open = true; })")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate("window.harm") is None
    assert page.locator("img").count() == 0


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing."""
