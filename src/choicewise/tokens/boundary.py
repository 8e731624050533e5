"""Locate the tokens of a choice that are scored (axis ``boundary``), and cut their context to the
window.

A token may hold characters on both sides of the end of a context, so a protocol must name a policy:

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

The last two refuse a continuation that is no such token, or has that of another one, as those
servers do.

An empty continuation, or one without tokens, leaves nothing to score and is missing under every
policy.  The formulae and when to use which: ``docs/design/boundaries.md``.

Positions are in bytes, counted from the end of the text, as a tokenizer may put a dummy space
before its start.  Offset mappings are never used: some published tokenizers return empty ones
(huggingface/tokenizers #1553).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from choicewise.errors import ModelError, ProtocolError
from choicewise.protocols.protocol import APART, BOUNDARIES, LABELLED
from choicewise.questions import Ids, Mass, Span
from choicewise.tokens.byte_coverings import LIMIT, ByteProbability, Spelling, count_spellings
from choicewise.tokens.encode import Encodings, spells
from choicewise.tokens.tokenizer import Tokenizer, Vocabulary, common_prefix, count, vocabulary

_Scored = TypeVar("_Scored", bound=Span | Mass | ByteProbability)


def _bytes(
    request: _TokenizedRequest, choice: str, end: bytes, prompt: ChoicePrompt, span: Span
) -> ChoicePrompt:
    text = end + choice.encode()
    ways = count_spellings(request.vocabulary, text)
    if ways > LIMIT:
        return prompt.refused(
            f"the {len(text)} bytes scored with continuation {choice!r} can be spelled in {ways} "
            "ways, "
            f"over the limit {LIMIT} of boundary:bytes; use boundary:heal or a shorter continuation"
        )
    offsets = tuple(range(len(end), len(text) + 1))
    return prompt._replace(span=ByteProbability(span.context, text, offsets, gold=span.gold))


def _heal(
    request: _TokenizedRequest, _: str, end: bytes, prompt: ChoicePrompt, span: Span
) -> ChoicePrompt:
    after_shared = request.after_shared()
    tokens_of_context = after_shared[0]
    if not len(tokens_of_context) or not end:
        return prompt
    spellings: dict[Spelling, None] = {}
    for tokens in after_shared:
        spellings.update(dict.fromkeys(_beginnings(request.vocabulary, tokens, end)))
    healed = ByteProbability(span.context, end, (0, len(end)), tuple(spellings))
    return prompt._replace(before=healed)


def _word(
    request: _TokenizedRequest, choice: str, _: bytes, prompt: ChoicePrompt, span: Span
) -> ChoicePrompt:
    words = request.vocabulary
    if not words.marks_words:
        raise ModelError(
            "boundary:word needs tokens that mark where words begin; "
            "use boundary:bytes, or boundary:lcp if they mark where words end"
        )
    text_before = words.spelled(span.context[-1:].tolist())
    first_text = words.spelled(span.continuation[:1].tolist())
    if first_text[:1].isspace():
        begins = words.spaced
    elif not text_before or text_before[-1:].isspace():
        begins = words.unspaced
    else:
        return prompt.refused(
            f"continuation {choice!r} begins inside a word; boundary:word needs a new one"
        )
    prompt = prompt._replace(before=Mass(span.context, begins))
    last_text = words.spelled(span.continuation[-1:].tolist())
    # A continuation that ends with white space ends its last word itself.
    if last_text[-1:].isspace():
        return prompt
    tokens = np.concatenate([span.context, span.continuation])
    return prompt._replace(after=Mass(tokens, words.spaced, span.gold))


CORRECTIONS: dict[str, _Correction] = {"heal": _heal, "word": _word, "bytes": _bytes}
"""How the policies that go beyond ``lcp`` change its prompts.

