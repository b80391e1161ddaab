"""The SQLite backend as a store of the conformance suite."""

import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from queue_operator.backends.sqlite import SqliteBackend
from queue_operator.backends.sqlite.rows import microseconds, row_of, stored_from
from queue_operator.domain.validation import DEFAULT_LIMITS, Limits
from queue_operator.testing.memory import ManualClock
from queue_operator.testing.store import half

# Left over from jobs that are gone.
_ORPHANS = """
SELECT 'edge of ' || child FROM edge WHERE child NOT IN (SELECT number FROM job)
UNION ALL SELECT 'tag ' || tag FROM job_tag WHERE number NOT IN (SELECT number FROM job)
UNION ALL SELECT 'key ' || key FROM idempotency
    WHERE NOT EXISTS (SELECT 1 FROM job
                      WHERE job.namespace = idempotency.namespace AND job.id = job_id)
"""


def _folder() -> Path:
    # A thousand tests need not wait for a disk, where there is a file system without one.
    memory = Path("/dev/shm")  # noqa: S108
    return Path(tempfile.mkdtemp("", "queue-operator-", memory if memory.is_dir() else None))


@dataclass
class SqliteStore:
    """A file in a folder of its own, with a clock that only the test moves."""

    folder: Path = field(default_factory=_folder)
    clock: ManualClock = field(default_factory=ManualClock)
    opened: list[SqliteBackend] = field(default_factory=list)
    durable: bool = True

    @property
    def path(self) -> Path:
        return self.folder / "jobs.db"

    @property
    def _away(self) -> Path:
        return self.folder / "jobs.away"

    async def open(
        self, *, limits: Limits = DEFAULT_LIMITS, rng: Callable[[], float] = half
    ) -> SqliteBackend:
        backend = await SqliteBackend.open(
            self.path, limits=limits, clock=self.clock, rng=rng, cancel_timeout_s=30.0
        )
        self.opened.append(backend)
        return backend

    async def age(self, seconds: float, *, outage: bool = False) -> None:
        self.clock.advance(seconds)
        if not outage:
            with closing(self._connect()) as connection:
                now = microseconds(self.clock())
                connection.execute("UPDATE sweep SET swept_at = ?", (now,))

    async def break_down(self) -> None:
        """The file is gone, as with a volume that was taken away."""
        self.path.rename(self._away)
        # Nor can it be made anew.
        self.path.mkdir()

    async def mend(self) -> None:
        if self._away.exists():
            self.path.rmdir()
            self._away.rename(self.path)

    async def faults(self) -> list[str]:
        if not self.path.is_file():
            return []
        with closing(self._connect()) as connection:
            return [*_orphans(connection), *_contradictions(connection)]

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, isolation_level=None)
        connection.row_factory = sqlite3.Row
        return connection

    async def close(self) -> None:
        await self.mend()
        for backend in self.opened:
            await backend.close()
        shutil.rmtree(self.folder)


def _orphans(connection: sqlite3.Connection) -> Iterator[str]:
    for (what,) in connection.execute(_ORPHANS):
        yield f"{what} belongs to no job"


def _contradictions(connection: sqlite3.Connection) -> Iterator[str]:
    """Columns that do not follow from the record, and what is kept beside it likewise."""
    for row in connection.execute("SELECT * FROM job"):
        one = stored_from(dict(row))
        derived = row_of(one)
        for column in set(derived) - {"record"}:
            if derived[column] != row[column]:
                yield f"{column} of job {one.job.id} is {row[column]}, not {derived[column]}"
        if one.transitions[-1].after is not one.job.state:
            yield f"the history of job {one.job.id} does not end with {one.job.state}"
        if _beside(connection, "SELECT tag FROM job_tag WHERE number = ?", row) != one.job.tags:
            yield f"job {one.job.id} is found by other tags than it carries"
        parents = {edge.number for edge in one.edges}
        if _beside(connection, "SELECT parent FROM edge WHERE child = ?", row) != parents:
            yield f"job {one.job.id} is found by other parents than it has"


def _beside(connection: sqlite3.Connection, query: str, row: sqlite3.Row) -> set[object]:
    return {value for (value,) in connection.execute(query, (row["number"],))}
