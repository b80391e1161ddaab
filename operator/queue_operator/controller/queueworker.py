"""QueueWorkers out of sessions: a pure plan, and the loop that carries it out."""

import asyncio
import hashlib
import logging
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final

from queue_operator.backends.protocol import SessionOrder, WorkerSession
from queue_operator.controller.kube import ApiError, KubeClient, collection_path, object_path
from queue_operator.controller.ports import ControllerBackend, ControllerStats
from queue_operator.controller.waiting import wait_for_event
from queue_operator.crd.names import API_VERSION, FIELD_MANAGER, QUEUE_WORKER
from queue_operator.crd.v1alpha1 import (
    Condition,
    ConditionStatus,
    ConditionType,
    Declared,
    Effective,
    QueueWorkerSpec,
    QueueWorkerStatus,
)
from queue_operator.domain.clock import Clock
from queue_operator.domain.errors import Unavailable

logger = logging.getLogger(__name__)

Key = tuple[str, str]

MANAGED_LABEL: Final = "app.kubernetes.io/managed-by"
SESSION_SILENCE_S: Final = 60.0
"""A session silent for longer belongs to a replica that died."""

SLOW_FIELDS: Final = frozenset({"busy", "heartbeatTime"})
SLOW_INTERVAL_S: Final = 10.0
"""Heartbeats and busy slots are written at most this often."""

_POLL_S: Final = 5.0
_PAUSE_S: Final = 1.0
_CONCURRENT: Final = 16
_MAX_NAME: Final = 253
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


@dataclass(frozen=True, slots=True)
class Existing:
    """A QueueWorker as the API server has it."""

    namespace: str
    name: str
    uid: str
    generation: int
    owner_uid: str
    managed: bool
    spec: Mapping[str, Any]
    status: Mapping[str, Any]

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> "Existing":
        metadata = body["metadata"]
        owners = metadata.get("ownerReferences") or [{}]
        return cls(
            namespace=metadata["namespace"],
            name=metadata["name"],
            uid=metadata["uid"],
            generation=metadata.get("generation", 1),
            owner_uid=owners[0].get("uid", ""),
            managed=(metadata.get("labels") or {}).get(MANAGED_LABEL) == FIELD_MANAGER,
            spec=body.get("spec") or {},
            status=body.get("status") or {},
        )

    @property
    def key(self) -> Key:
        return self.namespace, self.name


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do, in this order. A worker created now gets its status in the next pass."""

    order: tuple[tuple[WorkerSession, SessionOrder], ...] = ()
    delete: tuple[Existing, ...] = ()
    create: tuple[WorkerSession, ...] = ()
    write: tuple[tuple[Existing, Mapping[str, Any]], ...] = ()


def object_name(worker_name: str) -> str:
    """The worker's name if an object can have it, else a likeness of it with a hash."""
    if len(worker_name) <= _MAX_NAME and _NAME.fullmatch(worker_name):
        return worker_name
    digest = hashlib.sha256(worker_name.encode()).hexdigest()[:10]
    likeness = re.sub(r"[^a-z0-9]+", "-", worker_name.lower()).strip("-")[:200].strip("-")
    return f"{likeness or 'worker'}-{digest}"


def newest_sessions(sessions: Iterable[WorkerSession]) -> dict[Key, WorkerSession]:
    """One session per worker: a restarted container may have left an older one."""
    epoch = datetime.fromtimestamp(0, UTC)
    ordered = sorted(sessions, key=lambda session: session.connected_at or epoch)
    return {(session.namespace, object_name(session.worker_name)): session for session in ordered}


def make_plan(
    sessions: Iterable[WorkerSession],
    existing: Iterable[Existing],
    fresh: Collection[Key],
    now: datetime,
) -> Plan:
    """`fresh`: workers written so recently that heartbeats may wait."""
    wanted = newest_sessions(sessions)
    found = {item.key: item for item in existing}
    delete = [item for item in found.values() if _is_left_over(item, wanted.get(item.key))]
    kept = {key: item for key, item in found.items() if item not in delete}
    writes = [
        (item, status)
        for key, item in kept.items()
        if _differs(item.status, status := _status(item, wanted.get(key), now), key in fresh)
    ]
    # Somebody deleted the object of one that had one.
    ended = {key for key, session in wanted.items() if session.shown and key not in found}
    create = [session for key, session in wanted.items() if key not in {*kept, *ended}]
    orders = [
        (session, _order(kept.get(key)))
        for key, session in wanted.items()
        if key in {*kept, *ended}
    ]
    news = [(told, order) for told, order in orders if not told.shown or told.order != order]
    return Plan(tuple(news), tuple(delete), tuple(create), tuple(writes))


