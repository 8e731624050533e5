"""Explain one item of a run: every prompt, the observations after it, and every decision."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from choicewise.errors import UsageError, did_you_mean
from choicewise.models.kinds import answering_kind
from choicewise.protocols.preparations import added_option
from choicewise.protocols.protocol import Protocol, Protocols
from choicewise.protocols.readings import READINGS
from choicewise.records import GENERATED
from choicewise.requests.blocks import unused
from choicewise.results.evidence import RunEvidence
from choicewise.results.measurement import Measurement
from choicewise.results.run import Run
from choicewise.results.tables import read_item_rows
from choicewise.scoring.calibrate import ACROSS_ITEMS
from choicewise.scoring.portion import NO_NUMBER, RunTables
from choicewise.util.jsonio import JsonMapping
from choicewise.util.text import counted

Record = JsonMapping
"""A row of a table, by column."""


@dataclass(frozen=True, kw_only=True)
class Token:
    r"""Describe a scored token.

    ``text``: bytes that are no characters are written as ``\xe2``.  ``size``: bytes.  ``logprob``:
    nats.  ``rank``: the number of vocabulary entries with a strictly greater logit.
    """

    id: int
    text: str
    size: int
    logprob: float
    rank: int


@dataclass(frozen=True, kw_only=True)
class ScoredContinuation:
    """Describe a continuation as it was scored, or say why it was not.

    ``choice``: -1 for generated text.  ``part``: numbers the prompts of a reading that asks several
    about a choice.  ``null``: the null context in place of the prompt.  ``context``: a prompt for
    this continuation alone.  ``total``: the sum of the log-probabilities in nats, with the
    correction ``before`` subtracted and ``after`` added.  ``value``: the observation in place of
    log-probabilities: a loss or a cosine.  ``missing``: why a total or value is NaN.
    ``at_most``: the log-probabilities and their sum are upper bounds.

    In a log of another tool ``continuation`` can be None, and there are no tokens; ``token_count``
    is their number, None if the log does not have it.
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
        """Check that another tool observed it, without tokens."""
        return self.total is not None and not self.tokens and self.generated is None

    @property
    def warnings(self) -> list[str]:
        """Reasons to distrust the continuation's score, in words."""
        warnings = {
            "a token straddles the end of the prompt": self.merged,
            "tokenized differently from the whole text": self.noncanonical,
            "the tokens do not spell their text": self.lossy,
            f"{self.unknown} unknown tokens": self.unknown,
            f"{self.bos} BOS tokens": self.bos > 1,
            f"{self.tokens_dropped} tokens of the prompt cut": self.tokens_dropped,
            f"missing: {self.missing}": self.missing,
            "only an upper bound is known": self.at_most,
        }
        return [warning for warning, applies in warnings.items() if applies]


@dataclass(frozen=True, kw_only=True)
class ExplainedRequest:
    """Describe one prompt of the item, the protocols that read it, and the observations after it.

    ``boundary``: of the protocol, or ``of TOOL`` if another tool sent the prompt.
    ``unused``: the fields of the data with content that the prompt does not show.
    ``exchange``: the messages from and to a server, if the kind of the model keeps them
    (:meth:`choicewise.ports.ModelKind.read_exchange`).
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
    exchange: JsonMapping | None = None

    @property
    def notes(self) -> list[str]:
        """The parts of the prompt, and the parts that it lacks, in words."""
        notes = {
            counted(self.shots or 0, "shot"): self.shots is not None,
            f"{self.shots_dropped} more dropped to fit": self.shots_dropped,
            f"{self.tokens_dropped} tokens cut": self.tokens_dropped,
            f"unused: {', '.join(self.unused)}": self.unused,
        }
        return [note for note, applies in notes.items() if applies]

    @property
    def beside(self) -> list[tuple[ScoredContinuation, ...]]:
        """The continuations by choice and part: after the prompt, then after each null context."""
        continuations: dict[tuple[int, int], list[ScoredContinuation]] = {}
        for scored in self.scored:
            continuations.setdefault((scored.choice, scored.part), []).append(scored)
        return [tuple(group) for group in continuations.values()]


@dataclass(frozen=True, kw_only=True)
class ItemDecision:
    """Describe the decision of one protocol about the item.

    ``scores``: by choice, None if the reading has none.  ``prediction``: -1 for none.  ``credit``:
    NaN if the item is missing, and ``missing`` says why.  ``margin``: best minus second best score.
    ``near_tie``: numeric noise could change the decision; None if the noise was not measured.
    ``lows``: the smallest value of each score, if some are upper bounds.
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
        """Marks of the scores that are upper bounds."""
        scores = self.scores or ()
        if self.lows is None:
            return (False,) * len(scores)
        return tuple(low < score for low, score in zip(self.lows, scores, strict=True))


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """Describe an item with all requests about it, and the decisions of all protocols."""

    item: str
    subject: str
    question: str
    choices: tuple[str, ...]
    gold: tuple[int, ...]
    model: str
    asked: tuple[ExplainedRequest, ...]
    decided: tuple[ItemDecision, ...]


