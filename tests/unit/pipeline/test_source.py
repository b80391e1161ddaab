"""Where Spark reads from, and what it asks for."""

import pytest
from psycopg.conninfo import conninfo_to_dict

from queue_operator.domain.errors import InvalidArgument
from queue_operator.pipeline.checkpoint import Checkpoint
from queue_operator.pipeline.source import JOBS_PER_READ, JdbcTarget, Shape, Snapshot, Window


@pytest.mark.parametrize(
    ("dsn", "url"),
    [
        ("postgresql://u:p@db.example:6432/jobs", "jdbc:postgresql://db.example:6432/jobs"),
        ("host=db dbname=jobs user=u password=p", "jdbc:postgresql://db:5432/jobs"),
        ("postgresql://u:p@[::1]/jobs", "jdbc:postgresql://[::1]:5432/jobs"),
        ("host=db user=u", "jdbc:postgresql://db:5432/u"),
        (
            "postgresql://u:p@db/a%20b?sslmode=verify-full&sslrootcert=/etc/ca.pem&connect_timeout=5",
            "jdbc:postgresql://db:5432/a%20b"
            "?sslmode=verify-full&sslrootcert=%2Fetc%2Fca.pem&connectTimeout=5",
        ),
    ],
)
def test_url_of_a_dsn(dsn: str, url: str) -> None:
    assert JdbcTarget.of_parameters(conninfo_to_dict(dsn)).url == url


def test_the_password_is_kept_out_of_url_and_representation() -> None:
    target = JdbcTarget.of_parameters(conninfo_to_dict("postgresql://u:s3cr%40t@db/jobs"))
    assert (target.user, target.password) == ("u", "s3cr@t")
    assert "s3cr" not in target.url + repr(target)


@pytest.mark.parametrize("host", ["/var/run/postgresql", "@abstract"])
def test_a_unix_socket_is_refused(host: str) -> None:
    with pytest.raises(InvalidArgument, match="TCP host") as raised:
        JdbcTarget.of_parameters({"host": host})
    assert raised.value.field == "dsn"


@pytest.mark.parametrize("text", ["10:20:10,14,15", "7:7:", "7:9:7"])
def test_a_snapshot_is_written_as_it_was_read(text: str) -> None:
    assert str(Snapshot.parse(text)) == text


@pytest.mark.parametrize("text", ["", "7", "7:9", "7:9:x", "7:9:8'; DROP TABLE job; --"])
def test_what_is_no_snapshot_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="pg_snapshot"):
        Snapshot.parse(text)


def test_the_window_asks_for_the_open_and_the_later() -> None:
    window = Window(Snapshot(10, 20, (10, 14)), Snapshot(14, 30, (14,)))
    condition = " ".join(window.condition().as_string(None).split())
    assert "xid >= '20'::xid8 OR xid = ANY ('{10,14}'::text[]::xid8[])" in condition
    assert "xid < '30'::xid8" in condition
    assert "pg_visible_in_snapshot(xid, '14:30:14'::pg_snapshot)" in condition


def test_a_first_window_asks_for_everything() -> None:
    window = Window(None, Snapshot(10, 20))
    assert window.condition().as_string(None) == "true"
    assert not window.is_empty
    assert Window(Snapshot(10, 20), Snapshot(10, 20)).is_empty


def test_parts_meet_and_are_open_at_both_ends() -> None:
    assert Shape(JOBS_PER_READ + 1, (5, 9, 12)).predicates() == [
        "seq <= 5",
        "seq > 5 AND seq <= 9",
        "seq > 9",
    ]


@pytest.mark.parametrize("shape", [Shape(JOBS_PER_READ, (5, 9)), Shape(10**6, (5,))])
def test_what_is_small_or_one_row_is_read_at_once(shape: Shape) -> None:
    assert shape.predicates() == ["true"]


def test_a_run_is_named_by_what_was_read_before_it() -> None:
    first = Checkpoint("lake", 1, "db", None)
    after = first.advanced(Snapshot(5, 9, (5,)))
    assert first.run == "first"
    assert after.run == first.advanced(Snapshot(5, 9, (5,))).run
    assert after.run != first.advanced(Snapshot(5, 9, (5, 6))).run
    assert after.run < first.advanced(Snapshot(10, 10)).run
