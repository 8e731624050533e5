"""Several models of a sweep at once, on a cluster that is only said to be there."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, active_count
from typing import Any

import pytest

from choicewise import open_run
from choicewise.cli.run import INCOMPLETE
from choicewise.engine import SERVER
from choicewise.errors import ModelError, StoreError, UsageError
from choicewise.models.fake import HashModel
from choicewise.models.model import Recipe
from choicewise.running import job as job_module
from choicewise.running import ray as ray_cluster
from choicewise.running import sweep as sweep_module
from choicewise.running.job import Job, job_of, read_plan
from choicewise.running.replica import ReplicaDied
from choicewise.running.sweep import Audience, sweep
from choicewise.running.workers import Pool
from choicewise.store.folder import read_sweep
from choicewise.store.tables import read_blocks
from tests.helpers.commands import choicewise
from tests.helpers.mmlu_data import write_mmlu
from tests.helpers.replicas import ReplicasHere


class Named(HashModel):
    """A fake whose name is its seed, so that each answers otherwise."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name, self.recipe = name, Recipe(name)


def all_of(them: ReplicasHere) -> Any:
    return [*them.all], them.lacking


class World:
    """What happens to models by their name; ``most`` that were being answered at once."""

    def __init__(self) -> None:
        self.loading: dict[str, Callable[[], Any]] = {}
        self.inside: set[str] = set()
        self.most = 0
        self.started: list[str] = []

    def load(self, name: str, **options: Any) -> Any:
        return self.loading.get(name, lambda: Named(name))()

    def replicas(self, pool: Any, model: Any) -> Any:
        if pool._memory is not None and pool._memory > 10**9:
            raise UsageError(f"no node of the cluster has room for {model.name}")
        self.started.append(model.name)
        self.inside.add(model.name)
        self.most = max(self.most, len(self.inside))
        them, inside = ReplicasHere(model, 1), self.inside
        them.all[0].end = lambda: inside.discard(model.name)  # type: ignore[method-assign]
        return them


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made, before = World(), active_count()
    monkeypatch.setattr(job_module, "load_model", made.load)
    monkeypatch.setattr(ray_cluster, "nodes_of_cluster", lambda: [{"CPU": 2.0}])
    monkeypatch.setattr(ray_cluster, "cluster_device", lambda: "cpu")
    monkeypatch.setattr(Pool, "replicas_of", lambda pool, model: all_of(made.replicas(pool, model)))
    yield made
    assert active_count() == before  # no thread is left


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_mmlu(tmp_path / "quiz", subjects=("tides",), questions=4)


def asked(data: Path, *models: str, executor: str = "ray", **more: Any) -> Job:
    table = {"models": [*models], "protocols": ["mmlu/original"], "data": [str(data)], "executor": executor}
    return job_of({**table, **more})


NAMES = ["a", "b", "c", "d", "e"]


@pytest.mark.costly("ten runs")
def test_several_at_once_and_each_as_if_alone(world: World, data: Path, tmp_path: Path) -> None:
    said: list[str] = []
    told: list[int] = []
    audience = Audience(progress=lambda done, total: told.append(done), say=said.append)
    record = sweep(asked(data, *NAMES), tmp_path / "ray", audience)
    assert not record.missing
    assert 1 < world.most <= 3  # as many as there are cores, and one that is being loaded
    assert said[0] == "5 models share a cluster with 1 node and 2 CPUs"
    assert sorted(told) == told
    sweep(asked(data, *NAMES, executor="local"), tmp_path / "one")
    for cell in record.cells:
        both = [open_run(tmp_path / where / cell.folder) for where in ("ray", "one")]
        first, second = (read_blocks(run.folder, run.manifest.blocks, "observations") for run in both)
        assert first.equals(second)


def missing() -> Any:
    raise ModelError("it has no weights")


@pytest.mark.costly("replicas are processes")
def test_one_that_is_not_there_keeps_nobody_waiting(world: World, data: Path, tmp_path: Path) -> None:
    world.loading = {"a": missing, "c": missing}
    record = sweep(asked(data, *NAMES), tmp_path / "out")
    assert {cell.model: cell.failure for cell in record.missing} == dict.fromkeys("ac", "it has no weights")
    assert [cell.model for cell in record.missing] == ["a", "c"]
    with pytest.raises(ModelError, match="it has no weights"):
        sweep(asked(data, *NAMES), tmp_path / "raised", go_on=False)


