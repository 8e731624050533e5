"""``--executor ray`` on a cluster of three nodes: the table of one process, whatever dies or freezes on the way."""

import json
import os
import re
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from choicewise.bundled import MODELS
from choicewise.errors import install_line
from choicewise.store.folder import read_sweep
from tests.cluster.commands import FAKE, PYTHON_PATH, Command, Reins, held, living, started, table
from tests.helpers.messages import Gist
from tests.helpers.processes import eventually, in_session, listening
from tests.helpers.ray_cluster import Cluster, Node, ray_cluster

pytest.importorskip("ray")

REAL = ("run", "--model", "bundled:merrow-bpe-512", "--data", "bundled:merrowick", "--limit", "1")
REAL += ("--protocol", "mmlu/original", "--protocol", "mmlu/cloze:pmi-answer")
RAY = ("--executor", "ray")


def node_of(cluster: Cluster, pid: int) -> Node:
    (node,) = [node for node in living(cluster) if pid in node.processes()]
    return node


def held_node(cluster: Cluster, reins: Reins, command: Command) -> Node:
    """A node but the first with one of three tasks, each of which waits with a shard."""
    return next(
        node
        for pid in held(reins, command, 3)
        if (node := node_of(cluster, pid)) is not cluster.nodes[0]
    )


def fake(cluster: Cluster, tmp_path: Path, *words: str, **environment: str):  # type: ignore[no-untyped-def]
    """``FAKE`` on the cluster."""
    return started(
        tmp_path / "ray",
        *FAKE,
        *RAY,
        "--out",
        f"{tmp_path}/run",
        *words,
        cluster=cluster,
        **environment,
    )


@contextmanager
def ends_undisturbed(
    cluster: Cluster, tmp_path: Path, undisturbed: pa.Table, *words: str
) -> Iterator[Command]:
    """``FAKE`` on the cluster, which ends well with the table of one process, whatever a test does meanwhile."""
    with fake(cluster, tmp_path, *words) as command:
        yield command
        command.ends_well()
    assert table(tmp_path / "run").equals(undisturbed)


def test_a_model_gives_the_table_of_one_process_to_the_bit(
    cluster: Cluster, reins: Reins, tmp_path: Path
) -> None:
    with started(tmp_path / "one", *REAL, "--out", str(tmp_path / "own")) as command:
        command.ends_well()
        alone = command.out
    with started(
        tmp_path / "ray", *REAL, *RAY, "--out", str(tmp_path / "run"), cluster=cluster
    ) as command:
        command.ends_well()
        # Names of one length: the longer the commands to run next, the shorter the report.
        assert command.out == alone
        assert "Traceback" not in command.err
    assert table(tmp_path / "run").equals(table(tmp_path / "own"))
    assert reins.answering


def test_all_of_it_listens_on_loopback_alone(
    cluster: Cluster, reins: Reins, tmp_path: Path
) -> None:
    reins.hold()
    with fake(cluster, tmp_path) as command:
        held(reins, command, 3)
        sessions = [command.process.pid, *(node.process.pid for node in living(cluster))]
        addresses = {
            address
            for session in sessions
            for pid in in_session(session)
            for address in listening(pid)
        }
    assert len(addresses) >= 9
    assert {address.rpartition(":")[0] for address in addresses} == {"127.0.0.1"}


@pytest.mark.parametrize("whole_node", [False, True], ids=["process", "node"])
def test_kills_are_cheap(
    cluster: Cluster, reins: Reins, undisturbed: pa.Table, tmp_path: Path, whole_node: bool
) -> None:
    """Ray starts the task again, on another node if need be, and the shard goes on."""
    reins.hold()
    with ends_undisturbed(cluster, tmp_path, undisturbed) as command:
        if whole_node:
            held_node(cluster, reins, command).kill()
        else:
            os.kill(held(reins, command, 3)[0], signal.SIGKILL)
        eventually(lambda: len(reins.answering) > 3 or whole_node)
        reins.release()
    assert not (tmp_path / "run.shards").exists()


