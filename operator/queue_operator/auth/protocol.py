"""Who is calling, and what they may do: the questions every door asks before the queue."""

from dataclasses import dataclass
from typing import Final, Protocol

QUEUE_JOBS: Final = "queuejobs"
QUEUE_JOBS_STATUS: Final = "queuejobs/status"
QUEUE_WORKERS: Final = "queueworkers"
"""Resources of the group `queueoperator.dev` that a review is asked about."""
CONNECT: Final = "connect"
"""The verb on `queueworkers` that a worker needs; no verb of the API server's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A caller somebody vouches for.

    `namespace` is the caller's own: the one a request means that names none. The pod is
    set for tokens bound to a pod. `uid`, `groups` and `extra` are what the cluster says of
    the caller; its authorizers may restrict by any of them. `scopes` are what a static token
    may do in its `namespaces`. `admin` callers pass every review without asking.
    """

    name: str
    namespace: str
    pod_name: str = ""
    pod_uid: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()
    admin: bool = False
    scopes: frozenset[str] = frozenset()
    namespaces: frozenset[str] = frozenset()


class Authenticator(Protocol):
    """Turns a bearer token into the identity behind it."""

    async def authenticate(self, token: str | None) -> Identity:
        """Raises Unauthenticated for a missing or unknown token, Unavailable when whoever
        could vouch for it does not answer.
        """
        ...


class Authorizer(Protocol):
    """Decides whether an identity may do something to a resource of a namespace."""

    async def authorize(self, identity: Identity, verb: str, resource: str, namespace: str) -> None:
        """Raises Forbidden when not, Unavailable when whoever decides does not answer."""
        ...
