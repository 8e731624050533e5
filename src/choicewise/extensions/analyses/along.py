"""Measure how the choices' probabilities move along a thought, and where the answer stops changing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from choicewise.protocols.between import as_accuracy
from choicewise.protocols.metrics import METRICS
from choicewise.protocols.protocol import Protocol
from choicewise.protocols.readings import ALONG, READINGS
from choicewise.results.evidence import Column, MissingReason
from choicewise.results.run import Run
from choicewise.scoring.decide import Decisions
from choicewise.scoring.intervals import micro, number
from choicewise.scoring.observed import Floats, Integers, Mask
from choicewise.scoring.portion import ObservedPortion

# The thought of an item is cut after shares of its tokens and closed by the chat template's bytes,
# and the choices are scored there (reading along-thought). All numbers of an AlongThought are of
# the same items, those with a score after every share, so that points differ by what was thought
# and not by who was counted.


@dataclass(frozen=True, kw_only=True)
class Point:
    """Hold the answers of all items after a ``share`` of each thought, or within a budget of
    ``tokens``.

    ``share``: None for a budget. ``tokens``: the budget, or the median number after this share.
    ``spent``: the mean number of tokens. ``accuracy`` and ``probability`` (mean share of the right
    choices in the softmax) have 95 % intervals. ``open``: share of items whose answer still
    changes.
    """

    share: float | None
    tokens: float
    spent: float
    accuracy: float
    accuracy_low: float
    accuracy_high: float
    probability: float
    probability_low: float
    probability_high: float
    open: float


@dataclass(frozen=True)
class Turns:
    """Count the items whose answer changes along the thought, by its credit before and after the
    whole thought.

    ``gained``: more credit. ``lost``: less credit. ``other``: another answer of the same credit.
    ``back``: the first answer again.
    """

    gained: int
    lost: int
    other: int
    back: int

    @property
    def turned(self) -> int:
        """Return how many items change their answer at all."""
        return self.gained + self.lost + self.other + self.back


@dataclass(frozen=True, kw_only=True)
class AlongThought:
    """Hold the answers along the thoughts of ``n`` items under one protocol.

    ``ended``: "itself" if the model ended these thoughts, "limit" if they were closed at
    ``thought_tokens``. ``whole``, ``closed``: how many items there are of the two. ``missing``: why
    other items have no number. ``thought_tokens``: median number of tokens. ``chance``: the
    accuracy of guessing. ``settled``: share of the thought → how many items keep their answer from
    there on. ``settled_share``, ``settled_tokens``: the median of that share and of the tokens
    before it; ``tokens_after``: the median of the tokens behind it.
    """

    protocol: str
    ended: str
    n: int
    whole: int
    closed: int
    missing: tuple[MissingReason, ...]
    thought_tokens: float
    chance: float
    points: tuple[Point, ...]
    budgets: tuple[Point, ...]
    settled: Mapping[float, int]
    settled_share: float
    settled_tokens: float
    tokens_after: float
    turns: Turns


def along_thoughts(run: Run) -> list[AlongThought]:
    """Return the answers along thoughts under each protocol of ``run`` that reads them, by how the
    thoughts ended.
    """
    # Protocols that differ only in the share that is their number have the same answers, and count
    # once.
    first_names: dict[Protocol, str] = {}
    for name, protocol in run.protocols.items():
        if READINGS[protocol.reading].along and not run.lacking({name: protocol}):
            first_names.setdefault(replace(as_accuracy(protocol), score="sum"), name)
    thoughts: list[AlongThought] = []
    for plain, name in first_names.items():
        thoughts.extend(_thoughts_under(run, name, plain))
    return thoughts


BUDGETS = 10
"""The greatest number of budgets."""

_THOUGHTS = Column("thoughts", compute=ObservedPortion.thoughts)


@dataclass(frozen=True, kw_only=True)
class _Answers:
    """Hold the answers after each share, [shares, items].

    ``tokens``: those before the cut. ``guesses``: the credit that is expected of guessing, [items].
    """

    tokens: Floats
    prediction: Integers
    credit: Floats
    probability: Floats
    guesses: Floats

    def among(self, items: Mask) -> _Answers:
        return _Answers(
            tokens=self.tokens[:, items],
            prediction=self.prediction[:, items],
            credit=self.credit[:, items],
            probability=self.probability[:, items],
            guesses=self.guesses[items],
        )

    def is_scored(self) -> Mask:
        """Mark the items with a number after every share, [items]."""
        unknown = np.isnan(self.credit) | np.isnan(self.probability) | np.isnan(self.tokens)
        return np.asarray(~unknown.any(axis=0), dtype=np.bool_)

    def settled(self) -> Integers:
        """Return the index of the first share from which on the answer of each item stays the same,
        [items].
        """
        is_last = self.prediction == self.prediction[-1]
        stays = np.cumprod(is_last[::-1], axis=0).sum(axis=0)
        return np.asarray(len(is_last) - stays, dtype=np.int64)


def _thoughts_under(run: Run, name: str, plain: Protocol) -> Iterator[AlongThought]:
    """Yield the answers under the protocol of that name, which is ``plain`` as accuracy after the
    whole thought.
    """
    protocol = run.protocols[name]
    softmax = replace(
        plain, metric="norm-prob", golds=protocol.golds, temperature=protocol.temperature
    )
    by_name = {}
    for score in ALONG:
        by_name[f"acc {score}"] = replace(plain, score=score)
        by_name[f"norm-prob {score}"] = replace(softmax, score=score)
    measurements = run.under(
        by_name
    ).measurements  # under all at once, so that the run is read once
    accuracies = [measurements[f"acc {score}"] for score in ALONG]
    probabilities = [measurements[f"norm-prob {score}"] for score in ALONG]
    evidence = run.evidence.gather({plain.prompt_digest: [_THOUGHTS]})[plain.prompt_digest]
    tokens, is_closed = evidence.column(_THOUGHTS)
    answers = _Answers(
        tokens=tokens,
        prediction=np.array([measurement.prediction for measurement in accuracies]),
        credit=np.array([measurement.credit for measurement in accuracies]),
        probability=np.array([measurement.credit for measurement in probabilities]),
        guesses=accuracies[-1].guesses,
    )
    scored = answers.is_scored()
    whole = scored & ~is_closed
    closed = scored & is_closed
    thoughts = _Thoughts(
        protocol=name,
        whole=int(whole.sum()),
        closed=int(closed.sum()),
        missing=accuracies[-1].missing_reasons(np.ones(len(scored), dtype=np.bool_)),
    )
    # A run that never came to the end of a thought has its reasons, and no points.
    if thoughts.whole or not thoughts.closed:
        yield _along("itself", answers.among(whole), thoughts)
    if thoughts.closed:
        yield _along("limit", answers.among(closed), thoughts)


@dataclass(frozen=True)
class _Thoughts:
    """Count the thoughts under one protocol, however they ended."""

    protocol: str
    whole: int
    closed: int
    missing: tuple[MissingReason, ...]


def _along(ended: str, answers: _Answers, thoughts: _Thoughts) -> AlongThought:
    """Return the answers along the thoughts that ended in one way."""
    shares = list(ALONG.values())
    n = answers.tokens.shape[1]
    points = []
    budgets = []
    chance = math.nan
    if n:
        chance = float(answers.guesses.mean())
        for index, share in enumerate(shares):
            cut = np.full(n, index)
            points.append(_point(answers, cut, _median(answers.tokens[index]), share))
        for budget in _budgets(answers.tokens):
            # A cut of exactly the budget is within it, and the cut before any token always is.
            last_cut = (answers.tokens <= budget).sum(axis=0) - 1
            budgets.append(_point(answers, last_cut, budget))
    settled = answers.settled()
    thought_tokens = answers.tokens[-1]
    settled_tokens = answers.tokens[settled, np.arange(n)]
    return AlongThought(
        protocol=thoughts.protocol,
        ended=ended,
        n=n,
        whole=thoughts.whole,
        closed=thoughts.closed,
        missing=thoughts.missing,
        thought_tokens=_median(thought_tokens),
        chance=chance,
        points=tuple(points),
        budgets=tuple(budgets),
        settled={share: int((settled == index).sum()) for index, share in enumerate(shares)},
        settled_share=_median(np.array(shares)[settled]),
        settled_tokens=_median(settled_tokens),
        tokens_after=_median(thought_tokens - settled_tokens),
        turns=_turns(answers),
    )


def _point(answers: _Answers, cut: Integers, tokens: float, share: float | None = None) -> Point:
    """Return the answers with the thought of each item at the share with the index ``cut``,
    [items].
    """
    item = np.arange(len(cut))
    prediction = answers.prediction[cut, item]
    accuracy = micro(Decisions.uncompared(prediction, answers.credit[cut, item]))
    mean = micro(Decisions.uncompared(prediction, answers.probability[cut, item]), counted=False)
    # Shares of the softmax are no counts of right answers, so that their interval is Student's t.
    probability = number(mean, METRICS["norm-prob"])
    return Point(
        share=share,
        tokens=tokens,
        spent=float(answers.tokens[cut, item].mean()),
        accuracy=accuracy.value,
        accuracy_low=accuracy.ci_low,
        accuracy_high=accuracy.ci_high,
        probability=probability.value,
        probability_low=probability.ci_low,
        probability_high=probability.ci_high,
        open=float((answers.settled() > cut).mean()),
    )


def _budgets(tokens: Floats) -> list[float]:
    """Return powers of two within which half of the thoughts have their first cut, below the
    longest thought.
    """
    longest = int(tokens[-1].max())
    first_cut = _median(tokens[1])
    powers = [float(2**power) for power in range(longest.bit_length())]
    return [power for power in powers if first_cut <= power < longest][-BUDGETS:]


def _turns(answers: _Answers) -> Turns:
    first = answers.prediction[0]
    # Without a thought the model answers at once; after the whole thought it answers as the run
    # counted.
    last = answers.prediction[-1]
    changed = (answers.prediction != last).any(axis=0)
    moved = answers.credit[-1] - answers.credit[0]
    gained = moved > 0
    lost = moved < 0
    same_credit = changed & ~(gained | lost)
    return Turns(
        gained=int((changed & gained).sum()),
        lost=int((changed & lost).sum()),
        other=int((same_credit & (first != last)).sum()),
        back=int((same_credit & (first == last)).sum()),
    )


def _median(values: Floats) -> float:
    if not len(values):
        return math.nan
    return float(np.median(values))
