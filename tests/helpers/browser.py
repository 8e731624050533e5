"""A browser for tests: every page that is opened must say nothing on its console and ask for nothing but files."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

AXE = Path(sys.prefix) / "axe" / "node_modules" / "axe-core" / "axe.min.js"
CHROMIUM = Path("/usr/bin/chromium")

playwright = pytest.importorskip("playwright.sync_api", reason="the tests in a browser need playwright")
needs_chromium = pytest.mark.skipif(not CHROMIUM.exists(), reason=f"the tests in a browser need {CHROMIUM}")


@contextmanager
def chromium() -> Iterator[Any]:
    """The browser."""
    with playwright.sync_playwright() as made:
        started = made.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield started
        started.close()


@contextmanager
def tabs(browser: Any, here: str = "file://") -> Iterator[Any]:
    """Opens addresses: what the console says, an error, or a request to anywhere but ``here`` ends the test."""
    contexts, said = [], list[str]()

    def opened(address: str, width: int = 1200, theme: str = "light", script: bool = True) -> Any:
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=theme, java_script_enabled=script
        )
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda sent: None if sent.url.startswith((here, "data:")) else said.append(sent.url))
        page.goto(address)
        if script:
            page.wait_for_selector("html[data-ready]", state="attached")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert said == []


def violations(page: Any) -> list[str]:
    """What axe says is seriously or critically wrong with the page."""
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found_by_axe = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{each['id']}: {node['html'][:200]} {node.get('failureSummary', '')[:200]}"
        for each in found_by_axe["violations"]
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"][:3]
    ]
