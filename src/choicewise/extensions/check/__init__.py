"""Declare the command ``check``, which measures the numeric noise of a model."""

from __future__ import annotations

from choicewise.ports import Command, Extension, returns


class Check(Command):
    """Declare ``choicewise check``."""

    name = "check"
    summary = "Measure a model's numeric noise."
    app = returns("choicewise.extensions.check.commands:check")


EXTENSION = Extension("check", [Check()])
