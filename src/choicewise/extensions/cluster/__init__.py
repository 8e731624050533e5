"""One run computed by several processes or machines.

Workers on one machine, a Ray cluster, shards of a run, and the merge of shards.
"""

from __future__ import annotations

from collections.abc import Callable

from choicewise.ports import Command, Extension


class Merge(Command):
    """``choicewise merge``."""

    name = "merge"
    summary = "Put the shards of a run together."

    def app(self) -> Callable[..., None]:
        """Return the function."""
        from choicewise.extensions.cluster.commands import merge

        return merge


EXTENSION = Extension("cluster", [Merge()])
