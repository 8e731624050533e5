"""Models by their names on the Hub, from a server of the tests."""

import json
from pathlib import Path

import pytest

from choicewise.errors import ModelError
from choicewise.models.load import load_model
from tests.helpers.hub_files import FOLDER, WITHOUT_WEIGHTS
from tests.helpers.hub_files import MODEL as FILES
from tests.helpers.hub_server import Hub

pytest.importorskip("torch")
pytest.importorskip("transformers")

MORE = {"pytorch_model.bin": b"pickle", "modeling_merrow.py": "raise SystemExit", "flax_model.msgpack": b"x"}


def test_a_model_is_what_its_folder_is_and_says_which_commit(hub: Hub) -> None:
    repository = hub.add("models", "merrow/byte", {**FILES, **MORE})
    model = load_model("merrow/byte")
    local = load_model(FOLDER)
    assert (model.name, model.digest, model.tokenizer.digest) == ("merrow/byte", local.digest, local.tokenizer.digest)
    assert getattr(model, "source", "") == f"merrow/byte@{repository.refs['main']}"
    assert not {*MORE} & {*hub.downloads()}
    assert {"model.safetensors", "tokenizer.json", "config.json"} <= {*hub.downloads()}
    hub.requests.clear()  # what is in the cache is not fetched again
    load_model("merrow/byte")
    assert hub.downloads() == []


def test_a_folder_of_that_name_wins(hub: Hub, tmp_path: Path) -> None:
    hub.add("models", "merrow/byte", {"config.json": "{}"})
    (tmp_path / "merrow").mkdir()
    (tmp_path / "merrow" / "byte").symlink_to(FOLDER)
    assert load_model("merrow/byte").name == "merrow-byte"
    assert hub.requests == []


def test_a_revision_is_the_one_that_is_named(hub: Hub) -> None:
    repository = hub.add("models", "merrow/byte", FILES)
    first = repository.refs["main"]
    changed = FILES | {"config.json": json.dumps(json.loads(FILES["config.json"]) | {"x": 1})}
    second = repository.commit(changed)
    repository.refs["v1"] = first
    repository.refs["refs/pr/1"] = second
    models = {name: load_model(f"merrow/byte@{name}") for name in (first, "v1", "main", "refs/pr/1")}
    assert models[first].digest == models["v1"].digest != models["main"].digest == models["refs/pr/1"].digest
    assert getattr(models["refs/pr/1"], "source", "") == f"merrow/byte@{second}"


def test_weights_in_parts_are_those_that_the_index_lists(hub: Hub) -> None:
    index = json.dumps({"metadata": {}, "weight_map": {"a": "model-00001-of-00001.safetensors"}})
    shards = {"model-00001-of-00001.safetensors": FILES["model.safetensors"], "original.safetensors": b"x"}
    hub.add("models", "merrow/parts", {**WITHOUT_WEIGHTS, **shards, "model.safetensors.index.json": index})
    load_model("merrow/parts")
    assert "model-00001-of-00001.safetensors" in hub.downloads()
    assert "original.safetensors" not in hub.downloads()


def test_pickles_are_refused_before_anything_large_is_fetched(hub: Hub) -> None:
    hub.add("models", "merrow/pickled", {"config.json": "{}", **MORE})
    with pytest.raises(ModelError, match="no safetensors.*pytorch_model.bin"):
        load_model("merrow/pickled")
    assert hub.downloads() == []


@pytest.mark.parametrize(
    "index", ['{"weight_map": {"w": "pytorch_model.bin"}}', '{"weight_map": {"w": 5}}', "[1]", "[" * 100_000]
)
def test_an_index_of_anything_but_safetensors_fetches_nothing(hub: Hub, index: str) -> None:
    hub.add("models", "merrow/byte", {**WITHOUT_WEIGHTS, **MORE, "model.safetensors.index.json": index})
    with pytest.raises(ModelError, match="is no index of safetensors files"):
        load_model("merrow/byte")
    assert not {*MORE} & {*hub.downloads()}


def test_the_repository_of_an_adapter_says_how_to_take_it(hub: Hub) -> None:
    hub.add("models", "merrow/lora", {"adapter_config.json": "{}", "adapter_model.safetensors": b"x"})
    with pytest.raises(ModelError, match="is an adapter; run `hf download merrow/lora`, and pass the folder it"):
        load_model("merrow/lora")
