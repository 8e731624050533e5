"""The board over HTTP: what is answered, who may ask, and what a hostile request gets."""

import hashlib
import re
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from queue import Queue
from threading import Event, Semaphore, Thread

import pytest
import uvicorn

from choicewise.cli.commands import invoke
from choicewise.errors import UsageError
from choicewise.extensions.board import connections, headlines
from choicewise.extensions.board import server as site
from choicewise.extensions.board.access import VARIABLE, access, host_name, is_loopback, read_token
from choicewise.extensions.board.model import Board, ListedRun, Ranges, Snapshot
from choicewise.extensions.board.pages import Links
from choicewise.extensions.board.records import View
from choicewise.extensions.board.runs import RunProcess, RunProcesses
from choicewise.extensions.board.server import listen
from choicewise.results.outcomes import Outcomes
from choicewise.util.cache import BoundedCache
from tests.helpers.board import Served, read_runs_here, rename, served, served_until, write_run
from tests.helpers.processes import eventually
from tests.served.board.test_bounded_process import GUARD

HOSTILE = "<script>alert(1)</script>\"'&\u202e\u2028\x1b]0;x\x07{{7*7}}javascript:x" + "w" * 300
FORMULA = '=HYPERLINK("http://evil.example")'
TOKEN = "a-token-of-enough-signs"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models on the same questions, with names that could do harm."""
    folder = tmp_path_factory.mktemp("runs")
    rename(write_run(folder / "one <b>"), HOSTILE)
    rename(write_run(folder / "deep" / "two", model="fake:oracle"), FORMULA)
    return folder


@pytest.fixture(scope="module")
def board(runs: Path) -> Iterator[Served]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(site, "PROCESSES", 1)  # the charts of a first page cost seconds in each
        with served(runs) as server:
            yield server


@pytest.fixture(scope="module")
def addresses(board: Served) -> dict[str, str]:
    """An address of each kind of page; nothing about them changes any more."""
    board.settle(
        lambda library: (
            {each.id for each in library.snapshot.board.columns} <= library.snapshot.ranges.keys()
        )
    )
    told = board.ask("/board.json").json
    column, run = (
        told["columns"][0],
        next(run["id"] for run in told["runs"] if run["model"] == HOSTILE),
    )
    models = [part.split('"')[0] for part in board.ask("/").text.split('href="/model/')[1:]]
    model = next(each for each in models if "{{7*7}}" in board.ask(f"/model/{each}").text)
    pages = {
        "board": "/",
        "model": f"/model/{model}",
        "run": f"/run/{run}",
        "protocol": f"/protocol/{column['p'][1:]}",
    }
    return {**pages, "item": f"/item/{column['part']}?id=tides/test/0&run={run}"}


def test_every_page_is_answered_as_html_and_as_json(
    board: Served, addresses: dict[str, str]
) -> None:
    for name, address in addresses.items():
        page = board.ask(address)
        assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8"), (
            name
        )
        assert "<main" in page.text
        asked = board.ask(address, accept="application/json")
        assert asked.headers["content-type"] == "application/json; charset=utf-8"
        assert isinstance(asked.json, dict)
        path, _, query = address.partition("?")
        spelled = "/board.json" if path == "/" else f"{path}.json{'?' if query else ''}{query}"
        assert board.ask(spelled).body == asked.body


def test_json_page_and_csv_show_the_same_numbers(board: Served) -> None:
    told, page = board.ask("/board.json").json, board.ask("/").text
    values = [cell["value"] for model in told["models"] for cell in model["cells"].values()]
    lines = page.partition('<section id="protocols"')[2].partition("<tbody>")[2]
    shown = [float(number) for number in re.findall(r"><b>([0-9.]+)</b>", lines)]
    assert len(values) == 6
    numbers = [
        value for place, value in enumerate(shown) if place % 4 != 0
    ]  # the first of each line is its median
    assert sorted(f"{100 * value:.1f}" for value in values) == sorted(
        f"{value:.1f}" for value in numbers
    )
    answer = board.ask("/board.csv?columns=all")
    assert answer.headers["content-disposition"] == 'attachment; filename="board.csv"'
    header, *rows = answer.text.strip().split("\r\n")
    assert header.startswith("model,run,dataset,data,")
    assert len(rows) == 24


@pytest.mark.usefixtures("addresses")  # the page between two requests does not change any more
def test_head_and_what_is_known_are_answered_without_content(board: Served) -> None:
    get, head = board.ask("/"), board.ask("/", method="HEAD")
    assert (head.status, head.body, head.headers["content-length"]) == (
        200,
        b"",
        str(len(get.body)),
    )
    known = board.ask("/", if_none_match=get.headers["etag"])
    assert (known.status, known.body, board.ask("/", if_none_match='"other"').status) == (
        304,
        b"",
        200,
    )


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "", "localhost@evil.example", "[::1"]
)
def test_foreign_hosts_none_and_two_are_refused(board: Served, host: str) -> None:
    answer = board.ask("/", host=host)
    assert (answer.status, "<" in answer.text) == (421, False)
    assert board.raw(b"GET / HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 421")
    two = b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nConnection: close\r\n\r\n"
    assert board.raw(two)[:12] in (b"HTTP/1.1 400", b"HTTP/1.1 421")


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:8470", "127.0.0.1:1", "[::1]:8470", "localhost."]
)
def test_own_names_are_known(board: Served, host: str) -> None:
    assert board.ask("/", host=host).status == 200


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "https://localhost.evil.example", "file://"]
)
def test_foreign_origins_are_refused_and_other_sites_may_link_and_not_embed(
    board: Served, origin: str
) -> None:
    answer = board.ask("/board.json", origin=origin)
    assert (answer.status, "access-control-allow-origin" in answer.headers) == (403, False)
    assert board.ask("/", sec_fetch_site="cross-site", sec_fetch_mode="navigate").status == 200
    assert (
        board.ask("/board.json", sec_fetch_site="cross-site", sec_fetch_mode="no-cors").status
        == 403
    )


@pytest.mark.parametrize(
    "method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "NONSENSE"]
)
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
        assert (headers["x-content-type-options"], headers["referrer-policy"]) == (
            "nosniff",
            "no-referrer",
        )
        assert "server" not in headers


@pytest.mark.parametrize(
    "path",
    [
        *(
            "/../../etc/passwd",
            "/look/../../pyproject.toml",
            "/look/..%2f..%2fpyproject.toml",
            "/artefact/%2e%2e%2fx",
        ),
        *(
            "/artefact//etc/passwd",
            "/run/..",
            "/run/%00",
            "/look/page.css",
            "/static/page.css",
            "/artefact/",
            "/look",
        ),
        *(
            "/model/%ff%fe",
            "/item/x?id=../../etc/passwd",
            "/run/one/manifest.json",
            "/one/manifest.json",
            "//evil",
        ),
        *(
            "/protocol/P000000",
            "/item/",
            "/%2e%2e/%2e%2e/etc/passwd",
            "/\\..\\x",
            "/run/%252e%252e",
        ),
    ],
)
def test_there_are_no_paths_to_files(board: Served, path: str) -> None:
    answer = board.ask(path)
    assert (answer.status, answer.headers["content-type"].partition(";")[0]) == (404, "text/plain")
    assert [word for word in ("root:", "Traceback") if word in answer.text] == []


def test_an_item_shows_what_was_scored_after_null_contexts(
    board: Served, addresses: dict[str, str]
) -> None:
    page, told = (
        board.ask(addresses["item"]).text,
        board.ask(addresses["item"], accept="application/json").json,
    )
    prompts = [
        asked
        for asked in told["explained"]["asked"]
        if "mmlu/cloze:pmi-answer" in asked["protocols"]
    ]
    nulls = [
        scored for asked in prompts for scored in asked["scored"] if scored["null"] is not None
    ]
    assert {scored["null"] for scored in nulls} == {"", ":", "Answer:", "Answer: "}
    assert all(scored["tokens"] for scored in nulls)
    shown = page.split('<section id="prompts"')[1]
    assert shown.count("<small>after <code>Answer:</code> </small>") == 4
    for scored in nulls:
        assert f"{scored['total']:.3f}".replace("-", "−") in shown
    for item in ("", "nothing", "../../etc/passwd", "%00", "x" * 3000):
        assert board.ask(f"{addresses['item'].partition('?')[0]}?id={item}").status == 404, (
            "no run has it"
        )


@pytest.mark.costly("the page of a run, with its charts")
def test_a_run_has_its_own_page_under_its_own_policy(
    board: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = next(
        run["id"] for run in board.ask("/board.json").json["runs"] if run["model"] == FORMULA
    )
    monkeypatch.setattr(site, "PATIENCE", 0.0)
    answer = board.ask(f"/run/{run}")
    assert answer.headers["refresh"] == "2"
    assert "is being made" in answer.text
    monkeypatch.setattr(site, "PATIENCE", GUARD)
    answer = board.ask(f"/run/{run}")
    policy = answer.headers["content-security-policy"]
    assert "refresh" not in answer.headers
    assert "script-src 'sha256-" in policy
    assert "unsafe" not in policy
    assert policy.endswith("frame-ancestors 'none'")
    assert 'href="/">Board</a>' in answer.text
    monkeypatch.setattr(site, "CHART_PATIENCE", GUARD)
    strip = board.ask(f"/strip/{run}.svg")
    assert strip.headers["content-type"] == "image/svg+xml"
    assert strip.text.startswith("<svg")
    assert board.ask("/strip/nothing.svg").status == 404


def test_a_page_that_can_not_be_made_says_why(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "PATIENCE", GUARD)
    monkeypatch.setattr(site, "CHART_PATIENCE", GUARD)
    with ExitStack() as stack, monkeypatch.context() as reading:
        read_runs_here(reading)
        board = stack.enter_context(served(runs))
        run = board.ask("/board.json").json["runs"][0]["id"]
        reading.undo()
        monkeypatch.setattr(RunProcess, "module", "choicewise.nowhere")
        text = board.ask(f"/run/{run}").text
        assert "can&#39;t be made" in text
        assert "reads the run ended" in text
        assert board.ask(f"/strip/{run}.svg").status == 404


def test_artefacts_are_named_by_their_content(
    board: Served, addresses: dict[str, str], runs: Path
) -> None:
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
        (
            b"GET /?" + b"x" * 8_000 + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
            b"414",
        ),
        (
            b"GET / HTTP/1.1\r\nHost: localhost\r\n"
            + b"".join(b"X-%d: y\r\n" % n for n in range(90_000)),
            b"400",
        ),
        (
            b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\nConnection: close\r\n\r\n",
            b"413",
        ),
        (
            b"GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\nx",
            b"413",
        ),
        (
            b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbody",
            b"405",
        ),
        (
            b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            b"400",
        ),
        (b"\x00\x01\x02\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\nHost: localhost\nX: a\x00b\n\n", b"400"),
    ],
)
def test_huge_and_broken_requests_get_a_plain_answer(
    board: Served, sent: bytes, status: bytes
) -> None:
    answer = board.raw(sent)
    assert answer.split(b" ")[1] == status
    assert b"Traceback" not in answer
    assert board.ask("/").status == 200


def test_content_without_end_is_not_read(board: Served) -> None:
    head = b"%s / HTTP/1.1\r\nHost: %s\r\nTransfer-Encoding: chunked\r\n\r\n"
    for method, host in (
        (b"POST", b"localhost"),
        (b"GET", b"evil.example"),
        (b"GET", b"localhost"),
    ):
        assert b"connection: close" in board.raw(head % (method, host), seconds=30)


def test_more_connections_than_there_may_be_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "CONNECTIONS", 3)
    with served(tmp_path) as board:
        with ExitStack() as idle:
            for _ in range(3):
                idle.enter_context(socket.create_connection(("127.0.0.1", board.port)))
            refused = board.ask("/")
            assert (refused.status, refused.headers["retry-after"]) == (503, "5")
        eventually(
            lambda: board.ask("/").status == 200
        )  # those that were closed are noticed in a moment


HALVES = [
    b"",
    b"GET / HTTP/1.1\r\nHost: local",
    b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\nx",
]


def test_who_sends_half_a_request_keeps_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "CONNECTIONS", 30)
    monkeypatch.setattr(connections, "ARRIVAL", 0.3)
    with served(tmp_path) as board, ExitStack() as halves:
        opened = []
        for number in range(40):
            connection = halves.enter_context(
                socket.create_connection(("127.0.0.1", board.port), timeout=30)
            )
            connection.sendall(HALVES[number % len(HALVES)])
            opened.append(connection)
        for connection in opened:
            while connection.recv(65536):
                pass  # until the board hangs up
        assert board.ask("/").status == 200


def test_a_slow_request_is_answered_if_it_arrives_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "ARRIVAL", 30.0)
    with (
        served(tmp_path) as board,
        socket.create_connection(("127.0.0.1", board.port), timeout=30) as connection,
    ):
        for byte in b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n":
            connection.sendall(bytes([byte]))
        assert connection.recv(15).startswith(b"HTTP/1.1 200")


class Held:
    """Things that are made of runs, each of which waits until the test goes on; ``begun`` counts them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.go_on, self._use = Semaphore(0), Event(), RunProcesses.use
        self.asked: list[str] = []
        monkeypatch.setattr(RunProcesses, "use", lambda *given: self._held(*given))

    def _held(
        self, processes: RunProcesses, run: ListedRun, make: Callable[[RunProcess], object]
    ) -> object:
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
            asking.sendall(
                f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
            )
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


