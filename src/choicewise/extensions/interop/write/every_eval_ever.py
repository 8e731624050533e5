"""Write records of Every Eval Ever, and the .eval_results files of model repositories on the Hub.

Fields: evaleval/every_eval_ever, every_eval_ever/schemas/eval.schema.json (PyPI release 0.3.0), and
https://github.com/huggingface/hub-docs/blob/242f4a1e/eval_results.yaml
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from uuid import UUID

import choicewise
from choicewise.data.benchmarks import benchmarks
from choicewise.errors import UsageError
from choicewise.extensions.interop.export import run_identity
from choicewise.extensions.interop.write.common import (
    LONGEST,
    AnsweredItem,
    answered_items,
    distinct_name,
    file_name,
    is_finished,
    item_scores,
    last_written,
    line_files,
    missing_notes,
    model_folders,
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
from choicewise.store.tables import file_record
from choicewise.util.jsonio import JsonDict, JsonMapping, json_text
from choicewise.util.text import plain, text_digest

SCHEMA = "0.3.0"

METRIC_IDS = {"acc": "accuracy", "exact_match": "exact_match", "perplexity": "perplexity"}
"""Our metric → the id that the data store has for it; others get an id that begins with our name."""


def write_every_eval_ever(export: Export, folder: Path) -> list[str]:
    """Write ``data/DATASET/DEVELOPER/MODEL/UUID.json`` and ``UUID_samples.jsonl`` of every run
    below ``folder``, and return what is left out.
    """
    notes: list[str] = []
    for run in export.runs:
        notes += _write_record(run, export, folder)
        run.release()
    return notes


def _write_record(run: Run, export: Export, folder: Path) -> list[str]:
    """Write the record and the samples of a run, and return what is left out."""
    notes: list[str] = []
    rows: dict[str, Number] = {}
    all_rows = report_rows(run)
    for name in run.protocols:
        if name in all_rows and math.isfinite(all_rows[name].value):
            rows[name] = all_rows[name]
        else:
            notes.append(f"{run.folder}, {name}: no number to export")

    model = run.manifest.model.name.strip("/ ") or "unnamed"
    dataset = run.manifest.dataset.name
    parent = Path("data", *record_folder(dataset, model))
    uuid = record_uuid(run_identity(run))
    file = folder / parent / f"{uuid}.json"
    # The name is made of model, data and selection: another run of them would be lost.
    if file.exists():
        raise UsageError(
            f"{run.folder} has the same model, data and selection as another run; "
            "export only one of them"
        )
    file.parent.mkdir(parents=True, exist_ok=True)

    written = str(last_written([run]).timestamp())
    evaluation = f"{dataset}/{model}/{written}"
    results = {name: _result(run, row) for name, row in rows.items()}
    samples = parent / f"{uuid}_samples.jsonl"
    shared = {"schema_version": SCHEMA, "evaluation_id": evaluation, "model_id": model}
    line_count = write_samples(run, folder / samples, shared, results)
    source: JsonDict = {
        "source_name": "Choicewise",
        "source_type": "evaluation_run",
        "source_organization_name": export.organization or "not stated",
        "evaluator_relationship": "other",
    }
    if export.url:
        source["additional_details"] = {"url": export.url}
    record: JsonDict = {
        "schema_version": SCHEMA,
        "evaluation_id": evaluation,
        "evaluation_timestamp": written,
        "retrieved_timestamp": written,
        "source_metadata": source,
        "eval_library": _library(run),
        "model_info": _model(run, model),
        "evaluation_results": list(results.values()),
    }
    if line_count:
        record["detailed_evaluation_results"] = {
            "format": "jsonl",
            "file_path": samples.as_posix(),
            "hash_algorithm": "sha256",
            "checksum": file_record(folder / samples).sha256,
            "total_rows": line_count,
        }
    file.write_text(json_text(record, indent=2) + "\n", encoding="utf-8")
    return [*notes, *missing_notes(run, rows)]


def _library(run: Run) -> JsonDict:
    """Return the program that evaluated: of an imported log, the tool that wrote it."""
    versions = run.manifest.versions
    imported = run.manifest.imported
    our_version = versions.get("choicewise", choicewise.__version__)
    if imported is None:
        library: JsonDict = {"name": "choicewise", "version": our_version}
        others = {name: version for name, version in versions.items() if name != "choicewise"}
        if others:
            library["additional_details"] = others
        return library

    # A tool is written with its version behind it, or alone if the log does not have the version.
    name, _, version = imported.tool.rpartition(" ")
    if not name:
        name = imported.tool
        version = "unknown"
    details = {f"log.{key}": text for key, text in imported.settings.items()}
    for number, share in imported.recorded.items():
        details[f"log.{number}"] = str(share)
    details["scored_by"] = our_version
    return {"name": name, "version": version, "additional_details": details}


def _model(run: Run, name: str) -> JsonDict:
    """Return what is known of the model, which has this ``name`` in the record."""
    model = run.manifest.model
    # Models that we compute have a self-check; those of servers and logs have none.
    is_computed = run.manifest.engine.selfcheck is not None
    developer = LOCAL
    if "/" in name:
        developer = name.partition("/")[0]
    info: JsonDict = {"name": name, "id": name, "developer": developer}
    if is_computed:
        info["inference_engine"] = {"name": "choicewise", "version": choicewise.__version__}
    details = {
        "deployment_type": "self_deployed" if is_computed else "unknown",
        "model_availability": "open_weights" if model.source else "unknown",
        "digest": model.digest,
        "dtype": model.dtype,
        "device": model.device,
        "window": str(model.window),
    }
    if model.source:
        details["source"] = model.source
    if model.chat:
        details["chat_template_digest"] = model.chat
    info["additional_details"] = details
    return info


def _result(run: Run, row: Number) -> JsonDict:
    """Return the entry of a number."""
    identity = row.identity
    protocol = run.protocols[identity.protocol]
    reading = READINGS[protocol.reading]
    arguments: JsonDict = {"prompt_template": protocol.question}
    if reading.text:
        arguments["temperature"] = 0.0
        if protocol.new_tokens:
            arguments["max_tokens"] = protocol.new_tokens
    details = {"num_fewshot": str(protocol.shots), "reading": reading.description}
    return {
        "evaluation_result_id": f"{identity.protocol}{identity.id}",
        "evaluation_name": f"{identity.dataset} ({identity.protocol})",
        "source_data": _data(run, protocol, row),
        "metric_config": _metric(protocol, row),
        "score_details": _score(run, row),
        "generation_config": {"generation_args": arguments, "additional_details": details},
    }


def _data(run: Run, protocol: Protocol, row: Number) -> JsonDict:
    """Return where the data are from: a repository of the Hub, or a local copy."""
    dataset = run.manifest.dataset
    details = {
        "digest": dataset.digest,
        "split": protocol.split or "",
        "selection": row.identity.selection,
    }
    source: JsonDict = {"dataset_name": dataset.name}
    repository, _, revision = dataset.source.partition("@")
    if not repository:
        return source | {"source_type": "other", "additional_details": details}
    source["source_type"] = "hf_dataset"
    source["hf_repo"] = repository.partition(":")[0]
    if protocol.split:
        source["hf_split"] = protocol.split
    source["samples_number"] = row.counts.n + row.counts.missing
    source["additional_details"] = {**details, "revision": revision}
    return source


def _metric(protocol: Protocol, row: Number) -> JsonDict:
    """Return the metric of a number. Its parameters are the axes of the protocol one by one, the
    signature, and the ids of the row.
    """
    identity = row.identity
    metric = METRICS[identity.metric]
    metric_id = METRIC_IDS.get(identity.metric, f"choicewise.{identity.metric}")
    unit = metric.unit or identity.metric
    if row.share:
        unit = "proportion"
    # Every axis beside the signature, so that readers of many records can select by it.
    parameters = {axis.name: getattr(protocol, axis.name) for axis in fields(protocol)}
    parameters |= {
        "choicewise.signature": identity.signature,
        "choicewise.protocol": identity.protocol,
        "choicewise.id": identity.id,
        "choicewise.i": identity.i,
        "choicewise.t": identity.t,
        "choicewise.r": identity.r,
        "choicewise.data": identity.data,
    }
    return {
        "evaluation_description": metric.description,
        "metric_id": metric_id,
        "metric_name": f"{identity.metric} ({identity.protocol})",
        "metric_kind": metric_id,
        "metric_unit": unit,
        "metric_parameters": parameters,
        "lower_is_better": not metric.higher,
        "score_type": "continuous",
        "min_score": _edge(metric.low),
        "max_score": _edge(metric.high),
    }


def _edge(number: float) -> float | str:
    """Return an end of a metric's range, ``Infinity`` with its sign if it has none."""
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    # Other ends are whole numbers.
    return int(number)


