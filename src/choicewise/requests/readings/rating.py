"""Reading ``rating``: the labels of a scale after a context that proposes the option."""

from choicewise.requests.readings.choice_group import ChoiceGroup, own_contexts
from choicewise.requests.readings.choices import ChoiceAsker
from choicewise.requests.readings.distinct import refuse_overlap
from choicewise.requests.request import Request


def _preferred(parts: int, right: bool) -> tuple[int, ...]:
    """The highest rating of a right choice, the lowest of a wrong one."""
    return (parts - 1,) if right else (0,)


def _groups(request: Request, context: str) -> list[ChoiceGroup]:
    return own_contexts(request, context, _preferred)


ASKER = ChoiceAsker(groups=_groups, check=refuse_overlap)
