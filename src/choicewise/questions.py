"""Prompts: token sequences of which a model computes log-probabilities or a continuation, and its
answers.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from choicewise.errors import ModelError
from choicewise.thoughts import Cuttable, cuttable, split, turns

Ids = npt.NDArray[np.int32]  # token ids, shape [tokens]

# Little-endian, so that keys are the same on all machines.
_LITTLE = np.dtype("<i4")

UNKNOWN = -1
"""The rank of a token if nothing is known of it."""

NOT_FIRST = -2
"""The rank of a token if all that is known is that another token is likelier."""

EOS = "eos"
STOP = "stop"
LENGTH = "length"
FILTERED = "filtered"
"""Why a generation ended: by the model's token, before a stop, at its limit, or withheld by a
filter.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Blanks:
    """Score tokens of ``text`` one by one: log P(text[place] | the text with a stretch hidden).

    There is a pass for each of ``places``: the tokens from ``places[j]`` to ``ends[j]`` (exclusive)
    are replaced by ``mask``, and all others are visible, also those after it.  ``text`` contains
    the special tokens around it.  If the ends are one after the places, this is the
    pseudo-log-likelihood (Salazar et al. 2020).  ``gold``: as in :class:`Span`.
    """

    text: Ids
    places: Ids
    ends: Ids
    mask: int
    _: KW_ONLY
    gold: bool | None = None

    @property
    def continuation(self) -> Ids:
        """Return the scored tokens."""
        return self.text[self.places]

    @property
    def key(self) -> str:
        """Return 32 hex digits that equal texts with equal hidden tokens share."""
        rest = np.concatenate([[self.mask], self.places, self.ends]).astype(np.int32)
        return prompt_key(b"blanks", self.text, rest)

    @property
    def inputs(self) -> int:
        """Count the input tokens of all passes."""
        return len(self.text) * len(self.places)

    def rows(self) -> npt.NDArray[np.int32]:
        """Return the text of every pass, int32 [places, tokens]."""
        rows = np.tile(self.text, (len(self.places), 1))
        columns = np.arange(len(self.text))
        is_hidden = (columns >= self.places[:, None]) & (columns < self.ends[:, None])
        rows[is_hidden] = self.mask
        return rows


@dataclass(frozen=True, slots=True, eq=False)
class Cosine:
    """Compute the cosine of the last hidden states of ``left`` and ``right`` at their last tokens.

    Both are sequences of at least one token.  ``gold``: as in :class:`Span`.
    """

    left: Ids
    right: Ids
    gold: bool | None = None

    @property
    def key(self) -> str:
        """Return 32 hex digits that equal pairs of texts share."""
        return prompt_key(b"cosine", self.left, self.right)

    @property
    def inputs(self) -> int:
        """Count the input tokens."""
        return len(self.left) + len(self.right)

    @staticmethod
    def answer(cosine: float) -> TokenScores:
        """Return the answer that holds ``cosine`` and no tokens."""
        return replace(TokenScores.of(), value=cosine)


@dataclass(frozen=True, slots=True)
class Sampling:
    """Draw every token from the model's distribution, at temperature 1.

    ``stream`` is the seed of the random numbers, so that a prompt always has the same answer.
    """

    stream: bytes

    @classmethod
    def of(cls, seed: int, item: str, number: int) -> Sampling:
        """Return the stream of sample ``number`` of ``item``, which depends on no other item."""
        text = f"{seed}|{number}|{item}"
        return cls(hashlib.sha256(text.encode(errors="surrogatepass")).digest())

    def draw(self, weights: npt.NDArray[np.generic], position: int) -> int:
        """Draw the token at ``position``: an index of ``weights``, in proportion to them."""
        sums = np.cumsum(weights, dtype=np.float64)
        index = int(np.searchsorted(sums, self.share(position) * sums[-1], side="right"))
        # Rounding may put the share at the end of the last sum.
        return min(index, len(sums) - 1)

    def share(self, position: int) -> float:
        """Return the random number of the token at ``position``, from 0 to 1 exclusive."""
        content = self.stream + position.to_bytes(8, "little")
        digest = hashlib.blake2b(content, digest_size=8).digest()
        return (int.from_bytes(digest, "little") >> 11) / 2**53


