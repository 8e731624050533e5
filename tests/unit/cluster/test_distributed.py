"""Shards answered by replicas: the same table as from one process, whichever of them die; and what travels to them."""

import pickle
import random
import time
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from choicewise import Run, evaluate, load_model, open_dataset, open_run, questions
from choicewise import engine as shards
from choicewise.bundled import BENCHMARK
from choicewise.data.dataset import Dataset
from choicewise.engine import DEVICE_TOKENS, SHARD_TOKENS, SHARE, Shard, cut_shards, shard_tokens
from choicewise.errors import ModelError, UsageError
from choicewise.extensions.cluster import ray
from choicewise.extensions.cluster import workers as replicas
from choicewise.extensions.cluster.ray import Needs, RayReplica, in_words, needs_of, slots_of
from choicewise.extensions.cluster.replica import (
    Answered,
    Identity,
    LoadedModel,
    ReplicaDied,
    outcome,
)
from choicewise.extensions.cluster.workers import ReplicaPool
from choicewise.models.fake import HashModel
from choicewise.models.local.devices import Footprint
from choicewise.models.model import Recipe
from choicewise.questions import Conclusion, Cosine, Generation, MaskedLoss, Mass, Span, TokenSet
from choicewise.records import OBSERVATIONS
from choicewise.requests.request import BlockPrompt
from choicewise.running.answer import OneProcess, Pool
from choicewise.running.doctor import examine
from choicewise.running.observe import observe
from choicewise.running.plan import unique_tokens
from choicewise.store.tables import make_table, read_blocks
from choicewise.tokens.byte_coverings import ByteProbability
from choicewise.tokens.tokenizer import ByteTokenizer
from tests.helpers.answers import ids
from tests.helpers.replicas import DEAD, ReplicasHere, done

PROTOCOLS = ["mmlu/original", "mmlu/cloze:pmi-answer", "arc-easy/harness"]


def into(them: ReplicasHere) -> ReplicaPool:
    """A pool of replicas that a test made."""
    return ReplicaPool(lambda model: (them.all, them.lacking))


@pytest.fixture(scope="module")
def data() -> Dataset:
    return open_dataset(BENCHMARK)


@pytest.fixture(autouse=True)
def short_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(shards.SHARD_TOKENS, "cpu", 1000)


def run(
    data: Dataset, out: Path, executor: Pool | None = None, said: list[str] | None = None
) -> Run:
    say, chosen = (
        (said if said is not None else []).append,
        {"data": data, "protocols": PROTOCOLS, "limit": 8},
    )
    with executor or OneProcess() as pool:
        return evaluate(model=HashModel(), out=out, executor=pool, say=say, **chosen)  # type: ignore[arg-type]


def table(run: Run) -> pa.Table:
    """The observations as they lie on the disk: none is there twice."""
    stored = read_blocks(run.folder, run.manifest.blocks, "observations").sort_by("key")
    assert (len(set(stored["key"].to_pylist())), examine(run.folder).faults) == (
        stored.num_rows,
        [],
    )
    return stored


@pytest.fixture(scope="module")
def undisturbed(data: Dataset, tmp_path_factory: pytest.TempPathFactory) -> pa.Table:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(shards.SHARD_TOKENS, "cpu", 1000)
        return table(run(data, tmp_path_factory.mktemp("one") / "run"))


@pytest.mark.parametrize("size", [1, 2, 5])
def test_any_number_of_replicas_is_the_same(
    data: Dataset, undisturbed: pa.Table, tmp_path: Path, size: int
) -> None:
    them = ReplicasHere(HashModel(), size)
    result = run(data, tmp_path / "run", into(them))
    assert table(result).equals(undisturbed)
    assert sorted(them.answers) == list(range(len(them.answers)))
    assert len(them.answers) > 10
    assert them.ended == set(range(size))
    assert result.manifest.engine.spent is not None
    assert result.manifest.engine.spent.tokens_computed == 10 * undisturbed.num_rows
    later = ReplicasHere(HashModel(), size)
    assert table(run(data, tmp_path / "run", into(later))).equals(undisturbed)
    assert later.loads == []


