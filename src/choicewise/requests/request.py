"""One request, chat turns, and the rows and questions of a block of requests."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
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
from choicewise.thoughts import left_open
from choicewise.tokens.boundary import ChoicePrompt
from choicewise.tokens.byte_coverings import TokenPrompt
from choicewise.tokens.chat_template import Arguments, ChatTemplate, Message
from choicewise.tokens.encode import Encodings
from choicewise.tokens.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class View:
    """One version of a query, and the continuations after it: one per choice, whichever place it has there.

    ``content``: whether it shows the item; else it shows a text without content.
    """

    query: str
    continuations: tuple[str, ...]
    content: bool = True


@dataclass(frozen=True, slots=True)
class Chat:
    """How the texts of one request become messages, and these a text.

    ``system``: the system text, with the header.  ``turns``: of every shot what the user says and what the assistant
    answers, or None where the shots stand in the message of the query.  ``begins``: whether a proposal is what the
    assistant has begun to say, and else a part of what the user says.  ``template``: the model's; None for no model.
    ``told``: what it is told by name.  ``close``: whether a thought that it leaves open is closed by its own bytes.

    As ``fewshot_context`` of lm-evaluation-harness does it, with ``fewshot_as_multiturn`` or without
    (lm_eval/api/task.py at 4e7e0d4).
    """

    system: str
    turns: tuple[tuple[str, str], ...] | None
    begins: bool
    template: ChatTemplate | None
    told: Arguments = field(default_factory=dict, hash=False)
    close: bool = False

    def text(self, shots: Sequence[str], separator: str, query: str, proposal: str) -> str:
        """What the model reads before it continues; ModelError without a template, or where that fails.

        ``shots``: those that fit, as texts; as many turns stand for them.
        """
        if self.template is None:
            raise ModelError("a chat needs the chat template of a model; name the model")
        messages = [Message("system", self.system)] if self.system else []
        for said, answer in (self.turns or ())[: len(shots)]:
            messages += [Message("user", said), Message("assistant", answer)]
        asked = query if self.begins else query + proposal
        messages.append(
            Message("user", asked if self.turns is not None else separator.join([*shots, asked]))
        )
        if self.begins and proposal:
            messages.append(Message("assistant", proposal.lstrip()))
        text = self.template.render(messages, self.told)
        return text + self.template.closing(self.told) if self.close and left_open(text) else text


@dataclass(frozen=True, slots=True)
class Request:
    """The texts of one item.

    ``options`` are the choices as shown, after quirk and strip; ``continuations`` the texts scored, one per choice.
    Where a reading scores several texts of a choice, ``parts`` holds them and ``continuations`` has them one a line.
    ``proposals`` follow the query, one per choice; empty where all choices share the context.  ``views`` are the
    versions of the query after the first, which is ``query``.  ``chat``: how these texts become a chat, if they do.
    ``order``: for every place the choice whose label counts there; empty for that at the place itself.
    ``batched``: whether the other questions of its case are in one request with it.
    ``listed``: the lines of the options, where the query shows them as a set, and ``after`` what it ends with then.
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
        """Header, the first ``shots`` shots (all of them when None) and the query, joined by the separator."""
        return self.header + self.separator.join([*self.shots[:shots], self.query])

    def context(self, shots: int | None = None, proposal: str = "") -> str:
        """What a choice comes after: text and proposal, or these as a chat; ModelError where its template fails."""
        if self.chat is None:
            return self.text(shots) + proposal
        return self.chat.text(self.shots[:shots], self.separator, self.query, proposal)


@dataclass(frozen=True, slots=True)
class FittedRequest:
    """A request with a context that fits, or the reason why there is none (``missing``).

    ``shots`` are part of ``context``, ``shots_dropped`` are not.  ``cut_end`` says that the context still has too many
    tokens and the protocol has its end cut; the reading, which holds the tokens, does that and counts them.
    """

    request: Request
    context: str
    shots: int
    shots_dropped: int = 0
    cut_end: bool = False
    missing: str | None = None


