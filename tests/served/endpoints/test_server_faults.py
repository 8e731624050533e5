"""A row for each thing that can go wrong between us and a server: what heals, what does not, and what is said. The
servers are real ones on loopback (``misbehaving_server``). Pauses between tries are left out, except where a test is
about them."""

import asyncio
import base64
import json
import logging
import shutil
import socket
import ssl
import subprocess
import threading
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pytest
import stamina
from hypothesis import given
from hypothesis import strategies as st

from choicewise.errors import ModelError
from choicewise.extensions.endpoints.server import faults
from choicewise.extensions.endpoints.server import http as retries
from choicewise.extensions.endpoints.server import routes as fields
from choicewise.extensions.endpoints.server.address import Key, ServerAddress, quoted
from choicewise.extensions.endpoints.server.faults import (
    Passing,
    ServerFailed,
    Unanswerable,
    json_answer,
)
from choicewise.extensions.endpoints.server.http import Client
from tests.helpers import server_faults
from tests.helpers.messages import Gist
from tests.helpers.misbehaving_server import Fault, Handler, Server, serving
from tests.helpers.server_faults import (
    TRANSPORT_FAULTS,
    other_model,
    redirect,
    reset,
    says,
    stall,
    status,
)

KEY = "sk-planted/0123456789"
BODY = {"prompt": "abc", "max_tokens": 1, "temperature": 0, "logprobs": 1}

pytestmark = pytest.mark.usefixtures("no_pauses")


def client_of(server: Server, **options: Any) -> Client:
    return Client(ServerAddress.parse(server.address), KEY, **options)


def failure(
    server: Server, fault: Fault, **options: Any
) -> tuple[Unanswerable | ServerFailed, int]:
    """What becomes of a request to a server that always has ``fault``, and how often it was made."""
    server.always(fault)
    with (
        client_of(server, **options) as client,
        pytest.raises((Unanswerable, ServerFailed)) as error,
    ):
        client.post("completions", BODY)
    assert isinstance(error.value, Unanswerable | ServerFailed)
    return error.value, len(server.requests)


@pytest.mark.parametrize("name", TRANSPORT_FAULTS)
def test_what_may_heal_is_made_again_and_answered(name: str, server: Server) -> None:
    fault = TRANSPORT_FAULTS[name]
    server.next(fault, fault)
    with client_of(server) as client:
        answer = client.post("completions", BODY)
    assert answer["choices"][0]["text"]
    assert [request.body for request in server.requests] == [BODY] * 3


BUSY = "429 with seconds", "429", "503"


@pytest.mark.parametrize("name", [name for name in TRANSPORT_FAULTS if name not in BUSY])
def test_what_does_not_heal_is_about_this_request_after_five_tries(
    name: str, server: Server
) -> None:
    error, tries = failure(server, TRANSPORT_FAULTS[name])
    assert (type(error), tries, str(error)[-9:]) == (Unanswerable, 5, ", 5 times")


@pytest.mark.parametrize("name", BUSY)
def test_a_busy_server_is_waited_for_as_long_as_time_allows(name: str, server: Server) -> None:
    error, tries = failure(server, TRANSPORT_FAULTS[name])
    assert (type(error), tries) == (ServerFailed, 20)  # what the fixture allows
    assert "server is busy, status" in str(error)
    assert "run the same command" in str(error)


@pytest.mark.parametrize("code", [400, 413, 422])
def test_a_request_that_is_refused_is_not_made_again(code: int, server: Server) -> None:
    error, tries = failure(server, status(code, b'{"error":{"message":"too long for me"}}'))
    assert (type(error), tries, error.status) == (Unanswerable, 1, code)
    assert error.reason == Gist(f"status {code}: 'too long for me'")


ALL = dict.fromkeys((401, 403), "refuses the key") | dict.fromkeys((405, 204), "check the address")
ALL |= {404: "no such model", 307: "redirects"}


@pytest.mark.parametrize(("code", "words"), ALL.items())
def test_what_concerns_all_requests_stops_the_run_at_once(
    code: int, words: str, server: Server
) -> None:
    error, tries = failure(server, status(code, b""))
    assert (type(error), tries, error.status, error.exit_code) == (ServerFailed, 1, code, 5)
    assert str(error).startswith(server.url)
    assert words in str(error)


def test_a_server_that_asks_for_a_key_says_where_to_put_it(server: Server) -> None:
    server.key = KEY
    with Client(ServerAddress.parse(server.address)) as client:
        with pytest.raises(ServerFailed, match="set CHOICEWISE_API_KEY"):
            client.get("models")
        assert "authorization" not in server.requests[0].headers
    with client_of(server) as client:
        assert client.get("models")["data"][0]["id"] == "hash"


