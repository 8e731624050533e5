"""`choicewise ladder` as a user types it: what a run can show, and the line that asks the rest."""

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from choicewise import evaluate, open_dataset
from choicewise.errors import ChoicewiseError, ProtocolError, UsageError
from choicewise.protocols.catalogue import resolve
from choicewise.records import BLOCK_FOLDER
from choicewise.results.run import open_run
from choicewise.store.folder import read_manifest, write_manifest
from choicewise.util.text import command_line
from tests.helpers.commands import choicewise
from tests.helpers.mmlu_data import write_mmlu

ENDS = "mmlu/original", "mmlu/harness-v0"
NEAR = "mmlu/original", "mmlu/harness-v0.4"
FAKE = "--model", "fake:hash"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_mmlu(tmp_path_factory.mktemp("it's $HOME") / "data")


@pytest.fixture(scope="module")
def asked(data: Path) -> list[object]:
    """What is asked on the first items of one subject."""
    return [*FAKE, "--data", data, "--subject", "tides", "--limit", "4"]


def begun(out: Path, asked: list[object], protocols: tuple[str, ...]) -> Path:
    choicewise(
        "run",
        *asked,
        "--out",
        out,
        *(word for name in protocols for word in ("--protocol", name)),
        code=0,
    )
    return out


@pytest.fixture(scope="module")
def folder(asked: list[object], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of both ends, and nothing between them; nobody changes it."""
    return begun(tmp_path_factory.mktemp("runs") / "a run", asked, ENDS)


@pytest.mark.costly("a run and the line that adds twelve protocols")
def test_the_line_that_is_printed_asks_the_rest_when_it_is_pasted(
    asked: list[object], tmp_path: Path
) -> None:
    folder = begun(tmp_path / "a run", asked, NEAR)
    shown = choicewise("ladder", *NEAR, folder)
    assert "strip, header, fit, 2 more *" in shown.stdout
    told = re.fullmatch(
        r"an item that \w+ turns (right|wrong): `(.*) --item tides/test/\d`\n", shown.stderr
    )
    assert told is not None
    assert told[2] == command_line("explain", folder)
    assert "* combined" in shown.stdout
    line = shown.stdout.splitlines()[-1]
    assert "--subject tides" in line
    choicewise(*shlex.split(line)[1:], code=0)
    content = json.loads(choicewise("ladder", *NEAR, folder, "--json").stdout)
    assert content["rest"] is None
    assert all(len(turn["axes"]) == 1 for turn in content["turns"])
    assert [step["n"] for step in content["in_order"]["steps"]] == [4] * 6


def test_a_run_that_was_begun_by_no_line_names_its_parts(data: Path, tmp_path: Path) -> None:
    ends, parts = (
        ("mmlu/original", "mmlu/helm"),
        {"data": open_dataset(data), "subjects": ["trees"], "limit": 2},
    )
    evaluate(model="fake:hash", **parts, protocols=ends, out=tmp_path / "run")
    shown = choicewise("ladder", *ends, tmp_path / "run")
    line = "choicewise run --model fake:hash --data data --protocol mmlu/original..mmlu/helm --subject trees --limit 2"
    assert line in shown.stdout
    assert "run has no paths" in shown.stderr


@pytest.mark.costly("three ladders and two runs")
def test_all_at_once_is_the_same_as_the_line(asked: list[object], tmp_path: Path) -> None:
    out = ["--out", tmp_path / "all"]
    shown = choicewise("ladder", *NEAR, *asked, *out, code=0)
    assert "this asks" not in shown.stdout
    assert f"`{command_line('ladder', *NEAR, tmp_path / 'all')}` shows this again" in shown.stderr
    assert choicewise("ladder", *NEAR, tmp_path / "all").stdout == shown.stdout
    assert choicewise("ladder", *NEAR, *asked, *out).stdout == shown.stdout
    by_line = begun(begun(tmp_path / "a run", asked, NEAR), asked, ("..".join(NEAR),))
    assert choicewise("ladder", *NEAR, by_line).stdout == shown.stdout
    assert set(resolve("..".join(NEAR))) == set(open_run(tmp_path / "all").protocols)


@pytest.mark.costly("half a second where the first of its file pays for imports")
def test_protocols_of_files_and_of_the_run_alone_are_named_by_signature(
    data: Path, tmp_path: Path
) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text(
        'name = "mine/bare"\nbase = "mmlu/original"\n[protocol]\nheader = ""\nshots = 0\n'
    )
    asked = [*FAKE, "--data", data, "--limit", "1"]
    run = begun(tmp_path / "run", asked, (str(mine), "mmlu/original"))
    by_file, by_name = (
        choicewise("ladder", name, "mmlu/original", run).stdout.splitlines()
        for name in (mine, "mine/bare")
    )
    assert f"--protocol {mine}..mmlu/original " in by_file[-1]
    assert by_name[:-1] == by_file[:-1]
    assert "--protocol 'benchmark:mmlu|split:test|" in by_name[-1]
    choicewise("ladder", mine, "mmlu/original", *asked, "--out", run, code=0)
    assert "not one by one" not in choicewise("ladder", "mine/bare", "mmlu/original", run).stdout


@pytest.mark.parametrize(
    ("words", "kind", "message"),
    [
        (
            "mmlu/original mmlu/original RUN",
            UsageError,
            "mmlu/original are the same",
        ),
        (
            "mmlu/harness-v0 mmlu/harness-v0:acc_norm RUN",
            UsageError,
            "same protocol; ",
        ),
        ("mmlu/original mmlu RUN", ProtocolError, "mmlu is several protocols"),
        ("mmlu/original mmlu/hlem RUN", ProtocolError, "did you mean mmlu/helm"),
        (
            "mmlu/original mmlu/helm RUN",
            UsageError,
            "run `choicewise run --model fake:",
        ),
        (
            "mmlu/original mmlu/harness-v0 EMPTY",
            UsageError,
            "has no mmlu/original and mmlu/harness-v0:char_mean_bare",
        ),
        ("mmlu/original mmlu/helm", UsageError, "--model and --data and --out missing"),
        ("mmlu/original mmlu/helm --model fake:hash --data DATA", UsageError, "--out missing"),
        (
            "mmlu/original mmlu/helm RUN --model fake:hash --limit 3 --on-bad-item skip",
            *(UsageError, "--model and --limit and --on-bad-item do not apply"),
        ),
        (
            "mmlu/original mmlu/helm --model fake:hash --data DATA --out RUN --dtype float32",
            *(UsageError, "--dtype does not apply"),
        ),
    ],
)
def test_what_no_ladder_leads_between_is_refused(
    folder: Path, data: Path, tmp_path: Path, words: str, kind: type[ChoicewiseError], message: str
) -> None:
    empty = tmp_path / "empty"
    (empty / BLOCK_FOLDER).mkdir(parents=True)
    (empty / "items.parquet").write_bytes((folder / "items.parquet").read_bytes())
    write_manifest(empty, replace(read_manifest(folder), blocks=(), complete=False))
    places = {"RUN": folder, "DATA": data, "EMPTY": empty}
    refused = choicewise(
        "ladder", *(places.get(word, word) for word in words.split()), code=kind.exit_code
    )
    assert message in refused.stderr


def test_ways_are_protocols_for_other_commands_and_some_need_no_line(
    data: Path, folder: Path
) -> None:
    assert (
        "this asks"
        not in choicewise(
            "ladder", f"{ENDS[1]}:sum", f"{ENDS[1]}:token_mean", folder, code=0
        ).stdout
    )
    way = "..".join(ENDS)
    lines = choicewise(
        "prompts", "--data", data, "--protocol", way, "--limit", "1", code=0
    ).stdout.splitlines()
    names = {json.loads(line)["protocol"] for line in lines}
    assert {f"{way}:header", "mmlu/harness-v0..mmlu/original:sampler"} <= names
    assert (
        "requests"
        in choicewise("run", "--dry-run", *FAKE, "--data", data, "--protocol", way).stdout
    )
    assert "axis" not in choicewise("protocols", "show", f"{way}:header").stderr
    refused = choicewise("report", "--protocol", f"{way}:header", folder, code=UsageError.exit_code)
    assert f"has no {way}:header" in refused.stderr


def test_items_that_only_one_side_scores_are_counted(tmp_path: Path) -> None:
    rows = [
        {"question": f"Which {n}?", "choices": list("pqrs"[: 3 + (n > 0)]), "answer": "A"}
        for n in range(5)
    ]
    (tmp_path / "quiz.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    ends = [tmp_path / "four.toml", tmp_path / "any.toml"]
    for end, choices in zip(ends, ("4", '"any"'), strict=True):
        end.write_text(
            f'base = "mmlu/original"\n[protocol]\nsplit = "-"\nshots = 0\nchoices = {choices}\n'
        )
    asked = [*FAKE, "--data", tmp_path / "quiz.jsonl", "--on-bad-item", "skip"]
    shown = choicewise("ladder", *ends, *asked, "--out", tmp_path / "run", "--json")
    (step,) = json.loads(shown.stdout)["in_order"]["steps"]
    assert (step["n"], step["missing"], step["gained"], step["lost"]) == (4, 1, 0, 0)
    assert step["se"] is not None
    told = choicewise("ladder", *ends, tmp_path / "run").stdout
    assert "% of 4 items to any" in told
    assert "% of 5 items" in told


def test_effects_are_a_report_of_their_own(folder: Path) -> None:
    shown = choicewise("report", folder, "effects")
    assert "a run, " not in shown.stdout
    assert "of 4 items" in shown.stdout
    effects, changes, pairs = json.loads(choicewise("report", folder, "effects", "--json").stdout)
    assert {row["axis"] for row in effects["rows"]} >= {"score", "null"}
    assert effects["rows"][0]["absolute"] == max(row["absolute"] for row in effects["rows"])
    assert sum(row["pairs"] for row in changes["rows"]) == len(pairs["rows"])
    words = ["--protocol", "mmlu/original"]
    refused = choicewise("report", folder, "effects", *words, code=UsageError.exit_code)
    assert "run of fake:hash" in refused.stderr


def test_one_item_is_one(tmp_path: Path) -> None:
    ends = "mmlu/cloze:sum", "mmlu/cloze:token_mean"
    run = begun(
        tmp_path / "run", [*FAKE, "--data", write_mmlu(tmp_path / "data", ("tides",), 1)], ends
    )
    told = choicewise("ladder", *ends, run).stdout
    assert re.search(r"% of 1 item to mmlu/cloze:token_mean \d+\.\d % of 1 item,", told)
    told = choicewise(
        "compare", run, *(word for name in ends for word in ("--protocol", name))
    ).stdout
    assert "points over 1 item" in told
    assert "1 items" not in told
