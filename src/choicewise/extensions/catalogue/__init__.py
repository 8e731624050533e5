"""Declare the command ``protocols``, which shows the catalogue of published protocols."""

from __future__ import annotations

from choicewise.ports import Command, Extension, returns


class Protocols(Command):
    """Declare ``choicewise protocols``."""

    name = "protocols"
    summary = "List the published protocols; show one; compare two."
    app = returns("choicewise.extensions.catalogue.commands:protocols")


EXTENSION = Extension("catalogue", [Protocols()])
