"""A real Ray cluster of several nodes on this machine: every node has processes and resources of its own. Each node is
``ray start --block`` in a session of its own (``tests/helpers/ray_node.py``), so that a node, all it started, and
nothing else can be killed. Everything listens on 127.0.0.1 alone. The cluster ends with the ``with``, and with the
process that started it, however that ended."""

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.helpers.processes import end_session, in_session, name_of
from tests.paths import ROOT

TIMES = {"initial_delay_ms": 0, "period_ms": 500, "timeout_ms": 500, "failure_threshold": 4}
SOON = {f"health_check_{name}": value for name, value in TIMES.items()}
"""Settings of the head under which a silent node is given up within about two seconds."""

STORE = 80 * 1024 * 1024  # bytes of each node's object store; Ray refuses less than 75 MiB

SERVICES = ("ray::IDLE", "ray::DashboardAgent", "ray::RuntimeEnvAgent")
"""What Ray runs on a node besides actors and tasks."""

QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "token", "NO_COLOR": "1"}


@dataclass
class Node:
    """One node: a session of processes, told from the other nodes by its own resource ``label``."""

    label: str
    process: subprocess.Popen[bytes]
    log: Path

    def processes(self) -> dict[int, str]:
        """What the node runs now: name by process."""
        return {pid: name_of(pid) for pid in in_session(self.process.pid)}

    def workers(self) -> dict[int, str]:
        """The node's processes that hold an actor or run a task: name by process."""
        own = self.processes().items()
        return {
            pid: name
            for pid, name in own
            if name.startswith("ray::") and not name.startswith(SERVICES)
        }

    def kill(self) -> None:
        """Kills all of the node's processes at once, as if the machine lost its power; they are gone afterwards."""
        end_session(self.process.pid, leader=False)
        assert self.process.stdin is not None
        self.process.stdin.close()  # the first of them waits for the others, then ends
        try:
            self.process.wait(timeout=20)
        finally:
            end_session(self.process.pid)
            self.process.wait()

    def pause(self) -> None:
        """Stops all of the node's processes where they are, as if its network were cut; ``resume`` goes on."""
        for pid in in_session(self.process.pid):
            os.kill(pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Lets the processes that ``pause`` stopped go on."""
        for pid in in_session(self.process.pid):
            os.kill(pid, signal.SIGCONT)


@dataclass
class Cluster:
    """A running cluster. ``folder``: of the head's and the nodes' logs (``*.log``, ``session_latest/logs``), gone after
    the test. ``address``: ``127.0.0.1:PORT`` of the head; ``nodes``: those started, the head first; killed ones stay
    here."""

    folder: Path
    python_path: str
    token: str = field(default_factory=lambda: secrets.token_hex(32))
    address: str = ""
    nodes: list[Node] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        """What a driver needs in its environment, besides its own, to work on this cluster."""
        # with the last one 127.0.0.1 stays what it is: Ray otherwise asks the machine's outer address for the cluster
        own = {
            "RAY_ADDRESS": self.address,
            "RAY_AUTH_TOKEN": self.token,
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        }
        return {**QUIET, **own}

    def start(self, cpus: int = 1, gpus: int = 0) -> Node:
        """Starts one more node (the first is the head) and does not wait.  No GPU that it says it has must exist."""
        label = f"node{len(self.nodes)}"
        folder = self.folder / label
        common = [
            "--block",
            "--node-ip-address=127.0.0.1",
            f"--num-cpus={cpus}",
            f"--num-gpus={gpus}",
        ]
        common += [
            f"--object-store-memory={STORE}",
            f"--resources={json.dumps({label: 1})}",
            f"--temp-dir={folder}",
        ]
        if self.nodes:
            own = [f"--address={self.address}"]
        else:
            settings = f"--system-config={json.dumps(SOON)}"
            own = [
                "--head",
                "--port=0",
                "--include-dashboard=false",
                "--disable-usage-stats",
                settings,
            ]
        environment = {
            key: value for key, value in os.environ.items() if not key.startswith(("RAY_", "CUDA_"))
        }
        environment |= {**QUIET, "RAY_AUTH_TOKEN": self.token, "PYTHONPATH": self.python_path}
        log = self.folder / f"{label}.log"
        with log.open("wb") as output:
            streams = {"stdin": subprocess.PIPE, "stdout": output, "stderr": subprocess.STDOUT}
            words = [
                sys.executable,
                str(ROOT / "tests" / "helpers" / "ray_node.py"),
                "start",
                *common,
                *own,
            ]
            process = subprocess.Popen(
                words, **streams, cwd=self.folder, env=environment, start_new_session=True
            )
        node = Node(label, process, log)
        self.nodes.append(node)
        return node

    def wait(self, node: Node, patience: float = 120.0) -> None:
        """Returns when a node is part of the cluster; RuntimeError where it ended, or is not within ``patience``."""
        started = self.folder / node.label / "ray_current_cluster"  # written when all runs
        until = time.monotonic() + patience
        while not (started.is_file() and started.read_text()):
            if node.process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"{node.label} did not start\n{node.log.read_text()}")
            time.sleep(0.05)
        self.address = started.read_text()


@contextmanager
def ray_cluster(
    cpus: Sequence[int] = (1, 1, 1), python_path: str | None = None
) -> Iterator[Cluster]:
    """A cluster with one node per number in ``cpus``, the head first; about ten seconds on two cores. ``python_path``:
    ``PYTHONPATH`` of its workers, by default the sources and the tests of this checkout. Raises RuntimeError where a
    node did not start, or a process of the cluster could not be killed at the end."""
    python_path = python_path or os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    # sockets have short names, so that a test's own folder would be too long
    folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
    cluster = Cluster(folder, python_path)
    with ExitStack() as ends:
        ends.callback(shutil.rmtree, folder, ignore_errors=True)
        ends.callback(lambda: [(node.resume(), node.kill()) for node in cluster.nodes])
        cluster.wait(cluster.start(cpus[0]))
        for node in [cluster.start(number) for number in cpus[1:]]:
            cluster.wait(node)
        yield cluster
