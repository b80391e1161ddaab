"""What handlers wait for: asks of the server, kept until each is answered.

All methods are called on the session's thread.
"""

from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final

from queue_operator.domain.errors import (
    InvalidArgument,
    InvalidTransition,
    PayloadTooLarge,
    QueueError,
    StaleLease,
)
from queue_operator.wire.convert import quota_from_wire
from queue_operator.wire.v1 import worker_pb2 as wire
from queue_operator.worker.errors import Cancelled
from queue_operator.worker.outcomes import MAX_BATCH_BYTES, RESEND_TICKS
from queue_operator.worker.runner import Run

CHILDREN_PER_MESSAGE: Final = 256
_REFUSALS: Final = {InvalidArgument.code, PayloadTooLarge.code, "DUPLICATE"}


def error_of(job_id: str, field_: str, code: str, message: str) -> Exception:
    """What the handler is told of a refusal."""
    if code == StaleLease.code:
        return StaleLease(job_id)
    if code == InvalidTransition.code:
        return Cancelled()
    if code in _REFUSALS:
        named, colon, reason = message.partition(": ")
        return InvalidArgument(named, reason) if colon else InvalidArgument(field_, message)
    return QueueError(message)


@dataclass(slots=True)
class _Checkpoint:
    """The newest of a run. `waiting` are those who wait for it, or for one before it."""

    number: int = 0
    data: bytes = b""
    waiting: list[tuple[int, "Future[None]"]] = field(default_factory=list)


class CheckpointBuffer:
    """The newest checkpoint of each run, from `add` until `acknowledge`: who stores one more
    before that waits for the newer one.
    """

    def __init__(self) -> None:
        self._kept: dict[Run, _Checkpoint] = {}
        self._unsent: dict[Run, None] = {}
        self._sent_ticks_ago: dict[Run, int] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, run: Run, data: bytes, done: "Future[None]") -> None:
        kept = self._kept.setdefault(run, _Checkpoint())
        kept.number += 1
        kept.data = data
        kept.waiting.append((kept.number, done))
        self._unsent[run] = None

    def take_batches(self, max_bytes: int = MAX_BATCH_BYTES) -> list[wire.CheckpointBatch]:
        """Everything unsent, in batches that fit a message."""
        batches: list[wire.CheckpointBatch] = []
        size = 0
        for run in self._unsent:
            kept = self._kept[run]
            size += len(kept.data)
            if not batches or size > max_bytes:
                batches.append(wire.CheckpointBatch())
                size = len(kept.data)
            batches[-1].checkpoints.add(
                job_id=run.job_id, token=run.token, number=kept.number, data=kept.data
            )
        self._sent_ticks_ago |= dict.fromkeys(self._unsent, 0)
        self._unsent.clear()
        return batches

    def acknowledge(self, run: Run, ack: wire.CheckpointAck) -> None:
        kept = self._kept.get(run)
        if kept is None:
            return
        if ack.error_code and ack.token != run.token:
            # It was refused under a token that has been replaced while the handler went on.
            self._again(run)
            return
        error = None
        if ack.error_code:
            error = error_of(run.job_id, "checkpoint", ack.error_code, ack.error_message)
        _tell(kept, ack.number, error)
        if not kept.waiting:
            kept.data = b""
            self._unsent.pop(run, None)
            self._sent_ticks_ago.pop(run, None)

    def tick(self) -> None:
        """Sends again what was not answered for three ticks."""
        for run, ticks in self._sent_ticks_ago.items():
            self._sent_ticks_ago[run] = ticks + 1
        for run in [run for run, n in self._sent_ticks_ago.items() if n >= RESEND_TICKS]:
            self._again(run)

    def requeue(self) -> None:
        """After a cut: what was not answered is sent again."""
        for run in tuple(self._kept):
            self._again(run)

    def readdress(self, run: Run) -> None:
        """The run goes on under a new token."""
        if run in self._kept:
            self._again(run)

    def _again(self, run: Run) -> None:
        self._sent_ticks_ago.pop(run, None)
        if self._kept[run].waiting:
            self._unsent[run] = None

    def drop(self, run: Run, error: Exception) -> None:
        """The run is over, or no longer speaks for its job: whoever waits is told."""
        kept = self._kept.pop(run, None)
        self._unsent.pop(run, None)
        self._sent_ticks_ago.pop(run, None)
        if kept is not None:
            _tell(kept, kept.number, error)


