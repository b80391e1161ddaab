"""The part of an address behind the question mark."""

from datetime import timedelta

import pytest

from queue_operator.api.errors import InvalidBody
from queue_operator.api.queries import parse_query
from queue_operator.api.schemas import JobListQuery, JobQuery, StatsQuery


def refused(raw: bytes) -> list[tuple[str, str]]:
    with pytest.raises(InvalidBody) as caught:
        parse_query(raw, JobListQuery)
    return [(one.field, one.code) for one in caught.value.details]


def test_nothing_is_everything_left_out() -> None:
    assert parse_query(b"", JobQuery) == JobQuery()


def test_values_are_unescaped() -> None:
    query = parse_query(b"type=a+b&type=%C3%A9&tag=k%3Dv%26w&&cursor=", JobListQuery)
    assert query.type == ["a b", "é"]
    assert (query.tag, query.cursor) == (["k=v&w"], "")


@pytest.mark.parametrize("raw", [b"time_range=300", b"time_range=PT5M", b"time_range=300.0"])
def test_a_duration_is_a_text_or_a_number(raw: bytes) -> None:
    assert parse_query(raw, StatsQuery).time_range == timedelta(minutes=5)


@pytest.mark.parametrize(
    ("raw", "faults"),
    [
        (b"limit=1&limit=2", [("limit", "REPEATED")]),
        (b"type=%FF", [("type", "INVALID_ENCODING")]),
        (b"cursor=%ED%A0%80", [("cursor", "INVALID_ENCODING")]),
        (b"%FF=1", [("", "UNKNOWN_FIELD")]),
        (b"=1", [("", "UNKNOWN_FIELD")]),
        (b"a=1&b=2", [("a", "UNKNOWN_FIELD"), ("b", "UNKNOWN_FIELD")]),
        (b"limit=1_0", [("limit", "VALUE_ERROR")]),
        (b"limit=+5", [("limit", "VALUE_ERROR")]),
        (b"x" * 70_000, [("", "QUERY_TOO_LONG")]),
        (b"type=a&" * 1001, [("", "QUERY_TOO_LONG")]),
    ],
)
def test_faults_are_named(raw: bytes, faults: list[tuple[str, str]]) -> None:
    assert refused(raw) == faults


def test_all_faults_are_told_at_once() -> None:
    raw = b"limit=1&limit=2&type=%FF&order=x&state=NEW"
    assert {field for field, _ in refused(raw)} == {"limit", "type", "order", "state[0]"}
