"""Show the catalogue of protocols: ``choicewise protocols``."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import chain, pairwise, product
from operator import add
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated, Any

import typer

from choicewise.cli import options, terminal
from choicewise.cli.commands import Command, Group
from choicewise.errors import DataError, ProtocolError, UsageError
from choicewise.util.jsonio import JsonDict, JsonMapping
from choicewise.util.text import counted, shortened

if TYPE_CHECKING:
    from choicewise.protocols.catalogue import Entry, Suite
    from choicewise.protocols.protocol import Protocol
    from choicewise.requests.request import Request


_MATCHING = "--matching"


class _Listing(Group):
    """Take words as values of ``--matching``, unless the first of them is a command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Write ``--matching`` before every word that does not follow it."""
        words = []
        spelled = []
        for before, word in pairwise(("", *args)):
            if before != _MATCHING and not word.startswith("-"):
                words.append(word)
                spelled.append(_MATCHING)
            spelled.append(word)
        if words and words[0] not in self.commands:
            args = spelled
        return super().parse_args(ctx, args)


protocols = typer.Typer(cls=_Listing, rich_markup_mode=None)

Name = Annotated[str, typer.Argument(help="A protocol's name, a signature or a TOML file.")]


@protocols.callback(invoke_without_command=True)
def listing(
    context: typer.Context,
    matching: Annotated[
        list[str] | None,
        typer.Option(_MATCHING, metavar="WORD", help="List what has this word. Repeatable."),
    ] = None,
    json: options.Json = False,
) -> None:
    """List the catalogue, or what matches a word; show one protocol in full; compare two.

    `choicewise protocols WORD` lists what has WORD in its name, title, citation, benchmark or version; several words
    must all match.
    """
    command = context.invoked_subcommand
    if command is not None:
        if json:
            raise UsageError(
                f"--json before {command} belongs to the list; write it after {command}"
            )
        return
    words = [word.casefold() for word in matching or ()]
    sections = {}
    for heading, records in _catalogue().items():
        sections[heading] = [record for record in records if _matches(record, words)]
    matches = list(chain.from_iterable(sections.values()))
    if json:
        terminal.print_json(matches)
        return
    if not matches:
        raise UsageError(
            f"no protocol, group or suite matches {' '.join(words)}; `choicewise protocols` lists "
            "them all"
        )
    width = max(len(record["name"]) for record in matches)
    for heading, records in sections.items():
        _show_section(heading, records, width)
    if not words:
        _show_score_names(width)


def _matches(record: JsonMapping, words: Sequence[str]) -> bool:
    """Check that every word occurs in the record; a group is found by its name alone."""
    from choicewise.protocols.catalogue import entry, suite, suite_names

    name = record["name"]
    texts = [name]
    if record["source"] is not None:
        published = suite(name) if name in suite_names() else entry(name)
        texts += [record["title"], record["source"], published.citation]
        texts += {protocol.benchmark for protocol in published.protocols.values()}
    content = " ".join(texts).casefold()
    return all(word in content for word in words)


def _catalogue() -> dict[str, list[JsonDict]]:
    """Return heading → a record of every entry, group and suite below it."""
    from choicewise.protocols.catalogue import entries, groups, suite, suite_names

    group_records = []
    for name, members in groups().items():
        protocols: list[str] = []
        for entry in members:
            protocols += entry.protocols
        title = ", ".join(entry.name for entry in members)
        if "/" not in name and len(members) > 1:
            title = f"all {len(members)} of the family"
        group_records.append({"name": name, "title": title, "protocols": protocols, "source": None})
    return {
        "": [_record(entry) for entry in entries()],
        "groups: one name for several protocols": group_records,
        "suites: several benchmarks and their average": [
            _record(suite(name)) for name in suite_names()
        ],
    }


def _record(published: Entry | Suite) -> JsonDict:
    return {
        "name": published.name,
        "title": published.title,
        "protocols": list(published.protocols),
        "source": published.source,
    }


def _show_section(heading: str, records: Sequence[JsonMapping], width: int) -> None:
    if heading and records:
        terminal.show("", heading)
    for record in records:
        scores = ""
        if not heading and len(record["protocols"]) > 1:
            scores = f" ({len(record['protocols'])} scores)"
        terminal.show(f"{record['name']:<{width}} {record['title']}{scores}")


def _show_score_names(width: int) -> None:
    from choicewise.protocols.names import FORMULATIONS, SCORE_NAMES

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


@protocols.command(cls=Command)
def show(
    name: Name,
    every: Annotated[
        bool, typer.Option("--all", help="Every axis and name, the whole description, signatures.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Show a prompt, the source and the axes of a protocol; for a suite, its parts and their average."""
    from choicewise.protocols.between import MARK
    from choicewise.protocols.catalogue import entry, resolve, spelled, suite, suite_names
    from choicewise.protocols.protocol import short_signature, signature

    name = spelled(name)
    if name in suite_names():
        _show_suite(suite(name), every, json)
        return
    recipes = resolve(name)
    if json:
        options.refuse_without_use("--json, which shows every axis", all=every)
        terminal.print_json(recipes)
        return
    first, headline = next(iter(recipes.items()))
    # Signatures, files and ladders are no entries, so they have no citation.
    published = None
    if "|" not in name and not name.endswith(".toml") and MARK not in name:
        published = entry(first)
        terminal.show(f"{published.name}: {published.title}", "")
    prompt = _prompt_lines(headline, every)
    terminal.show(*prompt, "")
    if published is not None:
        description = _paragraphs(published.description)
        if not every:
            description = _beginning(description)
        terminal.show(*description)
        terminal.show(f"cite    {published.citation}", f"source  {published.source}")
    aliases = {} if published is None else published.published
    names: list[str] = []
    for label, recipe in recipes.items():
        line = f"{label} {short_signature(recipe)}"
        others = [alias.partition(":")[2] for alias, meant in aliases.items() if meant == label]
        if others:
            line += f"  also :{', :'.join(others)}"
        names.append(line)
        if every:
            names.append(f"  {signature(recipe)}")
    axes = _axis_lines(headline, every)
    if not every:
        names = _cut(names, _MOST_NAMES)
        axes = _cut(axes, max(_ROOM - len(prompt) - len(names), 2))
    terminal.show(*axes, "", *names)


