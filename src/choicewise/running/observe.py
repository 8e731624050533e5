"""What a model answers, as rows to store: chains before what follows them, thoughts before their answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
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
from choicewise.tokens.chat_template import ServedChat
from choicewise.tokens.tokenizer import Tokenizer

NO_TOKENS = (
    "the server names no tokens of the text that it generated, so nothing can be scored after it"
)
IN_A_THOUGHT = "the text that was generated ends in an open thought, inside which nothing is scored"
CUT_THOUGHT = "the thought was cut before its end; give it more tokens, or a limit of its own (thought_tokens)"
ENDLESS = "the model ended in its thought, and answered nothing"
NO_THOUGHT = "the model wrote no thought before its answer, so there is none to cut"
"""Why what follows a generation has no answer."""


def observe(model: Model, wanted: Mapping[str, BlockPrompt]) -> Iterator[ObservationRow]:
    """One observation per question of ``wanted`` (by key), in the order in which the model answers.

    Generations after which something is scored come first; one that is not ``wanted`` itself, because an earlier run
    kept it, is generated again and gives the same tokens.  Nothing is scored after one that has no answer: what
    follows it is unanswered for the same reason.
    """
    needed = {q.generation.key: q.generation for q in wanted.values() if isinstance(q, Conclusion)}
    generated: dict[str, ObservationRow] = {}
    for row in _answers(model, needed):
        generated[row.key] = row
        if row.key in wanted:
            yield row
    asked: dict[str, TokenPrompt] = {}
    lost: dict[str, tuple[TokenPrompt, str]] = {}
    kept: dict[str, int] = {}
    for key, question in wanted.items():
        if not isinstance(question, Conclusion):
            if key not in needed:
                asked[key] = question
            continue
        concluded = _concluded(question, generated[question.generation.key], model.tokenizer)
        if isinstance(concluded, str):
            lost[key] = question.span, concluded
        else:
            asked[key], along = concluded
            kept |= {} if along is None else {key: along}
    bytes_of = token_sizes(model.tokenizer)
    yield from (
        _unanswered(key, question, reason, bytes_of) for key, (question, reason) in lost.items()
    )
    for row in _answers(model, asked):
        yield row._replace(thought_tokens=kept[row.key]) if row.key in kept else row


def _concluded(
    question: Conclusion, chain: ObservationRow, tokenizer: Tokenizer
) -> tuple[Span, int | None] | str:
    """The span to score after ``chain``, and how many tokens of its thought come before; or why nothing is scored."""
    if chain.missing is not None:
        return chain.missing
    if chain.text and not len(chain.tokens):
        return NO_TOKENS
    parts = split((chain.raw or chain.text or "").encode(errors="replace"), chain.opened or "")
    tokens = np.asarray(chain.tokens, dtype=np.int32)
    if question.cut is None:
        return IN_A_THOUGHT if parts.open else (question.after(tokens), None)
    thought = question.generation.cuttable(
        tokens.tolist(), tokenizer.token_bytes, question.cut.closing, forced=bool(chain.forced)
    )
    if thought is None:
        return NO_THOUGHT if not parts.open else CUT_THOUGHT if chain.finish == LENGTH else ENDLESS
    count = question.cut.kept(thought.end - thought.start)
    place = thought.start + count
    return question.after(tokens[:place], unbroken=place in thought.broken), count


def _answers(model: Model, questions: Mapping[str, TokenPrompt]) -> Iterator[ObservationRow]:
    keys, bytes_of = list(questions), token_sizes(model.tokenizer)
    answering = partial(_answer_in_parts, model)
    for index, answer in answer_with_bytes(answering, list(questions.values()), model.tokenizer):
        key, question, text = keys[index], questions[keys[index]], answer.text
        if answer.missing is not None:
            row = _unanswered(key, question, answer.missing, bytes_of)._replace(
                exchange=answer.exchange
            )
            yield row if answer.ended is None else row._replace(finish=answer.ended.finish)
            continue
        if (
            isinstance(question, Generation) and text is None and not answer.is_nan
        ):  # of NaN no token is the likeliest
            text = model.tokenizer.decode(answer.tokens)
        own_sizes = sizes(question, answer, bytes_of)
        numbers = key, answer.tokens, own_sizes, answer.logprobs, answer.ranks, text, answer.value
        row = ObservationRow(*numbers, at_most=answer.at_most or None, exchange=answer.exchange)
        yield (
            _with_end(row, question, answer, model.tokenizer)
            if isinstance(question, Generation)
            else row
        )


def _with_end(
    row: ObservationRow, question: Generation, answer: TokenScores, tokenizer: Tokenizer
) -> ObservationRow:
    """The row with how its text ended, and where its thought began."""
    ended, tokens, raw = answer.ended or Ended(), answer.tokens.tolist(), None
    if not question.marks.keys().isdisjoint(tokens):
        raw = b"".join(question.spelled(token, tokenizer.token_bytes) for token in tokens).decode(
            errors="replace"
        )
    return row._replace(
        finish=ended.finish,
        raw=raw,
        opened=question.opened or None,
        thought=ended.thought,
        generated_tokens=ended.tokens,
        thought_tokens=ended.thought_tokens,
        forced=ended.forced,
    )


def _answer_in_parts(model: Model, questions: Sequence[Prompt]) -> Answers:
    """What ``model`` answers; a generation with a limit of its own for the thought first in thoughts, then in answers.

    A thought at its limit is closed, and the answer goes on from there; the tokens that close it were not chosen, and
    have 0 nats.  Where no thought begins the answer is generated alone.  A server that renders the chat itself is told
    both limits.
    """
    served = isinstance(model.tokenizer.chat, ServedChat)
    limited = {
        index: question
        for index, question in enumerate(questions)
        if isinstance(question, Generation) and question.thought is not None and not served
    }
    others = [index for index in range(len(questions)) if index not in limited]
    if others:
        yield from (
            (others[place], answer)
            for place, answer in model.answer([questions[each] for each in others])
        )
    if not limited:
        return
    whole = [replace(each, thought=None, closing=None) for each in limited.values()]
    thoughts = [
        replace(each, limit=asked.thought or 0, stops=ENDS, keep_stop=True, opened=None)
        for each, asked in zip(whole, limited.values(), strict=True)
    ]
    indices, answers = list(limited), dict[int, tuple[Generation, TokenScores, bool | None]]()
    for place, thought in model.answer(thoughts):
        index, asked = indices[place], limited[indices[place]]
        if thought.missing is not None or thought.is_nan:
            yield index, thought
        elif thought.text is not None:
            yield index, TokenScores.unanswered(NO_TOKENS)
        else:
            head, forced = _closed(asked, thought, model.tokenizer)
            if head is None:
                yield index, replace(thought, ended=Ended(EOS))
                continue
            context = np.concatenate([asked.context, head.tokens]).astype(np.int32)
            opened = "" if len(head.tokens) else asked.opened
            answers[index] = replace(whole[place], context=context, opened=opened), head, forced
    indices = list(answers)
    for place, answer in (
        model.answer([question for question, _, _ in answers.values()]) if answers else ()
    ):
        index, (_, head, forced) = indices[place], answers[indices[place]]
        if answer.missing is None and answer.text is None:
            ended = (answer.ended or Ended())._replace(forced=forced)
            answer = replace(TokenScores.joined([head, answer]), ended=ended)
        elif answer.missing is None:
            answer = TokenScores.unanswered(NO_TOKENS)
        yield index, answer


def _closed(
    asked: Generation, thought: TokenScores, tokenizer: Tokenizer
) -> tuple[TokenScores | None, bool | None]:
    """What stands before the answer, and whether the thought in it was closed at its limit.

    Nothing where no thought began; None where the model ended in its thought, after which it answers nothing.
    """
    tokens = thought.tokens.tolist()
    parts = split(
        b"".join(asked.spelled(token, tokenizer.token_bytes) for token in tokens),
        asked.opened or "",
    )
    if not parts.open:
        return (thought, False) if parts.thoughts else (TokenScores.of(), None)
    finish = None if thought.ended is None else thought.ended.finish
    if finish not in (LENGTH, None) or len(tokens) < (asked.thought or 0):
        return None, None
    closing = () if asked.closing is None else asked.closing.tolist()
    forced = TokenScores.of(closing, [0.0] * len(closing), [UNKNOWN] * len(closing))
    return TokenScores.joined([thought, forced]), True


def _unanswered(key: str, question: TokenPrompt, reason: str, bytes_of: Ids) -> ObservationRow:
    """NaN at every token that was to be scored: without tokens it would look as if nothing had been asked."""
    answer = TokenScores.unanswered(reason, _scored(question))
    own_sizes = sizes(question, answer, bytes_of)
    numbers = key, answer.tokens, own_sizes, answer.logprobs, answer.ranks
    return ObservationRow(*numbers, value=answer.value, missing=reason)


def _scored(question: TokenPrompt) -> npt.ArrayLike:
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
