"""Get this again: the command as it was typed, and the file that says what the columns mean."""

import json
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise.page.study import mapping_text, recipe
from choicewise.protocols.protocol import parse_signature
from choicewise.results.run import open_run
from choicewise.store.folder import read_manifest
from tests.helpers.commands import choicewise
from tests.helpers.mmlu_data import write_mmlu

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
VALUES = st.one_of(TEXTS, st.booleans(), st.integers(0, 99), st.lists(TEXTS), st.dictionaries(TEXTS, TEXTS))
KEYS = st.from_regex(r"[a-z_]{1,9}", fullmatch=True)


@given(st.dictionaries(KEYS, VALUES))
def test_a_mapping_is_written_as_toml_that_reads_back(table: dict[str, object]) -> None:
    assert tomllib.loads(mapping_text(table)) == table


def again(folder: Path) -> list[str]:
    manifest = read_manifest(folder)
    protocols = {name: parse_signature(text) for name, text in manifest.protocols.items()}
    told = recipe(manifest, protocols, folder.name)
    return [told.line, told.file, told.text]


@pytest.mark.costly("several runs")
def test_protocols_stand_as_they_were_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_mmlu(tmp_path / "data", questions=1)
    typed = ("--protocol", "mmlu/harness-v0", "--protocol", "mmlu/original", "--limit", "1")
    choicewise("run", "--model", "fake:hash", "--data", "data", *typed, "--out", "run", code=0)
    line, file, text = again(Path("run"))
    assert line == f"choicewise run --model fake:hash --data data {' '.join(typed)} --out run"
    assert file == text == ""
    choicewise(*line.split()[1:-1], "other", code=0)
    assert open_run("other").manifest.protocols == open_run("run").manifest.protocols


def test_protocols_that_were_asked_later_are_in_the_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_mmlu(tmp_path / "data", questions=1)
    for protocol in ("mmlu/original", "mmlu/helm"):
        choicewise("run", "--model", "fake:hash", "--data", "data", "--protocol", protocol, "--out", "run", code=0)
    assert all(f"--protocol {name}" in again(Path("run"))[0] for name in ("mmlu/original", "mmlu/helm"))


def test_the_mapping_is_kept_and_stands_on_the_page_as_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [{"ask": f"Q{n}?", "a": "x", "b": "y", "key": n % 2} for n in range(4)]
    Path("quiz.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    mapping = 'question = "ask"\nchoices = ["a", "b"]\nanswer = "key"\nanswer_is = "index"  # <from 0>\n'
    Path("my map.toml").write_text(mapping)
    asked = ("run", "--model", "fake:hash", "--data", "quiz.jsonl", "--mapping", "my map.toml")
    choicewise(*asked, "--protocol", "options/cloze:sum", "--out", "run", code=0)
    Path("my map.toml").unlink()
    line, file, text = again(Path("run"))
    assert "--mapping 'my map.toml'" in line
    assert (file, text) == ("my map.toml", mapping)
    choicewise("page", "run", "--out", "page.html", code=0)
    page = Path("page.html").read_text()
    assert "# &lt;from 0&gt;" in page
    assert 'download="my map.toml"' in page
