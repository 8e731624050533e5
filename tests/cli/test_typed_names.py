"""Names of protocols as they were typed for a run find its variants in every command that reads it."""

import json
from pathlib import Path

import pytest

from choicewise.errors import UsageError
from choicewise.protocols.catalogue import variant_of
from tests.helpers.commands import choicewise

QUIZ = """question,A,B,C,D,answer
Which planet is red?,Mars,Venus,Earth,Saturn,A
What is 2+2?,3,4,5,6,B
Capital of France?,Rome,Madrid,Paris,Berlin,C
"""
TYPED = "mmlu/original"
VARIANT = "mmlu/original@shots=0"
OTHER = "mmlu/original@shots=0,choices=any"


def evaluate(folder: Path, name: str, *protocols: str, model: str = "fake:hash") -> Path:
    """Evaluate protocols on three questions without examples, in ``folder/name``."""
    data = folder / "quiz.csv"
    data.write_text(QUIZ)
    words: list[object] = ["run", "--model", model, "--data", data, "--out", folder / name]
    for protocol in protocols:
        words += ["--protocol", protocol]
    choicewise(*words, code=0)
    return folder / name


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    evaluate(folder, "a", TYPED, "mmlu/cloze:sum")
    evaluate(folder, "b", TYPED, model="fake:oracle")
    evaluate(folder, "both", VARIANT, OTHER)
    evaluate(folder, "other", OTHER)
    return folder


@pytest.mark.parametrize("command", ["report", "compare", "explain", "export", "ladder", "plot"])
def test_every_command_takes_the_only_variant_and_notes_it(
    folders: Path, command: str, tmp_path: Path
) -> None:
    run = folders / "a"
    chosen = ["--protocol", TYPED]
    words = {
        "report": [run, *chosen, "--json"],
        "compare": [run, folders / "b", *chosen, "--json"],
        "explain": [run, "--item", "test/0", *chosen, "--json"],
        "export": [run, *chosen, "--format", "csv", "--out", tmp_path / "numbers.csv"],
        "ladder": [TYPED, "mmlu/cloze:sum", run, "--json"],
        "plot": [run, "strip", *chosen, "--out", tmp_path / "chart.json"],
    }
    result = choicewise(command, *words[command], code=0)
    assert f"using {VARIANT} for {TYPED}" in result.stderr
    if "--json" in words[command]:
        assert VARIANT in result.stdout


def test_a_protocol_in_place_of_a_folder_is_answered_by_its_option(folders: Path) -> None:
    result = choicewise("report", folders / "a", TYPED, code=2)
    assert f"--protocol {TYPED}" in result.stderr


def test_an_exact_name_is_taken_without_a_note(folders: Path) -> None:
    result = choicewise("report", folders / "both", "--protocol", VARIANT, "--json", code=0)
    assert [row["protocol"] for row in json.loads(result.stdout)] == [VARIANT]
    assert "using" not in result.stderr


def test_a_variant_that_changes_what_was_typed_is_not_taken(folders: Path) -> None:
    refused = choicewise("report", folders / "a", "--protocol", "mmlu/original@shots=5", code=2)
    assert "has no mmlu/original;" in refused.stderr
    compared = choicewise("report", folders / "a", "--protocol", "mmlu/original@ties=first", code=0)
    assert f"using {VARIANT} for {TYPED}" in compared.stderr


def test_several_variants_are_listed_and_refused(folders: Path) -> None:
    result = choicewise("report", folders / "both", "--protocol", TYPED, code=2)
    lines = [line.strip() for line in result.stderr.splitlines()]
    assert lines[-2:] == [VARIANT, OTHER]


def test_runs_with_other_variants_are_not_comparable(folders: Path) -> None:
    runs = (folders / "b", folders / "other")
    refused = choicewise("report", *runs, "--protocol", TYPED, code=2)
    assert "not comparable" in refused.stderr
    assert refused.stderr.splitlines()[-1].split() == ["choices:", "4", "and", "-"]
    compared = choicewise("compare", *runs, "--protocol", TYPED, "--json", code=0)
    (comparison,) = json.loads(compared.stdout)
    assert comparison["verdict"] == "not comparable"
    assert comparison["axes"][0]["axis"] == "choices"


@pytest.mark.parametrize(
    ("typed", "variant"),
    [
        ("a/b", "a/b@shots=0"),
        ("a/b@shots=0", "a/b@shots=0"),
        ("a/b@shots=5", None),
        ("a/b+turns", None),
        ("a/c", "a/c+turns@shots=0"),
        ("a/c+turns", "a/c+turns@shots=0"),
        ("a/d:sum", "a/d:sum@shots=0"),
        ("a/d", None),
    ],
)
def test_a_variant_has_the_typed_axes_and_the_typed_chat(typed: str, variant: str | None) -> None:
    names = ["a/b@shots=0", "a/b@shots=0..a/d@shots=0:fit", "a/c+turns@shots=0", "a/d:sum@shots=0"]
    assert variant_of(typed, names, "run") == variant
    with pytest.raises(UsageError, match="2 variants"):
        variant_of("a/b", ["a/b@shots=0", "a/b@shots=1"], "run")
