"""A long time looked through piece by piece."""

from datetime import UTC, datetime, timedelta

import pytest

from queue_operator.backends.postgres.steps import Steps

_BEGIN = datetime(1, 1, 1, tzinfo=UTC)
_END = datetime(9999, 12, 31, tzinfo=UTC)
_DEAD = datetime(2026, 5, 1, tzinfo=UTC), datetime(2026, 5, 3, tzinfo=UTC)


def test_all_is_one_piece_where_that_is_not_too_much() -> None:
    steps = Steps(_BEGIN, _END, _DEAD[0])
    assert steps.next() == (_BEGIN, _END)
    steps.done()
    assert steps.next() is None


@pytest.mark.parametrize("now", [_DEAD[0], datetime(1999, 1, 1, tzinfo=UTC), _DEAD[1]])
def test_pieces_become_as_small_as_needed_and_cover_all(now: datetime) -> None:
    """A look fails where it has more than ten minutes of the two days that are full."""
    steps = Steps(_BEGIN, _END, now)
    failures, last, covered = 0, _BEGIN, timedelta()
    while piece := steps.next():
        begin, end = piece
        assert begin == last
        full = max(min(end, _DEAD[1]) - max(begin, _DEAD[0]), timedelta())
        if full > timedelta(minutes=10):
            failures += 1
            steps.failed()
        else:
            covered += full
            last = end
            steps.done()
    assert (last, covered) == (_END, _DEAD[1] - _DEAD[0])
    assert failures < 700


def test_a_piece_does_not_become_smaller_than_a_second() -> None:
    steps = Steps(_BEGIN, _END, _DEAD[0])
    for _ in range(100):
        steps.failed()
    assert steps.next() == (_BEGIN, _BEGIN + timedelta(seconds=1))


def test_a_look_may_go_on_from_where_it_got_to() -> None:
    steps = Steps(_BEGIN, _END, _DEAD[0])
    steps.go_on_from(_DEAD[1])
    assert steps.next() == (_DEAD[1], _END)
    steps.go_on_from(_DEAD[0])
    assert steps.next() == (_DEAD[0], _END)
