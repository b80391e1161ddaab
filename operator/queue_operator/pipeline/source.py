"""The event log in Postgres: which rows are new, and how Spark gets at them."""

import re
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import Any, Final, LiteralString, Self
from urllib.parse import quote

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from pyspark.sql import DataFrame, SparkSession

from queue_operator.backends.protocol import EVENT_SCHEMA_VERSION
from queue_operator.backends.sql import load
from queue_operator.domain.addresses import NO_ADDRESS, check_postgres_address
from queue_operator.domain.errors import InvalidArgument, Unavailable
from queue_operator.pipeline.errors import DatabaseRefused, EventsTooNew, NotMigrated
from queue_operator.pipeline.session import DRIVER_CLASS

Connection = psycopg.Connection[tuple[Any, ...]]

PARTS: Final = 16
"""Into how many JDBC reads a large window is cut."""

JOBS_PER_READ: Final = 50_000
"""A window with fewer job entries is read by one task."""

FETCH_ROWS: Final = 200
"""Rows the driver holds at a time; each may carry the entries of a thousand jobs."""

# What libpq and the JDBC driver call differently or alike, and we pass on.
_JDBC_NAMES: Final = {
    "sslmode": "sslmode",
    "sslrootcert": "sslrootcert",
    "sslcert": "sslcert",
    "sslkey": "sslkey",
    "sslpassword": "sslpassword",
    "connect_timeout": "connectTimeout",
    "options": "options",
}
_SNAPSHOT: Final = re.compile(r"(\d+):(\d+):([\d,]*)")


@cache
def statement(name: str) -> LiteralString:
    """The text of `queries/<name>.sql`."""
    return load("queue_operator.pipeline", name)


def template(name: str) -> sql.SQL:
    """The same as a template with named places."""
    return sql.SQL(statement(name))


@contextmanager
def connect(dsn: str) -> Iterator[Connection]:
    """A connection in autocommit, closed at the end.

    Raises InvalidArgument when `dsn` is no address, Unavailable when Postgres cannot be
    reached or goes away, NotMigrated when it has no event log, DatabaseRefused for whatever else
    it says no to; the text of none of them has the password.
    """
    check_postgres_address("dsn", dsn)
    try:
        conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        # What the driver says has the part that it did not understand.
        raise InvalidArgument("dsn", NO_ADDRESS) from None
    try:
        with closing(
            psycopg.connect(dsn, autocommit=True, application_name="queue-operator-pipeline")
        ) as connection:
            # It holds the lock while Spark works, and says nothing meanwhile.
            connection.execute(statement("stay"))
            yield connection
    except psycopg.OperationalError as error:
        said = " ".join(str(error).split())
        raise Unavailable(f"Postgres cannot be used: {said}") from error
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName) as error:
        raise NotMigrated from error
    except psycopg.Error as error:
        raise DatabaseRefused(first_line(error)) from error


def first_line(error: BaseException) -> str:
    """Of what the driver says; the lines after it quote rows."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


@dataclass(frozen=True, slots=True)
class JdbcTarget:
    """The same database, as the JDBC driver wants it named."""

    url: str
    user: str
    password: str = field(repr=False)

    @classmethod
    def of_connection(cls, connection: Connection) -> Self:
        """Of where `connection` ended up, after environment, service and password files."""
        info = connection.info
        return cls.of_parameters(
            {
                **info.get_parameters(),
                "host": info.host,
                "port": str(info.port),
                "dbname": info.dbname,
                "user": info.user,
                "password": info.password,
            }
        )

    @classmethod
    def of_parameters(cls, parameters: Mapping[str, Any]) -> Self:
        """Of libpq's connection parameters. Raises InvalidArgument for a Unix socket."""
        host = str(parameters.get("host") or "localhost")
        if host.startswith(("/", "@")):
            raise InvalidArgument(
                "dsn", f"{host} is a Unix socket, which Java cannot use: name a TCP host"
            )
        address = f"[{host}]" if ":" in host else host
        passed = "&".join(
            f"{theirs}={_encoded(parameters[ours])}"
            for ours, theirs in _JDBC_NAMES.items()
            if parameters.get(ours)
        )
        database = _encoded(parameters.get("dbname") or parameters.get("user") or "")
        url = f"jdbc:postgresql://{address}:{parameters.get('port') or 5432}/{database}"
        return cls(
            url=f"{url}?{passed}" if passed else url,
            user=str(parameters.get("user") or ""),
            password=str(parameters.get("password") or ""),
        )


