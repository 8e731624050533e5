"""What is evaluated: datasets, protocols, models of a job (resolve() called ONCE)."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

from choicewise.data.benchmarks import ANY, benchmark, local_folder, open_benchmark
from choicewise.data.dataset import Columns, Dataset
from choicewise.data.hub import DATASET, MODEL, Download, commit_of, hub_name
from choicewise.data.open import dataset_name, open_dataset
from choicewise.errors import DataError, MissingData, ModelError, ProtocolError, UsageError, did_you_mean
from choicewise.models.load import load_model
from choicewise.models.model import Model
from choicewise.models.server.address import PREFIX as SERVED
from choicewise.protocols.catalogue import in_chat, resolve, suite, suite_names
from choicewise.protocols.protocol import COUNTING, Protocol
from choicewise.protocols.readings import READINGS, supported_readings
from choicewise.protocols.signature import signature
from choicewise.requests.ask import ASKERS, ChoiceAsker, Form, comparable
from choicewise.requests.blocks import has_shots, list_sections, misfit, with_split
from choicewise.requests.prepared import ChoiceGroup, NullGroup
from choicewise.requests.render import RenderedRequests
from choicewise.running.work import Work
from choicewise.tokens.boundary import ChoiceQuestion, choice_questions_batch
from choicewise.tokens.byte_coverings import TokenQuestion
from choicewise.tokens.encode import Encodings


@dataclass(frozen=True)
class Chosen:
    """The part of the data that is asked; the fields are those of :func:`choicewise.evaluate`."""

    subjects: tuple[str, ...] | None = None
    limit: int | None = None
    skip_bad_items: bool = False


ALL = Chosen()
"""All of the data."""


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


LONGEST = 100
"""Characters of a folder's name; file systems take 255 bytes, and tools add to it."""

_DEVICES = {"CON", "PRN", "AUX", "NUL", *(f"{port}{number}" for port in ("COM", "LPT") for number in range(1, 10))}
"""What no file can be called on Windows, whatever follows a dot."""


