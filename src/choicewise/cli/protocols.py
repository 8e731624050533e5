"""``choicewise protocols``: the catalogue, one protocol in full, and the difference between two."""

from typing import Annotated

import typer

from choicewise.cli import options
from choicewise.cli.output import print_json

protocols = typer.Typer(help="List the published protocols; show one in full; compare two.", rich_markup_mode=None)

Name = Annotated[str, typer.Argument(help="A catalogue name, a signature or a TOML file.")]


@protocols.callback(invoke_without_command=True)
def listing(context: typer.Context, json: options.Json = False) -> None:
    """List the catalogue."""
    if context.invoked_subcommand is not None:
        return
    from choicewise.protocols.catalogue import entries

    if json:
        rows = ((entry.name, entry.title, list(entry.protocols), entry.source) for entry in entries())
        print_json([dict(zip(("name", "title", "protocols", "source"), row, strict=True)) for row in rows])
        return
    width = max(len(entry.name) for entry in entries())
    for entry in entries():
        more = f" ({len(entry.protocols)} scores)" if len(entry.protocols) > 1 else ""
        print(f"{entry.name:<{width}} {entry.title}{more}")


@protocols.command()
def show(name: Name, json: options.Json = False) -> None:
    """Show what a protocol does, its source, and every axis."""
    from choicewise.protocols.catalogue import entry, resolve
    from choicewise.protocols.signature import short_signature, signature

    recipes = resolve(name)
    if json:
        print_json(recipes)
        return
    first, headline = next(iter(recipes.items()))
    if "|" not in name and not name.endswith(".toml"):
        published = entry(first)
        print(f"{published.name}: {published.title}\n\n{published.about.strip()}\n")
        print(f"cite    {published.citation}\nsource  {published.source}\n")
    for part in signature(headline).split("|"):
        axis, _, value = part.partition(":")
        print(f"{axis:<13} {value}")
    print()
    for label, recipe in recipes.items():
        print(f"{label} {short_signature(recipe)}\n  {signature(recipe)}")


@protocols.command()
def diff(left: Name, right: Name, json: options.Json = False) -> None:
    """Show the axes in which two protocols differ (of the first, where a name has several scores)."""
    from choicewise.protocols.catalogue import resolve
    from choicewise.protocols.signature import axis_differences

    (one, first), (other, second) = (next(iter(resolve(name).items())) for name in (left, right))
    differences = axis_differences(first, second)
    if json:
        print_json([{"axis": axis, one: a, other: b} for axis, a, b in differences])
        return
    if not differences:
        print(f"{one} and {other} are the same protocol")
        return
    width = max(len(one), len(other))
    for axis, a, b in differences:
        print(f"{axis}\n  {one:<{width}}  {a}\n  {other:<{width}}  {b}")
