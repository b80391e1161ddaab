"""How far a process has looked through rows that are gone once they were found."""

from tests.unit.queue.conftest import ManualClock

from queue_operator.backends.postgres.sofar import SoFar


def made(clock: ManualClock) -> SoFar[int]:
    return SoFar(0, late_s=10.0, anew_s=100.0, monotonic=clock.monotonic)


def later(clock: ManualClock, place: SoFar[int], seconds: float) -> int:
    clock.now_s += seconds
    return int(place.after("here"))


def test_what_comes_late_is_still_seen() -> None:
    clock = ManualClock()
    place = made(clock)
    assert place.after("here") == 0
    place.looked(5)
    assert [later(clock, place, seconds) for seconds in (1, 8, 3)] == [0, 0, 5]
    # One that commits later than that is found by a whole look, which also begins the next.
    assert [later(clock, place, seconds) for seconds in (88, 1)] == [0, 5]


def test_it_follows_what_goes_on_and_never_goes_back() -> None:
    clock = ManualClock()
    place = made(clock)
    place.after("here")
    found = []
    for number in range(1, 40):
        place.looked(number)
        place.looked(number - 1)
        found.append(later(clock, place, 1))
    assert found == sorted(found)
    assert found[-1] in (27, 28, 29)


def test_another_history_is_looked_at_from_the_beginning() -> None:
    clock = ManualClock()
    place = made(clock)
    place.after("here")
    place.looked(5)
    later(clock, place, 1)
    assert later(clock, place, 11) == 5
    assert place.after("there") == 0
    place.looked(2)
    clock.now_s += 1
    place.after("there")
    clock.now_s += 11
    assert place.after("there") == 2
