"""The board over HTTP: what is answered, who may ask, and what a hostile request gets."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from queue import Queue
from threading import Event, Semaphore, Thread

import pytest
import uvicorn

from choicewise.board import server as site
from choicewise.board.access import VARIABLE, access, host_name, is_loopback, read_token
from choicewise.board.library import Library
from choicewise.board.model import ListedRun, Snapshot
from choicewise.board.pages import Links
from choicewise.board.records import View
from choicewise.board.runs import RunProcess, RunProcesses
from choicewise.board.server import listen
from choicewise.cli.commands import invoke
from choicewise.errors import UsageError
from choicewise.util.cache import BoundedCache
from tests.helpers.board import Served, rename, served, write_run
from tests.served.test_bounded_process import GUARD, ended

pytestmark = pytest.mark.costly("servers and boards on loopback")

TOKEN = "a token of enough signs"[:23].replace(" ", "-")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models on the same questions."""
    folder = tmp_path_factory.mktemp("runs")
    write_run(folder / "one")
    write_run(folder / "deep" / "two", model="fake:oracle")
    return folder


@pytest.fixture(scope="module")
def board(runs: Path) -> Iterator[Served]:
    with served(runs) as server:
        yield server


@pytest.fixture(scope="module")
def addresses(board: Served) -> dict[str, str]:
    """An address of each kind of page; nothing about them changes any more."""
    board.settle(
        lambda library: {column.id for column in library.snapshot.board.columns} <= library.snapshot.ranges.keys()
    )
    told = board.ask("/board.json").json
    part, run = told["columns"][0]["part"], told["runs"][0]["id"]
    page = board.ask("/").text
    model = page.split('href="/model/')[1].split('"')[0]
    return {
        "board": "/",
        "model": f"/model/{model}",
        "run": f"/run/{run}",
        "protocol": f"/protocol/{told['columns'][0]['p'][1:]}",
        "item": f"/item/{part}?id=tides/test/0",
    }


def test_every_page_is_answered_as_html_and_as_json(board: Served, addresses: dict[str, str]) -> None:
    for name, address in addresses.items():
        page = board.ask(address)
        assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8"), name
        assert "<main" in page.text
        asked = board.ask(address, accept="application/json")
        assert asked.headers["content-type"] == "application/json; charset=utf-8"
        assert isinstance(asked.json, dict)
        path, _, query = address.partition("?")
        spelled = "/board.json" if path == "/" else f"{path}.json{'?' if query else ''}{query}"
        assert board.ask(spelled).body == asked.body


def test_json_and_page_show_the_same_numbers(board: Served) -> None:
    told, page = board.ask("/board.json").json, board.ask("/").text
    values = [cell["value"] for model in told["models"] for cell in model["cells"].values()]
    shown = [float(part.split("<")[0]) for part in page.partition("<tbody>")[2].split("><b>")[1:]]
    assert len(values) == 6
    assert sorted(f"{100 * value:.1f}" for value in values) == sorted(
        f"{value:.1f}"
        for place, value in enumerate(shown)
        if place % 4 != 0  # the first of each line is its median
    )


def test_csv_has_a_row_per_number(board: Served) -> None:
    answer = board.ask("/board.csv?columns=all")
    assert answer.headers["content-disposition"] == 'attachment; filename="board.csv"'
    header, *rows = answer.text.strip().split("\r\n")
    assert header.startswith("model,run,dataset,data,")
    assert len(rows) == 24


def test_head_is_get_without_content(board: Served) -> None:
    get, head = board.ask("/"), board.ask("/", method="HEAD")
    assert head.status == 200
    assert head.body == b""
    assert head.headers["content-length"] == str(len(get.body))


def test_what_is_known_is_not_sent_again(board: Served) -> None:
    tag = board.ask("/").headers["etag"]
    again = board.ask("/", if_none_match=tag)
    assert (again.status, again.body) == (304, b"")
    assert board.ask("/", if_none_match='"other"').status == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "localhost@evil.example", "[::1"])
