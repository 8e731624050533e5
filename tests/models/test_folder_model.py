"""What a model folder is, is known without torch; its weights are loaded when something is first answered."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from choicewise import load_model
from choicewise.bundled import MODELS
from choicewise.errors import ModelError
from choicewise.models.local import files as checkpoint
from choicewise.models.local import files as digest_cache
from choicewise.models.local.files import remembered
from choicewise.questions import CAUSAL_KINDS, Span

SMALLEST = next(folder for folder in MODELS if folder.name == "merrow-byte")

IDENTITY = """
import sys
from choicewise import load_model
model = load_model(sys.argv[1], device=sys.argv[2] if len(sys.argv) > 2 else None)
print(model.name, model.digest, model.dtype, model.device, model.window, len(model.supports), model.computed)
model.tokenizer.encode(["text"], special=True)
print(*sorted({"torch", "transformers"} & set(sys.modules)))
"""


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own for every test."""
    home = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    return home / "choicewise" / "digests"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A writable copy of a small model's folder, unchanged for a long time."""
    for file in SMALLEST.iterdir():
        shutil.copyfile(file, tmp_path / file.name)
        os.utime(tmp_path / file.name, (0, 0))
    return tmp_path


def test_a_model_says_who_it_is_without_torch() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IDENTITY, str(SMALLEST), "cpu"], capture_output=True, text=True, check=True
    )
    said, heavy = done.stdout.splitlines()
    model = load_model(SMALLEST, device="cpu")
    assert said == f"merrow-byte {model.digest} float32 cpu 2048 {len(CAUSAL_KINDS)} 0"
    assert heavy == ""


@pytest.mark.costly("networks are computed")
def test_the_model_that_answers_is_the_one_that_was_described() -> None:
    for dtype in ("bfloat16", "auto"):
        model = load_model(SMALLEST, device="cpu", dtype=dtype)
        said = model.name, model.digest, model.dtype, model.device, model.window, model.supports
        assert "_local" not in vars(model)
        ids = np.arange(2, 9, dtype=np.int32)
        assert len(list(model.answer([Span(ids, ids)]))) == 1
        local = model.local  # type: ignore[attr-defined]
        assert said == (local.name, local.digest, local.dtype, local.device, local.window, local.supports)
        assert model.computed == model.planned == local.computed > 0


def test_a_dtype_that_the_files_leave_open_is_read_from_the_weights(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    del config["dtype"]
    (folder / "config.json").write_text(json.dumps(config))
    model = load_model(folder, device="cpu", dtype="auto")
    assert model.dtype == "float32"
    assert "_local" not in vars(model)


def test_more_layers_than_described_are_refused(folder: Path) -> None:
    config = folder / "config.json"
    described = json.loads(config.read_text())
    held = described["num_hidden_layers"]
    fewer = described | {"num_hidden_layers": held - 1}
    config.write_text(json.dumps(fewer))
    message = f"describes {held - 1} layers, but the weights hold {held}.*: set its number of layers to {held}"
    with pytest.raises(ModelError, match=message):
        load_model(folder, device="cpu")
    config.write_text(json.dumps(fewer | {"num_nextn_predict_layers": 1}))
    assert load_model(folder, device="cpu").window == 2048


@pytest.fixture
def shared_folder() -> Iterator[Path]:
    """A model folder that other users can reach."""
    with tempfile.TemporaryDirectory() as place:
        for file in SMALLEST.iterdir():
            shutil.copyfile(file, Path(place) / file.name)
        Path(place).chmod(0o755)
        yield Path(place)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors", "."])
def test_files_that_may_not_be_read_are_named(shared_folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    denied = shared_folder / name
    denied.chmod(0)
    if os.geteuid() == 0:  # whom nothing is denied
        monkeypatch.setattr(os, "geteuid", lambda: 65534)
        os.seteuid(65534)
    try:
        with pytest.raises(ModelError, match=r"can't be read: Permission denied; chmod -R u\+rX") as caught:
            load_model(shared_folder, device="cpu")
        assert str(shared_folder) in str(caught.value)
    finally:
        if os.getuid() == 0:
            os.seteuid(0)
        denied.chmod(0o755)


def test_a_digest_is_computed_once(folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digest_cache, "SETTLED", -1.0)
    first = load_model(folder, device="cpu").digest
    assert len(list(cache.iterdir())) == 1
    monkeypatch.setattr(checkpoint, "digest", lambda *_: pytest.fail("hashed again"))
    again = load_model(folder, device="cpu")
    assert (again.digest, len(again.digest)) == (first, 64)
    assert "tokenizer" not in vars(again)


@pytest.mark.parametrize("damage", [b"", b"\xff\xfe", b"0" * 64, b"a b", b"0" * 64 + b" " + b"0" * 64])
def test_a_damaged_entry_is_none(folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, damage: bytes) -> None:
    monkeypatch.setattr(digest_cache, "SETTLED", -1.0)
    first = load_model(folder, device="cpu").digest
    (entry,) = cache.iterdir()
    intact = entry.read_bytes()
    entry.write_bytes(damage)
    assert load_model(folder, device="cpu").digest == first
    assert entry.read_bytes() == intact


def test_any_change_of_a_file_has_another_digest(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even one that keeps its size and sets its time of change back."""
    monkeypatch.setattr(digest_cache, "SETTLED", -1.0)
    digests = [load_model(folder, device="cpu").digest]
    weights = folder / "model.safetensors"
    before = weights.stat()
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    time.sleep(0.05)
    weights.write_bytes(data)
    os.utime(weights, ns=(before.st_atime_ns, before.st_mtime_ns))
    digests.append(load_model(folder, device="cpu").digest)
    (folder / "config.json").write_text((folder / "config.json").read_text().replace("1e-06", "1e-05"))
    digests.append(load_model(folder, device="cpu").digest)
    assert len(set(digests)) == 3


def test_what_changed_just_now_is_not_remembered(folder: Path, cache: Path) -> None:
    (folder / "config.json").touch()
    assert load_model(folder, device="cpu").digest
    assert not cache.exists()


def test_a_cache_that_can_not_be_written_costs_only_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digest_cache, "SETTLED", -1.0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "config.json"))
    assert remembered([folder / "config.json"], "", lambda: "ab") == "ab"
