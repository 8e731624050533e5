"""Numbers over checkpoints on a page: a protocol is chosen, a dot answers, and nobody is kept out."""

from dataclasses import replace
from typing import Any

import pytest

from choicewise.page.document import write_page
from choicewise.store.folder import read_manifest, write_manifest
from tests.helpers.browser import needs_axe, needs_chromium, tabs, violations
from tests.helpers.page_runs import write_run

pytestmark = [needs_chromium, pytest.mark.costly("it starts a browser")]

PROTOCOLS = ("mmlu/original", "mmlu/cloze:sum")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("training")
    runs = []
    for name in ("a@step1", "a@step20", "a@step3000", "b@step1", "b@step20", "b@step3000"):
        runs.append(write_run(folder / name.replace("@", "-"), protocols=PROTOCOLS))
        manifest = read_manifest(runs[-1])
        write_manifest(
            runs[-1], replace(manifest, model=replace(manifest.model, name=name), job={})
        )
    out = folder / "page.html"
    write_page(runs, out)
    return out.as_uri()


@pytest.mark.parametrize(("width", "theme"), [(390, "light"), (1440, "dark")])
def test_the_number_of_a_chosen_protocol_is_drawn_over_the_checkpoints(
    browser: Any, address: str, width: int, theme: str
) -> None:
    with tabs(browser, wait_for="[data-ready]") as opened:
        page = opened(address, width, theme)
        figure = page.locator('[data-chart="steps-0"]')
        shown = figure.locator(".chart:visible")
        assert shown.locator('[role="graphics-symbol"][aria-label]').count() == 6
        page.locator('select[name="steps-0"]').select_option("mmlu/cloze:sum")
        page.wait_for_function("location.hash.includes('steps-0=mmlu%2Fcloze%3Asum')")
        page.wait_for_function(
            "document.querySelector('[data-chart=\"steps-0\"] .chart').key === 'mmlu/cloze:sum'"
        )
        mark = shown.locator('[role="graphics-symbol"][aria-label]').last
        said = mark.get_attribute("aria-label")
        mark.hover()
        box = figure.locator(".box")
        assert box.locator("b").inner_text() == said.partition(": ")[0]
        figure.locator("summary").click()
        rows = figure.locator("tbody tr").all_inner_texts()
        assert len(rows) == 6
        assert said.partition(": ")[2].partition(" % of")[0] in rows[-1]
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        again = opened(page.url, width, theme)
        assert again.locator('select[name="steps-0"]').input_value() == "mmlu/cloze:sum"


@needs_axe
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nothing_keeps_anybody_out(browser: Any, address: str, theme: str) -> None:
    with tabs(browser, wait_for="[data-ready]") as opened:
        assert violations(opened(address, 900, theme)) == []
