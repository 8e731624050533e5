"""What a model behind a server is made of, asked without a connection: ``tests/served`` has the rest."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import httpx2
import pytest

from choicewise.errors import ModelError
from choicewise.models.server.address import HIDDEN, Key, ServerAddress, quoted
from choicewise.models.server.faults import Passing, Unanswerable, Unreadable, duration, json_answer, retry_after
from choicewise.models.server.http import Client, ConcurrencyLimit, Waits
from choicewise.models.server.many_requests import answered
from choicewise.models.server.probe import ServerFacts, answer_if_offered, other_name, read_server_facts
from choicewise.models.server.server_model import ServerModel

ADDRESS = ServerAddress.parse("server:http://127.0.0.1:8000/v1")
MODELS = {"data": [{"id": "m", "max_model_len": 100, "root": "org/m"}]}


def client(reply: Callable[[str, Any], tuple[int, Any]]) -> Client:
    """A client whose requests ``reply`` answers, by path and body, with a status and JSON."""

    def handle(request: httpx2.Request) -> httpx2.Response:
        status, answer = reply(request.url.path, json.loads(request.content or b"null"))
        return httpx2.Response(status, json=answer)

    return Client(ADDRESS, transport=httpx2.MockTransport(handle))


def test_a_key_is_hidden_as_it_is_in_half_and_encoded() -> None:
    key = Key(" sk-planted/key ")
    for text in ("sk-planted/key", "sk-plant", "sk-planted%2Fkey", r"sk-planted\/key", "c2stcGxhbnRlZC9rZX"):
        assert key.hidden(f"it is {text}, you see") == f"it is {HIDDEN}, you see", text
    assert (key.header, repr(key), bool(Key(" "))) == ("Bearer sk-planted/key", "Key()", False)
    told = quoted("a\nb sk-planted/key \u202e" + "x" * 300, key, most=20)
    assert told == repr(f"a b {HIDDEN} \u202e" + "x" * 8 + "…")


def test_what_a_header_asks_to_wait_and_how_long_that_is() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    asked = {"7": 7.0, " 1.5 ": 1.5, "Thu, 01 Jan 2026 00:00:09 GMT": 9.0, "Thu, 01 Jan 2020 00:00:00 GMT": 0.0}
    assert {value: retry_after(value, now) for value in asked} == asked
    assert [retry_after(value, now) for value in (None, "", "soon", "-3", "9" * 400)] == [None] * 5
    assert [duration(seconds) for seconds in (1.25, 119, 120, 7199, 7200)] == [
        *("1.25 s", "119 s", "2 minutes", "120 minutes", "2 hours")
    ]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"\xff", "not UTF-8"),
        (b" ", "it is empty"),
        (b'{"a": 1', "it is no JSON"),
        (b"[]", "no object but a list"),
        (b'{"a": 1e999}', "JSON"),
        (b'{"a": NaN}', "JSON"),
        (b'{"a": 1, "a": 2}', "JSON"),
        (b'{"a":' * 200 + b"1" + b"}" * 200, "nested too deeply"),
    ],
)
def test_answers_that_are_no_objects_are_unreadable(body: bytes, reason: str) -> None:
    assert json_answer(b'{"a": ["\\ud800"]}') == {"a": ["\ufffd"]}
    with pytest.raises(Unreadable, match=reason):
        json_answer(body)


def test_requests_at_once_double_then_grow_by_one_and_are_halved_once_for_those_under_way() -> None:
    limit, sizes = ConcurrencyLimit(most=16, slow=10.0), []
    for _ in range(6):
        limit.answered(1.0, limit.limit)
        sizes.append(limit.limit)
    assert sizes == [2, 4, 4, 4, 4, 8]
    limit.overloaded(begun=1.0, now=5.0, wait=3.0)
    limit.overloaded(begun=4.0, now=6.0)
    assert (limit.limit, limit.resume) == (4, 8.0)
    for _ in range(8):
        limit.answered(1.0, limit.limit)
    assert limit.limit == 5


def test_a_wait_is_told_when_it_is_long_and_not_too_often() -> None:
    lines, clock = list[str](), iter([0.0, 6.0, 20.0, 40.0])
    waits = Waits(lines.append, lambda: next(clock))
    for _ in range(4):
        waits.hear(Passing("it is busy", busy=True))
    assert [line.partition("(")[2].partition(")")[0] for line in lines] == ["no answer for 6 s", "no answer for 40 s"]


def test_many_requests_are_answered_once_each_or_have_their_reason() -> None:
    asking = client(lambda path, body: (400, {"error": "too long"}) if body["n"] == 3 else (200, {"n": body["n"]}))
    found = dict(answered(asking, (("completions", {"n": number}) for number in range(6))))
    refused = found.pop(3)
    assert isinstance(refused, Unanswerable)
    assert "too long" in refused.reason
    assert found == {number: {"n": number} for number in (0, 1, 2, 4, 5)}


def test_what_a_server_serves_is_read_and_another_name_is_refused_where_it_is_another_model() -> None:
    asking = client(lambda path, body: (200, MODELS) if path == "/v1/models" else (404, {}))
    served = read_server_facts(asking, None)
    assert (served.model, served.root, served.window) == ("m", "org/m", 100)
    assert answer_if_offered(asking, "/version") == {}
    with pytest.raises(ModelError, match="serves no model 'other'"):
        read_server_facts(asking, "other")
    several = ServerFacts("m", root="org/m", others={"twin": "org/m", "other": "org/other"})
    assert [other_name(several, name) for name in (None, "m", "m-2026", "twin")] == ["", "", "m-2026", "twin"]
    with pytest.raises(ModelError, match="answers with its model 'other' when it is asked for 'm'"):
        other_name(several, "other")


def test_a_window_beyond_what_the_server_takes_is_refused() -> None:
    def model(window: int | None) -> ServerModel:
        asking = client(lambda path, body: (200, MODELS) if path == "/v1/models" else (404, {}))
        return ServerModel(ADDRESS, tokenizer="bytes", window=window, client=asking)

    assert (model(None).takes, model(50).name) == (100, "m")
    with pytest.raises(ModelError, match="100"):
        model(1000)
