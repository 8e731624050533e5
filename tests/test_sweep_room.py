"""Models of a sweep on a cluster: never more than there is room for, in order, and none of them is kept out."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from threading import Event, Lock, Thread
from time import sleep

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from choicewise.running import ray as sweep_room
from choicewise.running.ray import Room, RoomPlace
from choicewise.running.workers import Needs, Node, fit

GB = 10**9
GPU = Needs(1, 1, GB)
WHOLE = Needs(4, 4, GB)
NODE = {"CPU": 16.0, "GPU": 4.0, "memory": 64.0 * GB}

NEEDS = st.builds(Needs, st.integers(0, 4), st.integers(1, 8), st.integers(0, 40).map(lambda size: size * GB))
NODES = st.lists(
    st.fixed_dictionaries({"CPU": st.integers(1, 8), "GPU": st.integers(0, 4), "memory": st.just(64 * GB)}),
    min_size=1,
    max_size=4,
)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_room, "BEAT", 0.005)


class Told:
    """The models that are inside by their turn, and those that have been; nothing is checked but here."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = nodes
        self.inside: dict[int, tuple[Needs, int]] = {}
        self.order: list[int] = []
        self.wrong: list[str] = []
        self._lock = Lock()

    def enters(self, turn: int, needs: Needs) -> None:
        with self._lock:
            self.order.append(turn)
            self._set(turn, needs, 1)

    def grows(self, turn: int, needs: Needs, replicas: int) -> None:
        with self._lock:
            if replicas < self.inside[turn][1]:
                self.wrong.append(f"{turn} has fewer than before")
            self._set(turn, needs, replicas)

    def leaves(self, turn: int) -> None:
        with self._lock:
            del self.inside[turn]

    def _set(self, turn: int, needs: Needs, replicas: int) -> None:
        self.inside[turn] = needs, replicas
        every = [needs for needs, replicas in self.inside.values() for _ in range(replicas)]
        if len(every) > 1 and not fit(every, self.nodes):
            self.wrong.append(f"{self.inside} on {self.nodes}")


@settings(max_examples=60, deadline=None)
@given(NODES, st.lists(NEEDS | st.none(), min_size=1, max_size=10), st.randoms(use_true_random=False))
def test_models_enter_in_order_and_together_have_no_more_than_there_is(
    nodes: list[Node], models: list[Needs | None], random: object
) -> None:
    told, room = Told(nodes), Room(lambda: nodes, len(models))
    pauses = [random.random() / 200 for _ in models]  # type: ignore[attr-defined]

    def evaluate(turn: int) -> None:
        sleep(pauses[turn])
        with room.place(turn) as enter:
            if (needs := models[turn]) is None:  # it is not there
                return
            place = enter(needs)
            told.enters(turn, needs)
            place.settle(True)
            for _ in range(3):
                told.grows(turn, needs, place.replicas())
                sleep(pauses[turn] / 3)
            told.leaves(turn)

    with ThreadPoolExecutor(len(models)) as threads:
        list(threads.map(evaluate, range(len(models)), timeout=60))
    assert not told.wrong
    assert sorted(told.order) == [turn for turn, needs in enumerate(models) if needs is not None]


class Guest:
    """A model in a thread of its own, which is inside until it is told to go."""

    def __init__(self, room: Room, turn: int, needs: Needs, ended: Event | None = None) -> None:
        self.place: RoomPlace | None = None
        self.entered, self._go = Event(), Event()
        self._thread = Thread(target=self._stay, args=(room, turn, needs, ended or Event()), daemon=True)
        self._thread.start()

    def _stay(self, room: Room, turn: int, needs: Needs, ended: Event) -> None:
        with room.place(turn, ended.is_set) as enter:
            self.place = enter(needs)
            self.entered.set()
            self._go.wait(30)

    def there(self) -> RoomPlace:
        assert self.entered.wait(10)
        assert self.place is not None
        return self.place

    def waits(self) -> bool:
        """Whether it is not let in, however long that is looked at."""
        return not self.entered.wait(0.1)

    def goes(self) -> None:
        self._go.set()
        self._thread.join(10)
        assert not self._thread.is_alive()


def test_a_large_model_among_small_ones_has_its_turn() -> None:
    """Small ones that come later do not pass it; those that are there finish, and it is the next."""
    room = Room(lambda: [NODE], 6)
    first = [Guest(room, turn, GPU) for turn in range(2)]
    for guest in first:
        guest.there().settle(True)
    large = Guest(room, 2, WHOLE)
    later = [Guest(room, turn, GPU) for turn in (3, 4, 5)]
    assert large.waits()
    assert all(guest.waits() for guest in later)  # though there is room for two of them
    first[0].goes()
    assert large.waits()
    first[1].goes()
    large.there().settle(True)
    assert all(guest.waits() for guest in later)
    large.goes()
    for guest in later:
        guest.there()
        guest.goes()


