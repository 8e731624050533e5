"""Which items are bad: those that better models get wrong, under all protocols (a wrong key) or under one alone.

No statistic here needs the questions: a good item is one that models get right the more the better they are, so that it
agrees with the other items.  An item that disagrees with them has a wrong key, two right answers, or a fault of its
format; which of these, the protocols under which it is bad tell, and the item itself.
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

FEWEST = 10
"""Models from which on items are judged: of fewer, a correlation says nothing."""

LEVEL = 0.05
"""How often an item that is unrelated to all others comes out bad under one protocol, at most."""


@dataclass(frozen=True, eq=False)
class ItemStatistics:
    """What the credits of many models say of each item, all [items], float64 but for ``models`` (int64).

    ``right``: mean credit; ``models``: how many have a credit.  ``rest``: correlation with the sum of all other items.
    ``scale``: Mokken's H of the item, its covariances with all others over the greatest that they could be.
    ``isotonic``: mean over other items of the share of its variance that a rising function of the other item explains,
    negative where a falling one does (2603.24999); of items right or wrong it is sign · φ².
    The three are NaN where an item is constant, and where fewer than :data:`FEWEST` models have a credit.
    """

    right: Floats
    models: Integers
    rest: Floats
    scale: Floats
    isotonic: Floats

    @property
    def judged(self) -> Mask:
        """Items about which the statistics say something."""
        return ~np.isnan(self.rest)

    @cached_property
    def bad(self) -> Mask:
        """Items with all three statistics below zero, the first of them significantly (one-sided, :data:`LEVEL`).

        Of items that are right the more often the better a model is, none is below zero but by chance.
        """
        below = (self.rest < 0) & (self.scale < 0) & (self.isotonic < 0)
        return np.asarray(below & (self.rest < -_critical(self.models)), dtype=np.bool_)


def item_statistics(credits: Floats) -> ItemStatistics:
    """The statistics of ``credits``, float64 [models, items], of which more is better, with NaN for missing.

    A missing credit counts as the mean of its item.  Raises UsageError for fewer than :data:`FEWEST` models.
    """
    if len(credits) < FEWEST:
        raise UsageError(
            f"{counted(len(credits), 'model')} {are(len(credits))} too few to judge items; {_ADVICE}"
        )
    scored = ~np.isnan(credits)
    models = scored.sum(axis=0)
    filled = np.where(scored, credits, 0.0)
    right = np.divide(
        filled.sum(axis=0), models, out=np.full(len(models), np.nan), where=models > 0
    )
    low, high = (
        np.where(scored, credits, np.inf).min(axis=0),
        np.where(scored, credits, -np.inf).max(axis=0),
    )
    judged = np.flatnonzero((models >= FEWEST) & (high - low > _SAME))
    binary = bool(
        (~scored | (np.abs(credits - low) <= _SAME) | (np.abs(credits - high) <= _SAME))[
            :, judged
        ].all()
    )
    apart = np.where(scored, credits - right, 0.0)[:, judged]
    statistics = _rest(apart, scored[:, judged]), _scale(apart), _isotonic(apart, binary)
    rest, scale, isotonic = (np.full(len(models), np.nan) for _ in statistics)
    for whole, of_judged in zip((rest, scale, isotonic), statistics, strict=True):
        whole[judged] = of_judged
    return ItemStatistics(right, models.astype(np.int64), rest, scale, isotonic)


@dataclass(frozen=True, slots=True)
class Judgement:
    """An item under one protocol: :class:`ItemStatistics` of it, ``right`` in the unit of the metric."""

    protocol: str
    metric: str
    right: float
    models: int
    rest: float
    scale: float
    isotonic: float
    bad: bool


@dataclass(frozen=True, slots=True)
class BadItem:
    """An item that is bad under a protocol, and what each of the protocols ``under`` which it can be judged says.

    ``question``: its words, empty where the runs have none.  ``verdict``: ``all`` where it is bad under all of several
    protocols, ``one`` where it is under one and agrees with the other items under every other, ``some`` else; empty
    where one protocol alone can judge it.
    """

    item: str
    subject: str
    question: str
    verdict: str
    under: tuple[Judgement, ...]

    @property
    def worst(self) -> Judgement:
        """The one with the lowest correlation of those under which it is bad."""
        return min((each for each in self.under if each.bad), key=lambda each: each.rest)


@dataclass(frozen=True, slots=True)
class ConstantItem:
    """An item with the same credit of all models under every protocol: nothing can be said of it.

    ``right``: this credit, the mean over the protocols.
    """

    item: str
    subject: str
    question: str
    right: float


@dataclass(frozen=True, slots=True)
class Audit:
    """What the runs of many models on one dataset say of its items.

    ``protocols``: those under which items were judged; ``alike``: names of those that can't differ from one of them.
    ``items``: how many the runs hold, and ``shared``: how many all of them do; ``judged``: how many could be, under
    one protocol at least.  ``bad``: those bad under all protocols first, then those under one, each the worst first.
    """

    dataset: str
    data: str
    models: tuple[str, ...]
    protocols: tuple[str, ...]
    alike: tuple[str, ...]
    items: int
    shared: int
    judged: int
    bad: tuple[BadItem, ...]
    constant: tuple[ConstantItem, ...]

    def verdicts(self, verdict: str) -> list[BadItem]:
        """The bad items of one verdict."""
        return [each for each in self.bad if each.verdict == verdict]


VERDICTS = {
    "all": "bad under every protocol: a wrong key, or several right answers",
    "one": "bad under one protocol and good under every other: a fault of its format",
    "some": "bad under some protocols",
    "": "bad under the only protocol that can judge it",
}
"""What is said of an item, and what it means; in the order in which items are listed."""


def audit(runs: Sequence[Summary]) -> list[Audit]:
    """One per dataset on which enough models were run, of the protocols that so many of them share.

    Runs of one model that was computed in the same way count once.  Raises UsageError where no dataset has enough.
    """
    datasets: dict[str, dict[str, Summary]] = {}
    for run in runs:
        datasets.setdefault(run.manifest.dataset.digest, {}).setdefault(run_id(run.manifest), run)
    enough = [[*own.values()] for own in datasets.values() if len(own) >= FEWEST]
    if not enough:
        names = [
            f"{counted(len(own), 'model')} on {first.manifest.dataset.name} {data_id(first.manifest.dataset)}"
            for own in datasets.values()
            for first in [next(iter(own.values()))]
        ]
        raise UsageError(
            f"too few models to judge items: there {are(len(runs))} {listed(names)}; {_ADVICE}"
        )
    return [_audit(own) for own in enough]


def _audit(runs: Sequence[Summary]) -> Audit:
    ids, subjects, places = _all_items(runs)
    judged, metrics, named = dict[str, ItemStatistics](), dict[str, str](), list[str]()
    for group in _measured(runs):
        (name, members), *others = group
        named += [each for each, _ in others]
        credits, metric = (
            np.full((len(members), len(ids)), np.nan),
            METRICS[members[0].protocol.metric],
        )
        for row, each in zip(credits, members, strict=True):
            row[places[id(each.items)]] = each.credit
        sign = 1 if metric.higher or metric.exponential else -1
        statistics = item_statistics(sign * credits)
        judged[name], metrics[name] = (
            replace(statistics, right=sign * statistics.right),
            members[0].protocol.metric,
        )
    held = np.zeros(len(ids), dtype=np.int64)
    for run in runs:
        held[
            np.unique(np.concatenate([places[id(each.items)] for each in run.outcomes.outcomes]))
        ] += 1
    manifest, shared = runs[0].manifest, int((held == len(runs)).sum())
    if not any(each.judged.any() for each in judged.values()):
        where = f"{manifest.dataset.name} {data_id(manifest.dataset)}"
        if not judged:
            raise UsageError(
                f"the runs on {where} share no protocol: none has {FEWEST} models; {_ADVICE}"
            )
        raise UsageError(
            f"no item of {where} can be judged: {counted(len(runs), 'run')} hold {counted(len(ids), 'item')}, "
            f"{shared:,} shared by all, and none has different credits of {FEWEST} models; {_ADVICE}"
        )
    known = np.any([each.judged for each in judged.values()], axis=0)
    bad = np.flatnonzero(np.any([each.bad for each in judged.values()], axis=0))
    models = np.array([each.models for each in judged.values()])
    constant = np.flatnonzero(~known & (models >= FEWEST).any(axis=0))
    questions = _questions(runs, {ids[place] for place in (*bad.tolist(), *constant.tolist())})
    about = [
        (ids[place], subjects[place], questions.get(ids[place], "")) for place in range(len(ids))
    ]
    items = [_bad_item(about[place], place, judged, metrics) for place in bad.tolist()]
    order = [*VERDICTS]
    items.sort(key=lambda each: (order.index(each.verdict), each.worst.rest))
    right = np.array(
        [np.where(each.models >= FEWEST, each.right, np.nan) for each in judged.values()]
    )
    return Audit(
        manifest.dataset.name,
        data_id(manifest.dataset),
        tuple(run.manifest.model.name for run in runs),
        tuple(judged),
        tuple(named),
        len(ids),
        shared,
        int(known.sum()),
        tuple(items),
        tuple(
            ConstantItem(*about[place], float(np.nanmean(right[:, place])))
            for place in constant.tolist()
        ),
    )


def _bad_item(
    about: tuple[str, str, str],
    place: int,
    judged: Mapping[str, ItemStatistics],
    metrics: Mapping[str, str],
) -> BadItem:
    under = tuple(
        Judgement(
            name,
            metrics[name],
            float(each.right[place]),
            int(each.models[place]),
            float(each.rest[place]),
            float(each.scale[place]),
            float(each.isotonic[place]),
            bool(each.bad[place]),
        )
        for name, each in judged.items()
        if not np.isnan(each.rest[place])
    )
    good = [each for each in under if not each.bad]
    if len(under) < 2:
        verdict = ""
    elif not good:
        verdict = "all"
    else:
        verdict = (
            "one" if len(good) == len(under) - 1 and all(each.rest > 0 for each in good) else "some"
        )
    return BadItem(*about, verdict, under)


def _measured(runs: Sequence[Summary]) -> Iterator[list[tuple[str, list[Outcome]]]]:
    """(name, outcomes) of every protocol that enough runs have; those together that can't differ in any of them."""
    together: dict[tuple[tuple[int, str], ...], list[tuple[str, list[Outcome]]]] = {}
    firsts = [run.outcomes.firsts for run in runs]
    having: dict[str, list[tuple[int, Outcome]]] = {}
    for place, run in enumerate(runs):
        for each in run.outcomes.outcomes:
            if not METRICS[each.protocol.metric].pooled:
                having.setdefault(each.protocol.digest, []).append((place, each))
    for digest, own in having.items():
        if len(own) >= FEWEST:
            key = tuple((place, firsts[place][digest]) for place, _ in own)
            together.setdefault(key, []).append((own[0][1].name, [each for _, each in own]))
    yield from together.values()


