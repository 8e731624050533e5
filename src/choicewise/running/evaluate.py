"""The main job: ask a model every question under every protocol, once, and keep the observations in a run folder."""

import json
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from itertools import chain, count
from pathlib import Path

from choicewise.data.dataset import Dataset
from choicewise.data.item import Item
from choicewise.data.open_dataset import open_dataset
from choicewise.errors import UsageError
from choicewise.models.load import load_model
from choicewise.models.model import Model
from choicewise.models.selfcheck import SelfCheck
from choicewise.protocols.catalogue import resolve
from choicewise.protocols.protocol import Protocol
from choicewise.protocols.signature import signature
from choicewise.records.format import MANIFEST
from choicewise.records.manifest import DatasetRecord, Manifest, ModelRecord, Selection, SelfCheckRecord
from choicewise.records.rows import ItemRow
from choicewise.records.secret_address import refuse_secret
from choicewise.requests.blocks import Section
from choicewise.requests.rendered import RenderedRequests
from choicewise.requests.schedule import has_shots
from choicewise.results.run import Run, open_run
from choicewise.running.ask_again import ask_again
from choicewise.running.executors.executor import Executor
from choicewise.running.executors.parallel import Parallel
from choicewise.running.executors.preparing import Preparation
from choicewise.running.executors.workforce import Workforce
from choicewise.running.memory import give_memory_back
from choicewise.running.progress import ProgressReport
from choicewise.running.pulse import Progress, Pulse
from choicewise.running.rare_collection import rare_collection
from choicewise.running.rescore import open_items, rescore
from choicewise.running.served import note_change, server_record
from choicewise.running.tracker import Tracker
from choicewise.running.work import Stretch, Work
from choicewise.store.block_writer import BlockWriter
from choicewise.store.folder import RunFolder, check_folder, open_folder


def evaluate(
    *,
    model: str | Path | Model,
    data: str | Path | Dataset,
    protocols: Sequence[str] | Mapping[str, Protocol],
    out: str | Path,
    subjects: Sequence[str] | None = None,
    limit: int | None = None,
    rendered: Sequence[RenderedRequests] = (),
    skip_bad_items: bool = False,
    rescore_near_ties: Callable[[], Model] | None = None,
    executor: str | Workforce = "local",
    workers: int | None = None,
    progress: Progress | bool | None = None,
    command: Sequence[str] = (),
    typed: Sequence[str] = (),
    say: Callable[[str], None] | None = None,
) -> Run:
    """Score ``data`` with ``model`` under every one of ``protocols`` and return the run in folder ``out``.

    ``protocols``: catalogue names, families, signatures, TOML paths, or values by name.  ``limit``: the first questions
    of each subject.  ``rendered``: the requests of protocols that were rendered elsewhere.  ``skip_bad_items``: count
    questions that can't be asked as missing, instead of raising DataError.  ``rescore_near_ties`` loads a float32 copy
    of a 16-bit model, which answers again what noise leaves undecided.  A folder of the same measurement is continued,
    and only what it lacks is computed; protocols that ask what others already asked cost nothing.  ``progress`` is
    called with (done, total); True prints lines on stderr.  Protocols that the model can't be asked under are refused
    with a warning that names them, and the others are asked.  ``command`` and ``typed``, one line, are kept in
    the manifest, where they are explained.

    ``executor="local"`` computes here, with ``workers`` above 1 in so many processes, each with a copy of the model (on
    a GPU of its own where there are several); ``"ray"`` on a Ray cluster (:mod:`choicewise.running.executors`).  The
    numbers are the same: to the bit where the same kind of device computes with as many threads.

    Questions that a model behind a server gave no answer to in earlier calls are asked once more.  ``say`` gets a line
    about how many of them have an answer now, and about workers that die, are refused or are waited for.

    Raises DataError, ProtocolError, ModelError, StoreError and UsageError as :mod:`choicewise.errors` describes.
    """
    for argument, value in (("protocols", protocols), ("subjects", subjects)):
        if isinstance(value, str):
            raise UsageError(f"{argument} is the text {value!r}, not a list; write {argument}=[{value!r}]")
    recipes = dict(protocols) if isinstance(protocols, Mapping) else resolve(*protocols)
    if subjects is not None and not subjects:
        raise UsageError("subjects is an empty list; name at least one, or leave it out for all")
    for word in (str(out), *command):
        refuse_secret(word, "a word of the command")
    check_folder(Path(out))
    if not recipes:
        raise UsageError("no protocol was named; `choicewise protocols` lists them")
    if not isinstance(data, Dataset):
        data = open_dataset(data, on_bad_item="skip" if skip_bad_items else "error")
    if not isinstance(protocols, Mapping):  # ways between protocols pass by what the data can't be asked
        recipes = resolve(*protocols, possible=partial(has_shots, data, subjects))
    given = isinstance(executor, Workforce)
    workforce = executor if isinstance(executor, Workforce) else Workforce(Parallel(executor, workers))
    if isinstance(model, str | Path):
        model = load_model(model, **workforce.parallel.loading(None))
    work = Work.of(model, data, recipes, subjects, limit, rendered, skip_bad_items)
    wanted = Manifest(
        model=_model_record(model),
        dataset=DatasetRecord(
            data.name, data.digest, data.skipped, data.categories, data.content, data.source, data.read_with
        ),
        selection=Selection(None if subjects is None else tuple(sorted(set(subjects))), limit),
        protocols={name: signature(recipe) for name, recipe in work.protocols.items()},
        versions=_versions(model),
        command=tuple(command),
        typed=(tuple(typed),) if typed else (),
        server=server_record(model),
        refused=dict(work.refused),
    )
    if isinstance(progress, bool) or progress is None:
        tokens = partial(getattr, model, "computed")  # of replicas nothing is known before the first answer
        progress = ProgressReport(model.name, computed=tokens) if progress else lambda done, total: None
    if new := not (Path(out) / MANIFEST).exists():  # a bad item is refused before anything is written
        work.check(list(work.stretches()))
    ended_here = nullcontext() if given else workforce
    with open_folder(Path(out), wanted, item_rows(work.sections)) as folder, ended_here:
        unanswered, stretches = folder.unanswered(), list(work.stretches(folder))
        if stretches and not new:
            work.check(stretches)
        if stretches or unanswered:
            with workforce.executor(Preparation(model, data, rendered, skip_bad_items), say or _silent) as answering:
                if stretches:
                    _observe(folder, answering, work, stretches, progress)
                    give_memory_back()
                if unanswered:
                    again = ask_again(folder, answering, work, unanswered, progress)
                    (say or _silent)(again.text)
            note_change(folder, model)
        if rescore_near_ties is not None and (undecided := open_items(open_run(out))):
            copied = rescore_near_ties()
            with workforce.executor(Preparation(copied, data, rendered, True), say or _silent) as answering:
                rescore(folder, copied, answering, work, undecided, progress)
        folder.finish()
    return open_run(out)


