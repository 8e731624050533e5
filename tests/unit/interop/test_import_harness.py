"""Logs of lm-evaluation-harness as runs: its numbers and more, which choice is right, and what is refused by name."""

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from choicewise import Run, evaluate, import_log, open_run
from choicewise.bundled import MODELS
from choicewise.errors import DataError, UsageError
from choicewise.extensions.comparison.compare import comparisons
from choicewise.extensions.explain.item_report import explanation_lines
from choicewise.extensions.interop.logs.harness import samples_of
from choicewise.extensions.interop.logs.harness_samples import read_items, sample_rows, scan_samples
from choicewise.extensions.interop.logs.harness_v0 import ENDING
from choicewise.extensions.interop.logs.harness_v0 import read_logs as read_write_out
from choicewise.extensions.interop.logs.import_log import read_logs, read_state
from choicewise.page.document import write_page
from choicewise.requests.render import rendered_requests
from choicewise.results.explain import explain
from choicewise.store.folder import read_sweep
from tests.helpers.commands import choicewise
from tests.helpers.harness_logs import (
    DATE,
    mean,
    results_of,
    right,
    sample,
    samples,
    sums,
    texts,
    write_harness,
)
from tests.helpers.imported_runs import Rows, one_run, reasons, unused, values, write_lines
from tests.helpers.messages import Gist

NO_TEXT = {
    "arguments": {"gen_args_0": {"arg_0": "Question:", "arg_1": {"until": ["\n"]}}},
    "resps": [["four"]],
}
"""What a sample of a task that is answered in text has."""


def run_of(rows: Rows, folder: Path, **named: Any) -> Run:
    return one_run(write_harness(folder / "log", rows), folder / "run", **named)


