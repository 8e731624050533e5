"""All that can go wrong with an answer, as faults of ``misbehaving_server``. :data:`TRANSPORT_FAULTS` and
:data:`ANSWER_FAULTS` have them by name, for tests with a case for each."""

import gzip
import math
import socket
import struct
from collections.abc import Callable
from typing import Any

from tests.helpers.misbehaving_server import Fault, Handler
from tests.helpers.served_model import JSON


def status(code: int, body: bytes = b'{"error":{"message":"no luck"}}', **headers: str) -> Fault:
    """A response of status ``code``; ``Retry_After="7"`` is the header Retry-After."""
    return Fault(wire=lambda handler, _: handler.send(code, body, **headers))


def says(body: bytes, **headers: str) -> Fault:
    """A response of status 200 with another body."""
    return status(200, body, **headers)


@Fault
def reset(handler: Handler, body: bytes) -> None:
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.close()  # with no time to linger, that is a reset
    raise ConnectionResetError


@Fault
def reset_in_body(handler: Handler, body: bytes) -> None:
    _part(handler, body)
    reset.wire(handler, body)


def _begin(handler: Handler, **headers: str) -> None:
    handler.send_response(200)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()


def _part(handler: Handler, body: bytes) -> None:
    """The first half of a response."""
    _begin(handler, Content_Type="application/json", Content_Length=str(len(body)))
    handler.wfile.write(body[: len(body) // 2])
    handler.wfile.flush()


@Fault
def truncated(handler: Handler, body: bytes) -> None:
    _part(handler, body)
    handler.close_connection = True
    handler.connection.shutdown(socket.SHUT_RDWR)


@Fault
def stall(handler: Handler, body: bytes) -> None:
    handler.world.ended.wait(30)
    handler.close_connection = True


@Fault
def stall_in_body(handler: Handler, body: bytes) -> None:
    _part(handler, body)
    stall.wire(handler, body)


@Fault
def trickle(handler: Handler, body: bytes) -> None:
    _begin(handler, Content_Length="100000")
    while not handler.world.ended.wait(0.05):
        handler.wfile.write(b" ")


@Fault
def no_http(handler: Handler, body: bytes) -> None:
    handler.wfile.write(b"SSH-2.0-OpenSSH_9.6\r\n")
    handler.close_connection = True


def _huge(announced: bool, size: int = 100 * 2**20) -> Fault:
    """A response of ``size`` bytes that is JSON from its first byte to its last."""

    def wire(handler: Handler, body: bytes) -> None:
        handler.close_connection = not announced
        _begin(handler, **{"Content_Length": str(size)} if announced else {"Connection": "close"})
        handler.wfile.write(b'{"text":"')
        for _ in range(size // 2**16):
            handler.wfile.write(b"x" * 2**16)

    return Fault(wire)


@Fault
def gzip_bomb(handler: Handler, body: bytes) -> None:
    handler.send(
        200, gzip.compress(b'{"text":"' + b"x" * (100 * 2**20) + b'"}', 1), Content_Encoding="gzip"
    )


def redirect(target: str, code: int = 307) -> Fault:
    return status(code, b"", Location=target)


HTML = b"<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"
truncated_json = Fault(lambda handler, body: handler.send(200, body[: len(body) // 2]))
gzip_garbage = says(b"\x1f\x8b\x08 this is no gzip", Content_Encoding="gzip")
gzip_truncated = Fault(
    lambda handler, body: handler.send(200, gzip.compress(body)[:-20], Content_Encoding="gzip")
)
huge, huge_announced = _huge(announced=False), _huge(announced=True)

TRANSPORT_FAULTS = {
    **{
        "429 with seconds": status(429, Retry_After="1"),
        "429": status(429),
        "503": status(503),
        "500": status(500),
    },
    "502 of HTML": status(502, HTML, Content_Type="text/html"),
    "200 of HTML": says(HTML, Content_Type="text/html"),
    "200 with an error": says(b'{"error":{"message":"the engine died","code":500}}'),
    **{"empty": says(b""), "truncated": truncated, "truncated JSON": truncated_json},
    **{"gzip garbage": gzip_garbage, "gzip truncated": gzip_truncated},
    **{"no HTTP": no_http, "reset": reset, "reset in the body": reset_in_body},
}
"""What may heal, so that the request is made again and answered."""


def numbers(change: Callable[[float], Any]) -> Fault:
    """Every log-probability of an answer changed, wherever it stands."""

    def changed(value: Any, inside: bool) -> Any:
        match value:
            case dict():
                named = ("token_logprobs", "top_logprobs", "logprob")
                return {
                    name: changed(each, inside or name in named) for name, each in value.items()
                }
            case list():
                return [changed(each, inside) for each in value]
            case float() if inside:
                return change(value)
        return value

    return Fault(answer=lambda answer: changed(answer, False))


def choices(change: Callable[[list[JSON]], list[JSON]]) -> Fault:
    """The list of choices changed."""

    def changed(answer: JSON) -> JSON:
        return answer | {"choices": change(answer["choices"])} if "choices" in answer else answer

    return Fault(answer=changed)


def each_choice(change: Callable[[JSON], JSON]) -> Fault:
    """Every choice of an answer changed."""
    return choices(lambda entries: [change(choice) for choice in entries])


def arrays(change: Callable[[list[Any]], list[Any]]) -> Fault:
    """Every list that has an entry for each token changed."""

    def changed(choice: JSON) -> JSON:
        choice = dict(choice)
        for name in ("prompt_logprobs", "logprobs"):
            match choice.get(name):
                case list() as entries:
                    choice[name] = change(entries)
                case dict() as lists:
                    changed_lists = {
                        key: change(each) for key, each in lists.items() if isinstance(each, list)
                    }
                    choice[name] = lists | changed_lists
        return choice

    return each_choice(changed)


def _tokens(change: Callable[[list[str]], list[str]]) -> Fault:
    """The names of the tokens of completions changed, not their numbers."""

    def changed(choice: JSON) -> JSON:
        lists = choice.get("logprobs")
        known = isinstance(lists, dict) and "tokens" in lists
        return (
            choice | {"logprobs": lists | {"tokens": change(lists["tokens"])}} if known else choice
        )

    return each_choice(changed)


def other_model(name: str = "another") -> Fault:
    return Fault(answer=lambda answer: answer | {"model": name} if "model" in answer else answer)


ANSWER_FAULTS = {
    "no log-probabilities": each_choice(
        lambda choice: choice | {"logprobs": None, "prompt_logprobs": None}
    ),
    "empty lists": arrays(lambda entries: []),
    "short lists": arrays(lambda entries: entries[:-1]),
    "long lists": arrays(lambda entries: [*entries, entries[-1]] if entries else entries),
    "lists of null": arrays(lambda entries: [None] * len(entries)),
    "all 0.0": numbers(lambda number: 0.0),
    "all equal": numbers(lambda number: -1.5),
    "positive": numbers(lambda number: 0.25),
    "NaN": numbers(lambda number: math.nan),
    "-inf": numbers(lambda number: -math.inf),
    "-9999": numbers(lambda number: -9999.0),
    "texts for numbers": numbers(str),
    "no choices": choices(lambda entries: []),
    "a choice too few": choices(lambda entries: entries[:-1]),
    "a choice too many": choices(lambda entries: [*entries, entries[-1] | {"index": len(entries)}]),
    "a choice twice": choices(
        lambda entries: [entries[0]] * len(entries) if len(entries) > 1 else entries * 2
    ),
    "choices in another order": choices(lambda entries: entries[::-1]),
    "other tokens": _tokens(lambda names: [name.swapcase() + "?" for name in names]),
    "merged tokens": _tokens(lambda names: ["".join(names[:2]), *names[2:]]),
    "BOS twice": arrays(lambda entries: [entries[0], *entries] if entries else entries),
    "another model": other_model(),
    "no object": Fault(answer=lambda answer: [answer]),
}
"""What a server may answer in place of the truth.  "choices in another order" is right where ``index`` is read."""
