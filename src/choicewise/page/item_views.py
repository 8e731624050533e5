"""The items of a page, the index of all and some in full, and what its warnings say."""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from choicewise.page.study import MOST_RUNS, ShownRun, Study
from choicewise.report.tables import reasons_told
from choicewise.results.explain import (
    ExplainedRequest,
    Explanation,
    ItemDecision,
    ScoredContinuation,
    explain_items,
)
from choicewise.results.rows import COUNTS, SERIOUS, WARNINGS, Row
from choicewise.results.run import open_run
from choicewise.results.tables import item_batches
from choicewise.scoring.observed import Integers, Mask
from choicewise.util.text import (
    counted,
    disarmed,
    interval,
    listed,
    plain,
    safe,
    sentence,
    shortened,
    shown,
    shown_line,
)

MEANINGS = {
    "missing": (
        "items could not be scored",
        "The number is a mean over the others. The reasons stand below; compare it only over items that both have.",
    ),
    "cut": (
        "answers were cut before their end",
        "Of these nobody knows what the model would have answered: the range of the number holds whatever it is. Give "
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
        "They did not fit into the model's window: these items were asked with fewer examples than the protocol says.",
    ),
    "truncated": (
        "prompts were cut",
        "They did not fit into the model's window: part of the text was not seen. Take a model with a longer window.",
    ),
    "ties": (
        "items are tied",
        "Options have exactly the same best score, and the protocol's tie rule decides.",
    ),
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
    "positive": "Distrust the log or the server: they are no probabilities. Check it with choicewise check.",
    "placeholder": "Distrust the log or the server: it had no number there. Check it with choicewise check.",
    "margins": "The number is the tie rule's. Look whether log-probabilities came at all: read one under Items.",
    "many-missing": "The number is about the others. Run the same command again: it asks what had no answer.",
    "cut": "The number may lie anywhere in its range. Give the answers more tokens, or the thought a limit of its own.",
    "many-unparsed": "They count as wrong, whatever the model knows. Read some of the texts under Items.",
    "many-tied": "The tie rule decides them: take a protocol that splits ties, or run the model in float32.",
    "chance": "Don't rank models by it: guessing could give the same.",
    "constant": "The position says more than the item does. Look whether scores of the answers' texts differ.",
    "gold-constant": "Shuffle the options of the data: the tie rule makes this number.",
    "position": "A preference for places may be in the number. Take permuted options, or score the answers' texts.",
    "length": "The model picks longer or shorter answers than the right ones. Try a score with another length rule.",
    "rounded": "Report the two bounds, and TV distance or the Brier score, which rounding hardly moves.",
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
            for kind, under, why in reasons_told(study.leading)
        ),
        tuple(map(_noise, study.runs)),
    )


def words(row: Row) -> str:
    """The warnings about one number, as short as a table needs them."""
    unused = [f"does not show {', '.join(row.unused)}"] if row.unused else []
    told = ("unlisted answers" * bool(row.unlisted), "cut answers" * bool(row.cut))
    causes = " and ".join(filter(None, (*told, "rounding" * bool(row.noise and not row.cut))))
    ends = interval(row.low, row.high, None if row.share else plain)
    rounding = [f"{ends} by {causes or 'rounding'}"] if row.low < row.high else []
    return ", ".join([*row.diagnosis.warnings, *unused, *row.counts, *rounding])


_SHOWN_AS_SERIOUS = (
    *SERIOUS,
    "missing",
    "lossy",
    "unknown",
)  # warnings that are shown as serious ones


def _states(run: ShownRun) -> Iterator[str]:
    if not run.manifest.complete:
        asked = {
            part
            for row in run.leading
            for part in row.selection.split(", ")
            if part.startswith("incomplete: ")
        }
        so_far = (
            f" ({listed([part.removeprefix('incomplete: ') for part in sorted(asked)])})"
            if asked
            else ""
        )
        yield (
            f"{run.label} is still being written, or was interrupted{so_far}: its numbers are about the items that are "
            "there so far. Run the same command again to resume."
        )
    if run.manifest.server is not None and run.manifest.server.changed:
        yield f"{run.label}: {WARNINGS['served-model']} ({run.manifest.server.changed})."
    for damage in run.damages:
        split, subject, start, stop = damage.block.place
        yield (
            f"{run.label}: items {start + 1:,} to {stop:,} of {subject} ({split}) are left out, because "
            f"{damage.path.name} of block {damage.block.name} {damage.reason}. Run the same command again to ask them."
        )