def golds(rows: Rows, folder: Path) -> tuple[str, list[tuple[int, ...]]]:
    """How a file says which choices are right, and the right ones of each item."""
    path = write_lines(folder / "samples_stones.jsonl", rows)
    scan = scan_samples(path, sample_rows(path), None)
    return scan.gold.name, [
        item.gold for item in read_items(sample_rows(path), scan, task_computes=False)
    ]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Of thirty samples with their results."""
    return run_of(samples(30), tmp_path_factory.mktemp("thirty"))


# Samples of the harness 0.4


def test_samples_with_results_have_its_numbers_and_many_more(run: Run) -> None:
    numbers = values(run)
    assert {row["protocol"]: row["value"] for row in run.report().to_pylist()}[
        "stones:sum"
    ] == numbers["sum"][0]
    assert numbers["sum"][0] == pytest.approx(mean(samples(30)))
    assert numbers["char_mean_bare"][0] == pytest.approx(mean(samples(30), "acc_norm"))
    known = [name for name, (_, n, missing) in numbers.items() if n == 30 and not missing]
    assert len(set(known) - {"sum", "char_mean_bare"}) >= 10
    assert (run.manifest.model.name, run.manifest.model.dtype) == ("org/stone-7b", "bfloat16")
    assert run.manifest.dataset.name == "stones"
    assert run.manifest.complete


def test_every_number_is_what_a_plain_computation_gives(run: Run) -> None:
    numbers = values(run)
    measures = {
        "byte_mean": lambda text: len(f" {text}".encode()),
        "byte_mean_bare": lambda text: len(text.encode()),
        "char_mean": lambda text: 1 + len(text),
        "char_mean_bare": len,
        "word_mean": lambda text: len(text.split()),
    }
    for name, length in measures.items():
        scores = [
            [value / length(text) for value, text in zip(sums(i), texts(i), strict=True)]
            for i in range(30)
        ]
        expected = np.mean([right(own, item % 4) for item, own in enumerate(scores)])
        assert numbers[name][0] == pytest.approx(expected), name
    shares = [np.exp(sums(item)) / np.exp(sums(item)).sum() for item in range(30)]
    assert numbers["mc2"][0] == pytest.approx(np.mean([own[i % 4] for i, own in enumerate(shares)]))
    assert numbers["greedy"][0] == pytest.approx(np.mean([item % 4 == 0 for item in range(30)]))


def test_what_can_not_be_scored_says_what_the_log_lacks_and_no_secret_is_kept(run: Run) -> None:
    lacks = dict.fromkeys(("token_mean", "token_power_0.5", "gnmt_0.6"), "no token counts")
    lacks |= {
        "least_likely": "single tokens",
        "locally_renormalised": "single tokens",
        "pmi": "null context",
    }
    said = reasons(run)
    assert said.keys() == lacks.keys()
    assert all(reason in said[name] for name, reason in lacks.items())
    files = [file for file in run.folder.rglob("*") if file.is_file()]
    assert files
    assert not any(b"hf_secret" in file.read_bytes() for file in files)


@pytest.mark.parametrize(
    ("limit", "size", "asked", "part"),
    [
        (8.0, 609, 8, ["8 of 609 items"]),
        (0.013, 609, 8, ["8 of 609 items"]),
        (8.0, 8, None, []),
        (None, 9, None, ["8 of 9 items"]),
        (math.inf, 9, 8, ["8 of 9 items"]),
    ],
)
def test_a_part_of_a_task_says_so(
    limit: float | None, size: int, asked: int | None, part: list[str], tmp_path: Path
) -> None:
    results = results_of(samples(8))
    results["n-samples"]["stones"]["original"] = size
    results["config"]["limit"] = limit
    log = write_harness(tmp_path / "log", samples(8), results=results)
    told = choicewise("import", log, "--out", tmp_path / "run", code=0)
    numbers, title = told.stdout.splitlines()[:2]
    for text in (told.stderr, numbers):
        assert re.findall(r"8 of \d+ items", text) == part
    assert (f"(first {asked} of" in title) == (asked is not None)
    run = open_run(tmp_path / "run")
    assert run.manifest.selection.limit == asked


def test_a_tokenizer_counts_the_tokens(tmp_path: Path) -> None:
    run = run_of(samples(8), tmp_path, tokenizer=MODELS[0])
    assert values(run)["token_mean"][1:] == (8, 0)
    assert run.manifest.imported is not None
    assert "token counts" in run.manifest.imported.settings
    assert any(
        "tokens" in line and "bytes" in line for line in explanation_lines(explain(run, "3"))
    )


def test_without_its_results_the_folder_names_the_model(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "org__stone-7b" / f"samples_stones_{DATE}.jsonl", samples(2))
    (log,) = read_logs([path])
    assert (log.model, log.task) == ("org/stone-7b", "stones")
    run = one_run(path, tmp_path / "other", model="mine", task="rocks")
    assert (run.manifest.model.name, run.manifest.dataset.name) == ("mine", "rocks")
    assert "rocks:sum" in run.protocols


def test_results_name_the_samples_of_their_run_which_may_have_any_order(tmp_path: Path) -> None:
    path = write_harness(tmp_path, samples(2))
    write_lines(tmp_path / "samples_stones_2025-01-01T00-00-00.000001.jsonl", samples(2))
    results = tmp_path / f"results_{DATE}.json"
    assert samples_of(results) == [path]
    path.unlink()
    with pytest.raises(DataError, match="holds only totals"):
        samples_of(results)
    rows = samples(12)  # of several ranks, which are in no order
    orders = {"ordered": rows, "mixed": rows[1::2] + rows[::2]}
    logs = [read_logs([write_harness(tmp_path / name, own)])[0] for name, own in orders.items()]
    assert read_state(logs[0]) == read_state(logs[1])


def test_a_whole_folder_is_a_sweep(tmp_path: Path) -> None:
    for model in ("org/stone-7b", "org/sand-7b"):
        results = results_of(samples(4))
        results["config"]["model_args"] = f"pretrained={model}"
        for task in ("stones", "walls"):
            for part in ("results", "configs", "n-samples"):
                results[part][task] = results[part]["stones"]
            write_harness(tmp_path / "out" / model.replace("/", "__"), samples(4), task, results)
    runs = import_log(tmp_path / "out", tmp_path / "runs")
    folders = [str(run.folder.relative_to(tmp_path / "runs")) for run in runs]
    assert folders == ["sand-7b/stones", "sand-7b/walls", "stone-7b/stones", "stone-7b/walls"]
    assert {
        (cell.model, cell.dataset, cell.done) for cell in read_sweep(tmp_path / "runs").cells
    } == {
        (model, task, True)
        for model in ("org/stone-7b", "org/sand-7b")
        for task in ("stones", "walls")
    }
    before = {file: file.stat().st_mtime_ns for file in (tmp_path / "runs").rglob("*.parquet")}
    import_log(tmp_path / "out", tmp_path / "runs")
    assert before == {file: file.stat().st_mtime_ns for file in before}


def test_the_same_items_asked_here_are_the_same_protocol_and_comparable(tmp_path: Path) -> None:
    rows = samples(6)
    logged = run_of(rows, tmp_path)
    asked = [[*row["arguments"].values()] for row in rows]
    lines = [
        {"item": str(row["doc_id"]), "context": pairs[0]["arg_0"], "gold": int(row["target"])}
        | {"continuations": [pair["arg_1"] for pair in pairs]}
        for row, pairs in zip(rows, asked, strict=True)
    ]
    requests = rendered_requests("stones", lines)
    protocol = requests.protocol("stones", fit="cut-start", boundary="moved-space")
    assert logged.protocols["stones:sum"] == protocol
    asked_here = {
        "data": requests.dataset,
        "protocols": {"stones:sum": protocol},
        "rendered": [requests],
    }
    own = evaluate(model="fake:hash", out=tmp_path / "own", **asked_here)
    (compared,) = comparisons(logged, own, ["stones:sum"])
    assert compared.verdict == "comparable"
    assert compared.agree.i


@pytest.mark.parametrize("form", ["lists", "array", "numbers"])
def test_older_forms(form: str, tmp_path: Path) -> None:
    rows, folder = samples(4), tmp_path / "log"
    for row in rows:
        row["arguments"] = [[each["arg_0"], each["arg_1"]] for each in row["arguments"].values()]
        if form != "lists":
            row["resps"] = [[[float(value), flag == "True"]] for [[value, flag]] in row["resps"]]
            row["target"] = int(row["target"])
            del row["filter"], row["metrics"]
    if form == "array":
        folder.mkdir()
        (folder / "pretrained__org__stone-7b_stones.jsonl").write_text(json.dumps(rows, indent=2))
        (folder / "results.json").write_text(json.dumps(results_of(rows)))
    else:
        write_harness(folder, rows)
    run = one_run(folder, tmp_path / "run")
    assert (run.manifest.model.name, run.manifest.dataset.name) == ("org/stone-7b", "stones")
    assert values(run)["sum"][0] == pytest.approx(mean(rows))


def test_unconditional_requests_are_pmi(tmp_path: Path) -> None:
    rows, nulls = samples(9), [-0.5, -1.0, -1.5, -2.0]
    for item, row in enumerate(rows):
        for place in range(4):
            text = row["arguments"][f"gen_args_{place}"]["arg_1"]
            row["arguments"][f"gen_args_{4 + place}"] = {"arg_0": "", "arg_1": text}
        row["resps"] += [[[str(null), "False"]] for null in nulls]
        row["acc_mutual_info"] = right(
            [value - null for value, null in zip(sums(item), nulls, strict=True)], item % 4
        )
    run = run_of(rows, tmp_path)
    assert values(run)["pmi"][0] == pytest.approx(mean(rows, "acc_mutual_info"))
    assert (values(run)["normalised_pmi"][1:], run.protocols["stones:pmi"].null) == ((9, 0), "")


def test_choices_with_contexts_of_their_own(tmp_path: Path) -> None:
    rows = samples(8, target="and fell.", acc_norm=None)
    for item, row in enumerate(rows):
        contexts = [f"The {name} stood {item}" for name in ("wall", "tower")]
        row["arguments"] = {
            f"gen_args_{n}": {"arg_0": each, "arg_1": " and fell."}
            for n, each in enumerate(contexts)
        }
        row["resps"] = row["resps"][:2]
        row |= {
            "doc": {"answer": str(1 + item % 2), "other": "1"},
            "acc": right(sums(item)[:2], item % 2),
        }
    assert golds(rows, tmp_path) == (
        "field answer, counted from 1",
        [(item % 2,) for item in range(8)],
    )
    run = run_of(rows, tmp_path)
    assert values(run)["sum"][0] == pytest.approx(mean(rows))
    shown = explain(run, "1")
    assert shown.choices == ("wall", "tower")
    assert [each.context for each in shown.asked[0].scored] == [
        "The wall stood 1",
        "The tower stood 1",
    ]


def test_several_right_choices_and_one_by_its_text(tmp_path: Path) -> None:
    several = [
        sample(item, target="[0, 2]", acc=right(sums(item), 0, 2), acc_norm=None)
        for item in range(8)
    ]
    first = [
        texts(item).index(texts(item)[item % 4]) for item in range(8)
    ]  # of texts that stand twice
    named = [
        sample(n, target=texts(n)[n % 4], acc=right(sums(n), gold), acc_norm=None)
        for n, gold in enumerate(first)
    ]
    for rows, expected in ((several, [(0, 2)] * 8), (named, [(place,) for place in first])):
        assert golds(rows, tmp_path) == ("target", expected)
    numbers = values(run_of(several, tmp_path))
    assert numbers["sum"][0] == pytest.approx(mean(several))
    assert "mc2-split" in numbers


def test_a_task_with_its_own_acc_is_read_as_what_it_is(tmp_path: Path) -> None:
    rows = samples(8, target="0", acc_norm=None)
    for item, row in enumerate(rows):
        labels, shares = [1, item % 2, 0, 1], np.exp(sums(item)) / np.exp(sums(item)).sum()
        row |= {
            "doc": {"mc2_targets": {"labels": labels}},
            "acc": float(shares[np.array(labels) == 1].sum()),
        }
    assert golds(rows, tmp_path)[1][:2] == [(0, 3), (0, 1, 3)]
    assert values(run_of(rows, tmp_path))["mc2"][0] == pytest.approx(mean(rows), abs=1e-6)


def test_one_continuation_per_item(tmp_path: Path) -> None:
    rows = samples(6, target=" stone", acc_norm=None)
    for item, row in enumerate(rows):
        row["arguments"] = {"gen_args_0": row["arguments"]["gen_args_0"]}
        row["resps"] = [[[str(sums(item)[0]), str(item % 2 == 0)]]]
        row |= {"acc": float(item % 2 == 0), "perplexity": sums(item)[0]}
    perplexity = math.exp(-mean(rows, "perplexity"))
    results = results_of(rows)
    results["results"]["stones"]["perplexity,none"] = perplexity
    results["configs"]["stones"]["metric_list"] = [{"metric": "perplexity"}, {"metric": "acc"}]
    numbers = values(
        one_run(write_harness(tmp_path / "out", rows, results=results), tmp_path / "run")
    )
    assert (numbers["greedy"][0], numbers["perplexity"][0]) == (0.5, pytest.approx(perplexity))


def test_another_filter_is_named_and_left_out(tmp_path: Path) -> None:
    rows = samples(3)
    path = write_lines(
        tmp_path / "alone" / f"samples_stones_{DATE}.jsonl", rows + samples(3, filter="strict")
    )
    both = one_run(path, tmp_path / "two")
    assert (values(both), unused(both)) == (values(run_of(rows, tmp_path)), ("filter strict",))


def test_numbers_of_choices_differ(tmp_path: Path) -> None:
    rows = samples(4, acc_norm=None)
    for row in rows[::2]:
        row["arguments"].pop("gen_args_3")
        row |= {"resps": row["resps"][:3], "target": "0", "acc": right(sums(row["doc_id"])[:3], 0)}
    assert values(run_of(rows, tmp_path))["sum"] == (pytest.approx(mean(rows)), 4, 0)


@pytest.mark.costly("a page is built")
def test_a_page_escapes_markup_and_says_that_no_model_was_asked(tmp_path: Path) -> None:
    nasty = "<script>alert(1)</script>"
    rows = samples(2, acc_norm=None)
    for row in rows:
        row["arguments"]["gen_args_0"]["arg_1"] = f" {nasty}"
        row["arguments"] = {
            name: {**each, "arg_0": f"{nasty} Question?"} for name, each in row["arguments"].items()
        }
    write_page([run_of(rows, tmp_path).folder], tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert nasty not in page
    assert "No model was asked" in page
    assert "choicewise import LOG --model org/stone-7b --task stones" in page
    assert "choicewise run --model" not in page
    assert "and no model here" in page


def test_values_that_are_not_imported_or_disagree_are_named(tmp_path: Path) -> None:
    """The harness writes f1 as a pair of right answer and prediction, and others as numbers."""
    write_harness(tmp_path / "log", samples(3, f1=[0, 1], brier_score="0.25"))
    line = ("import", tmp_path / "log", "--out", tmp_path / "run")
    lines = choicewise(*line, "--all", code=0).stderr.splitlines()
    assert "  not used: metrics brier_score, which are not checked" in lines
    assert Gist("  not used: metrics f1, ") in lines
    in_short = choicewise(*line, code=0).stderr.splitlines()[1]
    assert in_short == Gist("  not used: metrics brier_score, ... ; not used: metrics f1, ")
    assert in_short.endswith(" … (--all)")
    rows = samples(8)
    rows[2]["acc_norm"] = 1 - rows[2]["acc_norm"]
    (note,) = read_state(read_logs([write_harness(tmp_path / "other", rows)])[0]).notes
    assert note.startswith("acc_norm of 1 of 8 items differs from")
    assert " 2: the log has" in note
    assert unused(run_of(rows, tmp_path / "others")) == (note,)


# Samples that can't be used, or not in part


def answered(value: Any, **changes: Any) -> str:
    """Three samples, of which the second has one log-likelihood that is ``value``."""
    rows = samples(3, **changes)
    rows[1]["resps"][2] = [[value, "False"]]
    return spelled(*rows)


def spelled(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


REFUSED = {
    "cut off in a line": (spelled(*samples(3))[:-100], r"line 3: not valid JSON.*cut off"),
    "cut off in the first line": (spelled(sample(0))[:-100], "line 1: not valid JSON"),
    "an odd acc": (
        spelled(*samples(7), sample(7, acc=7.0)),
        r"which choices are right: at doc_id 7 .* acc of 7.0",
    ),
    "two models": (
        spelled(*samples(4), *samples(4, target="1")),
        r"doc_id 0 more than once.*two models",
    ),
    "infinity": (answered("inf"), "above 0"),
    "a probability": (answered("0.5"), "above 0"),
    "a word": (answered("much"), "not a number"),
    "a huge integer": (
        spelled(*samples(3)).replace('"-1.0"', "-1" + "0" * 400),
        "not a number",
    ),
    "half a character": (spelled(sample(0)).replace(" stone wall", " \\ud800"), "half a character"),
    "an answer in text": (spelled(sample(0, **NO_TEXT)), "log-likelihood"),
    "a whole text": (
        spelled(sample(0, arguments={"gen_args_0": {"arg_0": "A."}}, resps=[["-1"]])),
        "log-likelihood",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_samples_that_can_not_be_used(name: str, tmp_path: Path) -> None:
    text, says = REFUSED[name]
    path = tmp_path / f"samples_stones_{DATE}.jsonl"
    path.write_text(text)
    with pytest.raises(DataError, match=says):
        import_log(path, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_results_of_other_samples_or_another_task(tmp_path: Path) -> None:
    results = results_of(samples(8))
    results["results"]["stones"]["acc,none"] += 0.125
    for wrong, says in (
        (results, "does not match.*acc is"),
        (results_of(samples(9)), "of 9 items, and the .* of 8"),
    ):
        with pytest.raises(DataError, match=says):
            import_log(write_harness(tmp_path / "out", samples(8), results=wrong), tmp_path / "run")
    other = tmp_path / "other.json"
    other.write_text(json.dumps(results_of([sample(0)], "walls")))
    with pytest.raises(DataError, match="no results of stones"):
        import_log(write_harness(tmp_path / "out", [sample(0)]), tmp_path / "run", results=other)
    assert not (tmp_path / "run").exists()


def test_what_has_no_number_is_missing_and_says_why(tmp_path: Path) -> None:
    rows = samples(8)
    rows[1]["resps"][2] = [["NaN", "False"]]
    rows[3]["resps"][0] = []
    rows[4] |= {"target": "9", "acc": 0.0}
    rows[6]["resps"][0] = [["-inf", "False"]]  # a choice that is impossible, and not missing
    run = one_run(write_lines(tmp_path / "samples_stones.jsonl", rows), tmp_path / "run")
    assert values(run)["sum"][1:] == (5, 3)
    (row,) = (row for row in run.rows() if row.identity.protocol == "stones:sum")
    assert sorted(each.reason for each in row.missing_reasons) == [
        "the log has NaN",
        Gist("no answer"),
        "the right choice is 9, and there are … choices, counted from 0",
    ]


def test_a_task_without_log_likelihoods_in_a_folder_is_left_out_and_named(tmp_path: Path) -> None:
    write_lines(tmp_path / "out" / "samples_written.jsonl", [sample(0, **NO_TEXT)])
    write_lines(tmp_path / "out" / "samples_stones.jsonl", samples(2))
    with pytest.warns(UserWarning, match=r"left out: .*samples_written.jsonl"):
        (log,) = read_logs([tmp_path / "out"])
    assert log.task == "stones"


def test_a_run_is_no_log(tmp_path: Path) -> None:
    write_lines(tmp_path / "samples_stones.jsonl", samples(2))
    import_log(tmp_path / "samples_stones.jsonl", tmp_path / "run")
    with pytest.raises(DataError, match=r"`choicewise report .*run`"):
        import_log(tmp_path / "run", tmp_path / "again")


@pytest.mark.parametrize("content", [b"", b'{"a": 1}', b"[1, 2]", b"\x00\x01\xff"])
def test_files_of_something_else_no_file_and_no_format(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "some.json"
    path.write_bytes(content)
    with pytest.raises(DataError, match="log .* known format"):
        import_log(path, tmp_path / "run")
    for named, format, error, says in (
        (path, "harness", DataError, None),
        (tmp_path / "none", None, DataError, "does not exist"),
        (tmp_path, "harnes", UsageError, "no format of logs"),
        ([], None, UsageError, "no log was named"),
    ):
        with pytest.raises(error, match=says):
            import_log(named, tmp_path / "run", format=format)


def test_latin_1_and_a_byte_order_mark(tmp_path: Path) -> None:
    path = write_harness(tmp_path, samples(3))
    content = path.read_bytes()
    path.write_bytes(b"\xef\xbb\xbf" + content)
    assert len(list(read_logs([path])[0].items)) == 3
    path.write_bytes(content.decode().encode("latin-1"))
    with pytest.raises(DataError, match="not UTF-8"):
        read_logs([path])


# Write-out of the harness 0.3


def written_out() -> Rows:
    rows = []
    for item in range(12):
        context = (
            f"Question: what is {item - 1}?\nAnswer: stone\n\nQuestion: what is {item}?\nAnswer:"
        )
        options = ["a wall", "a wall of stone", "a gate"] if item % 3 else ["one", "two", "three"]
        own = sums(item, 3)
        means = [value / len(option) for value, option in zip(own, options, strict=True)]
        row: dict[str, Any] = {"doc_id": item, "truth": item % 3}
        row |= {f"prompt_{place}": f"{context} {option}" for place, option in enumerate(options)}
        row |= {f"logit_{place}": value for place, value in enumerate(own)}
        rows.append(
            row | {"acc": str(right(own, item % 3)), "acc_norm": str(right(means, item % 3))}
        )
    return rows


def test_a_list_of_the_harness_0_3(tmp_path: Path) -> None:
    path = tmp_path / f"stones{ENDING}.json"
    path.write_text(json.dumps(written_out(), indent=4))
    run = one_run(path, tmp_path / "run", model="stone-7b")
    assert (run.manifest.model.name, run.manifest.dataset.name) == ("stone-7b", "stones")
    assert values(run)["sum"][0] == pytest.approx(mean(written_out()))
    assert values(run)["char_mean_bare"][0] == pytest.approx(mean(written_out(), "acc_norm"))
    (asked,) = explain(run, "1").asked
    assert asked.context is not None
    assert asked.context.endswith("what is 1?\nAnswer:")
    assert [each.continuation for each in asked.scored] == [
        " a wall",
        " a wall of stone",
        " a gate",
    ]


def test_texts_that_can_not_be_told_apart_are_not_guessed(tmp_path: Path) -> None:
    rows, path = written_out(), tmp_path / f"stones{ENDING}.json"
    rows[4]["acc_norm"] = "1.0" if rows[4]["acc_norm"] == "0.0" else "0.0"
    path.write_text(json.dumps(rows))
    (log,) = read_write_out([path], None)
    state = read_state(log)
    assert "text" not in state.has
    assert state.subjects == {"": 12}
    path.write_text(json.dumps(rows)[:-40])
    with pytest.raises(DataError, match="not valid JSON"):
        read_logs([path])


def test_json_lines_without_prompts(tmp_path: Path) -> None:
    rows = [
        {name: value for name, value in row.items() if "prompt" not in name}
        for row in written_out()
    ]
    run = one_run(write_lines(tmp_path / "stone-7b.jsonl", rows), tmp_path / "run")
    assert (run.manifest.model.name, values(run)["sum"][1]) == ("stone-7b", 12)
    assert "no texts" in reasons(run)["char_mean_bare"]
    assert "tokens unknown" in "\n".join(explanation_lines(explain(run, "3")))


# Real logs


@pytest.mark.costly("two logs of 1,267 items become runs")
def test_winogrande_of_two_real_models(shared_data: Path, tmp_path: Path) -> None:
    files = sorted((shared_data / "goldens" / "winogrande_real_llms").glob("*.jsonl"))
    runs = import_log(files, tmp_path / "runs", task="winogrande")
    published = {"llama-2-7b": (0.7380, 0.0124), "mistral-7b-v0.1": (0.7814, 0.0116)}
    for run in runs:
        assert not any(row.diagnosis.warnings for row in run.rows()), (
            "nothing speaks against real models' numbers"
        )
        (row,) = (row for row in run.rows() if row.identity.protocol == "winogrande:sum")
        assert (round(row.value, 4), round(row.se, 4)) == published[run.manifest.model.name]
        assert row.counts.n == 1267
    (compared,) = comparisons(*runs, ["winogrande:sum"])
    assert (compared.verdict, compared.test.left_only, compared.test.right_only) == (
        "comparable",
        86,
        141,
    )
    assert compared.test.p == pytest.approx(0.0003182, rel=1e-3)


def test_samples_of_a_real_model(shared_data: Path, tmp_path: Path) -> None:
    run = one_run(shared_data / "goldens" / "lm_eval_samples_llama3_8b", tmp_path / "run")
    rows = {row.identity.protocol.partition(":")[2]: row for row in run.rows()}
    for name in ("sum", "char_mean_bare"):
        assert (rows[name].value, rows[name].counts.n) == (
            pytest.approx(0.5106732348111659, abs=1e-15),
            609,
        )
        assert rows[name].se == pytest.approx(0.020273057132342585, abs=1e-15)
    warned = {warning for row in rows.values() for warning in row.diagnosis.warnings}
    assert warned == {"chance", "position"}, (
        "of classes that it guesses, and predicts unlike they are right"
    )
    assert run.manifest.model.name == "meta-llama/Meta-Llama-3-8B"
    assert sum(row.counts.n == 609 for row in rows.values()) >= 12
