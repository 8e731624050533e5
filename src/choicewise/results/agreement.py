"""Agreement of retrievals.

A retrieval is one way of asking for the likelihood of the same texts: by a forward pass, by the model's own loss, by
generating, by character span.  All are put on one scale first: the sum of the scored tokens' log-probabilities in nats,
the greater the likelier, whatever sign and divisor a protocol reports.  The remaining differences are real.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from itertools import combinations

import numpy as np
import numpy.typing as npt

from choicewise.protocols.protocol import Protocol
from choicewise.protocols.readings import READINGS
from choicewise.results.evidence import Column, RunEvidence
from choicewise.results.measurement import Measurement, paired_predictions, shared_items
from choicewise.results.run import Run
from choicewise.results.spans import ObservedPortion
from choicewise.scoring.combine import COMBINERS
from choicewise.scoring.observed import Floats, Integers

TOLERANCE = 1e-4
"""Nats between two sums that count as agreement, where the run did not measure more noise than half of that."""

CAUSES = {
    "no tokens": "one of the two came without its tokens, so the cause is not known",
    "boundary merge": "a token straddles the end of the context, and one of the two counts it to the option",
    "span": "other tokens are scored",
    "context": "the same tokens are scored after another context, such as a second BOS",
    "renormalised": "one of the two sets P(EOS) to 0 and renormalises",
    "precision": "the same tokens after the same context: numbers of another computation",
    "divisor": "the sums predict the same option, and what they are divided by changes the prediction",
}
"""Why two retrievals differ, the first that applies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """One option on which two retrievals differ, in nats of the sum."""

    item: str
    choice: int
    text: str
    left: float
    right: float
    difference: float
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How two protocols of a run agree.  ``median`` and ``largest``: |difference| of the sums, nats; NaN for n = 0.

    ``n``: options that both have a number for; ``missing``: that only one has.  ``beyond``: options whose sums differ
    by more than ``tolerance`` and than the noise of so many tokens, counted by cause in ``causes``.  ``items``: those
    that both decide; ``same``: with the same prediction.  ``decided``: the others, counted by cause.  ``worst``: the
    options that differ most.
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
    """Every pair of the run's protocols that retrieve the same texts in different ways, in the order of the run.

    Protocols that only make other scores of one retrieval are compared where there is a second retrieval.
    """
    tolerance = 2 * (run.noise or 0.0)
    axes = [axis.name for axis in fields(Protocol) if axis.name not in _FREE]
    groups: dict[tuple[object, ...], list[Measurement]] = {}
    for measured in run.measurements.values():
        texts = tuple(getattr(measured.protocol, axis) for axis in axes)
        groups.setdefault(texts, []).append(measured)
    agreements = []
    if not any(map(_several_prompts, groups.values())):
        return []
    known = retrievals(run)
    for group in filter(_several_prompts, groups.values()):
        retrieved = [known[measured.name] for measured in group if measured.name in known]
        if _several_prompts([side.measured for side in retrieved]):
            agreements += [
                _agreement(run, RetrievalPair(*pair), tolerance)
                for pair in combinations(retrieved, 2)
            ]
    return agreements


@dataclass(frozen=True, eq=False, slots=True)
class Retrieval:
    """What was retrieved of every option, one row per item and choice of the evidence of ``measured``.

    ``sums``: nats, float64 [rows]; ``tokens``: a digest of the ids of the scored tokens, uint64 [rows], 0 for none;
    ``counts``: of these tokens, int64 [rows].
    """

    measured: Measurement
    sums: Floats
    tokens: npt.NDArray[np.uint64]
    counts: Integers


def retrievals(run: Run) -> dict[str, Retrieval]:
    """By protocol, what was retrieved; those that retrieve no likelihood of an option are left out."""
    wanted: dict[str, list[Column[object]]] = {}
    for protocol in run.protocols.values():
        columns = [_retrieved_column(protocol), _MERGED_ROWS, _CONTEXT_TOKENS]
        wanted.setdefault(protocol.prompt_digest, []).extend(columns)
    observed = run.evidence.gather(wanted)
    retrieved: dict[str, Retrieval] = {}
    for name, protocol in run.protocols.items():
        column = observed[protocol.prompt_digest].column(_retrieved_column(protocol))
        if column is not None:
            sums, tokens, counts = column
            retrieved[name] = Retrieval(run.measurements[name], sums, tokens, counts)
    return retrieved


