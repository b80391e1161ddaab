"""One queue per namespace: a Lease in each says whose custom resources they are.

Two operators with databases of their own would each run every QueueJob once. The holder of the
Lease is the database and not a process: all replicas on one database may serve a namespace at once.
"""

import asyncio
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final

from queue_operator.controller.kube import ApiError, KubeClient
from queue_operator.controller.ports import ControllerStats
from queue_operator.domain.clock import Clock
from queue_operator.domain.errors import QueueError, Unavailable

logger = logging.getLogger(__name__)

LEASE: Final = "queueoperator.dev"
"""The name of the Lease in each namespace."""
GUIDE: Final = "docs/guides/install.md#two-operators-in-one-cluster"

DURATION_S: Final = 180.0
"""So long after its last renewal a Lease may be taken by another queue that names the namespace."""
RENEW_S: Final = 60.0
SURE_S: Final = 150.0
"""So long after its last renewal a Lease counts as held here: others must not be first."""
IDLE_S: Final = 600.0
"""A Lease that nobody asked for is not renewed any more, unless the comparison, which asks for all,
comes more rarely.
"""
FAILING_S: Final = 10.0
"""After so long a Lease that the API server cannot take, while it takes others, holds up nobody."""
REMIND_S: Final = 600.0
_CONCURRENT: Final = 16
_TRIES: Final = 3
_COLLECTION: Final = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"
_TERMINATING: Final = "being terminated"


class NamespaceTaken(QueueError):
    """Another operator serves it, or nobody can say who does."""

    code = "NAMESPACE_TAKEN"


@dataclass(slots=True)
class _Held:
    renewed_s: float
    used_s: float


@dataclass(slots=True)
class _Failing:
    """Its Lease could not be written, from `since_s` to `last_s`."""

    since_s: float
    last_s: float


@dataclass(slots=True)
class _Refused:
    """`seen` is what the other's Lease looked like, for the first time at `since_s`: clocks of two
    machines are not compared.
    """

    why: str
    seen: str
    since_s: float
    told_s: float
    used_s: float


