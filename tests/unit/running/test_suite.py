"""Suites: what they name, where it lies, and one line that runs them."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from choicewise.cli.commands import invoke
from choicewise.data.benchmarks import benchmark
from choicewise.errors import DataError, MissingData, ProtocolError, UsageError
from choicewise.protocols.catalogue import (
    entry_names,
    group_names,
    groups,
    one,
    resolve,
    suite,
    suite_names,
)
from choicewise.protocols.protocol import parse_signature, signature
from choicewise.running.job import job_of, sources_of
from choicewise.store.folder import read_manifest, read_sweep
from tests.helpers.commands import choicewise
from tests.helpers.suite_data import QUIZ, TRIO, UNSCORED, known_suites, write_benchmarks

NAMES = suite_names()


@pytest.fixture
def trio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for runs, where the suite ``tests/trio`` and its questions are known."""
    write_benchmarks(tmp_path / "data", monkeypatch)
    with known_suites(tmp_path, monkeypatch, trio=TRIO.format(more=""), quiz=QUIZ):
        yield tmp_path / "out"


@pytest.mark.parametrize("name", NAMES)
def test_every_part_of_a_published_suite_resolves(name: str) -> None:
    known = suite(name)
    assert known.name == name
    assert known.title
    assert known.citation
    assert known.description.endswith(".")
    assert known.source.startswith("https://")
    for part in known.parts:
        assert bool(part.protocols) != bool(part.unscored)
        for protocol in part.protocols.values():
            assert protocol.benchmark == part.benchmark == benchmark(part.benchmark).name
    assert resolve(name) == known.protocols


def test_a_suite_is_a_selector_among_others(trio: Path) -> None:
    assert list(resolve("tests/trio")) == [
        *("mmlu/harness-v1@shots=2", "winogrande/harness"),
        *("arc-easy/harness:acc", "arc-easy/harness:acc_norm"),
    ]
    assert set(resolve("quiz")) == set(resolve("mmlu/harness-v0"))
    assert set(resolve("tests/trio", "mmlu/original")) == {*resolve("tests/trio"), "mmlu/original"}
    with pytest.raises(ProtocolError, match="is several protocols"):
        one("tests/trio")
    with pytest.raises(ProtocolError, match="mean tests/trio"):
        resolve("tests/troi")


