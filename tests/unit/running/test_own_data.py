"""Several data and several benchmarks: each protocol is asked on the data of its own benchmark; what failed leaves."""

import json
from pathlib import Path

import pytest

from choicewise.data.benchmarks import benchmark_of
from choicewise.errors import UsageError
from choicewise.protocols.catalogue import resolve
from choicewise.running.examples import asked_selectors, checked_shots
from choicewise.running.job import job_of, sources_of
from choicewise.store.folder import read_sweep
from tests.helpers.commands import choicewise
from tests.helpers.mmlu_data import write_mmlu


def write_piqa(file: Path) -> Path:
    rows = [{"goal": f"How {n}?", "sol1": "so", "sol2": "not so", "label": n % 2} for n in range(3)]
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return file


def asked(*data: Path | str, protocols: tuple[str, ...] = ("mmlu/original", "piqa")) -> dict[str, tuple[str, ...]]:
    job = job_of({"models": ["fake:hash"], "protocols": protocols, "data": [str(each) for each in data]})
    return {source.name: source.selectors for source in sources_of(job, fitting=True)}


@pytest.mark.parametrize("name", ["piqa.jsonl", "PIQA.validation.jsonl", "piqa_val.jsonl", "rows.jsonl"])
def test_a_file_is_known_by_its_name_or_its_columns(tmp_path: Path, name: str) -> None:
    file, quiz = write_piqa(tmp_path / name), write_mmlu(tmp_path / "quiz", questions=1)
    assert benchmark_of(str(file), ["piqa", "mmlu"]) == "piqa"
    assert asked(quiz, file) == {str(quiz): ("mmlu/original",), str(file): ("piqa",)}


def test_the_longest_name_is_meant(tmp_path: Path) -> None:
    (tmp_path / "mmlu-pro.jsonl").write_text("{}\n")
    assert benchmark_of(str(tmp_path / "mmlu-pro.jsonl"), ["mmlu"]) == "mmlu-pro"
    assert benchmark_of("allenai/ai2_arc:ARC-Easy", []) == "arc-easy"
    assert benchmark_of("ybisk/piqa", []) == "piqa"
    assert benchmark_of("somebody/else", ["piqa"]) is None


def test_every_protocol_is_asked_somewhere_and_only_its_own_part_of_a_selector(tmp_path: Path) -> None:
    """Against a plain reference: a protocol is asked on the data of its benchmark, else on those of none."""
    file, quiz = write_piqa(tmp_path / "piqa.jsonl"), write_mmlu(tmp_path / "quiz", questions=1)
    selectors = ("mmlu/original", "piqa/harness:acc", "arc-easy/harness:acc", "options/cloze:sum")
    job = job_of({"models": ["fake:hash"], "protocols": selectors, "data": [str(quiz), str(file)]})
    for source in sources_of(job, fitting=True):
        for name, recipe in resolve(*selectors).items():
            own = recipe.benchmark == "piqa"
            here = recipe.benchmark == "any" or own == (source.name == str(file))
            assert (name in source.recipes) == here
        assert set(resolve(*source.selectors)) == set(source.recipes)


def test_one_benchmark_or_unknown_data_are_asked_as_before(tmp_path: Path) -> None:
    one, two = (write_mmlu(tmp_path / name, questions=1) for name in ("one", "two"))
    both = ("mmlu/original", "piqa")
    assert asked(one, two) == {str(one): both, str(two): both}
    file = write_piqa(tmp_path / "piqa.jsonl")
    with pytest.raises(UsageError, match="is asked by none"):
        asked(one, file, protocols=("piqa",))


def test_what_failed_in_an_earlier_plan_leaves_with_it(tmp_path: Path) -> None:
    data, out = write_mmlu(tmp_path / "data", questions=1), tmp_path / "out"
    line = ("sweep", "--protocol", "mmlu/original@shots=0", "--data", data, "--out", out, "--model")
    choicewise(*line, "fake:hash", "--model", tmp_path / "no-model")
    assert {cell.model for cell in read_sweep(out).cells if cell.failure} == {str(tmp_path / "no-model")}
    told = choicewise(*line, "fake:hash", code=0)
    assert [cell.model for cell in read_sweep(out).cells] == ["fake:hash"]
    assert "no-model" not in told.stdout + told.stderr
    assert "no-model" not in choicewise("report", out, code=0).stdout


def test_a_sweep_without_a_run_says_what_to_do(tmp_path: Path) -> None:
    data, out = write_mmlu(tmp_path / "data", questions=1), tmp_path / "out"
    line = ("sweep", "--protocol", "mmlu/original@shots=0", "--data", data, "--out", out, "--model")
    choicewise(*line, tmp_path / "no-model")
    told = choicewise("report", out).stderr
    assert "no run is there" in told
    assert "each of 1 run failed; mend what stands below" in told
    assert "choicewise sweep" in told
    assert "no-model" in told


def test_shots_are_a_number_or_where_to_stop() -> None:
    assert [checked_shots(shots) for shots in (None, 0, 5, "error")] == [None, 0, 5, "error"]
    for shots in (True, -1, 1.5, "none"):
        with pytest.raises(ValueError, match="a whole number"):
            checked_shots(shots)
    assert asked_selectors(["mmlu/original"], "error") == ("mmlu/original",)
    (protocol,) = resolve(*asked_selectors(["mmlu/original"], 2)).values()
    assert protocol.shots == 2
