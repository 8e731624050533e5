"""What is stored: schemas, rows, manifest, sweep, faults (pydantic models, no I/O).

Named tuples, because blocks have hundreds of thousands of them: they are cheap to make, and ``zip`` makes them columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, NamedTuple, Self, get_type_hints

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from choicewise.errors import UsageError

GENERATED = -1  # the choice index of a generation, which belongs to no choice
Text = Annotated[str, pa.string()]
Int32 = Annotated[int, pa.int32()]
Indices = Annotated[Sequence[int], pa.list_(pa.int16())]
TextOrNull = Annotated[str | None, pa.string()]
Int16 = Annotated[int, pa.int16()]
Flag = Annotated[bool, pa.bool_()]
Tokens = Annotated[npt.NDArray[np.int32] | Sequence[int], pa.list_(pa.int32())]
KEYS = ("key", "before", "after")  # all columns of the spans that name observations
FORMAT = "choicewise-run"
VERSION = 3  # of the format; folders of another version are refused
MANIFEST = "manifest.json"
ITEM_FILE = "items.parquet"
BLOCK_FOLDER = "blocks"
SUMMARY = (
    "summary.parquet"  # what follows from the others, kept so that it need not be computed again
)
SWEEP = "sweep.json"  # what a folder of several run folders says of itself
SWEEP_FORMAT = "choicewise-sweep"
SWEEP_VERSION = 1

LATER = (
    *("token_count", "greedy", "at_most", "missing"),
    *(
        "finish",
        "raw",
        "opened",
        "thought",
        "generated_tokens",
        "thought_tokens",
        "forced",
        "exchange",
    ),
)
"""Columns that files of earlier versions lack; there they are null."""


class ItemRow(NamedTuple):
    """A question of the run.  ``position``: its place in the table; ``fields``: its further fields, a JSON object."""

    position: Int32
    split: Text
    item: Text
    subject: Text
    question: Text
    choices: Annotated[Sequence[str], pa.list_(pa.string())]
    gold: Indices
    fields: Text


class RequestRow(NamedTuple):
    """An item under one prompt: its texts as sent after fitting, or why it could not be asked (``missing``).

    ``prompt``: :attr:`choicewise.protocols.protocol.Protocol.prompt_digest`.  ``options``: the choices as shown, after
    quirks and stripping.  ``shots`` are part of the context, ``shots_dropped`` did not fit.  ``tokens_dropped``: tokens
    cut from the context, the greatest number over all choices.
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
    """Which observation answers what was asked about a choice: one row per prompt, item, choice, part and null context.

    ``choice``: its index; ``GENERATED`` for a generation, which belongs to no choice.  ``part`` counts from 0 where
    several things are asked about a choice.  ``null``: the null context, None for the request itself.  ``context``: the
    choice's own context where it is not the request's.  ``continuation``: None where another tool's log does not have
    it.  ``key``: of the observation, None when ``missing`` says why.
    ``before`` and ``after``: keys of the observations whose log-probabilities are subtracted and added.  The flags are
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
    """What a model answered to one question, whichever protocol asked.

    ``tokens`` (ids), ``sizes`` (bytes), ``logprobs`` (nats; of a loss, their mean at each token) and ``ranks``
    (vocabulary entries with a strictly greater logit) have one entry per scored unit.  ``text``: of a generation.
    ``value``: a loss (nats per token) or a cosine.  Of an observation that came without tokens, as in other tools'
    logs: ``total``, its log-likelihood (nats), ``token_count``, how many tokens it had, and ``greedy``, whether each of
    them was the likeliest; None where ``logprobs`` say it, or nobody does.  ``at_most``: whether ``logprobs`` are upper
    bounds.  ``missing``: why a model behind a server gave no answer; all numbers are NaN then.

    Of a generation: ``finish``, why it ended (:mod:`choicewise.questions`); ``raw``, its text with the special tokens
    that begin and end thoughts, None where there are none; ``opened``, what begins the thought in which the prompt
    ends; ``thought``, the one that a server gives apart; ``generated_tokens`` and ``thought_tokens``, as many as a
    server counts; ``forced``, whether the thought was closed at its limit.  Of a choice that is scored along a thought:
    ``thought_tokens``, how many tokens of it come before.

    Of the first option of a question that a decision endpoint was asked: ``exchange``, an object of JSON with what was
    sent and what came, byte for byte (:class:`choicewise.extensions.endpoints.decisions.decision_model.Exchange`).
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


