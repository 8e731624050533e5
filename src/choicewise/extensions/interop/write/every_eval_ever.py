"""Every Eval Ever, .eval_results.

Meaning of the fields: evaleval/every_eval_ever, every_eval_ever/schemas/eval.schema.json (PyPI release 0.3.0).

The format: https://github.com/huggingface/hub-docs/blob/242f4a1e/eval_results.yaml
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any
from uuid import UUID

import choicewise
from choicewise.data.benchmarks import benchmarks
from choicewise.errors import UsageError
from choicewise.extensions.interop.export import identity
from choicewise.extensions.interop.write.common import (
    LONGEST,
    AnsweredItem,
    answered_items,
    by_model,
    file_name,
    free_name,
    last_written,
    line_files,
    report_rows,
)
from choicewise.ports import Export
from choicewise.protocols.metrics import METRICS
from choicewise.protocols.protocol import Protocol
from choicewise.protocols.readings import READINGS
from choicewise.records import DatasetRecord
from choicewise.results.measurement import Measurement
from choicewise.results.number import Number
from choicewise.results.run import Run
from choicewise.util.jsonio import json_text
from choicewise.util.text import plain

SCHEMA = "0.3.0"

METRIC_IDS = {"acc": "accuracy", "exact_match": "exact_match", "perplexity": "perplexity"}
"""Our metric → the id that the data store has for it; others have an id of their own."""


def write_every_eval_ever(export: Export, folder: Path) -> list[str]:
    """Write ``data/DATASET/DEVELOPER/MODEL/UUID.json`` and ``UUID_samples.jsonl`` of every run below ``folder``."""
    return [note for run in export.runs for note in _write_every_eval_ever_run(run, export, folder)]


def _write_every_eval_ever_run(run: Run, export: Export, folder: Path) -> Iterator[str]:
    manifest = run.manifest
    model, dataset = manifest.model.name.strip("/ ") or "unnamed", manifest.dataset.name
    place = Path("data", *record_folder(dataset, model))
    uuid = record_uuid(identity(run))
    written = str(last_written([run]).timestamp())
    evaluation = f"{dataset}/{model}/{written}"
    rows = {name: row for name, row in report_rows(run).items() if math.isfinite(row.value)}
    yield from (
        f"{run.folder}, {name}: no number to export" for name in run.protocols if name not in rows
    )
    results = {name: _result(run, row) for name, row in rows.items()}
    if (folder / place / f"{uuid}.json").exists():
        raise UsageError(
            f"{run.folder} is of the same model, data and selection as another run; export one of them"
        )
    (folder / place).mkdir(parents=True, exist_ok=True)
    samples = place / f"{uuid}_samples.jsonl"
    shared = {"schema_version": SCHEMA, "evaluation_id": evaluation, "model_id": model}
    about = {
        name: (each["evaluation_name"], each["evaluation_result_id"])
        for name, each in results.items()
    }
    lines = write_samples(run, folder / samples, shared, about)
    record = {
        "schema_version": SCHEMA,
        "evaluation_id": evaluation,
        "evaluation_timestamp": written,
        "retrieved_timestamp": written,
        "source_metadata": {
            "source_name": "Choicewise",
            "source_type": "evaluation_run",
            "source_organization_name": export.organization or "not stated",
            "evaluator_relationship": "other",
            **({"additional_details": {"url": export.url}} if export.url else {}),
        },
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
    (folder / place / f"{uuid}.json").write_text(
        json_text(record, indent=2) + "\n", encoding="utf-8"
    )
    for name, row in rows.items():
        if row.counts.missing:
            yield f"{run.folder}, {name}: {row.counts.missing} items are missing and have no line in the samples"
    run.release()


def _library(run: Run) -> dict[str, Any]:
    versions, imported = run.manifest.versions, run.manifest.imported
    ours = versions.get("choicewise", choicewise.__version__)
    if imported is not None:
        name, _, version = imported.tool.rpartition(" ")
        facts = {f"log.{key}": text for key, text in imported.settings.items()} | {
            "scored_by": ours
        }
        return {
            "name": name or imported.tool,
            "version": version if name else "unknown",
            "additional_details": facts,
        }
    details = {name: version for name, version in versions.items() if name != "choicewise"}
    return {
        "name": "choicewise",
        "version": ours,
        **({"additional_details": details} if details else {}),
    }


def _model(run: Run, model: str) -> dict[str, Any]:
    record, computed = run.manifest.model, run.manifest.engine.selfcheck is not None
    developer, slash, _ = model.partition("/")
    details = {
        "deployment_type": "self_deployed" if computed else "unknown",
        "model_availability": "open_weights" if record.source else "unknown",
        **{
            "digest": record.digest,
            "dtype": record.dtype,
            "device": record.device,
            "window": str(record.window),
        },
        **({"source": record.source} if record.source else {}),
        **({"chat_template_digest": record.chat} if record.chat else {}),
    }
    return {
        "name": model,
        "id": model,
        "developer": developer if slash else LOCAL,
        **(
            {"inference_engine": {"name": "choicewise", "version": choicewise.__version__}}
            if computed
            else {}
        ),
        "additional_details": details,
    }


def _result(run: Run, row: Number) -> dict[str, Any]:
    protocol = run.protocols[row.identity.protocol]
    reading = READINGS[protocol.reading]
    limit = {"max_tokens": protocol.new_tokens} if protocol.new_tokens else {}
    arguments = {
        "prompt_template": protocol.question,
        **({"temperature": 0.0, **limit} if reading.text else {}),
    }
    facts = {"num_fewshot": str(protocol.shots), "reading": reading.description}
    return {
        "evaluation_result_id": f"{row.identity.protocol}{row.identity.id}",
        "evaluation_name": f"{row.identity.dataset} ({row.identity.protocol})",
        "source_data": _data(run, protocol, row),
        "metric_config": _metric(protocol, row),
        "score_details": _score(run, row),
        "generation_config": {"generation_args": arguments, "additional_details": facts},
    }


def _data(run: Run, protocol: Protocol, row: Number) -> dict[str, Any]:
    dataset = run.manifest.dataset
    repository, _, revision = dataset.source.partition("@")
    details = {
        "digest": dataset.digest,
        "split": protocol.split or "",
        "selection": row.identity.selection,
    }
    if not repository:
        return {"dataset_name": dataset.name, "source_type": "other", "additional_details": details}
    return {
        **{
            "dataset_name": dataset.name,
            "source_type": "hf_dataset",
            "hf_repo": repository.partition(":")[0],
        },
        **({"hf_split": protocol.split} if protocol.split else {}),
        "samples_number": row.counts.n + row.counts.missing,
        "additional_details": {**details, "revision": revision},
    }


def _metric(protocol: Protocol, row: Number) -> dict[str, Any]:
    """What is measured; its parameters are the signature, its axes one by one, and the ids that stand beside a row."""
    metric, known = (
        METRIC_IDS.get(row.identity.metric, f"choicewise.{row.identity.metric}"),
        METRICS[row.identity.metric],
    )
    identity = row.identity
    ids = {
        "signature": identity.signature,
        "protocol": identity.protocol,
        "id": identity.id,
        "i": identity.i,
        "t": identity.t,
        "r": identity.r,
        "data": identity.data,
    }
    axes = {axis.name: getattr(protocol, axis.name) for axis in fields(protocol)}
    return {
        "evaluation_description": known.description,
        **{
            "metric_id": metric,
            "metric_name": f"{row.identity.metric} ({row.identity.protocol})",
            "metric_kind": metric,
        },
        "metric_unit": "proportion" if row.share else known.unit or row.identity.metric,
        "metric_parameters": {
            **axes,
            **{f"choicewise.{name}": value for name, value in ids.items()},
        },
        "lower_is_better": not known.higher,
        **{
            "score_type": "continuous",
            "min_score": _edge(known.low),
            "max_score": _edge(known.high),
        },
    }


def _edge(number: float) -> float | str:
    """An end of a metric's range: a number, or ``Infinity`` with its sign, which JSON has no number for."""
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    return int(number)  # all are whole


