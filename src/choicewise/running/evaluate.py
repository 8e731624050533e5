"""The main job: ask a model every question under every protocol, once, and keep the observations in a run folder."""

import json
import platform
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from choicewise.data.dataset import Dataset
from choicewise.data.open_dataset import open_dataset
from choicewise.errors import UsageError
from choicewise.models.load import load_model
from choicewise.models.model import Model
from choicewise.protocols.catalogue import resolve
from choicewise.protocols.protocol import Protocol
from choicewise.protocols.signature import signature
from choicewise.records.manifest import DatasetRecord, Manifest, ModelRecord, Selection, SelfCheckRecord
from choicewise.records.rows import ItemRow
from choicewise.requests.rendered import RenderedRequests
from choicewise.requests.schedule import Ask, Block, check, check_support, list_asks, list_blocks, with_split
from choicewise.results.run import Run, open_run
from choicewise.running.executor import BlockWork, Executor, InProcess
from choicewise.running.progress import ProgressReport
from choicewise.running.rescore import open_items, rescore
from choicewise.store.block_writer import BlockWriter
from choicewise.store.folder import RunFolder, check_folder, open_folder

Progress = Callable[[int, int], None]
"""Is called with (done, total) requests: items times distinct prompts.  Rescoring in float32 counts again from 0."""


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
    progress: Progress | bool | None = None,
) -> Run:
    """Score ``data`` with ``model`` under every one of ``protocols`` and return the run in folder ``out``.

    ``protocols``: catalogue names, families, signatures, TOML paths, or values by name.  ``limit``: the first questions
    of each subject.  ``rendered``: the requests of protocols that were rendered elsewhere.  ``skip_bad_items``: count
    questions that can't be asked as missing, instead of raising DataError.  ``rescore_near_ties`` loads a float32 copy
    of a 16-bit model, which answers again what noise leaves undecided.  A folder of the same measurement is continued,
    and only what it lacks is computed; protocols that ask what others already asked cost nothing.  ``progress`` is
    called with (done, total); True prints lines on stderr.

    Raises DataError, ProtocolError, ModelError, StoreError and UsageError as :mod:`choicewise.errors` describes.
    """
    for argument, value in (("protocols", protocols), ("subjects", subjects)):
        if isinstance(value, str):
            raise UsageError(f"{argument} is the text {value!r}, not a list; write {argument}=[{value!r}]")
    recipes = dict(protocols) if isinstance(protocols, Mapping) else resolve(*protocols)
    if subjects is not None and not subjects:
        raise UsageError("subjects is an empty list; name at least one, or leave it out for all")
    check_folder(Path(out))
    if not recipes:
        raise UsageError("no protocol was named; `choicewise protocols` lists them")
    if not isinstance(data, Dataset):
        data = open_dataset(data, on_bad_item="skip" if skip_bad_items else "error")
    if isinstance(model, str | Path):
        model = load_model(model)
    recipes = {name: with_split(recipe, data) for name, recipe in recipes.items()}
    check_support(recipes, model.name, model.supports)
    asks = list_asks(recipes)
    blocks = list_blocks(data, recipes, subjects, limit)
    if not skip_bad_items:
        check(data, asks, blocks, rendered)
    wanted = Manifest(
        model=ModelRecord(model.name, model.digest, model.dtype, model.device, model.window),
        dataset=DatasetRecord(data.name, data.digest, data.skipped, data.categories),
        selection=Selection(None if subjects is None else tuple(sorted(set(subjects))), limit),
        protocols={name: signature(recipe) for name, recipe in recipes.items()},
        versions=_versions(),
    )
    if isinstance(progress, bool) or progress is None:
        progress = ProgressReport(model.name) if progress else lambda done, total: None
    with open_folder(Path(out), wanted, _item_rows(blocks)) as folder:
        _observe(folder, InProcess(model, data, rendered, skip_bad_items), asks, blocks, progress)
        if rescore_near_ties is not None and (undecided := open_items(open_run(out))):
            rescore(folder, rescore_near_ties(), data, rendered, asks, blocks, undecided, progress)
        folder.finish()
    return open_run(out)


def _item_rows(blocks: Sequence[Block]) -> list[ItemRow]:
    rows: list[ItemRow] = []
    for split, item in ((block.split, item) for block in blocks for item in block.items):
        fields = json.dumps(dict(item.fields), ensure_ascii=False, sort_keys=True)
        rows.append(ItemRow(len(rows), split, item.id, item.subject, item.question, item.choices, item.gold, fields))
    return rows


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in ("choicewise", "numpy", "pyarrow", "tokenizers", "torch", "transformers"):
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    return versions


def _observe(
    folder: RunFolder, executor: Executor, asks: Sequence[Ask], blocks: Sequence[Block], progress: Progress
) -> None:
    """Have everything answered that the folder lacks, and write what comes."""
    done = total = 0
    work: list[BlockWork] = []
    for block in blocks:
        needed = {ask.name: ask for ask in asks if ask.protocol.split == block.split}
        missing = [needed[name] for name in folder.missing_asks(block.place, needed)]
        done += len(block.items) * (len(needed) - len(missing))
        total += len(block.items) * len(needed)
        if missing:
            work.append(BlockWork(block, missing))
    progress(done, total)
    for result in executor.run(work, folder.observed()):
        if (check := result.selfcheck) is not None:
            folder.describe(SelfCheckRecord(check.rung, check.cost, check.difference, check.floor, check.depth))
        size = len(result.work.block.items) * len(result.work.asks)
        with BlockWriter(folder, result.work.block.place, executor) as writer:
            for observation in result.observations:
                writer.add(observation)
                progress(done + size * writer.count // result.questions, total)
            names = [ask.name for ask in result.work.asks]
            writer.write(names, result.tokens_asked, result.requests, result.spans)
        done += size
        progress(done, total)
