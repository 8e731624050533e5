"""Define what every model offers, and the records of its self-check and of how to load it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from choicewise.questions import Answers, Prompt
from choicewise.tokens.tokenizer import Tokenizer

if TYPE_CHECKING:
    from choicewise.records import ServerRecord


class Model(Protocol):
    """A language model with its tokenizer, wherever it runs.

    ``window``: the most tokens that can be inputs at once; the last token of a span is never an
    input, so a span may have ``window + 1`` tokens.  ``digest`` (64 hex) identifies weights and
    configuration, ``device`` where it runs (``server``: behind one).  ``kind_name``: the
    :class:`choicewise.ports.ModelKind` that opened it, "" for a model that a caller made.
    ``supports``: the kinds of question it answers (classes of :data:`~choicewise.questions.Prompt`,
    and ``Sampling`` where it samples generations).
    """

    name: str
    device: str
    kind_name: str

    @property
    def digest(self) -> str:
        """Return the digest of 64 hex digits."""

    @property
    def window(self) -> int:
        """Return the most input tokens."""

    @property
    def supports(self) -> frozenset[type]:
        """Return the kinds of question that it answers."""

    @property
    def dtype(self) -> str:
        """Return the dtype of its arithmetic."""

    @property
    def tokenizer(self) -> Tokenizer:
        """Return the tokenizer that turns texts into its tokens."""

    @property
    def recipe(self) -> Recipe | None:
        """Return how to load the model in another process.

        None if only this process has it, or a server computes it.
        """

    @property
    def selfcheck(self) -> SelfCheck | None:
        """Return its compute path and how exact that is, as measured last, or now.

        None if there is no choice of paths.
        """

    def check(self, depth: int) -> SelfCheck | None:
        """Choose the path for questions of ``depth`` input tokens, and return its self-check.

        It is measured now, unless it was measured as deep before, here or by another process, and
        has the noise of the answers so far.  ``answer`` calls this by itself.  A depth of 0 only
        loads what is needed to answer.  None if there is no choice of paths.
        """

    @property
    def computed(self) -> int | None:
        """Return the input tokens that went through the model, with those of its self-check.

        None if they are not counted.  The number grows with every pack, so that one long question
        shows progress.
        """

    @property
    def planned(self) -> int | None:
        """Return the input tokens needed for all questions so far, with those computed.

        None if they are not counted.  A tree of questions adds its tokens when it is built, a
        generation its limit at first and its length when it ends, so that the number falls at
        times.  It is never below ``computed``, and equal to it while no question is open.
        """

    def objection(self, question: Prompt) -> str | None:
        """Return why ``question``, of a kind that it ``supports``, can't be answered, or None.

        So a server that gives probabilities of one next token alone objects to a question about
        three.  Before a run this is called with the first questions of a protocol; a model that
        answers all that it supports never objects.
        """

    def answer(self, questions: Sequence[Prompt]) -> Answers:
        """Yield the answers, in any order, as results become available.

        A question has the same answer whatever else is asked.  Raises ModelError for a question
        that the model can't answer: with more tokens than its window, or tokens that it does not
        know.
        """


class ServedModel(Model, Protocol):
    """A model behind a server.

    ``notes``: what users should know of how the server is asked. ``takes``: tokens of prompt and
    answer that it takes, and ``front``: the tokens that it puts before a text; None if it doesn't
    say.
    """

    notes: list[str]
    takes: int | None

    @property
    def front(self) -> tuple[int, ...] | None:
        """Return the tokens before a text."""

    @property
    def record(self) -> ServerRecord:
        """Return what a run keeps of the server."""

    def probe_now(self) -> Mapping[str, float]:
        """Return the probe's log-probabilities (nats) as the server gives them now, by text. Raises
        ModelError.
        """

    def requests_for(self, questions: Sequence[Prompt]) -> int:
        """Return how many requests ``questions`` take; those that can't be asked take none."""


@dataclass(frozen=True)
class Recipe:
    """``name`` and ``options`` are the arguments of :func:`choicewise.models.load.load_model` that
    were given.

    ``name`` is a folder by its absolute path, or what every machine knows: a name on the Hub with
    the commit that was loaded, the name of a bundled model or of a fake.  Values of ``options`` are
    plain: texts, numbers, flags; the folder of an adapter is there by its absolute path.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Trial:
    """One rung tried: the largest difference of a score from the reference, and why it was refused.

    The difference is in nats a token; that of a sum over n tokens counts 1 / √n, as independent
    errors grow.  The reference is the plain path, for a 16-bit model that of its float32 copy.
    """

    rung: str
    difference: float | None
    refused: str | None


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """The rung taken, what it costs in words, and what was measured.

    ``floor``: the noise of the plain path, and ``tolerance``: how far a rung may be from the
    reference, both in nats a token as the ``difference``.  ``noise``: how far two ways of computing
    a token's log-probability differ, hardly ever exceeded; the noise of a sum over n tokens is √n
    times as large.  It is measured on the probe at first, then on answers of the run, which are
    compared with the plain path, that of a float32 copy of a 16-bit model.  ``depth``: the probe's
    longest sequence, in tokens.
    """

    rung: str
    difference: float = 0.0
    floor: float = 0.0
    tolerance: float = 0.0
    noise: float = 0.0
    depth: int = 0
    trials: tuple[Trial, ...] = ()
    cost: str = ""
