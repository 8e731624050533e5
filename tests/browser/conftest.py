"""The browser of these tests."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.helpers.browser import CHROMIUM, READY, playwright, tabs


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def tab(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens pages of runs; a file that tests others has one of its own."""
    with tabs(browser, wait_for=READY) as opened:
        yield opened
