"""Compare protocols of a run that retrieve the likelihood of the same texts in different ways."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import combinations

import numpy as np
import numpy.typing as npt

from choicewise.protocols.protocol import AXES, Protocol
from choicewise.protocols.readings import READINGS
from choicewise.results.evidence import Column, RunEvidence
from choicewise.results.measurement import (
    Measurement,
    paired_predictions,
    rows_of_items,
    shared_items,
)
from choicewise.results.run import Run
from choicewise.scoring.combine import COMBINERS
from choicewise.scoring.observed import Floats, Integers, Mask
from choicewise.scoring.portion import ObservedPortion

TOLERANCE = 1e-4
"""Nats between two sums that count as agreement, unless half as much noise was measured."""

CAUSES = {
    "no tokens": "one side has no tokens, so the cause is unknown",
    "boundary merge": "a token straddles the end of the prompt, and only one side counts it to the option",
    "span": "different tokens are scored",
    "context": "same tokens after a different context, such as a second BOS",
    "renormalised": "one side sets P(EOS) to 0 and renormalizes",
    "precision": "same tokens and context, but different numbers",
    "divisor": "the sums agree, and what they are divided by changes the prediction",
}
"""Causes of a difference between two retrievals; the first one that applies is reported."""


@dataclass(frozen=True, kw_only=True)
class Divergence:
    """Describe one option on which two retrievals differ, in nats of the sum."""

    item: str
    choice: int
    text: str
    left: float
    right: float
    difference: float
    cause: str


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """Count on which options and items two protocols of a run agree.

    ``n``: options with a sum under both; ``missing``: options with a sum under one of the two.
    ``median``, ``largest``: of the absolute difference of two sums in nats, NaN if ``n`` is 0.
    ``beyond``: options whose sums differ by more than ``tolerance`` and than the noise of so many
    tokens; ``causes``: their number by cause.  ``items``: items with a prediction under both;
    ``same``: items with equal predictions; ``decided``: the number of the other items by cause.
    ``worst``: the options with the largest differences.
    """

    left: str
    right: str
    n: int
    missing: int
    median: float
    largest: float
    tolerance: float
    beyond: int
    causes: Mapping[str, int]
    items: int
    same: int
    decided: Mapping[str, int]
    worst: Sequence[Divergence]


def agreement(run: Run) -> list[Agreement]:
    """Compare each two protocols that retrieve the same texts, in the order of the run.

    Texts of which the run has a single retrieval are left out, even if several scores are made of
    it.
    """
    names_of_texts: dict[tuple[object, ...], list[str]] = {}
    for name, protocol in run.protocols.items():
        texts = tuple(getattr(protocol, axis) for axis in _TEXT_AXES)
        names_of_texts.setdefault(texts, []).append(name)
    groups = [names for names in names_of_texts.values() if _has_several_prompts(run, names)]
    if not groups:
        return []

    retrieved = retrievals(run)
    agreements = []
    for group in groups:
        names = [name for name in group if name in retrieved]
        if not _has_several_prompts(run, names):
            continue
        for left, right in combinations(names, 2):
            pair = RetrievalPair(retrieved[left], retrieved[right])
            agreements.append(_agreement(run, pair))
    return agreements


@dataclass(frozen=True, eq=False)
class Retrieval:
    """Hold what one protocol retrieves of every option, a row for each item and choice.

    ``sums``: log-likelihoods in nats, float64 [rows].  ``tokens``: a digest of the ids of the
    scored tokens, uint64 [rows], 0 if there are none.  ``counts``: the number of these tokens,
    int64 [rows].
    """

    measured: Measurement
    sums: Floats
    tokens: npt.NDArray[np.uint64]
    counts: Integers


def retrievals(run: Run) -> dict[str, Retrieval]:
    """Return by name the retrievals of the protocols that retrieve a likelihood of every option."""
    wanted: dict[str, list[Column[object]]] = {}
    for protocol in run.protocols.values():
        columns = [_retrieved_column(protocol), _MERGED_ROWS, _CONTEXT_TOKENS]
        wanted.setdefault(protocol.prompt_digest, []).extend(columns)
    observed = run.evidence.gather(wanted)

    retrieved: dict[str, Retrieval] = {}
    for name, protocol in run.protocols.items():
        options = observed[protocol.prompt_digest].column(_retrieved_column(protocol))
        if options is not None:
            sums, tokens, counts = options
            retrieved[name] = Retrieval(run.measurements[name], sums, tokens, counts)
    return retrieved


class RetrievalPair:
    """Line up the options of the items that two retrievals share, item by item, choice by choice.

    ``ids``: of the shared items.  ``item`` (an index of ``ids``) and ``choice``: int64 [options].
    ``sums``: nats, float64 [2, options].  ``tokens``: the greater number of scored tokens, int64
    [options].  ``predictions``: int64 [2, items], -1 for none.
    """

    def __init__(self, left: Retrieval, right: Retrieval) -> None:
        self.left = left
        self.right = right
        measurements = (left.measured, right.measured)
        self.ids, (left_items, right_items) = shared_items(measurements)
        self.predictions = paired_predictions(measurements)
        self._left_items = left.measured.evidence.items[left_items]

        left_offsets = left.measured.evidence.item_offsets
        right_offsets = right.measured.evidence.item_offsets
        left_starts = left_offsets[left_items]
        right_starts = right_offsets[right_items]
        counts = np.diff(left_offsets)[left_items]
        left_rows = rows_of_items(left_starts, counts)
        right_rows = rows_of_items(right_starts, counts)
        self._left_rows = left_rows
        self._right_rows = right_rows

        self.item = np.repeat(np.arange(len(self.ids)), counts)
        self.choice = left_rows - left_starts[self.item]
        self.sums = np.array([left.sums[left_rows], right.sums[right_rows]])
        # Either side may count fewer tokens, if one of them straddles the end of the context.
        self.tokens = np.maximum(left.counts[left_rows], right.counts[right_rows])

    @cached_property
    def causes(self) -> npt.NDArray[np.str_]:
        """The cause of any difference between the two sums of an option (``CAUSES``), [options]."""
        left_tokens = self.left.tokens[self._left_rows]
        right_tokens = self.right.tokens[self._right_rows]
        left_evidence = self.left.measured.evidence
        right_evidence = self.right.measured.evidence
        left_merged = left_evidence.column(_MERGED_ROWS)[self._left_rows]
        right_merged = right_evidence.column(_MERGED_ROWS)[self._right_rows]
        left_context = left_evidence.column(_CONTEXT_TOKENS)[self._left_rows]
        right_context = right_evidence.column(_CONTEXT_TOKENS)[self._right_rows]

        # The order of the cases is that of CAUSES: the first that holds is the cause.
        differs = left_tokens != right_tokens
        cases = {
            "no tokens": (left_tokens == 0) | (right_tokens == 0),
            "boundary merge": differs & (left_merged | right_merged),
            "span": differs,
            "context": left_context != right_context,
        }
        left_reading = READINGS[self.left.measured.protocol.reading]
        right_reading = READINGS[self.right.measured.protocol.reading]
        otherwise = "precision"
        if left_reading.renormalised != right_reading.renormalised:
            otherwise = "renormalised"
        return np.select(list(cases.values()), list(cases), otherwise)

    def option(self, run: Run, option: int) -> tuple[str, int, str]:
        """Return the item's id, the choice's index and the scored text of an option."""
        item = int(self.item[option])
        choice = int(self.choice[option])
        row = int(self._left_items[item])
        text = _text(run, self.left.measured, row, choice)
        return self.ids[item].as_py(), choice, text

    def cause_of_flip(self, item: int, differs: Mask) -> str:
        """Return the cause of different predictions for an item.

        ``differs``: options whose sums differ.  The cause is the divisor if the sums alone would
        predict the same.
        """
        is_option = self.item == item
        sums = self.sums[:, is_option]
        sums = np.where(np.isnan(sums), -np.inf, sums)
        left_best, right_best = sums.argmax(axis=1)
        causes = Counter(self.causes[is_option & differs].tolist())
        if left_best == right_best or not causes:
            return "divisor"
        ((most_common, _),) = causes.most_common(1)
        return most_common


_WORST = 5
"""Options of a pair that are listed."""

_FREE = frozenset(
    {"benchmark", "bos", "boundary", "reading", "new_tokens", "score", "null", "outside"}
    | {"decision", "ties", "metric", "aggregation", "rev"}
)
"""Axes in which two retrievals of the same texts may differ."""

_TEXT_AXES = [axis for axis in AXES if axis not in _FREE]

_MERGED_ROWS = Column("merged rows", compute=lambda portion: portion.merged_rows)
_CONTEXT_TOKENS = Column("context tokens", compute=lambda portion: portion.context_tokens)

_Retrieved = tuple[Floats, npt.NDArray[np.uint64], Integers]
"""The sums, tokens and counts of a :class:`Retrieval`."""


def _retrieved_column(protocol: Protocol) -> Column[_Retrieved | None]:
    """Describe the column of what ``protocol`` retrieves of every option."""
    return Column("retrieved", (protocol,), compute=partial(_retrieved, protocol))


def _retrieved(protocol: Protocol, portion: ObservedPortion) -> _Retrieved | None:
    options = COMBINERS[protocol.reading].retrieved(protocol, portion)
    if options is None:
        return None
    sums = options.sums
    if options.at_most is not None:
        # The distance between two sums cannot be told from an upper bound of one.
        sums = np.where(options.at_most, np.nan, sums)
    return sums, options.digests, options.counts


def _text(run: Run, measured: Measurement, item: int, choice: int) -> str:
    """Return the scored text of an option; ``item`` is a row of the item table."""
    (tables,) = RunEvidence(run.folder, run.manifest, only=[item]).portion_tables()
    portion = ObservedPortion(tables, measured.protocol.prompt_digest)
    options = COMBINERS[measured.protocol.reading].retrieved(measured.protocol, portion)
    if options is None:
        return ""
    return options.text[choice] or ""


def _has_several_prompts(run: Run, names: Iterable[str]) -> bool:
    return len({run.protocols[name].prompt_digest for name in names}) > 1


def _agreement(run: Run, pair: RetrievalPair) -> Agreement:
    # The run's noise is that of one computation, and a difference has two.
    noise = 2 * (run.noise or 0.0)
    left_sums, right_sums = pair.sums
    has_left, has_right = ~np.isnan(pair.sums)
    has_both = has_left & has_right
    with np.errstate(invalid="ignore"):  # two impossible options do not differ
        differences = np.where(left_sums == right_sums, 0.0, left_sums - right_sums)
    sizes = np.abs(differences)
    allowed = np.maximum(TOLERANCE, noise * np.sqrt(pair.tokens))
    differs = has_both & (sizes > allowed)
    causes = pair.causes[differs].tolist()

    median = np.nan
    largest = np.nan
    if has_both.any():
        median = float(np.median(sizes[has_both]))
        largest = float(sizes[has_both].max())

    options = np.flatnonzero(differs)
    # A stable sort keeps the order of the run among equal differences.
    order = np.argsort(-sizes[options], kind="stable")
    worst = options[order[:_WORST]].tolist()

    left_predictions, right_predictions = pair.predictions
    is_decided = (left_predictions >= 0) & (right_predictions >= 0)
    is_flip = is_decided & (left_predictions != right_predictions)
    flips = np.flatnonzero(is_flip).tolist()
    decided = [pair.cause_of_flip(item, differs) for item in flips]
    item_count = int(is_decided.sum())
    return Agreement(
        left=pair.left.measured.name,
        right=pair.right.measured.name,
        n=int(has_both.sum()),
        missing=int((has_left != has_right).sum()),
        median=median,
        largest=largest,
        tolerance=max(TOLERANCE, noise),
        beyond=len(options),
        causes=_counted(causes),
        items=item_count,
        same=item_count - len(flips),
        decided=_counted(decided),
        worst=[_divergence(run, pair, option, float(differences[option])) for option in worst],
    )


def _divergence(run: Run, pair: RetrievalPair, option: int, difference: float) -> Divergence:
    item, choice, text = pair.option(run, option)
    left, right = pair.sums[:, option].tolist()
    return Divergence(
        item=item,
        choice=choice,
        text=text,
        left=left,
        right=right,
        difference=difference,
        cause=str(pair.causes[option]),
    )


def _counted(causes: Iterable[str]) -> dict[str, int]:
    """Count the causes, in the order of ``CAUSES``."""
    counts = Counter(causes)
    return {cause: counts[cause] for cause in CAUSES if counts[cause]}
