"""``choicewise protocols``: the catalogue, one protocol in full, and the difference between two."""

from __future__ import annotations

from json import dumps
from typing import TYPE_CHECKING, Annotated

import typer

from choicewise.cli import options

if TYPE_CHECKING:
    from choicewise.protocols.protocol import Protocol

protocols = typer.Typer(help="List the published protocols; show one in full; compare two.", rich_markup_mode=None)

Name = Annotated[str, typer.Argument(help="A catalogue name, a signature or a TOML file.")]


@protocols.callback(invoke_without_command=True)
def listing(context: typer.Context, json: options.Json = False) -> None:
    """List the catalogue."""
    if context.invoked_subcommand is not None:
        return
    from choicewise.protocols.catalogue import entries

    if json:
        rows = [
            {"name": entry.name, "title": entry.title, "protocols": list(entry.protocols), "source": entry.source}
            for entry in entries()
        ]
        print(dumps(rows, ensure_ascii=False, indent=1))
        return
    width = max(len(entry.name) for entry in entries())
    for entry in entries():
        more = f" ({len(entry.protocols)} scores)" if len(entry.protocols) > 1 else ""
        print(f"{entry.name:<{width}} {entry.title}{more}")


@protocols.command()
def show(name: Name, json: options.Json = False) -> None:
    """Show what a protocol really does, its source, and every axis."""
    from dataclasses import asdict

    from choicewise.protocols.catalogue import entry, resolve
    from choicewise.protocols.signature import short_signature, signature

    found = resolve(name)
    if json:
        print(dumps({each: asdict(protocol) for each, protocol in found.items()}, ensure_ascii=False, indent=1))
        return
    first, headline = next(iter(found.items()))
    if "|" not in name and not name.endswith(".toml"):
        about = entry(first)
        print(f"{about.name}: {about.title}\n\n{about.about.strip()}\n")
        print(f"cite    {about.citation}\nsource  {about.source}\n")
    for axis, _, value in _axes(headline):
        print(f"{axis:<13} {value}")
    print()
    for each, protocol in found.items():
        print(f"{each} {short_signature(protocol)}\n  {signature(protocol)}")


@protocols.command()
def diff(left: Name, right: Name, json: options.Json = False) -> None:
    """Show exactly the axes in which two protocols differ (the headline of each, where a name has several scores)."""
    from choicewise.protocols.catalogue import resolve
    from choicewise.protocols.signature import axis_differences

    one, other = (next(iter(resolve(name).items())) for name in (left, right))
    differences = axis_differences(one[1], other[1])
    if json:
        print(
            dumps([{"axis": axis, one[0]: a, other[0]: b} for axis, a, b in differences], ensure_ascii=False, indent=1)
        )
        return
    if not differences:
        print(f"{one[0]} and {other[0]} are the same protocol")
        return
    width = max(len(name) for name in (one[0], other[0]))
    for axis, a, b in differences:
        print(f"{axis}\n  {one[0]:<{width}}  {a}\n  {other[0]:<{width}}  {b}")


def _axes(protocol: Protocol) -> list[tuple[str, str, str]]:
    from choicewise.protocols.signature import signature

    return [part.partition(":") for part in signature(protocol).split("|")]
