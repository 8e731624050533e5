"""View data of every section, shared with the board."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Any

from choicewise.errors import ProtocolError, UsageError
from choicewise.page.charts import bump, lanes
from choicewise.page.embed import Record
from choicewise.page.study import LEVEL, MOST_RUNS, Contest, Lead, Pair, ShownRun, Study, leads
from choicewise.protocols.catalogue import Entry, entry
from choicewise.protocols.protocol import Protocol
from choicewise.protocols.readings import READINGS
from choicewise.protocols.signature import axis_differences, family, short_signature, signature
from choicewise.report.findings import reversal_sentence
from choicewise.results.compare import Axis
from choicewise.results.finding import reversal
from choicewise.results.ladder import Effect, ValueChange, ladders, main_effects
from choicewise.results.rows import ALARMS, FLAGS, Row
from choicewise.util import text
from choicewise.util.text import count, interval, listed, percent, points, probability, ranks, safe, shown

NUMBER_COLUMNS = (
    ("protocol", ""),
    ("family", ""),
    ("%", "number"),
    ("95 % interval", "number"),
    ("items", "number"),
    ("rank", "number"),
    ("doubts", "breaks"),
    ("ids", "code"),
)


def table(run: ShownRun) -> list[list[str]]:
    """The same numbers in rows, the families in the order of the chart and their numbers from the greatest."""
    families = list(dict.fromkeys(row.family for row in run.rows))
    ordered = sorted(run.rows, key=lambda row: (families.index(row.family), _rising(row.value)))
    grouped = len({row.subject for row in run.rows}) > 1
    cells = []
    for row in ordered:
        rank = "" if row.rank is None else f"{row.rank}"
        if row.rank is not None and row.rank_low is not None:
            rank += f" ({text.ranks(row.rank_low, row.rank_high)})"
        cells.append(
            [
                f"{row.protocol}, {row.subject}" if grouped else row.protocol,
                row.family,
                percent(row.value),
                text.interval(row.ci_low, row.ci_high),
                f"{row.n:,}",
                rank,
                words(row),
                f"{row.id} {row.i} {row.t} {row.r}",
            ]
        )
    return cells


def _rising(value: float) -> float:
    """The greatest first, and last what is no number."""
    return 1.0 if math.isnan(value) else -value


COUNTS = {
    "missing": (
        "items could not be scored",
        "The number is a mean over the others. The reasons stand below; compare it only over items that both have.",
    ),
    "invalid": (
        "answers name no option",
        "They count as wrong, whatever the model knows. Read some of them in E.",
    ),
    "skipped": ("rows of the data could not be used", "They are left out under every protocol. Mend the data file."),
    "shots_dropped": (
        "prompts lost examples",
        "They did not fit into the model's window: these items were asked with fewer examples than the protocol says.",
    ),
    "truncated": (
        "prompts were cut",
        "They did not fit into the model's window: part of the text was not seen. Take a model with a longer window.",
    ),
    "ties": ("items are tied", "Options have exactly the same best score, and the protocol's tie rule decides."),
    "near_ties": (
        "items are nearly tied",
        "Rounding could change which option is best: trust the number only within the range that the table gives.",
    ),
    "unlisted": (
        "items have answers that the server does not list",
        "Of these no more than an upper bound is known. Where that leaves the best answer open the item is missing, "
        "and the range of the number says what they allow. Ask the server for more tokens, or take another route.",
    ),
    "merged": (
        "items have a token across the end of the prompt",
        "The protocol's boundary says which tokens are scored; another tool may score others.",
    ),
    "noncanonical": (
        "items were scored in other tokens than the text's own",
        "The protocol encodes prompt and option apart. The model rarely sees such tokens; scores can be lower.",
    ),
    "lossy": ("items were scored in tokens that lost text", "The tokenizer can't spell the text; distrust the number."),
    "unknown": ("items hold unknown tokens", "The tokenizer does not know some character; distrust the number."),
}
"""Count of a row → what it counts, and what it means for the number."""

ADVICE = {
    "served-model": "Find out what was loaded when, and run it again into a new folder.",
    "positive": "Distrust the log or the server: they are no probabilities. Check it with choicewise check.",
    "placeholder": "Distrust the log or the server: it had no number there. Check it with choicewise check.",
    "margins": "The number is the tie rule's. Look whether log-probabilities came at all: read an item in E.",
    "many-missing": "The number is about the others. Repeat the run line, which asks again what had no answer.",
    "many-unparsed": "They count as wrong, whatever the model knows. Read some of the texts in E.",
    "many-tied": "The tie rule decides them: take a protocol that splits ties, or run the model in float32.",
    "chance": "Don't rank models by it: guessing could give the same.",
    "constant": "The position says more than the item does. Look whether scores of the answers' texts differ.",
    "gold-constant": "Shuffle the options of the data: the tie rule makes this number.",
    "position": "A preference for places may be in the number. Take permuted options, or score the answers' texts.",
    "length": "Longer or shorter answers score better whatever they say. Take a score that is divided by length.",
    "mass": "The model would rather write something else than a label. Take a protocol that scores the answers' texts.",
    "near-ties": "Run the model in float32.",
    "label/text": "Labels and texts decide differently here. Report both.",
    "permutation": "The answer depends on the order of the options. Report a protocol that averages over orders.",
    "choices-only": "Some answers can be told without the question. Report that number, too.",
}
"""Flag → what to do about it."""

SHOWN_AS_ALARMS = (*ALARMS, "missing", "lossy", "unknown")
"""Doubts that are shown as alarms."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a doubt is: the run, how many of its numbers in words, and the names of their protocols."""

    run: str
    numbers: str
    protocols: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Doubt:
    """``name`` in short, ``meaning`` and ``advice`` in a sentence each, and the runs that have it."""

    name: str
    meaning: str
    advice: str
    alarm: bool
    where: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class Doubts:
    """``states``: sentences about runs that are not whole; ``reasons``: why items are missing; ``noise`` per run."""

    states: tuple[str, ...]
    doubts: tuple[Doubt, ...]
    reasons: tuple[str, ...]
    noise: tuple[str, ...]


