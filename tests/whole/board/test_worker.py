"""A worker beside the folder of a board: every submission is done once, and what was computed is not computed again."""

import errno
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import choicewise
from choicewise.errors import ChoicewiseError, DataError, MachinesLost, ModelError, StoreError
from choicewise.extensions.board import worker as module
from choicewise.extensions.board.queue import (
    ATTEMPTS,
    PAUSES,
    SECONDS,
    Asked,
    Queue,
    SubmissionService,
)
from choicewise.extensions.board.submission import Policy, State, Wanted
from choicewise.extensions.board.worker import MOST, End, Worker, Workplace, is_of_model
from choicewise.extensions.doctor.examine import examine
from choicewise.models.fake import HashModel
from choicewise.questions import Answers, Prompt
from choicewise.records import MANIFEST
from choicewise.results.run import open_run
from choicewise.store import folder as store_folder
from choicewise.store.folder import read_manifest
from choicewise.util.files import disk_errors, locked
from tests.helpers.commands import choicewise as command
from tests.helpers.messages import Gist
from tests.helpers.processes import eventually
from tests.helpers.submissions import Clock

BLOCKS = 7  # blocks of a run of the bundled questions: one a subject

POLICY = Policy(("bundled:*", "fake:*", "*/*"))
ASKED = Asked(("mmlu/cloze",), ("bundled:merrowick",), 1, POLICY)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@contextmanager
def opened(
    folder: Path, now: Callable[[], float] = time.time, asked: Asked = ASKED
) -> Iterator[SubmissionService]:
    board = folder / "board"
    board.mkdir()
    service = SubmissionService.begin(board, board / ".submissions", asked)
    service.queue.close()
    service.queue = Queue(board / ".submissions" / "queue.sqlite3", now)
    yield service
    service.close()


@pytest.fixture
def service(tmp_path: Path, clock: Clock) -> Iterator[SubmissionService]:
    with opened(tmp_path, clock) as begun:
        yield begun


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The keys of all questions that a fake answers from now on."""
    keys: list[str] = []
    answer = HashModel.answer

    def counted(self: HashModel, questions: Sequence[Prompt]) -> Answers:
        keys.extend(question.key for question in questions)
        return answer(self, questions)

    monkeypatch.setattr(HashModel, "answer", counted)
    return keys


class Seen:
    """A worker that works in this process, and what it said."""

    def __init__(
        self, service: SubmissionService, progress: Callable[[int, int], None] = lambda *_: None
    ) -> None:
        @contextmanager
        def shown(title: str) -> Iterator[Callable[[int, int], None]]:
            yield progress

        self.said: list[str] = []
        self.worker = Worker(
            service, Workplace(say=self.said.append, shown=shown), pauses=(0.01, 0.05)
        )

    @property
    def ends(self) -> list[End]:
        return [outcome.end for outcome in self.worker.outcomes]

    def once(self) -> list[End]:
        self.worker.work(once=True)
        return self.ends


def submit(service: SubmissionService, model: str = "fake:hash", number: int = 0) -> str:
    """The id of a submission; ``number`` tells submissions of one model apart."""
    return service.submit(Wanted(model, f"r{number}" if number else ""))[0].id


def state(service: SubmissionService, name: str) -> str:
    return str(service.queue.get(name).state)


def run_of(service: SubmissionService, name: str) -> Path:
    """The folder of the only run of a submission that is on the board, which is whole."""
    [manifest] = (service.board / service.queue.get(name).folder).rglob(MANIFEST)
    assert examine(manifest.parent).harmed == []
    assert read_manifest(manifest.parent).complete
    return manifest.parent


def test_a_submission_is_evaluated_into_the_folder_of_the_board(
    service: SubmissionService, tmp_path: Path
) -> None:
    name = submit(service)
    assert Seen(service).once() == [End.DONE]
    shown = service.queue.get(name)
    assert (shown.state, shown.attempts, shown.done) == (State.DONE, 1, shown.total)
    run = run_of(service, name)
    assert len(read_manifest(run).blocks) == BLOCKS
    assert open_run(run).report().num_rows > 0
    assert [path.name for path in (service.board / "submitted").iterdir()] == [f"fake-hash-{name}"]
    asked = {"data": "bundled:merrowick", "protocols": ["mmlu/cloze"], "limit": 1}
    here = choicewise.evaluate(model="fake:hash", **asked, out=tmp_path / "here")
    assert open_run(run).observations().equals(here.observations())


@pytest.mark.parametrize("died", [False, True])
def test_what_was_asked_without_shots_is_said_by_the_worker_and_on_the_board(
    died: bool, tmp_path: Path
) -> None:
    """Also where the worker that asked it died before the submission was done."""
    quiz = tmp_path / "quiz.csv"
    quiz.write_text(
        "question,A,B,C,D,answer\nWhat floats?,cork,lead,iron,tin,A\nWhat sinks?,cork,lead,down,fir,B\n"
    )
    said = "as `mmlu/original@shots=0`; "
    asked = Asked(("mmlu/original", "mmlu/cloze:sum"), (str(quiz),), 1, POLICY)
    with opened(tmp_path, asked=asked) as service:
        name, worker = submit(service), Seen(service)
        if died:
            lease = service.queue.lease("another")
            assert lease is not None
            module._Job(service, lease, Workplace()).do(service.unfinished(lease.submission))
            service.queue.fail(name, lease.secret, "its worker was ended", again=True, counts=False)
        assert worker.once() == [End.DONE]
        done = service.queue.get(name)
        assert (done.state, done.reason == Gist(said), done.as_json()["reason"]) == (
            State.DONE,
            True,
            done.reason,
        )
        assert (Gist(f"note: ... {said}") in worker.said) != died


def test_a_revision_that_was_asked_for_is_part_of_the_name(service: SubmissionService) -> None:
    """Else a board of checkpoints would show one name with many numbers."""
    names = [submit(service), submit(service, number=1)]
    assert Seen(service).once() == [End.DONE] * 2
    assert [read_manifest(run_of(service, name)).model.name for name in names] == [
        "fake:hash",
        "fake:hash@r1",
    ]


def test_what_a_model_is_at_fault_for_fails_with_its_reason(tmp_path: Path) -> None:
    asked = Asked(("mmlu/cloze",), ("bundled:merrowick",), 1, Policy(("bundled:*",), 1000))
    with opened(tmp_path, asked=asked) as service:
        wanted = [Wanted("bundled:nothing"), Wanted("fake:hash"), Wanted("bundled:merrow-byte")]
        names = [service.queue.submit(each)[0].id for each in wanted]
        assert Seen(service).once() == [End.FAILED] * 3
        for name, words in zip(
            names, ["there is no model", "is not allowed", "too large"], strict=True
        ):
            assert words in service.queue.get(name).reason
        assert not any((service.board / "submitted").glob("*"))


def test_two_workers_do_six_submissions_each_once(service: SubmissionService) -> None:
    names = [submit(service, number=number) for number in range(6)]
    workers = [Seen(service) for _ in range(2)]
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(Seen.once, workers))
    assert [(state(service, name), service.queue.get(name).attempts) for name in names] == [
        ("done", 1)
    ] * 6
    assert sum(len(worker.worker.outcomes) for worker in workers) == 6


SLOW_WORKER = """
import sys, time
from contextlib import contextmanager
from pathlib import Path
from choicewise.extensions.board.queue import SubmissionService
from choicewise.extensions.board.worker import Worker, Workplace
@contextmanager
def shown(title):
    yield lambda done, total: time.sleep(0.2)
