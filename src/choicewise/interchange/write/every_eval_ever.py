"""Records of Every Eval Ever, schema 0.3.0: one per run, with a result per protocol, and a line per item beside it.

Meaning of the fields: evaleval/every_eval_ever, every_eval_ever/schemas/eval.schema.json (PyPI release 0.3.0).
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import choicewise
from choicewise.errors import UsageError
from choicewise.interchange.export import identity
from choicewise.interchange.write import Export, Writer
from choicewise.interchange.write.every_eval_ever_names import LOCAL, model_id, record_folder, record_uuid
from choicewise.interchange.write.every_eval_ever_samples import write_samples
from choicewise.interchange.write.json_text import json_text
from choicewise.interchange.write.run_rows import last_written, report_rows
from choicewise.protocols.metrics import METRICS
from choicewise.protocols.protocol import Protocol
from choicewise.protocols.readings import READINGS
from choicewise.results.row import Row
from choicewise.results.run import Run

SCHEMA = "0.3.0"

METRIC_IDS = {"acc": "accuracy", "exact_match": "exact_match", "perplexity": "perplexity"}
"""Our metric → the id that the data store has for it; others have an id of their own."""


def write(export: Export, folder: Path) -> list[str]:
    """Write ``data/DATASET/DEVELOPER/MODEL/UUID.json`` and ``UUID_samples.jsonl`` of every run below ``folder``."""
    notes: list[str] = []
    for run in export.runs:
        notes += _write_run(run, export, folder)
        run.release()
    return notes


def _write_run(run: Run, export: Export, folder: Path) -> list[str]:
    manifest = run.manifest
    model, dataset = model_id(manifest), manifest.dataset.name
    place = Path("data", *record_folder(dataset, model))
    uuid = record_uuid(identity(run))
    written = str(last_written([run]).timestamp())
    evaluation = f"{dataset}/{model}/{written}"
    rows = {name: row for name, row in report_rows(run).items() if math.isfinite(row.value)}
    notes = [f"{run.folder}, {name}: no number to export" for name in run.protocols if name not in rows]
    results = {name: _result(run, row) for name, row in rows.items()}
    if (folder / place / f"{uuid}.json").exists():
        raise UsageError(f"{run.folder} is of the same model, data and selection as another run; export one of them")
    (folder / place).mkdir(parents=True, exist_ok=True)
    samples = place / f"{uuid}_samples.jsonl"
    shared = {"schema_version": SCHEMA, "evaluation_id": evaluation, "model_id": model}
    about = {name: (each["evaluation_name"], each["evaluation_result_id"]) for name, each in results.items()}
    lines = write_samples(run, folder / samples, shared, about)
    record = {
        "schema_version": SCHEMA,
        "evaluation_id": evaluation,
        "evaluation_timestamp": written,
        "retrieved_timestamp": written,
        "source_metadata": _source(export),
        "eval_library": _library(run),
        "model_info": _model(run, model),
        "evaluation_results": list(results.values()),
    }
    if lines:
        with (folder / samples).open("rb") as stream:
            checksum = hashlib.file_digest(stream, "sha256").hexdigest()
        record["detailed_evaluation_results"] = {
            **{"format": "jsonl", "file_path": samples.as_posix(), "hash_algorithm": "sha256"},
            **{"checksum": checksum, "total_rows": lines},
        }
    (folder / place / f"{uuid}.json").write_text(json_text(record, indent=2) + "\n", encoding="utf-8")
    return notes + [
        f"{run.folder}, {name}: {row.missing} items are missing and have no line in the samples"
        for name, row in rows.items()
        if row.missing
    ]


def _source(export: Export) -> dict[str, Any]:
    return {
        "source_name": "Choicewise",
        "source_type": "evaluation_run",
        "source_organization_name": export.organization or "not stated",
        "evaluator_relationship": "other",
        **({"additional_details": {"url": export.url}} if export.url else {}),
    }


def _library(run: Run) -> dict[str, Any]:
    versions, imported = run.manifest.versions, run.manifest.imported
    if imported is not None:
        name, _, version = imported.tool.rpartition(" ")
        facts = {f"log.{key}": text for key, text in imported.settings.items()} | {"scored_by": _version(versions)}
        return {"name": name or imported.tool, "version": version if name else "unknown", "additional_details": facts}
    details = {name: version for name, version in versions.items() if name != "choicewise"}
    return {
        "name": "choicewise",
        "version": _version(versions),
        **({"additional_details": details} if details else {}),
    }


def _version(versions: Mapping[str, str]) -> str:
    return versions.get("choicewise", choicewise.__version__)


def _model(run: Run, model: str) -> dict[str, Any]:
    record, computed = run.manifest.model, run.manifest.engine.selfcheck is not None
    developer, slash, _ = model.partition("/")
    details = {
        "deployment_type": "self_deployed" if computed else "unknown",
        "model_availability": "open_weights" if record.source else "unknown",
        **{"digest": record.digest, "dtype": record.dtype, "device": record.device, "window": str(record.window)},
        **({"source": record.source} if record.source else {}),
        **({"chat_template_digest": record.chat} if record.chat else {}),
    }
    return {
        "name": model,
        "id": model,
        "developer": developer if slash else LOCAL,
        **({"inference_engine": {"name": "choicewise", "version": choicewise.__version__}} if computed else {}),
        "additional_details": details,
    }


def _result(run: Run, row: Row) -> dict[str, Any]:
    protocol = run.protocols[row.protocol]
    return {
        "evaluation_result_id": f"{row.protocol}{row.id}",
        "evaluation_name": f"{row.dataset} ({row.protocol})",
        "source_data": _data(run, protocol, row),
        "metric_config": _metric(protocol, row),
        "score_details": _score(run, row),
        "generation_config": _generation(protocol),
    }


def _data(run: Run, protocol: Protocol, row: Row) -> dict[str, Any]:
    dataset = run.manifest.dataset
    repository, _, revision = dataset.source.partition("@")
    details = {"digest": dataset.digest, "split": protocol.split or "", "selection": row.selection}
    if not repository:
        return {"dataset_name": dataset.name, "source_type": "other", "additional_details": details}
    return {
        **{"dataset_name": dataset.name, "source_type": "hf_dataset", "hf_repo": repository.partition(":")[0]},
        **({"hf_split": protocol.split} if protocol.split else {}),
        "samples_number": row.n + row.missing,
        "additional_details": {**details, "revision": revision},
    }


def _metric(protocol: Protocol, row: Row) -> dict[str, Any]:
    """What is measured; its parameters are the signature, its axes one by one, and the ids that stand beside a row."""
    metric = METRIC_IDS.get(row.metric, f"choicewise.{row.metric}")
    ids = {name: getattr(row, name) for name in ("signature", "protocol", "id", "i", "t", "r", "data")}
    axes = {axis.name: getattr(protocol, axis.name) for axis in fields(protocol)}
    return {
        "evaluation_description": METRICS[row.metric].about,
        **{"metric_id": metric, "metric_name": f"{row.metric} ({row.protocol})", "metric_kind": metric},
        "metric_unit": "proportion" if row.share else "perplexity",
        "metric_parameters": {**axes, **{f"choicewise.{name}": value for name, value in ids.items()}},
        "lower_is_better": not row.share,
        **{"score_type": "continuous", "min_score": 0 if row.share else 1, "max_score": 1 if row.share else "Infinity"},
    }


def _score(run: Run, row: Row) -> dict[str, Any]:
    counts = ("n", "missing", "invalid", "skipped", "ties", "shots_dropped", "truncated", "merged", "noncanonical")
    details = {name: str(getattr(row, name)) for name in counts}
    details["complete"] = str(run.manifest.complete and not run.evidence.damages).lower()
    for number, reason in enumerate(row.missing_reasons, start=1):
        details[f"missing_reason_{number}"] = f"{reason.count} items: {reason.reason}"
    return {"score": row.value, "details": details, "uncertainty": _uncertainty(row)}


def _uncertainty(row: Row) -> dict[str, Any]:
    interval: Mapping[str, Any] = {"confidence_level": 0.95, "method": row.interval}
    bounds = {"lower": row.ci_low, "upper": row.ci_high}
    known = all(map(math.isfinite, bounds.values()))
    return {
        **({"standard_error": {"value": row.se, "method": "analytic"}} if math.isfinite(row.se) else {}),
        **({"confidence_interval": {**bounds, **interval}} if known else {}),
        "num_samples": row.n,
    }


def _generation(protocol: Protocol) -> dict[str, Any]:
    reading = READINGS[protocol.reading]
    arguments: dict[str, Any] = {"prompt_template": protocol.question}
    if reading.text:
        arguments |= {"temperature": 0.0, **({"max_tokens": protocol.new_tokens} if protocol.new_tokens else {})}
    facts: Sequence[tuple[str, str]] = (("num_fewshot", str(protocol.shots)), ("reading", reading.about))
    return {"generation_args": arguments, "additional_details": dict(facts)}


WRITER = Writer(
    "Every Eval Ever, schema 0.3.0: a record and its samples per run, in the layout of the data store", write
)
