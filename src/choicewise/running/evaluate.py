"""Evaluate a model into a run folder, and ask once more what got no answer."""

from __future__ import annotations

import json
import platform
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from itertools import chain, count
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from choicewise.data.benchmarks import benchmarks
from choicewise.data.dataset import Dataset
from choicewise.data.items import Item
from choicewise.errors import UsageError
from choicewise.models.load import load_model
from choicewise.models.model import Model
from choicewise.ports import Sharing
from choicewise.protocols.between import change_axes
from choicewise.protocols.catalogue import resolve
from choicewise.protocols.protocol import Protocol, signature
from choicewise.records import (
    KEYS,
    MANIFEST,
    SPANS,
    DatasetRecord,
    ItemRow,
    Manifest,
    ModelRecord,
    ObservationRow,
    SelfCheckRecord,
    ShardRecord,
)
from choicewise.requests.blocks import Section
from choicewise.requests.render import RenderedRequests
from choicewise.results.run import Run, open_run
from choicewise.results.tables import Subject, places_of, read_item_table
from choicewise.running.answer import (
    BlockResult,
    Pool,
    Preparation,
    Respondent,
    executor_of,
    loading_options,
    rows_of,
)
from choicewise.running.examples import asked_selectors
from choicewise.running.job import UNMEASURED, Job, OpenedSource, Source, Task, job_of
from choicewise.running.progress import PeriodicReport, Progress, ProgressReport
from choicewise.running.shards import Assignment
from choicewise.running.work import Stretch, Work, note_change, server_record
from choicewise.store.folder import BlockWriter, RunFolder, SpentMeter, check_folder, open_folder
from choicewise.store.tables import block_file, read_columns
from choicewise.util.background import give_memory_back, rare_collection
from choicewise.util.files import SETTINGS, read_text
from choicewise.util.text import check_name, holds_secret


