"""Shard processes: the tables of one process, whichever of them die; one line of progress, and memory for all."""

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from choicewise import Run, engine, evaluate, open_run
from choicewise.bundled import BENCHMARK
from choicewise.errors import DataError, MachinesLost, MissingData, ModelError, UsageError
from choicewise.extensions.cluster import processes, ray, spread
from choicewise.extensions.cluster.part import Part, compute_part, error_of
from choicewise.extensions.doctor.examine import examine
from choicewise.extensions.run.sweep import Audience, sweep
from choicewise.models.kinds import model_kind
from choicewise.models.local.devices import NOTHING, Footprint
from choicewise.models.model import Model
from choicewise.ports import ModelRuns
from choicewise.protocols.catalogue import resolve
from choicewise.running.job import job_of
from choicewise.store.folder import read_sweep
from choicewise.store.tables import read_blocks
from choicewise.util.isolate import Record
from tests.helpers.messages import Gist

PROTOCOLS = ["mmlu/original", "mmlu/cloze:pmi-answer"]
GB = 10**9

Fate = Callable[[Part, int], bool]


class Here:
    """Parts that this process computes at once; ``fate`` says which attempts die (before they begin)."""

    fate: Fate = staticmethod(lambda part, attempt: False)
    started: ClassVar[list[Part]] = []

    def __init__(self, *_: object) -> None:
        """Nothing is needed."""

    def start(self, part: Part) -> Future[Record]:
        attempt = sum(other.number == part.number for other in Here.started)
        Here.started.append(part)
        future = Future[Record]()
        if Here.fate(part, attempt):
            future.set_exception(MachinesLost("was ended by signal 9"))
        else:
            future.set_result(compute_part(part))
        return future

    def stop(self, futures: Iterable[Future[Record]]) -> None:
        """All have ended."""


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> type[Here]:
    monkeypatch.setitem(engine.SHARD_TOKENS, "cpu", 1000)
    monkeypatch.setattr(processes, "Processes", Here)
    monkeypatch.setattr(processes, "visible_gpus", list)
    monkeypatch.setattr(Here, "started", [])
    return Here


def run(out: Path, **more: Any) -> Run:
    return evaluate(
        model="fake:hash", data=BENCHMARK, protocols=PROTOCOLS, limit=4, out=out, **more
    )


def table(run: Run) -> pa.Table:
    """The observations as they lie on the disk: none is there twice."""
    stored = read_blocks(run.folder, run.manifest.blocks, "observations").sort_by("key")
    assert len(set(stored["key"].to_pylist())) == stored.num_rows
    assert examine(run.folder).faults == []
    return stored


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> pa.Table:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(engine.SHARD_TOKENS, "cpu", 1000)
        return table(run(tmp_path_factory.mktemp("one") / "run"))


@pytest.mark.costly("shards are run and merged")
def test_shards_give_the_table_of_one_process_in_the_folder_that_was_named(
    undisturbed: pa.Table, tmp_path: Path
) -> None:
    seen: list[tuple[int, int]] = []
    merged = run(tmp_path / "run", workers=3, progress=lambda *work: seen.append(work))
    assert table(merged).equals(undisturbed)
    assert [part.number for part in Here.started] == [1, 2, 3]
    assert list(tmp_path.iterdir()) == [tmp_path / "run"]
    assert seen[-1][0] == seen[-1][1]
    again = run(tmp_path / "run", workers=3)
    assert again.manifest == merged.manifest
    assert len(Here.started) == 4


def test_a_shard_that_dies_is_started_again(
    undisturbed: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Here, "fate", lambda part, attempt: part.number == 2 and attempt < 2)
    lines: list[str] = []
    assert table(run(tmp_path / "run", workers=2, say=lines.append)).equals(undisturbed)
    assert lines == 2 * [Gist("shard 2/2 died ... restarting it")]


def test_a_shard_that_always_dies_ends_the_run_and_the_same_line_resumes(
    undisturbed: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Here, "fate", lambda part, attempt: part.number == 2)
        with pytest.raises(MachinesLost, match="shard 2/2 died 3 times"):
            run(tmp_path / "run", workers=2)
    assert not (tmp_path / "run").exists()
    done = open_run(tmp_path / "run.shards" / "1-of-2" / "run").manifest
    with pytest.raises(UsageError, match="workers = 2"):
        run(tmp_path / "run", workers=3)
    assert table(run(tmp_path / "run", workers=2)).equals(undisturbed)
    assert done.complete
    assert not (tmp_path / "run.shards").exists()


def test_a_run_that_is_there_is_continued_by_one_process(tmp_path: Path) -> None:
    run(tmp_path / "run")
    lines: list[str] = []
    more = evaluate(
        model="fake:hash",
        data=BENCHMARK,
        protocols=["arc-easy/harness"],
        limit=4,
        out=tmp_path / "run",
        workers=4,
        say=lines.append,
    )
    assert len(Here.started) == 1
    assert "one process" in lines[0]
    assert {name.partition(":")[0] for name in more.manifest.protocols} >= {"arc-easy/harness"}


@pytest.mark.costly("several runs are made and merged")
def test_a_sweep_records_what_fails_and_merges_the_rest(tmp_path: Path) -> None:
    table_of_job = {
        "models": ["fake:hash", "fake:oracle", "no/such-folder/x"],
        "protocols": PROTOCOLS,
        "data": [str(BENCHMARK)],
        "limit": 2,
    }
    one = sweep(job_of(table_of_job), tmp_path / "one")
    seen: list[int] = []
    audience = Audience(progress=lambda done, total: seen.append(done))
    two = sweep(job_of({**table_of_job, "workers": 2}), tmp_path / "two", audience)
    assert [cell.done for cell in two.cells] == [cell.done for cell in one.cells]
    assert [cell.done for cell in two.cells] == [True, True, False]
    assert seen == sorted(seen)
    for cell in read_sweep(tmp_path / "two").cells[:2]:
        first, second = (open_run(tmp_path / name / cell.folder) for name in ("one", "two"))
        assert table(first).equals(table(second))
    assert not list(tmp_path.rglob("*.shards"))


