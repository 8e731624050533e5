"""Answers along thoughts on a page: a dot answers, the table opens, nothing is wider than the screen."""

from typing import Any

import pytest

from choicewise import evaluate
from choicewise.page.document import write_page
from tests.helpers.browser import needs_axe, needs_chromium, tabs, violations
from tests.helpers.thinking import Wavering, along, quiz, scripts

pytestmark = [needs_chromium, pytest.mark.costly("it starts a browser")]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder, golds = tmp_path_factory.mktemp("along"), [0, 1, 2, 3] * 4
    written = [
        ("m" * (3 * place + 4) + "ABCD"[place % 3] + "m" * place) for place in range(len(golds))
    ]
    model = Wavering(scripts(written, ["Answer: A"] * len(golds), True), True)
    evaluate(model=model, data=quiz(golds), protocols={"thought": along(90)}, out=folder / "run")
    write_page([folder / "run"], folder / "page.html")
    return (folder / "page.html").as_uri()


@needs_axe
@pytest.mark.parametrize(
    ("width", "theme"), [(390, "dark"), (390, "light"), (1440, "dark"), (1440, "light")]
)
def test_the_section_says_what_it_draws(browser: Any, address: str, width: int, theme: str) -> None:
    with tabs(browser, wait_for="[data-ready]") as opened:
        page = opened(address, width, theme)
        section = page.locator("#along")
        marks = section.locator('.chart:visible [role="graphics-symbol"][aria-label]')
        assert marks.count() == 15
        said = marks.first.get_attribute("aria-label")
        assert said.startswith("right, after 0 % of the thought (0 tokens in the median): ")
        marks.last.hover()
        assert "after 100 % of the thought" in section.locator(".box").inner_text()
        section.locator("summary").click()
        assert section.locator("tbody tr").count() >= 5
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert violations(page) == []