def test_foreign_hosts_are_refused(board: Served, host: str) -> None:
    answer = board.ask("/", host=host)
    assert answer.status == 421
    assert "<" not in answer.text


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8470", "127.0.0.1:1", "[::1]:8470", "localhost."])
def test_own_names_are_known(board: Served, host: str) -> None:
    assert board.ask("/", host=host).status == 200


def test_a_request_without_host_or_with_two_is_refused(board: Served) -> None:
    assert board.raw(b"GET / HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 421")
    two = b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nConnection: close\r\n\r\n"
    assert board.raw(two)[:12] in (b"HTTP/1.1 400", b"HTTP/1.1 421")


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://localhost.evil.example", "file://"])
def test_foreign_origins_are_refused(board: Served, origin: str) -> None:
    answer = board.ask("/board.json", origin=origin)
    assert answer.status == 403
    assert "access-control-allow-origin" not in answer.headers


def test_other_sites_may_link_and_not_embed(board: Served) -> None:
    assert board.ask("/", sec_fetch_site="cross-site", sec_fetch_mode="navigate").status == 200
    assert board.ask("/board.json", sec_fetch_site="cross-site", sec_fetch_mode="no-cors").status == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "NONSENSE"])
def test_only_get_and_head(board: Served, method: str) -> None:
    answer = board.ask("/", method=method)
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")


def test_every_answer_says_what_a_browser_may_do(board: Served, addresses: dict[str, str]) -> None:
    for address in (*addresses.values(), "/nothing", "/board.json", "/board.csv"):
        headers = board.ask(address).headers
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'")
        assert "unsafe-inline" not in policy
        assert "frame-ancestors 'none'" in policy
        assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "no-referrer")
        assert "server" not in headers


@pytest.mark.parametrize(
    "path",
    [
        *("/../../etc/passwd", "/look/../../pyproject.toml", "/look/..%2f..%2fpyproject.toml", "/artefact/%2e%2e%2fx"),
        *("/artefact//etc/passwd", "/run/..", "/run/%00", "/look/page.css", "/static/page.css", "/artefact/", "/look"),
        *("/model/%ff%fe", "/item/x?id=../../etc/passwd", "/run/one/manifest.json", "/one/manifest.json", "//evil"),
        *("/protocol/P000000", "/item/", "/%2e%2e/%2e%2e/etc/passwd", "/\\..\\x", "/run/%252e%252e"),
    ],
)
def test_there_are_no_paths_to_files(board: Served, path: str) -> None:
    answer = board.ask(path)
    assert answer.status == 404
    assert answer.headers["content-type"].startswith("text/plain")
    assert "root:" not in answer.text
    assert "Traceback" not in answer.text


def test_an_item_shows_what_was_scored_after_null_contexts(board: Served, addresses: dict[str, str]) -> None:
    page, told = board.ask(addresses["item"]).text, board.ask(addresses["item"], accept="application/json").json
    prompts = [asked for asked in told["explained"]["asked"] if "mmlu/cloze:pmi-answer" in asked["protocols"]]
    nulls = [scored for asked in prompts for scored in asked["scored"] if scored["null"] is not None]
    assert {scored["null"] for scored in nulls} == {"", ":", "Answer:", "Answer: "}
    assert all(scored["tokens"] for scored in nulls)
    shown = page.split('<section id="prompts"')[1]
    assert shown.count("<small>after <code>Answer:</code> </small>") == 4
    for scored in nulls:
        assert f"{scored['total']:.3f}".replace("-", "−") in shown


def test_an_item_that_no_run_has_is_not_there(board: Served, addresses: dict[str, str]) -> None:
    part = addresses["item"].partition("?")[0]
    for item in ("", "nothing", "../../etc/passwd", "%00", "x" * 3000):
        assert board.ask(f"{part}?id={item}").status == 404


