"""A board that evaluates over HTTP: who may what, what comes back, and what hostile clients get."""

import errno
import shutil
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from choicewise.errors import StoreError
from choicewise.extensions.board import queue
from choicewise.extensions.board import submission_routes as routes
from choicewise.extensions.board.library import discover
from choicewise.extensions.board.queue import Lease
from choicewise.extensions.board.submission import Busy, LeaseLost, Policy
from tests.helpers.board import rename, served
from tests.helpers.messages import Gist
from tests.helpers.submissions import READ, SUBMIT, Clock, Evaluating, evaluating, write_sent

NAME_FORM = f"model=org/name&token={SUBMIT}"

pytestmark = pytest.mark.usefixtures("reading_here")


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a worker has at its end: a sweep of one model on two datasets."""
    return write_sent(tmp_path_factory.mktemp("sent") / "sweep", data={"few": 6, "more": 7})


@pytest.fixture
def board(tmp_path: Path) -> Iterator[Evaluating]:
    with evaluating(tmp_path / "board", clock=Clock()) as server:
        yield server


def begun(board: Evaluating, model: str = "fake:hash") -> Lease:
    """A submission under a lease."""
    assert board.submit(model).status == 201
    return leased(board)


def leased(board: Evaluating, worker: str = "worker") -> Lease:
    lease = board.lease(worker)
    assert lease is not None
    return lease


def later(board: Evaluating, seconds: float) -> None:
    """So much time goes by."""
    assert board.clock is not None
    board.clock.time += seconds


@pytest.mark.costly("a board that reads what was sent")
def test_a_submission_becomes_numbers_on_the_board(board: Evaluating, sent: Path) -> None:
    told = board.submit("fake:hash", revision="v1", dtype="float32")
    assert (told.status, told.json["state"], told.json["runs"]) == (201, "waiting", [])
    name = told.json["id"]
    lease = leased(board, "gpu-7")
    assert lease.submission.as_json() == {
        **told.json,
        "state": "leased",
        "worker": "gpu-7",
        "attempts": 1,
    }
    assert board.lease() is None
    board.queue.renew(name, lease.secret, 3, 9)
    assert (board.record(name)["done"], board.record(name)["total"]) == (3, 9)
    board.finish(lease, sent)
    board.settle(lambda library: sum(bool(run.rows) for run in library.snapshot.board.runs) == 2)
    record = board.record(name)
    assert (record["state"], record["reason"], len(record["runs"])) == ("done", "", 2)
    assert all(
        board.ask(f"{run}.json").json["model"]["name"] == "fake:hash" for run in record["runs"]
    )
    page = board.ask(f"/submission/{name}")
    assert all(f'href="{run}"' in page.text for run in record["runs"])
    assert "refresh" not in page.headers
    assert 'href="/submissions"' in board.ask("/").text
    assert board.said == []


def test_a_board_without_submissions_takes_none(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    with served(tmp_path / "runs") as plain:
        assert (
            plain.ask("/submissions").status,
            plain.ask("/submissions", "POST", b"{}").status,
        ) == (404, 405)
        assert "Submit a model" not in plain.ask("/").text


def test_the_same_submission_twice_is_one(board: Evaluating) -> None:
    first = board.submit("org/name", revision="main")
    second = board.submit("org/name@main")
    assert (first.status, second.status, second.json["id"]) == (201, 200, first.json["id"])
    assert board.submit("org/name", revision="main", dtype="float16").status == 201
    page = board.form(NAME_FORM).headers["location"]
    assert board.form(NAME_FORM).headers["location"] == f"{page}?there"
    assert "submitted before" not in board.ask(page).text
    assert "submitted before, " in board.ask(f"{page}?there").text
    assert "submitted before" not in board.ask(f"{page}?other").text


@pytest.mark.parametrize(
    ("values", "status", "words"),
    [
        (
            {"model": "/etc/passwd"},
            403,
            "takes no models called /etc/passwd; it takes bundled:*, */*",
        ),
        ({"model": "gpt2"}, 403, "no models called gpt2"),
        ({"model": "bundled:nothing"}, 422, "no model bundled:nothing"),
        ({"model": "org/name", "dtype": "int4"}, 400, "dtype must be"),
        ({"model": "org/name", "revision": "a b"}, 400, "the revision must be"),
        ({"model": 7}, 400, "model must be text"),
        ({}, 400, "the model is missing"),
    ],
)
def test_what_can_not_be_submitted_says_why(
    board: Evaluating, values: Any, status: int, words: str
) -> None:
    answer = board.send("/submissions", values, SUBMIT)
    assert (answer.status, answer.headers["content-type"]) == (status, "application/json")
    assert words in answer.json["error"]
    listed = board.ask("/submissions.json").json["submissions"]
    assert [each["state"] for each in listed] == (["refused"] if status == 422 else [])
    assert board.lease() is None


def test_content_that_is_no_object_is_refused(board: Evaluating) -> None:
    headers = {"authorization": f"Bearer {SUBMIT}", "content_type": "application/json"}
    bodies = (
        b"",
        b"[]",
        b"7",
        b'"x"',
        b"{",
        b"\xff\xfe",
        b"[" * 16_000,
        b'{"model": NaN}',
        b"null",
        b'{"a":' * 2000,
    )
    for body in bodies:
        answer = board.ask("/submissions", "POST", body, **headers)
        assert answer.status in ((400, 401) if body else (400,)), body
        assert isinstance(answer.json["error"], str)
    assert board.said == []


def test_who_submits_needs_the_token(board: Evaluating) -> None:
    for token in ("", "x" * 24, SUBMIT[:-1], SUBMIT + "x", READ, "ü" * 20):
        headers = {
            "authorization": f"Bearer {token}".encode().decode("latin-1"),
            "content_type": "application/json",
        }
        answer = board.ask("/submissions", "POST", b'{"model": "org/name"}', **headers)
        assert (answer.status, "token is missing" in answer.json["error"]) == (
            401,
            True,
        ), token
        page = board.form(f"model=org/name&token={token}")
        assert page.status == 401
        assert token == "" or token not in page.text
    assert board.ask("/submissions.json").json == {"submissions": []}


def test_readers_need_their_token_and_wrong_ones_see_no_list_and_nothing_of_what_is_asked(
    tmp_path: Path,
) -> None:
    with evaluating(tmp_path / "board", token=READ) as board:
        assert board.submit("org/secret-name").status == 201
        for address in ("/submissions", "/submissions.json", "/"):
            assert board.ask(address).status == 401
            assert board.ask(address, authorization=f"Bearer {READ}").status == 200
        told = board.ask("/submissions.json", authorization=f"Bearer {SUBMIT}")
        assert told.json["submissions"][0]["model"] == "org/secret-name"
        assert board.ask("/", authorization=f"Bearer {SUBMIT}").status == 401
        assert "secret-name" not in board.form("model=x&token=wrong").text
        assert "secret-name" not in board.form(f"model=x&token={SUBMIT}").text
        for body, status in (
            ("model=x&token=wrong", 401),
            ("model=x", 401),
            ("%ff", 400),
            ("model=x&x" * 20, 400),
        ):
            told = board.form(body)
            assert (told.status, "merrowick" in told.text, "<form" in told.text) == (
                status,
                False,
                False,
            ), body
        assert "<form" in board.form("model=x&token=wrong", authorization=f"Bearer {READ}").text
        told = board.form(f"model=a b&dtype=x&token={SUBMIT}")
        assert (told.status, "<form" in told.text) == (400, True), (
            "who submits may see what is asked"
        )


def test_what_was_given_back_shows_when_it_is_tried_again(board: Evaluating) -> None:
    lease = begun(board)
    name = lease.submission.id
    board.queue.fail(name, lease.secret, "the Hub is \x1b[31m\u202eaway", again=True)
    assert board.record(name)["not_before"] == "2027-01-15T08:01:00Z"
    page = board.ask(f"/submission/{name}").text
    assert "not before 2027-01-15 08:01:00 UTC" in page
    assert not {"\x1b", "\u202e"} & {*page}
    assert board.lease() is None
    later(board, queue.PAUSES[0])
    assert (leased(board).submission.id, board.record(name)["not_before"]) == (name, None)


def test_other_sites_can_not_submit(board: Evaluating) -> None:
    own = f"http://127.0.0.1:{board.port}"
    by_origin: list[dict[str, str]] = [
        {"origin": origin} for origin in ("http://evil.example", "null")
    ]
    by_site = [{"origin": own, "sec_fetch_site": site} for site in ("cross-site", "same-site")]
    for headers in (*by_origin, *by_site, {"sec_fetch_site": "cross-site"}):
        more = {"sec_fetch_mode": "navigate"} if "sec_fetch_site" in headers else {}
        assert board.form(NAME_FORM, **headers, **more).status == 403, headers
    assert board.form(NAME_FORM, host="evil.example").status == 421
    assert board.ask("/submissions.json").json == {"submissions": []}
    answer = board.form(
        NAME_FORM, origin=own, sec_fetch_site="same-origin", sec_fetch_mode="navigate"
    )
    assert (answer.status, answer.headers["location"][:12]) == (303, "/submission/")


def test_only_these_paths_take_anything_and_none_takes_too_much(board: Evaluating) -> None:
    name = begun(board).submission.id
    paths = (
        "/",
        "/board.json",
        "/run/x",
        "/submissions.json",
        f"/submission/{name}",
        "/work/lease",
        "/look/x",
    )
    for path, method in product(paths, ("POST", "PUT", "DELETE", "PATCH")):
        answer = board.ask(path, method, b"x", authorization=f"Bearer {SUBMIT}")
        assert answer.status == 405, (path, method)
    assert board.ask("/submissions", "PUT", b"x").headers["allow"] == "GET, HEAD, POST"
    assert board.ask("/submissions", "GET", b"x").status == 413
    answer = board.ask("/submissions", "POST", b"x" * (routes.FORM + 1), accept="application/json")
    assert answer.status == 413
    head = b"POST /submissions HTTP/1.1\r\nHost: localhost\r\n"
    chunk = b"4000\r\n" + b"x" * 0x4000 + b"\r\n"
    assert (
        b" 413 "
        in board.raw(head + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 2).split(b"\r\n")[0]
    )
    assert (
        b" 413 "
        in board.raw(head + b"Content-Length: 99999999999999999999\r\n\r\n").split(b"\r\n")[0]
    )


def test_a_failure_stands_on_its_page_and_a_worker_in_trouble_gives_it_to_another(
    board: Evaluating,
) -> None:
    lease = begun(board)
    name = lease.submission.id
    for _ in range(2):
        board.queue.fail(
            name, lease.secret, "its weights are <pickles>: pytorch_model.bin", again=False
        )
    page = board.ask(f"/submission/{name}").text
    assert "its weights are &lt;pickles&gt;: pytorch_model.bin" in page
    assert "has failed." in page
    lease = begun(board)
    name = lease.submission.id
    board.queue.fail(name, lease.secret, "disk full", again=True)
    assert (board.record(name)["state"], board.record(name)["reason"]) == ("waiting", "disk full")
    assert "disk full" in board.ask(f"/submission/{name}").text
    for _ in range(2):
        later(board, queue.PAUSES[-1])
        board.queue.fail(name, leased(board).secret, "disk full", again=True)
    assert (board.lease(), board.record(name)["state"]) == (None, "failed")


def test_no_submission_overwrites_another_and_secrets_stand_nowhere(
    board: Evaluating, sent: Path
) -> None:
    folders = []
    for dtype in ("float32", "float16"):
        assert board.submit("fake:hash", dtype=dtype).status == 201
        lease = leased(board)
        board.finish(lease, sent)
        folders = sorted(path.name for path in (board.library.folders[0] / "submitted").iterdir())
    assert (len(folders), len({name.rpartition("-")[2] for name in folders})) == (2, 2)
    board.form(f"model=bad model&token={SUBMIT}")
    folder = board.library.folders[0]
    kept = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    paths = "/submissions", "/submissions.json", f"/submission/{lease.submission.id}"
    shown = [board.ask(path).text for path in paths]
    for text in (SUBMIT, lease.secret):
        assert text.encode() not in kept
        assert text not in "".join([*shown, *board.said])


def test_hidden_folders_are_not_searched_for_runs(tmp_path: Path, sent: Path) -> None:
    shutil.copytree(sent, tmp_path / "runs" / ".submissions" / "assembled")
    shutil.copytree(sent, tmp_path / "runs" / "shown")
    assert {
        place.folder.parent.parent.name for place in discover([tmp_path / "runs"]).places.values()
    } == {"shown"}
    hidden = shutil.copytree(sent, tmp_path / ".hidden")
    assert len(discover([hidden]).places) == 2, "a folder that was named is searched"


def test_an_end_that_was_killed_is_made_again(board: Evaluating, sent: Path) -> None:
    """Its runs were put into their place, and the queue did not know of it."""
    lease = begun(board)
    folder = board.library.folders[0] / "submitted"
    place = folder / f"fake-hash-{lease.submission.id}"
    place.mkdir(parents=True)
    (place / "old").write_text("x")
    board.finish(lease, sent)
    assert [path.name for path in folder.iterdir()] == [place.name]
    assert sorted(path.name for path in place.iterdir()) == [
        "model",
        "sweep.copy.json",
        "sweep.json",
    ]


def test_runs_of_a_lost_lease_are_not_shown(board: Evaluating, sent: Path) -> None:
    lease = begun(board)
    name = lease.submission.id
    board.queue.fail(name, lease.secret, "its worker was ended", again=True, counts=False)
    with pytest.raises(LeaseLost):
        board.finish(lease, sent)
    assert [path.name for path in (board.library.folders[0] / "submitted").iterdir()] == [
        f".{name}"
    ]
    assert board.record(name)["state"] == "waiting"


def test_a_restart_loses_nothing(tmp_path: Path, sent: Path) -> None:
    with evaluating(tmp_path / "board") as board:
        lease = begun(board)
        other = board.submit("org/waits").json["id"]
    name = lease.submission.id
    with evaluating(tmp_path / "board") as board:
        assert (board.record(name)["state"], board.record(other)["state"]) == ("leased", "waiting")
        board.queue.renew(name, lease.secret, 1, 2)
        board.finish(lease, sent)
    with evaluating(tmp_path / "board") as board:
        assert board.record(name)["state"] == "done"
        board.settle(lambda library: len(library.snapshot.board.runs) == 2)
        assert len(board.record(name)["runs"]) == 2


def test_a_locked_queue_is_said_and_can_be_asked_again(
    board: Evaluating, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "_SETTINGS", ("PRAGMA busy_timeout = 50", *queue._SETTINGS[1:]))
    lease = begun(board)
    name = lease.submission.id
    holder = sqlite3.connect(
        board.library.folders[0] / ".submissions" / "queue.sqlite3", isolation_level=None
    )
    holder.execute("BEGIN EXCLUSIVE")
    answers = [board.submit("org/name"), board.form(NAME_FORM)]
    for answer in answers:
        assert (answer.status, answer.headers["retry-after"]) == (503, "5")
        assert "another process holds it" in answer.text
    with pytest.raises(Busy):
        board.queue.renew(name, lease.secret, 1, 1)
    assert 'value="org/name"' in answers[-1].text
    assert [board.ask(path).status for path in ("/submissions", f"/submission/{name}", "/")] == [
        200
    ] * 3
    holder.rollback()
    holder.close()
    assert board.submit("org/name").status == 201


def test_a_full_queue_is_said(board: Evaluating, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "MOST", 2)
    assert [board.submit(f"org/{number}").status for number in range(3)] == [201, 201, 503]
    assert board.submit("org/0").status == 200


def test_a_full_disk_is_said(
    board: Evaluating, sent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = begun(board)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(queue, "_SETTINGS", (*queue._SETTINGS, "PRAGMA max_page_count = 1"))
        statuses = [201]
        while statuses[-1] == 201 and len(statuses) < 300:
            statuses.append(board.submit(f"org/{len(statuses)}", revision="r" * 90).status)
        assert {*statuses[1:]} == {201, 503}
    with monkeypatch.context() as disk:
        disk.setattr(queue, "sync", full)
        with pytest.raises(StoreError, match="the disk is full"):
            board.finish(lease, sent)
    assert board.record(lease.submission.id)["state"] == "leased"
    assert board.service is not None
    board.service.finish(lease)
    assert board.record(lease.submission.id)["state"] == "done"


@pytest.mark.costly("fifty submissions")
def test_fifty_submissions_by_ten_clients_are_all_there_and_run_once(tmp_path: Path) -> None:
    with evaluating(tmp_path / "board") as board:
        ready = Barrier(20)

        def submit(client: int) -> list[str]:
            ready.wait()
            told = [board.submit(f"org/model-{client}-{number}") for number in range(5)]
            assert {each.status for each in told} == {201}
            return [each.json["id"] for each in told]

        def work(worker: int) -> list[str]:
            ready.wait()
            taken = []
            for _ in range(2000):
                lease = board.lease(f"worker {worker}")
                if lease is not None:
                    taken.append(lease.submission.id)
                elif done():
                    break
            return taken

        def done() -> bool:
            states = board.queue.counts()
            return sum(states.values()) == 50 and "waiting" not in states

        with ThreadPoolExecutor(20) as threads:
            clients = [threads.submit(submit, number) for number in range(10)]
            workers = [threads.submit(work, number) for number in range(10)]
            submitted = [name for each in clients for name in each.result()]
            taken = [name for each in workers for name in each.result()]
        assert (len(set(submitted)), sorted(taken)) == (50, sorted(submitted))
        listed = board.ask("/submissions.json").json["submissions"]
        assert ({each["id"] for each in listed}, {each["attempts"] for each in listed}) == (
            set(submitted),
            {1},
        )
        assert board.said == []


def test_hostile_names_are_text_and_those_of_no_submission_are_not_found(board: Evaluating) -> None:
    assert board.submit('org/"><img src=x>').status == 201
    board.lease('<script>alert("x")</script>\x1b[31m\u202e')
    for path in ("/submissions", *(f"/submission/{each.id}" for each in board.queue.submissions())):
        page = board.ask(path)
        assert [each for each in ("<img", "<script", "\u202e", "\x1b") if each in page.text] == []
        assert page.headers["content-security-policy"].startswith("default-src 'none'")
        assert page.headers["cache-control"] == "no-store"
    for name in ("x", "..%2f..%2fetc", "%00", "0" * 300, "'; DROP TABLE submissions; --"):
        path = "/submission/" + name.replace(" ", "%20")
        assert (board.ask(path).status, board.ask(f"{path}.json").status) == (404, 404)
    assert board.ask("/submission/x.json").json["error"] == Gist("no submission x")
    assert board.submit("org/name").status == 201


def test_a_narrow_list_of_sources(tmp_path: Path) -> None:
    with evaluating(tmp_path / "board", policy=Policy(("good/*",), 5)) as board:
        assert (board.submit("good/model").status, board.submit("bad/model").status) == (201, 403)
        assert board.submit("good/../bad").status == 400
        joined = queue.SubmissionService.join(
            tmp_path / "board", tmp_path / "board" / ".submissions"
        )
        assert joined.asked.policy == Policy(("good/*",), 5)
        joined.close()


def test_a_run_that_is_sent_shows_the_name_of_its_model(
    board: Evaluating, sent: Path, tmp_path: Path
) -> None:
    """A worker can't write over runs that others made: it has a folder of its own, whatever its runs say."""
    shutil.copytree(sent, tmp_path / "renamed")
    for run in (tmp_path / "renamed" / "model").iterdir():
        rename(run, "../../<b>evil")
    board.finish(begun(board), tmp_path / "renamed")
    board.settle(lambda library: sum(bool(run.rows) for run in library.snapshot.board.runs) == 2)
    assert "<b>evil" not in board.ask("/").text
    assert board.ask("/board.json").json["runs"][0]["id"].startswith("board-submitted-")


def test_pages_are_made_once_for_each_state(
    board: Evaluating, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, make = [], routes.rendered

    def counted(*given: Any, **context: Any) -> str:
        made.append(given)
        return make(*given, **context)

    monkeypatch.setattr(routes, "rendered", counted)
    assert (len({board.ask("/submissions").body for _ in range(5)}), len(made)) == (1, 1)
    assert board.submit("org/later").status == 201
    assert "org/<wbr>later" in board.ask("/submissions").text
    assert len(made) == 2
    board.lease("gone")
    assert "running" in board.ask("/submissions").text
    later(board, queue.SECONDS + queue.SHOWN)
    assert "gone was not" in board.ask("/submissions").text