_MOST_NAMES = 8
_ROOM = 21
"""Lines of a screen for the prompt, the axes and the names, beside a description and its source."""


def _cut(lines: list[str], most: int) -> list[str]:
    """Return at most that many lines, of which the last counts those that are left out."""
    if len(lines) <= most:
        return lines
    return [*lines[: most - 1], f"[{len(lines) - most + 1} more lines; --all shows them]"]


_TEXTS = (
    *("a hammer", "a spoon", "a pillow", "a comb", "a candle"),
    *("a button", "a bucket", "a mirror", "a ladder", "a kettle"),
)
_QUESTIONS = (
    "Which of these drives in a nail?",
    "The nail went through the board because the _ was heavy.",
)
# Benchmarks whose prompts name the subject know only their own: BBH, CMMLU and C-Eval.
_SUBJECTS = ("tools", "boolean_expressions", "anatomy", "accountant")
_FIELDS = {"asks_for": "cause", "article": "A shop sells tools.", "problems": "[{}]"}
"""Fields that COPA and RACE show without naming them in a template."""


def _prompt_lines(protocol: Protocol, every: bool) -> list[str]:
    """Return a prompt about an example, and what is scored or generated after it."""
    from choicewise.protocols.readings import READINGS
    from choicewise.util.text import visible, visible_line

    request = _example_request(protocol)
    if request is None:
        return ["(no example: the protocol asks questions of a form of its own)"]
    lines = []
    if protocol.system:
        lines.append(f"[system] {visible_line(protocol.system)}")
    if request.header:
        header = visible(request.header).split("\n")
        lines += header if every else _cut(header, _MOST_HEADER)
    if protocol.shots:
        lines.append(f"[{counted(protocol.shots, 'solved question')}]")
    lines += visible(request.query).split("\n")
    lines = [line for line in lines if line]
    if READINGS[protocol.reading].text:
        return [*lines, "-> the model writes the answer"]
    texts = list(request.continuations)
    # What stands before the continuation may be all that differs between choices.
    if len(set(texts)) == 1 and request.proposals:
        texts = list(map(add, request.proposals, texts))
    choices = [visible_line(text) for text in texts[:5]]
    if len(texts) > len(choices):
        choices.append("...")
    return [*lines, f"-> scored: {' | '.join(choices)}"]


