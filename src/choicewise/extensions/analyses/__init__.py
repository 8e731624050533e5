"""Questions about finished runs.

Signal, audit, twins, invariance, reliability, checkpoints along training, and others.
"""

from __future__ import annotations

from choicewise.ports import (
    Analysis,
    AnalysisOption,
    ChartKind,
    Estimator,
    Extension,
    PageSections,
    PairStatistic,
    Statistic,
    calls,
)


class MultiverseAnalysis(Analysis):
    """``choicewise report DIR... multiverse``."""

    name = "multiverse"
    summary = "Show how results and conclusions vary over all protocols."
    needs = "runs"
    tables = calls("choicewise.extensions.analyses.multiverse_report:tables")


class EffectsAnalysis(Analysis):
    """``choicewise report DIR... effects``."""

    name = "effects"
    summary = "Show what each axis changes, over all protocols that differ only in it."
    needs = "runs"
    run_tables = calls("choicewise.extensions.analyses.effects_report:run_tables")


class AgreementAnalysis(Analysis):
    """``choicewise report DIR... agreement``."""

    name = "agreement"
    summary = "Show where protocols score the same options differently, and why."
    needs = "runs"
    run_tables = calls("choicewise.extensions.analyses.agreement_report:run_tables")


class ExtractorsAnalysis(Analysis):
    """``choicewise report DIR... extractors``."""

    name = "extractors"
    summary = "Show what every published rule extracts from the generated texts."
    needs = "runs"
    run_tables = calls("choicewise.extensions.analyses.extractors_report:run_tables")


class AlongAnalysis(Analysis):
    """``choicewise report DIR... along``."""

    name = "along"
    summary = "Show how answers change along a model's thoughts (reading along-thought)."
    needs = "runs"
    run_tables = calls("choicewise.extensions.analyses.along_report:run_tables")


class InvarianceAnalysis(Analysis):
    """``choicewise report DIR... invariance``."""

    name = "invariance"
    summary = "Show how often answers change if only the presentation does (run with a panel)."
    needs = "runs"
    run_tables = calls("choicewise.extensions.analyses.invariance_report:run_tables")


class AuditAnalysis(Analysis):
    """``choicewise report DIR... audit``."""

    name = "audit"
    summary = "Show suspicious items, the worst first (needs ten or more models)."
    tables = calls("choicewise.extensions.analyses.audit_report:tables")


class SignalAnalysis(Analysis):
    """``choicewise report DIR... signal``."""

    name = "signal"
    summary = "Show which protocols separate checkpoints best, by signal and noise."
    tables = calls("choicewise.extensions.analyses.signal_report:tables")


class DistributionAnalysis(Analysis):
    """``choicewise report DIR... distribution``."""

    name = "distribution"
    summary = "Show how often each choice is chosen, and the fit to people."
    needs = "runs"
    options = (
        AnalysisOption(name="temperature", summary="softmax temperature (default: 1).", read=float),
        AnalysisOption(
            name="condition", summary="average over this field of the data (default: all items)."
        ),
    )
    run_tables = calls("choicewise.extensions.analyses.multiverse_report:distribution_tables")


class TwinStatistic(PairStatistic):
    """How far a model and its twin part, such as a quantised one."""

    name = "twins"
    summary = "how far two models differ on the same tokens"
    figures = calls("choicewise.extensions.analyses.twins:twin_figures")
    lines = calls("choicewise.extensions.analyses.twins_report:twin_lines")


class SampleEstimator(Estimator):
    """Numbers of samples, estimated for all questions."""

    name = "sample"
    summary = "estimates for all questions from a sample and other models' runs of all"
    estimates = calls("choicewise.extensions.analyses.sample_report:estimates")


class ProbabilityStatistic(Statistic):
    """What a page and two charts show of probabilities."""

    name = "probabilities"
    summary = "the chain of metrics and the calibration of the headlines of letters and of texts"
    protocols = calls("choicewise.extensions.analyses.charts.stored:stored_protocols")
    data = calls("choicewise.extensions.analyses.charts.stored:stored_probabilities")


class ChainChart(ChartKind):
    """``choicewise plot DIR... chain``."""

    name = "chain"
    summary = "from probability to accuracy"
    needs = "log-likelihoods"
    uses = ("models",)
    lacks = calls("choicewise.extensions.analyses.charts.chain:lacks")
    draw = calls("choicewise.extensions.analyses.charts.chain:draw")


class CalibrationChart(ChartKind):
    """``choicewise plot DIR... calibration``."""

    name = "calibration"
    summary = "is a model calibrated"
    needs = "log-likelihoods"
    uses = ("models",)
    lacks = calls("choicewise.extensions.analyses.charts.probabilities:lacks_probabilities")
    draw = calls("choicewise.extensions.analyses.charts.calibration:draw")


class StepsChart(ChartKind):
    """``choicewise plot DIR... steps``."""

    name = "steps"
    summary = "a number over checkpoints"
    needs = "three checkpoints of a training run"
    uses = ("protocol",)
    metrics = True
    lacks = calls("choicewise.extensions.analyses.charts.steps:lacks")
    draw = calls("choicewise.extensions.analyses.charts.steps:draw")


class AlongChart(ChartKind):
    """``choicewise plot DIR... along``."""

    name = "along"
    summary = "answers along a thought"
    needs = "thoughts"
    uses = ("models", "protocol")
    lacks = calls("choicewise.extensions.analyses.charts.along:lacks")
    draw = calls("choicewise.extensions.analyses.charts.along:draw")


class AnalysisSections(PageSections):
    """Training, the chain of metrics, calibration, thoughts and panels of changes, on ``choicewise
    page``.
    """

    name = "analyses"
    sections = calls("choicewise.extensions.analyses.charts.sections:page_sections")


EXTENSION = Extension(
    "analyses",
    [
        MultiverseAnalysis(),
        EffectsAnalysis(),
        AgreementAnalysis(),
        ExtractorsAnalysis(),
        AlongAnalysis(),
        InvarianceAnalysis(),
        AuditAnalysis(),
        SignalAnalysis(),
        DistributionAnalysis(),
        TwinStatistic(),
        SampleEstimator(),
        ProbabilityStatistic(),
        ChainChart(),
        CalibrationChart(),
        StepsChart(),
        AlongChart(),
        AnalysisSections(),
    ],
)
