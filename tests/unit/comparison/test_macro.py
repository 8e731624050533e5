"""Two models are compared by the mean that a protocol's number is, wherever that is said."""

import json
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from choicewise import Run, evaluate
from choicewise.extensions.analyses.multiverse import multiverse
from choicewise.extensions.comparison.compare import comparisons
from choicewise.models.fake import HashModel
from choicewise.page.study import pairs, study_of
from choicewise.scoring.intervals import ALIKE
from choicewise.scoring.observed import Floats
from choicewise.scoring.significance import holm, sign_flip
from tests.helpers.commands import choicewise
from tests.helpers.mmlu_data import write_mmlu

PROTOCOLS = ["mmlu/original", "mmlu/cloze:sum", "mmlu/cloze:sum@aggregation=micro"]
SIZES = {"tides": 3, "trees": 37, "towns": 11}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """Guessers, drawn anew each time, on subjects of different sizes."""
    folder = tmp_path_factory.mktemp("runs")
    for subject, size in SIZES.items():
        data = write_mmlu(folder / "data", (subject,), size)
    made = []
    for seed in np.random.default_rng().integers(2**31, size=3).tolist():
        run = evaluate(
            model=HashModel(seed), data=data, protocols=PROTOCOLS, out=folder / f"{seed}"
        )
        made.append(run)
    return made


def values(run: Run) -> dict[str, float]:
    return {row.identity.protocol: row.value for row in run.rows()}


def weighed(run: Run, protocol: str) -> Floats:
    """The credits of a run times what an item weighs in the mean, one by one."""
    measured = run.measurements[protocol]
    if measured.protocol.aggregation == "micro":
        return measured.credit
    n = len(measured.credit)
    weights = [n / len(SIZES) / SIZES[subject] for subject in measured.subjects]
    return measured.credit * np.array(weights)


def sign(difference: float) -> int:
    if abs(difference) <= ALIKE:
        return 0
    return int(np.sign(difference))


@pytest.mark.costly("three runs are evaluated once for all tests of the file")
def test_every_verdict_has_the_sign_of_the_numbers(runs: list[Run]) -> None:
    shown = {(pair.left, pair.right): pair for pair in pairs(study_of(runs))}
    for places in combinations(range(len(runs)), 2):
        left, right = (runs[place] for place in places)
        differences = {name: values(left)[name] - values(right)[name] for name in PROTOCOLS}
        ps = {name: sign_flip(weighed(left, name), weighed(right, name)).p for name in PROTOCOLS}
        for found in comparisons(left, right, []):
            name = found.left.protocol
            assert found.difference.value == pytest.approx(differences[name], abs=ALIKE)
            assert found.difference.ci_low <= found.difference.value <= found.difference.ci_high
            assert found.test.p == ps[name]
            assert found.test.weighted == (name == "mmlu/cloze:sum")
            sides = (found.left, found.right)
            assert [side.paired for side in sides] == pytest.approx([side.value for side in sides])
        corrected = dict(zip(PROTOCOLS, holm([ps[name] for name in PROTOCOLS]), strict=True))
        pair = shown[places]
        assert (pair.tests, len(pair.contests)) == (len(PROTOCOLS), len(PROTOCOLS))
        for contest in pair.contests:
            assert contest.lead == sign(differences[contest.protocol])
            assert contest.test.p == ps[contest.protocol]
            assert contest.p_holm == corrected[contest.protocol]
    duels = multiverse(runs).duels
    for duel, (left, right) in zip(duels, combinations(runs, 2), strict=True):
        assert [contest.protocol for contest in duel.contests] == PROTOCOLS
        signs = []
        for contest in duel.contests:
            difference = values(left)[contest.protocol] - values(right)[contest.protocol]
            assert contest.difference == pytest.approx(difference, abs=ALIKE)
            signs.append(sign(difference))
        agreement = duel.agreement
        assert (agreement.left, agreement.right) == (signs.count(1), signs.count(-1))


@pytest.mark.costly("a command opens two runs")
def test_metrics_and_lines_have_the_sign_of_the_numbers(runs: list[Run], tmp_path: Path) -> None:
    folders = [run.folder for run in runs[:2]]
    asked = ["compare", *folders, "--metric", "brier,norm-prob"]
    for found in json.loads(choicewise(*asked, "--json").stdout):
        difference = found["left"]["value"] - found["right"]["value"]
        assert found["difference"]["value"] == pytest.approx(difference, abs=ALIKE)
        ends = found["difference"]["ci_low"], found["difference"]["ci_high"]
        assert ends[0] <= difference <= ends[1]
    table = choicewise("compare", *folders).stdout.splitlines()
    told = [line.split() for line in table if line.startswith("mmlu/")]
    assert len(told) == len(PROTOCOLS)
    for _, one, other, difference, *_ in told:
        assert float(difference) == pytest.approx(float(one) - float(other), abs=0.11)


@pytest.mark.costly("a command opens two runs")
def test_a_weighted_test_is_no_mcnemar(runs: list[Run]) -> None:
    folders = [run.folder for run in runs[:2]]
    for name in PROTOCOLS:
        told = choicewise("compare", *folders, "--protocol", name, "--ids").stdout
        assert ("McNemar" in told) == (name != "mmlu/cloze:sum")
