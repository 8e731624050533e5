"""One item in full: texts as they were sent, tokens as they were scored, decisions as they were made."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from choicewise import evaluate, open_dataset
from choicewise.bundled import BENCHMARK, MODELS
from choicewise.errors import UsageError
from choicewise.models.fake import HashModel
from choicewise.models.load import load_model
from choicewise.protocols.catalogue import resolve
from choicewise.protocols.protocol import Protocol
from choicewise.questions import Cosine, Mass, Question, TokenScores
from choicewise.report.explain import explanation_lines
from choicewise.results.explain import explain, explain_items
from choicewise.results.run import Run
from choicewise.util.jsonio import json_value
from tests.helpers.commands import choicewise
from tests.helpers.mmlu_data import write_mmlu


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("run")
    return evaluate(model="fake:hash", data=write_mmlu(folder / "data"), protocols=["mmlu"], out=folder / "run")


def test_an_explanation_holds_what_was_sent_and_seen(run: Run) -> None:
    found = explain(run, "trees/test/2")
    assert (found.subject, found.gold, len(found.choices)) == ("trees", (3,), 4)
    asked = next(each for each in found.asked if "mmlu/original" in each.protocols)
    requests = [row for row in run.tables.requests.to_pylist() if row["item"] == "trees/test/2"]
    assert asked.context in {row["context"] for row in requests}
    assert [scored.continuation for scored in asked.scored] == [" A", " B", " C", " D"]
    seen = {(row["item"], row["choice"], row["prompt"]): row for row in run.observations().to_pylist()}
    prompt = run.protocols["mmlu/original"].prompt_digest
    for scored in asked.scored:
        row = seen["trees/test/2", scored.choice, prompt]
        assert [token.logprob for token in scored.tokens] == row["logprobs"]
        assert [token.rank for token in scored.tokens] == row["ranks"]
        assert "".join(token.text for token in scored.tokens) == scored.continuation
        assert scored.total == pytest.approx(sum(row["logprobs"]))


def test_every_protocol_is_decided_as_in_the_report(run: Run) -> None:
    decided = {each.protocol: each for each in explain(run, "tides/test/0").decided}
    assert set(decided) == set(run.protocols)
    for row in run.scores().to_pylist():
        if row["item"] == "tides/test/0":
            each = decided[row["protocol"]]
            assert each.scores is not None
            assert each.scores[row["choice"]] == row["score"]
            assert (each.prediction, each.credit) == (row["prediction"], row["credit"])
    assert decided["mmlu/helm"].scores is None


def test_null_contexts_are_told_apart(run: Run) -> None:
    found = explain(run.choose(["mmlu/cloze:sum", "mmlu/cloze:pmi-answer"]), "tides/test/0")
    (asked,) = found.asked
    assert [(scored.null, scored.choice) for scored in asked.scored] == [
        (null, choice) for null in (None, "Answer:") for choice in range(4)
    ]
    text = "\n".join(explanation_lines(found))
    assert text.count('after the null context "Answer:" instead') == 4


@pytest.mark.parametrize(
    "name", ["mmlu/cloze:pmi-answer", "mmlu/cloze:pmi-answer-space", "options/cloze:dc_pmi", "options/cloze:pmi"]
)
def test_both_sides_of_a_score_of_two_contexts_are_shown_token_by_token(name: str, tmp_path: Path) -> None:
    data = write_mmlu(tmp_path / "data")
    run = evaluate(model="fake:hash", data=data, protocols=[name], out=tmp_path / "run", subjects=["tides"])
    found = explain(run, "tides/test/1")
    ((asked,), (decided,)) = found.asked, found.decided
    lines, blocks = list(explanation_lines(found)), list[list[list[str]]]()
    for line in lines:
        if line.split()[:2] == ["log", "P"]:
            blocks.append([])
        elif blocks and line.startswith("    ") and line.strip()[:1] in "-0":
            blocks[-1].append(line.split())
    assert decided.scores is not None
    for choice, (own, null) in enumerate(asked.beside):
        assert (own.null, own.choice, null.choice) == (None, choice, choice)
        sides = [[token.logprob for token in side.tokens] for side in (own, null)]
        assert [sum(side) for side in sides] == pytest.approx([own.total, null.total])
        assert sum(sides[0]) - sum(sides[1]) == pytest.approx(decided.scores[choice], abs=1e-4)
        if null.continuation == own.continuation:  # one line per token
            shown = [[float(cell) for cell in cells[:2]] for cells in blocks.pop(0)]
            assert shown == [pytest.approx(pair, abs=1e-4) for pair in zip(*sides, strict=True)]
        else:
            for side in sides:
                assert [float(cells[0]) for cells in blocks.pop(0)] == pytest.approx(side, abs=1e-4)
    assert not blocks


@pytest.mark.parametrize("name", ["options/contextual-calibrated", "options/permuted-cyclic", "options/pride"])
def test_every_other_prompt_of_a_calibration_is_shown_token_by_token(name: str, tmp_path: Path) -> None:
    data = write_mmlu(tmp_path / "data")
    run = evaluate(model="fake:hash", data=data, protocols=[name], out=tmp_path / "run", subjects=["tides"])
    items = run.tables.items["item"].to_pylist()
    shown = [scored for each in explain_items(run, items) for asked in each.asked for scored in asked.scored]
    assert {scored.part for scored in shown} > {0}
    assert all(sum(token.logprob for token in scored.tokens) == pytest.approx(scored.total) for scored in shown)


def test_an_unknown_item_is_answered_with_the_nearest(run: Run) -> None:
    with pytest.raises(UsageError, match="did you mean tides/test/1"):
        explain(run, "tide/test/1")


SMALL = [folder for folder in MODELS if folder.name in ("merrow-bpe-512", "merrow-unigram-1000")]


@pytest.mark.parametrize("folder", SMALL, ids=lambda folder: folder.name)
def test_tokens_are_cut_where_the_tokenizer_cut_them(tmp_path: Path, folder: Path) -> None:
    model = load_model(folder, rung="plain")
    recipe = replace(resolve("mmlu/letter-text:sum")["mmlu/letter-text:sum"], shots=0)
    recipes = {name: replace(recipe, boundary=name) for name in ("joint", "separate", "lcp", "last-token")}
    data = open_dataset(BENCHMARK)
    run = evaluate(model=model, data=data, protocols=recipes, out=tmp_path / "run", subjects=["food"], limit=1)
    found = explain(run, run.tables.items["item"][0].as_py())
    assert [asked.boundary for asked in found.asked] == list(recipes)
    for scored in (scored for asked in found.asked for scored in asked.scored):
        pieces = [model.tokenizer.token_bytes[token.id].decode() for token in scored.tokens]
        assert [token.text for token in scored.tokens] == pieces
        assert [token.size for token in scored.tokens] == [len(piece.encode()) for piece in pieces]


def test_the_text_shows_white_space_and_disarms_the_data(tmp_path: Path) -> None:
    line = {"id": "q\x1b[2J", "question": "Is  it\u202e red? ", "choices": ["yes\x07", "no"], "answer": 0}
    (tmp_path / "test.jsonl").write_text(json.dumps(line))
    recipe = replace(resolve("mmlu/cloze:sum")["mmlu/cloze:sum"], choices=None)
    run = evaluate(model="fake:hash", data=tmp_path / "test.jsonl", protocols={"p": recipe}, out=tmp_path / "run")
    for more, indent in (["--tokens"], ""), ([], "  "):
        found = choicewise("explain", str(run.folder), "--item", "q\x1b[2J", *more)
        assert found.code == 0
        assert not {"\x1b", "\x07", "\u202e"} & set(found.stdout)
        assert "q\\x1b[2J" in found.stdout
        assert f"Question: Is␠␠it\\u202e red?␠⏎\n{indent}Answer:\n" in found.stdout
        assert "␠yes\\x07" in found.stdout
    content = json.loads(choicewise("explain", str(run.folder), "--item", "q\x1b[2J", "--json").stdout)
    assert content["asked"][0]["context"].endswith("Question: Is  it\u202e red? \nAnswer:")


def test_an_item_that_could_not_be_asked_says_why(tmp_path: Path) -> None:
    model = HashModel()
    model.window = 120
    data = write_mmlu(tmp_path / "data")
    run = evaluate(model=model, data=data, protocols=["mmlu/original"], out=tmp_path / "run")
    text = "\n".join(explanation_lines(explain(run, "tides/test/0")))
    assert "not asked: too long" in text
    assert "missing" in text


@pytest.mark.costly("whole commands")
def test_reading_a_run_needs_no_model(run: Run) -> None:
    code = (
        "import sys; from choicewise.cli import app\n"
        "for line in sys.argv[1:]:\n"
        "    app(line.split('|'), standalone_mode=False)\n"
        "print(*{'torch', 'transformers', 'tokenizers'} & set(sys.modules), file=sys.stderr)"
    )
    lines = [
        f"explain|{run.folder}|--item|tides/test/0",
        f"compare|{run.folder}|{run.folder}",
        f"report|{run.folder}|--interval|beta-binomial",
        f"report|{run.folder}|--multiverse",
        f"report|{run.folder}|--distribution|--protocol|mmlu/cloze",
    ]
    found = subprocess.run([sys.executable, "-c", code, *lines], capture_output=True, text=True, check=True)
    *told, loaded = found.stderr.splitlines()
    assert loaded == ""
    assert all("`choicewise " in line or line.startswith("warning: ") for line in told)


@pytest.mark.parametrize("boundary", ["joint", "lcp", "heal", "word", "bytes"])
def test_a_total_is_the_sum_that_is_scored(tmp_path: Path, boundary: str) -> None:
    recipe = replace(resolve("options/cloze:sum")["options/cloze:sum"], boundary=boundary)
    data = write_mmlu(tmp_path / "data", ("trees",), questions=1)
    run = evaluate(model="fake:hash", data=data, protocols={"p": recipe}, out=tmp_path / "run")
    found = explain(run, "trees/test/0")
    assert [scored.total for scored in found.asked[0].scored] == pytest.approx(found.decided[0].scores)
    told = "\n".join(explanation_lines(found))
    assert ("nats added for what follows" in told) == (boundary == "word")


def test_what_a_reading_asks_beside_the_prompt_is_shown(tmp_path: Path) -> None:
    data = write_mmlu(tmp_path / "data", ("trees",), questions=1)
    names = ["options/yes-no", "options/embedding"]
    run = evaluate(model="fake:hash", data=data, protocols=names, out=tmp_path / "run")
    found = explain(run, "trees/test/0")
    yes_no, embedding = found.asked
    assert {(scored.choice, scored.part) for scored in yes_no.scored} == {
        (n, part) for n in range(4) for part in (0, 1)
    }
    assert all("Proposed answer: the" in (scored.context or "") for scored in yes_no.scored)
    assert [scored.value for scored in embedding.scored] == pytest.approx(found.decided[1].scores)
    told = "\n".join(explanation_lines(found))
    assert told.count("with a prompt of its own") == 4
    assert run.unanswered == []
    assert f"observed: {embedding.scored[0].value:.4f}" in told


ASKED_UNDER = {"joint": ["mmlu/cloze:sum", "mmlu/cloze:pmi-answer"], "word": ["mmlu/cloze:sum"]}


@pytest.fixture(scope="module", params=ASKED_UNDER)
def observed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run with and without corrections."""
    folder = tmp_path_factory.mktemp("observed")
    recipes: dict[str, Protocol] = {}
    for name in ASKED_UNDER[request.param]:
        recipes[name] = replace(resolve(name)[name], boundary=request.param, continuation=" {letter}")
    return evaluate(model=HashModel(), data=write_mmlu(folder / "data"), protocols=recipes, out=folder / "run")


