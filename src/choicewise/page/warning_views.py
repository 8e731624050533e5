"""The warnings about numbers: in a few words for a table, and in full with what to do about them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from choicewise.page.study import ShownRun, Study
from choicewise.report.tables import reasons_told
from choicewise.results.rows import COUNTS, SERIOUS, WARNINGS, Row
from choicewise.util.text import counted, interval, listed, safe, sentence

MEANINGS = {
    "missing": (
        "items could not be scored",
        "The number is a mean over the others. The reasons stand below; compare it only over items that both have.",
    ),
    "invalid": ("answers name no option", "They count as wrong, whatever the model knows. Read some of them in E."),
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
"""Warning → what to do about it."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a warning is: the run, how many of its numbers in words, and the names of their protocols."""

    run: str
    numbers: str
    protocols: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ShownWarning:
    """``name`` in short, ``meaning`` and ``advice`` in a sentence each, and the runs that have it."""

    name: str
    meaning: str
    advice: str
    serious: bool
    where: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class StudyWarnings:
    """``states``: sentences about runs that are not whole; ``reasons``: why items are missing; ``noise`` per run."""

    states: tuple[str, ...]
    warnings: tuple[ShownWarning, ...]
    reasons: tuple[str, ...]
    noise: tuple[str, ...]


def study_warnings(study: Study) -> StudyWarnings:
    """All warnings about the numbers of the study."""
    return StudyWarnings(
        tuple(state for run in study.runs for state in _states(run)),
        tuple(_study_warnings(study)),
        tuple(
            safe(f"{why.count:,} {kind}{under}: {why.reason} (such as {why.example})")
            for kind, under, why in reasons_told(study.rows)
        ),
        tuple(map(_noise, study.runs)),
    )


def words(row: Row) -> str:
    """The warnings about one number, as short as a table needs them."""
    unused = [f"does not show {', '.join(row.unused)}"] if row.unused else []
    causes = " and ".join(filter(None, ("unlisted answers" * bool(row.unlisted), "rounding" * bool(row.noise))))
    rounding = [f"{interval(row.low, row.high)} by {causes or 'rounding'}"] if row.low < row.high else []
    return ", ".join([*row.diagnosis.warnings, *unused, *row.counts, *rounding])


_SHOWN_AS_SERIOUS = (*SERIOUS, "missing", "lossy", "unknown")  # warnings that are shown as serious ones


def _states(run: ShownRun) -> Iterator[str]:
    if not run.manifest.complete:
        asked = {part for row in run.rows for part in row.selection.split(", ") if part.startswith("incomplete: ")}
        so_far = f" ({listed([part.removeprefix('incomplete: ') for part in sorted(asked)])})" if asked else ""
        yield (
            f"{run.label} is still being written, or was interrupted{so_far}: its numbers are about the items that are "
            "there so far. Repeat its run line to go on."
        )
    if run.manifest.server is not None and run.manifest.server.changed:
        yield f"{run.label}: {WARNINGS['served-model']} ({run.manifest.server.changed})."
    for damage in run.damages:
        split, subject, start, stop = damage.block.place
        yield (
            f"{run.label}: items {start + 1:,} to {stop:,} of {subject} ({split}) are left out, because "
            f"{damage.path.name} of block {damage.block.name} {damage.reason}. Repeat its run line to ask them again."
        )


def _study_warnings(study: Study) -> Iterator[ShownWarning]:
    for warning, meaning in WARNINGS.items():
        if where := _places(study, partial(_warned, warning=warning), False):
            yield ShownWarning(warning, sentence([meaning]), ADVICE[warning], warning in _SHOWN_AS_SERIOUS, where)
    for name, (what, meaning) in MEANINGS.items():
        if where := _places(study, partial(_counted, name=name), True):
            yield ShownWarning(f"{COUNTS[name]}: {what}", "", meaning, name in _SHOWN_AS_SERIOUS, where)
    if unused := sorted({name for row in study.rows for name in row.unused}):
        where = _places(study, lambda row: len(row.unused), False)
        advice = "What is asked may need them: take a protocol whose templates have them."
        yield ShownWarning("fields of the data are not shown", f"Not shown: {', '.join(unused)}.", advice, False, where)


def _warned(row: Row, warning: str) -> int:
    return int(warning in row.diagnosis.warnings)


def _counted(row: Row, name: str) -> int:
    return getattr(row, name) or 0


def _places(study: Study, count_of: Callable[[Row], int], items: bool) -> tuple[Place, ...]:
    """``items``: whether what is counted are items."""
    each = ((run, [(row, count_of(row) * items) for row in run.rows if count_of(row)]) for run in study.runs)
    return tuple(place for place in (_where(*pair) for pair in each) if place is not None)


def _where(run: ShownRun, rows: Sequence[tuple[Row, int]]) -> Place | None:
    """Which numbers of ``run`` have a warning, each with how many items; None for none."""
    if not rows:
        return None
    items = [number for _, number in rows]
    several = "" if not any(items) else f", {_span(min(items), max(items))} of {counted(run.items, 'item')}"
    names = dict.fromkeys(row.protocol for row, _ in rows)
    numbers = f"{len(rows)} of {counted(len(run.rows), 'number')}" if len(rows) < len(run.rows) else "all numbers"
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
