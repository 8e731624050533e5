"""Protocols for tests, and the questions of one request."""

from collections.abc import Iterator, Sequence
from typing import Any

from choicewise.data.dataset import Dataset
from choicewise.protocols.catalogue import Entry, entries
from choicewise.protocols.protocol import Protocol
from choicewise.requests.render import Refusal, TemplateSource
from choicewise.requests.request import Request
from choicewise.tokens.boundary import ChoicePrompt, choice_prompts_batch
from choicewise.tokens.chat_template import ChatTemplate
from choicewise.tokens.encode import Encodings
from choicewise.tokens.tokenizer import Tokenizer


def choice_prompts(
    tokenizer: Tokenizer,
    policy: str,
    bos: str,
    context: str,
    continuations: Sequence[str],
    gold: Sequence[int],
) -> list[ChoicePrompt]:
    """How each of ``continuations`` is asked after ``context``; ``gold`` are the indices of right ones."""
    return choice_prompts_batch(
        Encodings(tokenizer, bos), policy, [context], [continuations], [gold]
    )[0]


def mmlu_protocol(**axes: Any) -> Protocol:
    """A protocol of the benchmark MMLU; axes that are left out have their defaults."""
    return Protocol(**{"benchmark": "mmlu", **axes})


def entries_for_mmlu() -> list[Entry]:
    """The entries under which any model can be asked MMLU: its own, and those for every dataset.

    Chats are none of them, nor entries that also ask questions of yes or no, or with levels.
    """
    headlines = [(known, next(iter(known.protocols.values()))) for known in entries()]
    plain = [
        (known, own)
        for known, own in headlines
        if own.benchmark in ("any", "mmlu") and own.chat == "none"
    ]
    return [
        known
        for known, _ in plain
        if {each.kind for each in known.protocols.values()} <= {"any", "choice"}
    ]


def requests(
    protocol: Protocol,
    data: Dataset,
    subject: str,
    limit: int | None = None,
    template: ChatTemplate | None = None,
) -> Iterator[Request]:
    """The requests of the (first) items of one subject in the protocol's split; DataError at a refused one."""
    items = data.rows(protocol.split or data.evaluated, subject)[:limit]
    for request in TemplateSource(protocol, data, template).requests(subject, items):
        if isinstance(request, Refusal):
            raise request.reason
        yield request