def study_doubts(study: Study) -> Doubts:
    """All doubts about the numbers of the study."""
    return Doubts(
        tuple(state for run in study.runs for state in _states(run)),
        tuple(_doubts(study)),
        tuple(_reasons(study.rows)),
        tuple(map(_noise, study.runs)),
    )


def words(row: Row) -> str:
    """The doubts about one number, as short as a table needs them."""
    counts = [f"{getattr(row, name):,} {_short(name)}" for name in COUNTS if getattr(row, name)]
    unused = [f"does not show {', '.join(row.unused)}"] if row.unused else []
    causes = " and ".join(filter(None, ("unlisted answers" * bool(row.unlisted), "rounding" * bool(row.noise))))
    rounding = [f"{interval(row.low, row.high)} by {causes or 'rounding'}"] if row.low < row.high else []
    return ", ".join([*row.diagnosis.flags, *unused, *counts, *rounding])


def _short(name: str) -> str:
    return {"invalid": "name no option", "ties": "tied", "near_ties": "near ties", "unlisted": "unlisted answers"}.get(
        name, name.replace("_", " ")
    )


def _states(run: ShownRun) -> Iterator[str]:
    if not run.manifest.complete:
        asked = {part for row in run.rows for part in row.selection.split(", ") if part.startswith("incomplete: ")}
        so_far = f" ({listed([part.removeprefix('incomplete: ') for part in sorted(asked)])})" if asked else ""
        yield (
            f"{run.label} is still being written, or was interrupted{so_far}: its numbers are about the items that are "
            "there so far. Repeat its run line to go on."
        )
    if run.manifest.server is not None and run.manifest.server.changed:
        yield f"{run.label}: {FLAGS['served-model']} ({run.manifest.server.changed})."
    for damage in run.damages:
        split, subject, start, stop = damage.block.place
        yield (
            f"{run.label}: items {start + 1:,} to {stop:,} of {subject} ({split}) are left out, because "
            f"{damage.path.name} of block {damage.block.name} {damage.reason}. Repeat its run line to ask them again."
        )


def _doubts(study: Study) -> Iterator[Doubt]:
    for flag, meaning in FLAGS.items():
        if where := _places(study, partial(_flagged, flag=flag), False):
            yield Doubt(flag, _sentence(meaning), ADVICE[flag], flag in SHOWN_AS_ALARMS, where)
    for name, (what, meaning) in COUNTS.items():
        if where := _places(study, partial(_counted, name=name), True):
            yield Doubt(f"{_short(name)}: {what}", "", meaning, name in SHOWN_AS_ALARMS, where)
    if unused := sorted({name for row in study.rows for name in row.unused}):
        where = _places(study, lambda row: len(row.unused), False)
        advice = "What is asked may need them: take a protocol whose templates have them."
        yield Doubt("fields of the data are not shown", f"Not shown: {', '.join(unused)}.", advice, False, where)


