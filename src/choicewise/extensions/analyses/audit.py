"""Find bad items: those that better models get wrong, under all protocols (a wrong key) or under
one alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from choicewise.errors import UsageError
from choicewise.protocols.metrics import METRICS
from choicewise.results.outcomes import Outcome, Summary
from choicewise.results.rows import data_id, run_id
from choicewise.results.tables import item_batches
from choicewise.scoring.observed import Floats, Integers, Mask
from choicewise.store.tables import check_items
from choicewise.util.text import are, counted, listed

# No statistic here needs the questions: a good item is one that models get right the more often the
# better they are, so that it agrees with the other items. An item that disagrees with them has a
# wrong key, two right answers, or a fault of its format. The protocols under which it is bad, and
# the item itself, say which of these.

FEWEST = 10
"""Models from which on items are judged: of fewer, a correlation says nothing."""

LEVEL = 0.05
"""How often an item that is unrelated to all others comes out bad under one protocol, at most."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ItemStatistics:
    """Hold statistics of the credits of many models, [items] each.

    ``right``: mean credit. ``models``: how many models have a credit. ``rest``: correlation with
    the sum of all other items. ``scale``: Mokken's H of the item, its covariances with all others
    over the greatest that they could be. ``isotonic``: mean over other items of the share of its
    variance that a rising function of the other item explains, negative if a falling one does
    (2603.24999); of items right or wrong it is sign · φ². The last three are NaN if an item is
    constant, and if fewer than :data:`FEWEST` models have a credit.
    """

    right: Floats
    models: Integers
    rest: Floats
    scale: Floats
    isotonic: Floats

    @property
    def judged(self) -> Mask:
        """Mark the items about which the statistics say something."""
        return ~np.isnan(self.rest)

    @cached_property
    def bad(self) -> Mask:
        """Mark items with all three statistics below zero, the first significantly (one-sided,
        :data:`LEVEL`).
        """
        # Of items that are right the more often the better a model is, none is below zero but by
        # chance.
        below = (self.rest < 0) & (self.scale < 0) & (self.isotonic < 0)
        return np.asarray(below & (self.rest < -_critical(self.models)), dtype=np.bool_)


def item_statistics(credits: Floats) -> ItemStatistics:
    """Return the statistics of ``credits``, float64 [models, items]: more is better, NaN is
    missing.

    A missing credit counts as the mean of its item. Raises UsageError for fewer than :data:`FEWEST`
    models.
    """
    if len(credits) < FEWEST:
        raise UsageError(
            f"{counted(len(credits), 'model')} {are(len(credits))} too few to judge items; "
            f"{_ADVICE}"
        )
    scored = ~np.isnan(credits)
    models = scored.sum(axis=0)
    sums = np.where(scored, credits, 0.0).sum(axis=0)
    right = np.divide(sums, models, out=np.full(len(models), np.nan), where=models > 0)
    lowest = np.where(scored, credits, np.inf).min(axis=0)
    highest = np.where(scored, credits, -np.inf).max(axis=0)
    judged = np.flatnonzero((models >= FEWEST) & (highest - lowest > _ROUNDING))

    is_lowest = np.abs(credits - lowest) <= _ROUNDING
    is_highest = np.abs(credits - highest) <= _ROUNDING
    has_two_values = (~scored | is_lowest | is_highest)[:, judged].all()
    deviations = np.where(scored, credits - right, 0.0)[:, judged]
    if has_two_values:
        isotonic = _isotonic_of_binary(deviations)
    else:
        isotonic = _isotonic(deviations)
    return ItemStatistics(
        right=right,
        models=models.astype(np.int64),
        rest=_spread_out(_rest_correlations(deviations, scored[:, judged]), judged, len(models)),
        scale=_spread_out(_scalabilities(deviations), judged, len(models)),
        isotonic=_spread_out(isotonic, judged, len(models)),
    )


def _spread_out(values: Floats, items: Integers, count: int) -> Floats:
    """Return an array of ``count`` items with the ``values`` of ``items``, NaN for the others."""
    every = np.full(count, np.nan)
    every[items] = values
    return every


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """Hold the :class:`ItemStatistics` of an item under one protocol, ``right`` in the unit of the
    metric.
    """

    protocol: str
    metric: str
    right: float
    models: int
    rest: float
    scale: float
    isotonic: float
    bad: bool


