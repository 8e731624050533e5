"""Questions that got no answer: missing with the reason, never a score; the same line asks them once more."""

import json
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from choicewise import evaluate
from choicewise.extensions.explain.item_report import explanation_lines
from choicewise.models.fake import HashModel
from choicewise.protocols.catalogue import resolve
from choicewise.questions import Generation, Prompt, Span
from choicewise.results.explain import explain
from choicewise.results.run import Run, open_run
from choicewise.store import folder as run_folder
from choicewise.store.folder import read_manifest
from choicewise.store.tables import read_blocks, unanswered_keys
from tests.helpers.commands import choicewise
from tests.helpers.hash_models import Failing, third
from tests.helpers.messages import Gist
from tests.helpers.mmlu_data import set_block_size
from tests.helpers.protocols import entries_for_mmlu
from tests.helpers.study import Study
from tests.helpers.unsure_models import REASON, Silent

CLOZE = "mmlu/cloze:sum"


@pytest.fixture(scope="module")
def data(study: Study) -> Path:
    return study.data


def lost_number_3(question: Prompt) -> bool:
    if not isinstance(question, Span):
        return False
    tokens = np.concatenate([question.context, question.continuation])
    return tokens[tokens < 256].astype(np.uint8).tobytes().endswith(b"the tall one of 3")


def test_a_choice_without_an_answer_makes_its_item_missing_with_the_reason(
    data: Path, tmp_path: Path
) -> None:
    whole, run = (
        evaluate(
            model=model,
            data=data,
            protocols=[CLOZE, "mmlu/original"],
            out=tmp_path / model.__class__.__name__,
        )
        for model in (HashModel(), Silent(lost_number_3))
    )
    by_name = {row.identity.protocol: row for row in run.rows()}
    row = by_name[CLOZE]
    assert (row.counts.n, row.counts.missing) == (10, 2)
    assert [(each.reason, each.count) for each in row.missing_reasons] == [(REASON, 2)]
    assert by_name["mmlu/original"].counts.missing == 0
    lost = {row["item"] for row in run.scores(CLOZE).to_pylist() if np.isnan(row["score"])}
    assert len(lost) == 2
    one, other = (
        [row for row in each.scores(CLOZE).to_pylist() if row["item"] not in lost]
        for each in (whole, run)
    )
    assert one == other
    assert run.scores("mmlu/original") == whole.scores("mmlu/original")
    assert np.isnan(run.measurements[CLOZE].credit).sum() == 2
    assert run.unanswered == []  # it did not answer with NaN


