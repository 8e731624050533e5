"""All questions a model can be asked and the answer type (one base with key/inputs/gold)."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from choicewise.errors import ModelError
from choicewise.thoughts import Cuttable, cuttable, split

Ids = npt.NDArray[np.int32]  # token ids, shape [tokens]
_LITTLE = np.dtype("<i4")
UNKNOWN, NOT_FIRST = (
    -1,
    -2,
)  # ranks of tokens of which nothing is known, or only that another token is likelier

EOS, STOP, LENGTH, FILTERED = "eos", "stop", "length", "filtered"
"""Why a generation ended: by the model's own token, before a stop, at its limit, or because a filter withheld it."""


@dataclass(frozen=True, slots=True, eq=False)
class Blanks:
    """Score tokens of ``text`` one by one: log P(text[place] | the text with a stretch hidden), one pass for each.

    At ``places[j]`` the tokens from there to ``ends[j]`` (exclusive) are replaced by ``mask``; all others are visible,
    those after it as well.  ``text`` holds what encloses it.  With ends one after the places that is the
    pseudo-log-likelihood (Salazar et al. 2020).  ``gold`` as in :class:`~choicewise.questions.Span`.
    """

    text: Ids
    places: Ids
    ends: Ids
    mask: int
    gold: bool | None = None

    @property
    def continuation(self) -> Ids:
        """The scored tokens."""
        return self.text[self.places]

    @property
    def key(self) -> str:
        """32 hex digits: the same text with the same tokens hidden in the same way has the same key."""
        rest = np.concatenate([[self.mask], self.places, self.ends]).astype(np.int32)
        return prompt_key(b"blanks", self.text, rest)

    @property
    def inputs(self) -> int:
        """How many tokens are inputs, over all passes."""
        return len(self.text) * len(self.places)

    def rows(self) -> npt.NDArray[np.int32]:
        """The text of every pass, int32 [places, tokens]."""
        rows = np.tile(self.text, (len(self.places), 1))
        columns = np.arange(len(self.text))
        rows[(columns >= self.places[:, None]) & (columns < self.ends[:, None])] = self.mask
        return rows


@dataclass(frozen=True, slots=True, eq=False)
class Cosine:
    """The cosine of the last hidden states of ``left`` and ``right`` at their last tokens.

    Each is a sequence of its own, of at least one token.  ``gold`` as in :class:`~choicewise.questions.Span`.
    """

    left: Ids
    right: Ids
    gold: bool | None = None

    @property
    def key(self) -> str:
        """32 hex digits: the same two texts have the same key."""
        return prompt_key(b"cosine", self.left, self.right)

    @property
    def inputs(self) -> int:
        """How many tokens are inputs."""
        return len(self.left) + len(self.right)

    @staticmethod
    def answer(cosine: float) -> TokenScores:
        """The answer that holds ``cosine`` and no tokens."""
        return replace(TokenScores.of(), value=cosine)


@dataclass(frozen=True, slots=True)
class Sampling:
    """Draw every token from the model's own distribution, at temperature 1.

    ``stream`` is the seed of the random numbers, so that the same question always has the same answer.
    """

    stream: bytes

    @classmethod
    def of(cls, seed: int, item: str, number: int) -> Sampling:
        """The stream of sample ``number`` of ``item``, which depends on no other question."""
        return cls(
            hashlib.sha256(f"{seed}|{number}|{item}".encode(errors="surrogatepass")).digest()
        )

    def draw(self, weights: npt.NDArray[np.generic], position: int) -> int:
        """The token at ``position``: an index of ``weights``, each as probable as its share of their sum.

        A hash of stream and position gives a share of the sum; the first index whose cumulative sum exceeds it.
        """
        sums = np.cumsum(weights, dtype=np.float64)
        return min(
            int(np.searchsorted(sums, self.share(position) * sums[-1], side="right")), len(sums) - 1
        )

    def share(self, position: int) -> float:
        """The share of the sum at which the token at ``position`` is drawn, from 0 to 1 exclusive."""
        digest = hashlib.blake2b(
            self.stream + position.to_bytes(8, "little"), digest_size=8
        ).digest()
        return (int.from_bytes(digest, "little") >> 11) / 2**53


