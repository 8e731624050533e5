"""Make the numbers of a report from measurements, with their warnings and short ids.

``#P`` is the protocol (:func:`choicewise.protocols.protocol.short_signature`), ``#I`` the texts
that were sent, ``#T`` the tokens that were sent and scored, ``#R`` the model and how it was
computed, ``#D`` the data.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from choicewise.protocols.between import as_accuracy
from choicewise.protocols.metrics import METRICS, OPEN, Metric
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
from choicewise.results.evidence import (
    DEFECTS,
    MASS,
    TEXTS,
    Evidence,
    MissingReason,
    count_reasons,
    impossible_column,
    tokens_column,
)
from choicewise.results.measurement import (
    Measurement,
    check_clusters,
    interval,
    paired_predictions,
    same_items,
)
from choicewise.results.number import (
    CUT_SHARE,
    LENGTH_SHIFT,
    MISSING_SHARE,
    TIED_SHARE,
    UNPARSED_SHARE,
    WARNINGS,
    Bounds,
    Counts,
    Diagnosis,
    Interval,
    Number,
    NumberIdentity,
)
from choicewise.scoring.answers import answer_counts, is_cut
from choicewise.scoring.calibrate import order_predictions
from choicewise.scoring.decide import guess
from choicewise.scoring.intervals import GROUPS, Value, micro
from choicewise.scoring.observed import Floats, Integers, Mask, offsets_from, row_of
from choicewise.scoring.portion import PLACEHOLDER, POSITIVE
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

_MARGIN = 1e-12
"""Margins up to this are zero."""

_LOW_MASS = 0.5
_MISMATCH = 0.3
_CONSISTENT = 0.7
"""Shares of items that raise a warning: above the first, from the second on, up to the third."""

_MANY = 3
"""Subjects that are named; if there are more, they are counted."""

_DIGITS = 6
"""Hex digits of a short id."""


def rows(
    manifest: Manifest,
    measured: Measurement,
    by: str | None,
    intervals: str | None,
    siblings: Sequence[Measurement],
) -> list[Number]:
    """Return the numbers of a measurement, one per group of items.

    ``by`` and ``intervals`` name another aggregation than the protocol's and another interval
    (:func:`choicewise.results.measurement.interval`).  ``siblings`` are the run's measurements.
    The texts must have been read (:func:`choicewise.results.evidence.read_texts`).
    """
    protocol = measured.protocol
    dataset = manifest.dataset
    aggregation = by or protocol.aggregation
    extremes = measured.extremes(aggregation)
    chances = measured.chances(aggregation)
    groups = measured.groups(aggregation)
    if intervals == "clustered":
        check_clusters(dataset.name, groups.tolist(), measured.evidence.subjects)
    server_changed = ""
    if manifest.server is not None:
        server_changed = manifest.server.changed
    numbers = []
    for group, mean in measured.values(aggregation).items():
        among = np.asarray(groups == group, dtype=np.bool_)
        interval_name, value = _interval(measured, among, mean, aggregation == "macro", intervals)
        population = _population(manifest.selection, measured, aggregation, group)
        # A clustered interval is about further subjects, for which a sample is just fewer items.
        if population is not None and interval_name != "clustered":
            value = _of_sample(value, population)
        low, high = extremes[group]
        diagnosis = _diagnose(measured, among, value, chances[group], siblings)
        if server_changed:
            warnings = ("served-model", *diagnosis.warnings)
            diagnosis = replace(diagnosis, warnings=warnings)
        answers = None
        if measured.statuses is not None:
            answers = answer_counts(measured.statuses[among], protocol)
        number = Number(
            identity=identity(manifest, measured, group),
            value=value.value,
            se=value.se,
            interval=Interval(name=interval_name, low=value.ci_low, high=value.ci_high),
            bounds=Bounds(
                low=low,
                high=high,
                noise=measured.noise,
                rounding=measured.rounding(among, value.value),
            ),
            counts=_counts(measured, among, value, len(dataset.skipped)),
            diagnosis=diagnosis,
            unused=unused(protocol, dataset.content),
            missing_reasons=measured.missing_reasons(among),
            skipped_reasons=_skipped_reasons(dataset.skipped),
            server_changed=server_changed,
            calibrated=measured.if_calibrated(among),
            answers=answers,
            population=population,
        )
        if number.open:
            nothing = Interval(name=interval_name, low=math.nan, high=math.nan)
            number = replace(number, value=math.nan, se=math.nan, interval=nothing)
        numbers.append(number)
    return numbers


def identity(manifest: Manifest, measured: Measurement, group: str) -> NumberIdentity:
    """Return the identity of the number of a ``group`` of items."""
    protocol = measured.protocol
    return NumberIdentity(
        model=manifest.model.name,
        dataset=manifest.dataset.name,
        data=data_id(manifest.dataset),
        selection=selection(manifest, measured),
        subject=group,
        protocol=measured.name,
        signature=signature(protocol),
        family=family(protocol),
        id=short_signature(protocol),
        i=text_id(measured.evidence, protocol),
        t=token_id(measured.evidence, protocol),
        r=run_id(manifest),
        metric=protocol.metric,
        model_source=manifest.model.source,
        dataset_source=manifest.dataset.source,
    )


def _counts(measured: Measurement, among: Mask, value: Value, skipped: int) -> Counts:
    """Count the items ``among`` (bool [items]) by what happened to them."""
    defects = measured.evidence.column(DEFECTS)
    near_ties = None
    if measured.bounded[among].all():
        near_ties = _count(measured.near_ties, among)
    return Counts(
        n=value.n,
        missing=value.missing,
        invalid=_count(measured.invalid, among),
        ties=value.ties,
        near_ties=near_ties,
        skipped=skipped,
        shots_dropped=_count(defects["shots_dropped"], among),
        truncated=_count(defects["truncated"], among),
        merged=_count(defects["merged"], among),
        noncanonical=_count(defects["noncanonical"], among),
        lossy=_count(defects["lossy"], among),
        unknown=_count(defects["unknown"], among),
        unlisted=_count(measured.unlisted, among),
    )


def _count(items: Mask, among: Mask) -> int:
    """Count the marked items ``among`` others."""
    return int((items & among).sum())


def selection(manifest: Manifest, measured: Measurement) -> str:
    """Describe the part of the data of a number, and how much of it is there yet."""
    parts = []
    if part := chosen_part(manifest.selection):
        parts.append(part)
    count, whole = measured.item_counts
    if count < whole:
        parts.append(f"incomplete: {count:,} of {whole:,} items")
    elif not manifest.complete:
        parts.append("incomplete")
    return ", ".join(parts)


def chosen_part(chosen: Selection) -> str:
    """Describe the part of the data that a run was started for; "" for all of it."""
    parts: list[str] = []
    if chosen.subjects is not None:
        if len(chosen.subjects) <= _MANY:
            parts += chosen.subjects
        else:
            parts.append(f"{len(chosen.subjects)} subjects")
    if chosen.limit is not None:
        parts.append(f"first {chosen.limit} of each subject")
    if chosen.sample is not None:
        parts.append(f"sample of {chosen.sample}, seed {chosen.seed}")
    return ", ".join(parts)


def text_id(evidence: Evidence, protocol: Protocol, items: Integers | None = None) -> str:
    """Return ``#I``: a digest of the texts sent for ``items`` and of their right answers.

    ``items``: indices; None for all.  Their order does not count.  The id is the same for two
    models that got the same texts, whatever their tokenizers.  The texts must have been read
    (:func:`choicewise.results.evidence.read_texts`); further texts that ``protocol`` sends, such as
    other orders of the options, follow from its axes.
    """
    seed = protocol.seed if protocol.views in DRAWING else None
    further = (protocol.proposal, protocol.views, seed)
    axes = ""
    if further != ("", "given", None):
        axes = json.dumps(further)
    return f"#I{_digest([evidence.ordered(TEXTS, items), axes.encode()])}"


def token_id(evidence: Evidence, protocol: Protocol, items: Integers | None = None) -> str:
    """Return ``#T``: a digest of the tokens sent and scored for ``items`` (indices; None: all).

    Tokens after a null context count if the score needs one.  The id is the same for two models
    with one tokenizer that got the same texts, whatever their weights and type.
    """
    contexts = dict.fromkeys((None, protocol.null))
    return f"#T{_digest([evidence.ordered(tokens_column(context), items) for context in contexts])}"


def run_id(manifest: Manifest) -> str:
    """Return ``#R``: a digest of the model, of its path of computation and of the versions.

    The name and the source of the model do not count.
    """
    # Empty fields are left out, so that ids from before a field existed (a chat template) stay.
    model = {}
    for name, value in manifest.model.computation.items():
        if value != "":
            model[name] = value
    model["name"] = ""
    model.pop("source", None)
    identity = {"model": model, "versions": manifest.versions, "engine": engine_path(manifest)}
    return f"#R{_digest([json.dumps(identity, sort_keys=True).encode()])}"


def engine_path(manifest: Manifest) -> str:
    """Return the path by which the model was computed; ``-`` if it has only one."""
    check = manifest.engine.selfcheck
    return "-" if check is None else check.rung


def data_id(dataset: DatasetRecord) -> str:
    """Return ``#D``: the data."""
    return f"#D{dataset.digest[:_DIGITS]}"


