"""What every gRPC call goes through: credentials, reading of messages, errors as statuses."""

import logging
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final, NoReturn, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from queue_operator.auth.protocol import Authenticator, Authorizer, Identity
from queue_operator.domain.errors import (
    InvalidArgument,
    PayloadTooLarge,
    QueueError,
    Unauthenticated,
    Unavailable,
)
from queue_operator.domain.validation import check_text
from queue_operator.wire.counting import has_more_fields
from queue_operator.wire.status import status_code, status_text, trailers

logger = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[Any, Any]
M = TypeVar("M", bound=Message)

NAMESPACE_KEY: Final = "namespace"
NAMESPACE_BYTES_KEY: Final = "namespace-bin"


class Unreadable:
    """Bytes that are no message of the call; kept apart so that the call can say so."""

    def __init__(self, error: InvalidArgument) -> None:
        self.error = error


def reader(kind: type[M], limit_bytes: int, most: int) -> Callable[[bytes], M | Unreadable]:
    """A deserializer that never fails: gRPC's own would hide what is wrong with a message. It may
    have so many bytes, and `most` fields.
    """

    def read(data: bytes) -> M | Unreadable:
        if len(data) > limit_bytes:
            return Unreadable(PayloadTooLarge("message", len(data), limit_bytes))
        return read_message(kind, data, most)

    return read


def read_message(kind: type[M], data: bytes, most: int, *, within: bool = False) -> M | Unreadable:
    """The message, or what is wrong with the bytes. `within` it there may be `most` fields."""
    if has_more_fields(data, most, within=within):
        return Unreadable(InvalidArgument("message", f"has more than {most} entries: send less"))
    try:
        return kind.FromString(data)
    except DecodeError:
        return Unreadable(InvalidArgument("message", f"is not a {kind.DESCRIPTOR.full_name}"))


class Door:
    """Who may call: asked of the caller's token, for the namespace of the call."""

    def __init__(
        self, authenticator: Authenticator, authorizer: Authorizer, id_characters: int
    ) -> None:
        self._authenticator = authenticator
        self._authorizer = authorizer
        self._id_characters = id_characters

    async def identify(self, context: Context) -> Identity:
        """Raises Unauthenticated, or Unavailable when whoever vouches does not answer."""
        return await self._authenticator.authenticate(bearer_token(context.invocation_metadata()))

    def namespace(self, context: Context, identity: Identity) -> str:
        """That of the call's metadata, else the caller's own."""
        wanted = _named_namespace(context)
        namespace = identity.namespace if wanted is None else wanted
        check_text("namespace", namespace, self._id_characters)
        return namespace

    async def admit(
        self, identity: Identity, verb: str, resource: str, namespaces: Collection[str]
    ) -> None:
        """Raises Forbidden unless all of it is allowed; an empty namespace means all of them."""
        for namespace in namespaces:
            await self._authorizer.authorize(identity, verb, resource, namespace)


async def refuse(context: Context, error: QueueError) -> NoReturn:
    """Ends the call with the error."""
    told = public(error)
    await context.abort(status_code(told), status_text(told), trailers(told))


_OURS: Final = {
    grpc.StatusCode.INTERNAL: "an unexpected error; the server's log has it",
    grpc.StatusCode.UNAVAILABLE: "the job store or the cluster does not answer now; try again",
}


def public(error: QueueError) -> QueueError:
    """The error as callers are told it: our own name hosts and accounts, and the caller may be a
    stranger. Those are logged.
    """
    text = _OURS.get(status_code(error))
    if text is None:
        return error
    logger.warning("a gRPC call failed: %s", error)
    return Unavailable(text) if isinstance(error, Unavailable) else QueueError(text)


def bearer_token(metadata: Iterable[tuple[str, str | bytes]] | None) -> str | None:
    """Raises Unauthenticated for other credentials."""
    for key, value in metadata or ():
        if key == "authorization":
            scheme, _, token = str(value).partition(" ")
            if scheme.lower() != "bearer" or not token.strip():
                raise Unauthenticated("send the metadata 'authorization: Bearer TOKEN'")
            return token.strip()
    return None


def _named_namespace(context: Context) -> str | None:
    for key, value in context.invocation_metadata() or ():
        if key == NAMESPACE_KEY:
            return str(value)
        if key == NAMESPACE_BYTES_KEY and isinstance(value, bytes):
            try:
                return value.decode()
            except UnicodeDecodeError:
                raise InvalidArgument("namespace", "is not UTF-8") from None
    return None
