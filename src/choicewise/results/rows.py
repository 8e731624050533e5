"""The row of a report: a number with its warnings and ids.

``#P`` the protocol (:func:`choicewise.protocols.protocol.short_signature`), ``#I`` the texts that were sent, ``#T``
what was asked and scored in tokens, ``#R`` the model and how it was computed, ``#D`` the data.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from choicewise.protocols.between import as_accuracy
from choicewise.protocols.metrics import METRICS, Metric
from choicewise.protocols.protocol import (
    Protocol,
    axis_differences,
    family,
    short_signature,
    signature,
)
from choicewise.protocols.readings import DRAWING, PERMUTED
from choicewise.records import DatasetRecord, Manifest, Selection, SkippedRow
from choicewise.requests.blocks import unused
from choicewise.results.evidence import TEXTS, Evidence, MissingReason, counted, tokens_column
from choicewise.results.measurement import (
    Measurement,
    check_clusters,
    interval,
    paired_predictions,
    same_items,
)
from choicewise.results.spans import PLACEHOLDER, POSITIVE
from choicewise.scoring.answers import AnswerCounts, answer_counts, is_cut
from choicewise.scoring.calibrate import order_predictions
from choicewise.scoring.decide import guess
from choicewise.scoring.intervals import GROUPS, Value, micro
from choicewise.scoring.observed import Floats, Integers, Mask, row_of
from choicewise.scoring.rounding import OPEN, Rounding
from choicewise.scoring.sampling import unseen
from choicewise.scoring.significance import (
    SIGNIFICANT,
    guessing_p,
    length_p,
    length_shifts,
    low_mass_rate,
    permutation_consistency,
    position_bias,
    positive_p,
    validity,
)
from choicewise.util.jsonio import json_value


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What speaks for or against one number.  Shares of 1; NaN where not known.

    ``chance``: expected accuracy of guessing.  ``guessing_p``: how likely guessing is as good as this number alone, of
    a sample as of questions without end.  ``predictions``: a digest that protocols share which decide all items alike.
    ``most_common``: the greatest share a position has among predictions.
    ``position_rstd``, ``position_p``: position bias.  ``length_shift``: how much longer predicted choices are than
    right ones, in ranks from 0 (shortest) to 1, and ``length_p``, how likely so much is by chance.
    ``mass``: median probability of the continuations together; ``low_mass``: share of items where it is under 1/2.
    ``near_tie_rate``, ``tie_rate``: items undecided numerically, and tied exactly.  ``label_text``: share of items
    predicted differently by ``text_sibling``.  ``permutation_consistency``: share of items with the same prediction in
    every order that ``permutation_sibling`` shows.  ``choices_only``: accuracy of ``choices_sibling``, which leaves the
    question out, and ``choices_only_p``, how likely guessing is as good.
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
class Row:
    """One number with everything that is needed to trust or distrust it.

    ``data``, ``id``, ``i``, ``t`` and ``r`` are short ids of dataset and protocol, of what was sent in texts and asked
    in tokens, and of the model as it was computed (:mod:`choicewise.results.rows`).  ``family`` says what the
    protocol asks for (:mod:`choicewise.protocols.protocol`).  ``selection`` says in words which part of the
    data the run is about, nothing for all of it.  ``value``, ``se``, ``ci_low`` and ``ci_high`` are shares of 1 where
    :attr:`share` says so, NaN where there is nothing to average; ``interval`` names the 95 % interval.  ``low`` and
    ``high`` bound the value that numeric noise of ``noise`` nats allows (None: not measured), ``ties`` counts the
    items that are tied exactly, ``near_ties`` the further ones that noise leaves open; NaN and None where the effect of
    noise is not known.  ``unlisted`` counts the items of which an answer is known as an upper bound alone, because a
    server lists only the likeliest tokens: ``low`` and ``high`` hold whatever those answers are (then of unknown noise
    nothing more), and the items that they leave undecided, which are in ``missing`` and not in the value.
    ``answers`` says what became of texts; ``low`` and ``high`` then hold whatever stands behind those that were cut.
    ``n`` counts the items the value is a mean over, ``missing`` those that could not be scored, ``invalid`` those of
    ``n`` whose generated text names no option, ``skipped`` the rows of the data that could not be used at all.

    Items with a warning: ``shots_dropped`` and ``truncated`` lost few-shot examples or tokens, ``merged`` have
    a token across the end of the context, ``noncanonical`` were scored in other tokens than the text's own, ``lossy``
    in tokens that do not spell it, ``unknown`` in unknown ones.  ``diagnosis`` says what speaks against the value.
    ``unused`` are the fields of the data with content that the protocol does not show.
    ``missing_reasons`` and ``_skipped_reasons`` say why, with a count and one example each, the most common first.
    ``model_source`` and ``dataset_source`` name repository and commit where they came from the Hub.
    ``rank`` is 1 for the best of the models measured on the same items, None where they scored too different ones;
    ``rank_low`` and ``rank_high`` bound it by tests of all pairs of models.  ``lead_p``: of the only first one how
    likely its lead is by chance, corrected for all leads.  ``population``: of a sample, how many items it was drawn
    from: error and interval, unless it is clustered, are those for the value of all of them; None for others.
    ``rounding``: of an endpoint that rounds its probabilities; ``low`` and ``high`` then hold all that rounds to what
    it told, and stand in the place of the value, NaN, where it is :attr:`open`.
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
    value: float
    se: float
    interval: str
    ci_low: float
    ci_high: float
    low: float
    high: float
    n: int
    missing: int
    invalid: int
    ties: int
    near_ties: int | None
    noise: float | None
    skipped: int
    shots_dropped: int
    truncated: int
    merged: int
    noncanonical: int
    lossy: int
    unknown: int
    diagnosis: Diagnosis
    unused: tuple[str, ...] = ()
    rank: int | None = None
    rank_low: int | None = None
    rank_high: int | None = None
    lead_p: float | None = None
    missing_reasons: tuple[MissingReason, ...] = ()
    skipped_reasons: tuple[MissingReason, ...] = ()
    model_source: str = ""
    dataset_source: str = ""
    unlisted: int = 0
    server_changed: str = ""
    calibrated: float = math.nan
    answers: AnswerCounts | None = None
    population: int | None = None
    rounding: Rounding | None = None

    @property
    def share(self) -> bool:
        """Whether the value is a share of 1 that can stand beside accuracies."""
        return self.metric not in METRICS or METRICS[self.metric].share

    @property
    def counted(self) -> bool:
        """Whether the value is a share of items that are right or wrong."""
        return self.metric not in METRICS or (
            METRICS[self.metric].counted and METRICS[self.metric].share
        )

    @property
    def merit(self) -> float:
        """The value (with a floor where it is open), or minus it where less is better: the greater the better."""
        value = self.rounding.with_floor if self.rounding is not None and self.open else self.value
        return value if self.metric not in METRICS or METRICS[self.metric].higher else -value

    @property
    def chance(self) -> float:
        """The value that guessing is expected to have, over the row's items as the value is; NaN without any."""
        return self.diagnosis.chance

    @property
    def coverage(self) -> str:
        """Return which part of its items was scored, such as "(22 of 59)"; empty if all were."""
        return f"({self.n:,} of {self.n + self.missing:,})" if self.missing and self.n else ""

    @property
    def cut(self) -> int:
        """How many answers in text were cut."""
        return 0 if self.answers is None else self.answers.cut

    @property
    def open(self) -> bool:
        """Whether rounding leaves the value open without limit, so that no number but its bounds is known."""
        return self.rounding is not None and self.metric in OPEN and self.n > 0

    @property
    def floor(self) -> int:
        """How many items need a probability that an endpoint rounded to 0."""
        return 0 if self.rounding is None else self.rounding.floor

    @property
    def cut_text(self) -> str:
        """How many were cut, and what that leaves open, in words; nothing where none was."""
        return "" if self.answers is None else self.answers.bounds_text(self.low, self.high)

    @property
    def counts(self) -> list[str]:
        """What is counted of its items, where there are any: ``3 missing``."""
        return [
            f"{number:,} {words}"
            for name, words in COUNTS.items()
            if (number := getattr(self, name))
        ]

    def as_json(self) -> dict[str, Any]:
        """The row as JSON knows it: NaN and infinity become null; ``flags`` are its warnings.

        A value that rounding leaves open is null, and ``rounding`` has what a floor of 1e-12 makes of it.
        """
        content = asdict(self)
        diagnosis = content.pop("diagnosis")
        warnings = diagnosis.pop("warnings")
        if content["answers"] is not None:
            content["answers"] |= {"cut": self.cut, "text": self.cut_text}
        if self.open:
            content["rounding"]["identified"] = math.isfinite(self.high - self.low)
        raised = {
            "flags": warnings,
            "alarms": [warning for warning in warnings if warning in SERIOUS],
        }
        return json_value({**content, "chance": self.chance, **raised, "diagnosis": diagnosis})