def test_shown_answers_give_the_shown_scores(observed: Run) -> None:
    for each in (explain(observed, item) for item in observed.tables.items["item"].to_pylist()):
        (asked,) = each.asked
        totals = [scored.total for scored in asked.scored if scored.null is None]
        after_null = [scored.total for scored in asked.scored if scored.null is not None]
        pmi = [total - prior for total, prior in zip(totals, after_null, strict=False)]
        shown = {"mmlu/cloze:sum": totals, "mmlu/cloze:pmi-answer": pmi}
        for decided in each.decided:
            assert shown[decided.protocol] == pytest.approx(decided.scores, abs=1e-4)


def test_stored_scores_follow_from_the_observations(observed: Run) -> None:
    rows = [row for row in observed.observations().to_pylist() if row["null"] is None]
    answered = set(observed.tables.observations["key"].to_pylist())
    assert {row[column] for row in rows for column in ("key", "before", "after")} - {None} <= answered
    sums = {
        (row["prompt"], row["item"], row["choice"]): sum(row["logprobs"])
        + row["correction_first"]
        + row["correction_last"]
        for row in rows
    }
    assert len(sums) == len(rows)
    prompts = {name: recipe.prompt_digest for name, recipe in observed.protocols.items()}
    scores = [row for row in observed.scores().to_pylist() if row["protocol"] != "mmlu/cloze:pmi-answer"]
    assert [sums[prompts[row["protocol"]], row["item"], row["choice"]] for row in scores] == pytest.approx(
        [row["score"] for row in scores], abs=1e-4
    )