All three start from the tokens ``t`` that the texts of a request share (``lcp``), and from the end
of the context that is not among them: the bytes ``r``, none if no token straddles the end of the
context.  They need to know which bytes are scored, so a choice whose tokens do not spell its text
is missing under them.
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
    """Return the prompts of every continuation of many requests, a list per request.

    ``golds`` are the indices of right continuations.  Every text that is new to ``encodings`` is
    encoded, in a few calls.

    Besides those above, ``policy`` may be ``apart``: the tokens that context and continuation each
    have alone, without a dummy space.  Raises ModelError if the tokenizer appends tokens to every
    text, or if an empty context has no prefix token, and ProtocolError for any other ``policy``.
    """
    if policy not in (*BOUNDARIES, *LABELLED, APART):
        raise ProtocolError(
            f"boundary is {policy!r}; it must be one of {', '.join((*BOUNDARIES, *LABELLED))}"
        )
    if policy == "moved-space":
        moved = []
        for context, choices in zip(contexts, continuations, strict=True):
            # White space that ends a context goes before each continuation that is not empty.
            space = context[len(context.rstrip()) :]
            moved.append([choice and space + choice for choice in choices])
        continuations = moved
        contexts = [context.rstrip() for context in contexts]
    all_choices = [choice for choices in continuations for choice in choices]
    if policy == "last-token":
        encodings.add_sequences(all_choices)
    if policy == APART:
        encodings.add_bare(all_choices)
    if policy in ("separate", "last-token", "label-alone"):
        encodings.add_plain(all_choices)
    requests = _tokenized_requests(encodings, contexts, continuations)
    if policy == "label":
        encodings.add_plain(text for request in requests for text in request.labelled)
    return [
        _choice_prompts(policy, request, gold)
        for request, gold in zip(requests, golds, strict=True)
    ]


class ChoicePrompt(NamedTuple):
    """What a model scores for one choice.

    ``span`` is None exactly if ``missing`` says why.  ``merged``: the context's tokens are no
    prefix of the tokens of the whole text.  ``unknown``: unknown tokens among the scored ones.
    ``tokens_dropped``: tokens cut off to fit the window.  ``before`` is subtracted (how the context
    goes on anyway), ``after`` added (what may follow).  ``noncanonical``: context and continuation
    together are not the tokenizer's own tokens of the whole text.  ``lossy``: the scored tokens do
    not spell the end of the text.  ``bos``: BOS tokens in context and continuation.  ``parts``:
    further spans of a reading about the choice, None for one that is not needed here.
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

    def prompts(self) -> Iterator[Span | Mass | ByteProbability]:
        """Yield the span and its corrections, as far as there are any."""
        for prompt in (self.span, self.before, self.after):
            if prompt is not None:
                yield prompt

    @property
    def inputs(self) -> int:
        """Return the number of input tokens of the longest prompt, 0 without prompts."""
        if self.span is None:
            return 0
        # Nearly all choices have no correction, and there are millions of them.
        if self.before is None and self.after is None:
            return self.span.inputs
        return max(prompt.inputs for prompt in self.prompts())

    def scored_bytes(self, tokenizer: Tokenizer) -> bytes:
        """Return the bytes that the scored tokens spell, none if the choice is missing."""
        if not isinstance(self.span, Span):
            return b""
        return b"".join(tokenizer.token_bytes[token] for token in self.span.continuation.tolist())

    def refused(self, reason: str) -> ChoicePrompt:
        """Return the prompt of a choice that can't be scored for this ``reason``."""
        return self._replace(span=None, before=None, after=None, parts=(), missing=reason)

    def without(self, dropped: int) -> ChoicePrompt:
        """Return the prompt after a context that lacks its first ``dropped`` tokens."""
        return self._replace(
            span=self.span and without(self.span, dropped),
            before=self.before and without(self.before, dropped),
            after=self.after and without(self.after, dropped),
            tokens_dropped=dropped,
        )


def char_spans(
    encodings: Encodings, context: str, continuation: str, gold: bool | None
) -> ChoicePrompt:
    """Locate the tokens that hold a byte of ``continuation`` in the two texts encoded as one.

    A token that straddles the boundary is scored as a whole, because a probability can't be split,
    and flagged ``merged``.  Missing if the tokens don't spell the continuation, for example of a
    tokenizer that lower-cases.
    """
    tokenizer = encodings.tokenizer
    tokens, prefix = encodings.contexts([context + continuation, ""])
    ends, spelled = _spelled(tokenizer, tokens)
    text = continuation.encode()
    if not text or not spelled.endswith(text):
        return ChoicePrompt(None, missing=_misspelt(continuation))
    start = len(spelled) - len(text)
    first = int(np.searchsorted(ends, start, side="right"))
    scored = tokens[first:]
    if first:
        before = tokens[:first]
        merged = bool(ends[first - 1] < start)
    else:
        before = prefix
        merged = start > 0
    return ChoicePrompt(Span(before, scored, gold), merged, count(scored, tokenizer.unknown_id))


