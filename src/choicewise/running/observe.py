"""From questions to observations: what a model answers, as rows of the observation table."""

import math
from collections.abc import Iterator, Mapping

import numpy as np

from choicewise.models.model import Model
from choicewise.questions import Conclusion, Generation, Ids
from choicewise.records.rows import ObservationRow
from choicewise.requests.prompt_rows import BlockQuestion
from choicewise.tokens.byte_probability import TokenQuestion
from choicewise.tokens.coverings import answer_with_bytes, sizes, token_sizes


def observe(model: Model, wanted: Mapping[str, BlockQuestion]) -> Iterator[ObservationRow]:
    """One observation per question of ``wanted`` (by key), in the order in which the model answers.

    Generations after which something is scored come first; one that is not ``wanted`` itself, because an earlier run
    kept it, is generated again and gives the same tokens.  What is to be scored after a generation that got no answer
    gets none, for the same reason.
    """
    needed = {q.generation.key: q.generation for q in wanted.values() if isinstance(q, Conclusion)}
    generated: dict[str, Ids] = {}
    failed: dict[str, str] = {}
    for row in _answers(model, needed):
        generated[row.key] = np.asarray(row.tokens, dtype=np.int32)
        if row.missing is not None:
            failed[row.key] = row.missing
        if row.key in wanted:
            yield row
    questions: dict[str, TokenQuestion] = {}
    for key, question in wanted.items():
        if key in needed:
            continue
        if not isinstance(question, Conclusion):
            questions[key] = question
        elif (reason := failed.get(question.generation.key)) is None:
            questions[key] = question.after(generated[question.generation.key])
        else:
            yield ObservationRow(key, (), (), (), (), value=math.nan, missing=reason)
    yield from _answers(model, questions)


def _answers(model: Model, questions: Mapping[str, TokenQuestion]) -> Iterator[ObservationRow]:
    keys, bytes_of = list(questions), token_sizes(model.tokenizer)
    for index, answer in answer_with_bytes(model.answer, list(questions.values())):
        key, question, text = keys[index], questions[keys[index]], answer.text
        if isinstance(question, Generation) and text is None and not answer.is_nan:  # of NaN no token is the likeliest
            text = model.tokenizer.decode(answer.tokens)
        own_sizes = sizes(question, answer, bytes_of)
        numbers = key, answer.tokens, own_sizes, answer.logprobs, answer.ranks, text, answer.value
        yield ObservationRow(*numbers, at_most=answer.at_most or None, missing=answer.missing)
