"""A number of a report: a value with its uncertainty, its identity, and what speaks against it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace

from choicewise.protocols.metrics import METRICS, OPEN, Metric
from choicewise.results.evidence import MissingReason
from choicewise.scoring.answers import AnswerCounts
from choicewise.scoring.intervals import Rounding
from choicewise.scoring.significance import SIGNIFICANT
from choicewise.util.jsonio import JsonDict, json_value

MISSING_SHARE = 0.01
CUT_SHARE = 0.01
UNPARSED_SHARE = 0.05
TIED_SHARE = 0.05
"""Warn if a greater share of the items is missing, cut, names no option, or is tied."""

LENGTH_SHIFT = 0.1
"""Warn if predictions differ in length from right choices by so much of the way from the shortest
to the longest.
"""

WARNINGS = {
    "served-model": (
        "the server answered the same probe differently at the end, so these scores may mix "
        "two models"
    ),
    "positive": "log-probabilities above 0, which no probability has",
    "placeholder": "placeholder log-probabilities: -9999, or 0 for several choices of an item",
    "margins": "the best and second-best score are equal in every item, so nothing separates the choices",
    "many-missing": f"more than {MISSING_SHARE:.0%} of the items are missing",
    "cut": (
        f"more than {CUT_SHARE:.0%} of the answers were cut; low and high cover all possible "
        "endings"
    ),
    "many-unparsed": f"more than {UNPARSED_SHARE:.0%} of the generated texts name no option and count as wrong",
    "many-tied": f"more than {TIED_SHARE:.0%} of the items are tied, so the tie rule decides them",
    "chance": "within one standard error of guessing",
    "constant": f"predicts the same position for every item (p < {SIGNIFICANT})",
    "gold-constant": (
        "the right choice is always at one position and there are ties, so the tie rule "
        "decides the score"
    ),
    "position": f"favors some answer positions (p < {SIGNIFICANT})",
    "length": (
        f"predicted choices are longer or shorter than right ones (by {LENGTH_SHIFT:.0%} "
        f"of the ranks or more, p < {SIGNIFICANT})"
    ),
    "rounded": (
        "the endpoint rounds its probabilities, so a score has two bounds; not identified: "
        "one was rounded to 0"
    ),
    "mass": "the model mostly wants to write something other than the labels",
    "near-ties": "more items are undecided numerically than the interval is wide to either side",
    "label/text": "scoring the choices' texts changes 30 % or more of the predictions",
    "permutation": "another order of the options changes 30 % or more of the predictions",
    "choices-only": f"better than chance without the question, from the choices alone (p < {SIGNIFICANT})",
}
"""Warning → what it means, in the order they are shown."""

COUNTS = {
    "missing": "missing",
    "cut": "cut",
    "invalid": "name no option",
    "skipped": "skipped",
    "floor": "at probability 0",
    "ties": "tied",
    "near_ties": "near-tied",
    "unlisted": "with unlisted answers",
    "shots_dropped": "with examples dropped",
    "truncated": "truncated",
    "merged": "merged",
    "noncanonical": "with unusual tokenization",
    "lossy": "with text lost",
    "unknown": "with unknown tokens",
}
"""Count of a row → the words for it; shown where it is not zero."""

SERIOUS = (
    *("served-model", "positive", "placeholder", "gold-constant", "margins", "constant"),
    *("many-missing", "cut", "many-unparsed", "many-tied", "chance"),
)
"""Warnings that speak against the number itself, and not only for looking closer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What speaks for or against one number.  Shares of 1; NaN where not known.

    ``chance``: expected accuracy of guessing.  ``guessing_p``: how likely guessing is as good as
    this number alone, of a sample as of questions without end.  ``predictions``: a digest that
    protocols share which decide all items alike.  ``most_common``: the greatest share a position
    has among predictions.  ``position_rstd``, ``position_p``: position bias.  ``length_shift``: how
    much longer predicted choices are than right ones, in ranks from 0 (shortest) to 1, and
    ``length_p``, how likely so much is by chance.  ``mass``: median probability of the
    continuations together; ``low_mass``: share of items where it is under 1/2.  ``near_tie_rate``,
    ``tie_rate``: items undecided numerically, and tied exactly.  ``label_text``: share of items
    predicted differently by ``text_sibling``.  ``permutation_consistency``: share of items with the
    same prediction in every order that ``permutation_sibling`` shows.  ``choices_only``: accuracy
    of ``choices_sibling``, which leaves the question out, and ``choices_only_p``, how likely
    guessing is as good.
    """

    warnings: tuple[str, ...]
    chance: float
    guessing_p: float
    predictions: str
    most_common: float
    position_rstd: float
    position_p: float
    length_shift: float
    length_p: float
    mass: float
    low_mass: float
    near_tie_rate: float
    tie_rate: float
    label_text: float
    text_sibling: str | None
    permutation_consistency: float
    permutation_sibling: str | None
    choices_only: float
    choices_only_p: float
    choices_sibling: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberIdentity:
    """Say what a number is a number of.

    ``selection`` is the part of the data in words, "" for all of it; ``subject`` is the group of
    items.  ``family`` is what the protocol asks for (:func:`choicewise.protocols.protocol.family`).
    ``data``, ``id``, ``i``, ``t`` and ``r`` are short ids: of the dataset, of the protocol, of the
    texts that were sent, of their tokens, and of the model as it was computed
    (:mod:`choicewise.results.rows`).  The sources are repository and commit on the Hub, or "".
    """

    model: str
    dataset: str
    data: str
    selection: str
    subject: str
    protocol: str
    signature: str
    family: str
    id: str
    i: str
    t: str
    r: str
    metric: str
    model_source: str = ""
    dataset_source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Hold a 95 % interval and the ``name`` of its kind; NaN if there is nothing to average."""

    name: str
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Bound a value by what numeric noise, unlisted answers, cut answers and rounding leave open.

    ``noise`` is in nats, None if it was not measured.  ``low`` and ``high`` are NaN if the effect
    of noise is unknown.  They hold all that unlisted answers and answers that were cut may be.  If
    an endpoint rounds its probabilities (``rounding``), they hold all that rounds to its answers,
    and replace the value if that is :attr:`Number.open`.
    """

    low: float
    high: float
    noise: float | None
    rounding: Rounding | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Count the items of a number by what happened to them.

    The value is a mean over ``n`` items.  ``missing`` items could not be scored.  ``invalid`` ones
    of ``n`` have a text that names no option.  ``ties`` are tied exactly; noise leaves
    ``near_ties`` further ones open (None: unknown).  ``skipped`` counts the rows of the data that
    could not be used.  ``shots_dropped`` and ``truncated`` items lost few-shot examples or tokens,
    ``merged`` ones have a token across the end of the context, ``noncanonical`` ones were scored in
    other tokens than the text's, ``lossy`` ones in tokens that do not spell it, ``unknown`` ones in
    unknown tokens.  ``unlisted`` ones have an answer known as an upper bound only, because a server
    lists the likeliest tokens; those that this leaves undecided are ``missing``.
    """

    n: int
    missing: int
    invalid: int
    ties: int
    near_ties: int | None
    skipped: int
    shots_dropped: int
    truncated: int
    merged: int
    noncanonical: int
    lossy: int
    unknown: int
    unlisted: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """Rank a number among the models measured on the same items.

    None if their items differ too much.

    ``rank`` is 1 for the best.  ``low`` and ``high`` bound it by tests of all pairs of models.
    ``lead_p`` is, for the only first model, how likely its lead is by chance, corrected for all
    leads.
    """

    rank: int | None = None
    low: int | None = None
    high: int | None = None
    lead_p: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """Hold one number with everything that is needed to trust or distrust it.

    ``value`` and ``se`` are shares of 1 if :attr:`share`, NaN if there is nothing to average.
    ``unused`` are the fields of the data with content that the protocol does not show.
    ``missing_reasons`` and ``skipped_reasons`` say why, the most common first.  ``calibrated`` is
    the value after calibration of its probabilities.  ``population`` is of a sample the number of
    items it was drawn from: error and interval, unless clustered, are for all of them.
    """

    identity: NumberIdentity
    value: float
    se: float
    interval: Interval
    bounds: Bounds
    counts: Counts
    diagnosis: Diagnosis
    ranks: Ranking = field(default_factory=Ranking)
    unused: tuple[str, ...] = ()
    missing_reasons: tuple[MissingReason, ...] = ()
    skipped_reasons: tuple[MissingReason, ...] = ()
    server_changed: str = ""
    calibrated: float = math.nan
    answers: AnswerCounts | None = None
    population: int | None = None

    @property
    def share(self) -> bool:
        """Check if the value is a share of 1 that can be compared with accuracies."""
        # A metric of an extension that is not installed here is taken for a share.
        return self._metric is None or self._metric.share

    @property
    def counted(self) -> bool:
        """Check if the value is a share of items that are right or wrong."""
        return self._metric is None or (self._metric.counted and self._metric.share)

    @property
    def merit(self) -> float:
        """Return the value (with a floor if it is open), or minus it if less is better: the greater
        the better.
        """
        rounding = self.bounds.rounding
        value = self.value
        if rounding is not None and self.open:
            value = rounding.with_floor
        is_loss = self._metric is not None and not self._metric.higher
        return -value if is_loss else value

    @property
    def _metric(self) -> Metric | None:
        try:
            return METRICS[self.identity.metric]
        except KeyError:
            return None

    @property
    def chance(self) -> float:
        """Return the value that guessing is expected to have over the items of the value.

        NaN without any.
        """
        return self.diagnosis.chance

    @property
    def coverage(self) -> str:
        """Return which part of its items was scored, such as "(22 of 59)"; empty if all were."""
        counts = self.counts
        if not counts.missing or not counts.n:
            return ""
        total = counts.n + counts.missing
        return f"({counts.n:,} of {total:,})"

    @property
    def cut(self) -> int:
        """Return how many answers in text were cut."""
        return 0 if self.answers is None else self.answers.cut

    @property
    def open(self) -> bool:
        """Check if rounding leaves the value open without limit, so that only bounds are known."""
        # A probability that was rounded to 0 may be any small one, and its logarithm anything.
        if self.bounds.rounding is None or self.identity.metric not in OPEN:
            return False
        return self.counts.n > 0

    @property
    def floor(self) -> int:
        """Return how many items need a probability that an endpoint rounded to 0."""
        return 0 if self.bounds.rounding is None else self.bounds.rounding.floor

    @property
    def cut_text(self) -> str:
        """Return in words how many answers were cut, and what that leaves open; "" if none was."""
        if self.answers is None:
            return ""
        return self.answers.bounds_text(self.bounds.low, self.bounds.high)

    @property
    def tally(self) -> dict[str, int]:
        """Return the count of each entry of :data:`COUNTS`; 0 if it is unknown."""
        counts = self.counts
        return {
            "missing": counts.missing,
            "cut": self.cut,
            "invalid": counts.invalid,
            "skipped": counts.skipped,
            "floor": self.floor,
            "ties": counts.ties,
            "near_ties": counts.near_ties or 0,
            "unlisted": counts.unlisted,
            "shots_dropped": counts.shots_dropped,
            "truncated": counts.truncated,
            "merged": counts.merged,
            "noncanonical": counts.noncanonical,
            "lossy": counts.lossy,
            "unknown": counts.unknown,
        }

    @property
    def tally_texts(self) -> list[str]:
        """Return the counts that are not zero in words, such as ``3 missing``."""
        texts = []
        for name, count in self.tally.items():
            if count:
                texts.append(f"{count:,} {COUNTS[name]}")
        return texts

    def with_model(self, name: str) -> Number:
        """Return the number under another name of its model."""
        return replace(self, identity=replace(self.identity, model=name))

    def as_json(self) -> JsonDict:
        """Return the number as flat JSON: NaN and infinity become null; ``flags`` are its warnings.

        A value that rounding leaves open is null, and ``rounding`` has what a floor of 1e-12 makes
        of it.
        """
        identity = self.identity
        counts = self.counts
        diagnosis = asdict(self.diagnosis)
        warnings = diagnosis.pop("warnings")
        # The keys and their order are those of every version: scripts read them.
        return json_value(
            {
                "model": identity.model,
                "dataset": identity.dataset,
                "data": identity.data,
                "selection": identity.selection,
                "subject": identity.subject,
                "protocol": identity.protocol,
                "signature": identity.signature,
                "family": identity.family,
                "id": identity.id,
                "i": identity.i,
                "t": identity.t,
                "r": identity.r,
                "metric": identity.metric,
                "value": self.value,
                "se": self.se,
                "interval": self.interval.name,
                "ci_low": self.interval.low,
                "ci_high": self.interval.high,
                "low": self.bounds.low,
                "high": self.bounds.high,
                "n": counts.n,
                "missing": counts.missing,
                "invalid": counts.invalid,
                "ties": counts.ties,
                "near_ties": counts.near_ties,
                "noise": self.bounds.noise,
                "skipped": counts.skipped,
                "shots_dropped": counts.shots_dropped,
                "truncated": counts.truncated,
                "merged": counts.merged,
                "noncanonical": counts.noncanonical,
                "lossy": counts.lossy,
                "unknown": counts.unknown,
                "unused": self.unused,
                "rank": self.ranks.rank,
                "rank_low": self.ranks.low,
                "rank_high": self.ranks.high,
                "lead_p": self.ranks.lead_p,
                "missing_reasons": self.missing_reasons,
                "skipped_reasons": self.skipped_reasons,
                "model_source": identity.model_source,
                "dataset_source": identity.dataset_source,
                "unlisted": counts.unlisted,
                "server_changed": self.server_changed,
                "calibrated": self.calibrated,
                "answers": self._answers_json(),
                "population": self.population,
                "rounding": self._rounding_json(),
                "chance": self.chance,
                "flags": warnings,
                "alarms": [warning for warning in warnings if warning in SERIOUS],
                "diagnosis": diagnosis,
            }
        )

    def _answers_json(self) -> JsonDict | None:
        if self.answers is None:
            return None
        return asdict(self.answers) | {"cut": self.cut, "text": self.cut_text}

    def _rounding_json(self) -> JsonDict | None:
        if self.bounds.rounding is None:
            return None
        content = asdict(self.bounds.rounding)
        if self.open:
            content["identified"] = math.isfinite(self.bounds.high - self.bounds.low)
        return content
