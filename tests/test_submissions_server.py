"""A board that evaluates over HTTP: who may what, what comes back, and what hostile clients and workers get."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import socket
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from choicewise import __version__
from choicewise.board import examination, queue
from choicewise.board import protocol as assembly
from choicewise.board import protocol as desk_module
from choicewise.board import protocol as parts
from choicewise.board import queue as database
from choicewise.board import server as connection
from choicewise.board import submission_routes as doors
from choicewise.board.library import discover
from choicewise.board.submission import Damaged, Policy
from choicewise.records import MANIFEST
from choicewise.util import tables as unpacked

from .board import rename
from .submissions import READ, SUBMIT, WORK, Clock, Evaluating, evaluating, write_sent

SUM = "0" * 64


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a worker has at its end: a sweep of one model on two datasets."""
    return write_sent(tmp_path_factory.mktemp("sent") / "sweep", data={"few": 6, "more": 7})


@pytest.fixture
def board(tmp_path: Path) -> Iterator[Evaluating]:
    with evaluating(tmp_path / "board", clock=Clock()) as server:
        yield server


def begun(board: Evaluating, model: str = "fake:hash") -> tuple[str, str]:
    """A submission under a lease: its id and the secret."""
    assert board.submit(model).status == 201
    lease = board.lease()
    return lease["submission"]["id"], lease["lease"]


def finish(board: Evaluating, name: str, secret: str) -> Any:
    return board.send(f"/work/{name}/finish", {"lease": secret})


def test_a_submission_becomes_numbers_on_the_board(board: Evaluating, sent: Path) -> None:
    told = board.submit("fake:hash", revision="v1", dtype="float32")
    assert (told.status, told.json["state"], told.json["runs"]) == (201, "waiting", [])
    name = told.json["id"]
    lease = board.lease("gpu-7")
    assert lease["submission"] == {**told.json, "state": "leased", "worker": "gpu-7", "attempts": 1}
    assert lease["ask"] == {"protocols": ["mmlu"], "data": ["bundled:merrowick"], "limit": 2, "dtype": "float32"}
    assert lease["policy"] == {"allow": ["bundled:*", "*/*", "fake:*"], "largest": 20_000_000_000}
    assert (lease["seconds"], lease["files"]) == (60, {})
    assert board.lease() is None
    renewed = board.send(f"/work/{name}/renew", {"lease": lease["lease"], "done": 3, "total": 9})
    assert (renewed.status, renewed.json) == (200, {"seconds": 60})
    assert (board.record(name)["done"], board.record(name)["total"]) == (3, 9)
    board.send_folder(name, lease["lease"], sent)
    assert finish(board, name, lease["lease"]).status == 200
    assert finish(board, name, lease["lease"]).status == 200, "the worker may not have heard it the first time"
    board.settle(lambda library: sum(bool(run.rows) for run in library.shelf.board.runs) == 2)
    record = board.record(name)
    assert (record["state"], record["reason"], len(record["runs"])) == ("done", "", 2)
    assert all(board.ask(f"{run}.json").json["model"]["name"] == "fake:hash" for run in record["runs"])
    page = board.ask(f"/submission/{name}")
    assert all(f'href="{run}"' in page.text for run in record["runs"])
    assert "refresh" not in page.headers
    assert 'href="/submissions"' in board.ask("/").text
    assert not [*(board.library.folders[0] / ".submissions" / "parts").rglob("[0-9a-f]*.*")]
    assert board.said == []


def test_a_board_without_submissions_takes_none(tmp_path: Path) -> None:
    from .board import served

    (tmp_path / "runs").mkdir()
    with served(tmp_path / "runs") as plain:
        assert plain.ask("/submissions").status == 404
        assert plain.ask("/submissions", "POST", b"{}").status == 405
        assert plain.ask("/work/lease", "POST", b"{}").status == 405
        assert "Submit a model" not in plain.ask("/").text


def test_the_same_submission_twice_is_one(board: Evaluating) -> None:
    first = board.submit("org/name", revision="main")
    second = board.submit("org/name@main")
    assert (first.status, second.status, second.json["id"]) == (201, 200, first.json["id"])
    assert board.submit("org/name", revision="main", dtype="float16").status == 201


