"""Protocols for tests, and the questions of one request."""

from collections.abc import Iterator, Sequence
from typing import Any

from choicewise.data.dataset import Dataset
from choicewise.protocols.catalogue import Entry, entries
from choicewise.protocols.protocol import Protocol
from choicewise.requests.render import Refusal, TemplateSource
from choicewise.requests.request import Request
from choicewise.tokens.boundary import ChoiceQuestion, choice_questions_batch
from choicewise.tokens.chat_template import ChatTemplate
from choicewise.tokens.encode import Encodings
from choicewise.tokens.tokenizer import Tokenizer


def choice_questions(
    tokenizer: Tokenizer, policy: str, bos: str, context: str, continuations: Sequence[str], gold: Sequence[int]
) -> list[ChoiceQuestion]:
    """How each of ``continuations`` is asked after ``context``; ``gold`` are the indices of right ones."""
    return choice_questions_batch(Encodings(tokenizer, bos), policy, [context], [continuations], [gold])[0]


def mmlu_protocol(**axes: Any) -> Protocol:
    """A protocol of the benchmark MMLU; axes that are left out have their defaults."""
    return Protocol(**{"benchmark": "mmlu", **axes})


def entries_for_mmlu() -> list[Entry]:
    """The entries of the catalogue that MMLU can be asked under: its own, and those that fit every dataset."""
    return [known for known in entries() if next(iter(known.protocols.values())).benchmark in ("any", "mmlu")]


def requests(
    protocol: Protocol, data: Dataset, subject: str, limit: int | None = None, template: ChatTemplate | None = None
) -> Iterator[Request]:
    """The requests of the (first) items of one subject in the protocol's split; DataError at a refused one."""
    items = data.rows(protocol.split or data.evaluated, subject)[:limit]
    for request in TemplateSource(protocol, data, template).requests(subject, items):
        if isinstance(request, Refusal):
            raise request.reason
        yield request