@pytest.mark.costly("replicas are processes")
def test_one_whose_replicas_die_is_recorded_with_the_reason(
    world: World, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replicas = world.replicas

    def mortal(pool: Any, model: Any) -> Any:
        made = replicas(pool, model)
        if model.name == "b":
            made.fate = lambda replica, number: None if number is None else ReplicaDied("out of memory")
        return made

    monkeypatch.setattr(Pool, "replicas_of", lambda pool, model: all_of(mortal(pool, model)))
    said: list[str] = []
    record = sweep(asked(data, *NAMES), tmp_path / "out", Audience(say=said.append))
    (cell,) = record.missing
    assert cell.model == "b"
    assert "3 replicas died over the same questions; the last one: out of memory" in cell.failure
    assert "b: a replica died (out of memory); what it was asked is asked again" in said


@pytest.mark.costly("replicas are processes")
def test_a_model_behind_a_server_has_no_replicas(world: World, data: Path, tmp_path: Path) -> None:
    def served() -> Any:
        model = Named("a")
        model.device = SERVER
        return model

    world.loading = {"a": served}
    assert not sweep(asked(data, "a", "b", "c"), tmp_path / "out").missing
    assert sorted(world.started) == ["b", "c"]


@pytest.mark.costly("replicas are processes")
def test_ctrl_c_ends_all_and_what_is_done_stays(world: World, data: Path, tmp_path: Path) -> None:
    """The main thread is the one that hears of it; those that load or wait for replicas end as well."""
    inside = Event()

    def slow() -> Any:
        inside.set()
        return Named("b")

    def progress(done: int, total: int) -> None:
        if inside.is_set() and any(cell.done for cell in read_sweep(tmp_path / "out").cells):
            raise KeyboardInterrupt

    world.loading = {"b": slow}
    with pytest.raises(KeyboardInterrupt):
        sweep(asked(data, *NAMES), tmp_path / "out", Audience(progress=progress))
    cells = read_sweep(tmp_path / "out").cells
    assert not any(cell.failure for cell in cells)
    assert any(cell.done for cell in cells)
    world.started.clear()
    assert not sweep(asked(data, *NAMES), tmp_path / "out").missing
    assert sorted(world.started) == [cell.model for cell in cells if not cell.done]


def test_a_full_disk_ends_all(world: World, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = sweep_module.write_sweep

    def full(folder: Path, record: Any) -> None:
        if any(cell.done for cell in record.cells):
            raise StoreError("no space left on device")
        write(folder, record)

    monkeypatch.setattr(sweep_module, "write_sweep", full)
    with pytest.raises(StoreError, match="no space left"):
        sweep(asked(data, *NAMES), tmp_path / "out")


@pytest.mark.costly("replicas are processes")
def test_said_memory_is_what_a_model_needs(world: World, data: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    text = 'models = ["a", {name = "b", memory = "900 GB"}]\nmemory = "1 GB"\nprotocols = ["mmlu/original"]\n'
    plan.write_text(f'{text}data = ["{data}"]\n', encoding="utf-8")
    assert [(model.label, model.memory) for model in read_plan(plan).choices] == [("a", "1 GB"), ("b", "900 GB")]
    line = ["sweep", plan, "--out", tmp_path / "out", "--executor", "ray"]
    told = choicewise(*line, code=INCOMPLETE)
    assert f"b on {data} failed: no node of the cluster has room for b" in told.stderr
    plan.write_text(plan.read_text(encoding="utf-8").replace("900 GB", "0.5 GB"), encoding="utf-8")
    world.started.clear()
    choicewise(*line, code=0)
    assert world.started == ["b"]  # the other one is not asked again


@pytest.mark.parametrize("size", ["", "much", "12", "-1 GB", "0 GB", "12 PB", "1e9", 12, True, "nan GB", "99 B"])
def test_a_size_that_means_nothing_is_said_with_the_other_problems(size: object) -> None:
    table = {"models": [{"name": "a", "memory": size}, {}], "memory": size, "protocols": ["mmlu"]}
    with pytest.raises(UsageError) as caught:
        job_of(table)
    words = f'memory is {size!r}; it must be a size from 1 MB up, as in "12 GB"'
    for told in (words, f"models[0].{words}", "models[1].name is missing"):
        assert re.search(rf"^\W*{re.escape(told)}", str(caught.value), re.MULTILINE), told


def test_a_server_has_no_use_for_memory() -> None:
    address = "server:http://127.0.0.1:1/v1#m"
    with pytest.raises(UsageError, match="no use for memory"):
        _ = job_of({"models": [{"name": address, "memory": "1 GB"}], "protocols": ["mmlu"]}).choices
    assert job_of({"models": [address], "memory": "1 GB", "protocols": ["mmlu"]}).choices[0].name == address
