"""Requests that were rendered elsewhere: asked, scored and identified like our own."""

import json
from pathlib import Path
from typing import Any

import pytest

from choicewise import evaluate
from choicewise.data.dataset import Dataset
from choicewise.data.items import Item
from choicewise.errors import DataError, ProtocolError
from choicewise.models.fake import HashModel
from choicewise.protocols.catalogue import one
from choicewise.protocols.protocol import Protocol, parse_signature, signature
from choicewise.requests.render import RenderedRequests, read_rendered, rendered_requests
from choicewise.results.run import Run
from tests.helpers.protocols import requests

ITEMS = (
    Item("1", "What did Lily see?", ("a big red ball", "a dog", "your mom"), (1,), "park"),
    Item("2", "Where do birds live?", ("in a tree", "in the sea"), (0,), "park"),
)
QUIZ = Dataset("quiz", {"test": ITEMS})
ROWS: list[dict[str, Any]] = [
    {"item": "a", "subject": "s", "context": "One and", "continuations": [" two", " three"], "gold": 0},
    {"item": "b", "subject": "s", "contexts": ["Two and", "Ten and"], "continuations": [" one"] * 2, "gold": [0, 1]},
]


def scores(run: Run) -> list[tuple[str, int, float]]:
    return [(row["item"], row["choice"], row["score"]) for row in run.scores().to_pylist()]


def run(data: Dataset, protocol: Protocol, out: Path, *rendered: RenderedRequests) -> Run:
    return evaluate(model=HashModel(), data=data, protocols={"p": protocol}, rendered=rendered, out=out)


def test_rendered_requests_score_like_the_templates_that_rendered_them(tmp_path: Path) -> None:
    protocol = one("options/cloze:token_mean").protocol
    lines = [
        {"item": each.item.id, "subject": each.item.subject, "context": each.context()}
        | {"continuations": list(each.continuations), "gold": list(each.gold)}
        for each in requests(protocol, QUIZ, "park")
    ]
    file = tmp_path / "quiz.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    rendered = read_rendered(file)
    same = rendered.protocol("quiz", score=protocol.score, fit=protocol.fit, boundary=protocol.boundary)
    ours = run(QUIZ, protocol, tmp_path / "ours")
    theirs = run(rendered.dataset, same, tmp_path / "theirs", rendered)
    assert scores(theirs) == scores(ours)
    assert theirs.observations()["key"].to_pylist() == ours.observations()["key"].to_pylist()
    assert parse_signature(signature(same)) == same
    assert same.requests == rendered.digest


def test_choices_may_have_contexts_of_their_own(tmp_path: Path) -> None:
    rendered = rendered_requests("pairs", ROWS)
    found = run(rendered.dataset, rendered.protocol("pairs"), tmp_path, rendered)
    contexts = {(row["item"], row["choice"]): row["context"] for row in found.observations().to_pylist()}
    assert contexts == {("a", 0): None, ("a", 1): None, ("b", 0): "Two and", ("b", 1): "Ten and"}
    by_choice = {(item, choice): score for item, choice, score in scores(found)}
    assert by_choice["b", 0] != by_choice["b", 1]
    assert [row.value for row in found.rows()] == [pytest.approx((1 + (by_choice["a", 0] > by_choice["a", 1])) / 2)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"continuations": " two"}, "malformed"),
        ({"continuations": [" two", 3]}, "malformed"),
        ({"gold": 2}, "does not index its 2 continuations"),
        ({"gold": []}, "does not index"),
        ({"context": None}, "needs a context"),
        ({"contexts": ["one"]}, "as many contexts as continuations"),
    ],
)
def test_a_malformed_request_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=f"request 1 .counted from 0. .*{message}"):
        rendered_requests("file", [ROWS[1], {**ROWS[0], **change}])


def test_a_file_of_something_else_is_refused_by_line(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    for text, message in (("{", "line 1: no JSON"), ("[]", "line 1: no JSON object"), ("", "holds no requests")):
        file.write_text(text)
        with pytest.raises(DataError, match=message):
            read_rendered(file)
    with pytest.raises(DataError, match="repeats the item 'a'"):
        rendered_requests("file", [ROWS[0], ROWS[0]])
    with pytest.raises(DataError, match="can't be read"):
        read_rendered(tmp_path / "none.jsonl")


def test_other_requests_are_another_protocol_and_must_all_be_there(tmp_path: Path) -> None:
    first, other = rendered_requests("x", ROWS), rendered_requests("x", ROWS[::-1])
    assert first.protocol("x").prompt_digest != other.protocol("x").prompt_digest
    with pytest.raises(ProtocolError, match="axis shots is 5, but the requests .* were rendered elsewhere"):
        first.protocol("x", shots=5)
    with pytest.raises(ProtocolError, match="were rendered elsewhere and are not at hand"):
        run(first.dataset, first.protocol("x"), tmp_path / "run")
    few = RenderedRequests("x", first.requests_by_item)
    with pytest.raises(DataError, match="x has no request for item '1'"):
        run(QUIZ, few.protocol("x"), tmp_path / "run", few)
