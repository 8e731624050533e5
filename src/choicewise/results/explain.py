"""Explain one item of a run: every prompt, the observations after it, and every decision."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

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
from choicewise.scoring.observed import Floats, Mask
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
        warnings = continuation_warnings(
            merged=self.merged,
            noncanonical=self.noncanonical,
            lossy=self.lossy,
            unknown=self.unknown,
            bos=self.bos,
            tokens_dropped=self.tokens_dropped,
            missing=self.missing,
            at_most=self.at_most,
        )
        return list(warnings)


# Thousands of continuations have the same few warnings.
@lru_cache(maxsize=1024)
def continuation_warnings(
    merged: bool,
    noncanonical: bool,
    lossy: bool,
    unknown: int,
    bos: int,
    tokens_dropped: int,
    missing: str | None,
    at_most: bool,
) -> tuple[str, ...]:
    """Return the reasons to distrust the score of a :class:`ScoredContinuation`, in words."""
    warnings = {
        "a token straddles the end of the prompt": merged,
        "tokenized differently from the whole text": noncanonical,
        "the tokens do not spell their text": lossy,
        f"{unknown} unknown tokens": unknown,
        f"{bos} BOS tokens": bos > 1,
        f"{tokens_dropped} tokens of the prompt cut": tokens_dropped,
        f"missing: {missing}": missing,
        "only an upper bound is known": at_most,
    }
    return tuple(warning for warning, applies in warnings.items() if applies)


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
    explained = ExplainedItems(run, items)
    return [explained.explanation(item) for item in explained.items]


@dataclass(frozen=True)
class RequestRows:
    """Hold a request about an item without its continuations, which are ``rows`` of columns.

    ``protocol``: the first one that reads the request.
    """

    request: ExplainedRequest
    protocol: Protocol
    rows: list[int]


class ExplainedItems:
    """Hold what ``run`` observed of some items, with all continuations by columns.

    ``items``: their rows of the item file, in the order of ``ids``.  ``decisions``: of every
    protocol of the run.  Raises UsageError, with the nearest ids, if the run has no such item.
    """

    def __init__(self, run: Run, ids: Sequence[str]) -> None:
        all_ids = run.evidence.items["item"].combine_chunks()
        rows = pc.index_in(pa.array(ids, pa.string()), all_ids).to_pylist()
        for item, row in zip(ids, rows, strict=True):
            if row is None:
                nearest = did_you_mean(item, all_ids.to_pylist())
                raise UsageError(f"{run.folder} has no item {item!r}; {nearest}")

        if run.evidence.kept is None:
            evidence = RunEvidence(run.folder, run.manifest, sorted(set(rows)), run.evidence.items)
            (tables,) = evidence.portion_tables()
            # A calibration across items depends on all of the run, not on these items alone.
            across_items = {}
            for name, protocol in run.protocols.items():
                if protocol.calibration in ACROSS_ITEMS:
                    across_items[name] = protocol
            measured = dict(Run(evidence, run.protocols).measurements)
            measured |= Run(run.evidence, across_items).measurements
        else:
            tables = run.evidence.kept.of_items(pa.array(ids, pa.string()))
            measured = run.measurements
        item_rows = read_item_rows(run.folder, rows)
        self.items = [item_rows[row] for row in rows]
        self.continuations = ContinuationColumns(tables)
        self.decisions = [ProtocolDecisions(measured[name]) for name in run.protocols]
        self._run = run
        self._requests: dict[str, list[Record]] = {}
        for request in tables.requests.to_pylist():
            self._requests.setdefault(request["item"], []).append(request)
        self._by_prompt: dict[str, dict[str, Protocol]] = {}
        for name, protocol in run.protocols.items():
            self._by_prompt.setdefault(protocol.prompt_digest, {})[name] = protocol

    def explanation(self, item: Record) -> Explanation:
        """Explain one of the ``items``."""
        asked = []
        for request in self.requests(item["item"]):
            asked.append(
                replace(
                    request.request,
                    scored=tuple(self._scored(request)),
                    exchange=self._exchange(request.rows),
                )
            )
        decided = []
        for decisions in self.decisions:
            decision = decisions.decision(item["item"])
            if decision is not None:
                decided.append(decision)
        return Explanation(
            item=item["item"],
            subject=item["subject"],
            question=item["question"],
            choices=tuple(self.choices(item)),
            gold=tuple(item["gold"]),
            model=self._run.manifest.model.name,
            asked=tuple(asked),
            decided=tuple(decided),
        )

    def choices(self, item: Record) -> list[str]:
        """Return the choices of one of the ``items``, and the options that protocols add."""
        added_options = {}
        for protocol in self._run.protocols.values():
            added_options[added_option(protocol.prepare)] = True
        added_options.pop("", None)
        choices = list(item["choices"])
        if added_options:
            choices.append(" / ".join(added_options))
        return choices

    def requests(self, item: str) -> Iterator[RequestRows]:
        """Yield the requests about an item, those that a protocol reads."""
        for request in self._requests.get(item, []):
            protocols = self._by_prompt.get(request["prompt"])
            if protocols:
                yield self._request(request, protocols)

    def _request(self, request: Record, protocols: Protocols) -> RequestRows:
        """Describe a request that all of ``protocols`` read, which share its axes."""
        protocol, *_ = protocols.values()
        boundary = protocol.boundary
        imported = self._run.manifest.imported
        if imported is not None and protocol.requests is not None:
            boundary = f"of {imported.tool}"
        explained = ExplainedRequest(
            protocols=tuple(protocols),
            reading=protocol.reading,
            boundary=boundary,
            context=request["context"],
            shots=request["shots"],
            shots_dropped=request["shots_dropped"],
            tokens_dropped=request["tokens_dropped"],
            missing=request["missing"],
            scored=(),
            unused=self._unused[request["prompt"]],
        )
        nulls = {protocol.null for protocol in protocols.values()}
        rows = self.continuations.rows(request["item"], request["prompt"], nulls | {None})
        return RequestRows(explained, protocol, rows)

    @cached_property
    def _unused(self) -> dict[str, tuple[str, ...]]:
        """Return the fields of the data that each prompt does not show."""
        content = self._run.manifest.dataset.content
        unused_fields = {}
        for prompt, protocols in self._by_prompt.items():
            protocol, *_ = protocols.values()
            unused_fields[prompt] = unused(protocol, content)
        return unused_fields

    def _scored(self, request: RequestRows) -> Iterator[ScoredContinuation]:
        columns = self.continuations
        chain_tokens = {}
        if "chains" in READINGS[request.protocol.reading].takes:
            for row in request.rows:
                if columns["choice"][row] == GENERATED:
                    chain_tokens[columns["part"][row]] = columns["observed_tokens"][row]
        for row in request.rows:
            context_tokens = columns["context_tokens"][row]
            if columns["choice"][row] != GENERATED:
                context_tokens += chain_tokens.get(columns["part"][row], 0)
                context_tokens += columns["thought_tokens"][row] or 0
            source = columns.source(row, request)
            fields = {name: columns[name][row] for name in _SCORED_COLUMNS}
            yield ScoredContinuation(
                **fields,
                generated=columns["text"][row],
                at_most=bool(columns["at_most"][row]),
                context_tokens=context_tokens,
                tokens=columns.tokens.described(columns.answers[row], source),
            )

    def _exchange(self, rows: Sequence[int]) -> JsonMapping | None:
        """Return the first exchange with a server that an answer kept."""
        for row in rows:
            exchange = self.continuations["exchange"][row]
            if exchange:
                kind = answering_kind(self._run.manifest)
                return None if kind is None else kind.read_exchange(exchange)
        return None


_SPAN_COLUMNS = tuple(
    "choice part null context continuation context_tokens tokens_dropped bos merged noncanonical "
    "lossy unknown".split()
)
"""Columns of the spans that are columns of continuations."""

_TEXT_COLUMNS = ("text", "exchange")
"""Columns of the observations that are columns of continuations."""

_ANSWER_COLUMNS = ("value", "token_count", "at_most", "thought_tokens")
"""Columns of the observations that continuations without a number do not have."""

_SCORED_COLUMNS = tuple(
    "choice part null context continuation tokens_dropped bos merged noncanonical lossy unknown "
    "missing before after total value token_count".split()
)
"""Columns of continuations that are fields of a ScoredContinuation."""


class ContinuationColumns:
    """Hold every continuation in ``tables`` by columns: lists with an entry per continuation.

    The columns have the names and the meaning of the fields of :class:`ScoredContinuation`.  The
    continuations after a prompt come before those after a null context, then by choice and part.
    """

    def __init__(self, tables: RunTables) -> None:
        order = _span_order(tables.spans)
        spans = tables.spans.take(order)
        self.tokens = ObservedTokens(tables)
        totals = self.tokens.totals(tables.observations["total"])
        observed, before, after = tables.answers[:, order.to_numpy()].tolist()
        lost = _values(tables.observations, "missing")
        self.answers: list[int] = []
        """Rows of the observations; -1 for a continuation without a number."""
        missing = []
        for row, reason in enumerate(spans["missing"].to_pylist()):
            unanswered = lost[observed[row]] or lost[before[row]] or lost[after[row]]
            missing.append(reason or unanswered)
            # Without its correction an answer has no number, so nothing of it is kept.
            self.answers.append(-1 if unanswered else observed[row])

        columns: dict[str, list[Any]] = {"missing": missing}
        for name in _SPAN_COLUMNS:
            columns[name] = spans[name].to_pylist()
        for name in _TEXT_COLUMNS:
            columns[name] = _taken(_values(tables.observations, name), observed)
        for name in _ANSWER_COLUMNS:
            columns[name] = _taken(_values(tables.observations, name), self.answers)
        columns["observed_tokens"] = list(map(self.tokens.count, observed))
        columns["before"] = _taken(totals, before)
        columns["after"] = _taken(totals, after)
        columns["total"] = _taken(totals, self.answers)
        _correct(columns)
        self._columns = columns
        self._rows: dict[tuple[str, str], list[int]] = {}
        pairs = zip(spans["item"].to_pylist(), spans["prompt"].to_pylist(), strict=True)
        for row, pair in enumerate(pairs):
            self._rows.setdefault(pair, []).append(row)

    def __getitem__(self, name: str) -> list[Any]:
        return self._columns[name]

    def rows(self, item: str, prompt: str, nulls: Collection[str | None]) -> list[int]:
        """Return the continuations of an item after a prompt, or after one of its ``nulls``."""
        null = self._columns["null"]
        return [row for row in self._rows.get((item, prompt), ()) if null[row] in nulls]

    def source(self, row: int, request: RequestRows) -> bytes:
        """Return the bytes that end with the tokens of a continuation of ``request``."""
        text: str = self["text"][row] or self["continuation"][row] or ""
        source = text.encode(errors="surrogatepass")
        if self["text"][row] is not None:
            # What follows generated text are special tokens, which have no bytes.
            return source
        size = self.tokens.sizes_together[self.answers[row]]
        if request.protocol.boundary == "separate":
            # The tokenizer put a space before the text.
            return b" " * (size - len(source)) + source
        if size > len(source):
            # Scored tokens may begin within the context.  A character has at least a byte, so the
            # end of the context has enough of them.
            before: str = self["context"][row] or request.request.context or ""
            if self["null"][row] is not None:
                before = self["null"][row]
            source = before[-size:].encode(errors="surrogatepass") + source
        return source[-size:]


def _values(observations: pa.Table, name: str) -> list[Any]:
    """Return the values of a column; the last one is that of row -1, which is no observation."""
    return [*observations[name].to_pylist(), None]


def _taken(values: Sequence[Any], rows: Sequence[int]) -> list[Any]:
    return [values[row] for row in rows]


def _correct(columns: Mapping[str, list[Any]]) -> None:
    """Correct the totals in ``columns`` of continuations, and say which have no number."""
    totals = columns["total"]
    for row, value in enumerate(columns["value"]):
        total = totals[row]
        if total is not None:
            total = total - (columns["before"][row] or 0.0) + (columns["after"][row] or 0.0)
            totals[row] = total
        is_nan = _is_nan(total) or _is_nan(value)
        if is_nan and not columns["missing"][row]:
            columns["missing"][row] = NO_NUMBER


def _span_order(spans: pa.Table) -> pa.Array:
    """Return indices that put spans after the prompt before those after a null context."""
    columns = {"is_after_null": pc.is_valid(spans["null"]).cast(pa.int8())}
    for name in ("null", "choice", "part"):
        columns[name] = spans[name]
    keys = [(name, "ascending") for name in columns]
    return pc.sort_indices(pa.table(columns), sort_keys=keys)


class ObservedTokens:
    """Hold the tokens of all observations of ``tables``; a row of -1 is an observation without any.

    ``sizes_together``: the bytes of each observation's tokens.
    """

    def __init__(self, tables: RunTables) -> None:
        offsets = tables.offsets
        starts = [*offsets[:-1].tolist(), 0]
        stops = [*offsets[1:].tolist(), 0]
        self._slices = list(map(slice, starts, stops))
        self._counts = [*np.diff(offsets).tolist(), 0]
        self._columns: dict[str, list[Any]] = {}
        for name in ("tokens", "sizes", "logprobs", "ranks"):
            self._columns[name] = pc.list_flatten(tables.observations[name]).to_numpy().tolist()
        bytes_before = np.append(0, np.cumsum(self._columns["sizes"], dtype=np.int64))
        self.sizes_together = [*np.diff(bytes_before[offsets]).tolist(), 0]
        # Half of the continuations share their answer: a null context is that of all prompts.
        self._described: dict[tuple[int, bytes], tuple[Token, ...]] = {}

    def count(self, row: int) -> int:
        """Return how many tokens an observation has."""
        return self._counts[row]

    def slice(self, row: int) -> slice:
        """Return where the tokens of an observation are among those of all."""
        return self._slices[row]

    @property
    def logprobs(self) -> list[float]:
        """Return the log-probabilities of all tokens in nats."""
        return self._columns["logprobs"]

    def totals(self, given: pa.ChunkedArray) -> list[float | None]:
        """Return the log-likelihood of every observation in nats, and None as the last.

        ``given``: those of observations without tokens.
        """
        totals = [*given.to_pylist(), None]
        for row in range(len(given)):
            logprobs = self._of("logprobs", row)
            if logprobs:
                totals[row] = float(sum(logprobs))
        return totals

    def texts(self, row: int, source: bytes) -> list[str]:
        """Return the texts of an observation's tokens, the bytes at the end of ``source``."""
        start = max(0, len(source) - self.sizes_together[row])
        texts = []
        if source.isascii():
            text = source.decode()
            for size in self._of("sizes", row):
                texts.append(text[start : start + size])
                start += size
            return texts
        for size in self._of("sizes", row):
            # A token can hold a part of a character.
            texts.append(source[start : start + size].decode(errors="backslashreplace"))
            start += size
        return texts

    def described(self, row: int, source: bytes) -> tuple[Token, ...]:
        """Return the tokens of an observation, the bytes at the end of ``source``."""
        key = row, source
        if key not in self._described:
            columns = zip(
                self._of("tokens", row),
                self.texts(row, source),
                self._of("sizes", row),
                self._of("logprobs", row),
                self._of("ranks", row),
                strict=True,
            )
            tokens = []
            for token, text, size, logprob, rank in columns:
                tokens.append(Token(id=token, text=text, size=size, logprob=logprob, rank=rank))
            self._described[key] = tuple(tokens)
        return self._described[key]

    def _of(self, name: str, row: int) -> list[Any]:
        return self._columns[name][self._slices[row]]


