"""From questions to observations: what a model answers, as rows of the observation table."""

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
    kept it, is generated again and gives the same tokens.
    """
    needed = {q.generation.key: q.generation for q in wanted.values() if isinstance(q, Conclusion)}
    generated: dict[str, Ids] = {}
    for row in _answers(model, needed):
        generated[row.key] = np.asarray(row.tokens, dtype=np.int32)
        if row.key in wanted:
            yield row
    yield from _answers(
        model,
        {
            key: question.after(generated[question.generation.key]) if isinstance(question, Conclusion) else question
            for key, question in wanted.items()
            if key not in needed
        },
    )


def _answers(model: Model, questions: Mapping[str, TokenQuestion]) -> Iterator[ObservationRow]:
    keys, bytes_of = list(questions), token_sizes(model.tokenizer)
    for index, answer in answer_with_bytes(model.answer, list(questions.values())):
        key, question, text = keys[index], questions[keys[index]], answer.text
        if isinstance(question, Generation) and text is None and not answer.is_nan:  # of NaN no token is the likeliest
            text = model.tokenizer.decode(answer.tokens)
        own_sizes = sizes(question, answer, bytes_of)
        numbers = key, answer.tokens, own_sizes, answer.logprobs, answer.ranks, text, answer.value
        yield ObservationRow(*numbers, at_most=answer.at_most or None, missing=answer.missing)
