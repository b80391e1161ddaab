"""Callers known by a fixed token, for servers that run without a cluster."""

import hashlib
import hmac
from collections.abc import Mapping

from pydantic import SecretStr

from queue_operator.auth.protocol import Identity
from queue_operator.domain.errors import InvalidArgument, Unauthenticated
from queue_operator.domain.job import DEFAULT_NAMESPACE


class StaticAuthenticator:
    """Tokens by caller name; whoever has one is an administrator.

    Raises InvalidArgument when there is no token, an empty one, or one given twice.
    """

    def __init__(self, tokens: Mapping[str, SecretStr]) -> None:
        plain = {name: token.get_secret_value() for name, token in tokens.items()}
        if not plain or not all(plain.values()):
            raise InvalidArgument("auth.tokens", "static mode needs at least one non-empty token")
        if len(set(plain.values())) < len(plain):
            raise InvalidArgument("auth.tokens", "two names have the same token")
        self._digests = {name: _digest(token) for name, token in plain.items()}

    async def authenticate(self, token: str | None) -> Identity:
        given = _digest(token or "")
        # Every token is compared, in constant time: the answer's delay tells nothing.
        matches = [
            name for name, known in self._digests.items() if hmac.compare_digest(given, known)
        ]
        if not token or not matches:
            raise Unauthenticated(
                "missing or unknown token; send 'Authorization: Bearer TOKEN' with one of the "
                "server's auth.tokens"
            )
        return Identity(name=matches[0], namespace=DEFAULT_NAMESPACE, admin=True)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
