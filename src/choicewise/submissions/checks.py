"""Whether a submitted model may be evaluated, before any of its weights are downloaded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from choicewise.bundled import MODELS, PREFIX, bundled_folder
from choicewise.data.hub import Snapshot, open_snapshot
from choicewise.data.hub_errors import MODEL
from choicewise.data.hub_name import HubName, hub_name
from choicewise.errors import ModelError
from choicewise.models.hub import INDEX, open_hub_model
from choicewise.models.load import FAKES
from choicewise.models.local.checkpoint import read_config, readable, weight_files
from choicewise.submissions.blame import is_of_model
from choicewise.submissions.policy import Policy
from choicewise.submissions.submission import Wanted
from choicewise.submissions.trouble import Refused

SMALL: Final = 64_000_000
"""Bytes of a configuration, an index of weights or a tokenizer's file, beyond which it is none."""

_CONFIG: Final = "config.json"


def check_model(wanted: Wanted, policy: Policy) -> str:
    """The name by which exactly the model that was checked is loaded: of one on the Hub with its commit.

    Raises Refused where it can't or may not be evaluated: it is not there, ``policy`` does not take it, it is too
    large, needs code of its own, or its weights are not safetensors.  Of a model on the Hub the listing, the
    configuration and the index of weights are read.  Raises another ModelError where that can't be said now, because
    the Hub can't be asked.
    """
    name = wanted.model
    if not policy.takes(name):
        raise Refused(f"{name} is not allowed: the board takes {' and '.join(policy.allow)}; ask who runs it")
    if name in FAKES:
        return name
    try:
        if name.startswith(PREFIX) or Path(name).is_absolute():  # ORG/NAME is never a folder that is here by chance
            _check_folder(name, wanted.revision, policy)
            return name
        if (on_hub := hub_name(wanted.name)) is None:
            raise Refused(f"{wanted.name} is no model that a worker evaluates; submit one of the Hub, as ORG/NAME")
        return _check_on_hub(on_hub, policy)
    except ModelError as error:
        if is_of_model(error):
            raise Refused(error.message, error.problems) from error
        raise


def _check_folder(name: str, revision: str, policy: Policy) -> None:
    folder = Path(name)
    if name.startswith(PREFIX):
        if (bundled := bundled_folder(name, MODELS)) is None:
            raise Refused(
                f"there is no model {name}; the bundled ones are {', '.join(PREFIX + f.name for f in MODELS)}"
            )
        folder = bundled
    if revision:
        raise Refused(f"{name} is no model of the Hub and has no revisions; leave that out")
    with readable(folder):
        _check_code(read_config(folder), name)
        _check_size(sum(file.stat().st_size for file in weight_files(folder)), name, policy)


def _check_on_hub(name: HubName, policy: Policy) -> str:
    snapshot = open_snapshot(name, MODEL)
    for path in (_CONFIG, INDEX):
        _check_small(snapshot, path)
    if _CONFIG not in snapshot.files:
        raise Refused(f"{snapshot.source} holds no {_CONFIG}, so it is no model that transformers reads")
    pinned = HubName(name.repository, name.config, snapshot.commit)
    known, paths = open_hub_model(pinned)  # refuses what has no safetensors
    weights = [path for path in paths if path.endswith(".safetensors")]
    _check_size(sum(known.files[path] for path in weights), known.source, policy)
    for path in paths:
        if path not in weights:
            _check_small(known, path)
    [file] = known.download([_CONFIG])
    try:
        config = json.loads(file.read_bytes())
    except (ValueError, RecursionError):
        config = None
    if not isinstance(config, dict):
        raise Refused(f"{_CONFIG} of {known.source} is no JSON object")
    _check_code(config, known.source)
    return str(pinned)


def _check_small(snapshot: Snapshot, path: str) -> None:
    if (size := snapshot.files.get(path, 0)) > SMALL:
        raise Refused(f"{path} of {snapshot.source} has {size:,} bytes, and may have {SMALL:,}")


def _check_size(size: int, name: str, policy: Policy) -> None:
    if size > policy.largest:
        raise Refused(
            f"{name} is too large: its weights have {size:,} bytes, and the board takes {policy.largest:,}; submit a"
            " smaller one, or ask who runs the board"
        )


def _check_code(config: Mapping[str, Any], name: str) -> None:
    """Refused for a model that can only be loaded by code that comes with it, which is never run."""
    if "auto_map" not in config:
        return
    if find_spec("transformers") is None:
        raise ModelError(f"whether {name} needs code of its own only transformers says: pip install 'choicewise[hf]'")
    import transformers

    if config.get("model_type") not in transformers.CONFIG_MAPPING:
        raise Refused(
            f"{name} needs code of its own to run (auto_map in {_CONFIG}), which workers never do; submit it when"
            " transformers knows its model type"
        )
