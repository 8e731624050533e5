"""Prepare the items of a page, the index of all and some in full, and its warnings."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from choicewise.page.item_details import Batch
from choicewise.page.study import MOST_RUNS, ShownRun, Study
from choicewise.report.tables import reason_groups
from choicewise.results.explain import ExplainedItems
from choicewise.results.number import COUNTS, SERIOUS, WARNINGS, Number
from choicewise.results.tables import item_batches
from choicewise.scoring.observed import Integers, Mask
from choicewise.util.jsonio import JsonDict
from choicewise.util.text import (
    counted,
    interval,
    listed,
    percent,
    plain,
    safe,
    sentence,
    shortened,
)

MEANINGS = {
    "missing": (
        "items could not be scored",
        "The score is a mean over the others; the reasons are below. Compare it only over shared "
        "items.",
    ),
    "cut": (
        "answers were cut before their end",
        "Of these nobody knows what the model would have answered: the range of the number holds "
        "whatever it is. Give "
        "the answers more tokens, or the thought a limit of its own.",
    ),
    "invalid": (
        "answers name no option",
        "They count as wrong, whatever the model knows. Read some of them under Items.",
    ),
    "skipped": (
        "rows of the data could not be used",
        "They are left out under every protocol. Mend the data file.",
    ),
    "shots_dropped": (
        "prompts lost examples",
        "They did not fit into the model's window, so these items got fewer examples than the "
        "protocol states.",
    ),
    "truncated": (
        "prompts were cut",
        "They did not fit into the model's window: part of the text was not seen. Take a model "
        "with a longer window.",
    ),
    "ties": (
        "items are tied",
        "Options have exactly the same best score, and the protocol's tie rule decides.",
    ),
    "near_ties": (
        "items are nearly tied",
        "Rounding could change which option is best: trust the number only within the range that "
        "the table gives.",
    ),
    "unlisted": (
        "items have answers that the server does not list",
        "Only an upper bound is known for these. If the best answer is open, the item counts as "
        "missing, and the range of the score allows for it. Request more tokens, or use another "
        "route.",
    ),
    "merged": (
        "items have a token across the end of the prompt",
        "The protocol's boundary decides which tokens are scored; another tool may score others.",
    ),
    "noncanonical": (
        "items were scored in other tokens than the text's own",
        "The protocol encodes prompt and option apart. The model rarely sees such tokens; scores "
        "can be lower.",
    ),
    "lossy": (
        "items were scored in tokens that lost text",
        "The tokenizer can't spell the text; distrust the number.",
    ),
    "unknown": (
        "items hold unknown tokens",
        "The tokenizer does not know some character; distrust the number.",
    ),
}
"""Count of a row → what it counts, and what it means for the number."""

ADVICE = {
    "served-model": "Find out what was loaded when, and run it again into a new folder.",
    "positive": (
        "Distrust the log or the server: they are no probabilities. Check it with choicewise check."
    ),
    "placeholder": "Distrust the log or the server: it had no number there. Check it with choicewise check.",
    "margins": (
        "The number is the tie rule's. Look whether log-probabilities came at all: read one under "
        "Items."
    ),
    "many-missing": "The number is about the others. Run the same command again: it asks what had no answer.",
    "cut": (
        "The number may lie anywhere in its range. Give the answers more tokens, or the thought a "
        "limit of its own."
    ),
    "many-unparsed": "They count as wrong, whatever the model knows. Read some of the texts under Items.",
    "many-tied": "The tie rule decides them: take a protocol that splits ties, or run the model in float32.",
    "chance": "Don't rank models by it: guessing could give the same.",
    "constant": (
        "The position predicts the answer better than the question does. Compare a protocol that "
        "scores the answers' texts."
    ),
    "gold-constant": "Shuffle the options of the data: the tie rule makes this number.",
    "position": (
        "A preference for places may be in the number. Take permuted options, or score the "
        "answers' texts."
    ),
    "length": (
        "The model picks longer or shorter answers than the right ones. Try a score with another "
        "length rule."
    ),
    "rounded": "Report the two bounds, and TV distance or the Brier score, which rounding hardly moves.",
    "mass": (
        "The model would rather write something else than a label. Take a protocol that scores "
        "the answers' texts."
    ),
    "near-ties": "Run the model in float32.",
    "label/text": "Labels and texts decide differently here. Report both.",
    "permutation": (
        "The answer depends on the order of the options. Report a protocol that averages over "
        "orders."
    ),
    "choices-only": "Some answers can be guessed without the question. Report that number too.",
}
"""Warning → what to do about it."""


_SHOWN_AS_SERIOUS = (*SERIOUS, "missing", "lossy", "unknown")
"""Warnings and counts that a page marks as serious."""

FEW = 1_000
"""Items of all runs together that are explained without thinking of blocks."""

_EXPLAINED = 600
"""Items of all runs together that are explained inside a page at most."""

_BATCH = 100
"""Items that are read together, and that are in one part of the page or beside it."""

_SUBJECTS = 6
"""Subjects of the items in full inside a page with many items: each subject lies in blocks of its
own.
"""

_QUESTION = 72
"""Characters of a question in the index."""


@dataclass(frozen=True)
class Occurrence:
    """A run with a warning, how many of its numbers have it in words, and the names of their
    protocols.
    """

    run: str
    numbers: str
    protocols: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ShownWarning:
    """A warning in short, its meaning and advice in a sentence each, and the runs that have it."""

    name: str
    meaning: str
    advice: str
    serious: bool
    where: tuple[Occurrence, ...]


@dataclass(frozen=True, kw_only=True)
class StudyWarnings:
    """All warnings of a page.

    ``states``: sentences about runs that are not whole. ``reasons``: why items are missing.
    ``noise``: a sentence for each run.
    """

    states: tuple[str, ...]
    warnings: tuple[ShownWarning, ...]
    reasons: tuple[str, ...]
    noise: tuple[str, ...]


def study_warnings(study: Study) -> StudyWarnings:
    """Return all warnings about the numbers of the study."""
    states: list[str] = []
    for run in study.runs:
        states += _states(run)
    reasons = []
    for group in reason_groups(study.leading):
        why = group.reason
        reasons.append(
            safe(f"{why.count:,} {group.kind}{group.under}: {why.reason} (such as {why.example})")
        )
    return StudyWarnings(
        states=tuple(states),
        warnings=tuple(_shown_warnings(study)),
        reasons=tuple(reasons),
        noise=tuple(map(_noise, study.runs)),
    )


def words(row: Number) -> str:
    """Return the warnings about one number, as short as a table needs them."""
    parts = list(row.diagnosis.warnings)
    if row.unused:
        parts.append(f"does not show {', '.join(row.unused)}")
    parts += row.tally_texts
    if row.bounds.low < row.bounds.high:
        causes = []
        if row.counts.unlisted:
            causes.append("unlisted answers")
        if row.cut:
            causes.append("cut answers")
        elif row.bounds.noise:
            causes.append("rounding")
        spelled = percent if row.share else plain
        ends = interval(row.bounds.low, row.bounds.high, spelled)
        parts.append(f"{ends} by {' and '.join(causes) or 'rounding'}")
    return ", ".join(parts)


def _states(run: ShownRun) -> Iterator[str]:
    if not run.manifest.complete:
        yield (
            f"{run.label} is still being written, or was interrupted{_progress(run)}: its numbers "
            "are about the items "
            "that are there so far. Run the same command again to resume."
        )
    server = run.manifest.server
    if server is not None and server.changed:
        yield f"{run.label}: {WARNINGS['served-model']} ({server.changed})."
    for damage in run.damages:
        split, subject, start, stop = damage.block.extent
        yield (
            f"{run.label}: items {start + 1:,} to {stop:,} of {subject} ({split}) are left out, "
            f"because {damage.path.name} of block {damage.block.name} {damage.reason}. Run the "
            "same command again to ask them."
        )


def _progress(run: ShownRun) -> str:
    """Return how many items are there, in brackets; an empty text if no number says it."""
    parts = set()
    for row in run.leading:
        for part in row.identity.selection.split(", "):
            if part.startswith("incomplete: "):
                parts.add(part.removeprefix("incomplete: "))
    if not parts:
        return ""
    return f" ({listed(sorted(parts))})"


def _shown_warnings(study: Study) -> Iterator[ShownWarning]:
    for name, meaning in WARNINGS.items():
        where = _occurrences(study, partial(_has_warning, warning=name))
        if where:
            yield ShownWarning(
                name=name,
                meaning=sentence([meaning]),
                advice=ADVICE[name],
                serious=name in _SHOWN_AS_SERIOUS,
                where=where,
            )
    for name, (subject, advice) in MEANINGS.items():
        where = _occurrences(study, partial(_item_count, name=name), counts_items=True)
        if where:
            yield ShownWarning(
                name=f"{COUNTS[name]}: {subject}",
                meaning="",
                advice=advice,
                serious=name in _SHOWN_AS_SERIOUS,
                where=where,
            )
    fields: set[str] = set()
    for row in study.leading:
        fields.update(row.unused)
    if fields:
        yield ShownWarning(
            name="fields of the data are not shown",
            meaning=f"Not shown: {', '.join(sorted(fields))}.",
            advice="The questions may need them; use a protocol whose templates have them.",
            serious=False,
            where=_occurrences(study, _unused_count),
        )


def _has_warning(row: Number, warning: str) -> int:
    return int(warning in row.diagnosis.warnings)


def _item_count(row: Number, name: str) -> int:
    return row.tally[name]


def _unused_count(row: Number) -> int:
    return len(row.unused)


def _occurrences(
    study: Study, count_of: Callable[[Number], int], counts_items: bool = False
) -> tuple[Occurrence, ...]:
    """Return the runs with a warning, which a row has if it counts something."""
    occurrences = []
    for run in study.runs:
        counts = []
        names = set()
        for row in run.leading:
            count = count_of(row)
            if count:
                counts.append(count)
                names.add(row.identity.protocol)
        if not counts:
            continue
        numbers = "all numbers"
        if len(counts) < len(run.leading):
            numbers = f"{len(counts)} of {counted(len(run.leading), 'number')}"
        if counts_items:
            numbers += f", {_span(counts)} of {counted(run.items, 'item')}"
        occurrences.append(Occurrence(run.label, numbers, tuple(_together(names, run))))
    return tuple(occurrences)


def _span(counts: Collection[int]) -> str:
    least = min(counts)
    most = max(counts)
    if least == most:
        return f"{most:,}"
    return f"{least:,} to {most:,}"


def _together(names: Collection[str], run: ShownRun) -> Iterator[str]:
    """Yield the names; one name for an entry of which all scores of the run are among them."""
    entries: dict[str, list[str]] = {}
    for name in run.protocols:
        entries.setdefault(name.partition(":")[0], []).append(name)
    for entry, scores in entries.items():
        chosen = [name for name in scores if name in names]
        if len(chosen) == len(scores) > 1:
            yield f"{entry} (all {len(scores)} scores)"
        else:
            yield from chosen


def _noise(run: ShownRun) -> str:
    imported = run.manifest.imported
    if imported is not None:
        return (
            f"{run.label}: not known, as {imported.tool} computed the numbers, and no model here."
        )
    check = run.manifest.engine.selfcheck
    if check is None:
        return f"{run.label}: not measured, as the model was not checked."
    return (
        f"{run.label}: two ways of computing a token's log-probability differ by up to "
        f"{check.noise:.2g} nats, "
        f"a sum over n tokens by √n times that."
    )


@dataclass(frozen=True)
class Answered:
    """What one run answered: ``right`` and ``measured``, bool [protocols, items] in the order of
    the index.
    """

    protocols: tuple[str, ...]
    right: Mask
    measured: Mask

    @cached_property
    def rights(self) -> Integers:
        """Count the protocols under which each item is right, int64 [items]."""
        return np.asarray(self.right.sum(axis=0), dtype=np.int64)

    @cached_property
    def measures(self) -> Integers:
        """Count the protocols under which each item was scored, int64 [items]."""
        return np.asarray(self.measured.sum(axis=0), dtype=np.int64)

    @property
    def flips(self) -> Integers:
        """Count the protocols in the minority about each item, int64 [items]: 0 if all agree
        whether it is right.
        """
        return np.minimum(self.rights, self.measures - self.rights)


@dataclass(frozen=True, kw_only=True)
class ItemIndex:
    """The items that ``runs`` on one dataset asked, in the order of the data; ``answered`` has an
    entry per run.
    """

    ids: tuple[str, ...]
    subjects: tuple[str, ...]
    questions: tuple[str, ...]
    golds: tuple[tuple[int, ...], ...]
    answered: tuple[Answered, ...]

    @cached_property
    def flips(self) -> Integers:
        """Add up the flips of all runs, int64 [items]."""
        return np.sum([run.flips for run in self.answered], axis=0, dtype=np.int64)

    @cached_property
    def order(self) -> list[int]:
        """Return the positions of the items, those that flip most first."""
        positions: list[int] = np.argsort(-self.flips, kind="stable").tolist()
        return positions


@dataclass(frozen=True)
class Items:
    """The items of one dataset.

    ``dataset``: its digest. ``runs``: the positions of its runs in the study, no more than there is
    room for. ``index``: a line per item.
    """

    dataset: str
    runs: tuple[int, ...]
    index: ItemIndex

    @property
    def first_rows(self) -> list[list[str]]:
        """Return the items that flip most, as the page shows them without a script."""
        index = self.index
        rows = []
        for position in index.order[:12]:
            row = [index.ids[position], index.questions[position], index.subjects[position]]
            for answered in index.answered[:4]:
                row.append(f"{answered.rights[position]} of {answered.measures[position]}")
            rows.append(row)
        return rows


def study_items(study: Study) -> list[Items]:
    """Return the items of every dataset of the study."""
    items = []
    for digest, positions in study.datasets.items():
        chosen = tuple(positions[:MOST_RUNS])
        index = index_items([study.runs[position] for position in chosen])
        items.append(Items(digest, chosen, index))
    return items


def index_data(items: Items, protocols: Sequence[str]) -> JsonDict:
    """Return the index for the page's script: columns, and a bit for each item and protocol."""
    index = items.index
    numbers = {name: number for number, name in enumerate(protocols)}
    subjects = list(dict.fromkeys(index.subjects))
    subject_numbers = {subject: number for number, subject in enumerate(subjects)}
    runs = []
    for run, answered in zip(items.runs, index.answered, strict=True):
        runs.append(
            {
                "run": run,
                "protocols": [numbers[name] for name in answered.protocols],
                "right": answered.rights.tolist(),
                "of": answered.measures.tolist(),
                "bits": [packed(row) for row in answered.right],
                "asked": [_packed_gaps(row) for row in answered.measured],
            }
        )
    return {
        "ids": index.ids,
        "subjects": subjects,
        "subject": [subject_numbers[subject] for subject in index.subjects],
        "questions": index.questions,
        "gold": index.golds,
        "flips": index.flips.tolist(),
        "runs": runs,
    }


