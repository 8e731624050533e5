"""Reading ``loglikelihood``: the continuations after the context, in one forward pass."""

from choicewise.requests.readings.choices import ChoiceAsker

ASKER = ChoiceAsker()
