"""Which tokens of a choice are scored (boundary policies), after as much context as fits the window.

Tokens need not stop where the context stops, so a protocol must say what it scores (axis ``boundary``):

``joint``       the tokens of context + continuation after as many as the context alone has
``moved-space`` ``joint`` after the white space that ends the context has been moved to the continuation, where it is
                scored, too (lm-evaluation-harness since June 2023, ``_encode_pair``)
``separate``    both encoded by themselves and concatenated, dummy space included (harness v0, January 2023)
``count``       ``joint``, but the context has its tokens in the joined text (minicons)
``lcp``         the joined texts from the longest token prefix that the context and all choices of a request share
``heal``        ``lcp``, divided by the probability that those tokens go on with the rest of the context
``word``        ``lcp``, for words: that the word ends after the continuation, given that a word begins with it
``bytes``       the bytes of the continuation after those of the context, in whatever tokens they come
``last-token``  the last token of the continuation encoded alone, as the original scripts look letters up
``label``       the one token by which the tokens after the context's last special token grow (vLLM, SGLang)
``label-alone`` the one token that the continuation is by itself (transformers)

The last two refuse a continuation that is no such token, or has that of another one, as those servers do.

An empty continuation, or one without tokens, leaves nothing to score and is missing under all of them.
The formulae and when to use which: ``docs/design/boundaries.md``.

Places are in bytes, counted from the end of the text, as a tokenizer may put a dummy space before its start.
Offset mappings are never used: some published tokenizers return empty ones (huggingface/tokenizers #1553).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import takewhile
from typing import NamedTuple, TypeVar

import numpy as np

from choicewise.errors import ModelError, ProtocolError
from choicewise.protocols.protocol import APART, BOUNDARIES, LABELLED
from choicewise.questions import Ids, Mass, Span
from choicewise.tokens.byte_coverings import LIMIT, ByteProbability, Spelling, count_spellings
from choicewise.tokens.encode import Encodings, spells
from choicewise.tokens.tokenizer import Tokenizer, Vocabulary, common_prefix, count, vocabulary

_Asked = TypeVar("_Asked", bound=Span | Mass | ByteProbability)


def _bytes(
    request: _TokenizedRequest, choice: str, end: bytes, question: ChoicePrompt, span: Span
) -> ChoicePrompt:
    text = end + choice.encode()
    if (ways := count_spellings(request.vocabulary, text)) > LIMIT:
        return question.refused(
            f"the {len(text)} bytes scored with continuation {choice!r} can be spelled in {ways} ways, "
            f"more than the {LIMIT} that boundary:bytes takes; use boundary:heal or a shorter continuation"
        )
    offsets = tuple(range(len(end), len(text) + 1))
    return question._replace(span=ByteProbability(span.context, text, offsets, gold=span.gold))


def _heal(
    request: _TokenizedRequest, _: str, end: bytes, question: ChoicePrompt, span: Span
) -> ChoicePrompt:
    after_shared = request.after_shared()
    if not len(after_shared[0]) or not end:
        return question
    words = request.vocabulary
    spellings = dict.fromkeys(
        start for tokens in after_shared for start in _beginnings(words, tokens, end)
    )
    return question._replace(
        before=ByteProbability(span.context, end, (0, len(end)), tuple(spellings))
    )


def _word(
    request: _TokenizedRequest, choice: str, _: bytes, question: ChoicePrompt, span: Span
) -> ChoicePrompt:
    words = request.vocabulary
    if not words.marks_words:
        raise ModelError(
            "the tokens of this model do not mark where words begin, which boundary:word needs; "
            "use boundary:bytes, or boundary:lcp where they mark where words end"
        )
    last, first = (
        words.spelled(span.context[-1:].tolist()),
        words.spelled(span.continuation[:1].tolist()),
    )
    if first[:1].isspace():
        begins = words.spaced
    elif not last or last[-1:].isspace():
        begins = words.unspaced
    else:
        return question.refused(
            f"no word begins where continuation {choice!r} does, as boundary:word needs"
        )
    ended = words.spelled(span.continuation[-1:].tolist())[-1:].isspace()
    tokens = np.concatenate([span.context, span.continuation])
    after = None if ended else Mass(tokens, words.spaced, span.gold)
    return question._replace(before=Mass(span.context, begins), after=after)


CORRECTIONS: dict[str, _Correction] = {"heal": _heal, "word": _word, "bytes": _bytes}
"""How the policies that go beyond ``lcp`` change its questions.

