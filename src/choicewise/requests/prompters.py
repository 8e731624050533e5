"""What each reading asks about a request: the table of askers, their forms, and who uses them.

A form is what is asked about scored tokens: a span, the model's own loss, blanks or a rendition.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations

import numpy as np

from choicewise import ports
from choicewise.data.decisions import DESCRIPTIONS, kind_of, read_typed, typed_beside, typed_text
from choicewise.errors import DataError, ModelError, ProtocolError, UnusableRow
from choicewise.protocols.protocol import COUNTING, Protocol
from choicewise.questions import (
    Blanks,
    Cosine,
    Decision,
    MaskedLoss,
    Rendition,
    SetSpan,
    Span,
    TypedQuestion,
)
from choicewise.requests.generated import (
    AlongPrompter,
    ChainOfThoughtPrompter,
    GeneratePrompter,
    refused_inside,
)
from choicewise.requests.request import (
    Answerer,
    BlockPrompt,
    ChoiceGroup,
    FittedRequest,
    PreparedBlock,
    Prompter,
    PromptRows,
    Request,
    fit_requests,
    longest,
    longest_after_query,
    one_context,
)
from choicewise.tokens.boundary import (
    ChoicePrompt,
    char_spans,
    choice_prompts_batch,
    ends_before,
    fit_span,
    package_spans,
    select_spans,
)
from choicewise.tokens.encode import Encodings
from choicewise.tokens.tokenizer import Tokenizer, common_prefix
from choicewise.util.jsonio import exact_json

OTHER_TEXT = "a token straddles the end of the context or of the null context, so that they have other text scored"
_EMPTY = "an empty choice has no hidden state of its own to compare"


def _shared_context(request: Request, context: str) -> list[ChoiceGroup]:
    """All choices after the fitted ``context``, which ends with the query, and again after each further view."""
    if request.proposals:
        return _own_contexts(
            request, context, lambda parts, right: tuple(range(parts)) if right else ()
        )
    groups = [one_context(request, context)]
    for number, view in enumerate(request.views, start=1):
        right = (
            request.gold if view.content else ()
        )  # an oracle knows nothing of what has no content
        places = tuple((choice, number) for choice in range(len(view.continuations)))
        shown = replace(request, query=view.query).context()
        groups.append(ChoiceGroup(shown, True, view.continuations, places, right))
    return groups


def _own_contexts(
    request: Request, _: str, preferred: Callable[[int, bool], tuple[int, ...]]
) -> list[ChoiceGroup]:
    """The parts of each choice after the fitted request's context and the choice's own proposal.

    ``preferred``: from how many parts a choice has, and whether it is right, to those that an oracle prefers.
    """
    groups = []
    for choice, (proposal, parts) in enumerate(zip(request.proposals, request.parts, strict=True)):
        places = tuple((choice, part) for part in range(len(parts)))
        gold = preferred(len(parts), choice in request.gold)
        groups.append(ChoiceGroup(request.context(proposal=proposal), True, parts, places, gold))
    return groups


@dataclass(frozen=True)
class Form:
    """What is asked about each continuation as it is located; by itself a span, whose last token is no input.

    ``reserve``: the input tokens that must stay free after a context which a text of so many tokens follows.
    ``about``: the question, from the span, its choice and the texts of context and continuation.
    """

    reserve: Callable[[Encodings, int], int] = lambda encodings, tokens: tokens - 1
    about: Callable[[Span, ChoicePrompt, Encodings, tuple[str, str]], BlockPrompt] = (
        lambda span, *_: span
    )

    def fit(
        self, choice: ChoicePrompt, limit: int, encodings: Encodings, *, cut_start: bool
    ) -> ChoicePrompt:
        """``choice`` as a model with ``limit`` input tokens can answer it, or refused."""
        return fit_span(choice, limit - 1 - self.reserve(encodings, 0), cut_start=cut_start)

    def question(
        self, choice: ChoicePrompt, encodings: Encodings, context: str, continuation: str
    ) -> BlockPrompt | None:
        """The question about ``choice``, the ``continuation`` after the ``context``; None where it is missing."""
        span = choice.span
        return (
            self.about(span, choice, encodings, (context, continuation))
            if isinstance(span, Span)
            else span
        )


@dataclass(frozen=True)
class ChoicePrompter(Prompter):
    """Asks for the continuations of every choice.

    ``groups``: from a request and its fitted context to which texts are scored after which contexts.
    ``locate``: from encodings, context, continuation and whether it is gold to the scored tokens; None for the
    protocol's boundary policy.  ``form``: what is asked about these tokens.  ``parts``: what else is asked about a
    choice: (part, text, span).  ``check``: ProtocolError for tokens that the reading can't use.
    """

    groups: Callable[[Request, str], list[ChoiceGroup]] = _shared_context
    locate: Callable[[Encodings, str, str, bool | None], ChoicePrompt] | None = None
    form: Form = Form()
    parts: Callable[[ChoicePrompt, Tokenizer], Iterator[tuple[int, str, Span]]] = (
        lambda choice, tokenizer: iter(())
    )
    check: Callable[[Protocol, ChoiceGroup, Sequence[ChoicePrompt]], None] | None = None

    def texts(self, request: Request) -> list[ChoiceGroup]:
        """Those of every choice."""
        return self.groups(request, request.context())

    def reserve(self, prompt: PromptRows, requests: Sequence[Request]) -> list[int]:
        """What the longest text after the query takes."""
        longest = longest_after_query(prompt.encodings, requests)
        return [self.form.reserve(prompt.encodings, tokens) for tokens in longest]

    def add_prompts(self, prompt: PromptRows, fitted: Sequence[FittedRequest]) -> None:
        """One question per continuation of every group."""
        chosen = [
            replace(each.request, shots=each.request.shots[: each.shots])
            if each.shots_dropped
            else each.request
            for each in fitted
        ]
        grouped = [
            self.groups(request, each.context) for request, each in zip(chosen, fitted, strict=True)
        ]
        kept = [
            place
            for place, (each, groups) in enumerate(zip(fitted, grouped, strict=True))
            if not refused_inside(prompt, each, {group.context for group in groups})
        ]
        fitted, grouped = [fitted[place] for place in kept], [grouped[place] for place in kept]
        policy = prompt.protocol.boundary
        located = iter(
            self._locate(prompt, [group for groups in grouped for group in groups], policy)
        )
        for each, groups in zip(fitted, grouped, strict=True):
            choices_of = [next(located) for _ in groups]
            prompt.add_request(
                each, max(choice.tokens_dropped for choices in choices_of for choice in choices)
            )
            for group, choices in zip(groups, choices_of, strict=True):
                if self.check is not None:
                    self.check(prompt.protocol, group, choices)
                item, context = each.request.item.id, group.context if group.own else None
                for place, text, choice in zip(
                    group.places, group.continuations, choices, strict=True
                ):
                    question = self.form.question(choice, prompt.encodings, group.context, text)
                    prompt.add_span(
                        item, place, question, context=context, continuation=text, choice=choice
                    )
                    for part, said, span in self.parts(choice, prompt.encodings.tokenizer):
                        prompt.add_span(
                            item, (place[0], part), span, context=context, continuation=said
                        )

    def add_null_prompts(self, prompt: PromptRows, null: str, requests: Sequence[Request]) -> None:
        """The same groups after the ``null`` context, each distinct one located once in a block."""
        ends = null != null.rstrip()  # only then it matters how a context ends
        own = [self.groups(request, request.context() if ends else "") for request in requests]
        grouped = [[group.after(null) for group in groups] for groups in own]
        how = self, prompt.protocol.boundary, prompt.protocol.bos, prompt.limit, prompt.protocol.fit
        located = prompt.block.null_choices.setdefault(
            how, {}
        )  # other prompts have the same choices
        distinct = dict.fromkeys(
            group for groups in grouped for group in groups if group not in located
        )
        for policy in dict.fromkeys(group.policy(prompt.protocol.boundary) for group in distinct):
            chosen = [
                group for group in distinct if group.policy(prompt.protocol.boundary) == policy
            ]
            located.update(zip(chosen, self._locate(prompt, chosen, policy), strict=True))
        for request, groups in zip(requests, grouped, strict=True):
            for number, group in enumerate(groups):
                choices = located[group]
                if prompt.protocol.boundary in COUNTING and group.may_differ(choices):
                    after_own = self.groups(request, request.context())[number]
                    (asked,) = self._locate(prompt, [after_own], prompt.protocol.boundary)
                    choices = comparable(asked, choices, prompt.encodings.tokenizer)
                for place, text, choice in zip(
                    group.places, group.continuations, choices, strict=True
                ):
                    question = self.form.question(choice, prompt.encodings, null, text)
                    prompt.add_span(
                        request.item.id,
                        place,
                        question,
                        null=null,
                        continuation=text,
                        choice=choice,
                    )

    def _locate(
        self, prompt: PromptRows, groups: Sequence[ChoiceGroup], policy: str
    ) -> list[list[ChoicePrompt]]:
        """The tokens of every choice that are scored, cut or refused where they do not fit the window."""
        protocol, encodings, locate = prompt.protocol, prompt.encodings, self.locate
        contexts, texts = (
            [group.context for group in groups],
            [group.continuations for group in groups],
        )
        golds = [group.gold for group in groups]
        if locate is None:
            located = choice_prompts_batch(encodings, policy, contexts, texts, golds)
        else:
            located = [
                [
                    locate(encodings, context, choice, index in gold)
                    for index, choice in enumerate(choices)
                ]
                for context, choices, gold in zip(contexts, texts, golds, strict=True)
            ]
        limit, cut_start = prompt.limit, protocol.fit == "cut-start"
        return [
            [self.form.fit(choice, limit, encodings, cut_start=cut_start) for choice in choices]
            for choices in located
        ]


def comparable(
    own: Sequence[ChoicePrompt], null: Sequence[ChoicePrompt], tokenizer: Tokenizer
) -> list[ChoicePrompt]:
    """``null``, those refused that score other text after their null context than after their ``own`` context.

    For the policies :data:`~choicewise.protocols.protocol.COUNTING`, where a token that straddles the end of one of the
    contexts takes text away from the choice.
    """
    merged = [one.merged or other.merged for one, other in zip(own, null, strict=True)]
    return [
        other.refused(OTHER_TEXT)
        if differ and one.scored_bytes(tokenizer) != other.scored_bytes(tokenizer)
        else other
        for one, other, differ in zip(own, null, merged, strict=True)
    ]


class _RenditionForm(Form):
    """The context, in what the tokenizer encloses it with, for the encoder; the continuation for the decoder."""

    def fit(
        self, choice: ChoicePrompt, limit: int, encodings: Encodings, *, cut_start: bool
    ) -> ChoicePrompt:
        """Each of the two texts within ``limit``; the context's start is cut as in lm-evaluation-harness."""
        if not isinstance(choice.span, Span):
            return choice
        if (tokens := len(choice.span.continuation)) > limit:
            return choice.refused(
                f"a continuation of {tokens} tokens does not fit the window of {limit}"
            )
        excess = (tokens := len(choice.span.context) + len(encodings.suffix)) - limit
        if excess <= 0:
            return choice
        if not cut_start or excess >= len(choice.span.context):
            return choice.refused(f"{tokens} tokens do not fit the encoder's window of {limit}")
        return choice.without(excess)


