"""The Ray cluster of this process: a running one that RAY_ADDRESS names, or one on this machine alone.

Whoever reaches a Ray cluster can run any code on it, by design.  So the one that is started here listens on loopback
alone, with a token that only this process and its children have, and without a dashboard.
"""

from __future__ import annotations

import atexit
import logging
import os
import secrets
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from choicewise.errors import UsageError

ADDRESS = "RAY_ADDRESS"
"""The variable that names a running cluster, as Ray itself reads it."""

STORE_BYTES = 512 * 2**20
"""Memory for what travels between the processes of a cluster that is started here; shards take a few megabytes."""

CONNECT_SECONDS = 10.0
"""How long the address of a cluster may take to answer; Ray itself would try for minutes."""

GPU_SECONDS = 60.0
"""How long to wait for a GPU that says how much memory it has."""

_OWN = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_AUTH_MODE": "token"}
"""What keeps Ray to loopback, and to those with its token.  It is read when Ray is imported."""

_QUIET = {
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",  # else what dies is told on stdout, where results stand
    "RAY_USAGE_STATS_ENABLED": "0",
}
"""What Ray prints and sends is as little as can be, unless the environment says otherwise."""

_TRIES = "RAY_NUM_REDIS_GET_RETRIES", "8"
"""How often a cluster that answers is asked to let us in, once a second, and each refusal is printed."""

_lock = threading.Lock()


def connect() -> Any:
    """Ray, connected; all runs of a process share one cluster, and threads may ask at once.

    Raises UsageError where Ray is not installed, and where there is no cluster at the address.
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
            raise UsageError("the executor ray needs Ray; run: pip install 'choicewise[ray]'") from error
        if not ray.is_initialized():
            if begins:
                _begin(ray)
            else:
                with _own_signals():
                    _join(ray, address)
    return ray


def cluster_device() -> str:
    """Where replicas compute: ``cuda`` where the cluster has GPUs, else ``cpu``."""
    return "cuda" if connect().cluster_resources().get("GPU") else "cpu"


def nodes_of_cluster() -> list[dict[str, float]]:
    """What every node has that is alive, by Ray's names: CPU, GPU, memory (bytes)."""
    return [node["Resources"] for node in connect().nodes() if node["Alive"]]


@cache
def gpu_bytes() -> int | None:
    """Memory of a GPU of the cluster, all of which are taken to be alike; None where none says it in time."""
    ray = connect()
    asked = ray.remote(num_gpus=1, num_cpus=0, max_retries=0)(_own_gpu_bytes)
    answered, late = ray.wait([asked.remote()], timeout=GPU_SECONDS)
    for reference in late:
        ray.cancel(reference, force=True)
    try:
        return min((ray.get(reference) for reference in answered), default=None)
    except ray.exceptions.RayError:  # a node without torch, or whose CUDA is broken: its replicas will say so
        return None


def _own_gpu_bytes() -> int:
    import torch

    return int(torch.cuda.get_device_properties(0).total_memory)


def _join(ray: Any, address: str) -> None:
    host, _, port = address.rpartition(":")
    try:
        if port.isdecimal() and "/" not in host:
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
        ray.init(address=address, namespace="choicewise", log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, RuntimeError, ValueError) as error:
        raise UsageError(
            f"{ADDRESS} is {address}, and no cluster answers there ({_line(error)}); look that it runs the same Ray"
            f" ({ray.__version__}) and that RAY_AUTH_TOKEN is its token, or unset {ADDRESS} to compute on this machine"
        ) from error


def _begin(ray: Any) -> None:
    if any(os.environ.get(name) != value for name, value in _OWN.items()):
        first = " and ".join(f"{name}={value}" for name, value in _OWN.items())
        raise UsageError(
            f"a cluster that is started now would be open to others; set {first} before Ray is imported,"
            f" call ray.init yourself, or name a running cluster in {ADDRESS}"
        )
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    more = {"include_dashboard": False, "object_store_memory": STORE_BYTES, "namespace": "choicewise"}
    try:
        begun = _keep(lambda: ray.init(address="local", log_to_driver=False, logging_level=logging.ERROR, **more))
    except (OSError, RuntimeError, ValueError) as error:
        raise UsageError(f"no Ray cluster could be started on this machine ({_line(error)})") from error
    atexit.register(_end, ray, Path(begun.address_info["session_dir"]))


def _end(ray: Any, session: Path) -> None:
    """End the cluster that was started here, and remove the folder of its logs and sockets, which Ray leaves behind."""
    ray.shutdown()
    latest = session.parent / "session_latest"
    with suppress(OSError):
        if latest.is_symlink() and latest.resolve() == session.resolve():
            latest.unlink()
    shutil.rmtree(session, ignore_errors=True)


def _keep(start: Callable[[], Any]) -> Any:
    """What ``start`` returns in a thread that lives as long as this process: what Ray starts dies with its thread."""
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
    """Ray takes SIGTERM for itself, and doesn't give it back."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        with suppress(TypeError):  # a handler that was not set from Python
            signal.signal(signal.SIGTERM, before)


def _line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
