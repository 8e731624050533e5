"""Choose which library multiplies float32 weights on a CPU, and have a network use it."""

from __future__ import annotations

import platform
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from choicewise.errors import ModelError
from choicewise.util.cache import read_user_cache, write_user_cache

if TYPE_CHECKING:
    from torch import Tensor, nn

TORCH = "torch"
"""The product that torch itself chooses: MKL's on x86."""

ONEDNN = "onednn"
"""oneDNN's product, which is in the same wheel of torch."""

PRODUCTS = (TORCH, ONEDNN)
_VERSIONS = ("2.13.",)
"""Versions of torch for which the rule was measured; another one computes by itself."""

Multiply = Callable[["Tensor", "Tensor"], "Tensor"]
"""Return rows · weightᵀ, float32 [rows, out], of rows [rows, in] and a weight [out, in]."""

_TOLERANCE = 1e-3
"""The greatest difference between the two products of random numbers, relative to their size."""


def check_products(device: str, dtype: str, wanted: str | None) -> None:
    """Raise ModelError if the user's choice is unknown, or can't be had on ``device`` in ``dtype``."""
    if wanted is None:
        return
    if wanted not in PRODUCTS:
        raise ModelError(f"products is {wanted!r}; it must be one of {', '.join(PRODUCTS)}")
    if wanted == ONEDNN and not _fits(device, dtype):
        raise ModelError(f"oneDNN multiplies float32 on a CPU, not {dtype} on {device}")


def products_of(device: str, dtype: str, wanted: str | None = None) -> str:
    """Return which of :data:`PRODUCTS` a model on ``device`` in ``dtype`` uses.

    ``wanted``: the choice of the user. Without one a fixed rule decides, never a timing, so that
    two processes on one kind of machine agree to the bit: oneDNN on AMD processors under the
    measured versions of torch (``benchmarks/products.py``). Raises ModelError if oneDNN's product
    is wanted and missing or wrong.
    """
    if wanted == TORCH or not _fits(device, dtype):
        return TORCH
    if wanted == ONEDNN:
        if not _is_right():
            raise ModelError("oneDNN's product is missing or wrong in this torch; use torch's")
        return ONEDNN
    is_faster = vendor() == "AuthenticAMD" and version("torch").startswith(_VERSIONS)
    if is_faster and _is_right():
        return ONEDNN
    return TORCH


def _fits(device: str, dtype: str) -> bool:
    return device == "cpu" and dtype == "float32"


def use_products(network: nn.Module, products: str) -> None:
    """Have every linear layer of ``network`` multiply by ``products``; other layers stay as they
    are.
    """
    if products != ONEDNN:
        return
    from torch import nn

    for layer in network.modules():
        # Subclasses compute something else: adapters, quantised weights.
        if type(layer) is nn.Linear:
            layer.__class__ = _onednn_linear()


def product_used(network: nn.Module) -> Multiply | None:
    """Return the product that :func:`use_products` gave ``network``, or None if it is torch's."""
    # The marker is ours alone, as layers of a model's code may have any attribute.
    for layer in network.modules():
        product: Multiply | None = getattr(type(layer), "choicewise_product", None)
        if product is not None:
            return product
    return None


@cache
def vendor() -> str:
    """Return the vendor of the processor as it names itself, such as "AuthenticAMD"; "" if unknown."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return ""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        # Windows names the vendor last: "AMD64 Family 25 Model 1 Stepping 1, AuthenticAMD".
        return platform.processor().rpartition(", ")[2]
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() == "vendor_id":
            return value.strip()
    return ""


@cache
def _onednn_linear() -> type[nn.Linear]:
    import torch
    from torch import nn

    multiply = torch.ops.mkldnn._linear_pointwise

    # A class, and no function in each layer: copies of a network then call their own weights.
    class OneDnnLinear(nn.Linear):
        """A linear layer whose product oneDNN computes, without gradients."""

        @staticmethod
        def choicewise_product(rows: Tensor, weight: Tensor) -> Tensor:
            """Return rows · weightᵀ."""
            product: Tensor = multiply(rows, weight, None, "none", [], "")
            return product

        def forward(self, rows: Any) -> Any:
            """Return rows · weightᵀ + bias, [..., out]."""
            # A copy in another dtype, which oneDNN does not have on every processor.
            if self.weight.dtype != torch.float32:
                return super().forward(rows)
            return multiply(rows, self.weight, self.bias, "none", [], "")

    return OneDnnLinear


@cache
def _is_right() -> bool:
    """Return whether oneDNN's product exists and is right, as measured once for this torch on this
    processor.

    The verdict is kept, so that a command that computes nothing need not import torch.
    """
    key = f"onednn {version('torch')} {platform.machine()} {vendor()}"
    verdict = read_user_cache("products", key)
    if verdict is None:
        verdict = "right" if _measure() else "wrong"
        write_user_cache("products", key, verdict)
    return verdict == "right"


def _measure() -> bool:
    import torch
    from torch.nn import functional

    random = torch.Generator().manual_seed(0)
    weight = torch.randn(96, 64, generator=random)
    bias = torch.randn(96, generator=random)
    rows = torch.randn(2, 33, 64, generator=random)
    expected = functional.linear(rows, weight, bias)
    try:
        layer = _onednn_linear()(64, 96)
        with torch.inference_mode():
            layer.weight.copy_(weight)
            layer.bias.copy_(bias)
            difference = (layer(rows) - expected).abs().max().item()
    except (AttributeError, RuntimeError):
        return False
    return bool(difference <= _TOLERANCE * expected.abs().max().item())