def _study_warnings(study: Study) -> Iterator[ShownWarning]:
    for warning, meaning in WARNINGS.items():
        if where := _places(study, partial(_warned, warning=warning), False):
            yield ShownWarning(
                warning, sentence([meaning]), ADVICE[warning], warning in _SHOWN_AS_SERIOUS, where
            )
    for name, (what, meaning) in MEANINGS.items():
        if where := _places(study, partial(_counted, name=name), True):
            yield ShownWarning(
                f"{COUNTS[name]}: {what}", "", meaning, name in _SHOWN_AS_SERIOUS, where
            )
    if unused := sorted({name for row in study.leading for name in row.unused}):
        where = _places(study, lambda row: len(row.unused), False)
        advice = "What is asked may need them: take a protocol whose templates have them."
        yield ShownWarning(
            "fields of the data are not shown",
            f"Not shown: {', '.join(unused)}.",
            advice,
            False,
            where,
        )


def _warned(row: Row, warning: str) -> int:
    return int(warning in row.diagnosis.warnings)


def _counted(row: Row, name: str) -> int:
    return getattr(row, name) or 0


def _places(study: Study, count_of: Callable[[Row], int], items: bool) -> tuple[Place, ...]:
    """``items``: whether what is counted are items."""
    each = (
        (run, [(row, count_of(row) * items) for row in run.leading if count_of(row)])
        for run in study.runs
    )
    return tuple(place for place in (_where(*pair) for pair in each) if place is not None)


def _where(run: ShownRun, rows: Sequence[tuple[Row, int]]) -> Place | None:
    """Which numbers of ``run`` have a warning, each with how many items; None for none."""
    if not rows:
        return None
    items = [number for _, number in rows]
    several = (
        ""
        if not any(items)
        else f", {_span(min(items), max(items))} of {counted(run.items, 'item')}"
    )
    names = dict.fromkeys(row.protocol for row, _ in rows)
    every = len(run.leading)
    numbers = f"{len(rows)} of {counted(every, 'number')}" if len(rows) < every else "all numbers"
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
        return (
            f"{run.label}: not known, as {imported.tool} computed the numbers, and no model here."
        )
    if check is None:
        return f"{run.label}: not measured, as the model was not checked."
    return (
        f"{run.label}: two ways of computing a token's log-probability differ by up to {check.noise:.2g} nats, "
        f"a sum over n tokens by √n times that."
    )


FEW, _EXPLAINED = 1_000, 600
"""Items of all runs together that are explained without thinking of blocks, and at most inside a page."""


@dataclass(frozen=True)
class Answered:
    """What one run answered: ``right`` and ``measured``, bool [protocols, items] in the order of the index."""

    protocols: tuple[str, ...]
    right: Mask
    measured: Mask

    @cached_property
    def rights(self) -> Integers:
        """Protocols under which each item is right, int64 [items]."""
        return np.asarray(self.right.sum(axis=0), dtype=np.int64)

    @cached_property
    def measures(self) -> Integers:
        """Protocols under which each item was scored, int64 [items]."""
        return np.asarray(self.measured.sum(axis=0), dtype=np.int64)

    @property
    def flips(self) -> Integers:
        """Protocols in the minority about each item, int64 [items]: 0 where all agree whether it is right."""
        return np.minimum(self.rights, self.measures - self.rights)


@dataclass(frozen=True)
class ItemIndex:
    """The items that ``runs`` on one dataset asked, in the order of the data; ``answered`` has an entry per run."""

    ids: tuple[str, ...]
    subjects: tuple[str, ...]
    questions: tuple[str, ...]
    golds: tuple[tuple[int, ...], ...]
    answered: tuple[Answered, ...]

    @cached_property
    def flips(self) -> Integers:
        """The flips of all runs together, int64 [items]."""
        return np.sum([each.flips for each in self.answered], axis=0, dtype=np.int64)

    @cached_property
    def order(self) -> list[int]:
        """Places of the items, those that flip most first."""
        return [int(place) for place in np.argsort(-self.flips, kind="stable")]


@dataclass(frozen=True)
class Items:
    """The items of one dataset.

    ``places``: its runs in the study, no more than there is room for; ``index``: a line per item.
    """

    dataset: str
    places: tuple[int, ...]
    index: ItemIndex


def study_items(study: Study) -> list[Items]:
    """The items of every dataset of the study."""
    chosen = [(digest, places[:MOST_RUNS]) for digest, places in study.datasets.items()]
    return [
        Items(digest, tuple(places), index_items([study.runs[place] for place in places]))
        for digest, places in chosen
    ]


