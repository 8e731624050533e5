"""Prepare items in full for a page: what was sent, what was observed after it, and each decision.

Thousands of continuations share few texts and answers, so that each of these is in the data once.
The continuations of an item are columns, of which the page's script makes rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from choicewise.results.explain import (
    ContinuationColumns,
    ExplainedItems,
    ExplainedRequest,
    ProtocolDecisions,
    Record,
    RequestRows,
    continuation_warnings,
)
from choicewise.util.jsonio import JsonDict
from choicewise.util.text import disarmed, shown, shown_line

LONGEST = 20_000
"""Characters of one text that a page shows; of a longer one it says how much is left out."""

_MOST_TOKENS = 200
"""Tokens of one continuation that a page shows."""

_NO_TEXT = "(the log has no text of it)"
"""What stands for a continuation of another tool's log that has none."""


class Texts:
    """Texts of prompts in pieces, each piece once: the shots of an item are those of most of its
    subject.
    """

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self._positions: dict[str, int] = {}

    def add(self, text: str | None) -> list[int] | None:
        """Return the positions of the pieces of ``text``, whose white space is made visible; None
        for None.
        """
        if text is None:
            return None
        positions = []
        for piece in _pieces(text[:LONGEST]):
            if piece not in self._positions:
                self._positions[piece] = len(self.pieces)
                self.pieces.append(shown(piece))
            positions.append(self._positions[piece])
        if len(text) > LONGEST:
            positions.append(len(self.pieces))
            self.pieces.append(f"\n… {len(text) - LONGEST:,} more characters")
        return positions


def _pieces(text: str) -> list[str]:
    """Return the paragraphs of ``text``, each with the empty lines after it; together they are the
    text.
    """
    end = "\n\n"
    *paragraphs, last = text.split(end)
    return [*(paragraph + end for paragraph in paragraphs), last]


class Lines(dict[str | None, int | None]):
    """Number texts on one line, each once; None has no number.

    ``lines``: the texts, whose white space is made visible, by their numbers.
    """

    def __init__(self) -> None:
        super().__init__({None: None})
        self.lines: list[str] = []

    # Tens of thousands of tokens are looked up, and few are new.
    def __missing__(self, text: str) -> int:
        number = len(self.lines)
        self.lines.append(shown_line(text[:LONGEST]))
        self[text] = number
        return number


class Batch:
    """Hold some items as runs explain them.

    ``explained``: by the position of the run on the page. ``protocols``: all names on the page; the
    data name them by their positions. Others are left out: their numbers are no shares of 1.
    """

    def __init__(self, explained: Mapping[int, ExplainedItems], protocols: Sequence[str]) -> None:
        self._explained = explained
        self._numbers = {name: number for number, name in enumerate(protocols)}

    def data(self, ids: Collection[str]) -> JsonDict:
        """Return the items of ``ids`` that a run has, in their order, and what they share."""
        items: dict[str, JsonDict] = {}
        shared = _Shared(self._numbers)
        for run, explained in self._explained.items():
            for item, data in shared.add(explained, ids):
                if item["item"] not in items:
                    items[item["item"]] = _item_data(item, explained.choices(item))
                items[item["item"]]["runs"][str(run)] = data
        return {
            "texts": shared.texts.pieces,
            "lines": shared.lines.lines,
            "warnings": [disarmed(warning) for warning in shared.warnings],
            "answers": shared.answers,
            "items": [items[item] for item in ids if item in items],
        }


