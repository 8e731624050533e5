"""Reading ``surprisal``: a score of the tokens that hold a byte of the continuation."""

from choicewise.scoring.readings import loglikelihood

COMBINER = loglikelihood.COMBINER
