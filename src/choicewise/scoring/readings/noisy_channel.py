"""Reading ``noisy-channel``: a score of the question's tokens after each option, which are no tokens of the option."""

from choicewise.scoring.readings import loglikelihood
from choicewise.scoring.readings.combiner import Combiner

COMBINER = Combiner(loglikelihood.COMBINER.scores)
