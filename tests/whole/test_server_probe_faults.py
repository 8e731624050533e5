"""A fault at any stage of the probe refuses that way of asking, or ends the command with a line: never a traceback."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from choicewise.cli.commands import invoke
from choicewise.errors import ModelError
from choicewise.models.load import load_model
from choicewise.models.server.probe import ChosenRoutes
from tests.helpers.misbehaving_server import Fault, Received, serving
from tests.helpers.served_model import TOP_ONLY, VLLM, Ability
from tests.helpers.server_faults import each_choice, numbers, says, status

WITHOUT_CHOICE = replace(VLLM, token_choice=False)

pytestmark = pytest.mark.usefixtures("no_pauses")


def usage(said: Any) -> Fault:
    """What an answer says that was read."""
    return Fault(answer=lambda answer: {**answer, "usage": said} if "choices" in answer else answer)


def leaves(change: Callable[[Any], Any]) -> Fault:
    """Every text and number of an answer changed."""

    def changed(value: Any) -> Any:
        match value:
            case dict():
                return {name: changed(each) for name, each in value.items()}
            case list():
                return [changed(each) for each in value]
        return change(value)

    return Fault(answer=changed)


def nested(levels: int) -> Any:
    value: Any = "\ud800"
    for _ in range(levels):
        value = [value]
    return value


def renamed(name: str, other: str) -> Fault:
    def changed(value: Any) -> Any:
        match value:
            case dict():
                return {key.replace(name, other): changed(each) for key, each in value.items()}
            case list():
                return [changed(each) for each in value]
            case str():
                return value.replace(name, other)
        return value

    return Fault(answer=changed)


FAULTS = {
    "NaN": numbers(lambda number: math.nan),
    "huge numbers": leaves(lambda value: -(10**400) if isinstance(value, int | float) else value),
    "huge ids": renamed("token_id:", "token_id:9999999999"),
    "nested": says(b'{"choices":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "nested within": each_choice(lambda choice: {**choice, "logprobs": nested(700), "text": nested(700)}),
    "an error nested": says(b'{"error":' + b"[" * 700 + b"]" * 700 + b"}"),
    "400": status(400),
    "null": leaves(lambda value: None),
    "nothing but a number": Fault(answer=lambda answer: dict.fromkeys(answer, 5)),
    "usage: texts": usage({"prompt_tokens": "12", "completion_tokens": "1"}),
    "usage: negative": usage({"prompt_tokens": -3, "prompt_tokens_details": {"cached_tokens": -4}}),
    "usage: null": usage({"prompt_tokens": None, "prompt_tokens_details": None}),
    "usage: missing": usage(None),
    "usage: a list": usage([5]),
}


def kind(request: Received) -> tuple[str, ...]:
    """Requests of one stage have the same path and fields."""
    return request.path, *sorted(request.body or ())


def asked_by(ability: Ability) -> list[Received]:
    """The requests of an honest probe and a score."""
    with serving(ability) as server:
        assert score(server.address) == 0
        return server.requests


def score(address: str) -> int:
    words = ["--tokenizer", "bytes", "--context", "Where?", "--choice", "a", "--choice", "b"]
    return invoke(["score", "--model", address, *words])


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("ability", [WITHOUT_CHOICE, TOP_ONLY], ids=["older vLLM", "next tokens alone"])
def test_a_fault_at_any_stage_ends_in_a_line_or_another_way_of_asking(ability: Ability, fault: str) -> None:
    """At the last request of each stage."""
    kinds = [kind(request) for request in asked_by(ability)]
    for place in sorted({each: place for place, each in enumerate(kinds)}.values()):
        with serving(ability) as server:
            server.next(*[None] * place, FAULTS[fault])
            try:
                assert score(server.address) == 0
            except ModelError as error:
                said = str(error)
            else:
                continue
        assert said.startswith((server.url, "hash ", "the ")), said  # exit code 5
        assert len(said) < 1000


def chosen_at(address: str) -> ChosenRoutes:
    return load_model(address, tokenizer="bytes").chosen  # type: ignore[attr-defined, no-any-return]


@pytest.mark.parametrize("fault", ["NaN", "nested", "nested within", "400", "usage: negative"])
def test_what_fails_when_two_ways_are_compared_is_refused_and_the_other_taken(fault: str) -> None:
    with serving(VLLM) as server:
        chosen_at(server.address)
        bodies = [request.body or {} for request in server.requests]
    last = max(number for number, body in enumerate(bodies) if "prompt_logprobs" in body)
    with serving(VLLM) as server:
        server.next(*[None] * last, FAULTS[fault])
        chosen = chosen_at(server.address)
    assert chosen.score is not None
    assert chosen.score.name == "prompt log-probabilities"
    assert [trial.rung for trial in chosen.check.trials if trial.refused] == ["chosen next tokens"]
