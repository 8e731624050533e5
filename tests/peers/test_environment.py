"""The tools that the tests here need are there, and all of them are pinned."""

from importlib import import_module

import pytest

from tests.helpers.constraints import unlike


@pytest.mark.parametrize(
    "name", ["choicewise", "inspect_ai.log", "lm_eval", "minicons", "mlflow", "wandb"]
)
def test_the_tools_can_be_imported(name: str) -> None:
    assert import_module(name)


def test_what_is_installed_is_what_is_pinned() -> None:
    assert unlike("peers") == {}
