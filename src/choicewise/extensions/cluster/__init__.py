"""Declare what this extension adds: executors of several processes or machines, the shards of a
Slurm array, and the command ``merge``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from choicewise.ports import Command, Executor, Extension, Sharing, TaskArray

if TYPE_CHECKING:
    from choicewise.running.answer import Pool


class Processes(Executor):
    """Add ``--executor local --workers N``."""

    name = "local"
    summary = "processes of this machine"

    def pool(self, workers: int | None, sharing: Sharing) -> Pool:
        """Return the processes."""
        from choicewise.extensions.cluster.workers import process_pool

        return process_pool(workers or 1, sharing)


class Ray(Executor):
    """Add ``--executor ray``."""

    name = "ray"
    summary = "a Ray cluster"

    def loading(self, device: str | None) -> dict[str, Any]:
        """Return the device of the cluster, and that its processes compute the model."""
        from choicewise.extensions.cluster.ray import cluster_device

        return {"device": device or cluster_device(), "elsewhere": True}

    def at_once(self, models: int, say: Callable[[str], None]) -> int:
        """Return how many GPUs the cluster has, or cores if it has none, and one more."""
        from choicewise.extensions.cluster.ray import models_at_once

        return models_at_once(models, say)

    def pool(self, workers: int | None, sharing: Sharing) -> Pool:
        """Return replicas on the cluster."""
        from choicewise.extensions.cluster.ray import ray_pool

        return ray_pool(workers, sharing)


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
