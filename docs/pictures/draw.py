"""The pictures of the pages: a dot with its box open, a page with all numbers and its board, the page at three widths.

python docs/pictures/draw.py [--demo FOLDER] [--all FOLDER]

Each in light and in dark. ``--demo``: where `choicewise demo` wrote its runs and its page (`make demo`: demo-run);
the dot is on this page. ``--all``: where `choicewise demo --all` wrote its own (demo-all). Needs Chromium.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, FloatRect, Page, sync_playwright

HERE = Path(__file__).resolve().parent
CHROMIUM = "/usr/bin/chromium"
SHOWN = {"page": (1100, 1640), "board": (1100, 900)}
"""Pixels that are shown of each."""

WIDTHS = {390: 1310, 900: 1150, 1440: 960}
"""Windows in which the page is shown, the narrow ones from its top; in the widest a dot has its box open."""

DOT = (
    '[data-chart="strip"] [role="graphics-symbol"][aria-label^="mmlu/harness-v0:char_mean_bare: "]'
)
Scheme = Literal["light", "dark"]


def main() -> None:
    """Write the pictures beside this file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    root = HERE.parents[1]
    parser.add_argument("--demo", type=Path, default=root / "demo-run")
    parser.add_argument("--all", type=Path, default=root / "demo-all")
    chosen = parser.parse_args()
    demo = (chosen.demo / "page.html").resolve().as_uri()
    page = (chosen.all / "page.html").resolve().as_uri()
    schemes: tuple[Scheme, Scheme] = "light", "dark"
    with sync_playwright() as driver, served(chosen.all) as board:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for scheme in schemes:
            for (name, size), address in zip(SHOWN.items(), (page, board), strict=True):
                with opened(browser, address, scheme, *size) as tab:
                    tab.screenshot(path=HERE / f"{name}-{scheme}.png")
            widest = max(WIDTHS)
            with opened(browser, demo, scheme, widest, WIDTHS[widest]) as tab:
                clip = open_box(tab)
                tab.screenshot(path=HERE / f"dot-{scheme}.png", clip=clip)
            for width, height in WIDTHS.items():
                with opened(browser, page, scheme, width, height) as tab:
                    if width == widest:
                        open_box(tab)
                    tab.screenshot(path=HERE / f"page-{width}-{scheme}.png")
        browser.close()


@contextmanager
def served(demo: Path) -> Iterator[str]:
    """The address of the board of these runs."""
    command = [sys.executable, "-m", "choicewise", "serve", str(demo)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield next(word for word in server.stdout.readline().split() if word.startswith("http"))
        finally:
            server.terminate()


@contextmanager
def opened(
    browser: Browser, address: str, scheme: Scheme, width: int, height: int
) -> Iterator[Page]:
    """A tab with the page, once it is whole: its script is done, and nothing of it is still being computed."""
    tab = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
    tab.goto(address)
    tab.wait_for_function("document.fonts.ready")
    if address.startswith("file:"):
        tab.wait_for_selector("html[data-ready]", state="attached")
    while any(
        words in tab.inner_text("main") for words in ("still being computed", "still to be read")
    ):
        tab.wait_for_timeout(1000)
        tab.reload()
    yield tab
    tab.close()


def open_box(tab: Page) -> FloatRect:
    """Put the pointer on a dot of the chart of all numbers; return the rectangle around the chart and its box."""
    tab.evaluate("document.querySelector('#numbers').scrollIntoView()")
    tab.locator(DOT).locator("visible=true").first.hover()
    tab.locator(".box:visible").wait_for()
    chart = tab.locator('[data-chart="strip"]').bounding_box()
    box = tab.locator(".box:visible").bounding_box()
    assert chart is not None
    assert box is not None
    top = min(chart["y"], box["y"] - 12)
    bottom = chart["y"] + chart["height"]
    return {"x": chart["x"] - 12, "y": top, "width": chart["width"] + 24, "height": bottom - top}


if __name__ == "__main__":
    main()