@dataclass(frozen=True, slots=True, eq=False)
class Generation:
    """Generate at most ``limit`` tokens after ``context``, greedily or with ``sampling``.

    A greedy generation ends after the first token that ends a sequence, and includes it; a sampled
    one ends before it.  Both end before the first token with which their bytes contain one of
    ``stops``, so both may be empty; with ``keep_stop`` that token is included.  ``right`` and
    ``wrong`` are the tokens of a right and a wrong answer, which only the oracle fakes read.

    ``opened``: the text that begins the thought in which the context ends, or an empty text; stops
    count only after the thought (:mod:`choicewise.thoughts`).  None if the text has no thoughts.
    ``marks``: the special tokens that begin or end a thought, with their names.  ``thought``: the
    most tokens of a thought; then comes ``closing``, and then the answer of at most ``limit``
    tokens.  None if ``limit`` is for both.  Such a generation is computed in parts
    (:mod:`choicewise.running.observe`), unless a server renders the chat.
    """

    context: Ids
    limit: int
    stops: tuple[bytes, ...] = ()
    sampling: Sampling | None = None
    _: KW_ONLY
    right: Ids | None = None
    wrong: Ids | None = None
    keep_stop: bool = False
    opened: str | None = None
    marks: Mapping[int, bytes] = field(default_factory=dict)
    thought: int | None = None
    closing: Ids | None = None

    @property
    def key(self) -> str:
        """Return 32 hex digits that equal tokens, limits, stops and random streams share."""
        limit = self.limit.to_bytes(8, "little")
        # Keys are stored in runs, so each option only adds to the key of a plain generation.
        if self.sampling is None and not self.stops and self.thought is None:
            return prompt_key(b"generate", self.context, np.asarray([self.limit], dtype=np.int32))
        if self.sampling is None:
            kind = b"generate until"
            rest = limit
        else:
            kind = b"chain"
            rest = limit + self.sampling.stream
        rest += b"\0".join(self.stops)
        if self.keep_stop:
            kind += b" kept"
        if self.thought is not None:
            kind += b" thought"
            closing = b"" if self.closing is None else self.closing.astype(_LITTLE).tobytes()
            length = len(closing).to_bytes(8, "little")
            rest = self.thought.to_bytes(8, "little") + length + closing + rest
        return prompt_key(kind, self.context, _numbers(rest))

    @property
    def most(self) -> int:
        """Return the most tokens that can be generated, or added to close a thought."""
        if self.thought is None:
            return self.limit
        closing = 0 if self.closing is None else len(self.closing)
        return self.thought + closing + self.limit

    @property
    def inputs(self) -> int:
        """Return the most input tokens: the context, and all generated tokens but the last."""
        return len(self.context) + max(self.most - 1, 0)

    def spelled(self, token: int, token_bytes: Sequence[bytes]) -> bytes:
        """Return the bytes of a token, or its name in ``marks``; none beyond the tokenizer."""
        name = self.marks.get(token)
        if name:
            return name
        return token_bytes[token] if token < len(token_bytes) else b""

    def text(self, tokens: Sequence[int], token_bytes: Sequence[bytes]) -> bytes:
        """Return the bytes of ``tokens``, with the names of ``marks``."""
        return b"".join(self.spelled(token, token_bytes) for token in tokens)

    def ends_in(self, text: bytes) -> bool:
        """Return True if ``text`` contains a stop after its thought."""
        start: int | None = 0
        if self.opened is not None and self.stops:
            start = split(text, self.opened).start
        if start is None:
            return False
        return any(text.find(stop, start) >= 0 for stop in self.stops)

    def before_stop(self, tokens: Sequence[int], token_bytes: Sequence[bytes]) -> int:
        """Count the tokens before the first with which the text contains a stop, or all.

        With ``keep_stop`` that token counts, too.
        """
        search = StopSearch(self)
        for count, token in enumerate(tokens):
            if search.add(self.spelled(token, token_bytes)):
                return count + self.keep_stop
        return len(tokens)

    def cuttable(
        self, tokens: Sequence[int], token_bytes: Sequence[bytes], closing: bytes, *, forced: bool
    ) -> Cuttable | None:
        """Find the first thought in the generated ``tokens``; None if none is whole.

        ``forced``: True if it was closed at its limit.
        """
        pieces = [self.spelled(token, token_bytes) for token in tokens]
        return cuttable(pieces, self.opened or "", closing, forced=forced)

    def finish(
        self, tokens: Sequence[int], token_bytes: Sequence[bytes], ends: Collection[int]
    ) -> str:
        """Return why all generated ``tokens`` are the last: ``EOS``, ``STOP`` or ``LENGTH``.

        ``ends``: the tokens that end a sequence.  A sampled generation contains neither its end nor
        its stop; if it is short, the reason is ``STOP`` if there are stops.
        """
        ids = [int(token) for token in tokens]
        if ids and ids[-1] in ends:
            return EOS
        if len(ids) >= self.limit and not self.ends_in(self.text(ids, token_bytes)):
            return LENGTH
        return STOP if self.stops else EOS


