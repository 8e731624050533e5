"""Compiled layers give the numbers of eager ones in few graphs; what can't be compiled goes on without."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from choicewise.bundled import MODELS
from choicewise.engine import build, next_pack
from choicewise.models.local import fused
from choicewise.models.local.attention import NAME
from choicewise.models.local.fused import FusedLayers
from choicewise.models.local.paths import TreePath
from choicewise.questions import Span
from tests.helpers.tiny_models import load, network

BUNDLED = next(folder for folder in MODELS if folder.name == "merrow-bpe-512")


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Sizes of the graphs that are compiled, which run as they are."""
    sizes: list[int] = []

    def backend(graph: Any, _: Any) -> Any:
        sizes.append(len(graph.graph.nodes))
        return graph.forward

    monkeypatch.setattr(fused, "BACKEND", backend)
    torch._dynamo.reset()
    yield sizes
    torch._dynamo.reset()


def spans(count: int, seed: int = 0) -> list[Span]:
    random = np.random.default_rng(seed)
    drawn = []
    for _ in range(count):
        tokens = random.integers(0, 60, 40).astype(np.int32)
        drawn.append(Span(tokens[:30], tokens[30:]))
    return drawn


@pytest.mark.costly("dynamo traces a network")
@pytest.mark.parametrize("family", ["llama", "gemma3_text"])
def test_packs_of_any_size_share_few_graphs_and_keep_their_numbers(
    family: str, graphs: list[int]
) -> None:
    lm = network(family)
    tree = build(spans(40))
    eager = TreePath(lm, 4096)
    compiled = TreePath(lm, 4096)
    compiled.layers = FusedLayers(lm.model, NAME)
    with torch.inference_mode():
        for size in (300, 513, 1024, 77):
            pack = next_pack(tree, 0, np.empty(0, np.int32), size)
            expected, _ = eager.forward(tree, pack, [])
            hidden, _ = compiled.forward(tree, pack, [])
            torch.testing.assert_close(hidden, expected, rtol=0, atol=1e-5)
    kinds = {str(reach) for reach in getattr(lm.model.config, "layer_types", None) or ["full"]}
    assert 0 < len(graphs) <= 4 * len(kinds)


@pytest.mark.costly("dynamo traces a network")
def test_a_long_run_compiles_its_layers_once_its_path_still_agrees(
    graphs: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load(BUNDLED, device="cpu")
    questions = spans(4)
    before = dict(model.answer(questions))
    assert graphs == []
    monkeypatch.setitem(fused.AFTER, "cpu", 100)
    after = dict(model.answer(questions))
    assert graphs
    assert model.selfcheck is not None
    assert [trial.rung for trial in model.selfcheck.trials] == ["tree", "tree, layers compiled"]
    for index, scores in before.items():
        np.testing.assert_allclose(after[index].logprobs, scores.logprobs, rtol=0, atol=1e-5)
        np.testing.assert_array_equal(after[index].ranks, scores.ranks)


def test_layers_that_can_not_be_compiled_stay_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def backend(graph: Any, _: Any) -> Any:
        raise RuntimeError("no compiler here")

    monkeypatch.setattr(fused, "BACKEND", backend)
    monkeypatch.setitem(fused.AFTER, "cpu", 0)
    model = load(BUNDLED, device="cpu")
    questions = spans(2)
    first = dict(model.answer(questions))
    second = dict(model.answer(questions))
    for index, scores in first.items():
        np.testing.assert_array_equal(second[index].logprobs, scores.logprobs)
    assert model.selfcheck is not None
    assert [trial.rung for trial in model.selfcheck.trials] == ["tree"]
