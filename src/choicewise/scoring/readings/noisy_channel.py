"""Reading ``noisy-channel``: a score of the question's tokens after each option, which are no tokens of the option."""

from choicewise.scoring.readings import Combiner, loglikelihood

COMBINER = Combiner(loglikelihood.COMBINER.scores, ranges=loglikelihood.COMBINER.ranges)