def test_while_others_come_each_has_one_replica_and_then_they_share_what_is_free() -> None:
    room = Room(lambda: [NODE, NODE], 3)
    first = Guest(room, 0, GPU)
    assert first.there().replicas() == 1
    second = Guest(room, 1, GPU)
    assert second.there().replicas() == first.there().replicas() == 1
    third = Guest(room, 2, GPU)
    third.there()
    assert [guest.there().replicas() for guest in (first, second, third)] == [2, 2, 2]  # 8 among 3
    third.goes()
    assert [guest.there().replicas() for guest in (first, second)] == [4, 4]
    second.goes()
    assert first.there().replicas() == 8
    first.goes()


def test_what_stays_free_while_the_next_one_has_no_room_is_used() -> None:
    room = Room(lambda: [NODE], 2)
    first = Guest(room, 0, GPU)
    first.there().settle(True)
    second = Guest(room, 1, WHOLE)
    assert second.waits()
    assert first.there().replicas() == 4
    first.goes()
    second.there()
    second.goes()


def test_nothing_else_is_let_in_before_one_that_differs_has_its_place() -> None:
    """Ray may have put small ones where a large one could have been."""
    room = Room(lambda: [NODE, NODE], 4)
    small = [Guest(room, 0, GPU), Guest(room, 1, GPU)]
    small[0].there().settle(True)
    small[1].there()  # on the same node, or on the other
    large = Guest(room, 2, WHOLE)
    assert large.waits()
    assert [guest.there().replicas() for guest in small] == [1, 1]  # what is free is for that one
    small[1].there().settle(True)
    large.there()
    last = Guest(room, 3, GPU)
    assert last.waits()  # else it might take what the large one waits for
    large.there().settle(True)
    last.there()
    for guest in (*small, large, last):
        guest.goes()


def test_who_has_no_place_yet_takes_nothing_from_the_next_one() -> None:
    """Models that differ by a little do not have to wait for one another, and what is free is theirs."""
    room = Room(lambda: [NODE], 3)
    guests = [Guest(room, 0, GPU)]
    assert guests[0].there().replicas() == 1
    guests.append(Guest(room, 1, Needs(1, 2, 2 * GB)))
    assert guests[1].there().replicas() == guests[0].there().replicas() == 1
    guests.append(Guest(room, 2, Needs(3, 3, GB)))
    assert guests[2].waits()
    for guest in guests[:2]:
        guest.goes()
    guests[2].there()
    guests[2].goes()


def test_memory_counts_as_well() -> None:
    room = Room(lambda: [{"CPU": 8.0, "memory": 10.0 * GB}], 2)
    first = Guest(room, 0, Needs(0, 1, 6 * GB))
    first.there().settle(True)
    second = Guest(room, 1, Needs(0, 1, 5 * GB))
    assert second.waits()
    first.goes()
    second.there()
    second.goes()


def test_a_model_that_needs_more_than_there_is_enters_alone() -> None:
    room = Room(lambda: [{"CPU": 1.0}], 2)
    first = Guest(room, 0, Needs(0, 1, 0))
    first.there().settle(True)
    large = Guest(room, 1, Needs(2, 2, 0))
    assert large.waits()
    assert first.there().patient is False  # nobody else holds what it may wait for
    first.goes()
    assert large.there().replicas() == 1
    large.goes()


def test_what_waits_for_models_that_compute_is_patient() -> None:
    room = Room(lambda: [NODE], 2)
    first, second = Guest(room, 0, GPU), Guest(room, 1, GPU)
    assert first.there().patient == second.there().patient is False  # somebody else has the cluster: neither may begin
    first.there().settle(True)
    assert second.there().patient is True
    assert first.there().patient is False
    first.there().settle(False)  # its replica died
    assert second.there().patient is False
    for guest in (first, second):
        guest.goes()


def test_an_error_frees_the_place_and_the_turn() -> None:
    room = Room(lambda: [{"CPU": 1.0}], 3)
    with pytest.raises(ValueError, match="before it has one"), room.place(0):
        raise ValueError("before it has one")
    with pytest.raises(ValueError, match="inside"), room.place(1) as enter:
        enter(Needs(0, 1, 0))
        raise ValueError("inside")
    with room.place(2) as enter:
        assert enter(Needs(0, 1, 0)).replicas() == 1


def test_a_turn_that_is_given_up_early_is_passed_when_it_comes() -> None:
    room = Room(lambda: [NODE], 3)
    with room.place(1):
        """It is not there."""
    last = Guest(room, 2, GPU)
    assert last.waits()
    with room.place(0) as enter:
        enter(GPU)
        last.there()
    last.goes()


def test_who_waits_is_let_go_when_all_ends() -> None:
    room, ended = Room(lambda: [{"CPU": 1.0}], 2), Event()
    with ExitStack() as inside:
        inside.enter_context(room.place(0))(Needs(0, 1, 0))
        second = Guest(room, 1, Needs(0, 1, 0), ended)
        assert second.waits()
        ended.set()
        second.there()
        second.goes()


def test_a_node_that_joins_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_room, "LOOK", 0.0)
    nodes = [NODE]
    room = Room(lambda: nodes, 2)
    first = Guest(room, 0, WHOLE)
    first.there()
    second = Guest(room, 1, WHOLE)
    assert second.waits()
    nodes.append(NODE)
    second.there()
    first.goes()
    second.goes()
