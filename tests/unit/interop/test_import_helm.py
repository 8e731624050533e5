"""Logs of HELM, lighteval and Inspect become runs."""

import json
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise import import_log, open_run
from choicewise.errors import DataError
from choicewise.extensions.interop.logs.files import unpacked
from choicewise.extensions.interop.logs.helm import (
    letter_choices,
    reference_tokens,
    scored_reference,
    token_bytes,
)
from choicewise.extensions.interop.logs.import_log import read_logs, read_state, run_of_log
from choicewise.extensions.interop.logs.inspect import logged_item, rules
from choicewise.extensions.interop.logs.lighteval import detail
from choicewise.logs import Log
from choicewise.protocols.between import under_metrics
from tests.helpers.imported_runs import LOGS, edited, golden, one_run, values
from tests.helpers.messages import Gist

JOINT = "town:method=multiple_choice_joint"
CALIBRATED = "town:method=multiple_choice_separate_calibrated"
ORIGINAL = "town:method=multiple_choice_separate_original"
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
    assert note == Gist(f"{name} of 1 of 5 items ... id2")


def test_letters_become_answers_of_text_and_exact_match_is_the_token_mean(
    helm: Path, tmp_path: Path
) -> None:
    log, original = (logs(helm)[name] for name in (JOINT, ORIGINAL))
    numbers = imported(log, tmp_path / "joint")
    recorded = [item.recorded["exact_match"] for item in log.items]
    assert numbers["letter-match"][0] == pytest.approx(sum(recorded) / len(recorded))
    assert numbers["sum"][1] == 0
    exact = original.recorded.get("exact_match test", 0.0)  # which shares ties
    assert imported(original, tmp_path / "original")["token_mean"][0] == pytest.approx(exact)


def test_the_calibration_error_of_letters_is_helms(helm: Path, tmp_path: Path) -> None:
    """HELM's confidence is the probability of the whole text; its statistics hold the number."""
    run_of_log(logs(helm / MILLS)[JOINT], tmp_path / "run")
    run = open_run(tmp_path / "run")
    (name,) = (name for name in run.protocols if name.endswith(":letter-match"))
    (row,) = run.under(under_metrics({name: run.protocols[name]}, ["ece_10_bin"])).rows()
    stats = json.loads((helm / MILLS / "stats.json").read_text())
    (helms,) = (
        stat["mean"]
        for stat in stats
        if stat["name"]["name"] == "ece_10_bin" and "perturbation" not in stat["name"]
    )
    assert row.value == pytest.approx(helms, rel=1e-9)


@pytest.mark.parametrize(("task", "score"), [(ORIGINAL, "token_mean"), (CALIBRATED, "pmi")])
def test_the_confidence_in_scores_is_helms(
    task: str, score: str, helm: Path, tmp_path: Path
) -> None:
    """HELM's max_prob is of the scores that it compares, a mean over tokens or a difference."""
    log = logs(helm)[task]
    run_of_log(log, tmp_path / "run")
    run = open_run(tmp_path / "run")
    name = f"{task}:{score}"
    measured = run.under(under_metrics({name: run.protocols[name]}, ["ece_10_bin"])).measurements
    (judged,) = (each.judged for each in measured.values())
    assert judged is not None
    assert judged.confidence == pytest.approx(
        [item.recorded["max_prob"] for item in log.items], rel=1e-6
    )


def test_letters_beside_likelihoods_of_letters_are_counted_as_helm_does(
    shared_data: Path, tmp_path: Path
) -> None:
    run = one_run(shared_data / "cases" / "51-helm-joint" / "runs", tmp_path / "run")
    assert values(run)["letter-match"][:2] == (
        pytest.approx(2 / 6),
        6,
    )  # its stats.json has an exact match of 1 / 3
    (row,) = (row for row in run.rows() if row.identity.protocol.endswith(":sum"))
    assert (row.counts.n, "many-missing" in row.diagnosis.warnings) == (0, False)


def test_logs_without_log_probabilities_have_no_confidence(helm: Path) -> None:
    def silence(state: Any) -> None:
        for each in state["request_states"]:
            each["result"]["completions"][0]["logprob"] = 0.0

    edited(helm / MILLS / STATE, silence)
    assert {item.text_loglikelihood for item in logs(helm / MILLS)[JOINT].items} == {None}


