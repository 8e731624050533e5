"""What the tests on real processes share: the folder by which they hold replicas, and tables to compare with."""

import os
from collections.abc import Iterator

import pyarrow as pa
import pytest

from tests.cluster.commands import FAKE, Reins, started, table


@pytest.fixture(scope="session")
def shared_reins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reins]:
    folder = tmp_path_factory.mktemp("reins")
    os.environ["CLUSTER_TEST"] = str(folder)  # nodes and drivers inherit it
    yield Reins(folder)
    del os.environ["CLUSTER_TEST"]


@pytest.fixture
def reins(shared_reins: Reins) -> Iterator[Reins]:
    """Replicas that wait where a test wants it."""
    shared_reins.reset()
    yield shared_reins
    shared_reins.reset()


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> pa.Table:
    """What ``FAKE`` gives in one process."""
    folder = tmp_path_factory.mktemp("one")
    with started(folder / "one", *FAKE, "--out", str(folder / "run")) as command:
        command.ends_well()
    return table(folder / "run")