def joined(system: str | None, header: str, separator: str) -> str:
    """The system text and the header as one, with ``separator`` between where no white space is."""
    if not system or not header:
        return system or header
    return system + ("" if system[-1].isspace() or header[0].isspace() else separator) + header


_NO_CHOICE = ChoicePrompt(
    None
)  # of a question that no boundary policy made: it has no flags and no corrections


class Answerer(Structural):
    """What preparing needs to know of a model: its tokenizer and its window (input tokens)."""

    @property
    def window(self) -> int:
        """The most input tokens."""

    @property
    def tokenizer(self) -> Tokenizer:
        """From texts to the model's tokens."""


BlockPrompt = TokenPrompt | Conclusion
"""Everything that a block may ask: a conclusion becomes a span when its generation is there."""


@dataclass
class PreparedBlock:
    """Rows of the run folder's ``requests`` and ``spans`` tables, and the unique questions to the model by key.

    ``inputs``: tokens when every choice of every protocol is a sequence of its own, as usually asked.  ``deepest``:
    those of the longest question.  ``null_choices``: choices after null contexts, by how they are asked.
    """

    requests: list[RequestRow] = field(default_factory=list)
    spans: list[SpanRow] = field(default_factory=list)
    wanted: dict[str, BlockPrompt] = field(default_factory=dict)
    inputs: int = 0
    deepest: int = 0
    null_choices: dict[Hashable, dict[ChoiceGroup, list[ChoicePrompt]]] = field(
        default_factory=dict
    )
    _encodings: dict[tuple[str, bool], Encodings] = field(default_factory=dict)

    def encodings(self, tokenizer: Tokenizer, bos: str, enclosed: bool = False) -> Encodings:
        """The tokens of texts of the block so far, with what ``bos`` adds; ``enclosed`` as there."""
        how = bos, enclosed
        if how not in self._encodings:
            self._encodings[how] = Encodings(tokenizer, bos, enclosed)
        return self._encodings[how]

    def forget_texts(self) -> None:
        """Free what only preparing needs."""
        self._encodings.clear()
        self.null_choices.clear()

    def forget_sequences(self) -> None:
        """Free the tokens of whole texts, which hardly two prompts share and which are long."""
        for encodings in self._encodings.values():
            encodings.sequences.clear()

    def refuse(self, protocol: Protocol, item: Item, reason: str) -> None:
        """Remember an item that can't be asked under a protocol, and why."""
        row = RequestRow(protocol.prompt_digest, item.id, item.subject, item.gold, missing=reason)
        self.requests.append(row)


class PromptRows:
    """Adds the rows and questions of one protocol's prompt to ``block``.

    ``limit``: the most input tokens, the model's window or the protocol's own limit where that is lower.
    ``encodings``: the tokens of the texts, which all prompts of the block share.
    """

    def __init__(self, block: PreparedBlock, protocol: Protocol, model: Answerer) -> None:
        self.block = block
        self.protocol = protocol
        self.limit = model.window if protocol.limit is None else min(protocol.limit, model.window)
        self.encodings = block.encodings(
            model.tokenizer, protocol.bos, READINGS[protocol.reading].enclosed
        )

    def add_request(self, fitted: FittedRequest, tokens_dropped: int = 0) -> None:
        """The row of a request that is asked; ``tokens_dropped``: the greatest number over its choices."""
        request, item = fitted.request, fitted.request.item
        texts = (fitted.context, request.continuations, request.options)
        counts = (fitted.shots, fitted.shots_dropped, tokens_dropped)
        row = RequestRow(
            self.protocol.prompt_digest, item.id, item.subject, item.gold, *texts, *counts
        )
        self.block.requests.append(row)

    def add_span(
        self,
        item: str,
        place: tuple[int, int],
        question: BlockPrompt | None,
        *,
        null: str | None = None,
        context: str | None = None,
        continuation: str = "",
        choice: ChoicePrompt = _NO_CHOICE,
    ) -> None:
        """Ask ``question``, and the row that says what it answers.

        ``place``: its choice and its part of that choice.  ``choice``: flags, corrections, tokens dropped, why missing.
        """
        key = None if question is None else self._want(question)
        before = None if choice.before is None else self._want(choice.before)
        after = None if choice.after is None else self._want(choice.after)
        prompt, (index, part), tokens, dropped = (
            self.protocol.prompt_digest,
            place,
            0,
            choice.tokens_dropped,
        )
        if question is not None:
            tokens = _context_tokens(question)
            self.block.inputs += question.inputs
        flags = (
            choice.merged,
            choice.noncanonical,
            choice.lossy,
            choice.unknown,
            choice.bos,
            choice.missing,
        )
        self.block.spans.append(
            SpanRow(
                prompt,
                item,
                index,
                part,
                null,
                context,
                continuation,
                key,
                tokens,
                dropped,
                before,
                after,
                *flags,
            )
        )

    def _want(self, question: BlockPrompt) -> str:
        key = question.key
        self.block.wanted.setdefault(key, question)
        self.block.deepest = max(self.block.deepest, question.inputs)
        return key


