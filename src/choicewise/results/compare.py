"""Two numbers compared: the same measurement, comparable, or not; of two runs, or of a run and a publication."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from itertools import combinations, pairwise, zip_longest
from typing import Any

import numpy as np
import numpy.typing as npt

from choicewise.bundled import PUBLISHED_MMLU
from choicewise.errors import UsageError
from choicewise.ports import PairStatistic, all_of
from choicewise.protocols.between import differing
from choicewise.protocols.catalogue import resolve
from choicewise.protocols.protocol import NEUTRAL, Protocol, axis_differences, short_signature
from choicewise.results.evidence import TEXTS, TOLD, RunEvidence, read_texts
from choicewise.results.measurement import (
    Flips,
    Measurement,
    flips,
    movement,
    paired_credits,
    shared_items,
)
from choicewise.results.outcomes import Axis, Outcome, Outcomes, axes_between
from choicewise.results.rows import Row, engine_path, run_id, selection, text_id, token_id
from choicewise.results.run import Run
from choicewise.results.spans import ObservedPortion, row_bytes, row_digests
from choicewise.scoring.answers import is_cut
from choicewise.scoring.observed import Floats, Integers
from choicewise.scoring.rounding import require_number
from choicewise.scoring.significance import (
    Difference,
    SignFlip,
    detectable_difference,
    paired_difference,
    sign_flip,
    untested,
)
from choicewise.util.jsonio import json_value


@dataclass(frozen=True, slots=True, kw_only=True)
class StrikingPair:
    """Two protocols of one model that differ in one ``axis`` alone.

    ``start`` is the one with the greater value; values are shares of 1, means over the ``n`` items that both score.
    ``lost`` items lose credit from ``start`` to ``end``, most of them from right to wrong; ``gained`` items gain some.
    ``example`` is one of those that lose.
    """

    model: str
    axis: Axis
    start: str
    end: str
    start_value: float
    end_value: float
    n: int
    gained: int
    lost: int
    example: str


def striking_pair(outcomes: Outcomes) -> StrikingPair | None:
    """The pair whose values differ most; None where no two protocols differ in one axis, or none of them in value."""
    pairs = (
        pair
        for pair in combinations(outcomes.shares.outcomes, 2)
        if len(_axes(*(each.protocol for each in pair))) == 1
    )
    compared = [_compared_pair(outcomes.model, *pair) for pair in pairs]
    striking = (each for each in compared if each is not None)
    return max(striking, key=lambda each: each.start_value - each.end_value, default=None)


VERDICTS = {
    "same measurement": "protocol, texts, model and engine agree: any difference is non-determinism",
    "comparable": "protocol and texts agree: a paired test is allowed",
    "other inputs": "the protocol is the same, but not the texts that were sent",
    "not comparable": "the protocols differ: the difference comes from them as much as from the models",
    "no shared items": "no item is in both: nothing can be compared item by item",
}
"""What follows from the ids that agree: protocol (P), texts (I) and tokens (T) of the shared items, and run (R)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two numbers: its folder, model and protocol, with their short ids.

    ``p``, ``i``, ``t`` and ``r`` are those of :mod:`choicewise.results.rows`, of all its ``items``, which
    ``selection`` describes, as ``value`` is; ``paired`` is the number over the items that both sides scored.
    ``share``: whether the two are shares of 1 that can stand beside accuracies; ``metric``: what they are.
    ``logged``: whether they are of another tool's log, which does not say which tokens were scored; ``texts``: whether
    all texts of the choices are there.
    """

    folder: str
    model: str
    protocol: str
    p: str
    i: str
    t: str
    r: str
    value: float
    items: int
    selection: str
    paired: float
    share: bool
    logged: bool = False
    texts: bool = True
    metric: str = "acc"


@dataclass(frozen=True, slots=True)
class Agreeing:
    """Which ids agree, those of texts and tokens over the shared items alone.

    Of requests that were rendered elsewhere, protocol and texts agree as well where the same texts were sent, and the
    protocols differ in nothing but how these are made.
    """

    p: bool
    i: bool
    t: bool
    r: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two numbers compared.

    ``agree``: what the ``verdict`` follows from.  ``parting``: the first text that differs.  ``difference``: left minus
    right over the shared items; ``test``: of the credits; ``detectable``: the difference that this many items would
    show with probability 0.8.  All three take the items one by one and subjects as given.
    ``furthest``: the largest difference of a score, where both protocols are the same and have scores, and ``moved``:
    the shared items of which any score differs.
    ``cut``: how many of the shared items have an answer in text that was cut, left and right; they are in no test, and
    ``low`` and ``high`` bound the difference over all shared items, whatever stands behind them; NaN where none was.
    ``figures``: those of every :class:`~.PairStatistic` by name, None but where both are :attr:`alike`.
    """

    verdict: str
    agree: Agreeing
    left: Side
    right: Side
    axes: tuple[Axis, ...]
    parting: FirstDifference | None
    difference: Difference
    test: SignFlip
    detectable: float
    flips: Flips
    furthest: float
    moved: int | None
    cut: tuple[int, int] = (0, 0)
    low: float = math.nan
    high: float = math.nan
    figures: Mapping[str, Any] = field(default_factory=dict)

    @property
    def alike(self) -> bool:
        """Whether both runs asked the same tokens about shared items under one protocol, and observed the answers."""
        asked_alike = self.verdict in ("same measurement", "comparable") and self.agree.t
        return asked_alike and not (self.left.logged or self.right.logged)

    @property
    def open(self) -> bool:
        """Whether answers that were cut could turn the difference round, so that no side is shown to be better."""
        return self.low <= 0 <= self.high

    def as_json(self) -> dict[str, Any]:
        """Return the comparison as JSON knows it, each figure under its name."""
        content = asdict(self)
        figures = content.pop("figures")
        return {**content, **figures}


