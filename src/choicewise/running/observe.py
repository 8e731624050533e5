"""Turns a model's answers into observations: generations before the spans that follow them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from choicewise.models.model import Model
from choicewise.questions import (
    EOS,
    LENGTH,
    UNKNOWN,
    Answers,
    Conclusion,
    Cosine,
    Decision,
    Ended,
    Generation,
    Ids,
    MaskedLoss,
    Mass,
    Prompt,
    Span,
    TokenScores,
)
from choicewise.records import ObservationRow
from choicewise.requests.request import BlockPrompt
from choicewise.thoughts import ENDS, split
from choicewise.tokens.byte_coverings import (
    ByteProbability,
    TokenPrompt,
    answer_with_bytes,
    sizes,
    token_sizes,
)
from choicewise.tokens.tokenizer import Tokenizer

NO_TOKENS = "the server names no tokens of the generated text, so nothing can be scored after it"
IN_A_THOUGHT = "the generated text ends inside a thought, where nothing is scored"
CUT_THOUGHT = "the token limit hit mid-thought; raise it, or set thought_tokens"
ENDLESS = "the model ended its thought without an answer"
NO_THOUGHT = "the model wrote no thought before its answer"
"""Why a span after a generation has no answer."""


def observe(model: Model, wanted: Mapping[str, BlockPrompt]) -> Iterator[ObservationRow]:
    """Yield an observation for each question of ``wanted`` (by key), in the order of the answers.

    Generations before conclusions come first.  One that an earlier run observed is generated again,
    with the same tokens.  If a generation has no answer, its conclusions have none for that reason.
    """
    # Conclusions need the text, also of a generation that an earlier run observed.
    generations = {}
    for question in wanted.values():
        if isinstance(question, Conclusion):
            generations[question.generation.key] = question.generation
    generated: dict[str, ObservationRow] = {}
    for row in _observations(model, generations):
        generated[row.key] = row
        if row.key in wanted:
            yield row
    questions: dict[str, TokenPrompt] = {}
    thought_tokens: dict[str, int] = {}
    token_bytes = token_sizes(model.tokenizer)
    for key, question in wanted.items():
        if not isinstance(question, Conclusion):
            if key not in generations:
                questions[key] = question
            continue
        concluded = _concluded(question, generated[question.generation.key], model.tokenizer)
        if isinstance(concluded, str):
            yield _unanswered(key, question.span, concluded, token_bytes)
            continue
        questions[key], count = concluded
        if count is not None:
            thought_tokens[key] = count
    for row in _observations(model, questions):
        if row.key in thought_tokens:
            row = row._replace(thought_tokens=thought_tokens[row.key])
        yield row


def _concluded(
    question: Conclusion, chain: ObservationRow, tokenizer: Tokenizer
) -> tuple[Span, int | None] | str:
    """Return the span to score after ``chain``, and the tokens of its thought before the cut.

    Returns the reason instead if nothing is scored.
    """
    if chain.missing is not None:
        return chain.missing
    if chain.text and not len(chain.tokens):
        return NO_TOKENS
    # Special tokens that mark a thought have no bytes in the text, but are in ``raw``.
    parts = split((chain.raw or chain.text or "").encode(errors="replace"), chain.opened or "")
    tokens = np.asarray(chain.tokens, dtype=np.int32)
    if question.cut is None:
        if parts.open:
            return IN_A_THOUGHT
        return question.after(tokens), None
    thought = question.generation.cuttable(
        tokens.tolist(), tokenizer.token_bytes, question.cut.closing, forced=bool(chain.forced)
    )
    if thought is not None:
        count = question.cut.kept(thought.end - thought.start)
        end = thought.start + count
        return question.after(tokens[:end], unbroken=end in thought.broken), count
    if not parts.open:
        return NO_THOUGHT
    if chain.finish == LENGTH:
        return CUT_THOUGHT
    return ENDLESS


def _observations(model: Model, questions: Mapping[str, TokenPrompt]) -> Iterator[ObservationRow]:
    keys = list(questions)
    token_bytes = token_sizes(model.tokenizer)
    answer_in_parts = partial(_answer_in_parts, model)
    answers = answer_with_bytes(answer_in_parts, list(questions.values()), model.tokenizer)
    for index, answer in answers:
        key = keys[index]
        question = questions[key]
        if answer.missing is not None:
            row = _unanswered(key, question, answer.missing, token_bytes)
            row = row._replace(exchange=answer.exchange)
            if answer.ended is not None:
                row = row._replace(finish=answer.ended.finish)
            yield row
            continue
        text = answer.text
        is_generation = isinstance(question, Generation)
        # Of logits that are NaN no token is the likeliest, so there is no text.
        if is_generation and text is None and not answer.is_nan:
            text = model.tokenizer.decode(answer.tokens)
        # By position: names cost more than all else here.
        row = ObservationRow(
            key,
            answer.tokens,
            sizes(question, answer, token_bytes),
            answer.logprobs,
            answer.ranks,
            text,
            answer.value,
            at_most=answer.at_most or None,
            exchange=answer.exchange,
        )
        if isinstance(question, Generation):
            row = _with_end(row, question, answer, model.tokenizer)
        yield row


def _with_end(
    row: ObservationRow, question: Generation, answer: TokenScores, tokenizer: Tokenizer
) -> ObservationRow:
    """Return the row with the end of its text, and the beginning of its thought."""
    ended = answer.ended or Ended()
    tokens = answer.tokens.tolist()
    raw = None
    if not question.marks.keys().isdisjoint(tokens):
        raw = question.text(tokens, tokenizer.token_bytes).decode(errors="replace")
    return row._replace(
        finish=ended.finish,
        raw=raw,
        opened=question.opened or None,
        thought=ended.thought,
        generated_tokens=ended.tokens,
        thought_tokens=ended.thought_tokens,
        forced=ended.forced,
    )


@dataclass(frozen=True)
class _Begun:
    """Hold a generation whose thought is over: the prompt of its answer, and what stands before.

    ``forced``: True if the thought was closed at its limit.
    """

    index: int
    prompt: Generation
    head: TokenScores
    forced: bool | None


def _answer_in_parts(model: Model, questions: Sequence[Prompt]) -> Answers:
    """Answer ``questions``; generations with a limit for the thought in two parts.

    The thoughts are generated first, and the answers after them.  A thought at its limit is closed;
    the closing tokens were not chosen, and have 0 nats.  If no thought begins, the answer is
    generated alone.
    """
    # A server that renders the chat takes both limits in one request.
    template = model.tokenizer.chat
    is_served = template is not None and template.is_served
    limited: dict[int, Generation] = {}
    others: list[int] = []
    for index, question in enumerate(questions):
        if isinstance(question, Generation) and question.thought is not None and not is_served:
            limited[index] = question
        else:
            others.append(index)
    if not limited:
        # Nearly always, and there are millions of answers.
        if questions:
            yield from model.answer(questions)
        return
    if others:
        for number, answer in model.answer([questions[index] for index in others]):
            yield others[number], answer
    yield from _answer_after_thoughts(model, limited)


def _answer_after_thoughts(model: Model, limited: Mapping[int, Generation]) -> Answers:
    """Generate the thoughts of ``limited`` (by index), and after them the answers."""
    indices = list(limited)
    thoughts = [_thought_of(question) for question in limited.values()]
    begun: list[_Begun] = []
    for number, thought in model.answer(thoughts):
        index = indices[number]
        question = limited[index]
        if thought.missing is not None or thought.is_nan:
            yield index, thought
        elif thought.text is not None:
            yield index, TokenScores.unanswered(NO_TOKENS)
        else:
            head, forced = _closed(question, thought, model.tokenizer)
            if head is None:
                yield index, replace(thought, ended=Ended(EOS))
                continue
            # A closed thought is part of the context, so the answer begins outside it.
            opened = "" if len(head.tokens) else question.opened
            # After the thought the answer is an ordinary generation, with the limit of the answer.
            prompt = replace(
                question,
                thought=None,
                closing=None,
                context=np.concatenate([question.context, head.tokens]).astype(np.int32),
                opened=opened,
            )
            begun.append(_Begun(index, prompt, head, forced))
    if not begun:
        return
    for number, answer in model.answer([part.prompt for part in begun]):
        part = begun[number]
        if answer.missing is not None:
            yield part.index, answer
        elif answer.text is not None:
            yield part.index, TokenScores.unanswered(NO_TOKENS)
        else:
            ended = (answer.ended or Ended())._replace(forced=part.forced)
            yield part.index, replace(TokenScores.joined([part.head, answer]), ended=ended)


def _thought_of(question: Generation) -> Generation:
    """Return the prompt of the thought alone."""
    return replace(
        question,
        thought=None,
        closing=None,
        limit=question.thought or 0,
        stops=ENDS,
        keep_stop=True,
        opened=None,
    )


def _closed(
    question: Generation, thought: TokenScores, tokenizer: Tokenizer
) -> tuple[TokenScores | None, bool | None]:
    """Return the tokens before the answer, and True if the thought in them was closed at its limit.

    The tokens are empty if no thought began, and None if the model ended in its thought.
    """
    tokens = thought.tokens.tolist()
    text = question.text(tokens, tokenizer.token_bytes)
    parts = split(text, question.opened or "")
    if not parts.open:
        if parts.thoughts:
            return thought, False
        return TokenScores.of(), None
    finish = None if thought.ended is None else thought.ended.finish
    if finish not in (LENGTH, None) or len(tokens) < (question.thought or 0):
        # The model ended inside its thought, before the limit.
        return None, None
    closing = () if question.closing is None else question.closing.tolist()
    forced = TokenScores.of(closing, [0.0] * len(closing), [UNKNOWN] * len(closing))
    return TokenScores.joined([thought, forced]), True


def _unanswered(key: str, question: TokenPrompt, reason: str, token_bytes: Ids) -> ObservationRow:
    """Return a row of NaN at every scored token; without tokens it would look like an empty prompt."""
    answer = TokenScores.unanswered(reason, _scored(question))
    return ObservationRow(
        key=key,
        tokens=answer.tokens,
        sizes=sizes(question, answer, token_bytes),
        logprobs=answer.logprobs,
        ranks=answer.ranks,
        value=answer.value,
        missing=reason,
    )


def _scored(question: TokenPrompt) -> npt.ArrayLike:
    """Return the tokens whose log-probabilities the question needs."""
    match question:
        case Mass():
            return question.members.ids[:1]
        case MaskedLoss():
            return question.span.continuation
        case Cosine() | Generation():
            return ()
        case Decision():
            return [question.option]
        case ByteProbability():
            return question.continuation[np.asarray(question.offsets[:-1]) - question.offsets[0]]
        case _:
            return question.continuation