All three start from the tokens ``t`` that the texts of a request share (``lcp``), and from the end of the context that
is not among them: the bytes ``r``, none where no token straddles the end of the context.  They need to know which bytes
are scored, so a choice whose tokens do not spell its text is missing under them.
"""

_END_OF_JOINED = ("joint", "moved-space", "count", "lcp", *CORRECTIONS)
"""Policies that score the last tokens of context and continuation as one text."""


def choice_prompts_batch(
    encodings: Encodings,
    policy: str,
    contexts: Sequence[str],
    continuations: Sequence[Sequence[str]],
    golds: Sequence[Sequence[int]],
) -> list[list[ChoicePrompt]]:
    """How each of the ``continuations`` of many requests is asked; ``golds`` are indices of right ones.

    Every text that is new to ``encodings`` is encoded, in a few calls.

    Besides those above, ``policy`` may be ``apart``: the tokens that context and continuation each have alone, without
    a dummy space.  Raises ModelError when the tokenizer appends tokens to every text, or when an empty context has no
    prefix token, and ProtocolError for any other ``policy``.
    """
    if policy not in (*BOUNDARIES, *LABELLED, APART):
        raise ProtocolError(
            f"boundary is {policy!r}; it must be one of {', '.join((*BOUNDARIES, *LABELLED))}"
        )
    texts = list(zip(contexts, continuations, strict=True))
    if (
        policy == "moved-space"
    ):  # what ends the context goes before every continuation that is not empty
        spaces = [context[len(context.rstrip()) :] for context in contexts]
        texts = [
            (context.rstrip(), [space + choice if choice else "" for choice in choices])
            for space, (context, choices) in zip(spaces, texts, strict=True)
        ]
    if policy == "last-token":
        encodings.add_sequences(choice for _, choices in texts for choice in choices)
    if policy == APART:
        encodings.add_bare(choice for _, choices in texts for choice in choices)
    if policy in ("separate", "last-token", "label-alone"):
        encodings.add_plain(choice for _, choices in texts for choice in choices)
    requests = _tokenized_requests(
        encodings, [context for context, _ in texts], [choices for _, choices in texts]
    )
    if policy == "label":
        encodings.add_plain(text for request in requests for text in request.labelled)
    return [_ask(policy, request, gold) for request, gold in zip(requests, golds, strict=True)]


class ChoicePrompt(NamedTuple):
    """One choice as it is asked.

    ``span`` is None exactly when ``missing`` says why.  ``merged``: the context's tokens are no prefix of the tokens of
    the whole text.  ``unknown``: unknown tokens among the scored ones.  ``tokens_dropped``: tokens cut off to fit the
    window.  ``before`` is subtracted (how the context goes on anyway), ``after`` added (what may follow).
    ``noncanonical``: context and continuation together are not the tokenizer's own tokens of the whole text.
    ``lossy``: the scored tokens do not spell the end of the text.  ``bos``: BOS tokens among all of them.
    ``parts``: what else a reading asks about the choice, None where it is not needed here.
    """

    span: Span | ByteProbability | None
    merged: bool = False
    unknown: int = 0
    missing: str | None = None
    tokens_dropped: int = 0
    before: Mass | ByteProbability | None = None
    after: Mass | None = None
    noncanonical: bool = False
    lossy: bool = False
    bos: int = 0
    parts: tuple[Span | None, ...] = ()

    def questions(self) -> Iterator[Span | Mass | ByteProbability]:
        """All that the model must be asked."""
        yield from (
            question for question in (self.span, self.before, self.after) if question is not None
        )

    @property
    def inputs(self) -> int:
        """The most input tokens of what the model must be asked; 0 where that is nothing."""
        if self.before is None and self.after is None:
            return 0 if self.span is None else self.span.inputs
        return max(question.inputs for question in self.questions())

    def scored_bytes(self, tokenizer: Tokenizer) -> bytes:
        """What the scored tokens spell; nothing where the choice is missing."""
        if not isinstance(self.span, Span):
            return b""
        return b"".join(tokenizer.token_bytes[token] for token in self.span.continuation.tolist())

    def refused(self, reason: str) -> ChoicePrompt:
        """The same as a choice that can't be scored, and why."""
        return self._replace(span=None, before=None, after=None, parts=(), missing=reason)

    def without(self, dropped: int) -> ChoicePrompt:
        """The same after a context that lacks its first ``dropped`` tokens."""
        return self._replace(
            span=self.span and without(self.span, dropped),
            before=self.before and without(self.before, dropped),
            after=self.after and without(self.after, dropped),
            tokens_dropped=dropped,
        )


