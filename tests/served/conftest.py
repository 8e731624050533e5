"""A Hub for the tests of this folder, and one set of certificates for all their clients."""

from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.helpers.hub_server import Hub, hub_of_this_process


@pytest.fixture(scope="session", autouse=True)
def certificates_read_once() -> Iterator[None]:
    """They take a client most of the time that it needs to start, and no test changes them."""
    with pytest.MonkeyPatch.context() as patch:
        if find_spec("httpcore2"):
            import httpcore2

            patch.setattr(httpcore2, "default_ssl_context", cache(httpcore2.default_ssl_context))
        yield


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    """An empty one, whose cache is in ``home``; the folder of the test is that of the process."""
    monkeypatch.chdir(tmp_path)
    with hub_of_this_process(monkeypatch, tmp_path / "home") as server:
        yield server


@pytest.fixture
def reading_here(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Boards of the test read runs in its own process; those that a fixture of a module started do not."""
    from tests.helpers.board import read_runs_here

    read_runs_here(monkeypatch)
    return monkeypatch