class StopSearch:
    """Search the growing text of a ``generation`` for a stop; new bytes alone are read.

    A thought may have ten thousand tokens, and to read it anew at each of them takes minutes.
    """

    def __init__(self, generation: Generation) -> None:
        self._generation = generation
        self._text = bytearray()
        # A stop may have begun in the bytes before.
        self._overlap = max(map(len, generation.stops), default=1) - 1
        self._start: int | None = 0
        if generation.opened is not None:
            self._start = split(b"", generation.opened).start

    def add(self, piece: bytes) -> bool:
        """Add the bytes of a token; return True if they complete a stop after the thought."""
        generation = self._generation
        if not generation.stops:
            return False
        length = len(self._text)
        self._text += piece
        first = max(length - self._overlap, 0)
        if generation.opened is not None and turns(self._text, length):
            self._start = split(bytes(self._text), generation.opened).start
            first = 0
        if self._start is None:
            return False
        first = max(first, self._start)
        if all(self._text.find(stop, first) < 0 for stop in generation.stops):
            return False
        # What follows an answer of gpt-oss does not count, which the marks alone do not tell.
        return generation.ends_in(bytes(self._text))


def _numbers(content: bytes) -> Ids:
    """Return bytes as the numbers that :func:`prompt_key` takes."""
    return np.frombuffer(content, dtype=np.uint8).astype(np.int32)


# Not frozen, as a frozen span takes twice as long to make, and there are millions.
@dataclass(slots=True, eq=False)
class Span:
    """Score ``continuation`` given ``context``: log P(continuation[j] | context, continuation[:j]).

    Both have at least one token: a first token has no log-probability, so an empty context is the
    model's prefix token (BOS, or EOS if there is none).  Choices of one request share the context
    array.  ``gold``: True for a right choice, which only the oracle fakes read.  ``ranked``: True
    if ranks are needed; a model that computes them at extra cost does so only for such spans.
    """

    context: Ids
    continuation: Ids
    gold: bool | None = None
    ranked: bool = False
    _key: str | None = field(default=None, init=False, repr=False)

    @property
    def key(self) -> str:
        """Return 32 hex digits that equal contexts and continuations share, in any protocol."""
        # A cached_property takes a lock, and there are millions of spans.
        if self._key is None:
            self._key = prompt_key(b"span", self.context, self.continuation)
        return self._key

    @property
    def inputs(self) -> int:
        """Count the input tokens: all but the last."""
        return len(self.context) + len(self.continuation) - 1


@dataclass(frozen=True, slots=True, eq=False)
class SetSpan:
    """Score ``continuation`` after options in no order (McIlroy-Young et al. 2024).

    The tokens of option k are ``context[edges[k]:edges[k + 1]]``.  No option sees another, and all
    begin at one position.  What follows the last option sees everything before it, and begins at
    the position after the longest.  ``gold``: as in :class:`Span`.
    """

    context: Ids
    continuation: Ids
    edges: Ids
    gold: bool | None = None

    @property
    def key(self) -> str:
        """Return 32 hex digits that equal continuations of equal contexts and options share."""
        rest = np.concatenate([[len(self.edges)], self.edges, self.continuation])
        return prompt_key(b"set", self.context, rest.astype(np.int32))

    @property
    def inputs(self) -> int:
        """Count the input tokens: all but the last."""
        return len(self.context) + len(self.continuation) - 1

    @property
    def options(self) -> list[Ids]:
        """Return the tokens of the options."""
        return [self.context[start:end] for start, end in pairwise(self.edges.tolist())]

    def in_order(self, order: Sequence[int]) -> SetSpan:
        """Return a span with the options in ``order``."""
        options = self.options
        ordered = [options[index] for index in order]
        edges = self.edges[0] + np.cumsum([0, *map(len, ordered)])
        before = self.context[: self.edges[0]]
        after = self.context[self.edges[-1] :]
        context = np.concatenate([before, *ordered, after])
        return replace(self, context=context, edges=edges.astype(np.int32))


