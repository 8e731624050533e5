"""Same measurement, comparable or not, and what the difference is made of."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
from typer.testing import CliRunner

from choicewise import evaluate
from choicewise.cli import app
from choicewise.errors import UsageError
from choicewise.models.fake import HashModel
from choicewise.questions import Question, TokenScores
from choicewise.report.comparison_text import comparison_lines
from choicewise.results.comparison import VERDICTS, Comparison, comparisons
from choicewise.results.evidence import Evidence
from choicewise.results.identity import text_id
from choicewise.results.json_value import json_value
from choicewise.results.observed_portion import ObservedPortion
from choicewise.results.run import Run
from choicewise.results.sent_texts import TEXTS, read_texts, text_digests
from choicewise.scoring.statistics.sign_flip import SignFlip
from tests.worlds import write_mmlu

NAMES = ["mmlu/original", "mmlu/harness-v1", "mmlu/cloze:sum"]


class Shaken(HashModel):
    """The same hash model, were it not for a little noise."""

    def answer(self, questions: Sequence[Question]) -> Iterator[tuple[int, TokenScores]]:
        for index, seen in super().answer(questions):
            yield index, replace(seen, logprobs=seen.logprobs + np.float32(0.01 * (index % 3)))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_mmlu(tmp_path_factory.mktemp("data"), tuple(f"subject{n}" for n in range(12)), questions=4)


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return evaluate(model=HashModel(), data=data, protocols=NAMES, out=tmp_path_factory.mktemp("run") / "one")


def one(left: Run, right: Run | None, *protocols: str) -> Comparison:
    (found,) = comparisons(left, right, protocols)
    return found


def told(found: Comparison) -> str:
    return " ".join(" ".join(comparison_lines(found)).split())


def test_a_repetition_is_the_same_measurement(run: Run, data: Path, tmp_path: Path) -> None:
    again = evaluate(model=HashModel(), data=data, protocols=NAMES, out=tmp_path / "again")
    for found in comparisons(run, again, []):
        assert (found.verdict, found.axes, found.parting) == ("same measurement", (), None)
        assert (found.difference.value, found.flips.predicted_differently, found.furthest) == (0, 0, 0)
        assert "different results" not in told(found)
        assert "A - B = +0.00 points over 48 items no item differs in its credit, so nothing can be said" in told(found)
        assert not any(word in told(found) for word in ("interval", "McNemar", "probability"))
        content = json_value(found)
        assert content["difference"]["ci_low"] is content["difference"]["ci_high"] is content["detectable"] is None
    assert len(comparisons(run, again, [])) == 3


def test_noise_between_repetitions_is_reported(run: Run, data: Path, tmp_path: Path) -> None:
    again = evaluate(model=Shaken(), data=data, protocols=NAMES, out=tmp_path / "again")
    found = one(run, again, "mmlu/cloze:sum")
    assert found.verdict == "same measurement"
    assert found.furthest > 0
    assert "scores differ by up to" in told(found)


def test_two_models_are_compared_item_by_item(run: Run, data: Path, tmp_path: Path) -> None:
    other = evaluate(model=HashModel(1), data=data, protocols=NAMES[:2], out=tmp_path / "other")
    found = one(run, other, "mmlu/original")
    assert found.verdict == "comparable"
    assert {axis.axis for axis in found.axes} == {"model name", "model digest"}
    assert found.left.i == found.right.i
    left, right = (each.measurements["mmlu/original"] for each in (run, other))
    a, b = left.decisions.credit, right.decisions.credit
    assert found.difference.value == pytest.approx(np.mean(a - b))
    only = int(((a == 1) & (b == 0)).sum()), int(((a == 0) & (b == 1)).sum())
    assert found.test.p == pytest.approx(scipy.stats.binomtest(only[0], sum(only)).pvalue)
    assert (found.flips.left_better, found.flips.right_better) == only
    differently = sum(x != y for x, y in zip(left.decisions.prediction, right.decisions.prediction, strict=True))
    assert found.flips.predicted_differently == differently
    assert found.detectable == pytest.approx((1.959964 + 0.841621) * np.std(a - b, ddof=1) / math.sqrt(48), rel=1e-5)
    by_subject = (a - b - np.mean(a - b)).reshape(12, 4)
    assert found.clusters == 12
    assert found.difference.se == pytest.approx(math.sqrt((by_subject.sum(axis=1) ** 2).sum() / 48**2 * 12 / 11))
    half = scipy.stats.t.ppf(0.975, 11) * found.difference.se
    assert found.difference.ci_high - found.difference.value == pytest.approx(half)
    assert [each.left.protocol for each in comparisons(run, other, [])] == NAMES[:2]


def test_a_lead_on_every_item_is_no_certainty_either(data: Path, tmp_path: Path) -> None:
    oracle, anti = (
        evaluate(model=f"fake:{name}", data=data, protocols=NAMES[:1], out=tmp_path / name)
        for name in ("oracle", "anti-oracle")
    )
    words = told(one(oracle, anti))
    assert "A - B = +100.00 points over 48 items McNemar's exact test: only A right 48, only B right 0" in words
    assert "all items differ by the same, so nothing can be said" in words


def test_the_test_is_called_what_it_is(run: Run) -> None:
    found = one(run, None, "mmlu/original", "mmlu/harness-v1")
    tied = replace(found, test=SignFlip(56, 19, 215, 0.09092, exact=True))
    expected = (
        "paired sign-flip test of the credits, exact: only A right 56, only B right 19, 215 differ only by a tie, "
        "p = 0.09092"
    )
    assert expected in told(tied)
    limit = replace(found, test=SignFlip(56, 19, 0, 0.01, exact=False))
    assert "sign-flip test of the credits, in the normal limit: only A right 56, only B right 19, p = 0.01" in told(
        limit
    )


def test_other_questions_are_other_inputs(run: Run, tmp_path: Path) -> None:
    data = write_mmlu(tmp_path / "data", tuple(f"subject{n}" for n in range(12)), questions=5)
    path = data / "test" / "subject3_test.csv"
    path.write_text(path.read_text().replace("number 1", "number one"))
    other = evaluate(model=HashModel(), data=data, protocols=NAMES, out=tmp_path / "other")
    found = one(run, other, "mmlu/cloze:sum")
    assert found.verdict == "other inputs"
    assert found.left.p == found.right.p
    assert found.parting is not None
    assert found.parting.item == "subject3/test/1"
    assert "number 1 of test?" in found.parting.left
    assert "number one of test?" in found.parting.right
    assert (found.flips.shared, found.flips.left_only, found.flips.right_only) == (48, 0, 12)
    assert "12 only in B" in told(found)


def test_two_protocols_of_one_run_differ_by_their_axes(run: Run) -> None:
    found = one(run, None, "mmlu/original", "mmlu/harness-v1")
    assert found.verdict == "not comparable"
    assert {"header", "bos", "fit"} <= {axis.axis for axis in found.axes}
    assert not any(axis.axis.startswith("model") for axis in found.axes)
    assert found.parting is not None
    assert math.isnan(found.furthest)
    assert "what differs" in told(found)
    assert found.verdict in VERDICTS


def test_protocols_that_differ_only_in_the_score_send_the_same_texts(run: Run) -> None:
    recipe = run.protocols["mmlu/cloze:sum"]
    both = run.under({"a": recipe, "b": replace(recipe, score="char_mean")})
    left, right = both.measurements.values()
    read_texts(both.evidence, [left.protocol.prompt_digest])
    assert text_id(left.evidence) == text_id(right.evidence)
    found = one(both, None, "a", "b")
    assert [axis.axis for axis in found.axes] == ["score"]
    assert (found.verdict, found.parting) == ("not comparable", None)


def test_the_text_digest_moves_with_every_text(run: Run) -> None:
    prompt = run.protocols["mmlu/original"].prompt_digest
    whole, items = ObservedPortion(replace(run.tables, items=run.evidence.items), prompt), run.evidence.items

    def digest() -> str:
        evidence = Evidence(run.folder, whole.items, items)
        evidence.columns[TEXTS] = text_digests(whole)
        return text_id(evidence)

    before = digest()
    read_texts(run.evidence, [prompt])
    assert text_id(run.measurements["mmlu/original"].evidence) == before
    context = whole.requests["context"].to_pylist()
    position = whole.requests.schema.get_field_index("context")
    whole.requests = whole.requests.set_column(position, "context", [[context[0] + " ", *context[1:]]])
    assert digest() != before


@pytest.mark.parametrize(
    ("protocols", "two", "reason"),
    [
        ([], False, "name another run, or two of its protocols"),
        (["mmlu/original"], False, "name another run"),
        (["a", "b", "c"], True, "3 protocols were named"),
        (["mmlu/cloze", "mmlu/original"], False, r"not asked what|stands for"),
    ],
)
def test_wrong_use_is_told(run: Run, protocols: list[str], two: bool, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        comparisons(run, run if two else None, protocols)


def test_runs_that_share_no_protocol_say_what_to_name(run: Run, data: Path, tmp_path: Path) -> None:
    other = evaluate(model=HashModel(), data=data, protocols=["mmlu/helm"], out=tmp_path / "other")
    with pytest.raises(UsageError, match="such as mmlu/original and mmlu/helm"):
        comparisons(run, other, [])
    assert one(run, other, "mmlu/original", "mmlu/helm").verdict == "not comparable"


def test_the_command_prints_both_forms(run: Run) -> None:
    arguments = ["compare", str(run.folder), "--protocol", "mmlu/original", "--protocol", "mmlu/cloze:sum"]
    found = CliRunner().invoke(app, arguments)
    assert "McNemar's exact test" in found.stdout
    (content,) = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    assert content["verdict"] == "not comparable"
    assert {"p", "i", "r"} <= set(content["left"])
    assert content["furthest"] is None
