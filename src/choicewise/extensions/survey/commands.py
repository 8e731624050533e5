"""Show what a dataset is: ``choicewise data``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from choicewise.cli import options
from choicewise.cli.terminal import (
    print_json,
    print_parts,
    show,
    show_download,
    tell,
)
from choicewise.errors import UnfitRow, UnknownShape

if TYPE_CHECKING:
    from choicewise.data.dataset import Dataset


def data(
    name: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="A file or folder of questions, a benchmark's name, or a Hub dataset.",
        ),
    ],
    mapping: options.MappingFile = None,
    json: options.Json = False,
) -> None:
    """Show a dataset's columns, splits, subjects, ten items and answers, and its duplicates and
    damage.

    Detected columns are printed as a mapping that you can edit. If detection fails, a mapping to
    complete is printed, with exit code 2. No model is needed.
    """
    from choicewise.data.guess import mapping_lines
    from choicewise.extensions.survey.fitting import fits, refusals_by_entry
    from choicewise.extensions.survey.survey import survey

    try:
        dataset = _opened(name, mapping)
    except UnknownShape as unknown:
        tell(
            f"error: {unknown.message.partition(';')[0]}",
            "Save this as mapping.toml, edit it, and add --mapping mapping.toml:",
        )
        show(*unknown.problems)
        if isinstance(unknown, UnfitRow):
            tell("`run --mapping mapping.toml --on-bad-item skip` leaves out rows that do not fit.")
        raise typer.Exit(2) from None
    surveyed = survey(dataset)
    refusals = refusals_by_entry(dataset, surveyed.rows)
    if json:
        print_json({**surveyed.as_json(), "protocols": refusals})
        return
    from choicewise.extensions.survey.survey_report import data_tables, data_warnings, recognised

    show(*recognised(surveyed), "")
    print_parts(data_tables(surveyed))
    # Questions that stand twice are among the warnings, by their ids.
    notes = [note for note in dataset.notes if "same question and choices" not in note]
    suspicious = [*notes, *data_warnings(surveyed)]
    heading = "no problems found in answers, duplicates and texts"
    if suspicious:
        heading = "check these"
    show(heading, *suspicious, "")
    show(*fits(surveyed, refusals))
    if dataset.guess and dataset.columns is not None:
        show(
            "",
            (
                "The columns were detected. To override, save this as mapping.toml, edit it, "
                "and add --mapping mapping.toml:"
            ),
        )
        show(*mapping_lines(dataset.columns))


def _opened(name: str, mapping: Path | None) -> Dataset:
    """Open the dataset without the rows that can't be used: their faults are among the notes."""
    from choicewise.data.benchmarks import benchmarks, open_benchmark
    from choicewise.data.dataset import read_mapping
    from choicewise.data.open import open_dataset

    # Bad rows are skipped, so that all that is wrong with a file is seen at once.
    columns = None
    if mapping is not None:
        columns = read_mapping(mapping)
    elif name in benchmarks() and not Path(name).exists():
        return open_benchmark(name, on_bad_item="skip", progress=show_download())
    return open_dataset(name, on_bad_item="skip", columns=columns, progress=show_download())