def _score(run: Run, row: Number) -> dict[str, Any]:
    counts = row.counts
    details = {
        "n": str(counts.n),
        "missing": str(counts.missing),
        "invalid": str(counts.invalid),
        "skipped": str(counts.skipped),
        "ties": str(counts.ties),
        "shots_dropped": str(counts.shots_dropped),
        "truncated": str(counts.truncated),
        "merged": str(counts.merged),
        "noncanonical": str(counts.noncanonical),
    }
    details["complete"] = str(run.manifest.complete and not run.evidence.damages).lower()
    for number, reason in enumerate(row.missing_reasons, start=1):
        details[f"missing_reason_{number}"] = f"{reason.count} items: {reason.reason}"
    uncertainty: dict[str, Any] = {}
    if math.isfinite(row.se):
        uncertainty["standard_error"] = {"value": row.se, "method": "analytic"}
    if math.isfinite(row.interval.low) and math.isfinite(row.interval.high):
        method = {"confidence_level": 0.95, "method": row.interval.name}
        uncertainty["confidence_interval"] = {
            "lower": row.interval.low,
            "upper": row.interval.high,
            **method,
        }
    return {
        "score": row.value,
        "details": details,
        "uncertainty": {**uncertainty, "num_samples": row.counts.n},
    }


LOCAL = "local"
"""The developer of models whose names say none: the data store needs one."""

