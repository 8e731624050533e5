"""Signs that a number does not measure what it is taken for, from the observations alone."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from choicewise.protocols.option_orders import DRAWING, PERMUTED
from choicewise.protocols.protocol import Protocol
from choicewise.protocols.signature import axis_differences
from choicewise.results.impossible_logprobs import PLACEHOLDER, POSITIVE
from choicewise.results.measurement import Measurement
from choicewise.results.pairing import paired_predictions, same_items
from choicewise.scoring.calibration import order_predictions
from choicewise.scoring.credits import guess
from choicewise.scoring.decisions import Decisions
from choicewise.scoring.metrics import Value, micro
from choicewise.scoring.ragged import Integers, Mask, row_of
from choicewise.scoring.statistics.length_bias import length_correlations, length_p
from choicewise.scoring.statistics.position_bias import SIGNIFICANT, permutation_consistency, position_bias
from choicewise.scoring.statistics.validity import guessing_p, low_mass_rate, validity

MARGIN, TIED, MISSING, UNPARSED = 1e-12, 0.05, 0.01, 0.05
"""Alarms: margins up to so much are zero; a greater share of items is tied, missing, or names no option."""

LENGTH = 0.3
"""A mean correlation with the length from which on there is a warning."""

FLAGS = {
    "served-model": "the server answered the same probe otherwise at the end: these numbers may be of two models",
    "positive": "log-probabilities above 0 were observed, which no probability has",
    "placeholder": "log-probabilities that nobody measured: -9999, or 0 for several choices of an item",
    "margins": "the best and the second best score are equal in every item: nothing tells the choices apart",
    "many-missing": f"more than {MISSING:.0%} of the items are missing",
    "many-unparsed": f"more than {UNPARSED:.0%} of the generated texts name no option, and count as wrong",
    "many-tied": f"more than {TIED:.0%} of the items are tied: the tie rule decides them",
    "chance": "within one standard error of guessing",
    "constant": f"the same position is predicted for every item (p < {SIGNIFICANT})",
    "gold-constant": "the right choice always stands in one place and there are ties: the tie rule makes the number",
    "position": f"positions are predicted more or less often than they are right (p < {SIGNIFICANT})",
    "length": f"scores correlate with the length of the choices (|Spearman| >= {LENGTH}, p < {SIGNIFICANT})",
    "mass": "the labels hold less than half of the probability for most items",
    "near-ties": "more items are undecided numerically than the interval is wide to either side",
    "label/text": "the protocol that scores the choices' texts predicts 30 % or more of the items differently",
    "permutation": "30 % or more of the items are predicted differently in another order of their options",
    "choices-only": f"with the choices alone the accuracy is better than chance (p < {SIGNIFICANT})",
}
"""Flag → what it means, in the order they are shown."""

ALARMS = (
    *("served-model", "positive", "placeholder", "gold-constant", "margins", "constant"),
    *("many-missing", "many-unparsed", "many-tied", "chance"),
)
"""Flags that speak against the number itself, and not only for looking closer."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What speaks for or against one number.  Shares of 1; NaN where not known.

    ``chance``: expected accuracy of guessing.  ``most_common``: the greatest share a position has among predictions.
    ``position_rstd``, ``position_p``: position bias.  ``length_rho``: correlation of score and length within items, and
    ``length_p``, how likely one so large is by chance.
    ``mass``: median probability of the continuations together; ``low_mass``: share of items where it is under 1/2.
    ``near_tie_rate``, ``tie_rate``: items undecided numerically, and tied exactly.  ``label_text``: share of items
    predicted differently by ``text_sibling``.  ``permutation_consistency``: share of items with the same prediction in
    every order that ``permutation_sibling`` shows.  ``choices_only``: accuracy of ``choices_sibling``, which leaves the
    question out, and ``choices_only_p``, how likely guessing is as good.
    """

    flags: tuple[str, ...]
    chance: float
    most_common: float
    position_rstd: float
    position_p: float
    length_rho: float
    length_p: float
    mass: float
    low_mass: float
    near_tie_rate: float
    tie_rate: float
    label_text: float
    text_sibling: str | None
    permutation_consistency: float
    permutation_sibling: str | None
    choices_only: float
    choices_only_p: float
    choices_sibling: str | None


def diagnose(
    measured: Measurement,
    among: Mask,
    value: Value,
    chance: float,
    siblings: Sequence[Measurement],
    served_changed: bool = False,
) -> Diagnosis:
    """What the run's measurements (``siblings``) say of the items ``among`` (bool [items]), with mean ``value``.

    ``chance``: the value that guessing is expected to have.  ``served_changed``: whether the server of the run was
    found to be otherwise after the last question.
    """
    evidence = measured.evidence
    rows = among[row_of(evidence.item_offsets)]
    offsets = np.concatenate([[0], np.cumsum(np.diff(evidence.item_offsets)[among])])
    decisions = Decisions(*(getattr(measured.decisions, column.name)[among] for column in fields(Decisions)))
    signs = validity(decisions, offsets, evidence.right[rows], measured.protocol.metric)
    several = np.diff(evidence.item_offsets) > 1
    single = among & several & (evidence.gold_index >= 0) & measured.metric.predicted
    position = position_bias(measured.decisions.prediction[single], evidence.gold_index[single])
    mass = evidence.mass[among] if measured.likelihoods else np.array([])
    low_mass = low_mass_rate(mass) if _labels(measured.protocol) else math.nan
    known = value.n > 0 and bool(measured.bounded[among].all())
    near_ties = float((measured.near_ties & among).sum() / value.n) if known else math.nan
    kinds = (_is_text_of, _is_permuted, _is_choices_only_of)
    text, permuted, choices = (nearest(measured, siblings, fits) for fits in kinds)
    mismatch, consistency = _mismatch(text, measured, among), _consistency(permuted, measured, among)
    alone, alone_p = _alone(choices, measured, among)
    length, length_chance = _length(measured, rows, offsets)
    golds = evidence.gold_index[among]
    impossible = evidence.impossible(measured.protocol.null)[among]
    margins = decisions.margin[~np.isnan(decisions.margin)]
    alike = len(margins) > 1 and bool((np.abs(margins) <= MARGIN).all())
    raised = {
        "served-model": served_changed,
        "positive": bool((impossible & POSITIVE).any()),
        "placeholder": bool((impossible & PLACEHOLDER).any()),
        "margins": alike,
        "many-missing": value.missing > MISSING * (value.n + value.missing),
        "many-unparsed": (measured.invalid & among).sum() > UNPARSED * value.n,
        "many-tied": value.ties > TIED * value.n and not alike,
        "chance": signs.at_chance,
        "constant": signs.constant,
        "gold-constant": value.ties > 0 and len(golds) > 1 and golds[0] >= 0 and bool((golds == golds[0]).all()),
        "position": position.p < SIGNIFICANT,
        "length": abs(length) >= LENGTH and length_chance < SIGNIFICANT,
        "mass": low_mass > 0.5,
        "near-ties": near_ties > (value.ci_high - value.ci_low) / 2,
        "label/text": mismatch >= 0.3,
        "permutation": consistency <= 0.7,
        "choices-only": alone_p < SIGNIFICANT,
    }
    return Diagnosis(
        flags=tuple(name for name in FLAGS if raised[name]),
        chance=chance,
        most_common=signs.most_common,
        position_rstd=position.rstd,
        position_p=position.p,
        length_rho=length,
        length_p=length_chance,
        mass=float(np.nanmedian(mass)) if (~np.isnan(mass)).any() else math.nan,
        low_mass=low_mass,
        near_tie_rate=near_ties,
        tie_rate=signs.tie_rate,
        label_text=mismatch,
        text_sibling=text.name if text else None,
        permutation_consistency=consistency,
        permutation_sibling=permuted.name if permuted else None,
        choices_only=alone,
        choices_only_p=alone_p,
        choices_sibling=choices.name if choices else None,
    )


def nearest(
    measured: Measurement, siblings: Sequence[Measurement], fits: Callable[[Protocol, Protocol], bool]
) -> Measurement | None:
    """The first of the siblings whose protocol fits that of ``measured`` and differs from it in the fewest axes."""
    fitting = [each for each in siblings if fits(each.protocol, measured.protocol)]
    return min(fitting, key=lambda each: len(axis_differences(each.protocol, measured.protocol)), default=None)


def _labels(protocol: Protocol) -> bool:
    return "{letter}" in protocol.continuation and "{choice}" not in protocol.continuation


def _shows_question(protocol: Protocol) -> bool:
    return "{question}" in protocol.question


def _is_text_of(other: Protocol, protocol: Protocol) -> bool:
    shows_text = _labels(protocol) and "{choice}" in other.continuation
    return shows_text and _shows_question(other) == _shows_question(protocol)


def _is_choices_only_of(other: Protocol, protocol: Protocol) -> bool:
    return not _shows_question(other) and _shows_question(protocol) and _labels(other) == _labels(protocol)


def _is_permuted(other: Protocol, protocol: Protocol) -> bool:
    """Whether the first asks the same with the options in several orders."""
    return other.views in PERMUTED and _in_one_order(other) == _in_one_order(protocol)


def _in_one_order(protocol: Protocol) -> str:
    """The digest of the prompt with the options as given, without the seed where only the views need it."""
    seed = None if protocol.views in DRAWING and not protocol.shots else protocol.seed
    return replace(protocol, views="given", calibration="none", seed=seed).prompt_digest


def _consistency(sibling: Measurement | None, measured: Measurement, among: Mask) -> float:
    if sibling is None or not same_items(sibling, measured):  # another split: nothing to compare
        return math.nan
    evidence = sibling.evidence
    views, offsets = sibling.protocol.views, evidence.item_offsets
    predictions = order_predictions(views, evidence.part_sums, offsets, evidence.part_lows)
    return permutation_consistency(predictions[:, among])


def _mismatch(sibling: Measurement | None, measured: Measurement, among: Mask) -> float:
    if sibling is None or not same_items(sibling, measured):  # another split: nothing to compare
        return math.nan
    left, right = paired_predictions([measured, sibling])[:, among]
    both = (left >= 0) & (right >= 0)
    return float((left != right)[both].mean()) if both.any() else math.nan


def _alone(sibling: Measurement | None, measured: Measurement, among: Mask) -> tuple[float, float]:
    """The accuracy of the sibling on the same items, and how likely guessing is as good."""
    if sibling is None or not same_items(sibling, measured):  # another split: nothing to compare
        return math.nan, math.nan
    scored = among & ~sibling.decisions.missing
    chance = guess(sibling.evidence.item_offsets, sibling.evidence.right, sibling.protocol.metric)[scored]
    return micro(sibling.decisions, among).value, guessing_p(sibling.credit[scored], chance)


def _length(measured: Measurement, rows: Mask, offsets: Integers) -> tuple[float, float]:
    """The mean correlation of score and length, and how likely one so large is by chance."""
    if measured.scores is None:
        return math.nan, math.nan
    rhos = length_correlations(measured.scores[rows], measured.evidence.lengths[rows], offsets)
    known = rhos[~np.isnan(rhos)]
    return (float(known.mean()), length_p(known)) if len(known) else (math.nan, math.nan)
