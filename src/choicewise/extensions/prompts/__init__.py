"""Declare the command ``prompts``, which prints requests."""

from __future__ import annotations

from choicewise.ports import Command, Extension, returns


class Prompts(Command):
    """Declare ``choicewise prompts``."""

    name = "prompts"
    summary = "Print each request as a JSON line."
    app = returns("choicewise.extensions.prompts.commands:prompts")


EXTENSION = Extension("prompts", [Prompts()])