ITEMS, REQUESTS, SPANS, OBSERVATIONS = (
    pa.schema(
        [
            (name, kind.__metadata__[0])
            for name, kind in get_type_hints(row, include_extras=True).items()
        ]
    )
    for row in (ItemRow, RequestRow, SpanRow, ObservationRow)
)
"""One column per field of the row, of the type in the field's annotation."""


ALLOWED = 0.01
"""Nats by which a server may answer the same question otherwise, however alike the answers of its probe were: what
16-bit arithmetic makes of another cache or version of the software; other weights differ by more."""

Place = tuple[str, str, int, int]
"""Where a block lies: split, subject, and the positions in the subject of its first item and after its last one."""


@dataclass(frozen=True, slots=True)
class FileRecord:
    """A file as it was written: its size in ``bytes`` and its ``sha256`` in hexadecimal."""

    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class BlockRecord:
    """Items ``start`` to ``stop`` (exclusive) of one subject, with what was observed of them.

    ``asks``: names of what was asked (:attr:`choicewise.requests.blocks.RequestSpec.name`).  ``files``: by name.
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
        """Split, subject, start and stop."""
        return self.split, self.subject, self.start, self.stop


@dataclass(frozen=True, slots=True)
class ModelRecord:
    """The model that answered; the fields are those of :class:`choicewise.models.model.Model`.

    ``chat``: the digest of its chat template, empty where it has none.  ``source``: the repository on the Hub and the
    commit that it was read from, empty for others.  ``kind``: the name of the :class:`choicewise.ports.ModelKind` that
    opened it; empty if a caller made it, or for what was imported.  ``products``: "onednn" if that multiplied on a
    CPU, empty for torch's own products.
    """

    name: str
    digest: str
    dtype: str
    device: str
    window: int
    chat: str = ""
    source: str = ""
    kind: str = ""
    products: str = ""

    @property
    def reference(self) -> str:
        """What to ask for to have it again: repository and commit where they are all of it, else the name."""
        return self.source if self.source.startswith(f"{self.name}@") else self.name

    @property
    def computation(self) -> dict[str, Any]:
        """Return the fields but for the kind, which says how the model was opened and not what it computes."""
        content = asdict(self)
        del content["kind"]
        return content

    @property
    def arithmetic(self) -> str:
        """What can be asked for as its dtype: what stands after the kind of quantised weights, or all of it."""
        return self.dtype.rpartition(", ")[2]


@dataclass(frozen=True, slots=True)
class SkippedRow:
    """A row of a data file that was skipped, and why."""

    file: str
    row: int
    reason: str


@dataclass(frozen=True, slots=True)
class DatasetRecord:
    """The data.

    ``categories``: its subjects, in order, by category and subcategory, empty where it has none.  ``content``: the
    further fields that hold what is asked (:func:`choicewise.data.items.content_fields`).  ``source``: as of a model.
    ``read_with``: the release of another tool that read them, and which of its tasks they are; empty for none.
    """

    name: str
    digest: str
    skipped: tuple[SkippedRow, ...] = ()
    categories: Mapping[str, Mapping[str, Sequence[str]]] = field(default_factory=dict)
    content: tuple[str, ...] = ()
    source: str = ""
    read_with: str = ""

    @property
    def reference(self) -> str:
        """As of a model; nothing where the protocols say it: a benchmark's own data on the Hub, or another tool's."""
        if self.read_with:
            return ""
        if not self.source:
            return self.name
        return self.source if self.source.startswith(f"{self.name}@") else ""


@dataclass(frozen=True, slots=True, repr=False)
class Selection:
    """The part of the data that is asked: the named ``subjects``, the first ``limit`` items of each; None for all.

    ``sample``: so many items of all that there are, drawn by ``seed`` from every subject in proportion to its size
    (:meth:`choicewise.data.dataset.Dataset.sample`).  ``drawn_from``: split → subject → how many items there are; it
    follows from the data, and is empty unless a sample was drawn.
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
        """What is asked in these words; a sample without a seed has seed 1.

        Raises UsageError for a number below 1, for a limit and a sample at once, and for a seed of no sample.
        """
        for name, number in (("limit", limit), ("sample", sample)):
            if number is not None and number < 1:
                raise UsageError(
                    f"{name} is {number}; it must be at least 1, or left out for all questions"
                )
        if limit is not None and sample is not None:
            raise UsageError(
                f"limit {limit} asks the first questions of each subject, and sample {sample} some that are drawn from "
                "all; leave one of them out"
            )
        if sample is None and seed is not None:
            raise UsageError(
                f"seed is {seed} and no sample is drawn; add a sample, or leave the seed out"
            )
        if seed is not None and seed < 0:
            raise UsageError(f"seed is {seed}; it must be 0 or more")
        names = None if subjects is None else tuple(sorted(set(subjects)))
        return cls(names, limit, sample, 1 if sample is not None and seed is None else seed)

    def __repr__(self) -> str:
        """As it always was where no sample is drawn: ids of exports are made of it."""
        drawn = "" if self.sample is None else f", sample={self.sample!r}, seed={self.seed!r}"
        return f"Selection(subjects={self.subjects!r}, limit={self.limit!r}{drawn})"


