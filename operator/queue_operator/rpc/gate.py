"""Who is nobody's caller gets no further than the head of the call: its message is not read."""

import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

import grpc

from queue_operator.auth.protocol import Authenticator
from queue_operator.domain.errors import QueueError, QuotaExceeded, Unauthenticated
from queue_operator.rpc.door import Context, bearer_token, refuse

MOST_UNVOUCHED: Final = 256
"""Calls of which nobody has said yet whose they are."""
MOST_KNOWN: Final = 10_000
"""Tokens that were good when last looked at: these calls have a place whatever strangers do."""
REPEAT_AFTER_S: Final = 1.0

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any] | None"


class Gate(grpc.aio.ServerInterceptor):
    """Runs when the metadata of a call is there, and before anything else of it is asked for."""

    def __init__(self, authenticator: Authenticator, most: int = MOST_UNVOUCHED) -> None:
        self._authenticator = authenticator
        self._most = most
        self._unvouched = 0
        self._known: OrderedDict[bytes, None] = OrderedDict()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        try:
            await self._vouch(handler_call_details)
        except QueueError as error:
            return _refusing(error)
        return await continuation(handler_call_details)

    async def _vouch(self, call: grpc.HandlerCallDetails) -> None:
        token = bearer_token(call.invocation_metadata)
        key = hashlib.sha256((token or "").encode("utf-8", "surrogatepass")).digest()
        try:
            if key in self._known:
                await self._authenticator.authenticate(token)
            else:
                await self._vouch_for_stranger(token)
        except Unauthenticated:
            # What was good once and is no more has no place of its own.
            self._known.pop(key, None)
            raise
        self._known[key] = None
        self._known.move_to_end(key)
        if len(self._known) > MOST_KNOWN:
            self._known.popitem(last=False)

    async def _vouch_for_stranger(self, token: str | None) -> None:
        if self._unvouched >= self._most:
            what = "calls whose tokens this server checks at a time"
            raise QuotaExceeded(what, self._unvouched, self._most, REPEAT_AFTER_S)
        self._unvouched += 1
        try:
            await self._authenticator.authenticate(token)
        finally:
            self._unvouched -= 1


def _refusing(error: QueueError) -> Handler:
    """Of streams, whatever the call is: they alone are begun before a message is read."""

    async def answer(requests: object, context: Context) -> None:
        await refuse(context, error)

    return grpc.stream_stream_rpc_method_handler(answer)
