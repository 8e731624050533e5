"""Questions about finished runs.

Signal, audit, twins, invariance, reliability, checkpoints along training, and others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from choicewise.ports import (
    Analysis,
    AnalysisOption,
    ChartKind,
    Extension,
    PageSections,
    PairStatistic,
)

if TYPE_CHECKING:
    from choicewise.page.charts.chart import Chart
    from choicewise.page.charts.choices import Choices
    from choicewise.page.embed import Section
    from choicewise.page.study import Study
    from choicewise.results.compare import Comparison
    from choicewise.results.measurement import Measurement
    from choicewise.results.outcomes import Summary
    from choicewise.results.run import Run
    from choicewise.table import Table


class MultiverseAnalysis(Analysis):
    """``choicewise report DIR... multiverse``."""

    name = "multiverse"
    summary = "Show how results and conclusions vary over all protocols."
    needs = "runs"

    def tables(self, runs: Sequence[Run]) -> list[Table]:
        """Return the spread over protocols, a table for each pair of models, and how protocols agree on the order."""
        from choicewise.extensions.analyses.multiverse import multiverse
        from choicewise.extensions.analyses.multiverse_report import multiverse_tables

        return list(multiverse_tables(multiverse(runs)))


class EffectsAnalysis(Analysis):
    """``choicewise report DIR... effects``."""

    name = "effects"
    summary = "Show what each axis changes, over all protocols that differ in it alone."
    needs = "runs"

    def tables(self, runs: Sequence[Run]) -> list[Table]:
        """Return the axes of each run, those that change most first, and the changes of their values."""
        from choicewise.extensions.analyses.effects_report import effects_tables
        from choicewise.results.ladder import main_effects
        from choicewise.results.outcomes import OutcomeKeeper

        tables: list[Table] = []
        keeper = OutcomeKeeper()
        for run in runs:
            effects = main_effects(keeper.keep(run))
            model, dataset = run.manifest.model.name, run.manifest.dataset.name
            tables += effects_tables(
                effects, {"run": str(run.folder), "model": model, "dataset": dataset}
            )
            run.release()
        return tables


class AgreementAnalysis(Analysis):
    """``choicewise report DIR... agreement``."""

    name = "agreement"
    summary = "Show how far retrievals of the same options agree, and why not."
    needs = "runs"

    def tables(self, runs: Sequence[Run]) -> list[Table]:
        """Return the pairs of retrievals of each run, and the options on which they differ most."""
        from choicewise.extensions.analyses.agreement_report import run_tables

        return [table for run in runs for table in run_tables(run)]


class ExtractorsAnalysis(Analysis):
    """``choicewise report DIR... extractors``."""

    name = "extractors"
    summary = "Show what every published rule reads in the generated texts, side by side."
    needs = "runs"

    def tables(self, runs: Sequence[Run]) -> list[Table]:
        """Return what the rules read in each prompt's texts, how they agree, and the items that they dispute."""
        from choicewise.extensions.analyses.extractors_report import run_tables

        return [table for run in runs for table in run_tables(run)]


class AlongAnalysis(Analysis):
    """``choicewise report DIR... along``."""

    name = "along"
    summary = "Show how answers change along thoughts (reading along-thought)."
    needs = "runs"

    def tables(self, runs: Sequence[Run]) -> list[Table]:
        """Return each protocol's answers by share of the thought, and within budgets of tokens."""
        from choicewise.extensions.analyses.along_report import run_tables

        return [table for run in runs for table in run_tables(run)]


class InvarianceAnalysis(Analysis):
    """``choicewise report DIR... invariance``."""

    name = "invariance"
    summary = "Show how far answers change if questions stay the same, by a run with a panel."
    needs = "runs"

    def tables(self, runs: Sequence[Run]) -> list[Table]:
        """Return the checks of each protocol that was asked with changes."""
        from choicewise.extensions.analyses.invariance_report import run_tables

        return [table for run in runs for table in run_tables(run)]


class AuditAnalysis(Analysis):
    """``choicewise report DIR... audit``."""

    name = "audit"
    summary = "Show which items are bad, by runs of ten or more models, the worst first."

    def tables(self, runs: Sequence[Summary]) -> list[Table]:
        """Return the bad items of each dataset by what they are bad under, and those that no model gets right."""
        from choicewise.extensions.analyses.audit import audit
        from choicewise.extensions.analyses.audit_report import audit_tables

        return [table for report in audit(runs) for table in audit_tables(report)]


class SignalAnalysis(Analysis):
    """``choicewise report DIR... signal``."""

    name = "signal"
    summary = "Show which protocols tell checkpoints apart best, by signal and noise."

    def tables(self, runs: Sequence[Summary]) -> list[Table]:
        """Return the protocols of each dataset, those with the most signal for their noise first."""
        from choicewise.extensions.analyses.signal import signals
        from choicewise.extensions.analyses.signal_report import signal_tables

        return [table for report in signals(runs) for table in signal_tables(report)]


class DistributionAnalysis(Analysis):
    """``choicewise report DIR... distribution``."""

    name = "distribution"
    summary = "Show how often each choice would be chosen, and the fit to people."
    needs = "runs"
    options = (
        AnalysisOption(name="temperature", summary="of the softmax (default: 1).", read=float),
        AnalysisOption(name="condition", summary="average over this field of the data."),
    )

    def tables(
        self, runs: Sequence[Run], *, temperature: float = 1.0, condition: str | None = None
    ) -> list[Table]:
        """Return a table for each run and protocol that scores choices."""
        from choicewise.extensions.analyses.multiverse import distributions
        from choicewise.extensions.analyses.multiverse_report import distribution_table

        return [
            distribution_table(each)
            for run in runs
            for each in distributions(run, temperature, condition)
        ]


class TwinStatistic(PairStatistic):
    """How far a model and its twin part, such as a quantised one."""

    name = "twins"
    summary = "how far two models part that were asked the same tokens"

    def figures(
        self, runs: tuple[Run, Run], pairs: Sequence[tuple[Measurement, Measurement]]
    ) -> Sequence[Any]:
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
        *(
            MultiverseAnalysis(),
            EffectsAnalysis(),
            AgreementAnalysis(),
            ExtractorsAnalysis(),
            AlongAnalysis(),
        ),
        *(InvarianceAnalysis(), AuditAnalysis(), SignalAnalysis(), DistributionAnalysis()),
        TwinStatistic(),
        ChainChart(),
        CalibrationChart(),
        StepsChart(),
        AlongChart(),
        AnalysisSections(),
    ],
)
