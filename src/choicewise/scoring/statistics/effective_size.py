"""How many items, drawn one by one, would tell as much as those at hand."""

import numpy as np

from choicewise.scoring.ragged import Floats, Integers


def effective_size(mean: float, variance: float, most: float) -> float:
    """The n at which a proportion ``mean`` has this ``variance``, m (1 - m) / n, but no more than ``most``.

    Intervals of proportions keep their level near 0 and 1 when they are computed at it (Korn & Graubard 1998; Franco et
    al. 2019).  ``most``: what it would be if only the weights of the items differed.  The variance of few right answers
    is too uncertain to claim more.
    """
    return min(most, mean * (1 - mean) / variance) if variance > 0 else most


def weighted_size(sizes: Integers) -> float:
    """The effective size of a mean of subjects' means, of ``sizes`` items each that are all alike (Kish 1965)."""
    return float(len(sizes) ** 2 / (1 / sizes).sum())


def variance_of_means(rights: Floats, sizes: Integers) -> float:
    """The variance of a mean of subjects' means, from the credit (``rights``) and the number of items of each.

    An item alone in its subject shows no variance there and is taken to vary as much as items vary at all.
    """
    means = rights / sizes
    every = means.mean() * (1 - means.mean())
    within = np.where(sizes > 1, means * (1 - means) / np.maximum(sizes - 1, 1), every)
    return float(within.sum()) / len(sizes) ** 2
