"""The SQLite backend as a store of the conformance suite."""

import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from queue_operator.backends.sqlite import SqliteBackend
from queue_operator.domain.validation import DEFAULT_LIMITS, Limits
from queue_operator.testing.memory import ManualClock
from queue_operator.testing.store import half

_BUSY_S = 0.05
_PATIENT_S = 5.0
_WRONG = """
SELECT job.id FROM job WHERE json_extract(record, '$.job.state') <> job.state
UNION ALL SELECT 'edge ' || child FROM edge WHERE child NOT IN (SELECT number FROM job)
UNION ALL SELECT 'tag ' || tag FROM job_tag WHERE number NOT IN (SELECT number FROM job)
UNION ALL SELECT 'key ' || key FROM idempotency
    WHERE NOT EXISTS (SELECT 1 FROM job
                      WHERE job.namespace = idempotency.namespace AND job.id = job_id)
"""


def _folder() -> Path:
    # A thousand tests need not wait for a disk, where there is a file system without one.
    memory = Path("/dev/shm")
    return Path(tempfile.mkdtemp("", "queue-operator-", memory if memory.is_dir() else None))


@dataclass
class SqliteStore:
    """A file in a folder of its own, with a clock that only the test moves."""

    folder: Path = field(default_factory=_folder)
    clock: ManualClock = field(default_factory=ManualClock)
    opened: list[SqliteBackend] = field(default_factory=list)
    blocker: sqlite3.Connection | None = None
    durable: bool = True

    @property
    def path(self) -> Path:
        return self.folder / "jobs.db"

    async def open(
        self, *, limits: Limits = DEFAULT_LIMITS, rng: Callable[[], float] = half
    ) -> SqliteBackend:
        backend = await SqliteBackend.open(
            self.path,
            limits=limits,
            clock=self.clock,
            rng=rng,
            cancel_timeout_s=30.0,
            busy_timeout_s=_BUSY_S if self.blocker else _PATIENT_S,
        )
        self.opened.append(backend)
        return backend

    async def age(self, seconds: float, *, outage: bool = False) -> None:
        self.clock.advance(seconds)
        if not outage:
            self._run("UPDATE sweep SET swept_at = swept_at + ?", int(seconds * 1_000_000))

    async def break_down(self) -> None:
        """Somebody else holds the file and does not let go."""
        for backend in self.opened:
            backend.busy_timeout_s = _BUSY_S
        self.blocker = sqlite3.connect(self.path, isolation_level=None)
        self.blocker.execute("BEGIN IMMEDIATE")

    async def mend(self) -> None:
        if self.blocker is not None:
            self.blocker.close()
            self.blocker = None
        for backend in self.opened:
            backend.busy_timeout_s = _PATIENT_S

    async def faults(self) -> list[str]:
        if not self.path.exists():
            return []
        return [f"{what} does not belong together" for (what,) in self._run(_WRONG)]

    def _run(self, statement: str, *parameters: object) -> list[Any]:
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            return connection.execute(statement, parameters).fetchall()

    async def close(self) -> None:
        await self.mend()
        for backend in self.opened:
            await backend.close()
        shutil.rmtree(self.folder)
