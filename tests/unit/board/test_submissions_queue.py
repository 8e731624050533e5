"""The queue: nothing is lost, nothing is with two workers, and files that can't be used are left alone."""

import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext
from pathlib import Path
from threading import Barrier
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from choicewise.errors import StoreError, UsageError
from choicewise.extensions.board import queue as database
from choicewise.extensions.board.queue import (
    ATTEMPTS,
    PAUSES,
    SECONDS,
    Asked,
    Lease,
    Queue,
    SubmissionService,
)
from choicewise.extensions.board.submission import (
    ALLOW,
    Busy,
    LeaseLost,
    NoSubmission,
    Policy,
    State,
    Submission,
    Wanted,
    matches,
    refusal,
    wanted,
)
from tests.helpers.messages import Gist
from tests.helpers.submissions import Clock

T = TypeVar("T")
A, B = Wanted("org/a"), Wanted("org/b", "main", "float32")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def queue(tmp_path: Path, clock: Clock) -> Iterator[Queue]:
    opened = Queue(tmp_path / "queue.sqlite3", clock)
    yield opened
    opened.close()


def leased(queue: Queue, worker: str = "worker") -> tuple[str, str]:
    """The id and the secret of a new lease."""
    lease = queue.lease(worker)
    assert lease is not None
    return lease.submission.id, lease.secret


def test_the_same_is_submitted_once_and_the_oldest_is_leased_first_to_one_alone(
    queue: Queue,
) -> None:
    first, new = queue.submit(A)
    assert (new, first.state, first.attempts, queue.submit(A)) == (
        True,
        State.WAITING,
        0,
        (first, False),
    )
    other, new = queue.submit(Wanted("org/a", dtype="float32"))
    assert new
    assert other.id != first.id
    assert [each.id for each in queue.submissions()] == [other.id, first.id]
    assert ([leased(queue)[0], leased(queue)[0]], queue.lease("third")) == (
        [first.id, other.id],
        None,
    )


def test_what_is_done_is_not_done_again(queue: Queue) -> None:
    first, _ = queue.submit(A)
    name, own = leased(queue)
    shown: list[str] = []
    for secret, lost in (("another", True), (own, False), (own, True)):
        with pytest.raises(LeaseLost) if lost else nullcontext():
            queue.finish(name, secret, "submitted/a", lambda secret=secret: shown.append(secret))
    assert shown == [own]
    done, new = queue.submit(A)
    assert (new, done.id, done.state, done.folder) == (False, first.id, State.DONE, "submitted/a")
    assert queue.lease("worker") is None


def test_what_failed_or_is_refused_is_listed_and_can_be_submitted_again(queue: Queue) -> None:
    first, _ = queue.submit(A)
    name, secret = leased(queue)
    queue.fail(name, secret, "has no safetensors", again=False)
    assert (queue.get(first.id).state, queue.get(first.id).reason) == (
        State.FAILED,
        "has no safetensors",
    )
    second, new = queue.submit(A)
    assert new
    assert second.id != first.id
    refused, _ = queue.submit(B, "no such model")
    assert (refused.state, refused.reason) == (State.REFUSED, "no such model")
    assert queue.submit(B, "no such model") == (refused, False)
    assert [leased(queue)[0], queue.lease("worker")] == [second.id, None], (
        "no worker gets what is refused"
    )
    assert queue.submit(B)[1], "the reason may be gone"


def test_a_lease_ends_where_it_is_not_renewed_and_somebody_waits(
    queue: Queue, clock: Clock
) -> None:
    queue.submit(A)
    name, lost = leased(queue, "first")
    clock.time += SECONDS - 1
    queue.renew(name, lost, 3, 10)
    clock.time += SECONDS - 1
    assert (queue.lease("second"), queue.get(name).state, queue.get(name).done) == (
        None,
        State.LEASED,
        3,
    )
    clock.time += 2
    shown = queue.get(name)
    assert (shown.state, shown.reason) == (
        State.WAITING,
        Gist("worker first"),
    )
    assert leased(queue, "second")[0] == name
    for late in (
        lambda: queue.renew(name, lost, 4, 10),
        lambda: queue.finish(name, lost, "x", lambda: None),
        lambda: queue.fail(name, lost, "x", again=True),
    ):
        with pytest.raises(LeaseLost):
            late()
    assert queue.get(name).worker == "second"


