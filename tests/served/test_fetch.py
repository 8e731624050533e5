"""Benchmarks from the Hub: opened, fetched into a folder to carry, checked when they are opened again."""

import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from choicewise.data import benchmarks as declared
from choicewise.data.benchmarks import PLACE, Benchmark, benchmarks, open_benchmark
from choicewise.data.hub import HubName
from choicewise.errors import DataError, MissingData, UsageError
from choicewise.extensions.fetch.fetch import fetch_benchmark, fetch_model, needed_benchmarks
from choicewise.models.load import load_model
from tests.helpers.hub_server import MODEL, Hub, jsonl, parquet

SUMS = {
    "all/test-00000-of-00002.parquet": parquet(1, 2),
    "all/test-00001-of-00002.parquet": parquet(3),
    "all/dev-00000-of-00001.parquet": parquet(4),
    "all/extra-00000-of-00001.parquet": parquet(5),
}


@pytest.fixture
def hub(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> Hub:
    """A Hub with the benchmark ``sums``, at the commit that is its main branch now."""
    monkeypatch.delenv(PLACE, raising=False)
    declare(monkeypatch, hub.add("datasets", "org/sums", SUMS).refs["main"])
    return hub


def declare(monkeypatch: pytest.MonkeyPatch, revision: str, **files: str) -> None:
    """Let ``sums`` be a benchmark at this revision."""
    paths = files or {"dev": "all/dev-*.parquet", "test": "all/test-*.parquet"}
    sums = Benchmark(
        name="sums",
        title="Sums",
        citation="",
        source="",
        description="",
        repository="org/sums",
        revision=revision,
        files=paths,
        columns=None,
    )
    known: Mapping[str, Benchmark] = {**benchmarks(), "sums": sums}
    monkeypatch.setattr(declared, "benchmarks", lambda: known)
    monkeypatch.setattr("choicewise.extensions.fetch.fetch.benchmarks", lambda: known)


def test_a_fetched_benchmark_is_read_without_the_hub(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = open_benchmark("sums")
    assert {split: len(items) for split, items in there.splits.items()} == {"dev": 1, "test": 3}
    assert there.name == "sums"
    assert there.source == f"org/sums@{hub.repositories['datasets', 'org/sums'].refs['main']}"
    assert "all/extra-00000-of-00001.parquet" not in hub.downloads()
    first = fetch_benchmark("sums", tmp_path / "data")
    assert (first.files, first.new, first.source) == (3, 3, there.source)
    shutil.rmtree(tmp_path / "home")
    hub.requests.clear()
    monkeypatch.setenv(PLACE, str(tmp_path / "data"))
    carried = open_benchmark("sums")
    assert (carried.digest, carried.source, carried.name) == (there.digest, there.source, "sums")
    assert (fetch_benchmark("sums", tmp_path / "data").new, hub.requests) == (0, [])


def test_files_are_fetched_again_where_they_are_gone_or_another(hub: Hub, tmp_path: Path) -> None:
    fetch_benchmark("sums", tmp_path)
    file, other = (
        tmp_path / "sums/all" / f"{name}-of-00001.parquet" for name in ("dev-00000", "x")
    )
    file.write_bytes(parquet(9))
    assert fetch_benchmark("sums", tmp_path).new == 1
    (tmp_path / "sums/all/test-00001-of-00002.parquet").rename(other)
    assert fetch_benchmark("sums", tmp_path).new == 1


@pytest.mark.parametrize("change", ["another", "gone"])
def test_a_changed_file_is_refused(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    fetch_benchmark("sums", tmp_path)
    monkeypatch.setenv(PLACE, str(tmp_path))
    file = tmp_path / "sums/all/test-00001-of-00002.parquet"
    file.write_bytes(parquet(9)) if change == "another" else file.unlink()
    with pytest.raises(DataError, match="files differ from org/sums@") as raised:
        open_benchmark("sums")
    assert str(file) in raised.value.problems[0]


def test_a_fetch_that_was_cut_off_is_not_opened(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = []

    def copy(source: Path, target: Path) -> None:
        if copies:
            raise KeyboardInterrupt
        copies.append(target.write_bytes(source.read_bytes()))

    monkeypatch.setenv(PLACE, str(tmp_path))
    with monkeypatch.context() as cut, pytest.raises(KeyboardInterrupt):
        cut.setattr("choicewise.extensions.fetch.fetch.shutil.copyfile", copy)
        fetch_benchmark("sums", tmp_path)
    with pytest.raises(DataError, match="files differ from"):
        open_benchmark("sums")
    assert (fetch_benchmark("sums", tmp_path).new, len(open_benchmark("sums").splits["test"])) == (
        2,
        3,
    )


def test_rows_of_ones_own_need_no_checksums(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sums").mkdir()
    (tmp_path / "sums/test.parquet").write_bytes(parquet(7))
    monkeypatch.setenv(PLACE, str(tmp_path))
    assert [item.question for item in open_benchmark("sums").splits["test"]] == ["What is 7 + 1?"]
    assert hub.requests == []
    with pytest.raises(DataError, match="sums holds other files"):
        fetch_benchmark("sums", tmp_path)


def test_a_branch_that_moved_is_fetched_anew(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(monkeypatch, "main")
    before = fetch_benchmark("sums", tmp_path)
    hub.repositories["datasets", "org/sums"].commit(
        {**SUMS, "all/dev-00000-of-00001.parquet": parquet(8)}
    )
    assert before.source != fetch_benchmark("sums", tmp_path).source
    monkeypatch.setenv(PLACE, str(tmp_path))
    assert open_benchmark("sums").splits["dev"][0].question == "What is 8 + 1?"


def test_missing_data_say_what_to_do(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(MissingData) as raised:
        open_benchmark("sums")
    assert raised.value.benchmarks == ("sums",)
    advice = "`choicewise fetch sums`", "/sums/ as dev.jsonl, test"
    for part in ("CHOICEWISE_DATA is not set", "HF_HUB_OFFLINE", *advice):
        assert part in str(raised.value)


def test_splits_that_are_not_there_are_named(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(monkeypatch, "main", train="all/train-*.parquet")
    with pytest.raises(
        DataError,
        match=r"no files .* train \(all/train-\*.parquet\); .* all/dev-0000",
    ):
        fetch_benchmark("sums", tmp_path)


def test_subjects_come_from_paths_and_one_without_a_file_is_named(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add("datasets", "org/sums", {"add.jsonl": jsonl(1), "more.jsonl": jsonl(2)})
    declare(monkeypatch, "main", test="{subject}.jsonl")
    sums = replace(declared.benchmark("sums"), subjects=("add", "sub"))
    monkeypatch.setattr(declared, "benchmarks", lambda: {"sums": sums})
    with pytest.raises(DataError, match=r"no files .* test of sub \({subject}.jsonl\)"):
        open_benchmark("sums")
    hub.add(
        "datasets", "org/sums", {f"{name}/test-0.parquet": parquet(1) for name in ("add", "sub")}
    )
    declare(monkeypatch, "main", test="{subject}/test-*.parquet")
    assert open_benchmark("sums").subjects("test") == ("add", "sub")


def test_a_file_of_the_cache_that_is_damaged_is_refused(hub: Hub, tmp_path: Path) -> None:
    open_benchmark("sums")
    blob = next(tmp_path.glob("home/hub/**/test-00001*")).resolve()
    blob.write_bytes(b"x" * blob.stat().st_size)
    with pytest.raises(
        DataError, match=f"{re.escape(str(blob))} .*checksum.*; remove it and fetch"
    ):
        fetch_benchmark("sums", tmp_path / "data")
    assert not (tmp_path / "data").exists()


def test_a_record_of_files_outside_is_refused(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch_benchmark("sums", tmp_path)
    monkeypatch.setenv(PLACE, str(tmp_path))
    record = tmp_path / "sums/fetch.json"
    content = json.loads(record.read_text())
    content["files"]["../x.parquet"] = content["files"].popitem()[1]
    record.write_text(json.dumps(content))
    with pytest.raises(DataError, match="outside its folder"):
        open_benchmark("sums")
    record.write_text("{}")
    with pytest.raises(DataError, match="is damaged"):
        open_benchmark("sums")


def test_a_model_is_fetched_whole_and_loads_from_there(hub: Hub, tmp_path: Path) -> None:
    hub.add("models", "merrow/byte", {**MODEL, "pytorch_model.bin": b"pickle"})
    delivery = fetch_model(HubName("merrow/byte"), tmp_path)
    assert delivery.folder == tmp_path / "models/merrow/byte"
    assert load_model(delivery.folder).digest == load_model("merrow/byte").digest
    assert not (delivery.folder / "pytorch_model.bin").exists()
    assert fetch_model(HubName("merrow/byte"), tmp_path).new == 0


def test_protocols_families_and_benchmarks_name_what_is_needed() -> None:
    asked = ["winogrande", "mmlu/original", "mmlu", "arc-challenge"]
    assert needed_benchmarks(asked) == ["winogrande", "mmlu", "arc-challenge"]
    with pytest.raises(UsageError, match="options/cloze fits every dataset"):
        needed_benchmarks(["options/cloze"])
