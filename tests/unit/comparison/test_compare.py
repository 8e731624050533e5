"""Same measurement, comparable or not, and what the difference is made of."""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats

from choicewise import evaluate, open_run
from choicewise.errors import UsageError
from choicewise.extensions.comparison.compare import VERDICTS, comparisons, credit_comparisons
from choicewise.extensions.comparison.comparison_report import comparison_lines, protocols_sentence
from choicewise.models.fake import HashModel
from choicewise.questions import Prompt, TokenScores
from choicewise.results.comparison import Agreeing, Comparison
from choicewise.results.evidence import TEXTS, Evidence, read_texts, text_digests
from choicewise.results.rows import text_id
from choicewise.results.run import Run
from choicewise.results.summary import summarize
from choicewise.scoring.portion import ObservedPortion
from choicewise.scoring.significance import SignFlip, detectable_share
from choicewise.util.jsonio import json_value
from tests.helpers.commands import choicewise
from tests.helpers.hash_models import Failing, MergingModel
from tests.helpers.messages import Gist
from tests.helpers.mmlu_data import set_block_size, write_mmlu

NAMES = ["mmlu/original", "mmlu/harness-v1", "mmlu/cloze:sum"]
SUBJECTS = tuple(f"subject{n}" for n in range(10))
Evaluate = Callable[..., Run]


class Shaken(HashModel):
    """The same hash model, were it not for a little noise."""

    def answer(self, questions: Sequence[Prompt]) -> Iterator[tuple[int, TokenScores]]:
        for index, seen in super().answer(questions):
            yield index, replace(seen, logprobs=seen.logprobs + np.float32(0.01 * (index % 3)))


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> Evaluate:
    """Evaluates a model into a folder of its own, on 30 items under ``NAMES`` if nothing else is said."""
    data = write_mmlu(tmp_path_factory.mktemp("data"), SUBJECTS, questions=3)

    def into(model: HashModel | str, **asked: Any) -> Run:
        asked = {"data": data, "protocols": NAMES, **asked}
        return evaluate(model=model, out=tmp_path_factory.mktemp("run") / "run", **asked)

    return into


@pytest.fixture(scope="module")
def run(evaluated: Evaluate) -> Run:
    return evaluated(HashModel())


@pytest.fixture(scope="module")
def weights(evaluated: Evaluate) -> Run:
    """The same with other weights."""
    return evaluated(HashModel(1))


def one(left: Run, right: Run | None, *protocols: str) -> Comparison:
    (found,) = comparisons(left, right, protocols)
    return found


def in_words(found: Comparison) -> str:
    return " ".join(" ".join(comparison_lines(found)).split())


@pytest.mark.costly("three runs are evaluated and compared")
def test_a_repetition_is_the_same_measurement_with_or_without_noise(
    run: Run, evaluated: Evaluate
) -> None:
    by_protocol = comparisons(run, evaluated(HashModel(), protocols=NAMES[1:]), [])
    assert len(by_protocol) == 2
    for found in by_protocol:
        assert (found.verdict, found.axes, found.parting) == ("same measurement", (), None)
        assert (found.difference.value, found.flips.predicted_differently, found.furthest) == (
            0,
            0,
            0,
        )
        words, content = in_words(found), json_value(found)
        assert "scores of all 30 items" in words
        assert "A - B = +0.00 points over 30" in words
        assert not any(word in words for word in ("interval", "McNemar", "probability"))
        assert content["difference"]["ci_high"] == -content["difference"]["ci_low"] > 0
    found = one(run, evaluated(Shaken(), protocols=NAMES[2:], limit=2), "mmlu/cloze:sum")
    assert found.verdict == "same measurement"
    assert (found.furthest, found.moved) == (pytest.approx(0.38, abs=0.01), 20)
    assert "deterministic: scores of 20 of 20" in in_words(found)