_COUNTS = (
    "n",
    "missing",
    "invalid",
    "skipped",
    "ties",
    "shots_dropped",
    "truncated",
    "merged",
    "noncanonical",
)
"""The counts of a number that are details of its score."""


def _score(run: Run, row: Number) -> JsonDict:
    """Return a value with its uncertainty and its counts, which the schema takes as texts."""
    counts = row.counts
    details = {name: str(getattr(counts, name)) for name in _COUNTS}
    details["complete"] = str(is_finished(run)).lower()
    for number, reason in enumerate(row.missing_reasons, start=1):
        details[f"missing_reason_{number}"] = f"{reason.count} items: {reason.reason}"
    uncertainty: JsonDict = {}
    if math.isfinite(row.se):
        uncertainty["standard_error"] = {"value": row.se, "method": "analytic"}
    if _has_interval(row):
        uncertainty["confidence_interval"] = {
            "lower": row.interval.low,
            "upper": row.interval.high,
            "confidence_level": 0.95,
            "method": row.interval.name,
        }
    uncertainty["num_samples"] = counts.n
    return {"score": row.value, "details": details, "uncertainty": uncertainty}


def _has_interval(row: Number) -> bool:
    return math.isfinite(row.interval.low) and math.isfinite(row.interval.high)


LOCAL = "local"
"""The developer of models whose names have none: the data store needs one."""

