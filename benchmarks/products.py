"""Time the products of a small Llama by torch and by oneDNN, in turn.

python benchmarks/products.py [OUT.json]      GFLOP a CPU second of both, one thread; processor and rule are printed
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import torch
from machine import machine
from torch import nn

from choicewise.models.local.products import ONEDNN, products_of, use_products, vendor

TURNS = 12
SHAPES = {
    "attention": (512, 512),
    "inner layer up": (512, 1376),
    "inner layer down": (1376, 512),
    "head": (512, 50304),
}
ROWS = (64, 256, 512, 2048)
HEAD_ROWS = 512


def best_seconds(layer: nn.Module, rows: torch.Tensor) -> float:
    """Return the fewest CPU seconds of a few turns, so that a busy machine changes little."""
    best = float("inf")
    for _ in range(TURNS):
        start = time.process_time()
        layer(rows)
        best = min(best, time.process_time() - start)
    return best


@torch.inference_mode()
def measure() -> list[dict[str, object]]:
    """Return one row per shape and number of rows."""
    table: list[dict[str, object]] = []
    for name, (inputs, outputs) in SHAPES.items():
        torch_layer = nn.Linear(inputs, outputs, bias=False)
        onednn_layer = nn.Linear(inputs, outputs, bias=False)
        onednn_layer.weight.copy_(torch_layer.weight)
        use_products(onednn_layer, ONEDNN)
        for count in ROWS:
            if name == "head" and count > HEAD_ROWS:
                continue
            rows = torch.randn(count, inputs)
            billions = 2 * count * inputs * outputs / 1e9
            torch_rate = billions / best_seconds(torch_layer, rows)
            onednn_rate = billions / best_seconds(onednn_layer, rows)
            difference = (torch_layer(rows) - onednn_layer(rows)).abs().max().item()
            table.append(
                {
                    "product": name,
                    "rows": count,
                    "torch": torch_rate,
                    "onednn": onednn_rate,
                    "difference": difference,
                }
            )
    return table


def main() -> None:
    """Print the table, and write it to the file that is named."""
    torch.set_num_threads(1)
    rule = products_of("cpu", "float32")
    print(f"processor {vendor() or 'unknown'}, torch {torch.__version__}: the rule chooses {rule}")
    table = measure()
    for row in table:
        ratio = row["onednn"] / row["torch"]  # type: ignore[operator]
        print(
            f"{row['product']:<17} {row['rows']:>5} rows  torch {row['torch']:6.1f}  "
            f"onednn {row['onednn']:6.1f} GFLOP/s  {ratio:.2f} times  "
            f"largest difference {row['difference']:.1e}"
        )
    if len(sys.argv) > 1:
        content = {"machine": machine(threads=1), "rule": rule, "table": table}
        Path(sys.argv[1]).write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
