"""Reading ``surprisal``: a score of the tokens that hold a byte of the continuation."""

from __future__ import annotations

from choicewise.scoring.readings import loglikelihood

COMBINER = loglikelihood.COMBINER
