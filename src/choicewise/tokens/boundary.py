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
from choicewise.tokens.tokenized_request import TokenizedRequest
from choicewise.tokens.tokenizer import Tokenizer, common_prefix, count


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
    encodings.add_sequences(context for context, _ in texts)
    encodings.add_sequences(context + choice for context, choices in texts for choice in choices)
    if policy == "last-token":
        encodings.add_sequences(choice for _, choices in texts for choice in choices)
    if policy == APART:
        encodings.add_bare(choice for _, choices in texts for choice in choices)
    alone = policy in ("separate", "last-token")
    encodings.add_plain(choice for context, choices in texts if alone or not context for choice in choices)
    return [_ask(policy, TokenizedRequest(encodings, *pair), gold) for pair, gold in zip(texts, golds, strict=True)]


def _with_space_moved(context: str, choices: Sequence[str]) -> tuple[str, Sequence[str]]:
    """The texts of a request with the white space that ends the context before every continuation that is not empty."""
    stripped = context.rstrip()
    space = context[len(stripped) :]
    return stripped, [space + choice if choice else "" for choice in choices]


def _ask(policy: str, request: TokenizedRequest, gold: Sequence[int]) -> list[ChoiceQuestion]:
    pairs = enumerate(_pairs(policy, request))
    questions = [_choice_question(request, index, *pair, gold=index in gold) for index, pair in pairs]
    if policy == APART:
        reason = "continuation {!r} has no tokens without a space before it, which its null context holds"
        named = zip(request.choices, questions, strict=True)
        return [each if each.span else each.refused(reason.format(choice)) for choice, each in named]
    if policy not in CORRECTIONS:
        return questions
    return [correct(policy, request, index, question) for index, question in enumerate(questions)]


def _choice_question(
    request: TokenizedRequest, index: int, context: Ids, continuation: Ids, *, gold: bool
) -> ChoiceQuestion:
    encodings, joined, choice = request.encodings, request.joined[index], request.choices[index]
    tokenizer, context_text = encodings.tokenizer, request.context_text
    merged = common_prefix([request.context, joined]) < len(request.context)
    if not choice or not len(continuation):
        merges = choice and merged
        reason = "its characters merge into the context's tokens" if merges else "it has no tokens"
        return ChoiceQuestion(None, merged, 0, missing=f"continuation {choice!r} leaves nothing to score: {reason}")
    tokens = np.concatenate([context, continuation])
    return ChoiceQuestion(
        Span(context, continuation, gold),
        merged,
        count(continuation, tokenizer.unknown_id),
        noncanonical=not np.array_equal(tokens[len(tokens) - len(joined) :], joined),
        lossy=encodings.is_lossy(context_text) or not spells(tokenizer, continuation, context_text, choice),
        bos=count(tokens, tokenizer.bos_id),
    )


def _pairs(policy: str, request: TokenizedRequest) -> list[tuple[Ids, Ids]]:
    """The tokens of context and continuation for every choice."""
    context, joined, encodings = request.context, request.joined, request.encodings
    match policy:
        case "joint" | "moved-space":
            return [(context, tokens[len(context) :]) for tokens in joined]
        case "separate":
            return [(context, encodings.plain[choice]) for choice in request.choices]
        case "count":
            return [(tokens[: len(context)], tokens[len(context) :]) for tokens in joined]
        case "last-token":
            # a text without tokens of its own has no last one: what it ends with as a sequence is the BOS
            plain, sequences = encodings.plain, encodings.sequences
            return [(context, sequences[choice][-1:][: len(plain[choice])]) for choice in request.choices]
        case "apart":
            return [(context, encodings.bare[choice]) for choice in request.choices]
    # where not even the first token is common, all of every text is scored after the prefix token
    context = context[: request.shared] if request.shared else encodings.prefix_token
    return [(context, tokens[request.shared :]) for tokens in joined]
