"""What may be submitted: names alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise.board.queue import _name
from choicewise.board.submission import (
    ALLOW,
    Policy,
    State,
    Submission,
    Wanted,
    matches,
    refusal,
    wanted,
)
from choicewise.errors import UsageError


@pytest.mark.parametrize(
    ("name", "pattern", "same"),
    [
        ("org/name", "*/*", True),
        ("org/name", "org/*", True),
        ("other/name", "org/*", False),
        ("org/name-7b", "org/name-?b", True),
        ("/etc/passwd", "*/*", False),
        ("/passwd", "*/*", False),
        ("a/b/c", "*/*", False),
        ("./name", "*/*", False),
        ("../name", "*/*", False),
        ("org/.git", "*/*", False),
        ("~/name", "*/*", True),
        ("name", "*/*", False),
        ("bundled:merrow", "bundled:*", True),
        ("bundled:a/b", "bundled:*", False),
        ("bundled:a/b", "*/*", False),
        ("server:http://host/v1#x", "*/*", False),
        ("server:http://host/v1#x", "server:**", True),
        ("/models/a", "/models/*", True),
        ("/models/a/b", "/models/*", False),
        ("/models/a/b", "/models/**", True),
        ("/models/.a", "/models/*", False),
        ("org/name\n", "*/*", True),
        ("org/name", "org/na.e", False),
        ("org+/name", "org+/*", True),
    ],
)
def test_patterns(name: str, pattern: str, same: bool) -> None:
    assert matches(name, pattern) is same


@given(st.text(max_size=40))
def test_no_path_of_a_machine_is_taken_unless_a_pattern_says_so(name: str) -> None:
    if Policy(ALLOW).takes(name):
        assert not name.startswith(("/", ".", "server:"))
        assert ".." not in name.split("/")
        assert name.count("/") == (0 if name.startswith("bundled:") else 1)


@pytest.mark.parametrize(
    ("given_fields", "expected"),
    [
        (("org/name",), Wanted("org/name")),
        ((" org/name ", "", ""), Wanted("org/name")),
        (("org/name@v1",), Wanted("org/name", "v1")),
        (("org/name", "refs/pr/3", "bfloat16"), Wanted("org/name", "refs/pr/3", "bfloat16")),
    ],
)
def test_names_are_taken_apart(given_fields: tuple[str, ...], expected: Wanted) -> None:
    assert wanted(*given_fields) == expected
    assert wanted(expected.name, None, expected.dtype) == expected


@pytest.mark.parametrize(
    ("model", "revision", "dtype", "words"),
    [
        ("", None, None, "the model is missing"),
        (None, None, None, "the model is missing"),
        ("x" * 300, None, None, "has 300 characters"),
        ("org/na\x00me", None, None, "characters that no model has"),
        ("org/na\u202eme", None, None, "characters that no model has"),
        ("org/../../etc", None, None, "characters that no model has"),
        ("org/\ud800", None, None, "characters that no model has"),
        ("server:http://user:password@host/v1#x", None, None, "holds a login or a key"),
        ("org/name", "../../x", None, "the revision must be"),
        ("org/name", "-x", None, "the revision must be"),
        ("org/name", "a b", None, "the revision must be"),
        ("org/name", "v1", "int4", "the dtype must be one of float32"),
        (["org/name"], None, None, "model must be text"),
        ("org/name", 7, True, "revision must be text\n  the dtype must be one of"),
    ],
)
def test_names_that_are_none_are_refused(model: object, revision: object, dtype: object, words: str) -> None:
    with pytest.raises(UsageError, match=words) as raised:
        wanted(model, revision, dtype)
    assert "password" not in str(raised.value)


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(UsageError) as raised:
        wanted("", "..", "x")
    assert len(raised.value.problems) == 3


def test_bundled_models_that_are_not_there_are_refused_at_once() -> None:
    assert refusal(Wanted("bundled:nothing")).startswith("there is no model bundled:nothing; the bundled ones are")
    assert refusal(Wanted("bundled:merrow-bpe-2048")) == ""
    assert "has no revisions" in refusal(Wanted("bundled:merrow-bpe-2048", "main"))
    assert refusal(Wanted("org/name")) == ""


@given(st.text(max_size=250), st.text(max_size=120))
def test_the_folder_of_runs_is_a_name_of_its_own(model: str, revision: str) -> None:
    name = _name(Submission("0123456789ab", Wanted(model, revision), State.LEASED, "", 0, 0))
    assert name.endswith("-0123456789ab")
    assert name.isascii()
    assert "/" not in name
    assert not name.startswith(("-", "."))
    assert len(name) < 100
