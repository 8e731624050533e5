"""Shards answered by replicas: the same table as from one process, whichever of them die."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from choicewise import engine as shards
from choicewise import evaluate, load_model, open_run
from choicewise.bundled import BENCHMARK
from choicewise.data.dataset import Dataset
from choicewise.data.open import open_dataset
from choicewise.errors import ModelError, UsageError
from choicewise.models.fake import HashModel
from choicewise.models.model import Model, Recipe
from choicewise.results.run import Run
from choicewise.running import workers as replicas
from choicewise.running.doctor import examine
from choicewise.running.replica import Identity, LoadedModel, Replica
from choicewise.running.workers import ONE_PROCESS, Parallel, Pool
from choicewise.store.tables import read_blocks
from tests.helpers.replicas import DEAD, ReplicasHere

PROTOCOLS = ["mmlu/original", "mmlu/cloze:pmi-answer", "arc-easy/harness"]


class Into(Pool):
    """A pool of replicas that a test made."""

    def __init__(self, them: ReplicasHere) -> None:
        super().__init__(Parallel("local", 2))
        self.them = them

    def replicas_of(self, model: Model) -> tuple[list[Replica], Callable[[], str | None]]:
        return [*self.them.all], self.them.lacking


@pytest.fixture(scope="module")
def data() -> Dataset:
    return open_dataset(BENCHMARK)


@pytest.fixture(autouse=True)
def short_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(shards.SHARD_TOKENS, "cpu", 1000)


def run(data: Dataset, out: Path, executor: Pool | None = None, said: list[str] | None = None) -> Run:
    say, chosen = (said if said is not None else []).append, {"data": data, "protocols": PROTOCOLS, "limit": 8}
    with executor or Pool(ONE_PROCESS) as pool:
        return evaluate(model=HashModel(), out=out, executor=pool, say=say, **chosen)  # type: ignore[arg-type]


def table(run: Run) -> pa.Table:
    """The observations as they lie on the disk: none is there twice."""
    stored = read_blocks(run.folder, run.manifest.blocks, "observations").sort_by("key")
    assert len(set(stored["key"].to_pylist())) == stored.num_rows
    assert examine(run.folder).faults == []
    return stored


@pytest.fixture(scope="module")
def undisturbed(data: Dataset, tmp_path_factory: pytest.TempPathFactory) -> pa.Table:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(shards.SHARD_TOKENS, "cpu", 1000)
        return table(run(data, tmp_path_factory.mktemp("one") / "run"))


@pytest.mark.parametrize("size", [1, 2, 5])
def test_any_number_of_replicas_gives_the_table_of_one_process(
    data: Dataset, undisturbed: pa.Table, tmp_path: Path, size: int
) -> None:
    them = ReplicasHere(HashModel(), size)
    result = run(data, tmp_path / "run", Into(them))
    assert table(result).equals(undisturbed)
    assert sorted(them.answers) == list(range(len(them.answers)))
    assert len(them.answers) > 10
    assert them.ended == set(range(size))
    assert result.manifest.engine.spent is not None
    assert result.manifest.engine.spent.tokens_computed == 10 * undisturbed.num_rows


@pytest.mark.costly("runs are evaluated")
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**32), st.integers(1, 4))
def test_replicas_that_die_at_random_lose_and_double_nothing(
    data: Dataset, undisturbed: pa.Table, tmp_path_factory: pytest.TempPathFactory, seed: int, size: int
) -> None:
    draw, deaths = random.Random(seed), 0

    def fate(replica: int, number: int | None) -> Exception | None:
        nonlocal deaths
        if number is not None and deaths < 2 and draw.random() < 0.1:
            deaths += 1
            return DEAD
        return None

    said: list[str] = []
    them = ReplicasHere(HashModel(), size, fate)
    result = run(data, tmp_path_factory.mktemp("run") / "run", Into(them), said)
    assert table(result).equals(undisturbed)
    assert len([line for line in said if "a replica died" in line]) == deaths
    assert len(them.loads) == size + len([line for line in said if "a replica died" in line])


@pytest.mark.costly("runs are evaluated")
def test_a_driver_that_dies_goes_on_with_whole_shards(
    data: Dataset, undisturbed: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted again and again: what is asked later is asked in the same shards."""
    out, asked = tmp_path / "run", []
    for most in (2, 5, 9, 10**6):
        them = ReplicasHere(HashModel(), 2)
        them.fate = lambda replica, number, them=them, most=most: _interrupt(len(them.answers) >= most)
        with suppress(KeyboardInterrupt):
            run(data, out, Into(them))
        asked.append(len(them.answers))
    assert table(open_run(out)).equals(undisturbed)
    assert asked[-1] > 0


def _interrupt(now: bool) -> None:
    if now:
        raise KeyboardInterrupt


