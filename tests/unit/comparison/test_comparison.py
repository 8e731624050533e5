"""What a comparison says: its verdict in one sentence, the axes that differ, and what others published."""

import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise import evaluate, open_run
from choicewise.bundled import PUBLISHED_MMLU
from choicewise.errors import ChoicewiseError, StoreError, UsageError
from choicewise.extensions.comparison.comparison_report import comparison_sentence, published_lines
from choicewise.extensions.comparison.published import PublishedComparison, published_comparisons
from choicewise.extensions.demo.tables import published_table
from choicewise.models.fake import HashModel
from choicewise.protocols.catalogue import resolve
from choicewise.protocols.protocol import axis_differences
from choicewise.report.axes import WIDTH, axes_text, change_text
from choicewise.results.comparison import Comparison
from choicewise.results.outcomes import Axis
from choicewise.results.run import Run
from choicewise.results.summary import summarize
from choicewise.util.jsonio import json_value
from choicewise.util.text import error, points
from tests.helpers.commands import choicewise
from tests.helpers.messages import Gist
from tests.helpers.mmlu_data import write_mmlu
from tests.helpers.printed import printed
from tests.helpers.rows import altered


def compared(verdict: str, value: float, p: float = 1.0, n: int = 322, **same: bool) -> Comparison:
    """``same``: whether the models (``r``) and the tokens (``t``) are."""
    parts: dict[str, Any] = {
        "difference": SimpleNamespace(value=value, n=n),
        "test": SimpleNamespace(p=p),
    }
    agree = SimpleNamespace(**{"r": False, "t": False, **same})
    left = SimpleNamespace(share=True, metric="acc")
    return cast(
        Comparison, SimpleNamespace(verdict=verdict, left=left, agree=agree, open=False, **parts)
    )


def test_a_difference_that_cut_answers_could_turn_round_is_not_shown() -> None:
    parts = vars(compared("comparable", 0.1, 0.001, 79))
    told = comparison_sentence(
        cast(
            Comparison,
            SimpleNamespace(**{**parts, "open": True}, cut=(20, 0), low=-0.05, high=0.15),
        )
    )
    assert told == Gist(
        "Undecided: A ... 10.0 points ... B on 79 items ... (20 of A). ... between -5.0 and +15.0"
    )


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (("comparable", 0.1, 0.0041), "A is better ... B by 10.0 points on 322 items (p = .004)."),
        (
            ("comparable", -0.1, 0.00001),
            "B is better ... A by 10.0 points on 322 items (p < .001).",
        ),
        (("comparable", -0.01, 0.4709), "B scores 1.0 points ... A on 322 items (p = .471)."),
        (
            ("comparable", 0.1),
            "can't tell A and B ... A ... 10.0 points",
        ),
        (
            ("comparable", 1.0, 1.0, 1),
            "1 item is too few ... A ... 100.0 points ... B on 1 item.",
        ),
        (("comparable", 1.0, 0.001, 19), "19 items are too few ... A and B apart"),
        (("comparable", 0.0), "A and B score ... 322 items."),
        (("comparable", -1e-16), "A and B score ... 322 items."),
        (
            ("same measurement", 0.0),
            "A and B ... the same ... : A and B score ... 322 items.",
        ),
        (
            ("not comparable", 0.1, 0.001),
            "protocols differ ... can't be compared",
        ),
        (
            ("other inputs", -0.1, 0.001),
            "prompts differ ... can't be compared",
        ),
        (
            ("comparable", float("nan")),
            "A and B can't ... no item",
        ),
    ],
)
def test_the_verdict_in_a_sentence(found: tuple[Any, ...], told: str) -> None:
    assert comparison_sentence(compared(*found)) == Gist(told)


def test_one_model_is_not_two() -> None:
    told = comparison_sentence(compared("not comparable", 0.1, r=True))
    assert told == Gist("A ... 10.0 points ... B on 322 items: same model, ... protocols.")
    for same, differ in (({"r": True}, "prompts"), ({"r": True, "t": True}, "right answers")):
        told = comparison_sentence(compared("other inputs", 0.0, **same))
        assert told == Gist(f"A and B ... 322 items: same model, different {differ}.")


@pytest.mark.costly("runs are evaluated and compared")
def test_means_over_items_are_told_where_the_values_are_others(tmp_path: Path) -> None:
    write_mmlu(tmp_path / "data", ("tides",), 7)
    data, protocols = (
        write_mmlu(tmp_path / "data", ("trees",), 40),
        ["mmlu/cloze:sum", "mmlu/original"],
    )
    runs = [tmp_path / name for name in "ab"]
    for seed, run in enumerate(runs):
        evaluate(model=HashModel(seed), data=data, protocols=protocols, out=run)
    (side,) = json.loads(
        choicewise("compare", *runs, "--protocol", "mmlu/cloze:sum", "--json").stdout
    )
    for name in ("left", "right"):
        assert side[name]["paired"] == pytest.approx(side[name]["value"])
    assert "item by item" not in choicewise("compare", *runs, "--protocol", "mmlu/cloze:sum").stdout
    assert "item by item" not in choicewise("compare", *runs, "--protocol", "mmlu/original").stdout
    one = choicewise(
        "compare", runs[0], *(word for name in protocols for word in ("--protocol", name))
    ).stdout
    told = " ".join(one.split())
    assert "same model, different protocols" in told
    credit = open_run(runs[0]).measurements["mmlu/cloze:sum"].credit
    assert told == Gist(f"item by item ... 47 items ... : A {100 * credit.mean():.1f} %")


