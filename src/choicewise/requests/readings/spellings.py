"""Reading ``spellings``: several spellings of each option's label after the context."""

from __future__ import annotations

from choicewise.requests.readings.choices import ChoiceAsker

ASKER = ChoiceAsker()
