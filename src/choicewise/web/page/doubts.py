"""Section G: everything that speaks against a number, what it means and what to do about it."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from choicewise.report.visible_text import safe
from choicewise.results.diagnosis import ALARMS, FLAGS
from choicewise.results.row import Row
from choicewise.web.number import count, interval, listed
from choicewise.web.study import ShownRun, Study

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
    "near-ties": "Run the model in float32, or have near ties rescored.",
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
    for entry, own in entries.items():
        among = [name for name in own if name in names]
        if len(among) == len(own) > 1:
            yield f"{entry} (all {len(own)} scores)"
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
