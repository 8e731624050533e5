"""Other tools' logs as run folders: the numbers, what is checked, what is refused, and that nothing is lost unsaid."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from choicewise import evaluate, import_log, open_run
from choicewise.bundled import MODELS
from choicewise.cli.commands import invoke
from choicewise.errors import ChoicewiseError, DataError, StoreError, UsageError
from choicewise.interchange.logs.import_log import read_logs, read_state, run_of_log
from choicewise.interchange.logs.log import Log, LoggedChoice, LoggedItem, checked_item
from choicewise.page.document import write_page
from choicewise.records import ImportRecord
from choicewise.report.comparison import comparison_lines
from choicewise.report.explain import explanation_lines
from choicewise.requests.render import rendered_requests
from choicewise.results.compare import comparisons
from choicewise.results.explain import explain
from choicewise.results.run import Run
from choicewise.store.folder import read_sweep, write_manifest
from choicewise.store.tables import file_record
from tests.helpers.mmlu_data import write_mmlu

DATE = "2024-06-17T15-44-37.867068"

Rows = list[dict[str, Any]]


def sums(item: int, choices: int = 4) -> list[float]:
    """Log-likelihoods that differ, some of them tied."""
    return [-1.0 - ((3 * item + 7 * place) % 5) / 4 for place in range(choices)]


def texts(item: int, choices: int = 4) -> list[str]:
    return ["stone" + " wall" * ((item + place) % 3) + "ß" * (place % 2) for place in range(choices)]


def sample(item: int, **changes: Any) -> dict[str, Any]:
    """A sample line of the released harness: numbers are texts, requests an object."""
    own, options = sums(item), texts(item)
    context = f"Question: what is {item}?\nAnswer:"
    right = item % 4
    means = [value / len(option) for value, option in zip(own, options, strict=True)]
    answers = [[str(value), str(place == 0)] for place, value in enumerate(own)]
    row = {
        "doc_id": item,
        "doc": {"question": f"what is {item}?", "options": options, "label": right},
        "target": str(right),
        "arguments": {
            f"gen_args_{place}": {"arg_0": context, "arg_1": " " + option} for place, option in enumerate(options)
        },
        "resps": [[answer] for answer in answers],
        "filtered_resps": answers,
        "filter": "none",
        "metrics": ["acc", "acc_norm"],
        "doc_hash": "0" * 64,
        "acc": float(int(np.argmax(own)) == right),
        "acc_norm": float(int(np.argmax(means)) == right),
    }
    return {**row, **changes}


def results_of(rows: Rows, task: str = "stones", **changes: Any) -> dict[str, Any]:
    count = len(rows)
    totals = {f"{name},none": sum(row[name] for row in rows) / count for name in ("acc", "acc_norm") if name in rows[0]}
    content = {
        "results": {task: {"alias": task, **totals}},
        "configs": {task: {"task": task, "output_type": "multiple_choice", "target_delimiter": " ", "num_fewshot": 0}},
        "versions": {task: 1.0},
        "n-shot": {task: 0},
        "n-samples": {task: {"original": count, "effective": count}},
        "config": {
            "model": "hf",
            "model_args": "pretrained=org/stone-7b,dtype=bfloat16,token=hf_secret",
            "model_dtype": "torch.bfloat16",
            "model_sha": "abc",
        },
    }
    return {**content, **changes}


def write_lines(path: Path, rows: Rows) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def write_harness(folder: Path, rows: Rows, task: str = "stones", results: dict[str, Any] | None = None) -> Path:
    """Samples and results as the released harness leaves them; the file of samples."""
    path = write_lines(folder / f"samples_{task}_{DATE}.jsonl", rows)
    content = results_of(rows, task) if results is None else results
    (folder / f"results_{DATE}.json").write_text(json.dumps(content), encoding="utf-8")
    return path


def only(runs: Sequence[Run]) -> Run:
    (run,) = runs
    return run


def imported(run: Run) -> ImportRecord:
    assert run.manifest.imported is not None
    return run.manifest.imported


def values(run: Run) -> dict[str, tuple[float | None, int, int]]:
    """(value, n, missing) by the part of the protocol's name after the task."""
    rows = run.report().to_pylist()
    return {row["protocol"].partition(":")[2]: (row["value"], row["n"], row["missing"]) for row in rows}


def reasons(run: Run) -> dict[str, str]:
    return {row.protocol.partition(":")[2]: row.missing_reasons[0].reason for row in run.rows() if row.missing_reasons}


def table_rows(items: int = 6, **more: Callable[[int, int], Any]) -> Rows:
    rows = []
    for item in range(items):
        for choice, value in enumerate(sums(item)):
            row = {"item": f"q{item}", "choice": choice, "loglikelihood": value, "gold": item % 4}
            rows.append(row | {name: cell(item, choice) for name, cell in more.items()})
    return rows