board = Path(sys.argv[1])
Worker(SubmissionService.join(board, board / '.submissions'), Workplace(shown=shown)).work(once=True)
"""


def test_what_a_killed_worker_computed_stays(
    asked: list[str], clock: Clock, service: SubmissionService
) -> None:
    name, clock.time = submit(service), time.time()  # of both
    folder = service.unfinished(service.queue.get(name))
    with subprocess.Popen([sys.executable, "-c", SLOW_WORKER, str(service.board)]) as killed:
        wait_for(
            lambda: any(
                len(read_manifest(each.parent).blocks) > 1 for each in folder.rglob(MANIFEST)
            ),
            killed,
        )
        killed.kill()
    assert state(service, name) == "leased"
    [manifest] = folder.rglob(MANIFEST)
    half = read_manifest(manifest.parent)
    known = {*open_run(manifest.parent).observations()["key"].to_pylist()}
    clock.time += 10 * SECONDS
    assert Seen(service).once() == [End.DONE]
    run = run_of(service, name)
    keys = open_run(run).observations()["key"].to_pylist()
    assert 2 <= len(half.blocks) < len(read_manifest(run).blocks) == BLOCKS
    assert (len(keys), sorted(asked)) == (len({*keys}), sorted({*keys} - known))
    assert service.queue.get(name).attempts == 2


def test_a_lost_lease_is_left(
    service: SubmissionService, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SECONDS", 0.2)
    lost, following = submit(service), submit(service, number=1)
    others = []

    def progress(done: int, total: int) -> None:
        if not others:  # the queue gives it to another worker
            assert service.queue.get(lost).state is State.LEASED
            clock.time += 10 * SECONDS
            others.append(service.queue.lease("another"))
            assert others[0].submission.id == lost
        if state(service, following) == "waiting":
            time.sleep(0.02)  # the computation is long

    assert Seen(service, progress).once() == [End.LOST, End.DONE]
    assert (state(service, lost), state(service, following)) == ("leased", "done")


def test_runs_that_another_worker_still_writes_to_are_left_to_it(
    service: SubmissionService, clock: Clock
) -> None:
    unfinished = service.unfinished(service.queue.get(submit(service)))
    unfinished.mkdir(parents=True)
    with locked(unfinished):
        assert (seen := Seen(service)).once() == [End.BACK]
    assert "still writes" in seen.said[-1]
    clock.time += PAUSES[0]
    assert Seen(service).once() == [End.DONE]


def test_a_full_disk_ends_the_worker(
    service: SubmissionService, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, write = submit(service), store_folder.write_block

    def full(run: Path, block: str, tables: Any) -> Any:
        if block == "00002":
            with disk_errors(run):
                raise OSError(errno.ENOSPC, "No space left on device")
        return write(run, block, tables)

    monkeypatch.setattr(store_folder, "write_block", full)
    with pytest.raises(StoreError, match="the disk is full"):
        Seen(service).once()
    assert (state(service, name), "the disk is full" in service.queue.get(name).reason) == (
        "waiting",
        True,
    )
    monkeypatch.setattr(store_folder, "write_block", write)
    clock.time += PAUSES[0]
    assert Seen(service).once() == [End.DONE]
    run_of(service, name)


def test_questions_that_can_not_be_had_end_the_worker(tmp_path: Path) -> None:
    with opened(
        tmp_path, asked=Asked(("mmlu/cloze",), (str(tmp_path / "nowhere.csv"),), 1, POLICY)
    ) as service:
        name = submit(service)
        with pytest.raises(DataError):
            Seen(service).once()
        assert (state(service, name), "nowhere.csv" in service.queue.get(name).reason) == (
            "waiting",
            True,
        )


def failing_while(
    monkeypatch: pytest.MonkeyPatch, concerned: Callable[[], bool], error: BaseException
) -> None:
    """The fakes fail with ``error`` as long as ``concerned`` says so."""
    answer = HashModel.answer

    def fails(self: HashModel, questions: Sequence[Prompt]) -> Answers:
        if concerned():
            raise error
        return answer(self, questions)

    monkeypatch.setattr(HashModel, "answer", fails)


def test_a_machine_that_fails_always_stops_taking(
    service: SubmissionService, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing_while(monkeypatch, lambda: True, MemoryError("out of memory"))
    names = [submit(service, number=number) for number in range(MOST + 1)]
    seen = Seen(service)
    with pytest.raises(ChoicewiseError, match="3 submissions in a row.*out of memory"):
        seen.once()
    assert (seen.ends, service.queue.get(names[-1]).attempts) == ([End.BACK] * MOST, 0)


def test_broken_models_end_no_worker(
    service: SubmissionService, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever may submit could else end all workers by three broken models."""
    error = ModelError("the weights do not fit its config.json")
    assert is_of_model(error)
    assert not is_of_model(MachinesLost("2 replicas died one after the other"))
    failing_while(monkeypatch, lambda: any(state(service, name) == "leased" for name in bad), error)
    bad = [submit(service, number=number) for number in range(1, MOST + 2)]
    good = submit(service)
    assert Seen(service).once() == [End.BACK] * (MOST + 1) + [End.DONE]
    assert state(service, good) == "done"
    for _ in range(ATTEMPTS - 1):
        clock.time += PAUSES[-1]
        Seen(service).once()
    assert {state(service, name) for name in bad} == {"failed"}
    assert "config.json (after 3 attempts)" in service.queue.get(bad[0]).reason


