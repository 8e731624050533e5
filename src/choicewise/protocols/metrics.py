"""Declare every metric: what it is made of, its range, and which way is better.

A metric is the protocol's axis ``metric``.  :mod:`choicewise.scoring.probabilities` computes those
of probabilities from the scores of any run, without a call of the model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from functools import partial

from choicewise import ports
from choicewise.protocols.readings import SUMS


@dataclass(frozen=True, slots=True)
class Metric:
    """Describe a number that is made of the scores of all items.

    ``predicted``: an item's credit says that the predicted choice is right, and nothing else.
    ``counted``: an item's credit is 0, 1 or a part of a tie, so that the number is a proportion of
    the items.  ``share``: the number is a share of 1 that can stand beside accuracies.
    ``likelihood``: the scores must be log-likelihoods of the choices, or means of such.
    ``scores``: those that it can be made of; empty for all.  ``softmax``: it looks at the softmax
    of an item's scores, which may have a temperature.  ``of_text``: an answer in text has it, too,
    with the probability of the whole text as its confidence.  ``orders``: it compares the answers
    to several orders of an item's options.  ``pooled``: it belongs to all items together, and is no
    mean of the items' numbers. ``exponential``: it is exp(-mean of the credits).  ``higher``: a
    greater number is better. ``low``, ``high``: its range.  ``unit``: "" for shares and other plain
    numbers.
    """

    description: str
    _: KW_ONLY
    predicted: bool = False
    counted: bool = False
    share: bool = False
    likelihood: bool = False
    scores: tuple[str, ...] = ()
    softmax: bool = False
    of_text: bool = False
    orders: bool = False
    pooled: bool = False
    exponential: bool = False
    higher: bool = True
    low: float = 0.0
    high: float = 1.0
    unit: str = ""

    @property
    def credited(self) -> bool:
        """Check if a greater credit is better; an ``exponential`` metric negates credits."""
        return self.higher or self.exponential

    @property
    def direction(self) -> str:
        """Say the unit, if any, and which way is better: ``bits/byte, less is better``."""
        better = "more is better" if self.higher else "less is better"
        return f"{self.unit}, {better}" if self.unit else better

    @property
    def probable(self) -> bool:
        """Check if it is computed from the scores of every choice, of which none may be missing."""
        if self.softmax or self.orders:
            return True
        return self.likelihood and not self.share and not self.exponential


_error = partial(Metric, softmax=True, higher=False)
"""A proper score or another error of the softmax."""

_of_score = partial(Metric, likelihood=True, scores=SUMS)
"""A metric of the right choice's score, sum or mean."""

_gap = partial(_error, pooled=True, of_text=True)
"""A calibration error."""

_CONFIDENCE = (
    "expected calibration error: confidence (the highest probability of an item, or that of the "
    "answered text) against the share right, in"
)