def write_csv(path: Path, rows: Rows) -> Path:
    names = list(rows[0])
    lines = [
        ",".join(names),
        *(",".join("" if row[name] is None else str(row[name]) for name in names) for row in rows),
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.mark.costly("real logs are read")
class TestHarness:
    """Samples of the harness 0.4."""

    def test_samples_with_results_have_its_numbers_and_many_more(self, tmp_path: Path) -> None:
        rows = [sample(item) for item in range(30)]
        run = only(import_log(write_harness(tmp_path / "out", rows), tmp_path / "run"))
        numbers = values(run)
        assert numbers["sum"][0] == pytest.approx(np.mean([row["acc"] for row in rows]))
        assert numbers["char_mean_bare"][0] == pytest.approx(np.mean([row["acc_norm"] for row in rows]))
        known = [name for name, (_, n, missing) in numbers.items() if n == 30 and not missing]
        assert len(set(known) - {"sum", "char_mean_bare"}) >= 10
        assert run.manifest.model.name == "org/stone-7b"
        assert run.manifest.model.dtype == "bfloat16"
        assert run.manifest.dataset.name == "stones"
        assert run.manifest.complete

    def test_every_number_is_what_a_plain_computation_gives(self, tmp_path: Path) -> None:
        rows = [sample(item) for item in range(30)]
        run = only(import_log(write_harness(tmp_path / "out", rows), tmp_path / "run"))
        measures: dict[str, Callable[[str], float]] = {
            "byte_mean": lambda text: len(f" {text}".encode()),
            "byte_mean_bare": lambda text: len(text.encode()),
            "char_mean": lambda text: 1 + len(text),
            "char_mean_bare": len,
            "word_mean": lambda text: len(text.split()),
        }
        for name, length in measures.items():
            scores = [[value / length(text) for value, text in zip(sums(i), texts(i), strict=True)] for i in range(30)]
            expected = np.mean([np.argmax(own) == place % 4 for place, own in enumerate(scores)])
            assert values(run)[name][0] == pytest.approx(expected), name
        shares = [np.exp(sums(item)) / np.exp(sums(item)).sum() for item in range(30)]
        assert values(run)["mc2"][0] == pytest.approx(np.mean([own[i % 4] for i, own in enumerate(shares)]))
        assert values(run)["greedy"][0] == pytest.approx(np.mean([item % 4 == 0 for item in range(30)]))

    def test_what_can_not_be_scored_says_what_the_log_lacks(self, tmp_path: Path) -> None:
        run = only(import_log(write_harness(tmp_path / "out", [sample(item) for item in range(5)]), tmp_path / "run"))
        told = reasons(run)
        assert "no token counts" in told["token_mean"]
        assert "no token counts" in told["gnmt_0.6"]
        assert "single tokens" in told["least_likely"]
        assert "null context" in told["pmi"]
        assert set(told) == {
            *("token_mean", "token_power_0.5", "gnmt_0.6", "least_likely", "locally_renormalised", "pmi")
        }

    def test_a_tokenizer_counts_the_tokens(self, tmp_path: Path) -> None:
        path = write_harness(tmp_path / "out", [sample(item) for item in range(8)])
        run = only(import_log(path, tmp_path / "run", tokenizer=MODELS[0]))
        assert values(run)["token_mean"][1:] == (8, 0)
        assert "token counts" in imported(run).settings
        lines = list(explanation_lines(explain(run, "3")))
        assert any("tokens" in line and "bytes" in line for line in lines)

    def test_secrets_of_the_model_are_not_kept(self, tmp_path: Path) -> None:
        import_log(write_harness(tmp_path / "out", [sample(0)]), tmp_path / "run")
        for file in (tmp_path / "run").rglob("*"):
            assert file.is_dir() or b"hf_secret" not in file.read_bytes()

    def test_without_its_results_the_folder_names_the_model(self, tmp_path: Path) -> None:
        path = write_lines(tmp_path / "org__stone-7b" / f"samples_stones_{DATE}.jsonl", [sample(0), sample(1)])
        run = only(import_log(path, tmp_path / "run"))
        assert (run.manifest.model.name, run.manifest.dataset.name) == ("org/stone-7b", "stones")
        run = only(import_log(path, tmp_path / "other", model="mine", task="rocks"))
        assert (run.manifest.model.name, run.manifest.dataset.name) == ("mine", "rocks")
        assert "rocks:sum" in run.protocols

    def test_a_whole_folder_is_a_sweep(self, tmp_path: Path) -> None:
        for model in ("org__stone-7b", "org__sand-7b"):
            folder = tmp_path / "out" / model
            results = results_of([sample(item) for item in range(4)])
            results["config"]["model_args"] = f"pretrained={model.replace('__', '/')}"
            for task in ("stones", "walls"):
                results["results"][task] = results["results"]["stones"]
                results["configs"][task] = results["configs"]["stones"]
                results["n-samples"][task] = results["n-samples"]["stones"]
                write_harness(folder, [sample(item) for item in range(4)], task, results)
        runs = import_log(tmp_path / "out", tmp_path / "runs")
        assert [str(run.folder.relative_to(tmp_path / "runs")) for run in runs] == [
            *("sand-7b/stones", "sand-7b/walls", "stone-7b/stones", "stone-7b/walls")
        ]
        sweep = read_sweep(tmp_path / "runs")
        assert {(cell.model, cell.dataset, cell.done) for cell in sweep.cells} == {
            (model, task, True) for model in ("org/stone-7b", "org/sand-7b") for task in ("stones", "walls")
        }
        before = {file: file.stat().st_mtime_ns for file in (tmp_path / "runs").rglob("*.parquet")}
        import_log(tmp_path / "out", tmp_path / "runs")
        assert before == {file: file.stat().st_mtime_ns for file in before}

    def test_ranks_out_of_order_are_one_measurement(self, tmp_path: Path) -> None:
        rows = [sample(item) for item in range(12)]
        ordered = only(import_log(write_harness(tmp_path / "a", rows), tmp_path / "one"))
        mixed = only(import_log(write_harness(tmp_path / "b", rows[1::2] + rows[::2]), tmp_path / "two"))
        assert ordered.manifest.model.digest == mixed.manifest.model.digest
        assert ordered.manifest.protocols == mixed.manifest.protocols

    def test_texts_make_the_same_protocol_as_rendered_requests(self, tmp_path: Path) -> None:
        rows = [sample(item) for item in range(5)]
        run = only(import_log(write_harness(tmp_path / "out", rows), tmp_path / "run"))
        lines = [
            {
                "item": str(row["doc_id"]),
                "context": row["arguments"]["gen_args_0"]["arg_0"],
                "continuations": [each["arg_1"] for each in row["arguments"].values()],
                "gold": int(row["target"]),
            }
            for row in rows
        ]
        requests = rendered_requests("stones", lines)
        own = requests.protocol("stones", fit="cut-start", boundary="moved-space")
        assert run.protocols["stones:sum"] == own
        assert run.manifest.dataset.name == "stones"

    def test_the_same_items_asked_here_are_comparable(self, tmp_path: Path) -> None:
        rows = [sample(item) for item in range(6)]
        logged = only(import_log(write_harness(tmp_path / "out", rows), tmp_path / "run"))
        requests = rendered_requests(
            "stones",
            [
                {
                    "item": str(row["doc_id"]),
                    "context": row["arguments"]["gen_args_0"]["arg_0"],
                    "continuations": [each["arg_1"] for each in row["arguments"].values()],
                    "gold": int(row["target"]),
                }
                for row in rows
            ],
        )
        asked = {"stones:sum": logged.protocols["stones:sum"]}
        own = evaluate(
            model="fake:hash", data=requests.dataset, protocols=asked, out=tmp_path / "own", rendered=[requests]
        )
        (compared,) = comparisons(logged, own, ["stones:sum"])
        assert compared.verdict == "comparable"
        assert compared.agree.i

    @pytest.mark.parametrize("form", ["lists", "array", "numbers"])
    def test_older_forms(self, form: str, tmp_path: Path) -> None:
        rows = [sample(item) for item in range(4)]
        for row in rows:
            row["arguments"] = [[each["arg_0"], each["arg_1"]] for each in row["arguments"].values()]
            if form != "lists":
                row["resps"] = [[[float(value), flag == "True"]] for [[value, flag]] in row["resps"]]
                row["target"] = int(row["target"])
                del row["filter"], row["metrics"]
        if form == "array":
            folder = tmp_path / "out"
            folder.mkdir()
            (folder / "pretrained__org__stone-7b_stones.jsonl").write_text(json.dumps(rows, indent=2))
            (folder / "results.json").write_text(json.dumps(results_of(rows)))
            run = only(import_log(folder, tmp_path / "run"))
        else:
            run = only(import_log(write_harness(tmp_path / "out", rows), tmp_path / "run"))
        assert (run.manifest.model.name, run.manifest.dataset.name) == ("org/stone-7b", "stones")
        assert values(run)["sum"][0] == pytest.approx(np.mean([row["acc"] for row in rows]))

    def test_unconditional_requests_are_pmi(self, tmp_path: Path) -> None:
        rows = []
        for item in range(9):
            row = sample(item)
            nulls = [-0.5 * (place + 1) for place in range(4)]
            for place, null in enumerate(nulls):
                text = row["arguments"][f"gen_args_{place}"]["arg_1"]
                row["arguments"][f"gen_args_{4 + place}"] = {"arg_0": "", "arg_1": text}
                row["resps"].append([[str(null), "False"]])
            mutual = [value - null for value, null in zip(sums(item), nulls, strict=True)]
            rows.append(row | {"acc_mutual_info": float(int(np.argmax(mutual)) == item % 4)})
        run = only(import_log(write_harness(tmp_path / "out", rows), tmp_path / "run"))
        assert values(run)["pmi"][0] == pytest.approx(np.mean([row["acc_mutual_info"] for row in rows]))
        assert values(run)["normalised_pmi"][1:] == (9, 0)
        assert run.protocols["stones:pmi"].null == ""

    def test_choices_with_contexts_of_their_own(self, tmp_path: Path) -> None:
        rows = []
        for item in range(8):
            row = sample(item, target="and fell.", doc={"answer": str(1 + item % 2), "other": "1"})
            row["arguments"] = {
                f"gen_args_{place}": {"arg_0": f"The {name} stood {item}", "arg_1": " and fell."}
                for place, name in enumerate(("wall", "tower"))
            }
            row["resps"] = row["resps"][:2]
            row["acc"] = float(int(np.argmax(sums(item)[:2])) == item % 2)
            rows.append(row)
            del row["acc_norm"]
        run = only(import_log(write_harness(tmp_path / "out", rows), tmp_path / "run"))
        assert values(run)["sum"][0] == pytest.approx(np.mean([row["acc"] for row in rows]))
        assert [each["gold"] for each in run.tables.items.to_pylist()] == [[item % 2] for item in range(8)]
        shown = explain(run, "1")
        assert shown.choices == ("wall", "tower")
        assert [each.context for each in shown.asked[0].scored] == ["The wall stood 1", "The tower stood 1"]

    def test_several_right_choices(self, tmp_path: Path) -> None:
        rows = [sample(item, target="[0, 2]") for item in range(8)]
        for item, row in enumerate(rows):
            row["acc"] = float(int(np.argmax(sums(item))) in (0, 2))
            del row["acc_norm"]
        run = only(import_log(write_harness(tmp_path / "out", rows), tmp_path / "run"))
        assert values(run)["sum"][0] == pytest.approx(np.mean([row["acc"] for row in rows]))
        assert "mc2-split" in values(run)

    def test_a_right_choice_by_its_text(self, tmp_path: Path) -> None:
        rows = [sample(item, target=texts(item)[item % 4]) for item in range(8)]
        for item, row in enumerate(rows):  # texts stand twice: the first of them counts
            right = texts(item).index(texts(item)[item % 4])
            row["acc"] = float(int(np.argmax(sums(item))) == right)
            del row["acc_norm"]
        run = only(import_log(write_harness(tmp_path / "out", rows), tmp_path / "run"))
        assert values(run)["sum"][0] == pytest.approx(np.mean([row["acc"] for row in rows]))

    def test_a_task_with_its_own_acc_is_read_as_what_it_is(self, tmp_path: Path) -> None:
        rows = []
        for item in range(8):
            shares = np.exp(sums(item)) / np.exp(sums(item)).sum()
            labels = [1, item % 2, 0, 1]
            row = sample(item, target="0", doc={"mc2_targets": {"labels": labels}})
            row["acc"] = float(shares[np.array(labels) == 1].sum())
            del row["acc_norm"]
            rows.append(row)
        run = only(import_log(write_harness(tmp_path / "out", rows), tmp_path / "run"))
        assert values(run)["mc2"][0] == pytest.approx(np.mean([row["acc"] for row in rows]), abs=1e-6)

    def test_one_continuation_per_item(self, tmp_path: Path) -> None:
        rows = []
        for item in range(6):
            row = sample(item, target=" stone")
            row["arguments"] = {"gen_args_0": row["arguments"]["gen_args_0"]}
            row["resps"] = [[[str(sums(item)[0]), str(item % 2 == 0)]]]
            rows.append(row | {"acc": float(item % 2 == 0), "perplexity": sums(item)[0]})
            del rows[-1]["acc_norm"]
        results = results_of(rows)
        results["results"]["stones"]["perplexity,none"] = math.exp(-np.mean([sums(item)[0] for item in range(6)]))
        results["configs"]["stones"]["metric_list"] = [{"metric": "perplexity"}, {"metric": "acc"}]
        run = only(import_log(write_harness(tmp_path / "out", rows, results=results), tmp_path / "run"))
        assert values(run)["greedy"][0] == 0.5
        assert values(run)["perplexity"][0] == pytest.approx(math.exp(-np.mean([sums(item)[0] for item in range(6)])))

    def test_another_filter_is_named_and_left_out(self, tmp_path: Path) -> None:
        rows = [sample(item) for item in range(3)] + [sample(item, filter="strict") for item in range(3)]
        run = only(import_log(write_harness(tmp_path / "out", rows[:3]), tmp_path / "one"))
        path = write_lines(tmp_path / "alone" / f"samples_stones_{DATE}.jsonl", rows)
        both = only(import_log(path, tmp_path / "two"))
        assert values(both) == values(run)
        assert imported(both).unused == ("filter strict",)


class TestWrongSamples:
    """Samples that can't be used, or not in part."""

    def refused(self, tmp_path: Path, rows: Rows, results: dict[str, Any] | None = None) -> str:
        path = write_harness(tmp_path / "out", rows, results=results)
        with pytest.raises(DataError) as error:
            import_log(path, tmp_path / "run")
        assert not (tmp_path / "run").exists()
        return str(error.value)

    def test_cut_off_in_a_line(self, tmp_path: Path) -> None:
        path = write_harness(tmp_path / "out", [sample(item) for item in range(3)])
        path.write_bytes(path.read_bytes()[:-100])
        with pytest.raises(DataError, match=r"line 3: no JSON.*cut off"):
            import_log(path, tmp_path / "run")

    def test_cut_off_in_the_first_line(self, tmp_path: Path) -> None:
        path = write_harness(tmp_path / "out", [sample(0)])
        path.write_bytes(path.read_bytes()[:-100])
        with pytest.raises(DataError, match="line 1: no JSON"):
            import_log(path, tmp_path / "run")

    def test_results_of_other_samples(self, tmp_path: Path) -> None:
        rows = [sample(item) for item in range(8)]
        results = results_of(rows)
        results["results"]["stones"]["acc,none"] += 0.125
        told = self.refused(tmp_path, rows, results)
        assert "does not match" in told
        assert "acc is" in told
        told = self.refused(tmp_path, rows, results_of(rows + rows[:1]))
        assert "of 9 items, and the samples of 8" in told

    def test_results_of_another_task(self, tmp_path: Path) -> None:
        path = write_harness(tmp_path / "out", [sample(0)])
        other = tmp_path / "other.json"
        other.write_text(json.dumps(results_of([sample(0)], "walls")))
        with pytest.raises(DataError, match="no results of stones, but of walls"):
            import_log(path, tmp_path / "run", results=other)

    def test_acc_that_no_right_choice_explains(self, tmp_path: Path) -> None:
        rows = [sample(item) for item in range(8)]
        path = write_lines(tmp_path / f"samples_stones_{DATE}.jsonl", [*rows[:-1], rows[-1] | {"acc": 7.0}])
        with pytest.raises(DataError, match=r"can't be read which choices are right: at doc_id 7 .* acc of 7.0"):
            import_log(path, tmp_path / "run")

    def test_acc_norm_that_disagrees_is_named(self, tmp_path: Path) -> None:
        rows = [sample(item) for item in range(8)]
        rows[2]["acc_norm"] = 1 - rows[2]["acc_norm"]
        run = only(import_log(write_harness(tmp_path / "out", rows), tmp_path / "run"))
        (note,) = imported(run).unused
        assert note.startswith("acc_norm of 1 of 8 items is another than")
        assert " 2: the log says" in note

    def test_two_models_in_one_file(self, tmp_path: Path) -> None:
        rows = [sample(item) for item in range(4)]
        told = self.refused(tmp_path, [*rows, *(sample(item, target="1") for item in range(4))])
        assert "doc_id 0 more than once" in told
        assert "two models" in told

    def test_nan_as_text_and_a_choice_without_an_answer_are_missing(self, tmp_path: Path) -> None:
        rows = [sample(item) for item in range(6)]
        rows[1]["resps"][2] = [["NaN", "False"]]
        rows[3]["resps"][0] = []
        path = write_lines(tmp_path / f"samples_stones_{DATE}.jsonl", rows)
        run = only(import_log(path, tmp_path / "run"))
        assert values(run)["sum"][1:] == (4, 2)
        told = {each.reason for row in run.rows() for each in row.missing_reasons if row.protocol == "stones:sum"}
        assert told == {"the log says NaN", "the log has no answer for it"}

    @pytest.mark.parametrize(("value", "told"), [("inf", "above 0"), ("0.5", "above 0"), ("much", "no number")])
    def test_what_is_no_log_likelihood(self, value: str, told: str, tmp_path: Path) -> None:
        rows = [sample(item) for item in range(3)]
        rows[1]["resps"][2] = [[value, "False"]]
        assert told in self.refused(tmp_path, rows)

    def test_an_impossible_choice_is_no_missing_one(self, tmp_path: Path) -> None:
        rows = [sample(item) for item in range(3)]
        rows[1]["resps"][2] = [["-inf", "False"]]
        run = only(import_log(write_lines(tmp_path / "samples_x.jsonl", rows), tmp_path / "run"))
        assert values(run)["sum"][1:] == (3, 0)

    def test_a_huge_integer(self, tmp_path: Path) -> None:
        rows = [sample(item) for item in range(3)]
        text = "\n".join(json.dumps(row) for row in rows).replace('"-1.0"', "-1" + "0" * 400)
        path = tmp_path / "samples_stones.jsonl"
        path.write_text(text)
        with pytest.raises(DataError, match="which is no number"):
            import_log(path, tmp_path / "run")

    def test_a_right_choice_that_is_none(self, tmp_path: Path) -> None:
        rows = [sample(item) for item in range(6)]
        for row in rows:
            row.pop("acc_norm")
        rows[4] |= {"target": "9", "acc": 0.0}
        run = only(import_log(write_harness(tmp_path / "out", rows), tmp_path / "run"))
        assert values(run)["sum"][1:] == (5, 1)
        assert "the right choice is 9" in reasons(run)["sum"]

    @pytest.mark.parametrize("task", ["generate", "rolling"])
    def test_a_task_without_log_likelihoods(self, task: str, tmp_path: Path) -> None:
        row = sample(0)
        if task == "generate":
            row["arguments"] = {"gen_args_0": {"arg_0": "Question:", "arg_1": {"until": ["\n"]}}}
            row["resps"] = [["four"]]
        else:
            row["arguments"] = {"gen_args_0": {"arg_0": "A whole text."}}
            row["resps"] = [["-12.5"]]
        path = write_lines(tmp_path / "samples_stones.jsonl", [row])
        with pytest.raises(DataError, match="log-likelihood"):
            import_log(path, tmp_path / "run")

    def test_such_a_task_in_a_folder_is_left_out_and_named(self, tmp_path: Path) -> None:
        row = sample(0)
        row["arguments"] = {"gen_args_0": {"arg_0": "Question:", "arg_1": {"until": ["\n"]}}}
        row["resps"] = [["four"]]
        write_lines(tmp_path / "out" / "samples_written.jsonl", [row])
        write_lines(tmp_path / "out" / "samples_stones.jsonl", [sample(0), sample(1)])
        with pytest.warns(UserWarning, match=r"left out: .*samples_written.jsonl"):
            run = only(import_log(tmp_path / "out", tmp_path / "run"))
        assert run.manifest.dataset.name == "stones"

    def test_numbers_of_choices_differ(self, tmp_path: Path) -> None:
        rows = [sample(item) for item in range(4)]
        for row in rows[::2]:
            row["arguments"].pop("gen_args_3")
            row["resps"] = row["resps"][:3]
            row["target"], row["acc"] = "0", float(int(np.argmax(sums(row["doc_id"])[:3])) == 0)
        for row in rows:
            row.pop("acc_norm")
        run = only(import_log(write_harness(tmp_path / "out", rows), tmp_path / "run"))
        assert values(run)["sum"][1:] == (4, 0)

    def test_half_a_character(self, tmp_path: Path) -> None:
        row = sample(0)
        row["arguments"]["gen_args_1"]["arg_1"] = " \ud800"
        path = tmp_path / "samples_stones.jsonl"
        path.write_text(json.dumps(row))
        with pytest.raises(DataError, match="half a character"):
            import_log(path, tmp_path / "run")

    @pytest.mark.parametrize(
        ("content", "told"),
        [
            (b"", "no log that is known"),
            (b'{"a": 1}', "no log that is known"),
            (b"[1, 2]", "no log that is known"),
            (b"\x00\x01\xff", "no log that is known"),
        ],
    )
    def test_files_of_something_else(self, content: bytes, told: str, tmp_path: Path) -> None:
        path = tmp_path / "some.json"
        path.write_bytes(content)
        with pytest.raises(DataError, match=told):
            import_log(path, tmp_path / "run")
        with pytest.raises(DataError):
            import_log(path, tmp_path / "run", format="harness")

    def test_no_file_and_no_format(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match="does not exist"):
            import_log(tmp_path / "none", tmp_path / "run")
        with pytest.raises(UsageError, match="no format of logs"):
            import_log(tmp_path, tmp_path / "run", format="harnes")
        with pytest.raises(UsageError, match="no file was named"):
            import_log([], tmp_path / "run")

    def test_latin_1_and_a_byte_order_mark(self, tmp_path: Path) -> None:
        path = write_harness(tmp_path / "out", [sample(item) for item in range(3)])
        content = path.read_bytes()
        path.write_bytes(b"\xef\xbb\xbf" + content)
        assert values(only(import_log(path, tmp_path / "run")))["sum"][1] == 3
        path.write_bytes(content.decode().encode("latin-1"))
        with pytest.raises(DataError, match="not UTF-8"):
            import_log(path, tmp_path / "other")


@pytest.mark.costly("real logs are read")
class TestV0:
    """Write-out of the harness 0.3."""

    def rows(self) -> Rows:
        rows = []
        for item in range(12):
            context = f"Question: what is {item - 1}?\nAnswer: stone\n\nQuestion: what is {item}?\nAnswer:"
            options = ["a wall", "a wall of stone", "a gate"] if item % 3 else ["one", "two", "three"]
            own = sums(item, 3)
            means = [value / len(option) for value, option in zip(own, options, strict=True)]
            row: dict[str, Any] = {"doc_id": item}
            row |= {f"prompt_{place}": f"{context} {option}" for place, option in enumerate(options)}
            row |= {f"logit_{place}": value for place, value in enumerate(own)}
            row |= {"truth": item % 3, "acc": str(float(int(np.argmax(own)) == item % 3))}
            rows.append(row | {"acc_norm": str(float(int(np.argmax(means)) == item % 3))})
        return rows

    def test_its_own_list(self, tmp_path: Path) -> None:
        path = tmp_path / "stones_write_out_info.json"
        path.write_text(json.dumps(self.rows(), indent=4))
        run = only(import_log(path, tmp_path / "run", model="stone-7b"))
        assert run.manifest.dataset.name == "stones"
        numbers = values(run)
        assert numbers["sum"][0] == pytest.approx(np.mean([row["acc"] == "1.0" for row in self.rows()]))
        assert numbers["char_mean_bare"][0] == pytest.approx(np.mean([row["acc_norm"] == "1.0" for row in self.rows()]))
        (asked,) = explain(run, "1").asked
        assert asked.context is not None
        assert asked.context.endswith("what is 1?\nAnswer:")
        assert [each.continuation for each in asked.scored] == [" a wall", " a wall of stone", " a gate"]

    def test_texts_that_can_not_be_told_apart_are_not_guessed(self, tmp_path: Path) -> None:
        rows = self.rows()
        rows[4]["acc_norm"] = "1.0" if rows[4]["acc_norm"] == "0.0" else "0.0"
        path = tmp_path / "stones_write_out_info.json"
        path.write_text(json.dumps(rows))
        run = only(import_log(path, tmp_path / "run"))
        assert "no texts" in reasons(run)["char_mean_bare"]
        assert values(run)["sum"][1] == 12

    def test_json_lines_without_prompts(self, tmp_path: Path) -> None:
        rows = [{name: row[name] for name in row if not name.startswith("prompt_")} for row in self.rows()]
        run = only(import_log(write_lines(tmp_path / "stone-7b.jsonl", rows), tmp_path / "run"))
        assert run.manifest.model.name == "stone-7b"
        assert values(run)["sum"][1] == 12
        lines = "\n".join(explanation_lines(explain(run, "3")))
        assert "the log has no text of it, tokens unknown" in lines

    def test_cut_off(self, tmp_path: Path) -> None:
        path = tmp_path / "stones_write_out_info.json"
        path.write_text(json.dumps(self.rows())[:-40])
        with pytest.raises(DataError, match="no JSON"):
            import_log(path, tmp_path / "run")

    def test_winogrande_of_two_real_models(self, shared_data: Path, tmp_path: Path) -> None:
        files = sorted((shared_data / "goldens" / "winogrande_real_llms").glob("*.jsonl"))
        runs = import_log(files, tmp_path / "runs", task="winogrande")
        published = {"llama-2-7b": (0.7380, 0.0124), "mistral-7b-v0.1": (0.7814, 0.0116)}
        for run in runs:
            row = next(row for row in run.rows() if row.protocol == "winogrande:sum")
            value, error = published[run.manifest.model.name]
            assert (round(row.value, 4), round(row.se, 4), row.n) == (value, error, 1267)
        (compared,) = comparisons(*runs, ["winogrande:sum"])
        assert compared.verdict == "comparable"
        assert (compared.test.left_only, compared.test.right_only) == (86, 141)
        assert compared.test.p == pytest.approx(0.0003182, rel=1e-3)

    def test_samples_of_a_real_model(self, shared_data: Path, tmp_path: Path) -> None:
        folder = shared_data / "goldens" / "lm_eval_samples_llama3_8b"
        run = only(import_log(folder, tmp_path / "run"))
        rows = {row.protocol.partition(":")[2]: row for row in run.rows()}
        for name in ("sum", "char_mean_bare"):
            assert (rows[name].value, rows[name].n) == (pytest.approx(0.5106732348111659, abs=1e-15), 609)
            assert rows[name].se == pytest.approx(0.020273057132342585, abs=1e-15)
        assert run.manifest.model.name == "meta-llama/Meta-Llama-3-8B"
        assert sum(row.n == 609 for row in rows.values()) >= 12


class TestTable:
    """Plain tables."""

    @pytest.mark.parametrize("suffix", ["csv", "parquet", "jsonl", "tsv"])
    def test_every_file_format_gives_the_same(self, suffix: str, tmp_path: Path) -> None:
        rows = table_rows(
            text=lambda item, choice: " " + texts(item)[choice], is_greedy=lambda item, choice: choice == 0
        )
        path = tmp_path / f"stone-7b.{suffix}"
        if suffix == "csv":
            write_csv(path, rows)
        elif suffix == "tsv":
            write_csv(path, rows)
            path.write_text(path.read_text().replace(",", "\t"))
        elif suffix == "parquet":
            pq.write_table(pa.Table.from_pylist(rows), path)
        else:
            write_lines(path, rows)
        run = only(import_log(path, tmp_path / "run", task="stones"))
        assert (run.manifest.model.name, run.manifest.dataset.name) == ("stone-7b", "stones")
        expected = np.mean([np.argmax(sums(item)) == item % 4 for item in range(6)])
        assert values(run)["sum"] == (pytest.approx(expected), 6, 0)
        assert values(run)["char_mean_bare"][1] == 6
        assert values(run)["greedy"][1] == 6

    def test_the_four_columns_alone(self, tmp_path: Path) -> None:
        run = only(import_log(write_csv(tmp_path / "t.csv", table_rows()), tmp_path / "run"))
        assert values(run)["sum"][1:] == (6, 0)
        told = reasons(run)
        assert "no texts" in told["char_mean"]
        assert "likeliest" in told["greedy"]
        assert values(run)["char_mean"] == (None, 0, 6)

    def test_token_counts_subjects_and_unused_columns(self, tmp_path: Path) -> None:
        rows = table_rows(
            tokens=lambda item, choice: 1 + choice,
            subject=lambda item, choice: f"s{item % 2}",
            speed=lambda item, choice: 1.5,
        )
        run = only(import_log(write_csv(tmp_path / "t.csv", rows), tmp_path / "run"))
        means = [np.array(sums(item)) / (1 + np.arange(4)) for item in range(6)]
        expected = np.mean([np.argmax(own) == item % 4 for item, own in enumerate(means)])
        assert values(run)["token_mean"] == (pytest.approx(expected), 6, 0)
        powered = [np.array(sums(item)) / ((6 + np.arange(4)) / 6) ** 0.6 for item in range(6)]
        assert values(run)["gnmt_0.6"][0] == pytest.approx(
            np.mean([np.argmax(own) == item % 4 for item, own in enumerate(powered)])
        )
        assert {row["subject"] for row in run.report(by="subjects").to_pylist()} == {"s0", "s1"}
        assert imported(run).unused == ("columns speed",)

    @pytest.mark.parametrize("gold", ["index", "list", "flag", "bool", "letter", "from one"])
    def test_ways_to_say_what_is_right(self, gold: str, tmp_path: Path) -> None:
        rows = table_rows()
        for row in rows:
            right = row["choice"] == row["gold"]
            if gold == "flag":
                row["gold"] = int(right)
            elif gold == "bool":
                row["gold"] = str(right)
            elif gold == "list":
                row["gold"] = f"[{row['gold']}]"
            elif gold == "letter":
                row["gold"], row["choice"] = "ABCD"[row["gold"]], "ABCD"[row["choice"]]
            elif gold == "from one":
                row["gold"], row["choice"] = row["gold"] + 1, row["choice"] + 1
        run = only(import_log(write_csv(tmp_path / "t.csv", rows), tmp_path / "run"))
        assert [each["gold"] for each in run.tables.items.to_pylist()] == [[item % 4] for item in range(6)]

    def test_several_right_choices(self, tmp_path: Path) -> None:
        rows = table_rows()
        for row in rows:
            row["gold"] = int(row["choice"] in (0, 2))
        run = only(import_log(write_csv(tmp_path / "t.csv", rows), tmp_path / "run"))
        assert all(each["gold"] == [0, 2] for each in run.tables.items.to_pylist())
        rows = [row | {"gold": [0, 2]} for row in rows]
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / "t.parquet")
        run = only(import_log(tmp_path / "t.parquet", tmp_path / "other"))
        assert all(each["gold"] == [0, 2] for each in run.tables.items.to_pylist())

    def test_two_models_and_tasks_in_one_file(self, tmp_path: Path) -> None:
        rows = [row | {"model": model, "task": task} for model in "ab" for task in "xy" for row in table_rows()]
        runs = import_log(write_csv(tmp_path / "t.csv", rows), tmp_path / "runs")
        assert {(run.manifest.model.name, run.manifest.dataset.name) for run in runs} == {
            *(("a", "x"), ("a", "y"), ("b", "x"), ("b", "y"))
        }
        (compared,) = comparisons(runs[0], next(r for r in runs if r.folder.parent.name == "b"), ["x:sum"])
        assert compared.verdict == "comparable"

    def test_rows_in_any_order_are_one_measurement(self, tmp_path: Path) -> None:
        rows = table_rows(12)
        one = only(import_log(write_csv(tmp_path / "t.csv", rows), tmp_path / "one"))
        two = only(import_log(write_csv(tmp_path / "t.csv", rows[::-1]), tmp_path / "two"))
        assert one.manifest.model.digest == two.manifest.model.digest
        assert one.manifest.protocols == two.manifest.protocols

    def test_unconditional_log_likelihoods(self, tmp_path: Path) -> None:
        rows = table_rows(unconditional=lambda item, choice: -0.5 * (choice + 1))
        run = only(import_log(write_csv(tmp_path / "t.csv", rows), tmp_path / "run"))
        scores = [np.array(sums(item)) + 0.5 * (1 + np.arange(4)) for item in range(6)]
        assert values(run)["pmi"][0] == pytest.approx(
            np.mean([np.argmax(own) == item % 4 for item, own in enumerate(scores)])
        )

    def test_a_missing_row_and_missing_numbers_are_counted(self, tmp_path: Path) -> None:
        rows = table_rows()
        rows[2]["loglikelihood"] = "NaN"
        rows[7]["loglikelihood"] = ""
        del rows[9]
        run = only(import_log(write_csv(tmp_path / "t.csv", rows), tmp_path / "run"))
        assert values(run)["sum"][1:] == (3, 3)
        told = {each.reason for row in run.rows() if row.protocol.endswith(":sum") for each in row.missing_reasons}
        assert told == {"the log has no log-likelihood of it", "the log has no row for it"}

    @pytest.mark.parametrize(
        ("change", "told"),
        [
            ({"loglikelihood": "much"}, "row 1 .*loglikelihood is 'much'"),
            ({"loglikelihood": "0.5"}, "above 0"),
            ({"loglikelihood": "inf"}, "above 0"),
            ({"gold": 4}, "gold differs|gold is '4'"),
            ({"choice": 1}, "two rows for choice 1"),
            ({"choice": 99_999_999}, "choice 1 to 99999999|they count from"),
            ({"item": ""}, "no item"),
        ],
    )
    def test_wrong_cells(self, change: dict[str, Any], told: str, tmp_path: Path) -> None:
        rows = table_rows()
        rows[0] |= change
        with pytest.raises(DataError, match=told):
            import_log(write_csv(tmp_path / "t.csv", rows), tmp_path / "run")
        assert not (tmp_path / "run").exists()

    def test_a_single_slip_does_not_turn_indices_into_flags(self, tmp_path: Path) -> None:
        rows = [row | {"gold": int(row["item"][1:]) % 2} for row in table_rows() if row["choice"] < 2]
        rows[4]["gold"] = 1 - rows[4]["gold"]
        with pytest.raises(DataError, match="item 'q2': gold differs between its rows"):
            import_log(write_csv(tmp_path / "t.csv", rows), tmp_path / "run")

    def test_gold_out_of_range(self, tmp_path: Path) -> None:
        rows = [row | {"gold": 9 if row["item"] == "q3" else row["gold"]} for row in table_rows()]
        with pytest.raises(DataError, match="item 'q3': gold is '9', which is none of its choices 0, 1, 2, 3"):
            import_log(write_csv(tmp_path / "t.csv", rows), tmp_path / "run")

    def test_tokens_that_are_none(self, tmp_path: Path) -> None:
        path = write_csv(tmp_path / "t.csv", table_rows(tokens=lambda item, choice: item - 1))
        with pytest.raises(DataError, match="no number of tokens"):
            import_log(path, tmp_path / "run")

    def test_wrong_columns(self, tmp_path: Path) -> None:
        rows = [{"item": 1, "choice": 0, "loglikelihod": -1, "gold": 0}]
        with pytest.raises(DataError, match=r"no column loglikelihood.*did you mean loglikelihod"):
            import_log(write_csv(tmp_path / "t.csv", rows), tmp_path / "run")

    @pytest.mark.parametrize("content", [b"", b"\n\n", b"item,choice,loglikelihood,gold\n"])
    def test_empty_files(self, content: bytes, tmp_path: Path) -> None:
        (tmp_path / "t.csv").write_bytes(content)
        with pytest.raises(DataError, match=r"empty|no rows|no log that is known"):
            import_log(tmp_path / "t.csv", tmp_path / "run")
        with pytest.raises(DataError, match="empty|no rows"):
            import_log(tmp_path / "t.csv", tmp_path / "run", format="table")

    def test_latin_1_and_a_byte_order_mark(self, tmp_path: Path) -> None:
        path = write_csv(tmp_path / "t.csv", table_rows(text=lambda item, choice: "Straße"))
        content = path.read_bytes()
        path.write_bytes(b"\xef\xbb\xbf" + content)
        assert values(only(import_log(path, tmp_path / "run")))["sum"][1] == 6
        path.write_bytes(content.decode().encode("latin-1"))
        with pytest.raises(DataError, match="not UTF-8"):
            import_log(path, tmp_path / "other")

    def test_a_damaged_parquet_file(self, tmp_path: Path) -> None:
        path = tmp_path / "t.parquet"
        pq.write_table(pa.Table.from_pylist(table_rows()), path)
        path.write_bytes(path.read_bytes()[:-30])
        with pytest.raises(DataError, match="can't be read as Parquet"):
            import_log(path, tmp_path / "run", format="table")


