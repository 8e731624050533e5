"""Datasets by their names on the Hub, and benchmarks, from a server of the tests."""

import json
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from choicewise.data.open import open_dataset
from choicewise.errors import DataError
from tests.helpers.hub_server import Hub, hub_of_this_process

SHARDS = ("data/test-00000-of-00002.jsonl", "data/test-00001-of-00002.jsonl")


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    monkeypatch.chdir(tmp_path)
    with hub_of_this_process(monkeypatch, tmp_path / "home") as server:
        yield server


def row(number: int) -> dict[str, Any]:
    return {"question": f"What is {number} + 1?", "choices": [f"{number + 1} it is", "none"], "answer": 0}


def parquet(*numbers: int) -> bytes:
    buffer = BytesIO()
    pq.write_table(pa.Table.from_pylist([row(number) for number in numbers]), buffer)
    return buffer.getvalue()


def jsonl(*numbers: int) -> str:
    return "".join(json.dumps(row(number)) + "\n" for number in numbers)


def questions(name: str) -> dict[str, list[str]]:
    dataset = open_dataset(name)
    return {split: [item.question[8] for item in items] for split, items in dataset.splits.items()}


LAYOUTS: Sequence[tuple[str, Mapping[str, bytes | str]]] = [
    ("data/", {"data/test-00000-of-00001.parquet": parquet(1, 2), "data/train-00000-of-00001.parquet": parquet(3)}),
    ("root", {"test.jsonl": jsonl(1, 2), "train.jsonl": jsonl(3)}),
    ("one configuration", {"main/test-00000-of-00001.parquet": parquet(1, 2), "main/train-0.parquet": parquet(3)}),
    ("converted", {"default/test/0000.parquet": parquet(1, 2), "default/train/0000.parquet": parquet(3)}),
    ("a folder a split", {"test/a.jsonl": jsonl(1), "test/b.jsonl": jsonl(2), "train/a.jsonl": jsonl(3)}),
    (
        "declared",
        {
            "README.md": "---\nconfigs:\n- config_name: default\n  data_files:\n  - split: test\n    path: x/*.jsonl\n"
            '  - split: train\n    path: ["y.jsonl"]\n---\n# A set\n',
            **{"x/1.jsonl": jsonl(1), "x/2.jsonl": jsonl(2), "y.jsonl": jsonl(3), "test.jsonl": jsonl(9)},
        },
    ),
]


@pytest.mark.parametrize("files", [files for _, files in LAYOUTS], ids=[name for name, _ in LAYOUTS])
def test_every_layout_gives_the_same_dataset(hub: Hub, files: Mapping[str, bytes | str]) -> None:
    repository = hub.add("datasets", "org/sums", files)
    assert questions("org/sums") == {"test": ["1", "2"], "train": ["3"]}
    assert open_dataset("org/sums").source.endswith(f"@{repository.refs['main']}")
    assert "y.jsonl" not in files or "test.jsonl" not in hub.downloads()


CONFIGS = {
    "add/test-00000-of-00001.parquet": parquet(1),
    "sub/test-00000-of-00001.parquet": parquet(2),
    "sub/train-00000-of-00001.parquet": parquet(3),
}


def test_one_configuration_is_named_and_only_its_files_are_fetched(hub: Hub) -> None:
    repository = hub.add("datasets", "org/sums", CONFIGS)
    dataset = open_dataset("org/sums:sub")
    assert (dataset.name, dataset.source) == ("org/sums:sub", f"org/sums:sub@{repository.refs['main']}")
    assert sorted(hub.downloads()) == ["sub/test-00000-of-00001.parquet", "sub/train-00000-of-00001.parquet"]
    with pytest.raises(DataError, match="2 configurations; name one, as org/sums:add: add, sub"):
        open_dataset("org/sums")
    with pytest.raises(DataError, match="no configuration 'mul'; known are add, sub"):
        open_dataset("org/sums:mul")


def test_a_script_is_refused_and_its_rows_as_parquet_are_named(hub: Hub) -> None:
    repository = hub.add("datasets", "org/sums", {"sums.py": "raise SystemExit", "sums.zip": b"x"})
    converted = {"default/test/0000.parquet": parquet(1), "default/test/0001.parquet": parquet(2)}
    repository.commit(converted, "refs/convert/parquet")
    with pytest.raises(DataError, match=r"script \(sums.py\).*org/sums@refs/convert/parquet"):
        open_dataset("org/sums")
    assert hub.downloads() == []
    assert questions("org/sums@refs/convert/parquet") == {"test": ["1", "2"]}


def test_a_part_of_a_large_conversion_is_refused(hub: Hub) -> None:
    hub.add("datasets", "org/sums", {"default/partial-test/0000.parquet": parquet(1)})
    with pytest.raises(DataError, match="only a part of its rows"):
        open_dataset("org/sums")


def test_a_local_folder_of_that_name_wins(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "org" / "sums").mkdir(parents=True)
    (tmp_path / "org" / "sums" / "test.jsonl").write_text(jsonl(7))
    assert questions("org/sums") == {"test": ["7"]}
    assert hub.requests == []


def test_a_description_that_declares_no_file_is_what_the_message_is_about(hub: Hub) -> None:
    card = "---\nconfigs:\n- config_name: default\n  data_files: ../../*.jsonl\n---\n"
    hub.add("datasets", "org/sums", {"test.jsonl": jsonl(1), "README.md": card})
    with pytest.raises(DataError, match="README.md of org/sums@.* declares no configuration with a file .* that is"):
        open_dataset("org/sums")


def test_an_address_is_no_name_and_the_message_says_what_is(hub: Hub) -> None:
    with pytest.raises(DataError, match="does not exist; .*; a dataset on the Hub is ORG/NAME"):
        open_dataset("https://huggingface.co/datasets/org/sums")


def test_what_is_wrong_with_rows_is_said_in_the_words_of_the_hub(hub: Hub) -> None:
    rows = [{"question": "a?", "choices": ["a", "b"], "answer": -1}] * 2
    content = "".join(f"{json.dumps(row)}\n" for row in rows)
    repository = hub.add("datasets", "org/sums", {"test.jsonl": content, "data/train-0.parquet": parquet(2)})
    commit = repository.refs["main"]
    with pytest.raises(DataError) as raised:
        open_dataset("org/sums")
    message = str(raised.value)
    assert f"the split test has no answers (org/sums@{commit}/test.jsonl, row 0" in message
    assert "skip bad items to leave it out" in message
    assert f"`hf download org/sums --repo-type dataset --revision {commit} --local-dir DIR`" in message
    assert [*open_dataset("org/sums", on_bad_item="skip").splits] == ["train"]
