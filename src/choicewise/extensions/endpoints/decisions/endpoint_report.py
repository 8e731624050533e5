"""What `report` and `explain` print of what a decision endpoint said beside its probabilities."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

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
from choicewise.table import Column, Share, Table
from choicewise.util.text import command_line, counted, safe, visible

_MOST = 6  # kinds of a thing that are listed, the most common first


PROTOCOLS: Final = (
    Column(name="protocol"),
    Column(name="items", kind="count"),
    Column(
        name="refused",
        kind="count",
        meaning=f"left out of the value, as every missing item; at {LEAST:g}: items with an option of probability 0, "
        "which counts as that, and those of them where the right one is such an option",
    ),
    Column(name="value", kind="number"),
    Column(name="as_wrong", heading="refused as wrong", kind="share"),
    Column(name="floor", heading=f"at {LEAST:g}", kind="count"),
    Column(name="right", heading="of them right", kind="count"),
    Column(name="share", data=True),
)

CHECKS: Final = (
    Column(name="about", heading="checked"),
    Column(name="values", kind="count"),
    *(Column(name="says", heading="told"), Column(name="doubt")),
)


def endpoint_tables(run: Run) -> Iterator[Table]:
    """Yield what an endpoint refused under each protocol of a run, and what is to be believed of its numbers."""
    about = {"run": str(run.folder), "model": run.manifest.model.name}
    summary = endpoint_summary(run)
    if summary is None:
        title = f"{run.folder}: no decision endpoint answered; name one as the model, decisions:URL#NAME"
        yield Table(name="endpoint", title=title, facts=about)
        return
    counts: dict[str, Any] = {"models": dict(summary.models), "missing": dict(summary.missing)}
    counts |= {
        "contradictions": dict(summary.contradictions),
        "endpoint_notes": dict(summary.notes),
    }
    counts |= {
        "confidence": summary.confidence,
        "recomputed": summary.recomputed,
        "usage": dict(summary.usage),
    }
    yield Table(
        name="endpoint",
        title=f"{run.folder}: {counted(summary.questions, 'question')} to an endpoint",
        columns=PROTOCOLS,
        rows=[_protocol_row(refusals) for refusals in summary.protocols],
        notes=list(_lines(summary)),
        facts={
            **about,
            "endpoint": asdict(summary.endpoint),
            "questions": summary.questions,
            **counts,
        },
    )
    rows = [[check.description, check.values, check.says, check.doubt] for check in summary.checks]
    yield Table(name="checks", title="what the numbers hold", columns=CHECKS, rows=rows)


def _protocol_row(refusals: Refusals) -> list[Any]:
    value = Share(refusals.value) if refusals.share else refusals.value
    numbers = [value, refusals.as_wrong, refusals.floor, refusals.right, refusals.share]
    return [refusals.protocol, refusals.items, refusals.refused, *numbers]


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
    yield "  " + ", ".join(
        f"{name} {_said(value)}" for name, value in facts.items() if value is not None
    )
    yield from (f"  ! {safe(each)}" for each in exchange.contradictions)
    yield from (f"  note: {safe(each)}" for each in exchange.notes)
    if exchange.options is not None:
        again = ", ".join(map(str, exchange.options))
        yield f"  asked again for options {again} alone; the others are of an earlier answer"
    if exchange.repeat is not None:
        own = exchange.repeat
        what = (
            own.missing
            if own.probabilities is None
            else ", ".join(f"{each:.6g}" for each in own.probabilities)
        )
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
        yield "usage: " + ", ".join(
            f"{safe(name)} {count:,.0f}" for name, count in summary.usage.items()
        )


def _counts(counts: Mapping[str, int]) -> str:
    """The first ones, which are the most common, each with its number."""
    common = [*counts.items()]
    more = f"; {len(common) - _MOST} more kinds" if len(common) > _MOST else ""
    return "; ".join(f"{safe(name)} ({number:,})" for name, number in common[:_MOST]) + more