def _order(item: Existing | None) -> SessionOrder:
    """What the object asks of its session; without one, to be gone."""
    if item is None:
        return SessionOrder(ended=True)
    spec = QueueWorkerSpec.model_validate(item.spec)
    tags = None if spec.tags is None else frozenset(spec.tags)
    return SessionOrder(capacity=spec.capacity, tags=tags, drain=spec.drain)


def _is_left_over(item: Existing, session: WorkerSession | None) -> bool:
    """Only objects that were made here are deleted; with an owner the collector does it."""
    if not item.managed:
        return False
    if session is None:
        return not item.owner_uid
    return item.owner_uid != session.pod_uid


def _differs(old: Mapping[str, Any], new: Mapping[str, Any], fresh: bool) -> bool:
    ignored = SLOW_FIELDS if fresh else frozenset[str]()
    return any(old.get(key) != new.get(key) for key in {*old, *new} if key not in ignored)


def _status(item: Existing, session: WorkerSession | None, now: datetime) -> dict[str, Any]:
    if session is None:
        return _disconnected(item, now)
    types = sorted(session.types)
    declared = {"capacity": session.capacity, "tags": sorted(session.tags), "types": types}
    capacity, tags = _in_effect(session)
    conditions = [_ready(item, session, now), *_spec_applied(item, session, now)]
    status = QueueWorkerStatus(
        declared=Declared.model_validate(declared),
        effective=Effective.model_validate(
            {"capacity": capacity, "tags": sorted(tags), "types": types}
        ),
        slots=capacity,
        busy=session.busy,
        draining=session.draining,
        session_id=session.session_id,
        host=session.host or None,
        pod_uid=session.pod_uid or None,
        heartbeat_time=_whole(session.heartbeat_at or session.connected_at),
        version=session.version or None,
        observed_generation=item.generation,
        conditions=conditions,
    )
    return status.model_dump(mode="json", by_alias=True, exclude_none=True)


def _in_effect(session: WorkerSession) -> tuple[int, frozenset[str]]:
    """Capacity and tags of the open stream: as ordered, once it follows the order."""
    order = session.order if session.followed == session.order_number else SessionOrder()
    capacity = session.capacity if order.capacity is None else order.capacity
    return capacity, session.tags if order.tags is None else order.tags


def _disconnected(item: Existing, now: datetime) -> dict[str, Any]:
    gone = _condition(
        item,
        ConditionType.READY,
        ConditionStatus.FALSE,
        ("Disconnected", "No session is open; its jobs go to others when their leases end"),
        now,
    )
    dumped = gone.model_dump(mode="json", by_alias=True, exclude_none=True)
    return {**item.status, "busy": 0, "observedGeneration": item.generation, "conditions": [dumped]}


def _ready(item: Existing, session: WorkerSession, now: datetime) -> Condition:
    words = (
        ("Draining", "Finishes what it holds, takes no more jobs")
        if session.draining
        else ("Connected", "A session is open")
    )
    return _condition(item, ConditionType.READY, ConditionStatus.TRUE, words, now)


def _spec_applied(item: Existing, session: WorkerSession, now: datetime) -> list[Condition]:
    """Says so when the spec asks for what the session does not do; nothing without a spec."""
    order, (capacity, tags) = _order(item), _in_effect(session)
    actual = {"capacity": capacity, "tags": tags, "drain": session.draining}
    asked = {"capacity": order.capacity, "tags": order.tags, "drain": order.drain}
    given = {name: value for name, value in asked.items() if value is not None}
    ignored = [name for name, value in given.items() if actual[name] != value]
    if not given:
        return []
    if ignored:
        words = ("NotInEffect", f"not in effect on the session: {', '.join(ignored)}")
        return [_condition(item, ConditionType.SPEC_APPLIED, ConditionStatus.FALSE, words, now)]
    words = ("InEffect", "The session does what the spec asks")
    return [_condition(item, ConditionType.SPEC_APPLIED, ConditionStatus.TRUE, words, now)]


def _condition(
    item: Existing,
    kind: ConditionType,
    status: ConditionStatus,
    words: tuple[str, str],
    now: datetime,
) -> Condition:
    reason, message = words
    before = [c for c in item.status.get("conditions") or () if c.get("type") == kind]
    same = bool(before) and before[0].get("status") == status
    return Condition(
        type=kind,
        status=status,
        reason=reason,
        message=message,
        last_transition_time=before[0]["lastTransitionTime"] if same else _whole(now),
        observed_generation=item.generation,
    )


