"""Declare what this extension adds: executors of several processes or machines, the shards of a
Slurm array, and the command ``merge``.
"""

from __future__ import annotations

from choicewise.ports import Command, Executor, Extension, TaskArray, calls, returns


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

    device = calls("choicewise.extensions.cluster.ray:cluster_device")


class Slurm(TaskArray):
    """Add ``--shard slurm``."""

    name = "slurm"
    summary = "the tasks of a Slurm array"
    part = calls("choicewise.extensions.cluster.slurm:part_of_array")


class Merge(Command):
    """Add ``choicewise merge``."""

    name = "merge"
    summary = "Merge the shards of a run."
    app = returns("choicewise.extensions.cluster.commands:merge")


EXTENSION = Extension("cluster", [Processes(), Ray(), Slurm(), Merge()])
