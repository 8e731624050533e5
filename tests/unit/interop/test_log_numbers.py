"""An import leads with the log's own numbers, beside those of its answers: of every tool, on every screen."""

import json
from pathlib import Path

import numpy as np
import pytest

from choicewise.extensions.interop.export import export
from choicewise.extensions.interop.logs.import_log import read_logs, read_state
from choicewise.page.document import write_page
from choicewise.records import ImportRecord
from choicewise.report.logged import log_line
from choicewise.util.text import short
from tests.helpers.commands import choicewise
from tests.helpers.harness_logs import mean, sample, samples, sums, write_harness
from tests.helpers.imported_runs import golden, one_run
from tests.helpers.messages import Gist

TOTALS = {"acc": 0.254, "acc_stderr": 0.01, "acc_norm": 0.271, "f1": 0.5}


@pytest.mark.parametrize(
    ("recomputed", "line"),
    [
        ({}, Gist("acc 25.4, acc_norm 27.1, f1 50.0 ... not recomputed")),
        (
            {"acc": 0.254, "acc_norm": 0.271},
            "acc 25.4, acc_norm 27.1 in the log; recomputed: the same",
        ),
        ({"acc": 0.2541}, "acc 25.4 in the log; recomputed: acc 25.4"),
        (
            {"acc": 0.254, "acc_norm": 0.269},
            "acc 25.4, acc_norm 27.1 in the log; recomputed: acc_norm 26.9",
        ),
    ],
)
def test_the_line_has_the_numbers_of_the_log_and_those_that_differ(
    recomputed: dict[str, float], line: str
) -> None:
    assert log_line(ImportRecord("tool", recorded=TOTALS, recomputed=recomputed)) == line


def test_three_numbers_are_listed_and_long_names_are_cut() -> None:
    recorded = {f"acc:{'norm_' * 9}{number}": number / 10 for number in range(5)}
    line = log_line(ImportRecord("tool", recorded=recorded, recomputed=recorded))
    assert " and 2 more in the log; " in line
    assert len(line) < 150
    last = list(recorded)[-1]
    line = log_line(ImportRecord("tool", recorded=recorded, recomputed={**recorded, last: 0.5}))
    assert line.startswith(short(last, 24) + " 40.0, ")
    assert line.endswith(" 50.0")


def test_a_log_without_numbers_has_no_line() -> None:
    assert log_line(ImportRecord("tool")) == ""
    assert log_line(ImportRecord("tool", recorded={"word_perplexity": 12.5})) == ""


@pytest.mark.parametrize(
    ("tool", "task", "line"),
    [
        (
            "helm",
            "town:method=multiple_choice_joint",
            "exact_match 20.0 in the log; recomputed: the same",
        ),
        (
            "lighteval/until-0.9",
            "helm|town_letters|5|0",
            "acc 66.7 in the log; recomputed: the same",
        ),
        # Inspect counts an item with two right choices as wrong, and no rule of ours does.
        ("inspect/finished.json", "town", Gist("choice/accuracy 42.9 ... not recomputed")),
    ],
)
def test_logs_of_other_tools_have_their_numbers_recomputed(
    tool: str, task: str, line: str, tmp_path: Path
) -> None:
    lines = {}
    for log in read_logs([golden(tool, tmp_path)]):
        numbers = read_state(log).numbers
        record = ImportRecord(log.tool, recorded=numbers.recorded, recomputed=numbers.recomputed)
        lines[log.task] = log_line(record)
    assert lines[task] == line, lines


def test_without_totals_the_values_of_the_items_are_averaged(tmp_path: Path) -> None:
    rows = samples(12)
    path = write_harness(tmp_path / "log", rows)
    path.with_name(path.name.replace("samples_stones", "results")).with_suffix(".json").unlink()
    run = one_run(path, tmp_path / "run")
    assert run.manifest.imported is not None
    expected = {"acc": mean(rows), "acc_norm": mean(rows, "acc_norm")}
    assert run.manifest.imported.recorded == pytest.approx(expected)
    assert run.manifest.imported.recomputed == pytest.approx(expected)


def test_the_acc_of_a_task_that_computes_mc2_is_recomputed_as_mc2(tmp_path: Path) -> None:
    exp = np.exp([sums(item) for item in range(6)])
    share = exp[:, 0] / exp.sum(axis=1)
    rows = [sample(item, target="0", acc=share[item], acc_norm=None) for item in range(6)]
    for item, row in enumerate(rows):
        row["doc"] = {"labels": [1, 0, 0, 0]}
        row["acc"] = share[item]
    run = one_run(write_harness(tmp_path / "log", rows), tmp_path / "run")
    assert run.manifest.imported is not None
    assert run.manifest.imported.recomputed["acc"] == pytest.approx(share.mean())


@pytest.mark.costly("a page and two exports are written")
def test_every_screen_leads_with_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = samples(12)
    write_harness(tmp_path / "log", rows)
    numbers = f"acc {100 * mean(rows):.1f}, acc_norm {100 * mean(rows, 'acc_norm'):.1f}"
    line = f"{numbers} in the log; recomputed: the same"
    for words in (["import", "log", "--out", "run"], ["report", "run"], ["report", "run", "--all"]):
        assert choicewise(*words, code=0).stdout.startswith(f"{line}\n"), words
    assert json.loads(choicewise("report", "run", "--json", code=0).stdout)
    write_page(["run"], Path("page.html"))
    assert f"<p>{line}</p>" in Path("page.html").read_text("utf-8")
    assert export("run", "csv", "out").notes[0] == f"run: {line}"
