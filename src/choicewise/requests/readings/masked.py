"""Reading ``masked``: the model's own loss with the labels outside the option at -100."""

from __future__ import annotations

from choicewise.questions.masked_loss import MaskedLoss
from choicewise.requests.readings.choices import ChoiceAsker

ASKER = ChoiceAsker(question=MaskedLoss)
