"""One item of a run in full: what was sent, which tokens were seen, what every protocol makes of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from choicewise.errors import UsageError
from choicewise.protocols.protocol import Protocol
from choicewise.records.tables import FLOAT32
from choicewise.results.evidence import CORRECTING, Evidence
from choicewise.results.measurement import Measurement
from choicewise.results.rows import plain

if TYPE_CHECKING:
    from choicewise.results.run import Run


@dataclass(frozen=True, slots=True)
class Token:
    """A scored token: its ``text`` (bytes that are no characters of their own as ``\\xe2``), ``size`` in bytes,
    ``logprob`` in nats and ``rank``, the number of vocabulary entries with a strictly greater logit."""

    id: int
    text: str
    size: int
    logprob: float
    rank: int


@dataclass(frozen=True, slots=True)
class Scored:
    """A continuation as it was scored, or why it was not.

    ``choice`` is -1 for generated text; ``null`` the null context in place of the prompt; ``part`` tells apart what a
    reading asks about the same choice; ``context`` is its own prompt, where it has one.  ``total`` is the sum of the
    log-probabilities, with the correction ``before`` taken away and ``after`` added (all in nats).  ``value``: what was
    seen instead of log-probabilities, a loss or a cosine.  ``missing`` says of both when they are NaN.
    """

    choice: int
    part: int
    null: str | None
    context: str | None
    continuation: str
    context_tokens: int
    tokens_dropped: int
    bos: int
    merged: bool
    noncanonical: bool
    lossy: bool
    unknown: int
    missing: str | None
    before: float | None
    after: float | None
    total: float | None
    value: float | None
    tokens: tuple[Token, ...]
    generated: str | None


@dataclass(frozen=True, slots=True)
class Asked:
    """One prompt of the item, the protocols that read it, and what was seen after it.

    ``settled``: it was a float32 copy of the model that saw it, and not the 16-bit model, whose noise leaves it open.
    """

    protocols: tuple[str, ...]
    reading: str
    boundary: str
    context: str | None
    shots: int | None
    shots_dropped: int | None
    tokens_dropped: int
    settled: bool
    missing: str | None
    scored: tuple[Scored, ...]


@dataclass(frozen=True, slots=True)
class Decided:
    """What a protocol makes of the item; ``scores`` per choice (None: not scored), ``prediction`` -1 for none.

    ``credit`` None: missing.  ``margin``: best less second best score.  ``near_tie``: numeric noise could turn it.
    """

    protocol: str
    score: str
    scores: tuple[float, ...] | None
    prediction: int
    credit: float
    margin: float
    tied: bool
    near_tie: bool


@dataclass(frozen=True, slots=True)
class Explanation:
    """An item with everything that was asked about it."""

    item: str
    subject: str
    question: str
    choices: tuple[str, ...]
    gold: tuple[int, ...]
    model: str
    asked: tuple[Asked, ...]
    decided: tuple[Decided, ...]

    def as_json(self) -> dict[str, Any]:
        """As JSON knows it; the text is as it was sent, not made visible."""
        return plain(asdict(self))


def explain(run: Run, item: str) -> Explanation:
    """Everything ``run`` holds about ``item``, from its files alone.

    Raises UsageError, with the nearest ids, when the run has no such item.
    """
    tables = run.tables
    ids = tables.items["item"].to_pylist()
    if item not in ids:
        near = get_close_matches(item, ids, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else f"the first is {ids[0]}" if ids else "it has none"
        raise UsageError(f"{run.folder} has no item {item!r}; {hint}")
    about = tables.items.slice(ids.index(item), 1).to_pylist()[0]
    mine = {name: _of(table, item) for name, table in (("requests", tables.requests), ("spans", tables.spans))}
    seen = _seen(tables.observations, mine["spans"])
    prompts: dict[str, dict[str, Protocol]] = {}
    for name, protocol in run.protocols.items():
        prompts.setdefault(protocol.prompt_digest, {})[name] = protocol
    return Explanation(
        item=item,
        subject=about["subject"],
        question=about["question"],
        choices=tuple(about["choices"]),
        gold=tuple(about["gold"]),
        model=run.manifest.model.name,
        asked=tuple(
            _asked(
                protocols,
                request,
                [span for span in mine["spans"] if span["prompt"] == request["prompt"]],
                seen,
                _is_settled(run.tables.evidence(request["prompt"]), item),
            )
            for request in mine["requests"]
            if (protocols := prompts.get(request["prompt"]))
        ),
        decided=tuple(_decided(each, item) for each in run.measure() if item in each.evidence.ids),
    )


def _of(table: pa.Table, item: str) -> list[dict[str, Any]]:
    return table.filter(pc.equal(table["item"], item)).to_pylist()


def _seen(observations: pa.Table, spans: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    named = {span[column] for span in spans for column in ("key", *CORRECTING)} - {None}
    keys = pa.array([key + behind for key in sorted(named) for behind in ("", FLOAT32)], pa.string())
    return {row["key"]: row for row in observations.filter(pc.is_in(observations["key"], keys)).to_pylist()}


def _is_settled(evidence: Evidence, item: str) -> bool:
    return bool(evidence.settled[evidence.ids.index(item)])


def _asked(
    protocols: Mapping[str, Protocol],
    request: Mapping[str, Any],
    spans: list[dict[str, Any]],
    seen: Mapping[str, Mapping[str, Any]],
    settled: bool,
) -> Asked:
    one = next(iter(protocols.values()))
    nulls = {protocol.null for protocol in protocols.values()} | {None}
    spans = [span for span in spans if span["null"] in nulls]
    spans.sort(key=lambda span: (span["null"] is not None, span["null"] or "", span["choice"], span["part"]))
    return Asked(
        protocols=tuple(protocols),
        reading=one.reading,
        boundary=one.boundary,
        context=request["context"],
        shots=request["shots"],
        shots_dropped=request["shots_dropped"],
        tokens_dropped=request["tokens_dropped"],
        settled=settled,
        missing=request["missing"],
        scored=tuple(_scored(one, request, span, _answers(span, seen, settled)) for span in spans),
    )


def _answers(
    span: Mapping[str, Any], seen: Mapping[str, Mapping[str, Any]], settled: bool
) -> tuple[Mapping[str, Any] | None, ...]:
    """What answers the span itself, and what corrects it before and after."""
    behind = FLOAT32 if settled else ""
    return tuple(seen.get((span[column] or "") + behind) for column in ("key", *CORRECTING))


def _scored(
    protocol: Protocol,
    request: Mapping[str, Any],
    span: Mapping[str, Any],
    answers: tuple[Mapping[str, Any] | None, ...],
) -> Scored:
    seen, taken, added = answers[0], _correction(answers[1]), _correction(answers[2])
    before = span["null"] if span["null"] is not None else span["context"] or request["context"] or ""
    text = None if seen is None else seen["text"]
    value = None if seen is None else seen["value"]
    tokens = () if seen is None else _tokens(protocol, before, text or span["continuation"], seen)
    total = sum(token.logprob for token in tokens) - (taken or 0.0) + (added or 0.0) if tokens else None
    no_number = any(number is not None and math.isnan(number) for number in (total, value))
    kept = ("choice", "part", "null", "context", "continuation", "context_tokens", "tokens_dropped", "bos")
    flags = ("merged", "noncanonical", "lossy", "unknown")
    return Scored(
        **{name: span[name] for name in (*kept, *flags)},
        missing=span["missing"] or ("the model answers with NaN" if no_number else None),
        before=taken,
        after=added,
        total=total,
        value=value,
        tokens=tokens,
        generated=text,
    )


def _correction(seen: Mapping[str, Any] | None) -> float | None:
    return None if seen is None else float(sum(seen["logprobs"]))


def _tokens(protocol: Protocol, before: str, text: str, seen: Mapping[str, Any]) -> tuple[Token, ...]:
    """The tokens with the text they stand for: the bytes that the scored tokens end with, cut by their sizes."""
    size = sum(seen["sizes"])
    end = text.encode(errors="surrogatepass")
    if protocol.boundary == "separate":  # what stands before the text is the space that the tokenizer put there
        whole = b" " * max(0, size - len(end)) + end
    else:  # scored tokens may begin within the context, or after the beginning of the continuation
        whole = before.encode(errors="surrogatepass") + end
    if seen.get("text") is not None:  # generated: what follows the text are special tokens without bytes
        whole = end
    place = max(0, len(whole) - size)
    tokens = []
    for token, length, logprob, rank in zip(
        seen["tokens"], seen["sizes"], seen["logprobs"], seen["ranks"], strict=True
    ):
        cut = whole[place : place + length]
        tokens.append(Token(token, cut.decode(errors="backslashreplace"), length, logprob, rank))
        place += length
    return tuple(tokens)


def _decided(measured: Measurement, item: str) -> Decided:
    place = measured.evidence.ids.index(item)
    start, end = measured.evidence.item_offsets[place : place + 2]
    decisions = measured.decisions
    return Decided(
        protocol=measured.name,
        score=measured.protocol.score,
        scores=None if measured.scores is None else tuple(measured.scores[start:end].tolist()),
        prediction=int(decisions.prediction[place]),
        credit=float(decisions.credit[place]),
        margin=float(decisions.margin[place]),
        tied=bool(decisions.tied[place]),
        near_tie=bool(measured.near_ties[place]),
    )