def test_workers_that_fail_without_getting_any_further_end_it(queue: Queue, clock: Clock) -> None:
    queue.submit(A)
    for attempt in range(ATTEMPTS):
        name, secret = leased(queue)
        if attempt % 2:
            clock.time += SECONDS + 1
        else:
            queue.fail(name, secret, "the disk is full", again=True)
            clock.time += PAUSES[-1]
    assert queue.lease("worker") is None
    ended = queue.get(name)
    assert (ended.state, ended.reason) == (State.FAILED, "the disk is full (after 3 attempts)")


def test_workers_that_are_ended_do_not_use_up_the_attempts(queue: Queue, clock: Clock) -> None:
    queue.submit(A)
    for _ in range(2 * ATTEMPTS):
        name, secret = leased(queue)
        queue.fail(name, secret, "its worker was ended", again=True, counts=False)
        assert queue.get(name).after == 0, "what a user ended can be taken at once"
    for _ in range(ATTEMPTS):
        name, secret = leased(queue)
        queue.fail(name, secret, "out of memory", again=True)
        clock.time += PAUSES[-1]
    assert queue.get(name).state is State.FAILED
    assert queue.lease("worker") is None


def test_what_was_given_back_is_left_alone_for_longer_each_time(queue: Queue, clock: Clock) -> None:
    """Else one worker without a network would use up all attempts of everything that waits, in seconds."""
    queue.submit(A)
    for pause in PAUSES:
        name, secret = leased(queue)
        queue.fail(name, secret, "Hub out of reach", again=True)
        assert queue.get(name).after == clock.time + pause
        later, _ = queue.submit(B)
        taken, own = leased(queue, "another")
        assert taken == later.id, "what waits behind it is taken meanwhile"
        queue.fail(taken, own, "no model", again=False)
        clock.time += pause - 1
        assert queue.lease("worker") is None
        assert (queue.get(name).state, queue.get(name).reason) == (
            State.WAITING,
            "Hub out of reach",
        )
        clock.time += 1
        assert queue.get(name).after == 0
    name, secret = leased(queue)
    queue.renew(name, secret, 1, 2)
    queue.fail(name, secret, "the disk is full", again=True)
    assert queue.get(name).after == clock.time + PAUSES[0], "something was done since"


def test_a_clock_that_is_put_back_holds_nothing_for_long(queue: Queue, clock: Clock) -> None:
    queue.submit(A)
    queue.submit(B)
    dead, _ = leased(queue)
    back, secret = leased(queue)
    queue.fail(back, secret, "the disk is full", again=True)
    clock.time -= 10 * 365 * 86400
    assert queue.lease("other") is None
    clock.time += SECONDS + 1
    assert {leased(queue)[0], leased(queue)[0]} == {dead, back}


def test_a_clock_that_is_put_forward_takes_no_work_away_twice(queue: Queue, clock: Clock) -> None:
    queue.submit(A)
    name, first = leased(queue, "first")
    clock.time += 10 * SECONDS
    queue.renew(name, first, 1, 2)
    assert queue.get(name).state is State.LEASED, "a late worker goes on where nobody else asked"
    assert queue.lease("other") is None
    clock.time += PAUSES[-1]
    assert queue.lease("second") is not None
    with pytest.raises(LeaseLost):
        queue.renew(name, first, 1, 2)
    assert queue.lease("third") is None


def test_who_gets_further_gives_further_attempts(queue: Queue, clock: Clock) -> None:
    queue.submit(A)
    for attempt in range(2 * ATTEMPTS):
        name, secret = leased(queue)
        queue.renew(name, secret, attempt, 100)
        queue.renew(name, secret, attempt + 1, 100)
        clock.time += SECONDS + 1
    for _ in range(ATTEMPTS):
        name, secret = leased(queue)
        queue.renew(name, secret, 2 * ATTEMPTS, 100)
        clock.time += SECONDS + 1
    assert (queue.lease("worker"), queue.get(name).attempts) == (None, 3 * ATTEMPTS)