def index_data(items: Items, protocols: Sequence[str]) -> dict[str, Any]:
    """The index for the page's script: columns, and a bit for each item and protocol."""
    index, number = items.index, {name: place for place, name in enumerate(protocols)}
    subjects = list(dict.fromkeys(index.subjects))
    place_of = {subject: place for place, subject in enumerate(subjects)}
    runs = []
    for place, each in zip(items.places, index.answered, strict=True):
        whole = [bool(row.all()) for row in each.measured]
        runs.append(
            {
                "run": place,
                "protocols": [number[name] for name in each.protocols],
                "right": each.rights.tolist(),
                "of": each.measures.tolist(),
                "bits": [packed(row) for row in each.right],
                "asked": [
                    "" if all_ else packed(row)
                    for all_, row in zip(whole, each.measured, strict=True)
                ],
            }
        )
    return {
        "ids": index.ids,
        "subjects": subjects,
        "subject": [place_of[subject] for subject in index.subjects],
        "questions": index.questions,
        "gold": index.golds,
        "flips": index.flips.tolist(),
        "runs": runs,
    }


def first_rows(items: Items) -> list[list[str]]:
    """The items that flip most, as the page shows them without a script."""
    index = items.index
    rows = []
    for place in index.order[:12]:
        rights = (f"{each.rights[place]} of {each.measures[place]}" for each in index.answered[:4])
        rows.append([index.ids[place], index.questions[place], index.subjects[place], *rights])
    return rows


def inside(items: Items) -> list[int]:
    """The places of the items that a page holds in full where there is room, those that flip most first."""
    index, runs = items.index, len(items.places)
    few = len(index.ids) * runs <= FEW
    subjects: set[str] = set()
    chosen = []
    for place in index.order:
        subject = index.subjects[place]
        if few or subject in subjects or len(subjects) < _SUBJECTS:
            subjects.add(subject)
            chosen.append(place)
        if len(chosen) * runs >= _EXPLAINED:
            break
    return chosen


def details(
    study: Study, items: Items, chosen: Sequence[int]
) -> Iterator[tuple[list[int], dict[str, Any]]]:
    """The items at the ``chosen`` places of the index in full, so many at once: the places, and their data."""
    protocols = list(study.protocols)
    for start in range(0, len(chosen), _AT_ONCE):
        places = list(chosen[start : start + _AT_ONCE])
        ids = [items.index.ids[place] for place in places]
        explained: dict[str, list[tuple[int, Explanation]]] = {name: [] for name in ids}
        for place in items.places:
            for explanation in _explained(study.runs[place], ids):
                explained[explanation.item].append((place, explanation))
        texts = Texts()
        full = [item_detail(each, protocols, texts) for each in explained.values() if each]
        yield places, {"texts": texts.pieces, "items": full}


LONGEST = 20_000
"""Characters of one text that a page shows; of a longer one it says how much is left out."""


