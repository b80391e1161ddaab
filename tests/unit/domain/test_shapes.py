"""Messages that differ only in what differs each time have one shape."""

import pytest

from queue_operator.domain.shapes import shape


@pytest.mark.parametrize(
    ("message", "found"),
    [
        ("", ""),
        ("it broke", "it broke"),
        ("row 17 of 1,200.5", "row <n> of <n>"),
        ("10.0.0.9:25 did not answer within 30 s", "<address> did not answer within <n> s"),
        ("no user 'ada' in \"shop\"", "no user '…' in '…'"),
        ("it didn't work, they don't know", "it didn't work, they don't know"),
        ("job 0192f1d2-7a54-7cc3-9c3e-0d6f9a1b2c3d is gone", "job <id> is gone"),
        ("since 2026-01-15T10:30:00.5Z", "since <time>"),
        ("at 0x7f31 and deadbeef01", "at <hex> and <hex>"),
        ("facade and 12345678", "facade and <n>"),
        ("the first line\nTraceback of 7", "the first line"),
    ],
)
def test_what_differs_is_left_out(message: str, found: str) -> None:
    assert shape(message) == found


def test_a_long_message_is_cut_before_it_is_looked_through() -> None:
    assert len(shape("ab" * 5000 + "'" * 5000)) <= 300