def test_splits_and_trials_are_logs_of_their_own_in_whatever_order(original: Path) -> None:
    def change(state: Any) -> None:
        for place, each in enumerate(state["request_states"]):
            each["instance"]["split"] = "valid" if place < 4 else "test"
        state["request_states"] += [
            {**each, "train_trial_index": 1} for each in state["request_states"]
        ]

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
        (
            lambda state: state["adapter_spec"].update(method="generation"),
            "has adapter method generation",
        ),
        (lambda state: state["adapter_spec"].pop("method") and None, "has adapter method unknown"),
        (
            lambda state: state["request_states"][0]["request"].update(model="b"),
            "mixes the models b, made-up/words",
        ),
        (
            lambda state: state["request_states"].append(state["request_states"][0]),
            "reference 0 a second time",
        ),
        (first(reference_index=9), "asks about reference 9 of 4"),
        (
            lambda state: state["request_states"][0].pop("instance") and None,
            "state 0 has no instance",
        ),
        (lambda state: state["request_states"].insert(0, 7), "request state 0 is not an object"),
        (
            lambda state: state["request_states"][0]["instance"].update(references=[]),
            "instance 'id2' has 0 references",
        ),
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
    with pytest.raises(DataError, match=f"{file} is not valid JSON"):
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
        Gist("no request"),
        "a token's log-probability is no number",
        Gist("no completion"),
        Gist("never sent"),
    ]
    assert item.gold == ()


def test_a_second_letter_in_one_trial_is_refused(helm: Path) -> None:
    folder = helm / MILLS
    edited(folder / STATE, lambda state: state["request_states"].append(state["request_states"][0]))
    with pytest.raises(DataError, match="asks instance 'id2' a second time"):
        logs(folder)
    edited(
        folder / STATE,
        lambda state: state["request_states"][0].update(output_mapping={"1": "the Lune"}),
    )
    with pytest.raises(DataError, match=r"labels \['1'\]; A, B, C"):
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
def test_the_tokens_of_a_reference_may_be_bytes(
    tokens: list[str], reference: str, count: int | None
) -> None:
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
    assert b"".join("".join(tokens[-count:]).encode().split()) == b"".join(
        reference.encode().split()
    )


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
    choices = letter_choices(
        {"tokens": [{"text": " B", "logprob": -0.5, "top_logprobs": top}]}, ["A", "B"]
    )
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
        completion = {
            "text": "Q: the Ash",
            "logprob": -2.0,
            "tokens": [{"text": "Q:", "logprob": 0.0}, *tokens],
        }
        return {
            "request": {"prompt": "Q: the Ash"},
            "result": {"success": True, "completions": [completion]},
        }

    assert scored_reference(state({" the": -1.0}, {" Ash": -1.0}), "the Ash").greedy is True
    assert (
        scored_reference(state({" the": -1.0}, {" Ash": -1.0, " Wye": -0.5}), "the Ash").greedy
        is False
    )
    assert scored_reference(state({" the": -1.0}, {}), "the Ash").greedy is None


OWN = "inspect@0.3.264"


def only_log(path: Path) -> Log:
    (log,) = read_logs([path])
    return log


def edited_log(folder: Path, change: Any) -> Log:
    return only_log(edited(golden("inspect/finished.json", folder), change))


def changed(folder: Path, **members: Any) -> Log:
    """The finished log with other members of its first sample."""
    return edited_log(folder, lambda log: log["samples"][0].update(members))


def test_a_verdict_that_does_not_follow_is_told_and_no_number_is_none(tmp_path: Path) -> None:
    (note,) = read_state(changed(tmp_path, scores={"choice": {"value": "I"}})).notes
    assert note == Gist("choice of 1 of 6 items ... town 0")
    scores = {
        "choice": {"value": float("nan")},
        "grade": {"value": "excellent"},
        "share": {"value": 0.5},
    }
    assert next(iter(changed(tmp_path, scores=scores).items)).recorded == {"share": 0.5}


