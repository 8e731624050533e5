"""What a results file of LM Evaluation Harness says of the model and of how it was run."""

import re
from collections.abc import Collection
from typing import Any

import choicewise
from choicewise.protocols.protocol import Protocol
from choicewise.records.manifest import Manifest

SOURCE = "choicewise"
"""What stands where the harness names the kind of model that it loads."""


def sanitized(model: str) -> str:
    """A model's name as a folder (lm_eval/utils.py, ``sanitize_model_name``)."""
    return re.sub(r"[\"<>:/|\\?*\[\]]+", "__", model)


def model_entries(manifest: Manifest, protocols: Collection[Protocol]) -> dict[str, Any]:
    """The entries of the file about the model of a run and what its ``protocols`` have in common.

    What a run does not know, such as the special tokens of the tokenizer, is left out or null.
    """
    model, revision = manifest.model.name, manifest.model.source.rpartition("@")[2]
    system = {protocol.system for protocol in protocols}
    chats = {protocol.chat for protocol in protocols}
    arguments = {"pretrained": model, **({"revision": revision} if revision else {}), "dtype": manifest.model.dtype}
    return {
        "config": {
            "model": SOURCE,
            "model_args": arguments,
            "model_dtype": manifest.model.dtype,
            "model_revision": revision or None,
            "model_sha": revision or None,
            "batch_size": None,
            "batch_sizes": [],
            "device": manifest.model.device,
            "use_cache": None,
            "limit": manifest.selection.limit,
            "bootstrap_iters": 0,
            "gen_kwargs": None,
            "random_seed": None,
            "numpy_seed": None,
            "torch_seed": None,
            "fewshot_seed": None,
        },
        "git_hash": None,
        "pretty_env_info": f"choicewise {choicewise.__version__}, python {manifest.versions.get('python', '?')}",
        "transformers_version": manifest.versions.get("transformers"),
        "lm_eval_version": f"none: choicewise {choicewise.__version__}",
        "upper_git_hash": None,
        "max_length": manifest.model.window,
        "model_source": SOURCE,
        "model_name": model,
        "model_name_sanitized": sanitized(model),
        "system_instruction": next(iter(system)) if len(system) == 1 else None,
        "system_instruction_sha": None,
        "fewshot_as_multiturn": "turns" in chats,
        "chat_template": None,
        "chat_template_sha": manifest.model.chat or None if chats - {"none"} else None,
    }
