"""A run against a server has the numbers of a run here; a fault at any stage of the probe is no traceback. It refuses
that way of asking, or ends the command with a line."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from choicewise import evaluate, load_model
from choicewise.bundled import BENCHMARK
from choicewise.cli.commands import invoke
from choicewise.errors import ModelError
from choicewise.extensions.endpoints.server.probe import ChosenRoutes
from choicewise.models.fake import HashModel
from tests.helpers.misbehaving_server import Fault, serving
from tests.helpers.served_model import LLAMA_CPP, TOP_ONLY, VLLM, Ability
from tests.helpers.server_faults import each_choice, numbers, says, status

WITHOUT_CHOICE = replace(VLLM, token_choice=False)

pytestmark = pytest.mark.usefixtures("no_pauses")


def usage(said: Any) -> Fault:
    """What an answer says that was read."""
    return Fault(answer=lambda answer: {**answer, "usage": said} if "choices" in answer else answer)


def leaves(change: Callable[[Any], Any], name: Callable[[str], str] = str) -> Fault:
    """Every text and number of an answer changed, and every name."""

    def mapped(value: Any) -> Any:
        match value:
            case dict():
                return {name(key): mapped(each) for key, each in value.items()}
            case list():
                return [mapped(each) for each in value]
        return change(value)

    return Fault(answer=mapped)


def huge_ids(value: Any) -> Any:
    return value.replace("token_id:", "token_id:9999999999") if isinstance(value, str) else value


def nested(levels: int) -> Any:
    return [nested(levels - 1)] if levels else "\ud800"


FAULTS = {
    "NaN": numbers(lambda number: math.nan),
    "huge numbers": leaves(lambda value: -(10**400) if isinstance(value, int | float) else value),
    "huge ids": leaves(huge_ids, huge_ids),
    "nested": says(b'{"choices":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "nested within": each_choice(
        lambda choice: {**choice, "logprobs": nested(700), "text": nested(700)}
    ),
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


def score(address: str) -> int:
    words = ["--tokenizer", "bytes", "--context", "Where?", "--choice", "a", "--choice", "b"]
    return invoke(["score", "--model", address, *words])


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(
    "ability", [WITHOUT_CHOICE, TOP_ONLY], ids=["older vLLM", "next tokens alone"]
)
def test_a_fault_at_any_stage_ends_in_a_line_or_another_way_of_asking(
    ability: Ability, fault: str
) -> None:
    """At the last request of each stage, whose requests have the same path and fields."""
    with serving(ability) as server:
        assert score(server.address) == 0
        kinds = [(request.path, *sorted(request.body or ())) for request in server.requests]
    for place in sorted({each: place for place, each in enumerate(kinds)}.values()):
        with serving(ability) as server:
            server.next(*[None] * place, FAULTS[fault])
            try:
                assert score(server.address) == 0
            except ModelError as error:
                said = str(error)
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
    assert chosen.score.name == "prompt log-probabilities"
    refused = [trial.rung for trial in chosen.check.trials if trial.refused]
    assert refused == ["vLLM, trace replay", "chosen next tokens"]  # the first was not offered


WIDE = replace(VLLM, window=100_000)
OLDER = replace(WIDE, token_choice=False)
TEXTS = replace(LLAMA_CPP, window=100_000)


@pytest.mark.parametrize(
    "ability", [WIDE, OLDER, TEXTS], ids=["chosen tokens", "prompt log-probabilities", "echo"]
)
def test_every_protocol_of_mmlu_has_the_numbers_of_a_run_here(
    ability: Ability, tmp_path: Path
) -> None:
    texts = [
        "mmlu/cloze:sum",
        "mmlu/cloze:pmi-answer",
        "mmlu/letter-text:sum",
        "mmlu/letter-text:token_mean",
    ]
    protocols = texts if ability is TEXTS else ["mmlu"]
    asked = {"data": BENCHMARK, "protocols": protocols, "subjects": ["law"], "limit": 1}
    with serving(ability) as server:
        model = load_model(
            server.address, tokenizer="bytes", window=None if ability.name == "vllm" else 50_000
        )
        given = evaluate(model=model, **asked, out=tmp_path / "served").scores()
    true = evaluate(model=HashModel(), **asked, out=tmp_path / "here").scores()
    assert given.num_rows == true.num_rows > 0
    for name in true.column_names:
        if pa.types.is_floating(true.schema.field(name).type):
            numbers = (table[name].to_numpy(zero_copy_only=False) for table in (given, true))
            np.testing.assert_allclose(*numbers, atol=1e-4, rtol=1e-5, err_msg=name)
        else:
            assert given[name].to_pylist() == true[name].to_pylist(), name
