"""The compute path that was chosen for a model, remembered between processes beside the digests of folders.

What a kernel does depends on the model, its dtype, the device, the versions of what computes and on our own paths, so
all of them name an entry.  Of what may still differ, such as a driver, each run notices by its spot checks, and
``choicewise check`` measures anew.
"""

import hashlib
import json
import platform
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

import torch
import transformers

from choicewise.models.local import user_cache
from choicewise.models.selfcheck import SelfCheck, Trial


class PathCache:
    """The self-check of the model that ``identity`` describes (what JSON can hold), on this machine."""

    def __init__(self, identity: Sequence[object]) -> None:
        self._key = json.dumps([*identity, _machine(), _versions()])

    def load(self) -> SelfCheck | None:
        """As it was stored; None where nothing is, or what is damaged."""
        entry = user_cache.read("paths", self._key)
        try:
            fields = json.loads(entry or "null")
            return SelfCheck(**{**fields, "trials": tuple(Trial(**trial) for trial in fields["trials"])})
        except (ValueError, TypeError, KeyError):
            return None

    def store(self, checked: SelfCheck) -> None:
        """For the next process."""
        user_cache.write("paths", self._key, json.dumps(asdict(checked)))


def _machine() -> list[object]:
    """What computes."""
    cuda = torch.cuda.is_available()
    gpus = [str(torch.cuda.get_device_properties(index)) for index in range(torch.cuda.device_count())] if cuda else []
    return [platform.machine(), torch.backends.cpu.get_cpu_capability(), torch.version.cuda, gpus]


def _versions() -> list[str]:
    """Of torch, transformers and Choicewise, with its compute paths as they stand: a version may be under way."""
    code = hashlib.sha256()
    for folder in (Path(__file__).parent, Path(__file__).parents[2] / "engine"):
        for file in sorted(folder.glob("*.py")):
            code.update(file.read_bytes())
    return [torch.__version__, transformers.__version__, version("choicewise"), code.hexdigest()]
