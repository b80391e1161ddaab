"""A server without access control, and the review that only administrators pass."""

from queue_operator.auth.protocol import Identity
from queue_operator.domain.errors import Forbidden
from queue_operator.domain.job import DEFAULT_NAMESPACE


class OpenAuthenticator:
    """Everybody is an administrator, whatever token they send. For development only."""

    async def authenticate(self, token: str | None) -> Identity:
        return Identity(name="anonymous", namespace=DEFAULT_NAMESPACE, admin=True)


class AdministratorsOnly:
    """Allows administrators everything and others nothing."""

    async def authorize(self, identity: Identity, verb: str, resource: str, namespace: str) -> None:
        if not identity.admin:
            raise Forbidden(f"{identity.name} may not {verb} {resource} in {namespace!r}")
