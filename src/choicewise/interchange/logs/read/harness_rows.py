"""The lines of a file of samples of lm-evaluation-harness 0.4, in the order of their ids."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from choicewise.data.text_file import read_text
from choicewise.errors import DataError
from choicewise.interchange.logs.read.harness_files import begins_a_list
from choicewise.interchange.logs.read.harness_sample import Sample, read_sample, sample_key
from choicewise.interchange.logs.read.lines import object_at, objects


@dataclass(frozen=True)
class SampleRows:
    """The sample lines of one filter in the order of their ids: where they begin, or the lines themselves."""

    path: Path
    filter: str
    ids: list[int]
    places: list[int]
    lines: list[dict[str, Any]] | None
    others: tuple[str, ...]

    def __iter__(self) -> Iterator[Sample]:
        for doc_id, place in zip(self.ids, self.places, strict=True):
            row = object_at(self.path, place) if self.lines is None else self.lines[place]
            yield read_sample(row, f"{self.path}, doc_id {doc_id}")


def sample_rows(path: Path) -> SampleRows:
    """Where the samples lie.  Raises DataError where an id stands twice, or the file holds nothing."""
    lines: list[dict[str, Any]] | None = None
    if begins_a_list(path):
        try:
            lines = json.loads(read_text(path))
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path}: no JSON ({error}); was its writing cut off? Copy it again") from error
        if wrong := [place for place, row in enumerate(lines or ()) if not isinstance(row, dict)]:
            raise DataError(f"{path}: entry {wrong[0]} (counted from 0) is no JSON object")
        keys = [(*sample_key(row, f"{path}, entry {place}"), place) for place, row in enumerate(lines or ())]
    else:
        keys = [(*sample_key(row, f"{path}, line {line}"), offset) for line, offset, row in objects(path)]
    if not keys:
        raise DataError(f"{path} holds no samples")
    filters = list(dict.fromkeys(name for name, _, _ in keys))
    chosen = "none" if "none" in filters else filters[0]
    own = sorted((doc_id, place) for name, doc_id, place in keys if name == chosen)
    counts = Counter(doc_id for doc_id, _ in own)
    if doubles := [doc_id for doc_id, count in counts.items() if count > 1]:
        raise DataError(
            f"{path} has doc_id {doubles[0]} more than once ({len(doubles):,} ids are); is it of two models or runs? "
            "Import them one by one"
        )
    ids, places = ([each[side] for each in own] for side in (0, 1))
    return SampleRows(path, chosen, ids, places, lines, tuple(name for name in filters if name != chosen))
