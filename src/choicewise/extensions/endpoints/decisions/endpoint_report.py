"""What `report` and `explain` print of what a decision endpoint said beside its probabilities."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.text import Text

from choicewise.extensions.endpoints.decisions.exchange import Exchange
from choicewise.extensions.endpoints.decisions.summary import EndpointSummary, endpoint_record
from choicewise.records import EndpointRecord, Manifest
from choicewise.report.tables import table, titled
from choicewise.scoring.combine import LEAST
from choicewise.util.text import command_line, counted, percent, plain, safe, visible

_MOST = 6  # kinds of a thing that are listed, the most common first


def endpoint_tables(folder: str, summary: EndpointSummary | None) -> Iterator[Group | Text]:
    """The run in ``folder``: questions, repeats, refusals under each protocol, contradictions, notes."""
    if summary is None:
        yield Text(f"{safe(folder)}: no decision endpoint answered; name one as the model, decisions:URL#NAME")
        return
    shown = table("protocol", "items", "refused", "value", "refused as wrong", f"at {LEAST:g}", "of them right")
    for each in summary.protocols:
        cells = percent(each.value) if each.share else plain(each.value), percent(each.as_wrong)
        shown.add_row(
            safe(each.protocol), f"{each.items:,}", f"{each.refused:,}", *cells, f"{each.floor:,}", f"{each.right:,}"
        )
    notes = [
        f"refused: left out of the value, as every missing item; at {LEAST:g}: items with an option of probability 0, "
        "which counts as that, and those of them where the right one is such an option"
    ]
    yield titled(f"{folder}: {counted(summary.questions, 'question')} to an endpoint", shown, *notes)
    held = table("checked", "values", "told", "doubt")
    for check in summary.checks:
        held.add_row(check.about, f"{check.values:,}", check.says, check.doubt)
    yield titled("what the numbers hold", held)
    yield Group(*(Text(line) for line in _lines(summary)))


def repeats_line(endpoint: EndpointRecord) -> str:
    """What became of the questions that were sent twice."""
    if not endpoint.repeated:
        return "no question was sent twice, so the endpoint's noise is not measured"
    return (
        f"{counted(endpoint.repeated, 'question')} sent twice: {endpoint.flips} with another answer then; "
        f"probabilities differ by {endpoint.mean:.2g} in the mean, {endpoint.most:.2g} at most"
    )


def notes(folder: Path, manifest: Manifest) -> Iterator[str]:
    """Yield what became of the questions of the run in ``folder`` that were sent twice, and where more is said."""
    endpoint = None if manifest.server is None else manifest.server.endpoint
    if endpoint is None:
        return
    if not manifest.complete:  # the manifest says nothing yet of what was sent twice
        endpoint = endpoint_record(folder, manifest) or endpoint
    yield f"{repeats_line(endpoint)}; more: {command_line('report', folder, 'endpoint')}"


def exchange_lines(kept: Mapping[str, Any]) -> Iterator[str]:
    """Yield request and response as they were, and what was read in the response."""
    exchange = Exchange(**kept)
    yield f"sent to {safe(exchange.path)}, answered {exchange.received}" + (
        "" if exchange.request_id is None else f", request {safe(exchange.request_id)}"
    )
    yield from _folded("request", exchange.request or "none was sent")
    yield from _folded("response", exchange.response or "none that could be read")
    facts: dict[str, object] = {"model": exchange.model, "confidence": exchange.confidence}
    facts |= {"recomputed": exchange.recomputed, **exchange.diagnostics, **exchange.usage}
    yield "  " + ", ".join(f"{name} {_said(value)}" for name, value in facts.items() if value is not None)
    yield from (f"  ! {safe(each)}" for each in exchange.contradictions)
    yield from (f"  note: {safe(each)}" for each in exchange.notes)
    if exchange.options is not None:
        again = ", ".join(map(str, exchange.options))
        yield f"  asked again for options {again} alone; the others are of an earlier answer"
    if exchange.repeat is not None:
        own = exchange.repeat
        what = own.missing if own.probabilities is None else ", ".join(f"{each:.6g}" for each in own.probabilities)
        yield f"  sent again {own.received}: {safe(what or 'no answer')}"


def _folded(name: str, text: str) -> Iterator[str]:
    yield f"  {name}:"
    yield from (f"    {line}" for line in visible(text).split("\n"))


def _said(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else safe(str(value))


def _lines(summary: EndpointSummary) -> Iterator[str]:
    endpoint = summary.endpoint
    yield f"dialect {endpoint.dialect}; " + (
        f"answers are of {_counts(summary.models)}" if summary.models else "no answer names a model"
    )
    yield repeats_line(endpoint)
    yield from (safe(doubt) for doubt in endpoint.doubts)
    if summary.confidence:
        other = f"another one than TypeSafe's formula gives in {summary.recomputed:,}"
        yield f"{counted(summary.confidence, 'answer')} with a confidence, {other}"
    for name, counts in (
        ("missing", summary.missing),
        ("contradictions", summary.contradictions),
        ("notes", summary.notes),
    ):
        if counts:
            yield f"{name}: {_counts(counts)}"
    if summary.usage:
        yield "usage: " + ", ".join(f"{safe(name)} {count:,.0f}" for name, count in summary.usage.items())


def _counts(counts: Mapping[str, int]) -> str:
    """The first ones, which are the most common, each with its number."""
    common = [*counts.items()]
    more = f"; {len(common) - _MOST} more kinds" if len(common) > _MOST else ""
    return "; ".join(f"{safe(name)} ({number:,})" for name, number in common[:_MOST]) + more
