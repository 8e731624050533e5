"""Declared mappings, in Python and in TOML."""

from pathlib import Path

import pytest

from choicewise.data.dataset import Columns, read_mapping
from choicewise.errors import DataError


def mapping(folder: Path, text: str) -> Path:
    path = folder / "mapping.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_read_mapping(tmp_path: Path) -> None:
    path = mapping(
        tmp_path,
        'question = "ask"\nchoices = ["a", "b"]\nanswer = "key"\nanswer_is = "label"\nlabels = ["x", "y"]\n'
        'id = "n"\nsubject = "area"\n[rename]\nquestion = "relation"\n',
    )
    assert read_mapping(path) == Columns(
        "ask",
        ("a", "b"),
        answer="key",
        answer_is="label",
        labels=("x", "y"),
        id="n",
        subject="area",
        rename={"question": "relation"},
    )
    pair = mapping(tmp_path, 'question = ""\nright = "good"\nwrong = ["bad", "worse"]\ndrop_empty = true\n')
    assert read_mapping(pair) == Columns(None, right="good", wrong=("bad", "worse"), drop_empty=True)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('choice = "c"\nanswer = "a"', "'choice' is no key of a mapping; did you mean choices"),
        ('zzz = "c"', "known are question, choices"),
        ('choices = 1\nanswer = "a"', "choices is 1; it must be a text or a list of texts"),
        ('choices = []\nanswer = "a"', "choices is ..; it must be"),
        ('choices = "c"\nanswer = 3', "answer is 3; it must be a text"),
        ('fixed = "yes"\nanswer = "a"', "fixed is 'yes'; it must be a list of texts"),
        ('choices = "c"\nanswer = "a"\ndrop_empty = 1', "drop_empty is 1; it must be true or false"),
        ('choices = "c"\nanswer = "a"\nrename = "b"', "rename is 'b'; it must be a table"),
        ('choices = "c"\nanswer = "a"\nanswer_is = "letter"', "answer_is is 'letter'.*label, index"),
        ('choices = "c"\nanswer = "a"\nlabels = ["x", "x"]', "must differ"),
        ('choices = "c"', "needs the column answer"),
        ('answer = "a"', "names its choices once"),
        ('choices = "c"\nfixed = ["y", "n"]\nanswer = "a"', "names its choices once"),
        ('right = "c"', "names both right and wrong, or neither"),
        ('right = "c"\nwrong = "d"\nanswer = "a"', "needs the column answer, except"),
        ("choices = ", "can't be read as a mapping in TOML"),
        (f"choices = {'[' * 5000}", "nested too deeply"),
        (f"rename = {'{a = ' * 5000}", "nested too deeply"),
        (f"[rename.{'a.' * 5000}a]", "nested too deeply"),
    ],
)
def test_read_mapping_refuses(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(DataError, match=complaint) as raised:
        read_mapping(mapping(tmp_path, text))
    assert "mapping.toml" in str(raised.value)


def test_all_that_is_wrong_is_listed_at_once(tmp_path: Path) -> None:
    text = 'qestion = "q"\nchoices = 1\nanswer = "a"\nanswer_is = "letter"\nlabels = ["x", "x"]\nid = 3\n'
    with pytest.raises(DataError) as raised:
        read_mapping(mapping(tmp_path, text))
    *problems, known = str(raised.value).removeprefix(f"{tmp_path / 'mapping.toml'}: ").split("\n  ")
    assert problems == [
        "'qestion' is no key of a mapping; did you mean question?",
        "choices is 1; it must be a text or a list of texts",
        "id is 3; it must be a text",
        "answer_is is 'letter' in a mapping; it must be one of any, label, index, number, text, flags",
        "the labels of a mapping must differ",
    ]
    assert known.startswith("the keys of a mapping are question, choices, fixed, fixed_of, right, wrong, target,")
    with pytest.raises(DataError, match="names its choices once.*\n.*needs the column answer"):
        read_mapping(mapping(tmp_path, 'question = "q"'))


def test_read_mapping_missing(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="can't be read as a mapping"):
        read_mapping(tmp_path / "none.toml")


def test_used() -> None:
    columns = Columns("q", ("a", "b"), answer="k", subject="s")
    assert columns.used == {"q", "a", "b", "k", "s"}
