"""Make the prompts of every reading: the table of prompters, their forms, and the functions that
use them.

A form is the kind of prompt about located tokens: a span, the model's own loss, blanks or a
rendition.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from choicewise import ports
from choicewise.data.decisions import kind_of, read_typed, typed_beside, typed_text
from choicewise.errors import DataError, ModelError, ProtocolError, UnusableRow
from choicewise.protocols.changes import descriptions_of
from choicewise.protocols.protocol import COUNTING, Protocol
from choicewise.questions import (
    Blanks,
    Cosine,
    Decision,
    Ids,
    MaskedLoss,
    Rendition,
    SetSpan,
    Span,
    TypedQuestion,
)
from choicewise.records import SpanRow
from choicewise.requests.generated import (
    AlongPrompter,
    ChainOfThoughtPrompter,
    GeneratePrompter,
    locate_choices,
    refused_inside,
)
from choicewise.requests.request import (
    Answerer,
    BlockPrompt,
    ChoiceGroup,
    FittedRequest,
    LocatedGroup,
    PreparedBlock,
    Prompter,
    PromptRows,
    Request,
    Slot,
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
_EMPTY = "an empty choice has no hidden state to compare"


def _shared_context(request: Request, context: str) -> list[ChoiceGroup]:
    """Group all choices after the fitted ``context``, which ends with the query, and after each
    further view.
    """
    if request.proposals:
        return _own_contexts(request, right=slice(None), wrong=slice(0))
    groups = [one_context(request, context)]
    for number, view in enumerate(request.views, start=1):
        gold = request.gold
        # An oracle can't answer a view without content.
        if not view.content:
            gold = ()
        group = ChoiceGroup(
            context=replace(request, query=view.query).context(),
            differs=True,
            continuations=view.continuations,
            slots=tuple(Slot(choice, number) for choice in range(len(view.continuations))),
            gold=gold,
        )
        groups.append(group)
    return groups


def _own_contexts(request: Request, right: slice, wrong: slice) -> list[ChoiceGroup]:
    """Group the parts of each choice after the choice's own proposal.

    An oracle prefers the parts ``right`` of a right choice, and ``wrong`` of another one.
    """
    groups = []
    for choice, (proposal, parts) in enumerate(zip(request.proposals, request.parts, strict=True)):
        preferred = right if choice in request.gold else wrong
        group = ChoiceGroup(
            context=request.context(proposal=proposal),
            differs=True,
            continuations=parts,
            slots=tuple(Slot(choice, part) for part in range(len(parts))),
            gold=tuple(range(len(parts))[preferred]),
        )
        groups.append(group)
    return groups


def _rating_groups(request: Request, _: str) -> list[ChoiceGroup]:
    return _own_contexts(request, right=slice(-1, None), wrong=slice(1))


def _yes_no_groups(request: Request, _: str) -> list[ChoiceGroup]:
    return _own_contexts(request, right=slice(1), wrong=slice(1, 2))


def _noisy_channel_groups(request: Request, _: str) -> list[ChoiceGroup]:
    """Make the query the continuation of each proposal.

    Nothing of the context but the header precedes it.
    """
    groups = []
    for choice, proposal in enumerate(request.proposals):
        group = ChoiceGroup(
            context=request.header + proposal,
            differs=True,
            continuations=(request.query,),
            slots=(Slot(choice),),
            gold=(0,) if choice in request.gold else (),
        )
        groups.append(group)
    return groups


class Form:
    """Make a span of located tokens; subclasses make other kinds of prompt."""

    def reserve(self, encodings: Encodings, tokens: int) -> int:
        """Return the input tokens that must stay free after a context which a text of so many
        ``tokens`` follows.
        """
        return tokens - 1

    def window(self, limit: int, encodings: Encodings) -> int:
        """Return how many input tokens a choice may have and be left as it is by :meth:`fit`."""
        return limit - 1 - self.reserve(encodings, 0)

    def fit(
        self, choice: ChoicePrompt, limit: int, encodings: Encodings, *, cut_start: bool
    ) -> ChoicePrompt:
        """Cut or refuse ``choice`` so that a model with ``limit`` input tokens can answer it."""
        return fit_span(choice, self.window(limit, encodings), cut_start=cut_start)

    def prompt(
        self,
        span: Span,
        choice: ChoicePrompt,
        encodings: Encodings,
        context: str,
        continuation: str,
    ) -> Span | MaskedLoss | Blanks | Rendition:
        """Return the prompt about ``span`` of a ``choice``, ``continuation`` after ``context``."""
        return span


_SPANS = Form()


class _LossForm(Form):
    def reserve(self, encodings: Encodings, tokens: int) -> int:
        # The loss needs the last token as an input, too.
        return tokens

    def prompt(
        self,
        span: Span,
        choice: ChoicePrompt,
        encodings: Encodings,
        context: str,
        continuation: str,
    ) -> MaskedLoss:
        return MaskedLoss(span)


@dataclass(frozen=True)
class _BlanksForm(Form):
    """Make one text of context and continuation, enclosed by the tokenizer, each scored token
    hidden in turn.

    ``within_word``: whether the later tokens of its word are hidden with it, too (Kauf & Ivanova
    2023).
    """

    within_word: bool

    def reserve(self, encodings: Encodings, tokens: int) -> int:
        return tokens + len(encodings.suffix)

    def prompt(
        self,
        span: Span,
        choice: ChoicePrompt,
        encodings: Encodings,
        context: str,
        continuation: str,
    ) -> Blanks:
        tokenizer = encodings.tokenizer
        if tokenizer.mask_id is None:
            raise ModelError(
                "the tokenizer names no mask token, which a masked model needs; name it in "
                'tokenizer_config.json ("mask_token"), or fetch the folder again'
            )
        start = len(span.context)
        scored = len(span.continuation)
        hidden = np.arange(start, start + scored, dtype=np.int32)
        ends = hidden + 1
        if self.within_word:
            # Tokens of the whole text have its words; tokens of the continuation alone have only
            # its own.
            text = continuation
            if not choice.noncanonical:
                text = context + continuation
            (words,) = tokenizer.words([text])
            words = words[-scored:]
            end_of_word = np.searchsorted(words, words, side="right")
            ends = (start + end_of_word).astype(np.int32)
        tokens = np.concatenate([span.context, span.continuation, encodings.suffix])
        return Blanks(
            text=tokens.astype(np.int32),
            places=hidden,
            ends=ends,
            mask=tokenizer.mask_id,
            gold=span.gold,
        )


class _RenditionForm(Form):
    """Give the context, enclosed by the tokenizer, to the encoder, and the continuation to the
    decoder.
    """

    def reserve(self, encodings: Encodings, tokens: int) -> int:
        return len(encodings.suffix)

    def fit(
        self, choice: ChoicePrompt, limit: int, encodings: Encodings, *, cut_start: bool
    ) -> ChoicePrompt:
        """Fit each of the two texts into ``limit``.

        The context's start is cut as in lm-evaluation-harness.
        """
        if not isinstance(choice.span, Span):
            return choice
        tokens = len(choice.span.continuation)
        if tokens > limit:
            return choice.refused(
                f"a continuation of {tokens} tokens does not fit the window of {limit}"
            )
        context = len(choice.span.context)
        tokens = context + len(encodings.suffix)
        excess = tokens - limit
        if excess <= 0:
            return choice
        if not cut_start or excess >= context:
            return choice.refused(f"{tokens} tokens do not fit the encoder's window of {limit}")
        return choice.without(excess)

    def prompt(
        self,
        span: Span,
        choice: ChoicePrompt,
        encodings: Encodings,
        context: str,
        continuation: str,
    ) -> Rendition:
        source = span.context
        # An empty context is the prefix token alone, as in lm-evaluation-harness.
        if context:
            source = np.concatenate([source, encodings.suffix])
        return Rendition(source.astype(np.int32), span.continuation, span.gold)


@dataclass(frozen=True, kw_only=True)
class ChoicePrompter(Prompter):
    """Make a prompt for the continuations of every choice.

    ``groups``: says from a request and its fitted context which texts are scored after which
    contexts.  ``locate``: finds the scored tokens from encodings, context, continuation and whether
    it is gold; None for the protocol's boundary policy.  ``form``: the kind of prompt.  ``parts``:
    yields further spans of a choice: (part, text, span).  ``check``: raises ProtocolError for
    tokens that the reading can't use.
    """

    groups: Callable[[Request, str], list[ChoiceGroup]] = _shared_context
    locate: Callable[[Encodings, str, str, bool | None], ChoicePrompt] | None = None
    form: Form = _SPANS
    parts: Callable[[ChoicePrompt, Tokenizer], Iterator[tuple[int, str, Span]]] | None = None
    check: Callable[[Protocol, ChoiceGroup, Sequence[ChoicePrompt]], None] | None = None

    def texts(self, request: Request) -> list[ChoiceGroup]:
        """Return the texts of every choice."""
        return self.groups(request, request.context())

    def reserve(self, rows: PromptRows, requests: Sequence[Request]) -> list[int]:
        """Return the tokens of the longest text after each query."""
        longest = longest_after_query(rows.encodings, requests)
        return [self.form.reserve(rows.encodings, tokens) for tokens in longest]

    def add_prompts(self, rows: PromptRows, fitted: Sequence[FittedRequest]) -> None:
        """Add one prompt per continuation of every group."""
        kept = []
        groups_of = []
        for request in fitted:
            texts = request.request
            # Views and proposals are rendered anew, with the shots that fit.
            if request.shots_dropped:
                texts = replace(texts, shots=texts.shots[: request.shots])
            groups = self.groups(texts, request.context)
            if not refused_inside(rows, request, [group.context for group in groups]):
                kept.append(request)
                groups_of.append(groups)
        all_groups = [group for groups in groups_of for group in groups]
        all_located = iter(self._located(rows, all_groups))
        for request, groups in zip(kept, groups_of, strict=True):
            dropped = 0
            for group in groups:
                located = next(all_located)
                # Labels are compared as tokens, so the check needs a model's tokenizer.
                if self.check is not None:
                    self.check(rows.protocol, group, located.choices)
                dropped = max([dropped, *(choice.tokens_dropped for choice in located.choices)])
                context = None
                if group.differs:
                    context = group.context
                self._use(rows, located, request.item.id, None, context)
            rows.add_request(request, dropped)

    def add_null_prompts(self, rows: PromptRows, null: str, requests: Sequence[Request]) -> None:
        """Add the prompts of the groups after the ``null`` context."""
        # Contexts matter, by how they end, only for a null context that ends with white space.
        needs_context = null != null.rstrip()
        groups_of = []
        for request in requests:
            context = request.context() if needs_context else ""
            groups_of.append([group.after(null) for group in self.groups(request, context)])
        all_groups = [group for groups in groups_of for group in groups]
        all_located = iter(self._located(rows, all_groups, null))
        for request, groups in zip(requests, groups_of, strict=True):
            for number, group in enumerate(groups):
                located = next(all_located)
                if rows.protocol.boundary in COUNTING and located.may_differ:
                    after_context = self.groups(request, request.context())[number]
                    (compared,) = self._located(rows, [after_context])
                    located = LocatedGroup(
                        group,
                        comparable(compared.choices, located.choices, rows.encodings.tokenizer),
                    )
                self._use(rows, located, request.item.id, null, None)

    def _located(
        self, rows: PromptRows, groups: Sequence[ChoiceGroup], null: str | None = None
    ) -> list[LocatedGroup]:
        """Locate the choices of ``groups``, after a ``null`` context or not, and fit them.

        Groups that protocols of a block have in common are located once.
        """
        protocol = rows.protocol
        # What other protocols locate in the same way has the same tokens and rows.
        key = self, null
        by_texts: dict[Hashable, LocatedGroup] = rows.encodings.located.setdefault(key, {})
        new: dict[str, list[LocatedGroup]] = {}
        all_located = []
        for group in groups:
            policy = group.policy(protocol.boundary)
            texts = policy, group.texts
            located = by_texts.get(texts)
            if located is None:
                located = by_texts[texts] = LocatedGroup(group)
                new.setdefault(policy, []).append(located)
            all_located.append(located)
        for policy, new_located in new.items():
            choices_of = self._locate(rows, [located.group for located in new_located], policy)
            for located, choices in zip(new_located, choices_of, strict=True):
                located.choices = choices
        window = self.form.window(rows.limit, rows.encodings)
        cut_start = protocol.fit == "cut-start"
        for index, located in enumerate(all_located):
            if located.longest > window:
                choices = [
                    self.form.fit(choice, rows.limit, rows.encodings, cut_start=cut_start)
                    for choice in located.choices
                ]
                all_located[index] = LocatedGroup(located.group, choices)
        return all_located

    def _use(
        self,
        rows: PromptRows,
        located: LocatedGroup,
        item: str,
        null: str | None,
        context: str | None,
    ) -> None:
        block = rows.block
        inputs = block.inputs
        if located.rows is None:
            located.rows = block.spans.add_group(self._rows(rows, located, null is None))
            located.inputs = block.inputs - inputs
        block.inputs = inputs + located.inputs
        block.spans.use(located.rows, rows.protocol.prompt_digest, item, null, context)

    def _rows(self, rows: PromptRows, located: LocatedGroup, with_parts: bool) -> Iterator[SpanRow]:
        """Add the prompts of each choice, and yield their rows."""
        group = located.group
        for slot, text, choice in zip(
            group.slots, group.continuations, located.choices, strict=True
        ):
            prompt: BlockPrompt | None = choice.span
            if isinstance(prompt, Span):
                prompt = self.form.prompt(prompt, choice, rows.encodings, group.context, text)
            yield rows.span_row(slot, prompt, text, choice)
            if self.parts is None or not with_parts:
                continue
            for part, part_text, span in self.parts(choice, rows.encodings.tokenizer):
                yield rows.span_row(Slot(slot.choice, part), span, part_text)

    def _locate(
        self, rows: PromptRows, groups: Sequence[ChoiceGroup], policy: str
    ) -> list[list[ChoicePrompt]]:
        """Return the scored tokens of every choice."""
        encodings = rows.encodings
        if self.locate is None:
            located = choice_prompts_batch(
                encodings,
                policy,
                [group.context for group in groups],
                [group.continuations for group in groups],
                [group.gold for group in groups],
            )
        else:
            located = []
            for group in groups:
                choices = []
                for index, text in enumerate(group.continuations):
                    is_gold = index in group.gold
                    choices.append(self.locate(encodings, group.context, text, is_gold))
                located.append(choices)
        return located


def comparable(
    after_context: Sequence[ChoicePrompt], after_null: Sequence[ChoicePrompt], tokenizer: Tokenizer
) -> list[ChoicePrompt]:
    """Return ``after_null``.

    A choice is refused if it scores other text than after the context of its request.

    For the policies :data:`~choicewise.protocols.protocol.COUNTING`, where a token that straddles
    the end of one of the contexts takes text away from the choice.
    """
    compared = []
    for choice, null_choice in zip(after_context, after_null, strict=True):
        if choice.merged or null_choice.merged:
            if choice.scored_bytes(tokenizer) != null_choice.scored_bytes(tokenizer):
                null_choice = null_choice.refused(OTHER_TEXT)
        compared.append(null_choice)
    return compared


class _NoisyChannelPrompter(ChoicePrompter):
    def reserve(self, rows: PromptRows, requests: Sequence[Request]) -> list[int]:
        return longest(rows.encodings, [request.proposals for request in requests])


def _refuse_overlap(
    protocol: Protocol, group: ChoiceGroup, choices: Sequence[ChoicePrompt]
) -> None:
    """Raise ProtocolError if the tokens of one answer begin those of another: its P would include
    the other's.
    """
    spans = []
    for text, choice in zip(group.continuations, choices, strict=True):
        if isinstance(choice.span, Span):
            spans.append((text, choice.span.continuation))
    for (text, tokens), (other_text, other_tokens) in combinations(spans, 2):
        shorter = min(len(tokens), len(other_tokens))
        if common_prefix([tokens, other_tokens]) == shorter:
            raise ProtocolError(
                f"reading {protocol.reading}: this model's tokenizer can't distinguish {text!r} "
                "and "
                f"{other_text!r} because one begins with the tokens of the other; use other labels "
                "in the axis continuation"
            )


def _select_parts(choice: ChoicePrompt, tokenizer: Tokenizer) -> Iterator[tuple[int, str, Span]]:
    for part, span in enumerate(choice.parts, start=1):
        if span is not None:
            yield part, tokenizer.decode(span.continuation), span


def _package_parts(choice: ChoicePrompt, tokenizer: Tokenizer) -> Iterator[tuple[int, str, Span]]:
    """Yield EOS in place of token j as part 1 + j."""
    if isinstance(choice.span, Span) and tokenizer.eos_id is not None:
        for part, end in enumerate(ends_before(choice.span, tokenizer.eos_id), start=1):
            yield part, "", end


class _EmbeddingPrompter(Prompter):
    def add_prompts(self, rows: PromptRows, fitted: Sequence[FittedRequest]) -> None:
        encodings = rows.encodings
        for request in fitted:
            encodings.add_sequences([request.context, *request.request.continuations])
        for request in fitted:
            item = request.item
            context = encodings.context(request.context)
            rows.add_request(request)
            for index, text in enumerate(request.request.continuations):
                cosine = None
                choice = ChoicePrompt(None, missing=_EMPTY)
                if text:
                    cosine = Cosine(context, encodings.context(text), index in item.gold)
                    choice = ChoicePrompt(None)
                rows.add_span(item.id, Slot(index), cosine, continuation=text, choice=choice)


class _DecisionPrompter(Prompter):
    """Make a typed question of a request: the context is its JSON, the continuations are the names
    of its options.
    """

    def texts(self, request: Request) -> list[ChoiceGroup]:
        return [one_context(request, typed_text(_typed(request)))]

    def add_prompts(self, rows: PromptRows, fitted: Sequence[FittedRequest]) -> None:
        for fitted_request in fitted:
            request = fitted_request.request
            item = request.item
            try:
                typed = _typed(request)
            except DataError as reason:
                rows.block.refuse(rows.protocol, item, reason.message)
                continue
            rows.add_request(replace(fitted_request, context=typed_text(typed)))
            # An endpoint counts options in the order sent, rows count the item's choices.
            for option, choice in enumerate(_order(request)):
                decision = Decision(typed, option, choice in request.gold)
                name = request.continuations[choice]
                rows.add_span(item.id, Slot(choice), decision, continuation=name)


def _order(request: Request) -> Sequence[int]:
    return request.order or range(len(request.continuations))


def _typed(request: Request) -> TypedQuestion:
    """Return the typed question of a request.

    DataError for options that are alike, or with two descriptions.
    """
    item = request.item
    if "state" not in item.fields:
        return _rendered_question(request)
    kind = kind_of(item)
    names = request.continuations
    # The options of a choice are the keys of an object.
    if kind == "choice":
        for name in names:
            if names.count(name) > 1:
                raise DataError(
                    f"item {item.id} has the option {name!r} twice, which can't be the name of "
                    "two; ask it under "
                    "decision/endpoint-letter"
                )
    descriptions = _descriptions(request, kind)
    state = item.fields["state"]
    beside: tuple[TypedQuestion, ...] = ()
    if request.batched:
        try:
            beside = typed_beside(item, state)
        except UnusableRow as reason:
            raise DataError(f"item {item.id}: {reason}") from reason
    return TypedQuestion(
        kind=kind,
        state=state,
        instructions=request.text(),
        names=tuple(names[choice] for choice in _order(request)),
        descriptions=tuple(_exact_or_none(descriptions[choice]) for choice in _order(request)),
        beside=beside,
    )


def _descriptions(request: Request, kind: str) -> list[Any]:
    """Return the description of every choice: the item's, or else the proposals."""
    item = request.item
    descriptions = descriptions_of(item)
    described = any(description is not None for description in descriptions)
    if kind == "score" and described:
        raise DataError(f"item {item.id} is a score; its levels have no descriptions")
    if request.proposals:
        if described:
            raise DataError(
                f"item {item.id} describes its options already, so that their texts can't describe "
                "them; ask it under "
                "decision/endpoint"
            )
        return list(request.proposals)
    return descriptions


