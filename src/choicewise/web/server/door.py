"""Requests that a board takes content with, or that another token than the readers' opens."""

import re
from collections.abc import Callable
from dataclasses import dataclass

Knows = Callable[[str | None], bool]
"""Whether a token opens something."""


@dataclass(frozen=True, slots=True)
class Door:
    """Requests by one of ``methods`` for a path that ``path`` matches, with at most ``largest`` bytes of content.

    ``knows``: what the bearer's token must be; None where the application looks itself.  ``readers``: whether those who
    may read the board may come in as well.
    """

    methods: frozenset[str]
    path: re.Pattern[str]
    largest: int = 0
    knows: Knows | None = None
    readers: bool = False

    def fits(self, method: str, path: str) -> bool:
        """Whether a request comes by this door."""
        return method in self.methods and self.path.fullmatch(path) is not None


class TooLarge(Exception):
    """More content came than a door lets in."""
