"""Scores while a model is trained.

Frozen bundles of requests, the evaluation inside a training loop, and callbacks of trainers.
"""

from choicewise.ports import Extension

EXTENSION = Extension(
    "training",
    [],
    names={
        "InLoop": "choicewise.extensions.training.in_loop",
        "import_answers": "choicewise.extensions.training.bundles.answers",
        "open_bundle": "choicewise.extensions.training.bundles.bundle",
        "write_bundle": "choicewise.extensions.training.bundles.write",
    },
)
