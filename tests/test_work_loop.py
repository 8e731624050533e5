"""A worker's loop: every submission is done once, what was sent is not computed again, and what goes wrong is said."""

from __future__ import annotations

import ast
import errno
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("httpx2")
pytest.importorskip("stamina")


import choicewise
from choicewise.board import client as board_client
from choicewise.board import worker as job
from choicewise.board.client import BoardAddress, BoardClient, BoardFailed
from choicewise.board.submission import is_of_model
from choicewise.board.worker import MOST, End, Worker, Workplace
from choicewise.errors import ChoicewiseError, DataError, ModelError, StoreError
from choicewise.models.fake import HashModel
from choicewise.questions import Answers, Question
from choicewise.records import MANIFEST
from choicewise.results.run import open_run
from choicewise.running.workers import ReplicasLost
from choicewise.store import folder as store_folder
from choicewise.store.doctor import examine
from choicewise.store.manifest import read_manifest
from choicewise.util.files import disk_errors

from .processes import held_port
from .submission_board import TOKEN, Board, Entry, answering, board

BLOCKS = 7
"""Blocks of a run of the bundled questions: one a subject."""


@pytest.fixture
def queue() -> Iterator[Board]:
    with board() as made:
        yield made


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The keys of all questions that a fake answers from now on."""
    keys: list[str] = []
    answer = HashModel.answer

    def counted(self: HashModel, questions: Sequence[Question]) -> Answers:
        keys.extend(question.key for question in questions)
        return answer(self, questions)

    monkeypatch.setattr(HashModel, "answer", counted)
    return keys


class Seen:
    """A worker that works in this process, and what it said."""

    def __init__(
        self, queue: Board, out: Path, progress: Callable[[int, int], None] = lambda done, total: None
    ) -> None:
        @contextmanager
        def shown(title: str) -> Iterator[Callable[[int, int], None]]:
            yield progress

        self.said: list[str] = []
        self.client = BoardClient(BoardAddress.parse(queue.url), TOKEN, timeout=20.0, patience=60.0)
        place = Workplace(out, say=self.said.append, shown=shown, every=0.05)
        self.worker = Worker(self.client, place, pauses=(0.01, 0.05))

    def once(self) -> list[End]:
        with self.client:
            self.worker.work(once=True)
        return [outcome.end for outcome in self.worker.outcomes]


def run_of(queue: Board, entry: Entry, folder: Path) -> Path:
    """The folder of the only run that was sent, which is whole."""
    queue.write(entry, folder)
    [manifest] = folder.rglob(MANIFEST)
    assert examine(manifest.parent).harmed == []
    assert read_manifest(manifest.parent).complete
    return manifest.parent


def test_a_submission_is_evaluated_and_sent(queue: Board, tmp_path: Path) -> None:
    entry = queue.submit("fake:hash")
    seen = Seen(queue, tmp_path / "work")
    assert seen.once() == [End.DONE]
    assert (entry.state, entry.attempts, entry.finished) == ("done", 1, 1)
    run = run_of(queue, entry, tmp_path / "sent")
    assert len(read_manifest(run).blocks) == BLOCKS
    assert {path.split("/")[-1] for path in entry.files if path.count("/") < 2} == {"sweep.json", "sweep.copy.json"}
    assert open_run(run).report().num_rows > 0
    assert list((tmp_path / "work").iterdir()) == []


def test_a_revision_that_was_asked_for_is_part_of_the_name(queue: Board, tmp_path: Path) -> None:
    """Else a board of checkpoints would show one name with many numbers."""
    entries = [queue.submit("fake:hash", revision=revision) for revision in (None, "step1000")]
    assert Seen(queue, tmp_path / "work").once() == [End.DONE] * 2
    runs = [run_of(queue, entry, tmp_path / entry.id) for entry in entries]
    assert [read_manifest(run).model.name for run in runs] == ["fake:hash", "fake:hash@step1000"]


def test_numbers_are_those_of_a_run_here(queue: Board, tmp_path: Path) -> None:
    entry = queue.submit("fake:hash")
    Seen(queue, tmp_path / "work").once()
    sent = open_run(run_of(queue, entry, tmp_path / "sent"))
    here = choicewise.evaluate(
        model="fake:hash", data="bundled:merrowick", protocols=["mmlu/cloze"], limit=1, out=tmp_path / "here"
    )
    assert sent.observations().equals(here.observations())


def test_what_a_model_is_at_fault_for_fails_with_its_reason(queue: Board, tmp_path: Path) -> None:
    queue.allow = ["bundled:*"]
    entries = [queue.submit("bundled:nothing"), queue.submit("fake:hash"), queue.submit("bundled:merrow-byte")]
    queue.largest = 1000
    assert Seen(queue, tmp_path).once() == [End.FAILED] * 3
    assert [entry.state for entry in entries] == ["failed"] * 3
    for entry, words in zip(entries, ["there is no model", "is not allowed", "too large"], strict=True):
        assert words in entry.reason
    assert not any(method == "PUT" for method, _ in queue.requests)


def test_two_workers_do_six_submissions_each_once(queue: Board, tmp_path: Path) -> None:
    entries = [queue.submit("fake:hash", dtype=None) for _ in range(6)]
    workers = [Seen(queue, tmp_path / "both") for _ in range(2)]
    threads = [threading.Thread(target=worker.once) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert [(entry.state, entry.finished, entry.attempts) for entry in entries] == [("done", 1, 1)] * 6
    assert sum(len(worker.worker.outcomes) for worker in workers) == 6


def test_what_was_sent_before_is_not_computed_again(
    queue: Board, tmp_path: Path, asked: list[str], no_pauses: None
) -> None:
    """A worker is gone in the middle without a word; the next one computes the rest alone."""
    entry = queue.submit("fake:hash")

    class Killed(BaseException):
        """Nothing of the worker runs after it."""

    def progress(done: int, total: int) -> None:
        if any(len(listing) > 3 * 3 + 5 for listing in queue.listed):  # three blocks or more
            queue.fault = lambda method, path: (500, b"", {})  # what it still says is not heard
            raise Killed
        time.sleep(0.1)

    first = Seen(queue, tmp_path / "first", progress)
    first.client.patience = 0.0
    with pytest.raises(Killed):
        first.once()
    queue.fault = lambda method, path: None
    sent = dict(entry.files)
    blocks = {path.split("/")[3] for path in sent if "/blocks/" in path}
    assert 2 <= len(blocks) < BLOCKS
    entry.until = 0.0  # the lease runs out
    before, part = len(asked), tmp_path / "part"
    known = {*_keys(queue.write(entry, part), complete=False)}
    second = Seen(queue, tmp_path / "second")
    assert second.once() == [End.DONE]
    assert "goes on with what earlier workers sent: 1 run" in second.said
    again = asked[before:]
    assert not known & {*again}
    every = _keys(tmp_path / "sent" if queue.write(entry, tmp_path / "sent") else part)
    assert {*again} == {*every} - known
    assert sent.items() - {path: sha for path, sha in sent.items() if path.endswith(".json")}.items() <= (
        entry.files.items()
    )
    run_of(queue, entry, tmp_path / "sent")


def _keys(folder: Path, complete: bool = True) -> list[str]:
    [manifest] = folder.rglob(MANIFEST)
    assert read_manifest(manifest.parent).complete == complete
    return list(open_run(manifest.parent).observations()["key"].to_pylist())


def test_a_lost_lease_ends_the_computation_and_the_next_one_is_taken(queue: Board, tmp_path: Path) -> None:
    queue.seconds = 0.4
    lost, next_one = queue.submit("fake:hash"), queue.submit("fake:hash")
    calls = []

    def progress(done: int, total: int) -> None:
        if lost.state == "leased":
            lost.lease, lost.state = "another's", "elsewhere"
        if lost.state == "elsewhere" and next_one.state == "waiting":
            calls.append(done)
            time.sleep(0.05)  # the computation is long

    queue.ask["limit"] = 20
    seen = Seen(queue, tmp_path, progress)
    assert seen.once() == [End.LOST, End.DONE]
    assert calls
    assert (lost.finished, lost.state, next_one.state) == (0, "elsewhere", "done")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def port() -> Iterator[int]:
    """Of a board that may be gone in between."""
    with held_port() as held:
        yield held


def test_a_board_that_is_gone_for_a_while_is_waited_for(port: int, no_pauses: None) -> None:
    entry, mine = Entry("abc", "fake:hash"), Board()
    mine.entries[entry.id] = entry
    back = threading.Event()
    with answering(mine, port):
        one = BoardClient(BoardAddress.parse(mine.url), TOKEN)
        work = one.lease("me")
        assert work is not None

    def return_later() -> None:
        time.sleep(0.5)
        with answering(mine, port):
            back.wait(60)

    thread = threading.Thread(target=return_later)
    thread.start()
    import stamina

    with stamina.set_testing(False):
        sha = one.put(work, b"content")
    back.set()
    thread.join(60)
    one.close()
    assert mine.parts[sha] == b"content"


def test_faults_of_the_board_in_between_cost_nothing(queue: Board, tmp_path: Path, no_pauses: None) -> None:
    entry = queue.submit("fake:hash")
    count = 0

    def every_second(method: str, path: str) -> Any:
        nonlocal count
        count += 1
        return (503, {"error": "the queue is locked"}, {"Retry-After": "0"}) if count % 2 else None

    queue.fault = every_second
    assert Seen(queue, tmp_path / "work").once() == [End.DONE]
    run_of(queue, entry, tmp_path / "sent")


def test_parts_that_the_board_lost_are_sent_again(queue: Board, tmp_path: Path) -> None:
    entry = queue.submit("fake:hash")

    def lose(method: str, path: str) -> Any:
        if path.endswith("/files") and queue.parts and not queue.listed:
            queue.parts.pop(next(iter(queue.parts)))
            queue.listed.append({})
        return None

    queue.fault = lose
    assert Seen(queue, tmp_path / "work").once() == [End.DONE]
    run_of(queue, entry, tmp_path / "sent")


def test_a_full_disk_ends_the_worker_and_gives_back(
    queue: Board, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry, write = queue.submit("fake:hash"), store_folder.write_block

    def full(run: Path, name: str, tables: Any) -> Any:
        if name == "00002":
            with disk_errors(run):
                raise OSError(errno.ENOSPC, "No space left on device")
        return write(run, name, tables)

    monkeypatch.setattr(store_folder, "write_block", full)
    seen = Seen(queue, tmp_path / "work")
    with pytest.raises(StoreError, match="the disk is full"):
        seen.once()
    assert entry.state == "waiting"
    assert "the disk is full" in entry.reason
    assert {path.split("/")[3] for path in entry.files if "/blocks/" in path} == {"00000", "00001"}
    monkeypatch.setattr(store_folder, "write_block", write)
    assert Seen(queue, tmp_path / "other").once() == [End.DONE]
    run_of(queue, entry, tmp_path / "sent")


def test_questions_that_can_not_be_had_end_the_worker(queue: Board, tmp_path: Path) -> None:
    queue.ask["data"] = [str(tmp_path / "nowhere.csv")]
    entry = queue.submit("fake:hash")
    with pytest.raises(DataError):
        Seen(queue, tmp_path / "work").once()
    assert (entry.state, "nowhere.csv" in entry.reason) == ("waiting", True)


def test_a_machine_that_fails_by_everything_stops_taking(
    queue: Board, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: HashModel, questions: Sequence[Question]) -> Answers:
        raise MemoryError("out of memory")

    monkeypatch.setattr(HashModel, "answer", fails)
    first, second, third, last = (queue.submit("fake:hash") for _ in range(4))
    seen = Seen(queue, tmp_path)

    def one_try_each(method: str, path: str) -> Any:
        for entry in (first, second, third):
            if path.endswith("/fail") and entry.state == "leased":
                entry.state = "tried"
                return 200, {}, {}
        return None

    queue.fault = one_try_each
    with pytest.raises(ChoicewiseError, match="3 submissions in a row could not be evaluated here.*out of memory"):
        seen.once()
    assert [outcome.end for outcome in seen.worker.outcomes] == [End.BACK] * 3
    assert last.state == "waiting"


def test_a_model_that_fails_again_and_again_ends_no_worker(
    queue: Board, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = HashModel.answer

    def fails(self: HashModel, questions: Sequence[Question]) -> Answers:
        if bad.state == "leased":
            raise ModelError("2 replicas died one after the other")
        return answer(self, questions)

    monkeypatch.setattr(HashModel, "answer", fails)
    bad, good = queue.submit("fake:hash"), queue.submit("fake:hash")

    def patience_ends(method: str, path: str) -> Any:
        if path == f"/work/{bad.id}/fail" and bad.attempts == 4:
            bad.state = "failed"
            return 200, {}, {}
        return None

    queue.fault = patience_ends
    assert Seen(queue, tmp_path).once() == [End.BACK] * 4 + [End.DONE]
    assert (bad.attempts, good.state) == (4, "done")
    assert "replicas died" in bad.reason


def test_models_that_can_not_be_computed_with_end_no_worker(
    queue: Board, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever may submit could else end all workers by three broken models."""
    answer = HashModel.answer

    def fails(self: HashModel, questions: Sequence[Question]) -> Answers:
        if any(entry.state == "leased" for entry in bad):
            raise ModelError("the weights do not fit its config.json")
        return answer(self, questions)

    monkeypatch.setattr(HashModel, "answer", fails)
    bad = [queue.submit("fake:hash") for _ in range(MOST + 1)]
    good = queue.submit("fake:hash")

    def one_try_each(method: str, path: str) -> Any:
        for entry in bad:
            if path == f"/work/{entry.id}/fail" and entry.state == "leased":
                entry.state = "tried"
                return 200, {}, {}
        return None

    queue.fault = one_try_each
    assert Seen(queue, tmp_path).once() == [End.BACK] * (MOST + 1) + [End.DONE]
    assert good.state == "done"


