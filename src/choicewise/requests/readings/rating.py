"""Reading ``rating``: the labels of a scale after a context that proposes the option."""

from functools import partial

from choicewise.requests.readings.choice_group import own_contexts, refuse_overlap
from choicewise.requests.readings.choices import ChoiceAsker

# An oracle gives a right choice the highest rating, a wrong one the lowest.
ASKER = ChoiceAsker(
    groups=partial(own_contexts, preferred=lambda labels, right: (labels - 1,) if right else (0,)), check=refuse_overlap
)
