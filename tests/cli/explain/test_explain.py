"""One item in full: texts as they were sent, tokens as they were scored, decisions as they were made."""

import json
import math
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from choicewise import evaluate, open_dataset
from choicewise.bundled import BENCHMARK, MODELS
from choicewise.errors import UsageError
from choicewise.extensions.explain.item_report import explanation_lines, explanation_parts
from choicewise.models.fake import HashModel
from choicewise.models.load import load_model
from choicewise.protocols.catalogue import resolve
from choicewise.protocols.protocol import Protocol
from choicewise.questions import Cosine, Mass, Prompt, TokenScores
from choicewise.results.explain import Explanation, explain, explain_items
from choicewise.results.run import Run
from choicewise.util.jsonio import json_value
from tests.helpers.commands import choicewise
from tests.helpers.mmlu_data import write_mmlu
from tests.helpers.printed import printed
from tests.helpers.study import Study

CLOZE = resolve("mmlu/cloze:sum")["mmlu/cloze:sum"]


@pytest.fixture(scope="module")
def run(study: Study, tmp_path_factory: pytest.TempPathFactory) -> Run:
    names = ["mmlu/original", "mmlu/cloze", "mmlu/letter-text", "mmlu/helm"]
    return evaluate(
        model="fake:hash",
        data=study.data,
        protocols=names,
        out=tmp_path_factory.mktemp("run") / "run",
    )


def one_item(
    out: Path, name: str, model: HashModel | str = "fake:hash", **axes: Any
) -> Explanation:
    """The explanation of the one item of a run under a protocol with other ``axes``."""
    recipes = {"p": replace(resolve(name)[name], **axes)}
    run = evaluate(
        model=model,
        data=write_mmlu(out / "data", ("trees",), 1),
        protocols=recipes,
        out=out / "run",
    )
    return explain(run, "trees/test/0")


def test_an_explanation_holds_what_was_sent_and_seen(run: Run) -> None:
    found = explain(run, "trees/test/2")
    assert (found.subject, found.gold, len(found.choices)) == ("trees", (3,), 4)
    asked = next(each for each in found.asked if "mmlu/original" in each.protocols)
    assert asked.context in {
        row["context"] for row in run.tables.requests.to_pylist() if row["item"] == "trees/test/2"
    }
    assert [scored.continuation for scored in asked.scored] == [" A", " B", " C", " D"]
    seen = {
        (row["item"], row["choice"], row["prompt"]): row for row in run.observations().to_pylist()
    }
    for scored in asked.scored:
        row = seen["trees/test/2", scored.choice, run.protocols["mmlu/original"].prompt_digest]
        assert [token.logprob for token in scored.tokens] == row["logprobs"]
        assert [token.rank for token in scored.tokens] == row["ranks"]
        assert "".join(token.text for token in scored.tokens) == scored.continuation
        assert scored.total == pytest.approx(sum(row["logprobs"]))
    with pytest.raises(UsageError, match="mean tides/test/1"):
        explain(run, "tide/test/1")


def test_every_protocol_is_decided_as_in_the_report(run: Run) -> None:
    decided = {each.protocol: each for each in explain(run, "tides/test/0").decided}
    assert set(decided) == set(run.protocols)
    for row in (row for row in run.scores().to_pylist() if row["item"] == "tides/test/0"):
        each = decided[row["protocol"]]
        assert each.scores is not None
        assert each.scores[row["choice"]] == row["score"]
        assert (each.prediction, each.credit) == (row["prediction"], row["credit"])
    assert decided["mmlu/helm"].scores is None


def test_null_contexts_are_told_apart(run: Run) -> None:
    found = explain(run.choose(["mmlu/cloze:sum", "mmlu/cloze:pmi-answer"]), "tides/test/0")
    (asked,) = found.asked
    expected = [(null, choice) for null in (None, "Answer:") for choice in range(4)]
    assert [(scored.null, scored.choice) for scored in asked.scored] == expected
    assert (
        "\n".join(explanation_lines(found)).count('after the null context "Answer:" instead') == 4
    )


@pytest.mark.parametrize(
    "name",
    [
        "mmlu/cloze:pmi-answer",
        "mmlu/cloze:pmi-answer-space",
        "options/cloze:dc_pmi",
        "options/cloze:pmi",
    ],
)
def test_both_sides_of_a_score_of_two_contexts_are_shown_token_by_token(
    name: str, study: Study, tmp_path: Path
) -> None:
    run = evaluate(
        model="fake:hash",
        data=study.data,
        protocols=[name],
        out=tmp_path,
        subjects=["tides"],
        limit=3,
    )
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


