"""Logs that Inspect View opens, written by Inspect's own library: a file per run and protocol."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from choicewise import __version__
from choicewise.interchange.answered import answered_items
from choicewise.interchange.write import Export, Writer, library
from choicewise.interchange.write.inspect_sample import SCORER, sample
from choicewise.protocols.signature import signature
from choicewise.records.format import MANIFEST
from choicewise.results.measurement import Measurement
from choicewise.results.row import Row
from choicewise.results.run import Run

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog, EvalSample, EvalScore, EvalSpec

NAMES = {"acc": "accuracy", "exact_match": "accuracy"}
"""Our metrics → what Inspect calls them, where it has a name of its own."""


def _write(export: Export, out: Path) -> Sequence[str]:
    library("inspect_ai", "inspect")
    from inspect_ai.log import write_eval_log

    for run in export.runs:
        rows = run.rows()
        for measured in run.measurements.values():
            log = _log(run, measured, [row for row in rows if row.protocol == measured.name])
            name = f"{log.eval.created.replace(':', '-')}_{_word(measured.name)}_{log.eval.eval_id}.eval"
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


def _log(run: Run, measured: Measurement, rows: Sequence[Row]) -> EvalLog:
    from inspect_ai.log import EvalLog, EvalResults, EvalStats

    spec = _spec(run, measured, rows)
    asked, every = len(measured.credit), max(measured.asked[1], len(measured.credit))
    results = EvalResults(total_samples=every, completed_samples=asked, scores=[_score(measured, rows)])
    stats = EvalStats(started_at=spec.created, completed_at=spec.created)
    status = "success" if run.manifest.complete and asked == every else "cancelled"
    log = EvalLog(status=status, eval=spec, results=results, stats=stats)
    log.samples = _Samples(run, measured, spec.eval_id)
    return log


def _spec(run: Run, measured: Measurement, rows: Sequence[Row]) -> EvalSpec:
    from inspect_ai.log import EvalConfig, EvalDataset, EvalSpec

    manifest, protocol, row = run.manifest, measured.protocol, rows[0]
    model = manifest.model
    made = datetime.fromtimestamp((run.folder / MANIFEST).stat().st_mtime, UTC).isoformat(timespec="seconds")
    ids = {"P": row.id, "I": row.i, "T": row.t, "R": row.r, "D": row.data}
    facts = {
        "protocol": measured.name,
        "signature": signature(protocol),
        **ids,
        "family": row.family,
        "selection": row.selection,
    }
    arguments = {"digest": model.digest, "dtype": model.dtype, "device": model.device, "source": model.source}
    return EvalSpec(
        eval_id=_identity(row.r, row.data, row.selection, row.signature),
        run_id=_identity(row.r, row.data, row.selection),
        task_id=_identity(row.signature),
        created=made,
        task=measured.name.replace("/", ":"),  # its data frames drop what stands before a slash
        task_display_name=measured.name,
        task_args={axis.name: getattr(protocol, axis.name) for axis in fields(protocol)},
        dataset=EvalDataset(name=manifest.dataset.name, location=manifest.dataset.source, samples=len(measured.credit)),
        model=model.name,
        model_args={name: value for name, value in arguments.items() if value},
        config=EvalConfig(epochs=1),
        packages={"choicewise": __version__, **manifest.versions},
        metadata={**facts, "complete": manifest.complete, "flags": list(row.diagnosis.flags)},
    )


def _score(measured: Measurement, rows: Sequence[Row]) -> EvalScore:
    from inspect_ai.log import EvalMetric, EvalScore

    metric = NAMES.get(measured.protocol.metric, measured.protocol.metric)
    metrics = {}
    for row in rows:
        group = row.subject if len(rows) > 1 else ""
        numbers = {metric: row.value, "stderr": row.se, "ci_low": row.ci_low, "ci_high": row.ci_high}
        for name, value in numbers.items():
            whole = f"{group} {name}".strip()
            metrics[whole] = EvalMetric(name=whole, value=value, metadata={"n": row.n, "interval": row.interval})
    missing = int(measured.decisions.missing.sum())
    return EvalScore(
        name=SCORER,
        scorer=SCORER,
        scored_samples=len(measured.credit) - missing,
        unscored_samples=missing,
        params={"signature": rows[0].signature},
        metrics=metrics,
    )


def _identity(*texts: str) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:22]


def _word(name: str) -> str:
    return re.sub("[^A-Za-z0-9.]+", "-", name).strip("-")


WRITER = Writer("logs for Inspect View and Inspect's data frames, one per run and protocol (extra: inspect)", _write)
