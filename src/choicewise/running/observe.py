"""From questions to observations: what a model answers, as rows of the observation table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from choicewise.questions import Conclusion, Generation, Ids, TokenScores
from choicewise.records.rows import ObservationRow
from choicewise.requests.prompt_rows import BlockQuestion
from choicewise.tokens.byte_probability import TokenQuestion
from choicewise.tokens.coverings import answer_with_bytes, sizes

if TYPE_CHECKING:
    from choicewise.models.model import Model


def observe(model: Model, wanted: Mapping[str, BlockQuestion]) -> Iterator[ObservationRow]:
    """One observation per question of ``wanted`` (by key), in the order in which the model answers.

    Generations after which something is scored come first; one that is not ``wanted`` itself, because an earlier run
    kept it, is generated again and gives the same tokens.
    """
    needed = {q.generation.key: q.generation for q in wanted.values() if isinstance(q, Conclusion)}
    generated: dict[str, Ids] = {}
    for key, answer in _answers(model, needed):
        generated[key] = answer.tokens
        if key in wanted:
            yield _observation(key, needed[key], answer, model)
    questions: dict[str, TokenQuestion] = {}
    for key, question in wanted.items():
        if isinstance(question, Conclusion):
            questions[key] = question.after(generated[question.generation.key])
        elif key not in needed:
            questions[key] = question
    for key, answer in _answers(model, questions):
        yield _observation(key, questions[key], answer, model)


def _answers(model: Model, questions: Mapping[str, TokenQuestion]) -> Iterator[tuple[str, TokenScores]]:
    keys = list(questions)
    for index, answer in answer_with_bytes(model, list(questions.values())):
        yield keys[index], answer


def _observation(key: str, question: TokenQuestion, answer: TokenScores, model: Model) -> ObservationRow:
    text = None
    if isinstance(question, Generation) and not answer.is_nan:  # of NaN no token is the likeliest
        text = model.tokenizer.decode(answer.tokens)
    return ObservationRow(
        key=key,
        tokens=answer.tokens,
        sizes=sizes(question, answer, model.tokenizer),
        logprobs=answer.logprobs,
        ranks=answer.ranks,
        text=text,
        value=answer.value,
    )
