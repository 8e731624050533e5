"""The format of a bundle: requests in tokens, frozen in a folder, so that any engine can answer
them.

The folder holds three things.  ``requests.parquet``, a row for each sequence, is all that an engine
reads.  ``bundle.json`` names the protocols, the tokenizer and the digests.  ``unanswered`` is a run
folder (:mod:`choicewise.store.folder`) whose observations have no answer yet.  Answers fill it in,
so that the run has the items, prompts and protocols of a run by a local model.  Its manifest has a
different name, so that no command takes it for a run.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from choicewise.engine import ranges
from choicewise.errors import StoreError
from choicewise.protocols.protocol import Protocols, parse_signature
from choicewise.questions import Ids, prompt_key
from choicewise.records import FileRecord, Manifest
from choicewise.scoring.observed import Integers, Mask, row_of
from choicewise.store.folder import BUNDLE, read_manifest
from choicewise.store.tables import damage, read_items
from choicewise.util.files import TABLE, open_file, read_text, write_text
from choicewise.util.jsonio import exact_json, read_json
from choicewise.util.tables import open_parquet, unpacked
from choicewise.util.text import counted

FORMAT = "choicewise-requests"
VERSION = 1
ROWS = "requests.parquet"
RUN = "unanswered"
RUN_MANIFEST = "unanswered.json"

LOGPROB = "logprob"
"""An engine must give the log-probability of every scored token."""

RANK = "rank"
"""An engine must give how many tokens are likelier than the scored one."""

SPAN = pa.struct([("start", pa.int32()), ("stop", pa.int32())])

SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("input_ids", pa.list_(pa.int32())),
        ("spans", pa.list_(SPAN)),
        ("label_ids", pa.list_(pa.int32())),
        ("label_at", pa.int32()),
        ("prefix_group", pa.int64()),
        ("window_cut", pa.int32()),
        ("item", pa.string()),
        ("choice", pa.int16()),
        ("part", pa.int16()),
        ("null", pa.string()),
        ("context", pa.string()),
        ("continuations", pa.list_(pa.string())),
    ]
)
"""The columns of ``requests.parquet``.

``key``: 32 hex digits; an answer names the row by it.  ``input_ids``: the tokens of the sequence,
with BOS or EOS if the protocol wants one.  ``spans``: the indices of the tokens to score, from
``start`` to ``stop`` (exclusive), counted from 0.  The token at index p is predicted from the
tokens before it.  ``label_ids``: tokens to score as if they stood at index ``label_at``, one after
the last token, so that all choices of one token take one row.  ``prefix_group``: a number that rows
with the same context share; such rows mostly follow one another.  ``window_cut``: how many tokens
were cut from the context because they did not fit.

