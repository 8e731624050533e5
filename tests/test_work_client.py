"""A worker's client: what is tried again, what is told, and that nobody learns the token."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("httpx2")
pytest.importorskip("stamina")

import httpx2

from choicewise.board.client import (
    VARIABLE,
    BoardAddress,
    BoardClient,
    BoardFailed,
    BoardFull,
    NotTaken,
    OutOfReach,
    read_work_token,
)
from choicewise.board.submission import Lacking, LeaseLost
from choicewise.errors import UsageError

from .submission_board import TOKEN, Board, board


@pytest.fixture
def queue() -> Iterator[Board]:
    with board() as made:
        yield made


def client(queue: Board, token: str = TOKEN, patience: float = 60.0) -> BoardClient:
    return BoardClient(BoardAddress.parse(queue.url), token, patience=patience)


def test_a_submission_goes_there_and_back(queue: Board) -> None:
    entry = queue.submit("bundled:merrow-byte", dtype="float32")
    with client(queue) as one:
        work = one.lease("me")
        assert work is not None
        assert (work.id, work.wanted.name, work.wanted.dtype) == (entry.id, "bundled:merrow-byte", "float32")
        assert one.renew(work, 3, 7) == 60
        sha = one.put(work, b"content")
        assert one.put(work, b"content") == sha
        one.list_files(work, {"sweep.json": sha})
        assert one.get(work, sha) == b"content"
        with pytest.raises(Lacking) as lacking:
            one.list_files(work, {"sweep.json": "0" * 64})
        assert lacking.value.sums == ("0" * 64,)
        one.finish(work)
        one.finish(work)
        assert one.lease("me") is None
    assert (entry.state, entry.done, entry.total, entry.worker) == ("done", 3, 7, "me")


def test_what_is_busy_or_breaks_off_is_asked_again(queue: Board, no_pauses: None) -> None:
    queue.submit("fake:hash")
    answers = [(503, {"error": "the queue is locked"}, {"Retry-After": "0"}), (502, b"", {}), (500, b"oh", {}), None]
    queue.fault = lambda method, path: answers.pop(0) if answers else None
    with client(queue) as one:
        assert one.lease("me") is not None
    assert answers == []


@pytest.mark.parametrize("kind", [httpx2.ConnectError, httpx2.RemoteProtocolError, httpx2.ReadError])
def test_a_board_that_is_started_again_is_waited_for_by_time_alone(kind: type[Exception], no_pauses: None) -> None:
    """Nobody knows how often a request can be made until it is back."""
    tries = [*range(12)]

    def answer(request: httpx2.Request) -> httpx2.Response:
        if tries:
            tries.pop()
            raise kind("gone")
        return httpx2.Response(204)

    with BoardClient(BoardAddress.parse("http://127.0.0.1:1"), TOKEN, transport=httpx2.MockTransport(answer)) as one:
        assert one.lease("me") is None
    assert tries == []


def test_a_board_that_stays_away_is_named(queue: Board) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with BoardClient(BoardAddress.parse(url), TOKEN) as one, pytest.raises(OutOfReach) as error:
            one.lease("me", patience=0)
    assert url in error.value.message
    assert "the board can't be reached" in error.value.message
    assert "run the same line" not in error.value.message, "who asks knows better what to do"


def test_a_wrong_token_is_told_at_once_and_not_repeated(queue: Board) -> None:
    wrong = "not-the-token-of-this-board"
    with client(queue, wrong) as one, pytest.raises(BoardFailed, match="refuses the work token") as error:
        one.lease("me")
    assert len(queue.requests) == 1
    assert wrong not in str(error.value)
    assert wrong not in repr(one)


@pytest.mark.parametrize(
    ("status", "body"),
    [(404, b"<html>"), (200, b"<html>hello</html>"), (200, b"[1]"), (405, b"This server only shows"), (301, b"")],
)
def test_what_is_no_board_is_called_that(queue: Board, status: int, body: bytes) -> None:
    queue.fault = lambda method, path: (status, body, {"Content-Type": "text/plain" if status == 405 else "text/html"})
    with client(queue) as one, pytest.raises(BoardFailed, match="does not answer as a board does that takes sub"):
        one.lease("me")


@pytest.mark.parametrize("missing", ["submission", "lease", "policy", "ask", "seconds"])
def test_an_answer_without_a_part_is_no_submission(queue: Board, missing: str) -> None:
    queue.submit("fake:hash")
    full = queue.answer("POST", "/work/lease", {"Authorization": f"Bearer {TOKEN}"}, b'{"worker": "", "version": ""}')
    assert isinstance(full[1], dict)
    answer = {key: value for key, value in full[1].items() if key != missing}
    queue.fault = lambda method, path: (200, answer, {})
    with client(queue) as one, pytest.raises(BoardFailed, match="no submission that this version knows"):
        one.lease("me")


def test_a_lost_lease_is_no_error_of_the_board(queue: Board) -> None:
    entry = queue.submit("fake:hash")
    with client(queue) as one:
        work = one.lease("me")
        assert work is not None
        entry.lease = "another's"
        for ask in (
            lambda: one.renew(work, 0, 0),
            lambda: one.put(work, b"x"),
            lambda: one.list_files(work, {}),
            lambda: one.finish(work),
            lambda: one.fail(work, "why", True),
        ):
            with pytest.raises(LeaseLost):
                ask()


def test_a_full_disk_and_a_refused_part_are_named(queue: Board) -> None:
    queue.submit("fake:hash")
    with client(queue) as one:
        work = one.lease("me")
        assert work is not None
        queue.fault = lambda method, path: (507, {"error": "the disk is full"}, {})
        with pytest.raises(BoardFull, match="its disk is full"):
            one.put(work, b"x")
        queue.fault = lambda method, path: (413, {"error": "more than may be"}, {})
        with pytest.raises(NotTaken, match="more than may be"):
            one.put(work, b"x")
        queue.fault = lambda method, path: (200, b"other content", {})
        with pytest.raises(NotTaken, match="another content"):
            one.get(work, "0" * 64)


def test_no_log_and_no_message_has_the_token(queue: Board, caplog: pytest.LogCaptureFixture) -> None:
    entry = queue.submit("fake:hash")
    caplog.set_level(logging.DEBUG)
    echo = f"you sent Bearer {TOKEN}"
    with client(queue) as one:
        work = one.lease("me")
        assert work is not None
        assert work.lease not in repr(work)
        one.fail(work, f"it failed, with {TOKEN}", again=False)
        queue.fault = lambda method, path: (400, {"error": echo}, {"X-Echo": TOKEN})
        with pytest.raises(NotTaken) as error:
            one.lease("me")
    assert TOKEN not in str(error.value)
    assert TOKEN not in caplog.text
    assert TOKEN not in entry.reason


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("127.0.0.1:8470", "must start with http"),
        ("ftp://host", "must start with http"),
        ("http://me:secret@host", "must not hold credentials"),
        ("http://host/?token=secret", "must not hold a query"),
        ("http://host:port", "host or port can't be read"),
        ("http://", "host or port is missing"),
        ("http://ho st", "white space"),
    ],
)
def test_what_is_no_address_is_refused_without_its_secret(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as error:
        BoardAddress.parse(text)
    assert "secret" not in str(error.value)


def test_addresses_below_a_path_and_the_way_to_them() -> None:
    address = BoardAddress.parse("HTTPS://Board.example/evals/")
    assert (address.at("work/lease"), address.advice) == ("https://board.example/evals/work/lease", None)
    assert BoardAddress.parse("http://127.0.0.1:8470/").advice is None
    assert BoardAddress.parse("http://localhost:8470").advice is None
    assert "not encrypted" in (BoardAddress.parse("http://10.0.0.7:8470").advice or "")


def test_the_token_comes_from_a_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(UsageError, match="needs the board's work token"):
        read_work_token(None, said.append)
    monkeypatch.setenv(VARIABLE, "from-the-environment")
    assert read_work_token(None, said.append) == "from-the-environment"
    file = tmp_path / "token"
    file.write_text("from-a-file\n")
    file.chmod(0o600)
    assert (read_work_token(file, said.append), said) == ("from-a-file", [])
    file.chmod(0o644)
    assert read_work_token(file, said.append) == "from-a-file"
    assert "chmod 600" in said[0]
    assert "from-a-file" not in said[0]


@pytest.mark.parametrize("content", [b"", b"two words", b"two\nlines", "t\u00f6ken".encode(), b"\xff\xfe"])
def test_a_file_without_a_token_is_refused(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    with pytest.raises(UsageError) as error:
        read_work_token(file, lambda line: None)
    assert str(file) in str(error.value)
    assert "words" not in str(error.value).replace("two words", "")
    with pytest.raises(UsageError, match="can't be read"):
        read_work_token(tmp_path / "nowhere", lambda line: None)