_KERNEL: Mapping[str, Metric] = {
    "acc": Metric(
        "the share of items with the right choice", predicted=True, counted=True, share=True
    ),
    "exact_match": Metric(
        "the share of items with the right text", predicted=True, counted=True, share=True
    ),
    "mc1": Metric(
        "the share of items whose first right choice beats every wrong one; other right choices "
        "are ignored",
        counted=True,
        share=True,
    ),
    "mc2": Metric(
        "the mean share that the right choices have of the probability of all",
        share=True,
        likelihood=True,
        scores=("sum",),
    ),
    "mc2-split": Metric(
        "the same, but the choices before the first wrong one are the right ones",
        share=True,
        likelihood=True,
        scores=("sum",),
    ),
    "perplexity": Metric(
        "exp of the mean negative log-likelihood of each item's only choice, in nats, whatever "
        "tokens it has",
        likelihood=True,
        scores=("sum",),
        exponential=True,
        higher=False,
        low=1.0,
        high=math.inf,
    ),
    "bpb": Metric(
        "bits per byte of the right answer; score byte_mean counts the bytes of the scored text "
        "with its space, "
        "byte_mean_bare without; aggregation bytes weighs each item by its bytes",
        likelihood=True,
        scores=("byte_mean", "byte_mean_bare"),
        higher=False,
        high=math.inf,
        unit="bits/byte",
    ),
    "logprob": _of_score(
        "score of the right answer, a log-probability", low=-math.inf, high=0.0, unit="nats"
    ),
    "prob": _of_score("probability of the right answer: exp of its score"),
    "margin": _of_score(
        "probability of the right answer minus that of the likeliest wrong one", low=-1.0
    ),
    "total-prob": _of_score(
        "sum of the probabilities of an item's choices; of means it is no probability",
        high=math.inf,
    ),
    "norm-prob": Metric(
        "share of the right answer in the softmax of an item's scores", softmax=True
    ),
    "log-score": _error(
        "minus log of the right answer's share in the softmax", high=math.inf, unit="nats"
    ),
    "brier": _error(
        "Brier score: squared distance of the softmax from the right answer, over all choices",
        high=2.0,
    ),
    "rps": _error(
        "ranked probability score, for choices in an order: squared distance of the cumulated "
        "softmax"
    ),
    "mae": _error(
        "mean absolute error in levels, for choices in an order: the softmax's mean place against "
        "the right one",
        high=math.inf,
        unit="levels",
    ),
    "brier-soft": _error(
        "squared distance of the softmax from people's counts, over all choices", high=2.0
    ),
    "kl": _error(
        "Kullback-Leibler divergence of the softmax from people's counts",
        high=math.inf,
        unit="nats",
    ),
    "tv": _error("total variation distance of the softmax from people's counts"),
    "soft-accuracy": Metric(
        "share of people that chose the choice with the highest score", softmax=True
    ),
    "ece": _gap(
        f"{_CONFIDENCE} 10 bins of equal width, closed to the left; mean confidence of a bin"
    ),
    "ece-15": _gap(
        f"{_CONFIDENCE} 15 bins of equal width, closed to the left; mean confidence of a bin"
    ),
    "ece-right": _gap(
        f"{_CONFIDENCE} 10 bins of equal width, closed to the right; mean confidence of a bin"
    ),
    "ece-midpoint": _gap(
        f"{_CONFIDENCE} 10 bins of equal width, closed to the left; the middle of a bin"
    ),
    "ece-mass": _gap(f"{_CONFIDENCE} 10 bins of equally many items; mean confidence of a bin"),
    "overconfidence": _error("mean confidence minus accuracy", low=-1.0, of_text=True),
    "all-orders": Metric(
        "the share of items that are right in every order of their options",
        counted=True,
        orders=True,
    ),
    "worst-order": Metric(
        "accuracy in the order of the options in which it is lowest", orders=True, pooled=True
    ),
    "flip-rate": Metric(
        "the share of items with another answer in some order",
        counted=True,
        orders=True,
        higher=False,
    ),
    "position-prior": Metric(
        "the greatest share that one position has of the answers in all orders",
        orders=True,
        pooled=True,
        higher=False,
    ),
    "ternary": Metric('1 for right, 0 for "I don\'t know", -1 for wrong', softmax=True, low=-1.0),
    "ternary-75": Metric(
        "the same with -3 for wrong: answering pays from a confidence of 75 %",
        softmax=True,
        low=-3.0,
    ),
    "ternary-90": Metric(
        "the same with -9 for wrong: answering pays from a confidence of 90 %",
        softmax=True,
        low=-9.0,
    ),
    "dcs": Metric(
        'distractor-aware: (share of the right answer - shares of wrong ones) x (1 - share of "I don\'t know")',
        softmax=True,
        low=-1.0,
    ),
}

METRICS: Mapping[str, Metric] = ports.OpenTable(
    _KERNEL, ports.Metric, lambda addition: addition.declaration()
)
"""Every metric by its name on the axis ``metric``."""

CHAIN = ("logprob", "prob", "norm-prob", "brier", "acc")
"""From the log-probability of the right answer to accuracy, by steps that let wrong options in.

Schaeffer et al. 2024 (2406.04391) find that each step lowers the correlation with the compute of
training.
"""

ABSTAINING = ("ternary", "ternary-75", "ternary-90", "dcs")
"""Metrics of questions whose last option is "I don't know"."""

SOFT = ("brier-soft", "kl", "tv", "soft-accuracy")
"""Metrics that compare with people's counts."""


