"""A browser for tests, whose pages may print nothing on the console and ask for nothing from elsewhere."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

AXE = Path(sys.prefix) / "axe" / "node_modules" / "axe-core" / "axe.min.js"
CHROMIUM = Path("/usr/bin/chromium")
WIDTHS = (400, 900, 1600)
READY = "html[data-ready]"  # what a page of runs has once its script is done

playwright = pytest.importorskip(
    "playwright.sync_api", reason="the tests in a browser need playwright"
)
needs_chromium = pytest.mark.skipif(
    not CHROMIUM.exists(), reason=f"the tests in a browser need {CHROMIUM}"
)
needs_axe = pytest.mark.skipif(
    not AXE.exists(), reason="tests of accessibility need axe-core (npm) in the environment"
)


@contextmanager
def tabs(
    browser: Any, server: str = "file://", wait_for: str | None = None
) -> Iterator[Callable[..., Any]]:
    """A function that opens a page and waits for the selector ``wait_for``, which scripts bring about. At the end
    nothing may have been printed on the console, failed, or been asked of anything but files and ``server``."""
    own = ("file://", "data:", server)
    contexts, said = [], list[str]()

    def opened(address: str, width: int = 1200, theme: str = "light", script: bool = True) -> Any:
        size = {"width": width, "height": 900}
        contexts.append(
            browser.new_context(viewport=size, color_scheme=theme, java_script_enabled=script)
        )
        page = contexts[-1].new_page()
        page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda sent: None if sent.url.startswith(own) else said.append(sent.url))
        page.on("requestfailed", lambda request: said.append(f"failed: {request.url}"))
        page.on(
            "response",
            lambda got: said.append(f"{got.status} {got.url}") if got.status >= 400 else None,
        )
        page.goto(address)
        if script and wait_for:
            page.wait_for_selector(wait_for, state="attached")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert said == []


def violations(page: Any) -> list[str]:
    """What axe says is seriously or critically wrong with the page."""
    page.evaluate(AXE.read_text(encoding="utf-8"))
    return [
        f"{each['id']}: {node['html'][:200]} {node.get('failureSummary', '')[:200]}"
        for each in page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"][:3]
    ]


def barriers(
    browser: Any, addresses: Mapping[str, str], theme: str
) -> dict[tuple[str, int], list[str]]:
    """What :func:`violations` finds on named pages at each of the widths; pages without any are missing."""
    found = {}
    for width in WIDTHS:
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=theme, bypass_csp=True
        )
        page = context.new_page()
        for name, address in addresses.items():
            page.goto(address)
            found[name, width] = violations(page)
        context.close()
    return {where: wrong for where, wrong in found.items() if wrong}