def comparisons(left: Run, right: Run | None, protocols: Sequence[str]) -> list[Comparison]:
    """``left`` against ``right`` under every protocol they share, or under those named; two protocols within one run.

    Two names with two runs compare the first protocol of ``left`` with the second of ``right``.  Raises UsageError when
    there is nothing to compare.
    """
    if len(protocols) > 2:
        raise UsageError(
            f"{len(protocols)} protocols were named; compare one in two runs, or two with each other"
        )
    if len(protocols) == 2:
        other = right or left
        pairs = [(_one(left, protocols[0]), _one(other, protocols[1]))]
        return _compared_rows(left, other, pairs)
    if right is None:
        raise UsageError("one run was named; name another run, or two of its protocols")
    sides = [
        {each.protocol.digest: each for each in run.choose(protocols).measurements.values()}
        for run in (left, right)
    ]
    shared = [digest for digest in sides[0] if digest in sides[1]]
    if not shared:
        raise UsageError(
            f"{left.folder} and {right.folder} share no protocol; name one of each, "
            f"such as {next(iter(left.protocols))} and {next(iter(right.protocols))}"
        )
    return _compared_rows(left, right, [(sides[0][digest], sides[1][digest]) for digest in shared])


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstDifference:
    """The first item whose texts differ, with the two texts from shortly before the first other character.

    ``part``: one of ``_PARTS``, the first that differs; ``place``: characters of it that agree, counted from its start.
    ``items``: how many of the shared items have other texts.
    """

    item: str
    part: str
    place: int
    left: str
    right: str
    items: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedNumber:
    """A published value, a share of 1, and where it lies from the run's interval.

    ``model`` and ``source`` are None where a reader brought the number.  ``place``: below, inside or above the 95 %
    interval of the run's first row, None where there is none.
    """

    value: float
    model: str | None = None
    source: str | None = None
    url: str | None = None
    place: str | None