def test_a_run_has_a_row_for_every_rule_and_an_epoch_is_a_run_of_its_own(tmp_path: Path) -> None:
    (run,) = import_log(LOGS / "inspect" / "finished.eval", tmp_path / "run")
    rows = {row["protocol"]: row for row in run.report().to_pylist()}
    assert rows[f"town:{OWN}"]["value"] == pytest.approx(
        3 / 6
    )  # of the six that ask for one letter
    assert rows[f"town:{OWN}"]["missing"] == 1
    assert rows["town:inspect@0.3.121"]["value"] == pytest.approx(2 / 6)  # which reads no **c**
    assert rows["town:sum"]["n"] == 0
    assert open_run(tmp_path / "run").report().equals(run.report())
    runs = import_log(LOGS / "inspect" / "epochs.eval", tmp_path / "runs")
    assert [run.manifest.dataset.name for run in runs] == ["town epoch 1", "town epoch 2"]
    assert all(len(set(run.report()["n"].to_pylist())) == 2 for run in runs)
    assert runs[0].manifest.dataset.digest == runs[1].manifest.dataset.digest


def test_a_log_that_stopped_or_was_never_finished_is_taken_only_whole(tmp_path: Path) -> None:
    whole = golden("inspect/stopped.json", tmp_path)
    assert len(list(only_log(whole).items)) == 7  # it has status error, and every sample
    with pytest.raises(
        DataError, match="status error and 6 of 7 samples; .* finish it with `inspect eval-retry`"
    ):
        only_log(edited(whole, lambda log: log["samples"].pop() and None))
    with pytest.raises(DataError, match="status cancelled and 6 of 7 samples"):
        only_log(edited(whole, lambda log: log.update(status="cancelled")))
    path = tmp_path / "running.eval"  # without a header: it was never finished
    with unpacked(LOGS / "inspect" / "finished.eval") as log, zipfile.ZipFile(path, "w") as copy:
        for name in ("_journal/start.json", "samples/town 0_epoch_1.json"):
            copy.writestr(name, log.read(name))
    with pytest.raises(DataError, match="status started and 1 of 7 samples"):
        only_log(path)
    with zipfile.ZipFile(path, "w") as copy:
        copy.writestr("else.json", "{}")
    with pytest.raises(DataError, match="neither header.json nor _journal/start.json"):
        only_log(path)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda log: log.update(version=9), "is of version 9 of Inspect's logs; 1 and 2 are read"),
        (lambda log: log.update(samples=[]), "holds no samples (status success)"),
        (lambda log: log.update(eval=1), "does not name a task"),
        (lambda log: log["samples"].append(log["samples"][0]), "holds 1 samples twice in epoch 1"),
        (
            lambda log: log["samples"][0].update(choices=None),
            "sample 1 (from 1) (id 'town 0') has no choices",
        ),
        (lambda log: log["samples"].insert(0, 7), "sample 1 (from 1) is not a sample"),
    ],
)
def test_what_is_no_log_is_refused_by_name(tmp_path: Path, change: Any, reason: str) -> None:
    with pytest.raises(DataError) as raised:
        edited_log(tmp_path, change)
    assert str(raised.value) == Gist(f"finished.json ... {reason}")


@pytest.mark.parametrize("name", ["finished.json", "finished.eval"])
def test_a_log_that_was_cut_off_is_refused(tmp_path: Path, name: str) -> None:
    path = golden(f"inspect/{name}", tmp_path)
    path.write_bytes(path.read_bytes()[:9000])
    with pytest.raises(DataError, match=f"{name}.*(cut off|damaged)"):
        read_logs([path])


GOLDS: list[tuple[Any, tuple[int, ...]]] = [
    *[
        ("A", (0,)),
        ("d", (3,)),
        (["A", "C"], (0, 2)),
        ("A,B", (0, 1)),
        ("BD", (1, 3)),
        ("E", ()),
        ("?", ()),
        ("", ()),
    ],
    *[
        ("0", ()),
        ("Bad", ()),
        ("the Ash", (1,)),
        (["the Ash", "the Wye"], (1, 3)),
        (["the Ash", "the sea"], ()),
    ],
]


@pytest.mark.parametrize(("target", "gold"), GOLDS)
def test_targets_are_letters_or_options(target: Any, gold: tuple[int, ...]) -> None:
    sample = json.loads((LOGS / "inspect" / "finished.json").read_text(encoding="utf-8"))[
        "samples"
    ][0]
    assert logged_item({**sample, "target": target}, "here")[1].gold == gold


