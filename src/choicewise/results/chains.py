"""Chains of protocols: from one to another over those between, each closer to the end than the one before."""

from collections.abc import Sequence

import numpy as np

from choicewise.protocols.path import ORDER
from choicewise.protocols.protocol import Protocol
from choicewise.scoring.ragged import Integers, Mask


def between(protocols: Sequence[Protocol], start: Protocol, end: Protocol) -> list[int]:
    """Which of ``protocols`` are neither ``start`` nor ``end`` and have the value of one of them on every axis."""
    distance = _differing([start, end, *protocols])[:2].sum(axis=-1)
    among = (distance.sum(axis=0) == distance[0, 1]) & (distance > 0).all(axis=0)
    return (np.flatnonzero(among) - 2).tolist()


def chains(protocols: Sequence[Protocol]) -> dict[tuple[int, int], list[int]]:
    """The longest chain from each protocol to each other one, as their places, both ends included.

    All on a chain have on every axis the value of its start or its end, and an axis changes once.  Of several longest
    ones it is the one whose first step changes the first axes, in their order; then its second step, and so on.
    """
    differing = _differing(protocols)
    distance, order = differing.sum(axis=-1), _order(differing)
    count = len(protocols)
    length, after = np.zeros((count, count), dtype=np.int64), np.zeros((count, count), dtype=np.int64)
    pairs = np.argsort(distance, axis=None, kind="stable").tolist()
    for start, end in (divmod(pair, count) for pair in pairs):
        if start == end:
            continue
        near = (length[start] == 1) & (distance[start] > 0) & (distance[:, end] > 0)
        near &= distance[start] + distance[:, end] == distance[start, end]
        places = np.flatnonzero(near)
        longest = places[length[places, end] == length[places, end].max(initial=0)]
        after[start, end] = longest[order[start, longest].argmin()] if len(longest) else end
        length[start, end] = 1 + length[after[start, end], end] if len(longest) else 1
    return {
        (start, end): _followed(after, start, end) for start in range(count) for end in range(count) if start != end
    }


def _followed(after: Integers, start: int, end: int) -> list[int]:
    chain = [start]
    while chain[-1] != end:
        chain.append(int(after[chain[-1], end]))
    return chain


def _differing(protocols: Sequence[Protocol]) -> Mask:
    """Whether two protocols differ in an axis, bool [protocols, protocols, axes]."""
    numbers: list[dict[object, int]] = [{} for _ in ORDER]
    codes = np.array(
        [
            [known.setdefault(getattr(each, name), len(known)) for name, known in zip(ORDER, numbers, strict=True)]
            for each in protocols
        ]
    ).reshape(len(protocols), len(ORDER))
    return np.asarray(codes[:, None] != codes[None], dtype=np.bool_)


def _order(differing: Mask) -> Integers:
    """A number per pair of protocols, lower where their differing axes come first; int64 [protocols, protocols]."""
    sets, number = np.unique(differing.reshape(-1, differing.shape[-1]), axis=0, return_inverse=True)
    ordered = sorted(range(len(sets)), key=lambda place: np.flatnonzero(sets[place]).tolist())
    rank = np.empty(len(sets), dtype=np.int64)
    rank[ordered] = np.arange(len(sets))
    return rank[number].reshape(differing.shape[:2])
