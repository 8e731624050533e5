"""Declare the command ``explain``, which shows one item of a run."""

from __future__ import annotations

from choicewise.ports import Command, Extension, returns


class Explain(Command):
    """Declare ``choicewise explain``."""

    name = "explain"
    summary = "Show one item: its prompts, scores and decisions."
    app = returns("choicewise.extensions.explain.commands:explain")


EXTENSION = Extension("explain", [Explain()])
