"""Choicewise: what a language model scores on multiple-choice questions, under every published protocol.

The public names are loaded when they are first used: importing the package loads neither torch nor pyarrow.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from choicewise.data.open import open_dataset as open_dataset
    from choicewise.evaluation import evaluate as evaluate
    from choicewise.models.load import load_model as load_model
    from choicewise.question import score as score
    from choicewise.run import Run as Run
    from choicewise.run import open_run as open_run

_HOMES = {
    "Run": "choicewise.run",
    "evaluate": "choicewise.evaluation",
    "load_model": "choicewise.models.load",
    "open_dataset": "choicewise.data.open",
    "open_run": "choicewise.run",
    "score": "choicewise.question",
}

__all__ = ["Run", "evaluate", "load_model", "open_dataset", "open_run", "score"]
__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'choicewise' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
