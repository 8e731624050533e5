"""How high a page is on a screen, and what it takes on paper."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from choicewise.page.document import write_page
from tests.helpers.browser import needs_chromium
from tests.helpers.page_runs import write_run

pytestmark = needs_chromium
A4_HEIGHT = 1001
"""Pixels of a page of A4 between its margins."""

MOST_COLUMNS = 12
MODELS = ("hash", "oracle", "anti-oracle", "hash")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    """The addresses of a page of one run and of a page of four, each under all protocols of MMLU."""
    folder = tmp_path_factory.mktemp("runs")
    runs = []
    for number, model in enumerate(MODELS):
        runs.append(write_run(folder / f"{model}-{number}", f"fake:{model}", ["mmlu"]))
    addresses = {}
    for count in (1, 4):
        out = folder / f"{count}.html"
        write_page(runs[:count], out, items=1)
        addresses[count] = out.as_uri()
    return addresses


@pytest.mark.parametrize(
    ("runs", "width", "most"), [(1, 1440, 5000), (1, 390, 9000), (4, 1440, 7000)]
)
def test_a_page_is_not_high(
    tab: Callable[..., Any], pages: dict[int, str], runs: int, width: int, most: int
) -> None:
    page = tab(pages[runs], width)
    assert page.evaluate("document.documentElement.scrollHeight") <= most


@pytest.mark.parametrize(("runs", "most"), [(1, 6), (4, 8)])
def test_paper_has_the_table_and_the_chart_first(
    tab: Callable[..., Any], pages: dict[int, str], runs: int, most: int
) -> None:
    page = tab(pages[runs], 688)
    sheets = re.findall(rb"/Type\s*/Page\b", page.pdf(prefer_css_page_size=True))
    assert 1 < len(sheets) <= most
    page.emulate_media(media="print")
    boxes = [
        page.locator(part).bounding_box() for part in ("[data-overview]", '[data-chart="strip"]')
    ]
    for box in boxes:
        assert box["y"] + box["height"] <= A4_HEIGHT
    ids = page.locator(".code").all()
    assert ids
    assert not any(cell.is_visible() for cell in ids)


def test_orders_show_few_protocols_first(tab: Callable[..., Any], pages: dict[int, str]) -> None:
    page = tab(pages[4])
    columns = page.locator('[data-chart="order-0"] .chart.wide [aria-label*="Kendall"]')
    few = columns.count()
    assert 2 < few <= MOST_COLUMNS
    button = page.locator('#order [data-do="columns"]')
    button.click()
    page.wait_for_function(
        "few => document.querySelectorAll('[data-chart=order-0] .chart.wide [aria-label*=Kendall]').length > few",
        arg=few,
    )
    assert button.inner_text().startswith(f"{few} ")
