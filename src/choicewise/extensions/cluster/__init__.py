"""Declare what this extension adds: executors of several processes or machines, the shards of a
Slurm array, and the command ``merge``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from choicewise.ports import Command, Executor, Extension, TaskArray, calls


class Processes(Executor):
    """Add ``--workers N`` for a model on this machine."""

    name = "local"
    summary = "processes of this machine"
    evaluate = calls("choicewise.extensions.cluster.processes:evaluate")

    def device(self) -> str | None:
        """Return ``cuda`` if this machine has GPUs, else ``cpu``; nothing is computed here."""
        from choicewise.models.local.devices import gpu_count

        return "cuda" if gpu_count() else "cpu"


class Ray(Executor):
    """Add ``--executor ray``."""

    name = "ray"
    summary = "a Ray cluster"
    evaluate = calls("choicewise.extensions.cluster.ray:evaluate")

    def device(self) -> str | None:
        """Return ``cuda`` if the cluster has GPUs, else ``cpu``."""
        from choicewise.extensions.cluster.ray import cluster_device

        return cluster_device()


class Slurm(TaskArray):
    """Add ``--shard slurm``."""

    name = "slurm"
    summary = "the tasks of a Slurm array"

    def part(self, environment: Mapping[str, str]) -> tuple[int, int]:
        """Return the number of this task and how many there are."""
        from choicewise.extensions.cluster.slurm import part_of_array

        return part_of_array(environment)


class Merge(Command):
    """Add ``choicewise merge``."""

    name = "merge"
    summary = "Merge the shards of a run."

    def app(self) -> Callable[..., None]:
        """Return the function."""
        from choicewise.extensions.cluster.commands import merge

        return merge


EXTENSION = Extension("cluster", [Processes(), Ray(), Slurm(), Merge()])
