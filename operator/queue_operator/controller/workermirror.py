"""The loop that keeps QueueWorkers as sessions are: it writes what changed, at a bounded rate."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from typing import Any, Final, TypeVar

from queue_operator.backends.protocol import SessionOrder, WorkerSession
from queue_operator.controller.kube import ApiError, KubeClient, collection_path, object_path
from queue_operator.controller.ownership import Ownership
from queue_operator.controller.pacing import TokenBucket
from queue_operator.controller.ports import ControllerBackend, ControllerStats
from queue_operator.controller.queueworker import (
    Existing,
    Key,
    StatusWrite,
    lasting,
    make_plan,
    manifest,
    newest_sessions,
    object_name,
)
from queue_operator.controller.waiting import wait_for_event
from queue_operator.crd.names import QUEUE_WORKER
from queue_operator.domain.clock import Clock
from queue_operator.domain.errors import InvalidArgument, Unavailable

logger = logging.getLogger(__name__)

SESSION_SILENCE_S: Final = 60.0
"""A session silent for longer belongs to a replica that died."""
WRITES_PER_S: Final = 50.0
SLOW_INTERVAL_S: Final = 10.0
"""Heartbeats and busy slots are written at most this often, and the less often the more workers
there are: they get `SLOW_PER_PASS` writes of a pass, the longest waiting first.
"""
SLOW_PER_PASS: Final = 20
PER_PASS: Final = 500
"""Objects that one pass deletes, makes and writes at most: after ten seconds of that what it was
planned by is old, and what somebody asked of a session meanwhile waits for the next pass.
"""
LARGE: Final = 1000
"""So many workers make a pass wait a second longer for the next, unless it left work undone."""

_POLL_S: Final = 5.0
_PAUSE_S: Final = 1.0
_THROTTLE_S: Final = 1.0
_CONCURRENT: Final = 16

_Item = TypeVar("_Item")


class WorkerMirror:
    """Compares sessions and QueueWorkers whenever either changes. The objects are known from the
    watch, and from a list now and then, since a watch may miss one that goes.
    """

    def __init__(
        self,
        backend: ControllerBackend,
        kube: KubeClient,
        ownership: Ownership,
        *,
        namespaces: Collection[str],
        clock: Clock,
        stats: ControllerStats,
        writes_per_s: float = WRITES_PER_S,
    ) -> None:
        self._backend = backend
        self._kube = kube
        self._ownership = ownership
        self._namespaces = frozenset(namespaces)
        self._clock = clock
        self._stats = stats
        self._changed = asyncio.Event()
        self._objects: dict[Key, Existing] = {}
        self._seen: set[Key] = set()
        self._written_s: dict[Key, float] = {}
        self._settled: dict[Key, tuple[object, ...]] = {}
        self._refused: dict[Key, SessionOrder] = {}
        self._bucket = TokenBucket(writes_per_s, clock)
        self._slots = asyncio.Semaphore(_CONCURRENT)
        self._is_behind = False

    def notice(self) -> None:
        """Sessions came or went."""
        self._changed.set()

    def see(self, body: Mapping[str, Any], *, gone: bool) -> None:
        """An object came, changed or went."""
        item = Existing.of(body)
        self._seen.add(item.key)
        if not (gone or "deletionTimestamp" in body["metadata"]):
            known = self._objects.get(item.key)
            if known is None or known.version != item.version:
                self._objects[item.key] = item
                self._changed.set()
        elif self._forget(item):
            self._changed.set()

    def _forget(self, item: Existing) -> bool:
        known = self._objects.get(item.key)
        if known is None or known.uid != item.uid:
            return False
        del self._objects[item.key]
        self._refused.pop(item.key, None)
        return True

    async def run(self, list_s: float) -> None:
        listed_s: float | None = None
        is_failing = False
        while True:
            try:
                now = self._clock.monotonic()
                if listed_s is None or now - listed_s >= list_s:
                    await self.list_again()
                    listed_s = now
                if await self.once():
                    self._changed.set()
                is_failing = False
            except (ApiError, Unavailable) as error:
                if not is_failing:
                    logger.warning("QueueWorkers are compared again later: %s", error)
                is_failing, self._is_behind = True, False
            longer_s = 0 if self._is_behind else len(self._objects) // LARGE
            await self._clock.sleep(_PAUSE_S + longer_s)
            await wait_for_event(self._changed, _POLL_S - _PAUSE_S)

    async def list_again(self) -> None:
        """Reads all objects. What the watch tells meanwhile is newer."""
        self._seen.clear()
        listed = {
            item.key: item
            for namespace in self._namespaces or (None,)
            async for page in self._kube.pages(collection_path(QUEUE_WORKER.plural, namespace))
            for body in page
            if "deletionTimestamp" not in body["metadata"]
            for item in (Existing.of(body),)
        }
        newer = {key: self._objects[key] for key in self._seen if key in self._objects}
        self._objects = {k: v for k, v in listed.items() if k not in self._seen} | newer

    async def once(self) -> bool:
        """One pass; True when another has to follow: what was created has no status yet, whom an
        object names now has not been told so, or not all could be done.
        """
        # Before the sessions: of one that an object names, there is a row by then.
        known = dict(self._objects)
        sessions = await self._sessions()
        wanted = newest_sessions(sessions)
        owned = await self._ownership.serve({name for name, _ in known.keys() | wanted})
        sessions = [one for one in sessions if one.namespace in owned]
        objects = [item for item in known.values() if item.namespace in owned]
        fresh, settled = self._unchanged(objects, wanted)
        plan = make_plan(sessions, objects, fresh, datetime.now(UTC), settled)
        written = plan.first.keys() | {item.key for item, _ in plan.write}
        self._settle(objects, wanted, written | settled)
        await self._each(plan.order, partial(self._tell, plan.first))
        deletes = plan.delete[:PER_PASS]
        creates = plan.create[: PER_PASS - len(deletes)]
        writes = plan.write[: PER_PASS - len(deletes) - len(creates)]
        planned = len(plan.delete) + len(plan.create) + len(plan.write)
        self._is_behind = planned > PER_PASS
        await self._each(deletes, self._delete)
        created = await self._each(creates, self._create)
        new = {one.key for one, _ in writes if one.key in wanted and not wanted[one.key].shown}
        named = await self._each([one for one in writes if one[0].key in new], self._write)
        await self._each([one for one in writes if one[0].key not in new], self._write)
        return created > 0 or named > 0 or self._is_behind

    async def _sessions(self) -> list[WorkerSession]:
        sessions = await self._backend.list_sessions(max_age_s=SESSION_SILENCE_S)
        return [s for s in sessions if not self._namespaces or s.namespace in self._namespaces]

    def _unchanged(
        self, objects: Iterable[Existing], wanted: Mapping[Key, WorkerSession]
    ) -> tuple[set[Key], set[Key]]:
        """Whose slow fields may wait, and of these, who has nothing else to say."""
        quiet = {
            item.key
            for item in objects
            if self._settled.get(item.key) == lasting(item, wanted.get(item.key))
        }
        since = self._clock.monotonic() - SLOW_INTERVAL_S
        times = {item.key: self._written_s.get(item.key, 0.0) for item in objects}
        due = sorted((at, key) for key, at in times.items() if at <= since and key in wanted)
        turn = {key for _, key in due[:SLOW_PER_PASS]}
        return times.keys() - turn, quiet - turn

    def _settle(
        self, objects: Iterable[Existing], wanted: Mapping[Key, WorkerSession], but: Collection[Key]
    ) -> None:
        """Those of which nothing is written are as they should be."""
        now = self._clock.monotonic()
        known = {item.key: item for item in objects}
        for kept in (self._settled, self._written_s):
            for key in [key for key in kept if key not in known]:
                del kept[key]
        for key, item in known.items():
            if key not in but:
                self._settled[key] = lasting(item, wanted.get(key))
                self._written_s[key] = now

    async def _each(
        self, items: Collection[_Item], action: Callable[[_Item], Awaitable[None]]
    ) -> int:
        """How many it worked for. Raises Unavailable for the first that the API server does not
        answer, and leaves the rest for later.
        """
        cut_off: list[Unavailable] = []

        async def guarded(item: _Item) -> bool:
            async with self._slots:
                if cut_off:
                    return False
                try:
                    await action(item)
                except ApiError as error:
                    return self._report(error)
                except Unavailable as error:
                    cut_off.append(error)
                    return False
                return True

        done = sum(await asyncio.gather(*(guarded(item) for item in items)))
        if cut_off:
            raise cut_off[0]
        return done

    def _report(self, error: ApiError) -> bool:
        """One object's trouble is not the others'; a later pass tries again."""
        if error.retryable:
            self._bucket.throttled(error.retry_after_s or _THROTTLE_S)
        if error.status not in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
            logger.warning("a QueueWorker could not be written: %s", error)
        return False

    async def _tell(
        self, first: Mapping[Key, StatusWrite], work: tuple[WorkerSession, SessionOrder]
    ) -> None:
        session, order = work
        key = (session.namespace, object_name(session.worker_name))
        if key in first:
            await self._write(first[key])
        if order.ended and not await self._is_absent(session):
            return
        try:
            await self._backend.order_session(session.session_id, order)
        except InvalidArgument as error:
            self._refuse(session, order, error)

    def _refuse(self, session: WorkerSession, order: SessionOrder, error: InvalidArgument) -> None:
        """It asks for what the definition lets in, and no store holds. Told once."""
        key = (session.namespace, object_name(session.worker_name))
        if self._refused.get(key) != order:
            self._refused[key] = order
            logger.warning(
                "the spec of the QueueWorker %s/%s is not taken: %s: %s; correct it",
                *key,
                error.field.removeprefix("order."),
                error.reason,
            )

    async def _is_absent(self, session: WorkerSession) -> bool:
        """What is known of the objects may be old, and a session that is ended stays ended."""
        return not await self._read(session.namespace, object_name(session.worker_name))

    async def _read(self, namespace: str, name: str) -> bool:
        try:
            body = await self._kube.get(object_path(QUEUE_WORKER.plural, namespace, name))
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return False
            raise
        self.see(body, gone=False)
        return "deletionTimestamp" not in body["metadata"]

    async def _delete(self, item: Existing) -> None:
        await self._bucket.take()
        if session_id := item.status.get("sessionId"):
            # Should it show itself once more, that is a new session, and not one whose object
            # somebody has deleted. Before its object goes: this may be cut off in between.
            await self._backend.close_sessions([session_id])
        path = object_path(QUEUE_WORKER.plural, item.namespace, item.name)
        # A worker may have come back meanwhile, and another replica have given it this object.
        if not await self._kube.delete(path, item.uid, item.version):
            await self._read(item.namespace, item.name)
            return
        self._forget(item)
        self._stats.workers_deleted += 1

    async def _create(self, session: WorkerSession) -> None:
        await self._bucket.take()
        try:
            body = await self._kube.create(
                collection_path(QUEUE_WORKER.plural, session.namespace), manifest(session)
            )
        except ApiError as error:
            if error.status == HTTPStatus.CONFLICT:
                await self._read(session.namespace, object_name(session.worker_name))
            raise
        self.see(body, gone=False)
        self._stats.workers_created += 1

    async def _write(self, work: StatusWrite) -> None:
        item, status = work
        path = object_path(QUEUE_WORKER.plural, item.namespace, item.name)
        await self._bucket.take()
        try:
            body = await self._kube.replace_status(path, item.uid, status)
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                self._forget(item)
            raise
        self._bucket.succeeded()
        self._written_s[item.key] = self._clock.monotonic()
        self._stats.worker_status_written += 1
        known = self._objects.get(item.key)
        if known is not None and known.uid == item.uid:
            written = Existing.of(body)
            self._objects[item.key] = written if written.generation >= known.generation else known