For people: ``item``, ``choice`` (null for labels) and ``part`` of the first request of this row,
``null``, the null context before it, and the texts.
"""

NUMBERS = SCHEMA.names[: SCHEMA.names.index("item")]
"""The columns that engines and answers use."""

DIGESTED = ["key", "input_ids", "spans", "label_ids", "label_at"]
"""The columns that the digest is made of."""


@dataclass(frozen=True)
class Probe:
    """Hold a text and the ``ids`` that the tokenizer makes of it without special tokens."""

    text: str
    ids: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class TokenizerRecord:
    """Describe the tokenizer of a bundle.

    ``name``: as the user gave it; ``digest``: 64 hex digits; ``vocabulary``: one more than the
    greatest id; ``probes``: texts with their tokens, to compare another tokenizer with.
    """

    name: str
    digest: str
    vocabulary: int
    bos: int | None
    eos: int | None
    probes: tuple[Probe, ...] = ()


@dataclass(frozen=True, kw_only=True)
class BundleRecord:
    """Describe a bundle; the content of ``bundle.json``.

    ``choicewise``: the version that wrote it.  ``digest``: SHA-256 (64 hex digits) over the rows'
    keys in order, each followed by the SHA-256 of its tokens and scored indices.  ``protocols``:
    name → signature.  ``refused``: protocols that no bundle can hold, with the reason.
    ``missing``: reason → how many requests and choices can't be scored, such as those longer than
    the window.  ``window``: the most input tokens of a sequence, without its last token.
    ``tokens``: of all rows; ``unique_tokens``: with shared beginnings counted once; ``scored``:
    log-probabilities to compute; ``longest``: tokens of the longest row.  ``needs``:
    :data:`LOGPROB`, and :data:`RANK` if a protocol needs ranks.  ``files``: by name.
    """

    # Pydantic applies these settings to the records in the fields, too.
    __pydantic_config__ = {"extra": "forbid", "strict": True}  # noqa: RUF012

    choicewise: str
    digest: str
    dataset: str
    dataset_digest: str
    protocols: dict[str, str]
    refused: dict[str, str]
    missing: dict[str, int]
    window: int
    tokenizer: TokenizerRecord
    rows: int
    tokens: int
    unique_tokens: int
    scored: int
    longest: int
    needs: tuple[str, ...]
    files: dict[str, FileRecord] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Scored:
    """Hold the tokens to score, row by row: the order of all answers.

    ``token[i]`` is at index ``position[i]`` of row ``row[i]``, all int64 [tokens]; the logits at
    index ``position[i] - 1`` predict it.  Question ``q`` is a span or a label, with the tokens
    ``starts[q]`` to ``starts[q + 1]`` (exclusive).
    """

    row: Integers
    position: Integers
    token: Integers
    starts: Integers

    def __len__(self) -> int:
        return len(self.token)

    @property
    def questions(self) -> int:
        """Count the questions."""
        return len(self.starts) - 1


class Bundle:
    """Read the bundle in the folder ``path``, which ``record`` describes."""

    def __init__(self, path: Path, record: BundleRecord) -> None:
        self.path = path
        self.record = record

    @property
    def digest(self) -> str:
        """Return the SHA-256 of the rows, 64 hex digits; files of answers name it."""
        return self.record.digest

    @cached_property
    def protocols(self) -> Protocols:
        """Return the protocols by name."""
        return {name: parse_signature(text) for name, text in self.record.protocols.items()}

    @cached_property
    def manifest(self) -> Manifest:
        """Return the manifest of the run folder that answers fill in."""
        return read_manifest(self.path / RUN, RUN_MANIFEST)

    @cached_property
    def rows(self) -> pa.Table:
        """Return the rows with the columns :data:`NUMBERS`; StoreError if the file is damaged."""
        path = self.path / ROWS
        try:
            with open_file(path, TABLE) as content:
                file = open_parquet(content)
                if file.schema_arrow != SCHEMA:
                    raise _damaged(f"{path} has other columns than version {VERSION} of the format")
                unpacked(content, NUMBERS)
                return file.read(columns=NUMBERS).combine_chunks()
        except (pa.ArrowException, OSError) as error:
            raise _damaged(f"{path} can't be read ({error})") from error

    @cached_property
    def items(self) -> pa.Table:
        """Return the items (:data:`choicewise.records.ITEMS`)."""
        return read_items(self.path / RUN, self.manifest)

    def ids(self, row: int) -> Ids:
        """Return the tokens of a row, int32 [tokens]."""
        offsets, tokens = self._sequences
        return tokens[offsets[row] : offsets[row + 1]]

    @property
    def lengths(self) -> Integers:
        """Count the tokens of each row, int64 [rows]."""
        return np.diff(self._sequences[0])

    @cached_property
    def scored(self) -> Scored:
        """Find the tokens to score."""
        offsets, tokens = self._sequences
        span_offsets, spans = _flat(self.rows["spans"])
        start = spans.field("start").to_numpy().astype(np.int64)
        stop = spans.field("stop").to_numpy().astype(np.int64)
        span = np.repeat(np.arange(len(start)), stop - start)
        row = row_of(span_offsets)[span]
        position = ranges(start, stop - start)
        token = tokens[offsets[row] + position]

        label_offsets, labels = _flat(self.rows["label_ids"])
        label_row = row_of(label_offsets)
        label_place = self.rows["label_at"].to_numpy(zero_copy_only=False)[label_row]
        label_question = len(start) + np.arange(len(labels))

        # Spans and labels were found one after the other, and answers come row by row.
        rows = np.concatenate([row, label_row])
        order = np.argsort(rows, kind="stable")
        positions = np.concatenate([position, label_place.astype(np.int64)])
        ids = np.concatenate([token, labels.to_numpy()]).astype(np.int64)
        question = np.concatenate([span, label_question])
        starts = np.flatnonzero(np.diff(question[order], prepend=-1))
        return Scored(
            row=rows[order],
            position=positions[order],
            token=ids[order],
            starts=np.append(starts, len(rows)).astype(np.int64),
        )

    def prompt_keys(self) -> list[str]:
        """Return for each question the key of its observation."""
        scored = self.scored
        keys = []
        last_row = -1
        context = np.zeros(0, dtype=np.int32)
        starts = scored.starts.tolist()
        for start, stop in pairwise(starts):
            row = int(scored.row[start])
            position = int(scored.position[start])
            # All labels of a row have one context, which is cut only once.
            if row != last_row or len(context) != position:
                context = self.ids(row)[:position]
                last_row = row
            continuation = scored.token[start:stop].astype(np.int32)
            keys.append(prompt_key(b"span", context, continuation))
        return keys

    def __repr__(self) -> str:
        return f"Bundle({str(self.path)!r}, rows={self.record.rows}, digest={self.digest[:12]!r})"

    @cached_property
    def _sequences(self) -> tuple[Integers, Ids]:
        offsets, tokens = _flat(self.rows["input_ids"])
        return offsets, tokens.to_numpy()


def open_bundle(path: str | Path) -> Bundle:
    """Open the bundle in the folder ``path``, and check that it is whole.

    Raises StoreError if there is none, if it was changed after it was written, or if a different
    version of the format wrote it.
    """
    path = Path(path)
    record = _read_record(path)
    for name in (ROWS, f"{RUN}/{RUN_MANIFEST}"):
        reason = damage(path / name, record.files.get(name))
        if reason:
            raise _damaged(f"{path / name} {reason}")
    bundle = Bundle(path, record)
    _check_rows(path / ROWS, bundle.rows, record)
    # The digest holds for the rows in any order, and so for copies in other formats.
    if rows_digest(bundle.rows) != record.digest:
        raise _damaged(f"the rows of {path} do not match its digest")
    return bundle


def _read_record(path: Path) -> BundleRecord:
    file = path / BUNDLE
    try:
        content = read_json(read_text(file))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise StoreError(
            f"{path} is not a bundle of requests: it has no {BUNDLE}; make one with "
            "`choicewise requests`"
        ) from error
    except OSError as error:
        raise StoreError(f"{file} can't be read: {error.strerror}; make it readable") from error
    except ValueError as error:
        raise _damaged(f"{file} is damaged ({error})") from error
    if not isinstance(content, dict) or content.pop("format", None) != FORMAT:
        raise StoreError(f"{file} does not describe a bundle of Choicewise; choose another folder")
    version = content.pop("version", None)
    if version != VERSION:
        raise StoreError(
            f"{file} has version {version} of the format, but this Choicewise reads {VERSION}; "
            "make the bundle again"
        )
    # Imported here because pydantic takes long to import, and most commands open no bundle.
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(BundleRecord).validate_json(exact_json(content))
    except (ValidationError, ValueError, RecursionError) as error:
        raise _damaged(f"{file} is damaged ({str(error).splitlines()[0]})") from error


def _check_rows(path: Path, rows: pa.Table, record: BundleRecord) -> None:
    """Raise StoreError if a row can't be scored, or if ``record`` counts the rows otherwise.

    All readers of a bundle rely on this: spans lie within their row and do not overlap, so that no
    more tokens are scored than there are.
    """
    for name in ("key", "input_ids", "spans", "label_ids"):
        _refuse_rows(path, rows[name].is_null().to_numpy(), f"{name} is null")
    if pc.count_distinct(rows["key"]).as_py() != len(rows):
        raise _damaged(f"{path} has several rows with one key")

    offsets, tokens = _flat(rows["input_ids"])
    lengths = np.diff(offsets)
    bad_token = pc.fill_null(pc.less(tokens, 0), True)
    _refuse_elements(path, offsets, bad_token, "a token is null or negative")
    label_offsets, labels = _flat(rows["label_ids"])
    label_counts = np.diff(label_offsets)
    bad_label = pc.fill_null(pc.less(labels, 0), True)
    _refuse_elements(path, label_offsets, bad_label, "a label is null or negative")
    label_at = pc.fill_null(rows["label_at"], -1).to_numpy()
    misplaced = (label_counts > 0) & (label_at != lengths)
    _refuse_rows(path, misplaced, "label_at is not the place after the last token")

    span_offsets, spans = _flat(rows["spans"])
    starts = pc.struct_field(spans, "start")
    stops = pc.struct_field(spans, "stop")
    lacks_end = pc.or_(pc.is_null(starts), pc.is_null(stops))
    _refuse_elements(path, span_offsets, lacks_end, "a span is null")
    row_of_span = row_of(span_offsets)
    start = starts.to_numpy()
    stop = stops.to_numpy()
    outside = (start < 0) | (stop <= start) | (stop > lengths[row_of_span])
    _refuse_elements(path, span_offsets, outside, "a span is not within its tokens")
    overlaps = np.zeros(len(start), np.bool_)
    overlaps[1:] = (row_of_span[1:] == row_of_span[:-1]) & (start[1:] < stop[:-1])
    _refuse_elements(path, span_offsets, overlaps, "a span overlaps the one before it")
    is_idle = np.diff(span_offsets) + label_counts == 0
    _refuse_rows(path, is_idle, "no token is scored")

    for name, count in count_rows(rows).items():
        stated = getattr(record, name)
        if stated != count:
            raise _damaged(
                f"{path.with_name(BUNDLE)} states {name} {stated:,}, but {path} has {count:,}"
            )
    vocabulary = record.tokenizer.vocabulary
    if not 0 < vocabulary <= _LARGEST_VOCABULARY:
        raise _damaged(f"{path.with_name(BUNDLE)} states a tokenizer of {vocabulary:,} tokens")


# A position and a token are packed into one int64, so that a false vocabulary could overflow it.
_LARGEST_VOCABULARY = 100_000_000


def _refuse_elements(path: Path, offsets: Integers, is_wrong: Any, problem: str) -> None:
    """Raise StoreError if an element of a row's list is wrong."""
    wrong = np.zeros(len(offsets) - 1, np.bool_)
    wrong[row_of(offsets)[np.asarray(is_wrong)]] = True
    _refuse_rows(path, wrong, problem)


