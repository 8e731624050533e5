"""Questions that a model behind a server did not answer: missing with the reason, never a score."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from choicewise import evaluate
from choicewise.models.fake import HashModel
from choicewise.protocols.catalogue import resolve
from choicewise.questions import Generation, Question, Span
from choicewise.report.explain import explanation_lines
from choicewise.results.explain import explain
from choicewise.results.run import Run, open_run
from tests.helpers.commands import choicewise
from tests.helpers.mmlu_data import write_mmlu
from tests.helpers.protocols import entries_for_mmlu
from tests.helpers.unsure_models import REASON, Silent

CLOZE = "mmlu/cloze:sum"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_mmlu(tmp_path / "data")


def bytes_of(question: Span) -> bytes:
    tokens = np.concatenate([question.context, question.continuation])
    return tokens[tokens < 256].astype(np.uint8).tobytes()


def lost_number_3(question: Question) -> bool:
    return isinstance(question, Span) and bytes_of(question).endswith(b"the tall one of 3")


def numbers(run: Run, protocol: str) -> dict[str, list[float]]:
    scores: dict[str, list[float]] = {}
    for row in run.scores(protocol).to_pylist():
        scores.setdefault(row["item"], []).append(row["score"])
    return scores


def test_a_choice_without_an_answer_makes_its_item_missing_with_the_reason(data: Path, tmp_path: Path) -> None:
    whole = evaluate(model=HashModel(), data=data, protocols=[CLOZE, "mmlu/original"], out=tmp_path / "whole")
    run = evaluate(model=Silent(lost_number_3), data=data, protocols=[CLOZE, "mmlu/original"], out=tmp_path / "run")
    by_name = {row.protocol: row for row in run.rows()}
    row = by_name[CLOZE]
    assert (row.n, row.missing) == (10, 2)
    assert [(each.reason, each.count) for each in row.missing_reasons] == [(REASON, 2)]
    assert by_name["mmlu/original"].missing == 0
    one, other = numbers(whole, CLOZE), numbers(run, CLOZE)
    lost = {item for item, scores in other.items() if np.isnan(scores).any()}
    assert len(lost) == 2
    assert all(other[item] == one[item] for item in one.keys() - lost)
    assert numbers(run, "mmlu/original") == numbers(whole, "mmlu/original")
    assert np.isnan(run.measurements[CLOZE].credit).sum() == 2
    assert run.unanswered == []  # it did not answer with NaN


@pytest.mark.costly("runs are evaluated and compared")
def test_the_reason_stands_in_report_json_explain_and_page(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    run = evaluate(model=Silent(lost_number_3), data=data, protocols=[CLOZE], out=out)
    item = run.rows()[0].missing_reasons[0].example
    said = choicewise("report", str(out))
    assert said.code == 0
    assert f"missing under {CLOZE}: 2, such as {item}: {REASON}" in " ".join(said.stdout.split())
    (row,) = json.loads(choicewise("report", str(out), "--json").stdout)
    assert row["missing_reasons"] == [{"reason": REASON, "count": 2, "example": item}]
    text = "\n".join(explanation_lines(explain(open_run(out), item)))
    assert f"missing: {REASON}" in text
    assert "nan" not in text.casefold()
    shown = choicewise("explain", str(out), "--item", item)
    assert REASON in " ".join(shown.stdout.split())
    page = tmp_path / "page.html"
    assert choicewise("page", str(out), "--out", str(page)).code == 0
    assert REASON in page.read_text()


ENTRIES = {entry.name: entry.protocols for entry in entries_for_mmlu()}
CHAINS = {name: replace(each, chains=3, new_tokens=12) for name, each in resolve("options/chain-of-thought").items()}


def without_proposal(question: Question) -> bool:
    return isinstance(question, Generation) and question.sampling is not None and question.key[0] in "01"


def test_nothing_is_scored_after_a_chain_without_an_answer(data: Path, tmp_path: Path) -> None:
    asked: list[Span] = []

    class Watched(Silent):
        def answer(self, questions):  # type: ignore[no-untyped-def]
            asked.extend(each for each in questions if isinstance(each, Span))
            return super().answer(questions)

    run = evaluate(model=Watched(without_proposal), data=data, protocols=CHAINS, out=tmp_path / "run", limit=4)
    measured = run.measurements["options/chain-of-thought:vote"]
    spans = run.tables.spans.to_pylist()
    observed = {row["key"]: row for row in run.tables.observations.to_pylist()}
    chains = {(span["item"], span["part"]): observed[span["key"]] for span in spans if span["choice"] < 0}
    lost = {place for place, row in chains.items() if row["missing"]}
    assert 0 < len(lost) < len(chains)
    for span in spans:
        if span["choice"] >= 0:
            row = observed[span["key"]]
            assert (row["missing"] == REASON) == ((span["item"], span["part"]) in lost)
            assert np.isnan(row["logprobs"]).all() == ((span["item"], span["part"]) in lost)
    for item, credit in zip(measured.ids.to_pylist(), measured.credit.tolist(), strict=True):
        assert np.isnan(credit) == any(place[0] == item for place in lost)
    assert len(asked) == sum(span["choice"] >= 0 and observed[span["key"]]["missing"] is None for span in spans)


READS = {
    "token_length_normalized": (0, 1),
    "token_length_normalized_with_prompt": (0, 1),
    "greedy_token_selection": (0,),
    "unconditional_likelihood_normalized": (0, 2),
}
"""The parts of a choice that a score reads, where those are not all."""


@pytest.mark.parametrize("entry", sorted(ENTRIES))
def test_nothing_without_an_answer_is_a_score_under_any_protocol(entry: str, data: Path, tmp_path: Path) -> None:
    """Every question is lost with a chance of one in ten; an item has a number only where all its questions have."""
    model = Silent(lambda question: int(question.key, 16) % 10 == 0)
    protocols = CHAINS if entry == "options/chain-of-thought" else ENTRIES[entry]
    run = evaluate(model=model, data=data, protocols=protocols, out=tmp_path / "run", limit=3)
    observed = {row["key"]: row["missing"] for row in run.tables.observations.to_pylist()}
    spans = run.tables.spans.to_pylist()
    for row, measured in zip(run.rows(), run.measurements.values(), strict=True):
        read = {None, measured.protocol.null}
        lost = {
            span["item"]
            for span in spans
            if span["prompt"] == measured.protocol.prompt_digest and span["null"] in read
            if span["part"] in READS.get(measured.protocol.score, (span["part"],))
            if any(observed.get(span[column]) for column in ("key", "before", "after"))
        }
        of_item = dict(zip(measured.ids.to_pylist(), measured.credit.tolist(), strict=True))
        assert all(np.isnan(of_item[item]) for item in lost), row.protocol
        assert not lost or REASON in {each.reason for each in row.missing_reasons}
