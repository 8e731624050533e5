"""All data of several runs, opened and checked before any model is loaded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from choicewise.data.dataset import Dataset
from choicewise.data.download_bars import Download
from choicewise.errors import DataError, MissingData
from choicewise.protocols.protocol import Protocol
from choicewise.requests.askable import misfit
from choicewise.requests.blocks import list_sections
from choicewise.requests.schedule import with_split
from choicewise.running.source import Source
from choicewise.running.work import Work


@dataclass(frozen=True)
class Chosen:
    """The part of the data that is asked; the fields are those of :func:`choicewise.evaluate`."""

    subjects: tuple[str, ...] | None = None
    limit: int | None = None
    skip_bad_items: bool = False


ALL = Chosen()
"""All of the data."""


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


def open_source(source: Source, chosen: Chosen, progress: Download | None = None) -> OpenedSource:
    """The dataset of ``source``.  Raises DataError for data that are not there, and items and shots that won't do."""
    data = source.open(progress)
    named = source.protocols(data, chosen.subjects)
    left_out: dict[str, list[str]] = {}
    if source.fitting:
        for name, recipe in named.items():
            if reason := misfit(recipe, data, chosen.subjects):
                left_out.setdefault(reason, []).append(name)
        if sum(map(len, left_out.values())) == len(named):
            raise DataError("no protocol can ask it", [f"{names[0]}: {why}" for why, names in left_out.items()])
        without = {name for names in left_out.values() for name in names}
        named = {name: recipe for name, recipe in named.items() if name not in without}
    recipes = {name: with_split(recipe, data) for name, recipe in named.items()}
    sections = list_sections(data, recipes, chosen.subjects, chosen.limit)
    work = Work(data, recipes, sections, source.rendered, chosen.skip_bad_items)
    stretches = list(work.stretches())
    work.check(stretches)
    return OpenedSource(source, data, named, sum(block.work for block in work.blocks(stretches)), left_out)


def open_sources(
    sources: Sequence[Source], chosen: Chosen, progress: Download | None = None
) -> tuple[dict[str, OpenedSource], dict[str, DataError]]:
    """By name every source that can be opened, and why the others can't; ``progress`` hears of downloads."""
    opened: dict[str, OpenedSource] = {}
    failed: dict[str, DataError] = {}
    for source in sources:
        try:
            opened[source.name] = open_source(source, chosen, progress)
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


def _told(missing: Sequence[MissingData]) -> list[str]:
    return list(dict.fromkeys(part for error in missing for part in (error.message, *error.problems)))