class PanicException(BaseException):
    """As packages written in Rust raise it, over a tokenizer that was made to harm whoever reads it."""


def test_a_panic_over_a_model_ends_no_worker(
    service: SubmissionService, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*given: Any, **options: Any) -> Any:
        if state(service, bad) == "leased":
            raise PanicException("called `Option::unwrap()` on a `None` value")
        return load(*given, **options)

    load = module.load_model
    monkeypatch.setattr(module, "load_model", fails)
    bad, good = submit(service), submit(service, number=1)
    assert Seen(service).once() == [End.FAILED, End.DONE]
    assert (state(service, bad), state(service, good)) == ("failed", "done")
    assert "unwrap()" in service.queue.get(bad).reason


def interrupt(done: int, total: int) -> None:
    """Ctrl-C in the second half of a run."""
    if done > total / 2:
        raise KeyboardInterrupt


def test_another_model_of_a_name_begins_anew(
    service: SubmissionService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an earlier worker computed was of a model with another digest: none of it counts for this one."""
    name, init = submit(service), HashModel.__init__

    def other(self: HashModel, *given: Any) -> None:
        init(self, *given)
        self.digest = "0" * 64

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(HashModel, "__init__", other)
        Seen(service, interrupt).once()
    seen = Seen(service)
    assert seen.once() == [End.DONE]
    assert any("does not go on" in line and "digest" in line for line in seen.said)
    assert read_manifest(run_of(service, name)).model.digest == HashModel().digest


def test_ctrl_c_keeps_what_there_is_and_gives_back(
    service: SubmissionService, asked: list[str]
) -> None:
    name, seen = submit(service), Seen(service, interrupt)
    with pytest.raises(KeyboardInterrupt):
        seen.once()
    told = state(service, name), service.queue.get(name).reason, seen.ends
    assert told == ("waiting", "its worker was ended", [End.BACK])
    before = len(asked)
    assert Seen(service).once() == [End.DONE]
    assert len(asked) < 2 * before
    run_of(service, name)


def test_without_once_it_waits_for_more(service: SubmissionService) -> None:
    def progress(done: int, total: int) -> None:
        if seen.ends:
            raise KeyboardInterrupt("the test has seen what it wants")
        submit(service, number=1)

    submit(service)
    seen = Seen(service, progress)
    with pytest.raises(KeyboardInterrupt, match="what it wants"):
        seen.worker.work()
    assert seen.ends == [End.DONE, End.BACK]


# The command


@pytest.fixture
def begun(tmp_path: Path) -> Iterator[SubmissionService]:
    with opened(tmp_path) as service:
        yield service


def test_what_was_done_is_said(begun: SubmissionService) -> None:
    submit(begun)
    begun.queue.submit(Wanted("bundled:nothing"))
    told = command("work", begun.board, "--once", code=0)
    assert (told.stdout, told.stderr.splitlines()[-1]) == ("", "1 done, 1 failed")
    assert (
        command("work", begun.board, "--once", code=0).stderr.splitlines()[-1] == "nothing waited"
    )


def test_wrong_use_is_told(tmp_path: Path) -> None:
    told = command("work", "http://127.0.0.1:8470", code=2).stderr
    assert "is an address" in told
    assert "name its folder" in told
    assert "does not exist" in command("work", tmp_path / "nowhere", code=2).stderr
    assert "start its board first" in command("work", tmp_path, "--once", code=6).stderr
    (tmp_path / ".submissions").mkdir()
    (tmp_path / ".submissions" / "asked.json").write_text("[]")
    assert "start the board again" in command("work", tmp_path, "--once", code=6).stderr


def begin(*words: object, **options: Any) -> subprocess.Popen[str]:
    """The command in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "choicewise", *map(str, words)], text=True, **options
    )