@pytest.mark.costly("half a second where the first of its file pays for imports")
def test_two_models_are_compared_item_by_item(run: Run, weights: Run, evaluated: Evaluate) -> None:
    found = one(run, weights, "mmlu/original")
    assert found.verdict == "comparable"
    assert {axis.axis for axis in found.axes} == {"model name", "model digest"}
    assert found.left.i == found.right.i
    left, right = (each.measurements["mmlu/original"] for each in (run, weights))
    a, b = left.decisions.credit, right.decisions.credit
    assert found.difference.value == pytest.approx(np.mean(a - b))
    only = int(((a == 1) & (b == 0)).sum()), int(((a == 0) & (b == 1)).sum())
    assert found.test.p == pytest.approx(scipy.stats.binomtest(only[0], sum(only)).pvalue)
    assert (found.flips.left_better, found.flips.right_better) == only
    differently = sum(
        x != y for x, y in zip(left.decisions.prediction, right.decisions.prediction, strict=True)
    )
    assert found.flips.predicted_differently == differently
    assert found.detectable == detectable_share(30, (sum(only) + 1) / 32)
    assert found.difference.se == pytest.approx(np.std(a - b, ddof=1) / math.sqrt(30))
    fewer = evaluated(HashModel(1), protocols=NAMES[:2], limit=1)
    assert [each.left.protocol for each in comparisons(run, fewer, [])] == NAMES[:2]


def test_means_that_differ_by_rounding_are_equal(run: Run, weights: Run) -> None:
    found = one(run, weights, "mmlu/original")
    rounded = replace(found, difference=replace(found.difference, value=-1e-16))
    words = in_words(rounded)
    assert "A - B = +0.00 points" in words
    assert "A and B score" in words


@pytest.mark.costly("half a second where the first of its file pays for imports")
def test_a_lead_on_every_item_is_no_certainty_and_the_test_is_called_what_it_is(
    evaluated: Evaluate,
) -> None:
    oracle, anti = (
        evaluated(f"fake:{name}", protocols=NAMES[:1], limit=1)
        for name in ("oracle", "anti-oracle")
    )
    found = one(oracle, anti)
    words = in_words(found)
    assert "= +100.00 points over 10 items, 95 % interval +56.66" in words
    assert "right 10, only B right 0" in words
    assert "78.75 points" in words
    only = "only A right 56, only B right 19"
    for flips, said in (
        (
            SignFlip(left_only=56, right_only=19, by_tie=215, p=0.09092, exact=True),
            f"exact: {only}, 215 differ ... p = 0.09092",
        ),
        (
            SignFlip(left_only=56, right_only=19, by_tie=0, p=0.01, exact=False),
            f"normal limit: {only}, p = 0.01",
        ),
    ):
        assert in_words(replace(found, test=flips)) == Gist(said)


def test_other_questions_are_other_inputs(run: Run, evaluated: Evaluate, tmp_path: Path) -> None:
    data = write_mmlu(tmp_path / "data", SUBJECTS, questions=4)
    path = data / "test" / "subject3_test.csv"
    path.write_text(path.read_text().replace("number 1", "number one"))
    found = one(run, evaluated(HashModel(), data=data, protocols=NAMES[2:]), "mmlu/cloze:sum")
    assert found.verdict == "other inputs"
    assert found.left.p == found.right.p
    assert found.parting is not None
    assert found.parting.item == "subject3/test/1"
    assert "number 1 of test?" in found.parting.left
    assert "number one of test?" in found.parting.right
    assert (found.flips.shared, found.flips.left_only, found.flips.right_only) == (30, 0, 10)
    assert "only in B: 10" in in_words(found)


def test_two_protocols_of_one_run_differ_by_their_axes(run: Run) -> None:
    found = one(run, None, "mmlu/original", "mmlu/harness-v1")
    assert found.verdict == "not comparable"
    assert {"header", "bos", "fit"} <= {axis.axis for axis in found.axes}
    assert not any(axis.axis.startswith("model") for axis in found.axes)
    assert found.parting is not None
    assert math.isnan(found.furthest)
    assert "what differs" in in_words(found)
    assert found.verdict in VERDICTS


