"""Jobs that end, a sender that may be killed, and receivers of every kind."""

import os
import subprocess
import sys
import time
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from tests.integration.serving import free_port
from tests.waiting import STATEMENT_S

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.backends.webhooks import Message, MessageSearch
from queue_operator.domain.job import Job
from queue_operator.domain.outcome import Outcome
from queue_operator.domain.states import Event
from queue_operator.testing.history import Kind, read_logs

PROGRAMS: Final = "tests.integration.webhooks.programs"
GOOD: Final = 50
BAD: Final = ("failing", "busy", "never", "closing", "endless")
BATCH: Final = 100


@dataclass(frozen=True, slots=True)
class Told:
    """A request that a receiver has read."""

    at: float
    job_id: str
    id: str
    host: str
    way: str
    accepted: bool
    body: str


@dataclass
class Scene:
    """One namespace of a store. `ended` is when the end of each job was stored."""

    dsn: str
    store: PostgresBackend
    folder: Path
    total_s: float
    namespace: str = field(default_factory=lambda: f"team-{uuid.uuid4().hex[:8]}")
    port: int = field(default_factory=free_port)
    ended: dict[str, float] = field(default_factory=dict)

    @property
    def log(self) -> Path:
        return self.folder / "told.jsonl"

    def url(self, number: int) -> str:
        """Of the receivers in turn: good ones, and one of each other kind."""
        place = number % (GOOD + len(BAD))
        if place < GOOD:
            return self.good(place)
        return self.bad(BAD[place - GOOD], place)

    def good(self, place: int) -> str:
        return f"http://127.0.1.{place + 1}:{self.port}/good"

    def bad(self, kind: str, place: int) -> str:
        return f"http://127.0.2.{place + 1}:{self.port}/{kind}"

    def told(self) -> list[Told]:
        records = read_logs([self.log]) if self.log.exists() else []
        read = [one for one in records if one.kind is Kind.MESSAGE_READ]
        return [Told(one.at, one.job_id, **one.said) for one in read]  # type: ignore[arg-type]

    async def end(self, urls: Sequence[str]) -> list[str]:
        """Jobs with these callback URLs are submitted, run and completed."""
        jobs = [
            Job(
                id=uuid.uuid4().hex,
                namespace=self.namespace,
                type="t",
                payload=b"",
                callback_url=url,
            )
            for url in urls
        ]
        for start in range(0, len(jobs), BATCH):
            await self.store.enqueue_jobs(jobs[start : start + BATCH])
            claimed = await self.store.dequeue_jobs("w", [], BATCH, namespace=self.namespace)
            outcomes = [
                Outcome(job.id, Event.COMPLETE, self.namespace, job.token, b"") for job in claimed
            ]
            settled = await self.store.settle(outcomes)
            assert not [one for one in settled if one.error]
            self.ended |= {job.id: time.time() for job in claimed}
        return [job.id for job in jobs]

    async def messages(self) -> list[Message]:
        """All that there are."""
        found, cursor = list[Message](), ""
        while True:
            page = await self.store.webhooks.search(
                MessageSearch(namespace=self.namespace, after=cursor, limit=1000)
            )
            found += page.messages
            if not (cursor := page.next_cursor):
                return found

    def environment(self) -> Mapping[str, str]:
        given = {
            "DATABASE__DSN": self.dsn,
            "WEBHOOKS__ENABLED": "true",
            "WEBHOOKS__ALLOW": '["127.0.0.0/8"]',
            "WEBHOOKS__ALLOW_HTTP": "true",
            "WEBHOOKS__PORTS": f"[{self.port}]",
            "WEBHOOKS__TOTAL_S": str(self.total_s),
        }
        return {f"QUEUE_OPERATOR_{key}": value for key, value in given.items()}

    def start_sender(self) -> "subprocess.Popen[bytes]":
        log = (self.folder / "sender.log").open("ab")
        with log:
            return subprocess.Popen(
                [sys.executable, "-m", f"{PROGRAMS}.sender"],
                env={**os.environ, **self.environment()},
                stderr=log,
            )

    def cut_off(self) -> None:
        """As if the database were started again: nobody stays connected."""
        name = conninfo_to_dict(self.dsn)["dbname"]
        with psycopg.connect(self.dsn, dbname="postgres", autocommit=True) as admin:
            allow = sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}")
            admin.execute(allow.format(sql.Identifier(str(name)), sql.SQL("false")))
            admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name]
            )
            admin.execute(allow.format(sql.Identifier(str(name)), sql.SQL("true")))

    def late_s(self) -> dict[str, list[float]]:
        """By host, how long after its end the first word of each job came."""
        first: dict[str, Told] = {}
        for told in self.told():
            first.setdefault(told.job_id, told)
        found: dict[str, list[float]] = defaultdict(list)
        for told in first.values():
            if told.job_id in self.ended:
                found[told.host].append(told.at - self.ended[told.job_id])
        return found


@asynccontextmanager
async def scene(dsn: str, folder: Path, total_s: float) -> AsyncIterator[Scene]:
    store = await PostgresBackend.open(dsn, statement_timeout_s=STATEMENT_S)
    try:
        found = Scene(dsn, store, folder, total_s)
        with receivers(found):
            yield found
    finally:
        await store.close()


@contextmanager
def receivers(found: Scene) -> Iterator[None]:
    command = [sys.executable, "-m", f"{PROGRAMS}.receivers", str(found.port), str(found.log)]
    with ended_at_last(subprocess.Popen(command)):
        yield


@contextmanager
def ended_at_last(process: "subprocess.Popen[bytes]") -> Iterator["subprocess.Popen[bytes]"]:
    with ExitStack() as stack:
        stack.callback(process.wait)
        stack.callback(process.kill)
        yield process
