"""A column of the evidence: what a reduction makes of a portion of a run, and the portions joined."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from choicewise.results.observed_portion import ObservedPortion
from choicewise.scoring.decisions import Decisions
from choicewise.scoring.lows import Lows

Name = tuple[Any, ...]
"""What a column is called, such as ("lengths",)."""

Column = Any
"""An array whose last axis is the items or the rows; in tuples, dicts and Decisions several; or Lows, or None."""

Reductions = Mapping[Name, Callable[[ObservedPortion], Column]]
"""How each column follows from what was observed of a portion.

A reduction looks at one item at a time, so that it does not matter how a run is divided.
"""


def joined(chunks: Sequence[Column]) -> Column:
    """The column of all portions from those of each, in order.

    Of two-dimensional arrays a portion can have fewer rows than another; it is filled up with NaN.
    """
    match chunks[0]:
        case None:
            return None
        case Decisions():
            return Decisions(*(joined([getattr(chunk, axis.name) for chunk in chunks]) for axis in fields(Decisions)))
        case Lows():
            return Lows.joined(chunks)
        case tuple():
            return tuple(joined(members) for members in zip(*chunks, strict=True))
        case dict():
            return {key: joined([chunk[key] for chunk in chunks]) for key in chunks[0]}
        case np.ndarray(ndim=2):
            height = max(len(chunk) for chunk in chunks)
            padding = [((0, height - len(chunk)), (0, 0)) for chunk in chunks]
            padded = [np.pad(chunk, pad, constant_values=np.nan) for chunk, pad in zip(chunks, padding, strict=True)]
            return np.concatenate(padded, axis=1)
        case _:
            return chunks[0] if len(chunks) == 1 else np.concatenate(chunks)