@pytest.mark.costly("eight runs are evaluated")
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**32), st.integers(1, 4))
def test_replicas_that_die_at_random_lose_and_double_nothing(
    data: Dataset,
    undisturbed: pa.Table,
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    size: int,
) -> None:
    draw, deaths, said = random.Random(seed), list[int](), list[str]()

    def fate(replica: int, number: int | None) -> Exception | None:
        dies = number is not None and len(deaths) < 2 and draw.random() < 0.1
        deaths.extend([replica] * dies)
        return DEAD if dies else None

    them = ReplicasHere(HashModel(), size, fate)
    assert table(run(data, tmp_path_factory.mktemp("run") / "run", into(them), said)).equals(
        undisturbed
    )
    assert len([line for line in said if "a replica died" in line]) == len(deaths)
    assert len(them.loads) == size + len(deaths)


@pytest.mark.costly("whole runs")
def test_a_dead_driver_resumes(
    data: Dataset, undisturbed: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted again and again: what is asked later is asked in the same shards."""
    out, asked = tmp_path / "run", []
    for most in (2, 5, 9, 1000):
        them = ReplicasHere(HashModel(), 2)
        them.fate = MagicMock(side_effect=[None] * (most + 2) + [KeyboardInterrupt])  # two load
        with suppress(KeyboardInterrupt):
            run(data, out, into(them))
        asked.append(len(them.answers))
    assert table(open_run(out)).equals(undisturbed)
    assert asked[-1] > 0


OTHER_MODEL = ModelError("the replica on node-2 has another model")
REFUSED = ModelError("it knows no such token")


KILLED = "the last one: killed by the test"
ENDS: list[tuple[Any, str, int]] = [
    (lambda replica, number: REFUSED if number == 3 else None, "it knows no such token", 0),
    (
        lambda replica, number: OTHER_MODEL if number is None else None,
        "on node-2 has another model",
        1,
    ),
    (
        lambda replica, number: DEAD if number == 4 else None,
        f"3 replicas died over the same questions; {KILLED}",
        2,
    ),
    (
        lambda replica, number: DEAD,
        f"3 replicas died before they had loaded the model; {KILLED}",
        1,
    ),
]


@pytest.mark.parametrize(
    ("fate", "reason", "lines"), ENDS, ids=["as in one process", "load", "kill", "start"]
)
def test_what_ends_replicas_ends_the_run(
    data: Dataset, tmp_path: Path, fate: Any, reason: str, lines: int
) -> None:
    them, said = ReplicasHere(HashModel(), 2, fate), list[str]()
    with pytest.raises(ModelError, match=reason):
        run(data, tmp_path / "run", into(them), said)
    assert (len(said), them.ended) == (lines, {0, 1})


def test_a_replica_that_cant_be_loaded_is_gone_on_without(
    data: Dataset, undisturbed: pa.Table, tmp_path: Path
) -> None:
    fate = lambda replica, number: OTHER_MODEL if replica == 1 and number is None else None  # noqa: E731
    them, said = ReplicasHere(HashModel(), 2, fate), list[str]()
    assert table(run(data, tmp_path / "run", into(them), said)).equals(undisturbed)
    assert said == ["the replica on node-2 has another model; the run goes on without it"]
    assert sorted(them.loads) == [0, 1]


def test_a_replica_with_another_model_refuses_to_load_and_says_what_differs() -> None:
    own = Identity.of(HashModel())
    assert own.differences(replace(own)) == []
    for field, words in (
        ("version", "Choicewise: 0.0"),
        ("dtype", "dtype: 0.0"),
        ("window", "window: 0.0"),
    ):
        (line,) = replace(own, **{field: "0.0"}).differences(own)
        assert line.startswith(words)
    with pytest.raises(
        ModelError, match=r"another model .* \(weights or configuration: .* there, 0+ here"
    ):
        LoadedModel(Recipe("fake:hash"), None, replace(own, digest="0" * 64))


def test_without_room_it_says_so_and_ends(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "PAUSE", 0.0)
    monkeypatch.setattr(replicas, "PATIENCE", 0.2)
    monkeypatch.setattr(replicas, "BEAT", 0.05)
    them, said = ReplicasHere(HashModel(), 1), list[str]()
    them.short = "a replica needs 1 GPUs where 0 GPUs are free"
    with pytest.raises(
        ModelError, match="no replica could start within 0 s: a replica needs 1 GPUs where 0 GPUs"
    ):
        run(data, tmp_path / "run", into(them), said)
    assert said[0] == "waiting for the first replica: a replica needs 1 GPUs where 0 GPUs are free"


@pytest.mark.parametrize(
    ("error", "asked", "words"),
    [
        (UsageError, {"executor": "dask"}, "executor is 'dask'; it must be one of local, ray"),
        (UsageError, {"workers": 0}, "workers is 0; it must be at least 1"),
        (
            ModelError,
            {"model": HashModel(), "workers": 2},
            "fake:hash is in memory alone; pass a folder or a name",
        ),
    ],
)
def test_wrong_use(
    data: Dataset, tmp_path: Path, error: type[Exception], asked: dict[str, Any], words: str
) -> None:
    with pytest.raises(error, match=words):
        evaluate(
            **{
                "model": "fake:hash",
                "data": data,
                "protocols": PROTOCOLS,
                "out": tmp_path / "run",
                **asked,
            }
        )


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


# What travels between a driver and its replicas, and how a pool goes on

TEXT = np.frombuffer(b"the text before it", dtype=np.uint8).astype(np.int32)
NEXT = TEXT[:3]


QUESTIONS = [
    questions.Span(TEXT, NEXT, gold=True),
    questions.MaskedLoss(questions.Span(TEXT, NEXT)),
    questions.Mass(TEXT, questions.TokenSet([1, 5, 9])),
    questions.Generation(
        TEXT, 4, (b"x",), sampling=questions.Sampling.of(1, "item", 2), right=NEXT
    ),
    questions.Conclusion(questions.Generation(TEXT, 3), questions.Span(TEXT[:0], NEXT)),
    questions.Cosine(TEXT, NEXT),
    questions.Blanks(TEXT, np.asarray([1, 2]), np.asarray([2, 3]), 7),
    questions.Rendition(TEXT, NEXT),
    ByteProbability(TEXT, b"a word", (0, 1, 6), ((), (97,))),
    ByteProbability(TEXT, b"ab", (0, 2)),
]


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: type(question).__name__)
def test_every_kind_of_question_is_answered_elsewhere_as_here(question: BlockPrompt) -> None:
    shard = Shard({question.key: question}, 10)
    sent = pickle.dumps(shard)
    assert len(sent) < 2000
    there = pickle.loads(sent)  # noqa: S301
    assert [each.key for each in there.questions.values()] == [question.key]
    replica = LoadedModel(Recipe("fake:hash"), None, Identity.of(HashModel()))
    here = make_table(OBSERVATIONS, list(observe(HashModel(), shard.questions)))
    assert replica.answer(there).observations.equals(here)


def test_tokens_of_a_selfcheck_are_no_tokens_of_a_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    model = HashModel()
    model.computed = 0

    def check(depth: int) -> None:
        model.computed += 1000

    monkeypatch.setattr(model, "check", check)
    monkeypatch.setattr("choicewise.extensions.cluster.replica.load_model", lambda name: model)
    assert (
        LoadedModel(Recipe("counting"), None, Identity.of(HashModel())).answer(shard()).computed
        == 0
    )
    assert model.computed > 0


def test_what_a_replica_died_of_says_where(capfd: pytest.CaptureFixture[str]) -> None:
    died = outcome(lambda: np.zeros(2)[5])
    assert isinstance(died, ReplicaDied)
    assert str(died).startswith("IndexError: index 5 is out of bounds")
    assert ", test_distributed.py line " in str(died)
    assert "Traceback" in capfd.readouterr().err


def begun_pool(size: int) -> tuple[ReplicaPool, ReplicasHere, list[str]]:
    """A pool under way, its replicas, and the lines that it says."""
    them, said = ReplicasHere(HashModel(), size), list[str]()
    pool = into(them)
    with pool.respondent(SimpleNamespace(model=them.model), said.append):  # type: ignore[arg-type]
        return pool, them, said


def shard(number: int = 0) -> Shard:
    question = questions.Span(TEXT, np.asarray([number], dtype=np.int32))
    return Shard({question.key: question}, 10)


def test_patience_begins_when_the_last_replica_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas, "PAUSE", 0.1)
    monkeypatch.setattr(replicas, "PATIENCE", 0.3)
    pool, them, said = begun_pool(1)
    number = pool.submit(shard())
    while number not in pool.answered:
        pool.advance()
    time.sleep(0.5)  # a run works for longer than anybody would wait
    pool.advance(0)
    them.fate = lambda replica, number: ReplicaDied("the node is gone")
    them.short = "a replica needs 1 CPU where 0 CPUs are free"
    pool.submit(shard(1))
    pool.advance(0)
    pool.advance(0)
    assert said == ["a replica died (the node is gone); what it was asked is asked again"]
    with pytest.raises(
        ModelError, match="no replica could start within 0 s: a replica needs 1 CPU"
    ):
        for _ in range(100):
            pool.advance(0.02)
    assert len(said) > 1


def test_answers_that_cant_be_taken_yet_stop_what_is_asked_ahead() -> None:
    (pool, *_), empty = begun_pool(1), pa.Table.from_batches([], schema=OBSERVATIONS)
    for number in range(replicas.LATE):
        assert pool.wants
        pool.answered[number] = Answered(empty, None, None)
    assert not pool.wants


def test_a_node_where_none_can_load_is_given_up() -> None:
    pool, them, said = begun_pool(2)
    them.fate = lambda replica, number: (
        ReplicaDied("no such library") if replica > 0 and number is None else None
    )
    numbers = [pool.submit(shard(number)) for number in range(50)]
    while not all(number in pool.answered for number in numbers):
        pool.advance()
    reason = "3 replicas died before they had loaded the model; the last one: no such library"
    assert (said, them.ended) == ([f"{reason}; the run goes on without it"], {1})


def test_what_a_dead_replica_was_asked_after_that_is_asked_again() -> None:
    """It has two shards, and dies over the first: both are answered once, by another."""
    pool, them, _ = begun_pool(2)
    first, late = done(ReplicaDied("gone")), Future[Any]()
    own, answers = them.all[0], [first, late]
    answer = own.answer
    own.answer = lambda shard: answers.pop(0) if answers else answer(shard)  # type: ignore[method-assign]
    numbers = [pool.submit(shard(number)) for number in range(8)]
    while not all(number in pool.answered for number in numbers):
        pool.advance()
    assert late.cancelled()
    assert len(them.answers) == 8


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "The actor died unexpectedly before finishing this task.\n\tclass_name: Actor",
            "The actor died unexpectedly",
        ),
        (
            "The actor died.\n\tnode_ip: 10.0.0.7\nThe actor died because its node has died.",
            "The actor died because its",
        ),
        (
            "The actor died because of an error raised in its creation task, \x1b[36mray::Actor()\x1b[39m\n  at\n"
            "ModuleNotFoundError: No module named 'choicewise'",
            "ModuleNotFoundError: No module named 'choicewise'",
        ),
        ("", ""),
    ],
)
def test_of_rays_errors_the_line_that_says_why_is_told(text: str, words: str) -> None:
    actor = MagicMock()
    actor.answer.remote().future.return_value = done(RuntimeError(text))
    died = RayReplica(MagicMock(), actor).answer(shard()).exception()
    assert isinstance(died, ReplicaDied)
    assert str(died).startswith(f"RuntimeError: {words}")


# What a replica takes of a cluster

GB = 10**9
CPUS = {"CPU": 8.0, "memory": 64.0 * GB}
GPUS = {"CPU": 32.0, "GPU": 8.0, "memory": 512.0 * GB}
LARGE = Footprint(weights=140 * GB, workspace=4 * GB, context=GB, layer=4 * GB, host=7 * GB)
SMALL = Footprint(weights=14 * GB, workspace=4 * GB, context=GB, layer=GB, host=4 * GB)


@dataclass
class Named:
    """A model of which only this is known."""

    device: str
    name: str = "m"


def needs(
    device: str, *nodes: dict[str, float], footprint: Footprint = LARGE, **given: Any
) -> Needs:
    given = {"workers": None, "gpu_bytes": None, **given}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ray, "footprint_of", lambda model: footprint)
        return needs_of(Named(device), nodes, **given)  # type: ignore[arg-type]


def test_a_fake_takes_a_core() -> None:
    assert needs_of(HashModel(), [CPUS], None, None) == Needs(0, 1, 200_000_000)


def test_on_a_cpu_workers_divide_the_cores_and_each_has_its_memory() -> None:
    small = partial(needs, "cpu", CPUS, footprint=SMALL)
    assert (small(), small(workers=2).cpus) == (Needs(0, 1, SMALL.host), 4)
    assert small(CPUS, workers=3).cpus == 4  # two on one node
    assert (small(workers=9).cpus, small(memory=30 * GB)) == (1, Needs(0, 1, 30 * GB))


@given(st.lists(st.integers(1, 16), min_size=1, max_size=5), st.integers(1, 20))
def test_no_more_cores_could_be_had_by_each_worker(cores: list[int], workers: int) -> None:
    each = needs_of(
        HashModel(), [{"CPU": count, "memory": GB} for count in cores], workers, None
    ).cpus
    assert each == 1 or sum(count // each for count in cores) >= workers
    assert sum(count // (each + 1) for count in cores) < workers or each == max(cores)


def test_a_model_has_as_many_gpus_as_hold_it_or_the_memory_that_is_said() -> None:
    assert needs("cuda", GPUS, gpu_bytes=80 * GB) == Needs(2, 2, LARGE.host)
    assert (
        needs("cuda", GPUS, gpu_bytes=40 * GB).gpus,
        needs("cuda", GPUS, gpu_bytes=150 * GB).gpus,
    ) == (5, 1)
    assert needs("auto", GPUS, gpu_bytes=80 * GB).gpus == 2
    assert needs("cuda:0..3", GPUS, gpu_bytes=80 * GB).gpus == 4  # as its name says
    assert needs("cuda", GPUS).gpus == 1  # of unknown memory
    assert needs("auto", GPUS, {**GPUS, "GPU": 4.0}).gpus == 8
    assert needs("cuda", GPUS, gpu_bytes=80 * GB, memory=60 * GB) == Needs(1, 1, LARGE.host)
    assert needs("cuda", GPUS, gpu_bytes=80 * GB, memory=80 * GB).gpus == 1
    assert needs("cuda", GPUS, gpu_bytes=80 * GB, memory=80 * GB + 1).gpus == 2
    assert needs("auto", GPUS, gpu_bytes=80 * GB, memory=250 * GB).gpus == 4


@pytest.mark.parametrize(
    ("device", "nodes", "given", "words"),
    [
        (
            "cuda",
            [CPUS],
            {},
            "no node of the cluster has room for m: it needs 1 GPU (0 on the largest)",
        ),
        ("auto", [CPUS], {}, "it needs 1 GPU (0 on the largest)"),
        (
            "cuda:0..3",
            [{**GPUS, "GPU": 2.0}],
            {"gpu_bytes": 80 * GB},
            "it needs 4 GPUs (2 on the largest)",
        ),
        (
            "cuda",
            [{**GPUS, "GPU": 2.0}],
            {"gpu_bytes": 40 * GB},
            "m needs 145.0 GB of memory, more than the 2 GPUs of a node have together (80.0 GB); take a narrower dtype",
        ),
        (
            "cuda",
            [{**GPUS, "GPU": 1.0}],
            {"gpu_bytes": 40 * GB},
            "more than the GPU of a node has (40.0 GB)",
        ),
        (
            "cuda",
            [GPUS],
            {"gpu_bytes": 40 * GB, "memory": 400 * GB},
            "m needs 400.0 GB of memory, more than the 8",
        ),
        ("cpu", [CPUS], {"memory": 65 * GB}, "it needs 65.0 GB of memory (64.0 GB on the largest)"),
        (
            "cuda",
            [{"GPU": 1.0, "CPU": 0.0}],
            {},
            "1 CPU (0 on the largest) and 7.0 GB of memory (0.0 GB on the",
        ),
        ("cpu", [], {}, "it needs 1 CPU (0 on the largest)"),
    ],
)
def test_no_room_is_said(
    device: str, nodes: list[dict[str, float]], given: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError) as caught:
        needs(device, *nodes, **given)
    assert words in str(caught.value)


def test_a_cluster_and_what_it_lacks_in_words() -> None:
    short = "2 GPUs (1 free) and 12.0 GB of memory (3.5 GB free)"
    assert Needs(2, 1, 12 * GB).lacking({"CPU": 4, "GPU": 1, "memory": 3.5 * GB}) == short
    assert Needs(0, 1, 0).lacking({"CPU": 1}) == ""
    assert in_words([CPUS, CPUS, GPUS]) == "3 nodes, 8 GPUs, 48 CPUs and 640.0 GB of memory"
    assert (in_words([{"CPU": 1.0}]), slots_of([CPUS, GPUS])) == ("1 node and 1 CPU", 8)
    assert (slots_of([CPUS, CPUS]), slots_of([])) == (16, 1)


LETTERS = TokenSet([1, 2])


tokens = st.lists(st.integers(0, 2), min_size=1, max_size=6).map(lambda drawn: ids(*drawn))
spans = st.builds(Span, tokens, tokens)
generations = st.builds(Generation, tokens, st.integers(1, 4))
drawn_questions = st.one_of(
    spans,
    st.builds(Mass, tokens, st.just(LETTERS)),
    generations,
    st.builds(Conclusion, generations, spans),
    st.builds(MaskedLoss, spans),
    st.builds(Cosine, tokens, tokens),
)


def by_key(asked: list[BlockPrompt]) -> dict[str, BlockPrompt]:
    return {question.key: question for question in asked}


@given(st.lists(drawn_questions, max_size=30), st.integers(1, 60))
def test_every_question_is_in_exactly_one_shard(asked: list[BlockPrompt], size: int) -> None:
    wanted = by_key(asked)
    shards = list(cut_shards(wanted, size))
    assert sorted([key for shard in shards for key in shard]) == sorted(wanted)
    assert all(
        shard and all(wanted[key] is question for key, question in shard.items())
        for shard in shards
    )


@given(
    st.lists(drawn_questions, max_size=30), st.integers(1, 60), st.randoms(use_true_random=False)
)
def test_shards_do_not_depend_on_the_order(
    asked: list[BlockPrompt], size: int, random: object
) -> None:
    wanted = by_key(asked)
    shuffled = list(wanted.items())
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    one, other = (list(cut_shards(each, size)) for each in (wanted, dict(shuffled)))
    assert [set(shard) for shard in one] == [set(shard) for shard in other]


@given(
    st.lists(generations, min_size=1, max_size=12), st.lists(spans, max_size=12), st.integers(1, 20)
)
def test_what_follows_a_generation_is_in_its_shard(
    generated: list[Generation], spans: list[Span], size: int
) -> None:
    after = [
        Conclusion(generated[place % len(generated)], span) for place, span in enumerate(spans)
    ]
    shards = list(cut_shards(by_key([*generated, *after]), size))
    place = {key: number for number, shard in enumerate(shards) for key in shard}
    assert all(place[question.key] == place[question.generation.key] for question in after)


@settings(max_examples=80)
@given(
    st.lists(st.integers(1, 300), min_size=1, max_size=60),
    st.integers(1, 200),
    st.integers(50, 400),
)
def test_a_cut_computes_hardly_anything_twice(texts: list[int], header: int, size: int) -> None:
    """Questions after a common header: what is computed over all shards, against the tree of all of them."""
    shared = np.zeros(header, dtype=np.int32)
    asked = [
        Span(np.concatenate([shared, np.full(length, place, dtype=np.int32)]), ids(7, 8))
        for place, length in enumerate(texts, 1)
    ]
    shards = [list(shard.values()) for shard in cut_shards(by_key(asked), size)]  # type: ignore[arg-type]
    computed = [unique_tokens(shard, ByteTokenizer()) for shard in shards]
    assert sum(computed) <= unique_tokens(asked, ByteTokenizer()) * (1 + 1 / SHARE) + 1
    for before, _ in pairwise(computed):
        assert before >= size, "only the last shard is short"


def test_long_work_is_cut_and_neither_short_work_nor_a_long_common_context_for_a_few_questions() -> (
    None
):
    asked = by_key([Span(np.full(50, place, dtype=np.int32), ids(1)) for place in range(100)])
    sizes = [len(shard) for shard in cut_shards(asked, 1000)]
    assert (sizes, len(list(cut_shards(asked, 5000)))) == ([20, 20, 20, 20, 20], 1)
    assert (len(list(cut_shards(asked, None))), list(cut_shards({}, 10))) == (1, [])
    header = np.zeros(1000, dtype=np.int32)
    asked = by_key(
        [Span(np.concatenate([header, ids(place, place, place)]), ids(1)) for place in range(100)]
    )
    assert len(list(cut_shards(asked, 200))) == 1


@pytest.mark.parametrize(
    ("device", "size"),
    [("cpu", SHARD_TOKENS["cpu"]), ("cuda:1", DEVICE_TOKENS), ("cuda", DEVICE_TOKENS)],
)
def test_a_shard_is_as_long_as_suits_the_device(
    device: str, size: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    assert shard_tokens(device) == size


def test_of_a_cluster_that_ends_its_own_folder_goes_and_no_other(tmp_path: Path) -> None:
    own, other = tmp_path / "session_1", tmp_path / "session_2"
    for session in (own, other):
        (session / "logs").mkdir(parents=True)
        (session / "logs" / "raylet.out").write_text("started")
    (tmp_path / "session_latest").symlink_to(own)
    ended: list[str] = []
    ray._end(SimpleNamespace(shutdown=lambda: ended.append("shutdown")), own)
    assert (ended, [*tmp_path.iterdir()]) == (["shutdown"], [other])
