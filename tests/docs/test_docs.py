"""The pages name what exists and say what the code says, and their site builds without a warning and a dead link."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from functools import reduce
from html.parser import HTMLParser
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
import yaml

import choicewise
from choicewise.cli import app
from choicewise.data.dataset import Columns, read_mapping
from choicewise.data.items import Item
from choicewise.data.open import open_dataset
from choicewise.protocols.catalogue import entries
from choicewise.protocols.protocol import signature
from tests.paths import ROOT

DOCS = ROOT / "docs"
COMMANDS = [
    command.name or command.callback.__name__
    for command in app.registered_commands
    if command.callback
]


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def steps(page: str) -> list[tuple[str, str]]:
    """The steps in the tables of a page about the code: a file without its ending, and what stands in it."""
    return re.findall(r"^\|[^|]*\| `([^`]+)\.py` \| `([^`]+)` \|", text_of(page), flags=re.M)


STEPS = steps("docs/design/flow.md")
NAMED = [*STEPS, *steps("docs/design/other-tools.md")]


@pytest.mark.parametrize(("file", "name"), NAMED, ids=[f"{file}:{name}" for file, name in NAMED])
def test_every_step_exists(file: str, name: str) -> None:
    if file == "extensions/interop/lm_eval/model":
        pytest.importorskip("lm_eval")
    module = import_module(f"choicewise.{file.replace('/', '.').removesuffix('.__init__')}")
    assert reduce(getattr, name.split("."), module) is not None


def test_the_flow_counts_its_steps() -> None:
    counted = f"That is {len(STEPS)} steps in {len({file for file, _ in STEPS})} files."
    assert counted in text_of("docs/design/flow.md")


@pytest.mark.parametrize(
    "page", sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/**/*.md"))
)
def test_every_file_that_a_page_names_exists(page: str) -> None:
    words = re.findall(r"`([\w./-]+/[\w./-]+\.(?:py|md|toml|json))`", text_of(page))
    places = (ROOT, ROOT / "src/choicewise", ROOT / "docs", ROOT / "tests")
    lost = {
        word
        for word in words
        if word.islower() and not any((place / word).is_file() for place in places)
    }
    assert lost == set()


def test_the_readme_fits_on_two_screens() -> None:
    assert len(text_of("README.md").splitlines()) <= 110


def test_no_page_and_no_message_promises_a_name_on_an_index() -> None:
    files = [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("src/**/*.py"),
        *ROOT.glob("constraints*.txt"),
    ]
    told = [
        file.name
        for file in files
        if re.search(r"pip install '?choicewise", file.read_text(encoding="utf-8"))
    ]
    assert told == []


def test_the_page_about_data_has_every_key_of_a_mapping_and_its_examples_run(
    tmp_path: Path,
) -> None:
    page, items = text_of("docs/data.md"), []
    rows = "".join(line.split("|")[1] for line in page.splitlines() if line.startswith("| `"))
    assert re.findall("`([a-z_]+)`", rows) == [spec.name for spec in fields(Columns) if spec.init]
    (line, mapping), (pair, plain) = re.findall(
        r"```json\n(.*?)```.*?```toml\n(.*?)```", page, flags=re.S
    )
    for row, text in ((line, mapping), (pair, plain)):
        (tmp_path / "quiz.jsonl").write_text(row, encoding="utf-8")
        (tmp_path / "mapping.toml").write_text(text, encoding="utf-8")
        columns = read_mapping(tmp_path / "mapping.toml")
        items += open_dataset(tmp_path / "quiz.jsonl", columns=columns).splits["test"]
    for table, text in re.findall(r"```csv\n(.*?)```.*?```toml\n(.*?)```", page, flags=re.S):
        (tmp_path / "sheet.csv").write_text(table, encoding="utf-8")
        (tmp_path / "mapping.toml").write_text(text, encoding="utf-8")
        columns = read_mapping(tmp_path / "mapping.toml")
        items += open_dataset(tmp_path / "sheet.csv", columns=columns).splits["test"]
    story = {"story": "Ada found a key.", "asks_for": "who"}
    assert items == [
        Item("7", "What was lost?", ("a key", "a coin"), (1,), "finds", story),
        Item("test/0", "", ("The keys are here.", "The keys is here."), (0,)),
        Item("test/0", "Which is a tool?", ("a hammer", "a hen"), (0,)),
        Item("test/0", "Which is a tool?", ("a hammer", "a hen", "an owl", "a cow"), (0,)),
    ]


def test_the_citation_file_says_what_the_package_says() -> None:
    cff, project = (
        yaml.safe_load(text_of("CITATION.cff")),
        tomllib.loads(text_of("pyproject.toml"))["project"],
    )
    assert {"cff-version", "message", "title", "authors"} <= cff.keys()
    assert (cff["cff-version"], cff["type"], cff["license"]) == (
        "1.2.0",
        "software",
        project["license"],
    )
    assert str(cff["version"]) == project["version"] == choicewise.__version__
    bibtex = text_of("docs/questions/cite.md")
    assert all(
        text in bibtex
        for text in (cff["title"], cff["authors"][0]["name"], f"{{{project['version']}}}")
    )


def test_bytecode_is_written_whatever_the_environment_says() -> None:
    """Else every process compiles all that it imports."""
    line = [
        "make",
        "--silent",
        "--no-print-directory",
        "--eval",
        "shown: ; @echo [$$PYTHONDONTWRITEBYTECODE]",
        "shown",
    ]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    assert (
        subprocess.run(line, cwd=ROOT, env=environment, capture_output=True, text=True).stdout
        == "[]\n"
    )


def test_the_public_ci_runs_what_we_run_and_may_change_nothing() -> None:
    workflow = yaml.safe_load(text_of(".github/workflows/ci.yml"))
    assert workflow["permissions"] == {"contents": "read"}
    (job,) = workflow["jobs"].values()
    assert {"run": ".ci/run"} in job["steps"]
    actions = [step["uses"] for step in job["steps"] if "uses" in step]
    assert [
        action
        for action in actions
        if not re.fullmatch(r"[\w./-]+@(v\d+\.\d+\.\d+|[0-9a-f]{40})", action)
    ] == []


def test_the_generated_pages_say_what_the_code_says() -> None:
    """`python docs/generate.py` writes them again."""
    ended = subprocess.run(
        [sys.executable, DOCS / "generate.py", "--check"], capture_output=True, text=True
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_the_list_of_pages_says_what_each_answers() -> None:
    lines = [
        line.partition("](")[2]
        for line in text_of("docs/llms.txt").splitlines()
        if line.startswith("- ")
    ]
    assert len(lines) > 80
    poor = ("Generated by", "`demo-run`", "The same as", "Options")
    assert [
        line for line in lines if line.partition("): ")[2].startswith(poor) or "): " not in line
    ] == []


def test_the_page_of_commands_has_every_command_and_option() -> None:
    page = text_of("docs/reference/commands.md")
    assert [name for name in COMMANDS if f"## `choicewise {name}`" not in page] == []
    shown = {
        "`--protocol <str>`",
        "`--limit N`",
        "`--include-path DIR`",
        "`--without-missing`",
        "`130`",
    }
    assert shown <= {*re.findall(r"`[^`\n]+`", page)}


def test_the_page_of_python_says_how_functions_are_called() -> None:
    """Types as they are written, and defaults that are texts as texts."""
    page = text_of("docs/reference/python.md")
    assert {'    url: str = "",', "    out: str | Path,", ") -> Run"} <= {*page.splitlines()}
    assert re.findall(r"<class .*|collections\.abc.*|= ,", page) == []


def test_the_catalogue_has_every_signature() -> None:
    lines = {
        line
        for page in (DOCS / "catalogue").glob("*.md")
        for line in text_of(str(page)).splitlines()
    }
    signatures = {
        name: signature(one) for each in entries() for name, one in each.protocols.items()
    }
    assert [name for name, spelled in signatures.items() if f"  {spelled}" not in lines] == []


def test_every_page_is_in_the_navigation() -> None:
    site = tomllib.loads(text_of("zensical.toml"))["project"]

    def listed(entry: Any) -> Iterator[str]:
        if isinstance(entry, str):
            yield entry
        for part in (
            entry if isinstance(entry, list) else entry.values() if isinstance(entry, dict) else []
        ):
            yield from listed(part)

    assert sorted(listed(site["nav"])) == sorted(
        str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")
    )


class Page(HTMLParser):
    """What a page links to, what it loads, and the places in it that can be linked to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.places |= {given[name] for name in ("id", "name") if name in given}
        self.links += [given["href"]] if tag == "a" and "href" in given else []
        self.loads += [given["src"]] if "src" in given else []
        self.loads += (
            [given["href"]]
            if tag == "link" and given.get("rel") not in ("canonical", "next", "prev")
            else []
        )
        self.loads += [
            part.split()[0] for part in given.get("srcset", "").split(",") if part.strip()
        ]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site.  Any warning of the build is an error."""
    if find_spec("zensical") is None:
        pytest.skip("building the site needs zensical; pip install '.[docs]'")
    place = tmp_path_factory.mktemp("site")
    shutil.copytree(DOCS, place / "docs", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "zensical.toml", place)
    line = [sys.executable, "-m", "zensical", "build", "--strict"]
    ended = subprocess.run(line, cwd=place, capture_output=True, text=True)
    assert (ended.returncode, "No issues found" in ended.stdout + ended.stderr) == (0, True), ended
    return place / "site"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    """Every page but the one for addresses that don't exist, which stands anywhere."""
    return {
        file: Page(file.read_text(encoding="utf-8"))
        for file in site.rglob("*.html")
        if file.name != "404.html"
    }


