"""The protocols between two: all that lie on the path from one to the other, in both directions, by name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from choicewise.protocols.path import Possible, path
from choicewise.protocols.protocol import Protocol

MARK = ".."
"""Between the two ends, as in ``mmlu/original..mmlu/helm``."""


@dataclass(frozen=True, slots=True)
class End:
    """A protocol with its ``name``, and what it is called in the names of protocols between."""

    name: str
    protocol: Protocol
    label: str


def ends(selector: str, known: Callable[[str], bool]) -> tuple[str, str] | None:
    """What stands on either side of the mark, where both are ``known``; None in any other text.

    Paths (``../mine.toml``) and the templates of signatures may hold the mark as well.
    """
    for place in range(1, len(selector) - len(MARK)):
        if selector.startswith(MARK, place):
            left, right = selector[:place], selector[place + len(MARK) :]
            if known(left) and known(right):
                return left, right
    return None


def way(
    start: End, end: End, names: Mapping[Protocol, str], possible: Possible = lambda protocol: True
) -> list[tuple[str, Protocol]]:
    """``start``, the protocols on the path from it to ``end``, and ``end``, each with its name.

    Those between are called ``START..END:axis`` after the first axis that changes to them, or as in ``names``.  A split
    that only one of the two names is that of both.  ``possible``: as in :func:`~.path.path`.
    """
    split = start.protocol.split or end.protocol.split
    first, last = (replace(each.protocol, split=each.protocol.split or split) for each in (start, end))
    steps = path(first, last, possible)[:-1]
    called = f"{start.label}{MARK}{end.label}"
    between = [(names.get(protocol, f"{called}:{axes[0]}"), protocol) for axes, protocol in steps]
    return [(start.name, start.protocol), *between, (end.name, end.protocol)]


def protocols_between(
    start: End, end: End, names: Mapping[Protocol, str], possible: Possible = lambda protocol: True
) -> dict[str, Protocol]:
    """Every protocol on the ways from ``start`` to ``end`` and from ``end`` to ``start``, once each, the ends first."""
    known = {start.protocol: start.name, end.protocol: end.name}
    for name, protocol in (*way(start, end, names, possible), *way(end, start, names, possible)):
        known.setdefault(protocol, name)
    return {name: protocol for protocol, name in known.items()}
