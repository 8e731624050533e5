"""Numbers of a report, made from measurements, with their warnings and ids.

``#P`` the protocol (:func:`choicewise.protocols.protocol.short_signature`), ``#I`` the texts that were sent, ``#T``
what was asked and scored in tokens, ``#R`` the model and how it was computed, ``#D`` the data.
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
from choicewise.results.spans import PLACEHOLDER, POSITIVE
from choicewise.scoring.answers import answer_counts, is_cut
from choicewise.scoring.calibrate import order_predictions
from choicewise.scoring.decide import guess
from choicewise.scoring.intervals import GROUPS, Value, micro
from choicewise.scoring.observed import Floats, Integers, Mask, row_of
from choicewise.scoring.rounding import OPEN
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


def rows(
    manifest: Manifest,
    measured: Measurement,
    by: str | None,
    intervals: str | None,
    siblings: Sequence[Measurement],
) -> list[Number]:
    """Return the numbers of a measurement: under its protocol's aggregation, or one per group of ``by``.

    ``intervals`` names another interval (``results/measurement.py``); ``siblings`` are the run's measurements.
    The texts were read before (:func:`choicewise.results.evidence.read_texts`).
    """
    protocol, evidence, dataset = measured.protocol, measured.evidence, manifest.dataset
    aggregation = by or protocol.aggregation
    extremes, chances = measured.extremes(aggregation), measured.chances(aggregation)
    groups = measured.groups(aggregation)
    if intervals == "clustered":
        check_clusters(dataset.name, groups.tolist(), evidence.subjects)
    changed = "" if manifest.server is None else manifest.server.changed
    numbers = []
    for group, mean in measured.values(aggregation).items():
        among = np.asarray(groups == group, dtype=np.bool_)
        interval_name, value = _interval(measured, among, mean, aggregation == "macro", intervals)
        population = _population(manifest.selection, measured, aggregation, group)
        if population is not None and interval_name != "clustered":
            value = _of_sample(value, population)
        low, high = extremes[group]
        answers = None
        if measured.statuses is not None:
            answers = answer_counts(measured.statuses[among], protocol)
        number = Number(
            identity=_identity(manifest, measured, group),
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
            diagnosis=_diagnose(measured, among, value, chances[group], siblings, bool(changed)),
            unused=unused(protocol, dataset.content),
            missing_reasons=measured.missing_reasons(among),
            skipped_reasons=_skipped_reasons(dataset.skipped),
            server_changed=changed,
            calibrated=measured.if_calibrated(among),
            answers=answers,
            population=population,
        )
        if number.open:
            nothing = Interval(name=interval_name, low=math.nan, high=math.nan)
            number = replace(number, value=math.nan, se=math.nan, interval=nothing)
        numbers.append(number)
    return numbers


def _identity(manifest: Manifest, measured: Measurement, group: str) -> NumberIdentity:
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
    warnings = measured.evidence.warnings
    near_ties = None
    if measured.bounded[among].all():
        near_ties = int((measured.near_ties & among).sum())
    return Counts(
        n=value.n,
        missing=value.missing,
        invalid=int((measured.invalid & among).sum()),
        ties=value.ties,
        near_ties=near_ties,
        skipped=skipped,
        shots_dropped=int((warnings["shots_dropped"] & among).sum()),
        truncated=int((warnings["truncated"] & among).sum()),
        merged=int((warnings["merged"] & among).sum()),
        noncanonical=int((warnings["noncanonical"] & among).sum()),
        lossy=int((warnings["lossy"] & among).sum()),
        unknown=int((warnings["unknown"] & among).sum()),
        unlisted=int((measured.unlisted & among).sum()),
    )


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


_MARGIN = 1e-12
"""Margins up to so much are zero."""

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
        and bool(is_cut(measured.statuses)[among].mean() > CUT_SHARE),
        # Without any number, as of what a log does not hold, there is none to speak against.
        "many-missing": value.n > 0 and value.missing > MISSING_SHARE * (value.n + value.missing),
        "many-unparsed": (measured.invalid & among).sum() > UNPARSED_SHARE * value.n,
        "many-tied": value.ties > TIED_SHARE * value.n and not alike,
        "chance": signs.at_chance and not measured.metric.pooled,
        "constant": signs.constant,
        "gold-constant": value.ties > 0
        and len(golds) > 1
        and golds[0] >= 0
        and bool((golds == golds[0]).all()),
        "position": position.p < SIGNIFICANT,
        "length": abs(length) >= LENGTH_SHIFT and length_chance < SIGNIFICANT,
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