def evaluate(
    *,
    model: str | Path | Model,
    data: str | Path | Dataset,
    protocols: Sequence[str] | Mapping[str, Protocol],
    out: str | Path,
    subjects: Sequence[str] | None = None,
    limit: int | None = None,
    sample: int | None = None,
    seed: int | None = None,
    shots: int | str | None = None,
    rendered: Sequence[RenderedRequests] = (),
    skip_bad_items: bool = False,
    executor: str | Pool = "local",
    workers: int | None = None,
    progress: Progress | bool | None = None,
    say: Callable[[str], None] | None = None,
    shard: str | None = None,
    job: Job | None = None,
    command: Sequence[str] = (),
) -> Run:
    """Score ``data`` with ``model`` under every one of ``protocols`` and return the run in folder ``out``.

    ``protocols``: catalogue names, families, signatures, TOML paths, or values by name.  ``limit``: the first questions
    of each subject.  ``sample``: so many questions in all, drawn by ``seed`` (1 unless given) from every subject in
    proportion to its size; the same seed draws the same ones.  ``shots``: how many examples every protocol shows, as
    its axis has it; None for as many as it was published with, and none where the data, no benchmark's own, have no
    split for them, which a warning says and the protocol's name; "error" raises DataError there.  ``rendered``: the
    requests of protocols that were rendered elsewhere.  ``skip_bad_items``: count questions that can't be asked as
    missing, instead of raising DataError.  A folder of the same measurement is continued, and only what it lacks is
    computed; protocols that ask what others already asked cost nothing.
    ``progress`` is called with (done, total); True prints lines on stderr. Protocols that the model can't be asked
    under are refused with a warning that names them, and the others are asked. ``job``: what the manifest keeps of
    what is asked; these arguments unless given, where they are names; ``command``: and of the command that asks it, its
    words. ``executor="local"`` computes here, with
    ``workers`` above 1
    in so many processes, each with a copy of the model (on a GPU of its own where there are several); ``"ray"`` on
    a Ray cluster. The numbers are the same: to the bit where the same kind of
    device computes with as many threads. Questions that a model behind a server gave no answer to in earlier calls
    are asked once more. ``say`` gets a line about how many of them have an answer now, and about workers that die,
    are refused or are waited for. ``shard="2/4"``: this process asks the second of four parts, in a folder of its own,
    whose numbers can be read when all parts are merged (:mod:`choicewise.extensions.cluster.merge`). Raises DataError,
    ProtocolError, ModelError, StoreError and UsageError as :mod:`choicewise.errors` describes.
    """
    for argument, value in (("protocols", protocols), ("subjects", subjects)):
        if isinstance(value, str):
            raise UsageError(
                f"{argument} is the text {value!r}, not a list; write {argument}=[{value!r}]"
            )
    if subjects is not None and not subjects:
        raise UsageError("subjects is an empty list; name at least one, or leave it out for all")
    if not protocols:
        raise UsageError("no protocol was named; `choicewise protocols` lists them")
    asked = job_of(
        {
            "models": [str(model)] if isinstance(model, str | Path) else [],
            "data": [str(data)] if isinstance(data, str | Path) else None,
            "protocols": [*protocols],
            "shots": shots,
            "subjects": None if subjects is None else [*subjects],
            "limit": limit,
            "sample": sample,
            "seed": seed,
            "on_bad_item": "skip" if skip_bad_items else "error",
            "executor": executor if isinstance(executor, str) else None,
            "workers": workers,
            "shard": shard,
        }
    )
    source = _source(asked, protocols)
    check_name(str(out), "the folder of the run")
    check_folder(Path(out))
    opened = _open(source, data, asked, say or _silent)
    chosen = executor_of(asked.executor, asked.workers)
    if isinstance(model, str | Path):
        model = load_model(model, **loading_options(chosen, str(model), None))
    kept = job
    if job is None and asked.models and asked.data:
        kept = asked.of_run(asked.choices[0], opened)
    elif job is not None:
        kept = job.as_read(opened.data)
    task = Task.of(
        model, opened, opened.protocols, asked, rendered=rendered, kept=kept, command=command
    )
    if isinstance(progress, bool) or progress is None:
        tokens = partial(
            getattr, model, "computed"
        )  # of replicas nothing is known before the first answer
        progress = (
            ProgressReport(model.name, computed=tokens) if progress else lambda done, total: None
        )
    if not isinstance(executor, str):
        return compute(
            task, Path(out), executor, progress, say or _silent
        )  # its owner ends the pool
    with chosen.pool(asked.workers, Sharing()) as pool:
        return compute(task, Path(out), pool, progress, say or _silent)


def _source(asked: Job, protocols: Sequence[str] | Mapping[str, Protocol]) -> Source:
    """Return what a call names, with its protocols resolved; the data are not opened."""
    path = asked.data[0].path if asked.data else None
    if isinstance(protocols, Mapping):
        recipes = (
            change_axes(protocols, f"shots={asked.shots}")
            if isinstance(asked.shots, int)
            else protocols
        )
        return Source((), None, path, on_bad_item=asked.on_bad_item, recipes=dict(recipes))
    selectors = asked_selectors(asked.protocols, asked.shots)  # spelled as the catalogue has them
    recipes = resolve(*selectors)
    return Source(selectors, None, path, on_bad_item=asked.on_bad_item, recipes=recipes)


def _open(
    source: Source, data: str | Path | Dataset, asked: Job, say: Callable[[str], None]
) -> OpenedSource:
    """Return the data and what is asked about them; a guess about them and a lack of examples are warned of."""
    if not isinstance(data, Dataset):
        data = source.open()
        if data.guess:
            warnings.warn(
                f"{data.guess}; open_dataset(columns=...) reads it otherwise", stacklevel=3
            )
        for note in data.notes:
            say(note)
    lenient = bool(source.selectors) and asked.shots is None and data.name not in benchmarks()
    source = replace(source, lenient=lenient)
    protocols, lacking = source.asking(data, source.protocols(data, asked.subjects))
    if lacking:
        warnings.warn(f'{lacking}; shots="error" stops here', stacklevel=3)
    return OpenedSource(source, data, protocols, UNMEASURED, without=lacking)


