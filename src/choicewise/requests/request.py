"""Hold the texts of an item, fit them into a window, and collect the rows and prompts of a block."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple
from typing import Protocol as Structural

import numpy as np

from choicewise.data.items import Item
from choicewise.errors import ModelError, ProtocolError
from choicewise.protocols.protocol import APART, COUNTING, Protocol
from choicewise.protocols.readings import READINGS
from choicewise.questions import (
    Blanks,
    Conclusion,
    Cosine,
    Decision,
    Generation,
    Ids,
    MaskedLoss,
    Rendition,
    Span,
)
from choicewise.records import RequestRow, SpanRow
from choicewise.requests.span_rows import SpanRows
from choicewise.thoughts import left_open
from choicewise.tokens.boundary import ChoicePrompt
from choicewise.tokens.byte_coverings import TokenPrompt
from choicewise.tokens.encode import Encodings
from choicewise.tokens.tokenizer import Tokenizer

if TYPE_CHECKING:
    from choicewise.tokens.chat_template import Arguments, ChatTemplate


@dataclass(frozen=True, slots=True)
class View:
    """One version of a query, and the continuations after it, one per choice in the order of the
    item.

    ``content``: whether it shows the item; else it shows a text without content.
    """

    query: str
    continuations: tuple[str, ...]
    content: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Chat:
    """Make messages of the texts of one request, and a text of these.

    ``system``: the system text, with the header.  ``turns``: the texts of user and assistant of
    every shot, or None if the shots are part of the message of the query.  ``begins``: whether a
    proposal is what the assistant has begun to say, and else a part of the user's message.
    ``template``: the model's; None for no model.  ``arguments``: the named arguments of the
    template.  ``close``: whether a thought that it leaves open is closed by its own bytes.

    The messages are those of ``fewshot_context`` of lm-evaluation-harness, with
    ``fewshot_as_multiturn`` or without (lm_eval/api/task.py at 4e7e0d4).
    """

    system: str
    turns: tuple[tuple[str, str], ...] | None
    begins: bool
    template: ChatTemplate | None
    arguments: Arguments = field(default_factory=dict, hash=False)
    close: bool = False

    def text(self, shots: Sequence[str], separator: str, query: str, proposal: str) -> str:
        """Return the text that the model continues.

        ModelError without a template, or if that fails.

        ``shots``: the shots that fit, as texts; as many turns take their place.
        """
        if self.template is None:
            raise ModelError("a chat needs a model's chat template; name the model")
        from choicewise.tokens.chat_template import Message

        messages = []
        if self.system:
            messages.append(Message("system", self.system))
        # The harness puts shots without turns into the one message of the user.
        last = query
        if not self.begins:
            last += proposal
        if self.turns is None:
            last = separator.join([*shots, last])
        else:
            for user, assistant in self.turns[: len(shots)]:
                messages += [Message("user", user), Message("assistant", assistant)]
        messages.append(Message("user", last))
        # A turn of the assistant begins without the space that joins a proposal to a query.
        if self.begins and proposal:
            messages.append(Message("assistant", proposal.lstrip()))
        text = self.template.render(messages, self.arguments)
        if self.close and left_open(text):
            text += self.template.closing(self.arguments)
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The texts of one item under one protocol.

    ``options`` are the choices as they are shown, after quirk and strip; ``continuations`` the
    texts that are scored, one per choice.  If a reading scores several texts of a choice, ``parts``
    holds them and ``continuations`` has them one a line.  ``proposals`` follow the query, one per
    choice; empty if all choices share the context.  ``views`` are the versions of the query after
    the first, which is ``query``.  ``chat``: makes a chat of these texts, None for plain text.
    ``order``: for every label the choice that it counts for; empty for the order of the choices.
    ``batched``: whether the other questions of its case are in one request with it.  ``listed``:
    the lines of the options, if the query shows them as a set, and ``after`` the text that follows
    them.
    """

    item: Item
    header: str
    shots: tuple[str, ...]
    query: str
    separator: str
    continuations: tuple[str, ...]
    options: tuple[str, ...]
    gold: tuple[int, ...]
    parts: tuple[tuple[str, ...], ...]
    proposals: tuple[str, ...] = ()
    views: tuple[View, ...] = ()
    chat: Chat | None = None
    listed: tuple[str, ...] = ()
    after: str = ""
    order: tuple[int, ...] = ()
    batched: bool = False

    def text(self, shots: int | None = None) -> str:
        """Return header, the first ``shots`` shots (None for all) and query, joined by the
        separator.
        """
        return self.header + self.separator.join([*self.shots[:shots], self.query])

    def context(self, shots: int | None = None, proposal: str = "") -> str:
        """Return the text before a choice, plain or as a chat.

        ModelError if the chat template fails.
        """
        if self.chat is None:
            return self.text(shots) + proposal
        return self.chat.text(self.shots[:shots], self.separator, self.query, proposal)


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedRequest:
    """A request with a context that fits, or the reason why no context does (``missing``).

    ``shots`` are part of ``context``, ``shots_dropped`` are not.  ``cut_end`` says that the context
    still has too many tokens and the protocol has its end cut; the reading, which holds the tokens,
    does that and counts them.
    """

    request: Request
    context: str
    shots: int
    shots_dropped: int = 0
    cut_end: bool = False
    missing: str | None = None

    @property
    def item(self) -> Item:
        """Return the item of the request."""
        return self.request.item


