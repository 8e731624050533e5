"""Reading ``surprisal``: a score of the tokens that hold a byte of the continuation."""

from choicewise.scoring.readings.loglikelihood import COMBINER as COMBINER
