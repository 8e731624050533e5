"""What a run changes about the collection of garbage is undone, and what it leaves is collected."""

import gc
import subprocess
import sys
import weakref
from pathlib import Path

import pytest

from choicewise.cli.commands import invoke
from choicewise.util.background import THRESHOLD, give_model_back, rare_collection
from tests.helpers.mmlu_data import write_mmlu


class Cycle:
    """Only the collector finds that nobody refers to it."""

    def __init__(self) -> None:
        self.itself = self


def work() -> None:
    with rare_collection():
        assert gc.get_threshold()[0] >= THRESHOLD
        raise KeyboardInterrupt


def test_garbage_is_collected_as_before_whatever_ends_a_run() -> None:
    before = gc.get_threshold()
    with pytest.raises(KeyboardInterrupt):
        work()
    assert gc.get_threshold() == before


def test_a_collection_that_is_switched_off_stays_so() -> None:
    before = gc.get_threshold()
    gc.set_threshold(0)
    try:
        with rare_collection():
            assert gc.get_threshold()[0] == 0
    finally:
        gc.set_threshold(*before)


def test_a_model_that_nobody_uses_is_not_kept() -> None:
    reference = weakref.ref(Cycle())
    give_model_back()
    assert reference() is None


def test_garbage_is_looked_for_once_a_model_and_not_in_every_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collections: list[int] = []
    monkeypatch.setattr(gc, "collect", lambda: collections.append(0))
    asked = ["--data", str(write_mmlu(tmp_path / "data")), "--protocol", "mmlu/original", "--limit", "1"]
    assert invoke(["run", "--model", "fake:hash", *asked, "--out", str(tmp_path / "run")]) == 0
    assert collections == []
    models = ["--model", "fake:hash", "--model", "fake:oracle", "--model", "fake:anti-oracle"]
    assert invoke(["sweep", *models, *asked, "--out", str(tmp_path / "sweep")]) == 0
    assert len(collections) == 3


def test_only_what_torch_and_transformers_import_is_never_looked_at_again() -> None:
    """A second model may leave, and so may what was garbage before the first."""
    pytest.importorskip("torch")
    program = """
import gc, weakref
from choicewise import load_model
class Cycle:
    def __init__(self): self.itself = self
gc.disable()
before = weakref.ref(Cycle())
gc.enable()
frozen = []
for _ in range(2):
    model = load_model("bundled:merrow-bpe-512")
    model.check(0)
    frozen.append(gc.get_freeze_count())
network = weakref.ref(model.local.model)
del model
gc.collect()
print(before(), network(), frozen[0] > 100_000, frozen[1] <= frozen[0])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["None", "None", "True", "True"]
