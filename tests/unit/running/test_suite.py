"""Suites: what they name, where it lies, and one line that runs them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from choicewise.cli.commands import invoke
from choicewise.data.benchmarks import benchmark
from choicewise.errors import DataError, MissingData, ProtocolError, UsageError
from choicewise.protocols.catalogue import entry_names, group_names, groups, one, resolve, suite, suite_names
from choicewise.protocols.protocol import parse_signature, signature
from choicewise.running.job import job_of, sources_of
from choicewise.store.folder import read_manifest, read_sweep
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
    assert known.about.endswith(".")
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
    with pytest.raises(ProtocolError, match="stands for several"):
        one("tests/trio")
    with pytest.raises(ProtocolError, match="did you mean tests/trio"):
        resolve("tests/troi")


def test_a_protocol_with_other_axes_is_called_after_them() -> None:
    ((name, fewer),) = resolve("mmlu/original@shots=2").items()
    ((_, published),) = resolve("mmlu/original").items()
    assert name == "mmlu/original@shots=2"
    assert (fewer.shots, published.shots) == (2, 5)
    assert parse_signature(signature(fewer)) == fewer
    assert resolve("mmlu/original@shots=5") == {"mmlu/original": published}
    assert set(resolve("mmlu/cloze@shots=0")) == set(resolve("mmlu/cloze"))
    assert next(iter(resolve("mmlu/original@shots=1,aggregation=macro"))) == "mmlu/original@shots=1,aggregation=macro"


@pytest.mark.parametrize(
    ("selector", "told"),
    [
        ("mmlu/original@shots", "changes no axis"),
        ("mmlu/original@shot=2", "did you mean shots"),
        ("mmlu/original@shots=two", "whole number"),
        ("mmlu/original@ties=never", "must be one of"),
        ("mmlu/orginal@shots=2", "did you mean mmlu/original"),
    ],
)
def test_other_axes_that_there_are_not_are_refused(selector: str, told: str) -> None:
    with pytest.raises(ProtocolError, match=told):
        resolve(selector)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (TRIO.format(more="").replace("winogrande/harness", "winogrande/nonsense"), "tests/trio: no protocol"),
        (TRIO.format(more="").replace('"mean"', '"median"'), "must be one of mean, none"),
        (TRIO.format(more="colour = 1"), "unknown key 'colour'"),
        (TRIO.format(more="") + "\nweight = 2", "unknown key 'weight'"),
    ],
)
def test_a_suite_that_means_nothing_is_refused(
    text: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with known_suites(tmp_path, monkeypatch, wrong=text), pytest.raises(ProtocolError, match=told):
        suite("tests/trio")


def test_names_are_known_without_reading_the_files() -> None:
    assert group_names() == {name: tuple(each.name for each in members) for name, members in groups().items()}
    assert {name.partition("/")[0] for name in entry_names()} <= set(group_names())


def test_the_list_and_the_sheet_of_a_suite(trio: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["protocols"]) == 0
    assert "tests/trio" in capsys.readouterr().out
    assert invoke(["protocols", "show", "tests/trio"]) == 0
    shown = capsys.readouterr().out
    assert "mmlu        2      acc (macro)  mmlu/harness-v1@shots=2" in shown
    assert "average  the plain mean of the benchmarks; of several protocols of a benchmark the best counts" in shown
    assert invoke(["protocols", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["tests/trio"]["protocols"] == list(resolve("tests/trio"))


@pytest.mark.costly("runs are evaluated")
def test_a_line_runs_a_suite_on_its_benchmarks(trio: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["run", "--model", "fake:oracle", "--protocol", "tests/trio", "--out", str(trio)]
    assert invoke(line) == 0
    first = capsys.readouterr()
    assert "tests/trio: values in % and their plain mean" in first.out
    assert "fake:oracle  100.0       100.0     100.0    100.0   82.1 – 100.0  24     1" in first.out
    sweep = read_sweep(trio)
    folders = [trio / cell.folder for cell in sweep.cells]
    assert [folder.relative_to(trio).as_posix() for folder in folders] == [
        *("fake-oracle/mmlu", "fake-oracle/winogrande", "fake-oracle/arc-easy")
    ]
    for folder, cell in zip(folders, sweep.cells, strict=True):
        manifest = read_manifest(folder)
        assert manifest.complete
        assert manifest.dataset.name == cell.dataset
        assert {parse_signature(text).benchmark for text in manifest.protocols.values()} == {cell.dataset}
        assert "data" not in manifest.job
    records = ("sweep.json", "sweep.copy.json")
    before = {file: file.stat().st_mtime_ns for file in trio.rglob("*") if file.is_file() and file.name not in records}
    assert invoke(line) == 0
    assert capsys.readouterr().out == first.out
    assert before == {file: file.stat().st_mtime_ns for file in before}


def test_one_benchmark_makes_a_plain_run_folder(trio: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["run", "--model", "fake:hash", "--protocol", "mmlu/original", "--out", str(trio)]) == 0
    assert read_manifest(trio).dataset.name == "mmlu"


def test_missing_data_are_named_all_at_once_before_a_model_is_loaded(
    trio: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHOICEWISE_DATA", str(trio.parent / "nowhere"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(MissingData) as caught:
        invoke(["run", "--model", "no/such-model", "--protocol", "tests/trio", "--out", str(trio)])
    assert caught.value.benchmarks == ("mmlu", "winogrande", "arc-easy")
    for option in ([], ["--dry-run"]):
        with pytest.raises(MissingData):
            invoke(["run", "--model", "fake:hash", "--protocol", "tests/trio", "--out", str(trio), *option])


def test_what_is_wrong_with_several_benchmarks_is_listed_line_by_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHOICEWISE_DATA", str(tmp_path / "data"))
    row = {"question": "is it", "passage": "P", "idx": 0, "label": 5}
    arc = {"id": "1", "question": "Q", "choices": {"text": ["a", "b"], "label": ["A", "B"]}, "answerKey": "Z"}
    for name, rows in {"boolq": [row, {**row, "idx": 1}], "arc-easy": [arc]}.items():
        (tmp_path / "data" / name).mkdir(parents=True)
        (tmp_path / "data" / name / "validation.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))
    line = ["run", "--model", "fake:hash", "--protocol", "boolq/harness", "--protocol", "arc-easy/harness"]
    with pytest.raises(DataError, match="the questions of 2 benchmarks can't be used") as raised:
        invoke([*line, "--out", str(tmp_path / "out")])
    lines = raised.value.problems
    assert not any("\n" in line for line in lines)
    assert [sum(name in each for each in lines) for name in ("boolq/validation", "arc-easy/validation")] == [2, 1]


@pytest.mark.costly("runs are evaluated")
def test_without_missing_the_average_is_incomplete(
    trio: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (trio.parent / "data/winogrande").rename(trio.parent / "elsewhere")
    line = ["run", "--model", "fake:oracle", "--protocol", "tests/trio", "--out", str(trio), "--without-missing"]
    assert invoke(line) == 0
    shown = capsys.readouterr().out
    assert "their plain mean, incomplete" in shown
    assert "100.0 of 2 of 3" in shown
    assert "winogrande is missing: " in shown
    assert "choicewise fetch winogrande" in " ".join(shown.split())
    assert invoke(["report", "--json", str(trio)]) == 0
    (average,) = [row for row in json.loads(capsys.readouterr().out) if row["metric"] == "average"]
    assert average["value"] is None
    assert average["mean_of_parts"] == 1.0
    assert average["complete"] is False
    (trio.parent / "elsewhere").rename(trio.parent / "data/winogrande")
    assert invoke(line[:-1]) == 0
    assert "100.0   82.1 – 100.0  24" in capsys.readouterr().out


def test_what_has_no_data_of_its_own_or_too_many_is_refused(trio: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="fits every dataset"):
        sources_of(job_of({"protocols": ["options/cloze", "mmlu"]}))
    run = ["run", "--model", "fake:hash", "--protocol", "tests/trio", "--out", str(trio)]
    with pytest.raises(UsageError, match="one dataset was named for all of them"):
        invoke([*run, "--data", str(tmp_path / "data/mmlu")])
    with pytest.raises(UsageError, match="no use for --subject"):
        invoke([*run, "--subject", "tides"])
    with pytest.raises(UsageError, match="no use for --mapping"):
        invoke([*run, "--mapping", "m.toml"])
    with pytest.raises(UsageError, match="no use for --without-missing"):
        invoke(["run", "--model", "fake:hash", "--protocol", "mmlu", "--out", str(trio), "--without-missing"])


def test_prompts_and_plans_are_of_all_benchmarks(trio: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["prompts", "--protocol", "tests/trio", "--limit", "1"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["protocol"] for line in lines] == [
        *["mmlu/harness-v1@shots=2"] * 2,
        *("winogrande/harness", "arc-easy/harness:acc"),
    ]
    assert invoke(["run", "--model", "fake:hash", "--protocol", "tests/trio", "--dry-run", "--json"]) == 0
    *parts, every = json.loads(capsys.readouterr().out)
    assert [part["dataset"] for part in parts] == ["mmlu", "winogrande", "arc-easy"]
    assert every["dataset"] == "all"
    for key in ("requests", "tokens_asked", "tokens_unique"):
        assert every[key] == sum(part[key] for part in parts)
    assert invoke(["run", "--model", "fake:hash", "--protocol", "tests/trio", "--dry-run"]) == 0
    assert "unique tokens" in capsys.readouterr().out


def test_what_can_t_be_scored_here_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_benchmarks(tmp_path / "data", monkeypatch)
    with known_suites(tmp_path, monkeypatch, trio=TRIO.format(more="") + UNSCORED):
        assert invoke(["protocols", "show", "tests/trio"]) == 0
        assert "can't be scored here: it has no choices" in capsys.readouterr().out
        assert invoke(["run", "--model", "fake:oracle", "--protocol", "tests/trio", "--out", str(tmp_path / "o")]) == 0
    assert "essay is missing: it has no choices" in capsys.readouterr().out
