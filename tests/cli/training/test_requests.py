"""`choicewise requests` and `choicewise import --answers`: what they print, where they point, what they refuse."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from choicewise.extensions.training.bundles.bundle import ROWS
from choicewise.store.folder import BUNDLE
from tests.helpers.commands import choicewise


@pytest.mark.costly("a bundle, its answers and their run")
def test_requests_leave_and_answers_return(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    bundle, run = tmp_path / "bundle", tmp_path / "run"
    asked = (
        "requests",
        "--tokenizer",
        "bundled:merrow-bpe-512",
        "--data",
        "bundled:merrowick",
        "--limit",
        1,
    )
    names = ("--protocol", "mmlu/original", "--protocol", "mmlu/helm", "--subject", "food")
    said = choicewise(*asked, *names, "--out", bundle, code=0)
    assert said.stdout.startswith("1 protocol on merrowick: 1 row of ")
    for part in (
        "mmlu/helm is refused",
        "requests: 100 %",
        f"wrote {bundle};",
        str(bundle / ROWS),
        f"`choicewise import {bundle} --answers FILE --out RUN`",
    ):
        assert part in said.stderr
    refused = choicewise("report", bundle, code=6).stderr
    assert f"{bundle} is a bundle" in refused
    assert "`choicewise import`" in refused
    (row,) = pq.read_table(bundle / ROWS).to_pylist()
    letters = len(row["label_ids"])
    answers = {
        "key": [row["key"]] * letters,
        "place": [row["label_at"]] * letters,
        "token_id": row["label_ids"],
    }
    numbers = [-1.0, -2.0, -3.0, -4.0]
    file = tmp_path / "answers.parquet"
    pq.write_table(pa.table({**answers, "logprob": numbers}), file)
    digest = json.loads((bundle / BUNDLE).read_text())["digest"]
    file.with_suffix(".json").write_text(
        json.dumps({"requests": digest, "model": "stone", "engine": "toy"})
    )
    taken = choicewise("import", bundle, "--answers", file, "--out", run, "--json", code=0)
    (number,) = (each for each in json.loads(taken.stdout) if each["metric"] == "acc")
    assert (number["model"], number["protocol"], number["n"]) == ("stone", "mmlu/original", 1)
    assert "ranks" in taken.stderr
    assert "toy answered for stone" in taken.stderr
    pq.write_table(pa.table({**answers, "logprob": numbers, "rank": [1, 2, 3, 4]}), file)
    ranked = choicewise(
        "import",
        bundle,
        "--answers",
        file,
        "--out",
        tmp_path / "ranked",
        "--model",
        "pebble",
        code=0,
    )
    assert ranked.stdout.startswith("pebble on merrowick: 1 question")
    told = choicewise("explain", tmp_path / "ranked", "--item", "food/test/0", code=0).stdout
    assert "loglikelihood, joint, 5 shots" in told


REFUSED = {
    "--window": (
        ("requests", "--tokenizer", "bytes", "--data", "bundled:merrowick"),
        5,
        "pass a window",
    ),
    "two datasets": (
        ("requests", "--tokenizer", "bytes", "--window", "9"),
        2,
        "2 (mmlu, piqa)",
    ),
    "another tokenizer": (
        ("requests", "--tokenizer", "nobody-here", "--data", "bundled:merrowick"),
        5,
        "no tokenizer",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_can_be_no_bundle_is_refused(tmp_path: Path, case: str) -> None:
    words, code, said = REFUSED[case]
    protocols = ("--protocol", "mmlu/cloze") + (
        ("--protocol", "piqa/harness") if case == "two datasets" else ()
    )
    ended = choicewise(*words, *protocols, "--out", tmp_path / "bundle", code=code)
    assert said in ended.stderr
    assert not (tmp_path / "bundle").exists()


def test_a_bundle_needs_answers_and_answers_a_bundle(tmp_path: Path) -> None:
    (tmp_path / BUNDLE).write_text("{}")
    lacking = choicewise("import", tmp_path, "--out", tmp_path / "run", code=2)
    assert "--answers FILE" in lacking.stderr
    useless = choicewise(
        "import", tmp_path, "--answers", "a.csv", "--task", "x", "--out", tmp_path / "run", code=2
    )
    assert "--task does not apply" in useless.stderr
    two = choicewise(
        "import", tmp_path, tmp_path, "--answers", "a.csv", "--out", tmp_path / "run", code=2
    )
    assert "name only the bundle" in two.stderr