@dataclass(frozen=True, slots=True, eq=False)
class Generation:
    """Generate at most ``limit`` tokens after ``context``: greedily, or as ``sampling`` says.

    A greedy generation ends after the first token that ends a sequence and includes it; a sampled one ends before it.
    Both end before the first token with which their bytes contain one of ``stops``, so both may be empty; with
    ``keep_stop`` that token belongs to them.
    ``right`` and ``wrong`` are the tokens of a right and a wrong answer; only the oracle fakes read them.

    ``opened`` is what begins the thought in which the context ends, empty for none: then stops count after the thought
    alone (:mod:`choicewise.thoughts`).  None where nothing that is generated is taken for a thought.  ``marks``: the
    special tokens that begin or end one, with their names.  ``thought`` is the most tokens of a thought, after which
    ``closing`` follows, and then the answer of at most ``limit`` tokens; None where there is one limit for both.  Such
    a generation is asked in parts (:mod:`choicewise.running.observe`), unless a server renders the chat.
    """

    context: Ids
    limit: int
    stops: tuple[bytes, ...] = ()
    sampling: Sampling | None = None
    right: Ids | None = None
    wrong: Ids | None = None
    keep_stop: bool = False
    opened: str | None = None
    marks: Mapping[int, bytes] = field(default_factory=dict)
    thought: int | None = None
    closing: Ids | None = None

    @property
    def key(self) -> str:
        """32 hex digits: the same tokens, limits, stops and random stream have the same key."""
        if self.sampling is None and not self.stops and self.thought is None:
            return prompt_key(b"generate", self.context, np.asarray([self.limit], dtype=np.int32))
        stream = b"" if self.sampling is None else self.sampling.stream
        rest = self.limit.to_bytes(8, "little") + stream + b"\0".join(self.stops)
        kind = (b"generate until" if self.sampling is None else b"chain") + (
            b" kept" if self.keep_stop else b""
        )
        if self.thought is not None:
            kind += b" thought"
            closing = b"" if self.closing is None else self.closing.astype(_LITTLE).tobytes()
            rest = (
                self.thought.to_bytes(8, "little")
                + len(closing).to_bytes(8, "little")
                + closing
                + rest
            )
        return prompt_key(kind, self.context, np.frombuffer(rest, dtype=np.uint8).astype(np.int32))

    @property
    def most(self) -> int:
        """The most tokens that can be generated, or put in to close a thought."""
        if self.thought is None:
            return self.limit
        return self.thought + (0 if self.closing is None else len(self.closing)) + self.limit

    @property
    def inputs(self) -> int:
        """The most tokens that can be inputs: the context, and all generated ones but the last."""
        return len(self.context) + max(self.most - 1, 0)

    def spelled(self, token: int, token_bytes: Sequence[bytes]) -> bytes:
        """The bytes of a token, or its name where it is one of the ``marks``; none beyond the tokenizer."""
        return self.marks.get(token) or (token_bytes[token] if token < len(token_bytes) else b"")

    def text(self, tokens: Sequence[int], token_bytes: Sequence[bytes]) -> bytes:
        """Return the bytes of ``tokens``, with the names of ``marks``."""
        return b"".join(self.spelled(token, token_bytes) for token in tokens)

    def ends_in(self, text: bytes) -> bool:
        """Whether ``text`` contains a stop that counts."""
        if self.opened is None or not self.stops:
            return any(stop in text for stop in self.stops)
        start = split(text, self.opened).start
        return start is not None and any(text.find(stop, start) >= 0 for stop in self.stops)

    def before_stop(self, tokens: Sequence[int], token_bytes: Sequence[bytes]) -> int:
        """How many of ``tokens`` come before the first with which their bytes contain a stop; all where none does.

        That token counts with ``keep_stop``.
        """
        text = b""
        for count, token in enumerate(tokens if self.stops else ()):
            text += self.spelled(token, token_bytes)
            if self.ends_in(text):
                return count + self.keep_stop
        return len(tokens)

    def cuttable(
        self, tokens: Sequence[int], token_bytes: Sequence[bytes], closing: bytes, *, forced: bool
    ) -> Cuttable | None:
        """Where the first thought stands in the generated ``tokens``; None where none is whole.

        ``forced``: whether it was closed at its limit.
        """
        pieces = [self.spelled(token, token_bytes) for token in tokens]
        return cuttable(pieces, self.opened or "", closing, forced=forced)

    def stopped(self, tokens: Sequence[int], token_bytes: Sequence[bytes]) -> bool:
        """Whether the bytes of ``tokens`` contain a stop."""
        return self.before_stop(tokens, token_bytes) < len(tokens)

    def finish(
        self, tokens: Sequence[int], token_bytes: Sequence[bytes], ends: Collection[int]
    ) -> str:
        """Why these ``tokens``, all that were generated, are the last: ``EOS``, ``STOP`` or ``LENGTH``.

        ``ends``: the tokens that end a sequence.  A sampled generation contains neither its end nor its stop, so that
        it is said to have stopped where it could.
        """
        if len(tokens) and int(tokens[-1]) in ends:
            return EOS
        if len(tokens) < self.limit or self.ends_in(
            b"".join(self.spelled(int(each), token_bytes) for each in tokens)
        ):
            return STOP if self.stops else EOS
        return LENGTH


