"""Reading ``noisy-channel``: the question after a proposal of each option."""

from collections.abc import Sequence

from choicewise.requests.prompt_rows import PromptRows
from choicewise.requests.readings.choice_group import ChoiceGroup
from choicewise.requests.readings.choices import ChoiceAsker, longest
from choicewise.requests.request import Request


def _groups(request: Request, context: str) -> list[ChoiceGroup]:
    """The query as the continuation of each proposal; nothing of the fitted context but the header stands before it."""
    return [
        ChoiceGroup(request.header + proposal, True, (request.query,), ((choice, 0),), (0,) * (choice in request.gold))
        for choice, proposal in enumerate(request.proposals)
    ]


class NoisyChannelAsker(ChoiceAsker):
    """Scores the query itself, so that only the proposals need room beside it."""

    def reserve(self, prompt: PromptRows, requests: Sequence[Request]) -> list[int]:
        """The tokens of the longest proposal."""
        return longest(prompt.encodings, [request.proposals for request in requests])


ASKER = NoisyChannelAsker(groups=_groups)