def test_a_run_has_its_own_page_under_its_own_policy(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(runs) as board:
        run = board.ask("/board.json").json["runs"][0]["id"]
        monkeypatch.setattr("choicewise.board.server.PATIENCE", 0.0)
        answer = board.ask(f"/run/{run}")
        assert answer.headers["refresh"] == "2"
        assert "is being made" in answer.text
        monkeypatch.setattr("choicewise.board.server.PATIENCE", 60.0)
        answer = board.ask(f"/run/{run}")
        policy = answer.headers["content-security-policy"]
        assert "refresh" not in answer.headers
        assert "script-src 'sha256-" in policy
        assert "unsafe" not in policy
        assert policy.endswith("frame-ancestors 'none'")
        assert 'href="/">Board</a>' in answer.text
        monkeypatch.setattr("choicewise.board.server.CHART_PATIENCE", 60.0)
        strip = board.ask(f"/strip/{run}.svg")
        assert strip.headers["content-type"] == "image/svg+xml"
        assert strip.text.startswith("<svg")
        assert board.ask("/strip/nothing.svg").status == 404


def test_a_page_that_can_not_be_made_says_why(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("choicewise.board.server.PATIENCE", 60.0)
    monkeypatch.setattr("choicewise.board.server.CHART_PATIENCE", 60.0)
    with served(runs) as board:
        run = board.ask("/board.json").json["runs"][0]["id"]
        monkeypatch.setattr(RunProcess, "module", "choicewise.nowhere")
        text = board.ask(f"/run/{run}").text
        assert "can&#39;t be made" in text
        assert "the process that reads the run ended" in text
        assert board.ask(f"/strip/{run}.svg").status == 404


def test_artefacts_are_named_by_their_content(board: Served, addresses: dict[str, str], runs: Path) -> None:
    page = board.ask(addresses["model"]).text
    names = [part.split('"')[0] for part in page.split('href="/artefact/')[1:]]
    assert {name.partition(".")[2] for name in names} == {"csv", "parquet"}
    for name in names:
        answer = board.ask(f"/artefact/{name}")
        assert hashlib.sha256(answer.body).hexdigest() == name.partition(".")[0]
        assert "immutable" in answer.headers["cache-control"]
    assert board.ask(f"/artefact/{'0' * 64}.csv").status == 404


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET /" + b"x" * 900_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", b"400"),
        (b"GET /?" + b"x" * 8_000 + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", b"414"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"".join(b"X-%d: y\r\n" % n for n in range(90_000)), b"400"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\nConnection: close\r\n\r\n", b"413"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\nx", b"413"),
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbody", b"405"),
        (
            b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            b"400",
        ),
        (b"\x00\x01\x02\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\nHost: localhost\nX: a\x00b\n\n", b"400"),
    ],
)
def test_huge_and_broken_requests_get_a_plain_answer(board: Served, sent: bytes, status: bytes) -> None:
    answer = board.raw(sent)
    assert answer.split(b" ")[1] == status
    assert b"Traceback" not in answer
    assert board.ask("/").status == 200


def test_content_without_end_is_not_read(board: Served) -> None:
    head = b"%s / HTTP/1.1\r\nHost: %s\r\nTransfer-Encoding: chunked\r\n\r\n"
    for method, host in ((b"POST", b"localhost"), (b"GET", b"evil.example"), (b"GET", b"localhost")):
        with socket.create_connection(("127.0.0.1", board.port), timeout=30) as endless:
            endless.sendall(head % (method, host))
            answer = b""
            while part := endless.recv(65536):  # ends where the server hangs up
                answer += part
        assert b"connection: close" in answer


def test_more_connections_than_there_may_be_are_refused(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "CONNECTIONS", 3)
    with served(runs) as board:
        with ExitStack() as idle:
            for _ in range(3):
                idle.enter_context(socket.create_connection(("127.0.0.1", board.port)))
            assert board.ask("/").status == 503
        for _ in range(100):  # those that were closed are noticed in a moment
            if board.ask("/").status == 200:
                return
        raise AssertionError("closed connections still count")


