"""The rows and records that run folders and sweeps store: schemas of tables, fields of JSON files.

Rows are named tuples, because blocks have hundreds of thousands of them: they are cheap to make,
and ``zip`` makes them columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, field
from typing import Annotated, NamedTuple, Self, get_type_hints

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from choicewise.errors import UsageError
from choicewise.util.jsonio import JsonDict

Text = Annotated[str, pa.string()]
Int32 = Annotated[int, pa.int32()]
Indices = Annotated[Sequence[int], pa.list_(pa.int16())]
TextOrNull = Annotated[str | None, pa.string()]
Int16 = Annotated[int, pa.int16()]
Flag = Annotated[bool, pa.bool_()]
Tokens = Annotated[npt.NDArray[np.int32] | Sequence[int], pa.list_(pa.int32())]

GENERATED = -1
"""The choice index of a generation, which belongs to no choice."""

KEYS = ("key", "before", "after")
"""The columns of spans that name observations."""

FORMAT = "choicewise-run"
VERSION = 3
"""The version of the format; folders of another version are refused."""

MANIFEST = "manifest.json"
ITEM_FILE = "items.parquet"
BLOCK_FOLDER = "blocks"
SUMMARY = "summary.parquet"
"""Numbers that follow from the other files, kept so that they need not be computed again."""

SWEEP = "sweep.json"
SWEEP_FORMAT = "choicewise-sweep"
SWEEP_VERSION = 1

LATER = (
    "token_count",
    "greedy",
    "at_most",
    "missing",
    "finish",
    "raw",
    "opened",
    "thought",
    "generated_tokens",
    "thought_tokens",
    "forced",
    "exchange",
)
"""Columns that files of earlier versions lack; they are read as null."""


class ItemRow(NamedTuple):
    """Hold an item of the run.

    ``position``: its index in the table; ``fields``: its further fields, a JSON object.
    """

    position: Int32
    split: Text
    item: Text
    subject: Text
    question: Text
    choices: Annotated[Sequence[str], pa.list_(pa.string())]
    gold: Indices
    fields: Text


class RequestRow(NamedTuple):
    """Hold an item under one prompt: its texts after fitting, or why it has none (``missing``).

    ``prompt``: :attr:`choicewise.protocols.protocol.Protocol.prompt_digest`.  ``options``: the
    choices in the prompt, after quirks and stripping.  ``shots`` are part of the context,
    ``shots_dropped`` did not fit.  ``tokens_dropped``: tokens cut from the context, the most over
    all choices.
    """

    prompt: Text
    item: Text
    subject: Text
    gold: Indices
    context: TextOrNull = None
    continuations: Annotated[Sequence[str] | None, pa.list_(pa.string())] = None
    options: Annotated[Sequence[str] | None, pa.list_(pa.string())] = None
    shots: Annotated[int | None, pa.int16()] = None
    shots_dropped: Annotated[int | None, pa.int16()] = None
    tokens_dropped: Int32 = 0
    missing: TextOrNull = None


class SpanRow(NamedTuple):
    """Name the observation of a choice: a row for each prompt, item, choice, part and null context.

    ``choice``: its index; ``GENERATED`` for a generation.  ``part`` counts from 0 if a choice has
    several prompts.  ``null``: the null context, None for the request itself.  ``context``: the
    choice's context if it is not the request's.  ``continuation``: None if another tool's log does
    not have it.  ``key``: of the observation, None if ``missing`` says why.  ``before`` and
    ``after``: keys of observations whose log-probabilities are subtracted and added.  The flags are
    those of :class:`choicewise.tokens.boundary.ChoicePrompt`.
    """

    prompt: Text
    item: Text
    choice: Int16
    part: Int16
    null: TextOrNull = None
    context: TextOrNull = None
    continuation: TextOrNull = ""
    key: TextOrNull = None
    context_tokens: Int32 = 0
    tokens_dropped: Int32 = 0
    before: TextOrNull = None
    after: TextOrNull = None
    merged: Flag = False
    noncanonical: Flag = False
    lossy: Flag = False
    unknown: Int32 = 0
    bos: Int32 = 0
    missing: TextOrNull = None


class ObservationRow(NamedTuple):
    """Hold a model's answer to one prompt, which protocols may share.

    ``tokens`` (ids), ``sizes`` (bytes), ``logprobs`` (nats; of a loss, their mean at each token)
    and ``ranks`` (vocabulary entries with a strictly greater logit) have one entry for each scored
    unit.  ``text``: of a generation.  ``value``: a loss (nats per token) or a cosine.  ``at_most``:
    True if ``logprobs`` are upper bounds.  ``missing``: why a server gave no answer; all numbers
    are NaN then.

    Of an observation without tokens, as in other tools' logs: ``total``, its log-likelihood (nats),
    ``token_count``, the number of its tokens, and ``greedy``, True if all of them were the
    likeliest; None if unknown, or if ``logprobs`` tell it.

    Of a generation: ``finish``, why it ended (:mod:`choicewise.questions`); ``raw``, its text with
    the special tokens that begin and end thoughts, if it has any; ``opened``, the beginning of the
    thought in which the prompt ends; ``thought``, if a server returns it apart;
    ``generated_tokens`` and ``thought_tokens``, a server's counts; ``forced``, True if the thought
    was closed at its limit.  Of a choice that is scored along a thought: ``thought_tokens``, its
    tokens before the choice.

    Of the first option of a decision endpoint's question: ``exchange``, a JSON object with request
    and response, byte for byte
    (:class:`choicewise.extensions.endpoints.decisions.decision_model.Exchange`).
    """

    key: Text
    tokens: Tokens
    sizes: Tokens
    logprobs: Annotated[npt.NDArray[np.float32] | Sequence[float], pa.list_(pa.float32())]
    ranks: Tokens
    text: TextOrNull = None
    value: Annotated[float | None, pa.float32()] = None
    total: Annotated[float | None, pa.float64()] = None
    token_count: Annotated[int | None, pa.int32()] = None
    greedy: Annotated[bool | None, pa.bool_()] = None
    at_most: Annotated[bool | None, pa.bool_()] = None
    missing: TextOrNull = None
    finish: TextOrNull = None
    raw: TextOrNull = None
    opened: TextOrNull = None
    thought: TextOrNull = None
    generated_tokens: Annotated[int | None, pa.int32()] = None
    thought_tokens: Annotated[int | None, pa.int32()] = None
    forced: Annotated[bool | None, pa.bool_()] = None
    exchange: TextOrNull = None


def _schema(row: type) -> pa.Schema:
    """Return a column for each field of the row, of the type in the field's annotation."""
    hints = get_type_hints(row, include_extras=True)
    return pa.schema([(name, hint.__metadata__[0]) for name, hint in hints.items()])


