"""The fewest names that mean the protocols of a run, for the line that asks them again."""

from collections.abc import Mapping

from choicewise.protocols.catalogue import entries, groups
from choicewise.protocols.signature import parse_signature, signature


def selectors(protocols: Mapping[str, str]) -> list[str]:
    """Names of groups, entries and protocols that together mean ``protocols`` (name → signature); signatures of those
    that the catalogue does not have."""
    parsed = {name: parse_signature(text) for name, text in protocols.items()}
    left, chosen = dict(parsed), list[str]()
    meanings = [
        (name, [pair for entry in members for pair in entry.protocols.items()]) for name, members in groups().items()
    ]
    meanings += [(entry.name, list(entry.protocols.items())) for entry in entries()]
    for name, meant in sorted(meanings, key=lambda each: -len(each[1])):
        if all(parsed.get(one) == protocol for one, protocol in meant) and any(one in left for one, _ in meant):
            chosen.append(name)
            left = {one: protocol for one, protocol in left.items() if one not in dict(meant)}
    known = {name: protocol for entry in entries() for name, protocol in entry.protocols.items()}
    return chosen + [name if known.get(name) == protocol else signature(protocol) for name, protocol in left.items()]