def explain(run: Run, item: str) -> Explanation:
    """Return everything that ``run`` holds about ``item``, from its files alone.

    Raises UsageError, with the nearest ids, if the run has no such item.
    """
    (explanation,) = explain_items(run, [item])
    return explanation


def explain_items(run: Run, items: Sequence[str]) -> list[Explanation]:
    """Explain several items, in their order; the blocks that hold them are read once.

    All observations of these items are in memory at once: take no more than some hundreds.
    Raises UsageError, with the nearest ids, if the run has no item of that name.
    """
    ids = run.evidence.items["item"].combine_chunks()
    rows = pc.index_in(pa.array(items, pa.string()), ids).to_pylist()
    for item, row in zip(items, rows, strict=True):
        if row is None:
            nearest = did_you_mean(item, ids.to_pylist())
            raise UsageError(f"{run.folder} has no item {item!r}; {nearest}")

    evidence = RunEvidence(run.folder, run.manifest, sorted(set(rows)), run.evidence.items)
    alone = Run(evidence, run.protocols)
    (tables,) = evidence.portion_tables()
    # A calibration across items depends on all of the run, not on these items alone.
    across_items = {}
    for name, protocol in run.protocols.items():
        if protocol.calibration in ACROSS_ITEMS:
            across_items[name] = protocol
    measured = alone.measurements | Run(run.evidence, across_items).measurements
    decisions = [_ProtocolDecisions(measured[name]) for name in run.protocols]
    observed = _Observed(tables)
    item_rows = read_item_rows(run.folder, rows)
    return [_explanation(run, item_rows[row], observed, decisions) for row in rows]


class _Observed:
    """Hold the requests and spans of some items by item, and their answers."""

    def __init__(self, tables: RunTables) -> None:
        self.requests = _by_item(tables.requests)
        self.spans = _by_item(tables.spans)
        # If a prompt was sent again, the answer replaces the row that has none.
        rows = sorted(tables.observations.to_pylist(), key=lambda row: row["missing"] is None)
        self._answers = {row["key"]: row for row in rows}
        # Half of the spans share their answer with another: a null context is that of all prompts.
        self._tokens: dict[tuple[str | None, bytes], tuple[Token, ...]] = {}

    def answer(self, key: str | None) -> Record:
        """Return the observation with a key; an empty one if there is none."""
        return self._answers.get(key, _NO_ANSWER)

    def tokens(self, key: str | None, source: bytes, answer: Record) -> tuple[Token, ...]:
        """Return the tokens of ``answer``, which has this key and ends with the text ``source``."""
        tokens = self._tokens.get((key, source))
        if tokens is None:
            tokens = _tokens(source, answer)
            self._tokens[key, source] = tokens
        return tokens


def _by_item(table: pa.Table) -> dict[str, list[Record]]:
    rows: dict[str, list[Record]] = {}
    for row in table.to_pylist():
        rows.setdefault(row["item"], []).append(row)
    return rows