ITEMS = _schema(ItemRow)
REQUESTS = _schema(RequestRow)
SPANS = _schema(SpanRow)
OBSERVATIONS = _schema(ObservationRow)

ALLOWED = 0.01
"""Nats by which a server's answers to one prompt may differ, however equal those of its probe were.

So much comes from 16-bit arithmetic with another cache or another version of the software; other
weights differ by more.
"""

Place = tuple[str, str, int, int]
"""The extent of a block: split, subject, and the positions of its first item and after its last."""


@dataclass(frozen=True, slots=True)
class FileRecord:
    """Identify a written file by its size in ``bytes`` and its ``sha256`` in hexadecimal."""

    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockRecord:
    """Describe the observations of items ``start`` to ``stop`` (exclusive) of one subject.

    ``asks``: names of their requests (:attr:`choicewise.requests.blocks.RequestSpec.name`).
    ``files``: by name.
    """

    name: str
    split: str
    subject: str
    start: int
    stop: int
    asks: tuple[str, ...]
    files: dict[str, FileRecord]

    @property
    def extent(self) -> Place:
        """Return split, subject, start and stop."""
        return self.split, self.subject, self.start, self.stop


@dataclass(frozen=True, slots=True)
class ModelRecord:
    """Describe the model that answered, with fields of :class:`choicewise.models.model.Model`.

    ``chat``: the digest of its chat template, or "".  ``source``: the repository on the Hub and the
    commit that it was read from, or "".  ``kind``: the name of the
    :class:`choicewise.ports.ModelKind` that opened it; "" if a caller made it, or in an import.
    ``products``: "onednn" if that library multiplied on a CPU, "" for torch.
    """

    name: str
    digest: str
    dtype: str
    device: str
    window: int
    _: KW_ONLY
    chat: str = ""
    source: str = ""
    kind: str = ""
    products: str = ""

    @property
    def reference(self) -> str:
        """Return the name to load it by: with the commit if the name is its repository."""
        return self.source if self.source.startswith(f"{self.name}@") else self.name

    @property
    def computation(self) -> JsonDict:
        """Return the fields that what the model computes depends on: all but the kind."""
        content = asdict(self)
        del content["kind"]
        # Ids of exports are made of it, and most models had no products before.
        if not self.products:
            del content["products"]
        return content

    @property
    def arithmetic(self) -> str:
        """Return the dtype of the computation, without the kind of quantised weights before it."""
        return self.dtype.rpartition(", ")[2]


