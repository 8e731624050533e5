"""The pictures of the pages: the demo's page, a dot of it with its box open, and its board, in light and dark.

python docs/pictures/draw.py [--demo FOLDER]

``--demo``: where `choicewise demo` wrote its runs and its page (`make demo`: demo-run).  Needs Chromium.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

HERE = Path(__file__).resolve().parent
CHROMIUM = "/usr/bin/chromium"
WIDTH = 1100
HEIGHTS = {"page": 1560, "board": 680}
"""Pixels that are shown of each."""


def main() -> None:
    """Write the pictures beside this file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--demo", type=Path, default=HERE.parents[1] / "demo-run")
    demo = parser.parse_args().demo
    command = [sys.executable, "-m", "choicewise", "serve", str(demo)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server, sync_playwright() as driver:
        assert server.stdout is not None
        board = next(word for word in server.stdout.readline().split() if word.startswith("http"))
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for name, address in {"page": (demo / "page.html").resolve().as_uri(), "board": board}.items():
            for scheme in ("light", "dark"):
                draw(browser, address, name, scheme)
        for scheme in ("light", "dark"):
            draw_dot(browser, (demo / "page.html").resolve().as_uri(), scheme)
        browser.close()
        server.terminate()


def draw(browser: Browser, address: str, name: str, scheme: str) -> None:
    """One picture."""
    tab = browser.new_page(viewport={"width": WIDTH, "height": HEIGHTS[name]})
    tab.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    tab.goto(address)
    tab.wait_for_function("document.fonts.ready")
    tab.screenshot(path=HERE / f"{name}-{scheme}.png")
    tab.close()


def draw_dot(browser: Browser, address: str, scheme: str) -> None:
    """The chart of all numbers with the pointer on one of its dots, as it shows in a wide window."""
    tab = browser.new_page(viewport={"width": 1440, "height": 900})
    tab.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    tab.goto(address)
    tab.wait_for_function("document.fonts.ready")
    tab.wait_for_selector("html[data-ready]")
    dot = tab.locator('[data-chart="strip"] [role="graphics-symbol"][aria-label^="mmlu/original: "]')
    dot = dot.locator("visible=true").first
    dot.scroll_into_view_if_needed()
    dot.hover()
    tab.locator(".box:visible").wait_for()
    tab.evaluate(
        "window.scrollBy(0, document.querySelector('[data-chart=\"strip\"]').getBoundingClientRect().top - 60)"
    )
    dot.hover()
    tab.screenshot(path=HERE / f"dot-{scheme}.png", clip={"x": 150, "y": 52, "width": 1110, "height": 680})
    tab.close()


if __name__ == "__main__":
    main()