@dataclass(frozen=True, kw_only=True)
class BadItem:
    """Describe an item that is bad under a protocol, with a judgement of every protocol that can
    judge it.

    ``question``: its text, empty if the runs have none. ``verdict``: a key of :data:`VERDICTS`.
    """

    item: str
    subject: str
    question: str
    verdict: str
    under: tuple[Judgement, ...]

    @property
    def worst(self) -> Judgement:
        """Return the judgement with the lowest correlation of those under which the item is bad."""
        bad = [judgement for judgement in self.under if judgement.bad]
        return min(bad, key=lambda judgement: judgement.rest)


@dataclass(frozen=True)
class ConstantItem:
    """Describe an item with one credit of all models under every protocol, of which nothing can be
    said.

    ``right``: this credit, the mean over the protocols.
    """

    item: str
    subject: str
    question: str
    right: float


@dataclass(frozen=True, kw_only=True)
class Audit:
    """Hold what the runs of many models on one dataset say of its items.

    ``protocols``: those under which items were judged. ``duplicates``: those that can't differ from
    one of them. ``items``: how many the runs hold; ``shared``: how many all of them hold;
    ``judged``: how many could be judged under one protocol at least. ``bad``: in the order of
    :data:`VERDICTS`, and then the worst first.
    """

    dataset: str
    data: str
    models: tuple[str, ...]
    protocols: tuple[str, ...]
    duplicates: tuple[str, ...]
    items: int
    shared: int
    judged: int
    bad: tuple[BadItem, ...]
    constant: tuple[ConstantItem, ...]

    def verdicts(self, verdict: str) -> list[BadItem]:
        """Return the bad items of one verdict."""
        return [item for item in self.bad if item.verdict == verdict]


VERDICTS = {
    "all": "bad under every protocol: a wrong key, or several right answers",
    "one": "bad under one protocol and good under every other: a fault of its format",
    "some": "bad under some protocols",
    "": "bad under the only protocol that can judge it",
}
"""Verdict → its meaning, in the order in which items are listed."""


def audit(runs: Sequence[Summary]) -> list[Audit]:
    """Audit the items of every dataset on which enough models were run, under the protocols that
    they share.

    Runs of one model that was computed in the same way count once. Raises UsageError if no dataset
    has enough.
    """
    datasets: dict[str, dict[str, Summary]] = {}
    for run in runs:
        by_model = datasets.setdefault(run.manifest.dataset.digest, {})
        by_model.setdefault(run_id(run.manifest), run)
    audits = []
    counts = []
    for by_model in datasets.values():
        # Of one model that was computed twice in one way, the second run says nothing new.
        runs_on_dataset = list(by_model.values())
        if len(runs_on_dataset) >= FEWEST:
            audits.append(_audit(runs_on_dataset))
        dataset = runs_on_dataset[0].manifest.dataset
        counts.append(f"{counted(len(by_model), 'model')} on {dataset.name} {data_id(dataset)}")
    if not audits:
        raise UsageError(
            f"too few models to judge items: there {are(len(runs))} {listed(counts)}; {_ADVICE}"
        )
    return audits


@dataclass(frozen=True)
class _Items:
    """Hold the ids and subjects of all items of the runs.

    ``rows``: where the items of an outcome's table are among them, [items of the table], by the
    identity of the table.
    """

    ids: list[str]
    subjects: list[str]
    rows: dict[int, Integers]

    @classmethod
    def of(cls, runs: Sequence[Summary]) -> _Items:
        tables: dict[int, pa.Table] = {}
        for run in runs:
            for outcome in run.outcomes.outcomes:
                tables[id(outcome.items)] = outcome.items
        parts = []
        for table in tables.values():
            columns = {"item": table["item"], "subject": table["subject"]}
            parts.append(pa.table({name: columns[name].cast(pa.string()) for name in columns}))
        whole = pa.concat_tables(parts)
        ids = pc.unique(whole["item"])
        first_rows = pc.index_in(ids, whole["item"])
        rows = {}
        for key, table in tables.items():
            rows[key] = pc.index_in(table["item"], ids).to_numpy().astype(np.int64)
        return cls(ids.to_pylist(), whole["subject"].take(first_rows).to_pylist(), rows)

    def rows_of(self, outcome: Outcome) -> Integers:
        return self.rows[id(outcome.items)]


@dataclass(frozen=True)
class _Judged:
    """Hold the statistics of all items under one protocol, ``right`` in the unit of the metric."""

    metric: str
    statistics: ItemStatistics

    @classmethod
    def of(cls, outcomes: Sequence[Outcome], items: _Items) -> _Judged:
        """Judge the items by the outcomes of several models under one protocol."""
        name = outcomes[0].protocol.metric
        credits = np.full((len(outcomes), len(items.ids)), np.nan)
        for row, outcome in zip(credits, outcomes, strict=True):
            row[items.rows_of(outcome)] = outcome.credit
        # Every statistic takes more credit as better; a Brier score is turned round and back.
        sign = -1
        if METRICS[name].higher or METRICS[name].exponential:
            sign = 1
        statistics = item_statistics(sign * credits)
        return cls(name, replace(statistics, right=sign * statistics.right))


