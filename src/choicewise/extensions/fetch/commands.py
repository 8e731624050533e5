"""Fetch data and models: ``choicewise fetch``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from choicewise.cli import options
from choicewise.cli.terminal import check_interrupt, print_json, show, show_download, tell
from choicewise.errors import ChoicewiseError, UsageError
from choicewise.util.text import command_line, counted, size

if TYPE_CHECKING:
    from choicewise.extensions.fetch.fetch import Delivery


def fetch(
    to: Annotated[
        Path,
        typer.Option(
            "--to", readable=False, help="The folder; if it exists, only missing files are fetched."
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
    """Download benchmark data and models from the Hub into a folder, with checksums.

    Benchmarks go to DIR/NAME, models to DIR/models/ORG/NAME. Set CHOICEWISE_DATA=DIR to use the
    data. Run the same command again to fetch what is missing.
    """
    from choicewise.data.hub import hub_name
    from choicewise.extensions.fetch.fetch import fetch_benchmark, fetch_model, needed_benchmarks

    if not protocol and not model:
        raise UsageError(
            "nothing to fetch; name protocols, families, suites or benchmarks, or a model "
            "with --model"
        )
    progress = show_download()
    steps: list[Callable[[], Delivery]] = []
    for benchmark in needed_benchmarks(protocol or []):
        steps.append(partial(fetch_benchmark, benchmark, to, progress))
    benchmarks = len(steps)
    for text in model or ():
        repository = hub_name(text)
        if repository is None:
            raise UsageError(f"{text} is not a Hub name; write ORG/NAME or ORG/NAME@REVISION")
        steps.append(partial(fetch_model, repository, to, progress))
    deliveries, failures = _deliver(steps, json)
    if json:
        rows = [{**asdict(delivery), "folder": str(delivery.folder)} for delivery in deliveries]
        print_json(rows)
    if benchmarks and deliveries:
        tell(
            f"Set CHOICEWISE_DATA={to.absolute()} to use the data. If you copy the "
            "folder, set its new path."
        )
    if failures:
        words: list[str | Path] = list(protocol or ())
        for text in model or ():
            words += ["--model", text]
        raise _joined(failures, command_line("fetch", *words, "--to", to))


def _joined(failures: Sequence[ChoicewiseError], command: str) -> ChoicewiseError:
    """Return the only failure, or one error that lists all and names the ``command`` that tries
    again.
    """
    first = failures[0]
    if len(failures) == 1:
        return first
    return type(first)(
        f"{len(failures)} could not be fetched; `{command}` tries again",
        [str(failure) for failure in failures],
    )


def _deliver(
    steps: Sequence[Callable[[], Delivery]], json: bool
) -> tuple[list[Delivery], list[ChoicewiseError]]:
    """Fetch one thing after the other; a failure does not keep the others back."""
    deliveries = []
    failures = []
    for step in steps:
        check_interrupt()
        try:
            delivery = step()
        except ChoicewiseError as error:
            failures.append(error)
            continue
        deliveries.append(delivery)
        if not json:
            _show(delivery)
    return deliveries, failures


def _show(delivery: Delivery) -> None:
    state = "already there"
    if delivery.new:
        state = f"{delivery.new} new"
    content = f"{counted(delivery.files, 'file')}, {size(delivery.bytes)}, {state}"
    show(f"{delivery.name}: {content}, {delivery.folder}, from {delivery.source}")