def test_texts_may_be_parts_and_attachments(tmp_path: Path) -> None:
    parts = [
        {"type": "reasoning", "reasoning": "B, no: A"},
        {"type": "text", "text": "attachment://long"},
    ]
    message = {"message": {"role": "assistant", "content": parts}}
    log = changed(tmp_path, output={"choices": [message]}, attachments={"long": "ANSWER: D"})
    assert next(iter(log.items)).generated == "ANSWER: D"


def test_no_secret_of_the_model_is_kept(tmp_path: Path) -> None:
    def change(log: Any) -> None:
        log["eval"] |= {
            "model_args": {"api_key": "sk-secret"},
            "model_base_url": "https://me:sk-secret@host",
        }

    (run,) = import_log(edited(golden("inspect/finished.json", tmp_path), change), tmp_path / "run")
    written = b"".join(
        file.read_bytes() for file in (tmp_path / "run").rglob("*") if file.is_file()
    )
    assert b"sk-secret" not in written
    assert run.manifest.imported is not None
    assert run.manifest.imported.settings["solver"] == "multiple_choice"


@pytest.mark.parametrize(
    ("release", "rule"),
    [
        ("0.3.42", "inspect@0.3.42"),
        ("0.3.130", "inspect@0.3.121"),
        ("0.3.263", "inspect@0.3.221"),
        ("0.4.0.dev1", OWN),
    ],
)
def test_the_rule_is_that_of_the_release(release: str, rule: str) -> None:
    assert rules({"eval": {"packages": {"inspect_ai": release}}})[0] == rule


TOWN = "leaderboard|town|5|0"
NORM = "acc:logprob_normalization=LogProb"


def lighteval_logs(path: Path, results: Path | None = None) -> dict[str, Log]:
    return {log.task: log for log in read_logs([path], None, results)}


def details(folder: Path, task: str) -> Path:
    (file,) = (
        each for each in folder.rglob("*.parquet") if each.name.startswith(f"details_{task}_")
    )
    return file


