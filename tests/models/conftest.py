"""Models that several files ask."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.helpers.tiny_models import save_causal
from tests.helpers.whole_text_models import ENCODER_DECODERS, MASKED, save_model


@pytest.fixture(scope="session")
def saved_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a tiny random model that is written once and changed by nobody. By its family, or where that is
    causal by the published tokenizer that it has."""
    root = tmp_path_factory.mktemp("models")

    @cache
    def saved(name: str) -> Path:
        save = save_model if name in {*MASKED, *ENCODER_DECODERS} else save_causal
        return save(name, root / name)

    return saved
