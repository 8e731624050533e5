"""Choicewise: what a language model scores on multiple-choice questions, under every published
protocol.

The public names are loaded when they are first used: importing the package loads neither torch nor
pyarrow.  Type checkers read them in ``__init__.pyi``.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from choicewise.page.charts.chart import Chart
    from choicewise.results.run import Run

_KERNEL = {
    "Run": "choicewise.results.run",
    "evaluate": "choicewise.running.evaluate",
    "ladder": "choicewise.running.front",
    "load_model": "choicewise.models.load",
    "open_dataset": "choicewise.data.open",
    "open_run": "choicewise.results.run",
    "page": "choicewise.page.document",
    "read_rendered": "choicewise.requests.render",
}
"""Public name of the kernel → its module."""

_FUNCTIONS = {
    "compare": "compare_runs",
    "ladder": "climb",
    "page": "write_page",
    "score": "score_texts",
    "sweep": "evaluate_all",
}
"""Public name → the name in its module, if that differs."""

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    if name == "__all__":
        return list(_modules())
    module = _KERNEL.get(name) or _modules().get(name)
    if module is None:
        raise AttributeError(f"module 'choicewise' has no attribute {name!r}")
    value = getattr(import_module(module), _FUNCTIONS.get(name, name))
    # The kernel's runs do not import charts; a run gets its method when both are loaded.
    if "choicewise.results.run" in sys.modules:
        import_module("choicewise.results.run").Run.chart = _chart
    return value


def _modules() -> dict[str, str]:
    """Return the module of every public name: those of the kernel, and of the extensions that come
    with it.
    """
    from choicewise.ports import built_in_extensions

    modules = dict(_KERNEL)
    for extension in built_in_extensions():
        modules.update(extension.names or {})
    return modules


def _chart(run: "Run", name: str, *beside: "Run", **choices: Any) -> "Chart":
    """Draw a chart for a notebook: ``strip``, ``ladder``, ``effects``, ``bump``, ``ranks`` or
    ``pair``.

    ``beside``: runs of other models.  ``choices``: ``models`` (names), ``start`` and ``end``
    (protocols of a ladder), ``protocol``, ``rank``, ``width``.  Raises UsageError for a chart that
    can't be drawn from the runs.
    """
    from choicewise.page.charts.kinds import draw
    from choicewise.page.study import study_of

    return draw(name, study_of([run, *beside]), **choices)


def __dir__() -> list[str]:
    return sorted([*globals(), *_modules()])