class Held:
    """Things that are made of runs, each of which waits until the test goes on; ``begun`` counts them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.go_on, self._use = Semaphore(0), Event(), RunProcesses.use
        self.asked: list[str] = []
        monkeypatch.setattr(RunProcesses, "use", lambda *given: self._held(*given))

    def _held(self, processes: RunProcesses, run: ListedRun, make: Callable[[RunProcess], object]) -> object:
        self.asked.append(run.id)
        self.begun.release()
        assert self.go_on.wait(GUARD)
        return self._use(processes, run, make)

    def wait(self, count: int) -> None:
        """Until so many more are begun."""
        for _ in range(count):
            assert self.begun.acquire(timeout=GUARD)


def begin(board: Served, *paths: str, host: str = "127.0.0.1") -> Queue[bytes]:
    """Ask for all of these at once; the answers as they come."""
    answers = Queue[bytes]()

    def ask(path: str) -> None:
        address = "127.0.0.1", board.port
        with socket.create_connection(address, timeout=GUARD, source_address=(host, 0)) as asking:
            asking.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
            answer = b""
            with suppress(OSError):
                while part := asking.recv(65536):
                    answer += part
        answers.put(answer)

    for path in paths:
        Thread(target=ask, args=(path,), daemon=True).start()
    return answers


def items(board: Served, count: int) -> list[str]:
    """Addresses of so many items."""
    part = board.ask("/board.json").json["columns"][0]["part"]
    return [f"/item/{part}?id=tides/test/{number}" for number in range(count)]


def test_slow_pages_wait_in_a_line_that_ends_and_others_do_not_wait(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("choicewise.board.server.WAITING", 2)
    held = Held(monkeypatch)
    with served(runs) as board:
        slow = site.PROCESSES + 2
        answers = begin(board, *(items(board, 6)))
        refused = [answers.get(timeout=GUARD) for _ in range(6 - slow)]
        assert {answer.split(b" ")[1] for answer in refused} == {b"503"}
        assert all(b"\r\nretry-after: 5\r\n" in answer for answer in refused)
        assert board.ask("/").status == 200
        assert board.ask("/?columns=all").status == 200, "one that nobody asked for before"
        held.go_on.set()
        assert {answers.get(timeout=GUARD).split(b" ")[1] for _ in range(slow)} == {b"200"}
        assert board.ask(items(board, 1)[0]).status == 200


def test_the_same_item_under_other_orders_is_made_once(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch)
    with served(runs) as board:
        board.settle(lambda library: bool(library.snapshot.disputed))  # nothing changes any more
        (item,) = items(board, 1)
        spelled = [f"{item}&{further}={number}" for number in range(10) for further in ("sort", "warning", "x", "run")]
        answers = begin(board, *spelled)
        held.wait(1)
        held.go_on.set()
        assert {answers.get(timeout=GUARD).split(b" ")[1] for _ in spelled} == {b"200"}
        assert len(held.asked) == 1


def test_unknown_orders_and_names_are_the_same_page(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, page = list[View](), site.board_page

    def counted(snapshot: Snapshot, view: View, links: Links) -> str:
        made.append(view)
        return page(snapshot, view, links)

    with served(runs) as board:
        board.settle(lambda library: bool(library.snapshot.disputed))  # nothing changes any more
        monkeypatch.setattr(site, "board_page", counted)
        for number in range(10):
            assert board.ask(f"/?sort=x{number}&order=nothing{number}&further={number}&token=").status == 200
        assert [view.sort for view in made] in ([""], [])


def test_an_answer_under_way_is_finished_at_the_end(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("choicewise.board.server.GRACE", GUARD)
    held, ending = Held(monkeypatch), Event()
    with served(runs) as board:
        answers = begin(board, *items(board, 1))
        held.wait(1)
        shut = uvicorn.Server.shutdown

        async def shutting(server: uvicorn.Server, sockets: list[socket.socket] | None = None) -> None:
            ending.set()
            await shut(server, sockets)

        monkeypatch.setattr(uvicorn.Server, "shutdown", shutting)
        Thread(target=lambda: ending.wait(GUARD) and held.go_on.set(), daemon=True).start()
    assert answers.get(timeout=GUARD).startswith(b"HTTP/1.1 200")


def test_an_error_inside_is_told_to_the_owner_alone(board: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> str:
        raise RuntimeError("secret \x1b[31m")

    monkeypatch.setattr("choicewise.board.server.board_csv", broken)
    answer = board.ask("/board.csv?model=never-asked-before")
    assert answer.status == 500
    assert "secret" not in answer.text
    for _ in range(100):
        if any("secret" in line for line in board.said):
            return
        time.sleep(0.05)
    raise AssertionError(board.said)


def test_a_token_is_asked_for(runs: Path) -> None:
    with served(runs, token=TOKEN) as board:
        refused = board.ask("/board.json")
        assert refused.status == 401
        assert refused.headers["www-authenticate"].startswith("Bearer")
        assert board.ask("/look/x").status == 401
        assert board.ask("/", authorization="Bearer wrong").status == 401
        assert board.ask("/", authorization=f"Basic {TOKEN}").status == 401
        assert board.ask("/?token=wrong").status == 401
        assert board.ask("/", authorization=f"bearer {TOKEN}").status == 200
        entered = board.ask(f"/?model=fake&token={TOKEN}")
        cookie = entered.headers["set-cookie"]
        assert entered.status == 200
        assert "url=/?model=fake" in entered.text
        assert TOKEN not in entered.text + cookie
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert board.ask("/", cookie=cookie.partition(";")[0]).status == 200
        assert board.ask("/", cookie="choicewise=nonsense").status == 401
        assert board.ask("/", cookie='choicewise="\\377; =;;').status == 401
        assert not any(TOKEN in line for line in board.said)
        for path in (f"/\\evil.example/?token={TOKEN}", f"//evil.example/?token={TOKEN}"):
            assert 'href="/evil.example/"' in board.ask(path).text, "the way on stays on this server"


def test_tokens_come_from_a_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "token"
    monkeypatch.delenv(VARIABLE, raising=False)
    assert read_token(None) is None
    file.write_text(f"{TOKEN}\n")
    assert read_token(file) == TOKEN
    monkeypatch.setenv(VARIABLE, TOKEN * 2)
    assert read_token(None) == TOKEN * 2
    for bad in ("short", "", "with a space in its middle", "ümlauts are no plain signs"):
        file.write_text(bad)
        with pytest.raises(UsageError) as told:
            read_token(file)
        assert not bad or bad not in str(told.value)
    with pytest.raises(UsageError, match="can't be read"):
        read_token(tmp_path / "nowhere")


def test_a_public_server_needs_a_token(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    for host in ("0.0.0.0", "::", "192.0.2.1"):
        with pytest.raises(UsageError, match="token-file"):
            invoke(["serve", str(runs), "--host", host])


def test_clear_words_for_what_can_not_be_served(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nowhere does not exist"):
        invoke(["serve", str(tmp_path / "nowhere")])
    with pytest.raises(UsageError, match="is a file"):
        invoke(["serve", str(runs / "one" / "manifest.json")])
    with listen("127.0.0.1", None) as bound, pytest.raises(UsageError, match="in use"):
        listen("127.0.0.1", bound.getsockname()[1])
    with pytest.raises(UsageError, match="no address of this machine"):
        listen("192.0.2.1", 0)


def test_another_port_is_taken_where_the_usual_one_is_in_use() -> None:
    with listen("127.0.0.1", None) as first, listen("127.0.0.1", None) as second:
        assert first.getsockname()[1] != second.getsockname()[1]


def test_hosts() -> None:
    everywhere = access("0.0.0.0", ["board.example"])
    assert everywhere.knows_host("192.0.2.7:8470")
    assert everywhere.knows_host("Board.Example")
    assert not everywhere.knows_host("evil.example")
    assert not access("127.0.0.1").knows_host("192.0.2.7")
    assert host_name("a b") is None
    assert [is_loopback(host) for host in ("127.0.0.2", "::1", "[::1]", "localhost", "0.0.0.0", "x")] == [
        *(True, True, True, True, False, False)
    ]


def test_runs_come_change_and_go(tmp_path: Path) -> None:
    with served(tmp_path) as board:
        assert "There is no run below the folders" in board.ask("/").text
        run = write_run(tmp_path / "below" / "run")
        board.settle(lambda library: len(library.snapshot.board.lines) == 1 and not library.snapshot.waiting)
        assert "fake:<wbr>hash" in board.ask("/").text
        rename(run, "renamed")
        board.settle(lambda library: library.snapshot.board.models == ("renamed",) and not library.snapshot.waiting)
        shutil.rmtree(run)
        board.settle(lambda library: not library.snapshot.board.runs)
        assert "renamed" not in board.ask("/").text


def test_a_folder_that_vanishes_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "shown"
    write_run(folder / "run")
    with served(folder) as board:
        folder.rename(tmp_path / "away")
        board.settle(lambda library: bool(library.snapshot.problems))
        assert "shown is not there" in board.ask("/").text
        (tmp_path / "away").rename(folder)
        board.settle(lambda library: not library.snapshot.problems and not library.snapshot.waiting)
        assert "fake:<wbr>hash" in board.ask("/").text


HOSTILE = "<script>alert(1)</script>\"'&\u202e\u2028\x1b]0;x\x07{{7*7}}javascript:x" + "w" * 300


def test_hostile_names_are_text(tmp_path: Path) -> None:
    rename(write_run(tmp_path / "run <b>"), HOSTILE)
    with served(tmp_path) as board:
        told = board.ask("/board.json?columns=all")
        assert told.json["models"][0]["model"] == HOSTILE
        page = board.ask("/").text
        address = page.split('href="/model/')[1].split('"')[0]
        run, part = told.json["runs"][0]["id"], told.json["columns"][0]["part"]
        addresses = ("/", f"/model/{address}", f"/run/{run}", f"/item/{part}?id=tides/test/0")
        while "refresh" in board.ask(addresses[2]).headers:
            pass  # the run's page is being made
        pages = {each: board.ask(each).text for each in addresses}
        for text in (told.text, board.ask("/board.csv").text, *pages.values()):
            assert not {"\x1b", "\u202e", "\u2028", "\x07"} & set(text)
        for each, text in pages.items():
            own = "<script" in text.replace("<script>alert", "")
            assert own == each.startswith("/run/")  # the only page with a script of ours
            assert "<script>alert" not in text
            assert "run <b>" not in text
            assert "{{7*7}}" in text


def test_formulas_in_names_stay_text(tmp_path: Path) -> None:
    rename(write_run(tmp_path / "run"), '=HYPERLINK("http://evil.example")')
    with served(tmp_path) as board:
        assert all(not line.startswith(("=", '"=')) for line in board.ask("/board.csv").text.split("\r\n"))


def test_answers_are_kept_within_a_budget() -> None:
    cache = BoundedCache[str, bytes](10, len)
    cache.put("a", b"12345")
    cache.put("b", b"12345")
    assert cache.get("a") == b"12345"
    cache.put("c", b"1")
    assert (cache.get("a"), cache.get("b"), cache.get("c")) == (b"12345", None, b"1")
    cache.put("d", b"x" * 11)
    assert cache.get("d") is None


def children(process: int) -> list[int]:
    return [
        int(child) for file in Path(f"/proc/{process}/task").glob("*/children") for child in file.read_text().split()
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="processes are listed on Linux alone")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGINT", "SIGKILL"])
def test_no_process_outlives_the_command(runs: Path, name: str) -> None:
    command = [sys.executable, "-m", "choicewise", "serve", str(runs)]
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    with subprocess.Popen(command, stdout=-1, stderr=-1, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            board = Served(Library([]), int(process.stdout.readline().rstrip("/\n").rpartition(":")[2]))
            while not any(run["state"] == "read" for run in board.ask("/board.json").json["runs"]):
                assert process.poll() is None
            assert board.ask(items(board, 1)[0]).status == 200
            begun = children(process.pid)
            assert len(begun) == 2, "one reads runs, one explains items"
            process.send_signal(getattr(signal, name))
            _, told = process.communicate(timeout=GUARD)
        finally:
            process.kill()
    assert process.returncode == (-signal.SIGKILL if name == "SIGKILL" else 0)
    assert "Traceback" not in told
    assert all(map(ended, begun))


def test_ctrl_c_ends_the_command(runs: Path) -> None:
    command = [sys.executable, "-m", "choicewise", "serve", str(runs)]
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    with subprocess.Popen(command, stdout=-1, stderr=-1, text=True, env=environment) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(address, timeout=20) as answer:
            assert answer.status == 200
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "Traceback" not in told
    assert "interrupted" not in told
    assert "Ctrl-C ends it" in told