def package_spans(
    encodings: Encodings, context: str, continuation: str, gold: bool | None
) -> ChoicePrompt:
    """Locate the tokens that the package surprisal picks: ``surprise(context +
    continuation)[start:stop, "char"]``.

    It puts a BOS before whatever the tokenizer adds itself, so that there are two with a tokenizer
    that adds one.  The span begins with the last token that starts at or before the continuation's
    first character, and ends with the first one that ends at or after its last; of a character of
    several tokens some are left out by that.  Source: aalok-sathe/surprisal model.py@6ea34a7,
    utils.py@02b1d93; the characters of a token are those that its bytes belong to, while the
    package asks the tokenizer's offsets.
    """
    tokenizer = encodings.tokenizer
    if tokenizer.bos_id is None:
        return ChoicePrompt(
            None, missing="the package surprisal needs a BOS, but the tokenizer has none"
        )
    text = context + continuation
    (tokens,) = encodings.contexts([text])
    ends, spelled = _spelled(tokenizer, tokens)
    if not continuation or not spelled.endswith(text.encode()):
        return ChoicePrompt(None, missing=_misspelt(text))
    # A dummy space before the text has no character of it.
    ends -= len(spelled) - len(text.encode())
    char_of = np.repeat(np.arange(len(text)), [len(char.encode()) for char in text])
    first = 0
    last = len(tokens)
    for index, (token, end) in enumerate(zip(tokens.tolist(), ends.tolist(), strict=True)):
        start = end - len(tokenizer.token_bytes[token])
        # Special tokens have no characters.
        if start == end:
            continue
        if start <= 0 or char_of[start] <= len(context):
            first = index
        if end > 0 and char_of[end - 1] + 1 >= len(text):
            last = index + 1
            break
    before = np.concatenate([[tokenizer.bos_id], tokens[:first]]).astype(np.int32)
    scored = tokens[first:last]
    start_of_scored = int(ends[last - 1]) - sum(
        len(tokenizer.token_bytes[token]) for token in scored
    )
    merged = start_of_scored < len(context.encode())
    return ChoicePrompt(Span(before, scored, gold), merged, count(scored, tokenizer.unknown_id))


def ends_before(span: Span, eos_id: int) -> list[Span]:
    """Return spans that give P(EOS) in place of every scored token of ``span``.

    They are rows of the same forward pass, so they cost no token.
    """
    tokens = np.concatenate([span.context, span.continuation])
    eos = np.asarray([eos_id], dtype=np.int32)
    lengths = range(len(span.context), len(tokens))
    return [Span(tokens[:length], eos) for length in lengths]


def select_spans(
    encodings: Encodings, context: str, continuation: str, gold: bool | None
) -> ChoicePrompt:
    """Locate the tokens that ``select`` scores.

    The ``parts`` are the token that it subtracts, and the scored tokens after the first alone.

    It asks the server for the log-probabilities of ``prompt + choice`` from the prompt's last token
    on, in case that token changed with what follows ("token healing"), and subtracts that token
    again if the prompt's text ends with the token's text (sglang 0.4.2,
    ``lang/backend/runtime_endpoint.py``, ``RuntimeEndpoint.select``).

    The text of a token is what it decodes to by itself, so one that holds a part of a character is
    never subtracted, and one that changed but still ends the prompt is.  The server gives no number
    for the first token of a sequence, so of a prompt of two tokens the last is scored.  Missing if
    ``select`` stops: no token of the choice remains, or it would subtract the first token of the
    sequence.
    """
    tokenizer = encodings.tokenizer
    if not continuation:
        return ChoicePrompt(None, missing="continuation '' leaves select no token to score")
    prompt, joined = encodings.contexts([context, context + continuation])
    last = 0
    if len(prompt) > 2:
        last = len(prompt) - 1
    healed = joined[last : last + 1]
    text_of_healed = tokenizer.decode(healed)
    if encodings.has_dummy_space:
        text_of_healed = text_of_healed.removeprefix(" ")
    # A BOS is text to the server, but not to a prompt.
    stands_for_bytes = any(tokenizer.token_bytes[token] for token in healed)
    subtracts = stands_for_bytes and context.endswith(text_of_healed)
    if subtracts and not last:
        missing = f"the prompt {context!r} is too short: select goes back two tokens"
        return ChoicePrompt(None, missing=missing)
    first = max(last, 1)
    removed = None
    if subtracts:
        first = last + 1
        removed = Span(joined[:last], healed)
    scored = joined[first:]
    merged = common_prefix([prompt, joined]) < len(prompt)
    if not len(scored):
        return ChoicePrompt(
            None, merged, missing=f"continuation {continuation!r} leaves select no token to score"
        )
    alone = None
    if len(scored) > 1:
        alone = Span(scored[:1], scored[1:])
    return ChoicePrompt(
        Span(joined[:first], scored, gold),
        merged,
        count(scored, tokenizer.unknown_id),
        bos=count(joined, tokenizer.bos_id),
        parts=(removed, alone),
    )