def test_protocols_that_differ_only_in_the_score_send_the_same_texts(run: Run) -> None:
    recipe = run.protocols["mmlu/cloze:sum"]
    both = run.under({"a": recipe, "b": replace(recipe, score="char_mean")})
    left, right = both.measurements.values()
    read_texts(both.evidence, [left.protocol.prompt_digest])
    assert text_id(left.evidence, left.protocol) == text_id(right.evidence, right.protocol)
    found = one(both, None, "a", "b")
    assert [axis.axis for axis in found.axes] == ["score"]
    assert (found.verdict, found.parting) == ("not comparable", None)


def test_the_text_digest_moves_with_every_text(run: Run) -> None:
    prompt = run.protocols["mmlu/original"].prompt_digest
    whole, items = (
        ObservedPortion(replace(run.tables, items=run.evidence.items), prompt),
        run.evidence.items,
    )

    def digest() -> str:
        evidence = Evidence(run.folder, whole.items, items)
        evidence.columns[TEXTS] = text_digests(whole)
        return text_id(evidence, run.protocols["mmlu/original"])

    before = digest()
    read_texts(run.evidence, [prompt])
    measured = run.measurements["mmlu/original"]
    assert text_id(measured.evidence, measured.protocol) == before
    context = whole.requests["context"].to_pylist()
    position = whole.requests.schema.get_field_index("context")
    whole.requests = whole.requests.set_column(
        position, "context", [[context[0] + " ", *context[1:]]]
    )
    assert digest() != before


@pytest.mark.costly("half a second where the first of its file pays for imports")
def test_fewer_items_are_compared_on_what_both_have(run: Run, evaluated: Evaluate) -> None:
    few = evaluated(HashModel(), protocols=NAMES[:1], limit=2)
    compared = one(few, run, "mmlu/original")
    assert (compared.verdict, compared.parting, compared.moved) == ("same measurement", None, 0)
    assert compared.left.i != compared.right.i  # of all items of each side
    assert (compared.left.items, compared.right.items, compared.left.selection) == (
        20,
        30,
        "first 2 of each subject",
    )
    flips = compared.flips
    assert (flips.shared, flips.left_only, flips.right_only) == (20, 0, 10)
    assert compared.left.paired == compared.right.paired == compared.left.value
    assert compared.right.value == run.measurements["mmlu/original"].overall
    line = "A covers 20 items, B 30 (only in A: 0, only in B: 10); on the 20 in both: A "
    assert line + f"{100 * compared.left.paired:.1f} %" in in_words(compared)
    compared = one(evaluated(HashModel(1), protocols=NAMES[:1], limit=3), few, "mmlu/original")
    assert compared.verdict == "comparable"
    assert "A: 10, only in B: 0)" in in_words(compared)
    both = compared.left.paired - compared.right.paired
    assert both == pytest.approx(compared.difference.value)
    assert compared.difference.n == 20


