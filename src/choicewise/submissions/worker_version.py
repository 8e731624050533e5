"""Whether a worker's Choicewise makes the runs that a board's Choicewise expects."""

from choicewise import __version__
from choicewise.errors import UsageError


def check_worker_version(version: str) -> None:
    """UsageError for a worker of another major ``version`` than the board's, or of none: its runs may differ."""
    own = __version__.partition(".")[0]
    if version.partition(".")[0] == own:
        return
    said = f"runs Choicewise {version[:40]}" if version else "does not say which Choicewise it runs"
    raise UsageError(
        f"this worker {said}, and the board runs {__version__}: runs of another major version may differ; on the worker"
        f" run: pip install 'choicewise[work]=={own}.*'"
    )