def rows(
    manifest: Manifest,
    measured: Measurement,
    by: str | None,
    intervals: str | None,
    siblings: Sequence[Measurement],
) -> list[Row]:
    """The rows of one measurement: under the protocol's own aggregation, or one row per group of ``by``.

    ``intervals`` names another interval (``results/measurement.py``); ``siblings`` are the run's measurements.
    The texts were read before (:func:`choicewise.results.evidence.read_texts`).
    """
    protocol, evidence, dataset = measured.protocol, measured.evidence, manifest.dataset
    aggregation = by or protocol.aggregation
    extremes, chances = measured.extremes(aggregation), measured.chances(aggregation)
    groups = measured.groups(aggregation)
    if intervals == "clustered":
        check_clusters(dataset.name, groups.tolist(), evidence.subjects)
    counted = {"invalid": measured.invalid, "unlisted": measured.unlisted, **evidence.warnings}
    changed = "" if manifest.server is None else manifest.server.changed
    report = []
    for group, mean in measured.values(aggregation).items():
        among = np.asarray(groups == group, dtype=np.bool_)
        interval_name, value = _interval(measured, among, mean, aggregation == "macro", intervals)
        population = _population(manifest.selection, measured, aggregation, group)
        if population is not None and interval_name != "clustered":
            value = _of_sample(value, population)
        row = Row(
            model=manifest.model.name,
            dataset=dataset.name,
            data=data_id(dataset),
            selection=selection(manifest, measured),
            subject=group,
            protocol=measured.name,
            signature=signature(protocol),
            family=family(protocol),
            id=short_signature(protocol),
            i=text_id(evidence, protocol),
            t=token_id(evidence, protocol),
            r=run_id(manifest),
            metric=protocol.metric,
            interval=interval_name,
            low=extremes[group][0],
            high=extremes[group][1],
            near_ties=int((measured.near_ties & among).sum())
            if measured.bounded[among].all()
            else None,
            noise=measured.noise,
            skipped=len(dataset.skipped),
            **asdict(value),
            **{name: int((items & among).sum()) for name, items in counted.items()},
            diagnosis=_diagnose(measured, among, value, chances[group], siblings, bool(changed)),
            unused=unused(protocol, dataset.content),
            missing_reasons=measured.missing_reasons(among),
            skipped_reasons=_skipped_reasons(dataset.skipped),
            model_source=manifest.model.source,
            dataset_source=dataset.source,
            server_changed=changed,
            calibrated=measured.if_calibrated(among),
            answers=None
            if measured.statuses is None
            else answer_counts(measured.statuses[among], protocol),
            population=population,
            rounding=measured.rounding(among, value.value),
        )
        report.append(
            replace(row, value=math.nan, se=math.nan, ci_low=math.nan, ci_high=math.nan)
            if row.open
            else row
        )
    return report


