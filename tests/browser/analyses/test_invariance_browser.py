"""The section of a page about changed questions: a row for each check, and nothing wider than the screen."""

from pathlib import Path
from typing import Any

import pytest

from choicewise.page.document import write_page
from tests.helpers.browser import needs_axe, needs_chromium, tabs, violations
from tests.helpers.commands import choicewise

pytestmark = [needs_chromium, pytest.mark.costly("it starts a browser")]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder: Path = tmp_path_factory.mktemp("invariance")
    asked = (
        "--model",
        "fake:hash",
        "--data",
        "bundled:merrowick",
        "--limit",
        "2",
        "--shots",
        "0",
        "--panel",
    )
    choicewise("run", *asked, "--protocol", "mmlu/harness-v0.4", "--out", folder / "run")
    write_page([folder / "run"], folder / "page.html")
    return (folder / "page.html").as_uri()


@needs_axe
@pytest.mark.parametrize(
    ("width", "theme"), [(390, "dark"), (390, "light"), (1440, "dark"), (1440, "light")]
)
def test_the_section_has_a_row_for_each_check_with_accuracy_beside(
    browser: Any, address: str, width: int, theme: str
) -> None:
    with tabs(browser, wait_for="[data-ready]") as opened:
        page = opened(address, width, theme)
        section = page.locator("#invariance")
        rows = [row.split("\t") for row in section.locator("tbody tr").all_inner_texts()]
        assert [row[0] for row in rows] == ["order", "labels", "none", "clone", "drop"]
        assert all(0 <= float(row[-1]) <= 100 for row in rows)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert violations(page) == []
