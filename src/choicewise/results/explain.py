"""One item in full: every prompt, what was observed after it, and what every protocol decides."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from choicewise.errors import UsageError, did_you_mean
from choicewise.models.kinds import answering_kind
from choicewise.ports import ModelKind
from choicewise.protocols.preparations import added_option
from choicewise.protocols.protocol import Protocol
from choicewise.protocols.readings import READINGS
from choicewise.records import GENERATED, KEYS
from choicewise.requests.blocks import unused
from choicewise.results.evidence import RunEvidence
from choicewise.results.measurement import Measurement
from choicewise.results.run import Run
from choicewise.results.spans import NO_NUMBER
from choicewise.results.tables import read_item_rows
from choicewise.scoring.calibrate import ACROSS_ITEMS
from choicewise.util.text import counted

Record = Mapping[str, Any]
"""A row of a table, by column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A scored token: its ``text`` (bytes that are no characters of their own as ``\\xe2``), ``size`` in bytes,
    ``logprob`` in nats and ``rank``, the number of vocabulary entries with a strictly greater logit."""

    id: int
    text: str
    size: int
    logprob: float
    rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredContinuation:
    """A continuation as it was scored, or why it was not.

    ``choice`` is -1 for generated text; ``null`` the null context in place of the prompt; ``part`` numbers what a
    reading asks about the same choice; ``context`` is its own prompt, where it has one.  ``total`` is the sum of the
    log-probabilities, with the correction ``before`` subtracted and ``after`` added (all in nats).  ``value``: what was
    observed instead of log-probabilities, a loss or a cosine.  ``missing`` says so when a total or value is NaN.
    Of what another tool's log says, ``continuation`` is None where its text is not there, and no tokens are known;
    ``token_count`` is how many there were, None where not even that is known.  ``at_most``: the log-probabilities and
    their sum are upper bounds.
    """

    choice: int
    part: int
    null: str | None
    context: str | None
    continuation: str | None
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
    token_count: int | None = None
    at_most: bool = False

    @property
    def logged(self) -> bool:
        """Whether it was observed without tokens, by another tool."""
        return self.total is not None and not self.tokens and self.generated is None

    @property
    def warnings(self) -> list[str]:
        """What speaks against it, in words."""
        warnings = {
            "a token straddles the end of the context": self.merged,
            "not the tokens of the whole text encoded at once": self.noncanonical,
            "the tokens do not spell their text": self.lossy,
            f"{self.unknown} unknown tokens": self.unknown,
            f"{self.bos} BOS tokens": self.bos > 1,
            f"{self.tokens_dropped} tokens of the context cut off": self.tokens_dropped,
            f"missing: {self.missing}": self.missing,
            "no more than an upper bound is known": self.at_most,
        }
        return [words for words, true in warnings.items() if true]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedRequest:
    """One prompt of the item, the protocols that read it, and what was observed after it.

    ``boundary``: the protocol's, or in words whose, where another tool asked.
    ``unused``: the fields of the data with content that the prompt does not show.  ``exchange``: what was
    sent and what came, if the kind of the model keeps it (:meth:`choicewise.ports.ModelKind.read_exchange`).
    """

    protocols: tuple[str, ...]
    reading: str
    boundary: str
    context: str | None
    shots: int | None
    shots_dropped: int | None
    tokens_dropped: int
    missing: str | None
    scored: tuple[ScoredContinuation, ...]
    unused: tuple[str, ...] = ()
    exchange: Mapping[str, Any] | None = None

    @property
    def notes(self) -> list[str]:
        """Of what it is made and what it lacks, in words."""
        notes = {
            counted(self.shots or 0, "shot"): self.shots is not None,
            f"{self.shots_dropped} more dropped to fit": self.shots_dropped,
            f"{self.tokens_dropped} tokens cut off": self.tokens_dropped,
            f"unused: {', '.join(self.unused)}": self.unused,
        }
        return [words for words, true in notes.items() if true]

    @property
    def beside(self) -> list[tuple[ScoredContinuation, ...]]:
        """What was scored of each choice and part, in their order: after the prompt, then after each null context."""
        alike: dict[tuple[int, int], list[ScoredContinuation]] = {}
        for each in self.scored:
            alike.setdefault((each.choice, each.part), []).append(each)
        return list(map(tuple, alike.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemDecision:
    """What a protocol decides about the item; ``scores`` per choice (None: not scored), ``prediction`` -1 for none.

    ``credit`` NaN: missing, ``missing`` says why.  ``margin``: best minus second best score.  ``near_tie``: numeric
    noise could change it; None: not known.  ``lows``: the lowest that each score may be, where some are upper bounds.
    """

    protocol: str
    score: str
    calibration: str
    scores: tuple[float, ...] | None
    prediction: int
    credit: float
    margin: float
    tied: bool
    near_tie: bool | None
    lows: tuple[float, ...] | None = None
    missing: str | None = None

    @property
    def at_most(self) -> tuple[bool, ...]:
        """Which of the scores are upper bounds."""
        scores = self.scores or ()
        return tuple(low < high for low, high in zip(self.lows or scores, scores, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """An item with everything that was asked about it."""

    item: str
    subject: str
    question: str
    choices: tuple[str, ...]
    gold: tuple[int, ...]
    model: str
    asked: tuple[ExplainedRequest, ...]
    decided: tuple[ItemDecision, ...]


def explain(run: Run, item: str) -> Explanation:
    """Everything ``run`` holds about ``item``, from its files alone.

    Raises UsageError, with the nearest ids, when the run has no such item.
    """
    (explanation,) = explain_items(run, [item])
    return explanation


def explain_items(run: Run, items: Sequence[str]) -> list[Explanation]:
    """The same of several items, in their order; the blocks that hold them are read once.

    Everything observed of these items is in memory at once: take no more than some hundreds.
    """
    known = run.evidence.items["item"]
    places = pc.fill_null(
        pc.index_in(pa.array(items, pa.string()), known.combine_chunks()), -1
    ).to_pylist()
    for item, place in zip(items, places, strict=True):
        if place < 0:
            raise UsageError(
                f"{run.folder} has no item {item!r}; {did_you_mean(item, known.to_pylist())}"
            )
    only = sorted(set(places))
    evidence = RunEvidence(run.folder, run.manifest, only, run.evidence.items)
    alone = Run(evidence, run.protocols)
    (tables,) = alone.evidence.portion_tables()
    across = {
        name: each for name, each in run.protocols.items() if each.calibration in ACROSS_ITEMS
    }
    measured = alone.measurements | Run(run.evidence, across).measurements
    decided = [_Decided(measured[name]) for name in run.protocols]
    requests, spans = _by_item(tables.requests), _by_item(tables.spans)
    observed = sorted(tables.observations.to_pylist(), key=lambda row: row["missing"] is None)
    answers = {
        row["key"]: row for row in observed
    }  # of a question that was asked again the answer counts
    texts = read_item_rows(run.folder, places)
    return [
        _explanation(
            run, texts[place], requests.get(item, []), spans.get(item, []), answers, decided
        )
        for item, place in zip(items, places, strict=True)
    ]


def _by_item(table: pa.Table) -> dict[str, list[Record]]:
    rows: dict[str, list[Record]] = {}
    for row in table.to_pylist():
        rows.setdefault(row["item"], []).append(row)
    return rows


def _explanation(
    run: Run,
    about: Record,
    requests: Sequence[Record],
    spans: Sequence[Record],
    answers: Mapping[str, Record],
    decided: Sequence[_Decided],
) -> Explanation:
    prompts: dict[str, dict[str, Protocol]] = {}
    for each in decided:
        prompts.setdefault(each.protocol.prompt_digest, {})[each.name] = each.protocol
    asked = []
    kind = answering_kind(run.manifest)
    for request in requests:
        if protocols := prompts.get(request["prompt"]):
            own = [span for span in spans if span["prompt"] == request["prompt"]]
            lacks = unused(next(iter(protocols.values())), run.manifest.dataset.content)
            told = _asked(protocols, request, own, answers, kind)
            imported, rendered = run.manifest.imported, next(iter(protocols.values())).requests
            boundary = (
                told.boundary if imported is None or rendered is None else f"of {imported.tool}"
            )
            asked.append(replace(told, boundary=boundary, unused=lacks))
    decisions = (each.decision(about["item"]) for each in decided)
    added = [
        text
        for text in dict.fromkeys(added_option(each.protocol.prepare) for each in decided)
        if text
    ]
    choices = list(about["choices"])
    if added:
        choices.append(" / ".join(added))
    return Explanation(
        item=about["item"],
        subject=about["subject"],
        question=about["question"],
        choices=tuple(choices),
        gold=tuple(about["gold"]),
        model=run.manifest.model.name,
        asked=tuple(asked),
        decided=tuple(each for each in decisions if each is not None),
    )


def _asked(
    protocols: Mapping[str, Protocol],
    request: Record,
    spans: list[Record],
    answers: Mapping[str, Record],
    kind: ModelKind | None,
) -> ExplainedRequest:
    one = next(iter(protocols.values()))
    nulls = {protocol.null for protocol in protocols.values()} | {None}
    spans = [span for span in spans if span["null"] in nulls]
    spans.sort(
        key=lambda span: (
            span["null"] is not None,
            span["null"] or "",
            span["choice"],
            span["part"],
        )
    )
    chains = _chain_tokens(spans, answers) if "chains" in READINGS[one.reading].takes else {}
    scored = tuple(_scored(one, request, span, answers, chains) for span in spans)
    columns = {
        name: request[name]
        for name in ("context", "shots", "shots_dropped", "tokens_dropped", "missing")
    }
    said = next(
        filter(
            None, (answers[span["key"]].get("exchange") for span in spans if span["key"] in answers)
        ),
        None,
    )
    exchange = None if said is None or kind is None else kind.read_exchange(said)
    return ExplainedRequest(
        protocols=tuple(protocols),
        reading=one.reading,
        boundary=one.boundary,
        **columns,
        scored=scored,
        exchange=exchange,
    )


def _chain_tokens(spans: list[Record], answers: Mapping[str, Record]) -> dict[int, int]:
    """How many tokens each chain has, by its part."""
    chains = (
        (span["part"], answers.get(span["key"])) for span in spans if span["choice"] == GENERATED
    )
    return {part: len(answer["tokens"]) for part, answer in chains if answer is not None}


def _scored(
    protocol: Protocol,
    request: Record,
    span: Record,
    answers: Mapping[str, Record],
    chains: Mapping[int, int],
) -> ScoredContinuation:
    """``chains``: tokens between the context and what is scored, by part; those of a thought the answer says."""
    answer, *corrections = (answers.get(span[column] or "") for column in KEYS)
    before, after = map(_total, corrections)
    context = (
        span["null"] if span["null"] is not None else span["context"] or request["context"] or ""
    )
    text, value = (None, None) if answer is None else (answer["text"], answer["value"])
    total = _total(answer)
    if total is not None:
        total = total - (before or 0.0) + (after or 0.0)
    no_number = any(number is not None and math.isnan(number) for number in (total, value))
    unanswered = next(
        (row["missing"] for row in (answer, *corrections) if row and row["missing"]), None
    )
    missing = span["missing"] or unanswered or (NO_NUMBER if no_number else None)
    if unanswered is not None:
        answer = total = value = None
    spelled = text or span["continuation"] or ""
    tokens = () if answer is None else _tokens(protocol, context, spelled, answer)
    columns = (
        "choice",
        "part",
        "null",
        "context",
        "continuation",
        "context_tokens",
        "tokens_dropped",
        "bos",
    )
    about = {name: span[name] for name in (*columns, "merged", "noncanonical", "lossy", "unknown")}
    if span["choice"] != GENERATED:
        along = 0 if answer is None else answer["thought_tokens"] or 0
        about["context_tokens"] += chains.get(span["part"], 0) + along
    about |= {"missing": missing, "before": before, "after": after, "total": total, "value": value}
    known = None if answer is None else answer["token_count"]
    bound = answer is not None and bool(answer["at_most"])
    return ScoredContinuation(
        **about, tokens=tokens, generated=text, token_count=known, at_most=bound
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
    if (
        answer["text"] is not None
    ):  # generated: what follows the text are special tokens without bytes
        source = scored
    elif (
        protocol.boundary == "separate"
    ):  # before the text is the space that the tokenizer put there
        source = b" " * max(0, size - len(scored)) + scored
    else:  # scored tokens may begin within the context, or after the beginning of the continuation
        end = context[-size:] if size else ""  # a character has at least a byte
        source = end.encode(errors="surrogatepass") + scored
    place = max(0, len(source) - size)
    tokens = []
    columns = (answer[name] for name in ("tokens", "sizes", "logprobs", "ranks"))
    for token, length, logprob, rank in zip(*columns, strict=True):
        part = source[place : place + length]
        tokens.append(
            Token(
                id=token,
                text=part.decode(errors="backslashreplace"),
                size=length,
                logprob=logprob,
                rank=rank,
            )
        )
        place += length
    return tuple(tokens)


class _Decided:
    """What one protocol decides, laid out once for all items that are asked about."""

    def __init__(self, measured: Measurement) -> None:
        self.name, self.protocol, self._measured = measured.name, measured.protocol, measured
        self._places = {item: place for place, item in enumerate(measured.ids.to_pylist())}
        self._near_ties, self._bounded = measured.near_ties, measured.bounded
        self._lows = (
            measured.low_scores if measured.lows is not None and len(measured.lows.places) else None
        )

    def decision(self, item: str) -> ItemDecision | None:
        """None where the item was not asked under the protocol."""
        place, measured, decisions = (
            self._places.get(item),
            self._measured,
            self._measured.decisions,
        )
        if place is None:
            return None
        rows = slice(*measured.evidence.item_offsets[place : place + 2])
        scores = None if measured.scores is None else tuple(measured.scores[rows].tolist())
        lows = None if self._lows is None else tuple(self._lows[rows].tolist())
        return ItemDecision(
            protocol=self.name,
            score=self.protocol.score,
            calibration=self.protocol.calibration,
            scores=scores,
            prediction=decisions.prediction[place].item(),
            credit=decisions.credit[place].item(),
            margin=decisions.margin[place].item(),
            tied=decisions.tied[place].item(),
            near_tie=bool(self._near_ties[place]) if self._bounded[place] else None,
            lows=None if lows == scores else lows,
            missing=self._missing(place),
        )

    def _missing(self, place: int) -> str | None:
        """Why the item is missing, where it is."""
        only = np.arange(len(self._measured.credit)) == place
        return next((each.reason for each in self._measured.missing_reasons(only)), None)
