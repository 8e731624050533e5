"""Writes a bundle: an evaluation whose model only notes what it is asked.

So selection, prompts, fitting, shots, boundaries, refusals and the run folder are those of any other evaluation.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import choicewise
from choicewise.data.dataset import Dataset
from choicewise.errors import ModelError, StoreError
from choicewise.extensions.training.bundles.bundle import (
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
    open_bundle,
    rows_digest,
    write_record,
)
from choicewise.models.local.files import read_config, window_of
from choicewise.models.local.tokenizer import BYTE_TOKENS, named_tokenizer, tokenizer_folder
from choicewise.protocols.protocol import Protocol, parse_signature
from choicewise.questions import Answers, Ids, Prompt, Span, TokenScores, prompt_key
from choicewise.records import MANIFEST, OBSERVATIONS, REQUESTS, SPANS, BlockRecord, Manifest
from choicewise.requests.render import RenderedRequests
from choicewise.running.evaluate import evaluate
from choicewise.running.plan import unique_tokens
from choicewise.running.progress import Progress
from choicewise.store.tables import block_file, file_record, read_columns
from choicewise.tokens.tokenizer import Tokenizer
from choicewise.util.files import copy_of, move, new_folder, remove
from choicewise.util.jsonio import json_digest
from choicewise.util.tables import write_parquet

UNANSWERED: Final = "the bundle of requests was not answered yet"
"""Why the observations of a bundle hold no numbers."""

NAME: Final = "a bundle of requests"

PROBES: Final = (
    *(
        "The capital of France is",
        " Paris",
        "Answer:",
        " A",
        "A",
        "Question: What is 17 + 25?\nAnswer: 42",
    ),
    *(
        "  two spaces",
        "\n\nA. one\nB. two",
        "naïve façade",
        "東京 is a city",
        "don't",
        "1234567890",
    ),
)
"""Texts by which a tokenizer is known: letters with and without a space, line ends, numbers, other alphabets."""

_SPOOL: Final = "spool"
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
    """Freeze what ``protocols`` ask about ``data`` in the new folder ``out``, and open that.

    ``tokenizer``: a folder, a model on the Hub, ``bundled:...`` or ``bytes``; no weights are read.  ``window``: the
    most input tokens of a sequence, by default as ``config.json`` beside the tokenizer says.  ``part``,
    what of the data is asked, ``progress`` and the others are arguments of :func:`choicewise.evaluate`.

    Protocols that need more than log-probabilities of given tokens (generated text, masked models, hidden states, masks
    of their own) are refused with a warning, and are in no bundle.  Raises StoreError where ``out`` holds anything, and
    what evaluate raises.
    """
    out = Path(out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise StoreError(
            f"{out} is there already; choose a new folder for the bundle, or delete it first"
        )
    own = named_tokenizer(str(tokenizer))
    with new_folder(out) as folder:
        (folder / _SPOOL).mkdir()
        noting = _Noting(own, _window(str(tokenizer), window), folder / _SPOOL)
        given = {
            "data": data,
            "protocols": protocols,
            "rendered": rendered,
            "progress": progress,
            **part,
        }
        asked = evaluate(model=noting, out=folder / RUN, **given).manifest
        move(folder / RUN / MANIFEST, folder / RUN / RUN_MANIFEST)
        remove(copy_of(folder / RUN / MANIFEST))
        missing = Counter[str]()
        counts = _write_rows(folder, asked, noting.calls, missing)
        remove(folder / _SPOOL)
        rows = pq.read_table(
            folder / ROWS, columns=["key", "input_ids", "spans", "label_ids", "label_at"]
        )
        record = BundleRecord(
            choicewise=choicewise.__version__,
            digest=rows_digest(rows),
            dataset=asked.dataset.name,
            dataset_digest=asked.dataset.digest,
            protocols=dict(asked.protocols),
            refused=dict(asked.refused),
            missing=dict(missing),
            window=noting.window,
            tokenizer=_record(str(tokenizer), own),
            unique_tokens=noting.unique,
            needs=_needs(asked.protocols),
            files={name: file_record(folder / name) for name in (ROWS, f"{RUN}/{RUN_MANIFEST}")},
            **counts,
        )
        write_record(folder, record)
    return open_bundle(out)


class _Noting:
    """A model that answers nothing, and notes the spans that it is asked about in files of ``spool``, one a call."""

    supports: frozenset[type] = frozenset({Span})
    name, device, dtype = NAME, "cpu", ""
    kind_name = ""
    recipe = selfcheck = computed = planned = None

    def __init__(self, tokenizer: Tokenizer, window: int, spool: Path) -> None:
        self.tokenizer, self.window, self.digest = (
            tokenizer,
            window,
            json_digest([tokenizer.digest, window]),
        )
        self.calls = self.unique = 0
        self._spool = spool

    def check(self, depth: int) -> None:
        """Nothing to check."""

    def objection(self, question: Prompt) -> None:
        """None: it is asked about spans alone."""

    def answer(self, questions: Sequence[Prompt]) -> Answers:
        """No answer to any of them."""
        spans = [question for question in questions if isinstance(question, Span)]
        self.unique += unique_tokens(spans, self.tokenizer)
        ordered = sorted(
            spans, key=lambda span: (span.context.tobytes(), span.continuation.tobytes())
        )
        contexts, continuations = (
            [span.context for span in ordered],
            [span.continuation for span in ordered],
        )
        columns = [
            pa.array([span.key for span in ordered]),
            _lists(contexts),
            _lists(continuations),
        ]
        write_parquet(self._spool / f"{self.calls:06d}.parquet", pa.table(columns, schema=_NOTED))
        self.calls += 1
        for index, span in enumerate(spans):
            yield index, TokenScores.unanswered(UNANSWERED, span.continuation)


def _lists(arrays: Sequence[Ids]) -> pa.Array:
    offsets = np.cumsum([0, *map(len, arrays)], dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(np.concatenate(arrays), pa.int32()))


def _window(name: str, window: int | None) -> int:
    """The most input tokens of a model with the tokenizer called ``name``; ModelError where nothing says it."""
    folder = None if name == BYTE_TOKENS else tokenizer_folder(name)
    if folder is not None and (folder / "config.json").is_file():
        return window_of(read_config(folder), folder, window)
    if window is None:
        raise ModelError(
            f"nothing says how many tokens fit the model of tokenizer {name}; name a window"
        )
    if window < 1:
        raise ModelError(f"window is {window} tokens; it must be at least 1")
    return window


def _record(name: str, tokenizer: Tokenizer) -> TokenizerRecord:
    ids = tokenizer.encode(PROBES, special=False)
    probes = tuple(Probe(text, tuple(own.tolist())) for text, own in zip(PROBES, ids, strict=True))
    known = len(tokenizer.token_bytes)
    return TokenizerRecord(
        name, tokenizer.digest, known, tokenizer.bos_id, tokenizer.eos_id, probes
    )


def _needs(protocols: Mapping[str, str]) -> tuple[str, ...]:
    asked = map(parse_signature, protocols.values())
    ranked = any(
        each.score == "greedy" or each.decision == "greedy-match" or each.outside != "keep"
        for each in asked
    )
    return (LOGPROB, RANK) if ranked else (LOGPROB,)


def _write_rows(folder: Path, asked: Manifest, calls: int, missing: Counter[str]) -> dict[str, int]:
    """Write the rows of all that was noted in so many ``calls``; how many they are, with their tokens.

    ``missing`` counts, by reason, the requests and choices that could not be asked.
    """
    counts = dict.fromkeys(("rows", "tokens", "scored", "longest"), 0)

    def tables() -> Iterator[pa.Table]:
        groups: dict[bytes, int] = {}
        for number, askers in _askers(folder / RUN, asked.blocks, folder / _SPOOL, calls, missing):
            noted = pq.read_table(folder / _SPOOL / f"{number:06d}.parquet")
            table = pa.Table.from_pylist(list(_rows(noted, askers, groups)), schema=SCHEMA)
            lengths = table["input_ids"].combine_chunks().value_lengths().to_numpy()
            counts["rows"] += len(table)
            counts["tokens"] += int(lengths.sum())
            counts["scored"] += int(sum(len(each) for each in noted["continuation"].to_numpy()))
            counts["longest"] = max(counts["longest"], int(lengths.max(initial=0)))
            yield table

    write_parquet(folder / ROWS, tables(), SCHEMA, repeated=["item", "null", "context"])
    return counts


_ASKER = ["choice", "part", "null", "context", "continuation"]
_Asker = Mapping[str, Any]
"""The first span that asks a question, with the context of its request."""


def _askers(
    run: Path, blocks: Sequence[BlockRecord], spool: Path, calls: int, missing: Counter[str]
) -> Iterator[tuple[int, Mapping[str, _Asker]]]:
    """The number of every call, and who first asked each of its questions; calls come in the order of blocks."""
    number = 0
    for named in _whole(blocks):
        keys, contexts, askers = set[str](), dict[tuple[str, str], str](), dict[str, _Asker]()
        for block in named:
            keys.update(
                read_columns(block_file(run, block, "observations"), OBSERVATIONS, ["key"])[
                    "key"
                ].to_pylist()
            )
            requests = read_columns(
                block_file(run, block, "requests"),
                REQUESTS,
                ["prompt", "item", "context", "missing"],
            )
            for prompt, item, context, reason in zip(
                *(each.to_pylist() for each in requests.columns), strict=True
            ):
                contexts[prompt, item] = context
                missing.update([reason] if reason else [])
            columns = ["prompt", "item", *_ASKER, "key", "tokens_dropped", "missing"]
            spans = read_columns(block_file(run, block, "spans"), SPANS, columns)
            for values in zip(*(each.to_pylist() for each in spans.columns), strict=True):
                row = dict(zip(columns, values, strict=True))
                missing.update([row["missing"]] if row["missing"] else [])
                if row["key"] in keys and row["key"] not in askers:
                    if row["context"] is None:
                        row["context"] = row["null"]
                    if row["context"] is None:
                        row["context"] = contexts[row["prompt"], row["item"]]
                    askers[row["key"]] = row
        left = len(keys)
        while left and number < calls:
            yield number, askers
            left -= pq.read_metadata(spool / f"{number:06d}.parquet").num_rows
            number += 1


def _whole(blocks: Sequence[BlockRecord]) -> Iterator[list[BlockRecord]]:
    """The blocks with those parts of them that were written earlier, which have no asks of their own."""
    part: list[BlockRecord] = []
    for block in blocks:
        part.append(block)
        if block.asks:
            yield part
            part = []


def _rows(
    noted: pa.Table, askers: Mapping[str, _Asker], groups: dict[bytes, int]
) -> Iterator[dict[str, Any]]:
    """The rows of what was noted in one call: one a context for all tokens that stand alone after it, one a span.

    ``groups``: the number of every context so far, by its digest.
    """
    columns = (
        noted["key"].to_pylist(),
        noted["context"].to_numpy(),
        noted["continuation"].to_numpy(),
    )
    ordered = zip(*columns, strict=True)
    for content, alike in groupby(ordered, key=lambda each: each[1].tobytes()):
        asked = list(alike)
        digest, context = hashlib.blake2b(content, digest_size=16).digest(), asked[0][1]
        group = groups.setdefault(digest, len(groups))
        labels = [(key, int(own[0])) for key, _, own in asked if len(own) == 1]
        if labels:
            ids = [token for _, token in labels]
            key = prompt_key(b"labels", context, np.asarray(ids, dtype=np.int32))
            texts = [askers[each] for each, _ in labels]
            about = {**_about(texts, group), "choice": None}
            yield {
                "key": key,
                "input_ids": context,
                "spans": [],
                "label_ids": ids,
                "label_at": len(context),
                **about,
            }
        for key, _, own in asked:
            if len(own) > 1:
                span = {"start": len(context), "stop": len(context) + len(own)}
                whole = np.concatenate([context, own])
                yield {
                    "key": key,
                    "input_ids": whole,
                    "spans": [span],
                    "label_ids": [],
                    **_about([askers[key]], group),
                }


def _about(asked: Sequence[_Asker], group: int) -> dict[str, Any]:
    first = asked[0]
    same = {name: first[name] for name in ("item", "choice", "part", "null", "context")}
    cut = max(each["tokens_dropped"] for each in asked)
    return {
        **same,
        "prefix_group": group,
        "window_cut": cut,
        "continuations": [each["continuation"] for each in asked],
    }