def _encoded(value: object) -> str:
    return quote(str(value), safe="")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`pg_snapshot`: below `xmin` all is decided, from `xmax` on nothing is, and between
    them everything but `open_xids`.
    """

    xmin: int
    xmax: int
    open_xids: tuple[int, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads Postgres' own notation. Raises InvalidArgument."""
        match = _SNAPSHOT.fullmatch(text)
        if match is None:
            raise InvalidArgument("snapshot", f"{text!r} is not a pg_snapshot")
        xmin, xmax, listed = match.groups()
        return cls(int(xmin), int(xmax), tuple(int(xid) for xid in listed.split(",") if xid))

    def __str__(self) -> str:
        return f"{self.xmin}:{self.xmax}:{','.join(map(str, self.open_xids))}"


@dataclass(frozen=True, slots=True)
class Window:
    """What to read: all that `upto` sees and `after` does not.

    `after` None is the first read of a generation: every row there is. Rows that a restore
    brought along carry transaction ids of another database, so no condition on them is
    asked; what commits meanwhile is read again next time and told apart by its key.
    """

    after: Snapshot | None
    upto: Snapshot

    @property
    def is_empty(self) -> bool:
        return self.after == self.upto

    def condition(self) -> sql.Composable:
        if self.after is None:
            return sql.SQL("true")
        return template("window_difference").format(
            first_xid=sql.Literal(str(self.after.xmax)),
            open_xids=sql.Literal([str(xid) for xid in self.after.open_xids]),
            end_xid=sql.Literal(str(self.upto.xmax)),
            snapshot=sql.Literal(str(self.upto)),
        )


@dataclass(frozen=True, slots=True)
class Shape:
    """How many job entries a window holds and where to cut it: upper bounds of `seq`."""

    jobs: int
    bounds: tuple[int, ...]

    def predicates(self) -> list[str]:
        """One condition per JDBC read. The outer two are open, so that together they
        take every row, whatever committed since the shape was looked at.
        """
        if self.jobs <= JOBS_PER_READ or len(self.bounds) < 2:
            return ["true"]
        return list(_between(self.bounds[:-1]))


def _between(cuts: tuple[int, ...]) -> Iterator[str]:
    yield f"seq <= {cuts[0]}"
    for lower, upper in pairwise(cuts):
        yield f"seq > {lower} AND seq <= {upper}"
    yield f"seq > {cuts[-1]}"


def shape(connection: Connection, window: Window) -> Shape:
    """Weighs the window. Raises EventsTooNew before anything is read."""
    query = template("window_shape").format(window=window.condition(), parts=sql.Literal(PARTS))
    parts = connection.execute(query).fetchall()
    newest = max((version for _, _, version in parts), default=0)
    if newest > EVENT_SCHEMA_VERSION:
        raise EventsTooNew(newest, EVENT_SCHEMA_VERSION)
    return Shape(jobs=sum(jobs for _, jobs, _ in parts), bounds=tuple(seq for seq, _, _ in parts))


def read_events(
    spark: SparkSession, connection: Connection, window: Window, cut: Shape
) -> DataFrame:
    """The rows of the window as they stand in Postgres, read in parallel."""
    target = JdbcTarget.of_connection(connection)
    query = template("read_events").format(window=window.condition()).as_string(connection)
    return spark.read.jdbc(
        target.url,
        f"({query}) AS event",
        predicates=cut.predicates(),
        properties={
            "user": target.user,
            "password": target.password,
            "driver": DRIVER_CLASS,
            "fetchsize": str(FETCH_ROWS),
        },
    )
