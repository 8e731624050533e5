"""Reading ``rating``: the labels of a scale after a context that proposes the option."""

from choicewise.requests.readings.choice_group import ChoiceGroup, own_contexts
from choicewise.requests.readings.choices import ChoiceAsker
from choicewise.requests.readings.distinct import refuse_overlap
from choicewise.requests.request import Request


def _groups(request: Request, context: str) -> list[ChoiceGroup]:
    """An oracle gives a right choice the highest rating, a wrong one the lowest."""
    return own_contexts(request, context, lambda parts, right: (parts - 1,) if right else (0,))


ASKER = ChoiceAsker(groups=_groups, check=refuse_overlap)
