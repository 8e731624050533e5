"""The tree in packs: consecutive nodes that go through the model together."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from choicewise.engine.tree import Tree
from choicewise.questions import Ids

Places = npt.NDArray[np.int64]
"""Indices of keys and values: 0 .. len(path) - 1 are those kept from earlier packs, the pack's own follow."""


@dataclass(frozen=True, slots=True, eq=False)
class Pack:
    """Nodes ``start .. stop - 1`` of a tree, computed after all nodes before them.

    ``path``: the ancestors of node ``start``, root first; their keys and values are all that is kept of
    earlier packs.  ``keep``: places of the ancestors of node ``stop``, to be kept for the next pack.
    """

    start: int
    stop: int
    path: Ids
    keep: Places

    def __len__(self) -> int:
        return self.stop - self.start

    def nodes(self) -> Ids:
        """The node at every place, shape [path + pack]."""
        return np.concatenate([self.path, np.arange(self.start, self.stop, dtype=np.int32)])


def next_pack(tree: Tree, start: int, path: Ids, budget: int) -> Pack:
    """The pack of at most ``budget`` nodes that begins at ``start``, whose ancestors are ``path``."""
    stop = min(start + budget, len(tree))
    nodes = np.concatenate([path, np.arange(start, stop, dtype=np.int32)])
    return Pack(start, stop, path, np.flatnonzero(tree.end[nodes] > stop))


def next_path(pack: Pack) -> Ids:
    """The ancestors of the node after ``pack``: the ``path`` of the next one."""
    return pack.nodes()[pack.keep]


def segments(tree: Tree, pack: Pack, size: int) -> Iterator[tuple[Ids, Places]]:
    """The nodes of ``pack`` in segments of at most ``size``, and the places of all that they may attend to.

    Those are of the ancestors of the segment's first node, root first, then of the segment's own nodes.
    """
    end = tree.end[pack.nodes()]
    for start in range(pack.start, pack.stop, size):
        stop = min(start + size, pack.stop)
        place = len(pack.path) + start - pack.start
        ancestors = np.flatnonzero(end[:place] > start)
        rows = np.arange(start, stop, dtype=np.int32)
        yield rows, np.concatenate([ancestors, np.arange(place, place + len(rows))])