def _audit(runs: Sequence[Summary]) -> Audit:
    items = _Items.of(runs)
    judged: dict[str, _Judged] = {}
    duplicates: list[str] = []
    for equal_protocols in _comparable(runs):
        names = [outcomes[0].name for outcomes in equal_protocols]
        judged[names[0]] = _Judged.of(equal_protocols[0], items)
        duplicates.extend(names[1:])
    run_counts = _run_counts(runs, items)
    shared = int((run_counts == len(runs)).sum())
    statistics = [under.statistics for under in judged.values()]
    _check_judged(runs, statistics, len(items.ids), shared)

    is_judged = np.any([under.judged for under in statistics], axis=0)
    is_bad = np.any([under.bad for under in statistics], axis=0)
    has_models = np.array([under.models for under in statistics]) >= FEWEST
    is_constant = ~is_judged & has_models.any(axis=0)
    right = np.where(has_models, np.array([under.right for under in statistics]), np.nan)
    bad_rows = np.flatnonzero(is_bad).tolist()
    constant_rows = np.flatnonzero(is_constant).tolist()
    questions = _questions(runs, {items.ids[row] for row in (*bad_rows, *constant_rows)})

    bad = []
    for row in bad_rows:
        under = _judgements(row, judged)
        bad.append(
            BadItem(
                item=items.ids[row],
                subject=items.subjects[row],
                question=questions.get(items.ids[row], ""),
                verdict=_verdict(under),
                under=under,
            )
        )
    order = list(VERDICTS)
    bad.sort(key=lambda item: (order.index(item.verdict), item.worst.rest))
    constant = []
    for row in constant_rows:
        item = items.ids[row]
        credit = float(np.nanmean(right[:, row]))
        constant.append(
            ConstantItem(item, items.subjects[row], questions.get(item, ""), right=credit)
        )
    dataset = runs[0].manifest.dataset
    return Audit(
        dataset=dataset.name,
        data=data_id(dataset),
        models=tuple(run.manifest.model.name for run in runs),
        protocols=tuple(judged),
        duplicates=tuple(duplicates),
        items=len(items.ids),
        shared=shared,
        judged=int(is_judged.sum()),
        bad=tuple(bad),
        constant=tuple(constant),
    )


def _run_counts(runs: Sequence[Summary], items: _Items) -> Integers:
    """Count the runs that hold each item, under any protocol."""
    counts = np.zeros(len(items.ids), dtype=np.int64)
    for run in runs:
        rows = [items.rows_of(outcome) for outcome in run.outcomes.outcomes]
        counts[np.unique(np.concatenate(rows))] += 1
    return counts


def _check_judged(
    runs: Sequence[Summary], statistics: Sequence[ItemStatistics], items: int, shared: int
) -> None:
    """Check that one item can be judged; else raise UsageError with the reason."""
    if any(under.judged.any() for under in statistics):
        return
    dataset = runs[0].manifest.dataset
    name = f"{dataset.name} {data_id(dataset)}"
    if not statistics:
        raise UsageError(
            f"the runs on {name} share no protocol: none has {FEWEST} models; {_ADVICE}"
        )
    raise UsageError(
        f"no item of {name} can be judged: {counted(len(runs), 'run')} hold "
        f"{counted(items, 'item')}, "
        f"{shared:,} shared by all, and none has different credits of {FEWEST} models; {_ADVICE}"
    )


def _judgements(row: int, judged: Mapping[str, _Judged]) -> tuple[Judgement, ...]:
    """Return the judgements of the item at ``row`` under the protocols that can judge it."""
    judgements = []
    for name, under in judged.items():
        statistics = under.statistics
        if np.isnan(statistics.rest[row]):
            continue
        judgements.append(
            Judgement(
                protocol=name,
                metric=under.metric,
                right=float(statistics.right[row]),
                models=int(statistics.models[row]),
                rest=float(statistics.rest[row]),
                scale=float(statistics.scale[row]),
                isotonic=float(statistics.isotonic[row]),
                bad=bool(statistics.bad[row]),
            )
        )
    return tuple(judgements)


def _verdict(under: Sequence[Judgement]) -> str:
    """Return the key of :data:`VERDICTS` for an item that is bad under one protocol at least."""
    if len(under) < 2:
        return ""
    others = [judgement for judgement in under if not judgement.bad]
    if not others:
        return "all"
    if len(others) == len(under) - 1 and all(judgement.rest > 0 for judgement in others):
        return "one"
    return "some"


