"""What ``docs/design/adding.md`` promises: each kind of thing is added in the few files that it names."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from choicewise import evaluate
from choicewise.data.benchmarks import PLACE, open_benchmark
from choicewise.data.dataset import Dataset
from choicewise.data.files import ROW_READERS
from choicewise.data.items import Item
from choicewise.data.open import open_dataset
from choicewise.errors import ModelError
from choicewise.models.fake import HashModel
from choicewise.protocols.catalogue import resolve
from choicewise.protocols.readings import READINGS
from choicewise.questions import Prompt, Span, TokenScores
from choicewise.requests.prompters import PROMPTERS
from choicewise.scoring.combine import COMBINERS
from choicewise.store.folder import read_manifest
from choicewise.tokens.tokenizer import ByteTokenizer
from tests.paths import GOLDENS, ROOT

PACKAGE = ROOT / "src" / "choicewise"
QUIZ = Dataset(
    "quiz", {"test": (Item("1", "Where do birds live?", ("in a tree", "in the sea"), (0,)),)}
)


@cache
def sources() -> dict[Path, str]:
    return {file: file.read_text(encoding="utf-8") for file in PACKAGE.rglob("*.py")}


@pytest.mark.parametrize("reading", READINGS)
def test_no_other_file_knows_a_reading_by_its_name(reading: str) -> None:
    """But its rows in the three tables; where a name is also a word of the field, only comparisons count."""
    assert reading in PROMPTERS
    assert reading in COMBINERS
    own = {
        PACKAGE / file
        for file in ("protocols/readings.py", "requests/prompters.py", "scoring/combine.py")
    }
    others = {file: text for file, text in sources().items() if file not in own}
    assert [
        file for file, text in others.items() if re.search(f'reading [=!]= "{reading}"', text)
    ] == []


def test_a_data_format_is_a_reader_and_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Files of tab-separated values, with columns that are recognised as in every other format."""

    def tsv_rows(path: Path) -> Iterator[dict[str, Any]]:
        header, *rows = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]
        yield from (dict(zip(header, row, strict=True)) for row in rows)

    monkeypatch.setitem(ROW_READERS, ".tsv", tsv_rows)  # type: ignore[arg-type]
    file = tmp_path / "quiz.tsv"
    file.write_text(
        "question\tA\tB\tanswer\nWhere do birds live?\tin a tree\tin the sea\tA\n", encoding="utf-8"
    )
    (item,) = open_dataset(file).splits["test"]
    assert (item.question, item.choices, item.gold) == (
        "Where do birds live?",
        ("in a tree", "in the sea"),
        (0,),
    )


def test_a_protocol_is_one_file_that_states_what_differs(tmp_path: Path) -> None:
    file = tmp_path / "short.toml"
    file.write_text(
        'name = "mine/short"\nbase = "mmlu/original"\n\n[protocol]\nshots = 1\n', encoding="utf-8"
    )
    assert resolve(str(file)) == {
        "mine/short": replace(resolve("mmlu/original")["mmlu/original"], shots=1)
    }


def blocks(heading: str) -> list[str]:
    """The TOML texts under a heading of the page about adding."""
    page = (ROOT / "docs" / "design" / "adding.md").read_text(encoding="utf-8")
    section = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"```toml\n(.*?)```", section, re.DOTALL)


def test_a_benchmark_is_two_files_that_the_page_shows() -> None:
    data, recipe = blocks("A benchmark")
    for shown, file in (
        (data, "data/benchmarks/swag.toml"),
        (recipe, "protocols/catalog/swag/harness.toml"),
    ):
        assert tomllib.loads(shown) == tomllib.loads((PACKAGE / file).read_text(encoding="utf-8"))
    assert max(len(data.splitlines()), len(recipe.splitlines())) < 25


