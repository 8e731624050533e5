"""Columns of the evidence: read once, under one key wherever they are asked for."""

from functools import partial

import numpy as np
import pytest

from choicewise import evaluate
from choicewise.models.fake import HashModel
from choicewise.results.evidence import MASS, Column, lacks_column
from choicewise.results.run import Run
from choicewise.scoring.portion import ObservedPortion
from tests.helpers.mmlu_data import write_mmlu

LETTER, TEXT = "mmlu/original", "mmlu/helm"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("run")
    return evaluate(
        model=HashModel(),
        data=write_mmlu(folder / "data"),
        protocols=[LETTER, TEXT],
        out=folder / "run",
    )


def test_columns_with_the_same_name_and_axes_are_read_once(run: Run) -> None:
    prompt = run.protocols[LETTER].prompt_digest
    read = []

    def count(number: int, portion: ObservedPortion) -> np.ndarray:
        read.append(number)
        return np.arange(len(portion.items))

    one, same, other = (
        Column("count", (axis,), compute=partial(count, axis)) for axis in (1, 1, 2)
    )
    gathered = run.evidence.gather({prompt: [one, same, other]})[prompt]
    assert run.evidence.gather({prompt: [same]})[prompt] is gathered
    assert sorted(set(read)) == [1, 2]
    assert read.count(1) == read.count(2)
    assert gathered.column(same) is gathered.column(one)


def test_a_measurement_has_the_columns_of_its_score_alone(run: Run) -> None:
    measured = run.measurements[LETTER]
    generated = run.measurements[TEXT]
    assert MASS in measured.evidence
    assert lacks_column(measured.protocol) in measured.evidence
    assert MASS not in generated.evidence
