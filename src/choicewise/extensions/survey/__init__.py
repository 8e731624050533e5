"""Declare the command ``data``, which shows what a dataset holds and what to check in it."""

from __future__ import annotations

from choicewise.ports import Command, Extension, returns


class Data(Command):
    """Declare ``choicewise data``."""

    name = "data"
    summary = "Show a dataset: columns, splits, items, and fitting protocols."
    app = returns("choicewise.extensions.survey.commands:data")


EXTENSION = Extension("survey", [Data()])