@pytest.mark.parametrize(
    ("values", "status", "words"),
    [
        ({"model": "/etc/passwd"}, 403, "takes no models called /etc/passwd; it takes bundled:*, */*"),
        ({"model": "gpt2"}, 403, "takes no models called gpt2"),
        ({"model": "bundled:nothing"}, 422, "there is no model bundled:nothing"),
        ({"model": "org/name", "dtype": "int4"}, 400, "the dtype must be one of"),
        ({"model": "org/name", "revision": "a b"}, 400, "the revision must be"),
        ({"model": 7}, 400, "model must be text"),
        ({}, 400, "the model is missing"),
    ],
)
def test_what_can_not_be_submitted_says_why(board: Evaluating, values: Any, status: int, words: str) -> None:
    answer = board.send("/submissions", values, SUBMIT)
    assert (answer.status, answer.headers["content-type"]) == (status, "application/json")
    assert words in answer.json["error"]
    listed = board.ask("/submissions.json").json["submissions"]
    assert [each["state"] for each in listed] == (["refused"] if status == 422 else [])
    assert board.lease() is None


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"7", b'"x"', b"{", b"\xff\xfe", b"[" * 16_000, b'{"model": NaN}', b"null", b'{"a":' * 2000]
)
def test_content_that_is_no_object_is_refused(board: Evaluating, body: bytes) -> None:
    headers = {"authorization": f"Bearer {SUBMIT}", "content_type": "application/json"}
    answer = board.ask("/submissions", "POST", body, **headers)
    assert answer.status in ((400, 401) if body else (400,))
    assert isinstance(answer.json["error"], str)
    assert board.said == []


@pytest.mark.parametrize("token", ["", "x" * 24, SUBMIT[:-1], SUBMIT + "x", WORK, "ü" * 20])
def test_who_submits_needs_the_token(board: Evaluating, token: str) -> None:
    headers = {"authorization": f"Bearer {token}".encode().decode("latin-1"), "content_type": "application/json"}
    answer = board.ask("/submissions", "POST", b'{"model": "org/name"}', **headers)
    assert answer.status == 401
    assert "token is missing or wrong" in answer.json["error"]
    page = board.form(f"model=org/name&token={token}")
    assert page.status == 401
    assert token == "" or token not in page.text
    assert board.ask("/submissions.json").json == {"submissions": []}


@pytest.mark.parametrize("token", ["", "x" * 24, SUBMIT, READ])
def test_workers_need_theirs(board: Evaluating, token: str) -> None:
    board.submit("org/name")
    for path in ("/work/lease", "/work/x/renew", "/work/x/files", "/work/x/finish", "/work/x/fail"):
        answer = board.send(path, {}, token)
        assert (answer.status, list(answer.json)) == (401, ["error"]), path
    assert board.put("x", "y", b"z", token=token).status == 401
    assert board.ask(f"/work/x/part/{SUM}").status == 401
    assert board.record(board.ask("/submissions.json").json["submissions"][0]["id"])["attempts"] == 0


def test_readers_need_their_token_and_wrong_ones_see_no_list(tmp_path: Path) -> None:
    with evaluating(tmp_path / "board", token=READ) as board:
        assert board.submit("org/secret-name").status == 201
        for address in ("/submissions", "/submissions.json", "/"):
            assert board.ask(address).status == 401
            assert board.ask(address, authorization=f"Bearer {READ}").status == 200
        for token in (SUBMIT, WORK):
            told = board.ask("/submissions.json", authorization=f"Bearer {token}")
            assert told.json["submissions"][0]["model"] == "org/secret-name"
            assert board.ask("/", authorization=f"Bearer {token}").status == 401
        assert "secret-name" not in board.form("model=x&token=wrong").text
        assert "secret-name" not in board.form(f"model=x&token={SUBMIT}").text
        assert board.lease()["submission"]["model"] == "org/secret-name"


def test_who_may_not_read_is_not_shown_what_is_asked(tmp_path: Path) -> None:
    with evaluating(tmp_path / "board", token=READ) as board:
        for body, status in (("model=x&token=wrong", 401), ("model=x", 401), ("%ff", 400), ("model=x&x" * 20, 400)):
            told = board.form(body)
            assert (told.status, "merrowick" in told.text, "<form" in told.text) == (status, False, False), body
        assert "<form" in board.form("model=x&token=wrong", authorization=f"Bearer {READ}").text
        told = board.form(f"model=a b&dtype=x&token={SUBMIT}")
        assert (told.status, "<form" in told.text) == (400, True), "who submits may see what is asked"


def test_the_same_from_the_form_leads_to_what_is_there_and_says_so(board: Evaluating) -> None:
    first = board.form(f"model=org/name&token={SUBMIT}").headers["location"]
    again = board.form(f"model=org/name&token={SUBMIT}").headers["location"]
    assert again == f"{first}?there"
    assert "submitted before" not in board.ask(first).text
    assert "submitted before, and nothing is evaluated twice" in board.ask(again).text
    assert "submitted before" not in board.ask(f"{first}?other").text


