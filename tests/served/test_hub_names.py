"""Datasets and models by their names on the Hub, from a server of the tests; and where pages say they came from."""

import csv
import json
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest

from choicewise import load_model, open_dataset
from choicewise.errors import DataError, ModelError
from choicewise.extensions.board.library import read_snapshot
from choicewise.extensions.board.pages import write_board
from choicewise.extensions.board.records import View, board_csv
from choicewise.extensions.run.sweep import sweep
from choicewise.page.document import write_page
from choicewise.page.study import downloads, read_study
from choicewise.records import DatasetRecord, ModelRecord
from choicewise.results.rows import run_id
from choicewise.running.job import ModelChoice, job_of, sources_of
from choicewise.store.folder import read_manifest
from tests.helpers.board import change, read_runs_here, write_run
from tests.helpers.hub_server import FOLDER, WITHOUT_WEIGHTS, Hub, jsonl, parquet
from tests.helpers.hub_server import MODEL as FILES
from tests.helpers.make_gguf import write as write_gguf


def questions(name: str) -> dict[str, list[str]]:
    return {
        split: [item.question[8] for item in items]
        for split, items in open_dataset(name).splits.items()
    }


LAYOUTS: dict[str, Mapping[str, bytes | str]] = {
    "data/": {
        "data/test-00000-of-00001.parquet": parquet(1, 2),
        "data/train-00000-of-00001.parquet": parquet(3),
    },
    "root": {"test.jsonl": jsonl(1, 2), "train.jsonl": jsonl(3)},
    "one configuration": {
        "main/test-00000-of-00001.parquet": parquet(1, 2),
        "main/train-0.parquet": parquet(3),
    },
    "converted": {
        "default/test/0000.parquet": parquet(1, 2),
        "default/train/0000.parquet": parquet(3),
    },
    "a folder a split": {
        "test/a.jsonl": jsonl(1),
        "test/b.jsonl": jsonl(2),
        "train/a.jsonl": jsonl(3),
    },
    "declared": {
        "README.md": "---\nconfigs:\n- config_name: default\n  data_files:\n  - split: test\n    path: x/*.jsonl\n"
        '  - split: train\n    path: ["y.jsonl"]\n---\n# A set\n',
        **{
            "x/1.jsonl": jsonl(1),
            "x/2.jsonl": jsonl(2),
            "y.jsonl": jsonl(3),
            "test.jsonl": jsonl(9),
        },
    },
}


@pytest.mark.parametrize("files", LAYOUTS.values(), ids=[*LAYOUTS])
def test_every_layout_gives_the_same_dataset(hub: Hub, files: Mapping[str, bytes | str]) -> None:
    repository = hub.add("datasets", "org/sums", files)
    assert questions("org/sums") == {"test": ["1", "2"], "train": ["3"]}
    assert open_dataset("org/sums").source.endswith(f"@{repository.refs['main']}")
    assert "y.jsonl" not in files or "test.jsonl" not in hub.downloads()


def test_one_configuration_is_named_and_only_its_files_are_fetched(hub: Hub) -> None:
    files = [f"{name}-00000-of-00001.parquet" for name in ("add/test", "sub/test", "sub/train")]
    repository = hub.add(
        "datasets", "org/sums", {file: parquet(number) for number, file in enumerate(files)}
    )
    dataset = open_dataset("org/sums:sub")
    assert (dataset.name, dataset.source) == (
        "org/sums:sub",
        f"org/sums:sub@{repository.refs['main']}",
    )
    assert sorted(hub.downloads()) == files[1:]
    with pytest.raises(DataError, match="2 configurations; .* org/sums:add: add, sub"):
        open_dataset("org/sums")
    with pytest.raises(DataError, match="no configuration 'mul'; available: add, sub"):
        open_dataset("org/sums:mul")


