"""Labels whose tokens must not begin one another, because their probabilities are compared as different answers."""

from collections.abc import Sequence
from itertools import combinations

from choicewise.errors import ProtocolError
from choicewise.protocols.protocol import Protocol
from choicewise.questions import Span
from choicewise.requests.readings.choice_group import ChoiceGroup
from choicewise.tokens.choice_question import ChoiceQuestion
from choicewise.tokens.tokenizer import common_prefix


def refuse_overlap(protocol: Protocol, group: ChoiceGroup, choices: Sequence[ChoiceQuestion]) -> None:
    """ProtocolError where the tokens of one answer begin those of another: P of the one then includes the other."""
    for left, right in combinations(range(len(choices)), 2):
        first, second = choices[left].span, choices[right].span
        if not (isinstance(first, Span) and isinstance(second, Span)):
            continue
        one, other = first.continuation, second.continuation
        if common_prefix([one, other]) == min(len(one), len(other)):
            raise ProtocolError(
                f"reading {protocol.reading}: this model's tokenizer can't tell {group.continuations[left]!r} and "
                f"{group.continuations[right]!r} apart, because the tokens of one begin those of the other; "
                "use other labels in the axis continuation"
            )
