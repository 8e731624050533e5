"""Products by oneDNN: the numbers of torch's own within rounding, one rule in a run, and a fallback."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from choicewise import evaluate, load_model, open_run, score
from choicewise.engine import Reach
from choicewise.errors import ModelError, StoreError
from choicewise.extensions.comparison.compare import comparisons
from choicewise.models.local import products
from choicewise.models.local.attention import AttentionOptions, attend
from choicewise.models.local.products import (
    ONEDNN,
    TORCH,
    check_products,
    products_of,
    use_products,
)
from choicewise.results.outcomes import Axis

CHOICES = [" The fog", " a bell of bronze", " 1234"]
NAME = "bundled:merrow-bpe-512"


@pytest.fixture
def onednn() -> None:
    """Skip where this torch has no product of oneDNN."""
    if not products._is_right():
        pytest.skip("this torch has no product of oneDNN")


def run_with(out: Path, library: str | None) -> Any:
    return evaluate(
        model=load_model(NAME, products=library),
        data="bundled:merrowick",
        protocols=["mmlu/original@shots=0"],
        limit=2,
        out=out,
    )


@pytest.mark.usefixtures("onednn")
@pytest.mark.parametrize("name", [NAME, "bundled:merrow-unigram-1000"])
def test_both_libraries_give_the_same_scores_within_rounding(name: str) -> None:
    tables = [
        score(load_model(name, products=library), "The bell of the isle is", CHOICES)
        for library in (TORCH, ONEDNN)
    ]
    torch_table, onednn_table = tables
    torch_sums = np.asarray(torch_table["sum"].to_pylist())
    onednn_sums = np.asarray(onednn_table["sum"].to_pylist())
    assert np.abs(torch_sums - onednn_sums).max() < 1e-3
    assert torch_table["tokens"].to_pylist() == onednn_table["tokens"].to_pylist()


@pytest.mark.usefixtures("onednn")
def test_only_plain_linear_layers_change_and_copies_keep_their_weights() -> None:
    class Scaled(nn.Linear):
        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(rows)

    network = nn.Sequential(nn.Linear(8, 8), Scaled(8, 8))
    rows = torch.randn(3, 8)
    with torch.inference_mode():
        expected = network(rows)
        use_products(network, ONEDNN)
        other = copy.deepcopy(network)
        other[0].weight.zero_()
        assert torch.allclose(network(rows), expected, atol=1e-5)
        assert torch.equal(other[0](rows), other[0].bias.expand(3, 8))
        in_float64 = copy.deepcopy(network).double()
        assert torch.allclose(in_float64(rows.double()), expected.double(), atol=1e-5)
    assert type(network[1]) is Scaled


@pytest.mark.usefixtures("onednn")
def test_a_run_keeps_one_library(tmp_path: Path) -> None:
    run_with(tmp_path, ONEDNN)
    assert open_run(tmp_path).manifest.model.products == ONEDNN
    with pytest.raises(StoreError, match="option products to onednn") as refused:
        run_with(tmp_path, TORCH)
    assert "onednn there and torch" in str(refused.value)
    run_with(tmp_path, ONEDNN)


@pytest.mark.costly("two runs of a network are compared")
@pytest.mark.usefixtures("onednn")
def test_the_library_is_an_axis_of_two_runs(tmp_path: Path) -> None:
    left = run_with(tmp_path / "left", ONEDNN)
    right = run_with(tmp_path / "right", TORCH)
    (compared,) = comparisons(left, right, ["mmlu/original@shots=0"])
    assert Axis("model products", ONEDNN, "-") in compared.axes


@pytest.mark.parametrize(
    ("vendor", "version", "right", "library"),
    [
        ("AuthenticAMD", "2.13.0+cpu", True, ONEDNN),
        ("AuthenticAMD", "2.13.0+cpu", False, TORCH),
        ("AuthenticAMD", "2.12.1", True, TORCH),
        ("GenuineIntel", "2.13.0+cpu", True, TORCH),
        ("", "2.13.0", True, TORCH),
    ],
)
def test_the_rule_is_of_processor_and_torch(
    monkeypatch: pytest.MonkeyPatch, vendor: str, version: str, right: bool, library: str
) -> None:
    monkeypatch.setattr(products, "vendor", lambda: vendor)
    monkeypatch.setattr(products, "version", lambda package: version)
    monkeypatch.setattr(products, "_is_right", lambda: right)
    assert products_of("cpu", "float32") == library
    assert products_of("cpu", "bfloat16") == TORCH
    assert products_of("cuda:0", "float32") == TORCH
    assert products_of("cpu", "float32", TORCH) == TORCH


def test_a_product_that_is_wrong_or_missing_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong(nn.Linear):
        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            return super().forward(rows) + 1

    class Missing(nn.Linear):
        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            return torch.ops.mkldnn.no_such_product(rows)

    for layer in (Wrong, Missing):
        monkeypatch.setattr(products, "_onednn_linear", lambda layer=layer: layer)
        assert not products._measure()


def test_what_can_not_be_had_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelError, match="torch, onednn"):
        load_model(NAME, products="mkl")
    with pytest.raises(ModelError, match="not bfloat16 on cpu"):
        check_products("cpu", "bfloat16", ONEDNN)
    monkeypatch.setattr(products, "_is_right", lambda: False)
    with pytest.raises(ModelError, match="use torch's"):
        products_of("cpu", "float32", ONEDNN)


@pytest.mark.usefixtures("onednn")
@pytest.mark.parametrize(("heads", "key_heads"), [(4, 4), (6, 2), (3, 1)])
def test_attention_by_two_products_is_that_of_torch(heads: int, key_heads: int) -> None:
    network = nn.Sequential(nn.Linear(4, 4))
    assert products.product_used(network) is None
    use_products(network, ONEDNN)
    multiply = products.product_used(network)
    assert multiply is not None
    random = torch.Generator().manual_seed(1)
    query = torch.randn(1, heads, 30, 16, generator=random)
    key = torch.randn(1, key_heads, 50, 16, generator=random)
    value = torch.randn(1, key_heads, 50, 24, generator=random)
    hidden = torch.rand(heads // key_heads * 30, 50, generator=random) < 0.5
    hidden[:, 0] = False
    mask = torch.zeros(hidden.shape).masked_fill(hidden, float("-inf"))
    for scaling in (None, 0.1):
        options = AttentionOptions(Reach(), scaling, None, None)
        with torch.inference_mode():
            expected = attend(query, key, value, mask, options)
            found = attend(query, key, value, mask, options, multiply)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
