"""``choicewise sweep``: many models under many protocols, and what of it is missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from choicewise.cli import options
from choicewise.cli.output import command_line, tell
from choicewise.cli.report import print_folders
from choicewise.cli.several import do_sweep, words_of
from choicewise.cli.typed import typed_words
from choicewise.errors import UsageError
from choicewise.interchange.tasks.selector import split_tasks

if TYPE_CHECKING:
    from choicewise.running.source import Source
    from choicewise.running.sweep import Asked

INCOMPLETE = 7
"""The exit code where something is missing."""


def sweep(
    plan: Annotated[
        Path | None, typer.Argument(metavar="[PLAN.toml]", readable=False, help="Models, data and protocols.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", readable=False, help="The folder of all runs: new, or an earlier one to go on with."),
    ] = None,
    model: Annotated[list[str] | None, typer.Option("--model", help="As in `choicewise run`. Repeatable.")] = None,
    data: Annotated[
        list[str] | None,
        typer.Option("--data", help="As in `choicewise run`: each protocol on all that it can ask. Repeatable."),
    ] = None,
    protocol: Annotated[
        list[str] | None, typer.Option("--protocol", help="As in `choicewise run`. Repeatable.")
    ] = None,
    include_path: options.IncludePath = None,
    allow_task_code: options.AllowTaskCode = False,
    limit: options.Limit = None,
    on_bad_item: options.BadItems = options.OnBadItem.error,
    dtype: options.ModelDtype = None,
    device: options.Device = None,
    batch_tokens: options.BatchTokens = None,
    tokenizer: options.Tokenizer = None,
    executor: options.Executor = options.Kind.local,
    workers: options.Workers = None,
    every: options.All = False,
    json: options.Json = False,
) -> None:
    """Evaluate several models under protocols and suites, and print the tables and averages.

    Models come one after another, or with `--executor ray` at once, as many as the cluster has room for: in the order
    in which they are named, each when there are free GPUs, cores and memory for it. The last ones share what is left.

    A failure (a model that is not there, data that are missing, a window too small) is recorded, and the sweep goes on;
    the same line continues it, and opens nothing again that is complete. Exit code 7: something is missing.

    PLAN.toml has `models` and `protocols`, lists of names, and may have `data`, a list of paths, and `subjects`,
    `limit`, `on_bad_item`, `dtype`, `device`, `window`, `batch_tokens`, `tokenizer`, `memory`. A model may be a table
    with `name`, `revisions` (folders inside, or revisions on the Hub), `chat`, `system`, `adapter` and its own `dtype`,
    `device`, `window`, `batch_tokens`, `tokenizer`, `memory`; data a table with `path`, `benchmark` (whose place it
    takes) and `mapping` (a file or a table). `memory` is what a copy of the model takes of GPUs, or of main memory on a
    CPU, as in "12 GB"; left out, it is known from the model's files. Only Ray asks for it.
    """
    if out is None:
        raise UsageError("--out is missing: the folder of all runs")
    if json:
        options.refuse_without_use("--json prints every number and has", all=every)
    skip = "skip" if on_bad_item == options.OnBadItem.skip else None
    given: dict[str, object] = {"model": model, "data": data, "protocol": protocol, "limit": limit}
    given |= {"on_bad_item": skip, "dtype": None if dtype is None else str(dtype)}
    given |= {"device": device, "batch_tokens": batch_tokens, "tokenizer": tokenizer}
    tasks = _Tasks(include_path or [], allow_task_code)
    asked = _asked(plan, {name: value for name, value in given.items() if value is not None}, tasks)
    from choicewise.running.executors.parallel import Parallel

    asked = replace(asked, parallel=Parallel(str(executor), workers))
    record = do_sweep(asked, out, "all runs")
    print_folders([out], json, every)
    if missing := record.missing:
        tell(f"{len(missing)} of {len(record.cells)} runs are missing:")
        tell(*(f"  {cell.model} on {cell.dataset}: {cell.failure or 'not begun'}" for cell in missing))
    tell(f"wrote {out}; `{command_line('report', out)}` shows this again")
    if missing:
        raise typer.Exit(INCOMPLETE)


@dataclass(frozen=True)
class _Tasks:
    """Takes the harness tasks out of the protocols, with the options that are about them."""

    include_path: Sequence[Path]
    allow_code: bool

    def __call__(self, selectors: Sequence[str], on_bad_item: str) -> tuple[list[str], list[Source]]:
        from choicewise.interchange.tasks.task_source import task_sources

        tasks, others = split_tasks(selectors)
        if not tasks:
            own = {"include_path": self.include_path or None, "allow_task_code": self.allow_code}
            options.refuse_without_use("protocols without a task of the harness (lm-eval:TASK) have", **own)
            return others, []
        return others, [*task_sources(tasks, self.include_path, self.allow_code, on_bad_item)]


def _asked(plan: Path | None, given: dict[str, object], tasks: _Tasks) -> Asked:
    """What is to be done, as the plan or the options say."""
    lacking = [f"--{name}" for name in ("model", "protocol") if name not in given]
    if plan is not None:
        options.refuse_without_use("a plan says all that and has", **given)
    elif lacking:
        raise UsageError(f"{' and '.join(lacking)} missing: name a plan, or models and protocols")

    from choicewise.running.sweep_plan import plan_of, read_plan

    spelled = {"model": "models", "protocol": "protocols"}
    table = {spelled.get(name, name): value for name, value in given.items()}
    asked = plan_of(table, tasks) if plan is None else read_plan(plan, tasks)
    return replace(asked, command=words_of, typed=typed_words.get())