@dataclass(frozen=True, slots=True)
class MetricName:
    """Describe another tool's name of a metric by ``axes`` of the protocol.

    ``note``: how it differs from ours.
    """

    axes: Mapping[str, str]
    tool: str
    note: str = ""


_DATADECIDE = "DataDecide"
_HARNESS = "LM Evaluation Harness 0.5"
_OLMO = "olmo-eval"
_BYTES = "bytes of the continuation with its space; bare under a chat template"

METRIC_NAMES: Mapping[str, MetricName] = {
    "bpb-bare": MetricName(
        {"metric": "bpb", "score": "byte_mean_bare"}, "", "without the space before the answer"
    ),
    "bpb-bytes": MetricName(
        {"metric": "bpb", "aggregation": "bytes"}, "", "long answers weigh more"
    ),
    "bits_per_byte": MetricName(
        {"metric": "bpb", "score": "byte_mean"}, _OLMO, "0 there where nothing was scored"
    ),
    "correct_logit": MetricName({"metric": "logprob", "score": "sum"}, _DATADECIDE),
    "correct_logit_per_token": MetricName(
        {"metric": "logprob", "score": "token_mean"}, _DATADECIDE
    ),
    "correct_logit_per_char": MetricName({"metric": "logprob", "score": "char_mean"}, _DATADECIDE),
    "correct_prob": MetricName({"metric": "prob", "score": "sum"}, _DATADECIDE),
    "correct_prob_per_token": MetricName({"metric": "prob", "score": "token_mean"}, _DATADECIDE),
    "correct_prob_per_char": MetricName({"metric": "prob", "score": "char_mean"}, _DATADECIDE),
    "margin_per_token": MetricName({"metric": "margin", "score": "token_mean"}, _DATADECIDE),
    "margin_per_char": MetricName({"metric": "margin", "score": "char_mean"}, _DATADECIDE),
    "total_prob": MetricName({"metric": "total-prob", "score": "sum"}, _DATADECIDE),
    "total_prob_per_token": MetricName(
        {"metric": "total-prob", "score": "token_mean"}, _DATADECIDE
    ),
    "total_prob_per_char": MetricName({"metric": "total-prob", "score": "char_mean"}, _DATADECIDE),
    "norm_correct_prob": MetricName({"metric": "norm-prob", "score": "sum"}, _DATADECIDE),
    "norm_correct_prob_per_token": MetricName(
        {"metric": "norm-prob", "score": "token_mean"}, _DATADECIDE
    ),
    "norm_correct_prob_per_char": MetricName(
        {"metric": "norm-prob", "score": "char_mean"}, _DATADECIDE
    ),
    "choice_logprob": MetricName(
        {"metric": "log-score", "score": "sum"}, _HARNESS, "the negative of ours"
    ),
    "choice_prob_norm": MetricName({"metric": "norm-prob", "score": "byte_mean"}, _HARNESS, _BYTES),
    "choice_logprob_norm": MetricName(
        {"metric": "log-score", "score": "byte_mean"}, _HARNESS, f"the negative of ours; {_BYTES}"
    ),
    "brier_score": MetricName(
        {"metric": "brier", "score": "sum", "golds": "each"},
        _HARNESS,
        "each of several right answers is compared with 1",
    ),
    "decision_brier": MetricName({"metric": "brier", "score": "sum"}, "EvalScope"),
    "decision_rps": MetricName({"metric": "rps", "score": "sum"}, "EvalScope"),
    "ece_10_bin": MetricName(
        {"metric": "ece-mass"},
        "HELM",
        "of the protocol's own scores, or of the text it reads; a tie is wrong there",
    ),
    "perf_circular": MetricName(
        {"metric": "all-orders", "score": "sum"}, "OpenCompass", "in percent there"
    ),
}
"""Names of metrics in other tools.

Two are not offered, because they are mistakes there: DataDecide's ``correct_prob_per_byte`` (exp of
bits per byte, above 1) and ``total_prob_per_byte`` (made of characters),
compile_results.py@68abc496:161-166.
"""

OPEN = frozenset({"log-score", "logprob", "kl"})
"""Metrics that rounded probabilities move without limit: they have two bounds and no number."""