class RetrievalPair:
    """The options of the items that two retrievals share, one after the other.

    ``item`` (its place in ``ids``) and ``choice`` of each option, int64 [options]; ``rows``: where each side has it;
    ``sums``: nats, float64 [2, options]; ``tokens``: of the longer side, int64 [options]; ``predictions``: int64
    [2, items], -1 for none.
    """

    def __init__(self, left: Retrieval, right: Retrieval) -> None:
        self.left, self.right = left, right
        evidence = (left.measured.evidence, right.measured.evidence)
        self.ids, places = shared_items((left.measured, right.measured))
        self._items = evidence[0].items[places[0]]
        counts = np.diff(evidence[0].item_offsets)[places[0]]
        self.item = np.repeat(np.arange(len(self.ids)), counts)
        self.choice = np.arange(len(self.item)) - np.repeat(np.cumsum(counts) - counts, counts)
        starts = [
            each.item_offsets[:-1][items] for each, items in zip(evidence, places, strict=True)
        ]
        self.rows = [start[self.item] + self.choice for start in starts]
        self.sums = np.array(
            [side.sums[rows] for side, rows in zip((left, right), self.rows, strict=True)]
        )
        self.tokens = np.maximum(left.counts[self.rows[0]], right.counts[self.rows[1]])
        self.predictions = paired_predictions((left.measured, right.measured))

    def option(self, run: Run, option: int) -> tuple[str, int, str]:
        """An option's item, its index there, and its text."""
        item, choice = int(self.item[option]), int(self.choice[option])
        return (
            self.ids[item].as_py(),
            choice,
            _text(run, self.left.measured, int(self._items[item]), choice),
        )

    def cause(self, option: int) -> str:
        """Why the two sums of an option differ, one of ``CAUSES``."""
        rows = [int(side[option]) for side in self.rows]
        left, right = self.left.tokens[rows[0]], self.right.tokens[rows[1]]
        if not (left and right):
            return "no tokens"
        evidence = (self.left.measured.evidence, self.right.measured.evidence)
        if left != right:
            merged = any(
                each.column(_MERGED_ROWS)[row] for each, row in zip(evidence, rows, strict=True)
            )
            return "boundary merge" if merged else "span"
        one, other = (
            each.column(_CONTEXT_TOKENS)[row] for each, row in zip(evidence, rows, strict=True)
        )
        if one != other:
            return "context"
        renormalised = {
            READINGS[side.measured.protocol.reading].renormalised
            for side in (self.left, self.right)
        }
        return "renormalised" if len(renormalised) > 1 else "precision"

    def cause_of_flip(self, item: int, causes: Mapping[int, str]) -> str:
        """The cause of most of the item's options; the divisor where the sums alone would predict the same."""
        options = np.flatnonzero(self.item == item)
        counts = Counter(causes[option] for option in options.tolist() if option in causes)
        best = np.where(np.isnan(self.sums[:, options]), -np.inf, self.sums[:, options]).argmax(
            axis=1
        )
        return counts.most_common(1)[0][0] if counts and best[0] != best[1] else "divisor"


_WORST = 5
"""How many of the options that differ most are shown of a pair."""

_FREE = frozenset(
    {"benchmark", "bos", "boundary", "reading", "new_tokens", "score", "null", "outside"}
    | {"decision", "ties", "metric", "aggregation", "rev"}
)
"""Axes in which two retrievals of the same texts may differ."""

_MERGED_ROWS = Column("merged rows", compute=lambda portion: portion.merged_rows)
_CONTEXT_TOKENS = Column("context tokens", compute=lambda portion: portion.context_tokens)

_Retrieved = tuple[Floats, npt.NDArray[np.uint64], Integers]
"""The sums, tokens and counts of a :class:`Retrieval`."""


def _retrieved_column(protocol: Protocol) -> Column[_Retrieved | None]:
    """Describe what ``protocol`` retrieves of every option."""
    return Column("retrieved", (protocol,), compute=partial(_retrieved, protocol))


def _retrieved(protocol: Protocol, portion: ObservedPortion) -> _Retrieved | None:
    options = COMBINERS[protocol.reading].retrieved(protocol, portion)
    if options is None:
        return None
    known = (
        options.sums if options.at_most is None else np.where(options.at_most, np.nan, options.sums)
    )
    return known, options.digests, options.counts


def _text(run: Run, measured: Measurement, item: int, choice: int) -> str:
    """The scored text of an option; ``item``: its place in the item table."""
    (tables,) = RunEvidence(run.folder, run.manifest, only=[item]).portion_tables()
    portion = ObservedPortion(tables, measured.protocol.prompt_digest)
    options = COMBINERS[measured.protocol.reading].retrieved(measured.protocol, portion)
    return "" if options is None else options.text[choice] or ""


def _several_prompts(group: Sequence[Measurement]) -> bool:
    return len({measured.protocol.prompt_digest for measured in group}) > 1


def _agreement(run: Run, pair: RetrievalPair, tolerance: float) -> Agreement:
    known = ~np.isnan(pair.sums)
    both = known.all(axis=0)
    with np.errstate(invalid="ignore"):  # two impossible options do not differ
        difference = np.where(pair.sums[0] == pair.sums[1], 0.0, pair.sums[0] - pair.sums[1])
    allowed = np.maximum(TOLERANCE, tolerance * np.sqrt(pair.tokens))
    beyond = np.flatnonzero(both & (np.abs(difference) > allowed)).tolist()
    causes = {option: pair.cause(option) for option in beyond}
    worst = []
    for option in sorted(causes, key=lambda option: -abs(difference[option]))[:_WORST]:
        left, right = pair.sums[:, option].tolist()
        item, choice, text = pair.option(run, option)
        worst.append(
            Divergence(
                item=item,
                choice=choice,
                text=text,
                left=left,
                right=right,
                difference=float(difference[option]),
                cause=causes[option],
            )
        )
    sizes = np.abs(difference[both])
    decided = (pair.predictions >= 0).all(axis=0)
    flips = np.flatnonzero(decided & (pair.predictions[0] != pair.predictions[1]))
    return Agreement(
        left=pair.left.measured.name,
        right=pair.right.measured.name,
        n=int(both.sum()),
        missing=int((known[0] != known[1]).sum()),
        median=float(np.median(sizes)) if len(sizes) else np.nan,
        largest=float(sizes.max()) if len(sizes) else np.nan,
        tolerance=max(TOLERANCE, tolerance),
        beyond=len(causes),
        causes=_counted(causes.values()),
        items=int(decided.sum()),
        same=int(decided.sum()) - len(flips),
        decided=_counted(pair.cause_of_flip(int(item), causes) for item in flips),
        worst=worst,
    )


def _counted(causes: Iterable[str]) -> dict[str, int]:
    counts = Counter(causes)
    return {cause: counts[cause] for cause in CAUSES if counts[cause]}