@dataclass(frozen=True, slots=True, eq=False)
class MaskedLoss:
    """Compute the model's loss on ``span``, with labels -100 for all tokens but the continuation's.

    It is the mean negative log-likelihood per token of the continuation, in nats.  The last token
    is an input, too, so ``span`` has at most as many tokens as the model's window.
    """

    span: Span

    @property
    def key(self) -> str:
        """Return 32 hex digits that equal tokens with equal labels share."""
        return prompt_key(b"masked", self.span.context, self.span.continuation)

    @property
    def inputs(self) -> int:
        """Count the input tokens."""
        return self.span.inputs + 1

    def answer(self, loss: float) -> TokenScores:
        """Return an answer that gives every token of the continuation the mean, without ranks."""
        tokens = self.span.continuation
        count = len(tokens)
        return TokenScores(
            tokens,
            np.full(count, -loss, dtype=np.float32),
            np.full(count, UNKNOWN, dtype=np.int32),
            value=loss,
        )


class TokenSet:
    """Hold a set of tokens, ``ids`` ascending; every :class:`Mass` of an equal set shares one."""

    def __init__(self, ids: npt.ArrayLike) -> None:
        self.ids: Ids = np.unique(np.asarray(ids, dtype=np.int32))

    @cached_property
    def digest(self) -> bytes:
        """Return 16 bytes that equal sets share."""
        return hashlib.blake2b(self.ids.astype(_LITTLE).tobytes(), digest_size=16).digest()

    def below(self, vocabulary: int) -> Ids:
        """Return the ids of a vocabulary of that size; ModelError if there are none.

        Tokens beyond it have no probability.
        """
        if not len(self.ids) or self.ids[0] >= vocabulary:
            raise ModelError(
                f"a set of tokens holds none of the {vocabulary} that the model knows; "
                "its tokenizer belongs to another model"
            )
        return self.ids[: np.searchsorted(self.ids, vocabulary)]


@dataclass(frozen=True, slots=True, eq=False)
class Mass:
    """Compute the probability that the next token is one of ``members``.

    The answer has one entry: the log of the sum of P(v | context) over v in members, and the
    likeliest member with its rank.  If ``context`` is computed for other prompts, it costs no input
    token.  ``gold``: as in :class:`Span`.
    """

    context: Ids
    members: TokenSet
    gold: bool | None = None

    @property
    def inputs(self) -> int:
        """Count the input tokens."""
        return len(self.context)

    @property
    def key(self) -> str:
        """Return 32 hex digits that equal sets after equal tokens share."""
        return prompt_key(b"mass", self.context, np.frombuffer(self.members.digest, dtype=_LITTLE))


@dataclass(frozen=True, slots=True, eq=False)
class Rendition:
    """Score ``continuation`` from its first token on, after the encoding of ``source``.

    It is log P(continuation[j] | source, start, continuation[:j]), where ``start`` is the token
    with which the model's decoder starts every text.  ``gold``: as in :class:`Span`.
    """

    source: Ids
    continuation: Ids
    gold: bool | None = None

    @property
    def key(self) -> str:
        """Return 32 hex digits that equal continuations of equal sources share."""
        return prompt_key(b"rendition", self.source, self.continuation)

    @property
    def inputs(self) -> int:
        """Count the input tokens of encoder and decoder."""
        # The decoder reads its start token, and the continuation but for the last token.
        return len(self.source) + len(self.continuation)


@dataclass(frozen=True, slots=True, eq=False)
class ThoughtCut:
    """Cut a thought after ``share`` of its tokens, rounded up, and end it with the text
    ``closing``.

    ``unbroken``: the tokens of ``closing`` and what follows, if the thought already ends in the
    line break with which ``closing`` begins.
    """

    share: float
    closing: bytes
    unbroken: Ids

    def kept(self, tokens: int) -> int:
        """Return how many of ``tokens`` tokens of a thought are before the cut."""
        return math.ceil(self.share * tokens)