_UNSAFE = re.compile(r'[<>:"\\|?*\x00-\x1f]')


def record_folder(collection: str, model: str) -> tuple[str, str, str]:
    """Return (collection, developer, model) as three folders; the developer ends at the first slash
    of a model's name.
    """
    developer, slash, name = model.partition("/")
    if not slash:
        developer = LOCAL
        name = model
    return _part(collection), _part(developer), _part(name)


def record_uuid(text: str) -> UUID:
    """Return a UUID of version 4, as the data store wants, that is equal for equal texts."""
    # The data store takes version 4 alone, which is meant for random bits.
    return UUID(bytes=hashlib.sha256(text.encode()).digest()[:16], version=4)


def _part(name: str) -> str:
    """Return a name as one folder: slashes and colons become ``_``, as in the data store, and the
    rest must be safe on every system.
    """
    flat = name.replace("/", "_").replace(":", "_")
    safe = file_name(flat)
    if _UNSAFE.search(flat) or flat.endswith((".", " ")) or len(flat.encode()) > LONGEST:
        return safe
    # A reserved name such as "con" has no unsafe character.
    return flat if safe.casefold() == flat.casefold() else safe


def write_samples(
    run: Run, file: Path, shared: Mapping[str, str], results: Mapping[str, JsonMapping]
) -> int:
    """Write the lines of a run, and return how many they are; there is no file without lines.

    ``shared``: the entries of every line. ``results``: by protocol. An item that could not be
    scored has no line: the schema needs a score, and no number would be right.
    """
    measurements: dict[str, list[Measurement]] = {}
    entries = {}
    for name, result in results.items():
        measured = run.measurements[name]
        measurements.setdefault(measured.protocol.prompt_digest, []).append(measured)
        entries[name] = {
            **shared,
            "evaluation_name": result["evaluation_name"],
            "evaluation_result_id": result["evaluation_result_id"],
        }
    count = 0
    with line_files() as add:
        for prompt, item in answered_items(run, dict.fromkeys(measurements, ())):
            for measured in measurements[prompt]:
                if math.isnan(measured.credit[item.index]):
                    continue
                add(file, json_text(entries[measured.name] | _line(item, measured)))
                count += 1
    return count