@dataclass(frozen=True, slots=True)
class SkippedRow:
    """Name a row of a data file that was skipped, and the reason."""

    file: str
    row: int
    reason: str


@dataclass(frozen=True, slots=True)
class DatasetRecord:
    """Describe the data.

    ``categories``: category → subcategory → subjects, in order; empty without any.  ``content``:
    the further fields that prompts contain (:func:`choicewise.data.items.content_fields`).
    ``source``: as in a model.  ``read_with``: the tool that read them, with its release and task,
    or "".
    """

    name: str
    digest: str
    _: KW_ONLY
    skipped: tuple[SkippedRow, ...] = ()
    categories: Mapping[str, Mapping[str, Sequence[str]]] = field(default_factory=dict)
    content: tuple[str, ...] = ()
    source: str = ""
    read_with: str = ""

    @property
    def reference(self) -> str:
        """Return the name to open them by; "" if the protocols or another tool name the data."""
        if self.read_with:
            return ""
        if not self.source:
            return self.name
        return self.source if self.source.startswith(f"{self.name}@") else ""


@dataclass(frozen=True, slots=True, repr=False)
class Selection:
    """Select items: of the named ``subjects``, the first ``limit`` of each; None for all.

    ``sample``: how many items in all, drawn by ``seed`` from every subject in proportion to its
    size (:meth:`choicewise.data.dataset.Dataset.sample`).  ``drawn_from``: split → subject → number
    of items; it follows from the data, and is empty if no sample was drawn.
    """

    subjects: tuple[str, ...] | None = None
    limit: int | None = None
    sample: int | None = None
    seed: int | None = None
    drawn_from: Mapping[str, Mapping[str, int]] = field(default_factory=dict, hash=False)

    @classmethod
    def of(
        cls,
        subjects: Sequence[str] | None = None,
        limit: int | None = None,
        sample: int | None = None,
        seed: int | None = None,
    ) -> Self:
        """Check the options of a selection; a sample without a seed has seed 1.

        Raises UsageError for a number below 1, a limit with a sample, and a seed without a sample.
        """
        for name, number in (("limit", limit), ("sample", sample)):
            if number is not None and number < 1:
                raise UsageError(
                    f"{name} is {number}; it must be at least 1, or left out for all questions"
                )
        if limit is not None and sample is not None:
            raise UsageError(
                f"limit {limit} asks the first questions of each subject, and sample {sample} some "
                "that are drawn from all; leave one of them out"
            )
        if sample is None and seed is not None:
            raise UsageError(
                f"seed is {seed} and no sample is drawn; add a sample, or leave the seed out"
            )
        if seed is not None and seed < 0:
            raise UsageError(f"seed is {seed}; it must be 0 or more")
        names = None if subjects is None else tuple(sorted(set(subjects)))
        if sample is not None and seed is None:
            seed = 1
        return cls(names, limit, sample, seed)

    def __repr__(self) -> str:
        # Ids of exports are made of it, so without a sample it must not change.
        drawn = ""
        if self.sample is not None:
            drawn = f", sample={self.sample!r}, seed={self.seed!r}"
        return f"Selection(subjects={self.subjects!r}, limit={self.limit!r}{drawn})"


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfCheckRecord:
    """Hold the fields of the model's :class:`choicewise.models.model.SelfCheck` that a run keeps."""

    rung: str
    cost: str
    difference: float
    floor: float
    noise: float
    depth: int


@dataclass(frozen=True, slots=True)
class Spent:
    """Hold the cost of observations.

    ``tokens_asked``: input tokens if every choice were a sequence of its own; ``tokens_computed``:
    those that were computed.  ``requests``: to a server, 0 for a local model.  ``tokens_unique``:
    of the token tree, if vLLM computed and its cache decides what is computed twice; else 0.
    """

    tokens_asked: int
    tokens_computed: int
    seconds: float
    _: KW_ONLY
    requests: int = 0
    tokens_unique: int = 0

    def __add__(self, other: Spent) -> Spent:
        return Spent(
            tokens_asked=self.tokens_asked + other.tokens_asked,
            tokens_computed=self.tokens_computed + other.tokens_computed,
            seconds=self.seconds + other.seconds,
            requests=self.requests + other.requests,
            tokens_unique=self.tokens_unique + other.tokens_unique,
        )


