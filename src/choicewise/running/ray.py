"""The same on Ray.

Whoever reaches a Ray cluster can run any code on it, by design.  So the one that is started here listens on loopback
alone, with a token that only this process and its children have, and without a dashboard.
"""

from __future__ import annotations

import atexit
import logging
import os
import platform
import re
import secrets
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from threading import Condition, Lock
from time import monotonic
from typing import Any, Self

from choicewise.errors import ChoicewiseError, UsageError
from choicewise.models.local.devices import AUTO, devices_of
from choicewise.models.model import Model, Recipe
from choicewise.running.executor import Shard
from choicewise.running.workers import (
    Happened,
    Lost,
    Needs,
    Node,
    Place,
    Refused,
    Replica,
    fit,
    largest,
    last_words,
    needs_of,
)

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")

_asking = Lock()


class RayCrew:
    """Replicas of the model of a ``recipe``, each of which ``needs`` so much; ``most`` says how many there may be now.

    ``device``: where they compute, where that is not what the recipe says.  ``settle`` is told whether any of them has
    a place.
    """

    def __init__(
        self,
        recipe: Recipe,
        most: Callable[[], int],
        needs: Needs,
        device: str | None = None,
        settle: Callable[[bool], None] = lambda there: None,
    ) -> None:
        self._recipe, self._most, self._needs, self._device, self._settle = recipe, most, needs, device, settle
        self._ray = connect()
        options = {"num_cpus": needs.cpus, "num_gpus": needs.gpus, "memory": needs.memory or None}
        self._actor = self._ray.remote(max_restarts=0, max_task_retries=0, **options)(Actor)
        self._actors: dict[int, Any] = {}
        self._asked: dict[Any, int] = {}
        self._up: set[int] = set()

    @classmethod
    def of(cls, model: Model, recipe: Recipe, workers: int | None, place: Place | None = None) -> Self:
        """``workers`` replicas, or as many as the cluster has room for; ``place``: where others compute as well.

        UsageError where no node could hold one, even if nothing else ran on it, and for a device of one machine.
        """
        needs = cluster_needs(model, workers) if place is None else place.needs
        device = AUTO if needs.gpus > 1 else None
        if place is not None:
            return cls(recipe, lambda: min(workers or place.replicas(), place.replicas()), needs, device, place.settle)
        room = max(1, sum(needs.times(node) for node in nodes_of_cluster()))
        return cls(recipe, lambda: workers or room, needs, device)

    @property
    def size(self) -> int:
        """How many replicas there should be now."""
        return self._most()

    def start(self, member: int) -> None:
        """Begin to start replica ``member``."""
        actor = self._actors[member] = self._actor.remote(self._recipe, self._device)
        self._asked[actor.up.remote()] = member
        self._asked[actor.load.remote()] = member

    def ask(self, member: int, number: int, shard: Shard) -> None:
        """Send shard ``number`` to a replica."""
        self._asked[self._actors[member].answer.remote(number, shard)] = member

    def wait(self, seconds: float) -> list[tuple[int, Happened]]:
        """What happened to which replicas."""
        happened: list[tuple[int, Happened]] = []
        ready, _ = self._ray.wait(list(self._asked), num_returns=1, timeout=seconds)
        if ready:
            ready, _ = self._ray.wait(list(self._asked), num_returns=len(self._asked), timeout=0)
        for reference in ready:
            if (member := self._asked.pop(reference, None)) is None:
                continue
            try:
                report = self._ray.get(reference)
            except self._ray.exceptions.RayError as error:
                happened.append((member, Lost(_short(error))))
                self._forget(member)
                continue
            if report is None:
                self._up.add(member)
                self._settle(True)
            else:
                happened.append((member, report))
        return happened

    def lacking(self) -> str | None:
        """What the replicas wait for that were started; None where one runs and loads its model."""
        if self._up:
            return None
        free = self._ray.available_resources()
        return f"a replica needs {self._needs.lacking(free) or 'room on one node'}"

    def end_member(self, member: int) -> None:
        """Let one replica go."""
        self._forget(member)
        self._up.discard(member)
        self._settle(bool(self._up))
        if (actor := self._actors.pop(member, None)) is not None:
            self._ray.kill(actor, no_restart=True)

    def _forget(self, member: int) -> None:
        self._asked = {reference: of for reference, of in self._asked.items() if of != member}

    def end(self) -> None:
        """Let all of them go."""
        for member in list(self._actors):
            self.end_member(member)


def cluster_needs(model: Model, workers: int | None, memory: int | None = None) -> Needs:
    """What a replica of ``model`` takes of the cluster; arguments and errors as of :func:`needs_of`.

    UsageError as well for a device of one machine.
    """
    if ":" in model.device and not devices_of(model.device):
        kind = model.device.partition(":")[0]
        raise UsageError(f"device {model.device} is one of a machine; say {kind}, as Ray chooses which of them is free")
    nodes = nodes_of_cluster()
    size = None
    if model.device != "cpu" and any(node.get("GPU") for node in nodes):
        with _asking:  # before any of several models has taken the GPUs
            size = gpu_bytes()
    return needs_of(model, nodes, workers, size, memory)


