"""The scores of one question without a run: what it takes as a model and as a list of choices."""

from pathlib import Path

import numpy as np
import pytest

from choicewise import score
from choicewise.errors import ModelError, UsageError
from choicewise.protocols.protocol import BOUNDARIES


def test_a_model_is_a_name_or_a_path() -> None:
    by_name, by_path = (score(model, "The cat", [" sat", " ran"]) for model in ("fake:hash", Path("fake:hash")))
    assert by_name == by_path == score("fake:hash", "The cat", iter([" sat", " ran"]))
    assert by_name["choice"].to_pylist() == [" sat", " ran"]


def test_domain_scores_take_the_premise_and_are_left_out_without_one() -> None:
    """By the chain rule of the fake, whose log-probabilities of consecutive texts add up."""
    context, choices, premise = "The cat", [" sat", " ran off"], " the answer is:"
    after = {text: score("fake:hash", text, choices) for text in (context, premise)}
    table = score("fake:hash", context, choices, premise=premise)
    assert table["domain_conditional"].to_pylist() == after[premise]["sum"].to_pylist()
    gained = np.subtract(after[context]["sum"], after[premise]["sum"])
    np.testing.assert_allclose(table["dc_pmi"], gained)
    assert table.drop_columns(["dc_pmi", "domain_conditional"]) == after[context]
    assert not np.allclose(table["dc_pmi"], table["pmi"])


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_a_premise_that_is_the_context_adds_nothing(boundary: str) -> None:
    if boundary == "word":
        pytest.skip("the bytes of the fake mark no words")
    for context in ("the cat", "the cat ", "\n"):
        table = score("fake:hash", context, ["s", " sa"], boundary=boundary, premise=context)
        assert table["dc_pmi"].to_pylist() == [0, 0]


def test_a_premise_with_the_space_of_the_choices_stands_in_its_place() -> None:
    spaced = score("fake:hash", "The cat", [" sat"], boundary="joint", premise="it: ")
    bare = score("fake:hash", "it: ", ["sat"], boundary="joint")
    assert spaced["domain_conditional"].to_pylist() == bare["sum"].to_pylist()


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_an_empty_choice_is_refused_under_every_boundary(boundary: str) -> None:
    with pytest.raises(ModelError, match="choice '' can't be scored: continuation '' leaves nothing to score"):
        score("fake:hash", "The cat", ["", " sat"], boundary=boundary)


@pytest.mark.parametrize(("choices", "reason"), [(" sat", r"write choices=\[' sat'\]"), ([], "at least one choice")])
def test_choices_are_a_list_of_some(choices: str | list[str], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        score("fake:hash", "The cat", choices)


def test_half_a_character_is_no_text() -> None:
    for context, choices in (("The \ud83d", [" sat"]), ("The cat", [" sat", " \ude00"])):
        with pytest.raises(UsageError, match="lone surrogate"):
            score("fake:hash", context, choices)
