"""Registers frozen bundles of requests, and the evaluation inside a training loop."""

from __future__ import annotations

from choicewise.ports import Command, Extension, returns


class Requests(Command):
    """Declare ``choicewise requests``."""

    name = "requests"
    summary = "Write prompts as tokens, for another engine."
    app = returns("choicewise.extensions.training.commands:requests")


EXTENSION = Extension(
    "training",
    [Requests()],
    names={
        "InLoop": "choicewise.extensions.training.in_loop",
        "import_answers": "choicewise.extensions.training.bundles.answers",
        "open_bundle": "choicewise.extensions.training.bundles.bundle",
        "write_bundle": "choicewise.extensions.training.bundles.write",
    },
)
