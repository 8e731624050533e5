"""Why a model is not evaluated stands on the board, whoever finds it out: the board, or a worker that asks the Hub."""

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("transformers")

from choicewise.board.submission import Policy
from choicewise.board.worker import End, Worker, Workplace
from tests.helpers.hub_files import MODEL as FILES
from tests.helpers.hub_files import OWN_CODE, WITHOUT_WEIGHTS
from tests.helpers.hub_server import Hub
from tests.helpers.submissions import SUBMIT, Evaluating, evaluating

LARGEST = len(FILES["model.safetensors"])
HUB: dict[str, tuple[dict[str, bytes | str], str]] = {
    "merrow/large": ({**FILES, "model.safetensors": bytes(LARGEST + 1)}, "is too large"),
    "merrow/code": ({**FILES, "config.json": OWN_CODE}, "needs code of its own"),
    "merrow/pickled": ({**WITHOUT_WEIGHTS, "pytorch_model.bin": b"pickle"}, "holds no safetensors"),
    "merrow/damaged": ({**FILES, "model.safetensors": b"no safetensors"}, "is not a safetensors file"),
}


@pytest.fixture
def board(tmp_path: Path) -> Iterator[Evaluating]:
    with evaluating(tmp_path / "board", policy=Policy(("bundled:*", "merrow/*"), LARGEST)) as made:
        yield made


def test_every_reason_is_on_the_page(board: Evaluating, hub: Hub, tmp_path: Path) -> None:
    for name, (files, _) in HUB.items():
        hub.add("models", name, files)
    hub.add("models", "merrow/gated", FILES, gated=True)
    reasons = {name: words for name, (_, words) in HUB.items()}
    reasons |= {"merrow/nowhere": "no such model that you may read", "merrow/gated": "it is gated"}
    names = {model: board.submit(model).json["id"] for model in reasons}
    assert board.service is not None
    worker = Worker(board.service, Workplace(), pauses=(0.01, 0.05))
    worker.work(once=True)
    assert [outcome.end for outcome in worker.outcomes] == [End.FAILED] * len(reasons)
    listed = board.ask("/submissions").text
    for model, words in reasons.items():
        record = board.record(names[model])
        assert (record["state"], words in record["reason"], record["attempts"]) == ("failed", True, 1), record
        page = board.ask(f"/submission/{names[model]}").text
        assert words in page
        assert "submit it again" in page
    assert listed.count("failed") >= len(reasons)
    assert not any(path.endswith(".bin") for path in hub.downloads())


def test_what_the_board_itself_can_tell_is_said_at_once(board: Evaluating) -> None:
    refused = board.form(f"model=bundled:nothing&token={SUBMIT}").headers["location"]
    page = board.ask(refused).text
    assert "was refused" in page
    assert "there is no model bundled:nothing" in page
    told = board.form(f"model=others/name&token={SUBMIT}")
    assert (told.status, "takes no models called others/name; it takes bundled:*, merrow/*" in told.text) == (403, True)