@pytest.mark.parametrize(
    "name", ["options/contextual-calibrated", "options/permuted-cyclic", "options/pride"]
)
def test_every_other_prompt_of_a_calibration_is_shown_token_by_token(
    name: str, study: Study, tmp_path: Path
) -> None:
    run = evaluate(
        model="fake:hash", data=study.data, protocols=[name], out=tmp_path, subjects=["tides"]
    )
    items = run.tables.items["item"].to_pylist()
    shown = [
        scored
        for each in explain_items(run, items)
        for asked in each.asked
        for scored in asked.scored
    ]
    assert {scored.part for scored in shown} > {0}
    assert all(
        sum(token.logprob for token in scored.tokens) == pytest.approx(scored.total)
        for scored in shown
    )


SMALL = [folder for folder in MODELS if folder.name in ("merrow-bpe-512", "merrow-unigram-1000")]


@pytest.mark.parametrize("folder", SMALL, ids=lambda folder: folder.name)
def test_tokens_are_cut_where_the_tokenizer_cut_them(tmp_path: Path, folder: Path) -> None:
    model, letters = (
        load_model(folder, rung="plain"),
        resolve("mmlu/letter-text:sum")["mmlu/letter-text:sum"],
    )
    recipes = {
        name: replace(letters, shots=0, boundary=name)
        for name in ("joint", "separate", "lcp", "last-token")
    }
    asked = {"data": open_dataset(BENCHMARK), "subjects": ["food"], "limit": 1}
    run = evaluate(model=model, protocols=recipes, out=tmp_path / "run", **asked)
    found = explain(run, run.tables.items["item"][0].as_py())
    assert [asked.boundary for asked in found.asked] == list(recipes)
    for scored in (scored for asked in found.asked for scored in asked.scored):
        pieces = [model.tokenizer.token_bytes[token.id].decode() for token in scored.tokens]
        assert [(token.text, token.size) for token in scored.tokens] == [
            (each, len(each.encode())) for each in pieces
        ]


def test_the_text_shows_white_space_and_disarms_the_data(tmp_path: Path) -> None:
    line = {
        "id": "q\x1b[2J",
        "question": "Is  it\u202e red? ",
        "choices": ["yes\x07", "no"],
        "answer": 0,
    }
    (tmp_path / "test.jsonl").write_text(json.dumps(line))
    recipes = {"p": replace(CLOZE, choices=None)}
    evaluate(
        model="fake:hash", data=tmp_path / "test.jsonl", protocols=recipes, out=tmp_path / "run"
    )
    asked = ["explain", tmp_path / "run", "--item", "q\x1b[2J"]
    for more, indent in (["--tokens"], ""), ([], "  "):
        shown = choicewise(*asked, *more, code=0).stdout
        assert not {"\x1b", "\x07", "\u202e"} & set(shown)
        words = "q\\x1b[2J", f"Question: Is␠␠it\\u202e red?␠⏎\n{indent}Answer:\n", "␠yes\\x07"
        assert [each for each in words if each not in shown] == []
    content = json.loads(choicewise(*asked, "--json").stdout)
    assert content["asked"][0]["context"].endswith("Question: Is  it\u202e red? \nAnswer:")


def test_an_item_that_could_not_be_asked_says_why(tmp_path: Path) -> None:
    model = HashModel()
    model.window = 120
    found = one_item(tmp_path, "mmlu/original", model)
    text, in_short = (
        "\n".join(explanation_lines(found)),
        " ".join(printed(*explanation_parts(found, 80))),
    )
    assert "missing: too long" in text
    assert "missing" in text
    assert "missing: too long" in in_short
    assert "1 of 1 protocol chooses nothing" in in_short


@pytest.mark.costly("five commands in a process of its own")
def test_reading_a_run_needs_no_model(study: Study) -> None:
    code = (
        "import sys; from choicewise.cli import app\n"
        "for line in sys.argv[2:]:\n"
        "    app([sys.argv[1] if word == 'RUN' else word for word in line.split()], standalone_mode=False)\n"
        "print(*{'torch', 'transformers', 'tokenizers'} & set(sys.modules), file=sys.stderr)"
    )
    lines = [
        *("explain RUN --item tides/test/0", "compare RUN RUN --protocol mmlu/original"),
        "report RUN --interval beta-binomial --protocol mmlu/original",
        *("report RUN multiverse", "report RUN distribution --protocol mmlu/cloze:sum"),
    ]
    asked = [sys.executable, "-c", code, str(study.hash), *lines]
    *told, loaded = subprocess.run(
        asked, capture_output=True, text=True, check=True
    ).stderr.splitlines()
    assert loaded == ""
    assert all("  choicewise " in line for line in told)