def test_nothing_is_forgotten_when_the_board_starts_again(tmp_path: Path, clock: Clock) -> None:
    queue = Queue(tmp_path / "q", clock)
    queue.submit(A)
    queue.submit(B)
    name, secret = leased(queue)
    assert secret.encode() not in b"".join(file.read_bytes() for file in tmp_path.iterdir())
    del queue  # as a kill leaves it, with its log
    again = Queue(tmp_path / "q", clock)
    assert [each.state for each in again.submissions()] == [State.WAITING, State.LEASED]
    again.renew(name, secret, 1, 2)
    assert again.submit(A)[0].id == name


def test_a_clock_that_was_ahead_holds_no_lease_for_ever(tmp_path: Path, clock: Clock) -> None:
    queue = Queue(tmp_path / "q", clock)
    queue.submit(A)
    leased(queue)
    queue.close()
    clock.time -= 10 * 365 * 86400
    again = Queue(tmp_path / "q", clock)
    clock.time += SECONDS + 1
    assert again.lease("other") is not None


def by_ten_threads(do: Callable[[str], T]) -> list[T]:
    """What ``do`` gives each of ten threads that begin at once."""
    ready = Barrier(10)
    with ThreadPoolExecutor(10) as threads:
        return [*threads.map(lambda number: (ready.wait(), do(str(number)))[1], range(10))]


def test_ten_threads_submit_the_same_once_and_never_lease_the_same(queue: Queue) -> None:
    told = by_ten_threads(lambda _: queue.submit(A))
    assert (len({submission.id for submission, _ in told}), sum(new for _, new in told)) == (1, 1)
    names = [told[0][0].id, *(queue.submit(Wanted(f"org/{number}"))[0].id for number in range(40))]
    leases = by_ten_threads(lambda worker: [*iter(lambda: queue.lease(worker), None)])
    assert sorted(lease.submission.id for taken in leases for lease in taken) == sorted(names)


@pytest.mark.costly("another process holds the queue")
def test_a_queue_held_by_another_process_is_read(
    tmp_path: Path, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.submit(A)
    monkeypatch.setattr(
        database, "_SETTINGS", ("PRAGMA busy_timeout = 100", *database._SETTINGS[1:])
    )
    code = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None); c.execute('BEGIN EXCLUSIVE');"
        "print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "queue.sqlite3")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(Busy, match="another process holds it"):
            queue.submit(B)
        with pytest.raises(Busy):
            queue.lease("worker")
        assert [each.wanted for each in queue.submissions()] == [A]
        holder.communicate()
    assert queue.submit(B)[1]


