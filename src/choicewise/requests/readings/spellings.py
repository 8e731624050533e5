"""Reading ``spellings``: several spellings of each option's label after the context."""

from choicewise.requests.readings.choices import ChoiceAsker

ASKER = ChoiceAsker()
