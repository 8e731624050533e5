"""Many models on many datasets: what fails is recorded, what is there is not opened again; folders of several runs."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from choicewise.cli.commands import invoke
from choicewise.data.dataset import Dataset
from choicewise.errors import ChoicewiseError, ModelError, StoreError, UsageError
from choicewise.extensions.run import sweep
from choicewise.extensions.run.commands import INCOMPLETE
from choicewise.extensions.run.sweep import SweepProgress, read_plan
from choicewise.models.fake import AntiOracle, HashModel, Oracle
from choicewise.page.study import read_study
from choicewise.results.run import open_run
from choicewise.results.sweep import one_run, run_folders
from choicewise.running import job as job_module
from choicewise.running.job import Source, Task, sources_of
from choicewise.store.folder import read_manifest, read_sweep
from tests.helpers.commands import choicewise
from tests.helpers.messages import Gist
from tests.helpers.mmlu_data import write_mmlu
from tests.helpers.study import Study
from tests.helpers.suite_data import TRIO, known_suites, write_benchmarks

PROTOCOLS = ["mmlu/original", "winogrande/harness"]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The questions of three small benchmarks."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return write_benchmarks(tmp_path / "data", monkeypatch)


@pytest.fixture
def trio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The name of a suite, which is known meanwhile."""
    with known_suites(tmp_path, monkeypatch, trio=TRIO.format(more="")):
        yield ["tests/trio"]


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every model that is loaded, and every dataset that is opened, from now on."""
    seen: list[str] = []
    models = {"fake:hash": HashModel, "fake:oracle": Oracle, "fake:anti-oracle": AntiOracle}

    def load(name: str, **options: Any) -> Any:
        seen.append(name)
        if name == "broken":
            raise ModelError("it has no weights")
        if name == "burning":
            raise MemoryError("out of memory")
        return models[name]()

    def open_it(source: Source, progress: object = None) -> Dataset:
        seen.append(source.name)
        return opened(source)

    opened = Source.open
    monkeypatch.setattr(job_module, "load_model", load)
    monkeypatch.setattr(Source, "open", open_it)
    return seen


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def line(out: Path, *models: str, protocols: list[str] = PROTOCOLS) -> list[str]:
    words = [word for model in models for word in ("--model", model)]
    return [
        "sweep",
        *words,
        *(word for name in protocols for word in ("--protocol", name)),
        "--out",
        str(out),
    ]


def run_line(out: Path, model: str) -> list[str]:
    return ["run", "--model", model, *line(out)[1:]]


@pytest.mark.costly("five sweeps")
def test_only_what_is_new_is_loaded_or_opened(data: Path, loads: list[str], out: Path) -> None:
    def opened(*models: str, protocols: list[str] = PROTOCOLS, code: int = 0) -> list[str]:
        loads.clear()
        choicewise(*line(out, *models, protocols=protocols), code=code)
        return loads

    assert opened("fake:hash", "fake:oracle") == ["mmlu", "winogrande", "fake:hash", "fake:oracle"]
    cells = read_sweep(out).cells
    assert all(read_manifest(out / cell.folder).complete and cell.done for cell in cells)
    assert [(cell.model, cell.folder) for cell in cells] == [
        *(("fake:hash", "fake-hash/mmlu"), ("fake:hash", "fake-hash/winogrande")),
        *(("fake:oracle", "fake-oracle/mmlu"), ("fake:oracle", "fake-oracle/winogrande")),
    ]
    assert opened("fake:hash", "fake:oracle") == []
    more = [*PROTOCOLS, "mmlu/helm"]
    assert opened("fake:hash", protocols=more) == ["mmlu", "fake:hash"]
    assert set(read_manifest(out / "fake-hash/mmlu").protocols) == {"mmlu/original", "mmlu/helm"}
    assert opened("fake:hash", "fake:anti-oracle", protocols=more) == [
        "mmlu",
        "winogrande",
        "fake:anti-oracle",
    ]
    file = data / "winogrande/validation.jsonl"
    file.write_text(
        file.read_text(encoding="utf-8").replace("too small", "too narrow"), encoding="utf-8"
    )
    assert opened("fake:hash", protocols=more, code=INCOMPLETE) == ["winogrande", "fake:hash"]
    (failed,) = (cell for cell in read_sweep(out).cells if cell.failure)
    assert "made for another dataset" in failed.failure


@pytest.mark.costly("sweeps of four and two models")
def test_a_failure_is_recorded_and_the_sweep_goes_on(
    data: Path, loads: list[str], out: Path
) -> None:
    models = ["broken", "fake:hash", "burning", "fake:oracle"]
    (data / "winogrande").rename(data / "gone")
    printed = choicewise(*line(out, *models), code=INCOMPLETE)
    assert [name for name in loads if name not in ("mmlu", "winogrande")] == models
    failures = {(cell.model, cell.dataset): cell.failure for cell in read_sweep(out).cells}
    assert failures["broken", "mmlu"] == "it has no weights"
    assert failures["burning", "mmlu"] == "MemoryError: out of memory"
    assert failures["fake:hash", "mmlu"] == failures["fake:oracle", "mmlu"] == ""
    assert all("winogrande" in failures[model, "winogrande"] for model in ("broken", "fake:hash"))
    assert "6 of 8 runs are missing" in printed.stderr
    assert "burning on mmlu: MemoryError:" in printed.stderr
    assert "mmlu/original" in printed.stdout
    (data / "gone").rename(data / "winogrande")
    choicewise(
        *line(out, "fake:hash", "fake:oracle"), code=0
    )  # what failed goes with the line that asked for it
    assert (read_sweep(out).models, read_sweep(out).missing) == (("fake:hash", "fake:oracle"), ())


@pytest.mark.costly("three sweeps")
def test_runs_of_an_earlier_line_stay(
    data: Path, loads: list[str], trio: list[str], out: Path
) -> None:
    with pytest.raises(UsageError, match="no run in .*choicewise sweep"):
        invoke(line(out, "broken", protocols=trio))
    choicewise(*line(out, "fake:hash"), code=0)
    assert (read_sweep(out).models, read_sweep(out).suites) == (("fake:hash",), ())
    choicewise(*line(out, "fake:oracle", "broken", protocols=trio), code=INCOMPLETE)
    assert "runs are missing" not in choicewise(*line(out, "fake:hash"), code=0).stderr
    there = [("fake:hash", name) for name in ("mmlu", "winogrande")]
    there += [("fake:oracle", name) for name in ("mmlu", "winogrande", "arc-easy")]
    assert sorted(
        (cell.model, cell.dataset) for cell in read_sweep(out).cells if cell.done
    ) == sorted(there)
    assert [each.name for each in read_sweep(out).suites] == ["tests/trio"]
    assert len(read_sweep(out).cells) == len(there)


def test_a_refused_line_leaves_nothing_in_the_folder(
    data: Path, loads: list[str], trio: list[str], out: Path
) -> None:
    with pytest.raises(ModelError, match="no weights"):  # as it is one model
        invoke(run_line(out, "broken"))
    assert (loads, list(out.iterdir())) == (["mmlu", "winogrande", "broken"], [])
    choicewise(*run_line(out, "fake:hash"), code=0)
    before = read_sweep(out)
    with pytest.raises(ModelError):
        invoke([*run_line(out, "broken"), "--protocol", *trio])
    assert read_sweep(out) == before


@pytest.mark.parametrize(
    ("words", "error", "done"),
    [
        (["sweep", "--model", "fake:hash"], KeyboardInterrupt(), [True, False]),
        (["run", "--model", "fake:hash"], ModelError("it can't be asked any more"), [True]),
    ],
)
@pytest.mark.usefixtures("data")
def test_a_line_that_is_stopped_on_the_way_keeps_what_it_began_and_goes_on(
    monkeypatch: pytest.MonkeyPatch,
    loads: list[str],
    out: Path,
    words: list[str],
    error: BaseException,
    done: list[bool],
) -> None:
    compute = sweep.compute

    def stopped(task: Task, *more: Any) -> Any:
        if task.work.data.name == "winogrande":
            raise error
        return compute(task, *more)

    monkeypatch.setattr(sweep, "compute", stopped)
    with pytest.raises(type(error)) as caught:
        invoke([*words, *line(out)[1:]])
    assert caught.value is error
    assert [cell.done for cell in read_sweep(out).cells] == done
    monkeypatch.setattr(sweep, "compute", compute)
    loads.clear()
    choicewise(*words, *line(out)[1:], code=0)
    assert loads == ["winogrande", "fake:hash"]


def test_protocols_are_asked_on_the_data_that_they_can_ask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_mmlu(tmp_path / "quiz", questions=3)
    blanks = {
        "sentence": "The cup held the tin, as _ was big.",
        "option1": "cup",
        "option2": "tin",
        "answer": "1",
    }
    (tmp_path / "blanks").mkdir()
    (tmp_path / "blanks/validation.jsonl").write_text(f"{json.dumps(blanks)}\n")
    plan = 'models = ["fake:hash"]\nprotocols = ["mmlu/original", "winogrande/harness"]\ndata = ["quiz", "blanks"]'
    (tmp_path / "plan.toml").write_text(plan)
    said = choicewise("sweep", "plan.toml", "--out", "out", code=0).stderr
    assert said == Gist("blanks runs ... mmlu/original: ")
    assert said == Gist("quiz runs ... winogrande/harness: ")
    asked = {
        name: [*read_manifest(tmp_path / "out/fake-hash" / name).protocols]
        for name in ("quiz", "blanks")
    }
    assert asked == {"quiz": ["mmlu/original"], "blanks": ["winogrande/harness"]}
    (tmp_path / "plan.toml").write_text(plan.replace('"mmlu/original", ', ""))
    said = choicewise("sweep", "plan.toml", "--out", "alone", code=INCOMPLETE).stderr
    assert "quiz is left out" in said


PLAN = """
protocols = ["mmlu/original", "winogrande/harness"]
limit = 2
dtype = "float32"
models = [
    {{name = "a", revisions = ["step1", "step2"], window = 7, adapter = "tuned"}},
    {{name = "fake:hash", chat = "turns"}},
]
data = [{{path = "{own}", benchmark = "mmlu"}}]
"""


def test_a_plan_says_models_data_and_protocols(
    tmp_path: Path, loads: list[str], data: Path
) -> None:
    own = write_mmlu(tmp_path / "own", questions=4)
    (tmp_path / "plan.toml").write_text(PLAN.format(own=own), encoding="utf-8")
    plan = read_plan(tmp_path / "plan.toml")
    assert [model.label for model in plan.choices] == [
        "a@step1, dtype float32, window 7, adapter tuned",
        "a@step2, dtype float32, window 7, adapter tuned",
        "fake:hash, chat turns",
    ]
    assert [(source.name, source.path) for source in sources_of(plan)] == [
        ("mmlu", str(own)),
        ("winogrande", None),
    ]
    assert plan.limit == 2
    (tmp_path / "small.toml").write_text(
        'models = ["fake:hash"]\nprotocols = ["mmlu/original"]\nlimit = 1\n', "utf-8"
    )
    choicewise("sweep", tmp_path / "small.toml", "--out", tmp_path / "out", code=0)
    assert read_manifest(tmp_path / "out/fake-hash/mmlu").selection.limit == 1


PROTOCOL, GOOD = '\nprotocols = ["mmlu"]', 'models = ["m"]\nprotocols = ["mmlu"]\n'


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("models = 1", "models is 1; "),
        ('models = ["m"]', "protocols is missing"),
        (f"{GOOD}model = 2", "did you mean models?"),
        (f"{GOOD}limit = 0", "limit is 0; ... at least 1"),
        (f'models = [{{name = "m", dtype = "int3"}}]{PROTOCOL}', "models[0].dtype is 'int3'"),
        (f'models = ["m", {{dtype = "float32"}}]{PROTOCOL}', "models[1].name is missing"),
        (f'models = ["m", "m"]{PROTOCOL}', "models: m is named twice"),
        (f'models = ["m", 3]{PROTOCOL}', "models[1] is 3"),
        ('models = ["m"]\nprotocols = ["mlu"]', "protocol is called 'mlu'"),
        (f'{GOOD}data = [{{path = "d", benchmark = "piqa"}}]', "no protocol uses piqa"),
        (f'{GOOD}data = ["d", {{path = "e", benchmark = "mmlu"}}]', "d has no benchmark"),
        (f'{GOOD}data = [{{path = "d", mapping = {{colour = "q"}}}}]', "not a key"),
        ("models = ", "not valid TOML"),
        (f"models = {'[' * 5000}", "nested too deeply"),
        (f"models.{'a.' * 1000}b = 1", "nested too deeply"),
    ],
)
def test_what_is_wrong_in_a_plan_is_said_with_file_and_key(
    text: str, reason: str, tmp_path: Path
) -> None:
    file = tmp_path / "plan.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        job = read_plan(file)
        try:
            assert job.choices
            sources_of(job)
        except ChoicewiseError as error:
            raise UsageError(f"{file}: {error}") from error
    assert str(caught.value).startswith(str(file))
    assert str(caught.value) == Gist(reason)


def test_a_line_that_says_too_little_or_too_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for words, reason in [
        (["plan.toml"], "--out is missing"),
        (["--model", "fake:hash", "--out", "o"], "--protocol missing"),
        (["plan.toml", "--model", "fake:hash", "--out", "o"], "--model does not apply"),
        (["nowhere.toml", "--out", "o"], "can't be read"),
    ]:
        with pytest.raises(UsageError, match=reason):
            invoke(["sweep", *words])


def test_several_datasets_are_asked_under_all_protocols(tmp_path: Path, out: Path) -> None:
    places = [
        write_mmlu(tmp_path / name / "quiz", questions=count)
        for name, count in (("one", 3), ("two", 4))
    ]
    words = [word for place in places for word in ("--data", place)]
    choicewise(
        "sweep", "--model", "fake:hash", *words, "--protocol", "mmlu/original", "--out", out, code=0
    )
    assert [cell.folder for cell in read_sweep(out).cells] == ["fake-hash/quiz", "fake-hash/quiz-2"]
    rows = json.loads(choicewise("report", "--json", out / "fake-hash", code=0).stdout)
    assert [row["n"] for row in rows] == [6, 8]


def test_other_folders_and_damaged_ones_are_refused(out: Path, data: Path, study: Study) -> None:
    out.mkdir()
    (out / "letter.txt").write_text("Dear all")
    with pytest.raises(StoreError, match="holds other files"):
        invoke(line(out, "fake:hash"))
    (out / "letter.txt").unlink()
    for text, reason in (("{", "damaged"), ('{"format": "x"}', "not a sweep of Choicewise")):
        (out / "sweep.json").write_text(text)
        with pytest.raises(StoreError, match=reason):
            invoke(line(out, "fake:hash"))
    cell = {
        "model": "m",
        "dataset": "d",
        "folder": "../away",
        "asked": "",
        "done": False,
        "failure": "",
    }
    content = {
        "format": "choicewise-sweep",
        "version": 1,
        "protocols": [],
        "suites": [],
        "cells": [cell],
    }
    for change, reason in (
        ({}, "../away is outside"),
        ({"version": 2}, "upgrade"),
        ({"cells": 1}, "field cells"),
    ):
        (out / "sweep.json").write_text(json.dumps({**content, **change}))
        with pytest.raises(StoreError, match=reason):
            invoke(["report", str(out)])
    with pytest.raises(StoreError, match="of a single run"):
        invoke(line(study.hash, "fake:hash"))


@pytest.mark.costly("a page is written")
def test_readers_and_pages_take_a_folder_of_runs(
    data: Path, trio: list[str], out: Path, tmp_path: Path
) -> None:
    choicewise(*line(out, "fake:hash", "fake:oracle", protocols=trio), code=0)
    assert "tests/trio: values in %" in choicewise("report", out, code=0).stdout
    assert "tides" in choicewise("report", "--by", "subjects", out, code=0).stdout
    assert (
        "winogrande/harness"
        in choicewise("compare", out / "fake-hash", out / "fake-oracle", code=0).stdout
    )
    with pytest.raises(UsageError, match="on the same data"):
        invoke(["compare", str(out), str(out / "fake-oracle")])
    with pytest.raises(UsageError, match="holds 6 runs"):
        invoke(["explain", str(out), "--item", "tides/test/0"])
    choicewise("explain", out / "fake-hash/mmlu", "--item", "tides/test/0", code=0)
    pytest.importorskip("jinja2")
    pytest.importorskip("vl_convert")
    choicewise("page", out, "--out", tmp_path / "page.html", "--items", "0", code=0)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "tests/trio: values in %" in page
    assert "12 questions are too few" in page
    assert "choicewise explain out/fake-hash/mmlu --item ID" in page
    averages = page.partition('id="averages"')[2].partition("</section>")[0]
    assert averages.index("fake:oracle") < averages.index("fake:hash")


def test_progress_over_all_runs_only_grows() -> None:
    shares: list[tuple[int, int]] = []
    shown = SweepProgress(lambda done, total: shares.append((done, total)), 30)
    first = shown.run(10)
    first(0, 4)
    first(2, 4)
    first(0, 8)  # it begins again
    second = shown.run(20)  # beside the first
    second(1, 2)
    first(1, 1)
    second(1, 1)
    assert shares == [(0, 30), (5, 30), (5, 30), (15, 30), (20, 30), (30, 30)]


# A folder that holds runs stands for them, wherever a command takes run folders


def test_a_folder_stands_for_the_runs_directly_in_it(study: Study, tmp_path: Path) -> None:
    folder = study.hash.parent
    assert run_folders([folder]) == [study.anti, study.hash, study.oracle]
    assert run_folders([study.oracle, folder]) == [study.oracle, study.anti, study.hash]
    assert (run_folders([study.hash]), one_run(study.hash)) == ([study.hash], study.hash)
    with pytest.raises(UsageError, match="holds 3 runs"):
        one_run(folder)
    (tmp_path / "page.html").write_text("<p>a page</p>", encoding="utf-8")
    study.copy(tmp_path / "deep" / "runs" / "hash")
    for other in (tmp_path / "deep", study.data, tmp_path / "page.html", tmp_path / "nothing"):
        assert run_folders([other]) == [other]
        with pytest.raises(StoreError, match="not a run folder"):
            open_run(run_folders([other])[0])


@pytest.mark.costly("three runs in five commands")
def test_every_command_takes_it_and_a_folder_of_one_run_is_that_run(
    study: Study, tmp_path: Path
) -> None:
    folder, table = study.hash.parent, tmp_path / "table.md"
    report = choicewise("report", folder, code=0)
    assert "choicewise ladder" not in report.stderr
    choicewise("report", folder, "multiverse", code=0)
    choicewise("export", folder, "--format", "markdown", "--out", table, code=0)
    assert len(read_study([folder]).runs) == 3
    for printed in (report.stdout, table.read_text(encoding="utf-8")):
        assert all(name in printed for name in ("fake:hash", "fake:oracle"))
    study.copy(tmp_path / "alone" / "hash")
    assert "oracle" in choicewise("compare", tmp_path / "alone", study.oracle, code=0).stdout
    said = choicewise("report", study.hash, code=0).stderr
    (words,) = re.findall("choicewise (ladder .*)", said)  # which is of one run
    choicewise(*shlex.split(words), code=0)


def test_a_bad_item_is_refused_before_the_model_is_loaded(tmp_path: Path) -> None:
    rows = [{"question": "Q?", "choices": ["a", "b", "c"], "answer": 0, "subject": "s"}] * 2
    data = tmp_path / "quiz.jsonl"
    data.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    words = ["run", "--model", "no/such", "--data", data, "--protocol", "mmlu/original"]
    strict = ("--shots", "error", "--out", tmp_path / "out")
    assert "3 choices" in choicewise(*words, *strict, code=3).stderr
    assert not (tmp_path / "out").exists()
