"""Reading ``select``: the numbers that ``select`` of SGLang's front end compares (``lang/choices.py``).

``parts`` holds the scored tokens, the prompt's last token where ``select`` asked for it and subtracted it again, and
the scored tokens but the first, each given those alone; the last two may be missing.  All scores: float64 [rows], NaN
where missing.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from choicewise.scoring.continuations import Continuations
from choicewise.scoring.ragged import Floats
from choicewise.scoring.readings import Combiner
from choicewise.scoring.scores.means import per

Parts = Sequence[Continuations]


def token_length_normalized(parts: Parts) -> Floats:
    """Mean over tokens, as sglang 0.4.2 computes it: log-probabilities that are exactly 0 do not count in it.

    The mean is taken with the prompt's last token, times the number of tokens, minus the prompt's token, over the
    scored tokens.  Where nothing is exactly 0 that is the plain mean; else the prompt's token leaves its trace.
    """
    tokens = parts[0].counts + (parts[1].counts if len(parts) > 1 else 0)
    total = token_length_normalized_with_prompt(parts) * tokens
    return per(total - _sums(parts, 1), parts[0].counts.astype(np.float64))


def token_length_normalized_with_prompt(parts: Parts) -> Floats:
    """The same against the servers of today (sglang 0.5.23): the prompt's last token stays in the mean.

    They answer one token further back, with no log-probability for it, so that ``select`` subtracts nothing.
    """
    counted = sum(np.nan_to_num(part.reduce(np.add, part.logprobs != 0)) for part in parts[:2])
    return per(parts[0].sums + _sums(parts, 1), np.asarray(counted))


def unconditional_likelihood_normalized(parts: Parts) -> Floats:
    """Mean over tokens of log P(token | context) - log P(token | the choice's tokens before it); 0 for the first."""
    return per(parts[0].sums - _sums(parts, 2), parts[0].counts.astype(np.float64))


def greedy_token_selection(parts: Parts) -> Floats:
    """1 for the choices that remain when at each place only those with the greatest log-probability are kept, else 0.

    A choice that has ended counts with its mean log-probability from there on.  Tokens are compared by their
    log-probabilities alone, so choices that share none are compared, too.
    """
    observed = parts[0]
    scores = np.full(len(observed.text), np.nan)
    for start, end in pairwise(observed.item_offsets.tolist()):
        if end > start and not np.isnan(observed.token_sums[start:end]).any():
            splits = observed.offsets[start + 1 : end] - observed.offsets[start]
            logprobs = observed.logprobs[observed.offsets[start] : observed.offsets[end]].astype(np.float64)
            scores[start:end] = _remaining(np.split(logprobs, splits))
    return scores


def _remaining(choices: Sequence[Floats]) -> list[float]:
    longest = max(map(len, choices))
    padded = [np.concatenate([choice, np.full(longest - len(choice), choice.mean())]) for choice in choices]
    remaining = list(range(len(choices)))
    for place in range(longest):
        best = max(padded[index][place] for index in remaining)
        remaining = [index for index in remaining if padded[index][place] == best]
    return [float(index in remaining) for index in range(len(choices))]


def _sums(parts: Parts, number: int) -> Floats:
    """Sums of a part, 0 where there is none of it; NaN where the model gave no number."""
    if number >= len(parts):
        return np.zeros(len(parts[0].text))
    return np.where(parts[number].counts > 0, parts[number].sums, 0.0)


SELECT: dict[str, Callable[[Parts], Floats]] = {
    "token_length_normalized": token_length_normalized,
    "token_length_normalized_with_prompt": token_length_normalized_with_prompt,
    "greedy_token_selection": greedy_token_selection,
    "unconditional_likelihood_normalized": unconditional_likelihood_normalized,
}
"""By the name of the score, which is SGLang's name of the method."""

COMBINER = Combiner(lambda protocol, observed: SELECT[protocol.score](observed.parts()))