def test_replicas_that_die_are_no_model_s_fault() -> None:
    assert not is_of_model(ReplicasLost("2 replicas died one after the other"))
    assert is_of_model(ModelError("the weights do not fit its config.json"))


class PanicException(BaseException):
    """As packages written in Rust raise it, over a tokenizer that was made to harm whoever reads it."""


def test_a_panic_over_a_model_fails_it_and_ends_no_worker(
    queue: Board, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*given: Any, **options: Any) -> Any:
        if bad.state == "leased":
            raise PanicException("called `Option::unwrap()` on a `None` value")
        return load(*given, **options)

    load = job.load_model
    monkeypatch.setattr(job, "load_model", fails)
    bad, good = queue.submit("fake:hash"), queue.submit("fake:hash")
    assert Seen(queue, tmp_path).once() == [End.FAILED, End.DONE]
    assert (bad.state, "unwrap()" in bad.reason, good.state) == ("failed", True, "done")


def test_a_panic_amid_the_work_gives_back_and_counts(
    queue: Board, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: HashModel, questions: Sequence[Question]) -> Answers:
        raise PanicException("index out of bounds")

    monkeypatch.setattr(HashModel, "answer", fails)
    bad = queue.submit("fake:hash")

    def ends(method: str, path: str) -> Any:
        if path.endswith("/fail"):
            bad.state, queue.fault = "failed", lambda method, path: None
            return 200, {}, {}
        return None

    queue.fault = ends
    assert Seen(queue, tmp_path).once() == [End.BACK]