def test_a_script_is_refused_and_its_rows_as_parquet_are_named(hub: Hub) -> None:
    repository = hub.add("datasets", "org/sums", {"sums.py": "raise SystemExit", "sums.zip": b"x"})
    converted = {"default/test/0000.parquet": parquet(1), "default/test/0001.parquet": parquet(2)}
    repository.commit(converted, "refs/convert/parquet")
    with pytest.raises(DataError, match=r"script \(sums.py\).*org/sums@refs/convert/parquet"):
        open_dataset("org/sums")
    assert (hub.downloads(), questions("org/sums@refs/convert/parquet")) == (
        [],
        {"test": ["1", "2"]},
    )


UNDECLARED = "README.md of org/sums@.* no file"
CARD = "---\nconfigs:\n- config_name: default\n  data_files: ../../*.jsonl\n---\n"


@pytest.mark.parametrize(
    ("files", "name", "words"),
    [
        ({"default/partial-test/0000.parquet": parquet(1)}, "org/sums", "part of the rows"),
        ({"test.jsonl": jsonl(1), "README.md": CARD}, "org/sums", UNDECLARED),
        (
            {},
            "https://huggingface.co/datasets/org/sums",
            "name the dataset org/sums, ",
        ),
    ],
    ids=[
        "a part of a large conversion",
        "a description that declares no file",
        "an address is no name",
    ],
)
def test_no_dataset_is_refused_with_reason(
    hub: Hub, files: Mapping[str, bytes | str], name: str, words: str
) -> None:
    hub.add("datasets", "org/sums", files)
    with pytest.raises(DataError, match=words):
        open_dataset(name)


def test_a_local_folder_of_that_name_wins(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "org" / "sums").mkdir(parents=True)
    (tmp_path / "org" / "sums" / "test.jsonl").write_text(jsonl(7))
    assert (questions("org/sums"), hub.requests) == ({"test": ["7"]}, [])
    hub.add("models", "merrow/byte", {"config.json": "{}"})
    (tmp_path / "merrow").mkdir()
    (tmp_path / "merrow" / "byte").symlink_to(FOLDER)
    assert (load_model("merrow/byte").name, hub.requests) == ("merrow-byte", [])


def test_what_is_wrong_with_rows_is_said_in_the_words_of_the_hub(hub: Hub) -> None:
    content = json.dumps({"question": "a?", "choices": ["a", "b"], "answer": -1}) + "\n"
    files = {"test.jsonl": content * 2, "data/train-0.parquet": parquet(2)}
    commit = hub.add("datasets", "org/sums", files).refs["main"]
    with pytest.raises(DataError) as raised:
        open_dataset("org/sums")
    message = str(raised.value)
    assert f"can't be scored (org/sums@{commit}/test.jsonl, line 1 (" in message
    assert "skip bad items" in message
    assert (
        f"`hf download org/sums --repo-type dataset --revision {commit} --local-dir DIR`" in message
    )
    assert [*open_dataset("org/sums", on_bad_item="skip").splits] == ["train"]


@pytest.mark.costly("two runs of data that a Hub serves")
def test_a_branch_that_moved_is_noticed(hub: Hub, tmp_path: Path) -> None:
    repository = hub.add("datasets", "org/sums", {"test.jsonl": jsonl(1)})
    asked = job_of(
        {"models": ["fake:hash"], "protocols": ["options/cloze:sum"], "data": ["org/sums"]}
    )
    (first,) = sweep(asked, tmp_path / "out").cells
    (same,) = sweep(asked, tmp_path / "out").cells
    assert first.done
    assert same == first
    repository.commit({"test.jsonl": jsonl(2)})
    (moved,) = sweep(asked, tmp_path / "out").cells
    assert moved.asked != first.asked
    assert "org/sums" in moved.failure