def _rendition(
    span: Span, _: ChoicePrompt, encodings: Encodings, texts: tuple[str, str]
) -> Rendition:
    """An empty context is the prefix token alone, as in lm-evaluation-harness."""
    suffix = encodings.suffix if texts[0] else encodings.suffix[:0]
    return Rendition(
        np.concatenate([span.context, suffix]).astype(np.int32), span.continuation, span.gold
    )


def _noisy_channel_groups(request: Request, context: str) -> list[ChoiceGroup]:
    """The query as the continuation of each proposal; nothing of the fitted context but the header stands before it."""
    return [
        ChoiceGroup(
            request.header + proposal,
            True,
            (request.query,),
            ((choice, 0),),
            (0,) * (choice in request.gold),
        )
        for choice, proposal in enumerate(request.proposals)
    ]


class _NoisyChannelPrompter(ChoicePrompter):
    def reserve(self, prompt: PromptRows, requests: Sequence[Request]) -> list[int]:
        return longest(prompt.encodings, [request.proposals for request in requests])


def _blanks(
    span: Span,
    choice: ChoicePrompt,
    encodings: Encodings,
    texts: tuple[str, str],
    *,
    within_word: bool,
) -> Blanks:
    """Context and continuation as one text in what the tokenizer encloses it with, each scored token hidden in turn.

    ``within_word``: whether the later tokens of its word are hidden with it, too (Kauf & Ivanova 2023).
    """
    mask = encodings.tokenizer.mask_id
    if mask is None:
        raise ModelError(
            "the tokenizer names no token that hides others, so a masked model can't be asked: name it in "
            'tokenizer_config.json ("mask_token"), or fetch the folder again'
        )
    before, scored = span.context, span.continuation
    text = np.concatenate([before, scored, encodings.suffix]).astype(np.int32)
    places = np.arange(len(before), len(before) + len(scored), dtype=np.int32)
    ends = places + 1
    if within_word:
        (words,) = encodings.tokenizer.words([texts[1] if choice.noncanonical else "".join(texts)])
        words = words[-len(scored) :]
        after = np.searchsorted(words, words, side="right")  # the last token of its word
        ends = (len(before) + after).astype(np.int32)
    return Blanks(text, places, ends, mask, span.gold)