def test_nodes_with_another_version_compute_nothing(reins: Reins, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLUSTER_TEST_VERSION", "0.0.9")
        with ray_cluster((1,), python_path=PYTHON_PATH) as cluster:
            patch.delenv("CLUSTER_TEST_VERSION")
            with fake(cluster, tmp_path) as command:
                assert command.code() == 2
                assert "Choicewise 0.0.9" in command.err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_dead_command_leaves_nothing(
    cluster: Cluster, reins: Reins, undisturbed: pa.Table, tmp_path: Path, number: int
) -> None:
    with fake(cluster, tmp_path) as command:
        eventually(lambda: reins.answering or command.process.poll() is not None)
        reins.hold()
        os.kill(command.process.pid, number)
        assert (
            command.code() == {signal.SIGKILL: -9, signal.SIGTERM: -15, signal.SIGINT: 130}[number]
        )  # type: ignore[index]
        assert "Traceback" not in command.err
        eventually(lambda: not any(node.workers() for node in living(cluster)))
    reins.release()
    with ends_undisturbed(cluster, tmp_path, undisturbed):
        pass


@pytest.mark.parametrize(
    ("device", "reason"),
    [
        (
            "cuda",
            "merrow-bpe-512: it needs 1 GPU (0 on the largest)",
        ),
        ("cuda:1", "use cuda instead of cuda:1"),
    ],
)
def test_a_cluster_that_can_never_hold_a_model(
    cluster: Cluster, tmp_path: Path, device: str, reason: str
) -> None:
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
def test_no_cluster_that_answers(
    cluster: Cluster, tmp_path: Path, reason: str, environment: dict[str, str]
) -> None:
    with fake(cluster, tmp_path, **environment) as command:
        assert command.code() == 2
        address = environment.get("RAY_ADDRESS", cluster.address)
        assert f"RAY_ADDRESS={address}" in command.err
        assert reason in command.err
        assert "RAY_ADDRESS" in environment or "RAY_AUTH_TOKEN" in command.err


def test_without_ray_it_says_how_to_get_it(tmp_path: Path) -> None:
    block = "import sys; sys.modules['ray'] = None; from choicewise.cli import main; main()"
    with started(
        tmp_path / "ray", "-c", block, *FAKE, *RAY, "--out", str(tmp_path / "run")
    ) as command:
        assert command.code() == 2
        assert command.err == Gist(f"error: ... ray ... run: {install_line('ray')}")


def test_two_drivers_share_a_cluster(
    cluster: Cluster, undisturbed: pa.Table, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    with fake(cluster, tmp_path) as first, fake(cluster, tmp_path / "other") as second:
        first.ends_well()
        second.ends_well()
    assert table(tmp_path / "run").equals(undisturbed)
    assert table(tmp_path / "other" / "run").equals(undisturbed)


BUNDLED = [f"bundled:{folder.name}" for folder in MODELS]
ASKED = ("--data", "bundled:merrowick", "--limit", "1")
ASKED += ("--protocol", "mmlu/original", "--protocol", "mmlu/cloze:pmi-answer")
ON = " on bundled:merrowick"
INCOMPLETE = 7


def words(out: Path, *models: str) -> tuple[str, ...]:
    """The line of a sweep."""
    return (
        "sweep",
        *(word for model in models for word in ("--model", model)),
        *ASKED,
        "--out",
        str(out),
    )


@pytest.fixture(scope="module")
def one_after_another(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a sweep in one process; its results are in ``out`` beside it."""
    folder = tmp_path_factory.mktemp("one")
    with started(
        folder / "one", *words(folder / "sweep", *BUNDLED, "fake:hash"), "--json"
    ) as command:
        command.ends_well()
    return folder / "sweep"


def assert_as_one_after_another(folder: Path, one_after_another: Path) -> None:
    for cell in read_sweep(folder).cells:
        assert table(folder / cell.folder).equals(table(one_after_another / cell.folder))


def check_talk(talk: str) -> None:
    """Whole lines, and progress of one title that never falls."""
    told = [int(share) for share in re.findall(r"^all runs: (\d+) %", talk, re.MULTILINE)]
    assert (told, told[-1:]) == (sorted(told), [100])
    assert "Traceback" not in talk
    assert not re.search(r"\S(all runs: )\d", talk)
    assert talk.count(": 100 %") == 1


def test_models_at_once_give_the_same(
    cluster: Cluster, reins: Reins, one_after_another: Path, tmp_path: Path
) -> None:
    line = (*words(tmp_path / "sweep", *BUNDLED, "fake:hash"), *RAY, "--json")
    reins.hold()
    with started(tmp_path / "ray", *line, cluster=cluster) as command:
        eventually(lambda: len(reins.answering) == 3 or command.process.poll() is not None)
        # as many as there are cores
        reins.release()
        command.ends_well()
        assert json.loads(command.out) == json.loads(
            (one_after_another.parent / "one.out").read_text()
        )
        check_talk(command.err)
    assert_as_one_after_another(tmp_path / "sweep", one_after_another)


def test_failures_are_resumed(
    cluster: Cluster, reins: Reins, one_after_another: Path, tmp_path: Path
) -> None:
    damaged = shutil.copytree(MODELS[0], tmp_path / "damaged")
    weights = next(damaged.glob("*.safetensors"))
    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    models = ["fake:hash", str(tmp_path / "nowhere"), str(damaged), BUNDLED[0]]
    line = (*words(tmp_path / "sweep", *models), *RAY)
    with started(tmp_path / "first", *line, cluster=cluster) as command:
        assert command.code() == INCOMPLETE, command.err
        assert "2 of 4 runs are missing" in command.err
        assert "no model folder" in command.err
        assert "Traceback" not in command.err
    failures = {cell.model: cell.failure for cell in read_sweep(tmp_path / "sweep").cells}
    assert [bool(failures[model]) for model in models] == [False, True, True, False]
    reins.reset()
    weights.write_bytes(whole)
    with started(tmp_path / "again", *line, cluster=cluster) as command:
        assert command.code() == INCOMPLETE, command.err
        assert "1 of 4 runs are missing" in command.err
        assert f"{damaged} on bundled:merrowick\n" in command.err
        assert "fake:hash on bundled:merrowick\n" not in command.err
    (done,) = [cell for cell in read_sweep(tmp_path / "sweep").cells if cell.model == str(damaged)]
    assert table(tmp_path / "sweep" / done.folder).num_rows > 0
    reins.reset()
    shutil.copytree(MODELS[0], tmp_path / "nowhere")
    with started(tmp_path / "last", *line, cluster=cluster) as command:
        command.ends_well()
    reins.reset()
    with started(tmp_path / "nothing", *line, cluster=cluster) as command:
        command.ends_well()
        assert " on bundled:merrowick\n" not in command.err
    assert not reins.answers


def test_ctrl_c_keeps_observations(
    cluster: Cluster, reins: Reins, one_after_another: Path, tmp_path: Path
) -> None:
    line = (*words(tmp_path / "sweep", "fake:hash", *BUNDLED[:2]), *RAY)
    with started(tmp_path / "first", *line, cluster=cluster) as command:
        eventually(lambda: len({number for _, number in reins.answers}) >= 2)
        reins.hold()
        command.interrupt()
        assert command.code(patience=60) == 130, command.err
        assert "Traceback" not in command.err
    reins.release()
    sweep = read_sweep(tmp_path / "sweep")
    assert not any(cell.failure for cell in sweep.cells)  # nothing failed
    eventually(lambda: not any(node.workers() for node in cluster.nodes))
    done = [cell.model for cell in sweep.cells if cell.done]
    with started(tmp_path / "again", *line, cluster=cluster) as command:
        command.ends_well()
        assert not any(f"{model} on bundled:merrowick\n" in command.err for model in done)
    assert_as_one_after_another(tmp_path / "sweep", one_after_another)


def test_more_memory_than_there_is_is_said_of_that_model_alone(
    cluster: Cluster, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(
        'models = ["fake:hash", {name = "fake:oracle", memory = "900 TB"}]\n'
        'protocols = ["mmlu/original"]\ndata = ["bundled:merrowick"]\nlimit = 1\n',
        encoding="utf-8",
    )
    out = str(tmp_path / "sweep")
    with started(
        tmp_path / "ray", "sweep", str(plan), "--out", out, *RAY, cluster=cluster
    ) as command:
        assert command.code() == INCOMPLETE, command.err
        assert "fake:oracle on bundled:merrowick failed: " in command.err
        assert "it needs 900000.0 GB of memory (" in command.err
    assert [cell.done for cell in read_sweep(tmp_path / "sweep").cells] == [True, False]
