"""Many models on many datasets: what fails is recorded, what is there is not opened again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from choicewise.cli.commands import invoke
from choicewise.cli.run import INCOMPLETE
from choicewise.data.dataset import Dataset
from choicewise.errors import ChoicewiseError, ModelError, StoreError, UsageError
from choicewise.models.fake import HashModel, Oracle
from choicewise.running import job as job_module
from choicewise.running import sweep
from choicewise.running.job import Source, read_plan, sources_of
from choicewise.running.progress import SweepProgress
from choicewise.store.folder import read_manifest, read_sweep
from tests.helpers.mmlu_data import write_mmlu
from tests.helpers.suite_data import TRIO, known_suites, write_benchmarks

pytestmark = pytest.mark.costly("runs are evaluated")

PROTOCOLS = ["mmlu/original", "winogrande/harness"]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The questions of three small benchmarks."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return write_benchmarks(tmp_path / "data", monkeypatch)


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every model that is loaded, and every dataset that is opened, from now on."""
    seen: list[str] = []
    models = {"fake:hash": HashModel, "fake:oracle": Oracle, "a/step1": HashModel, "a/step2": HashModel}

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


def line(out: Path, *models: str, protocols: list[str] = PROTOCOLS) -> list[str]:
    words = [word for model in models for word in ("--model", model)]
    return ["sweep", *words, *(word for name in protocols for word in ("--protocol", name)), "--out", str(out)]


