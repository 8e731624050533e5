"""Declare the commands ``run`` and ``sweep``, which evaluate models into run folders, and the
function ``choicewise.sweep``.
"""

from __future__ import annotations

from choicewise.ports import Command, Extension, returns


class Run(Command):
    """Declare ``choicewise run``."""

    name = "run"
    summary = "Score a model on a dataset under every named protocol."
    app = returns("choicewise.extensions.run.commands:run")


class Sweep(Command):
    """Declare ``choicewise sweep``."""

    name = "sweep"
    summary = "Score several models under protocols and suites."
    app = returns("choicewise.extensions.run.commands:sweep")


EXTENSION = Extension("run", [Run(), Sweep()], names={"sweep": "choicewise.extensions.run.sweep"})
