"""Make tables and lines of what a decision endpoint answers beside its probabilities."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from choicewise.extensions.endpoints.decisions.exchange import Exchange
from choicewise.extensions.endpoints.decisions.summary import (
    EndpointSummary,
    Refusals,
    endpoint_record,
    endpoint_summary,
)
from choicewise.records import EndpointRecord, Manifest
from choicewise.results.run import Run
from choicewise.scoring.combine import LEAST
from choicewise.table import Column, Share, Table, facts_of
from choicewise.util.jsonio import JsonDict, JsonMapping
from choicewise.util.text import command_line, counted, safe, visible

_MOST = 6
"""Kinds of a thing that are listed, the most common first."""


PROTOCOLS = (
    Column("protocol"),
    Column("items", "count"),
    Column(
        "refused",
        "count",
        meaning=f"left out of the value. At {LEAST:g}: items with an option of probability "
        "0, which counts as that. Of them right: the right option is one of these",
    ),
    Column("value", "number"),
    Column("as_wrong", "share", heading="refused as wrong"),
    Column("floor", "count", heading=f"at {LEAST:g}"),
    Column("right", "count", heading="of them right"),
    Column("share", data=True),
)

CHECKS = (
    Column("about", heading="checked"),
    Column("values", "count"),
    Column("says", heading="told"),
    Column("doubt"),
)


def endpoint_tables(run: Run) -> Iterator[Table]:
    """Yield what an endpoint refused under each protocol, and what is to be believed of a run."""
    facts: JsonDict = {"run": str(run.folder), "model": run.manifest.model.name}
    summary = endpoint_summary(run)
    if summary is None:
        title = f"{run.folder} is no run of a decision endpoint; run the model decisions:URL#NAME"
        yield Table(name="endpoint", title=title, facts=facts)
        return
    # A table has notes of its own.
    facts |= facts_of(summary, ("protocols", "checks", "notes"))
    facts["endpoint_notes"] = summary.notes
    yield Table(
        name="endpoint",
        title=f"{run.folder}: {counted(summary.questions, 'question')} to an endpoint",
        columns=PROTOCOLS,
        rows=[_protocol_row(refusals) for refusals in summary.protocols],
        notes=list(_lines(summary)),
        facts=facts,
    )
    rows = [[check.description, check.values, check.says, check.doubt] for check in summary.checks]
    yield Table(name="checks", title="what the answers claim, checked", columns=CHECKS, rows=rows)


def _protocol_row(refusals: Refusals) -> list[Any]:
    return [
        refusals.protocol,
        refusals.items,
        refusals.refused,
        Share(refusals.value) if refusals.share else refusals.value,
        refusals.as_wrong,
        refusals.floor,
        refusals.right,
        refusals.share,
    ]


def repeats_line(endpoint: EndpointRecord) -> str:
    """Say how the answers to questions differ that were sent twice."""
    if not endpoint.repeated:
        return "no question was sent twice, so the endpoint's noise is unknown"
    return (
        f"{counted(endpoint.repeated, 'question')} sent twice: {endpoint.flips} got another "
        f"answer; probabilities moved by {endpoint.mean:.2g} on average, {endpoint.most:.2g} at "
        "most"
    )


def notes(folder: Path, manifest: Manifest) -> Iterator[str]:
    """Yield how repeated questions were answered, and the command that shows more."""
    if manifest.server is None or manifest.server.endpoint is None:
        return
    endpoint = manifest.server.endpoint
    # The manifest of a run that has not ended has no repeats.
    if not manifest.complete:
        endpoint = endpoint_record(folder, manifest) or endpoint
    yield f"{repeats_line(endpoint)}; more: {command_line('report', folder, 'endpoint')}"


def exchange_lines(kept: JsonMapping) -> Iterator[str]:
    """Yield request and response as they were, and what was read in the response."""
    exchange = Exchange(**kept)
    sent = f"sent to {safe(exchange.path)}, answered {exchange.received}"
    if exchange.request_id is not None:
        sent = f"{sent}, request {safe(exchange.request_id)}"
    yield sent
    yield from _folded("request", exchange.request or "none was sent")
    yield from _folded("response", exchange.response or "none that could be read")
    facts: dict[str, object] = {
        "model": exchange.model,
        "confidence": exchange.confidence,
        "recomputed": exchange.recomputed,
        **exchange.diagnostics,
        **exchange.usage,
    }
    yield "  " + ", ".join(_fact(name, value) for name, value in facts.items() if value is not None)
    for contradiction in exchange.contradictions:
        yield f"  ! {safe(contradiction)}"
    for note in exchange.notes:
        yield f"  note: {safe(note)}"
    if exchange.options is not None:
        options = ", ".join(map(str, exchange.options))
        yield f"  sent again for options {options} only; the others are from an earlier answer"
    if exchange.repeat is not None:
        answer = exchange.repeat.missing
        if exchange.repeat.probabilities is not None:
            answer = ", ".join(f"{p:.6g}" for p in exchange.repeat.probabilities)
        yield f"  sent again {exchange.repeat.received}: {safe(answer or 'no answer')}"


def _folded(name: str, text: str) -> Iterator[str]:
    yield f"  {name}:"
    for line in visible(text).split("\n"):
        yield f"    {line}"


def _fact(name: str, value: object) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else safe(str(value))
    return f"{name} {text}"


def _lines(summary: EndpointSummary) -> Iterator[str]:
    models = "no answer names a model"
    if summary.models:
        models = f"answers from {_counts(summary.models)}"
    yield f"dialect {summary.endpoint.dialect}; {models}"
    yield repeats_line(summary.endpoint)
    yield from map(safe, summary.endpoint.doubts)
    if summary.confidence:
        other = f"in {summary.recomputed:,} TypeSafe's formula gives another one"
        yield f"{counted(summary.confidence, 'answer')} with a confidence; {other}"
    if summary.missing:
        yield f"missing: {_counts(summary.missing)}"
    if summary.contradictions:
        yield f"contradictions: {_counts(summary.contradictions)}"
    if summary.notes:
        yield f"notes: {_counts(summary.notes)}"
    if summary.usage:
        sums = [f"{safe(name)} {count:,.0f}" for name, count in summary.usage.items()]
        yield f"usage: {', '.join(sums)}"


def _counts(counts: Mapping[str, int]) -> str:
    """List the most common kinds, which are the first, with their numbers."""
    kinds = [f"{safe(name)} ({number:,})" for name, number in counts.items()]
    text = "; ".join(kinds[:_MOST])
    if len(kinds) > _MOST:
        text = f"{text}; {len(kinds) - _MOST} more kinds"
    return text
