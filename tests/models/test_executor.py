"""Where blocks are answered: after an error nothing goes on in the background."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from choicewise import evaluate
from choicewise.bundled import BENCHMARK
from choicewise.errors import ModelError
from choicewise.models.fake import HashModel
from choicewise.questions import Ids, Question, TokenScores
from choicewise.tokens.tokenizer import ByteTokenizer

PROTOCOLS = ["mmlu/original", "mmlu/cloze", "mmlu/harness-v0", "mmlu/helm"]


class Slow(ByteTokenizer):
    """A tokenizer that takes its time."""

    calls = 0

    def encode(self, texts: Sequence[str], *, special: bool) -> list[Ids]:
        self.calls += 1
        time.sleep(0.1)
        return super().encode(texts, special=special)


class Failing(HashModel):
    """Breaks down as soon as it is asked, or gets ready."""

    def __init__(self, when: str) -> None:
        super().__init__()
        self.slow = self.tokenizer = Slow()
        self._when = when

    def check(self, depth: int) -> None:
        if self._when == "check":
            time.sleep(0.15)
            raise ModelError("its weights are damaged")

    def answer(self, questions: Sequence[Question]) -> Iterator[tuple[int, TokenScores]]:
        raise ModelError("it knows no such token")


@pytest.mark.parametrize("when", ["check", "answer"])
def test_after_an_error_no_thread_goes_on_tokenizing(tmp_path: Path, when: str) -> None:
    calm = Failing("never")
    with pytest.raises(ModelError, match="no such token"):
        evaluate(model=calm, data=BENCHMARK, protocols=PROTOCOLS, limit=2, out=tmp_path / "calm")
    threads = set(threading.enumerate())
    model = Failing(when)
    with pytest.raises(ModelError) as caught:
        evaluate(model=model, data=BENCHMARK, protocols=PROTOCOLS, limit=2, out=tmp_path / "run")
    assert caught.value.__traceback__ is not None  # which keeps every frame of the run alive
    calls = model.slow.calls
    assert set(threading.enumerate()) <= threads
    time.sleep(0.3)
    assert model.slow.calls == calls
    if when == "check":
        assert calls < calm.slow.calls / 2, "the block that nobody needs is prepared to its end"
