"""What is kept of the observations under a prompt for the measurements that are made of them."""

from collections.abc import Callable
from functools import partial

import numpy as np

from choicewise.protocols.option_orders import PERMUTED
from choicewise.protocols.protocol import Protocol
from choicewise.protocols.readings import READINGS
from choicewise.results.asked_tokens import token_digests, tokens_column
from choicewise.results.column import Column, Name, Reductions
from choicewise.results.observed_portion import ObservedPortion
from choicewise.results.reasons import Reasons
from choicewise.scoring.ragged import Integers
from choicewise.scoring.readings import combiner


def reductions(protocol: Protocol, noise: float | None, reasons: Reasons) -> Reductions:
    """The columns that a measurement under ``protocol`` needs; ``reasons`` numbers why items are missing.

    A calibration needs the log-likelihoods of all items before it decides about any.
    """
    wanted: dict[Name, Callable[[ObservedPortion], Column]] = {
        ("rescored",): lambda portion: portion.rescored,
        ("doubts",): lambda portion: portion.doubts,
        ("lengths",): lambda portion: np.nan_to_num(portion.lengths, nan=-1.0).astype(np.int32),
        ("no number",): lambda portion: portion.no_number,
        ("unlisted", protocol.null): lambda portion: portion.unlisted(protocol.null),
        ("impossible", protocol.null): lambda portion: portion.impossible(protocol.null),
        ("reasons", protocol.null): lambda portion: _reasons(portion, protocol.null, reasons),
    }
    for null in dict.fromkeys((None, protocol.null)):
        wanted[tokens_column(null)] = partial(token_digests, null=null)
    if protocol.calibration == "none":
        wanted["decision", protocol] = lambda portion: combiner(protocol.reading).decision(protocol, portion)
    if protocol.calibration != "none" or protocol.views in PERMUTED:
        wanted["part sums",] = lambda portion: np.array(portion.part_sums)
        wanted["part lows",] = lambda portion: np.array(portion.part_lows)
    if READINGS[protocol.reading].one_likelihood:
        wanted["mass",] = lambda portion: portion.mass
        wanted["lacks", protocol.score, protocol.null] = lambda portion: portion.lacks(protocol.score, protocol.null)
        if noise is not None:
            axes = (protocol.score, protocol.null, protocol.outside)
            wanted["sensitivity", *axes] = lambda portion: portion.sensitivity(*axes)
    return wanted


def _reasons(portion: ObservedPortion, null: str | None, reasons: Reasons) -> Integers:
    """The number of the first reason that each item has for being missing, int64 [items]; -1 for none."""
    numbers = np.full(len(portion.items), -1, dtype=np.int64)
    ids = portion.about["item"]
    for place, reason in portion.reasons(null):
        if numbers[place] < 0:
            numbers[place] = reasons.number(reason, ids[place].as_py())
    return numbers
