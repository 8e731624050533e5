"""Reading ``masked``: the model's own loss with the labels outside the option at -100."""

from choicewise.questions import MaskedLoss
from choicewise.requests.readings.choices import ChoiceAsker

ASKER = ChoiceAsker(question=MaskedLoss)