def test_every_link_and_place_of_the_site_exists(site: Path, pages: dict[Path, Page]) -> None:
    assert len(pages) == len([*DOCS.rglob("*.md")])
    dead = []
    for file, page in pages.items():
        for address in (*page.links, *page.loads):
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            target = target / "index.html" if target.is_dir() else target
            known = pages[target].places if target in pages else {""}
            if not target.is_file() or (parts.fragment and unquote(parts.fragment) not in known):
                dead.append(f"{file.relative_to(site)}: {address}")
    assert dead == []


def test_the_site_loads_nothing_from_elsewhere_and_has_no_programs_of_ours(
    site: Path, pages: dict[Path, Page]
) -> None:
    loaded = {(file, urlsplit(each)) for file, page in pages.items() for each in page.loads}
    assert [each for each in loaded if each[1].scheme not in ("", "data") or each[1].netloc] == []
    styles = "".join(style.read_text(encoding="utf-8") for style in site.rglob("*.css"))
    assert re.findall(r"url\([\"']?https?:", styles) == []
    assert [*site.rglob("*.py")] == []


def test_the_notebook_shows_what_it_computes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`python docs/notebook.py` runs it again, and `python docs/generate.py` makes its page."""
    for package in ("torch", "nbclient", "ipykernel", "vl_convert"):
        pytest.importorskip(package)
    monkeypatch.syspath_prepend(str(DOCS))
    import examples
    import notebook

    shown = notebook.texts(notebook.nbformat.read(notebook.PLACE, as_version=4))
    computed = notebook.texts(notebook.executed(tmp_path))
    assert len(shown) > 5
    assert [pair for pair in zip(shown, computed, strict=True) if not examples.alike(*pair)] == []
