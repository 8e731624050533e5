"""What a run observed under one prompt, as the arrays that scores are computed from."""

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from choicewise.records.manifest import Manifest
from choicewise.results.prompt_spans import PromptSpans
from choicewise.results.run_tables import RunTables, offsets_of, read_run_tables
from choicewise.scoring.continuations import Continuations
from choicewise.scoring.decisions import gold_rows
from choicewise.scoring.distribution import option_mass
from choicewise.scoring.outside import OUTSIDE
from choicewise.scoring.ragged import Floats, Integers, Mask, row_of
from choicewise.scoring.scores import SCORES, lengths
from choicewise.scoring.scores.sensitivity import sensitivity


class Evidence:
    """The observations under one prompt (``Protocol.prompt_digest``) of every item that was asked under it, in the
    order of the item table.

    Every item has one row per choice, whether or not it could be scored; a row without an observation is missing.
    Numbers per choice are kept; the tokens they follow from, only of the prompt that was read last.  ``rescored``: the
    items whose observations are those of a float32 copy of the model, bool [items].
    """

    def __init__(self, tables: RunTables, prompt: str) -> None:
        requests = tables.requests.filter(pc.equal(tables.requests["prompt"], prompt))
        items = requests["item"].combine_chunks()
        self._tables, self._prompt = tables, prompt
        self.about = tables.items.filter(pc.is_in(tables.items["item"], items))
        self.requests = requests.take(pc.index_in(self.about["item"], items))
        self.ids: list[str] = self.about["item"].to_pylist()
        self.subjects: list[str] = self.about["subject"].to_pylist()
        self.gold: list[list[int]] = self.about["gold"].to_pylist()
        self.item_offsets: Integers = offsets_of(self.about["choices"])
        self._spans = PromptSpans(tables, prompt, self.about["item"], self.item_offsets)
        self.rescored: Mask = self._spans.rescored
        self._scores: dict[tuple[str, str | None, str], Floats] = {}

    def continuations(self, null: str | None = None) -> Continuations:
        """The scored continuations after the request's own context, or after the ``null`` context."""
        return self._continuations(null, 0)

    def parts(self) -> list[Continuations]:
        """What was observed of each thing that the reading asks about a choice; each has the same rows."""
        return [self._continuations(None, part) for part in range(self._spans.parts)]

    @cached_property
    def part_sums(self) -> list[Floats]:
        """The log-likelihoods of the parts in nats, float64 [rows] each."""
        return [part.sums for part in self.parts()]

    def values(self) -> Floats:
        """What was observed of every choice that is no log-probability, float64 [rows]; NaN where there is nothing."""
        return self._spans.values()

    def scores(self, name: str, null: str | None = None, outside: str = "keep") -> Floats:
        """One number per row, float64: greater is better, NaN is missing.  Not to be written to."""
        key = (name, null, outside)
        if key not in self._scores:
            observed = OUTSIDE[outside](self.continuations())
            self._scores[key] = SCORES[name](observed, None if null is None else self.continuations(null))
        return self._scores[key]

    def sensitivity(self, name: str, null: str | None = None, outside: str = "keep") -> Floats:
        """Units of the score per nat of numeric noise in a likelihood, float64 [rows]; NaN where not known."""
        after_null = None if null is None else self.continuations(null)
        return sensitivity(name, SCORES[name], OUTSIDE[outside](self.continuations()), after_null)

    def generated(self) -> list[str | None]:
        """The generated text of every item; None where there is none."""
        rows = self._spans.generations
        return list(self._tables.observations["text"].take(pa.array(rows, mask=rows < 0)).to_pylist())

    def generation(self) -> Continuations:
        """The generated tokens, one row per item."""
        texts = [text or "" for text in self.generated()]
        return self._tables.continuations(self._spans.generations, texts, np.arange(len(self.ids) + 1))

    def expected(self) -> list[list[str]]:
        """The continuations of every item as the request has them; empty where it could not be asked."""
        return [texts or [] for texts in self.requests["continuations"].to_pylist()]

    def options(self) -> list[list[str]]:
        """The choices of every item as they were shown; empty where the item could not be asked."""
        return [options or [] for options in self.requests["options"].to_pylist()]

    @property
    def choices(self) -> dict[str, npt.NDArray[Any]]:
        """``item`` (its id), ``subject`` and ``choice`` (its index) of each row, [rows] each."""
        item = row_of(self.item_offsets)
        names = {"item": self.ids, "subject": self.subjects}
        columns = {name: np.asarray(values, dtype=object)[item] for name, values in names.items()}
        return columns | {"choice": np.arange(len(item)) - self.item_offsets[:-1][item]}

    @cached_property
    def right(self) -> Mask:
        """Which rows are right choices, bool [rows]."""
        return gold_rows(self.gold, self.item_offsets)

    @cached_property
    def gold_index(self) -> Integers:
        """The right choice of every item, int64 [items]; -1 where several are right."""
        return np.array([gold[0] if len(gold) == 1 else -1 for gold in self.gold], dtype=np.int64)

    @cached_property
    def lengths(self) -> Floats:
        """Characters of every continuation, float64 [rows]."""
        return lengths.chars(self.continuations())

    @cached_property
    def mass(self) -> Floats:
        """The probability of an item's continuations together, float64 [items]."""
        return option_mass(self.scores("sum"), self.item_offsets)

    @cached_property
    def doubts(self) -> dict[str, Mask]:
        """Items that were not asked or scored in full, bool [items] by kind (:class:`choicewise.results.row.Row`)."""
        cut = {"shots_dropped": "shots_dropped", "truncated": "tokens_dropped"}
        requests = {name: pc.greater(pc.fill_null(self.requests[column], 0), 0) for name, column in cut.items()}
        flags = {name: self._spans.flagged(name) for name in ("merged", "noncanonical", "lossy", "unknown")}
        return {name: np.asarray(items.to_numpy(), dtype=np.bool_) for name, items in requests.items()} | flags

    @cached_property
    def merged_rows(self) -> Mask:
        """Rows with a token that straddles the end of the context, bool [rows]."""
        return np.asarray(self._spans.column("merged"), dtype=np.bool_)

    @cached_property
    def context_tokens(self) -> Integers:
        """Tokens that each row is scored after, int64 [rows]; those of its item where it was generated."""
        return self._spans.column("context_tokens")

    def _continuations(self, null: str | None, part: int) -> Continuations:
        kept, key = self._tables.latest, (self._prompt, null, part)
        if key not in kept:
            if any(prompt != self._prompt for prompt, _, _ in kept):
                kept.clear()
            kept[key] = self._spans.continuations(null, part)
        return kept[key]


class RunEvidence:
    """The evidence of the run in ``folder`` under each of its prompts.  Reads nothing before it is needed."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder, self.manifest = folder, manifest
        self._by_prompt: dict[str, Evidence] = {}

    @cached_property
    def tables(self) -> RunTables:
        """The four tables of the folder, checked against the manifest."""
        return read_run_tables(self.folder, self.manifest)

    def under(self, prompt: str) -> Evidence:
        """What was observed under a prompt (``Protocol.prompt_digest``)."""
        if prompt not in self._by_prompt:
            self._by_prompt[prompt] = Evidence(self.tables, prompt)
        return self._by_prompt[prompt]
