"""Section E: the items, those that flip most first, and as many of them in full as there is room and time for."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from choicewise.results.explanation import Explanation, explain_items
from choicewise.results.run import open_run
from choicewise.web.page.item_detail import Texts, item_detail
from choicewise.web.page.item_index import ItemIndex, index_items, packed
from choicewise.web.study import ShownRun, Study

MOST_RUNS = 24
"""Runs whose answers to every item are on a page: a bit for every item and protocol."""

AT_ONCE = 100
"""Items that are read together, and that stand in one part of the page or beside it."""

SUBJECTS = 6
"""Subjects of the items in full inside a page, where there are many items: each subject lies in blocks of its own."""

FEW, EXPLAINED = 1_000, 600
"""Items of all runs together that are explained without thinking of blocks, and at most inside a page."""


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
        Items(digest, tuple(places), index_items([study.runs[place] for place in places])) for digest, places in chosen
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
                "asked": ["" if all_ else packed(row) for all_, row in zip(whole, each.measured, strict=True)],
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
    return [
        [
            index.ids[place],
            index.questions[place],
            index.subjects[place],
            *(f"{each.rights[place]} of {each.measures[place]}" for each in index.answered[:4]),
        ]
        for place in index.order[:12]
    ]


def inside(items: Items) -> list[int]:
    """The places of the items that a page holds in full where there is room, those that flip most first."""
    index, runs = items.index, len(items.places)
    few = len(index.ids) * runs <= FEW
    subjects: set[str] = set()
    chosen = []
    for place in index.order:
        subject = index.subjects[place]
        if few or subject in subjects or len(subjects) < SUBJECTS:
            subjects.add(subject)
            chosen.append(place)
        if len(chosen) * runs >= EXPLAINED:
            break
    return chosen


def details(study: Study, items: Items, chosen: Sequence[int]) -> Iterator[tuple[list[int], dict[str, Any]]]:
    """The items at the ``chosen`` places of the index in full, so many at once: the places, and their data."""
    protocols = list(study.protocols)
    for start in range(0, len(chosen), AT_ONCE):
        places = list(chosen[start : start + AT_ONCE])
        ids = [items.index.ids[place] for place in places]
        explained: dict[str, list[tuple[int, Explanation]]] = {name: [] for name in ids}
        for place in items.places:
            for explanation in _explained(study.runs[place], ids):
                explained[explanation.item].append((place, explanation))
        texts = Texts()
        full = [item_detail(each, protocols, texts) for each in explained.values() if each]
        yield places, {"texts": texts.pieces, "items": full}


def _explained(run: ShownRun, ids: Sequence[str]) -> list[Explanation]:
    wanted = pa.array(ids, pa.string())
    asked = {id(each.items): each.ids.combine_chunks() for each in run.outcomes.outcomes}
    known = {item for own in asked.values() for item in wanted.filter(pc.is_in(wanted, own)).to_pylist()}
    return explain_items(open_run(run.folder), [name for name in ids if name in known])
