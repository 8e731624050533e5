"""The harness's own model and ours, on the same folder in float32, and requests as the harness makes them."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM

from choicewise.bundled import MODELS
from choicewise.integrations.lm_eval.model import ChoicewiseLM

TOLERANCE = 1e-4
"""Nats, as the numbers may differ in float32."""

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "models"
FOLDERS = {folder.name: folder for folder in sorted(MODELS)}
FOLDERS |= {name: SHARED / name for name in ("stories260K", "aidreams260K", "babyllama-tok105")}
NAMES = [name for name, folder in FOLDERS.items() if folder.is_dir()]


@cache
def theirs(name: str, **arguments: Any) -> HFLM:
    """The harness's model, without the shortcut whose numbers can be another request's."""
    return HFLM(pretrained=str(FOLDERS[name]), dtype="float32", device="cpu", logits_cache=False, **arguments)


@cache
def ours(name: str, **arguments: Any) -> ChoicewiseLM:
    """Ours."""
    return ChoicewiseLM(pretrained=str(FOLDERS[name]), dtype="float32", device="cpu", **arguments)


def requests(kind: str, texts: list[Any]) -> list[Instance]:
    """Requests of one task, a document each."""
    return [
        Instance(kind, {}, arguments if isinstance(arguments, tuple) else (arguments,), 0, metadata=("made", index, 1))
        for index, arguments in enumerate(texts)
    ]


def near(own: float, other: float) -> bool:
    """Whether two log-likelihoods are the same number, as float32 sums of many tokens may differ."""
    return own == pytest.approx(other, rel=2e-6, abs=TOLERANCE)
