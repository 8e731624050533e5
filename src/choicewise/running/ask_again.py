"""Questions that a model behind a server gave no answer to, asked again; an answer takes the place of its absence."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain
from time import perf_counter
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from choicewise.records.manifest import Spent
from choicewise.records.rows import ObservationRow
from choicewise.records.tables import SPANS
from choicewise.results.elsewhere import KEYS
from choicewise.results.item_table import Subject, places_of, read_item_table
from choicewise.running.executors.executor import Executor
from choicewise.running.executors.rows import rows_of
from choicewise.running.work import Stretch, Work
from choicewise.store.block_writer import FLUSH
from choicewise.store.folder import RunFolder
from choicewise.store.tables import block_file, read_columns


@dataclass(frozen=True, slots=True)
class AskedAgain:
    """Of ``unanswered`` questions so many were ``asked`` once more, and so many of these ``answered``."""

    unanswered: int
    asked: int
    answered: int

    @property
    def text(self) -> str:
        """The same in a line."""
        one = self.asked == 1
        what = "1 question that had no answer was" if one else f"{self.asked:,} questions that had no answer were"
        line = f"{what} asked again: {self.answered:,} answered now, {self.asked - self.answered:,} still not"
        other = self.unanswered - self.asked
        return line + (f"; {other:,} more belong to protocols that this line does not name" if other else "")


def ask_again(
    folder: RunFolder,
    executor: Executor,
    work: Work,
    unanswered: Mapping[str, str],
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> AskedAgain:
    """Ask the questions ``unanswered`` (:meth:`RunFolder.unanswered`) that ``work`` names once more.

    Nothing else is asked.  An answer replaces the observation with its key, every minute and when the asking ends,
    however it ends.  ``progress`` is called with (done, total).
    """
    stretches = list(_stretches(folder, work, unanswered))
    observed = folder.observed(but=unanswered)
    asked = 0
    with _Answers(folder, executor, unanswered) as answers:
        progress(0, len(unanswered))
        with closing(executor.run(work.blocks(stretches), observed)) as results:
            for result in results:
                for observation in chain.from_iterable(map(rows_of, result.observations)):
                    asked += 1
                    answers.add(observation)
                    progress(asked, len(unanswered))
    return AskedAgain(len(unanswered), asked, answers.count)


@dataclass
class _Answers:
    """Answers on their way into the ``blocks`` that lack them, by key; ``count``: how many there were."""

    folder: RunFolder
    executor: Executor
    blocks: Mapping[str, str]
    count: int = 0
    _waiting: dict[str, ObservationRow] = field(default_factory=dict)
    _names: dict[str, str] = field(default_factory=dict)

    def __enter__(self) -> Self:
        self._since, self._computed, self._requests = perf_counter(), self.executor.computed, self.executor.requests
        return self

    def __exit__(self, *_: object) -> None:
        self._write()

    def add(self, observation: ObservationRow) -> None:
        """Keep an answer; it is written at the latest with the first one that comes after a minute."""
        if observation.missing is None and observation.key in self.blocks:
            self.count += 1
            self._waiting[observation.key] = observation
            if perf_counter() - self._since > FLUSH:
                self._write()

    def _write(self) -> None:
        by_block: dict[str, dict[str, ObservationRow]] = {}
        for key, observation in self._waiting.items():
            by_block.setdefault(self.blocks[key], {})[key] = observation
        self._waiting.clear()
        for block, answers in by_block.items():
            name = self._names.get(block, block)
            place = [each.name for each in self.folder.manifest.blocks].index(name)
            self.folder.replace_answers(name, answers, self._spent())
            self._names[block] = self.folder.manifest.blocks[place].name
        self._since = perf_counter()

    def _spent(self) -> Spent | None:
        """What was computed since it was asked last."""
        now, computed, requests = perf_counter(), self.executor.computed, self.executor.requests
        if computed is None or self._computed is None:
            return None
        spent = Spent(0, computed - self._computed, now - self._since, requests - self._requests)
        self._since, self._computed, self._requests = now, computed, requests
        return spent


def _stretches(folder: RunFolder, work: Work, unanswered: Mapping[str, str]) -> Iterator[Stretch]:
    """For every one of the questions an item that was asked it, with the way of asking that leads to it."""
    asks = {ask.name: ask for ask in work.asks}
    places = _places(folder, _first_askers(folder, unanswered, asks))
    for section in work.sections:
        own = places.get((section.split, section.subject), {})
        for positions in _neighbours(sorted(own)):
            names = set[str]().union(*(own[position] for position in positions))
            yield section, positions[0], positions[-1] + 1, [ask for name, ask in asks.items() if name in names]


def _first_askers(folder: RunFolder, unanswered: Mapping[str, str], asks: Mapping[str, object]) -> dict[str, set[str]]:
    """Ways of asking by item: of all that led to a question, the first one, as many share those after null contexts."""
    wanted = pa.array(list(unanswered), pa.string())
    seen = set[str]()
    by_item: dict[str, set[str]] = {}
    for block in folder.manifest.blocks:
        spans = read_columns(block_file(folder.path, block, "spans"), SPANS, ["prompt", "item", "null", *KEYS])
        for column in KEYS:
            rows = spans.filter(pc.is_in(spans[column], wanted)).select(["prompt", "item", "null", column])
            for prompt, item, null, key in zip(*(each.to_pylist() for each in rows.columns), strict=True):
                name = prompt if null is None else f"{prompt}|{null}"
                if key not in seen and name in asks:
                    seen.add(key)
                    by_item.setdefault(item, set()).add(name)
    return by_item


def _places(folder: RunFolder, by_item: Mapping[str, set[str]]) -> dict[Subject, dict[int, set[str]]]:
    """The same by subject and position in it."""
    items = read_item_table(folder.path, folder.manifest)
    rows = pc.index_in(pa.array(list(by_item), pa.string()), items["item"].combine_chunks()).to_pylist()
    names = dict(zip(rows, by_item.values(), strict=True))
    wanted = np.array(list(names), dtype=np.int64)
    places: dict[Subject, dict[int, set[str]]] = {}
    for subject, own in places_of(items).items():
        positions = np.flatnonzero(np.isin(own, wanted)).tolist()
        places[subject] = {position: names[int(own[position])] for position in positions}
    return places


def _neighbours(positions: Sequence[int]) -> Iterator[list[int]]:
    """The positions in runs without a gap."""
    run: list[int] = []
    for position in positions:
        if run and position != run[-1] + 1:
            yield run
            run = []
        run.append(position)
    if run:
        yield run
