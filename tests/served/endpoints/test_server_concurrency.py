"""Many requests at once: each answered once, as many at once as the server takes, and all ended when nobody reads."""

import asyncio
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
import stamina
from hypothesis import given, settings
from hypothesis import strategies as st

from choicewise.extensions.endpoints.server import http
from choicewise.extensions.endpoints.server.address import ServerAddress
from choicewise.extensions.endpoints.server.faults import ServerFailed, Unanswerable
from choicewise.extensions.endpoints.server.http import Client, ConcurrencyLimit
from choicewise.extensions.endpoints.server.many_requests import FAILED_IN_A_ROW, answered
from tests.helpers.misbehaving_server import Server, serving
from tests.helpers.processes import eventually
from tests.helpers.server_faults import other_model, reset, stall, status, truncated_json

pytestmark = pytest.mark.usefixtures("no_pauses")


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(ServerAddress.parse(server.address)) as one:
        yield one


def request(number: int) -> tuple[str, Any]:
    return ("completions", {"prompt": f"item {number}:", "max_tokens": 1, "temperature": 0})


def requests(count: int) -> Iterator[tuple[str, Any]]:
    return map(request, range(count))


def concerns(*numbers: int) -> Any:
    prompts = {f"item {number}:" for number in numbers}
    return lambda received: received.body is not None and received.body.get("prompt") in prompts


def truth(server: Server, number: int) -> Any:
    return text(server.model.answer("POST", "/v1/completions", request(number)[1]))


def text(answer: Any) -> Any:
    assert isinstance(answer, dict), answer
    return answer["choices"][0]["text"]


def ended() -> bool:
    """Whether no request is under way any more, after the time that they need to end."""
    loop = http._event_loop()
    return bool(
        eventually(
            lambda: not any("_asked" in repr(task) for task in asyncio.all_tasks(loop)), patience=10
        )
    )


def test_every_request_is_answered_once_with_its_own_answer(client: Client, server: Server) -> None:
    server.seconds = 0.002
    answers = [*answered(client, requests(200), model="hash")]
    assert sorted(index for index, _ in answers) == [*range(200)]
    assert all(text(answer) == truth(server, index) for index, answer in answers)
    assert 1 < server.most_at_once <= 64
    assert ended()


def test_requests_begin_in_order_and_are_read_as_needed(client: Client, server: Server) -> None:
    read = list[int]()

    def source() -> Iterator[tuple[str, Any]]:
        for number in range(1000):
            read.append(number)
            yield request(number)

    stream = answered(client, source(), most=4)
    for _ in range(10):
        next(stream)
    stream.close()
    assert read == [*range(len(read))]
    assert len(read) <= 10 + 4


def test_one_at_a_time_is_in_order_and_nothing_is_asked_for_nothing(
    client: Client, server: Server
) -> None:
    assert ([*answered(client, [])], server.requests) == ([], [])
    assert [index for index, _ in answered(client, requests(20), most=1)] == [*range(20)]
    assert [int(body["prompt"].split()[1][:-1]) for body in server.posted()] == [*range(20)]
    assert server.most_at_once == 1


@pytest.mark.costly("a thousand requests")
def test_one_of_a_thousand_fails_for_good_and_the_others_are_answered(
    client: Client, server: Server
) -> None:
    server.when(concerns(500), status(500))
    answers = dict(answered(client, requests(1000)))
    failed = answers.pop(500)
    assert isinstance(failed, Unanswerable)
    assert failed.reason == "the server failed, status 500: 'no luck', 5 times"
    assert [*map(text, answers.values())] == [truth(server, index) for index in answers]
    assert len(answers) == 999


@pytest.mark.parametrize("fault", [status(400), status(500), truncated_json, reset])
def test_many_that_fail_for_good_do_not_stop_the_others(
    fault: Any, client: Client, server: Server
) -> None:
    """Also where they come one after another, and last: a request that was answered is answered again."""
    bad = {*range(20, 40), *range(52, 60)}
    server.when(concerns(*bad), fault)
    answers = dict(answered(client, requests(60), most=3))
    assert {index for index, answer in answers.items() if isinstance(answer, Unanswerable)} == bad
    assert len(answers) == 60


@pytest.mark.parametrize("fault", [status(400), status(500), truncated_json, reset])
def test_a_server_that_answers_nothing_more_stops_the_run(
    fault: Any, client: Client, server: Server
) -> None:
    answers = list[tuple[int, Any]]()
    with pytest.raises(
        ServerFailed,
        match="in a row failed .* succeeded before",
    ):
        for number, answer in enumerate(answered(client, requests(1000), most=1)):
            answers.append(answer)
            if number == 20:
                server.always(fault)
    assert len(answers) < 40
    assert not any(isinstance(answer, Unanswerable) for _, answer in answers)
    assert ended()