_BLANKS = {
    within_word: Form(
        lambda encodings, tokens: tokens + len(encodings.suffix),
        partial(_blanks, within_word=within_word),
    )
    for within_word in (False, True)
}


def _refuse_overlap(
    protocol: Protocol, group: ChoiceGroup, choices: Sequence[ChoicePrompt]
) -> None:
    """ProtocolError where the tokens of one answer begin those of another: P of the one then includes the other."""
    for left, right in combinations(range(len(choices)), 2):
        first, second = choices[left].span, choices[right].span
        if not (isinstance(first, Span) and isinstance(second, Span)):
            continue
        one, other = first.continuation, second.continuation
        if common_prefix([one, other]) == min(len(one), len(other)):
            raise ProtocolError(
                f"reading {protocol.reading}: this model's tokenizer can't tell {group.continuations[left]!r} and "
                f"{group.continuations[right]!r} apart, because the tokens of one begin those of the other; "
                "use other labels in the axis continuation"
            )


def _select_parts(choice: ChoicePrompt, tokenizer: Tokenizer) -> Iterator[tuple[int, str, Span]]:
    for part, span in enumerate(choice.parts, start=1):
        if span is not None:
            yield part, tokenizer.decode(span.continuation), span


def _package_parts(choice: ChoicePrompt, tokenizer: Tokenizer) -> Iterator[tuple[int, str, Span]]:
    """Part 1 + j is EOS in the place of token j."""
    if isinstance(choice.span, Span) and tokenizer.eos_id is not None:
        for part, end in enumerate(ends_before(choice.span, tokenizer.eos_id), start=1):
            yield part, "", end