def _is_nan(number: float | None) -> bool:
    return number is not None and math.isnan(number)


class ProtocolDecisions:
    """Find the decisions of one protocol by item, with what all items share computed once.

    ``near_ties``: items of which noise could change the decision, bool [items].  ``at_most``: rows
    whose scores are upper bounds, bool [rows]; None if there are none.
    """

    def __init__(self, measured: Measurement) -> None:
        self.name = measured.name
        self.protocol = measured.protocol
        self.measured = measured
        self.near_ties: Mask = measured.near_ties & measured.bounded
        self.at_most: Mask | None = None
        self._indices = {item: index for index, item in enumerate(measured.ids.to_pylist())}
        self._bounded = measured.bounded
        self._lows: Floats | None = None
        scores = measured.scores
        if scores is not None and measured.lows is not None and len(measured.lows.places):
            self._lows = measured.lows.filled(scores)
            self.at_most = self._lows < scores

    def index(self, item: str) -> int | None:
        """Return the index of an item; None if the run has not asked it of the protocol."""
        return self._indices.get(item)

    def decision(self, item: str) -> ItemDecision | None:
        """Return the decision about an item; None if the run has not asked it of the protocol."""
        index = self.index(item)
        if index is None:
            return None
        measured = self.measured
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
            near_tie = bool(self.near_ties[index])

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
