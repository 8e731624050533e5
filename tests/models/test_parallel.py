"""What processes that torchrun starts can't share, and what their devices are called; no process is started here."""

from pathlib import Path
from typing import Any

import pytest

from choicewise.bundled import MODELS
from choicewise.errors import ModelError
from choicewise.models.local.devices import device_of, is_follower, ranks
from choicewise.models.local.folder_model import FolderModel
from choicewise.models.local.parallel import refuse

BASE = next(folder for folder in MODELS if folder.name == "merrow-bpe-512")


def among(monkeypatch: pytest.MonkeyPatch, size: int, rank: int = 0) -> None:
    """As if torchrun had started so many."""
    for name, value in {"WORLD_SIZE": size, "RANK": rank, "TORCHELASTIC_RUN_ID": "test"}.items():
        monkeypatch.setenv(name, str(value))


LLAMA = {"model_type": "llama", "num_attention_heads": 32, "num_key_value_heads": 8}


@pytest.mark.parametrize(
    ("size", "config", "reason"),
    [
        (
            3,
            LLAMA,
            "has 32 attention heads, which 3 processes can't share evenly; start 2 processes",
        ),
        (
            16,
            LLAMA,
            "has 8 key value heads, which 16 processes can't share evenly; start 2 or 4 or 8 processes",
        ),
        (
            2,
            {**LLAMA, "num_key_value_heads": 1},
            "has 1 key value heads, which 2 .* evenly; run without torchrun",
        ),
        (2, {"model_type": "gpt2"}, "no tensor-parallel plan"),
        (2, {"model_type": "nobodys"}, "no tensor-parallel plan"),
    ],
)
def test_what_can_not_be_shared_is_refused_before_it_is_loaded(
    size: int, config: dict[str, Any], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    among(monkeypatch, size)
    with pytest.raises(ModelError, match=reason):
        refuse(config, Path("model"), None)
    refuse(
        LLAMA | {"num_key_value_heads": 2 * size, "num_attention_heads": 4 * size},
        Path("model"),
        None,
    )


def test_other_weights_than_plain_ones_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    among(monkeypatch, 2)
    model = FolderModel(BASE, device="auto")
    monkeypatch.setattr(model, "quantisation", ("fp8", "float8"))
    with pytest.raises(ModelError, match="quantised; run without torchrun"):
        model.check(8)


def test_only_torchrun_makes_ranks_and_only_auto_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("RANK", "1")
    assert (ranks(), is_follower()) == (1, False)
    among(monkeypatch, 2)
    assert (device_of("auto"), device_of("cpu:x2"), device_of("cpu")) == ("cpu:x2", "cpu:x2", "cpu")
    with pytest.raises(ModelError, match="torchrun --nproc-per-node 4 -m choicewise"):
        device_of("cuda:x4")
    monkeypatch.setenv("WORLD_SIZE", "1")
    with pytest.raises(ModelError, match="here is 1; run: torchrun --nproc-per-node 2"):
        device_of("cpu:x2")
