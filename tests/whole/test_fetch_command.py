"""``choicewise fetch`` and names on the Hub in processes of their own, against a server of the tests."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from choicewise.data.benchmarks import benchmark
from choicewise.util.text import size
from tests.helpers.hub_files import MODEL, jsonl
from tests.helpers.hub_server import Hub, environment, serve

SECRET = "hf_notforanybody"


@pytest.fixture
def hub() -> Iterator[Hub]:
    """With a few rows of ours where a benchmark has its own."""
    row = {"sentence": "The cup fell off the shelf, and _ broke.", "option1": "the cup", "option2": "the shelf"}
    rows = [{**row, "answer": "1"}, {**row, "sentence": "The box fell onto the cup, and _ broke.", "answer": "2"}]
    table = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows), table)
    paths = [pattern.replace("*", "00000-of-00001") for pattern in benchmark("winogrande").files.values()]
    with serve() as server:
        repository = server.add("datasets", "allenai/winogrande", {})
        repository.commits[benchmark("winogrande").revision] = dict.fromkeys(paths, table.getvalue().to_pybytes())
        yield server


def run(hub: Hub, folder: Path, *words: str, code: int = 0, **more: str) -> subprocess.CompletedProcess[str]:
    """The command, in ``folder``, with a token and an empty cache of its own."""
    known = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "CHOICEWISE_"))}
    known |= environment(hub, folder / "home") | {"HF_TOKEN": SECRET, "XDG_CACHE_HOME": str(folder / "cache")} | more
    line = [sys.executable, "-m", "choicewise", *words]
    done = subprocess.run(line, cwd=folder, env=known, capture_output=True, text=True, timeout=300)
    assert done.returncode == code, done.stderr
    assert SECRET not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


def test_fetch_then_run_without_network(hub: Hub, tmp_path: Path) -> None:
    asked = "run", "--model", "fake:hash", "--protocol", "winogrande/harness", "--json", "--out"
    missing = run(hub, tmp_path, *asked, "a", code=3, HF_HUB_OFFLINE="1").stderr
    assert "`choicewise fetch winogrande --to DIR`, then set CHOICEWISE_DATA=DIR" in missing
    assert "put them into $CHOICEWISE_DATA/winogrande/ as " in missing
    fetched = run(hub, tmp_path, "fetch", "winogrande", "--to", "data", "--json")
    (delivery,) = json.loads(fetched.stdout)
    assert (delivery["name"], delivery["new"], delivery["files"]) == ("winogrande", 2, 2)
    assert f"set CHOICEWISE_DATA={tmp_path / 'data'}" in fetched.stderr
    assert "all there already" in run(hub, tmp_path, "fetch", "winogrande", "--to", "data").stdout
    (tmp_path / "home").rename(tmp_path / "gone")
    hub.requests.clear()
    result = run(hub, tmp_path, *asked, "b", HF_HUB_OFFLINE="1", CHOICEWISE_DATA=str(tmp_path / "data"))
    assert {row["dataset_source"] for row in json.loads(result.stdout)} == {delivery["source"]}
    assert hub.requests == []
    for file in (*tmp_path.glob("b/**/*"), *tmp_path.glob("data/**/*")):
        assert not file.is_file() or SECRET.encode() not in file.read_bytes()


def test_what_can_be_fetched_is_though_something_else_cannot(hub: Hub, tmp_path: Path) -> None:
    done = run(hub, tmp_path, "fetch", "piqa", "winogrande", "mmlu", "--to", "data", code=3)
    assert done.stdout.startswith("winogrande: 2 files")
    assert "2 could not be fetched; `choicewise fetch piqa winogrande mmlu --to data` tries again" in done.stderr
    assert "ybisk/piqa" in done.stderr
    run(hub, tmp_path, "fetch", "nothing-known", "--to", "data", code=4)
    run(hub, tmp_path, "fetch", "--to", "data", code=2)


def test_a_model_and_a_dataset_by_name_score_as_from_folders(hub: Hub, tmp_path: Path) -> None:
    repository = hub.add("models", "merrow/byte", MODEL)
    hub.add("datasets", "org/sums", {"test.jsonl": jsonl(1, 2)})
    line = "run", "--data", "org/sums", "--protocol", "options/cloze", "--out", "run", "--model", "merrow/byte"
    first, source = run(hub, tmp_path, *line, "--all"), f"merrow/byte@{repository.refs['main']}"
    assert f"from the Hub: {source}, org/sums@" in " ".join(first.stdout.split())
    assert f"downloaded merrow/byte: {size(sum(map(len, MODEL.values())))}" in first.stderr
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert (manifest["model"]["name"], manifest["model"]["source"]) == ("merrow/byte", source)
    run(hub, tmp_path, *line, HF_HUB_OFFLINE="1")
    repository.gated = True
    asked = "score", "--model", "merrow/byte", "--context", "a", "--choice", "b"
    assert "it is gated; ask for access at" in run(hub, tmp_path, *asked, code=5, HF_HOME="other").stderr
