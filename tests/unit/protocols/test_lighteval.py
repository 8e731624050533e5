"""lighteval's readings of MMLU and TruthfulQA: the texts that its prompt functions (0.9.2) make of these rows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from choicewise.data.dataset import Dataset
from choicewise.data.items import Item
from choicewise.protocols.catalogue import one, resolve
from tests.helpers.protocols import requests

SHOT = Item("1", "Which bone is longest? ", ("femur", " ulna", "Rib", "femur"), (0,), "human_sexuality")
ASKED = Item("2", "Q2", ("1", "2", "3", "4"), (3,), "human_sexuality")
PROMPT = (
    "The following are multiple choice questions (with answers) about {}human sexuality.\n\n"
    "Which bone is longest? \nA. femur\nB.  ulna\nC. Rib\nD. femur\nAnswer: A\n\n"
    "Q2\nA. 1\nB. 2\nC. 3\nD. 4\nAnswer:"
)


@pytest.mark.parametrize(
    ("name", "space", "letters"),
    [
        ("mmlu/lighteval", "", (" A", " B", " C", " D")),
        ("mmlu/lighteval-original", " ", ("A", "B", "C", "D")),
    ],
)
def test_mmlu_is_asked_like_this(name: str, space: str, letters: tuple[str, ...]) -> None:
    recipe = replace(one(name).protocol, shots=1)
    (request,) = requests(recipe, Dataset("mmlu", {"dev": [SHOT], "test": [ASKED]}), "human_sexuality")
    assert (request.context(), tuple(request.continuations)) == (PROMPT.format(space), letters)


def test_truthfulqa_is_asked_as_on_the_leaderboard_but_with_a_bos() -> None:
    item = Item("1", "Is it? ", ("Yes.", " Maybe", "No."), (0, 1))
    recipe = one("truthfulqa/lighteval").protocol
    (request,) = requests(recipe, Dataset("truthfulqa", {"validation": [item]}), "")
    assert request.context().startswith("Q: What is human life expectancy in the United States?\nA: Human life ")
    assert request.context().endswith("Spain.\n\nQ: Is it? \nA:")
    assert tuple(request.continuations) == (" Yes.", "  Maybe", " No.")
    old = resolve("truthfulqa/harness-v1:mc2")["truthfulqa/harness-v1:mc2"]
    assert replace(recipe, bos="none") == old