@dataclass(frozen=True, slots=True)
class EngineRecord:
    """Hold the self-check and the cost; None if the model has no self-check, or counts no tokens."""

    selfcheck: SelfCheckRecord | None = None
    spent: Spent | None = None


@dataclass(frozen=True, slots=True)
class EndpointRecord:
    """Hold what the probe found of a decision endpoint with a ``dialect``.

    ``repeated``: questions that were sent twice; ``flips``: those with another likeliest option the
    second time; ``mean`` and ``most``: by how much the probability of an option differed.
    ``doubts``: what its answers to the probe make doubtful, in words.
    """

    dialect: str
    repeated: int = 0
    flips: int = 0
    mean: float = 0.0
    most: float = 0.0
    _: KW_ONLY
    doubts: tuple[str, ...] = ()

    def __add__(self, other: EndpointRecord) -> EndpointRecord:
        repeated = self.repeated + other.repeated
        differences = self.mean * self.repeated + other.mean * other.repeated
        return EndpointRecord(
            dialect=self.dialect,
            repeated=repeated,
            flips=self.flips + other.flips,
            mean=differences / max(repeated, 1),
            most=max(self.most, other.most),
            doubts=tuple(dict.fromkeys([*self.doubts, *other.doubts])),
        )


@dataclass(frozen=True, slots=True)
class ServerRecord:
    """Describe the server behind which the model answered, from its probe before the first prompt.

    ``model``: the server's name of the model; ``root``: the origin of its weights, if it states
    one; ``route``: the route of the requests; ``software``: its name and version; ``tokenizer``:
    the name of the local one.  ``probes``: text → log-probability (nats); ``noise``: the most that
    two answers to one prompt differ by (nats).  ``changed``: what the probe after the last prompt
    found changed, in words.  ``named``: the model's name in answers, if it is a different one.
    ``endpoint``: of a decision endpoint.
    """

    model: str
    route: str
    _: KW_ONLY
    root: str = ""
    software: str = ""
    tokenizer: str = ""
    probes: Mapping[str, float] = field(default_factory=dict)
    noise: float = 0.0
    changed: str = ""
    named: str = ""
    endpoint: EndpointRecord | None = None

    def differences(self, now: ServerRecord) -> list[str]:
        """Describe what changed: names, and answers that differ by more than noise."""
        compared = [
            ("the model", self.model, now.model),
            ("its weights", self.root, now.root),
            ("the way of asking", self.route, now.route),
            ("the tokenizer", self.tokenizer, now.tokenizer),
        ]
        # Answers under the name that was asked for leave ``named`` empty.
        if self.named != now.named:
            names = self.named or self.model, now.named or now.model
            compared.insert(1, ("the name of the model in answers", *names))
        lines = []
        for what, before, after in compared:
            if before != after:
                lines.append(f"{what}: {before or 'unnamed'} then, {after or 'unnamed'} now")
        allowed = max(ALLOWED, 4 * max(self.noise, now.noise))
        for text in self.probes.keys() & now.probes.keys():
            nats_before = self.probes[text]
            nats_after = now.probes[text]
            # Not ``>``, so that NaN is a difference.
            if not abs(nats_before - nats_after) <= allowed:
                lines.append(
                    f"log P of {text[-30:]!r} after what precedes it: {nats_before:.4f} nats then,"
                    f" {nats_after:.4f} now, where up to {allowed:.2g} may be noise"
                )
        return lines


