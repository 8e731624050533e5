"""Ports: every example in ``ports.py`` runs, and names are unambiguous."""

import inspect
import json
import re
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace
from typing import Any

import pytest

from choicewise import evaluate, export, ports
from choicewise.bundled import BENCHMARK
from choicewise.data.dataset import Dataset
from choicewise.data.items import Item
from choicewise.errors import ModelError, ProtocolError, UsageError
from choicewise.models.fake import HashModel
from choicewise.models.load import load_model
from choicewise.page.document import Content, document, inside_items
from choicewise.page.study import read_study
from choicewise.ports import (
    ChartKind,
    Extension,
    PageSections,
    PairAnalysis,
    PairStatistic,
    Port,
    all_of,
    built_in_extensions,
    find,
)
from choicewise.protocols.between import apply_metrics, under_metrics
from choicewise.protocols.catalogue import resolve
from choicewise.protocols.preparations import prepare
from choicewise.results import summary
from choicewise.results.run import open_run
from choicewise.results.summary import state, summarize
from choicewise.running.answer import executor_of, loading_options
from choicewise.running.job import job_of, split_tasks
from choicewise.running.shards import Share, share_of
from choicewise.scoring.extract import RULES
from choicewise.store.folder import write_manifest
from choicewise.table import as_json
from tests.helpers.commands import choicewise
from tests.helpers.messages import Gist
from tests.helpers.mmlu_data import write_mmlu

QUIZ = Dataset(
    "quiz", {"test": (Item("1", "Where do birds live?", ("in a tree", "in the sea"), (0,)),)}
)

PORTS = [
    port
    for _, port in inspect.getmembers(ports, inspect.isclass)
    if issubclass(port, Port) and port is not Port
]


def example(port: type[Port]) -> Port:
    """Return an instance of the class in the example of a port's docstring."""
    code = dedent(str(port.__doc__).split("Example::")[1])
    names: dict[str, object] = dict(vars(ports))
    exec(code, names)  # noqa: S102
    classes = [
        thing for name, thing in names.items() if name not in vars(ports) and inspect.isclass(thing)
    ]
    (written,) = [thing for thing in classes if issubclass(thing, port)]
    addition = written()
    assert isinstance(addition, Port)
    return addition


@pytest.fixture
def stranger(monkeypatch: pytest.MonkeyPatch) -> list[Port]:
    """The additions of another package, which a test fills."""
    additions: list[Port] = []
    monkeypatch.setattr(ports, "other_extensions", lambda: (Extension("stranger", additions),))
    return additions


@pytest.mark.parametrize("port", PORTS)
def test_the_example_of_a_port_is_found_by_its_name(port: type[Port], stranger: list[Port]) -> None:
    addition = example(port)
    stranger.append(addition)
    assert find(port, addition.name) is addition
    assert addition in all_of(port)