def nearest(
    measured: Measurement,
    siblings: Sequence[Measurement],
    fits: Callable[[Protocol, Protocol], bool],
) -> Measurement | None:
    """Return the first sibling whose protocol ``fits`` and differs in the fewest axes."""
    best = None
    fewest = math.inf
    for sibling in siblings:
        if not fits(sibling.protocol, measured.protocol):
            continue
        count = len(axis_differences(sibling.protocol, measured.protocol))
        if count < fewest:
            best = sibling
            fewest = count
    return best


@lru_cache(maxsize=8)
def _skipped_reasons(skipped: tuple[SkippedRow, ...]) -> tuple[MissingReason, ...]:
    """Count why rows of the data could not be used."""
    return count_reasons(
        (row.reason, f"{row.file}, row {row.row} (counted from 0, without a header)")
        for row in skipped
    )


def _interval(
    measured: Measurement, among: Mask, value: Value, macro: bool, name: str | None
) -> tuple[str, Value]:
    """Return the name of the interval, and the value with it."""
    if not measured.metric.counted:
        return "pooled" if measured.metric.pooled else "t", value
    if name is None:
        return "wilson", value
    scored = among & ~measured.decisions.missing
    subjects = [measured.evidence.subjects[item] for item in np.flatnonzero(scored)]
    low, high = interval(name, measured.decisions.credit[scored], subjects, macro)
    return name, replace(value, ci_low=low, ci_high=high)


