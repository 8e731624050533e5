"""Reading ``yes-no``: two answers after a context that proposes the option."""

from choicewise.requests.readings.choice_group import ChoiceGroup, own_contexts
from choicewise.requests.readings.choices import ChoiceAsker
from choicewise.requests.readings.distinct import refuse_overlap
from choicewise.requests.request import Request


def _groups(request: Request, context: str) -> list[ChoiceGroup]:
    """An oracle gives the first answer (yes) about a right choice, the second (no) about a wrong one."""
    return own_contexts(request, context, lambda parts, right: (0,) if right else (1,))


ASKER = ChoiceAsker(groups=_groups, check=refuse_overlap)