def _flagged(row: Row, flag: str) -> int:
    return int(flag in row.diagnosis.flags)


def _counted(row: Row, name: str) -> int:
    return getattr(row, name) or 0


def _places(study: Study, count_of: Callable[[Row], int], items: bool) -> tuple[Place, ...]:
    """``items``: whether what is counted are items."""
    each = ((run, [(row, count_of(row) * items) for row in run.rows if count_of(row)]) for run in study.runs)
    return tuple(place for place in (_where(*pair) for pair in each) if place is not None)


def _where(run: ShownRun, rows: Sequence[tuple[Row, int]]) -> Place | None:
    """Which numbers of ``run`` have a doubt, each with how many items; None for none."""
    if not rows:
        return None
    items = [number for _, number in rows]
    several = "" if not any(items) else f", {_span(min(items), max(items))} of {count(run.items, 'item')}"
    names = dict.fromkeys(row.protocol for row, _ in rows)
    numbers = f"{len(rows)} of {count(len(run.rows), 'number')}" if len(rows) < len(run.rows) else "all numbers"
    return Place(run.label, f"{numbers}{several}", tuple(_together(names, run)))


def _span(least: int, most: int) -> str:
    return f"{most:,}" if least == most else f"{least:,} to {most:,}"


def _together(names: Collection[str], run: ShownRun) -> Iterator[str]:
    """Scores of one entry as one name where all that the run has are among ``names``."""
    entries: dict[str, list[str]] = {}
    for name in run.protocols:
        entries.setdefault(name.partition(":")[0], []).append(name)
    for called, own in entries.items():
        among = [name for name in own if name in names]
        if len(among) == len(own) > 1:
            yield f"{called} (all {len(own)} scores)"
        else:
            yield from among


def _reasons(rows: Sequence[Row]) -> Iterator[str]:
    told: dict[tuple[str, int, str, str], list[str]] = {}
    for row in rows:
        for each in row.missing_reasons:
            told.setdefault(("missing", each.count, each.reason, each.example), []).append(row.protocol)
        for each in row.skipped_reasons:
            told.setdefault(("skipped", each.count, each.reason, each.example), [])
    for (kind, number, reason, example), protocols in told.items():
        names = list(dict.fromkeys(protocols))
        under = f" under {names[0]}" if len(names) == 1 else f" under {len(names)} protocols" if names else ""
        yield safe(f"{number:,} {kind}{under}: {reason} (such as {example})")


def _noise(run: ShownRun) -> str:
    check, imported = run.manifest.engine.selfcheck, run.manifest.imported
    if imported is not None:
        return f"{run.label}: not known, as {imported.tool} computed the numbers, and no model here."
    if check is None:
        return f"{run.label}: not measured, as the model was not checked."
    return (
        f"{run.label}: two ways of computing a token's log-probability differ by up to {check.noise:.2g} nats, "
        f"a sum over n tokens by √n times that."
    )


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


RANGE_COLUMNS = (
    ("model", ""),
    ("median rank", "number"),
    ("ranks", "number"),
    ("in 95 % of draws", "number"),
    ("first under", "number"),
    ("last under", "number"),
    ("protocols", "number"),
)


@dataclass(frozen=True)
class Order:
    """The models measured on one dataset: the values and tables of the two charts, of all orders and of the ranks.

    ``dataset``: its name, with its id where another dataset is called the same.  ``reversal``: says which two of them
    change places, nothing where none do.
    """

    dataset: str
    reversal: str
    values: list[Record]
    models: tuple[str, ...]
    table: list[list[str]]
    rank_values: list[Record]
    ranges: list[list[str]]


def orders(study: Study, compared: Sequence[Pair]) -> list[Order]:
    """One per dataset with two models or more."""
    ahead = leads(study, compared)
    several = {digest: places for digest, places in study.datasets.items() if len(places) > 1}
    names = {digest: study.runs[places[0]].manifest.dataset.name for digest, places in several.items()}
    called = list(names.values())
    told = {digest: name if called.count(name) == 1 else f"{name} #D{digest[:6]}" for digest, name in names.items()}
    return [_order(study, told[digest], places, ahead) for digest, places in several.items()]