class _EmbeddingPrompter(Prompter):
    def add_prompts(self, prompt: PromptRows, fitted: Sequence[FittedRequest]) -> None:
        encodings = prompt.encodings
        encodings.add_sequences(
            text for each in fitted for text in (each.context, *each.request.continuations)
        )
        for each in fitted:
            item, context = each.request.item, encodings.context(each.context)
            prompt.add_request(each)
            for choice, text in enumerate(each.request.continuations):
                cosine = (
                    Cosine(context, encodings.context(text), choice in item.gold) if text else None
                )
                asked = ChoicePrompt(None, missing=None if text else _EMPTY)
                prompt.add_span(item.id, (choice, 0), cosine, continuation=text, choice=asked)


class _DecisionPrompter(Prompter):
    """A typed question per request: the context is its JSON, the continuations are the names of its options."""

    def texts(self, request: Request) -> list[ChoiceGroup]:
        return [one_context(request, typed_text(_typed(request)))]

    def add_prompts(self, prompt: PromptRows, fitted: Sequence[FittedRequest]) -> None:
        for each in fitted:
            request, item = each.request, each.request.item
            try:
                asked = _typed(request)
            except DataError as reason:
                prompt.block.refuse(prompt.protocol, item, reason.message)
                continue
            prompt.add_request(replace(each, context=typed_text(asked)))
            for place, choice in enumerate(request.order or range(len(request.continuations))):
                question, name = (
                    Decision(asked, place, choice in request.gold),
                    request.continuations[choice],
                )
                prompt.add_span(item.id, (choice, 0), question, continuation=name)


