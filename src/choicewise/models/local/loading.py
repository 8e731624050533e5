"""From a model folder to a model that answers."""

import warnings
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.utils import logging

from choicewise.errors import ModelError
from choicewise.models.local import checkpoint, plain
from choicewise.models.local.hf_tokenizer import HfTokenizer
from choicewise.models.local.local_model import LocalModel
from choicewise.tokens.partwise_tokenizer import PartwiseTokenizer

DTYPES = ("float32", "bfloat16", "float16", "auto")


def load(
    path: str | Path,
    dtype: str | None = None,
    device: str | None = None,
    window: int | None = None,
    rung: str = "auto",
    batch_tokens: int | None = None,
    trust_remote_code: bool = False,
) -> LocalModel:
    """The model in the folder ``path``, in evaluation mode.

    ``dtype``: of weights and arithmetic; ``auto`` takes the checkpoint's own; by default float32 on a CPU and the
    checkpoint's own elsewhere.  ``device``: by default a CUDA device where there is one, else the CPU.  ``window``: the
    most input tokens, by default and at most what the configuration states.  ``rung``, ``batch_tokens``: as in
    :class:`LocalModel`.  Only safetensors files are opened, nothing is downloaded, and code in the folder runs only
    with ``trust_remote_code``, and only where transformers has no implementation of its own.

    Raises ModelError when something is missing, damaged, or no causal language model, and warns of weights in the
    folder that the model does not use.
    """
    folder = Path(path)
    torch_device = _device(device)
    dtype = dtype or ("float32" if torch_device.type == "cpu" else "auto")
    if dtype not in DTYPES:
        raise ModelError(f"dtype is {dtype!r}; it must be one of {', '.join(DTYPES)}")
    for option, tokens in (("window", window), ("batch_tokens", batch_tokens)):
        if tokens is not None and tokens < 1:
            raise ModelError(f"{option} is {tokens} tokens; it must be at least 1, or left out")
    config = checkpoint.read_config(folder)
    if "auto_map" in config and not trust_remote_code and config.get("model_type") not in transformers.CONFIG_MAPPING:
        raise ModelError(
            f"{folder} needs code of its own to run (auto_map in config.json); read that code, "
            "then pass trust_remote_code=True to load_model"
        )
    file_tokenizer = HfTokenizer(folder)
    tokenizer = PartwiseTokenizer(file_tokenizer, file_tokenizer.cut)
    digest = checkpoint.digest(folder, tokenizer.digest)
    window = checkpoint.window_of(config, folder, window)
    network = _from_pretrained(folder, dtype, torch_device, trust_remote_code)
    model = LocalModel(network, tokenizer, folder.resolve().name, digest, window, rung, batch_tokens)
    if plain.looks_ahead(network, model.vocabulary):
        raise ModelError(
            f"{folder} holds a model that looks ahead ({type(network).__name__}); only causal ones give scores"
        )
    return model


def _device(name: str | None) -> torch.device:
    """Where to compute; ModelError for a device that torch does not know or does not have."""
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ModelError(f"device is {name!r}; it must be cpu, cuda or one of several: cuda:0, cuda:1, ...") from error
    try:
        torch.zeros(1, device=device).item()  # some devices, like meta, take tensors and give nothing back
    except Exception as error:  # every kind of device is missing in a way of its own
        available = ", ".join(["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))])
        raise ModelError(
            f"device is {name!r}, but torch {torch.__version__} finds only {available}; "
            "leave the device out or pass one of these"
        ) from error
    return device


def _from_pretrained(folder: Path, dtype: str, device: torch.device, trust_remote_code: bool) -> Any:
    bars, verbosity = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        model, report = transformers.AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=dtype,
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=trust_remote_code,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # refused below, where they can be named
        )
        model = model.to(device).eval()
    except Exception as error:  # configurations, weights and devices fail in every way there is
        raise ModelError(f"{folder} can't be loaded as a causal language model: {error}") from error
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
    mismatched = report["mismatched_keys"]
    report["mismatched_keys"] = [f"{name} has shape {[*own]} instead of {[*due]}" for name, own, due in mismatched]
    for kind in ("missing_keys", "mismatched_keys", "error_msgs"):
        if wrong := sorted(map(str, report[kind])):
            raise ModelError(
                f"the weights in {folder} do not fit its config.json, and parts of the model would be random "
                f"({kind}: {', '.join(wrong[:3])}; {len(wrong)} in all); fetch the folder again"
            )
    if unused := sorted(report["unexpected_keys"]):
        warnings.warn(
            f"{folder} holds weights that the model its config.json describes has no place for, and they are not used: "
            f"{', '.join(unused[:3])}; {len(unused)} in all",
            stacklevel=3,
        )
    return model
