"""What may be submitted: names alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise.board.queue import Asked, Lease, SubmissionService
from choicewise.board.submission import ALLOW, Policy, State, Submission, Wanted, matches, refusal, wanted
from choicewise.errors import UsageError

SERVER = "server:http://host/v1#x"
PATTERNS: dict[str, tuple[list[str], list[str]]] = {
    "*/*": (
        ["org/name", "~/name", "org/name\n"],
        ["/etc/passwd", "/passwd", "a/b/c", "./name", "../name", "org/.git", "name", "bundled:a/b", SERVER],
    ),
    "org/*": (["org/name"], ["other/name"]),
    "org/name-?b": (["org/name-7b"], []),
    "org/na.e": ([], ["org/name"]),
    "org+/*": (["org+/name"], []),
    "bundled:*": (["bundled:merrow"], ["bundled:a/b"]),
    "server:**": ([SERVER], []),
    "/models/*": (["/models/a"], ["/models/a/b", "/models/.a"]),
    "/models/**": (["/models/a/b"], []),
}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns(pattern: str) -> None:
    same, other = PATTERNS[pattern]
    assert [name for name in same + other if matches(name, pattern)] == same


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


NONE, REVISION = "characters that no model has", "the revision must be"


@pytest.mark.parametrize(
    ("given_fields", "words"),
    [
        *(((model, None, None), "the model is missing") for model in ("", None)),
        (("x" * 300, None, None), "has 300 characters"),
        *(((f"org/{name}", None, None), NONE) for name in ("na\x00me", "na\u202eme", "../../etc", "\ud800")),
        (("server:http://user:password@host/v1#x", None, None), "holds a login or a key"),
        *((("org/name", revision, None), REVISION) for revision in ("../../x", "-x", "a b")),
        (("org/name", "v1", "int4"), "the dtype must be one of float32"),
        ((["org/name"], None, None), "model must be text"),
        (("org/name", 7, True), "revision must be text\n  the dtype must be one of"),
    ],
)
def test_names_that_are_none_are_refused(given_fields: tuple[object, object, object], words: str) -> None:
    with pytest.raises(UsageError, match=words) as raised:
        wanted(*given_fields)
    assert "password" not in str(raised.value)


def test_bundled_models_that_are_not_there_and_all_that_is_wrong_are_said_at_once() -> None:
    with pytest.raises(UsageError) as raised:
        wanted("", "..", "x")
    assert len(raised.value.problems) == 3
    assert refusal(Wanted("bundled:nothing")).startswith("there is no model bundled:nothing; the bundled ones are")
    assert refusal(Wanted("bundled:merrow-bpe-2048")) == refusal(Wanted("org/name")) == ""
    assert "has no revisions" in refusal(Wanted("bundled:merrow-bpe-2048", "main"))


class Finished:
    """In place of a queue: the name of the folder that a submission's runs get."""

    def finish(self, id: str, secret: str, folder: str, show: object) -> None:
        self.name = folder.partition("/")[2]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> SubmissionService:
    board = tmp_path_factory.mktemp("board")
    service = SubmissionService(board, board / "queue", Asked(()))
    service.close()
    service.queue = Finished()  # type: ignore[assignment]
    return service


@given(model=st.text(max_size=250), revision=st.text(max_size=120))
def test_the_folder_of_runs_is_a_name_of_its_own(service: SubmissionService, model: str, revision: str) -> None:
    service.finish(Lease(Submission("0123456789ab", Wanted(model, revision), State.LEASED, "", 0, 0), "secret"))
    name = service.queue.name  # type: ignore[attr-defined]
    assert name.endswith("-0123456789ab")
    assert name.isascii()
    assert "/" not in name
    assert not name.startswith(("-", "."))
    assert len(name) < 100