def _comparable(runs: Sequence[Summary]) -> Iterator[list[list[Outcome]]]:
    """Yield the outcomes of the runs under each protocol that enough of them have; protocols that
    can't differ in any of these runs together.
    """
    firsts = [run.outcomes.firsts for run in runs]
    outcomes_by_digest: dict[str, dict[int, Outcome]] = {}
    for index, run in enumerate(runs):
        for outcome in run.outcomes.outcomes:
            if not METRICS[outcome.protocol.metric].pooled:
                of_runs = outcomes_by_digest.setdefault(outcome.protocol.digest, {})
                of_runs.setdefault(index, outcome)
    groups: dict[tuple[tuple[int, str], ...], list[list[Outcome]]] = {}
    for digest, outcomes in outcomes_by_digest.items():
        if len(outcomes) >= FEWEST:
            first_by_run = tuple((index, firsts[index][digest]) for index in outcomes)
            groups.setdefault(first_by_run, []).append(list(outcomes.values()))
    yield from groups.values()


def _questions(runs: Sequence[Summary], wanted: set[str]) -> dict[str, str]:
    """Return the questions of the items ``wanted`` by id; damaged item tables raise StoreError."""
    questions: dict[str, str] = {}
    for run in runs:
        if wanted <= questions.keys():
            break
        check_items(run.folder, run.manifest)
        for batch in item_batches(run.folder, ("item", "question")):
            texts = batch["question"].to_pylist()
            for item, question in zip(batch["item"].to_pylist(), texts, strict=True):
                if item in wanted:
                    questions.setdefault(item, question)
    return questions


_ADVICE = (
    f"item statistics need the runs of {FEWEST} or more models on the same data: "
    "evaluate or import more of them"
)

_ROUNDING = 1e-12
"""Credits that differ by no more are equal."""


def _critical(models: Integers) -> Floats:
    """Return the correlation of so many models that chance exceeds with probability :data:`LEVEL`
    (Student's t).
    """
    from scipy.special import stdtrit

    freedom = np.maximum(models - 2.0, 1.0)
    t = stdtrit(freedom, 1 - LEVEL)
    return np.asarray(t / np.sqrt(freedom + t**2), dtype=np.float64)


def _rest_correlations(deviations: Floats, scored: Mask) -> Floats:
    """Return the correlation of each item with the sum of the others, over the models that have it.

    ``deviations``: of each credit from its item's mean, 0 if it is missing.
    """
    counts = scored.sum(axis=0)
    rest = np.where(scored, deviations.sum(axis=1, keepdims=True) - deviations, 0.0)
    rest = np.where(scored, rest - rest.sum(axis=0) / counts, 0.0)
    size = np.sqrt((deviations**2).sum(axis=0) * (rest**2).sum(axis=0))
    covariance = (deviations * rest).sum(axis=0)
    return np.divide(covariance, size, out=np.zeros(len(counts)), where=size > _ROUNDING)


def _scalabilities(deviations: Floats) -> Floats:
    """Return Mokken's H of each item: Σ cov(item, other) / Σ greatest cov(item, other)."""
    # Two columns have their greatest covariance if both are sorted, and a sum of covariances is
    # that with the sum.
    covariance = _covariance_with_others(deviations)
    greatest = _covariance_with_others(np.sort(deviations, axis=0))
    return np.divide(
        covariance, greatest, out=np.zeros(len(covariance)), where=greatest > _ROUNDING
    )


def _covariance_with_others(deviations: Floats) -> Floats:
    others = deviations.sum(axis=1, keepdims=True) - deviations
    return np.asarray((deviations * others).sum(axis=0), dtype=np.float64)


PAIRS = 50_000
"""Pairs of items for which isotonic fits are computed, about; of more, other items are drawn."""

FEWEST_OTHERS = 50
"""Other items that are drawn for each item, at least."""

_ITEMS_AT_ONCE = 512
"""Items whose products with all others are computed together."""

_CELLS_AT_ONCE = 2_000_000
"""Numbers in the arrays of fits that are computed together."""


def _isotonic_of_binary(deviations: Floats) -> Floats:
    """Return for each item right or wrong the mean over other items of sign(φ) · φ²."""
    count = deviations.shape[1]
    if count < 2:
        return np.zeros(count)
    unit = (deviations / np.sqrt((deviations**2).sum(axis=0))).astype(np.float32)
    sums = np.zeros(count)
    for start in range(0, count, _ITEMS_AT_ONCE):
        # Every pair is computed once, and counts for both of its items.
        stop = min(start + _ITEMS_AT_ONCE, count)
        phi = unit[:, start:stop].T @ unit[:, start:]
        explained = phi * np.abs(phi)
        sums[start:stop] += explained.sum(axis=1)
        sums[stop:] += explained[:, stop - start :].sum(axis=0)
    return (sums - 1) / (count - 1)


