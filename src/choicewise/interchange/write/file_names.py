"""Names of files and folders made of names of models, data and protocols, which may hold anything."""

import hashlib
import re
from collections.abc import Collection

LONGEST = 120
"""Bytes of a name, so that what is put around it fits into the 255 that file systems allow."""

_RESERVED = {
    "con",
    "prn",
    "aux",
    "nul",
    "data",
    *(f"{port}{number}" for port in ("com", "lpt") for number in range(10)),
}
"""Names that a folder can't have everywhere, or that a data store keeps for itself."""


def file_name(text: str) -> str:
    """``text`` as one part of a path that every system takes: letters, digits, ``_``, ``.``, ``@`` and ``-``.

    Anything else becomes ``-``.  A longer name ends in a digest of the text.
    """
    name = re.sub(r"[^\w.@-]+", "-", text).strip(".-") or "unnamed"
    if name.partition(".")[0].lower() in _RESERVED:
        name = f"{name}-"
    encoded = name.encode()
    if len(encoded) <= LONGEST:
        return name
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{encoded[: LONGEST - 9].decode(errors='ignore')}-{digest}"


def free_name(name: str, taken: Collection[str], identity: str) -> str:
    """``name`` where it is not ``taken``, else with what tells the two apart after it, and a number where that is, too.

    Names that differ in the case of their letters alone are the same file on some systems.
    """
    used = {each.casefold() for each in taken}
    candidates = [name, f"{name}-{identity}", *(f"{name}-{identity}-{number}" for number in range(2, len(used) + 3))]
    return next(each for each in candidates if each.casefold() not in used)