def test_every_model_is_loaded_once_and_finished_parts_are_not_opened_again(
    data: Path, loads: list[str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    assert invoke(line(out, "fake:hash", "fake:oracle")) == 0
    assert loads == ["mmlu", "winogrande", "fake:hash", "fake:oracle"]
    cells = read_sweep(out).cells
    assert all(read_manifest(out / cell.folder).complete and cell.done for cell in cells)
    assert [(cell.model, cell.folder) for cell in cells] == [
        *(("fake:hash", "fake-hash/mmlu"), ("fake:hash", "fake-hash/winogrande")),
        *(("fake:oracle", "fake-oracle/mmlu"), ("fake:oracle", "fake-oracle/winogrande")),
    ]
    loads.clear()
    assert invoke(line(out, "fake:hash", "fake:oracle")) == 0
    assert loads == []


def test_only_what_changed_is_opened_again(data: Path, loads: list[str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert invoke(line(out, "fake:hash")) == 0
    loads.clear()
    assert invoke(line(out, "fake:hash", protocols=[*PROTOCOLS, "mmlu/helm"])) == 0
    assert loads == ["mmlu", "fake:hash"]
    assert set(read_manifest(out / "fake-hash/mmlu").protocols) == {"mmlu/original", "mmlu/helm"}
    loads.clear()
    assert invoke(line(out, "fake:hash", "fake:oracle", protocols=[*PROTOCOLS, "mmlu/helm"])) == 0
    assert loads == ["mmlu", "winogrande", "fake:oracle"]
    loads.clear()
    file = data / "winogrande/validation.jsonl"
    file.write_text(file.read_text(encoding="utf-8").replace("too small", "too narrow"), encoding="utf-8")
    assert invoke(line(out, "fake:hash", protocols=[*PROTOCOLS, "mmlu/helm"])) == INCOMPLETE
    assert loads == ["winogrande", "fake:hash"]
    (failed,) = (cell for cell in read_sweep(out).cells if cell.failure)
    assert "was made for another dataset" in failed.failure


def test_a_failure_is_recorded_and_the_sweep_goes_on(
    data: Path, loads: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    (data / "winogrande").rename(data / "gone")
    assert invoke(line(out, "broken", "fake:hash", "burning", "fake:oracle")) == INCOMPLETE
    assert [name for name in loads if name not in ("mmlu", "winogrande")] == [
        *("broken", "fake:hash", "burning", "fake:oracle")
    ]
    failures = {(cell.model, cell.dataset): cell.failure for cell in read_sweep(out).cells}
    assert failures["broken", "mmlu"] == "it has no weights"
    assert failures["burning", "mmlu"] == "MemoryError: out of memory"
    assert failures["fake:hash", "mmlu"] == failures["fake:oracle", "mmlu"] == ""
    assert all("winogrande" in failures[model, "winogrande"] for model in ("broken", "fake:hash"))
    told = capsys.readouterr()
    assert "6 of 8 runs are missing" in told.err
    assert "burning on mmlu: MemoryError: out of memory" in told.err
    assert "mmlu/original" in told.out
    (data / "gone").rename(data / "winogrande")
    assert invoke(line(out, "fake:hash", "fake:oracle")) == 0, "what failed goes with the line that asked for it"
    assert read_sweep(out).models == ("fake:hash", "fake:oracle")
    assert read_sweep(out).missing == ()


def test_runs_of_an_earlier_line_stay_without_what_failed(
    data: Path, loads: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    with known_suites(tmp_path, monkeypatch, trio=TRIO.format(more="")):
        with pytest.raises(UsageError, match="no run is there"):
            invoke(line(out, "broken", protocols=["tests/trio"]))
        assert invoke(line(out, "fake:hash")) == 0
        assert (read_sweep(out).models, read_sweep(out).suites) == (("fake:hash",), ())
        assert invoke(line(out, "fake:oracle", "broken", protocols=["tests/trio"])) == INCOMPLETE
    capsys.readouterr()
    assert invoke(line(out, "fake:hash")) == 0
    assert "runs are missing" not in capsys.readouterr().err
    there = [("fake:hash", name) for name in ("mmlu", "winogrande")]
    there += [("fake:oracle", name) for name in ("mmlu", "winogrande", "arc-easy")]
    assert sorted((cell.model, cell.dataset) for cell in read_sweep(out).cells if cell.done) == sorted(there)
    assert [each.name for each in read_sweep(out).suites] == ["tests/trio"]
    assert len(read_sweep(out).cells) == len(there)


def test_a_refused_line_leaves_nothing_in_the_folder(
    data: Path, loads: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    words = line(out, protocols=PROTOCOLS)[1:]
    with pytest.raises(ModelError, match="no weights"):
        invoke(["run", "--model", "broken", *words])
    assert list(out.iterdir()) == []
    assert invoke(["run", "--model", "fake:hash", *words]) == 0
    before = read_sweep(out)
    with known_suites(tmp_path, monkeypatch, trio=TRIO.format(more="")), pytest.raises(ModelError):
        invoke(["run", "--model", "broken", *words, "--protocol", "tests/trio"])
    assert read_sweep(out) == before


def test_a_line_that_fails_on_the_way_keeps_what_it_began(
    data: Path, loads: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluate = sweep.evaluate

    def failing(**given: Any) -> Any:
        if given["data"].name == "winogrande":
            raise ModelError("it can't be asked any more")
        return evaluate(**given)

    monkeypatch.setattr(sweep, "evaluate", failing)
    with pytest.raises(ModelError, match="any more"):
        invoke(["run", "--model", "fake:hash", *line(tmp_path / "out", protocols=PROTOCOLS)[1:]])
    assert [(cell.dataset, cell.done) for cell in read_sweep(tmp_path / "out").cells] == [("mmlu", True)]


def test_protocols_are_asked_on_the_data_that_they_can_ask(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_mmlu(tmp_path / "quiz", questions=3)
    blanks = {"sentence": "The cup held the tin, as _ was big.", "option1": "cup", "option2": "tin", "answer": "1"}
    (tmp_path / "blanks").mkdir()
    (tmp_path / "blanks/validation.jsonl").write_text(f"{json.dumps(blanks)}\n")
    plan = 'models = ["fake:hash"]\nprotocols = ["mmlu/original", "winogrande/harness"]\ndata = ["quiz", "blanks"]'
    (tmp_path / "plan.toml").write_text(plan)
    assert invoke(["sweep", "plan.toml", "--out", "out"]) == 0
    told = capsys.readouterr().err
    assert "mmlu/original can't be asked on blanks, and is left out there: " in told
    assert "winogrande/harness can't be asked on quiz, and is left out there: " in told
    assert [set(read_manifest(tmp_path / "out/fake-hash" / name).protocols) for name in ("quiz", "blanks")] == [
        {"mmlu/original"},
        {"winogrande/harness"},
    ]
    alone = plan.replace('"mmlu/original", ', "")
    (tmp_path / "plan.toml").write_text(alone)
    assert invoke(["sweep", "plan.toml", "--out", "alone"]) == INCOMPLETE
    assert "quiz is left out: no protocol can ask it" in capsys.readouterr().err


def test_an_interrupted_sweep_goes_on(
    data: Path, loads: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, evaluate = tmp_path / "out", sweep.evaluate

    def interrupted(**given: Any) -> Any:
        if given["data"].name == "winogrande":
            raise KeyboardInterrupt
        return evaluate(**given)

    monkeypatch.setattr(sweep, "evaluate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        invoke(line(out, "fake:hash"))
    assert [cell.done for cell in read_sweep(out).cells] == [True, False]
    monkeypatch.setattr(sweep, "evaluate", evaluate)
    loads.clear()
    assert invoke(line(out, "fake:hash")) == 0
    assert loads == ["winogrande", "fake:hash"]


def test_a_plan_says_models_data_and_protocols(tmp_path: Path, loads: list[str], data: Path) -> None:
    (tmp_path / "mapping.toml").write_text('question = "q"\nchoices = ["x", "y"]\nanswer = "z"\n', encoding="utf-8")
    (tmp_path / "plan.toml").write_text(
        f"""
protocols = ["mmlu/original", "winogrande/harness"]
limit = 2
dtype = "float32"

[[models]]
name = "a"
revisions = ["step1", "step2"]
window = 7
adapter = "tuned"

[[models]]
name = "fake:hash"
chat = "turns"

[[data]]
path = "{tmp_path / "own"}"
benchmark = "mmlu"
""",
        encoding="utf-8",
    )
    plan = read_plan(tmp_path / "plan.toml")
    assert [model.label for model in plan.choices] == [
        "a@step1, dtype float32, window 7, adapter tuned",
        "a@step2, dtype float32, window 7, adapter tuned",
        "fake:hash, chat turns",
    ]
    assert [(source.name, source.path) for source in sources_of(plan)] == [
        *(("mmlu", str(tmp_path / "own")), ("winogrande", None))
    ]
    assert plan.limit == 2
    write_mmlu(tmp_path / "own", questions=4)
    (tmp_path / "small.toml").write_text('models = ["fake:hash"]\nprotocols = ["mmlu/original"]\nlimit = 1\n', "utf-8")
    assert invoke(["sweep", str(tmp_path / "small.toml"), "--out", str(tmp_path / "out")]) == 0
    assert read_manifest(tmp_path / "out/fake-hash/mmlu").selection.limit == 1


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("models = 1", "models is 1; it must be a valid tuple"),
        ('models = ["m"]', "protocols is missing"),
        ('models = ["m"]\nprotocols = ["mmlu"]\nmodel = 2', "model is no key; did you mean models?"),
        ('models = ["m"]\nprotocols = ["mmlu"]\nlimit = 0', "limit is 0; it must be at least 1"),
        ('models = [{name = "m", dtype = "int3"}]\nprotocols = ["mmlu"]', "models[0].dtype is 'int3'"),
        ('models = ["m", {dtype = "float32"}]\nprotocols = ["mmlu"]', "models[1].name is missing"),
        ('models = ["m", "m"]\nprotocols = ["mmlu"]', "models: m is named twice"),
        ('models = ["m", 3]\nprotocols = ["mmlu"]', "models[1] is 3"),
        ('models = ["m"]\nprotocols = ["mlu"]', "no protocol is called 'mlu'"),
        ('models = ["m"]\nprotocols = ["mmlu"]\ndata = [{path = "d", benchmark = "piqa"}]', "no protocol asks piqa"),
        ('models = ["m"]\nprotocols = ["mmlu"]\ndata = ["d", {path = "e", benchmark = "mmlu"}]', "says no benchmark"),
        (
            'models = ["m"]\nprotocols = ["mmlu"]\ndata = [{path = "d", mapping = {colour = "q"}}]',
            "no key of a mapping",
        ),
        ("models = ", "not valid TOML"),
        (f"models = {'[' * 5000}", "nested too deeply"),
        (f"models.{'a.' * 5000}b = 1", "nested too deeply"),
    ],
)
def test_what_is_wrong_in_a_plan_is_said_with_file_and_key(text: str, told: str, tmp_path: Path) -> None:
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
    assert told in str(caught.value)


def test_a_line_that_says_too_little_or_too_much_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--out is missing"):
        invoke(["sweep", "plan.toml"])
    with pytest.raises(UsageError, match="--protocol missing"):
        invoke(["sweep", "--model", "fake:hash", "--out", str(tmp_path / "o")])
    with pytest.raises(UsageError, match="no use for --model"):
        invoke(["sweep", "plan.toml", "--model", "fake:hash", "--out", str(tmp_path / "o")])
    with pytest.raises(UsageError, match="can't be read"):
        invoke(["sweep", "nowhere.toml", "--out", str(tmp_path / "o")])


def test_several_datasets_are_asked_under_all_protocols(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    places = [write_mmlu(tmp_path / name / "quiz", questions=count) for name, count in (("one", 3), ("two", 4))]
    words = [word for place in places for word in ("--data", str(place))]
    out = tmp_path / "out"
    assert invoke(["sweep", "--model", "fake:hash", *words, "--protocol", "mmlu/original", "--out", str(out)]) == 0
    assert [cell.folder for cell in read_sweep(out).cells] == ["fake-hash/quiz", "fake-hash/quiz-2"]
    capsys.readouterr()
    assert invoke(["report", "--json", str(out / "fake-hash")]) == 0
    assert [row["n"] for row in json.loads(capsys.readouterr().out)] == [6, 8]


def test_other_folders_and_damaged_ones_are_refused(tmp_path: Path, data: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "letter.txt").write_text("Dear all")
    with pytest.raises(StoreError, match="holds other files"):
        invoke(line(out, "fake:hash"))
    (out / "letter.txt").unlink()
    for text, told in (("{", "damaged"), ('{"format": "x"}', "not a sweep of Choicewise")):
        (out / "sweep.json").write_text(text)
        with pytest.raises(StoreError, match=told):
            invoke(line(out, "fake:hash"))
    cell = {"model": "m", "dataset": "d", "folder": "../away", "asked": "", "done": False, "failure": ""}
    content = {"format": "choicewise-sweep", "version": 1, "protocols": [], "suites": [], "cells": [cell]}
    for change, told in (({}, "lies outside"), ({"version": 2}, "upgrade"), ({"cells": 1}, "field cells")):
        (out / "sweep.json").write_text(json.dumps({**content, **change}))
        with pytest.raises(StoreError, match=told):
            invoke(["report", str(out)])
    single = tmp_path / "single"
    assert invoke(["run", "--model", "fake:hash", "--protocol", "mmlu/original", "--out", str(single)]) == 0
    with pytest.raises(StoreError, match="folder of a single run"):
        invoke(line(single, "fake:hash"))


def test_readers_take_a_folder_of_several_runs(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    with known_suites(tmp_path, monkeypatch, trio=TRIO.format(more="")):
        assert invoke(line(out, "fake:hash", "fake:oracle", protocols=["tests/trio"])) == 0
    capsys.readouterr()
    assert invoke(["report", str(out)]) == 0
    assert "tests/trio: values in % and their plain mean" in capsys.readouterr().out
    assert invoke(["report", "--by", "subjects", str(out)]) == 0
    assert "tides" in capsys.readouterr().out
    assert invoke(["compare", str(out / "fake-hash"), str(out / "fake-oracle")]) == 0
    assert "winogrande/harness" in capsys.readouterr().out
    with pytest.raises(UsageError, match="name a model's folder"):
        invoke(["compare", str(out), str(out / "fake-oracle")])
    with pytest.raises(UsageError, match="holds 6 runs"):
        invoke(["explain", str(out), "--item", "tides/test/0"])
    assert invoke(["explain", str(out / "fake-hash/mmlu"), "--item", "tides/test/0"]) == 0


def test_a_page_of_a_sweep_shows_the_averages(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("jinja2")
    pytest.importorskip("vl_convert")
    out = tmp_path / "out"
    with known_suites(tmp_path, monkeypatch, trio=TRIO.format(more="")):
        assert invoke(line(out, "fake:hash", "fake:oracle", protocols=["tests/trio"])) == 0
        assert invoke(["page", str(out), "--out", str(tmp_path / "page.html"), "--items", "0"]) == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "tests/trio: values in % and their plain mean" in page
    assert "On mmlu fake:oracle is ahead of fake:hash" in page
    assert "choicewise explain out/fake-hash/mmlu --item ID" in page
    averages = page.partition('id="averages"')[2].partition("</section>")[0]
    assert averages.index("fake:oracle") < averages.index("fake:hash")


def test_progress_over_all_runs_only_grows() -> None:
    told: list[tuple[int, int]] = []
    shown = SweepProgress(lambda done, total: told.append((done, total)), 30)
    first = shown.run(10)
    first(0, 4)
    first(2, 4)
    first(0, 8)  # it begins again
    second = shown.run(20)  # beside the first
    second(1, 2)
    first.finish()
    second.finish()
    assert told == [(0, 30), (5, 30), (5, 30), (15, 30), (20, 30), (30, 30)]


def test_what_a_run_can_t_do_is_raised_where_it_is_one_model(data: Path, loads: list[str], tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="it has no weights"):
        invoke(["run", "--model", "broken", *line(tmp_path / "out", protocols=PROTOCOLS)[1:]])
    assert loads == ["mmlu", "winogrande", "broken"]