def test_a_benchmark_of_two_files_is_opened_and_scored_by_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """From rows in the Hub's field names, in the folder where fetched data are."""
    folder = tmp_path / "data" / "swag"
    folder.mkdir(parents=True)
    for split, rows in json.loads((GOLDENS / "exams" / "rows.json").read_text("utf-8"))["swag"][
        ""
    ].items():
        (folder / f"{split}.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    monkeypatch.setenv(PLACE, str(tmp_path / "data"))
    run = evaluate(
        model=HashModel(),
        data=open_benchmark("swag"),
        protocols=["swag/harness"],
        out=tmp_path / "run",
    )
    assert {row.identity.protocol for row in run.rows()} == {
        "swag/harness:acc",
        "swag/harness:acc_norm",
    }


def test_a_users_own_entry_inherits_what_the_benchmarks_share(tmp_path: Path) -> None:
    """The second file of a benchmark, before it has its place in the catalogue."""
    file = tmp_path / "own.toml"
    file.write_text(
        'base = "harness-texts"\n[protocol]\nbenchmark = "own"\nquestion = "{question}"\n', "utf-8"
    )
    ((name, protocol),) = resolve(str(file)).items()
    shown = resolve("swag/harness:acc")["swag/harness:acc"]
    assert (
        name,
        replace(protocol, benchmark="swag", split="validation", sampler="harness-spare"),
    ) == ("own", shown)


class Recorded:
    """A kind of model: it repeats the answers of another one, and supports nothing but spans."""

    name, digest, dtype, device, window = "recorded", "0" * 64, "float32", "cpu", 4096
    kind_name = ""
    supports = frozenset({Span})
    selfcheck = computed = planned = recipe = None

    def __init__(self, answers: dict[str, TokenScores]) -> None:
        self.tokenizer = ByteTokenizer()
        self._answers = answers

    def check(self, depth: int) -> None:
        """Nothing to choose from."""

    def objection(self, question: Prompt) -> None:
        """Every span has an answer."""

    def answer(self, questions: Sequence[Prompt]) -> Iterator[tuple[int, TokenScores]]:
        yield from (
            (index, self._answers[question.key]) for index, question in enumerate(questions)
        )


def test_a_kind_of_model_is_one_class(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    source, protocols, answers = HashModel(), ["options/cloze"], dict[str, TokenScores]()

    def recording(questions: Sequence[Prompt]) -> Iterator[tuple[int, TokenScores]]:
        for index, answer in HashModel().answer(questions):
            answers[questions[index].key] = answer
            yield index, answer

    monkeypatch.setattr(source, "answer", recording)
    first = evaluate(model=source, data=QUIZ, protocols=protocols, out=tmp_path / "first")
    repeated = evaluate(
        model=Recorded(answers), data=QUIZ, protocols=protocols, out=tmp_path / "repeated"
    )
    assert repeated.scores().to_pylist() == first.scores().to_pylist()
    with pytest.raises(ModelError, match="recorded .* Cosine.* embedding"):
        evaluate(
            model=Recorded({}), data=QUIZ, protocols=["options/embedding"], out=tmp_path / "other"
        )


PAGE = (ROOT / "docs" / "design" / "adding.md").read_text(encoding="utf-8")


@pytest.fixture
def stranger(tmp_path: Path) -> dict[str, str]:
    """An environment with every example of the page, ``# NAME.py``, installed as pip would install it."""
    site = tmp_path / "site"
    info = site / "stranger-1.dist-info"
    info.mkdir(parents=True)
    points = ["[choicewise.extensions]"]
    for code in re.findall(r"```python\n(# \w+\.py\n.*?)```", PAGE, re.DOTALL):
        assert len(code.splitlines()) <= 40
        name = code.split("\n")[0].removeprefix("# ").removesuffix(".py")
        (site / f"{name}.py").write_text(code, encoding="utf-8")
        if "EXTENSION = " in code:
            points.append(f"{name} = {name}:EXTENSION")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1\n")
    (info / "entry_points.txt").write_text("\n".join(points))
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(PACKAGE.parent), str(site)])}