class UnsureOfWords(HashModel):
    """A model that answers with NaN when it is asked about several tokens at once."""

    def answer(self, questions: Sequence[Question]) -> Iterator[tuple[int, TokenScores]]:
        for index, seen in super().answer(questions):
            spoilt = isinstance(questions[index], Mass)
            yield index, replace(seen, logprobs=seen.logprobs * np.float32("nan")) if spoilt else seen


class Unlike(HashModel):
    """A model whose every cosine is NaN."""

    def answer(self, questions: Sequence[Question]) -> Iterator[tuple[int, TokenScores]]:
        yield from ((index, Cosine.answer(math.nan)) for index in range(len(questions)))


@pytest.mark.parametrize(
    ("model", "name", "boundary"),
    [(UnsureOfWords(), "options/cloze:sum", "word"), (Unlike(), "options/embedding", "joint")],
    ids=["correction", "value"],
)
def test_nan_is_told_wherever_it_is(model: HashModel, name: str, boundary: str, tmp_path: Path) -> None:
    data = write_mmlu(tmp_path / "data", ("trees",), questions=1)
    recipe = replace(resolve(name)[name], boundary=boundary)
    run = evaluate(model=model, data=data, protocols={"p": recipe}, out=tmp_path / "run")
    found = explain(run, "trees/test/0")
    assert not any(math.isnan(token.logprob) for scored in found.asked[0].scored for token in scored.tokens)
    assert math.isnan(found.decided[0].credit)
    assert "\n".join(explanation_lines(found)).count("! missing: the model answers with NaN") == 4
    assert [scored["missing"] for scored in json_value(found)["asked"][0]["scored"]] == [
        "the model answers with NaN"
    ] * 4


def test_names_of_rows_of_several_parts_stand_on_one_line(tmp_path: Path) -> None:
    data = write_mmlu(tmp_path / "data", ("tides",), 1)
    evaluate(model="fake:hash", data=data, protocols=["options/yes-no"], out=tmp_path / "run")
    told = choicewise("explain", str(tmp_path / "run"), "--item", "tides/test/0").stdout
    assert {line.split("  ")[1] for line in told.splitlines() if line.startswith("  tokens/")} == {
        f"tokens/bytes/characters, part {part}" for part in (0, 1)
    }
