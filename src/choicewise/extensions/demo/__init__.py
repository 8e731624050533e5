"""Declare the command ``demo``, which scores the bundled models on the bundled questions."""

from __future__ import annotations

from choicewise.ports import Command, Extension, returns


class Demo(Command):
    """Declare ``choicewise demo``."""

    name = "demo"
    summary = "Score the bundled models on the bundled questions."
    app = returns("choicewise.extensions.demo.commands:demo")


EXTENSION = Extension("demo", [Demo()])
