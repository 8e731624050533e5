"""Reading ``noisy-channel``: the question after a proposal of each option."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from choicewise.requests.readings.choice_group import ChoiceGroup
from choicewise.requests.readings.choices import ChoiceAsker
from choicewise.requests.request import Request

if TYPE_CHECKING:
    from choicewise.requests.prepared_block import PromptRows


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
        texts = list(dict.fromkeys(text for request in requests for text in request.proposals))
        length = dict(zip(texts, map(len, prompt.model.tokenizer.encode(texts, special=False)), strict=True))
        return [max(length[text] for text in request.proposals) for request in requests]


ASKER = NoisyChannelAsker(groups=_groups)