def _line(item: AnsweredItem, measured: Measurement) -> JsonDict:
    """Return the entries of a line that hold the item and its answer."""
    credit = float(measured.credit[item.index])
    predicted = int(measured.prediction[item.index])
    chosen = ""
    if 0 <= predicted < len(item.choices):
        chosen = item.choices[predicted].choice
    output = item.generated
    if output is None:
        output = chosen
    references = [item.choices[gold].choice for gold in item.gold]
    digest = text_digest(f"{item.question}{''.join(references)}")
    return {
        "sample_id": item.id,
        "sample_hash": digest,
        "interaction_type": "single_turn",
        "input": {
            "raw": item.question,
            "formatted": item.context,
            "reference": references,
            "choices": [choice.choice for choice in item.choices],
        },
        "output": {"raw": [output]},
        "answer_attribution": [
            {
                "turn_idx": 0,
                "source": "output.raw",
                "extracted_value": chosen,
                "extraction_method": measured.protocol.decision,
                "is_terminal": True,
            }
        ],
        "evaluation": {
            "score": credit,
            "is_correct": measured.metric.counted and credit == 1.0,
        },
        "metadata": _metadata(item, measured),
    }


def _metadata(item: AnsweredItem, measured: Measurement) -> dict[str, str]:
    """Return the origin, the right choices and the scores of the item as texts."""
    metadata = {
        "split": item.split,
        "subject": item.subject,
        "gold": json_text(list(item.gold)),
        "prediction": str(int(measured.prediction[item.index])),
    }
    if not measured.metric.counted:
        metadata["is_correct"] = f"not defined for the metric {measured.protocol.metric}"
    scores = item_scores(item, measured)
    if scores is not None:
        metadata["scores"] = json_text(scores)
    if READINGS[measured.protocol.reading].one_likelihood:
        loglikelihoods = [choice.loglikelihood for choice in item.choices]
        metadata["loglikelihoods"] = json_text(loglikelihoods)
    return metadata


BOARDS: Mapping[str, tuple[str, str]] = {
    "gpqa": ("diamond", "diamond"),
    "gsm8k": ("gsm8k", ""),
    "mmlu-pro": ("mmlu_pro", ""),
}
"""Benchmark → (task in the dataset's ``eval.yaml``, the only subject or "" for all) of its
leaderboard.

They are those of evaleval/every_eval_ever 0.3.0, tools/hf_community_evals.py.
"""


def write_eval_results(export: Export, folder: Path) -> list[str]:
    """Write ``MODEL/.eval_results/NAME.yaml`` below ``folder``, and return what is left out.

    The files in MODEL go into the model's repository.
    """
    notes: list[str] = []
    for name, runs in model_folders(export.runs):
        taken: set[str] = set()
        for run in runs:
            notes += _write_eval_results_run(run, export, folder / name / ".eval_results", taken)
            run.release()
    return notes


@dataclass(frozen=True)
class _Board:
    """Hold where a score is shown: the repository of the data with its ``revision``, "" for a local
    copy, and the task in its ``eval.yaml``.
    """

    repository: str
    revision: str
    task: str