@dataclass(
    eq=False
)  # not frozen, which makes a span take twice as long to make: there are millions
class Span:
    """Score ``continuation`` given ``context``: log P(continuation[j] | context, continuation[:j]) for every j.

    Both are at least one token long: a first token has no log-probability, so an empty context text arrives here as
    the model's prefix token (BOS, or EOS where there is none).  Choices of one request share the context array.
    ``gold`` says whether this is a right choice; only the oracle fakes read it.  ``ranked``: how many tokens are
    likelier matters; a model that has to ask somebody else for that does so for these spans alone.
    """

    context: Ids
    continuation: Ids
    gold: bool | None = None
    ranked: bool = False

    @property
    def key(self) -> str:
        """32 hex digits: the same context and continuation have the same key, whichever protocol asks."""
        key: str | None = self.__dict__.get("_key")
        if key is None:  # cached_property takes a lock, and there are millions of spans
            key = self.__dict__["_key"] = prompt_key(b"span", self.context, self.continuation)
        return key

    @property
    def inputs(self) -> int:
        """How many tokens are inputs: all but the last."""
        return len(self.context) + len(self.continuation) - 1


@dataclass(frozen=True, slots=True, eq=False)
class SetSpan:
    """Score ``continuation`` after a ``context`` that holds options in no order (McIlroy-Young et al. 2024).

    The tokens of option k are ``context[edges[k]:edges[k + 1]]``.  No option sees another; all begin at one position,
    and what follows the last sees everything before it and begins at the position after the longest.  ``gold`` as in
    :class:`~choicewise.questions.Span`.
    """

    context: Ids
    continuation: Ids
    edges: Ids
    gold: bool | None = None

    @property
    def key(self) -> str:
        """32 hex digits: the same continuation of the same context with the same options has the same key."""
        rest = np.concatenate([[len(self.edges)], self.edges, self.continuation])
        return prompt_key(b"set", self.context, rest.astype(np.int32))

    @property
    def inputs(self) -> int:
        """How many tokens are inputs: all but the last."""
        return len(self.context) + len(self.continuation) - 1

    @property
    def options(self) -> list[Ids]:
        """The tokens of each option."""
        return [self.context[start:end] for start, end in pairwise(self.edges.tolist())]

    def in_order(self, order: Sequence[int]) -> SetSpan:
        """The same with the options in another ``order``."""
        options = [self.options[option] for option in order]
        edges = self.edges[0] + np.cumsum([0, *map(len, options)])
        context = np.concatenate(
            [self.context[: self.edges[0]], *options, self.context[self.edges[-1] :]]
        )
        return replace(self, context=context, edges=edges.astype(np.int32))