def _all_items(runs: Sequence[Summary]) -> tuple[list[str], list[str], dict[int, Integers]]:
    """Ids and subjects of all items of the runs, and where every table of items of an outcome has its own."""
    tables = {id(each.items): each.items for run in runs for each in run.outcomes.outcomes}
    whole = pa.concat_tables(
        pa.table({name: table[name].cast(pa.string()) for name in ("item", "subject")})
        for table in tables.values()
    )
    ids = pc.unique(whole["item"])
    first = pc.index_in(ids, whole["item"])
    places = {
        key: pc.index_in(table["item"], ids).to_numpy().astype(np.int64)
        for key, table in tables.items()
    }
    return ids.to_pylist(), whole["subject"].take(first).to_pylist(), places


def _questions(runs: Sequence[Summary], wanted: set[str]) -> dict[str, str]:
    """The words of the items ``wanted`` by id, of the first run that has them; damaged item tables raise StoreError."""
    words: dict[str, str] = {}
    for run in runs:
        if not wanted - words.keys():
            break
        check_items(run.folder, run.manifest)
        for batch in item_batches(run.folder, ("item", "question")):
            pairs = zip(batch["item"].to_pylist(), batch["question"].to_pylist(), strict=True)
            words |= {
                item: question for item, question in pairs if item in wanted and item not in words
            }
    return words


