"""What travels between a driver and its replicas: every kind of question, and little more than its tokens."""

from __future__ import annotations

import pickle
import time
from concurrent.futures import Future
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from choicewise.engine import Shard
from choicewise.errors import ModelError
from choicewise.models.fake import HashModel
from choicewise.models.model import Recipe, SelfCheck
from choicewise.questions import (
    Blanks,
    Conclusion,
    Cosine,
    Generation,
    MaskedLoss,
    Mass,
    Rendition,
    Sampling,
    Span,
    TokenSet,
)
from choicewise.records import OBSERVATIONS
from choicewise.requests.request import BlockQuestion
from choicewise.running import ray as ray_cluster
from choicewise.running import workers as replicas
from choicewise.running.replica import Answered, Identity, LoadedModel, ReplicaDied, outcome
from choicewise.running.work import observe
from choicewise.running.workers import Parallel, Pool
from choicewise.store.tables import make_table
from choicewise.tokens.byte_coverings import ByteProbability
from tests.helpers.replicas import ReplicasHere, done

TEXT = np.frombuffer(b"the text before it", dtype=np.uint8).astype(np.int32)
NEXT = TEXT[:3]


def questions() -> list[BlockQuestion]:
    sampled = Sampling.of(1, "item", 2)
    return [
        Span(TEXT, NEXT, gold=True),
        MaskedLoss(Span(TEXT, NEXT)),
        Mass(TEXT, TokenSet([1, 5, 9])),
        Generation(TEXT, 4, (b"x",), sampling=sampled, right=NEXT),
        Conclusion(Generation(TEXT, 3), Span(TEXT[:0], NEXT)),
        Cosine(TEXT, NEXT),
        Blanks(TEXT, np.asarray([1, 2]), np.asarray([2, 3]), 7),
        Rendition(TEXT, NEXT),
        ByteProbability(TEXT, b"a word", (0, 1, 6), ((), (97,))),
        ByteProbability(TEXT, b"ab", (0, 2)),
    ]


@pytest.mark.parametrize("question", questions(), ids=lambda question: type(question).__name__)
def test_every_kind_of_question_is_answered_elsewhere_as_here(question: BlockQuestion) -> None:
    shard = Shard({question.key: question}, 10)
    sent = pickle.dumps(shard)
    assert len(sent) < 2000
    there = pickle.loads(sent)  # noqa: S301
    assert [asked.key for asked in there.questions.values()] == [question.key]
    replica = LoadedModel(Recipe("fake:hash"), None, Identity.of(HashModel()))
    here = make_table(OBSERVATIONS, list(observe(HashModel(), shard.questions)))
    assert replica.answer(there).observations.equals(here)


class Counting(HashModel):
    """A model whose self-check costs tokens."""

    computed = 0

    def check(self, depth: int) -> SelfCheck | None:
        self.computed += 1000
        return None


def test_tokens_of_a_selfcheck_are_no_tokens_of_a_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("choicewise.running.replica.load_model", lambda name: Counting())
    replica = LoadedModel(Recipe("counting"), None, Identity.of(HashModel()))
    question = Span(TEXT, NEXT)
    assert replica.answer(Shard({question.key: question}, 10)).computed == 0


def test_what_a_replica_died_of_says_where(capfd: pytest.CaptureFixture[str]) -> None:
    died = outcome(lambda: np.zeros(2)[5])
    assert isinstance(died, ReplicaDied)
    assert str(died).startswith("IndexError: index 5 is out of bounds")
    assert ", test_sent_shards.py line " in str(died)
    assert "Traceback" in capfd.readouterr().err


class Into(Pool):
    """A pool of replicas that a test made."""

    def __init__(self, size: int = 1) -> None:
        super().__init__(Parallel("local", 2))
        self.them, self.said = ReplicasHere(HashModel(), size), list[str]()
        self._replicas, self._lacking = [*self.them.all], self.them.lacking
        self._begin(self.said.append)


def shard(number: int = 0) -> Shard:
    question = Span(TEXT, np.asarray([number], dtype=np.int32))
    return Shard({question.key: question}, 10)


def test_patience_begins_when_the_last_replica_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas, "PAUSE", 0.1)
    monkeypatch.setattr(replicas, "PATIENCE", 0.3)
    pool = Into()
    number = pool.submit(shard())
    while number not in pool.answered:
        pool.advance()
    time.sleep(0.5)  # a run works for longer than anybody would wait
    pool.advance(0)
    pool.them.fate = lambda replica, number: ReplicaDied("the node is gone")
    pool.them.short = "a replica needs 1 CPU where 0 CPUs are free"
    pool.submit(shard(1))
    pool.advance(0)
    pool.advance(0)
    assert pool.said == ["a replica died (the node is gone); what it was asked is asked again"]
    with pytest.raises(ModelError, match="no replica could start within 0 s: a replica needs 1 CPU"):
        for _ in range(100):
            pool.advance(0.02)
    assert len(pool.said) > 1


def test_answers_that_cant_be_taken_yet_stop_what_is_asked_ahead() -> None:
    pool = Into()
    empty = pa.Table.from_batches([], schema=OBSERVATIONS)
    for number in range(replicas.LATE):
        assert pool.wants
        pool.answered[number] = Answered(empty, None, None)
    assert not pool.wants


def test_a_node_where_none_can_load_is_given_up() -> None:
    pool = Into(2)
    pool.them.fate = lambda replica, number: ReplicaDied("no such library") if replica > 0 and number is None else None
    numbers = [pool.submit(shard(number)) for number in range(50)]
    while not all(number in pool.answered for number in numbers):
        pool.advance()
    reason = "3 replicas died before they had loaded the model; the last one: no such library"
    assert pool.said == [f"{reason}; the run goes on without it"]
    assert pool.them.ended == {1}


def test_what_a_dead_replica_was_asked_after_that_is_asked_again() -> None:
    """It has two shards, and dies over the first: both are answered once, by another."""
    pool = Into(2)
    first = done(ReplicaDied("gone"))
    late = Future[Any]()
    own, answers = pool.them.all[0], [first, late]
    answer = own.answer
    own.answer = lambda shard: answers.pop(0) if answers else answer(shard)  # type: ignore[method-assign]
    numbers = [pool.submit(shard(number)) for number in range(8)]
    while not all(number in pool.answered for number in numbers):
        pool.advance()
    assert late.cancelled()
    assert len(pool.them.answers) == 8


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The actor died unexpectedly before finishing this task.\n\tclass_name: Actor", "The actor died unexpectedly"),
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
    assert ray_cluster._short(RuntimeError(text)).startswith(f"RuntimeError: {words}")