def compute(
    task: Task, out: Path, pool: Pool, progress: Progress, say: Callable[[str], None]
) -> Run:
    """Have everything answered in ``pool`` that the folder ``out`` lacks of ``task``, and return the run.

    ``progress`` and ``say``: as of :func:`evaluate`, as errors.
    """
    model, work, data = task.model, task.work, task.work.data
    wanted = Manifest(
        model=_model_record(model),
        dataset=DatasetRecord(
            data.name,
            data.digest,
            data.skipped,
            data.categories,
            data.content,
            data.source,
            data.read_with,
        ),
        selection=work.selection,
        protocols={name: signature(recipe) for name, recipe in work.protocols.items()},
        versions=_versions(model),
        job={} if task.kept is None else task.kept.model_dump(mode="json", exclude_defaults=True),
        server=server_record(model),
        refused=dict(work.refused),
        mapping="" if task.kept is None else _mapping_text(task.kept),
        command=() if any(map(holds_secret, task.command)) else tuple(task.command),
        shard=None if task.share is None else ShardRecord(task.share.of, (task.share.number,)),
    )
    if new := not (out / MANIFEST).exists():  # a bad item is refused before anything is written
        work.check(list(work.stretches()))
    with open_folder(out, wanted, item_rows(work.sections)) as folder:
        unanswered, stretches = folder.unanswered(), list(work.stretches(folder))
        if (
            task.share is not None and not folder.manifest.complete
        ):  # whose part is known when all is prepared
            stretches = list(work.stretches())
        assignment = Assignment(folder.observed(), task.share)
        if stretches and not new:
            work.check(stretches)
        if stretches or unanswered:
            preparation = Preparation(model, data, work.rendered, work.skip_bad_items)
            with pool.respondent(preparation, say) as answering:
                if stretches:
                    _observe(folder, answering, work, stretches, progress, assignment)
                    give_memory_back()
                if unanswered:
                    say(_ask_unanswered(folder, answering, work, unanswered, progress))
            note_change(folder, model)
        folder.finish(assignment.record)
    return open_run(out)


def _mapping_text(job: Job) -> str:
    """What the file holds that says what the columns mean; nothing where there is none, or it holds a key."""
    place = next((each.mapping for each in job.data or ()), None)
    if not isinstance(place, str):
        return ""
    with suppress(OSError, UnicodeDecodeError):
        text = read_text(Path(place), SETTINGS)
        return "" if holds_secret(text) else text
    return ""


def _model_record(model: Model) -> ModelRecord:
    chat = model.tokenizer.chat
    return ModelRecord(
        name=model.name,
        digest=model.digest,
        dtype=model.dtype,
        device=model.device,
        window=model.window,
        chat="" if chat is None else chat.digest,
        source=getattr(model, "source", ""),  # only models that were downloaded have one
        kind=model.kind_name,
    )


def item_rows(sections: Sequence[Section]) -> dict[str, Iterator[ItemRow]]:
    """The rows of the item table by split, to be read in this order."""
    by_split: dict[str, list[Section]] = {}
    for section in sections:
        by_split.setdefault(section.split, []).append(section)
    position = count()
    return {
        split: chain.from_iterable(_rows(each, position) for each in own)
        for split, own in by_split.items()
    }


def _rows(section: Section, position: Iterator[int]) -> Iterator[ItemRow]:
    for item in section.items:
        texts = item.id, item.subject, item.question, item.choices
        yield ItemRow(next(position), section.split, *texts, item.gold, _fields(item))


def _fields(item: Item) -> str:
    return (
        json.dumps(dict(item.fields), ensure_ascii=False, sort_keys=True) if item.fields else "{}"
    )


def _versions(model: Model) -> dict[str, str]:
    versions = {"python": platform.python_version()}
    more = getattr(model, "packages", ())  # only models in folders may need others
    for package in ("choicewise", "numpy", "pyarrow", "tokenizers", "torch", "transformers", *more):
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    return versions


def _describe(folder: RunFolder, executor: Respondent) -> None:
    """Say how the answers were computed."""
    if (check := executor.selfcheck) is not None:
        own = check.rung, check.cost, check.difference, check.floor, check.noise, check.depth
        folder.describe(SelfCheckRecord(*own))


