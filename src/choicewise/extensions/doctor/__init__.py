"""Declare the command ``doctor``, which finds damage in run folders."""

from __future__ import annotations

from choicewise.ports import Command, Extension, returns


class Doctor(Command):
    """Declare ``choicewise doctor``."""

    name = "doctor"
    summary = "Find damage in run folders, and drop damaged blocks."
    app = returns("choicewise.extensions.doctor.commands:doctor")


EXTENSION = Extension("doctor", [Doctor()])
