"""Questions about finished runs.

Signal, audit, twins, invariance, reliability, checkpoints along training, and others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from choicewise.ports import ChartKind, Extension, PageSections, PairStatistic

if TYPE_CHECKING:
    from choicewise.page.charts.chart import Chart
    from choicewise.page.charts.choices import Choices
    from choicewise.page.embed import Section
    from choicewise.page.study import Study
    from choicewise.results.compare import Comparison
    from choicewise.results.measurement import Measurement
    from choicewise.results.run import Run


class TwinStatistic(PairStatistic):
    """How far a model and its twin part, such as a quantised one."""

    name = "twins"
    summary = "how far two models part that were asked the same tokens"

    def figures(self, runs: tuple[Run, Run], pairs: Sequence[tuple[Measurement, Measurement]]) -> Sequence[Any]:
        """Return flips, divergence and loss per token of each pair."""
        from choicewise.extensions.analyses.twins import read_likelihoods, twins

        evidence = runs[0].evidence, runs[1].evidence
        read_likelihoods(evidence[0], [left for left, _ in pairs])
        read_likelihoods(evidence[1], [right for _, right in pairs])
        return [twins(evidence, pair) for pair in pairs]

    def lines(self, comparison: Comparison, figure: Any) -> Iterator[str]:
        """Yield them in words."""
        from choicewise.extensions.analyses.twins_report import twin_lines

        yield from twin_lines(comparison, figure)


class ChainChart(ChartKind):
    """``choicewise plot DIR... chain``."""

    name = "chain"
    summary = "from probability to accuracy"
    needs = "log-likelihoods"
    uses = ("models",)

    def lacks(self, study: Study) -> str:
        """Return why there is no chain."""
        from choicewise.extensions.analyses.charts import chain

        return chain.lacks(study)

    def draw(self, study: Study, choices: Choices) -> Chart:
        """Draw the metrics from log-probability to accuracy."""
        from choicewise.extensions.analyses.charts import chain

        return chain.draw(study, choices)


class CalibrationChart(ChartKind):
    """``choicewise plot DIR... calibration``."""

    name = "calibration"
    summary = "is a model calibrated"
    needs = "log-likelihoods"
    uses = ("models",)

    def lacks(self, study: Study) -> str:
        """Return why nothing can be said of probabilities."""
        from choicewise.extensions.analyses.charts.probabilities import lacks_probabilities

        return lacks_probabilities(study)

    def draw(self, study: Study, choices: Choices) -> Chart:
        """Draw how often a model is right by how sure it is."""
        from choicewise.extensions.analyses.charts import calibration

        return calibration.draw(study, choices)


class StepsChart(ChartKind):
    """``choicewise plot DIR... steps``."""

    name = "steps"
    summary = "a number over checkpoints"
    needs = "three checkpoints of a training run"
    uses = ("protocol",)
    metrics = True

    def lacks(self, study: Study) -> str:
        """Return why the runs are no checkpoints."""
        from choicewise.extensions.analyses.charts import steps

        return steps.lacks(study)

    def draw(self, study: Study, choices: Choices) -> Chart:
        """Draw the number of each checkpoint."""
        from choicewise.extensions.analyses.charts import steps

        return steps.draw(study, choices)


class AlongChart(ChartKind):
    """``choicewise plot DIR... along``."""

    name = "along"
    summary = "answers along a thought"
    needs = "thoughts"
    uses = ("models", "protocol")

    def lacks(self, study: Study) -> str:
        """Return why there is no thought."""
        from choicewise.extensions.analyses.charts import along

        return along.lacks(study)

    def draw(self, study: Study, choices: Choices) -> Chart:
        """Draw the answers that a model would give if it stopped thinking earlier."""
        from choicewise.extensions.analyses.charts import along

        return along.draw(study, choices)


class AnalysisSections(PageSections):
    """Training, the chain of metrics, calibration, thoughts and panels of changes, on ``choicewise page``."""

    name = "analyses"

    def sections(self, study: Study) -> Iterator[Section]:
        """Yield those that the runs have something to show for."""
        from choicewise.extensions.analyses.charts.sections import page_sections

        yield from page_sections(study)


EXTENSION = Extension(
    "analyses",
    [
        TwinStatistic(),
        ChainChart(),
        CalibrationChart(),
        StepsChart(),
        AlongChart(),
        AnalysisSections(),
    ],
)
