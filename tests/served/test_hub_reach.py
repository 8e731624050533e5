"""A Hub out of reach: it is asked once, quickly, and nothing that its package would say reaches users."""

import re
import socket
import subprocess
import sys
import time
from pathlib import Path
from threading import Event

import pytest

from choicewise.data import hub as hub_reach
from choicewise.data.benchmarks import open_benchmark
from choicewise.data.hub import DATASET, HubName, explained
from choicewise.data.open import open_dataset
from choicewise.errors import DataError, MissingData, ModelError
from choicewise.models.load import load_model
from tests.helpers.hub_files import MODEL, jsonl, parquet
from tests.helpers.hub_server import PATIENCE, Hub

NOWHERE = "http://127.0.0.1:1"


@pytest.fixture
def hub(hub: Hub) -> Hub:
    hub.add("datasets", "org/sums", {"test.jsonl": jsonl(1), "data/train-0.parquet": parquet(2)})
    hub.add("models", "merrow/byte", MODEL)
    return hub


def cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on nobody answers, and whoever waits to try again fails."""
    from huggingface_hub import constants, hf_api

    def wait(seconds: float) -> None:
        raise AssertionError(f"waits {seconds} s for a Hub that is out of reach")

    monkeypatch.setattr(constants, "ENDPOINT", NOWHERE)
    monkeypatch.setattr(hf_api.api, "endpoint", NOWHERE)
    monkeypatch.setattr("time.sleep", wait)


def test_nobody_waits_for_a_hub_out_of_reach(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_off(monkeypatch)
    commit = "0" * 40
    for name in ("org/sums", f"org/sums@{commit}", "org/more:config"):
        with pytest.raises(DataError, match=f"{NOWHERE} can't be reached, and it is not"):
            open_dataset(name)
    with pytest.raises(ModelError, match=f"{NOWHERE} can't be reached"):
        load_model("merrow/byte")
    with pytest.raises(MissingData, match=f"{NOWHERE} can't be reached"):
        open_benchmark("arc-easy")


def test_it_is_asked_once(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(hub_reach, "_silence_now", lambda endpoint: asked.append(endpoint) or hub_reach.REFUSED)
    for name in ("org/sums", "org/more", "org/sums"):
        with pytest.raises(DataError, match="can't be reached"):
            open_dataset(name)
    assert len(asked) == 1
    assert hub.requests == []


def test_it_is_asked_again_after_a_while(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = hub.endpoint
    hub_reach._answers[endpoint] = time.monotonic(), "sleeps"
    assert hub_reach.out_of_reach() == "sleeps"
    hub_reach._answers[endpoint] = time.monotonic() - hub_reach.REMEMBERED - 1, "sleeps"
    assert hub_reach.out_of_reach() == ""
    assert [each.method for each in hub.requests] == ["HEAD"]


def test_a_name_that_takes_for_ever_to_resolve_is_given_up(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    never = Event()
    monkeypatch.setattr(hub_reach, "_silence_now", lambda endpoint: never.wait())
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_ETAG_TIMEOUT", 0.01)
    assert hub_reach.out_of_reach() == "did not answer within 0.01 s (HF_HUB_ETAG_TIMEOUT sets another time)"
    never.set()


def test_a_slow_hub_is_told_from_one_out_of_reach(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
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
        assert hub_reach._silence_now(endpoint) == hub_reach.out_of_reach()


def test_the_hub_that_stops_answering_later_is_slow_as_well(hub: Hub) -> None:
    import httpx2

    name = HubName("org/sums")
    slow, refused = (explained(kind("no"), name, DATASET).message for kind in (httpx2.ReadTimeout, httpx2.ConnectError))
    assert f"{hub.endpoint} did not answer within {PATIENCE} s" in slow
    assert f"{hub.endpoint} can't be reached" in refused


def test_what_is_in_the_cache_is_used_without_the_hub(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset, model = open_dataset("org/sums"), load_model("merrow/byte")
    hub.requests.clear()
    monkeypatch.setattr(hub_reach, "_answers", {})
    assert open_dataset(dataset.source).source == dataset.source
    assert hub.requests == [], "what is there by its commit does not even ask"
    cut_off(monkeypatch)
    assert open_dataset("org/sums").source == dataset.source
    assert load_model("merrow/byte").source == model.source


def test_the_token_is_not_sent_to_ask_whether_it_answers(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_notforanybody")
    assert hub_reach.out_of_reach() == ""
    assert "authorization" not in hub.requests[0].headers


@pytest.mark.costly("a command as a process")
def test_the_command_line_says_it_in_its_own_words(tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub")
    words = ["run", "--model", "fake:hash", "--protocol", "leaderboard/2023-06", "--out", str(tmp_path / "run")]
    environment = {"HF_ENDPOINT": NOWHERE, "HF_HOME": str(tmp_path), "NO_PROXY": "*", "PATH": "/usr/bin"}
    environment["PYTHONPATH"] = str(Path(hub_reach.__file__).parents[2])
    ended = subprocess.run(
        [sys.executable, "-m", "choicewise", *words], env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 3
    assert ended.stderr.startswith("error: the questions of 4 benchmarks are nowhere\n")
    assert "thrown while" not in ended.stderr
    assert "Retry" not in ended.stderr
