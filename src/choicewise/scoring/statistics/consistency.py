"""Does the model make the same choice when the options have another order?"""

from choicewise.scoring.ragged import Integers


def permutation_consistency(predictions: Integers) -> float:
    """Share of items with the same prediction in every order of the options; NaN when no item has all predictions.

    ``predictions``: the option chosen, by its index in the item, int64 [orders, items]; an item with -1 in any
    order does not count.
    """
    known = (predictions >= 0).all(axis=0)
    same = (predictions == predictions[:1]).all(axis=0)
    return float(same[known].mean()) if known.any() else float("nan")