@pytest.mark.parametrize(
    "target", ["http://169.254.169.254/latest", "http://example.org/v1", "/elsewhere", "//evil/"]
)
@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_redirects_are_not_followed_anywhere(code: int, target: str, server: Server) -> None:
    error, tries = failure(server, redirect(target, code))
    assert (type(error), tries, "which is not followed" in str(error)) == (ServerFailed, 1, True)


def test_the_key_is_not_sent_after_a_redirect(server: Server) -> None:
    with serving() as other:
        error, _ = failure(server, redirect(f"{other.url}/models"))
        assert other.requests == []
        assert "'127.0.0.1'" in str(error)


@pytest.mark.parametrize(
    "fault",
    [server_faults.huge, server_faults.huge_announced, server_faults.gzip_bomb],
    ids=["huge", "announced", "gzip bomb"],
)
def test_a_huge_answer_is_refused_before_it_is_read(fault: Fault, server: Server) -> None:
    error, tries = failure(server, fault, most_bytes=2**20)
    assert (type(error), tries, error.reason) == (
        Unanswerable,
        1,
        Gist("larger than 1 MiB"),
    )


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        *(
            (fault, Gist("silent for 0.1 s, 3 times"))
            for fault in (stall, server_faults.stall_in_body)
        ),
        (server_faults.trickle, Gist("incomplete after 0.2 s, 3 times")),
    ],
    ids=["stall", "in the body", "trickle"],
)
def test_a_silent_or_slow_server_is_given_up(fault: Fault, reason: str, server: Server) -> None:
    error, tries = failure(server, fault, timeout=0.1)
    assert (type(error), tries, error.reason) == (Unanswerable, 3, reason)


def test_a_server_that_is_not_there_stops_the_run() -> None:
    with serving() as server:
        address = server.address
    with (
        Client(ServerAddress.parse(address)) as client,
        pytest.raises(ServerFailed, match="is it running") as error,
    ):
        client.get("models")
    assert ", 5 times; " in str(error.value)


def test_no_connection_in_time_stops_the_run() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        port = listener.getsockname()[1]
        with ExitStack() as waiting:
            for _ in range(3):  # they fill the queue, which nobody accepts from
                one = waiting.enter_context(socket.socket())
                one.setblocking(False)
                one.connect_ex(("127.0.0.1", port))
            client = waiting.enter_context(
                Client(ServerAddress(f"http://127.0.0.1:{port}"), connect=0.1)
            )
            with pytest.raises(ServerFailed, match="timed out, 5 times"):
                client.get("models")


def test_a_name_that_does_not_exist_stops_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*args: object, **kwargs: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    client = Client(ServerAddress("http://nowhere.invalid"))
    with client, pytest.raises(ServerFailed, match="can't be reached"):
        client.get("models")


def test_https_to_a_server_of_http_is_named(server: Server) -> None:
    client = Client(ServerAddress(server.url.replace("http:", "https:")))
    with client, pytest.raises(ServerFailed, match="need http://, not https://"):
        client.get("models")
    assert len(server.requests) == 0


