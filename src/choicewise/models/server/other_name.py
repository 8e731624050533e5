"""A server that calls its model otherwise in its answers than it is asked for."""

from __future__ import annotations

from choicewise.errors import ModelError
from choicewise.models.server.server_facts import ServerFacts


def other_name(served: ServerFacts, named: str | None) -> str:
    """What answers call the model (``named``) where that is another name of it, such as a dated one; else "".

    Raises ModelError where that is another model which the server lists: one whose weights come from elsewhere, as far
    as it says, and whose name does not begin with the one asked for, as a version's does.
    """
    if named is None or named == served.model:
        return ""
    root = served.others.get(named)
    if root is None or named.startswith(served.model) or (root and root == served.root):
        return named
    raise ModelError(
        f"the server answers with its model {named!r} when it is asked for {served.model!r}; name {named!r} if that is"
        " the one to ask, or have the other one served"
    )
