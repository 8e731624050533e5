"""Write runs as logs that Inspect View and Inspect's data frames read."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from choicewise import __version__
from choicewise.extensions.interop.export import library
from choicewise.extensions.interop.write.common import (
    AnsweredChoice,
    AnsweredItem,
    answered_items,
    item_scores,
    last_written,
)
from choicewise.extensions.interop.write.markup import markdown_escape
from choicewise.ports import Export
from choicewise.protocols.protocol import signature
from choicewise.results.measurement import Measurement
from choicewise.results.number import Number
from choicewise.results.run import Run
from choicewise.util.jsonio import JsonDict, json_value
from choicewise.util.text import text_digest

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog, EvalSample, EvalScore, EvalSpec


NAMES = {"acc": "accuracy", "exact_match": "accuracy"}
"""Our metrics → Inspect's names for them, where they differ."""

SCORER = "choicewise"
"""The name of the only scorer of every log, so that data frames of several logs have one column of
scores.
"""


def write(export: Export, out: Path) -> Sequence[str]:
    """Write a log for each run and protocol below ``out``; nothing is left out."""
    library("inspect_ai", "inspect")
    from inspect_ai.log import write_eval_log

    for run in export.runs:
        all_rows = run.rows()
        for measured in run.measurements.values():
            rows = [row for row in all_rows if row.identity.protocol == measured.name]
            log = _log(run, measured, rows)
            date = log.eval.created.replace(":", "-")
            word = re.sub("[^A-Za-z0-9.]+", "-", measured.name).strip("-")
            write_eval_log(log, out / f"{date}_{word}_{log.eval.eval_id}.eval")
        run.release()
    return ()


class _Samples(list["EvalSample"]):
    """Make the samples of a log while they are written, so that a large run fits in memory."""

    def __init__(self, run: Run, measured: Measurement, log: str) -> None:
        self._run = run
        self._measured = measured
        self._log = log

    def __bool__(self) -> bool:
        # Inspect looks whether a log has samples before it writes them.
        return True

    def __iter__(self) -> Iterator[EvalSample]:
        model = self._run.manifest.model.name
        for _, item in answered_items(self._run, {self._measured.protocol.prompt_digest: ()}):
            yield sample(item, self._measured, model, self._log)


def _log(run: Run, measured: Measurement, rows: Sequence[Number]) -> EvalLog:
    from inspect_ai.log import EvalLog, EvalResults, EvalStats

    spec = _spec(run, measured, rows[0])
    completed = len(measured.credit)
    total = max(measured.item_counts[1], completed)
    is_complete = run.manifest.complete and completed == total
    status = "success" if is_complete else "cancelled"
    scores = [_log_score(measured, rows)]
    results = EvalResults(total_samples=total, completed_samples=completed, scores=scores)
    stats = EvalStats(started_at=spec.created, completed_at=spec.created)
    log = EvalLog(status=status, eval=spec, results=results, stats=stats)
    # Set afterwards: the constructor would copy a list, which makes all samples at once.
    log.samples = _Samples(run, measured, spec.eval_id)
    return log


def _spec(run: Run, measured: Measurement, row: Number) -> EvalSpec:
    from inspect_ai.log import EvalConfig, EvalDataset, EvalSpec

    manifest = run.manifest
    protocol = measured.protocol
    identity = row.identity
    run_parts = (identity.r, identity.data, identity.selection)
    model = manifest.model
    arguments = {
        "digest": model.digest,
        "dtype": model.dtype,
        "device": model.device,
        "source": model.source,
    }
    dataset = EvalDataset(
        name=manifest.dataset.name,
        location=manifest.dataset.source,
        samples=len(measured.credit),
    )
    return EvalSpec(
        eval_id=_id(*run_parts, identity.signature),
        run_id=_id(*run_parts),
        task_id=_id(identity.signature),
        created=last_written([run]).isoformat(timespec="seconds"),
        # Inspect's data frames drop the text before a slash.
        task=measured.name.replace("/", ":"),
        task_display_name=measured.name,
        task_args={axis.name: getattr(protocol, axis.name) for axis in fields(protocol)},
        dataset=dataset,
        model=model.name,
        model_args={name: value for name, value in arguments.items() if value},
        config=EvalConfig(epochs=1),
        packages={"choicewise": __version__, **manifest.versions},
        metadata={
            "protocol": measured.name,
            "signature": signature(protocol),
            "P": identity.id,
            "I": identity.i,
            "T": identity.t,
            "R": identity.r,
            "D": identity.data,
            "family": identity.family,
            "selection": identity.selection,
            "complete": manifest.complete,
            "flags": list(row.diagnosis.warnings),
        },
    )


def _log_score(measured: Measurement, rows: Sequence[Number]) -> EvalScore:
    from inspect_ai.log import EvalMetric, EvalScore

    metric = NAMES.get(measured.protocol.metric, measured.protocol.metric)
    metrics = {}
    for row in rows:
        values = {
            metric: row.value,
            "stderr": row.se,
            "ci_low": row.interval.low,
            "ci_high": row.interval.high,
        }
        metadata = {"n": row.counts.n, "interval": row.interval.name}
        for name, value in values.items():
            if len(rows) > 1:
                # Metrics of a scorer need different names: rows are about groups of items.
                name = f"{row.identity.subject} {name}".strip()
            metrics[name] = EvalMetric(name=name, value=value, metadata=metadata)
    missing = int(measured.decisions.missing.sum())
    return EvalScore(
        name=SCORER,
        scorer=SCORER,
        scored_samples=len(measured.credit) - missing,
        unscored_samples=missing,
        params={"signature": rows[0].identity.signature},
        metrics=metrics,
    )


