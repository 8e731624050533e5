"""What the tests on real processes share: shards that they hold, a cluster of nodes, and tables to compare with."""

import os
from collections.abc import Iterator

import pyarrow as pa
import pytest

from tests.cluster.commands import FAKE, PYTHON_PATH, Reins, living, started, table
from tests.helpers.processes import eventually
from tests.helpers.ray_cluster import Cluster, ray_cluster


@pytest.fixture(scope="session")
def shared_reins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reins]:
    folder = tmp_path_factory.mktemp("reins")
    os.environ["CLUSTER_TEST"] = str(folder)  # nodes and drivers inherit it
    yield Reins(folder)
    del os.environ["CLUSTER_TEST"]


@pytest.fixture
def reins(shared_reins: Reins) -> Iterator[Reins]:
    """Processes that wait where a test wants it."""
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


@pytest.fixture(scope="module")
def shared_cluster(shared_reins: Reins) -> Iterator[Cluster]:
    with ray_cluster(python_path=PYTHON_PATH) as started_cluster:
        yield started_cluster


@pytest.fixture
def cluster(shared_cluster: Cluster, reins: Reins) -> Cluster:
    """Three nodes on which nothing runs, whatever the test before this one did to them."""
    while len(living(shared_cluster)) < 3:
        shared_cluster.wait(shared_cluster.start())
    eventually(lambda: not any(node.workers() for node in living(shared_cluster)))
    return shared_cluster
