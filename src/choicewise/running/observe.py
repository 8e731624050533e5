"""From questions to observations: what a model answers, as rows of the observation table."""

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt

from choicewise.models.model import Model
from choicewise.questions import Conclusion, Cosine, Generation, Ids, MaskedLoss, Mass, TokenScores
from choicewise.records.rows import ObservationRow
from choicewise.requests.prompt_rows import BlockQuestion
from choicewise.tokens.byte_probability import ByteProbability, TokenQuestion
from choicewise.tokens.coverings import answer_with_bytes, sizes, token_sizes

NO_TOKENS = "the server names no tokens of the text that it generated, so nothing can be scored after it"
"""Why what follows a generation has no answer."""


def observe(model: Model, wanted: Mapping[str, BlockQuestion]) -> Iterator[ObservationRow]:
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
    asked: dict[str, TokenQuestion] = {}
    lost: dict[str, tuple[TokenQuestion, str]] = {}
    for key, question in wanted.items():
        if not isinstance(question, Conclusion):
            if key not in needed:
                asked[key] = question
            continue
        chain = generated[question.generation.key]
        if chain.missing is not None:
            lost[key] = question.span, chain.missing
        elif chain.text and not len(chain.tokens):
            lost[key] = question.span, NO_TOKENS
        else:
            asked[key] = question.after(np.asarray(chain.tokens, dtype=np.int32))
    bytes_of = token_sizes(model.tokenizer)
    yield from (_unanswered(key, question, reason, bytes_of) for key, (question, reason) in lost.items())
    yield from _answers(model, asked)


def _answers(model: Model, questions: Mapping[str, TokenQuestion]) -> Iterator[ObservationRow]:
    keys, bytes_of = list(questions), token_sizes(model.tokenizer)
    for index, answer in answer_with_bytes(model.answer, list(questions.values())):
        key, question, text = keys[index], questions[keys[index]], answer.text
        if answer.missing is not None:
            yield _unanswered(key, question, answer.missing, bytes_of)
            continue
        if isinstance(question, Generation) and text is None and not answer.is_nan:  # of NaN no token is the likeliest
            text = model.tokenizer.decode(answer.tokens)
        own_sizes = sizes(question, answer, bytes_of)
        numbers = key, answer.tokens, own_sizes, answer.logprobs, answer.ranks, text, answer.value
        yield ObservationRow(*numbers, at_most=answer.at_most or None)


def _unanswered(key: str, question: TokenQuestion, reason: str, bytes_of: Ids) -> ObservationRow:
    """NaN at every token that was to be scored: without tokens it would look as if nothing had been asked."""
    answer = TokenScores.unanswered(reason, _scored(question))
    own_sizes = sizes(question, answer, bytes_of)
    numbers = key, answer.tokens, own_sizes, answer.logprobs, answer.ranks
    return ObservationRow(*numbers, value=answer.value, missing=reason)


def _scored(question: TokenQuestion) -> npt.ArrayLike:
    match question:
        case Mass():
            return question.members.ids[:1]
        case MaskedLoss():
            return question.span.continuation
        case Cosine() | Generation():
            return ()
        case ByteProbability():
            return question.continuation[np.asarray(question.offsets[:-1]) - question.offsets[0]]
        case _:
            return question.continuation
