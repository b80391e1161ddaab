"""JSON values keep their value; what JSON cannot carry is refused."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_operator.api.documents import decode, encode
from queue_operator.domain.errors import InvalidArgument

LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**64), 2**64),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"])),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=20,
)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@given(VALUES)
def test_a_value_survives(value: Any) -> None:
    raw = encode("payload", value, 100)
    assert decode(raw) == value
    assert json.loads(raw) == value


@pytest.mark.parametrize(
    ("value", "raw"),
    [
        ({"b": 1, "a": [True, None]}, b'{"b":1,"a":[true,null]}'),
        ("é\x00", '"é\\u0000"'.encode()),
        (2**64, b"18446744073709551616"),
        (None, b"null"),
        (1.0, b"1.0"),
    ],
)
def test_it_is_stored_compact(value: Any, raw: bytes) -> None:
    assert encode("payload", value, 100) == raw


@pytest.mark.parametrize("value", [float("nan"), [float("inf")], {"a": -float("inf")}, "\ud800"])
def test_what_json_cannot_carry_is_refused(value: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"^payload: "):
        encode("payload", value, 100)


def test_nesting_is_counted_exactly() -> None:
    assert encode("payload", nested(100), 100)
    with pytest.raises(InvalidArgument, match="deeper than 100"):
        encode("payload", nested(101), 100)
    with pytest.raises(InvalidArgument, match="deeper than 100"):
        encode("payload", {"wide": [1] * 1000, "deep": {"x": nested(99)}}, 100)


@pytest.mark.parametrize("raw", [b"NaN", b"[1e400]", b"{", b"", b"\xff", b"[" * 1000])
def test_stored_bytes_that_are_no_json_are_not_taken_for_it(raw: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  (parsers word it differently)
        decode(raw)
