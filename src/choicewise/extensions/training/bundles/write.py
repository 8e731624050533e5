"""Writing a bundle: an evaluation with a model that records its questions and answers none.

So selection, prompts, fitting, shots, boundaries, refusals and the run folder are those of every
other evaluation.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import choicewise
from choicewise.data.dataset import Dataset
from choicewise.errors import ModelError, StoreError
from choicewise.extensions.run.plan import unique_tokens
from choicewise.extensions.training.bundles.bundle import (
    DIGESTED,
    LOGPROB,
    RANK,
    ROWS,
    RUN,
    RUN_MANIFEST,
    SCHEMA,
    Bundle,
    BundleRecord,
    Probe,
    TokenizerRecord,
    count_rows,
    open_bundle,
    rows_digest,
    write_record,
)
from choicewise.models.local.files import read_config, window_of
from choicewise.models.local.tokenizer import BYTE_TOKENS, named_tokenizer, tokenizer_folder
from choicewise.protocols.protocol import Protocol, parse_signature
from choicewise.questions import Answers, Ids, Prompt, Span, TokenScores, prompt_key
from choicewise.records import MANIFEST, OBSERVATIONS, REQUESTS, SPANS, BlockRecord
from choicewise.requests.render import RenderedRequests
from choicewise.running.evaluate import evaluate
from choicewise.running.progress import Progress
from choicewise.store.tables import block_file, file_record, read_columns
from choicewise.tokens.tokenizer import Tokenizer
from choicewise.util.files import copy_of, move, new_folder, remove
from choicewise.util.jsonio import JsonDict, JsonMapping, json_digest
from choicewise.util.tables import write_parquet

UNANSWERED = "the bundle of requests was not answered yet"
"""Why the observations of a bundle hold no numbers."""

NAME = "a bundle of requests"

PROBES = (
    "The capital of France is",
    " Paris",
    "Answer:",
    " A",
    "A",
    "Question: What is 17 + 25?\nAnswer: 42",
    "  two spaces",
    "\n\nA. one\nB. two",
    "naïve façade",
    "東京 is a city",
    "don't",
    "1234567890",
)
"""Texts that distinguish tokenizers: letters with and without a space, line ends, numbers, scripts.
"""

_SPOOL = "spool"
_NOTED = pa.schema(
    [
        ("key", pa.string()),
        ("context", pa.list_(pa.int32())),
        ("continuation", pa.list_(pa.int32())),
    ]
)


def write_bundle(
    *,
    tokenizer: str | Path,
    data: str | Path | Dataset,
    protocols: Sequence[str] | Mapping[str, Protocol],
    out: str | Path,
    window: int | None = None,
    rendered: Sequence[RenderedRequests] = (),
    progress: Progress | None = None,
    **part: Any,
) -> Bundle:
    """Freeze the requests of ``protocols`` about ``data`` in the new folder ``out``, and open it.

    ``tokenizer``: a folder, a model on the Hub, ``bundled:...`` or ``bytes``; no weights are read.
    ``window``: the most input tokens of a sequence, by default from ``config.json`` beside the
    tokenizer.  The other arguments are those of :func:`choicewise.evaluate`; ``part`` selects
    items.

    Protocols that need more than log-probabilities of given tokens (generated text, masked models,
    hidden states, attention masks) are refused with a warning, and are in no bundle.  Raises
    StoreError if ``out`` is not empty, and the errors of evaluate.
    """
    out = Path(out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise StoreError(
            f"{out} already exists; choose a new folder for the bundle, or delete it first"
        )
    name = str(tokenizer)
    opened = named_tokenizer(name)
    with new_folder(out) as folder:
        run = folder / RUN
        spool = folder / _SPOOL
        spool.mkdir()
        model = _NotingModel(opened, _window(name, window), spool)
        manifest = evaluate(
            model=model,
            out=run,
            data=data,
            protocols=protocols,
            rendered=rendered,
            progress=progress,
            **part,
        ).manifest
        move(run / MANIFEST, run / RUN_MANIFEST)
        remove(copy_of(run / MANIFEST))
        missing = Counter[str]()
        tables = _tables(run, manifest.blocks, spool, model.calls, missing)
        write_parquet(folder / ROWS, tables, SCHEMA, repeated=["item", "null", "context"])
        remove(spool)
        rows = pq.read_table(folder / ROWS, columns=DIGESTED)
        counts = count_rows(rows)
        record = BundleRecord(
            choicewise=choicewise.__version__,
            digest=rows_digest(rows),
            dataset=manifest.dataset.name,
            dataset_digest=manifest.dataset.digest,
            protocols=dict(manifest.protocols),
            refused=dict(manifest.refused),
            missing=dict(missing),
            window=model.window,
            tokenizer=_tokenizer_record(name, opened),
            rows=counts["rows"],
            tokens=counts["tokens"],
            unique_tokens=model.unique,
            scored=counts["scored"],
            longest=counts["longest"],
            needs=_needs(manifest.protocols),
            files={file: file_record(folder / file) for file in (ROWS, f"{RUN}/{RUN_MANIFEST}")},
        )
        write_record(folder, record)
    return open_bundle(out)


class _NotingModel:
    """Answer nothing, and write the spans of every call to a file in ``spool``."""

    supports: frozenset[type] = frozenset({Span})
    name = NAME
    kind_name = ""
    device = "cpu"
    dtype = ""
    recipe = selfcheck = computed = planned = None

    def __init__(self, tokenizer: Tokenizer, window: int, spool: Path) -> None:
        self.tokenizer = tokenizer
        self.window = window
        self.digest = json_digest([tokenizer.digest, window])
        self.calls = 0
        self.unique = 0
        self._spool = spool

    def check(self, depth: int) -> None:
        """Check nothing."""

    def objection(self, question: Prompt) -> None:
        """Return None: all questions are spans, and all spans can be written."""

    def answer(self, questions: Sequence[Prompt]) -> Answers:
        """Write the questions to the spool, and yield an empty answer for each."""
        spans = [question for question in questions if isinstance(question, Span)]
        self.unique += unique_tokens(spans, self.tokenizer)
        # Rows with equal contexts become neighbours, so that an engine's cache of prefixes hits.
        ordered = sorted(spans, key=_token_bytes)
        columns = [
            pa.array([span.key for span in ordered]),
            _lists([span.context for span in ordered]),
            _lists([span.continuation for span in ordered]),
        ]
        write_parquet(_spooled(self._spool, self.calls), pa.table(columns, schema=_NOTED))
        self.calls += 1
        for index, span in enumerate(spans):
            yield index, TokenScores.unanswered(UNANSWERED, span.continuation)


def _token_bytes(span: Span) -> tuple[bytes, bytes]:
    return span.context.tobytes(), span.continuation.tobytes()


def _lists(arrays: Sequence[Ids]) -> pa.Array:
    offsets = np.cumsum([0, *map(len, arrays)], dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(np.concatenate(arrays), pa.int32()))


def _spooled(spool: Path, call: int) -> Path:
    return spool / f"{call:06d}.parquet"


def _window(name: str, window: int | None) -> int:
    """Return the most input tokens of a model with this tokenizer; ModelError if unknown."""
    if name != BYTE_TOKENS:
        folder = tokenizer_folder(name)
        if (folder / "config.json").is_file():
            return window_of(read_config(folder), folder, window)
    if window is None:
        raise ModelError(
            f"the context length of the model with tokenizer {name} is unknown; pass a window"
        )
    if window < 1:
        raise ModelError(f"window is {window} tokens; it must be at least 1")
    return window


def _tokenizer_record(name: str, tokenizer: Tokenizer) -> TokenizerRecord:
    probes = []
    for text, ids in zip(PROBES, tokenizer.encode(PROBES, special=False), strict=True):
        probes.append(Probe(text, tuple(ids.tolist())))
    return TokenizerRecord(
        name=name,
        digest=tokenizer.digest,
        vocabulary=len(tokenizer.token_bytes),
        bos=tokenizer.bos_id,
        eos=tokenizer.eos_id,
        probes=tuple(probes),
    )


def _needs(signatures: Mapping[str, str]) -> tuple[str, ...]:
    for signature in signatures.values():
        protocol = parse_signature(signature)
        is_greedy = protocol.score == "greedy" or protocol.decision == "greedy-match"
        if is_greedy or protocol.outside != "keep":
            return (LOGPROB, RANK)
    return (LOGPROB,)


_SpanRow = JsonMapping
"""A row of the table of spans, with the context of its request."""


def _tables(
    run: Path, blocks: Sequence[BlockRecord], spool: Path, calls: int, missing: Counter[str]
) -> Iterator[pa.Table]:
    """Yield the rows of every call of the model, and count in ``missing`` by reason what it lacks."""
    # Contexts are numbered by digest, as all of them together may not fit in memory.
    groups: dict[bytes, int] = {}
    call = 0
    keys: set[str] = set()
    contexts: dict[tuple[str, str], str] = {}
    spans: dict[str, _SpanRow] = {}
    for block in blocks:
        _read_block(run, block, keys, contexts, spans, missing)
        # A block that grew in several parts names its requests in the last one.  Calls come in the
        # order of blocks, and a block has one call or several.
        if not block.asks:
            continue
        remaining = len(keys)
        while remaining and call < calls:
            noted = pq.read_table(_spooled(spool, call))
            yield pa.Table.from_pylist(list(_rows(noted, spans, groups)), schema=SCHEMA)
            remaining -= len(noted)
            call += 1
        keys.clear()
        contexts.clear()
        spans.clear()


def _read_block(
    run: Path,
    block: BlockRecord,
    keys: set[str],
    contexts: dict[tuple[str, str], str],
    spans: dict[str, _SpanRow],
    missing: Counter[str],
) -> None:
    """Add the keys of observations, the contexts of requests and the first span of each key."""
    observations = block_file(run, block, "observations")
    keys.update(read_columns(observations, OBSERVATIONS, ["key"])["key"].to_pylist())
    columns = ["prompt", "item", "context", "missing"]
    requests = read_columns(block_file(run, block, "requests"), REQUESTS, columns)
    missing.update(requests["missing"].drop_null().to_pylist())
    for request in requests.to_pylist():
        contexts[request["prompt"], request["item"]] = request["context"]
    columns = [
        *("prompt", "item", "choice", "part", "null", "context", "continuation"),
        *("key", "tokens_dropped", "missing"),
    ]
    table = read_columns(block_file(run, block, "spans"), SPANS, columns)
    missing.update(table["missing"].drop_null().to_pylist())
    for span in table.to_pylist():
        key = span["key"]
        if key not in keys or key in spans:
            continue
        if span["context"] is None:
            span["context"] = span["null"]
        if span["context"] is None:
            span["context"] = contexts[span["prompt"], span["item"]]
        spans[key] = span


def _rows(
    noted: pa.Table, spans: Mapping[str, _SpanRow], groups: dict[bytes, int]
) -> Iterator[JsonDict]:
    """Yield the rows of one call: for each context one row of labels, and one for each longer span."""
    keys = noted["key"].to_pylist()
    ordered = zip(keys, noted["context"].to_numpy(), noted["continuation"].to_numpy(), strict=True)
    for content, same_context in groupby(ordered, key=lambda question: question[1].tobytes()):
        digest = hashlib.blake2b(content, digest_size=16).digest()
        group = groups.setdefault(digest, len(groups))
        context = np.frombuffer(content, dtype=np.int32)
        label_spans = []
        label_ids = []
        longer_rows = []
        for key, _, continuation in same_context:
            # One forward pass over the context scores all its labels.
            if len(continuation) == 1:
                label_spans.append(spans[key])
                label_ids.append(int(continuation[0]))
                continue
            stop = len(context) + len(continuation)
            row = _texts([spans[key]], group)
            row["key"] = key
            row["input_ids"] = np.concatenate([context, continuation])
            row["spans"] = [{"start": len(context), "stop": stop}]
            row["label_ids"] = []
            longer_rows.append(row)
        if label_spans:
            row = _texts(label_spans, group)
            row["key"] = prompt_key(b"labels", context, np.asarray(label_ids, dtype=np.int32))
            row["input_ids"] = context
            row["spans"] = []
            row["label_ids"] = label_ids
            row["label_at"] = len(context)
            row["choice"] = None
            yield row
        yield from longer_rows


def _texts(spans: Sequence[_SpanRow], group: int) -> JsonDict:
    """Return the columns of a row that describe its ``spans``."""
    first = spans[0]
    row = {name: first[name] for name in ("item", "choice", "part", "null", "context")}
    row["prefix_group"] = group
    row["window_cut"] = max(span["tokens_dropped"] for span in spans)
    row["continuations"] = [span["continuation"] for span in spans]
    return row
