"""A bundle: the requests of an evaluation in tokens, frozen, so that any engine can answer them.

A folder with three things in it.  ``requests.parquet``, a row a sequence, is all that an engine reads.  ``bundle.json``
says what was asked with which tokenizer, and the digests.  ``unanswered`` is a run folder
(:mod:`choicewise.store.folder`) in which no observation is answered yet: answers fill it in, so that a run which is
made of a bundle holds the same questions, prompts and protocols as one that a model here answered.  Its manifest has
another name, so that nothing takes it for a run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from choicewise.errors import StoreError
from choicewise.protocols.protocol import Protocol, parse_signature
from choicewise.questions import Ids, prompt_key
from choicewise.records import FileRecord, Manifest
from choicewise.store.folder import BUNDLE, read_manifest
from choicewise.store.tables import damage, read_items
from choicewise.util.files import TABLE, open_file, read_text, write_text
from choicewise.util.jsonio import exact_json, read_json
from choicewise.util.tables import open_parquet, unpacked
from choicewise.util.text import counted

if TYPE_CHECKING:
    from pydantic import TypeAdapter

FORMAT: Final = "choicewise-requests"
VERSION: Final = 1
ROWS, RUN, RUN_MANIFEST = "requests.parquet", "unanswered", "unanswered.json"

LOGPROB, RANK = "logprob", "rank"
"""What an engine is asked for: of every scored token its log-probability, and how many tokens are likelier."""

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

``key``: 32 hex digits, by which an answer says what it answers.  ``input_ids``: the tokens of the sequence, BOS or EOS
among them where the protocol wants one.  ``spans``: from which place to which (exclusive) tokens are scored; places
count from 0, and the token at place p is predicted by what stands before it.  ``label_ids``: tokens to score as if they
stood at place ``label_at``, which is the one after the last, so that all choices of one token take one row.
``prefix_group``: a number that rows with the same context share, which mostly follow one another.  ``window_cut``: how
many tokens were cut from the context because they did not fit.
For people: ``item``, ``choice`` (null for labels) and ``part``, for which it was asked first, ``null``, the null
context that it stands after, and the texts.
"""

NUMBERS = SCHEMA.names[: SCHEMA.names.index("item")]
"""The columns that are not for people alone."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A text, and the ``ids`` that the tokenizer makes of it without special tokens."""

    text: str
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TokenizerRecord:
    """The tokenizer of a bundle.

    ``name``: as it was given; ``digest``: 64 hex; ``vocabulary``: one more than its greatest id; ``probes``: by which
    an engine sees whether its own tokenizer is the same.
    """

    name: str
    digest: str
    vocabulary: int
    bos: int | None
    eos: int | None
    probes: tuple[Probe, ...] = ()


@dataclass(frozen=True, slots=True)
class BundleRecord:
    """What a bundle says of itself.

    ``choicewise``: the version that wrote it.  ``digest``: SHA-256 (64 hex) over the rows' keys in order, each followed
    by the SHA-256 of its tokens and of the places that are scored.  ``protocols``: name → signature; ``refused``: those
    that no bundle can ask, with the reason; ``missing``: reason → how many requests and choices can't be asked, as they
    are too long for the window or the like.  ``window``: the most input tokens of a sequence; its last token need be
    none.  ``rows``, ``tokens`` (of all rows), ``unique_tokens`` (where a common beginning counts once), ``scored``
    (log-probabilities that are asked for), ``longest`` (tokens of a row).  ``needs``: of :data:`LOGPROB` and
    :data:`RANK`; without ranks some protocols are missing.  ``files``: by name.
    """

    __pydantic_config__ = {"extra": "forbid", "strict": True}  # noqa: RUF012, also for the records in the fields

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
    """Every token that is to be scored, row by row; the order in which answers are held.

    ``token[i]`` at ``place[i]`` of row ``row[i]``, all int64 [tokens]; its logits are those after ``place[i] - 1``.
    Question ``q`` is about the tokens ``starts[q]`` to ``starts[q + 1]`` (exclusive): those of a span, or one label.
    """

    row: npt.NDArray[np.int64]
    place: npt.NDArray[np.int64]
    token: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.token)

    @property
    def questions(self) -> int:
        """How many questions there are."""
        return len(self.starts) - 1


