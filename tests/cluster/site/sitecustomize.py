"""What a test changes in the drivers and replicas that it starts: Python imports this where it is on the path.

``CLUSTER_TEST`` names a folder that all processes of a test share. In ``answers`` there every replica writes a line
(its process, the shard) before it answers; while there is a file ``hold`` it then waits, and before it loads its model
while there is a file ``hold-load``. Further variables change a single process:

    CLUSTER_TEST_PATIENCE   seconds that a driver waits for room, and a tenth of it between its lines
    CLUSTER_TEST_VERSION    the version that Choicewise says it has
    CLUSTER_TEST_MODEL      the folder that lies at the path of every model here
    CLUSTER_TEST_NO_DISK    replicas find no place for a file of their own
    CLUSTER_TEST_LOUD       replicas print
"""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

FOLDER = Path(os.environ.get("CLUSTER_TEST", "/nowhere"))


def short_patience(replicas: Any) -> None:
    """A driver that gives up soon."""
    replicas.PATIENCE = float(os.environ.get("CLUSTER_TEST_PATIENCE", replicas.PATIENCE))
    replicas.PAUSE = min(replicas.PAUSE, replicas.PATIENCE / 10)


def other_version(choicewise: Any) -> None:
    """Choicewise as if it were of another version."""
    choicewise.__version__ = os.environ.get("CLUSTER_TEST_VERSION", choicewise.__version__)


def held_replica(module: Any) -> None:
    """Replicas that say what they do and wait where a test wants it."""
    load, answer = module.LoadedModel.__init__, module.LoadedModel.answer

    def held_load(self: Any, recipe: Any, *more: Any) -> None:
        held("hold-load")
        if os.environ.get("CLUSTER_TEST_LOUD"):
            print("a model speaks", flush=True)
        if os.environ.get("CLUSTER_TEST_NO_DISK"):
            os.environ |= dict.fromkeys(
                ("TMPDIR", "HOME", "XDG_CACHE_HOME", "HF_HOME"), "/proc/nowhere"
            )
            tempfile.tempdir = None
        if there := os.environ.get("CLUSTER_TEST_MODEL"):
            recipe = type(recipe)(there, recipe.options)
        load(self, recipe, *more)

    def held_answer(self: Any, shard: Any) -> Any:
        with (FOLDER / "answers").open("a") as lines:
            lines.write(f"{os.getpid()} {next(iter(shard.questions))}\n")
        held("hold")
        return answer(self, shard)

    if FOLDER.is_dir():
        module.LoadedModel.__init__, module.LoadedModel.answer = held_load, held_answer


def held(name: str) -> None:
    """Returns as soon as there is no such file."""
    while (FOLDER / name).exists():
        time.sleep(0.02)


CHANGES: dict[str, Callable[[Any], None]] = {
    "choicewise": other_version,
    "choicewise.extensions.cluster.replica": held_replica,
    "choicewise.extensions.cluster.workers": short_patience,
}


class Changing(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports the modules of ``CHANGES`` as others do, then changes them."""

    def __init__(self) -> None:
        self.original: dict[str, importlib.abc.Loader] = {}

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in CHANGES or name in self.original:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            self.original[name], spec.loader = spec.loader, self
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self.original[spec.name].create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        original = module.__loader__ = self.original[module.__name__]
        if module.__spec__ is not None:
            module.__spec__.loader = original
        original.exec_module(module)
        CHANGES[module.__name__](module)


sys.meta_path.insert(0, Changing())