def _isotonic(deviations: Floats) -> Floats:
    """Return for each item the mean over other items of sign(τ) · R² of the isotonic fit."""
    count = deviations.shape[1]
    if count < 2:
        return np.zeros(count)
    # All others would take too long if there are many.
    other_count = max(PAIRS // count, FEWEST_OTHERS)
    others = np.random.default_rng(0).permutation(count)[:other_count]
    sums = np.zeros(count)
    pairs = np.full(count, len(others))
    pairs[others] -= 1
    step = max(_CELLS_AT_ONCE // deviations.size, 1)
    for start in range(0, len(others), step):
        part = others[start : start + step]
        signs = _kendall_signs(deviations, part)
        explained = signs * isotonic_shares(deviations[:, part], deviations, signs)
        explained[np.arange(len(part)), part] = 0.0
        sums += explained.sum(axis=0)
    return sums / pairs


def _kendall_signs(credits: Floats, others: Integers) -> Floats:
    """Return the sign of Kendall's τ of each of ``others`` with every item, [others, items]."""
    left, right = np.triu_indices(len(credits), 1)

    def orders(columns: Floats) -> npt.NDArray[np.float32]:
        difference = columns[left] - columns[right]
        is_tied = np.abs(difference) <= _ROUNDING
        return np.where(is_tied, 0.0, np.sign(difference)).astype(np.float32)

    of_others = orders(credits[:, others]).T
    parts = []
    for start in range(0, credits.shape[1], _ITEMS_AT_ONCE):
        parts.append(of_others @ orders(credits[:, start : start + _ITEMS_AT_ONCE]))
    return np.sign(np.hstack(parts)).astype(np.float64)


def isotonic_shares(x: Floats, y: Floats, signs: Floats) -> Floats:
    """Return the share of the variance of each column of ``y`` that a monotone function of a column
    of ``x`` explains.

    ``x``: [models, others]. ``y``: [models, items]. ``signs``: [others, items]; the function rises,
    or falls if the sign is negative. Returns float64 [others, items].
    """
    models, others = x.shape
    items = y.shape[1]
    # Equal values of x are one group. Neighbours whose means fall are pooled, in all pairs of
    # columns at once.
    sums = np.zeros((models, others, items))
    counts = np.zeros((models, others))
    for other in range(others):
        groups = np.unique(x[:, other], return_inverse=True)[1]
        is_member = groups == np.arange(groups.max() + 1)[:, None]
        sums[: len(is_member), other] = is_member @ y
        counts[: len(is_member), other] = is_member.sum(axis=1)
    sums *= signs
    squared_mean = sums.sum(axis=0) ** 2 / models
    pooled = _pooled(sums.reshape(models, -1), np.repeat(counts, items, axis=1))
    explained = pooled.reshape(others, items) - squared_mean
    spread = (y**2).sum(axis=0) - squared_mean
    return np.divide(explained, spread, out=np.zeros_like(spread), where=spread > _ROUNDING)


def _pooled(sums: Floats, counts: Floats) -> Floats:
    """Return Σ sum² / count over the blocks of each column of ``sums``, [groups, columns].

    Neighbouring groups are pooled into one block until no mean falls (pool adjacent violators).
    """
    groups, columns = sums.shape
    # Each column has a stack of blocks, in flat arrays row by row, so that the block below is
    # ``columns`` before.
    block_sums = np.zeros(groups * columns)
    block_counts = np.ones(groups * columns)
    top = np.arange(columns) - columns
    for group in range(groups):
        active = np.flatnonzero(counts[group])
        top[active] += columns
        last = top[active]
        block_sums[last] = sums[group, active]
        block_counts[last] = counts[group, active]
        while True:
            has_block_below = last >= columns
            active = active[has_block_below]
            last = last[has_block_below]
            below = last - columns
            falls = block_sums[below] * block_counts[last] >= block_sums[last] * block_counts[below]
            active = active[falls]
            last = last[falls]
            below = below[falls]
            if not len(active):
                break
            block_sums[below] += block_sums[last]
            block_counts[below] += block_counts[last]
            block_sums[last] = 0.0
            block_counts[last] = 1.0
            last = below
            top[active] = below
    squares = (block_sums**2 / block_counts).reshape(groups, columns)
    return np.asarray(squares.sum(axis=0), dtype=np.float64)
