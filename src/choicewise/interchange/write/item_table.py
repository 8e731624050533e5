"""The log-likelihood of every choice as a plain table, which `choicewise import` reads back to the same numbers.

Texts stand as they are: these files are for programs, and a spreadsheet could take a text for a formula.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from choicewise.errors import UsageError
from choicewise.interchange.answered import AnsweredItem, answered_items
from choicewise.interchange.place import Filled, Place, Write, one_file
from choicewise.interchange.write import Export, Writer
from choicewise.interchange.write.row_table import csv_of, parquet_of
from choicewise.interchange.write.run_names import model_names, not_whole
from choicewise.protocols.readings import READINGS
from choicewise.results.run import Run

EMPTY = ""
"""The null context whose log-likelihoods are the column ``unconditional``."""

BATCH = 20_000
"""Rows that are held at once."""

SCHEMA = pa.schema(
    {name: pa.string() for name in ("model", "task", "item", "subject", "question")}
    | {
        "choice": pa.int16(),
        "gold": pa.bool_(),
        "context": pa.string(),
        "text": pa.string(),
        "loglikelihood": pa.float64(),
    }
    | {"unconditional": pa.float64(), "tokens": pa.int32(), "is_greedy": pa.bool_()},
    metadata={b"choicewise": b"items"},
)
"""A row per model, task, item and choice.

``task``: the protocols of a run that show the model the same prompt, by the name that they begin with, and the data
where several are exported.  ``choice``: its index, from 0; ``gold``: whether it is right; ``context``: what stands
before it where the choices of an item have contexts of their own, else null; ``text``: the continuation that was
scored, with the space it starts with.  ``loglikelihood`` and ``unconditional`` (after the empty context): nats.
"""


def item_rows(run: Run, model: str, data: str = "") -> Iterator[dict[str, Any]]:
    """Every choice of every item that was asked for one log-likelihood, by item and prompt.

    ``model``: its name in the table; ``data``: what the names of tasks end with.
    """
    names, nulls = _prompts(run)
    for prompt, item in answered_items(run, nulls):
        yield from _rows(model, names[prompt] + data, item)


def _prompts(run: Run) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Prompt → what it is called, and the null contexts that are wanted, of protocols that ask for a log-likelihood."""
    asked = {name: each for name, each in run.protocols.items() if READINGS[each.reading].one_likelihood}
    alike: dict[str, list[str]] = {}
    nulls: dict[str, list[str]] = {}
    for name, protocol in asked.items():
        alike.setdefault(protocol.prompt_digest, []).append(name)
        empty = [EMPTY] if protocol.null == EMPTY else []
        nulls[protocol.prompt_digest] = nulls.get(protocol.prompt_digest) or empty
    shared = {prompt: _shared(own) for prompt, own in alike.items()}
    stems = list(shared.values())
    names = {prompt: stem if stems.count(stem) == 1 else alike[prompt][0] for prompt, stem in shared.items()}
    return names, nulls


def _shared(names: Sequence[str]) -> str:
    """What the names begin with, up to a colon or slash; the first of them where that is nothing."""
    if len(names) == 1:
        return names[0]
    starts = [names[0][: mark.start()] for mark in re.finditer("[:/]", names[0])]
    shared = [start for start in starts if all(name.startswith((f"{start}:", f"{start}/")) for name in names)]
    return shared[-1] if shared else names[0]


def _rows(model: str, task: str, item: AnsweredItem) -> Iterator[dict[str, Any]]:
    about = {"model": model, "task": task, "item": item.id, "subject": item.subject, "question": item.question}
    for place, each in enumerate(item.choices):
        yield about | {
            "choice": place,
            "gold": place in item.gold,
            "context": None if each.context == item.context else each.context,
            "text": each.continuation,
            "loglikelihood": _number(each.loglikelihood),
            "unconditional": _number(each.after_null.get(EMPTY)),
            "tokens": each.tokens,
            "is_greedy": each.greedy,
        }


def _number(value: float | None) -> float | None:
    return None if value is None or value != value else value


def _tables(export: Export) -> Iterator[pa.Table]:
    waiting: list[dict[str, Any]] = []
    several = len({run.manifest.dataset.name for run in export.runs}) > 1
    for run, model in zip(export.runs, model_names(export.runs), strict=True):
        for row in item_rows(run, model, f" on {run.manifest.dataset.name}" if several else ""):
            waiting.append(row)
            if len(waiting) == BATCH:
                yield pa.Table.from_pylist(waiting, SCHEMA)
                waiting.clear()
        run.release()
    yield pa.Table.from_pylist(waiting, SCHEMA)


def _left_out(export: Export) -> list[str]:
    """A line per run that is not complete, or has protocols that ask for no log-likelihood of each choice."""
    lines = not_whole(export.runs)
    for run in export.runs:
        names = [name for name, each in run.protocols.items() if not READINGS[each.reading].one_likelihood]
        if names:
            lines.append(f"{run.folder}: left out {', '.join(names)}, which ask for no log-likelihood of each choice")
    return lines


def _ending(suffix: str, place: Place) -> Place:
    """``place`` for files of that ending alone, by which tables are known to whoever reads them."""

    def checked(out: Path, name: str, content: Sequence[str], write: Write) -> Filled:
        if out.suffix.lower() != suffix:
            raise UsageError(f"{out} does not end in {suffix}, by which it is known when it is read; name it so")
        return place(out, name, content, write)

    return checked


def _write_csv(export: Export, out: Path) -> Sequence[str]:
    import pyarrow.csv as pc

    with pc.CSVWriter(out, SCHEMA, write_options=pc.WriteOptions(quoting_style="needed")) as file:
        for table in _tables(export):
            file.write_table(table)
    return _left_out(export)


def _write_parquet(export: Export, out: Path) -> Sequence[str]:
    import pyarrow.parquet as pq

    with pq.ParquetWriter(out, SCHEMA, compression="zstd") as file:
        for table in _tables(export):
            file.write_table(table)
    return _left_out(export)


CSV = Writer(
    "the log-likelihood of every choice with its text, as `choicewise import` reads it; texts stand as they are",
    _write_csv,
    _ending(".csv", one_file(csv_of([f'"{name}"' for name in SCHEMA.names]))),
)

PARQUET = Writer(
    "the log-likelihood of every choice with its text, as `choicewise import` reads it",
    _write_parquet,
    _ending(".parquet", one_file(parquet_of(SCHEMA))),
)
