"""How the work of a run is spread: over this process, over several on this machine, or over a Ray cluster."""

from dataclasses import dataclass
from typing import Any

from choicewise.errors import UsageError

KINDS = ("local", "ray")


@dataclass(frozen=True)
class Parallel:
    """``kind``: ``local`` for this machine, ``ray`` for a Ray cluster.  ``workers``: replicas of the model.

    None: one that is this process, or on a cluster as many as it has room for.  UsageError for what there is not.
    """

    kind: str = "local"
    workers: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UsageError(f"executor is {self.kind!r}; it must be one of {', '.join(KINDS)}")
        if self.workers is not None and self.workers < 1:
            raise UsageError(f"workers is {self.workers}; it must be at least 1, or left out")

    @property
    def here(self) -> bool:
        """Whether this process is the one that computes."""
        return self.kind == "local" and self.workers in (None, 1)

    def loading(self, device: str | None) -> dict[str, Any]:
        """Options of load_model for a model that is to compute on ``device``, or on what there is."""
        if self.kind == "local":
            return {"device": device}
        from choicewise.running.executors.ray_cluster import cluster_device

        return {"device": device or cluster_device(), "elsewhere": True}


ONE_PROCESS = Parallel()
"""All work in this process."""