def test_the_example_of_a_library_of_tasks_is_asked_by_name(
    stranger: list[Port], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stranger.append(example(ports.TaskLibrary))
    monkeypatch.chdir(tmp_path)
    Path("week.csv").write_text("question,A,B,answer\nWhere?,in a tree,in the sea,A\n")
    line = ["run", "--model", "fake:hash", "--protocol", "riddles:week", "--out", "run", "--json"]
    (row,) = json.loads(choicewise(*line, code=0).stdout)
    assert (row["dataset"], row["protocol"], row["n"]) == ("week", "options/cloze:sum", 1)
    assert split_tasks(["mmlu", "riddles:a", "lm-eval:b", "riddle:c"]) == (
        ["riddles:a", "lm-eval:b"],
        ["mmlu", "riddle:c"],
    )
    asked: dict[str, Any] = {"model": "fake:hash", "protocols": ["riddles:week"]}
    run = evaluate(**asked, out="in-python")
    assert run.rows() == open_run("run").rows()
    assert run.manifest.job == open_run("run").manifest.job
    with pytest.raises(UsageError, match="riddles:week brings .* data"):
        evaluate(**asked, data="week.csv", out="with-data")
    with pytest.raises(UsageError, match=r"2 datasets .*choicewise\.sweep"):
        evaluate(model="fake:hash", protocols=["riddles:week", "riddles:day"], out="both")
    with pytest.raises(UsageError, match="pass data"):
        evaluate(model="fake:hash", protocols=run.protocols, out="values")
    refused = choicewise(*line, "--score", "sum", code=2).stderr
    assert "riddles:week:acc_norm" in refused
    assert "--score does not" in refused
    foreign = choicewise(*line, "--allow-task-code", code=2).stderr
    assert "apply to riddles:week" in foreign


def test_the_example_of_a_site_is_a_folder_of_pages(tmp_path: Path) -> None:
    site = example(ports.Site)
    assert isinstance(site, ports.Site)
    assert list(site.write([Path("a"), Path("b")], tmp_path / "out", ())) == [
        f"wrote {tmp_path / 'out'}"
    ]
    assert (tmp_path / "out" / "index.html").read_text() == "a<br>b"


def test_the_example_of_a_reader_yields_a_log(tmp_path: Path) -> None:
    reader = example(ports.LogReader)
    assert isinstance(reader, ports.LogReader)
    path = tmp_path / "week.diary"
    path.write_text("monday;1;-2.5;-1.5\n")
    assert reader.recognises(path)
    (log,) = reader.read([path], None)
    (item,) = log.items
    assert (item.gold, [choice.loglikelihood for choice in item.choices]) == ((1,), [-2.5, -1.5])
    assert reader.verdicts() == {}


def test_the_example_of_a_writer_fills_a_folder(tmp_path: Path, stranger: list[Port]) -> None:
    stranger.append(example(ports.Writer))
    items = tuple(Item(name, "Where?", ("in a tree", "in the sea"), (0,)) for name in "ab")
    data = Dataset("quiz", {"test": items})
    run = evaluate(
        model="fake:oracle", data=data, protocols=["options/cloze:sum"], out=tmp_path / "run"
    )
    filled = export(run, "values", tmp_path / "out")
    assert [file.read_text() for file in filled.files] == ["options/cloze:sum 1.0"]
    assert filled.notes == (Gist("intervals: "),)


def test_the_example_of_a_model_kind_opens_a_model_that_answers(
    stranger: list[Port], tmp_path: Path
) -> None:
    stranger.append(example(ports.ModelKind))
    with pytest.raises(ModelError, match="window .* steady:a"):
        load_model("steady:a", window=8)
    asked: dict[str, Any] = {"data": BENCHMARK, "protocols": ["mmlu/original"], "limit": 1}
    run = evaluate(model="steady:a", **asked, out=tmp_path / "run")
    assert run.manifest.model.kind == "steady"


def test_a_name_that_two_packages_add_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    both = [Extension(name, [example(ports.Command)]) for name in ("first", "second")]
    monkeypatch.setattr(ports, "other_extensions", lambda: both)
    with pytest.raises(UsageError, match="first and second"):
        find(ports.Command, "hello")


def test_an_executor_of_another_package_computes_a_run(
    stranger: list[Port], tmp_path: Path
) -> None:
    stranger.append(example(ports.Executor))
    asked: dict[str, Any] = {
        "model": "fake:hash",
        "data": BENCHMARK,
        "protocols": ["mmlu/original"],
        "limit": 1,
    }
    alone = evaluate(**asked, out=tmp_path / "alone", executor="alone")
    assert alone.rows() == evaluate(**asked, out=tmp_path / "here").rows()
    job = job_of(
        {
            "models": ["fake:hash"],
            "protocols": ["mmlu/original"],
            "data": [str(BENCHMARK)],
            "executor": "alone",
        }
    )
    assert executor_of(job.executor, None) is stranger[0]


def test_an_executor_names_a_device_only_for_models_that_have_one() -> None:
    class There(ports.Executor):
        name = "there"

        def device(self) -> str:
            return "cuda"

    assert loading_options(There(), "fake:hash", None) == {"elsewhere": True}
    assert loading_options(There(), "ORG/NAME", None) == {"device": "cuda", "elsewhere": True}


def test_an_executor_that_nobody_adds_is_refused(tmp_path: Path) -> None:
    asked: dict[str, Any] = {
        "model": "fake:hash",
        "data": BENCHMARK,
        "protocols": ["mmlu/original"],
    }
    with pytest.raises(UsageError, match="executor is 'nowhere'; .* local, ray"):
        evaluate(**asked, out=tmp_path, executor="nowhere")
    with pytest.raises(UsageError, match="executor is 'nowhere'; .* local, ray"):
        job_of({"models": ["fake:hash"], "protocols": ["mmlu/original"], "executor": "nowhere"})


def test_a_task_array_of_another_package_says_the_shard(stranger: list[Port]) -> None:
    stranger.append(example(ports.TaskArray))
    assert share_of("indexed", {"JOB_COMPLETION_INDEX": "1", "JOBS": "4"}) == Share(2, 4)
    with pytest.raises(ValueError, match="2/4; or slurm or indexed"):
        share_of("nowhere", {})


@pytest.mark.parametrize("port", PORTS)
def test_built_in_names_are_given_once(port: type[Port]) -> None:
    names = [
        thing.name
        for extension in built_in_extensions()
        for thing in extension.adds
        if isinstance(thing, port)
    ]
    assert len(names) == len({*names})


def test_an_analysis_answers_in_tables() -> None:
    analysis = example(ports.Analysis)
    assert isinstance(analysis, ports.Analysis)
    run = SimpleNamespace(
        manifest=SimpleNamespace(model=SimpleNamespace(name="hash")), rows=[None, None]
    )
    (counts,) = analysis.tables([run])
    assert as_json(counts)["rows"] == [{"model": "hash", "numbers": 2}]


class ShortHashModel(HashModel):
    """The same with a window of its own."""

    window = 1000


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two runs of six items under one protocol, of models with a long and a short window."""
    data = write_mmlu(tmp_path_factory.mktemp("data"), ("one", "two"), questions=3)
    models = {"long": HashModel(), "short": ShortHashModel(1)}
    runs = tmp_path_factory.mktemp("runs")
    for name, model in models.items():
        evaluate(model=model, data=data, protocols=["mmlu/harness-v1"], out=runs / name)
    return [runs / name for name in models]


def test_a_statistic_is_kept_in_the_summary(
    stranger: list[Port], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stranger.append(example(ports.Statistic))
    protocols = ["options/cloze:sum"]
    run = evaluate(model="fake:hash", data=QUIZ, protocols=protocols, out=tmp_path / "run")
    assert summarize(run.folder).statistics == {}
    (run.folder / "summary.parquet").unlink()
    monkeypatch.setattr(summary, "MANY", 1)
    computed = summarize(run.folder).statistics
    brier = run.under(under_metrics(run.protocols, ["brier"]))
    (measured,) = brier.measurements.values()
    assert computed["doubts"] == {measured.name: measured.overall}
    assert summarize(run.folder).statistics["doubts"] == computed["doubts"]
    stranger.clear()
    assert "doubts" not in summarize(run.folder).statistics
    # An interrupted run has not made all requests.
    blocks = tuple(replace(block, asks=()) for block in run.manifest.blocks)
    write_manifest(run.folder, replace(run.manifest, blocks=blocks, complete=False))
    (run.folder / "summary.parquet").unlink()
    assert summarize(run.folder).statistics == {}


def test_estimates_stand_below_the_numbers_of_a_sample(
    stranger: list[Port], tmp_path: Path
) -> None:
    stranger.append(example(ports.Estimator))
    data = write_mmlu(tmp_path / "data", ("one", "two"), questions=3)
    protocols = ["mmlu/harness-v1"]
    run = evaluate(
        model="fake:hash", data=data, protocols=protocols, sample=4, out=tmp_path / "run"
    )
    assert "largest sample: 4" in choicewise("report", run.folder, code=0).stdout


def test_a_statistic_of_a_pair_stands_below_its_comparison(
    folders: list[Path], stranger: list[Port]
) -> None:
    stranger.append(example(PairStatistic))
    told = choicewise("compare", *folders, "--ids", code=0).stdout
    assert told.splitlines()[-1] == Gist("same choice is predicted")
    (compared,) = json.loads(choicewise("compare", *folders, "--json", code=0).stdout)
    assert 0 <= compared["agreement"] <= 1
    assert compared["twins"]["flips"]["n"] == 6
    again = json.loads(choicewise("compare", folders[0], folders[0], "--json", code=0).stdout)
    assert again[0]["agreement"] == 1


def test_an_analysis_of_a_pair_stands_in_place_of_its_comparison(
    folders: list[Path], stranger: list[Port]
) -> None:
    stranger.append(example(PairAnalysis))
    long, short = map(str, folders)
    assert (
        choicewise("compare", long, short, code=0).stdout.strip()
        == f"{short} has the shorter window"
    )
    assert json.loads(choicewise("compare", long, short, "--json", code=0).stdout) == [
        {"short": short, "long": long}
    ]
    assert (
        "same measurement" in choicewise("compare", long, long, code=0).stdout
    )  # it is for other pairs
    refused = choicewise("compare", long, short, "--metric", "brier", code=2).stderr
    assert "--metric does not apply" in refused


def test_what_an_extension_adds_to_axes_is_asked_by_name(
    stranger: list[Port], tmp_path: Path
) -> None:
    additions = [
        example(port) for port in (ports.Preparation, ports.Reading, ports.Score, ports.Metric)
    ]
    stranger.extend(additions)
    axes = ["prepare=shouted", "prepare=shouted+dont-know", "reading=contrary", "score=strongest"]
    axes.append("metric=doubt")
    protocols = [f"options/cloze:sum@{axis}" for axis in axes]
    run = evaluate(
        model="fake:hash",
        data=QUIZ,
        protocols=["options/cloze:sum", *protocols],
        out=tmp_path / "run",
    )
    values = {row.identity.protocol: row.value for row in run.rows()}
    assert [*values] == ["options/cloze:sum", *protocols]
    assert values["options/cloze:sum@reading=contrary"] == 1 - values["options/cloze:sum"]
    (doubt,) = [row for row in run.rows() if row.identity.metric == "doubt"]
    assert not doubt.share
    measured = run.measurements[doubt.identity.protocol]
    assert measured.judged is not None
    assert doubt.value == 1 - measured.judged.shares.max() == -doubt.merit
    (applied,) = apply_metrics(run.choose(["options/cloze:sum"]).protocols, ["doubt"]).protocols
    assert applied == doubt.identity.protocol
    (item,) = QUIZ.splits["test"]
    assert prepare("shouted", item).question == item.question.upper()
    state_before = state(run.manifest)
    stranger.remove(additions[2])
    assert state(run.manifest) != state_before
    with pytest.raises(ProtocolError, match="score is 'strongest'"):
        replace(run.protocols["options/cloze:sum"], score="strongest")


def test_an_extraction_of_an_extension_decides(stranger: list[Port]) -> None:
    stranger.append(example(ports.Extraction))
    assert RULES["last-capital"]("A or B? B.", "ABCD") == "B"
    protocol = resolve("mmlu/helm")["mmlu/helm"]
    assert replace(protocol, decision="last-capital").decision == "last-capital"
    with pytest.raises(ProtocolError, match="decision is 'first-capital'"):
        replace(protocol, decision="first-capital")


def test_a_chart_is_drawn_by_its_name(
    folders: list[Path], stranger: list[Port], tmp_path: Path
) -> None:
    stranger.append(example(ChartKind))
    choicewise("plot", *folders, "sizes", "--out", tmp_path / "sizes.json", code=0)
    drawn = json.loads((tmp_path / "sizes.json").read_text(encoding="utf-8"))
    records = [record for record in drawn["data"]["values"] if record["kind"] == "run"]
    assert [record["items"] for record in records] == [6, 6]
    refused = choicewise(
        "plot", *folders, "sizes", "--rank", "--out", tmp_path / "sizes.json", code=2
    ).stderr
    assert "--rank does not apply" in refused
    unknown = choicewise("plot", *folders, "size", "--out", tmp_path / "size.json", code=2).stderr
    assert "sizes (how many items " in " ".join(unknown.split())


@pytest.mark.costly("a page is drawn")
def test_a_section_stands_on_the_page_before_the_items(
    folders: list[Path], stranger: list[Port]
) -> None:
    pytest.importorskip("vl_convert", reason="pages need choicewise[page]")
    stranger.append(example(PageSections))
    content = Content(read_study(folders[:1]))
    page = document(content, "1 Jan 2026", inside_items(content, 0))
    assert "<p>All runs have 6 items.</p>" in page
    ids = [line.split('"')[1] for line in page.splitlines() if line.startswith("<section id=")]
    assert ids.index("sizes") == ids.index("items") - 1


class Point:
    """An entry point whose module holds a value, or raises it."""

    name, value = "mine", "mine:EXTENSION"

    def __init__(self, loaded: object) -> None:
        self.loaded = loaded

    def load(self) -> object:
        if isinstance(self.loaded, BaseException):
            raise self.loaded
        return self.loaded


class Nameless(ports.Command):
    """It lacks the name."""


class Merge(ports.Command):
    name = "merge"


@pytest.mark.parametrize(
    ("loaded", "warning"),
    [
        (RuntimeError("oops"), "can't be loaded: RuntimeError: oops"),
        (SystemExit(3), "can't be loaded: SystemExit: 3"),
        ([Merge()], "is no Extension"),
        (Extension("mine", Merge()), "is no Extension"),  # type: ignore[arg-type]
        (Extension("mine", [Merge]), "Merge is a class"),  # type: ignore[list-item]
        (Extension("mine", [Nameless()]), "Nameless has no name"),
        (Extension("mine", [Merge()]), "a Command called merge"),
    ],
)
def test_what_cannot_be_used_of_a_package_is_a_warning(
    loaded: object, warning: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [Point(loaded)])
    with pytest.warns(UserWarning, match=re.escape(warning)):
        extensions = ports.other_extensions.__wrapped__()
    assert [addition for extension in extensions for addition in extension.adds] == []
