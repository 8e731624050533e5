"""Compute shards as tasks of a Ray cluster, or of one that is started on this machine.

Whoever reaches a Ray cluster can run any code on it, by design. So a cluster that is started here
listens on loopback alone, with a token that only this process and its children have, and without a
dashboard.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import secrets
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from choicewise.errors import MachinesLost, UsageError, install_line
from choicewise.extensions.cluster.part import Part, compute_part
from choicewise.extensions.cluster.spread import ShardedRuns, compute_all, failures_of
from choicewise.models.kinds import kind_of, model_kind
from choicewise.models.local.devices import AUTO, Footprint, devices_of
from choicewise.models.local.folder_model import footprint_of
from choicewise.models.model import Model
from choicewise.ports import ModelRuns, Watcher
from choicewise.util.isolate import Record
from choicewise.util.text import bytes_of, listed

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def evaluate(models: Iterable[ModelRuns], workers: int | None, watcher: Watcher) -> None:
    """Compute the runs of all models at once, a task of the cluster for each shard.

    Ray finds the nodes, and starts a task again whose process or node is gone. Without ``workers``
    the shards of a single model are as many as the cluster has room for; one of several models is
    a single task. Raises UsageError if no node could hold a task even if nothing else ran on it.
    """
    all_runs = list(models)
    sharded = []
    for runs in all_runs:
        try:
            needs = task_needs(runs, workers)
        except UsageError as error:
            watcher.ended(runs.job.models[0].label, failures_of(runs, error))
            continue
        count = workers
        if count is None:
            count = 1
            if len(all_runs) == 1:
                count = max(1, sum(needs.times(node) for node in nodes_of_cluster()))
        takes_device = "device" in model_kind(runs.job.models[0].name).takes
        sharded.append(ShardedRuns(runs, count, Tasks(needs, needs.gpus > 1 and takes_device)))
    watcher.say(f"computing on a cluster with {in_words(nodes_of_cluster())}")
    compute_all(sharded, watcher)


class Tasks:
    """Start tasks on the cluster that take ``needs`` of a node each.

    ``spreads``: True if a model is spread over the GPUs of its task.
    """

    def __init__(self, needs: Needs, spreads: bool) -> None:
        self._ray = connect()
        self._task = self._ray.remote(
            num_cpus=needs.cpus,
            num_gpus=needs.gpus,
            memory=needs.memory or None,
            max_retries=RETRIES,
        )(compute_part)
        self._spreads = spreads
        self._reference_of: dict[Future[Record], Any] = {}

    def start(self, part: Part) -> Future[Record]:
        """Start a task for ``part``."""
        if self._spreads:
            part = replace(
                part, job={**part.job, "models": [{**part.job["models"][0], "device": AUTO}]}
            )
        reference = self._task.remote(part)
        future = _future_of(reference)
        self._reference_of[future] = reference
        return future

    def stop(self, futures: Iterable[Future[Record]]) -> None:
        """End the tasks of ``futures``; what they have written stays."""
        for future in futures:
            self._ray.cancel(self._reference_of[future], force=True)


def _future_of(reference: Any) -> Future[Record]:
    """Return the result of a task; errors of Ray itself are deaths."""
    result = Future[Record]()

    def end(ended: Future[Any]) -> None:
        error = ended.exception()
        if error is None:
            result.set_result(ended.result())
        else:
            result.set_exception(MachinesLost(_short(error)))

    reference.future().add_done_callback(end)
    return result


def task_needs(runs: ModelRuns, workers: int | None) -> Needs:
    """Return what a task for ``runs`` takes of the cluster.

    Arguments and errors are those of :func:`needs_of`; UsageError also for a device of one machine.
    """
    model = runs.model
    assert model is not None
    (choice,) = runs.job.models
    kind = kind_of(model)
    nodes = nodes_of_cluster()
    has_gpus = any(node.get("GPU") for node in nodes)
    if kind.remote:
        # Its own program computes it: a server elsewhere, or an engine with GPUs of its own.
        gpus = 0
        if not kind.workers and has_gpus:
            gpus = kind.gpus(choice.name)
        return Needs(gpus, max(1, gpus), 0)
    if ":" in model.device and not devices_of(model.device):
        device = model.device.partition(":")[0]
        raise UsageError(
            f"Ray chooses a free device itself; use {device} instead of {model.device}"
        )
    size = gpu_bytes() if model.device != "cpu" and has_gpus else None
    return needs_of(model, nodes, workers, size, bytes_of(choice.memory or "") or None)


def _short(error: BaseException) -> str:
    """Return the line of Ray's error that says why."""
    lines = [_COLOUR.sub("", line).strip() for line in str(error).splitlines()]
    first, *others = [line for line in lines if line] or [""]
    if "RayTaskError" in type(error).__name__:
        # A traceback, which ends with the error.
        reasons = others[-1:]
    else:
        reasons = [line for line in others if " because " in line]
    return f"{type(error).__name__}: {(reasons or [first])[0]}"


RETRIES = 3
"""How often Ray starts a task again whose process or node is gone."""

ADDRESS = "RAY_ADDRESS"
"""The variable that names a running cluster, as Ray itself reads it."""