def _order(study: Study, dataset: str, places: Sequence[int], ahead: Collection[Lead]) -> Order:
    runs = [study.runs[place] for place in places]
    rows = [row for run in runs for row in run.rows]
    values = bump.values(rows, ahead)
    columns = [record["protocol"] for record in values if record["kind"] == "column"]
    models = tuple(run.label for run in runs)
    table = [[name, *(_cell(run.row_of.get(name)) for run in runs)] for name in dict.fromkeys(columns)]
    ranges = [_range(run.label, run.rows, len(runs)) for run in runs]
    ranges.sort(key=lambda cells: float(cells[1]) if cells[1] != "-" else math.inf)
    turned = reversal(runs[:MOST_RUNS])
    said = reversal_sentence(turned) if turned else ""
    return Order(dataset, said, values, models, table, lanes.ranks_values(rows), ranges)


def _cell(row: Row | None) -> str:
    if row is None:
        return ""
    return percent(row.value) if row.rank is None else f"{percent(row.value)} ({row.rank})"


def _range(label: str, rows: Sequence[Row], models: int) -> list[str]:
    known = [row for row in rows if row.rank is not None and row.rank_low is not None]
    places = [row.rank for row in known if row.rank is not None]
    if not places:
        return [label, "-", "", "", "", "", "0"]
    low = min(row.rank_low for row in known if row.rank_low is not None)
    high = max(row.rank_high for row in known if row.rank_high is not None)
    middle = f"{median(places):g}"
    firsts, lasts = (sum(place == edge for place in places) for edge in (1, models))
    return [label, middle, ranks(min(places), max(places)), ranks(low, high), f"{firsts}", f"{lasts}", f"{len(places)}"]


PAIR_COLUMNS = (
    ("protocol", ""),
    ("A − B", "number"),
    ("95 % interval", "number"),
    ("exact p", "number"),
    ("only A right", "number"),
    ("only B right", "number"),
    ("could show", "number"),
    ("items", "number"),
    ("", ""),
)


def pair_data(study: Study, pair: Pair) -> dict[str, Any]:
    """What the page says and shows of a pair."""
    one, other = study.runs[pair.left], study.runs[pair.right]
    if pair.reason:
        return {"said": f"Not comparable: {pair.reason}.", "rows": []}
    left, right = pair.ahead
    fair = [each.difference.value for each in pair.contests if not each.other_texts]
    known = [value for value in fair if not math.isnan(value)]
    apart = len(pair.contests) - len(fair)
    said = (
        f"{text.shortened(one.label)} (A) is ahead of {text.shortened(other.label)} (B) under "
        f"{sum(value > 0 for value in known)} of {text.count(len(known), 'protocol')}, behind under "
        f"{sum(value < 0 for value in known)}, level under {sum(value == 0 for value in known)}. "
        f"Significant by the sign-flip test, after Holm's correction for {text.count(pair.tests, 'test')} at 5 %: "
        f"A is better under {left}, B under {right}; the others can't tell them apart."
    )
    if apart:
        said += f" Not comparable under {text.count(apart, 'protocol')}: other texts were sent."
    return {"said": said, "rows": [_cells(each) for each in pair.contests]}


def _cells(contest: Contest) -> list[str]:
    difference, test = contest.difference, contest.test
    low, high = text.points(difference.ci_low), text.points(difference.ci_high)
    words = ["not comparable: other texts were sent"] if contest.other_texts else []
    words += ["in the normal limit"] if not test.exact else []
    words += ["A is better" if difference.value > 0 else "B is better"] if contest.p_holm <= LEVEL else []
    return [
        contest.protocol,
        text.points(difference.value),
        "-" if math.isnan(difference.ci_low) else f"{low} to {high}",
        probability(test.p),
        f"{test.left_only:,}",
        f"{test.right_only:,}",
        percent(contest.detectable),
        f"{difference.n:,}",
        ", ".join(words),
    ]


@dataclass(frozen=True, slots=True)
class Variant:
    """One protocol of a sheet: how it differs from the first one there, in words of the axes."""

    name: str
    id: str
    signature: str
    differs: str


@dataclass(frozen=True, slots=True)
class Sheet:
    """Protocols that one source published together; ``entry`` is None for protocols of one's own.

    ``parts``: (what it is, the template with its white space visible), in the order in which a prompt is made of them.
    """

    name: str
    entry: Entry | None
    family: str
    reading: str
    shots: str
    parts: tuple[tuple[str, str], ...]
    variants: tuple[Variant, ...]


