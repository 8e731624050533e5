"""Shards answered by replicas: the same table as from one process, whichever of them die."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from choicewise import evaluate, load_model, open_run
from choicewise.bundled import BENCHMARK
from choicewise.data.dataset import Dataset
from choicewise.data.open import open_dataset
from choicewise.errors import ModelError, UsageError
from choicewise.models.fake import HashModel
from choicewise.models.model import Model
from choicewise.results.run import Run
from choicewise.running import executor as shards
from choicewise.running import workers as replicas
from choicewise.running.replica import Happened, Identity, Refused
from choicewise.running.workers import ONE_PROCESS, Parallel, Workforce
from choicewise.store.doctor import examine
from choicewise.store.tables import read_blocks

from .crews import DEAD, CrewHere, Fate

PROTOCOLS = ["mmlu/original", "mmlu/cloze:pmi-answer", "arc-easy/harness"]


class Into(Workforce):
    """Work for a crew that a test made."""

    def __init__(self, crew: CrewHere, patience: float | None = 60.0) -> None:
        super().__init__(Parallel("local", 2))
        self.crew, self._patience = crew, patience

    def _crew(self, model: Model) -> CrewHere:
        return self.crew


@pytest.fixture(scope="module")
def data() -> Dataset:
    return open_dataset(BENCHMARK)


@pytest.fixture(autouse=True)
def short_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(shards.SHARD_TOKENS, "cpu", 1000)


def run(data: Dataset, out: Path, executor: Workforce | None = None, said: list[str] | None = None) -> Run:
    say, chosen = (said if said is not None else []).append, {"data": data, "protocols": PROTOCOLS, "limit": 8}
    with executor or Workforce(ONE_PROCESS) as workforce:
        return evaluate(model=HashModel(), out=out, executor=workforce, say=say, **chosen)  # type: ignore[arg-type]


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
    crew = CrewHere(HashModel(), size)
    result = run(data, tmp_path / "run", Into(crew))
    assert table(result).equals(undisturbed)
    assert sorted(crew.answers) == list(range(len(crew.answers)))
    assert len(crew.answers) > 10
    assert crew.ended
    assert result.manifest.engine.spent is not None
    assert result.manifest.engine.spent.tokens_computed == 10 * undisturbed.num_rows


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**32), st.integers(1, 4))
def test_replicas_that_die_at_random_lose_and_double_nothing(
    data: Dataset, undisturbed: pa.Table, tmp_path_factory: pytest.TempPathFactory, seed: int, size: int
) -> None:
    draw, deaths = random.Random(seed), 0

    def fate(member: int, number: int | None) -> Happened | None:
        nonlocal deaths
        if deaths < 2 and draw.random() < 0.1:
            deaths += 1
            return DEAD
        return None

    said: list[str] = []
    crew = CrewHere(HashModel(), size, fate)
    result = run(data, tmp_path_factory.mktemp("run") / "run", Into(crew), said)
    assert table(result).equals(undisturbed)
    assert len([line for line in said if "a replica died" in line]) == deaths
    assert len(crew.started) == size + deaths


def test_a_driver_that_dies_goes_on_with_whole_shards(
    data: Dataset, undisturbed: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted again and again: what is asked later is asked in the same shards."""
    out, asked = tmp_path / "run", []
    for most in (2, 5, 9, 10**6):
        crew = CrewHere(HashModel(), 2)
        crew.fate = lambda member, number, crew=crew, most=most: _interrupt(len(crew.answers) >= most)
        with suppress(KeyboardInterrupt):
            run(data, out, Into(crew))
        asked.append(len(crew.answers))
    assert table(open_run(out)).equals(undisturbed)
    assert asked[-1] > 0


def _interrupt(now: bool) -> None:
    if now:
        raise KeyboardInterrupt


