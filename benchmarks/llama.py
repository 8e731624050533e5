"""Llama-shaped models made from a seed: random weights, the arithmetic of a real one."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

VOCABULARY = 50304
SHAPES = {
    "25m": {
        "num_hidden_layers": 8,
        "hidden_size": 512,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
    },
    "125m": {
        "num_hidden_layers": 12,
        "hidden_size": 768,
        "num_attention_heads": 12,
        "num_key_value_heads": 12,
    },
    "1b": {
        "num_hidden_layers": 16,
        "hidden_size": 2048,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
    },
    "7b": {
        "num_hidden_layers": 32,
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
    },
}


def llama(shape: str, dtype: torch.dtype, device: str) -> LlamaForCausalLM:
    """A model of a named shape on a device, the same every time."""
    sizes = SHAPES[shape]
    width = sizes["hidden_size"]
    config = LlamaConfig(
        **sizes,
        vocab_size=VOCABULARY,
        intermediate_size=-(-width * 8 // 3 // 64) * 64,
        max_position_embeddings=4096,
        tie_word_embeddings=shape in ("25m", "125m"),
        bos_token_id=0,
        eos_token_id=0,
    )
    torch.manual_seed(0)
    with torch.device(device):
        before = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        try:
            return LlamaForCausalLM(config).eval()
        finally:
            torch.set_default_dtype(before)


def folder(shape: str, tokenizer: Path, work: Path) -> Path:
    """A folder with such a model in float32 and a tokenizer, made when it is not there."""
    place = work / shape
    if not (place / "tokenizer.json").is_file():
        llama(shape, torch.float32, "cpu").save_pretrained(place)
        for file in tokenizer.iterdir():
            shutil.copy(file, place)
    return place