def sheets(study: Study) -> list[Sheet]:
    """A sheet per entry of the catalogue, and one per other protocol, in the order of the runs."""
    chosen: dict[str, dict[str, Protocol]] = {}
    published: dict[str, Entry] = {}
    for name, protocol in study.protocols.items():
        source = _source(name, protocol)
        sheet = name if source is None else source.name
        if source is not None:
            published[sheet] = source
        chosen.setdefault(sheet, {})[name] = protocol
    return [_sheet(name, own, published.get(name)) for name, own in chosen.items()]


def _source(name: str, protocol: Protocol) -> Entry | None:
    """The entry of the catalogue that has this protocol under this name."""
    try:
        known = entry(name)
    except ProtocolError:
        return None
    return known if known.protocols.get(known.published.get(name, name)) == protocol else None


def _sheet(name: str, protocols: Mapping[str, Protocol], published: Entry | None) -> Sheet:
    first = next(iter(protocols.values()))
    variants = (
        Variant(
            each,
            short_signature(protocol),
            signature(protocol),
            ", ".join(f"{axis} {_value(other)}" for axis, _, other in axis_differences(first, protocol)),
        )
        for each, protocol in protocols.items()
    )
    reading = READINGS[first.reading].about
    return Sheet(name, published, family(first), reading, _shots(first), tuple(_parts(first)), tuple(variants))


def _value(spelled: str) -> str:
    return "none" if spelled == "-" else spelled or "(empty)"


def _shots(protocol: Protocol) -> str:
    if not protocol.shots:
        return "none"
    seed = "" if protocol.seed is None else f", seed {protocol.seed}"
    return f"{protocol.shots} from {protocol.shot_split or 'nowhere'}, chosen by {protocol.sampler}{seed}"


def _parts(protocol: Protocol) -> list[tuple[str, str]]:
    if protocol.requests is not None:
        return [("rendered elsewhere", f"requests with the digest {protocol.requests}")]
    parts = [("begins with", protocol.header)]
    if protocol.shots:
        parts.append((f"each of {protocol.shots} examples", protocol.question + protocol.answer + protocol.separator))
    parts.append(("the question", protocol.question + protocol.proposal))
    if "{options}" in protocol.question:
        parts.append(("each of its options", protocol.option))
    parts.append(("what is scored", protocol.continuation))
    return [(what, shown(text)) for what, text in parts if text]


STEP_COLUMNS = (
    ("what changes", "breaks"),
    ("points", "number"),
    ("gained, lost", "number"),
    ("items", "number"),
    ("reaches", ""),
    ("%", "number"),
)

EFFECT_COLUMNS = (
    ("axis", ""),
    ("mean change", "number"),
    ("size", "number"),
    ("from – to", "number"),
    ("pairs", "number"),
    ("most common change", "breaks"),
)


@dataclass(frozen=True)
class Steps:
    """All ways from one number of a run to another.

    ``ways``: (start, end) → the protocols on the way, both included; ``steps``: (from, to) → the chart's record of that
    step; ``ends``: protocol → its records as the start and as the end of a way.
    """

    ways: dict[tuple[str, str], list[str]]
    steps: dict[tuple[str, str], Record]
    ends: dict[str, tuple[Record, Record]]

    def records(self, start: str, end: str) -> list[Record]:
        """What the chart shows of the way from one protocol to another; the page's script does the same."""
        way = self.ways[start, end]
        walked = enumerate(pairwise(way), 1)
        climbed = [{**self.steps[pair], "lane": place, "above": place - 1} for place, pair in walked]
        return [self.ends[start][0], *climbed, {**self.ends[end][1], "lane": len(way), "above": len(way) - 1}]

    def data(self, numbers: dict[str, int]) -> dict[str, Any]:
        """The same for the script, protocols by their places."""
        named = {
            f"{numbers[start]}>{numbers[end]}": [numbers[name] for name in way[1:-1]]
            for (start, end), way in self.ways.items()
            if len(way) > 2
        }
        steps = {f"{numbers[start]}>{numbers[end]}": record for (start, end), record in self.steps.items()}
        return {"ways": named, "steps": steps, "ends": {numbers[name]: ends for name, ends in self.ends.items()}}