def _silent(line: str) -> None:
    """Nobody reads it."""


def _observe(
    folder: RunFolder,
    executor: Respondent,
    work: Work,
    stretches: Sequence[Stretch],
    progress: Progress,
    assignment: Assignment,
) -> None:
    """Have everything answered that the folder lacks, as far as it is assigned, and write what comes."""
    blocks = work.blocks(stretches)
    lacking = sum(block.work for block in blocks)
    unanswered = sum(len(block.items) * len(block.specs) for block in blocks)
    before = int(
        lacking * (work.questions / unanswered - 1)
    )  # as if a question took as much as those to come
    tracker, total = Tracker(executor, before), before + lacking
    reports, running = (
        PeriodicReport(lambda: progress(tracker.done, total)),
        closing(executor.run(blocks, assignment)),
    )
    with rare_collection(), reports as periodic, running as results:
        progress(tracker.done, total)
        listed = {(block.place, block.asks) for block in folder.manifest.blocks}
        for result in results:
            names = tuple(spec.name for spec in result.block.specs)
            if (
                result.block.place,
                names,
            ) in listed:  # this shard of the run has it, and the plan needs it once more
                with tracker.block(result):
                    continue
            writing = BlockWriter(folder, result.block.place, executor)
            with writing as writer, tracker.block(result), ExitStack() as ending:
                ending.callback(_describe, folder, executor)
                for observed in result.observations:
                    writer.add(observed)
                    tracker.answer(writer.count)
                    periodic.tick()
                writer.write(names, result.tokens_asked, result.requests, result.spans)
            progress(tracker.done, total)


class Tracker:
    """Counts work in the units of :attr:`choicewise.requests.blocks.Block.work`, from ``done`` on.

    Within a block it goes by the questions answered, and within a shard by the input tokens computed of those planned,
    where ``executor`` counts them: a shard is planned when it is asked, and one question may be long.
    """

    def __init__(self, executor: Respondent, done: int) -> None:
        self._executor = executor
        self._finished = done
        self._result: BlockResult | None = None
        self._answered = self._passed = self._before = 0
        self._shards: deque[int] = deque()

    @contextmanager
    def block(self, result: BlockResult) -> Iterator[None]:
        """Meanwhile ``result`` is answered."""
        self._shards, self._passed, self._before = (
            deque(result.shards),
            0,
            self._executor.computed or 0,
        )
        self._answered, self._result = 0, result
        yield
        self._finished, self._result = self._finished + result.block.work, None

    def answer(self, count: int) -> None:
        """So many questions of the block are answered."""
        self._answered = count
        while self._shards and count >= self._passed + self._shards[0]:
            self._passed += self._shards.popleft()
            self._before = self._executor.computed or 0

    @property
    def done(self) -> int:
        """The work done so far; may be called from another thread."""
        if (result := self._result) is None:
            return self._finished
        answered = float(self._answered)
        computed, planned = (
            (each or 0) - self._before for each in (self._executor.computed, self._executor.planned)
        )
        if self._shards and planned > 0:
            answered = self._passed + self._shards[0] * min(computed / planned, 1.0)
        return self._finished + int(
            min(answered / max(result.questions, 1), 1.0) * result.block.work
        )


def _ask_unanswered(
    folder: RunFolder,
    executor: Respondent,
    work: Work,
    unanswered: Mapping[str, str],
    progress: Progress,
) -> str:
    """Ask the questions ``unanswered`` (:meth:`RunFolder.unanswered`) that ``work`` names once more; says what came.

    Nothing else is asked.  An answer replaces the observation with its key, every minute and when the asking ends,
    however it ends.
    """
    stretches = list(_stretches(folder, work, unanswered))
    assignment = Assignment(folder.named(but=unanswered))
    asked = 0
    with _Answers(folder, executor, unanswered) as answers:
        progress(0, len(unanswered))
        with closing(executor.run(work.blocks(stretches), assignment)) as results:
            for result in results:
                for observation in chain.from_iterable(map(rows_of, result.observations)):
                    asked += 1
                    answers.add(observation)
                    progress(asked, len(unanswered))
    what = (
        "1 question that had no answer was"
        if asked == 1
        else f"{asked:,} questions that had no answer were"
    )
    line = (
        f"{what} asked again: {answers.count:,} answered now, {asked - answers.count:,} still not"
    )
    other = len(unanswered) - asked
    return line + (
        f"; {other:,} more belong to protocols that this line does not name" if other else ""
    )