def _id(*texts: str) -> str:
    """Return an id that is equal for equal texts."""
    return text_digest("\n".join(texts))[:22]


def sample(item: AnsweredItem, measured: Measurement, model: str, log: str) -> EvalSample:
    """Return ``item`` under the protocol of ``measured``, in the log with that id.

    ``input`` is the question of the data, ``messages`` the prompt as it was sent, and ``output``
    the choice of the protocol or the text of the model. The score's value is the item's credit, NaN
    if it is missing.
    """
    from inspect_ai.log import EvalSample
    from inspect_ai.model import ChatMessageUser, ModelOutput

    scores = item_scores(item, measured)
    chosen = int(measured.prediction[item.index])
    written = item.generated
    if written is None:
        written = _choice_text(item, chosen)
    output = ModelOutput.from_content(model, written)
    # Ids that differ between two exports of one run would make them different files.
    output.message.id = "output"
    messages: list[Any] = []
    if item.context is not None:
        messages = [ChatMessageUser(content=item.context, id="prompt"), output.message]
    choices: list[str] | None = None
    if len(item) > 1:
        choices = [_option(choice) for choice in item.choices]
        targets = [letter(index) for index in item.gold]
    else:
        # One choice has no letter: the text itself is the target.
        targets = [item.choices[index].choice for index in item.gold]
    target: Any = targets[0] if len(targets) == 1 else targets
    return EvalSample(
        id=item.id,
        epoch=1,
        uuid=_id(f"{log} {item.id}"),
        input=item.question or item.context or "",
        choices=choices,
        target=target,
        messages=messages,
        output=output,
        scores={SCORER: _sample_score(item, measured, scores, chosen)},
        metadata={"subject": item.subject, "split": item.split, **_observed(item, scores)},
    )


def _option(choice: AnsweredChoice) -> str:
    """Return a choice as the prompt shows it, or else as the data have it."""
    if choice.option is None:
        return choice.choice
    return choice.option


def letter(index: int) -> str:
    """Return Inspect's name of a choice: A to Z, then 1, 2, ..."""
    if index < 26:
        return chr(ord("A") + index)
    return str(index - 25)


def _sample_score(
    item: AnsweredItem, measured: Measurement, scores: list[float] | None, chosen: int
) -> Any:
    from inspect_ai.scorer import Score

    answer = None
    if chosen >= 0:
        answer = letter(chosen) if len(item) > 1 else _choice_text(item, chosen)
    metadata = {"tied": bool(measured.decisions.tied[item.index])}
    credit = float(measured.credit[item.index])
    if math.isnan(credit):
        reason = (
            item.missing
            or measured.unlisted_reason(item.index)
            or f"the model returned nothing that score {measured.protocol.score} can use"
        )
        return Score.unscored(
            reason="missing",
            answer=answer,
            explanation=markdown_escape(reason),
            metadata=metadata,
        )
    explanation = _explanation(item, scores, chosen)
    return Score(value=credit, answer=answer, explanation=explanation, metadata=metadata)


def _observed(item: AnsweredItem, scores: list[float] | None) -> JsonDict:
    """Return the observations in lists with an entry per choice, without lists that have no value."""
    choices = item.choices
    # The message has the context that all choices share.
    contexts = [choice.context for choice in choices if choice.context != item.context]
    lists = {
        "scores": scores or [],
        "loglikelihoods": [choice.loglikelihood for choice in choices],
        "tokens": [choice.tokens for choice in choices],
        "is_greedy": [choice.greedy for choice in choices],
        "continuations": [choice.continuation for choice in choices],
        "contexts": contexts,
    }
    observed = {}
    for name, values in json_value(lists).items():
        if any(value is not None for value in values):
            observed[name] = values
    return observed


def _explanation(item: AnsweredItem, scores: list[float] | None, chosen: int) -> str:
    """Return the choices as a table in Markdown, which Inspect View shows."""
    if scores is None:
        if chosen < 0:
            return "the text names no option"
        return f"the text was read as {letter(chosen)}"
    lines = ["| | choice | log-likelihood | score | |", "| :-- | :-- | --: | --: | :-- |"]
    for index, choice in enumerate(item.choices):
        words = []
        if index in item.gold:
            words.append("right")
        if index == chosen:
            words.append("chosen")
        cells = (
            letter(index),
            markdown_escape(choice.option or choice.choice),
            _four_decimals(choice.loglikelihood),
            _four_decimals(scores[index]),
            ", ".join(words),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _four_decimals(number: float) -> str:
    return "–" if math.isnan(number) else f"{number:.4f}"


def _choice_text(item: AnsweredItem, chosen: int) -> str:
    """Return the text of the chosen choice as it was scored, "" if none was chosen."""
    if chosen < 0:
        return ""
    choice = item.choices[chosen]
    return choice.choice if choice.continuation is None else choice.continuation
