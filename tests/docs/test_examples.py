"""The examples of README and docs: every one is run, and prints what its page shows."""

import os
from pathlib import Path

import examples
import pytest
from filelock import FileLock

from tests.paths import ROOT

PAGES = {str(page.relative_to(ROOT)): page.read_text(encoding="utf-8") for page in examples.pages()}
RUN = [
    name for name, text in PAGES.items() if any(block.runs for block in examples.blocks_of(text))
]


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> examples.Demo:
    """The runs of ``choicewise demo``, made once for all pages and all processes of the tests."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    demo = examples.Demo(shared / "demo" / "made")
    with FileLock(shared / "demo.lock"):
        demo.made()
    return demo


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_run_or_says_why_not(page: str) -> None:
    assert examples.unmarked(PAGES[page]) == []


@pytest.mark.parametrize("page", RUN)
def test_the_examples_of_a_page_print_what_it_shows(
    page: str, demo: examples.Demo, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    for example, printed in examples.results(PAGES[page], demo, tmp_path / "page"):
        assert example.shows(printed), f"{example.block.body}\n{printed}"


def test_there_are_examples() -> None:
    assert {"README.md", "docs/first-ten-minutes.md", "docs/questions/better.md"} <= {*RUN}


UNMARKED = {
    "```sh\nls\n```\n\n```text\na\n```\n": [],
    "text\n\n```\nls\n```\n": ["ls"],
    "```sh\nls\n```\n\n```text\na\n```\n\n```text\nb\n```\n": ["b"],
    "<!-- not run: it needs a GPU -->\n```sh\nls\n```\n": [],
    "<!-- not run -->\n```text\nls\n```\n": ["ls"],
    "````sh\nls\n````\n": ["a fence that this does not understand"],
}


def test_a_block_that_is_neither_run_nor_marked_is_named_and_what_is_shown_of_an_output() -> None:
    assert {page: examples.unmarked(page) for page in UNMARKED} == UNMARKED
    printed = "1\n2\n3 \n4\n5\n"
    assert examples.shown(printed, "") == "1\n2\n3\n4\n5\n"
    assert examples.shown(printed, "shown: 2-3, 5") == "[...]\n2\n3\n[...]\n5\n"
    assert examples.shown(printed, "shown: 1, 4-") == "1\n[...]\n4\n5\n"


ALIKE = {
    ("a 1.25 #R45c8b3 7", "a 1.26 #R000000 7"): True,
    ("a 1.25", "a 1.28"): False,
    ("{'score': -3.979381561279297}", "{'score': -3.9793789386749268}"): True,
    ("{'score': -3.979381561279297}", "{'score': -3.9796789386749268}"): False,
    ("7 items", "8 items"): False,
    ("7 items", "7 lines"): False,
}


def test_outputs_are_alike_but_for_the_last_digit_and_the_ids_of_a_machine() -> None:
    assert {pair: examples.alike(*pair) for pair in ALIKE} == ALIKE
    assert examples.alike("tree  4.3e-06  taken", "tree  1e-05  taken", vary=True)
    assert not examples.alike("tree  4.3e-06  taken", "tree  1e-05  refused", vary=True)
    narrow = "largest  taken\n  1e-05  yes"
    assert examples.alike("largest   taken\n1.25e-05  yes", narrow, vary=True)


def test_an_example_that_fails_is_an_error(demo: examples.Demo, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="ended with 3"):
        examples.results("```sh\nexit 3\n```\n", demo, tmp_path / "one")
    ((_, printed),) = examples.results(
        "<!-- exits: 3 -->\n```sh\necho a; exit 3\n```\n", demo, tmp_path / "other"
    )
    assert printed == "a\n"


def test_a_block_with_a_title_is_a_file_of_that_name(demo: examples.Demo, tmp_path: Path) -> None:
    page = '```toml title="a.toml"\nb = 1\n```\n\n```sh\ncat a.toml\n```\n\n```text\nb = 1\n```\n'
    ((example, printed),) = examples.results(page, demo, tmp_path / "page")
    assert example.output.body == printed == "b = 1\n"