def _packed_gaps(measured: Mask) -> str:
    """Return a bit per item, or an empty text if all items were scored."""
    if measured.all():
        return ""
    return packed(measured)


def inside(items: Items) -> list[int]:
    """Return the positions of the items that a page holds in full if there is room, those that flip
    most first.
    """
    index = items.index
    runs = len(items.runs)
    has_few = len(index.ids) * runs <= FEW
    subjects: set[str] = set()
    chosen = []
    for position in index.order:
        subject = index.subjects[position]
        # Every subject is read from blocks of its own: few subjects keep a large page quick to
        # write.
        if has_few or subject in subjects or len(subjects) < _SUBJECTS:
            subjects.add(subject)
            chosen.append(position)
        if len(chosen) * runs >= _EXPLAINED:
            break
    return chosen


def details(study: Study, items: Items, chosen: Sequence[int]) -> Iterator[tuple[list[int], Batch]]:
    """Yield the items at the ``chosen`` positions of the index in full, a batch at a time: the
    positions, and the batch.
    """
    opened = {number: study.runs[number].open() for number in items.runs}
    for start in range(0, len(chosen), _BATCH):
        positions = list(chosen[start : start + _BATCH])
        ids = [items.index.ids[position] for position in positions]
        explained = {}
        for number, run in opened.items():
            asked = _items_of(study.runs[number])
            explained[number] = ExplainedItems(run, [item for item in ids if item in asked])
        yield positions, Batch(explained, list(study.protocols))


