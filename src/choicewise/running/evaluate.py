"""Evaluates a model into a run folder, and scores again what a server did not answer."""

from __future__ import annotations

import json
import platform
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from itertools import chain, count
from pathlib import Path
from typing import Any

from choicewise.data.dataset import Dataset
from choicewise.errors import UsageError
from choicewise.models.load import load_model
from choicewise.models.model import Model
from choicewise.ports import ModelRuns, Watcher
from choicewise.protocols.between import change_axes
from choicewise.protocols.catalogue import resolve
from choicewise.protocols.protocol import Protocol, signature
from choicewise.records import (
    MANIFEST,
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
from choicewise.running.answer import BlockResult, answer_blocks, executor_of, loading_options
from choicewise.running.fitting import selectors_with_shots
from choicewise.running.job import (
    UNMEASURED,
    Job,
    OpenedSource,
    Source,
    Task,
    is_flexible,
    job_of,
    open_source,
    sources_of,
    split_tasks,
)
from choicewise.running.progress import PeriodicReport, Progress, ProgressReport
from choicewise.running.shards import Assignment
from choicewise.running.work import Stretch, Work, note_change, server_record
from choicewise.store.folder import (
    BlockWriter,
    RunFolder,
    SpentMeter,
    check_folder,
    open_folder,
    overlap,
)
from choicewise.store.tables import unanswered_keys
from choicewise.util.background import give_memory_back, rare_collection
from choicewise.util.files import SETTINGS, read_text
from choicewise.util.text import check_name, holds_secret, listed


def evaluate(
    *,
    model: str | Path | Model,
    data: str | Path | Dataset | None = None,
    protocols: Sequence[str] | Mapping[str, Protocol],
    out: str | Path,
    subjects: Sequence[str] | None = None,
    limit: int | None = None,
    sample: int | None = None,
    seed: int | None = None,
    shots: int | str | None = None,
    rendered: Sequence[RenderedRequests] = (),
    skip_bad_items: bool = False,
    executor: str = "local",
    workers: int | None = None,
    progress: Progress | bool | None = None,
    say: Callable[[str], None] | None = None,
    shard: str | None = None,
    job: Job | None = None,
    command: Sequence[str] = (),
) -> Run:
    """Score ``data`` with ``model`` under ``protocols``, and return the run in the folder ``out``.

    A folder of the same measurement is continued, and only missing observations are computed.
    Protocols that need no new observations cost nothing.  Prompts that a server did not answer in
    earlier calls are sent once more.

    - ``model``: a name as for :func:`choicewise.load_model`, or a loaded model.
    - ``data``: a path or a name as for :func:`choicewise.open_dataset`, or an open dataset; None
      for the data of the protocols' benchmark or task.
    - ``protocols``: catalogue names, families, signatures, TOML paths, tasks such as
      ``lm-eval:arc_easy``, or values by name.  Those that the model does not support are refused
      with a warning, and the others are evaluated.
    - ``out``: the folder of the run.
    - ``subjects``: only these.
    - ``limit``: the first items of each subject.
    - ``sample``: how many items in all, drawn from every subject in proportion to its size.
    - ``seed``: of the sample, 1 by default.
    - ``shots``: examples in each prompt, by default as many as published.  For data that are no
      benchmark's, what they lack is changed with a warning: no examples, another split or number of
      choices; "error" raises DataError instead.
    - ``rendered``: requests that another tool rendered.
    - ``skip_bad_items``: count items that fit no prompt as missing instead of raising DataError.
    - ``executor``: "local" computes here; "ray" computes on a Ray cluster.  The numbers are the
      same, to the bit on devices of one kind with one number of threads.
    - ``workers``: processes that compute a shard each, with a copy of the model (and a GPU, if there
      are several).  Model, data and protocols must be names.
    - ``progress``: gets (done, total); True prints lines on stderr.
    - ``say``: gets lines about answers that servers gave late, and about processes that die.
    - ``shard``: "2/4" computes the second of four parts, in a folder of its own; the numbers can be
      read once all parts are merged (:mod:`choicewise.extensions.cluster.merge`).
    - ``job``: what the manifest keeps of these arguments, by default the arguments, if model and
      data are names.
    - ``command``: the words of the command line that the manifest keeps.

    Raises DataError, ProtocolError, ModelError, StoreError and UsageError
    (:mod:`choicewise.errors`).
    """
    _check_lists(protocols, subjects)
    arguments = job_of(
        {
            "models": [str(model)] if isinstance(model, str | Path) else [],
            "data": [str(data)] if isinstance(data, str | Path) else None,
            "protocols": list(protocols),
            "shots": shots,
            "subjects": None if subjects is None else list(subjects),
            "limit": limit,
            "sample": sample,
            "seed": seed,
            "on_bad_item": "skip" if skip_bad_items else "error",
            "executor": executor,
            "workers": workers,
            "shard": shard,
        }
    )
    check_name(str(out), "the folder of the run")
    say = say or _silent
    folder = Path(out)
    # The folder and the data are checked before the model, which may take minutes to load.
    source = _source(arguments, protocols, data)
    check_folder(folder)
    opened = _open(source, arguments, say)
    elsewhere = executor_of(arguments.executor, arguments.workers)
    if isinstance(model, str | Path):
        model = load_model(model, **loading_options(elsewhere, str(model), None))
    # A manifest only keeps a job that a command can resume: model and data have names.
    is_named = bool(arguments.models) and not isinstance(data, Dataset)
    kept = None
    if job is not None:
        kept = job.as_read(opened.data)
    elif is_named:
        kept = arguments.of_run(arguments.choices[0], opened)
    report: Progress = _silent
    if progress is True:
        report = ProgressReport(model.name, computed=lambda: model.computed)
    elif progress:
        report = progress
    if elsewhere is None:
        task = Task.of(
            model,
            opened,
            opened.protocols,
            arguments,
            rendered=rendered,
            kept=kept,
            command=command,
        )
        return compute(task, folder, report, say)
    if rendered or not is_named or not opened.source.selectors:
        raise UsageError(
            "workers open model, data and protocols by their names; pass names, or leave workers "
            "out"
        )
    (choice,) = arguments.choices
    runs = ModelRuns(
        model=model,
        job=arguments.of_run(choice, opened).for_model(choice),
        folders={opened.source.name: folder},
        scratch=scratch_of(folder),
        command=command,
    )
    watcher = Watcher(
        progress=lambda _, share: report(int(share * UNMEASURED), UNMEASURED),
        say=say,
        ended=_silent,
    )
    elsewhere.evaluate([runs], arguments.workers, watcher)
    return open_run(folder)


def scratch_of(folder: Path) -> Path:
    """Return the folder beside ``folder`` for what is not merged yet."""
    return folder.with_name(f"{folder.name}.shards")


def _check_lists(
    protocols: Sequence[str] | Mapping[str, Protocol], subjects: Sequence[str] | None
) -> None:
    """Raise UsageError for a text in place of a list, whose letters would be taken for names."""
    for argument, value in (("protocols", protocols), ("subjects", subjects)):
        if isinstance(value, str):
            raise UsageError(
                f"{argument} is the text {value!r}, not a list; write {argument}=[{value!r}]"
            )
    if subjects is not None and not subjects:
        raise UsageError("subjects is an empty list; name at least one, or leave it out for all")
    if not protocols:
        raise UsageError("no protocol; `choicewise protocols` lists them")


def _source(
    arguments: Job,
    protocols: Sequence[str] | Mapping[str, Protocol],
    data: str | Path | Dataset | None,
) -> Source:
    """Return the source of the items, with its protocols resolved; the data are not opened."""
    is_by_value = isinstance(protocols, Mapping)
    if data is None:
        if is_by_value:
            raise UsageError("protocols given as values name no data; pass data")
        sources = sources_of(arguments)
        if len(sources) == 1:
            return sources[0]
        names = listed([source.name for source in sources])
        raise UsageError(
            f"the protocols name {len(sources)} datasets ({names}), and a run has one; "
            "pass data, or call choicewise.sweep"
        )
    selectors: tuple[str, ...] = ()
    if isinstance(protocols, Mapping):
        recipes = dict(protocols)
        if isinstance(arguments.shots, int):
            recipes = change_axes(protocols, f"shots={arguments.shots}")
    else:
        tasks, _ = split_tasks(arguments.protocols)
        if tasks:
            raise UsageError(f"{tasks[0]} brings its own data; leave data out")
        # The job has the selectors in the spelling of the catalogue.
        selectors = selectors_with_shots(arguments.protocols, arguments.shots)
        recipes = resolve(*selectors)
    path = arguments.data[0].path if arguments.data else None
    opened = data if isinstance(data, Dataset) else None
    return Source(
        selectors,
        None,
        path=path,
        on_bad_item=arguments.on_bad_item,
        recipes=recipes,
        dataset=opened,
    )


def _open(source: Source, arguments: Job, say: Callable[[str], None]) -> OpenedSource:
    """Open the data; warn of guessed columns, and of protocols that change or are left out."""
    if source.benchmark is None:
        from choicewise.data.benchmarks import benchmarks

        data = source.open()
        if source.dataset is None:
            if data.guess:
                warnings.warn(
                    f"columns detected in {data.guess} (override with open_dataset(columns=...))",
                    stacklevel=3,
                )
            for note in data.notes:
                say(note)
        is_replaceable = bool(source.selectors) and data.name not in benchmarks()
        source = replace(
            source,
            dataset=data,
            lenient=is_replaceable and arguments.shots is None,
            flexible=is_replaceable and is_flexible(arguments),
            fitting=is_replaceable and arguments.shots != "error",
        )
    opened = open_source(source, arguments, measured=False)
    changes = [f'{change}; shots="error" stops here' for change in opened.changes]
    for line in (*source.notes, *changes, *opened.left_out_lines):
        warnings.warn(line, stacklevel=3)
    return opened


def compute(task: Task, out: Path, progress: Progress, say: Callable[[str], None]) -> Run:
    """Compute the observations that the folder ``out`` lacks, and return the run.

    ``progress`` and ``say``, and the errors, are those of :func:`evaluate`.
    """
    model = task.model
    work = task.work
    is_new = not (out / MANIFEST).exists()
    if is_new and not task.checked:
        # A bad item is refused before anything is written.
        work.check(list(work.stretches()))
    with open_folder(out, _manifest(task), _item_rows(work.sections)) as folder:
        unanswered = unanswered_keys(folder.path, folder.manifest)
        stretches = list(work.stretches(folder))
        if task.share is not None and not folder.manifest.complete:
            # Which prompts are this part's is only known when all of the run is prepared.
            stretches = list(work.stretches())
        assignment = Assignment(folder.observed(), task.share)
        if stretches and not is_new:
            work.check(stretches)
        if stretches or unanswered:
            if stretches:
                _observe(folder, model, work, stretches, progress, assignment)
                # The C library keeps hundreds of megabytes of the rows, on top of what follows.
                give_memory_back()
            if unanswered:
                say(_retry(folder, model, work, unanswered, progress))
            note_change(folder, model)
        folder.finish(assignment.record)
    return open_run(out)


def _manifest(task: Task) -> Manifest:
    """Return the manifest of a new run of ``task``."""
    model = task.model
    work = task.work
    data = work.data
    job: dict[str, Any] = {}
    mapping = ""
    if task.kept is not None:
        job = task.kept.model_dump(mode="json", exclude_defaults=True)
        mapping = _mapping_text(task.kept)
    command = tuple(task.command)
    if any(map(holds_secret, command)):
        command = ()
    shard = None
    if task.share is not None:
        shard = ShardRecord(task.share.of, (task.share.number,))
    # Earlier runs do not name torch's own products.
    products = getattr(model, "products", "")
    if products == "torch":
        products = ""
    chat = model.tokenizer.chat
    chat_digest = "" if chat is None else chat.digest
    return Manifest(
        model=ModelRecord(
            name=model.name,
            digest=model.digest,
            dtype=model.dtype,
            device=model.device,
            window=model.window,
            chat=chat_digest,
            source=getattr(model, "source", ""),  # only downloaded models have one
            kind=model.kind_name,
            products=products,
        ),
        dataset=DatasetRecord(
            name=data.name,
            digest=data.digest,
            skipped=data.skipped,
            categories=data.categories,
            content=data.content,
            source=data.source,
            read_with=data.read_with,
        ),
        selection=work.selection,
        protocols={name: signature(protocol) for name, protocol in work.protocols.items()},
        versions=_versions(model),
        job=job,
        server=server_record(model),
        refused=dict(work.refused),
        mapping=mapping,
        command=command,
        shard=shard,
    )


def _mapping_text(job: Job) -> str:
    """Return the text of the file that maps the columns; "" without one, or if it holds a key."""
    if not job.data or not isinstance(job.data[0].mapping, str):
        return ""
    with suppress(OSError, UnicodeDecodeError):
        text = read_text(Path(job.data[0].mapping), SETTINGS)
        if not holds_secret(text):
            return text
    return ""


def _item_rows(sections: Sequence[Section]) -> dict[str, Iterator[ItemRow]]:
    """Return the rows of the item table by split, to be read in this order."""
    sections_by_split: dict[str, list[Section]] = {}
    for section in sections:
        sections_by_split.setdefault(section.split, []).append(section)
    positions = count()
    return {split: _rows(parts, positions) for split, parts in sections_by_split.items()}


def _rows(sections: Sequence[Section], positions: Iterator[int]) -> Iterator[ItemRow]:
    for section in sections:
        for item in section.items:
            fields = "{}"
            if item.fields:
                fields = json.dumps(dict(item.fields), ensure_ascii=False, sort_keys=True)
            yield ItemRow(
                position=next(positions),
                split=section.split,
                item=item.id,
                subject=item.subject,
                question=item.question,
                choices=item.choices,
                gold=item.gold,
                fields=fields,
            )


def _versions(model: Model) -> dict[str, str]:
    versions = {"python": platform.python_version()}
    packages = ["choicewise", "numpy", "pyarrow", "tokenizers", "torch", "transformers"]
    packages += getattr(model, "packages", ())  # only models in folders may need others
    for package in packages:
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    return versions


def _silent(*values: object) -> None:
    """Report nothing."""


def _observe(
    folder: RunFolder,
    model: Model,
    work: Work,
    stretches: Sequence[Stretch],
    progress: Progress,
    assignment: Assignment,
) -> None:
    """Compute the assigned observations of ``stretches``, and write them block by block."""
    blocks = work.blocks(stretches)
    work_left = sum(block.work for block in blocks)
    questions_left = sum(len(block.items) * len(block.specs) for block in blocks)
    # Earlier questions count as if they had taken as much work as those to come.
    work_before = int(work_left * (work.questions / questions_left - 1))
    total = work_before + work_left
    tracker = Tracker(model, work_before)

    def report() -> None:
        progress(tracker.done, total)

    with (
        # Python's collector would look at all rows so far again and again.
        rare_collection(),
        PeriodicReport(report) as periodic,
        closing(answer_blocks(model, work, blocks, assignment)) as results,
    ):
        report()
        written = {(block.extent, block.asks) for block in folder.manifest.blocks}
        for result in results:
            extent = result.block.extent
            names = tuple(spec.name for spec in result.block.specs)
            if (extent, names) in written:
                # This part of the run has the block, which only the digest of the plan needs again.
                with tracker.block(result):
                    continue
            with BlockWriter(folder, extent, model) as writer, tracker.block(result):
                try:
                    for observed in result.observations:
                        writer.add(observed)
                        tracker.answer(writer.count)
                        periodic.tick()
                    rows = result.prepared
                    writer.write(names, rows.inputs, rows.requests, rows.spans)
                finally:
                    # Also after an error: the blocks so far were computed in this way.
                    _write_selfcheck(folder, model)
            report()


def _write_selfcheck(folder: RunFolder, model: Model) -> None:
    check = model.check(0)
    if check is None:
        return
    folder.describe(
        SelfCheckRecord(
            rung=check.rung,
            cost=check.cost,
            difference=check.difference,
            floor=check.floor,
            noise=check.noise,
            depth=check.depth,
        )
    )


class Tracker:
    """Count the work done, in the units of :attr:`choicewise.requests.blocks.Block.work`.

    Within a block it goes by the questions answered.  Within a shard it goes by the input tokens
    computed of those planned, if ``model`` counts them: a single question may be long.
    """

    def __init__(self, model: Model, done: int) -> None:
        self._model = model
        self._finished = done
        self._result: BlockResult | None = None
        self._answered = 0
        self._answered_in_shards = 0
        self._tokens_before = 0
        self._shards: deque[int] = deque()

    @contextmanager
    def block(self, result: BlockResult) -> Iterator[None]:
        """Count the answers within the ``with`` as those of ``result``."""
        self._shards = deque(result.shards)
        self._answered_in_shards = 0
        self._tokens_before = self._model.computed or 0
        self._answered = 0
        self._result = result
        yield
        self._finished += result.block.work
        self._result = None

    def answer(self, count: int) -> None:
        """Note that ``count`` questions of the block are answered."""
        self._answered = count
        while self._shards and count >= self._answered_in_shards + self._shards[0]:
            self._answered_in_shards += self._shards.popleft()
            self._tokens_before = self._model.computed or 0

    @property
    def done(self) -> int:
        """Return the work done so far; any thread may read it."""
        result = self._result
        if result is None:
            return self._finished
        answered = float(self._answered)
        planned = (self._model.planned or 0) - self._tokens_before
        if self._shards and planned > 0:
            computed = (self._model.computed or 0) - self._tokens_before
            answered = self._answered_in_shards + self._shards[0] * min(computed / planned, 1.0)
        # Checks and repeated prompts may compute more than was planned.
        share = min(answered / max(sum(result.shards), 1), 1.0)
        return self._finished + int(share * result.block.work)


def _retry(
    folder: RunFolder, model: Model, work: Work, unanswered: Mapping[str, str], progress: Progress
) -> str:
    """Send the ``unanswered`` prompts of ``work`` once more, and return a line about the answers.

    ``unanswered``: key → block (:func:`unanswered_keys`).  An answer replaces the observation
    with its key, every minute and at the end, even after an error.
    """
    blocks = work.blocks(list(_unanswered_stretches(folder, work, unanswered)))
    assignment = Assignment(folder.named(but=unanswered))
    meter = SpentMeter(model)
    # A block gets a new name with every write.
    name_of_block = {block: block for block in unanswered.values()}
    waiting: dict[str, dict[str, ObservationRow]] = {}
    sent = 0
    answered = 0

    def write() -> None:
        for block, answers in waiting.items():
            name = name_of_block[block]
            name_of_block[block] = folder.replace_answers(name, answers, meter.spent())
            meter.restart()
        waiting.clear()

    progress(0, len(unanswered))
    with closing(answer_blocks(model, work, blocks, assignment)) as results:
        try:
            for observation in chain.from_iterable(result.observations for result in results):
                assert isinstance(observation, ObservationRow)
                sent += 1
                block = unanswered.get(observation.key)
                if block is not None and observation.missing is None:
                    answered += 1
                    waiting.setdefault(block, {})[observation.key] = observation
                    if meter.due:
                        write()
                progress(sent, len(unanswered))
        finally:
            write()
    questions = f"{sent:,} questions without an answer were"
    if sent == 1:
        questions = "1 question without an answer was"
    line = f"{questions} sent again: {answered:,} answered now, {sent - answered:,} still missing"
    others = len(unanswered) - sent
    if others:
        line += f"; {others:,} more belong to protocols that you did not name"
    return line


def _unanswered_stretches(
    folder: RunFolder, work: Work, unanswered: Mapping[str, str]
) -> Iterator[Stretch]:
    """Yield the stretches of all blocks that may hold ``unanswered`` prompts."""
    names = set(unanswered.values())
    lacking = [block for block in folder.manifest.blocks if block.name in names]
    sections = {(section.split, section.subject): section for section in work.sections}
    specs = {spec.name: spec for spec in work.specs}
    for block in folder.manifest.blocks:
        # Another block of the same items may ask what the block that lacks the answer only holds.
        wanted = [specs[name] for name in block.asks if name in specs]
        section = sections.get((block.split, block.subject))
        if not wanted or section is None:
            continue
        # The name is looked up first, as there may be thousands of blocks.
        if block.name in names or any(overlap(block, other) for other in lacking):
            yield section, block.start, block.stop, wanted
