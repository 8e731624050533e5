"""All that goes wrong between here and the Hub: what users read, and what is never shown to anybody. A Hub out of reach
is asked once, quickly."""

import logging
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest

from choicewise import evaluate, load_model, open_dataset, open_run
from choicewise.data import hub as hub_access
from choicewise.data.benchmarks import open_benchmark
from choicewise.data.hub import DATASET, HubName, explained
from choicewise.errors import DataError, MissingData, ModelError, StoreError
from choicewise.results.summary import keep_summary
from tests.helpers import hub_server
from tests.helpers.hub_server import MODEL, PATIENCE, Hub, jsonl, parquet

constants = pytest.importorskip("huggingface_hub.constants")
SECRET = "hf_notforanybody"


@pytest.fixture
def hub(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> Hub:
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # huggingface_hub waits between tries
    hub.add("datasets", "org/sums", {"test.jsonl": jsonl(1), "data/train-0.parquet": parquet(2)})
    hub.add("models", "merrow/byte", MODEL)
    return hub


OPEN: dict[str, Callable[[str], object]] = {"models": load_model, "datasets": open_dataset}
ERRORS = {"models": ModelError, "datasets": DataError}
NAMES = {"models": "merrow/byte", "datasets": "org/sums"}


def refused(kind: str, name: str) -> str:
    """What users read when ``name`` is opened."""
    with pytest.raises(ERRORS[kind]) as raised:
        OPEN[kind](name)
    assert raised.value.__cause__ is None
    return str(raised.value)


@pytest.mark.parametrize("kind", ["models", "datasets"])
def test_each_refusal_says_what_to_do(hub: Hub, kind: str) -> None:
    name, page = NAMES[kind], {"models": "merrow/byte", "datasets": "datasets/org/sums"}[kind]
    assert re.search("folder of that name .* no such", refused(kind, "no/where"))
    assert f"has no revision v9; {hub.endpoint}/{page}/tree/main lists" in refused(
        kind, f"{name}@v9"
    )
    hub.repositories[kind, name].gated = True
    assert f"ask for access at {hub.endpoint}/{page}, then run `hf auth login`" in refused(
        kind, name
    )


def test_a_token_that_opens_is_used(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.repositories["models", "merrow/byte"].gated = True
    monkeypatch.setenv("HF_TOKEN", "hf_opens")
    assert load_model("merrow/byte").name == "merrow/byte"


@pytest.mark.parametrize("kind", ["models", "datasets"])
def test_without_network_the_cache_is_used_or_named(
    hub: Hub, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = NAMES[kind]
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "HF_HUB_OFFLINE forbids" in refused(kind, name)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    before = OPEN[kind](name)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    hub.requests.clear()
    assert getattr(OPEN[kind](name), "source", "") == getattr(before, "source", None)
    assert hub.requests == []


def test_a_configuration_that_is_not_in_the_cache_needs_the_network(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add("datasets", "org/two", {"a/test-0.parquet": parquet(1), "b/test-0.parquet": parquet(2)})
    open_dataset("org/two:a")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    open_dataset("org/two:a")
    assert "HF_HUB_OFFLINE forbids" in refused("datasets", "org/two:b")


def test_a_cache_without_listings_serves_models(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import _tree_cache

    for kind, name in NAMES.items():
        OPEN[kind](name)
    for listing in tmp_path.glob("home/hub/*/trees/*"):
        listing.unlink()
    monkeypatch.setattr(_tree_cache, "_IN_MEMORY_TREE_CACHE", {})
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert load_model("merrow/byte").name == "merrow/byte"
    assert "open it once" in refused("datasets", "org/sums")


def test_a_cache_that_cannot_be_written_is_named(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add("datasets", "org/sums", {"test.jsonl": jsonl(1), "README.md": "words"})
    (tmp_path / "taken").write_text("")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "taken"))
    assert re.search("taken/.* read: .*; set HF_HOME", refused("datasets", "org/sums"))


def test_a_download_that_breaks_off_goes_on_where_it_was(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        constants, "DOWNLOAD_CHUNK_SIZE", 1 << 16
    )  # what is kept of a download is a number of these
    hub.broken = {"model.safetensors": 2}
    assert load_model("merrow/byte").digest
    ranges = [each.headers["range"] for each in hub.requests if "range" in each.headers]
    assert len(ranges) == 2
    assert int(ranges[1][6:-1]) > int(ranges[0][6:-1]) > 0


def test_a_download_that_never_ends_is_given_up_and_can_be_repeated(hub: Hub) -> None:
    hub.broken = {"model.safetensors": 10**6}
    assert "run the same again" in refused("models", "merrow/byte")
    hub.broken = {}
    assert load_model("merrow/byte").digest


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_hub_is_asked_again(hub: Hub, monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(hub_access.time, "sleep", pauses.append)
    hub.busy = [(status, "7"), (status, "")]
    open_dataset("org/sums")
    assert pauses[:2] == [7, 2]
    hub.busy = [(status, "3600")]
    asked = len(pauses)
    if status == 429:  # what is in the cache is used where the Hub fails
        assert "refuses so many requests" in refused("datasets", "org/sums")
        assert len(pauses) == asked


def test_a_file_that_is_listed_and_not_there(hub: Hub) -> None:
    hub.lost = {"test.jsonl"}
    assert "that it lists" in refused("datasets", "org/sums")


def test_a_moved_branch_does_not_go_on_with_other_data(hub: Hub, tmp_path: Path) -> None:
    def run() -> None:
        evaluate(
            model="fake:hash", data="org/sums", protocols=["options/cloze"], out=tmp_path / "run"
        )

    hub.add("datasets", "org/sums", {"test.jsonl": jsonl(1, 2)})
    repository = hub.repositories["datasets", "org/sums"]
    first = repository.refs["main"]
    run()
    repository.commit({"test.jsonl": jsonl(1, 2), "README.md": "words"})
    run()
    second = repository.commit({"test.jsonl": jsonl(1, 3)})
    with pytest.raises(
        StoreError,
        match=f"another dataset.*org/sums@{first} .* org/sums@{second}",
    ):
        run()
    rows = [row.as_json() for row in keep_summary(open_run(tmp_path / "run")).rows]
    assert {row["dataset_source"] for row in rows} == {f"org/sums@{first}"}


def test_the_token_goes_to_the_hub_and_nowhere_else(
    hub: Hub,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("HF_TOKEN", SECRET)
    load_model("merrow/byte")
    evaluate(model="fake:hash", data="org/sums", protocols=["options/cloze"], out=tmp_path / "run")
    messages = [refused("models", "merrow/byte@v9"), refused("datasets", "no/where")]
    hub.broken = {"test.jsonl": 10**6}
    hub.add("datasets", "org/more", {"test.jsonl": jsonl(1)})
    messages.append(refused("datasets", "org/more"))
    sent = {host: [each for each in hub.requests if each.host == host] for host in ("hub", "other")}
    whether_there, *_ = sent["hub"]
    assert "authorization" not in whether_there.headers
    asked = [each for each in sent["hub"] if "org/" in each.path or "merrow/" in each.path]
    assert asked, "what else its package asks, once a process, is about no repository"
    assert all(each.headers.get("authorization") == f"Bearer {SECRET}" for each in asked)
    assert sent["other"]
    assert not any("authorization" in each.headers for each in sent["other"])
    output = capfd.readouterr()
    for text in (*messages, output.out, output.err, caplog.text):
        assert [word for word in (SECRET, "SIGNED") if word in text] == []
    for file in tmp_path.rglob("*"):
        assert not file.is_file() or SECRET.encode() not in file.read_bytes()


@pytest.mark.costly("a process that opens data of the Hub")
def test_a_hub_that_is_down_is_not_told_in_the_words_of_its_package(
    hub: Hub, tmp_path: Path
) -> None:
    """They repeat what the Hub said.  In a new process, as the package sets up its log at some first use."""
    open_dataset("org/sums")
    hub.busy += [(500, "0")] * 99
    hub.echoing = True
    code = "from choicewise.data.open import open_dataset; open_dataset('org/sums')"
    environment = {
        **os.environ,
        **hub_server.environment(hub, tmp_path / "home"),
        "HF_TOKEN": SECRET,
    }
    ended = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def test_progress_hears_of_every_byte_and_nothing_is_shown(
    hub: Hub, capfd: pytest.CaptureFixture[str]
) -> None:
    heard: list[tuple[str, int, int]] = []
    hub.broken = {"model.safetensors": 1}
    load_model("merrow/byte", progress=lambda *each: heard.append(each))
    names, done, total = zip(*heard, strict=True)
    assert ({*names}, [*done]) == ({"merrow/byte"}, sorted(done))
    assert done[-1] == total[-1] >= len(MODEL["model.safetensors"])
    assert capfd.readouterr() == ("", "")


def test_without_the_package_the_line_that_installs_it(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_access, "find_spec", lambda name: None)
    assert "pip install --constraint constraints.txt '.[hub]'" in refused("datasets", "org/sums")


NOWHERE, SECRET_NOWHERE = "http://127.0.0.1:1", "http://user:password@127.0.0.1:1"


def cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on nobody answers, and whoever waits to try again fails."""

    def wait(seconds: float) -> None:
        raise AssertionError(f"waits {seconds} s for a Hub that is out of reach")

    monkeypatch.setattr(constants, "ENDPOINT", SECRET_NOWHERE)
    monkeypatch.setattr("huggingface_hub.hf_api.api.endpoint", SECRET_NOWHERE)
    monkeypatch.setattr("time.sleep", wait)


def test_nobody_waits_for_a_hub_out_of_reach(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_off(monkeypatch)
    commit = "0" * 40
    for name in ("org/sums", f"org/sums@{commit}", "org/more:config"):
        message = refused("datasets", name)
        assert f"{NOWHERE} can't be reached" in message
        assert "password" not in message
    with pytest.raises(ModelError, match=f"{NOWHERE} can't be reached"):
        load_model("merrow/byte")
    with pytest.raises(MissingData, match=f"{NOWHERE} can't be reached"):
        open_benchmark("arc-easy")


def test_it_is_asked_once_and_again_after_a_while(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    with monkeypatch.context() as refusing:
        refusing.setattr(
            hub_access,
            "_silence_now",
            lambda endpoint: asked.append(endpoint) or hub_access.REFUSED,
        )
        for name in ("org/sums", "org/more", "org/sums"):
            with pytest.raises(DataError, match="can't be reached"):
                open_dataset(name)
    assert (len(asked), hub.requests) == (1, [])
    endpoint = hub.endpoint
    hub_access._answers[endpoint] = time.monotonic(), "sleeps"
    assert hub_access.out_of_reach() == "sleeps"
    hub_access._answers[endpoint] = time.monotonic() - hub_access.REMEMBERED - 1, "sleeps"
    assert (hub_access.out_of_reach(), [each.method for each in hub.requests]) == ("", ["HEAD"])


def test_a_name_that_takes_for_ever_to_resolve_is_given_up(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    never = Event()
    monkeypatch.setattr(hub_access, "_silence_now", lambda endpoint: never.wait())
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_ETAG_TIMEOUT", 0.01)
    assert (
        hub_access.out_of_reach()
        == "did not answer within 0.01 s (HF_HUB_ETAG_TIMEOUT sets another time)"
    )
    never.set()


def test_a_slow_hub_is_told_from_one_out_of_reach(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connections wait in the queue of a socket that nobody accepts from."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        endpoint = f"http://127.0.0.1:{listener.getsockname()[1]}"
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", endpoint)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_ETAG_TIMEOUT", 0.1)
        slow = f"{endpoint} did not answer within 0.1 s (HF_HUB_ETAG_TIMEOUT sets another time), and it is not"
        with pytest.raises(DataError, match=re.escape(slow)):
            open_dataset("org/sums")
        with pytest.raises(MissingData, match=re.escape(slow)):
            open_benchmark("arc-easy")
        assert hub_access._silence_now(endpoint) == hub_access.out_of_reach()


def test_the_hub_that_stops_answering_later_is_slow_as_well(hub: Hub) -> None:
    import httpx2

    name = HubName("org/sums")
    slow, refused = (
        explained(kind("no"), name, DATASET).message
        for kind in (httpx2.ReadTimeout, httpx2.ConnectError)
    )
    assert f"{hub.endpoint} did not answer within {PATIENCE} s" in slow
    assert f"{hub.endpoint} can't be reached" in refused


def test_what_is_in_the_cache_is_used_without_the_hub(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset, model = open_dataset("org/sums"), load_model("merrow/byte")
    hub.requests.clear()
    monkeypatch.setattr(hub_access, "_answers", {})
    assert open_dataset(dataset.source).source == dataset.source
    assert hub.requests == [], "what is there by its commit does not even ask"
    cut_off(monkeypatch)
    assert (open_dataset("org/sums").source, load_model("merrow/byte").source) == (
        dataset.source,
        model.source,
    )


@pytest.mark.costly("a command as a process")
def test_the_command_line_says_it_in_its_own_words(tmp_path: Path) -> None:
    words = [
        "run",
        "--model",
        "fake:hash",
        "--protocol",
        "leaderboard/2023-06",
        "--out",
        str(tmp_path / "run"),
    ]
    environment = {
        "HF_ENDPOINT": NOWHERE,
        "HF_HOME": str(tmp_path),
        "NO_PROXY": "*",
        "PATH": "/usr/bin",
    }
    environment["PYTHONPATH"] = str(Path(hub_access.__file__).parents[2])
    ended = subprocess.run(
        [sys.executable, "-m", "choicewise", *words],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 3
    assert ended.stderr.startswith("error: the data of 4 benchmarks are missing\n")
    assert [word for word in ("thrown while", "Retry") if word in ended.stderr] == []