def test_slow_pages_wait_in_a_queue_others_do_not_wait(
    runs: Path, reading_here: pytest.MonkeyPatch
) -> None:
    reading_here.setattr(site, "WAITING", 2)
    held = Held(reading_here)
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


def test_the_same_item_under_other_orders_is_made_once(
    runs: Path, reading_here: pytest.MonkeyPatch
) -> None:
    held = Held(reading_here)
    with served(runs) as board:
        board.settle(lambda library: bool(library.snapshot.disputed))  # nothing changes any more
        (item,) = items(board, 1)
        spelled = [
            f"{item}&{further}={number}"
            for number in range(10)
            for further in ("sort", "warning", "x", "run")
        ]
        answers = begin(board, *spelled)
        held.wait(1)
        held.go_on.set()
        assert ({answers.get(timeout=GUARD).split(b" ")[1] for _ in spelled}, len(held.asked)) == (
            {b"200"},
            1,
        )


def test_unknown_orders_and_names_are_the_same_page(
    board: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, page = list[View](), site.board_page

    def counted(snapshot: Snapshot, view: View, links: Links) -> str:
        made.append(view)
        return page(snapshot, view, links)

    board.settle(lambda library: bool(library.snapshot.disputed))  # nothing changes any more
    monkeypatch.setattr(site, "board_page", counted)
    for number in range(10):
        assert (
            board.ask(f"/?sort=x{number}&order=nothing{number}&further={number}&token=").status
            == 200
        )
    assert [view.sort for view in made] in ([""], [])


def ranks_of(board: Served, query: str) -> tuple[list[str], list[bool], bool]:
    """The ranks of the models that the table begins with, whether JSON bounds them, and whether it says ranges."""
    page, told = (
        board.ask(f"/?{query}").text,
        board.ask(f"/board.json?{query}").json["headlines"]["models"],
    )
    shown = re.findall(r'<td class="rank"[^>]*><span>([^<]*)</span></td>', page)
    bounded = [
        each["rank_low"] is not None and each["rank_low"] <= each["rank"] <= each["rank_high"]
        for each in told
    ]
    assert ("still being computed" in page) != ("possible (95&nbsp;%)</small>" in page)
    return shown, bounded, "possible (95&nbsp;%)</small>" in page


def test_a_filter_has_the_ranges_of_its_ranks_in_one_answer(
    runs: Path, reading_here: pytest.MonkeyPatch
) -> None:
    computed, plain = list[Sequence[str]](), headlines.mean_ranges

    def counted(
        board: Board, ids: Sequence[str], decided: Callable[[ListedRun], Outcomes | None]
    ) -> Ranges:
        computed.append(ids)
        return plain(board, ids, decided)

    reading_here.setattr(headlines, "mean_ranges", counted)
    with served(runs) as board:
        board.settle(lambda library: bool(library.snapshot.disputed))  # nothing changes any more
        families = dict.fromkeys(each.family for each in board.library.snapshot.board.columns)
        for query in (View(family=(family,)).query() for family in families):
            first = board.ask(f"/?{query}")
            assert ("refresh" in first.headers, "still being computed; until" in first.text) == (
                False,
                False,
            ), query
            assert ranks_of(board, query) == (["1–2", "1–2"], [True, True], True)
        asked = len(computed)
        assert ranks_of(board, f"{query}&sort=model&warning=none")[2]
        assert len(computed) == asked <= len(families) + 1


def test_ranges_that_take_long_come_by_themselves(
    runs: Path, reading_here: pytest.MonkeyPatch
) -> None:
    reading_here.setattr(site, "PATIENCE", 0.05)
    with served(runs) as board:
        board.settle(lambda library: bool(library.snapshot.disputed))
        go_on, plain = Event(), headlines.mean_ranges
        reading_here.setattr(
            headlines, "mean_ranges", lambda *given: go_on.wait(GUARD) and plain(*given)
        )
        first = board.ask("/?family=cloze")
        assert (first.headers["refresh"], first.headers["cache-control"]) == ("2", "no-store")
        assert ranks_of(board, "family=cloze") == (["1", "2"], [False, False], False)
        assert "refresh" not in board.ask("/").headers
        go_on.set()
        assert eventually(lambda: "refresh" not in board.ask("/?family=cloze").headers)
        assert ranks_of(board, "family=cloze")[1:] == ([True, True], True)


def test_an_answer_under_way_is_finished_at_the_end(
    runs: Path, reading_here: pytest.MonkeyPatch
) -> None:
    reading_here.setattr(site, "GRACE", GUARD)
    held, ending = Held(reading_here), Event()
    with served(runs) as board:
        answers = begin(board, *items(board, 1))
        held.wait(1)
        shut = uvicorn.Server.shutdown

        async def shutting(
            server: uvicorn.Server, sockets: list[socket.socket] | None = None
        ) -> None:
            ending.set()
            await shut(server, sockets)

        reading_here.setattr(uvicorn.Server, "shutdown", shutting)
        Thread(target=lambda: ending.wait(GUARD) and held.go_on.set(), daemon=True).start()
    assert answers.get(timeout=GUARD).startswith(b"HTTP/1.1 200")


def test_an_error_inside_is_told_to_the_owner_alone(
    board: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> str:
        raise RuntimeError("secret \x1b[31m")

    monkeypatch.setattr("choicewise.extensions.board.server.board_csv", broken)
    answer = board.ask("/board.csv?model=never-asked-before")
    assert (answer.status, "secret" in answer.text) == (500, False)
    eventually(lambda: any("secret" in line for line in board.said))


def test_a_token_is_asked_for(tmp_path: Path) -> None:
    with served(tmp_path, token=TOKEN) as board:
        refused = board.ask("/board.json")
        assert refused.status == 401
        assert refused.headers["www-authenticate"].startswith("Bearer")
        assert [board.ask(path).status for path in ("/look/x", "/?token=wrong")] == [401, 401]
        given = "Bearer wrong", f"Basic {TOKEN}", f"bearer {TOKEN}"
        assert [board.ask("/", authorization=each).status for each in given] == [401, 401, 200]
        entered = board.ask(f"/?model=fake&token={TOKEN}")
        cookie = entered.headers["set-cookie"]
        assert entered.status == 200
        assert "url=/?model=fake" in entered.text
        assert TOKEN not in entered.text + cookie
        assert {" HttpOnly", " SameSite=strict"} <= {*cookie.split(";")}
        cookies = cookie.partition(";")[0], "choicewise=nonsense", 'choicewise="\\377; =;;'
        assert [board.ask("/", cookie=each).status for each in cookies] == [200, 401, 401]
        assert not any(TOKEN in line for line in board.said)
        for path in (f"/\\evil.example/?token={TOKEN}", f"//evil.example/?token={TOKEN}"):
            assert 'href="/evil.example/"' in board.ask(path).text, (
                "the way on stays on this server"
            )


def test_tokens_come_from_a_file_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_clear_words_for_what_can_not_be_served(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    for words, told in (
        *(((str(runs), "--host", host), "token-file") for host in ("0.0.0.0", "::", "192.0.2.1")),
        ((str(runs / "nowhere"),), "nowhere does not exist"),
        ((str(runs / "one <b>" / "manifest.json"),), "is a file"),
    ):
        with pytest.raises(UsageError, match=told):
            invoke(["serve", *words])
    with listen("127.0.0.1", None) as bound, pytest.raises(UsageError, match="in use"):
        listen("127.0.0.1", bound.getsockname()[1])
    with pytest.raises(UsageError, match="address of this machine"):
        listen("192.0.2.1", 0)
    with listen("127.0.0.1", None) as usual, listen("127.0.0.1", None) as another:
        assert usual.getsockname()[1] != another.getsockname()[1]


def test_hosts() -> None:
    everywhere = access("0.0.0.0", ["board.example"])
    hosts = ("192.0.2.7:8470", "Board.Example", "evil.example")
    assert [everywhere.knows_host(host) for host in hosts] == [True, True, False]
    assert not access("127.0.0.1").knows_host("192.0.2.7")
    assert host_name("a b") is None
    assert [
        is_loopback(host) for host in ("127.0.0.2", "::1", "[::1]", "localhost", "0.0.0.0", "x")
    ] == [*(True, True, True, True, False, False)]


def test_runs_come_change_and_go_and_so_does_a_folder(
    reading_here: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "shown"
    folder.mkdir()
    with served(folder) as board:
        assert "no run below" in board.ask("/").text
        run = write_run(folder / "below" / "run", protocols=["mmlu/original"])
        board.settle(
            lambda library: len(library.snapshot.board.lines) == 1 and not library.snapshot.waiting
        )
        assert "fake:<wbr>hash" in board.ask("/").text
        folder.rename(tmp_path / "away")
        board.settle(lambda library: bool(library.snapshot.problems))
        assert "shown is missing" in board.ask("/").text
        (tmp_path / "away").rename(folder)
        board.settle(lambda library: not library.snapshot.problems and not library.snapshot.waiting)
        assert "fake:<wbr>hash" in board.ask("/").text
        rename(run, "renamed")
        board.settle(
            lambda library: (
                library.snapshot.board.models == ("renamed",) and not library.snapshot.waiting
            )
        )
        shutil.rmtree(run)
        board.settle(lambda library: not library.snapshot.board.runs)
        assert "renamed" not in board.ask("/").text


def test_hostile_names_are_text(
    board: Served, addresses: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site, "PATIENCE", GUARD)
    told, table = board.ask("/board.json?columns=all"), board.ask("/board.csv").text
    assert {model["model"] for model in told.json["models"]} == {HOSTILE, FORMULA}
    assert all(not line.startswith(("=", '"=')) for line in table.split("\r\n"))
    pages = {name: board.ask(addresses[name]).text for name in ("board", "model", "run", "item")}
    for text in (told.text, table, *pages.values()):
        assert not {"\x1b", "\u202e", "\u2028", "\x07"} & set(text)
    for name, text in pages.items():
        own = "<script" in text.replace("<script>alert", "")
        assert own == (name == "run")  # the only page with a script of ours
        assert [word for word in ("<script>alert", "one <b>") if word in text] == []
        assert "{{7*7}}" in text


def test_answers_are_kept_within_a_budget() -> None:
    cache = BoundedCache[str, bytes](10, len)
    cache.put("a", b"12345")
    cache.put("b", b"12345")
    assert cache.get("a") == b"12345"
    cache.put("c", b"1")
    assert (cache.get("a"), cache.get("b"), cache.get("c")) == (b"12345", None, b"1")
    cache.put("d", b"x" * 11)
    assert cache.get("d") is None


@pytest.mark.skipif(sys.platform != "linux", reason="processes are listed on Linux alone")
@pytest.mark.costly("the command and the processes that it starts")
def test_ctrl_c_ends_the_command_and_its_processes(runs: Path) -> None:
    code, told, remaining = served_until(signal.SIGINT, runs / "one <b>")
    assert (code, remaining) == (0, [])
    assert [word for word in ("Traceback", "interrupted") if word in told] == []
    assert "Ctrl-C" in told