_ADVICE = f"item statistics need the runs of {FEWEST} or more models on the same data: evaluate or import more of them"

_SAME = 1e-12
"""Credits that differ by no more are equal."""


def _critical(models: Integers) -> Floats:
    """The correlation that chance exceeds with probability :data:`LEVEL`, of so many models, by Student's t."""
    from scipy.special import stdtrit

    freedom = np.maximum(models - 2.0, 1.0)
    t = stdtrit(freedom, 1 - LEVEL)
    return np.asarray(t / np.sqrt(freedom + t**2), dtype=np.float64)


def _rest(apart: Floats, scored: Mask) -> Floats:
    """Each item's correlation with the sum of the others, over the models that have it.

    ``apart``: how far each credit is from its item's mean, 0 where it is missing.
    """
    counts = scored.sum(axis=0)
    rest = np.where(scored, apart.sum(axis=1, keepdims=True) - apart, 0.0)
    rest = np.where(scored, rest - rest.sum(axis=0) / counts, 0.0)
    size = np.sqrt((apart**2).sum(axis=0) * (rest**2).sum(axis=0))
    return np.divide(
        (apart * rest).sum(axis=0), size, out=np.zeros(len(counts)), where=size > _SAME
    )


def _scale(apart: Floats) -> Floats:
    """Σ cov(item, other) / Σ greatest cov: two columns have that when both are sorted, and sums of it are of sums."""
    ordered = np.sort(apart, axis=0)
    have, could = (
        (each * (each.sum(axis=1, keepdims=True) - each)).sum(axis=0) for each in (apart, ordered)
    )
    return np.divide(have, could, out=np.zeros(len(have)), where=could > _SAME)