class Bundle:
    """A bundle in the folder ``path``; ``record`` is what it says of itself."""

    def __init__(self, path: Path, record: BundleRecord) -> None:
        self.path, self.record = path, record

    @property
    def digest(self) -> str:
        """SHA-256 of what is asked, 64 hex digits: answers name it, so that no others are taken for them."""
        return self.record.digest

    @cached_property
    def protocols(self) -> Mapping[str, Protocol]:
        """The protocols by name."""
        return {name: parse_signature(text) for name, text in self.record.protocols.items()}

    @cached_property
    def manifest(self) -> Manifest:
        """The manifest of the run folder that answers fill in."""
        return read_manifest(self.path / RUN, RUN_MANIFEST)

    @cached_property
    def rows(self) -> pa.Table:
        """The rows as a table with the columns :data:`NUMBERS`; StoreError where the file is damaged."""
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
        """The questions themselves, a row each (:data:`choicewise.records.ITEMS`)."""
        return read_items(self.path / RUN, self.manifest)

    def ids(self, row: int) -> Ids:
        """The tokens of a row, int32 [tokens]."""
        offsets, flat = self._sequences
        return flat[offsets[row] : offsets[row + 1]]

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """How many tokens each row has, int64 [rows]."""
        return np.diff(self._sequences[0])

    @cached_property
    def scored(self) -> Scored:
        """Every token that is to be scored."""
        offsets, flat = self._sequences
        counts, spans = _flat(self.rows["spans"])
        of_span = np.repeat(np.arange(len(counts)), counts)
        starts, stops = (
            spans.field(name).to_numpy().astype(np.int64) for name in ("start", "stop")
        )
        sizes = stops - starts
        row = np.repeat(of_span, sizes)
        place = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes - starts, sizes)
        label_counts, labels = _flat(self.rows["label_ids"])
        of_label = np.repeat(np.arange(len(label_counts)), label_counts)
        at = self.rows["label_at"].to_numpy(zero_copy_only=False)[of_label].astype(np.int64)
        rows = np.concatenate([row, of_label])
        question = np.concatenate(
            [np.repeat(np.arange(len(sizes)), sizes), len(sizes) + np.arange(len(of_label))]
        )
        order = np.argsort(rows, kind="stable")
        begins = np.flatnonzero(np.diff(question[order], prepend=-1))
        token = np.concatenate([flat[offsets[row] + place], labels.to_numpy()]).astype(np.int64)
        return Scored(
            rows[order],
            np.concatenate([place, at])[order],
            token[order],
            np.append(begins, len(rows)).astype(np.int64),
        )

    def prompt_keys(self) -> list[str]:
        """The key of every question: of the observation that answers it."""
        scored, keys = self.scored, list[str]()
        last, context = -1, np.zeros(0, dtype=np.int32)
        for start, stop in zip(
            scored.starts[:-1].tolist(), scored.starts[1:].tolist(), strict=True
        ):
            row, place = int(scored.row[start]), int(scored.place[start])
            if row != last or len(context) != place:
                last, context = row, self.ids(row)[:place]
            keys.append(prompt_key(b"span", context, scored.token[start:stop].astype(np.int32)))
        return keys

    def __repr__(self) -> str:
        return f"Bundle({str(self.path)!r}, rows={self.record.rows}, digest={self.digest[:12]!r})"

    @cached_property
    def _sequences(self) -> tuple[npt.NDArray[np.int64], Ids]:
        counts, flat = _flat(self.rows["input_ids"])
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), flat.to_numpy()