def joined(system: str | None, header: str, separator: str) -> str:
    """Join the system text and the header, with ``separator`` between them unless there is white
    space.
    """
    if not system or not header:
        return system or header
    if system[-1].isspace() or header[0].isspace():
        return system + header
    return system + separator + header


class Slot(NamedTuple):
    """A choice of an item by its index, and one of the things that are scored of it, counted from
    0.
    """

    choice: int
    part: int = 0


_NO_CHOICE = ChoicePrompt(None)
"""The flags and corrections of a prompt that no boundary policy made: none."""


class Answerer(Structural):
    """The part of a model that preparing needs: its tokenizer and its window (input tokens)."""

    @property
    def window(self) -> int:
        """Return the largest number of input tokens."""

    @property
    def tokenizer(self) -> Tokenizer:
        """Return the tokenizer of the model."""


BlockPrompt = TokenPrompt | Conclusion
"""A prompt of a block: a conclusion becomes a span when its generation is there."""


@dataclass(kw_only=True)
class PreparedBlock:
    """Rows of the run folder's ``requests`` and ``spans`` tables, and the unique prompts for the
    model by key.

    ``inputs``: tokens if every choice of every protocol were a sequence of its own, as other tools
    send them.  ``deepest``: the tokens of the longest prompt.
    """

    requests: list[RequestRow] = field(default_factory=list)
    spans: SpanRows = field(default_factory=SpanRows)
    wanted: dict[str, BlockPrompt] = field(default_factory=dict)
    inputs: int = 0
    deepest: int = 0
    _encodings: dict[tuple[str, bool], Encodings] = field(default_factory=dict)

    def encodings(self, tokenizer: Tokenizer, bos: str, enclosed: bool = False) -> Encodings:
        """Return the tokens of the block's texts so far
        (:class:`~choicewise.tokens.encode.Encodings`).
        """
        key = bos, enclosed
        if key not in self._encodings:
            encodings = Encodings(tokenizer, bos, enclosed)
            # Of a tokenizer that adds nothing, texts have the same tokens either way.
            if not encodings.adds_tokens:
                encodings = self._encodings.setdefault(("none", enclosed), encodings)
            self._encodings[key] = encodings
        return self._encodings[key]

    def forget_texts(self) -> None:
        """Free what only preparing needs."""
        self._encodings.clear()

    def forget_joined(self) -> None:
        """Free the tokens of contexts with their continuations; spans have those of contexts."""
        for encodings in self._encodings.values():
            encodings.forget_joined()

    def refuse(self, protocol: Protocol, item: Item, reason: str) -> None:
        """Add the row of an item that has no request under a protocol, and why."""
        row = RequestRow(protocol.prompt_digest, item.id, item.subject, item.gold, missing=reason)
        self.requests.append(row)