@dataclass(frozen=True, slots=True, eq=False)
class MaskedLoss:
    """The model's own loss on ``span``, with the labels of all tokens but the continuation's set to -100.

    That is the mean negative log-likelihood per token of the continuation, in nats.  The loss needs the last token as
    an input, too, so ``span`` has at most as many tokens as the model's window.
    """

    span: Span

    @property
    def key(self) -> str:
        """32 hex digits: the same tokens masked the same way have the same key."""
        return prompt_key(b"masked", self.span.context, self.span.continuation)

    @property
    def inputs(self) -> int:
        """How many tokens are inputs."""
        return self.span.inputs + 1

    def answer(self, loss: float) -> TokenScores:
        """The answer that gives every token of the continuation the mean that ``loss`` is; ranks are unknown."""
        tokens = self.span.continuation
        logprobs = np.full(len(tokens), -loss, dtype=np.float32)
        return TokenScores(tokens, logprobs, np.full(len(tokens), -1, dtype=np.int32), loss)


class TokenSet:
    """A set of tokens, ``ids`` ascending; every :class:`Mass` of the same set shares one."""

    def __init__(self, ids: npt.ArrayLike) -> None:
        self.ids: Ids = np.unique(np.asarray(ids, dtype=np.int32))

    @cached_property
    def digest(self) -> bytes:
        """16 bytes: the same tokens have the same digest."""
        return hashlib.blake2b(self.ids.astype("<i4").tobytes(), digest_size=16).digest()

    def known(self, vocabulary: int) -> Ids:
        """Those that a model of so many tokens knows; others have no probability.  ModelError where it knows none."""
        if not len(self.ids) or self.ids[0] >= vocabulary:
            raise ModelError(
                f"a set of tokens holds none of the {vocabulary} that the model knows; "
                "its tokenizer belongs to another model"
            )
        return self.ids[: np.searchsorted(self.ids, vocabulary)]


@dataclass(frozen=True, slots=True, eq=False)
class Mass:
    """The total probability of ``members`` as the next token: log of the sum of P(v | context) over v in members.

    The answer has one entry: the log of that sum, and the likeliest member with its rank.  Where ``context`` is
    computed anyway, it costs no further input token.  ``gold`` as in :class:`~choicewise.questions.Span`.
    """

    context: Ids
    members: TokenSet
    gold: bool | None = None

    @property
    def inputs(self) -> int:
        """How many tokens are inputs."""
        return len(self.context)

    @property
    def key(self) -> str:
        """32 hex digits: the same set after the same tokens has the same key."""
        return prompt_key(b"mass", self.context, np.frombuffer(self.members.digest, dtype="<i4"))


@dataclass(frozen=True, slots=True, eq=False)
class Rendition:
    """Score ``continuation`` from its first token on, after what the encoder makes of ``source``.

    log P(continuation[j] | source, start, continuation[:j]), where ``start`` is the token with which the model's
    decoder starts every text.  ``gold`` as in :class:`~choicewise.questions.Span`.
    """

    source: Ids
    continuation: Ids
    gold: bool | None = None

    @property
    def key(self) -> str:
        """32 hex digits: the same continuation of the same source has the same key."""
        return prompt_key(b"rendition", self.source, self.continuation)

    @property
    def inputs(self) -> int:
        """How many tokens are inputs, of encoder and decoder together: of the continuation all but the last."""
        return len(self.source) + len(self.continuation)


@dataclass(frozen=True, slots=True, eq=False)
class ThoughtCut:
    """Where a thought is cut, after ``share`` of its tokens, rounded up, and the text ``closing`` that ends it there.

    ``unbroken``: the tokens of what follows where the thought ends in the line break with which ``closing`` begins.
    """

    share: float
    closing: bytes
    unbroken: Ids

    def kept(self, tokens: int) -> int:
        """How many of so many ``tokens`` of a thought come before the cut."""
        return math.ceil(self.share * tokens)


