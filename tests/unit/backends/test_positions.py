"""A position says exactly what was told, whatever was committed late."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_operator.backends.horizon import Horizon
from queue_operator.backends.positions import LAST_EVENT_ID, Position
from queue_operator.backends.streams import Mark, is_kept
from queue_operator.domain.errors import InvalidArgument

STORE = "0123abcd"
XIDS = range(12)


@st.composite
def horizons(draw: st.DrawFn) -> Horizon:
    end = draw(st.integers(0, 10))
    opened = draw(st.sets(st.integers(0, max(end - 1, 0)))) if end else set()
    return Horizon(end, tuple(sorted(opened)))


def seen(horizon: Horizon) -> set[int]:
    return {xid for xid in XIDS if horizon.sees(xid)}


@given(horizons(), horizons(), st.integers(0, 11))
def test_horizons_are_sets_of_transactions(one: Horizon, other: Horizon, xid: int) -> None:
    assert seen(one.meet(other)) == seen(one) & seen(other)
    assert one.covers(other) == (seen(one) >= seen(other))
    assert seen(one.up_to(other, xid)) == seen(one) | {x for x in seen(other) if x < xid}


@given(horizons(), st.lists(horizons(), max_size=4), st.data())
def test_whoever_goes_on_from_any_position_is_told_the_rest_once(
    first: Horizon, later: list[Horizon], data: st.DataObject
) -> None:
    """In steps to later snapshots, broken off and resumed from text after any event."""
    position = Position(STORE, 1, first)
    told = list[tuple[int, int]]()
    known = first
    for one in later:
        known = known.up_to(one, one.end_xid)
        events = [(xid, n) for xid in XIDS for n in (1, 2) if known.sees(xid)]
        missing = [(xid, n) for xid, n in events if not position.has(xid, (xid, n))]
        for xid, n in missing[: data.draw(st.integers(0, len(missing)))]:
            told.append((xid, n))
            position = Position.parse(str(position.after(xid, (xid, n), known)))
    missing = [
        (xid, n)
        for xid in XIDS
        for n in (1, 2)
        if known.sees(xid) and not position.has(xid, (xid, n))
    ]
    told += missing
    assert sorted(told) == sorted({(x, n) for x in seen(known) - seen(first) for n in (1, 2)})
    assert seen(position.at(known, 2).horizon) == seen(known)


@pytest.mark.parametrize("text", ["", "x", f"{STORE}.1.1", f"{STORE}.1.1.2", f"{STORE}.1.1.. "])
def test_what_is_no_position_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        Position.parse(text)
    assert refused.value.field == LAST_EVENT_ID


@pytest.mark.parametrize(
    ("position", "is_so"),
    [
        (Position(STORE, 7, Horizon(10, (8,))), True),
        (Position(STORE, 7, Horizon(8), {9: (1, 1)}), True),
        (Position(STORE, 7, Horizon(8), {10: (1, 1)}), False),
        (Position(STORE, 7, Horizon(11)), False),
        (Position(STORE, 4, Horizon(10)), False),
        (Position("76543210", 7, Horizon(10)), False),
    ],
    ids=["now", "partly", "partly-to-come", "to-come", "pruned", "elsewhere"],
)
def test_a_position_is_of_what_was_and_is_still_there(position: Position, is_so: bool) -> None:
    mark = Mark(store=STORE, horizon=Horizon(10), highest=9, above_seq=0, pruned_seq=5)
    assert is_kept(position, mark) is is_so
