"""vLLM's process: requests are added while others are computed, and every output comes as it ends."""

from collections.abc import Iterator

import pytest

from choicewise.extensions.endpoints.vllm.process import EngineDied, EngineProcess
from choicewise.extensions.endpoints.vllm.vllm_routes import EngineRequest, Output
from tests.helpers.engine_worker import POISON


class Process(EngineProcess):
    module = "tests.helpers.engine_worker"


@pytest.fixture
def process() -> Iterator[Process]:
    started = Process({})
    yield started
    started.close()


def request(tokens: int, first: int = 1) -> EngineRequest:
    return EngineRequest([first, 2, 3], {"max_tokens": tokens}, [], lambda output: [])


def test_a_short_answer_does_not_wait_for_a_long_one(process: Process) -> None:
    process.send(1, request(100_000))
    process.send(2, request(3))
    assert process.receive()[0] == 2
    process.send(3, request(2))
    process.send(4, request(1, POISON))
    ended = dict(process.receive() for _ in range(2))
    assert ended.keys() == {3, 4}
    assert isinstance(ended[3], Output)
    assert ended[3].tokens == [7]
    assert "out of vocabulary" in str(ended[4])


def test_many_answers_that_come_at_once_are_told_apart(process: Process) -> None:
    for number in range(300):
        process.send(number, request(1))
    assert sorted(process.receive()[0] for _ in range(300)) == list(range(300))


def test_an_engine_that_was_ended_says_so(process: Process) -> None:
    process.send(1, request(10_000_000))
    process.close()
    with pytest.raises(EngineDied, match="vLLM stopped"):
        process.receive()