TEXTS = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=200)


@given(TEXTS, TEXTS)
def test_a_change_is_short_and_its_values_differ_where_they_do(left: str, right: str) -> None:
    shown = change_text(Axis("header", left, right))
    assert len(shown) <= WIDTH + len('""""')
    assert shown.startswith("header ")
    if left != right:
        one, other = shown.removeprefix("header ").split(" → ", 1)
        assert one != other


def test_short_values_are_shown_whole_and_edges_are_seen() -> None:
    long = "The following are multiple choice questions about "
    for axis, left, right, told in (
        ("ties", "first", "split", "ties first → split"),
        ("answer", " {letter}", "", 'answer " {letter}" → ""'),
        (
            "header",
            f"{long}{{subject}}.",
            f"{long} {{subject}}.",
            "header …out {subject}. → …out  {subject}.",
        ),
    ):
        assert change_text(Axis(axis, left, right)) == told
    assert axes_text([Axis("header", "\x1b[2J", "\u202e")]) == "header \\x1b[2J → \\u202e"
    axes = [Axis(name, "1", "2") for name in ("shots", "fit", "limit", "bos", "seed")]
    assert axes_text(axes[:4]) == "shots, fit, limit, bos"
    assert axes_text(axes) == "shots, fit, limit, 2 more"


def test_points_have_a_sign_and_no_minus_before_nothing() -> None:
    assert (points(0.634), error(0.0298)) == ("+63.4", "± 3.0")
    assert points(-0.0001) == points(0.0) == "0.0"
    assert (points(-0.25), points(-0.25, "-")) == ("−25.0", "-25.0")
    assert points(float("nan")) == "-"


def test_the_published_models_change_ranks_between_implementations() -> None:
    lines = printed(published_table(), width=200)
    (falcon,) = [line for line in lines if "falcon-7b" in line]
    assert falcon.split()[1:] == ["27.8", "(6)", "35.0", "(5)", "25.4", "(8)"]
    assert sum("(1)" in line for line in lines) == 2  # llama-65b leads twice, falcon-40b once


