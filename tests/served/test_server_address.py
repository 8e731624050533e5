"""Addresses of served models: what they may be, and that no secret in one is repeated."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise.errors import ModelError
from choicewise.models.server.address import ServerAddress


@pytest.mark.parametrize(
    ("text", "url", "model"),
    [
        ("server:http://127.0.0.1:8000/v1#NAME", "http://127.0.0.1:8000/v1", "NAME"),
        ("server:http://127.0.0.1:8000/v1/#org/name@rev", "http://127.0.0.1:8000/v1", "org/name@rev"),
        ("server:HTTPS://Example.ORG/a/B", "https://example.org/a/B", None),
        ("server:http://[::1]:8000/v1#", "http://[::1]:8000/v1", None),
        ("server:http://localhost", "http://localhost", None),
        ("server:http://host/v1#a#b c", "http://host/v1", "a#b c"),
    ],
)
def test_addresses_are_read_and_written(text: str, url: str, model: str | None) -> None:
    address = ServerAddress.parse(text)
    assert (address.url, address.model) == (url, model)
    assert ServerAddress.parse(str(address)) == address


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("http://host/v1", "server:http://HOST:PORT/v1#NAME"),
        ("server:127.0.0.1:8000/v1", "must start with http:// or https://"),
        ("server:", "must start with http:// or https://"),
        ("server:ftp://host/v1", "must start with http:// or https://"),
        ("server:file:///etc/passwd", "must start with http:// or https://"),
        ("server:http://", "host or port is missing"),
        ("server:http://:8000/v1", "host or port is missing"),
        ("server:http://host:/v1", "host or port is missing"),
        ("server:http://host:0/v1", "host or port is missing"),
        ("server:http://host:99999/v1", "can't be read"),
        ("server:http://host:eighty/v1", "can't be read"),
        ("server:http://[::1/v1", "can't be read"),
        ("server:http://host /v1", "white space"),
        ("server:http://host/v1\r\nX: y", "white space"),
        ("server:http://host/v1#na\u202eme", "invisible"),
        ("server:http://host\\evil/v1", "backslashes"),
        ("server:http://host/v1/completions#m", "leave out /completions"),
        ("server:http://host/v1/chat/completions/", "leave out"),
        ("server:http://host/v1/models", "leave out /models"),
    ],
)
def test_what_is_no_address_is_refused_with_the_form(text: str, words: str) -> None:
    with pytest.raises(ModelError, match=words) as error:
        ServerAddress.parse(text)
    assert error.value.exit_code == 5


@pytest.mark.parametrize(
    "text",
    [
        "server:http://user:sk-planted@host/v1#m",
        "server:http://sk-planted@host/v1",
        "server:sk-planted@host:80/v1",
        "server:http://host/v1?api_key=sk-planted#m",
        "server:http://user:sk-planted/x@host/v1",
        "server:http://user:sk-planted",
        "server:http://[sk-planted/v1",
        "server:sk-planted",
    ],
)
def test_credentials_are_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(ModelError) as error:
        ServerAddress.parse(text)
    assert "planted" not in str(error.value)
    if "@" in text or "?" in text:
        assert "CHOICEWISE_API_KEY" in str(error.value)


@pytest.mark.parametrize(
    ("url", "is_loopback"),
    [
        ("http://127.0.0.1:8000/v1", True),
        ("http://127.9.9.9", True),
        ("http://[::1]:80", True),
        ("http://localhost/v1", True),
        ("http://localhost.example.org", False),
        ("http://10.0.0.1", False),
        ("http://169.254.169.254", False),
        ("http://example.org", False),
    ],
)
def test_which_servers_are_on_this_machine(url: str, is_loopback: bool) -> None:
    assert ServerAddress(url).is_loopback == is_loopback


def test_paths_lie_below_the_address_or_below_the_root() -> None:
    address = ServerAddress.parse("server:http://host:1/proxy/v1")
    assert address.at("completions") == "http://host:1/proxy/v1/completions"
    assert address.at("/tokenize") == "http://host:1/proxy/tokenize"
    assert ServerAddress("http://host:1").at("/tokenize") == "http://host:1/tokenize"


@given(st.text())
def test_any_text_is_an_address_or_an_error(text: str) -> None:
    for address in (text, f"server:{text}", f"server:http://{text}"):
        try:
            parsed = ServerAddress.parse(address)
        except ModelError:
            continue
        assert ServerAddress.parse(str(parsed)) == parsed