class Texts:
    """Texts of prompts in pieces, each piece once: the shots of an item are those of most of its subject."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self._places: dict[str, int] = {}

    def add(self, text: str) -> list[int]:
        """The places of the pieces of ``text``, whose white space is made visible."""
        whole = shown(text[:LONGEST])
        if len(text) > LONGEST:
            whole += f"\n… {len(text) - LONGEST:,} more characters"
        places = []
        for piece in _pieces(whole):
            if piece not in self._places:
                self._places[piece] = len(self.pieces)
                self.pieces.append(piece)
            places.append(self._places[piece])
        return places


def item_detail(
    explained: Sequence[tuple[int, Explanation]], protocols: Sequence[str], texts: Texts
) -> dict[str, Any]:
    """One item as ``explained`` by one or several runs, each with its place on the page.

    ``protocols``: all names on the page; the data name them by their places.  Others are left out: their numbers are
    no shares of 1.
    """
    number = {name: place for place, name in enumerate(protocols)}
    first = explained[0][1]
    return {
        "id": disarmed(first.item),
        "subject": disarmed(first.subject),
        "question": shown(first.question[:LONGEST]),
        "choices": [shown_line(choice[:LONGEST]) for choice in first.choices],
        "gold": first.gold,
        "runs": {
            str(place): {
                "asked": [_item_detail_asked(each, number, texts) for each in explanation.asked],
                "decided": [
                    _decided(each, number)
                    for each in explanation.decided
                    if each.protocol in number
                ],
            }
            for place, explanation in explained
        },
    }


def index_items(runs: Sequence[ShownRun]) -> ItemIndex:
    """The index of the items of ``runs``, which are about one dataset."""
    about: dict[str, tuple[str, str, tuple[int, ...]]] = {}
    for run in runs:
        asked = pa.array(sorted(_item_index_asked(run) - about.keys()), pa.string())
        for batch in (
            item_batches(run.folder, ("item", "subject", "question", "gold")) if len(asked) else ()
        ):
            for row in batch.filter(pc.is_in(batch["item"], asked)).to_pylist():
                about.setdefault(row["item"], (row["subject"], row["question"], tuple(row["gold"])))
    ids = pa.array(about, pa.string())
    return ItemIndex(
        tuple(about),
        tuple(subject for subject, _, _ in about.values()),
        tuple(
            shortened(" ".join(question[: 4 * _QUESTION].split()), _QUESTION)
            for _, question, _ in about.values()
        ),
        tuple(gold for _, _, gold in about.values()),
        tuple(_answered(run, ids) for run in runs),
    )


def packed(items: Mask) -> str:
    """A bit per item, the first one the highest of the first byte, in base64."""
    return b64encode(np.packbits(items).tobytes()).decode()


_AT_ONCE = 100  # items that are read together, and that stand in one part of the page or beside it

_SUBJECTS = 6
"""Subjects of the items in full inside a page, where there are many items: each subject lies in blocks of its own."""


def _explained(run: ShownRun, ids: Sequence[str]) -> list[Explanation]:
    wanted = pa.array(ids, pa.string())
    asked = {id(each.items): each.ids.combine_chunks() for each in run.outcomes.outcomes}
    known = {
        item for own in asked.values() for item in wanted.filter(pc.is_in(wanted, own)).to_pylist()
    }
    return explain_items(open_run(run.folder), [name for name in ids if name in known])


_MOST_TOKENS = 200  # tokens of one continuation that a page shows
_NO_TEXT = "(the log has no text of it)"  # of a continuation in another tool's log


def _pieces(text: str) -> list[str]:
    """The paragraphs of ``text``, each with the empty lines after it; together they are the text."""
    parts = text.split("⏎\n⏎\n")
    return [f"{part}⏎\n⏎\n" for part in parts[:-1]] + parts[-1:]


def _item_detail_asked(
    asked: ExplainedRequest, number: dict[str, int], texts: Texts
) -> dict[str, Any]:
    notes = [*asked.notes, *([] if asked.missing is None else [f"not asked: {asked.missing}"])]
    return {
        "protocols": [number[name] for name in asked.protocols if name in number],
        "how": f"{asked.reading}, boundary {asked.boundary}",
        "notes": list(map(disarmed, notes)),
        "context": None if asked.context is None else texts.add(asked.context),
        "scored": [_scored(each, texts) for alike in asked.beside for each in alike],
    }


def _scored(scored: ScoredContinuation, texts: Texts) -> dict[str, Any]:
    warnings = list(map(disarmed, scored.warnings))
    if len(scored.tokens) > _MOST_TOKENS:
        warnings.append(f"{len(scored.tokens) - _MOST_TOKENS} more tokens")
    text = scored.continuation if scored.generated is None else scored.generated
    text = _NO_TEXT if text is None else text
    about: dict[str, Any] = {
        "choice": -1 if scored.generated is not None else scored.choice,
        "text": shown_line(text[:LONGEST]),
        "total": _rounded(scored.total),
        "tokens": [
            [shown_line(token.text), _rounded(token.logprob)]
            for token in scored.tokens[:_MOST_TOKENS]
        ],
    }
    further = {
        "part": scored.part or None,
        "null": None if scored.null is None else shown_line(scored.null),
        "context": None if scored.context is None else texts.add(scored.context),
        "value": _rounded(scored.value),
        "most": scored.at_most or None,
        "before": _rounded(scored.before),
        "after": _rounded(scored.after),
        "warnings": warnings or None,
    }
    return about | {name: value for name, value in further.items() if value is not None}


def _decided(decided: ItemDecision, number: dict[str, int]) -> list[Any]:
    """Protocol, predicted choice, credit, 2 for a tie and 1 for a near tie, the scores in three digits."""
    tie = 2 if decided.tied else 1 if decided.near_tie else 0
    scores = None if decided.scores is None else [_rounded(score) for score in decided.scores]
    about = [number[decided.protocol], decided.prediction, _rounded(decided.credit), tie, scores]
    return [*about, [int(bound) for bound in decided.at_most]] if any(decided.at_most) else about


def _rounded(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(f"{value:.3g}")


_QUESTION = 72  # characters of a question that stand in the list


def _item_index_asked(run: ShownRun) -> set[str]:
    tables = {id(each.items): each.items for each in run.outcomes.outcomes}
    return {item for table in tables.values() for item in table["item"].to_pylist()}


def _answered(run: ShownRun, ids: pa.Array) -> Answered:
    outcomes = run.outcomes.outcomes
    right = np.zeros((len(outcomes), len(ids)), dtype=np.bool_)
    measured = np.zeros_like(right)
    places: dict[int, Integers] = {}
    for number, each in enumerate(outcomes):
        if id(each.items) not in places:
            places[id(each.items)] = (
                pc.index_in(each.ids.combine_chunks(), ids).to_numpy().astype(np.int64)
            )
        at = places[id(each.items)]
        right[number, at] = (each.values > 0.5)[each.codes]  # NaN is not greater
        measured[number, at] = (~np.isnan(each.values))[each.codes]
    return Answered(tuple(each.name for each in outcomes), right, measured)
