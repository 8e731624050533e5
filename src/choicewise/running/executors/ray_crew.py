"""Replicas as actors on a Ray cluster, each with the cores, GPUs and memory that it needs."""

from __future__ import annotations

import platform
import re
from collections.abc import Callable
from threading import Lock
from typing import Any, Self

from choicewise.errors import ChoicewiseError, UsageError
from choicewise.models.local.several_devices import AUTO, devices_of
from choicewise.models.model import Model
from choicewise.models.recipe import Recipe
from choicewise.running.executors.crew import Happened, Lost, Refused
from choicewise.running.executors.needs import Needs, Place, needs_of
from choicewise.running.executors.ray_cluster import connect, gpu_bytes, nodes_of_cluster
from choicewise.running.executors.replica import Replica, last_words
from choicewise.running.executors.shards import Shard

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
