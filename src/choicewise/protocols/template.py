"""Templates: plain text with named holes, filled in one pass."""

import re
from collections.abc import Mapping
from functools import lru_cache

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

    filled = []
    for text, name in _pieces(template):
        if name is None:
            filled.append(text)
        elif name in holes:
            filled.append(holes[name])
        elif name in ("{", "}"):
            raise ProtocolError(f"protocol axis {axis} has a lone {name!r}; write {name * 2!r} for a literal brace")
        else:
            known = ", ".join(f"{{{hole}}}" for hole in holes)
            raise ProtocolError(f"protocol axis {axis} has a hole {text} that nothing fills; known are {known}")
    return "".join(filled)


@lru_cache(maxsize=1024)
def _pieces(template: str) -> list[tuple[str, str | None]]:
    """(text, None) for plain text, (text, name) for a hole, and (brace, brace) for a brace that stands alone."""
    pieces: list[tuple[str, str | None]] = []
    end = 0
    for match in _PIECE.finditer(template):
        piece = match.group()
        pieces.append((template[end : match.start()], None))
        name = match.group(1) if piece not in ("{{", "}}") else None
        pieces.append((piece[0], None) if piece in ("{{", "}}") else (piece, piece if name is None else name))
        end = match.end()
    return [piece for piece in (*pieces, (template[end:], None)) if piece != ("", None)]
