"""What a protocol retrieved: the log-likelihood of every option, and the tokens it is the sum of."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from choicewise.protocols.readings import READINGS
from choicewise.results.measurement import Measurement
from choicewise.results.pairing import paired_predictions, shared_items
from choicewise.scoring.continuations import Continuations
from choicewise.scoring.readings import combiner


@dataclass(frozen=True, eq=False, slots=True)
class Retrieval:
    """The ``options`` of a measurement as they were scored, one row per item and choice of its evidence."""

    measured: Measurement
    options: Continuations

    def tokens(self, row: int) -> list[int]:
        """The ids of the scored tokens of a row."""
        start, end = self.options.offsets[row : row + 2]
        return list(map(int, self.options.tokens[start:end]))


def retrieval(measured: Measurement) -> Retrieval | None:
    """What was retrieved under the protocol of ``measured``; None when that is no likelihood of an option."""
    options = combiner(measured.protocol.reading).retrieved(measured.protocol, measured.evidence)
    return None if options is None else Retrieval(measured, options)


class RetrievalPair:
    """The options of the items that two retrievals share, one after the other.

    ``item`` (its place in ``ids``) and ``choice`` of each option, int64 [options]; ``rows``: where each side has it;
    ``sums``: nats, float64 [2, options]; ``predictions``: int64 [2, items], -1 for none.
    """

    def __init__(self, left: Retrieval, right: Retrieval) -> None:
        self.left, self.right = left, right
        evidence = (left.measured.evidence, right.measured.evidence)
        self.ids, places = shared_items((left.measured, right.measured))
        counts = np.diff(evidence[0].item_offsets)[places[0]]
        self.item = np.repeat(np.arange(len(self.ids)), counts)
        self.choice = np.arange(len(self.item)) - np.repeat(np.cumsum(counts) - counts, counts)
        starts = [each.item_offsets[:-1][items] for each, items in zip(evidence, places, strict=True)]
        self.rows = [start[self.item] + self.choice for start in starts]
        self.sums = np.array([side.options.sums[rows] for side, rows in zip((left, right), self.rows, strict=True)])
        self.predictions = paired_predictions((left.measured, right.measured))

    def option(self, option: int) -> tuple[str, int, str]:
        """An option's item, its index there, and its text."""
        text = self.left.options.text[self.rows[0][option]]
        return self.ids[self.item[option]], int(self.choice[option]), text

    def cause(self, option: int) -> str:
        """Why the two sums of an option differ (:data:`choicewise.results.agreement.CAUSES`)."""
        rows = [int(side[option]) for side in self.rows]
        left, right = self.left.tokens(rows[0]), self.right.tokens(rows[1])
        if not (left and right):
            return "no tokens"
        evidence = (self.left.measured.evidence, self.right.measured.evidence)
        if left != right:
            merged = any(each.merged_rows[row] for each, row in zip(evidence, rows, strict=True))
            return "boundary merge" if merged else "span"
        if evidence[0].context_tokens[rows[0]] != evidence[1].context_tokens[rows[1]]:
            return "context"
        renormalised = {READINGS[side.measured.protocol.reading].renormalised for side in (self.left, self.right)}
        return "renormalised" if len(renormalised) > 1 else "precision"

    def cause_of_flip(self, item: int, causes: Mapping[int, str]) -> str:
        """The cause of most of the item's options; the divisor where the sums alone would predict the same."""
        options = np.flatnonzero(self.item == item)
        counts = Counter(causes[option] for option in options.tolist() if option in causes)
        best = np.where(np.isnan(self.sums[:, options]), -np.inf, self.sums[:, options]).argmax(axis=1)
        return counts.most_common(1)[0][0] if counts and best[0] != best[1] else "divisor"