@dataclass(frozen=True, slots=True, eq=False)
class Conclusion:
    """Score ``span.continuation`` after the text of ``generation`` followed by ``span.context``.

    ``cut``: after a share of the thought in that text alone, and ``span.context`` closes it.
    Its tokens are known only once the text is generated, its key is known before: so a block is prepared without a
    model, and an interrupted run knows which answers it has.
    """

    generation: Generation
    span: Span
    cut: ThoughtCut | None = None

    @property
    def key(self) -> str:
        """32 hex digits: the same span after the same generation, cut at the same place, has the same key."""
        keys = (bytes.fromhex(question.key) for question in (self.generation, self.span))
        own, span = (np.frombuffer(key, dtype=np.uint8).astype(np.int32) for key in keys)
        if self.cut is None:
            return prompt_key(b"conclusion", own, span)
        place = np.asarray([round(1e6 * self.cut.share)], dtype=np.int32)
        return prompt_key(
            b"conclusion along", own, np.concatenate([span, place, self.cut.unbroken])
        )

    @property
    def inputs(self) -> int:
        """The most tokens that can be inputs."""
        return len(self.generation.context) + self.generation.most + self.span.inputs

    @property
    def longest(self) -> int:
        """The most generated tokens that it can come after."""
        return self.generation.most if self.cut is None else self.cut.kept(self.generation.most)

    def after(self, generated: Ids, unbroken: bool = False) -> Span:
        """The span to score once it is known to come after ``generated``.

        ``unbroken``: whether these end in the line break with which the closing of a thought begins.
        """
        closing = self.cut.unbroken if unbroken and self.cut is not None else self.span.context
        context = np.concatenate([self.generation.context, generated, closing])
        return Span(context.astype(np.int32), self.span.continuation, self.span.gold)


@dataclass(frozen=True, slots=True)
class TypedQuestion:
    """A question about a state, as a decision endpoint takes it.

    ``kind``: ``choice`` (one of several options), ``noul`` (yes or no) or ``score`` (levels in their order).
    ``state``: a JSON text, in quotes where the state is a string; the order of its keys is part of the question.
    ``names``: the options as they are called, the levels' texts, or ``yes`` and ``no``.  ``descriptions``: of each a
    JSON text, None where it has none.  ``beside``: the other questions of the request, about the same state.
    """

    kind: str
    state: str
    instructions: str
    names: tuple[str, ...]
    descriptions: tuple[str | None, ...]
    beside: tuple[TypedQuestion, ...] = ()

    @property
    def parts(self) -> list[str]:
        """All that it is, as texts."""
        own = [self.kind, self.state, self.instructions, *self.names, *map(repr, self.descriptions)]
        return [*own, *(part for each in self.beside for part in each.parts)]


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """The probability that a decision endpoint gives to option ``option`` of ``question``.

    Its answer has one entry: the option's place as token, the log of its probability among the options, its rank.
    ``gold`` as in :class:`~choicewise.questions.Span`.
    """

    question: TypedQuestion
    option: int
    gold: bool | None = None

    inputs = 0
    """Input tokens: the endpoint alone knows."""

    @property
    def key(self) -> str:
        """32 hex digits: the same option of the same question has the same key."""
        text = "\0".join(f"{len(part)}:{part}" for part in self.question.parts).encode(
            errors="surrogatepass"
        )
        return prompt_key(
            b"decision",
            np.frombuffer(text, np.uint8).astype(np.int32),
            np.asarray([self.option], np.int32),
        )


class Ended(NamedTuple):
    """How a generation ended.

    ``finish``: one of :data:`EOS`, :data:`STOP`, :data:`LENGTH`, :data:`FILTERED`; None where nobody says.
    ``thought``: the thought that a server gives apart from the text.  ``tokens`` and ``thought_tokens``: how many a
    server counts, where it names none.  ``forced``: whether the thought was closed at its limit, and not by the model;
    None where that is not known.
    """

    finish: str | None = None
    thought: str | None = None
    tokens: int | None = None
    thought_tokens: int | None = None
    forced: bool | None = None