class TestFolder:
    """What becomes of the run folder."""

    def test_again_is_nothing_and_something_else_is_refused(self, tmp_path: Path) -> None:
        path, out = write_csv(tmp_path / "t.csv", table_rows()), tmp_path / "run"
        run = only(import_log(path, out))
        before = {file: file.stat().st_mtime_ns for file in out.rglob("*")}
        import_log(path, out)
        assert before == {file: file.stat().st_mtime_ns for file in before}
        with pytest.raises(StoreError, match="another log"):
            import_log(write_csv(tmp_path / "u.csv", table_rows(7)), out)
        (tmp_path / "full").mkdir()
        (tmp_path / "full" / "notes.txt").write_text("mine")
        with pytest.raises(StoreError, match="holds other files"):
            import_log(path, tmp_path / "full")
        assert values(run) == values(open_run(out))

    def test_a_run_that_was_asked_here_is_refused(self, tmp_path: Path) -> None:
        evaluate(
            model="fake:hash", data=write_mmlu(tmp_path / "data"), protocols=["mmlu/original"], out=tmp_path / "run"
        )
        with pytest.raises(StoreError, match="asked here"):
            import_log(write_csv(tmp_path / "t.csv", table_rows()), tmp_path / "run")

    def test_no_model_goes_on_with_an_import(self, tmp_path: Path) -> None:
        import_log(write_csv(tmp_path / "t.csv", table_rows()), tmp_path / "run")
        with pytest.raises(StoreError, match="no model can go on with it"):
            evaluate(
                model="fake:hash", data=write_mmlu(tmp_path / "data"), protocols=["mmlu/original"], out=tmp_path / "run"
            )

    def test_a_killed_import_is_finished(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("choicewise.interchange.logs.import_log.BLOCK_ITEMS", 2)
        path, out = write_csv(tmp_path / "t.csv", table_rows(7)), tmp_path / "run"
        whole = only(import_log(path, tmp_path / "whole"))

        def killed(*arguments: Any) -> None:
            raise KeyboardInterrupt

        from choicewise.store.folder import RunFolder

        add = RunFolder.add_block
        calls = []

        def once(folder: RunFolder, *arguments: Any) -> None:
            calls.append(1)
            if len(calls) > 2:
                raise KeyboardInterrupt
            add(folder, *arguments)

        monkeypatch.setattr(RunFolder, "add_block", once)
        with pytest.raises(KeyboardInterrupt):
            import_log(path, out)
        monkeypatch.setattr(RunFolder, "add_block", add)
        assert not open_run(out).manifest.complete
        run = only(import_log(path, out))
        assert values(run) == values(whole)
        assert len(run.manifest.blocks) == 4

    def test_mixed_subjects_make_blocks_of_their_own(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("choicewise.interchange.logs.import_log.BLOCK_ITEMS", 3)
        rows = table_rows(11, subject=lambda item, choice: f"s{item % 3}")
        path = write_csv(tmp_path / "t.csv", rows)
        run = only(import_log(path, tmp_path / "run"))
        monkeypatch.setattr("choicewise.interchange.logs.import_log.BLOCK_ITEMS", 1000)
        whole = only(import_log(path, tmp_path / "whole"))
        assert run.scores("log:sum").sort_by("item").equals(whole.scores("log:sum").sort_by("item"))

    def test_one_log_that_can_not_be_used_leaves_the_others(self, tmp_path: Path) -> None:
        write_csv(tmp_path / "a.csv", table_rows())
        write_csv(tmp_path / "b.csv", [row | {"loglikelihood": 1.0} for row in table_rows()])
        with pytest.raises(DataError, match="b on log"):
            import_log([tmp_path / "a.csv", tmp_path / "b.csv"], tmp_path / "runs")
        cells = {cell.model: (cell.done, cell.failure != "") for cell in read_sweep(tmp_path / "runs").cells}
        assert cells == {"a": (True, False), "b": (False, True)}
        assert open_run(tmp_path / "runs" / "a" / "log").manifest.complete

    def test_two_logs_of_the_same_are_refused(self, tmp_path: Path) -> None:
        write_csv(tmp_path / "a.csv", table_rows())
        write_csv(tmp_path / "b.csv", table_rows(7))
        with pytest.raises(UsageError, match=r"two of the logs \(a.csv and b.csv\) are of same on log"):
            import_log([tmp_path / "a.csv", tmp_path / "b.csv"], tmp_path / "runs", model="same")

    def test_a_log_may_be_made_by_hand(self, tmp_path: Path) -> None:
        choices = tuple(LoggedChoice(value, f" {text}") for value, text in zip(sums(0), texts(0), strict=True))
        log = Log("a tool", "m", "t", [LoggedItem("1", (0,), choices, "Q:")], null=None)
        run_of_log(log, tmp_path / "run")
        assert values(open_run(tmp_path / "run"))["sum"][1] == 1
        with pytest.raises(DataError, match="holds no items"):
            read_state(replace(log, items=[]))
        with pytest.raises(DataError, match="has no choices"):
            checked_item(LoggedItem("1", (0,), ()), "a tool")

    def test_doubled_ids_are_refused_whatever_the_tool(self) -> None:
        item = LoggedItem("1", (0,), (LoggedChoice(-1.0), LoggedChoice(-2.0)))
        with pytest.raises(DataError, match="item '1' twice"):
            read_state(Log("a tool", "m", "t", [item, item]))


@pytest.mark.costly("runs are written and read again")
@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.lists(st.floats(-100, 0) | st.just(float("nan")), min_size=1, max_size=5), min_size=1, max_size=6),
    st.randoms(use_true_random=False),
)
def test_any_table_is_scored_as_a_plain_computation_does(
    tmp_path_factory: pytest.TempPathFactory, items: list[list[float]], random: Any
) -> None:
    golds = [random.randrange(len(own)) for own in items]
    rows = [
        {"item": item, "choice": choice, "loglikelihood": repr(value), "gold": golds[item]}
        for item, own in enumerate(items)
        for choice, value in enumerate(own)
    ]
    random.shuffle(rows)
    folder = tmp_path_factory.mktemp("table")
    path = write_csv(folder / "t.csv", rows)
    if all(len(own) == 1 for own in items):
        return  # then they are no choices
    run = only(import_log(path, folder / "run"))
    credits = [
        math.nan if any(map(math.isnan, own)) else float(int(np.argmax(own)) == gold)
        for own, gold in zip(items, golds, strict=True)
    ]
    known = [credit for credit in credits if not math.isnan(credit)]
    value, count, missing = values(run)["sum"]
    assert (count, missing) == (len(known), len(items) - len(known))
    assert value == (pytest.approx(np.mean(known)) if known else None)