def test_a_protocol_with_other_axes_is_called_after_them_if_there_are_such() -> None:
    ((name, fewer),) = resolve("mmlu/original@shots=2").items()
    ((_, published),) = resolve("mmlu/original").items()
    assert (name, fewer.shots, published.shots) == ("mmlu/original@shots=2", 2, 5)
    assert parse_signature(signature(fewer)) == fewer
    assert resolve("mmlu/original@shots=5") == {"mmlu/original": published}
    assert set(resolve("mmlu/cloze@shots=0")) == set(resolve("mmlu/cloze"))
    assert (
        next(iter(resolve("mmlu/original@shots=1,aggregation=macro")))
        == "mmlu/original@shots=1,aggregation=macro"
    )
    for selector, told in [
        ("mmlu/original@shots", "is not AXIS=VALUE"),
        ("mmlu/original@shot=2", "did you mean shots"),
        ("mmlu/original@shots=two", "whole number"),
        ("mmlu/original@ties=never", "must be one of"),
        ("mmlu/orginal@shots=2", "did you mean mmlu/original"),
    ]:
        with pytest.raises(ProtocolError, match=told):
            resolve(selector)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            TRIO.format(more="").replace("winogrande/harness", "winogrande/nonsense"),
            "tests/trio: no protocol",
        ),
        (TRIO.format(more="").replace('"mean"', '"median"'), "one of mean, none"),
        (TRIO.format(more="colour = 1"), "unknown key 'colour'"),
        (TRIO.format(more="") + "\nweight = 2", "unknown key 'weight'"),
    ],
)
def test_a_wrong_suite_is_refused(
    text: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with known_suites(tmp_path, monkeypatch, wrong=text), pytest.raises(ProtocolError, match=told):
        suite("tests/trio")


def test_names_are_known_without_reading_the_files() -> None:
    assert group_names() == {
        name: tuple(each.name for each in members) for name, members in groups().items()
    }
    assert {name.partition("/")[0] for name in entry_names()} <= set(group_names())


def test_the_list_and_the_sheet_of_a_suite(
    trio: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "tests/trio" in choicewise("protocols", code=0).stdout
    shown = choicewise("protocols", "show", "tests/trio", code=0).stdout
    assert "mmlu        2      acc (macro)" in shown
    assert "mean over the benchmarks" in shown
    rows = {
        row["name"]: row for row in json.loads(choicewise("protocols", "--json", code=0).stdout)
    }
    assert rows["tests/trio"]["protocols"] == list(resolve("tests/trio"))
    with known_suites(tmp_path, monkeypatch, trio=TRIO.format(more="") + UNSCORED):
        sheet = choicewise("protocols", "show", "tests/trio", code=0).stdout
        assert "can't be scored here:" in sheet
        printed = choicewise(*run_line(trio, "fake:hash"), "--limit", "1", code=0).stdout
    assert "essay is missing: " in printed


def run_line(trio: Path, model: str = "fake:oracle", protocol: str = "tests/trio") -> list[str]:
    return ["run", "--model", model, "--protocol", protocol, "--out", str(trio)]


def test_a_line_runs_a_suite_on_its_benchmarks(trio: Path) -> None:
    first = choicewise(*run_line(trio), code=0).stdout
    assert "tests/trio: values in %" in first
    assert "fake:oracle  100.0       100.0     100.0    100.0   82.1 – 100.0  24     1" in first
    sweep = read_sweep(trio)
    folders = [trio / cell.folder for cell in sweep.cells]
    assert [folder.relative_to(trio).as_posix() for folder in folders] == [
        *("fake-oracle/mmlu", "fake-oracle/winogrande", "fake-oracle/arc-easy")
    ]
    for folder, cell in zip(folders, sweep.cells, strict=True):
        manifest = read_manifest(folder)
        assert manifest.complete
        assert manifest.dataset.name == cell.dataset
        assert {parse_signature(text).benchmark for text in manifest.protocols.values()} == {
            cell.dataset
        }
        assert "data" not in manifest.job
    records = ("sweep.json", "sweep.copy.json")
    before = {
        file: file.stat().st_mtime_ns
        for file in trio.rglob("*")
        if file.is_file() and file.name not in records
    }
    assert choicewise(*run_line(trio), code=0).stdout == first
    assert before == {file: file.stat().st_mtime_ns for file in before}


def test_missing_data_are_named_before_a_model_is_loaded(
    trio: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHOICEWISE_DATA", str(trio.parent / "nowhere"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(MissingData) as caught:
        invoke(run_line(trio, "no/such-model"))
    assert caught.value.benchmarks == ("mmlu", "winogrande", "arc-easy")
    for option in ([], ["--dry-run"]):
        with pytest.raises(MissingData):
            invoke([*run_line(trio, "fake:hash"), *option])


def test_what_is_wrong_is_listed_benchmark_by_benchmark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHOICEWISE_DATA", str(tmp_path / "data"))
    row = {"question": "is it", "passage": "P", "idx": 0, "label": 5}
    arc = {
        "id": "1",
        "question": "Q",
        "choices": {"text": ["a", "b"], "label": ["A", "B"]},
        "answerKey": "Z",
    }
    for name, rows in {"boolq": [row, {**row, "idx": 1}], "arc-easy": [arc]}.items():
        (tmp_path / "data" / name).mkdir(parents=True)
        (tmp_path / "data" / name / "validation.jsonl").write_text(
            "".join(json.dumps(each) + "\n" for each in rows)
        )
    line = [
        "run",
        "--model",
        "fake:hash",
        "--protocol",
        "boolq/harness",
        "--protocol",
        "arc-easy/harness",
    ]
    with pytest.raises(DataError, match="questions of 2 benchmarks can't") as raised:
        invoke([*line, "--out", str(tmp_path / "out")])
    lines = raised.value.problems
    assert not any("\n" in line for line in lines)
    assert [
        sum(name in each for each in lines) for name in ("boolq/validation", "arc-easy/validation")
    ] == [2, 1]


def test_without_missing_the_average_is_incomplete(
    trio: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (trio.parent / "data/winogrande").rename(trio.parent / "elsewhere")
    shown = choicewise(*run_line(trio), "--without-missing", code=0).stdout
    assert "mean, incomplete" in shown
    assert "100.0 of 2 of 3" in shown
    assert "winogrande is missing: " in shown
    assert "choicewise fetch winogrande" in " ".join(shown.split())
    rows = json.loads(choicewise("report", "--json", trio, code=0).stdout)
    (average,) = [row for row in rows if row["metric"] == "average"]
    assert (average["value"], average["mean_of_parts"], average["complete"]) == (None, 1.0, False)
    (trio.parent / "elsewhere").rename(trio.parent / "data/winogrande")
    assert "100.0   82.1 – 100.0  24" in choicewise(*run_line(trio), code=0).stdout


def test_what_has_no_data_of_its_own_or_too_many_is_refused(trio: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="options/cloze:sum has no data"):
        sources_of(job_of({"protocols": ["options/cloze", "mmlu"]}))
    choicewise(*run_line(trio, "fake:hash", "mmlu/original"), code=0)
    assert read_manifest(trio).dataset.name == "mmlu"  # one benchmark makes a plain run folder
    run = run_line(tmp_path / "other", "fake:hash")
    for line, reason in [
        ([*run, "--data", str(tmp_path / "data/mmlu")], "one dataset can't be"),
        ([*run, "--subject", "tides"], "--subject does not apply"),
        ([*run, "--mapping", "m.toml"], "--mapping does not apply"),
        (
            [*run_line(trio, "fake:hash", "mmlu"), "--without-missing"],
            "--without-missing does not apply",
        ),
    ]:
        with pytest.raises(UsageError, match=reason):
            invoke(line)


def test_prompts_and_plans_are_of_all_benchmarks(trio: Path) -> None:
    prompts = choicewise("prompts", "--protocol", "tests/trio", "--limit", "1", code=0).stdout
    assert [json.loads(line)["protocol"] for line in prompts.splitlines()] == [
        *["mmlu/harness-v1@shots=2"] * 2,
        *("winogrande/harness", "arc-easy/harness:acc"),
    ]
    plan = ("run", "--model", "fake:hash", "--protocol", "tests/trio", "--dry-run")
    *parts, every = json.loads(choicewise(*plan, "--json", code=0).stdout)
    assert [part["dataset"] for part in parts] == ["mmlu", "winogrande", "arc-easy"]
    assert every["dataset"] == "all"
    for key in ("requests", "tokens_asked", "tokens_unique"):
        assert every[key] == sum(part[key] for part in parts)
    assert "unique tokens" in choicewise(*plan, code=0).stdout
