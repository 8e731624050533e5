"""Tiny random models of many families, with weights large enough that a wrong mask shows."""

import shutil
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, PreTrainedModel

from choicewise.models.local.causal_lm import CausalLM
from choicewise.models.local.folder_model import FolderModel
from choicewise.models.local.local_model import LocalModel
from tests.paths import SHARED

VOCABULARY = 96
WINDOW = 32  # sliding windows and chunks, in tokens: far shorter than a probe

COMMON = {
    **{
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
    },
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512},
    **{"initializer_range": 0.3, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
}

FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen2": {},
    "qwen3": {"head_dim": 8},
    "mistral": {"sliding_window": WINDOW},
    "gemma": {"head_dim": 8},
    "gemma2": {
        "head_dim": 8,
        "sliding_window": WINDOW,
        "query_pre_attn_scalar": 8,
        "attn_logit_softcapping": 5.0,
    },
    "gemma3_text": {
        "head_dim": 8,
        "sliding_window": WINDOW,
        "query_pre_attn_scalar": 8,
        "num_hidden_layers": 6,
    },
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 512},
    "gpt_neox": {},
    "gptj": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 512, "rotary_dim": 4},
    "opt": {"ffn_dim": 64, "word_embed_proj_dim": 32, "init_std": 0.3},
    "falcon": {"new_decoder_architecture": False, "multi_query": True, "alibi": False},
    "falcon alibi": {"new_decoder_architecture": False, "multi_query": False, "alibi": True},
    "bloom": {"n_layer": 2, "n_head": 4},
    "mpt": {"d_model": 32, "n_heads": 4, "n_layers": 2, "max_seq_len": 512, "expansion_ratio": 2},
    "phi3": {},
    "olmo2": {},
    "olmo3": {"sliding_window": WINDOW, "num_hidden_layers": 4},
    "mixtral": {"num_local_experts": 4},
    "deepseek_v3": {
        **{
            "n_routed_experts": 4,
            "n_group": 2,
            "topk_group": 1,
            "num_experts_per_tok": 2,
            "first_k_dense_replace": 1,
        },
        **{
            "moe_intermediate_size": 32,
            "kv_lora_rank": 16,
            "q_lora_rank": 16,
            "num_key_value_heads": 4,
        },
        **{"qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8},
    },
    "gpt_oss": {
        "sliding_window": WINDOW,
        "head_dim": 8,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
    },
    "llama4_text": {
        **{
            "attention_chunk_size": WINDOW,
            "head_dim": 8,
            "intermediate_size_mlp": 64,
            "num_local_experts": 2,
        },
        "num_hidden_layers": 4,
    },
    "cohere2": {"sliding_window": WINDOW, "num_hidden_layers": 4, "logit_scale": 0.5},
    "gpt_neo": {
        "num_layers": 2,
        "num_heads": 4,
        "attention_types": [[["global", "local"], 1]],
        "window_size": WINDOW,
    },
    "mamba": {"state_size": 8},
    "mamba2": {"state_size": 8, "num_heads": 8, "head_dim": 8, "n_groups": 2, "chunk_size": 16},
    "rwkv": {"attention_hidden_size": 32, "context_length": 512},
    "jamba": {"mamba_d_state": 8, "num_experts": 2, "attn_layer_period": 2, "attn_layer_offset": 1},
    "bamba": {
        **{
            "mamba_d_state": 8,
            "mamba_n_heads": 8,
            "mamba_d_head": 8,
            "mamba_n_groups": 2,
            "mamba_chunk_size": 16,
        },
        "attn_layer_indices": [1],
    },
    "falcon_h1": {
        **{
            "mamba_d_ssm": 64,
            "mamba_n_heads": 8,
            "mamba_d_head": 8,
            "mamba_n_groups": 2,
            "mamba_d_state": 8,
        },
        "mamba_chunk_size": 16,
    },
    "qwen3_next": {
        **{
            "head_dim": 8,
            "linear_num_value_heads": 4,
            "linear_num_key_heads": 2,
            "linear_key_head_dim": 8,
        },
        **{
            "linear_value_head_dim": 8,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
        },
        **{
            "shared_expert_intermediate_size": 32,
            "layer_types": ["linear_attention", "full_attention"],
        },
    },
    "recurrent_gemma": {
        **{
            "num_hidden_layers": 3,
            "lru_width": 32,
            "attention_window_size": WINDOW,
            "w_init_variance_scale": 1.0,
        }
    },
    "granite": {"logits_scaling": 4.0, "residual_multiplier": 0.5, "attention_multiplier": 0.3},
}


def tiny(family: str, **changes: Any) -> PreTrainedModel:
    """A model of ``family`` with random weights that depend on nothing but its configuration."""
    config = CONFIG_MAPPING[family.split()[0]](**{**COMMON, **FAMILIES[family], **changes})
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config).eval()


def network(family: str, vocabulary: int = VOCABULARY) -> CausalLM:
    """The model of a family as compute paths use it; ``vocabulary``: how many of its tokens there are."""
    return CausalLM(tiny(family), window=512, vocabulary=vocabulary)


def load(folder: str | Path, **options: Any) -> LocalModel:
    """The causal model in a folder, with its weights."""
    model = FolderModel(folder, **options).local
    assert isinstance(model, LocalModel)
    return model


@cache
def real_model(name: str = "stories260K") -> LocalModel:
    """A small published model on the CPU, loaded once a process; without the shared data its test is skipped."""
    if not SHARED.is_dir():
        pytest.skip(f"no shared data at {SHARED}")
    return load(SHARED / "models" / name, device="cpu")


def save_causal(tokenizer: str, folder: Path) -> Path:
    """A folder with a random causal model and a published tokenizer, whose vocabulary it has."""
    if not SHARED.is_dir():
        pytest.skip(f"no shared data at {SHARED}")
    small = {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    }
    family, own = {
        "gpt2": ("gpt2", {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 256}),
        "gpt-neox-20b": (
            "llama",
            {**small, "vocab_size": 50304, "bos_token_id": 0, "eos_token_id": 0},
        ),
        "mistral-7b-v0.2": ("llama", {**small, "vocab_size": 32000, "num_key_value_heads": 2}),
    }[tokenizer]
    places = {} if family == "gpt2" else {"max_position_embeddings": 256}
    # A range so wide that log-probabilities differ by nats.
    config = CONFIG_MAPPING[family](**own, **places, initializer_range=0.3)
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    shutil.copyfile(SHARED / "tokenizers" / tokenizer / "tokenizer.json", folder / "tokenizer.json")
    return folder
