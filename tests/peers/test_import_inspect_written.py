"""Logs that the installed Inspect writes are read, and its own verdicts follow from what is read."""

from pathlib import Path
from typing import Any

import pytest

import choicewise
from choicewise.interchange.logs.import_log import read_logs, read_state

ANSWERS = {"river": "ANSWER: B", "mill": "Let me see.\n\nANSWER: a", "lamp": "I do not know."}


@pytest.fixture(scope="module")
def inspect_ai() -> Any:
    """The package; tiktoken, which would download its vocabulary to count tokens, counts bytes."""
    inspect_ai = pytest.importorskip("inspect_ai")
    import tiktoken

    tiktoken.get_encoding = tiktoken.encoding_for_model = lambda *_: Bytes()
    return inspect_ai


class Bytes:
    """A tokenizer of bytes."""

    def encode(self, text: str, **_: Any) -> list[int]:
        return list(text.encode())


@pytest.mark.parametrize("form", ["eval", "json"])
def test_what_inspect_writes_is_read(tmp_path: Path, inspect_ai: Any, form: str) -> None:
    from inspect_ai.dataset import MemoryDataset, Sample
    from inspect_ai.model import ModelOutput, get_model
    from inspect_ai.scorer import choice
    from inspect_ai.solver import multiple_choice

    def answer(messages: Any, *_: Any) -> Any:
        return ModelOutput.from_content(
            "mockllm/model", next(ANSWERS[word] for word in ANSWERS if word in messages[-1].text)
        )

    samples = [Sample(id=word, input=f"Which is {word}?", choices=["x", "y"], target="B") for word in ANSWERS]
    task = inspect_ai.Task(MemoryDataset(samples), solver=multiple_choice(), scorer=choice(), name="words")
    model = get_model("mockllm/model", custom_outputs=answer, memoize=False)
    inspect_ai.eval(task, model, log_dir=str(tmp_path / "logs"), log_format=form, display="none")
    (log,) = read_logs([tmp_path / "logs"])
    assert {item.id: item.generated for item in log.items} == ANSWERS
    assert {item.id: item.recorded["choice"] for item in log.items} == {"river": 1.0, "mill": 0.0, "lamp": 0.0}
    assert read_state(log).notes == ()
    (run,) = choicewise.import_log(tmp_path / "logs", tmp_path / "run")
    rows = {row["protocol"]: row for row in run.report().to_pylist()}
    assert rows[f"words:{log.rules[0]}"]["value"] == pytest.approx(1 / 3)
