"""Addresses of served models: what they may be, and that no secret in one is repeated."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import choicewise
from choicewise.cli.commands import invoke
from choicewise.errors import ChoicewiseError, ModelError
from choicewise.extensions.endpoints.server.address import ServerAddress
from choicewise.extensions.run.sweep import sweep
from choicewise.running.job import DataChoice, Job, ModelChoice, job_of
from choicewise.util.text import holds_secret
from tests.helpers import commands


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
        assert (address.url, address.model, ServerAddress.parse(str(address))) == (
            url,
            model,
            address,
        )
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
        *(
            (f"server:http://{text}", "port is missing")
            for text in ("", ":8000/v1", "host:/v1", "host:0/v1")
        ),
        *(
            (f"server:http://{text}", "can't be read")
            for text in ("host:99999/v1", "host:eighty/v1", "[::1/v1")
        ),
        ("server:http://host /v1", "white space"),
        ("server:http://host/v1\r\nX: y", "white space"),
        ("server:http://host/v1#na\u202eme", "invisible"),
        ("server:http://host\\evil/v1", "backslashes"),
        ("server:http://host/v1/completions#m", "remove /completions"),
        ("server:http://host/v1/chat/completions/", "remove"),
        ("server:http://host/v1/models", "remove /models"),
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


HIDDEN = "pl4nted"
SECRET = [
    f"https://user:{HIDDEN}@example.org/data.jsonl",
    f"server:http://{HIDDEN}@127.0.0.1:8000/v1#name",
    f"server:http://:{HIDDEN}@127.0.0.1:8000/v1",
    f"https:/user:{HIDDEN}@example.org/data.jsonl",
    f"https://user:{HIDDEN}/with?odd#signs@example.org",
    f"https://example.org/data?api_key={HIDDEN}",
    f"https://example.org/data?page=2&X-Amz-Signature={HIDDEN}",
    f"server:http://127.0.0.1:8000/v1?token={HIDDEN}#name",
    f"https://example.org/data#access_token={HIDDEN}",
    f"s3://id:{HIDDEN}@bucket/key",
]
HARMLESS = [
    "server:http://127.0.0.1:8000/v1#org/name@revision",
    "server:http://[::1]:8000/v1#name",
    "https://example.org/@user/post",
    "https://example.org/?tokens=5&keyboard=no",
    "org/name:config@revision",
    "C:/data/a@b.csv",
    "me@example.org",
    "results/key=1",
    "fake:hash",
]


def test_a_secret_is_noticed_and_what_holds_none_is_left_alone() -> None:
    assert [
        text for text in SECRET if not (holds_secret(text) and holds_secret(str(Path(text))))
    ] == []
    assert [text for text in HARMLESS if holds_secret(text)] == []


@pytest.mark.parametrize(
    "text",
    [
        "a" * 100_000,
        "a" * 100_000 + ":/",
        "ab:/" * 30_000,
        "ab:/x:" * 20_000,
        "ab://" + "?a_" * 100_000,
    ],
)
def test_a_long_text_without_a_break_is_searched_in_linear_time(text: str) -> None:
    """In quadratic time it would take minutes."""
    assert not holds_secret(text)
    assert holds_secret(f"{text}https://user:{HIDDEN}@example.org/data.jsonl")


REFUSED = "is an address .*CHOICEWISE_API_KEY.*HF_TOKEN"


def repeated(error: ChoicewiseError) -> bool:
    """Whether the secret is in any part of what the command prints of ``error``."""
    return HIDDEN in f"{error!r} {error} {vars(error)}"


RUN = ["run", "--protocol", "options/cloze:sum"]
FAKE = ["--model", "fake:hash"]
DATA = ["--data", "d.jsonl"]


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ([*RUN, "--out", "run", *DATA, "--model", "{}"], "--model"),
        ([*RUN, "--out", "run", *DATA, "--model={}"], "--model"),
        ([*RUN, "--out", "run", *FAKE, "--data", "{}"], "--data"),
        ([*RUN, *FAKE, *DATA, "--out", "{}"], "--out"),
        ([*RUN, *FAKE, *DATA, "--dry-run", "--adapter", "{}"], "--adapter"),
        (["run", *FAKE, *DATA, "--protocol", "{}"], "--protocol"),
        (["sweep", *FAKE, "--model", "{}", "--protocol", "mmlu", "--out", "all"], "--model"),
        (["sweep", "{}", "--out", "all"], "an argument"),
        (["check", "--model", "{}"], "--model"),
        *(
            (line.split(), "an argument")
            for line in ("data {}", "report {}", "protocols show {}", "import {} --out run")
        ),
        (["fetch", "{}", "--to", "there"], "an argument"),
        (["export", "run", "--format", "csv", "--out", "there", "--url", "{}"], "--url"),
        (["score", "--model", "{}", "--context", "a", "--choice", "b"], "--model"),
        (["no-command", "--no-option={}"], "--no-option"),
    ],
)
def test_a_command_line_is_refused_without_repeating_it(
    line: list[str],
    named: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for text in SECRET:
        with pytest.raises(ChoicewiseError, match=f"^{named} {REFUSED}") as raised:
            invoke([word.replace("{}", text) for word in line])
        assert not repeated(raised.value)
    told = capsys.readouterr()
    assert HIDDEN not in told.out + told.err
    assert [*tmp_path.iterdir()] == []


def test_texts_for_the_model_may_hold_addresses(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        invoke(
            ["score", *FAKE, "--context", f"See {SECRET[0]}", "--choice", " a", "--choice", " b"]
        )
        == 0
    )


@pytest.mark.parametrize("text", SECRET)
def test_python_refuses_it_without_repeating_it(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "d.jsonl").write_text('{"question": "Q", "choices": ["a", "b"], "answer": 0}\n')
    known: dict[str, Any] = {
        "model": "fake:hash",
        "data": "d.jsonl",
        "protocols": ["options/cloze:sum"],
        "out": "run",
    }
    calls = [
        lambda: choicewise.load_model(text),
        lambda: choicewise.open_dataset(text),
        lambda: choicewise.evaluate(**known | {"model": text}),
        lambda: choicewise.evaluate(**known | {"data": text}),
        lambda: choicewise.evaluate(**known | {"out": text}),
        lambda: job_of({"models": [text], "protocols": ["mmlu"]}),
        lambda: job_of({"models": [{"name": "fake:hash", "adapter": text}], "protocols": ["mmlu"]}),
        lambda: job_of({"models": text, "protocols": ["mmlu"]}),
        lambda: job_of(
            {"models": ["fake:hash"], "protocols": ["options"], "data": [{"path": text}]}
        ),
        lambda: sweep(Job(models=(ModelChoice(name=text),), protocols=("mmlu/original",)), "all"),
        lambda: sweep(Job(data=(DataChoice(path=text),), protocols=("options/cloze",)), "all"),
    ]
    for call in calls:
        with pytest.raises(ChoicewiseError, match=REFUSED) as raised:
            call()
        assert not repeated(raised.value)
    assert [each.name for each in tmp_path.iterdir()] == ["d.jsonl"]


def test_an_unknown_option_for_a_key_is_not_repeated(tmp_path: Path) -> None:
    """There is no option for keys: somebody who tries one sees the option in the message, and not the key."""
    for words in ([f"--api-key={HIDDEN}"], ["--api-key", HIDDEN]):
        told = commands.choicewise(*RUN, *FAKE, "--out", tmp_path / "run", *words, code=2)
        assert "--api-key" in told.stderr
        assert HIDDEN not in told.stdout + told.stderr