def _population(
    chosen: Selection, measured: Measurement, aggregation: str, group: str
) -> int | None:
    """Return how many items the sample of a group was drawn from; None if it is no sample."""
    group_of = GROUPS[aggregation]
    total = 0
    for subject, size in chosen.drawn_from.get(measured.protocol.split or "", {}).items():
        if group_of(subject, measured.categories) == group:
            total += size
    return total or None


def _of_sample(value: Value, population: int) -> Value:
    """Return the value with the error and interval of a sample of ``population`` items."""
    from choicewise.scoring.sampling import unseen

    # Every subject has its share of a sample, so one factor holds for means over subjects too.
    factor = unseen(value.n, population)
    mean = value.value
    low = mean - factor * (mean - value.ci_low)
    high = mean + factor * (value.ci_high - mean)
    return replace(value, se=factor * value.se, ci_low=low, ci_high=high)


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
) -> Diagnosis:
    """Diagnose the ``value`` of the items ``among`` (bool [items]).

    ``siblings``: all measurements of the run.
    """
    evidence = measured.evidence
    decisions = measured.decisions.among(among)
    choice_counts = np.diff(evidence.item_offsets)
    rows = among[row_of(evidence.item_offsets)]
    offsets = offsets_from(choice_counts[among])
    signs = validity(decisions, offsets, evidence.right[rows], measured.guesses[among])

    # Preferences show where there is a choice, one right answer, and a predicted one.
    single = among & (choice_counts > 1) & (evidence.gold_index >= 0) & measured.metric.predicted
    position = position_bias(measured.decisions.prediction[single], evidence.gold_index[single])
    length_shift, length_chance = _length(measured, single)

    mass = np.array([])
    if measured.likelihoods:
        mass = evidence.column(MASS)[among]
    median_mass = math.nan
    if (~np.isnan(mass)).any():
        median_mass = float(np.nanmedian(mass))
    low_mass = math.nan
    if _labels(measured.protocol):
        low_mass = low_mass_rate(mass)
    near_tie_rate = math.nan
    if value.n > 0 and measured.bounded[among].all():
        near_tie_rate = _count(measured.near_ties, among) / value.n

    text = nearest(measured, siblings, _is_text_of)
    permuted = nearest(measured, siblings, _is_permuted)
    choices = nearest(measured, siblings, _is_choices_only_of)
    choices_only, choices_only_p = _choices_only(choices, measured, among)
    diagnosis = Diagnosis(
        warnings=(),
        chance=chance,
        guessing_p=_guessing_p(measured.metric, decisions.credit, measured.guesses[among]),
        predictions=_digest([decisions.prediction.tobytes(), decisions.credit.tobytes()]),
        most_common=signs.most_common,
        position_rstd=position.rstd,
        position_p=position.p,
        length_shift=length_shift,
        length_p=length_chance,
        mass=median_mass,
        low_mass=low_mass,
        near_tie_rate=near_tie_rate,
        tie_rate=signs.tie_rate,
        label_text=_mismatch(text, measured, among),
        text_sibling=_name(text),
        permutation_consistency=_consistency(permuted, measured, among),
        permutation_sibling=_name(permuted),
        choices_only=choices_only,
        choices_only_p=choices_only_p,
        choices_sibling=_name(choices),
    )
    raised = _item_warnings(measured, among, value) | _rate_warnings(diagnosis, value)
    raised["chance"] = signs.at_chance and not measured.metric.pooled
    raised["constant"] = signs.constant
    return replace(diagnosis, warnings=tuple(name for name in WARNINGS if raised.get(name)))


