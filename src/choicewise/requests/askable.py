"""Which published protocols can ask a dataset's questions at all."""

from collections.abc import Sequence
from typing import Final

from choicewise.data.dataset import Dataset
from choicewise.data.item import Item
from choicewise.errors import ChoicewiseError, DataError, ProtocolError
from choicewise.protocols.catalogue import entries
from choicewise.protocols.protocol import Protocol
from choicewise.requests.schedule import with_split
from choicewise.requests.source import Refusal, TemplateSource

TRIED: Final = 10
"""Items by which a protocol is found to fit a dataset."""


def askable(dataset: Dataset, items: Sequence[Item]) -> dict[str, str]:
    """Entry of the catalogue → why its first protocol can't ask one of ``items``; nothing where it can ask all.

    What a protocol can ask need not be what it was published for.
    """
    return {entry.name: _refused(next(iter(entry.protocols.values())), dataset, items) for entry in entries()}


def misfit(protocol: Protocol, dataset: Dataset, subjects: Sequence[str] | None = None) -> str:
    """Why ``protocol`` can ask none of the first items of ``dataset``; nothing where it can ask one of them."""
    try:
        recipe = with_split(protocol, dataset)
        split = recipe.split or dataset.evaluated
        subject = dataset.choose(split, subjects)[0]
        items = dataset.rows(split, subject)[:TRIED]
        asked = list(TemplateSource(recipe, dataset).requests(subject, items))
    except (DataError, ProtocolError) as reason:
        return reason.message
    refusals = [each for each in asked if isinstance(each, Refusal)]
    return refusals[0].reason.message if len(refusals) == len(asked) else ""


def _refused(protocol: Protocol, dataset: Dataset, items: Sequence[Item]) -> str:
    try:
        source = TemplateSource(with_split(protocol, dataset), dataset)
        for item in items:
            for request in source.requests(item.subject, [item]):
                if isinstance(request, Refusal):
                    return request.reason.message
    except ChoicewiseError as refused:
        return refused.message
    return ""