def steps(run: ShownRun) -> Steps:
    """All ways between the numbers of ``run``; none where it has a single protocol."""
    ways: dict[tuple[str, str], list[str]] = {}
    records: dict[tuple[str, str], Record] = {}
    ends: dict[str, tuple[Record, Record]] = {}
    for (start, end), climbed in ladders(run.outcomes).items():
        way = [start, *(step.name for step in climbed.steps)]
        ways[start, end] = way
        if records.keys() >= {*pairwise(way)} and ends.keys() >= {start, end}:
            continue
        first, *drawn, last = lanes.ladder_values(climbed)
        ends.setdefault(start, (first, _end(first)))
        ends.setdefault(end, (_start(last), last))
        for pair, record, step in zip(pairwise(way), drawn, climbed.steps, strict=True):
            if pair not in records:
                records[pair] = {**record, "changes": spelled(step.axes), "reached": percent(step.value)}
    return Steps(ways, records, ends)


def extremes(run: ShownRun) -> tuple[str, str] | None:
    """The protocols of the lowest and the highest number; None where there are not two that differ."""
    known = [row for row in run.rows if not math.isnan(row.value)]
    low, high = (extreme(known, key=lambda row: row.value, default=None) for extreme in (min, max))
    if low is None or high is None or low.signature == high.signature:
        return None
    return low.protocol, high.protocol


def step_table(records: list[Record]) -> list[list[str]]:
    """The records of a way as rows of a table."""
    rows = []
    for record in records:
        end = record["kind"] == "end"
        changes = record["detail"] if end else record["changes"]
        rows.append(
            [
                changes,
                "" if end else record["result"],
                "" if end else record["items"],
                f"{record['n']:,}",
                record["protocol"],
                percent(record["after"]),
            ]
        )
    return rows


def telling(run: ShownRun, known: Steps) -> tuple[str, str] | None:
    """Two numbers that differ for several reasons, the most steps apart and then the most points.

    The extremes where no way has two steps, None where there are not two numbers.
    """
    values = {row.protocol: row.value for row in run.rows if not math.isnan(row.value)}
    ways = [(start, end) for start, end in known.ways if start in values and end in values]
    rising = [(start, end) for start, end in ways if values[start] < values[end]]
    if not rising or max(len(known.ways[way]) for way in rising) < 3:
        return extremes(run)
    return max(rising, key=lambda way: (min(len(known.ways[way]), 4), values[way[1]] - values[way[0]]))


def effects(run: ShownRun) -> list[Effect]:
    """The axis that changes most first; none where no two protocols differ in one axis alone."""
    try:
        return main_effects(run.outcomes)
    except UsageError:
        return []


def effect_values(effects: Sequence[Effect]) -> list[Record]:
    """What the chart of the effects shows."""
    return lanes.effects_values(effects)


def effect_table(effects: Sequence[Effect]) -> list[list[str]]:
    """A row per axis."""
    return [_effect(each) for each in effects]


def spelled(axes: tuple[Axis, ...]) -> str:
    """What changes in full: ``score: sum → char_mean; ties: first → wrong``."""
    return "; ".join(f"{each.axis}: {each.left or '(empty)'} → {each.right or '(empty)'}" for each in axes)


def _effect(effect: Effect) -> list[str]:
    spread = effect.spread
    sd = "" if math.isnan(spread.sd) else f" ± {percent(spread.sd)}"
    return [
        effect.axis,
        f"{points(spread.mean)}{sd}",
        percent(effect.absolute),
        f"{points(spread.low)} – {points(spread.high)}",
        f"{spread.pairs:,}",
        "; ".join(map(_change, effect.changes[:2])) + _more(len(effect.changes) - 2),
    ]


def _change(change: ValueChange) -> str:
    values = spelled(change.axes[:1]).partition(": ")[2]
    return f"{values}: {points(change.spread.mean)} over {count(change.spread.pairs, 'pair')}"


def _more(others: int) -> str:
    return f"; {count(others, 'other change')}" if others > 0 else ""


def _end(start: Record) -> Record:
    """The same number where a way ends."""
    return {**start, "side": "to", "detail": "to", "description": f"to{start['description'].removeprefix('from')}"}


def _start(end: Record) -> Record:
    """The same number where a way starts."""
    about = f"from{end['description'].removeprefix('to')}"
    return {**end, "side": "from", "detail": "from", "lane": 0, "above": 0, "description": about}
