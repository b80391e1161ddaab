"""Callers known by a fixed token, for servers that run without a cluster."""

from collections.abc import Mapping

from pydantic import SecretStr

from queue_operator.auth.protocol import Identity
from queue_operator.auth.tokens_file import TokensFile, digest_of
from queue_operator.domain.errors import InvalidArgument, Unauthenticated
from queue_operator.domain.job import DEFAULT_NAMESPACE


class StaticAuthenticator:
    """Tokens by caller name, whose owners are administrators, and those of a file, who may do
    what it says.

    Raises InvalidArgument when there is no token, an empty one, or one given twice.
    """

    def __init__(self, tokens: Mapping[str, SecretStr], file: TokensFile | None = None) -> None:
        plain = {name: token.get_secret_value() for name, token in tokens.items()}
        if not (plain or file) or not all(plain.values()):
            raise InvalidArgument(
                "auth.tokens", "static mode needs at least one non-empty token, or a tokens_file"
            )
        if len(set(plain.values())) < len(plain):
            raise InvalidArgument("auth.tokens", "two names have the same token")
        self._administrators = {
            digest_of(token): Identity(name=name, namespace=DEFAULT_NAMESPACE, admin=True)
            for name, token in plain.items()
        }
        self._file = file

    async def authenticate(self, token: str | None) -> Identity:
        # Digests are looked up, so how long that takes tells nothing of the tokens.
        given = digest_of(token or "")
        identity = self._administrators.get(given)
        if identity is None and self._file is not None:
            identity = self._file.callers().get(given)
        if not token or identity is None:
            raise Unauthenticated(
                "missing or unknown token; send 'Authorization: Bearer TOKEN' with one of the "
                "server's auth.tokens"
            )
        return identity