@pytest.mark.parametrize("boundary", ["joint", "lcp", "heal", "word", "bytes"])
def test_a_total_is_the_sum_that_is_scored(tmp_path: Path, boundary: str) -> None:
    found = one_item(tmp_path, "options/cloze:sum", boundary=boundary)
    assert [scored.total for scored in found.asked[0].scored] == pytest.approx(
        found.decided[0].scores
    )
    told = "\n".join(explanation_lines(found))
    assert ("nats added for" in told) == (boundary == "word")


def test_what_a_reading_asks_beside_the_prompt_is_shown(tmp_path: Path) -> None:
    data, names = (
        write_mmlu(tmp_path / "data", ("trees",), 1),
        ["options/yes-no", "options/embedding"],
    )
    run = evaluate(model="fake:hash", data=data, protocols=names, out=tmp_path / "run")
    found = explain(run, "trees/test/0")
    yes_no, embedding = found.asked
    assert {(scored.choice, scored.part) for scored in yes_no.scored} == {
        *product(range(4), range(2))
    }
    assert all("Proposed answer: the" in (scored.context or "") for scored in yes_no.scored)
    assert [scored.value for scored in embedding.scored] == pytest.approx(found.decided[1].scores)
    told = "\n".join(explanation_lines(found))
    assert told.count("with its own prompt") == 4
    assert run.unanswered == []
    assert f"observed: {embedding.scored[0].value:.4f}" in told
    shown = choicewise(
        "explain", tmp_path / "run", "--item", "trees/test/0", "--protocol", names[0]
    ).stdout
    assert {line.split("  ")[1] for line in shown.splitlines() if line.startswith("  tokens/")} == {
        f"tokens/bytes/characters, part {part}" for part in (0, 1)
    }


ASKED_UNDER = {"joint": ["mmlu/cloze:sum", "mmlu/cloze:pmi-answer"], "word": ["mmlu/cloze:sum"]}


@pytest.fixture(scope="module", params=ASKED_UNDER)
def observed(
    request: pytest.FixtureRequest, study: Study, tmp_path_factory: pytest.TempPathFactory
) -> Run:
    """A run with and without corrections."""
    recipes: dict[str, Protocol] = {}
    for name in ASKED_UNDER[request.param]:
        recipes[name] = replace(
            resolve(name)[name], boundary=request.param, continuation=" {letter}"
        )
    return evaluate(
        model=HashModel(),
        data=study.data,
        protocols=recipes,
        out=tmp_path_factory.mktemp("observed"),
    )


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
    assert {row[column] for row in rows for column in ("key", "before", "after")} - {
        None
    } <= answered
    sums = {}
    for row in rows:
        corrected = [*row["logprobs"], row["correction_first"], row["correction_last"]]
        sums[row["prompt"], row["item"], row["choice"]] = sum(corrected)
    assert len(sums) == len(rows)
    prompts = {name: recipe.prompt_digest for name, recipe in observed.protocols.items()}
    scores = [
        row for row in observed.scores().to_pylist() if row["protocol"] != "mmlu/cloze:pmi-answer"
    ]
    found = [sums[prompts[row["protocol"]], row["item"], row["choice"]] for row in scores]
    assert found == pytest.approx([row["score"] for row in scores], abs=1e-4)


class UnsureOfWords(HashModel):
    """A model that answers with NaN when it is asked about several tokens at once."""

    def answer(self, questions: Sequence[Prompt]) -> Iterator[tuple[int, TokenScores]]:
        for index, seen in super().answer(questions):
            spoilt = isinstance(questions[index], Mass)
            yield (
                index,
                replace(seen, logprobs=seen.logprobs * np.float32("nan")) if spoilt else seen,
            )


class Unlike(HashModel):
    """A model whose every cosine is NaN."""

    def answer(self, questions: Sequence[Prompt]) -> Iterator[tuple[int, TokenScores]]:
        yield from ((index, Cosine.answer(math.nan)) for index in range(len(questions)))


@pytest.mark.parametrize(
    ("model", "name", "boundary"),
    [(UnsureOfWords(), "options/cloze:sum", "word"), (Unlike(), "options/embedding", "joint")],
    ids=["correction", "value"],
)
def test_nan_is_told_wherever_it_is(
    model: HashModel, name: str, boundary: str, tmp_path: Path
) -> None:
    found, why = one_item(tmp_path, name, model, boundary=boundary), "the model returned NaN"
    assert not any(
        math.isnan(token.logprob) for scored in found.asked[0].scored for token in scored.tokens
    )
    assert math.isnan(found.decided[0].credit)
    assert "\n".join(explanation_lines(found)).count(f"! missing: {why}") == 4
    assert [scored["missing"] for scored in json_value(found)["asked"][0]["scored"]] == [why] * 4