@dataclass(frozen=True, slots=True)
class SelfCheckRecord:
    """What a run keeps of the model's :class:`choicewise.models.model.SelfCheck`; the fields are those."""

    rung: str
    cost: str
    difference: float
    floor: float
    noise: float
    depth: int


@dataclass(frozen=True, slots=True)
class Spent:
    """Input tokens asked, when every choice is a sequence of its own, input tokens computed, and seconds taken.

    ``requests``: to a server, which then says itself what it computed; 0 of models that ran here.  ``tokens_unique``:
    of the tree of all that was asked, where vLLM computed and its cache decides what is computed twice; else 0.
    """

    tokens_asked: int
    tokens_computed: int
    seconds: float
    requests: int = 0
    tokens_unique: int = 0

    def __add__(self, other: Spent) -> Spent:
        asked, computed = (
            self.tokens_asked + other.tokens_asked,
            self.tokens_computed + other.tokens_computed,
        )
        requests, unique = self.requests + other.requests, self.tokens_unique + other.tokens_unique
        return Spent(asked, computed, self.seconds + other.seconds, requests, unique)


@dataclass(frozen=True, slots=True)
class EngineRecord:
    """How the observations were computed; None for a model without a self-check, or one that counts no tokens."""

    selfcheck: SelfCheckRecord | None = None
    spent: Spent | None = None


@dataclass(frozen=True, slots=True)
class EndpointRecord:
    """What was found of a decision endpoint that is asked in a ``dialect``.

    ``repeated``: questions that were sent twice; ``flips``: those of them with another likeliest option then; ``mean``
    and ``most``: by how much the probability of an option differed.  ``doubts``: what its answers to the probe speak
    against, in words.
    """

    dialect: str
    repeated: int = 0
    flips: int = 0
    mean: float = 0.0
    most: float = 0.0
    doubts: tuple[str, ...] = ()

    def __add__(self, other: EndpointRecord) -> EndpointRecord:
        number = self.repeated + other.repeated
        mean = (self.mean * self.repeated + other.mean * other.repeated) / max(number, 1)
        doubts = tuple(dict.fromkeys([*self.doubts, *other.doubts]))
        flips, most = self.flips + other.flips, max(self.most, other.most)
        return EndpointRecord(self.dialect, number, flips, mean, most, doubts)


