"""The public names for type checkers and editors, which read this file in place of ``__init__.py``."""

from choicewise.data.open import open_dataset
from choicewise.extensions.comparison.compare import compare_runs as compare
from choicewise.extensions.interop.export import export
from choicewise.extensions.interop.harness_tasks.as_protocols import load_harness_tasks
from choicewise.extensions.interop.logs.import_log import import_log
from choicewise.extensions.run.sweep import evaluate_all as sweep
from choicewise.extensions.score.score_texts import score_texts as score
from choicewise.extensions.training.bundles.answers import import_answers
from choicewise.extensions.training.bundles.bundle import open_bundle
from choicewise.extensions.training.bundles.write import write_bundle
from choicewise.extensions.training.in_loop import InLoop
from choicewise.models.load import load_model
from choicewise.page.document import write_page as page
from choicewise.requests.render import read_rendered
from choicewise.results.run import Run, open_run
from choicewise.running.evaluate import evaluate
from choicewise.running.front import climb as ladder

__all__ = [
    "InLoop",
    "Run",
    "compare",
    "evaluate",
    "export",
    "import_answers",
    "import_log",
    "ladder",
    "load_harness_tasks",
    "load_model",
    "open_bundle",
    "open_dataset",
    "open_run",
    "page",
    "read_rendered",
    "score",
    "sweep",
    "write_bundle",
]

__version__: str
