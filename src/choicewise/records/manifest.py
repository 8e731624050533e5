"""The manifest as a value: what a run folder holds, and for which model, data and protocols it was made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

ALLOWED = 0.01
"""Nats by which a server may answer the same question otherwise, however alike the answers of its probe were.

What 16-bit arithmetic makes of another cache or another version of the software; other weights differ by more."""

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

    ``asks``: the ways in which they were asked, by :attr:`choicewise.requests.schedule.Ask.name`.  ``files``: by name.
    """

    name: str
    split: str
    subject: str
    start: int
    stop: int
    asks: tuple[str, ...]
    files: dict[str, FileRecord]

    @property
    def place(self) -> Place:
        """Split, subject, start and stop."""
        return self.split, self.subject, self.start, self.stop


@dataclass(frozen=True, slots=True)
class ModelRecord:
    """The model that answered; the fields are those of :class:`choicewise.models.model.Model`.

    ``chat``: the digest of its chat template, empty where it has none.  ``source``: the repository on the Hub and the
    commit that it was read from, empty for others.
    """

    name: str
    digest: str
    dtype: str
    device: str
    window: int
    chat: str = ""
    source: str = ""

    @property
    def asked(self) -> str:
        """What to ask for to have it again: repository and commit where they are all of it, else the name."""
        return self.source if self.source.startswith(f"{self.name}@") else self.name

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
    further fields that hold what is asked (:func:`choicewise.data.content.content_fields`).  ``source``: as of a model.
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
    def asked(self) -> str:
        """As of a model; nothing where the protocols say it: a benchmark's own data on the Hub, or another tool's."""
        if self.read_with:
            return ""
        if not self.source:
            return self.name
        return self.source if self.source.startswith(f"{self.name}@") else ""


@dataclass(frozen=True, slots=True)
class Selection:
    """The part of the data that is asked: the named ``subjects``, the first ``limit`` items of each; None for all."""

    subjects: tuple[str, ...] | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class SelfCheckRecord:
    """What a run keeps of the model's :class:`choicewise.models.selfcheck.SelfCheck`; the fields are those."""

    rung: str
    cost: str
    difference: float
    floor: float
    noise: float
    depth: int


@dataclass(frozen=True, slots=True)
class Spent:
    """Input tokens asked, when every choice is a sequence of its own, input tokens computed, and seconds taken.

    ``requests``: to a server, which then says itself what it computed; 0 of models that ran here.
    """

    tokens_asked: int
    tokens_computed: int
    seconds: float
    requests: int = 0

    def __add__(self, other: Spent) -> Spent:
        asked, computed = self.tokens_asked + other.tokens_asked, self.tokens_computed + other.tokens_computed
        return Spent(asked, computed, self.seconds + other.seconds, self.requests + other.requests)


@dataclass(frozen=True, slots=True)
class EngineRecord:
    """How the observations were computed; None for a model without a self-check, or one that counts no tokens."""

    selfcheck: SelfCheckRecord | None = None
    spent: Spent | None = None


@dataclass(frozen=True, slots=True)
class ServerRecord:
    """The server behind which the model answered, as its probe before the first question saw it.

    ``model``: the server's own name of the model, and ``root`` where it says that its weights come from; ``route``: how
    it is asked; ``software``: what it says that it is, with its version; ``tokenizer``: the name of ours.  ``probes``:
    log-probabilities (nats) of the probe's texts, by text, and ``noise``: how far two answers to the same question
    differ at most (nats).  ``changed``: what the same probe found to be otherwise after the last question, in words;
    empty where it found nothing.  ``named``: what its answers call the model, where that is another name than asked.
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
            f"{what}: {then or 'unnamed'} then, {here or 'unnamed'} now" for what, then, here in texts if then != here
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
class Manifest:
    """Everything a run folder says about itself.

    ``model``, ``dataset`` and ``selection`` identify what was measured: a folder never continues with another.
    ``protocols``: name → signature.  ``versions``: package → version.  ``files``: those outside the blocks, by name.
    ``command``: the words of a command line that say where model and data lie and what of them was asked, so that a
    line can go on with it; none where it was not begun by one.  ``typed``: the command lines that asked for the
    protocols, in their order, each as it was typed after the program's name; none where one of them is not known.
    ``imported``: where no model was asked here, and all
    that was observed comes from another tool's log.  ``server``: where the model answered from behind one.
    ``refused``: protocols that were asked for and that the model can't be asked under, with the reason.
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
    command: tuple[str, ...] = ()
    typed: tuple[tuple[str, ...], ...] = ()
    imported: ImportRecord | None = None
    server: ServerRecord | None = None
    refused: dict[str, str] = field(default_factory=dict)

    @property
    def writer(self) -> str:
        """The command whose repeated line finishes the run."""
        return "choicewise run" if self.imported is None else "choicewise import"
