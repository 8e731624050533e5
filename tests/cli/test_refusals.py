"""Protocols that a model can't be asked under are refused by name, with the reason, and the others are asked."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from choicewise import models
from choicewise.data.open import open_dataset
from choicewise.errors import ModelError, UsageError
from choicewise.extensions.run.plan import Plan, plan
from choicewise.models import opening
from choicewise.models.fake import HashModel
from choicewise.models.model import Model
from choicewise.protocols.catalogue import resolve
from choicewise.questions import Answers, Mass, Prompt, Span
from choicewise.records import Selection
from choicewise.results.run import open_run, refused_lines
from choicewise.running.evaluate import evaluate
from choicewise.running.job import Task
from choicewise.running.work import Work
from tests.helpers.commands import choicewise
from tests.helpers.messages import Gist

DATA = "bundled:merrowick"
LETTER, CLOZE, CHOSEN = "mmlu/original", "mmlu/cloze", "mmlu/helm"
SHORT = "it gives probabilities of two tokens at most, and this needs more"
NO_TEXT = "fake:hash generates no text"


class TwoTokens(HashModel):
    """Answers what is about two tokens at most, as a server does that has no probabilities of the prompt."""

    supports = frozenset({Span, Mass})
    kind_name = "server"

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Prompt] = []

    def objection(self, question: Prompt) -> str | None:
        return SHORT if isinstance(question, Span) and len(question.continuation) > 2 else None

    def answer(self, questions: Sequence[Prompt]) -> Answers:
        self.asked += questions
        yield from super().answer(questions)


@pytest.fixture
def two_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(opening.FAKES, "fake:hash", TwoTokens)
    monkeypatch.setattr(models.Fake, "remote", True)


def planned_for(model: Model, *names: str) -> Plan:
    """The plan of one question of each subject."""
    return plan(
        Task(model, Work.of(model, open_dataset(DATA), resolve(*names), Selection.of(limit=1)))
    )


@pytest.mark.costly("whole runs")
def test_what_can_not_be_asked_is_refused_by_name_and_the_rest_is_asked(tmp_path: Path) -> None:
    model, named = TwoTokens(), [LETTER, f"{CLOZE}:sum", CHOSEN]
    with pytest.warns(UserWarning, match="is refused") as told:
        run = evaluate(model=model, data=DATA, protocols=named, limit=2, out=tmp_path / "some")
    assert [*run.manifest.protocols] == [LETTER]
    assert run.manifest.refused == {f"{CLOZE}:sum": SHORT, CHOSEN: Gist(NO_TEXT)}
    assert [str(warning.message) for warning in told] == [
        f"protocol {CLOZE}:sum is refused: {SHORT}; the other protocols run",
        Gist(f"protocol {CHOSEN} is refused: {NO_TEXT} ... the other protocols run"),
    ]
    assert {warning.filename for warning in told} == {__file__}
    assert {
        len(question.continuation) for question in model.asked if isinstance(question, Span)
    } == {2}
    alone = evaluate(
        model=HashModel(), data=DATA, protocols=[LETTER], limit=2, out=tmp_path / "alone"
    )
    assert run.scores().to_pylist() == alone.scores().to_pylist()
    with pytest.warns(UserWarning, match="mmlu/helm is refused"):
        planned = planned_for(TwoTokens(), LETTER, CHOSEN)
    assert planned.refused == {CHOSEN: Gist(NO_TEXT)}
    assert planned.requests == planned_for(HashModel(), LETTER).requests
    with pytest.warns(UserWarning, match=r"mmlu/original\+turns is refused: .* chat template"):
        run = evaluate(
            model="fake:hash",
            data=DATA,
            protocols=[LETTER, f"{LETTER}+turns"],
            limit=1,
            out=tmp_path / "c",
        )
    assert [*run.manifest.protocols] == [LETTER]
    assert refused_lines({**{f"p{number}": "no" for number in range(10)}, "q": "never"}) == [
        "10 protocols are refused (p0, p1, p2, p3, p4, p5, p6, p7 and 2 more): no",
        "protocol q is refused: never",
    ]


def test_nothing_that_can_be_asked_is_an_error(tmp_path: Path) -> None:
    advice = "Use another protocol, "
    for protocols, message in (
        ([CHOSEN], f"fake:hash can't run {CHOSEN}: {NO_TEXT}.* {advice}"),
        ([CLOZE], f"fake:hash can't run mmlu/cloze:.* and 9 more protocols: {SHORT}. {advice}"),
        ([CLOZE, CHOSEN], f"fake:hash .* none of 11 protocols. {advice}"),
    ):
        with pytest.raises(ModelError, match=f"^{message}") as error:
            evaluate(model=TwoTokens(), data=DATA, protocols=protocols, out=tmp_path / "run")
    assert len(error.value.problems) == 2
    assert not [*tmp_path.iterdir()]


def test_a_later_line_may_add_what_is_refused_and_takes_back_what_no_longer_is(
    tmp_path: Path,
) -> None:
    asked: dict[str, Any] = {"data": DATA, "limit": 1, "out": tmp_path}
    evaluate(model=TwoTokens(), protocols=[LETTER], **asked)
    with pytest.warns(UserWarning, match="mmlu/helm is refused"):
        run = evaluate(model=TwoTokens(), protocols=[LETTER, CHOSEN], **asked)
    assert run.manifest.complete
    assert run.manifest.refused == {CHOSEN: Gist(NO_TEXT)}
    heals = HashModel()
    heals.kind_name = "server"
    run = evaluate(model=heals, protocols=[CHOSEN], **asked)
    assert run.manifest.refused == {}
    assert [*run.manifest.protocols] == [LETTER, CHOSEN]


def test_a_finished_run_of_a_model_that_runs_here_needs_no_tokenizer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {
        "model": HashModel(),
        "data": DATA,
        "protocols": [LETTER],
        "limit": 1,
        "out": tmp_path,
    }
    evaluate(**asked)
    monkeypatch.setattr(
        asked["model"].tokenizer, "encode", lambda *_, **__: pytest.fail("a text is encoded")
    )
    assert evaluate(**asked).manifest.complete


@pytest.mark.usefixtures("two_tokens")
def test_the_command_line_says_once_what_is_refused(tmp_path: Path) -> None:
    asked = [
        "run",
        "--model",
        "fake:hash",
        "--data",
        DATA,
        "--limit",
        "2",
        "--out",
        tmp_path / "run",
    ]
    asked += [word for name in (LETTER, CLOZE, CHOSEN) for word in ("--protocol", name)]
    planned, ran = choicewise(*asked, "--dry-run", code=0), choicewise(*asked, "--json", code=0)
    for told in (planned.stderr, ran.stderr):
        assert told.count("are refused") == told.count(CHOSEN) == 1
        assert "note: 10 protocols are refused (mmlu/cloze:char_mean_bare, mmlu/cloze:sum, " in told
        assert f"and 2 more): {SHORT}" in told
    assert "refused 10" in planned.stdout
    assert {row["protocol"] for row in json.loads(ran.stdout)} == {LETTER}
    assert set(open_run(tmp_path / "run").manifest.refused) >= {CHOSEN, f"{CLOZE}:sum"}
    assert (
        f"note: protocol {CHOSEN} is refused: {NO_TEXT}"
        in choicewise("report", tmp_path / "run", code=0).stderr
    )


@pytest.mark.usefixtures("two_tokens")
@pytest.mark.filterwarnings("ignore:.*is refused")
def test_a_ladder_to_a_refused_protocol_is_an_error(tmp_path: Path) -> None:
    words = ["ladder", LETTER, CHOSEN, "--model", "fake:hash", "--data", DATA, "--limit", "1"]
    assert (
        NO_TEXT in choicewise(*words, "--out", tmp_path / "run", code=ModelError.exit_code).stderr
    )
    assert not (tmp_path / "run").exists()
    run = evaluate(
        model=TwoTokens(), data=DATA, protocols=[LETTER, CHOSEN], limit=1, out=tmp_path / "run"
    )
    with pytest.raises(UsageError, match=f"{CHOSEN}; the run refused it: {NO_TEXT}"):
        run.choose([CHOSEN])