def test_a_worker_of_another_major_version_is_refused_with_the_reason(board: Evaluating) -> None:
    board.submit("org/name")
    for version, words in (("97.1.0", "runs Choicewise 97.1.0"), (None, "does not say"), ("", "does not say")):
        told = board.send("/work/lease", {"worker": "w", **({} if version is None else {"version": version})})
        assert told.status == 400
        assert words in told.json["error"]
        assert f"the board runs {__version__}" in told.json["error"]
    assert board.record(board.queue.submissions()[0].id)["attempts"] == 0
    major = __version__.partition(".")[0]
    assert board.send("/work/lease", {"worker": "w", "version": f"{major}.99.0"}).status == 200


def test_what_was_given_back_shows_when_it_is_tried_again(board: Evaluating) -> None:
    name, secret = begun(board)
    told = board.send(f"/work/{name}/fail", {"lease": secret, "reason": "the Hub is \x1b[31m\u202eaway", "again": True})
    assert told.status == 200
    assert board.record(name)["not_before"] == "2027-01-15T08:01:00Z"
    page = board.ask(f"/submission/{name}").text
    assert "not before 2027-01-15 08:01:00 UTC" in page
    assert "\x1b" not in page
    assert "\u202e" not in page
    assert board.lease() is None
    assert board.clock is not None
    board.clock.time += queue.PAUSES[0]
    assert board.lease()["submission"]["id"] == name
    assert board.record(name)["not_before"] is None


def test_parts_that_are_listed_no_more_are_removed(board: Evaluating) -> None:
    """A manifest is sent anew with every block."""
    name, secret = begun(board)
    contents = [b"first", b"second"]
    sums = [hashlib.sha256(content).hexdigest() for content in contents]
    for content, sha256 in zip(contents, sums, strict=True):
        assert board.put(name, secret, content).status == 201
        answer = board.send(f"/work/{name}/files", {"lease": secret, "files": {"sweep.json": sha256}})
        assert answer.status == 200
    assert board.desk is not None
    assert [board.desk.parts.has(sha256) for sha256 in sums] == [False, True]


