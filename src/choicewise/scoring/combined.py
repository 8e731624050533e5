"""Readings that ask several things about a choice, made one number.

``parts`` holds what was observed of each thing asked, in order; all have the same rows, one per (item, choice).
Float64 [rows], greater is better, NaN where anything asked is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from choicewise.scoring.continuations import Continuations
from choicewise.scoring.ragged import Floats, reduce_rows, row_of

Parts = Sequence[Continuations]


def log_sum(parts: Parts) -> Floats:
    """log of the probability that any of the spellings comes, in nats.

    Spellings with the same tokens are one, and one whose tokens begin another's holds that other already.
    """
    total = np.full(len(parts[0].text), -np.inf)
    for place, part in enumerate(parts):
        counted = np.array([not _held(parts, place, row) for row in range(len(part.text))], dtype=np.bool_)
        with np.errstate(invalid="ignore"):  # a missing spelling stays NaN: what it would have added is not known
            total = np.logaddexp(total, np.where(counted, part.token_sums, -np.inf))
    return total


def difference(parts: Parts) -> Floats:
    """log P(first answer) - log P(second answer), in nats: of Yes and No the log-odds of Yes (Kadavath et al. 2022)."""
    with np.errstate(invalid="ignore"):  # of two impossible answers neither is likelier: NaN, missing
        return parts[0].sums - parts[1].sums


def expected_rating(parts: Parts) -> Floats:
    """Σ r · softmax_r(log P(label r)), between 1 and the number of labels (Tsvilodub et al. 2024)."""
    sums = np.stack([part.sums for part in parts])
    with np.errstate(invalid="ignore"):
        shares = np.exp(sums - np.logaddexp.reduce(sums, axis=0))
    return np.asarray(np.arange(1, len(parts) + 1) @ shares, dtype=np.float64)


def marginal(parts: Parts) -> Floats:
    """log (1/R) Σ_r P(option | context, chain r) in nats: self-consistency (Wang et al. 2023), Rao-Blackwellised.

    A vote of R chains counts draws of an answer; this takes the mean of what they are drawn from.
    """
    with np.errstate(invalid="ignore"):
        total = np.logaddexp.reduce([part.sums for part in parts], axis=0)
    return np.asarray(total - np.log(len(parts)), dtype=np.float64)


def vote(parts: Parts) -> Floats:
    """The share of the chains after which an option is the likeliest of its item; options that tie share theirs."""
    item = row_of(parts[0].item_offsets)
    total = np.zeros(len(item))
    for part in parts:
        at_top = part.sums == reduce_rows(np.maximum, part.sums, part.item_offsets)[item]  # NaN when any option is
        with np.errstate(invalid="ignore"):
            total += np.where(
                np.isnan(part.sums), np.nan, at_top / reduce_rows(np.add, at_top, part.item_offsets)[item]
            )
    return total / len(parts)


OVER_CHAINS: Mapping[str, Callable[[Parts], Floats]] = MappingProxyType({"marginal": marginal, "vote": vote})
"""By the name of the score, of the reading chain-of-thought."""

COMBINED: Mapping[str, Callable[[Parts], Floats]] = MappingProxyType(
    {"spellings": log_sum, "yes-no": difference, "rating": expected_rating}
)
"""By the name of the reading."""


def without_end(parts: Parts) -> Continuations:
    """The first part with P(EOS) := 0 and the rest renormalised: log P - log(1 - P(EOS)) at every token.

    Part 1 + j holds P(EOS) in the place of token j, as far as a row has one; without such parts nothing changes.
    """
    observed = parts[0]
    row = row_of(observed.offsets)
    place = np.arange(len(row)) - observed.offsets[:-1][row]
    logprobs = observed.logprobs.astype(np.float64)
    for number, part in enumerate(parts[1:]):
        here = (place == number) & (part.counts[row] > 0)
        with np.errstate(invalid="ignore", divide="ignore"):  # where EOS is certain nothing else can be
            logprobs[here] -= np.log1p(-np.exp(part.sums[row[here]]))
    return replace(observed, logprobs=logprobs.astype(np.float32), totals=None)


def _held(parts: Parts, place: int, row: int) -> bool:
    """Whether the tokens of a spelling begin with those of another: of a shorter one, or of an equal one before it."""
    mine = _tokens(parts[place], row)
    others = ((number, _tokens(part, row)) for number, part in enumerate(parts) if number != place)
    return any(mine[: len(other)] == other and (len(other) < len(mine) or number < place) for number, other in others)


def _tokens(observed: Continuations, row: int) -> list[int]:
    tokens: list[int] = observed.tokens[observed.offsets[row] : observed.offsets[row + 1]].tolist()
    return tokens
