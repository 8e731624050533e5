"""Logs of Inspect become runs: what it judged follows from the text, and what is broken is refused by name."""

import json
import re
import zipfile
from pathlib import Path
from typing import Any

import pytest

from choicewise import import_log, open_run
from choicewise.errors import DataError
from choicewise.interchange.logs.files import unpacked
from choicewise.interchange.logs.import_log import read_logs, read_state
from choicewise.interchange.logs.inspect import logged_item, rules
from choicewise.interchange.logs.log import Log
from tests.helpers.golden_logs import LOGS, edited, golden

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
    assert note.startswith("choice of 1 of 6 items is another than its own answers give, such as town 0")
    scores = {"choice": {"value": float("nan")}, "grade": {"value": "excellent"}, "share": {"value": 0.5}}
    assert next(iter(changed(tmp_path, scores=scores).items)).recorded == {"share": 0.5}


def test_a_run_has_a_row_for_every_rule_and_an_epoch_is_a_run_of_its_own(tmp_path: Path) -> None:
    (run,) = import_log(LOGS / "inspect" / "finished.eval", tmp_path / "run")
    rows = {row["protocol"]: row for row in run.report().to_pylist()}
    assert rows[f"town:{OWN}"]["value"] == pytest.approx(3 / 6)  # of the six that ask for one letter
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
    with pytest.raises(DataError, match="status error and 6 of 7 samples; .* finish it with `inspect eval-retry`"):
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
        (lambda log: log.update(eval=1), "does not say what was evaluated"),
        (lambda log: log["samples"].append(log["samples"][0]), "holds 1 samples twice in epoch 1"),
        (lambda log: log["samples"][0].update(choices=None), "sample 1 (from 1) (id 'town 0') has no choices"),
        (lambda log: log["samples"].insert(0, 7), "sample 1 (from 1) is no sample of Inspect"),
    ],
)
def test_what_is_no_log_is_refused_by_name(tmp_path: Path, change: Any, reason: str) -> None:
    with pytest.raises(DataError, match=f"finished.json.*{re.escape(reason)}"):
        edited_log(tmp_path, change)


@pytest.mark.parametrize("name", ["finished.json", "finished.eval"])
def test_a_log_that_was_cut_off_is_refused(tmp_path: Path, name: str) -> None:
    path = golden(f"inspect/{name}", tmp_path)
    path.write_bytes(path.read_bytes()[:9000])
    with pytest.raises(DataError, match=f"{name}.*(cut off|damaged)"):
        read_logs([path])


GOLDS: list[tuple[Any, tuple[int, ...]]] = [
    *[("A", (0,)), ("d", (3,)), (["A", "C"], (0, 2)), ("A,B", (0, 1)), ("BD", (1, 3)), ("E", ()), ("?", ()), ("", ())],
    *[("0", ()), ("Bad", ()), ("the Ash", (1,)), (["the Ash", "the Wye"], (1, 3)), (["the Ash", "the sea"], ())],
]


@pytest.mark.parametrize(("target", "gold"), GOLDS)
def test_targets_are_letters_or_options(target: Any, gold: tuple[int, ...]) -> None:
    sample = json.loads((LOGS / "inspect" / "finished.json").read_text(encoding="utf-8"))["samples"][0]
    assert logged_item({**sample, "target": target}, "here")[1].gold == gold


def test_texts_may_be_parts_and_attachments(tmp_path: Path) -> None:
    parts = [{"type": "reasoning", "reasoning": "B, no: A"}, {"type": "text", "text": "attachment://long"}]
    message = {"message": {"role": "assistant", "content": parts}}
    log = changed(tmp_path, output={"choices": [message]}, attachments={"long": "ANSWER: D"})
    assert next(iter(log.items)).generated == "ANSWER: D"


def test_no_secret_of_the_model_is_kept(tmp_path: Path) -> None:
    def change(log: Any) -> None:
        log["eval"] |= {"model_args": {"api_key": "sk-secret"}, "model_base_url": "https://me:sk-secret@host"}

    (run,) = import_log(edited(golden("inspect/finished.json", tmp_path), change), tmp_path / "run")
    written = b"".join(file.read_bytes() for file in (tmp_path / "run").rglob("*") if file.is_file())
    assert b"sk-secret" not in written
    assert run.manifest.imported is not None
    assert run.manifest.imported.settings["solver"] == "multiple_choice"


@pytest.mark.parametrize(
    ("release", "rule"),
    [("0.3.42", "inspect@0.3.42"), ("0.3.130", "inspect@0.3.121"), ("0.3.263", "inspect@0.3.221"), ("0.4.0.dev1", OWN)],
)
def test_the_rule_is_that_of_the_release(release: str, rule: str) -> None:
    assert rules({"eval": {"packages": {"inspect_ai": release}}})[0] == rule
