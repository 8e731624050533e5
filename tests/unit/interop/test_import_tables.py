"""Tables of log-likelihoods as spreadsheets, data frames and people write them."""

import json
import math
import re
from contextlib import nullcontext
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from choicewise import Run, import_log, open_run
from choicewise.errors import DataError, ProtocolError, UsageError
from choicewise.extensions.comparison.compare import comparisons
from choicewise.extensions.comparison.comparison_report import comparison_lines
from choicewise.extensions.explain.item_report import explanation_lines
from choicewise.extensions.interop.harness_tasks import load
from choicewise.extensions.interop.harness_tasks.as_protocols import load_harness_tasks
from choicewise.extensions.interop.harness_tasks.files import TaskSelector, parse_task
from choicewise.extensions.interop.harness_tasks.rows import task_rows
from choicewise.extensions.interop.logs.import_log import read_logs, read_state
from choicewise.extensions.interop.logs.table import golds_of, read_table
from choicewise.logs import Log
from choicewise.report.tables import legend, report_tables
from choicewise.results.explain import explain
from choicewise.results.summary import keep_summary, summarize
from choicewise.running.job import split_tasks
from choicewise.store.folder import read_sweep, write_manifest
from tests.helpers.commands import choicewise
from tests.helpers.harness_logs import (
    DATE,
    mean,
    results_of,
    right,
    samples,
    sums,
    table_rows,
    texts,
)
from tests.helpers.imported_runs import (
    Rows,
    one_run,
    reasons,
    unused,
    values,
    write_csv,
    write_lines,
)
from tests.helpers.messages import Gist
from tests.helpers.printed import printed

HEAD = "item,choice,loglikelihood,gold"
TABLE = f"{HEAD}\n001,0,-1,0\n001,1,-2,0\n007,0,-2,1\n007,1,-1,1\n"


def imported(folder: Path, rows: Rows) -> Run:
    return one_run(write_csv(folder / "t.csv", rows), folder / "run")


def read(folder: Path, table: str | Rows) -> Log:
    """The log that a table of comma-separated values is."""
    path = folder / "t.csv"
    path.write_text(table, encoding="utf-8", newline="") if isinstance(table, str) else write_csv(
        path, table
    )
    (log,) = read_logs([path])
    return log


def golds(log: Log) -> dict[str, tuple[int, ...]]:
    return {item.id: item.gold for item in log.items}


SPELLINGS = {
    "semicolons": TABLE.replace(",", ";"),
    "crlf": TABLE.replace("\n", "\r\n"),
    "bom": "\ufeff" + TABLE,
    "floats": TABLE.replace(",0\n", ",0.0\n").replace(",1\n", ",1.0\n"),
    "spaces": TABLE.replace(",", " , "),
    "upper case": TABLE.upper(),
}
SPACED = f"{HEAD}\nq, stone,-1, wall\nq, wall,-2, wall\n"


@pytest.mark.parametrize("name", SPELLINGS)
def test_spellings_of_one_table(name: str, tmp_path: Path) -> None:
    assert golds(read(tmp_path, SPELLINGS[name])) == {"001": (0,), "007": (1,)}
    assert golds(read(tmp_path, SPACED)) == {"q": (1,)}


def test_token_counts_that_are_floats_and_flags_that_are_words(tmp_path: Path) -> None:
    log = read(
        tmp_path, f"{HEAD},tokens,is_greedy\nq,0,-4,1,2.0,yes\nq,1,-3,1,1.0,no\nq,2,-9,1,,no\n"
    )
    (item,) = log.items
    assert [(each.tokens, each.greedy) for each in item.choices] == [
        (2, True),
        (1, False),
        (None, False),
    ]
    numbers = values(one_run(tmp_path / "t.csv", tmp_path / "run"))
    assert (numbers["sum"][0], numbers["token_mean"][2], numbers["greedy"][0]) == (1, 1, 0)


