"""A model behind a server as users meet it: options, check, run, resume, refusals, cost; against a server of ours."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from choicewise import Run, evaluate, load_model, open_run
from choicewise.bundled import BENCHMARK
from choicewise.cli.commands import invoke
from choicewise.errors import ModelError, StoreError, UsageError
from choicewise.extensions.endpoints.check import servable
from choicewise.extensions.endpoints.server.address import ServerAddress
from choicewise.extensions.endpoints.server.faults import ServerFailed
from choicewise.extensions.endpoints.server.http import Client
from choicewise.extensions.endpoints.server.probe import ServerFacts, other_name, read_server_facts
from choicewise.extensions.endpoints.server.server_model import ServerModel
from choicewise.records import ServerRecord
from choicewise.running.job import job_of
from tests.helpers.commands import CommandResult, choicewise
from tests.helpers.messages import Gist
from tests.helpers.misbehaving_server import Server, serving
from tests.helpers.models_at_servers import model_at
from tests.helpers.served_model import CHAT_ONLY, TOP_ONLY, VLLM, ServedModel
from tests.helpers.server_faults import other_model
from tests.helpers.thinking import quiz, reads

pytestmark = pytest.mark.usefixtures("no_pauses")

DATA, LETTER, CLOZE = "bundled:merrowick", "mmlu/original-pr13", "mmlu/cloze:sum"
ASKED = ["--data", DATA, "--protocol", LETTER, "--limit", "1", "--subject", "festivals"]
LOCAL = {"--dtype": "float32", "--device": "cpu", "--adapter": "adapter", "--batch-tokens": "8"}


def at(server: Server, verb: str, *words: object) -> CommandResult:
    """A command about the model of ``server``, which ends well."""
    return choicewise(verb, "--model", server.address, "--tokenizer", "bytes", *words, code=0)


def run_at(model: Any, out: Path, protocols: tuple[str, ...] = (LETTER,), **more: Any) -> Run:
    return evaluate(
        model=model,
        data=DATA,
        protocols=[*protocols],
        limit=1,
        subjects=["festivals"],
        out=out,
        **more,
    )


@pytest.mark.costly("runs at a server that is probed")
def test_a_run_at_a_server_gives_the_numbers_of_the_model(server: Server, tmp_path: Path) -> None:
    told = at(
        server,
        "run",
        *ASKED,
        "--protocol",
        "options/embedding",
        "--out",
        tmp_path / "run",
        "--json",
    )
    (served,) = json.loads(told.stdout)
    assert "vllm 0.32.0, model hash, " in told.stderr
    assert "options/embedding is refused: " in told.stderr
    assert re.search(r"requests.* of [0-9,]+ tokens: .* × fewer", told.stderr)
    told = choicewise(
        "run", "--model", "fake:hash", *ASKED, "--out", tmp_path / "here", "--json", code=0
    )
    (here,) = json.loads(told.stdout)
    assert [served[name] == here[name] for name in ("value", "n", "missing", "signature")] == [
        True
    ] * 4
    manifest = open_run(tmp_path / "run").manifest
    assert manifest.server is not None
    assert (manifest.server.model, manifest.server.root, manifest.server.changed) == (
        "hash",
        "/models/hash",
        "",
    )
    assert manifest.server.probes
    assert manifest.engine.spent is not None
    assert manifest.engine.spent.requests > 0
    before = len(server.requests)
    at(server, "run", *ASKED, "--out", tmp_path / "run")
    assert not any("festival" in str(each.body) for each in server.requests[before:])


@pytest.mark.costly("runs at a server that is probed")
def test_a_plan_counts_requests_without_the_answers(server: Server, tmp_path: Path) -> None:
    planned = json.loads(at(server, "run", *ASKED, "--dry-run", "--json").stdout)
    spent = run_at(load_model(server.address, tokenizer="bytes"), tmp_path).manifest.engine.spent
    assert spent is not None
    assert (planned["refused"], planned["sent"]) == ({}, spent.requests)


@pytest.mark.costly("a server that is probed twice")
def test_check_shows_what_was_probed_and_what_follows(server: Server) -> None:
    told = at(server, "check").stdout
    before = "puts tokens [256] before a text"
    assert [words for words in (before, "chosen next tokens", "served") if words not in told] == []
    measured = json.loads(at(server, "check", "--json").stdout)
    assert LETTER in measured["protocols"]["served"]
    assert "Cosine" in measured["protocols"]["refused"]["options/embedding"]
    assert measured["server"]["software"] == "vllm 0.32.0"


@pytest.mark.costly("servers that are probed")
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


@pytest.mark.parametrize("protocol", ["mmlu/original", "options/free-simple-evals"])
def test_a_chat_endpoint_refuses_a_protocol_with_the_options_that_work(
    protocol: str, tmp_path: Path
) -> None:
    line = ["--data", DATA, "--limit", "1", "--out", tmp_path / "run", "--protocol"]
    with serving(CHAT_ONLY) as running:
        asked = ["run", "--model", running.address, *line]
        refused = choicewise(*asked, protocol, "--shots", "0", code=5).stderr
        *_, last = refused.splitlines()
        assert last == "  use: --protocol options/free-simple-evals --chat message"
        assert "note: " not in refused
        _, *options = last.split()
        told = choicewise(*asked[:-1], *options, code=0).stderr
    assert "its context length" in told


def test_a_chat_endpoint_is_asked_and_its_messages_are_shown(tmp_path: Path) -> None:
    with serving(CHAT_ONLY) as running:
        asked = [
            "--model",
            running.address,
            "--data",
            DATA,
            "--limit",
            "1",
            "--protocol",
            "mmlu/helm",
        ]
        choicewise("run", *asked, "--chat", "message", "--out", tmp_path, code=0)
        sent = [body["messages"] for body in running.posted("/v1/chat/completions")]
        told = choicewise("prompts", *asked[:-1], "mmlu/helm+message", code=0).stdout
        shown = [json.loads(line) for line in told.splitlines()]
    assert open_run(tmp_path).protocols.keys() == {"mmlu/helm+message"}
    messages = [[[each["role"], each["content"]] for each in one] for one in sent]
    assert len(shown) == 7
    assert all(json.loads(line["context"]) in messages for line in shown)


THOUGHTS = ("Say A? Answer: A. ", "No. ", "", "Answer: C? " * 20)
"""What is thought about each of four questions; the last thought is long."""


def write_on_from_a_thought(prompt: str) -> str:
    """Write as a model whose template has opened the thought: it begins in there, closes it and answers B."""
    number = (
        int(re.findall(r"Question number (\d)", prompt)[-1]) if "Question number" in prompt else 0
    )
    return f"{THOUGHTS[number]}</think>Answer: B."


@pytest.mark.parametrize(("limit", "counts"), [(21, (2, 0, 2)), (60, (3, 0, 1)), (300, (4, 0, 0))])
def test_no_answer_is_read_in_a_thought_that_a_template_opened_unseen(
    limit: int, counts: tuple[int, int, int], tmp_path: Path
) -> None:
    """A larger limit never leaves the bounds of a smaller one."""
    with serving(CHAT_ONLY) as running:
        running.model.script = write_on_from_a_thought
        protocol = reads(limit, "simple-evals@f517a91", cut="missing")
        asked = evaluate(
            model=running.address,
            data=quiz([1, 1, 1, 1]),
            protocols={"p": protocol},
            out=tmp_path / "run",
        )
    (row,) = asked.rows()
    assert row.answers is not None
    assert (row.answers.answered, row.answers.unread, row.answers.cut) == counts
    assert row.counts.n == row.answers.answered
    assert (row.value, row.bounds.low, row.bounds.high) == (1.0, row.answers.answered / 4, 1.0)


@pytest.mark.costly("a server that is probed twice")
def test_another_model_of_the_same_name_is_refused_on_resume(
    server: Server, tmp_path: Path
) -> None:
    run_at(load_model(server.address, tokenizer="bytes"), tmp_path)
    server.model = ServedModel("hash", VLLM, seed=1)
    other = load_model(server.address, tokenizer="bytes")
    with pytest.raises(StoreError, match=f"differently .* {tmp_path}") as error:
        run_at(other, tmp_path, (LETTER, CLOZE))
    assert "nats then" in str(error.value)


@pytest.mark.costly("whole runs")
def test_a_model_that_changes_during_the_run_is_noted(server: Server, tmp_path: Path) -> None:
    model = load_model(server.address, tokenizer="bytes")
    model.check(0)

    def change(done: int, total: int) -> None:
        server.model = ServedModel("hash", VLLM, seed=1)

    with pytest.warns(UserWarning, match="the server answers differently"):
        run = run_at(model, tmp_path, progress=change)
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
        Gist("echo then, top now"),
    ]


@pytest.mark.parametrize("option", LOCAL)
def test_options_of_models_that_run_here_are_refused_for_servers(option: str) -> None:
    words = [
        "run",
        "--model",
        "server:http://127.0.0.1:9/v1",
        *ASKED,
        "--out",
        "nowhere",
        option,
        LOCAL[option],
    ]
    with pytest.raises(UsageError, match=f"{option} does not apply"):
        invoke(words)


@pytest.mark.parametrize("model", ["fake:hash", "bundled:merrow-bpe-2048"])
def test_a_tokenizer_is_named_for_servers_alone(model: str) -> None:
    for verb in (
        ["run", *ASKED, "--out", "nowhere"],
        ["check"],
        ["score", "--context", "a", "--choice", "b"],
    ):
        with pytest.raises(UsageError, match="--tokenizer does not apply"):
            invoke([verb[0], "--model", model, "--tokenizer", "bytes", *verb[1:]])
    with pytest.raises(UsageError, match="tokenizer does not apply"):
        _ = job_of(
            {"models": [{"name": "somewhere", "tokenizer": "bytes"}], "protocols": [LETTER]}
        ).choices


def test_a_plan_of_several_models_gives_each_its_own_options() -> None:
    table: dict[str, Any] = {
        "protocols": [LETTER],
        "dtype": "float32",
        "tokenizer": "bytes",
        "window": 9,
    }
    address = "server:http://127.0.0.1:9/v1#org/model"
    models = job_of({**table, "models": ["folder", "fake:hash", address]}).choices
    own = {"dtype": "float32", "window": 9}, {}, {"window": 9, "tokenizer": "bytes"}
    assert ([model.options for model in models], models[-1].folder) == ([*own], "org-model")
    for useless, words in (
        ({"dtype": "float32"}, "dtype does not apply"),
        ({"revisions": ["main"]}, "takes no revisions"),
    ):
        with pytest.raises(UsageError, match=words):
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
        "import sys, choicewise, choicewise.extensions.endpoints.server.address\n"
        "from choicewise.cli.commands import invoke\n"
        "invoke(['--help'])\n"
        "print({'httpx2', 'stamina', 'tenacity', 'tokenizers'} & {*sys.modules}, file=sys.stderr)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stderr.splitlines()[-1] == "set()"


def test_without_the_extra_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = "choicewise.extensions.endpoints.packages.find_spec"
    monkeypatch.setattr(missing, lambda name: None if name == "httpx2" else object())
    with pytest.raises(
        ModelError, match=r"pip install --constraint constraints\.txt '\.\[server\]'"
    ):
        load_model("server:http://127.0.0.1:9/v1#m")


DATED = "hash-2026-01-01"


@pytest.mark.costly("servers that are probed")
def test_a_dated_name_is_the_model_asked_for_with_a_digest_of_its_own(
    server: Server, tmp_path: Path
) -> None:
    plain = model_at(server)
    assert (plain.record.named, len(plain.digest)) == ("", 64)
    server.always(other_model(DATED))
    model = model_at(server)
    assert model.record.named == DATED
    assert model.digest != plain.digest
    assert any(DATED in note for note in model.notes)
    run = run_at(model, tmp_path / "run")
    assert run.rows()[0].counts.missing == 0
    assert run.manifest.server is not None
    assert (run.manifest.server.named, run.manifest.server.changed) == (DATED, "")
    server.always(other_model("hash-2026-02-02"))
    with pytest.raises(ServerFailed, match="from model 'hash-2026-02-02', not 'hash-2026-01-01'"):
        run_at(model, tmp_path / "other")
    with pytest.raises(StoreError) as refused:
        run_at(model_at(server), tmp_path / "run")
    assert Gist("hash-2026-01-01 then, hash-2026-02-02 now") in refused.value.problems


@pytest.mark.parametrize(
    ("others", "named", "expected"),
    [
        *(({}, named, "") for named in (None, "m")),
        ({}, "something else", "something else"),
        *(({name: root}, name, name) for name, root in (("m-2026", ""), ("alias", "/weights"))),
    ],
)
def test_another_name_of_the_model(
    others: dict[str, str], named: str | None, expected: str
) -> None:
    assert other_name(ServerFacts("m", "/weights", others=others), named) == expected


@pytest.mark.parametrize("root", ["", "/others"])
def test_another_model_that_the_server_lists_is_refused(root: str) -> None:
    with pytest.raises(ModelError, match="'other' instead of 'm'"):
        other_name(ServerFacts("m", "/weights", others={"other": root}), "other")


def test_an_address_without_v1_is_told_of_it_and_others_are_those_that_are_listed(
    server: Server,
) -> None:
    with pytest.raises(
        ModelError, match=f"http://127.0.0.1:{server.port}/v1 does; use that address"
    ):
        invoke(
            ["check", "--model", f"server:http://127.0.0.1:{server.port}/", "--tokenizer", "bytes"]
        )
    with Client(ServerAddress.parse(server.address)) as client:
        assert read_server_facts(client, "hash").others == {}


@pytest.mark.costly("two servers that are probed")
def test_a_run_goes_on_at_another_port_and_keeps_the_new_address(tmp_path: Path) -> None:
    for _ in range(2):
        with serving(VLLM) as server:
            at(server, "run", *ASKED, "--out", tmp_path / "run")
            address = server.address
    assert open_run(tmp_path / "run").manifest.job["models"][0]["name"] == address


@pytest.mark.parametrize("dry", [[], ["--dry-run"]])
def test_an_error_is_not_preceded_by_notes_about_what_would_have_run(
    tmp_path: Path, dry: list[str]
) -> None:
    data = tmp_path / "quiz.csv"
    data.write_text("question,A,B,C,D,E,answer\nWho?,a,b,c,d,e,B\nWhy?,f,g,h,i,j,C\n")
    words = ["run", "--data", data, "--protocol", "mmlu", "--out", tmp_path / "run", *dry]
    with serving(CHAT_ONLY) as server:
        refused = choicewise(*words, "--model", server.address, "--tokenizer", "bytes", code=5)
    assert refused.stderr.startswith("error: ")
    assert "note: " not in refused.stderr
    runs = choicewise(*words, "--model", "fake:hash", code=0)
    for variant in ("`mmlu@shots=0`", "`mmlu@choices=any`"):
        assert runs.stderr.count(variant) == 1


def listed_letters(server: Server, question: str) -> dict[str, float]:
    """The letters among the 20 tokens that the server lists when it is asked ``question``, with their nats."""
    path = "/v1/chat/completions"
    asked = [
        body for body in server.posted(path) if f"{question}\nA." in body["messages"][-1]["content"]
    ]
    (content,) = server.model.answer("POST", path, asked[-1])["choices"][0]["logprobs"]["content"]
    assert len(content["top_logprobs"]) == 20
    return {
        each["token"]: each["logprob"]
        for each in content["top_logprobs"]
        if each["token"] in {*"ABCD"}
    }


@pytest.mark.costly("all subjects of a benchmark")
def test_an_item_without_a_listed_letter_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a chat server that lists the likeliest 20 first tokens alone."""
    monkeypatch.setattr(
        "tests.helpers.served_model.spelled",
        lambda token: chr(token) if token < 128 else f"<{token}>",
    )
    with serving(replace(CHAT_ONLY, chat_logprobs=True, top=20, window=100_000)) as server:
        model = ServerModel(ServerAddress.parse(server.address), window=50_000)
        run = evaluate(
            model=model,
            data=BENCHMARK,
            protocols=["mmlu/original+message"],
            limit=8,
            out=tmp_path / "run",
        )
        questions = {row["item"]: row["question"] for row in run.tables.items.to_pylist()}
        truth = {item: listed_letters(server, question) for item, question in questions.items()}
    predicted = {
        row["item"]: row["prediction"] for row in run.scores("mmlu/original+message").to_pylist()
    }
    best = {
        item: "ABCD".index(max(letters, key=letters.get)) if letters else -1
        for item, letters in truth.items()
    }
    assert predicted == best
    assert 5 < sum(each >= 0 for each in best.values()) < len(best) - 5
    (row,) = run.rows()
    assert (row.counts.n, row.counts.missing) == (
        sum(each >= 0 for each in best.values()),
        sum(each < 0 for each in best.values()),
    )


@pytest.mark.parametrize(
    "size", ["", "much", "12", "-1 GB", "0 GB", "12 PB", "1e9", 12, True, "nan GB", "99 B"]
)
def test_a_size_that_means_nothing_is_said_with_the_other_problems(size: object) -> None:
    table = {"models": [{"name": "a", "memory": size}, {}], "memory": size, "protocols": ["mmlu"]}
    with pytest.raises(UsageError) as caught:
        job_of(table)
    words = f"memory is {size!r}; "
    for told in (words, f"models[0].{words}", "models[1].name is missing"):
        assert re.search(rf"^\W*{re.escape(told)}", str(caught.value), re.MULTILINE), told


def test_a_server_has_no_use_for_memory() -> None:
    address = "server:http://127.0.0.1:1/v1#m"
    with pytest.raises(UsageError, match="memory does not apply"):
        _ = job_of({"models": [{"name": address, "memory": "1 GB"}], "protocols": ["mmlu"]}).choices
    assert (
        job_of({"models": [address], "memory": "1 GB", "protocols": ["mmlu"]}).choices[0].name
        == address
    )
