"""The protocols of an imported log: every score that log-likelihoods of choices can give, whatever this log has."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from choicewise.interchange.logs.log import Log
from choicewise.protocols.consistency import NEUTRAL
from choicewise.protocols.protocol import Protocol
from choicewise.protocols.readings import CONDITIONAL, SUMS
from choicewise.scoring.continuations import Continuations
from choicewise.scoring.scores import SCORES as SCORED
from choicewise.scoring.scores.lacks import lacking

SCORES = (*SUMS, "greedy", "least_likely", "locally_renormalised")
"""What is made of every log; the last two stand for the scores that need single tokens."""

ALWAYS = CONDITIONAL[:1]
"""Scores against the log-likelihood after a null context, of which a log without any has one to say what it lacks."""

ASKED = tuple({SCORED[name].function: name for name in reversed(CONDITIONAL)}.values())[::-1]
"""The same of a log that has some; of two names for one computation the first."""

TIES = {"sum": ("split", "wrong"), "char_mean_bare": ("split",)}
"""Scores that other tools publish with the first of tied choices as the winner → the other ways with ties."""


ALONE: Mapping[str, Mapping[str, str]] = {
    "greedy": {"score": "greedy", "decision": "greedy-match", "metric": "exact_match"},
    "perplexity": {"metric": "perplexity"},
}
"""What is made of a log whose items have one choice each."""


@dataclass(frozen=True, slots=True)
class Has:
    """What a log has anywhere: ``text`` of choices, ``tokens`` (how many), ``greedy`` flags.

    ``several``: items with several right choices; ``single``: no item with more than one choice; ``scored``: any choice
    with a log-likelihood.
    """

    text: bool = False
    tokens: bool = False
    greedy: bool = False
    several: bool = False
    single: bool = False
    scored: bool = True


def log_protocols(log: Log, requests: str, has: Has) -> dict[str, Protocol]:
    """By name what is made of ``log``, which ``has`` these; ``requests``: the digest of what was asked (64 hex).

    What the log has too little for comes last.
    """
    first, *others = log.aggregations
    base: dict[str, Any] = {**NEUTRAL, **log.axes, "aggregation": first, "choices": 1 if has.single else None}

    def protocol(**axes: Any) -> Protocol:
        return Protocol(benchmark=log.task, split="test", requests=requests, **{**base, **axes})

    if not has.scored and log.rules:
        return {f"{log.task}:sum": protocol()}
    if has.single:
        return {f"{log.task}:{name}": protocol(**axes) for name, axes in ALONE.items()}
    protocols: dict[str, Protocol] = {}
    for score in SCORES:
        protocols[f"{log.task}:{score}"] = protocol(**ALONE.get(score, {"score": score}))
        for ties in TIES.get(score, ()):
            protocols[f"{log.task}:{score}@ties={ties}"] = protocol(score=score, ties=ties)
        for other in others if score in SUMS else ():
            protocols[f"{log.task}:{score}@aggregation={other}"] = protocol(score=score, aggregation=other)
    for metric in ("mc1", "mc2", "mc2-split") if has.several else ("mc1", "mc2"):
        protocols[f"{log.task}:{metric}"] = protocol(metric=metric)
    for score in ALWAYS if log.null is None else ASKED:
        protocols[f"{log.task}:{score}"] = protocol(score=score, null=log.null or "")
    return dict(sorted(protocols.items(), key=lambda named: _lacks(named[1].score, log, has)))


def _lacks(score: str, log: Log, has: Has) -> bool:
    """Whether nothing of ``log`` can be scored so."""
    nothing, one = np.zeros(0), np.ones(1)
    observed = Continuations(
        *(nothing.astype(np.int32), nothing.astype(np.float32), nothing.astype(np.int32), nothing.astype(np.int32)),
        offsets=np.zeros(2, dtype=np.int64),
        text=["x" if has.text else None],
        item_offsets=np.array([0, 1]),
        totals=-one,
        token_counts=one if has.tokens else None,
        all_greedy=one if has.greedy else None,
    )
    null = observed if log.null is not None else replace(observed, totals=np.full(1, np.nan))
    return bool(lacking(SCORED[score], observed, null).any())
