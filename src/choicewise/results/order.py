"""How alike the orders are into which columns of numbers put their rows, and the columns sorted by that."""

import numpy as np

from choicewise.scoring.ragged import Floats
from choicewise.scoring.statistics.rank_interval import ranks

_VALUES = 0.05
"""What a difference of values weighs beside one of orders: it decides only between columns of the same order."""


def order_agreement(values: Floats) -> Floats:
    """Kendall's τ-b between every two columns, float64 [columns, columns].

    ``values``: float64 [columns, rows], NaN where there is none; a pair of columns is compared over the rows that both
    have, and is NaN where one of them has all of these equal, or there are fewer than two.
    """
    columns, rows = values.shape
    left, right = np.triu_indices(rows, 1)
    places = ranks(values)
    known = ((places[:, left] > 0) & (places[:, right] > 0)).astype(np.float64)
    signs = np.sign(places[:, right] - places[:, left]) * known
    untied = (signs**2) @ known.T
    with np.errstate(invalid="ignore", divide="ignore"):
        agreement = np.where(untied * untied.T > 0, signs @ signs.T / np.sqrt(untied * untied.T), np.nan)
    return np.asarray(np.clip(agreement, -1, 1), dtype=np.float64).reshape(columns, columns)


def seriated(values: Floats, first: int | None = None) -> list[int]:
    """The columns in an order that puts those next to each other that order the rows alike; the same every time.

    ``values`` as in :func:`order_agreement`.  From one column it goes to the nearest that is left, then turns stretches
    round as long as that makes the way shorter.  It begins with the column ``first``, or with that end of the way that
    agrees better with all columns.
    """
    if not len(values):
        return []
    distances = _distances(values)
    way = [int(distances.sum(axis=1).argmin()) if first is None else first]
    left = [place for place in range(len(values)) if place != way[0]]
    while left:
        nearest = min(left, key=lambda place: float(distances[way[-1], place]))
        way.append(nearest)
        left.remove(nearest)
    _untangle(way, distances, 0 if first is None else 1)
    far = distances.sum(axis=1)
    return way[::-1] if first is None and (far[way[-1]], way[-1]) < (far[way[0]], way[0]) else way


def _distances(values: Floats) -> Floats:
    """0 for the same order and values, about 1 for the reversed order; one that is not known counts as halfway."""
    agreement = np.nan_to_num(order_agreement(values), nan=0.0)
    filled = np.nan_to_num(values, nan=0.0)
    apart = np.abs(filled[:, None, :] - filled[None, :, :]).mean(axis=2) if values.shape[1] else 0.0
    return np.asarray((1 - agreement) / 2 + _VALUES * apart)


def _untangle(way: list[int], distances: Floats, fixed: int) -> None:
    """Turn stretches round (2-opt) while the way becomes shorter; its first ``fixed`` columns stay."""
    shorter = True
    while shorter:
        shorter = False
        for start in range(fixed, len(way) - 1):
            for stop in range(start + 2, len(way) + 1):
                turned = kept = 0.0
                if start:
                    turned += distances[way[start - 1], way[stop - 1]]
                    kept += distances[way[start - 1], way[start]]
                if stop < len(way):
                    turned += distances[way[start], way[stop]]
                    kept += distances[way[stop - 1], way[stop]]
                if turned < kept - 1e-12:
                    way[start:stop] = reversed(way[start:stop])
                    shorter = True
