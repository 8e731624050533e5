"""Reading ``embedding``: the observed cosine is the score."""

from choicewise.scoring.readings import Combiner

COMBINER = Combiner(lambda protocol, observed: observed.values())
