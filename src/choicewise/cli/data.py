"""Data, fetch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from choicewise.cli import options
from choicewise.cli.terminal import (
    check_interrupt,
    print_json,
    print_parts,
    show,
    show_download,
    tell,
)
from choicewise.errors import ChoicewiseError, UnknownShape, UsageError
from choicewise.util.text import command_line

if TYPE_CHECKING:
    from choicewise.data.dataset import Dataset
    from choicewise.running.fetch import Delivery


def data(
    place: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="A file or folder of questions, the name of a benchmark, or of a dataset on the Hub.",
        ),
    ],
    mapping: options.MappingFile = None,
    json: options.Json = False,
) -> None:
    """Show what a dataset is: columns, splits, subjects, ten items, right answers, doubles, damaged texts.

    Of columns of no known shape the mapping that was guessed is printed, too; where no guess fits every row, a mapping
    to correct is printed instead, and the exit code is 2. No model is needed.
    """
    from choicewise.data.guess import mapping_lines
    from choicewise.data.survey import survey
    from choicewise.requests.blocks import refusals_by_entry

    try:
        dataset = _opened(place, mapping)
    except UnknownShape as unknown:
        tell(
            f"error: {unknown.message.partition(';')[0]}",
            "write these lines into a file, correct them, and pass it: --mapping FILE",
        )
        show(*unknown.problems)
        raise typer.Exit(2) from None
    surveyed = survey(dataset)
    refusals = refusals_by_entry(dataset, surveyed.rows)
    if json:
        print_json({**surveyed.as_json(), "protocols": refusals})
        return
    from choicewise.report.data import data_tables, data_warnings, fits, recognised

    show(*recognised(surveyed), "")
    print_parts(data_tables(surveyed))
    # Questions that stand twice are among the warnings, by their ids.
    notes = [note for note in dataset.notes if "same question and choices" not in note]
    looked = [*notes, *data_warnings(surveyed)]
    show(
        "to look at" if looked else "nothing suspicious in answers, doubles and texts", *looked, ""
    )
    show(*fits(surveyed, refusals))
    if dataset.guess and dataset.columns is not None:
        show(
            "",
            "the columns are guessed; to read them otherwise correct this in a file, and pass it: --mapping FILE",
        )
        show(*mapping_lines(dataset.columns))


def _opened(place: str, mapping: Path | None) -> Dataset:
    """The dataset, without the rows that can't be used: what is wrong with them is among what is shown."""
    from choicewise.data.benchmarks import benchmarks, open_benchmark
    from choicewise.data.dataset import read_mapping
    from choicewise.data.open import open_dataset

    columns = None if mapping is None else read_mapping(mapping)
    if columns is None and place in benchmarks() and not Path(place).exists():
        return open_benchmark(place, on_bad_item="skip", progress=show_download())
    return open_dataset(place, on_bad_item="skip", columns=columns, progress=show_download())


def fetch(
    to: Annotated[
        Path,
        typer.Option(
            "--to", readable=False, help="The folder: new, or an earlier one to go on with."
        ),
    ],
    protocol: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PROTOCOL]...", help="Protocols, families, suites or benchmarks."),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option("--model", help="A model on the Hub: ORG/NAME@REVISION. Repeatable."),
    ] = None,
    json: options.Json = False,
) -> None:
    """Fetch the data of benchmarks, and models, from the Hub into a folder, with their checksums.

    Each benchmark has a folder DIR/NAME, which is read where the environment variable CHOICEWISE_DATA is DIR; models
    are in DIR/models/ORG/NAME. Repeating the line fetches what is not there yet.
    """
    from choicewise.data.hub import hub_name
    from choicewise.running.fetch import fetch_benchmark, fetch_model, needed_benchmarks

    if not protocol and not model:
        raise UsageError(
            "nothing to fetch; name protocols, families, suites or benchmarks, or a model with --model"
        )
    work: list[Callable[[], Delivery]] = []
    names, progress = needed_benchmarks(protocol or []), show_download()
    for text in model or ():
        if (named := hub_name(text)) is None:
            raise UsageError(f"{text} is no name on the Hub; it is ORG/NAME, or ORG/NAME@REVISION")
        work.append(partial(fetch_model, named, to, progress))
    work = [partial(fetch_benchmark, name, to, progress) for name in names] + work
    deliveries: list[Delivery] = []
    failures: list[ChoicewiseError] = []
    for each in work:
        check_interrupt()
        try:
            deliveries.append(each())
        except ChoicewiseError as error:
            failures.append(error)
        else:
            _show(deliveries[-1], json)
    if json:
        print_json([{**asdict(each), "folder": str(each.folder)} for each in deliveries])
    if names:
        tell(
            f"set CHOICEWISE_DATA={to.absolute()} to read them, there or where the folder is copied to"
        )
    if failures:
        first, *more = failures
        if not more:
            raise first
        command = command_line(
            "fetch",
            *(protocol or ()),
            *(w for m in model or () for w in ("--model", m)),
            "--to",
            to,
        )
        raise type(first)(
            f"{len(failures)} could not be fetched; `{command}` tries again",
            [str(f) for f in failures],
        )


def _show(delivery: Delivery, json: bool) -> None:
    from choicewise.util.text import counted, size

    if not json:
        state = f"{delivery.new} new" if delivery.new else "all there already"
        about = f"{counted(delivery.files, 'file')}, {size(delivery.bytes)}, {state}"
        show(f"{delivery.name}: {about}, {delivery.folder}, from {delivery.source}")