def _example_request(protocol: Protocol) -> Request | None:
    """Return the request of an example that fits the protocol, without shots; None if none fits."""
    from choicewise.data.items import Item
    from choicewise.protocols.protocol import holes
    from choicewise.requests.render import render

    templates = [protocol.header, protocol.question, protocol.continuation]
    fields = dict(_FIELDS)
    for template in templates:
        fields |= {hole: f"<{hole}>" for hole in holes(template)}
    count = min(protocol.choices or 4, len(_TEXTS))
    for question, subject in product(_QUESTIONS, _SUBJECTS):
        item = Item("example", question, _TEXTS[:count], (0,), subject, fields)
        with suppress(DataError, ProtocolError):
            return render(protocol, item, ())
    return None


_MOST_HEADER = 5
_MOST_LINES = 3
"""Lines of a description that are shown without ``--all``."""


def _beginning(description: Sequence[str]) -> list[str]:
    """Return the first lines, up to the end of a sentence if one ends there."""
    if len(description) <= _MOST_LINES:
        return list(description)
    text = " ".join(description[:_MOST_LINES])
    sentences, end, _ = text.rpartition(". ")
    if end:
        return _paragraphs(f"{sentences}. [...]")
    return [*description[:_MOST_LINES], "[...]"]


_SHORT = 24
"""Characters of an axis that shares its line with others."""
_WIDEST = 160
"""Characters of an axis without ``--all``."""


def _axis_lines(protocol: Protocol, every: bool) -> list[str]:
    """Return the axes that differ from their defaults, or every axis on a line of its own."""
    from choicewise.protocols.protocol import DEFAULTS, signature

    values = {}
    for part in signature(protocol).split("|"):
        axis, _, value = part.partition(":")
        values[axis] = value
    if every:
        return [f"{axis:<14} {value}" for axis, value in values.items()]
    brief = []
    long = []
    for axis, value in values.items():
        if getattr(protocol, axis) == DEFAULTS[axis]:
            continue
        spelled = f"{axis}={value}"
        if len(spelled) <= _SHORT:
            brief.append(spelled)
        else:
            long.append(shortened(spelled, _WIDEST))
    first, *others = [
        *wrap(", ".join(brief), 71, break_on_hyphens=False),
        *long,
        "the other axes have their defaults (--all shows them)",
    ]
    return [f"axes    {first}", *(f"        {line}" for line in others)]


def _paragraphs(text: str) -> list[str]:
    """Break a text into lines for any terminal; names and addresses stay whole."""
    lines = []
    for part in text.strip().split("\n"):
        lines += wrap(part, 79, break_long_words=False, break_on_hyphens=False) or [""]
    return lines


_MOST_PARTS = 16
"""Lines of a suite's table without ``--all``."""


def _show_suite(suite: Suite, every: bool, json: bool) -> None:
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
    rows = []
    for line in lines:
        cells = [f"{word:<{width}}" for word, width in zip(line, widths, strict=True)]
        rows.append("  ".join(cells).rstrip())
    terminal.show(*(rows if every else _cut(rows, _MOST_PARTS)))
    average = {"mean": "the mean over the benchmarks", "none": "none"}[suite.average]
    if suite.normalised:
        average += ", each rescaled from guessing (0) to all right (1)"
    if several and suite.average != "none":
        average += "; if a benchmark has several protocols, the best one counts"
    terminal.show("", f"average  {average}")


@protocols.command(cls=Command)
def diff(left: Name, right: Name, json: options.Json = False) -> None:
    """Show the axes in which two protocols differ (the first one if a name has several scores)."""
    from choicewise.protocols.catalogue import resolve
    from choicewise.protocols.protocol import axis_differences

    left_name, left_protocol = next(iter(resolve(left).items()))
    right_name, right_protocol = next(iter(resolve(right).items()))
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
