"""Declare the commands ``compare`` and ``ladder``, which compare numbers and say why they differ,
and the function ``compare``.
"""

from __future__ import annotations

from choicewise.ports import Command, Extension, returns


class Compare(Command):
    """Declare ``choicewise compare``."""

    name = "compare"
    summary = "Show whether two scores can be compared, and why they differ."
    app = returns("choicewise.extensions.comparison.commands:compare")


class Ladder(Command):
    """Declare ``choicewise ladder``."""

    name = "ladder"
    summary = "Show how a score changes between two protocols, axis by axis."
    app = returns("choicewise.extensions.comparison.commands:ladder")


EXTENSION = Extension(
    "comparison",
    [Compare(), Ladder()],
    names={"compare": "choicewise.extensions.comparison.compare"},
)
