"""The scores of one question without a run: what it takes as a model and as a list of choices."""

from pathlib import Path

import pytest

from choicewise import score
from choicewise.errors import UsageError


def test_a_model_is_a_name_or_a_path() -> None:
    by_name, by_path = (score(model, "The cat", [" sat", " ran"]) for model in ("fake:hash", Path("fake:hash")))
    assert by_name == by_path == score("fake:hash", "The cat", iter([" sat", " ran"]))
    assert by_name["choice"].to_pylist() == [" sat", " ran"]


@pytest.mark.parametrize(("choices", "reason"), [(" sat", r"write choices=\[' sat'\]"), ([], "at least one choice")])
def test_choices_are_a_list_of_some(choices: str | list[str], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        score("fake:hash", "The cat", choices)


def test_half_a_character_is_no_text() -> None:
    for context, choices in (("The \ud83d", [" sat"]), ("The cat", [" sat", " \ude00"])):
        with pytest.raises(UsageError, match="lone surrogate"):
            score("fake:hash", context, choices)