def char_spans(
    encodings: Encodings, context: str, continuation: str, gold: bool | None
) -> ChoicePrompt:
    """The tokens that hold a byte of ``continuation`` in the two texts encoded as one, after all tokens before them.

    All of a token that straddles the boundary is scored, because a probability can't be split, and flagged ``merged``.
    Missing where the tokens don't spell the continuation, as with a tokenizer that lower-cases.
    """
    tokenizer = encodings.tokenizer
    tokens, nothing = encodings.contexts([context + continuation, ""])
    ends, spelled = _spelled(tokenizer, tokens)
    text = continuation.encode()
    if not text or not spelled.endswith(text):
        return ChoicePrompt(None, missing=_misspelt(continuation))
    start = len(spelled) - len(text)
    first = int(np.searchsorted(ends, start, side="right"))
    merged = bool(ends[first - 1] < start) if first else start > 0
    before = tokens[:first] if first else nothing
    return ChoicePrompt(
        Span(before, tokens[first:], gold), merged, count(tokens[first:], tokenizer.unknown_id)
    )


def package_spans(
    encodings: Encodings, context: str, continuation: str, gold: bool | None
) -> ChoicePrompt:
    """The tokens that the package surprisal picks: ``surprise(context + continuation)[start:stop, "char"]``.

    It puts a BOS before whatever the tokenizer adds itself, so that there are two with a tokenizer that adds one.  The
    span begins with the last token that starts at or before the continuation's first character, and ends with the
    first one that ends at or after its last; of a character of several tokens some are left out by that.  Source:
    aalok-sathe/surprisal model.py@6ea34a7, utils.py@02b1d93; the characters of a token are those that its bytes belong
    to, where the package asks the tokenizer's offsets.
    """
    tokenizer = encodings.tokenizer
    if tokenizer.bos_id is None:
        return ChoicePrompt(
            None, missing="the package surprisal needs a BOS, and the tokenizer names none"
        )
    text = context + continuation
    (tokens,) = encodings.contexts([text])
    ends, spelled = _spelled(tokenizer, tokens)
    if not continuation or not spelled.endswith(text.encode()):
        return ChoicePrompt(None, missing=_misspelt(text))
    ends -= len(spelled) - len(text.encode())  # without the dummy space
    char_of = np.repeat(np.arange(len(text)), [len(char.encode()) for char in text])
    first, last = 0, len(tokens)
    for place, (token, end) in enumerate(zip(tokens.tolist(), ends.tolist(), strict=True)):
        size = len(tokenizer.token_bytes[token])
        if not size:  # special tokens have no characters
            continue
        if (0 if end <= size else char_of[end - size]) <= len(context):
            first = place
        if end > 0 and char_of[end - 1] + 1 >= len(text):
            last = place + 1
            break
    before = np.concatenate([[tokenizer.bos_id], tokens[:first]]).astype(np.int32)
    scored = tokens[first:last]
    start = int(ends[last - 1]) - sum(len(tokenizer.token_bytes[token]) for token in scored)
    merged = start < len(context.encode())
    return ChoicePrompt(Span(before, scored, gold), merged, count(scored, tokenizer.unknown_id))


def ends_before(span: Span, eos_id: int) -> list[Span]:
    """What gives P(EOS) in place of every scored token: rows of the same forward pass, so they cost no token."""
    tokens, eos = (
        np.concatenate([span.context, span.continuation]),
        np.asarray([eos_id], dtype=np.int32),
    )
    return [
        Span(tokens[: len(span.context) + place], eos) for place in range(len(span.continuation))
    ]


