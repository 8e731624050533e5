"""What all tests share: one thread a process, real data that is not in the repository, how random tests are drawn."""

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.paths import SHARED

if TYPE_CHECKING:
    from tests.helpers.misbehaving_server import Server
    from tests.helpers.study import Study

pytest_plugins = ["tests.cpu_seconds"]

settings.register_profile(
    "choicewise", deadline=None, max_examples=30
)  # no test may fail for a busy machine
settings.load_profile("choicewise")
# CI draws the same examples every time: what it refuses, a person sees fail again.
settings.register_profile("repeatable", derandomize=True)

os.environ["HF_HUB_OFFLINE"] = "1"
"""No test asks the real Hub for anything; those about it have a server of their own."""

ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1"}
"""Models as small as those of the tests lose more to threads than they gain, most of all beside other workers."""

os.environ.update(
    ONE_THREAD
)  # before torch is imported, and inherited by every process that a test starts


def pytest_collection_finish() -> None:
    """What the imports left is never looked at again: a collection takes 0.7 s with it, and tests ask for hundreds."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def without_waiting_for_the_disk() -> Iterator[None]:
    """Nothing waits until the disk has what is written, which took most of the time of many tests.

    It matters where the power fails.  What kills do is tested with processes of their own, which wait.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What is remembered between processes is remembered between those of the tests alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data beside the checkout; tests that need it are skipped where it is absent."""
    if not SHARED.is_dir():
        pytest.skip(f"no shared data at {SHARED}")
    return SHARED


@pytest.fixture(scope="session")
def study(tmp_path_factory: pytest.TempPathFactory) -> "Study":
    """Three fakes under three protocols; nobody changes these runs."""
    from tests.helpers.study import write_study

    return write_study(tmp_path_factory.mktemp("study"))


@pytest.fixture
def server() -> "Iterator[Server]":
    """A server of ours on loopback, whose faults a test chooses."""
    from tests.helpers.misbehaving_server import serving

    with serving() as started:
        yield started


@pytest.fixture
def no_pauses() -> Iterator[None]:
    """A client of a server tries again at once."""
    import stamina

    with stamina.set_testing(True, attempts=20):
        yield
