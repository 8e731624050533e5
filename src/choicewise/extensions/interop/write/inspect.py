"""Inspect logs."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from choicewise import __version__
from choicewise.extensions.interop.export import library
from choicewise.extensions.interop.write.common import AnsweredItem, answered_items, last_written
from choicewise.ports import Export
from choicewise.protocols.protocol import signature
from choicewise.results.measurement import Measurement
from choicewise.results.number import Number
from choicewise.results.run import Run
from choicewise.util.markup import markdown_escape

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog, EvalSample, EvalScore, EvalSpec


NAMES = {"acc": "accuracy", "exact_match": "accuracy"}
"""Our metrics → what Inspect calls them, where it has a name of its own."""


def write(export: Export, out: Path) -> Sequence[str]:
    """Write a log for each run and protocol below ``out``, and return what is left out."""
    library("inspect_ai", "inspect")
    from inspect_ai.log import write_eval_log

    for run in export.runs:
        rows = run.rows()
        for measured in run.measurements.values():
            log = _log(
                run, measured, [row for row in rows if row.identity.protocol == measured.name]
            )
            word = re.sub("[^A-Za-z0-9.]+", "-", measured.name).strip("-")
            name = f"{log.eval.created.replace(':', '-')}_{word}_{log.eval.eval_id}.eval"
            write_eval_log(log, out / name)
        run.release()
    return ()


class _Samples(list["EvalSample"]):
    """Samples that are made while they are written."""

    def __init__(self, run: Run, measured: Measurement, log: str) -> None:
        self._run, self._measured, self._log = run, measured, log

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[EvalSample]:
        model = self._run.manifest.model.name
        for _, item in answered_items(self._run, {self._measured.protocol.prompt_digest: ()}):
            yield sample(item, self._measured, model, self._log)


def _log(run: Run, measured: Measurement, rows: Sequence[Number]) -> EvalLog:
    from inspect_ai.log import EvalLog, EvalResults, EvalStats

    spec = _spec(run, measured, rows)
    asked, every = len(measured.credit), max(measured.item_counts[1], len(measured.credit))
    results = EvalResults(
        total_samples=every, completed_samples=asked, scores=[_log_score(measured, rows)]
    )
    stats = EvalStats(started_at=spec.created, completed_at=spec.created)
    status = "success" if run.manifest.complete and asked == every else "cancelled"
    log = EvalLog(status=status, eval=spec, results=results, stats=stats)
    log.samples = _Samples(run, measured, spec.eval_id)
    return log


def _spec(run: Run, measured: Measurement, rows: Sequence[Number]) -> EvalSpec:
    from inspect_ai.log import EvalConfig, EvalDataset, EvalSpec

    manifest, protocol, row = run.manifest, measured.protocol, rows[0]
    model = manifest.model
    ids = {
        "P": row.identity.id,
        "I": row.identity.i,
        "T": row.identity.t,
        "R": row.identity.r,
        "D": row.identity.data,
    }
    facts = {"protocol": measured.name, "signature": signature(protocol), **ids}
    facts |= {"family": row.identity.family, "selection": row.identity.selection}
    arguments = {
        "digest": model.digest,
        "dtype": model.dtype,
        "device": model.device,
        "source": model.source,
    }
    return EvalSpec(
        eval_id=_identity(
            row.identity.r, row.identity.data, row.identity.selection, row.identity.signature
        ),
        run_id=_identity(row.identity.r, row.identity.data, row.identity.selection),
        task_id=_identity(row.identity.signature),
        created=last_written([run]).isoformat(timespec="seconds"),
        task=measured.name.replace("/", ":"),  # its data frames drop what stands before a slash
        task_display_name=measured.name,
        task_args={axis.name: getattr(protocol, axis.name) for axis in fields(protocol)},
        dataset=EvalDataset(
            name=manifest.dataset.name,
            location=manifest.dataset.source,
            samples=len(measured.credit),
        ),
        model=model.name,
        model_args={name: value for name, value in arguments.items() if value},
        config=EvalConfig(epochs=1),
        packages={"choicewise": __version__, **manifest.versions},
        metadata={**facts, "complete": manifest.complete, "flags": list(row.diagnosis.warnings)},
    )


def _log_score(measured: Measurement, rows: Sequence[Number]) -> EvalScore:
    from inspect_ai.log import EvalMetric, EvalScore

    metric = NAMES.get(measured.protocol.metric, measured.protocol.metric)
    metrics = {}
    for row in rows:
        group = row.identity.subject if len(rows) > 1 else ""
        numbers = {
            metric: row.value,
            "stderr": row.se,
            "ci_low": row.interval.low,
            "ci_high": row.interval.high,
        }
        for name, value in numbers.items():
            whole = f"{group} {name}".strip()
            metrics[whole] = EvalMetric(
                name=whole, value=value, metadata={"n": row.counts.n, "interval": row.interval.name}
            )
    missing = int(measured.decisions.missing.sum())
    return EvalScore(
        name=SCORER,
        scorer=SCORER,
        scored_samples=len(measured.credit) - missing,
        unscored_samples=missing,
        params={"signature": rows[0].identity.signature},
        metrics=metrics,
    )


def _identity(*texts: str) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:22]


SCORER = "choicewise"
"""The name of the only scorer of every log, so that data frames of several logs have one column of scores."""


def sample(item: AnsweredItem, measured: Measurement, model: str, log: str) -> EvalSample:
    """``item`` under the protocol of ``measured``, of the log with that id.

    ``input`` is the question as the data have it, ``messages`` the prompt as it was sent and ``output``: what the
    protocol chose or the model wrote.  The score's value is the item's credit, NaN where it is missing.
    """
    from inspect_ai.log import EvalSample
    from inspect_ai.model import ChatMessageUser, ModelOutput

    scores = measured.known_scores
    own = None if scores is None else scores[item.row : item.row + len(item)].tolist()
    chosen = int(measured.prediction[item.index])
    written = item.generated if item.generated is not None else _written(item, chosen)
    several = len(item) > 1
    output = ModelOutput.from_content(model, written)
    sent = (
        []
        if item.context is None
        else [ChatMessageUser(content=item.context, id="prompt"), output.message]
    )
    output.message.id = "output"
    targets = [letter(place) if several else item.choices[place].choice for place in item.gold]
    return EvalSample(
        id=item.id,
        epoch=1,
        uuid=hashlib.sha256(f"{log} {item.id}".encode()).hexdigest()[:22],
        input=item.question or item.context or "",
        choices=[each.choice if each.shown is None else each.shown for each in item.choices]
        if several
        else None,
        target=targets[0] if len(targets) == 1 else targets,
        messages=sent,
        output=output,
        scores={SCORER: _sample_score(item, measured, own, chosen)},
        metadata={"subject": item.subject, "split": item.split, **_observed(item, own)},
    )


def letter(place: int) -> str:
    """What Inspect calls a choice: A to Z, then 1, 2, ..."""
    return chr(ord("A") + place) if place < 26 else str(place - 25)


def _sample_score(
    item: AnsweredItem, measured: Measurement, own: list[float] | None, chosen: int
) -> Any:
    from inspect_ai.scorer import Score

    credit = float(measured.credit[item.index])
    answer = None if chosen < 0 else letter(chosen) if len(item) > 1 else _written(item, chosen)
    facts = {"tied": bool(measured.decisions.tied[item.index])}
    if math.isnan(credit):
        why = item.missing or measured.unlisted_reason(item.index)
        why = why or f"nothing was observed that gives a number for score {measured.protocol.score}"
        return Score.unscored(
            reason="missing", answer=answer, explanation=markdown_escape(why), metadata=facts
        )
    return Score(
        value=credit, answer=answer, explanation=_explanation(item, own, chosen), metadata=facts
    )


def _observed(item: AnsweredItem, own: list[float] | None) -> dict[str, Any]:
    """What was observed, a list with an entry per choice each; null where there is nothing."""
    lists: dict[str, list[Any]] = {
        "scores": [] if own is None else [_number(score) for score in own],
        "loglikelihoods": [_number(each.loglikelihood) for each in item.choices],
        "tokens": [each.tokens for each in item.choices],
        "is_greedy": [each.greedy for each in item.choices],
        "continuations": [each.continuation for each in item.choices],
        "contexts": [each.context for each in item.choices if each.context != item.context],
    }
    return {
        name: values for name, values in lists.items() if any(value is not None for value in values)
    }


def _explanation(item: AnsweredItem, own: list[float] | None, chosen: int) -> str:
    """The choices as a table in Markdown, which Inspect View shows."""
    if own is None:
        return (
            f"the text was read as {letter(chosen)}" if chosen >= 0 else "the text names no option"
        )
    lines = ["| | choice | log-likelihood | score | |", "| :-- | :-- | --: | --: | :-- |"]
    for place, (each, score) in enumerate(zip(item.choices, own, strict=True)):
        words = ", ".join(["right"] * (place in item.gold) + ["chosen"] * (place == chosen))
        numbers = " | ".join(
            "–" if math.isnan(number) else f"{number:.4f}" for number in (each.loglikelihood, score)
        )
        lines.append(
            f"| {letter(place)} | {markdown_escape(each.shown or each.choice)} | {numbers} | {words} |"
        )
    return "\n".join(lines)


def _written(item: AnsweredItem, chosen: int) -> str:
    if chosen < 0:
        return ""
    choice = item.choices[chosen]
    return choice.choice if choice.continuation is None else choice.continuation


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