class _Shared:
    """Collect the texts, warnings and answers that items share.

    ``numbers``: positions of protocols by name.
    """

    def __init__(self, numbers: Mapping[str, int]) -> None:
        self.texts = Texts()
        self.lines = Lines()
        # The lines of an answer's tokens, and their log-probabilities.
        self.answers: list[tuple[list[int | None], list[float | None]]] = []
        self.warnings: dict[str, int] = {}
        self._numbers = numbers

    def warning(self, text: str) -> int:
        """Return the number of a warning."""
        return self.warnings.setdefault(text, len(self.warnings))

    def add(
        self, explained: ExplainedItems, ids: Collection[str]
    ) -> Iterator[tuple[Record, JsonDict]]:
        """Yield the items of ``ids`` with what a run has of them."""
        scored = _ScoredData(explained.continuations, self)
        decisions = []
        for of_protocol in explained.decisions:
            number = self._numbers.get(of_protocol.name)
            if number is not None:
                decisions.append(_DecisionData(of_protocol, number))
        for item in explained.items:
            if item["item"] in ids:
                yield item, self._run_data(explained, item["item"], scored, decisions)

    def _run_data(
        self,
        explained: ExplainedItems,
        item: str,
        scored: _ScoredData,
        decisions: Sequence[_DecisionData],
    ) -> JsonDict:
        requests = []
        rows: list[int] = []
        answers: list[int | None] = []
        for request in explained.requests(item):
            rows_of_request = _beside(explained.continuations, request.rows)
            rows += rows_of_request
            answers += scored.answers_of(request, rows_of_request)
            requests.append(self._request_data(request.request, len(rows_of_request)))
        decided = []
        for of_protocol in decisions:
            decision = of_protocol.of_item(item)
            if decision is not None:
                decided.append(decision)
        columns = scored.columns_of(rows)
        return {"asked": requests, "scored": columns | {"answer": answers}, "decided": decided}

    def _request_data(self, request: ExplainedRequest, scored: int) -> JsonDict:
        """Return a request; ``scored`` rows of its item's columns are its continuations."""
        notes = list(map(disarmed, request.notes))
        if request.missing is not None:
            notes.append(disarmed(f"not asked: {request.missing}"))
        protocols = []
        for name in request.protocols:
            if name in self._numbers:
                protocols.append(self._numbers[name])
        return {
            "protocols": protocols,
            "how": f"{request.reading}, boundary {request.boundary}",
            "notes": notes,
            "context": self.texts.add(request.context),
            "scored": scored,
        }


def _item_data(item: Mapping[str, Any], choices: Sequence[str]) -> JsonDict:
    return {
        "id": disarmed(item["item"]),
        "subject": disarmed(item["subject"]),
        "question": shown(item["question"][:LONGEST]),
        "choices": [shown_line(choice[:LONGEST]) for choice in choices],
        "gold": item["gold"],
        "runs": {},
    }


def _beside(columns: ContinuationColumns, rows: Sequence[int]) -> list[int]:
    """Return ``rows`` by choice and part: after the prompt, then after each null context."""
    groups: dict[tuple[int, int], list[int]] = {}
    choice = columns["choice"]
    part = columns["part"]
    for row in rows:
        groups.setdefault((choice[row], part[row]), []).append(row)
    return [row for group in groups.values() for row in group]


class _ScoredData:
    """Hold the columns that the page has of all continuations of some items of one run."""

    def __init__(self, columns: ContinuationColumns, shared: _Shared) -> None:
        self._continuations = columns
        self._shared = shared
        self._answers: dict[tuple[int, bytes], int] = {}
        self._logprobs = rounded(columns.tokens.logprobs)
        self._columns: dict[str, list[Any]] = {
            "part": [part or None for part in columns["part"]],
            "most": [at_most or None for at_most in columns["at_most"]],
        }
        for name in ("total", "value", "before", "after"):
            self._columns[name] = rounded(columns[name])

    def columns_of(self, rows: Sequence[int]) -> JsonDict:
        """Return the columns of ``rows``, those that have a value in one of them."""
        columns = self._continuations
        lines = self._shared.lines
        cells: dict[str, list[Any]] = {"choice": [], "text": []}
        for row in rows:
            choice = columns["choice"][row]
            text = columns["continuation"][row]
            if columns["text"][row] is not None:
                choice = -1
                text = columns["text"][row]
            cells["choice"].append(choice)
            cells["text"].append(lines[_NO_TEXT if text is None else text])
        cells["null"] = [lines[columns["null"][row]] for row in rows]
        cells["context"] = [self._shared.texts.add(columns["context"][row]) for row in rows]
        cells["warnings"] = list(map(self._warnings, rows))
        for name, column in self._columns.items():
            cells[name] = [column[row] for row in rows]
        return {name: values for name, values in cells.items() if _has_value(values)}

    def answers_of(self, request: RequestRows, rows: Sequence[int]) -> Iterator[int | None]:
        """Yield the positions of the answers of ``rows`` among the shared ones; None without
        tokens.
        """
        columns = self._continuations
        for row in rows:
            observation = columns.answers[row]
            if not columns.tokens.count(observation):
                yield None
                continue
            source = columns.source(row, request)
            key = observation, source
            if key not in self._answers:
                self._answers[key] = len(self._shared.answers)
                texts = columns.tokens.texts(observation, source)[:_MOST_TOKENS]
                logprobs = self._logprobs[columns.tokens.slice(observation)]
                lines = [self._shared.lines[text] for text in texts]
                self._shared.answers.append((lines, logprobs[:_MOST_TOKENS]))
            yield self._answers[key]

    def _warnings(self, row: int) -> list[int] | None:
        """Return the numbers of the warnings about a continuation; None if there are none."""
        columns = self._continuations
        flags = {name: columns[name][row] for name in _FLAGS}
        warnings = continuation_warnings(**flags)
        further = columns.tokens.count(columns.answers[row]) - _MOST_TOKENS
        if further > 0:
            warnings += (f"{further} more tokens",)
        return [self._shared.warning(warning) for warning in warnings] or None


