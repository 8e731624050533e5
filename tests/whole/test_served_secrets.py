"""The key of a server: a server repeats it in all that it says, and breaks in every way, and nothing keeps the key."""

from __future__ import annotations

import base64
import json
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import choicewise
from choicewise.errors import ChoicewiseError
from tests.helpers.misbehaving_server import Fault, Handler, Received, Server, serving
from tests.helpers.planted_secrets import API_KEY, leaks, leaks_below
from tests.helpers.served_model import text_of
from tests.helpers.server_faults import HTML, each_choice, redirect
from tests.whole.test_secrets import SEARCHED, Day

HALF = API_KEY[: len(API_KEY) // 2 + 1]
"""As services cut keys that they show."""


def said(handler: Handler) -> str:
    """All headers of the request, the key among them as it is, in base64, percent-encoded, and its first half."""
    sent = dict(handler.headers.items())
    packed = base64.b64encode(str(sent.get("Authorization")).encode()).decode()
    encoded = "".join(f"%{byte:02x}" for byte in API_KEY.encode())
    return f"you sent {HALF}..., {encoded}, {packed}, which is {sent.get('Authorization')}, {json.dumps(sent)}"


def echo(status: int, body: Callable[[str], bytes], **headers: str) -> Fault:
    """A response whose body, made of what was sent, and headers repeat the request."""

    def wire(handler: Handler, _: bytes) -> None:
        told = said(handler)
        handler.send(status, body(told), X_Request_Id=told, **headers)

    return Fault(wire=wire)


def as_error(told: str) -> bytes:
    return json.dumps({"error": {"message": told, "type": told, "code": told}}).encode()


def as_text(told: str) -> bytes:
    return told.encode()


def as_html(told: str) -> bytes:
    return HTML + told.encode()


ONE = {
    "400": echo(400, as_error),
    "413": echo(413, as_text),
    "500": echo(500, as_error),
    "502 of HTML": echo(502, as_html, Content_Type="text/html"),
    "200 with an error": echo(200, as_error),
    "200 of HTML": echo(200, as_html, Content_Type="text/html"),
    "a key for a list": each_choice(lambda choice: {**choice, "logprobs": API_KEY, "prompt_logprobs": HALF}),
    "200, cut off": echo(200, lambda told: b'{"choices": [{"text": ' + json.dumps(told).encode()[:-1]),
}
"""What is about one request, whose item is missing with what the server said as the reason."""

ALL = {
    "401": echo(401, as_text),
    "403 of HTML": echo(403, as_html),
    "404": echo(404, as_error),
    "418": echo(418, as_text),
    "429 for an hour": echo(429, as_error, Retry_After="3600"),
    "another model": Fault(answer=lambda answer: {**answer, "model": API_KEY}),
    "a redirect": redirect(f"http://user:{API_KEY}@127.0.0.1:1/{API_KEY}?key={API_KEY}"),
}
"""What is about all requests, and ends the run."""

NO_PAUSES = "import stamina; stamina.set_testing(True, attempts=20)"
"""Makes a command try again at once."""


@pytest.fixture
def day(tmp_path: Path) -> Day:
    return Day(tmp_path)


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as world:
        world.key = API_KEY
        yield world


def about(*words: str) -> Callable[[Received], bool]:
    """Whether a request is about a text with one of ``words``, and no probe."""

    def concerned(request: Received) -> bool:
        prompt = (request.body or {}).get("prompt", "")
        text = prompt if isinstance(prompt, str) else text_of(prompt)
        return any(word in text for word in words)

    return concerned


def asks(folder: Path, name: str, questions: list[str]) -> Path:
    """A file of ``questions`` with two choices each."""
    rows = [{"question": each, "choices": ["here", "there"], "answer": 0} for each in questions]
    (folder / name).write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return folder / name


def test_what_a_server_repeats_is_kept_without_the_key(day: Day, server: Server) -> None:
    """It refuses some questions and answers others, so that what it says becomes the reason of missing items."""
    asks(day.folder, "data.jsonl", [*(f"Where is <{name}>?" for name in ONE), *(f"Who is {n}?" for n in range(9))])
    for name, fault in ONE.items():
        server.when(about(f"<{name}>"), fault)
    model = f"--model {server.address} --tokenizer bytes"
    codes = day.choicewise(
        f"check {model}",
        f"run {model} --data data.jsonl --protocol options/cloze:sum --out run",
        "report run --json",
        "page run --out page.html",
        "export run --format csv --out rows.csv",
        "explain run --item test/0",
        before=NO_PAUSES,
    )
    assert codes[1:] == [0] * 5, day.told
    assert f"Bearer {API_KEY}" in {request.headers.get("authorization") for request in server.requests}
    assert "you sent" in day.told, "what the server says of a missing item is shown"
    assert day.leaks() == []
    assert leaks_below(day.folder, {"half of the key": HALF}) == []


def test_a_server_that_ends_a_run_is_told_without_the_key(day: Day, server: Server) -> None:
    lines = []
    for number, (name, fault) in enumerate(ALL.items()):
        data = asks(day.folder, f"{number}.jsonl", [f"Where is <{name}>?", f"Who is <{name}>?"])
        server.when(about(f"<{name}>"), fault)
        asked = f"--tokenizer bytes --data {data} --protocol options/cloze:sum --out {number}"
        lines.append(f"run --model {server.address} {asked}")
    assert day.choicewise(*lines, before=NO_PAUSES) == [5] * len(lines), day.told
    assert day.leaks() == []


@pytest.mark.usefixtures("no_pauses")
def test_no_frame_of_an_error_shows_the_key(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """As error trackers and rich tracebacks do, with every local variable of every frame and every earlier error."""
    from choicewise.models.load import load_model

    monkeypatch.setenv("CHOICEWISE_API_KEY", API_KEY)
    for name, fault in {**ALL, "500": ONE["500"]}.items():
        server.always(fault)
        with pytest.raises(ChoicewiseError) as raised:
            choicewise.score(load_model(server.address, tokenizer="bytes"), "Where is it?", [" here", " there"])
        error = raised.value
        seen = "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())
        seen += repr(error) + str(error) + repr(vars(error)) + repr(getattr(error, "__notes__", None))
        assert [*leaks(name, seen.encode(), SEARCHED)] == []
