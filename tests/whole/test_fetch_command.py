"""``choicewise fetch`` and names on the Hub in processes of their own, against a server of the tests."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from choicewise import bundled, evaluate
from choicewise.data.benchmarks import benchmark
from choicewise.extensions.demo.tables import StrikingPair, discovery_lines, striking_pair
from choicewise.page.sections import orders
from choicewise.page.study import make_study
from choicewise.protocols.protocol import axis_differences
from choicewise.report.findings import reversal_sentence
from choicewise.results.finding import finding, reversal
from choicewise.results.guessing import guess
from choicewise.results.outcomes import Axis, ranked
from choicewise.results.summary import keep_summary
from choicewise.util.text import size
from tests.helpers.commands import choicewise
from tests.helpers.hub_server import MODEL, Hub, environment, jsonl, serve
from tests.helpers.messages import Gist
from tests.helpers.mmlu_data import write_mmlu
from tests.helpers.rows import NAMES, made

SECRET = "hf_notforanybody"


@pytest.fixture
def hub() -> Iterator[Hub]:
    """With a few rows of ours where a benchmark has its own."""
    row = {
        "sentence": "The cup fell off the shelf, and _ broke.",
        "option1": "the cup",
        "option2": "the shelf",
    }
    rows = [
        {**row, "answer": "1"},
        {**row, "sentence": "The box fell onto the cup, and _ broke.", "answer": "2"},
    ]
    table = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows), table)
    paths = [
        pattern.replace("*", "00000-of-00001") for pattern in benchmark("winogrande").files.values()
    ]
    with serve() as server:
        repository = server.add("datasets", "allenai/winogrande", {})
        repository.commits[benchmark("winogrande").revision] = dict.fromkeys(
            paths, table.getvalue().to_pybytes()
        )
        yield server


def run(
    hub: Hub, folder: Path, *words: str, code: int = 0, **more: str
) -> subprocess.CompletedProcess[str]:
    """The command, in ``folder``, with a token and an empty cache of its own."""
    known = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("HF_", "CHOICEWISE_"))
    }
    known |= (
        environment(hub, folder / "home")
        | {"HF_TOKEN": SECRET, "XDG_CACHE_HOME": str(folder / "cache")}
        | more
    )
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
    assert f"Set CHOICEWISE_DATA={tmp_path / 'data'} " in fetched.stderr
    assert "already there" in run(hub, tmp_path, "fetch", "winogrande", "--to", "data").stdout
    (tmp_path / "home").rename(tmp_path / "gone")
    hub.requests.clear()
    result = run(
        hub, tmp_path, *asked, "b", HF_HUB_OFFLINE="1", CHOICEWISE_DATA=str(tmp_path / "data")
    )
    assert {row["dataset_source"] for row in json.loads(result.stdout)} == {delivery["source"]}
    assert hub.requests == []
    for file in (*tmp_path.glob("b/**/*"), *tmp_path.glob("data/**/*")):
        assert not file.is_file() or SECRET.encode() not in file.read_bytes()


def test_what_can_be_fetched_is_though_something_else_cannot(hub: Hub, tmp_path: Path) -> None:
    done = run(hub, tmp_path, "fetch", "piqa", "winogrande", "mmlu", "--to", "data", code=3)
    assert done.stdout.startswith("winogrande: 2 files")
    assert "`choicewise fetch piqa winogrande mmlu --to data`" in done.stderr
    assert "ybisk/piqa" in done.stderr
    nothing = run(hub, tmp_path, "fetch", "piqa", "--to", "other", code=3)
    assert "CHOICEWISE_DATA=" not in nothing.stderr
    run(hub, tmp_path, "fetch", "nothing-known", "--to", "data", code=4)
    run(hub, tmp_path, "fetch", "--to", "data", code=2)


def test_a_model_and_a_dataset_by_name_score_as_from_folders(hub: Hub, tmp_path: Path) -> None:
    repository = hub.add("models", "merrow/byte", MODEL)
    hub.add("datasets", "org/sums", {"test.jsonl": jsonl(1, 2)})
    line = (
        "run",
        "--data",
        "org/sums",
        "--protocol",
        "options/cloze",
        "--out",
        "run",
        "--model",
        "merrow/byte",
    )
    first, source = run(hub, tmp_path, *line, "--all"), f"merrow/byte@{repository.refs['main']}"
    assert f"exact version: {source}, org/sums@" in " ".join(first.stdout.split())
    assert f"downloaded merrow/byte: {size(sum(map(len, MODEL.values())))}" in first.stderr
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert (manifest["model"]["name"], manifest["model"]["source"]) == ("merrow/byte", source)
    run(hub, tmp_path, *line, HF_HUB_OFFLINE="1")
    repository.gated = True
    asked = "score", "--model", "merrow/byte", "--context", "a", "--choice", "b"
    assert "ask for access" in run(hub, tmp_path, *asked, code=5, HF_HOME="other").stderr


def test_the_striking_pair_is_the_one_with_the_greatest_change(tmp_path: Path) -> None:
    data = write_mmlu(tmp_path / "data", questions=12)
    run = evaluate(model="fake:hash", data=data, protocols=["mmlu"], out=tmp_path / "run")
    pair = striking_pair(keep_summary(run).outcomes)
    changes = {}
    for (one, left), (other, right) in combinations(run.measurements.items(), 2):
        axes = {axis for axis, *_ in axis_differences(left.protocol, right.protocol)} - {
            "rev",
            "benchmark",
        }
        if len(axes) == 1:
            changes[frozenset((one, other))] = abs(
                np.nanmean(left.credit) - np.nanmean(right.credit)
            )
    assert pair.start_value - pair.end_value == pytest.approx(max(changes.values()))
    assert changes[frozenset((pair.start, pair.end))] == pytest.approx(max(changes.values()))
    start, end = (run.measurements[name] for name in (pair.start, pair.end))
    assert (pair.lost, pair.gained) == (
        (start.credit > end.credit).sum(),
        (start.credit < end.credit).sum(),
    )
    place = start.ids.to_pylist().index(pair.example)
    assert (start.credit[place], end.credit[place]) == (1, 0)
    spelled = {
        axis: (one, other) for axis, one, other in axis_differences(start.protocol, end.protocol)
    }
    assert spelled[pair.axis.axis] == (pair.axis.left, pair.axis.right)
    assert striking_pair(keep_summary(run.choose(["mmlu/original"])).outcomes) is None


def test_what_was_discovered_in_lines() -> None:
    letters, cloze = (
        [name for name in NAMES if made(name).identity.family == family]
        for family in ("letters", "cloze")
    )
    rows = [made(name, 0.2 + 0.01 * place, "a") for place, name in enumerate(letters)]
    rows += [made(name, 0.9, "a") for name in cloze]
    rows += [made(name, 0.4, "b") for name in (*letters, *cloze)]
    axis = Axis("null", "Answer:", "Answer: ")
    pair = StrikingPair(
        model="a",
        axis=axis,
        start=cloze[0],
        end=cloze[1],
        start_value=0.9,
        end_value=0.5,
        n=100,
        gained=3,
        lost=43,
        example="q1",
    )
    assert list(discovery_lines(finding(rows), None, pair)) == [
        Gist(f"a is ... 2 models under {len(cloze)} of {len(cloze) + len(letters)} protocols."),
        Gist("between 20.0 % and 90.0 % ... 100 questions: 70.0 points"),
        Gist(f"none ... {len(letters)} with letters, ... {len(cloze)}"),
        Gist(
            'axis null from "Answer:" to "Answer:␠" ... 40.0 points: 43 of 100 ... '
            f"{cloze[0]} to {cloze[1]}."
        ),
    ]
    assert list(discovery_lines(finding(ranked(rows[:1])), None, None)) == []


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A demo of two fake models and few questions."""
    monkeypatch.setattr(bundled, "MODELS", [Path("fake:hash"), Path("fake:oracle")])
    monkeypatch.setattr(bundled, "BENCHMARK", write_mmlu(tmp_path / "data"))
    return tmp_path / "demo"


