"""What servers must not answer: each ends in a missing answer with a reason, or in the true one, never in another."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from choicewise.models.fake import HashModel
from choicewise.models.server import routes as fields
from choicewise.models.server.faults import ServerFailed, Unanswerable
from choicewise.models.server.next_token_routes import bound, check_listed
from choicewise.models.server.server_model import ServerModel
from choicewise.questions import Question, Span
from tests.helpers.misbehaving_server import Fault, Server, serving
from tests.helpers.models_at_servers import ids, model_at
from tests.helpers.served_model import BOS, JSON, LLAMA_CPP, TOP_ONLY, VLLM, ServedModel, log_probabilities
from tests.helpers.server_faults import ANSWER_FAULTS

HASH = HashModel()
CONTEXT = ids(256, *b"Where does it live? Answer:")
QUESTIONS: list[Question] = [
    Span(CONTEXT, ids(*b" a")),
    Span(CONTEXT, ids(*b" the sea, in which there are many fish, and ships too")),
    *(Span(CONTEXT, ids(token)) for token in b"ABCD"),
]


@pytest.fixture(scope="module", params=[VLLM, LLAMA_CPP, TOP_ONLY], ids=lambda ability: ability.name)
def served(request: pytest.FixtureRequest) -> Iterator[tuple[Server, ServerModel]]:
    with serving(request.param) as server:
        model = model_at(server, timeout=5.0, patience=0.5)
        assert model.chosen.score is not None
        yield server, model


@pytest.mark.parametrize("name", ANSWER_FAULTS)
def test_a_wrong_answer_is_never_a_score(name: str, served: tuple[Server, ServerModel]) -> None:
    """Half of the answers are right; "all equal" numbers of one next token alone can't be told from true ones."""
    server, model = served
    server.next(*[None, ANSWER_FAULTS[name]] * 50)
    try:
        given = dict(model.answer(QUESTIONS))
    except ServerFailed:
        return  # nothing is scored
    finally:
        server._next.clear()
    assert len(given) == len(QUESTIONS)
    for index, true in HASH.answer(QUESTIONS):
        answer = given[index]
        if answer.missing is not None:
            assert np.isnan(answer.logprobs).all()
            assert answer.missing
        elif answer.at_most:
            assert answer.logprobs[0] >= true.logprobs[0] - 1e-6 or name in ("all 0.0", "all equal")
        elif name not in ("all equal", "all 0.0"):
            np.testing.assert_allclose(answer.logprobs, true.logprobs, atol=2e-6)


@pytest.mark.parametrize("name", ["all 0.0", "all equal", "positive", "-9999", "NaN", "empty lists", "lists of null"])
def test_a_server_that_always_answers_so_is_refused(name: str, server: Server) -> None:
    """No way of asking about spans is left, and each says why."""
    model = model_at(server, timeout=5.0, patience=0.5)
    server.when(lambda request: request.path == "/v1/completions", ANSWER_FAULTS[name])
    assert model.chosen.score is None
    assert any(trial.refused for trial in model.selfcheck.trials)


@pytest.mark.parametrize("value", [0.5, math.nan, -math.inf, -9999.0, None, "-1.5", True, [-1.5]])
def test_what_is_no_log_probability(value: object) -> None:
    with pytest.raises(Unanswerable):
        fields.number(value)
    assert [fields.number(true) for true in (-1.5, 0, 5e-7, -3)] == [-1.5, 0.0, 0.0, -3.0]


def test_an_answer_has_one_choice_with_index_0_or_is_none() -> None:
    first, second = {"index": 0, "text": "a"}, {"index": 1, "text": "b"}
    assert fields.choice({"choices": [first]}) == first
    wrong: list[Any] = [[], [second], [second, first], [first, first], [{"index": False}], [{}], [None], None]
    for choices in wrong:
        with pytest.raises(Unanswerable):
            fields.choice({"choices": choices})


def test_another_number_of_tokens_than_was_sent_is_no_answer() -> None:
    fields.check_prompt({"usage": {"prompt_tokens": 5}}, 5)
    fields.check_prompt({}, 5)
    for read, reason in ((6, "an added BOS"), (4, "read 4 tokens where 5 were sent")):
        with pytest.raises(Unanswerable, match=reason):
            fields.check_prompt({"usage": {"prompt_tokens": read}}, 5)


def test_a_bound_is_the_lesser_of_two() -> None:
    assert bound([math.log(0.5), math.log(0.3)]) == pytest.approx(math.log(0.2), abs=1e-4)
    assert bound([math.log(0.5), math.log(0.01)]) == pytest.approx(math.log(0.01), abs=1e-4)
    assert bound([-1e-9]) <= math.log(1e-5)
    for listed in ({b"a": 0.0, b"b": 0.0}, {}):
        with pytest.raises(Unanswerable):
            check_listed(listed)


def test_a_token_that_was_not_asked_for_is_no_answer(server: Server) -> None:
    def renamed(answer: JSON) -> JSON:
        logprobs = answer["choices"][0]["logprobs"]
        logprobs["top_logprobs"] = [{f"{name}0": value for name, value in logprobs["top_logprobs"][0].items()}]
        return answer

    model = model_at(server)
    assert model.chosen.score is not None
    server.next(Fault(answer=renamed))
    given = dict(model.answer([Span(CONTEXT, ids(97)), Span(ids(*CONTEXT, 97), ids(98))]))
    assert sorted(answer.missing is None for answer in given.values()) == [False, True]
    assert next(answer.missing for answer in given.values() if answer.missing).startswith("the server gives no log")


MODEL = ServedModel("hash", VLLM)
"""The server of the tests, which tells the truth where it does not misbehave."""


def test_a_chat_names_the_likeliest_tokens() -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1, "logprobs": True, "top_logprobs": 3}
    answer = MODEL.answer("POST", "/v1/chat/completions", body | {"temperature": 0})
    (entry,) = answer["choices"][0]["logprobs"]["content"]
    row = log_probabilities([BOS, *b"<|user|>hi\n<|assistant|>"])
    assert entry["logprob"] == max(row) == entry["top_logprobs"][0]["logprob"]
    assert len(entry["top_logprobs"]) == 3


@pytest.mark.parametrize("name", ANSWER_FAULTS)
def test_every_fault_changes_the_answer(name: str) -> None:
    body = {"prompt": ["abc", "abd"], "echo": True, "max_tokens": 1, "logprobs": 2, "prompt_logprobs": 1}
    answer = MODEL.answer("POST", "/v1/completions", body | {"temperature": 0})
    change = ANSWER_FAULTS[name].answer
    assert change is not None
    assert change(answer) != answer
