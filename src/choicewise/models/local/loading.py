"""From a model folder to a model in memory."""

import re
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import transformers

from choicewise.errors import ModelError
from choicewise.models.local.encoder_decoder import EncoderDecoder
from choicewise.models.local.folder_model import FolderModel
from choicewise.models.local.local_model import LocalModel
from choicewise.models.local.masked_lm import MaskedLM
from choicewise.models.local.model_kind import ENCODER_DECODER, MASKED, ModelKind, model_kind
from choicewise.models.local.padded_model import PaddedModel
from choicewise.models.local.quiet import quiet
from choicewise.models.local.spread import Spread

_NOT_MISSED = re.compile(
    r"vision|visual|image|audio|speech|multi_modal|mm_proj|\bmtp|inv_freq|masked_bias|attn\.bias$|position_ids$"
    r"|\bpooler\.|\bseq_relationship\.|\bsop_classifier\."
)
"""Weights that scores of texts don't need: other inputs, further tokens, constants that the code computes itself, and
what masked models were trained with to judge whole texts."""


def load(path: str | Path, *args: Any, **options: Any) -> LocalModel:
    """The causal model in the folder ``path`` with its weights; arguments and errors as in :class:`FolderModel`."""
    model = FolderModel(path, *args, **options)
    if not isinstance(model.local, LocalModel):
        raise ModelError(f"{path} holds no causal language model but {model.kind.name}")
    return model.local


def model_class(kind: ModelKind) -> type[LocalModel] | type[PaddedModel]:
    """The class that answers for a network of this ``kind``."""
    return {MASKED: MaskedLM, ENCODER_DECODER: EncoderDecoder}.get(kind, LocalModel)


def load_network(
    folder: Path,
    config: Mapping[str, Any],
    dtype: str,
    device: str,
    trust_remote_code: bool,
    spread: Spread | None = None,
) -> Any:
    """The torch module of a folder with this ``config``, in evaluation mode on ``device``, or where ``spread`` puts it.

    Quantised weights are loaded where they stay.  Raises ModelError when they can't be computed with, and when weights
    and configuration do not fit: missing ones would be random, and what has no place was trained to be used.  Weights
    of other kinds of input than text, and copies of constants, are not missed.
    """
    if "auto_map" in config and not trust_remote_code and config.get("model_type") not in transformers.CONFIG_MAPPING:
        raise ModelError(
            f"{folder} needs code of its own to run (auto_map in config.json); read that code, "
            "then pass trust_remote_code=True to load_model"
        )
    kind, quantised = model_kind(config), "quantization_config" in config
    at_once = {"device_map": {"": device}} if quantised and device != "cpu" else {}
    try:
        with quiet():
            model, report = getattr(transformers, kind.loader).from_pretrained(
                folder,
                dtype=dtype,
                use_safetensors=True,
                local_files_only=True,
                trust_remote_code=trust_remote_code,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # refused below, where they can be named
                **(at_once if spread is None else spread.options),
            )
            if spread is not None:
                spread.refuse_offloaded(model)
            model = model.eval() if quantised or spread is not None else model.to(device).eval()
            if quantised and kind is not ENCODER_DECODER:  # a kernel may not take this device, or these shapes
                with torch.inference_mode():
                    model(input_ids=torch.zeros((1, 2), dtype=torch.long, device=model.device))
    except ModelError:
        raise
    except Exception as error:  # configurations, weights and devices fail in every way there is
        reason = _conversion_error(error) or str(error)
        raise ModelError(f"{folder} can't be loaded as {kind.name}: {reason}") from error
    mismatched = report["mismatched_keys"]
    report["mismatched_keys"] = [f"{name} has shape {[*own]} instead of {[*due]}" for name, own, due in mismatched]
    for trouble in ("missing_keys", "mismatched_keys", "error_msgs"):
        if wrong := sorted(map(str, report[trouble])):
            raise ModelError(
                f"the weights in {folder} do not fit its config.json, and parts of the model would be random "
                f"({trouble}: {', '.join(wrong[:3])}; {len(wrong)} in all); fetch the folder again"
            )
    if unused := sorted(name for name in report["unexpected_keys"] if not _NOT_MISSED.search(name)):
        shown = f"{', '.join(unused[:3])}; {len(unused)} in all"
        raise ModelError(
            f"{folder} holds weights for which the model of its config.json has no place ({shown}), so that its "
            "numbers would be another model's; fetch the folder again, or, if config.json is right, save it "
            f'without them: python -c "from transformers import {kind.loader} as M; '
            f"M.from_pretrained('{folder}').save_pretrained('{folder}')\""
        )
    return model


def _conversion_error(error: Exception) -> str | None:
    """Why weights could not be brought into the form the model has, which transformers says only in a log."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        reasons = getattr(frame.f_locals.get("loading_info"), "conversion_errors", None)
        if reasons:
            name, reason = next(iter(reasons.items()))
            last = [line.strip() for line in str(reason).splitlines() if line.strip()][-1]
            return f"its weights can't be merged into {name}: {last}; fetch the folder again"
    return None
