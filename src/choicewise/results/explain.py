"""From the tables of a run to the explanation of one item."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from choicewise.errors import UsageError, did_you_mean
from choicewise.protocols.protocol import Protocol
from choicewise.records.tables import FLOAT32
from choicewise.results.explanation import AskedPrompt, Explanation, ItemDecision, ScoredContinuation, Token
from choicewise.results.measurement import Measurement
from choicewise.results.run_tables import KEYS

if TYPE_CHECKING:
    from choicewise.results.run import Run

Record = Mapping[str, Any]
"""A row of a table, by column."""


def explain(run: Run, item: str) -> Explanation:
    """Everything ``run`` holds about ``item``, from its files alone.

    Raises UsageError, with the nearest ids, when the run has no such item.
    """
    tables = run.tables
    ids = tables.items["item"].to_pylist()
    if item not in ids:
        raise UsageError(f"{run.folder} has no item {item!r}; {did_you_mean(item, ids)}")
    about = tables.items.slice(ids.index(item), 1).to_pylist()[0]
    spans = _of(tables.spans, item)
    answers = _answers(tables.observations, spans)
    prompts: dict[str, dict[str, Protocol]] = {}
    for name, protocol in run.protocols.items():
        prompts.setdefault(protocol.prompt_digest, {})[name] = protocol
    asked = []
    for request in _of(tables.requests, item):
        if protocols := prompts.get(request["prompt"]):
            evidence = run.evidence.under(request["prompt"])
            rescored = bool(evidence.rescored[evidence.ids.index(item)])
            own = [span for span in spans if span["prompt"] == request["prompt"]]
            asked.append(_asked(protocols, request, own, answers, rescored))
    return Explanation(
        item=item,
        subject=about["subject"],
        question=about["question"],
        choices=tuple(about["choices"]),
        gold=tuple(about["gold"]),
        model=run.manifest.model.name,
        asked=tuple(asked),
        decided=tuple(_decision(each, item) for each in run.measurements.values() if item in each.evidence.ids),
    )


def _of(table: pa.Table, item: str) -> list[Record]:
    rows: list[Record] = table.filter(pc.equal(table["item"], item)).to_pylist()
    return rows


def _answers(observations: pa.Table, spans: list[Record]) -> dict[str, Record]:
    """The observations of these spans by key, those of a float32 copy included."""
    named = {span[column] for span in spans for column in KEYS} - {None}
    keys = pa.array([key + suffix for key in sorted(named) for suffix in ("", FLOAT32)], pa.string())
    return {row["key"]: row for row in observations.filter(pc.is_in(observations["key"], keys)).to_pylist()}


def _asked(
    protocols: Mapping[str, Protocol],
    request: Record,
    spans: list[Record],
    answers: Mapping[str, Record],
    rescored: bool,
) -> AskedPrompt:
    one = next(iter(protocols.values()))
    nulls = {protocol.null for protocol in protocols.values()} | {None}
    spans = [span for span in spans if span["null"] in nulls]
    spans.sort(key=lambda span: (span["null"] is not None, span["null"] or "", span["choice"], span["part"]))
    suffix = FLOAT32 if rescored else ""
    scored = []
    for span in spans:
        own, before, after = (answers.get((span[column] or "") + suffix) for column in KEYS)
        scored.append(_scored(one, request, span, own, _total(before), _total(after)))
    return AskedPrompt(
        protocols=tuple(protocols),
        reading=one.reading,
        boundary=one.boundary,
        context=request["context"],
        shots=request["shots"],
        shots_dropped=request["shots_dropped"],
        tokens_dropped=request["tokens_dropped"],
        rescored=rescored,
        missing=request["missing"],
        scored=tuple(scored),
    )


def _scored(
    protocol: Protocol,
    request: Record,
    span: Record,
    answer: Record | None,
    before: float | None,
    after: float | None,
) -> ScoredContinuation:
    context = span["null"] if span["null"] is not None else span["context"] or request["context"] or ""
    text = None if answer is None else answer["text"]
    value = None if answer is None else answer["value"]
    total = _total(answer)
    if total is not None:
        total = total - (before or 0.0) + (after or 0.0)
    no_number = any(number is not None and math.isnan(number) for number in (total, value))
    kept = ("choice", "part", "null", "context", "continuation", "context_tokens", "tokens_dropped", "bos")
    flags = ("merged", "noncanonical", "lossy", "unknown")
    return ScoredContinuation(
        **{name: span[name] for name in (*kept, *flags)},
        missing=span["missing"] or ("the model answers with NaN" if no_number else None),
        before=before,
        after=after,
        total=total,
        value=value,
        tokens=() if answer is None else _tokens(protocol, context, text or span["continuation"], answer),
        generated=text,
    )


def _total(answer: Record | None) -> float | None:
    """The log-likelihood of an observation in nats; None where it has none."""
    if answer is None:
        return None
    total: float | None = answer["total"]
    return float(sum(answer["logprobs"])) if answer["logprobs"] else total


def _tokens(protocol: Protocol, context: str, text: str, answer: Record) -> tuple[Token, ...]:
    """The tokens with the text they stand for: the bytes that the scored tokens end with, split by their sizes."""
    size = sum(answer["sizes"])
    scored = text.encode(errors="surrogatepass")
    if answer["text"] is not None:  # generated: what follows the text are special tokens without bytes
        source = scored
    elif protocol.boundary == "separate":  # before the text is the space that the tokenizer put there
        source = b" " * max(0, size - len(scored)) + scored
    else:  # scored tokens may begin within the context, or after the beginning of the continuation
        source = context.encode(errors="surrogatepass") + scored
    place = max(0, len(source) - size)
    tokens = []
    columns = (answer[name] for name in ("tokens", "sizes", "logprobs", "ranks"))
    for token, length, logprob, rank in zip(*columns, strict=True):
        part = source[place : place + length]
        tokens.append(Token(token, part.decode(errors="backslashreplace"), length, logprob, rank))
        place += length
    return tuple(tokens)


def _decision(measured: Measurement, item: str) -> ItemDecision:
    place = measured.evidence.ids.index(item)
    start, end = measured.evidence.item_offsets[place : place + 2]
    decisions = measured.decisions
    return ItemDecision(
        protocol=measured.name,
        score=measured.protocol.score,
        scores=None if measured.scores is None else tuple(measured.scores[start:end].tolist()),
        prediction=int(decisions.prediction[place]),
        credit=float(decisions.credit[place]),
        margin=float(decisions.margin[place]),
        tied=bool(decisions.tied[place]),
        near_tie=bool(measured.near_ties[place]),
    )
