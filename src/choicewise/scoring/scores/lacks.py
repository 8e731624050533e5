"""What observations without tokens, as in other tools' logs, lack for a score.

That is read off the score itself: what it gives a number with and none without, it lacks.  So a new score needs nothing
here.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from choicewise.scoring.continuations import Continuations
from choicewise.scoring.scores import Score

LACKS = (
    "",
    "the log has no texts of the choices: their lengths can't be counted",
    "the log has no token counts: the model's tokenizer can count them where the texts are there",
    "the log does not say whether each token was the likeliest one",
    "the log has no log-likelihoods without the question: nothing was asked after a null context",
    "the log has no log-probabilities of single tokens, only their sum",
    "a choice has an empty text, which has no length",
)
"""Why a score can't be computed; nothing where it can, or where an observation has tokens or is missing."""

_TEXT, _COUNT, _FLAG, _NULL, _TOKENS, _EMPTY = range(1, len(LACKS))

_Given = tuple[Continuations, Continuations | None]

_SUPPLIED: dict[int, Callable[[Continuations, Continuations | None], _Given]] = {
    _TEXT: lambda observed, null: (replace(observed, text=[text or "x" for text in observed.text]), null),
    _COUNT: lambda observed, null: (replace(observed, token_counts=np.ones(len(observed.text))), null),
    _FLAG: lambda observed, null: (replace(observed, all_greedy=np.ones(len(observed.text))), null),
    _NULL: lambda observed, null: (observed, None if null is None else observed),
}
"""What may be lacking → the same observations with something in its place."""


def lacking(score: Score, observed: Continuations, null: Continuations | None) -> npt.NDArray[np.int8]:
    """What the rows of ``observed`` lack for ``score``, as places in ``LACKS``; int8 [rows].

    ``null``: the continuations after the null context, where the score has one.
    """
    lacks = np.zeros(len(observed.text), dtype=np.int8)
    if observed.totals is None:
        return lacks
    without = np.isnan(score(observed, null)) & (observed.counts == 0) & ~np.isnan(observed.totals)
    lacks[without] = _TOKENS
    for code, supply in _SUPPLIED.items():
        if (without & (lacks == _TOKENS)).any():
            lacks[without & (lacks == _TOKENS) & ~np.isnan(score(*supply(observed, null)))] = code
    empty = np.array([text == "" for text in observed.text], dtype=np.bool_)
    return np.where((lacks == _TEXT) & empty, _EMPTY, lacks).astype(np.int8)