class PromptRows:
    """Add the rows and prompts of one protocol to ``block``.

    ``limit``: the most input tokens, the model's window or the protocol's own limit if that is
    lower.  ``encodings``: the tokens of the texts, which all protocols of the block share.
    """

    def __init__(self, block: PreparedBlock, protocol: Protocol, model: Answerer) -> None:
        self.block = block
        self.protocol = protocol
        self.limit = model.window
        if protocol.limit is not None:
            self.limit = min(protocol.limit, model.window)
        enclosed = READINGS[protocol.reading].enclosed
        self.encodings = block.encodings(model.tokenizer, protocol.bos, enclosed)

    def add_request(self, fitted: FittedRequest, tokens_dropped: int = 0) -> None:
        """Add the row of a request; ``tokens_dropped``: the greatest number over its choices."""
        # The row has the texts as sent; which tokens they were follows from the spans.
        item = fitted.item
        row = RequestRow(
            self.protocol.prompt_digest,
            item.id,
            item.subject,
            item.gold,
            fitted.context,
            fitted.request.continuations,
            fitted.request.options,
            fitted.shots,
            fitted.shots_dropped,
            tokens_dropped,
        )
        self.block.requests.append(row)

    def add_span(
        self,
        item: str,
        slot: Slot,
        prompt: BlockPrompt | None,
        *,
        context: str | None = None,
        continuation: str = "",
        choice: ChoicePrompt = _NO_CHOICE,
    ) -> None:
        """Add ``prompt``, and the row that says what its answer is about.

        ``choice``: flags, corrections, tokens dropped, why missing.
        """
        rows = self.block.spans.add_group([self.span_row(slot, prompt, continuation, choice)])
        self.block.spans.use(rows, self.protocol.prompt_digest, item, None, context)

    def span_row(
        self,
        slot: Slot,
        prompt: BlockPrompt | None,
        continuation: str,
        choice: ChoicePrompt = _NO_CHOICE,
    ) -> SpanRow:
        """Add ``prompt``, and return its row without the columns that requests do not share."""
        tokens = 0
        key = None
        if prompt is not None:
            tokens = _context_tokens(prompt)
            key = self._want(prompt)
            self.block.inputs += prompt.inputs
        before = None
        if choice.before is not None:
            before = self._want(choice.before)
        after = None
        if choice.after is not None:
            after = self._want(choice.after)
        # By position: with names a row takes six times as long, and there are millions.
        return SpanRow(
            "",
            "",
            slot.choice,
            slot.part,
            None,
            None,
            continuation,
            key,
            tokens,
            choice.tokens_dropped,
            before,
            after,
            choice.merged,
            choice.noncanonical,
            choice.lossy,
            choice.unknown,
            choice.bos,
            choice.missing,
        )

    def _want(self, prompt: BlockPrompt) -> str:
        """Add ``prompt`` to those of the block, once by its key, and return that."""
        key = prompt.key
        if key not in self.block.wanted:
            self.block.wanted[key] = prompt
            self.block.deepest = max(self.block.deepest, prompt.inputs)
        return key


def fit_requests(
    rows: PromptRows, requests: Sequence[Request], reserve: Sequence[int]
) -> list[FittedRequest]:
    """Fit every request by the protocol's policy (axis ``fit``).

    ``reserve[i]`` input tokens must stay free after the context of request ``i``: the longest
    continuation minus its last token, or the tokens to generate.

    Everything is counted once in one batch, and only what is too long again, with one shot fewer
    each time.  ``cut-start`` leaves the context unchanged: the oldest tokens are dropped, and
    counted, once the texts are tokens.
    """
    limit = rows.limit
    fitted = []
    uncounted = []
    for index, (request, tokens) in enumerate(zip(requests, reserve, strict=True)):
        whole = _whole(request)
        if tokens >= limit:
            missing = f"too long: the answer alone takes {tokens} of {limit} tokens"
            whole = replace(whole, missing=missing)
        elif rows.protocol.fit != "cut-start":
            uncounted.append(index)
        fitted.append(whole)
    while uncounted:
        # One call for all: encoding a text by itself takes several times as long.
        contexts = rows.encodings.contexts([fitted[index].context for index in uncounted])
        still_long = []
        for index, context in zip(uncounted, contexts, strict=True):
            if len(context) <= limit - reserve[index]:
                continue
            shorter = _shortened(rows, fitted[index], len(context), reserve[index])
            if shorter.shots < fitted[index].shots:
                still_long.append(index)
            fitted[index] = shorter
        uncounted = still_long
    return fitted


