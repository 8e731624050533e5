"""A published number beside a run: comparable under the same protocol, or which axes keep them apart."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from choicewise import evaluate, open_run
from choicewise.bundled import PUBLISHED_MMLU
from choicewise.errors import ChoicewiseError, StoreError, UsageError
from choicewise.protocols.catalogue import resolve
from choicewise.protocols.protocol import axis_differences
from choicewise.report.comparison import published_lines
from choicewise.results.compare import PublishedComparison, published_comparisons
from choicewise.results.run import Run
from choicewise.results.summary import summarize
from choicewise.util.jsonio import json_value
from tests.helpers.commands import choicewise
from tests.helpers.mmlu_data import write_mmlu

NAMES = ["mmlu/helm", "mmlu/harness-v0:sum", "options/cloze:sum"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    data = write_mmlu(tmp_path_factory.mktemp("data"), questions=12)
    return evaluate(model="fake:hash", data=data, protocols=NAMES, out=tmp_path_factory.mktemp("run") / "one")


def one(run: Run, name: str, value: float | None = None) -> PublishedComparison:
    (compared,) = published_comparisons(run, summarize(run.folder).rows, resolve(name), value)
    return compared


def told(*compared: PublishedComparison) -> str:
    return " ".join(" ".join(published_lines(compared)).split())


def test_bundled_numbers_are_listed_under_their_protocol(run: Run) -> None:
    compared, table = one(run, "mmlu/helm"), json.loads(PUBLISHED_MMLU.read_text())
    assert [(each.model, each.value) for each in compared.numbers] == [
        (row["model"], row["helm"]) for row in table["rows"]
    ]
    (row,) = compared.rows
    assert json_value(row) == json_value(next(each for each in run.rows() if each.protocol == "mmlu/helm"))
    assert (compared.comparable, compared.p, compared.nearest, compared.advice) == (True, row.id, None, None)
    words = told(compared)
    assert "they must be about what this run is about, " + f"{row.dataset} {row.data}" in words
    assert "63.7 % above llama-65b Hugging Face blog, 2023-06-23" in words


def test_a_value_lies_below_inside_or_above_the_interval(run: Run) -> None:
    (row,) = one(run, "mmlu/harness-v0:sum").rows
    places = {0.0: "below", row.ci_low: "inside", row.value: "inside", row.ci_high: "inside", 1.0: "above"}
    for value, place in places.items():
        (number,) = one(run, "mmlu/harness-v0:sum", value).numbers
        assert (number.value, number.model, number.place) == (value, None, place)
    assert "100.0 % above the published number" in told(one(run, "mmlu/harness-v0:sum", 1.0))


def test_a_split_that_the_data_decides_keeps_nothing_apart(run: Run) -> None:
    (recipe,) = resolve("options/cloze:sum").values()
    assert (recipe.split, run.protocols["options/cloze:sum"].split) == (None, "test")
    assert one(run, "options/cloze:sum").comparable


def test_another_score_of_the_same_prompts_is_computed(run: Run) -> None:
    """The bundled numbers of the harness are of a score that the run was not made for."""
    assert "mmlu/harness-v0:char_mean_bare" not in run.protocols
    compared = one(run, "mmlu/harness-v0:char_mean_bare")
    (row,) = compared.rows
    expected = run.under(resolve("mmlu/harness-v0:char_mean_bare")).rows()[0]
    assert json_value(row) == json_value(expected)
    assert len(compared.numbers) == 8


def test_the_nearest_protocol_says_what_keeps_them_apart(run: Run) -> None:
    compared = one(run, "options/cloze:pmi", 0.4)
    assert (compared.comparable, compared.rows) == (False, ())
    (number,) = compared.numbers
    assert (number.value, number.place) == (0.4, None)
    assert compared.nearest is not None
    assert compared.nearest.protocol == "options/cloze:sum"
    assert [(axis.axis, axis.left) for axis in compared.nearest.axes] == [("score", "sum"), ("null", "-")]
    recipe = replace(resolve("options/cloze:pmi")["options/cloze:pmi"], split="test")
    distances = {name: len(axis_differences(own, recipe)) for name, own in run.protocols.items()}
    assert min(distances.values()) == distances["options/cloze:sum"] == 2
    words = told(compared)
    assert "the nearest of the run, options/cloze:sum, differs in 2 axes" in words
    assert "was not asked what options/cloze:pmi asks; add it: evaluate options/cloze:pmi into the same folder" in words


def test_a_family_shows_what_the_run_has(run: Run) -> None:
    compared = published_comparisons(run, summarize(run.folder).rows, resolve("mmlu"))
    shown = [each.protocol for each in compared if each.comparable]
    assert {"mmlu/helm", "mmlu/harness-v0:sum", "mmlu/harness-v0:byte_mean"} <= set(shown)
    assert not any("pmi" in name or "cloze" in name for name in shown)
    words = told(*compared)
    assert words.count("comparable:") == 1
    assert f"the run was not asked what {len(compared) - len(shown)} more ask: mmlu/" in words
    nothing = told(*published_comparisons(run, summarize(run.folder).rows, resolve("options/permuted")))
    assert nothing.startswith("not comparable: numbers published under options/permuted-cyclic")
    assert "the run was not asked what 1 more asks: options/permuted-full" in nothing


def test_a_run_with_nothing_scored_has_no_interval(run: Run) -> None:
    compared = one(run, "mmlu/helm")
    empty = replace(compared.rows[0], value=float("nan"), ci_low=float("nan"), ci_high=float("nan"), n=0)
    assert "no item scored" in told(replace(compared, rows=(empty,)))


def test_the_command_takes_a_name_and_a_value(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = choicewise("compare", run.folder, "mmlu/harness-v0:sum", "--value", "0.637")
    assert plain.code == 0
    assert "63.7 % above the published number" in " ".join(plain.stdout.split())
    (content,) = json.loads(choicewise("compare", run.folder, "mmlu/helm", "--json").stdout)
    assert (content["comparable"], content["protocol"], len(content["numbers"])) == (True, "mmlu/helm", 8)
    assert content["rows"][0]["signature"].startswith("benchmark:mmlu|")
    one_of = choicewise("compare", run.folder, "options/cloze:pmi", "--protocol", "mmlu/helm", "--json")
    assert json.loads(one_of.stdout)[0]["nearest"]["protocol"] == "mmlu/helm"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mmlu").mkdir()  # the data, not a run
    assert "comparable: numbers" in choicewise("compare", run.folder, "mmlu").stdout


NEITHER = "is neither a run folder nor a protocol: no protocol is called 'mmlu/helmm'; did you mean mmlu/helm"


@pytest.mark.parametrize(
    ("words", "error", "reason"),
    [
        (["mmlu/helmm"], UsageError, NEITHER),
        (["nowhere"], UsageError, "nowhere is neither a run folder nor a protocol"),
        (["own.toml"], UsageError, "own.toml is neither a run folder nor a protocol"),
        (["mmlu/helm", "--value", "63.7"], UsageError, "--value is 63.7; write it as a share of 1, such as 0.637"),
        (["mmlu/helm", "--value", "nan"], UsageError, "--value is nan; write it as a share of 1"),
        (["RUN", "--value", "0.6"], UsageError, "has no use for --value"),
        (["--value", "0.6"], UsageError, "has no use for --value"),
        ([], UsageError, "one run was named"),
        (["."], StoreError, "is not a run folder"),
    ],
)
def test_wrong_use_is_told(run: Run, words: list[str], error: type[ChoicewiseError], reason: str) -> None:
    ended = choicewise("compare", run.folder, *(str(run.folder) if word == "RUN" else word for word in words))
    assert ended.stdout == ""
    assert ended.code == error.exit_code
    assert reason in ended.stderr


def test_nothing_is_read_but_the_summary(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    one(run, "mmlu/helm")
    monkeypatch.setattr(Run, "measurements", property(lambda self: pytest.fail("the run is read in full")))
    assert one(open_run(run.folder), "mmlu/helm", 0.5).comparable