_UNSAFE = re.compile(r'[<>:"\\|?*\x00-\x1f]')


def record_folder(collection: str, model: str) -> tuple[str, str, str]:
    """(collection, developer, model) as three folders; the developer is what stands before the first slash."""
    developer, slash, name = model.partition("/")
    if not slash:
        developer, name = LOCAL, model
    return _part(collection), _part(developer), _part(name)


def record_uuid(text: str) -> UUID:
    """A UUID of version 4, as the data store asks for, that is always the same for the same text."""
    return UUID(bytes=hashlib.sha256(text.encode()).digest()[:16], version=4)


def _part(name: str) -> str:
    """A name as one folder: slashes and colons become ``_``, as in the data store; the rest must be safe anywhere."""
    flat = name.replace("/", "_").replace(":", "_")
    plain = (
        not _UNSAFE.search(flat) and not flat.endswith((".", " ")) and len(flat.encode()) <= LONGEST
    )
    return flat if plain and file_name(flat).casefold() == flat.casefold() else file_name(flat)


def write_samples(
    run: Run, file: Path, shared: Mapping[str, str], about: Mapping[str, tuple[str, str]]
) -> int:
    """Write the lines of a run, and return how many they are; no file where there is none.

    ``shared``: what every line says; ``about``: protocol → name and id of its result.  An item that could not be scored
    has no line: the schema asks for a score, and no number is the right one.
    """
    by_prompt: dict[str, list[Measurement]] = {}
    for name in about:
        measured = run.measurements[name]
        by_prompt.setdefault(measured.protocol.prompt_digest, []).append(measured)
    count = 0
    with line_files() as add:
        for prompt, item in answered_items(run, dict.fromkeys(by_prompt, ())):
            for measured in by_prompt[prompt]:
                if not math.isnan(measured.credit[item.index]):
                    names = dict(
                        zip(
                            ("evaluation_name", "evaluation_result_id"),
                            about[measured.name],
                            strict=True,
                        )
                    )
                    add(file, json_text({**shared, **names, **_line(item, measured)}))
                    count += 1
    return count


def _line(item: AnsweredItem, measured: Measurement) -> dict[str, Any]:
    credit = float(measured.credit[item.index])
    predicted = int(measured.prediction[item.index])
    chosen = item.choices[predicted].choice if 0 <= predicted < len(item.choices) else ""
    references = [item.choices[gold].choice for gold in item.gold]
    output = chosen if item.generated is None else item.generated
    digest = hashlib.sha256(f"{item.question}{''.join(references)}".encode()).hexdigest()
    right = measured.metric.counted and credit == 1.0
    return {
        "sample_id": item.id,
        "sample_hash": digest,
        "interaction_type": "single_turn",
        "input": {
            **{"raw": item.question, "formatted": item.context, "reference": references},
            "choices": [choice.choice for choice in item.choices],
        },
        "output": {"raw": [output]},
        "answer_attribution": [
            {
                **{"turn_idx": 0, "source": "output.raw", "extracted_value": chosen},
                **{"extraction_method": measured.protocol.decision, "is_terminal": True},
            }
        ],
        "evaluation": {"score": credit, "is_correct": right},
        "metadata": dict(_metadata(item, measured)),
    }


def _metadata(item: AnsweredItem, measured: Measurement) -> Iterator[tuple[str, str]]:
    """Texts about the item: where it is from, what was right, and the number of every choice."""
    yield from (
        ("split", item.split),
        ("subject", item.subject),
        ("gold", json_text(list(item.gold))),
    )
    yield "prediction", str(int(measured.prediction[item.index]))
    if not measured.metric.counted:
        yield "is_correct", f"not defined by the metric {measured.protocol.metric}"
    if measured.known_scores is not None:
        yield "scores", json_text(measured.known_scores[item.row : item.row + len(item)].tolist())
    if READINGS[measured.protocol.reading].one_likelihood:
        yield "loglikelihoods", json_text([choice.loglikelihood for choice in item.choices])


BOARDS: Mapping[str, tuple[str, str]] = {
    "gpqa": ("diamond", "diamond"),
    "gsm8k": ("gsm8k", ""),
    "mmlu-pro": ("mmlu_pro", ""),
}
"""Benchmark → (its task in the dataset's ``eval.yaml``, the only subject of it or nothing for all) of its leaderboard.

Those that are known (evaleval/every_eval_ever 0.3.0, tools/hf_community_evals.py).
"""


