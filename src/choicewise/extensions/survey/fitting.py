"""Find which published protocols can ask the items of a dataset."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from choicewise.data.benchmarks import ANY
from choicewise.data.dataset import Dataset
from choicewise.data.items import Item
from choicewise.errors import ChoicewiseError
from choicewise.extensions.survey.survey import Survey
from choicewise.protocols.catalogue import entries
from choicewise.protocols.protocol import Protocol
from choicewise.requests.blocks import with_split
from choicewise.requests.render import Refusal, TemplateSource
from choicewise.util.text import safe, short

_LONG = 150
"""Characters of a reason that are shown."""


def refusals_by_entry(dataset: Dataset, items: Sequence[Item]) -> dict[str, str]:
    """Return for every entry of the catalogue why its first protocol can't ask ``items``, or an
    empty text.

    A protocol may be able to ask other items than those it was published for.
    """
    reasons = {}
    for entry in entries():
        try:
            reasons[entry.name] = _first_refusal(entry.protocols[entry.headline], dataset, items)
        except ChoicewiseError as error:
            reasons[entry.name] = error.message
    return reasons


def _first_refusal(protocol: Protocol, dataset: Dataset, items: Sequence[Item]) -> str:
    source = TemplateSource(with_split(protocol, dataset), dataset)
    for item in items:
        for request in source.requests(item.subject, [item]):
            if isinstance(request, Refusal):
                return request.reason.message
    return ""


def fits(survey: Survey, refusals: Mapping[str, str]) -> list[str]:
    """Return which families of protocols can ask the items, and why protocols of the dataset's own
    benchmark can't.

    ``refusals``: protocol of the catalogue → why it can't ask them, an empty text if it can.
    """
    general_names = set()
    for entry in entries():
        if next(iter(entry.protocols.values())).benchmark == ANY:
            general_names.add(entry.name)
    general: Counter[str] = Counter()
    special: Counter[str] = Counter()
    names_of_reason: dict[str, list[str]] = {}
    for name, reason in refusals.items():
        family = name.split("/")[0]
        if not reason and name in general_names:
            general[family] += 1
        elif not reason:
            special[family] += 1
        elif _letters(family) in _letters(survey.name):
            names_of_reason.setdefault(reason, []).append(name)
    lines = []
    if general:
        lines.append(f"protocols for any dataset that fit these items: {_family_counts(general)}")
    if special:
        lines.append(
            f"protocols of benchmarks whose items have this form: {_family_counts(special)}; "
            "others run with changes in their names"
        )
    if not lines:
        lines.append("no published protocol fits these items")
    for reason, names in names_of_reason.items():
        others = f" and {len(names) - 1} more" if len(names) > 1 else ""
        lines.append(safe(f"{names[0]}{others} can't: {short(reason, _LONG)}"))
    return lines


def _family_counts(families: Counter[str]) -> str:
    return ", ".join(f"{family} ({count})" for family, count in families.items())


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, name.lower()))