def _whole(at: datetime | None) -> datetime | None:
    return at.astimezone(UTC).replace(microsecond=0) if at else None


def manifest(session: WorkerSession) -> dict[str, Any]:
    """The object for a session, owned by its pod if it runs in one."""
    metadata: dict[str, Any] = {
        "name": object_name(session.worker_name),
        "namespace": session.namespace,
        "labels": {MANAGED_LABEL: FIELD_MANAGER},
    }
    if session.pod_uid:
        metadata["ownerReferences"] = [
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": session.worker_name,
                "uid": session.pod_uid,
            }
        ]
    return {
        "apiVersion": API_VERSION,
        "kind": QUEUE_WORKER.kind,
        "metadata": metadata,
        "spec": {},
    }


class WorkerMirror:
    """Compares sessions and QueueWorkers on every announcement and every five seconds."""

    def __init__(
        self,
        backend: ControllerBackend,
        kube: KubeClient,
        *,
        namespaces: Collection[str],
        clock: Clock,
        stats: ControllerStats,
    ) -> None:
        self._backend = backend
        self._kube = kube
        self._namespaces = frozenset(namespaces)
        self._clock = clock
        self._stats = stats
        self._changed = asyncio.Event()
        self._written_at: dict[Key, float] = {}
        self._slots = asyncio.Semaphore(_CONCURRENT)

    def notice(self) -> None:
        """Sessions came or went."""
        self._changed.set()

    async def run(self) -> None:
        while True:
            try:
                if await self.once():
                    # What was created has no status yet.
                    self._changed.set()
            except (ApiError, Unavailable) as error:
                logger.warning("QueueWorkers are compared again later: %s", error)
            await self._clock.sleep(_PAUSE_S)
            await wait_for_event(self._changed, _POLL_S - _PAUSE_S)

    async def once(self) -> bool:
        """One pass; True when objects were created."""
        sessions = await self._backend.list_sessions(max_age_s=SESSION_SILENCE_S)
        existing = await self._list()
        served = [s for s in sessions if not self._namespaces or s.namespace in self._namespaces]
        plan = make_plan(served, existing, self._fresh(), datetime.now(UTC))
        await self._each(plan.order, self._tell)
        await self._each(plan.delete, self._delete)
        created = await self._each(plan.create, self._create)
        await self._each(plan.write, self._write)
        return any(created)

    async def _list(self) -> list[Existing]:
        return [
            Existing.of(body)
            for namespace in self._namespaces or (None,)
            async for page in self._kube.pages(collection_path(QUEUE_WORKER.plural, namespace))
            for body in page
            if "deletionTimestamp" not in body["metadata"]
        ]

    def _fresh(self) -> frozenset[Key]:
        since = self._clock.monotonic() - SLOW_INTERVAL_S
        self._written_at = {key: at for key, at in self._written_at.items() if at > since}
        return frozenset(self._written_at)

    async def _each(self, items: Sequence[Any], action: Any) -> list[bool]:
        async def guarded(item: Any) -> bool:
            async with self._slots:
                try:
                    await action(item)
                except ApiError as error:
                    return self._report(error)
                return True

        return list(await asyncio.gather(*(guarded(item) for item in items)))

    def _report(self, error: ApiError) -> bool:
        """One object's trouble is not the others'; the next pass tries again."""
        if error.status not in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
            logger.warning("a QueueWorker could not be written: %s", error)
        return False

    async def _tell(self, work: tuple[WorkerSession, SessionOrder]) -> None:
        session, order = work
        await self._backend.order_session(session.session_id, order)

    async def _delete(self, item: Existing) -> None:
        await self._kube.delete(
            object_path(QUEUE_WORKER.plural, item.namespace, item.name), item.uid
        )
        self._stats.workers_deleted += 1
        if session_id := item.status.get("sessionId"):
            # Should it show itself once more, that is a new session, and not one whose object
            # somebody has deleted.
            await self._backend.close_sessions([session_id])

    async def _create(self, session: WorkerSession) -> None:
        await self._kube.create(
            collection_path(QUEUE_WORKER.plural, session.namespace), manifest(session)
        )
        self._stats.workers_created += 1

    async def _write(self, work: tuple[Existing, Mapping[str, Any]]) -> None:
        item, status = work
        path = object_path(QUEUE_WORKER.plural, item.namespace, item.name)
        await self._kube.replace_status(path, item.uid, status)
        self._written_at[item.key] = self._clock.monotonic()
        self._stats.worker_status_written += 1
