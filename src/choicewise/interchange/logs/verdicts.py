"""What each tool's names for its verdicts mean, computed in the plainest way from what its log has."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from string import ascii_uppercase

import numpy as np

from choicewise.interchange.logs.log import Log, LoggedItem
from choicewise.scoring.decisions import letter_match
from choicewise.scoring.readings.generate import extract

Verdict = Callable[[Log, LoggedItem], float]
"""The credit of an item; NaN where the log has not what it is made of."""


def expected(log: Log, name: str, item: LoggedItem) -> float:
    """What the log's value ``name`` of an item must be; NaN where nobody knows what it means, or something lacks."""
    verdict = VERDICTS.get(log.tool, HARNESS).get(name)
    return math.nan if verdict is None else verdict(log, item)


def is_known(log: Log, name: str) -> bool:
    """Whether anything is known of how the log's value ``name`` of an item follows from its answers."""
    return name in VERDICTS.get(log.tool, HARNESS)


def _right(item: LoggedItem, scores: Sequence[float]) -> float:
    """1 where the first of the greatest scores is a right choice, else 0."""
    return math.nan if any(map(math.isnan, scores)) else float(int(np.argmax(scores)) in item.gold)


def _shared(item: LoggedItem, scores: Sequence[float]) -> float:
    """The share of right choices among those with the greatest score."""
    top = [place for place, score in enumerate(scores) if score == max(scores)]
    return math.nan if any(map(math.isnan, scores)) else len(set(top) & set(item.gold)) / len(top)


def _sums(item: LoggedItem) -> list[float]:
    return [math.nan if choice.loglikelihood is None else choice.loglikelihood for choice in item.choices]


def _per(item: LoggedItem, lengths: Sequence[int]) -> list[float]:
    """Scores per length; NaN where one is not known."""
    if not all(lengths):
        return [math.nan] * len(item.choices)
    return [score / length for score, length in zip(_sums(item), lengths, strict=True)]


def _bare(item: LoggedItem) -> list[str]:
    """The choices as the data have them; empty where they are not known."""
    return list(item.options or [(choice.text or "").removeprefix(" ") for choice in item.choices])


def _scored(item: LoggedItem) -> list[str]:
    """The choices as they were scored, with the space they begin with; empty where they are not known."""
    return [choice.text or "" for choice in item.choices]


def _beyond_null(item: LoggedItem) -> list[float]:
    nulls = [math.nan if choice.unconditional is None else choice.unconditional for choice in item.choices]
    return [score - null for score, null in zip(_sums(item), nulls, strict=True)]


def _per_token(item: LoggedItem) -> list[float]:
    return _per(item, [choice.tokens or 0 for choice in item.choices])


def _match(log: Log, item: LoggedItem) -> float:
    flags = [item.choices[index].greedy for index in item.gold]
    return math.nan if None in flags else float(any(flags))


def _letter(log: Log, item: LoggedItem) -> float:
    """What the tool's own rule gives of the text that the model wrote."""
    if item.generated is None or not log.rules:
        return math.nan
    if log.rules[0] == "letter-match":
        return float(letter_match([item.generated], [_bare(item)], [item.gold], ascii_uppercase).credit[0])
    return float(extract(log.rules[0], [item.generated], [item.gold], [len(item.choices)], ascii_uppercase).credit[0])


def _share(item: LoggedItem) -> float:
    """The share that the right choices have of the probability of all."""
    sums = np.array(_sums(item))
    return float(np.exp(sums[list(item.gold)] - np.logaddexp.reduce(sums)).sum())


def _helm(log: Log, item: LoggedItem) -> float:
    """HELM's exact_match: of a letter, or of references of which tied ones share the credit."""
    return _letter(log, item) if log.rules else _shared(item, _helm_scores(log, item))


def _helm_scores(log: Log, item: LoggedItem) -> list[float]:
    calibrated = log.settings.get("method", "").endswith("calibrated")
    return _beyond_null(item) if calibrated else _per_token(item)


def _helm_index(log: Log, item: LoggedItem) -> float:
    scores = _helm_scores(log, item)
    return math.nan if log.rules or any(map(math.isnan, scores)) else float(np.argmax(scores))


def _either_norm(log: Log, item: LoggedItem) -> float:
    """lighteval's acc_norm before 0.10 counts the space before a choice in some tasks and in others not."""
    with_space, without = (
        _right(item, _per(item, [len(text) for text in texts])) for texts in (_scored(item), _bare(item))
    )
    return with_space if with_space == without else math.nan


HARNESS: Mapping[str, Verdict] = {
    "acc": lambda log, item: _right(item, _sums(item)),
    "acc_norm": lambda log, item: _right(item, _per(item, [len(text) for text in _bare(item)])),
    "acc_bytes": lambda log, item: _right(item, _per(item, [len(text.encode()) for text in _bare(item)])),
    "acc_mutual_info": lambda log, item: _right(item, _beyond_null(item)),
    "exact_match": _match,
    "greedy": _match,
    "mc2": lambda log, item: _share(item),
    "perplexity": lambda log, item: _sums(item)[0] if len(item.choices) == 1 else math.nan,
}
"""lm-evaluation-harness (lm_eval/api/task.py@4e7e0d4:1489), and tables that name their columns so."""

_NORM = "acc:logprob_normalization=LogProb"

VERDICTS: Mapping[str, Mapping[str, Verdict]] = {
    "helm": {"exact_match": _helm, "predicted_index": _helm_index},
    "inspect": {"choice": _letter},
    "lighteval": {
        "acc": lambda log, item: _right(item, _sums(item)),
        "acc_norm": _either_norm,
        f"{_NORM}CharNorm(name='norm', ignore_first_space=False)": lambda log, item: _right(
            item, _per(item, [len(text) for text in _scored(item)])
        ),
        f"{_NORM}CharNorm(name='norm', ignore_first_space=True)": lambda log, item: _right(
            item, _per(item, [len(text) for text in _bare(item)])
        ),
        f"{_NORM}TokenNorm(name='norm_token')": lambda log, item: _right(item, _per_token(item)),
        f"{_NORM}PMINorm(name='norm_pmi')": lambda log, item: _right(item, _beyond_null(item)),
    },
}
"""By tool and its name for a verdict.

helm: BasicReferenceMetric and exact_match of stanford-crfm/helm@63754d0.  inspect: the scorer choice.  lighteval:
LoglikelihoodAcc with its normalisations (metrics/metrics_sample.py and normalizations.py@3fd1526).
"""
