"""Get this again: the command as it was typed, and the file that says what the columns mean."""

import json
import shlex
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise import evaluate
from choicewise.page.reproduce import mapping_text, recipe
from choicewise.protocols.protocol import parse_signature
from choicewise.records import MANIFEST, Manifest
from choicewise.results.run import open_run
from choicewise.results.summary import state
from choicewise.store.folder import read_manifest, write_manifest
from choicewise.util.jsonio import json_digest
from tests.helpers.commands import choicewise
from tests.helpers.mmlu_data import write_mmlu
from tests.helpers.suite_data import TRIO, known_suites, write_benchmarks

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
VALUES = st.one_of(
    TEXTS, st.booleans(), st.integers(0, 99), st.lists(TEXTS), st.dictionaries(TEXTS, TEXTS)
)
KEYS = st.from_regex(r"[a-z_]{1,9}", fullmatch=True)


@given(st.dictionaries(KEYS, VALUES))
def test_a_mapping_is_written_as_toml_that_reads_back(table: dict[str, object]) -> None:
    assert tomllib.loads(mapping_text(table)) == table


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, in which ``data`` are questions."""
    monkeypatch.chdir(tmp_path)
    write_mmlu(tmp_path / "data", questions=1)
    return tmp_path


ASKED = (
    "--protocol",
    "mmlu/harness-v0",
    "--model",
    "fake:hash",
    "--limit",
    "1",
    "--protocol",
    "mmlu/original",
)
FALLBACK = "choicewise run --model fake:hash --data data --protocol mmlu/harness-v0 --protocol mmlu/original --limit 1"


def again(folder: Path | str) -> list[str]:
    manifest = read_manifest(Path(folder))
    protocols = {name: parse_signature(text) for name, text in manifest.protocols.items()}
    told = recipe(manifest, protocols, Path(folder).name)
    return [told.line, told.file, told.text]


def without_line(folder: Path | str) -> Manifest:
    """The run as versions that kept no line wrote it."""
    write_manifest(Path(folder), replace(read_manifest(Path(folder)), command=()))
    content = json.loads((Path(folder) / MANIFEST).read_text())
    about = {name: content.pop(name) for name in ("format", "version", "sha256")}
    del content["command"]
    (Path(folder) / MANIFEST).write_text(
        json.dumps({**about, "sha256": json_digest(content), **content})
    )
    return read_manifest(Path(folder))


@pytest.mark.costly("draws whole pages")
def test_the_line_stands_as_it_was_typed(here: Path) -> None:
    Path("data").rename("my data")
    typed = ("run", "--out", "a run's folder", *ASKED, "--data=my data", "--on-bad-item", "skip")
    choicewise(*typed, code=0)
    line, file, text = again("a run's folder")
    assert shlex.split(line) == ["choicewise", *typed]
    assert "'--data=my data'" in line
    assert file == text == ""
    choicewise("page", "a run's folder", "--out", "page.html", code=0)
    assert "&#39;--data=my data&#39;" in Path("page.html").read_text()
    before = Path("a run's folder", MANIFEST).read_bytes()
    choicewise(*shlex.split(line)[1:], code=0)
    assert Path("a run's folder", MANIFEST).read_bytes() == before


@pytest.mark.costly("draws whole pages")
def test_another_line_goes_on_with_the_same_run(here: Path) -> None:
    choicewise("run", *ASKED, "--data", "data", "--out", "run", code=0)
    before = Path("run", MANIFEST).read_bytes()
    choicewise("run", "--out", "./run", "--workers", "1", "--data", "./data", *ASKED, code=0)
    assert Path("run", MANIFEST).read_bytes() == before
    manifest = read_manifest(Path("run"))
    assert state(manifest) == state(replace(manifest, command=("another",)))
    line = again("run")[0]
    choicewise("run", "--data", "data", *ASKED, "--protocol", "mmlu/helm", "--out", "run", code=0)
    assert line == f"choicewise run {' '.join(ASKED)} --data data --out run"
    assert shlex.split(again("run")[0])[-4:] == ["--protocol", "mmlu/helm", "--out", "run"]


def test_without_a_line_it_is_written_from_the_job(here: Path) -> None:
    choicewise("run", *ASKED, "--data", "data", "--out", "run", code=0)
    assert without_line("run").command == ()
    assert again("run")[0] == f"{FALLBACK} --out run"
    asked = {"data": "data", "protocols": ["mmlu/harness-v0", "mmlu/original"], "limit": 1}
    evaluate(model="fake:hash", out="api", **asked)
    assert again("api")[0] == f"{FALLBACK} --out api"
    assert read_manifest(Path("run")).protocols == read_manifest(Path("api")).protocols


def test_a_line_with_a_secret_is_not_kept(here: Path) -> None:
    address = "https://reader:hunter2@models.example/v1"
    asked = {"model": "fake:hash", "data": "data", "protocols": ["mmlu/original"], "out": "run"}
    evaluate(**asked, command=("run", "--model", "fake:hash", f"--system=see {address}"))
    assert read_manifest(Path("run")).command == ()
    assert "hunter2" not in Path("run", MANIFEST).read_text()
    told = choicewise(
        "run",
        "--model",
        f"server:{address}#m",
        "--data",
        "data",
        *ASKED[:2],
        "--out",
        "new",
        code=2,
    )
    assert "hunter2" not in told.stderr
    assert not Path("new").exists()


@pytest.mark.costly("three runs, twice")
def test_runs_of_one_line_all_have_it_and_the_line_of_one_alone(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_benchmarks(here / "benchmarks", monkeypatch)
    with known_suites(here, monkeypatch, trio=TRIO.format(more="")):
        typed = (
            "run",
            "--limit",
            "2",
            "--model",
            "fake:hash",
            "--protocol",
            "tests/trio",
            "--out",
            "trio",
        )
        choicewise(*typed, code=0)
        for folder in sorted(Path("trio", "fake-hash").iterdir()):
            assert again(folder)[0] == f"choicewise {' '.join(typed)}"
            without_line(folder)
            words = shlex.split(again(folder)[0])
            assert words[-2:] == ["--out", folder.name]
            choicewise(*words[1:], code=0)
            assert read_manifest(Path(folder.name)).protocols == read_manifest(folder).protocols


def test_protocols_that_were_asked_later_are_in_the_line(here: Path) -> None:
    for protocol in ("mmlu/original", "mmlu/helm"):
        choicewise(
            "run",
            "--model",
            "fake:hash",
            "--data",
            "data",
            "--protocol",
            protocol,
            "--out",
            "run",
            code=0,
        )
    assert all(
        f"--protocol {name}" in again(Path("run"))[0] for name in ("mmlu/original", "mmlu/helm")
    )


@pytest.mark.costly("half a second where the first of its file pays for imports")
def test_what_was_guessed_of_the_columns_stands_on_the_page_as_a_file(here: Path) -> None:
    rows = [f"Q{n}?,x{n},y{n},{'ab'[n % 2].upper()}" for n in range(4)]
    Path("quiz.csv").write_text("\n".join(["Question,Option A,Option B,Correct", *rows]))
    typed = (
        "run",
        "--data",
        "quiz.csv",
        "--model",
        "fake:hash",
        "--protocol",
        "options/cloze:sum",
        "--out",
        "run",
    )
    choicewise(*typed, code=0)
    line, file, text = again("run")
    assert line == f"choicewise {' '.join(typed)}"
    choicewise("page", "run", "--out", "page.html", code=0)
    assert f"<code>--mapping {file}</code> with this file" in Path("page.html").read_text()
    Path(file).write_text(text)
    choicewise(*typed[:-1], "other", "--mapping", file, code=0)
    assert open_run("other").manifest.dataset.digest == open_run("run").manifest.dataset.digest


def test_the_mapping_is_kept_and_stands_on_the_page_as_a_file(here: Path) -> None:
    rows = [{"ask": f"Q{n}?", "a": "x", "b": "y", "key": n % 2} for n in range(4)]
    Path("quiz.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    mapping = (
        'question = "ask"\nchoices = ["a", "b"]\nanswer = "key"\nanswer_is = "index"  # <from 0>\n'
    )
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
