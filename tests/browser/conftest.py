"""The browser of these tests."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.helpers.browser import CHROMIUM, playwright


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield started
        started.close()