_FLAGS = tuple("merged noncanonical lossy unknown bos tokens_dropped missing at_most".split())
"""Columns that the warnings about a continuation are made of."""


def _has_value(values: Sequence[Any]) -> bool:
    return any(value is not None for value in values)


class _DecisionData:
    """Hold the decisions of one protocol for the page, which knows it by its ``number``."""

    def __init__(self, decisions: ProtocolDecisions, number: int) -> None:
        measured = decisions.measured
        self._decisions = decisions
        self._number = number
        self._prediction = measured.decisions.prediction.tolist()
        self._credit = rounded(measured.decisions.credit)
        # 2 for a tie and 1 for a near tie.
        ties = np.where(measured.decisions.tied, 2, decisions.near_ties)
        self._ties = ties.astype(np.int64).tolist()
        self._offsets = measured.evidence.item_offsets.tolist()
        self._scores = None
        if measured.scores is not None:
            self._scores = rounded(measured.scores)
        self._at_most = None
        if decisions.at_most is not None:
            self._at_most = decisions.at_most.astype(np.int64).tolist()

    def of_item(self, item: str) -> list[Any] | None:
        """Return protocol, predicted choice, credit, tie, and the scores in three digits.

        If some scores are upper bounds, a 1 for each of them and a 0 for each other score follow.
        None if the run has not asked the item of the protocol.
        """
        index = self._decisions.index(item)
        if index is None:
            return None
        rows = slice(self._offsets[index], self._offsets[index + 1])
        scores = None
        if self._scores is not None:
            scores = self._scores[rows]
        data = [self._number, self._prediction[index], self._credit[index], self._ties[index]]
        data.append(scores)
        if self._at_most is not None and any(self._at_most[rows]):
            data.append(self._at_most[rows])
        return data


def rounded(values: Sequence[float | None] | npt.NDArray[Any]) -> list[float | None]:
    """Return ``values`` in three digits; None for numbers that JSON does not have, and for None."""
    numbers = np.asarray(values, dtype=np.float64)
    is_number = np.isfinite(numbers)
    sizes = np.where(is_number, np.abs(numbers), 0.0)
    is_usual = (sizes > 1e-9) & (sizes < 1e9)
    usual = np.where(is_usual, numbers, 0.0)
    digits = 2 - np.floor(np.log10(np.where(is_usual, sizes, 1.0)))
    # Of powers of ten those with positive exponents are exact.
    up = 10.0 ** np.maximum(digits, 0)
    down = 10.0 ** np.maximum(-digits, 0)
    scaled = usual * up / down
    short = np.rint(scaled) * down / up
    # A product may look like half a digit that is a little more or less.
    is_half = np.abs(np.abs(scaled - np.trunc(scaled)) - 0.5) < 1e-9
    for index in np.flatnonzero(is_half | is_number & ~is_usual & (sizes > 0)).tolist():
        short[index] = float(f"{numbers[index]:.3g}")
    if is_number.all():
        return list(short.tolist())
    cells = short.astype(object)
    cells[~is_number] = None
    return list(cells.tolist())