class Actor:
    """A replica on a node of the cluster; what goes wrong is reported, so that only Ray's own errors are raised."""

    def __init__(self, recipe: Recipe, device: str | None) -> None:
        self._recipe, self._device = recipe, device

    def up(self) -> None:
        """Nothing, once the actor has its place."""

    def load(self) -> Happened:
        """What it loaded."""
        try:
            self._replica = Replica(self._recipe, self._device)
            return self._replica.load()
        except ChoicewiseError as error:
            return Refused(error.within(f"the replica on {platform.node()}"))
        except Exception as error:
            return Lost(last_words(error))

    def answer(self, number: int, shard: Shard) -> Happened:
        """The answers to all of a shard."""
        try:
            return self._replica.answer(number, shard)
        except ChoicewiseError as error:
            return Refused(error)
        except Exception as error:
            return Lost(last_words(error))


def _short(error: Exception) -> str:
    """The line of Ray's error that says why; where the actor could not even be made that is the last one."""
    lines = [_COLOUR.sub("", line).strip() for line in str(error).splitlines()]
    first, *more = [line for line in lines if line] or [""]
    why = more[-1:] if "creation task" in first else [line for line in more if " because " in line]
    return f"{type(error).__name__}: {(why or [first])[0]}"


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


LOOK = 5.0
"""Seconds after which the nodes of the cluster are looked at again."""

BEAT = 0.5
"""Seconds between two looks of a model that waits."""


class Room:
    """What the ``nodes`` of a cluster have, for so many ``models``, each of which a thread evaluates.

    Models enter in order, each when a replica of it has room beside all that is there: so one that needs much is not
    kept waiting by small ones that come later.  While the next one may still come, each has one replica; where it has
    no room, or nobody waits, those that are there share what is free.
    """

    def __init__(self, nodes: Callable[[], Sequence[Node]], models: int) -> None:
        self._look, self._models = nodes, models
        self._nodes, self._looked = nodes(), monotonic()
        self._turn = 0
        self._passed: set[int] = set()
        self._inside: dict[int, RoomPlace] = {}
        self._next: Needs | None = None
        self._changed = Condition()

    @contextmanager
    def place(self, turn: int, ended: Callable[[], bool] = lambda: False) -> Iterator[Callable[[Needs], RoomPlace]]:
        """The place of model number ``turn``, free again when the ``with`` ends; it is no longer waited for then.

        What it gives is called with what a replica needs, and waits until the model may begin, or has ``ended``.  A
        model that needs more than there is enters alone.
        """
        try:
            yield lambda needs: self._enter(turn, needs, ended)
        finally:
            with self._changed:
                if self._inside.pop(turn, None) is None:
                    self._pass(turn)
                self._changed.notify_all()

    def _enter(self, turn: int, needs: Needs, ended: Callable[[], bool]) -> RoomPlace:
        with self._changed:
            while not ended():
                if turn == self._turn:
                    self._next = needs
                    if self._has_room(needs):
                        break
                self._changed.wait(BEAT)
            place = self._inside[turn] = RoomPlace(needs, self._replicas, self._others_compute)
            self._pass(turn)
            self._changed.notify_all()
        return place

    def _pass(self, turn: int) -> None:
        """Nobody waits for this one any more."""
        self._passed.add(turn)
        if turn == self._turn:
            self._next = None
        while self._turn in self._passed:
            self._turn += 1

    def _has_room(self, needs: Needs) -> bool:
        """Whether one more replica has room, wherever the others are.

        Where each has room for itself even if all needed the most that any of them does, none stands in another's way.
        Else all have to have their places before the next one is let in, as Ray may put one where that could have been.
        """
        if not self._inside:
            return True
        self._look_again()
        taken = self._taken()
        most = largest([*taken, needs])
        if len(taken) < sum(map(most.times, self._nodes)):
            return True
        return all(place.settled for place in self._inside.values()) and fit([*taken, needs], self._nodes)

    def _taken(self) -> list[Needs]:
        return [place.needs for place in self._inside.values() for _ in range(place.granted)]

    def _look_again(self) -> None:
        if monotonic() - self._looked > LOOK:
            self._nodes, self._looked = self._look(), monotonic()

    def _replicas(self, place: RoomPlace) -> int:
        with self._changed:
            self._look_again()
            if self._turn < self._models and (self._next is None or fit([*self._taken(), self._next], self._nodes)):
                return place.granted  # what is free is for the next one
            while place.granted < self._share(place.needs) and fit([*self._taken(), place.needs], self._nodes):
                place.granted += 1
            return place.granted

    def _share(self, needs: Needs) -> int:
        """How many replicas are a fair part of the cluster."""
        return sum(needs.times(node) for node in self._nodes) // max(1, len(self._inside))

    def _others_compute(self, place: RoomPlace) -> bool:
        with self._changed:
            return any(other.settled for other in self._inside.values() if other is not place)


class RoomPlace(Place):
    """The place of one model: as many replicas as were ``granted``, which are never fewer than before.

    ``settled``: whether the cluster has given one of them what it needs.
    """

    def __init__(
        self, needs: Needs, most: Callable[[RoomPlace], int], others_compute: Callable[[RoomPlace], bool]
    ) -> None:
        self.needs, self.granted, self.settled = needs, 1, False
        self._most, self._others_compute = most, others_compute

    def replicas(self) -> int:
        """How many replicas there may be now."""
        return self._most(self)

    def settle(self, there: bool) -> None:
        """Some replica is ``there``, or none any more."""
        self.settled = there

    @property
    def patient(self) -> bool:
        """Whether what it waits for may be held by another model of the sweep, which will end."""
        return self._others_compute(self)