@dataclass(frozen=True, slots=True)
class ServerRecord:
    """The server behind which the model answered, as its probe before the first question saw it.

    ``model``: the server's own name of the model, and ``root`` where it says that its weights come from; ``route``: how
    it is asked; ``software``: what it says that it is, with its version; ``tokenizer``: the name of ours.  ``probes``:
    log-probabilities (nats) of the probe's texts, by text, and ``noise``: how far two answers to the same question
    differ at most (nats).  ``changed``: what the same probe found to be otherwise after the last question, in words;
    empty where it found nothing.  ``named``: what its answers call the model, where that is another name than asked.
    ``endpoint``: of a decision endpoint.
    """

    model: str
    route: str
    root: str = ""
    software: str = ""
    tokenizer: str = ""
    probes: Mapping[str, float] = field(default_factory=dict)
    noise: float = 0.0
    changed: str = ""
    named: str = ""
    endpoint: EndpointRecord | None = None

    def differences(self, now: ServerRecord) -> list[str]:
        """What ``now`` is otherwise than here, in words: what is asked, and answers that differ by more than noise."""
        named = {
            "model": "the model",
            "named": "the name of the model in answers",
            "root": "its weights",
            "route": "the way of asking",
            "tokenizer": "the tokenizer",
        }
        texts = [(what, getattr(self, name), getattr(now, name)) for name, what in named.items()]
        lines = [
            f"{what}: {then or 'unnamed'} then, {here or 'unnamed'} now"
            for what, then, here in texts
            if then != here
        ]
        allowed = max(ALLOWED, 4 * max(self.noise, now.noise))
        for text in self.probes.keys() & now.probes.keys():
            then, here = self.probes[text], now.probes[text]
            if not abs(then - here) <= allowed:  # so that NaN is a difference
                lines.append(
                    f"log P of {text[-30:]!r} after what precedes it: {then:.4f} nats then, {here:.4f} now, where up to"
                    f" {allowed:.2g} may be noise"
                )
        return lines


@dataclass(frozen=True, slots=True)
class ImportRecord:
    """Another tool's log that a run was made of.

    ``tool`` wrote it; ``settings``: what it says of itself, as text; ``recorded``: its own totals, by its own names;
    ``unused``: what of it was not kept, in words.
    """

    tool: str
    settings: Mapping[str, str] = field(default_factory=dict)
    recorded: Mapping[str, float] = field(default_factory=dict)
    unused: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ShardRecord:
    """That a folder holds the answers of the processes ``numbers`` of ``of`` alone (``extensions/cluster``).

    ``engines``: how each computed, where they were merged.  ``plan``: sha256 of what all of them ask; ``counts``: of
    how many questions, by block and shard of its token tree.  Both are empty until the process has asked its part.
    """

    of: int
    numbers: tuple[int, ...]
    engines: tuple[EngineRecord, ...] = ()
    plan: str = ""
    counts: tuple[tuple[int, ...], ...] = ()

    @property
    def whole(self) -> bool:
        """Whether no process is missing."""
        return len(self.numbers) == self.of