def _typed(request: Request) -> TypedQuestion:
    """What is asked; DataError for options that can't be told apart, or with two descriptions.

    A request that was rendered elsewhere is the text itself.
    """
    item, names = request.item, request.continuations
    if "state" not in item.fields:
        return _rendered_question(request)
    kind, own = kind_of(item), json.loads(item.fields[DESCRIPTIONS])
    own = [*own, *[None] * (len(names) - len(own))]
    if (
        kind == "choice"
        and (twice := next((name for name in names if names.count(name) > 1), None)) is not None
    ):
        raise DataError(
            f"item {item.id} has the option {twice!r} twice, which can't be the name of two; ask it under "
            "decision/endpoint-letter"
        )
    if kind == "score" and any(each is not None for each in own):
        raise DataError(
            f"item {item.id} is a score, whose levels have no descriptions of their own"
        )
    if request.proposals:
        if any(each is not None for each in own):
            raise DataError(
                f"item {item.id} describes its options already, so that their texts can't describe them; ask it under "
                "decision/endpoint"
            )
        own = [*request.proposals]
    order = request.order or range(len(names))
    described = tuple(None if own[choice] is None else exact_json(own[choice]) for choice in order)
    shown, state = tuple(names[choice] for choice in order), item.fields["state"]
    try:
        beside = typed_beside(item, state) if request.batched else ()
    except UnusableRow as reason:
        raise DataError(f"item {item.id}: {reason}") from reason
    return TypedQuestion(kind, state, request.text(), shown, described, beside)


def _rendered_question(request: Request) -> TypedQuestion:
    item = request.item
    try:
        asked = read_typed(request.query)
    except (KeyError, TypeError, ValueError, UnusableRow) as error:
        raise DataError(
            f"item {item.id}: its context is no typed question as `choicewise prompts` prints it"
        ) from error
    if asked.names != request.continuations and asked.kind == "choice":
        raise DataError(
            f"item {item.id}: its continuations are other options than those of its context"
        )
    return asked


class _SetPrompter(Prompter):
    def reserve(self, prompt: PromptRows, requests: Sequence[Request]) -> list[int]:
        return [tokens - 1 for tokens in longest_after_query(prompt.encodings, requests)]

    def add_prompts(self, prompt: PromptRows, fitted: Sequence[FittedRequest]) -> None:
        """What stands before the options, each option and what stands after them is encoded by itself."""
        encodings, limit = prompt.encodings, prompt.limit
        fitted = [each for each in fitted if not refused_inside(prompt, each, [each.context])]
        befores = [_before_set(each.request, each.context) for each in fitted]
        encodings.add_plain(
            text for each in fitted for text in (*each.request.listed, each.request.after)
        )
        texts, gold = (
            [each.request.continuations for each in fitted],
            [each.request.gold for each in fitted],
        )
        contexts = [each.context for each in fitted]
        located = choice_prompts_batch(encodings, prompt.protocol.boundary, contexts, texts, gold)
        for each, before, choices in zip(fitted, encodings.contexts(befores), located, strict=True):
            options = [encodings.plain[text] for text in each.request.listed]
            context = np.concatenate(
                [before, *options, encodings.plain[each.request.after]]
            ).astype(np.int32)
            edges = (len(before) + np.cumsum([0, *map(len, options)])).astype(np.int32)
            other = not np.array_equal(context, encodings.context(each.context))
            prompt.add_request(each)
            for index, (text, choice) in enumerate(
                zip(each.request.continuations, choices, strict=True)
            ):
                question = None
                if isinstance(choice.span, Span):
                    question = SetSpan(context, choice.span.continuation, edges, choice.span.gold)
                    choice = choice._replace(noncanonical=choice.noncanonical or other)
                    if edges[-1] == len(context):
                        question, choice = (
                            None,
                            choice.refused("no token follows the options, so none sees them all"),
                        )
                    elif question.inputs > limit:
                        too_long = f"{question.inputs + 1} tokens do not fit the window of {limit}"
                        question, choice = None, choice.refused(too_long)
                prompt.add_span(
                    each.request.item.id, (index, 0), question, continuation=text, choice=choice
                )