def selection(manifest: Manifest, measured: Measurement) -> str:
    """The part of the data that a number is about, in words: subjects, a limit, a sample, or how much is there yet."""
    asked, every = measured.item_counts
    lacking = f"incomplete: {asked:,} of {every:,} items" if asked < every else ""
    return ", ".join(
        filter(
            None,
            (chosen_part(manifest.selection), lacking or "incomplete" * (not manifest.complete)),
        )
    )


def chosen_part(chosen: Selection) -> str:
    """The part of the data that a run is to ask, in words; nothing for all of it."""
    subjects, limit = chosen.subjects, chosen.limit
    named = (
        []
        if subjects is None
        else subjects
        if len(subjects) <= _MANY
        else [f"{len(subjects)} subjects"]
    )
    first = [] if limit is None else [f"first {limit} of each subject"]
    drawn = [] if chosen.sample is None else [f"sample of {chosen.sample}, seed {chosen.seed}"]
    return ", ".join([*named, *first, *drawn])


def text_id(evidence: Evidence, protocol: Protocol, places: Integers | None = None) -> str:
    """``#I``: the texts sent about the items at ``places`` (None: all) and their right answers, in the order of ids.

    It agrees for two models that were asked the same, whatever their tokenizers.  The texts were read before
    (:func:`choicewise.results.evidence.read_texts`); what ``protocol`` adds to them, such as other orders of the
    options, follows from its axes.
    """
    seed = protocol.seed if protocol.views in DRAWING else None
    added = (protocol.proposal, protocol.views, seed)
    axes = "" if added == ("", "given", None) else json.dumps(added)
    return f"#I{_digest([evidence.ordered(TEXTS, places), axes.encode()])}"


