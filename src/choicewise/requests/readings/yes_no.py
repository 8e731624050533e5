"""Reading ``yes-no``: two answers after a context that proposes the option."""

from functools import partial

from choicewise.requests.readings.choice_group import own_contexts, refuse_overlap
from choicewise.requests.readings.choices import ChoiceAsker

# An oracle gives the first answer (yes) about a right choice, the second (no) about a wrong one.
ASKER = ChoiceAsker(
    groups=partial(own_contexts, preferred=lambda answers, right: (0,) if right else (1,)), check=refuse_overlap
)
