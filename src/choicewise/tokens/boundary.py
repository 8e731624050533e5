"""Where the context ends and the continuation begins, in tokens.

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

An empty continuation, or one without tokens, leaves nothing to score and is missing under all of them.
The formulae and when to use which: ``docs/design/boundaries.md``.
"""

from collections.abc import Sequence

import numpy as np

from choicewise.errors import ProtocolError
from choicewise.protocols.boundary import APART, BOUNDARIES
from choicewise.questions import Ids, Span
from choicewise.tokens.choice_question import ChoiceQuestion
from choicewise.tokens.correction import CORRECTIONS, correct
from choicewise.tokens.encodings import Encodings, spells
from choicewise.tokens.located import Located
from choicewise.tokens.tokenized_request import TokenizedRequest, tokenized_requests
from choicewise.tokens.tokenizer import Tokenizer, count

END_OF_JOINED = ("joint", "moved-space", "count", "lcp", *CORRECTIONS)
"""Policies that score the last tokens of context and continuation as one text."""


def choice_questions(
    tokenizer: Tokenizer, policy: str, bos: str, context: str, continuations: Sequence[str], gold: Sequence[int]
) -> list[ChoiceQuestion]:
    """How each of ``continuations`` is asked after ``context``; ``gold`` are the indices of right ones."""
    return choice_questions_batch(Encodings(tokenizer, bos), policy, [context], [continuations], [gold])[0]


def choice_questions_batch(
    encodings: Encodings,
    policy: str,
    contexts: Sequence[str],
    continuations: Sequence[Sequence[str]],
    golds: Sequence[Sequence[int]],
) -> list[list[ChoiceQuestion]]:
    """:func:`choice_questions` of many requests; every text that is new to ``encodings`` is encoded, in a few calls.

    Besides those above, ``policy`` may be ``apart``: the tokens that context and continuation each have alone, without
    a dummy space.  Raises ModelError when the tokenizer appends tokens to every text, or when an empty context has no
    prefix token, and ProtocolError for any other ``policy``.
    """
    if policy not in (*BOUNDARIES, APART):
        raise ProtocolError(f"boundary is {policy!r}; it must be one of {', '.join(BOUNDARIES)}")
    texts = list(zip(contexts, continuations, strict=True))
    if policy == "moved-space":
        texts = [_with_space_moved(*pair) for pair in texts]
    if policy == "last-token":
        encodings.add_sequences(choice for _, choices in texts for choice in choices)
    if policy == APART:
        encodings.add_bare(choice for _, choices in texts for choice in choices)
    if policy in ("separate", "last-token"):
        encodings.add_plain(choice for _, choices in texts for choice in choices)
    requests = tokenized_requests(encodings, [context for context, _ in texts], [choices for _, choices in texts])
    return [_ask(policy, request, gold) for request, gold in zip(requests, golds, strict=True)]


def _with_space_moved(context: str, choices: Sequence[str]) -> tuple[str, Sequence[str]]:
    """The texts of a request with the white space that ends the context before every continuation that is not empty."""
    stripped = context.rstrip()
    space = context[len(stripped) :]
    return stripped, [space + choice if choice else "" for choice in choices]


def _ask(policy: str, request: TokenizedRequest, gold: Sequence[int]) -> list[ChoiceQuestion]:
    remembered, key = request.encodings.located, (policy, request.stem > 0, request.tail, request.choices)
    if (located := remembered.get(key)) is None:
        located = remembered[key] = _locate(policy, request)
    contexts = {len(request.ends[0]): request.context}  # choices share the array
    lossy = request.encodings.is_lossy(request.context_text)
    bos = count(request.context[: request.stem], request.encodings.tokenizer.bos_id)
    questions = []
    for index, each in enumerate(located):
        if each.missing is not None:
            questions.append(ChoiceQuestion(None, each.merged, missing=each.missing))
            continue
        context = _context(request, each.before, contexts)
        span = Span(context, each.continuation, index in gold)
        choice = ChoiceQuestion(
            span,
            each.merged,
            each.unknown,
            noncanonical=each.noncanonical,
            lossy=lossy or each.lossy,
            bos=bos + each.bos,
        )
        questions.append(choice)
    if policy not in CORRECTIONS:
        return questions
    return [correct(policy, request, index, question) for index, question in enumerate(questions)]


def _context(request: TokenizedRequest, before: int | Ids, contexts: dict[int, Ids]) -> Ids:
    if not isinstance(before, int):
        return np.concatenate([request.context[: request.stem], before])
    if before not in contexts:
        contexts[before] = request.context[: request.stem + before]
    return contexts[before]


def _locate(policy: str, request: TokenizedRequest) -> list[Located]:
    """Where the scored tokens of every choice are."""
    parts = zip(request.choices, request.ends[1:], _pairs(policy, request), strict=True)
    return [  # copies, as a part of an array keeps all of it in memory
        _located(policy, request, choice, joined, before, continuation.copy())
        for choice, joined, (before, continuation) in parts
    ]


def _located(
    policy: str, request: TokenizedRequest, choice: str, joined: Ids, before: int | Ids, continuation: Ids
) -> Located:
    tokenizer, own = request.encodings.tokenizer, request.ends[0]
    merged = not joined.tobytes().startswith(own.tobytes())
    if not choice or not len(continuation):
        return Located(before, continuation, merged, missing=_nothing_to_score(policy, choice, merged))
    tokens = np.concatenate([own[:before] if isinstance(before, int) else before, continuation])
    canonical = tokens.tobytes().endswith(joined.tobytes())
    spelled = request.encodings.lossless and (canonical or policy in END_OF_JOINED)
    return Located(
        before,
        continuation,
        merged,
        count(continuation, tokenizer.unknown_id),
        noncanonical=not canonical,
        lossy=not (spelled or spells(tokenizer, continuation, request.tail, choice)),
        bos=count(tokens, tokenizer.bos_id),
    )


def _nothing_to_score(policy: str, choice: str, merged: bool) -> str:
    if policy == APART:
        return f"continuation {choice!r} has no tokens without a space before it, which its null context holds"
    reason = "its characters merge into the context's tokens" if choice and merged else "it has no tokens"
    return f"continuation {choice!r} leaves nothing to score: {reason}"


def _pairs(policy: str, request: TokenizedRequest) -> list[tuple[int | Ids, Ids]]:
    """For every choice the tokens before it, as in :class:`Located`, and its own."""
    size, joined, encodings = len(request.ends[0]), request.ends[1:], request.encodings
    match policy:
        case "joint" | "moved-space":
            return [(size, tokens[size:]) for tokens in joined]
        case "separate":
            return [(size, encodings.plain[choice]) for choice in request.choices]
        case "count":
            own = request.ends[0]
            same = [np.array_equal(tokens[:size], own) for tokens in joined]
            return [(size if kept else tokens[:size], tokens[size:]) for kept, tokens in zip(same, joined, strict=True)]
        case "last-token":
            # a text without tokens of its own has no last one: what it ends with as a sequence is the BOS
            plain, sequences = encodings.plain, encodings.sequences
            return [(size, sequences[choice][-1:][: len(plain[choice])]) for choice in request.choices]
        case "apart":
            return [(size, encodings.bare[choice]) for choice in request.choices]
    # where not even the first token is common, all of every text is scored after the prefix token
    shared = request.shared
    before = shared if request.stem + shared else encodings.prefix_token
    return [(before, tokens[shared:]) for tokens in joined]
