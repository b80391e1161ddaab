import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from queue_operator.domain.errors import InvalidArgument
from queue_operator.tasks.values import decode, encode

SCALARS = st.none() | st.booleans() | st.integers() | st.text()
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    SCALARS | NUMBERS,
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)
ANYTHING = st.recursive(
    SCALARS | st.floats() | st.binary() | st.text(st.characters()),
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(SCALARS, inner)
        | st.frozensets(SCALARS)
    ),
    max_leaves=8,
)


@given(JSON | st.binary())
def test_json_and_bytes_come_back_with_their_types(value: Any) -> None:
    assert repr(decode(encode("payload", value, 10**6))) == repr(value)


@given(ANYTHING)
def test_whatever_is_stored_comes_back_equal(value: Any) -> None:
    try:
        stored = encode("payload", value, 10**6)
    except InvalidArgument:
        return
    assert decode(stored) == value


@given(JSON)
def test_json_is_stored_as_text_for_every_reader(value: Any) -> None:
    stored = encode("payload", value, 10**6)
    assert isinstance(stored, str)
    assert stored.isascii()
    assert json.loads(stored) == value