def write_eval_results(export: Export, folder: Path) -> list[str]:
    """Write ``MODEL/.eval_results/NAME.yaml`` below ``folder``: what is in MODEL goes into the model's repository."""
    notes: list[str] = []
    folders: list[str] = []
    for runs in by_model(export.runs):
        name = free_name(
            file_name(runs[0].manifest.model.name), folders, runs[0].manifest.model.digest[:6]
        )
        folders.append(name)
        taken: set[str] = set()
        for run in runs:
            notes += _write_eval_results_run(run, export, folder / name / ".eval_results", taken)
            run.release()
    return notes


def _write_eval_results_run(
    run: Run, export: Export, folder: Path, taken: set[str]
) -> Iterator[str]:
    """Write the scores of a run, and say of each that is left out why."""
    dataset, selection = run.manifest.dataset, run.manifest.selection
    place = _repository(dataset)
    if place is None:
        yield f"{run.folder}: {dataset.name} is on no repository of the Hub that is known, so its scores have no board"
        return
    task, subject = BOARDS.get(dataset.name, ("default", ""))
    part = selection.limit is not None or selection.sample is not None
    if part or (selection.subjects is not None and selection.subjects != (subject,)):
        yield f"{run.folder}: it is about a part of {dataset.name} alone, and a board is about all of it"
        return
    if dataset.name not in BOARDS:
        yield f"{run.folder}: whether {place[0]} has a board is not known; compare task_id with its eval.yaml"
    if not dataset.source:
        yield f"{run.folder}: {_unchecked(place[0])}; compare the number of items before it is published"
    by_subject = (
        [row for row in run.rows("subjects") if row.identity.subject == subject]
        if subject
        else None
    )
    for row in report_rows(run).values() if by_subject is None else by_subject:
        if not math.isfinite(row.value):
            yield f"{run.folder}, {row.identity.protocol}: no number to export"
            continue
        own = file_name(f"{dataset.name}_{row.identity.protocol.removeprefix(f'{dataset.name}/')}")
        taken.add(name := free_name(own, taken, row.identity.id[1:]))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.yaml").write_text(_yaml(run, row, place, task, export), encoding="utf-8")


def _repository(dataset: DatasetRecord) -> tuple[str, str] | None:
    """Repository and commit of the data, the commit empty for a local copy of a benchmark; None where not known."""
    if dataset.source:
        repository, _, revision = dataset.source.partition("@")
        return repository.partition(":")[0], revision
    return (benchmarks()[dataset.name].repository, "") if dataset.name in benchmarks() else None


def _yaml(run: Run, row: Number, place: tuple[str, str], task: str, export: Export) -> str:
    """The file: every text in double quotes, as JSON writes it, which is YAML, too."""
    repository, revision = place
    dataset = {"id": repository, "task_id": task, "revision": revision}
    source = {"url": export.url, "org": export.organization} if export.url else {}
    value = round(100 * row.value, 4) if row.share else row.value
    lines = [
        "- dataset:",
        *(f"    {name}: {_scalar(text)}" for name, text in dataset.items() if text),
        f"  value: {_scalar(value)}",
        f"  date: {_scalar(last_written([run]).date().isoformat())}",
        *(["  source:"] if source else []),
        *(f"    {name}: {_scalar(text)}" for name, text in source.items() if text),
        f"  notes: {_scalar(_notes(run, row, repository))}",
    ]
    return "\n".join(lines) + "\n"


def _unchecked(repository: str) -> str:
    return f"its data are a local copy, which was not compared with {repository}"


def _notes(run: Run, row: Number, repository: str) -> str:
    """How the score was measured, in a line: protocol, ids, unit, interval, what is missing."""
    share = "%" if row.share else ""
    metric = "in %" if row.share else f"({METRICS[row.identity.metric].direction})"
    parts = [
        f"{row.identity.protocol} {row.identity.id} {row.identity.i} {row.identity.t}",
        f"{row.identity.metric} {metric}",
    ]
    if math.isfinite(row.interval.low) and math.isfinite(row.interval.high):
        low, high = (
            f"{100 * edge:.2f}" if row.share else plain(edge)
            for edge in (row.interval.low, row.interval.high)
        )
        parts.append(f"95 % interval {low} to {high}{share}")
    parts.append(f"{row.counts.n} items")
    if row.counts.missing:
        parts.append(f"{row.counts.missing} missing")
    if not run.manifest.complete or run.evidence.damages:
        parts.append("incomplete")
    if not run.manifest.dataset.source:
        parts.append(_unchecked(repository))
    return "; ".join([*parts, f"Choicewise {choicewise.__version__}"])


def _scalar(value: object) -> str:
    """A number, or a text in double quotes with what can't be seen as escapes of YAML."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return "".join(char if char.isprintable() else f"\\U{ord(char):08x}" for char in text)
