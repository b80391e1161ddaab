"""Addresses of databases, and that their passwords are not told."""

import pytest

from queue_operator.domain.addresses import check_postgres_address, options_of
from queue_operator.domain.errors import InvalidArgument


@pytest.mark.parametrize(
    "address",
    [
        "",
        "postgresql://",
        "postgresql://localhost/queue",
        "postgres://u:p%40ss@db.example:5432/queue?sslmode=require",
        "postgresql://u:p@db-1:5432,db-2/queue?target_session_attrs=read-write",
        "postgresql://u@[::1]:5432/queue",
        "postgresql://db/queue?user=me@there",
        "postgresql:///queue?host=/var/run/postgresql",
        "host=db user=q password='p@ss: word' dbname=q",
        "  dbname = q",
    ],
)
def test_an_address(address: str) -> None:
    check_postgres_address("dsn", address)


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://u:SEC@RET@127.0.0.1/q",
        "postgresql://u:SEC/RET@127.0.0.1/q",
        "postgresql://u:SEC?RET@127.0.0.1/q",
        "postgresql://u:1/SECRET@127.0.0.1/q",
        "postgresql://u:SEC:RET/@127.0.0.1/q",
        "POSTGRESQL://u:SECRET@127.0.0.1/q",
        "mysql://u:SECRET@127.0.0.1/q",
        "u:SECRET@127.0.0.1/q",
        "postgresql:u:SECRET@127.0.0.1/q",
        "SECRET",
    ],
)
def test_no_part_of_what_is_refused_is_told(address: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        check_postgres_address("listen_dsn", address)
    assert refused.value.field == "listen_dsn"
    assert "postgresql://USER:PASSWORD@HOST:PORT/NAME" in refused.value.reason
    assert "SEC" not in str(refused.value)
    assert "RET" not in str(refused.value)


def test_what_is_no_text_is_named_by_its_kind() -> None:
    with pytest.raises(InvalidArgument, match=r"dsn: must be postgresql://.* not NoneType"):
        check_postgres_address("dsn", None)


def test_names_of_options() -> None:
    assert options_of("postgresql://h/q?sslmode=require&nonsense=1") == ["sslmode", "nonsense"]
    assert options_of("host=db password=a?b=c") == []
    assert options_of("postgresql://u:1?SECRET=2@h/q") == []
