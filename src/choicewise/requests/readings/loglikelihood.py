"""Reading ``loglikelihood``: the continuations after the context, in one forward pass."""

from __future__ import annotations

from choicewise.requests.readings.choices import ChoiceAsker

ASKER = ChoiceAsker()