def test_formats_are_recognised_or_named(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "t.csv", table_rows())
    (log,) = read_logs([path])
    assert log.tool == "a table"
    with pytest.raises(ChoicewiseError):
        read_logs([path], "harness")


@pytest.mark.costly("real logs are read")
class TestShown:
    """What people see of an imported run."""

    def test_a_page_escapes_markup_and_says_that_no_model_was_asked(self, tmp_path: Path) -> None:
        nasty = "<script>alert(1)</script>"
        rows = [sample(item) for item in range(6)]
        for row in rows:
            row["arguments"]["gen_args_0"]["arg_1"] = f" {nasty}"
            row["arguments"] = {
                name: {"arg_0": f"{nasty} Question?", "arg_1": each["arg_1"]} for name, each in row["arguments"].items()
            }
            row.pop("acc_norm")
        run = only(import_log(write_harness(tmp_path / "out", rows), tmp_path / "run"))
        write_page([run.folder], tmp_path / "page.html")
        page = (tmp_path / "page.html").read_text(encoding="utf-8")
        assert nasty not in page
        assert "No model was asked here" in page
        assert "choicewise import LOG --model org/stone-7b --task stones" in page
        assert "choicewise run --model" not in page
        assert "and no model here" in page

    def test_a_comparison_of_logs_without_texts(self, tmp_path: Path) -> None:
        write_csv(tmp_path / "a.csv", table_rows())
        write_csv(tmp_path / "b.csv", [row | {"loglikelihood": row["loglikelihood"] / 2} for row in table_rows()])
        runs = import_log([tmp_path / "a.csv", tmp_path / "b.csv"], tmp_path / "runs")
        (compared,) = comparisons(*runs, ["log:sum"])
        lines = " ".join(comparison_lines(compared))
        assert "the same items and right answers" in lines
        assert "tokenizer" not in lines

    def test_the_command_says_what_was_not_used(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        path = write_csv(tmp_path / "t.csv", table_rows(speed=lambda item, choice: 1))
        assert invoke(["import", str(path), "--out", str(tmp_path / "run"), "--task", "stones", "--json"]) == 0
        printed = capsys.readouterr()
        rows = {row["protocol"]: row for row in json.loads(printed.out)}
        assert rows["stones:sum"]["n"] == 6
        assert rows["stones:char_mean"]["missing_reasons"][0]["reason"].startswith("the log has no texts")
        assert "not used: columns speed" in printed.err

    def test_values_that_are_not_imported_are_named(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """The harness writes f1 as a pair of right answer and prediction, and others as numbers."""
        write_harness(tmp_path / "log", [sample(item, f1=[0, 1], brier_score="0.25") for item in range(3)])
        assert invoke(["import", str(tmp_path / "log"), "--out", str(tmp_path / "run")]) == 0
        told = capsys.readouterr().err.splitlines()
        assert "  not used: metrics brier_score, which are not checked" in told
        assert "  not used: metrics f1, which are no number of an item" in told

    def test_an_explanation_names_counts_and_the_tool(self, tmp_path: Path) -> None:
        rows = table_rows(tokens=lambda item, choice: 1 + choice, text=lambda item, choice: f" w{choice}")
        run = only(import_log(write_csv(tmp_path / "t.csv", rows), tmp_path / "run"))
        lines = "\n".join(explanation_lines(explain(run, "q1")))
        assert 'choice 1 "␠w1": 2 tokens, 3 bytes, 3 characters, S = ' in lines
        assert "boundary of a table" in lines


def test_folders_without_the_later_columns_are_read(tmp_path: Path) -> None:
    """Observations had no counts and flags before other tools' logs could have them."""
    data = write_mmlu(tmp_path / "data")
    run = evaluate(model="fake:hash", data=data, protocols=["mmlu/cloze:sum"], out=tmp_path / "run")
    expected = values(run)
    blocks = []
    for block in run.manifest.blocks:
        path = run.folder / "blocks" / block.name / "observations.parquet"
        pq.write_table(pq.ParquetFile(path).read().drop_columns(["token_count", "greedy"]), path)
        blocks.append(replace(block, files={**block.files, path.name: file_record(path)}))
    write_manifest(run.folder, replace(run.manifest, blocks=tuple(blocks), complete=False))
    assert values(open_run(run.folder)) == expected
    assert open_run(run.folder).observations()["token_count"].null_count > 0
    more = evaluate(model="fake:hash", data=data, protocols=["mmlu/cloze:token_mean"], out=tmp_path / "run")
    assert values(more)["cloze:sum" if "cloze:sum" in values(more) else "sum"][1] == 12
