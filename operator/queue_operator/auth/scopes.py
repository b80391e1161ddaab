"""What a static token may do: a few words instead of the roles of a cluster."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from queue_operator.auth.protocol import CONNECT, QUEUE_JOBS, QUEUE_WORKERS, Identity
from queue_operator.domain.errors import Forbidden


class Scope(StrEnum):
    """READ: look at jobs and statistics. SUBMIT: new jobs. MANAGE: cancel, retry, delete, pause.
    WORKER: be a worker. ADMIN: everything.
    """

    READ = "read"
    SUBMIT = "submit"
    MANAGE = "manage"
    WORKER = "worker"
    ADMIN = "admin"


EVERY_NAMESPACE: Final = "*"

_NEEDED: Final[Mapping[tuple[str, str], Scope]] = {
    ("get", QUEUE_JOBS): Scope.READ,
    ("list", QUEUE_JOBS): Scope.READ,
    ("create", QUEUE_JOBS): Scope.SUBMIT,
    ("update", QUEUE_JOBS): Scope.MANAGE,
    ("delete", QUEUE_JOBS): Scope.MANAGE,
    (CONNECT, QUEUE_WORKERS): Scope.WORKER,
}
"""What is not named here needs ADMIN."""


def _told_scopes(identity: Identity) -> str:
    """What a static token may do, and where."""
    return f"[{', '.join(sorted(identity.scopes))}] in [{', '.join(sorted(identity.namespaces))}]"


class ScopeAuthorizer:
    """Allows administrators everything and others what their scopes name, in their namespaces."""

    async def authorize(self, identity: Identity, verb: str, resource: str, namespace: str) -> None:
        if identity.admin:
            return
        known = namespace in identity.namespaces or EVERY_NAMESPACE in identity.namespaces
        needed = _NEEDED.get((verb, resource), Scope.ADMIN)
        if known and (needed in identity.scopes or Scope.ADMIN in identity.scopes):
            return
        where = f"in namespace {namespace!r}" if namespace else "in all namespaces"
        raise Forbidden(
            f"{identity.name} may not {verb} {resource} {where}: that needs the scope "
            f"{needed.value!r} there, and its token has {_told_scopes(identity)}"
        )