def index_items(runs: Sequence[ShownRun]) -> ItemIndex:
    """Return the index of the items of ``runs``, which are about one dataset."""
    subjects: dict[str, str] = {}
    questions: dict[str, str] = {}
    golds: dict[str, tuple[int, ...]] = {}
    for run in runs:
        asked = pa.array(sorted(_items_of(run) - subjects.keys()), pa.string())
        # The items of a run that adds none need not be read.
        if not len(asked):
            continue
        for batch in item_batches(run.folder, ("item", "subject", "question", "gold")):
            for record in batch.filter(pc.is_in(batch["item"], asked)).to_pylist():
                item = record["item"]
                if item in subjects:
                    continue
                subjects[item] = record["subject"]
                beginning = " ".join(record["question"][: 4 * _QUESTION].split())
                questions[item] = shortened(beginning, _QUESTION)
                golds[item] = tuple(record["gold"])
    ids = pa.array(subjects, pa.string())
    return ItemIndex(
        ids=tuple(subjects),
        subjects=tuple(subjects.values()),
        questions=tuple(questions.values()),
        golds=tuple(golds.values()),
        answered=tuple(_answered(run, ids) for run in runs),
    )


def packed(items: Mask) -> str:
    """Return a bit per item, the first one the highest of the first byte, in base64."""
    return b64encode(np.packbits(items).tobytes()).decode()


def _items_of(run: ShownRun) -> set[str]:
    """Return the ids of the items that a run was asked about."""
    # Most outcomes share one table of items.
    tables = {id(outcome.items): outcome.items for outcome in run.outcomes.outcomes}
    items: set[str] = set()
    for table in tables.values():
        items.update(table["item"].to_pylist())
    return items


def _answered(run: ShownRun, ids: pa.Array) -> Answered:
    outcomes = run.outcomes.outcomes
    right = np.zeros((len(outcomes), len(ids)), dtype=np.bool_)
    measured = np.zeros_like(right)
    # Most outcomes share one table of items, which is looked up once.
    columns_of_table: dict[int, Integers] = {}
    for number, outcome in enumerate(outcomes):
        key = id(outcome.items)
        if key not in columns_of_table:
            columns = pc.index_in(outcome.ids.combine_chunks(), ids)
            columns_of_table[key] = columns.to_numpy().astype(np.int64)
        columns = columns_of_table[key]
        # NaN is not greater, so that a missing item is not right.
        right[number, columns] = (outcome.values > 0.5)[outcome.codes]
        measured[number, columns] = (~np.isnan(outcome.values))[outcome.codes]
    return Answered(tuple(outcome.name for outcome in outcomes), right, measured)
