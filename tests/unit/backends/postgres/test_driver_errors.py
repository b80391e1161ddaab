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
        ("53100", Unavailable, "no room left: said so; make room on its disk"),
        ("53200", Unavailable, "refuses: said so"),
        ("53300", Unavailable, "no connection left for this user: said so; close some, raise"),
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


@pytest.mark.parametrize("sqlstate", ["54000", "54001", "54011", "54023"])
def test_what_is_beyond_a_limit_of_the_server_is_not_tried_again(sqlstate: str) -> None:
    meant = named(errors.lookup(sqlstate)("said so\nDETAIL: more"), "anna")
    assert type(meant) is QueueError
    assert "beyond a limit of it: said so; send less at once" in str(meant)
    assert not meant.retryable


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


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("FATAL:  sorry, too many clients already", "has no connection left"),
        ('FATAL:  too many connections for role "anna"', "has no connection left"),
        ('FATAL:  too many connections for database "a"', "has no connection left"),
        (
            "FATAL:  remaining connection slots are reserved for roles with the SUPERUSER",
            "raise max_connections of the server or the limit of the role or database",
        ),
        ("FATAL: no more connections allowed (max_client_conn)", "a smaller database.pool_size"),
        ("FATAL:  could not write init file: No space left on device", "make room on its disk"),
        ("failed: session is read-only", "takes no writes"),
        ("failed: session is read-only", "if it is a standby"),
        ("failed: session is read-only", "if default_transaction_read_only is on"),
        ("failed: server is in hot standby mode", "takes no writes"),
    ],
)
def test_a_connection_that_is_not_to_be_had(said: str, words: str) -> None:
    meant = unavailable(psycopg.OperationalError(said))
    assert type(meant) is Unavailable
    assert said in str(meant)
    assert words in str(meant)
    assert "check the database address" not in str(meant)


def test_no_part_of_an_address_is_repeated() -> None:
    meant = unavailable(psycopg.ProgrammingError('invalid port: "s3cret@db"'))
    assert "s3cret" not in str(meant)
    assert "percent-encoded" in str(meant)


def test_an_error_without_words_is_named_by_its_kind() -> None:
    assert "TimeoutError" in str(unavailable(TimeoutError()))