NAMES = ["mmlu/helm", "mmlu/harness-v0:sum", "options/cloze:sum"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    data = write_mmlu(tmp_path_factory.mktemp("data"), questions=12)
    return evaluate(
        model="fake:hash", data=data, protocols=NAMES, out=tmp_path_factory.mktemp("run") / "one"
    )


def one(run: Run, name: str, value: float | None = None) -> PublishedComparison:
    (compared,) = published_comparisons(run, summarize(run.folder).rows, resolve(name), value)
    return compared


def told(*compared: PublishedComparison) -> str:
    return " ".join(" ".join(published_lines(compared)).split())


def test_bundled_numbers_are_listed_under_their_protocol(run: Run) -> None:
    compared, table = one(run, "mmlu/helm"), json.loads(PUBLISHED_MMLU.read_text())
    published = [(row["model"], row["helm"]) for row in table["rows"]]
    assert [(each.model, each.value) for each in compared.numbers] == published
    (row,) = compared.rows
    assert json_value(row) == json_value(
        next(each for each in run.rows() if each.identity.protocol == "mmlu/helm")
    )
    assert (compared.comparable, compared.p, compared.nearest, compared.advice) == (
        True,
        row.identity.id,
        None,
        None,
    )
    words = told(compared)
    assert "for the same questions, " + f"{row.identity.dataset} {row.identity.data}" in words
    assert "63.7 % above llama-65b Hugging" in words
    empty = altered(compared.rows[0], value=math.nan, ci_low=math.nan, ci_high=math.nan, n=0)
    assert "no item scored" in told(replace(compared, rows=(empty,)))


def test_nothing_is_read_but_the_summary(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    one(run, "mmlu/helm")
    monkeypatch.setattr(
        Run, "measurements", property(lambda self: pytest.fail("the run is read in full"))
    )
    assert one(open_run(run.folder), "mmlu/helm", 0.5).comparable


def test_a_value_lies_below_inside_or_above_the_interval(run: Run) -> None:
    (row,) = one(run, "mmlu/harness-v0:sum").rows
    places = {
        0.0: "below",
        row.interval.low: "inside",
        row.value: "inside",
        row.interval.high: "inside",
        1.0: "above",
    }
    for value, place in places.items():
        (number,) = one(run, "mmlu/harness-v0:sum", value).numbers
        assert (number.value, number.model, number.place) == (value, None, place)
    assert "100.0 % above the published number" in told(one(run, "mmlu/harness-v0:sum", 1.0))


def test_another_score_of_the_same_prompts_and_a_split_of_the_data_keep_nothing_apart(
    run: Run,
) -> None:
    """The bundled numbers of the harness are of a score that the run was not made for."""
    other = "mmlu/harness-v0:char_mean_bare"
    assert other not in run.protocols
    compared = one(run, other)
    (row,) = compared.rows
    assert json_value(row) == json_value(run.under(resolve(other)).rows()[0])
    assert len(compared.numbers) == 8
    (recipe,) = resolve("options/cloze:sum").values()
    assert (recipe.split, run.protocols["options/cloze:sum"].split) == (None, "test")
    assert one(run, "options/cloze:sum").comparable


def test_the_nearest_protocol_says_what_keeps_them_apart(run: Run) -> None:
    compared = one(run, "options/cloze:pmi", 0.4)
    assert (compared.comparable, compared.rows) == (False, ())
    (number,) = compared.numbers
    assert (number.value, number.place) == (0.4, None)
    assert compared.nearest is not None
    assert compared.nearest.protocol == "options/cloze:sum"
    assert [(axis.axis, axis.left) for axis in compared.nearest.axes] == [
        ("score", "sum"),
        ("null", "-"),
    ]
    recipe = replace(resolve("options/cloze:pmi")["options/cloze:pmi"], split="test")
    distances = {name: len(axis_differences(own, recipe)) for name, own in run.protocols.items()}
    assert min(distances.values()) == distances["options/cloze:sum"] == 2
    words = told(compared)
    assert "differs in 2 axes" in words
    assert "evaluate options/cloze:pmi" in words


def test_a_family_shows_what_the_run_has(run: Run) -> None:
    compared = published_comparisons(run, summarize(run.folder).rows, resolve("mmlu"))
    shown = [each.protocol for each in compared if each.comparable]
    assert {"mmlu/helm", "mmlu/harness-v0:sum", "mmlu/harness-v0:byte_mean"} <= set(shown)
    assert not any("pmi" in name or "cloze" in name for name in shown)
    words = told(*compared)
    assert words.count("comparable:") == 1
    assert f"not in the run: {len(compared) - len(shown)} more, mmlu/" in words
    nothing = told(
        *published_comparisons(run, summarize(run.folder).rows, resolve("options/permuted"))
    )
    assert nothing == Gist("not comparable: ... options/permuted-cyclic")
    assert "1 more, options/permuted-full" in nothing


def test_the_command_takes_a_name_and_a_value(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = choicewise("compare", run.folder, "mmlu/harness-v0:sum", "--value", "0.637", code=0)
    assert "63.7 % above the published number" in " ".join(plain.stdout.split())
    (content,) = json.loads(choicewise("compare", run.folder, "mmlu/helm", "--json").stdout)
    assert (content["comparable"], content["protocol"], len(content["numbers"])) == (
        True,
        "mmlu/helm",
        8,
    )
    assert content["rows"][0]["signature"].startswith("benchmark:mmlu|")
    one_of = choicewise(
        "compare", run.folder, "options/cloze:pmi", "--protocol", "mmlu/helm", "--json"
    )
    assert json.loads(one_of.stdout)[0]["nearest"]["protocol"] == "mmlu/helm"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mmlu").mkdir()  # the data, not a run
    assert "comparable: same protocol" in choicewise("compare", run.folder, "mmlu").stdout


NEITHER = "neither a run folder ... 'mmlu/helmm'; ... mmlu/helm"


@pytest.mark.parametrize(
    ("words", "error", "reason"),
    [
        (["mmlu/helmm"], UsageError, NEITHER),
        (["nowhere"], UsageError, "nowhere is neither"),
        (["own.toml"], UsageError, "own.toml is neither"),
        (
            ["mmlu/helm", "--value", "63.7"],
            UsageError,
            "--value is 63.7; ... 0.637",
        ),
        (["mmlu/helm", "--value", "nan"], UsageError, "--value is nan; "),
        (["RUN", "--value", "0.6"], UsageError, "--value does not apply"),
        (["--value", "0.6"], UsageError, "--value does not apply"),
        ([], UsageError, "only one run"),
        (["."], StoreError, "not a run folder"),
    ],
)
def test_wrong_use_of_compare_is_told(
    run: Run, words: list[str], error: type[ChoicewiseError], reason: str
) -> None:
    line = [run.folder if word == "RUN" else word for word in words]
    ended = choicewise("compare", run.folder, *line, code=error.exit_code)
    assert ended.stdout == ""
    assert ended.stderr == Gist(reason)
