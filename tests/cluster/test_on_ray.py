"""``--executor ray`` on a cluster of three nodes: the table of one process, whatever dies or freezes on the way."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from choicewise.errors import install_line
from tests.cluster.commands import FAKE, PYTHON_PATH, Command, Reins, held, living, started, table
from tests.helpers.processes import eventually
from tests.helpers.ray_cluster import ROOT, Cluster, Node, ray_cluster

pytest.importorskip("ray")

REAL = ("run", "--model", "bundled:merrow-bpe-512", "--data", "bundled:merrowick", "--limit", "1")
REAL += ("--protocol", "mmlu/original", "--protocol", "mmlu/cloze:pmi-answer")
RAY = ("--executor", "ray")


def node_of(cluster: Cluster, pid: int) -> Node:
    (node,) = [node for node in living(cluster) if pid in node.processes()]
    return node


def held_node(cluster: Cluster, reins: Reins, command: Command) -> Node:
    """A node but the first with one of three replicas, each of which waits with a shard."""
    return next(node for pid in held(reins, command, 3) if (node := node_of(cluster, pid)) is not cluster.nodes[0])


def fake(cluster: Cluster, tmp_path: Path, *words: str, **environment: str):  # type: ignore[no-untyped-def]
    """``FAKE`` on the cluster."""
    return started(
        tmp_path / "ray", *FAKE, *RAY, "--out", str(tmp_path / "run"), *words, cluster=cluster, **environment
    )


@contextmanager
def ends_undisturbed(cluster: Cluster, tmp_path: Path, undisturbed: pa.Table, *words: str) -> Iterator[Command]:
    """``FAKE`` on the cluster, which ends well with the table of one process, whatever a test does meanwhile."""
    with fake(cluster, tmp_path, *words) as command:
        yield command
        command.ends_well()
    assert table(tmp_path / "run").equals(undisturbed)


def test_a_model_gives_the_table_of_one_process_to_the_bit(cluster: Cluster, reins: Reins, tmp_path: Path) -> None:
    with started(tmp_path / "one", *REAL, "--out", str(tmp_path / "one-run")) as command:
        command.ends_well()
        alone = command.out
    with started(tmp_path / "ray", *REAL, *RAY, "--out", str(tmp_path / "run"), cluster=cluster) as command:
        command.ends_well()
        assert command.out == alone  # results only, and the same
        assert "Traceback" not in command.err
    assert table(tmp_path / "run").equals(table(tmp_path / "one-run"))
    assert reins.answering  # that all three compute is held where they are made to wait for each other


@pytest.mark.parametrize("whole_node", [False, True], ids=["replica", "node"])
def test_what_is_killed_costs_its_shards(
    cluster: Cluster, reins: Reins, undisturbed: pa.Table, tmp_path: Path, whole_node: bool
) -> None:
    reins.hold()
    with ends_undisturbed(cluster, tmp_path, undisturbed) as command:
        if whole_node:
            held_node(cluster, reins, command).kill()
        else:
            os.kill(held(reins, command, 3)[0], signal.SIGKILL)
        eventually(lambda: "a replica died (" in command.err)
        reins.release()
    assert "what it was asked is asked again" in command.err


@pytest.mark.parametrize("until_all_is_done", [False, True], ids=["for a moment", "until all is done"])
def test_a_node_may_freeze_and_doubles_nothing_when_it_comes_back(
    cluster: Cluster, reins: Reins, undisturbed: pa.Table, tmp_path: Path, until_all_is_done: bool
) -> None:
    reins.hold()
    with ends_undisturbed(cluster, tmp_path, undisturbed) as command:
        node = held_node(cluster, reins, command)
        node.pause()
        reins.release()
        if until_all_is_done:
            command.ends_well()
            assert "a replica died (" in command.err
        else:
            eventually(lambda: len({number for _, number in reins.answers}) >= 6)  # what the others have is done
        node.resume()
    if until_all_is_done:
        node.kill()


def test_a_node_that_is_added_midway_computes(
    cluster: Cluster, reins: Reins, undisturbed: pa.Table, tmp_path: Path
) -> None:
    reins.hold()
    with ends_undisturbed(cluster, tmp_path, undisturbed, "--workers", "4") as command:
        held(reins, command, 3)
        added = cluster.start()
        cluster.wait(added)
        pids = held(reins, command, 4)
        assert set(pids) & set(added.processes())
        reins.release()
    added.kill()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_driver_that_ends_leaves_nothing_and_the_same_line_goes_on(
    cluster: Cluster, reins: Reins, undisturbed: pa.Table, tmp_path: Path, number: int
) -> None:
    with fake(cluster, tmp_path) as command:
        eventually(lambda: reins.answering or command.process.poll() is not None)
        reins.hold()
        os.kill(command.process.pid, number)
        assert command.code() == {signal.SIGKILL: -9, signal.SIGTERM: -15, signal.SIGINT: 130}[number]  # type: ignore[index]
        assert "Traceback" not in command.err
        eventually(lambda: not any(node.workers() for node in living(cluster)))
    reins.release()
    with ends_undisturbed(cluster, tmp_path, undisturbed):
        pass


def test_where_nothing_is_free_it_says_so_and_ends(cluster: Cluster, reins: Reins, tmp_path: Path) -> None:
    reins.hold()
    other = tmp_path / "other"
    other.mkdir()
    with fake(cluster, other) as command:
        held(reins, command, 3)
        with fake(cluster, tmp_path, CLUSTER_TEST_PATIENCE="2") as second:
            assert second.code() == 5
            assert "waiting for the first replica: a replica needs 1 CPU (0 free)" in second.err
            assert "error: no replica could start within 2 s: a replica needs 1 CPU (0 free)" in second.err
        assert command.process.poll() is None
        reins.release()
        command.ends_well()


@pytest.mark.parametrize(
    ("device", "reason"),
    [
        ("cuda", "no node of the cluster has room for merrow-bpe-512: it needs 1 GPU (0 on the largest)"),
        ("cuda:1", "device cuda:1 is one of a machine; say cuda"),
    ],
)
def test_a_cluster_that_can_never_hold_a_replica(cluster: Cluster, tmp_path: Path, device: str, reason: str) -> None:
    words = (*REAL, *RAY, "--device", device, "--out", str(tmp_path / "run"))
    with started(tmp_path / "ray", *words, cluster=cluster) as command:
        assert command.code() == 2
        assert reason in command.err
        assert command.out == ""


@pytest.mark.parametrize(
    ("reason", "environment"),
    [("(", {"RAY_AUTH_TOKEN": "0" * 64}), ("([Errno 111]", {"RAY_ADDRESS": "127.0.0.1:9"})],
    ids=["another token", "nothing there"],
)
def test_no_cluster_that_answers(cluster: Cluster, tmp_path: Path, reason: str, environment: dict[str, str]) -> None:
    with fake(cluster, tmp_path, **environment) as command:
        assert command.code() == 2
        address = environment.get("RAY_ADDRESS", cluster.address)
        assert f"error: RAY_ADDRESS is {address}, and no cluster answers there {reason}" in command.err
        assert "RAY_ADDRESS" in environment or "RAY_AUTH_TOKEN" in command.err


def test_without_ray_it_says_how_to_get_it(tmp_path: Path) -> None:
    block = "import sys; sys.modules['ray'] = None; from choicewise.cli import main; main()"
    with started(tmp_path / "ray", "-c", block, *FAKE, *RAY, "--out", str(tmp_path / "run")) as command:
        assert command.code() == 2
        assert command.err == f"error: the executor ray needs Ray; run: {install_line('ray')}\n"


def test_a_folder_that_changes_before_the_replicas_load_it(cluster: Cluster, reins: Reins, tmp_path: Path) -> None:
    models = ROOT / "src" / "choicewise" / "bundled" / "models"
    model = tmp_path / "model"
    model.symlink_to(models / "merrow-bpe-512")
    reins.hold("hold-load")
    words = ("run", "--model", str(model), *REAL[3:], *RAY, "--workers", "1", "--out", str(tmp_path / "run"))
    with started(tmp_path / "ray", *words, cluster=cluster) as command:
        eventually(lambda: any(node.workers() for node in living(cluster)) or command.process.poll() is not None)
        model.unlink()
        model.symlink_to(models / "merrow-byte")
        reins.release("hold-load")
        assert command.code() == 5
        assert "has another model under the same name (weights or configuration: " in command.err


def test_nodes_that_are_not_like_the_driver_answer_nothing(reins: Reins, tmp_path: Path) -> None:
    """Another model, no model, another Choicewise; one without a disk does as well as others."""
    models = ROOT / "src" / "choicewise" / "bundled" / "models"
    model = tmp_path / "model"
    model.symlink_to(models / "merrow-bpe-512")
    changes = [
        {"CLUSTER_TEST_MODEL": str(models / "merrow-byte")},
        {"CLUSTER_TEST_MODEL": str(tmp_path / "nowhere")},
        {"CLUSTER_TEST_VERSION": "0.0.9"},
    ]
    same = ("run", "--model", str(model), *REAL[3:])
    with started(tmp_path / "one", *same, "--out", str(tmp_path / "one-run")) as command:
        command.ends_well()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLUSTER_TEST_NO_DISK", "1")
        with ray_cluster((1,), python_path=PYTHON_PATH) as cluster:
            patch.delenv("CLUSTER_TEST_NO_DISK")
            for change in changes:
                with pytest.MonkeyPatch.context() as here:
                    for name, value in change.items():
                        here.setenv(name, value)
                    node = cluster.start()
                cluster.wait(node)
            words = (*same, *RAY, "--workers", "4", "--out", str(tmp_path / "run"))
            reins.hold()
            with started(tmp_path / "ray", *words, cluster=cluster) as command:
                refused = "; the run goes on without it"
                eventually(lambda: command.err.count(refused) == 3 or command.process.poll() is not None)
                reins.release()
                command.ends_well()
            assert len(reins.answering) == 1
    assert "has another model under the same name (weights or configuration: " in command.err
    assert "has another model under the same name (Choicewise: 0.0.9 there" in command.err
    assert f"there is no model folder {tmp_path / 'nowhere'}" in command.err
    assert table(tmp_path / "run").equals(table(tmp_path / "one-run"))


def test_two_drivers_share_a_cluster(cluster: Cluster, undisturbed: pa.Table, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with fake(cluster, tmp_path) as first, fake(cluster, tmp_path / "other") as second:
        first.ends_well()
        second.ends_well()
    assert table(tmp_path / "run").equals(undisturbed)
    assert table(tmp_path / "other" / "run").equals(undisturbed)