def _whole(request: Request) -> FittedRequest:
    return FittedRequest(request=request, context=request.context(), shots=len(request.shots))


def _shortened(rows: PromptRows, fitted: FittedRequest, tokens: int, reserve: int) -> FittedRequest:
    """Drop a shot of a request whose context of so many ``tokens`` is too long, or say what else
    becomes of it.
    """
    request = fitted.request
    policy = rows.protocol.fit
    drops_shots = policy.startswith("drop-last-shot")
    if drops_shots and fitted.shots:
        shots = fitted.shots - 1
        return FittedRequest(
            request=request,
            context=request.context(shots),
            shots=shots,
            shots_dropped=len(request.shots) - shots,
        )
    if policy == "drop-last-shot-then-cut-end":
        return replace(fitted, cut_end=True)
    without = ""
    if drops_shots:
        without = " without any shot"
    room = rows.limit - reserve
    reason = f"{tokens} tokens{without}, {room} fit ({rows.limit} minus {reserve} for the answer)"
    # The whole text, for whoever reads why it does not fit.
    return replace(_whole(request), missing=f"too long: {reason}")


# Not frozen, as spans are not.
@dataclass(slots=True, eq=False, kw_only=True)
class ChoiceGroup:
    """Continuations of one context, and the ``slots`` that they fill.

    ``differs``: whether the context is another than the request's.  ``gold``: the continuations
    that an oracle would prefer.  ``spaced``: whether it is a null context and holds the space that
    they begin with in the request.
    """

    context: str
    differs: bool
    continuations: tuple[str, ...]
    slots: tuple[Slot, ...]
    gold: tuple[int, ...]
    spaced: bool = False

    def after(self, null: str) -> ChoiceGroup:
        """Return the continuations after the context ``null``.

        White space that ends ``null`` is taken off the start of a continuation, so that both sides
        have the same text but for that space (Brown et al. 2020, "Answer: ").  If the context of
        the request ends with white space, too, the continuations stay unchanged.
        """
        texts = self.continuations
        if self.context == self.context.rstrip():
            space = null[len(null.rstrip()) :]
            texts = tuple(text.removeprefix(space) for text in texts)
        return ChoiceGroup(
            context=null,
            differs=False,
            continuations=texts,
            slots=self.slots,
            gold=(),
            spaced=texts != self.continuations,
        )

    @property
    def texts(self) -> Hashable:
        """Return what decides where the choices are located; equal groups share their rows."""
        return self.context, self.continuations, self.slots, self.spaced

    def policy(self, boundary: str) -> str:
        """Return the boundary policy: a continuation that lacks its space has the tokens that it
        has by itself.
        """
        if self.spaced and boundary in COUNTING:
            return APART
        return boundary


@dataclass(eq=False)
class LocatedGroup:
    """Hold a group, and its ``choices`` as they are located.

    ``rows``: where its rows are in the block, None before a request uses them, and ``inputs``
    the input tokens of their prompts.
    """

    group: ChoiceGroup
    choices: list[ChoicePrompt] = field(default_factory=list)
    rows: range | None = None
    inputs: int = 0

    @cached_property
    def longest(self) -> int:
        """Return the input tokens of the longest choice."""
        return max([choice.inputs for choice in self.choices], default=0)

    @cached_property
    def may_differ(self) -> bool:
        """Return whether the choices may score other text than after the request's context.

        Tokens do not reach over the space that a continuation begins with, so few requests must be
        looked at again.
        """
        # A continuation without its space is located alone, so nothing straddles.
        if self.group.spaced:
            return False
        if not all(text[:1].isspace() for text in self.group.continuations):
            return True
        return any(choice.merged for choice in self.choices)


