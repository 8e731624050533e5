"""Letters at a chat server that lists the likeliest 20 first tokens alone: some letters are not among them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from choicewise.bundled import BENCHMARK
from choicewise.models.server.address import ServerAddress
from choicewise.models.server.server_model import ServerModel
from choicewise.running.evaluate import evaluate
from tests.helpers.misbehaving_server import Server, serving
from tests.helpers.served_model import CHAT_ONLY

PROTOCOL = "mmlu/original+message"
LISTING = replace(CHAT_ONLY, chat_logprobs=True, top=20, window=100_000)


def listed_letters(server: Server, question: str) -> dict[str, float]:
    """The letters among the 20 tokens that the server lists when it is asked ``question``, with their nats."""
    path = "/v1/chat/completions"
    asked = [body for body in server.posted(path) if f"{question}\nA." in body["messages"][-1]["content"]]
    (content,) = server.model.answer("POST", path, asked[-1])["choices"][0]["logprobs"]["content"]
    assert len(content["top_logprobs"]) == 20
    return {each["token"]: each["logprob"] for each in content["top_logprobs"] if each["token"] in {*"ABCD"}}


@pytest.mark.costly("servers and boards on loopback")
def test_an_item_is_decided_where_a_letter_is_listed_and_missing_where_none_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.helpers.served_model.spelled", lambda token: chr(token) if token < 128 else f"<{token}>")
    with serving(LISTING) as server:
        model = ServerModel(ServerAddress.parse(server.address), window=50_000)
        run = evaluate(model=model, data=BENCHMARK, protocols=[PROTOCOL], limit=8, out=tmp_path / "run")
        questions = {row["item"]: row["question"] for row in run.tables.items.to_pylist()}
        truth = {item: listed_letters(server, question) for item, question in questions.items()}
    predicted = {row["item"]: row["prediction"] for row in run.scores(PROTOCOL).to_pylist()}
    best = {item: "ABCD".index(max(letters, key=letters.get)) if letters else -1 for item, letters in truth.items()}
    assert predicted == best
    assert 5 < sum(each >= 0 for each in best.values()) < len(best) - 5
    (row,) = run.rows()
    assert (row.n, row.missing) == (sum(each >= 0 for each in best.values()), sum(each < 0 for each in best.values()))
