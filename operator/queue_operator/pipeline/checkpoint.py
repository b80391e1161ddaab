"""How far the lake has got, kept in the database that the events come from.

Kept there, it goes back in time together with the events when the database does.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Self

import psycopg

from queue_operator.pipeline.errors import PipelineBusy
from queue_operator.pipeline.source import Connection, Snapshot, Window, statement


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """`name` is the lake's own id: another lake, or an emptied one, starts from nothing.

    `generation` counts the databases this lake was fed from; `database` identifies the
    present one; `snapshot` is what has been read, None before the first read ended.
    """

    name: str
    generation: int
    database: str
    snapshot: Snapshot | None

    @property
    def run(self) -> str:
        """Names what the next read writes, the same however often it is tried."""
        if self.snapshot is None:
            return "first"
        digest = sha256(str(self.snapshot).encode()).hexdigest()
        return f"{self.snapshot.xmax:020d}-{digest[:16]}"

    def window(self, upto: Snapshot) -> Window:
        return Window(after=self.snapshot, upto=upto)

    def advanced(self, upto: Snapshot) -> Self:
        return replace(self, snapshot=upto)


@contextmanager
def locked(connection: Connection, name: str) -> Iterator[None]:
    """Keeps other runs on this lake out. Raises PipelineBusy at once when there is one."""
    row = connection.execute(statement("lock"), (name,)).fetchone()
    if row is None or not row[0]:
        raise PipelineBusy
    try:
        yield
    finally:
        # A connection that broke has given its lock back, and its error is on its way.
        with suppress(psycopg.OperationalError):
            connection.execute(statement("unlock"), (name,))


def open_checkpoint(
    connection: Connection, name: str, newest_generation: int
) -> tuple[Checkpoint, Snapshot]:
    """The checkpoint to continue from, and what is committed now.

    A database never seen, or restored since, opens the generation after
    `newest_generation` (the lake's) and is read from its beginning. The new generation is
    stored before anything is read, so a run that dies is tried again in the same one.
    """
    position = connection.execute(statement("position")).fetchone()
    if position is None:
        raise AssertionError("a SELECT without FROM gives one row")
    database, upto = position[0], Snapshot.parse(position[1])
    stored = connection.execute(statement("load_checkpoint"), (name,)).fetchone()
    if stored is not None and stored[1] == database:
        read = Snapshot.parse(stored[2]) if stored[2] else None
        return Checkpoint(name, stored[0], database, read), upto
    opened = Checkpoint(
        name, max(newest_generation, stored[0] if stored else 0) + 1, database, None
    )
    save_checkpoint(connection, opened)
    return opened, upto


def save_checkpoint(connection: Connection, checkpoint: Checkpoint) -> None:
    connection.execute(
        statement("save_checkpoint"),
        (
            checkpoint.name,
            checkpoint.generation,
            checkpoint.database,
            str(checkpoint.snapshot or ""),
        ),
    )
