"""An API server that is overloaded or lacks something, seen through a proxy."""

import itertools
from pathlib import Path

import pytest
from aiohttp import web
from tests.controller.jobs import claim, settle, until_state
from tests.controller.kubectl import JOBS, Kubectl, queue_job
from tests.controller.proxy import Proxy
from tests.controller.running import RunningController, until

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.controller.credentials import Credentials
from queue_operator.controller.kube import KubeClient
from queue_operator.controller.ports import BackendFactory
from queue_operator.controller.preflight import INSTALL, NotReady, check_cluster
from queue_operator.crd.names import GROUP
from queue_operator.devcluster import ClusterInfo

JOB_COUNT = 40


async def test_every_status_arrives_though_every_third_write_is_throttled(
    backend: PostgresBackend, kubectl: Kubectl, factory: BackendFactory, tmp_path: Path
) -> None:
    turns = itertools.count()

    def verdict(request: web.Request) -> web.Response | None:
        if request.method == "PATCH" and next(turns) % 3 == 0:
            return web.Response(status=429, headers={"Retry-After": "1"}, text="slow down")
        return None

    finished = 0

    async def run_what_is_there() -> bool:
        nonlocal finished
        assignments = await claim(backend, kubectl.namespace, limit=100)
        await settle(backend, assignments)
        finished += len(assignments)
        return finished == JOB_COUNT

    with (
        Proxy(kubectl.kubeconfig, tmp_path, verdict) as proxy,
        RunningController(factory, proxy.kubeconfig, (kubectl.namespace,)) as running,
    ):
        kubectl.apply(*(queue_job(f"job-{n}") for n in range(JOB_COUNT)))
        await until(backend, run_what_is_there)
        kubectl.wait("condition=Complete", JOBS, "--all", timeout_s=90)
        assert running.stats.status_throttled > 0
        assert running.stats.figures.throttled() >= running.stats.status_throttled
        assert running.stats.figures.status_written <= 2 * JOB_COUNT


def hides_our_group(request: web.Request) -> web.Response | None:
    if request.path.startswith(f"/apis/{GROUP}"):
        return web.json_response({"kind": "Status", "message": "not found"}, status=404)
    return None


async def test_missing_resources_end_the_start_with_the_command_that_installs_them(
    installed: ClusterInfo, tmp_path: Path
) -> None:
    with Proxy(installed.kubeconfig, tmp_path, hides_our_group) as proxy:
        async with KubeClient(Credentials.load(str(proxy.kubeconfig))) as kube:
            with pytest.raises(NotReady, match="queuejobs and queueworkers") as refusal:
                await check_cluster(kube)
    assert INSTALL in str(refusal.value)


async def test_they_are_waited_for_and_then_served(
    backend: PostgresBackend,
    kubectl: Kubectl,
    factory: BackendFactory,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    turns = itertools.count()

    def verdict(request: web.Request) -> web.Response | None:
        return hides_our_group(request) if next(turns) < 3 else None

    uid = kubectl.apply_job("job")
    with (
        Proxy(kubectl.kubeconfig, tmp_path, verdict) as proxy,
        RunningController(factory, proxy.kubeconfig, (kubectl.namespace,)),
    ):
        await until_state(backend, uid, kubectl.namespace)
    [line] = [r.getMessage() for r in caplog.records if r.levelname == "ERROR"]
    assert INSTALL in line


async def test_an_older_schema_is_named_with_what_it_lacks(
    installed: ClusterInfo, tmp_path: Path
) -> None:
    old = {"spec": {"versions": [{"name": "v1alpha1", "schema": {"openAPIV3Schema": {}}}]}}

    def verdict(request: web.Request) -> web.Response | None:
        older = request.path.endswith("/queuejobs.queueoperator.dev")
        return web.json_response(old) if older else None

    with Proxy(installed.kubeconfig, tmp_path, verdict) as proxy:
        async with KubeClient(Credentials.load(str(proxy.kubeconfig))) as kube:
            with pytest.raises(NotReady, match=r"older than this operator.*status\.transition"):
                await check_cluster(kube)


async def test_a_missing_right_is_named(installed: ClusterInfo, tmp_path: Path) -> None:
    def verdict(request: web.Request) -> web.Response | None:
        forbidden = request.path.endswith("/namespaces/kube-system")
        return web.json_response({"message": "forbidden"}, status=403) if forbidden else None

    with Proxy(installed.kubeconfig, tmp_path, verdict) as proxy:
        async with KubeClient(Credentials.load(str(proxy.kubeconfig))) as kube:
            with pytest.raises(NotReady, match="grant `get` on it"):
                await check_cluster(kube)