def select_spans(
    encodings: Encodings, context: str, continuation: str, gold: bool | None
) -> ChoicePrompt:
    """The tokens that ``select`` scores; as ``parts`` the token that it subtracts, and those after the first alone.

    It asks the server for the log-probabilities of ``prompt + choice`` from the prompt's last token on, in case that
    token changed with what follows ("token healing"), and subtracts that token again where the prompt's text ends with
    the token's text (sglang 0.4.2, ``lang/backend/runtime_endpoint.py``, ``RuntimeEndpoint.select``).

    The text of a token is what it decodes to by itself, so one that holds a part of a character is never subtracted,
    and one that changed but still ends the prompt is.  The server gives no number for the first token of a sequence, so
    of a prompt of two tokens the last is scored.  Missing where ``select`` stops: no token of the choice remains, or
    it would subtract the first token of the sequence.
    """
    tokenizer = encodings.tokenizer
    if not continuation:
        return ChoicePrompt(None, missing="continuation '' leaves select no token to score")
    prompt, joined = encodings.contexts([context, context + continuation])
    last = len(prompt) - 1 if len(prompt) > 2 else 0
    healed = joined[last : last + 1]
    by_itself = tokenizer.decode(healed).removeprefix(" " if encodings.has_dummy_space else "")
    ends = any(
        tokenizer.token_bytes[token] for token in healed
    )  # a BOS is text to the server, but not to a prompt
    ends = ends and context.endswith(by_itself)
    if ends and not last:
        missing = f"the prompt {context!r} is too short for select, which goes back two tokens"
        return ChoicePrompt(None, missing=missing)
    first, removed = (last + 1, Span(joined[:last], healed)) if ends else (max(last, 1), None)
    scored, merged = joined[first:], common_prefix([prompt, joined]) < len(prompt)
    if not len(scored):
        return ChoicePrompt(
            None, merged, missing=f"continuation {continuation!r} leaves select no token to score"
        )
    alone = Span(scored[:1], scored[1:]) if len(scored) > 1 else None
    return ChoicePrompt(
        Span(joined[:first], scored, gold),
        merged,
        count(scored, tokenizer.unknown_id),
        bos=count(joined, tokenizer.bos_id),
        parts=(removed, alone),
    )


def fit_span(choice: ChoicePrompt, window: int, *, cut_start: bool) -> ChoicePrompt:
    """``choice`` as a model with ``window`` input tokens can answer it.

    The last token is never an input, so ``window + 1`` tokens fit.  With ``cut_start`` the start of the context is cut
    as in lm-evaluation-harness (``lm_eval/models/huggingface.py`` ``_loglikelihood_tokens``) and counted in
    ``tokens_dropped``; otherwise a span that is too long is missing, with the reason.
    """
    if choice.span is None:
        return choice
    excess = choice.inputs - window
    if excess <= 0:
        return choice
    if not cut_start:
        return choice.refused(f"{window + excess} tokens do not fit the window of {window}")
    if excess >= len(choice.span.context):
        length = window + 1 + excess - len(choice.span.context)
        return choice.refused(
            f"a continuation of {length} tokens does not fit the window of {window}"
        )
    return choice.without(excess)


def cut(context: Ids, room: int, *, start: bool) -> tuple[Ids, int]:
    """The first ``room`` tokens of ``context``, or where its ``start`` is cut the last, and how many were cut off.

    The start as lm-evaluation-harness cuts what it lets a model go on (``lm_eval/models/huggingface.py``
    ``generate_until``), the end as HELM does (``local_window_service.py`` ``truncate_from_right``).
    """
    room = max(room, 0)
    rest = context[max(len(context) - room, 0) :] if start else context[:room]
    return rest, len(context) - len(rest)


def without(question: _Asked, dropped: int) -> _Asked:
    """The same question after a context that lacks its first ``dropped`` tokens."""
    return replace(question, context=question.context[dropped:])


@dataclass(frozen=True, eq=False)
class _TokenizedRequest:
    """The texts of one request and their tokens.

    ``context``: those of the context alone.  The first ``stem`` of them begin all joined texts (the context with each
    choice), too, and those of its last line, ``tail``, do not depend on what comes before.  ``ends``: the tokens after
    the stem, of the context alone, then of every joined text.
    """

    encodings: Encodings
    context_text: str
    choices: tuple[str, ...]
    context: Ids
    stem: int
    tail: str
    ends: Sequence[Ids]

    @cached_property
    def shared(self) -> int:
        return common_prefix(self.ends)

    @property
    def vocabulary(self) -> Vocabulary:
        return vocabulary(self.encodings.tokenizer)

    @cached_property
    def turn(self) -> tuple[Ids, str]:
        """The tokens of the context after the last one that stands for no bytes, and their text."""
        pieces, context = self.encodings.tokenizer.token_bytes, self.context
        start = next(
            (place for place in range(len(context), 0, -1) if not pieces[context[place - 1]]), 0
        )
        return context[start:], self.encodings.tokenizer.decode(context[start:])

    @property
    def labelled(self) -> list[str]:
        """That text with each choice after it."""
        return [self.turn[1] + choice if choice else "" for choice in self.choices]

    def after_shared(self) -> list[Ids]:
        """The tokens after those that all texts have in common: of the context alone, then of every joined text."""
        return [tokens[self.shared :] for tokens in self.ends]

    def context_end(self, index: int) -> bytes | None:
        """The bytes of the context after the shared tokens of choice ``index``; None where its tokens lose text."""
        spelled = self.vocabulary.spelled(self.after_shared()[1 + index].tolist())
        choice, context = self.choices[index].encode(), self.context_text.encode()
        if not spelled.endswith(choice):
            return None
        end = spelled[: len(spelled) - len(choice)]
        # a tokenizer that puts a dummy space before every text also does so where all of the text is scored
        return end if context.endswith(end) or end == b" " + context else None


