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
from choicewise.models.local.fused import FusedLayers, compiled_score_tokens
from choicewise.models.local.paths import TreePath
from choicewise.models.local.plain import score_tokens
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
    assert model.lm.score_tokens is not score_tokens
    for index, scores in before.items():
        np.testing.assert_allclose(after[index].logprobs, scores.logprobs, rtol=0, atol=1e-5)
        np.testing.assert_array_equal(after[index].ranks, scores.ranks)


@pytest.mark.costly("every layer is traced")
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
    assert model.lm.score_tokens is score_tokens


@pytest.mark.costly("dynamo traces the read-out")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("row_count", "read_count"), [(40, 40), (30, 90), (1, 1), (1, 4)])
def test_the_read_out_agrees_with_a_sum_in_double_precision(
    row_count: int, read_count: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fused, "BACKEND", "aot_eager_decomp_partition")
    generator = torch.Generator().manual_seed(row_count * read_count)
    # Embeddings may have more entries than there are tokens.
    padded = 4 * torch.randn((row_count, 520), generator=generator)
    logits = padded.to(dtype)[:, :509]
    rows = torch.arange(read_count) * row_count // read_count
    tokens = torch.randint(0, 509, (read_count,), generator=generator)
    exact = logits.double()[rows]
    logit = exact.gather(1, tokens[:, None])
    expected = (logit[:, 0] - exact.logsumexp(dim=1)).float()
    for score in (score_tokens, compiled_score_tokens()):
        with torch.inference_mode():
            logprobs, ranks = score(logits, rows, tokens)
        torch.testing.assert_close(logprobs, expected, rtol=0, atol=1e-5)
        assert ranks.tolist() == (exact > logit).sum(dim=1).tolist()