def test_a_server_that_never_answered_stops_the_run_soon(client: Client, server: Server) -> None:
    server.always(status(400))
    with pytest.raises(ServerFailed, match="5 requests .* failed .* none ever"):
        next(answered(client, requests(1000), most=1))
    assert len(server.requests) == FAILED_IN_A_ROW


def test_nor_do_requests_of_several_calls_that_all_fail(client: Client, server: Server) -> None:
    """Each call is too small to be in doubt of the server; but it never answered."""
    server.always(status(500))
    outcomes = list[Any]()
    with pytest.raises(ServerFailed, match="5 requests .* failed"):
        for _ in range(100):
            outcomes += answered(client, requests(2))
    assert [type(outcome) for _, outcome in outcomes] == [Unanswerable] * 4


def test_the_last_requests_are_not_missing_because_the_server_failed(
    client: Client, server: Server
) -> None:
    assert len([*answered(client, requests(10))]) == 10
    server.when(concerns(11), status(500))
    assert [type(outcome) for _, outcome in answered(client, [request(11)])] == [Unanswerable]
    server.always(status(500))
    with pytest.raises(
        ServerFailed,
        match="a request failed .* succeeded before",
    ):
        dict(answered(client, [request(12)]))


def test_the_pace_is_kept_from_call_to_call(client: Client) -> None:
    assert len([*answered(client, requests(40), most=1)]) == 40
    assert client.concurrency.limit == 2  # more was not tried
    assert len([*answered(client, requests(40))]) == 40
    limit = client.concurrency.limit
    assert limit > 2
    client.concurrency.overloaded(begun=time.monotonic(), now=time.monotonic())
    assert (len([*answered(client, requests(1))]), client.concurrency.limit) == (1, limit // 2)


def test_what_was_answered_before_the_failure_is_not_lost(client: Client, server: Server) -> None:
    server.when(concerns(30), status(401))
    got = list[int]()
    with pytest.raises(ServerFailed, match="status 401"):
        got += (index for index, _ in answered(client, requests(1000), most=1))
    assert got == [*range(30)]


def test_a_server_that_goes_away_stops_the_run() -> None:
    with serving() as server, closing(Client(ServerAddress.parse(server.address))) as client:
        stream = answered(client, requests(1000), most=2)
        answers = [next(stream) for _ in range(20)]
        server.end()
        with pytest.raises(ServerFailed, match="can't be reached .is it running"):
            answers += stream
    assert not any(isinstance(answer, Unanswerable) for _, answer in answers)


def test_another_model_between_requests_stops_the_run_and_both_are_named(
    client: Client, server: Server
) -> None:
    server.when(concerns(17), other_model("phi\x1b[2J"))
    with pytest.raises(ServerFailed) as error:
        dict(answered(client, requests(1000), model="hash"))
    assert r"from model 'phi\x1b[2J', not 'hash'" in str(error.value)


def test_a_success_that_came_too_late_is_not_there_twice(server: Server) -> None:
    server.next(stall, None, stall)
    with Client(ServerAddress.parse(server.address), timeout=1.0) as client:
        answers = [*answered(client, requests(10))]
    assert sorted(index for index, _ in answers) == [*range(10)]
    assert all(text(answer) == truth(server, index) for index, answer in answers)
    assert len(server.requests) == 12


def test_a_server_that_takes_three_at_once_answers_all(client: Client, server: Server) -> None:
    server.capacity, server.seconds = 3, 0.002
    with stamina.set_testing(True, attempts=100_000):
        answers = dict(answered(client, requests(150)))
    assert len(answers) == 150
    assert all(text(answer) == truth(server, index) for index, answer in answers.items())


def test_retry_after_holds_back_all_that_has_not_begun(client: Client, server: Server) -> None:
    begun = list[float]()
    server.next(status(429, Retry_After="1"))
    server.when(lambda received: bool(begun.append(time.monotonic())), reset)
    dict(answered(client, requests(3), most=1))
    assert len(begun) == 4  # the pauses of the tries themselves are left out here
    assert begun[2] - begun[0] >= 0.9


def test_closing_ends_everything_under_way(client: Client, server: Server) -> None:
    server.next(*[None] * 8)
    server.always(stall)
    stream = answered(client, requests(1000))
    for _ in range(8):
        next(stream)
    eventually(lambda: server.at_once >= 2)
    stream.close()
    assert ended()
    assert (
        len(server.requests) <= 8 + 8
    )  # those answered, and as many under way as the pace allows by then
    server.always(None)
    assert client.get("models")["object"] == "list"  # the client can be used again


@pytest.mark.parametrize("at_once", [1, 2])
def test_an_interrupt_ends_what_is_under_way(at_once: int, client: Client, server: Server) -> None:
    """Ctrl-C while one answer is waited for, or several."""
    main = threading.main_thread().ident
    assert main is not None

    def press() -> None:
        eventually(lambda: server.at_once >= at_once)
        signal.pthread_kill(main, signal.SIGINT)

    server.always(stall)
    threading.Thread(target=press, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        next(answered(client, requests(10))) if at_once > 1 else client.post(
            "completions", request(0)[1]
        )
    assert ended()
    assert at_once > 1 or len(server.requests) == 1


def test_an_exception_of_the_reader_or_the_source_ends_everything_under_way(
    client: Client, server: Server
) -> None:
    server.next(None)
    server.always(stall)
    stream = answered(client, requests(10))
    with pytest.raises(ZeroDivisionError):
        for _ in stream:
            raise ZeroDivisionError
    stream.close()
    assert ended()
    server.always(None)

    def source() -> Iterator[tuple[str, Any]]:
        yield request(0)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        dict(answered(client, source()))
    assert ended()


def test_the_pace_starts_slowly_doubles_and_then_grows_by_one() -> None:
    pace, limits = ConcurrencyLimit(16, slow=30.0), list[int]()
    for _ in range(2 + 4 + 8):
        pace.answered(0.1, pace.limit)
        limits.append(pace.limit)
    assert limits == [2, 4, 4, 4, 4, 8, *[8] * 7, 16]  # after rounds of 2, 4 and 8
    pace.overloaded(begun=1.0, now=2.0)
    pace.overloaded(begun=1.5, now=2.0)  # under way at the same time: nothing new
    assert pace.limit == 8
    for _ in range(8 + 9):
        pace.answered(0.1, pace.limit)
    assert pace.limit == 10
    pace.overloaded(begun=2.5, now=3.0, wait=7.0)
    assert (pace.limit, pace.resume) == (5, 10.0)
    for _ in range(7):
        pace.answered(0.1, pace.limit)
    assert (
        pace.limit == 5
    )  # a round has eight answers at least, so that a server that takes one is not asked too often
    pace.answered(0.1, pace.limit)
    assert pace.limit == 6


def test_the_pace_does_not_grow_where_answers_are_slow() -> None:
    """A server that computes one after another, 6 s each: with more at once, each only waits for longer."""
    pace = ConcurrencyLimit(64, slow=30.0)
    for _ in range(200):
        pace.answered(6.0 * pace.limit, pace.limit)
    assert pace.limit == 8


@given(
    st.integers(1, 64),
    st.lists(st.none() | st.tuples(st.floats(0, 1e6), st.none() | st.floats(0, 300)), max_size=200),
)
def test_the_pace_is_never_below_one_or_above_the_most(most: int, events: list[Any]) -> None:
    pace, now, resume = ConcurrencyLimit(most, slow=30.0), 0.0, float("-inf")
    for event in events:
        before = pace.limit
        if event is None:
            pace.answered(0.1, pace.limit)
            assert before <= pace.limit <= max(2 * before, 1)
        else:
            age, wait = event
            now += age
            pace.overloaded(now - age, now, wait)
            assert pace.limit in (before, max(1, before // 2))
            if wait is not None:
                resume = max(resume, now + wait)
        assert 1 <= pace.limit <= most
        assert pace.resume == resume


@settings(max_examples=20)
@given(st.integers(1, 40), st.integers(0, 2**32))
def test_the_pace_settles_at_what_the_server_takes(capacity: int, seed: int) -> None:
    """A server that refuses what is more than its capacity, with a clock of its own: one answer at a time, of any."""
    chance, pace, now = random.Random(seed), ConcurrencyLimit(64, slow=30.0), 0.0
    under_way, used, refused = list[float](), list[int](), 0
    for _ in range(2000):
        while len(under_way) < pace.limit:
            under_way.append(now)
        used.append(len(under_way))
        now += 1.0
        while len(under_way) > capacity:
            refused += 1
            pace.overloaded(under_way.pop(), now)
        pace.answered(0.1, len(under_way))
        under_way.pop(chance.randrange(len(under_way)))
    settled = used[1000:]
    assert capacity / 2 <= sum(settled) / len(settled) <= capacity + 1
    assert max(settled) <= capacity + 1
    assert refused <= 2000 / 8 + 64


@settings(max_examples=10)
@given(st.lists(st.sampled_from(["ok", "400", "500", "reset"]), max_size=40), st.integers(1, 8))
def test_whatever_happens_each_request_has_one_outcome(fates: list[str], most: int) -> None:
    """Where the run is not stopped, every request has its own answer, or none, just as it deserves."""
    faults = {"400": status(400), "500": status(500), "reset": reset}
    with serving() as server, stamina.set_testing(True, attempts=2):
        for fate, fault in faults.items():
            server.when(
                concerns(*(number for number, each in enumerate(fates) if each == fate)), fault
            )
        with Client(ServerAddress.parse(server.address)) as client:
            client.post("completions", request(-1)[1])
            answers = [*answered(client, requests(len(fates)), most=most)]
        assert sorted(index for index, _ in answers) == [*range(len(fates))]
        for index, answer in answers:
            if fates[index] == "ok":
                assert text(answer) == truth(server, index)
            else:
                assert isinstance(answer, Unanswerable)