def test_an_error_of_a_shard_is_that_of_the_command(tmp_path: Path) -> None:
    job = job_of({"models": ["fake:hash"], "protocols": ["mmlu/original"], "data": ["nowhere.csv"]})
    part = Part(
        number=1,
        of=1,
        job=job.model_dump(mode="json", exclude_defaults=True),
        folders={},
        state=str(tmp_path / "1.json"),
        go_on=False,
        command=[],
    )
    foreign = compute_part(Part(**{**vars(part), "version": "0"}))["error"]
    assert isinstance(error_of(foreign), UsageError)
    for error in (ModelError("gone", ["a", "b"]), MissingData("no data", [], ["mmlu"])):
        record = {"kind": type(error).__name__, "message": error.message}
        record |= {"problems": list(error.problems)}  # type: ignore[dict-item]
        if isinstance(error, MissingData):
            record |= {"benchmarks": list(error.benchmarks)}  # type: ignore[dict-item]
        assert str(error_of(record)) == str(error)
    assert isinstance(error_of(record), DataError)


def test_wrong_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="use more shards"):
        run(tmp_path / "run", workers=2, shard="1/2")
    with pytest.raises(UsageError, match="pass names"):
        evaluate(
            model="fake:hash",
            data=BENCHMARK,
            protocols=resolve("mmlu/original"),
            out=tmp_path / "run",
            workers=2,
        )
    monkeypatch.setattr(spread, "ranks", lambda: 2)
    with pytest.raises(UsageError, match="torchrun"):
        run(tmp_path / "run", workers=2)
    assert not list(tmp_path.iterdir())


# Memory and GPUs of all processes

SMALL = Footprint(weights=14 * GB, workspace=4 * GB, context=GB, layer=GB, host=4 * GB)


def runs_of(name: str, tmp_path: Path, **choice: Any) -> ModelRuns:
    job = job_of({"models": [{"name": name, **choice}], "protocols": ["mmlu/original"]})
    model: Any = type("Opened", (), {"kind_name": model_kind(name).name})()
    return ModelRuns(model=model, job=job, folders={}, scratch=tmp_path)


@pytest.mark.parametrize(
    ("name", "choice", "count", "gpus"),
    [
        ("m", {}, 4, ["0", "1", "2", "3"]),
        ("m", {"device": "auto"}, 2, ["0,1", "2,3"]),
        ("m", {"device": "cuda:1"}, 2, []),
        ("m", {"device": "cpu"}, 2, []),
        ("vllm:m,tensor_parallel_size=2", {}, 2, ["0,1", "2,3"]),
    ],
)
def test_every_process_has_gpus_of_its_own(
    name: str,
    choice: dict[str, str],
    count: int,
    gpus: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(processes, "visible_gpus", lambda: list("0123"))
    assert processes.gpus_of(runs_of(name, tmp_path, **choice), count) == gpus


def test_more_processes_than_gpus_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "visible_gpus", lambda: list("0123"))
    with pytest.raises(UsageError, match="need 6 GPUs.*has 4.*workers = 2"):
        processes.gpus_of(runs_of("vllm:m,tensor_parallel_size=2", tmp_path), 3)


def test_memory_of_all_processes_is_checked_before_any_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = NOTHING

    def footprint_of(model: Model) -> Footprint:
        return needed

    monkeypatch.setattr(processes, "footprint_of", footprint_of)
    monkeypatch.setattr(processes, "free_memory", lambda: 10 * GB)
    monkeypatch.setattr(processes, "gpu_bytes", lambda: 16 * GB)
    asked = runs_of("m", tmp_path)
    processes.check_memory(asked, 8, [])
    needed = SMALL
    processes.check_memory(asked, 2, [])
    with pytest.raises(
        UsageError, match="12.0 GB of memory, and 10.0 GB are free; use workers = 2"
    ):
        processes.check_memory(asked, 3, [])
    with pytest.raises(UsageError, match="19.0 GB on each of 1 GPUs, which have 16.0 GB"):
        processes.check_memory(asked, 2, ["0", "1"])
    processes.check_memory(asked, 2, ["0,1", "2,3"])
    with pytest.raises(UsageError, match="workers = 2"):
        monkeypatch.setattr(processes, "free_memory", lambda: 8 * GB)
        run(tmp_path / "run", workers=3)
    assert Here.started == []


@pytest.mark.costly("several runs are made and merged")
def test_ray_computes_whole_models_or_shards(
    undisturbed: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray, "nodes_of_cluster", lambda: [{"CPU": 2.0, "memory": 4.0 * GB}])
    monkeypatch.setattr(ray, "cluster_device", lambda: "cpu")
    monkeypatch.setattr(ray, "Tasks", Here)
    assert table(run(tmp_path / "run", executor="ray")).equals(undisturbed)
    assert [part.of for part in Here.started] == [2, 2]
    models = ["fake:hash", "fake:oracle"]
    job = job_of(
        {
            "models": models,
            "protocols": PROTOCOLS,
            "data": [str(BENCHMARK)],
            "limit": 1,
            "executor": "ray",
        }
    )
    assert not sweep(job, tmp_path / "all").missing
    assert [part.of for part in Here.started[2:]] == [1, 1]