def _write_eval_results_run(
    run: Run, export: Export, folder: Path, taken: set[str]
) -> Iterator[str]:
    """Write the scores of a run, and yield why others are left out."""
    dataset = run.manifest.dataset
    selection = run.manifest.selection
    task, subject = BOARDS.get(dataset.name, ("default", ""))
    board = _board(dataset, task)
    if board is None:
        yield (
            f"{run.folder}: left out, as no repository of the Hub is known for {dataset.name}, "
            "so it has no board"
        )
        return
    is_part = selection.limit is not None or selection.sample is not None
    if selection.subjects is not None and selection.subjects != (subject,):
        is_part = True
    if is_part:
        yield f"{run.folder}: left out, as it has only a part of {dataset.name}; a board needs all"
        return
    if dataset.name not in BOARDS:
        yield (
            f"{run.folder}: {board.repository} may have no board; "
            "compare task_id with eval.yaml there"
        )
    if not dataset.source:
        yield f"{run.folder}: {_unchecked(board)}; compare the item counts before you publish"

    # The board of a benchmark with one subject is about the items of that subject.
    if subject:
        rows = [row for row in run.rows("subjects") if row.identity.subject == subject]
    else:
        rows = list(report_rows(run).values())
    for row in rows:
        protocol = row.identity.protocol
        if not math.isfinite(row.value):
            yield f"{run.folder}, {protocol}: no number to export"
            continue
        name = file_name(f"{dataset.name}_{protocol.removeprefix(f'{dataset.name}/')}")
        name = distinct_name(name, taken, row.identity.id[1:])
        taken.add(name)
        folder.mkdir(parents=True, exist_ok=True)
        text = _yaml(run, row, board, export)
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")


def _board(dataset: DatasetRecord, task: str) -> _Board | None:
    """Return the board of the data, None if their repository is unknown."""
    if dataset.source:
        repository, _, revision = dataset.source.partition("@")
        return _Board(repository.partition(":")[0], revision, task)
    if dataset.name in benchmarks():
        return _Board(benchmarks()[dataset.name].repository, "", task)
    return None


def _yaml(run: Run, row: Number, board: _Board, export: Export) -> str:
    """Return the file of a score. A text in double quotes as JSON writes it is YAML too."""
    value = row.value
    if row.share:
        # Boards show percentages.
        value = round(100 * row.value, 4)
    lines = [
        "- dataset:",
        f"    id: {_scalar(board.repository)}",
        f"    task_id: {_scalar(board.task)}",
    ]
    if board.revision:
        lines.append(f"    revision: {_scalar(board.revision)}")
    lines.append(f"  value: {_scalar(value)}")
    lines.append(f"  date: {_scalar(last_written([run]).date().isoformat())}")
    if export.url:
        lines.append("  source:")
        lines.append(f"    url: {_scalar(export.url)}")
        if export.organization:
            lines.append(f"    org: {_scalar(export.organization)}")
    lines.append(f"  notes: {_scalar(_notes(run, row, board))}")
    return "\n".join(lines) + "\n"


def _unchecked(board: _Board) -> str:
    return f"the data are a local copy, not compared with {board.repository}"


def _notes(run: Run, row: Number, board: _Board) -> str:
    """Describe in a line how the score was measured: protocol, ids, unit, interval, counts."""
    identity = row.identity
    counts = row.counts
    parts = [f"{identity.protocol} {identity.id} {identity.i} {identity.t}"]
    if row.share:
        parts.append(f"{identity.metric} in %")
    else:
        parts.append(f"{identity.metric} ({METRICS[identity.metric].direction})")
    if _has_interval(row):
        interval = row.interval
        if row.share:
            parts.append(f"95 % interval {100 * interval.low:.2f} to {100 * interval.high:.2f}%")
        else:
            parts.append(f"95 % interval {plain(interval.low)} to {plain(interval.high)}")
    parts.append(f"{counts.n} items")
    if counts.missing:
        parts.append(f"{counts.missing} missing")
    if not is_finished(run):
        parts.append("incomplete")
    if not run.manifest.dataset.source:
        parts.append(_unchecked(board))
    parts.append(f"Choicewise {choicewise.__version__}")
    return "; ".join(parts)


def _scalar(value: object) -> str:
    """Return a number, or a text in double quotes with invisible characters as escapes of YAML."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return "".join(map(_escaped, text))


def _escaped(char: str) -> str:
    # JSON leaves characters such as U+0085 as they are, which end a line of YAML.
    return char if char.isprintable() else f"\\U{ord(char):08x}"