_Correction = Callable[[_TokenizedRequest, str, bytes, ChoicePrompt, Span], ChoicePrompt]
"""From a request, a choice, the end of the context that is not shared, and the choice's question under ``lcp``."""


_Located = tuple[int | Ids, Ids, ChoicePrompt]
"""How a choice is asked after any context with the same end, whether it has a stem or not.

The tokens before the scored ones after the stem: as many of the context's own, or tokens in their place.  The scored
tokens, of no use where the question is missing.  The question without its span; ``bos`` counts after the stem.
"""


def _ask(policy: str, request: _TokenizedRequest, gold: Sequence[int]) -> list[ChoicePrompt]:
    remembered, turn = request.encodings.located, request.turn[1] if policy == "label" else ""
    key = policy, request.stem > 0, request.tail, turn, request.choices
    if key not in remembered:
        parts = zip(request.choices, request.ends[1:], _pairs(policy, request), strict=True)
        remembered[key] = [  # copies, as a part of an array keeps all of it in memory
            _located(policy, request, choice, joined, before, continuation.copy())
            for choice, joined, (before, continuation) in parts
        ]
        if policy in LABELLED:
            remembered[key] = _labels(policy, request, remembered[key])
    located: list[_Located] = remembered[key]
    contexts = {len(request.ends[0]): request.context}  # choices share the array
    lossy = request.encodings.is_lossy(request.context_text)
    bos = count(request.context[: request.stem], request.encodings.tokenizer.bos_id)
    questions = []
    for index, (before, continuation, question) in enumerate(located):
        if question.missing is not None:
            questions.append(question)
            continue
        if not isinstance(before, int):
            context = np.concatenate([request.context[: request.stem], before])
        elif before in contexts:
            context = contexts[before]
        else:
            context = contexts[before] = request.context[: request.stem + before]
        span = Span(context, continuation, index in gold)
        flags = question.noncanonical, lossy or question.lossy, bos + question.bos
        question = ChoicePrompt(
            span, question.merged, question.unknown, None, 0, None, None, *flags
        )
        if policy in CORRECTIONS:
            choice = request.choices[index]
            if question.unknown or (end := request.context_end(index)) is None:
                needs = f"which boundary:{policy} needs"
                question = question.refused(
                    f"the tokens of continuation {choice!r} do not spell its text, {needs}"
                )
            else:
                question = CORRECTIONS[policy](request, choice, end, question, span)
        questions.append(question)
    return questions


def _located(
    policy: str,
    request: _TokenizedRequest,
    choice: str,
    joined: Ids,
    before: int | Ids,
    continuation: Ids,
) -> _Located:
    tokenizer, own = request.encodings.tokenizer, request.ends[0]
    merged = not joined.tobytes().startswith(own.tobytes())
    if not choice or not len(continuation):
        reason = "leaves nothing to score: it has no tokens"
        if policy == APART:
            reason = "has no tokens without a space before it, which its null context holds"
        elif choice and merged:
            reason = "leaves nothing to score: its characters merge into the context's tokens"
        return (
            before,
            continuation,
            ChoicePrompt(None, merged, missing=f"continuation {choice!r} {reason}"),
        )
    tokens = np.concatenate([own[:before] if isinstance(before, int) else before, continuation])
    canonical = tokens.tobytes().endswith(joined.tobytes())
    spelled = request.encodings.lossless and (canonical or policy in _END_OF_JOINED)
    question = ChoicePrompt(
        None,
        merged,
        count(continuation, tokenizer.unknown_id),
        noncanonical=not canonical,
        lossy=not (spelled or spells(tokenizer, continuation, request.tail, choice)),
        bos=count(tokens, tokenizer.bos_id),
    )
    return before, continuation, question