STORE_BYTES = 512 * 2**20
"""Memory for what travels between the processes of a cluster that is started here; shards take a
few megabytes.
"""

CONNECT_SECONDS = 10.0
"""Seconds that the address of a cluster may take to answer; Ray itself would try for minutes."""

GPU_SECONDS = 60.0
"""Seconds to wait for a GPU that says how much memory it has."""

_OWN = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_AUTH_MODE": "token"}
"""Variables that keep Ray to loopback, and to those with its token. Ray reads them when it is
imported.
"""

_QUIET = {
    # Else what dies is told on stdout, where results stand.
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",
    "RAY_USAGE_STATS_ENABLED": "0",
}
"""Variables that keep Ray from printing and sending, unless the environment says otherwise."""

_TRIES = "RAY_NUM_REDIS_GET_RETRIES", "8"
"""How often to try to join a cluster that answers, once a second; each refusal is printed."""

_lock = threading.Lock()


def connect() -> Any:
    """Return Ray, connected. All runs of a process share one cluster, and threads may call at once.

    Raises UsageError if Ray is not installed, and if there is no cluster at the address.
    """
    with _lock:
        address = os.environ.get(ADDRESS, "")
        begins = address in ("", "local")
        if begins and "ray" not in sys.modules:
            for name, value in _OWN.items():
                os.environ.setdefault(name, value)
        if not begins:
            os.environ.setdefault(*_TRIES)
        for name, value in _QUIET.items():
            os.environ.setdefault(name, value)
        try:
            import ray
        except ModuleNotFoundError as error:
            if error.name != "ray":
                raise
            raise UsageError(f"the executor ray needs Ray; run: {install_line('ray')}") from error
        if not ray.is_initialized():
            if begins:
                _begin(ray)
            else:
                with _own_signals():
                    _join(ray, address)
    return ray


def cluster_device() -> str:
    """Return the device of replicas: ``cuda`` if the cluster has GPUs, else ``cpu``."""
    return "cuda" if connect().cluster_resources().get("GPU") else "cpu"


def nodes_of_cluster() -> list[dict[str, float]]:
    """Return what every live node has, by Ray's names: CPU, GPU, memory (bytes)."""
    return [node["Resources"] for node in connect().nodes() if node["Alive"]]


@cache
def gpu_bytes() -> int | None:
    """Return the bytes of memory of a GPU, all of which are taken to be alike; None if none answers
    in time.
    """
    ray = connect()
    measure = ray.remote(num_gpus=1, num_cpus=0, max_retries=0)(_own_gpu_bytes)
    answered, late = ray.wait([measure.remote()], timeout=GPU_SECONDS)
    for reference in late:
        ray.cancel(reference, force=True)
    try:
        return min((ray.get(reference) for reference in answered), default=None)
    except ray.exceptions.RayError:
        # A node has no torch, or its CUDA is broken: its replicas will say so.
        return None


def _own_gpu_bytes() -> int:
    import torch

    return int(torch.cuda.get_device_properties(0).total_memory)


