"""Sweeps of what is on the Hub: repeated after a branch moved they ask again, and else nothing."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from choicewise.running.job import ModelChoice, job_of, sources_of
from choicewise.running.sweep import sweep
from tests.helpers.hub_server import Hub, hub_of_this_process
from tests.served.test_hub_data import jsonl


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    monkeypatch.chdir(tmp_path)
    with hub_of_this_process(monkeypatch, tmp_path / "home") as server:
        yield server


@pytest.mark.costly("a Hub on loopback")
def test_a_branch_that_moved_is_noticed(hub: Hub, tmp_path: Path) -> None:
    repository = hub.add("datasets", "org/sums", {"test.jsonl": jsonl(1)})
    asked = job_of({"models": ["fake:hash"], "protocols": ["options/cloze"], "data": ["org/sums"]})
    (first,) = sweep(asked, tmp_path / "out").cells
    (same,) = sweep(asked, tmp_path / "out").cells
    assert first.done
    assert same == first
    repository.commit({"test.jsonl": jsonl(2)})
    (moved,) = sweep(asked, tmp_path / "out").cells
    assert moved.asked != first.asked
    assert "org/sums" in moved.failure


def test_a_model_is_another_after_its_branch_moved(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    repository = hub.add("models", "merrow/byte", {"config.json": "{}"})
    model, pinned = ModelChoice(name="merrow/byte"), ModelChoice(name=f"merrow/byte@{repository.refs['main']}")
    before, pinned_before = model.state, pinned.state
    assert model.state == before
    repository.commit({"config.json": "[]"})
    assert model.state != before
    after = model.state
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    hub.requests.clear()
    assert (model.state, pinned.state) == (after, pinned_before)
    assert hub.requests == []


def test_what_is_nowhere_has_a_state_as_well(hub: Hub) -> None:
    assert ModelChoice(name="no/where").state == ModelChoice(name="no/where").state
    (source,) = sources_of(job_of({"protocols": ["options/cloze"], "data": ["no/where"]}))
    assert source.asked
