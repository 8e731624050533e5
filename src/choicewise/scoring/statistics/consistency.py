"""Does the model stay with its choice when the same question is put differently?"""

from __future__ import annotations

from choicewise.scoring.ragged import Integers


def permutation_consistency(predictions: Integers) -> float:
    """Share of items predicted alike in every order of the options; NaN when no item has all its predictions.

    ``predictions``: the option chosen, by its index in the item, int64 [orders, items]; an item with -1 in any order
    is left out.
    """
    seen = (predictions >= 0).all(axis=0)
    alike = (predictions == predictions[:1]).all(axis=0)
    return float(alike[seen].mean()) if seen.any() else float("nan")
