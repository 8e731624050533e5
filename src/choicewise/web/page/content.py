"""What the sections of a page show, computed once for the drawings, the tables and the script."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from choicewise.results.main_effects import Effect
from choicewise.web import pairs
from choicewise.web.charts import bump, effects, ladder, pair, ranks, strip
from choicewise.web.page import again, doubts, items, numbers, order, sheets, why
from choicewise.web.page.figure import Record, Spec
from choicewise.web.study import Study

DETAILED = 24
"""Runs whose ladders and answers to every item are on a page."""

SPECS: Mapping[str, Spec] = {
    "strip": lambda values, width: strip.spec(values, width=width),
    "ladder": lambda values, width: ladder.spec(values, width=width),
    "effects": lambda values, width: effects.spec(values, width=width),
    "rank": lambda values, width: bump.spec(values, rank=True, width=width),
    "score": lambda values, width: bump.spec(values, rank=False, width=width),
    "ranks": lambda values, width: ranks.spec(values, width=width),
    "pair": lambda values, width: pair.spec(values, width=width),
}
"""The charts of a page."""

CAPTIONS = {
    "ladder": ladder.CAPTION,
    "effects": effects.CAPTION,
    "order": bump.CAPTION,
    "ranks": ranks.CAPTION,
    "pair": pair.CAPTION,
}
"""What stands below them."""


@dataclass(frozen=True)
class Content:
    """The contents of a page of ``study``, each made when it is first asked for."""

    study: Study

    @cached_property
    def numbers(self) -> dict[str, int]:
        """Place of every protocol among those of the study, by name."""
        return {name: place for place, name in enumerate(self.study.protocols)}

    @cached_property
    def strips(self) -> list[list[Record]]:
        """A: the chart's values of every run."""
        return [strip.values(run.rows) for run in self.study.runs]

    @cached_property
    def tables(self) -> list[list[list[str]]]:
        """A: the table of every run."""
        return [numbers.table(run) for run in self.study.runs]

    @cached_property
    def steps(self) -> list[why.Steps]:
        """B: all ways between two numbers, of the first runs."""
        return [why.steps(run) for run in self.study.runs[:DETAILED]]

    @cached_property
    def ways(self) -> list[tuple[str, str] | None]:
        """B: of every run the two numbers that stand there at first."""
        told = [why.telling(run, steps) for run, steps in zip(self.study.runs, self.steps, strict=False)]
        return [*told, *(why.extremes(run) for run in self.study.runs[DETAILED:])]

    @cached_property
    def climbed(self) -> list[Record]:
        """B: the way that stands there at first; nothing where there is none."""
        way = self.ways[0]
        return self.steps[0].records(*way) if way is not None and way in self.steps[0].ways else []

    @cached_property
    def effects(self) -> list[list[Effect]]:
        """B: the main effects of the first runs."""
        return [why.effects(run) for run in self.study.runs[:DETAILED]]

    @cached_property
    def compared(self) -> list[pairs.Pair]:
        """D: every pair of the first runs."""
        return pairs.pairs(self.study)

    @cached_property
    def orders(self) -> list[order.Order]:
        """C: one per dataset with several models."""
        return order.orders(self.study, self.compared)

    @cached_property
    def listed(self) -> list[items.Items]:
        """E: the items of every dataset."""
        return items.study_items(self.study)

    @cached_property
    def sheets(self) -> list[sheets.Sheet]:
        """F: the protocols."""
        return sheets.sheets(self.study)

    @cached_property
    def doubts(self) -> doubts.Doubts:
        """G: everything that speaks against a number."""
        return doubts.study_doubts(self.study)

    @cached_property
    def recipes(self) -> list[again.Recipe]:
        """H: how to repeat every run."""
        return again.recipes(self.study)

    def pair_values(self, compared: pairs.Pair) -> list[Record]:
        """D: the chart's values of one pair."""
        names = self.study.runs[compared.left].label, self.study.runs[compared.right].label
        return pair.values(*names, compared.contests) if compared.contests else []
