"""Reading ``masked``: the model's own loss with the labels outside the option at -100."""

from choicewise.requests.readings.choices import ChoiceAsker

ASKER = ChoiceAsker(masked=True)
