"""What kopf is told: one handler, no storage, no finalizer, no write of its own."""

import socket
from collections.abc import Collection, Iterator, Sequence
from itertools import chain, repeat
from typing import Any, Final

import aiohttp
import kopf

from queue_operator.controller.credentials import Credentials
from queue_operator.controller.intake import Intake
from queue_operator.controller.workermirror import WorkerMirror
from queue_operator.crd.names import (
    GROUP,
    QUEUE_JOB,
    QUEUE_WORKER,
    UNFINISHED_SELECTOR,
    VERSION,
)
from queue_operator.domain.errors import Unavailable

LIST_PAGE: Final = 100
"""Objects per page of the initial list: each may be half a megabyte, and all of a page are in
memory at once. The list must end within etcd's five minutes.
"""

IDLE_S: Final = 0.5
"""How long kopf keeps what it holds of a quiet object."""


class NoProgress(kopf.ProgressStorage):
    """Nothing is written to the objects: no handler of ours has progress."""

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        return None

    def purge(self, **_: Any) -> None:
        return None

    def touch(self, **_: Any) -> None:
        return None

    def clear(self, *, essence: Any) -> Any:
        return essence


class NoDiffBase(kopf.DiffBaseStorage):
    """No handler of ours compares; this also saves a deep copy of every object."""

    def build(self, **_: Any) -> Any:
        return {}

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        return None


class Patiently:
    """Seconds between tries of a request, for ever: kopf ends when it has no more of them."""

    def __iter__(self) -> Iterator[float]:
        return chain((1.0, 2.0, 4.0, 8.0, 15.0), repeat(30.0))


def kopf_settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.persistence.diffbase_storage = NoDiffBase()
    settings.persistence.progress_storage = NoProgress()
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.scanning.disabled = True
    settings.watching.chunk_size = LIST_PAGE
    # As a tuple: the documented spelling "group/plural" matches nothing, silently.
    settings.watching.field_selectors[(GROUP, QUEUE_JOB.plural)] = UNFINISHED_SELECTOR
    settings.queueing.idle_timeout = IDLE_S
    settings.queueing.worker_limit = None
    settings.networking.error_backoffs = Patiently()
    return settings


def registry(
    intake: Intake,
    workers: WorkerMirror,
    credentials: Credentials,
    traces: Sequence[aiohttp.TraceConfig] = (),
) -> kopf.OperatorRegistry:
    """The handlers, bound to what they need."""
    handlers = kopf.OperatorRegistry()

    @kopf.on.login(registry=handlers)
    async def login(**_: Any) -> kopf.AiohttpSession:
        return credentials.for_kopf(traces)

    @kopf.on.event(GROUP, VERSION, QUEUE_JOB.plural, registry=handlers)
    async def queue_job(event: Any, **_: Any) -> None:
        intake.see(event["object"], gone=event["type"] == "DELETED")

    @kopf.on.event(GROUP, VERSION, QUEUE_WORKER.plural, registry=handlers)
    async def queue_worker(event: Any, **_: Any) -> None:
        workers.see(event["object"], gone=event["type"] == "DELETED")

    return handlers


async def watch(
    intake: Intake,
    workers: WorkerMirror,
    credentials: Credentials,
    namespaces: Collection[str],
    ready: Any,
    traces: Sequence[aiohttp.TraceConfig] = (),
) -> None:
    """Runs kopf until it is cancelled or fails; sets `ready` when it has started. Raises
    Unavailable for whatever ends it, such as an error that the API server put into a watch.
    """
    # Left alone, kopf asks for the name of the user, which a container's need not have.
    identity: Any = socket.gethostname()
    try:
        await kopf.operator(
            identity=identity,
            registry=registry(intake, workers, credentials, traces),
            settings=kopf_settings(),
            clusterwide=not namespaces,
            namespaces=list(namespaces),
            ready_flag=ready,
        )
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise Unavailable(f"resources are not watched any more: {why}") from error
