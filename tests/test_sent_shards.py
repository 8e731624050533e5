"""What travels between a driver and its replicas: every kind of question, and little more than its tokens."""

from __future__ import annotations

import pickle
import time
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

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
from choicewise.requests.prepared import BlockQuestion
from choicewise.running import ray as ray_crew
from choicewise.running import workers as replicas
from choicewise.running.executor import Shard
from choicewise.running.replica import Answered, Happened, Identity, Lost, Replica, last_words
from choicewise.running.work import observe
from choicewise.running.workers import Replicas
from choicewise.store.tables import make_table
from choicewise.tokens.byte_coverings import ByteProbability
from choicewise.tokens.tokenizer import vocabulary

from .crews import CrewHere

TEXT = np.frombuffer(b"the text before it", dtype=np.uint8).astype(np.int32)
NEXT = TEXT[:3]


def questions() -> list[BlockQuestion]:
    model = HashModel()
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
        ByteProbability(TEXT, b"a word", (0, 1, 6), vocabulary(model.tokenizer), ((), (97,))),
        ByteProbability(TEXT, b"ab", (0, 2), vocabulary(model.tokenizer)),
    ]


@pytest.mark.parametrize("question", questions(), ids=lambda question: type(question).__name__)
def test_every_kind_of_question_is_answered_elsewhere_as_here(question: BlockQuestion) -> None:
    shard = Shard({question.key: question}, 10)
    sent = pickle.dumps(shard)
    assert len(sent) < 2000
    there = pickle.loads(sent)  # noqa: S301
    assert [asked.key for asked in there.questions.values()] == [question.key]
    replica = Replica(Recipe("fake:hash"))
    replica.load()
    here = make_table(OBSERVATIONS, list(observe(HashModel(), shard.questions)))
    assert replica.answer(3, there).observations.equals(here)


class Counting(HashModel):
    """A model whose self-check costs tokens."""

    computed = 0

    def check(self, depth: int) -> SelfCheck | None:
        self.computed += 1000
        return None


def test_tokens_of_a_selfcheck_are_no_tokens_of_a_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("choicewise.running.replica.load_model", lambda name: Counting())
    replica = Replica(Recipe("counting"))
    question = Span(TEXT, NEXT)
    assert replica.answer(0, Shard({question.key: question}, 10)).computed == 0


def test_what_a_replica_died_of_says_where(capfd: pytest.CaptureFixture[str]) -> None:
    try:
        np.zeros(2)[5]
    except IndexError as error:
        words = last_words(error)
    assert words.startswith("IndexError: index 5 is out of bounds")
    assert ", test_sent_shards.py line " in words
    assert "Traceback" in capfd.readouterr().err


def crewed(size: int = 1) -> tuple[CrewHere, Replicas, list[str]]:
    crew, said = CrewHere(HashModel(), size), list[str]()
    replicas = Replicas(crew, Identity.of(HashModel()), patience=0.3)
    replicas.begin(said.append)
    return crew, replicas, said


def shard(number: int = 0) -> Shard:
    question = Span(TEXT, np.asarray([number], dtype=np.int32))
    return Shard({question.key: question}, 10)


def test_patience_begins_when_the_last_replica_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas, "PAUSE", 0.1)
    crew, staff, said = crewed()
    number = staff.submit(shard())
    while number not in staff.answered:
        staff.advance()
    time.sleep(0.5)  # a run works for longer than anybody would wait
    staff.advance()
    crew.fate = lambda member, number: Lost("the node is gone")
    crew.short = "a replica needs 1 CPU where 0 CPUs are free"
    staff.submit(shard(1))
    staff.advance()
    staff.advance()
    assert said == ["a replica died (the node is gone); what it was asked is asked again"]
    with pytest.raises(ModelError, match="no replica could start within 0 s: a replica needs 1 CPU"):
        for _ in range(100):
            staff.advance()
            time.sleep(0.02)
    assert len(said) > 1


def test_answers_that_cant_be_taken_yet_stop_what_is_asked_ahead() -> None:
    _, staff, _ = crewed()
    assert staff.wants
    empty = pa.Table.from_batches([], schema=OBSERVATIONS)
    for number in range(replicas.LATE):
        assert staff.wants
        staff.answered[number] = Answered(number, empty, None, None)
    assert not staff.wants


def test_a_node_where_none_can_load_is_given_up() -> None:
    crew, staff, said = crewed(2)
    crew.fate = lambda member, number: Lost("no such library") if member > 0 and number is None else None
    numbers = [staff.submit(shard(number)) for number in range(50)]
    while not all(number in staff.answered for number in numbers):
        staff.advance()
    assert crew.started == [0, 1, 2, 3]
    reason = "3 replicas died before they had loaded the model; the last one: no such library"
    assert said[2:] == [f"{reason}; the run goes on without it"]


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
    assert ray_crew._short(RuntimeError(text)).startswith(f"RuntimeError: {words}")


def test_what_a_dropped_replica_still_says_is_not_heard() -> None:
    """It was given up, its shard answered by another, and then its own answer comes after all."""
    crew, staff, _ = crewed(2)
    number = staff.submit(shard())
    while number not in staff.answered:
        staff.advance()
    before, late = dict(staff.answered), replace(staff.answered[number])
    crew.fate = lambda member, number: None
    heard: list[tuple[int, Happened]] = [(99, late), (99, Lost("again")), (99, Identity.of(HashModel()))]
    crew.wait = lambda seconds: [heard.pop()] if heard else []  # type: ignore[method-assign]
    while heard:
        staff.advance()
    assert staff.answered == before