def token_id(evidence: Evidence, protocol: Protocol, places: Integers | None = None) -> str:
    """``#T``: the tokens that were asked and scored, those after a null context as well where the score needs it.

    It agrees for two models with the same tokenizer that were asked the same, whatever their weights and type.
    """
    contexts = dict.fromkeys((None, protocol.null))
    return f"#T{_digest([evidence.ordered(tokens_column(each), places) for each in contexts])}"


def run_id(manifest: Manifest) -> str:
    """``#R``: the model but for its name and where it came from, the path by which it was computed, and the versions.

    What a model has not (a chat template) is left out, so that ids of before it was known stay the same.
    """
    model = {name: value for name, value in manifest.model.computation.items() if value != ""} | {
        "name": ""
    }
    model.pop("source", None)
    identity = {"model": model, "versions": manifest.versions, "engine": engine_path(manifest)}
    return (
        f"#R{hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:_DIGITS]}"
    )


def engine_path(manifest: Manifest) -> str:
    """The path by which the model was computed; ``-`` where it has only one."""
    check = manifest.engine.selfcheck
    return "-" if check is None else check.rung


def data_id(dataset: DatasetRecord) -> str:
    """``#D``: the data."""
    return f"#D{dataset.digest[:_DIGITS]}"


_MARGIN, _TIED, _MISSING, _UNPARSED, _CUT = 1e-12, 0.05, 0.01, 0.05, 0.01
"""Warnings: margins up to so much are zero; a greater share of items is tied, missing, names no option, or was cut."""

_LENGTH = 0.1
"""By so much of the way from the shortest to the longest choice do predictions differ from right ones, or more."""

