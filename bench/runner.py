"""Runs one program once, from an empty database to its ledger."""

import json
import queue
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import IO, Any, Final

import psycopg

from bench.meter import Reading, per_job, read
from bench.result import Setting
from bench.server import Server

SILENCE_S: Final = 240.0
"""How long a program may say nothing, or the same, as it does while it counts jobs."""

_MEASURES: Final = frozenset({"event", "at", "elapsed", "submitted", "completed"})

Event = dict[str, Any]
OnTick = Callable[[Event], None]


class ProgramFailed(Exception):
    """A program ended, or fell silent, before it had said everything."""


@dataclass(frozen=True, slots=True)
class System:
    """Something to measure: a program, by the command that starts it."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Run:
    """What one run gave. `ticks` are pairs of seconds and jobs completed by then."""

    elapsed_s: float
    submitted: int
    completed: int
    ticks: Sequence[tuple[float, int]]
    ledger: Mapping[str, int]
    before: Reading
    after: Reading
    extra: Mapping[str, float]

    @property
    def ledger_is_right(self) -> bool:
        return not (self.ledger["lost"] or self.ledger["duplicates"])

    def metrics(self, jobs: int) -> dict[str, float]:
        """All figures, per job of `jobs`: those submitted or those completed."""
        return {
            "jobs_per_s": jobs / self.elapsed_s if self.elapsed_s else 0.0,
            "jobs": jobs,
            "elapsed_s": self.elapsed_s,
            **per_job(self.before, self.after, jobs),
            "table_bytes_per_job": self.after.table_bytes / max(self.submitted, 1),
            "dead_rows": self.after.dead_rows,
            "rss_mb": self.after.rss_mb,
            "peak_rss_mb": self.after.peak_rss_mb,
            **self.extra,
            **self.ledger,
            "ledger_ok": int(self.ledger_is_right),
        }

    def rate(self, start_s: float, end_s: float) -> float:
        """Jobs completed per second between two moments, by the ticks nearest to them."""
        ticks = [(0.0, 0), *self.ticks, (self.elapsed_s, self.completed)]
        first = min(ticks, key=lambda tick: abs(tick[0] - start_s))
        last = min(ticks, key=lambda tick: abs(tick[0] - end_s))
        return (last[1] - first[1]) / (last[0] - first[0]) if last[0] > first[0] else 0.0


def run_once(
    server: Server,
    system: System,
    spec: Mapping[str, Setting],
    on_tick: OnTick = lambda event: None,
    *,
    pinned: bool = False,
) -> Run:
    """Starts the program on a database of its own and reads the meters around its work.

    With `pinned`, a snapshot, and a transaction with an id, stay open for as long as it works.
    """
    with server.fresh_database() as dsn, _Program.started(system, on_tick) as program:
        program.send(json.dumps({**spec, "dsn": dsn}))
        program.wait_for("ready")
        program.ticks.clear()
        pin: AbstractContextManager[object] = _pin(dsn) if pinned else nullcontext()
        with pin:
            before = read(dsn, program.pid, server.pid)
            program.send("go")
            done = program.wait_for("done")
            after = read(dsn, program.pid, server.pid)
        program.send("finish")
        ledger = program.wait_for("ledger")
    return Run(
        elapsed_s=done["elapsed"],
        submitted=done["submitted"],
        completed=done["completed"],
        ticks=program.ticks,
        ledger={key: value for key, value in ledger.items() if key != "event"},
        before=before,
        after=after,
        extra={key: value for key, value in done.items() if key not in _MEASURES},
    )


class _Program:
    """A process and what it has said so far."""

    def __init__(
        self, system: System, process: subprocess.Popen[str], log: IO[str], on_tick: OnTick
    ) -> None:
        self._name = system.name
        self._process = process
        self._log = log
        self._on_tick = on_tick
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._moved_at = time.monotonic()
        self._counts = (0, 0)
        self.ticks: list[tuple[float, int]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @classmethod
    @contextmanager
    def started(cls, system: System, on_tick: OnTick) -> Iterator["_Program"]:
        with (
            tempfile.TemporaryFile("w+") as log,
            subprocess.Popen(
                list(system.command),
                env=dict(system.environment) or None,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            ) as process,
        ):
            program = cls(system, process, log, on_tick)
            try:
                yield program
            finally:
                process.kill()
                program._reader.join()
                if process.stdin is not None:
                    with suppress(BrokenPipeError):
                        process.stdin.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, line: str) -> None:
        if self._process.stdin is None:
            raise ProgramFailed(f"{self._name} cannot be talked to")
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._failure("ended") from None

    def wait_for(self, name: str) -> Event:
        """The next event of that name; ticks before it are kept."""
        while True:
            event = self._next()
            if event["event"] == name:
                return event
            if event["event"] == "tick":
                self._check_movement(event["submitted"], event["completed"])
                self.ticks.append((event["at"], event["completed"]))
                self._on_tick(event)

    def _check_movement(self, submitted: int, completed: int) -> None:
        """A job that never comes, or never ends, must not be waited for without end."""
        now = time.monotonic()
        if (submitted, completed) != self._counts:
            self._counts, self._moved_at = (submitted, completed), now
        elif now - self._moved_at > SILENCE_S:
            raise self._failure(f"stands at {completed} of {submitted} jobs for {SILENCE_S:.0f} s")

    def _next(self) -> Event:
        try:
            line = self._lines.get(timeout=SILENCE_S)
        except queue.Empty:
            raise self._failure(f"said nothing for {SILENCE_S:.0f} s") from None
        if line is None:
            raise self._failure("ended before it was done")
        event: Event = json.loads(line)
        return event

    def _failure(self, what: str) -> ProgramFailed:
        self._log.seek(0)
        last = self._log.read().strip().splitlines()[-15:]
        return ProgramFailed(f"{self._name} {what}\n" + "\n".join(last))

    def _read(self) -> None:
        for line in self._process.stdout or ():
            self._lines.put(line)
        self._lines.put(None)


@contextmanager
def _pin(dsn: str) -> Iterator[None]:
    with psycopg.connect(dsn) as reader, psycopg.connect(dsn) as writer:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT 1")
        writer.execute("SELECT pg_current_xact_id()")
        yield
        writer.rollback()
        reader.rollback()
