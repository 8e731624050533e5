"""The main job: ask a model every question under every protocol, once, and keep what was seen in a run folder."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from choicewise.data.dataset import Dataset
from choicewise.errors import UsageError
from choicewise.protocols.protocol import Protocol
from choicewise.protocols.signature import signature
from choicewise.protocols.split import with_split
from choicewise.records.rows import ItemRow
from choicewise.requests.prepared_block import PreparedBlock
from choicewise.requests.schedule import Ask, Block, check, check_support, list_asks, list_blocks, prepare_block
from choicewise.running.observe import observe
from choicewise.running.rescore import left_open, rescore
from choicewise.store.block_writer import BlockWriter
from choicewise.store.folder import RunFolder, check_folder, open_folder
from choicewise.store.manifest import Manifest

if TYPE_CHECKING:
    from choicewise.models.model import Model
    from choicewise.results.run import Run

Progress = Callable[[int, int], None]
"""Told (done, total) in requests: items times distinct prompts.  Those asked again in float32 are counted anew."""


def evaluate(
    *,
    model: str | Path | Model,
    data: str | Path | Dataset,
    protocols: Sequence[str] | Mapping[str, Protocol],
    out: str | Path,
    subjects: Sequence[str] | None = None,
    limit: int | None = None,
    skip_bad_items: bool = False,
    rescore_near_ties: Callable[[], Model] | None = None,
    progress: Progress | None = None,
) -> Run:
    """Score ``data`` with ``model`` under every one of ``protocols`` and return the run in folder ``out``.

    ``protocols``: catalogue names, families, signatures, TOML paths, or values by name.  ``limit``: the first questions
    of each subject.  ``rescore_near_ties`` loads a float32 copy of a 16-bit model, which settles what noise leaves
    open.  A folder of the same measurement is continued, and only what it lacks is computed; protocols that ask what
    others already asked cost nothing.

    Raises DataError, ProtocolError, ModelError, StoreError and UsageError as :mod:`choicewise.errors` describes.
    """
    from choicewise.data.open_dataset import open_dataset
    from choicewise.models.load import load_model
    from choicewise.protocols.catalogue import resolve
    from choicewise.results.run import open_run

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
        check(data, asks, blocks)
    wanted = _manifest(model, data, recipes, subjects, limit)
    with open_folder(Path(out), wanted, _item_rows(blocks)) as folder:
        _observe(folder, model, data, asks, blocks, skip_bad_items, progress or _unseen)
        if rescore_near_ties is not None and (undecided := left_open(open_run(out))):
            rescore(folder, rescore_near_ties(), data, asks, blocks, undecided, progress or _unseen)
        folder.finish()
    return open_run(out)


def _item_rows(blocks: Sequence[Block]) -> list[ItemRow]:
    items = [(block.split, item) for block in blocks for item in block.items]
    return [
        ItemRow(
            position=position,
            split=split,
            item=item.id,
            subject=item.subject,
            question=item.question,
            choices=item.choices,
            gold=item.gold,
            fields=json.dumps(dict(item.fields), ensure_ascii=False, sort_keys=True),
        )
        for position, (split, item) in enumerate(items)
    ]


def _manifest(
    model: Model, data: Dataset, recipes: Mapping[str, Protocol], subjects: Sequence[str] | None, limit: int | None
) -> Manifest:
    return Manifest(
        model={key: getattr(model, key) for key in ("name", "digest", "dtype", "device", "window")},
        dataset={"name": data.name, "digest": data.digest, "skipped": [asdict(bad) for bad in data.skipped]},
        selection={"subjects": None if subjects is None else sorted(set(subjects)), "limit": limit},
        protocols={name: signature(recipe) for name, recipe in recipes.items()},
        versions=_versions(),
    )


def _engine(model: Model) -> dict[str, Any]:
    """The path that the model's self-check chose, and its noise in nats; nothing for a model without one."""
    found = getattr(model, "selfcheck", None)
    return (
        {} if found is None else {key: getattr(found, key) for key in ("rung", "cost", "difference", "floor", "depth")}
    )


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in ("choicewise", "numpy", "pyarrow", "tokenizers", "torch", "transformers"):
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def _observe(
    folder: RunFolder,
    model: Model,
    data: Dataset,
    asks: Sequence[Ask],
    blocks: Sequence[Block],
    skip_bad_items: bool,
    progress: Progress,
) -> None:
    known = folder.observed()
    total = sum(len(block.items) for block in blocks for ask in asks if ask.protocol.split == block.split)
    work = [(block, _left(folder, asks, block)) for block in blocks]
    done = total - sum(len(block.items) * len(left) for block, left in work)
    progress(done, total)
    work = [(block, left) for block, left in work if left]
    for block, left, asking in _asked_ahead(folder, data, work, model, skip_bad_items):
        wanted = {key: question for key, question in asking.wanted.items() if key not in known}
        with BlockWriter(folder, block.place, model) as pending:
            for observation in observe(model, wanted):
                pending.add(observation)
                progress(done + len(left) * len(block.items) * pending.count // len(wanted), total)
            pending.write([ask.name for ask in left], asking.inputs, asking.requests, asking.spans)
        known.update(wanted)
        done += len(left) * len(block.items)
        progress(done, total)


def _left(folder: RunFolder, asks: Sequence[Ask], block: Block) -> list[Ask]:
    """The ways of asking that the folder lacks for a block."""
    mine = {ask.name: ask for ask in asks if ask.protocol.split == block.split}
    missing = folder.missing_asks(*block.place, list(mine))
    return [mine[name] for name in missing]


def _asked_ahead(
    folder: RunFolder, data: Dataset, work: Sequence[tuple[Block, list[Ask]]], model: Model, skip_bad_items: bool
) -> Iterator[tuple[Block, list[Ask], PreparedBlock]]:
    """Every block with its questions, rendered and tokenized while the model is busy: with the block before it, or, to
    begin with, with its check of itself, which goes into the folder."""
    if not work:
        return
    with ThreadPoolExecutor(1) as ahead:
        coming = ahead.submit(prepare_block, data, *work[0], model, skip_bad_items)
        folder.describe(_engine(model))
        for place, (block, left) in enumerate(work, start=1):
            asking = coming.result()
            if place < len(work):
                coming = ahead.submit(prepare_block, data, *work[place], model, skip_bad_items)
            yield block, left, asking


def _unseen(done: int, total: int) -> None:
    """Progress that nobody looks at."""