@pytest.mark.costly("draws a whole page")
def test_the_reason_stands_in_report_json_explain_and_page(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    run = evaluate(model=Silent(lost_number_3), data=data, protocols=[CLOZE], out=out)
    item = run.rows()[0].missing_reasons[0].example
    printed = " ".join(choicewise("report", out, "--all", code=0).stdout.split())
    assert f"missing under {CLOZE}: 2, such as {item}: {REASON}" in printed
    (row,) = json.loads(choicewise("report", out, "--json").stdout)
    assert row["missing_reasons"] == [{"reason": REASON, "count": 2, "example": item}]
    text = "\n".join(explanation_lines(explain(open_run(out), item)))
    assert f"missing: {REASON}" in text
    assert "nan" not in text.casefold()
    assert REASON in " ".join(choicewise("explain", out, "--item", item).stdout.split())
    choicewise("page", out, "--out", tmp_path / "page.html", code=0)
    assert REASON in (tmp_path / "page.html").read_text()


ENTRIES = {entry.name: entry.protocols for entry in entries_for_mmlu()}
CHAINS = {
    name: replace(each, chains=3, new_tokens=12)
    for name, each in resolve("options/chain-of-thought").items()
}


def without_proposal(question: Prompt) -> bool:
    return (
        isinstance(question, Generation)
        and question.sampling is not None
        and question.key[0] in "01"
    )


def test_nothing_is_scored_after_a_chain_without_an_answer(data: Path, tmp_path: Path) -> None:
    asked: list[Span] = []

    class Watched(Silent):
        def answer(self, questions):  # type: ignore[no-untyped-def]
            asked.extend(each for each in questions if isinstance(each, Span))
            return super().answer(questions)

    run = evaluate(
        model=Watched(without_proposal), data=data, protocols=CHAINS, out=tmp_path / "run", limit=4
    )
    measured = run.measurements["options/chain-of-thought:vote"]
    spans = run.tables.spans.to_pylist()
    observed = {row["key"]: row for row in run.tables.observations.to_pylist()}
    chains = {
        (span["item"], span["part"]): observed[span["key"]] for span in spans if span["choice"] < 0
    }
    lost = {place for place, row in chains.items() if row["missing"]}
    assert 0 < len(lost) < len(chains)
    scored = [(span, observed[span["key"]]) for span in spans if span["choice"] >= 0]
    for span, row in scored:
        assert (row["missing"] == REASON) == ((span["item"], span["part"]) in lost)
        assert np.isnan(row["logprobs"]).all() == ((span["item"], span["part"]) in lost)
    for item, credit in zip(measured.ids.to_pylist(), measured.credit.tolist(), strict=True):
        assert np.isnan(credit) == any(place[0] == item for place in lost)
    assert len(asked) == sum(row["missing"] is None for _, row in scored)


READS = {
    "token_length_normalized": (0, 1),
    "token_length_normalized_with_prompt": (0, 1),
    "greedy_token_selection": (0,),
    "unconditional_likelihood_normalized": (0, 2),
}
"""The parts of a choice that a score reads, where those are not all."""


@pytest.mark.parametrize("entry", sorted(ENTRIES))
def test_nothing_without_an_answer_is_a_score_under_any_protocol(
    entry: str, data: Path, tmp_path: Path
) -> None:
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
        assert all(np.isnan(of_item[item]) for item in lost), row.identity.protocol
        assert not lost or REASON in {each.reason for each in row.missing_reasons}


# Asked once more

PROTOCOLS = ["mmlu/original", "mmlu/cloze:pmi-answer"]
Asked = Callable[..., Run]


def keys_in(folder: Path) -> list[str]:
    return read_blocks(folder, read_manifest(folder).blocks, "observations")["key"].to_pylist()


@pytest.fixture
def asked(data: Path, monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Asks a model in small blocks."""
    set_block_size(monkeypatch, 5)
    return lambda model, out, **more: evaluate(
        **{"data": data, "protocols": PROTOCOLS, **more}, model=model, out=out
    )


@pytest.fixture
def whole(asked: Asked, tmp_path: Path) -> Run:
    return asked(Failing(), tmp_path / "whole")


@pytest.fixture
def lacking(asked: Asked, tmp_path: Path) -> Run:
    """A run in which about a third of the questions got no answer."""
    return asked(Failing(third), tmp_path / "run")


def failed(run: Run) -> list[str]:
    return [key for key in keys_in(run.folder) if third(key)]


def line(unanswered: int, answered: int) -> Gist:
    counts = f"{answered} answered now, {unanswered - answered} still missing"
    return Gist(f"{unanswered} questions ... : {counts}")


def tables(run: Run) -> Any:
    return run.report().to_pylist(), run.observations().to_pylist()


def test_exactly_the_unanswered_are_asked_again_and_the_run_is_as_if_nothing_had_failed(
    asked: Asked, whole: Run, lacking: Run
) -> None:
    lost, manifest = failed(lacking), read_manifest(lacking.folder)
    assert manifest.complete
    assert set(unanswered_keys(lacking.folder, manifest)) == set(lost)
    model, said = Failing(), list[str]()
    again = asked(model, lacking.folder, say=said.append)
    assert Counter(model.asked) == Counter(set(lost))
    assert said == [line(len(set(lost)), len(set(lost)))]
    assert keys_in(again.folder) == keys_in(whole.folder)
    assert tables(again) == tables(whole)
    blocks = [block.name for block in again.manifest.blocks]
    assert sorted(blocks) == sorted(path.name for path in (again.folder / "blocks").iterdir())
    assert not set(blocks) & {block.name for block in manifest.blocks}


def test_a_finished_run_without_any_asks_nothing_and_stays_as_it_is(
    asked: Asked, whole: Run
) -> None:
    before = {
        path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in whole.folder.rglob("*")
    }
    model, said = Failing(), list[str]()
    asked(model, whole.folder, say=said.append)
    assert (model.asked, said) == ([], [])
    assert {
        path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in whole.folder.rglob("*")
    } == before


def test_those_that_fail_again_stay_and_the_block_without_new_answers_is_not_touched(
    asked: Asked, lacking: Run
) -> None:
    lost, said = failed(lacking), list[str]()
    assert asked(Failing(third), lacking.folder, say=said.append).manifest == lacking.manifest
    third_time = asked(
        Failing(lambda key: third(key) and key != lost[0]), lacking.folder, say=said.append
    )
    assert said == [line(len(lost), 0), line(len(lost), 1)]
    changed = [
        block for block in third_time.manifest.blocks if block not in lacking.manifest.blocks
    ]
    assert len(changed) == 1
    assert sorted(keys_in(lacking.folder)) == sorted(set(keys_in(lacking.folder)))


def test_only_the_protocols_of_the_line_are_asked_again(asked: Asked, lacking: Run) -> None:
    lost, model, said = set(failed(lacking)), Failing(), list[str]()
    asked(model, lacking.folder, protocols=["mmlu/original"], say=said.append)
    assert 0 < len(model.asked) < len(lost)
    assert said[0] == Gist(f"; {len(lost) - len(model.asked)} more ... protocols")
    asked(model, lacking.folder)
    assert Counter(model.asked) == Counter(lost)


def test_what_follows_a_generation_without_an_answer_has_none_and_both_are_asked_again(
    asked: Asked, tmp_path: Path
) -> None:
    model, more = Failing(), {"protocols": CHAINS, "limit": 2}
    whole = asked(model, tmp_path / "whole", **more)
    first = model.asked[0]
    broken = asked(Failing(lambda key: key == first), tmp_path / "run", **more)
    assert len(unanswered_keys(tmp_path / "run", broken.manifest)) > 1
    assert tables(asked(Failing(), tmp_path / "run", **more)) == tables(whole)


@pytest.mark.costly("four runs are evaluated")
def test_an_interrupt_keeps_the_answers_that_came(
    asked: Asked, whole: Run, lacking: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = failed(lacking)
    with pytest.raises(KeyboardInterrupt):
        asked(Failing(most=9), lacking.folder)
    assert len(unanswered_keys(lacking.folder, read_manifest(lacking.folder))) == len(lost) - 9
    shutil.copytree(lacking.folder, tmp_path / "every")
    assert tables(asked(Failing(), lacking.folder)) == tables(whole)
    monkeypatch.setattr(run_folder, "FLUSH", -1.0)  # every answer is written when it comes
    assert tables(asked(Failing(), tmp_path / "every")) == tables(whole)
    assert keys_in(tmp_path / "every") == keys_in(whole.folder)