@dataclass(slots=True)
class _Child:
    job: wire.ChildJob
    waiting: list["Future[str]"] = field(default_factory=list)


_ChildKey = tuple[Run, str]


class SpawnBuffer:
    """Children that were asked for, by run and key, in order, from `add` until `answer`."""

    def __init__(self) -> None:
        self._asked: dict[_ChildKey, _Child] = {}
        self._unsent: dict[_ChildKey, None] = {}
        self._sent_ticks_ago: dict[_ChildKey, int] = {}

    def __len__(self) -> int:
        return len(self._asked)

    def add(self, run: Run, key: str, job: wire.ChildJob, done: "Future[str]") -> None:
        self._asked.setdefault((run, key), _Child(job)).waiting.append(done)
        self._unsent[run, key] = None

    def take_batches(self, max_bytes: int = MAX_BATCH_BYTES) -> list[wire.SpawnBatch]:
        """Everything unsent, in batches that fit a message."""
        batches: list[wire.SpawnBatch] = []
        size = 0
        for run, key in self._unsent:
            spawn = wire.Spawn(
                parent_id=run.job_id, token=run.token, key=key, job=self._asked[run, key].job
            )
            size += spawn.ByteSize()
            if not batches or len(batches[-1].spawns) == CHILDREN_PER_MESSAGE or size > max_bytes:
                batches.append(wire.SpawnBatch())
                size = spawn.ByteSize()
            batches[-1].spawns.append(spawn)
        self._sent_ticks_ago |= dict.fromkeys(self._unsent, 0)
        self._unsent.clear()
        return batches

    def answer(self, run: Run, answer: wire.SpawnAnswer) -> None:
        asked = run, answer.key
        if asked not in self._asked:
            return
        if answer.error_code and answer.token != run.token:
            # It was refused under a token that has been replaced while the handler went on.
            self._again(asked)
            return
        error: Exception | None = None
        if answer.HasField("quota"):
            error = quota_from_wire(answer.quota)
        elif answer.error_code:
            error = error_of(run.job_id, "spawn", answer.error_code, answer.error_message)
        self._tell(asked, answer.job_id, error)

    def tick(self) -> None:
        """Asks again for what was not answered for three ticks."""
        for asked, ticks in self._sent_ticks_ago.items():
            self._sent_ticks_ago[asked] = ticks + 1
        for asked in [asked for asked, n in self._sent_ticks_ago.items() if n >= RESEND_TICKS]:
            self._again(asked)

    def requeue(self) -> None:
        """After a cut: what was not answered is asked for again, in its order."""
        self._unsent = dict.fromkeys(self._asked)
        self._sent_ticks_ago.clear()

    def readdress(self, run: Run) -> None:
        """The run goes on under a new token."""
        for asked in [asked for asked in self._asked if asked[0] is run]:
            self._again(asked)

    def drop(self, run: Run, error: Exception) -> None:
        """The run is over, or no longer speaks for its job: whoever waits is told."""
        for asked in [asked for asked in self._asked if asked[0] is run]:
            self._tell(asked, "", error)

    def _again(self, asked: _ChildKey) -> None:
        self._sent_ticks_ago.pop(asked, None)
        self._unsent[asked] = None

    def _tell(self, asked: _ChildKey, job_id: str, error: Exception | None) -> None:
        self._unsent.pop(asked, None)
        self._sent_ticks_ago.pop(asked, None)
        for done in self._asked.pop(asked).waiting:
            if error is None:
                done.set_result(job_id)
            else:
                done.set_exception(error)


def _tell(kept: _Checkpoint, number: int, error: Exception | None) -> None:
    """Answers all who wait for the checkpoint of that number or an older one."""
    waiting, kept.waiting = kept.waiting, []
    for asked, done in waiting:
        if asked > number:
            kept.waiting.append((asked, done))
        elif error is None:
            done.set_result(None)
        else:
            done.set_exception(error)