def test_the_demo_begins_with_the_finding_and_ends_with_what_was_discovered_and_the_page(
    small: Path,
) -> None:
    told, page = choicewise("demo", "--out", small, "--all", code=0).stdout, small / "page.html"
    assert told == Gist("12 questions are too few")
    assert [
        word for word in ("range in % within a family", "published 2023-06-23") if word not in told
    ] == []
    assert "is the first of" not in told
    assert told.splitlines()[-1].startswith(f"Open {page} in a browser")
    assert "fake:oracle" in page.read_text(encoding="utf-8")
    assert [
        word for word in ("mmlu/cloze:sum ", "accuracy in % and rank") if word not in told
    ] == []


def test_a_demo_without_the_extra_says_what_installs_it(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("choicewise.page.embed.find_spec", lambda name: None)
    last = choicewise("demo", "--out", small, code=0).stdout.splitlines()[-1]
    assert "install jinja2 and vl-convert-python: " in last
    assert "`pip install --constraint constraints.txt '.[page]'`, then `choicewise page " in last
    assert not (small / "page.html").exists()


LETTERS, CLOZE = PROTOCOLS = ["mmlu/original", "mmlu/cloze:sum"]


def test_models_that_know_letters_and_one_that_knows_answers_alone_change_places(
    tmp_path: Path,
) -> None:
    names, asked = (
        [folder.name for folder in bundled.MODELS],
        {"data": "bundled:merrowick", "protocols": PROTOCOLS},
    )
    runs = (evaluate(model=f"bundled:{name}", **asked, out=tmp_path / name) for name in names)
    summaries = [keep_summary(run) for run in runs]
    rows = {
        (row.identity.model, row.identity.protocol): row for each in summaries for row in each.rows
    }
    assert sum(rows[name, LETTERS].value > 0.6 for name in names) >= 2
    assert [name for name in names if rows[name, CLOZE].value > 0.8 and guess(rows[name, LETTERS])]
    turned = reversal(summaries)
    assert {turned.start.protocol, turned.end.protocol} == {LETTERS, CLOZE}
    assert max(turned.start.p, turned.end.p) < 0.001
    (order,) = orders(make_study(summaries), [])
    assert order.sentences[-1] == reversal_sentence(turned)
