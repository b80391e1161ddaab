"""The rows that show connected workers to the controller and to other replicas."""

from collections.abc import Collection, Sequence

from queue_operator.backends.protocol import Backend, Sessions, WorkerSession
from queue_operator.queue.stream import JobStream


class SessionRows:
    """Writes them where the store keeps sessions. Library streams have none."""

    def __init__(self, backend: Backend, replica: str) -> None:
        self._rows = backend if isinstance(backend, Sessions) else None
        self._replica = replica

    async def open(self, stream: JobStream) -> None:
        if self._rows is not None:
            await self._rows.open_session(self._row(stream))

    async def touch(self, streams: Collection[JobStream]) -> None:
        rows = [self._row(stream) for stream in streams if not stream.renewed_by_queue]
        if rows and self._rows is not None:
            await self._rows.touch_sessions(rows)

    async def close(self, session_ids: Sequence[str]) -> None:
        if session_ids and self._rows is not None:
            await self._rows.close_sessions(session_ids)

    def _row(self, stream: JobStream) -> WorkerSession:
        spec = stream.spec
        return WorkerSession(
            session_id=spec.assignee_id,
            namespace=spec.namespace,
            worker_name=spec.worker_name,
            pod_uid=spec.pod_uid,
            host=spec.host,
            replica=self._replica,
            tags=spec.tags,
            types=frozenset(handler.type for handler in spec.types),
            capacity=spec.capacity,
            busy=stream.slots.busy,
            draining=stream.draining,
            version=spec.version,
        )