def _explanation(
    run: Run, item: Record, observed: _Observed, protocols: Sequence[_ProtocolDecisions]
) -> Explanation:
    by_prompt: dict[str, dict[str, Protocol]] = {}
    for decisions in protocols:
        protocol = decisions.protocol
        by_prompt.setdefault(protocol.prompt_digest, {})[decisions.name] = protocol

    requests = []
    for request in observed.requests.get(item["item"], []):
        readers = by_prompt.get(request["prompt"])
        if readers:
            requests.append(_explained_request(run, readers, request, observed))

    decided = []
    added_options = {}
    for decisions in protocols:
        decision = decisions.decision(item["item"])
        if decision is not None:
            decided.append(decision)
        added_options[added_option(decisions.protocol.prepare)] = True
    added_options.pop("", None)

    choices = list(item["choices"])
    if added_options:
        choices.append(" / ".join(added_options))
    return Explanation(
        item=item["item"],
        subject=item["subject"],
        question=item["question"],
        choices=tuple(choices),
        gold=tuple(item["gold"]),
        model=run.manifest.model.name,
        asked=tuple(requests),
        decided=tuple(decided),
    )


def _explained_request(
    run: Run, protocols: Protocols, request: Record, observed: _Observed
) -> ExplainedRequest:
    """Explain a request that all of ``protocols`` read, which share its axes."""
    protocol, *_ = protocols.values()
    nulls = {None} | {reader.null for reader in protocols.values()}
    spans = []
    for span in observed.spans.get(request["item"], []):
        if span["prompt"] == request["prompt"] and span["null"] in nulls:
            spans.append(span)
    spans.sort(key=_span_order)

    chain_tokens = {}
    if "chains" in READINGS[protocol.reading].takes:
        for span in spans:
            if span["choice"] == GENERATED:
                chain_tokens[span["part"]] = len(observed.answer(span["key"])["tokens"])
    scored = [_scored(protocol, request, span, observed, chain_tokens) for span in spans]

    boundary = protocol.boundary
    imported = run.manifest.imported
    if imported is not None and protocol.requests is not None:
        boundary = f"of {imported.tool}"
    return ExplainedRequest(
        protocols=tuple(protocols),
        reading=protocol.reading,
        boundary=boundary,
        context=request["context"],
        shots=request["shots"],
        shots_dropped=request["shots_dropped"],
        tokens_dropped=request["tokens_dropped"],
        missing=request["missing"],
        scored=tuple(scored),
        unused=unused(protocol, run.manifest.dataset.content),
        exchange=_exchange(run, spans, observed),
    )


def _span_order(span: Record) -> tuple[bool, str, int, int]:
    """Put spans after the prompt before those after a null context."""
    return span["null"] is not None, span["null"] or "", span["choice"], span["part"]


def _exchange(run: Run, spans: Sequence[Record], observed: _Observed) -> JsonMapping | None:
    """Return the first exchange with a server that an answer kept."""
    for span in spans:
        exchange = observed.answer(span["key"]).get("exchange")
        if exchange:
            kind = answering_kind(run.manifest)
            return None if kind is None else kind.read_exchange(exchange)
    return None


def _scored(
    protocol: Protocol,
    request: Record,
    span: Record,
    observed: _Observed,
    chain_tokens: Mapping[int, int],
) -> ScoredContinuation:
    """Describe a span; ``chain_tokens``: tokens of thoughts before the continuation, by part."""
    answer = observed.answer(span["key"])
    before_answer = observed.answer(span["before"])
    after_answer = observed.answer(span["after"])
    generated = answer["text"]
    unanswered = answer["missing"] or before_answer["missing"] or after_answer["missing"]
    if unanswered:
        # Without its correction an answer has no number, so nothing of it is shown.
        answer = _NO_ANSWER
    value = answer["value"]
    before = _total(before_answer)
    after = _total(after_answer)
    total = _total(answer)
    if total is not None:
        total = total - (before or 0.0) + (after or 0.0)

    missing = span["missing"] or unanswered
    if not missing and (_is_nan(total) or _is_nan(value)):
        missing = NO_NUMBER
    context_tokens = span["context_tokens"]
    if span["choice"] != GENERATED:
        context_tokens += chain_tokens.get(span["part"], 0)
        context_tokens += answer["thought_tokens"] or 0
    text = generated or span["continuation"] or ""
    source = _source(protocol, _context(request, span), text, answer)
    return ScoredContinuation(
        choice=span["choice"],
        part=span["part"],
        null=span["null"],
        context=span["context"],
        continuation=span["continuation"],
        context_tokens=context_tokens,
        tokens_dropped=span["tokens_dropped"],
        bos=span["bos"],
        merged=span["merged"],
        noncanonical=span["noncanonical"],
        lossy=span["lossy"],
        unknown=span["unknown"],
        missing=missing,
        before=before,
        after=after,
        total=total,
        value=value,
        tokens=observed.tokens(span["key"], source, answer),
        generated=generated,
        token_count=answer["token_count"],
        at_most=bool(answer["at_most"]),
    )


