"""What of a submitted model is refused before any of its weights are downloaded, why, and that the board says so."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from choicewise.errors import ModelError
from choicewise.extensions.board import worker
from choicewise.extensions.board.submission import Policy, wanted
from choicewise.extensions.board.worker import (
    End,
    Refused,
    Worker,
    Workplace,
    check_model,
    is_of_model,
)
from tests.helpers.hub_server import FOLDER, OWN_CODE, WITHOUT_WEIGHTS, Hub
from tests.helpers.hub_server import MODEL as FILES
from tests.helpers.submissions import SUBMIT, Evaluating, evaluating

pytest.importorskip("transformers")

WEIGHTS = len(FILES["model.safetensors"])
POLICY = Policy()


def refused(model: str, policy: Policy = POLICY, revision: str | None = None) -> str:
    with pytest.raises(Refused) as error:
        check_model(wanted(model, revision), policy)
    assert is_of_model(error.value)
    return error.value.message


def large(hub: Hub) -> list[str]:
    return [path for path in hub.downloads() if path.endswith((".safetensors", ".bin"))]


def test_a_model_on_the_hub_is_pinned_to_the_commit_that_was_checked(hub: Hub) -> None:
    first = hub.add("models", "merrow/byte", FILES).refs["main"]
    assert check_model(wanted("merrow/byte"), POLICY) == f"merrow/byte@{first}"
    assert (check_model(wanted("merrow/byte", first[:40]), POLICY), large(hub)) == (
        f"merrow/byte@{first}",
        [],
    )
    assert check_model(wanted("bundled:merrow-byte"), POLICY) == "bundled:merrow-byte"


def test_what_is_not_there_or_gated_is_refused(hub: Hub) -> None:
    hub.add("models", "merrow/byte", FILES)
    assert "no such model" in refused("merrow/nowhere")
    assert "no revision v9" in refused("merrow/byte", revision="v9")
    assert "no model bundled:nothing; " in refused("bundled:nothing")
    assert "has no revisions" in refused("bundled:merrow-byte", revision="main")
    hub.add("models", "merrow/gated", FILES, gated=True)
    assert "it is gated" in refused("merrow/gated")
    assert large(hub) == []


def test_what_the_board_does_not_take_is_refused_without_asking_for_it(hub: Hub) -> None:
    assert "friends/*" in refused("merrow/byte", Policy(("friends/*",)))
    for name in (str(FOLDER), "fake:hash", "server:http://127.0.0.1:1/v1#x"):
        assert "is not allowed" in refused(name)
    assert "a worker evaluates" in refused("server:http://127.0.0.1:1/v1#x", Policy(("**",)))
    assert hub.requests == []


def test_a_folder_that_has_the_name_of_a_model_on_the_hub_is_not_taken_for_it(
    hub: Hub, tmp_path: Path
) -> None:
    shutil.copytree(FOLDER, tmp_path / "merrow" / "byte")
    assert "no such model" in refused("merrow/byte")


def test_what_is_too_large_is_refused_by_its_listing(hub: Hub) -> None:
    hub.add("models", "merrow/byte", FILES)
    assert f"its weights have {WEIGHTS:,} bytes" in refused(
        "merrow/byte", Policy(largest=WEIGHTS - 1)
    )
    assert "too large" in refused("bundled:merrow-byte", Policy(largest=WEIGHTS - 1))
    assert check_model(wanted("merrow/byte"), Policy(largest=WEIGHTS))
    assert large(hub) == []


def test_weights_in_parts_are_added_up(hub: Hub) -> None:
    names = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
    index = {
        "model.safetensors.index.json": json.dumps(
            {"weight_map": dict(zip("ab", names, strict=True))}
        )
    }
    hub.add(
        "models",
        "merrow/parts",
        {**WITHOUT_WEIGHTS, **index, **{name: bytes(600) for name in names}},
    )
    assert "its weights have 1,200 bytes" in refused("merrow/parts", Policy(largest=1000))
    assert check_model(wanted("merrow/parts"), Policy(largest=1200))
    assert large(hub) == []


def test_code_of_its_own_is_refused(hub: Hub, tmp_path: Path) -> None:
    hub.add(
        "models",
        "merrow/code",
        {**FILES, "config.json": OWN_CODE, "modeling.py": "raise SystemExit"},
    )
    assert "code of its own" in refused("merrow/code")
    assert "modeling.py" not in hub.downloads()
    known = json.loads(FILES["config.json"]) | {
        "auto_map": {"AutoModelForCausalLM": "modeling.Merrow"}
    }
    hub.add("models", "merrow/known", {**FILES, "config.json": json.dumps(known)})
    assert check_model(wanted("merrow/known"), POLICY)
    folder = shutil.copytree(FOLDER, tmp_path / "own")
    (folder / "config.json").write_text(OWN_CODE)
    assert "code of its own" in refused(str(folder), Policy(("**",)))


def test_weights_that_are_no_safetensors_are_refused(hub: Hub, tmp_path: Path) -> None:
    hub.add("models", "merrow/pickled", {**WITHOUT_WEIGHTS, "pytorch_model.bin": b"pickle"})
    assert "opening pytorch_model.bin" in refused("merrow/pickled")
    index = json.dumps({"weight_map": {"a": "pytorch_model.bin"}})
    files = {**WITHOUT_WEIGHTS, "model.safetensors.index.json": index, "pytorch_model.bin": b"x"}
    hub.add("models", "merrow/index", files)
    assert "not an index" in refused("merrow/index")
    folder = shutil.copytree(FOLDER, tmp_path / "pickled")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    assert "holds no model.safetensors" in refused(str(folder), Policy(("**",)))
    (folder / "model.safetensors").write_bytes(b"pickle")
    assert "not a safetensors file" in refused(str(folder), Policy(("**",)))
    assert large(hub) == []


@pytest.mark.parametrize("config", ["[1]", "{", "nonsense"])
def test_a_configuration_that_is_none_is_refused(config: str, hub: Hub) -> None:
    hub.add("models", "merrow/odd", {**FILES, "config.json": config})
    assert "is no JSON object" in refused("merrow/odd")


def test_what_should_be_small_and_is_not_is_not_downloaded(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "SMALL", 10_000)
    hub.add(
        "models",
        "merrow/bare",
        {name: content for name, content in FILES.items() if name != "config.json"},
    )
    assert "holds no config.json" in refused("merrow/bare")
    commit = hub.add("models", "merrow/wide", {**FILES, "config.json": bytes(10_001)}).refs["main"]
    assert f"config.json of merrow/wide@{commit} has" in refused("merrow/wide")
    assert "config.json" not in hub.downloads()


def test_whose_fault_it_is_and_that_of_the_hub_is_not_the_model_s(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    def of(error: Exception, cause: Exception | None = None) -> bool:
        error.__cause__ = cause
        return is_of_model(error)

    assert of(ModelError("it looks ahead"))
    assert not of(ModelError("it can't be loaded"), MemoryError())
    assert not of(ModelError("it can't be read"), OSError(5, "Input/output error"))
    assert not of(RuntimeError("who knows"))
    monkeypatch.setattr("choicewise.data.hub.out_of_reach", lambda: "it can't be reached")
    with pytest.raises(ModelError) as told:
        check_model(wanted("merrow/byte"), POLICY)
    assert not isinstance(told.value, Refused)
    assert not is_of_model(told.value)


HUB: dict[str, tuple[dict[str, bytes | str], str]] = {
    "merrow/large": ({**FILES, "model.safetensors": bytes(WEIGHTS + 1)}, "is too large"),
    "merrow/code": ({**FILES, "config.json": OWN_CODE}, "code of its own"),
    "merrow/pickled": ({**WITHOUT_WEIGHTS, "pytorch_model.bin": b"pickle"}, "holds no safetensors"),
    "merrow/damaged": (
        {**FILES, "model.safetensors": b"no safetensors"},
        "not a safetensors file",
    ),
}


@pytest.fixture
def board(tmp_path: Path) -> Iterator[Evaluating]:
    with evaluating(tmp_path / "board", policy=Policy(("bundled:*", "merrow/*"), WEIGHTS)) as made:
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
        assert (record["state"], words in record["reason"], record["attempts"]) == (
            "failed",
            True,
            1,
        ), record
        page = board.ask(f"/submission/{names[model]}").text
        assert [word for word in (words, "submit it again") if word not in page] == []
    assert listed.count("failed") >= len(reasons)
    assert not any(path.endswith(".bin") for path in hub.downloads())


def test_what_the_board_itself_can_tell_is_said_at_once(board: Evaluating) -> None:
    page = board.ask(board.form(f"model=bundled:nothing&token={SUBMIT}").headers["location"]).text
    assert [word for word in ("was refused", "no model bundled:nothing") if word not in page] == []
    told = board.form(f"model=others/name&token={SUBMIT}")
    assert (
        told.status,
        "called others/name; it takes bundled:*, merrow/*" in told.text,
    ) == (403, True)