@dataclass(frozen=True, slots=True, eq=False)
class Conclusion:
    """Score ``span.continuation`` after the text of ``generation`` followed by ``span.context``.

    With ``cut`` only a share of the thought in that text is kept, and ``span.context`` closes it.
    Its tokens depend on the generated text, its key does not: so a block is prepared without a
    model, and an interrupted run finds its answers.
    """

    generation: Generation
    span: Span
    cut: ThoughtCut | None = None

    @property
    def key(self) -> str:
        """Return 32 hex digits that equal spans after equal generations and cuts share."""
        generation = _numbers(bytes.fromhex(self.generation.key))
        span = _numbers(bytes.fromhex(self.span.key))
        if self.cut is None:
            return prompt_key(b"conclusion", generation, span)
        share = np.asarray([round(1e6 * self.cut.share)], dtype=np.int32)
        rest = np.concatenate([span, share, self.cut.unbroken])
        return prompt_key(b"conclusion along", generation, rest)

    @property
    def inputs(self) -> int:
        """Return the most input tokens."""
        return len(self.generation.context) + self.generation.most + self.span.inputs

    @property
    def longest(self) -> int:
        """Return the most generated tokens before the span."""
        most = self.generation.most
        return most if self.cut is None else self.cut.kept(most)

    def after(self, generated: Ids, unbroken: bool = False) -> Span:
        """Return the span after the ``generated`` tokens.

        ``unbroken``: True if these end in the line break with which the closing of a thought
        begins.
        """
        closing = self.span.context
        if unbroken and self.cut is not None:
            closing = self.cut.unbroken
        context = np.concatenate([self.generation.context, generated, closing])
        return Span(context.astype(np.int32), self.span.continuation, self.span.gold)


@dataclass(frozen=True, slots=True)
class TypedQuestion:
    """Hold a question about a state, for a decision endpoint.

    ``kind``: ``choice`` (one of several options), ``noul`` (yes or no) or ``score`` (ordered
    levels).  ``state``: a JSON text, in quotes if the state is a string; the order of its keys
    matters.  ``names``: the options' names, the levels' texts, or ``yes`` and ``no``.
    ``descriptions``: JSON texts of the options, None if there is none.  ``beside``: the other
    questions of the request, about the same state.
    """

    kind: str
    state: str
    instructions: str
    names: tuple[str, ...]
    descriptions: tuple[str | None, ...]
    _: KW_ONLY
    beside: tuple[TypedQuestion, ...] = ()

    @property
    def parts(self) -> list[str]:
        """List all texts of the question, and of those beside it."""
        parts = [self.kind, self.state, self.instructions]
        parts += self.names
        parts += map(repr, self.descriptions)
        for question in self.beside:
            parts += question.parts
        return parts


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """Ask a decision endpoint for the probability of option ``option`` of ``question``.

    The answer has one entry: the option's index as token, the log of its probability among the
    options, and its rank.  ``gold``: as in :class:`Span`.
    """

    question: TypedQuestion
    option: int
    gold: bool | None = None

    inputs = 0
    """Input tokens, which only the endpoint can count."""

    @property
    def key(self) -> str:
        """Return 32 hex digits that equal options of equal questions share."""
        # The lengths keep the texts apart, whatever characters are in them.
        parts = [f"{len(part)}:{part}" for part in self.question.parts]
        text = "\0".join(parts).encode(errors="surrogatepass")
        return prompt_key(b"decision", _numbers(text), np.asarray([self.option], np.int32))


class Ended(NamedTuple):
    """Describe how a generation ended.

    ``finish``: one of :data:`EOS`, :data:`STOP`, :data:`LENGTH`, :data:`FILTERED`; None if unknown.
    ``thought``: the thought, if a server returns it apart from the text.  ``tokens`` and
    ``thought_tokens``: a server's counts, if it does not list tokens.  ``forced``: True if the
    thought was closed at its limit, False if the model ended it; None if unknown.
    """

    finish: str | None = None
    thought: str | None = None
    tokens: int | None = None
    thought_tokens: int | None = None
    forced: bool | None = None


