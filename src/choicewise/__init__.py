"""Choicewise: what a language model scores on multiple-choice questions, under every published protocol.

The public names are loaded when they are first used: importing the package loads neither torch nor pyarrow.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from choicewise.data.open import open_dataset as open_dataset
    from choicewise.extensions.interop.export import export as export
    from choicewise.extensions.interop.harness_tasks.as_protocols import load_harness_tasks as load_harness_tasks
    from choicewise.extensions.interop.logs.import_log import import_log as import_log
    from choicewise.extensions.training.bundles.answers import import_answers as import_answers
    from choicewise.extensions.training.bundles.bundle import open_bundle as open_bundle
    from choicewise.extensions.training.bundles.write import write_bundle as write_bundle
    from choicewise.extensions.training.in_loop import InLoop as InLoop
    from choicewise.models.load import load_model as load_model
    from choicewise.page.charts.chart import Chart
    from choicewise.requests.render import read_rendered as read_rendered
    from choicewise.results.run import Run as Run
    from choicewise.results.run import open_run as open_run
    from choicewise.running.evaluate import evaluate as evaluate
    from choicewise.running.score_texts import score_texts as score  # noqa: F401

_HOMES = {
    "InLoop": "choicewise.extensions.training.in_loop",
    "Run": "choicewise.results.run",
    "evaluate": "choicewise.running.evaluate",
    "export": "choicewise.extensions.interop.export",
    "import_answers": "choicewise.extensions.training.bundles.answers",
    "import_log": "choicewise.extensions.interop.logs.import_log",
    "load_harness_tasks": "choicewise.extensions.interop.harness_tasks.as_protocols",
    "load_model": "choicewise.models.load",
    "open_bundle": "choicewise.extensions.training.bundles.bundle",
    "open_dataset": "choicewise.data.open",
    "open_run": "choicewise.results.run",
    "read_rendered": "choicewise.requests.render",
    "score": "choicewise.running.score_texts",
    "write_bundle": "choicewise.extensions.training.bundles.write",
}
"""Public name → its module."""

__all__ = list(_HOMES)

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'choicewise' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), "score_texts" if name == "score" else name)
    if name in ("Run", "evaluate", "import_answers", "import_log", "open_run"):
        import_module("choicewise.results.run").Run.chart = _chart
    return value


def _chart(run: "Run", name: str, *beside: "Run", **choices: Any) -> "Chart":
    """A chart that a notebook shows: ``strip``, ``ladder``, ``effects``, ``bump``, ``ranks`` or ``pair``.

    ``beside``: runs of other models.  ``choices``: ``models`` (names), ``start`` and ``end`` (protocols of a ladder),
    ``protocol``, ``rank``, ``width``.  Raises UsageError for a chart that the runs can't give.
    """
    from choicewise.page.charts.kinds import draw
    from choicewise.page.study import study_of

    return draw(name, study_of([run, *beside]), **choices)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
