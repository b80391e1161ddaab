"""What events missed is found again; many at once converge with few writes."""

import asyncio

from tests.controller.jobs import claim, run_one, settle, until_state
from tests.controller.kubectl import JOBS, Kubectl, queue_job
from tests.controller.running import RunningController, until

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.controller.credentials import Credentials
from queue_operator.controller.kube import KubeClient, collection_path
from queue_operator.controller.ports import BackendFactory
from queue_operator.crd.names import QUEUE_JOB
from queue_operator.domain.states import JobState

BURST = 300


async def test_a_burst_converges_with_at_most_two_writes_a_job(
    controller: RunningController, backend: PostgresBackend, kubectl: Kubectl
) -> None:
    await create_many(kubectl, BURST)
    finished = 0

    async def run_what_is_there() -> bool:
        nonlocal finished
        while assignments := await claim(backend, kubectl.namespace, limit=100):
            await settle(backend, assignments)
            finished += len(assignments)
        return finished == BURST

    await until(backend, run_what_is_there)
    kubectl.wait("condition=Complete", JOBS, "--all", timeout_s=60)
    assert controller.stats.taken_in == BURST
    assert BURST <= controller.stats.figures.status_written <= 2 * BURST
    assert controller.stats.detached == 0


async def create_many(kubectl: Kubectl, number: int) -> None:
    limit = asyncio.Semaphore(16)
    path = collection_path(QUEUE_JOB.plural, kubectl.namespace)
    async with KubeClient(Credentials.load(str(kubectl.kubeconfig))) as kube:

        async def create(n: int) -> None:
            async with limit:
                await kube.create(path, queue_job(f"job-{n}"))

        await asyncio.gather(*(create(n) for n in range(number)))


async def test_jobs_created_while_nobody_watched_are_taken_in(
    backend: PostgresBackend, kubectl: Kubectl, factory: BackendFactory
) -> None:
    uid = kubectl.apply_job("job")
    with RunningController(factory, kubectl.kubeconfig, (kubectl.namespace,)):
        await until_state(backend, uid, kubectl.namespace)


async def test_jobs_deleted_while_nobody_watched_are_cancelled(
    backend: PostgresBackend, kubectl: Kubectl, factory: BackendFactory
) -> None:
    served = (kubectl.namespace,)
    with RunningController(factory, kubectl.kubeconfig, served):
        kept = kubectl.apply_job("kept")
        gone = kubectl.apply_job("gone")
        await until_state(backend, kept, kubectl.namespace)
        await until_state(backend, gone, kubectl.namespace)
    kubectl("delete", JOBS, "gone")
    with RunningController(factory, kubectl.kubeconfig, served, resync_s=0.5) as second:
        await until_state(backend, gone, kubectl.namespace, JobState.UNSCHEDULED)
        assert second.stats.detached == 1
    job = await backend.get_job(kept, namespace=kubectl.namespace)
    assert job.state is JobState.INITIAL_PENDING


async def test_a_status_that_was_due_when_the_controller_ended_is_written_by_the_next(
    backend: PostgresBackend, kubectl: Kubectl, factory: BackendFactory
) -> None:
    served = (kubectl.namespace,)
    with RunningController(factory, kubectl.kubeconfig, served):
        uid = kubectl.apply_job("job")
        await until_state(backend, uid, kubectl.namespace)
    await run_one(backend, kubectl.namespace)
    with RunningController(factory, kubectl.kubeconfig, served) as second:
        kubectl.wait("condition=Complete", f"{JOBS}/job")
        assert second.stats.figures.status_written == 1


async def test_two_controllers_make_one_job(
    backend: PostgresBackend, kubectl: Kubectl, factory: BackendFactory
) -> None:
    served = (kubectl.namespace,)
    with (
        RunningController(factory, kubectl.kubeconfig, served) as first,
        RunningController(factory, kubectl.kubeconfig, served) as second,
    ):
        uid = kubectl.apply_job("job")
        await until_state(backend, uid, kubectl.namespace)
        await run_one(backend, kubectl.namespace)
        kubectl.wait("condition=Complete", f"{JOBS}/job")
    assert first.stats.taken_in + second.stats.taken_in == 1
    stats = await backend.get_job_stats((), namespace=kubectl.namespace)
    assert stats.total_jobs == 1


async def test_the_whole_cluster_is_served_without_a_list_of_namespaces(
    backend: PostgresBackend, kubectl: Kubectl, factory: BackendFactory
) -> None:
    uid = kubectl.apply_job("job")
    with RunningController(factory, kubectl.kubeconfig, ()):
        await until_state(backend, uid, kubectl.namespace)
        await run_one(backend, kubectl.namespace)
        kubectl.wait("condition=Complete", f"{JOBS}/job")