def test_parts_that_nobody_listed_are_removed_a_day_later(
    board: Evaluating, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, secret = begun(board)
    assert board.put(name, secret, b"never listed").status == 201
    assert board.put(name, secret, b"listed").status == 201
    desk = board.desk
    assert desk is not None
    for part in (board.library.folders[0] / ".submissions" / "parts").rglob("*"):
        os.utime(part, (0, 0))
    listed = {"lease": secret, "files": {"sweep.json": hashlib.sha256(b"listed").hexdigest()}}
    assert board.send(f"/work/{name}/files", listed).status == 200
    assert len(left(board)) == 2
    monkeypatch.setattr(desk_module, "CLEANED", 0.0)
    assert board.send(f"/work/{name}/files", listed).status == 200
    assert left(board) == [hashlib.sha256(b"listed").hexdigest()]


def test_other_sites_can_not_submit(board: Evaluating) -> None:
    body = f"model=org/name&token={SUBMIT}"
    own = f"http://127.0.0.1:{board.port}"
    for headers in (
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": own, "sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate"},
        {"origin": own, "sec_fetch_site": "same-site", "sec_fetch_mode": "navigate"},
        {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate"},
    ):
        assert board.form(body, **headers).status == 403, headers
    assert board.form(body, host="evil.example").status == 421
    assert board.ask("/submissions.json").json == {"submissions": []}
    answer = board.form(body, origin=own, sec_fetch_site="same-origin", sec_fetch_mode="navigate")
    assert (answer.status, answer.headers["location"][:12]) == (303, "/submission/")


def test_only_these_paths_take_anything(board: Evaluating) -> None:
    name, _ = begun(board)
    for path in (
        "/",
        "/board.json",
        "/run/x",
        "/submissions.json",
        f"/submission/{name}",
        "/work",
        "/work/",
        "/look/x",
    ):
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            answer = board.ask(path, method, b"x", authorization=f"Bearer {WORK}")
            assert answer.status == 405, (path, method)
    assert board.ask("/submissions", "PUT", b"x").headers["allow"] == "GET, HEAD, POST"
    assert board.ask("/submissions", "GET", b"x").status == 413
    assert board.ask("/work/lease", authorization=f"Bearer {WORK}").status in (404, 405)


def test_too_much_is_refused(board: Evaluating, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = board.ask("/submissions", "POST", b"x" * (doors.FORM + 1), accept="application/json")
    assert answer.status == 413
    assert "at most 16,384 bytes" in answer.json["error"]
    head = b"POST /submissions HTTP/1.1\r\nHost: localhost\r\n"
    chunk = b"4000\r\n" + b"x" * 0x4000 + b"\r\n"
    assert b" 413 " in board.raw(head + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 2).split(b"\r\n")[0]
    assert b" 413 " in board.raw(head + b"Content-Length: 99999999999999999999\r\n\r\n").split(b"\r\n")[0]
    name, secret = begun(board)
    monkeypatch.setattr(parts, "LARGEST", 1000)
    assert board.put(name, secret, b"x" * 1001).status == 413
    assert board.put(name, secret, b"x" * 1000).status == 201
    monkeypatch.setattr("choicewise.board.protocol.MOST_SENT", 1500)
    told = board.put(name, secret, b"y" * 999)
    assert (told.status, "a board takes no more" in told.json["error"]) == (413, True)
    assert left(board) == [hashlib.sha256(b"x" * 1000).hexdigest()]


def left(board: Evaluating) -> list[str]:
    """The names of all files among the parts."""
    return sorted(
        path.name for path in (board.library.folders[0] / ".submissions" / "parts").rglob("*") if path.is_file()
    )


def test_parts_are_what_their_names_say(board: Evaluating) -> None:
    name, secret = begun(board)
    content = b"a part" * 400_000
    sha256 = hashlib.sha256(content).hexdigest()
    wrong = board.put(name, secret, content, sha256=SUM)
    assert (wrong.status, sha256 in wrong.json["error"]) == (400, True)
    for spelled in ("x", SUM[:-1], "..%2f..%2fetc%2fpasswd", sha256.upper(), "%00"):
        assert board.put(name, secret, b"x", sha256=spelled).status in (400, 404, 405)
    assert left(board) == []
    assert [board.put(name, secret, content).status for _ in range(2)] == [201, 200]
    assert board.put(name, secret, b"").status == 201
    assert board.get(name, secret, sha256).status == 404, "only what is listed goes to others"
    files = {"sweep.json": sha256}
    lacking = board.send(f"/work/{name}/files", {"lease": secret, "files": {**files, "sweep.copy.json": SUM}})
    assert (lacking.status, lacking.json["lacking"]) == (409, [SUM])
    assert board.send(f"/work/{name}/files", {"lease": secret, "files": files}).status == 200
    assert board.get(name, secret, sha256).body == content
    assert board.get(name, "wrong", sha256).status == 409


@pytest.mark.parametrize("path", ["../evil", "/etc/cron.d/evil", "model/data/evil.py", ".submissions/work.token"])
def test_a_listing_names_files_of_runs_alone(board: Evaluating, path: str) -> None:
    name, secret = begun(board)
    sha256 = hashlib.sha256(b"evil").hexdigest()
    assert board.put(name, secret, b"evil").status == 201
    answer = board.send(f"/work/{name}/files", {"lease": secret, "files": {path: sha256}})
    assert (answer.status, "no file of a sweep" in answer.json["error"]) == (400, True)


def test_a_lost_lease_is_said_everywhere(board: Evaluating) -> None:
    assert board.clock is not None
    name, secret = begun(board)
    content = b"sent" * 100
    assert board.put(name, secret, content).status == 201
    listed = {"lease": secret, "files": {"sweep.json": hashlib.sha256(content).hexdigest()}}
    assert board.send(f"/work/{name}/files", listed).status == 200
    board.clock.time += queue.SECONDS + 1
    assert board.record(name)["state"] == "waiting"
    second = board.lease("second")
    assert second["submission"]["id"] == name
    assert second["files"] == listed["files"], "what was sent is not computed again"
    assert board.get(name, second["lease"], listed["files"]["sweep.json"]).body == content
    for path, values in (
        ("renew", {"done": 1, "total": 2}),
        ("files", {"files": {}}),
        ("finish", {}),
        ("fail", {"reason": "x", "again": True}),
    ):
        answer = board.send(f"/work/{name}/{path}", {"lease": secret, **values})
        assert (answer.status, "lost" in answer.json["error"]) == (409, True), path
    assert board.put(name, secret, b"late" * 100_000).status == 409
    assert board.get(name, secret, SUM).status == 409
    assert board.record(name)["worker"] == "second"


def test_the_clock_of_a_worker_plays_no_part(board: Evaluating) -> None:
    assert board.clock is not None
    name, secret = begun(board)
    told = {"lease": secret, "done": 1, "total": 2, "time": 0, "now": "1970-01-01", "seconds": 1e9, "until": 1e12}
    assert board.send(f"/work/{name}/renew", told).json == {"seconds": 60}
    board.clock.time += queue.SECONDS + 1
    assert board.lease("other")["submission"]["id"] == name


def test_values_of_a_worker_are_checked(board: Evaluating) -> None:
    name, secret = begun(board)
    for path, values in (
        ("renew", {"lease": 7}),
        ("renew", {"lease": secret, "done": -1, "total": 1}),
        ("renew", {"lease": secret, "done": 1.5, "total": 1}),
        ("renew", {"lease": secret, "done": 10**30, "total": 1}),
        ("renew", {"lease": secret, "done": True, "total": 1}),
        ("files", {"lease": secret}),
        ("fail", {"lease": secret, "reason": ["x"], "again": True}),
        ("fail", {"lease": secret, "reason": "x", "again": "no"}),
        ("finish", {}),
    ):
        assert board.send(f"/work/{name}/{path}", values).status == 400, (path, values)
    assert board.send("/work/lease", {"worker": 7}).status == 400
    assert board.send("/work/nothing/renew", {"lease": "x"}).status == 404
    assert board.record(name)["state"] == "leased"


def test_a_failure_stands_on_its_page(board: Evaluating) -> None:
    name, secret = begun(board)
    reason = "its weights are <pickles>: pytorch_model.bin"
    told = {"lease": secret, "reason": reason, "again": False}
    assert [board.send(f"/work/{name}/fail", told).status for _ in range(2)] == [200, 200]
    page = board.ask(f"/submission/{name}").text
    assert "its weights are &lt;pickles&gt;: pytorch_model.bin" in page
    assert "has failed." in page
    assert board.submit("fake:hash").status == 201


def test_a_worker_in_trouble_gives_it_to_another(board: Evaluating) -> None:
    name, secret = begun(board)
    assert board.send(f"/work/{name}/fail", {"lease": secret, "reason": "disk full", "again": True}).status == 200
    assert (board.record(name)["state"], board.record(name)["reason"]) == ("waiting", "disk full")
    assert "disk full" in board.ask(f"/submission/{name}").text
    for _ in range(2):
        assert board.clock is not None
        board.clock.time += queue.PAUSES[-1]
        lease = board.lease()
        told = {"lease": lease["lease"], "reason": "disk full", "again": True}
        assert board.send(f"/work/{name}/fail", told).status == 200
    assert board.lease() is None
    assert board.record(name)["state"] == "failed"


def harmed(sent: Path, to: Path, harm: str) -> Path:
    """A copy of what was sent, damaged in one way."""
    shutil.copytree(sent, to)
    run = to / "model" / "few"
    block = next((run / "blocks").rglob("observations.parquet"))
    if harm == "block":
        block.write_bytes(block.read_bytes()[:-10])
    elif harm == "manifest":
        (run / MANIFEST).write_text("{}")
    elif harm == "bomb":
        rows = pa.table({"key": pa.array(["x"]).take(pa.array([0] * 2000))})
        pq.write_table(rows, run / "items.parquet", compression="zstd")
    elif harm == "model":
        from dataclasses import replace

        from .board import change

        change(run, lambda manifest: replace(manifest, model=replace(manifest.model, digest="f" * 64)))
    elif harm == "incomplete":
        from dataclasses import replace

        from .board import change

        change(run, lambda manifest: replace(manifest, complete=False))
    elif harm == "missing":
        block.unlink()
    elif harm == "nothing":
        shutil.rmtree(to / "model")
    return to


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        ("block", "observations.parquet"),
        ("manifest", "model/few"),
        ("bomb", "model/few/items.parquet"),
        ("model", "of several models, by their digests"),
        ("incomplete", "model/few is not complete"),
        ("missing", "is missing"),
        ("nothing", "no run is among what was sent"),
    ],
)
def test_damaged_runs_do_not_get_onto_the_board(
    board: Evaluating, sent: Path, tmp_path: Path, harm: str, words: str
) -> None:
    name, secret = begun(board)
    board.send_folder(name, secret, harmed(sent, tmp_path / "harmed", harm))
    answer = finish(board, name, secret)
    assert answer.status == 422
    assert words in answer.json["error"]
    assert str(tmp_path) not in answer.text, "where the board lies is nobody's business"
    folder = board.library.folders[0]
    assert [*(folder / "submitted").iterdir()] == []
    assert board.record(name)["state"] == "leased"
    board.send_folder(name, secret, sent)
    assert finish(board, name, secret).status == 200, "the worker may send what is whole"


def test_tables_that_unpack_to_too_much_are_not_unpacked(
    sent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unpacked, "AT_ONCE", 100)
    monkeypatch.setattr(unpacked, "_RATIO", 0)
    problems: list[str] = []
    examination._digest(sent / "model" / "few", sent, problems)
    assert problems
    assert all("is not unpacked: it would take" in problem for problem in problems)


def test_an_examination_that_dies_is_damage(tmp_path: Path, sent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    with monkeypatch.context() as nowhere:
        nowhere.setattr(examination.Examiner, "module", "choicewise.nowhere")
        with pytest.raises(Damaged, match="the examination of the runs ended its process"):
            examination.examined(sent)
    monkeypatch.setattr(examination.Examiner, "limits", replace(examination.Examiner.limits, wait=0.0))
    with pytest.raises(Damaged, match="within"):
        examination.examined(sent)


def test_what_the_sweep_lacks_is_said(board: Evaluating, sent: Path, tmp_path: Path) -> None:
    from dataclasses import replace

    from choicewise.store.manifest import read_sweep, write_sweep

    shutil.copytree(sent, tmp_path / "some")
    shutil.rmtree(tmp_path / "some" / "model" / "more")
    sweep = read_sweep(tmp_path / "some")
    cells = sweep.cells[0], replace(sweep.cells[1], done=False, failure="its window is too small")
    write_sweep(tmp_path / "some", replace(sweep, cells=cells))
    name, secret = begun(board)
    board.send_folder(name, secret, tmp_path / "some")
    assert finish(board, name, secret).status == 200
    assert board.record(name)["reason"] == "more is missing: its window is too small"


def test_no_submission_overwrites_another(board: Evaluating, sent: Path, tmp_path: Path) -> None:
    folders = []
    for dtype in ("float32", "float16"):
        told = board.submit("fake:hash", dtype=dtype)
        lease = board.lease()
        board.send_folder(told.json["id"], lease["lease"], sent)
        assert finish(board, told.json["id"], lease["lease"]).status == 200
        folders = sorted(path.name for path in (board.library.folders[0] / "submitted").iterdir())
    assert len(folders) == 2
    assert len({name.rpartition("-")[2] for name in folders}) == 2


def test_runs_are_never_put_through_a_link(tmp_path: Path, sent: Path) -> None:
    with evaluating(tmp_path / "board") as board:
        name, secret = begun(board)
        board.send_folder(name, secret, sent)
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "board" / "submitted").symlink_to(tmp_path / "elsewhere")
        answer = finish(board, name, secret)
        assert (answer.status, str(tmp_path) in answer.text) == (503, False)
        assert [*(tmp_path / "elsewhere").iterdir()] == []
        assert "is a link" in board.said[-1]


def test_hidden_folders_are_not_searched_for_runs(tmp_path: Path, sent: Path) -> None:
    shutil.copytree(sent, tmp_path / "runs" / ".submissions" / "assembled")
    shutil.copytree(sent, tmp_path / "runs" / "shown")
    assert {place.folder.parent.parent.name for place in discover([tmp_path / "runs"]).places.values()} == {"shown"}
    hidden = shutil.copytree(sent, tmp_path / ".hidden")
    assert len(discover([hidden]).places) == 2, "a folder that was named is searched"


def test_a_try_that_was_killed_is_made_again(board: Evaluating, sent: Path) -> None:
    name, secret = begun(board)
    board.send_folder(name, secret, sent)
    folder = board.library.folders[0] / "submitted"
    (folder / f".{name}").mkdir(parents=True)
    (folder / f".{name}" / "half").write_text("x")
    (folder / f"fake-hash-{name}").mkdir()
    (folder / f"fake-hash-{name}" / "old").write_text("x")
    assert finish(board, name, secret).status == 200
    assert [path.name for path in folder.iterdir()] == [f"fake-hash-{name}"]
    assert sorted(path.name for path in (folder / f"fake-hash-{name}").iterdir()) == [
        "model",
        "sweep.copy.json",
        "sweep.json",
    ]


def test_runs_of_what_is_given_back_meanwhile_are_not_on_the_board(
    board: Evaluating, sent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, secret = begun(board)
    board.send_folder(name, secret, sent)
    examine = assembly.examined

    def given_back(folder: Path) -> Any:
        board.queue.fail(name, secret, "its worker was ended", again=True, counts=False)
        return examine(folder)

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(assembly, "examined", given_back)
        assert finish(board, name, secret).status == 409
    assert [*(board.library.folders[0] / "submitted").iterdir()] == []
    assert board.record(name)["state"] == "waiting"
    lease = board.lease()
    board.send_folder(name, lease["lease"], sent)
    assert finish(board, name, lease["lease"]).status == 200


def test_a_restart_loses_nothing(tmp_path: Path, sent: Path) -> None:
    with evaluating(tmp_path / "board") as board:
        board.submit("fake:hash")
        other = board.submit("org/waits").json["id"]
        lease = board.lease()
        name, secret = lease["submission"]["id"], lease["lease"]
        files = board.send_folder(name, secret, sent)
    with evaluating(tmp_path / "board") as board:
        assert board.record(name)["state"] == "leased"
        assert board.record(other)["state"] == "waiting"
        assert board.queue.files(name) == files
        assert board.send(f"/work/{name}/renew", {"lease": secret, "done": 1, "total": 2}).status == 200
        assert finish(board, name, secret).status == 200
    with evaluating(tmp_path / "board") as board:
        assert board.record(name)["state"] == "done"
        board.settle(lambda library: len(library.shelf.board.runs) == 2)
        assert len(board.record(name)["runs"]) == 2


def test_a_locked_queue_is_said_and_can_be_asked_again(board: Evaluating, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "_SETTINGS", ("PRAGMA busy_timeout = 50", *database._SETTINGS[1:]))
    name, secret = begun(board)
    holder = sqlite3.connect(board.library.folders[0] / ".submissions" / "queue.sqlite3", isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    answers = [
        board.submit("org/name"),
        board.send(f"/work/{name}/renew", {"lease": secret, "done": 1, "total": 1}),
        board.form(f"model=org/name&token={SUBMIT}"),
    ]
    for answer in answers:
        assert (answer.status, answer.headers["retry-after"]) == (503, "5")
        assert "another process holds it" in answer.text
    assert 'value="org/name"' in answers[-1].text
    assert board.ask("/submissions").status == 200
    assert board.ask(f"/submission/{name}").status == 200
    assert board.ask("/").status == 200
    holder.rollback()
    holder.close()
    assert board.submit("org/name").status == 201


def test_a_full_queue_is_said(board: Evaluating, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "MOST", 2)
    assert [board.submit(f"org/{number}").status for number in range(3)] == [201, 201, 503]
    assert board.submit("org/0").status == 200


def test_a_full_disk_is_said(board: Evaluating, sent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, secret = begun(board)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(parts.os, "fsync", full)
        answer = board.put(name, secret, b"x" * 3_000_000)
        assert (answer.status, "No space left" in answer.json["error"]) == (507, True)
        assert left(board) == []
    with monkeypatch.context() as disk:
        disk.setattr(database, "_SETTINGS", (*database._SETTINGS, "PRAGMA max_page_count = 1"))
        statuses = {board.submit(f"org/{number}", revision="r" * 90).status for number in range(300)}
        assert statuses == {201, 503}
    board.send_folder(name, secret, sent)
    with monkeypatch.context() as disk:
        disk.setattr(assembly, "_put", full)
        answer = finish(board, name, secret)
        assert (answer.status, answer.json["error"]) == (507, "the disk of this board is full; ask again later")
    assert finish(board, name, secret).status == 200


def test_a_part_that_breaks_off_leaves_nothing(board: Evaluating) -> None:
    name, secret = begun(board)
    head = f"PUT /work/{name}/part/{SUM} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {WORK}\r\n"
    head += f"X-Lease: {secret}\r\nContent-Length: 9000000\r\n\r\n"
    with socket.create_connection(("127.0.0.1", board.port), timeout=10) as broken:
        broken.sendall(head.encode() + b"x" * 3_000_000)
    for _ in range(100):
        if not left(board) and board.ask("/submissions").status == 200:
            break
    else:
        raise AssertionError(left(board))
    assert board.record(name)["state"] == "leased"
    assert board.said == []


def test_slow_content_is_hung_up_on(board: Evaluating, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "CONTENT_SECONDS", 0.4)
    head = b"POST /submissions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n"
    with socket.create_connection(("127.0.0.1", board.port), timeout=10) as slow:
        slow.sendall(head)
        for _ in range(200):
            try:
                slow.sendall(b"x")
                slow.settimeout(0.05)
                if slow.recv(100) == b"":
                    break
            except TimeoutError:
                continue
            except OSError:
                break
        else:
            raise AssertionError("a byte now and then kept the connection")
    name, secret = begun(board)
    content = b"y" * 5_000_000
    sha256 = hashlib.sha256(content).hexdigest()
    head = f"PUT /work/{name}/part/{sha256} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {WORK}\r\n".encode()
    head += f"X-Lease: {secret}\r\nContent-Length: {len(content)}\r\nConnection: close\r\n\r\n".encode()
    monkeypatch.setattr(connection, "CONTENT_SECONDS", 20.0)
    assert board.raw(head + content).startswith(b"HTTP/1.1 201")


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
                    taken.append(lease["submission"]["id"])
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
        assert len(set(submitted)) == 50
        assert sorted(taken) == sorted(submitted)
        listed = board.ask("/submissions.json").json["submissions"]
        assert {each["id"] for each in listed} == set(submitted)
        assert {each["attempts"] for each in listed} == {1}
        assert board.said == []


def test_secrets_stand_nowhere(board: Evaluating, sent: Path) -> None:
    name, secret = begun(board)
    board.form(f"model=bad model&token={SUBMIT}")
    board.send_folder(name, secret, sent)
    assert finish(board, name, secret).status == 200
    folder = board.library.folders[0]
    kept = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    shown = [board.ask(path).text for path in ("/submissions", "/submissions.json", f"/submission/{name}")]
    for text in (SUBMIT, WORK, secret):
        assert text.encode() not in kept
        assert text not in "".join([*shown, *board.said])
    assert repr(board.desk).count(WORK) == 0


def test_hostile_names_are_text(board: Evaluating) -> None:
    assert board.submit('org/"><img src=x>').status == 201
    board.lease('<script>alert("x")</script>\x1b[31m\u202e')
    for path in ("/submissions", *(f"/submission/{each.id}" for each in board.queue.submissions())):
        page = board.ask(path)
        assert "<img" not in page.text
        assert "<script" not in page.text
        assert "\u202e" not in page.text
        assert "\x1b" not in page.text
        assert page.headers["content-security-policy"].startswith("default-src 'none'")
        assert page.headers["cache-control"] == "no-store"


def test_a_submission_that_is_not_there(board: Evaluating) -> None:
    for name in ("x", "..%2f..%2fetc", "%00", "0" * 300, "'; DROP TABLE submissions; --"):
        path = "/submission/" + name.replace(" ", "%20")
        assert board.ask(path).status == 404
        assert board.ask(f"{path}.json").status == 404
    assert board.ask("/submission/x.json").json["error"] == "there is no submission x"
    assert board.submit("org/name").status == 201


def test_a_narrow_list_of_sources(tmp_path: Path) -> None:
    with evaluating(tmp_path / "board", policy=Policy(("good/*",), 5)) as board:
        assert board.submit("good/model").status == 201
        assert board.submit("bad/model").status == 403
        assert board.submit("good/../bad").status == 400
        assert board.lease()["policy"] == {"allow": ["good/*"], "largest": 5}


def test_a_run_that_is_sent_shows_the_name_of_its_model(board: Evaluating, sent: Path, tmp_path: Path) -> None:
    """A worker can't write over runs that others made: it has a folder of its own, whatever its runs say."""
    shutil.copytree(sent, tmp_path / "renamed")
    for run in (tmp_path / "renamed" / "model").iterdir():
        rename(run, "../../<b>evil")
    name, secret = begun(board)
    board.send_folder(name, secret, tmp_path / "renamed")
    assert finish(board, name, secret).status == 200
    board.settle(lambda library: sum(bool(run.rows) for run in library.shelf.board.runs) == 2)
    assert "<b>evil" not in board.ask("/").text
    assert json.loads(board.ask("/board.json").body)["runs"][0]["id"].startswith("board-submitted-")


def test_pages_are_made_once_for_each_state(board: Evaluating, monkeypatch: pytest.MonkeyPatch) -> None:
    from choicewise.board import submission_routes as routes

    made, make = [], routes.submissions_page

    def counted(*given: Any) -> str:
        made.append(given)
        return make(*given)

    monkeypatch.setattr(routes, "submissions_page", counted)
    assert len({board.ask("/submissions").body for _ in range(5)}) == 1
    assert len(made) == 1
    assert board.submit("org/later").status == 201
    assert "org/<wbr>later" in board.ask("/submissions").text
    assert len(made) == 2
    assert board.clock is not None
    board.lease("gone")
    assert "running" in board.ask("/submissions").text
    board.clock.time += queue.SECONDS + queue.SHOWN
    assert "gone was not heard of any more" in board.ask("/submissions").text


def test_an_answer_does_not_wait_for_the_reader(board: Evaluating, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else every answer takes 40 ms more, as its two pieces are held together."""
    options, made = [], connection.Connection.connection_made

    def noted(self: connection.Connection, transport: Any) -> None:
        made(self, transport)
        options.append(transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    monkeypatch.setattr(connection.Connection, "connection_made", noted)
    assert board.ask("/").status == 200
    assert options == [1]