def test_a_model_is_another_after_its_branch_moved(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    repository = hub.add("models", "merrow/byte", {"config.json": "{}"})
    model, pinned = (
        ModelChoice(name="merrow/byte"),
        ModelChoice(name=f"merrow/byte@{repository.refs['main']}"),
    )
    before, pinned_before = model.state, pinned.state
    assert model.state == before
    repository.commit({"config.json": "[]"})
    assert model.state != before
    after = model.state
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    hub.requests.clear()
    assert (model.state, pinned.state, hub.requests) == (after, pinned_before, [])


def test_what_is_nowhere_has_a_state_as_well(hub: Hub) -> None:
    assert ModelChoice(name="no/where").state == ModelChoice(name="no/where").state
    (source,) = sources_of(job_of({"protocols": ["options/cloze"], "data": ["no/where"]}))
    assert source.state_digest


COMMIT = "0123456789abcdef" * 2 + "01234567"
MODEL, DATA = f"org/model@{COMMIT}", f"org/sums:hard@{COMMIT}"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of a model on data that came from the Hub."""
    return change(
        write_run(tmp_path / "runs" / "run", protocols=["mmlu/original"]),
        lambda manifest: replace(
            manifest,
            model=replace(manifest.model, name="org/model", source=MODEL),
            dataset=replace(manifest.dataset, name="org/sums:hard", source=DATA),
            job={"models": [{"name": "org/model"}], "data": [{"path": "org/sums:hard"}]},
        ),
    )


@pytest.mark.costly("the first charts that a process draws take it two seconds")
def test_page_and_board_say_and_ask_the_commits(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_runs_here(monkeypatch)
    write_page([run], tmp_path / "page.html")
    text = unescape((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert f"choicewise run --model {MODEL} --data {DATA} --protocol" in text
    assert f"exact version: <code>{MODEL}</code>" in text
    assert f"exact version: <code>{DATA}</code>" in text
    snapshot = read_snapshot([run.parent])
    pages = write_board(snapshot, tmp_path / "board").parent.rglob("*.html")
    assert any(
        f"choicewise run --model {MODEL} --data {DATA}" in unescape(page.read_text("utf-8"))
        for page in pages
    )
    file, *_ = downloads(read_study([run]))
    for table in (b64decode(file.address.partition(",")[2]).decode(), board_csv(snapshot, View())):
        rows = csv.DictReader(table.splitlines())
        assert {(row["model_source"], row["dataset_source"]) for row in rows} == {(MODEL, DATA)}


def test_where_files_came_from_is_asked_for_again_and_does_not_change_what_was_computed(
    run: Path,
) -> None:
    model = ModelRecord("org/model", "0", "float32", "cpu", 9)
    assert (model.reference, replace(model, source=MODEL).reference) == ("org/model", MODEL)
    assert replace(model, name="org/model+lora", source=MODEL).reference == "org/model+lora"
    assert DatasetRecord("folder", "0").reference == "folder"
    assert DatasetRecord("org/sums:hard", "0", source=DATA).reference == DATA
    assert DatasetRecord("arc-easy", "0", source=f"allenai/ai2_arc@{COMMIT}").reference == ""
    manifest = read_manifest(run)
    local = replace(manifest, model=replace(manifest.model, name="folder", source=""))
    assert run_id(manifest) == run_id(local)


MORE = {
    "pytorch_model.bin": b"pickle",
    "modeling_merrow.py": "raise SystemExit",
    "flax_model.msgpack": b"x",
}


def test_a_model_is_what_its_folder_is_and_says_which_commit(hub: Hub) -> None:
    repository = hub.add("models", "merrow/byte", {**FILES, **MORE})
    model = load_model("merrow/byte")
    local = load_model(FOLDER)
    assert (model.name, model.digest, model.tokenizer.digest) == (
        "merrow/byte",
        local.digest,
        local.tokenizer.digest,
    )
    assert getattr(model, "source", "") == f"merrow/byte@{repository.refs['main']}"
    assert not {*MORE} & {*hub.downloads()}
    assert {"model.safetensors", "tokenizer.json", "config.json"} <= {*hub.downloads()}
    hub.requests.clear()  # what is in the cache is not fetched again
    load_model("merrow/byte")
    assert hub.downloads() == []


def test_a_revision_is_the_one_that_is_named_and_weights_in_parts_are_those_that_the_index_lists(
    hub: Hub,
) -> None:
    repository = hub.add("models", "merrow/byte", FILES)
    first = repository.refs["main"]
    changed = FILES | {"config.json": json.dumps(json.loads(FILES["config.json"]) | {"x": 1})}
    second = repository.commit(changed)
    repository.refs["v1"] = first
    repository.refs["refs/pr/1"] = second
    models = {
        name: load_model(f"merrow/byte@{name}") for name in (first, "v1", "main", "refs/pr/1")
    }
    assert (
        models[first].digest
        == models["v1"].digest
        != models["main"].digest
        == models["refs/pr/1"].digest
    )
    assert getattr(models["refs/pr/1"], "source", "") == f"merrow/byte@{second}"
    index = json.dumps({"metadata": {}, "weight_map": {"a": "model-00001-of-00001.safetensors"}})
    shards = {
        "model-00001-of-00001.safetensors": FILES["model.safetensors"],
        "original.safetensors": b"x",
    }
    hub.add(
        "models",
        "merrow/parts",
        {**WITHOUT_WEIGHTS, **shards, "model.safetensors.index.json": index},
    )
    load_model("merrow/parts")
    assert "model-00001-of-00001.safetensors" in hub.downloads()
    assert "original.safetensors" not in hub.downloads()


def test_pickles_are_refused_before_anything_large_is_fetched(hub: Hub) -> None:
    hub.add("models", "merrow/pickled", {"config.json": "{}", **MORE})
    with pytest.raises(ModelError, match="no safetensors.*pytorch_model.bin"):
        load_model("merrow/pickled")
    assert hub.downloads() == []


@pytest.mark.parametrize(
    "index",
    [
        '{"weight_map": {"w": "pytorch_model.bin"}}',
        '{"weight_map": {"w": 5}}',
        "[1]",
        "[" * 100_000,
    ],
)
def test_an_index_of_anything_but_safetensors_fetches_nothing(hub: Hub, index: str) -> None:
    hub.add(
        "models", "merrow/byte", {**WITHOUT_WEIGHTS, **MORE, "model.safetensors.index.json": index}
    )
    with pytest.raises(ModelError, match="not an index"):
        load_model("merrow/byte")
    assert not {*MORE} & {*hub.downloads()}


def test_the_repository_of_an_adapter_says_how_to_take_it(hub: Hub) -> None:
    hub.add(
        "models", "merrow/lora", {"adapter_config.json": "{}", "adapter_model.safetensors": b"x"}
    )
    with pytest.raises(ModelError, match="is an adapter. Run `hf download merrow/lora`.* adapter"):
        load_model("merrow/lora")


def test_a_gguf_file_of_a_repository_is_named_after_a_colon(hub: Hub, tmp_path: Path) -> None:
    write_gguf(FOLDER.parent / "merrow-bpe-512", tmp_path / "isle.gguf")
    content = (tmp_path / "isle.gguf").read_bytes()
    repository = hub.add("models", "org/isle", {"isle.gguf": content, "other.gguf": b"GGUF" * 9})
    model = load_model("org/isle:isle.gguf")
    assert model.source == f"org/isle:isle.gguf@{repository.refs['main']}"  # type: ignore[attr-defined]
    assert model.name == "isle"
    assert hub.downloads() == ["isle.gguf"]
    with pytest.raises(
        ModelError, match=r"holds no none\.gguf; its GGUF files: isle\.gguf, other\.gguf"
    ):
        load_model("org/isle:none.gguf")
    with pytest.raises(ModelError, match=r"GGUF files; .* org/isle:isle\.gguf"):
        load_model("org/isle")