def changed_detail(file: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """The details after ``change`` of their first row, without the types that the file had."""
    rows = pq.read_table(file).to_pylist()
    change(rows[0])
    pq.write_table(pa.Table.from_pylist(rows), file)
    return file


def test_values_whose_meaning_is_not_known_are_named(tmp_path: Path) -> None:
    log = lighteval_logs(golden("lighteval/until-0.9", tmp_path))[TOWN]
    first, *others = log.items
    named = replace(log, items=(replace(first, recorded={**first.recorded, "f1": 0.5}), *others))
    assert read_state(log).unused == ()
    assert read_state(named).unused == (Gist("values f1, "),)


def test_a_verdict_of_lighteval_that_does_not_follow_is_told(tmp_path: Path) -> None:
    folder = golden("lighteval/since-0.10", tmp_path)
    name = f"{NORM}PMINorm(name='norm_pmi')"
    changed_detail(
        details(folder, "town|0"), lambda row: row["metric"].update({name: 1 - row["metric"][name]})
    )
    (log,) = lighteval_logs(folder).values()
    (note,) = read_state(log).notes
    assert note == Gist(f"{name} of 1 of 3 items ... such as 0")
    changed_detail(
        details(folder, "town|0"), lambda row: row["metric"].update(acc=1 - row["metric"]["acc"])
    )
    (log,) = lighteval_logs(folder).values()
    with pytest.raises(DataError, match="contradicts itself"):
        read_state(log)


def test_a_run_has_the_numbers_of_lighteval_and_more(tmp_path: Path) -> None:
    folder = golden("lighteval/since-0.10", tmp_path)
    numbers = {
        name: value for name, (value, *_) in values(one_run(folder, tmp_path / "run")).items()
    }
    names = {"sum": "acc", "char_mean": f"{NORM}CharNorm(name='norm', ignore_first_space=False)"}
    names |= {
        "token_mean": f"{NORM}TokenNorm(name='norm_token')",
        "pmi": f"{NORM}PMINorm(name='norm_pmi')",
    }
    (log,) = lighteval_logs(folder).values()
    for name, recorded in names.items():
        assert numbers[name] == pytest.approx(log.recorded[recorded])
    assert sum(value is not None for value in numbers.values()) > 10


def test_the_newest_of_several_dates_is_taken_of_each_model(tmp_path: Path) -> None:
    folder = golden("lighteval/since-0.10", tmp_path)
    new = details(folder, "town|0")
    old = (
        new.parents[1]
        / "2020-01-01T00-00-00.000000"
        / "details_town|0_2020-01-01T00-00-00.000000.parquet"
    )
    old.parent.mkdir()
    old.write_bytes(new.read_bytes())
    (log,) = lighteval_logs(folder).values()
    assert Gist(f"{old.name} is older") in log.unused
    folder = golden("lighteval/from-0.4", tmp_path)
    file = next(folder.rglob("*.parquet"))
    other = folder / "details" / "other" / "model" / file.parent.name / file.name
    other.parent.mkdir(parents=True)
    other.write_bytes(file.read_bytes())
    assert sorted(log.model for log in read_logs([folder])) == ["made-up/words", "other/model"]


def test_results_of_something_else_are_refused(tmp_path: Path) -> None:
    folder = golden("lighteval/since-0.10", tmp_path)
    (results,) = folder.rglob("results_*.json")
    file = details(folder, "town|0")
    assert lighteval_logs(file, results)["town|0"].recorded["acc"] == pytest.approx(1 / 3)
    with pytest.raises(DataError, match="no results .* task town"):
        lighteval_logs(file, edited(results, lambda said: said["results"].pop("town|0") and None))
    with pytest.raises(DataError, match="not a results file"):
        lighteval_logs(file, edited(results, lambda said: said.pop("config_general") and None))
    results.write_text(json.dumps({"config_general": {}})[:-3], encoding="utf-8")
    with pytest.raises(DataError, match="results_.* is not valid JSON"):
        lighteval_logs(file)


@pytest.mark.parametrize(
    ("numbers", "missing"),
    [
        ([-1.0, -2.0, -3.0], "the log has 3 predictions for 4 choices"),
        ([float("nan"), -2.0, -3.0, -4.0], Gist("log-likelihood ... nan")),
        ([None, -2.0, -3.0, -4.0], Gist("log-likelihood ... None")),
    ],
)
def test_what_the_log_lacks_and_no_gold_are_missing(
    tmp_path: Path, numbers: list[float | None], missing: str
) -> None:
    folder = golden("lighteval/since-0.10", tmp_path)
    changed_detail(
        details(folder, "town|0"), lambda row: row["model_response"].update(logprobs=numbers)
    )
    (log,) = lighteval_logs(folder).values()
    assert next(iter(log.items)).choices[0].missing == missing
    golden("lighteval/since-0.10", tmp_path)
    changed_detail(details(folder, "town|0"), lambda row: row["doc"].update(gold_index=9))
    assert values(one_run(folder, tmp_path / "run"))["sum"][1:] == (2, 1)


def test_other_files_and_text_alone_are_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "details_x.parquet"
    pq.write_table(pa.table({"item": [1]}), file)
    with pytest.raises(DataError, match="row 0 .* predictions nor doc"):
        read_logs([file])
    pq.write_table(pa.table({"predictions": pa.array([], pa.list_(pa.float64()))}), file)
    with pytest.raises(DataError, match="holds no rows"):
        read_logs([file])
    file.write_bytes(b"PAR1" + bytes(20))
    with pytest.raises(DataError, match="as Parquet"):
        read_logs([file])
    with pytest.raises(DataError, match=r"town_text\|0 is not multiple choice"):
        read_logs([details(golden("lighteval/since-0.10", tmp_path), "town_text|0")])


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("[(-1.5, False), (nan, True)]", [(-1.5, False), (None, True)]),
        ("[-inf, 2.0]", [float("-inf"), 2.0]),
        ("[np.float64(-1.5)]", [-1.5]),
        ("['nan', \"it's inf\"]", ["nan", "it's inf"]),
    ],
)
def test_cells_spell_values_of_python(cell: str, value: object) -> None:
    row = detail({"predictions": cell, "metrics": "{'acc': 1}"}, 0, "a row")
    assert (row.predictions, row.metrics) == (value, {"acc": 1})


@pytest.mark.parametrize(
    "cell", ["__import__('os').remove('x')", "[" * 100_000, "[1, 2", "x" * 2_000_000]
)
def test_cells_run_no_code(cell: str) -> None:
    with pytest.raises(DataError, match="a row, column predictions"):
        detail({"predictions": cell}, 0, "a row")