def test_another_model_under_the_same_name_begins_anew(
    queue: Board, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: list[str]
) -> None:
    """What an earlier worker sent was complete, and of a model with another digest: none of it counts for this one."""
    entry = queue.submit("fake:hash")
    other = HashModel.__init__

    def init(self: HashModel, *given: Any) -> None:
        other(self, *given)
        self.digest = "0" * 64

    monkeypatch.setattr(HashModel, "__init__", init)
    Seen(queue, tmp_path / "first").once()
    monkeypatch.setattr(HashModel, "__init__", other)
    before = len(asked)
    entry.state = "waiting"
    seen = Seen(queue, tmp_path / "second")
    assert seen.once() == [End.DONE]
    assert any("does not go on" in line and "digest" in line for line in seen.said)
    assert len(asked) == 2 * before
    run = run_of(queue, entry, tmp_path / "sent")
    assert read_manifest(run).model.digest == HashModel().digest


@pytest.mark.parametrize("path", ["../outside/manifest.json", "/etc/passwd", "a/b/code.py", "sweep.json"])
def test_a_listing_that_is_no_sweep_s_is_not_taken(path: str, queue: Board, tmp_path: Path) -> None:
    entry = queue.submit("fake:hash")
    queue.parts["0" * 64] = b"not what its name says"
    entry.files = {path: "0" * 64}
    seen = Seen(queue, tmp_path / "work" / "deep")
    assert seen.once() == [End.DONE]
    assert any("can't be used" in line for line in seen.said)
    assert {each.name for each in tmp_path.iterdir()} == {"work"}