def _before_set(request: Request, context: str) -> str:
    """The ``context`` up to the first of the listed options."""
    return context[: len(context) - len(request.after) - sum(map(len, request.listed))]


PROMPTERS: dict[str, Prompter] = ports.OpenTable(
    {
        "along-thought": AlongPrompter(),
        "chain-of-thought": ChainOfThoughtPrompter(),
        "decision": _DecisionPrompter(),
        "embedding": _EmbeddingPrompter(),
        "encoder-decoder": ChoicePrompter(
            form=_RenditionForm(lambda encodings, _: len(encodings.suffix), _rendition)
        ),
        "generate": GeneratePrompter(),
        "loglikelihood": ChoicePrompter(),
        "masked": ChoicePrompter(
            form=Form(lambda _, tokens: tokens, lambda span, *_: MaskedLoss(span))
        ),
        "noisy-channel": _NoisyChannelPrompter(groups=_noisy_channel_groups),
        "pseudo-loglikelihood": ChoicePrompter(form=_BLANKS[False]),
        "pseudo-loglikelihood-within-word": ChoicePrompter(form=_BLANKS[True]),
        "rating": ChoicePrompter(
            groups=partial(
                _own_contexts, preferred=lambda labels, right: (labels - 1,) if right else (0,)
            ),
            check=_refuse_overlap,
        ),
        "select": ChoicePrompter(locate=select_spans, parts=_select_parts),
        "set-based": _SetPrompter(),
        "spellings": ChoicePrompter(),
        "surprisal": ChoicePrompter(locate=char_spans),
        "surprisal-package": ChoicePrompter(locate=package_spans, parts=_package_parts),
        "yes-no": ChoicePrompter(
            groups=partial(_own_contexts, preferred=lambda answers, right: (0,) if right else (1,)),
            check=_refuse_overlap,
        ),
    },
    ports.Reading,
    lambda addition: addition.prompter(),
)
"""How each reading of :data:`choicewise.protocols.readings.READINGS` asks."""


def add_prompts(
    block: PreparedBlock, protocol: Protocol, requests: Sequence[Request], model: Answerer
) -> None:
    """Fit and tokenize ``requests`` of one protocol, and ask them as its reading asks."""
    prompt, reading = PromptRows(block, protocol, model), PROMPTERS[protocol.reading]
    fitted = fit_requests(prompt, requests, reading.reserve(prompt, requests))
    for each in fitted:
        if each.missing is not None:
            block.refuse(protocol, each.request.item, each.missing)
    reading.add_prompts(prompt, [each for each in fitted if each.missing is None])


def add_null_prompts(
    block: PreparedBlock,
    protocol: Protocol,
    null: str,
    requests: Sequence[Request],
    model: Answerer,
) -> None:
    """Ask for the continuations of ``requests`` after the ``null`` context, each distinct text once."""
    PROMPTERS[protocol.reading].add_null_prompts(PromptRows(block, protocol, model), null, requests)