@dataclass(frozen=True)
class SweepModel:
    """``name``: as :func:`choicewise.load_model` takes it, and ``options`` its further arguments that were given.

    ``chat`` and ``system``: as :func:`choicewise.protocols.catalogue.in_chat` takes them.  ``memory``: bytes that it
    needs where it computes, if somebody said so; it changes no number.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    chat: str | None = None
    system: str | None = None
    memory: int | None = field(default=None, compare=False)

    @property
    def label(self) -> str:
        """The name, and the options where there are any: no two models of a sweep have the same."""
        spoken = {"chat": self.chat, "system": self.system}
        given = {**self.options, **{key: value for key, value in spoken.items() if value is not None}}
        return ", ".join([self.name, *(f"{key} {value}" for key, value in given.items())])

    @property
    def folder(self) -> str:
        """What the folder of its runs is called, where that is not taken."""
        last = Path(self.name).resolve().name if os.path.isdir(self.name) else self.name
        if last.startswith(SERVED):
            last = last.rpartition("#")[2].removeprefix(SERVED)
        return folder_name(last)

    @property
    def state(self) -> object:
        """What changes when the model of that name becomes another: its files, or its commit on the Hub."""
        on_hub = None if os.path.exists(self.name) else hub_name(self.name)
        commit = None if on_hub is None else commit_of(on_hub, MODEL)
        folders = [Path(name) for name in (self.name, self.options.get("adapter")) if name and os.path.isdir(name)]
        return self.label, [state_of(folder) for folder in folders], commit

    def asked(self, protocols: Mapping[str, Protocol]) -> dict[str, Protocol]:
        """The protocols as this model is asked: in a chat where that is wanted."""
        return in_chat(protocols, self.chat, self.system)

    def load(self, progress: Download | None = None, say: Callable[[str], None] = lambda line: None) -> Model:
        """The model; ``progress`` hears of a download, and ``say`` of waits for a server.  Raises ModelError."""
        return load_model(self.name, progress=progress, say=say, **self.options)


def folder_name(name: str) -> str:
    """``name`` as a folder: letters, digits, dots, hyphens, underscores and at signs, at most ``LONGEST`` of them.

    No system takes it for a path, an option or a device.
    """
    plain = re.sub(r"[^\w.@+-]+", "-", name, flags=re.ASCII).strip("-.") or "unnamed"
    if len(plain) > LONGEST:
        plain = f"{plain[: LONGEST - 9]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return f"_{plain}" if plain.partition(".")[0].upper() in _DEVICES else plain


def free_name(name: str, taken: Iterable[str]) -> str:
    """``name``, with a number where it is taken; names that differ in their case alone are one on some disks."""
    used, number, free = {each.casefold() for each in taken}, 2, name
    while free.casefold() in used:
        free, number = f"{name}-{number}", number + 1
    return free


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


OF_TEXTS = ("loglikelihood", "pseudo-loglikelihood", "pseudo-loglikelihood-within-word", "encoder-decoder")
"""Readings that score one text after another; of those that a model can be asked with, the first is its default."""


class AskedText(NamedTuple):
    """A choice and what the model is asked about it; None where it is missing."""

    choice: ChoiceQuestion
    question: TokenQuestion | None


@dataclass(frozen=True, slots=True)
class TextReading:
    """A way to ask ``model`` about texts: a reading by its ``name``, and a boundary policy that it takes."""

    model: Model
    name: str
    boundary: str
    form: Form
    encodings: Encodings

    @classmethod
    def of(cls, model: Model, reading: str | None, boundary: str | None) -> TextReading:
        """The reading of that name, or the model's default, with the boundary or the first that the reading takes.

        Raises ProtocolError for another reading or boundary, ModelError for one that the model can't be asked with.
        """
        if reading is not None and reading not in OF_TEXTS:
            raise ProtocolError(f"no reading of texts is called {reading!r}; {did_you_mean(reading, OF_TEXTS)}")
        possible = [name for name in supported_readings(model.supports) if name in OF_TEXTS]
        if not possible or (reading is not None and reading not in possible):
            raise ModelError(
                f"{model.name} can't be asked with reading {reading or OF_TEXTS[0]}; "
                f"it takes {', '.join(possible) or 'none that scores texts'}"
            )
        name = possible[0] if reading is None else reading
        allowed = READINGS[name].boundaries
        if boundary is not None and allowed and boundary not in allowed:
            raise ProtocolError(f"reading {name} takes boundary {' or '.join(allowed)}, not {boundary}")
        policy = boundary or next(iter(allowed), "lcp")
        encodings = Encodings(model.tokenizer, "default", READINGS[name].enclosed)
        return cls(model, name, policy, cast(ChoiceAsker, ASKERS[name]).form, encodings)

    def ask(self, context: str, choices: Sequence[str], policy: str | None = None) -> list[AskedText]:
        """One per choice, each within the model's window; ``policy``: another boundary than the reading's own."""
        (located,) = choice_questions_batch(self.encodings, policy or self.boundary, [context], [choices], [()])
        asked = []
        for text, unfitted in zip(choices, located, strict=True):
            choice = self.form.fit(unfitted, self.model.window, self.encodings, cut_start=False)
            if choice.missing is not None:
                raise ModelError(f"choice {text!r} can't be scored: {choice.missing}")
            question = self.form.question(choice, self.encodings, context, text)
            asked.append(AskedText(choice, cast(TokenQuestion | None, question)))
        return asked

    def ask_null(self, context: str, choices: Sequence[str], null: str, own: Sequence[AskedText]) -> list[AskedText]:
        """The same choices after the ``null`` context; ``own`` is how they are asked after ``context``."""
        group = NullGroup.of(ChoiceGroup(context, False, tuple(choices), (), ()), null)
        asked = self.ask(null, group.continuations, group.policy(self.boundary))
        if self.boundary not in COUNTING or group.spaced:
            return asked
        compared = comparable([one.choice for one in own], [one.choice for one in asked], self.model.tokenizer)
        return [
            AskedText(choice, None if choice.missing else one.question)
            for choice, one in zip(compared, asked, strict=True)
        ]
