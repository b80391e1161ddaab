"""Changes over gRPC: told before and after, and brought to their end whatever the caller does."""

import asyncio
import logging
import uuid
from collections.abc import Collection, Coroutine
from contextlib import AbstractContextManager
from typing import Any, Final, TypeVar

from google.protobuf.message import Message

from queue_operator.auth.audit import UNKNOWN, Audit
from queue_operator.auth.protocol import Identity
from queue_operator.backends.ending import end_tasks
from queue_operator.domain.errors import QueueError
from queue_operator.wire.v1 import queue_pb2 as pb

logger = logging.getLogger(__name__)

T = TypeVar("T")

_NAMED_CHARACTERS: Final = 255


class Changes:
    """Those that are under way. A caller who cancels a call, or is gone, ends no change that has
    begun: else nobody could say what became of it.
    """

    def __init__(self) -> None:
        self._audit = Audit()
        self._left: set[asyncio.Task[Any]] = set()

    @property
    def left(self) -> int:
        """How many go on without a caller."""
        return len(self._left)

    def told(
        self,
        identity: Identity,
        verb: str,
        operation: str,
        namespaces: Collection[str],
        *,
        cut: str = UNKNOWN,
        **what: Any,
    ) -> AbstractContextManager[dict[str, Any]]:
        """Around a change: the lines of the audit."""
        return self._audit.change(
            identity,
            request_id=uuid.uuid4().hex,
            verb=verb,
            operation=operation,
            namespace=", ".join(sorted(namespaces))[:_NAMED_CHARACTERS],
            cut=cut,
            **what,
        )

    async def to_its_end(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` gives."""
        task = asyncio.create_task(work)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.done():
                self._left.add(task)
                task.add_done_callback(self._ended)
            raise

    async def finish(self, grace_s: float) -> None:
        """Waits for what goes on without a caller; ends what takes longer."""
        if self._left:
            await asyncio.wait(self._left, timeout=grace_s)
        await end_tasks(list(self._left))

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._left.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, QueueError):
            logger.error("a gRPC call met a fault of the server", exc_info=error)


def count_of(request: Message, answer: Message) -> dict[str, int]:
    """How many jobs a call has changed, where its answer says so. Only of calls that succeeded."""
    match answer:
        case pb.EnqueueJobResponse():
            return {"count": 1}
        case pb.EnqueueJobsResponse():
            return {"count": len(answer.job_ids)}
        case pb.EnqueueEachResponse():
            return {"count": sum(not one.HasField("error") for one in answer.enqueued)}
        case pb.CancelJobsResponse():
            return {"count": len(answer.cancelled_job_ids)}
        case pb.DeleteJobsResponse() | pb.CleanupExpiredJobsResponse():
            return {"count": answer.deleted}
    if isinstance(request, pb.ReturnJobsRequest):
        return {"count": len(request.jobs)}
    return {}