def test_questions_that_kill_every_replica_end_the_run_with_the_reason(data: Dataset, tmp_path: Path) -> None:
    them = ReplicasHere(HashModel(), 2, lambda replica, number: DEAD if number == 4 else None)
    with pytest.raises(ModelError, match="3 replicas died over the same questions; the last one: killed by the test"):
        run(data, tmp_path / "run", Into(them))
    assert them.ended == {0, 1}


def test_replicas_that_never_come_up_end_the_run(data: Dataset, tmp_path: Path) -> None:
    them, said = ReplicasHere(HashModel(), 2, lambda replica, number: DEAD), list[str]()
    with pytest.raises(ModelError, match="3 replicas died before they had loaded the model; the last one: killed by"):
        run(data, tmp_path / "run", Into(them), said)
    assert len(said) == 1  # of the first


def test_a_replica_that_cant_be_loaded_is_gone_on_without(data: Dataset, undisturbed: pa.Table, tmp_path: Path) -> None:
    other = ModelError("the replica on node-2 has another model")
    them = ReplicasHere(HashModel(), 2, lambda replica, number: other if replica == 1 and number is None else None)
    said: list[str] = []
    assert table(run(data, tmp_path / "run", Into(them), said)).equals(undisturbed)
    assert said == ["the replica on node-2 has another model; the run goes on without it"]
    assert sorted(them.loads) == [0, 1]


def test_when_no_replica_can_be_loaded_the_run_ends(data: Dataset, tmp_path: Path) -> None:
    other = ModelError("the replica on node-2 has another model")
    them = ReplicasHere(HashModel(), 2, lambda replica, number: other if number is None else None)
    with pytest.raises(ModelError, match="on node-2 has another model"):
        run(data, tmp_path / "run", Into(them))


def test_a_replica_with_another_model_refuses_to_load() -> None:
    own = Identity.of(HashModel())
    with pytest.raises(ModelError, match=r"another model .* \(weights or configuration: .* there, 0+ here"):
        LoadedModel(Recipe("fake:hash"), None, replace(own, digest="0" * 64))


@pytest.mark.parametrize(
    ("field", "words"), [("version", "Choicewise: 0.0"), ("dtype", "dtype: 0.0"), ("window", "window: 0.0")]
)
def test_what_a_replica_may_not_have_otherwise(field: str, words: str) -> None:
    own = Identity.of(HashModel())
    assert own.differences(replace(own)) == []
    (line,) = replace(own, **{field: "0.0"}).differences(own)  # type: ignore[arg-type]
    assert line.startswith(words)


def test_what_a_model_cant_answer_ends_the_run_as_in_one_process(data: Dataset, tmp_path: Path) -> None:
    refused = ModelError("it knows no such token")
    them = ReplicasHere(HashModel(), 2, lambda replica, number: refused if number == 3 else None)
    with pytest.raises(ModelError, match="it knows no such token"):
        run(data, tmp_path / "run", Into(them))


def test_without_room_it_says_so_and_ends(data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas, "PAUSE", 0.0)
    monkeypatch.setattr(replicas, "PATIENCE", 0.2)
    monkeypatch.setattr(replicas, "BEAT", 0.05)
    them, said = ReplicasHere(HashModel(), 1), list[str]()
    them.short = "a replica needs 1 GPUs where 0 GPUs are free"
    with pytest.raises(ModelError, match="no replica could start within 0 s: a replica needs 1 GPUs where 0 GPUs"):
        run(data, tmp_path / "run", Into(them), said)
    assert said[0] == "waiting for the first replica: a replica needs 1 GPUs where 0 GPUs are free"


def test_what_is_there_is_not_asked_and_starts_nothing(data: Dataset, undisturbed: pa.Table, tmp_path: Path) -> None:
    run(data, tmp_path / "run")
    them = ReplicasHere(HashModel(), 2)
    assert table(run(data, tmp_path / "run", Into(them))).equals(undisturbed)
    assert them.loads == []


@pytest.mark.parametrize(
    ("executor", "workers", "words"),
    [
        ("dask", None, "executor is 'dask'; it must be one of local, ray"),
        ("local", 0, "workers is 0; it must be at least 1"),
    ],
)
def test_wrong_use(data: Dataset, tmp_path: Path, executor: str, workers: int | None, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        evaluate(model="fake:hash", data=data, protocols=PROTOCOLS, out=tmp_path, executor=executor, workers=workers)


def test_a_model_in_memory_alone_cant_be_loaded_elsewhere(data: Dataset, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="fake:hash is in memory alone; pass a folder or a name"):
        evaluate(model=HashModel(), data=data, protocols=PROTOCOLS, out=tmp_path / "run", workers=2)


@pytest.mark.costly("two processes")
def test_processes_give_the_table_of_one(data: Dataset, tmp_path: Path) -> None:
    """Without patched shards, as processes have their own."""
    tables = []
    for workers in (1, 2):
        out = tmp_path / str(workers)
        model = load_model("fake:hash")
        evaluate(model=model, data=data, protocols=PROTOCOLS, limit=6, out=out, workers=workers)
        tables.append(table(open_run(out)))
    assert tables[0].equals(tables[1])
