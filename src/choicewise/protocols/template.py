"""Templates: plain text with named holes, filled in one pass."""

import re
from collections.abc import Mapping

from choicewise.errors import ProtocolError

_PIECE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


def holes(template: str) -> frozenset[str]:
    """The names of the holes in ``template``."""
    return frozenset(match[1] for match in _PIECE.finditer(template) if match[1] is not None)


def fill(template: str, holes: Mapping[str, str], *, axis: str = "template") -> str:
    """``template`` with every ``{name}`` replaced by ``holes[name]`` and ``{{``, ``}}`` by one brace.

    Text that is filled in is never read again, even if it holds braces.  Raises ProtocolError, naming ``axis``, when
    a hole is unknown or a brace stands alone.
    """

    def replacement(match: re.Match[str]) -> str:
        piece, name = match.group(), match.group(1)
        if piece in ("{{", "}}"):
            return piece[0]
        if name is None:
            raise ProtocolError(f"protocol axis {axis} has a lone {piece!r}; write {piece * 2!r} for a literal brace")
        if name not in holes:
            known = ", ".join(f"{{{hole}}}" for hole in holes)
            raise ProtocolError(f"protocol axis {axis} has a hole {piece} that nothing fills; known are {known}")
        return holes[name]

    return _PIECE.sub(replacement, template)
