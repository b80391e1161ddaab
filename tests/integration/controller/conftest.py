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
from tests.waiting import DEADLINE_S

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.backends.protocol import Usage
from queue_operator.controller.catching_up import CatchUp
from queue_operator.controller.deferred import Deferred
from queue_operator.controller.intake import Intake
from queue_operator.controller.kube import KubeClient
from queue_operator.controller.ownership import Ownership
from queue_operator.controller.pacing import MonotonicClock
from queue_operator.controller.ports import ControllerStats
from queue_operator.controller.projection import StatusWriter
from queue_operator.controller.readmission import Readmission
from queue_operator.controller.resync import Resync
from queue_operator.controller.sighting import IntakeRules
from queue_operator.controller.sightings import Sightings
from queue_operator.controller.workermirror import WorkerMirror
from queue_operator.domain.shown import ShownJob
from queue_operator.domain.validation import DEFAULT_LIMITS, Limits
from queue_operator.queue.quotas import Quotas
from queue_operator.settings import ControllerSettings, QuotaSettings

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
    """Counts what is asked of it."""

    usage_looks = 0
    uid_looks = 0
    shown_looks = 0

    async def usage_of(self, namespaces: Collection[str]) -> dict[str, Usage]:
        self.usage_looks += 1
        return await super().usage_of(namespaces)

    async def taken_in(self, uids: Collection[str]) -> set[str]:
        self.uid_looks += 1
        return await super().taken_in(uids)

    async def shown_jobs(
        self, names: Collection[tuple[str, str]]
    ) -> dict[tuple[str, str], ShownJob]:
        self.shown_looks += 1
        return await super().shown_jobs(names)


@dataclass
class Stage:
    """One controller, but for kopf: the test shows it events."""

    api: ApiServer
    backend: Counting
    catch_up: CatchUp
    clock: ManualClock
    deferred: Deferred
    intake: Intake
    kube: KubeClient
    ownership: Ownership
    readmission: Readmission
    resync: Resync
    stats: ControllerStats
    workers: WorkerMirror
    writer: StatusWriter

    async def until(self, holds: Callable[[], bool]) -> None:
        """Asks again and again, each time after a trip to the database."""
        async with asyncio.timeout(DEADLINE_S):
            while not holds():
                await self.backend.ping()

    async def see(self, *bodies: dict[str, Any], gone: bool = False) -> None:
        """Returns when what was shown has been dealt with."""
        for body in bodies:
            self.intake.see(body, gone=gone)
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

        async def begin(
            quotas: QuotaSettings | None = None,
            *,
            queue_uid: str = "queue-1",
            named: Collection[str] = (),
            limits: Limits = DEFAULT_LIMITS,
        ) -> Stage:
            backend = await Counting.open(module_dsn, limits=limits)
            stack.push_async_callback(backend.close)
            kube = await stack.enter_async_context(KubeClient(credentials(url)))
            stage = _assemble(
                server,
                backend,
                kube,
                quotas or QuotaSettings(),
                IntakeRules(cluster_uid, limits, 100),
                queue_uid,
                named,
            )
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
    rules: IntakeRules,
    queue_uid: str,
    named: Collection[str],
) -> Stage:
    clock, stats = ManualClock(), ControllerStats()
    # Late enough for a token bucket to be full.
    clock.now_s = 1000.0
    here: dict[str, Any] = {"cluster_uid": rules.cluster_uid, "namespaces": (), "stats": stats}
    ownership = Ownership(kube, queue_uid, named, clock, stats, resync_s=60.0)
    sightings, deferred = Sightings(), Deferred()
    quotas = Quotas(backend, settings, clock)
    writer = StatusWriter(
        backend,
        kube,
        sightings,
        ownership,
        rate_per_s=WRITES_PER_S,
        clock=MonotonicClock(),
        **here,
    )
    intake = Intake(
        backend,
        kube,
        writer,
        sightings,
        rules,
        quotas,
        deferred,
        ownership,
        ControllerSettings(),
        clock,
        stats,
    )
    resync = Resync(
        backend, kube, intake, writer, sightings, deferred, ownership, clock=clock, **here
    )
    return Stage(
        api=server,
        backend=backend,
        catch_up=CatchUp(intake, kube, (), clock),
        clock=clock,
        deferred=deferred,
        intake=intake,
        kube=kube,
        ownership=ownership,
        readmission=Readmission(deferred, quotas, intake, kube, clock),
        resync=resync,
        stats=stats,
        workers=_workers(backend, kube, ownership, clock, stats),
        writer=writer,
    )


def _workers(
    backend: Counting,
    kube: KubeClient,
    ownership: Ownership,
    clock: ManualClock,
    stats: ControllerStats,
) -> WorkerMirror:
    return WorkerMirror(
        backend,
        kube,
        ownership,
        namespaces=(),
        clock=clock,
        stats=stats,
        writes_per_s=WRITES_PER_S,
    )