def open_bundle(path: str | Path) -> Bundle:
    """The bundle in the folder ``path``, checked to be whole; its rows are read when they are used.

    Raises StoreError where there is none, where it was changed since it was written, and where another version of the
    format wrote it.
    """
    path = Path(path)
    file = path / BUNDLE
    try:
        content = read_json(read_text(file))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise StoreError(
            f"{path} is no bundle of requests: it has no {BUNDLE}; make one with `choicewise requests`"
        ) from error
    except OSError as error:
        raise StoreError(f"{file} can't be read: {error.strerror}; make it readable") from error
    except ValueError as error:
        raise _damaged(f"{file} is damaged ({error})") from error
    if not isinstance(content, dict) or content.pop("format", None) != FORMAT:
        raise StoreError(f"{file} is not about a bundle of Choicewise; choose another folder")
    if (version := content.pop("version", None)) != VERSION:
        raise StoreError(
            f"{file} has version {version} of the format, and this Choicewise reads {VERSION}"
        )
    from pydantic import ValidationError

    try:
        record: BundleRecord = _reader().validate_json(exact_json(content))
    except (ValidationError, ValueError, RecursionError) as error:
        raise _damaged(f"{file} is damaged ({str(error).splitlines()[0]})") from error
    for name in (ROWS, f"{RUN}/{RUN_MANIFEST}"):
        if reason := damage(path / name, record.files.get(name)):
            raise _damaged(f"{path / name} {reason}")
    bundle = Bundle(path, record)
    _check_rows(path / ROWS, bundle.rows, record)
    if rows_digest(bundle.rows) != record.digest:
        raise _damaged(f"the rows of {path} are not those of its digest")
    return bundle


def _check_rows(path: Path, rows: pa.Table, record: BundleRecord) -> None:
    """Raise StoreError for the first row that can't be asked, and if the ``record`` counts the rows otherwise.

    Whoever reads a bundle relies on this: spans lie within their row and do not overlap, so that no more tokens are
    scored than there are.
    """
    for name in ("key", "input_ids", "spans", "label_ids"):
        _refuse_rows(path, rows[name].is_null().to_numpy(), f"{name} is null")
    if pc.count_distinct(rows["key"]).as_py() != len(rows):
        raise _damaged(f"{path} has several rows with one key")

    lengths, tokens = _flat(rows["input_ids"])
    _refuse_elements(
        path, lengths, pc.fill_null(pc.less(tokens, 0), True), "a token is null or negative"
    )
    label_counts, labels = _flat(rows["label_ids"])
    _refuse_elements(
        path, label_counts, pc.fill_null(pc.less(labels, 0), True), "a label is null or negative"
    )
    label_at = pc.fill_null(rows["label_at"], -1).to_numpy()
    _refuse_rows(
        path,
        (label_counts > 0) & (label_at != lengths),
        "label_at is not the place after the last token",
    )

    span_counts, spans = _flat(rows["spans"])
    starts = pc.struct_field(spans, "start")
    stops = pc.struct_field(spans, "stop")
    lacks_end = pc.or_(pc.is_null(starts), pc.is_null(stops))
    _refuse_elements(path, span_counts, lacks_end, "a span is null")
    row_of_span = np.repeat(np.arange(len(rows)), span_counts)
    start = starts.to_numpy()
    stop = stops.to_numpy()
    outside = (start < 0) | (stop <= start) | (stop > lengths[row_of_span])
    _refuse_elements(path, span_counts, outside, "a span is not within its tokens")
    overlaps = np.zeros(len(start), np.bool_)
    overlaps[1:] = (row_of_span[1:] == row_of_span[:-1]) & (start[1:] < stop[:-1])
    _refuse_elements(path, span_counts, overlaps, "a span overlaps the one before it")
    _refuse_rows(path, span_counts + label_counts == 0, "no token is to be scored")

    scored = int((stop.astype(np.int64) - start).sum() + label_counts.sum())
    counts = {"rows": len(rows), "tokens": int(lengths.sum()), "scored": scored}
    counts["longest"] = int(lengths.max(initial=0))
    for name, count in counts.items():
        if getattr(record, name) != count:
            raise _damaged(
                f"{path.with_name(BUNDLE)} says {name} {getattr(record, name):,}, and {path} has {count:,}"
            )
    if not 0 < record.tokenizer.vocabulary <= _LARGEST_VOCABULARY:
        raise _damaged(
            f"{path.with_name(BUNDLE)} says that its tokenizer has {record.tokenizer.vocabulary:,} tokens"
        )