PAIRS, FEWEST_OTHERS = 50_000, 50
"""Pairs of items for which isotonic fits are computed, about; the others of an item that are drawn then, at least."""

_AT_ONCE, _CELLS = 512, 2_000_000
"""Items whose products with all others are computed together; numbers in the arrays of fits computed together."""


def _isotonic(apart: Floats, binary: bool) -> Floats:
    """The mean over other items of sign(τ) · R² of the isotonic fit; of some others where all would take too long."""
    count = apart.shape[1]
    if count < 2:
        return np.zeros(count)
    if binary:
        unit = (apart / np.sqrt((apart**2).sum(axis=0))).astype(np.float32)
        sums = np.zeros(count)
        for start in range(0, count, _AT_ONCE):  # every pair once, which counts for both
            stop = min(start + _AT_ONCE, count)
            phi = unit[:, start:stop].T @ unit[:, start:]
            explained = phi * np.abs(phi)
            sums[start:stop] += explained.sum(axis=1)
            sums[stop:] += explained[:, stop - start :].sum(axis=0)
        return (sums - 1) / (count - 1)
    others = np.random.default_rng(0).permutation(count)[: max(PAIRS // count, FEWEST_OTHERS)]
    sums, pairs = np.zeros(count), np.full(count, len(others))
    pairs[others] -= 1
    step = max(_CELLS // apart.size, 1)
    for start in range(0, len(others), step):
        part = others[start : start + step]
        signs = _order(apart, part)
        explained = signs * isotonic_shares(apart[:, part], apart, signs)
        explained[np.arange(len(part)), part] = 0.0
        sums += explained.sum(axis=0)
    return sums / pairs


def _order(credits: Floats, others: Integers) -> Floats:
    """The sign of Kendall's τ of the items at ``others`` with every item, [others, items]."""
    one, other = np.triu_indices(len(credits), 1)

    def compared(columns: Floats) -> npt.NDArray[np.float32]:
        difference = columns[one] - columns[other]
        return np.where(np.abs(difference) > _SAME, np.sign(difference), 0.0).astype(np.float32)

    of_others = compared(credits[:, others]).T
    parts = (credits[:, start : start + _AT_ONCE] for start in range(0, credits.shape[1], _AT_ONCE))
    return np.sign(np.hstack([of_others @ compared(part) for part in parts])).astype(np.float64)


def isotonic_shares(x: Floats, y: Floats, signs: Floats) -> Floats:
    """Of each column of ``y`` [models, items] the share of its variance that a rising function of a column of ``x``
    [models, others] explains, a falling one where the sign [others, items] is negative; float64 [others, items].

    Equal values of ``x`` have one value.  Neighbours whose means fall are pooled, in all pairs of columns at once.
    """
    models, others, items = len(x), x.shape[1], y.shape[1]
    sums, counts = np.zeros((models, others, items)), np.zeros((models, others))
    for place in range(others):
        groups = np.unique(x[:, place], return_inverse=True)[1]
        member = groups == np.arange(groups.max() + 1)[:, None]
        sums[: len(member), place], counts[: len(member), place] = member @ y, member.sum(axis=1)
    sums *= signs
    squares = sums.sum(axis=0) ** 2 / models
    explained = (
        _pooled(sums.reshape(models, -1), np.repeat(counts, items, axis=1)).reshape(others, items)
        - squares
    )
    spread = (y**2).sum(axis=0) - squares
    return np.divide(explained, spread, out=np.zeros_like(spread), where=spread > _SAME)


def _pooled(sums: Floats, counts: Floats) -> Floats:
    """Σ sum² / count over the blocks of each column, neighbours [groups] pooled until no mean falls (PAVA)."""
    groups, columns = sums.shape
    stack, sizes = (
        np.zeros(groups * columns),
        np.ones(groups * columns),
    )  # row by row, so that a step is one below
    top = np.arange(columns) - columns
    for group in range(groups):
        active = np.flatnonzero(counts[group])
        top[active] += columns
        last = top[active]
        stack[last], sizes[last] = sums[group, active], counts[group, active]
        while True:
            deep = last >= columns
            active, last = active[deep], last[deep]
            before = last - columns
            falls = stack[before] * sizes[last] >= stack[last] * sizes[before]
            active, last, before = active[falls], last[falls], before[falls]
            if not len(active):
                break
            stack[before] += stack[last]
            sizes[before] += sizes[last]
            stack[last], sizes[last] = 0.0, 1.0
            top[active] = last = before
    return np.asarray((stack**2 / sizes).reshape(groups, columns).sum(axis=0), dtype=np.float64)
