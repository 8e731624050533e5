"""Where the questions of a run come from, and under which protocols they are asked."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from choicewise.data.benchmark import ANY, benchmark
from choicewise.data.columns import Columns
from choicewise.data.dataset import Dataset
from choicewise.data.download_bars import Download
from choicewise.data.hub import commit_of
from choicewise.data.hub_errors import DATASET
from choicewise.data.open_benchmark import local_folder, open_benchmark
from choicewise.data.open_dataset import dataset_name, open_dataset
from choicewise.errors import UsageError
from choicewise.protocols.catalogue import resolve, suite
from choicewise.protocols.protocol import Protocol
from choicewise.protocols.signature import signature
from choicewise.protocols.suites import suite_names
from choicewise.requests.rendered import RenderedRequests
from choicewise.requests.schedule import has_shots


@dataclass(frozen=True)
class Source:
    """A dataset that is not opened yet.

    ``selectors``: what the catalogue resolves.  ``benchmark``: only protocols of this one are asked; None for all that
    the selectors name.  ``path``: where the data lie, None for the benchmark's own; ``columns``: what their columns
    mean, where that is declared.  ``fitting``: protocols that can't ask what the data hold are left out.
    """

    selectors: tuple[str, ...]
    benchmark: str | None
    path: str | None = None
    columns: Columns | None = None
    on_bad_item: str = "error"
    fitting: bool = False

    @property
    def name(self) -> str:
        """The benchmark, or where the data lie."""
        return self.benchmark or self.path or ""

    def open(self, progress: Download | None = None) -> Dataset:
        """The dataset; ``progress`` hears of a download.

        Raises DataError where it is not there, or a row can't be used.
        """
        if self.path is None:
            return open_benchmark(self.name, on_bad_item=self.on_bad_item, progress=progress)
        return open_dataset(self.path, on_bad_item=self.on_bad_item, columns=self.columns, progress=progress)

    def protocols(self, data: Dataset, subjects: Sequence[str] | None = None) -> dict[str, Protocol]:
        """What ``data`` is asked under; ways between protocols pass by what it has no shots for."""
        return self._own(resolve(*self.selectors, possible=partial(has_shots, data, subjects)))

    @property
    def include(self) -> Sequence[str]:
        """Folders of further files that say what is asked."""
        return ()

    @property
    def allow_code(self) -> bool:
        """Whether code that those files name may run."""
        return False

    @property
    def rendered(self) -> Sequence[RenderedRequests]:
        """The requests of protocols that were rendered elsewhere, once the dataset is open."""
        return ()

    @property
    def notes(self) -> Sequence[str]:
        """What the user should know of the dataset, once it is open."""
        return ()

    @property
    def asked(self) -> str:
        """A digest of the protocols, and of where the data lie, with the sizes and times of their files."""
        recipes = self._own(resolve(*self.selectors))
        spelled = {name: signature(recipe) for name, recipe in recipes.items()}
        content = [spelled, self.path, repr(self.columns), self.on_bad_item, self._state]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    @property
    def _state(self) -> object:
        """What changes when the data become others: files on this machine, or the commit on the Hub."""
        if self.path is not None:
            on_hub = dataset_name(self.path)
            return state_of(Path(self.path)) if on_hub is None else commit_of(on_hub, DATASET)
        folder = local_folder(self.name)
        return benchmark(self.name).revision if folder is None else state_of(folder)

    def _own(self, recipes: Mapping[str, Protocol]) -> dict[str, Protocol]:
        if self.benchmark is None:
            return dict(recipes)
        return {name: recipe for name, recipe in recipes.items() if recipe.benchmark == self.benchmark}


def benchmark_sources(selectors: Sequence[str], on_bad_item: str = "error") -> list[Source]:
    """The benchmarks' own data that the protocols name, in their order.

    Raises UsageError for protocols that fit every dataset, and so name none; DataError for a benchmark that nothing is
    known of.
    """
    recipes = resolve(*selectors)
    if homeless := [name for name, recipe in recipes.items() if recipe.benchmark == ANY]:
        raise UsageError(f"{homeless[0]} fits every dataset and has none of its own; name the data")
    names = [benchmark(name).name for name in dict.fromkeys(recipe.benchmark for recipe in recipes.values())]
    return [Source(tuple(selectors), name, on_bad_item=on_bad_item) for name in names]


def refuse_one_dataset(selectors: Sequence[str]) -> None:
    """UsageError for a suite of several benchmarks, which no single dataset can be."""
    for selector in selectors:
        if selector in suite_names() and len(parts := suite(selector).parts) > 1:
            names = ", ".join(part.benchmark for part in parts)
            raise UsageError(f"{selector} asks {names}, and one dataset was named for all of them; leave it out")


def state_of(path: Path) -> list[tuple[str, int, int]]:
    """The name, size (bytes) and time (ns) of every file in the folder, or beside the file, at ``path``, in order."""
    return sorted(_states(path))


def _states(path: Path) -> Iterator[tuple[str, int, int]]:
    files = path.rglob("*") if path.is_dir() else path.parent.glob("*") if path.exists() else ()
    for file in files:
        if file.is_file():
            state = file.stat()
            yield str(file), state.st_size, state.st_mtime_ns
