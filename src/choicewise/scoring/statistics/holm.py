"""Holm's correction for testing many hypotheses at once."""

import numpy as np
import numpy.typing as npt

from choicewise.scoring.ragged import Floats


def holm(p: npt.ArrayLike) -> Floats:
    """Adjusted p-values in the order given (Holm 1979); rejecting those ≤ α errs anywhere with probability ≤ α."""
    values = np.asarray(p, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    stepped = np.maximum.accumulate(values[order] * np.arange(len(values), 0, -1))
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(stepped, 1.0)
    return adjusted
