"""A model behind a server as users meet it: options, check, run, resume, refusals, cost; against a server of ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from choicewise.cli.commands import invoke
from choicewise.errors import ModelError, StoreError, UsageError
from choicewise.models.load import load_model
from choicewise.records import ServerRecord
from choicewise.results.run import open_run
from choicewise.running.evaluate import evaluate
from choicewise.running.job import job_of
from choicewise.running.work import servable
from tests.helpers.misbehaving_server import Server, serving
from tests.helpers.served_model import CHAT_ONLY, TOP_ONLY, VLLM, ServedModel

pytestmark = [pytest.mark.usefixtures("no_pauses"), pytest.mark.costly("servers and boards on loopback")]

DATA, LETTER, CLOZE = "bundled:merrowick", "mmlu/original-pr13", "mmlu/cloze:sum"
ASKED = ["--data", DATA, "--protocol", LETTER, "--limit", "1"]
LOCAL = {"--dtype": "float32", "--device": "cpu", "--adapter": "adapter", "--batch-tokens": "8"}


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(VLLM) as running:
        yield running


def cli(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[str, str]:
    """stdout and stderr of a command that ends well."""
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        assert invoke([*map(str, words)]) == 0
    return capsys.readouterr()


def test_a_run_at_a_server_gives_the_numbers_of_the_model(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = ("--model", server.address, "--tokenizer", "bytes")
    out, told = cli(
        capsys, "run", *model, *ASKED, "--protocol", "options/embedding", "--out", tmp_path / "run", "--json"
    )
    (served,) = json.loads(out)
    assert "hash behind vllm 0.32.0 is asked by chosen next tokens, " in told
    assert "note: protocol options/embedding is refused: hash does not support Cosine" in told
    assert " requests; the server computed " in told
    out, _ = cli(capsys, "run", "--model", "fake:hash", *ASKED, "--out", tmp_path / "here", "--json")
    (here,) = json.loads(out)
    assert {name: served[name] for name in ("value", "n", "missing", "signature")} == {
        name: here[name] for name in ("value", "n", "missing", "signature")
    }
    manifest = open_run(tmp_path / "run").manifest
    assert manifest.server is not None
    assert (manifest.server.model, manifest.server.root, manifest.server.changed) == ("hash", "/models/hash", "")
    assert manifest.server.probes
    assert manifest.engine.spent is not None
    assert manifest.engine.spent.requests > 0
    before = len(server.requests)
    cli(capsys, "run", *model, *ASKED, "--out", tmp_path / "run")
    assert not any("festival" in str(each.body) for each in server.requests[before:])


def test_a_plan_counts_requests_without_the_answers(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, _ = cli(capsys, "run", "--model", server.address, "--tokenizer", "bytes", *ASKED, "--dry-run", "--json")
    planned = json.loads(out)
    assert planned["refused"] == {}
    assert evaluate(
        model=load_model(server.address, tokenizer="bytes"), data=DATA, protocols=[LETTER], limit=1, out=tmp_path
    )
    spent = open_run(tmp_path).manifest.engine.spent
    assert spent is not None
    assert planned["sent"] == spent.requests


def test_check_shows_what_was_probed_and_what_follows(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = cli(capsys, "check", "--model", server.address, "--tokenizer", "bytes")
    assert "its tokens are the server's, which puts tokens [256] before a text" in out
    assert "chosen next tokens" in out
    assert "served" in out
    measured = json.loads(cli(capsys, "check", "--model", server.address, "--tokenizer", "bytes", "--json")[0])
    assert LETTER in measured["protocols"]["served"]
    assert "Cosine" in measured["protocols"]["refused"]["options/embedding"]
    assert measured["server"]["software"] == "vllm 0.32.0"


def test_what_a_poorer_server_can_not_be_asked_is_refused() -> None:
    with serving(TOP_ONLY) as running:
        judged = servable(load_model(running.address, tokenizer="bytes"))
        assert CLOZE in judged.refused
        assert LETTER in judged.served
    with serving(CHAT_ONLY) as running:
        judged = servable(load_model(running.address))
        assert judged.served == ()
        assert "mmlu/helm" in judged.chats
        assert CLOZE not in judged.chats


def test_a_chat_endpoint_is_asked_and_its_messages_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(CHAT_ONLY) as running:
        asked = ["--data", DATA, "--limit", "1", "--protocol", "mmlu/helm"]
        cli(capsys, "run", "--model", running.address, *asked, "--chat", "message", "--out", tmp_path)
        sent = [body["messages"] for body in running.posted("/v1/chat/completions")]
        asked[-1] = "mmlu/helm+message"
        shown = [
            json.loads(line) for line in cli(capsys, "prompts", "--model", running.address, *asked)[0].splitlines()
        ]
    assert open_run(tmp_path).protocols.keys() == {"mmlu/helm+message"}
    messages = [[[each["role"], each["content"]] for each in one] for one in sent]
    assert len(shown) == 7
    assert all(json.loads(line["context"]) in messages for line in shown)


def test_another_model_of_the_same_name_is_refused_on_resume(server: Server, tmp_path: Path) -> None:
    evaluate(model=load_model(server.address, tokenizer="bytes"), data=DATA, protocols=[LETTER], limit=1, out=tmp_path)
    server.model = ServedModel("hash", VLLM, seed=1)
    other = load_model(server.address, tokenizer="bytes")
    with pytest.raises(StoreError, match=f"the server answers otherwise than when {tmp_path} was begun") as error:
        evaluate(model=other, data=DATA, protocols=[LETTER, CLOZE], limit=1, out=tmp_path)
    assert "nats then" in str(error.value)


def test_a_model_that_changes_during_the_run_is_noted(server: Server, tmp_path: Path) -> None:
    model = load_model(server.address, tokenizer="bytes")
    model.check(0)

    def change(done: int, total: int) -> None:
        server.model = ServedModel("hash", VLLM, seed=1)

    with pytest.warns(UserWarning, match="the server answers otherwise than at the beginning of the run"):
        run = evaluate(model=model, data=DATA, protocols=[LETTER], limit=1, out=tmp_path, progress=change)
    assert run.manifest.complete
    assert run.manifest.server is not None
    assert "nats then" in run.manifest.server.changed


def test_differences_are_those_beyond_the_noise() -> None:
    before = ServerRecord("m", "echo", probes={"a": -1.0, "b": -2.0}, noise=0.001)
    assert before.differences(before) == []
    assert before.differences(replace(before, probes={"a": -1.009}, software="newer")) == []
    assert len(before.differences(replace(before, probes={"a": -1.02}))) == 1
    assert before.differences(replace(before, probes={"a": -1.02}, noise=0.01)) == []
    assert len(before.differences(replace(before, probes={"a": float("nan")}))) == 1
    assert before.differences(replace(before, route="top", root="/r")) == [
        "its weights: unnamed then, /r now",
        "the way of asking: echo then, top now",
    ]


@pytest.mark.parametrize("option", LOCAL)
def test_options_of_models_that_run_here_are_refused_for_servers(option: str) -> None:
    words = ["run", "--model", "server:http://127.0.0.1:9/v1", *ASKED, "--out", "nowhere", option, LOCAL[option]]
    with pytest.raises(UsageError, match=f"is computed by its server and has no use for {option}"):
        invoke(words)


@pytest.mark.parametrize("model", ["fake:hash", "bundled:merrow-bpe-2048"])
def test_a_tokenizer_is_named_for_servers_alone(model: str) -> None:
    for verb in (["run", *ASKED, "--out", "nowhere"], ["check"], ["score", "--context", "a", "--choice", "b"]):
        with pytest.raises(UsageError, match="has no use for --tokenizer"):
            invoke([verb[0], "--model", model, "--tokenizer", "bytes", *verb[1:]])
    with pytest.raises(UsageError, match="has no use for tokenizer"):
        _ = job_of({"models": [{"name": "somewhere", "tokenizer": "bytes"}], "protocols": [LETTER]}).choices


def test_a_plan_of_several_models_gives_each_its_own_options() -> None:
    table: dict[str, Any] = {"protocols": [LETTER], "dtype": "float32", "tokenizer": "bytes", "window": 9}
    address = "server:http://127.0.0.1:9/v1#org/model"
    models = job_of({**table, "models": ["folder", "fake:hash", address]}).choices
    assert [model.options for model in models] == [
        {"dtype": "float32", "window": 9},
        {},
        {"window": 9, "tokenizer": "bytes"},
    ]
    assert models[-1].folder == "org-model"
    for useless in ({"dtype": "float32"}, {"revisions": ["main"]}):
        with pytest.raises(UsageError, match=f"has no use for {next(iter(useless))}"):
            _ = job_of({**table, "models": [{"name": address, **useless}]}).choices


def test_a_password_in_an_address_is_refused_before_it_is_written_anywhere(tmp_path: Path) -> None:
    address = "server:http://me:geheim@127.0.0.1:9/v1"
    for words in (["run", *ASKED, "--model", address], ["sweep", *ASKED, "--model", address]):
        with pytest.raises((ModelError, UsageError)) as error:
            invoke([*words, "--out", str(tmp_path / "out")])
        assert "geheim" not in str(error.value)
    assert not [*tmp_path.iterdir()]


def test_nothing_for_servers_is_loaded_before_one_is_asked() -> None:
    code = (
        "import sys, choicewise\n"
        "from choicewise.cli.commands import invoke\n"
        "invoke(['--help'])\n"
        "print(sorted({'httpx2', 'stamina', 'tokenizers'} & set(sys.modules)), file=sys.stderr)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ}, check=True)
    assert ended.stderr.splitlines()[-1] == "[]"


def test_without_the_extra_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("choicewise.models.load.find_spec", lambda name: None if name == "httpx2" else object())
    with pytest.raises(ModelError, match=r"pip install 'choicewise\[server\]'"):
        load_model("server:http://127.0.0.1:9/v1#m")