# Not frozen, as spans are not.
@dataclass(slots=True, eq=False)
class TokenScores:
    """Hold a model's answer: scores of the scored or generated tokens, all arrays [tokens].

    ``tokens``: the ids; for a prompt about bytes, the bytes.  ``logprobs``: natural
    log-probabilities (nats), float32, from a softmax over the true vocabulary in float32.
    ``ranks``: how many vocabulary entries have a strictly greater logit; -1 - r means at least r,
    so -1 (``UNKNOWN``) is no information, and -2 (``NOT_FIRST``) is not 0.

    ``value``: the number of a prompt without tokens: a loss in nats per token, or a cosine.
    ``text``: the generated text, if the server does not list its tokens.  ``at_most``: True if
    ``logprobs`` are upper bounds, as the true ones are not given.  ``missing``: why there is no
    answer (:meth:`unanswered`).  ``ended``: how a generation ended.  ``exchange``: request and
    response of a decision endpoint (``extensions/endpoints``), JSON.
    """

    tokens: Ids
    logprobs: npt.NDArray[np.float32]
    ranks: Ids
    _: KW_ONLY
    value: float | None = None
    text: str | None = None
    at_most: bool = False
    missing: str | None = None
    ended: Ended | None = None
    exchange: str | None = None

    @classmethod
    def unanswered(cls, reason: str, tokens: npt.ArrayLike = ()) -> TokenScores:
        """Return an answer of NaN with this ``reason``, so that no number can be computed from it."""
        count = len(np.atleast_1d(np.asarray(tokens)))
        scores = cls.of(tokens, np.full(count, np.nan), np.full(count, UNKNOWN))
        return replace(scores, value=math.nan, missing=reason)

    @classmethod
    def of(
        cls, tokens: npt.ArrayLike = (), logprobs: npt.ArrayLike = (), ranks: npt.ArrayLike = ()
    ) -> TokenScores:
        """Return an answer of numbers of any type."""
        return cls(
            np.asarray(tokens, np.int32),
            np.asarray(logprobs, np.float32),
            np.asarray(ranks, np.int32),
        )

    @classmethod
    def joined(cls, parts: Sequence[TokenScores]) -> TokenScores:
        """Join the scores of consecutive tokens; if a part is missing, the whole is."""
        tokens = np.concatenate([part.tokens for part in parts])
        for part in parts:
            if part.missing is not None:
                return cls.unanswered(part.missing, tokens)
        return cls(
            tokens,
            np.concatenate([part.logprobs for part in parts]),
            np.concatenate([part.ranks for part in parts]),
            at_most=any(part.at_most for part in parts),
        )

    def first(self, count: int) -> TokenScores:
        """Return the scores of the first ``count`` tokens."""
        return TokenScores(
            self.tokens[:count],
            self.logprobs[:count],
            self.ranks[:count],
            at_most=self.at_most,
            missing=self.missing,
            ended=self.ended,
        )

    @property
    def is_nan(self) -> bool:
        """Return True if a number of the answer is NaN: then there is no answer."""
        if np.isnan(self.logprobs).any():
            return True
        return self.value is not None and bool(np.isnan(self.value))


_latest: tuple[bytes, Ids | None, hashlib.blake2b] = b"", None, hashlib.blake2b()


def prompt_key(kind: bytes, context: Ids, rest: Ids) -> str:
    """Return 32 hex digits that identify a prompt by its kind, its context and the ``rest``."""
    global _latest
    latest_kind, latest_context, begun = _latest
    # The choices of a request share the context, which is hashed once.
    if latest_context is not context or latest_kind != kind:
        begun = hashlib.blake2b(kind, digest_size=16)
        begun.update(len(context).to_bytes(8, "little"))
        begun.update(context.astype(_LITTLE, copy=False).tobytes())
        _latest = kind, context, begun
    digest = begun.copy()
    digest.update(rest.astype(_LITTLE, copy=False).tobytes())
    return digest.hexdigest()


Prompt = Span | Mass | Generation | MaskedLoss | Cosine | Blanks | Rendition | SetSpan | Decision
"""All kinds have a ``key`` (32 hex digits) and ``inputs`` (a number of tokens)."""

CAUSAL_KINDS: frozenset[type] = frozenset(
    {Span, Mass, Generation, Sampling, MaskedLoss, Cosine, SetSpan}
)
"""The prompts that a causal language model ``supports``."""

KINDS: frozenset[type] = CAUSAL_KINDS | {Blanks, Rendition, Decision}
"""All prompts, which fake models support."""

Answers = Iterator[tuple[int, TokenScores]]
"""(index of a prompt, its answer), as answers become available."""