def one_context(request: Request, context: str) -> ChoiceGroup:
    """Return the group of all texts of all choices after ``context``."""
    slots, gold = _slots(tuple(map(len, request.parts)), request.gold)
    return ChoiceGroup(
        context=context,
        differs=False,
        continuations=tuple(chain.from_iterable(request.parts)),
        slots=slots,
        gold=gold,
    )


class Prompter:
    """Make the prompts of a reading from fitted requests; each reading has one."""

    def texts(self, request: Request) -> list[ChoiceGroup]:
        """Return the texts that are sent, before they are fitted into a model's window."""
        return [one_context(request, request.context())]

    def reserve(self, rows: PromptRows, requests: Sequence[Request]) -> list[int]:
        """Return for each request the input tokens that must stay free after its context."""
        return [0] * len(requests)

    def add_prompts(self, rows: PromptRows, fitted: Sequence[FittedRequest]) -> None:
        """Add the prompts and rows of requests that fit."""
        raise NotImplementedError

    def add_null_prompts(self, rows: PromptRows, null: str, requests: Sequence[Request]) -> None:
        """Add the prompts and rows of the continuations after the ``null`` context."""
        raise ProtocolError(
            f"reading {rows.protocol.reading} has no score that compares with a null context"
        )


def longest(encodings: Encodings, texts: Sequence[Sequence[str]]) -> list[int]:
    """Return the tokens of the longest text in each of ``texts``, encoded by itself; 0 for no text."""
    encodings.add_plain(text for group in texts for text in group)
    return [max((len(encodings.plain[text]) for text in group), default=0) for group in texts]


def longest_after_query(encodings: Encodings, requests: Sequence[Request]) -> list[int]:
    """Return for each request the tokens of its longest proposal and its longest continuation
    together.
    """
    proposals = longest(encodings, [request.proposals for request in requests])
    texts = [list(chain.from_iterable(request.parts)) for request in requests]
    return [sum(pair) for pair in zip(proposals, longest(encodings, texts), strict=True)]


def first_tokens(prompt: BlockPrompt) -> Ids:
    """Return the tokens that other prompts may begin with, too: the context, or the first text
    without one.
    """
    # Nearly all prompts are spans.
    if isinstance(prompt, Span):
        return prompt.context
    match prompt:
        case (
            MaskedLoss(span=Span(context=first)) | Conclusion(generation=Generation(context=first))
        ):
            return first
        case Cosine(left=first) | Blanks(text=first) | Rendition(source=first):
            return first
        case Decision(question=typed):
            # The bytes of the state, so that the options of one question stay together.
            state = typed.state.encode(errors="surrogatepass")
            return np.frombuffer(state, np.uint8).astype(np.int32)
    return prompt.context


def _context_tokens(prompt: BlockPrompt) -> int:
    """Return the tokens before the scored ones.

    Those of a generation that a conclusion follows do not count.
    """
    # Nearly all prompts are spans.
    if isinstance(prompt, Span):
        return len(prompt.context)
    match prompt:
        case Blanks():
            return int(prompt.places[0])
        case Decision():
            # The endpoint alone knows.
            return 0
        case Conclusion():
            return len(prompt.generation.context) + len(prompt.span.context)
    return len(first_tokens(prompt))


@lru_cache(maxsize=1024)
def _slots(
    parts: tuple[int, ...], gold: tuple[int, ...]
) -> tuple[tuple[Slot, ...], tuple[int, ...]]:
    """Return the slots of choices with so many ``parts``, and which of them are of ``gold`` ones.

    Nearly all requests have the same.
    """
    slots = []
    for choice, count in enumerate(parts):
        slots += [Slot(choice, part) for part in range(count)]
    return tuple(slots), tuple(index for index, slot in enumerate(slots) if slot.choice in gold)
