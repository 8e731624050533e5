"""Run folders of HELM become runs: its verdicts follow from them, and what is broken is refused by name."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise import open_run
from choicewise.errors import DataError
from choicewise.interchange.logs.helm import letter_choices, reference_tokens, scored_reference, token_bytes
from choicewise.interchange.logs.import_log import read_logs, read_state, run_of_log
from choicewise.interchange.logs.log import Log
from tests.helpers.golden_logs import edited, golden
from tests.helpers.imported_runs import values

JOINT = "town:method=multiple_choice_joint"
ORIGINAL = "town:method=multiple_choice_separate_original"
CALIBRATED = "town:method=multiple_choice_separate_calibrated"
MILLS = "town:subject=mills,method=multiple_choice_joint,model=made-up_words"
STATE = "scenario_state.json"


@pytest.fixture
def helm(tmp_path: Path) -> Path:
    """The folder of a suite with five runs."""
    return golden("helm", tmp_path)


@pytest.fixture
def original(helm: Path) -> Path:
    return helm / f"{ORIGINAL},model=made-up_words"


def logs(path: Path) -> dict[str, Log]:
    return {log.task: log for log in read_logs([path])}


def imported(log: Log, folder: Path) -> dict[str, tuple[float | None, int, int]]:
    """The numbers of the run that a log becomes."""
    run_of_log(log, folder / "run")
    return values(open_run(folder / "run"))


@pytest.mark.parametrize("name", ["exact_match", "predicted_index"])
def test_a_verdict_that_does_not_follow_is_told(original: Path, name: str) -> None:
    def change(judged: Any) -> None:
        for stat in judged[0]["stats"]:
            if stat["name"]["name"] == name:
                stat["mean"] += 1

    edited(original / "per_instance_stats.json", change)
    (note,) = read_state(logs(original)[ORIGINAL]).notes
    assert note.startswith(f"{name} of 1 of 5 items is another than its own answers give, such as id2")


def test_letters_become_answers_of_text_and_exact_match_is_the_token_mean(helm: Path, tmp_path: Path) -> None:
    log, original = (logs(helm)[name] for name in (JOINT, ORIGINAL))
    numbers = imported(log, tmp_path / "joint")
    recorded = [item.recorded["exact_match"] for item in log.items]
    assert numbers["letter-match"][0] == pytest.approx(sum(recorded) / len(recorded))
    assert numbers["sum"][1] == 0
    exact = original.recorded.get("exact_match test", 0.0)  # which shares ties
    assert imported(original, tmp_path / "original")["token_mean"][0] == pytest.approx(exact)


def test_splits_and_trials_are_logs_of_their_own_in_whatever_order(original: Path) -> None:
    def change(state: Any) -> None:
        for place, each in enumerate(state["request_states"]):
            each["instance"]["split"] = "valid" if place < 4 else "test"
        again = [{**each, "train_trial_index": 1} for each in state["request_states"]]
        state["request_states"] += again

    before = sorted(logs(original)[ORIGINAL].items, key=lambda item: item.id)
    edited(original / STATE, lambda state: state["request_states"].reverse())
    assert sorted(logs(original)[ORIGINAL].items, key=lambda item: item.id) == before
    edited(original / STATE, lambda state: state["request_states"].reverse())
    edited(original / STATE, change)
    assert f"{ORIGINAL} trial=1 split=test perturbation=uppercase" in logs(original)
    assert len(list(logs(original)[f"{ORIGINAL} trial=0 split=valid"].items)) == 1


def first(**members: Any) -> Any:
    return lambda state: state["request_states"][0].update(members)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda state: state.update(request_states=[]), "holds no requests"),
        (lambda state: state["adapter_spec"].update(method="generation"), "has adapter method generation"),
        (lambda state: state["adapter_spec"].pop("method") and None, "has adapter method unknown"),
        (lambda state: state["request_states"][0]["request"].update(model="b"), "mixes the models b, made-up/words"),
        (lambda state: state["request_states"].append(state["request_states"][0]), "reference 0 a second time"),
        (first(reference_index=9), "asks about reference 9 of 4"),
        (lambda state: state["request_states"][0].pop("instance") and None, "state 0 is about no instance with an id"),
        (lambda state: state["request_states"].insert(0, 7), "request state 0 is no object"),
        (lambda state: state["request_states"][0]["instance"].update(references=[]), "instance 'id2' has 0 references"),
    ],
)
def test_what_is_no_run_is_refused_by_name(original: Path, change: Any, reason: str) -> None:
    (original / "run_spec.json").unlink()
    edited(original / STATE, change)
    with pytest.raises(DataError, match=f"scenario_state.json.*{reason}"):
        logs(original)


@pytest.mark.parametrize("file", [STATE, "per_instance_stats.json", "run_spec.json", "stats.json"])
def test_files_that_were_cut_off_are_named(original: Path, file: str) -> None:
    content = (original / file).read_bytes()
    (original / file).write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match=f"{file} is no JSON"):
        logs(original)


def test_missing_references_numbers_and_right_ones_are_missing(original: Path) -> None:
    def change(state: Any) -> None:
        states = state["request_states"]
        states[1]["result"]["completions"][0]["tokens"][-1]["logprob"] = float("nan")
        states[2]["result"]["completions"] = []
        states[3]["result"] = None
        for each in states[:4]:
            for reference in each["instance"]["references"]:
                reference["tags"] = []
        del states[0]

    edited(original / STATE, change)
    item = next(iter(logs(original)[ORIGINAL].items))
    assert [choice.missing for choice in item.choices] == [
        "the log has no request about this reference",
        "a token's log-probability is no number",
        "the log has no completion",
        "the request was never sent",
    ]
    assert item.gold == ()


def test_a_second_letter_in_one_trial_is_refused(helm: Path) -> None:
    folder = helm / MILLS
    edited(folder / STATE, lambda state: state["request_states"].append(state["request_states"][0]))
    with pytest.raises(DataError, match="asks instance 'id2' a second time"):
        logs(folder)
    edited(folder / STATE, lambda state: state["request_states"][0].update(output_mapping={"1": "the Lune"}))
    with pytest.raises(DataError, match="has the labels \\['1'\\]; A, B, C and so on are read"):
        logs(folder)


@pytest.mark.parametrize(
    ("tokens", "reference", "count"),
    [
        (["Q", ":", " the", " Ash"], "the Ash", 2),
        (["Q: ", "the", " Ash"], "the Ash", 2),  # the space ends the token before
        (["Q", "the", "Ash"], "the Ash", 2),  # decoded one by one, without their spaces
        (["Q", ":", " th", "e Ash"], "the Ash", 2),
        (["Q: the", " Ash"], "the Ash", None),  # no token begins where the reference does
        (["Q", " caf", "bytes:\\xc3", "bytes:\\xa9"], "café", 3),
        (["a", " b"], "c", None),
        ([], "c", None),
    ],
)
def test_the_tokens_of_a_reference_may_be_bytes(tokens: list[str], reference: str, count: int | None) -> None:
    assert reference_tokens(tokens, reference) == count
    assert (token_bytes("bytes:\\xe2\\x80"), token_bytes("é")) == (b"\xe2\x80", "é".encode())


@given(st.text(min_size=1), st.lists(st.text(min_size=1), min_size=1))
def test_tokens_that_spell_the_reference_are_counted(before: str, pieces: list[str]) -> None:
    pieces[0] = f" {pieces[0]}"
    reference = "".join(pieces)[1:]
    tokens = [before, *pieces]
    count = reference_tokens(tokens, reference)
    if any(token.startswith("bytes:") for token in tokens):
        return
    assert count is not None
    assert b"".join("".join(tokens[-count:]).encode().split()) == b"".join(reference.encode().split())


@pytest.mark.parametrize(
    ("top", "expected"),
    [
        ({" A": -1.0, " B": -0.5, "A": -2.0}, [(" A", -1.0, False), (" B", -0.5, True)]),
        ({"A": -1.0, "B": -0.5, " A": -2.0, "x": -0.1}, [("A", -1.0, False), ("B", -0.5, False)]),
        ({" A": -1.0, " C": -0.5}, [(" A", -1.0, False), (" B", None, None)]),
        ({}, [(None, None, None)] * 2),
        (None, [(None, None, None)] * 2),
    ],
)
def test_letters_are_scored_where_the_log_has_the_likeliest_tokens(
    top: dict[str, float] | None, expected: list[tuple[str | None, float | None, bool | None]]
) -> None:
    choices = letter_choices({"tokens": [{"text": " B", "logprob": -0.5, "top_logprobs": top}]}, ["A", "B"])
    assert [(choice.text, choice.loglikelihood, choice.greedy) for choice in choices] == expected
    assert all((choice.missing is None) == (choice.loglikelihood is not None) for choice in choices)


def test_a_run_of_letters_has_both_kinds_of_numbers(helm: Path, tmp_path: Path) -> None:
    top = {" A": -1.5, " B": -0.5, " C": -2.0, " D": -2.5, " The": -3.0}

    def change(state: Any) -> None:
        for each in state["request_states"]:
            each["result"]["completions"][0]["tokens"][0]["top_logprobs"] = top

    edited(helm / MILLS / STATE, change)
    numbers = imported(logs(helm / MILLS)[JOINT], tmp_path)
    assert numbers["sum"][0] == pytest.approx(2 / 5)  # the items whose answer is B
    assert numbers["letter-match"][1] == 5


def test_greedy_is_read_where_the_log_has_the_likeliest_tokens() -> None:
    def state(*tops: dict[str, float]) -> dict[str, Any]:
        pairs = zip((" the", " Ash"), tops, strict=True)
        tokens = [{"text": text, "logprob": -1.0, "top_logprobs": top} for text, top in pairs]
        completion = {"text": "Q: the Ash", "logprob": -2.0, "tokens": [{"text": "Q:", "logprob": 0.0}, *tokens]}
        return {"request": {"prompt": "Q: the Ash"}, "result": {"success": True, "completions": [completion]}}

    assert scored_reference(state({" the": -1.0}, {" Ash": -1.0}), "the Ash").greedy is True
    assert scored_reference(state({" the": -1.0}, {" Ash": -1.0, " Wye": -0.5}), "the Ash").greedy is False
    assert scored_reference(state({" the": -1.0}, {}), "the Ash").greedy is None
