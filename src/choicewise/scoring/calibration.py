"""Corrections for how much a model prefers a label whatever the question.

All take and return scores of a fixed set of labels as log-probabilities, float64 [items, labels] (nats, normalised
over the labels or not).  Items with a missing label are NaN in the result and do not count in an estimate.
"""

import numpy as np

from choicewise.scoring.ragged import Floats


def log_shares(scores: Floats) -> Floats:
    """log softmax over the labels, float64 as ``scores``: each row's probabilities sum to 1."""
    with np.errstate(invalid="ignore"):  # labels that are all impossible have no shares: NaN, missing
        return scores - np.logaddexp.reduce(scores, axis=-1, keepdims=True)


def contextual(scores: Floats, neutral: Floats) -> Floats:
    """Contextual calibration, log p - log p̂, with p̂ the mean over content-free inputs (Zhao et al. 2021).

    ``neutral``: the labels' scores after inputs such as "N/A", "" and "[MASK]", float64 [inputs, labels].
    """
    return without(scores, _log_mean_of_known(log_shares(neutral)))


def batch(scores: Floats) -> Floats:
    """Batch calibration: contextual calibration with the evaluated items as the inputs (Zhou et al. 2024).

    Transductive: an item's result depends on which others are in the batch; a batch of one item gives all zeros.
    """
    return contextual(scores, scores)


def label_prior(permuted: Floats) -> Floats:
    """PriDe's prior: how the model prefers each label, log-probabilities, float64 [labels] (Zheng et al. 2024).

    ``permuted``: the labels' scores under every cyclic order of the options, float64 [items, orders, labels].  Over
    the orders each option has each label once, so the average over them depends on the labels alone
    (LLM-MCQ-Bias debias_pride.py@da14c48).
    """
    return _log_mean_of_known(log_shares(log_shares(permuted).mean(axis=1)))


def without(scores: Floats, prior: Floats) -> Floats:
    """log P(label) - log prior(label), float64 [items, labels]; PriDe with the prior that ``label_prior`` gives."""
    with np.errstate(invalid="ignore"):  # a label impossible here and everywhere: NaN, missing
        return log_shares(scores) - prior


def view_mean(scores: Floats) -> Floats:
    """log of the mean over several views of an item of P(label), float64 [items, labels].

    ``scores``: float64 [items, views, labels].  Where the last axis holds the options, each under the label it had in
    the view's order, it is the mean over cyclic or all permutations (Zheng et al. 2024).
    """
    return np.asarray(np.logaddexp.reduce(log_shares(scores), axis=1) - np.log(scores.shape[1]), dtype=np.float64)


def _log_mean_of_known(shares: Floats) -> Floats:
    """log of the mean probability over the rows that are not missing, float64 [labels]; NaN when all are."""
    known = shares[~np.isnan(shares).any(axis=-1)]
    if not len(known):
        return np.full(shares.shape[-1], np.nan)
    return np.asarray(np.logaddexp.reduce(known, axis=0) - np.log(len(known)), dtype=np.float64)
