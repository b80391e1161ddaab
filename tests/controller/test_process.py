"""The controller as the process that it is in production."""

import asyncio
import multiprocessing
import os
import signal
from multiprocessing.synchronize import Event

from tests.controller.jobs import until_state
from tests.controller.kubectl import Kubectl

from queue_operator.backends.postgres import PostgresBackend
from queue_operator.controller.startup import EXIT_OK, run_controller
from queue_operator.settings import ControllerSettings, Settings


def serve(dsn: str, kubeconfig: str, namespace: str, opened: Event) -> None:
    async def open_backend() -> PostgresBackend:
        backend = await PostgresBackend.open(dsn)
        opened.set()
        return backend

    settings = Settings(controller=ControllerSettings(namespaces=(namespace,)))
    raise SystemExit(run_controller(settings, open_backend, kubeconfig=kubeconfig))


async def test_sigterm_ends_it_cleanly_within_five_seconds(
    dsn: str, backend: PostgresBackend, kubectl: Kubectl
) -> None:
    uid = kubectl.apply_job("job")
    spawn = multiprocessing.get_context("spawn")
    opened = spawn.Event()
    child = spawn.Process(
        target=serve, args=(dsn, str(kubectl.kubeconfig), kubectl.namespace, opened)
    )
    child.start()
    try:
        await until_state(backend, uid, kubectl.namespace)
        assert child.pid is not None
        os.kill(child.pid, signal.SIGTERM)
        await asyncio.to_thread(child.join, 5)
        assert child.exitcode == EXIT_OK
    finally:
        child.kill()
        child.join()
