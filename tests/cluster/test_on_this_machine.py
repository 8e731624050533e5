"""``--workers N`` on this machine: nothing is lost, nothing is left behind, and only results are on standard output."""

import os
import signal
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest

from tests.cluster.commands import FAKE, Reins, alive, held, started, table
from tests.helpers.processes import eventually, listening, name_of

TWO = (*FAKE, "--workers", "2")

SCRIPT = """
import threading
from choicewise import evaluate

def go():
    protocols = ["mmlu/original", "mmlu/cloze:pmi-answer"]
    evaluate(model="fake:hash", data="bundled:merrowick", protocols=protocols, limit=4, out={out!r}, **{how!r})
    print("done")

{call}
"""
"""Without ``if __name__ == '__main__'``, as a notebook."""


def test_a_killed_shard_goes_on(reins: Reins, undisturbed: pa.Table, tmp_path: Path) -> None:
    reins.hold()
    with started(tmp_path / "two", *TWO, "--out", str(tmp_path / "run")) as command:
        os.kill(min(held(reins, command, 2)), signal.SIGKILL)
        eventually(lambda: "died (was stopped by signal 9)" in command.err)
        reins.release()
        command.ends_well()
    assert table(tmp_path / "run").equals(undisturbed)
    eventually(lambda: not any(map(alive, reins.answering)))
    assert not (tmp_path / "run.shards").exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_dead_command_leaves_no_process(
    reins: Reins, undisturbed: pa.Table, tmp_path: Path, number: int
) -> None:
    reins.hold()
    with started(tmp_path / "two", *TWO, "--out", str(tmp_path / "run")) as command:
        held(reins, command, 2)
        os.kill(command.process.pid, number)
        assert command.code() == (130 if number == signal.SIGINT else -number)
        assert "Traceback" not in command.err
        assert command.out == ""
    eventually(lambda: not any(map(alive, reins.answering)))
    reins.release()
    with started(tmp_path / "two", *TWO, "--out", str(tmp_path / "run")) as command:
        command.ends_well()
    assert table(tmp_path / "run").equals(undisturbed)


def test_more_workers_than_cores_print_only_results(
    reins: Reins, undisturbed: pa.Table, tmp_path: Path
) -> None:
    with started(tmp_path / "one", *FAKE, "--out", str(tmp_path / "one-run"), "--json") as command:
        command.ends_well()
        alone = command.out
    workers = str((os.cpu_count() or 1) + 1)
    line = (*FAKE, "--workers", workers, "--out", str(tmp_path / "run"), "--json")
    with started(tmp_path / "many", *line) as command:
        command.ends_well()
        assert command.out == alone
        assert command.err.count(": 100 %") == 1
    assert table(tmp_path / "run").equals(undisturbed)


@pytest.mark.parametrize(
    "call",
    ["go()", "thread = threading.Thread(target=go)\nthread.start()\nthread.join()"],
    ids=["script", "thread"],
)
@pytest.mark.parametrize(
    "how", [{"workers": 2}, {"executor": "ray", "workers": 2}], ids=["local", "ray"]
)
def test_a_script_runs_once(
    reins: Reins, undisturbed: pa.Table, tmp_path: Path, call: str, how: dict[str, object]
) -> None:
    if "executor" in how:
        pytest.importorskip("ray")
    out = str(tmp_path / "run")
    again = str(tmp_path / "again")  # a thread that ended takes no cluster with it
    script = tmp_path / "script.py"
    text = SCRIPT.format(out=out, how=how, call=call)
    script.write_text(text + text.replace(repr(out), repr(again)))
    with started(tmp_path / "script", "-u", str(script)) as command:
        command.ends_well()
        assert command.out == "done\ndone\n"
    assert table(tmp_path / "run").equals(undisturbed)
    assert table(tmp_path / "again").equals(undisturbed)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, None])
def test_an_own_cluster_on_loopback_ends_with_the_command(
    reins: Reins, tmp_path: Path, number: int | None
) -> None:
    """It leaves no folder where the command ends by itself (``number`` is None)."""
    pytest.importorskip("ray")
    reins.hold()
    words = (*FAKE, "--executor", "ray", "--workers", "2", "--out", str(tmp_path / "run"))
    # the paths of Ray's sockets have to be short
    with (
        TemporaryDirectory() as folder,
        started(tmp_path / "ray", *words, RAY_TMPDIR=folder) as command,
    ):
        held(reins, command, 2)
        own = [command.process.pid, *below(command.process.pid)]
        assert reins.answering <= set(own)
        addresses = {address for pid in own for address in listening(pid)}
        assert len(addresses) >= 3
        assert {address.rpartition(":")[0] for address in addresses} == {"127.0.0.1"}
        lasting = [
            pid
            for pid in own
            if not name_of(pid).startswith(("ray::DashboardAgent", "ray::RuntimeEnvAgent"))
        ]
        if number is None:
            assert [*Path(folder, "ray").glob("session_*")]
            reins.release()
            command.ends_well()
            assert [*Path(folder, "ray").glob("session_*")] == []
        else:
            os.kill(command.process.pid, number)
            command.code()
        # Ray's two agents look for the dead cluster for another minute, and end then
        eventually(lambda: not any(map(alive, lasting)))


def below(pid: int) -> list[int]:
    """All processes that descend from one."""
    folder = Path(f"/proc/{pid}/task")
    children = [
        int(child) for task in folder.iterdir() for child in (task / "children").read_text().split()
    ]
    return [*children, *(grandchild for child in children for grandchild in below(child))]