def _model_record(model: Model) -> ModelRecord:
    chat = model.tokenizer.chat
    own = model.name, model.digest, model.dtype, model.device, model.window
    source = getattr(model, "source", "")  # only models that were downloaded have one
    return ModelRecord(*own, "" if chat is None else chat.digest, source)


def item_rows(sections: Sequence[Section]) -> dict[str, Iterator[ItemRow]]:
    """The rows of the item table by split, to be read in this order."""
    by_split: dict[str, list[Section]] = {}
    for section in sections:
        by_split.setdefault(section.split, []).append(section)
    position = count()
    return {split: chain.from_iterable(_rows(each, position) for each in own) for split, own in by_split.items()}


def _rows(section: Section, position: Iterator[int]) -> Iterator[ItemRow]:
    for item in section.items:
        texts = item.id, item.subject, item.question, item.choices
        yield ItemRow(next(position), section.split, *texts, item.gold, _fields(item))


def _fields(item: Item) -> str:
    return json.dumps(dict(item.fields), ensure_ascii=False, sort_keys=True) if item.fields else "{}"


def _versions(model: Model) -> dict[str, str]:
    versions = {"python": platform.python_version()}
    more = getattr(model, "packages", ())  # only models in folders may need others
    for package in ("choicewise", "numpy", "pyarrow", "tokenizers", "torch", "transformers", *more):
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    return versions


def _selfcheck_record(check: SelfCheck) -> SelfCheckRecord:
    return SelfCheckRecord(check.rung, check.cost, check.difference, check.floor, check.noise, check.depth)


@contextmanager
def _described(folder: RunFolder, executor: Executor) -> Iterator[None]:
    """Say afterwards, however it ends, how the answers were computed."""
    try:
        yield
    finally:
        if (checked := executor.selfcheck) is not None:
            folder.describe(_selfcheck_record(checked))


def _silent(line: str) -> None:
    """Nobody reads it."""


def _observe(
    folder: RunFolder, executor: Executor, work: Work, stretches: Sequence[Stretch], progress: Progress
) -> None:
    """Have everything answered that the folder lacks, and write what comes."""
    blocks = work.blocks(stretches)
    lacking = sum(block.work for block in blocks)
    unanswered = sum(len(block.items) * len(block.asks) for block in blocks)
    before = int(lacking * (work.questions / unanswered - 1))  # as if a question took as much as those to come
    tracker, total = Tracker(executor, before), before + lacking
    pulses, running = Pulse(lambda: progress(tracker.done, total)), closing(executor.run(blocks, folder.observed()))
    with rare_collection(), pulses as pulse, running as results:
        progress(tracker.done, total)
        for result in results:
            writing = BlockWriter(folder, result.block.place, executor)
            with writing as writer, _described(folder, executor), tracker.block(result):
                for observed in result.observations:
                    writer.add(observed)
                    tracker.answered = writer.count
                    pulse.beat()
                names = [ask.name for ask in result.block.asks]
                writer.write(names, result.tokens_asked, result.requests, result.spans)
            progress(tracker.done, total)