def fit_span(choice: ChoicePrompt, window: int, *, cut_start: bool) -> ChoicePrompt:
    """Return ``choice`` for a model with ``window`` input tokens.

    The last token is never an input, so ``window + 1`` tokens fit.  With ``cut_start`` the start of
    the context is cut as in lm-evaluation-harness (``lm_eval/models/huggingface.py``
    ``_loglikelihood_tokens``) and counted in ``tokens_dropped``; otherwise a span that is too long
    is missing, with the reason.
    """
    # A choice that was refused before keeps its first reason.
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
    """Return the ``room`` tokens of ``context`` that are kept, and how many were cut off.

    If its ``start`` is cut, the last tokens are kept, as in lm-evaluation-harness for generations
    (``lm_eval/models/huggingface.py`` ``generate_until``); else the first ones, as in HELM
    (``local_window_service.py`` ``truncate_from_right``).
    """
    dropped = max(len(context) - max(room, 0), 0)
    if start:
        return context[dropped:], dropped
    return context[: len(context) - dropped], dropped


def without(prompt: _Scored, dropped: int) -> _Scored:
    """Return ``prompt`` after a context that lacks its first ``dropped`` tokens."""
    return replace(prompt, context=prompt.context[dropped:])


@dataclass(eq=False, kw_only=True)
class _TokenizedRequest:
    """The texts of one request and their tokens.

    ``context``: those of the context alone.  The first ``stem`` of them begin all joined texts (the
    context with each choice), too, and those of its last line, ``tail``, do not depend on what
    comes before.  ``ends``: the tokens after the stem, of the context alone, then of every joined
    text.
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
        """Return the tokens of the context after the last one that stands for no bytes, and their
        text.
        """
        token_bytes = self.encodings.tokenizer.token_bytes
        start = len(self.context)
        while start and token_bytes[self.context[start - 1]]:
            start -= 1
        tokens = self.context[start:]
        return tokens, self.encodings.tokenizer.decode(tokens)

    @property
    def labelled(self) -> list[str]:
        """Return the text of :attr:`turn` with each choice after it, and an empty text for an empty
        choice.
        """
        _, text = self.turn
        return [choice and text + choice for choice in self.choices]

    def after_shared(self) -> list[Ids]:
        """Return the tokens after the shared ones: of the context alone, then of every joined text."""
        return [tokens[self.shared :] for tokens in self.ends]

    def context_end(self, index: int) -> bytes | None:
        """Return the bytes of the context after the shared tokens of a choice, None if its tokens
        lose text.
        """
        spelled = self.vocabulary.spelled(self.after_shared()[1 + index].tolist())
        choice = self.choices[index].encode()
        context = self.context_text.encode()
        if not spelled.endswith(choice):
            return None
        end = spelled[: len(spelled) - len(choice)]
        # A tokenizer that puts a dummy space before every text also does so if all of the text is
        # scored.
        if context.endswith(end) or end == b" " + context:
            return end
        return None


_Correction = Callable[[_TokenizedRequest, str, bytes, ChoicePrompt, Span], ChoicePrompt]
"""From a request, a choice, the end of the context that is not shared, and the choice's prompt
under ``lcp``.
"""


@dataclass(slots=True, eq=False)
class _Located:
    """The prompt of a choice after any context with the same end.

    ``before``: how many tokens of the context's own come between its stem and the scored tokens, or
    tokens in their place.  ``continuation``: the scored tokens, of no use if the prompt is missing.
    ``prompt``: the prompt without its span; its ``bos`` counts after the stem.
    """

    before: int | Ids
    continuation: Ids
    prompt: ChoicePrompt


def _choice_prompts(
    policy: str, request: _TokenizedRequest, gold: Sequence[int]
) -> list[ChoicePrompt]:
    # Choices share the array of their context, which is then hashed and kept once.
    contexts = {len(request.ends[0]): request.context}
    lossy = request.encodings.is_lossy(request.context_text)
    bos_of_stem = count(request.context[: request.stem], request.encodings.tokenizer.bos_id)
    prompts = []
    for index, located in enumerate(_located_choices(policy, request)):
        prompt = located.prompt
        if prompt.missing is not None:
            prompts.append(prompt)
            continue
        before = located.before
        if not isinstance(before, int):
            context = np.concatenate([request.context[: request.stem], before])
        elif before in contexts:
            context = contexts[before]
        else:
            context = contexts[before] = request.context[: request.stem + before]
        span = Span(context, located.continuation, index in gold)
        # Much faster than ``_replace``.
        prompt = ChoicePrompt(
            span,
            prompt.merged,
            prompt.unknown,
            noncanonical=prompt.noncanonical,
            lossy=lossy or prompt.lossy,
            bos=bos_of_stem + prompt.bos,
        )
        if policy in CORRECTIONS:
            prompt = _corrected(policy, request, index, prompt, span)
        prompts.append(prompt)
    return prompts


def _corrected(
    policy: str, request: _TokenizedRequest, index: int, prompt: ChoicePrompt, span: Span
) -> ChoicePrompt:
    choice = request.choices[index]
    end = request.context_end(index)
    if prompt.unknown or end is None:
        needs = f"which boundary:{policy} needs"
        return prompt.refused(
            f"the tokens of continuation {choice!r} do not spell its text, {needs}"
        )
    return CORRECTIONS[policy](request, choice, end, prompt, span)


def _located_choices(policy: str, request: _TokenizedRequest) -> list[_Located]:
    """Locate every choice of ``request``, once for all contexts with the same end."""
    turn = ""
    if policy == "label":
        turn = request.turn[1]
    remembered = request.encodings.located
    key = policy, request.stem > 0, request.tail, turn, request.choices
    if key not in remembered:
        located = []
        for choice, joined, (before, continuation) in zip(
            request.choices, request.ends[1:], _pairs(policy, request), strict=True
        ):
            # A copy, because a part of an array keeps all of it in memory.
            located.append(_located(policy, request, choice, joined, before, continuation.copy()))
        if policy in LABELLED:
            located = _labels(policy, request, located)
        remembered[key] = located
    choices: list[_Located] = remembered[key]
    return choices


def _located(
    policy: str,
    request: _TokenizedRequest,
    choice: str,
    joined: Ids,
    before: int | Ids,
    continuation: Ids,
) -> _Located:
    tokenizer = request.encodings.tokenizer
    context = request.ends[0]
    # Comparing bytes is several times faster than comparing short arrays.
    merged = not joined.tobytes().startswith(context.tobytes())
    if not choice or not len(continuation):
        reason = "leaves nothing to score: it has no tokens"
        if policy == APART:
            reason = "has no tokens without a space before it, which its null context holds"
        elif choice and merged:
            reason = "leaves nothing to score: its characters merge into the context's tokens"
        missing = ChoicePrompt(None, merged, missing=f"continuation {choice!r} {reason}")
        return _Located(before, continuation, missing)
    tokens_before = before
    if isinstance(tokens_before, int):
        tokens_before = context[:tokens_before]
    tokens = np.concatenate([tokens_before, continuation])
    canonical = tokens.tobytes().endswith(joined.tobytes())
    spelled = request.encodings.lossless and (canonical or policy in _END_OF_JOINED)
    prompt = ChoicePrompt(
        None,
        merged,
        count(continuation, tokenizer.unknown_id),
        noncanonical=not canonical,
        lossy=not (spelled or spells(tokenizer, continuation, request.tail, choice)),
        bos=count(tokens, tokenizer.bos_id),
    )
    return _Located(before, continuation, prompt)


def _labels(policy: str, request: _TokenizedRequest, located: Sequence[_Located]) -> list[_Located]:
    """Refuse every choice that is no label: not one token, an unknown one, or that of another
    continuation.
    """
    where = "after the end of the prompt"
    if policy == "label-alone":
        where = "by itself"
    choices_of_token: dict[bytes, list[str]] = {}
    for choice, label in zip(request.choices, located, strict=True):
        choices_of_token.setdefault(label.continuation.tobytes(), []).append(choice)
    labels = []
    for choice, label in zip(request.choices, located, strict=True):
        same = choices_of_token[label.continuation.tobytes()]
        others = [text for text in same if text != choice]
        if choice and len(label.continuation) != 1:
            problem = f"is no single token {where}"
        elif label.prompt.missing is None and others:
            problem = f"shares its token with {others[0]!r} {where}"
        elif label.prompt.missing is None and label.prompt.unknown:
            problem = f"is an unknown token {where}"
        else:
            labels.append(label)
            continue
        reason = f"label {choice!r} {problem}: it can't be served as one"
        labels.append(replace(label, prompt=label.prompt.refused(reason)))
    return labels


def _pairs(policy: str, request: _TokenizedRequest) -> list[tuple[int | Ids, Ids]]:
    """Return for every choice what precedes it (:attr:`_Located.before`), and its own tokens."""
    size = len(request.ends[0])
    joined = request.ends[1:]
    encodings = request.encodings
    match policy:
        case "joint" | "moved-space":
            return [(size, tokens[size:]) for tokens in joined]
        # minicons counts the tokens of the context in the joined text, whatever they are.
        case "count":
            return [_counted(request.ends[0], tokens) for tokens in joined]
        case "separate" | "label-alone":
            return [(size, encodings.plain[choice]) for choice in request.choices]
        case "last-token":
            return [(size, _last_token(encodings, choice)) for choice in request.choices]
        case "label":
            turn, _ = request.turn
            return [(size, _grown(turn, encodings.plain[text])) for text in request.labelled]
        case "apart":
            return [(size, encodings.bare[choice]) for choice in request.choices]
    shared = request.shared
    before: int | Ids = shared
    if not request.stem and not shared:
        # Not even the first token is common, so all of every text is scored after the prefix token.
        before = encodings.prefix_token
    return [(before, tokens[shared:]) for tokens in joined]


def _counted(context: Ids, joined: Ids) -> tuple[int | Ids, Ids]:
    size = len(context)
    if np.array_equal(joined[:size], context):
        return size, joined[size:]
    return joined[:size], joined[size:]


def _last_token(encodings: Encodings, choice: str) -> Ids:
    # A text without tokens of its own has no last one: its sequence ends with the BOS.
    if not len(encodings.plain[choice]):
        return encodings.sequences[choice][:0]
    return encodings.sequences[choice][-1:]


def _grown(turn: Ids, tokens: Ids) -> Ids:
    """Return the tokens after those of ``turn``, none if ``tokens`` do not begin with them."""
    if not np.array_equal(tokens[: len(turn)], turn):
        return tokens[:0]
    return tokens[len(turn) :]


def _spelled(tokenizer: Tokenizer, tokens: Ids) -> tuple[npt.NDArray[np.int64], bytes]:
    """Return where every token ends, in bytes, and the bytes of all."""
    pieces = [tokenizer.token_bytes[token] for token in tokens]
    return np.cumsum([len(piece) for piece in pieces], dtype=np.int64), b"".join(pieces)


def _misspelt(text: str) -> str:
    if not text:
        return "it has no text"
    return f"the tokens do not spell {text!r}, so it has no character span"


def _beginnings(words: Vocabulary, tokens: Ids, text: bytes) -> Iterator[Spelling]:
    """Yield the first tokens, none at first, then one more each time, while they spell a true
    beginning of ``text``.
    """
    for length in range(len(tokens)):
        spelling = tuple(tokens[:length].tolist())
        spelled = words.spelled(spelling)
        if spelled == text or not text.startswith(spelled):
            return
        yield spelling


def _tokenized_requests(
    encodings: Encodings, contexts: Sequence[str], continuations: Sequence[Sequence[str]]
) -> list[_TokenizedRequest]:
    encodings.add_sequences(contexts)
    continued = encodings.continued(contexts, continuations)
    sequences: list[str] = []
    plain: list[str] = []
    for context, choices, rest in zip(contexts, continuations, continued, strict=True):
        if rest is not None:
            continue
        if context:
            sequences.extend(context + choice for choice in choices)
        else:
            plain.extend(choices)
    encodings.add_joined(sequences)
    encodings.add_plain(plain)
    requests = []
    for text, choices, rest in zip(contexts, continuations, continued, strict=True):
        context_tokens = encodings.context(text)
        if rest is None:
            tail = text
            ends = [context_tokens, *(encodings.joined(text, choice) for choice in choices)]
        else:
            tail, ends = rest
        request = _TokenizedRequest(
            encodings=encodings,
            context_text=text,
            choices=tuple(choices),
            context=context_tokens,
            stem=len(context_tokens) - len(ends[0]),
            tail=tail,
            ends=ends,
        )
        requests.append(request)
    return requests
