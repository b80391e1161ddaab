"""Who may be a worker: a verb of its own, asked of whoever decides in the namespace."""

from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import pytest
from tests.integration.rpc.conftest import Plane

from queue_operator.auth.protocol import Identity
from queue_operator.auth.scopes import ScopeAuthorizer
from queue_operator.domain.errors import Forbidden

StartPlane = Callable[..., Awaitable[Plane]]
POD = Identity(name="sa", namespace="team", pod_name="worker-0", pod_uid="uid-0")


class Vouching:
    """Each token is this caller's."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity

    async def authenticate(self, token: str | None) -> Identity:
        return self._identity


class Granting:
    """Allows what is granted, and remembers what it was asked."""

    def __init__(self, *granted: tuple[str, str, str]) -> None:
        self._granted = granted
        self.asked: list[tuple[str, str, str]] = []

    async def authorize(self, identity: Identity, verb: str, resource: str, namespace: str) -> None:
        self.asked.append((verb, resource, namespace))
        if (verb, resource, namespace) not in self._granted:
            raise Forbidden(f"{identity.name} may not {verb} {resource} in {namespace!r}")


async def test_a_pod_that_may_connect_gets_its_session(
    start_plane: StartPlane, connect: Callable[..., Any]
) -> None:
    granting = Granting(("connect", "queueworkers", "team"))
    plane = await start_plane(Vouching(POD), granting)
    welcome = await connect(plane.port).hello()
    assert (welcome.namespace, welcome.worker_name) == ("team", "worker-0")
    assert granting.asked == [("connect", "queueworkers", "team")]


async def test_a_pod_that_may_do_all_to_jobs_is_no_worker(
    start_plane: StartPlane, connect: Callable[..., Any]
) -> None:
    rights = [(verb, "queuejobs", "team") for verb in ("create", "get", "list", "update", "delete")]
    plane = await start_plane(Vouching(POD), Granting(*rights))
    worker = connect(plane.port)
    await worker.say(hello={"session_id": worker.session_id, "capacity": 1})
    refused = await worker.failure()
    assert refused.code() is grpc.StatusCode.PERMISSION_DENIED
    assert refused.details() == "sa may not connect queueworkers in 'team'"
    assert plane.queue.usage() == []


@pytest.mark.parametrize(
    ("scopes", "namespaces", "told"),
    [
        ({"worker"}, {"team"}, ""),
        ({"admin"}, {"team"}, ""),
        ({"worker"}, {"*"}, ""),
        ({"manage", "submit", "read"}, {"team"}, "its token has [manage, read, submit] in [team]"),
        ({"worker"}, {"other"}, "its token has [worker] in [other]"),
    ],
)
async def test_a_static_token_needs_the_scope_in_the_namespace_of_the_worker(
    start_plane: StartPlane,
    connect: Callable[..., Any],
    scopes: set[str],
    namespaces: set[str],
    told: str,
) -> None:
    static = Identity(
        name="ops",
        namespace="default",
        scopes=frozenset(scopes),
        namespaces=frozenset(namespaces),
    )
    plane = await start_plane(Vouching(static), ScopeAuthorizer())
    worker = connect(plane.port)
    if not told:
        assert (await worker.hello(namespace="team")).namespace == "team"
        return
    hello = {"session_id": worker.session_id, "namespace": "team", "worker_name": "w"}
    await worker.say(hello={**hello, "capacity": 1})
    refused = await worker.failure()
    assert refused.code() is grpc.StatusCode.PERMISSION_DENIED
    assert refused.details() == (
        "ops may not connect queueworkers in namespace 'team': that needs the scope 'worker' "
        f"there, and {told}"
    )
