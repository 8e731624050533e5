"""Names as part of an address or a file name: readable, never equal for different names, never a path."""

import hashlib
import re

_LONGEST = 48
_OTHER = re.compile(r"[^A-Za-z0-9._-]+")


def slug(name: str) -> str:
    """``name`` in letters, digits, dots and hyphens, and eight hex digits of its sha256."""
    readable = _OTHER.sub("-", name[: 2 * _LONGEST]).strip("-.")[:_LONGEST] or "unnamed"
    return f"{readable}-{short(name)}"


def short(*parts: str, digits: int = 8) -> str:
    """The first hex digits of the sha256 over ``parts``."""
    digest = hashlib.sha256()
    for part in parts:
        encoded = part.encode(errors="surrogatepass")
        digest.update(len(encoded).to_bytes(8, "big") + encoded)
    return digest.hexdigest()[:digits]