@dataclass(frozen=True, slots=True)
class ImportRecord:
    """Describe another tool's log that a run was made of.

    ``tool``: that wrote it; ``settings``: its facts, as text; ``recorded``: the tool's totals, by
    its names, or the means of its values of items if it has no totals; ``unused``: the parts that
    were not kept, in words.  ``recomputed``: those of ``recorded`` that follow from the answers.
    """

    tool: str
    settings: Mapping[str, str] = field(default_factory=dict)
    recorded: Mapping[str, float] = field(default_factory=dict)
    unused: tuple[str, ...] = ()
    recomputed: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ShardRecord:
    """Mark a folder with the answers of processes ``numbers`` of ``of`` (``extensions/cluster``).

    ``engines``: how they computed, after a merge.  ``plan``: SHA-256 of the prompts of all
    processes; ``counts``: how many, by block and shard of its token tree.  Both are empty until the
    process is done.
    """

    of: int
    numbers: tuple[int, ...]
    _: KW_ONLY
    engines: tuple[EngineRecord, ...] = ()
    plan: str = ""
    counts: tuple[tuple[int, ...], ...] = ()

    @property
    def whole(self) -> bool:
        """Return True if no process is missing."""
        return len(self.numbers) == self.of


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Describe a run: the content of ``manifest.json``.

    ``model``, ``dataset`` and ``selection`` identify the measurement, and a folder never continues
    with another.  ``protocols``: name → signature.  ``versions``: package → version.  ``files``:
    those outside the blocks, by name.  ``job``: fields of :class:`choicewise.running.job.Job`, so
    that a command can resume the run; empty if model or data have no name.  ``mapping``: the text
    of the file that maps the columns of the data, or "".  ``command``: the words after
    ``choicewise`` of the ``run`` with this job; empty if there was none, or if a word holds a key.
    ``imported``: for a run made of another tool's log.  ``server``: for a model behind a server.
    ``refused``: protocols that the model does not support, with the reason.  ``shard``: for a part
    of a run.
    """

    # Pydantic applies these settings to the records in the fields, too.
    __pydantic_config__ = {"extra": "forbid", "strict": True}  # noqa: RUF012

    model: ModelRecord
    dataset: DatasetRecord
    selection: Selection
    protocols: dict[str, str]
    versions: dict[str, str]
    engine: EngineRecord = EngineRecord()
    blocks: tuple[BlockRecord, ...] = ()
    complete: bool = False
    files: dict[str, FileRecord] = field(default_factory=dict)
    job: JsonDict = field(default_factory=dict)
    imported: ImportRecord | None = None
    server: ServerRecord | None = None
    refused: dict[str, str] = field(default_factory=dict)
    mapping: str = ""
    command: tuple[str, ...] = ()
    shard: ShardRecord | None = None

    @property
    def writer(self) -> str:
        """Return the command that finishes the run when it is repeated."""
        return "choicewise run" if self.imported is None else "choicewise import"

    def stored(self) -> JsonDict:
        """Return the fields for files and digests, without the empty ones of ``NEW_FIELDS``."""
        content = asdict(self)
        if self.shard is None:
            del content["shard"]
        for part, names in NEW_FIELDS.items():
            fields = content[part]
            for name in names:
                if fields is not None and fields[name] in (None, {}, ""):
                    del fields[name]
        return content


NEW_FIELDS = {
    "model": ("kind", "products"),
    "selection": ("sample", "seed", "drawn_from"),
    "server": ("endpoint",),
}
"""Part of a manifest → fields that earlier versions did not write, left out if they are empty."""


@dataclass(frozen=True, slots=True)
class PartRecord:
    """Describe a part of a suite: its ``benchmark``, and the signatures of its ``protocols`` by
    name.

    ``unscored``: why it can't be scored, or "".
    """

    benchmark: str
    protocols: dict[str, str]
    unscored: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteRecord:
    """Describe a suite, with fields of :class:`choicewise.protocols.catalogue.Suite`."""

    name: str
    title: str
    parts: tuple[PartRecord, ...]
    normalised: bool
    average: str


@dataclass(frozen=True, slots=True)
class CellRecord:
    """Describe the run of one model on one dataset.

    ``model``: the name it is loaded by; ``dataset``: the name of a benchmark, or the path of the
    data.  ``folder``: of the run, relative, with ``/``.  ``asked``: a digest of all that its
    numbers depend on.  ``done``: True if the run is complete; ``failure``: why it is not, "" before
    it begins.
    """

    model: str
    dataset: str
    folder: str
    asked: str
    done: bool = False
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Sweep:
    """Describe runs of models on datasets: the content of ``sweep.json``.

    ``protocols``: the names of entries, suites and signatures.  ``cells``: in the order of the
    work.
    """

    __pydantic_config__ = {"extra": "forbid", "strict": True}  # noqa: RUF012

    protocols: tuple[str, ...] = ()
    suites: tuple[SuiteRecord, ...] = ()
    cells: tuple[CellRecord, ...] = ()

    @property
    def models(self) -> tuple[str, ...]:
        """Return the distinct models."""
        return tuple(dict.fromkeys(cell.model for cell in self.cells))

    @property
    def missing(self) -> tuple[CellRecord, ...]:
        """Return the cells that are not done."""
        return tuple(cell for cell in self.cells if not cell.done)
