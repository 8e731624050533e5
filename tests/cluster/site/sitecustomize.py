"""What a test changes in the shard processes that it starts: Python imports this where it is on the path.

``CLUSTER_TEST`` names a folder that all processes of a test share. In ``answers`` there every process writes a line
(its number, a question) before it answers a shard; while there is a file ``hold`` it then waits.
``CLUSTER_TEST_VERSION`` is the version that Choicewise says it has.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

FOLDER = Path(os.environ.get("CLUSTER_TEST", "/nowhere"))


def other_version(choicewise: Any) -> None:
    """Choicewise as if it were of another version."""
    choicewise.__version__ = os.environ.get("CLUSTER_TEST_VERSION", choicewise.__version__)


def held_answers(module: Any) -> None:
    """Processes that say what they answer and wait where a test wants it."""
    observe = module.observe

    def held_observe(model: Any, shard: Any) -> Any:
        if "--workers" not in sys.argv and "--executor" not in sys.argv:
            with (FOLDER / "answers").open("a") as lines:
                lines.write(f"{os.getpid()} {next(iter(shard))}\n")
            while (FOLDER / "hold").exists():
                time.sleep(0.02)
        return observe(model, shard)

    if FOLDER.is_dir():
        module.observe = held_observe


CHANGES: dict[str, Callable[[Any], None]] = {
    "choicewise": other_version,
    "choicewise.running.answer": held_answers,
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