def test_an_unfinished_run_is_compared_on_what_it_has(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_block_size(monkeypatch, 2)
    data = write_mmlu(tmp_path / "data", SUBJECTS, questions=3)
    with pytest.raises(KeyboardInterrupt):
        evaluate(model=Failing(most=125), data=data, protocols=NAMES, out=tmp_path / "part")
    compared = one(open_run(tmp_path / "part"), run, "mmlu/cloze:sum")
    assert compared.verdict == "same measurement"
    assert 0 < compared.left.items == compared.flips.shared < 30
    assert compared.left.selection == f"incomplete: {compared.left.items} of 30 items"
    assert f"(incomplete: {compared.left.items} of 30 items)" in in_words(compared)


def test_runs_about_other_items_are_not_compared(
    run: Run, evaluated: Evaluate, tmp_path: Path
) -> None:
    data = write_mmlu(tmp_path / "data", ("elsewhere",))
    compared = one(run, evaluated(HashModel(), data=data, protocols=NAMES[:1]), "mmlu/original")
    assert compared.verdict == "no shared items"
    assert math.isnan(compared.difference.value)
    words = in_words(compared)
    assert "A: 30, only in B: 6)" in words
    assert not any(
        word in words for word in ("compared on", "A - B", "the same t", "predicted differently")
    )
    assert json_value(compared)["left"]["paired"] is None


@pytest.mark.costly("four pairs of runs are compared")
def test_the_same_texts_in_other_tokens(run: Run, weights: Run, evaluated: Evaluate) -> None:
    compared = one(
        run, evaluated(MergingModel(b" a", b"th"), protocols=NAMES[:1], limit=1), "mmlu/original"
    )
    assert compared.agree == Agreeing(p=True, i=True, t=False, r=True)
    assert (
        compared.verdict == "comparable"
    )  # the engine's id alone does not make it the same measurement
    assert "same texts, different tokens" in in_words(compared)
    compared = one(run, weights, "mmlu/original")
    assert compared.agree == Agreeing(p=True, i=True, t=True, r=False)
    assert "same texts, same tokens" in in_words(compared)
    bos = run.under({"a": run.protocols["mmlu/cloze:sum"]})
    pmi = evaluated(HashModel(), protocols=["mmlu/cloze:pmi-answer"], limit=1)
    compared = one(bos, pmi, "a", "mmlu/cloze:pmi-answer")
    assert compared.agree == Agreeing(p=False, i=True, t=False, r=True)
    assert "different tokens what differs" in in_words(compared)
    other = one(run, weights, "mmlu/original", "mmlu/harness-v1")
    assert "protocols or tokenizers" in in_words(replace(other, agree=replace(other.agree, i=True)))


DEV, TEST, CHANGE = (
    "dev/subject3_dev.csv",
    "test/subject3_test.csv",
    ("first one of 1", "last one of 1"),
)
PLACES = [
    (
        DEV,
        ("number 2 of", "number two of"),
        "mmlu/original",
        "prompt",
        ("number 2 of", "number two of"),
    ),
    (TEST, CHANGE, "mmlu/original", "prompt", ("D. the first", "D. the last")),
    (TEST, CHANGE, "mmlu/cloze:sum", "continuations", ("the first", "the last")),
    (TEST, CHANGE, "options/yes-no", "choices as shown", ("the first", "the last")),
    (TEST, ("one of 1,B", "one of 1,A"), "mmlu/original", "right answers", ("1", "0")),
]


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place[3])
def test_the_first_text_that_differs(
    place: tuple[Any, ...], evaluated: Evaluate, tmp_path: Path
) -> None:
    file, change, name, part, shown = place
    runs = []
    for folder, new in zip(("one", "other"), change, strict=True):
        path = write_mmlu(tmp_path / folder, ("subject3", "tides")) / file
        assert change[0] in path.read_text()
        path.write_text(path.read_text().replace(change[0], new))
        runs.append(evaluated(HashModel(), data=tmp_path / folder, protocols=[name]))
    compared = comparisons(*runs, [])[0]
    parting, words = compared.parting, in_words(compared)
    assert (compared.verdict, compared.agree.i) == ("other inputs", False)
    assert parting is not None
    item, items = ("subject3/test/0", 6) if file == DEV else ("subject3/test/1", 1)
    assert (parting.part, parting.item, parting.items) == (part, item, items)
    assert shown[0] in parting.left
    assert shown[1] in parting.right
    if part == "prompt":  # the place is that of the first other character
        one, other = (_context(run, parting.item) for run in runs)
        assert one[: parting.place] == other[: parting.place]
        assert one[parting.place] != other[parting.place]
        assert one[parting.place - 20 :].startswith(parting.left)
    same = "same tokens; only"
    assert (same in words) == (part == "right answers")
    assert (
        f"texts differ in {parting.items} of 12 items, first in the {part} of item {parting.item}, after"
        in words
    )