def test_questions_that_kill_every_replica_end_the_run_with_the_reason(data: Dataset, tmp_path: Path) -> None:
    crew = CrewHere(HashModel(), 2, lambda member, number: DEAD if number == 4 else None)
    with pytest.raises(ModelError, match="3 replicas died over the same questions; the last one: killed by the test"):
        run(data, tmp_path / "run", Into(crew))
    assert crew.ended


def test_replicas_that_never_come_up_end_the_run(data: Dataset, tmp_path: Path) -> None:
    crew = CrewHere(HashModel(), 2, lambda member, number: DEAD)
    with pytest.raises(ModelError, match="4 replicas died one after the other"):
        run(data, tmp_path / "run", Into(crew))
    assert len(crew.started) <= 6


def other_digest(model: HashModel) -> Identity:
    return replace(Identity.of(model), digest="0" * 64, host="node-2")


def test_a_replica_with_another_model_answers_nothing(data: Dataset, undisturbed: pa.Table, tmp_path: Path) -> None:
    model = HashModel()
    fate: Fate = lambda member, number: other_digest(model) if member == 1 and number is None else None  # noqa: E731
    said: list[str] = []
    crew = CrewHere(model, 2, fate)
    assert table(run(data, tmp_path / "run", Into(crew), said)).equals(undisturbed)
    (line,) = said
    assert line.startswith("the replica on node-2 has another model under the same name (weights or configuration: 0")
    assert line.endswith("; the run goes on without it")
    assert crew.started == [0, 1]


def test_when_all_replicas_have_another_model_the_run_ends(data: Dataset, tmp_path: Path) -> None:
    model = HashModel()
    crew = CrewHere(model, 2, lambda member, number: other_digest(model) if number is None else None)
    with pytest.raises(ModelError, match="another model under the same name"):
        run(data, tmp_path / "run", Into(crew))


@pytest.mark.parametrize(
    ("field", "words"), [("version", "Choicewise: 0.0"), ("dtype", "dtype: 0.0"), ("window", "window: 0.0")]
)
def test_what_a_replica_may_not_have_otherwise(field: str, words: str) -> None:
    own = Identity.of(HashModel())
    assert own.differences(replace(own, host="elsewhere")) == []
    (line,) = replace(own, **{field: "0.0"}).differences(own)  # type: ignore[arg-type]
    assert line.startswith(words)


def test_what_a_model_cant_answer_ends_the_run_as_in_one_process(data: Dataset, tmp_path: Path) -> None:
    refused = Refused(ModelError("it knows no such token"))
    crew = CrewHere(HashModel(), 2, lambda member, number: refused if number == 3 else None)
    with pytest.raises(ModelError, match="it knows no such token"):
        run(data, tmp_path / "run", Into(crew))


def test_without_room_it_says_so_and_ends(data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas, "PAUSE", 0.0)
    crew, said = CrewHere(HashModel(), 1), list[str]()
    crew.short = "a replica needs 1 GPUs where 0 GPUs are free"
    with pytest.raises(ModelError, match="no replica could start within 0 s: a replica needs 1 GPUs where 0 GPUs"):
        run(data, tmp_path / "run", Into(crew, patience=0.2), said)
    assert said[0] == "waiting for the first replica: a replica needs 1 GPUs where 0 GPUs are free"


def test_what_is_there_is_not_asked_and_starts_nothing(data: Dataset, undisturbed: pa.Table, tmp_path: Path) -> None:
    run(data, tmp_path / "run")
    crew = CrewHere(HashModel(), 2)
    assert table(run(data, tmp_path / "run", Into(crew))).equals(undisturbed)
    assert crew.started == []


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


def test_processes_give_the_table_of_one(data: Dataset, tmp_path: Path) -> None:
    """Without patched shards, as processes have their own."""
    tables = []
    for workers in (1, 2):
        out = tmp_path / str(workers)
        model = load_model("fake:hash")
        evaluate(model=model, data=data, protocols=PROTOCOLS, limit=6, out=out, workers=workers)
        tables.append(table(open_run(out)))
    assert tables[0].equals(tables[1])