_NO_ANSWER: Record = {
    **dict.fromkeys(("text", "value", "total", "missing", "token_count", "at_most")),
    **dict.fromkeys(("tokens", "sizes", "logprobs", "ranks"), ()),
    "thought_tokens": 0,
}
"""Stands for the observation of a span that has none."""


def _context(request: Record, span: Record) -> str:
    """Return the text that a continuation was scored after."""
    if span["null"] is not None:
        return str(span["null"])
    return span["context"] or request["context"] or ""


def _is_nan(number: float | None) -> bool:
    return number is not None and math.isnan(number)


def _total(answer: Record) -> float | None:
    """Return the log-likelihood of an observation in nats; None if it has none."""
    if answer["logprobs"]:
        return float(sum(answer["logprobs"]))
    total: float | None = answer["total"]
    return total


def _source(protocol: Protocol, context: str, text: str, answer: Record) -> bytes:
    """Return the bytes of the scored tokens, of which ``text`` is the end, and at most some more
    before them.
    """
    total_size = sum(answer["sizes"])
    source = text.encode(errors="surrogatepass")
    if answer["text"] is not None:
        # What follows generated text are special tokens, which have no bytes.
        return source
    if protocol.boundary == "separate":
        # The tokenizer put a space before the text.
        return b" " * max(0, total_size - len(source)) + source
    if total_size:
        # Scored tokens may begin within the context.  A character has at least a byte, so the end
        # of the context has enough of them.
        source = context[-total_size:].encode(errors="surrogatepass") + source
    return source[-total_size:]


def _tokens(source: bytes, answer: Record) -> tuple[Token, ...]:
    """Return the tokens with their texts: the bytes at the end of ``source``, split by sizes."""
    start = max(0, len(source) - sum(answer["sizes"]))
    tokens = []
    columns = zip(
        answer["tokens"], answer["sizes"], answer["logprobs"], answer["ranks"], strict=True
    )
    for token, size, logprob, rank in columns:
        # A token can hold a part of a character.
        spelled = source[start : start + size].decode(errors="backslashreplace")
        tokens.append(Token(id=token, text=spelled, size=size, logprob=logprob, rank=rank))
        start += size
    return tuple(tokens)


class _ProtocolDecisions:
    """Find the decisions of one protocol by item, with what all items share computed once."""

    def __init__(self, measured: Measurement) -> None:
        self.name = measured.name
        self.protocol = measured.protocol
        self._measured = measured
        self._indices = {item: index for index, item in enumerate(measured.ids.to_pylist())}
        self._near_ties = measured.near_ties
        self._bounded = measured.bounded
        self._lows = None
        if measured.lows is not None and len(measured.lows.places):
            self._lows = measured.low_scores

    def decision(self, item: str) -> ItemDecision | None:
        """Return the decision about an item; None if the run has not asked it of the protocol."""
        index = self._indices.get(item)
        if index is None:
            return None
        measured = self._measured
        start, stop = measured.evidence.item_offsets[index : index + 2]
        scores = None
        if measured.scores is not None:
            scores = tuple(measured.scores[start:stop].tolist())
        lows = None
        if self._lows is not None:
            lows = tuple(self._lows[start:stop].tolist())
        if lows == scores:
            lows = None
        near_tie = None
        if self._bounded[index]:
            near_tie = bool(self._near_ties[index])

        decisions = measured.decisions
        missing = None
        # A reason is looked up among those of all items, and few items are missing.
        if decisions.missing[index]:
            is_item = np.arange(len(measured.credit)) == index
            missing = measured.missing_reasons(is_item)[0].reason
        return ItemDecision(
            protocol=self.name,
            score=self.protocol.score,
            calibration=self.protocol.calibration,
            scores=scores,
            prediction=decisions.prediction[index].item(),
            credit=decisions.credit[index].item(),
            margin=decisions.margin[index].item(),
            tied=decisions.tied[index].item(),
            near_tie=near_tie,
            lows=lows,
            missing=missing,
        )