def fit_requests(
    prompt: PromptRows, requests: Sequence[Request], reserve: Sequence[int]
) -> list[FittedRequest]:
    """One FittedRequest per request, in order, by the protocol's policy (axis ``fit``).

    ``reserve[i]`` input tokens must stay free after the context of request ``i``: the longest continuation minus its
    last token, or the tokens to generate.

    Everything is counted once in one batch, and only what is too long again, with one shot fewer each time.
    ``cut-start`` leaves the context unchanged: the oldest tokens are dropped, and counted, once the texts are tokens.
    """
    policy, limit = prompt.protocol.fit, prompt.limit
    drops = policy.startswith("drop-last-shot")
    fitted = [FittedRequest(request, request.context(), len(request.shots)) for request in requests]
    for index, tokens in enumerate(reserve):
        if tokens >= limit:
            fitted[index] = replace(
                fitted[index],
                missing=f"too long: the answer alone takes {tokens} of {limit} tokens",
            )
    uncounted = (
        []
        if policy == "cut-start"
        else [index for index, tokens in enumerate(reserve) if tokens < limit]
    )
    while uncounted:
        contexts = prompt.encodings.contexts([fitted[index].context for index in uncounted])
        counts, uncounted = zip(uncounted, map(len, contexts), strict=True), []
        for index, tokens in counts:
            request, shots, room = requests[index], fitted[index].shots, limit - reserve[index]
            if tokens <= room:
                continue
            if drops and shots:
                dropped = len(request.shots) - shots + 1
                fitted[index] = FittedRequest(
                    request, request.context(shots - 1), shots - 1, dropped
                )
                uncounted.append(index)
            elif policy == "drop-last-shot-then-cut-end":
                fitted[index] = replace(fitted[index], cut_end=True)
            else:
                without = " without any shot" if drops else ""
                why = f"{tokens} tokens{without}, {room} fit ({limit} minus {reserve[index]} for the answer)"
                whole = FittedRequest(
                    request, request.context(), len(request.shots)
                )  # for whoever reads why
                fitted[index] = replace(whole, missing=f"too long: {why}")
    return fitted


@dataclass(frozen=True, slots=True)
class ChoiceGroup:
    """Continuations of one context.  ``places``: the (choice, part) that each of them belongs to.

    ``own``: whether the context is another than the request's.  ``gold``: which of them an oracle would prefer.
    ``spaced``: whether it is a null context and holds the space that they begin with after their own context.
    """

    context: str
    own: bool
    continuations: tuple[str, ...]
    places: tuple[tuple[int, int], ...]
    gold: tuple[int, ...]
    spaced: bool = False

    def after(self, null: str) -> ChoiceGroup:
        """The continuations after the context ``null``; groups that are equal then are the same questions.

        White space that ends ``null`` stands there instead of at the start of a continuation, so that both sides have
        the same text but for that space (Brown et al. 2020, "Answer: ").  Where the own context ends with white space,
        too, the continuations stay as they are.
        """
        space = null[len(null.rstrip()) :]
        bare = self.context == self.context.rstrip()
        texts = (
            tuple(text.removeprefix(space) for text in self.continuations)
            if bare
            else self.continuations
        )
        return ChoiceGroup(null, False, texts, self.places, (), texts != self.continuations)

    def may_differ(self, choices: Sequence[ChoicePrompt]) -> bool:
        """Whether ``choices``, as they are asked after the null context, may score other text than after their own.

        Tokens do not reach over the space that a continuation begins with, so few requests must be looked at again.
        """
        spaces = all(text[:1].isspace() for text in self.continuations)
        return not self.spaced and (not spaces or any(choice.merged for choice in choices))

    def policy(self, boundary: str) -> str:
        """How the continuations are located: one that lacks its space has the tokens that it has by itself."""
        return APART if self.spaced and boundary in COUNTING else boundary


