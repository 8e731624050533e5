"""The cluster that other tests run on, and what Ray does there that the executor relies on."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from choicewise.running import ray as ray_cluster_of_process
from tests.helpers import processes
from tests.helpers.processes import in_session, listening
from tests.helpers.ray_cluster import ROOT, Cluster, driver, ray_cluster

pytest.importorskip("ray")

eventually = partial(processes.eventually, patience=60)

Call = Callable[..., Any]
"""Calls a function of ``tests/helpers/ray_driver.py`` in the driver's process."""

SILENT = {"RAY_DEDUP_LOGS_SKIP_REGEX": "."}
"""Ray prints what happens to the cluster on standard output, where our answers are, but for lines with this pattern."""


@contextmanager
def talking(cluster: Cluster) -> Iterator[Call]:
    with driver(cluster, str(ROOT / "tests" / "helpers" / "ray_driver.py"), **SILENT) as process:
        requests, answers = process.stdin, process.stdout
        assert json.loads(answers.readline()) == cluster.address

        def call(function: str, *arguments: Any, **options: Any) -> Any:
            print(json.dumps([function, arguments, options]), file=requests, flush=True)
            return json.loads(answers.readline())

        call.process = process  # type: ignore[attr-defined]
        yield call


def begin(call: Call, name: str, **options: Any) -> dict[str, Any]:
    """Where a new actor with a CPU says that it is."""
    call("start", name, num_cpus=1, **options)
    where: dict[str, Any] = call("answer", name)["value"]
    return where


def error(call: Call, name: str, *patience: float) -> str:
    """The kind of error that an actor answers."""
    return str(call("answer", name, *patience)["raised"][0])


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with ray_cluster() as started:
        yield started


@pytest.fixture
def call(cluster: Cluster) -> Iterator[Call]:
    with talking(cluster) as call:
        yield call


def test_three_nodes_have_processes_and_resources_of_their_own(cluster: Cluster, call: Call) -> None:
    seen = call("cluster")
    assert len(set(seen["alive"])) == 3
    assert seen["all"]["CPU"] == 3
    homes = set()
    for node in cluster.nodes:
        where = begin(call, node.label, resources={node.label: 1})
        homes.add(where["node"])
        assert list(node.workers()) == [where["pid"]]
    assert homes == set(seen["alive"])


def test_all_of_it_listens_on_loopback_alone(cluster: Cluster, call: Call) -> None:
    begin(call, "a")
    sessions = [call.process.pid, *(node.process.pid for node in cluster.nodes)]  # type: ignore[attr-defined]
    addresses = {address for session in sessions for pid in in_session(session) for address in listening(pid)}
    assert len(addresses) >= 9
    assert {address.rpartition(":")[0] for address in addresses} == {"127.0.0.1"}


def test_a_worker_has_our_python_our_sources_and_one_thread(call: Call) -> None:
    where = begin(call, "a")
    assert where["python"] == sys.executable
    assert Path(where["choicewise"]) == ROOT / "src" / "choicewise" / "__init__.py"
    assert where["threads"] == os.environ.get("OMP_NUM_THREADS", "1")
    assert begin(call, "b", runtime_env={"env_vars": {"OMP_NUM_THREADS": "2"}})["threads"] == "2"


def test_a_killed_actor_is_dead_for_the_call_under_way_and_for_the_next(call: Call) -> None:
    pid = begin(call, "a")["pid"]
    call("ask", "a", "fail")
    assert "ValueError" in call("answer", "a")["raised"]
    call("ask", "a", "sleep", 600)
    os.kill(pid, signal.SIGKILL)
    assert error(call, "a") == "ActorDiedError"
    call("ask", "a", "where")
    assert error(call, "a") == "ActorDiedError"
    assert begin(call, "a")["pid"] != pid


def test_an_actor_waits_for_what_is_not_free_and_for_what_is_not_there(call: Call) -> None:
    for name in "abc":
        begin(call, name)
    eventually(lambda: call("cluster")["free"].get("CPU", 0) == 0)
    call("start", "d", num_cpus=1)
    call("start", "e", num_gpus=1)
    assert [error(call, name, 0.5) for name in "de"] == ["GetTimeoutError"] * 2
    assert "GPU" not in call("cluster")["all"]
    call("dismiss", "e")
    assert error(call, "e") == "ActorDiedError"
    call("dismiss", "a")
    assert call("answer", "d")["value"]["pid"]


def test_the_actors_of_a_killed_driver_end(cluster: Cluster) -> None:
    with talking(cluster) as call:
        for name in "ab":
            begin(call, name)
        call("ask", "a", "sleep", 600)
        assert sum(len(node.workers()) for node in cluster.nodes) == 2
        call.process.kill()  # type: ignore[attr-defined]
        eventually(lambda: not any(node.workers() for node in cluster.nodes))
    with talking(cluster) as call:
        eventually(lambda: call("cluster")["free"].get("CPU") == 3)


def test_a_lost_node_takes_its_actor_and_nothing_else() -> None:
    with ray_cluster() as cluster, talking(cluster) as call:
        for node in cluster.nodes:
            begin(call, node.label, resources={node.label: 1})
            call("ask", node.label, "sleep", 2 if node.label != "node1" else 600)
        lost = cluster.nodes[1]
        lost.kill()
        assert list(in_session(lost.process.pid, zombies=True)) == []
        # until the head has given the node up, its actor is said to be unavailable for now
        assert error(call, "node1") in ("ActorUnavailableError", "ActorDiedError")

        def dead() -> bool:
            call("ask", "node1", "where")
            return error(call, "node1") == "ActorDiedError"

        eventually(dead)
        eventually(lambda: len(call("cluster")["alive"]) == 2)
        assert call("answer", "node0") == call("answer", "node2") == {"value": 2}
        cluster.wait(cluster.start())
        eventually(lambda: len(call("cluster")["alive"]) == 3)
        pid = begin(call, "new")["pid"]
        assert list(cluster.nodes[3].workers()) == [pid]


BRIEF = """
from tests.helpers.ray_cluster import ray_cluster
with ray_cluster((1,)) as cluster:
    print(cluster.folder, cluster.nodes[0].process.pid, flush=True)
    input()
"""


def test_a_cluster_ends_with_the_process_that_started_it() -> None:
    line = [sys.executable, "-c", BRIEF]
    with subprocess.Popen(line, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        folder, session = owner.stdout.readline().split()
        assert len(list(in_session(int(session)))) > 3
        owner.kill()
    eventually(lambda: not list(in_session(int(session))))
    shutil.rmtree(folder)


def test_of_a_cluster_that_ends_its_own_folder_goes_and_no_other(tmp_path: Path) -> None:
    own, other = tmp_path / "session_1", tmp_path / "session_2"
    for session in (own, other):
        (session / "logs").mkdir(parents=True)
        (session / "logs" / "raylet.out").write_text("started")
    (tmp_path / "session_latest").symlink_to(own)
    ended: list[str] = []
    ray_cluster_of_process._end(SimpleNamespace(shutdown=lambda: ended.append("shutdown")), own)
    assert ended == ["shutdown"]
    assert [*tmp_path.iterdir()] == [other]
