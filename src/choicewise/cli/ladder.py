"""``choicewise ladder``: from one protocol to another, one axis at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from choicewise.cli import options
from choicewise.cli.continuing import begun_words
from choicewise.cli.evaluation import Evaluation
from choicewise.cli.output import command_line, print_json, print_parts, show, tell
from choicewise.cli.plan import token_savings
from choicewise.errors import UsageError

if TYPE_CHECKING:
    from choicewise.protocols.between import End
    from choicewise.results.ladder import Ladder
    from choicewise.results.run import Run

_HELP = "A catalogue name (with several scores: its headline), one of its scores, a signature or a TOML file."


def ladder(
    start: Annotated[str, typer.Argument(metavar="P", help=_HELP)],
    end: Annotated[str, typer.Argument(metavar="Q", help="The same.")],
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="[DIR]", readable=False, help="A run folder; none to evaluate with --model."),
    ] = None,
    model: Annotated[str | None, typer.Option("--model", help="Evaluate this one; as in `choicewise run`.")] = None,
    data: Annotated[
        Path | None, typer.Option("--data", readable=False, help="On this; as in `choicewise run`.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", readable=False, help="The run folder, with --model: new, or to go on with.")
    ] = None,
    subject: options.Subjects = None,
    limit: options.Limit = None,
    on_bad_item: options.BadItems = options.OnBadItem.error,
    mapping: options.Mapping = None,
    dtype: options.ModelDtype = None,
    device: options.Device = None,
    window: options.Window = None,
    batch_tokens: options.BatchTokens = None,
    adapter: options.Adapter = None,
    tokenizer: options.Tokenizer = None,
    json: options.Json = False,
) -> None:
    """Show from protocol P to Q what each axis changes: points, paired error, items that turn right and wrong.

    With a run folder: what it observed, and the line that observes the rest. With --model, --data and --out: all of it.
    """
    needed = {"--model": model, "--data": data, "--out": out}
    lacking = [name for name, value in needed.items() if value is None]
    if folder is not None:
        given = {"model": model, "data": data, "out": out, "subject": subject, "limit": limit, "mapping": mapping}
        given |= {"on_bad_item": on_bad_item != options.OnBadItem.error or None, "dtype": dtype, "device": device}
        given |= {"window": window, "batch_tokens": batch_tokens, "adapter": adapter, "tokenizer": tokenizer}
        options.refuse_without_use("a run folder has", **given)
        _show_run(start, end, folder, json)
    elif model is None or data is None or out is None:
        raise UsageError(
            f"{' and '.join(lacking)} missing: name a run folder after the protocols, or all three of these"
        )
    else:
        local = dtype, device, window, batch_tokens
        asked = Evaluation(
            model, data, subject, limit, on_bad_item, mapping, *local, adapter=adapter, tokenizer=tokenizer
        )
        _evaluate(start, end, asked, out, json)


@dataclass(frozen=True)
class _Named:
    """What P or Q stands for, and how a line says it."""

    end: End
    spelled: str


def _show_run(start: str, end: str, folder: Path, json: bool) -> None:
    from choicewise.protocols.between import MARK
    from choicewise.results.run import open_run
    from choicewise.results.sweep import one_run

    folder = one_run(folder)
    run = open_run(folder)
    first, last = _named(start, run), _named(end, run)
    _refuse_same(first.end, last.end)
    if lacking := run.lacking({side.end.name: side.end.protocol for side in (first, last)}):
        line = _line(run, first, last)
        ask = f"{' and '.join(lacking)} ask{'s' * (len(lacking) == 1)}"
        raise UsageError(f"{folder} was not asked what {ask}; `{line}` asks it and all between")
    if not run.manifest.complete:
        tell(f"{folder} is not complete; repeat its `{run.manifest.writer}` line to finish it")
    way = f"{first.end.label}{MARK}{last.end.label}:"
    new = not any(name.startswith(way) for name in run.protocols)
    _print(run, first.end, last.end, json, lambda: _line(run, first, last) if new else None)


def _evaluate(start: str, end: str, asked: Evaluation, out: Path, json: bool) -> None:
    asked.refuse_foreign()
    from choicewise.protocols.between import protocols_between
    from choicewise.protocols.catalogue import names, one

    first, last = one(start), one(end)
    _refuse_same(first, last)
    from choicewise.store.folder import check_folder

    check_folder(out)
    (source,) = asked.sources([start])
    dataset, recipes = asked.open(source, lambda possible: protocols_between(first, last, names(), possible))
    model = asked.load()
    from choicewise.running.refusals import check_all

    check_all(model, dataset, {first.name: first.protocol, last.name: last.protocol})
    run = asked.into(out, model, dataset, recipes)
    _print(run, first, last, json, lambda: None)
    if (spent := run.manifest.engine.spent) is not None:
        tell(token_savings(spent))
    tell(f"wrote {out}; `{command_line('ladder', start, end, out)}` shows this again")


def _print(run: Run, start: End, end: End, json: bool, line: Callable[[], str | None]) -> None:
    """The ladder; where the run did not ask all between, with the ``line`` that does."""
    from choicewise.protocols.catalogue import names
    from choicewise.report.ladder_text import ladder_table
    from choicewise.results.both_ways import both_ways

    both = both_ways(run, start, end, names())
    rest = line() if both.coarse else None
    if json:
        print_json({"in_order": both.in_order, "in_reverse": both.in_reverse, "turns": both.turns, "rest": rest})
        return
    print_parts([ladder_table(both)])
    _tell_example(run, both.in_order)
    if rest is not None:
        show("this asks the protocols between:", rest)


def _tell_example(run: Run, climbed: Ladder) -> None:
    """How to see an item that the greatest step turns right, or wrong."""
    named = [step for step in climbed.steps if step.gained_items or step.lost_items]
    if named:
        step = max(named, key=lambda step: abs(step.change))
        item, *_ = (*step.gained_items, *step.lost_items)
        turns = "right" if step.gained_items else "wrong"
        line = command_line("explain", run.folder, "--item", item)
        tell(f"an item that {step.axes[0].axis} turns {turns}: `{line}`")


def _named(text: str, run: Run) -> _Named:
    """The protocol that the run has under this name, else what the catalogue knows by it."""
    from choicewise.protocols.between import End
    from choicewise.protocols.catalogue import names, one
    from choicewise.protocols.signature import signature

    protocol = run.protocols.get(text)
    published = {name: known for known, name in names().items() if name == text}
    if protocol is None or run.on_its_split(published).get(text) == protocol:
        return _Named(one(text), text)
    return _Named(End(text, protocol, text), signature(protocol))


def _refuse_same(start: End, end: End) -> None:
    if start.protocol == end.protocol:
        raise UsageError(f"{start.name} and {end.name} are the same protocol; name two that differ")
    if start.name == end.name:
        raise UsageError(f"two protocols are called {start.name}; give one of the files another name")


def _line(run: Run, start: _Named, end: _Named) -> str:
    """The line that asks all between the two."""
    from choicewise.protocols.between import MARK

    way = f"{start.spelled}{MARK}{end.spelled}"
    return command_line("run", *begun_words(run.manifest), "--protocol", way, "--out", run.folder)
