"""The controller's loops on a real PostgreSQL, before an API server that counts."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from aiohttp.test_utils import TestServer
from tests.conftest import migrated_database
from tests.integration.controller.apiserver import ApiServer, credentials
from tests.unit.queue.conftest import ManualClock

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.backends.protocol import Usage
from queue_operator.controller.deferred import Deferred
from queue_operator.controller.intake import Intake, IntakeRules
from queue_operator.controller.kube import KubeClient
from queue_operator.controller.pacing import MonotonicClock
from queue_operator.controller.ports import ControllerStats
from queue_operator.controller.projection import StatusWriter
from queue_operator.controller.readmission import Readmission
from queue_operator.controller.resync import Resync
from queue_operator.controller.sightings import Sightings
from queue_operator.domain.validation import DEFAULT_LIMITS
from queue_operator.queue.quotas import Quotas
from queue_operator.settings import ControllerSettings, QuotaSettings

DEADLINE_S = 20.0
WRITES_PER_S = 10_000.0


@pytest.fixture(scope="module")
def module_dsn(postgres_admin_dsn: str) -> Iterator[str]:
    with migrated_database(postgres_admin_dsn, "controller") as address:
        yield address


@pytest.fixture
def team() -> str:
    """A namespace of the test's own."""
    return f"team-{uuid.uuid4().hex[:8]}"


class Counting(PostgresBackend):
    """Counts what quotas ask of it."""

    usage_looks = 0
    uid_looks = 0

    async def usage_of(self, namespaces: Collection[str]) -> dict[str, Usage]:
        self.usage_looks += 1
        return await super().usage_of(namespaces)

    async def taken_in(self, uids: Collection[str]) -> set[str]:
        self.uid_looks += 1
        return await super().taken_in(uids)


@dataclass
class Stage:
    """One controller, but for kopf: the test shows it events."""

    api: ApiServer
    backend: Counting
    clock: ManualClock
    deferred: Deferred
    intake: Intake
    readmission: Readmission
    resync: Resync
    stats: ControllerStats
    writer: StatusWriter

    async def until(self, holds: Callable[[], bool]) -> None:
        """Asks again and again, each time after a trip to the database."""
        async with asyncio.timeout(DEADLINE_S):
            while not holds():
                await self.backend.ping()

    async def see(self, *bodies: dict[str, Any], gone: bool = False) -> None:
        """Returns when what was shown has been dealt with."""
        for body in bodies:
            await self.intake.see(body, gone=gone)
        await self.intake.caught_up()

    async def stored(self, *namespaces: str) -> int:
        """How many jobs wait."""
        used = await PostgresBackend.usage_of(self.backend, namespaces)
        return sum(one.pending for one in used.values())

    async def take(self, namespace: str, count: int) -> None:
        """A worker takes so many jobs, which then wait no more."""
        assert len(await self.backend.dequeue_jobs("w", [], count, namespace=namespace)) == count

    async def later(self, seconds: float = 1.0) -> None:
        """What has become due after a while is tried again."""
        self.clock.now_s += seconds
        await self.readmission.once()


StartStage = Callable[..., Awaitable[Stage]]


@pytest.fixture
async def api() -> AsyncIterator[tuple[ApiServer, str]]:
    server = ApiServer()
    async with TestServer(server.app) as running:
        yield server, str(running.make_url(""))


@pytest.fixture
async def start(module_dsn: str, api: tuple[ApiServer, str]) -> AsyncIterator[StartStage]:
    """Starts a controller, as a restart of the operator would."""
    server, url = api
    # The module's database is for all its tests.
    cluster_uid = uuid.uuid4().hex
    async with AsyncExitStack() as stack:

        async def begin(quotas: QuotaSettings) -> Stage:
            backend = await Counting.open(module_dsn)
            stack.push_async_callback(backend.close)
            kube = await stack.enter_async_context(KubeClient(credentials(url)))
            stage = _assemble(server, backend, kube, quotas, cluster_uid)
            for loop in (stage.intake.run(), stage.writer.run()):
                task = asyncio.create_task(loop)
                stack.callback(task.cancel)
            return stage

        yield begin


def _assemble(
    server: ApiServer,
    backend: Counting,
    kube: KubeClient,
    settings: QuotaSettings,
    cluster_uid: str,
) -> Stage:
    clock, stats = ManualClock(), ControllerStats()
    sightings, deferred = Sightings(), Deferred()
    quotas = Quotas(backend, settings, clock)
    writer = StatusWriter(
        backend,
        kube,
        sightings,
        cluster_uid=cluster_uid,
        namespaces=(),
        rate_per_s=WRITES_PER_S,
        clock=MonotonicClock(),
        stats=stats,
    )
    rules = IntakeRules(cluster_uid, DEFAULT_LIMITS, 100)
    intake = Intake(
        backend,
        kube,
        writer,
        sightings,
        rules,
        quotas,
        deferred,
        ControllerSettings(),
        clock,
        stats,
    )
    resync = Resync(
        backend,
        kube,
        intake,
        writer,
        sightings,
        deferred,
        cluster_uid=cluster_uid,
        namespaces=(),
        clock=clock,
        stats=stats,
    )
    readmission = Readmission(deferred, quotas, intake, kube, clock)
    return Stage(server, backend, clock, deferred, intake, readmission, resync, stats, writer)