def _refuse_rows(path: Path, is_wrong: Mask, problem: str) -> None:
    """Raise StoreError that names the first wrong row and counts the others."""
    wrong = np.flatnonzero(is_wrong)
    if not len(wrong):
        return
    others = ""
    if len(wrong) > 1:
        others = f" (and in {counted(len(wrong) - 1, 'other row')})"
    raise _damaged(f"{path}, row {wrong[0]} (counted from 0): {problem}{others}")


def is_bundle(path: Path) -> bool:
    """Return True if the folder ``path`` is marked as a bundle, whole or damaged."""
    return (path / BUNDLE).is_file()


def write_record(path: Path, record: BundleRecord) -> None:
    """Write ``bundle.json`` of the bundle in the folder ``path``."""
    content = {"format": FORMAT, "version": VERSION, **asdict(record)}
    write_text(path / BUNDLE, exact_json(content, indent=1) + "\n")


def count_rows(rows: pa.Table) -> dict[str, int]:
    """Count ``rows``, their ``tokens``, those that are ``scored``, and those of the ``longest``."""
    lengths = np.diff(_flat(rows["input_ids"])[0])
    _, spans = _flat(rows["spans"])
    _, labels = _flat(rows["label_ids"])
    stops = spans.field("stop").to_numpy().astype(np.int64)
    scored_in_spans = int((stops - spans.field("start").to_numpy()).sum())
    return {
        "rows": len(rows),
        "tokens": int(lengths.sum()),
        "scored": scored_in_spans + len(labels),
        "longest": int(lengths.max(initial=0)),
    }