def _join(ray: Any, address: str) -> None:
    host, _, port = address.rpartition(":")
    try:
        if port.isdecimal() and "/" not in host:
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
        ray.init(
            address=address,
            namespace="choicewise",
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    except (OSError, RuntimeError, ValueError) as error:
        raise UsageError(
            f"no cluster answers at {ADDRESS}={address} ({_line(error)}). Start one "
            f"with Ray {ray.__version__} and your RAY_AUTH_TOKEN, or unset {ADDRESS} to compute "
            "on this machine"
        ) from error


def _begin(ray: Any) -> None:
    if any(os.environ.get(name) != value for name, value in _OWN.items()):
        first = " and ".join(f"{name}={value}" for name, value in _OWN.items())
        raise UsageError(
            f"a cluster started now would be open to others; set {first} before Ray is imported, "
            f"call ray.init yourself, or name a running cluster in {ADDRESS}"
        )
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    start = partial(
        ray.init,
        address="local",
        log_to_driver=False,
        logging_level=logging.ERROR,
        include_dashboard=False,
        object_store_memory=STORE_BYTES,
        namespace="choicewise",
    )
    try:
        begun = _keep(start)
    except (OSError, RuntimeError, ValueError) as error:
        raise UsageError(
            f"Ray could not start a cluster on this machine ({_line(error)})"
        ) from error
    atexit.register(_end, ray, Path(begun.address_info["session_dir"]))


def _end(ray: Any, session: Path) -> None:
    """End the cluster that was started here, and remove the folder of its logs and sockets, which
    Ray leaves behind.
    """
    ray.shutdown()
    latest = session.parent / "session_latest"
    with suppress(OSError):
        if latest.is_symlink() and latest.resolve() == session.resolve():
            latest.unlink()
    shutil.rmtree(session, ignore_errors=True)


def _keep(start: Callable[[], Any]) -> Any:
    """Return what ``start`` returns in a thread that lives as long as this process, because what
    Ray starts dies with its thread.
    """
    started = Future[Any]()

    def live() -> None:
        try:
            started.set_result(start())
        except BaseException as error:
            started.set_exception(error)
        else:
            threading.Event().wait()

    threading.Thread(target=live, name="ray", daemon=True).start()
    return started.result()


@contextmanager
def _own_signals() -> Iterator[None]:
    """Restore the handler of SIGTERM, which Ray takes for itself."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        # A handler that was not set from Python can't be set again.
        with suppress(TypeError):
            signal.signal(signal.SIGTERM, before)


def _line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


Node = Mapping[str, float]
"""What a node has, by the names that Ray has for it: CPU, GPU, memory (bytes)."""


@dataclass(frozen=True, order=True)
class Needs:
    """Count cores, GPUs, and bytes of main ``memory`` of one node."""

    gpus: int
    cpus: int
    memory: int

    @property
    def amounts(self) -> dict[str, int]:
        """Return what is needed, by Ray's names, without what is 0."""
        amounts = {"CPU": self.cpus, "GPU": self.gpus, "memory": self.memory}
        return {name: amount for name, amount in amounts.items() if amount}

    def lacking(self, there: Node, state: str = "free") -> str:
        """Say what there is less of than needed; "" if there is enough."""
        short = {
            name: amount for name, amount in self.amounts.items() if there.get(name, 0) < amount
        }
        have = {name: _amount(name, there.get(name, 0), bare=True) for name in short}
        return " and ".join(
            f"{_amount(name, amount)} ({have[name]} {state})" for name, amount in short.items()
        )

    def times(self, node: Node) -> int:
        """Return how many replicas a node has room for if nothing else runs on it."""
        return min(
            (int(node.get(name, 0) // amount) for name, amount in self.amounts.items()), default=1
        )


def in_words(nodes: Sequence[Node]) -> str:
    """Say what all nodes have together: ``2 nodes, 8 GPUs, 64 CPUs and 500.0 GB of memory``."""
    words = [_amount("node", len(nodes))]
    for name in ("GPU", "CPU", "memory"):
        amount = sum(node.get(name, 0) for node in nodes)
        if amount:
            words.append(_amount(name, amount))
    return listed(words)


def needs_of(
    model: Model,
    nodes: Sequence[Node],
    workers: int | None,
    gpu_bytes: int | None,
    memory: int | None = None,
) -> Needs:
    """Return what a replica of ``model`` takes of a cluster with these ``nodes``, if so many
    ``workers`` share it.

    A model on GPUs takes as many as its device names, or as few as hold it; if the memory
    ``gpu_bytes`` of a GPU is unknown, one, or all of a node for the device ``auto``. On a CPU it
    takes its part of the cores. ``memory``: bytes that it needs where it computes; None: as its
    files say. Raises UsageError if no node has room for it.
    """
    footprint = footprint_of(model)
    if model.device == "cpu":
        needs = Needs(0, _cores(nodes, workers), memory or footprint.host)
    else:
        gpus = _gpus(model, footprint, nodes, gpu_bytes, memory)
        needs = Needs(max(1, gpus), max(1, gpus), footprint.host)
    if not any(map(needs.times, nodes)):
        scarce = "GPU" if needs.gpus else "CPU"
        largest = max(nodes, key=lambda node: node.get(scarce, 0), default={})
        raise UsageError(
            f"no node of the cluster has room for {model.name}: it needs "
            f"{needs.lacking(largest, 'on the largest')}"
        )
    return needs


def _gpus(
    model: Model,
    footprint: Footprint,
    nodes: Sequence[Node],
    gpu_bytes: int | None,
    memory: int | None,
) -> int:
    """Return how many GPUs of one node a replica takes."""
    most = max((int(node.get("GPU", 0)) for node in nodes), default=0)
    if named := devices_of(model.device):
        return len(named)
    if gpu_bytes is None or not most:
        return max(1, most) if model.device == AUTO else 1
    gpus = footprint.devices(gpu_bytes, most) if memory is None else -(-memory // gpu_bytes)
    if gpus is None or gpus > most:
        has = "the GPU of a node has" if most == 1 else f"the {most} GPUs of a node have together"
        raise UsageError(
            f"{model.name} needs {_amount('memory', memory or footprint.device)}, more than {has} "
            f"({_amount('memory', gpu_bytes * most, bare=True)}); take a narrower dtype, or nodes "
            "with more"
        )
    return gpus


def _cores(nodes: Sequence[Node], workers: int | None) -> int:
    """Return the most cores that all of so many ``workers`` can have at once; 1 if there are too
    few.
    """
    if workers is None:
        return 1
    cores = [int(node.get("CPU", 0)) for node in nodes]
    counts = range(max(cores, default=1), 1, -1)
    for count in counts:
        if sum(cores_of_node // count for cores_of_node in cores) >= workers:
            return count
    return 1


def _amount(name: str, amount: float, bare: bool = False) -> str:
    """Write an amount: ``12.0 GB of memory``, ``2 GPUs``; ``bare``: without the noun."""
    number = f"{amount:g}"
    noun = name
    if name == "memory":
        number = f"{amount / 1e9:.1f} GB"
        noun = "of memory"
    elif amount != 1:
        noun += "s"
    if bare:
        return number
    return f"{number} {noun}"
