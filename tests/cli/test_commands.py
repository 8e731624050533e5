"""The commands as a user types them: what lands where, with which exit code, and which options and names there are."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import typer

from choicewise import __version__, ports
from choicewise.cli.commands import invoke
from choicewise.cli.listing import all_commands, find_command, help_lines
from choicewise.errors import ChoicewiseError, StoreError, UsageError
from choicewise.extensions.plot.commands import FORMATS
from choicewise.ports import Extension
from choicewise.protocols.catalogue import entries, groups, resolve, suite_names
from choicewise.running import progress
from tests.helpers.commands import choicewise
from tests.helpers.mmlu_data import write_mmlu
from tests.helpers.study import Study

FAKE = ["--model", "fake:hash"]
RUN = ["run", *FAKE, "--data", "nowhere", "--protocol", "mmlu/original", "--out", "nowhere"]
SCORE = ["score", *FAKE, "--context", "a", "--choice", "b"]


def test_run_says_how_far_it_is_and_where_it_wrote(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "SHORTEST", 0)
    monkeypatch.setattr(progress, "EVERY", (0, 0))
    asked = [
        "--model",
        "fake:oracle",
        "--data",
        study.data,
        "--protocol",
        "mmlu/original",
        "--out",
        tmp_path / "run",
    ]
    found = choicewise("run", *asked, code=0)
    assert "mmlu/original  100.0 " in found.stdout
    told = [
        int(share) for share in re.findall(r"^fake:oracle: (\d+) %, ", found.stderr, re.MULTILINE)
    ]
    assert told == sorted(told)
    assert told[-1] == 100
    assert any(0 < share < 100 for share in told)
    assert f"next  choicewise report {tmp_path / 'run'} --all\n" in found.stderr


def test_a_run_needs_a_folder_it_can_write_before_it_loads_a_model(
    study: Study, tmp_path: Path
) -> None:
    asked = [
        "run",
        "--model",
        "no/such",
        "--data",
        study.data,
        "--protocol",
        "mmlu/original",
        "--out",
    ]
    (tmp_path / "file").touch()
    for out in (tmp_path / "file", tmp_path / "file" / "run"):
        assert f"{tmp_path / 'file'} is a file" in choicewise(*asked, out, code=6).stderr
    assert "holds other files" in choicewise(*asked, tmp_path).stderr
    choicewise(*asked, tmp_path / "run", code=5)
    assert not (tmp_path / "run").exists()


def test_a_choice_shown_twice_is_noted_where_it_is_asked(tmp_path: Path) -> None:
    data = write_mmlu(tmp_path / "data", subjects=("tides", "winds"))
    table = data / "test" / "winds_test.csv"
    table.write_text("What?,same,same,a,b,A\n" + table.read_text())
    asked = ["run", "--model", "fake:oracle", "--data", data, "--protocol", "mmlu/original"]
    told = choicewise(*asked, "--out", tmp_path / "all", code=0).stderr
    assert "note: item winds/test/0" in told
    assert "note:" not in choicewise(*asked, "--subject", "tides", "--out", tmp_path / "one").stderr


@pytest.mark.costly("reports and comparisons of many numbers")
def test_rows_as_json_rank_models_under_every_protocol(study: Study) -> None:
    rows = json.loads(choicewise("report", "--json", study.hash, study.oracle).stdout)
    needed = {
        "model",
        "dataset",
        "subject",
        "protocol",
        "signature",
        "metric",
        "value",
        "n",
        "missing",
    }
    assert needed | {"ci_low", "ci_high", "rank"} <= set(rows[0])
    assert len(rows) == 2 * 21
    ranks = {(row["model"], row["rank"]) for row in rows if row["protocol"] == "mmlu/original"}
    assert ranks == {("fake:oracle", 1), ("fake:hash", 2)}
    assert len(json.loads(choicewise("compare", "--json", study.hash, study.oracle).stdout)) == 21
    of_subjects = choicewise(
        "report", "--json", "--by", "subjects", "--protocol", "mmlu/original", study.oracle
    )
    assert {row["subject"] for row in json.loads(of_subjects.stdout)} == {"tides", "trees"}


def test_every_score_of_a_question_as_json_which_has_no_word_for_nan() -> None:
    question = [
        "score",
        *FAKE,
        "--context",
        "Two and two is",
        "--choice",
        " four",
        "--choice",
        " 五",
        "--json",
    ]
    rows = json.loads(choicewise(*question).stdout)
    assert {"choice", "sum", "token_mean", "byte_mean", "char_mean", "pmi"} <= set(rows[0])
    assert [(row["tokens"], row["bytes"], row["chars"]) for row in rows] == [(5, 5, 5), (4, 4, 2)]
    assert rows[1]["char_mean"] == pytest.approx(rows[1]["sum"] / 2)
    (row,) = json.loads(
        choicewise(*SCORE, "--boundary", "bytes", "--json").stdout, parse_constant=pytest.fail
    )
    assert row["greedy"] is None


def test_every_bad_row_has_a_line_of_its_own(tmp_path: Path) -> None:
    data = write_mmlu(tmp_path / "data")
    with (data / "test" / "tides_test.csv").open("a") as file:
        file.write("Three?,one,two,three,C\nFive?,1st,2nd,3rd,4th,5th,E\n")
    found = choicewise(
        "run", *FAKE, "--data", data, "--protocol", "mmlu", "--out", tmp_path / "run", code=3
    )
    heading, five, seven = found.stderr.splitlines()
    assert heading.startswith("error: 2 rows can't be used")
    assert ("5 columns" in five, "7 columns" in seven) == (True, True)


@pytest.mark.costly("a process of its own")
def test_a_reader_that_leaves_early_is_no_error(study: Study) -> None:
    line = [
        sys.executable,
        "-m",
        "choicewise",
        "prompts",
        "--data",
        str(study.data),
        "--protocol",
        "mmlu",
    ]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""


def test_a_package_that_can_not_be_loaded_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """SciPy finds no memory for a compiled part, as under ``ulimit -v``."""

    def lacking_memory(*_: object, **__: object) -> None:
        raise ImportError(
            "libopenblas.so: failed to map segment from shared object\nmore", name="scipy.special"
        )

    monkeypatch.setattr("choicewise.models.load.load_model", lacking_memory)
    ended = choicewise(*SCORE, code=1)
    assert ended.stderr.startswith(
        "error: scipy.special can't be loaded: libopenblas.so: failed to map segment"
    )
    assert "more memory" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("line", "useless"),
    [
        *[
            ([*line, option, value], option)
            for line in (RUN, SCORE, ["check", *FAKE])
            for option, value in (("--dtype", "float32"), ("--device", "cpu"), ("--window", "8"))
        ],
        ([*RUN, "--batch-tokens", "8"], "--batch-tokens"),
        *[
            (["report", "nowhere", view, option, value], option)
            for view in ("multiverse", "agreement", "extractors", "distribution")
            for option, value in (("--by", "macro"), ("--interval", "wilson"))
        ],
        (["report", "nowhere", "--all", "--json"], "--all"),
        (["report", "nowhere", "multiverse", "--ids"], "--ids"),
        (["explain", "nowhere", "--item", "x", "--tokens", "--json"], "--tokens"),
        ([*RUN, "--limit", "1", "--limit", "2"], "--limit"),
        ([*RUN, "--model", "other"], "--model"),
        ([*SCORE, "--boundary", "lcp", "--boundary=joint"], "--boundary"),
        (["protocols", "--json", "show", "mmlu"], "--json"),
        (["protocols", "--json", "diff", "mmlu", "mmlu"], "--json"),
    ],
)
def test_an_option_without_use_is_refused_before_anything_is_opened(
    line: list[str], useless: str
) -> None:
    with pytest.raises(UsageError, match=useless):
        invoke(line)


@pytest.mark.parametrize(
    "line", [["-m", "choicewise"], ["-c", "from choicewise.cli import main; main()"]]
)
def test_the_version_is_told(line: list[str]) -> None:
    told = subprocess.run(
        [sys.executable, *line, "--version"], capture_output=True, text=True, check=True
    )
    assert (told.stdout, told.stderr) == (f"choicewise {__version__}\n", "")


def test_the_commands_are_listed_without_importing_typer() -> None:
    line = [sys.executable, "-X", "importtime", "-m", "choicewise", "--help"]
    told = subprocess.run(line, capture_output=True, text=True, check=True, env={"COLUMNS": "80"})
    shown = told.stdout.partition("Commands:\n")[2].splitlines()
    assert [line.split()[0] for line in shown] == [*all_commands()]
    assert "typer" not in {each.rpartition("|")[2].strip() for each in told.stderr.splitlines()}


@pytest.mark.costly("thousands of names are resolved")
def test_every_name_that_resolves_is_listed_and_a_group_is_all_of_its_members(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, members in groups().items():
        assert resolve(name) == {
            full: protocol for each in members for full, protocol in each.protocols.items()
        }
        assert all(member.name.startswith(name) for member in members)
    monkeypatch.setattr(
        "choicewise.protocols.catalogue.did_you_mean", lambda *_: ""
    )  # nine tenths of the time
    listed = {line.split(" ")[0] for line in choicewise("protocols").stdout.splitlines()}
    names = {
        name for entry in entries() for name in (entry.name, *entry.protocols, *entry.published)
    }
    names.update(suite_names())
    accepted = set()
    for beginning in {name[:end] for name in names for end in range(1, len(name) + 1)}:
        with suppress(ChoicewiseError):
            accepted |= {beginning} if resolve(beginning) else set()
    lines = [
        line
        for name in listed & names
        for line in choicewise("protocols", "show", name, "--all").stdout.split("\n")
    ]
    assert {"options/quoted", "mmlu/harness", "mmlu", "compat"} <= listed
    shown = set()
    for line in lines:
        name, _, others = line.partition("  also ")
        name = name.split(" ")[0]
        entry_name = name.partition(":")[0]
        shown |= {name, *(f"{entry_name}{other}" for other in others.split(", "))}
    assert accepted <= listed | shown
    assert {
        row["name"] for row in json.loads(choicewise("protocols", "--json").stdout)
    } == listed & accepted


@pytest.mark.parametrize(
    ("suffix", "begin"), [*zip(FORMATS, (b"<svg", b"\x89PNG", b"%PDF", b"{"), strict=True)]
)
def test_a_chart_of_every_format_is_written(
    study: Study, tmp_path: Path, suffix: str, begin: bytes
) -> None:
    out = tmp_path / "new" / f"chart{suffix}"
    result = choicewise("plot", study.hash, "strip", "--out", out, code=0)
    assert (result.stdout, result.stderr) == ("", f"wrote {out}\n")
    assert out.read_bytes().startswith(begin)
    assert list(out.parent.iterdir()) == [out]


def test_a_chart_that_fails_leaves_the_old_file(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "chart.svg"
    out.write_text("old", encoding="utf-8")
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    assert choicewise("plot", study.hash, "strip", "--out", out).code != 0
    assert out.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize("library", ["vl_convert", "jinja2"])
def test_pages_and_boards_without_the_extra_name_it(
    study: Study, library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    for out in ("page.html", "board"):
        result = choicewise("page", study.hash, "--out", tmp_path / out, code=UsageError.exit_code)
        assert f"pages need {library.replace('vl_', 'vl-')}" in result.stderr
        assert "pip install --constraint constraints.txt '.[page]'" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.costly("five charts")
def test_options_choose_what_a_chart_shows(study: Study, tmp_path: Path) -> None:
    oracle = "--model", "fake:oracle"
    for kind, *line in (
        ("ladder", *oracle, "--from", "mmlu/original", "--to", "mmlu/cloze:sum"),
        ("strip", *oracle, "--rank", "--protocol", "mmlu/original"),
        *(("pair",), ("ranks", "--protocol", "mmlu/original"), ("bump", "--value")),
    ):
        choicewise(
            "plot",
            study.hash,
            study.oracle,
            kind,
            *line,
            "--out",
            tmp_path / f"{kind}.json",
            code=0,
        )
        spec = json.loads((tmp_path / f"{kind}.json").read_text(encoding="utf-8"))
        assert spec["$schema"].endswith("vega-lite/v6.json")
    places = [record for record in spec["data"]["values"] if record["kind"] == "place"]
    assert {record["model"] for record in places} == {"fake:hash", "fake:oracle"}


@pytest.mark.parametrize(
    ("arguments", "message", "kind"),
    [
        (["RUN", "strp", "--out", "OUT/a.svg"], "chart is called 'strp'", UsageError),
        (
            ["strip", "RUN", "--out", "OUT/a.svg"],
            "strip comes before",
            UsageError,
        ),
        (["strip", "--out", "OUT/a.svg"], "no run folder", UsageError),
        (
            ["RUN", "strip", "--out", "OUT/a.gif"],
            "a.gif",
            UsageError,
        ),
        (["RUN", "strip", "--out", "OUT"], "is a folder; ", UsageError),
        (
            ["RUN", "strip", "--from", "x", "--out", "OUT/a.svg"],
            "--from does not apply",
            UsageError,
        ),
        (
            ["RUN", "bump", "--out", "OUT/a.svg"],
            "drawn as strip, ladder, effects",
            UsageError,
        ),
        (["OUT", "strip", "--out", "OUT/a.svg"], "not a run folder", StoreError),
        (["RUN", "strip", "--out", "/proc/nowhere/a.svg"], "can't be written", StoreError),
    ],
)
def test_wrong_use_of_plot_is_explained(
    study: Study, tmp_path: Path, arguments: list[str], message: str, kind: type[ChoicewiseError]
) -> None:
    line = [
        word.replace("OUT", str(tmp_path)).replace("RUN", str(study.hash)) for word in arguments
    ]
    assert message in choicewise("plot", *line, code=kind.exit_code).stderr
    assert list(tmp_path.iterdir()) == []


class Hello(ports.Command):
    """The command of another package."""

    name = "hello"
    summary = "Say hello."

    def app(self) -> Callable[..., None]:
        def hello(to: str = "you") -> None:
            """Say hello to somebody."""
            typer.echo(f"hello {to}")

        return hello


class Repeat(ports.Command):
    """One that takes whatever follows."""

    name = "repeat"
    summary = "Say it again."
    passes_on = True

    def app(self) -> Callable[..., None]:
        def repeat(words: list[str]) -> None:
            typer.echo(" ".join(words))

        return repeat


def test_commands_of_other_packages_are_run_and_stand_last_in_the_help(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        ports, "other_extensions", lambda: (Extension("stranger", [Hello(), Repeat()]),)
    )
    assert choicewise("hello", "--to", "all", code=0).stdout == "hello all\n"
    assert "Say hello to somebody." in choicewise("hello", "--help", code=0).stdout
    assert choicewise("repeat", "--help", "--to", "x", code=0).stdout == "--help --to x\n"
    last = [line.split(maxsplit=1) for line in help_lines()[-2:]]
    assert last == [["hello", "Say hello."], ["repeat", "Say it again."]]
    assert "hello" in choicewise("hallo", code=2).stderr


def test_other_packages_are_searched_only_for_a_name_that_we_lack(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def search() -> tuple[Extension, ...]:
        raise AssertionError("other packages are searched")

    monkeypatch.setattr(ports, "other_extensions", search)
    for name in ("report", "merge"):
        assert find_command(name) is not None
    with pytest.raises(AssertionError):
        find_command("hello")