def ran(environment: dict[str, str], folder: Path, *arguments: str) -> str:
    """Return what a command prints in a folder."""
    line = [sys.executable, "-m", "choicewise", *arguments]
    ended = subprocess.run(
        line, env=environment, cwd=folder, capture_output=True, encoding="utf-8", check=False
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.mark.costly("two commands in other processes")
def test_the_statistic_of_two_runs_and_the_chart_of_the_page_are_used(
    stranger: dict[str, str], tmp_path: Path
) -> None:
    for name, model in {"one": HashModel(), "other": HashModel(1)}.items():
        evaluate(model=model, data=QUIZ, protocols=["options/cloze:sum"], out=tmp_path / name)
    told = ran(stranger, tmp_path, "compare", "one", "other", "--ids")
    assert "same choice is predicted" in told
    ran(stranger, tmp_path, "plot", "one", "sizes", "--out", "sizes.json")
    assert json.loads((tmp_path / "sizes.json").read_text(encoding="utf-8"))[
        "description"
    ].startswith("Items of each run")


@pytest.mark.costly("a command in another process")
def test_the_score_and_the_reading_of_the_page_are_asked_by_name(
    stranger: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "quiz.csv").write_text(
        "question,A,B,answer\nWhere?,in a tree,in the sea,A\n", encoding="utf-8"
    )
    changes = ["", "@score=strongest", "@reading=contrary"]
    line = ["run", "--model", "fake:hash", "--data", "quiz.csv", "--out", "run", "--json"]
    for change in changes:
        line += ["--protocol", f"options/cloze:sum{change}"]
    rows = json.loads(ran(stranger, tmp_path, *line))
    assert [row["protocol"] for row in rows] == [f"options/cloze:sum{change}" for change in changes]
    assert rows[2]["value"] == 1 - rows[0]["value"]
    again = ran(stranger, tmp_path, "report", "run", "--json")
    assert [row["value"] for row in json.loads(again)] == [row["value"] for row in rows]


@pytest.mark.costly("a command in another process")
def test_the_kind_of_model_of_the_page_answers(stranger: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "quiz.csv").write_text(
        "question,A,B,answer\nWhere?,in a tree,in the sea,A\n", encoding="utf-8"
    )
    line = [
        "run",
        "--model",
        "uniform:bytes",
        "--data",
        "quiz.csv",
        "--protocol",
        "options/cloze",
        "--out",
        "run",
    ]
    values = {
        row["protocol"]: row["value"]
        for row in json.loads(ran(stranger, tmp_path, *line, "--json"))
    }
    assert (values["options/cloze:sum"], values["options/cloze:token_mean"]) == (
        1.0,
        0.5,
    )  # the shorter one, and both
    assert read_manifest(tmp_path / "run").model.kind == "uniform"


@pytest.mark.costly("three commands in other processes")
def test_the_reader_the_writer_and_the_command_of_the_page_are_found_by_name(
    stranger: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "week.diary").write_text(
        "monday;1;-2.5;-1.5\ntuesday;0;-3.5;-1.5\n", encoding="utf-8"
    )
    rows = json.loads(ran(stranger, tmp_path, "import", "week.diary", "--out", "run", "--json"))
    assert {row["protocol"]: row["value"] for row in rows}["week:sum"] == 0.5
    written = ran(stranger, tmp_path, "export", "run", "--format", "values", "--out", "values")
    assert "week:sum 0.500" in (tmp_path / written.strip()).read_text("utf-8").splitlines()
    assert ran(stranger, tmp_path, "count", "run") == f"run {len(rows)}\n"


@pytest.mark.costly("two commands in other processes")
def test_the_analysis_of_the_page_answers_with_its_option(
    stranger: dict[str, str], tmp_path: Path
) -> None:
    run = evaluate(
        model=HashModel(), data=QUIZ, protocols=["options/cloze:sum"], out=tmp_path / "run"
    )
    (measured,) = run.measurements.values()
    (table,) = json.loads(ran(stranger, tmp_path, "report", "run", "first", "--json"))
    (row,) = table["rows"]
    assert (row["model"], row["items"]) == (run.manifest.model.name, len(measured.prediction))
    assert row["first"] == (measured.prediction == 0).mean()
    printed = ran(stranger, tmp_path, "report", "run", "first", "--least", str(row["items"] + 1))
    assert row["protocol"] not in printed


@pytest.mark.costly("commands of a changed copy of the package")
def test_the_changes_that_the_page_shows_work_together(tmp_path: Path) -> None:
    """The data format of the page, put into a copy of the package as it stands."""
    if shutil.which("git") is None:
        pytest.skip("git applies the changes")
    shown = re.findall(r"```diff\n(.*?)```", PAGE, re.DOTALL)
    assert len(shown) == 1
    run = partial(subprocess.run, cwd=tmp_path, capture_output=True, encoding="utf-8")
    unneeded = shutil.ignore_patterns("__pycache__", "*.safetensors")
    shutil.copytree(PACKAGE, tmp_path / "src" / "choicewise", ignore=unneeded)
    for change in shown:
        applied = run(["git", "apply", "-"], input=change)
        assert applied.returncode == 0, f"{applied.stderr}\nwrite the change anew:\n{change}"
    (tmp_path / "quiz.psv").write_text(
        "question|A|B|answer\nWhere?|in a tree|in the sea|A\n", encoding="utf-8"
    )
    protocols = ["--protocol", "options/cloze"]
    line = [
        "run",
        "--model",
        "fake:hash",
        "--data",
        "quiz.psv",
        *protocols,
        "--out",
        "run",
        "--json",
    ]
    assert ran({**os.environ, "PYTHONPATH": str(tmp_path / "src")}, tmp_path, *line)
