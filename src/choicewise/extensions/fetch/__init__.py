"""Declare the command ``fetch``, which downloads data and models from the Hub."""

from __future__ import annotations

from choicewise.ports import Command, Extension, returns


class Fetch(Command):
    """Declare ``choicewise fetch``."""

    name = "fetch"
    summary = "Download benchmark data and models into a folder."
    app = returns("choicewise.extensions.fetch.commands:fetch")


EXTENSION = Extension("fetch", [Fetch()])
