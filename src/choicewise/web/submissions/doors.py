"""By which doors submissions and workers come in, and how much they may bring."""

import re

from choicewise.submissions.parts import LARGEST
from choicewise.web.server.door import Door
from choicewise.web.submissions.tokens import Tokens

FORM = 16_384
"""Bytes of a submission."""

MESSAGE = 65_536
"""Bytes of what a worker says."""

LISTING = 8_388_608
"""Bytes of a listing of files."""


def doors(tokens: Tokens) -> tuple[Door, ...]:
    """All of them.  Who submits shows the token in the form as well, so that there the application looks itself."""
    worker = tokens.may_work
    return (
        Door(_methods("POST"), re.compile(r"/submissions"), FORM),
        Door(_methods("GET HEAD"), re.compile(r"/submissions(\.json)?"), 0, tokens.may_follow, readers=True),
        Door(_methods("GET HEAD"), re.compile(r"/submission/[^/]+"), 0, tokens.may_follow, readers=True),
        Door(_methods("POST"), re.compile(r"/work/lease|/work/[^/]+/(renew|finish|fail)"), MESSAGE, worker),
        Door(_methods("POST"), re.compile(r"/work/[^/]+/files"), LISTING, worker),
        Door(_methods("PUT"), re.compile(r"/work/[^/]+/part/[^/]+"), LARGEST, worker),
        Door(_methods("GET HEAD"), re.compile(r"/work/[^/]+/part/[^/]+"), 0, worker),
    )


def _methods(names: str) -> frozenset[str]:
    return frozenset(names.split())
