"""From somebody's own file to a number in one start, and the lines that help where a start fails."""

import csv
import json
from pathlib import Path

import pytest

from choicewise.data.open import open_dataset
from choicewise.protocols.protocol import parse_signature
from choicewise.running.evaluate import evaluate
from choicewise.store.folder import read_manifest
from tests.helpers.commands import choicewise

HEADER = ("Question", "Option A", "Option B", "Option C", "Option D", "Correct", "Topic")


def write_quiz(path: Path, questions: int = 60, more: str = "") -> Path:
    rows = [
        (
            f"What is {n} plus {n} {more}?",
            *(f"{2 * n + step} apples" for step in range(4)),
            "ABCD"[n * 7 % 4],
            "sums",
        )
        for n in range(questions)
    ]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([HEADER, *rows])
    return path


@pytest.fixture
def quiz(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write_quiz(Path("quiz.csv"))


def line_of_run(quiz: Path, protocol: str) -> tuple[str | Path, ...]:
    """Return the words of a run of ``quiz`` into the folder ``q``."""
    return ("run", "--model", "fake:hash", "--data", quiz, "--protocol", protocol, "--out", "q")


def test_a_file_becomes_a_number_in_one_start(quiz: Path) -> None:
    told = choicewise(
        *line_of_run(quiz, "mmlu/original"),
        code=0,
    )
    columns, shots = told.stderr.splitlines()[:2]
    guess = "question = Question, choices = Option A..D, answer = Correct (label), subject = Topic"
    assert f"quiz.csv: {guess} " in columns
    assert "--mapping FILE" in columns
    for part in ("quiz", "`mmlu/original@shots=0`", "5-shot", "`--shots error`"):
        assert part in shots
    assert "mmlu/original@shots=0" in told.stdout
    assert "60 questions" in told.stdout
    manifest = read_manifest(Path("q"))
    (spelled,) = manifest.protocols.items()
    assert spelled[0] == "mmlu/original@shots=0"
    assert parse_signature(spelled[1]).shots == 0
    assert manifest.job["data"] == [
        {
            "path": "quiz.csv",
            "mapping": {
                "question": "Question",
                "choices": [*HEADER[1:5]],
                "answer": "Correct",
                "answer_is": "label",
                "subject": "Topic",
            },
        }
    ]
    again = choicewise(
        *line_of_run(quiz, "MMLU/original"),
        code=0,
    )
    assert again.stdout == told.stdout


def test_shots_are_those_that_are_asked_for(quiz: Path) -> None:
    start = line_of_run(quiz, "mmlu/original")
    told = choicewise(*start, "--shots", "error", code=3)
    assert "0 rows in split 'dev'" in told.stderr
    assert "without, as" not in told.stderr
    assert "0 rows in split 'dev'; 2" in choicewise(*start, "--shots", "2", code=3).stderr
    assert "shots is 'many'" in choicewise(*start, "--shots", "many", code=2).stderr
    assert not Path("q").exists()
    write_quiz(Path("quiz.dev.csv"), 6, "plus 1000")
    told = choicewise(*start, code=0)
    assert "without" not in told.stderr
    assert [*read_manifest(Path("q")).protocols] == ["mmlu/original"]
    choicewise(*start[:-1], "two", "--shots", "2", code=0)
    assert [*read_manifest(Path("two")).protocols] == ["mmlu/original@shots=2"]


def test_too_few_examples_are_an_error_as_before(quiz: Path) -> None:
    write_quiz(Path("quiz.dev.csv"), 3)
    told = choicewise(
        *line_of_run(quiz, "mmlu/original"),
        code=3,
    )
    assert "3 rows in split 'dev'; 5" in told.stderr
    assert "no few-shot examples" not in told.stderr


@pytest.mark.costly("whole runs")
def test_prompts_and_plans_take_shots(quiz: Path) -> None:
    line = choicewise(
        "prompts",
        "--data",
        quiz,
        "--protocol",
        "mmlu/original",
        "--limit",
        "1",
        "--shots",
        "0",
        code=0,
    )
    assert json.loads(line.stdout)["protocol"] == "mmlu/original@shots=0"
    assert "no few-shot examples" not in line.stderr
    Path("plan.toml").write_text(
        'models = ["fake:hash"]\nprotocols = ["mmlu/original"]\ndata = ["quiz.csv"]\nshots = 0'
    )
    choicewise("sweep", "plan.toml", "--out", "s", code=0)
    (folder,) = Path("s").glob("*/*/manifest.json")
    assert [*read_manifest(folder.parent).protocols] == ["mmlu/original@shots=0"]
    Path("plan.toml").write_text(
        'models = ["fake:hash"]\nprotocols = ["mmlu/original"]\nshots = "some"'
    )
    assert "shots is 'some'" in choicewise("sweep", "plan.toml", "--out", "t", code=2).stderr


@pytest.mark.costly("whole families of protocols")
def test_one_score_of_every_protocol(quiz: Path) -> None:
    start = (
        "run",
        "--model",
        "fake:hash",
        "--data",
        quiz,
        "--protocol",
        "mmlu/cf",
        "--protocol",
        "mmlu/cloze",
    )
    choicewise(*start, "--out", "q", "--limit", "5", "--score", "acc_norm", code=0)
    chosen = ["mmlu/cloze:char_mean_bare", "mmlu/olmes-cf:char_mean_bare@shots=0"]
    assert sorted(read_manifest(Path("q")).protocols) == chosen
    choicewise(*start, "--out", "all", "--limit", "5", code=0)
    rows = json.loads(choicewise("report", "all", "--score", "acc_norm", "--json", code=0).stdout)
    assert sorted(row["protocol"] for row in rows) == chosen
    assert (
        "score 'acc_nrom'; did" in choicewise("report", "all", "--score", "acc_nrom", code=2).stderr
    )


@pytest.mark.costly("whole families of protocols")
def test_a_way_between_protocols_goes_without_shots_as_a_whole(quiz: Path) -> None:
    start = ("run", "--model", "fake:hash", "--data", quiz, "--limit", "3", "--out", "q")
    told = choicewise(*start, "--protocol", "mmlu/original..mmlu/harness-v0:sum", code=0)
    assert "as `mmlu/original@shots=0..mmlu/harness-v0:sum@shots=0`" in told.stderr
    asked = read_manifest(Path("q")).protocols
    assert {parse_signature(each).shots for each in asked.values()} == {0}
    assert len(asked) > 4


@pytest.mark.costly("whole runs")
def test_a_ladder_is_between_what_was_named(quiz: Path) -> None:
    start = ("--model", "fake:hash", "--data", quiz, "--limit", "3", "--out", "q")
    assert (
        "0 rows in split 'dev'"
        in choicewise("ladder", "mmlu/original", "mmlu/cf:acc", *start, code=3).stderr
    )
    assert choicewise(
        "ladder", "mmlu/original@shots=0", "mmlu/cf:acc@shots=0", *start, code=0
    ).stdout


def test_the_names_of_scores_are_listed() -> None:
    listed = choicewise("protocols", code=0).stdout
    assert "acc_norm " in listed
    assert "char_mean_bare LM" in listed
    assert "FAMILY/olmes-cf" in listed


def test_data_shows_what_was_guessed(quiz: Path) -> None:
    shown = choicewise("data", quiz, code=0).stdout
    assert "shape     guessed" in shown
    lines = shown[shown.index("--mapping mapping.toml") :].splitlines()[1:]
    Path("mine.toml").write_text("\n".join(lines))
    declared = choicewise("data", quiz, "--mapping", "mine.toml", code=0).stdout
    assert declared.splitlines()[0] == shown.splitlines()[0]
    assert "shape     declared" in declared


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("gpt2", "openai-community/gpt2"),
        ("pythia-70m", "ORG/pythia-70m"),
        (
            "https://huggingface.co/EleutherAI/pythia-70m",
            "name the model EleutherAI/pythia-70m, ",
        ),
        (
            "https://huggingface.co/EleutherAI/pythia-70m/tree/step1",
            "model EleutherAI/pythia-70m@step1",
        ),
        (
            "https://huggingface.co/datasets/cais/mmlu",
            "cais/mmlu is a dataset",
        ),
        ("packed", "packed/a.gguf has only 0 bytes"),
        ("packed/a.gguf", "packed/a.gguf has only 0 bytes"),
    ],
)
def test_a_model_that_is_named_otherwise(quiz: Path, model: str, says: str) -> None:
    Path("packed").mkdir()
    Path("packed/a.gguf").touch()
    start = ("run", "--model", model, "--data", quiz, "--protocol", "mmlu/original")
    assert says in choicewise(*start, "--out", "q", code=5).stderr
    assert not Path("q").exists()


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (
            "https://huggingface.co/datasets/cais/mmlu",
            "name the dataset cais/mmlu, ",
        ),
        (
            "https://huggingface.co/datasets/cais/mmlu/viewer/anatomy/test",
            "dataset cais/mmlu:anatomy",
        ),
        (
            "https://hf.co/datasets/cais/mmlu/blob/abc/README.md?raw=1",
            "dataset cais/mmlu@abc",
        ),
        (
            "https://huggingface.co/EleutherAI/pythia-70m",
            "EleutherAI/pythia-70m is a model",
        ),
    ],
)
def test_data_that_are_named_by_their_page(data: str, says: str) -> None:
    start = ("run", "--model", "fake:hash", "--data", data, "--protocol", "mmlu/original")
    assert says in choicewise(*start, "--out", "q", code=3).stderr


