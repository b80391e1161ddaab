"""Who is told how much at a time."""

from collections import Counter
from collections.abc import Iterable

from tests.unit.webhooks.messages import message

from queue_operator.webhooks.receivers import Held, Receivers


def of(host: str, count: int = 1) -> list[Held]:
    return [Held(message(number, host), b"", 100.0) for number in range(count)]


def taken(receivers: Receivers, given: Iterable[Held]) -> list[bool]:
    return [receivers.take(held) for held in given]


def hosts(begun: Iterable[Held]) -> Counter[str]:
    return Counter(held.message.url.split("/")[2] for held in begun)


def told(receivers: Receivers, begun: Iterable[Held], *, succeeded: bool = True) -> None:
    for held in begun:
        receivers.tried(held, succeeded=succeeded)
        receivers.settled(1)


def proven(receivers: Receivers, host: str, times: int = 3) -> None:
    for _ in range(times):
        taken(receivers, of(host))
        told(receivers, receivers.due())


def test_a_new_receiver_is_told_once_at_a_time_and_more_with_each_success() -> None:
    receivers = Receivers(per_receiver=8, places=100)
    taken(receivers, of("a", 30))
    widths = []
    while begun := receivers.due():
        widths.append(len(begun))
        told(receivers, begun)
    assert widths == [1, 2, 8, 8, 8, 3]
    assert (receivers.held, receivers.active, receivers.full()) == (0, 0, [])


def test_one_that_fails_is_told_one_at_a_time_until_it_succeeds() -> None:
    receivers = Receivers(per_receiver=8, places=100)
    taken(receivers, of("a", 30))
    told(receivers, receivers.due())
    told(receivers, receivers.due(), succeeded=False)
    begun = receivers.due()
    assert len(begun) == 1
    told(receivers, begun)
    assert len(receivers.due()) == 2


def test_receivers_take_turns() -> None:
    receivers = Receivers(per_receiver=2, places=100)
    proven(receivers, "a")
    proven(receivers, "c")
    taken(receivers, [*of("a", 5), *of("b", 2), *of("c", 5)])
    assert [held.message.url.split("/")[2] for held in receivers.due()] == ["a", "b", "c", "a", "c"]


def test_of_whom_enough_is_held_no_more_is_claimed() -> None:
    receivers = Receivers(per_receiver=8, places=100)
    proven(receivers, "b")
    taken(receivers, [*of("a", 1), *of("b", 1)])
    assert receivers.full() == [message(host="a").receiver]
    told(receivers, receivers.due())
    assert receivers.full() == []


def test_new_receivers_share_half_of_the_places() -> None:
    receivers = Receivers(per_receiver=8, places=16)
    proven(receivers, "good", 5)
    dead = [held for number in range(10) for held in of(f"dead-{number}")]
    assert sum(taken(receivers, dead)) == 8
    assert receivers.room == 8
    assert all(taken(receivers, of("good", 8)))
    assert hosts(receivers.due())["good"] == 8
    assert receivers.room == 0
    # Those that found no place are not claimed again before there is one.
    full = set(receivers.full())
    assert {message(host=f"dead-{number}").receiver for number in range(10)} <= full


def test_those_that_fail_share_a_quarter_and_leave_room_for_new_ones() -> None:
    receivers = Receivers(per_receiver=8, places=16)
    for number in range(8):
        taken(receivers, of(f"dead-{number}"))
    told(receivers, receivers.due(), succeeded=False)
    dead = [held for number in range(8) for held in of(f"dead-{number}", 2)]
    assert sum(taken(receivers, dead)) == 4
    assert sum(taken(receivers, [held for n in range(20) for held in of(f"new-{n}")])) == 8
    full = set(receivers.full())
    assert {message(host=f"dead-{number}").receiver for number in range(8)} <= full


def test_places_come_back_with_an_answer_and_with_a_failure() -> None:
    receivers = Receivers(per_receiver=8, places=4)
    assert taken(receivers, [*of("a"), *of("b"), *of("c")]) == [True, True, False]
    begun = receivers.due()
    told(receivers, begun[:1])
    assert taken(receivers, of("c")) == [True]
    assert taken(receivers, of("d")) == [False]
    # One that succeeded takes places of nobody else, until it fails.
    assert taken(receivers, of("a")) == [True]
    assert receivers.room == 1
    told(receivers, [*receivers.due(), *begun[1:]], succeeded=False)
    assert (receivers.held, receivers.active, receivers.room) == (0, 0, 4)
    # Of those that fail one has a place, of new ones two.
    assert taken(receivers, [*of("a"), *of("b"), *of("d"), *of("e")]) == [True, False, True, True]


def test_what_is_not_written_down_yet_takes_its_place() -> None:
    receivers = Receivers(per_receiver=8, places=4)
    taken(receivers, [*of("a"), *of("b")])
    for held in receivers.due():
        receivers.tried(held, succeeded=True)
    assert (receivers.room, receivers.active) == (2, 0)
    receivers.settled(2)
    assert receivers.room == 4


def test_what_has_waited_too_long_is_given_back() -> None:
    receivers = Receivers(per_receiver=1, places=100)
    taken(receivers, of("a", 3))
    begun = receivers.due()
    assert receivers.late(100.0) == []
    assert len(receivers.late(100.5)) == 2
    assert receivers.held == 1
    told(receivers, begun)
    assert receivers.held == 0
    assert receivers.due() == []
