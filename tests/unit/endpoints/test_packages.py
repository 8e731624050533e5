"""Models that need a package which is not installed are refused with the line that installs it."""

import importlib.util
from collections.abc import Callable
from importlib.machinery import ModuleSpec

import pytest

from choicewise.errors import ModelError
from choicewise.extensions.endpoints import packages


@pytest.mark.parametrize(
    ("missing", "need", "words"),
    [
        (
            "stamina",
            packages.need_client,
            "behind a server .*stamina is missing.*install",
        ),
        (
            "vllm",
            lambda: packages.need_vllm("vllm:org/name"),
            r"vllm:org/name needs vLLM .*install",
        ),
    ],
)
def test_the_missing_package_is_named(
    missing: str, need: Callable[[], None], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find_spec(package: str) -> ModuleSpec | None:
        return None if package == missing else importlib.util.find_spec("json")

    monkeypatch.setattr(packages, "find_spec", find_spec)
    with pytest.raises(ModelError, match=words):
        need()
