"""What the recorders share.

A recorder stands between a part and its caller, changes nothing, and writes what it sees. It
takes the part itself and puts its own methods before some of the part's, so that whoever has
the part has the recorded one.
"""

import hashlib
from collections.abc import Iterable
from typing import Final

from queue_operator.testing.history.records import Kind, Log

SUBMIT: Final = (Kind.SUBMIT_CALLED, Kind.SUBMIT_ACKNOWLEDGED, Kind.SUBMIT_FAILED)
CANCEL: Final = (Kind.CANCEL_CALLED, Kind.CANCEL_ACKNOWLEDGED, Kind.CANCEL_FAILED)


def digest(result: bytes | None) -> str:
    """Enough of a result to tell it from another."""
    return hashlib.sha256(result or b"").hexdigest()[:16]


def text_digest(text: str) -> str:
    return digest(text.encode())


def checkpoint_digest(checkpoint: bytes | None) -> str:
    """An empty one is a checkpoint too; none is the empty string."""
    return "" if checkpoint is None else digest(checkpoint)


def stand_before(part: object, recorder: object, *names: str) -> None:
    """Whoever calls these methods of the part calls the recorder's, which call the part's."""
    for name in names:
        setattr(part, name, getattr(recorder, name))


class Called:
    """Writes the call, then what became of it; a call that is cut off is one that failed."""

    def __init__(self, log: Log, kinds: tuple[Kind, Kind, Kind], job_ids: Iterable[str]) -> None:
        self._log = log
        self._called, self._acknowledged, self._failed = kinds
        self._job_ids = list(job_ids)

    def __enter__(self) -> "Called":
        for job_id in self._job_ids:
            self._log.write(self._called, job_id)
        return self

    def acknowledge(self, job_ids: Iterable[str], answer: str = "") -> None:
        for job_id in job_ids:
            self._log.write(self._acknowledged, job_id, answer=answer)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        if error is not None:
            for job_id in self._job_ids:
                self._log.write(self._failed, job_id, error=f"{type(error).__name__}: {error}")
