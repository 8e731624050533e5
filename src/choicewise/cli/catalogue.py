"""Protocols, prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated

import typer

from choicewise.cli import options, terminal
from choicewise.cli.commands import Command
from choicewise.cli.options import Part, Tasks, grouped
from choicewise.cli.terminal import print_json, show_download, tell
from choicewise.errors import DataError, ModelError, UsageError
from choicewise.util.text import counted

if TYPE_CHECKING:
    from choicewise.data.dataset import Dataset
    from choicewise.protocols.catalogue import Suite
    from choicewise.protocols.protocol import Protocol
    from choicewise.requests.render import RenderedRequests
    from choicewise.running.job import Job
    from choicewise.tokens.chat_template import ChatTemplate


protocols = typer.Typer(
    help="List the published protocols; show one in full; compare two.", rich_markup_mode=None
)

Name = Annotated[str, typer.Argument(help="A catalogue name, a signature or a TOML file.")]


@protocols.callback(invoke_without_command=True)
def listing(context: typer.Context, json: options.Json = False) -> None:
    """List the catalogue, and the names of groups."""
    if (command := context.invoked_subcommand) is not None:
        if json:
            raise UsageError(f"--json before {command} is about the list; write it after {command}")
        return
    from choicewise.protocols.catalogue import entries, groups, suite, suite_names

    suites = [suite(name) for name in suite_names()]
    if json:
        sets = [
            (
                name,
                _members(name),
                [protocol for each in members for protocol in each.protocols],
                None,
            )
            for name, members in groups().items()
        ]
        alone, averaged = (
            [(each.name, each.title, [*each.protocols], each.source) for each in own]
            for own in (entries(), suites)
        )
        keys = ("name", "title", "protocols", "source")
        terminal.print_json(
            [dict(zip(keys, row, strict=True)) for row in (*alone, *sets, *averaged)]
        )
        return
    width = max(map(len, (*groups(), *suite_names(), *(each.name for each in entries()))))
    for each in entries():
        more = f" ({len(each.protocols)} scores)" if len(each.protocols) > 1 else ""
        terminal.show(f"{each.name:<{width}} {each.title}{more}")
    terminal.show("", "groups: a name for several at once")
    for name in groups():
        terminal.show(f"{name:<{width}} {_members(name)}")
    terminal.show(*(["", "suites: several benchmarks, and their average"] if suites else []))
    for one in suites:
        terminal.show(f"{one.name:<{width}} {one.title}")
    terminal.show(
        "",
        "a score has a name of its own, such as mmlu/harness-v0:sum; `choicewise protocols show mmlu` lists some",
    )
    from choicewise.protocols.names import FORMULATIONS, SCORE_NAMES

    terminal.show(
        "", "names of scores elsewhere: mmlu/cf:acc_norm, or --score acc_norm for all that have it"
    )
    for called, meant in SCORE_NAMES.items():
        terminal.show(f"{called:<{width}} {meant.score:<14} {meant.tool}: {meant.description}")
    for called, ours in FORMULATIONS.items():
        terminal.show(f"{f'FAMILY/{called}':<{width}} FAMILY/{ours}")


def _members(group: str) -> str:
    from choicewise.protocols.catalogue import groups

    members = [each.name for each in groups()[group]]
    if "/" in group or len(members) == 1:
        return ", ".join(members)
    return f"all {len(members)} of the family"


@protocols.command(cls=Command)
def show(name: Name, json: options.Json = False) -> None:
    """Show what a protocol does, its source, and every axis; of a suite its parts and how they are averaged."""
    from choicewise.protocols.between import MARK
    from choicewise.protocols.catalogue import entry, resolve, spelled, suite, suite_names
    from choicewise.protocols.protocol import short_signature, signature

    name = spelled(name)
    if name in suite_names():
        _show_suite(suite(name), json)
        return
    recipes = resolve(name)
    if json:
        terminal.print_json(recipes)
        return
    first, headline = next(iter(recipes.items()))
    if "|" not in name and not name.endswith(".toml") and MARK not in name:
        published = entry(first)
        terminal.show(
            f"{published.name}: {published.title}", "", *_paragraphs(published.description), ""
        )
        terminal.show(f"cite    {published.citation}", f"source  {published.source}", "")
        for alias, meant in published.published.items():
            terminal.show(f"{alias} is {meant}")
    for part in signature(headline).split("|"):
        axis, _, value = part.partition(":")
        terminal.show(f"{axis:<13} {value}")
    terminal.show("")
    for label, recipe in recipes.items():
        terminal.show(f"{label} {short_signature(recipe)}", f"  {signature(recipe)}")


def _paragraphs(text: str) -> list[str]:
    """Lines that can be read in any terminal; names and addresses stay whole."""
    parts = text.strip().split("\n")
    return [
        line
        for part in parts
        for line in wrap(part, 79, break_long_words=False, break_on_hyphens=False) or [""]
    ]


def _show_suite(shown: Suite, json: bool) -> None:
    if json:
        terminal.print_json(shown)
        return
    terminal.show(f"{shown.name}: {shown.title}", "", *_paragraphs(shown.description), "")
    terminal.show(f"cite    {shown.citation}", f"source  {shown.source}", "")
    lines = [("benchmark", "shots", "metric", "protocol")]
    for part in shown.parts:
        lines += (
            [(part.benchmark, "", "", f"can't be scored here: {part.unscored}")]
            if part.unscored
            else []
        )
        lines += [
            (
                part.benchmark,
                str(protocol.shots),
                f"{protocol.metric} ({protocol.aggregation})",
                name,
            )
            for name, protocol in part.protocols.items()
        ]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        terminal.show(
            "  ".join(f"{word:<{width}}" for word, width in zip(line, widths, strict=True)).rstrip()
        )
    several = any(len(part.protocols) > 1 for part in shown.parts)
    average = {"mean": "the plain mean of the benchmarks", "none": "none"}[shown.average]
    average += ", each from guessing (0) to all right (1)" if shown.normalised else ""
    average += (
        "; of several protocols of a benchmark the best counts"
        if several and shown.average != "none"
        else ""
    )
    terminal.show("", f"average  {average}")


@protocols.command(cls=Command)
def diff(left: Name, right: Name, json: options.Json = False) -> None:
    """Show the axes in which two protocols differ (of the first, where a name has several scores)."""
    from choicewise.protocols.catalogue import resolve
    from choicewise.protocols.protocol import axis_differences

    (one, first), (other, second) = (next(iter(resolve(name).items())) for name in (left, right))
    differences = axis_differences(first, second)
    if json:
        terminal.print_json([{"axis": axis, one: a, other: b} for axis, a, b in differences])
        return
    if not differences:
        terminal.show(f"{one} and {other} are the same protocol")
        return
    width = max(len(one), len(other))
    for axis, a, b in differences:
        terminal.show(axis, f"  {one:<{width}}  {a}", f"  {other:<{width}}  {b}")


@grouped
def prompts(
    *,
    protocol: options.Protocols,
    data: options.Data = None,
    shots: options.Shots = None,
    part: Part,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            help="The model whose chat template is applied, only chats need one; behind a server that has none, the"
            " messages are shown as JSON. Of a chat of one message that is shown without a model.",
        ),
    ] = None,
    tokenizer: options.Tokenizer = None,
    tasks: Tasks,
) -> None:
    """Print each request as a JSON line: item, subject, context, continuations, gold, protocol.

    Where choices have contexts of their own, `contexts`, parallel to `continuations`, stands for `context`; where a
    choice has several texts, `choices` says which choice each belongs to. Contexts are complete: only `run` shortens
    them to a model's window, because that needs the model's tokenizer. Without --data they are about the benchmarks'
    own data.
    """
    from choicewise.running.job import job_of

    given = {**part.given, **part.data([] if data is None else [data]), **tasks.given}
    job = job_of({"protocols": protocol, "shots": options.shots_of(shots), **given})
    sources = options.sources_of(job)
    if len(sources) > 1:
        options.refuse_without_use(
            "several benchmarks, with subjects of their own, have", subject=part.subject
        )
    recipes = {name: recipe for source in sources for name, recipe in source.recipes.items()}
    template = _chat_template(recipes, model, tokenizer)
    for source in sources:
        dataset = source.open(show_download())
        named, without = source.asking(dataset, source.protocols(dataset, job.subjects))
        options.tell_reading(dataset, source.notes, without)
        _print(dataset, named, source.rendered, job, template)


def _print(
    dataset: Dataset,
    named: Mapping[str, Protocol],
    rendered: Sequence[RenderedRequests],
    job: Job,
    template: ChatTemplate | None,
) -> None:
    """Every request about ``dataset``, once; how many items are left out, where bad ones are skipped."""
    from choicewise.requests.blocks import list_sections, request_source, settle_sample, with_split
    from choicewise.requests.render import Refusal, rendered_line

    recipes = {name: with_split(recipe, dataset) for name, recipe in named.items()}
    if said := settle_sample(dataset, recipes, job.selection)[1]:
        tell(f"note: {said}")
    left_out: dict[str, list[str]] = {}
    first_names = {recipe.prompt_digest: name for name, recipe in reversed(recipes.items())}
    for name, recipe in recipes.items():
        if first_names[recipe.prompt_digest] != name:
            continue  # an earlier protocol has the same requests
        source = request_source(recipe, dataset, rendered, template)
        for section in list_sections(dataset, {name: recipe}, job.selection):
            positions = section.positions(0, len(section.items))
            for request in source.requests(section.subject, section.items, positions):
                if not isinstance(request, Refusal):
                    try:
                        print_json(
                            {**rendered_line(request, recipe.reading), "protocol": name},
                            indent=None,
                        )
                    except (
                        DataError
                    ) as reason:  # of a run it is a missing item, whatever becomes of bad ones
                        left_out.setdefault(name, []).append(reason.message)
                elif job.on_bad_item == "error":
                    raise request.reason
                else:
                    left_out.setdefault(name, []).append(request.reason.message)
    for name, reasons in left_out.items():
        tell(f"note: {name} leaves out {counted(len(reasons), 'item')}: {reasons[0]}")


def _message_alone(recipes: Mapping[str, Protocol]) -> ChatTemplate:
    """What stands for the template of a model that is not named; UsageError for a chat of several messages."""
    from choicewise.protocols.protocol import begins
    from choicewise.tokens.chat_template import MessageAlone

    chats = {name: recipe for name, recipe in recipes.items() if recipe.chat != "none"}
    for name, recipe in chats.items():
        if recipe.chat != "message" or recipe.header or recipe.system is not None or begins(recipe):
            raise UsageError(
                f"{name} is a chat, whose text is made by the model's chat template; add --model MODEL"
            )
    tell(
        f"note: {next(iter(chats))} is a chat of one message, which is printed; --model MODEL puts it into its template"
    )
    return MessageAlone()


def _chat_template(
    recipes: Mapping[str, Protocol], model: str | None, tokenizer: str | None
) -> ChatTemplate | None:
    """The template of ``model``, where a protocol needs one."""
    chats = [name for name, recipe in recipes.items() if recipe.chat != "none"]
    if not chats:
        options.refuse_without_use(
            "no protocol here is a chat and has", model=model, tokenizer=tokenizer
        )
        return None
    if model is None:
        return _message_alone(recipes)
    from choicewise.models.load import load_model
    from choicewise.requests.blocks import no_chat

    options.refuse_foreign(model, tokenizer=tokenizer)
    template = load_model(
        model, progress=show_download(), say=tell, tokenizer=tokenizer
    ).tokenizer.chat
    if reason := no_chat(recipes[chats[0]], model, template):
        raise ModelError(f"{chats[0]}: {reason}; leave the chat out, or use a model that has one")
    return template