@dataclass(frozen=True, slots=True)
class Nearest:
    """The run's protocol that differs from another in the fewest axes; ``left`` of each is the run's."""

    protocol: str
    axes: tuple[Axis, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedComparison:
    """Numbers published under one protocol (``p``: its short id) and those of a run.

    ``rows``: the run's numbers under the same protocol, one per group; none where it was not asked what the protocol
    asks.  Then ``nearest`` says which axes keep the run's protocols from it, and ``advice`` what adds it to the run.
    Of a published number neither data nor texts are known: it can be compared only if it is about the same data.
    """

    protocol: str
    p: str
    rows: tuple[Row, ...]
    numbers: tuple[PublishedNumber, ...]
    nearest: Nearest | None
    advice: str | None

    @property
    def comparable(self) -> bool:
        """Whether the run has a number under this protocol."""
        return bool(self.rows)

    def as_json(self) -> dict[str, Any]:
        """The comparison as JSON knows it, the rows as a report has them."""
        content = {**asdict(replace(self, rows=())), "rows": [row.as_json() for row in self.rows]}
        return dict(json_value({"comparable": self.comparable, **content}))


def published_comparisons(
    run: Run, stored: Sequence[Row], recipes: Mapping[str, Protocol], value: float | None = None
) -> list[PublishedComparison]:
    """``run`` against numbers published under each of ``recipes``, by name: ``value``, and those that are bundled.

    ``stored``: the rows of the run's summary.  A further protocol that asks only what the run asked is scored from what
    was observed.
    """
    known: dict[str, Protocol] = {}
    advice: dict[str, str] = {}
    for name, recipe in recipes.items():
        try:
            known |= run.under({name: recipe}).protocols
        except UsageError as error:
            advice[name] = str(error)
    rows = _rows(run, stored, known)
    return [
        PublishedComparison(
            protocol=name,
            p=short_signature(recipe),
            rows=rows.get(name, ()),
            numbers=_numbers(recipe, rows.get(name, ()), value),
            nearest=None if name in known else _nearest(run, recipe),
            advice=advice.get(name),
        )
        for name, recipe in recipes.items()
    ]


@dataclass(frozen=True, slots=True)
class Published:
    """One published number: a share of 1, of which ``model``, by whom, and where it stands."""

    model: str
    value: float
    source: str
    url: str


@cache
def published() -> dict[str, tuple[Published, ...]]:
    """Short digest of a protocol (``#P8d3978``) → the bundled numbers published under it."""
    content = json.loads(PUBLISHED_MMLU.read_text(encoding="utf-8"))
    source = f"{content['publisher']}, {content['date']}, MMLU test set"
    numbers: dict[str, tuple[Published, ...]] = {}
    for column, about in content["columns"].items():
        name = f"{about['protocol']}:{about['score']}" if "score" in about else about["protocol"]
        protocol = next(iter(resolve(name).values()))
        numbers[short_signature(protocol)] = tuple(
            Published(row["model"], row[column], source, content["url"]) for row in content["rows"]
        )
    return numbers


_NAMES = frozenset({"benchmark", "rev"})
"""Axes that say what a protocol is called, and change no number."""


def _axes(left: Protocol, right: Protocol) -> Sequence[str]:
    return [axis for axis in differing(left, right) if axis not in _NAMES]


def _compared_pair(model: str, left: Outcome, right: Outcome) -> StrikingPair | None:
    ids, credits = _credits(left, right)
    if not len(ids) or credits[0].sum() == credits[1].sum():
        return None
    if credits[0].sum() < credits[1].sum():
        left, right, credits = right, left, credits[::-1]
    (name,) = _axes(left.protocol, right.protocol)
    (axis,) = (each for each in axes_between(left.protocol, right.protocol) if each.axis == name)
    lost, gained = credits[1] < credits[0], credits[1] > credits[0]
    start, end = credits.mean(axis=1).tolist()
    return StrikingPair(
        model=model,
        axis=axis,
        start=left.name,
        end=right.name,
        start_value=start,
        end_value=end,
        n=len(ids),
        gained=int(gained.sum()),
        lost=int(lost.sum()),
        example=ids[int(np.flatnonzero(lost)[0])],
    )


def _credits(left: Outcome, right: Outcome) -> tuple[list[str], Floats]:
    """The ids and credits ([2, items]) of the items that both score."""
    ids, places = shared_items((left, right))
    credits = np.stack(
        [each.credit[place] for each, place in zip((left, right), places, strict=True)]
    )
    known = np.flatnonzero(~np.isnan(credits).any(axis=0))
    return ids.take(known).to_pylist(), credits[:, known]


def _one(run: Run, protocol: str) -> Measurement:
    chosen = run.choose([protocol])
    names = list(chosen.protocols)
    if len(names) > 1:
        shown = ", ".join(names[:3])
        raise UsageError(
            f"{protocol} stands for {len(names)} protocols; name one of them: {shown}, ..."
        )
    return chosen.measurements[names[0]]


def _compared_rows(
    left: Run, right: Run, pairs: Sequence[tuple[Measurement, Measurement]]
) -> list[Comparison]:
    for run, measured in zip((left, right), zip(*pairs, strict=True), strict=True):
        read_texts(run.evidence, (each.protocol.prompt_digest for each in measured))
    compared = [_compare(left, one, right, other) for one, other in pairs]
    alike = [place for place, comparison in enumerate(compared) if comparison.alike]
    figures: list[dict[str, Any]] = [{} for _ in pairs]
    for statistic in all_of(PairStatistic):
        of_alike = statistic.figures((left, right), [pairs[place] for place in alike])
        by_place = dict(zip(alike, of_alike, strict=True))
        for place, of_pair in enumerate(figures):
            of_pair[statistic.name] = by_place.get(place)
    return [
        replace(comparison, figures=of_pair)
        for comparison, of_pair in zip(compared, figures, strict=True)
    ]


def _compare(
    left: Run, left_measured: Measurement, right: Run, right_measured: Measurement
) -> Comparison:
    pair = (left_measured, right_measured)
    for each in pair:
        require_number(each.name, each.protocol.metric, each.step)
    _, places = shared_items(pair)
    _, credits = paired_credits(pair)
    credits, cut, low, high = _without_cut(pair, places, credits)
    scored = credits[:, ~np.isnan(credits).any(axis=0)]
    paired = [float(own.mean()) if len(own) else math.nan for own in scored]
    metrics = {each.protocol.metric for each in pair}
    if len(metrics) > 1 and not all(each.metric.share for each in pair):
        raise UsageError(
            f"{left_measured.name} and {right_measured.name} are numbers of two kinds, "
            f"{left_measured.protocol.metric} and {right_measured.protocol.metric}; compare two of one kind"
        )
    left_side = _side(left, left_measured, paired[0])
    right_side = _side(right, right_measured, paired[1])
    most = (
        1.0 if left_measured.metric.share else left_measured.metric.high - left_measured.metric.low
    )
    counted = left_measured.metric.counted and right_measured.metric.counted
    difference = paired_difference(credits[0], credits[1], counted, most)
    detectable = detectable_difference(credits[0], credits[1], counted)
    test = sign_flip(*credits)
    if left_measured.metric.pooled:
        difference, test, detectable = untested(difference)
    axes = axes_between(left_measured.protocol, right_measured.protocol)
    texts, tokens = (
        [
            id_of(each.evidence, each.protocol, place)
            for each, place in zip(pair, places, strict=True)
        ]
        for id_of in (text_id, token_id)
    )
    agree = Agreeing(
        p=left_side.p == right_side.p,
        i=texts[0] == texts[1],
        t=tokens[0] == tokens[1],
        r=left_side.r == right_side.r,
    )
    rendered = _differ_in_rendering(left_measured.protocol, right_measured.protocol)
    if rendered and _same_sent((left.evidence, right.evidence), pair):
        agree = replace(agree, p=True, i=True)
    parting = None if agree.i else _first_difference((left.evidence, right.evidence), pair)
    furthest, moved = movement(pair)
    return Comparison(
        verdict=_verdict(agree, len(places[0])),
        agree=agree,
        left=left_side,
        right=right_side,
        axes=(*axes, *_identity(left, right)),
        parting=parting,
        difference=difference,
        test=test,
        detectable=detectable,
        flips=flips(pair),
        furthest=furthest,
        moved=moved,
        cut=cut,
        low=low,
        high=high,
    )


def _without_cut(
    pair: tuple[Measurement, Measurement], places: Sequence[Integers], credits: Floats
) -> tuple[Floats, tuple[int, int], float, float]:
    """The credits of shared items, NaN where an answer was cut; how many were, and the bounds of the difference."""
    cut = np.stack(
        [
            np.zeros(len(place), dtype=np.bool_)
            if each.statuses is None
            else is_cut(each.statuses)[place]
            for each, place in zip(pair, places, strict=True)
        ]
    )
    if not cut.any():
        return credits, (0, 0), math.nan, math.nan
    low, high = np.where(cut, 0.0, credits), np.where(cut, 1.0, credits)
    least, most = low[0] - high[1], high[0] - low[1]
    known = ~np.isnan(least)
    counts = int(cut[0].sum()), int(cut[1].sum())
    return (
        np.where(cut.any(axis=0), np.nan, credits),
        counts,
        float(least[known].mean()),
        float(most[known].mean()),
    )


def _differ_in_rendering(left: Protocol, right: Protocol) -> bool:
    """Whether requests were rendered elsewhere, and the protocols differ in nothing but how texts are made."""
    differing = {axis for axis, _, _ in axis_differences(left, right)}
    return "requests" in differing and differing <= {
        *NEUTRAL,
        "benchmark",
        "split",
        "requests",
        "seed",
    }


def _verdict(agree: Agreeing, shared: int) -> str:
    if not shared:
        return "no shared items"
    if not agree.p:
        return "not comparable"
    if not agree.i:
        return "other inputs"
    return "same measurement" if agree.t and agree.r else "comparable"


def _side(run: Run, measured: Measurement, paired: float) -> Side:
    protocol = measured.protocol
    evidence = measured.evidence
    manifest = run.manifest
    return Side(
        folder=str(run.folder),
        model=manifest.model.name,
        protocol=measured.name,
        p=short_signature(protocol),
        i=text_id(evidence, protocol),
        t=token_id(evidence, protocol),
        r=run_id(manifest),
        value=measured.overall,
        items=len(evidence.items),
        selection=selection(manifest, measured),
        paired=math.exp(-paired) if measured.metric.exponential else paired,
        share=measured.metric.share,
        logged=manifest.imported is not None,
        texts=not bool(np.isnan(evidence.lengths).any()),
        metric=protocol.metric,
    )


def _identity(left: Run, right: Run) -> list[Axis]:
    packages = sorted(left.manifest.versions.keys() | right.manifest.versions.keys())
    one, other = (
        {"data": run.manifest.dataset.digest}
        | {f"model {name}": value for name, value in run.manifest.model.computation.items()}
        | {"engine path": engine_path(run.manifest)}
        | {f"version of {package}": run.manifest.versions.get(package) for package in packages}
        for run in (left, right)
    )
    return [
        Axis(name, _short(one[name]), _short(other[name]))
        for name in one
        if one[name] != other[name]
    ]


def _short(value: Any) -> str:
    text = "-" if value is None else str(value)
    return text[:12] if len(text) == 64 else text


_BEFORE, _SHOWN = 20, 80
"""Characters shown of a text: before its first difference, and in all."""

_PARTS = ("prompt", "continuations", "choices as shown", "right answers")
"""What is sent or decides what is right, in the order in which it is compared."""


def _first_difference(
    runs: tuple[RunEvidence, RunEvidence], pair: tuple[Measurement, Measurement]
) -> FirstDifference | None:
    """The first item of the left measurement that the right one has with other texts; None where there is none."""
    ids, places = shared_items(pair)
    digests = [each.evidence.column(TEXTS)[place] for each, place in zip(pair, places, strict=True)]
    differing = np.flatnonzero(digests[0] != digests[1])
    if not len(differing):
        return None
    texts = (
        _texts(run, each, int(each.evidence.items[place[differing[0]]]))
        for run, each, place in zip(runs, pair, places, strict=True)
    )
    part, (one, other) = next(
        (part, both) for part, *both in zip(_PARTS, *texts, strict=True) if both[0] != both[1]
    )
    first = next(place for place, (a, b) in enumerate(zip_longest(one, other)) if a != b)
    shown = slice(max(0, first - _BEFORE), max(0, first - _BEFORE) + _SHOWN)
    return FirstDifference(
        item=ids[differing[0]].as_py(),
        part=part,
        place=first,
        left=one[shown],
        right=other[shown],
        items=len(differing),
    )


def _same_sent(
    runs: tuple[RunEvidence, RunEvidence], pair: tuple[Measurement, Measurement]
) -> bool:
    """Whether every shared item was asked in the same texts with the same right answers, however they were made."""
    _, places = shared_items(pair)
    left, right = (
        _sent(run, each.protocol.prompt_digest)[place]
        for run, each, place in zip(runs, pair, places, strict=True)
    )
    return bool((left == right).all())


def _sent(run: RunEvidence, prompt: str) -> npt.NDArray[np.void]:
    """The digests of all items under a prompt, in the order of the evidence."""
    portions = (ObservedPortion(tables, prompt) for tables in run.whole_portions())
    return np.concatenate([row_digests(()), *map(_sent_digests, portions)])


def _sent_digests(portion: ObservedPortion) -> npt.NDArray[np.void]:
    """The same without the choices as shown, and with the contexts that choices have of their own."""
    columns = [
        portion.item_table["item"],
        *(portion.requests[name] for name in TOLD if name != "options"),
    ]
    own = portion.own_contexts
    contexts = [
        repr(own[start:end]).encode() for start, end in pairwise(portion.item_offsets.tolist())
    ]
    return row_digests(*map(row_bytes, columns), contexts)


def _texts(run: RunEvidence, measured: Measurement, item: int) -> tuple[str, str, str, str]:
    """The ``_PARTS`` of the item at that place of the item table; why it could not be asked in place of its prompt."""
    (tables,) = RunEvidence(run.folder, run.manifest, only=[item]).portion_tables()
    requests = ObservedPortion(tables, measured.protocol.prompt_digest).requests
    context, *lists = (requests[name][0].as_py() for name in TOLD)
    continuations, options, gold = ("|".join(map(str, each or ())) for each in lists)
    return (
        (f"({requests['missing'][0].as_py()})" if context is None else context),
        continuations,
        options,
        gold,
    )


def _rows(
    run: Run, stored: Sequence[Row], known: Mapping[str, Protocol]
) -> dict[str, tuple[Row, ...]]:
    """The run's rows under each protocol; those that it has are the ``stored`` ones."""
    own = {protocol.digest: name for name, protocol in run.protocols.items()}
    rows = {
        name: tuple(row for row in stored if row.protocol == own[each.digest])
        for name, each in known.items()
        if each.digest in own
    }
    further = {name: each for name, each in known.items() if name not in rows}
    for row in run.under(further).rows() if further else ():
        rows[row.protocol] = (*rows.get(row.protocol, ()), row)
    return rows


def _numbers(
    recipe: Protocol, rows: Sequence[Row], value: float | None
) -> tuple[PublishedNumber, ...]:
    numbers = []
    if value is not None:
        numbers.append(PublishedNumber(value=value, place=_place(value, rows)))
    for bundled in published().get(short_signature(recipe), ()):
        numbers.append(
            PublishedNumber(
                value=bundled.value,
                model=bundled.model,
                source=bundled.source,
                url=bundled.url,
                place=_place(bundled.value, rows),
            )
        )
    return tuple(numbers)


def _place(value: float, rows: Sequence[Row]) -> str | None:
    if not rows or math.isnan(rows[0].ci_low):
        return None
    low, high = rows[0].ci_low, rows[0].ci_high
    return "below" if value < low else "above" if value > high else "inside"


def _nearest(run: Run, recipe: Protocol) -> Nearest | None:
    axes: dict[str, tuple[Axis, ...]] = {}
    for name, protocol in run.protocols.items():
        of_split = replace(recipe, split=protocol.split) if recipe.split is None else recipe
        axes[name] = axes_between(protocol, of_split)
    if not axes:
        return None
    nearest = min(axes, key=lambda name: len(axes[name]))
    return Nearest(nearest, axes[nearest])