WARNINGS = {
    "served-model": "the server answered the same probe otherwise at the end: these numbers may be of two models",
    "positive": "log-probabilities above 0 were observed, which no probability has",
    "placeholder": "log-probabilities that nobody measured: -9999, or 0 for several choices of an item",
    "margins": "the best and the second best score are equal in every item: nothing tells the choices apart",
    "many-missing": f"more than {_MISSING:.0%} of the items are missing",
    "cut": f"more than {_CUT:.0%} of the answers were cut: low and high hold whatever they would have been",
    "many-unparsed": f"more than {_UNPARSED:.0%} of the generated texts name no option, and count as wrong",
    "many-tied": f"more than {_TIED:.0%} of the items are tied: the tie rule decides them",
    "chance": "within one standard error of guessing",
    "constant": f"the same position is predicted for every item (p < {SIGNIFICANT})",
    "gold-constant": "the right choice always stands in one place and there are ties: the tie rule makes the number",
    "position": f"positions are predicted more or less often than they are right (p < {SIGNIFICANT})",
    "length": (
        f"predicted choices are longer or shorter than right ones (by {_LENGTH:.0%} of the ranks or more, "
        f"p < {SIGNIFICANT})"
    ),
    "rounded": "the endpoint rounds its probabilities, so two bounds are known; not identified: one was rounded to 0",
    "mass": "the labels hold less than half of the probability for most items",
    "near-ties": "more items are undecided numerically than the interval is wide to either side",
    "label/text": "the protocol that scores the choices' texts predicts 30 % or more of the items differently",
    "permutation": "30 % or more of the items are predicted differently in another order of their options",
    "choices-only": f"with the choices alone the accuracy is better than chance (p < {SIGNIFICANT})",
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
    "shots_dropped": "with shots dropped",
    "truncated": "truncated",
    "merged": "merged",
    "noncanonical": "in other tokens than the text's own",
    "lossy": "with text lost",
    "unknown": "with unknown tokens",
}
"""Count of a row → the words for it; shown where it is not zero."""

SERIOUS = (
    *("served-model", "positive", "placeholder", "gold-constant", "margins", "constant"),
    *("many-missing", "cut", "many-unparsed", "many-tied", "chance"),
)
"""Warnings that speak against the number itself, and not only for looking closer."""


def nearest(
    measured: Measurement,
    siblings: Sequence[Measurement],
    fits: Callable[[Protocol, Protocol], bool],
) -> Measurement | None:
    """The first of the siblings whose protocol fits that of ``measured`` and differs from it in the fewest axes."""
    fitting = [each for each in siblings if fits(each.protocol, measured.protocol)]
    return min(
        fitting,
        key=lambda each: len(axis_differences(each.protocol, measured.protocol)),
        default=None,
    )


_MANY = 3
"""Subjects that are named; more of them are counted."""


@lru_cache(maxsize=8)
def _skipped_reasons(skipped: tuple[SkippedRow, ...]) -> tuple[MissingReason, ...]:
    """Why rows of the data could not be used."""
    return counted((row.reason, f"{row.file}, row {row.row}") for row in skipped)


def _interval(
    measured: Measurement, among: Mask, value: Value, macro: bool, name: str | None
) -> tuple[str, Value]:
    if not measured.metric.counted:
        return "pooled" if measured.metric.pooled else "t", value
    if name is None:
        return "wilson", value
    scored = among & ~measured.decisions.missing
    subjects = [measured.evidence.subjects[place] for place in np.flatnonzero(scored)]
    low, high = interval(name, measured.decisions.credit[scored], subjects, macro)
    return name, replace(value, ci_low=low, ci_high=high)


def _population(
    chosen: Selection, measured: Measurement, aggregation: str, group: str
) -> int | None:
    """How many items a sample of a group was drawn from; None where all of it was asked."""
    sizes = chosen.drawn_from.get(measured.protocol.split or "", {})
    group_of = {subject: GROUPS[aggregation](subject, measured.categories) for subject in sizes}
    return sum(size for subject, size in sizes.items() if group_of[subject] == group) or None


def _of_sample(value: Value, population: int) -> Value:
    """The value with the error and the interval of a sample for the number of all items that it was drawn from.

    Every subject has its share of a sample, so that one factor holds for means over subjects as well.  A clustered
    interval is about further subjects and their questions, for which a sample is just fewer questions.
    """
    left, mean = unseen(value.n, population), value.value
    low, high = mean - left * (mean - value.ci_low), mean + left * (value.ci_high - mean)
    return replace(value, se=left * value.se, ci_low=low, ci_high=high)


_DIGITS = 6
"""Hex digits of a short id."""