def test_a_certificate_that_is_not_trusted_is_named(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    line = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout key.pem -out certificate.pem"
    subprocess.run(["openssl", *line.split()], cwd=tmp_path, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "certificate.pem", tmp_path / "key.pem")
    with _listening(lambda one: context.wrap_socket(one, server_side=True)) as port:
        client = Client(ServerAddress(f"https://127.0.0.1:{port}"))
        with (
            client,
            pytest.raises(ServerFailed, match=r"not trusted \(self.signed certificate\)") as error,
        ):
            client.get("models")
    assert "times" not in str(error.value)


def test_a_server_that_ends_the_handshake_may_heal() -> None:
    with _listening(lambda one: one.close()) as port:
        client = Client(ServerAddress(f"https://127.0.0.1:{port}"))
        with client, pytest.raises(ServerFailed, match="5 times"):
            client.get("models")


@contextmanager
def _listening(accept: Any) -> Iterator[int]:
    """The port of a server that does ``accept`` with every connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def run() -> None:
            with suppress(OSError):
                while True:
                    one, _ = listener.accept()
                    try:
                        accept(one)
                    except OSError:
                        one.close()

        threading.Thread(target=run, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


OTHERS = {
    b"[]": "a list",
    b'"text"': "a text",
    b"null": "null",
    b"true": "true or false",
    b"7": "a number",
}


@pytest.mark.parametrize(
    ("body", "words", "times"),
    [
        (b'{"choices": NaN}', "NaN instead", 1),
        (b'{"choices": [-Infinity]}', "-Infinity instead", 1),
        (b'{"choices": 1e999}', "out of range", 1),
        (b'{"choices": 1, "choices": 2}', "the same name twice", 1),
        *(
            (b'{"choices":' + b"[" * deep + b"]" * deep + b"}", "nested too deeply", 1)
            for deep in (200, 100_000)
        ),
        *((body, f"its JSON is {kind}, not an object", 1) for body, kind in OTHERS.items()),
        *((body, "it is empty", 5) for body in (b"", b"  ")),
        (b'{"choices":', "it is not JSON", 5),
        (b'{"text": "\xff"}', "it is not UTF-8", 5),
        (b"{" + b'"n": ' + b"1" * 5000 + b"}", "number is too long", 5),
    ],
)
def test_broken_json_is_asked_for_again_no_answer_is_not(
    body: bytes, words: str, times: int, server: Server
) -> None:
    error, tries = failure(server, says(body))
    assert (type(error), tries, words in error.reason) == (Unanswerable, times, True)


def test_lone_surrogates_become_replacement_characters() -> None:
    answer = json_answer(rb'{"a\ud800": ["\udfff", {"b": "x\uD83D\uDE00"}], "n": 1}')
    assert answer == {"a\ufffd": ["\ufffd", {"b": "x\U0001f600"}], "n": 1}
    assert json_answer(b'\xef\xbb\xbf{"bom": 1.5}') == {"bom": 1.5}


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
LEAVES = st.none() | st.booleans() | st.integers() | FINITE | TEXTS
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner), max_leaves=8
)


@pytest.mark.costly("values of values that are drawn")
@given(st.dictionaries(TEXTS, VALUES), st.booleans())
def test_true_json_is_read_as_it_is(value: dict[str, Any], escaped: bool) -> None:
    assert json_answer(json.dumps(value, ensure_ascii=escaped).encode()) == value


@given(st.binary())
def test_any_bytes_are_an_object_or_unreadable(body: bytes) -> None:
    try:
        answer = json_answer(body)
    except faults.Unreadable:
        return
    json.dumps(answer, allow_nan=False, ensure_ascii=False).encode()


NOW = datetime(2026, 11, 22, 12, 0, 0, tzinfo=UTC)
WAITS: dict[str | None, float | None] = {"7": 7.0, " 7 ": 7.0, "0": 0.0, "0.5": 0.5, "3600": 3600.0}
WAITS |= {
    "Sun, 22 Nov 2026 12:00:30 GMT": 30.0,
    "Sun, 22 Nov 2026 13:00:30 +0100": 30.0,
    "Sunday, 22-Nov-26 12:00:30 GMT": 30.0,
    "Sun Nov 22 12:00:30 2026": 30.0,
    "Sun, 22 Nov 2026 11:00:00 GMT": 0.0,
}
NO_WAITS = (
    None,
    "",
    "-5",
    "soon",
    "nan",
    "inf",
    "1e9",
    "9" * 400,
    "٧",
    "Sun, 99 Nov 2026 12:00:30 GMT",
)


@pytest.mark.parametrize(
    ("value", "seconds"), [*WAITS.items(), *((value, None) for value in NO_WAITS)]
)
def test_what_retry_after_asks_for(value: str | None, seconds: float | None) -> None:
    assert faults.retry_after(value, NOW) == seconds


def test_how_long_that_is_in_words() -> None:
    words = {1.25: "1.25 s", 119: "119 s", 120: "2 minutes", 7199: "120 minutes", 7200: "2 hours"}
    assert {seconds: faults.duration(seconds) for seconds in words} == words


@given(
    st.text()
    | st.from_regex(
        r"[0-9.]{1,20}|[A-Z][a-z]{2}, \d+ Nov \d+ \d\d:\d\d:\d\d [-+A-Z0-9]*", fullmatch=True
    )
)
def test_any_retry_after_is_a_wait_or_nothing(value: str) -> None:
    seconds = faults.retry_after(value, NOW)
    assert seconds is None or 0 <= seconds < float("inf")


@pytest.mark.parametrize(
    ("value", "pause"),
    [
        ("7", 7.0),
        ("Fri, 01 Jan 2100 00:00:00 GMT", None),
        ("3600", None),
        (None, True),
        ("0", True),
    ],
)
@pytest.mark.parametrize("code", [429, 503, 500])
def test_retry_after_is_waited_for(
    value: str | None,
    pause: float | bool | None,
    code: int,
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What stamina is told to wait: seconds, True for its own growing pauses; nothing where the run stops."""
    told = list[Any]()
    true_context = stamina.retry_context

    def watched(on: Any, **kwargs: Any) -> Any:
        def watching(error: Exception) -> Any:
            told.append(on(error))
            return told[-1]

        return true_context(on=watching, **kwargs)

    monkeypatch.setattr(retries.stamina, "retry_context", watched)
    server.next(status(code, **({} if value is None else {"Retry_After": value})))
    with client_of(server) as client:
        if pause is None:
            with pytest.raises(ServerFailed, match=r"asks to wait (60 minutes|6\d+ hours)"):
                client.post("completions", BODY)
            return
        client.post("completions", BODY)
    assert told == [True] if pause is True else pause <= told[0] <= pause + 1


def test_no_try_begins_after_patience(server: Server) -> None:
    server.always(status(429, Retry_After="7"))
    with client_of(server, patience=5.0) as client, pytest.raises(ServerFailed, match="busy"):
        client.post("completions", BODY)
    assert len(server.requests) == 1


def test_pauses_grow_with_jitter() -> None:
    """With the true pauses of stamina, which are only counted."""
    slept = list[float]()

    async def pause(seconds: float) -> None:
        slept.append(seconds)

    async def failing() -> None:
        raise Passing("it fails")

    with pytest.MonkeyPatch.context() as patch, stamina.set_testing(False):
        patch.setattr("asyncio.sleep", pause)
        with pytest.raises(Unanswerable, match="it fails, 5 times"):
            asyncio.run(retries.healed(failing, 600.0, lambda fault: None))
    assert len(slept) == 4
    assert all(base <= pause <= base + 1 for base, pause in zip([0.5, 1, 2, 4], slept, strict=True))
    assert len({pause % 0.5 for pause in slept}) > 1


def test_retries_are_silent(
    server: Server, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    server.next(reset, status(500))
    with client_of(server) as client:
        client.post("completions", BODY)
    assert capfd.readouterr() == ("", "")
    assert [record.name for record in caplog.records if record.name == "stamina"] == []
    with stamina.set_testing(True, attempts=2), pytest.raises(ZeroDivisionError):
        for attempt in stamina.retry_context(on=ZeroDivisionError):
            with attempt:
                raise ZeroDivisionError
    assert [record.name for record in caplog.records if record.name == "stamina"] == ["stamina"]


def _breaks_off(handler: Handler, body: bytes) -> None:
    handler.send_response(500)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(body)
    handler.close_connection = True


ECHOED = [
    status(400, b'{"error":{"message":"bad key sk-planted/0123456789!"}}'),
    status(400, json.dumps({"error": {"message": f"Bearer {KEY}"}}).replace("/", r"\/").encode()),
    status(401, f"no access for {KEY}".encode()),
    status(403, b"x" * 190 + KEY.encode() + b"y" * 100),
    status(404, b"sk-planted%2F0123456789"),
    status(422, json.dumps({"detail": [{"msg": KEY, "input": {KEY: KEY}}]}).encode()),
    status(500, f"<pre>Authorization: Bearer {KEY}</pre>".encode()),
    status(429, KEY.encode(), Retry_After="9999"),
    says(f'{{"error": "{KEY}"}}'.encode()),
    says(f'{{"{KEY}": NaN}}'.encode()),
    says(f"{KEY} is no JSON".encode()),
    redirect(f"http://evil/{KEY}"),
    status(400, b" " * 1985 + KEY.encode()),
    Fault(wire=lambda handler, body: _breaks_off(handler, b'{"error":"' + KEY[:-3].encode())),
    other_model(KEY),
    status(400, "".join(f"%{byte:02x}" for byte in KEY.encode()).encode()),
    status(400, "".join(f"%{byte:02X}" for byte in KEY.encode()).encode() + b" in a URL"),
    status(401, f"no access for {KEY[:11]} and so on".encode()),
    status(401, f"no access for {quote(KEY[:11], safe='')}*** and so on".encode()),
    status(
        500,
        base64.b64encode(f"Bearer {KEY}".encode())[: len("Bearer sk-planted") * 4 // 3] + b"...",
    ),
    says(
        json.dumps({"choices": [{"index": KEY[:11]}], "usage": {"prompt_tokens": KEY}})
        .replace("/", "%2F")
        .encode()
    ),
]


def frames(error: Exception) -> list[str]:
    """The lines of its traceback with all variables, but for those of the test itself."""
    trace = error.__traceback__
    assert trace is not None
    return [
        *traceback.TracebackException(
            type(error), error, trace.tb_next, capture_locals=True
        ).format()
    ]


@pytest.mark.parametrize(
    "fault", [*ECHOED, *TRANSPORT_FAULTS.values(), server_faults.huge_announced, stall]
)
def test_the_key_is_hidden(
    fault: Fault,
    server: Server,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    server.always(fault)
    client = client_of(server, timeout=0.5)
    shown = [repr(client), str(client)]
    try:
        client.read(fields.choice, client.post("completions", BODY, model="hash"))
    except (Unanswerable, ServerFailed) as error:
        shown += [
            str(error),
            repr(error),
            repr(error.args),
            repr(error.__cause__),
            repr(error.__context__),
        ]
        shown += frames(error)
    else:
        pytest.fail("no fault")
    client.close()
    shown += [
        caplog.text,
        *capfd.readouterr(),
        *(str(record.__dict__) for record in caplog.records),
    ]
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    for text in (spelling for each in shown for spelling in (each, unquote(each))):
        assert [word for word in ("planted", "0123456789") if word in text] == []
        assert base64.b64encode(b"Bearer sk-planted")[9:-1].decode() not in text


@pytest.mark.parametrize("key", ["sk planted", "sk-planted\x00", "sk-plantéd", "sk\nplanted"])
def test_a_key_that_can_not_be_sent_is_refused_and_not_repeated(key: str) -> None:
    with pytest.raises(ModelError, match="CHOICEWISE_API_KEY has characters") as error:
        Client(ServerAddress("http://127.0.0.1:1"), key)
    assert "plant" not in "".join(frames(error.value)).replace("planted is", "")


@given(
    st.text(min_size=8, alphabet=st.characters(min_codepoint=33, max_codepoint=126)),
    st.text(),
    st.text(),
)
def test_what_is_quoted_never_has_the_key(key: str, before: str, after: str) -> None:
    shown = quoted(before + key + after, Key(key), 60)
    assert len(shown) < 700
    assert shown.isprintable()
    assert key not in quoted(f"a {key} b", Key(key), 60) or key in "'a [key] b'"


SPELLINGS = {
    "as it is": lambda sign: sign,
    "in a URL": lambda sign: f"%{ord(sign):02X}",
    "in another URL": lambda sign: f"%{ord(sign):02x}",
    "in JSON": lambda sign: rf"\u{ord(sign):04x}",
    "in JSON of JSON": lambda sign: rf"\\u{ord(sign):04X}",
}
SIGNS = st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="%\\")


@given(st.text(SIGNS, min_size=10, max_size=60), st.integers(0, 30), st.sampled_from([*SPELLINGS]))
def test_the_first_half_of_a_key_is_hidden_however_it_is_spelled(
    key: str, more: int, spelling: str
) -> None:
    part = "".join(map(SPELLINGS[spelling], key[: (len(key) + 1) // 2 + more]))
    assert Key(key).hidden(f"\n{part}\n") == "\n[key]\n"
    assert Key(key).hidden(f"\n{part}"[:-1]).startswith("\n[key]")


def test_quotes_are_short_and_visible_and_keys_are_not() -> None:
    assert quoted("a\x1b[31m\u202eb\n\n c", Key("k")) == r"'a\x1b[31m\u202eb c'"
    assert quoted("x" * 500, Key("k"), 10) == "'xxxxxxxxx…'"
    key = Key(" sk-planted/key ")
    assert (key.header, repr(key), bool(Key(" "))) == ("Bearer sk-planted/key", "Key()", False)


def set_proxy(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    for name in ("NO_PROXY", "no_proxy", "ALL_PROXY", "all_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", address)


def test_servers_elsewhere_are_reached_through_the_proxy(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://user:sk-planted@127.0.0.1:9")
    with client_of(server) as client:
        assert client.get("models")["object"] == "list"
    server.requests.clear()
    set_proxy(monkeypatch, f"http://127.0.0.1:{server.port}")
    with (
        Client(ServerAddress("http://model.invalid/v1")) as client,
        pytest.raises(ServerFailed, match="status 404"),
    ):
        client.get("models")
    assert [request.path for request in server.requests] == ["http://model.invalid/v1/models"]


@pytest.mark.parametrize(
    "proxy",
    ["http://user:sk-planted@127.0.0.1:9", "gopher://sk-planted@x", "http://sk-planted:x:y"],
)
def test_the_password_of_a_proxy_is_not_repeated(
    proxy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_proxy(monkeypatch, proxy)
    with pytest.raises(ModelError, match="proxy") as error:
        Client(ServerAddress("http://model.invalid/v1")).get("models")
    assert "planted" not in "".join(traceback.format_exception(error.value))
