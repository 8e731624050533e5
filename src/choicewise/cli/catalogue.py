"""Show the catalogue of protocols, and the requests of one: ``choicewise protocols`` and ``prompts``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated, Any

import typer

from choicewise.cli import options, terminal
from choicewise.cli.commands import Command
from choicewise.cli.options import Part, Tasks, grouped
from choicewise.cli.terminal import print_json, show_download, tell
from choicewise.errors import DataError, ModelError, UsageError
from choicewise.util.text import counted

if TYPE_CHECKING:
    from choicewise.data.dataset import Dataset
    from choicewise.protocols.catalogue import Entry, Suite
    from choicewise.protocols.protocol import Protocol
    from choicewise.requests.render import RenderedRequests
    from choicewise.running.job import Job
    from choicewise.tokens.chat_template import ChatTemplate


protocols = typer.Typer(
    help="List the published protocols; show one in full; compare two.", rich_markup_mode=None
)

Name = Annotated[str, typer.Argument(help="A protocol's name, a signature or a TOML file.")]


@protocols.callback(invoke_without_command=True)
def listing(context: typer.Context, json: options.Json = False) -> None:
    """List the catalogue, and the names of groups."""
    command = context.invoked_subcommand
    if command is not None:
        if json:
            raise UsageError(
                f"--json before {command} belongs to the list; write it after {command}"
            )
        return
    if json:
        terminal.print_json(_catalogue())
    else:
        _show_catalogue()


def _catalogue() -> list[dict[str, Any]]:
    """Return a record of every entry, group and suite."""
    from choicewise.protocols.catalogue import entries, groups, suite, suite_names

    records = [_record(entry) for entry in entries()]
    for name, members in groups().items():
        protocols: list[str] = []
        for entry in members:
            protocols += entry.protocols
        records.append(
            {"name": name, "title": _members(name), "protocols": protocols, "source": None}
        )
    records += [_record(suite(name)) for name in suite_names()]
    return records


def _record(published: Entry | Suite) -> dict[str, Any]:
    return {
        "name": published.name,
        "title": published.title,
        "protocols": list(published.protocols),
        "source": published.source,
    }


def _show_catalogue() -> None:
    from choicewise.protocols.catalogue import entries, groups, suite, suite_names
    from choicewise.protocols.names import FORMULATIONS, SCORE_NAMES

    names = [*groups(), *suite_names(), *(entry.name for entry in entries())]
    width = max(map(len, names))
    for entry in entries():
        scores = ""
        if len(entry.protocols) > 1:
            scores = f" ({len(entry.protocols)} scores)"
        terminal.show(f"{entry.name:<{width}} {entry.title}{scores}")
    terminal.show("", "groups: one name for several protocols")
    for name in groups():
        terminal.show(f"{name:<{width}} {_members(name)}")
    if suite_names():
        terminal.show("", "suites: several benchmarks and their average")
    for name in suite_names():
        terminal.show(f"{name:<{width}} {suite(name).title}")
    terminal.show(
        "",
        (
            "every score has its own name, such as mmlu/harness-v0:sum; `choicewise protocols "
            "show mmlu` lists some"
        ),
    )
    terminal.show(
        "",
        (
            "names of scores in other tools: mmlu/cf:acc_norm, or --score acc_norm for every "
            "protocol that has it"
        ),
    )
    for name, score in SCORE_NAMES.items():
        terminal.show(f"{name:<{width}} {score.score:<14} {score.tool}: {score.description}")
    for name, formulation in FORMULATIONS.items():
        terminal.show(f"{f'FAMILY/{name}':<{width}} FAMILY/{formulation}")


def _members(group: str) -> str:
    from choicewise.protocols.catalogue import groups

    members = [entry.name for entry in groups()[group]]
    if "/" in group or len(members) == 1:
        return ", ".join(members)
    return f"all {len(members)} of the family"


@protocols.command(cls=Command)
def show(name: Name, json: options.Json = False) -> None:
    """Show what a protocol does, its source and its axes; for a suite, its parts and their average."""
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
    # Signatures, files and ladders are no entries, so they have no citation.
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
    """Break a text into lines for any terminal; names and addresses stay whole."""
    lines = []
    for part in text.strip().split("\n"):
        lines += wrap(part, 79, break_long_words=False, break_on_hyphens=False) or [""]
    return lines


def _show_suite(suite: Suite, json: bool) -> None:
    if json:
        terminal.print_json(suite)
        return
    terminal.show(f"{suite.name}: {suite.title}", "", *_paragraphs(suite.description), "")
    terminal.show(f"cite    {suite.citation}", f"source  {suite.source}", "")
    lines = [("benchmark", "shots", "metric", "protocol")]
    several = False
    for part in suite.parts:
        if part.unscored:
            lines.append((part.benchmark, "", "", f"can't be scored here: {part.unscored}"))
        several = several or len(part.protocols) > 1
        for name, protocol in part.protocols.items():
            metric = f"{protocol.metric} ({protocol.aggregation})"
            lines.append((part.benchmark, str(protocol.shots), metric, name))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = [f"{word:<{width}}" for word, width in zip(line, widths, strict=True)]
        terminal.show("  ".join(cells).rstrip())
    average = {"mean": "the mean over the benchmarks", "none": "none"}[suite.average]
    if suite.normalised:
        average += ", each rescaled from guessing (0) to all right (1)"
    if several and suite.average != "none":
        average += "; if a benchmark has several protocols, the best one counts"
    terminal.show("", f"average  {average}")


@protocols.command(cls=Command)
def diff(left: Name, right: Name, json: options.Json = False) -> None:
    """Show the axes in which two protocols differ (the first one if a name has several scores)."""
    from choicewise.protocols.protocol import axis_differences

    left_name, left_protocol = _headline(left)
    right_name, right_protocol = _headline(right)
    differences = axis_differences(left_protocol, right_protocol)
    if json:
        rows = []
        for axis, left_value, right_value in differences:
            rows.append({"axis": axis, left_name: left_value, right_name: right_value})
        terminal.print_json(rows)
        return
    if not differences:
        terminal.show(f"{left_name} and {right_name} are the same protocol")
        return
    width = max(len(left_name), len(right_name))
    for axis, left_value, right_value in differences:
        terminal.show(
            axis,
            f"  {left_name:<{width}}  {left_value}",
            f"  {right_name:<{width}}  {right_value}",
        )


def _headline(name: str) -> tuple[str, Protocol]:
    """Return the first protocol that ``name`` means, with its full name."""
    from choicewise.protocols.catalogue import resolve

    return next(iter(resolve(name).items()))


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
            help="The model whose chat template is applied (chats only). Without a model, a "
            "chat of one message is printed as it is.",
        ),
    ] = None,
    tokenizer: options.Tokenizer = None,
    tasks: Tasks,
) -> None:
    """Print each request as a JSON line: item, subject, context, continuations, gold, protocol.

    If choices have different contexts, `contexts` replaces `context`, in the order of `continuations`.
    If a choice has several texts, `choices` has the choice of each text. Contexts are complete: only
    `run` cuts them to a model's window. Without --data, the benchmarks' own data are used.
    """
    from choicewise.running.job import job_of

    given = {**part.given, **part.data(data), **tasks.given}
    job = job_of({"protocols": protocol, "shots": options.shots_of(shots), **given})
    sources = options.sources_of(job)
    if len(sources) > 1:
        options.refuse_without_use(
            "several benchmarks, with subjects of their own, have", subject=part.subject
        )
    recipes: dict[str, Protocol] = {}
    for source in sources:
        recipes |= source.recipes
    # Requests need no model, but a chat has no text without its template.
    template = _chat_template(recipes, model, tokenizer)
    for source in sources:
        dataset = source.open(show_download())
        fitted = source.fitted(dataset, source.protocols(dataset, job.subjects))
        options.tell_reading(dataset, source.notes, fitted.notes)
        _print(dataset, fitted.protocols, source.rendered, job, template)


def _print(
    dataset: Dataset,
    named: Mapping[str, Protocol],
    rendered: Sequence[RenderedRequests],
    job: Job,
    template: ChatTemplate | None,
) -> None:
    """Print every request about ``dataset`` once; tell how many items are left out if bad ones are skipped."""
    from choicewise.requests.blocks import settle_sample, with_split

    recipes = {name: with_split(recipe, dataset) for name, recipe in named.items()}
    _, note = settle_sample(dataset, recipes, job.selection)
    if note:
        tell(f"note: {note}")
    printed = set()
    left_out: dict[str, list[str]] = {}
    for name, recipe in recipes.items():
        # An earlier protocol may have the same requests.
        if recipe.prompt_digest in printed:
            continue
        printed.add(recipe.prompt_digest)
        reasons = _print_requests(dataset, name, recipe, rendered, job, template)
        if reasons:
            left_out[name] = reasons
    for name, reasons in left_out.items():
        tell(f"note: {name} leaves out {counted(len(reasons), 'item')}: {reasons[0]}")


def _print_requests(
    dataset: Dataset,
    name: str,
    recipe: Protocol,
    rendered: Sequence[RenderedRequests],
    job: Job,
    template: ChatTemplate | None,
) -> list[str]:
    """Print the requests of one protocol; return why items have none."""
    from choicewise.requests.blocks import list_sections, request_source
    from choicewise.requests.render import Refusal, rendered_line

    reasons = []
    source = request_source(recipe, dataset, rendered, template)
    for section in list_sections(dataset, {name: recipe}, job.selection):
        positions = section.positions(0, len(section.items))
        for request in source.requests(section.subject, section.items, positions):
            if isinstance(request, Refusal):
                if job.on_bad_item == "error":
                    raise request.reason
                reasons.append(request.reason.message)
                continue
            try:
                line = rendered_line(request, recipe.reading)
            except DataError as reason:
                # A run has it as a missing item, whatever becomes of bad ones.
                reasons.append(reason.message)
                continue
            print_json({**line, "protocol": name}, indent=None)
    return reasons


def _message_alone(recipes: Mapping[str, Protocol]) -> ChatTemplate:
    """Return a template for chats of one message without a model; UsageError for a chat of several messages."""
    from choicewise.protocols.protocol import begins
    from choicewise.tokens.chat_template import MessageAlone

    chats = {name: recipe for name, recipe in recipes.items() if recipe.chat != "none"}
    for name, recipe in chats.items():
        if recipe.chat != "message" or recipe.header or recipe.system is not None or begins(recipe):
            raise UsageError(
                f"{name} is a chat, so its text depends on the model's chat template; add "
                "--model MODEL"
            )
    tell(
        f"note: {next(iter(chats))} is a chat; printed without a chat template. Add "
        "--model MODEL to apply one"
    )
    return MessageAlone()


def _chat_template(
    recipes: Mapping[str, Protocol], model: str | None, tokenizer: str | None
) -> ChatTemplate | None:
    """Return the chat template of ``model`` if a protocol needs one."""
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
    loaded = load_model(model, progress=show_download(), say=tell, tokenizer=tokenizer)
    template = loaded.tokenizer.chat
    reason = no_chat(recipes[chats[0]], model, template)
    if reason:
        raise ModelError(
            f"{chats[0]}: {reason}; leave the chat out, or use a model with a chat template"
        )
    return template
