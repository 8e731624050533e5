"""The commands as a user types them: what lands on stdout, on stderr, and which exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.commands import choicewise
from tests.helpers.mmlu_data import write_mmlu

CODE = "from choicewise.cli import main; main()"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_mmlu(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def runs(data: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("runs")
    for model in ("hash", "oracle"):
        arguments = ["--model", f"fake:{model}", "--data", data, "--protocol", "mmlu", "--out", folder / model]
        assert choicewise("run", *arguments).code == 0
    return [folder / "hash", folder / "oracle"]


def test_run_prints_the_table_and_says_where_it_wrote(data: Path, tmp_path: Path) -> None:
    found = choicewise(
        "run", "--model", "fake:oracle", "--data", data, "--protocol", "mmlu/original", "--out", tmp_path / "run"
    )
    assert found.code == 0
    assert "mmlu/original  100.0   75.8 – 100.0        -  12  #P" in found.stdout
    assert "fake:oracle: 100 %, " in found.stderr
    assert f"wrote {tmp_path / 'run'}" in found.stderr


def test_a_run_needs_a_folder_it_can_write_before_it_loads_a_model(data: Path, tmp_path: Path) -> None:
    asked = ["run", "--model", "no/such", "--data", data, "--protocol", "mmlu/original"]
    missing = choicewise(*asked)
    assert (missing.code, missing.stdout) == (2, "")
    assert missing.stderr.startswith("error: --out is missing")
    (tmp_path / "file").touch()
    for out in (tmp_path / "file", tmp_path / "file" / "run"):
        found = choicewise(*asked, "--out", out)
        assert found.code == 6
        assert found.stderr == f"error: {tmp_path / 'file'} is a file; choose another folder\n"
    assert "holds other files" in choicewise(*asked, "--out", tmp_path).stderr
    assert choicewise(*asked, "--out", tmp_path / "run").code == 5
    assert not (tmp_path / "run").exists()


def test_a_choice_shown_twice_is_noted_where_it_is_asked(tmp_path: Path) -> None:
    data = write_mmlu(tmp_path / "data", subjects=("tides", "winds"))
    for split in ("dev", "test"):
        table = data / split / f"winds_{split}.csv"
        table.write_text("What?,same,same,a,b,A\n" + table.read_text())
    asked = ["run", "--model", "fake:oracle", "--data", data, "--protocol", "mmlu/original"]
    told = choicewise(*asked, "--out", tmp_path / "all").stderr
    assert "note: item winds/test/0 shows the same choice twice and is kept\n" in told
    assert "note:" not in choicewise(*asked, "--subject", "tides", "--out", tmp_path / "one").stderr


@pytest.mark.costly("whole commands")
def test_report_ranks_models_under_every_protocol(runs: list[Path]) -> None:
    rows = json.loads(choicewise("report", "--json", *runs).stdout)
    needed = {"model", "dataset", "subject", "protocol", "signature", "metric", "value", "n", "missing"}
    assert needed | {"ci_low", "ci_high", "rank"} <= set(rows[0])
    assert len(rows) == 2 * 49
    ranks = {(row["model"], row["rank"]) for row in rows if row["protocol"] == "mmlu/original"}
    assert ranks == {("fake:oracle", 1), ("fake:hash", 2)}
    table = choicewise("report", "--all", *runs).stdout
    assert "accuracy in % and rank" in table
    assert "100.0 (1)" in table


def test_report_by_subjects(runs: list[Path]) -> None:
    rows = json.loads(choicewise("report", "--json", "--by", "subjects", runs[1]).stdout)
    assert {row["subject"] for row in rows} == {"tides", "trees"}


def test_prompts_are_json_lines(data: Path) -> None:
    found = choicewise("prompts", "--data", data, "--protocol", "mmlu/original", "--subject", "tides", "--limit", "2")
    lines = [json.loads(line) for line in found.stdout.splitlines()]
    assert len(lines) == 2
    assert {"item", "subject", "context", "continuations", "gold"} <= set(lines[0])
    assert lines[0]["context"].startswith(
        "The following are multiple choice questions (with answers) about  tides.\n\n"
    )
    assert lines[0]["continuations"] == [" A", " B", " C", " D"]


def test_protocols_lists_shows_and_compares() -> None:
    assert "mmlu/harness-v0" in choicewise("protocols").stdout
    assert "mmlu/helm" in {entry["name"] for entry in json.loads(choicewise("protocols", "--json").stdout)}
    shown = choicewise("protocols", "show", "mmlu/original").stdout
    assert "4450500" in shown
    about = shown.split("\n\n")[1].splitlines()
    assert len(about) > 1
    assert max(map(len, about)) < 80
    assert "benchmark:mmlu|split:test" in shown
    axes = {
        row["axis"]
        for row in json.loads(choicewise("protocols", "diff", "mmlu/original", "mmlu/harness-v1", "--json").stdout)
    }
    assert {"header", "strip", "bos", "fit", "aggregation"} <= axes
    assert "same protocol" in choicewise("protocols", "diff", "mmlu/helm", "mmlu/helm").stdout


def test_score_prints_every_score_of_a_question() -> None:
    arguments = ["score", "--model", "fake:hash", "--context", "Two and two is", "--choice", " four", "--choice", " 五"]
    rows = json.loads(choicewise(*arguments, "--json").stdout)
    names = {"choice", "tokens", "bytes", "chars", "sum", "token_mean", "byte_mean", "char_mean", "pmi"}
    assert names <= set(rows[0])
    assert [(row["tokens"], row["bytes"], row["chars"]) for row in rows] == [(5, 5, 5), (4, 4, 2)]
    assert rows[1]["char_mean"] == pytest.approx(rows[1]["sum"] / 2)
    assert "token_mean" in choicewise(*arguments).stdout


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["report", "nowhere"], 6, "not a run folder"),
        (["prompts", "--data", "nowhere", "--protocol", "mmlu"], 3, "does not exist"),
        (["protocols", "show", "mmlu/orginal"], 4, "did you mean mmlu/original"),
        (["score", "--model", "nowhere", "--context", "a", "--choice", "b"], 5, "nowhere"),
        (["score", "--model", "fake:hash", "--context", "a", "--choice", ""], 5, "can't be scored"),
        (["run", "--modle", "x"], 2, "error: No such option: --modle. Did you mean --model?\n"),
        (["run", "--qqq", "x"], 2, "error: No such option: --qqq\n"),
    ],
)
def test_errors_are_one_line_and_have_their_code(arguments: list[str], code: int, message: str) -> None:
    found = choicewise(*arguments)
    assert found.code == code
    assert message in found.stderr
    assert "Traceback" not in found.stderr
    assert found.stdout == ""


@pytest.mark.costly("whole commands")
def test_a_reader_that_leaves_early_is_no_error(data: Path) -> None:
    arguments = [sys.executable, "-c", CODE, "prompts", "--data", str(data), "--protocol", "mmlu"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""
        process.wait()


def test_json_has_no_word_for_nan() -> None:
    asked = ["score", "--model", "fake:hash", "--context", "The cat", "--choice", " sat", "--boundary", "bytes"]

    def refused(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    (row,) = json.loads(choicewise(*asked, "--json").stdout, parse_constant=refused)
    assert row["greedy"] is None


def test_every_bad_row_has_a_line_of_its_own(tmp_path: Path) -> None:
    data = write_mmlu(tmp_path / "data")
    with (data / "test" / "tides_test.csv").open("a") as file:
        file.write("Three?,one,two,three,C\nFive?,1st,2nd,3rd,4th,5th,E\n")
    found = choicewise("run", "--model", "fake:hash", "--data", data, "--protocol", "mmlu", "--out", tmp_path / "run")
    assert found.code == 3
    heading, *rows = found.stderr.splitlines()
    assert heading.startswith("error: 2 rows can't be used")
    assert ["5 columns" in rows[0], "7 columns" in rows[1], len(rows)] == [True, True, 2]


UNLOADABLE = """
import sys

class Full:
    def find_spec(self, name, path, target=None):
        if name == "scipy.special":
            raise ImportError("libopenblas.so: failed to map segment from shared object", name="scipy.special")

sys.meta_path.insert(0, Full())
from choicewise.cli import main
main()
"""
"""Finds no memory for a compiled part of SciPy, as under ``ulimit -v``."""


@pytest.mark.costly("whole commands")
def test_a_package_that_can_not_be_loaded_is_no_traceback(tmp_path: Path) -> None:
    words = ["run", "--model", "fake:hash", "--data", "bundled:merrowick", "--protocol", "mmlu/cloze", "--limit", "1"]
    line = [sys.executable, "-c", UNLOADABLE, *words, "--out", str(tmp_path / "run")]
    ended = subprocess.run(line, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "error: scipy.special can't be loaded: libopenblas.so: failed to map segment" in ended.stderr
    assert "give the process more memory" in ended.stderr
    assert "Traceback" not in ended.stderr
