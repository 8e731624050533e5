"""``choicewise sweep --executor ray`` on a cluster of three nodes: several models at once, and what may go wrong."""

import json
import os
import re
import shutil
import signal
from pathlib import Path

import pytest

from choicewise.bundled import MODELS
from choicewise.store.folder import read_sweep
from tests.cluster.commands import Reins, held, started, table
from tests.helpers.processes import eventually
from tests.helpers.ray_cluster import Cluster

pytest.importorskip("ray")

BUNDLED = [f"bundled:{folder.name}" for folder in MODELS]
ASKED = ("--data", "bundled:merrowick", "--limit", "1")
ASKED += ("--protocol", "mmlu/original", "--protocol", "mmlu/cloze:pmi-answer")
ON = " on bundled:merrowick"
RAY = ("--executor", "ray")
INCOMPLETE = 7


def words(out: Path, *models: str) -> tuple[str, ...]:
    """The line of a sweep."""
    return ("sweep", *(word for model in models for word in ("--model", model)), *ASKED, "--out", str(out))


@pytest.fixture(scope="module")
def one_after_another(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a sweep in one process; its results are in ``out`` beside it."""
    folder = tmp_path_factory.mktemp("one")
    with started(folder / "one", *words(folder / "sweep", *BUNDLED, "fake:hash"), "--json") as command:
        command.ends_well()
    return folder / "sweep"


def assert_as_one_after_another(folder: Path, one_after_another: Path) -> None:
    for cell in read_sweep(folder).cells:
        assert table(folder / cell.folder).equals(table(one_after_another / cell.folder))


def check_talk(talk: str) -> None:
    """Whole lines, and progress of one title that never falls."""
    told = [int(share) for share in re.findall(r"^all runs: (\d+) %", talk, re.MULTILINE)]
    assert told == sorted(told)
    assert told[-1:] == [100]
    assert "Traceback" not in talk
    assert not re.search(r"\S(all runs: )\d", talk)
    assert talk.count(": 100 %") == 1


def test_models_at_once_give_what_one_after_another_gives(
    cluster: Cluster, reins: Reins, one_after_another: Path, tmp_path: Path
) -> None:
    line = (*words(tmp_path / "sweep", *BUNDLED, "fake:hash"), *RAY, "--json")
    reins.hold()
    with started(tmp_path / "ray", *line, cluster=cluster) as command:
        eventually(lambda: len(reins.answering) == 3 or command.process.poll() is not None)
        begun = {line.partition(" on ")[0] for line in command.err.splitlines() if line.endswith(ON)}
        assert len(begun) in (3, 4), command.err  # as many as there are cores, and one that waits for a core
        reins.release()
        command.ends_well()
        assert json.loads(command.out) == json.loads((one_after_another.parent / "one.out").read_text())
        check_talk(command.err)
    assert_as_one_after_another(tmp_path / "sweep", one_after_another)


def test_a_killed_worker_costs_its_shard(
    cluster: Cluster, reins: Reins, one_after_another: Path, tmp_path: Path
) -> None:
    reins.hold()
    models = [BUNDLED[0], "fake:hash"]
    with started(tmp_path / "ray", *words(tmp_path / "sweep", *models), *RAY, cluster=cluster) as command:
        for pid in held(reins, command, 2):
            os.kill(pid, signal.SIGKILL)
        eventually(lambda: command.err.count(": a replica died (") >= 2)  # each says of which model
        reins.release()
        command.ends_well()
        check_talk(command.err)
    assert_as_one_after_another(tmp_path / "sweep", one_after_another)


def test_what_fails_is_recorded_and_the_same_line_does_the_rest(
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
        assert "there is no model folder" in command.err
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


def test_ctrl_c_ends_all_models_and_keeps_what_was_observed(
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


def test_more_memory_than_there_is_is_said_of_that_model_alone(cluster: Cluster, tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(
        'models = ["fake:hash", {name = "fake:oracle", memory = "900 TB"}]\n'
        'protocols = ["mmlu/original"]\ndata = ["bundled:merrowick"]\nlimit = 1\n',
        encoding="utf-8",
    )
    out = str(tmp_path / "sweep")
    with started(tmp_path / "ray", "sweep", str(plan), "--out", out, *RAY, cluster=cluster) as command:
        assert command.code() == INCOMPLETE, command.err
        assert "fake:oracle on bundled:merrowick failed: no node of the cluster has room for" in command.err
        assert "it needs 900000.0 GB of memory (" in command.err
    assert [cell.done for cell in read_sweep(tmp_path / "sweep").cells] == [True, False]


def test_waiting_is_told_by_its_model_and_ends(cluster: Cluster, reins: Reins, tmp_path: Path) -> None:
    """Where somebody else has all of the cluster, the sweep says so, and does not hang."""
    reins.hold()
    busy = ("run", "--model", "fake:hash", *ASKED, *RAY, "--out", str(tmp_path / "busy"))
    with started(tmp_path / "other", *busy, cluster=cluster) as other:
        eventually(lambda: len(reins.answering) == 3)
        line = (*words(tmp_path / "sweep", "fake:oracle", "fake:hash"), *RAY)
        with started(tmp_path / "ray", *line, cluster=cluster, CLUSTER_TEST_PATIENCE="3") as command:
            assert command.code(patience=120) == INCOMPLETE, command.err
            assert "fake:oracle: waiting for the first replica: a replica needs 1 CPU (0 free)" in command.err
            assert "2 of 2 runs are missing" in command.err
        reins.release()
        other.ends_well()
