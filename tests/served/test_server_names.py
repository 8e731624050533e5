"""What a server calls its model: another name of it is accepted once, another model never."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from choicewise.cli.commands import invoke
from choicewise.errors import ModelError, StoreError
from choicewise.models.server.address import ServerAddress
from choicewise.models.server.faults import ServerFailed
from choicewise.models.server.http import Client
from choicewise.models.server.probe import ServerFacts, other_name, read_server_facts
from choicewise.models.server.server_model import ServerModel
from choicewise.running.evaluate import evaluate
from tests.helpers.misbehaving_server import Server, serving
from tests.helpers.served_model import VLLM
from tests.helpers.server_faults import other_model

pytestmark = pytest.mark.costly("servers and boards on loopback")

DATED = "hash-2026-01-01"
LETTER = "mmlu/original-pr13"


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(VLLM) as running:
        yield running


def run_at(server: Server, out: Path) -> None:
    model = ServerModel(ServerAddress.parse(server.address), tokenizer="bytes")
    evaluate(model=model, data="bundled:merrowick", protocols=[LETTER], limit=2, out=out)


def test_a_dated_name_is_the_model_that_was_asked_for(server: Server, tmp_path: Path) -> None:
    server.always(other_model(DATED))
    model = ServerModel(ServerAddress.parse(server.address), tokenizer="bytes")
    assert model.record.named == DATED
    assert any(DATED in note for note in model.notes)
    run = evaluate(model=model, data="bundled:merrowick", protocols=[LETTER], limit=2, out=tmp_path / "run")
    assert run.rows()[0].missing == 0
    assert run.manifest.server is not None
    assert (run.manifest.server.named, run.manifest.server.changed) == (DATED, "")


def test_another_name_afterwards_stops_the_run(server: Server, tmp_path: Path) -> None:
    server.always(other_model(DATED))
    model = ServerModel(ServerAddress.parse(server.address), tokenizer="bytes")
    assert model.chosen.score is not None
    server.always(other_model("hash-2026-02-02"))
    with pytest.raises(ServerFailed, match="is of model 'hash-2026-02-02', not 'hash-2026-01-01'"):
        evaluate(model=model, data="bundled:merrowick", protocols=[LETTER], limit=2, out=tmp_path / "run")


def test_a_run_is_not_continued_with_another_version(server: Server, tmp_path: Path) -> None:
    server.always(other_model(DATED))
    run_at(server, tmp_path / "run")
    server.always(other_model("hash-2026-02-02"))
    with pytest.raises(StoreError) as refused:
        run_at(server, tmp_path / "run")
    assert "the name of the model in answers: hash-2026-01-01 then, hash-2026-02-02 now" in refused.value.problems


def test_the_same_name_keeps_the_digest_and_a_version_has_its_own(server: Server) -> None:
    plain = ServerModel(ServerAddress.parse(server.address), tokenizer="bytes")
    assert plain.record.named == ""
    digest = plain.digest
    server.always(other_model(DATED))
    dated = ServerModel(ServerAddress.parse(server.address), tokenizer="bytes")
    assert dated.digest != digest


@pytest.mark.parametrize(
    ("others", "named", "expected"),
    [
        ({}, None, ""),
        ({}, "m", ""),
        ({}, "something else", "something else"),
        ({"m-2026": ""}, "m-2026", "m-2026"),
        ({"alias": "/weights"}, "alias", "alias"),
    ],
)
def test_another_name_of_the_model(others: dict[str, str], named: str | None, expected: str) -> None:
    assert other_name(ServerFacts("m", "/weights", others=others), named) == expected


@pytest.mark.parametrize("root", ["", "/others"])
def test_another_model_that_the_server_lists_is_refused(root: str) -> None:
    with pytest.raises(ModelError, match="answers with its model 'other' when it is asked for 'm'"):
        other_name(ServerFacts("m", "/weights", others={"other": root}), "other")


def test_an_address_without_v1_is_told_of_it(server: Server) -> None:
    with pytest.raises(ModelError, match=f"http://127.0.0.1:{server.port}/v1 has: name that address"):
        invoke(["check", "--model", f"server:http://127.0.0.1:{server.port}/", "--tokenizer", "bytes"])


def test_a_run_goes_on_at_another_port_and_keeps_the_new_address(tmp_path: Path) -> None:
    words = ["--tokenizer", "bytes", "--data", "bundled:merrowick", "--protocol", LETTER, "--limit", "1"]
    for _ in range(2):
        with serving(VLLM) as server:
            assert invoke(["run", "--model", server.address, *words, "--out", str(tmp_path / "run")]) == 0
            address = server.address
    from choicewise.results.run import open_run

    assert open_run(tmp_path / "run").manifest.job["models"][0]["name"] == address


def test_others_are_those_that_are_listed(server: Server) -> None:
    with Client(ServerAddress.parse(server.address)) as client:
        assert read_server_facts(client, "hash").others == {}