def _context(run: Run, item: str) -> str:
    prompt = next(iter(run.protocols.values())).prompt_digest
    rows = run.tables.requests.to_pylist()
    (context,) = [row["context"] for row in rows if (row["item"], row["prompt"]) == (item, prompt)]
    return str(context)


def test_the_last_character_of_a_prompt_is_told(run: Run, evaluated: Evaluate) -> None:
    recipe = run.protocols["mmlu/original"]
    protocols = {
        "spaced": replace(
            recipe, question=recipe.question + " ", answer="{letter}", continuation="{letter}"
        )
    }
    parting = one(
        run, evaluated(HashModel(), protocols=protocols), "mmlu/original", "spaced"
    ).parting
    assert parting is not None
    assert (parting.part, parting.items, parting.left[20:], parting.right[20:]) == (
        "prompt",
        30,
        "",
        " ",
    )
    assert parting.place == len(_context(run.under({"a": recipe}), parting.item))


def test_what_to_name_is_told(run: Run, evaluated: Evaluate) -> None:
    other = evaluated(HashModel(), protocols=["mmlu/helm"], limit=1)
    for right, protocols, reason in [
        (None, [], "only one run"),
        (None, ["mmlu/original"], "name another run"),
        (run, ["a", "b", "c"], "3 protocols were named"),
        (None, ["mmlu/cloze", "mmlu/original"], "has no mmlu|stands for"),
        (other, [], "such as mmlu/original and mmlu/helm"),
    ]:
        with pytest.raises(UsageError, match=reason):
            comparisons(run, right, protocols)
    assert one(run, other, "mmlu/original", "mmlu/helm").verdict == "not comparable"


@pytest.mark.costly("two runs under every protocol of a family")
@pytest.mark.parametrize("protocols", [NAMES, ["mmlu"]])
def test_credits_alone_give_what_reading_every_observation_gives(
    protocols: list[str], evaluated: Evaluate
) -> None:
    left = evaluated(HashModel(), protocols=protocols)
    right = evaluated(HashModel(1), protocols=protocols)
    quick = credit_comparisons(summarize(left.folder), summarize(right.folder))
    assert quick is not None
    expected = comparisons(left, right, [])
    assert len(quick) == len(expected)
    for short, full in zip(quick, expected, strict=True):
        unread = replace(
            full,
            furthest=math.nan,
            moved=None,
            figures={},
            flips=replace(full.flips, near_ties=None),
        )
        assert json_value(short.as_json()) == json_value(unread.as_json())


def test_credits_are_not_enough_for_repetitions_and_other_items(
    run: Run, evaluated: Evaluate
) -> None:
    fewer = evaluated(HashModel(1), limit=1)
    for other in (run, fewer):
        assert credit_comparisons(summarize(run.folder), summarize(other.folder)) is None


def test_the_verdict_over_protocols_is_corrected_for_all_tests(run: Run) -> None:
    compared = one(run, run, "mmlu/original")
    better = replace(
        compared,
        verdict="comparable",
        difference=replace(compared.difference, value=-0.5, n=100),
        test=replace(compared.test, p=0.02),
    )
    assert protocols_sentence([better]) == Gist("B is better ... A under 1 of 1")
    assert "p ≤ 0.05" in protocols_sentence([better])
    assert protocols_sentence([better] * 3).startswith("No significant difference")
    assert "same measurement" in protocols_sentence([compared])


@pytest.mark.costly("half a second where the first of its file pays for imports")
def test_the_command_prints_both_forms(run: Run) -> None:
    arguments = (
        "compare",
        run.folder,
        "--protocol",
        "mmlu/original",
        "--protocol",
        "mmlu/cloze:sum",
    )
    assert len(choicewise(*arguments).stdout.splitlines()) == 6
    assert "McNemar's exact test" in choicewise(*arguments, "--ids").stdout
    (content,) = json.loads(choicewise(*arguments, "--json").stdout)
    assert content["verdict"] == "not comparable"
    assert {"p", "i", "r"} <= set(content["left"])
    assert content["furthest"] is None
