"""From a folder of weights to a network on its devices: loading, spreading over devices; what all such models share.

transformers loads the weights where accelerate places them, and accelerate's hooks move what goes from layer to layer.
Nothing is placed in main memory or on disk, from where every pack would fetch its weights anew.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import transformers

from choicewise.errors import ModelError
from choicewise.models.local.causal_lm import Workload
from choicewise.models.local.devices import Footprint, device_name, devices_of
from choicewise.models.local.files import ENCODER_DECODER, model_kind, quiet
from choicewise.models.local.plain import free_bytes
from choicewise.models.model import SelfCheck, Trial
from choicewise.questions import Ids, Question
from choicewise.tokens.tokenizer import Tokenizer
from choicewise.util.cache import read_user_cache, write_user_cache

_NOT_MISSED = re.compile(
    r"vision|visual|image|audio|speech|multi_modal|mm_proj|\bmtp|inv_freq|masked_bias|attn\.bias$|position_ids$"
    r"|\bpooler\.|\bseq_relationship\.|\bsop_classifier\."
)
"""Weights that scores of texts don't need: other inputs, further tokens, constants that the code computes itself, and
what masked models were trained with to judge whole texts."""


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


class Spread:
    """Where the model in ``folder``, of which it is known what is ``needed``, may lie on the devices called ``device``.

    Raises ModelError, with the bytes, where the weights do not fit beside what it takes to compute on each.
    """

    def __init__(self, folder: Path, device: str, needed: Footprint) -> None:
        self._folder, self._device, self._needed = folder, device, needed
        self._free = {place.index: free_bytes(place) for place in map(torch.device, devices_of(device))}
        self._room = {index: max(0, size - needed.workspace) for index, size in self._free.items()}
        if needed.weights > sum(self._room.values()):
            raise self._too_large()

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of ``from_pretrained``."""
        return {"device_map": "auto", "max_memory": {**self._room, "cpu": 0}}

    def refuse_offloaded(self, model: Any) -> None:
        """ModelError where part of ``model`` lies elsewhere: it fits as a whole, but not layer by layer."""
        if {str(place) for place in model.hf_device_map.values()} & {"cpu", "disk"}:
            raise self._too_large()

    def _too_large(self) -> ModelError:
        each = ", ".join(f"{size:,}" for size in self._free.values())
        needed = self._needed
        return ModelError(
            f"{self._folder} does not fit on {self._device}: it has {needed.weights:,} bytes of weights, in layers of "
            f"up to {needed.layer:,}, and takes {needed.workspace:,} on each device to compute; free are "
            f"{sum(self._free.values()):,} ({each}); use more or larger GPUs, a narrower dtype, quantised weights, or "
            "packs of fewer tokens"
        )


@dataclass(eq=False, repr=False)
class NetworkModel:
    """What models of a loaded network have in common.

    ``model`` is the torch module, ``vocabulary`` its ``config.vocab_size``.  ``rung``: the compute path that alone is
    tried, or ``auto``; ``batch_tokens``: the most tokens computed at once.  ``paths`` remembers the self-check, for
    other processes.
    """

    model: Any
    tokenizer: Tokenizer
    name: str
    digest: str
    window: int
    rung: str = "auto"
    batch_tokens: int | None = None
    paths: PathCache | None = None
    recipe = None

    def __post_init__(self) -> None:
        self.dtype = str(self.model.dtype).removeprefix("torch.")
        self.device = device_name(self.model)
        self.vocabulary = int(self.model.config.get_text_config().vocab_size)
        self._work = Workload()
        self._checked: SelfCheck | None = None

    @property
    def computed(self) -> int:
        """Input tokens that went through the model so far, those of the self-check included."""
        return self._work.computed

    @property
    def planned(self) -> int:
        """Input tokens known to be needed for all that was asked so far, and those computed."""
        return max(self._work.planned, self._work.computed)

    def objection(self, question: Question) -> str | None:
        """None: it answers every question of the kinds that it supports."""
        return None

    def refuse_tokens(self, tokens: Ids, inputs: int | None = None) -> None:
        """ModelError where ``tokens`` are too many, or the model does not know one.

        ``inputs``: how many are inputs before a last one that is not; by default all are.
        """
        sent, inputs = (len(tokens), len(tokens)) if inputs is None else (inputs + 1, inputs)
        if inputs > self.window:
            raise ModelError(
                f"{sent} tokens are too many for {self.name}, whose window is {self.window}; "
                "use a protocol with fewer shots or one that cuts"
            )
        if tokens.max() >= self.vocabulary:
            raise ModelError(
                f"the tokenizer of {self.name} uses token {tokens.max()}, but the model knows only "
                f"{self.vocabulary}; the tokenizer belongs to another model"
            )


class PathCache:
    """The self-check of the model that ``identity`` describes (what JSON can hold), on this machine.

    What a kernel does depends on the model, its dtype, the device, the versions of what computes and on our own paths,
    so all of them name an entry.  Of what may still differ, such as a driver, each run notices by its spot checks, and
    ``choicewise check`` measures anew.
    """

    def __init__(self, identity: Sequence[object]) -> None:
        gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
        devices = [str(torch.cuda.get_device_properties(index)) for index in range(gpus)]
        machine = [platform.machine(), torch.backends.cpu.get_cpu_capability(), torch.version.cuda, devices]
        code = hashlib.sha256()  # our compute paths as they stand: a version may be under way
        for file in (*sorted(Path(__file__).parent.glob("*.py")), Path(__file__).parents[2] / "engine.py"):
            code.update(file.read_bytes())
        versions = [torch.__version__, transformers.__version__, version("choicewise"), code.hexdigest()]
        self._key = json.dumps([*identity, machine, versions])

    def load(self) -> SelfCheck | None:
        """As it was stored; None where nothing is, or what is damaged."""
        entry = read_user_cache("paths", self._key)
        try:
            fields = json.loads(entry or "null")
            return SelfCheck(**{**fields, "trials": tuple(Trial(**trial) for trial in fields["trials"])})
        except (ValueError, TypeError, KeyError):
            return None

    def store(self, checked: SelfCheck) -> None:
        """For the next process."""
        write_user_cache("paths", self._key, json.dumps(asdict(checked)))


def _conversion_error(error: Exception) -> str | None:
    """Why weights could not be brought into the form the model has, which transformers says only in a log."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        reasons = getattr(frame.f_locals.get("loading_info"), "conversion_errors", None)
        if reasons:
            name, reason = next(iter(reasons.items()))
            last = [line.strip() for line in str(reason).splitlines() if line.strip()][-1]
            return f"its weights can't be merged into {name}: {last}; fetch the folder again"
    return None
