"""Alarms beside the numbers: each appears where it should, and nowhere else."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from choicewise import evaluate
from choicewise.models.fake import HashModel, Oracle
from choicewise.page.item_views import ADVICE
from choicewise.protocols.catalogue import resolve
from choicewise.questions import Answers, Generation, Prompt, Span, TokenScores
from choicewise.records import ServerRecord
from choicewise.report.tables import serious_warnings
from choicewise.results.number import SERIOUS, WARNINGS, Number
from choicewise.results.run import open_run
from choicewise.store.folder import read_manifest, write_manifest
from tests.helpers.commands import choicewise
from tests.helpers.mmlu_data import write_mmlu
from tests.helpers.rows import made
from tests.helpers.unsure_models import Silent

TEXTS, LETTERS, GENERATED = "mmlu/cloze:sum", "mmlu/original", "mmlu/helm"


class Changed(HashModel):
    """``fake:hash`` with every log-probability as ``change`` makes it, from question and numbers."""

    def __init__(self, change: Callable[[Span, np.ndarray], np.ndarray]) -> None:
        super().__init__()
        self._change = change

    def answer(self, questions: Sequence[Prompt]) -> Answers:
        for index, scores in super().answer(questions):
            question = questions[index]
            logprobs = (
                self._change(question, scores.logprobs)
                if isinstance(question, Span)
                else scores.logprobs
            )
            yield (
                index,
                replace(scores, logprobs=np.asarray(logprobs, np.float32), ranks=scores.ranks * 0),
            )


class Writing(Oracle):
    """Writes something else than an option in every ``period``-th text."""

    def __init__(self, period: int) -> None:
        super().__init__()
        self._period, self._count = period, 0

    def _generate(self, generation: Generation) -> TokenScores:
        self._count += 1
        if self._count % self._period:
            return super()._generate(generation)
        return TokenScores.of([ord("?")], [-1.0], [0])


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_mmlu(tmp_path_factory.mktemp("data"), questions=30)


def text(question: Span) -> bytes:
    """The continuation that is asked about."""
    return bytes(question.continuation.tolist())


def only(data: Path, out: Path, model: object, protocol: str = TEXTS) -> Number:
    (row,) = evaluate(model=model, data=data, protocols=[protocol], out=out).rows()  # type: ignore[arg-type]
    return row


def raised(row: Number) -> set[str]:
    return set(row.diagnosis.warnings) & set(SERIOUS)


def test_an_oracle_raises_no_alarm(data: Path, tmp_path: Path) -> None:
    for number, protocol in enumerate((TEXTS, LETTERS, GENERATED)):
        row = only(data, tmp_path / str(number), Oracle(), protocol)
        assert (raised(row), serious_warnings([row])) == (set(), [])


def where_the_key_begins_with_0(value: float) -> Changed:
    return Changed(lambda question, logprobs: np.where(question.key[0] == "0", value, logprobs))


@pytest.mark.parametrize(("value", "alarming"), [(0.5, True), (1e-6, False)])
def test_positive_log_probabilities_are_alarming(
    value: float, alarming: bool, data: Path, tmp_path: Path
) -> None:
    assert (
        "positive" in raised(only(data, tmp_path / "run", where_the_key_begins_with_0(value)))
    ) == alarming


@pytest.mark.parametrize(
    ("model", "alarming"),
    [
        (where_the_key_begins_with_0(-9999.0), True),
        (Changed(lambda question, logprobs: logprobs * 0), True),
        (Changed(lambda question, logprobs: logprobs * (b"the red" not in text(question))), False),
    ],
    ids=["sentinel", "zeros", "certain"],
)
def test_placeholders_are_alarming(
    model: Changed, alarming: bool, data: Path, tmp_path: Path
) -> None:
    assert ("placeholder" in raised(only(data, tmp_path / "run", model))) == alarming


def test_margins_of_zero_are_alarming(data: Path, tmp_path: Path) -> None:
    flat = only(
        data, tmp_path / "flat", Changed(lambda question, logprobs: logprobs * 0 - 1.0), LETTERS
    )
    assert {"margins", "constant"} <= raised(flat)
    assert "many-tied" not in raised(flat)
    (line,) = serious_warnings([flat])  # what follows from it has no line of its own
    assert line.startswith("alarm: margins, ")
    told = choicewise("report", tmp_path / "flat", "--json")
    (row,) = json.loads(told.stdout)
    assert "margins" in row["alarms"]
    assert set(row["alarms"]) <= set(row["flags"])
    assert "alarm: margins" in told.stderr
    assert "margins" not in raised(only(data, tmp_path / "hash", HashModel(), LETTERS))


@pytest.mark.parametrize(
    ("losses", "flagged"),
    [
        ((4, 3, 2, 1, 0), True),
        ((0, 1, 2, 3, 4), True),
        ((2, 1, 0, 1, 2), False),
        ((3, 2, 1, 0, 4), False),
    ],
)
def test_predictions_of_the_longest_or_the_shortest_choice_are_flagged(
    losses: tuple[int, ...], flagged: bool, tmp_path: Path
) -> None:
    """``losses``: what each choice loses, by its length."""
    choices = ["a" * (length + 1) for length in range(5)]
    rows = [
        {"question": f"Which of {number}?", "choices": choices, "answer": number % 5}
        for number in range(16)
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    model = Changed(
        lambda question, logprobs: logprobs * 0 - losses[len(text(question)) - 2] / len(logprobs)
    )
    row = only(tmp_path / "rows.jsonl", tmp_path / "run", model, "options/cloze:sum")
    assert ("length" in row.diagnosis.warnings) == flagged, row.diagnosis.length_shift


@pytest.mark.parametrize(("tied", "alarming"), [(3, False), (4, True)])
def test_more_than_5_percent_of_ties_are_alarming(
    tied: int, alarming: bool, data: Path, tmp_path: Path
) -> None:
    ends = tuple(f"one of {number}".encode() for number in range(tied))

    def tie(question: Span, logprobs: np.ndarray) -> np.ndarray:
        context = bytes(question.context[question.context < 256].tolist())
        same = text(question).endswith(ends) and b"tides" in context[-60:]
        return np.where(np.arange(len(logprobs)) == 0, -1.0, 0.0) if same else logprobs

    row = only(data, tmp_path / "run", Changed(tie))
    assert (row.counts.ties, row.counts.n, "many-tied" in raised(row)) == (tied, 60, alarming)


@pytest.mark.parametrize(("lost", "alarming"), [(0, False), (1, True)])
def test_more_than_1_percent_missing_is_alarming(
    lost: int, alarming: bool, data: Path, tmp_path: Path
) -> None:
    model = Silent(
        lambda asked: lost > 0 and isinstance(asked, Span) and text(asked).endswith(b"red one of 3")
    )
    row = only(data, tmp_path / "run", model)
    assert (row.counts.missing, "many-missing" in raised(row)) == (2 * lost, alarming)


def test_scores_that_follow_length_are_no_warning_where_predictions_are_right(
    tmp_path: Path,
) -> None:
    """Sums fall with the length of a text, in every model."""
    choices = ["a" * (length + 1) for length in range(5)]
    rows = [
        {"question": f"Which of {number}?", "choices": choices, "answer": number % 5}
        for number in range(40)
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def falls(question: Span, logprobs: np.ndarray) -> np.ndarray:
        context = bytes(question.context[question.context < 256].tolist()).decode()
        number = context.rsplit("Which of ", 1)[1].split("?")[0]
        right = int(number) % 5 == len(text(question)) - 2
        return logprobs * 0 - (0.0 if right else 1.0)

    row = only(tmp_path / "rows.jsonl", tmp_path / "run", Changed(falls), "options/cloze:sum")
    assert (row.value, "length" in row.diagnosis.warnings) == (1.0, False)


def test_what_was_never_answered_has_no_number_and_no_alarm_about_one(
    data: Path, tmp_path: Path
) -> None:
    row = only(data, tmp_path / "run", Silent(lambda asked: True))
    assert (row.counts.n, row.counts.missing, raised(row)) == (0, 60, set())
    assert row.missing_reasons


@pytest.mark.parametrize(("period", "alarming"), [(30, False), (10, True)])
def test_more_than_5_percent_unparsed_is_alarming(
    period: int, alarming: bool, data: Path, tmp_path: Path
) -> None:
    row = only(data, tmp_path / "run", Writing(period), GENERATED)
    assert (row.counts.invalid, "many-unparsed" in raised(row)) == (60 // period, alarming)


@pytest.mark.costly("whole commands")
@pytest.mark.parametrize("changed", ["", "the model: a then, b now"])
def test_a_served_model_that_changed_is_alarming(changed: str, data: Path, tmp_path: Path) -> None:
    out, page = tmp_path / "run", tmp_path / "page.html"
    only(data, out, Oracle())
    write_manifest(
        out, replace(read_manifest(out), server=ServerRecord("a", "echo", changed=changed))
    )
    (row,) = open_run(out).rows()
    done = choicewise("report", out, "--all")
    choicewise("page", out, "--items", "1", "--out", page, code=0)
    assert ("served-model" in raised(row)) == bool(changed)
    assert ("alarm: served-model" in done.stderr) == bool(changed)
    assert changed in done.stderr
    assert ("the same probe differently" in page.read_text()) == bool(changed)


def test_chance_and_constant_are_alarming(data: Path, tmp_path: Path) -> None:
    first = Changed(
        lambda question, logprobs: logprobs * 0 - (1.0 if text(question) == b" A" else 2.0)
    )
    row = only(data, tmp_path / "first", first, LETTERS)
    assert {"constant", "chance"} <= raised(row)
    assert [line.split(",")[0] for line in serious_warnings([row])] == ["alarm: constant"]


def test_a_small_run_at_chance_is_one_short_flag(data: Path, tmp_path: Path) -> None:
    asked = [
        "--model",
        "fake:hash",
        "--data",
        data,
        "--protocol",
        TEXTS,
        "--limit",
        "10",
        "--out",
        tmp_path / "run",
    ]
    done = choicewise("run", *asked, code=0)
    (row,) = open_run(tmp_path / "run").rows()
    assert raised(row) <= {"chance"}
    assert done.stderr.count("alarm: ") == 0  # a line says that it is no better than guessing


def test_many_numbers_with_an_alarm_have_one_line() -> None:
    rows = [made(protocol=name, warnings=("chance",)) for name in list(resolve("mmlu"))[:5]] + [
        made(protocol=LETTERS)
    ]
    (line,) = serious_warnings(rows)
    assert (
        line
        == f"alarm: chance, 5 of 6 numbers, such as model under {rows[0].identity.protocol}: {WARNINGS['chance']}"
    )
    assert set(ADVICE) == set(WARNINGS) > set(SERIOUS)


@pytest.mark.parametrize("more", [["--all"], ["--by", "subjects"]])
def test_what_the_first_sentence_says_is_no_alarm_below(
    more: list[str], data: Path, tmp_path: Path
) -> None:
    asked = ["--model", "fake:hash", "--data", data, "--protocol", TEXTS, "--out", tmp_path / "run"]
    choicewise("run", *asked, "--limit", "10", code=0)
    told = choicewise("report", tmp_path / "run", *more, code=0)
    assert "no better than guessing" in told.stdout.lower()
    assert "standard error of guessing" in told.stdout
    assert "alarm: chance" not in told.stderr
    guesses = [
        made(value=0.25, warnings=("chance",)),
        made(value=0.25, warnings=("constant", "many-unparsed")),
    ]
    lines = [
        [line.split(",")[0] for line in serious_warnings(guesses, guesses=each)]
        for each in (True, False)
    ]
    assert lines == [["alarm: constant", "alarm: many-unparsed", "alarm: chance"], *lines[1:]]
    assert lines[1] == lines[0][:2]