def _name(measured: Measurement | None) -> str | None:
    return None if measured is None else measured.name


def _item_warnings(measured: Measurement, among: Mask, value: Value) -> dict[str, bool]:
    """Return which warnings the items ``among`` (bool [items]) raise."""
    evidence = measured.evidence
    impossible = evidence.column(impossible_column(measured.protocol.null))[among]
    margins = measured.decisions.margin[among]
    margins = margins[~np.isnan(margins)]
    no_margins = len(margins) > 1 and bool((np.abs(margins) <= _MARGIN).all())
    golds = evidence.gold_index[among]
    one_gold = len(golds) > 1 and golds[0] >= 0 and bool((golds == golds[0]).all())
    is_often_cut = False
    if measured.statuses is not None and among.any():
        is_often_cut = bool(is_cut(measured.statuses)[among].mean() > CUT_SHARE)
    # Without any number, such as for what a log does not hold, there is none to speak against.
    many_missing = value.n > 0 and value.missing > MISSING_SHARE * (value.n + value.missing)
    unparsed = _count(measured.invalid, among)
    return {
        "positive": bool((impossible & POSITIVE).any()),
        "placeholder": bool((impossible & PLACEHOLDER).any()),
        "margins": no_margins,
        "cut": is_often_cut,
        "many-missing": many_missing,
        "many-unparsed": unparsed > UNPARSED_SHARE * value.n,
        "many-tied": value.ties > TIED_SHARE * value.n and not no_margins,
        # Where ties are split, positions decide nothing.
        "gold-constant": value.ties > 0 and one_gold and measured.protocol.ties != "split",
        "rounded": measured.step is not None and measured.protocol.metric in OPEN,
    }


def _rate_warnings(diagnosis: Diagnosis, value: Value) -> dict[str, bool]:
    """Return which warnings the rates of a diagnosis raise; none for a rate that is NaN."""
    is_shifted = abs(diagnosis.length_shift) >= LENGTH_SHIFT
    return {
        "position": diagnosis.position_p < SIGNIFICANT,
        "length": is_shifted and diagnosis.length_p < SIGNIFICANT,
        "mass": diagnosis.low_mass > _LOW_MASS,
        "near-ties": diagnosis.near_tie_rate > (value.ci_high - value.ci_low) / 2,
        "label/text": diagnosis.label_text >= _MISMATCH,
        "permutation": diagnosis.permutation_consistency <= _CONSISTENT,
        "choices-only": diagnosis.choices_only_p < SIGNIFICANT,
    }


