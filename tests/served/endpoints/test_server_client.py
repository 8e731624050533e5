"""The client of a server where nothing fails: what is sent, kept and said while it waits, and that it ends."""

import logging
import threading
from collections.abc import Iterator

import pytest
import stamina

from choicewise.extensions.endpoints.server.address import ServerAddress
from choicewise.extensions.endpoints.server.faults import Passing, ServerFailed, Unanswerable
from choicewise.extensions.endpoints.server.http import Client, Waits
from tests.helpers.messages import Gist
from tests.helpers.misbehaving_server import Server
from tests.helpers.processes import eventually
from tests.helpers.server_faults import stall, status

BODY = {"prompt": "abc", "max_tokens": 1, "temperature": 0}


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(ServerAddress.parse(server.address), "sk-planted", timeout=30.0) as one:
        yield one


def test_requests_go_below_the_address_or_below_the_root(client: Client, server: Server) -> None:
    assert client.get("models")["data"][0]["id"] == "hash"
    assert client.post("/tokenize", {"prompt": "ab"})["tokens"] == [256, 97, 98]
    assert [(each.method, each.path) for each in server.requests] == [
        ("GET", "/v1/models"),
        ("POST", "/tokenize"),
    ]


def test_what_is_sent(client: Client, server: Server) -> None:
    client.post("completions", BODY | {"prompt": "é\u202e\U0001f600\ud800", "stop": ["\n"]})
    (received,) = server.requests
    assert received.body == BODY | {"prompt": "é\u202e\U0001f600\ud800", "stop": ["\n"]}
    assert received.headers["content-type"] == received.headers["accept"] == "application/json"
    assert received.headers["authorization"] == "Bearer sk-planted"
    assert received.headers["user-agent"] == "choicewise"
    assert "cookie" not in received.headers
    for _ in range(10):
        client.post("completions", BODY)
    assert len(server.connections) == 1, "connections are kept"
    server.requests.clear()
    with pytest.raises(ValueError, match="not JSON compliant"):
        client.post("completions", BODY | {"temperature": float("nan")})
    assert server.requests == []


@pytest.mark.parametrize("key", [None, "", "  "])
def test_without_a_key_none_is_sent(key: str | None, server: Server) -> None:
    with Client(ServerAddress.parse(server.address), key) as client:
        client.get("models")
    assert "authorization" not in server.requests[0].headers


def test_the_name_of_the_model_is_checked_where_it_is_given(client: Client, server: Server) -> None:
    assert client.post("/tokenize", {"prompt": "ab"}, model="another")["count"] == 3
    with pytest.raises(
        ServerFailed, match="from model 'hash', not 'another'. Serve 'another' again"
    ):
        client.post("completions", BODY, model="another")


def test_whether_the_server_still_answers_is_asked_path_by_path(
    client: Client, server: Server
) -> None:
    assert client.objection("completions") == "and none ever succeeded"
    client.post("/tokenize", {"prompt": "ab"})
    client.get("models")
    assert client.objection("completions") == "and none ever succeeded"
    client.post("completions", BODY)
    assert client.objection("completions") is None
    server.when(lambda request: request.path == "/v1/completions", status(400))
    assert client.objection("completions") == (Gist("succeeded before ... status 400: 'no luck'"))
    assert client.objection("/tokenize") is None


def test_closing_ends_a_request_of_another_thread(server: Server) -> None:
    server.always(stall)
    ended = list[Exception]()
    client = Client(ServerAddress.parse(server.address))

    def run() -> None:
        try:
            client.post("completions", BODY)
        except Exception as error:
            ended.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    eventually(lambda: server.at_once or not thread.is_alive())
    client.close()
    thread.join(60)
    assert not thread.is_alive()
    assert len(server.requests) == 1
    with pytest.raises(ServerFailed, match="is closed"):
        client.get("models")
    assert isinstance(ended[0], Unanswerable | ServerFailed)


def test_many_clients_leave_nothing_in_the_log(server: Server) -> None:
    names = ["httpx2", "httpcore2.connection", "httpcore2.http11", "httpcore2.proxy"]
    before = [
        {*logging.getLogger(name).filters} for name in names
    ]  # of clients that earlier tests left
    for _ in range(3):
        with Client(ServerAddress.parse(server.address), "sk-planted") as client:
            client.get("models")
            assert all(logging.getLogger(name).filters for name in names)
    assert all(
        {*logging.getLogger(name).filters} <= known
        for name, known in zip(names, before, strict=True)
    )


def test_a_host_that_wants_no_retries_has_none(server: Server) -> None:
    """``stamina.set_active(False)`` is for all of a program."""
    server.always(status(500))
    stamina.set_active(False)
    try:
        with (
            Client(ServerAddress.parse(server.address)) as client,
            pytest.raises(Unanswerable, match="'no luck'$"),
        ):
            client.post("completions", BODY)
    finally:
        stamina.set_active(True)
    assert len(server.requests) == 1


BUSY = Passing("the server is busy, status 429: ''", 429, busy=True)


@pytest.mark.parametrize(
    ("seconds", "others_answered", "times"),
    [(1, False, ["5 s", "35 s", "65 s", "95 s"]), (4, True, [])],
)
def test_waiting_is_said_unless_others_are_answered(
    seconds: int, others_answered: bool, times: list[str]
) -> None:
    lines, now = list[str](), [100.0]
    waits = Waits(lines.append, lambda: now[0])
    for _ in range(100):
        waits.hear(BUSY)
        now[0] += seconds
        if others_answered:
            waits.answered()
    said = "waiting for the server: the server is busy, status 429: '' (no answer for "
    assert [line.removeprefix(said).partition(")")[0] for line in lines] == times


def test_a_long_wait_that_a_server_asks_for_is_said_at_once() -> None:
    lines = list[str]()
    Waits(lines.append, lambda: 100.0).hear(Passing("busy", 429, wait=40.0, busy=True))
    assert lines == [Gist("busy ... wait 40 s ... Ctrl-C")]


def test_silence_is_said_after_seconds_unless_the_server_is_always_as_slow() -> None:
    lines, now = list[str](), [100.0]
    waits = Waits(lines.append, lambda: now[0])
    for now[0] in (105.0, 110.0, 120.0, 140.0):
        waits.still(100.0)
    waits.answered(60.0)
    for now[0] in (220.0, 259.0, 260.0):
        waits.still(130.0)
    assert lines == [
        Gist(f"no answer ... {silence} ... Ctrl-C") for silence in ("10 s", "40 s", "2 minutes")
    ]


def test_a_client_says_that_the_server_is_silent(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("choicewise.extensions.endpoints.server.http._QUIET", 0.02)
    server.always(stall)
    lines = list[str]()
    with Client(ServerAddress.parse(server.address), say=lines.append) as client:
        client.begin("completions", BODY)
        eventually(lambda: lines)
    assert "no answer for 0.0" in lines[0]


@pytest.mark.parametrize("key", ["", "sk-planted-0123456789"])
def test_a_client_says_it(key: str, server: Server, no_pauses: None) -> None:
    lines = list[str]()
    server.next(status(429, body=f"slow down {key}".encode(), Retry_After="7"))
    with Client(ServerAddress.parse(server.address), key, say=lines.append) as client:
        client.get("models")
    (line,) = lines
    assert [
        word for word in ("status 429: 'slow down", "it asks to wait 7 s") if word not in line
    ] == []
    assert not key or key not in line
