"""Addresses of served models: what they may be, and that no secret in one is repeated."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise.errors import ModelError
from choicewise.models.server.address import ServerAddress


def test_addresses_are_read_and_written_and_paths_lie_below_them_or_below_the_root() -> None:
    for text, url, model in (
        ("http://127.0.0.1:8000/v1#NAME", "http://127.0.0.1:8000/v1", "NAME"),
        ("http://127.0.0.1:8000/v1/#org/name@rev", "http://127.0.0.1:8000/v1", "org/name@rev"),
        ("HTTPS://Example.ORG/a/B", "https://example.org/a/B", None),
        ("http://[::1]:8000/v1#", "http://[::1]:8000/v1", None),
        ("http://localhost", "http://localhost", None),
        ("http://host/v1#a#b c", "http://host/v1", "a#b c"),
    ):
        address = ServerAddress.parse(f"server:{text}")
        assert (address.url, address.model) == (url, model)
        assert ServerAddress.parse(str(address)) == address
    address = ServerAddress.parse("server:http://host:1/proxy/v1")
    assert address.at("completions") == "http://host:1/proxy/v1/completions"
    assert address.at("/tokenize") == "http://host:1/proxy/tokenize"
    assert ServerAddress("http://host:1").at("/tokenize") == "http://host:1/tokenize"


NO_SCHEME = "127.0.0.1:8000/v1", "", "ftp://host/v1", "file:///etc/passwd"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("http://host/v1", "server:http://HOST:PORT/v1#NAME"),
        *((f"server:{text}", "must start with http:// or https://") for text in NO_SCHEME),
        *((f"server:http://{text}", "host or port is missing") for text in ("", ":8000/v1", "host:/v1", "host:0/v1")),
        *((f"server:http://{text}", "can't be read") for text in ("host:99999/v1", "host:eighty/v1", "[::1/v1")),
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


def test_which_servers_are_on_this_machine() -> None:
    here = "127.0.0.1:8000/v1", "127.9.9.9", "[::1]:80", "localhost/v1"
    elsewhere = "localhost.example.org", "10.0.0.1", "169.254.169.254", "example.org"
    assert {url: ServerAddress(f"http://{url}").is_loopback for url in (*here, *elsewhere)} == (
        dict.fromkeys(here, True) | dict.fromkeys(elsewhere, False)
    )


@given(st.text())
def test_any_text_is_an_address_or_an_error(text: str) -> None:
    for address in (text, f"server:{text}", f"server:http://{text}"):
        try:
            parsed = ServerAddress.parse(address)
        except ModelError:
            continue
        assert ServerAddress.parse(str(parsed)) == parsed
