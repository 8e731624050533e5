"""The catalogue is filtered by words, and a protocol is shown by a prompt first."""

import json

import pytest

from choicewise.extensions.catalogue.commands import show
from choicewise.protocols.catalogue import Entry, entries, suite_names
from choicewise.protocols.protocol import AXES
from tests.helpers.commands import choicewise


def content(catalogued: Entry) -> str:
    """Return what words are looked up in, in lower case."""
    texts = [catalogued.name, catalogued.title, catalogued.citation, catalogued.source]
    texts += [protocol.benchmark for protocol in catalogued.protocols.values()]
    return " ".join(texts).casefold()


@pytest.mark.parametrize(
    "words",
    [["hendrycks"], ["June 2023"], ["CommonsenseQA"], ["4450500f"], ["hellaswag", "Harness"]],
)
def test_words_of_the_citation_title_benchmark_or_version_find_entries(words: list[str]) -> None:
    listed = json.loads(choicewise("protocols", *words, "--json", code=0).stdout)
    by_name = {catalogued.name: content(catalogued) for catalogued in entries()}
    expected = {
        name for name, text in by_name.items() if all(word.casefold() in text for word in words)
    }
    assert expected
    assert {row["name"] for row in listed} & by_name.keys() == expected
    text = choicewise("protocols", *words, code=0).stdout
    assert {row["name"] for row in listed} <= {line.split(" ")[0] for line in text.splitlines()}


def test_a_word_is_a_value_of_matching_with_and_without_the_option() -> None:
    by_word = choicewise("protocols", "hellaswag", "Harness", code=0).stdout
    by_option = ("--matching", "hellaswag", "--matching=Harness")
    assert choicewise("protocols", *by_option, code=0).stdout == by_word
    assert choicewise("protocols", "--matching", "hellaswag", "Harness", code=0).stdout == by_word


def test_no_match_names_the_whole_list() -> None:
    assert "`choicewise protocols`" in choicewise("protocols", "xyzzy", code=2).stderr


@pytest.mark.parametrize("name", ["mmlu/original", "mmlu/cf", "winogrande/harness", "mmlu/helm"])
def test_a_protocol_is_shown_in_thirty_lines_and_its_prompt_first(name: str) -> None:
    lines = choicewise("protocols", "show", name, code=0).stdout.splitlines()
    assert len(lines) <= 30
    scored = [number for number, line in enumerate(lines) if line.startswith("->")]
    (source,) = [number for number, line in enumerate(lines) if line.startswith("source")]
    assert len(scored) == 1
    assert scored[0] < source


def test_every_axis_is_shown_with_all() -> None:
    few = choicewise("protocols", "show", "mmlu/original", code=0).stdout
    every = choicewise("protocols", "show", "mmlu/original", "--all", code=0).stdout
    assert "outside=top100=-100" in few
    assert "\nboundary" not in few
    assert set(AXES) <= {line.split(" ")[0] for line in every.splitlines()}


def test_every_protocol_and_suite_takes_thirty_lines_and_shows_an_example(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in [*(catalogued.name for catalogued in entries()), *suite_names()]:
        show(name, every=False, json=False)
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) <= 30, name
        assert "no example" not in lines[2], name


def test_names_lines_of_a_header_and_parts_of_a_suite_are_cut_without_all() -> None:
    for name, last in (
        ("options/cloze", "options/cloze:domain_conditional"),
        ("truthfulqa/harness", "A: The 1992 Olympics"),
        ("mmlu-1001", "mmlu/original-pr13"),
    ):
        few = choicewise("protocols", "show", name, code=0).stdout
        assert last not in few
        assert "more lines; --all" in few
        assert last in choicewise("protocols", "show", name, "--all", code=0).stdout
