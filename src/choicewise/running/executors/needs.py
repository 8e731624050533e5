"""What one replica takes of a cluster: cores, GPUs and memory; and how many there may be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Protocol

from choicewise.errors import UsageError
from choicewise.models.footprint import Footprint, footprint_of
from choicewise.models.local.several_devices import AUTO, devices_of
from choicewise.models.model import Model

Node = Mapping[str, float]
"""What a node has, by the names that Ray has for it: CPU, GPU, memory (bytes)."""


@dataclass(frozen=True, order=True)
class Needs:
    """Of one node: cores, GPUs, and bytes of main ``memory``."""

    gpus: int
    cpus: int
    memory: int

    @property
    def amounts(self) -> dict[str, int]:
        """What is needed at all, by Ray's names."""
        own = {"CPU": self.cpus, "GPU": self.gpus, "memory": self.memory}
        return {name: amount for name, amount in own.items() if amount}

    def lacking(self, there: Node, state: str = "free") -> str:
        """Of what there is less than needed, in words; empty where there is enough."""
        short = {name: amount for name, amount in self.amounts.items() if there.get(name, 0) < amount}
        have = {name: _amount(name, there.get(name, 0), bare=True) for name in short}
        return " and ".join(f"{_amount(name, amount)} ({have[name]} {state})" for name, amount in short.items())

    def times(self, node: Node) -> int:
        """How many replicas a node has room for when nothing else is there."""
        return min((int(node.get(name, 0) // amount) for name, amount in self.amounts.items()), default=1)


class Place(Protocol):
    """What one of several models has of a cluster."""

    needs: Needs
    """Of one replica."""

    def replicas(self) -> int:
        """How many there may be at the moment."""

    def settle(self, there: bool) -> None:
        """Some replica has got what it needs and is ``there``, or none is any more."""

    @property
    def patient(self) -> bool:
        """Whether a replica should wait for room for as long as it takes, as others will make room."""


def slots_of(nodes: Sequence[Node]) -> int:
    """The GPUs of a cluster, or its cores where it has none: so many models can compute at once."""
    return max(1, int(_sum(nodes, "GPU") or _sum(nodes, "CPU")))


def in_words(nodes: Sequence[Node]) -> str:
    """What all nodes have together: ``2 nodes, 8 GPUs, 64 CPUs and 500.0 GB of memory``."""
    amounts = [_amount(name, amount) for name in ("GPU", "CPU", "memory") if (amount := _sum(nodes, name))]
    return " and ".join([", ".join([_amount("node", len(nodes)), *amounts[:-1]]), *amounts[-1:]])


def largest(replicas: Sequence[Needs]) -> Needs:
    """Of each the most that any of them needs."""
    return Needs(*(max(getattr(needs, field.name) for needs in replicas) for field in fields(Needs)))


def fit(replicas: Iterable[Needs], nodes: Iterable[Node]) -> bool:
    """Whether all ``replicas`` have room on ``nodes`` at once, the largest first, each where room is found first."""
    free = [dict(node) for node in nodes]
    for needs in sorted(replicas, reverse=True):
        node = next((node for node in free if needs.times(node)), None)
        if node is None:
            return False
        for name, amount in needs.amounts.items():
            node[name] -= amount
    return True


def needs_of(
    model: Model, nodes: Sequence[Node], workers: int | None, gpu_bytes: int | None, memory: int | None = None
) -> Needs:
    """What a replica of ``model`` takes of a cluster with these ``nodes``, where there are to be so many ``workers``.

    A model on GPUs takes as many as its device names, or as few as hold it; where a GPU's memory ``gpu_bytes`` is not
    known, one, or with the device ``auto`` all of a node.  On a CPU it takes its part of the cores.  ``memory``: bytes
    that it needs where it computes, if somebody said so; else they are known from its files.  UsageError where no node
    has room for it.
    """
    footprint = footprint_of(model)
    if model.device == "cpu":
        needs = Needs(0, _cores(nodes, workers), memory or footprint.host)
    else:
        gpus = _gpus(model, footprint, nodes, gpu_bytes, memory)
        needs = Needs(max(1, gpus), max(1, gpus), footprint.host)
    if not any(map(needs.times, nodes)):
        largest = max(nodes, key=lambda node: node.get("GPU" if needs.gpus else "CPU", 0), default={})
        raise UsageError(
            f"no node of the cluster has room for {model.name}: it needs {needs.lacking(largest, 'on the largest')}"
        )
    return needs


def _gpus(model: Model, footprint: Footprint, nodes: Sequence[Node], gpu_bytes: int | None, memory: int | None) -> int:
    """How many GPUs of one node a replica takes."""
    most = max((int(node.get("GPU", 0)) for node in nodes), default=0)
    if named := devices_of(model.device):
        return len(named)
    if gpu_bytes is None or not most:
        return max(1, most) if model.device == AUTO else 1
    gpus = footprint.devices(gpu_bytes, most) if memory is None else -(-memory // gpu_bytes)
    if gpus is None or gpus > most:
        has = "the GPU of a node has" if most == 1 else f"the {most} GPUs of a node have together"
        raise UsageError(
            f"{model.name} needs {_amount('memory', memory or footprint.device)}, more than {has}"
            f" ({_amount('memory', gpu_bytes * most, bare=True)}); take a narrower dtype, or nodes with more"
        )
    return gpus


def _cores(nodes: Sequence[Node], workers: int | None) -> int:
    """The most cores that each of so many ``workers`` can have at once; 1 where there are not even as many."""
    if workers is None:
        return 1
    cores = [int(node.get("CPU", 0)) for node in nodes]
    counts = range(max(cores, default=1), 1, -1)
    return next((most for most in counts if sum(own // most for own in cores) >= workers), 1)


def _sum(nodes: Iterable[Node], name: str) -> float:
    return sum(node.get(name, 0) for node in nodes)


def _amount(name: str, amount: float, bare: bool = False) -> str:
    """``12.0 GB of memory``, ``2 GPUs``; ``bare``: without what it is of."""
    if name == "memory":
        return f"{amount / 1e9:.1f} GB" + ("" if bare else " of memory")
    return f"{amount:g}" if bare else f"{amount:g} {name}" + ("" if amount == 1 else "s")
