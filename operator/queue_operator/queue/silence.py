"""Workers that died together with their replica: nobody saw their connections break, and all that
is known of them is that they are silent.
"""

from collections.abc import Collection, Iterable, Iterator
from datetime import datetime

from queue_operator.backends.lost_workers import LostWorker
from queue_operator.backends.protocol import WorkerSession


def silenced(
    namespace: str, every: Iterable[WorkerSession], there: Collection[str]
) -> Iterator[LostWorker]:
    """Of `every` session those of a namespace that are not `there`, by their ids: as lost since
    they were heard of last. Not so where a session of that worker was opened later, and where it
    had drained and held nothing more.
    """
    mine = [one for one in every if one.namespace == namespace]
    newest = _newest(mine)
    for one in mine:
        heard, opened = one.heartbeat_at, one.connected_at
        if one.session_id in there or heard is None or opened is None:
            continue
        came_back = opened < newest.get(one.worker_name, opened)
        if not came_back and (one.busy or not one.draining):
            yield _lost(one, heard)


def _newest(sessions: Iterable[WorkerSession]) -> dict[str, datetime]:
    """When each worker opened one last. Who has no name is known by its session alone."""
    found: dict[str, datetime] = {}
    for one in sessions:
        name, opened = one.worker_name, one.connected_at
        if name and opened is not None:
            found[name] = max(opened, found.get(name, opened))
    return found


def _lost(silent: WorkerSession, since: datetime) -> LostWorker:
    """With the jobs that it had when it was last heard of."""
    return LostWorker(
        session_id=silent.session_id,
        namespace=silent.namespace,
        worker_name=silent.worker_name,
        host=silent.host,
        version=silent.version,
        types=silent.types,
        capacity=silent.capacity,
        jobs=silent.busy,
        lost_at=since,
    )