def test_a_full_disk_is_said_and_nothing_is_lost(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted = [queue.submit(A)[0].id]
    with monkeypatch.context() as full:
        full.setattr(database, "_SETTINGS", (*database._SETTINGS, "PRAGMA max_page_count = 1"))
        with pytest.raises(Busy, match="its disk is full"):
            for number in range(1000):
                submitted.append(queue.submit(Wanted(f"org/{number}", "r" * 90))[0].id)
    assert [each.id for each in queue.submissions()] == submitted[::-1]
    assert queue.submit(B)[1]


def changed_by(path: Path, script: str) -> bytes:
    """A database after the script."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)
    return path.read_bytes()


def test_a_queue_of_a_later_version_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "queue.sqlite3"
    Queue(path).close()
    before = changed_by(path, f"PRAGMA user_version = {database.VERSION + 1}")
    with pytest.raises(StoreError, match="version 3, and this Choicewise knows 2"):
        Queue(path)
    assert (path.read_bytes(), [*tmp_path.iterdir()]) == (before, [path])


def test_a_database_of_something_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "queue.sqlite3"
    before = changed_by(path, "CREATE TABLE x (y); PRAGMA user_version = 1;")
    with pytest.raises(StoreError, match="database of something else"):
        Queue(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "harm",
    [
        lambda content: b"hello" * 100,
        lambda content: content[:50],
        lambda content: (
            content[:4096] + b"\xff" * (len(content) // 2) + content[4096 + len(content) // 2 :]
        ),
        lambda content: bytes(len(content)),
    ],
    ids=["text", "short", "pages", "zeros"],
)
def test_a_damaged_queue_is_said_at_start(tmp_path: Path, harm: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "queue.sqlite3"
    queue = Queue(path)
    for number in range(200):
        queue.submit(Wanted(f"org/{number}"))
    queue.close()
    assert not path.with_name("queue.sqlite3-wal").exists()
    harmed = harm(path.read_bytes())
    path.write_bytes(harmed)
    with pytest.raises(StoreError, match="is damaged") as raised:
        Queue(path)
    assert "move it elsewhere" in raised.value.message
    assert path.read_bytes() == harmed


def test_what_is_not_there_is_said(tmp_path: Path, queue: Queue) -> None:
    with pytest.raises(StoreError, match="can't be used"):
        Queue(tmp_path / "nowhere" / "queue.sqlite3")
    for use in (lambda: queue.get("x"), lambda: queue.renew("x", "y", 0, 0)):
        with pytest.raises(NoSubmission):
            use()


@given(st.text(max_size=3000), st.booleans())
@settings(max_examples=20)
def test_any_reason_is_kept_as_text(
    tmp_path_factory: pytest.TempPathFactory, reason: str, again: bool
) -> None:
    reason = reason.encode("utf-8", "replace").decode()
    folder = tmp_path_factory.mktemp("queue")
    queue = Queue(folder / "q")
    queue.submit(A)
    name, secret = leased(queue)
    queue.fail(name, secret, reason, again)
    assert queue.get(name).reason == reason[:2000]
    queue.close()
    shutil.rmtree(folder)


class Workers(RuleBasedStateMachine):
    """Workers that take, renew, fail, finish and vanish in any order, beside a plain list of what must hold."""

    def __init__(self) -> None:
        super().__init__()
        self.folder, self.clock = Path(tempfile.mkdtemp()), Clock()
        self.queue = Queue(self.folder / "q", self.clock)
        self.wanted: set[Wanted] = set()
        self.leases: list[Lease] = []
        self.holder: dict[str, str] = {}
        self.finished: list[str] = []

    def teardown(self) -> None:
        self.queue.close()
        shutil.rmtree(self.folder)

    @rule(number=st.integers(0, 5))
    def submit(self, number: int) -> None:
        self.queue.submit(Wanted(f"org/{number}"))
        self.wanted.add(Wanted(f"org/{number}"))

    @rule()
    def lease(self) -> None:
        lease = self.queue.lease("worker")
        if lease is not None:
            assert lease.submission.id not in self.finished
            self.leases.append(lease)
            self.holder[lease.submission.id] = lease.secret

    @rule(seconds=st.sampled_from([1.0, 30.0, 61.0]))
    def wait(self, seconds: float) -> None:
        self.clock.time += seconds

    @rule(data=st.data(), what=st.sampled_from(["renew", "finish", "fail", "again"]))
    def tell(self, data: st.DataObject, what: str) -> None:
        if not self.leases:
            return
        lease = data.draw(st.sampled_from(self.leases))
        name, secret = lease.submission.id, lease.secret
        try:
            if what == "renew":
                self.queue.renew(name, secret, 0, 0)
            elif what == "finish":
                self.queue.finish(name, secret, "folder", lambda: None)
                assert name not in self.finished
                self.finished.append(name)
            else:
                self.queue.fail(name, secret, "x", what == "again")
        except LeaseLost:
            return
        assert self.holder[name] == secret, "only the last lease counts"

    @invariant()
    def nothing_is_lost(self) -> None:
        kept = self.queue.submissions()
        assert {each.wanted for each in kept} == self.wanted
        live = [each.wanted for each in kept if each.state not in (State.FAILED, State.REFUSED)]
        assert len(live) == len(set(live))
        assert {each.id for each in kept if each.state is State.DONE} == set(self.finished)


Workers.TestCase.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
TestWorkers = pytest.mark.costly("many histories of a queue in a database")(Workers.TestCase)


SERVER = "server:http://host/v1#x"
PATTERNS: dict[str, tuple[list[str], list[str]]] = {
    "*/*": (
        ["org/name", "~/name", "org/name\n"],
        [
            "/etc/passwd",
            "/passwd",
            "a/b/c",
            "./name",
            "../name",
            "org/.git",
            "name",
            "bundled:a/b",
            SERVER,
        ],
    ),
    "org/*": (["org/name"], ["other/name"]),
    "org/name-?b": (["org/name-7b"], []),
    "org/na.e": ([], ["org/name"]),
    "org+/*": (["org+/name"], []),
    "bundled:*": (["bundled:merrow"], ["bundled:a/b"]),
    "server:**": ([SERVER], []),
    "/models/*": (["/models/a"], ["/models/a/b", "/models/.a"]),
    "/models/**": (["/models/a/b"], []),
}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns(pattern: str) -> None:
    same, other = PATTERNS[pattern]
    assert [name for name in same + other if matches(name, pattern)] == same


@given(st.text(max_size=40))
def test_no_path_of_a_machine_is_taken_unless_a_pattern_says_so(name: str) -> None:
    if Policy(ALLOW).takes(name):
        assert not name.startswith(("/", ".", "server:"))
        assert ".." not in name.split("/")
        assert name.count("/") == (0 if name.startswith("bundled:") else 1)


@pytest.mark.parametrize(
    ("given_fields", "expected"),
    [
        (("org/name",), Wanted("org/name")),
        ((" org/name ", "", ""), Wanted("org/name")),
        (("org/name@v1",), Wanted("org/name", "v1")),
        (("org/name", "refs/pr/3", "bfloat16"), Wanted("org/name", "refs/pr/3", "bfloat16")),
    ],
)
def test_names_are_taken_apart(given_fields: tuple[str, ...], expected: Wanted) -> None:
    assert (wanted(*given_fields), wanted(expected.name, None, expected.dtype)) == (
        expected,
        expected,
    )


NONE, REVISION = "characters that no model", "the revision must be"


@pytest.mark.parametrize(
    ("given_fields", "words"),
    [
        *(((model, None, None), "the model is missing") for model in ("", None)),
        (("x" * 300, None, None), "has 300 characters"),
        *(
            ((f"org/{name}", None, None), NONE)
            for name in ("na\x00me", "na\u202eme", "../../etc", "\ud800")
        ),
        (("server:http://user:password@host/v1#x", None, None), "a login or a"),
        *((("org/name", revision, None), REVISION) for revision in ("../../x", "-x", "a b")),
        (("org/name", "v1", "int4"), "dtype must .* float32"),
        ((["org/name"], None, None), "model must be text"),
        (("org/name", 7, True), "revision must be text\n  the dtype must"),
    ],
)
def test_names_that_are_none_are_refused(
    given_fields: tuple[object, object, object], words: str
) -> None:
    with pytest.raises(UsageError, match=words) as raised:
        wanted(*given_fields)
    assert "password" not in str(raised.value)


def test_bundled_models_that_are_not_there_and_all_that_is_wrong_are_said_at_once() -> None:
    with pytest.raises(UsageError) as raised:
        wanted("", "..", "x")
    assert len(raised.value.problems) == 3
    assert refusal(Wanted("bundled:nothing")) == Gist("bundled:nothing; ... bundled")
    assert refusal(Wanted("bundled:merrow-bpe-2048")) == refusal(Wanted("org/name")) == ""
    assert "has no revisions" in refusal(Wanted("bundled:merrow-bpe-2048", "main"))


class Finished:
    """In place of a queue: the name of the folder that a submission's runs get."""

    def finish(self, id: str, secret: str, folder: str, show: object, remark: str) -> None:
        self.name = folder.partition("/")[2]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> SubmissionService:
    board = tmp_path_factory.mktemp("board")
    service = SubmissionService(board, board / "queue", Asked(()))
    service.close()
    service.queue = Finished()  # type: ignore[assignment]
    return service


@given(model=st.text(max_size=250), revision=st.text(max_size=120))
def test_the_folder_of_runs_is_a_name_of_its_own(
    service: SubmissionService, model: str, revision: str
) -> None:
    service.finish(
        Lease(
            Submission(
                id="0123456789ab",
                wanted=Wanted(model, revision),
                state=State.LEASED,
                reason="",
                submitted=0,
                changed=0,
            ),
            "secret",
        )
    )
    name = service.queue.name  # type: ignore[attr-defined]
    assert name.endswith("-0123456789ab")
    assert name.isascii()
    assert "/" not in name
    assert not name.startswith(("-", "."))
    assert len(name) < 100
