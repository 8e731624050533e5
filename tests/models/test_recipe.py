"""A model says how to load it once more, and that gives the same model."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from choicewise.bundled import MODELS
from choicewise.models.fake import HashModel
from choicewise.models.load import FAKES, load_model
from choicewise.models.model import Model, Recipe
from tests.helpers.hub_server import Hub, hub_of_this_process
from tests.helpers.misbehaving_server import serving

FOLDER = next(folder for folder in MODELS if folder.name == "merrow-byte")
FILES = {file.name: file.read_bytes() for file in sorted(FOLDER.iterdir())}
CONFIG = json.loads(FILES["config.json"])


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    pytest.importorskip("huggingface_hub")
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    with hub_of_this_process(monkeypatch, tmp_path / "home") as server:
        yield server


def recipe_of(name: str | Path, **options: Any) -> Recipe:
    recipe = load_model(name, **options).recipe
    assert recipe is not None
    return recipe


def again(recipe: Recipe, **changed: Any) -> Model:
    return load_model(recipe.name, **{**recipe.options, **changed})


@pytest.mark.parametrize("name", FAKES)
def test_a_fake_is_its_name(name: str) -> None:
    recipe = recipe_of(name, dtype="float32")
    assert recipe == Recipe(name)
    assert again(recipe).digest == load_model(name).digest


def test_what_only_this_process_has_can_not_be_loaded_elsewhere() -> None:
    assert HashModel(seed=3).recipe is None


def test_a_model_behind_a_server_is_not_loaded_elsewhere() -> None:
    pytest.importorskip("httpx2")
    pytest.importorskip("stamina")
    with serving() as server:
        assert load_model(server.address, tokenizer="bytes").recipe is None


def test_a_bundled_model_is_its_name_with_the_options_that_were_given() -> None:
    pytest.importorskip("torch")
    assert recipe_of("bundled:merrow-byte") == Recipe("bundled:merrow-byte")
    recipe = recipe_of("bundled:merrow-byte", dtype="auto", device="cpu", window=64, rung="plain", batch_tokens=100)
    options = {"dtype": "auto", "device": "cpu", "window": 64, "rung": "plain", "batch_tokens": 100}
    assert recipe == Recipe("bundled:merrow-byte", options)
    assert (again(recipe).window, again(recipe, window=32).window) == (64, 32)


def test_a_folder_is_read_from_any_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In another process, from plain values alone."""
    pytest.importorskip("torch")
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "model").symlink_to(FOLDER)
    monkeypatch.chdir(tmp_path / "here")
    model = load_model("model", device="cpu", trust_remote_code=True)
    recipe = model.recipe
    assert recipe == Recipe(str(tmp_path / "here" / "model"), {"device": "cpu", "trust_remote_code": True})
    code = (
        "import json, sys; from choicewise import load_model;"
        "print(load_model(sys.argv[1], **json.loads(sys.argv[2])).digest)"
    )
    words = [sys.executable, "-c", code, recipe.name, json.dumps(dict(recipe.options))]
    assert subprocess.run(words, cwd="/", capture_output=True, text=True, check=True).stdout.strip() == model.digest


def test_a_name_on_the_hub_is_of_the_commit_that_was_loaded(hub: Hub) -> None:
    repository = hub.add("models", "merrow/byte", FILES)
    first = repository.refs["main"]
    model = load_model("merrow/byte", device="cpu")
    assert model.recipe == Recipe(f"merrow/byte@{first}", {"device": "cpu"})
    repository.commit(FILES | {"config.json": json.dumps(CONFIG | {"x": 1})})
    assert again(model.recipe).digest == model.digest != load_model("merrow/byte").digest
    assert again(model.recipe).name == model.name == "merrow/byte"


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
def test_an_adapter_is_read_from_any_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    peft, transformers = pytest.importorskip("peft"), pytest.importorskip("transformers")
    base = transformers.AutoModelForCausalLM.from_pretrained(FOLDER)
    modules = ["q_proj"]
    peft.get_peft_model(base, peft.LoraConfig(r=1, target_modules=modules)).save_pretrained(tmp_path / "added")
    monkeypatch.chdir(tmp_path)
    model = load_model(FOLDER, adapter="added")
    monkeypatch.chdir("/")
    assert model.recipe == Recipe(str(FOLDER), {"adapter": str(tmp_path / "added")})
    assert again(model.recipe).digest == model.digest