def test_ctrl_c_sends_what_there_is_and_gives_back(queue: Board, tmp_path: Path) -> None:
    entry = queue.submit("fake:hash")
    queue.ask["limit"] = 5

    def progress(done: int, total: int) -> None:
        if done > total / 2:
            raise KeyboardInterrupt

    seen = Seen(queue, tmp_path / "work", progress)
    with pytest.raises(KeyboardInterrupt):
        seen.once()
    assert (entry.state, entry.reason) == ("waiting", "its worker was ended")
    assert any("/blocks/" in path for path in entry.files)
    assert [outcome.end for outcome in seen.worker.outcomes] == [End.BACK]
    assert Seen(queue, tmp_path / "next").once() == [End.DONE]
    run_of(queue, entry, tmp_path / "sent")


def test_a_clock_that_is_wrong_changes_nothing(
    queue: Board, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: list[str]
) -> None:
    entry, ticks = queue.submit("fake:hash"), iter(range(10**6))
    monkeypatch.setattr(time, "time", lambda: -1e9 if next(ticks) % 2 else 1e11)
    assert Seen(queue, tmp_path / "work").once() == [End.DONE]
    monkeypatch.undo()
    assert (entry.state, entry.attempts) == ("done", 1)
    run_of(queue, entry, tmp_path / "sent")


def test_no_file_of_a_worker_reads_the_clock() -> None:
    for file in (board_client.__file__, job.__file__):
        tree = ast.parse(Path(file).read_text(encoding="utf-8"))
        read = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        assert not read & {"time", "time_ns", "monotonic", "today", "utcnow"}, file


def test_without_once_it_waits_for_more(queue: Board, tmp_path: Path) -> None:
    entry = queue.submit("fake:hash")
    seen = Seen(queue, tmp_path / "work")
    later: list[Entry] = []

    class Enough(BaseException):
        """The test has seen what it wants."""

    def fault(method: str, path: str) -> Any:
        if path == "/work/lease" and entry.state == "done":
            if not later:
                later.append(queue.submit("fake:hash"))
            elif later[0].state == "done":
                return 401, {"error": "over"}, {}
        return None

    queue.fault = fault
    with pytest.raises(BoardFailed, match="over"):
        seen.worker.work()
    seen.client.close()
    assert [outcome.end for outcome in seen.worker.outcomes] == [End.DONE, End.DONE]
