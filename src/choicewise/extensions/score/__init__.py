"""Declare the command ``score``, which scores texts, and the function of that name."""

from __future__ import annotations

from choicewise.ports import Command, Extension, returns


class Score(Command):
    """Declare ``choicewise score``."""

    name = "score"
    summary = "Score each choice as a continuation of the context."
    app = returns("choicewise.extensions.score.commands:score")


EXTENSION = Extension(
    "score", [Score()], names={"score": "choicewise.extensions.score.score_texts"}
)
