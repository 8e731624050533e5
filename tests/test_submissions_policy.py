"""What may be submitted, and which files a worker may list: names alone."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise.board.protocol import MOST, Parts, checked_listing, is_known, name_of
from choicewise.board.submission import (
    ALLOW,
    Policy,
    State,
    Submission,
    TooMuch,
    Wanted,
    WrongPart,
    matches,
    refusal,
    wanted,
)
from choicewise.errors import UsageError

SUM = "0" * 64
RUN = ("manifest.json", "manifest.copy.json", "items.parquet")
BLOCK = ("requests.parquet", "spans.parquet", "observations.parquet")


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
        ("org/name", 7, True, "revision and dtype must be text"),
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


def test_files_of_a_sweep_may_be_listed() -> None:
    files = ["sweep.json", "sweep.copy.json", *(f"org-model@v1/mmlu/{name}" for name in RUN)]
    files += [f"org-model@v1/mmlu/blocks/00012/{name}" for name in BLOCK]
    assert checked_listing(dict.fromkeys(files, SUM)) == dict.fromkeys(files, SUM)


@pytest.mark.parametrize(
    "path",
    [
        *("/etc/passwd", "../sweep.json", "model/../sweep.json", "model/data/../manifest.json", "./sweep.json"),
        *("model/data/manifest.json/x", "model//manifest.json", "model/.hidden/manifest.json", ".submissions/queue"),
        *("model/data/blocks/00000/evil.py", "model/data/blocks/x/spans.parquet", "model/data/model.pkl", "", "/"),
        *("model/data/manifest.json\x00", "model/data\n/manifest.json", "model\\data\\manifest.json", "manifest.json"),
        *("model/data/blocks/00000/spans.parquet/..", "-model/data/manifest.json", "m/d.partial/manifest.json"),
        *("model/data/blocks/0٣/spans.parquet", "mödel/data/manifest.json", "model/" + "d" * 200 + "/manifest.json"),
        "model/data/summary.parquet",  # which the board computes itself
        *("model/data/damaged/manifest.json", "model/data/manifest.json ", "sweep.json/", "C:/data/manifest.json"),
    ],
)
def test_other_paths_may_not(path: str) -> None:
    with pytest.raises(WrongPart):
        checked_listing({path: SUM})


_PIECES = st.sampled_from(
    ["..", ".", "", "/", "model", "blocks", "00000", "manifest.json", "spans.parquet", "\x00", "~"]
)


@given(st.lists(st.one_of(_PIECES, st.text(max_size=5)), max_size=8).map("/".join))
def test_whatever_is_known_lies_inside(path: str) -> None:
    if is_known(path):
        parts = PurePosixPath(path).parts
        assert not PurePosixPath(path).is_absolute()
        assert ".." not in parts
        assert "/".join(parts) == path
        assert not any(part.startswith(".") for part in parts)
        assert path.isprintable()


@pytest.mark.parametrize("sha256", ["", "0" * 63, "0" * 65, "A" * 64, "../" + "0" * 61, None, 7, "0" * 64 + "\n"])
def test_a_listing_has_sums(sha256: object, tmp_path: Path) -> None:
    with pytest.raises(WrongPart):
        checked_listing({"sweep.json": sha256})
    if isinstance(sha256, str):
        with pytest.raises(WrongPart):
            Parts(tmp_path).path(sha256)


def test_a_listing_is_of_one_model_and_bounded() -> None:
    with pytest.raises(WrongPart, match="several models"):
        checked_listing({"a/data/manifest.json": SUM, "b/data/manifest.json": SUM})
    with pytest.raises(WrongPart, match="case alone"):
        checked_listing({"a/data/manifest.json": SUM, "a/Data/manifest.json": SUM})
    with pytest.raises(TooMuch, match="files are listed"):
        checked_listing({f"a/data/blocks/{number}/spans.parquet": SUM for number in range(MOST + 1)})
    for other in (None, [], "sweep.json", 7):
        with pytest.raises(WrongPart, match="must be an object"):
            checked_listing(other)


@given(st.text(max_size=250), st.text(max_size=120))
def test_the_folder_of_runs_is_a_name_of_its_own(model: str, revision: str) -> None:
    name = name_of(Submission("0123456789ab", Wanted(model, revision), State.LEASED, "", 0, 0))
    assert name.endswith("-0123456789ab")
    assert name.isascii()
    assert "/" not in name
    assert not name.startswith(("-", "."))
    assert len(name) < 100
