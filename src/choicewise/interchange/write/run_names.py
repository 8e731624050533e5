"""What tables of items say of their runs: names that no two runs on the same data share, and what is not there."""

from collections import Counter
from collections.abc import Sequence

from choicewise.results.identity import run_id
from choicewise.results.run import Run


def model_names(runs: Sequence[Run]) -> list[str]:
    """The name of each run's model; with #R where another run on a dataset of that name has the same, or a number."""
    datasets = [run.manifest.dataset.name for run in runs]
    names = [run.manifest.model.name for run in runs]
    ids = [run_id(run.manifest) for run in runs]
    alike = Counter(zip(names, datasets, strict=True))
    counts = Counter(zip(names, datasets, ids, strict=True))
    chosen = []
    for place, key in enumerate(zip(names, datasets, ids, strict=True)):
        name = key[0] if alike[key[:2]] == 1 else f"{key[0]} {key[2]}"
        chosen.append(f"{name} ({place + 1})" if counts[key] > 1 else name)
    return chosen


def not_whole(runs: Sequence[Run]) -> list[str]:
    """A line per run whose items are not all there."""
    lines = [f"{run.folder} is not complete: only items that were asked are there" for run in runs]
    return [line for line, run in zip(lines, runs, strict=True) if not run.manifest.complete]
