"""Write a bundled model as a GGUF file, which llama.cpp reads; needs numpy and gguf only."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np

LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
OUTSIDE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "folder", type=Path, help="a Llama with a byte-level BPE, in the format of transformers"
    )
    parser.add_argument("out", type=Path)
    choice = parser.parse_args()
    write(choice.folder, choice.out)


def write(
    folder: Path,
    out: Path,
    kind: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
    edit: Callable[[gguf.GGUFWriter], None] | None = None,
) -> None:
    """Write the model of ``folder`` with its matrices as ``kind``; texts begin with BOS if those of the folder do.

    ``edit`` changes what was added to the writer before it is written.
    """
    config = json.loads((folder / "config.json").read_text())
    writer = gguf.GGUFWriter(str(out), "llama")
    writer.add_name(folder.name)
    files = {gguf.GGMLQuantizationType.F32: "ALL_F32"}
    writer.add_file_type(gguf.LlamaFileType[files.get(kind, f"MOSTLY_{kind.name}")])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_vocab_size(config["vocab_size"])
    _add_tokenizer(writer, json.loads((folder / "tokenizer.json").read_text()), config)
    for name, values in tensors(folder / "model.safetensors").items():
        name, values = renamed(name, values, config["head_dim"])
        if values.ndim == 1:  # norms stay as they are
            writer.add_tensor(name, values)
        else:
            writer.add_tensor(name, gguf.quantize(values, kind), raw_dtype=kind)
    if edit is not None:
        edit(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_tokenizer(writer: gguf.GGUFWriter, tokenizer: Any, config: Any) -> None:
    special = {token["id"] for token in tokenizer["added_tokens"]}
    tokens = sorted(tokenizer["model"]["vocab"], key=tokenizer["model"]["vocab"].__getitem__)
    control, normal = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(
        [control if number in special else normal for number in range(len(tokens))]
    )
    # A list without merges is refused; two special tokens never stand beside each other in a text.
    writer.add_token_merges(
        [" ".join(pair) for pair in tokenizer["model"]["merges"] or [tokens[:2]]]
    )
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_add_bos_token("SpecialToken" in tokenizer["post_processor"]["single"][0])
    writer.add_add_space_prefix(False)


def tensors(path: Path) -> dict[str, np.ndarray]:
    """The float32 tensors of a safetensors file by name."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    named = {}
    for name, told in header.items():
        if name != "__metadata__":
            if told["dtype"] != "F32":
                raise ValueError(f"{path}: {name} is {told['dtype']}, only F32 is read")
            start, end = (8 + size + offset for offset in told["data_offsets"])
            named[name] = np.frombuffer(data[start:end], dtype="<f4").reshape(told["shape"])
    return named


def renamed(name: str, values: np.ndarray, head: int) -> tuple[str, np.ndarray]:
    """llama.cpp's name, and the values; its rotary embedding turns neighbouring dimensions of a head, not halves."""
    stem = name.removesuffix(".weight")
    if stem in OUTSIDE:
        return f"{OUTSIDE[stem]}.weight", values
    number, _, part = stem.removeprefix("model.layers.").partition(".")
    if part in ("self_attn.q_proj", "self_attn.k_proj"):
        rows, width = values.shape
        values = (
            values.reshape(rows // head, 2, head // 2, width).swapaxes(1, 2).reshape(rows, width)
        )
    return f"blk.{number}.{LAYER[part]}.weight", np.ascontiguousarray(values)


if __name__ == "__main__":
    main()