def one_context(request: Request, context: str) -> ChoiceGroup:
    """All texts of all choices after ``context``."""
    places = _places(tuple(map(len, request.parts)))
    texts = tuple(text for texts in request.parts for text in texts)
    right = tuple(index for index, (choice, _) in enumerate(places) if choice in request.gold)
    return ChoiceGroup(context, False, texts, places, right)


class Prompter:
    """How a reading asks, to be said by each."""

    def texts(self, request: Request) -> list[ChoiceGroup]:
        """Which texts are sent after which contexts, before these are fitted into a model's window."""
        return [one_context(request, request.context())]

    def reserve(self, prompt: PromptRows, requests: Sequence[Request]) -> list[int]:
        """For each request, the input tokens that must stay free after its context."""
        return [0] * len(requests)

    def add_prompts(self, prompt: PromptRows, fitted: Sequence[FittedRequest]) -> None:
        """Add the questions and rows of requests that fit."""
        raise NotImplementedError

    def add_null_prompts(self, prompt: PromptRows, null: str, requests: Sequence[Request]) -> None:
        """Add the questions and rows for the continuations after the ``null`` context."""
        raise ProtocolError(
            f"reading {prompt.protocol.reading} has no score that compares with a null context"
        )


def longest(encodings: Encodings, texts: Sequence[Sequence[str]]) -> list[int]:
    """The tokens of the longest text in each of ``texts``, encoded by itself; 0 where there is none."""
    encodings.add_plain(text for group in texts for text in group)
    return [max((len(encodings.plain[text]) for text in group), default=0) for group in texts]


def longest_after_query(encodings: Encodings, requests: Sequence[Request]) -> list[int]:
    """For each request the tokens of its longest proposal and its longest continuation, encoded by themselves."""
    proposals = longest(encodings, [request.proposals for request in requests])
    continuations = longest(
        encodings, [[text for part in request.parts for text in part] for request in requests]
    )
    return [sum(pair) for pair in zip(proposals, continuations, strict=True)]


def first_tokens(question: BlockPrompt) -> Ids:
    """The tokens that other questions may begin with, too: the context, or the first text of those without one."""
    if isinstance(question, Span):  # nearly all are
        return question.context
    match question:
        case (
            MaskedLoss(span=Span(context=first)) | Conclusion(generation=Generation(context=first))
        ):
            return first
        case Cosine(left=first) | Blanks(text=first) | Rendition(source=first):
            return first
        case Decision(question=typed_question):
            # The state alone, so that the options of one question stay together.
            return np.frombuffer(
                typed_question.state.encode(errors="surrogatepass"), np.uint8
            ).astype(np.int32)
    return question.context


def _context_tokens(question: BlockPrompt) -> int:
    """Tokens before the scored ones; those of a generation that a conclusion follows are not counted."""
    if isinstance(question, Blanks):
        return int(question.places[0])
    if isinstance(question, Decision):  # the endpoint alone knows
        return 0
    return len(first_tokens(question)) + (
        len(question.span.context) if isinstance(question, Conclusion) else 0
    )


@lru_cache(maxsize=1024)
def _places(parts: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """The places of choices with so many ``parts``; nearly all requests have the same."""
    return tuple((choice, part) for choice, count in enumerate(parts) for part in range(count))