@dataclass(slots=True, eq=False)  # not frozen, as spans are not
class TokenScores:
    """What a model says about the scored (or generated) tokens; all arrays have shape [tokens].

    ``logprobs``: natural log-probabilities (nats), float32, from a softmax over the true vocabulary in float32.
    ``ranks``: how many vocabulary entries have a strictly greater logit; 0 everywhere means greedy decoding agrees,
    ``-1 - r`` means at least ``r``, so -1 (``UNKNOWN``) that nothing is known, -2 (``NOT_FIRST``) that it is not 0.
    ``tokens``: the scored or generated ids; for a question about bytes, the bytes.
    ``value``: the one number that answers a question without tokens: a loss in nats per token, or a cosine.
    ``text``: what was generated, where whoever generated it names no tokens.
    ``at_most``: whether ``logprobs`` are upper bounds, because the true ones are not given.
    ``missing``: why there is no answer (:meth:`unanswered`).
    ``ended``: how a generation ended; None where nobody says.
    ``exchange``: what was sent to a decision endpoint and what it said (``extensions/endpoints``), JSON.
    """

    tokens: Ids
    logprobs: npt.NDArray[np.float32]
    ranks: Ids
    value: float | None = None
    text: str | None = None
    at_most: bool = False
    missing: str | None = None
    ended: Ended | None = None
    exchange: str | None = None

    @classmethod
    def unanswered(cls, reason: str, tokens: npt.ArrayLike = ()) -> TokenScores:
        """No answer, for this ``reason``: every number is NaN, so that nothing can be computed from it."""
        count = len(np.atleast_1d(np.asarray(tokens)))
        scores = cls.of(tokens, np.full(count, np.nan), np.full(count, -1))
        return replace(scores, value=math.nan, missing=reason)

    @classmethod
    def of(
        cls, tokens: npt.ArrayLike = (), logprobs: npt.ArrayLike = (), ranks: npt.ArrayLike = ()
    ) -> TokenScores:
        """The same from numbers of any kind."""
        return cls(
            np.asarray(tokens, np.int32),
            np.asarray(logprobs, np.float32),
            np.asarray(ranks, np.int32),
        )

    @classmethod
    def joined(cls, parts: Sequence[TokenScores]) -> TokenScores:
        """The scores of consecutive tokens, put together; one part that is missing makes the whole missing."""
        missing = next((part.missing for part in parts if part.missing is not None), None)
        tokens = np.concatenate([part.tokens for part in parts])
        if missing is not None:
            return cls.unanswered(missing, tokens)
        return cls(
            tokens,
            np.concatenate([part.logprobs for part in parts]),
            np.concatenate([part.ranks for part in parts]),
            at_most=any(part.at_most for part in parts),
        )

    def first(self, count: int) -> TokenScores:
        """The scores of the first ``count`` tokens."""
        shortened = TokenScores(self.tokens[:count], self.logprobs[:count], self.ranks[:count])
        return replace(shortened, at_most=self.at_most, missing=self.missing, ended=self.ended)

    @property
    def is_nan(self) -> bool:
        """Whether any number of the answer is NaN: the question has no answer then."""
        return bool(np.isnan(self.logprobs).any()) or (
            self.value is not None and bool(np.isnan(self.value))
        )


_latest: tuple[bytes, Ids | None, hashlib.blake2b] = b"", None, hashlib.blake2b()
"""The context that was hashed last: the choices of a question share it."""


def prompt_key(kind: bytes, context: Ids, rest: Ids) -> str:
    """32 hex digits that identify a question by its kind, its context and the ``rest`` that it is about."""
    global _latest
    of_kind, of_context, begun = _latest
    if of_context is not context or of_kind != kind:
        begun = hashlib.blake2b(kind, digest_size=16)
        begun.update(len(context).to_bytes(8, "little"))
        begun.update(context.astype(_LITTLE, copy=False).tobytes())
        _latest = kind, context, begun
    digest = begun.copy()
    digest.update(rest.astype(_LITTLE, copy=False).tobytes())
    return digest.hexdigest()


Prompt = Span | Mass | Generation | MaskedLoss | Cosine | Blanks | Rendition | SetSpan | Decision
"""Every kind has a ``key`` (32 hex digits, the same for the same question) and ``inputs`` (a number of tokens)."""

CAUSAL_KINDS: frozenset[type] = frozenset(
    {Span, Mass, Generation, Sampling, MaskedLoss, Cosine, SetSpan}
)
"""What a causal language model ``supports``."""

KINDS: frozenset[type] = CAUSAL_KINDS | {
    Blanks,
    Rendition,
    Decision,
}  # what a model ``supports`` that answers everything

Answers = Iterator[tuple[int, TokenScores]]
"""(index of a question among those asked, its answer), as answers become available."""
