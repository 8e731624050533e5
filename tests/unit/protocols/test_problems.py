"""All that is wrong in a protocol file, in a signature, or with data under protocols, is said at once."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import choicewise
from choicewise.data.dataset import Dataset
from choicewise.data.items import Item
from choicewise.errors import ChoicewiseError, DataError, ProtocolError
from choicewise.protocols.catalogue import resolve
from choicewise.protocols.protocol import AXES, Protocol
from tests.helpers.protocols import requests
from tests.paths import ROOT

PAGE = ROOT / "docs" / "own-protocol.md"

WRONG = {
    "shotz = 3": "unknown key 'shotz'; did you mean shots?",
    'seed = "a"': "protocol axis seed is 'a'; it must be int or None",
    "header = 1": "protocol axis header is 1; it must be str",
    'score = "summ"': "protocol axis score is 'summ'; it must be one of sum, ",
    'ties = "frist"': "protocol axis ties is 'frist'; it must be one of first, ",
    "choices = -1": "protocol axis choices is -1; it can't be negative",
    "limit = true": "protocol axis limit is True; it must be int or None",
}
TOP = {
    'colour = "red"': "unknown key 'colour'; known are name, about, base, protocol",
    "about = 1": 'about is 1; write it in quotes, about = "..."',
    'base = "mmlu/orginal"': "base 'mmlu/orginal' is not in the catalogue; did you mean mmlu/original or",
}


def refused(path: Path) -> ProtocolError:
    with pytest.raises(ProtocolError) as raised:
        resolve(str(path))
    return raised.value


@given(st.sets(st.sampled_from(sorted(WRONG)), min_size=1), st.sets(st.sampled_from(sorted(TOP))))
def test_everything_wrong_in_a_file_is_listed(
    tmp_path_factory: pytest.TempPathFactory, axes: set[str], top: set[str]
) -> None:
    path = tmp_path_factory.mktemp("protocol") / "mine.toml"
    base = [] if any("base" in line for line in top) else ['base = "mmlu/original"']
    path.write_text("\n".join([*sorted(top), *base, "[protocol]", *sorted(axes)]))
    error = refused(path)
    expected = [WRONG[line] for line in axes] + [TOP[line] for line in top]
    assert len(error.parts) == len(expected)
    for message in expected:
        assert [part for part in error.parts if part.removeprefix(f"{path}: ").startswith(message)]
    assert error.message.startswith(f"{path}: ")
    assert str(error) == "\n  ".join([error.message, *error.problems])


def test_axes_that_do_not_go_together_are_listed_with_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('[protocol]\nreading = "generate"\nscore = "pmi"\nshotz = 1\n')
    text = str(refused(path))
    for part in ("unknown key 'shotz'", "no benchmark", "need the axis null", "no score pmi", "needs new_tokens"):
        assert part in text


def test_one_mistake_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('base = "mmlu/original"\n[protocol]\nshotz = 1\n')
    assert str(refused(path)) == f"{path}: unknown key 'shotz'; did you mean shots?"


def test_a_protocol_in_python_lists_everything_too() -> None:
    with pytest.raises(ProtocolError) as raised:
        Protocol(benchmark="any", seed="a", ties="frist")  # type: ignore[arg-type]
    assert len(raised.value.problems) == 2


@given(st.text(), st.lists(st.text()))
def test_an_error_says_where_without_losing_anything(message: str, problems: list[str]) -> None:
    error = DataError(message, problems).within("here")
    assert isinstance(error, DataError)
    assert (error.message, error.problems) == (f"here: {message}", tuple(problems))
    assert error.parts == (tuple(problems) or (error.message,))
    assert ChoicewiseError.about([message]).parts == (message,)


def questions(counts: list[int], subject: str = "s") -> tuple[Item, ...]:
    """An item with so many choices each."""
    return tuple(
        Item(f"{subject}-q{number}", "Which?", tuple(f"c{choice}" for choice in range(count)), (0,), subject)
        for number, count in enumerate(counts)
    )


@given(st.lists(st.integers(2, 6), min_size=1, max_size=30), st.lists(st.integers(2, 6), max_size=30))
def test_everything_wrong_with_data_is_counted(
    tmp_path_factory: pytest.TempPathFactory, tides: list[int], winds: list[int]
) -> None:
    rows = questions(tides, "tides") + questions(winds, "winds")
    shots = [replace(item, question="Which else?") for item in questions([4] * 5, "tides")]
    dataset = Dataset("mine", {"test": rows, "dev": shots})
    bad = [item for item in rows if len(item.choices) != 4]
    out = tmp_path_factory.mktemp("out") / "run"
    asked = {"model": "fake:hash", "data": dataset, "protocols": ["mmlu/original", "mmlu/harness-v1"], "out": out}
    if not bad and not winds:
        choicewise.evaluate(**asked)
        return
    with pytest.raises(DataError) as raised:
        choicewise.evaluate(**asked)
    parts = raised.value.parts
    counted = sum(bool(re.match(r"item .* has \d choices", part)) for part in parts)
    counted += sum(int(part.split(" ")[2]) for part in parts if part.startswith("... and"))
    assert counted == len(bad)
    assert sum("subject 'winds' has 0 rows in split 'dev'" in part for part in parts) == bool(winds)
    assert len(parts) <= 4 * 5 + 2
    assert not out.exists()


def example() -> str:
    """The protocol file that the page about own protocols shows."""
    blocks = re.findall(r"```toml[^\n]*\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    text, *_ = [block for block in blocks if "[protocol]" in block]
    return text


@pytest.mark.costly("the whole catalogue")
def test_the_example_of_the_readme_asks_other_data_than_mmlu(tmp_path: Path, shared_data: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(example(), encoding="utf-8")
    (protocol,) = resolve(str(path)).values()
    files = sorted((shared_data / "hf_rows").glob("*.jsonl"))
    assert files
    for file in files:
        dataset = choicewise.open_dataset(file, on_bad_item="skip")
        (subject, *_) = dataset.subjects(dataset.evaluated)
        request = next(requests(protocol, dataset, subject))
        assert request.context().endswith("The answer is")
        assert len(request.continuations) == len(request.item.choices)


def test_the_example_of_the_readme_runs(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(example(), encoding="utf-8")
    dataset = Dataset("mine", {"validation": questions([2, 3, 4, 5, 12])})
    run = choicewise.evaluate(model="fake:hash", data=dataset, protocols=[str(path)], out=tmp_path / "run")
    assert run.report()["n"].to_pylist() == [5]


def test_every_axis_can_be_wrong_alone() -> None:
    for name in AXES:
        with pytest.raises(ProtocolError, match=f"protocol axis {name} is"):
            Protocol(**{"benchmark": "any", name: object()})