def _digest(parts: Sequence[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()[:_DIGITS]


def _diagnose(
    measured: Measurement,
    among: Mask,
    value: Value,
    chance: float,
    siblings: Sequence[Measurement],
    served_changed: bool = False,
) -> Diagnosis:
    """What the run's measurements (``siblings``) say of the items ``among`` (bool [items]), with mean ``value``.

    ``chance``: the value that guessing is expected to have.  ``served_changed``: whether the server of the run was
    found to be otherwise after the last question.
    """
    evidence = measured.evidence
    rows = among[row_of(evidence.item_offsets)]
    offsets = np.concatenate([[0], np.cumsum(np.diff(evidence.item_offsets)[among])])
    decisions = measured.decisions.among(among)
    signs = validity(decisions, offsets, evidence.right[rows], measured.guesses[among])
    several = np.diff(evidence.item_offsets) > 1
    single = among & several & (evidence.gold_index >= 0) & measured.metric.predicted
    position = position_bias(measured.decisions.prediction[single], evidence.gold_index[single])
    mass = evidence.mass[among] if measured.likelihoods else np.array([])
    low_mass = low_mass_rate(mass) if _labels(measured.protocol) else math.nan
    known = value.n > 0 and bool(measured.bounded[among].all())
    near_ties = float((measured.near_ties & among).sum() / value.n) if known else math.nan
    kinds = (_is_text_of, _is_permuted, _is_choices_only_of)
    text, permuted, choices = (nearest(measured, siblings, fits) for fits in kinds)
    mismatch, consistency = (
        _mismatch(text, measured, among),
        _consistency(permuted, measured, among),
    )
    alone, alone_p = _alone(choices, measured, among)
    length, length_chance = _length(measured, single)
    golds = evidence.gold_index[among]
    impossible = evidence.impossible(measured.protocol.null)[among]
    margins = decisions.margin[~np.isnan(decisions.margin)]
    alike = len(margins) > 1 and bool((np.abs(margins) <= _MARGIN).all())
    raised = {
        "served-model": served_changed,
        "positive": bool((impossible & POSITIVE).any()),
        "placeholder": bool((impossible & PLACEHOLDER).any()),
        "margins": alike,
        "cut": measured.statuses is not None
        and bool(is_cut(measured.statuses)[among].mean() > _CUT),
        # Without any number, as of what a log does not hold, there is none to speak against.
        "many-missing": value.n > 0 and value.missing > _MISSING * (value.n + value.missing),
        "many-unparsed": (measured.invalid & among).sum() > _UNPARSED * value.n,
        "many-tied": value.ties > _TIED * value.n and not alike,
        "chance": signs.at_chance and not measured.metric.pooled,
        "constant": signs.constant,
        "gold-constant": value.ties > 0
        and len(golds) > 1
        and golds[0] >= 0
        and bool((golds == golds[0]).all()),
        "position": position.p < SIGNIFICANT,
        "length": abs(length) >= _LENGTH and length_chance < SIGNIFICANT,
        "rounded": measured.step is not None and measured.protocol.metric in OPEN,
        "mass": low_mass > 0.5,
        "near-ties": near_ties > (value.ci_high - value.ci_low) / 2,
        "label/text": mismatch >= 0.3,
        "permutation": consistency <= 0.7,
        "choices-only": alone_p < SIGNIFICANT,
    }
    return Diagnosis(
        warnings=tuple(name for name in WARNINGS if raised[name]),
        chance=chance,
        guessing_p=_guessing_p(measured.metric, decisions.credit, measured.guesses[among]),
        predictions=_digest([decisions.prediction.tobytes(), decisions.credit.tobytes()]),
        most_common=signs.most_common,
        position_rstd=position.rstd,
        position_p=position.p,
        length_shift=length,
        length_p=length_chance,
        mass=float(np.nanmedian(mass)) if (~np.isnan(mass)).any() else math.nan,
        low_mass=low_mass,
        near_tie_rate=near_ties,
        tie_rate=signs.tie_rate,
        label_text=mismatch,
        text_sibling=text.name if text else None,
        permutation_consistency=consistency,
        permutation_sibling=permuted.name if permuted else None,
        choices_only=alone,
        choices_only_p=alone_p,
        choices_sibling=choices.name if choices else None,
    )


def _guessing_p(metric: Metric, credit: Floats, chance: Floats) -> float:
    """Return how likely guessing is as good; NaN where the metric is no share of 1."""
    scored = ~np.isnan(credit)
    if metric.counted and metric.share:
        return guessing_p(credit[scored], chance[scored])
    return positive_p((credit - chance)[scored]) if metric.share else math.nan


def _labels(protocol: Protocol) -> bool:
    return "{letter}" in protocol.continuation and "{choice}" not in protocol.continuation


def _shows_question(protocol: Protocol) -> bool:
    return "{question}" in protocol.question


def _is_text_of(other: Protocol, protocol: Protocol) -> bool:
    shows_text = _labels(protocol) and "{choice}" in other.continuation
    return shows_text and _shows_question(other) == _shows_question(protocol)


def _is_choices_only_of(other: Protocol, protocol: Protocol) -> bool:
    is_share = (
        METRICS[other.metric].counted and METRICS[other.metric].predicted
    )  # which guessing can be as good as
    return (
        is_share
        and not _shows_question(other)
        and _shows_question(protocol)
        and _labels(other) == _labels(protocol)
    )


def _is_permuted(other: Protocol, protocol: Protocol) -> bool:
    """Whether the first asks the same with the options in several orders."""
    return other.views in PERMUTED and _in_one_order(other) == _in_one_order(protocol)


def _in_one_order(protocol: Protocol) -> str:
    """The digest of the prompt with the options as given, without the seed where only the views need it."""
    seed = None if protocol.views in DRAWING and not protocol.shots else protocol.seed
    return replace(
        as_accuracy(protocol), views="given", calibration="none", seed=seed
    ).prompt_digest


def _consistency(sibling: Measurement | None, measured: Measurement, among: Mask) -> float:
    if sibling is None or not same_items(sibling, measured):  # another split: nothing to compare
        return math.nan
    evidence = sibling.evidence
    views, offsets = sibling.protocol.views, evidence.item_offsets
    predictions = order_predictions(views, evidence.part_sums, offsets, evidence.part_lows)
    return permutation_consistency(predictions[:, among])


def _mismatch(sibling: Measurement | None, measured: Measurement, among: Mask) -> float:
    if sibling is None or not same_items(sibling, measured):  # another split: nothing to compare
        return math.nan
    left, right = paired_predictions([measured, sibling])[:, among]
    both = (left >= 0) & (right >= 0)
    return float((left != right)[both].mean()) if both.any() else math.nan


def _alone(sibling: Measurement | None, measured: Measurement, among: Mask) -> tuple[float, float]:
    """The accuracy of the sibling on the same items, and how likely guessing is as good."""
    if sibling is None or not same_items(sibling, measured):  # another split: nothing to compare
        return math.nan, math.nan
    scored = among & ~sibling.decisions.missing
    chance = guess(sibling.evidence.item_offsets, sibling.evidence.right, sibling.protocol.metric)[
        scored
    ]
    return micro(sibling.decisions, among).value, guessing_p(sibling.credit[scored], chance)


def _length(measured: Measurement, among: Mask) -> tuple[float, float]:
    """Return how much longer predicted choices are than the right ones, and how likely so much is by chance.

    Of scored choices alone: what is read from text has no length of its own.
    """
    if measured.scores is None:
        return math.nan, math.nan
    evidence = measured.evidence
    chosen = np.where(among, measured.decisions.prediction, -1)
    shifts = length_shifts(chosen, evidence.gold_index, evidence.lengths, evidence.item_offsets)
    scored = shifts[~np.isnan(shifts)]
    if not len(scored):
        return math.nan, math.nan
    return float(scored.mean()), length_p(scored)