def wait_for(happened: Callable[[], bool], process: subprocess.Popen[Any]) -> None:
    eventually(lambda: happened() or process.poll() is not None)
    assert process.poll() is None, "it ended before"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_the_end_of_a_cluster_s_hour_give_back(number: int, tmp_path: Path) -> None:
    with opened(tmp_path, asked=Asked(("mmlu",), ("bundled:merrowick",), 60)) as service:
        name = submit(service, "bundled:merrow-byte")
        worker = begin("work", service.board, stderr=subprocess.PIPE)
        wait_for(lambda: state(service, name) == "leased", worker)
        time.sleep(1.0)
        worker.send_signal(number)
        told = worker.communicate(timeout=120)[1]
        assert (worker.returncode, state(service, name)) == (0, "waiting"), told
        assert (service.queue.get(name).reason, told.splitlines()[-1]) == (
            "its worker was ended",
            "1 given back",
        )


def test_workers_beside_a_real_board_fill_it(tmp_path: Path) -> None:
    asked = ["--protocol", "mmlu/cloze", "--data", "bundled:merrowick", "--limit", "1"]
    allowed = ["--allow", "fake:*", "--allow", "bundled:*"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "CHOICEWISE_SUBMIT_TOKEN": "t" * 24}
    serve = ("serve", tmp_path, "--submissions", *asked, *allowed)
    with begin(*serve, env=environment, stdout=subprocess.PIPE) as server:
        try:
            address = server.stdout.readline().strip()
            headers = {"Authorization": f"Bearer {'t' * 24}", "Content-Type": "application/json"}
            for model in ("fake:hash", "fake:oracle", "bundled:merrow-byte"):
                wanted = urllib.request.Request(
                    f"{address}submissions", f'{{"model": "{model}"}}'.encode(), headers
                )
                urllib.request.urlopen(wanted, timeout=60).close()
            workers = [begin("work", tmp_path, "--once", stderr=subprocess.PIPE) for _ in range(2)]
            told = [each.communicate(timeout=300)[1] for each in workers]
            assert [worker.returncode for worker in workers] == [0, 0], told
            assert (
                len(
                    [
                        line
                        for text in told
                        for line in text.splitlines()
                        if line.startswith("takes ")
                    ]
                )
                == 3
            )
            eventually(
                lambda: "merrow-byte" in urllib.request.urlopen(address, timeout=60).read().decode()
            )
        finally:
            server.terminate()