class Ownership:
    """Times are seconds of one monotonic clock."""

    def __init__(
        self,
        kube: KubeClient,
        queue_uid: str,
        namespaces: Collection[str],
        clock: Clock,
        stats: ControllerStats,
        *,
        resync_s: float,
    ) -> None:
        self._kube = kube
        self._queue_uid = queue_uid
        self._idle_s = max(IDLE_S, 2 * resync_s)
        self._fixed = frozenset(namespaces)
        self._clock = clock
        self._stats = stats
        self._held: dict[str, _Held] = {}
        self._refused: dict[str, _Refused] = {}
        self._absent_s: dict[str, float] = {}
        self._failing: dict[str, _Failing] = {}
        self._answered_s = float("-inf")
        self._slots = asyncio.Semaphore(_CONCURRENT)

    async def run(self) -> None:
        """Renews what is held, and tries again what was refused."""
        while True:
            try:
                await self.once()
            except Unavailable as error:
                logger.warning("namespaces are claimed again later: %s", error)
            await self._clock.sleep(RENEW_S)

    async def once(self) -> None:
        """Raises Unavailable when the API server cannot be reached."""
        now = self._clock.monotonic()
        for kept in (self._held, self._refused):
            for name in [name for name, one in kept.items() if self._is_idle(name, one, now)]:
                del kept[name]
        self._count()
        gone_before = now - RENEW_S
        self._absent_s = {name: at for name, at in self._absent_s.items() if at > gone_before}
        failed_before = now - 2 * RENEW_S
        self._failing = {n: one for n, one in self._failing.items() if one.last_s > failed_before}
        await self._claim({*self._fixed, *self._held, *self._refused})

    def _is_idle(self, namespace: str, one: _Held | _Refused, now: float) -> bool:
        return namespace not in self._fixed and now - one.used_s > self._idle_s

    def owns(self, namespace: str) -> bool:
        held = self._held.get(namespace)
        return held is not None and self._clock.monotonic() - held.renewed_s < SURE_S

    def is_anothers(self, namespace: str) -> bool:
        """Whether another queue was seen to have it. Without a right to look, nobody was."""
        refused = self._refused.get(namespace)
        return refused is not None and refused.seen != ""

    async def serve(self, namespaces: Collection[str]) -> frozenset[str]:
        """Those of the namespaces that are this queue's, claimed now where nobody has them. Raises
        Unavailable when the API server cannot be reached.
        """
        now = self._clock.monotonic()
        for name in namespaces:
            for kept in (self._held, self._refused):
                if name in kept:
                    kept[name].used_s = now
        await self._claim({name for name in namespaces if self._is_worth_a_try(name, now)})
        return frozenset(name for name in namespaces if self.owns(name))

    def _is_worth_a_try(self, namespace: str, now: float) -> bool:
        """Workers may have namespaces that the cluster does not know."""
        absent = now - self._absent_s.get(namespace, -RENEW_S) < RENEW_S
        return not (absent or namespace in self._refused or self.owns(namespace))

    async def _claim(self, namespaces: Collection[str]) -> None:
        async def claim(namespace: str) -> None:
            async with self._slots:
                await self._claim_one(namespace)

        claims = [asyncio.create_task(claim(name)) for name in sorted(namespaces)]
        found = await asyncio.gather(*claims, return_exceptions=True)
        self._count()
        for error in found:
            if isinstance(error, BaseException):
                raise error

    async def _claim_one(self, namespace: str) -> None:
        for _ in range(_TRIES):
            asked_s = self._clock.monotonic()
            try:
                lease = await self._find(namespace)
                if lease is not None and (other := self._other(namespace, lease)):
                    self._answered(namespace)
                    self._refuse(namespace, other, lease["metadata"]["resourceVersion"])
                    return
                await self._write(namespace, lease)
            except ApiError as error:
                if error.status == HTTPStatus.CONFLICT:
                    continue
                self._failed(namespace, error)
                return
            self._answered(namespace)
            self._hold(namespace, asked_s)
            return

    async def _find(self, namespace: str) -> Mapping[str, Any] | None:
        try:
            found: Mapping[str, Any] = await self._kube.get(
                f"{_COLLECTION.format(namespace)}/{LEASE}"
            )
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise
        return found

    def _other(self, namespace: str, lease: Mapping[str, Any]) -> str:
        """Who else has it, empty when it may be taken. Whoever serves all namespaces does not know
        that this one is meant for it: the other may only be down, and will be back.
        """
        spec = lease.get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        if holder in ("", self._queue_uid):
            return ""
        version, now = lease["metadata"]["resourceVersion"], self._clock.monotonic()
        known = self._refused.get(namespace)
        since_s = known.since_s if known and known.seen == version else now
        lapsed = now - since_s > (spec.get("leaseDurationSeconds") or DURATION_S)
        return "" if lapsed and namespace in self._fixed else str(holder)

    async def _write(self, namespace: str, lease: Mapping[str, Any] | None) -> None:
        path = _COLLECTION.format(namespace)
        spec = {
            "holderIdentity": self._queue_uid,
            "leaseDurationSeconds": int(DURATION_S),
            "renewTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        }
        metadata = {"name": LEASE, "namespace": namespace}
        if lease is None:
            await self._kube.create(path, _lease(metadata, spec))
            return
        version = {"resourceVersion": lease["metadata"]["resourceVersion"]}
        await self._kube.replace(f"{path}/{LEASE}", _lease(metadata | version, spec))

    def _hold(self, namespace: str, asked_s: float) -> None:
        # Not from the answer on: nobody knows how long that was under way.
        if self._refused.pop(namespace, None):
            logger.info("custom resources of namespace %s are served from now on", namespace)
        known = self._held.get(namespace)
        self._held[namespace] = _Held(asked_s, known.used_s if known else asked_s)

    def _refuse(self, namespace: str, holder: str, version: str) -> None:
        why = (
            f"the operator of another database (queue {holder}) serves it, and both would run each "
            f"of its QueueJobs; part the two as {GUIDE} says, or delete the Lease {LEASE} of the "
            "namespace if that one is gone for good"
        )
        self._tell(namespace, why, version)

    def _answered(self, namespace: str) -> None:
        self._failing.pop(namespace, None)
        self._answered_s = self._clock.monotonic()

    def _fails_alone(self, namespace: str) -> bool:
        """One namespace may have a webhook that is down: the others do not wait for it."""
        now = self._clock.monotonic()
        failing = self._failing.setdefault(namespace, _Failing(now, now))
        failing.last_s = now
        has_time = self.owns(namespace) or now - failing.since_s < FAILING_S
        return not has_time and self._answered_s > failing.since_s

    def _failed(self, namespace: str, error: ApiError) -> None:
        if error.retryable and not self._fails_alone(namespace):
            raise Unavailable(str(error)) from error
        if error.retryable:
            why = (
                f"{error}; mend what keeps the Lease {LEASE} there from being written, such as a "
                "webhook; it is tried again each minute"
            )
            self._tell(namespace, why, "")
            return
        self._answered(namespace)
        if error.status == HTTPStatus.NOT_FOUND or _TERMINATING in error.message:
            self._held.pop(namespace, None)
            self._absent_s[namespace] = self._clock.monotonic()
            return
        self._tell(
            namespace,
            f"cannot keep the Lease {LEASE} there that says whose it is: {error.message}; grant "
            "`get`, `create` and `update` on leases.coordination.k8s.io to the operator",
            "",
        )

    def _tell(self, namespace: str, why: str, version: str) -> None:
        now = self._clock.monotonic()
        self._held.pop(namespace, None)
        known = self._refused.get(namespace)
        if known is None or known.why != why or now - known.told_s > REMIND_S:
            logger.error("namespace %s is left alone: %s", namespace, why)
            told_s = now
        else:
            told_s = known.told_s
        since_s = known.since_s if known and known.seen == version else now
        used_s = known.used_s if known else now
        self._refused[namespace] = _Refused(why, version, since_s, told_s, used_s)

    def _count(self) -> None:
        self._stats.refused_namespaces.value = len(self._refused)
        self._stats.figures.owned_namespaces = len(self._held)


def _lease(metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": metadata,
        "spec": spec,
    }
