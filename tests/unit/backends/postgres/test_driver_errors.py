"""Each error of the driver becomes one that says what it means and what to do."""

import psycopg
import pytest
from psycopg import errors

from queue_operator.backends.postgres.driver_errors import TookTooLong, Undone, named, unavailable
from queue_operator.domain.errors import (
    AccessRefused,
    MissingPrivilege,
    QueueError,
    SchemaMismatch,
    Unavailable,
)


@pytest.mark.parametrize(
    ("sqlstate", "kind", "words"),
    [
        ("40P01", Undone, "ended a deadlock; call again"),
        ("40001", Undone, "undid the transaction"),
        ("42501", MissingPrivilege, "queue-operator migrate --grant-to anna"),
        ("26000", Unavailable, "set database.pooler to true"),
        ("42P05", Unavailable, "set database.pooler to true"),
        ("42P01", SchemaMismatch, "run `queue-operator migrate`"),
        ("42703", SchemaMismatch, "run `queue-operator migrate`"),
        ("3F000", SchemaMismatch, "run `queue-operator migrate`"),
        ("25006", Unavailable, "takes no writes"),
        ("25P03", Unavailable, "refuses: said so"),
        ("0A000", Unavailable, "refuses: said so"),
        ("53100", Unavailable, "refuses: said so"),
        ("57014", TookTooLong, "took too long"),
        ("57P01", Unavailable, "cannot be reached: said so"),
        ("28P01", AccessRefused, "refuses this user: said so; check user, password and database"),
        ("3D000", AccessRefused, "refuses this user: said so; check user, password and database"),
    ],
)
def test_an_error_of_the_server(sqlstate: str, kind: type[QueueError], words: str) -> None:
    meant = named(errors.lookup(sqlstate)("said so\nDETAIL: more"), "anna")
    assert type(meant) is kind
    assert words in str(meant)
    assert "DETAIL" not in str(meant)
    assert meant.retryable


@pytest.mark.parametrize(
    "kind", [errors.UniqueViolation, errors.NumericValueOutOfRange, psycopg.ProgrammingError]
)
def test_what_is_wrong_with_a_value_only_the_caller_can_say(kind: type[psycopg.Error]) -> None:
    assert named(kind("no"), "anna") is None


def test_a_line_that_broke() -> None:
    meant = unavailable(psycopg.OperationalError("server closed the connection unexpectedly"))
    assert "cannot be reached: server closed" in str(meant)


@pytest.mark.parametrize(
    "said",
    [
        'connection failed: FATAL:  password authentication failed for user "anna"',
        'connection failed: FATAL:  database "none" does not exist',
        'connection failed: FATAL:  role "none" does not exist',
        'connection failed: FATAL:  no pg_hba.conf entry for host "::1", user "anna"',
        "connection failed: fe_sendauth: no password supplied",
        "connection failed: FATAL: no such database: none",
    ],
)
def test_a_connection_that_was_turned_away(said: str) -> None:
    meant = unavailable(psycopg.OperationalError(said))
    assert type(meant) is AccessRefused
    assert said in str(meant)


def test_no_part_of_an_address_is_repeated() -> None:
    meant = unavailable(psycopg.ProgrammingError('invalid port: "s3cret@db"'))
    assert "s3cret" not in str(meant)
    assert "percent-encoded" in str(meant)


def test_an_error_without_words_is_named_by_its_kind() -> None:
    assert "TimeoutError" in str(unavailable(TimeoutError()))