def _labels(policy: str, request: _TokenizedRequest, located: list[_Located]) -> list[_Located]:
    """``located``, refused where it is no label: not one token, an unknown one, or that of another continuation."""
    ids = [tuple(continuation.tolist()) for _, continuation, _ in located]
    labels = []
    for choice, own, (before, continuation, question) in zip(
        request.choices, ids, located, strict=True
    ):
        others = [
            text
            for text, other in zip(request.choices, ids, strict=True)
            if other == own and text != choice
        ]
        where = "by itself" if policy == "label-alone" else "after the end of the prompt"
        if choice and len(own) != 1:
            question = question.refused(
                f"label {choice!r} is no single token {where}: it can't be served as one"
            )
        elif question.missing is None and (others or question.unknown):
            why = f"shares its token with {others[0]!r}" if others else "is an unknown token"
            question = question.refused(
                f"label {choice!r} {why} {where}: it can't be served as one"
            )
        labels.append((before, continuation, question))
    return labels


def _pairs(policy: str, request: _TokenizedRequest) -> list[tuple[int | Ids, Ids]]:
    """For every choice the tokens before it, as in :data:`_Located`, and its own."""
    size, joined, encodings = len(request.ends[0]), request.ends[1:], request.encodings
    match policy:
        case "joint" | "moved-space":
            return [(size, tokens[size:]) for tokens in joined]
        case "separate":
            return [(size, encodings.plain[choice]) for choice in request.choices]
        case "count":
            own = request.ends[0]
            same = [np.array_equal(tokens[:size], own) for tokens in joined]
            return [
                (size if is_same else tokens[:size], tokens[size:])
                for is_same, tokens in zip(same, joined, strict=True)
            ]
        case "last-token":
            # a text without tokens of its own has no last one: what it ends with as a sequence is the BOS
            plain, sequences = encodings.plain, encodings.sequences
            return [
                (size, sequences[choice][-1:][: len(plain[choice])]) for choice in request.choices
            ]
        case "label":
            turn, grown = request.turn[0], [encodings.plain[text] for text in request.labelled]
            known = [np.array_equal(tokens[: len(turn)], turn) for tokens in grown]
            return [
                (size, tokens[len(turn) if grows else len(tokens) :])
                for grows, tokens in zip(known, grown, strict=True)
            ]
        case "label-alone":
            return [(size, encodings.plain[choice]) for choice in request.choices]
        case "apart":
            return [(size, encodings.bare[choice]) for choice in request.choices]
    # where not even the first token is common, all of every text is scored after the prefix token
    shared = request.shared
    before = shared if request.stem + shared else encodings.prefix_token
    return [(before, tokens[shared:]) for tokens in joined]


def _spelled(
    tokenizer: Tokenizer, tokens: Ids
) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], bytes]:
    pieces = [tokenizer.token_bytes[token] for token in tokens]
    return np.cumsum([len(piece) for piece in pieces], dtype=np.int64), b"".join(pieces)


def _misspelt(text: str) -> str:
    return (
        f"the tokens do not spell {text!r}, so it has no character span"
        if text
        else "it has no text"
    )


def _beginnings(words: Vocabulary, tokens: Ids, text: bytes) -> Iterator[Spelling]:
    starts = (tuple(tokens[:length].tolist()) for length in range(len(tokens)))
    return takewhile(
        lambda start: (spelled := words.spelled(start)) != text and text.startswith(spelled), starts
    )


def _tokenized_requests(
    encodings: Encodings, contexts: Sequence[str], choices: Sequence[Sequence[str]]
) -> list[_TokenizedRequest]:
    encodings.add_sequences(contexts)
    continued = encodings.continued(contexts, choices)
    whole = [index for index, rests in enumerate(continued) if rests is None]
    encodings.add_sequences(
        contexts[index] + choice for index in whole if contexts[index] for choice in choices[index]
    )
    encodings.add_plain(
        choice for index in whole if not contexts[index] for choice in choices[index]
    )
    requests = []
    for text, own, rests in zip(contexts, choices, continued, strict=True):
        context = encodings.context(text)
        tail, ends = rests or (text, [context, *(encodings.joined(text, choice) for choice in own)])
        stem = len(context) - len(ends[0])
        requests.append(_TokenizedRequest(encodings, text, tuple(own), context, stem, tail, ends))
    return requests
