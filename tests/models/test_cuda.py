"""The same numbers on a CUDA device as from the plain path there, fast paths and all; skipped where there is none."""

from typing import Any

import numpy as np
import pytest
import torch

from choicewise.models.local.local_model import LocalModel
from choicewise.models.local.paths import TreePath
from choicewise.questions import Generation, Span
from choicewise.tokens.tokenizer import ByteTokenizer
from tests.helpers.answers import assert_same_scores, in_order
from tests.helpers.tiny_models import VOCABULARY, tiny

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


def model(family: str, dtype: torch.dtype, rung: str = "auto") -> LocalModel:
    found = tiny(family).to(device="cuda", dtype=dtype)
    return LocalModel(found, ByteTokenizer(), name=family, digest="0" * 64, window=512, rung=rung)


def spans() -> list[Span]:
    draw = np.random.default_rng(0)
    shared = draw.integers(3, VOCABULARY, 120).astype(np.int32)
    contexts = [np.concatenate([shared, draw.integers(3, VOCABULARY, 20).astype(np.int32)]) for _ in range(12)]
    return [Span(some, draw.integers(3, VOCABULARY, 1 + n).astype(np.int32)) for some in contexts for n in range(4)]


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma2", "gpt2", "bloom", "mamba", "gpt_oss"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-3), (torch.bfloat16, 0.5)])
def test_the_chosen_path_equals_the_plain_one(family: str, dtype: torch.dtype, tolerance: float) -> None:
    asked = spans()
    fast, plain = (in_order(model(family, dtype, rung).answer(asked)) for rung in ("auto", "plain"))
    sums = [[float(scores.logprobs.sum(dtype=np.float64)) for scores in found] for found in (fast, plain)]
    assert np.abs(np.subtract(*sums)).max() < tolerance


def test_generations_are_equal() -> None:
    prompts = [Generation(span.context, 4) for span in spans()[::4]]
    fast, plain = (in_order(model("llama", torch.float32, rung).answer(prompts)) for rung in ("auto", "plain"))
    assert [scores.tokens.tolist() for scores in fast] == [scores.tokens.tolist() for scores in plain]


def test_running_out_of_memory_makes_packs_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, answering = spans(), model("llama", torch.float32, "tree")
    answering.check(answering.window)
    forward, failures = TreePath.forward, iter([True, False, True])

    def scarce(*arguments: Any) -> Any:
        if next(failures, False):
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(*arguments)

    monkeypatch.setattr(TreePath, "forward", scarce)
    found, expected = (in_order(each.answer(asked)) for each in (answering, model("llama", torch.float32, "plain")))
    assert next(failures, None) is None
    assert_same_scores(found, expected, atol=1e-3)
