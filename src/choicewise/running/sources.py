"""Where the questions of a job come from: datasets with the protocols that they are asked under."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from choicewise.data.benchmarks import ANY, benchmark, local_folder, open_benchmark
from choicewise.data.dataset import Columns, Dataset
from choicewise.data.hub import DATASET, Download, commit_of
from choicewise.data.open import dataset_name, open_dataset
from choicewise.errors import DataError, MissingData, UsageError
from choicewise.protocols.between import MARK
from choicewise.protocols.catalogue import resolve, suite, suite_names
from choicewise.protocols.protocol import Protocol
from choicewise.protocols.signature import signature
from choicewise.requests.blocks import has_shots, list_sections, misfit, with_split
from choicewise.requests.render import RenderedRequests
from choicewise.running.job import Job, state_of
from choicewise.running.work import Work


@dataclass(frozen=True)
class Source:
    """A dataset that is not opened yet.

    ``selectors`` are resolved as ``recipes``, which name this dataset.  ``benchmark``: whose data they are; None where
    ``path`` stands for all that the selectors name.  ``path``: where the data lie, None for the benchmark's own;
    ``columns``: what their columns mean, where that is declared.  ``fitting``: protocols that can't ask what the data
    hold are left out.
    """

    selectors: tuple[str, ...]
    benchmark: str | None
    path: str | None = None
    columns: Columns | None = None
    on_bad_item: str = "error"
    fitting: bool = False
    recipes: Mapping[str, Protocol] = field(default_factory=dict, repr=False)

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
        if not any(MARK in selector for selector in self.selectors):
            return dict(self.recipes)
        return _about(self.benchmark, resolve(*self.selectors, possible=partial(has_shots, data, subjects)))

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
        if self.path is not None:  # the files on this machine, or the commit on the Hub
            on_hub = dataset_name(self.path)
            state: object = state_of(Path(self.path)) if on_hub is None else commit_of(on_hub, DATASET)
        else:
            folder = local_folder(self.name)
            state = benchmark(self.name).revision if folder is None else state_of(folder)
        spelled = {name: signature(recipe) for name, recipe in self.recipes.items()}
        content = [spelled, self.path, repr(self.columns), self.on_bad_item, state]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def sources_of(job: Job, selectors: Sequence[str] | None = None, fitting: bool = False) -> list[Source]:
    """The datasets of ``job``: its own that name no benchmark, or else the benchmarks', its own in their place.

    ``selectors``: those of its protocols that the catalogue knows; ``fitting``: as of the source.  The catalogue
    resolves them here, once.  Raises UsageError, ProtocolError, and DataError for a benchmark that nothing is known of.
    """
    own, data = tuple(job.protocols if selectors is None else selectors), job.data or ()
    recipes = resolve(*own)
    named = {each.benchmark: each for each in data if each.benchmark is not None}
    alone = [each for each in data if each.benchmark is None]
    if named and alone:
        raise UsageError(f"data: {alone[0].path} says no benchmark and others do; say it of all or of none")
    if alone and not own:
        raise UsageError(f"data: every protocol has data of its own, and {alone[0].path} is asked by none")
    if alone:
        for name in own:
            if name in suite_names() and len(parts := suite(name).parts) > 1:
                asked = ", ".join(part.benchmark for part in parts)
                raise UsageError(f"{name} asks {asked}, and one dataset was named for all of them; leave it out")
        return [Source(own, None, each.path, each.columns, job.on_bad_item, fitting, recipes) for each in alone]
    if homeless := [name for name, recipe in recipes.items() if recipe.benchmark == ANY]:
        raise UsageError(f"{homeless[0]} fits every dataset and has none of its own; name the data")
    sources = []
    for name in dict.fromkeys(benchmark(recipe.benchmark).name for recipe in recipes.values()):
        place = named.pop(name, None)
        path, columns = (None, None) if place is None else (place.path, place.columns)
        sources.append(Source(own, name, path, columns, job.on_bad_item, recipes=_about(name, recipes)))
    if named:
        asked = ", ".join(each.name for each in sources)
        raise UsageError(f"data: no protocol asks {min(named)}; they ask {asked}")
    return sources


@dataclass(frozen=True)
class OpenedSource:
    """A dataset and what it is asked.  ``work``: as of :attr:`choicewise.requests.blocks.Block.work`.

    ``left_out``: why protocols can't ask it, each reason with their names.
    """

    source: Source
    data: Dataset
    protocols: Mapping[str, Protocol]
    work: int
    left_out: Mapping[str, Sequence[str]] = field(default_factory=dict)


def open_source(source: Source, job: Job, progress: Download | None = None, measured: bool = True) -> OpenedSource:
    """The dataset of ``source``.  Raises DataError for data that are not there, and items and shots that won't do.

    Unless ``measured``, items and shots are not looked at, and the work counts as 1.
    """
    data = source.open(progress)
    named = source.protocols(data, job.subjects)
    left_out: dict[str, list[str]] = {}
    if source.fitting:
        for name, recipe in named.items():
            if reason := misfit(recipe, data, job.subjects):
                left_out.setdefault(reason, []).append(name)
        if sum(map(len, left_out.values())) == len(named):
            raise DataError("no protocol can ask it", [f"{names[0]}: {why}" for why, names in left_out.items()])
        without = {name for names in left_out.values() for name in names}
        named = {name: recipe for name, recipe in named.items() if name not in without}
    if not measured:
        return OpenedSource(source, data, named, 1, left_out)
    recipes = {name: with_split(recipe, data) for name, recipe in named.items()}
    sections = list_sections(data, recipes, job.subjects, job.limit)
    work = Work(data, recipes, sections, source.rendered, job.chosen["skip_bad_items"])
    stretches = list(work.stretches())
    work.check(stretches)
    return OpenedSource(source, data, named, sum(block.work for block in work.blocks(stretches)), left_out)


def open_all(
    sources: Sequence[Source], job: Job, progress: Download | None = None, measured: bool = True
) -> tuple[dict[str, OpenedSource], dict[str, DataError]]:
    """By name every source that can be opened, and why the others can't; arguments as of :func:`open_source`."""
    opened: dict[str, OpenedSource] = {}
    failed: dict[str, DataError] = {}
    for source in sources:
        try:
            opened[source.name] = open_source(source, job, progress, measured)
        except DataError as error:
            failed[source.name] = error
    return opened, failed


def refuse(failed: Mapping[str, DataError], without_missing: bool = False) -> None:
    """Raise what is wrong with the data of several benchmarks, all at once; nothing where nothing is.

    ``without_missing``: data that are nowhere are no error.
    """
    missing = [error for error in failed.values() if isinstance(error, MissingData)]
    wrong = [error for error in failed.values() if not isinstance(error, MissingData)]
    if wrong:
        if len(wrong) == 1:
            raise wrong[0]
        lines = [line for error in wrong for line in (error.message, *(f"  {part}" for part in error.problems))]
        raise DataError(f"the questions of {len(wrong)} benchmarks can't be used", lines)
    if missing and not without_missing:
        names = [name for error in missing for name in error.benchmarks]
        if len(missing) == 1:
            raise missing[0]
        raise MissingData(f"the questions of {len(names)} benchmarks are nowhere", [*_told(missing)], names)


def _about(benchmark: str | None, recipes: Mapping[str, Protocol]) -> dict[str, Protocol]:
    return {name: recipe for name, recipe in recipes.items() if benchmark in (None, recipe.benchmark)}


def _told(missing: Sequence[MissingData]) -> list[str]:
    return list(dict.fromkeys(part for error in missing for part in (error.message, *error.problems)))
