"""Between a handler and the session: what a context says of its job, and what it waits for."""

from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Protocol

from queue_operator.domain.validation import DEFAULT_LIMITS
from queue_operator.wire.v1 import worker_pb2 as wire
from queue_operator.worker.shipping import Line


@dataclass(frozen=True, slots=True, kw_only=True)
class SendLimits:
    """What the server takes; more is refused before it is sent."""

    checkpoint_bytes: int = DEFAULT_LIMITS.checkpoint_bytes
    payload_bytes: int = DEFAULT_LIMITS.payload_bytes


class JobLink(Protocol):
    """Called on any thread, and never waits: what takes time is a future of the answer."""

    def report(self, percent: int, message: str) -> None: ...

    def checkpoint(self, data: bytes) -> "Future[None]":
        """Done when the data is stored; raises what was wrong, or Cancelled or StaleLease when
        the job is no longer this handler's.
        """
        ...

    def spawn(self, key: str | None, job: wire.ChildJob) -> "Future[str]":
        """The id of the child, once it is stored; raises as `checkpoint` does. Without a key
        the place among the handler's spawns without one tells the child apart.
        """
        ...

    def log(self, said: Line) -> None:
        """Shipped when there is time; dropped where there is no room."""
        ...


@dataclass(slots=True)
class Unconnected:
    """The link of a job that no server knows, as in tests: keeps what the handler said."""

    progress: list[tuple[int, str]] = field(default_factory=list)
    checkpoints: list[bytes] = field(default_factory=list)
    spawned: list[wire.ChildJob] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)

    def report(self, percent: int, message: str) -> None:
        self.progress.append((percent, message))

    def checkpoint(self, data: bytes) -> "Future[None]":
        self.checkpoints.append(data)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def spawn(self, key: str | None, job: wire.ChildJob) -> "Future[str]":
        self.spawned.append(job)
        done: Future[str] = Future()
        done.set_result(job.job_id or f"child-{len(self.spawned) if key is None else key}")
        return done

    def log(self, said: Line) -> None:
        self.lines.append(said)