_LARGEST_VOCABULARY: Final = 100_000_000


def _refuse_elements(
    path: Path, counts: npt.NDArray[np.int64], is_wrong: Any, problem: str
) -> None:
    """Raise StoreError if an element of the lists, of which each row has ``counts``, is wrong."""
    wrong = np.zeros(len(counts), np.bool_)
    wrong[np.repeat(np.arange(len(counts)), counts)[np.asarray(is_wrong)]] = True
    _refuse_rows(path, wrong, problem)


def _refuse_rows(path: Path, is_wrong: npt.NDArray[np.bool_], problem: str) -> None:
    """Raise StoreError that names the first wrong row and counts the others."""
    wrong = np.flatnonzero(is_wrong)
    if not len(wrong):
        return
    others = f" (and in {counted(len(wrong) - 1, 'other row')})" if len(wrong) > 1 else ""
    raise _damaged(f"{path}, row {wrong[0]} (counted from 0): {problem}{others}")


def is_bundle(path: Path) -> bool:
    """Whether ``path`` is a folder that says that it is a bundle, whole or not."""
    return (path / BUNDLE).is_file()


def write_record(path: Path, record: BundleRecord) -> None:
    """Write what the bundle in the folder ``path`` says of itself."""
    content = {"format": FORMAT, "version": VERSION, **asdict(record)}
    write_text(path / BUNDLE, exact_json(content, indent=1) + "\n")


def rows_digest(rows: pa.Table) -> str:
    """The digest of the ``rows`` of a bundle (:class:`BundleRecord`), whatever their order."""
    digests: dict[str, bytes] = {}
    for batch in rows.select(["key", "input_ids", "spans", "label_ids", "label_at"]).to_batches(
        max_chunksize=4096
    ):
        columns = [_flat(batch[name]) for name in ("input_ids", "spans", "label_ids")]
        edges = [np.concatenate([[0], np.cumsum(counts)]) for counts, _ in columns]
        ids, labels = (columns[place][1].to_numpy().astype("<i4") for place in (0, 2))
        spans = np.stack(
            [columns[1][1].field(name).to_numpy().astype("<i4") for name in ("start", "stop")],
            axis=1,
        )
        at = pc.fill_null(batch["label_at"], -1).to_numpy(zero_copy_only=False).astype("<i4")
        for place, key in enumerate(batch["key"].to_pylist()):
            sha = hashlib.sha256()
            for values, edge in zip((ids, spans, labels), edges, strict=True):
                own = values[edge[place] : edge[place + 1]]
                sha.update(len(own).to_bytes(8, "little") + own.tobytes())
            sha.update(at[place].tobytes())
            digests[key] = sha.digest()
    whole = hashlib.sha256()
    for key in sorted(digests):
        whole.update(key.encode() + digests[key])
    return whole.hexdigest()


def _flat(lists: pa.ChunkedArray | pa.Array) -> tuple[npt.NDArray[np.int64], pa.Array]:
    """How many entries each list of a column has, and all of them, one after the other."""
    whole = lists.combine_chunks() if isinstance(lists, pa.ChunkedArray) else lists
    return pc.list_value_length(whole).to_numpy(zero_copy_only=False).astype(
        np.int64
    ), whole.flatten()


def _damaged(what: str) -> StoreError:
    return StoreError(f"{what}; fetch the bundle again from where it was made, or make it again")


@cache
def _reader() -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(BundleRecord)