@dataclass(frozen=True, slots=True)
class Manifest:
    """Everything a run folder says about itself.

    ``model``, ``dataset`` and ``selection`` identify what was measured: a folder never continues with another.
    ``protocols``: name → signature.  ``versions``: package → version.  ``files``: those outside the blocks, by name.
    ``job``: the fields of :class:`choicewise.running.job.Job` that say where model and data lie, so that a command can
    resume it; none where they were in memory alone.  ``mapping``: the text of the file that said what the columns of
    the data mean; empty where none did.  ``command``: the words behind ``choicewise`` of the ``run`` that asked what
    ``job`` says, as they were typed; none where it was asked otherwise, or one of them holds a key.  ``imported``:
    where no model was asked here, and all that was observed comes from another tool's log.  ``server``: where the model
    answered from behind one.  ``refused``: protocols that were asked for and that the model can't be asked under, with
    the reason.  ``shard``: where several processes ask a part each, which parts there are here.
    """

    __pydantic_config__ = {"extra": "forbid", "strict": True}  # noqa: RUF012, also for the records in the fields

    model: ModelRecord
    dataset: DatasetRecord
    selection: Selection
    protocols: dict[str, str]
    versions: dict[str, str]
    engine: EngineRecord = EngineRecord()
    blocks: tuple[BlockRecord, ...] = ()
    complete: bool = False
    files: dict[str, FileRecord] = field(default_factory=dict)
    job: dict[str, Any] = field(default_factory=dict)
    imported: ImportRecord | None = None
    server: ServerRecord | None = None
    refused: dict[str, str] = field(default_factory=dict)
    mapping: str = ""
    command: tuple[str, ...] = ()
    shard: ShardRecord | None = None

    @property
    def writer(self) -> str:
        """The command whose repeated line finishes the run."""
        return "choicewise run" if self.imported is None else "choicewise import"

    def stored(self) -> dict[str, Any]:
        """Its fields in dicts, as a file and digests have them: without those of ``NEW_FIELDS`` that say nothing."""
        content = asdict(self)
        if self.shard is None:
            del content["shard"]
        for part, names in NEW_FIELDS.items():
            if (own := content[part]) is not None:
                kept = {
                    name: value
                    for name, value in own.items()
                    if name not in names or value not in (None, {}, "")
                }
                content[part] = kept
        return content


NEW_FIELDS = {
    "model": ("kind",),
    "selection": ("sample", "seed", "drawn_from"),
    "server": ("endpoint",),
}
"""By part of a manifest the fields that earlier versions did not write; left out where they say nothing."""


@dataclass(frozen=True, slots=True)
class PartRecord:
    """A part of a suite: its ``benchmark``, and the signatures of its ``protocols`` by name.

    ``unscored``: why it can't be scored, empty where it can.
    """

    benchmark: str
    protocols: dict[str, str]
    unscored: str = ""


@dataclass(frozen=True, slots=True)
class SuiteRecord:
    """A suite as it was asked; the fields are those of :class:`choicewise.protocols.catalogue.Suite`."""

    name: str
    title: str
    parts: tuple[PartRecord, ...]
    normalised: bool
    average: str


@dataclass(frozen=True, slots=True)
class CellRecord:
    """One model on one dataset.

    ``model``: as it was named to be loaded; ``dataset``: the name of a benchmark, or where the data lie.  ``folder``:
    of its run, relative, with ``/``.  ``asked``: a digest of all that was asked of it and with what.  ``done``: whether
    the run is complete; ``failure``: why it is not, empty where it was not begun.
    """

    model: str
    dataset: str
    folder: str
    asked: str
    done: bool = False
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Sweep:
    """Models on datasets.

    ``protocols``: what they were asked under, as it was named: entries, suites, signatures.  ``cells``: in the order of
    the work.
    """

    __pydantic_config__ = {"extra": "forbid", "strict": True}  # noqa: RUF012, also for the records in the fields

    protocols: tuple[str, ...] = ()
    suites: tuple[SuiteRecord, ...] = ()
    cells: tuple[CellRecord, ...] = ()

    @property
    def models(self) -> tuple[str, ...]:
        """The models, each once."""
        return tuple(dict.fromkeys(cell.model for cell in self.cells))

    @property
    def missing(self) -> tuple[CellRecord, ...]:
        """The cells that are not done."""
        return tuple(cell for cell in self.cells if not cell.done)
