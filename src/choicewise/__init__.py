"""Choicewise: what a language model scores on multiple-choice questions, under every published protocol.

The public names are loaded when they are first used: importing the package loads neither torch nor pyarrow.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from choicewise.data.open_dataset import open_dataset as open_dataset
    from choicewise.interchange.export import export as export
    from choicewise.interchange.logs.import_log import import_log as import_log
    from choicewise.interchange.tasks.harness_task import load_harness_tasks as load_harness_tasks
    from choicewise.models.load import load_model as load_model
    from choicewise.requests.rendered import read_rendered as read_rendered
    from choicewise.results.run import Run as Run
    from choicewise.results.run import open_run as open_run
    from choicewise.running.evaluate import evaluate as evaluate
    from choicewise.running.score_texts import score_texts as score

_HOMES = {
    "Run": ("choicewise.results.run", "Run"),
    "evaluate": ("choicewise.running.evaluate", "evaluate"),
    "export": ("choicewise.interchange.export", "export"),
    "import_log": ("choicewise.interchange.logs.import_log", "import_log"),
    "load_harness_tasks": ("choicewise.interchange.tasks.harness_task", "load_harness_tasks"),
    "load_model": ("choicewise.models.load", "load_model"),
    "open_dataset": ("choicewise.data.open_dataset", "open_dataset"),
    "open_run": ("choicewise.results.run", "open_run"),
    "read_rendered": ("choicewise.requests.rendered", "read_rendered"),
    "score": ("choicewise.running.score_texts", "score_texts"),
}
"""Public name → its module and its name there."""

__all__ = [
    "Run",
    "evaluate",
    "export",
    "import_log",
    "load_harness_tasks",
    "load_model",
    "open_dataset",
    "open_run",
    "read_rendered",
    "score",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'choicewise' has no attribute {name!r}")
    module, attribute = _HOMES[name]
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