def test_a_call_says_what_it_guesses(quiz: Path) -> None:
    with pytest.warns(UserWarning, match="quiz") as told:
        run = evaluate(
            model="fake:hash", data="quiz.csv", protocols=["mmlu/original"], out="q", limit=5
        )
    texts = [str(each.message) for each in told]
    assert any("question = Question" in text and "columns=" in text for text in texts)
    assert any("`mmlu/original@shots=0`" in text and 'shots="error"' in text for text in texts)
    assert [*run.protocols] == ["mmlu/original@shots=0"]
    assert read_manifest(Path("q")).job["data"][0]["mapping"]["answer"] == "Correct"
    data = open_dataset("quiz.csv")
    named = evaluate(
        model="fake:hash",
        data=data,
        protocols={"mine": run.protocols["mmlu/original@shots=0"]},
        out="m",
    )
    assert [*named.protocols] == ["mine"]
    zero = evaluate(model="fake:hash", data=data, protocols=["mmlu/original"], shots=0, out="z")
    assert [*zero.protocols] == ["mmlu/original@shots=0"]


def test_a_mapping_is_copied_from_the_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of three to five options, of which a line more is needed than was typed."""
    monkeypatch.chdir(tmp_path)
    rows = [("Which?", "A", "x", "y", "z", "", ""), ("Who?", "E", "v", "w", "x", "y", "z")]
    with Path("quiz.csv").open("w", newline="") as file:
        csv.writer(file).writerows(
            [("Question", "Answer Key", *(f"Option {n}" for n in range(1, 6))), *rows]
        )
    start = (
        "run",
        "--model",
        "fake:oracle",
        "--data",
        "quiz.csv",
        "--protocol",
        "options/cloze:sum",
        "--out",
        "q",
    )
    first, *lines, advice = choicewise(*start, code=3).stderr.splitlines()
    assert "Question, Answer Key, Option 1" in first
    assert "--mapping mapping.toml" in advice
    Path("mapping.toml").write_text("\n".join(lines))
    assert "2 questions" in choicewise(*start, "--mapping", "mapping.toml", code=0).stdout
    shown = choicewise("prompts", *start[3:7], "--mapping", "mapping.toml").stdout.splitlines()
    assert [len(json.loads(line)["continuations"]) for line in shown] == [3, 5]


def test_a_bad_row_is_left_out_as_its_error_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [(f"Which {n}?", "x", "y", "ABABAE"[n]) for n in range(6)]
    with Path("quiz.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("Question", "Option A", "Option B", "Correct"), *rows])
    shown = choicewise("data", "quiz.csv", code=2)
    data = ("--data", "quiz.csv", "--protocol", "options/cloze:sum")
    start = ("run", "--model", "fake:oracle", *data, "--out", "q")
    error = choicewise(*start, "--on-bad-item", "skip", code=3).stderr
    skip = "--mapping mapping.toml --on-bad-item skip"
    for text in (shown.stdout, error):
        assert "quiz.csv, row 7 " in text
        assert "'E'" in text
    assert skip in shown.stderr
    assert skip in error.splitlines()[-1]
    Path("mapping.toml").write_text(shown.stdout)
    assert "row 7" in choicewise(*start, "--mapping", "mapping.toml", code=3).stderr
    assert "5 questions" in choicewise(*start, *skip.split(), code=0).stdout


@pytest.mark.parametrize(
    ("protocol", "column"),
    [("boolq", "passage"), ("musr", "narrative"), ("copa", "asks_for"), ("sciq", "support")],
)
def test_a_protocol_without_its_column_is_left_out_by_name(
    quiz: Path, protocol: str, column: str
) -> None:
    alone = choicewise(*line_of_run(quiz, protocol), code=3)
    assert f"{protocol}/" in alone.stderr
    assert f"column {column}" in alone.stderr
    assert not Path("q").exists()
    told = choicewise(*line_of_run(quiz, protocol), "--protocol", "mmlu/cloze:sum", code=0)
    for part in (f"{protocol}/harness", f"column {column}", *HEADER):
        assert part in told.stderr
    assert [*read_manifest(Path("q")).protocols] == ["mmlu/cloze:sum"]
    said = choicewise("prompts", "--data", quiz, "--protocol", protocol, code=3).stderr
    assert f"{protocol}/" in said
    assert f"column {column}" in said


def test_a_sweep_leaves_out_what_a_run_leaves_out(quiz: Path) -> None:
    protocols = ("--protocol", "boolq", "--protocol", "winogrande/harness")
    choicewise(*line_of_run(quiz, "mmlu/cloze:sum"), *protocols, code=0)
    ours = ("--model", "fake:hash", "--data", quiz, "--protocol", "mmlu/cloze:sum")
    choicewise("sweep", *ours, *protocols, "--out", "s", code=0)
    (file,) = Path("s").glob("*/*/manifest.json")
    run, swept = (read_manifest(folder) for folder in (Path("q"), file.parent))
    assert run.protocols == swept.protocols
    assert run.refused == swept.refused
    assert "gap _" in run.refused["winogrande/harness"]
    strict = choicewise("sweep", *ours, *protocols, "--shots", "error", "--out", "t").stderr
    assert "split 'validation'" in strict
    assert not [*Path("t").glob("*/*/manifest.json")]


def test_rows_without_a_column_that_others_have_are_errors(quiz: Path) -> None:
    rows: list[dict[str, object]] = [
        {"question": f"Is {n}?", "choices": ["a", "b", "c", "d"], "answer": n % 4}
        for n in range(12)
    ]
    rows[11] |= {"passage": "Here is one.", "asks_for": "cause"}
    mixed = Path("mixed.jsonl")
    mixed.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    changes = "@split=test,choices=any,shots=0"
    for name, column in (("boolq/harness", "passage"), ("copa/harness", "asks_for")):
        line = (*line_of_run(mixed, f"{name}{changes}"), "--protocol", "mmlu/cloze:sum")
        told = choicewise(*line, code=3).stderr
        for part in (name, "item test/0", column, "8 more"):
            assert part in told
        assert not Path("q").exists()
    asked = ("prompts", "--data", mixed, "--protocol", f"boolq/harness{changes}")
    assert f"boolq/harness{changes}: item test/0" in choicewise(*asked, code=3).stderr
    assert len(choicewise(*asked, "--on-bad-item", "skip", code=0).stdout.splitlines()) == 1


def test_one_passage_is_enough_for_sciq(quiz: Path) -> None:
    rows: list[dict[str, object]] = [
        {"question": f"Is {n}?", "choices": ["a", "b"], "answer": n % 2} for n in range(12)
    ]
    rows[11]["support"] = "Water boils."
    some = Path("some.jsonl")
    some.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    choicewise(*line_of_run(some, "sciq/harness:acc@choices=any"), code=0)
    assert len(read_manifest(Path("q")).protocols) == 1
