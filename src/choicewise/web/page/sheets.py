"""Section F: the protocols as spec sheets: what each asks, in its own templates, and who published it."""

from collections.abc import Mapping
from dataclasses import dataclass

from choicewise.errors import ProtocolError
from choicewise.protocols.catalogue import Entry, entry
from choicewise.protocols.family import family
from choicewise.protocols.protocol import Protocol
from choicewise.protocols.readings import READINGS
from choicewise.protocols.signature import axis_differences, short_signature, signature
from choicewise.web.shown_text import shown
from choicewise.web.study import Study


@dataclass(frozen=True, slots=True)
class Variant:
    """One protocol of a sheet: how it differs from the first one there, in words of the axes."""

    name: str
    id: str
    signature: str
    differs: str


@dataclass(frozen=True, slots=True)
class Sheet:
    """Protocols that one source published together; ``entry`` is None for protocols of one's own.

    ``parts``: (what it is, the template with its white space visible), in the order in which a prompt is made of them.
    """

    name: str
    entry: Entry | None
    family: str
    reading: str
    shots: str
    parts: tuple[tuple[str, str], ...]
    variants: tuple[Variant, ...]


def sheets(study: Study) -> list[Sheet]:
    """A sheet per entry of the catalogue, and one per other protocol, in the order of the runs."""
    chosen: dict[str, dict[str, Protocol]] = {}
    published: dict[str, Entry] = {}
    for name, protocol in study.protocols.items():
        source = _source(name, protocol)
        sheet = name if source is None else source.name
        if source is not None:
            published[sheet] = source
        chosen.setdefault(sheet, {})[name] = protocol
    return [_sheet(name, own, published.get(name)) for name, own in chosen.items()]


def _source(name: str, protocol: Protocol) -> Entry | None:
    """The entry of the catalogue that has this protocol under this name."""
    try:
        known = entry(name)
    except ProtocolError:
        return None
    return known if known.protocols.get(known.published.get(name, name)) == protocol else None


def _sheet(name: str, protocols: Mapping[str, Protocol], published: Entry | None) -> Sheet:
    first = next(iter(protocols.values()))
    variants = (
        Variant(
            each,
            short_signature(protocol),
            signature(protocol),
            ", ".join(f"{axis} {_value(other)}" for axis, _, other in axis_differences(first, protocol)),
        )
        for each, protocol in protocols.items()
    )
    reading = READINGS[first.reading].about
    return Sheet(name, published, family(first), reading, _shots(first), tuple(_parts(first)), tuple(variants))


def _value(spelled: str) -> str:
    return "none" if spelled == "-" else spelled or "(empty)"


def _shots(protocol: Protocol) -> str:
    if not protocol.shots:
        return "none"
    seed = "" if protocol.seed is None else f", seed {protocol.seed}"
    return f"{protocol.shots} from {protocol.shot_split or 'nowhere'}, chosen by {protocol.sampler}{seed}"


def _parts(protocol: Protocol) -> list[tuple[str, str]]:
    if protocol.requests is not None:
        return [("rendered elsewhere", f"requests with the digest {protocol.requests}")]
    parts = [("begins with", protocol.header)]
    if protocol.shots:
        parts.append((f"each of {protocol.shots} examples", protocol.question + protocol.answer + protocol.separator))
    parts.append(("the question", protocol.question + protocol.proposal))
    if "{options}" in protocol.question:
        parts.append(("each of its options", protocol.option))
    parts.append(("what is scored", protocol.continuation))
    return [(what, shown(text)) for what, text in parts if text]