def _exact_or_none(description: Any) -> str | None:
    return None if description is None else exact_json(description)


def _rendered_question(request: Request) -> TypedQuestion:
    """Return the typed question that a request from elsewhere spells in its context."""
    item = request.item
    try:
        typed = read_typed(request.query)
    except (KeyError, TypeError, ValueError, UnusableRow) as error:
        raise DataError(
            f"item {item.id}: its context is no typed question as `choicewise prompts` prints it"
        ) from error
    if typed.names != request.continuations and typed.kind == "choice":
        raise DataError(
            f"item {item.id}: its continuations are other options than those of its context"
        )
    return typed


class _SetPrompter(Prompter):
    def reserve(self, rows: PromptRows, requests: Sequence[Request]) -> list[int]:
        return [tokens - 1 for tokens in longest_after_query(rows.encodings, requests)]

    def add_prompts(self, rows: PromptRows, fitted: Sequence[FittedRequest]) -> None:
        """Encode the text before the options, each option and the text after them by themselves."""
        encodings = rows.encodings
        kept = [request for request in fitted if not refused_inside(rows, request)]
        contexts = [request.context for request in kept]
        befores = []
        for context, fitted_request in zip(contexts, kept, strict=True):
            request = fitted_request.request
            options = sum(map(len, request.listed))
            befores.append(context[: len(context) - len(request.after) - options])
            encodings.add_plain([*request.listed, request.after])
        located = locate_choices(rows, kept, contexts)
        before_tokens = encodings.contexts(befores)
        for fitted_request, before, choices in zip(kept, before_tokens, located, strict=True):
            rows.add_request(fitted_request)
            self._add_set(rows, fitted_request, before, choices)

    def _add_set(
        self,
        rows: PromptRows,
        fitted: FittedRequest,
        before: Ids,
        choices: Sequence[ChoicePrompt],
    ) -> None:
        encodings = rows.encodings
        request = fitted.request
        options = [encodings.plain[text] for text in request.listed]
        # Encoded apart, options have the same tokens wherever they stand, which a set needs.
        after = encodings.plain[request.after]
        context = np.concatenate([before, *options, after]).astype(np.int32)
        edges = (len(before) + np.cumsum([0, *map(len, options)])).astype(np.int32)
        # Options that are encoded one by one may have other tokens than in the text.
        other_tokens = not np.array_equal(context, encodings.context(fitted.context))
        for index, (text, choice) in enumerate(zip(request.continuations, choices, strict=True)):
            prompt = None
            if isinstance(choice.span, Span):
                prompt = SetSpan(context, choice.span.continuation, edges, choice.span.gold)
                choice = choice._replace(noncanonical=choice.noncanonical or other_tokens)
                reason = ""
                if not len(after):
                    reason = "no token after the options sees them all"
                elif prompt.inputs > rows.limit:
                    reason = f"{prompt.inputs + 1} tokens do not fit the window of {rows.limit}"
                if reason:
                    prompt = None
                    choice = choice.refused(reason)
            rows.add_span(request.item.id, Slot(index), prompt, continuation=text, choice=choice)


