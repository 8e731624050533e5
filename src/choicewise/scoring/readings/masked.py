"""Reading ``masked``: the score of the continuation, of which the model's loss gives the mean log-probability."""

from choicewise.scoring.readings.loglikelihood import COMBINER as COMBINER
