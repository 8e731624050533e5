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
def talking(cluster: Cluster, **environment: str) -> Iterator[Call]:
    with driver(cluster, str(ROOT / "tests" / "helpers" / "ray_driver.py"), **{**SILENT, **environment}) as process:
        requests, answers = process.stdin, process.stdout
        assert requests is not None
        assert answers is not None
        assert json.loads(answers.readline()) == cluster.address

        def call(function: str, *arguments: Any, **options: Any) -> Any:
            print(json.dumps([function, arguments, options]), file=requests, flush=True)
            return json.loads(answers.readline())

        call.process = process  # type: ignore[attr-defined]
        yield call


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with ray_cluster() as started:
        yield started


def test_three_nodes_have_processes_and_resources_of_their_own(cluster: Cluster) -> None:
    with talking(cluster) as call:
        seen = call("cluster")
        assert len(set(seen["alive"])) == 3
        assert seen["all"]["CPU"] == 3
        homes = []
        for node in cluster.nodes:
            call("start", node.label, num_cpus=1, resources={node.label: 1})
            where = call("answer", node.label)["value"]
            homes.append(where["node"])
            assert list(node.workers()) == [where["pid"]]
        assert set(homes) == set(seen["alive"])


def test_all_of_it_listens_on_loopback_alone(cluster: Cluster) -> None:
    with talking(cluster) as call:
        call("start", "a", num_cpus=1)
        call("answer", "a")
        sessions = [call.process.pid, *(node.process.pid for node in cluster.nodes)]  # type: ignore[attr-defined]
        addresses = {address for session in sessions for pid in in_session(session) for address in listening(pid)}
        assert len(addresses) >= 9
        assert {address.rpartition(":")[0] for address in addresses} == {"127.0.0.1"}


def test_a_worker_has_our_python_our_sources_and_one_thread(cluster: Cluster) -> None:
    with talking(cluster) as call:
        call("start", "a", num_cpus=1)
        where = call("answer", "a")["value"]
        assert where["python"] == sys.executable
        assert Path(where["choicewise"]) == ROOT / "src" / "choicewise" / "__init__.py"
        assert where["threads"] == os.environ.get("OMP_NUM_THREADS", "1")
        call("start", "b", num_cpus=1, runtime_env={"env_vars": {"OMP_NUM_THREADS": "2"}})
        assert call("answer", "b")["value"]["threads"] == "2"


def test_a_killed_actor_is_dead_for_the_call_under_way_and_for_the_next(cluster: Cluster) -> None:
    with talking(cluster) as call:
        call("start", "a", num_cpus=1)
        pid = call("answer", "a")["value"]["pid"]
        call("ask", "a", "fail")
        assert "ValueError" in call("answer", "a")["raised"]
        call("ask", "a", "sleep", 600)
        os.kill(pid, signal.SIGKILL)
        assert call("answer", "a")["raised"][0] == "ActorDiedError"
        call("ask", "a", "where")
        assert call("answer", "a")["raised"][0] == "ActorDiedError"
        call("start", "a", num_cpus=1)
        assert call("answer", "a")["value"]["pid"] != pid


def test_an_actor_waits_for_what_is_not_free_and_for_what_is_not_there(cluster: Cluster) -> None:
    with talking(cluster) as call:
        for name in "abc":
            call("start", name, num_cpus=1)
            call("answer", name)
        eventually(lambda: call("cluster")["free"].get("CPU", 0) == 0)
        call("start", "d", num_cpus=1)
        assert call("answer", "d", 0.5)["raised"][0] == "GetTimeoutError"
        call("start", "e", num_gpus=1)
        assert call("answer", "e", 0.5)["raised"][0] == "GetTimeoutError"
        assert "GPU" not in call("cluster")["all"]
        call("dismiss", "e")
        assert call("answer", "e")["raised"][0] == "ActorDiedError"
        call("dismiss", "a")
        assert call("answer", "d")["value"]["pid"]


def test_the_actors_of_a_killed_driver_end(cluster: Cluster) -> None:
    with talking(cluster) as call:
        for name in "ab":
            call("start", name, num_cpus=1)
            call("answer", name)
        call("ask", "a", "sleep", 600)
        assert sum(len(node.workers()) for node in cluster.nodes) == 2
        call.process.kill()  # type: ignore[attr-defined]
        eventually(lambda: not any(node.workers() for node in cluster.nodes))
    with talking(cluster) as call:
        eventually(lambda: call("cluster")["free"].get("CPU") == 3)


def test_a_lost_node_takes_its_actor_and_nothing_else() -> None:
    with ray_cluster() as cluster, talking(cluster) as call:
        for node in cluster.nodes:
            call("start", node.label, num_cpus=1, resources={node.label: 1})
            call("answer", node.label)
            call("ask", node.label, "sleep", 2 if node.label != "node1" else 600)
        lost = cluster.nodes[1]
        lost.kill()
        assert list(in_session(lost.process.pid, zombies=True)) == []
        # until the head has given the node up, its actor is said to be unavailable for now
        assert call("answer", "node1")["raised"][0] in ("ActorUnavailableError", "ActorDiedError")

        def dead() -> bool:
            call("ask", "node1", "where")
            return bool(call("answer", "node1")["raised"][0] == "ActorDiedError")

        eventually(dead)
        eventually(lambda: len(call("cluster")["alive"]) == 2)
        assert call("answer", "node0") == {"value": 2}
        assert call("answer", "node2") == {"value": 2}
        cluster.wait(cluster.start())
        eventually(lambda: len(call("cluster")["alive"]) == 3)
        call("start", "new", num_cpus=1)
        pid = call("answer", "new")["value"]["pid"]
        assert list(cluster.nodes[3].workers()) == [pid]


def test_a_cluster_ends_with_the_process_that_started_it() -> None:
    source = (
        "from tests.helpers.ray_cluster import ray_cluster\n"
        "with ray_cluster((1,)) as cluster:\n"
        "    print(cluster.folder, cluster.nodes[0].process.pid, flush=True)\n"
        "    input()\n"
    )
    command = [sys.executable, "-c", source]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
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
