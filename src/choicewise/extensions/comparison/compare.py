"""Compare numbers of two runs, or of two protocols of a run, and say why they differ."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from choicewise.errors import UsageError
from choicewise.ports import PairStatistic, all_of
from choicewise.protocols.metrics import METRICS, Metric
from choicewise.protocols.protocol import (
    NEUTRAL,
    Protocol,
    axis_differences,
)
from choicewise.records import Manifest
from choicewise.results.comparison import Agreeing, Comparison, FirstDifference, Side
from choicewise.results.evidence import CONTENT_COLUMNS, TEXTS, RunEvidence, read_texts
from choicewise.results.measurement import (
    Decided,
    Measurement,
    flips,
    flips_of,
    movement,
    paired_credits,
    same_items,
    scored_by_all,
    shared_items,
)
from choicewise.results.number import NumberIdentity
from choicewise.results.outcomes import Axis, Outcome, Summary, axes_between, item_weights
from choicewise.results.rows import engine_path, identity, text_id, token_id
from choicewise.results.run import Run, choose_for_each
from choicewise.running.front import opened
from choicewise.scoring.answers import is_cut
from choicewise.scoring.observed import Floats, Integers, Mask, mean_of_present
from choicewise.scoring.portion import ObservedPortion, row_digests, row_parts
from choicewise.scoring.rounding import require_number
from choicewise.scoring.significance import (
    Difference,
    SignFlip,
    detectable_difference,
    paired_difference,
    untested,
    weighted_flip,
)
from choicewise.util.jsonio import JsonDict
from choicewise.util.text import common_start

VERDICTS = {
    "same measurement": "same protocol, texts, model and engine; any difference is non-determinism",
    "comparable": "same protocol and texts, so a paired test is valid",
    "other inputs": "same protocol, but different texts",
    "not comparable": "different protocols, so the models can't be compared",
    "no shared items": "the runs have no items in common",
}
"""Verdicts, and the ids that agree: protocol, texts and tokens of the shared items, and run."""


def compare_runs(
    left: Run | str | Path, right: Run | str | Path | None = None, protocols: Sequence[str] = ()
) -> list[Comparison]:
    """Say for pairs of numbers whether they are comparable, and why they differ.

    - ``left``: a run, or its folder.
    - ``right``: another one; None to compare two protocols of ``left``.
    - ``protocols``: compare under these; by default under each that both runs have.  Two names are
      the protocol of ``left`` and that of ``right``.

    ``choicewise compare A B`` prints the same.  Raises UsageError if there is nothing to compare.
    """
    left_run = opened(left)
    right_run = None if right is None else opened(right)
    return list(comparisons(left_run, right_run, protocols))


def comparisons(left: Run, right: Run | None, protocols: Sequence[str]) -> list[Comparison]:
    """Compare two runs under every protocol that they share, or under the named ones.

    Two names with one run compare two of its protocols, with two runs the first protocol of
    ``left`` with the second of ``right``.  Raises UsageError if there is nothing to compare.
    """
    if len(protocols) > 2:
        raise UsageError(
            f"{len(protocols)} protocols were named; name one for two runs, or two to compare them"
        )
    if len(protocols) == 2:
        other = right or left
        pair = _Pair(left, _one(left, protocols[0]), other, _one(other, protocols[1]))
        return _compared(left, other, [pair])
    if right is None:
        raise UsageError("only one run; name another run, or two of its protocols")
    chosen_left, chosen_right = choose_for_each([left, right], protocols)
    left_measured = _by_digest(chosen_left)
    right_measured = _by_digest(chosen_right)
    pairs = []
    for digest, measured in left_measured.items():
        if digest in right_measured:
            pairs.append(_Pair(left, measured, right, right_measured[digest]))
    if protocols and not pairs and len(left_measured) == len(right_measured) == 1:
        # The name means another variant in each run, and the comparison says in which axes.
        (left_only,) = left_measured.values()
        (right_only,) = right_measured.values()
        pairs.append(_Pair(left, left_only, right, right_only))
    if not pairs:
        raise UsageError(
            f"{left.folder} and {right.folder} share no protocol; name one of each, "
            f"such as {next(iter(left.protocols))} and "
            f"{next(iter(right.protocols))}"
        )
    return _compared(left, right, pairs)


def credit_comparisons(left: Summary, right: Summary) -> list[Comparison] | None:
    """Compare two runs under all protocols that they share, by the credits in their summaries.

    That reads no observation: ``moved``, ``furthest``, ``figures`` and near ties stay unknown.
    Returns None unless every pair is "comparable" over the same items, without cut answers.
    """
    outcomes = {outcome.protocol.digest: outcome for outcome in right.outcomes.outcomes}
    compared = []
    for outcome in left.outcomes.outcomes:
        other = outcomes.get(outcome.protocol.digest)
        if other is None:
            continue
        comparison = _by_credit(_Kept(left, outcome), _Kept(right, other))
        if comparison is None:
            return None
        compared.append(comparison)
    return compared or None


class _Kept:
    """Find what a summary keeps of one protocol."""

    def __init__(self, summary: Summary, outcome: Outcome) -> None:
        self.manifest = summary.manifest
        self.folder = summary.folder
        self.outcome = outcome
        self.rows = summary.rows_of(outcome.name)
        self.metric = METRICS[outcome.protocol.metric]

    @property
    def suffices(self) -> bool:
        """Check that the credits tell all about its one number."""
        if len(self.rows) != 1 or self.manifest.imported is not None:
            return False
        (row,) = self.rows
        return not row.cut and row.bounds.rounding is None

    def side(self, credits: Floats) -> Side:
        """Describe the number; ``credits``: of the items that both sides score."""
        (row,) = self.rows
        return _side(self.folder, row.identity, row.value, len(self.outcome.ids), credits)


def _by_credit(left: _Kept, right: _Kept) -> Comparison | None:
    if not (left.suffices and right.suffices and same_items(left.outcome, right.outcome)):
        return None
    both = (left.outcome, right.outcome)
    subjects, credits = paired_credits(both)
    weights = _weights(both, subjects, credits)
    left_scored, right_scored = scored_by_all(weights * credits)
    left_side = left.side(left_scored)
    right_side = right.side(right_scored)
    agree = Agreeing(
        p=left_side.p == right_side.p,
        i=left_side.i == right_side.i,
        t=left_side.t == right_side.t,
        r=left_side.r == right_side.r,
    )
    verdict = _verdict(agree, len(left.outcome.ids))
    if verdict != "comparable":
        return None
    tested = _tested(left.metric, right.metric, credits, weights)
    return Comparison(
        verdict=verdict,
        agree=agree,
        left=left_side,
        right=right_side,
        axes=tuple(_identity_axes(left.manifest, right.manifest)),
        parting=None,
        difference=tested.difference,
        test=tested.test,
        detectable=tested.detectable,
        flips=flips_of(both),
        furthest=math.nan,
        moved=None,
    )


def _one(run: Run, protocol: str) -> Measurement:
    chosen = run.choose([protocol])
    names = list(chosen.protocols)
    if len(names) > 1:
        examples = ", ".join(names[:3])
        raise UsageError(
            f"{protocol} stands for {len(names)} protocols; name one of them: {examples}, ..."
        )
    return chosen.measurements[names[0]]


def _by_digest(run: Run) -> dict[str, Measurement]:
    return {measured.protocol.digest: measured for measured in run.measurements.values()}


class _Pair:
    """Line up the shared items of two measurements, each with its run."""

    def __init__(
        self, left_run: Run, left: Measurement, right_run: Run, right: Measurement
    ) -> None:
        self.left_run = left_run
        self.left = left
        self.right_run = right_run
        self.right = right
        self.both = (left, right)
        self.ids, (self.left_items, self.right_items) = shared_items(self.both)


def _compared(left: Run, right: Run, pairs: Sequence[_Pair]) -> list[Comparison]:
    """Compare all pairs of two runs, whose texts are read once for all of them."""
    # Reading per pair would read every block again.
    read_texts(left.evidence, [pair.left.protocol.prompt_digest for pair in pairs])
    read_texts(right.evidence, [pair.right.protocol.prompt_digest for pair in pairs])
    compared = [_compare(pair) for pair in pairs]

    with_figures = [index for index, pair in enumerate(compared) if pair.same_tokens]
    figures: list[JsonDict] = [{} for _ in pairs]
    for statistic in all_of(PairStatistic):
        # Pairs over other tokens have the name as well, so that all rows have the same keys.
        for of_pair in figures:
            of_pair[statistic.name] = None
        measured = [pairs[index].both for index in with_figures]
        computed = statistic.figures((left, right), measured)
        for index, figure in zip(with_figures, computed, strict=True):
            figures[index][statistic.name] = figure
    return [
        replace(comparison, figures=of_pair)
        for comparison, of_pair in zip(compared, figures, strict=True)
    ]


def _compare(pair: _Pair) -> Comparison:
    left = pair.left
    right = pair.right
    for measured in pair.both:
        require_number(measured.name, measured.protocol.metric, measured.step)
    both_shares = left.metric.share and right.metric.share
    if left.protocol.metric != right.protocol.metric and not both_shares:
        raise UsageError(
            f"{left.name} and {right.name} have different metrics, {left.protocol.metric} "
            f"and {right.protocol.metric}; compare two with the same metric"
        )

    answers = _without_cut(pair)
    tested = _tested(left.metric, right.metric, answers.credits, answers.weights)
    left_scored, right_scored = scored_by_all(answers.weights * answers.credits)
    left_side = _measured_side(pair.left_run, left, left_scored)
    right_side = _measured_side(pair.right_run, right, right_scored)
    agree = _agreeing(pair, left_side, right_side)
    parting = None
    if not agree.i:
        parting = _first_difference(pair)
    furthest, moved = movement(pair.both)
    return Comparison(
        verdict=_verdict(agree, len(pair.ids)),
        agree=agree,
        left=left_side,
        right=right_side,
        axes=(
            *axes_between(left.protocol, right.protocol),
            *_identity_axes(pair.left_run.manifest, pair.right_run.manifest),
        ),
        parting=parting,
        difference=tested.difference,
        test=tested.test,
        detectable=tested.detectable,
        flips=flips(pair.both),
        furthest=furthest,
        moved=moved,
        cut=answers.cut,
        low=answers.low,
        high=answers.high,
    )


@dataclass(frozen=True)
class _Tested:
    """Hold what the credits of shared items say of two numbers, as :class:`Comparison` has it."""

    difference: Difference
    test: SignFlip
    detectable: float


def _tested(left: Metric, right: Metric, credits: Floats, weights: Floats) -> _Tested:
    """Test the credits of shared items under two metrics, float64 [2, items]."""
    left_credits, right_credits = credits
    # A number that is no share has the range of its metric.
    counted = left.counted and right.counted
    most = 1.0 if left.share else left.high - left.low
    difference = paired_difference(left_credits, right_credits, counted, most, weights)
    # A pooled number is no mean over items, so its items can't be paired.
    if left.pooled:
        difference, test, detectable = untested(difference)
        return _Tested(difference, test, detectable)
    detectable = detectable_difference(left_credits, right_credits, counted, weights)
    return _Tested(difference, weighted_flip(credits, weights), detectable)


def _weights(both: tuple[Decided, Decided], subjects: Integers, credits: Floats) -> Floats:
    """Return the weights that shared items have in the two numbers, float64 [items]."""
    aggregation = both[0].protocol.aggregation
    # No weights make two kinds of means, so items count alike.
    if both[1].protocol.aggregation != aggregation:
        aggregation = "micro"
    return item_weights(subjects, credits, aggregation)


@dataclass(frozen=True)
class _UncutAnswers:
    """Hold the credits of shared items, NaN if an answer was cut, float64 [2, items].

    ``weights``: those of the items in the two numbers.  ``cut``: the number of cut answers, left
    and right.  ``low``, ``high``: bounds of the difference whatever the cut answers would have
    been, NaN if there are none.
    """

    credits: Floats
    weights: Floats
    cut: tuple[int, int] = (0, 0)
    low: float = math.nan
    high: float = math.nan


def _without_cut(pair: _Pair) -> _UncutAnswers:
    subjects, credits = paired_credits(pair.both)
    left_cut = _is_cut(pair.left, pair.left_items)
    right_cut = _is_cut(pair.right, pair.right_items)
    any_cut = left_cut | right_cut
    if not any_cut.any():
        return _UncutAnswers(credits, _weights(pair.both, subjects, credits))
    left, right = credits
    # A cut answer could have been wrong or right.
    least = np.where(left_cut, 0.0, left) - np.where(right_cut, 1.0, right)
    most = np.where(left_cut, 1.0, left) - np.where(right_cut, 0.0, right)
    all_weights = _weights(pair.both, subjects, np.array([least, most]))
    uncut = np.where(any_cut, np.nan, credits)
    return _UncutAnswers(
        credits=uncut,
        weights=_weights(pair.both, subjects, uncut),
        cut=(int(left_cut.sum()), int(right_cut.sum())),
        low=mean_of_present(all_weights * least),
        high=mean_of_present(all_weights * most),
    )


def _is_cut(measured: Measurement, items: Integers) -> Mask:
    if measured.statuses is None:
        return np.zeros(len(items), dtype=np.bool_)
    return is_cut(measured.statuses)[items]


def _agreeing(pair: _Pair, left_side: Side, right_side: Side) -> Agreeing:
    left_texts, left_tokens = _ids(pair.left, pair.left_items)
    right_texts, right_tokens = _ids(pair.right, pair.right_items)
    agree = Agreeing(
        p=left_side.p == right_side.p,
        i=left_texts == right_texts,
        t=left_tokens == right_tokens,
        r=left_side.r == right_side.r,
    )
    # Digests are of texts with the choices as shown, which a log of another tool does not have.
    if _differ_in_rendering(pair.left.protocol, pair.right.protocol) and _same_sent(pair):
        return replace(agree, p=True, i=True)
    return agree


def _ids(measured: Measurement, items: Integers) -> tuple[str, str]:
    """Return the ids of the texts and of the tokens of some items."""
    evidence = measured.evidence
    texts = text_id(evidence, measured.protocol, items)
    return texts, token_id(evidence, measured.protocol, items)


def _differ_in_rendering(left: Protocol, right: Protocol) -> bool:
    """Check that one side was rendered elsewhere, and that nothing but the rendering differs."""
    axes = {axis for axis, _, _ in axis_differences(left, right)}
    return "requests" in axes and axes <= {*NEUTRAL, "benchmark", "split", "requests", "seed"}


def _verdict(agree: Agreeing, shared: int) -> str:
    if not shared:
        return "no shared items"
    if not agree.p:
        return "not comparable"
    if not agree.i:
        return "other inputs"
    if agree.t and agree.r:
        return "same measurement"
    return "comparable"


def _measured_side(run: Run, measured: Measurement, credits: Floats) -> Side:
    """Describe the number of all items; ``credits``: of those that both sides score."""
    evidence = measured.evidence
    side = _side(
        run.folder,
        identity(run.manifest, measured, "all"),
        measured.overall,
        len(evidence.items),
        credits,
    )
    logged = run.manifest.imported is not None
    return replace(side, logged=logged, texts=not np.isnan(evidence.lengths).any())


def _side(
    folder: Path, identity: NumberIdentity, value: float, items: int, credits: Floats
) -> Side:
    """Describe a number of ``items``; ``credits``: of those that both sides score."""
    metric = METRICS[identity.metric]
    return Side(
        folder=str(folder),
        model=identity.model,
        protocol=identity.protocol,
        p=identity.id,
        i=identity.i,
        t=identity.t,
        r=identity.r,
        value=value,
        items=items,
        selection=identity.selection,
        paired=_paired_value(metric, credits),
        share=metric.share,
        metric=identity.metric,
    )


def _paired_value(metric: Metric, credits: Floats) -> float:
    paired = math.nan
    if len(credits):
        paired = float(credits.mean())
    if metric.exponential:
        paired = math.exp(-paired)
    return paired


def _identity_axes(left: Manifest, right: Manifest) -> list[Axis]:
    """Return in which of data, model, engine and versions two runs differ."""
    # A package that one run lacks is a difference, too.
    packages = sorted(left.versions.keys() | right.versions.keys())
    left_identity = _identity(left, packages)
    right_identity = _identity(right, packages)
    axes = []
    for name, value in left_identity.items():
        other = right_identity[name]
        if value != other:
            axes.append(Axis(name, _short(value), _short(other)))
    return axes


def _identity(manifest: Manifest, packages: Sequence[str]) -> JsonDict:
    identity: JsonDict = {"data": manifest.dataset.digest}
    for name, value in manifest.model.computation.items():
        identity[f"model {name}"] = value
    identity["model products"] = manifest.model.products or None
    identity["engine path"] = engine_path(manifest)
    for package in packages:
        identity[f"version of {package}"] = manifest.versions.get(package)
    return identity


def _short(value: Any) -> str:
    if value is None:
        return "-"
    text = str(value)
    return text[:12] if len(text) == 64 else text  # 64 characters are a digest


_CHARACTERS_BEFORE = 20
"""Characters that are shown of a text before its first difference."""

_CHARACTERS = 80
"""Characters that are shown of a text."""

_PARTS = ("prompt", "continuations", "choices as shown", "right answers")
"""Texts of an item that are sent or decide what is right, in the order of comparison."""


def _first_difference(pair: _Pair) -> FirstDifference | None:
    """Return the first item of the left measurement that the right one has with other texts."""
    left_digests = pair.left.evidence.column(TEXTS)[pair.left_items]
    right_digests = pair.right.evidence.column(TEXTS)[pair.right_items]
    others = np.flatnonzero(left_digests != right_digests)
    if not len(others):
        return None
    # Only the item itself is read again: digests were kept of the texts, not the texts.
    left_row = pair.left.evidence.items[pair.left_items[others[0]]]
    right_row = pair.right.evidence.items[pair.right_items[others[0]]]
    left_texts = _texts(pair.left_run.evidence, pair.left, int(left_row))
    right_texts = _texts(pair.right_run.evidence, pair.right, int(right_row))
    differs = [left != right for left, right in zip(left_texts, right_texts, strict=True)]
    part = differs.index(True)
    left = left_texts[part]
    right = right_texts[part]
    agreeing = common_start([left, right])
    start = max(0, agreeing - _CHARACTERS_BEFORE)
    return FirstDifference(
        item=pair.ids[others[0]].as_py(),
        part=_PARTS[part],
        place=agreeing,
        left=left[start : start + _CHARACTERS],
        right=right[start : start + _CHARACTERS],
        items=len(others),
    )


def _same_sent(pair: _Pair) -> bool:
    """Check that every shared item was sent in the same texts with the same right answers."""
    left = _sent(pair.left_run.evidence, pair.left.protocol.prompt_digest)
    right = _sent(pair.right_run.evidence, pair.right.protocol.prompt_digest)
    return bool((left[pair.left_items] == right[pair.right_items]).all())


def _sent(run: RunEvidence, prompt: str) -> npt.NDArray[np.void]:
    """Return digests of the texts of all items under a prompt, in the order of the evidence.

    The choices as shown do not count: other tools do not log them.  The contexts of single choices
    do.
    """
    digests = [row_digests(pa.array([], pa.large_binary()))]
    for tables in run.portion_tables(texts=True):
        portion = ObservedPortion(tables, prompt)
        rows = row_parts(portion.item_table["item"])
        for name in CONTENT_COLUMNS:
            if name != "options":
                rows += row_parts(portion.requests[name])
        contexts = portion.row_contexts
        contexts_of_items = []
        for start, stop in pairwise(portion.item_offsets.tolist()):
            contexts_of_items.append(repr(contexts[start:stop]).encode())
        digests.append(row_digests(*rows, pa.array(contexts_of_items, pa.large_binary())))
    return np.concatenate(digests)


def _texts(run: RunEvidence, measured: Measurement, item: int) -> list[str]:
    """Return the ``_PARTS`` of an item, by its row in the item table.

    If it has no prompt, the reason stands in its place.
    """
    (tables,) = RunEvidence(run.folder, run.manifest, only=[item]).portion_tables()
    requests = ObservedPortion(tables, measured.protocol.prompt_digest).requests
    context, *lists = [requests[name][0].as_py() for name in CONTENT_COLUMNS]
    if context is None:
        context = f"({requests['missing'][0].as_py()})"
    texts = [context]
    for values in lists:
        texts.append("|".join(map(str, values or ())))
    return texts