PROMPTERS: dict[str, Prompter] = ports.OpenTable(
    {
        "along-thought": AlongPrompter(),
        "chain-of-thought": ChainOfThoughtPrompter(),
        "decision": _DecisionPrompter(),
        "embedding": _EmbeddingPrompter(),
        "encoder-decoder": ChoicePrompter(form=_RenditionForm()),
        "generate": GeneratePrompter(),
        "loglikelihood": ChoicePrompter(),
        "masked": ChoicePrompter(form=_LossForm()),
        "noisy-channel": _NoisyChannelPrompter(groups=_noisy_channel_groups),
        "pseudo-loglikelihood": ChoicePrompter(form=_BlanksForm(within_word=False)),
        "pseudo-loglikelihood-within-word": ChoicePrompter(form=_BlanksForm(within_word=True)),
        "rating": ChoicePrompter(groups=_rating_groups, check=_refuse_overlap),
        "select": ChoicePrompter(locate=select_spans, parts=_select_parts),
        "set-based": _SetPrompter(),
        "spellings": ChoicePrompter(),
        "surprisal": ChoicePrompter(locate=char_spans),
        "surprisal-package": ChoicePrompter(locate=package_spans, parts=_package_parts),
        "yes-no": ChoicePrompter(groups=_yes_no_groups, check=_refuse_overlap),
    },
    ports.Reading,
    lambda addition: addition.prompter(),
)
"""The prompter of each reading of :data:`choicewise.protocols.readings.READINGS`."""


def add_prompts(
    block: PreparedBlock,
    protocol: Protocol,
    requests: Sequence[Request],
    model: Answerer,
    null: str | None = None,
) -> None:
    """Fit and tokenize ``requests`` of one protocol, and add the prompts of its reading.

    With ``null`` add the prompts of the continuations after that context, each distinct text once.
    """
    rows = PromptRows(block, protocol, model)
    prompter = PROMPTERS[protocol.reading]
    if null is not None:
        prompter.add_null_prompts(rows, null, requests)
        return
    fitting = []
    for request in fit_requests(rows, requests, prompter.reserve(rows, requests)):
        if request.missing is None:
            fitting.append(request)
        else:
            block.refuse(protocol, request.item, request.missing)
    prompter.add_prompts(rows, fitting)