@pytest.mark.parametrize("suffix", ["csv", "parquet", "jsonl", "tsv"])
def test_every_file_format_gives_the_same(suffix: str, tmp_path: Path) -> None:
    cells = {
        "text": lambda item, choice: f" {texts(item)[choice]}",
        "is_greedy": lambda item, choice: choice == 0,
    }
    rows, path = table_rows(**cells), tmp_path / f"stone-7b.{suffix}"
    if suffix == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        write_lines(path, rows) if suffix == "jsonl" else write_csv(path, rows)
    if suffix == "tsv":
        path.write_text(path.read_text().replace(",", "\t"))
    run = one_run(path, tmp_path / "run", task="stones")
    assert (run.manifest.model.name, run.manifest.dataset.name) == ("stone-7b", "stones")
    numbers = values(run)
    assert numbers["sum"] == (
        pytest.approx(np.mean([right(sums(item), item % 4) for item in range(6)])),
        6,
        0,
    )
    assert (numbers["char_mean_bare"][1], numbers["greedy"][1]) == (6, 6)


def test_mixed_subjects_keep_their_items(tmp_path: Path) -> None:
    """Subjects take turns in the file, and are read one after the other."""
    lines = ["item,subject,choice,loglikelihood,gold"]
    for item in range(12):
        for choice in range(2):
            is_right = choice == (item // 2) % 2
            # Of subject s0 every answer is right, of s1 none.
            nats = -item - 1 - (is_right == (item % 2))
            lines.append(f"q{item:02},s{item % 2},{choice},{nats},{int(is_right)}")
    path = tmp_path / "log.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    run = one_run(path, tmp_path / "run")
    scores = [row for row in run.scores().to_pylist() if row["protocol"] == "log:sum"]
    assert len(scores) == 24
    for row in scores:
        item = int(row["item"][1:])
        assert math.ceil(row["score"]) in (-item - 1, -item - 2)
        assert row["credit"] == (item % 2 == 0)
    by_subject = [
        (row["subject"], row["value"])
        for row in run.report(by="subjects").to_pylist()
        if row["protocol"] == "log:sum"
    ]
    assert by_subject == [("s0", 1.0), ("s1", 0.0)]
    keep_summary(run)
    kept = summarize(run.folder).outcomes.outcomes[0]
    assert kept.credit.tolist() == [item[-1] in "02468" for item in kept.ids.to_pylist()]


def test_token_counts_subjects_texts_and_unused_columns(tmp_path: Path) -> None:
    cells = {"tokens": lambda item, choice: 1 + choice, "text": lambda item, choice: f" w{choice}"}
    cells |= {"subject": lambda item, choice: f"s{item % 2}", "speed": lambda item, choice: 1.5}
    run = imported(tmp_path, table_rows(**cells))
    for name, divisors in {
        "token_mean": 1 + np.arange(4),
        "gnmt_0.6": ((6 + np.arange(4)) / 6) ** 0.6,
    }.items():
        expected = np.mean([right(sums(item) / divisors, item % 4) for item in range(6)])
        assert values(run)[name] == (pytest.approx(expected), 6, 0)
    assert {row["subject"] for row in run.report(by="subjects").to_pylist()} == {"s0", "s1"}
    assert unused(run) == ("columns speed",)
    lines = "\n".join(explanation_lines(explain(run, "q1")))
    assert 'choice 1 "␠w1": 2 tokens, 3 bytes, 3 characters, S = ' in lines
    assert "boundary of a table" in lines


NAMED = Gist("right choices ... each of its rows")
GOLDS: dict[str, tuple[Any, Gist]] = {
    "index": (lambda choice, gold: (choice, gold), NAMED),
    "list": (lambda choice, gold: (choice, f"[{gold}]"), NAMED),
    "flag": (lambda choice, gold: (choice, int(choice == gold)), Gist("1 on the rows ... , 0 on")),
    "bool": (lambda choice, gold: (choice, choice == gold), Gist("true on the rows")),
    "letter": (lambda choice, gold: ("ABCD"[choice], "ABCD"[gold]), NAMED),
    "from one": (lambda choice, gold: (choice + 1, gold + 1), NAMED),
}
"""Cells of the columns choice and gold, and how they are read."""


@pytest.mark.parametrize("name", GOLDS)
def test_ways_to_say_what_is_right(name: str, tmp_path: Path) -> None:
    cells, about = GOLDS[name]
    rows = [
        row | dict(zip(("choice", "gold"), cells(row["choice"], row["gold"]), strict=True))
        for row in table_rows()
    ]
    log = read(tmp_path, rows)
    assert list(golds(log).values()) == [(item % 4,) for item in range(6)]
    assert golds_of(read_table(tmp_path / "t.csv"))[0] == log.settings["gold"] == about


YES_OR_NO = "q0,True,-2,True\nq0,False,-1,True\nq1,True,-2,False\nq1,False,-1,False\n"


def test_true_and_false_may_be_labels(tmp_path: Path) -> None:
    assert golds(read(tmp_path, f"{HEAD}\n{YES_OR_NO}")) == {"q0": (1,), "q1": (0,)}
    flags = YES_OR_NO.replace("q0,False,-1,True", "q0,False,-1,False")
    flags = flags.replace("q1,True,-2,False", "q1,True,-2,True")
    assert golds(read(tmp_path, f"{HEAD}\n{flags}")) == {"q0": (1,), "q1": (1,)}


@pytest.mark.parametrize("right", [1, True, "x"])
def test_flags_without_a_value_are_refused(right: Any, tmp_path: Path) -> None:
    rows = [row | {"gold": right if row["choice"] == 0 else None} for row in table_rows()]
    path = write_lines(tmp_path / "t.jsonl", rows)
    with pytest.raises(DataError, match="gold differs"):
        list(read_logs([path]))


def test_several_right_choices(tmp_path: Path) -> None:
    flags = [row | {"gold": int(row["choice"] in (0, 2))} for row in table_rows()]
    assert {*golds(read(tmp_path, flags)).values()} == {(0, 2)}
    pq.write_table(
        pa.Table.from_pylist([row | {"gold": [0, 2]} for row in flags]), tmp_path / "t.parquet"
    )
    (log,) = read_logs([tmp_path / "t.parquet"])
    assert {*golds(log).values()} == {(0, 2)}


def test_two_models_and_tasks_in_one_file_and_rows_in_any_order(tmp_path: Path) -> None:
    rows = [
        row | {"model": model, "task": task}
        for model in "ab"
        for task in "xy"
        for row in table_rows()
    ]
    runs = import_log(write_csv(tmp_path / "t.csv", rows), tmp_path / "runs")
    named = {(run.manifest.model.name, run.manifest.dataset.name): run for run in runs}
    assert named.keys() == {("a", "x"), ("a", "y"), ("b", "x"), ("b", "y")}
    (compared,) = comparisons(named["a", "x"], named["b", "x"], ["x:sum"])
    assert compared.verdict == "comparable"
    assert read_state(read(tmp_path, table_rows(12))) == read_state(
        read(tmp_path, table_rows(12)[::-1])
    )


@pytest.mark.parametrize(
    ("cell", "averages"),
    [("", ["micro"]), (" Macro ", ["macro"]), ("macro, micro", ["macro", "micro"])],
)
def test_a_table_says_how_subjects_are_averaged(
    cell: str, averages: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.Table.from_pylist(table_rows(aggregation=lambda *_: cell)), path)
    protocols = one_run(path, tmp_path / "run").protocols
    assert protocols["log:sum"].aggregation == averages[0]
    assert {protocol.aggregation for protocol in protocols.values()} == set(averages)


def test_unconditional_log_likelihoods(tmp_path: Path) -> None:
    run = imported(tmp_path, table_rows(unconditional=lambda item, choice: -0.5 * (choice + 1)))
    scores = [np.array(sums(item)) + 0.5 * (1 + np.arange(4)) for item in range(6)]
    expected = np.mean([right(own, item % 4) for item, own in enumerate(scores)])
    assert values(run)["pmi"][0] == pytest.approx(expected)


def test_missing_columns_rows_and_numbers_are_counted(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    rows = table_rows()
    rows[2]["loglikelihood"] = "NaN"
    rows[7]["loglikelihood"] = ""
    del rows[9]
    whole = imported(tmp_path / "whole", table_rows())
    numbers, lacking = values(whole), reasons(whole)
    assert (numbers["sum"][1:], numbers["char_mean"]) == ((6, 0), (None, 0, 6))
    assert "no texts" in lacking["char_mean"]
    assert "likeliest" in lacking["greedy"]
    run = imported(tmp_path, rows)
    assert values(run)["sum"][1:] == (3, 3)
    (row,) = (row for row in run.rows() if row.identity.protocol.endswith(":sum"))
    lacks = sorted(each.reason for each in row.missing_reasons)
    assert lacks == [Gist("no log-likelihood"), Gist("no row")]


def changed(**cells: Any) -> str:
    """Rows as text, with other cells in the first."""
    rows = table_rows()
    rows[0] |= cells
    return "".join(
        ",".join(map(str, row)) + "\n" for row in [HEAD.split(","), *(row.values() for row in rows)]
    )


def averaged(first: str, second: str) -> str:
    """A table with an aggregation on each of its two rows."""
    return f"{HEAD},aggregation\nq,0,-1,0,{first}\nq,1,-2,0,{second}\n"


ONE_SLIP = f"{HEAD}\nq0,0,-1,0\nq0,1,-2,0\nq1,0,-1,1\nq1,1,-2,1\nq2,0,-1,1\nq2,1,-2,0\n"
"""Indices of right choices, of which one is wrong: it does not turn them into flags."""

REFUSED = [
    (f'{HEAD},text\nq,0,-1,0,"abc\nq,1,-2,0,x\n', r"line \d .*quotes"),
    (f"{HEAD}\nq,0,-1\nq,1,-2,B\n", "row 1 .*3 cells"),
    (TABLE.replace(",", ";").replace("-1;", "-1,5;"), "'-1,5', not a number"),
    (f"{HEAD}\nq,0,-1,B\nq,1,-2,B\n", "in the column choice"),
    (TABLE.replace("-1", "0.7"), "item '001' of a table, choice 0 has the loglikelihood 0.7"),
    (changed(loglikelihood="much"), "row 1 .*loglikelihood is 'much'"),
    (changed(loglikelihood="0.5"), "above 0"),
    (changed(loglikelihood="inf"), "above 0"),
    (changed(gold=4), "gold differs|gold is '4'"),
    (changed(choice=1), "two rows for choice 1"),
    (changed(choice=99_999_999), "choice 1 to 99999999|they count from"),
    (changed(item=""), "no item"),
    (ONE_SLIP, "item 'q2': gold differs"),
    (f"{HEAD}\nq,0,-1,true\nq,1,-2,true\n", "item 'q': gold is true on all of its rows"),
    (TABLE.replace(",1\n", ",9\n"), "item '007': gold is '9', but its choices are 0, 1"),
    (averaged("mean", "mean"), "task log: aggregation is 'mean'.* micro or macro"),
    (averaged("macro;mean", "macro;mean"), "'macro;mean'.* micro or macro"),
    (averaged("micro", "macro"), "'micro' and 'macro'"),
    (averaged("", "macro"), "'' and 'macro'"),
    (f"{HEAD},tokens\nq,0,-1,0,-1\nq,1,-2,0,1\n", "a whole number from 1"),
    (
        "item,choice,loglikelihod,gold\n1,0,-1,0\n",
        r"no column loglikelihood.*did you mean loglikelihod",
    ),
]


@pytest.mark.parametrize(("text", "says"), REFUSED)
def test_what_is_refused(text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=says):
        read_state(read(tmp_path, text))


@pytest.mark.parametrize("content", [b"", b"\n\n", b"item,choice,loglikelihood,gold\n"])
def test_empty_files(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(DataError, match="empty|no rows|not a log"):
        read_logs([tmp_path / "t.csv"])
    with pytest.raises(DataError, match="empty|no rows"):
        read_logs([tmp_path / "t.csv"], "table")


def test_latin_1_a_byte_order_mark_and_a_damaged_parquet_file(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "t.csv", table_rows(text=lambda item, choice: "Straße"))
    content = path.read_bytes()
    path.write_bytes(b"\xef\xbb\xbf" + content)
    assert len(read_table(path).columns) == 24
    path.write_bytes(content.decode().encode("latin-1"))
    with pytest.raises(DataError, match="not UTF-8"):
        read_table(path)
    path = tmp_path / "t.parquet"
    pq.write_table(pa.Table.from_pylist(table_rows()), path)
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(DataError, match="as Parquet"):
        read_logs([path], "table")


@settings(max_examples=8)
@given(
    st.lists(
        st.lists(st.floats(-100, 0) | st.just(math.nan), min_size=1, max_size=5),
        min_size=3,
        max_size=12,
    ),
    st.randoms(use_true_random=False),
)
def test_tables_are_scored(
    tmp_path_factory: pytest.TempPathFactory, items: list[list[float]], random: Any
) -> None:
    answers = [(own, random.randrange(len(own))) for own in items]
    rows = [
        {"item": item, "choice": choice, "loglikelihood": repr(value), "gold": gold}
        for item, (own, gold) in enumerate(answers)
        for choice, value in enumerate(own)
    ]
    random.shuffle(rows)
    if all(len(own) == 1 for own in items):
        return  # then they are no choices
    credits = [math.nan if any(map(math.isnan, own)) else right(own, gold) for own, gold in answers]
    known = [credit for credit in credits if not math.isnan(credit)]
    value, count, missing = values(imported(tmp_path_factory.mktemp("table"), rows))["sum"]
    assert (count, missing) == (len(known), len(items) - len(known))
    assert value == (pytest.approx(np.mean(known)) if known else None)


# What people see of it


def test_what_bare_sums_say_nothing_about_is_one_line(tmp_path: Path) -> None:
    """Of eighteen protocols five have a number; the others have a row as JSON alone."""
    cells = [(f"q{n}", choice, -choice - n, n % 2) for n in range(4) for choice in range(2)]
    rows = imported(
        tmp_path, [dict(zip(HEAD.split(","), row, strict=True)) for row in cells]
    ).rows()
    (table,) = report_tables(rows)
    text = "\n".join(printed(table, width=100))
    assert len(rows) == 18
    assert re.findall(r"^(log:\S+) +\w+ +[0-9]+\.", text, re.MULTILINE) == [
        row.identity.protocol for row in rows if row.counts.n
    ]
    assert "13 protocols: log:token_mean, " in text
    reason = "missing under log:pmi: 4, such as q0: "
    assert any(line.startswith(reason) for line in legend(rows))


def test_a_comparison_of_logs_without_texts(tmp_path: Path) -> None:
    one = write_csv(tmp_path / "a.csv", table_rows())
    other = write_csv(
        tmp_path / "b.csv",
        [row | {"loglikelihood": row["loglikelihood"] / 2} for row in table_rows()],
    )
    (compared,) = comparisons(*import_log([one, other], tmp_path / "runs"), ["log:sum"])
    lines = " ".join(comparison_lines(compared))
    assert "items and right answers" in lines
    assert "tokenizer" not in lines


def test_the_command_says_what_was_not_used(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "t.csv", table_rows(speed=lambda item, choice: 1))
    printed = choicewise(
        "import", path, "--out", tmp_path / "run", "--task", "stones", "--json", code=0
    )
    rows = {row["protocol"]: row for row in json.loads(printed.stdout)}
    assert rows["stones:sum"]["n"] == 6
    assert rows["stones:char_mean"]["missing_reasons"][0]["reason"] == Gist("no texts")
    assert "not used: columns speed" in printed.stderr


SIZES = {"town_a": 4, "town_b": 9, "town_c": 14}


def write_group(
    folder: Path,
    weighted: dict[str, bool],
    tree: dict[str, list[str]] | None = None,
    sizes: dict[str, int] = SIZES,
    **changes: Any,
) -> dict[str, Any]:
    """A folder of the harness on tasks of ``sizes``; ``weighted``: metric → whether the group counts items. ``tree``:
    group → what it names; every group has all numbers."""
    tree = tree or {"towns": [*sizes]}
    rows = {task: samples(size) for task, size in sizes.items()}
    results = results_of(rows["town_a"])
    each = {task: results_of(own, task) for task, own in rows.items()}
    for part in ("results", "configs", "versions", "n-shot", "n-samples"):
        results[part] = {task: own[part][task] for task, own in each.items()}
    results["group_subtasks"] = tree
    results["groups"] = {}

    def leaves(name: str) -> list[str]:
        return [
            leaf for child in tree[name] for leaf in (leaves(child) if child in tree else [child])
        ]

    for group in tree:
        own = leaves(group)
        numbers = {}
        for metric, by_items in weighted.items():
            counts = [sizes[task] if by_items else 1 for task in own]
            means = [mean(rows[task], metric) for task in own]
            numbers[f"{metric},none"] = float(np.average(means, weights=counts))
            numbers[f"{metric}_stderr,none"] = 0.1
        results["groups"][group] = results["results"][group] = {
            "alias": group,
            "name": group,
            **numbers,
        }
    results |= changes
    for task, own_rows in rows.items():
        write_lines(folder / f"samples_{task}_{DATE}.jsonl", own_rows)
    (folder / f"results_{DATE}.json").write_text(json.dumps(results), encoding="utf-8")
    return results


@pytest.mark.parametrize("by_items", [True, False])
def test_a_group_is_one_run_with_its_number(by_items: bool, tmp_path: Path) -> None:
    results = write_group(tmp_path / "out", {"acc": by_items, "acc_norm": by_items})
    run = one_run(tmp_path / "out", tmp_path / "run")
    assert run.manifest.dataset.name == "towns"
    numbers, group = values(run), results["groups"]["towns"]
    assert numbers["sum"][:2] == (pytest.approx(group["acc,none"]), sum(SIZES.values()))
    assert numbers["char_mean_bare"][0] == pytest.approx(group["acc_norm,none"])
    assert run.protocols["towns:sum"].aggregation == ("micro" if by_items else "macro")
    by = {
        row["subject"]: row
        for row in run.report(by="subjects").to_pylist()
        if row["protocol"] == "towns:sum"
    }
    for task in SIZES:
        assert by[task]["value"] == pytest.approx(results["results"][task]["acc,none"])
    assert run.tables.items["item"][0].as_py() == "town_a/0"


@pytest.mark.parametrize(("limit", "asked"), [(9, 9), (0.5, None)])
def test_a_part_of_a_group_says_so(limit: float, asked: int | None, tmp_path: Path) -> None:
    sizes = {"town_a": 4, "town_b": 9, "town_c": 9}
    whole = dict.fromkeys(sizes, 20)
    if limit == 9:
        whole["town_a"] = 4
    counts = {task: {"original": whole[task], "effective": size} for task, size in sizes.items()}
    changes = {"n-samples": counts, "config": {"model": "hf", "limit": limit}}
    write_group(tmp_path / "out", {"acc": True}, sizes=sizes, **changes)
    run = one_run(tmp_path / "out", tmp_path / "run")
    assert run.manifest.selection.limit == asked
    assert any(f"22 of {sum(whole.values())} items" in line for line in unused(run))


def test_metrics_are_averaged_each_in_its_own_way(tmp_path: Path) -> None:
    results = write_group(tmp_path / "out", {"acc": True, "acc_norm": False})
    numbers, group = values(one_run(tmp_path / "out", tmp_path / "run")), results["groups"]["towns"]
    assert numbers["sum"][0] == pytest.approx(group["acc,none"])
    macro = numbers["char_mean_bare@aggregation=macro"][0]
    assert macro == pytest.approx(group["acc_norm,none"])
    assert macro != pytest.approx(numbers["char_mean_bare"][0])


@pytest.mark.parametrize("by_items", [True, False])
def test_equal_sizes_are_averaged_as_the_group_says(by_items: bool, tmp_path: Path) -> None:
    results = write_group(tmp_path / "out", {"acc": True}, sizes={"town_a": 4, "town_b": 4})
    if not by_items:
        results["configs"]["towns"] = {
            "aggregate_metric_list": [{"metric": "acc", "weight_by_size": False}]
        }
    (tmp_path / "out" / f"results_{DATE}.json").write_text(json.dumps(results))
    run = one_run(tmp_path / "out", tmp_path / "run")
    assert run.protocols["towns:sum"].aggregation == ("micro" if by_items else "macro")


def test_of_nested_groups_the_outer_one_is_the_run(tmp_path: Path) -> None:
    tree = {"county": ["inner", "town_c"], "inner": ["town_a", "town_b"]}
    results = write_group(tmp_path / "out", {"acc": True}, tree)
    run = one_run(tmp_path / "out", tmp_path / "run")
    assert run.manifest.dataset.name == "county"
    assert values(run)["sum"][0] == pytest.approx(results["groups"]["county"]["acc,none"])
    assert any("inner" in text for text in unused(run))


def test_a_group_in_a_circle_ends(tmp_path: Path) -> None:
    write_group(
        tmp_path / "out",
        {"acc": True},
        group_subtasks={"towns": ["other"], "other": ["towns", *SIZES]},
    )
    assert len(import_log(tmp_path / "out", tmp_path / "run")) in (1, len(SIZES))


SEPARATE: dict[str, tuple[Any, str]] = {
    "no number": (lambda results: results.update(groups={}) or results["results"].pop("towns"), ""),
    "another number": (
        lambda results: results["groups"]["towns"].update({"acc,none": 0.987}),
        "its acc,none is 0.987, and its tasks have",
    ),
    "absent": (lambda results: None, "missing for 1 of its 3 tasks, such as town_b"),
    "kinds": (
        lambda results: results["configs"]["town_a"].update(output_type="loglikelihood"),
        "output types",
    ),
    "tag": (lambda results: results.update(group_subtasks={}), ""),
}
"""What a file of results says → why the tasks stay apart; nothing is said where it has no group with a number."""


@pytest.mark.parametrize("name", SEPARATE)
def test_tasks_stay_apart_where_they_are_not_the_group(name: str, tmp_path: Path) -> None:
    results, (change, says) = write_group(tmp_path, {"acc": True}), SEPARATE[name]
    change(results)
    (tmp_path / f"results_{DATE}.json").write_text(json.dumps(results))
    if name == "absent":
        (tmp_path / f"samples_town_b_{DATE}.jsonl").unlink()
    with pytest.warns(UserWarning, match=f"separately.*{says}") if says else nullcontext():
        logs = read_logs([tmp_path])
    assert {log.task for log in logs} == {*SIZES} - ({"town_b"} if name == "absent" else set())


def test_broken_files_are_named_and_do_not_lose_the_others(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    write_group(folder, {"acc": True}, group_subtasks={})
    path = folder / f"samples_town_b_{DATE}.jsonl"
    whole = path.read_text()
    path.write_text(whole[:-40])
    with pytest.raises(DataError, match=r"town_b.*line 9.*cut off.*the others are in"):
        import_log(folder, tmp_path / "runs")
    cells = {cell.dataset: cell for cell in read_sweep(tmp_path / "runs").cells}
    assert {task: cell.done for task, cell in cells.items()} == {
        "town_a": True,
        "town_b": False,
        "town_c": True,
    }
    assert "line 9" in cells["town_b"].failure
    for task in ("town_a", "town_c"):
        assert open_run(tmp_path / "runs" / cells[task].folder).manifest.complete
    path.write_text(whole)
    assert len(import_log(folder, tmp_path / "runs")) == 3
    for path in folder.glob("samples_*"):
        path.write_text(path.read_text()[:-40])
    with pytest.raises(DataError, match="3 of 3") as caught:
        import_log(folder, tmp_path / "others")
    assert all(task in str(caught.value) for task in SIZES)


@pytest.mark.parametrize("command", [("report",), ("ladder", "towns:sum", "towns:char_mean_bare")])
def test_an_unfinished_import_is_finished_by_import(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    write_group(tmp_path / "out", {"acc": True})
    run = one_run(tmp_path / "out", tmp_path / "run")
    write_manifest(run.folder, replace(run.manifest, complete=False))
    printed = choicewise(*command, run.folder).stderr
    assert "run the same `choicewise import` command" in printed


LATER = "2025-01-01T00-00-00.000001"


@pytest.mark.parametrize("shots", [0, 5])
def test_of_repeated_runs_the_newest_is_taken(shots: int, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    write_group(folder, {"acc": True})
    rows = samples(3)
    results = results_of(rows, "town_a", **{"n-shot": {"town_a": shots}})
    write_lines(folder / f"samples_town_a_{LATER}.jsonl", rows)
    (folder / f"results_{LATER}.json").write_text(json.dumps(results))
    for task in ("town_b", "town_c"):
        (folder / f"samples_{task}_{DATE}.jsonl").unlink()
    early = folder / f"results_{DATE}.json"
    early.write_text(json.dumps(json.loads(early.read_text()) | {"group_subtasks": {}}))
    if shots:
        with pytest.raises(UsageError, match=rf"{DATE}.* and .*{LATER}.*one by one"):
            import_log(folder, tmp_path / "run")
        return
    run = one_run(folder, tmp_path / "run")
    assert values(run)["sum"][1] == 3
    assert unused(run) == (f"samples_town_a_{DATE}.jsonl, which is older",)


NAMES = {
    "lm-eval:arc_easy": TaskSelector("arc_easy"),
    "lm-eval:arc_easy:acc_norm": TaskSelector("arc_easy", "acc_norm"),
    "lm-eval:arc_easy@shots=5": TaskSelector("arc_easy", None, 5),
    "lm-eval:arc_easy:acc@shots=5": TaskSelector("arc_easy", "acc", 5),
    "lm-eval:arc_easy@shots=0:acc": TaskSelector("arc_easy", "acc", 0),
    "lm-eval:arc_easy@score=sum,shots=5,ties=split": TaskSelector(
        "arc_easy", None, 5, "score=sum,ties=split"
    ),
    "lm-eval:towns::inner": TaskSelector("towns::inner"),
    "lm-eval:towns::inner:acc": TaskSelector("towns::inner", "acc"),
    "lm-eval:a/b@c/t.yaml": TaskSelector("a/b@c/t.yaml"),
    "lm-eval:./t.yml:acc@shots=2": TaskSelector("./t.yml", "acc", 2),
}


@pytest.mark.parametrize("spelled", NAMES)
def test_a_name_says_task_metric_and_changes(spelled: str) -> None:
    assert parse_task(spelled) == NAMES[spelled]


UNNAMED = dict.fromkeys(
    ["", ":acc", "@shots=1", "a@", "a:acc@shots=1:acc"], "names no task; write lm-eval:TASK"
)
UNNAMED |= dict.fromkeys(
    [f"a@shots={n}" for n in ("many", "-1", "", "1.5", "1,shots=2")], "one whole number"
)


@pytest.mark.parametrize("spelled", UNNAMED)
def test_names_that_say_nothing(spelled: str) -> None:
    with pytest.raises(ProtocolError, match=UNNAMED[spelled]):
        parse_task(f"lm-eval:{spelled}")


def test_tasks_are_told_from_protocols() -> None:
    assert split_tasks(["mmlu", "lm-eval:a", "x.toml", "lm-eval:b"]) == (
        ["lm-eval:a", "lm-eval:b"],
        ["mmlu", "x.toml"],
    )


@pytest.mark.parametrize(
    ("release", "says"),
    [
        (None, r"pip install .* '\.\[harness\]'"),
        ("0.4.9", "lm_eval 0.4.9 .* 0.4.12"),
    ],
)
def test_a_package_that_is_too_old_is_named(
    release: str | None, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def installed(name: str) -> str:
        if release is None:
            raise PackageNotFoundError(name)
        return release

    monkeypatch.setattr(load, "version", installed)
    with pytest.raises(UsageError, match=says):
        load_harness_tasks("lm-eval:arc_easy")
    with pytest.raises(UsageError, match="on_bad_item is 'drop'; .* error or skip"):
        load_harness_tasks("lm-eval:arc_easy", on_bad_item="drop")


def test_a_row_of_which_the_harness_makes_no_request_is_named() -> None:
    def fails(doc: object, **about: object) -> str:
        raise KeyError("options")

    task = SimpleNamespace(
        set_fewshot_seed=print, eval_docs=[{}], doc_to_prefix=str, fewshot_context=fails
    )
    task.config = SimpleNamespace(task="roads")
    with pytest.raises(
        DataError,
        match=r"task roads, row 0: .*\(KeyError: 'options'",
    ):
        list(task_rows(task, 0))
