"""``choicewise protocols``: the catalogue, one protocol in full, and the difference between two."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING, Annotated

import typer

from choicewise.cli import options, output
from choicewise.cli.command import Command
from choicewise.errors import UsageError

if TYPE_CHECKING:
    from choicewise.protocols.suite import Suite

protocols = typer.Typer(help="List the published protocols; show one in full; compare two.", rich_markup_mode=None)

Name = Annotated[str, typer.Argument(help="A catalogue name, a signature or a TOML file.")]


@protocols.callback(invoke_without_command=True)
def listing(context: typer.Context, json: options.Json = False) -> None:
    """List the catalogue, and the names of groups."""
    if (command := context.invoked_subcommand) is not None:
        if json:
            raise UsageError(f"--json before {command} is about the list; write it after {command}")
        return
    from choicewise.protocols.catalogue import entries, groups, suite
    from choicewise.protocols.suites import suite_names

    suites = [suite(name) for name in suite_names()]
    if json:
        published = ((each.name, each.title, [*each.protocols], each.source) for each in entries())
        rows: list[dict[str, object]] = [
            dict(zip(("name", "title", "protocols", "source"), row, strict=True)) for row in published
        ]
        for name, members in groups().items():
            inside = [protocol for each in members for protocol in each.protocols]
            rows.append({"name": name, "title": _members(name), "protocols": inside, "source": None})
        rows += [
            {"name": each.name, "title": each.title, "protocols": [*each.protocols], "source": each.source}
            for each in suites
        ]
        output.print_json(rows)
        return
    width = max(map(len, (*groups(), *suite_names(), *(each.name for each in entries()))))
    for each in entries():
        more = f" ({len(each.protocols)} scores)" if len(each.protocols) > 1 else ""
        output.show(f"{each.name:<{width}} {each.title}{more}")
    output.show("", "groups: a name for several at once")
    for name in groups():
        output.show(f"{name:<{width}} {_members(name)}")
    output.show(*(["", "suites: several benchmarks, and their average"] if suites else []))
    for one in suites:
        output.show(f"{one.name:<{width}} {one.title}")
    output.show(
        "", "a score has a name of its own, such as mmlu/harness-v0:sum; `choicewise protocols show mmlu` lists some"
    )


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
    from choicewise.protocols.catalogue import entry, resolve, suite
    from choicewise.protocols.signature import short_signature, signature
    from choicewise.protocols.suites import suite_names

    if name in suite_names():
        _show_suite(suite(name), json)
        return
    recipes = resolve(name)
    if json:
        output.print_json(recipes)
        return
    first, headline = next(iter(recipes.items()))
    if "|" not in name and not name.endswith(".toml") and MARK not in name:
        published = entry(first)
        output.show(f"{published.name}: {published.title}", "", *_paragraphs(published.about), "")
        output.show(f"cite    {published.citation}", f"source  {published.source}", "")
        for alias, meant in published.published.items():
            output.show(f"{alias} is {meant}")
    for part in signature(headline).split("|"):
        axis, _, value = part.partition(":")
        output.show(f"{axis:<13} {value}")
    output.show("")
    for label, recipe in recipes.items():
        output.show(f"{label} {short_signature(recipe)}", f"  {signature(recipe)}")


def _paragraphs(text: str) -> list[str]:
    """Lines that can be read in any terminal; names and addresses stay whole."""
    parts = text.strip().split("\n")
    return [line for part in parts for line in wrap(part, 79, break_long_words=False, break_on_hyphens=False) or [""]]


def _show_suite(shown: Suite, json: bool) -> None:
    if json:
        output.print_json(shown)
        return
    output.show(f"{shown.name}: {shown.title}", "", *_paragraphs(shown.about), "")
    output.show(f"cite    {shown.citation}", f"source  {shown.source}", "")
    lines = [("benchmark", "shots", "metric", "protocol")]
    for part in shown.parts:
        lines += [(part.benchmark, "", "", f"can't be scored here: {part.unscored}")] if part.unscored else []
        lines += [
            (part.benchmark, str(protocol.shots), f"{protocol.metric} ({protocol.aggregation})", name)
            for name, protocol in part.protocols.items()
        ]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        output.show("  ".join(f"{word:<{width}}" for word, width in zip(line, widths, strict=True)).rstrip())
    several = any(len(part.protocols) > 1 for part in shown.parts)
    average = {"mean": "the plain mean of the benchmarks", "none": "none"}[shown.average]
    average += ", each from guessing (0) to all right (1)" if shown.normalised else ""
    average += "; of several protocols of a benchmark the best counts" if several and shown.average != "none" else ""
    output.show("", f"average  {average}")


@protocols.command(cls=Command)
def diff(left: Name, right: Name, json: options.Json = False) -> None:
    """Show the axes in which two protocols differ (of the first, where a name has several scores)."""
    from choicewise.protocols.catalogue import resolve
    from choicewise.protocols.signature import axis_differences

    (one, first), (other, second) = (next(iter(resolve(name).items())) for name in (left, right))
    differences = axis_differences(first, second)
    if json:
        output.print_json([{"axis": axis, one: a, other: b} for axis, a, b in differences])
        return
    if not differences:
        output.show(f"{one} and {other} are the same protocol")
        return
    width = max(len(one), len(other))
    for axis, a, b in differences:
        output.show(axis, f"  {one:<{width}}  {a}", f"  {other:<{width}}  {b}")