def _guessing_p(metric: Metric, credit: Floats, chance: Floats) -> float:
    """Return how likely guessing is as good; NaN if the metric is no share of 1."""
    if not metric.share:
        return math.nan
    scored = ~np.isnan(credit)
    if metric.counted:
        return guessing_p(credit[scored], chance[scored])
    return positive_p((credit - chance)[scored])


def _labels(protocol: Protocol) -> bool:
    return "{letter}" in protocol.continuation and "{choice}" not in protocol.continuation


def _shows_question(protocol: Protocol) -> bool:
    return "{question}" in protocol.question


def _is_text_of(other: Protocol, protocol: Protocol) -> bool:
    shows_text = _labels(protocol) and "{choice}" in other.continuation
    return shows_text and _shows_question(other) == _shows_question(protocol)


def _is_choices_only_of(other: Protocol, protocol: Protocol) -> bool:
    # Guessing can be as good as a share of predictions only.
    metric = METRICS[other.metric]
    if not metric.counted or not metric.predicted:
        return False
    if _shows_question(other) or not _shows_question(protocol):
        return False
    return _labels(other) == _labels(protocol)


def _is_permuted(other: Protocol, protocol: Protocol) -> bool:
    """Check that the first sends the same with the options in several orders."""
    return other.views in PERMUTED and _in_one_order(other) == _in_one_order(protocol)


def _in_one_order(protocol: Protocol) -> str:
    """Return the digest of the prompt with the options as given."""
    # A seed that only draws orders makes no other prompt.
    seed = protocol.seed
    if protocol.views in DRAWING and not protocol.shots:
        seed = None
    plain = replace(as_accuracy(protocol), views="given", calibration="none", seed=seed)
    return plain.prompt_digest


def _consistency(sibling: Measurement | None, measured: Measurement, among: Mask) -> float:
    """Return the share of items predicted alike in every order of the sibling.

    NaN if it is of another split.
    """
    if sibling is None or not same_items(sibling, measured):
        return math.nan
    evidence = sibling.evidence
    predictions = order_predictions(
        sibling.protocol.views, evidence.part_sums, evidence.item_offsets, evidence.part_lows
    )
    return permutation_consistency(predictions[:, among])


def _mismatch(sibling: Measurement | None, measured: Measurement, among: Mask) -> float:
    """Return the share of items predicted differently by the sibling.

    NaN if it is of another split.
    """
    if sibling is None or not same_items(sibling, measured):
        return math.nan
    left, right = paired_predictions([measured, sibling])[:, among]
    both = (left >= 0) & (right >= 0)
    if not both.any():
        return math.nan
    return float((left != right)[both].mean())


def _choices_only(
    sibling: Measurement | None, measured: Measurement, among: Mask
) -> tuple[float, float]:
    """Return the accuracy of the sibling on these items, and how likely guessing is as good."""
    if sibling is None or not same_items(sibling, measured):
        return math.nan, math.nan
    scored = among & ~sibling.decisions.missing
    evidence = sibling.evidence
    chance = guess(evidence.item_offsets, evidence.right, sibling.protocol.metric)
    accuracy = micro(sibling.decisions, among).value
    return accuracy, guessing_p(sibling.credit[scored], chance[scored])


def _length(measured: Measurement, among: Mask) -> tuple[float, float]:
    """Return how much longer predicted choices are than right ones, and its p-value."""
    # What is read from text has no length of its own.
    if measured.scores is None:
        return math.nan, math.nan
    evidence = measured.evidence
    chosen = np.where(among, measured.decisions.prediction, -1)
    shifts = length_shifts(chosen, evidence.gold_index, evidence.lengths, evidence.item_offsets)
    scored = shifts[~np.isnan(shifts)]
    if not len(scored):
        return math.nan, math.nan
    return float(scored.mean()), length_p(scored)