class _Answers:
    """Answers on their way into the ``blocks`` that lack them, by key; ``count``: how many there were."""

    def __init__(self, folder: RunFolder, executor: Respondent, blocks: Mapping[str, str]) -> None:
        self.count = 0
        self._folder, self._blocks, self._meter = folder, blocks, SpentMeter(executor)
        self._waiting: dict[str, ObservationRow] = {}
        self._names: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._write()

    def add(self, observation: ObservationRow) -> None:
        """Keep an answer; it is written at the latest with the first one that comes after a minute."""
        if observation.missing is None and observation.key in self._blocks:
            self.count += 1
            self._waiting[observation.key] = observation
            if self._meter.due:
                self._write()

    def _write(self) -> None:
        by_block: dict[str, dict[str, ObservationRow]] = {}
        for key, observation in self._waiting.items():
            by_block.setdefault(self._blocks[key], {})[key] = observation
        self._waiting.clear()
        for block, answers in by_block.items():
            name = self._names.get(block, block)
            self._names[block] = self._folder.replace_answers(name, answers, self._meter.spent())
            self._meter.restart()


def _stretches(folder: RunFolder, work: Work, unanswered: Mapping[str, str]) -> Iterator[Stretch]:
    """For every one of the questions an item that was asked it, with the way of asking that leads to it."""
    specs = {spec.name: spec for spec in work.specs}
    places = _places(folder, _first_prompts(folder, unanswered, specs))
    for section in work.sections:
        own = places.get((section.split, section.subject), {})
        ordered = np.array(sorted(own), dtype=np.int64)
        runs = np.split(ordered, np.flatnonzero(np.diff(ordered) > 1) + 1) if own else []
        for positions in (run.tolist() for run in runs):  # each without a gap
            names = set[str]().union(*(own[position] for position in positions))
            yield (
                section,
                positions[0],
                positions[-1] + 1,
                [spec for name, spec in specs.items() if name in names],
            )


def _first_prompts(
    folder: RunFolder, unanswered: Mapping[str, str], specs: Mapping[str, object]
) -> dict[str, set[str]]:
    """Ways of asking by item: of all that led to a question, the first one, as many share those after null contexts."""
    wanted = pa.array(list(unanswered), pa.string())
    seen = set[str]()
    by_item: dict[str, set[str]] = {}
    for block in folder.manifest.blocks:
        spans = read_columns(
            block_file(folder.path, block, "spans"), SPANS, ["prompt", "item", "null", *KEYS]
        )
        for column in KEYS:
            rows = spans.filter(pc.is_in(spans[column], wanted)).select(
                ["prompt", "item", "null", column]
            )
            for prompt, item, null, key in zip(
                *(each.to_pylist() for each in rows.columns), strict=True
            ):
                name = prompt if null is None else f"{prompt}|{null}"
                if key not in seen and name in specs:
                    seen.add(key)
                    by_item.setdefault(item, set()).add(name)
    return by_item


def _places(
    folder: RunFolder, by_item: Mapping[str, set[str]]
) -> dict[Subject, dict[int, set[str]]]:
    """The same by subject and position in it."""
    items = read_item_table(folder.path, folder.manifest)
    rows = pc.index_in(
        pa.array(list(by_item), pa.string()), items["item"].combine_chunks()
    ).to_pylist()
    names = dict(zip(rows, by_item.values(), strict=True))
    wanted = np.array(list(names), dtype=np.int64)
    places: dict[Subject, dict[int, set[str]]] = {}
    for subject, own in places_of(items).items():
        positions = np.flatnonzero(np.isin(own, wanted)).tolist()
        places[subject] = {position: names[int(own[position])] for position in positions}
    return places
