"""Peak memory of models on a CPU beside what ``choicewise.models.local.devices`` says before they are loaded.

``python benchmarks/footprint.py [FOLDER...]``: model folders, by default the bundled ones and random ones of up to a
gigabyte.  Each is asked in a process of its own: spans as deep as its window allows, up to 4,096 tokens, in packs that
are full, and with ``--generate`` continuations of 64 tokens as well.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from choicewise.bundled import MODELS
from choicewise.models.load import load_model
from choicewise.models.local.devices import DEEPEST, TOGETHER
from choicewise.models.local.folder_model import footprint_of
from choicewise.questions import Generation, Prompt, Span

RANDOM = {
    "llama-30M-32k": {"hidden_size": 384, "layers": 6, "vocab_size": 32_000},
    "llama-120M-32k": {"hidden_size": 768, "layers": 12, "vocab_size": 32_000},
    "llama-240M-128k": {"hidden_size": 768, "layers": 8, "vocab_size": 128_000},
}
GENERATED = 64


def questions(window: int, vocabulary: int, generate: bool) -> list[Prompt]:
    """Many continuations of a few long contexts."""
    draw = np.random.default_rng(0)

    def text(tokens: int) -> np.ndarray:
        return draw.integers(3, vocabulary, tokens).astype(np.int32)

    depth = min(window, DEEPEST) - GENERATED - 64
    trunk = text(depth)
    spans: list[Prompt] = [Span(np.concatenate([trunk, text(16)]), text(32)) for _ in range(48)]
    if generate:
        spans += [Generation(np.concatenate([trunk, text(16)]), GENERATED) for _ in range(TOGETHER)]
    return spans


def measured(folder: Path, dtype: str, generate: bool) -> dict[str, int]:
    """In a process of its own."""
    words = [
        sys.executable,
        __file__,
        str(folder),
        "--one",
        "--dtype",
        dtype,
        *(["--generate"] if generate else []),
    ]
    return json.loads(
        subprocess.run(words, check=True, capture_output=True, text=True).stdout.splitlines()[-1]
    )


def one(folder: Path, dtype: str, generate: bool) -> None:
    """Ask the model in ``folder`` and print the peak."""
    model = load_model(folder, device="cpu", dtype=dtype)
    needed = footprint_of(model, generated=GENERATED if generate else 0)
    for _ in model.answer(questions(model.window, len(model.tokenizer.token_bytes), generate)):
        pass
    status = Path(
        "/proc/self/status"
    ).read_text()  # ru_maxrss would begin with that of the process that started this
    peak = 1024 * next(
        int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")
    )
    print(
        json.dumps(
            {
                "peak": peak,
                "said": needed.host,
                "weights": needed.weights,
                "workspace": needed.workspace,
            }
        )
    )


def random_model(folder: Path, hidden_size: int, layers: int, vocab_size: int) -> Path:
    """A Llama with random weights in bfloat16, and the tokenizer of a bundled model."""
    import torch
    from transformers import AutoModelForCausalLM, LlamaConfig

    config = LlamaConfig(
        hidden_size=hidden_size,
        intermediate_size=4 * hidden_size,
        num_hidden_layers=layers,
        num_attention_heads=hidden_size // 64,
        num_key_value_heads=hidden_size // 64,
        vocab_size=vocab_size,
        max_position_embeddings=4096,
        tie_word_embeddings=False,
    )
    torch.set_default_dtype(torch.bfloat16)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    tokenizer = next(model for model in MODELS if model.name == "merrow-byte")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((tokenizer / name).read_bytes())
    return folder


def main() -> None:
    """Print one line a model."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--one", action="store_true")
    parser.add_argument("--generate", action="store_true")
    parser.add_argument("--dtype", default="float32")
    asked = parser.parse_args()
    if asked.one:
        return one(asked.folders[0], asked.dtype, asked.generate)
    print(
        f"{'model':24} {'dtype':9} {'peak MB':>8} {'said MB':>8} {'ratio':>6}   weights + workspace, MB"
    )
    with tempfile.TemporaryDirectory() as place:
        folders = asked.folders or list(MODELS)
        if not asked.folders:
            folders += [random_model(Path(place) / name, **shape) for name, shape in RANDOM.items()]
        for folder in folders:
            row = measured(folder, asked.dtype, asked.generate)
            peak, said, weights, workspace = (
                row[name] / 1e6 for name in ("peak", "said", "weights", "workspace")
            )
            sizes = f"{peak:8.0f} {said:8.0f} {said / peak:6.2f}   {weights:.0f} + {workspace:.0f}"
            print(f"{folder.name:24} {asked.dtype:9} {sizes}", flush=True)


if __name__ == "__main__":
    main()
