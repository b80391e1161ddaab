"""QueueWorkers out of sessions: a pure plan of what to do."""

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from pydantic import ValidationError

from queue_operator.backends.protocol import SessionOrder, WorkerSession
from queue_operator.crd.names import API_VERSION, FIELD_MANAGER, QUEUE_WORKER
from queue_operator.crd.v1alpha1 import (
    MAX_COLUMN,
    MAX_MESSAGE,
    Condition,
    ConditionStatus,
    ConditionType,
    Declared,
    Effective,
    QueueWorkerSpec,
    QueueWorkerStatus,
)

Key = tuple[str, str]

MANAGED_LABEL: Final = "app.kubernetes.io/managed-by"
SLOW_FIELDS: Final = frozenset({"busy", "heartbeatTime"})
"""Not worth a write each time that they change."""

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
    version: str = ""

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
            version=metadata.get("resourceVersion", ""),
        )

    @property
    def key(self) -> Key:
        return self.namespace, self.name


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do, in this order. A worker created now gets its status in the next pass. `first` are
    statuses to be written before the order of the same worker's session is told.
    """

    first: Mapping[Key, "StatusWrite"] = field(default_factory=dict)
    order: tuple[tuple[WorkerSession, SessionOrder], ...] = ()
    delete: tuple[Existing, ...] = ()
    create: tuple[WorkerSession, ...] = ()
    write: tuple["StatusWrite", ...] = ()


StatusWrite = tuple[Existing, Mapping[str, Any]]


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
    settled: Collection[Key] = frozenset(),
) -> Plan:
    """`fresh`: workers written so recently that heartbeats may wait. `settled`: those of which it
    is known that their statuses say what there is to say.
    """
    wanted = newest_sessions(sessions)
    found = {item.key: item for item in existing}
    left = {key for key, item in found.items() if _is_left_over(item, wanted.get(key))}
    kept = {key: item for key, item in found.items() if key not in left}
    writes = [
        (item, status)
        for key, item in kept.items()
        if key not in settled
        and _differs(item.status, status := _status(item, wanted.get(key), now), key in fresh)
    ]
    # Somebody deleted the object of one that had one.
    ended = {key for key, session in wanted.items() if session.shown and key not in found}
    there = kept.keys() | ended
    create = [session for key, session in wanted.items() if key not in there]
    # Before its object names a session, whoever takes that for left over may still delete it.
    named = {key for key in kept.keys() & wanted if _names(kept[key], wanted[key])}
    first = {
        item.key: (item, status)
        for item, status in writes
        if item.key in wanted and item.key not in named and _order(item) != SessionOrder()
    }
    writes = [one for one in writes if one[0].key not in first]
    orders = [
        (session, _order(kept.get(key)))
        for key, session in wanted.items()
        if key in ended or key in named or key in first
    ]
    news = [(told, order) for told, order in orders if not told.shown or told.order != order]
    deleted = [found[key] for key in found if key in left]
    return Plan(first, tuple(news), tuple(deleted), tuple(create), tuple(writes))


def lasting(item: Existing, session: WorkerSession | None) -> tuple[object, ...]:
    """All that a status is made of, but for what is not worth a write. Cheap: it is asked of every
    worker, time and again.
    """
    if session is None:
        return (item.version,)
    return (
        item.version,
        session.session_id,
        session.pod_uid,
        session.host,
        session.tags,
        session.types,
        session.capacity,
        session.draining,
        session.version,
        session.order,
        session.order_number,
        session.followed,
    )


def _names(item: Existing, session: WorkerSession) -> bool:
    return item.status.get("sessionId") == session.session_id


def _order(item: Existing | None) -> SessionOrder:
    """What the object asks of its session; without one, to be gone."""
    if item is None:
        return SessionOrder(ended=True)
    spec, _ = _spec(item)
    tags = None if spec.tags is None else frozenset(spec.tags)
    return SessionOrder(capacity=spec.capacity, tags=tags, drain=spec.drain)


def _spec(item: Existing) -> tuple[QueueWorkerSpec, str]:
    """What can be taken of the spec, and what is wrong with the rest: the definition in the cluster
    may be of another release, or was when the object was stored.
    """
    try:
        return QueueWorkerSpec.model_validate(item.spec), ""
    except ValidationError as error:
        faults = {str(one["loc"][0]): one["msg"] for one in error.errors()}
    good = {name: value for name, value in item.spec.items() if name not in faults}
    told = "; ".join(f"spec.{name}: {why}" for name, why in sorted(faults.items()))
    return QueueWorkerSpec.model_validate(good), told


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
        types_text=_column(types, anything="*"),
        tags_text=_column(sorted(tags), anything="-"),
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
    if session.draining:
        words = ("Draining", "Finishes what it holds, takes no more jobs")
        return _condition(item, ConditionType.READY, ConditionStatus.FALSE, words, now)
    words = ("Connected", "A session is open")
    return _condition(item, ConditionType.READY, ConditionStatus.TRUE, words, now)


def _column(names: Sequence[str], anything: str) -> str:
    """As many of the names as a column has room for, and how many more there are."""
    shown, rest = ",".join(names), ""
    kept = len(names)
    while kept and len(shown + rest) > MAX_COLUMN:
        kept -= 1
        shown, rest = ",".join(names[:kept]), f",+{len(names) - kept}"
    return shown + rest if kept else anything if not names else f"{len(names)}"


def _spec_applied(item: Existing, session: WorkerSession, now: datetime) -> list[Condition]:
    """Says so when the spec asks for what the session does not do; nothing without a spec."""
    order, (capacity, tags) = _order(item), _in_effect(session)
    actual = {"capacity": capacity, "tags": tags, "drain": session.draining}
    asked = {"capacity": order.capacity, "tags": order.tags, "drain": order.drain}
    given = {name: value for name, value in asked.items() if value is not None}
    ignored = [name for name, value in given.items() if actual[name] != value]
    _, wrong = _spec(item)
    if wrong:
        text = f"not in effect where it is wrong; correct that or take it away: {wrong}"
        words = ("Invalid", text[:MAX_MESSAGE])
        return [_condition(item, ConditionType.SPEC_APPLIED, ConditionStatus.FALSE, words, now)]
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
