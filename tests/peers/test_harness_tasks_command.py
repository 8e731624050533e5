"""Harness tasks on the command line: one or several in a line, kept going, shown, and refused options."""

import json
from pathlib import Path

import pytest

from choicewise.results.run import open_run
from tests.helpers.commands import choicewise as command
from tests.peers.harness_compared import texts_by_harness, write_task
from tests.peers.test_harness_tasks import PLAIN, SPLITS, rows

FAKE = ("--model", "fake:hash")


def kept(folder: Path, name: str) -> Path:
    """A task whose requests are kept as rendered."""
    return write_task(folder, name, SPLITS, PLAIN.replace("{{question}}", "{{- question -}}"))


def test_one_task_is_one_run_that_goes_on(tmp_path: Path) -> None:
    path, out = write_task(tmp_path, "roads", SPLITS, PLAIN), tmp_path / "run"
    line = ("run", *FAKE, "--protocol", f"lm-eval:{path}", "--out", out, "--json")
    first = command(*line, code=0)
    names = [row["protocol"] for row in json.loads(first.stdout)]
    assert names == ["lm-eval:roads:acc", "lm-eval:roads:acc_norm"]
    manifest = open_run(out).manifest
    assert manifest.dataset.read_with.startswith("lm-eval 0.4.13: task roads, version 2.5")
    blocks = manifest.blocks
    command(*line[:4], f"lm-eval:{path}:acc_bytes@shots=2", *line[5:], code=0)
    assert open_run(out).manifest.blocks[: len(blocks)] == blocks
    assert command(*line).stdout == first.stdout


def test_several_tasks_in_a_line_are_several_runs(tmp_path: Path) -> None:
    write_task(tmp_path, "roads", SPLITS, PLAIN)
    kept(tmp_path, "lanes")
    protocols = ("--protocol", "lm-eval:roads", "--protocol", "lm-eval:lanes:acc", "--include-path", tmp_path)
    line = ("run", *FAKE, *protocols, "--out", tmp_path / "all", "--limit", 5)
    command(*line, code=0)
    runs = sorted(path.parent for path in (tmp_path / "all").glob("*/*/manifest.json"))
    assert [open_run(run).manifest.dataset.name for run in runs] == ["lm-eval:lanes", "lm-eval:roads"]
    assert open_run(runs[0]).manifest.job["include_path"] == [str(tmp_path)]
    times = [(run / "manifest.json").stat().st_mtime_ns for run in runs]
    command(*line, code=0)
    assert [(run / "manifest.json").stat().st_mtime_ns for run in runs] == times


def test_a_sweep_asks_tasks_beside_benchmarks(tmp_path: Path) -> None:
    write_task(tmp_path, "roads", SPLITS, PLAIN)
    plan = tmp_path / "plan.toml"
    plan.write_text('models = ["fake:hash", "fake:oracle"]\nprotocols = ["lm-eval:roads:acc"]\n')
    command("sweep", plan, "--include-path", tmp_path, "--out", tmp_path / "all", "--json", code=0)
    runs = [open_run(path.parent) for path in (tmp_path / "all").glob("*/*/manifest.json")]
    assert sorted(run.manifest.model.name for run in runs) == ["fake:hash", "fake:oracle"]
    assert all(list(run.protocols) == ["lm-eval:roads:acc"] for run in runs)


@pytest.mark.parametrize("shots", ["", "@shots=2"])
def test_prompts_are_those_of_the_harness(shots: str, tmp_path: Path) -> None:
    path = kept(tmp_path, "lanes")
    done = command("prompts", "--protocol", f"lm-eval:{path}:acc{shots}", code=0)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    pairs = [(line["context"], text) for line in lines for text in line["continuations"]]
    assert pairs == texts_by_harness(str(path), shots=int(shots[-1]) if shots else None)["lanes"]
    assert "note: lm-eval:lanes: its requests are kept as the harness renders them" in done.stderr


def test_every_command_shows_such_a_run(tmp_path: Path) -> None:
    path, out = kept(tmp_path, "lanes"), tmp_path / "run"
    command("run", *FAKE, "--protocol", f"lm-eval:{path}", "--out", out, code=0)
    for words in (
        ("report", out),
        ("explain", out, "--item", "3"),
        ("compare", out, out),
        ("page", out, "--out", tmp_path / "page.html"),
        ("ladder", "lm-eval:lanes:acc", "lm-eval:lanes:acc_norm", out),
    ):
        command(*words, code=0)
    assert "read with lm-eval 0.4.13" in (tmp_path / "page.html").read_text()


def test_options_that_do_nothing_are_refused(tmp_path: Path) -> None:
    path = write_task(tmp_path, "roads", {"train": rows(3), "test": rows(3)}, PLAIN)
    own = ("run", *FAKE, "--protocol", f"lm-eval:{path}", "--out", tmp_path / "run")
    for words, says in (
        ((*own, "--data", path), "every protocol has data of its own"),
        ((*own, "--chat", "turns"), "no use for --chat"),
        (("run", *FAKE, "--protocol", "mmlu/original", "--allow-task-code", "--out", "x"), "for --allow-task-code"),
        (("prompts", "--protocol", "mmlu", "--include-path", tmp_path), "no use for --include-path"),
    ):
        done = command(*words, code=2)
        assert says in done.stderr


def test_code_is_asked_for_by_its_option(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def asked(doc):\n    return doc['question']\n")
    text = "\n".join(line for line in PLAIN.split("\n") if not line.startswith("doc_to_text"))
    path = write_task(tmp_path, "roads", SPLITS, text + "doc_to_text: !function own.asked\n")
    line = ("run", *FAKE, "--protocol", f"lm-eval:{path}:acc", "--out", tmp_path / "run")
    assert "doc_to_text: own.asked" in command(*line, code=4).stderr
    command(*line, "--allow-task-code", code=0)
    assert open_run(tmp_path / "run").manifest.job["allow_task_code"] is True