def rows_digest(rows: pa.Table) -> str:
    """Compute the digest of the ``rows`` of a bundle (:class:`BundleRecord`), in any order."""
    digests: dict[str, bytes] = {}
    columns = rows.select(DIGESTED)
    for batch in columns.to_batches(max_chunksize=4096):
        id_offsets, ids = _flat(batch["input_ids"])
        span_offsets, spans = _flat(batch["spans"])
        label_offsets, labels = _flat(batch["label_ids"])
        starts = spans.field("start").to_numpy()
        stops = spans.field("stop").to_numpy()
        # One order of bytes, so that the digest is the same on all machines.
        lists = [
            (id_offsets, ids.to_numpy().astype("<i4")),
            (span_offsets, np.stack([starts, stops], axis=1).astype("<i4")),
            (label_offsets, labels.to_numpy().astype("<i4")),
        ]
        label_at = pc.fill_null(batch["label_at"], -1).to_numpy(zero_copy_only=False)
        label_at = label_at.astype("<i4")
        for row, key in enumerate(batch["key"].to_pylist()):
            sha = hashlib.sha256()
            for offsets, values in lists:
                part = values[offsets[row] : offsets[row + 1]]
                sha.update(len(part).to_bytes(8, "little") + part.tobytes())
            sha.update(label_at[row].tobytes())
            digests[key] = sha.digest()
    whole = hashlib.sha256()
    for key in sorted(digests):
        whole.update(key.encode() + digests[key])
    return whole.hexdigest()


def _flat(lists: pa.ChunkedArray | pa.Array) -> tuple[Integers, pa.Array]:
    """Return where the elements of each list begin, int64 [lists + 1], and all elements."""
    if isinstance(lists, pa.ChunkedArray):
        lists = lists.combine_chunks()
    counts = pc.list_value_length(lists).to_numpy(zero_copy_only=False)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return offsets, lists.flatten()


def _damaged(problem: str) -> StoreError:
    return StoreError(f"{problem}; copy the bundle again from where it was made, or make it again")
